/* Tables that two stages of a pipeline share: any number of them, on any pairs of ranks. The gradient of each is the
 * sum of what its two stages make, so gradients, norms and weights are those of one rank. */
#include "model/conv_model.h"
#include "step/layouts.h"

enum { STAGES = 3, MICRO_BATCHES = 4, UPDATES = 2 };

/* The convolutional model on three stages: table and block 0, block 1, block 2 and head. Ranks 0 and 2 share the table;
 * block `second` has the parameters of block `first`. */
typedef struct tied {
    int first, second; /* equal: each block has its own */
    int size[5];       /* dp_replicate, dp_shard, cp, sp, tp */
} tied;

typedef struct tied_job {
    const ndp_model *model;
    const tied *how;
    bool stages; /* false: one rank */
    result *out;
} tied_job;

static void build(const tied *how, ndp_model *m) {
    conv_model(NDP_F64, ROWS, m);
    m->units[1 + how->second].buffers[0] = 1 + how->first;
}

/* Copies what this rank owns to its place in the whole model. */
static void collect_named(const tied_job *j, ndp_engine *e, ndp_owned_kind kind, double *whole) {
    const ndp_model *m = ndp_engine_model(e);
    for (int i = 0; i < m->n_buffers; i++) {
        const ndp_segments *segments = &m->buffers[i].segments;
        const ndp_shard *s = ndp_engine_shard(e, i);
        int64_t base = 0;
        int of = 0;
        for (; strcmp(j->model->buffers[of].name, m->buffers[i].name) != 0; of++)
            base += j->model->buffers[of].segments.elements;
        ndp_run p;
        for (int64_t at = 0; ndp_segments_run(segments, s->shards, s->index, &at, &p);) {
            int64_t to = base + j->model->buffers[of].segments.items[p.segment - segments->items].offset;
            bool writes = !p.segment->replica && ndp_engine_program(e)->opts.step.mesh.coord[NDP_DP_REPLICATE] == 0;
            if (writes)
                CHECK_OK(ndp_engine_read(e, kind, i, p.slice_first, p.count, p.stride, whole + to + p.tensor_first));
        }
    }
}

static ndp_status train(ndp_transport *t, void *arg) {
    const tied_job *j = arg;
    static const int first[] = {0, 2, 3, 5};
    const ndp_exec exec = {.device = &ndp_device_ref, .threads = 1};
    ndp_pipeline table;
    ndp_engine *e;
    ndp_layout layout = NDP_LAYOUT_ONE;
    ndp_mesh_facts facts = {0};
    int data = j->stages ? j->how->size[0] * j->how->size[1] : 1;
    NDP_TRY(ndp_pipeline_make(NDP_PIPELINE_1F1B, STAGES, 1, MICRO_BATCHES / data, &table));
    ndp_engine_opts o = {
        .model = j->model,
        .transport = t,
        .step = {.exec = &exec,
                 .parallel = {.cp_zigzag = true},
                 .accumulation = MICRO_BATCHES / data,
                 .reshard = true,
                 .reduce_once = true,
                 .optimizer = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .max_norm = 1.0}}};
    if (j->stages) {
        o.step.stages = (ndp_stages){STAGES, first, table.rank_of}, o.pipeline = &table;
        layout.size[NDP_PP] = STAGES;
        memcpy(layout.size + NDP_DP_REPLICATE, j->how->size, sizeof j->how->size);
        NDP_TRY(ndp_stages_ties(j->model, &o.step.stages, &facts.ties));
    }
    NDP_TRY(ndp_mesh_init(&layout, ndp_transport_rank(t), &facts, &o.step.mesh));
    NDP_TRY(ndp_engine_create(&o, &e));
    tiny_fill(e);
    for (int u = 0; u < UPDATES; u++) {
        ndp_step_result r;
        for (int m = 0; m < o.step.accumulation; m++)
            tiny_batch(e, m, m * data + ndp_mesh_group(&o.step.mesh, NDP_GROUP_DATA).rank);
        NDP_TRY(ndp_engine_step(e, 1e-2, u, true, &r));
        if (ndp_transport_rank(t) == 0)
            j->out->loss[u] = r.loss, j->out->norm[u] = r.grad_norm;
        if (u == 0)
            collect_named(j, e, NDP_OWNED_GRAD, j->out->grads);
    }
    collect_named(j, e, NDP_OWNED_MASTER, j->out->weights);
    ndp_engine_destroy(e);
    ndp_pipeline_release(&table);
    return NDP_OK;
}

static result run_tied(const ndp_model *m, const tied *how, bool stages) {
    size_t n = (size_t)model_elements(m);
    result r = {.grads = calloc(n, sizeof(double)), .weights = calloc(n, sizeof(double))};
    int world = stages ? STAGES : 1;
    for (int i = 0; stages && i < 5; i++)
        world *= how->size[i];
    CHECK_OK(ndp_local_world(world, train, &(tied_job){m, how, stages, &r}));
    return r;
}

