/* What NCCL takes of a GPU for its communicators, which no program has: for plans. Not measured yet: the numbers are
 * NCCL's own sizes of buffers, for its defaults on one node with NVLink. A GPU's own are in
 * ncclCommInit's lines of NCCL_DEBUG=INFO. */
#ifndef NDP_COMM_NCCL_NCCL_MEMORY_H
#define NDP_COMM_NCCL_NCCL_MEMORY_H

#include <stdint.h>

/* Of a connection of a channel: what a rank receives, by the three protocols (4 MiB, 4.7 MiB, 0.5 MiB); of a
 * communicator, besides. */
enum { NDP_NCCL_CONNECTION_BYTES = 9420 << 10, NDP_NCCL_OWN_BYTES = 16 << 20 };
/* Channels of collectives, and of messages between two ranks. */
enum { NDP_NCCL_CHANNELS = 16, NDP_NCCL_MESSAGE_CHANNELS = 4 };

/* A ring; of more than two ranks also a tree, in which a rank receives from two. */
static inline int64_t ndp_nccl_collectives_bytes(int ranks) {
    int64_t connections = ranks > 2 ? 3 : 1;
    return NDP_NCCL_OWN_BYTES + NDP_NCCL_CHANNELS * connections * NDP_NCCL_CONNECTION_BYTES;
}
/* Of the messages from one rank to another, in one direction. */
static inline int64_t ndp_nccl_messages_bytes(void) {
    return NDP_NCCL_OWN_BYTES + (int64_t)NDP_NCCL_MESSAGE_CHANNELS * NDP_NCCL_CONNECTION_BYTES;
}

#endif
