/* Stages of a pipeline: what each rank computes and holds, as text (tests/parallel/golden/pp_*.txt), and how a model is
 * cut: by cost, or as listed. */
#include "golden_text.h"
#include "graph_text.h"
#include "model/decoder.h"
#include "parallel/apply.h"
#include "parallel/stage_cut.h"
#include "parallel/stages.h"

enum { ROWS = 8, MOST = 12 };

static ndp_facts tiny(int layers, int vocab, bool tied) {
    ndp_facts f;
    char *text = ndp_format("{\"model_type\": \"llama\", \"vocab_size\": %d, \"num_hidden_layers\": %d, "
                            "\"hidden_size\": 8, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
                            "\"intermediate_size\": 6, \"max_position_embeddings\": 64, \"tie_word_embeddings\": %s}",
                            vocab, layers, tied ? "true" : "false");
    CHECK_OK(ndp_facts_parse_text(text, "tiny", &f));
    free(text);
    return f;
}

static void build(int layers, int vocab, bool tied, ndp_model *m) {
    ndp_facts f = tiny(layers, vocab, tied);
    ndp_model_opts o = {
        .mode = NDP_MODEL_TRAIN, .rows = ROWS, .keys = ROWS, .positions = ROWS, .compute = NDP_F32, .master = NDP_F32};
    CHECK_OK(ndp_decoder_build(&f, &o, m));
}

static void make_mesh(const char *layout, int rank, const int tie[2], ndp_mesh *mesh) {
    ndp_layout l;
    CHECK_OK(ndp_layout_parse(layout, &l));
    CHECK_OK(ndp_mesh_init(&l, rank, &(ndp_mesh_facts){.kv_heads = 2, .ties.of = {{tie[0], tie[1]}}}, mesh));
}

/* ---- what a rank has ---- */

static void print_model(const ndp_model *m, ndp_str *out) {
    for (int i = 0; i < m->n_units; i++) {
        const ndp_unit *u = &m->units[i];
        ndp_str_addf(out, "unit %d %s: stage %d, graph %s, slots", u->number, u->name, u->stage,
                     m->graphs[u->graph].name);
        for (int s = 0; s < NDP_SLOTS; s++)
            if (u->buffers[s] != NDP_NONE)
                ndp_str_addf(out, " %s", m->buffers[u->buffers[s]].name);
        ndp_str_add(out, "\n");
    }
    for (int i = 0; i < m->n_buffers; i++) {
        const ndp_buffer *b = &m->buffers[i];
        bool tied = b->segments.items[0].sums & NDP_GROUP_BIT(NDP_GROUP_TIE);
        ndp_str_addf(out, "buffer %s: %lld elements%s\n", b->name, (long long)b->segments.elements,
                     tied ? ", shared with another stage" : "");
        for (int k = 0; k < b->segments.n && tied; k++)
            ndp_str_addf(out, "  %s, held by %g ranks%s\n", b->segments.items[k].name, b->segments.items[k].copies,
                         b->segments.items[k].replica ? ", written by another" : "");
    }
    for (int i = 0; i < m->n_graphs; i++) {
        const ndp_graph *g = &m->graphs[i];
        ndp_str_addf(out, "graph %s: %d nodes forward, %d for the input gradient, %d for those of the weights\n",
                     g->name, g->nodes[NDP_NODES_FORWARD].n, g->nodes[NDP_NODES_INPUT_GRAD].n,
                     g->nodes[NDP_NODES_WEIGHT_GRAD].n);
    }
}

static const struct stages_case {
    const char *file, *layout;
    bool tied;
    int layers;
    ndp_stages stages;
    int tie[2];
} cases[] = {
    {"pp_two_stages", "pp=2", false, 2, {2, (int[]){0, 2, 4}, (int[]){0, 1}}, {0, 0}},
    {"pp_tied", "pp=3", true, 4, {3, (int[]){0, 2, 4, 6}, (int[]){0, 1, 2}}, {0, 2}},
    {"pp_interleaved", "pp=2", true, 4, {4, (int[]){0, 2, 3, 4, 6}, (int[]){0, 1, 0, 1}}, {0, 1}},
    /* one buffer that two units of rank 0 use: not tied over ranks */
    {"pp_v", "pp=2", true, 4, {4, (int[]){0, 2, 3, 4, 6}, (int[]){0, 1, 1, 0}}, {0, 0}},
    {"pp_tp", "pp=2,tp=2", true, 2, {2, (int[]){0, 2, 4}, (int[]){0, 1}}, {0, 1}},
};

