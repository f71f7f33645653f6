/* C [m,n] (+)= A [m,k] B [k,n] in bf16, summed in fp32.
 *
 * A tile product is C [16][16] += A [16][32] x B [16][16][2], where B's row i holds rows 2i and 2i + 1, interleaved. A
 * block of C, PANEL rows x STRIP columns, is four tiles; per step of 32 k's it takes two tiles of A and two of B. These
 * are copied ("packed") beforehand, filled up with 0: a panel of A and a strip of B are both [k / 32][2] tiles.
 *
 *   for each chunk of columns, each piece of rows, each block of k:
 *     pack A's piece, which stays in the L2 cache
 *     for each strip:                                pack it, where no earlier piece has
 *       for each part of k, so that a strip's and a panel's part stay in the L1 cache:
 *         for each panel of the piece:               one block of C
 *
 * Between parts of k the sums of a strip wait in scratch memory, in fp32, and so do those of a bf16 C between blocks of
 * k. Every element is one sum over k in order, whatever the blocks and the threads, which share out rows and columns,
 * each with buffers of its own. */
#include "ops/cpu/bgemm.h"

#include "ops/cpu/gemm_block.h"

#include <omp.h>

enum {
    TILE = 16,
    DEPTH = 32,               /* k's of a tile */
    TILE_SIZE = TILE * DEPTH, /* elements */
    PANEL = 2 * TILE,
    STRIP = 2 * TILE,
    K_BLOCK = 1024,
    K_PART = 320,
    PIECE = 512 * 1024, /* elements of A */
    CHUNK = 48 * STRIP,
    GROUP = 4, /* strips packed at a time */
};

typedef uint16_t bf16;

/* How a product of at most m rows and n columns is cut, and the bytes of its buffers: multiples of 64. */
typedef struct plan {
    int64_t rows, cols, k, k_part; /* of a piece, chunk, block and part; k's are multiples of DEPTH */
    bool wide_sums;                /* of the whole piece and chunk, not of one strip */
    bool keeps_b;                  /* packed, for the next piece */
    size_t a_bytes, b_bytes, sums_bytes;
} plan;

static plan plan_of(const ndp_gemm_shape *s) {
    plan p = {.k = round_up(equal_block(s->k, K_BLOCK), DEPTH), .cols = smaller(CHUNK, round_up(s->n, STRIP))};
    p.k_part = round_up(equal_block(p.k, K_PART), DEPTH);
    p.rows = round_up(equal_block(s->m, PIECE / p.k), PANEL);
    p.wide_sums = s->c == NDP_BF16 && s->k > p.k;
    p.keeps_b = s->m > p.rows && s->k <= p.k;
    p.a_bytes = (size_t)(p.rows * p.k) * sizeof(bf16);
    p.b_bytes = (size_t)((p.keeps_b ? p.cols : smaller(p.cols, GROUP * STRIP)) * p.k) * sizeof(bf16);
    p.sums_bytes = (size_t)(p.rows * (p.wide_sums ? p.cols : STRIP)) * sizeof(float);
    return p;
}

static size_t thread_bytes(const plan *p) { return p->a_bytes + p->b_bytes + p->sums_bytes; }

size_t ndp_bgemm_scratch(const ndp_gemm_shape *s) {
    plan p = plan_of(s);
    return (size_t)s->threads * thread_bytes(&p);
}

/* Packing ---------------------------------------------------------------------------------------------------------- */

/* A, or B, as stored: [size][k] or [k][size]. */
typedef struct operand {
    const bf16 *data;
    int64_t ld, size, k;
    bool k_first; /* [k][size] */
    bool paired;  /* B */
} operand;

static inline uint32_t halves(int64_t n) { return n >= 2 * LANES ? ~0u : n > 0 ? (1u << n) - 1 : 0; }

/* Sixteen rows or columns from i on, 32 k's from p on, become a tile. */
static void pack_tile(const operand *x, int64_t i, int64_t p, bf16 *to) {
    __m512 r[LANES];
    if (x->k_first) {
        const bf16 *from = x->data + p * x->ld + i;
        __mmask16 kept = lanes(x->size - i);
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++, from += 2 * x->ld) {
            __m256i even = _mm256_maskz_loadu_epi16(p + 2 * j < x->k ? kept : 0, from);
            __m256i odd = _mm256_maskz_loadu_epi16(p + 2 * j + 1 < x->k ? kept : 0, from + x->ld);
            __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16);
            r[j] = _mm512_castsi512_ps(_mm512_or_si512(high, _mm512_cvtepu16_epi32(even)));
        }
    } else {
        const bf16 *from = x->data + i * x->ld + p;
        __mmask32 kept = halves(x->k - p);
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++, from += x->ld)
            r[j] = _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(i + j < x->size ? kept : 0, from));
    }
    if (x->k_first != x->paired)
        transpose(r);
#pragma GCC unroll 16
    for (int j = 0; j < LANES; j++)
        _mm512_store_ps((float *)(to + j * DEPTH), r[j]);
}

