/* Problems that tests of attention solve: operands, positions by pattern, and running them on a device. */
#ifndef NDP_TESTS_ATTENTION_PROBLEM_H
#define NDP_TESTS_ATTENTION_PROBLEM_H

#include "op_test.h"

#include "base/rng.h"

/* WITH_SINKS: added to one of them. */
typedef enum pattern { CAUSAL, DOCUMENTS, ZIGZAG, DECODE, ANYWHERE, PATTERNS, WITH_SINKS = 8 } pattern;

/* `dim` of a spec: of q and k, and VALUES times that of v where it is another. */
enum { VALUES = 1 << 16 };

typedef struct spec {
    int64_t t, s;
    int heads, kv_heads, dim, window;
    pattern pattern;
    ndp_dtype dtype;
    double cap;
} spec;

static inline int q_dim(const spec *x) { return x->dim % VALUES; }
static inline int v_dim(const spec *x) { return x->dim < VALUES ? x->dim : x->dim / VALUES; }
static inline bool has_sinks(const spec *x) { return x->pattern >= WITH_SINKS; }

enum { Q, K, V, Q_POS, Q_LOW, K_POS, SINK, O, LSE, D_O, DQ, DK, DV, DSINK, TENSORS };

typedef struct problem {
    ndp_op_attr attr;
    int split_sums;
    ndp_view v[TENSORS];
} problem;

/* Columns after each row: part of a wider tensor, which no kernel may write. Some rows begin at 16 bytes. */
static inline int64_t guard(int64_t cols) { return cols % 64 == 0 ? 8 : 3; }
static const double GUARD_VALUE = 7;

static inline ndp_view make(int64_t rows, int64_t cols, ndp_dtype dtype) {
    ndp_view v = {NULL, dtype, rows, cols, cols + guard(cols)};
    v.data = malloc((size_t)(rows * v.ld) * ndp_dtype_size(dtype));
    assert_non_null(v.data);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < v.ld; c++)
            ndp_view_set(&v, r, c, c < cols ? (dtype == NDP_I32 ? 0 : NAN) : GUARD_VALUE);
    return v;
}

static inline void fill(const ndp_view *v, uint64_t stream) {
    for (int64_t r = 0; r < v->rows; r++)
        for (int64_t c = 0; c < v->cols; c++)
            ndp_view_set(v, r, c, 4 * ndp_rng_uniform(1, stream, (uint64_t)(r * v->cols + c)) - 2);
}

/* Zig-zag of two ranks over four chunks: this rank's queries are chunks 0 and 3, the keys the other's, 1 and 2. */
static inline void zigzag(const problem *p) {
    const ndp_view *q = &p->v[Q_POS], *k = &p->v[K_POS];
    int64_t chunk = (q->rows + 1) / 2;
    for (int64_t t = 0; t < q->rows; t++)
        ndp_view_set(q, t, 0, (double)(t < chunk ? t : 2 * chunk + t));
    for (int64_t s = 0; s < k->rows; s++)
        ndp_view_set(k, s, 0, (double)(chunk + s));
}

static inline void set_positions(const problem *p, const spec *x) {
    int shape = (int)x->pattern % WITH_SINKS;
    int64_t shift = shape == DECODE ? (x->s - x->t) / 2 : 0,
            low = 0; /* DECODE: the cache is longer than what is seen */
    for (int64_t s = 0; s < x->s; s++)
        ndp_view_set(&p->v[K_POS], s, 0, shape == ANYWHERE ? (double)ndp_rng_below(2, 3, (uint64_t)s, 300) : (double)s);
    for (int64_t t = 0; t < x->t; t++) {
        if (ndp_rng_below(4, 5, (uint64_t)t, 40) == 0) /* a document begins */
            low = t;
        int64_t pos = shape == ANYWHERE ? (int64_t)ndp_rng_below(6, 7, (uint64_t)t, 320) - 10 : t + shift;
        ndp_view_set(&p->v[Q_POS], t, 0, (double)pos);
        ndp_view_set(&p->v[Q_LOW], t, 0, shape == DOCUMENTS ? (double)low : shape == ANYWHERE ? (double)(pos - 50) : 0);
    }
    if (shape == ZIGZAG)
        zigzag(p);
}

