/* The simulated CUDA: a right kernel gives the right sums in any order, and each seeded bug of a kernel shows. */
#include <thread> /* before cmocka's macros */

extern "C" {
#include "check.h"
}
#include "device/sim/sim_memory.hpp"
#include "device/sim/sim_runtime.hpp"

#include <cstdlib>
#include <cuda_runtime.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern __shared__ __align__(128) unsigned char ndp_shared_bytes[];

/* What is wrong with the reduction. */
enum Bug { NONE, NO_FIRST_BARRIER, NARROW_SHUFFLE, ABSENT_LANE, SKIPPED_BARRIER, PAST_THE_END };

/* out[block] = the sum of its `n` values, by a block of whole warps. */
__global__ void sum_kernel(const float *x, int n, float *out, int bug) {
    float *room = (float *)ndp_shared_bytes, sum = 0.0f;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    x += (size_t)blockIdx.x * n;
    for (int i = threadIdx.x; i < n + (bug == PAST_THE_END); i += blockDim.x)
        sum += x[i];
    if (bug == ABSENT_LANE && threadIdx.x == 37)
        return;
    for (int with = 16; with > 0; with /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, with, bug == NARROW_SHUFFLE ? 16 : 32);
    if (lane == 0)
        room[warp] = sum;
    if (bug == SKIPPED_BARRIER && warp == 1)
        return;
    if (bug != NO_FIRST_BARRIER)
        __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0.0f;
        for (int w = 0; w < warps; w++)
            sum += room[w];
        out[blockIdx.x] = sum;
    }
}

/* Only the lower half of the warp exchanges twice, then all do. Right, if unusual. */
__global__ void halves_kernel(float *out) {
    float x = (float)threadIdx.x;
    if (threadIdx.x < 16) {
        x = __shfl_xor_sync(0x0000ffffu, x, 1);
        x = __shfl_xor_sync(0x0000ffffu, x, 2);
        x = __shfl_xor_sync(0x0000ffffu, x, 4);
    }
    out[threadIdx.x] = __shfl_sync(0xffffffffu, x, 31 - (int)threadIdx.x);
}

/* Lanes 0 .. 15 read one that takes no part. */
__global__ void outside_kernel(float *out) {
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0f, 20);
}

__global__ void ballot_kernel(unsigned *out) {
    unsigned odd = __ballot_sync(0xffffffffu, threadIdx.x & 1);
    bool all = __all_sync(0xffffffffu, true), any = __any_sync(0xffffffffu, false);
    out[threadIdx.x] = odd + all + any;
}

/* Each thread of a warp reads what its neighbour wrote; between them a __syncwarp is missing. */
__global__ void neighbour_kernel(float *out) {
    float *room = (float *)ndp_shared_bytes;
    room[threadIdx.x] = (float)threadIdx.x;
    out[threadIdx.x] = room[threadIdx.x > 0 ? threadIdx.x - 1 : 0];
}

/* ---- running them ---- */

enum { ROWS = 3, N = 200, THREADS = 96, WARPS = 3 };

#define OK(expr) assert_int_equal((expr), cudaSuccess)

