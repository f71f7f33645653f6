/* The table of placements: states on axes, in words. */
#include "placement/placement.h"
#include "step/pipelines.h"

/* The table of a unit on cp 2 x tp 4, where 2 kv heads are on 2 ranks each. */
static void print(const char *unit, ndp_status expected, ndp_str *out) {
    pipeline_setup s = {0};
    ndp_model_opts mo = tiny_opts(NDP_F32, 24);
    ndp_facts f = tiny_facts(true);
    CHECK_OK(ndp_pipeline_make(NDP_PIPELINE_1F1B, 1, 1, 2, &s.table));
    CHECK_OK(ndp_decoder_build(&f, &mo, &s.model));
    s.first = calloc(2, sizeof *s.first);
    s.first[1] = s.model.n_units;
    pipeline_take(&s, 1.0);
    s.layout.size[NDP_CP] = 2, s.layout.size[NDP_TP] = 4;
    pipeline_engines(&s);
    const ndp_placement_opts o = {s.programs, pipeline_world(&s), &ndp_engine_claims};
    assert_int_equal(ndp_placement_print(&o, unit, out), expected);
    pipeline_end(&s);
}

/* The first line of the table that has `name` and then says `states`. */
static void has_line(const char *table, const char *name, const char *states) {
    for (const char *at = table; (at = strstr(at, name)); at++) {
        const char *end = strchr(at, '\n'), *found = strstr(at, states);
        if (found && end && found < end)
            return;
    }
    fail_msg("no line with %s: %s in\n%s", name, states, table);
}

static void states(void **state) {
    (void)state;
    ndp_str out = {0};
    print("layers.0", NDP_OK, &out);
    has_line(out.data, "rmsnorm norm", "cp: cut rows, tp: cut rows");
    has_line(out.data, "all_gather norm", "cp: cut rows, tp: same");
    has_line(out.data, "linear o ", "cp: cut rows, tp: part");
    has_line(out.data, "reduce_scatter o ", "cp: cut rows, tp: cut rows");
    has_line(out.data, "attention attention", "tp: cut columns");
    has_line(out.data, "copy qkv", "tp: cut columns, copies");
    has_line(out.data, "linear_dw d model.layers.0.self_attn.q_proj", "cp: part");
    has_line(out.data, "rmsnorm_dw d model.layers.0.input_layernorm", "cp: part, tp: part");
    ndp_str_release(&out);
}

static void all_units(void **state) {
    (void)state;
    ndp_str out = {0};
    print(NULL, NDP_OK, &out);
    has_line(out.data, "unit embed", "");
    has_line(out.data, "unit head", "");
    has_line(out.data, "xent_grad nll", "cp: cut rows");
    ndp_str_release(&out);
}

static void unknown_unit(void **state) {
    (void)state;
    ndp_str out = {0};
    print("layer.0", NDP_EINVAL, &out);
    assert_non_null(strstr(ndp_error_message(), "there is no unit layer.0; the first is embed, the last head"));
    ndp_str_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(states), cmocka_unit_test(all_units),
                                       cmocka_unit_test(unknown_unit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
