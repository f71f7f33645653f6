/* The list of ops, and the tables that are made from it. */
#include "ops/op.h"

#include "check.h"
#include <string.h>

static const ndp_device *const devices[] = {&ndp_device_cpu, &ndp_device_ref};

/* The tables that are made from the list agree with it. */
static void the_list_of_ops(void **state) {
    (void)state;
    for (int i = 0; i < NDP_OP_COUNT; i++) {
        const ndp_op *op = ndp_all_ops[i];
        ndp_op_kind kind = ndp_op_kinds[i];
        bool runs = kind != NDP_KIND_COLLECTIVE && kind != NDP_KIND_MARK;
        assert_int_equal(op->id, i);
        /* What a pass may do with an op that it does not know: there is no default. */
        assert_in_range(op->rows, NDP_ROWS_ALIKE, NDP_ROWS_SUMMED);
        assert_int_equal(op->collective != NDP_LOCAL, kind == NDP_KIND_COLLECTIVE);
        assert_true(kind == NDP_KIND_MARK || op->cost);
        for (int d = 0; d < NDP_COUNT(devices); d++)
            assert_int_equal(devices[d]->kernels[i] != NULL, runs);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(op->name, ndp_all_ops[j]->name);
    }
    for (int d = 0; d < NDP_COUNT(devices); d++)
        assert_ptr_equal(ndp_device_find(devices[d]->name), devices[d]);
    assert_false(ndp_device_find("null")->executes);
    assert_null(ndp_device_find("none"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_list_of_ops)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
