/* The memory that a run needs, compared with what this host has before anything large is allocated. */
#ifndef NDP_HOST_MEMORY_NEED_H
#define NDP_HOST_MEMORY_NEED_H

#include "base/log.h"
#include "base/memory_limit.h"
#include "base/text.h"

typedef struct ndp_memory_need {
    int64_t rank;     /* bytes of one rank, by its programs; all ranks of a host are alike */
    int ranks;        /* of this host */
    int mapped;       /* of them whose memory this process maps */
    bool shared;      /* their memory is shared with other processes, which RLIMIT_DATA does not count */
    int64_t besides;  /* bytes that this process takes besides */
    const char *what; /* "the run" */
    const char *less; /* what makes it smaller: "Lower train.x, or set train.y" */
} ndp_memory_need;

/* Bytes on this host, with what a rank takes besides its programs' memory. */
int64_t ndp_memory_of_host(const ndp_memory_need *n);
/* Appends why there is not enough, with all numbers; false, and nothing, if there is. */
bool ndp_memory_lacks(const ndp_memory_need *n, ndp_str *out);
/* NDP_EINVAL if there is not enough. `force`: that is a warning to `log` (NULL: none). */
NDP_API ndp_status ndp_memory_check(const ndp_memory_need *n, bool force, const ndp_log *log);

#endif
