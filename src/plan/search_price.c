/* The price of one candidate of a search: its programs, built for its job, and their step. */
#include "plan/search.h"

#include "weights/weights.h"

#include <math.h>
#include <string.h>

void ndp_plan_way_apply(const ndp_plan_way *c, ndp_config *to) {
    memcpy(to->parallelism.size, c->layout.size, sizeof to->parallelism.size);
    to->parallelism.reshard_after_forward = c->reshard;
    to->parallelism.reduce_every = ndp_config_reduce_every(to, c->layout.size[NDP_PP]);
    to->batch.micro_batch_size = c->micro_batch;
    to->train.recompute = c->recompute;
    if (c->layout.size[NDP_PP] == 1)
        return;
    to->pipeline.schedule = c->schedule;
    to->pipeline.virtual_stages = c->virtual_stages;
}

static ndp_status save_of(const ndp_dry_run *d, const ndp_model *m, double *seconds) {
    ndp_engine *engine;
    int64_t bytes;
    NDP_TRY(ndp_plan_engine(d, m, 0, &engine));
    ndp_status st = ndp_checkpoint_bytes(engine, &bytes);
    *seconds = st == NDP_OK ? ndp_plan_save_seconds(d, bytes) : 0;
    ndp_engine_destroy(engine);
    return st;
}

/* A candidate's job on the cluster of a price, and what it is built with. */
typedef struct pricing {
    ndp_dry_run d;
    ndp_model m;
    ndp_cluster_plan links;
    ndp_device_price price;
} pricing;

/* `known` may be NULL. Stays where it is; close it, also where this fails. */
static ndp_status open_pricing(const ndp_plan_seek *of, ndp_known_links *known, const ndp_job *j, pricing *p) {
    *p = (pricing){.price = *of->price, .links = ndp_cluster_plan_of(of->price->links, j, known)};
    p->price.links = &p->links;
    p->price.rows = j->model.rows;
    NDP_TRY(ndp_dry_run_init(&p->d, j, of->d->per_node, 0));
    return ndp_model_build(&j->spec, &j->model, &p->m);
}

static void close_pricing(pricing *p) {
    ndp_dry_run_release(&p->d);
    ndp_model_release(&p->m);
}

/* From here on programs are alone for times, or have planned memory, where no more than `enough` is as good as less,
 * and rank `likely` may need the most. */
static ndp_status build_anew(pricing *p, bool unplaced, double enough, int likely) {
    ndp_dry_run_release(&p->d);
    ndp_device_price_forget(&p->price);
    p->d.fold = unplaced ? NDP_FOLD_ALWAYS : NDP_FOLD_IF_NO_LARGER, p->d.unplaced = unplaced;
    p->d.enough = enough < (double)INT64_MAX ? (size_t)enough : INT64_MAX;
    p->d.only_fullest = !unplaced, p->d.likely = likely;
    return ndp_dry_run_keep(&p->d, &p->m);
}

/* Folded programs take the time of others, and no less memory than theirs in the end. */
static ndp_status price_job(pricing *p, double room, double most, ndp_priced_way *r) {
    ndp_plan_need unused;
    NDP_TRY(build_anew(p, true, 0, NDP_NONE));
    NDP_TRY(ndp_plan_fullest(&p->d, &p->m, &r->need));
    r->likely = r->need.rank;
    if ((double)r->need.peak > room)
        return NDP_OK;
    NDP_TRY(ndp_step_time_of(&p->d, &p->m, &p->price, INFINITY, &r->time, &unused));
    if (r->time.seconds >= most)
        return NDP_OK;
    NDP_TRY(build_anew(p, false, room, r->likely));
    return ndp_plan_fullest(&p->d, &p->m, &r->need);
}

ndp_status ndp_plan_price_way(const ndp_plan_seek *of, ndp_known_links *known, const ndp_job *j, double room,
                              double most, ndp_priced_way *r) {
    pricing p;
    ndp_status st = open_pricing(of, known, j, &p);
    if (st == NDP_OK)
        st = price_job(&p, room, most, r);
    close_pricing(&p);
    return st;
}

/* Does something with the job of a candidate. */
static ndp_status with_pricing(const ndp_plan_seek *of, const ndp_plan_way *c, ndp_status (*use)(pricing *, void *),
                               void *user) {
    ndp_config way;
    ndp_job j;
    pricing p;
    NDP_TRY(ndp_config_copy(of->d->job->config, &way));
    ndp_plan_way_apply(c, &way);
    ndp_status st = ndp_job_init_like(of->d->job, &way, of->d->job->world, &j);
    if (st == NDP_OK) {
        st = open_pricing(of, NULL, &j, &p);
        if (st == NDP_OK)
            st = use(&p, user);
        close_pricing(&p);
        ndp_job_release(&j);
    }
    ndp_config_release(&way);
    return st;
}

static ndp_status time_again(pricing *p, void *out) {
    ndp_plan_need unused;
    NDP_TRY(build_anew(p, true, 0, NDP_NONE));
    return ndp_step_time_of(&p->d, &p->m, &p->price, INFINITY, out, &unused);
}

ndp_status ndp_plan_price_again(const ndp_plan_seek *of, const ndp_plan_way *c, ndp_step_time *out) {
    return with_pricing(of, c, time_again, out);
}

static ndp_status find_need(pricing *p, void *user) {
    ndp_priced_way *r = user;
    NDP_TRY(build_anew(p, false, 0, r->likely));
    NDP_TRY(ndp_plan_fullest(&p->d, &p->m, &r->need));
    return save_of(&p->d, &p->m, &r->save);
}

ndp_status ndp_plan_need_again(const ndp_plan_seek *of, ndp_priced_way *r) {
    return with_pricing(of, &r->c, find_need, r);
}

ndp_status ndp_plan_least_again(const ndp_plan_seek *of, const ndp_plan_way *c, double *seconds) {
    ndp_search_bounds b = {.d = of->d, .price = of->price};
    ndp_known_links known = {0};
    const ndp_cut_cost cut = ndp_cut_of(of->d->job, c), *u;
    of->price->links->shared = &known;
    ndp_status st = ndp_cut_cost_of(&b, &cut, &u);
    if (st == NDP_OK)
        st = c->layout.size[NDP_PP] > 1 ? ndp_least_step(&b, u, c, seconds) : ndp_least_seconds(&b, u, c, seconds);
    of->price->links->shared = NULL;
    ndp_search_bounds_release(&b);
    ndp_known_links_release(&known);
    return st;
}
