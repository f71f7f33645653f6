/* Rules of a mixture of experts and of gates of rows, call by call: ranks with all rows, and with some of them, whose
 * sorted rows are no rows of the whole. What is cut, gathered, or sorted with other rows must be refused. */
#include "check.h"
#include "placement/rule.h"

enum { ROWS = 12, COLS = 4, EXPERTS = 5, CHOICES = 2, NODES = 5 };
enum { ROUTE, ORDER, TAKE, GELU, GIVE };

/* Rows to experts and back: the graph of the whole, and its values. added: the result is added to x. */
typedef struct layer {
    bool added;
    ndp_graph g;
    ndp_uses uses;
    ndp_arena arena;
    int logits, x, choices, weights, order, places, offsets, taken, made, result;
} layer;

/* An activation that another unit made. */
static int given(layer *l, const char *name, int64_t cols) {
    int v = ndp_graph_value(&l->g, name, ROWS, cols, NDP_F32);
    l->g.values[v].needs_grad = true;
    return v;
}

static void begin(layer *l, bool added) {
    static const ndp_op_attr attr = {.choices = CHOICES, .experts = EXPERTS};
    *l = (layer){.added = added};
    ndp_graph_init(&l->g, "experts", NDP_F32, NDP_F32);
    l->logits = given(l, "logits", EXPERTS), l->x = given(l, "x", COLS);
    int routed[2] = {NDP_NONE, NDP_NONE}, sorted[3] = {NDP_NONE, NDP_NONE, NDP_NONE};
    ndp_graph_op(&l->g, &ndp_op_route, &attr, "choices", (int[]){l->logits, NDP_NONE}, 2, routed, 2);
    ndp_graph_op(&l->g, &ndp_op_route_order, &attr, "order", routed, 1, sorted, 3);
    l->choices = routed[0], l->weights = routed[1];
    l->order = sorted[0], l->places = sorted[1], l->offsets = sorted[2];
    l->taken = ndp_graph_op1(&l->g, &ndp_op_take_rows, &attr, "taken", (int[]){l->x, l->order, l->places, NDP_NONE}, 4);
    l->made = ndp_graph_op1(&l->g, &ndp_op_gelu, &attr, "made", &l->taken, 1);
    l->result = ndp_graph_op1(&l->g, &ndp_op_give_rows, &attr, "result",
                              (int[]){l->made, l->order, l->places, l->weights, added ? l->x : NDP_NONE}, 5);
    ndp_graph_output(&l->g, l->result);
    CHECK_OK(l->g.status);
    CHECK_OK(ndp_uses_init(&l->g, &l->arena, &l->uses));
}

static void end(layer *l) {
    ndp_graph_release(&l->g);
    ndp_arena_release(&l->arena);
}

/* x and a gate of its rows, which `logits` is here. */
static void begin_gate(layer *l) {
    *l = (layer){0};
    ndp_graph_init(&l->g, "gate", NDP_F32, NDP_F32);
    l->logits = given(l, "gate", 1), l->x = given(l, "x", COLS);
    l->result = ndp_graph_op1(&l->g, &ndp_op_gate_rows, NULL, "result", (int[]){l->x, l->logits}, 2);
    ndp_graph_output(&l->g, l->result);
    CHECK_OK(l->g.status);
    CHECK_OK(ndp_uses_init(&l->g, &l->arena, &l->uses));
}

/* ---- contents ---- */

/* Two runs of rows of the whole; the second may be empty. */
typedef struct rows {
    int64_t first[2], count[2];
} rows;
static const rows all = {{0, 0}, {ROWS, 0}}, low = {{0, 0}, {6, 0}}, high = {{6, 0}, {6, 0}}, ends = {{0, 9}, {3, 3}};

/* All columns of these rows of a value, or of its gradient. */
static ndp_content rows_of(layer *l, int value, bool gradient, rows r, ndp_share share) {
    int64_t cols = l->g.values[value].view.cols;
    ndp_content c = ndp_content_of(&l->arena, r.count[0] + r.count[1], cols);
    for (int i = 0; i < 2; i++)
        CHECK_OK(ndp_content_add(&c, (ndp_tile){.row = i ? r.count[0] : 0,
                                                .rows = r.count[i],
                                                .cols = cols,
                                                .at_row = r.first[i],
                                                .what = {gradient ? NDP_THING_GRADIENT : NDP_THING_VALUE, value},
                                                .share = share,
                                                .made = NDP_NONE}));
    ndp_content_join(&c);
    return c;
}

