/* Numbers that not every step has: the planned memory by its classes, in the first line of a process, the loads of
 * mixtures, and the norm of each layer's gradient (train.layer_norms_every). */
#include "checkpoint/agree.h"
#include "train/loop.h"
#include "weights/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static void add_budget(const ndp_engine *e, ndp_named_number *out) {
    ndp_budget b;
    if (e)
        ndp_program_budget(ndp_engine_program(e), &b);
    for (int i = 0; e && i < NDP_MEM_CLASSES; i++)
        out[i].value += (double)b.class_bytes[i];
}

/* ---- layers ---- */

typedef struct norm_sums {
    const ndp_trainer *trainer;
    double *squares;      /* by unit of the whole model */
    double room[1 << 12]; /* elements that are read at once */
} norm_sums;

/* The first unit of the whole model that has the buffer: a tied table counts as the embedding's. */
static int unit_of(const ndp_trainer *t, int buffer) {
    const ndp_model *own = ndp_engine_model(t->engine);
    int unit = t->model.n_units - 1;
    for (int u = own->n_units - 1; u >= 0; u--)
        for (int slot = 0; slot < NDP_SLOTS; slot++)
            unit = own->units[u].buffers[slot] == buffer ? own->units[u].number : unit;
    return unit;
}

static ndp_status add_run(void *user, const ndp_owned_run *owned) {
    norm_sums *s = user;
    if (owned->run.segment->replica)
        return NDP_OK;
    double *sum = &s->squares[unit_of(s->trainer, owned->buffer)];
    for (int64_t at = 0, n; at < owned->run.count; at += n) {
        n = owned->run.count - at < NDP_COUNT(s->room) ? owned->run.count - at : NDP_COUNT(s->room);
        NDP_TRY(ndp_run_get(owned, at, n, s->room, NDP_F64));
        for (int64_t i = 0; i < n; i++)
            *sum += s->room[i] * s->room[i];
    }
    return NDP_OK;
}

/* Each element counts once: on one of the ranks that have it. */
static ndp_status measure_norms(ndp_training_loop *l, ndp_named_number *out) {
    ndp_trainer *t = l->trainer;
    int n = t->model.n_units;
    const ndp_mesh *mesh = &ndp_engine_program(t->engine)->opts.step.mesh;
    norm_sums *s = calloc(1, sizeof *s);
    double *squares = calloc((size_t)n, sizeof *squares);
    ndp_status st = NDP_MEMORY(s && squares, "for the norms of %d layers", n);
    if (st == NDP_OK && mesh->coord[NDP_DP_REPLICATE] == 0) {
        *s = (norm_sums){.trainer = t, .squares = squares};
        st = ndp_engine_runs(t->engine, NDP_OWNED_GRAD, add_run, s);
    }
    st = ndp_agree(t->rank.world, st);
    if (st == NDP_OK)
        st = ndp_reduce_now(t->rank.world, squares, n, NDP_F64, NDP_SUM);
    for (int i = 0; i < n && st == NDP_OK; i++)
        out[i].value = sqrt(squares[i]);
    free(squares);
    free(s);
    return st;
}

bool ndp_loop_measures_layers(const ndp_training_loop *l, int64_t step) {
    int every = l->config->train.layer_norms_every;
    return every > 0 && step % every == 0;
}

/* ---- a step ---- */

/* The numbers of a step are a stretch of l->more.all: memory, loads, norms. */
ndp_status ndp_loop_open_more(ndp_training_loop *l) {
    const ndp_model *m = &l->trainer->model;
    int norms = NDP_MEM_CLASSES + l->trainer->n_loads, n = norms + m->n_units;
    l->more.all = calloc((size_t)n, sizeof *l->more.all);
    for (int i = 0; i < n && l->more.all; i++) {
        const char *name = i < NDP_MEM_CLASSES ? ndp_memory_class_name((ndp_memory_class)i)
                           : i >= norms        ? m->units[i - norms].name
                                               : l->trainer->loads[i - NDP_MEM_CLASSES].name;
        l->more.all[i].name = ndp_format("%s%s",
                                         i < NDP_MEM_CLASSES ? "memory/"
                                         : i >= norms        ? "grad_norm/"
                                                             : "",
                                         name);
        NDP_CHECK_MEMORY(l->more.all[i].name, "for names of numbers");
        for (char *at = (char *)(uintptr_t)l->more.all[i].name; (at = strchr(at, ' '));)
            *at = '_';
    }
    NDP_CHECK_MEMORY(l->more.all, "for %d numbers of a step", n);
    l->more.n = n;
    add_budget(l->trainer->engine, l->more.all);
    add_budget(l->trainer->score.engine, l->more.all);
    return NDP_OK;
}

ndp_status ndp_loop_add_more(ndp_training_loop *l, ndp_metrics *m) {
    bool layers = ndp_loop_measures_layers(l, m->step) && isfinite(m->grad_norm), first = !l->more.said;
    int loads = l->trainer->n_loads;
    for (int i = 0; i < loads; i++)
        l->more.all[NDP_MEM_CLASSES + i].value = l->trainer->loads[i].value;
    m->more = l->more.all + (first ? 0 : NDP_MEM_CLASSES);
    m->n_more = (first ? NDP_MEM_CLASSES : 0) + loads + (layers ? l->trainer->model.n_units : 0);
    l->more.said = true;
    return layers ? measure_norms(l, l->more.all + NDP_MEM_CLASSES + loads) : NDP_OK;
}

void ndp_loop_close_more(ndp_training_loop *l) {
    for (int i = 0; i < l->more.n; i++)
        free((char *)(uintptr_t)l->more.all[i].name);
    free(l->more.all);
}
