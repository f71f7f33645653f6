#include "comm/work.h"
#include "comm/impl.h"

#include <stdio.h>

const char *ndp_work_kind_name(int kind) {
    static const char *const names[NDP_WORK_KINDS] = {
        "barrier", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "shift", "send", "recv"};
    return names[kind];
}

char *ndp_work_text(const ndp_work *w, char *out, size_t size) {
    const char *what = ndp_work_kind_name(w->kind), *group = w->comm->name;
    if (w->kind == NDP_WORK_BARRIER)
        snprintf(out, size, "%s #%u (group %s)", what, w->sequence, group);
    else if (w->kind >= NDP_WORK_BROADCAST)
        snprintf(out, size, "%s of %lld bytes (group %s)", what, (long long)w->count, group);
    else
        snprintf(out, size, "%s #%u of %lld %s (group %s)", what, w->sequence, (long long)w->count,
                 ndp_dtype_name((ndp_dtype)w->type), group);
    return out;
}
