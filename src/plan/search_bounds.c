/* Bounds that no program beats (search_bounds.h). Kernels of a unit run one after the other, and where a communication
 * is waited for as soon as it begins, nothing hides it; every rank of the pipeline has at least the mean of the work;
 * a link passes at least the bytes of weights and gradients that each update sends. */
#include "plan/search_bounds.h"

#include "parallel/apply.h"

#include <math.h>
#include <stdlib.h>

void ndp_cut_costs_release(ndp_cut_costs *c) {
    for (int i = 0; i < c->n; i++)
        free(c->items[i].units);
    free(c->items);
    *c = (ndp_cut_costs){0};
}

/* ---- units of a cut ---- */

static double list_seconds(const ndp_device_price *p, const ndp_mesh *mesh, const ndp_list *list) {
    double sum = 0;
    for (int i = 0; i < list->n; i++) {
        const ndp_call *c = &list->calls[i];
        double times = (double)ndp_repeats_times(&list->repeats, i);
        if (c->kind == NDP_CALL_KERNEL)
            sum += times * ndp_device_kernel(p, true, c);
        else if (c->kind == NDP_CALL_BEGIN && c->partner == i + 1)
            sum += times * ndp_device_comm(p, mesh, c);
    }
    return sum;
}

typedef struct graph_cost {
    ndp_unit_cost cost;
    double held, work;
} graph_cost;

static ndp_status cost_of_graph(const ndp_dry_run *d, const ndp_device_price *p, const ndp_mesh *mesh,
                                const ndp_graph *g, ndp_recompute recompute, graph_cost *out) {
    ndp_unit_program u;
    NDP_TRY(ndp_lower(g, &(ndp_lower_opts){&d->exec, recompute == NDP_RECOMPUTE_SELECTIVE}, &u));
    bool again = recompute && ndp_recompute_pays(&u);
    double saved = (double)(u.saved_bytes + u.saved_input_bytes);
    out->cost = (ndp_unit_cost){list_seconds(p, mesh, &u.lists[again ? NDP_FORWARD_DROP : NDP_FORWARD]),
                                list_seconds(p, mesh, &u.lists[NDP_BACKWARD_INPUT]),
                                list_seconds(p, mesh, &u.lists[NDP_BACKWARD_WEIGHT])};
    out->cost.input_gradient += again ? list_seconds(p, mesh, &u.lists[NDP_RECOMPUTE]) : 0;
    out->held = (double)u.output_bytes + (again ? (double)u.kept_bytes : saved);
    out->work = again ? saved - (double)u.kept_bytes : 0;
    ndp_unit_program_release(&u);
    return NDP_OK;
}

/* Of a model that is cut. */
static ndp_status cost_of_units(const ndp_dry_run *d, const ndp_device_price *p, const ndp_mesh *mesh,
                                const ndp_model *m, ndp_recompute recompute, ndp_cut_cost *out) {
    graph_cost of[NDP_MAX_GRAPHS];
    out->units = calloc((size_t)m->n_units, sizeof *out->units);
    out->n_units = m->n_units;
    if (!out->units)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the costs of %d units", m->n_units);
    for (int g = 0; g < m->n_graphs; g++)
        NDP_TRY(cost_of_graph(d, p, mesh, &m->graphs[g], recompute, &of[g]));
    for (int i = 0; i < m->n_units; i++) {
        const graph_cost *g = &of[m->units[i].graph];
        out->units[i] = g->cost;
        out->held += g->held;
        out->work = fmax(out->work, g->work);
    }
    for (int i = 0; i < m->n_buffers; i++)
        *(m->buffers[i].base ? &out->frozen : &out->trained) += (double)m->buffers[i].segments.elements;
    return NDP_OK;
}

/* As a rank of one stage has it. Micro-batches of other sizes have other rows. */
static ndp_status make_cost(const ndp_dry_run *d, const ndp_device_price *price, const ndp_candidate *c,
                            ndp_cut_cost *out) {
    const ndp_stages one = {0};
    ndp_job job = *d->job;
    ndp_device_price own = *price;
    ndp_engine_opts e;
    ndp_model whole, cut;
    job.layout = c->layout;
    job.layout.size[NDP_DP_SHARD] *= c->layout.size[NDP_PP];
    job.layout.size[NDP_PP] = 1;
    job.ties = (ndp_ties){0};
    job.batch.micro_batch = c->micro_batch;
    ndp_job_choose_model(&job);
    ndp_cluster_plan links = ndp_cluster_plan_of(price->links, &job, price->links->shared);
    own.links = &links, own.rows = job.model.rows;
    NDP_TRY(ndp_job_engine(&job, 0, &d->exec, &e));
    NDP_TRY(ndp_model_build(&job.spec, &job.model, &whole));
    ndp_status st = ndp_parallel_apply(&whole, &e.step.mesh, &e.step.parallel, &one, &cut);
    if (st == NDP_OK) {
        st = cost_of_units(d, &own, &e.step.mesh, &cut, c->recompute, out);
        ndp_model_release(&cut);
    }
    ndp_model_release(&whole);
    return st;
}

