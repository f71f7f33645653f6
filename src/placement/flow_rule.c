/* The rule of a call, from its op's row of ops/flow.h. First each operand must be what the row says; then tiles meet
 * (flow_meet.c). What rows do not say is in functions (rules_*.c), which prepare operands or finish results. */
#include "placement/rule.h"

static bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }

/* Which value of the node each kind is about, and what it is of it. */
enum { NO_VALUE, AN_OPERAND, A_RESULT };
static const struct {
    int of;
    ndp_thing_kind thing; /* VALUE, or its GRADIENT; or what only calls of the node make */
    bool complete;        /* as an operand */
} kinds[] = {
    [NDP_FLOW_NONE] = {NO_VALUE, NDP_THING_NONE, false},
    [NDP_FLOW_ANY] = {NO_VALUE, NDP_THING_NONE, false},
    [NDP_FLOW_EARLIER] = {NO_VALUE, NDP_THING_NONE, false},
    [NDP_FLOW_OPERAND] = {AN_OPERAND, NDP_THING_VALUE, true},
    [NDP_FLOW_PART] = {AN_OPERAND, NDP_THING_VALUE, false},
    [NDP_FLOW_PLACED] = {AN_OPERAND, NDP_THING_VALUE, true},
    [NDP_FLOW_RESULT] = {A_RESULT, NDP_THING_VALUE, true},
    [NDP_FLOW_D_OPERAND] = {AN_OPERAND, NDP_THING_GRADIENT, false},
    [NDP_FLOW_D_RESULT] = {A_RESULT, NDP_THING_GRADIENT, false},
    [NDP_FLOW_D_SUM] = {A_RESULT, NDP_THING_GRADIENT, false},
    [NDP_FLOW_EITHER] = {AN_OPERAND, NDP_THING_VALUE, false},
    [NDP_FLOW_ADDED] = {AN_OPERAND, NDP_THING_VALUE, true},
    [NDP_FLOW_BIAS] = {AN_OPERAND, NDP_THING_VALUE, true},
    [NDP_FLOW_MAYBE] = {AN_OPERAND, NDP_THING_VALUE, true},
    [NDP_FLOW_COUNT] = {A_RESULT, NDP_THING_DATA, false},
    [NDP_FLOW_PRODUCT] = {A_RESULT, NDP_THING_PRODUCT, true},
    [NDP_FLOW_LOGITS] = {NO_VALUE, NDP_THING_LOGITS, false},
    [NDP_FLOW_SLOPES] = {NO_VALUE, NDP_THING_SLOPES, false},
    [NDP_FLOW_STATISTICS] = {NO_VALUE, NDP_THING_STATS, false},
    [NDP_FLOW_LOSSES] = {NO_VALUE, NDP_THING_LOSSES, false},
    [NDP_FLOW_SQUARES] = {NO_VALUE, NDP_THING_SQUARES, true},
    [NDP_FLOW_D_SQUARES] = {NO_VALUE, NDP_THING_DSQUARES, true},
};

int ndp_flow_value(const ndp_rule *r, const ndp_flow_matrix *m) {
    if (kinds[m->is].of == A_RESULT)
        return r->n->out[m->of];
    return kinds[m->is].of == AN_OPERAND && m->of < r->n->n_in ? r->n->in[m->of] : NDP_NONE;
}

int64_t ndp_flow_unit(const ndp_rule *r, const ndp_flow_matrix *m, int axis) {
    const ndp_op_attr *a = &r->n->attr;
    int value = ndp_flow_value(r, m);
    if (axis == 1 && m->each == NDP_EACH_GROUP)
        return value == NDP_NONE ? 1 : r->g->values[value].view.cols / a->kv_heads;
    if (axis == 1 && (m->each == NDP_EACH_HEAD || m->each == NDP_EACH_KV_HEAD))
        return a->v_dim == 0 || value == NDP_NONE
                   ? 1
                   : r->g->values[value].view.cols / (m->each == NDP_EACH_HEAD ? a->heads : a->kv_heads);
    return axis == 0 || m->each == 0 ? 1 : m->each < 0 ? -m->each : r->g->values[r->n->in[m->each]].view.cols;
}

