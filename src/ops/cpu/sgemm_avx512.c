/* C [m,n] (+)= A [m,k] B [k,n].
 *
 * The classical scheme (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008). The
 * innermost tile of C, PANEL rows x STRIP columns, stays in 28 registers while a block of k runs past it. Its operands
 * are copied
 * ("packed") beforehand into the order in which it reads them: a panel of A as [k][PANEL], a strip of B as [k][STRIP].
 *
 *   for each piece of rows, for each block of k:       pack A's piece, which stays in the L2 cache
 *     for each strip of columns:                       pack B's strip, which stays in the L1 cache
 *       for each panel of the piece:                   one tile
 *
 * Every element of C is a sum over k in the same order and blocks whatever the threads, which share out rows and
 * columns, each with buffers of its own. */
#include "ops/cpu/sgemm.h"

#include "ops/cpu/gemm_block.h"

#include <omp.h>

enum {
    PANEL = 14,
    STRIP = 32,
    K_BLOCK = 576,
    PIECE = 48 * PANEL, /* rows; times K_BLOCK floats: 1.5 MiB */
    STRIPS = 8,         /* packed at a time */
};

static int64_t k_block(int64_t k) { return equal_block(k, K_BLOCK); }

static int64_t padded(int64_t size, int64_t limit, int64_t unit) {
    return size >= limit ? limit : (size + unit - 1) / unit * unit;
}

/* Floats of a thread's packed piece of A, rounded up to a cache line, and of its strips of B. */
static int64_t piece_floats(const ndp_gemm_shape *s) {
    int64_t floats = padded(s->m, PIECE, PANEL) * k_block(s->k);
    return (floats + LANES - 1) / LANES * LANES;
}

static int64_t strips_floats(const ndp_gemm_shape *s) { return padded(s->n, STRIPS * STRIP, STRIP) * k_block(s->k); }

static size_t thread_bytes(const ndp_gemm_shape *s) {
    return (size_t)(piece_floats(s) + strips_floats(s)) * sizeof(float);
}

size_t ndp_sgemm_scratch(const ndp_gemm_shape *s) { return (size_t)s->threads * thread_bytes(s); }

/* Packing ---------------------------------------------------------------------------------------------------------- */

/* to[p * width + i] = from[i * ld + p] for i < rows, p < k; 0 for i from `rows` to width - 1 or 15. */
static void pack_rows(const float *from, int64_t ld, int64_t rows, int64_t k, float *to, int width) {
    __mmask16 kept = lanes(width);
    for (int64_t p = 0; p < k; p += LANES) {
        __m512 r[LANES];
        for (int i = 0; i < LANES; i++)
            r[i] = i < rows && i < width ? _mm512_maskz_loadu_ps(lanes(k - p), from + i * ld + p) : _mm512_setzero_ps();
        transpose(r);
        for (int i = 0; i < LANES && p + i < k; i++)
            _mm512_mask_storeu_ps(to + (p + i) * width, kept, r[i]);
    }
}

/* A block of B, or of A when it is stored transposed: k rows of `cols` floats become groups of `width` columns, each
 * [k][width] and filled up with 0. Reads whole rows: far strides would wait for memory. */
static void pack_cols(const float *from, int64_t ld, int64_t cols, int64_t k, float *to, int width) {
    int step = width < LANES ? width : LANES;
    __mmask16 kept = lanes(step);
    for (int64_t p = 0; p < k; p++)
        for (int64_t j = 0; j < cols; j += width)
            for (int64_t i = j; i < j + width; i += step)
                _mm512_mask_storeu_ps(to + j * k + p * width + i - j, kept,
                                      _mm512_maskz_loadu_ps(lanes(cols - i) & kept, from + p * ld + i));
}

/* Rows m .. m+rows-1 of A, k's p .. p+k-1, as panels. */
static void pack_a(const ndp_gemm_shape *s, const float *a, int64_t m, int64_t rows, int64_t p, int64_t k, float *to) {
    if (s->trans_a)
        pack_cols(a + p * s->lda + m, s->lda, rows, k, to, PANEL);
    else
        for (int64_t i = 0; i < rows; i += PANEL)
            pack_rows(a + (m + i) * s->lda + p, s->lda, rows - i, k, to + i * k, PANEL);
}

/* Columns n .. n+cols-1 of B as strips. */
static void pack_b(const ndp_gemm_shape *s, const float *b, int64_t n, int64_t cols, int64_t p, int64_t k, float *to) {
    if (s->trans_b)
        for (int64_t j = 0; j < cols; j += LANES)
            pack_rows(b + (n + j) * s->ldb + p, s->ldb, cols - j, k, to + j / STRIP * STRIP * k + j % STRIP, STRIP);
    else
        pack_cols(b + p * s->ldb + n, s->ldb, cols, k, to, STRIP);
}

