/* Loads the plugins whose devices are `cuda` and `sim`. */
#ifndef NDP_DEVICE_CUDA_CUDA_LOAD_H
#define NDP_DEVICE_CUDA_CUDA_LOAD_H

#include "device/cuda/cuda_api.h"

/* `sim`: the device that executes CUDA's kernels on the host, else the one of NVIDIA's GPUs. `start`: it is to run, so
 * its driver and libraries must be there; else it only plans, and the plugin is enough. NDP_ENOTSUP: one line that says
 * what is missing and what to install. */
NDP_API ndp_status ndp_cuda_load(bool sim, bool start, const ndp_cuda_api **out);

#endif
