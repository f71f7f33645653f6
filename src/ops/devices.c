/* The list of devices, and how one is found by name. `cpu` and `ref` are built in; `cuda` and `sim` are plugins, which
 * are loaded when a job runs on them and never before. */
#include "ops/devices.h"

#include "device/cuda/cuda_load.h"
#include <string.h>

#define ROW(name, FP64, TF32) {#name, FP64, TF32},
const ndp_device_row ndp_device_table[] = {NDP_DEVICES(ROW)};

#define NAME(name, ...) #name,
const char *const ndp_device_names[] = {NDP_DEVICES(NAME) NULL};

#define LISTED(name, ...) ", " #name
const char *ndp_device_choices(void) { return &NDP_DEVICES(LISTED)[2]; }

static const ndp_device *const built[] = {&ndp_device_cpu, &ndp_device_ref};
static const char *const loaded[] = {"cuda", "sim"};

static const ndp_device *find_built(const char *name) {
    for (int i = 0; i < NDP_COUNT(built); i++)
        if (strcmp(built[i]->name, name) == 0)
            return built[i];
    return NULL;
}

/* Its place in `loaded`; -1: it is none of them. */
static int find_loaded(const char *name) {
    int i = NDP_COUNT(loaded) - 1;
    while (i >= 0 && strcmp(loaded[i], name) != 0)
        i--;
    return i;
}

static ndp_status load(bool sim, const ndp_device **out) {
    const ndp_cuda_api *api;
    ndp_status st = ndp_cuda_load(sim, true, &api);
    if (st == NDP_ENOTSUP) /* the user asked for what this machine does not have */
        return NDP_FAIL(NDP_EINVAL, "%s", ndp_error_message());
    NDP_TRY(st);
    *out = api->device;
    return NDP_OK;
}

static ndp_status fail_unknown(const char *name) {
    return NDP_FAIL(NDP_EINVAL, "there is no device '%s'; supported: %s", name, ndp_device_choices());
}

ndp_status ndp_device_find(const char *name, const ndp_device **out) {
    int at = find_loaded(name);
    if (at >= 0)
        return load(at == 1, out);
    *out = find_built(name);
    return *out ? NDP_OK : fail_unknown(name);
}

ndp_status ndp_device_find_plan(const char *name, ndp_device *out) {
    int at = find_loaded(name);
    const ndp_device *found = at >= 0 ? &ndp_device_gpu : find_built(name);
    if (!found)
        return fail_unknown(name);
    *out = ndp_device_plan(found);
    out->name = at >= 0 ? loaded[at] : found->name;
    return NDP_OK;
}
