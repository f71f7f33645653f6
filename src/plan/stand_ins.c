/* Programs that stand for those of a whole world, and what they say of all ranks: what the fullest needs, and how long
 * a simulated step takes. */
#include "plan/stand_ins.h"

#include "parallel/apply.h"
#include "step/simulate.h"

#include <stdlib.h>
#include <string.h>

/* Sets *same if ranks of the tensor axis at these coordinates have parts of tensors of the same sizes. */
static ndp_status same_sizes(const ndp_dry_run *d, const ndp_model *m, int a, int b, bool *same) {
    ndp_engine_opts opts[2];
    NDP_TRY(ndp_job_engine(d->job, a, &d->exec, &opts[0]));
    NDP_TRY(ndp_job_engine(d->job, b, &d->exec, &opts[1]));
    *same = true;
    for (int i = 0; i < m->n_buffers && *same; i++) {
        ndp_arena arena = {0};
        ndp_segments parts[2] = {{0}};
        ndp_status st = NDP_OK;
        for (int k = 0; k < 2 && st == NDP_OK; k++)
            st = ndp_parallel_segments(&m->buffers[i].segments, &opts[k].step.mesh, &opts[k].step.parallel, &arena,
                                       &parts[k]);
        for (int s = 0; st == NDP_OK && s < parts[0].n; s++)
            *same = *same && parts[0].items[s].rows == parts[1].items[s].rows &&
                    parts[0].items[s].cols == parts[1].items[s].cols;
        ndp_arena_release(&arena);
        NDP_TRY(st);
    }
    return NDP_OK;
}

/* The coordinates on tp that stand for all: the first, `last`: the last, and each with parts of other sizes; to check
 * rows that meet others' over ep, all, since those of each come from other places. */
static ndp_status choose_tp(const ndp_dry_run *d, const ndp_model *m, bool last, int *of, int *n) {
    int tp = d->job->layout.size[NDP_TP];
    bool all = last && d->job->layout.size[NDP_EP] > 1;
    of[0] = 0, of[1] = tp - 1;
    *n = tp > 1 && last ? 2 : 1;
    for (int c = 1; c < tp - last; c++) {
        bool found = false;
        for (int k = 0; k < *n && !found && !all; k++)
            NDP_TRY(same_sizes(d, m, of[k], c, &found));
        if (!found)
            of[(*n)++] = c;
    }
    return NDP_OK;
}

/* Adds the combinations of the first and the last coordinate of each axis, of all on pp, and of those of tp: ranks
 * between the first and the last of an axis play the same part in their groups, but every stage has a program of its
 * own. `corners` 1: of the first coordinates alone. */
static void add_roles(const ndp_job *j, int corners, const int *tp, int n_tp, ndp_stand_ins *w) {
    const int *size = j->layout.size;
    for (int pp = 0; pp < size[NDP_PP]; pp++)
        for (int corner = 0; corner < corners; corner++)
            for (int t = 0; t < n_tp; t++) {
                int coord[NDP_AXES] = {[NDP_PP] = pp, [NDP_TP] = tp[t]};
                bool new = true; /* on an axis of size 1 the first rank is the last */
                for (int axis = NDP_PP + 1; axis < NDP_TP; axis++) {
                    bool last = corner >> (axis - 1) & 1;
                    coord[axis] = last ? size[axis] - 1 : 0;
                    new = new && (!last || coord[axis] > 0);
                }
                if (new)
                    w->ranks[w->n++] = ndp_mesh_rank_of(&j->layout, coord);
            }
}

static ndp_status take_room(ndp_stand_ins *w, size_t most) {
    w->ranks = calloc(most, sizeof *w->ranks);
    w->engines = calloc(most, sizeof *w->engines);
    w->shared = calloc(most, sizeof *w->shared);
    w->programs = calloc(most, sizeof *w->programs);
    w->scores = calloc(most, sizeof *w->scores);
    return NDP_MEMORY(w->ranks && w->engines && w->shared && w->programs && w->scores, "for %zu programs", most);
}

