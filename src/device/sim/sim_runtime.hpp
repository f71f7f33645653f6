/* What the simulated runtime offers beside CUDA's interface. */
#ifndef NDP_DEVICE_SIM_SIM_RUNTIME_HPP
#define NDP_DEVICE_SIM_SIM_RUNTIME_HPP

#include <cuda_runtime.h>

/* Submits an operation of the device that is not a kernel; it runs when the stream is waited for. */
void ndp_sim_submit(cudaStream_t s, std::function<void()> op);

/* For libraries and tests, which find it by its name: an operation that may have to wait for others. try_run(user) is
 * called until it returns 1: it has run, or -1: it failed, and the context is unusable; 0: not yet. */
extern "C" __attribute__((visibility("default"))) int ndp_sim_submit_when(void *stream, int (*try_run)(void *user),
                                                                          void *user);

#endif
