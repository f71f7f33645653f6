/* C [m,n] (+)= A [m,k] B [k,n] in bf16, summed in fp32.
 *
 * A tile product is C [16][16] += A [16][32] x B [16][16][2], where B's row i holds rows 2i and 2i + 1, interleaved. A
 * block of C, PANEL rows x STRIP columns, is four tiles; per step of 32 k's it takes two tiles of A and two of B. These
 * are copied ("packed") beforehand, filled up with 0: a panel of A and a strip of B are both [k / 32][2] tiles.
 *
 *   for each piece of rows, each chunk of columns, each block of k:
 *     pack A's piece, which stays in the L2 cache
 *     for each few strips:                           pack them
 *       for each strip, which stays in the L1 cache:
 *         for each panel of the piece:               one block of C
 *
 * Between blocks of k the sums of a bf16 C wait in scratch memory, in fp32; those of an fp32 C wait in C. Every element
 * is one sum over k in order, whatever the blocks and the threads, which share out rows and columns, each with buffers
 * of its own. */
#include "ops/cpu/bgemm.h"

#include "ops/cpu/gemm_block.h"

#include <omp.h>

enum {
    TILE = 16,
    DEPTH = 32,               /* k's of a tile */
    TILE_SIZE = TILE * DEPTH, /* elements */
    PANEL = 2 * TILE,
    STRIP = 2 * TILE,
    BLOCK = PANEL * STRIP, /* of C: elements */
    K_BLOCK = 576,
    PIECE = 32 * PANEL,
    CHUNK = 64 * STRIP,
    STRIPS = 8, /* packed at a time */
};

typedef uint16_t bf16;

static int64_t k_block(int64_t k) { return round_up(equal_block(k, K_BLOCK), DEPTH); }

static bool keeps_sums(const ndp_gemm_shape *s) { return s->c == NDP_BF16 && s->k > k_block(s->k); }

/* Bytes of a thread's packed piece of A, strips of B and sums: multiples of 64. */
typedef struct sizes {
    size_t a, b, sums;
} sizes;

static sizes sizes_of(const ndp_gemm_shape *s) {
    int64_t rows = smaller(PIECE, round_up(s->m, PANEL)), cols = smaller(CHUNK, round_up(s->n, STRIP));
    return (sizes){.a = (size_t)(rows * k_block(s->k)) * sizeof(bf16),
                   .b = (size_t)(smaller(cols, STRIPS * STRIP) * k_block(s->k)) * sizeof(bf16),
                   .sums = keeps_sums(s) ? (size_t)(rows * cols) * sizeof(float) : 0};
}

static size_t thread_bytes(const ndp_gemm_shape *s) {
    sizes z = sizes_of(s);
    return z.a + z.b + z.sums;
}

size_t ndp_bgemm_scratch(const ndp_gemm_shape *s) { return (size_t)s->threads * thread_bytes(s); }

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

/* c [PANEL][STRIP] (+)= panel x strip, both of `steps` times 32 k's. */
static void multiply(int64_t steps, const bf16 *a, const bf16 *b, float *c, int64_t ldc, bool add) {
    const int64_t row = ldc * (int64_t)sizeof(float);
    __asm__ volatile("" ::: "memory"); /* gcc does not know that tile loads read memory */
    if (add) {
        _tile_loadd(0, c, row);
        _tile_loadd(1, c + TILE, row);
        _tile_loadd(2, c + TILE * ldc, row);
        _tile_loadd(3, c + TILE * ldc + TILE, row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (; steps > 0; steps--, a += 2 * TILE_SIZE, b += 2 * TILE_SIZE) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + TILE_SIZE, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + TILE_SIZE, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, row);
    _tile_stored(1, c + TILE, row);
    _tile_stored(2, c + TILE * ldc, row);
    _tile_stored(3, c + TILE * ldc + TILE, row);
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

/* Where a block of k lies in its sum. */
typedef struct stage {
    int64_t steps;
    bool first, last;
} stage;

/* One block of C, of which rows x cols are real. `sums` waits between blocks of k; NULL: C itself waits. */
static void block(const ndp_gemm_shape *s, stage k, const bf16 *a, const bf16 *b, char *c, int64_t rows, int64_t cols,
                  float *sums) {
    bool add = s->accumulate || !k.first;
    if (s->c == NDP_F32 && rows >= PANEL && cols >= STRIP) {
        multiply(k.steps, a, b, (float *)c, s->ldc, add);
        return;
    }
    float own[BLOCK] __attribute__((aligned(64))), *t = sums ? sums : own;
    if (add && (k.first || !sums))
        fetch(s, c, smaller(rows, PANEL), cols, t);
    multiply(k.steps, a, b, t, STRIP, add);
    if (k.last || !sums)
        give(s, t, c, smaller(rows, PANEL), cols);
}

/* Threads ---------------------------------------------------------------------------------------------------------- */

typedef struct job {
    const ndp_gemm_shape *shape;
    operand a, b;
    char *c;
    bf16 *packed_a, *packed_b;
    float *sums;
} job;

/* Rows m, columns n, k's from p on: at most a piece, a chunk, a block. */
static void run_block_of_k(const job *j, range m, range n, int64_t p, int64_t k) {
    const ndp_gemm_shape *s = j->shape;
    stage at = {round_up(k, DEPTH) / DEPTH, p == 0, p + k == s->k};
    int64_t depth = at.steps * DEPTH, panels = (m.last - m.first + PANEL - 1) / PANEL;
    pack(&j->a, m.first, m.last - m.first, p, depth, j->packed_a);
    for (int64_t col = n.first; col < n.last; col += STRIP) {
        int64_t strip = (col - n.first) / STRIP, left = n.last - col;
        if (strip % STRIPS == 0)
            pack(&j->b, col, smaller(left, STRIPS * STRIP), p, depth, j->packed_b);
        for (int64_t i = 0; i < panels; i++)
            block(s, at, j->packed_a + i * PANEL * depth, j->packed_b + strip % STRIPS * STRIP * depth,
                  j->c + (size_t)((m.first + i * PANEL) * s->ldc + col) * ndp_dtype_size(s->c),
                  m.last - m.first - i * PANEL, left, j->sums ? j->sums + (strip * panels + i) * BLOCK : NULL);
    }
}

static void run_part(const job *j, range m, range n) {
    int64_t k = j->shape->k, depth = k_block(k);
    tiles_begin();
    for (int64_t row = m.first; row < m.last; row += PIECE)
        for (int64_t col = n.first; col < n.last; col += CHUNK)
            for (int64_t p = 0; p < k; p += depth)
                run_block_of_k(j, (range){row, smaller(m.last, row + PIECE)},
                               (range){col, smaller(n.last, col + CHUNK)}, p, smaller(depth, k - p));
    _tile_release();
}

/* A thread's view of the product, with its part of the scratch memory. */
static job job_of(const ndp_gemm_shape *s, const bf16 *a, const bf16 *b, void *c, void *scratch, int thread) {
    sizes z = sizes_of(s);
    char *own = (char *)scratch + (size_t)thread * thread_bytes(s);
    return (job){
        .shape = s,
        .a = {.data = a, .ld = s->lda, .size = s->m, .k = s->k, .k_first = s->trans_a},
        .b = {.data = b, .ld = s->ldb, .size = s->n, .k = s->k, .k_first = !s->trans_b, .paired = true},
        .c = c,
        .packed_a = (bf16 *)own,
        .packed_b = (bf16 *)(own + z.a),
        .sums = z.sums ? (float *)(own + z.a + z.b) : NULL,
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
