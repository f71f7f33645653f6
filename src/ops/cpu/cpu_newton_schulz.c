/* newton_schulz: matrix products (cpu_gemm.h), and between them passes over elements that threads share by blocks. Two
 * matrices take turns: the first holds x, the second is scratch memory. Each element goes through the same instructions
 * whatever the number of threads. */
#include "ops/cpu/cpu_gemm.h"
#include "ops/cpu/cpu_kernels.h"
#include "ops/cpu/cpu_rows.h"
#include "ops/newton_schulz.h"
#include "ops/pieces.h"

typedef struct matrices {
    ndp_view x, next, gram, poly; /* X, X', A, scale (b A + c A^2) */
    void *rest;                   /* scratch memory of products */
} matrices;

typedef enum product { GRAM, SQUARE, STEP, PRODUCTS } product;

static size_t bytes_of(int64_t n) { return ((size_t)n * sizeof(float) + 63) / 64 * 64; }

/* While a program is lowered there is no scratch memory. */
static matrices matrices_of(const ndp_op_call *c) {
    const ndp_view *x = &c->in[0];
    int64_t small = ndp_newton_schulz_smaller(x);
    matrices m = {.x = *x, .next = *x, .gram = {NULL, NDP_F32, small, small, small}};
    char *at = c->scratch;
    m.poly = m.gram;
    if (!at)
        return m;
    m.next.data = at;
    m.gram.data = at += bytes_of(x->rows * x->cols);
    m.poly.data = at += bytes_of(small * small);
    m.rest = at + bytes_of(small * small);
    return m;
}

/* The operands of a product, and its plan. */
static ndp_status plan(const matrices *m, product of, const ndp_exec *exec, const ndp_gemm **out,
                       const void *operands[3]) {
    bool tall = m->x.rows > m->x.cols;
    const ndp_view *a = of == SQUARE ? &m->gram : of == STEP && !tall ? &m->poly : &m->x;
    const ndp_view *b = of == SQUARE ? &m->gram : of == STEP && tall ? &m->poly : &m->x;
    const ndp_view *to = of == GRAM ? &m->gram : of == SQUARE ? &m->poly : &m->next;
    ndp_gemm_shape s = ndp_gemm_shape_of(a, of == GRAM && tall, b, of == GRAM && !tall, to, of != GRAM, exec);
    operands[0] = a->data, operands[1] = b->data, operands[2] = to->data;
    return ndp_gemm_plan(&s, out);
}

/* Makes all plans; `scratch`: the most that one needs. */
static ndp_status make_plans(const ndp_op_call *c, size_t *scratch) {
    matrices m = matrices_of(c);
    *scratch = 0;
    for (int of = 0; of < PRODUCTS; of++) {
        const ndp_gemm *made;
        const void *operands[3];
        NDP_TRY(plan(&m, (product)of, c->exec, &made, operands));
        *scratch = ndp_gemm_scratch(made) > *scratch ? ndp_gemm_scratch(made) : *scratch;
    }
    return NDP_OK;
}

static ndp_status prepare(ndp_op_call *c) {
    size_t unused;
    return make_plans(c, &unused);
}

static size_t scratch(const ndp_op_call *c) {
    int64_t small = ndp_newton_schulz_smaller(&c->in[0]);
    size_t gemm, own = bytes_of(c->in[0].rows * c->in[0].cols) + 2 * bytes_of(small * small);
    return make_plans(c, &gemm) == NDP_OK ? own + gemm : 0; /* prepare returns the error */
}

static ndp_status multiply(const ndp_op_call *c, const matrices *m, product of) {
    const ndp_gemm *made;
    const void *operands[3];
    NDP_TRY(plan(m, of, c->exec, &made, operands));
    ndp_gemm_run(made, operands[0], operands[1], (void *)operands[2], m->rest);
    return NDP_OK;
}

/* ---- passes ---- */

enum { BLOCK = 4096 };

static void scale_blocks(const ndp_op_call *c, int64_t first, int64_t last) {
    const float *from = c->in[0].data, factor = (float)c->attr->scale;
    float *to = c->out[0].data;
    int64_t n = c->in[0].rows * c->in[0].cols, end = last * BLOCK < n ? last * BLOCK : n;
    for (int64_t i = first * BLOCK; i < end; i++)
        to[i] = factor * from[i];
}

/* to = factor * from; both may be the same. */
static ndp_status pass(const ndp_op_call *c, const ndp_view *to, const ndp_view *from, double factor) {
    ndp_op_call one = {.attr = &(ndp_op_attr){.scale = factor}, .exec = c->exec, .in = {*from}, .out = {*to}};
    return ndp_rows_run(&one, (to->rows * to->cols + BLOCK - 1) / BLOCK, scale_blocks);
}

static ndp_status sum_of_squares(const ndp_op_call *c, double *out) {
    int64_t n = c->in[0].rows * c->in[0].cols, piece[NDP_PIECE_COLUMNS] = {0, n, ndp_piece_facts(1, 0)};
    ndp_op_call sum = {
        .attr = &(ndp_op_attr){.accumulate = false},
        .exec = c->exec,
        .in = {{c->in[0].data, NDP_F32, 1, n, n}, {piece, NDP_I64, 1, NDP_PIECE_COLUMNS, NDP_PIECE_COLUMNS}},
        .out = {{out, NDP_F64, 1, 1, 1}}};
    return ndp_cpu_square_sum.run(&sum);
}

/* Products add to what is in their result: (b / c) A + A^2, then c times that. */
static ndp_status step(const ndp_op_call *c, const matrices *m, ndp_polynomial p, double scale) {
    NDP_TRY(multiply(c, m, GRAM));
    NDP_TRY(pass(c, &m->poly, &m->gram, p.b / p.c));
    NDP_TRY(multiply(c, m, SQUARE));
    NDP_TRY(pass(c, &m->poly, &m->poly, scale * p.c));
    NDP_TRY(pass(c, &m->next, &m->x, scale * p.a));
    return multiply(c, m, STEP);
}

_Static_assert(NDP_NEWTON_SCHULZ_STEPS % 2 == 1, "with the pass before them, an even number of turns: x is the result");

static ndp_status run(const ndp_op_call *c) {
    matrices m = matrices_of(c);
    double squares;
    NDP_TRY(sum_of_squares(c, &squares));
    NDP_TRY(pass(c, &m.next, &m.x, ndp_newton_schulz_start(squares)));
    for (int k = 0; k < NDP_NEWTON_SCHULZ_STEPS; k++) {
        ndp_view x = m.next;
        m.next = m.x, m.x = x;
        NDP_TRY(step(c, &m, ndp_newton_schulz_polynomial(c->attr, k), ndp_newton_schulz_scale(c->attr, k, &x)));
    }
    return NDP_OK;
}

const ndp_kernel ndp_cpu_newton_schulz = {.run = run, .scratch = scratch, .prepare = prepare};
