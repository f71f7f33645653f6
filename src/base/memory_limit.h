/* How much memory is still available here: the system's, within the limits of control groups (cgroups, version 1 and 2)
 * and of the process. */
#ifndef NDP_BASE_MEMORY_LIMIT_H
#define NDP_BASE_MEMORY_LIMIT_H

#include "base/status.h"

typedef struct ndp_memory_limit {
    int64_t bytes;  /* still available; INT64_MAX: unlimited */
    char what[512]; /* the limit that applies: "/sys/fs/cgroup/job/memory.max of 1.0 GiB, 0.2 GiB in use" */
} ndp_memory_limit;

/* What all processes of this host in the same control groups can allocate together: the minimum of MemAvailable and,
 * for this process's group and each ancestor, of the limit minus the usage. File pages do not count as usage, since the
 * kernel drops them before it lets an allocation fail (MemAvailable excludes them as well). Groups are found through
 * /proc/self/cgroup and /proc/self/mountinfo. `root` is put before every path; "" is this machine. */
void ndp_memory_limit_host(const char *root, ndp_memory_limit *out);
/* The same as if `more` bytes were in use besides, and in a group at least `least`, so that what a few processes of its
 * own have there makes no difference. */
void ndp_memory_limit_with(const char *root, int64_t more, int64_t least, ndp_memory_limit *out);
/* What this process can still map under RLIMIT_AS, which counts all mappings, or under RLIMIT_DATA, which counts
 * private memory. */
void ndp_memory_limit_address_space(ndp_memory_limit *out);
void ndp_memory_limit_data(ndp_memory_limit *out);

/* Anonymous memory that this process has: what it allocated, not what it maps of files or shares. */
int64_t ndp_memory_own(void);

/* What this process has freed goes back to the host. */
void ndp_memory_give_back(void);

/* The minimum of the three. */
int64_t ndp_memory_available(void);

#endif