/* One below the other, or some rows of it. */
static ndp_content gathered(layer *l, const ndp_content *a, const ndp_content *b) {
    ndp_content c = ndp_content_of(&l->arena, a->rows + b->rows, a->cols);
    CHECK_OK(ndp_content_move(a, 0, a->rows, 0, a->cols, 0, 0, &c));
    CHECK_OK(ndp_content_move(b, 0, b->rows, 0, b->cols, a->rows, 0, &c));
    ndp_content_join(&c);
    return c;
}
static ndp_content cut(layer *l, const ndp_content *a, int64_t n) {
    ndp_content c = ndp_content_of(&l->arena, n, a->cols);
    CHECK_OK(ndp_content_move(a, 0, n, 0, a->cols, 0, 0, &c));
    return c;
}

/* ---- calls ---- */

/* A call for a node; absent operands have no rows. Results are joined, as memory has them. */
static ndp_status judge(layer *l, int node, const ndp_op *op, const ndp_content *in, ndp_content *out) {
    static const ndp_lane lane = {.batch = {ROWS, 2 * ROWS, 1}};
    static const int no_buffers[NDP_SLOTS] = {[0 ... NDP_SLOTS - 1] = NDP_NONE};
    const ndp_node *n = &l->g.nodes[NDP_NODES_FORWARD].items[node];
    ndp_op_call shapes = {.op = op, .attr = &n->attr};
    int n_in = op == n->op ? n->n_in : op->n_in, n_out = op == n->op ? n->n_out : op->n_out;
    ndp_operand ins[NDP_OP_MAX_IN] = {{0}}, outs[NDP_OP_MAX_OUT] = {{0}};
    ndp_call c = {.op = op, .attr = n->attr, .in = ins, .out = outs, .n_in = n_in, .n_out = n_out};
    ndp_rule r = {.uses = &l->uses, .g = &l->g, .n = n, .of = node, .c = &c, .lane = &lane, .buffers = no_buffers};
    r.arena = &l->arena, r.where = "a rank";
    for (int k = 0; k < n_in; k++) {
        r.in[k] = ndp_content_of(&l->arena, in[k].rows, in[k].cols);
        CHECK_OK(ndp_content_move(&in[k], 0, in[k].rows, 0, in[k].cols, 0, 0, &r.in[k]));
        ins[k].base = in[k].rows ? 0 : NDP_NONE;
        ins[k].view.rows = in[k].rows, ins[k].view.cols = in[k].cols;
        ins[k].view.dtype = in[k].rows && in[k].tiles[0].what.kind == NDP_THING_VALUE
                                ? l->g.values[in[k].tiles[0].what.id].view.dtype
                            : in[k].rows && in[k].tiles[0].what.kind == NDP_THING_DATA ? NDP_I32
                                                                                       : NDP_F32;
        shapes.in[k] = ins[k].view;
    }
    CHECK_OK(op->shape(&shapes));
    for (int o = 0; o < n_out; o++) {
        outs[o] = (ndp_operand){.view = shapes.out[o], .value = NDP_NONE};
        r.out[o] = ndp_content_of(&l->arena, shapes.out[o].rows, shapes.out[o].cols);
    }
    NDP_TRY(ndp_rule_judge(&r));
    for (int o = 0; o < n_out; o++) {
        assert_true(ndp_content_full(&r.out[o]));
        ndp_content_join(&r.out[o]);
        out[o] = r.out[o];
    }
    return NDP_OK;
}

/* What a rank makes of its rows. share: of x, and so of the result. */
typedef struct rank_values {
    ndp_content choices, weights, order, places, taken, made, result;
} rank_values;

