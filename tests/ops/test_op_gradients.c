/* Every op's backward rule on ref in fp64 against central differences along random directions, at odd sizes. */
#include "expert_operands.h"
#include "ops/router_losses.h"

typedef struct gradient_case {
    const ndp_op *op;
    ndp_op_attr attr;
    ndp_view in[NDP_OP_MAX_IN];
    unsigned wanted;  /* inputs to differentiate by */
    unsigned flowing; /* outputs into which a gradient flows */
    unsigned earlier; /* inputs that already have a gradient from another consumer */
} gradient_case;

/* sum over the flowing outputs of <g, out> at inputs moved by h along d (input i only). */
static double objective(const gradient_case *k, const ndp_view *g, int i, const ndp_view *d, double h) {
    ndp_view in[NDP_OP_MAX_IN], out[NDP_OP_MAX_OUT] = {{0}};
    for (int j = 0; j < k->op->n_in; j++)
        in[j] = copy_as(NDP_F64, &k->in[j]);
    for (int64_t r = 0; d && r < d->rows; r++)
        for (int64_t c = 0; c < d->cols; c++)
            ndp_view_set(&in[i], r, c, ndp_view_get(&in[i], r, c) + h * ndp_view_get(d, r, c));
    make_outputs(k->op, &k->attr, in, out, ~0u);
    run_op(k->op, &k->attr, in, out, &ndp_device_ref, 1);
    double sum = 0;
    for (int o = 0; o < k->op->n_out; o++)
        if (k->flowing >> o & 1)
            sum += dot(&g[o], &out[o]);
    free_matrices(out, k->op->n_out);
    for (int j = 0; j < k->op->n_in; j++)
        if (j > 0 || !k->op->in_place)
            free_matrices(&in[j], 1);
    return sum;
}

static bool differentiated[NDP_OP_COUNT];

/* Runs the op and its backward rule; e.grads are the gradients of <g, out>. */
static void differentiate(const gradient_case *k, ndp_view *g, eager *e) {
    ndp_view in[NDP_OP_MAX_IN], out[NDP_OP_MAX_OUT] = {{0}};
    *e = (eager){.b = {.attr = &k->attr,
                       .in = e->in,
                       .out = e->out,
                       .grad_out = eager_grad_out,
                       .wants = eager_wants,
                       .input_grad = eager_input_grad,
                       .pass_grad = eager_pass_grad,
                       .columns = eager_columns,
                       .weight_grad = eager_weight_grad},
                 .wanted = k->wanted};
    for (int i = 0; i < k->op->n_in; i++) {
        in[i] = copy_as(NDP_F64, &k->in[i]);
        e->in[i] = eager_value(e, in[i]);
        bool earlier = k->earlier >> i & 1;
        e->grads[i] = earlier ? eager_value(e, random_matrix(NDP_F64, in[i].rows, in[i].cols, 900 + (uint64_t)i)) : -1;
    }
    make_outputs(k->op, &k->attr, in, out, ~0u);
    run_op(k->op, &k->attr, in, out, &ndp_device_ref, 1);
    for (int o = 0; o < k->op->n_out; o++) {
        e->out[o] = o == 0 && k->op->in_place ? e->in[0] : eager_value(e, out[o]);
        g[o] = random_matrix(NDP_F64, out[o].rows, out[o].cols, 500 + (uint64_t)o);
        e->arriving[o] = k->flowing >> o & 1 ? eager_value(e, g[o]) : -1;
    }
    require_ok(k->op->backward(&e->b));
    differentiated[k->op->id] = true;
}

static void check_gradients(gradient_case *k) {
    ndp_view g[NDP_OP_MAX_OUT];
    eager e;
    differentiate(k, g, &e);
    for (int i = 0; i < k->op->n_in; i++) {
        if (!(k->wanted >> i & 1)) {
            assert_true(e.grads[i] < 0 || k->earlier >> i & 1);
            continue;
        }
        assert_true(e.grads[i] >= 0);
        ndp_view d = random_matrix(NDP_F64, k->in[i].rows, k->in[i].cols, 700 + (uint64_t)i);
        double h = 1e-5, expected = (objective(k, g, i, &d, h) - objective(k, g, i, &d, -h)) / (2 * h);
        if (k->earlier >> i & 1) {
            ndp_view before = random_matrix(NDP_F64, d.rows, d.cols, 900 + (uint64_t)i);
            expected += dot(&before, &d);
            free_matrices(&before, 1);
        }
        double actual = dot(&e.values[e.grads[i]], &d);
        double scale = sqrt(dot(&e.values[e.grads[i]], &e.values[e.grads[i]]) * dot(&d, &d)) + 1e-3;
        if (!(fabs(actual - expected) < 2e-8 * scale))
            fail_msg("%s, input %d: derivative %.12g, differences say %.12g", k->op->name, i, actual, expected);
        free_matrices(&d, 1);
    }
    for (int o = 0; o < k->op->n_out; o++)
        if (!(k->flowing >> o & 1))
            free_matrices(&g[o], 1);
    free_matrices(e.values, e.n);
    free_matrices(k->in, k->op->n_in);
}

