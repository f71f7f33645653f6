/* The journal: what a rank has begun lately and what it waits for, in memory that its peers on the node can read (the
 * heap for `local`, the shared file of `shm` and `mpi`; zeroed). Mismatched operations and hangs are explained from it;
 * watchdog.c says how. It costs 0.1 us an operation.
 *
 * A rank writes only its own journal, under a lock that is held for the time of a copy. A rank of another node has an
 * entry in the table of journals too: this rank stores there what the last reply said about it (state_query.h). */
#ifndef NDP_COMM_WATCH_JOURNAL_H
#define NDP_COMM_WATCH_JOURNAL_H

#include "comm/impl.h"
#include <stdatomic.h>

enum { NDP_JOURNAL_RECORDS = 256, NDP_CALL_SITE_NAME = 48 };

/* Where in its step program a rank calls comm, "#116.7 layers.3": what ndp_comm_at was given. */
typedef struct ndp_call_site {
    char what[NDP_CALL_SITE_NAME]; /* "": not given */
    int32_t instr, call;           /* < 0: not given */
} ndp_call_site;

/* An operation, described without addresses, so that every rank can read it. */
typedef struct ndp_record {
    char group[24];
    int32_t base, stride, members; /* of the group */
    uint32_t comm;                 /* distinguishes communicators whose groups have the same base */
    int32_t kind, type, reduce;
    int32_t peer, tag; /* world rank: root, destination or source */
    uint32_t sequence; /* of its communicator; for a send, of those to this peer; 0: not counted */
    int64_t count;
    uint64_t rows; /* a hash of an all_to_all's; 0: it has none */
    ndp_call_site at;
    double begun, ended; /* seconds of the node's clock; ended = 0: pending */
    double waited;       /* seconds that the rank spent in ndp_wait for it */
    int32_t in_place;    /* peers' buffers were read and written directly */
    uint32_t waypoint;   /* of its begin, on the queue of a device (waypoints.h); 0: an operation of the host */
} ndp_record;

/* Where the queue of a rank's device is in its program, as its host has seen it last (waypoints.h). */
typedef struct ndp_device_place {
    ndp_call_site at;
    char doing[24];     /* a phase or an op: "forward" */
    uint32_t waypoint;  /* its number; 0: not known */
    int32_t idle;       /* all that was submitted has run */
    double since, seen; /* when the host saw it there first, and when it looked last */
} ndp_device_place;

typedef struct ndp_journal {
    _Alignas(64) _Atomic uint32_t lock;
    uint32_t polls;       /* how often the rank, while it waits, ran its progress functions and checked again */
    double last_poll;     /* when it did so last, or began to wait */
    uint32_t begun;       /* records written so far; record n, from 1, is at n % NDP_JOURNAL_RECORDS */
    uint32_t wait;        /* number of the rank's wait: odd inside one, even between two */
    uint32_t wait_record; /* the operation it waits for */
    int32_t blocked_on;   /* the world rank it is blocked on; -1: not known */
    uint32_t peer_wait;   /* the wait of that rank in which it cannot begin what is expected of it; 0: not certain */
    uint32_t last;        /* the record that was begun or ended last */
    ndp_call_site wait_site;
    ndp_device_place place;
    uint32_t on_device; /* the rank's host waits for its device */
    ndp_record records[NDP_JOURNAL_RECORDS];
} ndp_journal;

/* What a rank is doing, as read from its journal. */
typedef struct ndp_rank_state {
    bool known, waiting, on_device; /* on_device: it waits for its device, which may compute or wait for others */
    uint32_t wait, polls;
    double last_poll;
    int32_t blocked_on;
    uint32_t peer_wait;
    ndp_call_site at; /* of the wait, if given */
    ndp_device_place place;
    ndp_record record; /* the operation waited for, else the last one begun or ended; kind < 0: none */
} ndp_rank_state;

/* Whether data of another process is safe to use: strings are terminated, kinds and types exist, ranks belong to a
 * world of this size, and no count overflows a sum. Another build or damaged memory may have written it. */
bool ndp_record_is_sound(const ndp_record *r, int world);
bool ndp_rank_state_is_sound(const ndp_rank_state *s, int world);

