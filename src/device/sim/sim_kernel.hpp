/* Kernels of `sim`: names, for messages, and shared memory. */
#ifndef NDP_DEVICE_SIM_SIM_KERNEL_HPP
#define NDP_DEVICE_SIM_SIM_KERNEL_HPP

#include <cstddef>
#include <string>

/* A kernel's name; else its place in the file, for addr2line. */
std::string ndp_sim_kernel_name(const void *kernel);

/* As much shared memory as a block of an H100 can have, or NDP_SIM_SHARED bytes. */
int ndp_sim_shared_of_block(void);
/* Kernels may have more than 48 KiB of shared memory on a GPU, as in CUDA only after cudaFuncSetAttribute: how much.
 * One number for all threads of the process; the last call counts. */
void ndp_sim_allow_shared(const void *kernel, int gpu, size_t bytes);
size_t ndp_sim_shared_limit(const void *kernel, int gpu);

#endif
