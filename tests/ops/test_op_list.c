/* The list of ops (ops/op.h): the tables that are made from it agree with it, and its shape rules refuse what does not
 * fit. */
#include "check.h"
#include "op_test.h"

static void the_list_of_ops(void **state) {
    (void)state;
    for (int i = 0; i < NDP_OP_COUNT; i++) {
        const ndp_op *op = ndp_all_ops[i];
        ndp_op_kind kind = ndp_op_kinds[i];
        bool runs = kind != NDP_KIND_HOST && kind != NDP_KIND_COLLECTIVE && kind != NDP_KIND_MARK;
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
        assert_string_equal(ndp_device_table[d].name, device->name);
        assert_int_equal(ndp_device_table[d].fp64, device->fp64);
    }
    ndp_device plan;
    CHECK_OK(ndp_device_find_plan("ref", &plan));
    assert_true(!plan.executes && plan.kernels == ndp_device_ref.kernels);
    found = NULL;
    assert_int_equal(ndp_device_find("null", &found), NDP_EINVAL);
    assert_string_equal(ndp_error_message(), "there is no device 'null'; supported: cpu, ref, cuda, sim");
    assert_null(found);
}

static void check_refused(const ndp_op *op, const ndp_op_attr *attr, const ndp_view *in) {
    ndp_view out[NDP_OP_MAX_OUT] = {{0}};
    assert_int_equal(apply_shape(op, attr, in, out), NDP_EBUG);
    assert_non_null(strstr(ndp_error_message(), "["));
}

/* Shapes that do not fit are refused before anything runs. */
static void shape_rules_refuse(void **state) {
    (void)state;
    ndp_op_attr attr = {.heads = 2, .head_dim = 4, .parts = 2, .vocab = 10};
    ndp_view f = {.dtype = NDP_F32, .rows = 4, .cols = 6, .ld = 6},
             h = {.dtype = NDP_BF16, .rows = 4, .cols = 6, .ld = 6}, ids = {.dtype = NDP_I32, .rows = 3, .cols = 1};
    ndp_view none = {0}, row = {.dtype = NDP_F32, .rows = 1, .cols = 5}, two = {.dtype = NDP_F32, .rows = 3, .cols = 2};
    const struct {
        const ndp_op *op;
        ndp_view in[NDP_OP_MAX_IN];
    } bad[] = {
        {&ndp_op_embedding, {f, f}},
        {&ndp_op_embedding_dw, {ids, f}},
        {&ndp_op_linear, {f, h, none}},
        {&ndp_op_linear, {f, f, row}},
        {&ndp_op_linear_dx, {f, f, none}},
        {&ndp_op_linear_dw, {h, f}}, /* a narrow dy of wide operands */
        {&ndp_op_linear_stack, {f, h, ids}},
        {&ndp_op_linear_stack, {f, f, f}},
        {&ndp_op_linear_stack, {f, row, ids}}, /* a row for two groups */
        {&ndp_op_linear_stack_dx, {f, f, ids, none}},
        {&ndp_op_linear_stack_dx, {two, f, ids, f}},
        {&ndp_op_linear_stack_dw, {f, h, ids}},
        {&ndp_op_linear_stack_dw, {f, f, row}},
        {&ndp_op_rmsnorm, {f, row}},
        {&ndp_op_rmsnorm_dx, {f, h, row, f}},
        {&ndp_op_rmsnorm_dw, {f, h, f}},
        {&ndp_op_add_rmsnorm, {f, h, row}},
        {&ndp_op_rope, {f, ids, f}},
        {&ndp_op_latent_keys, {f, f}},
        {&ndp_op_mean_squares_dx, {row, f, none}},
        {&ndp_op_norm_by, {f, f, row}},
        {&ndp_op_norm_by_dx, {f, f, row, f}},
        {&ndp_op_layernorm, {f, row, none}},
        {&ndp_op_layernorm_dx, {f, h, row, f}},
        {&ndp_op_layernorm_dw, {f, f, f}},
        {&ndp_op_geglu, {row}},
        {&ndp_op_geglu_bwd, {f, f}},
        {&ndp_op_gelu_bwd, {f, h}},
        {&ndp_op_gelu_erf_bwd, {f, h}},
        {&ndp_op_swiglu, {row}},
        {&ndp_op_attention_dsink, {f, f, f, row}},
        {&ndp_op_stack_bias, {f, f, ids}},
        {&ndp_op_swiglu_bwd, {f, f}},
        {&ndp_op_add, {f, h}},
        {&ndp_op_add_bias, {f, row}},
        {&ndp_op_add_columns, {f, h}},
        {&ndp_op_dropout, {f, ids, ids}},
        {&ndp_op_dora_squares, {f, row, f}},
        {&ndp_op_dora, {f, row, f}},
        {&ndp_op_dora_dm, {f, f, row}},
        {&ndp_op_copy, {ids}},
        {&ndp_op_unpack, {f, f, none}},
        {&ndp_op_route, {f, none, none, none}},
        {&ndp_op_route_dx, {f, f, ids, none}},
        {&ndp_op_choice_counts, {f, ids}},
        {&ndp_op_choice_loads, {f}},
        {&ndp_op_router_losses, {f, none, ids, f}},
        {&ndp_op_router_losses_dx, {f, none, ids, f, none}},
        {&ndp_op_route_order, {f}},
        {&ndp_op_route_exchange, {f, none}},
        {&ndp_op_take_rows, {f, ids, ids, none}},
        {&ndp_op_give_rows, {f, ids, ids, none, none}},
        {&ndp_op_give_rows_dw, {f, f, ids}},
        {&ndp_op_gate_rows, {f, f}},
        {&ndp_op_gate_rows_dg, {f, f, row}},
        {&ndp_op_heads_split, {f}},
        {&ndp_op_heads_merge, {f}},
        {&ndp_op_xent_logits, {f, f, ids}},
        {&ndp_op_attention_merge, {f, f, h, f}},
        {&ndp_op_xent_grad, {f, f, f, f, ids}},
        {&ndp_op_xent, {f, f, ids, f}},
        {&ndp_op_kv_append, {row, f, ids}},
        {&ndp_op_reduce_sum, {f}},
        {&ndp_op_document_sums, {f, ids}},
        {&ndp_op_pair_loss, {f}},
        {&ndp_op_pair_rows, {ids, f}},
    };
    for (int i = 0; i < NDP_COUNT(bad); i++)
        check_refused(bad[i].op, &attr, bad[i].in);
}

