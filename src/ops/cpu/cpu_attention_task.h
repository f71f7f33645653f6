/* One attention call, cut into tasks.
 *
 * The rows of a kv head are the query rows of all heads that share it: row r is token r / group, head kv * group + r %
 * group. So packed keys and values serve the whole group, and a single token (decoding) still fills lanes. Rows go in
 * blocks of NDP_ATT_ROWS, keys in blocks of NDP_ATT_KEYS (fewer with split sums); a task is a few consecutive row
 * blocks of one kv head, from the last rows (with a causal mask the costly ones) to the first.
 *
 * Arithmetic is fp32, and bf16 operands are widened when they are packed. The exception are processors with tiles or a
 * fast dpbf16ps (ndp_cpu_bf16_way, cpu_attention_bf16.h): there products are of bf16 numbers, summed in fp32.
 *
 * Forward tasks are independent. Backward tasks keep dq to themselves and add to dk, dv in the order of their
 * numbers, key block by key block, so the sums do not depend on the number of threads. A task waits for the one before
 * it at each key block; no deadlock is possible, because tasks start in that order too. */
#ifndef NDP_OPS_CPU_CPU_ATTENTION_TASK_H
#define NDP_OPS_CPU_CPU_ATTENTION_TASK_H

#include "ops/op.h"

enum {
    NDP_ATT_ROWS = 64,
    NDP_ATT_KEYS = 64,
    NDP_ATT_FEW_KEYS = 8, /* of a block, with split sums, times their place: 8 .. 48 */
    NDP_ATT_LANES = 16,   /* the widest vector */
    NDP_ATT_TILE = 8,     /* products may write this many rows, rounded up */
    NDP_ATT_TASK_BLOCKS = 4
};

/* What the rows of a block or task see: positions low .. pos. */
typedef struct ndp_att_sight {
    int32_t low_min, low_max, pos_min, pos_max;
} ndp_att_sight;

typedef struct ndp_att_span {
    int32_t min, max; /* key positions of a block */
} ndp_att_span;

/* Columns of a head, and rounded up for the kernels; the rest of a row in a buffer is not used. */
typedef struct ndp_att_cols {
    int n, pad;
} ndp_att_cols;

typedef struct ndp_att {
    const struct ndp_att_kernels *kernels;
    ndp_view q, k, v, o, lse, q_pos, q_low, sink;
    ndp_view d_o, dq, dk, dv; /* backward only */
    ndp_view dk_sum, dv_sum;  /* fp32: dk, dv themselves, or scratch */
    ndp_att_cols of_q, of_v;  /* of q, k and their gradients; of v, o and theirs */
    int dim_pad;              /* of rows in buffers: the larger of both */
    int kv_heads, group, window, task_rows, block_keys;
    int64_t first; /* the sink of head 0 */
    float scale;
    float cap;                  /* of scores as powers of 2; 0: none */
    int64_t rows, keys;         /* rows of a kv head = T x group; S */
    int64_t tasks, key_blocks;  /* of a kv head */
    const int32_t *k_pos;       /* [keys] */
    const ndp_att_span *spans;  /* [key_blocks] */
    const ndp_att_sight *sight; /* [tasks] */
    ndp_att_sight any;          /* of all tasks together */
    char *packed;               /* key block j of kv head h is at (h key_blocks + j) packed_bytes */
    size_t packed_bytes;
    int *done; /* [kv_heads x key_blocks]: 1 + the last task that has added to dk, dv there */
} ndp_att;

/* One direction in one instruction set: all key blocks are packed, then the tasks run. */
typedef struct ndp_att_kernel {
    void (*pack)(const ndp_att *a, int kv, int64_t block); /* NULL: tasks pack for themselves */
    void (*task)(const ndp_att *a, int kv, int64_t task, void *work);
    size_t (*packed_bytes)(const ndp_att *a); /* of a key block; NULL with pack */
    size_t (*work_bytes)(const ndp_att *a);   /* of a thread; 64-byte aligned */
} ndp_att_kernel;

typedef struct ndp_att_kernels {
    ndp_att_kernel forward, backward;
    void (*store)(const ndp_view *v, int64_t row, const float *x); /* a row of v is x, rounded */
    int dim_unit;                                                  /* dim_pad is a multiple of this */
    bool of_bf16;                                                  /* all operands of its products are bf16 */
} ndp_att_kernels;

extern const ndp_att_kernels ndp_att_generic, ndp_att_avx512; /* any operands */
extern const ndp_att_kernels ndp_att_avx512bf16, ndp_att_amx; /* bf16 operands, scale > 0 */

/* Those for this CPU (cpu_choice_x86.c, cpu_choice_arm.c). */
const ndp_att_kernels *ndp_att_kernels_for(ndp_dtype dtype, float scale);

/* Floats of a row block, a key block and a block of scores (see cpu_attention_kernel.h). */
static inline int64_t ndp_att_row_floats(const ndp_att *a) { return NDP_ATT_ROWS * (int64_t)a->dim_pad; }
static inline int64_t ndp_att_key_floats(const ndp_att *a) {
    return (NDP_ATT_KEYS + NDP_ATT_TILE) * (int64_t)a->dim_pad;
}
enum { NDP_ATT_SCORE_FLOATS = (NDP_ATT_KEYS + NDP_ATT_TILE) * NDP_ATT_ROWS };

/* Key block j is keys first .. first + n - 1. */
static inline int64_t ndp_att_key_first(const ndp_att *a, int64_t j) { return j * a->block_keys; }
static inline int64_t ndp_att_key_count(const ndp_att *a, int64_t j) {
    int64_t left = a->keys - j * a->block_keys;
    return left < a->block_keys ? left : a->block_keys;
}

static inline int64_t ndp_att_task_first(const ndp_att *a, int64_t task) {
    return (a->tasks - 1 - task) * a->task_rows;
}

static inline bool ndp_att_touches(ndp_att_sight rows, ndp_att_span keys) {
    return keys.max >= rows.low_min && keys.min <= rows.pos_max;
}

static inline bool ndp_att_sees_all(ndp_att_sight rows, ndp_att_span keys) {
    return keys.min >= rows.low_max && keys.max <= rows.pos_min;
}

/* The positions that token t sees are low .. pos. */
static inline void ndp_att_token(const ndp_att *a, int64_t t, int32_t *low, int32_t *pos) {
    *pos = ((const int32_t *)a->q_pos.data)[t * a->q_pos.ld];
    *low = ((const int32_t *)a->q_low.data)[t * a->q_low.ld];
    int64_t window_low = a->window > 0 ? (int64_t)*pos - a->window + 1 : INT32_MIN;
    if (window_low > *low)
        *low = (int32_t)window_low;
}

static inline void ndp_att_sight_add(ndp_att_sight *s, int32_t low, int32_t pos) {
    s->low_min = low < s->low_min ? low : s->low_min;
    s->low_max = low > s->low_max ? low : s->low_max;
    s->pos_min = pos < s->pos_min ? pos : s->pos_min;
    s->pos_max = pos > s->pos_max ? pos : s->pos_max;
}

#define NDP_ATT_SIGHT_NONE ((ndp_att_sight){INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN})

#endif
