/* The devices that execute, by name: what a user can choose from. */
#ifndef NDP_OPS_DEVICES_H
#define NDP_OPS_DEVICES_H

#include "device/device.h"

/* All of them, listed here only: X(name, FP64, TF32). FP64: computes in fp64 where operands are stored so. TF32: may
 * round the operands of fp32 products. */
#define NDP_DEVICES(X)                                                                                                 \
    X(cpu, false, false)                                                                                               \
    X(ref, true, false)                                                                                                \
    X(cuda, false, true)                                                                                               \
    X(sim, false, true)

typedef struct ndp_device_row {
    const char *name;
    bool fp64, tf32;
} ndp_device_row;
/* By their place in the list, as train.device. */
extern const ndp_device_row ndp_device_table[];
/* Their names alone, NULL at the end. */
extern const char *const ndp_device_names[];

/* The device of that name; `cuda` and `sim` are loaded (device/cuda/cuda_load.h). NDP_EINVAL: there is none,
 * and the message has the names; or it is not built, or this machine lacks what it needs, and the message says what. */
NDP_API ndp_status ndp_device_find(const char *name, const ndp_device **out);
/* A device that plans for the one of that name, by its kernels' needs, and executes nothing; of `cuda` and `sim` the
 * same on every machine, with and without a GPU and a plugin (gpu_plan.c). NDP_EINVAL: there is none. */
NDP_API ndp_status ndp_device_find_plan(const char *name, ndp_device *out);
/* Plans for `cuda` and `sim`. */
extern const ndp_device ndp_device_gpu;

#endif