static rank_values forward(layer *l, rows r) {
    rank_values v;
    const ndp_content none = {0};
    ndp_content out[NDP_OP_MAX_OUT], logits = rows_of(l, l->logits, false, r, 1), x = rows_of(l, l->x, false, r, 1);
    CHECK_OK(judge(l, ROUTE, &ndp_op_route, (ndp_content[]){logits, none}, out));
    v.choices = out[0], v.weights = out[1];
    CHECK_OK(judge(l, ORDER, &ndp_op_route_order, &v.choices, out));
    v.order = out[0], v.places = out[1];
    CHECK_OK(judge(l, TAKE, &ndp_op_take_rows, (ndp_content[]){x, v.order, v.places, none}, &v.taken));
    CHECK_OK(judge(l, GELU, &ndp_op_gelu, &v.taken, &v.made));
    ndp_content sums[] = {v.made, v.order, v.places, v.weights, l->added ? x : none};
    CHECK_OK(judge(l, GIVE, &ndp_op_give_rows, sums, &v.result));
    return v;
}

static void check_equal(layer *l, const ndp_content *is, int value, bool gradient, rows r, ndp_share share) {
    ndp_content must = rows_of(l, value, gradient, r, share);
    assert_true(ndp_contents_equal(is, &must));
}

/* Each rank gets its rows back, and the gradients of its rows. */
static void rows_come_back(void **state) {
    (void)state;
    const rows cases[] = {all, low, high, ends};
    const ndp_content none = {0};
    for (int i = 0; i < 2 * NDP_COUNT(cases); i++) {
        layer l;
        begin(&l, i % 2);
        rows r = cases[i / 2];
        rank_values v = forward(&l, r);
        check_equal(&l, &v.choices, l.choices, false, r, 1);
        check_equal(&l, &v.weights, l.weights, false, r, 1);
        check_equal(&l, &v.result, l.result, false, r, 1);
        ndp_content d = rows_of(&l, l.result, true, r, 1), dmade, dtaken, dw, dx, dlogits;
        ndp_content logits = rows_of(&l, l.logits, false, r, 1);
        CHECK_OK(judge(&l, GIVE, &ndp_op_take_rows, (ndp_content[]){d, v.order, v.places, v.weights}, &dmade));
        CHECK_OK(judge(&l, GIVE, &ndp_op_give_rows_dw, (ndp_content[]){d, v.made, v.places}, &dw));
        CHECK_OK(judge(&l, GELU, &ndp_op_gelu_bwd, (ndp_content[]){dmade, v.taken}, &dtaken));
        CHECK_OK(judge(&l, TAKE, &ndp_op_give_rows,
                       (ndp_content[]){dtaken, v.order, v.places, none, l.added ? d : none}, &dx));
        CHECK_OK(judge(&l, ROUTE, &ndp_op_route_dx, (ndp_content[]){dw, logits, v.choices, none}, &dlogits));
        check_equal(&l, &dw, l.weights, true, r, 1);
        check_equal(&l, &dx, l.x, true, r, 1);
        check_equal(&l, &dlogits, l.logits, true, r, 1);
        end(&l);
    }
}

/* A summand of what the experts make is one of the result, and of the gradient of the weights. */
static void sums_stay_sums(void **state) {
    (void)state;
    const ndp_content none = {0};
    layer l;
    begin(&l, false);
    rank_values v = forward(&l, ends);
    ndp_content d = rows_of(&l, l.result, true, ends, 1), out[NDP_OP_MAX_OUT];
    for (int i = 0; i < v.made.n; i++)
        v.made.tiles[i].share = 77;
    CHECK_OK(judge(&l, GIVE, &ndp_op_give_rows, (ndp_content[]){v.made, v.order, v.places, v.weights, none}, out));
    check_equal(&l, &out[0], l.result, false, ends, 77);
    CHECK_OK(judge(&l, GIVE, &ndp_op_give_rows_dw, (ndp_content[]){d, v.made, v.places}, out));
    check_equal(&l, &out[0], l.weights, true, ends, 77);
    for (int i = 0; i < v.weights.n; i++) /* but not of the weights: the product is of both */
        v.weights.tiles[i].share = 77;
    CHECK_FAILS(judge(&l, GIVE, &ndp_op_give_rows, (ndp_content[]){v.made, v.order, v.places, v.weights, none}, out),
                NDP_EBUG, "must be complete");
    end(&l);
}

/* x would be added on each rank that has a summand. */
static void parts_are_added_to_nothing(void **state) {
    (void)state;
    layer l;
    begin(&l, true);
    rank_values v = forward(&l, all);
    ndp_content x = rows_of(&l, l.x, false, all, 1), out[NDP_OP_MAX_OUT];
    v.made.tiles[0].share = 77;
    CHECK_FAILS(judge(&l, GIVE, &ndp_op_give_rows, (ndp_content[]){v.made, v.order, v.places, v.weights, x}, out),
                NDP_EBUG, "it adds operand 4 to");
    end(&l);
}

