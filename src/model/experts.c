/* A mixture of experts in place of an MLP (arXiv:1701.06538, 2101.03961): each row goes to k of E small gated MLPs, and
 * their results are summed with the weights of its choices. No row is dropped, and none waits for a place.
 *
 *   x [T,C] -> router [T,E] -> choices, weights [T,k] -> order of the N = T k chosen pairs, by expert
 *   rows of x in that order [N,C] -> gate,up [N,2F] -> gated activation [N,F] -> down [N,C] -> weighted sums [T,C]
 *
 * How many rows an expert gets is data: N rows are planned, and the products read where each expert's begin. Rows of
 * padding are chosen for nothing.
 *
 * A shared expert is a gated MLP that all rows go to; a sigmoid of each row says how much of its result passes. It is
 * no member of the stacks: its products are those of a dense MLP, with the same cuts and adapters. */
#include "model/block.h"

#include "model/activations.h"

/* Logits of rows, by a router or a gate: they and what is made of them are wide, also in bf16. */
static int logits_of(ndp_unit_builder *b, const char *name, int x, ndp_param place, int64_t cols) {
    ndp_dtype wide = b->m->opts.compute == NDP_F64 ? NDP_F64 : NDP_F32;
    int logits = ndp_graph_value(b->g, name, b->m->opts.rows, cols, wide);
    int ins[] = {x, ndp_unit_weight(b, place, 1), NDP_NONE};
    ndp_graph_op(b->g, &ndp_op_linear, NULL, name, ins, 3, &logits, 1);
    return logits;
}

static int stack(ndp_unit_builder *b, const char *name, int x, ndp_param place, int offsets) {
    int ins[] = {x, ndp_unit_weight(b, place, 1), offsets};
    return ndp_graph_op1(b->g, &ndp_op_linear_stack, NULL, name, ins, 3);
}

static int routed_experts(ndp_unit_builder *b, int x) {
    enum { ORDER, PLACES, OFFSETS };
    const ndp_facts *f = b->f;
    const ndp_op_attr attr = {.choices = f->choices, .experts = f->experts, .renormalise = f->renormalise};
    int logits = logits_of(b, "router", x, NDP_P_ROUTER, f->experts);
    int live = ndp_graph_data(b->g, ndp_in_live(b->m)), routed[2] = {NDP_NONE, NDP_NONE};
    int where[3] = {NDP_NONE, NDP_NONE, NDP_NONE};
    ndp_graph_op(b->g, &ndp_op_route, &attr, "choices", (int[]){logits, live}, 2, routed, 2);
    ndp_graph_op(b->g, &ndp_op_route_order, &attr, "order", &routed[0], 1, where, 3);
    int rows[] = {x, where[ORDER], where[PLACES], NDP_NONE};
    int taken = ndp_graph_op1(b->g, &ndp_op_take_rows, &attr, "taken", rows, 4);
    int gate_up = stack(b, "gate_up", taken, NDP_P_EXPERT_GATE_UP, where[OFFSETS]);
    int act = ndp_graph_op1(b->g, ndp_activations[f->activation].gated, NULL, "act", &gate_up, 1);
    int down = stack(b, "down", act, NDP_P_EXPERT_DOWN, where[OFFSETS]);
    int back[] = {down, where[ORDER], where[PLACES], routed[1], NDP_NONE};
    return ndp_graph_op1(b->g, &ndp_op_give_rows, &attr, "experts", back, 5);
}

static int shared_expert(ndp_unit_builder *b, int x) {
    int y = ndp_unit_gated_mlp(b, x, NDP_P_SHARED_GATE, NDP_NO_PARAM, NDP_P_SHARED_DOWN, NDP_NO_PARAM);
    int ins[] = {y, logits_of(b, "shared gate", x, NDP_P_SHARED_PASS, 1)};
    return ndp_graph_op1(b->g, &ndp_op_gate_rows, NULL, "shared", ins, 2);
}

static int experts(ndp_unit_builder *b, int x) {
    int y = routed_experts(b, x);
    return b->f->shared_ffn > 0 ? ndp_unit_add(b, "experts", y, shared_expert(b, x)) : y;
}

const ndp_mlp ndp_mlp_experts = {NDP_PART_EXPERTS, true, experts};
