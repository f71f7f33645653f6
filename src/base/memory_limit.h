/* How much memory can still be taken here: what the system has available, and the limits of control groups (cgroups,
 * version 1 and 2) and of the process. */
#ifndef NDP_BASE_MEMORY_LIMIT_H
#define NDP_BASE_MEMORY_LIMIT_H

#include "base/status.h"

typedef struct ndp_memory_limit {
    int64_t bytes;  /* that can still be taken; INT64_MAX: nothing limits it */
    char what[512]; /* which limit it is: "/sys/fs/cgroup/job/memory.max of 1.0 GiB, 0.2 GiB in use" */
} ndp_memory_limit;

/* What all processes of this host that share its control groups can take together: the least of MemAvailable and, for
 * this process's group and each of its ancestors, of the limit less what is in use. Pages of files do not count as in
 * use, since the kernel drops them before it lets a process fail (MemAvailable leaves them out as well). Groups are
 * found by /proc/self/cgroup and /proc/self/mountinfo. `root` stands before every path; "" is this machine. */
void ndp_memory_limit_host(const char *root, ndp_memory_limit *out);
/* What this process can still map: RLIMIT_AS, which counts all that is mapped, or RLIMIT_DATA, which counts private
 * memory. */
void ndp_memory_limit_address_space(ndp_memory_limit *out);
void ndp_memory_limit_data(ndp_memory_limit *out);

/* The least of the three. */
int64_t ndp_memory_available(void);

#endif
