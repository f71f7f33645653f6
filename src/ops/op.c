/* All ops, and all devices of the host, by name. */
#include "ops/op.h"

#include <string.h>

#define ADDRESS(op) &ndp_op_##op,
const ndp_op *const ndp_all_ops[NDP_OP_COUNT] = {NDP_OPS(ADDRESS)};

#define ROWS(op) [NDP_OP_##op] = NDP_KIND_ROWS,
#define COLUMNS(op) [NDP_OP_##op] = NDP_KIND_COLUMNS,
#define PIECES(op) [NDP_OP_##op] = NDP_KIND_PIECES,
#define WHOLE(op) [NDP_OP_##op] = NDP_KIND_WHOLE,
#define COLLECTIVE(op) [NDP_OP_##op] = NDP_KIND_COLLECTIVE,
#define MARK(op) [NDP_OP_##op] = NDP_KIND_MARK,
const ndp_op_kind ndp_op_kinds[NDP_OP_COUNT] = {NDP_OP_LIST(ROWS, COLUMNS, PIECES, WHOLE, COLLECTIVE, MARK)};

const ndp_device *ndp_device_find(const char *name) {
    static const ndp_device *const devices[] = {&ndp_device_cpu, &ndp_device_ref, &ndp_device_null};
    for (int i = 0; i < NDP_COUNT(devices); i++)
        if (strcmp(devices[i]->name, name) == 0)
            return devices[i];
    return NULL;
}
