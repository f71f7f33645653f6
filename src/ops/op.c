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

#define DEVICES(X) X(cpu) X(ref)
#define DEVICE(name) &ndp_device_##name,
#define NAME(name) #name,
const ndp_device *const ndp_devices[] = {DEVICES(DEVICE)};
const char *const ndp_device_names[] = {DEVICES(NAME) NULL};

#define LISTED(name) ", " #name
const char *ndp_device_choices(void) { return DEVICES(LISTED) + 2; }

ndp_status ndp_device_find(const char *name, const ndp_device **out) {
    for (int i = 0; ndp_device_names[i]; i++)
        if (strcmp(ndp_device_names[i], name) == 0) {
            *out = ndp_devices[i];
            return NDP_OK;
        }
    return NDP_FAIL(NDP_EINVAL, "there is no device '%s'; built: %s", name, ndp_device_choices());
}
