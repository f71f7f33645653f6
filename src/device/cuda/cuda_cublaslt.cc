/* NVIDIA's cuBLASLt, loaded at run time. */
#include "device/cuda/cuda_cublaslt.hpp"
#include "device/cuda/cuda_library.hpp"

#include <dlfcn.h>

/* Its majors whose API is the one that we compile against. */
enum { NEWEST = 13, OLDEST = 12 };

template <typename F> static ndp_status find(void *library, const char *name, F *out) {
    *out = (F)dlsym(library, name);
    if (!*out)
        return NDP_FAIL(NDP_ENOTSUP, "libcublasLt.so has no %s: install version %d or %d", name, NEWEST, OLDEST);
    return NDP_OK;
}

ndp_status ndp_cublaslt_load(ndp_cublaslt *out) {
    void *library;
    NDP_TRY(ndp_cuda_library("libcublasLt.so", NEWEST, OLDEST, "nvidia-cublas", &library));
#define FIND(name) NDP_TRY(find(library, "cublasLt" #name, &out->name));
    NDP_CUBLASLT(FIND)
    return NDP_OK;
}
