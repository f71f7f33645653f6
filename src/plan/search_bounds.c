/* Bounds that no program beats (search_bounds.h). Kernels of a unit run one after the other, and where a communication
 * is waited for as soon as it begins, nothing hides it; every rank of the pipeline has at least the mean of the work;
 * a link passes at least the bytes of weights and gradients that each update sends. */
#include "plan/search_bounds.h"

#include "parallel/apply.h"

#include <math.h>
#include <stdlib.h>

/* Of groups of a stride and size: seconds for each byte that a rank sends, by level of links. */
typedef struct ndp_group_rate {
    int stride, count;
    ndp_send_pattern pattern;
    ndp_group_links links;
    double seconds[NDP_LINK_LEVELS];
} ndp_group_rate;

void ndp_search_bounds_release(ndp_search_bounds *b) {
    for (int i = 0; i < b->n; i++) {
        free(b->costs[i]->units);
        free(b->costs[i]);
    }
    if (b->whole_rows)
        ndp_model_release(&b->whole);
    free(b->costs);
    free(b->rates);
    free(b->pipes);
    *b = (ndp_search_bounds){0};
}

/* ---- units of a cut ---- */

typedef struct graph_cost {
    ndp_unit_cost cost, rated;
    double again, held, work, message;
    bool reduced;
} graph_cost;

static ndp_status cost_of_graph(const ndp_dry_run *d, const ndp_device_price *p, const ndp_mesh *mesh,
                                const ndp_graph *g, ndp_recompute recompute, graph_cost *out) {
    ndp_unit_program u;
    const ndp_lower_opts opts = {.exec = &d->exec, .selective = recompute == NDP_RECOMPUTE_SELECTIVE, .costs = true};
    NDP_TRY(ndp_lower(g, &opts, &u));
    bool again = recompute && ndp_recompute_pays(&u);
    double saved = (double)(u.saved_bytes + u.saved_input_bytes);
    out->cost = (ndp_unit_cost){ndp_list_alone(p, mesh, &u.lists[again ? NDP_FORWARD_DROP : NDP_FORWARD]),
                                ndp_list_alone(p, mesh, &u.lists[NDP_BACKWARD_INPUT]),
                                ndp_list_alone(p, mesh, &u.lists[NDP_BACKWARD_WEIGHT])};
    out->again = again ? ndp_list_alone(p, mesh, &u.lists[NDP_RECOMPUTE]) : 0;
    out->cost.input_gradient += out->again;
    const ndp_rates rates = NDP_RATES_INIT;
    const ndp_price rated = ndp_price_by_rates(&rates);
    out->rated = ndp_unit_price(&u, &rated, mesh, recompute);
    out->held = (double)u.output_bytes + (again ? (double)u.kept_bytes : saved);
    out->work = again ? saved - (double)u.kept_bytes : 0;
    out->message = (double)(u.grad_input_bytes < u.output_bytes ? u.grad_input_bytes : u.output_bytes);
    out->reduced = u.lists[NDP_BACKWARD_WEIGHT].n_pgrads > 0;
    ndp_unit_program_release(&u);
    return NDP_OK;
}

