/* The gated delta rule (arXiv:2412.06464): a layer with a state instead of keys and values. delta_decay makes the log
 * of how much of the state a row keeps; delta_rule and delta_rule_bwd run the rows.
 *
 * Of a row and a head, with q^ = q rsqrt(q.q + 1e-6) / sqrt(D), k^ = k rsqrt(k.k + 1e-6), beta = sigmoid(b):
 *   S := exp(g) S,   d = beta (v - S^T k^),   S := S + k^ d^T,   o = S^T q^
 *
 * A chunk is at most NDP_DELTA_CHUNK rows of one document. With S the state before it, c[i] the sum of g up to row i of
 * it, L[i,j] = exp(c[i] - c[j]) for j <= i, else 0, all its rows are products:
 *   A = beta[i] (K K^T)[i,j] L[i,j] for j < i       P = (Q K^T)[i,j] L[i,j] for j <= i
 *   (I + A) U = beta (V - exp(c) K S)               a triangular solve: U has the rows d
 *   O = exp(c) Q S + P U                            S := exp(c[n-1]) S + K^T (exp(c[n-1] - c) U)
 * Backward, from the last chunk to the first, with dS the gradient of the state after it, and U and S computed again:
 *   dU = P^T dO + exp(c[n-1] - c) K dS              (I + A)^T R = dU
 *   dP = dO U^T, dA = -R U^T                        dV = beta R
 *   dQ = exp(c) dO S^T + (dP L) K                   dS := exp(c[n-1]) dS + (exp(c) Q)^T dO - (exp(c) K)^T (beta R)
 *   dK = exp(c[n-1] - c) U dS^T - exp(c) beta R S^T + (dP L)^T Q + (W + W^T) K,  W = beta dA L
 * All exponents are of sums of g, which is not above 0: nothing grows.
 *
 * Of a piece of rows (ops/row_pieces.h) the state after it is U + A S, S that before it: delta_map makes both by
 * running the rows on [0 | I], with values [v | 0]. Where a document begins in the piece, A is 0, and U is of the last
 * one. Maps of all pieces make the state before each (delta_states), from which delta_rule runs the rows. Likewise
 * backward: the gradient of the state before a piece is V + A^T dS, dS that of the state after it; delta_map_back makes
 * V by running the rows back from 0, and A needs no gradient: delta_rule_bwd goes from the exact S and dS. */
#include "ops/delta_rule.h"
#include "ops/flow.h"
#include "ops/row_pieces.h"
#include "ops/shape.h"

/* delta_decay ---------------------------------------------------------------------------------------------------- */

/* a and the two rows, from operand `first` on. */
static ndp_status check_decay(const ndp_op_call *c, int first) {
    const ndp_view *a = &c->in[first];
    for (const ndp_view *row = a + 1; row < a + 3; row++)
        NDP_SHAPE_CHECK(row->rows == 1 && row->cols == a->cols && ndp_wide(row->dtype) == ndp_wide(a->dtype),
                        "%s: a " NDP_SHAPE ", a row of " NDP_SHAPE, c->op->name, NDP_SHAPE_ARGS(*a),
                        NDP_SHAPE_ARGS(*row));
    return NDP_OK;
}

static ndp_status decay_shape(ndp_op_call *c) {
    NDP_TRY(check_decay(c, 0));
    ndp_shape_set(&c->out[0], c->in[0].rows, c->in[0].cols, ndp_wide(c->in[0].dtype));
    return NDP_OK;
}

static ndp_status decay_backward(ndp_bwd *b) {
    int ins[] = {b->grad_out(b, 0), b->in[0], b->in[1], b->in[2]};
    NDP_TRY(ndp_input_grad(b, &ndp_op_delta_decay_da, b->attr, ins, 4, -1));
    NDP_TRY(ndp_weight_grad(b, 1, &ndp_op_delta_decay_dlog, ins, 4));
    return ndp_weight_grad(b, 2, &ndp_op_delta_decay_ddt, ins, 4);
}

const ndp_op ndp_op_delta_decay = {
    NDP_NAMED(delta_decay),
    .n_in = 3,
    .n_out = 1,
    .rows = NDP_ROWS_ALIKE,
    .shape = decay_shape,
    .backward = decay_backward,
    .flops = 24,
    NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "th"), NDP_IS(OPERAND, 1, "1h"), NDP_IS(OPERAND, 2, "1h")},
               .out = {NDP_IS(RESULT, 0, "th")}}),
};

