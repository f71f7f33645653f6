/* cuStreamWriteValue32 of the driver, whose library CUDA's runtime has already loaded. */
#include "device/cuda/cuda_word.hpp"

#include <cuda.h>
#include <dlfcn.h>

namespace {
using Write = decltype(&cuStreamWriteValue32);
Write find_write() {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *f = driver ? dlsym(driver, "cuStreamWriteValue32_v2") : nullptr;
    return (Write)(f || !driver ? f : dlsym(driver, "cuStreamWriteValue32"));
}
} // namespace

cudaError_t ndp_gpu_write_word(cudaStream_t s, uint32_t *word, uint32_t value) {
    static const Write write = find_write();
    if (!write)
        return cudaErrorNotSupported;
    CUresult e = write((CUstream)s, (CUdeviceptr)(uintptr_t)word, value, 0);
    return e == CUDA_SUCCESS ? cudaSuccess : e == CUDA_ERROR_NOT_SUPPORTED ? cudaErrorNotSupported : cudaErrorUnknown;
}