static cudaStream_t stream_create(void) {
    cudaStream_t s;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

template <typename... P, typename... A>
static cudaError_t launch(cudaStream_t s, void (*kernel)(P...), unsigned blocks, unsigned threads, size_t shared,
                          A... args) {
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3(blocks), c.blockDim = dim3(threads), c.dynamicSmemBytes = shared, c.stream = s;
    return cudaLaunchKernelEx(&c, kernel, P(args)...);
}

static std::vector<float> values(void) {
    std::vector<float> x(ROWS * N);
    for (size_t i = 0; i < x.size(); i++)
        x[i] = (float)(i * 7 % 31) + 1.0f / (float)(i + 3);
    return x;
}

/* The sums of the rows, or the runtime's error. */
static cudaError_t sums(int bug, const char *order, std::vector<float> *out) {
    setenv("NDP_SIM_ORDER", order, 1);
    std::vector<float> x = values();
    cudaStream_t s = stream_create();
    void *in, *sum;
    OK(cudaMalloc(&in, x.size() * 4));
    OK(cudaMalloc(&sum, ROWS * 4));
    out->assign(ROWS, -1.0f);
    OK(cudaMemcpyAsync(in, x.data(), x.size() * 4, cudaMemcpyDefault, s));
    OK(launch(s, sum_kernel, ROWS, THREADS, WARPS * 4, (const float *)in, (int)N, (float *)sum, bug));
    OK(cudaMemcpyAsync(out->data(), sum, ROWS * 4, cudaMemcpyDefault, s));
    cudaError_t e = cudaStreamSynchronize(s);
    OK(cudaStreamDestroy(s));
    OK(cudaFree(in));
    OK(cudaFree(sum));
    unsetenv("NDP_SIM_ORDER");
    return e;
}

static bool same(const std::vector<float> &a, const std::vector<float> &b) {
    return memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

static void a_right_kernel_has_the_right_sums(void **) {
    std::vector<float> up, down, x = values();
    OK(sums(NONE, "up", &up));
    OK(sums(NONE, "down", &down));
    assert_true(same(up, down));
    for (int r = 0; r < ROWS; r++) {
        double sum = 0;
        for (int i = 0; i < N; i++)
            sum += x[(size_t)(r * N + i)];
        assert_true(fabs(up[(size_t)r] - sum) < 1e-3 * sum);
    }
}

/* Between barriers warps run one after the other: one order has the right sums, the other one reads poison. */
static void a_missing_barrier_changes_bits(void **) {
    std::vector<float> right, up, down;
    OK(sums(NONE, "up", &right));
    OK(sums(NO_FIRST_BARRIER, "up", &up));
    OK(sums(NO_FIRST_BARRIER, "down", &down));
    assert_false(same(up, down));
    assert_true(same(down, right));
    for (float s : up)
        assert_true(std::isnan(s));
}

static void a_missing_barrier_of_a_warp_changes_bits(void **) {
    float got[2][32];
    void *out;
    cudaStream_t s = stream_create();
    OK(cudaMalloc(&out, sizeof got[0]));
    for (int down = 0; down < 2; down++) {
        setenv("NDP_SIM_ORDER", down ? "down" : "up", 1);
        OK(launch(s, neighbour_kernel, 1, 32, 128, (float *)out));
        OK(cudaMemcpyAsync(got[down], out, sizeof got[0], cudaMemcpyDefault, s));
        OK(cudaStreamSynchronize(s));
    }
    unsetenv("NDP_SIM_ORDER");
    assert_memory_not_equal(got[0], got[1], sizeof got[0]);
    OK(cudaStreamDestroy(s));
    OK(cudaFree(out));
}

static void a_wrong_width_gives_other_sums(void **) {
    std::vector<float> right, wrong;
    OK(sums(NONE, "up", &right));
    OK(sums(NARROW_SHUFFLE, "up", &wrong));
    for (size_t r = 0; r < ROWS; r++)
        assert_true(right[r] != wrong[r]);
}

/* The error's text has each of these words. It stays until the device is reset, and nothing runs before. */
static void fails_with(int bug, std::vector<const char *> words) {
    std::vector<float> out;
    for (const char *order : {"up", "down"}) {
        assert_int_equal(sums(bug, order, &out), cudaErrorLaunchFailure);
        std::string text = cudaGetErrorString(cudaErrorLaunchFailure);
        for (const char *word : words)
            if (text.find(word) == std::string::npos)
                fail_msg("'%s' lacks '%s'", text.c_str(), word);
        assert_int_equal(out[0], -1);
        cudaGetLastError();
        cudaStream_t s;
        assert_int_equal(cudaStreamCreateWithFlags(&s, 0), cudaErrorLaunchFailure);
        OK(cudaDeviceReset());
        OK(cudaStreamDestroy(s));
        OK(sums(NONE, order, &out));
    }
}

static void an_absent_lane_is_named(void **) {
    fails_with(ABSENT_LANE, {"sum_kernel(float const*, int, float*, int)", "block (",
                             ",0,0): thread 32 waits in __shfl_xor_sync for thread 37, which has left"});
}

static void a_barrier_that_a_warp_skips_is_named(void **) {
    fails_with(SKIPPED_BARRIER,
               {"sum_kernel", "block (", ",0,0): thread 0 waits in __syncthreads for thread 32, which has left"});
}

static void lanes_of_a_mask_exchange_alone(void **) {
    float got[32];
    void *out;
    cudaStream_t s = stream_create();
    OK(cudaMalloc(&out, sizeof got));
    for (const char *order : {"up", "down"}) {
        setenv("NDP_SIM_ORDER", order, 1);
        OK(launch(s, halves_kernel, 1, 32, 0, (float *)out));
        OK(cudaMemcpyAsync(got, out, sizeof got, cudaMemcpyDefault, s));
        OK(cudaStreamSynchronize(s));
        for (int i = 0; i < 32; i++)
            assert_int_equal((int)got[i], 31 - i < 16 ? (31 - i) ^ 7 : 31 - i);
    }
    unsetenv("NDP_SIM_ORDER");
    OK(launch(s, outside_kernel, 1, 32, 0, (float *)out));
    OK(cudaMemcpyAsync(got, out, sizeof got, cudaMemcpyDefault, s));
    OK(cudaStreamSynchronize(s));
    assert_true(std::isnan(got[0]));
    unsigned bits[32];
    OK(launch(s, ballot_kernel, 1, 32, 0, (unsigned *)out));
    OK(cudaMemcpyAsync(bits, out, sizeof bits, cudaMemcpyDefault, s));
    OK(cudaStreamSynchronize(s));
    assert_int_equal(bits[5], 0xaaaaaaaau + 1);
    OK(cudaStreamDestroy(s));
    OK(cudaFree(out));
}

/* ---- memory and streams ---- */

/* Runs f in a child; what it wrote to stderr. *signal: what killed it, or 0; *code: its exit code. */
static std::string child(void (*f)(void), int *signal, int *code) {
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 2);
        ::signal(SIGSEGV, SIG_DFL); /* cmocka's would report a failure */
        f();
        _exit(0);
    }
    close(ends[1]);
    std::string out;
    char part[4096];
    for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;)
        out.append(part, (size_t)n);
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    *signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return out;
}