/* Of a model that is cut. */
static ndp_status cost_of_units(const ndp_dry_run *d, const ndp_device_price *p, const ndp_mesh *mesh,
                                const ndp_model *m, ndp_recompute recompute, ndp_cut_cost *out) {
    graph_cost of[NDP_MAX_GRAPHS];
    size_t n = (size_t)m->n_units;
    out->units = calloc(1, n * (2 * sizeof *out->units + 3 * sizeof(double) + sizeof(bool)));
    out->rated = out->units + n;
    out->again = (double *)(void *)(out->rated + n);
    out->unit_held = out->again + n;
    out->unit_trained = out->unit_held + n;
    out->reduced = (bool *)(out->unit_trained + n);
    out->n_units = m->n_units;
    if (!out->units)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the costs of %d units", m->n_units);
    for (int g = 0; g < m->n_graphs; g++)
        NDP_TRY(cost_of_graph(d, p, mesh, &m->graphs[g], recompute, &of[g]));
    for (int i = 0; i < m->n_units; i++) {
        const graph_cost *g = &of[m->units[i].graph];
        out->units[i] = g->cost;
        out->rated[i] = g->rated;
        out->unit_held[i] = g->held;
        for (int k = 0; k < NDP_SLOTS; k++) {
            int buffer = m->units[i].buffers[k];
            if (buffer != NDP_NONE && !m->buffers[buffer].base)
                out->unit_trained[i] += (double)m->buffers[buffer].segments.elements;
        }
        out->again[i] = g->again;
        out->held += g->held;
        out->reduced[i] = g->reduced;
        if (i > 0 && i < m->n_units - 1) {
            out->inner = i == 1 ? out->unit_trained[i] : fmin(out->inner, out->unit_trained[i]);
            out->inner_all += out->unit_trained[i];
            out->largest = fmax(out->largest, out->unit_trained[i]);
            out->message = i == 1 ? g->message : fmin(out->message, g->message);
        }
        out->work = fmax(out->work, g->work);
    }
    for (int i = 0; i < m->n_buffers; i++)
        out->trained += m->buffers[i].base ? 0 : (double)m->buffers[i].segments.elements;
    return NDP_OK;
}

/* The model of the job's micro-batch, which candidates share one after the other. */
static ndp_status take_whole(ndp_search_bounds *b, const ndp_job *j) {
    if (b->whole_rows == j->model.rows)
        return NDP_OK;
    if (b->whole_rows)
        ndp_model_release(&b->whole);
    b->whole_rows = 0;
    NDP_TRY(ndp_model_build(&j->spec, &j->model, &b->whole));
    b->whole_rows = j->model.rows;
    return NDP_OK;
}

/* Rows of the micro-batch of a cut: where a sequence has parts, whole samples, of which the first rank has the first
 * part; else as many as the rank, since positions are not looked at. */
static int64_t whole_rows(const ndp_search_bounds *b, const ndp_cut_cost *u) {
    int64_t length = b->d->job->config->data.sequence_length, parts = u->cp * u->sp;
    return parts == 1 ? u->rows : (u->rows * parts + length - 1) / length * length;
}

static ndp_status make_cost(ndp_search_bounds *b, ndp_cut_cost *out) {
    const ndp_stages one = {0};
    ndp_job job = *b->d->job;
    ndp_device_price own = *b->price;
    ndp_engine_opts e;
    ndp_model cut;
    job.layout = (ndp_layout)NDP_LAYOUT_ONE;
    job.layout.size[NDP_CP] = out->cp;
    job.layout.size[NDP_SP] = out->sp;
    job.layout.size[NDP_TP] = out->tp;
    job.layout.size[NDP_DP_SHARD] = job.world / (out->cp * out->sp * out->tp);
    job.model.rows = whole_rows(b, out);
    ndp_cluster_plan links = ndp_cluster_plan_of(b->price->links, &job, b->price->links->shared);
    own.links = &links, own.rows = job.model.rows;
    NDP_TRY(ndp_job_engine(&job, 0, &b->d->exec, &e));
    NDP_TRY(take_whole(b, &job));
    ndp_status st = ndp_parallel_apply(&b->whole, &e.step.mesh, &e.step.parallel, &one, &cut);
    if (st == NDP_OK) {
        st = cost_of_units(b->d, &own, &e.step.mesh, &cut, out->recompute, out);
        ndp_model_release(&cut);
    }
    for (int i = 0; i < out->n_units && st == NDP_OK; i++)
        out->seconds += out->units[i].forward + out->units[i].input_gradient + out->units[i].weight_gradient;
    return st;
}

static bool same_cut(const ndp_cut_cost *a, const ndp_cut_cost *b) {
    return a->cp == b->cp && a->sp == b->sp && a->tp == b->tp && a->rows == b->rows && a->recompute == b->recompute;
}

