/* Memory of a GPU by the driver's virtual memory management. The driver's library is already loaded by CUDA's runtime,
 * and has no symbol in it that the plugin links to. */
#include "device/cuda/cuda_memory.hpp"
#include "device/cuda/cuda_guard.hpp"

#include <cuda.h>
#include <dlfcn.h>

namespace {

struct Driver {
    decltype(&cuMemGetAllocationGranularity) granularity;
    decltype(&cuMemAddressReserve) reserve;
    decltype(&cuMemAddressFree) unreserve;
    decltype(&cuMemCreate) create;
    decltype(&cuMemRelease) release;
    decltype(&cuMemMap) map;
    decltype(&cuMemUnmap) unmap;
    decltype(&cuMemSetAccess) access;
    decltype(&cuGetErrorString) error;
    const char *missing; /* the first function that the driver does not have */

    template <typename F> void find(void *library, const char *name, F *out) {
        *out = library ? (F)dlsym(library, name) : nullptr;
        if (!*out && !missing)
            missing = name;
    }
    Driver() : missing(nullptr) {
        void *d = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        find(d, "cuMemGetAllocationGranularity", &granularity);
        find(d, "cuMemAddressReserve", &reserve);
        find(d, "cuMemAddressFree", &unreserve);
        find(d, "cuMemCreate", &create);
        find(d, "cuMemRelease", &release);
        find(d, "cuMemMap", &map);
        find(d, "cuMemUnmap", &unmap);
        find(d, "cuMemSetAccess", &access);
        find(d, "cuGetErrorString", &error);
    }
    const char *text(CUresult e) const {
        const char *text = nullptr;
        return error(e, &text) == CUDA_SUCCESS && text ? text : "an unknown error";
    }
};

const Driver &driver() {
    static const Driver d;
    return d;
}

CUmemAllocationProp kind_of(int gpu) {
    CUmemAllocationProp p = {};
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = gpu;
    return p;
}

/* Where a piece of `bytes` is in whole pages of the GPU. */
CUresult place_of(int gpu, size_t bytes, ndp_gpu_place *out) {
    CUmemAllocationProp kind = kind_of(gpu);
    size_t page = 0;
    CUresult e = driver().granularity(&page, &kind, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (e == CUDA_SUCCESS)
        *out = ndp_gpu_place_of(bytes, page);
    return e;
}

/* Maps new memory at `at`. The mapping keeps it; its handle is not needed any more. */
CUresult fill(int gpu, CUdeviceptr at, size_t bytes) {
    const Driver &d = driver();
    CUmemAllocationProp kind = kind_of(gpu);
    CUmemGenericAllocationHandle memory;
    CUresult e = d.create(&memory, bytes, &kind, 0);
    if (e != CUDA_SUCCESS)
        return e;
    e = d.map(at, bytes, 0, memory, 0);
    d.release(memory);
    if (e != CUDA_SUCCESS)
        return e;
    CUmemAccessDesc access = {};
    access.location = kind.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    e = d.access(at, bytes, &access, 1);
    if (e != CUDA_SUCCESS)
        d.unmap(at, bytes);
    return e;
}

} // namespace

const char *ndp_gpu_take(int gpu, size_t bytes, void **out, bool *full) {
    const Driver &d = driver();
    *full = false;
    if (d.missing)
        return d.missing;
    ndp_gpu_place place = {};
    CUdeviceptr at = 0;
    CUresult e = place_of(gpu, bytes, &place);
    if (e == CUDA_SUCCESS)
        e = d.reserve(&at, place.pages + place.behind, 0, 0, 0);
    if (e == CUDA_SUCCESS) {
        e = fill(gpu, at, place.pages);
        if (e != CUDA_SUCCESS)
            d.unreserve(at, place.pages + place.behind);
    }
    *full = e == CUDA_ERROR_OUT_OF_MEMORY;
    if (e != CUDA_SUCCESS)
        return d.text(e);
    *out = (void *)(at + place.front);
    ndp_gpu_guard_paint(place, *out, bytes);
    return nullptr;
}

const char *ndp_gpu_give(int gpu, void *data, size_t bytes) {
    ndp_gpu_place place = {};
    if (place_of(gpu, bytes, &place) != CUDA_SUCCESS)
        return nullptr;
    const char *wrong = ndp_gpu_guard_check(gpu, place, data, bytes);
    CUdeviceptr at = (CUdeviceptr)data - place.front;
    driver().unmap(at, place.pages);
    driver().unreserve(at, place.pages + place.behind);
    return wrong;
}
