/* C [m,n] (+)= A [m,k] B [k,n] in bf16, summed in fp32.
 *
 * A tile product is C [16][16] += A [16][32] x B [16][16][2], where B's row i holds rows 2i and 2i + 1, interleaved. A
 * block of C, PANEL rows x STRIP columns, is four tiles; per step of 32 k's it takes two tiles of A and two of B. These
 * are copied ("packed") beforehand, filled up with 0: a panel of A and a strip of B are both [k / 32][2] tiles.
 *
 *   for each chunk of columns, each piece of rows, each block of k:
 *     pack A's piece, which stays in the L2 cache
 *     for each group of strips:                      pack it, unless an earlier piece has
 *       for each strip, for each part of k:
 *         for each panel of the piece:               one block of C
 *
 * Part: so short that a strip's stays in the L1 cache, past which panels are loaded. Between parts of k the sums of a
 * strip wait in scratch memory, in fp32, and so do those of a bf16 C between blocks of k. Every element is one sum over
 * k in order, whatever the blocks and the threads, which divide rows and columns among them; each has buffers of its
 * own.
 *
 * cpu_gemm.c calls the kernel where tiles are the fastest way to multiply bf16 (ndp_cpu_bf16_way). */
#include "ops/cpu/cpu_gemm_block.h"
#include "ops/cpu/cpu_gemm_kernel.h"

#include <omp.h>

enum {
    TILE = 16,
    DEPTH = 32,               /* k's of a tile */
    TILE_SIZE = TILE * DEPTH, /* elements */
    PANEL = 2 * TILE,
    STRIP = 2 * TILE,
    K_BLOCK = 1024,
    K_PART = 640,
    GROUP = 18 * STRIP, /* columns of B packed at a time */
    CHUNK = 3 * GROUP,
    PIECE = 512 * 1024, /* elements of A: 1 MiB */
    AHEAD = 128,        /* elements of a row, prefetched */
    CACHED = 16 << 20,  /* bytes: a larger C goes past the caches, which it would fill before anybody reads it */
};

/* How a product of at most m rows and n columns is cut, and the bytes of its buffers: multiples of 64. */
typedef struct amx_plan {
    int64_t rows, cols, k, k_part; /* of a piece, chunk, block and part; k's are multiples of DEPTH */
    bool wide_sums;                /* of the whole piece and chunk, not of one strip */
    bool keeps_b;                  /* packed, for the next piece */
    bool past_caches;              /* C */
    size_t a_bytes, b_bytes, sums_bytes;
} amx_plan;

static amx_plan plan_of(const ndp_gemm_shape *s) {
    amx_plan p = {.k = round_up(equal_block(s->k, K_BLOCK), DEPTH), .cols = smaller(CHUNK, round_up(s->n, STRIP))};
    p.k_part = round_up(equal_block(p.k, K_PART), DEPTH);
    p.rows = round_up(equal_block(s->m, PIECE / p.k), PANEL);
    p.wide_sums = s->c == NDP_BF16 && s->k > p.k;
    p.keeps_b = s->m > p.rows && s->k <= p.k;
    p.past_caches = (size_t)(s->m * s->n) * ndp_dtype_size(s->c) > CACHED;
    p.a_bytes = (size_t)(p.rows * p.k) * sizeof(uint16_t);
    p.b_bytes = (size_t)((p.keeps_b ? p.cols : smaller(p.cols, GROUP)) * p.k) * sizeof(uint16_t);
    p.sums_bytes = (size_t)(p.rows * (p.wide_sums ? p.cols : STRIP)) * sizeof(float);
    return p;
}

static size_t thread_bytes(const amx_plan *p) { return p->a_bytes + p->b_bytes + p->sums_bytes; }

static size_t scratch_bytes(const ndp_gemm_shape *s) {
    amx_plan p = plan_of(s);
    return (size_t)s->threads * thread_bytes(&p);
}

/* Of the blocks of k of any smaller product the largest, and all rows as one piece: a piece is shorter for some larger
 * m or k, but never longer than that. A product keeps B if it has more rows than a piece. */