static void refuse(layer *l, const ndp_content *y, const rank_values *by, const char *words) {
    const ndp_content none = {0}, in[] = {*y, by->order, by->places, by->weights, none};
    ndp_content out[NDP_OP_MAX_OUT];
    CHECK_FAILS(judge(l, GIVE, &ndp_op_give_rows, in, out), NDP_EBUG, words);
}

/* Rows of two ranks one below the other are not sorted; half of a rank's sorted rows are those of other tokens. */
static void other_orders_are_refused(void **state) {
    (void)state;
    layer l;
    begin(&l, false);
    rank_values whole = forward(&l, all), a = forward(&l, low), b = forward(&l, high), c = whole, d = a;
    ndp_content both = gathered(&l, &a.made, &b.made), half = cut(&l, &whole.made, a.made.rows);
    refuse(&l, &both, &whole, "operand 0 stands in another order");
    refuse(&l, &half, &a, "operand 0 stands in another order");
    refuse(&l, &b.made, &a, "operand 0 stands in another order");
    c.order = gathered(&l, &a.order, &b.order), c.places = gathered(&l, &a.places, &b.places);
    refuse(&l, &both, &c, "places of other rows");
    d.order = cut(&l, &whole.order, a.order.rows), d.places = cut(&l, &whole.places, a.places.rows);
    refuse(&l, &half, &d, "places of other rows");
    d = a, d.order = b.order;
    refuse(&l, &a.made, &d, "operand 1 stands in another order");
    d = a, d.weights = b.weights;
    refuse(&l, &a.made, &d, "are of other rows");
    end(&l);
}

/* Rows and columns that are not those of the operands beside them. */
static void other_rows_are_refused(void **state) {
    (void)state;
    const ndp_content none = {0};
    ndp_content out[NDP_OP_MAX_OUT];
    layer l;
    begin(&l, false);
    rank_values a = forward(&l, low), b = forward(&l, high);
    ndp_content x = rows_of(&l, l.x, false, high, 1), logits = rows_of(&l, l.logits, false, low, 1);
    ndp_content dw = rows_of(&l, l.weights, true, low, 1);
    CHECK_FAILS(judge(&l, TAKE, &ndp_op_take_rows, (ndp_content[]){x, a.order, a.places, none}, out), NDP_EBUG,
                "are of other rows");
    CHECK_FAILS(judge(&l, ROUTE, &ndp_op_route_dx, (ndp_content[]){dw, logits, b.choices, none}, out), NDP_EBUG,
                "are of other rows");
    logits.tiles[0].share = 5;
    CHECK_FAILS(judge(&l, ROUTE, &ndp_op_route, (ndp_content[]){logits, none}, out), NDP_EBUG, "must be complete");
    end(&l);
}

/* A gate is of its rows alone; a summand of x is one of the result, and of no gate's gradient. */
static void gates_keep_rows(void **state) {
    (void)state;
    const rows cases[] = {all, low, high, ends};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        layer l;
        begin_gate(&l);
        rows r = cases[i];
        ndp_content x = rows_of(&l, l.x, false, r, 1), part = rows_of(&l, l.x, false, r, 77);
        ndp_content gate = rows_of(&l, l.logits, false, r, 1), d = rows_of(&l, l.result, true, r, 1), out;
        CHECK_OK(judge(&l, 0, &ndp_op_gate_rows, (ndp_content[]){x, gate}, &out));
        check_equal(&l, &out, l.result, false, r, 1);
        CHECK_OK(judge(&l, 0, &ndp_op_gate_rows, (ndp_content[]){part, gate}, &out));
        check_equal(&l, &out, l.result, false, r, 77);
        CHECK_OK(judge(&l, 0, &ndp_op_gate_rows, (ndp_content[]){d, gate}, &out));
        check_equal(&l, &out, l.x, true, r, 1);
        CHECK_OK(judge(&l, 0, &ndp_op_gate_rows_dg, (ndp_content[]){d, x, gate}, &out));
        check_equal(&l, &out, l.logits, true, r, 1);
        CHECK_FAILS(judge(&l, 0, &ndp_op_gate_rows_dg, (ndp_content[]){d, part, gate}, &out), NDP_EBUG,
                    "must be complete");
        end(&l);
    }
}