static void check_case(void **state) {
    const struct stages_case *c = *state;
    ndp_model whole;
    ndp_str text = {0};
    char name[96];
    ndp_mesh mesh;
    make_mesh(c->layout, 0, c->tie, &mesh);
    build(c->layers, 10, c->tied, &whole);
    for (int r = 0; r < mesh.world; r++) {
        const ndp_parallel how = NDP_PARALLEL_INIT;
        ndp_model local;
        make_mesh(c->layout, r, c->tie, &mesh);
        CHECK_OK(ndp_parallel_apply(&whole, &mesh, &how, &c->stages, &local));
        ndp_str_addf(&text, "%srank %d of %s\n", r ? "\n" : "", r, c->layout);
        print_model(&local, &text);
        ndp_model_release(&local);
    }
    snprintf(name, sizeof name, "parallel/golden/%s.txt", c->file);
    check_golden(name, &text);
    ndp_model_release(&whole);
}

/* The graphs of a stage are those of the whole model: a pipeline changes none. */
static void graphs_are_those_of_one_rank(void **state) {
    (void)state;
    const struct stages_case *c = &cases[0];
    const ndp_parallel how = NDP_PARALLEL_INIT;
    const ndp_stages one = {0};
    ndp_model whole, all, local;
    ndp_mesh mesh;
    build(c->layers, 10, c->tied, &whole);
    make_mesh("pp=1", 0, c->tie, &mesh);
    CHECK_OK(ndp_parallel_apply(&whole, &mesh, &how, &one, &all));
    for (int r = 0; r < 2; r++) {
        make_mesh(c->layout, r, c->tie, &mesh);
        CHECK_OK(ndp_parallel_apply(&whole, &mesh, &how, &c->stages, &local));
        for (int u = 0; u < local.n_units; u++) {
            int g = local.units[u].graph;
            ndp_str a = {0}, b = {0};
            ndp_graph_print(&local.graphs[g], &a);
            ndp_graph_print(&all.graphs[g], &b);
            for (char *at = a.data; (at = strstr(at, "model.layers.1."));) /* named for the first that has it */
                at[sizeof "model.layers." - 1] = '0';
            assert_string_equal(a.data, b.data);
            ndp_str_release(&a);
            ndp_str_release(&b);
        }
        ndp_model_release(&local);
    }
    ndp_model_release(&all);
    ndp_model_release(&whole);
}

/* ---- the cut ---- */

static const ndp_unit_cost layer = {1, 1, 1}, light = {0.1, 0, 0.1};

/* Layers of each stage, as a text. */
static void check_cut(int layers, ndp_unit_cost head, int stages, const char *want) {
    ndp_model m;
    ndp_unit_cost costs[MOST + 2];
    int first[MOST + 1];
    ndp_str got = {0};
    build(layers, 10, false, &m);
    for (int i = 0; i < m.n_units; i++)
        costs[i] = i == 0 ? light : i == m.n_units - 1 ? head : layer;
    CHECK_OK(ndp_stage_cut(&m, costs, stages, NULL, 0, first));
    assert_int_equal(first[0], 0);
    assert_int_equal(first[stages], m.n_units);
    for (int s = 0; s < stages; s++)
        ndp_str_addf(&got, "%s%d", s ? " " : "", first[s + 1] - first[s] - (s == 0) - (s == stages - 1));
    assert_string_equal(got.data, want);
    ndp_str_release(&got);
    ndp_model_release(&m);
}

static void by_cost(void **state) {
    (void)state;
    check_cut(8, light, 1, "8");
    check_cut(8, light, 2, "4 4");
    check_cut(8, light, 4, "2 2 2 2");
    check_cut(8, light, 8, "1 1 1 1 1 1 1 1");
    check_cut(10, light, 4, "2 3 3 2");
    /* a head of two layers, all of it forward, as a long vocabulary is: the last stage has fewer */
    check_cut(8, (ndp_unit_cost){6, 0, 0}, 2, "5 3");
    check_cut(8, (ndp_unit_cost){6, 0, 0}, 4, "2 2 3 1");
    /* one as heavy as all layers: the last stage has the one that it must have */
    check_cut(8, (ndp_unit_cost){24, 0, 0}, 4, "2 2 3 1");
}

