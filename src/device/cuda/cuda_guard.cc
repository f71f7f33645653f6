/* The pattern around guarded pieces is written and read by CUDA's runtime, so it is the same code on `sim`. */
#include "device/cuda/cuda_guard.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <vector>

namespace {

/* ALIGNMENT: of a piece. Kernels test addresses for 16 bytes before they move as many at once, and cuBLASLt is told the
 * alignment of its operands. FRONT: at most so much is painted before a piece; pages have 2 MiB. */
constexpr size_t ALIGNMENT = 16, FRONT = 4096;
constexpr unsigned char PATTERN = 0xa7;

size_t painted_front(const ndp_gpu_place &place) { return place.front < FRONT ? place.front : FRONT; }
size_t rest_of(const ndp_gpu_place &place, size_t bytes) { return place.pages - place.front - bytes; }

/* The `n` bytes at `at`; false: the GPU has failed. */
bool read(const void *at, size_t n, std::vector<unsigned char> *out) {
    out->resize(n);
    return n == 0 || (cudaMemcpyAsync(out->data(), at, n, cudaMemcpyDefault, nullptr) == cudaSuccess &&
                      cudaStreamSynchronize(nullptr) == cudaSuccess);
}

const char *describe(size_t bytes, const void *data, long long offset, unsigned char value) {
    static thread_local char text[240];
    snprintf(text, sizeof text,
             "a kernel or copy wrote outside its memory: byte %lld of the %zu at %p, %lld %s, is 0x%02x and was 0x%02x",
             offset, bytes, data, offset < 0 ? -offset : offset - (long long)bytes + 1,
             offset < 0 ? "before the first one" : "after the last one", value, PATTERN);
    return text;
}

} // namespace

bool ndp_gpu_guarded(void) {
    static const char *const word = getenv("NDP_GPU_GUARD");
    static const bool on = word && strcmp(word, "1") == 0;
    return on;
}

ndp_gpu_place ndp_gpu_place_of(size_t bytes, size_t page) {
    size_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT,
           pages = (whole ? whole + page - 1 : page) / page * page;
    return ndp_gpu_guarded() ? ndp_gpu_place{pages, pages - whole, page} : ndp_gpu_place{pages, 0, 0};
}

void ndp_gpu_guard_paint(const ndp_gpu_place &place, void *data, size_t bytes) {
    if (!ndp_gpu_guarded())
        return;
    size_t front = painted_front(place);
    cudaMemsetAsync((char *)data - front, PATTERN, front, nullptr);
    cudaMemsetAsync((char *)data + bytes, PATTERN, rest_of(place, bytes), nullptr);
    cudaStreamSynchronize(nullptr);
}

const char *ndp_gpu_guard_check(int gpu, const ndp_gpu_place &place, const void *data, size_t bytes) {
    std::vector<unsigned char> found;
    if (!ndp_gpu_guarded() || cudaSetDevice(gpu) != cudaSuccess)
        return nullptr;
    size_t front = painted_front(place), rest = rest_of(place, bytes);
    if (!read((const char *)data + bytes, rest, &found))
        return nullptr;
    for (size_t i = 0; i < rest; i++)
        if (found[i] != PATTERN)
            return describe(bytes, data, (long long)(bytes + i), found[i]);
    if (!read((const char *)data - front, front, &found))
        return nullptr;
    for (size_t i = front; i-- > 0;) /* the nearest one */
        if (found[i] != PATTERN)
            return describe(bytes, data, (long long)i - (long long)front, found[i]);
    return nullptr;
}