static void check_close(const char *what, const tied *how, double got, double want) {
    if (!(fabs(got - want) <= 1e-11 * (1 + fabs(want))))
        fail_msg("blocks %d and %d, dp %d x %d, tp %d: %s is %.17g, %.17g on one rank", how->first, how->second,
                 how->size[0], how->size[1], how->size[4], what, got, want);
}

static void check_way(const tied *how) {
    ndp_model m;
    build(how, &m);
    result one = run_tied(&m, how, false), all = run_tied(&m, how, true);
    for (int u = 0; u < UPDATES; u++) {
        check_close("a loss", how, all.loss[u], one.loss[u]);
        check_close("a norm", how, all.norm[u], one.norm[u]);
    }
    for (int64_t i = 0; i < model_elements(&m); i++) {
        check_close("a gradient", how, all.grads[i], one.grads[i]);
        check_close("a weight", how, all.weights[i], one.weights[i]);
    }
    assert_true(one.norm[0] > 0);
    release(&one);
    release(&all);
    ndp_model_release(&m);
}

/* Blocks 0 and 1: ranks 0 and 1 are a second pair, which has rank 0 in common with that of the table. Blocks 1 and 2:
 * rank 2. Blocks 0 and 2: the same pair has two tables. */
static void any_pairs_of_stages_share_tables(void **state) {
    static const int sizes[][5] = {{1, 1, 1, 1, 1}, {1, 2, 1, 1, 1}, {2, 1, 1, 1, 1}, {1, 1, 1, 1, 2}, {2, 2, 1, 1, 1}};
    (void)state;
    for (int i = 0; i < NDP_COUNT(sizes); i++)
        for (int a = 0; a < CONV_BLOCKS; a++)
            for (int b = a + (a > 0); b < CONV_BLOCKS; b++) {
                tied how = {.first = a, .second = b};
                memcpy(how.size, sizes[i], sizeof how.size);
                check_way(&how);
            }
}

/* ---- what a mesh has no groups for ---- */

static void too_many_sharers_are_refused(void **state) {
    (void)state;
    static const int first[] = {0, 2, 3, 5}, five[] = {0, 1, 2, 3, 4, 5}, rank_of[] = {0, 1, 2, 3, 4};
    const ndp_stages three = {3, first, rank_of}, all = {5, five, rank_of};
    ndp_ties ties;
    ndp_model m;
    conv_model(NDP_F32, ROWS, &m);
    CHECK_OK(ndp_stages_ties(&m, &three, &ties));
    const ndp_ties table = {{{0, 2}}};
    assert_memory_equal(&ties, &table, sizeof ties);
    m.units[2].buffers[0] = m.units[3].buffers[0] = 1;
    CHECK_FAILS(ndp_stages_ties(&m, &three, &ties), NDP_ENOTSUP,
                "blocks.0 is used by more than two ranks of the pipeline");
    /* a unit and the next have a buffer in common: pairs (0, 4), (1, 2), (2, 3), and then (3, 4) */
    for (int u = 1; u < 4; u++)
        m.units[u].buffers[0] = u, m.units[u].buffers[1] = u < 3 ? u + 1 : NDP_NONE;
    CHECK_OK(ndp_stages_ties(&m, &all, &ties));
    const ndp_ties pairs = {{{0, 4}, {1, 2}, {2, 3}}};
    assert_memory_equal(&ties, &pairs, sizeof ties);
    m.units[3].buffers[1] = 4;
    CHECK_FAILS(ndp_stages_ties(&m, &all, &ties), NDP_ENOTSUP,
                "ranks 3 and 4 of the pipeline share head; 3 other pairs share tables, and no more can");
    ndp_model_release(&m);
}

/* The mesh was made for stages that share nothing. */
static void a_mesh_for_other_stages_is_refused(void **state) {
    (void)state;
    static const int first[] = {0, 2, 3, 5}, rank_of[] = {0, 1, 2};
    const ndp_stages three = {3, first, rank_of};
    const ndp_parallel how = NDP_PARALLEL_INIT;
    ndp_layout layout = NDP_LAYOUT_ONE;
    ndp_model m, local;
    ndp_mesh mesh;
    layout.size[NDP_PP] = 3;
    conv_model(NDP_F32, ROWS, &m);
    CHECK_OK(ndp_mesh_init(&layout, 0, NDP_NO_MODEL, &mesh));
    CHECK_FAILS(ndp_parallel_apply(&m, &mesh, &how, &three, &local), NDP_EBUG,
                "the mesh has no group of the ranks of the pipeline that share table");
    ndp_model_release(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_pairs_of_stages_share_tables),
                                       cmocka_unit_test(too_many_sharers_are_refused),
                                       cmocka_unit_test(a_mesh_for_other_stages_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
