/* The library, as the plugin reaches it: base/status.h also works in the plugin. */
#ifndef NDP_DEVICE_CUDA_CUDA_HOST_HPP
#define NDP_DEVICE_CUDA_CUDA_HOST_HPP

extern "C" {
#include "device/cuda/cuda_api.h"
}

/* Before the first error can occur. Borrowed. */
void ndp_cuda_host_set(const ndp_cuda_host *host);

#endif
