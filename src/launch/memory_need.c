/* The bytes that a run needs beside its programs, and what limits them on this host. Called before anything large is
 * allocated: by trainers, dry runs, verify and inference. */
#include "launch/memory_need.h"

/* What a run uses beyond the plan of its programs. RANK_BESIDES: lists, journals and file buffers of a rank. A 256th of
 * the total: page tables, and pages of files being written, without which a checkpoint cannot reach the disk. Measured
 * as the lowest control group limit under which runs succeed (docs/numbers.md). */
enum { RANK_BESIDES = 12 << 20, KERNEL_PART = 256 };
/* What a process has in use that has read its job and small data, with what the kernel keeps for it. */
enum { PROCESS = 3 << 20 };
/* What a process has mapped when its ranks compare, and the one that plans has not: for each rank that is a thread its
 * stack, and address space that malloc takes for it; for ranks that are processes, what they share (node_memory.h). */
enum { STACK = 8 << 20, HEAP_OF_THREAD = 64 << 20, SHARED = 8 << 20 };

static int64_t bytes_of_ranks(const ndp_memory_need *n, int ranks) {
    int64_t planned = ranks * n->rank + n->besides;
    return planned + planned / KERNEL_PART + ranks * (int64_t)RANK_BESIDES;
}

int64_t ndp_memory_of_host(const ndp_memory_need *n) { return bytes_of_ranks(n, n->ranks); }

static bool explain_lack(const ndp_memory_need *n, const char *where, int ranks, const ndp_memory_limit *limit,
                         ndp_memory_lack *lack, ndp_str *out) {
    char all[16], one[16], besides[16], have[16];
    int64_t need = bytes_of_ranks(n, ranks);
    if (need <= limit->bytes)
        return false;
    *lack = (ndp_memory_lack){need, limit->bytes};
    ndp_str_addf(out, "%s needs %s %s (", n->what, ndp_human_bytes((double)need, all), where);
    if (ranks > 1)
        ndp_str_addf(out, "%d ranks of ", ranks);
    ndp_str_addf(out, "%s by %s, %s besides), %s available (%s)", ndp_human_bytes((double)n->rank, one),
                 ranks > 1 ? "their programs" : "its program",
                 ndp_human_bytes((double)(need - ranks * n->rank), besides),
                 ndp_human_bytes((double)limit->bytes, have), limit->what);
    return true;
}

/* What all of this host's ranks can have. In a group of their own the processes count as so many of the same size. */
static void limit_of_host(const ndp_memory_need *n, ndp_memory_limit *out) {
    ndp_memory_give_back(); /* what programs took that were built to be counted is free again */
    int64_t more = n->processes && !n->running ? n->processes * (int64_t)PROCESS - ndp_memory_own() : 0;
    ndp_memory_limit_with("", more, 2 * n->processes * (int64_t)PROCESS, out);
}

static void leave_for_ranks(const ndp_memory_need *n, bool space, ndp_memory_limit *limit) {
    bool alone = n->running || n->ranks == 1 || !n->processes || limit->bytes == INT64_MAX;
    int64_t thread = STACK + PROCESS + (space ? HEAP_OF_THREAD : 0);
    int64_t bytes = alone ? 0 : !n->shared ? n->ranks * thread : space ? SHARED : 0;
    limit->bytes = limit->bytes > bytes ? limit->bytes - bytes : 0;
}

bool ndp_memory_compare(const ndp_memory_need *n, ndp_memory_lack *lack, ndp_str *out) {
    ndp_memory_limit limit;
    limit_of_host(n, &limit);
    if (explain_lack(n, "on this host", n->ranks, &limit, lack, out))
        return true;
    ndp_memory_limit_address_space(&limit);
    leave_for_ranks(n, true, &limit);
    if (explain_lack(n, "of address space in a process", n->mapped, &limit, lack, out))
        return true;
    ndp_memory_limit_data(&limit);
    leave_for_ranks(n, false, &limit);
    return !n->shared && explain_lack(n, "of private memory in a process", n->mapped, &limit, lack, out);
}

bool ndp_memory_lacks(const ndp_memory_need *n, ndp_str *out) {
    ndp_memory_lack unused;
    return ndp_memory_compare(n, &unused, out);
}

ndp_status ndp_memory_check(const ndp_memory_need *n, bool force, const ndp_log *log) {
    ndp_str why = {0};
    ndp_status st = NDP_OK;
    bool lacks = ndp_memory_lacks(n, &why);
    if (why.failed)
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory for a text");
    else if (lacks && !force)
        st = NDP_FAIL(NDP_EINVAL, "%s. %s, or start anyway with --force-memory", why.data, n->less);
    else if (lacks && log)
        ndp_warn(log, "%s; starting anyway (--force-memory)", why.data);
    ndp_str_release(&why);
    return st;
}