ndp_status ndp_cut_cost_of(ndp_search_bounds *b, const ndp_cut_cost *cut, const ndp_cut_cost **out) {
    for (int i = b->n; i-- > 0;) /* those asked for last are asked for again */
        if (same_cut(b->costs[i], cut)) {
            *out = b->costs[i];
            return NDP_OK;
        }
    ndp_cut_cost *new = malloc(sizeof *new);
    ndp_status st = new ? ndp_array_reserve(&b->costs, &b->capacity, b->n + 1, sizeof *b->costs)
                        : NDP_FAIL(NDP_ENOMEM, "not enough memory for the costs of a cut");
    if (st == NDP_OK) {
        *new = *cut;
        st = make_cost(b, new);
        if (st != NDP_OK)
            free(new->units);
    }
    if (st != NDP_OK) {
        free(new);
        return st;
    }
    *out = b->costs[b->n++] = new;
    return NDP_OK;
}

/* ---- bounds ---- */

bool ndp_plan_way_reduces_once(const ndp_plan_way *c, const ndp_config *job) {
    return ndp_config_given(job, "parallelism", "reduce_every")
               ? job->parallelism.reduce_every == NDP_REDUCE_EVERY_UPDATE
               : c->layout.size[NDP_PP] > 1;
}

ndp_rank_held ndp_mean_held(const ndp_cut_cost *u, const ndp_plan_way *c) {
    double pp = c->layout.size[NDP_PP], micro_batches = (fmin(pp, c->accumulation) + 1) / 2; /* the last rank has one */
    return (ndp_rank_held){u->held / pp * micro_batches, u->trained / pp};
}

/* Where ranks shard, a unit's gradient is whole until it is reduced, beside its gathered weights; every rank has an
 * inner unit. Reduced once, those of all of a rank's units are, from its first micro-batch to its last. */
double ndp_least_bytes(const ndp_dry_run *d, const ndp_cut_cost *u, const ndp_plan_way *c, ndp_rank_held held) {
    const ndp_job *j = d->job;
    const int *size = c->layout.size;
    double shards = size[NDP_DP_SHARD] * size[NDP_CP] * size[NDP_SP];
    double state = j->config->optimizer.groups.n == 0 && ndp_job_optimizer(j).name == NDP_ADAMW ? 8 : 0;
    double narrow = (double)ndp_dtype_size(j->model.compute);
    double kept = shards > 1 && c->reshard ? 0 : narrow < 4 ? narrow : 0; /* gathered, beside their master */
    bool once = c->accumulation > 1 && ndp_plan_way_reduces_once(c, j->config);
    double whole = shards > 1 ? 4 * (once ? held.trained : u->inner) + u->inner * (c->reshard ? narrow : 0) : 0;
    if (d->device.host_memory) /* in memory that the ranks of a node share */
        kept /= shards, whole = 0;
    return held.trained * ((8 + state) / shards + kept) + held.bytes + whole + u->work;
}

static ndp_status rate_of_groups(ndp_search_bounds *b, int stride, int count, ndp_send_pattern pattern,
                                 ndp_group_rate *out) {
    ndp_cluster_plan *p = b->price->links;
    ndp_group *groups;
    int n;
    *out = (ndp_group_rate){.stride = stride, .count = count, .pattern = pattern};
    for (int i = 0; i < b->n_rates; i++)
        if (b->rates[i].stride == stride && b->rates[i].count == count && b->rates[i].pattern == pattern) {
            *out = b->rates[i];
            return NDP_OK;
        }
    NDP_TRY(ndp_array_reserve(&b->rates, &b->rate_capacity, b->n_rates + 1, sizeof *b->rates));
    NDP_TRY(ndp_groups_alike(p->job->world, stride, count, &groups, &n));
    ndp_group_links *l = &out->links;
    ndp_status st = ndp_cluster_links(&p->cluster, &p->map, groups[0], groups, n, pattern, l);
    free(groups);
    NDP_TRY(st);
    for (int i = 0; i < l->n; i++)
        out->seconds[l->of[i].level] = 1 / ndp_cluster_plan_rate(p, &l->of[i]);
    b->rates[b->n_rates++] = *out;
    return NDP_OK;
}