/* Tiles ------------------------------------------------------------------------------------------------------------ */

/* c [rows, STRIP under the masks] (+)= panel x strip; `rows` is a constant after inlining. */
static inline __attribute__((always_inline)) void tile(int rows, int64_t k, const float *a, const float *b, float *c,
                                                       int64_t ldc, __mmask16 left, __mmask16 right, bool add) {
    __m512 sum[PANEL][2];
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        sum[i][0] = sum[i][1] = _mm512_setzero_ps();
        _mm_prefetch((const char *)(c + i * ldc), _MM_HINT_T0);
        _mm_prefetch((const char *)(c + i * ldc + LANES), _MM_HINT_T0);
    }
    for (int64_t p = 0; p < k; p++) {
        __m512 b0 = _mm512_load_ps(b + p * STRIP), b1 = _mm512_load_ps(b + p * STRIP + LANES);
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            __m512 x = _mm512_set1_ps(a[p * PANEL + i]);
            sum[i][0] = _mm512_fmadd_ps(x, b0, sum[i][0]);
            sum[i][1] = _mm512_fmadd_ps(x, b1, sum[i][1]);
        }
    }
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        float *to = c + i * ldc;
        if (add) {
            sum[i][0] = _mm512_add_ps(sum[i][0], _mm512_maskz_loadu_ps(left, to));
            sum[i][1] = _mm512_add_ps(sum[i][1], _mm512_maskz_loadu_ps(right, to + LANES));
        }
        _mm512_mask_storeu_ps(to, left, sum[i][0]);
        _mm512_mask_storeu_ps(to + LANES, right, sum[i][1]);
    }
}

static void tile_of(int rows, int cols, int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool add) {
    uint32_t mask = cols == STRIP ? ~0u : (1u << cols) - 1;
    __mmask16 left = (__mmask16)mask, right = (__mmask16)(mask >> LANES);
    switch (rows) {
#define ROWS(n)                                                                                                        \
    case n:                                                                                                            \
        tile(n, k, a, b, c, ldc, left, right, add);                                                                    \
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
static void multiply(int64_t rows, int64_t cols, int64_t k, const float *pa, const float *pb, float *c, int64_t ldc,
                     bool add) {
    for (int64_t j = 0; j < cols; j += STRIP)
        for (int64_t i = 0; i < rows; i += PANEL)
            tile_of(rows - i < PANEL ? (int)(rows - i) : PANEL, cols - j < STRIP ? (int)(cols - j) : STRIP, k,
                    pa + i * k, pb + j * k, c + i * ldc + j, ldc, add);
}

/* Threads ---------------------------------------------------------------------------------------------------------- */

static void run_part(const ndp_gemm_shape *s, const float *a, const float *b, float *c, range m, range n,
                     float *scratch) {
    int64_t block = k_block(s->k);
    float *pa = scratch, *pb = scratch + piece_floats(s);
    for (int64_t m0 = m.first; m0 < m.last; m0 += PIECE)
        for (int64_t p = 0; p < s->k; p += block) {
            int64_t rows = m.last - m0 < PIECE ? m.last - m0 : PIECE, k = s->k - p < block ? s->k - p : block;
            pack_a(s, a, m0, rows, p, k, pa);
            for (int64_t j = n.first; j < n.last; j += STRIPS * STRIP) {
                int64_t cols = n.last - j < STRIPS * STRIP ? n.last - j : STRIPS * STRIP;
                pack_b(s, b, j, cols, p, k, pb);
                multiply(rows, cols, k, pa, pb, c + m0 * s->ldc + j, s->ldc, s->accumulate || p > 0);
            }
        }
}

void ndp_sgemm_run(const ndp_gemm_shape *s, const float *a, const float *b, float *c, void *scratch) {
    size_t step = thread_bytes(s); /* a multiple of 64 */
    if (s->threads == 1) {
        run_part(s, a, b, c, (range){0, s->m}, (range){0, s->n}, scratch);
        return;
    }
#pragma omp parallel num_threads(s->threads)
    {
        int threads = omp_get_num_threads(), i = omp_get_thread_num(), r = thread_rows(s, threads);
        int columns = threads / r;
        run_part(s, a, b, c, part(s->m, PANEL, i / columns, r), part(s->n, STRIP, i % columns, columns),
                 (float *)((char *)scratch + (size_t)i * step));
    }
}