int64_t ndp_flow_whole(const ndp_rule *r, const ndp_flow_matrix *m, int axis) {
    int value = ndp_flow_value(r, m);
    if (value == NDP_NONE)
        return 0;
    const ndp_view *v = &r->g->values[value].view;
    return axis ? v->cols / ndp_flow_unit(r, m, 1) : v->rows;
}

ndp_thing_kind ndp_flow_thing(ndp_flow_kind kind) { return kinds[kind].thing; }

/* ---- operands ---- */

/* An input whose rows are those of the batch. A program that stands in for another rank's takes its own rank's. */
static bool is_by_row(const ndp_rule *r, const ndp_flow_matrix *m, int value) {
    return ndp_flow_is_letter(m->axes[0]) && (m->is != NDP_FLOW_PLACED || !r->lane->stands_in) &&
           ndp_input_is_of_batch(r->g->inputs->items[r->g->values[value].input].kind);
}

static ndp_text name_of(const char *name, int k) {
    ndp_text out = {""};
    if (name)
        ndp_text_add(&out, "%s", name);
    else
        ndp_text_add(&out, "operand %d", k);
    return out;
}

/* An operand that is absent must be so in the node. */
static ndp_status expect_present(const ndp_rule *r, int k, const ndp_flow_matrix *m, bool wanted) {
    if (ndp_rule_has(r, k) == wanted || ((m->is == NDP_FLOW_BIAS || m->is == NDP_FLOW_MAYBE) && wanted))
        return NDP_OK;
    return m->is == NDP_FLOW_BIAS
               ? ndp_refuse(r, "its node has no bias")
               : ndp_refuse(r, "it %s %s, its node does not", wanted ? "lacks" : "has", name_of(m->name, k).s);
}

static ndp_status expect_operand(ndp_rule *r, int k, const ndp_flow_matrix *m, int value) {
    NDP_TRY(expect_present(r, k, m, value != NDP_NONE));
    if (!ndp_rule_has(r, k))
        return NDP_OK;
    if (r->g->values[value].kind == NDP_VALUE_PARAM)
        return ndp_expect_param(r, k, value);
    bool input = r->g->values[value].kind == NDP_VALUE_DATA && !ndp_is(r, k, NDP_THING_VALUE, value);
    return ndp_expect(r, k, input ? NDP_THING_DATA : NDP_THING_VALUE, value, !input && kinds[m->is].complete);
}

static ndp_status expect(ndp_rule *r, int k) {
    const ndp_flow_matrix *m = &r->flow->in[k];
    ndp_thing_kind thing = kinds[m->is].thing;
    int value = ndp_flow_value(r, m);
    if (m->is == NDP_FLOW_EITHER)
        r->back = ndp_is(r, k, NDP_THING_GRADIENT, r->n->out[0]);
    if (r->back && m->is == NDP_FLOW_EITHER)
        return ndp_expect(r, k, NDP_THING_GRADIENT, r->n->out[0], false);
    if (thing == NDP_THING_NONE)
        return NDP_OK;
    if (thing == NDP_THING_VALUE && kinds[m->is].of == AN_OPERAND)
        return expect_operand(r, k, m, value);
    if (m->is == NDP_FLOW_D_RESULT && r->flow->pieces)
        NDP_TRY(ndp_take_zeros(r, k));
    NDP_TRY(ndp_expect(r, k, thing, value, kinds[m->is].complete));
    for (int i = 0; i < r->in[k].n && thing == NDP_THING_PRODUCT; i++) /* without its bias: it becomes the value */
        r->in[k].tiles[i].what.kind = NDP_THING_VALUE;
    return NDP_OK;
}

