/* The guard of a GPU's memory: accesses just outside a piece fault, or are found when it is given back. */
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_guard.hpp"
#include "device/cuda/cuda_queue.hpp"

#include <csignal>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include "check.h" /* the last: cmocka's fail() is a macro */
}

enum { READ, WRITE };

/* One byte of the piece, or outside it. */
__global__ void touch_kernel(char *piece, long at, int how, char *seen) {
    if (how == WRITE)
        piece[at] = 1;
    else
        *seen = ((volatile const char *)piece)[at];
}

static bool under_asan(void) {
    const char *sanitizer = getenv("NDP_SANITIZE");
    return sanitizer && strstr(sanitizer, "address");
}

typedef struct opened {
    ndp_device_context *context;
    ndp_queue *queue;
} opened;

static opened open_sim(void) {
    static const ndp_device d = {};
    const ndp_device_opts opts = {};
    opened o;
    CHECK_OK(ndp_gpu_open(&d, &opts, &o.context));
    CHECK_OK(ndp_gpu_queue_create(o.context, &o.queue));
    return o;
}

static void close_sim(opened *o) {
    ndp_gpu_queue_destroy(o->queue);
    ndp_gpu_close(o->context);
}

/* A kernel touches byte `at` of a piece of `bytes`. The status after that was given back. */
static ndp_status touch(opened *o, size_t bytes, long at, int how) {
    void *piece, *seen;
    CHECK_OK(ndp_gpu_memory_map(o->context, bytes, NDP_MEMORY_DEVICE, &piece));
    CHECK_OK(ndp_gpu_memory_map(o->context, 1, NDP_MEMORY_DEVICE, &seen));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1), config.blockDim = dim3(1), config.stream = o->queue->stream;
    assert_int_equal(cudaLaunchKernelEx(&config, touch_kernel, (char *)piece, at, how, (char *)seen), cudaSuccess);
    CHECK_OK(ndp_gpu_drain(o->queue));
    ndp_gpu_memory_unmap(o->context, seen, 1, NDP_MEMORY_DEVICE);
    ndp_gpu_memory_unmap(o->context, piece, bytes, NDP_MEMORY_DEVICE);
    return ndp_gpu_drain(o->queue);
}

/* In a child, which a signal or AddressSanitizer ends. */
static bool faults(size_t bytes, long at, int how) {
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        ::signal(SIGSEGV, SIG_DFL); /* cmocka's would report a failure */
        freopen("/dev/null", "w", stderr);
        opened o = open_sim();
        (void)touch(&o, bytes, at, how);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) ||
           (under_asan() && WIFEXITED(status) && WEXITSTATUS(status) != 0);
}

static const size_t sizes[] = {16, 1600, 4096, 8192 + 16};

static void all_bytes_of_a_piece_can_be_used(void **) {
    opened o = open_sim();
    for (size_t bytes = 1; bytes < 50; bytes++)
        for (long at = 0; at < (long)bytes; at++)
            CHECK_OK(touch(&o, bytes, at, at % 2 ? READ : WRITE));
    for (size_t bytes : sizes) {
        CHECK_OK(touch(&o, bytes, 0, WRITE));
        CHECK_OK(touch(&o, bytes, (long)bytes - 1, WRITE));
    }
    close_sim(&o);
}

static void an_access_past_the_end_faults(void **) {
    enum { ROW = 80 };
    for (size_t bytes : sizes)
        for (int how : {READ, WRITE}) {
            assert_false(faults(bytes, (long)bytes - 1, how));
            assert_true(faults(bytes, (long)bytes, how));
            assert_true(faults(bytes, (long)bytes + ROW - 1, how));
            assert_true(faults(0, 0, how));
            assert_true(faults(bytes + 5, (long)bytes + 5 + ROW - 1, how));
        }
}

/* Where alignment leaves bytes over: the write itself goes through. AddressSanitizer stops it. */
static void a_write_beside_a_piece_is_found_afterwards(void **) {
    static const struct {
        size_t bytes;
        long at;
        const char *words;
    } cases[] = {{1001, 1001, "byte 1001 of the 1001 at "},
                 {1001, 1001, ", 1 after the last one, is 0x01 and was 0xa7"},
                 {1001, 1007, "byte 1007 of the 1001 at "},
                 {1600, -1, ", 1 before the first one, is 0x01"},
                 {4097, -4, "byte -4 of the 4097 at "}};
    for (const auto &c : cases) {
        if (under_asan()) {
            assert_true(faults(c.bytes, c.at, WRITE));
            continue;
        }
        opened o = open_sim();
        CHECK_FAILS(touch(&o, c.bytes, c.at, WRITE), NDP_EBUG, c.words);
        close_sim(&o);
    }
}

static void pieces_are_aligned_and_end_with_their_pages(void **) {
    for (size_t bytes : {(size_t)0, (size_t)1, (size_t)16, (size_t)17, (size_t)4095, (size_t)4096, (size_t)100000}) {
        ndp_gpu_place p = ndp_gpu_place_of(bytes, 4096);
        assert_true(p.pages > 0 && p.pages % 4096 == 0 && p.behind == 4096);
        assert_true(p.front % 16 == 0 && p.front + bytes <= p.pages && p.pages - p.front - bytes < 16);
        assert_true(p.front < 4096 || bytes == 0);
    }
}

int main(void) {
    setenv("NDP_GPU_GUARD", "1", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_bytes_of_a_piece_can_be_used),
                                       cmocka_unit_test(an_access_past_the_end_faults),
                                       cmocka_unit_test(a_write_beside_a_piece_is_found_afterwards),
                                       cmocka_unit_test(pieces_are_aligned_and_end_with_their_pages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
