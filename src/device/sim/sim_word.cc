/* A word that a simulated stream writes. */
#include "device/cuda/cuda_word.hpp"
#include "device/sim/sim_runtime.hpp"

cudaError_t ndp_gpu_write_word(cudaStream_t s, uint32_t *word, uint32_t value) {
    ndp_sim_submit(s, [=] { __atomic_store_n(word, value, __ATOMIC_RELEASE); });
    return cudaPeekAtLastError();
}
