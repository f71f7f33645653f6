/* The rules of stacks of products: what two ranks make of three matrices whose rows or columns are cut, and calls with
 * other operands, which must be refused. */
#include "check.h"
#include "placement/rule.h"

#include <string.h>

enum { GROUPS = 3, N = 10, K = 8, M = 6, X = 0, W, OFFSETS };

typedef struct stack_graph {
    ndp_graph g;
    ndp_segment items[1];
    ndp_segments slot;
    ndp_inputs inputs;
    ndp_uses uses;
    ndp_arena arena;
} stack_graph;

static void begin(stack_graph *s) {
    *s = (stack_graph){.slot = {.items = s->items, .n = 1}, .inputs.rows = {[NDP_EXTENT_TOKENS] = GROUPS + 1}};
    for (int i = 0; i < 2; i++)
        ndp_inputs_add(&s->inputs,
                       (ndp_input){i ? "others" : "offsets", NDP_INPUT_TOKENS, NDP_EXTENT_TOKENS, 1, NDP_I32, NULL, 0});
    s->items[0] = ndp_segment_whole("experts.w", 2, GROUPS * M, K, NDP_DIM_WHOLE, NDP_DIM_WHOLE);
    ndp_segments_layout(&s->slot);
    ndp_graph_init(&s->g, "stack", NDP_F32, NDP_F32);
    s->g.slots[0] = &s->slot;
    s->g.inputs = &s->inputs;
    int ins[] = {ndp_graph_input(&s->g, N, K), ndp_graph_param(&s->g, 0, 0, 1), ndp_graph_data(&s->g, 0)};
    ndp_graph_output(&s->g, ndp_graph_op1(&s->g, &ndp_op_linear_stack, NULL, "y", ins, 3));
    CHECK_OK(s->g.status);
    CHECK_OK(ndp_uses_init(&s->g, &s->arena, &s->uses));
}

static void end(stack_graph *s) {
    ndp_arena_release(&s->arena);
    ndp_graph_release(&s->g);
}

/* A call on one rank: its operands and results, and what the operands hold. */
typedef struct stack_call {
    ndp_call call;
    ndp_operand in[4], out[1];
    ndp_rule r;
} stack_call;

static stack_call call_of(stack_graph *s, const ndp_op *op, int64_t out_rows, int64_t out_cols) {
    static const ndp_lane lane = {.batch = {N, 2 * N, 1}};
    stack_call c = {.call = {.op = op, .n_in = 3, .n_out = 1}};
    for (int k = 0; k < 4; k++)
        c.in[k].base = k < 3 ? k : NDP_NONE;
    c.out[0] = (ndp_operand){.base = 5, .value = NDP_NONE, .view = {.rows = out_rows, .cols = out_cols}};
    c.r = (ndp_rule){.uses = &s->uses,
                     .g = &s->g,
                     .n = &s->g.nodes[NDP_NODES_FORWARD].items[0],
                     .lane = &lane,
                     .arena = &s->arena,
                     .where = "a rank"};
    c.r.out[0] = ndp_content_of(&s->arena, out_rows, out_cols);
    return c;
}

static void hold(stack_call *c, int k, int64_t rows, int64_t cols, const ndp_tile *tiles, int n) {
    c->in[k].view = (ndp_view){.rows = rows, .cols = cols};
    c->r.in[k] = ndp_content_of(c->r.arena, rows, cols);
    for (int i = 0; i < n; i++)
        CHECK_OK(ndp_content_add(&c->r.in[k], tiles[i]));
}

/* All rows, and the columns from `at` on, of a value or its gradient. */
static void hold_rows(stack_call *c, int k, ndp_thing_kind kind, int value, int64_t cols, int64_t at) {
    ndp_tile t = {.rows = N, .cols = cols, .at_col = at, .what = {kind, value}, .share = 1, .made = NDP_NONE};
    hold(c, k, N, cols, &t, 1);
}

