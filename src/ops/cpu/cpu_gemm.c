/* Plans of matrix products, and running them.
 *
 * A plan is made for a shape and never changes. It is found by the shape, byte for byte, in one cache of the process,
 * whose lock is held while a plan is looked up or made. There are five kinds:
 *   one of our kernels       where the processor has the instructions: needs nothing but scratch memory
 *   oneDNN's                 elsewhere (cpu_gemm_library.c)
 *   a long product           where oneDNN's are all: plans of pieces of k, whose results are added
 *   a split product          two plans, for two parts of k, with fp32 results that are added (NDP_SUMS_SPLIT)
 *   a widened product        bf16 below AVX-512, or one operand in bf16: a plan in fp32, for operands that are
 *                            converted first
 * The kernels of linear and xent make plans in `prepare`, so that no step makes one. */
#include "base/cpu.h"
#include "ops/cpu/cpu_gemm_kernel.h"
#include "ops/cpu/cpu_gemm_library.h"

#include <pthread.h>
#include <stdlib.h>
#include <uthash.h>

struct ndp_gemm {
    ndp_gemm_shape shape; /* the key; its padding is zero */
    size_t scratch_bytes;
    ndp_gemm *part[2];             /* of a split or a long product, or [0], widened; then nothing below */
    const ndp_gemm_kernel *kernel; /* ours; NULL: oneDNN's: */
    ndp_library_plan *library;
    UT_hash_handle hh;
};

/* Of oneDNN's products. Its kernels in C, all that it has for aarch64, add the k products of an element to C one by
 * one: 3000 of them are off by more than 1e-6. */
enum { LONGEST_SUM = 1024 };