ndp_status ndp_cut_cost_of(ndp_cut_costs *all, const ndp_dry_run *d, const ndp_device_price *price,
                           const ndp_candidate *c, const ndp_cut_cost **out) {
    const int *size = c->layout.size;
    ndp_cut_cost new = {.tp = size[NDP_TP],
                        .cp = size[NDP_CP],
                        .sp = size[NDP_SP],
                        .micro_batch = c->micro_batch,
                        .recompute = c->recompute};
    for (int i = 0; i < all->n; i++) {
        const ndp_cut_cost *k = &all->items[i];
        if (k->tp == new.tp && k->cp == new.cp && k->sp == new.sp && k->micro_batch == new.micro_batch &&
            k->recompute == new.recompute) {
            *out = k;
            return NDP_OK;
        }
    }
    ndp_status st = ndp_array_reserve(&all->items, &all->capacity, all->n + 1, sizeof *all->items);
    if (st == NDP_OK)
        st = make_cost(d, price, c, &new);
    if (st != NDP_OK) {
        free(new.units);
        return st;
    }
    all->items[all->n] = new;
    *out = &all->items[all->n++];
    return NDP_OK;
}

/* ---- bounds ---- */

double ndp_least_bytes(const ndp_job *j, const ndp_cut_cost *u, const ndp_candidate *c) {
    const int *size = c->layout.size;
    double pp = size[NDP_PP], shards = size[NDP_DP_SHARD] * size[NDP_CP] * size[NDP_SP];
    double state = j->config->optimizer.groups.n == 0 && ndp_job_optimizer(j).name == NDP_ADAMW ? 8 : 0;
    double narrow = (double)ndp_dtype_size(j->model.compute);
    double kept = shards > 1 && c->reshard ? 0 : narrow < 4 ? narrow : 0; /* gathered, beside their master */
    double held =
        (fmin(pp, c->accumulation) + 1) / 2; /* micro-batches of a mean rank: the first has most, the last one */
    return u->trained / pp * ((8 + state) / shards + kept) + u->held / pp * held + u->work;
}

static double work_of(const ndp_cut_cost *u) {
    double sum = 0;
    for (int i = 0; i < u->n_units; i++)
        sum += u->units[i].forward + u->units[i].input_gradient + u->units[i].weight_gradient;
    return sum;
}

double ndp_least_seconds(const ndp_cut_cost *u, const ndp_candidate *c) {
    return c->accumulation * work_of(u) / c->layout.size[NDP_PP];
}

/* The table of the job's schedule with these costs, where messages take no time. */
ndp_status ndp_least_pipeline(const ndp_job *j, const ndp_cut_cost *u, double *seconds) {
    const ndp_pipeline *p = &j->pipeline;
    ndp_pipeline_times t;
    double *costs = calloc(3 * (size_t)p->stages + 1, sizeof *costs);
    double *of[] = {costs, costs + p->stages, costs + 2 * p->stages};
    if (!costs)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for %d stages", p->stages);
    for (int s = 0; s < p->stages; s++)
        for (int i = j->first_unit[s]; i < j->first_unit[s + 1]; i++) {
            of[0][s] += u->units[i].forward;
            of[1][s] += u->units[i].input_gradient;
            of[2][s] += u->units[i].weight_gradient;
        }
    ndp_status st = ndp_pipeline_replay(p, &(ndp_pipeline_costs){of[0], of[1], of[2], 0}, &t);
    if (st == NDP_OK) {
        *seconds = t.makespan;
        ndp_pipeline_times_release(&t);
    }
    free(costs);
    return st;
}

/* Of a group of the candidate's ranks, seconds for each byte that one sends. */
static ndp_status seconds_a_byte(const ndp_device_price *p, ndp_group_kind kind, double *out) {
    const ndp_group_links *l;
    *out = 0;
    NDP_TRY(ndp_cluster_plan_links(p->links, kind, p->links->rings ? NDP_SENDS_RING : NDP_SENDS_DIRECT, &l));
    for (int i = 0; i < l->n; i++)
        *out = fmax(*out, 1 / ndp_cluster_plan_rate(p->links, &l->of[i]));
    return NDP_OK;
}

ndp_status ndp_least_sent(const ndp_device_price *p, const ndp_job *j, const ndp_cut_cost *u, const ndp_candidate *c,
                          double *seconds) {
    const int *size = c->layout.size;
    double shards = size[NDP_DP_SHARD] * size[NDP_CP] * size[NDP_SP], copies = size[NDP_DP_REPLICATE];
    double gathers = c->reshard ? 1.5 * c->accumulation : 1, own = u->trained / size[NDP_PP], shard, replicate;
    NDP_TRY(seconds_a_byte(p, NDP_GROUP_SHARD, &shard));
    NDP_TRY(seconds_a_byte(p, NDP_GROUP_REPLICATE, &replicate));
    bool gathered = p->gpu; /* in memory that ranks share they are not */
    *seconds = own * (shards - 1) / shards *
                   (4 * p->gradient_bytes + (gathered ? gathers * (double)ndp_dtype_size(j->model.compute) : 0)) *
                   shard +
               2 * 4 * p->gradient_bytes * own / shards * (copies - 1) / copies * replicate;
    return NDP_OK;
}
