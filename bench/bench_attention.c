/* Attention alone: milliseconds (best of 15), GFLOP/s and the ratio to the rate of a loop of fp32 multiply-adds in the
 * same run.
 *
 * Counted are the pairs that see each other, 4 head_dim operations each forward and 10 backward; what blocks compute
 * beyond that is not counted. */
#include "base/cpu.h"
#include "base/rng.h"
#include "clock.h"
#include "ops/op.h"

#include <stdio.h>
#include <stdlib.h>

enum { RUNS = 15 };

static double best(const double seconds[RUNS]) {
    double least = seconds[0];
    for (int i = 1; i < RUNS; i++)
        least = seconds[i] < least ? seconds[i] : least;
    return least;
}

typedef struct shape {
    int rows, document, heads, kv_heads, dim; /* rows packed from documents of one length */
} shape;

static ndp_view make(int64_t rows, int64_t cols, ndp_dtype dtype) {
    ndp_view v = {aligned_alloc(64, ((size_t)(rows * cols) * ndp_dtype_size(dtype) + 63) / 64 * 64), dtype, rows, cols,
                  cols};
    if (!v.data)
        exit(1);
    for (int64_t i = 0; i < rows * cols; i++)
        ndp_view_set(&(ndp_view){v.data, dtype, 1, rows * cols, rows * cols}, 0, i,
                     dtype == NDP_I32 ? 0 : ndp_rng_uniform(1, (uint64_t)cols, (uint64_t)i) - 0.5);
    return v;
}

static double time_op(ndp_op_call *call) {
    double seconds[RUNS];
    const ndp_kernel *kernel = call->exec->device->kernels[call->op->id];
    size_t bytes = (kernel->scratch(call) + 63) / 64 * 64;
    call->scratch = aligned_alloc(64, bytes);
    for (int r = -2; r < RUNS; r++) {
        double start = bench_now(call->exec->threads);
        if (kernel->run(call) != NDP_OK)
            exit(1);
        if (r >= 0)
            seconds[r] = bench_now(call->exec->threads) - start;
    }
    free(call->scratch);
    return best(seconds);
}

static void report(const char *what, const shape *x, ndp_dtype dtype, double seconds, double products,
                   double peak_rate) {
    double pairs = (double)x->rows * (x->document + 1) / 2;
    double rate = products * 2 * pairs * x->heads * x->dim / seconds;
    printf("%-8s %-4s T %5d in documents of %5d, H %2d KV %2d D %3d: %8.3f ms %7.1f GFLOP/s  %5.3f of peak\n", what,
           ndp_dtype_name(dtype), x->rows, x->document, x->heads, x->kv_heads, x->dim, seconds * 1e3, rate * 1e-9,
           rate / peak_rate);
}

static void bench(const shape *x, ndp_dtype dtype, int threads, double peak_rate) {
    ndp_op_attr attr = {.heads = x->heads, .kv_heads = x->kv_heads, .head_dim = x->dim, .scale = 0.125};
    int64_t cols = (int64_t)x->heads * x->dim, kv_cols = (int64_t)x->kv_heads * x->dim;
    ndp_view q = make(x->rows, cols, dtype), k = make(x->rows, kv_cols, dtype), v = make(x->rows, kv_cols, dtype);
    ndp_view o = make(x->rows, cols, dtype), lse = make(x->rows, x->heads, NDP_F32), d_o = make(x->rows, cols, dtype);
    ndp_view dq = make(x->rows, cols, dtype), dk = make(x->rows, kv_cols, dtype), dv = make(x->rows, kv_cols, dtype);
    ndp_view pos = make(x->rows, 1, NDP_I32), low = make(x->rows, 1, NDP_I32);
    for (int t = 0; t < x->rows; t++) {
        ((int32_t *)pos.data)[t] = t;
        ((int32_t *)low.data)[t] = t / x->document * x->document;
    }
    ndp_exec exec = {.device = &ndp_device_cpu, .threads = threads};
    ndp_op_call forward = {.op = &ndp_op_attention, .attr = &attr, .exec = &exec, .in = {q, k, v, pos, low, pos}};
    ndp_op_call backward = {
        .op = &ndp_op_attention_bwd, .attr = &attr, .exec = &exec, .in = {d_o, q, k, v, o, lse, pos, low, pos}};
    forward.out[0] = o, forward.out[1] = lse;
    backward.out[0] = dq, backward.out[1] = dk, backward.out[2] = dv;
    report("forward", x, dtype, time_op(&forward), 2, peak_rate);
    report("backward", x, dtype, time_op(&backward), 5, peak_rate);
    ndp_view *all[] = {&q, &k, &v, &o, &lse, &d_o, &dq, &dk, &dv, &pos, &low};
    for (int i = 0; i < NDP_COUNT(all); i++)
        free(all[i]->data);
}

int main(int argc, char **argv) {
    static const shape shapes[] = {{1024, 1024, 9, 3, 64}, {1024, 256, 9, 3, 64}, {1024, 1024, 8, 8, 128},
                                   {256, 256, 6, 6, 48},   {512, 512, 8, 4, 8},   {4096, 4096, 9, 3, 64},
                                   {8192, 8192, 9, 3, 64}};
    int threads = argc > 1 ? atoi(argv[1]) : ndp_cpu_cores();
    bench_begin(argv);
    for (int i = 0; i < NDP_COUNT(shapes); i++) {
        double rate = bench_peak(false, threads);
        printf("%d threads, multiply-add loop %.1f GFLOP/s\n", threads, rate * 1e-9);
        bench(&shapes[i], NDP_F32, threads, rate);
        bench(&shapes[i], NDP_BF16, threads, rate);
    }
    return 0;
}
