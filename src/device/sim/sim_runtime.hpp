/* What the simulated runtime offers beside CUDA's interface. */
#ifndef NDP_DEVICE_SIM_SIM_RUNTIME_HPP
#define NDP_DEVICE_SIM_SIM_RUNTIME_HPP

#include <cuda_runtime.h>

/* Submits an operation of the device that is not a kernel; it runs when the stream is waited for. */
void ndp_sim_submit(cudaStream_t s, std::function<void()> op);

#endif
