/* C [m,n] (+)= A [m,k] B [k,n] in vectors, for any type of which a "step" is 32 bits: DEPTH consecutive k's of a row of
 * A, or of a column of B. Included by the files that bring the multiplication of one step, and how numbers lie in
 * memory (see the end of this comment).
 *
 * This is the classical scheme (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008). The
 * innermost tile of C, PANEL rows x STRIP columns, stays in 28 registers while a block of k runs past it. Its operands
 * are copied ("packed") beforehand into the order in which it reads them: a panel of A as [step][PANEL], a strip of B
 * as [step][STRIP].
 *
 *   for each chunk of columns, each piece of rows, each block of k:
 *                                                    pack A's piece, which stays in the L2 cache
 *     for each strip of columns:                     pack B's strip, which stays in the L1 cache
 *       for each panel of the piece:                 one tile
 *
 * Between blocks of k the sums wait in C, or, when C is narrower than a sum, in scratch memory. Every element of C is a
 * sum over k in the same order and blocks whatever the threads, which divide rows and columns among them; each has
 * buffers of its own.
 *
 * The includer has defined `NUMBER`, DEPTH, and
 *   __m512 load_steps(const NUMBER *from, int64_t k)            sixteen steps of a row, of which k numbers are there
 *   __m512 load_step(const NUMBER *from, int64_t ld, int64_t k, __mmask16 kept)
 *                                                               a step of sixteen columns, stored as [k][column]
 *   __m512 multiply_add(__m512 x, __m512 y, __m512 sum)         sixteen steps
 *   row_sums get_sums(const void *c, ndp_dtype, __mmask16 left, __mmask16 right)
 *   void put_sums(void *c, ndp_dtype, __mmask16 left, __mmask16 right, row_sums)
 *                                                               a row of a tile, from and to a type of C */
#ifndef NDP_OPS_CPU_CPU_GEMM_PANELS_H
#define NDP_OPS_CPU_CPU_GEMM_PANELS_H

#include "ops/cpu/cpu_gemm_block.h"

#include <omp.h>

enum {
    PANEL = 14,
    STRIP = 32,
    K_BLOCK = 576,      /* steps */
    PIECE = 48 * PANEL, /* rows; times K_BLOCK steps: 1.5 MiB */
    STRIPS = 8,         /* packed at a time */
    CHUNK = 54 * STRIP, /* columns whose sums wait in scratch memory */
};

/* How a product is cut, and the bytes of a thread's buffers: multiples of 64. */
typedef struct panel_plan {
    int64_t k, rows, cols; /* of a block (a multiple of DEPTH), a piece, a chunk */
    bool waits;            /* sums, in scratch memory */
    size_t a_bytes, b_bytes, sums_bytes;
} panel_plan;

static int64_t steps_of(int64_t k) { return (k + DEPTH - 1) / DEPTH; }

static int64_t padded(int64_t size, int64_t limit, int64_t unit) {
    return size >= limit ? limit : round_up(size, unit);
}

/* With blocks of that many steps of k. */
static panel_plan plan_with(const ndp_gemm_shape *s, int64_t steps) {
    panel_plan p = {.k = steps * DEPTH, .rows = PIECE, .cols = s->n};
    p.waits = s->c != NDP_F32 && s->k > p.k;
    if (p.waits)
        p.cols = smaller(CHUNK, s->n);
    p.a_bytes = (size_t)round_up(padded(s->m, PIECE, PANEL) * steps, LANES) * sizeof(float);
    p.b_bytes = (size_t)(padded(s->n, STRIPS * STRIP, STRIP) * steps) * sizeof(float);
    if (p.waits)
        p.sums_bytes = (size_t)(padded(s->m, PIECE, PANEL) * round_up(p.cols, STRIP)) * sizeof(float);
    return p;
}

static panel_plan plan_of(const ndp_gemm_shape *s) { return plan_with(s, equal_block(steps_of(s->k), K_BLOCK)); }

static size_t thread_bytes(const panel_plan *p) { return p->a_bytes + p->b_bytes + p->sums_bytes; }

/* All buffers grow with m, n and the steps of a block, which are fewer for some larger k. */
static size_t most_bytes(const ndp_gemm_shape *s) {
    panel_plan p = plan_with(s, smaller(steps_of(s->k), K_BLOCK));
    return thread_bytes(&p);
}

static size_t scratch_bytes(const ndp_gemm_shape *s) {
    panel_plan p = plan_of(s);
    return (size_t)s->threads * thread_bytes(&p);
}

/* Packing ---------------------------------------------------------------------------------------------------------- */