/* Of the groups over which a candidate's gradients are scattered and summed. */
static ndp_status rates_of_data(ndp_search_bounds *b, const int *size, ndp_group_rate *shard, ndp_group_rate *copies) {
    const ndp_send_pattern pattern = b->price->links->rings ? NDP_SENDS_RING : NDP_SENDS_DIRECT;
    int shards = size[NDP_DP_SHARD] * size[NDP_CP] * size[NDP_SP];
    NDP_TRY(rate_of_groups(b, size[NDP_TP], shards, pattern, shard));
    return rate_of_groups(b, size[NDP_TP] * shards, size[NDP_DP_REPLICATE], pattern, copies);
}

/* Elements that a pipeline's ranks gather in a step, together. Weights that stay are gathered once; others for each
 * forward and each backward, but not the embedding's for its backward, nor where a run that reads them again follows:
 * in a pipeline this may be so of the first and the last unit of each stage. */
static double gathered(const ndp_cut_cost *u, const ndp_plan_way *c) {
    double inner = u->inner_all, pp = c->layout.size[NDP_PP];
    if (!c->reshard)
        return u->trained;
    if (pp == 1)
        return c->accumulation * (u->trained + inner);
    return u->trained + (2 * c->accumulation - 1) * fmax(0, inner - 2 * pp * c->virtual_stages * u->largest);
}

/* Of weights, and of gradients, which are summed among the shards once or for each micro-batch, and among replicas
 * once. A link passes one group's bytes after the other's; links of other levels pass theirs meanwhile. */
static ndp_status least_sent(ndp_search_bounds *b, const ndp_cut_cost *u, const ndp_plan_way *c, double *seconds) {
    const int *size = c->layout.size;
    int shards = size[NDP_DP_SHARD] * size[NDP_CP] * size[NDP_SP], copies = size[NDP_DP_REPLICATE];
    bool once = size[NDP_PP] > 1 || ndp_plan_way_reduces_once(c, b->d->job->config);
    double weights = b->price->gpu ? gathered(u, c) / size[NDP_PP] : 0; /* 0: in memory that ranks share */
    double narrow = (double)ndp_dtype_size(b->d->job->model.compute), sums = 4 * b->price->gradient_bytes;
    double own = u->trained / size[NDP_PP],
           shard_bytes = (double)(shards - 1) / shards * (own * sums * (once ? 1 : c->accumulation) + weights * narrow),
           copy_bytes = 2 * sums * own / shards * (copies - 1) / copies;
    ndp_group_rate shard, replicate;
    NDP_TRY(rates_of_data(b, size, &shard, &replicate));
    *seconds = 0;
    for (int l = 0; l < NDP_LINK_LEVELS; l++)
        *seconds = fmax(*seconds, shard_bytes * shard.seconds[l] + copy_bytes * replicate.seconds[l]);
    return NDP_OK;
}

/* The mean of the ranks of a pipeline waits at both ends for half of the stages, for a schedule that fills no gaps with
 * gradients of weights. */
static double pipeline_factor(const ndp_plan_way *c) {
    double pp = c->layout.size[NDP_PP];
    bool fills = c->schedule == NDP_PIPELINE_ZERO_BUBBLE || c->schedule == NDP_PIPELINE_ZBV ||
                 c->schedule == NDP_PIPELINE_DUALPIPEV;
    return pp == 1 || fills ? 1 : 1 + 0.5 * 0.6 * (pp - 1) / c->virtual_stages / c->accumulation;
}

ndp_status ndp_least_seconds(ndp_search_bounds *b, const ndp_cut_cost *u, const ndp_plan_way *c, double *out) {
    double sent, pp = c->layout.size[NDP_PP];
    NDP_TRY(least_sent(b, u, c, &sent));
    *out = fmax(c->accumulation * u->seconds / pp * pipeline_factor(c), sent) + b->price->facts->fixed;
    return NDP_OK;
}

/* How long a schedule takes with the costs of a cut. */
typedef struct ndp_pipe_time {
    const ndp_cut_cost *of; /* NULL: an empty slot */
    int pp, schedule, virtual_stages, micro_batches;
    double seconds; /* negative: there is no such schedule */
    ndp_rank_held held;
} ndp_pipe_time;

static bool same_pipe(const ndp_pipe_time *a, const ndp_pipe_time *b) {
    return a->of == b->of && a->pp == b->pp && a->schedule == b->schedule && a->virtual_stages == b->virtual_stages &&
           a->micro_batches == b->micro_batches;
}