static const int64_t sizes[] = {1, 3, 17, 37};
#define FOR_SIZES(t, c)                                                                                                \
    for (int ti_ = 0; ti_ < NDP_COUNT(sizes); ti_++)                                                                   \
        for (int ci_ = 0; ci_ < NDP_COUNT(sizes); ci_++)                                                               \
            for (int64_t t = sizes[ti_], c = sizes[ci_], once_ = 1; once_; once_ = 0)

static void embedding_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, c) {
        gradient_case k = {&ndp_op_embedding, .in = {random_ints(t, 0, 5, 1), random_matrix(NDP_F64, 5, c, 2)},
                           .wanted = 2, .flowing = 1};
        gradient_case slice = {&ndp_op_embedding,
                               {.first = 2},
                               .in = {random_ints(t, 0, 7, 1), random_matrix(NDP_F64, 4, c, 2)},
                               .wanted = 2,
                               .flowing = 1};
        check_gradients(&k);
        check_gradients(&slice);
    }
}

static void linear_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (unsigned variant = 0; variant < 4; variant++) {
        bool bias = variant & 1, earlier = variant & 2;
        gradient_case k = {&ndp_op_linear, .in = {random_matrix(NDP_F64, t, 7, 1), random_matrix(NDP_F64, c, 7, 2)},
                           .wanted = bias ? 7 : 3, .flowing = 1, .earlier = earlier};
        if (bias)
            k.in[2] = random_matrix(NDP_F64, 1, c, 3);
        check_gradients(&k);
    }
}

/* Three groups: one without rows, and rows of none at the end. */
static void linear_stack_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (unsigned earlier = 0; earlier < 2; earlier++) for (int hot = 0; hot < 3; hot++) {
        gradient_case k = {
            &ndp_op_linear_stack,
            .in = {random_matrix(NDP_F64, t, 7, 1), random_matrix(NDP_F64, 3 * c, 7, 2), matrix(NDP_I32, 4, 1)},
            .wanted = 3, .flowing = 1, .earlier = earlier};
        for (int64_t e = 1; e < 4; e++)
            ndp_view_set(&k.in[2], e, 0, hot == 0 ? t * (e > 1) : hot == 1 ? (t + 1) / 2 : (double)(t * e / 4));
        check_gradients(&k);
    }
}

/* The same groups; rows of none have no bias. */
static void stack_bias_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (unsigned earlier = 0; earlier < 2; earlier++) for (int hot = 0; hot < 3; hot++) {
        gradient_case k = {
            &ndp_op_stack_bias,
            {.parts = 1 + hot},
            .in = {random_matrix(NDP_F64, t, c, 1), random_matrix(NDP_F64, 3, c, 2), matrix(NDP_I32, 4, 1)},
            .wanted = 3,
            .flowing = 1,
            .earlier = earlier};
        for (int64_t e = 1; e < 4; e++)
            ndp_view_set(&k.in[2], e, 0, hot == 0 ? t * (e > 1) : hot == 1 ? (t + 1) / 2 : (double)(t * e / 4));
        check_gradients(&k);
    }
}

static void gate_rows_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (unsigned wanted = 1; wanted < 4; wanted++) for (unsigned earlier = 0; earlier < 2; earlier++) {
        gradient_case k = {&ndp_op_gate_rows, .in = {random_matrix(NDP_F64, t, c, 1), random_matrix(NDP_F64, t, 1, 2)},
                           .wanted = wanted, .flowing = 1, .earlier = earlier};
        check_gradients(&k);
    }
}

static void rmsnorm_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (unsigned variant = 0; variant < 4; variant++) {
        gradient_case k = {&ndp_op_rmsnorm,
                           {.eps = 1e-2, .unit_offset = variant & 1},
                           .in = {random_matrix(NDP_F64, t, c, 1), random_matrix(NDP_F64, 1, c, 2)},
                           .wanted = 3,
                           .flowing = 1,
                           .earlier = variant >> 1};
        check_gradients(&k);
    }
}

/* Five runs of columns, each normed by itself with the same weight. */
static void rmsnorm_of_heads_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, c) {
        gradient_case k = {&ndp_op_rmsnorm,
                           {.eps = 1e-2, .unit_offset = c & 1},
                           .in = {random_matrix(NDP_F64, t, 5 * c, 1), random_matrix(NDP_F64, 1, c, 2)},
                           .wanted = 3,
                           .flowing = 1,
                           .earlier = t == 3};
        check_gradients(&k);
    }
}

