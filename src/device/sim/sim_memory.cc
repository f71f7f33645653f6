/* Memory of the simulated GPUs, as CUDA's runtime and its driver give it: pieces of cudaMalloc, and addresses into
 * which allocations are mapped. Invariant, under the lock: a GPU's pieces are readable and writable if kernels or
 * copies of it run (`running`), and else not accessible. */
#include "device/sim/sim_memory.hpp"
#include "device/cuda/cuda_driver.hpp"
#include "device/cuda/cuda_guard.hpp"
#include "device/sim/sim_refuse.hpp"

#include <atomic>
#include <cuda_runtime.h>
#include <map>
#include <mutex>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

namespace {

constexpr size_t TOTAL = (size_t)64 << 30, PAGE = 4096;

/* What cuMemCreate made. It is there until its handle is released and it is not mapped any more. */
struct Memory {
    int gpu;
    size_t bytes;
    int uses; /* its handle, mappings */
};
/* Accessible pages of a GPU. `memory`: what is mapped there; NULL: they are one of cudaMalloc. */
struct Piece {
    size_t bytes;
    Memory *memory;
    bool accessible;
};
struct Gpu {
    std::map<char *, Piece> pieces; /* by address */
    size_t taken;
    int running;
};
struct Gpus {
    std::mutex lock;
    std::map<int, Gpu> all;
    std::map<char *, size_t> reserved; /* bytes by address */
};
Gpus &gpus() {
    static Gpus g;
    return g;
}
using Hold = std::lock_guard<std::mutex>;
std::atomic<long> allocations;

void protect(const Gpu &g) {
    for (const auto &[at, piece] : g.pieces)
        if (piece.accessible)
            mprotect(at, piece.bytes, g.running ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void count_running(int gpu, int change) {
    Hold hold(gpus().lock);
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

/* Addresses that nothing can access. */
char *reserve(size_t bytes) {
    void *at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? nullptr : (char *)at;
}

/* Under the lock. */
void add_piece(Gpu *g, char *at, Piece piece) {
    /* `count_running` changes the protection of all pages at each kernel: 512 times fewer of them. */
    madvise(at, piece.bytes, MADV_HUGEPAGE);
    if (piece.accessible && g->running)
        mprotect(at, piece.bytes, PROT_READ | PROT_WRITE);
    ASAN_UNPOISON_MEMORY_REGION(at, piece.bytes);
    g->pieces[at] = piece;
}

/* The piece that begins at `at`, and its GPU; NULL: there is none. Under the lock. */
Gpu *find_piece(char *at, Piece *out) {
    for (auto &[number, g] : gpus().all) {
        auto piece = g.pieces.find(at);
        if (piece != g.pieces.end()) {
            *out = piece->second;
            return &g;
        }
    }
    return nullptr;
}

/* Under the lock. */
void drop_use(Memory *m) {
    if (--m->uses > 0)
        return;
    gpus().all[m->gpu].taken -= m->bytes;
    delete m;
}

} // namespace

long ndp_sim_allocations(void) { return allocations; }
void ndp_sim_count_allocation(void) { allocations++; }
void ndp_sim_memory_open(int gpu) { count_running(gpu, 1); }
void ndp_sim_memory_close(int gpu) { count_running(gpu, -1); }

bool ndp_sim_memory_has(const void *at) {
    Hold hold(gpus().lock);
    for (auto &[number, g] : gpus().all) {
        auto next = g.pieces.upper_bound((char *)at);
        if (next != g.pieces.begin() && (const char *)at < std::prev(next)->first + std::prev(next)->second.bytes)
            return true;
    }
    return false;
}

size_t ndp_sim_reserved(void) {
    Hold hold(gpus().lock);
    size_t sum = 0;
    for (const auto &[at, bytes] : gpus().reserved)
        sum += bytes;
    return sum;
}

/* ---- the runtime ---- */

cudaError_t cudaMalloc(void **out, size_t bytes) {
    int answer = ndp_sim_answer("cudaMalloc", cudaErrorInvalidValue);
    if (answer != NDP_SIM_EXECUTES)
        return (cudaError_t)answer;
    Hold hold(gpus().lock);
    Gpu *g = &gpus().all[current()];
    size_t pages = (bytes ? bytes + PAGE - 1 : PAGE) / PAGE * PAGE;
    char *at = pages <= TOTAL - g->taken ? reserve(pages) : nullptr;
    if (!at)
        return cudaErrorMemoryAllocation;
    ndp_sim_count_allocation();
    g->taken += pages;
    add_piece(g, at, {pages, nullptr, true});
    ASAN_POISON_MEMORY_REGION(at + bytes, pages - bytes);
    *out = at;
    return cudaSuccess;
}

cudaError_t cudaFree(void *data) {
    Hold hold(gpus().lock);
    Piece piece;
    Gpu *g = find_piece((char *)data, &piece);
    if (!g || piece.memory)
        return data ? cudaErrorInvalidValue : cudaSuccess;
    ASAN_UNPOISON_MEMORY_REGION(data, piece.bytes);
    munmap(data, piece.bytes);
    g->taken -= piece.bytes;
    g->pieces.erase((char *)data);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    Hold hold(gpus().lock);
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

/* ---- the driver ---- */

void ndp_gpu_driver_load(ndp_gpu_driver *out) {
#define OURS(name) out->name = ndp_sim_answer("cu" #name, 0) == NDP_SIM_ABSENT ? nullptr : cu##name;
    NDP_GPU_DRIVER(OURS)
}

/* Returns what the test wants of this function, if it is not to be executed. */
#define MAY_REFUSE(name)                                                                                               \
    do {                                                                                                               \
        int answer_ = ndp_sim_answer(name, CUDA_ERROR_NOT_SUPPORTED);                                                  \
        if (answer_ != NDP_SIM_EXECUTES)                                                                               \
            return (CUresult)answer_;                                                                                  \
    } while (0)

CUresult cuGetErrorString(CUresult e, const char **text) {
    *text = e == CUDA_ERROR_OUT_OF_MEMORY    ? "out of memory"
            : e == CUDA_ERROR_INVALID_DEVICE ? "invalid device ordinal"
            : e == CUDA_ERROR_NOT_PERMITTED  ? "operation not permitted"
            : e == CUDA_ERROR_NOT_SUPPORTED  ? "operation not supported"
                                             : "invalid argument";
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *page, const CUmemAllocationProp *, CUmemAllocationGranularity_flags) {
    MAY_REFUSE("cuMemGetAllocationGranularity");
    *page = PAGE;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *at, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
    MAY_REFUSE("cuMemAddressReserve");
    char *found = reserve(bytes);
    if (!found)
        return CUDA_ERROR_OUT_OF_MEMORY;
    Hold hold(gpus().lock);
    gpus().reserved[found] = bytes;
    *at = (CUdeviceptr)found;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes) {
    Hold hold(gpus().lock);
    auto found = gpus().reserved.find((char *)at);
    Piece piece;
    if (found == gpus().reserved.end() || found->second != bytes || find_piece((char *)at, &piece))
        return CUDA_ERROR_INVALID_VALUE;
    munmap((void *)at, bytes);
    gpus().reserved.erase(found);
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *kind,
                     unsigned long long) {
    MAY_REFUSE("cuMemCreate");
    Hold hold(gpus().lock);
    Gpu &g = gpus().all[kind->location.id];
    if (bytes == 0 || bytes % PAGE)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > TOTAL - g.taken)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ndp_sim_count_allocation();
    g.taken += bytes;
    *out = (CUmemGenericAllocationHandle) new Memory{kind->location.id, bytes, 1};
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle memory) {
    Hold hold(gpus().lock);
    drop_use((Memory *)memory);
    return CUDA_SUCCESS;
}

/* At the start of reserved addresses, a whole allocation. */
CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle memory,
                  unsigned long long) {
    MAY_REFUSE("cuMemMap");
    Hold hold(gpus().lock);
    Memory *m = (Memory *)memory;
    auto found = gpus().reserved.find((char *)at);
    Piece piece;
    if (found == gpus().reserved.end() || found->second < bytes || find_piece((char *)at, &piece) || offset ||
        bytes != m->bytes)
        return CUDA_ERROR_INVALID_VALUE;
    m->uses++;
    add_piece(&gpus().all[m->gpu], (char *)at, {bytes, m, false});
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t n) {
    MAY_REFUSE("cuMemSetAccess");
    Hold hold(gpus().lock);
    Piece piece;
    Gpu *g = find_piece((char *)at, &piece);
    if (!g || piece.bytes != bytes || !piece.memory || n != 1 || access->location.id != piece.memory->gpu)
        return CUDA_ERROR_INVALID_VALUE;
    piece.accessible = true;
    add_piece(g, (char *)at, piece);
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
    Hold hold(gpus().lock);
    Piece piece;
    Gpu *g = find_piece((char *)at, &piece);
    if (!g || piece.bytes != bytes || !piece.memory)
        return CUDA_ERROR_INVALID_VALUE;
    ASAN_UNPOISON_MEMORY_REGION((void *)at, bytes);
    mprotect((void *)at, bytes, PROT_NONE);
    madvise((void *)at, bytes, MADV_DONTNEED);
    g->pieces.erase((char *)at);
    drop_use(piece.memory);
    return CUDA_SUCCESS;
}

/* ---- around guarded pieces ---- */

void ndp_gpu_enclose(const void *data, const ndp_gpu_place &place, size_t bytes) {
    const char *at = (const char *)data - place.front;
    ASAN_POISON_MEMORY_REGION(at, place.front);
    ASAN_POISON_MEMORY_REGION((const char *)data + bytes, place.pages - place.front - bytes);
    (void)at, (void)bytes;
}

void ndp_gpu_disclose(const void *data, const ndp_gpu_place &place) {
    ASAN_UNPOISON_MEMORY_REGION((const char *)data - place.front, place.pages);
    (void)data, (void)place;
}
