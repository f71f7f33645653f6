/* What tests of layouts share: an engine on `local` whose model runs on any product of the axes, and the comparison
 * with one rank. */
#ifndef TESTS_STEP_LAYOUTS_H
#define TESTS_STEP_LAYOUTS_H

#include "base/cpu.h"
#include "guarded.h"
#include "step/tiny.h"
#include <math.h>

enum { ROWS = 13, SAMPLES = 12 }; /* of a micro-batch; micro-batches of an update, over all ranks */

typedef struct result {
    double loss[3], norm[3];
    double *grads, *weights, *drawn; /* whole, all buffers one after the other; drawn: the weights before the first */
} result;

/* How a world runs. */
typedef struct way {
    int size[5]; /* dp_replicate, dp_shard, cp, sp, tp */
    int ep;      /* 0: 1 */
    int samples; /* 0: SAMPLES */
    bool reshard, gathered, unclipped, staged;
    ndp_recompute recompute;
    ndp_parallel parallel;
    ndp_optimizer_name optimizer;
    const ndp_update_entry *entries; /* of groups; the model says which tensors they name */
    int n_entries;
    void (*fill)(ndp_engine *e); /* NULL: tiny_fill */
} way;

typedef struct job {
    const ndp_model *model;
    const ndp_device *device;
    const way *way;
    result *out;
} job;

static inline int64_t model_elements(const ndp_model *m) {
    int64_t n = 0;
    for (int i = 0; i < m->n_buffers; i++)
        n += m->buffers[i].segments.elements;
    return n;
}

/* Copies what this rank owns to its place in a whole array; one of several who own the same. */
static inline void collect(const job *j, ndp_engine *e, ndp_owned_kind kind, double *whole) {
    int64_t base = 0;
    const ndp_model *m = ndp_engine_model(e);
    for (int i = 0; i < m->n_buffers; i++) {
        const ndp_segments *segments = &m->buffers[i].segments, *all = &j->model->buffers[i].segments;
        const ndp_shard *s = ndp_engine_shard(e, i);
        ndp_run p;
        for (int64_t at = 0; ndp_engine_has(e, kind, i) && ndp_segments_run(segments, s->shards, s->index, &at, &p);) {
            int64_t first = p.segment - segments->items; /* parts of a fused tensor stand together, from its first on */
            while (ndp_segment_continues(&all->items[first]))
                first--;
            if (p.segment->replica || ndp_engine_program(e)->opts.step.mesh.coord[NDP_DP_REPLICATE] != 0)
                continue;
            double *values = malloc((size_t)p.count * sizeof *values);
            CHECK_OK(ndp_engine_read(e, kind, i, p.slice_first, p.count, p.stride, values));
            const ndp_segment *tensor = &all->items[first]; /* members of a pattern follow each other */
            int64_t member = p.segment->stack_first + p.member;
            int64_t in_stack = ndp_segment_tensors(tensor) > 1 ? member * ndp_segment_tensor_elements(tensor) : 0;
            ndp_convert(values, ndp_engine_type(e, kind, i), whole + base + tensor->offset + in_stack + p.tensor_first,
                        NDP_F64, p.count);
            free(values);
        }
        base += all->elements;
    }
}

static inline ndp_layout layout_of(const way *w) {
    ndp_layout l = NDP_LAYOUT_ONE;
    memcpy(l.size + NDP_DP_REPLICATE, w->size, sizeof w->size);
    l.size[NDP_EP] = w->ep > 0 ? w->ep : 1;
    return l;
}

static inline ndp_status body(ndp_transport *t, void *arg) {
    const job *j = arg;
    const way *w = j->way;
    int data = w->size[0] * w->size[1], rank = ndp_transport_rank(t);
    const ndp_exec exec = {.device = j->device, .threads = 1, .share = true, .staged = w->staged};
    ndp_engine_opts o = {.model = j->model,
                         .transport = t,
                         .step = {.exec = &exec,
                                  .accumulation = (w->samples ? w->samples : SAMPLES) / data,
                                  .reshard = w->reshard,
                                  .recompute = w->recompute,
                                  .node_ranks = w->gathered ? 1 : ndp_transport_world(t),
                                  .parallel = w->parallel,
                                  .optimizer = {.name = w->optimizer,
                                                .betas = {0.9, 0.95},
                                                .eps = 1e-8,
                                                .momentum = 0.95,
                                                .weight_decay = 0.1,
                                                .entries = w->entries,
                                                .n_entries = w->n_entries,
                                                .max_norm = w->unclipped ? 0 : 1.0}}};
    ndp_layout layout = layout_of(w);
    NDP_TRY(ndp_mesh_init(&layout, rank, &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(o.model)}, &o.step.mesh));
    ndp_engine *e;
    NDP_TRY(ndp_engine_create(&o, &e));
    (w->fill ? w->fill : tiny_fill)(e);
    collect(j, e, NDP_OWNED_MASTER, j->out->drawn);
    ndp_status st = NDP_OK;
    for (int u = 0; u < 3 && st == NDP_OK; u++) {
        for (int m = 0; m < o.step.accumulation; m++)
            tiny_batch(e, m, m * data + ndp_mesh_group(&o.step.mesh, NDP_GROUP_DATA).rank);
        ndp_step_result r;
        st = ndp_engine_step(e, 1e-2, u, true, &r);
        if (rank == 0)
            j->out->loss[u] = r.loss, j->out->norm[u] = r.grad_norm;
        if (u == 0)
            collect(j, e, NDP_OWNED_GRAD, j->out->grads);
    }
    collect(j, e, NDP_OWNED_MASTER, j->out->weights);
    ndp_engine_destroy(e);
    return st;
}

