/* What the transports of this room share: the handles behind comm.h and the table each transport fills.
 *
 * comm.c checks arguments, answers for groups of one rank and for `null`, and hands everything else to the table. A
 * transport's own handles begin with the structs below. */
#ifndef NDP_COMM_IMPL_H
#define NDP_COMM_IMPL_H

#include "comm/comm.h"

typedef enum ndp_work_kind {
    NDP_WORK_BARRIER,
    NDP_WORK_ALL_REDUCE,
    NDP_WORK_ALL_GATHER,
    NDP_WORK_REDUCE_SCATTER,
    NDP_WORK_BROADCAST,
    NDP_WORK_ALL_TO_ALL,
    NDP_WORK_SHIFT,
    NDP_WORK_SEND,
    NDP_WORK_RECV,
    NDP_WORK_KINDS
} ndp_work_kind;

/* The last tag that every MPI has. Callers have those below. */
enum { NDP_TAG_SHIFT = 32767 };

static inline bool ndp_work_is_message(const ndp_work *w) {
    return w->kind == NDP_WORK_SEND || w->kind == NDP_WORK_RECV;
}

typedef struct ndp_transport_ops {
    const char *name;
    bool dry; /* nothing moves: begin and wait are never called */
    ndp_status (*comm_create)(ndp_transport *t, ndp_group group, const char *name, ndp_comm **out);
    void (*comm_destroy)(ndp_comm *c);
    ndp_status (*begin)(ndp_work *w);
    ndp_status (*wait)(ndp_work *w);
    ndp_status (*window_create)(ndp_comm *c, size_t bytes, bool shared, ndp_window **out);
    void (*window_destroy)(ndp_window *w);
    void (*abort)(ndp_transport *t, const char *message); /* NULL: nobody to tell */
    void (*destroy)(ndp_transport *t);                    /* NULL: released by who made it */
} ndp_transport_ops;

typedef struct ndp_host_name {
    char text[64];
} ndp_host_name;

struct ndp_transport {
    const ndp_transport_ops *ops;
    int rank, world, node_ranks;
    struct ndp_health *health;    /* NULL where no rank can fail but this one */
    double timeout;               /* seconds a wait may last */
    bool crowded;                 /* more ranks than cores: yield at once */
    struct ndp_duty *duties;      /* what peers may be waiting for while this rank waits (wait.h) */
    int owed;                     /* operations begun of which this rank's share is not done */
    struct ndp_journal *journals; /* by world rank; NULL where there is nobody to look (journal.h) */
    struct ndp_inquiry *inquiry;  /* how ranks of other nodes are asked; NULL: there are none (inquiry.h) */
    const char *note;             /* NULL: nothing */
    const ndp_host_name *hosts;   /* by world rank; NULL: all are on one host */
    bool journal_written;
};

struct ndp_comm {
    ndp_transport *transport;
    ndp_group group;
    char name[32];
    uint32_t number;     /* no other communicator whose group has this base has it; 0: not given */
    uint32_t operations; /* collectives begun */
    const char *what;    /* the place that ndp_comm_at said, for the next begin or wait; NULL, -1, -1: none */
    int instr, call;
};

struct ndp_window {
    ndp_transport *transport;
    void *data;
    size_t bytes;
    void *impl; /* the transport's */
};

/* Fills the part of a handle that is the same everywhere; `name` is cut to fit. */
void ndp_comm_init(ndp_comm *c, ndp_transport *t, ndp_group group, const char *name);
/* A communicator and a window without peers: `self`, `null`. */
ndp_status ndp_plain_comm_create(ndp_transport *t, ndp_group group, const char *name, ndp_comm **out);
void ndp_plain_comm_destroy(ndp_comm *c);
ndp_status ndp_plain_window_create(ndp_comm *c, size_t bytes, bool shared, ndp_window **out);
void ndp_plain_window_destroy(ndp_window *w);

/* The world rank of a member of the group. */
static inline int ndp_comm_world_rank(const ndp_comm *c, int member) {
    return c->group.base + member * c->group.stride;
}

/* "all_reduce #17 of 100 fp32 (group shard)" into `out`; returns `out`. */
char *ndp_work_text(const ndp_work *w, char *out, size_t size);
const char *ndp_work_kind_name(int kind);
/* Bytes of one rank's part. */
static inline size_t ndp_work_bytes(const ndp_work *w) { return (size_t)w->count * ndp_dtype_size((ndp_dtype)w->type); }

#endif
