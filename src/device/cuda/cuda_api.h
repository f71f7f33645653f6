/* What crosses the border of the plugins ndp_cuda.so and ndp_sim.so. They do not link to this library: it hands them
 * the functions that they call, and gets a device. */
#ifndef NDP_DEVICE_CUDA_CUDA_API_H
#define NDP_DEVICE_CUDA_CUDA_API_H

#include "device/device.h"

/* A larger one whenever this file, ndp_device or the list of ops changes: both sides number ops alike. */
enum { NDP_CUDA_API_VERSION = 10 };

/* What a plugin calls. */
typedef struct ndp_cuda_host {
    /* Records an error, as ndp_fail_at does. */
    ndp_status (*fail)(const char *file, int line, ndp_status code, const char *message);
    void (*trail)(const char *file, int line);
} ndp_cuda_host;

typedef struct ndp_cuda_api {
    int version; /* NDP_CUDA_API_VERSION */
    /* Call it once, before anything else. `host` is borrowed forever. NDP_ENOTSUP names what is missing: a driver, a
     * GPU, a library, a version. */
    ndp_status (*start)(const ndp_cuda_host *host);
    const ndp_device *device;
    /* Writes lines about the GPUs and their software: versions, names, sizes; cut off at `room` bytes. After start. */
    void (*describe)(char *text, size_t room);
    long (*allocations)(void); /* of device and pinned memory, streams and events so far; only `sim` counts */
    long (*opens)(void);       /* contexts so far */
    long (*host_waits)(void);  /* for a queue to drain, so far */
    bool (*guarded)(void);     /* each piece of device memory ends before an unmapped page (NDP_GPU_GUARD=1) */
} ndp_cuda_api;

/* The symbol of each plugin that is its ndp_cuda_api. */
#define NDP_CUDA_API_SYMBOL "ndp_cuda_api_table"

#endif