/* Combinations of the first and last coordinates, or of the first alone. */
static ndp_status choose_roles(const ndp_dry_run *d, const ndp_model *m, bool last, ndp_stand_ins *w) {
    const ndp_job *j = d->job;
    int corners = last ? 1 << (NDP_TP - 1) : 1, n_tp = 0;
    int *tp = malloc(((size_t)j->layout.size[NDP_TP] + 2) * sizeof *tp);
    ndp_status st = tp ? choose_tp(d, m, last, tp, &n_tp) : NDP_FAIL(NDP_ENOMEM, "not enough memory for programs");
    if (st == NDP_OK)
        st = take_room(w, (size_t)(j->layout.size[NDP_PP] * n_tp * corners));
    if (st == NDP_OK)
        add_roles(j, corners, tp, n_tp, w);
    free(tp);
    return st;
}

ndp_status ndp_stand_ins_of_check(const ndp_dry_run *d, const ndp_model *m, ndp_stand_ins *w) {
    int world = d->job->world;
    if (world > NDP_WHOLE_WORLD)
        return choose_roles(d, m, true, w);
    NDP_TRY(take_room(w, (size_t)world));
    for (; w->n < world; w->n++)
        w->ranks[w->n] = w->n;
    return NDP_OK;
}

ndp_status ndp_stand_ins_first(const ndp_dry_run *d, const ndp_model *m, ndp_stand_ins *w) {
    return choose_roles(d, m, false, w);
}

void ndp_stand_ins_release(ndp_stand_ins *w) {
    for (int i = 0; i < w->n && w->engines; i++)
        ndp_engine_destroy(w->engines[i]);
    for (int i = 0; i < w->n && w->shared; i++)
        free(w->shared[i].owned);
    free(w->ranks);
    free(w->engines);
    free(w->shared);
    free(w->programs);
    free(w->scores);
}

/* The first rank before rank i of the list that has the same program; i: none. */
static int find_same(const ndp_stand_ins *w, int i, const ndp_program *p) {
    int k = 0;
    while (k < i && !(w->engines[k] && ndp_program_same(w->programs[k], p)))
        k++;
    return k;
}

/* The slices of rank i, which shares a program. */
static ndp_status take_slices(ndp_stand_ins *w, int i, const ndp_program *p) {
    size_t n = (size_t)p->opts.model->n_buffers;
    ndp_owned *owned = calloc(n + 1, sizeof *owned);
    NDP_CHECK_MEMORY(owned, "to check the programs");
    memcpy(owned, p->owned, n * sizeof *owned);
    w->shared[i].owned = owned;
    return NDP_OK;
}

ndp_status ndp_stand_ins_build(const ndp_dry_run *d, const ndp_model *m, size_t enough, ndp_stand_ins *w, int i) {
    ndp_engine *e;
    NDP_TRY(ndp_plan_engine_in(d, m, w->ranks[i], enough, &e));
    const ndp_program *p = ndp_engine_program(e);
    int same = find_same(w, i, p);
    if (same < i) {
        w->shared[i] = *w->programs[same];
        w->shared[i].opts.step.mesh = p->opts.step.mesh;
        w->shared[i].owned = NULL;
        w->programs[i] = &w->shared[i];
        ndp_status st = take_slices(w, i, p);
        ndp_engine_destroy(e);
        return st;
    }
    w->engines[i] = e;
    w->programs[i] = p;
    return NDP_OK;
}

