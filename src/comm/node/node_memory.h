/* Memory that the processes of one node share: one file without a name (a memfd). The first process creates it; the
 * others inherit its descriptor, or open it through /proc/PID/fd. It has no path, so nothing is left behind when
 * processes are killed.
 *
 * The file begins with a table of segments, which are ranges of the file. A process maps a segment when it first uses
 * it. Segment numbers are never reused; a segment's pages are returned to the system when its last holder drops it.
 * The first segments are the health record and the journals of all ranks of the world. */
#ifndef NDP_COMM_NODE_NODE_MEMORY_H
#define NDP_COMM_NODE_NODE_MEMORY_H

#include "comm/node/peers.h"
#include "comm/watch/health.h"

enum { NDP_NODE_SEGMENTS = 8192, NDP_NODE_GROUPS = 4096 };

/* How another process finds the file. */
typedef struct ndp_node_address {
    int32_t pid, fd;
    uint64_t token; /* recognises another file, or the same pid in another pid namespace */
} ndp_node_address;

/* What the ranks of one communicator share. Each rank creates its handle without waiting: its n-th handle of a group
 * belongs together with the n-th handles of the others. */
typedef struct ndp_node_group {
    int32_t base, stride, count;
    int32_t segment;
} ndp_node_group;

typedef struct ndp_node_table {
    uint64_t token;
    int32_t world;
    _Atomic int32_t segments;
    _Atomic int64_t end; /* bytes of the file in use */
    struct {
        int64_t offset, bytes;
        _Atomic int32_t holders;
    } segment[NDP_NODE_SEGMENTS];
    _Atomic uint32_t lock; /* guards the groups */
    int32_t groups;
    ndp_node_group group[NDP_NODE_GROUPS];
} ndp_node_table;

/* A segment in this process; data is NULL while it is not mapped. */
typedef struct ndp_node_mapping {
    void *data;
    size_t bytes;
} ndp_node_mapping;

/* Registered memory: a window. ref.segment < 0: it is not in the file, so peers cannot access it. */
typedef struct ndp_node_range {
    const void *data;
    size_t bytes;
    ndp_ref ref;
} ndp_node_range;

/* Shared memory for the copy of a buffer that peers cannot access. */
typedef struct ndp_node_stage {
    ndp_ref ref;
    void *data;
    size_t bytes;
    bool busy;
} ndp_node_stage;

typedef struct ndp_node_memory {
    int fd; /* -1: there is no file */
    ndp_node_table *table;
    ndp_node_mapping *mappings; /* by segment */
    int64_t capacity;
    ndp_node_stage *stages;
    int64_t n_stages, stage_capacity;
    ndp_node_range *ranges;
    int64_t n_ranges, range_capacity;
    bool joined[NDP_NODE_GROUPS]; /* this rank has a handle of that group */
    ndp_health *health;
    ndp_journal *journals;
    ndp_space space; /* its context is this struct, which must not move */
} ndp_node_memory;

/* Creates the file for a world of `world` ranks. NDP_ENOTSUP if the system has no memfds. */
ndp_status ndp_node_memory_create(ndp_node_memory *n, int world, ndp_node_address *out);
/* Opens a file that another process has created; NDP_ENOTSUP without permission. */
ndp_status ndp_node_memory_open(ndp_node_memory *n, const ndp_node_address *address, int world);
/* Takes `fd`, also on failure. NDP_EINVAL if it is not the file with this token and world. */
ndp_status ndp_node_memory_attach(ndp_node_memory *n, int fd, uint64_t token, int world);
void ndp_node_memory_release(ndp_node_memory *n);

/* A new zeroed segment, which `holders` processes will drop. */
ndp_status ndp_node_segment_create(ndp_node_memory *n, size_t bytes, int holders, ndp_ref *out);
/* Unmaps it here and gives up this process's hold. ref.segment < 0: does nothing. */
void ndp_node_segment_drop(ndp_node_memory *n, ndp_ref ref);
/* Peers access buffers inside registered ranges in place; all others are copied. */
ndp_status ndp_node_range_add(ndp_node_memory *n, const void *data, size_t bytes);
void ndp_node_range_remove(ndp_node_memory *n, const void *data, size_t bytes);
/* The address in this process; maps the segment if necessary. */
ndp_status ndp_node_memory_resolve(void *node, ndp_ref ref, void **out);

/* ---- communicators and windows ---- */

/* A communicator's part in the node. */
typedef struct ndp_node_part {
    ndp_peers peers;
    ndp_ref block; /* that the members share */
} ndp_node_part;

/* Does not wait for the other members, the ranks of the group that are on this node. `c` has been initialised. */
ndp_status ndp_node_join(ndp_node_memory *n, ndp_comm *c, ndp_node_members members, ndp_node_part *out);
void ndp_node_leave(ndp_node_memory *n, ndp_node_part *part);

/* The functions of impl.h; share: `c` has only ranks of the node. */
ndp_status ndp_node_memory_map(ndp_node_memory *n, size_t bytes, void **out);
void ndp_node_memory_unmap(ndp_node_memory *n, void *data);
ndp_status ndp_node_window_register(ndp_node_memory *n, ndp_comm *c, void *data, size_t bytes, ndp_window **out);
ndp_status ndp_node_window_share(ndp_node_memory *n, ndp_comm *c, size_t bytes, ndp_window **out);
void ndp_node_window_destroy(ndp_node_memory *n, ndp_window *w);

#endif
