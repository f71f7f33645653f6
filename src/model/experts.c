/* A mixture of experts in place of an MLP (arXiv:1701.06538, 2101.03961): each row goes to k of E small gated MLPs, and
 * their results are summed with the weights of its choices. No row is dropped, and none waits for a place.
 *
 *   x [T,C] -> router [T,E] -> choices, weights [T,k] -> order of the N = T k chosen pairs, by expert
 *   rows of x in that order [N,C] -> gate,up [N,2F] -> gated activation [N,F] -> down [N,C] -> weighted sums [T,C]
 *
 * How many rows an expert gets is data: N rows are planned, and the products read where each expert's begin. Rows of
 * padding are chosen for nothing.
 *
 * A shared expert is a gated MLP that all rows go to; in some families a sigmoid of each row says how much of its
 * result passes. It is no member of the stacks: its products are those of a dense MLP, with the same cuts and adapters.
 */
#include "model/block.h"

#include "model/activations.h"
#include "model/families.h"

/* ---- losses of the router ---- */

/* transformers' balance loss is one of all layers' means together, and is `choices` where experts are even; ours is a
 * sum over layers, each 1 there. If all layers have the same counts and probabilities, this makes both the same. */
static double coefficient_of_a_layer(const ndp_facts *f) {
    int mixtures = 0;
    for (int i = 0; i < f->layers; i++)
        mixtures += f->kinds[f->kind_of[i]].mlp == &ndp_mlp_experts;
    return f->balance_coef * f->choices / mixtures;
}

ndp_router_losses ndp_router_losses_of(const ndp_facts *f, const ndp_model_opts *o) {
    const ndp_router_opts *r = &o->router;
    bool balance = r->balance == NDP_BALANCE_AUTO ? f->balanced : r->balance == NDP_BALANCE_SEQUENCE;
    if (o->mode != NDP_MODEL_TRAIN || f->experts == 0)
        return (ndp_router_losses){0};
    double coefficient = r->balance_coef > 0 ? r->balance_coef : coefficient_of_a_layer(f);
    return (ndp_router_losses){.balance = balance ? coefficient : 0, .z_loss = r->z_loss};
}

ndp_status ndp_router_losses_check(const ndp_facts *f, const ndp_model_opts *o) {
    const ndp_router_opts *r = &o->router;
    NDP_CHECK(f->experts > 0 || (r->balance != NDP_BALANCE_SEQUENCE && r->balance_coef == 0 && r->z_loss == 0),
              "the model has no mixture layers, and so no router: remove moe.balance, moe.balance_coef, moe.z_loss");
    NDP_CHECK(!f->sigmoid || (r->balance != NDP_BALANCE_SEQUENCE && r->balance_coef == 0 && r->z_loss == 0),
              "moe.balance, moe.balance_coef and moe.z_loss are losses of softmax routers, and those of %s are of "
              "sigmoids: remove them",
              f->family);
    NDP_CHECK(
        r->bias_rate == 0 || (f->experts > 0 && f->names->router_bias),
        "moe.bias_rate changes a bias that is added to scores where a router chooses, and a model of %s has none: "
        "remove it",
        f->family);
    NDP_CHECK(r->bias_rate == 0 || o->adapter.r == 0,
              "moe.bias_rate changes the routers of the model, and an adapter leaves them as they are: remove it");
    NDP_CHECK(r->balance != NDP_BALANCE_SEQUENCE || r->balance_coef > 0 || f->balance_coef > 0,
              "moe.balance is sequence, but the model's \"router_aux_loss_coef\" is 0: set moe.balance_coef");
    return NDP_OK;
}

static void write_losses(const ndp_unit_builder *b, int logits, int choices) {
    ndp_router_losses l = ndp_router_losses_of(b->f, &b->m->opts);
    int counts = NDP_NONE, samples = ndp_unit_data(b, NDP_INPUT_SAMPLES);
    ndp_op_attr attr = {.parts = b->m->opts.samples > 0 ? b->m->opts.samples : 1, .experts = b->f->experts};
    if (l.balance == 0 && l.z_loss == 0)
        return;
    if (l.balance > 0)
        counts = ndp_graph_op1(b->g, &ndp_op_choice_counts, &attr, "counts", (int[]){choices, samples}, 2);
    attr = (ndp_op_attr){.train = true, .parts = 1, .balance = l.balance, .z_loss = l.z_loss};
    int ins[] = {logits, counts, samples, ndp_unit_data(b, NDP_INPUT_ROUTER_SCALE)},
        sums = ndp_unit_data(b, NDP_INPUT_ROUTER_SUMS);
    ndp_graph_op(b->g, &ndp_op_router_losses, &attr, "losses", ins, 4, &sums, 1);
}

/* ---- the mixture ---- */

/* Logits of rows, by a router or a gate: they and what is made of them are wide, also in bf16. */
static int logits_of(ndp_unit_builder *b, const char *name, int x, ndp_param place, ndp_param bias, int64_t cols) {
    ndp_dtype wide = ndp_wide(b->m->opts.compute);
    int logits = ndp_graph_value(b->g, name, b->m->opts.rows, cols, wide);
    int ins[] = {x, ndp_unit_weight(b, place, 1), ndp_unit_param(b, bias, 1)};
    ndp_graph_op(b->g, &ndp_op_linear, NULL, name, ins, 3, &logits, 1);
    return logits;
}

/* `wide`, columns or 0: so that what choices sum is rounded once, as on ranks that have parts of it. how: of products
 * of x. */