static inline const char *recompute_text(ndp_recompute r) {
    static const char *const texts[] = {"", ", recompute", ", selective recompute"};
    return texts[r];
}

static inline const char *text_of(const way *w, char *out, size_t size) {
    char layout[160];
    ndp_layout l = layout_of(w);
    snprintf(out, size, "%s%s%s%s%s%s%s", ndp_layout_text(&l, layout, sizeof layout), w->reshard ? ", reshard" : "",
             recompute_text(w->recompute), w->gathered ? ", gathered" : "",
             w->parallel.tp_sequence_parallel ? "" : ", whole rows",
             w->parallel.cp_method == NDP_CP_ALL_GATHER ? ", cp all_gather" : "",
             w->parallel.cp_zigzag ? "" : ", contiguous");
    return out;
}

/* One rank runs on a guard; larger worlds (test_staged.c) are much slower there. */
static inline result run(const ndp_model *m, const ndp_device *device, const way *w) {
    int64_t n = model_elements(m);
    result r = {.grads = calloc((size_t)n, sizeof(double)),
                .weights = calloc((size_t)n, sizeof(double)),
                .drawn = calloc((size_t)n, sizeof(double))};
    char text[256];
    int world = 1;
    for (int i = 0; i < 5; i++)
        world *= w->size[i];
    job j = {m, world == 1 ? guarded(device) : device, w, &r};
    if (ndp_local_world(world, body, &j) != NDP_OK)
        fail_msg("%s: %s", text_of(w, text, sizeof text), ndp_error_message());
    if (j.device != device)
        unguard(j.device);
    return r;
}

static inline void release(result *r) {
    free(r->grads);
    free(r->weights);
    free(r->drawn);
}

/* Of gradients: those of step 1, a tensor by its norm and all by theirs. Of weights: all, after three updates. Loss and
 * norm: of the third. */
typedef struct bounds {
    double gradient, gradients, weights, loss, norm;
} bounds;
/* Every tensor by proof 3. All together by more than it asks, since they come nearer: of other families measured at
 * most 1.1e-6. Weights, of which it says nothing, by what Adam makes of gradients that are next to nothing. */
static const bounds exact = {1e-9, 1e-12, 1e-9, 1e-12, 1e-11}, single = {2e-5, 1e-6, 1e-3, 1e-6, 1e-5},
                    other_single = {2e-5, 3e-6, 1e-3, 2e-6, 3e-5};
/* Five roundings to 8 bits, one behind the other: sees what is missing or there twice. Proof 3 in bf16 is held to by
 * tests of the train room, which measure its bounds. */
/* Gradients are that near where kernels sum in AVX-512's 16 lanes. Below, in fewer, one rank's own are 2.8e-6 from
 * those of fp64 (of gemma2), and layouts up to 4.2e-6 from one rank's: 1.3e-6 of llama, 6.5e-6 where weights are int8.
 * Each tensor by itself is held to the same bound everywhere. */
static inline double lanes(const ndp_model *m) { return m->opts.compute == NDP_F32 && !ndp_cpu_has_avx512() ? 3 : 1; }
static const bounds half = {INFINITY, 2e-2, INFINITY, 2e-2, 2e-1};

static inline double distance(const double *a, const double *b, int64_t n) {
    double d = 0, norm = 0;
    for (int64_t i = 0; i < n; i++)
        d += (a[i] - b[i]) * (a[i] - b[i]), norm += b[i] * b[i];
    return d > 0 ? sqrt(d / norm) : 0;
}

/* The worst tensor of two whole arrays (parts of a fused one stand together). */
static inline double worst_tensor(const ndp_model *m, const double *a, const double *b, const char **name) {
    double worst = 0;
    int64_t base = 0;
    for (int i = 0; i < m->n_buffers; i++) {
        const ndp_segments *s = &m->buffers[i].segments;
        for (int k = 0, next; k < s->n; k = next) {
            for (next = k + 1; next < s->n && ndp_segment_continues(&s->items[next]);)
                next++;
            int64_t first = base + s->items[k].offset, end = base + (next < s->n ? s->items[next].offset : s->elements);
            double d = distance(a + first, b + first, end - first);
            if (!(d <= worst))
                worst = d, *name = s->items[k].name;
        }
        base += s->elements;
    }
    return worst;
}

static inline void compare(const ndp_model *m, const result *r, const result *one, const way *w, const bounds *most) {
    char text[256];
    const char *name = "";
    int64_t n = model_elements(m);
    bounds d = {worst_tensor(m, r->grads, one->grads, &name), distance(r->grads, one->grads, n),
                distance(r->weights, one->weights, n), fabs(r->loss[2] / one->loss[2] - 1),
                fabs(r->norm[2] / one->norm[2] - 1)};
    if (!(d.gradient <= most->gradient && d.gradients <= lanes(m) * most->gradients && d.weights <= most->weights &&
          d.loss <= most->loss && d.norm <= most->norm))
        fail_msg("%s %s: gradient %.3g (%s), gradients %.3g, weights %.3g, loss %.3g, norm %.3g", m->architecture->name,
                 text_of(w, text, sizeof text), d.gradient, name, d.gradients, d.weights, d.loss, d.norm);
}

/* Runs the model in that way and compares it with one rank. */
static inline void check_against(const ndp_model *m, const ndp_device *device, const way *w, const result *one,
                                 const bounds *most) {
    if (left_out())
        return;
    result r = run(m, device, w);
    compare(m, &r, one, w, most);
    release(&r);
}

#endif