/* Takes rank i of the list if it needs more than those that were taken, of equal ones the first rank. */
static void take_fuller(const ndp_dry_run *d, const ndp_stand_ins *w, const ndp_engine_memory *texts, int i,
                        ndp_plan_need *out) {
    const ndp_job *j = d->job;
    bool leads = ndp_mesh_leads(&w->programs[i]->opts.step.mesh), host = d->device.host_memory;
    const ndp_engine_memory own = ndp_engine_memory_of(w->engines[i]), *score = &w->scores[i];
    int64_t device = own.device + score->device + (leads ? texts->device : 0);
    int64_t bytes = device + (host ? own.pinned + score->pinned : 0);
    if (bytes < out->peak || (bytes == out->peak && w->ranks[i] > out->rank))
        return;
    *out = (ndp_plan_need){.rank = w->ranks[i], .peak = bytes, .nccl = ndp_plan_nccl(d, w->engines[i])};
    ndp_program_budget(w->programs[i], &out->budget);
    int place = w->ranks[i] / (j->world / j->layout.size[NDP_PP]);
    while (out->stage < j->pipeline.stages && j->pipeline.rank_of[out->stage] != place)
        out->stage++;
}

/* What the simulated ranks wait, and what they need. */
static void measure_trial(const ndp_stand_ins *w, const ndp_simulation *s, ndp_plan_trial *out) {
    static const ndp_step_part waits[] = {NDP_PART_RECEIVE, NDP_PART_SEND, NDP_PART_COLLECTIVE, NDP_PART_IDLE};
    *out = (ndp_plan_trial){.seconds = s->makespan};
    for (int i = 0; i < w->n; i++) {
        for (int k = 0; k < NDP_COUNT(waits) && s->makespan > 0; k++) {
            double share = s->parts[i][waits[k]] / s->makespan / w->n;
            out->waits += share;
            out->bubble += waits[k] == NDP_PART_COLLECTIVE ? 0 : share;
        }
        if (!w->engines[i])
            continue;
        const ndp_engine_memory one = ndp_engine_memory_of(w->engines[i]);
        out->device = one.device > out->device ? one.device : out->device;
        out->pinned = one.pinned > out->pinned ? one.pinned : out->pinned;
    }
}

ndp_status ndp_plan_try(const ndp_dry_run *d, const ndp_model *m, const ndp_price *price, ndp_plan_trial *out) {
    ndp_stand_ins w = {0};
    ndp_simulation s = {0};
    ndp_status st = ndp_stand_ins_first(d, m, &w);
    for (int i = 0; i < w.n && st == NDP_OK; i++)
        st = ndp_stand_ins_build(d, m, 0, &w, i);
    if (st == NDP_OK) {
        st = ndp_simulate(w.programs, w.n,
                          &(ndp_step_costs){.seconds = ndp_price_seconds, .user = price, .background = true}, &s);
        if (st == NDP_OK)
            measure_trial(&w, &s, out);
        ndp_simulation_release(&s);
    }
    ndp_stand_ins_release(&w);
    return st;
}

static void likely_first(const ndp_dry_run *d, const ndp_stand_ins *w) {
    for (int i = 1; i < w->n; i++)
        if (w->ranks[i] == d->likely) {
            w->ranks[i] = w->ranks[0];
            w->ranks[0] = d->likely;
            return;
        }
}

ndp_status ndp_plan_fullest(const ndp_dry_run *d, const ndp_model *m, ndp_plan_need *out) {
    ndp_stand_ins w = {0};
    ndp_engine_memory texts;
    bool alone = ndp_plan_trains_alone(d);
    *out = (ndp_plan_need){.peak = -1};
    NDP_TRY(ndp_plan_texts(d, &texts));
    ndp_status st = ndp_stand_ins_first(d, m, &w);
    if (st == NDP_OK)
        likely_first(d, &w);
    for (int i = 0; i < w.n && st == NDP_OK && (d->most <= 0 || out->peak <= d->most); i++) {
        size_t most = d->only_fullest && out->peak > 0 ? (size_t)out->peak - (w.ranks[i] < out->rank) : 0;
        st = ndp_stand_ins_build(d, m, !alone ? 0 : most > d->enough ? most : d->enough, &w, i);
        if (st == NDP_OK && w.engines[i])
            st = ndp_plan_score(d, w.ranks[i], w.engines[i], &w.scores[i]);
        if (st == NDP_OK && w.engines[i])
            take_fuller(d, &w, &texts, i, out);
    }
    ndp_stand_ins_release(&w);
    return st;
}
