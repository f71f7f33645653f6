/* cuBLASLt's C API as a table of functions: NVIDIA's library on `cuda`, functions of our own on `sim`. */
#ifndef NDP_DEVICE_CUDA_CUDA_CUBLASLT_HPP
#define NDP_DEVICE_CUDA_CUDA_CUBLASLT_HPP

extern "C" {
#include "base/status.h"
}

#include <cublasLt.h>

/* X(name) for each function cublasLt<name> that we call. */
#define NDP_CUBLASLT(X)                                                                                                \
    X(Create)                                                                                                          \
    X(Destroy)                                                                                                         \
    X(GetStatusString)                                                                                                 \
    X(MatmulDescCreate)                                                                                                \
    X(MatmulDescDestroy)                                                                                               \
    X(MatmulDescSetAttribute)                                                                                          \
    X(MatrixLayoutCreate)                                                                                              \
    X(MatrixLayoutDestroy)                                                                                             \
    X(MatmulPreferenceCreate)                                                                                          \
    X(MatmulPreferenceDestroy)                                                                                         \
    X(MatmulPreferenceSetAttribute)                                                                                    \
    X(MatmulAlgoGetHeuristic)                                                                                          \
    X(Matmul)

struct ndp_cublaslt {
#define NDP_CUBLASLT_MEMBER(name) decltype(&cublasLt##name) name;
    NDP_CUBLASLT(NDP_CUBLASLT_MEMBER)
#undef NDP_CUBLASLT_MEMBER
};

/* Defined by each device: cuda_cublaslt.cc, sim_product.cc. NDP_ENOTSUP: what is missing, and what to install. */
NDP_API ndp_status ndp_cublaslt_load(ndp_cublaslt *out);

#endif
