/* Tracks: the communications of several ranks' programs, matched with each other. The checker (check.c) and the
 * simulator (simulate.h) replay them.
 *
 * A track has the events of one rank in the order of its program. Operations of one channel are matched in order: the
 * k-th begin of every member of the group is the same collective. Messages are matched apart: the k-th send from a rank
 * to another with one tag is the k-th receive there. */
#ifndef NDP_STEP_TRACKS_H
#define NDP_STEP_TRACKS_H

#include "step/program.h"

/* The begin of a message. Sorted by the other side and tag, then by order, those that match have the same place. */
typedef struct ndp_track_message {
    int send, channel, peer, tag; /* peer: a rank of the group */
    int event;
} ndp_track_message;

/* The first two iterations of a repeated range divide a program. */
enum { NDP_TRACK_PARTS = 4 };

typedef struct ndp_track {
    const ndp_program *program;
    int rank, n;
    ndp_comm_event *events;
    int *begin; /* by event: that of its begin; itself, if it is one */
    int *place; /* of a begin: on its channel, from 0 */
    int *other; /* of a message's begin: the track of its other side, NDP_NONE if that is not given, */
    int *match; /* and the event there */
    int total[NDP_CHANNELS];
    int end[NDP_TRACK_PARTS]; /* events before the end of: the prologue, an iteration, the next, the rest */
    int on[NDP_TRACK_PARTS][NDP_CHANNELS]; /* begins in it */
    int *nth[NDP_CHANNELS];                /* the event that is the channel's k-th begin */
    /* Of the channel's group: its first track, and how many it has. */
    int first[NDP_CHANNELS], members[NDP_CHANNELS];
    bool lone[NDP_MAX_GRAPHS][NDP_PHASES]; /* lists that are left out */
    ndp_track_message *messages;
    int n_messages;
    int *begun; /* by work of the program (ndp_instr.work): the latest begin, while events are listed */
} ndp_track;

typedef struct ndp_tracks {
    ndp_track *items;
    int n;
} ndp_tracks;

/* Matches the programs of `n` ranks of one world, all or some; borrows them. Of repeated ranges, the iterations that
 * `visits` says. `without_lone`: not the lists whose communications have no other member here. Release in any case.
 * NDP_ENOMEM; NDP_EBUG names both sides of what differs: kind, bytes, buffer, order. */
NDP_API ndp_status ndp_tracks_match(const ndp_program *const *programs, int n, ndp_visits visits, bool without_lone,
                                    ndp_tracks *out);
void ndp_tracks_release(ndp_tracks *t);

/* NDP_EBUG: event `e` is the wait in which a rank is blocked forever. */
ndp_status ndp_track_deadlock(const ndp_track *t, int e);

#endif
