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
#include "ops/delta_rule.h"

/* The norm of each head: by w, whatever the model's norms do. */
static int head_norm(ndp_unit_builder *b, int x) {
    int outs[2] = {NDP_NONE, NDP_NONE};
    ndp_graph_op(b->g, &ndp_op_rmsnorm, &(ndp_op_attr){.eps = b->f->norm_eps}, "norm",
                 (int[]){x, ndp_unit_param(b, NDP_P_DELTA_NORM, 1)}, 2, outs, 2);
    return outs[0];
}

enum { TAIL_Q, TAIL_K, TAIL_V, STATE }; /* rows of what is kept */

static int64_t key_columns(const ndp_facts *f) { return (int64_t)f->delta.key_heads * f->delta.key_dim; }
static int64_t value_columns(const ndp_facts *f) { return (int64_t)f->delta.heads * f->delta.value_dim; }
static int64_t key_tail(const ndp_facts *f) { return ndp_tail_rows(f->delta.taps) * key_columns(f); }
static int64_t value_tail(const ndp_facts *f) { return ndp_tail_rows(f->delta.taps) * value_columns(f); }
static int64_t state_columns(const ndp_facts *f) { return value_columns(f) * f->delta.key_dim; }

/* An op with what it keeps of each text, and the rows of the cache that tokens are, before and behind its operands. */
static int continued(ndp_unit_builder *b, const ndp_op *op, ndp_op_attr attr, const char *name, int kept,
                     const int *operands, int n) {
    int ins[NDP_OP_MAX_IN] = {ndp_unit_kept(b, kept)}, outs[2] = {ins[0], NDP_NONE};
    for (int i = 0; i < n; i++)
        ins[1 + i] = operands[i];
    ins[1 + n] = ndp_unit_rows(b);
    attr.capacity = b->m->opts.keys / b->m->inputs->rows[NDP_EXTENT_TEXTS];
    ndp_graph_op(b->g, op, &attr, name, ins, n + 2, outs, 2);
    return outs[1];
}

static bool is_cached(const ndp_unit_builder *b) { return b->m->opts.mode == NDP_MODEL_CACHED; }

/* Columns [first, first + n) of the product, filtered over rows. */
static int filtered(ndp_unit_builder *b, const char *name, int product, int64_t first, int64_t n, int which) {
    int ins[] = {ndp_graph_columns(b->g, product, first, n),
                 ndp_unit_param(b, (ndp_param)((int)NDP_P_TAPS_Q + which), 1),
                 ndp_unit_data(b, NDP_INPUT_STATE_STARTS)};
    const ndp_op_attr attr = {.heads = b->f->delta.key_heads, .head_dim = (int)n / b->f->delta.key_heads};
    return is_cached(b) ? continued(b, &ndp_op_conv_step, (ndp_op_attr){0}, name, which, ins, 3)
                        : ndp_graph_op1(b->g, &ndp_op_conv_silu, &attr, name, ins, 3);
}

static int delta(ndp_unit_builder *b, int x) {
    const ndp_delta_sizes *d = &b->f->delta;
    const ndp_op_attr attr = {
        .heads = d->heads, .kv_heads = d->key_heads, .head_dim = d->key_dim, .v_dim = d->value_dim};
    int64_t keys = key_columns(b->f), values = value_columns(b->f), z = 2 * keys + values;
    int product = ndp_unit_linear(b, "qkvz", x, NDP_P_DELTA_Q, 6, NDP_NO_PARAM);
    int steps[] = {ndp_graph_columns(b->g, product, z + values + d->heads, d->heads), ndp_unit_param(b, NDP_P_DECAY, 1),
                   ndp_unit_param(b, NDP_P_DECAY_STEP, 1)};
    int ins[] = {filtered(b, "q", product, 0, keys, TAIL_Q),
                 filtered(b, "k", product, keys, keys, TAIL_K),
                 filtered(b, "v", product, 2 * keys, values, TAIL_V),
                 ndp_graph_op1(b->g, &ndp_op_delta_decay, NULL, "decay", steps, 3),
                 ndp_graph_columns(b->g, product, z + values, d->heads),
                 ndp_unit_data(b, NDP_INPUT_STATE_STARTS)};
    int o = is_cached(b) ? continued(b, &ndp_op_delta_step, attr, "delta", STATE, ins, 6)
                         : ndp_graph_op1(b->g, &ndp_op_delta_rule, &attr, "delta", ins, 6);
    o = ndp_unit_gate(b, head_norm(b, o), ndp_graph_columns(b->g, product, z, values), false);
    return ndp_unit_linear(b, "o", o, NDP_P_DELTA_O, 1, NDP_NO_PARAM);
}

const ndp_mixer ndp_mixer_delta = {NDP_PART_DELTA,
                                   delta,
                                   false,
                                   {[TAIL_Q] = {"q_tail", key_tail, NDP_EXTENT_TEXTS, false},
                                    [TAIL_K] = {"k_tail", key_tail, NDP_EXTENT_TEXTS, false},
                                    [TAIL_V] = {"v_tail", value_tail, NDP_EXTENT_TEXTS, false},
                                    [STATE] = {"state", state_columns, NDP_EXTENT_TEXTS, true}}};
