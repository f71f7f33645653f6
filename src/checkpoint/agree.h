/* One outcome for all ranks. */
#ifndef NDP_CHECKPOINT_AGREE_H
#define NDP_CHECKPOINT_AGREE_H

#include "comm/comm.h"

/* Collective over `world` (NULL: one rank). NDP_OK when `mine` is NDP_OK on every rank; else every rank returns the
 * lowest failing rank's status, with its message (elsewhere prefixed with its number). */
NDP_API ndp_status ndp_agree(ndp_comm *world, ndp_status mine);

/* Rank 0, or the only one: who creates, renames and removes. */
static inline bool ndp_is_first(const ndp_comm *world) { return !world || ndp_comm_rank(world) == 0; }

#endif