static inline problem setup(const spec *x) {
    problem p = {.attr = {.heads = x->heads,
                          .kv_heads = x->kv_heads,
                          .head_dim = q_dim(x),
                          .v_dim = x->dim / VALUES,
                          .window = x->window,
                          .scale = 1 / sqrt(q_dim(x)),
                          .cap = x->cap,
                          .first = has_sinks(x) ? 2 : 0}};
    ndp_view in[7] = {make(x->t, (int64_t)x->heads * q_dim(x), x->dtype),
                      make(x->s, (int64_t)x->kv_heads * q_dim(x), x->dtype),
                      make(x->s, (int64_t)x->kv_heads * v_dim(x), x->dtype),
                      make(x->t, 1, NDP_I32),
                      make(x->t, 1, NDP_I32),
                      make(x->s, 1, NDP_I32)};
    if (has_sinks(x)) /* of more heads than are here */
        in[6] = make(1, x->heads + 3, x->dtype);
    ndp_view out[3] = {{0}};
    memcpy(p.v, in, sizeof in);
    assert_int_equal(apply_shape(&ndp_op_attention, &p.attr, in, out), NDP_OK);
    p.v[O] = make(out[0].rows, out[0].cols, out[0].dtype);
    p.v[LSE] = make(out[1].rows, out[1].cols, out[1].dtype);
    p.v[D_O] = make(out[0].rows, out[0].cols, out[0].dtype);
    ndp_view in_bwd[] = {p.v[D_O], p.v[Q], p.v[K], p.v[V], p.v[O], p.v[LSE], p.v[Q_POS], p.v[Q_LOW], p.v[K_POS]};
    assert_int_equal(apply_shape(&ndp_op_attention_bwd, &p.attr, in_bwd, out), NDP_OK);
    for (int i = 0; i < 3; i++)
        p.v[DQ + i] = make(out[i].rows, out[i].cols, out[i].dtype);
    if (has_sinks(x)) {
        ndp_view in_dsink[] = {p.v[D_O], p.v[O], p.v[LSE], p.v[SINK]};
        assert_int_equal(apply_shape(&ndp_op_attention_dsink, &p.attr, in_dsink, out), NDP_OK);
        p.v[DSINK] = make(out[0].rows, out[0].cols, out[0].dtype);
        fill(&p.v[SINK], 15);
    }
    fill(&p.v[Q], 11);
    fill(&p.v[K], 12);
    fill(&p.v[V], 13);
    fill(&p.v[D_O], 14);
    set_positions(&p, x);
    return p;
}

static inline void teardown(problem *p) {
    for (int i = 0; i < TENSORS; i++)
        free(p->v[i].data);
}

static inline ndp_exec exec_of(const ndp_device *device, int threads, int split) {
    return (ndp_exec){
        .device = device, .threads = threads, .sums = split ? NDP_SUMS_SPLIT : NDP_SUMS_FAST, .split_place = split};
}

static inline void run(const ndp_op *op, const problem *p, const int *in, const int *out, const ndp_device *device,
                       int threads) {
    ndp_exec exec = exec_of(device, threads, p->split_sums);
    const ndp_op_attr given = with_others(op, &p->attr, device == &ndp_device_ref);
    ndp_op_call call = {.op = op, .attr = &given, .exec = &exec};
    for (int i = 0; i < op->n_in; i++)
        call.in[i] = p->v[in[i]];
    for (int i = 0; i < op->n_out; i++)
        call.out[i] = p->v[out[i]];
    run_call(&call);
}

