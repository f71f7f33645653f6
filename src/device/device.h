/* Devices: which kernels run. `cpu` is the fast one, `ref` plain loops in fp64, `null` runs nothing (a dry run). */
#ifndef NDP_DEVICE_DEVICE_H
#define NDP_DEVICE_DEVICE_H

#include "base/status.h"

typedef struct ndp_device {
    const char *name;
    int backend;   /* index of an op's kernel table */
    bool executes; /* false: programs are built and planned, never run */
} ndp_device;

extern const ndp_device ndp_device_cpu, ndp_device_ref, ndp_device_null;

/* Threads of a rank when `ranks` share this node: usable cores / ranks, at least 1. */
int ndp_device_threads(int ranks);

#endif
