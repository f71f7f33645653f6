/* What tests of pipelines share: a tiny model with one decoder layer a stage, the engines of a schedule's ranks, and
 * costs that make all stages equal. */
#ifndef TESTS_STEP_PIPELINES_H
#define TESTS_STEP_PIPELINES_H

#include "check.h"
#include "step/simulate.h"
#include "step/tiny.h"

enum { PIPELINE_RANKS = 16 };

typedef struct pipeline_setup {
    ndp_model model;
    ndp_pipeline table;
    int *first; /* of ndp_stages */
    ndp_layout layout;
    bool recompute;
    ndp_exec exec; /* on `null` */
    ndp_engine_opts opts;
    ndp_engine *engines[PIPELINE_RANKS];
    const ndp_program *programs[PIPELINE_RANKS];
    ndp_folding_rule fold;
} pipeline_setup;

/* Options of one rank: the setup's with its mesh. */
static inline ndp_engine_opts pipeline_opts(const pipeline_setup *s, int rank) {
    ndp_engine_opts o = s->opts;
    ndp_mesh_facts facts = {.kv_heads = ndp_model_kv_heads(&s->model)};
    CHECK_OK(ndp_stages_ties(&s->model, &o.step.stages, &facts.ties));
    CHECK_OK(ndp_mesh_init(&s->layout, rank, &facts, &o.step.mesh));
    return o;
}

/* Options for `s->table`, `s->model` and the stages that begin at the units `s->first`, on no other axis. `max_norm` 0:
 * no gradient norm. */
static inline void pipeline_take(pipeline_setup *s, double max_norm) {
    s->layout = (ndp_layout)NDP_LAYOUT_ONE;
    s->layout.size[NDP_PP] = s->table.ranks;
    s->exec = (ndp_exec){.device = &ndp_device_null, .threads = 1};
    s->opts = (ndp_engine_opts){
        .model = &s->model,
        .step = {.parallel = NDP_PARALLEL_INIT,
                 .stages = {s->table.stages, s->first, s->table.rank_of},
                 .exec = &s->exec,
                 .node_ranks = 1,
                 .accumulation = s->table.micro_batches,
                 .reduce_once = true,
                 .recompute = s->recompute,
                 .fold = s->fold,
                 .optimizer = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .max_norm = max_norm}},
        .pipeline = &s->table};
}

static inline int pipeline_world(const pipeline_setup *s) {
    int ranks = 1;
    for (int axis = 0; axis < NDP_AXES; axis++)
        ranks *= s->layout.size[axis];
    return ranks;
}

/* The engines of all ranks. */
static inline void pipeline_engines(pipeline_setup *s) {
    for (int r = 0; r < pipeline_world(s); r++) {
        ndp_engine_opts o = pipeline_opts(s, r);
        CHECK_OK(ndp_engine_create(&o, &s->engines[r]));
        s->programs[r] = ndp_engine_program(s->engines[r]);
    }
}

/* A decoder layer in each stage; the first also has the embedding, the last one the head. */
static inline void pipeline_cut(pipeline_setup *s) {
    s->first = calloc((size_t)s->table.stages + 1, sizeof *s->first);
    for (int i = 1; i < s->table.stages; i++)
        s->first[i] = 1 + i;
    s->first[s->table.stages] = s->model.n_units;
}

/* A tiny model for `s->table`, with a decoder layer in each stage. */
static inline void pipeline_build(pipeline_setup *s, int64_t rows, double max_norm) {
    ndp_facts f = tiny_facts(false);
    ndp_model_opts mo = tiny_opts(NDP_F32, rows);
    f.layers = s->table.stages;
    CHECK_OK(ndp_decoder_build(&f, &mo, &s->model));
    pipeline_cut(s);
    pipeline_take(s, max_norm);
    pipeline_engines(s);
}

static inline void pipeline_begin(pipeline_setup *s, ndp_pipeline_kind kind, int ranks, int virtual_stages,
                                  int micro_batches) {
    *s = (pipeline_setup){0};
    CHECK_OK(ndp_pipeline_make(kind, ranks, virtual_stages, micro_batches, &s->table));
    pipeline_build(s, 24, 1.0);
    CHECK_OK(ndp_program_check(s->programs, ranks));
}

static inline void pipeline_end(pipeline_setup *s) {
    for (int r = 0; r < pipeline_world(s); r++)
        ndp_engine_destroy(s->engines[r]);
    ndp_model_release(&s->model);
    ndp_pipeline_release(&s->table);
    free(s->first);
}

/* Seconds of a stage for one micro-batch, at the first call of each list; embedding, head, update and collectives cost
 * nothing. A backward is both gradients of a unit after the other, and the program sends the input gradient before the
 * weight gradient of the stage's first unit. Theory has one backward whose result leaves at its end: `whole`. */
typedef struct stage_costs {
    double forward, input_gradient, weight_gradient, message;
    bool whole;
} stage_costs;

/* True if the action that a run is a part of also has runs of `phase`. */
static inline bool action_has(const ndp_program *p, const ndp_instr *run, ndp_phase phase) {
    for (int i = 0; i < p->n; i++)
        if (p->instrs[i].code == NDP_DO_RUN && p->instrs[i].entry == run->entry && p->instrs[i].phase == phase)
            return true;
    return false;
}

static inline double stage_seconds(const void *user, const ndp_program *p, const ndp_instr *in, const ndp_call *call) {
    const stage_costs *c = user;
    if (call->kind == NDP_CALL_BEGIN)
        return call->op->collective == NDP_SEND || call->op->collective == NDP_RECV ? c->message : 0;
    if (in->code == NDP_DO_CALL || call != ndp_program_list(p, in)->calls)
        return 0;
    int number = p->opts.model->units[in->unit].number; /* 0: the embedding, then the layers, then the head */
    if (number == 0 || number >= p->opts.whole->n_units - 1)
        return 0;
    if (in->phase == NDP_BACKWARD_INPUT)
        return c->input_gradient + (c->whole && action_has(p, in, NDP_BACKWARD_WEIGHT) ? c->weight_gradient : 0);
    if (in->phase == NDP_BACKWARD_WEIGHT)
        return c->whole && action_has(p, in, NDP_BACKWARD_INPUT) ? 0 : c->weight_gradient;
    return c->forward;
}

#endif
