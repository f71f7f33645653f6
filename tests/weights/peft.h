/* Training an adapter beside a model of tests/golden, against what PEFT computed (tests/golden/README.md). */
#ifndef TESTS_WEIGHTS_PEFT_H
#define TESTS_WEIGHTS_PEFT_H

#include "ops/devices.h"
#include "pipeline/pipeline.h"
#include "train/golden_logits.h"
#include "weights/adapter_config.h"

/* Bounds, relative: of the first loss and gradients, of later losses and norms, of each factor at the end. */
typedef struct peft_bounds {
    double loss, grad, losses, norms, final;
} peft_bounds;

/* One run: the base, the adapter that it starts from, what PEFT got. */
typedef struct peft_run {
    const golden *base; /* ids and labels; its updates are taken in turn */
    const char *name, *adapter;
    ndp_adapter_config config;
    ndp_safetensors *expected;
    const char *prefix;  /* of names in `expected` */
    ndp_packing packing; /* of the base's projections */
    bool pp;             /* in two stages of a pipeline */
    int ep;              /* ranks that share experts; 0: one */
    int64_t updates;
    double *losses, *norms;
    const ndp_model *model;
    const ndp_device *device;
    peft_bounds bounds;
    ndp_layout layout;
    int world;                                 /* its ranks */
    ndp_run_visitor *check_grad, *check_final; /* of a run of elements; user: the peft_run */
    double worst[2];                           /* of gradients, of factors: the farthest off, of its norm */
    double worst_loss;                         /* relative */
    int64_t compared;                          /* elements of gradients */
    struct peft_run *ranks;                    /* what each rank found */
} peft_run;

static inline void peft_open(peft_run *r, const golden *base, const char *adapter) {
    *r = (peft_run){.base = base, .adapter = adapter};
    CHECK_OK(ndp_adapter_config_read(adapter, &r->config));
    for (int i = 0; i < r->config.parameters.n; i++)
        CHECK_OK(ndp_strings_add(&r->config.targets, r->config.parameters.items[i]));
}

static inline ndp_adapter peft_adapter(const peft_run *r) {
    return (ndp_adapter){.r = r->config.r,
                         .scale = ndp_adapter_config_scale(&r->config),
                         .form = r->config.form,
                         .targets = (const char *const *)r->config.targets.items,
                         .n_targets = r->config.targets.n,
                         .save = (const char *const *)r->config.save.items,
                         .n_save = r->config.save.n};
}

/* An expected tensor, PREFIX + KIND + NAME; the caller frees it. */
static inline double *peft_expected(const peft_run *r, const char *kind, const char *name, int64_t *n) {
    char full[512];
    snprintf(full, sizeof full, "%s%s%s", r->prefix ? r->prefix : "", kind, name);
    const ndp_tensor_entry *t = ndp_safetensors_find(r->expected, full);
    if (!t)
        fail_msg("%s: there is no %s", r->name, full);
    double *x = malloc((size_t)t->elements * sizeof *x);
    CHECK_OK(ndp_safetensors_read(r->expected, t, 0, t->elements, x, NDP_F64, true));
    if (n)
        *n = t->elements;
    return x;
}

static inline ndp_status peft_number(const peft_run *r, const char *what, int64_t update, double have, double want,
                                     double bound) {
    double off = fabs(have / want - 1);
    return off <= bound ? NDP_OK
                        : NDP_FAIL(NDP_EBUG, "%s update %d: %s %.12g, expected %.12g, off by %.3g", r->name,
                                   (int)update, what, have, want, off);
}

/* This rank's elements of a tensor against the expected ones, by the norm of the whole tensor. */
static inline ndp_status peft_compare(const peft_run *r, const char *kind, const ndp_owned_run *run, double bound,
                                      double *worst) {
    const ndp_run *p = &run->run;
    int64_t n;
    double *want = peft_expected(r, kind, p->segment->name, &n), norm = 0, distance = 0;
    double *have = malloc((size_t)p->count * sizeof *have);
    CHECK_OK(ndp_run_get(run, 0, p->count, have, NDP_F64));
    for (int64_t i = 0; i < n; i++)
        norm += want[i] * want[i];
    for (int64_t i = 0; i < p->count; i++)
        distance += pow(have[i] - want[p->tensor_first + i], 2);
    double off = sqrt(distance / norm);
    free(want);
    free(have);
    *worst = fmax(*worst, off);
    return off <= bound ? NDP_OK
                        : NDP_FAIL(NDP_EBUG, "%s: %s%s is off by %.3g of its norm %.3g", r->name, kind,
                                   p->segment->name, off, sqrt(norm));
}

static inline bool peft_is_factor(const ndp_owned_run *run) {
    return ndp_factor_of(run->run.segment->name) != NDP_NO_FACTOR;
}

static inline ndp_status peft_check_grad(void *user, const ndp_owned_run *run) {
    peft_run *r = user;
    r->compared += peft_is_factor(run) ? run->run.count : 0;
    return peft_is_factor(run) ? peft_compare(r, "grad.", run, r->bounds.grad, &r->worst[0]) : NDP_OK;
}

