#include "train/memory.h"

#include <stdlib.h>

/* What a rank takes after the check besides what its programs plan: their lists, journals, buffers of files. Measured
 * (docs/ARCHITECTURE.md): the least limit of a control group under which a run ends well lies 1 MiB to 6 MiB below what
 * is asked for. */
enum { RANK_BESIDES = 5 << 20 };

static int64_t of_ranks(const ndp_memory_need *n, int ranks) { return ranks * (n->rank + RANK_BESIDES) + n->besides; }

int64_t ndp_memory_of_host(const ndp_memory_need *n) { return of_ranks(n, n->ranks); }

static bool explain(const ndp_memory_need *n, const char *where, int ranks, const ndp_memory_limit *limit,
                    ndp_str *out) {
    char all[16], one[16], besides[16], have[16];
    int64_t need = of_ranks(n, ranks);
    if (need <= limit->bytes)
        return false;
    ndp_str_addf(out, "%s needs %s %s (", n->what, ndp_human_bytes((double)need, all), where);
    if (ranks > 1)
        ndp_str_addf(out, "%d ranks of ", ranks);
    ndp_str_addf(out, "%s by %s, %s besides), %s available (%s)", ndp_human_bytes((double)n->rank, one),
                 ranks > 1 ? "their programs" : "its program",
                 ndp_human_bytes((double)(need - ranks * n->rank), besides),
                 ndp_human_bytes((double)limit->bytes, have), limit->what);
    return true;
}

bool ndp_memory_lacks(const ndp_memory_need *n, ndp_str *out) {
    ndp_memory_limit limit;
    ndp_memory_limit_host("", &limit);
    if (explain(n, "on this host", n->ranks, &limit, out))
        return true;
    ndp_memory_limit_address_space(&limit);
    if (explain(n, "of address space in a process", n->mapped, &limit, out))
        return true;
    ndp_memory_limit_data(&limit);
    return !n->shared && explain(n, "of private memory in a process", n->mapped, &limit, out);
}

ndp_status ndp_memory_check(const ndp_memory_need *n, bool force, const ndp_log *log) {
    ndp_str why = {0};
    ndp_status st = NDP_OK;
    bool lacks = ndp_memory_lacks(n, &why);
    if (why.failed)
        st = NDP_FAIL(NDP_ENOMEM, "no memory for a text");
    else if (lacks && !force)
        st = NDP_FAIL(NDP_EINVAL, "%s. %s, or start it all the same with --force-memory", why.data, n->less);
    else if (lacks && log)
        ndp_warn(log, "%s; it starts all the same (--force-memory)", why.data);
    ndp_str_release(&why);
    return st;
}
