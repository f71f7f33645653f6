/* Blocks of simulated kernels: the threads of one are fibers of a thread of the host. */
#ifndef NDP_DEVICE_SIM_SIM_BLOCK_HPP
#define NDP_DEVICE_SIM_SIM_BLOCK_HPP

#include <cuda_runtime.h>

#include <string>

/* The dynamic shared memory that a block can have at most: that of an H100. */
enum { NDP_SIM_MOST_SHARED = 227 << 10 };

/* Runs all blocks of a grid. Returns "" or what was wrong: threads that wait for others that have left, or lanes that
 * meet in different places. `down`: warps and blocks in descending order, which may not change any result. */
std::string ndp_sim_run(const cudaLaunchConfig_t &c, const std::function<void()> &body, bool down);

/* A block begins: no thread of it has copies under way (sim_tensor.cc). */
void ndp_sim_tensor_begin(void);

#endif