static inline void run_forward(const problem *p, const ndp_device *device, int threads) {
    run(&ndp_op_attention, p, (int[]){Q, K, V, Q_POS, Q_LOW, K_POS, SINK}, (int[]){O, LSE}, device, threads);
}

static inline void run_backward(const problem *p, const ndp_device *device, int threads) {
    run(&ndp_op_attention_bwd, p, (int[]){D_O, Q, K, V, O, LSE, Q_POS, Q_LOW, K_POS}, (int[]){DQ, DK, DV}, device,
        threads);
    if (p->v[SINK].data)
        run(&ndp_op_attention_dsink, p, (int[]){D_O, O, LSE, SINK}, (int[]){DSINK}, device, threads);
}

static inline void add_to(const ndp_view *v, int64_t row, int64_t col, double x) {
    ndp_view_set(v, row, col, ndp_view_get(v, row, col) + x);
}

/* Adds what one pair that sees each other contributes to `sum`, as absolute values times `unit`. */
static inline void add_absolute(const problem *p, int64_t t, int h, int64_t s, double unit, const problem *sum) {
    const ndp_view *v = p->v;
    int d = p->attr.head_dim, e = ndp_v_dim(&p->attr), kv = h / (p->attr.heads / p->attr.kv_heads);
    int col = h * d, kv_col = kv * d, v_col = kv * e;
    double score = 0, dp = 0, delta = 0;
    for (int i = 0; i < d; i++)
        score += p->attr.scale * ndp_view_get(&v[Q], t, col + i) * ndp_view_get(&v[K], s, kv_col + i);
    for (int i = 0; i < e; i++) {
        dp += ndp_view_get(&v[D_O], t, h * e + i) * ndp_view_get(&v[V], s, v_col + i);
        delta += ndp_view_get(&v[D_O], t, h * e + i) * ndp_view_get(&v[O], t, h * e + i);
    }
    double cap = p->attr.cap, slope = cap > 0 ? 1 - pow(tanh(score / cap), 2) : 1;
    score = cap > 0 ? cap * tanh(score / cap) : score;
    double weight = unit * exp(score - ndp_view_get(&v[LSE], t, h));
    double ds = p->attr.scale * weight * slope * fabs(dp - delta);
    for (int i = 0; i < e; i++) {
        add_to(&sum->v[O], t, h * e + i, weight * fabs(ndp_view_get(&v[V], s, v_col + i)));
        add_to(&sum->v[DV], s, v_col + i, weight * fabs(ndp_view_get(&v[D_O], t, h * e + i)));
    }
    for (int i = 0; i < d; i++) {
        add_to(&sum->v[DQ], t, col + i, ds * fabs(ndp_view_get(&v[K], s, kv_col + i)));
        add_to(&sum->v[DK], s, kv_col + i, ds * fabs(ndp_view_get(&v[Q], t, col + i)));
    }
}

static inline bool on_cpu(void) { return tested() == &ndp_device_cpu; }

/* The device's sets of kernels: on cpu one for each word of NDP_ISA that this machine has. */
static inline int sets(void) {
    int n = 1;
    while (on_cpu() && ndp_isa_words[n].word && ndp_cpu_supports(ndp_isa_words[n].isa))
        n++;
    return n;
}
static inline void use_set(int i) { setenv("NDP_ISA", ndp_isa_words[i].word, 1); }

/* Whether the kernels in use round weights and gradients of scores to bf16 before products. */
static inline bool multiplies_bf16(void) { return on_cpu() ? ndp_cpu_has_avx512_bf16() : true; }

/* With NDP_TEST_SMALL a quarter of the rows again, everywhere. */
static inline spec small(spec x) {
    if (small_sizes())
        x.t = (x.t + 3) / 4, x.s = (x.s + 3) / 4;
    return x;
}

/* A problem whose size is only there to fill threads: of a third of the rows where each takes long. */
static inline spec sized(spec x) {
    if (!on_cpu())
        x.t = (x.t + 2) / 3, x.s = (x.s + 2) / 3;
    return x;
}

#endif
