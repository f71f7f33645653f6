/* The list of devices, and how one is found by name. `cpu` and `ref` are built in; `cuda` and `sim` are plugins, which
 * are loaded when a job names them and never before. */
#include "ops/devices.h"

#include "device/cuda/cuda_load.h"
#include <string.h>

#define ROW(name, FP64, TF32) {#name, FP64, TF32},
const ndp_device_row ndp_device_table[] = {NDP_DEVICES(ROW)};

#define NAME(name, ...) #name,
const char *const ndp_device_names[] = {NDP_DEVICES(NAME) NULL};

#define LISTED(name, ...) ", " #name
const char *ndp_device_choices(void) { return &NDP_DEVICES(LISTED)[2]; }

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
    return NDP_FAIL(NDP_EINVAL, "there is no device '%s'; supported: %s", name, ndp_device_choices());
}

ndp_status ndp_device_find(const char *name, const ndp_device **out) { return find(name, true, out); }

ndp_status ndp_device_find_plan(const char *name, ndp_device *out) {
    const ndp_device *found;
    NDP_TRY(find(name, false, &found));
    *out = ndp_device_plan(found);
    return NDP_OK;
}
