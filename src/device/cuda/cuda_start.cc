/* What the plugin ndp_cuda.so needs of the machine: a driver that is new enough, and a GPU. */
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_host.hpp"
#include "device/cuda/cuda_library.hpp"

extern "C" {
#include "base/status.h"
}
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <dlfcn.h>

extern const char *const ndp_cuda_name = "cuda";

/* Versions are 1000 * major + 10 * minor. */
enum { OLDEST_DRIVER = 12040 };

/* A driver runs programs built with any minor version of its own major one, and with older ones. */
static ndp_status check_driver(void) {
    int driver = 0, built = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&built);
    int oldest = built / 1000 * 1000 > OLDEST_DRIVER ? built / 1000 * 1000 : OLDEST_DRIVER;
    if (driver == 0)
        return NDP_FAIL(NDP_ENOTSUP,
                        "no CUDA: this machine has no NVIDIA driver (libcuda.so.1): install one for CUDA "
                        "%d.%d or newer",
                        oldest / 1000, oldest % 1000 / 10);
    if (driver < oldest)
        return NDP_FAIL(NDP_ENOTSUP,
                        "no CUDA: the NVIDIA driver is one for CUDA %d.%d, and ndp_cuda.so was built with "
                        "CUDA %d.%d: install a driver for CUDA %d.%d or newer%s",
                        driver / 1000, driver % 1000 / 10, built / 1000, built % 1000 / 10, oldest / 1000,
                        oldest % 1000 / 10,
                        driver >= OLDEST_DRIVER ? ", or build with the toolkit of the driver's version" : "");
    return NDP_OK;
}

ndp_status ndp_cuda_begin(void) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* before CUDA starts; step/queues.c checks the user's own */
    NDP_TRY(check_driver());
    int gpus = 0;
    cudaError_t e = cudaGetDeviceCount(&gpus);
    if (e == cudaSuccess && gpus > 0)
        return NDP_OK;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return NDP_FAIL(
        NDP_ENOTSUP,
        "no CUDA: there is a driver but no GPU that it can use (%s)%s%s; `nvidia-smi` lists what the driver sees",
        e == cudaSuccess ? "none" : cudaGetErrorString(e), visible ? "; CUDA_VISIBLE_DEVICES=" : "",
        visible ? visible : "");
}

long ndp_cuda_allocations(void) { return 0; }

/* ---- for `ndparallel env` ---- */

namespace {
struct Text {
    char *at;
    size_t room;
    __attribute__((format(printf, 2, 3))) void add(const char *fmt, ...) {
        va_list args;
        va_start(args, fmt);
        int n = vsnprintf(at, room, fmt, args);
        va_end(args);
        size_t used = n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
        at += used, room -= used;
    }
};
} // namespace

static void describe_products(Text *t) {
    void *library;
    Dl_info where = {};
    if (ndp_cuda_library("libcublasLt.so", 13, 12, "nvidia-cublas", &library) != NDP_OK) {
        t->add("cuBLASLt      not found: install NVIDIA's cuBLAS, or set NDP_CUDA_PATH to its folder\n");
        return;
    }
    void *version = dlsym(library, "cublasLtGetVersion");
    size_t v = version ? ((size_t(*)(void))version)() : 0;
    if (version)
        dladdr(version, &where);
    t->add("cuBLASLt      %zu.%zu.%zu, %s\n", v / 10000, v / 100 % 100, v % 100,
           where.dli_fname ? where.dli_fname : "");
}

void ndp_cuda_describe(char *text, size_t room) {
    Text t = {text, room};
    int driver = 0, built = 0, gpus = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&built);
    cudaGetDeviceCount(&gpus);
    t.add("CUDA          %d.%d, driver for %d.%d\n", built / 1000, built % 1000 / 10, driver / 1000,
          driver % 1000 / 10);
    describe_products(&t);
    for (int i = 0; i < gpus; i++) {
        cudaDeviceProp p;
        if (cudaGetDeviceProperties(&p, i) == cudaSuccess)
            t.add("GPU %-9d %s, compute capability %d.%d, %.1f GiB, %d multiprocessors%s\n", i, p.name, p.major,
                  p.minor, (double)p.totalGlobalMem / (1 << 30), p.multiProcessorCount,
                  p.major < 8 ? "; too old, 8.0 is needed" : "");
    }
}

void ndp_cuda_full_name(int gpu, char text[NDP_DEVICE_NAME]) {
    cudaDeviceProp p;
    snprintf(text, NDP_DEVICE_NAME, "%s", cudaGetDeviceProperties(&p, gpu) == cudaSuccess ? p.name : "");
}
