/* Inside the data room: who builds a token cache together, and how they tell each other.
 *
 * Ranks that see the same cache folder are a crew: they build one cache. Where nodes have cache folders of their own,
 * each node's ranks are one. The lowest rank of a crew is its leader. He makes a work folder in the cache folder; who
 * sees it belongs to him. From then on the crew needs no messages: what is done is a file of the work folder, and who
 * has to wait for it looks for it now and then, so that an idle rank costs nothing and nobody's wait can time out.
 *
 *   go      the building goes on; a rank that fails removes it (a full disk cannot forbid that), and all others stop
 *   others  see cache_build.h
 *
 * The leader holds a lock on the work folder as long as it lives. A work folder without its lock was left behind by a
 * run that was killed; the next leader removes it. */
#ifndef NDP_DATA_CACHE_CREW_H
#define NDP_DATA_CACHE_CREW_H

#include "data/cache/dataset_options.h"

enum { NDP_CREW_NAME = 60 };

typedef struct ndp_crew {
    const ndp_team *team;
    const char *folder;        /* of caches; borrowed */
    char *work;                /* path of the work folder; NULL: `there` is all there is */
    char there[NDP_CREW_NAME]; /* a file of `folder` that a leader names who cannot write */
    int rank, size;            /* in the crew; rank 0 leads */
    bool leads;                /* made the work folder */
    int lock;                  /* of the leader; -1 where folders cannot be locked */
} ndp_crew;

/* Collective over the team (NULL: one rank). `otherwise`: called by a leader who cannot make a work folder, with the
 * error set: names a file of the folder that makes one unnecessary, or fails. */
ndp_status ndp_crew_form(const ndp_team *team, const char *folder,
                         ndp_status (*otherwise)(void *user, char name[NDP_CREW_NAME]), void *user, ndp_crew *out);
/* The leader removes the work folder; behind the last use by any rank. */
void ndp_crew_dissolve(ndp_crew *c);

/* Path of a file of the work folder, into `out`; returns `out`. */
enum { NDP_CREW_PATH = 4096 };
const char *ndp_crew_path(const ndp_crew *c, char out[NDP_CREW_PATH], const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Is the file there? */
bool ndp_crew_has(const ndp_crew *c, const char *name);
/* Makes an empty file. False when it is there already, which is how ranks share out work. */
ndp_status ndp_crew_mark(const ndp_crew *c, const char *name, bool *first);
/* Makes the others stop. */
void ndp_crew_stop(const ndp_crew *c);
bool ndp_crew_stopped(const ndp_crew *c);
/* Waits until the file is there; false when a rank failed first. `meanwhile` is called now and then; may be NULL. */
bool ndp_crew_wait(const ndp_crew *c, const char *name, void (*meanwhile)(void *user), void *user);

#endif
