/* The names of the kinds of operation, in the order of ndp_work_kind. */
#include "comm/work.h"

const char *ndp_work_kind_name(int kind) {
    static const char *const names[NDP_WORK_KINDS] = {
        "barrier", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "shift", "send", "recv"};
    return names[kind];
}