/* Plans live as long as the process: there are as many as distinct shapes. */
static struct {
    pthread_mutex_t lock;
    ndp_gemm *plans;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* In TSan builds: reports the memory that the library, masked vectors and tiles access, which TSan does not see. Sizes
 * are signed as gcc declares these built in. */
void __tsan_read_range(void *address, long size) __attribute__((weak));
void __tsan_write_range(void *address, long size) __attribute__((weak));

static ndp_status check(const ndp_gemm_shape *s) {
    const ndp_dtype types[] = {s->a, s->b, s->c};
    bool typed = s->c == NDP_F32 || s->a == NDP_BF16 || s->b == NDP_BF16;
    for (int i = 0; i < NDP_COUNT(types); i++)
        typed &= types[i] == NDP_F32 || types[i] == NDP_BF16;
    bool strided = s->lda >= (s->trans_a ? s->m : s->k) && s->ldb >= (s->trans_b ? s->k : s->n) && s->ldc >= s->n;
    if (s->m < 1 || s->n < 1 || s->k < 1 || s->threads < 1 || !typed || !strided)
        return NDP_FAIL(NDP_EBUG, "gemm: m %lld n %lld k %lld, strides %lld %lld %lld, %s x %s -> %s, %d threads",
                        (long long)s->m, (long long)s->n, (long long)s->k, (long long)s->lda, (long long)s->ldb,
                        (long long)s->ldc, ndp_dtype_name(s->a), ndp_dtype_name(s->b), ndp_dtype_name(s->c),
                        s->threads);
    return NDP_OK;
}

/* Field by field: padding of the caller's struct must not reach the hash. */
static void set_key(ndp_gemm_shape *key, const ndp_gemm_shape *s) {
    memset(key, 0, sizeof *key);
    key->m = s->m, key->n = s->n, key->k = s->k;
    key->lda = s->lda, key->ldb = s->ldb, key->ldc = s->ldc;
    key->trans_a = s->trans_a, key->trans_b = s->trans_b;
    key->a = s->a, key->b = s->b, key->c = s->c;
    key->accumulate = s->accumulate;
    key->threads = s->threads;
    key->split = s->k > 1 ? s->split : 0;
    key->library = s->library;
}

static ndp_status find_plan(const ndp_gemm_shape *key, ndp_gemm **out);

/* This thread will run the plan, and so those that it consists of. */
static ndp_status use_plan(ndp_gemm *g) {
    for (int i = 0; i < 2 && g->part[i]; i++)
        NDP_TRY(use_plan(g->part[i]));
    return g->library ? ndp_library_use(g->library) : NDP_OK;
}

static int64_t split_at(const ndp_gemm_shape *s) { return ndp_split_at(s->k, s->split); }

static size_t part_floats(const ndp_gemm_shape *s) { return ndp_gemm_floats(s->m, s->n); }

static ndp_status plan_parts(ndp_gemm *g) {
    ndp_gemm_shape part = g->shape;
    size_t most = 0;
    part.c = NDP_F32, part.ldc = part.n;
    part.split = 0, part.accumulate = false;
    for (int i = 0; i < 2; i++) {
        part.k = i == 0 ? split_at(&g->shape) : g->shape.k - split_at(&g->shape);
        NDP_TRY(find_plan(&part, &g->part[i]));
        most = g->part[i]->scratch_bytes > most ? g->part[i]->scratch_bytes : most;
    }
    g->scratch_bytes = 2 * part_floats(&g->shape) * sizeof(float) + most;
    return NDP_OK;
}

/* In fp32: oneDNN has products of bf16 only where there is AVX-512, and so kernels of ours; and none has both types. */
static ndp_status plan_widened(ndp_gemm *g) {
    ndp_gemm_shape s = g->shape;
    s.a = s.b = s.c = NDP_F32;
    s.lda = s.trans_a ? s.m : s.k, s.ldb = s.trans_b ? s.k : s.n, s.ldc = s.n;
    NDP_TRY(find_plan(&s, &g->part[0]));
    g->scratch_bytes = (ndp_gemm_floats(s.m, s.k) + ndp_gemm_floats(s.k, s.n) + part_floats(&s)) * sizeof(float) +
                       g->part[0]->scratch_bytes;
    return NDP_OK;
}

/* The first piece of k, to C, and all others, each to scratch memory. */
static ndp_status plan_long(ndp_gemm *g) {
    ndp_gemm_shape piece = g->shape;
    piece.k = (piece.k - 1) % LONGEST_SUM + 1;
    NDP_TRY(find_plan(&piece, &g->part[0]));
    piece.k = LONGEST_SUM, piece.ldc = piece.n, piece.accumulate = false;
    NDP_TRY(find_plan(&piece, &g->part[1]));
    size_t first = g->part[0]->scratch_bytes, others = g->part[1]->scratch_bytes;
    g->scratch_bytes = part_floats(&g->shape) * sizeof(float) + (first > others ? first : others);
    return NDP_OK;
}

static ndp_status plan_whole(ndp_gemm *g) {
    const ndp_gemm_shape *s = &g->shape;
    g->kernel = s->library ? NULL : ndp_gemm_kernel_for(s->a);
    if (s->a != s->b || (!g->kernel && !s->library && s->a == NDP_BF16)) {
        g->kernel = NULL;
        return plan_widened(g);
    }
    if (!ndp_gemm_kernel_for(s->a) && s->k > LONGEST_SUM)
        return plan_long(g);
    if (!g->kernel)
        return ndp_library_plan_make(s, &g->library, &g->scratch_bytes);
    g->scratch_bytes = g->kernel->scratch(s);
    return NDP_OK;
}

/* With the cache locked. */
static ndp_status find_plan(const ndp_gemm_shape *key, ndp_gemm **out) {
    ndp_gemm *g = NULL;
    HASH_FIND(hh, cache.plans, key, sizeof *key, g);
    *out = g;
    if (g)
        return NDP_OK;
    g = calloc(1, sizeof *g);
    NDP_CHECK_MEMORY(g, "for a matrix product's plan");
    memcpy(&g->shape, key, sizeof *key);
    ndp_status st = key->split ? plan_parts(g) : plan_whole(g);
    if (st != NDP_OK) {
        free(g);
        return st;
    }
    HASH_ADD(hh, cache.plans, shape, sizeof g->shape, g);
    *out = g;
    return NDP_OK;
}

ndp_status ndp_gemm_plan(const ndp_gemm_shape *shape, const ndp_gemm **out) {
    ndp_gemm_shape key;
    ndp_gemm *g;
    NDP_TRY(check(shape));
    set_key(&key, shape);
    pthread_mutex_lock(&cache.lock);
    ndp_status st = find_plan(&key, &g);
    if (st == NDP_OK)
        st = use_plan(g);
    pthread_mutex_unlock(&cache.lock);
    NDP_TRY(st);
    *out = g;
    return NDP_OK;
}

size_t ndp_gemm_scratch(const ndp_gemm *plan) { return plan->scratch_bytes; }

/* Rows of a matrix as stored. */
static void announce(void (*report)(void *, long), const void *p, int64_t rows, int64_t cols, int64_t ld, ndp_dtype t) {
    size_t size = ndp_dtype_size(t);
    for (int64_t r = 0; report && r < rows; r++)
        report((char *)p + (size_t)(r * ld) * size, (long)cols * (long)size);
}

void ndp_gemm_add_parts(const ndp_gemm_shape *s, float *x, float *y, char *c) {
    for (int64_t i = 0; i < s->m; i++, x += s->n, y += s->n, c += (size_t)s->ldc * ndp_dtype_size(s->c)) {
        for (int64_t j = 0; j < s->n; j++)
            x[j] += y[j];
        if (s->accumulate)
            ndp_convert(c, s->c, y, NDP_F32, s->n);
        for (int64_t j = 0; s->accumulate && j < s->n; j++)
            x[j] += y[j];
        ndp_convert(x, NDP_F32, c, s->c, s->n);
    }
}

static void run_parts(const ndp_gemm *plan, const void *a, const void *b, void *c, float *scratch) {
    const ndp_gemm_shape *s = &plan->shape;
    float *sums[2] = {scratch, scratch + part_floats(s)}, *rest = scratch + 2 * part_floats(s);
    int64_t first = split_at(s);
    ndp_gemm_run(plan->part[0], a, b, sums[0], rest);
    ndp_gemm_run(plan->part[1], ndp_gemm_a_from(s, a, first), ndp_gemm_b_from(s, b, first), sums[1], rest);
    ndp_gemm_add_parts(s, sums[0], sums[1], c);
}

static void run_long(const ndp_gemm *plan, const void *a, const void *b, float *c, float *scratch) {
    const ndp_gemm_shape *s = &plan->shape;
    float *sums = scratch, *rest = scratch + part_floats(s);
    ndp_gemm_run(plan->part[0], a, b, c, rest);
    for (int64_t l = plan->part[0]->shape.k; l < s->k; l += LONGEST_SUM) {
        ndp_gemm_run(plan->part[1], ndp_gemm_a_from(s, a, l), ndp_gemm_b_from(s, b, l), sums, rest);
#pragma omp parallel for num_threads(s->threads) schedule(static)
        for (int64_t i = 0; i < s->m; i++)
            ndp_gemm_add(1, s->n, sums + i * s->n, c + i * s->ldc, s->ldc);
    }
}

static void convert_rows(const void *from, ndp_dtype type, int64_t ld, void *to, ndp_dtype to_type, int64_t to_ld,
                         int64_t rows, int64_t cols, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        ndp_convert((const char *)from + (size_t)(i * ld) * ndp_dtype_size(type), type,
                    (char *)to + (size_t)(i * to_ld) * ndp_dtype_size(to_type), to_type, cols);
}

static void run_widened(const ndp_gemm *plan, const void *a, const void *b, void *c, float *scratch) {
    const ndp_gemm_shape *s = &plan->shape, *wide = &plan->part[0]->shape;
    float *wide_a = scratch, *wide_b = wide_a + ndp_gemm_floats(s->m, s->k),
          *wide_c = wide_b + ndp_gemm_floats(s->k, s->n);
    convert_rows(a, s->a, s->lda, wide_a, NDP_F32, wide->lda, s->trans_a ? s->k : s->m, wide->lda, s->threads);
    convert_rows(b, s->b, s->ldb, wide_b, NDP_F32, wide->ldb, s->trans_b ? s->n : s->k, wide->ldb, s->threads);
    if (s->accumulate)
        convert_rows(c, s->c, s->ldc, wide_c, NDP_F32, s->n, s->m, s->n, s->threads);
    ndp_gemm_run(plan->part[0], wide_a, wide_b, wide_c, wide_c + part_floats(s));
    convert_rows(wide_c, NDP_F32, s->n, c, s->c, s->ldc, s->m, s->n, s->threads);
}

void ndp_gemm_announce(const ndp_gemm_shape *s, const void *a, const void *b, const void *c) {
    announce(__tsan_read_range, a, s->trans_a ? s->k : s->m, s->trans_a ? s->m : s->k, s->lda, s->a);
    announce(__tsan_read_range, b, s->trans_b ? s->n : s->k, s->trans_b ? s->k : s->n, s->ldb, s->b);
    announce(__tsan_write_range, c, s->m, s->n, s->ldc, s->c);
}

void ndp_gemm_run(const ndp_gemm *plan, const void *a, const void *b, void *c, void *scratch) {
    const ndp_gemm_shape *s = &plan->shape;
    ndp_gemm_announce(s, a, b, c);
    if (s->split)
        run_parts(plan, a, b, c, scratch);
    else if (plan->part[1])
        run_long(plan, a, b, c, scratch);
    else if (plan->part[0])
        run_widened(plan, a, b, c, scratch);
    else if (plan->kernel)
        plan->kernel->run(s, a, b, c, scratch);
    else
        ndp_library_run(plan->library, s, a, b, c, scratch);
}
