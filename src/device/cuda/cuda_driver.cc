/* NVIDIA's driver, whose library CUDA's runtime has already loaded. */
#include "device/cuda/cuda_driver.hpp"
#include "device/cuda/cuda_guard.hpp"

#include <dlfcn.h>

static ndp_gpu_driver find_all(void) {
    ndp_gpu_driver d = {};
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return d;
#define FIND(name) d.name = (decltype(d.name))dlsym(library, "cu" #name);
    NDP_GPU_DRIVER(FIND)
    return d;
}

void ndp_gpu_driver_load(ndp_gpu_driver *out) {
    static const ndp_gpu_driver found = find_all();
    *out = found;
}

void ndp_gpu_enclose(const void *, const ndp_gpu_place &, size_t) {}
void ndp_gpu_disclose(const void *, const ndp_gpu_place &) {}
