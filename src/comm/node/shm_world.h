/* A world of processes on this host, for the process that starts them. The started processes find the world by an
 * inherited descriptor and two environment variables:
 *
 *   NDP_WORLD=FD:RANKS:TOKEN   the shared file (node_memory.h), the number of ranks, the token in the file
 *   NDP_RANK=R                 the rank of the process
 */
#ifndef NDP_COMM_NODE_SHM_WORLD_H
#define NDP_COMM_NODE_SHM_WORLD_H

#include "comm/comm.h"
#include <sys/types.h>

#define NDP_WORLD "NDP_WORLD"
#define NDP_RANK "NDP_RANK"

typedef struct ndp_shm_world ndp_shm_world;

/* The value of NDP_WORLD. */
typedef struct ndp_shm_address {
    int fd, ranks;
    uint64_t token;
} ndp_shm_address;

NDP_API ndp_status ndp_shm_world_create(int ranks, ndp_shm_world **out);
void ndp_shm_world_destroy(ndp_shm_world *w);
/* `address->fd` closes on exec: a rank clears that flag. */
ndp_shm_address ndp_shm_world_address(const ndp_shm_world *w);
/* To the text of NDP_WORLD, and back; read: false if the text is not valid. */
void ndp_shm_address_text(const ndp_shm_address *a, char *out, size_t size);
bool ndp_shm_address_read(const char *text, ndp_shm_address *out);

/* The process of rank `rank` has ended. why: the failure that the other ranks report; NULL: it did not fail. */
void ndp_shm_world_ended(ndp_shm_world *w, int rank, const char *why);
/* Whether that rank has joined the world, and whether it has left it without an error. */
bool ndp_shm_world_joined(const ndp_shm_world *w, int rank);
/* The process that has joined as that rank, which may be a child of the one that was started; 0: none has. */
pid_t ndp_shm_world_process(const ndp_shm_world *w, int rank);
bool ndp_shm_world_left(const ndp_shm_world *w, int rank);
/* The operation that a rank waits for, or else the last one that it began or ended, in words: "#57 send output of stage
 * 1, micro-batch 3 to rank 2 (2320 bytes, tag 13) of group pp forward". Returns `out`, empty if there is none. */
const char *ndp_shm_world_last(const ndp_shm_world *w, int rank, char *out, size_t size);
/* After the failure of a rank: writes the journals of all ranks, also of those that were killed, where they are kept.
 */
void ndp_shm_world_write_journals(const ndp_shm_world *w);
/* The rank that failed first; -1: none is recorded. */
int ndp_shm_world_failed(const ndp_shm_world *w);

#endif