/* The slot of a key, or the empty one where it belongs. */
static ndp_pipe_time *slot_of(const ndp_search_bounds *b, const ndp_pipe_time *key) {
    uint64_t h = (uint64_t)(uintptr_t)key->of / sizeof(ndp_cut_cost);
    h = ((h * 131 + (uint64_t)key->pp) * 131 + (uint64_t)key->schedule) * 131;
    h = ((h + (uint64_t)key->virtual_stages) * 131 + (uint64_t)key->micro_batches) * 0x9e3779b97f4a7c15u;
    int i = (int)(h >> 33) & (b->slots - 1);
    while (b->pipes[i].of && !same_pipe(&b->pipes[i], key))
        i = (i + 1) & (b->slots - 1);
    return &b->pipes[i];
}

static ndp_status grow_pipes(ndp_search_bounds *b) {
    ndp_search_bounds larger = *b;
    if (2 * b->n_pipes < b->slots)
        return NDP_OK;
    larger.slots = b->slots ? 4 * b->slots : 1024;
    larger.pipes = calloc((size_t)larger.slots, sizeof *larger.pipes);
    if (!larger.pipes)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the schedules of a search");
    for (int i = 0; i < b->slots; i++)
        if (b->pipes[i].of)
            *slot_of(&larger, &b->pipes[i]) = b->pipes[i];
    free(b->pipes);
    b->pipes = larger.pipes, b->slots = larger.slots;
    return NDP_OK;
}

/* Walks each rank's row: a forward keeps a micro-batch's values until its last gradient. */
static ndp_rank_held most_held(const ndp_pipeline *p, const ndp_cut_cost *u, const int *first) {
    ndp_rank_held most = {0};
    for (int r = 0; r < p->ranks; r++) {
        double now = 0, peak = 0, trained = 0;
        for (int i = 0; i < p->rows[r].n; i++) {
            const ndp_stage_action *a = &p->rows[r].actions[i];
            double bytes = 0;
            for (int k = first[a->stage]; k < first[a->stage + 1]; k++)
                bytes += u->unit_held[k];
            now += a->action == NDP_ACTION_FORWARD ? bytes : a->action == NDP_ACTION_INPUT_GRADIENT ? 0 : -bytes;
            peak = fmax(peak, now);
        }
        for (int s = 0; s < p->stages; s++)
            for (int k = first[s]; k < first[s + 1] && p->rank_of[s] == r; k++)
                trained += u->unit_trained[k];
        if (peak > most.bytes)
            most = (ndp_rank_held){peak, trained};
    }
    return most;
}

/* Between neighbours on pp, of whichever direction is faster. */
static ndp_status message_seconds(ndp_search_bounds *b, const ndp_cut_cost *u, int pp, double *out) {
    ndp_cluster_plan *p = b->price->links;
    ndp_group_rate next, before;
    int stride = p->job->world / pp;
    NDP_TRY(rate_of_groups(b, stride, pp, NDP_SENDS_NEXT, &next));
    NDP_TRY(rate_of_groups(b, stride, pp, NDP_SENDS_BEFORE, &before));
    *out = fmin(ndp_cluster_plan_seconds(p, &next.links, NDP_SEND, pp, u->message),
                ndp_cluster_plan_seconds(p, &before.links, NDP_SEND, pp, u->message));
    return NDP_OK;
}

/* Replays the table of a candidate whose stages have the units that a job would give them. */
static ndp_status replay_table(ndp_search_bounds *b, const ndp_cut_cost *u, const ndp_plan_way *c, ndp_replay_costs *k,
                               double *seconds, ndp_rank_held *held) {
    ndp_pipeline p;
    NDP_TRY(ndp_pipeline_make(c->schedule, c->layout.size[NDP_PP], c->virtual_stages, c->accumulation, &p));
    int *first = calloc((size_t)p.stages + 1, sizeof *first);
    ndp_status st = first ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for %d stages", p.stages);
    if (st == NDP_OK)
        st = ndp_stage_cut(&b->whole, u->rated, p.stages, NULL, 0, first);
    if (st == NDP_OK)
        st = message_seconds(b, u, p.ranks, &k->message);
    if (st == NDP_OK)
        st = ndp_replay_units(&p, u, first, k, seconds);
    if (st == NDP_OK && held)
        *held = most_held(&p, u, first);
    free(first);
    ndp_pipeline_release(&p);
    return st;
}