static void hold_offsets(stack_call *c, int input) {
    ndp_tile t = {.rows = GROUPS + 1, .cols = 1, .what = {NDP_THING_DATA, input}, .share = 1, .made = NDP_NONE};
    hold(c, OFFSETS, GROUPS + 1, 1, &t, 1);
}

/* Of each matrix `rows` rows from `at` on, and `cols` columns from `at_col` on. */
static void hold_weights(stack_call *c, int64_t rows, int64_t at, int64_t cols, int64_t at_col) {
    ndp_tile t[GROUPS];
    for (int e = 0; e < GROUPS; e++)
        t[e] = (ndp_tile){.row = e * rows,
                          .rows = rows,
                          .cols = cols,
                          .at_row = e * M + at,
                          .at_col = at_col,
                          .what = {NDP_THING_PARAM, ndp_thing_segment(0, 0)},
                          .share = 1,
                          .made = NDP_NONE};
    hold(c, W, GROUPS * rows, cols, t, GROUPS);
}

static ndp_status judge(stack_call *c) {
    c->call.in = c->in, c->call.out = c->out;
    c->r.c = &c->call;
    ndp_status st = ndp_rule_judge(&c->r);
    ndp_content_join(&c->r.out[0]);
    return st;
}

static const ndp_tile *result(stack_call *c, int tiles) {
    CHECK_OK(judge(c));
    assert_true(ndp_content_full(&c->r.out[0]));
    assert_int_equal(c->r.out[0].n, tiles);
    return c->r.out[0].tiles;
}

/* Half of the rows of each matrix: half of the columns of y, whole; of dx a part; of dw rows of each matrix. */
static stack_call y_of_rows(stack_graph *s, int rank) {
    stack_call c = call_of(s, &ndp_op_linear_stack, N, M / 2);
    hold_rows(&c, X, NDP_THING_VALUE, s->g.input, K, 0);
    hold_weights(&c, M / 2, rank * M / 2, K, 0);
    hold_offsets(&c, 0);
    return c;
}
static stack_call dx_of_rows(stack_graph *s, int rank) {
    stack_call c = call_of(s, &ndp_op_linear_stack_dx, N, K);
    c.call.n_in = 4;
    hold_rows(&c, X, NDP_THING_GRADIENT, s->g.output, M / 2, rank * M / 2);
    hold_weights(&c, M / 2, rank * M / 2, K, 0);
    hold_offsets(&c, 0);
    return c;
}
static stack_call dw_of_rows(stack_graph *s, int rank) {
    stack_call c = call_of(s, &ndp_op_linear_stack_dw, GROUPS * M / 2, K);
    hold_rows(&c, X, NDP_THING_GRADIENT, s->g.output, M / 2, rank * M / 2);
    hold_rows(&c, W, NDP_THING_VALUE, s->g.input, K, 0);
    hold_offsets(&c, 0);
    return c;
}
/* Half of the columns: of y a part, of dx half of the columns, whole. */
static stack_call y_of_columns(stack_graph *s, int rank) {
    stack_call c = call_of(s, &ndp_op_linear_stack, N, M);
    hold_rows(&c, X, NDP_THING_VALUE, s->g.input, K / 2, rank * K / 2);
    hold_weights(&c, M, 0, K / 2, rank * K / 2);
    hold_offsets(&c, 0);
    return c;
}

static void cut_rows(void **state) {
    stack_graph s;
    ndp_share sum = 0;
    (void)state;
    begin(&s);
    for (int rank = 0; rank < 2; rank++) {
        stack_call y = y_of_rows(&s, rank), dx = dx_of_rows(&s, rank), dw = dw_of_rows(&s, rank);
        const ndp_tile *t = result(&y, 1);
        assert_true(t->share == 1 && t->at_col == rank * M / 2 && t->cols == M / 2 && t->rows == N && t->at_row == 0);
        assert_true(ndp_thing_is(t->what, NDP_THING_VALUE, s.g.output));
        t = result(&dx, 1);
        assert_true(t->share != 1 && t->cols == K && ndp_thing_is(t->what, NDP_THING_GRADIENT, s.g.input));
        sum = ndp_share_add(sum, t->share);
        t = result(&dw, GROUPS);
        for (int e = 0; e < GROUPS; e++)
            assert_true(t[e].share == 1 && t[e].row == e * M / 2 && t[e].at_row == e * M + rank * M / 2 &&
                        t[e].rows == M / 2 && t[e].cols == K && t[e].what.kind == NDP_THING_PGRADIENT);
    }
    assert_true(sum == 1);
    end(&s);
}

