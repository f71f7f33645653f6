/* The memory that a run needs, compared with what this host has before anything large is allocated. */
#ifndef NDP_LAUNCH_MEMORY_NEED_H
#define NDP_LAUNCH_MEMORY_NEED_H

#include "base/log.h"
#include "base/memory_limit.h"
#include "base/text.h"

typedef struct ndp_memory_need {
    int64_t rank;     /* bytes of one rank according to its programs: the mean of this host's */
    int ranks;        /* on this host */
    int mapped;       /* how many of them have memory that this process maps */
    bool shared;      /* the memory is shared between processes, so RLIMIT_DATA does not count it */
    int64_t besides;  /* additional bytes of this process */
    int processes;    /* of the ranks on this host, so that a plan and the run compare alike; 0: as it is now */
    bool running;     /* they run; else this process plans them, and ends before they begin */
    const char *what; /* needs the memory: "the run" */
    const char *less; /* how to need less: "Lower train.x, or set train.y" */
} ndp_memory_need;

/* Bytes needed on this host, including what a rank uses beyond its programs. */
int64_t ndp_memory_of_host(const ndp_memory_need *n);
/* Bytes needed, and what there is of the first limit that has fewer. */
typedef struct ndp_memory_lack {
    int64_t need, has;
} ndp_memory_lack;
/* If there is not enough memory, appends the reason with all numbers, sets *lack, and returns true. */
NDP_API bool ndp_memory_compare(const ndp_memory_need *n, ndp_memory_lack *lack, ndp_str *out);
bool ndp_memory_lacks(const ndp_memory_need *n, ndp_str *out);
/* NDP_EINVAL if there is not enough memory. With `force` only a warning to `log` (NULL: none). */
NDP_API ndp_status ndp_memory_check(const ndp_memory_need *n, bool force, const ndp_log *log);

#endif