static int stack(ndp_unit_builder *b, const char *name, int x, const ndp_op_attr *how, ndp_param place, ndp_param bias,
                 int offsets, int64_t wide) {
    int ins[] = {x, ndp_unit_weight(b, place, 1), offsets}, added = ndp_unit_param(b, bias, 1), y = NDP_NONE;
    const ndp_op_attr attr = {.parts = 1};
    if (wide > 0)
        y = ndp_graph_value(b->g, name, b->g->values[x].view.rows, wide, ndp_wide(b->m->opts.compute));
    ndp_graph_op(b->g, &ndp_op_linear_stack, how, name, ins, 3, &y, 1);
    y = ndp_unit_stack_adapter(b, name, x, how, y, place, offsets);
    return added == NDP_NONE ? y : ndp_graph_op1(b->g, &ndp_op_stack_bias, &attr, name, (int[]){y, added, offsets}, 3);
}

/* Choices, weights and, where they are recorded, the logits as the batch keeps them. */
static void route(ndp_unit_builder *b, const ndp_op_attr *attr, int logits, int routed[3]) {
    int samples = ndp_unit_data(b, NDP_INPUT_SAMPLES), given = ndp_unit_data(b, NDP_INPUT_CHOICES);
    int ins[] = {logits, samples, given, ndp_unit_param(b, NDP_P_ROUTER_BIAS, 1)};
    routed[2] = ndp_unit_data(b, NDP_INPUT_ROUTER);
    ndp_graph_op(b->g, &ndp_op_route, attr, "choices", ins,
                 ins[3] != NDP_NONE  ? 4
                 : given == NDP_NONE ? 2
                                     : 3,
                 routed, routed[2] == NDP_NONE ? 2 : 3);
    int loads = ndp_unit_data(b, NDP_INPUT_LOADS);
    const ndp_op_attr adds = {.accumulate = true, .experts = b->f->experts};
    if (loads != NDP_NONE)
        ndp_graph_op(b->g, &ndp_op_choice_loads, &adds, "loads", &routed[0], 1, &loads, 1);
    write_losses(b, logits, routed[0]);
}

static int routed_experts(ndp_unit_builder *b, int x) {
    enum { ORDER, PLACES, OFFSETS };
    const ndp_facts *f = b->f;
    const ndp_op_attr attr = {.choices = f->choices,
                              .experts = f->experts,
                              .renormalise = f->renormalise,
                              .sigmoid = f->sigmoid,
                              .groups = f->groups,
                              .open_groups = f->open_groups,
                              .group_best = f->groups == 0 ? 0
                                            : f->sigmoid   ? 2
                                                           : 1,
                              .scale = f->routed_scale == 1 ? 0 : f->routed_scale};
    int routed[3] = {NDP_NONE, NDP_NONE, NDP_NONE}, where[3] = {NDP_NONE, NDP_NONE, NDP_NONE};
    route(b, &attr, logits_of(b, "router", x, NDP_P_ROUTER, NDP_B_ROUTER, f->experts), routed);
    ndp_graph_op(b->g, &ndp_op_route_order, &attr, "order", &routed[0], 1, where, 3);
    int rows[] = {x, where[ORDER], where[PLACES], NDP_NONE};
    const bool narrow = ndp_wide(b->m->opts.compute) != b->m->opts.compute;
    const ndp_op_attr sums = narrow ? (ndp_op_attr){.wide_grad = true, .type = b->m->opts.compute} : (ndp_op_attr){0};
    int taken = ndp_graph_op1(b->g, &ndp_op_take_rows, &sums, "taken", rows, 4);
    int gate_up = stack(b, "gate_up", taken, &sums, NDP_P_EXPERT_GATE_UP, NDP_B_EXPERT_GATE_UP, where[OFFSETS], 0);
    const ndp_op_attr clip = {.scale = f->swiglu_alpha, .cap = f->swiglu_limit};
    int act = ndp_graph_op1(b->g, ndp_activations[f->activation].gated, &clip, "act", &gate_up, 1);
    const bool before = ndp_unit_param(b, NDP_B_EXPERT_DOWN, 1) == NDP_NONE; /* a bias is weighted too */
    if (before)
        act = ndp_graph_op1(b->g, &ndp_op_weigh_rows, NULL, "weighted",
                            (int[]){act, where[ORDER], where[PLACES], routed[1]}, 4);
    int down = stack(b, "down", act, NULL, NDP_P_EXPERT_DOWN, NDP_B_EXPERT_DOWN, where[OFFSETS], f->hidden);
    int back[] = {down, where[ORDER], where[PLACES], before ? NDP_NONE : routed[1], NDP_NONE};
    int y = ndp_graph_value(b->g, "experts", b->m->opts.rows, f->hidden, b->m->opts.compute);
    ndp_graph_op(b->g, &ndp_op_give_rows, &attr, "experts", back, 5, &y, 1);
    return y;
}

static int shared_expert(ndp_unit_builder *b, int x) {
    int y = ndp_unit_gated_mlp(b, x, NDP_P_SHARED_GATE, NDP_NO_PARAM, NDP_P_SHARED_DOWN, NDP_NO_PARAM);
    if (b->places->at[NDP_P_SHARED_PASS].segment == NDP_NONE)
        return y;
    int ins[] = {y, logits_of(b, "shared gate", x, NDP_P_SHARED_PASS, NDP_NO_PARAM, 1)};
    return ndp_graph_op1(b->g, &ndp_op_gate_rows, NULL, "shared", ins, 2);
}

static int experts(ndp_unit_builder *b, int x) {
    int y = routed_experts(b, x);
    return b->f->shared_ffn > 0 ? ndp_unit_add(b, "experts", y, shared_expert(b, x)) : y;
}

const ndp_mlp ndp_mlp_experts = {NDP_PART_EXPERTS, true, experts};
