/* NVIDIA's libraries, found when the plugin needs them: none is linked. */
#ifndef NDP_DEVICE_CUDA_CUDA_LIBRARY_HPP
#define NDP_DEVICE_CUDA_CUDA_LIBRARY_HPP

extern "C" {
#include "base/status.h"
}

/* Loads the library `name` ("libcublasLt.so") in one of the major versions newest .. oldest, the newest one first;
 * `wheel` is the package of PyPI that has it ("nvidia-cublas"). It is looked for in $NDP_CUDA_PATH (folders separated
 * by colons, or roots of toolkits), in the plugin's folder and its cuda/lib (`make deps-cuda`), where the system's
 * loader looks, and in the packages of the `python3` on PATH. A library that this process has already loaded is taken
 * first. Versions above the driver's cannot run and are left out. *handle is for dlsym; it is never unloaded.
 * NDP_ENOTSUP: one line that says what is missing and what to install. */
NDP_API ndp_status ndp_cuda_library(const char *name, int newest, int oldest, const char *wheel, void **handle);

#endif