/* The halves of a norm over several ranks: the mean of squares, and the norm for one that is given. */
static void halves_of_rmsnorm_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (unsigned variant = 0; variant < 4; variant++) {
        gradient_case squares = {&ndp_op_mean_squares, {.scale = 0.3}, .in = {random_matrix(NDP_F64, t, c, 1)},
                                 .wanted = 1,          .flowing = 1,   .earlier = variant & 1};
        gradient_case norm = {
            &ndp_op_norm_by,
            {.eps = 1e-2, .unit_offset = variant & 1},
            .in = {random_matrix(NDP_F64, t, c, 1), random_matrix(NDP_F64, 1, c, 2), random_matrix(NDP_F64, t, 1, 3)},
            .wanted = 7,
            .flowing = 1,
            .earlier = variant >> 1};
        for (int64_t i = 0; i < t; i++)
            ndp_view_set(&norm.in[2], i, 0, 2 + ndp_view_get(&norm.in[2], i, 0));
        check_gradients(&squares);
        check_gradients(&norm);
    }
}

static void layernorm_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (unsigned variant = 0; variant < 4; variant++) {
        bool bias = variant & 1;
        gradient_case k = {&ndp_op_layernorm,
                           {.eps = 1e-2},
                           .in = {random_matrix(NDP_F64, t, c, 1), random_matrix(NDP_F64, 1, c, 2)},
                           .wanted = bias ? 7 : 3,
                           .flowing = 1,
                           .earlier = variant >> 1};
        if (bias)
            k.in[2] = random_matrix(NDP_F64, 1, c, 3);
        check_gradients(&k);
    }
}

/* Gradients arrive at s, at y, or at both; from either summand to both of them. */
static void add_rmsnorm_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (unsigned flowing = 1; flowing < 4; flowing++) for (unsigned wanted = 1; wanted < 8; wanted++) {
        if (flowing == 1 && wanted & 4)
            continue; /* the weight has no gradient where nothing flows into y */
        gradient_case k = {
            &ndp_op_add_rmsnorm,
            {.eps = 1e-2},
            .in = {random_matrix(NDP_F64, t, c, 1), random_matrix(NDP_F64, t, c, 2), random_matrix(NDP_F64, 1, c, 3)},
            .wanted = wanted,
            .flowing = flowing,
            .earlier = wanted & 2};
        check_gradients(&k);
    }
}

static void rope_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, extra) for (int inverse = 0; inverse < 2; inverse++) {
        gradient_case k = {
            &ndp_op_rope,
            {.heads = 2, .kv_heads = 1, .head_dim = 6, .inverse = inverse},
            .in = {random_matrix(NDP_F64, t, 18 + extra, 1), random_ints(t, 0, 11, 2), matrix(NDP_F64, 11, 6)},
            .wanted = 1,
            .flowing = 1};
        for (int p = 0; p < 11; p++) /* a rotation: the backward is its inverse */
            for (int i = 0; i < 3; i++) {
                ndp_view_set(&k.in[2], p, i, cos(p * 0.7 * (i + 1)));
                ndp_view_set(&k.in[2], p, 3 + i, sin(p * 0.7 * (i + 1)));
            }
        check_gradients(&k);
    }
}

/* Of ten columns of a head six turn, the first or others, by a table that scales too: the backward is the transpose. */
static void partial_rope_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, extra) for (int last = 0; last < 2; last++) {
        gradient_case k = {
            &ndp_op_rope,
            {.heads = 2, .kv_heads = 1, .head_dim = 10, .rotary_dim = 6, .skipped = 4 * last, .neighbours = last},
            .in = {random_matrix(NDP_F64, t, 30 + extra, 1), random_ints(t, 0, 11, 2), matrix(NDP_F64, 11, 6)},
            .wanted = 1,
            .flowing = 1};
        for (int p = 0; p < 11; p++)
            for (int i = 0; i < 3; i++) {
                ndp_view_set(&k.in[2], p, i, 1.3 * cos(p * 0.7 * (i + 1)));
                ndp_view_set(&k.in[2], p, 3 + i, 1.3 * sin(p * 0.7 * (i + 1)));
            }
        check_gradients(&k);
    }
}

static void latent_keys_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, e) for (unsigned wanted = 1; wanted < 4; wanted++) {
        gradient_case k = {&ndp_op_latent_keys,
                           {.heads = 3, .head_dim = 7, .rotary_dim = 4, .v_dim = (int)e},
                           .in = {random_matrix(NDP_F64, t, 3 * (3 + e), 1), random_matrix(NDP_F64, t, 4, 2)},
                           .wanted = wanted,
                           .flowing = 3,
                           .earlier = wanted & 1};
        check_gradients(&k);
    }
}

static void activation_gradients(void **state) {
    (void)state;
    static const struct {
        const ndp_op *op;
        int columns; /* of the operand, for one of the result */
    } ops[] = {
        {&ndp_op_swiglu, 2}, {&ndp_op_geglu, 2}, {&ndp_op_gelu, 1}, {&ndp_op_gelu_erf, 1}, {&ndp_op_swiglu_clipped, 2}};
    for (int i = 0; i < NDP_COUNT(ops); i++)
        FOR_SIZES(t, c) {
            gradient_case k = {ops[i].op,
                               {.scale = 1.7, .cap = 0.6},
                               .in = {random_matrix(NDP_F64, t, ops[i].columns * c, 1)},
                               .wanted = 1,
                               .flowing = 1,
                               .earlier = t == 3};
            check_gradients(&k);
        }
}

