/* A mixture of experts in place of an MLP (arXiv:1701.06538, 2101.03961): each row goes to k of E small gated MLPs, and
 * their results are summed with the weights of its choices. No row is dropped, and none waits for a place.
 *
 *   x [T,C] -> router [T,E] -> choices, weights [T,k] -> order of the N = T k chosen pairs, by expert
 *   rows of x in that order [N,C] -> gate,up [N,2F] -> gated activation [N,F] -> down [N,C] -> weighted sums [T,C]
 *
 * How many rows an expert gets is data: N rows are planned, and the products read where each expert's begin. Rows of
 * padding are chosen for nothing. */
#include "model/block.h"

#include "model/activations.h"

/* The router's logits and probabilities are wide, also in bf16. */
static int logits_of(ndp_unit_builder *b, int x) {
    ndp_dtype wide = b->m->opts.compute == NDP_F64 ? NDP_F64 : NDP_F32;
    int logits = ndp_graph_value(b->g, "router", b->m->opts.rows, b->f->experts, wide);
    int ins[] = {x, ndp_unit_weight(b, NDP_P_ROUTER, 1), NDP_NONE};
    ndp_graph_op(b->g, &ndp_op_linear, NULL, "router", ins, 3, &logits, 1);
    return logits;
}

static int stack(ndp_unit_builder *b, const char *name, int x, ndp_param place, int offsets) {
    int ins[] = {x, ndp_unit_weight(b, place, 1), offsets};
    return ndp_graph_op1(b->g, &ndp_op_linear_stack, NULL, name, ins, 3);
}

/* The value of an input; NDP_NONE: the model has none of the kind. */
static int data_of(ndp_unit_builder *b, ndp_input_kind kind) {
    int input = ndp_inputs_find(b->m->inputs, kind);
    return input < 0 ? NDP_NONE : ndp_graph_data(b->g, input);
}

/* Choices, weights and, where they are recorded, the logits as the batch keeps them. */
static void route(ndp_unit_builder *b, const ndp_op_attr *attr, int logits, int routed[3]) {
    int live = ndp_graph_data(b->g, ndp_in_live(b->m)), given = data_of(b, NDP_INPUT_CHOICES);
    routed[2] = data_of(b, NDP_INPUT_ROUTER);
    ndp_graph_op(b->g, &ndp_op_route, attr, "choices", (int[]){logits, live, given}, given == NDP_NONE ? 2 : 3, routed,
                 routed[2] == NDP_NONE ? 2 : 3);
}

static int experts(ndp_unit_builder *b, int x) {
    enum { ORDER, PLACES, OFFSETS };
    const ndp_facts *f = b->f;
    const ndp_op_attr attr = {.choices = f->choices, .experts = f->experts, .renormalise = f->renormalise};
    int routed[3] = {NDP_NONE, NDP_NONE, NDP_NONE}, where[3] = {NDP_NONE, NDP_NONE, NDP_NONE};
    route(b, &attr, logits_of(b, x), routed);
    ndp_graph_op(b->g, &ndp_op_route_order, &attr, "order", &routed[0], 1, where, 3);
    int rows[] = {x, where[ORDER], where[PLACES], NDP_NONE};
    int taken = ndp_graph_op1(b->g, &ndp_op_take_rows, &attr, "taken", rows, 4);
    int gate_up = stack(b, "gate_up", taken, NDP_P_EXPERT_GATE_UP, where[OFFSETS]);
    int act = ndp_graph_op1(b->g, ndp_activations[f->activation].gated, NULL, "act", &gate_up, 1);
    int down = stack(b, "down", act, NDP_P_EXPERT_DOWN, where[OFFSETS]);
    int back[] = {down, where[ORDER], where[PLACES], routed[1], NDP_NONE};
    return ndp_graph_op1(b->g, &ndp_op_give_rows, &attr, "experts", back, 5);
}

const ndp_mlp ndp_mlp_experts = {NDP_PART_EXPERTS, true, experts};
