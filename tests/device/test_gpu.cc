/* The device of CUDA on the simulated runtime: which GPU a rank takes, memory, marks, stamps, errors; and where
 * libraries are found. */
#include "device/cuda/cuda_choice.hpp"
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_library.hpp"
#include "device/cuda/cuda_queue.hpp"
#include "device/sim/sim_memory.hpp"
#include "device/sim/sim_runtime.hpp"

#include <cstdlib>
#include <dlfcn.h>
#include <link.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

extern "C" {
#include "check.h" /* the last: cmocka's fail() is a macro */
}

static ndp_device sim_device(void) {
    ndp_device d = {};
    d.name = "sim";
    return d;
}

static ndp_device_context *opened(void) {
    static const ndp_device d = sim_device();
    ndp_device_opts opts = {};
    ndp_device_context *c;
    CHECK_OK(ndp_gpu_open(&d, &opts, &c));
    return c;
}

/* ---- GPUs of ranks ---- */

static void ranks_take_different_gpus_near_their_cores(void **) {
    const int unknown[] = {-1, -1, -1, -1}, one[] = {0, 0, 0, 0}, two[] = {1, 1, 0, 0}, uneven[] = {0, 0, 0, 1};
    for (int r = 0; r < 4; r++) {
        assert_int_equal(ndp_gpu_of_rank(r, 4, unknown, 4), r);
        assert_int_equal(ndp_gpu_of_rank(r, 4, one, 4), r);
        assert_int_equal(ndp_gpu_of_rank(r, 4, two, 4), (r + 2) % 4);
        assert_int_equal(ndp_gpu_of_rank(r, 4, uneven, 4), r);
    }
    assert_int_equal(ndp_gpu_of_rank(0, 2, two, 4), 2);
    assert_int_equal(ndp_gpu_of_rank(1, 2, two, 4), 0);
    assert_int_equal(ndp_gpu_of_rank(0, 1, two, 4), 0);
    assert_int_equal(ndp_gpu_of_rank(2, 3, two, 4), 2); /* ranks that do not divide over the nodes */
    assert_int_equal(ndp_gpu_of_rank(6, 8, two, 4), 0); /* shared */
    assert_int_equal(ndp_gpu_of_rank(5, 8, one, 4), 1);
}

static void more_ranks_than_gpus_are_refused_unless_they_share(void **) {
    static const ndp_device d = sim_device();
    ndp_device_context *c;
    ndp_device_opts opts = {};
    opts.local_rank = 2, opts.node_ranks = 3;
    setenv("NDP_SIM_GPUS", "2", 1);
    CHECK_FAILS(ndp_gpu_open(&d, &opts, &c), NDP_EINVAL, "3 ranks on this machine need 3 GPUs, and it has 2:");
    opts.share = true;
    CHECK_OK(ndp_gpu_open(&d, &opts, &c));
    ndp_gpu_close(c);
    setenv("NDP_SIM_GPUS", "0", 1);
    CHECK_FAILS(ndp_gpu_open(&d, &opts, &c), NDP_ENOTSUP, "no GPU");
    unsetenv("NDP_SIM_GPUS"); /* one, as on most machines that have one at all */
    CHECK_OK(ndp_gpu_open(&d, &opts, &c));
    ndp_gpu_close(c);
    opts.share = false;
    CHECK_FAILS(ndp_gpu_open(&d, &opts, &c), NDP_EINVAL, "3 ranks on this machine need 3 GPUs, and it has 1:");
}

/* ---- memory ---- */

static void memory_is_zero_and_what_does_not_fit_is_refused_with_numbers(void **) {
    ndp_device_context *c = opened();
    ndp_queue *q;
    void *data, *pinned, *huge;
    CHECK_OK(ndp_gpu_queue_create(c, &q));
    CHECK_OK(ndp_gpu_memory_map(c, 1000, NDP_MEMORY_DEVICE, &data));
    CHECK_OK(ndp_gpu_memory_map(c, 1000, NDP_MEMORY_HOST, &pinned));
    memset(pinned, 1, 1000);
    CHECK_OK(ndp_gpu_copy(q, pinned, 1000, data, 1000, 1000, 1));
    CHECK_OK(ndp_gpu_drain(q));
    for (int i = 0; i < 1000; i++)
        assert_int_equal(((char *)pinned)[i], 0);
    CHECK_FAILS(ndp_gpu_memory_map(c, (size_t)65 << 30, NDP_MEMORY_DEVICE, &huge), NDP_ENOMEM,
                "cannot take 65.00 GiB (69793218560 bytes) of GPU 0: 64.00 of its 64.00 GiB are free");
    void *more; /* that was not an error of the context */
    CHECK_OK(ndp_gpu_memory_map(c, 0, NDP_MEMORY_DEVICE, &more));
    ndp_gpu_memory_unmap(c, more, 0, NDP_MEMORY_DEVICE);
    ndp_gpu_memory_unmap(c, data, 1000, NDP_MEMORY_DEVICE);
    ndp_gpu_memory_unmap(c, pinned, 1000, NDP_MEMORY_HOST);
    ndp_gpu_memory_unmap(c, nullptr, 0, NDP_MEMORY_DEVICE);
    ndp_gpu_queue_destroy(q);
    ndp_gpu_close(c);
}

