/* The plugin's side of its border: errors go to the library that loaded it. */
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_host.hpp"
#include "device/cuda/cuda_queue.hpp"

#include <cstdarg>
#include <cstdio>

static const ndp_cuda_host *library;

void ndp_cuda_host_set(const ndp_cuda_host *host) { library = host; }

extern "C" ndp_status ndp_fail_at(const char *file, int line, ndp_status code, const char *fmt, ...) {
    char message[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    return library->fail(file, line, code, message);
}

extern "C" void ndp_trail_add(const char *file, int line) { library->trail(file, line); }

void ndp_gpu_full_name(ndp_device_context *c, char text[NDP_DEVICE_NAME]) { ndp_cuda_full_name(c->gpu, text); }
