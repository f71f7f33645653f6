/* The list of what is allocated on each simulated GPU. Invariant, under the lock: a GPU's pieces are readable and
 * writable if kernels or copies of it run (`running`), and else not accessible. */
#include "device/sim/sim_memory.hpp"
#include "device/cuda/cuda_memory.hpp"

#include <atomic>
#include <cuda_runtime.h>
#include <map>
#include <mutex>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

namespace {

constexpr size_t TOTAL = (size_t)64 << 30, PAGE = 4096;

struct Gpu {
    std::map<char *, size_t> pieces; /* by address: bytes, in whole pages */
    size_t taken;
    int running;
};
struct Gpus {
    std::mutex lock;
    std::map<int, Gpu> all;
};
Gpus &gpus() {
    static Gpus g;
    return g;
}
std::atomic<long> allocations;

void protect(const Gpu &g) {
    for (const auto &[data, bytes] : g.pieces)
        mprotect(data, bytes, g.running ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void count_running(int gpu, int change) {
    std::lock_guard<std::mutex> hold(gpus().lock);
    Gpu &g = gpus().all[gpu];
    int before = g.running;
    g.running += change;
    if (before == 0 || g.running == 0)
        protect(g);
}

int current() {
    int gpu = 0;
    cudaGetDevice(&gpu);
    return gpu;
}

} // namespace

long ndp_sim_allocations(void) { return allocations; }
void ndp_sim_count_allocation(void) { allocations++; }
void ndp_sim_memory_open(int gpu) { count_running(gpu, 1); }
void ndp_sim_memory_close(int gpu) { count_running(gpu, -1); }

cudaError_t cudaMalloc(void **out, size_t bytes) {
    size_t pages = (bytes ? bytes + PAGE - 1 : PAGE) / PAGE * PAGE;
    std::lock_guard<std::mutex> hold(gpus().lock);
    Gpu &g = gpus().all[current()];
    void *data = MAP_FAILED;
    if (pages <= TOTAL - g.taken)
        data = mmap(nullptr, pages, g.running ? PROT_READ | PROT_WRITE : PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    ASAN_UNPOISON_MEMORY_REGION(data, bytes);
    ASAN_POISON_MEMORY_REGION((char *)data + bytes, pages - bytes);
    ndp_sim_count_allocation();
    g.pieces[(char *)data] = pages;
    g.taken += pages;
    *out = data;
    return cudaSuccess;
}

cudaError_t cudaFree(void *data) {
    std::lock_guard<std::mutex> hold(gpus().lock);
    for (auto &[number, g] : gpus().all) {
        auto piece = g.pieces.find((char *)data);
        if (piece == g.pieces.end())
            continue;
        ASAN_UNPOISON_MEMORY_REGION(data, piece->second);
        munmap(data, piece->second);
        g.taken -= piece->second;
        g.pieces.erase(piece);
        return cudaSuccess;
    }
    return data ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    std::lock_guard<std::mutex> hold(gpus().lock);
    *total = TOTAL;
    *free = TOTAL - gpus().all[current()].taken;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned) {
    *out = aligned_alloc(256, (bytes + 255) / 256 * 256 + (bytes == 0) * 256);
    ndp_sim_count_allocation();
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *data) {
    free(data);
    return cudaSuccess;
}

const char *ndp_gpu_take(int, size_t bytes, void **out, bool *full) {
    cudaError_t e = cudaMalloc(out, bytes);
    *full = e == cudaErrorMemoryAllocation;
    return e == cudaSuccess ? nullptr : "out of memory";
}

void ndp_gpu_give(int, void *data, size_t) { cudaFree(data); }