/* Rows or columns first .. first+n-1, k's p .. p+k-1 become panels or strips. */
static void pack(const operand *x, int64_t first, int64_t n, int64_t p, int64_t k, bf16 *to) {
    int64_t tiles = round_up(n, PANEL) / TILE, steps = k / DEPTH;
    if (x->k_first) /* reads along rows, as memory lies */
        for (int64_t l = 0; l < steps; l++)
            for (int64_t i = 0; i < tiles; i++)
                pack_tile(x, first + i * TILE, p + l * DEPTH, to + (i / 2 * steps * 2 + l * 2 + i % 2) * TILE_SIZE);
    else
        for (int64_t i = 0; i < tiles; i++)
            for (int64_t l = 0; l < steps; l++)
                pack_tile(x, first + i * TILE, p + l * DEPTH, to + (i / 2 * steps * 2 + l * 2 + i % 2) * TILE_SIZE);
}

/* Blocks of C ------------------------------------------------------------------------------------------------------ */

static void tiles_begin(void) {
    static const struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&config);
}

/* [PANEL][STRIP] sums in memory; ld in floats. NULL: zeros. */
typedef struct place {
    float *at;
    int64_t ld;
} place;

/* to = from + panel x strip, both of `steps` times 32 k's. Meanwhile asks for the lines of the `next` block of C. */
static void multiply(int64_t steps, const bf16 *a, const bf16 *b, place from, place to, const char *next,
                     int64_t next_row) {
    int64_t row = from.ld * (int64_t)sizeof(float), asks = next ? (PANEL + steps - 1) / steps : 0;
    __asm__ volatile("" ::: "memory"); /* gcc does not know that tile loads read memory */
    if (from.at) {
        _tile_loadd(0, from.at, row);
        _tile_loadd(1, from.at + TILE, row);
        _tile_loadd(2, from.at + TILE * from.ld, row);
        _tile_loadd(3, from.at + TILE * from.ld + TILE, row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t i = 0; i < steps; i++, a += 2 * TILE_SIZE, b += 2 * TILE_SIZE) {
        _tile_loadd(4, a, 64);
        _tile_loadd(5, a + TILE_SIZE, 64);
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + TILE_SIZE, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        for (int64_t l = i * asks; l < (i + 1) * asks && l < PANEL; l++) {
            __builtin_prefetch(next + l * next_row, 1, 3);
            __builtin_prefetch(next + l * next_row + 64, 1, 3);
        }
    }
    row = to.ld * (int64_t)sizeof(float);
    _tile_stored(0, to.at, row);
    _tile_stored(1, to.at + TILE, row);
    _tile_stored(2, to.at + TILE * to.ld, row);
    _tile_stored(3, to.at + TILE * to.ld + TILE, row);
}

/* The part of C that a block has, rows x cols, as [PANEL][STRIP] in fp32, and back. */
static void fetch(const ndp_gemm_shape *s, const char *c, int64_t rows, int64_t cols, float *t) {
    __mmask16 left = lanes(cols), right = lanes(cols - LANES);
    for (int64_t i = 0; i < rows; i++, t += STRIP)
        if (s->c == NDP_F32) {
            const float *from = (const float *)c + i * s->ldc;
            _mm512_store_ps(t, _mm512_maskz_loadu_ps(left, from));
            _mm512_store_ps(t + LANES, _mm512_maskz_loadu_ps(right, from + LANES));
        } else {
            const bf16 *from = (const bf16 *)c + i * s->ldc;
            __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(left, from));
            __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(right, from + LANES));
            _mm512_store_si512(t, _mm512_slli_epi32(low, 16));
            _mm512_store_si512(t + LANES, _mm512_slli_epi32(high, 16));
        }
}