static bool under_asan(void) {
    const char *sanitizer = getenv("NDP_SANITIZE");
    return sanitizer && strstr(sanitizer, "address");
}

static void read_past_the_end(void) {
    std::vector<float> out;
    (void)sums(PAST_THE_END, "up", &out);
}

static void a_read_past_the_end_is_found_by_asan(void **) {
    if (!under_asan()) {
        print_message("only in the build with AddressSanitizer\n");
        skip();
    }
    int signal, code;
    std::string text = child(read_past_the_end, &signal, &code);
    assert_true(code != 0);
    assert_non_null(strstr(text.c_str(), "AddressSanitizer: use-after-poison"));
    assert_non_null(strstr(text.c_str(), "sum_kernel"));
}

static void follow_a_device_address(void) {
    void *data;
    OK(cudaMalloc(&data, 64));
    cudaStream_t s = stream_create();
    OK(cudaMemsetAsync(data, 1, 64, s));
    OK(cudaStreamSynchronize(s));
    *(volatile int *)data = 1;
}

static void the_host_cannot_follow_device_addresses(void **) {
    int signal, code;
    std::string text = child(follow_a_device_address, &signal, &code);
    assert_true(signal == SIGSEGV || strstr(text.c_str(), "SEGV"));
}

static void a_copy_that_is_not_waited_for_has_not_happened(void **) {
    int from = 7, to = 0;
    void *data;
    cudaStream_t s = stream_create();
    OK(cudaMalloc(&data, 4));
    OK(cudaMemcpyAsync(data, &from, 4, cudaMemcpyDefault, s));
    OK(cudaMemcpyAsync(&to, data, 4, cudaMemcpyDefault, s));
    assert_int_equal(to, 0);
    OK(cudaStreamSynchronize(s));
    assert_int_equal(to, 7);
    OK(cudaStreamDestroy(s));
    OK(cudaFree(data));
}

