/* The derived backward, read as text (tests/graph/golden/), and what a graph refuses. */
#include "graph_text.h"
#include "small_graph.h"

/* Forward, gradient for the input, gradients of the weights. x is used twice: rmsnorm_dx adds to the gradient that
 * arrives by the residual. Gradients of views are written into the columns of their parent's. */
static void a_block(void **state) {
    (void)state;
    small_graph s;
    ndp_str text = {0};
    small_block(&s);
    CHECK_OK(ndp_graph_derive(&s.g));
    ndp_graph_print(&s.g, &text);
    check_golden("graph/golden/derive_block.txt", &text);
    ndp_graph_release(&s.g);
}

/* Two consumers of a value without an op that adds by itself: an `add` joins them. A unit without an input (an
 * embedding) has gradients of weights alone; a row that scales in place keeps the storage. */
static void an_embedding(void **state) {
    (void)state;
    small_graph s;
    ndp_str text = {0};
    small_begin(&s, "embedding");
    int ids = ndp_graph_data(&s.g, 0);
    int x = small_op(&s, &ndp_op_embedding, NULL, "rows", ids, small_param(&s, BACK, 1), NDP_NONE);
    int act = small_op(&s, &ndp_op_gelu, NULL, "act", x, NDP_NONE, NDP_NONE);
    int twice = small_op(&s, &ndp_op_gelu, NULL, "act", x, NDP_NONE, NDP_NONE);
    int sum = small_op(&s, &ndp_op_add, NULL, "sum", act, twice, NDP_NONE);
    ndp_graph_output(&s.g, small_op(&s, &ndp_op_scale, &(ndp_op_attr){.scale = 0.5}, "y", sum, NDP_NONE, NDP_NONE));
    CHECK_OK(ndp_graph_derive(&s.g));
    ndp_graph_print(&s.g, &text);
    check_golden("graph/golden/derive_embedding.txt", &text);
    ndp_graph_release(&s.g);
}

/* The gradient of a collective is its conjugate; partial sums of gradients are made wide and rounded once. */
static void collectives(void **state) {
    (void)state;
    small_graph s;
    ndp_str text = {0};
    ndp_op_attr over = {.group = NDP_GROUP_TP, .ranks = 2, .type = NDP_BF16, .wide_grad = true};
    small_begin(&s, "collectives");
    int x = ndp_graph_input(&s.g, T, C);
    int all = small_op(&s, &ndp_op_all_gather, &over, "all", x, NDP_NONE, NDP_NONE);
    int part = small_op(&s, &ndp_op_linear, &(ndp_op_attr){.wide_grad = true}, "part", all, small_param(&s, BACK, 1),
                        NDP_NONE);
    over.wide_grad = false;
    ndp_graph_output(&s.g, small_op(&s, &ndp_op_reduce_scatter, &over, "y", part, NDP_NONE, NDP_NONE));
    CHECK_OK(ndp_graph_derive(&s.g));
    ndp_graph_print(&s.g, &text);
    check_golden("graph/golden/derive_collectives.txt", &text);
    ndp_graph_release(&s.g);
}

/* Rows to experts and back: the gradient reaches x through the rows and, by the weights, through the router. */
static void experts(void **state) {
    (void)state;
    small_graph s;
    ndp_str text = {0};
    ndp_op_attr attr = {.choices = 2, .experts = C, .renormalise = true};
    small_begin(&s, "experts");
    int x = ndp_graph_input(&s.g, T, C), routed[2] = {NDP_NONE, NDP_NONE}, order[3] = {NDP_NONE, NDP_NONE, NDP_NONE};
    int logits = small_op(&s, &ndp_op_linear, NULL, "logits", x, small_param(&s, BACK, 1), NDP_NONE);
    ndp_graph_op(&s.g, &ndp_op_route, &attr, "choices", (int[]){logits, NDP_NONE}, 2, routed, 2);
    ndp_graph_op(&s.g, &ndp_op_route_order, &attr, "order", routed, 1, order, 3);
    int rows = ndp_graph_op1(&s.g, &ndp_op_take_rows, NULL, "rows", (int[]){x, order[0], order[1], NDP_NONE}, 4);
    int act = small_op(&s, &ndp_op_gelu, NULL, "act", rows, NDP_NONE, NDP_NONE);
    int given[] = {act, order[0], order[1], routed[1], x};
    ndp_graph_output(&s.g, ndp_graph_op1(&s.g, &ndp_op_give_rows, NULL, "y", given, 5));
    CHECK_OK(ndp_graph_derive(&s.g));
    ndp_graph_print(&s.g, &text);
    check_golden("graph/golden/derive_experts.txt", &text);
    ndp_graph_release(&s.g);
}

