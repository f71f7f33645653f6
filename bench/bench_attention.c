/* Attention and the delta rule alone: milliseconds (best of 15), GFLOP/s, and the ratio to the rate in the same run of
 * a loop of fp32 multiply-adds, of the delta rule that to the best of two square products of the same type. Usage:
 * bench_attention [threads] [attention|delta_rule]
 *
 * Of attention the pairs that see each other are counted, 4 head_dim operations each forward and 10 backward; what
 * blocks compute beyond that is not. Of the delta rule what its op says that it costs (ops/delta_rule.c). */
#include "base/cpu.h"
#include "base/rng.h"
#include "clock.h"
#include "ops/cpu/cpu_gemm.h"
#include "ops/op.h"
#include "result.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

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
    const size_t page = 2 << 20, bytes = (size_t)(rows * cols) * ndp_dtype_size(dtype);
    ndp_view v = {aligned_alloc(page, (bytes + page - 1) / page * page), dtype, rows, cols, cols};
    madvise(v.data, bytes, MADV_HUGEPAGE); /* as the program's memory */
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

/* ---- the delta rule ---- */

/* Flop/s of the best of two square products. */
static double product_rate(ndp_dtype t, int threads) {
    double best_rate = 0;
    for (int64_t n = 1024; n <= 2048; n *= 2) {
        ndp_view a = make(n, n, t), b = make(n, n, t), c = make(n, n, NDP_F32);
        ndp_exec exec = {.device = &ndp_device_cpu, .threads = threads};
        ndp_gemm_shape s = ndp_gemm_shape_of(&a, false, &b, false, &c, false, &exec);
        const ndp_gemm *plan;
        if (ndp_gemm_plan(&s, &plan) != NDP_OK)
            exit(1);
        void *scratch = aligned_alloc(64, (ndp_gemm_scratch(plan) + 63) / 64 * 64);
        for (int r = 0; r < 4; r++) {
            double start = bench_now(threads);
            ndp_gemm_run(plan, a.data, b.data, c.data, scratch);
            double rate = 2.0 * (double)n * (double)n * (double)n / (bench_now(threads) - start);
            best_rate = rate > best_rate ? rate : best_rate;
        }
        free(a.data), free(b.data), free(c.data), free(scratch);
    }
    return best_rate;
}

static void report_delta(const char *what, const ndp_op_call *call, ndp_dtype dtype, double seconds, double products) {
    double flops, bytes;
    char name[96];
    ndp_op_cost(call, &flops, &bytes);
    printf("delta_rule %-8s %-4s T %5lld, H %2d of %2d D %3d: %8.3f ms %7.1f GFLOP/s  %5.3f of products\n", what,
           ndp_dtype_name(dtype), (long long)call->out[0].rows, call->attr->heads, call->attr->kv_heads,
           call->attr->head_dim, seconds * 1e3, flops / seconds * 1e-9, flops / seconds / products);
    snprintf(name, sizeof name, "delta_rule %s, %s, %lld rows, %d heads of %d, %d threads", what, ndp_dtype_name(dtype),
             (long long)call->out[0].rows, call->attr->heads, call->attr->kv_heads, call->exec->threads);
    bench_result(name, seconds * 1e3, "ms", products * seconds / flops);
}

/* Documents of one length, as attention's. */
static void bench_delta(const shape *x, ndp_dtype dtype, int threads, double products) {
    ndp_op_attr attr = {.heads = x->heads, .kv_heads = x->kv_heads, .head_dim = x->dim};
    int64_t cols = (int64_t)x->heads * x->dim, kv_cols = (int64_t)x->kv_heads * x->dim;
    ndp_view q = make(x->rows, kv_cols, dtype), k = make(x->rows, kv_cols, dtype), v = make(x->rows, cols, dtype);
    ndp_view g = make(x->rows, x->heads, NDP_F32), b = make(x->rows, x->heads, dtype), o = make(x->rows, cols, dtype);
    ndp_view start = make(x->rows, 1, NDP_I32), dq = make(x->rows, kv_cols, dtype), dk = make(x->rows, kv_cols, dtype);
    ndp_view dv = make(x->rows, cols, dtype), dg = make(x->rows, x->heads, NDP_F32);
    ndp_view db = make(x->rows, x->heads, dtype);
    for (int t = 0; t < x->rows; t++) {
        ((int32_t *)start.data)[t] = t / x->document * x->document;
        for (int h = 0; h < x->heads; h++)
            ndp_view_set(&g, t, h, ndp_view_get(&g, t, h) / 4 - 0.15);
    }
    ndp_exec exec = {.device = &ndp_device_cpu, .threads = threads};
    ndp_op_call forward = {.op = &ndp_op_delta_rule, .attr = &attr, .exec = &exec, .in = {q, k, v, g, b, start}};
    ndp_op_call backward = {
        .op = &ndp_op_delta_rule_bwd, .attr = &attr, .exec = &exec, .in = {o, q, k, v, g, b, start}};
    forward.out[0] = o;
    backward.out[0] = dq, backward.out[1] = dk, backward.out[2] = dv, backward.out[3] = dg, backward.out[4] = db;
    report_delta("forward", &forward, dtype, time_op(&forward), products);
    report_delta("backward", &backward, dtype, time_op(&backward), products);
    ndp_view *all[] = {&q, &k, &v, &g, &b, &o, &start, &dq, &dk, &dv, &dg, &db};
    for (int i = 0; i < NDP_COUNT(all); i++)
        free(all[i]->data);
}

static void bench_delta_rule(int threads) {
    static const shape shapes[] = {{2048, 2048, 16, 16, 128}, {2048, 2048, 32, 16, 128}, {2048, 200, 32, 16, 128}};
    for (int t = 0; t < 2; t++) {
        ndp_dtype dtype = t ? NDP_BF16 : NDP_F32;
        double loop = bench_peak(false, threads), products = product_rate(dtype, threads);
        printf("%d threads, multiply-add loop %.1f GFLOP/s, products in %s %.1f\n", threads, loop * 1e-9,
               ndp_dtype_name(dtype), products * 1e-9);
        for (int i = 0; i < NDP_COUNT(shapes); i++)
            bench_delta(&shapes[i], dtype, threads, products);
    }
}

static void bench_attention(int threads) {
    static const shape shapes[] = {{1024, 1024, 9, 3, 64}, {1024, 256, 9, 3, 64}, {1024, 1024, 8, 8, 128},
                                   {256, 256, 6, 6, 48},   {512, 512, 8, 4, 8},   {4096, 4096, 9, 3, 64},
                                   {8192, 8192, 9, 3, 64}};
    for (int i = 0; i < NDP_COUNT(shapes); i++) {
        double rate = bench_peak(false, threads);
        printf("%d threads, multiply-add loop %.1f GFLOP/s\n", threads, rate * 1e-9);
        bench(&shapes[i], NDP_F32, threads, rate);
        bench(&shapes[i], NDP_BF16, threads, rate);
    }
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : ndp_cpu_cores();
    const char *what = argc > 2 ? argv[2] : "both";
    bench_begin(argv);
    if (strcmp(what, "delta_rule") != 0)
        bench_attention(threads);
    if (strcmp(what, "attention") != 0)
        bench_delta_rule(threads);
    return 0;
}
