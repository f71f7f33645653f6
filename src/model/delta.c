/* The mixer of a layer with a state: the gated delta rule (arXiv:2412.06464), as Qwen3-Next and Qwen3.5 have it.
 *
 * T rows, G key heads of D columns, H heads of E columns, J taps:
 *
 *   x [T,C] -> q, k [T,GD], v, z [T,HE], b, a [T,H]: columns of one product
 *   q, k, v -> each column filtered by its own J taps over the rows before it -> SiLU
 *   a -> log of the decay: -exp(decay) softplus(a + step)
 *   q, k, v, decay, sigmoid(b) -> a state [D,E] of each head, row by row -> [T,HE]
 *   [norm of each head] -> times SiLU(z) -> o projection
 *
 * Documents begin with a state of zeros, and their first rows see no taps of what stands before. */
#include "model/block.h"

/* The norm of each head: by w, whatever the model's norms do. */
static int head_norm(ndp_unit_builder *b, int x) {
    int outs[2] = {NDP_NONE, NDP_NONE};
    ndp_graph_op(b->g, &ndp_op_rmsnorm, &(ndp_op_attr){.eps = b->f->norm_eps}, "norm",
                 (int[]){x, ndp_unit_param(b, NDP_P_DELTA_NORM, 1)}, 2, outs, 2);
    return outs[0];
}

/* Columns [first, first + n) of the product, filtered over rows. */
static int filtered(ndp_unit_builder *b, const char *name, int product, int64_t first, int64_t n, ndp_param taps) {
    int ins[] = {ndp_graph_columns(b->g, product, first, n), ndp_unit_param(b, taps, 1),
                 ndp_unit_data(b, NDP_INPUT_STARTS)};
    return ndp_graph_op1(b->g, &ndp_op_conv_silu, NULL, name, ins, 3);
}

static int delta(ndp_unit_builder *b, int x) {
    const ndp_delta_sizes *d = &b->f->delta;
    const ndp_op_attr attr = {
        .heads = d->heads, .kv_heads = d->key_heads, .head_dim = d->key_dim, .v_dim = d->value_dim};
    int64_t keys = (int64_t)d->key_heads * d->key_dim, values = (int64_t)d->heads * d->value_dim, z = 2 * keys + values;
    int product = ndp_unit_linear(b, "qkvz", x, NDP_P_DELTA_Q, 6, NDP_NO_PARAM);
    int steps[] = {ndp_graph_columns(b->g, product, z + values + d->heads, d->heads), ndp_unit_param(b, NDP_P_DECAY, 1),
                   ndp_unit_param(b, NDP_P_DECAY_STEP, 1)};
    int ins[] = {filtered(b, "q", product, 0, keys, NDP_P_TAPS_Q),
                 filtered(b, "k", product, keys, keys, NDP_P_TAPS_K),
                 filtered(b, "v", product, 2 * keys, values, NDP_P_TAPS_V),
                 ndp_graph_op1(b->g, &ndp_op_delta_decay, NULL, "decay", steps, 3),
                 ndp_graph_columns(b->g, product, z + values, d->heads),
                 ndp_unit_data(b, NDP_INPUT_STARTS)};
    int o = ndp_graph_op1(b->g, &ndp_op_delta_rule, &attr, "delta", ins, 6);
    o = ndp_unit_gate(b, head_norm(b, o), ndp_graph_columns(b->g, product, z, values), false);
    return ndp_unit_linear(b, "o", o, NDP_P_DELTA_O, 1, NDP_NO_PARAM);
}

const ndp_mixer ndp_mixer_delta = {NDP_PART_DELTA, delta, false, {{NULL, NULL}}};
