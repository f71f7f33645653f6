/* Memory of a GPU. A piece is one reservation of addresses that maps one allocation, by the driver's virtual memory
 * management, so that the guard (cuda_guard.hpp) can leave the addresses after it unmapped. Where the driver refuses
 * that, as on some virtual GPUs, pieces are taken by cudaMalloc. */
#ifndef NDP_DEVICE_CUDA_CUDA_MEMORY_HPP
#define NDP_DEVICE_CUDA_CUDA_MEMORY_HPP

extern "C" {
#include "base/status.h"
}

#include <cstddef>

/* How a context takes memory: decided by its first piece, and the same for all others, so that each is given back as it
 * was taken. */
enum ndp_gpu_way { NDP_GPU_UNDECIDED, NDP_GPU_PAGES, NDP_GPU_MALLOC };

/* Takes at least `bytes` of the GPU, not cleared, at *out, and decides an undecided *way. The GPU is the thread's
 * current one. NDP_ENOMEM: it has too little free memory. NDP_ENOTSUP: the guard is on, and the driver maps no pages.
 */
ndp_status ndp_gpu_take(int gpu, size_t bytes, ndp_gpu_way *way, void **out);

/* Gives back what ndp_gpu_take took, with the same `bytes`. Returns NULL, or what was written around a guarded piece: a
 * text that is valid until the thread's next call. */
const char *ndp_gpu_give(int gpu, void *data, size_t bytes, ndp_gpu_way way);

#endif
