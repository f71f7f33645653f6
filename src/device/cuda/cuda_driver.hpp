/* The driver's virtual memory management as a table of functions: NVIDIA's driver on `cuda`, functions of our own on
 * `sim`. The plugin links to no symbol of the driver. */
#ifndef NDP_DEVICE_CUDA_CUDA_DRIVER_HPP
#define NDP_DEVICE_CUDA_CUDA_DRIVER_HPP

#include <cuda.h>

/* X(name) for each function cu<name> that we call. */
#define NDP_GPU_DRIVER(X)                                                                                              \
    X(MemGetAllocationGranularity)                                                                                     \
    X(MemAddressReserve)                                                                                               \
    X(MemAddressFree)                                                                                                  \
    X(MemCreate)                                                                                                       \
    X(MemRelease)                                                                                                      \
    X(MemMap)                                                                                                          \
    X(MemUnmap)                                                                                                        \
    X(MemSetAccess)                                                                                                    \
    X(GetErrorString)

/* NULL: this driver does not have it. */
struct ndp_gpu_driver {
#define NDP_GPU_DRIVER_MEMBER(name) decltype(&cu##name) name;
    NDP_GPU_DRIVER(NDP_GPU_DRIVER_MEMBER)
#undef NDP_GPU_DRIVER_MEMBER
};

/* Defined by each device: cuda_driver.cc, sim_memory.cc. */
void ndp_gpu_driver_load(ndp_gpu_driver *out);

#endif