static ndp_status check_decay_bwd(const ndp_op_call *c) {
    const ndp_view *dg = &c->in[0], *a = &c->in[1];
    NDP_SHAPE_CHECK(dg->rows == a->rows && dg->cols == a->cols && dg->dtype == ndp_wide(a->dtype),
                    "%s: dg " NDP_SHAPE ", a " NDP_SHAPE, c->op->name, NDP_SHAPE_ARGS(*dg), NDP_SHAPE_ARGS(*a));
    return check_decay(c, 1);
}

static ndp_status decay_da_shape(ndp_op_call *c) {
    NDP_TRY(check_decay_bwd(c));
    ndp_shape_like(&c->out[0], &c->in[1]);
    return NDP_OK;
}

static ndp_status decay_row_shape(ndp_op_call *c) {
    NDP_TRY(check_decay_bwd(c));
    ndp_shape_set(&c->out[0], 1, c->in[1].cols, c->in[0].dtype);
    return NDP_OK;
}

/* The gradient of operand `number`: "th", or "1h". */
#define DECAY_GRADIENT(op, number, letters, rule, shape_rule)                                                          \
    const ndp_op ndp_op_##op = {                                                                                       \
        NDP_NAMED(op),                                                                                                 \
        .n_in = 4,                                                                                                     \
        .n_out = 1,                                                                                                    \
        .rows = rule,                                                                                                  \
        .shape = shape_rule,                                                                                           \
        .flops = 25,                                                                                                   \
        NDP_FLOWS({.node = &ndp_op_delta_decay,                                                                        \
                   .in = {NDP_IS(D_RESULT, 0, "th"), NDP_IS(OPERAND, 0, "th"), NDP_IS(OPERAND, 1, "1h"),               \
                          NDP_IS(OPERAND, 2, "1h")},                                                                   \
                   .out = {NDP_IS(D_OPERAND, number, letters)}}),                                                      \
    };

DECAY_GRADIENT(delta_decay_da, 0, "th", NDP_ROWS_ALIKE, decay_da_shape)
DECAY_GRADIENT(delta_decay_dlog, 1, "1h", NDP_ROWS_SUMMED, decay_row_shape)
DECAY_GRADIENT(delta_decay_ddt, 2, "1h", NDP_ROWS_SUMMED, decay_row_shape)

/* delta_rule ----------------------------------------------------------------------------------------------------- */

enum { READS = NDP_READS_heads | NDP_READS_kv_heads | NDP_READS_head_dim | NDP_READS_v_dim | NDP_READS_wide_grad };

/* Those of pieces of rows, which a rank has its own of. */
enum { PIECES = NDP_READS_ranks | NDP_READS_parts | NDP_READS_place };

/* Of q and what follows it, and of its gradients: all heads of a key head together. */
#define BY_GROUP(kind, number) NDP_IS(kind, number, "th", .each = NDP_EACH_GROUP)
#define OPERANDS                                                                                                       \
    BY_GROUP(OPERAND, 0), BY_GROUP(OPERAND, 1), BY_GROUP(OPERAND, 2), BY_GROUP(OPERAND, 3), BY_GROUP(OPERAND, 4),      \
        NDP_IS(OPERAND, 5, "t1")
/* What calls of the node hand to each other (placement/rules_pieces.c). */
#define HANDED NDP_IS(ANY, 0, "..")

/* Rows of states of all pieces here; `m` has `cols` columns. */
static ndp_status check_states(const ndp_op_call *c, const ndp_view *m, int64_t pieces, int64_t cols, ndp_dtype type) {
    const ndp_op_attr *a = c->attr;
    NDP_SHAPE_CHECK(m->rows == pieces * a->heads * a->head_dim && m->cols == cols && m->dtype == ndp_wide(type),
                    "%s: " NDP_SHAPE " of %lld pieces of %d heads of %d", c->op->name, NDP_SHAPE_ARGS(*m),
                    (long long)pieces, a->heads, a->head_dim);
    return NDP_OK;
}