/* ---- marks ---- */

/* `from` copies a number into the memory, `to` copies it on after the mark; more often than a queue has events. */
static void marks_order_queues_and_allocate_nothing(void **) {
    ndp_device_context *c = opened();
    ndp_queue *from, *to;
    void *data;
    int in, out;
    CHECK_OK(ndp_gpu_queue_create(c, &from));
    CHECK_OK(ndp_gpu_queue_create(c, &to));
    CHECK_OK(ndp_gpu_memory_map(c, 4, NDP_MEMORY_DEVICE, &data));
    long before = ndp_sim_allocations();
    for (int i = 1; i <= 3 * NDP_QUEUE_EVENTS; i++) {
        ndp_mark mark;
        in = i, out = 0;
        CHECK_OK(ndp_gpu_copy(from, data, 4, &in, 4, 4, 1));
        CHECK_OK(ndp_gpu_mark(from, &mark));
        CHECK_OK(ndp_gpu_after(to, &mark));
        CHECK_OK(ndp_gpu_copy(to, &out, 4, data, 4, 4, 1));
        CHECK_OK(ndp_gpu_drain(to));
        assert_int_equal(out, i);
    }
    assert_int_equal(ndp_sim_allocations(), before);
    ndp_gpu_memory_unmap(c, data, 4, NDP_MEMORY_DEVICE);
    ndp_gpu_queue_destroy(from);
    ndp_gpu_queue_destroy(to);
    ndp_gpu_queue_destroy(nullptr);
    ndp_gpu_close(c);
}

/* As NCCL's streams and those of kernels. */
static void an_urgent_queue_comes_first(void **) {
    ndp_device_context *c = opened();
    ndp_queue *plain, *urgent;
    int of_plain = 0, of_urgent = 0;
    CHECK_OK(ndp_gpu_queue_create(c, &plain));
    CHECK_OK(ndp_gpu_urgent_queue_create(c, &urgent));
    assert_int_equal(cudaStreamGetPriority((cudaStream_t)ndp_gpu_stream(plain), &of_plain), cudaSuccess);
    assert_int_equal(cudaStreamGetPriority((cudaStream_t)ndp_gpu_stream(urgent), &of_urgent), cudaSuccess);
    assert_true(of_urgent < of_plain);
    ndp_gpu_queue_destroy(plain);
    ndp_gpu_queue_destroy(urgent);
    ndp_gpu_close(c);
}

/* A mark that is used after its event was recorded again waits for more, and still for what it is for. */
static void an_old_mark_waits_for_more(void **) {
    ndp_device_context *c = opened();
    ndp_queue *from, *to;
    ndp_mark first, mark;
    int in = 5, out = 0;
    CHECK_OK(ndp_gpu_queue_create(c, &from));
    CHECK_OK(ndp_gpu_queue_create(c, &to));
    CHECK_OK(ndp_gpu_copy(from, &out, 4, &in, 4, 4, 1));
    CHECK_OK(ndp_gpu_mark(from, &first));
    for (int i = 0; i < NDP_QUEUE_EVENTS; i++)
        CHECK_OK(ndp_gpu_mark(from, &mark));
    CHECK_OK(ndp_gpu_after(to, &first));
    CHECK_OK(ndp_gpu_drain(to));
    assert_int_equal(out, 5);
    ndp_gpu_queue_destroy(from);
    ndp_gpu_queue_destroy(to);
    ndp_gpu_close(c);
}

/* ---- stamps ---- */

static void pause(ndp_queue *q, int ms) {
    ndp_sim_submit(q->stream, [ms] { usleep((useconds_t)ms * 1000); });
}

