/* The matrix products of one SmolLM2-135M step (C 576, qkv 960, ffn 1536, V 49152, T 1024) against what this machine
 * can do: a loop of nothing but multiply-adds (in bf16 by tiles or by pairs, where there are any), the best of three
 * large square products, and oneDNN's products of the same shapes, strides and types. Times are the best of several
 * runs, since other programs can only slow a product down; one thread is timed by its own clock, which stands still
 * while others have the core. Usage: bench_gemm [threads] [runs] [fp32|bf16] [rows of the head at a time] */
#include "clock.h"
#include "ops/cpu/cpu_gemm.h"
#include "result.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static void *memory(size_t bytes) {
    void *p = aligned_alloc(2 << 20, (bytes + (2 << 20) - 1) / (2 << 20) * (2 << 20));
    if (!p) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE); /* as the program's memory */
    for (size_t i = 0; i < bytes / 4; i++)
        ((uint32_t *)p)[i] = 0x3c003c00u + (uint32_t)(i * 2654435761u) % 512u * 65537u; /* small in fp32 and bf16 */
    return p;
}

static double measure(const ndp_gemm_shape *s, int runs) {
    const ndp_gemm *plan;
    if (ndp_gemm_plan(s, &plan) != NDP_OK) {
        fprintf(stderr, "%s\n", ndp_error_message());
        exit(1);
    }
    void *a = memory((size_t)((s->trans_a ? s->k : s->m) * s->lda) * ndp_dtype_size(s->a));
    void *b = memory((size_t)((s->trans_b ? s->n : s->k) * s->ldb) * ndp_dtype_size(s->b));
    void *c = memory((size_t)(s->m * s->ldc) * ndp_dtype_size(s->c));
    void *scratch = memory(ndp_gemm_scratch(plan) + 64);
    double best = 1e30;
    for (int i = 0; i < runs + 1; i++) {
        double start = bench_now(s->threads);
        ndp_gemm_run(plan, a, b, c, scratch);
        double t = bench_now(s->threads) - start;
        best = t < best ? t : best;
    }
    free(a);
    free(b);
    free(c);
    free(scratch);
    return best;
}

typedef struct product {
    const char *name;
    int64_t n, k; /* of the weight [n,k] */
    int times;    /* a step */
    int64_t rows; /* at a time */
} product;

/* forward y = x w^T, dx = dy w, dw = dy^T x */
static ndp_gemm_shape shape_of(const product *p, int kind, ndp_dtype t, int threads) {
    int64_t rows = p->rows;
    ndp_gemm_shape s = {.a = t, .b = t, .c = t, .threads = threads};
    if (kind == 0)
        s.m = rows, s.n = p->n, s.k = p->k, s.lda = p->k, s.ldb = p->k, s.ldc = p->n, s.trans_b = true;
    if (kind == 1)
        s.m = rows, s.n = p->k, s.k = p->n, s.lda = p->n, s.ldb = p->k, s.ldc = p->k;
    if (kind == 2)
        s.m = p->n, s.n = p->k, s.k = rows, s.lda = p->n, s.ldb = p->k, s.ldc = p->k, s.trans_a = true;
    if (kind == 2)
        s.c = NDP_F32, s.accumulate = true;
    if (kind == 0 && p->n > 10000)
        s.c = NDP_F32;
    return s;
}

static void bench_type(ndp_dtype t, int threads, int runs, int head_rows, double loop) {
    const product products[] = {
        {"qkv", 960, 576, 30, 1024},
        {"attention out", 576, 576, 30, 1024},
        {"gate+up", 3072, 576, 30, 1024},
        {"down", 576, 1536, 30, 1024},
        {"head", 49152, 576, 1024 / head_rows, head_rows},
    };
    static const char *kinds[] = {"y", "dx", "dw"};
    double square = 0;
    for (int64_t n = 1024; n <= 4096; n *= 2) {
        ndp_gemm_shape s = {n, n, n, n, n, n, false, false, t, t, NDP_F32, false, threads, false, false};
        double rate = 2.0 * (double)n * (double)n * (double)n / measure(&s, n > 2048 ? 2 : 5) * 1e-9;
        square = rate > square ? rate : square;
    }
    printf("%s, %d threads: loop %.0f GFLOP/s, best square product %.0f\n", ndp_dtype_name(t), threads, loop, square);
    double total = 0, library = 0, flops = 0;
    for (int i = 0; i < NDP_COUNT(products); i++)
        for (int kind = 0; kind < 3; kind++) {
            const product *p = &products[i];
            ndp_gemm_shape s = shape_of(p, kind, t, threads);
            double seconds = measure(&s, runs), work = 2.0 * (double)s.m * (double)s.n * (double)s.k;
            s.library = true;
            double other = measure(&s, runs);
            printf("  %-14s %-3s %5lld x %5lld x %5lld  %8.3f ms  %7.1f GFLOP/s  %5.1f%% of the loop; oneDNN %7.1f\n",
                   p->name, kinds[kind], (long long)s.m, (long long)s.n, (long long)s.k, seconds * 1e3,
                   work / seconds * 1e-9, work / seconds * 1e-7 / loop, work / other * 1e-9);
            total += seconds * p->times;
            library += other * p->times;
            flops += work * p->times;
        }
    printf("  a step: %.0f ms, %.1f GFLOP/s, %.1f%% of the loop; oneDNN %.0f ms, %.1f\n", total * 1e3,
           flops / total * 1e-9, flops / total * 1e-7 / loop, library * 1e3, flops / library * 1e-9);
    char what[64];
    snprintf(what, sizeof what, "products of a step, %s, %d threads", ndp_dtype_name(t), threads);
    bench_result(what, total * 1e3, "ms", loop * 1e9 * total / flops);
    snprintf(what, sizeof what, "the same by oneDNN, %s, %d threads", ndp_dtype_name(t), threads);
    bench_result(what, library * 1e3, "ms", loop * 1e9 * library / flops);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2, runs = argc > 2 ? atoi(argv[2]) : 7;
    const char *type = argc > 3 ? argv[3] : "both";
    int head_rows = argc > 4 ? atoi(argv[4]) : 256;
    bench_begin(argv);
    if (ndp_cpu_has_amx_bf16() && !ndp_cpu_describes_tiles())
        printf("oneDNN has no tiles here: CPUID does not describe them\n");
    for (int t = 0; t < 2; t++) {
        ndp_dtype dtype = t ? NDP_BF16 : NDP_F32;
        if (strcmp(type, "both") == 0 || strcmp(type, ndp_dtype_name(dtype)) == 0)
            bench_type(dtype, threads, runs, head_rows, bench_peak(dtype == NDP_BF16, threads) * 1e-9);
    }
    return 0;
}
