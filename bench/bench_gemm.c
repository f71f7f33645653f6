/* The matrix products of one SmolLM2-135M step (C 576, qkv 960, ffn 1536, V 49152, T 1024) against what this machine
 * can do: a loop of nothing but multiply-adds (by tiles in bf16, where there are any), and the best of three large
 * square products. Times are the best of several runs, since other programs can only slow a product down; one thread is
 * timed by its own clock, which stands still while others have the core. Usage: bench_gemm [threads] [runs] [fp32|bf16]
 * [rows of the head at a time] */
#include "base/clock.h"
#include "base/cpu.h"
#include "ops/gemm.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static double seconds_now(int threads) {
    struct timespec t;
    if (threads > 1)
        return ndp_now();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

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

enum { ROUNDS = 1000000, FMA_CHAINS = 16, TILE_CHAINS = 4 };

/* Independent fp32 multiply-adds in registers: chains of 16 lanes. */
static void fma_loop(void) {
    long rounds = ROUNDS;
#define FMA(n) "vfmadd231ps %%zmm16, %%zmm17, %%zmm" #n "\n\t"
    __asm__ volatile("vpxord %%zmm16, %%zmm16, %%zmm16\n\tvpxord %%zmm17, %%zmm17, %%zmm17\n\t"
                     "1:\n\t" FMA(0) FMA(1) FMA(2) FMA(3) FMA(4) FMA(5) FMA(6) FMA(7) FMA(8) FMA(9) FMA(10) FMA(11)
                         FMA(12) FMA(13) FMA(14) FMA(15) "dec %0\n\tjnz 1b"
                     : "+r"(rounds)::"cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                       "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
#undef FMA
}

/* Independent products of bf16 tiles in registers: 16 x 16 x 32. */
static void tile_loop(void) {
    static const uint8_t config[64] = {
        1, [16] = 64, [18] = 64, [20] = 64, [22] = 64, [24] = 64, [26] = 64, [48] = 16, 16, 16, 16, 16, 16};
    long rounds = ROUNDS;
    __asm__ volatile("ldtilecfg %1\n\t"
                     "1:\n\ttdpbf16ps %%tmm5, %%tmm4, %%tmm0\n\ttdpbf16ps %%tmm5, %%tmm4, %%tmm1\n\t"
                     "tdpbf16ps %%tmm5, %%tmm4, %%tmm2\n\ttdpbf16ps %%tmm5, %%tmm4, %%tmm3\n\t"
                     "dec %0\n\tjnz 1b\n\ttilerelease"
                     : "+r"(rounds)
                     : "m"(config)
                     : "cc");
}

/* GFLOP/s of a loop, all threads. */
static double peak(int threads, void (*loop)(void), double flops) {
    double best = 0;
    for (int run = 0; run < 20; run++) {
        double start = seconds_now(threads);
#pragma omp parallel num_threads(threads)
        loop();
        double rate = flops * ROUNDS * threads / (seconds_now(threads) - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
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
        double start = seconds_now(s->threads);
        ndp_gemm_run(plan, a, b, c, scratch);
        double t = seconds_now(s->threads) - start;
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
        ndp_gemm_shape s = {n, n, n, n, n, n, false, false, t, t, NDP_F32, false, threads};
        double rate = 2.0 * (double)n * (double)n * (double)n / measure(&s, n > 2048 ? 2 : 5) * 1e-9;
        square = rate > square ? rate : square;
    }
    printf("%s, %d threads: loop %.0f GFLOP/s, best square product %.0f\n", ndp_dtype_name(t), threads, loop, square);
    double total = 0, flops = 0;
    for (int i = 0; i < NDP_COUNT(products); i++)
        for (int kind = 0; kind < 3; kind++) {
            const product *p = &products[i];
            ndp_gemm_shape s = shape_of(p, kind, t, threads);
            double seconds = measure(&s, runs), work = 2.0 * (double)s.m * (double)s.n * (double)s.k;
            printf("  %-14s %-3s %5lld x %5lld x %5lld  %8.3f ms  %7.1f GFLOP/s  %5.1f%% of the loop\n", p->name,
                   kinds[kind], (long long)s.m, (long long)s.n, (long long)s.k, seconds * 1e3, work / seconds * 1e-9,
                   work / seconds * 1e-7 / loop);
            total += seconds * p->times;
            flops += work * p->times;
        }
    printf("  a step: %.0f ms, %.1f GFLOP/s, %.1f%% of the loop\n", total * 1e3, flops / total * 1e-9,
           flops / total * 1e-7 / loop);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2, runs = argc > 2 ? atoi(argv[2]) : 7;
    const char *type = argc > 3 ? argv[3] : "both";
    int head_rows = argc > 4 ? atoi(argv[4]) : 256;
    if (!ndp_cpu_has_avx512()) {
        fprintf(stderr, "bench_gemm: the loop that it measures against needs AVX-512\n");
        return 1;
    }
    double fma = peak(threads, fma_loop, 2.0 * 16 * FMA_CHAINS);
    if (strcmp(type, "bf16") != 0)
        bench_type(NDP_F32, threads, runs, head_rows, fma);
    if (strcmp(type, "fp32") != 0)
        bench_type(NDP_BF16, threads, runs, head_rows,
                   ndp_cpu_has_amx_bf16() ? peak(threads, tile_loop, 2.0 * 16 * 16 * 32 * TILE_CHAINS) : fma);
    return 0;
}