static void other_gates_are_refused(void **state) {
    (void)state;
    layer l;
    begin_gate(&l);
    ndp_content x = rows_of(&l, l.x, false, low, 1), d = rows_of(&l, l.result, true, low, 1), out;
    ndp_content gate = rows_of(&l, l.logits, false, high, 1), half = rows_of(&l, l.x, false, low, 1);
    CHECK_FAILS(judge(&l, 0, &ndp_op_gate_rows, (ndp_content[]){x, gate}, &out), NDP_EBUG, "are of other rows");
    CHECK_FAILS(judge(&l, 0, &ndp_op_gate_rows, (ndp_content[]){d, gate}, &out), NDP_EBUG, "are of other rows");
    CHECK_FAILS(judge(&l, 0, &ndp_op_gate_rows_dg, (ndp_content[]){d, x, gate}, &out), NDP_EBUG, "are of other rows");
    gate = rows_of(&l, l.logits, false, low, 5);
    CHECK_FAILS(judge(&l, 0, &ndp_op_gate_rows, (ndp_content[]){x, gate}, &out), NDP_EBUG, "must be complete");
    gate.tiles[0].share = 1;
    half.cols = d.cols = half.tiles[0].cols = d.tiles[0].cols = COLS / 2;
    CHECK_FAILS(judge(&l, 0, &ndp_op_gate_rows_dg, (ndp_content[]){d, half, gate}, &out), NDP_EBUG, "it must have all");
    end(&l);
}

/* Choices that the batch gives. */
static ndp_content choices_of(layer *l, rows r) {
    ndp_content c = rows_of(l, l->choices, false, r, 1);
    for (int i = 0; i < c.n; i++)
        c.tiles[i].what = (ndp_thing){NDP_THING_DATA, 0};
    return c;
}

static void given_choices_are_of_the_same_rows(void **state) {
    (void)state;
    static const ndp_op_attr attr = {.choices = CHOICES, .experts = EXPERTS};
    const ndp_inputs inputs = {.n = 1,
                               .items = {{"choices", NDP_INPUT_CHOICES, NDP_EXTENT_TOKENS, CHOICES, NDP_I32, NULL, 0}},
                               .rows = {[NDP_EXTENT_TOKENS] = ROWS}};
    const ndp_content none = {0};
    ndp_content out[NDP_OP_MAX_OUT];
    int routed[2] = {NDP_NONE, NDP_NONE};
    layer l = {.added = false};
    ndp_graph_init(&l.g, "given", NDP_F32, NDP_F32);
    l.g.inputs = &inputs;
    l.logits = given(&l, "logits", EXPERTS);
    ndp_graph_op(&l.g, &ndp_op_route, &attr, "choices", (int[]){l.logits, NDP_NONE, ndp_graph_data(&l.g, 0)}, 3, routed,
                 2);
    l.choices = routed[0];
    ndp_graph_output(&l.g, routed[1]);
    CHECK_OK(l.g.status);
    CHECK_OK(ndp_uses_init(&l.g, &l.arena, &l.uses));
    ndp_content logits = rows_of(&l, l.logits, false, ends, 1);
    CHECK_OK(judge(&l, ROUTE, &ndp_op_route, (ndp_content[]){logits, none, choices_of(&l, ends)}, out));
    CHECK_FAILS(judge(&l, ROUTE, &ndp_op_route, (ndp_content[]){logits, none, choices_of(&l, low)}, out), NDP_EBUG,
                "choices is of row 3 where the rows of operand 0 are from 9 on");
    CHECK_FAILS(judge(&l, ROUTE, &ndp_op_route, (ndp_content[]){logits, none, none}, out), NDP_EBUG,
                "it lacks given choices, its node does not");
    end(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(given_choices_are_of_the_same_rows),
                                       cmocka_unit_test(rows_come_back),
                                       cmocka_unit_test(sums_stay_sums),
                                       cmocka_unit_test(parts_are_added_to_nothing),
                                       cmocka_unit_test(other_orders_are_refused),
                                       cmocka_unit_test(other_rows_are_refused),
                                       cmocka_unit_test(gates_keep_rows),
                                       cmocka_unit_test(other_gates_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