static void scale_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, c) {
        gradient_case k = {
            &ndp_op_scale, {.scale = 2.5}, .in = {random_matrix(NDP_F64, t, c, 1)}, .wanted = 1, .flowing = 1};
        check_gradients(&k);
        gradient_case by = {&ndp_op_scale_by, .in = {random_matrix(NDP_F64, t, c, 1), random_matrix(NDP_F64, 1, 1, 2)},
                            .wanted = 1, .flowing = 1};
        check_gradients(&by);
    }
}

/* Rows see the rows of their document alone, which begins at any row before them. */
static void causal_conv_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (int taps = 1; taps <= 5; taps += 2) {
        gradient_case k = {
            &ndp_op_causal_conv,
            .in = {random_matrix(NDP_F64, t, c, 1), random_matrix(NDP_F64, taps, c, 2), random_ints(t, 0, t, 3)},
            .wanted = 3, .flowing = 1, .earlier = taps == 3};
        check_gradients(&k);
    }
}

/* The tap of the row itself is the last one; taps of other columns stand before and behind those of x. */
static void conv_silu_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (int taps = 1; taps <= NDP_MAX_TAPS; taps += 3) {
        int64_t more = taps == 4 ? c : 0;
        gradient_case k = {&ndp_op_conv_silu,
                           {.first = more},
                           .in = {random_matrix(NDP_F64, t, c, 1), random_matrix(NDP_F64, c + 2 * more, taps, 2),
                                  random_ints(t, 0, t, 3)},
                           .wanted = 3,
                           .flowing = 1,
                           .earlier = taps == 4};
        check_gradients(&k);
    }
}

/* Of pieces of 5 rows: rows before them give too, of documents that begin anywhere. */
static void conv_silu_of_pieces(void **state) {
    (void)state;
    for (int taps = 2; taps <= NDP_MAX_TAPS; taps += 3) {
        int ends = taps < 6 ? taps - 1 : 5;
        gradient_case k = {&ndp_op_conv_silu,
                           {.ranks = 2, .parts = 2, .place = 1},
                           .in = {random_matrix(NDP_F64, 10, 3, 1), random_matrix(NDP_F64, 3, taps, 2),
                                  random_ints(10, -5, 10, 3), random_matrix(NDP_F64, 4 * ends, 3, 4)},
                           .wanted = 11,
                           .flowing = 1,
                           .earlier = taps == 5};
        gradient_case e = {
            &ndp_op_piece_ends, {.parts = 2, .ends = ends}, .in = {random_matrix(NDP_F64, 10, 3, 1)}, .wanted = 1,
            .flowing = 1,       .earlier = taps == 5};
        check_gradients(&k);
        check_gradients(&e);
    }
}

/* On both sides of where softplus becomes x. */
static void delta_decay_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, h) for (unsigned wanted = 1; wanted < 8; wanted++) {
        gradient_case k = {
            &ndp_op_delta_decay,
            .in = {random_matrix(NDP_F64, t, h, 1), random_matrix(NDP_F64, 1, h, 2), random_matrix(NDP_F64, 1, h, 3)},
            .wanted = wanted, .flowing = 1, .earlier = wanted & 1 && t == 3};
        for (int64_t i = 0; i < t && h > 3; i++)
            ndp_view_set(&k.in[0], i, 1, 30);
        check_gradients(&k);
    }
}

/* q and k far from 0, where lengths bend; a state that lasts. */
static void delta_operands(ndp_view *in, int64_t d) {
    for (int64_t r = 0; r < in[0].rows; r++) {
        for (int64_t j = 0; j < in[0].cols; j += d)
            for (int i = 0; i < 2; i++)
                ndp_view_set(&in[i], r, j, 1 + fabs(ndp_view_get(&in[i], r, j)));
        for (int64_t j = 0; j < in[3].cols; j++)
            ndp_view_set(&in[3], r, j, -0.1 * pow(ndp_view_get(&in[3], r, j), 2));
    }
}

static void delta_rule_gradient(void **state) {
    (void)state;
    static const int shapes[][4] = {{1, 1, 2, 1}, {2, 1, 3, 5}, {4, 2, 5, 2}, {3, 3, 2, 3}};
    for (int i = 0; i < NDP_COUNT(shapes); i++)
        for (int64_t t = 1; t < 400; t = 5 * t + 2) {
            int h = shapes[i][0], g = shapes[i][1], d = shapes[i][2], e = shapes[i][3];
            gradient_case k = {&ndp_op_delta_rule,
                               {.heads = h, .kv_heads = g, .head_dim = d, .v_dim = d == e ? 0 : e},
                               .in = {random_matrix(NDP_F64, t, g * d, 1), random_matrix(NDP_F64, t, g * d, 2),
                                      random_matrix(NDP_F64, t, h * e, 3), random_matrix(NDP_F64, t, h, 4),
                                      random_matrix(NDP_F64, t, h, 5), some_starts(t)},
                               .wanted = t == 7 ? 21 : 31,
                               .flowing = 1,
                               .earlier = t == 7 ? 5 : 0};
            delta_operands(k.in, d);
            check_gradients(&k);
        }
}