/* They have the times at which the queue reaches them, not those at which the host submits them. */
static void stamps_time_what_is_between_them(void **) {
    ndp_device_context *c = opened();
    ndp_queue *q;
    ndp_stamp s[3];
    double first, second;
    CHECK_OK(ndp_gpu_queue_create(c, &q));
    for (ndp_stamp &one : s)
        CHECK_OK(ndp_gpu_stamp_create(c, &one));
    long before = ndp_sim_allocations(), waits = ndp_gpu_host_waits();
    for (int again = 0; again < 2; again++) {
        pause(q, 200);
        for (ndp_stamp &one : s) {
            CHECK_OK(ndp_gpu_stamp(q, &one));
            pause(q, &one == s ? 5 : 40);
        }
        usleep(60000); /* of the host */
        CHECK_OK(ndp_gpu_drain(q));
        CHECK_OK(ndp_gpu_between(c, &s[0], &s[1], &first));
        CHECK_OK(ndp_gpu_between(c, &s[1], &s[2], &second));
        assert_true(first >= 0.005 && second >= 0.040);
    }
    assert_int_equal(ndp_gpu_host_waits() - waits, 2);
    assert_int_equal(ndp_sim_allocations(), before);
    for (ndp_stamp &one : s)
        ndp_gpu_stamp_destroy(&one);
    ndp_gpu_queue_destroy(q);
    ndp_gpu_close(c);
}

static void stamps_that_were_not_reached_have_no_time(void **) {
    ndp_device_context *c = opened();
    ndp_queue *q;
    ndp_stamp s[2];
    double seconds;
    CHECK_OK(ndp_gpu_queue_create(c, &q));
    for (ndp_stamp &one : s) {
        CHECK_OK(ndp_gpu_stamp_create(c, &one));
        CHECK_OK(ndp_gpu_stamp(q, &one));
    }
    CHECK_FAILS(ndp_gpu_between(c, &s[0], &s[1], &seconds), NDP_EIO,
                "reading a stamp on GPU 0: an event that was not reached");
    for (ndp_stamp &one : s)
        ndp_gpu_stamp_destroy(&one);
    ndp_gpu_queue_destroy(q);
    ndp_gpu_close(c);
}

/* ---- errors ---- */

__global__ void half_a_barrier_kernel(int) {
    if (threadIdx.x < 16)
        __syncthreads();
}

/* The first error has the message; what follows has its status and no other message. */
static void errors_stay_and_are_reported_once(void **) {
    ndp_device_context *c = opened();
    ndp_queue *q;
    ndp_mark mark;
    void *data;
    char bytes[8];
    CHECK_OK(ndp_gpu_queue_create(c, &q));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1), config.blockDim = dim3(32), config.stream = q->stream;
    assert_int_equal(cudaLaunchKernelEx(&config, half_a_barrier_kernel, 0), cudaSuccess);
    CHECK_FAILS(ndp_gpu_drain(q), NDP_EIO,
                "GPU 0: half_a_barrier_kernel(int), block (0,0,0): thread 0 waits in __syncthreads");
    assert_int_equal(NDP_FAIL(NDP_EINVAL, "another message"), NDP_EINVAL);
    CHECK_FAILS(ndp_gpu_drain(q), NDP_EIO, "another message");
    CHECK_FAILS(ndp_gpu_copy(q, bytes, 4, bytes + 4, 4, 4, 1), NDP_EIO, "another message");
    CHECK_FAILS(ndp_gpu_mark(q, &mark), NDP_EIO, "another message");
    CHECK_FAILS(ndp_gpu_memory_map(c, 8, NDP_MEMORY_DEVICE, &data), NDP_EIO, "another message");
    ndp_gpu_queue_destroy(q);
    ndp_gpu_close(c);
    assert_int_equal(cudaDeviceReset(), cudaSuccess);
    ndp_gpu_close(opened());
}

/* ---- libraries ---- */

/* Any library will do as one of NVIDIA's: the one of cmocka, under another name. */
static void link_library(const std::string &folder, const char *name) {
    Dl_info i;
    assert_true(dladdr((void *)(uintptr_t)_cmocka_run_group_tests, &i) != 0);
    mkdir(folder.c_str(), 0755);
    unlink((folder + "/" + name).c_str());
    assert_int_equal(symlink(i.dli_fname, (folder + "/" + name).c_str()), 0);
}

static std::string name_of(void *handle) {
    struct link_map *map;
    assert_int_equal(dlinfo(handle, RTLD_DI_LINKMAP, &map), 0);
    return map->l_name;
}

static void write_file(const std::string &path, const std::string &text, int mode) {
    FILE *f = fopen(path.c_str(), "w");
    assert_non_null(f);
    fputs(text.c_str(), f);
    fclose(f);
    chmod(path.c_str(), (mode_t)mode);
}