static inline ndp_status peft_train(peft_run *r, ndp_engine *e, int64_t rank, int64_t ranks) {
    const golden *g = r->base;
    const peft_bounds *b = &r->bounds;
    NDP_TRY(ndp_weights_start(e, &(ndp_weight_sources){.folder = g->folder, .adapter = r->adapter}));
    for (int64_t u = 0; u < r->updates; u++) {
        ndp_step_result result;
        for (int64_t m = 0; m < g->samples / ranks; m++) {
            int64_t at = (u % g->updates * g->samples + m * ranks + rank) * g->length;
            NDP_TRY(ndp_engine_load(e, (int)m, &(ndp_micro_batch){.tokens = g->ids + at, .labels = g->labels + at}));
        }
        NDP_TRY(ndp_engine_step(e, 1e-3, u, true, &result));
        r->worst_loss = fmax(r->worst_loss, fabs(result.loss / r->losses[u] - 1));
        NDP_TRY(peft_number(r, "loss", u, result.loss, r->losses[u], u ? b->losses : b->loss));
        NDP_TRY(peft_number(r, "grad_norm", u, result.grad_norm, r->norms[u], b->norms));
        if (u == 0 && r->check_grad)
            NDP_TRY(ndp_engine_runs(e, NDP_OWNED_GRAD, r->check_grad, r));
    }
    return r->check_final ? ndp_engine_runs(e, NDP_OWNED_MASTER, r->check_final, r) : NDP_OK;
}

static inline ndp_status peft_body(ndp_transport *t, void *arg) {
    peft_run *all = arg, r = *all;
    int rank = ndp_transport_rank(t), first[3] = {0, r.model->n_units / 2, r.model->n_units};
    ndp_pipeline table = {0};
    const ndp_exec exec = {.device = r.device, .threads = 1, .share = true};
    ndp_engine_opts o = {
        .model = r.model,
        .step =
            {.parallel = NDP_PARALLEL_INIT,
             .exec = &exec,
             .reshard = true,
             .optimizer = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .weight_decay = 0.1, .max_norm = 1.0}},
        .transport = t};
    NDP_TRY(ndp_mesh_init(&r.layout, rank, &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(r.model)}, &o.step.mesh));
    ndp_group data = ndp_mesh_group(&o.step.mesh, NDP_GROUP_DATA);
    o.step.accumulation = (int)r.base->samples / data.count;
    if (r.pp) {
        NDP_TRY(ndp_pipeline_make(NDP_PIPELINE_1F1B, 2, 1, o.step.accumulation, &table));
        o.step.stages = (ndp_stages){2, first, table.rank_of};
        o.pipeline = &table;
    }
    ndp_engine *e;
    NDP_TRY(ndp_engine_create(&o, &e));
    ndp_status st = peft_train(&r, e, data.rank, data.count);
    ndp_engine_destroy(e);
    ndp_pipeline_release(&table);
    all->ranks[rank] = r;
    return st;
}

/* Trains on dp_replicate x dp_shard x cp x sp x tp ranks, and pp stages. */
static inline ndp_status peft_try(peft_run *r, ndp_dtype type, const ndp_device *device, const peft_bounds *bounds,
                                  const int size[5]) {
    ndp_model_opts mo = golden_opts(r->base, NDP_MODEL_TRAIN, type);
    ndp_model m;
    peft_run ranks[16] = {{0}};
    r->layout = (ndp_layout)NDP_LAYOUT_ONE;
    r->layout.size[NDP_EP] = r->ep ? r->ep : 1;
    r->world = r->layout.size[NDP_PP] = r->pp ? 2 : 1;
    mo.adapter = peft_adapter(r);
    mo.base = r->packing;
    CHECK_OK(ndp_decoder_build(&r->base->facts, &mo, &m));
    r->model = &m, r->device = device, r->bounds = *bounds, r->ranks = ranks;
    r->worst[0] = r->worst[1] = r->worst_loss = 0, r->compared = 0;
    for (int k = 0; k < 5; k++)
        r->world *= r->layout.size[NDP_DP_REPLICATE + k] = size[k];
    assert_true(r->world <= NDP_COUNT(ranks));
    ndp_status st = ndp_local_world(r->world, peft_body, r);
    for (int i = 0; i < r->world; i++) {
        r->worst[0] = fmax(r->worst[0], ranks[i].worst[0]), r->worst[1] = fmax(r->worst[1], ranks[i].worst[1]);
        r->worst_loss = fmax(r->worst_loss, ranks[i].worst_loss);
        r->compared += ranks[i].compared;
    }
    ndp_model_release(&m);
    return st;
}

static inline void peft_check(peft_run *r, ndp_dtype type, const ndp_device *device, const peft_bounds *bounds,
                              const int size[5]) {
    CHECK_OK(peft_try(r, type, device, bounds, size));
    printf("%-17s %-4s %d rank%s: a loss is off by %.2g", r->name, ndp_dtype_name(type), r->world,
           r->world > 1 ? "s" : " ", r->worst_loss);
    if (r->check_grad)
        printf(", a gradient by %.2g of its norm", r->worst[0]);
    if (r->check_final)
        printf(", a factor by %.2g", r->worst[1]);
    printf("\n");
}

static inline void peft_close(peft_run *r) {
    ndp_safetensors_close(r->expected);
    ndp_adapter_config_release(&r->config);
    free(r->losses);
    free(r->norms);
}

#endif