/* Of pieces: the states before them have gradients too; documents begin in a piece, before it, and with it. */
static void delta_rule_of_pieces(void **state) {
    (void)state;
    for (int64_t piece = 1; piece < 200; piece = 3 * piece + 2) {
        int h = 4, g = 2, d = 3, e = 5;
        int64_t t = 2 * piece;
        gradient_case k = {&ndp_op_delta_rule,
                           {.heads = h, .kv_heads = g, .head_dim = d, .v_dim = e, .ranks = 3, .parts = 2, .place = 1},
                           .in = {random_matrix(NDP_F64, t, g * d, 1), random_matrix(NDP_F64, t, g * d, 2),
                                  random_matrix(NDP_F64, t, h * e, 3), random_matrix(NDP_F64, t, h, 4),
                                  random_matrix(NDP_F64, t, h, 5), matrix(NDP_I32, t, 1),
                                  random_matrix(NDP_F64, 2 * h * d, e, 6)},
                           .wanted = 127 - 32,
                           .flowing = 1};
        for (int64_t r = 0; r < t; r++) /* the first piece goes on; the second has two documents */
            ndp_view_set(&k.in[5], r, 0, r < piece ? -3.0 : r < piece + piece / 3 ? 0.0 : (double)(piece + piece / 3));
        delta_operands(k.in, d);
        check_gradients(&k);
    }
}

static void gate_by_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (unsigned variant = 0; variant < 6; variant++) {
        gradient_case k = {&ndp_op_gate_by,
                           {.sigmoid = variant & 1},
                           .in = {random_matrix(NDP_F64, t, c, 1), random_matrix(NDP_F64, t, c, 2)},
                           .wanted = 1 + variant / 2,
                           .flowing = 1,
                           .earlier = t == 3 ? 1 + variant / 2 : 0};
        check_gradients(&k);
    }
}

static void add_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, c) {
        gradient_case k = {&ndp_op_add, .in = {random_matrix(NDP_F64, t, c, 1), random_matrix(NDP_F64, t, c, 2)},
                           .wanted = 3, .flowing = 1, .earlier = 1};
        check_gradients(&k);
    }
}

static void add_bias_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (unsigned wanted = 1; wanted < 4; wanted++) {
        gradient_case k = {&ndp_op_add_bias, .in = {random_matrix(NDP_F64, t, c, 1), random_matrix(NDP_F64, 1, c, 2)},
                           .wanted = wanted, .flowing = 1, .earlier = wanted & 1};
        check_gradients(&k);
    }
}

/* At the first columns, between others, and at the last ones. */
static void add_columns_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (unsigned variant = 0; variant < 9; variant++) {
        gradient_case k = {&ndp_op_add_columns,
                           {.first = variant % 3},
                           .in = {random_matrix(NDP_F64, t, c + 2, 1), random_matrix(NDP_F64, t, c, 2)},
                           .wanted = 1 + variant / 3,
                           .flowing = 1};
        k.earlier = t == 3 ? k.wanted : 0;
        check_gradients(&k);
    }
}

static void dropout_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, c) {
        gradient_case k = {
            &ndp_op_dropout,
            {.drop = 0.4, .first = 3, .tag = 2},
            .in = {random_matrix(NDP_F64, t, c, 1), random_ints(t, -90000, 90000, 2), random_ints(1, 0, 40, 3)},
            .wanted = 1,
            .flowing = 1,
            .earlier = t == 3};
        check_gradients(&k);
    }
}

/* The squares are constants. */
static void dora_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, n) for (unsigned wanted = 1; wanted < 4; wanted++) {
        gradient_case k = {&ndp_op_dora,
                           {.first = t % 4},
                           .in = {random_matrix(NDP_F64, t, n + 3, 1), random_matrix(NDP_F64, 1, n, 2),
                                  random_matrix(NDP_F64, n, 1, 3)},
                           .wanted = wanted,
                           .flowing = 1,
                           .earlier = wanted & 1 && t == 3};
        for (int64_t i = 0; i < n; i++)
            ndp_view_set(&k.in[2], i, 0, 0.3 + pow(ndp_view_get(&k.in[2], i, 0), 2));
        check_gradients(&k);
    }
}

static void copy_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, c) {
        gradient_case k = {&ndp_op_copy, {.type = NDP_F64}, .in = {random_matrix(NDP_F64, t, c, 1)},
                           .wanted = 1,  .flowing = 1,      .earlier = t == 3};
        check_gradients(&k);
    }
}

