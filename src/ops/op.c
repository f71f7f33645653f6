/* All ops, what they cost, and all devices of the host, by name. */
#include "device/cuda/cuda_load.h"
#include "ops/shape.h"

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

void ndp_op_cost(const ndp_op_call *c, double *flops, double *bytes) {
    *flops = c->op->flops * ndp_elements(&c->in[0]);
    *bytes = 0;
    for (int i = 0; i < c->op->n_in; i++)
        *bytes += ndp_view_bytes(&c->in[i]);
    for (int i = 0; i < c->op->n_out; i++)
        *bytes += ndp_view_bytes(&c->out[i]);
    if (c->op->cost)
        c->op->cost(c, flops, bytes);
}

#define DEVICES(X) X(cpu) X(ref) X(cuda) X(sim)
#define NAME(name) #name,
const char *const ndp_device_names[] = {DEVICES(NAME) NULL};

#define LISTED(name) ", " #name
const char *ndp_device_choices(void) { return &DEVICES(LISTED)[2]; }

static ndp_status find_loaded(bool sim, bool start, const ndp_device **out) {
    const ndp_cuda_api *api;
    ndp_status st = ndp_cuda_load(sim, start, &api);
    if (st == NDP_ENOTSUP) /* the user asked for what this machine does not have */
        return NDP_FAIL(NDP_EINVAL, "%s", ndp_error_message());
    NDP_TRY(st);
    *out = api->device;
    return NDP_OK;
}

/* `start`: it is to execute. */
static ndp_status find(const char *name, bool start, const ndp_device **out) {
    static const ndp_device *const built[] = {&ndp_device_cpu, &ndp_device_ref};
    for (int i = 0; i < NDP_COUNT(built); i++)
        if (strcmp(built[i]->name, name) == 0) {
            *out = built[i];
            return NDP_OK;
        }
    for (int sim = 0; sim < 2; sim++)
        if (strcmp(sim ? "sim" : "cuda", name) == 0)
            return find_loaded(sim, start, out);
    return NDP_FAIL(NDP_EINVAL, "there is no device '%s'; built: %s", name, ndp_device_choices());
}

ndp_status ndp_device_find(const char *name, const ndp_device **out) { return find(name, true, out); }

ndp_status ndp_device_find_plan(const char *name, ndp_device *out) {
    const ndp_device *found;
    NDP_TRY(find(name, false, &found));
    *out = ndp_device_plan(found);
    return NDP_OK;
}

bool ndp_device_has_fp64(const char *name) { return strcmp(name, ndp_device_ref.name) == 0; }