/* All of an axis with a capital is here, each row in its place; columns as one tile, since no sum of two is known. */
static ndp_status expect_whole(const ndp_rule *r, int k, int axis) {
    const ndp_flow_matrix *m = &r->flow->in[k];
    const ndp_content *c = &r->in[k];
    bool batch = m->axes[axis] == 'T';
    int64_t whole = batch ? r->lane->batch.real : ndp_flow_whole(r, m, axis), here = axis ? c->cols : c->rows;
    for (int i = 0; i < c->n; i++) {
        const ndp_tile *t = &c->tiles[i];
        if (axis == 1 && (t->col != 0 || t->at_col != 0 || t->cols != whole || here != whole))
            return ndp_refuse(r, "operand %d has columns %lld to %lld of %lld; it must have all, of one sum", k,
                              (long long)t->at_col, (long long)(t->at_col + t->cols), (long long)whole);
        if (axis == 0 &&
            (t->at_row != t->row + (batch ? r->lane->first_row : 0) || (batch ? here < whole : here != whole)))
            return batch ? ndp_refuse(r, "it mixes rows, and operand %d has some of them only", k)
                         : ndp_refuse(r, "operand %d has %lld of %lld rows", k, (long long)here, (long long)whole);
    }
    return c->n > 0 || here == whole ? NDP_OK
                                     : ndp_refuse(r, "operand %d has %lld of %lld %s", k, (long long)here,
                                                  (long long)whole, axis ? "columns" : "rows");
}

bool ndp_flow_is_compared(const ndp_rule *r, int k) {
    const ndp_flow_matrix *m = &r->flow->in[k];
    if (m->is == NDP_FLOW_NONE || m->is == NDP_FLOW_EARLIER || !ndp_rule_has(r, k) ||
        (!ndp_flow_is_letter(m->axes[0]) && !ndp_flow_is_letter(m->axes[1])))
        return false;
    int value = ndp_flow_value(r, m);
    return value == NDP_NONE || r->g->values[value].kind != NDP_VALUE_DATA || is_by_row(r, m, value);
}

/* ---- the rule ---- */

/* What is added once is added to what is complete. */
static ndp_status check_added(const ndp_rule *r, int k) {
    const ndp_flow_matrix *m = &r->flow->in[k];
    bool added = (m->is == NDP_FLOW_ADDED || m->is == NDP_FLOW_BIAS) && ndp_rule_has(r, k);
    for (int i = 0; added && i < r->out[0].n; i++) {
        const ndp_tile *t = &r->out[0].tiles[i];
        if (t->share != 1 && t->what.kind != NDP_THING_ZERO)
            return ndp_refuse(r, "it adds %s to %s", name_of(m->is == NDP_FLOW_BIAS ? "a bias" : NULL, k).s,
                              ndp_tile_text(r, t).s);
    }
    return NDP_OK;
}

/* Adds an earlier part of the gradient that result 0 is. */
static ndp_status add_earlier(ndp_rule *r, int k) {
    const ndp_flow_matrix *m = &r->flow->in[k];
    int value = ndp_flow_value(r, &r->flow->out[0]);
    if (m->is != NDP_FLOW_EARLIER || !ndp_rule_has(r, k))
        return NDP_OK;
    NDP_TRY(ndp_expect(r, k, NDP_THING_GRADIENT, value, false));
    for (int i = 0; i < r->in[k].n; i++)
        r->in[k].tiles[i] = ndp_gradient_tile(r, value, r->in[k].tiles[i], r->in[k].tiles[i].share);
    ndp_content made = r->out[0];
    r->out[0] = ndp_content_of(r->arena, made.rows, made.cols);
    return ndp_sum_contents(r, &made, &r->in[k], &r->out[0]);
}

