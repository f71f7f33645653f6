/* Memory of a GPU whose driver refuses virtual memory management: it is taken by cudaMalloc, and given back so. Without
 * a reason to refuse, and where the GPU is full, nothing changes. The guard needs the driver's pages. */
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_driver.hpp"
#include "device/cuda/cuda_queue.hpp"
#include "device/sim/sim_memory.hpp"

#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include "check.h" /* the last: cmocka's fail() is a macro */
}

enum { BYTES = 5000 };

static ndp_device_context *opened(void) {
    static const ndp_device d = {};
    const ndp_device_opts opts = {};
    ndp_device_context *c;
    CHECK_OK(ndp_gpu_open(&d, &opts, &c));
    return c;
}

static void refuse(const std::string &list) { setenv("NDP_SIM_REFUSES", list.c_str(), 1); }
static void refuse_nothing(void) { unsetenv("NDP_SIM_REFUSES"); }

static size_t taken(void) {
    size_t free = 0, total = 0;
    assert_int_equal(cudaMemGetInfo(&free, &total), cudaSuccess);
    return total - free;
}

__global__ void count_kernel(unsigned char *piece, int n) {
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        piece[i] = (unsigned char)(piece[i] + i % 251);
}

/* All bytes of a new piece are zero, and kernels and copies use them. */
static void check_piece(ndp_device_context *c, unsigned char *piece) {
    ndp_queue *q;
    unsigned char seen[BYTES];
    CHECK_OK(ndp_gpu_queue_create(c, &q));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1), config.blockDim = dim3(64), config.stream = q->stream;
    assert_int_equal(cudaLaunchKernelEx(&config, count_kernel, piece, (int)BYTES), cudaSuccess);
    CHECK_OK(ndp_gpu_copy(q, seen, BYTES, piece, BYTES, BYTES, 1));
    CHECK_OK(ndp_gpu_drain(q));
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(seen[i], i % 251);
    ndp_gpu_queue_destroy(q);
}

/* A context's pieces, two at a time. `pages`: the driver maps them. Then nothing is left. */
static void check_context(bool pages) {
    ndp_device_context *c = opened();
    void *first, *second;
    CHECK_OK(ndp_gpu_memory_map(c, BYTES, NDP_MEMORY_DEVICE, &first));
    CHECK_OK(ndp_gpu_memory_map(c, BYTES, NDP_MEMORY_DEVICE, &second));
    assert_int_equal(ndp_sim_reserved() > 0, pages);
    assert_true(taken() >= 2 * BYTES);
    check_piece(c, (unsigned char *)first);
    check_piece(c, (unsigned char *)second);
    ndp_gpu_memory_unmap(c, first, BYTES, NDP_MEMORY_DEVICE);
    ndp_gpu_memory_unmap(c, second, BYTES, NDP_MEMORY_DEVICE);
    void *none;
    CHECK_OK(ndp_gpu_memory_map(c, 0, NDP_MEMORY_DEVICE, &none));
    ndp_gpu_memory_unmap(c, none, 0, NDP_MEMORY_DEVICE);
    assert_int_equal(ndp_sim_reserved(), 0);
    assert_int_equal(taken(), 0);
    ndp_gpu_close(c);
}

#define NAME(function) "cu" #function,
static const char *const functions[] = {NDP_GPU_DRIVER(NAME)};
/* Those that decide whether a piece can be had. */
static const char *const deciding[] = {"cuMemGetAllocationGranularity", "cuMemAddressReserve", "cuMemCreate",
                                       "cuMemMap", "cuMemSetAccess"};

static void what_the_driver_refuses_is_taken_by_malloc(void **) {
    check_context(true);
    for (const char *function : functions) {
        refuse(std::string(function) + "=absent");
        check_context(false);
    }
    for (const char *function : deciding)
        for (int code : {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_NOT_PERMITTED,
                         CUDA_ERROR_NOT_SUPPORTED}) {
            refuse(std::string(function) + "=" + std::to_string(code));
            check_context(false);
        }
    refuse("cuMemCreate,cuMemMap"); /* "not supported" */
    check_context(false);
    refuse("cuMem,cuMemCreateX"); /* other names */
    check_context(true);
    refuse_nothing();
    check_context(true);
}