/* Each is the other's backward, also with repeated heads. */
static void heads_gradient(void **state) {
    (void)state;
    static const int cases[][3] = {{1, 1, 5}, {4, 2, 3}, {3, 3, 2}, {2, 6, 5}, {1, 4, 3}};
    for (int i = 0; i < NDP_COUNT(cases); i++)
        for (int64_t t = 1; t < 6; t += 2) {
            int heads = cases[i][0], parts = cases[i][1], d = cases[i][2], n = heads < parts ? 1 : heads / parts;
            ndp_op_attr attr = {.heads = heads, .head_dim = d, .parts = parts};
            gradient_case split = {&ndp_op_heads_split, attr,         .in = {random_matrix(NDP_F64, t, heads * d, 1)},
                                   .wanted = 1,         .flowing = 1, .earlier = t == 3};
            gradient_case merge = {
                &ndp_op_heads_merge, attr,         .in = {random_matrix(NDP_F64, parts * t, n * d, 1)},
                .wanted = 1,         .flowing = 1, .earlier = t == 3};
            check_gradients(&split);
            check_gradients(&merge);
        }
}

/* Gradients arrive at the weights; rows of padding have none. */
static void route_gradient(void **state) {
    (void)state;
    FOR_SIZES(t, e) for (int variant = 0; variant < 24; variant++) {
        int64_t few = e < 4 ? e : 4;
        bool scores = variant >= 12, biased = scores && t % 2;
        gradient_case k = {
            &ndp_op_route,
            {.choices = variant & 1 ? (int)few : 1,
             .renormalise = variant & 2 && !(scores && (e == 1 || !(variant & 1))), /* 1 whatever the logits */
             .sigmoid = scores,
             .scale = biased ? 2.5 : 0},
            .in = {random_matrix(NDP_F64, t, e, 1)},
            .wanted = 1,
            .flowing = 2,
            .earlier = t == 3};
        if (variant & 4)
            k.in[1] = random_ints(t, -1, 1, 2);
        if (variant & 8)
            k.in[2] = some_choices(t, e, k.attr.choices, false);
        if (biased)
            k.in[3] = random_matrix(NDP_F64, 1, e, 3);
        check_gradients(&k);
    }
}

/* What the losses of all rows add up to, times their coefficients. */
static double router_loss(const ndp_op_attr *attr, const ndp_view *in) {
    ndp_view out[NDP_OP_MAX_OUT] = {{0}};
    double sum = 0;
    make_outputs(&ndp_op_router_losses_dx, attr, in, out, 3);
    run_op(&ndp_op_router_losses_dx, attr, in, out, &ndp_device_ref, 1);
    for (int64_t t = 0; t < out[1].rows; t++)
        sum += attr->balance * ndp_view_get(&out[1], t, NDP_ROUTER_BALANCE) +
               attr->z_loss * ndp_view_get(&out[1], t, NDP_ROUTER_Z);
    free_matrices(out, 2);
    return sum;
}

/* dx is the derivative of the losses that the op itself makes, for counts that stay. */
static void check_router_losses(const ndp_op_attr *attr, ndp_view *in, double scale) {
    const double step = 1e-6;
    ndp_view out[NDP_OP_MAX_OUT] = {{0}};
    make_outputs(&ndp_op_router_losses_dx, attr, in, out, 3);
    run_op(&ndp_op_router_losses_dx, attr, in, out, &ndp_device_ref, 1);
    for (int64_t t = 0; t < in[0].rows; t++)
        for (int64_t e = 0; e < in[0].cols; e++) {
            double x = ndp_view_get(&in[0], t, e), by[2];
            for (int side = 0; side < 2; side++) {
                ndp_view_set(&in[0], t, e, side ? x + step : x - step);
                by[side] = router_loss(attr, in);
            }
            ndp_view_set(&in[0], t, e, x);
            double expected = (by[1] - by[0]) / (2 * step) * scale / attr->parts + ndp_view_get(&in[4], t, e);
            assert_true(fabs(ndp_view_get(&out[0], t, e) - expected) < 1e-8);
        }
    free_matrices(out, 2);
}

static void router_losses_gradient(void **state) {
    (void)state;
    enum { ROWS = 6, EXPERTS = 5, SAMPLES = 2 };
    for (int variant = 0; variant < 4; variant++) {
        ndp_op_attr attr = {.parts = 3, .balance = variant & 1 ? 0.7 : 0, .z_loss = variant & 2 ? 0.3 : 0};
        ndp_view in[] = {random_matrix(NDP_F64, ROWS, EXPERTS, 1), matrix(NDP_F64, SAMPLES, EXPERTS),
                         some_samples(ROWS, SAMPLES), matrix(NDP_F64, 1, 1), random_matrix(NDP_F64, ROWS, EXPERTS, 2)};
        for (int i = 0; i < SAMPLES * EXPERTS; i++)
            ndp_view_set(&in[1], i / EXPERTS, i % EXPERTS, i * i % 4);
        ndp_view_set(&in[3], 0, 0, 0.5);
        check_router_losses(&attr, in, 0.5);
        free_matrices(in, 5);
    }
}