/* `of`: an operand, for the message. */
static ndp_status check_heads(const ndp_op_call *c, const ndp_view *of) {
    const ndp_op_attr *a = c->attr;
    NDP_SHAPE_CHECK(a->heads > 0 && a->kv_heads > 0 && a->heads % a->kv_heads == 0 && a->head_dim > 0 && a->v_dim >= 0,
                    "%s: " NDP_SHAPE " with %d key heads of %d and %d heads of %d", c->op->name, NDP_SHAPE_ARGS(*of),
                    a->kv_heads, a->head_dim, a->heads, ndp_v_dim(a));
    return NDP_OK;
}

/* x has the columns of `heads` heads of `dim`. */
static ndp_status check_columns(const ndp_op_call *c, const ndp_view *x, int64_t rows, int heads, int dim,
                                ndp_dtype type) {
    NDP_SHAPE_CHECK(x->rows == rows && x->cols == (int64_t)heads * dim && x->dtype == type,
                    "%s: " NDP_SHAPE ", %lld rows of %d heads of %d", c->op->name, NDP_SHAPE_ARGS(*x), (long long)rows,
                    heads, dim);
    return NDP_OK;
}

/* g, b and the starts of `rows` rows of pieces. */
static ndp_status check_gates(const ndp_op_call *c, const ndp_view *g, int64_t rows, ndp_dtype type) {
    const ndp_view *start = g + 2;
    NDP_TRY(check_columns(c, g, rows, c->attr->heads, 1, ndp_wide(type)));
    NDP_TRY(check_columns(c, g + 1, rows, c->attr->heads, 1, type));
    NDP_SHAPE_CHECK(start->rows == rows && start->cols == 1 && start->dtype == NDP_I32 &&
                        rows % ndp_row_pieces_here(c->attr) == 0,
                    "%s: start " NDP_SHAPE ", %lld rows in %lld pieces", c->op->name, NDP_SHAPE_ARGS(*start),
                    (long long)rows, (long long)ndp_row_pieces_here(c->attr));
    return NDP_OK;
}

/* q and what follows it. */
static ndp_status check(const ndp_op_call *c, const ndp_view *in) {
    const ndp_op_attr *a = c->attr;
    const ndp_view *q = &in[0], *states = &in[6];
    NDP_TRY(check_heads(c, q));
    NDP_TRY(check_columns(c, q, q->rows, a->kv_heads, a->head_dim, q->dtype));
    NDP_TRY(check_columns(c, &in[1], q->rows, a->kv_heads, a->head_dim, q->dtype));
    NDP_TRY(check_columns(c, &in[2], q->rows, a->heads, ndp_v_dim(a), q->dtype));
    NDP_TRY(check_gates(c, &in[3], q->rows, q->dtype));
    return states->rows ? check_states(c, states, ndp_row_pieces_here(a), ndp_v_dim(a), q->dtype) : NDP_OK;
}

static ndp_status shape(ndp_op_call *c) {
    NDP_TRY(check(c, c->in));
    ndp_shape_like(&c->out[0], &c->in[2]);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int ins[9] = {b->grad_out(b, 0)}, wanted[5], n = 0;
    for (int i = 0; i < 7; i++)
        ins[1 + i] = b->in[i];
    ins[8] = -1;
    for (int i = 0; i < 5; i++) {
        wanted[i] = b->wants(b, i) ? i : -1;
        n += wanted[i] >= 0;
    }
    if (ins[0] >= 0 && b->wants(b, 6)) {
        int back[] = {ins[0], b->in[0], b->in[1], b->in[3], b->in[4], b->in[5]};
        NDP_TRY(b->input_grad(b, &ndp_op_delta_map_back, b->attr, back, 6, (int[]){6}, 1, -1, NULL));
    }
    return ins[0] >= 0 && n > 0 ? b->input_grad(b, &ndp_op_delta_rule_bwd, b->attr, ins, 9, wanted, 5, -1, NULL)
                                : NDP_OK;
}