static void give(const ndp_gemm_shape *s, const float *t, char *c, int64_t rows, int64_t cols) {
    __mmask16 left = lanes(cols), right = lanes(cols - LANES);
    for (int64_t i = 0; i < rows; i++, t += STRIP) {
        __m512 low = _mm512_load_ps(t), high = _mm512_load_ps(t + LANES);
        if (s->c == NDP_F32) {
            float *to = (float *)c + i * s->ldc;
            _mm512_mask_storeu_ps(to, left, low);
            _mm512_mask_storeu_ps(to + LANES, right, high);
        } else
            _mm512_mask_storeu_epi16((bf16 *)c + i * s->ldc, halves(cols), (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
}

/* A part of k: its place in its sum. */
typedef struct stage {
    int64_t steps;
    bool first, last; /* from C; to C */
    bool add;         /* the first: C counts */
} stage;

/* One block of C, of which rows x cols are real; `sums` waits between parts of k. */
static void block(const ndp_gemm_shape *s, stage k, const bf16 *a, const bf16 *b, char *c, int64_t rows, int64_t cols,
                  float *sums) {
    bool direct = s->c == NDP_F32 && rows >= PANEL && cols >= STRIP;
    place wait = {sums, STRIP}, home = direct ? (place){(float *)c, s->ldc} : wait;
    place from = !k.first ? wait : k.add ? home : (place){NULL, 0};
    int64_t c_row = s->ldc * (int64_t)ndp_dtype_size(s->c);
    bool touches = k.last || (k.first && k.add);
    if (k.first && k.add && !direct)
        fetch(s, c, smaller(rows, PANEL), cols, sums);
    multiply(k.steps, a, b, from, k.last ? home : wait, touches && rows >= 2 * PANEL ? c + PANEL * c_row : NULL, c_row);
    if (k.last && !direct)
        give(s, sums, c, smaller(rows, PANEL), cols);
}

/* Threads ---------------------------------------------------------------------------------------------------------- */

typedef struct job {
    const ndp_gemm_shape *shape;
    plan plan;
    operand a, b;
    char *c;
    bf16 *packed_a, *packed_b;
    float *sums;
} job;

/* One strip of a piece: columns col .. col+left-1 of C, rows m, k's of the block p .. p+k-1; pb: the packed strip. */
static void run_strip(const job *j, range m, int64_t col, int64_t left, int64_t p, int64_t k, const bf16 *pb,
                      float *sums) {
    const ndp_gemm_shape *s = j->shape;
    int64_t depth = round_up(k, DEPTH), part_k = j->plan.k_part;
    bool from_c = p == 0 || !j->plan.wide_sums, to_c = p + k == s->k || !j->plan.wide_sums;
    for (int64_t q = 0; q < depth; q += part_k) {
        stage at = {.steps = smaller(part_k, depth - q) / DEPTH,
                    .first = q == 0 && from_c,
                    .last = q + part_k >= depth && to_c,
                    .add = s->accumulate || p > 0};
        for (int64_t row = m.first; row < m.last; row += PANEL)
            block(s, at, j->packed_a + (row - m.first) * depth + q * PANEL, pb + q * STRIP,
                  j->c + (size_t)(row * s->ldc + col) * ndp_dtype_size(s->c), m.last - row, left,
                  sums + (row - m.first) * STRIP);
    }
}

/* Rows m, columns n, k's from p on: at most a piece, a chunk, a block. */
static void run_block_of_k(const job *j, range m, range n, int64_t p, int64_t k, bool b_is_packed) {
    int64_t depth = round_up(k, DEPTH), rows = round_up(m.last - m.first, PANEL);
    pack(&j->a, m.first, m.last - m.first, p, depth, j->packed_a);
    for (int64_t col = n.first; col < n.last; col += STRIP) {
        int64_t strip = (col - n.first) / STRIP, slot = j->plan.keeps_b ? strip : strip % GROUP;
        bf16 *pb = j->packed_b + slot * STRIP * depth;
        if (strip % GROUP == 0 && !b_is_packed)
            pack(&j->b, col, smaller(n.last - col, GROUP * STRIP), p, depth, pb);
        run_strip(j, m, col, n.last - col, p, k, pb, j->sums + (j->plan.wide_sums ? strip * rows * STRIP : 0));
    }
}

static void run_part(const job *j, range m, range n) {
    const plan *p = &j->plan;
    int64_t k = j->shape->k;
    tiles_begin();
    for (int64_t col = n.first; col < n.last; col += p->cols)
        for (int64_t row = m.first; row < m.last; row += p->rows)
            for (int64_t l = 0; l < k; l += p->k)
                run_block_of_k(j, (range){row, smaller(m.last, row + p->rows)},
                               (range){col, smaller(n.last, col + p->cols)}, l, smaller(p->k, k - l),
                               p->keeps_b && row > m.first);
    _tile_release();
}

/* A thread's view of the product, with its part of the scratch memory. */
static job job_of(const ndp_gemm_shape *s, const bf16 *a, const bf16 *b, void *c, void *scratch, int thread) {
    plan p = plan_of(s);
    char *own = (char *)scratch + (size_t)thread * thread_bytes(&p);
    return (job){
        .shape = s,
        .plan = p,
        .a = {.data = a, .ld = s->lda, .size = s->m, .k = s->k, .k_first = s->trans_a},
        .b = {.data = b, .ld = s->ldb, .size = s->n, .k = s->k, .k_first = !s->trans_b, .paired = true},
        .c = c,
        .packed_a = (bf16 *)own,
        .packed_b = (bf16 *)(own + p.a_bytes),
        .sums = (float *)(own + p.a_bytes + p.b_bytes),
    };
}

void ndp_bgemm_run(const ndp_gemm_shape *s, const bf16 *a, const bf16 *b, void *c, void *scratch) {
    if (s->threads == 1) {
        job j = job_of(s, a, b, c, scratch, 0);
        run_part(&j, (range){0, s->m}, (range){0, s->n});
        return;
    }
#pragma omp parallel num_threads(s->threads)
    {
        int threads = omp_get_num_threads(), i = omp_get_thread_num(), r = thread_rows(s, threads);
        int columns = threads / r;
        job j = job_of(s, a, b, c, scratch, i);
        run_part(&j, part(s->m, PANEL, i / columns, r), part(s->n, STRIP, i % columns, columns));
    }
}