/* An adapter beside a product: what add_columns passes on is columns of the gradient that the product has too, so
 * `scale` works on a copy. `last`: the product comes after it; then its input gradient is made first, its weight's
 * still after. */
static void an_adapter(void **state) {
    (void)state;
    ndp_str text = {0};
    for (int last = 0; last < 2; last++) {
        small_graph s;
        small_begin(&s, last ? "adapter first" : "adapter");
        int x = ndp_graph_input(&s.g, T, C), weight = small_param(&s, LEFT, 2), both = NDP_NONE;
        if (!last)
            both = small_op(&s, &ndp_op_linear, NULL, "both", x, weight, NDP_NONE);
        int low = small_op(&s, &ndp_op_linear, NULL, "low", x, small_param(&s, BACK, 1), NDP_NONE);
        int part = small_op(&s, &ndp_op_scale, &(ndp_op_attr){.scale = 0.5}, "part", low, NDP_NONE, NDP_NONE);
        if (last)
            both = small_op(&s, &ndp_op_linear, NULL, "both", x, weight, NDP_NONE);
        int sum = small_op(&s, &ndp_op_add_columns, &(ndp_op_attr){.first = C}, "sum", both, part, NDP_NONE);
        ndp_graph_output(&s.g, small_op(&s, &ndp_op_swiglu, NULL, "y", sum, NDP_NONE, NDP_NONE));
        CHECK_OK(ndp_graph_derive(&s.g));
        ndp_graph_print(&s.g, &text);
        ndp_graph_release(&s.g);
    }
    check_golden("graph/golden/derive_adapter.txt", &text);
}

/* Without another reader the columns are scaled where they are: the product is frozen, and its input wants nothing. */
static void an_adapter_alone(void **state) {
    (void)state;
    small_graph s;
    small_begin(&s, "alone");
    s.g.slots[1] = &s.slot, s.g.frozen[1] = true, s.g.ends_backward = true;
    int x = ndp_graph_input(&s.g, T, C);
    int both = small_op(&s, &ndp_op_linear, NULL, "both", x, ndp_graph_param(&s.g, 1, LEFT, 2), NDP_NONE);
    int low = small_op(&s, &ndp_op_linear, NULL, "low", x, small_param(&s, BACK, 1), NDP_NONE);
    int part = small_op(&s, &ndp_op_scale, &(ndp_op_attr){.scale = 0.5}, "part", low, NDP_NONE, NDP_NONE);
    int sum = small_op(&s, &ndp_op_add_columns, &(ndp_op_attr){.first = C}, "sum", both, part, NDP_NONE);
    ndp_graph_output(&s.g, small_op(&s, &ndp_op_gelu, NULL, "y", sum, NDP_NONE, NDP_NONE));
    CHECK_OK(ndp_graph_derive(&s.g));
    const ndp_nodes *nodes = &s.g.nodes[NDP_NODES_INPUT_GRAD];
    assert_int_equal(nodes->n, 2);
    assert_ptr_equal(nodes->items[1].op, &ndp_op_scale);
    assert_int_equal(s.g.values[nodes->items[1].out[0]].root, nodes->items[0].out[0]);
    assert_int_equal(s.g.values[nodes->items[1].out[0]].col, C);
    ndp_graph_release(&s.g);
}

/* Summands share the gradient of their sum: the one that is scaled has a copy. In place on columns of a value: the
 * gradient goes to these columns of the value's. */
static void shared_gradients(void **state) {
    (void)state;
    small_graph s;
    ndp_str text = {0};
    small_begin(&s, "shared");
    int x = ndp_graph_input(&s.g, T, 2 * C);
    int both = small_op(&s, &ndp_op_gelu, NULL, "both", x, NDP_NONE, NDP_NONE);
    int left = ndp_graph_columns(&s.g, both, 0, C), right = ndp_graph_columns(&s.g, both, C, C);
    int half = small_op(&s, &ndp_op_scale, &(ndp_op_attr){.scale = 0.5}, "half", left, NDP_NONE, NDP_NONE);
    int act = small_op(&s, &ndp_op_gelu, NULL, "act", right, NDP_NONE, NDP_NONE);
    int third = small_op(&s, &ndp_op_scale, &(ndp_op_attr){.scale = 0.3}, "third", act, NDP_NONE, NDP_NONE);
    ndp_graph_output(&s.g, small_op(&s, &ndp_op_add, NULL, "y", half, third, NDP_NONE));
    CHECK_OK(ndp_graph_derive(&s.g));
    ndp_graph_print(&s.g, &text);
    check_golden("graph/golden/derive_shared.txt", &text);
    ndp_graph_release(&s.g);
}

