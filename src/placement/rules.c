/* The table of rules: a row for each op of unit lists, and the ops whose nodes may have such calls: its own, and those
 * that passes and the derivation write it for. Ops of the step program (norm, updates, loss scale) are in step*.c;
 * marks run nothing. */
#include "placement/rule.h"

#define SELF(op, fn) [NDP_OP_##op] = {fn, {&ndp_op_##op}}
#define OF(op, fn, ...) [NDP_OP_##op] = {fn, {__VA_ARGS__}}

enum { MOST_NODES = 4 };

static const struct {
    ndp_rule_fn *judge;
    const ndp_op *nodes[MOST_NODES]; /* none: any */
} rules[NDP_OP_COUNT] = {
    SELF(embedding, ndp_rule_embedding),
    OF(embedding_dw, ndp_rule_embedding_dw, &ndp_op_embedding),
    SELF(linear, ndp_rule_linear),
    SELF(unpack, ndp_rule_unpack),
    SELF(route, ndp_rule_route),
    OF(route_dx, ndp_rule_route_dx, &ndp_op_route),
    SELF(choice_counts, ndp_rule_choice_counts),
    OF(router_losses_dx, ndp_rule_router_losses_dx, &ndp_op_router_losses),
    SELF(route_order, ndp_rule_route_order),
    OF(take_rows, ndp_rule_take_rows, &ndp_op_take_rows, &ndp_op_give_rows),
    OF(give_rows, ndp_rule_give_rows, &ndp_op_give_rows, &ndp_op_take_rows),
    OF(give_rows_dw, ndp_rule_give_rows_dw, &ndp_op_give_rows, &ndp_op_take_rows),
    OF(linear_dx, ndp_rule_linear_dx, &ndp_op_linear),
    OF(linear_dw, ndp_rule_linear_dw, &ndp_op_linear),
    OF(linear_db, ndp_rule_linear_db, &ndp_op_linear, &ndp_op_layernorm, &ndp_op_add_bias),
    SELF(linear_stack, ndp_rule_linear_stack),
    OF(linear_stack_dx, ndp_rule_linear_stack_dx, &ndp_op_linear_stack),
    OF(linear_stack_dw, ndp_rule_linear_stack_dw, &ndp_op_linear_stack),
    SELF(rmsnorm, ndp_rule_rmsnorm),
    OF(rmsnorm_dx, ndp_rule_norm_dx, &ndp_op_rmsnorm, &ndp_op_add_rmsnorm),
    OF(rmsnorm_dw, ndp_rule_norm_dw, &ndp_op_rmsnorm, &ndp_op_add_rmsnorm),
    SELF(add_rmsnorm, ndp_rule_add_rmsnorm),
    SELF(layernorm, ndp_rule_layernorm),
    OF(layernorm_dx, ndp_rule_norm_dx, &ndp_op_layernorm),
    OF(layernorm_dw, ndp_rule_norm_dw, &ndp_op_layernorm),
    OF(mean_squares, ndp_rule_mean_squares, &ndp_op_rmsnorm),
    OF(mean_squares_dx, ndp_rule_mean_squares_dx, &ndp_op_rmsnorm),
    OF(norm_by, ndp_rule_norm_by, &ndp_op_rmsnorm),
    OF(norm_by_dx, ndp_rule_norm_by_dx, &ndp_op_rmsnorm),
    SELF(rope, ndp_rule_rope),
    SELF(swiglu, ndp_rule_gated),
    OF(swiglu_bwd, ndp_rule_gated_bwd, &ndp_op_swiglu),
    SELF(geglu, ndp_rule_gated),
    OF(geglu_bwd, ndp_rule_gated_bwd, &ndp_op_geglu),
    SELF(gate_rows, ndp_rule_gate_rows),
    OF(gate_rows_dg, ndp_rule_gate_rows_dg, &ndp_op_gate_rows),
    SELF(gelu, ndp_rule_elementwise),
    OF(gelu_bwd, ndp_rule_elementwise_bwd, &ndp_op_gelu),
    SELF(causal_conv, ndp_rule_causal_conv),
    OF(causal_conv_dx, ndp_rule_causal_conv_dx, &ndp_op_causal_conv),
    OF(causal_conv_dw, ndp_rule_causal_conv_dw, &ndp_op_causal_conv),
    SELF(scale, ndp_rule_linear_map),
    SELF(cap, ndp_rule_elementwise),
    OF(add, ndp_rule_add, NULL),
    OF(add_bias, ndp_rule_add_bias, &ndp_op_linear, &ndp_op_add_bias),
    OF(copy, ndp_rule_copy, NULL),
    SELF(attention, ndp_rule_attention),
    OF(attention_bwd, ndp_rule_attention_bwd, &ndp_op_attention),
    OF(attention_merge, ndp_rule_attention_merge, &ndp_op_attention),
    OF(heads_split, ndp_rule_heads_split, &ndp_op_attention),
    OF(heads_merge, ndp_rule_heads_merge, &ndp_op_attention),
    SELF(xent, ndp_rule_xent),
    OF(xent_logits, ndp_rule_xent_logits, &ndp_op_xent),
    OF(xent_grad, ndp_rule_xent_grad, &ndp_op_xent),
    SELF(document_sums, ndp_rule_document_sums),
    SELF(pair_loss, ndp_rule_pair_loss),
    SELF(pair_rows, ndp_rule_pair_rows),
    SELF(kv_append, ndp_rule_kv_append),
    SELF(add_columns, ndp_rule_add_columns),
    SELF(dropout, ndp_rule_dropout),
    SELF(dora_squares, ndp_rule_dora_squares),
    SELF(dora, ndp_rule_dora),
    OF(dora_dm, ndp_rule_dora_dm, &ndp_op_dora),
    OF(reduce_sum, ndp_rule_reduce_sum, &ndp_op_reduce_sum, &ndp_op_router_losses),
};

ndp_status ndp_rule_judge(ndp_rule *r) {
    const ndp_op *op = r->c->op;
    if (!rules[op->id].judge)
        return ndp_refuse(r, "the lists of units have no rule for this op");
    bool of = rules[op->id].nodes[0] == NULL;
    for (int i = 0; i < MOST_NODES; i++)
        of |= rules[op->id].nodes[i] == r->n->op;
    return of ? rules[op->id].judge(r) : ndp_refuse(r, "it was written for a node %s", r->n->op->name);
}