/* A full GPU is not one without virtual memory management, and a smaller piece may fit. */
static void a_full_gpu_is_an_error_both_ways(void **) {
    const char *words = "cannot take 65.00 GiB (69793218560 bytes) of GPU 0: 64.00 of its 64.00 GiB are free (";
    for (bool pages : {true, false}) {
        refuse(pages ? "" : "cuMemAddressReserve");
        ndp_device_context *c = opened();
        void *data;
        CHECK_FAILS(ndp_gpu_memory_map(c, (size_t)65 << 30, NDP_MEMORY_DEVICE, &data), NDP_ENOMEM, words);
        assert_non_null(strstr(ndp_error_message(), pages ? "(cuMemCreate: out of memory)" : "(out of memory)"));
        CHECK_OK(ndp_gpu_memory_map(c, 8, NDP_MEMORY_DEVICE, &data));
        assert_int_equal(ndp_sim_reserved() > 0, pages);
        ndp_gpu_memory_unmap(c, data, 8, NDP_MEMORY_DEVICE);
        ndp_gpu_close(c);
    }
    refuse_nothing();
    for (const char *function : {"cuMemAddressReserve=2", "cuMemCreate=2", "cuMemMap=2", "cuMemSetAccess=2"}) {
        ndp_device_context *c = opened();
        void *data;
        refuse(function);
        CHECK_FAILS(ndp_gpu_memory_map(c, 8, NDP_MEMORY_DEVICE, &data), NDP_ENOMEM, "cannot take 0.00 GiB (8 bytes)");
        refuse_nothing();
        CHECK_OK(ndp_gpu_memory_map(c, 8, NDP_MEMORY_DEVICE, &data));
        assert_true(ndp_sim_reserved() > 0);
        ndp_gpu_memory_unmap(c, data, 8, NDP_MEMORY_DEVICE);
        ndp_gpu_close(c);
    }
    assert_int_equal(taken(), 0);
    assert_int_equal(ndp_sim_reserved(), 0);
}

/* The first piece decides for its context, so each is given back as it was taken. */
static void a_context_takes_all_its_memory_in_one_way(void **) {
    ndp_device_context *pages = opened(), *plain = opened();
    void *mapped, *taken_plain, *data;
    CHECK_OK(ndp_gpu_memory_map(pages, BYTES, NDP_MEMORY_DEVICE, &mapped));
    refuse("cuMemCreate");
    CHECK_OK(ndp_gpu_memory_map(plain, BYTES, NDP_MEMORY_DEVICE, &taken_plain));
    CHECK_FAILS(ndp_gpu_memory_map(pages, 8, NDP_MEMORY_DEVICE, &data), NDP_EIO,
                "cannot map memory of GPU 0: cuMemCreate: operation not supported");
    ndp_gpu_memory_unmap(pages, mapped, BYTES, NDP_MEMORY_DEVICE);
    assert_int_equal(ndp_sim_reserved(), 0);
    refuse_nothing();
    CHECK_OK(ndp_gpu_memory_map(plain, 8, NDP_MEMORY_DEVICE, &data));
    assert_int_equal(ndp_sim_reserved(), 0);
    ndp_gpu_memory_unmap(plain, data, 8, NDP_MEMORY_DEVICE);
    ndp_gpu_memory_unmap(plain, taken_plain, BYTES, NDP_MEMORY_DEVICE);
    assert_int_equal(taken(), 0);
    ndp_gpu_close(pages);
    ndp_gpu_close(plain);
}

static void both_refusals_are_in_the_error(void **) {
    ndp_device_context *c = opened();
    void *data;
    refuse("cuMemMap=800,cudaMalloc=719");
    CHECK_FAILS(ndp_gpu_memory_map(c, 8, NDP_MEMORY_DEVICE, &data), NDP_EIO,
                "cannot take memory of GPU 0: cudaMalloc: ");
    assert_non_null(strstr(ndp_error_message(), "(cuMemMap: operation not permitted)"));
    refuse("cuMemRelease=absent,cudaMalloc=719");
    CHECK_FAILS(ndp_gpu_memory_map(c, 8, NDP_MEMORY_DEVICE, &data), NDP_EIO,
                "(cuMemRelease: the driver has no such function)");
    refuse_nothing();
    ndp_gpu_close(c);
}

/* In a process of its own: NDP_GPU_GUARD is read once. */
static void a_guard_that_cannot_be_had_is_refused(void **) {
    setenv("NDP_GPU_GUARD", "1", 1);
    ndp_device_context *c = opened();
    void *data;
    refuse("cuMemAddressReserve=801");
    CHECK_FAILS(ndp_gpu_memory_map(c, 8, NDP_MEMORY_DEVICE, &data), NDP_ENOTSUP,
                "NDP_GPU_GUARD=1 needs a page that is not mapped after each piece of memory, and the driver of GPU 0 "
                "maps no pages (cuMemAddressReserve: operation not supported): run without NDP_GPU_GUARD");
    assert_int_equal(taken(), 0);
    ndp_gpu_close(c);
}

int main(void) {
    const struct CMUnitTest unguarded[] = {cmocka_unit_test(what_the_driver_refuses_is_taken_by_malloc),
                                           cmocka_unit_test(a_full_gpu_is_an_error_both_ways),
                                           cmocka_unit_test(a_context_takes_all_its_memory_in_one_way),
                                           cmocka_unit_test(both_refusals_are_in_the_error)};
    const struct CMUnitTest guarded[] = {cmocka_unit_test(a_guard_that_cannot_be_had_is_refused)};
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(cmocka_run_group_tests(guarded, NULL, NULL) != 0);
    int status = 0;
    waitpid(pid, &status, 0);
    int failures = cmocka_run_group_tests(unguarded, NULL, NULL);
    return failures + (WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}
