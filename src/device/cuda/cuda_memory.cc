/* Taking memory: by pages that the driver maps; by cudaMalloc where the driver lacks a function for that or refuses a
 * call, whatever its reason, except that the memory is not there. */
#include "device/cuda/cuda_memory.hpp"
#include "device/cuda/cuda_driver.hpp"
#include "device/cuda/cuda_guard.hpp"

#include <cstdio>
#include <cuda_runtime.h>

namespace {

/* Calls to the driver for one piece, and the first of them that failed. */
struct Calls {
    ndp_gpu_driver driver;
    const char *failed = nullptr;
    CUresult answer = CUDA_SUCCESS;

    Calls() {
        ndp_gpu_driver_load(&driver);
#define CHECK_THERE(name)                                                                                              \
    if (!driver.name && !failed)                                                                                       \
        failed = "cu" #name, answer = CUDA_ERROR_NOT_FOUND;
        NDP_GPU_DRIVER(CHECK_THERE)
    }
    bool passes(const char *name, CUresult e) {
        if (e != CUDA_SUCCESS && !failed)
            failed = name, answer = e;
        return e == CUDA_SUCCESS;
    }
    /* The failed call and the driver's answer, for messages. */
    void describe(char *text, size_t room) const {
        const char *words = nullptr;
        if (answer == CUDA_ERROR_NOT_FOUND)
            words = "the driver has no such function";
        else if (!driver.GetErrorString || driver.GetErrorString(answer, &words) != CUDA_SUCCESS || !words)
            words = "an unknown error";
        snprintf(text, room, "%s: %s", failed, words);
    }
};
#define CALL(c, name, ...) (c)->passes("cu" #name, (c)->driver.name(__VA_ARGS__))

CUmemAllocationProp kind_of(int gpu) {
    CUmemAllocationProp p = {};
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = gpu;
    return p;
}

/* Where a piece of `bytes` is in whole pages of the GPU. */
bool find_place(Calls *c, int gpu, size_t bytes, ndp_gpu_place *out) {
    CUmemAllocationProp kind = kind_of(gpu);
    size_t page = 0;
    if (!CALL(c, MemGetAllocationGranularity, &page, &kind, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return false;
    *out = ndp_gpu_place_of(bytes, page);
    return true;
}

/* Maps new memory at `at`. The mapping keeps it; its handle is not needed any more. */
bool fill(Calls *c, int gpu, CUdeviceptr at, size_t bytes) {
    CUmemAllocationProp kind = kind_of(gpu);
    CUmemGenericAllocationHandle memory;
    if (!CALL(c, MemCreate, &memory, bytes, &kind, 0))
        return false;
    bool mapped = CALL(c, MemMap, at, bytes, 0, memory, 0);
    c->driver.MemRelease(memory);
    if (!mapped)
        return false;
    CUmemAccessDesc access = {};
    access.location = kind.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (CALL(c, MemSetAccess, at, bytes, &access, 1))
        return true;
    c->driver.MemUnmap(at, bytes);
    return false;
}

bool take_pages(Calls *c, int gpu, size_t bytes, void **out) {
    ndp_gpu_place place = {};
    CUdeviceptr at = 0;
    if (c->failed || !find_place(c, gpu, bytes, &place) ||
        !CALL(c, MemAddressReserve, &at, place.pages + place.behind, 0, 0, 0))
        return false;
    if (!fill(c, gpu, at, place.pages)) {
        c->driver.MemAddressFree(at, place.pages + place.behind);
        return false;
    }
    *out = (void *)(at + place.front);
    ndp_gpu_guard_paint(place, *out, bytes);
    ndp_gpu_enclose(*out, place, bytes);
    return true;
}

ndp_status too_little(int gpu, size_t bytes, const char *why) {
    const double gib = 1 << 30;
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return NDP_FAIL(NDP_ENOMEM, "cannot take %.2f GiB (%zu bytes) of GPU %d: %.2f of its %.2f GiB are free (%s)",
                    (double)bytes / gib, bytes, gpu, (double)free / gib, (double)total / gib, why);
}

/* `refused`: why the driver maps no pages. */
ndp_status take_malloc(int gpu, size_t bytes, const char *refused, void **out) {
    cudaError_t e = cudaMalloc(out, bytes ? bytes : 1);
    if (e == cudaSuccess)
        return NDP_OK;
    cudaGetLastError(); /* a smaller piece may fit */
    if (e == cudaErrorMemoryAllocation)
        return too_little(gpu, bytes, cudaGetErrorString(e));
    return NDP_FAIL(NDP_EIO, "cannot take memory of GPU %d: cudaMalloc: %s (%s)", gpu, cudaGetErrorString(e), refused);
}

} // namespace

ndp_status ndp_gpu_take(int gpu, size_t bytes, ndp_gpu_way *way, void **out) {
    char why[200] = "by cudaMalloc, as the pieces before";
    if (*way != NDP_GPU_MALLOC) {
        Calls c;
        if (take_pages(&c, gpu, bytes, out)) {
            *way = NDP_GPU_PAGES;
            return NDP_OK;
        }
        c.describe(why, sizeof why);
        if (c.answer == CUDA_ERROR_OUT_OF_MEMORY)
            return too_little(gpu, bytes, why);
        if (*way == NDP_GPU_PAGES)
            return NDP_FAIL(NDP_EIO, "cannot map memory of GPU %d: %s", gpu, why);
        if (ndp_gpu_guarded())
            return NDP_FAIL(NDP_ENOTSUP,
                            "NDP_GPU_GUARD=1 needs a page that is not mapped after each piece of memory, and the "
                            "driver of GPU %d maps no pages (%s): run without NDP_GPU_GUARD",
                            gpu, why);
    }
    NDP_TRY(take_malloc(gpu, bytes, why, out));
    *way = NDP_GPU_MALLOC;
    return NDP_OK;
}

const char *ndp_gpu_give(int gpu, void *data, size_t bytes, ndp_gpu_way way) {
    if (way == NDP_GPU_MALLOC) {
        cudaFree(data);
        return nullptr;
    }
    Calls c;
    ndp_gpu_place place = {};
    if (c.failed || !find_place(&c, gpu, bytes, &place))
        return nullptr;
    ndp_gpu_disclose(data, place);
    const char *wrong = ndp_gpu_guard_check(gpu, place, data, bytes);
    CUdeviceptr at = (CUdeviceptr)data - place.front;
    c.driver.MemUnmap(at, place.pages);
    c.driver.MemAddressFree(at, place.pages + place.behind);
    return wrong;
}
