/* Words of the host's memory that a stream writes. */
#ifndef NDP_DEVICE_CUDA_CUDA_WORD_HPP
#define NDP_DEVICE_CUDA_CUDA_WORD_HPP

#include <cuda_runtime.h>

#include <cstdint>

/* Writes `value` to a word of pinned memory once all earlier work of the stream has run. Defined by each device:
 * cuda_word.cc, sim_word.cc. */
cudaError_t ndp_gpu_write_word(cudaStream_t s, uint32_t *word, uint32_t value);

#endif