/* Those of layers with a state. */
static void shape_rules_of_states_refuse(void **state) {
    (void)state;
    ndp_op_attr attr = {.heads = 2, .head_dim = 4};
    ndp_view f = {.dtype = NDP_F32, .rows = 4, .cols = 6}, h = {.dtype = NDP_BF16, .rows = 4, .cols = 6}, none = {0},
             row = {.dtype = NDP_F32, .rows = 1, .cols = 5};
    ndp_view starts = {.dtype = NDP_I32, .rows = 4, .cols = 1}, no_taps = {.dtype = NDP_F32, .rows = 6},
             taps = {.dtype = NDP_F32, .rows = 6, .cols = NDP_MAX_TAPS + 1},
             too_few_taps = {.dtype = NDP_F32, .rows = 5, .cols = 2};
    const struct {
        const ndp_op *op;
        ndp_view in[NDP_OP_MAX_IN];
    } bad[] = {
        {&ndp_op_conv_silu_dends, {f, f, taps, starts, f}}, /* rows at ends of no pieces */
        {&ndp_op_piece_ends, {f}},
        {&ndp_op_piece_ends_dx, {f, f}},
        {&ndp_op_delta_map, {f, f, f, f, starts}}, /* key heads: none */
        {&ndp_op_delta_map_back, {f, f, f, f, f, starts}},
        {&ndp_op_delta_states, {f}},
        {&ndp_op_weigh_rows, {f, starts, starts, none}},
        {&ndp_op_weigh_rows_dw, {f, f, starts, f}},
        {&ndp_op_gate_by, {f, h}},
        {&ndp_op_gate_by_bwd, {f, f, row}},
        {&ndp_op_conv_silu, {f, f, starts}}, /* 4 rows of taps */
        {&ndp_op_conv_silu, {f, taps, starts}},
        {&ndp_op_conv_silu, {f, too_few_taps, starts}},
        {&ndp_op_conv_silu_dx, {f, h, taps, starts, none}},
        {&ndp_op_conv_silu_dw, {f, f, no_taps, starts}},
        {&ndp_op_delta_decay, {f, f, row}},
        {&ndp_op_delta_decay_da, {h, f, f, f}},
        {&ndp_op_delta_decay_dlog, {f, f, f, f}},
        {&ndp_op_delta_decay_ddt, {f, f, row, row}},
        {&ndp_op_delta_rule, {f, f, f, f, f, starts}}, /* key heads: none */
        {&ndp_op_delta_rule_bwd, {f, f, h, f, f, f, starts}},
    };
    for (int i = 0; i < NDP_COUNT(bad); i++)
        check_refused(bad[i].op, &attr, bad[i].in);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_list_of_ops), cmocka_unit_test(devices_by_name),
                                       cmocka_unit_test(shape_rules_refuse),
                                       cmocka_unit_test(shape_rules_of_states_refuse)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