/* Records that `w` begins (and sets w->record), and that it has ended. */
void ndp_journal_begin(ndp_journal *j, ndp_work *w);
void ndp_journal_end(ndp_journal *j, const ndp_work *w);
/* The record of an operation; valid until NDP_JOURNAL_RECORDS later ones have begun. */
ndp_record *ndp_journal_record(ndp_journal *j, const ndp_work *w);
/* Numbers a send among those to its destination. */
void ndp_journal_set_sequence(ndp_journal *j, const ndp_work *w, uint32_t sequence);
/* Between the two this rank is inside a wait. blocked_on: world rank, -1: not known. */
void ndp_journal_wait_begin(ndp_journal *j, const ndp_work *w, int blocked_on);
/* The same for a wait that its device is inside, at `at` in the program. */
void ndp_journal_device_wait_begin(ndp_journal *j, const ndp_work *w, const ndp_call_site *at, int blocked_on);
void ndp_journal_wait_end(ndp_journal *j);
/* The rank is alive and has run its progress functions. */
void ndp_journal_poll(ndp_journal *j, double now);
/* The rank's host begins (or ends) to wait for its device. */
void ndp_journal_set_on_device(ndp_journal *j, bool waits);
/* Where its device is. */
void ndp_journal_set_place(ndp_journal *j, const ndp_device_place *p);
/* What this rank has found out during its wait; fields as in ndp_journal. */
void ndp_journal_set_blocked_on(ndp_journal *j, int blocked_on, uint32_t peer_wait);
ndp_rank_state ndp_journal_read(ndp_journal *j);
/* Makes ndp_journal_read return `s`: for the entry of a rank on another node. */
void ndp_journal_put(ndp_journal *j, const ndp_rank_state *s);

/* What one rank, while it waits, expects another to begin. */
typedef struct ndp_expected_op {
    int32_t base; /* of the group */
    uint32_t comm, sequence;
    int32_t to;      /* >= 0: message number `sequence` to this world rank, or from it, else a collective */
    int32_t receive; /* a receive from that rank */
    int32_t on_host; /* an operation of a device has begun once it is submitted, not when the device is there */
} ndp_expected_op;

typedef enum ndp_progress { NDP_PROGRESS_UNKNOWN, NDP_PROGRESS_BEGUN, NDP_PROGRESS_NOT_BEGUN } ndp_progress;

/* Whether a peer has begun the expected operation; on a device: whether the device has come to its begin. NOT_BEGUN
 * holds until the wait in `wait` ends. */
typedef struct ndp_peer_progress {
    ndp_progress progress;
    uint32_t wait; /* the wait that the peer is inside, and in which it cannot begin the operation; 0: none */
    bool left;     /* the peer has left the run */
} ndp_peer_progress;

/* UNKNOWN if e->sequence is 0 or the records that matter are overwritten. `left` stays false: the journal does not
 * know it. */
ndp_peer_progress ndp_journal_progress(ndp_journal *j, const ndp_expected_op *e);
/* The last collective that this rank ended together with `rank`; false: none is recorded. */
bool ndp_journal_last_with(ndp_journal *j, int rank, ndp_record *out);

/* True if the two describe one operation. Names are compared if both are given. */
bool ndp_record_matches(const ndp_record *a, const ndp_record *b);
/* "#116.7 all_gather layers.3 (4096 bytes of fp32)" into `out`; returns `out`. */
char *ndp_record_text(const ndp_record *r, char *out, size_t size);
/* "#116.7 attention layers.3" */
char *ndp_place_text(const ndp_device_place *p, char *out, size_t size);
enum { NDP_LAST_TEXT = 320 };
/* What a rank that is gone did last: "; its last operation was #40 ... of group tp; its device was last seen at
 * #37 ..."; "": not known. */
char *ndp_last_text(const ndp_rank_state *s, char *out, size_t size);
/* NDP_ECOMM "tp: rank 3 is at ..., rank 2 at ...". */
ndp_status ndp_record_mismatch(const ndp_comm *c, int rank_a, const ndp_record *a, int rank_b, const ndp_record *b);

/* $NDP_JOURNAL, or what ndp_transport_keep_journals has said, while it holds; NULL: journals are not kept. */
struct ndp_health;
enum { NDP_JOURNAL_PREFIX = 1100 };
const char *ndp_journal_prefix(const struct ndp_health *h, char out[NDP_JOURNAL_PREFIX]);
/* Writes the records of a rank to the file PREFIX.rankN; `why`: the failure. Errors are ignored. */
void ndp_journal_write_file(const char *prefix, const ndp_journal *j, int rank, int world, const char *why);
/* After a failure: writes this rank's records to the file PREFIX.rankN, once; does nothing if journals are not kept.
 * Errors here are ignored, and this thread's error message stays: the user needs to see the failure. */
void ndp_journal_write(ndp_transport *t);

#endif
