/* The list of ops (ops/op.h): the tables that are made from it agree with it. */
#include "check.h"
#include "op_test.h"

static void the_list_of_ops(void **state) {
    (void)state;
    for (int i = 0; i < NDP_OP_COUNT; i++) {
        const ndp_op *op = ndp_all_ops[i];
        ndp_op_kind kind = ndp_op_kinds[i];
        bool runs = kind != NDP_KIND_COLLECTIVE && kind != NDP_KIND_MARK;
        assert_int_equal(op->id, i);
        assert_int_equal(op->collective != NDP_LOCAL, kind == NDP_KIND_COLLECTIVE);
        for (int d = 0; d < DEVICES; d++)
            assert_int_equal(device_at(d)->kernels[i] != NULL, runs);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(op->name, ndp_all_ops[j]->name);
    }
}

/* The words of train.device and what they stand for. */
static void devices_by_name(void **state) {
    (void)state;
    const ndp_device *found = NULL;
    for (int d = 0; d < 2; d++) {
        const ndp_device *device = d ? &ndp_device_ref : &ndp_device_cpu;
        assert_string_equal(ndp_device_names[d], device->name);
        CHECK_OK(ndp_device_find(device->name, &found));
        assert_ptr_equal(found, device);
        assert_true(found->executes);
        assert_int_equal(ndp_device_has_fp64(device->name), device->fp64);
    }
    ndp_device plan;
    CHECK_OK(ndp_device_find_plan("ref", &plan));
    assert_true(!plan.executes && plan.kernels == ndp_device_ref.kernels);
    found = NULL;
    assert_int_equal(ndp_device_find("null", &found), NDP_EINVAL);
    assert_string_equal(ndp_error_message(), "there is no device 'null'; built: cpu, ref, cuda, sim");
    assert_null(found);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_list_of_ops), cmocka_unit_test(devices_by_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