/* Numbers that depend on what a rank has. All others that the op and its node read are the node's. */
static const uint64_t of_ranks = NDP_READS_heads | NDP_READS_kv_heads | NDP_READS_inverse | NDP_READS_vocab |
                                 NDP_READS_first | NDP_READS_row_blocks | NDP_READS_wide_grad | NDP_READS_type |
                                 NDP_READS_all_parts;

static ndp_status expect_numbers(const ndp_rule *r) {
    const ndp_op_attr *is = &r->c->attr, *must = &r->n->attr;
    uint64_t same = r->c->op->reads & r->n->op->reads & ~of_ranks & ~r->flow->own;
#define EXPECT_SAME(type, name)                                                                                        \
    if ((same & NDP_READS_##name) && is->name != must->name)                                                           \
        return ndp_refuse(r, "its " #name " is %g, must be %g", (double)is->name, (double)must->name);
    NDP_OP_ATTRS(EXPECT_SAME)
#undef EXPECT_SAME
    return NDP_OK;
}

/* The op's row for the call's node; NULL, after a message: none. */
static const ndp_op_flow *find_flow(const ndp_rule *r) {
    const ndp_op *node = r->n->op;
    const ndp_op_flow *f = r->c->op->flow;
    bool runs = false, gradient = r->in[0].n > 0 && r->in[0].tiles[0].what.kind == NDP_THING_GRADIENT;
    for (; f && !f->end; f++) {
        bool own = f->any || node == (f->node ? f->node : r->c->op);
        bool one =
            !own || f->runs == NDP_RUNS_ANY ||
            (r->g->values[r->n->in[0]].view.cols == r->g->values[r->n->in[1]].view.cols) == (f->runs == NDP_RUNS_ONE);
        if (f->sum ? gradient : own && one)
            return f;
        runs |= own && !one;
    }
    (void)(!f     ? ndp_refuse(r, "the lists of units have no rule for this op")
           : runs ? ndp_refuse(r, "its node norms groups of columns")
                  : ndp_refuse(r, "it was written for a node %s", node->name));
    return NULL;
}

/* What rows do not say: before tiles meet, and of what they made. */
static const struct {
    ndp_rule_fn *before, *after;
} functions[NDP_OP_COUNT] = {
    [NDP_OP_add_columns] = {ndp_before_columns, NULL},
    [NDP_OP_attention] = {NULL, ndp_after_attention},
    [NDP_OP_attention_bwd] = {NULL, ndp_after_attention_bwd},
    [NDP_OP_attention_dsink] = {NULL, ndp_after_attention_dsink},
    [NDP_OP_attention_merge] = {NULL, ndp_after_attention_merge},
    [NDP_OP_conv_silu] = {ndp_before_taps, NULL},
    [NDP_OP_conv_silu_dends] = {ndp_before_taps, ndp_after_conv_dends},
    [NDP_OP_conv_silu_dw] = {ndp_before_taps, ndp_after_taps},
    [NDP_OP_conv_silu_dx] = {ndp_before_taps, ndp_after_conv_dx},
    [NDP_OP_copy] = {NULL, ndp_after_copy},
    [NDP_OP_delta_map] = {ndp_before_delta_rule, ndp_after_delta_map},
    [NDP_OP_delta_map_back] = {ndp_before_delta_rule, ndp_after_delta_map_back},
    [NDP_OP_delta_rule] = {ndp_before_delta_rule, NULL},
    [NDP_OP_delta_rule_bwd] = {ndp_before_delta_rule, ndp_after_delta_rule_bwd},
    [NDP_OP_delta_states] = {NULL, ndp_after_delta_states},
    [NDP_OP_dora] = {ndp_before_columns, NULL},
    [NDP_OP_dora_dm] = {ndp_before_columns, NULL},
    [NDP_OP_dropout] = {ndp_before_dropout, NULL},
    [NDP_OP_geglu] = {ndp_before_gated, NULL},
    [NDP_OP_geglu_bwd] = {ndp_before_gated, ndp_after_gated_bwd},
    [NDP_OP_give_rows] = {ndp_before_give_rows, ndp_after_give_rows},
    [NDP_OP_give_rows_dw] = {ndp_before_give_rows, NULL},
    [NDP_OP_heads_merge] = {NULL, ndp_after_heads_merge},
    [NDP_OP_heads_split] = {NULL, ndp_after_heads_split},
    [NDP_OP_linear_stack] = {ndp_before_stack, NULL},
    [NDP_OP_linear_stack_dw] = {ndp_before_stack, NULL},
    [NDP_OP_linear_stack_dx] = {ndp_before_stack, NULL},
    [NDP_OP_piece_ends] = {NULL, ndp_after_piece_ends},
    [NDP_OP_piece_ends_dx] = {NULL, ndp_after_piece_ends_dx},
    [NDP_OP_rope] = {ndp_before_rope, NULL},
    [NDP_OP_route_exchange] = {NULL, ndp_after_route_exchange},
    [NDP_OP_route_order] = {NULL, ndp_after_route_order},
    [NDP_OP_row_slopes] = {ndp_before_row_slopes, NULL},
    [NDP_OP_stack_bias] = {ndp_before_stack_bias, ndp_after_stack_bias},
    [NDP_OP_stack_bias_db] = {ndp_before_stack_bias, NULL},
    [NDP_OP_swiglu] = {ndp_before_gated, NULL},
    [NDP_OP_swiglu_bwd] = {ndp_before_gated, ndp_after_gated_bwd},
    [NDP_OP_take_rows] = {ndp_before_take_rows, ndp_after_take_rows},
    [NDP_OP_unpack] = {NULL, ndp_after_unpack},
    [NDP_OP_weigh_rows] = {ndp_before_weigh_rows, ndp_after_weigh_rows},
    [NDP_OP_weigh_rows_dw] = {ndp_before_weigh_rows, NULL},
    [NDP_OP_xent] = {ndp_before_xent, NULL},
    [NDP_OP_xent_grad] = {ndp_before_xent, NULL},
    [NDP_OP_xent_logits] = {ndp_before_xent, NULL},
    [NDP_OP_zero] = {NULL, ndp_after_zero},
};

/* The order of summands does not matter. */
static void order_summands(ndp_rule *r) {
    ndp_content first = r->in[0];
    if (r->c->op == &ndp_op_add && r->n->op == &ndp_op_add && ndp_is(r, 0, NDP_THING_VALUE, r->n->in[1]))
        r->in[0] = r->in[1], r->in[1] = first;
}

ndp_status ndp_rule_judge(ndp_rule *r) {
    ndp_op_id id = r->c->op->id;
    r->flow = find_flow(r);
    if (!r->flow)
        return NDP_EBUG;
    if (r->flow->sum && ndp_rule_has(r, 1))
        return ndp_add_gradients(r);
    NDP_TRY(expect_numbers(r));
    order_summands(r);
    for (int k = 0; k < r->c->n_in; k++) {
        NDP_TRY(expect(r, k));
        r->unbiased |=
            r->flow->in[k].is == NDP_FLOW_BIAS && !ndp_rule_has(r, k) && ndp_flow_value(r, &r->flow->in[k]) != NDP_NONE;
        for (int axis = 0; axis < 2 && ndp_flow_is_compared(r, k); axis++)
            NDP_TRY(is_capital(r->flow->in[k].axes[axis]) ? expect_whole(r, k, axis) : NDP_OK);
    }
    if (r->flow->pieces)
        NDP_TRY(ndp_before_pieces(r));
    if (functions[id].before)
        NDP_TRY(functions[id].before(r));
    NDP_TRY(ndp_flow_meet(r));
    for (int k = 0; k < r->c->n_in; k++) {
        NDP_TRY(check_added(r, k));
        NDP_TRY(add_earlier(r, k));
    }
    return functions[id].after ? functions[id].after(r) : NDP_OK;
}
