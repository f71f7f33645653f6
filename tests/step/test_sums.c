/* Sums of gradients beside those of the owners, as every rank's program has them: over each group that a segment names,
 * each of its elements once, and in few operations, since segments with the same groups lie side by side. */
#include "step/layouts.h"

/* What a sum reads and writes: elements of the slice of `buffer`. */
typedef struct sum_call {
    int buffer;
    ndp_group_kind group;
    int64_t first, end;
} sum_call;

enum { MOST_CALLS = 128 };

static int list_sums(const ndp_program *p, sum_call out[MOST_CALLS]) {
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        const ndp_instr *in = &p->instrs[i];
        if (!ndp_instr_is(in, NDP_CALL_BEGIN) || in->call.op != &ndp_op_all_reduce || in->buffer == NDP_NONE)
            continue;
        const ndp_owned *o = &p->owned[in->buffer];
        size_t size = ndp_dtype_size(p->opts.model->buffers[in->buffer].storage.gradient);
        assert_true(n < MOST_CALLS && in->call.in[0].base == o->grad.block);
        int64_t first = (int64_t)((in->call.in[0].offset - o->grad.offset) / size);
        out[n++] =
            (sum_call){in->buffer, ndp_channel_group(in->call.channel), first, first + ndp_call_elements(&in->call)};
    }
    return n;
}

/* Of one piece and group: it is inside of one sum, or, if its segment does not name the group, outside of all. */
static void check_piece(const sum_call *calls, int n, int buffer, const ndp_piece *piece, ndp_group_kind group,
                        bool summed, const char *text) {
    int inside = 0, touched = 0;
    for (int i = 0; i < n; i++) {
        const sum_call *c = &calls[i];
        int64_t first = piece->slice_first, end = first + piece->count;
        bool same = c->buffer == buffer && c->group == group;
        inside += same && c->first <= first && end <= c->end;
        touched += same && c->first < end && first < c->end;
    }
    if (inside != summed || touched != summed)
        fail_msg("%s: %s is in %d sums over %s, touched by %d", text, piece->segment->name, inside,
                 ndp_group_name(group), touched);
}

/* Also how many sums a buffer has over a group: one; over kv two, as weights and biases of k and v are not neighbours.
 */
static void check_program(const ndp_program *p, const char *text) {
    sum_call calls[MOST_CALLS];
    int n = list_sums(p, calls);
    for (int i = 0; i < p->opts.model->n_buffers; i++) {
        const ndp_shard *s = &p->owned[i].shard;
        ndp_piece piece;
        for (int c = 0; ndp_segments_piece(&p->opts.model->buffers[i].segments, s->shards, s->index, &c, &piece);)
            for (int kind = 0; kind < NDP_GROUPS; kind++) {
                bool several = ndp_mesh_group(&p->opts.step.mesh, (ndp_group_kind)kind).count > 1;
                check_piece(calls, n, i, &piece, (ndp_group_kind)kind,
                            several && piece.segment->sums & NDP_GROUP_BIT(kind), text);
            }
        for (int kind = 0; kind < NDP_GROUPS; kind++) {
            int sums = 0;
            for (int k = 0; k < n; k++)
                sums += calls[k].buffer == i && (int)calls[k].group == kind;
            if (sums > 1 + (kind == NDP_GROUP_KV))
                fail_msg("%s: %s is summed over %s in %d operations", text, p->opts.model->buffers[i].name,
                         ndp_group_name((ndp_group_kind)kind), sums);
        }
    }
}

static void check_layout(const ndp_model *m, const int size[6], bool whole_rows) {
    static const ndp_exec exec = {.device = &ndp_device_null, .threads = 1};
    static const int two[] = {0, 2, 4};
    ndp_pipeline table;
    ndp_mesh_facts facts = {.kv_heads = ndp_model_kv_heads(m)};
    ndp_layout layout = NDP_LAYOUT_ONE;
    char text[200], of[160];
    memcpy(layout.size, size, 6 * sizeof *size);
    CHECK_OK(ndp_pipeline_make(NDP_PIPELINE_1F1B, 2, 1, 2, &table));
    ndp_engine_opts o = {
        .model = m,
        .step = {
            .exec = &exec, .parallel = NDP_PARALLEL_INIT, .accumulation = 2, .node_ranks = 1, .reduce_once = true}};
    o.step.parallel.tp_sequence_parallel = !whole_rows;
    if (size[NDP_PP] > 1)
        o.step.stages = (ndp_stages){2, two, table.rank_of}, o.pipeline = &table;
    CHECK_OK(ndp_stages_ties(m, &o.step.stages, &facts.ties));
    for (int rank = 0, world = 1; rank < world; rank++) {
        ndp_engine *e;
        CHECK_OK(ndp_mesh_init(&layout, rank, &facts, &o.step.mesh));
        world = o.step.mesh.world;
        CHECK_OK(ndp_engine_create(&o, &e));
        snprintf(text, sizeof text, "%s, %s%s, rank %d", m->architecture->name, ndp_layout_text(&layout, of, sizeof of),
                 whole_rows ? ", whole rows" : "", rank);
        check_program(ndp_engine_program(e), text);
        ndp_engine_destroy(e);
    }
    ndp_pipeline_release(&table);
}

/* Biases and norms of all kinds; 2 kv heads on 4 ranks. */
static void every_segment_is_summed_over_its_groups(void **state) {
    static const char *const configs[] = {
        TINY("llama", "\"head_dim\": 6, \"attention_bias\": true, \"mlp_bias\": true"),
        TINY("qwen2", "\"head_dim\": 6, \"tie_word_embeddings\": true"),
        TINY("qwen3", "\"head_dim\": 6"),
        TINY("olmo2", "\"head_dim\": 6, \"attention_bias\": true"),
        TINY("stablelm", "\"partial_rotary_factor\": 0.7, \"use_qkv_bias\": true, \"use_parallel_residual\": true"),
        TINY_GPT2};
    static const int sizes[][6] = {{1, 1, 1, 1, 1, 2}, {1, 2, 3, 1, 1, 4}, {2, 1, 2, 1, 1, 4},
                                   {2, 1, 1, 1, 1, 1}, {1, 2, 2, 2, 1, 1}, {2, 2, 1, 1, 1, 2}};
    (void)state;
    for (int c = 0; c < NDP_COUNT(configs); c++) {
        ndp_model_opts mo = tiny_opts(NDP_F32, 16);
        ndp_facts f;
        ndp_model m;
        CHECK_OK(ndp_facts_parse_text(configs[c], "config", &f));
        CHECK_OK(ndp_decoder_build(&f, &mo, &m));
        for (int i = 0; i < NDP_COUNT(sizes); i++)
            for (int whole_rows = 0; whole_rows < 2; whole_rows++)
                check_layout(&m, sizes[i], whole_rows);
        ndp_model_release(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_segment_is_summed_over_its_groups)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