/* Operations for whole chunks, where a triangle is half of a square: per row and head so many products of a row and
 * the state, of two numbers each, and so many rows of triangles with E columns; per row and key head with D columns.
 * Forward: K S, Q S, K^T U; the solve, P U; K K^T, Q K^T. Backward: K S and K^T U again, K dS, dO S^T, U dS^T, R S^T,
 * Q^T dO, K^T R; the two solves, P^T dO, dO U^T, R U^T; K K^T, Q K^T, and of each key head once (dP L) K, (dP L)^T Q,
 * W K, W^T K. A map, of states with E + D columns: K S, K^T U; the solve; K K^T. Back: K dS, Q^T dO, K^T R; P^T dO, the
 * solve; K K^T, Q K^T. */
static void count(const ndp_op_call *c, const ndp_view *q, double states, double of_e, double of_d, double e,
                  double *flops) {
    const ndp_op_attr *a = c->attr;
    double d = a->head_dim;
    *flops = (double)q->rows *
             (a->heads * (2 * states * d * e + of_e * NDP_DELTA_CHUNK * e) + a->kv_heads * of_d * NDP_DELTA_CHUNK * d);
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    count(c, &c->in[0], 3, 2, 2, ndp_v_dim(c->attr), flops);
}

static void bwd_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    count(c, &c->in[1], 8, 5, 6, ndp_v_dim(c->attr), flops);
}

static void map_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    count(c, &c->in[0], 2, 1, 1, ndp_v_dim(c->attr) + c->attr->head_dim, flops);
}

static void back_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    count(c, &c->in[1], 3, 2, 2, ndp_v_dim(c->attr), flops);
}

const ndp_op ndp_op_delta_rule = {
    NDP_NAMED(delta_rule),
    .n_in = 7,
    .n_out = 1,
    .optional_in = 1u << 6,
    .rows = NDP_ROWS_MIXED,
    .shape = shape,
    .backward = backward,
    .cost = cost,
    .reads = READS | PIECES,
    NDP_FLOWS({.own = PIECES, .pieces = true, .in = {OPERANDS, HANDED}, .out = {BY_GROUP(RESULT, 0)}}),
};

static ndp_status bwd_shape(ndp_op_call *c) {
    const ndp_view *d_o = &c->in[0], *v = &c->in[3], *after = &c->in[8];
    NDP_TRY(check(c, c->in + 1));
    NDP_SHAPE_CHECK(d_o->rows == v->rows && d_o->cols == v->cols &&
                        (d_o->dtype == v->dtype || d_o->dtype == ndp_wide(v->dtype)),
                    "delta_rule_bwd: do " NDP_SHAPE ", v " NDP_SHAPE, NDP_SHAPE_ARGS(*d_o), NDP_SHAPE_ARGS(*v));
    if (after->rows)
        NDP_TRY(check_states(c, after, ndp_row_pieces_here(c->attr), ndp_v_dim(c->attr), v->dtype));
    for (int i = 0; i < 5; i++)
        ndp_shape_like(&c->out[i], &c->in[i + 1]);
    c->out[4].dtype = c->attr->wide_grad ? ndp_wide(v->dtype) : v->dtype;
    return NDP_OK;
}

const ndp_op ndp_op_delta_rule_bwd = {
    NDP_NAMED(delta_rule_bwd),
    .n_in = 9,
    .n_out = 5,
    .optional_in = 1u << 7 | 1u << 8,
    .rows = NDP_ROWS_MIXED,
    .shape = bwd_shape,
    .cost = bwd_cost,
    .reads = READS | PIECES,
    NDP_FLOWS({.node = &ndp_op_delta_rule,
               .own = PIECES,
               .pieces = true,
               .in = {BY_GROUP(D_RESULT, 0), OPERANDS, HANDED, HANDED},
               .out = {BY_GROUP(D_OPERAND, 0), BY_GROUP(D_OPERAND, 1), BY_GROUP(D_OPERAND, 2), BY_GROUP(D_OPERAND, 3),
                       BY_GROUP(D_OPERAND, 4)}}),
};

/* maps of pieces ------------------------------------------------------------------------------------------------- */

static int64_t state_rows(const ndp_op_attr *a) { return ndp_row_pieces_here(a) * a->heads * a->head_dim; }