static void as_listed(void **state) {
    (void)state;
    ndp_model m;
    int first[MOST];
    build(8, 10, false, &m);
    CHECK_OK(ndp_stage_cut(&m, NULL, 3, (int[]){5, 1, 2}, 3, first));
    const int want[] = {0, 6, 7, 10};
    assert_memory_equal(first, want, sizeof want);
    CHECK_FAILS(ndp_stage_cut(&m, NULL, 3, (int[]){5, 1}, 2, first), NDP_EINVAL,
                "pipeline.stages has 2 numbers for 3 stages");
    CHECK_FAILS(ndp_stage_cut(&m, NULL, 3, (int[]){8}, 1, first), NDP_EINVAL,
                "pipeline.stages has 1 number for 3 stages");
    CHECK_FAILS(ndp_stage_cut(&m, NULL, 3, (int[]){7, 0, 1}, 3, first), NDP_EINVAL,
                "pipeline.stages: stage 1 has 0 layers; a stage has at least one");
    CHECK_FAILS(ndp_stage_cut(&m, NULL, 3, (int[]){5, 2, 2}, 3, first), NDP_EINVAL,
                "pipeline.stages: the stages have 9 layers together, the model has 8");
    CHECK_FAILS(ndp_stage_cut(&m, NULL, 9, NULL, 0, first), NDP_EINVAL,
                "9 pipeline stages, but the model has 8 layers; a stage has at least one");
    ndp_model_release(&m);
}

/* Costs are facts of the model and the layout: every rank has the same, also where tp cuts the vocabulary
 * unevenly; recompute moves its forward into the backward. */
static void costs_are_those_of_any_rank(void **state) {
    (void)state;
    static const char *const layouts[] = {"pp=2", "pp=2,tp=2", "pp=2,dp_shard=2,tp=4"};
    const ndp_parallel how = NDP_PARALLEL_INIT;
    const ndp_rates rates = NDP_RATES_INIT;
    const ndp_price price = ndp_price_by_rates(&rates);
    const int tie[2] = {0, 0};
    ndp_model m;
    build(5, 1001, false, &m);
    for (int l = 0; l < NDP_COUNT(layouts); l++) {
        ndp_unit_cost plain[MOST], again[MOST];
        int first[MOST], other[MOST];
        ndp_mesh mesh;
        make_mesh(layouts[l], 0, tie, &mesh);
        CHECK_OK(ndp_unit_costs(&m, &mesh, &how, false, &price, plain));
        CHECK_OK(ndp_unit_costs(&m, &mesh, &how, true, &price, again));
        CHECK_OK(ndp_stage_cut(&m, plain, 2, NULL, 0, first));
        for (int i = 1; i < m.n_units - 1; i++) {
            assert_true(plain[i].forward > 0 && plain[i].input_gradient > 0 && plain[i].weight_gradient > 0);
            assert_true(again[i].input_gradient >= plain[i].input_gradient);
        }
        assert_true(plain[m.n_units - 1].forward > plain[m.n_units - 1].input_gradient);
        for (int r = 1; r < mesh.world; r++) {
            make_mesh(layouts[l], r, tie, &mesh);
            CHECK_OK(ndp_unit_costs(&m, &mesh, &how, false, &price, again));
            CHECK_OK(ndp_stage_cut(&m, again, 2, NULL, 0, other));
            if (memcmp(first, other, 3 * sizeof *first) != 0)
                fail_msg("%s: rank %d cuts at %d, rank 0 at %d", layouts[l], r, other[1], first[1]);
        }
    }
    ndp_model_release(&m);
}

static double operations(const void *user, const ndp_call *c) {
    (void)user;
    return c->flops;
}

static double bytes(const void *user, const ndp_call *c) {
    (void)user;
    return c->bytes;
}

static double no_communication(const void *user, const ndp_call *c, const ndp_group *group) {
    (void)user, (void)c, (void)group;
    return 0;
}

/* A million for each, and the bytes that leave the rank. */
static double communication(const void *user, const ndp_call *c, const ndp_group *group) {
    (void)user;
    return 1e6 + ndp_call_moved(c, group->count);
}

static double nothing(const void *user, const ndp_call *c) {
    (void)user, (void)c;
    return 0;
}

static ndp_unit_cost cost_of_layer(const char *layout, bool recompute, const ndp_price *price) {
    const ndp_parallel how = NDP_PARALLEL_INIT;
    const int tie[2] = {0, 0};
    ndp_unit_cost costs[MOST];
    ndp_mesh mesh;
    ndp_model m;
    build(1, 10, false, &m);
    make_mesh(layout, 0, tie, &mesh);
    CHECK_OK(ndp_unit_costs(&m, &mesh, &how, recompute, price, costs));
    ndp_model_release(&m);
    return costs[1];
}

