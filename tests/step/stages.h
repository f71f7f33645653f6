/* A tiny model on stages of a pipeline, planned for every rank on the device null. */
#ifndef TESTS_STEP_STAGES_H
#define TESTS_STEP_STAGES_H

#include "check.h"
#include "step/tiny.h"

enum { STAGES_RANKS = 8, MOST_CHUNKS = 3 };

/* How it is planned: `kind` on `pp` ranks x dp_shard. */
typedef struct staged_way {
    ndp_pipeline_kind kind;
    int pp, chunks, shard, micro_batches;
    bool tied;
    const char *table;  /* a CSV instead of `kind` and `chunks`; NULL: none */
    const char *config; /* config.json of another model than the tiny Llama; NULL: none */
    ndp_dtype compute;  /* NDP_F32 is 0 */
} staged_way;

static const ndp_exec staged_exec = {.device = &ndp_device_null, .threads = 1};

typedef struct staged {
    ndp_model model;
    ndp_pipeline pipeline;
    ndp_stages stages;
    int first[MOST_CHUNKS * STAGES_RANKS + 1], ranks;
    ndp_engine_opts opts;
    ndp_engine *engines[STAGES_RANKS];
    const ndp_program *programs[STAGES_RANKS];
} staged;

/* Stages of one layer each; the first also has the embedding, the last one the head. All but the mesh and the
 * transport of a rank. */
static inline void staged_init(staged *s, const staged_way *w) {
    ndp_facts f = tiny_facts(w->tied);
    if (w->config)
        CHECK_OK(ndp_facts_parse_text(w->config, "config", &f));
    ndp_model_opts mo = tiny_opts(w->compute, 12);
    *s = (staged){.ranks = w->pp * w->shard};
    if (w->table)
        CHECK_OK(ndp_pipeline_parse(w->table, strlen(w->table), "table", w->micro_batches, &s->pipeline));
    else
        CHECK_OK(ndp_pipeline_make(w->kind, w->pp, w->chunks, w->micro_batches, &s->pipeline));
    f.layers = s->pipeline.stages;
    CHECK_OK(ndp_decoder_build(&f, &mo, &s->model));
    s->first[s->pipeline.stages] = s->model.n_units;
    for (int i = 1; i < s->pipeline.stages; i++)
        s->first[i] = 1 + i;
    s->stages = (ndp_stages){s->pipeline.stages, s->first, s->pipeline.rank_of};
    s->opts = (ndp_engine_opts){
        .model = &s->model,
        .step =
            {.parallel = NDP_PARALLEL_INIT,
             .exec = &staged_exec,
             .accumulation = w->micro_batches,
             .node_ranks = 1,
             .reduce_once = true,
             .stages = s->stages,
             .optimizer = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .weight_decay = 0.1, .max_norm = 1.0}},
        .pipeline = &s->pipeline};
}

static inline void staged_mesh(const staged *s, const staged_way *w, int rank, ndp_mesh *out) {
    ndp_layout layout = NDP_LAYOUT_ONE;
    layout.size[NDP_PP] = w->pp, layout.size[NDP_DP_SHARD] = w->shard;
    ndp_mesh_facts facts = {.kv_heads = ndp_model_kv_heads(&s->model)};
    CHECK_OK(ndp_stages_ties(&s->model, &s->stages, &facts.ties));
    CHECK_OK(ndp_mesh_init(&layout, rank, &facts, out));
}

/* `own`: schedules of the ranks instead of the pipeline's; NULL: none. */
static inline void staged_plan(staged *s, const staged_way *w, const ndp_schedule *own) {
    staged_init(s, w);
    for (int r = 0; r < s->ranks; r++) {
        ndp_engine_opts o = s->opts;
        if (own)
            o.pipeline = NULL, o.step.schedule = &own[r];
        staged_mesh(s, w, r, &o.step.mesh);
        CHECK_OK(ndp_engine_create(&o, &s->engines[r]));
        s->programs[r] = ndp_engine_program(s->engines[r]);
    }
}

static inline void staged_release(staged *s) {
    for (int r = 0; r < s->ranks; r++)
        ndp_engine_destroy(s->engines[r]);
    ndp_pipeline_release(&s->pipeline);
    ndp_model_release(&s->model);
}

#endif
