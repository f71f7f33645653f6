/* What the transports of this room share: the handles behind comm.h, and the table that each transport fills in.
 *
 * comm.c checks arguments, answers for groups of one rank, and hands everything else to the table. A
 * transport's own handles begin with the structs below. */
#ifndef NDP_COMM_IMPL_H
#define NDP_COMM_IMPL_H

#include "comm/comm.h"
#include "comm/work.h"

typedef struct ndp_transport_ops {
    const char *name;
    ndp_status (*comm_create)(ndp_transport *t, ndp_group group, const char *name, ndp_comm **out);
    ndp_status (*comm_connect)(ndp_comm *c, const uint64_t *sends, const uint64_t *receives); /* NULL: not needed */
    void (*comm_share_queue)(ndp_comm *c, ndp_comm *of);                                      /* NULL: not needed */
    void (*comm_destroy)(ndp_comm *c);
    ndp_status (*begin)(ndp_work *w);
    ndp_status (*wait)(ndp_work *w);
    ndp_status (*memory_map)(ndp_transport *t, size_t bytes, void **out);
    void (*memory_unmap)(ndp_transport *t, void *data, size_t bytes);
    ndp_status (*window_register)(ndp_comm *c, void *data, size_t bytes, ndp_window **out);
    ndp_status (*window_share)(ndp_comm *c, size_t bytes, ndp_window **out);
    void (*window_destroy)(ndp_window *w);
    /* ndp_transport_on_device for a transport of the host; NULL: NCCL. */
    ndp_status (*on_device)(ndp_transport *host, const ndp_device *d, ndp_device_context *context, ndp_transport **out);
    /* The first error that its operations on queues have met by themselves; any thread. NULL: they meet none. */
    ndp_status (*check)(ndp_transport *t);
    void (*abort)(ndp_transport *t, const char *message); /* NULL: there is no other rank */
    void (*destroy)(ndp_transport *t);                    /* NULL: its creator releases it */
    bool (*quits)(ndp_transport *t); /* ndp_transport_quits after a failure; NULL: no queue of a peer reaches memory */
} ndp_transport_ops;

typedef struct ndp_host_name {
    char text[64];
} ndp_host_name;

struct ndp_transport {
    const ndp_transport_ops *ops;
    int rank, world;
    int node_ranks;     /* ndp_transport_node_ranks */
    const int *host_of; /* by world rank: the lowest rank on its host; NULL: all are on one */
    /* Of a device's transport: what moves the data, and the transport of the host beside it, whose health record,
     * journals and limits it shares. NULL: a transport of the host. */
    const ndp_device *device;
    ndp_device_context *context;
    ndp_transport *host;
    struct ndp_health *health;            /* watch/health.h; NULL if no other rank can fail */
    double timeout;                       /* seconds that a wait may last */
    bool crowded;                         /* more ranks than cores: yield at once */
    struct ndp_progress_fn *progress_fns; /* run while this rank waits (watch/wait.h) */
    int pending_shares;                   /* operations begun of which this rank has yet to do its share */
    int outstanding;                      /* operations begun and not waited for */
    struct ndp_journal *journals;         /* by world rank (watch/journal.h); NULL without peers */
    struct ndp_waypoints *waypoints;      /* of a device's transport; of a host's: a list of those beside it */
    bool stuck;                           /* of a device's: a queue did not end (ndp_transport_settles) */
    uint32_t waypoint;                    /* of a host's: the newest one's number */
    uint32_t numbered;                    /* of a host's: communicators beside it that this rank has numbered */
    struct nccl_transport *nccl;          /* of a host's: a list of those of NCCL beside it */
    struct ndp_state_query *state_query;  /* for ranks of other nodes (watch/state_query.h); NULL: there are none */
    const char *note;                     /* ndp_transport_note */
    const ndp_host_name *hosts;           /* by world rank; NULL: all are on one host */
    int exit_code;                        /* of the launcher after an abort; 0: 1 */
    bool journal_written;
    struct ndp_lookout *lookout; /* finds that a peer's process has ended (watch/lookout.h); `shm`: the launcher does */
};

struct ndp_comm {
    ndp_transport *transport;
    ndp_group group;
    char name[32];
    ndp_queue *queue;    /* of a device's transport; NULL: none */
    ndp_queue *begins;   /* the marks of begins that peers wait for (node/lane.h) */
    uint32_t number;     /* distinguishes communicators whose groups have the same base; 0: not numbered */
    uint32_t operations; /* collectives begun */
    int outstanding[3];  /* collectives, sends, receives: begun and not waited for */
    const char *what;    /* from ndp_comm_at, for the next begin or wait; NULL, -1, -1: not given */
    int instr, call;
};

struct ndp_window {
    ndp_transport *transport;
    void *data;
    size_t bytes;
    void *impl; /* the transport's; without peers: `data` if the window owns it */
};

/* Fills in what is the same for every transport; `name` is cut to fit. */
void ndp_comm_init(ndp_comm *c, ndp_transport *t, ndp_group group, const char *name);
/* The fields of a device's transport beside `host`. */
ndp_transport ndp_transport_beside(ndp_transport *host, const ndp_transport_ops *ops, const ndp_device *d,
                                   ndp_device_context *context);
/* The table's functions without peers (`self`) and, for memory, where a rank shares none with others. */
ndp_status ndp_plain_memory_map(ndp_transport *t, size_t bytes, void **out);
void ndp_plain_memory_unmap(ndp_transport *t, void *data, size_t bytes);
ndp_status ndp_plain_window_register(ndp_comm *c, void *data, size_t bytes, ndp_window **out);
ndp_status ndp_plain_window_share(ndp_comm *c, size_t bytes, ndp_window **out);
void ndp_plain_window_destroy(ndp_window *w);

/* ndp_transport_node_ranks, from what node_of has by world rank: equal for ranks that share memory. */
NDP_API int ndp_node_block(const int *node_of, int world);

/* The world rank of a member of the group. */
static inline int ndp_comm_world_rank(const ndp_comm *c, int member) {
    return c->group.base + member * c->group.stride;
}

/* ---- parts of an all_to_all ---- */

/* Bytes that rank `from` of the group hands to rank `to` in an all_to_all. */
static inline size_t ndp_work_part(const ndp_work *w, int from, int to) {
    int n = w->comm->group.count, row = w->back ? to : from, col = w->back ? from : to;
    return ndp_work_bytes(w) * (size_t)(w->rows ? w->rows[row * n + col] : 1);
}

/* Where in what rank `from` hands over the part for rank `to` begins; all of it, with the size of the group. */
static inline size_t ndp_work_handed(const ndp_work *w, int from, int to) {
    size_t sum = 0;
    for (int p = 0; p < to; p++)
        sum += ndp_work_part(w, from, p);
    return sum;
}

/* Where in what rank `to` gets the part of rank `from` begins; all of it, with the size of the group. */
static inline size_t ndp_work_got(const ndp_work *w, int from, int to) {
    size_t sum = 0;
    for (int p = 0; p < from; p++)
        sum += ndp_work_part(w, p, to);
    return sum;
}

#endif
