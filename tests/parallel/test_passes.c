/* What the passes make of a model, read as text: tests/parallel/golden/whole.txt is the model as it is built,
 * forward only; each other file is what one rank of a layout computes of it, with the derived backward, and what it
 * holds of the parameters. tests/golden_text.h says how the files are written again. */
#include "golden_text.h"
#include "graph_text.h"
#include "model/decoder.h"
#include "model/families.h"
#include "parallel/apply.h"

/* A tiny Llama with short names. bf16, so that sums over ranks in wider storage show. */
enum { ROWS = 8, MOST_GRAPHS = 3 };

typedef enum variant {
    PLAIN,
    TIED,
    PACKED,   /* nf4, frozen layers; heads of 64 columns, so that tp cuts between blocks */
    NORMED,   /* queries and keys normed over all heads, biases */
    SIX_HEADS /* of which 3 tp ranks cannot share 2 kv heads evenly */
} variant;

static ndp_facts tiny(variant v) {
    static const char config[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 10, \"num_hidden_layers\": 2, \"hidden_size\": 8, "
        "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": 6, "
        "\"max_position_embeddings\": 64}";
    static const ndp_names names = {.tokens = "tokens",
                                    .layers = "l",
                                    .final_norm = "norm",
                                    .head = "head",
                                    .input_norm = "norm1",
                                    .q = "q",
                                    .k = "k",
                                    .v = "v",
                                    .o = "o",
                                    .mlp_norm = "norm2",
                                    .gate = "gate",
                                    .up = "up",
                                    .down = "down"};
    static ndp_names normed;
    ndp_facts f;
    CHECK_OK(ndp_facts_parse_text(config, "tiny", &f));
    f.names = &names;
    f.tied = v == TIED;
    f.heads = v == SIX_HEADS ? 6 : f.heads;
    if (v == PACKED)
        f.head_dim = f.ropes[0].dim = 64, f.ffn = 128;
    if (v == NORMED) {
        normed = names;
        normed.q_norm = "q_norm", normed.k_norm = "k_norm";
        f.names = &normed;
        f.qk_norm = NDP_QK_NORM_WHOLE;
        f.qkv_bias = f.o_bias = f.mlp_bias = true;
    }
    return f;
}

static ndp_model_opts opts_of(int64_t rows, variant v) {
    static const char *const layers[] = {"layers.*"};
    ndp_model_opts o = {
        .mode = NDP_MODEL_TRAIN, .rows = rows, .keys = rows, .positions = rows, .compute = NDP_BF16, .master = NDP_F32};
    if (v == PACKED)
        o.base = NDP_PACKING_NF4, o.frozen = layers, o.n_frozen = 1;
    return o;
}

/* ---- parameters of a rank ---- */

static void print_segment(const ndp_segment *s, ndp_str *out) {
    ndp_str_addf(out, "  +%lld %s [%lld,%lld]", (long long)s->offset, s->name, (long long)s->rows, (long long)s->cols);
    if (s->rows != s->whole[0] || s->cols != s->whole[1])
        ndp_str_addf(out, " at (%lld,%lld) of [%lld,%lld]", (long long)s->first[0], (long long)s->first[1],
                     (long long)s->whole[0], (long long)s->whole[1]);
    if (s->copies != 1)
        ndp_str_addf(out, ", held by %g ranks%s", s->copies, s->replica ? ", written by another" : "");
    for (int kind = 0; kind < NDP_GROUPS; kind++)
        if (s->sums & NDP_GROUP_BIT(kind) && kind != NDP_GROUP_REPLICATE)
            ndp_str_addf(out, ", gradient summed over %s", ndp_group_name((ndp_group_kind)kind));
    assert_true(s->sums & NDP_GROUP_BIT(NDP_GROUP_REPLICATE));
    ndp_str_add(out, "\n");
}

static void print_buffers(const ndp_model *m, ndp_str *out) {
    for (int i = 0; i < m->n_buffers; i++) {
        const ndp_segments *s = &m->buffers[i].segments;
        if (i > 0 && i < m->n_buffers - 1 && i != 1 && !(i == 2 && ndp_buffer_is_packed(&m->buffers[i])))
            continue; /* layers are alike */
        ndp_str_addf(out, "buffer %s: %lld elements\n", m->buffers[i].name, (long long)s->elements);
        for (int k = 0; k < s->n; k++)
            print_segment(&s->items[k], out);
    }
}

static void print_units(const ndp_model *m, ndp_str *out) {
    for (int i = 0; i < m->n_units; i++) {
        ndp_str_addf(out, "unit %s: graph %s, slots", m->units[i].name, m->graphs[m->units[i].graph].name);
        for (int s = 0; s < NDP_SLOTS; s++)
            if (m->units[i].buffers[s] != NDP_NONE)
                ndp_str_addf(out, " %s", m->buffers[m->units[i].buffers[s]].name);
        ndp_str_add(out, "\n");
    }
}

/* ---- cases ---- */

typedef struct layout_case {
    const char *file; /* in tests/parallel/golden */
    const char *layout;
    int rank;
    int64_t rows;
    variant model;
    bool buffers;
    ndp_parallel how;
    const char *graphs[MOST_GRAPHS]; /* those that the axes change */
} layout_case;

static const layout_case cases[] = {
    {"tp_slices", "tp=2", 1, ROWS, PLAIN, true, NDP_PARALLEL_INIT, {"embedding", "block", "head"}},
    {"tp_whole_rows", "tp=2", 1, ROWS, PLAIN, false, {false, NDP_CP_RING, true, 0, 0, 1.5}, {"embedding", "block", "head"}},
    {"tp_head_in_chunks", "tp=2", 0, 600, PLAIN, false, NDP_PARALLEL_INIT, {"head"}},
    {"tp_norms_and_biases", "tp=4", 1, ROWS, NORMED, true, NDP_PARALLEL_INIT, {"block"}},
    {"tp_kv_copies", "tp=4", 1, ROWS, PLAIN, true, NDP_PARALLEL_INIT, {"block"}},
    {"tp_tied", "tp=2", 1, ROWS, TIED, true, NDP_PARALLEL_INIT, {"embedding", "head"}},
    {"tp_packed", "tp=2", 1, ROWS, PACKED, true, NDP_PARALLEL_INIT, {"block"}},
    {"sp", "sp=2", 1, ROWS, PLAIN, false, NDP_PARALLEL_INIT, {"block"}},
    {"sp_kv_copies", "sp=4", 1, ROWS, PLAIN, false, NDP_PARALLEL_INIT, {"block"}},
    {"tp_sp_kv_whole", "tp=3,sp=2", 2, 12, SIX_HEADS, true, NDP_PARALLEL_INIT, {"block"}},
    {"cp_ring", "cp=3", 1, 12, PLAIN, false, NDP_PARALLEL_INIT, {"block"}},
    {"cp_all_gather", "cp=2", 1, ROWS, PLAIN, false, {true, NDP_CP_ALL_GATHER, true, 0, 0, 1.5}, {"block"}},
};

static void print_case(const layout_case *c, const ndp_mesh *mesh, const ndp_model *m, ndp_str *out) {
    ndp_row_cut rows = ndp_cut_rows(c->rows, mesh, &c->how);
    ndp_str_addf(out,
                 "rank %d of %s, of %lld rows: %lld tokens, %lld in the residual stream, %lld queries, %lld keys\n",
                 c->rank, c->layout, (long long)c->rows, (long long)rows.tokens, (long long)rows.slice,
                 (long long)rows.queries, (long long)rows.keys);
    if (c->buffers) {
        print_buffers(m, out);
        print_units(m, out);
    }
    for (int i = 0; i < m->n_graphs; i++)
        for (int k = 0; k < MOST_GRAPHS; k++)
            if (c->graphs[k] && strcmp(c->graphs[k], m->graphs[i].name) == 0) {
                ndp_str_add(out, "\n");
                ndp_graph_print(&m->graphs[i], out);
            }
}

static void check_case(void **state) {
    const layout_case *c = *state;
    ndp_facts facts = tiny(c->model);
    ndp_model_opts opts = opts_of(c->rows, c->model);
    ndp_layout layout;
    ndp_mesh mesh;
    ndp_model whole, local;
    ndp_str text = {0};
    char name[96];
    CHECK_OK(ndp_layout_parse(c->layout, &layout));
    CHECK_OK(ndp_mesh_init(&layout, c->rank, &(ndp_mesh_facts){.kv_heads = facts.kv_heads}, &mesh));
    CHECK_OK(ndp_decoder_build(&facts, &opts, &whole));
    CHECK_OK(ndp_parallel_apply(&whole, &mesh, &c->how, &(ndp_stages){0}, &local));
    print_case(c, &mesh, &local, &text);
    snprintf(name, sizeof name, "parallel/golden/%s.txt", c->file);
    check_golden(name, &text);
    ndp_model_release(&local);
    ndp_model_release(&whole);
}

static void check_whole(void **state) {
    (void)state;
    ndp_facts facts = tiny(PLAIN);
    ndp_model_opts opts = opts_of(ROWS, PLAIN);
    ndp_model whole;
    ndp_str text = {0};
    CHECK_OK(ndp_decoder_build(&facts, &opts, &whole));
    print_buffers(&whole, &text);
    print_units(&whole, &text);
    for (int i = 0; i < whole.n_graphs; i++) {
        ndp_str_add(&text, "\n");
        ndp_graph_print(&whole.graphs[i], &text);
    }
    check_golden("parallel/golden/whole.txt", &text);
    ndp_model_release(&whole);
}

/* An op that mixes rows and that no pass knows is refused where an axis cuts rows, and taken where none does. */
static void mixed_rows_are_refused(void **state) {
    static const struct {
        const char *layout, *words;
    } of[] = {
        {"cp=2", "unit block: op heads_split mixes rows, and cp_size 2 cuts the rows: set parallelism.cp_size: 1"},
        {"sp=2", "op heads_split mixes rows, and sp_size 2 cuts the rows: set parallelism.sp_size: 1"},
        {"tp=2", "set parallelism.tp_sequence_parallel: false, or parallelism.tp_size: 1"},
        {"dp_shard=2", NULL}};
    (void)state;
    for (int i = 0; i < NDP_COUNT(of); i++) {
        ndp_facts facts = tiny(PLAIN);
        ndp_model_opts opts = opts_of(ROWS, PLAIN);
        ndp_op_attr attr = {.heads = 1, .head_dim = facts.hidden, .parts = 1};
        ndp_layout layout;
        ndp_mesh mesh;
        ndp_model whole, local;
        CHECK_OK(ndp_layout_parse(of[i].layout, &layout));
        CHECK_OK(ndp_mesh_init(&layout, 0, &(ndp_mesh_facts){.kv_heads = facts.kv_heads}, &mesh));
        CHECK_OK(ndp_decoder_build(&facts, &opts, &whole));
        ndp_graph *block = &whole.graphs[1];
        ndp_graph_output(block, ndp_graph_op1(block, &ndp_op_heads_split, &attr, "mixed", &block->output, 1));
        const ndp_parallel how = NDP_PARALLEL_INIT;
        if (of[i].words) {
            CHECK_FAILS(ndp_parallel_apply(&whole, &mesh, &how, &(ndp_stages){0}, &local), NDP_ENOTSUP, of[i].words);
        } else {
            CHECK_OK(ndp_parallel_apply(&whole, &mesh, &how, &(ndp_stages){0}, &local));
            ndp_model_release(&local);
        }
        ndp_model_release(&whole);
    }
}

int main(void) {
    struct CMUnitTest tests[2 + NDP_COUNT(cases)] = {cmocka_unit_test(check_whole),
                                                     cmocka_unit_test(mixed_rows_are_refused)};
    for (int i = 0; i < NDP_COUNT(cases); i++)
        tests[2 + i] = (struct CMUnitTest){
            .name = cases[i].file, .test_func = check_case, .initial_state = (void *)(uintptr_t)&cases[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