/* A gradient that is columns of another, or the one that came in, leaves the unit as a copy. */
static void gradients_of_the_input(void **state) {
    (void)state;
    for (int columns = 0; columns < 2; columns++) {
        small_graph s;
        small_begin(&s, "input");
        int x = ndp_graph_input(&s.g, T, C), y;
        int constant = ndp_graph_value(&s.g, "constant", T, columns ? 2 * C : C, NDP_BF16);
        y = columns ? small_op(&s, &ndp_op_add_columns, &(ndp_op_attr){.first = C}, "y", constant, x, NDP_NONE)
                    : small_op(&s, &ndp_op_add, NULL, "y", constant, x, NDP_NONE);
        ndp_graph_output(&s.g, y);
        CHECK_OK(ndp_graph_derive(&s.g));
        const ndp_value *made = &s.g.values[s.g.grad_input];
        const ndp_nodes *nodes = &s.g.nodes[NDP_NODES_INPUT_GRAD];
        assert_int_equal(nodes->n, 1);
        assert_ptr_equal(nodes->items[0].op, &ndp_op_copy);
        assert_int_equal(s.g.values[nodes->items[0].in[0]].root, s.g.grad_output);
        assert_int_equal(s.g.values[nodes->items[0].in[0]].col, columns ? C : 0);
        assert_true(made->root == s.g.grad_input && made->view.cols == C && made->view.ld == C);
        ndp_graph_release(&s.g);
    }
}

/* ---- refusals ---- */

static void an_op_without_backward(void **state) {
    (void)state;
    small_graph s;
    small_begin(&s, "ring");
    int x = ndp_graph_input(&s.g, T, C);
    ndp_op_attr over = {.group = NDP_GROUP_CP, .ranks = 2};
    ndp_graph_output(&s.g, small_op(&s, &ndp_op_shift, &over, "y", x, NDP_NONE, NDP_NONE));
    CHECK_FAILS(ndp_graph_derive(&s.g), NDP_EBUG, "op shift has no backward rule");
    ndp_graph_release(&s.g);
}

static void two_consumers_of_a_view(void **state) {
    (void)state;
    small_graph s;
    small_begin(&s, "views");
    int x = ndp_graph_input(&s.g, T, 2 * C), view = ndp_graph_columns(&s.g, x, 0, C);
    ndp_graph_output(&s.g, small_op(&s, &ndp_op_add, NULL, "y", view, view, NDP_NONE));
    CHECK_FAILS(ndp_graph_derive(&s.g), NDP_EBUG, "x[0:6] has two consumers through a view");
    ndp_graph_release(&s.g);
}

/* The first error is kept: later calls do nothing, and the derivation returns it. */
static void errors_stick(void **state) {
    (void)state;
    small_graph s;
    small_begin(&s, "shapes");
    int x = ndp_graph_input(&s.g, T, C + 1);
    int y = small_op(&s, &ndp_op_linear, NULL, "y", x, small_param(&s, BACK, 1), NDP_NONE);
    ndp_graph_output(&s.g, small_op(&s, &ndp_op_gelu, NULL, "z", y, NDP_NONE, NDP_NONE));
    assert_int_equal(s.g.nodes[NDP_NODES_FORWARD].n, 0);
    CHECK_FAILS(ndp_graph_derive(&s.g), NDP_EBUG, "linear");
    ndp_graph_release(&s.g);
    small_begin(&s, "unglued");
    (void)small_param(&s, NORM, 2);
    CHECK_FAILS(s.g.status, NDP_EBUG, "left.w is not glued to norm.w");
    ndp_graph_release(&s.g);
}

static void a_destination_of_another_shape(void **state) {
    (void)state;
    small_graph s;
    small_begin(&s, "destination");
    int x = ndp_graph_input(&s.g, T, C), y = ndp_graph_value(&s.g, "narrow", T, C - 1, NDP_BF16);
    ndp_graph_op(&s.g, &ndp_op_gelu, NULL, "y", &x, 1, &y, 1);
    CHECK_FAILS(s.g.status, NDP_EBUG, "gelu makes [4,6], its destination narrow is [4,5]");
    ndp_graph_release(&s.g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_block),
                                       cmocka_unit_test(an_embedding),
                                       cmocka_unit_test(collectives),
                                       cmocka_unit_test(experts),
                                       cmocka_unit_test(an_adapter),
                                       cmocka_unit_test(an_adapter_alone),
                                       cmocka_unit_test(shared_gradients),
                                       cmocka_unit_test(gradients_of_the_input),
                                       cmocka_unit_test(an_op_without_backward),
                                       cmocka_unit_test(two_consumers_of_a_view),
                                       cmocka_unit_test(errors_stick),
                                       cmocka_unit_test(a_destination_of_another_shape)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