static void libraries_are_found_in_named_folders_and_python_packages(void **) {
    char folder[] = "/tmp/ndp_test_gpu_XXXXXX";
    assert_non_null(mkdtemp(folder));
    std::string root = folder, path = getenv("PATH");
    void *handle;
    CHECK_FAILS(ndp_cuda_library("libndpnone.so", 13, 12, "nvidia-none", &handle), NDP_ENOTSUP,
                "no libndpnone.so, versions 12 to 13: looked in $NDP_CUDA_PATH");
    assert_non_null(strstr(ndp_error_message(), "`python3 -m pip install nvidia-none`"));

    link_library(root + "/lib64", "libndpone.so.12");
    setenv("NDP_CUDA_PATH", ("/nowhere:" + root).c_str(), 1);
    CHECK_OK(ndp_cuda_library("libndpone.so", 13, 12, "nvidia-one", &handle));
    assert_non_null(handle);
    /* One that is above the driver's version is not tried, nor is one that is too old. */
    link_library(root + "/lib64", "libndptwo.so.14");
    link_library(root + "/lib64", "libndptwo.so.11");
    CHECK_FAILS(ndp_cuda_library("libndptwo.so", 14, 12, "nvidia-two", &handle), NDP_ENOTSUP, "versions 12 to 13");
    /* A file that cannot be loaded is named. */
    write_file(root + "/lib64/libndpbad.so.13", "no library", 0644);
    CHECK_FAILS(ndp_cuda_library("libndpbad.so", 13, 12, "nvidia-bad", &handle), NDP_ENOTSUP, "libndpbad.so.13: ");
    unsetenv("NDP_CUDA_PATH");

    mkdir((root + "/site").c_str(), 0755), mkdir((root + "/site/nvidia").c_str(), 0755);
    mkdir((root + "/site/nvidia/cu13").c_str(), 0755), mkdir((root + "/bin").c_str(), 0755);
    link_library(root + "/site/nvidia/cu13/lib", "libndpthree.so.13");
    write_file(root + "/bin/python3",
               "#!/bin/sh\n[ \"$1\" = -I ] || exit 1\necho\necho /nowhere\necho " + root + "/site\n", 0755);
    CHECK_FAILS(ndp_cuda_library("libndpthree.so", 13, 12, "nvidia-three", &handle), NDP_ENOTSUP, "no libndpthree.so");
    setenv("PATH", (root + "/bin:" + path).c_str(), 1);
    CHECK_OK(ndp_cuda_library("libndpthree.so", 13, 12, "nvidia-three", &handle));
    assert_false(name_of(handle).empty());
    setenv("PATH", path.c_str(), 1);
    assert_int_equal(system(("rm -r " + root).c_str()), 0);
}

/* The search asks python3 for its folders: what others put in its way must not run. */
static void python_runs_nothing_of_others(void **) {
    char folder[] = "/tmp/ndp_test_gpu_XXXXXX", before[4096];
    assert_non_null(mkdtemp(folder));
    assert_non_null(getcwd(before, sizeof before));
    std::string root = folder, ran = root + "/ran", code = "open('" + ran + "', 'w')\n";
    void *handle;
    for (const char *name : {"/sitecustomize.py", "/usercustomize.py", "/site.py"})
        write_file(root + name, code, 0644);
    setenv("PYTHONPATH", root.c_str(), 1);
    assert_int_equal(chdir(folder), 0);
    CHECK_FAILS(ndp_cuda_library("libndpnone.so", 13, 12, "nvidia-none", &handle), NDP_ENOTSUP, "no libndpnone.so");
    assert_int_equal(chdir(before), 0);
    unsetenv("PYTHONPATH");
    assert_int_not_equal(access(ran.c_str(), F_OK), 0);
    assert_int_equal(system(("rm -r " + root).c_str()), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_take_different_gpus_near_their_cores),
                                       cmocka_unit_test(more_ranks_than_gpus_are_refused_unless_they_share),
                                       cmocka_unit_test(memory_is_zero_and_what_does_not_fit_is_refused_with_numbers),
                                       cmocka_unit_test(marks_order_queues_and_allocate_nothing),
                                       cmocka_unit_test(an_urgent_queue_comes_first),
                                       cmocka_unit_test(an_old_mark_waits_for_more),
                                       cmocka_unit_test(stamps_time_what_is_between_them),
                                       cmocka_unit_test(stamps_that_were_not_reached_have_no_time),
                                       cmocka_unit_test(errors_stay_and_are_reported_once),
                                       cmocka_unit_test(libraries_are_found_in_named_folders_and_python_packages),
                                       cmocka_unit_test(python_runs_nothing_of_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
