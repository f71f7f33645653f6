/* A call as it is made: its attributes; its price by hand, in bytes that a communication moves and in seconds. */
#include "check.h"
#include "graph/price.h"

/* A call of `op` on [rows, 5] of fp32. */
static ndp_call call_of(ndp_arena *arena, const ndp_op *op, int64_t rows) {
    ndp_call c;
    const ndp_op_attr attr = {.ranks = 4, .group = NDP_GROUP_TP, .mean = rows};
    ndp_operand x = {.base = 0, .value = NDP_NONE, .view = {.dtype = NDP_F32, .rows = rows, .cols = 5, .ld = 5}};
    ndp_operand y = x;
    y.view.rows = op == &ndp_op_all_gather ? 4 * rows : op == &ndp_op_reduce_scatter ? rows / 4 : rows;
    CHECK_OK(ndp_call_init(&c, arena, op, &attr, &x, 1, &y, 1));
    return c;
}

/* Of 8 x 5 x 4 = 160 bytes that each of four ranks hands in. */
static const struct {
    const ndp_op *op;
    double moved;
} cases[] = {{&ndp_op_all_gather, 3 * 160}, /* to each of the others */
             {&ndp_op_reduce_scatter, 120}, /* all but its own part */
             {&ndp_op_all_reduce, 240},     /* a reduce_scatter and an all_gather of parts */
             {&ndp_op_all_to_all, 120},
             {&ndp_op_all_to_all_rows, 120},
             {&ndp_op_shift, 160},
             {&ndp_op_send, 160},
             {&ndp_op_recv, 160}};

static void bytes_that_move(void **state) {
    (void)state;
    ndp_arena arena = {0};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_call c = call_of(&arena, cases[i].op, 8);
        if (ndp_call_moved(&c, 4) != cases[i].moved)
            fail_msg("%s moves %g bytes, expected %g", c.op->name, ndp_call_moved(&c, 4), cases[i].moved);
        assert_true(ndp_call_moved(&c, 1) == 0);
        c.in_place = true;
        assert_true(ndp_call_moved(&c, 4) == 0);
    }
    for (int i = 0; i < NDP_OP_COUNT; i++) {
        bool has = ndp_op_kinds[i] != NDP_KIND_COLLECTIVE;
        for (int k = 0; k < NDP_COUNT(cases); k++)
            has |= cases[k].op->id == ndp_all_ops[i]->id;
        if (!has)
            fail_msg("%s has no case here", ndp_all_ops[i]->name);
    }
    ndp_arena_release(&arena);
}

/* A kernel takes the longer of operations and bytes, a communication latency and bytes. */
static void seconds_by_rates(void **state) {
    (void)state;
    ndp_arena arena = {0};
    const ndp_group four = {.count = 4, .stride = 1}, alone = {.count = 1, .stride = 1};
    ndp_call scale = call_of(&arena, &ndp_op_scale, 8), sum = call_of(&arena, &ndp_op_all_reduce, 8);
    assert_true(scale.flops == 40 && scale.bytes == 320);
    const ndp_rates by_flops = {10, 1e9, 60, 2}, by_bytes = {1e9, 10, 60, 2};
    ndp_price a = ndp_price_by_rates(&by_flops), b = ndp_price_by_rates(&by_bytes);
    assert_true(a.kernel(a.user, &scale) == 4 && b.kernel(b.user, &scale) == 32);
    assert_true(a.comm(a.user, &sum, &four) == 2 + 4 && a.comm(a.user, &sum, &alone) == 0);
    ndp_arena_release(&arena);
}

/* A call keeps the attributes that its op reads; all others are 0, even if its maker set them. */
static void attributes_of_its_op(void **state) {
    (void)state;
    ndp_arena arena = {0};
    ndp_operand x = {.base = 0, .value = NDP_NONE, .view = {.dtype = NDP_F32, .rows = 8, .cols = 5, .ld = 5}};
    ndp_op_attr attr = {.accumulate = true};
#define SET(type, name) attr.name = (type)1;
    NDP_OP_ATTRS(SET)
    for (int i = 0; i < NDP_OP_COUNT; i++) {
        ndp_call c;
        const ndp_op *op = ndp_all_ops[i];
        const char *title = op->name;
        ndp_op own = *op;
        own.cost = NULL;
        CHECK_OK(ndp_call_init(&c, &arena, &own, &attr, &x, 1, &x, 1));
        assert_true(c.attr.accumulate);
#define CHECK_FIELD(type, name)                                                                                        \
    if (c.attr.name != (op->reads & NDP_READS_##name ? (type)1 : (type)0))                                             \
        fail_msg("%s: " #name " is %g", title, (double)c.attr.name);
        NDP_OP_ATTRS(CHECK_FIELD)
        assert_int_equal(c.channel, c.attr.group);
    }
    ndp_arena_release(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_that_move), cmocka_unit_test(seconds_by_rates),
                                       cmocka_unit_test(attributes_of_its_op)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
