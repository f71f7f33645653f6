/* The table of a CUDA device, and the plugin's border: `cuda` is compiled by nvcc, `sim` by the host's compiler. */
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_guard.hpp"
#include "device/cuda/cuda_host.hpp"
#include "ops/cuda/cuda_kernels.hpp"
#include "ops/cuda/cuda_product.hpp"

#define KERNEL(op) &ndp_cuda_##op,
#define NONE(op) nullptr,
static const ndp_kernel *const kernels[NDP_OP_COUNT] = {NDP_OP_LIST(KERNEL, KERNEL, KERNEL, KERNEL, NONE, NONE, NONE)};

/* Defined by the runtime of each: cuda_start.cc, sim_start.cc. */
extern const char *const ndp_cuda_name;
ndp_status ndp_cuda_begin(void);
void ndp_cuda_describe(char *text, size_t room);
long ndp_cuda_allocations(void);

static const ndp_device device = {.name = ndp_cuda_name,
                                  .executes = true,
                                  .host_memory = false,
                                  .fp64 = false,
                                  .kernels = kernels,
                                  .variant = nullptr,
                                  .user = nullptr,
                                  .open = ndp_gpu_open,
                                  .close = ndp_gpu_close,
                                  .memory_map = ndp_gpu_memory_map,
                                  .memory_unmap = ndp_gpu_memory_unmap,
                                  .queue_create = ndp_gpu_queue_create,
                                  .urgent_queue_create = ndp_gpu_urgent_queue_create,
                                  .queue_destroy = ndp_gpu_queue_destroy,
                                  .copy = ndp_gpu_copy,
                                  .mark = ndp_gpu_mark,
                                  .after = ndp_gpu_after,
                                  .drain = ndp_gpu_drain,
                                  .passed = ndp_gpu_passed,
                                  .stamp_create = ndp_gpu_stamp_create,
                                  .stamp_destroy = ndp_gpu_stamp_destroy,
                                  .stamp = ndp_gpu_stamp,
                                  .between = ndp_gpu_between,
                                  .memory = ndp_gpu_memory,
                                  .full_name = ndp_gpu_full_name,
                                  .bus_id = ndp_gpu_bus_id,
                                  .sum = ndp_gpu_sum,
                                  .write_word = ndp_gpu_write_word_on,
                                  .stream = ndp_gpu_stream,
                                  .plain_products = ndp_cuda_plain_products};

static ndp_status start(const ndp_cuda_host *host) {
    ndp_cuda_host_set(host);
    return ndp_cuda_begin();
}

extern "C" __attribute__((visibility("default"))) const ndp_cuda_api ndp_cuda_api_table = {
    NDP_CUDA_API_VERSION, start,          &device, ndp_cuda_describe, ndp_cuda_allocations, ndp_gpu_opens,
    ndp_gpu_host_waits,   ndp_gpu_guarded};
