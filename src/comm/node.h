/* Memory that the processes of one node share. Every rank makes segments (memfds) and lists them on its card, which is
 * itself one; a peer opens them through /proc/PID/fd at first sight. Not MPI windows (Open MPI's are 8-byte aligned and
 * die on a container's small /dev/shm). A segment's number is never used twice.
 *
 * Reading a card entry is safe behind whatever brought its number: a collective of the transport or a gate. */
#ifndef NDP_COMM_NODE_H
#define NDP_COMM_NODE_H

#include "comm/shm.h"

enum { NDP_NODE_SEGMENTS = 8192 };

/* What ranks tell each other at the start. */
typedef struct ndp_node_address {
    int32_t pid, fd;
    uint64_t token; /* to know a stranger with the same pid from another pid namespace */
} ndp_node_address;

typedef struct ndp_node_card {
    uint64_t token;
    int32_t count;
    struct {
        int32_t fd;
        uint64_t bytes;
    } segment[NDP_NODE_SEGMENTS];
} ndp_node_card;

/* A segment as this rank sees it; data is NULL until it is mapped. */
typedef struct ndp_node_mapping {
    void *data;
    size_t bytes;
} ndp_node_mapping;

typedef struct ndp_node_peer {
    int32_t pid;
    ndp_node_card *card;
    ndp_node_mapping *mappings; /* by segment */
    int64_t capacity;
} ndp_node_peer;

typedef struct ndp_node {
    int ranks, rank; /* on this node */
    int card_fd;
    ndp_node_peer *peers;
} ndp_node;

/* Makes this rank's card. NDP_ENOTSUP where the system has no memfds. */
ndp_status ndp_node_init(ndp_node *n, int ranks, int rank, ndp_node_address *out);
/* Maps the cards of all ranks of the node; NDP_ENOTSUP when one cannot be reached. */
ndp_status ndp_node_connect(ndp_node *n, const ndp_node_address *addresses);
void ndp_node_release(ndp_node *n);

/* A new segment of this rank. */
ndp_status ndp_node_segment_create(ndp_node *n, size_t bytes, ndp_ref *out);
/* Unmaps it here; its maker gives the file back. Peers that have mapped it keep their mapping until they drop it. */
void ndp_node_segment_drop(ndp_node *n, ndp_ref ref);

/* The two functions of an ndp_space; the context is the node. */
ndp_ref ndp_node_locate(void *node, const void *data, size_t bytes);
ndp_status ndp_node_resolve(void *node, ndp_ref ref, void **out);

#endif
