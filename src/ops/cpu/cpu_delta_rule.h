/* One call of delta_rule or delta_rule_bwd, cut into tasks: a key head with all of its value heads, in one document.
 * Tasks are independent, and each is computed by one thread, so the number of threads changes no bit. The products of
 * a chunk that depend on q and k alone are made once for all of these heads. */
#ifndef NDP_OPS_CPU_CPU_DELTA_RULE_H
#define NDP_OPS_CPU_CPU_DELTA_RULE_H

#include "ops/delta_rule.h"

enum {
    NDP_DELTA_BAND = 16,    /* rows and columns in buffers are multiples of it; the triangles are cut into such bands */
    NDP_DELTA_FEW_ROWS = 8, /* of a chunk, with split sums, times their place: 8 .. 48 */
};

/* Columns of a head, in buffers, and from one row to the next there: a power of two would be a few sets of a cache. */
typedef struct ndp_delta_cols {
    int n, pad, ld;
} ndp_delta_cols;

typedef struct ndp_delta {
    ndp_view q, k, v, g, b, o;
    ndp_view d_o, dq, dk, dv, dg, db; /* backward only */
    ndp_view states, after;           /* of pieces: states before, gradients of those after; or what is made of each */
    ndp_delta_cols of_q, of_v;        /* of q, k and theirs; of v, o, states and theirs */
    int v_dim, heads, group;          /* columns of v, its other ones are 0; value heads, those of a key head */
    int64_t rows, chunk;              /* of the longest document here; of a chunk, at most */
} ndp_delta;

/* Rows [first, end) of a document, of piece `piece`. */
typedef struct ndp_delta_task {
    int64_t key_head, first, end, piece;
    bool goes_on, last; /* from the piece before; what stands after its end reads its state */
} ndp_delta_task;

/* One instruction set. `work`: of a thread, as many floats as below; 64-byte aligned. */
typedef struct ndp_delta_kernels {
    void (*forward)(const ndp_delta *d, const ndp_delta_task *t, void *work);
    void (*backward)(const ndp_delta *d, const ndp_delta_task *t, void *work);
    void (*map)(const ndp_delta *d, const ndp_delta_task *t, void *work);
    void (*map_back)(const ndp_delta *d, const ndp_delta_task *t, void *work);
    /* s [D][E] = from + a s, or from + a^T s: rows of maps, and a buffer for s as it was and one for a */
    void (*compose)(const ndp_delta *d, const ndp_view *from, const ndp_view *a, int64_t row, bool back, float *s,
                    void *work);
} ndp_delta_kernels;

extern const ndp_delta_kernels ndp_delta_generic, ndp_delta_avx512;
/* Those for this CPU (cpu_choice_x86.c, cpu_choice_arm.c). */
const ndp_delta_kernels *ndp_delta_best(void);

/* Floats of a chunk's rows of q or v, of these transposed, of a triangle, of a state. */
static inline int64_t ndp_delta_rows(ndp_delta_cols c) { return NDP_DELTA_CHUNK * (int64_t)c.ld; }
static inline int64_t ndp_delta_columns(ndp_delta_cols c) { return NDP_DELTA_CHUNK * (int64_t)c.pad; }
enum { NDP_DELTA_SQUARE = NDP_DELTA_CHUNK * NDP_DELTA_CHUNK };
static inline int64_t ndp_delta_state(const ndp_delta *d) { return (int64_t)d->of_q.pad * d->of_v.ld; }

/* Of all chunks of the longest document, for each value head: the state before it, and U. */
static inline int64_t ndp_delta_kept(const ndp_delta *d) {
    return (d->rows + d->chunk - 1) / d->chunk * d->group * (ndp_delta_state(d) + ndp_delta_rows(d->of_v));
}

static inline int64_t ndp_delta_forward_floats(const ndp_delta *d) {
    return 2 * ndp_delta_rows(d->of_q) + ndp_delta_columns(d->of_q) + 5 * NDP_DELTA_SQUARE +
           2 * ndp_delta_rows(d->of_v) + d->group * ndp_delta_state(d);
}
/* Of a map, and of one back. */
static inline int64_t ndp_delta_map_floats(const ndp_delta *d) {
    return 2 * ndp_delta_rows(d->of_q) + ndp_delta_columns(d->of_q) + 5 * NDP_DELTA_SQUARE +
           3 * ndp_delta_rows(d->of_v) + d->group * ndp_delta_state(d);
}
/* Of composed maps: the state, and the buffers. */
static inline int64_t ndp_delta_compose_floats(const ndp_delta *d) {
    return 2 * ndp_delta_state(d) + (int64_t)d->of_q.pad * d->of_q.ld;
}
static inline int64_t ndp_delta_backward_floats(const ndp_delta *d) {
    return 3 * ndp_delta_rows(d->of_q) + 5 * ndp_delta_columns(d->of_q) + 10 * NDP_DELTA_SQUARE +
           3 * ndp_delta_rows(d->of_v) + ndp_delta_columns(d->of_v) + d->group * ndp_delta_state(d) + ndp_delta_kept(d);
}

#endif