/* One stream makes what another one copies. */
static int made_and_copied(bool wait) {
    int to = -1;
    void *data;
    cudaStream_t maker = stream_create(), copier = stream_create();
    cudaEvent_t made;
    OK(cudaMalloc(&data, 4));
    OK(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
    OK(cudaMemsetAsync(data, 1, 4, maker));
    OK(cudaEventRecord(made, maker));
    if (wait)
        OK(cudaStreamWaitEvent(copier, made, 0));
    OK(cudaMemcpyAsync(&to, data, 4, cudaMemcpyDefault, copier));
    OK(cudaStreamSynchronize(copier));
    OK(cudaEventDestroy(made));
    OK(cudaStreamDestroy(maker));
    OK(cudaStreamDestroy(copier));
    OK(cudaFree(data));
    return to;
}

static void a_missing_wait_between_streams_shows(void **) {
    assert_int_equal(made_and_copied(true), 0x01010101);
    assert_int_not_equal(made_and_copied(false), 0x01010101);
}

static int as_told(void *user) { return *(int *)user; }

/* What a query says of an operation that is not ready, of a stream that waits for it, and of one that does not. */
static void a_query_executes_and_does_not_wait(void **) {
    cudaStream_t s[3];
    cudaEvent_t e[3];
    int ready = 0;
    for (int i = 0; i < 3; i++) {
        s[i] = stream_create();
        OK(cudaEventCreateWithFlags(&e[i], cudaEventDisableTiming));
        OK(cudaEventQuery(e[i])); /* never recorded */
    }
    OK((cudaError_t)ndp_sim_submit_when(s[0], as_told, &ready));
    OK(cudaEventRecord(e[0], s[0]));
    OK(cudaStreamWaitEvent(s[1], e[0], 0));
    for (int i = 1; i < 3; i++)
        OK(cudaEventRecord(e[i], s[i]));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++)
            assert_int_equal(cudaEventQuery(e[i]), round || i == 2 ? cudaSuccess : cudaErrorNotReady);
        ready = 1;
    }
    ready = 0;
    OK((cudaError_t)ndp_sim_submit_when(s[0], as_told, &ready));
    for (int i = 0; i < 3; i++) {
        OK(cudaStreamDestroy(s[i])); /* does not wait either */
        OK(cudaEventDestroy(e[i]));
    }
}

/* Another thread, which waits for the stream, executes the operation that fails. */
static void a_failure_is_that_of_the_streams_thread(void **) {
    cudaStream_t s = stream_create();
    cudaEvent_t e;
    int fails = -1;
    OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    OK((cudaError_t)ndp_sim_submit_when(s, as_told, &fails));
    OK(cudaEventRecord(e, s));
    std::thread([&] { OK(cudaEventSynchronize(e)); }).join();
    assert_int_equal(cudaEventQuery(e), cudaErrorLaunchFailure);
    assert_string_equal(cudaGetErrorString(cudaErrorLaunchFailure), "an operation of a library failed");
    OK(cudaDeviceReset());
    OK(cudaStreamDestroy(s));
    OK(cudaEventDestroy(e));
}

static void launches_that_a_gpu_refuses_are_refused(void **) {
    cudaStream_t s = stream_create();
    assert_int_equal(launch(s, ballot_kernel, 1, 1025, 0, nullptr), cudaErrorInvalidValue);
    assert_int_equal(launch(s, ballot_kernel, 1, 32, 49 << 10, nullptr), cudaErrorInvalidValue);
    assert_non_null(
        strstr(cudaGetErrorString(cudaErrorInvalidValue), "50176 bytes of shared memory; 49152 are allowed"));
    OK(cudaFuncSetAttribute(neighbour_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
    void *out;
    OK(cudaMalloc(&out, 128));
    OK(launch(s, neighbour_kernel, 1, 32, 49 << 10, (float *)out));
    assert_int_equal(launch(s, neighbour_kernel, 1, 32, 65 << 10, (float *)out), cudaErrorInvalidValue);
    assert_int_equal(cudaFuncSetAttribute(neighbour_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10),
                     cudaErrorInvalidValue);
    OK(cudaStreamSynchronize(s));
    OK(cudaStreamDestroy(s));
    OK(cudaFree(out));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_right_kernel_has_the_right_sums),
                                       cmocka_unit_test(a_missing_barrier_changes_bits),
                                       cmocka_unit_test(a_missing_barrier_of_a_warp_changes_bits),
                                       cmocka_unit_test(a_wrong_width_gives_other_sums),
                                       cmocka_unit_test(an_absent_lane_is_named),
                                       cmocka_unit_test(a_barrier_that_a_warp_skips_is_named),
                                       cmocka_unit_test(lanes_of_a_mask_exchange_alone),
                                       cmocka_unit_test(a_read_past_the_end_is_found_by_asan),
                                       cmocka_unit_test(the_host_cannot_follow_device_addresses),
                                       cmocka_unit_test(a_copy_that_is_not_waited_for_has_not_happened),
                                       cmocka_unit_test(a_missing_wait_between_streams_shows),
                                       cmocka_unit_test(a_query_executes_and_does_not_wait),
                                       cmocka_unit_test(a_failure_is_that_of_the_streams_thread),
                                       cmocka_unit_test(launches_that_a_gpu_refuses_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
