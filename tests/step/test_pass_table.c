/* The table of passes (graph/passes.h) is what makes programs: passes run in its order, what they say that they wrote
 * is all that there is, and each has a job on some layout. A pass that is called beside the table fails here. */
#include "check.h"
#include "step/tiny_models.h"

#include <stdio.h>
#include <string.h>

typedef struct pass_case {
    const char *layout, *config; /* config NULL: the tiny Llama */
    ndp_packing base;
    int accumulation;
    bool scores, staged;
} pass_case;

static const pass_case cases[] = {
    {"", NULL, NDP_PACKING_NONE, 1, false, false},
    {"", NULL, NDP_PACKING_NONE, 1, true, false},
    {"dp_shard=2", NULL, NDP_PACKING_NONE, 9, false, false},
    {"tp=2", NULL, NDP_PACKING_NONE, 2, false, false},
    {"cp=2", NULL, NDP_PACKING_NONE, 1, false, true},
    {"cp=2,tp=2", TINY("mixtral", "\"head_dim\": 6, \"num_local_experts\": 4, \"num_experts_per_tok\": 2"),
     NDP_PACKING_NONE, 1, false, false},
    {"dp_shard=2", TINY("llama", "\"head_dim\": 64"), NDP_PACKING_NF4, 9, false, false},
    {"cp=2,sp=2",
     TINY("qwen3_5_text", "\"head_dim\": 8, \"linear_num_key_heads\": 4, \"linear_num_value_heads\": 4, "
                          "\"linear_key_head_dim\": 3, \"linear_value_head_dim\": 5"),
     NDP_PACKING_NONE, 1, false, false},
};

static void build_model(const pass_case *c, ndp_model *m) {
    static const char *const layers[] = {"layers.*"};
    ndp_facts f = tiny_facts(false);
    ndp_model_opts mo = tiny_opts(NDP_F32, 24);
    if (c->config)
        CHECK_OK(ndp_facts_parse_text(c->config, "tiny", &f));
    if (c->scores)
        mo.mode = NDP_MODEL_SCORE;
    if (c->base != NDP_PACKING_NONE)
        mo.base = c->base, mo.frozen = layers, mo.n_frozen = 1;
    CHECK_OK(ndp_decoder_build(&f, &mo, m));
}

/* What one list of passes wrote. */
static int64_t wrote(const ndp_pass_trace *t, int first, int end) {
    int64_t sum = 0;
    for (int i = first; i < end; i++)
        sum += t->wrote[i];
    return sum;
}

/* Nothing else wrote nodes, calls or instructions. */
static void check_sums(const ndp_engine *e, const ndp_pass_trace *t) {
    const ndp_model *m = ndp_engine_model(e);
    const ndp_program *p = ndp_engine_program(e);
    int64_t nodes = 0, calls = 0;
    for (int g = 0; g < m->n_graphs; g++) {
        nodes += ndp_graph_nodes(&m->graphs[g]);
        for (int phase = 0; phase < NDP_PHASES; phase++)
            calls += p->opts.units[g].lists[phase].n;
    }
    assert_int_equal(wrote(t, NDP_PASS_forward, NDP_PASS_homes), nodes);
    assert_int_equal(wrote(t, NDP_PASS_homes, NDP_PASS_own), calls);
    assert_int_equal(wrote(t, NDP_PASS_own, NDP_PASS_COUNT), p->n);
}

static void build_case(const pass_case *c, ndp_pass_trace *out) {
    ndp_device device = ndp_device_null;
    device.host_memory = !c->staged;
    const ndp_exec exec = {.device = &device, .threads = 1, .staged = c->staged};
    ndp_layout layout = NDP_LAYOUT_ONE;
    ndp_model m;
    ndp_engine *e;
    build_model(c, &m);
    ndp_engine_opts o = {.model = &m,
                         .step = {.parallel = NDP_PARALLEL_INIT,
                                  .exec = &exec,
                                  .node_ranks = 1,
                                  .accumulation = c->accumulation,
                                  .fold = NDP_FOLD_ALWAYS,
                                  .optimizer = {.name = NDP_ADAMW}}};
    if (*c->layout)
        CHECK_OK(ndp_layout_parse(c->layout, &layout));
    const ndp_mesh_facts facts = {.kv_heads = ndp_model_kv_heads(&m)};
    CHECK_OK(ndp_mesh_init(&layout, 0, &facts, &o.step.mesh));
    CHECK_OK(ndp_engine_create(&o, &e));
    ndp_engine_passes(e, out);
    check_sums(e, out);
    ndp_engine_destroy(e);
    ndp_model_release(&m);
}

static void passes_run_in_order_and_write_all(void **state) {
    (void)state;
    uint64_t ran = 0;
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_pass_trace t;
        build_case(&cases[i], &t);
        assert_false(t.disordered);
        ran |= t.ran;
        for (int k = NDP_PASS_forward; k < NDP_PASS_COUNT; k++)
            if (!(t.ran >> k & 1) && t.wrote[k] != 0)
                fail_msg("%s: pass %d wrote without running", cases[i].layout, k);
    }
    for (int k = 0; k < NDP_PASS_COUNT; k++)
        if (!(ran >> k & 1))
            fail_msg("no layout of this test runs pass %d: add one, or remove the pass", k);
}

static void what_runs_follows_from_the_job(void **state) {
    (void)state;
    ndp_pass_trace one, scores, folds, ring;
    build_case(&cases[0], &one);
    build_case(&cases[1], &scores);
    build_case(&cases[2], &folds);
    build_case(&cases[4], &ring);
    assert_true(one.wrote[NDP_PASS_backward] > 0 && one.wrote[NDP_PASS_update] > 0);
    assert_true(scores.wrote[NDP_PASS_backward] == 0 && scores.wrote[NDP_PASS_update] == 0);
    assert_true(one.wrote[NDP_PASS_ring] == 0 && ring.wrote[NDP_PASS_ring] > 0);
    assert_true(one.wrote[NDP_PASS_fold] == 0 && folds.wrote[NDP_PASS_fold] < 0);
}

/* The printed list has the passes in the order of their numbers, which is that in which they run. */
static void the_list_is_printed_in_order(void **state) {
#define NAME(name, when, writes, does) #name,
    static const char *const names[] = {NDP_PASSES(NAME)};
#undef NAME
    (void)state;
    ndp_str text = {0};
    ndp_passes_print(NULL, &text);
    const char *at = text.data;
    for (int i = 0; i < NDP_PASS_COUNT; i++) {
        char line[64];
        snprintf(line, sizeof line, "\n  %s ", names[i]);
        at = strstr(at, line);
        if (!at)
            fail_msg("pass %s is missing, or out of order", names[i]);
    }
    ndp_str_release(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(passes_run_in_order_and_write_all),
                                       cmocka_unit_test(what_runs_follows_from_the_job),
                                       cmocka_unit_test(the_list_is_printed_in_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
