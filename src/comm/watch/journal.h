/* The journal: what every rank has begun lately and what it waits for, where its peers on the node can read it (the
 * heap of `local`, a mapped segment of `mpi`; all zeros at first). It is how a disagreement and a hang are explained:
 * watchdog.c looks. Keeping it costs 0.1 us an operation.
 *
 * Only its rank writes a journal, under a lock that readers take for the time of a copy. In the place of a rank of
 * another node lies what was last heard of it (inquiry.h): its standing. */
#ifndef NDP_COMM_WATCH_JOURNAL_H
#define NDP_COMM_WATCH_JOURNAL_H

#include "comm/impl.h"
#include <stdatomic.h>

enum { NDP_JOURNAL_RECORDS = 256, NDP_PLACE_NAME = 40 };

/* A place of the step program, "#116.7 layers.3"; what ndp_comm_at said. */
typedef struct ndp_place {
    char what[NDP_PLACE_NAME]; /* "": not said */
    int32_t instr, call;       /* < 0: none */
} ndp_place;

/* An operation in words that every rank understands. */
typedef struct ndp_record {
    char group[24];
    int32_t base, stride, members; /* of the group */
    uint32_t comm;                 /* tells communicators with one base apart */
    int32_t kind, type, reduce;
    int32_t peer, tag; /* world rank: root, destination or source */
    uint32_t sequence; /* of its communicator; a message's: of those to this peer, 0 where nobody counts */
    int64_t count;
    ndp_place at;
    double begun, ended; /* seconds of the node's clock; ended = 0: not yet */
    int32_t in_place;    /* nothing was copied but what its ranks asked for: no MPI */
} ndp_record;

typedef struct ndp_journal {
    _Alignas(64) _Atomic uint32_t lock;
    uint32_t looks;     /* how often the rank has seen that it still has to wait */
    double looked;      /* when it did last, or fell asleep */
    uint32_t begun;     /* records written so far; number n lies at n % NDP_JOURNAL_RECORDS, from 1 */
    uint32_t waits;     /* odd: the rank is asleep in a wait */
    uint32_t waits_for; /* the record */
    int32_t awaits;     /* the world rank that has to come; -1: not known */
    uint32_t awaits_in; /* that rank's wait (its `waits`) in which it cannot come; 0: it may be about to */
    uint32_t last;      /* the record that was begun or ended last */
    ndp_place waits_at;
    ndp_record records[NDP_JOURNAL_RECORDS];
} ndp_journal;

/* What a rank is at. */
typedef struct ndp_standing {
    bool known, waiting;
    uint32_t waits, looks;
    double looked;
    int32_t awaits;
    uint32_t awaits_in;
    ndp_place at;      /* of the wait, where one was said */
    ndp_record record; /* waited for, else the last one begun or ended; kind < 0: none */
} ndp_standing;

/* Of another process: may it be used? Texts end, kinds and types exist, ranks are those of a world of so many, and
 * counts make no sum overflow. Another build, or damaged memory, may have written it. */
bool ndp_record_is_sound(const ndp_record *r, int world);
bool ndp_standing_is_sound(const ndp_standing *s, int world);

/* Notes that `w` begins (w->record becomes its number), and that it has ended. */
void ndp_journal_begin(ndp_journal *j, ndp_work *w);
void ndp_journal_end(ndp_journal *j, const ndp_work *w);
/* This rank's note of an operation begun; it stays while fewer than NDP_JOURNAL_RECORDS others are begun. */
ndp_record *ndp_journal_record(ndp_journal *j, const ndp_work *w);
/* Of a message: which one to its peer it is. */
void ndp_journal_number(ndp_journal *j, const ndp_work *w, uint32_t sequence);
/* Between the two this rank is asleep. */
void ndp_journal_sleep(ndp_journal *j, const ndp_work *w, int awaits);
void ndp_journal_wake(ndp_journal *j);
/* It is alive, and has done what it owes to others. */
void ndp_journal_look(ndp_journal *j, double now);
/* What this rank, asleep, has found out since: for whom it waits, and in which wait of that rank nothing that it does
 * can help (0: not certain). */
void ndp_journal_await(ndp_journal *j, int awaits, uint32_t in);
ndp_standing ndp_journal_read(ndp_journal *j);
/* Makes ndp_journal_read return `s`: in the place of a rank that cannot be read. */
void ndp_journal_put(ndp_journal *j, const ndp_standing *s);

/* What one rank waits for another to begin. */
typedef struct ndp_awaited {
    int32_t base; /* of the group */
    uint32_t comm, sequence;
    int32_t to; /* >= 0: no collective but message number `sequence` to this world rank */
} ndp_awaited;

typedef enum ndp_come { NDP_COME_UNKNOWN, NDP_COME_YES, NDP_COME_NO } ndp_come;

/* Whether a rank has begun it. NO is certain, and stays true until the wait that the rank is in is over. */
typedef struct ndp_arrival {
    ndp_come come;
    uint32_t in; /* that wait; 0: it is awake */
    bool left;   /* it has ended */
} ndp_arrival;

/* UNKNOWN when a->sequence is 0. Of `left` the journal says nothing. */
ndp_arrival ndp_journal_judge(ndp_journal *j, const ndp_awaited *a);
/* The last operation that this rank ended together with `rank`; false: none that is noted. */
bool ndp_journal_last_with(ndp_journal *j, int rank, ndp_record *out);

/* "" where the two meet, else what differs. Names differ when both are said. */
bool ndp_record_meets(const ndp_record *a, const ndp_record *b);
/* "#116.7 all_gather layers.3 (4096 bytes of fp32)" into `out`; returns `out`. */
char *ndp_record_text(const ndp_record *r, char *out, size_t size);
/* NDP_ECOMM "tp: rank 3 is at ..., rank 2 at ...". */
ndp_status ndp_record_disagreement(const ndp_comm *c, int rank_a, const ndp_record *a, int rank_b, const ndp_record *b);

/* After a failure: this rank's records into the file $NDP_JOURNAL.rankN, once; nothing where that is not set. What goes
 * wrong with it goes unsaid: the failure is what the user has to see. This thread's error stays. */
void ndp_journal_write(ndp_transport *t);

#endif
