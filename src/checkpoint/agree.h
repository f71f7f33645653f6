/* One outcome for all ranks, and short collectives that are waited for at once. */
#ifndef NDP_CHECKPOINT_AGREE_H
#define NDP_CHECKPOINT_AGREE_H

#include "comm/comm.h"

/* Collective over `world` (NULL: one rank). NDP_OK if `mine` is NDP_OK on every rank; otherwise every rank returns the
 * status of the lowest failing rank and its message (prefixed on other ranks with that rank's number). */
NDP_API ndp_status ndp_agree(ndp_comm *world, ndp_status mine);

/* Collective over `world` (NULL: one rank, nothing to do). Reduces `n` values in place. */
NDP_API ndp_status ndp_reduce_now(ndp_comm *world, void *values, int64_t n, ndp_dtype type, ndp_reduce op);
/* Copies `bytes` bytes of rank `root` to all ranks. */
NDP_API ndp_status ndp_share_now(ndp_comm *world, void *data, size_t bytes, int root);

/* True on rank 0 and without a world: the rank that creates, renames and removes. */
static inline bool ndp_is_first(const ndp_comm *world) { return !world || ndp_comm_rank(world) == 0; }

#endif