static size_t most_bytes(const ndp_gemm_shape *s) {
    int64_t k = smaller(round_up(s->k, DEPTH), K_BLOCK), rows = round_up(s->m, PANEL);
    int64_t cols = smaller(CHUNK, round_up(s->n, STRIP));
    bool waits = s->c == NDP_BF16 && s->k > K_BLOCK;
    amx_plan p = {.a_bytes = (size_t)(rows * k) * sizeof(uint16_t), .b_bytes = (size_t)(cols * k) * sizeof(uint16_t)};
    p.sums_bytes = (size_t)(rows * (waits ? cols : STRIP)) * sizeof(float);
    return thread_bytes(&p);
}

/* Packing ---------------------------------------------------------------------------------------------------------- */

/* A, or B, as stored: [size][k] or [k][size]. */
typedef struct amx_operand {
    const uint16_t *data;
    int64_t ld, size, k;
    bool k_first; /* [k][size] */
    bool paired;  /* B */
} amx_operand;

/* Sixteen rows or columns from i on, 32 k's from p on, become a tile. */
static void pack_tile(const amx_operand *x, int64_t i, int64_t p, uint16_t *to) {
    const int64_t ahead = x->k_first ? AHEAD : TILE * x->ld; /* elements to a later tile's */
    __m512 r[LANES];
    if (x->k_first) {
        const uint16_t *from = x->data + p * x->ld + i;
        __mmask16 kept = lanes(x->size - i);
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++, from += 2 * x->ld) {
            _mm_prefetch((const char *)(from + ahead), _MM_HINT_T0);
            _mm_prefetch((const char *)(from + x->ld + ahead), _MM_HINT_T0);
            r[j] = load_paired(from, p + 2 * j < x->k ? kept : 0, from + x->ld, p + 2 * j + 1 < x->k ? kept : 0);
        }
    } else {
        const uint16_t *from = x->data + i * x->ld + p;
        __mmask32 kept = halves(x->k - p);
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++, from += x->ld) {
            _mm_prefetch((const char *)(from + ahead), _MM_HINT_T0);
            r[j] = _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(i + j < x->size ? kept : 0, from));
        }
    }
    if (x->k_first != x->paired)
        transpose(r);
#pragma GCC unroll 16
    for (int j = 0; j < LANES; j++)
        _mm512_store_ps((float *)(to + j * DEPTH), r[j]);
}

/* Rows or columns first .. first+n-1, 32 k's per step from p on, become panels or strips. */
static void pack_part(const amx_operand *x, int64_t first, int64_t n, int64_t p, int64_t steps, uint16_t *to) {
    int64_t tiles = round_up(n, PANEL) / TILE;
    if (x->k_first) /* reads along rows, in the order of memory */
        for (int64_t l = 0; l < steps; l++)
            for (int64_t i = 0; i < tiles; i++)
                pack_tile(x, first + i * TILE, p + l * DEPTH, to + (i / 2 * steps * 2 + l * 2 + i % 2) * TILE_SIZE);
    else
        for (int64_t i = 0; i < tiles; i++)
            for (int64_t l = 0; l < steps; l++)
                pack_tile(x, first + i * TILE, p + l * DEPTH, to + (i / 2 * steps * 2 + l * 2 + i % 2) * TILE_SIZE);
}

