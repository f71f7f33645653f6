/* The list of what is allocated on each simulated GPU. Invariant, under the lock: a GPU's pieces are readable and
 * writable if kernels or copies of it run (`running`), and else not accessible. */
#include "device/sim/sim_memory.hpp"
#include "device/cuda/cuda_guard.hpp"
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
    std::map<char *, ndp_gpu_place> pieces; /* by the address of the first page */
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
    for (const auto &[at, place] : g.pieces)
        mprotect(at, place.pages, g.running ? PROT_READ | PROT_WRITE : PROT_NONE);
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

/* Maps the pages on the current GPU; what is behind them stays closed. */
cudaError_t map_pages(const ndp_gpu_place &place, char **out) {
    std::lock_guard<std::mutex> hold(gpus().lock);
    Gpu &g = gpus().all[current()];
    void *at = MAP_FAILED;
    if (place.pages <= TOTAL - g.taken)
        at = mmap(nullptr, place.pages + place.behind, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    /* `count_running` changes the protection of all pages at each kernel: 512 times fewer of them. */
    madvise(at, place.pages, MADV_HUGEPAGE);
    if (g.running)
        mprotect(at, place.pages, PROT_READ | PROT_WRITE);
    ASAN_UNPOISON_MEMORY_REGION(at, place.pages);
    ndp_sim_count_allocation();
    g.pieces[(char *)at] = place;
    g.taken += place.pages;
    *out = (char *)at;
    return cudaSuccess;
}

/* AddressSanitizer then finds each access to the pages outside the piece. */
void poison_around(const char *at, const ndp_gpu_place &place, size_t bytes) {
    ASAN_POISON_MEMORY_REGION(at, place.front);
    ASAN_POISON_MEMORY_REGION(at + place.front + bytes, place.pages - place.front - bytes);
    (void)at, (void)place, (void)bytes;
}

} // namespace

long ndp_sim_allocations(void) { return allocations; }
void ndp_sim_count_allocation(void) { allocations++; }
void ndp_sim_memory_open(int gpu) { count_running(gpu, 1); }
void ndp_sim_memory_close(int gpu) { count_running(gpu, -1); }

cudaError_t cudaMalloc(void **out, size_t bytes) {
    const ndp_gpu_place place = {(bytes ? bytes + PAGE - 1 : PAGE) / PAGE * PAGE, 0, 0};
    char *at;
    cudaError_t e = map_pages(place, &at);
    if (e != cudaSuccess)
        return e;
    poison_around(at, place, bytes);
    *out = at;
    return cudaSuccess;
}

cudaError_t cudaFree(void *data) {
    std::lock_guard<std::mutex> hold(gpus().lock);
    for (auto &[number, g] : gpus().all) {
        auto piece = g.pieces.find((char *)data);
        if (piece == g.pieces.end())
            continue;
        ASAN_UNPOISON_MEMORY_REGION(data, piece->second.pages);
        munmap(data, piece->second.pages + piece->second.behind);
        g.taken -= piece->second.pages;
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
    const ndp_gpu_place place = ndp_gpu_place_of(bytes, PAGE);
    char *at;
    cudaError_t e = map_pages(place, &at);
    *full = e == cudaErrorMemoryAllocation;
    if (e != cudaSuccess)
        return "out of memory";
    *out = at + place.front;
    ndp_gpu_guard_paint(place, *out, bytes);
    poison_around(at, place, bytes);
    return nullptr;
}

const char *ndp_gpu_give(int gpu, void *data, size_t bytes) {
    const ndp_gpu_place place = ndp_gpu_place_of(bytes, PAGE);
    char *at = (char *)data - place.front;
    ASAN_UNPOISON_MEMORY_REGION(at, place.pages);
    const char *wrong = ndp_gpu_guard_check(gpu, place, data, bytes);
    cudaFree(at);
    return wrong;
}
