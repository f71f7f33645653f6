/* Kernels with more shared memory than every kernel has: the limit of a kernel is one number for all ranks of a process
 * on a GPU, so no rank may lower what another one needs; and a GPU that has less refuses by name. */
#include "device/cuda/cuda_device.hpp"
#include "ops/cuda/cuda_kernel.cuh"

#include <cstdlib>
#include <functional>

extern "C" {
#include "check.h" /* the last: cmocka's fail() is a macro */
}

enum { SMALL = 60 << 10, LARGE = 100 << 10, MOST = 227 << 10 };

/* *out = the bytes that it wrote and read. */
__global__ void use_kernel(int bytes, int *out) {
    int sum = 0;
    for (int i = (int)threadIdx.x; i < bytes; i += (int)blockDim.x)
        ndp_shared_bytes[i] = 1;
    __syncthreads();
    for (int i = 0; threadIdx.x == 0 && i < bytes; i++)
        sum += ndp_shared_bytes[i];
    if (threadIdx.x == 0)
        *out = sum;
}
__global__ void other_kernel(int bytes, int *out) { *out = bytes; }

/* A rank of the process. */
struct Rank {
    ndp_device_context *context;
    ndp_op_call call;
    int *out;
};

static const ndp_op op = []() {
    ndp_op o = {};
    o.name = "a_test";
    return o;
}();

static Rank start(int local_rank, bool share) {
    static const ndp_device d = {};
    ndp_device_opts opts = {};
    opts.local_rank = local_rank, opts.node_ranks = 2, opts.share = share;
    Rank r = {};
    r.call.op = &op;
    CHECK_OK(ndp_gpu_open(&d, &opts, &r.context));
    CHECK_OK(ndp_gpu_queue_create(r.context, &r.call.queue));
    CHECK_OK(ndp_gpu_memory_map(r.context, sizeof(int), NDP_MEMORY_DEVICE, (void **)&r.out));
    return r;
}

static void end(Rank *r) {
    ndp_gpu_memory_unmap(r->context, r->out, sizeof(int), NDP_MEMORY_DEVICE);
    ndp_gpu_queue_destroy(r->call.queue);
    ndp_gpu_close(r->context);
}

/* The argument `bytes` of a kernel. Other work of the process runs where it is converted: after the rank has asked for
 * shared memory, and before its kernel is launched. */
struct Meanwhile {
    int bytes;
    std::function<void()> others;
    operator int() const {
        if (others)
            others();
        return bytes;
    }
};

template <typename K> static ndp_status use(const Rank &r, K *kernel, int bytes, std::function<void()> others = {}) {
    cudaSetDevice(r.context->gpu);
    auto launch_here = [&] {
        if (others)
            others();
        cudaSetDevice(r.context->gpu);
    };
    return ndp_launch(&r.call, kernel, dim3(1), dim3(32), (size_t)bytes, Meanwhile{bytes, launch_here}, r.out);
}

static int result(const Rank &r) {
    int found = 0;
    CHECK_OK(ndp_gpu_copy(r.call.queue, &found, 4, r.out, 4, 4, 1));
    CHECK_OK(ndp_gpu_drain(r.call.queue));
    return found;
}

/* Each rank's launch, while the other one is between its two calls. */
static void ranks_do_not_take_shared_memory_from_each_other(void **) {
    Rank a = start(0, true), b = start(1, true);
    CHECK_OK(use(a, use_kernel, LARGE, [&] { CHECK_OK(use(b, use_kernel, SMALL)); }));
    CHECK_OK(use(b, use_kernel, LARGE, [&] { CHECK_OK(use(a, use_kernel, SMALL)); }));
    CHECK_OK(use(a, use_kernel, SMALL, [&] { CHECK_OK(use(b, use_kernel, LARGE)); }));
    CHECK_OK(use(b, use_kernel, MOST, [&] { CHECK_OK(use(a, use_kernel, NDP_SHARED_FREE + 1)); }));
    assert_int_equal(result(a), NDP_SHARED_FREE + 1);
    assert_int_equal(result(b), MOST);
    end(&a);
    end(&b);
}

/* A rank that comes later finds the limit as it was; one of another GPU sets its own. */
static void each_kernel_has_a_limit_on_each_gpu(void **) {
    setenv("NDP_SIM_GPUS", "2", 1);
    Rank a = start(0, false), b = start(1, false);
    assert_int_equal(a.context->gpu, 0);
    assert_int_equal(b.context->gpu, 1);
    CHECK_OK(use(a, use_kernel, LARGE, [&] { CHECK_OK(use(b, use_kernel, SMALL)); }));
    CHECK_OK(use(b, use_kernel, LARGE, [&] { CHECK_OK(use(a, other_kernel, SMALL)); }));
    CHECK_OK(use(a, use_kernel, MOST));
    assert_int_equal(result(a), MOST);
    assert_int_equal(result(b), LARGE);
    end(&a);
    end(&b);
    unsetenv("NDP_SIM_GPUS");
}

/* On a GPU like those of compute capability 8.6. The context can still be used. */
static void what_a_gpu_does_not_have_is_refused_by_name(void **) {
    enum { HAS = 99 << 10 };
    setenv("NDP_SIM_SHARED", "101376", 1);
    Rank a = start(0, true);
    CHECK_FAILS(use(a, use_kernel, HAS + 1), NDP_ENOTSUP,
                "a_test: a block needs 101377 bytes of shared memory, and on GPU 0 it can have 101376");
    CHECK_OK(use(a, use_kernel, HAS));
    assert_int_equal(result(a), HAS);
    assert_int_equal(
        cudaFuncSetAttribute((const void *)use_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, HAS + 1),
        cudaErrorInvalidValue);
    end(&a);
    unsetenv("NDP_SIM_SHARED");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_do_not_take_shared_memory_from_each_other),
                                       cmocka_unit_test(each_kernel_has_a_limit_on_each_gpu),
                                       cmocka_unit_test(what_a_gpu_does_not_have_is_refused_by_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
