/* Memory of a GPU. `cuda` (cuda_memory.cc) makes each piece one reservation of addresses that maps one allocation,
 * so that it can be shared with other processes and its addresses stay when it grows; `sim` (sim_memory.cc) has memory
 * of the host that only kernels and copies can follow. */
#ifndef NDP_DEVICE_CUDA_CUDA_MEMORY_HPP
#define NDP_DEVICE_CUDA_CUDA_MEMORY_HPP

#include <cstddef>

/* Takes at least `bytes` of the GPU, not cleared, at *out. Returns NULL, or what failed: a text that is valid until the
 * thread's next call. *full: the GPU has too little free memory. The GPU is the thread's current one. */
const char *ndp_gpu_take(int gpu, size_t bytes, void **out, bool *full);

/* Gives back what ndp_gpu_take took, with the same `bytes`. Returns NULL, or what was written around a guarded piece
 * (cuda_guard.hpp). */
const char *ndp_gpu_give(int gpu, void *data, size_t bytes);

#endif