static void cut_columns(void **state) {
    stack_graph s;
    ndp_share sum = 0;
    (void)state;
    begin(&s);
    for (int rank = 0; rank < 2; rank++) {
        stack_call y = y_of_columns(&s, rank);
        stack_call dx = call_of(&s, &ndp_op_linear_stack_dx, N, K / 2);
        hold_rows(&dx, X, NDP_THING_GRADIENT, s.g.output, M, 0);
        hold_weights(&dx, M, 0, K / 2, rank * K / 2);
        hold_offsets(&dx, 0);
        sum = ndp_share_add(sum, result(&y, 1)->share);
        const ndp_tile *t = result(&dx, 1);
        assert_true(t->share == 1 && t->at_col == rank * K / 2 && t->cols == K / 2);
    }
    assert_true(sum == 1);
    end(&s);
}

/* Changes one thing; what the message says. */
enum { OTHER_ORDER, NEXT_MATRIX, OTHER_COLUMNS, MOVED_ROWS, FEWER_ROWS, FEWER_GROUPS, OTHER_INPUT, NO_VALUE, MUTANTS };
static const char *const words[MUTANTS] = {"matrix 2",
                                           "are not those of matrix 0",
                                           "other rows or columns than of the first",
                                           "which may be of another group",
                                           "must have all 10",
                                           "groups of rows, must have 3",
                                           "must be the input offsets",
                                           "it must be"};

static void mutate(stack_call *c, int mutant) {
    ndp_tile *x = c->r.in[X].tiles, *w = c->r.in[W].tiles;
    switch (mutant) {
    case OTHER_ORDER:
        w[2].at_row += w[2].at_row % M ? -1 : 1;
        break;
    case NEXT_MATRIX:
        for (int e = 0; e < GROUPS; e++)
            w[e].at_row += M;
        break;
    case OTHER_COLUMNS:
        w[1].at_col += 1;
        break;
    case MOVED_ROWS:
        x[0].at_row += 1;
        break;
    case FEWER_ROWS:
        hold_rows(c, X, x[0].what.kind, x[0].what.id, x[0].cols, x[0].at_col);
        c->r.in[X].rows -= 1, c->r.in[X].tiles[0].rows -= 1;
        break;
    case FEWER_GROUPS:
        c->r.in[OFFSETS].rows -= 1, c->r.in[OFFSETS].tiles[0].rows -= 1;
        break;
    case OTHER_INPUT:
        c->r.in[OFFSETS].tiles[0].what.id = 1;
        break;
    default:
        x[0].what.kind = NDP_THING_DATA;
    }
}

static void mutants_are_refused(void **state) {
    stack_call (*const calls[])(stack_graph * s, int rank) = {y_of_rows, dx_of_rows, y_of_columns, dw_of_rows};
    (void)state;
    for (int i = 0; i < 4 * MUTANTS; i++) {
        stack_graph s;
        int mutant = i / 4;
        if (i % 4 == 3 && mutant <= OTHER_COLUMNS)
            continue; /* dw has no weights */
        begin(&s);
        stack_call c = calls[i % 4](&s, i / 4 % 2);
        mutate(&c, mutant);
        assert_int_equal(judge(&c), NDP_EBUG);
        if (!strstr(ndp_error_message(), words[mutant]))
            fail_msg("call %d, mutant %d: %s", i % 4, mutant, ndp_error_message());
        end(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cut_rows), cmocka_unit_test(cut_columns),
                                       cmocka_unit_test(mutants_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