static ndp_status map_shape(ndp_op_call *c) {
    const ndp_op_attr *a = c->attr;
    const ndp_view *k = &c->in[0];
    NDP_TRY(check_heads(c, k));
    NDP_TRY(check_columns(c, k, k->rows, a->kv_heads, a->head_dim, k->dtype));
    NDP_TRY(check_columns(c, &c->in[1], k->rows, a->heads, ndp_v_dim(a), k->dtype));
    NDP_TRY(check_gates(c, &c->in[2], k->rows, k->dtype));
    ndp_shape_set(&c->out[0], state_rows(a), ndp_v_dim(a) + a->head_dim, ndp_wide(k->dtype));
    return NDP_OK;
}

const ndp_op ndp_op_delta_map = {
    NDP_NAMED(delta_map),
    .n_in = 5,
    .n_out = 1,
    .rows = NDP_ROWS_MIXED,
    .shape = map_shape,
    .cost = map_cost,
    .reads = (READS | PIECES) & ~NDP_READS_wide_grad,
    NDP_FLOWS({.node = &ndp_op_delta_rule,
               .own = PIECES,
               .pieces = true,
               .in = {BY_GROUP(OPERAND, 1), BY_GROUP(OPERAND, 2), BY_GROUP(OPERAND, 3), BY_GROUP(OPERAND, 4),
                      NDP_IS(OPERAND, 5, "t1")}}),
};

static ndp_status back_shape(ndp_op_call *c) {
    const ndp_op_attr *a = c->attr;
    const ndp_view *d_o = &c->in[0], *q = &c->in[1];
    NDP_TRY(check_heads(c, q));
    NDP_TRY(check_columns(c, d_o, q->rows, a->heads, ndp_v_dim(a), d_o->dtype));
    NDP_TRY(check_columns(c, q, q->rows, a->kv_heads, a->head_dim, q->dtype));
    NDP_TRY(check_columns(c, &c->in[2], q->rows, a->kv_heads, a->head_dim, q->dtype));
    NDP_TRY(check_gates(c, &c->in[3], q->rows, q->dtype));
    ndp_shape_set(&c->out[0], state_rows(a), ndp_v_dim(a), ndp_wide(q->dtype));
    return NDP_OK;
}

const ndp_op ndp_op_delta_map_back = {
    NDP_NAMED(delta_map_back),
    .n_in = 6,
    .n_out = 1,
    .rows = NDP_ROWS_MIXED,
    .shape = back_shape,
    .cost = back_cost,
    .reads = (READS | PIECES) & ~NDP_READS_wide_grad,
    NDP_FLOWS({.node = &ndp_op_delta_rule,
               .own = PIECES,
               .pieces = true,
               .in = {BY_GROUP(D_RESULT, 0), BY_GROUP(OPERAND, 0), BY_GROUP(OPERAND, 1), BY_GROUP(OPERAND, 3),
                      BY_GROUP(OPERAND, 4), NDP_IS(OPERAND, 5, "t1")}}),
};

static ndp_status states_shape(ndp_op_call *c) {
    const ndp_op_attr *a = c->attr;
    const ndp_view *maps = &c->in[0], *backs = &c->in[1];
    NDP_TRY(check_heads(c, maps));
    NDP_TRY(check_states(c, maps, ndp_row_pieces(a), ndp_v_dim(a) + a->head_dim, maps->dtype));
    if (backs->rows)
        NDP_TRY(check_states(c, backs, ndp_row_pieces(a), ndp_v_dim(a), maps->dtype));
    ndp_shape_set(&c->out[0], state_rows(a), ndp_v_dim(a), maps->dtype);
    return NDP_OK;
}

/* At most a product for each piece but the first one that is composed. */
static void states_cost(const ndp_op_call *c, double *flops, double *bytes) {
    const ndp_op_attr *a = c->attr;
    (void)bytes;
    *flops = 2.0 * (double)(ndp_row_pieces(a) - 1) * a->heads * a->head_dim * a->head_dim * ndp_v_dim(a);
}

const ndp_op ndp_op_delta_states = {
    NDP_NAMED(delta_states),
    .n_in = 2,
    .n_out = 1,
    .optional_in = 1u << 1,
    .rows = NDP_ROWS_MIXED,
    .shape = states_shape,
    .cost = states_cost,
    .reads = (READS | PIECES) & ~NDP_READS_wide_grad,
    NDP_FLOWS({.node = &ndp_op_delta_rule, .own = PIECES, .in = {HANDED, HANDED}}),
};