/* Of rows and of their weights, with choices of no expert. */
static void take_and_give_gradients(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (unsigned variant = 0; variant < 8; variant++) {
        enum { EXPERTS = 3, X = 1, WEIGHTS = 8, ACC = 16 };
        int64_t k = variant & 1 ? 2 : 1;
        some_order o = order_of(some_choices(t, EXPERTS, k, t == 17), EXPERTS),
                   again = {copy_as(NDP_I32, &o.order), copy_as(NDP_I32, &o.places)};
        gradient_case take = {&ndp_op_take_rows, .in = {random_matrix(NDP_F64, t, c, 1), o.order, o.places},
                              .wanted = X, .flowing = 1, .earlier = t == 3};
        gradient_case give = {&ndp_op_give_rows, .in = {random_matrix(NDP_F64, t * k, c, 1), again.order, again.places},
                              .wanted = X, .flowing = 1, .earlier = t == 3 ? X : 0};
        if (variant & 2) {
            take.in[3] = random_matrix(NDP_F64, t, k, 2), take.wanted |= WEIGHTS;
            give.in[3] = random_matrix(NDP_F64, t, k, 3), give.wanted |= WEIGHTS;
            give.earlier |= c == 3 ? WEIGHTS : 0;
        }
        if (variant & 4)
            give.in[4] = random_matrix(NDP_F64, t, c, 4), give.wanted |= ACC;
        gradient_case weigh = {&ndp_op_weigh_rows,
                               .in = {random_matrix(NDP_F64, t * k, c, 1), copy_as(NDP_I32, &o.order),
                                      copy_as(NDP_I32, &o.places), random_matrix(NDP_F64, t, k, 5)},
                               .wanted = X | WEIGHTS, .flowing = 1, .earlier = t == 3 ? X : 0};
        check_gradients(&take);
        check_gradients(&give);
        check_gradients(&weigh);
    }
}

/* xent makes its gradients in the forward: of sum(nll) scale, for dx through the rule, for dw as an output. */
static double xent_loss(const ndp_op_attr *attr, const ndp_view *in, int i, const ndp_view *d, double h) {
    gradient_case k = {&ndp_op_xent, *attr, .flowing = 1};
    memcpy(k.in, in, 4 * sizeof *in);
    ndp_view ones = matrix(NDP_F64, in[0].rows, 1);
    for (int64_t t = 0; t < ones.rows; t++)
        ndp_view_set(&ones, t, 0, *(double *)in[3].data);
    double loss = objective(&k, &ones, i, d, h);
    free_matrices(&ones, 1);
    return loss;
}

static void xent_gradient(void **state) {
    (void)state;
    for (int variant = 0; variant < 8; variant++) {
        int64_t rows = (int64_t[]){1, 3, 70, 131, 200, 65, 3, 70}[variant], v = variant % 2 ? 12 : 9;
        ndp_op_attr attr = {.train = true, .vocab = 9, .cap = variant < 6 ? 0 : 1.2};
        ndp_view in[NDP_OP_MAX_IN] = {random_matrix(NDP_F64, rows, 5, 1), random_matrix(NDP_F64, v, 5, 2),
                                      random_ints(rows, -2, 9, 3), matrix(NDP_F64, 1, 1)};
        ndp_view out[NDP_OP_MAX_OUT] = {{0}};
        ndp_view_set(&in[3], 0, 0, 0.37);
        ndp_view_set(&in[2], 0, 0, 4);
        for (int64_t t = 64; t < 128 && t < rows; t++) /* a chunk without labels */
            ndp_view_set(&in[2], t, 0, -100);
        make_outputs(&ndp_op_xent, &attr, in, out, 7);
        run_op(&ndp_op_xent, &attr, in, out, &ndp_device_ref, 1);
        for (int i = 0; i < 2; i++) {
            ndp_view d = random_matrix(NDP_F64, in[i].rows, in[i].cols, 7);
            double expected = (xent_loss(&attr, in, i, &d, 1e-5) - xent_loss(&attr, in, i, &d, -1e-5)) / 2e-5;
            double actual = dot(&out[1 + i], &d), scale = sqrt(dot(&out[1 + i], &out[1 + i]) * dot(&d, &d));
            if (!(fabs(actual - expected) < 2e-8 * scale))
                fail_msg("xent, input %d: derivative %.12g, differences say %.12g", i, actual, expected);
            free_matrices(&d, 1);
        }
        free_matrices(in, 4);
        free_matrices(out, 3);
    }
}

static void xent_passes_its_dx(void **state) {
    (void)state;
    eager e = {
        .b = {.in = e.in, .out = e.out, .grad_out = eager_grad_out, .wants = eager_wants, .pass_grad = eager_pass_grad},
        .in = {0, 1, 2, 3},
        .out = {4, 5, 6},
        .arriving = {7, -1, -1},
        .grads = {-1, -1, -1, -1},
        .wanted = 3};
    require_ok(ndp_op_xent.backward(&e.b));
    assert_int_equal(e.grads[0], 5);
    assert_int_equal(e.grads[1], -1);
}