/* Of each unit, in k's arrays, which have room for it. */
static ndp_status cost_of_data(ndp_search_bounds *b, const ndp_cut_cost *u, const int *size, double *of[4]) {
    ndp_cluster_plan *p = b->price->links;
    double shards = size[NDP_DP_SHARD] * size[NDP_CP] * size[NDP_SP], copies = size[NDP_DP_REPLICATE];
    double narrow = (double)ndp_dtype_size(b->d->job->model.compute), sums = 4 * b->price->gradient_bytes;
    ndp_group_rate shard, replicate;
    NDP_TRY(rates_of_data(b, size, &shard, &replicate));
    for (int i = 0; i < u->n_units; i++) {
        double whole = u->unit_trained[i] * (shards - 1) / shards;
        double slices = 2 * sums * u->unit_trained[i] / shards * (copies - 1) / copies;
        bool any = u->unit_trained[i] > 0;
        of[0][i] = any && b->price->gpu
                       ? ndp_cluster_plan_seconds(p, &shard.links, NDP_ALL_GATHER, (int)shards, narrow * whole)
                       : 0;
        of[1][i] = any ? ndp_cluster_plan_seconds(p, &shard.links, NDP_REDUCE_SCATTER, (int)shards, sums * whole) : 0;
        of[2][i] = any ? ndp_cluster_plan_seconds(p, &replicate.links, NDP_ALL_REDUCE, (int)copies, slices) : 0;
        for (int l = 0; l < NDP_LINK_LEVELS; l++)
            if (shard.seconds[l] > 0)
                of[3][i] = fmax(of[3][i], slices * replicate.seconds[l]);
    }
    return NDP_OK;
}

/* With the costs of other rows, stages may differ from those of the job. */
static double surely(const ndp_search_bounds *b, const ndp_cut_cost *u, const ndp_plan_way *c, double seconds) {
    bool same = whole_rows(b, u) == b->d->job->config->data.sequence_length * c->micro_batch;
    return (same ? 1 - 1e-9 : 0.9) * seconds + b->price->facts->fixed;
}

ndp_status ndp_least_step(ndp_search_bounds *b, const ndp_cut_cost *u, const ndp_plan_way *c, double *seconds) {
    size_t n = (size_t)u->n_units;
    double *all = calloc(4 * n, sizeof *all), *of[] = {all, all + n, all + 2 * n, all + 3 * n};
    ndp_replay_costs k = {0, c->reshard, of[0], of[1], of[2], of[3]};
    if (!all)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the costs of %d units", u->n_units);
    ndp_status st = cost_of_data(b, u, c->layout.size, of);
    if (st == NDP_OK)
        st = replay_table(b, u, c, &k, seconds, NULL);
    free(all);
    *seconds = st == NDP_OK ? surely(b, u, c, *seconds) : 0;
    return st;
}

ndp_status ndp_least_pipeline(ndp_search_bounds *b, const ndp_cut_cost *u, const ndp_plan_way *c, double *seconds,
                              ndp_rank_held *held) {
    ndp_pipe_time key = {u, c->layout.size[NDP_PP], c->schedule, c->virtual_stages, c->accumulation, -1, {0, 0}};
    ndp_replay_costs messages = {0};
    NDP_TRY(grow_pipes(b));
    ndp_pipe_time *slot = slot_of(b, &key);
    if (!slot->of) {
        ndp_status st = replay_table(b, u, c, &messages, &key.seconds, &key.held);
        if (st == NDP_ENOMEM || st == NDP_EBUG)
            return st;
        ndp_error_set(NDP_OK, "");
        *slot = key;
        b->n_pipes++;
    }
    *seconds = surely(b, u, c, slot->seconds);
    *held = slot->held;
    return slot->seconds >= 0 ? NDP_OK : NDP_FAIL(NDP_EINVAL, "there is no such schedule");
}