/* Of a layer on 8 rows, 8 columns, 4 heads of 2, 2 kv heads, ffn 6; worked out by hand. A pair of query and key: 36. */
enum {
    NORM = 4 * 64,
    QKV = 2 * 8 * 8 * 16,
    ROPE = 3 * 8 * 6 * 2,
    ATTENTION = 4 * 36 * 8,
    O = 2 * 8 * 8 * 8,
    ADD_NORM = 5 * 64,
    GATE_UP = 2 * 8 * 8 * 12,
    SWIGLU = 22 * 48,
    DOWN = 2 * 8 * 6 * 8,
    ADD = 64,
    FORWARD = NORM + QKV + ROPE + ATTENTION + O + ADD_NORM + GATE_UP + SWIGLU + DOWN + ADD,
    /* attention's five products instead of two, norms 9 instead of 4 or 5 operations, swiglu 28 instead of 22 */
    INPUT_GRADIENT = DOWN + 28 * 48 + GATE_UP + 9 * 64 + O + ATTENTION / 4 * 10 + ROPE + QKV + 9 * 64,
    WEIGHT_GRADIENT = DOWN + GATE_UP + O + QKV + 2 * 3 * 64
};

static void costs_are_exact(void **state) {
    (void)state;
    const ndp_price price = {.kernel = operations, .comm = no_communication};
    ndp_unit_cost c = cost_of_layer("pp=2", false, &price);
    assert_true(c.forward == FORWARD && c.input_gradient == INPUT_GRADIENT && c.weight_gradient == WEIGHT_GRADIENT);
    c = cost_of_layer("pp=2", true, &price); /* the last product and the sum after it are not made again */
    assert_true(c.forward == FORWARD && c.weight_gradient == WEIGHT_GRADIENT);
    assert_true(c.input_gradient == INPUT_GRADIENT + FORWARD - DOWN - ADD);
}

/* The embedding is bytes alone: rows that are read and written. */
static void bytes_count(void **state) {
    (void)state;
    const ndp_rates slow_memory = {1e30, 1, 1, 0};
    const ndp_price by_rates = ndp_price_by_rates(&slow_memory), by_bytes = {.kernel = bytes, .comm = no_communication};
    ndp_unit_cost a = cost_of_layer("pp=2", false, &by_rates), b = cost_of_layer("pp=2", false, &by_bytes);
    assert_true(a.forward == b.forward && a.input_gradient == b.input_gradient && a.forward > 0);
    const ndp_rates rates = {1e6, 1e3, 1, 0};
    const ndp_price mixed = ndp_price_by_rates(&rates);
    const ndp_parallel how = NDP_PARALLEL_INIT;
    ndp_unit_cost costs[MOST];
    ndp_mesh mesh;
    ndp_model m;
    build(1, 10, false, &m);
    make_mesh("pp=2", 0, (const int[]){0, 0}, &mesh);
    CHECK_OK(ndp_unit_costs(&m, &mesh, &how, false, &mixed, costs));
    assert_true(costs[0].forward == 2 * 8 * 8 * 4 / 1e3);
    ndp_model_release(&m);
}

/* On tp 2 a layer gathers and scatters its rows twice, 4 of 8 of them from this rank; the weights' gradients need the
 * gathered rows again. */
static void communication_counts(void **state) {
    (void)state;
    const ndp_price price = {.kernel = nothing, .comm = communication};
    const double each = 1e6 + 4 * 8 * 4;
    ndp_unit_cost c = cost_of_layer("pp=2,tp=2", false, &price);
    assert_true(c.forward == 4 * each && c.input_gradient == 4 * each && c.weight_gradient == 2 * each);
    c = cost_of_layer("pp=2", false, &price);
    assert_true(c.forward == 0 && c.input_gradient == 0 && c.weight_gradient == 0);
}

int main(void) {
    struct CMUnitTest tests[7 + NDP_COUNT(cases)] = {cmocka_unit_test(graphs_are_those_of_one_rank),
                                                     cmocka_unit_test(by_cost),
                                                     cmocka_unit_test(as_listed),
                                                     cmocka_unit_test(costs_are_those_of_any_rank),
                                                     cmocka_unit_test(costs_are_exact),
                                                     cmocka_unit_test(bytes_count),
                                                     cmocka_unit_test(communication_counts)};
    for (int i = 0; i < NDP_COUNT(cases); i++)
        tests[NDP_COUNT(tests) - NDP_COUNT(cases) + i] = (struct CMUnitTest){
            .name = cases[i].file, .test_func = check_case, .initial_state = (void *)(uintptr_t)&cases[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
