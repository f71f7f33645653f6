/* One outcome for all ranks. */
#ifndef NDP_CHECKPOINT_AGREE_H
#define NDP_CHECKPOINT_AGREE_H

#include "comm/comm.h"

/* Collective over `world` (NULL: one rank). NDP_OK if `mine` is NDP_OK on every rank; otherwise every rank returns the
 * status of the lowest failing rank and its message (prefixed on other ranks with that rank's number). */
NDP_API ndp_status ndp_agree(ndp_comm *world, ndp_status mine);

/* True on rank 0 and without a world: the rank that creates, renames and removes. */
static inline bool ndp_is_first(const ndp_comm *world) { return !world || ndp_comm_rank(world) == 0; }

#endif