/* to[p * width + i] = step p of row i of from [rows][ld], k numbers long; 0 for i from `rows` to width - 1 or 15. */
static void pack_rows(const NUMBER *from, int64_t ld, int64_t rows, int64_t k, float *to, int width) {
    const int64_t steps = steps_of(k);
    __mmask16 kept = lanes(width);
    for (int64_t p = 0; p < steps; p += LANES) {
        __m512 r[LANES];
        for (int i = 0; i < LANES; i++)
            r[i] = i < rows && i < width ? load_steps(from + i * ld + p * DEPTH, k - p * DEPTH) : _mm512_setzero_ps();
        transpose(r);
        for (int i = 0; i < LANES && p + i < steps; i++)
            _mm512_mask_storeu_ps(to + (p + i) * width, kept, r[i]);
    }
}

/* A block of B, or of A when it is stored transposed: k rows of `cols` numbers become groups of `width` columns, each
 * [step][width] and filled up with 0. Reads whole rows: far strides would wait for memory. */
static void pack_cols(const NUMBER *from, int64_t ld, int64_t cols, int64_t k, float *to, int width) {
    const int64_t steps = steps_of(k);
    int at_once = width < LANES ? width : LANES;
    __mmask16 kept = lanes(at_once);
    for (int64_t p = 0; p < steps; p++)
        for (int64_t j = 0; j < cols; j += width)
            for (int64_t i = j; i < j + width; i += at_once)
                _mm512_mask_storeu_ps(to + j * steps + p * width + i - j, kept,
                                      load_step(from + p * DEPTH * ld + i, ld, k - p * DEPTH, lanes(cols - i) & kept));
}

/* A range of rows of A and of k, as panels. */
static void pack_a(const ndp_gemm_shape *s, const NUMBER *a, range m, range k, float *to) {
    int64_t rows = m.last - m.first, depth = k.last - k.first;
    if (s->trans_a)
        pack_cols(a + k.first * s->lda + m.first, s->lda, rows, depth, to, PANEL);
    else
        for (int64_t i = 0; i < rows; i += PANEL)
            pack_rows(a + (m.first + i) * s->lda + k.first, s->lda, rows - i, depth, to + i * steps_of(depth), PANEL);
}

/* A range of columns of B and of k, as strips. */
static void pack_b(const ndp_gemm_shape *s, const NUMBER *b, range n, range k, float *to) {
    int64_t cols = n.last - n.first, depth = k.last - k.first;
    if (s->trans_b)
        for (int64_t j = 0; j < cols; j += LANES)
            pack_rows(b + (n.first + j) * s->ldb + k.first, s->ldb, cols - j, depth,
                      to + j / STRIP * STRIP * steps_of(depth) + j % STRIP, STRIP);
    else
        pack_cols(b + k.first * s->ldb + n.first, s->ldb, cols, depth, to, STRIP);
}

/* Tiles ------------------------------------------------------------------------------------------------------------ */

/* Where sums come from or go to: rows of C, or of the scratch memory. NULL: nothing. */
typedef struct panel_place {
    char *at;
    int64_t stride; /* bytes */
    ndp_dtype type;
} panel_place;

static panel_place place_at(panel_place p, int64_t row, int64_t col) {
    if (p.at)
        p.at += row * p.stride + col * (int64_t)ndp_dtype_size(p.type);
    return p;
}

/* to [rows, STRIP under the masks] = from + panel x strip; `rows` is a constant after inlining. */
static inline __attribute__((always_inline)) void tile(int rows, int64_t steps, const float *a, const float *b,
                                                       panel_place from, panel_place to, __mmask16 left,
                                                       __mmask16 right) {
    row_sums sum[PANEL];
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        sum[i].left = sum[i].right = _mm512_setzero_ps();
        _mm_prefetch(to.at + i * to.stride, _MM_HINT_T0);
        _mm_prefetch(to.at + i * to.stride + 64, _MM_HINT_T0);
    }
    for (int64_t p = 0; p < steps; p++) {
        __m512 b0 = _mm512_load_ps(b + p * STRIP), b1 = _mm512_load_ps(b + p * STRIP + LANES);
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            __m512 x = _mm512_set1_ps(a[p * PANEL + i]);
            sum[i].left = multiply_add(x, b0, sum[i].left);
            sum[i].right = multiply_add(x, b1, sum[i].right);
        }
    }
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        if (from.at) {
            row_sums old = get_sums(from.at + i * from.stride, from.type, left, right);
            sum[i].left = _mm512_add_ps(sum[i].left, old.left);
            sum[i].right = _mm512_add_ps(sum[i].right, old.right);
        }
        put_sums(to.at + i * to.stride, to.type, left, right, sum[i]);
    }
}