/* Part by part. */
static void pack(const amx_operand *x, range i, range k, int64_t k_part, uint16_t *to) {
    int64_t n = i.last - i.first, size = round_up(n, PANEL);
    for (int64_t p = k.first; p < k.last; p += k_part)
        pack_part(x, i.first, n, p, round_up(smaller(k_part, k.last - p), DEPTH) / DEPTH, to + (p - k.first) * size);
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
typedef struct amx_place {
    float *at;
    int64_t ld;
} amx_place;

/* The rows of a block of C, `stride` bytes apart, of one cache line (bf16) or two. */
typedef struct lines {
    const char *at;
    int64_t stride, rows;
    bool two;
} lines;

/* to = from + panel x strip, both of `steps` times 32 k's. Meanwhile asks for the lines of the `next` block of C. The
 * panel is read once, so its tiles are loaded past the L1 cache, which keeps the strip for all panels. */
static void multiply(int64_t steps, const uint16_t *a, const uint16_t *b, amx_place from, amx_place to, lines next) {
    int64_t row = from.ld * (int64_t)sizeof(float), asks = (next.rows + steps - 1) / steps, asked = 0;
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
        _tile_stream_loadd(4, a, 64);
        _tile_stream_loadd(5, a + TILE_SIZE, 64);
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + TILE_SIZE, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        for (int64_t end = smaller(asked + asks, next.rows); asked < end; asked++) {
            __builtin_prefetch(next.at + asked * next.stride, 1, 3);
            if (next.two)
                __builtin_prefetch(next.at + asked * next.stride + 64, 1, 3);
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
        put_fp32(t, 0xffff, 0xffff,
                 s->c == NDP_F32 ? get_fp32((const float *)c + i * s->ldc, left, right)
                                 : get_bf16((const uint16_t *)c + i * s->ldc, left, right));
}

/* Sixteen numbers; only whole cache lines can go past the caches. */
static inline void put(void *to, __mmask16 kept, __m512 x, bool past_caches) {
    if (past_caches && kept == 0xffff && (uintptr_t)to % 64 == 0)
        _mm512_stream_ps(to, x);
    else
        _mm512_mask_storeu_ps(to, kept, x);
}

static void give(const ndp_gemm_shape *s, const float *t, char *c, int64_t rows, int64_t cols, bool past_caches) {
    __mmask16 left = lanes(cols), right = lanes(cols - LANES);
    for (int64_t i = 0; i < rows; i++, t += STRIP) {
        __m512 low = _mm512_load_ps(t), high = _mm512_load_ps(t + LANES);
        if (s->c == NDP_F32) {
            put((float *)c + i * s->ldc, left, low, past_caches);
            put((float *)c + i * s->ldc + LANES, right, high, past_caches);
        } else {
            uint16_t *to = (uint16_t *)c + i * s->ldc;
            __m512 both = (__m512)_mm512_cvtne2ps_pbh(high, low);
            if (cols >= STRIP)
                put(to, 0xffff, both, past_caches);
            else
                _mm512_mask_storeu_epi16(to, halves(cols), _mm512_castps_si512(both));
        }
    }
}

/* A part of k: its place in its sum. */
typedef struct amx_stage {
    int64_t steps;
    bool first, last; /* from C; to C */
    bool add;         /* the first: C counts */
    bool past_caches; /* C */
} amx_stage;

/* One block of C, of which rows x cols are real; `sums` waits between parts of k. */
static void block(const ndp_gemm_shape *s, amx_stage k, const uint16_t *a, const uint16_t *b, char *c, int64_t rows,
                  int64_t cols, float *sums) {
    bool direct = s->c == NDP_F32 && k.add && rows >= PANEL && cols >= STRIP;
    amx_place wait = {sums, STRIP}, home = direct ? (amx_place){(float *)c, s->ldc} : wait;
    amx_place from = !k.first ? wait : k.add ? home : (amx_place){NULL, 0};
    int64_t c_row = s->ldc * (int64_t)ndp_dtype_size(s->c);
    bool touched = direct ? k.first || k.last : k.last && !k.past_caches;
    lines next = {c + PANEL * c_row, c_row, touched ? smaller(rows - PANEL, PANEL) : 0, s->c == NDP_F32};
    if (k.first && k.add && !direct)
        fetch(s, c, smaller(rows, PANEL), cols, sums);
    multiply(k.steps, a, b, from, k.last ? home : wait, next);
    if (k.last && !direct)
        give(s, sums, c, smaller(rows, PANEL), cols, k.past_caches);
}

/* Threads ---------------------------------------------------------------------------------------------------------- */

typedef struct amx_job {
    const ndp_gemm_shape *shape;
    amx_plan plan;
    amx_operand a, b;
    char *c;
    uint16_t *packed_a, *packed_b;
    float *sums;
} amx_job;

/* A piece, a group of columns, a block of k. */
typedef struct task {
    range m, n, k;
    int64_t rows, cols; /* of them as packed */
    const uint16_t *b;
} task;

/* The strip of the columns from `col` on: part by part of k, all blocks of C. */
static void run_strip(const amx_job *j, const task *w, int64_t col, float *sums) {
    const ndp_gemm_shape *s = j->shape;
    bool wide = j->plan.wide_sums;
    for (int64_t p = w->k.first; p < w->k.last; p += j->plan.k_part) {
        int64_t depth = round_up(smaller(j->plan.k_part, w->k.last - p), DEPTH), before = p - w->k.first;
        const uint16_t *a = j->packed_a + before * w->rows;
        const uint16_t *b = w->b + before * w->cols + (col - w->n.first) * depth;
        amx_stage at = {.steps = depth / DEPTH,
                        .first = wide ? p == 0 : p == w->k.first,
                        .last = p + depth >= (wide ? s->k : w->k.last),
                        .add = s->accumulate || (!wide && w->k.first > 0),
                        .past_caches = j->plan.past_caches};
        for (int64_t i = 0; i < w->rows; i += PANEL)
            block(s, at, a + i * depth, b, j->c + (size_t)((w->m.first + i) * s->ldc + col) * ndp_dtype_size(s->c),
                  w->m.last - w->m.first - i, w->n.last - col, sums + i * STRIP);
    }
}

/* A piece, a chunk, a block of k. */
static void run_block_of_k(const amx_job *j, range m, range n, range k, bool b_is_packed) {
    const amx_plan *p = &j->plan;
    int64_t rows = round_up(m.last - m.first, PANEL), depth = round_up(k.last - k.first, DEPTH);
    pack(&j->a, m, k, p->k_part, j->packed_a);
    for (int64_t first = n.first; first < n.last; first += GROUP) {
        range group = {first, smaller(n.last, first + GROUP)};
        uint16_t *b = j->packed_b + (p->keeps_b ? (first - n.first) * depth : 0);
        task w = {m, group, k, rows, round_up(group.last - group.first, STRIP), b};
        if (!b_is_packed)
            pack(&j->b, group, k, p->k_part, b);
        for (int64_t col = first; col < group.last; col += STRIP)
            run_strip(j, &w, col, j->sums + (p->wide_sums ? (col - n.first) * rows : 0));
    }
}

static void run_part(const amx_job *j, range m, range n) {
    const amx_plan *p = &j->plan;
    int64_t k = j->shape->k;
    tiles_begin();
    for (int64_t col = n.first; col < n.last; col += p->cols)
        for (int64_t row = m.first; row < m.last; row += p->rows)
            for (int64_t l = 0; l < k; l += p->k)
                run_block_of_k(j, (range){row, smaller(m.last, row + p->rows)},
                               (range){col, smaller(n.last, col + p->cols)}, (range){l, smaller(k, l + p->k)},
                               p->keeps_b && row > m.first);
    _tile_release();
    _mm_sfence(); /* others see what went past the caches */
}

/* A thread's view of the product, with its part of the scratch memory. */
static amx_job job_of(const ndp_gemm_shape *s, const uint16_t *a, const uint16_t *b, void *c, void *scratch,
                      int thread) {
    amx_plan p = plan_of(s);
    char *own = (char *)scratch + (size_t)thread * thread_bytes(&p);
    return (amx_job){
        .shape = s,
        .plan = p,
        .a = {.data = a, .ld = s->lda, .size = s->m, .k = s->k, .k_first = s->trans_a},
        .b = {.data = b, .ld = s->ldb, .size = s->n, .k = s->k, .k_first = !s->trans_b, .paired = true},
        .c = c,
        .packed_a = (uint16_t *)own,
        .packed_b = (uint16_t *)(own + p.a_bytes),
        .sums = (float *)(own + p.a_bytes + p.b_bytes),
    };
}

static void run(const ndp_gemm_shape *s, const void *a, const void *b, void *c, void *scratch) {
    if (s->threads == 1) {
        amx_job j = job_of(s, a, b, c, scratch, 0);
        run_part(&j, (range){0, s->m}, (range){0, s->n});
        return;
    }
#pragma omp parallel num_threads(s->threads)
    {
        int threads = omp_get_num_threads(), i = omp_get_thread_num(), r = thread_rows(s, threads);
        int columns = threads / r;
        amx_job j = job_of(s, a, b, c, scratch, i);
        run_part(&j, part(s->m, PANEL, i / columns, r), part(s->n, STRIP, i % columns, columns));
    }
}

const ndp_gemm_kernel ndp_bgemm_amx = {scratch_bytes, most_bytes, run};
