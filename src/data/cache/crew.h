/* Inside the data room: the ranks that build a token cache together, and how they coordinate.
 *
 * Ranks that see the same cache folder form a crew and build one cache. If nodes have cache folders of their own, the
 * ranks of each node form one. The lowest rank of a crew is its leader. The leader creates a work folder in the cache
 * folder; every rank that can see it joins. From then on the crew exchanges no messages: progress is recorded as files
 * in the work folder, and a rank that waits polls for a file. So an idle rank costs nothing and no wait can time out.
 *
 *   go      work continues; a rank that fails removes it (also possible on a full disk), and all others stop
 *   others  see cache_build.h
 *
 * The leader locks the work folder for as long as it lives. A work folder without a lock was abandoned by a killed run;
 * the next leader removes it. */
#ifndef NDP_DATA_CACHE_CREW_H
#define NDP_DATA_CACHE_CREW_H

#include "data/cache/dataset_options.h"

enum { NDP_CREW_NAME = 60 };

typedef struct ndp_crew {
    const ndp_team *team;
    const char *folder;        /* the cache folder; borrowed */
    char *work;                /* path of the work folder; NULL: the cache `there` exists already */
    char there[NDP_CREW_NAME]; /* the cache's name in `folder`, from a leader that cannot write */
    int rank, size;            /* in the crew; rank 0 leads */
    bool leads;                /* made the work folder */
    int lock;                  /* the leader's; -1 if folders cannot be locked */
} ndp_crew;

/* Collective over the team (NULL: one rank). `otherwise` is called by a leader that cannot create a work folder, with
 * the error set: it names a cache in the folder that makes building unnecessary, or fails. */
ndp_status ndp_crew_form(const ndp_team *team, const char *folder,
                         ndp_status (*otherwise)(void *user, char name[NDP_CREW_NAME]), void *user, ndp_crew *out);
/* The leader removes the work folder. Call it after the last use by any rank. */
void ndp_crew_dissolve(ndp_crew *c);

/* Writes the path of a file of the work folder to `out`, and returns `out`. */
enum { NDP_CREW_PATH = 4096 };
const char *ndp_crew_path(const ndp_crew *c, char out[NDP_CREW_PATH], const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Whether the file exists. */
bool ndp_crew_has(const ndp_crew *c, const char *name);
/* Creates an empty file. *first (may be NULL): false if it existed already; ranks claim work this way. */
ndp_status ndp_crew_mark(const ndp_crew *c, const char *name, bool *first);
/* Tells all ranks of the crew to stop. */
void ndp_crew_stop(const ndp_crew *c);
bool ndp_crew_stopped(const ndp_crew *c);
/* Waits until the file exists; false if a rank failed first. `meanwhile` (may be NULL) is called at each poll. */
bool ndp_crew_wait(const ndp_crew *c, const char *name, void (*meanwhile)(void *user), void *user);

#endif