static void tile_of(int rows, int cols, int64_t steps, const float *a, const float *b, panel_place from,
                    panel_place to) {
    __mmask16 left = lanes(cols), right = lanes(cols - LANES);
    switch (rows) {
#define ROWS(n)                                                                                                        \
    case n:                                                                                                            \
        tile(n, steps, a, b, from, to, left, right);                                                                   \
        break;
        ROWS(1)
        ROWS(2)
        ROWS(3)
        ROWS(4)
        ROWS(5)
        ROWS(6)
        ROWS(7)
        ROWS(8)
        ROWS(9)
        ROWS(10)
        ROWS(11)
        ROWS(12)
        ROWS(13)
        ROWS(14)
#undef ROWS
    }
}

/* All tiles of packed panels and strips. */
static void multiply(int64_t rows, int64_t cols, int64_t steps, const float *pa, const float *pb, panel_place from,
                     panel_place to) {
    for (int64_t j = 0; j < cols; j += STRIP)
        for (int64_t i = 0; i < rows; i += PANEL)
            tile_of((int)smaller(rows - i, PANEL), (int)smaller(cols - j, STRIP), steps, pa + i * steps, pb + j * steps,
                    place_at(from, i, j), place_at(to, i, j));
}

/* Threads ---------------------------------------------------------------------------------------------------------- */

/* A thread's view of the product, with its part of the scratch memory. */
typedef struct panel_job {
    const ndp_gemm_shape *shape;
    panel_plan plan;
    const NUMBER *a, *b;
    panel_place c;
    float *packed_a, *packed_b, *sums;
} panel_job;

static panel_job job_of(const ndp_gemm_shape *s, const void *a, const void *b, void *c, void *scratch, int thread) {
    panel_plan p = plan_of(s);
    char *own = (char *)scratch + (size_t)thread * thread_bytes(&p);
    return (panel_job){
        .shape = s,
        .plan = p,
        .a = a,
        .b = b,
        .c = {c, s->ldc * (int64_t)ndp_dtype_size(s->c), s->c},
        .packed_a = (float *)own,
        .packed_b = (float *)(own + p.a_bytes),
        .sums = (float *)(own + p.a_bytes + p.b_bytes),
    };
}

/* A piece, a chunk, a block of k. */
static void run_block_of_k(const panel_job *j, range m, range n, range k) {
    const ndp_gemm_shape *s = j->shape;
    const panel_place none = {NULL, 0, NDP_F32}, c = place_at(j->c, m.first, n.first);
    const panel_place wait =
        j->plan.waits ? (panel_place){(char *)j->sums, round_up(j->plan.cols, STRIP) * (int64_t)sizeof(float), NDP_F32}
                      : c;
    const panel_place from = k.first > 0 ? wait : s->accumulate ? c : none, to = k.last < s->k ? wait : c;
    int64_t rows = m.last - m.first, steps = steps_of(k.last - k.first);
    pack_a(s, j->a, m, k, j->packed_a);
    for (int64_t col = n.first; col < n.last; col += STRIPS * STRIP) {
        range few = {col, smaller(n.last, col + STRIPS * STRIP)};
        pack_b(s, j->b, few, k, j->packed_b);
        multiply(rows, few.last - col, steps, j->packed_a, j->packed_b, place_at(from, 0, col - n.first),
                 place_at(to, 0, col - n.first));
    }
}

static void run_part(const panel_job *j, range m, range n) {
    const panel_plan *p = &j->plan;
    int64_t k = j->shape->k;
    for (int64_t col = n.first; col < n.last; col += p->cols)
        for (int64_t row = m.first; row < m.last; row += p->rows)
            for (int64_t l = 0; l < k; l += p->k)
                run_block_of_k(j, (range){row, smaller(m.last, row + p->rows)},
                               (range){col, smaller(n.last, col + p->cols)}, (range){l, smaller(k, l + p->k)});
}

static void run(const ndp_gemm_shape *s, const void *a, const void *b, void *c, void *scratch) {
    if (s->threads == 1) {
        panel_job j = job_of(s, a, b, c, scratch, 0);
        run_part(&j, (range){0, s->m}, (range){0, s->n});
        return;
    }
#pragma omp parallel num_threads(s->threads)
    {
        int threads = omp_get_num_threads(), i = omp_get_thread_num(), r = thread_rows(s, threads);
        int columns = threads / r;
        panel_job j = job_of(s, a, b, c, scratch, i);
        run_part(&j, part(s->m, PANEL, i / columns, r), part(s->n, STRIP, i % columns, columns));
    }
}

#endif