/* The rules must not make gradients that are not wanted, nor act where none arrives. */
static void nothing_flows_nothing_made(void **state) {
    (void)state;
    const ndp_op *ops[] = {&ndp_op_embedding,   &ndp_op_linear,       &ndp_op_rmsnorm,        &ndp_op_add_rmsnorm,
                           &ndp_op_rope,        &ndp_op_latent_keys,  &ndp_op_swiglu,         &ndp_op_add,
                           &ndp_op_add_bias,    &ndp_op_copy,         &ndp_op_heads_split,    &ndp_op_heads_merge,
                           &ndp_op_layernorm,   &ndp_op_geglu,        &ndp_op_gelu,           &ndp_op_scale_by,
                           &ndp_op_scale,       &ndp_op_mean_squares, &ndp_op_norm_by,        &ndp_op_causal_conv,
                           &ndp_op_add_columns, &ndp_op_dropout,      &ndp_op_dora,           &ndp_op_route,
                           &ndp_op_take_rows,   &ndp_op_give_rows,    &ndp_op_weigh_rows,     &ndp_op_linear_stack,
                           &ndp_op_gate_rows,   &ndp_op_stack_bias,   &ndp_op_swiglu_clipped, &ndp_op_gelu_erf,
                           &ndp_op_conv_silu,   &ndp_op_delta_decay,  &ndp_op_delta_rule,     &ndp_op_gate_by};
    for (int i = 0; i < NDP_COUNT(ops); i++) {
        ndp_op_attr attr = {0};
        /* No functions to add anything with: a rule that tried would crash. */
        eager e = {.b = {.attr = &attr, .in = e.in, .out = e.out, .grad_out = eager_grad_out, .wants = eager_wants},
                   .in = {0, 1, 2},
                   .out = {3, 4, 5},
                   .arriving = {-1, -1, -1},
                   .wanted = ~0u};
        require_ok(ops[i]->backward(&e.b));
        e.arriving[0] = e.arriving[1] = 6;
        e.wanted = 0;
        require_ok(ops[i]->backward(&e.b));
    }
    assert_null(ndp_op_kv_append.backward);
    assert_null(ndp_op_cap.backward);
    assert_null(ndp_op_reduce_sum.backward);
    assert_null(ndp_op_dora_squares.backward);
    assert_null(ndp_op_route_order.backward);
    assert_null(ndp_op_route_exchange.backward);
    assert_null(ndp_op_attention_merge.backward);
    assert_null(ndp_op_xent_logits.backward);
    assert_null(ndp_op_xent_grad.backward);
}

/* The last test: an op with a backward and without a case fails. xent makes its gradients itself (xent_gradient), the
 * backward of attention is in test_attention, row_score in test_pair_ops, those of communication and marks are in tests
 * of the passes that write them (parallel/), on several ranks. */
static void every_backward_has_run(void **state) {
    (void)state;
    for (int i = 0; i < NDP_OP_COUNT; i++) {
        const ndp_op *op = ndp_all_ops[i];
        bool has_kernel = ndp_device_ref.kernels[i] != NULL;
        if (op->backward && has_kernel && !differentiated[i] && op != &ndp_op_attention && op != &ndp_op_xent &&
            op != &ndp_op_row_score)
            fail_msg("%s has no case: compare its backward with differences here", op->name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_gradient),
        cmocka_unit_test(linear_gradient),
        cmocka_unit_test(rmsnorm_gradient),
        cmocka_unit_test(add_rmsnorm_gradient),
        cmocka_unit_test(rope_gradient),
        cmocka_unit_test(activation_gradients),
        cmocka_unit_test(scale_gradient),
        cmocka_unit_test(rmsnorm_of_heads_gradient),
        cmocka_unit_test(layernorm_gradient),
        cmocka_unit_test(halves_of_rmsnorm_gradient),
        cmocka_unit_test(partial_rope_gradient),
        cmocka_unit_test(latent_keys_gradient),
        cmocka_unit_test(add_gradient),
        cmocka_unit_test(causal_conv_gradient),
        cmocka_unit_test(conv_silu_gradient),
        cmocka_unit_test(delta_decay_gradient),
        cmocka_unit_test(delta_rule_gradient),
        cmocka_unit_test(gate_by_gradient),
        cmocka_unit_test(conv_silu_of_pieces),
        cmocka_unit_test(delta_rule_of_pieces),
        cmocka_unit_test(xent_gradient),
        cmocka_unit_test(add_bias_gradient),
        cmocka_unit_test(add_columns_gradient),
        cmocka_unit_test(dropout_gradient),
        cmocka_unit_test(dora_gradient),
        cmocka_unit_test(copy_gradient),
        cmocka_unit_test(heads_gradient),
        cmocka_unit_test(linear_stack_gradient),
        cmocka_unit_test(stack_bias_gradient),
        cmocka_unit_test(gate_rows_gradient),
        cmocka_unit_test(route_gradient),
        cmocka_unit_test(router_losses_gradient),
        cmocka_unit_test(take_and_give_gradients),
        cmocka_unit_test(xent_passes_its_dx),
        cmocka_unit_test(nothing_flows_nothing_made),
        cmocka_unit_test(every_backward_has_run),
    };
    return end_of_ops(cmocka_run_group_tests(tests, NULL, NULL));
}
