/* Bounds that no program beats (search_bounds.h). Kernels of a unit run one after the other, and where a communication
 * is waited for as soon as it begins, nothing hides it; every rank of the pipeline has at least the mean of the work;
 * a link passes at least the bytes of weights and gradients that each update sends. */
#include "plan/search_bounds.h"

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
    free(b->updates);
    *b = (ndp_search_bounds){0};
}

/* ---- ways ---- */

/* Whether gradients are reduced once an update, not for each micro-batch: as the job says, or the default of its pp. */
static bool reduces_once(const ndp_plan_way *c, const ndp_config *job) {
    return ndp_config_reduce_every(job, c->layout.size[NDP_PP]) == NDP_REDUCE_EVERY_UPDATE;
}

/* Cuts of samples over cp and sp are there for samples that are too long: where a micro-batch has several, half of them
 * and half the cut is the same work for twice the data ranks, and sends less. */
bool ndp_plan_way_dominated(const ndp_layout *l, int micro_batch) {
    int a = micro_batch, b = l->size[NDP_CP] * l->size[NDP_SP];
    while (b) {
        int rest = a % b;
        a = b, b = rest;
    }
    return a > 1;
}

/* ---- bounds ---- */

ndp_rank_held ndp_mean_held(const ndp_cut_cost *u, const ndp_plan_way *c) {
    double pp = c->layout.size[NDP_PP], micro_batches = (fmin(pp, c->accumulation) + 1) / 2; /* the last rank has one */
    return (ndp_rank_held){u->held / pp * micro_batches, u->trained / pp, u->experts / pp};
}

/* Ranks that have slices of the same experts. */
static double expert_shards(const int *size) {
    return (double)(size[NDP_DP_SHARD] * size[NDP_CP] * size[NDP_SP] * size[NDP_TP] / size[NDP_EP]);
}

/* What an owner has of a weight, beside `kept` bytes of it that the rank has whole. */
static double master_bytes(const ndp_model_opts *o, double kept) {
    double high = o->compute == NDP_BF16 ? 2 : 0, rest = o->weights == NDP_BF16 ? 0 : 4 - high;
    return rest + (kept > 0 ? 0 : high);
}

/* Where ranks shard, a buffer's gradient is whole until it is reduced, beside its gathered weights; every rank has an
 * inner unit. Reduced once, those of all of a rank's units are, from its first micro-batch to its last. A mixture has
 * little else than its experts, so not all of it lives at once: slices of gradients of a single micro-batch begin when
 * weights end, and weights and values of a block end while its experts' gradient is whole. */
double ndp_least_bytes(const ndp_dry_run *d, const ndp_cut_cost *u, const ndp_plan_way *c, ndp_rank_held held) {
    const ndp_job *j = d->job;
    const int *size = c->layout.size;
    double shards = size[NDP_DP_SHARD] * size[NDP_CP] * size[NDP_SP], of_experts = expert_shards(size);
    double state = j->config->optimizer.groups.n == 0 && ndp_job_optimizer(j).name == NDP_ADAMW ? 8 : 0;
    state /= j->model.states == NDP_BF16 ? 2 : 1;
    double narrow = (double)ndp_dtype_size(j->model.compute), beside_master = narrow < 4 ? narrow : 0;
    double kept = shards > 1 && c->reshard ? 0 : beside_master; /* gathered */
    double kept_experts = of_experts > 1 && c->reshard ? 0 : beside_master;
    bool mixture = j->spec.layout.experts > 0, dropped = mixture && c->accumulation == 1;
    bool once = c->accumulation > 1 && reduces_once(c, j->config);
    double gathered = mixture      ? (dropped ? -kept * u->inner : 0)
                      : c->reshard ? narrow * u->inner
                                   : 0,
           values = held.bytes + u->work;
    double whole = shards > 1 ? 4 * (once ? held.trained : u->inner) + gathered : 0;
    double slices = master_bytes(&j->model, kept) + (shards > 1 && dropped ? 0 : 4),
           expert_slices = master_bytes(&j->model, kept_experts) + (of_experts > 1 && dropped ? 0 : 4);
    if (of_experts > 1 && once)
        whole += 4 * held.experts;
    if (d->device.host_memory) /* in memory that the ranks of a node share */
        kept /= shards, kept_experts /= of_experts, whole = 0;
    return held.trained * ((slices + state) / shards + kept) +
           held.experts * ((expert_slices + state) / of_experts + kept_experts) +
           (mixture && !once ? fmax(whole, values) : whole + values);
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

/* Elements that a pipeline's ranks gather in a step, together, without experts over ep. Weights that stay are gathered
 * once; others for each forward and each backward, but not the embedding's for its backward, nor where a run that reads
 * them again follows: in a pipeline this may be so of the first and the last unit of each stage. */
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
    bool once = size[NDP_PP] > 1 || reduces_once(c, b->d->job->config);
    double weights = b->price->gpu ? gathered(u, c) / size[NDP_PP] : 0; /* 0: in memory that ranks share */
    double narrow = (double)ndp_dtype_size(b->d->job->model.compute), sums = 4 * b->price->gradient_bytes;
    double own = u->trained / size[NDP_PP],
           shard_bytes = (double)(shards - 1) / shards * (own * sums * (once ? 1 : c->accumulation) + weights * narrow),
           copy_bytes = 2 * sums * own / shards * (copies - 1) / copies;
    ndp_group_rate shard, replicate;
    NDP_TRY(rates_of_data(b, size, &shard, &replicate));
    ndp_group_rate experts = {0};
    double expert_bytes = 0, parts = expert_shards(size);
    if (u->experts > 0 && parts > 1) { /* their gradients, and their weights once */
        NDP_TRY(rate_of_groups(b, size[NDP_EP], (int)parts, shard.pattern, &experts));
        expert_bytes = (parts - 1) / parts * u->experts / size[NDP_PP] *
                       (sums * (once ? 1 : c->accumulation) + (b->price->gpu ? narrow : 0));
    }
    *seconds = 0;
    for (int l = 0; l < NDP_LINK_LEVELS; l++)
        *seconds = fmax(*seconds, shard_bytes * shard.seconds[l] + copy_bytes * replicate.seconds[l] +
                                      expert_bytes * experts.seconds[l]);
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
    ndp_update_cost update;
    NDP_TRY(least_sent(b, u, c, &sent));
    NDP_TRY(ndp_first_update(b, c, &update));
    *out =
        fmax(c->accumulation * u->seconds / pp * pipeline_factor(c) + update.all / pp, sent) + b->price->facts->fixed;
    return NDP_OK;
}

/* How long a schedule takes with the costs of a cut. */
typedef struct ndp_pipe_time {
    const ndp_cut_cost *of; /* NULL: an empty slot */
    int pp, schedule, virtual_stages, micro_batches;
    double seconds; /* negative: there is no such schedule */
    ndp_rank_held held;
    int inner; /* units of the rank that has the fewest, without the first and the last of the model */
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
    NDP_CHECK_MEMORY(larger.pipes, "for the schedules of a search");
    for (int i = 0; i < b->slots; i++)
        if (b->pipes[i].of)
            *slot_of(&larger, &b->pipes[i]) = b->pipes[i];
    free(b->pipes);
    b->pipes = larger.pipes, b->slots = larger.slots;
    return NDP_OK;
}

/* Units of the rank that has the fewest. */
static int fewest_inner(const ndp_pipeline *p, const ndp_cut_cost *u, const int *first) {
    int fewest = u->n_units;
    for (int r = 0; r < p->ranks; r++) {
        int own = 0;
        for (int s = 0; s < p->stages; s++)
            for (int k = first[s]; k < first[s + 1]; k++)
                own += p->rank_of[s] == r && k > 0 && k < u->n_units - 1;
        fewest = own < fewest ? own : fewest;
    }
    return fewest;
}

/* Walks each rank's row: a forward keeps a micro-batch's values until its last gradient. */
static ndp_rank_held most_held(const ndp_pipeline *p, const ndp_cut_cost *u, const int *first) {
    ndp_rank_held most = {0};
    for (int r = 0; r < p->ranks; r++) {
        double now = 0, peak = 0, trained = 0, experts = 0;
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
                trained += u->unit_trained[k], experts += u->unit_experts[k];
        if (peak > most.bytes)
            most = (ndp_rank_held){peak, trained, experts};
    }
    return most;
}

/* Between each stage and the next one, of whichever direction is faster. */
static ndp_status message_seconds(ndp_search_bounds *b, const ndp_cut_cost *u, const ndp_pipeline *table, double *out) {
    ndp_cluster_plan *p = b->price->links;
    ndp_group_rate next, before;
    int pp = table->ranks, stride = p->job->world / pp;
    NDP_TRY(rate_of_groups(b, stride, pp, NDP_SENDS_NEXT, &next));
    NDP_TRY(rate_of_groups(b, stride, pp, NDP_SENDS_BEFORE, &before));
    for (int s = 0; s + 1 < table->stages; s++) {
        int level =
            ndp_cluster_level_between(&p->cluster, &p->map, table->rank_of[s] * stride, table->rank_of[s + 1] * stride);
        const ndp_group_links forth = ndp_group_links_through(&next.links, level),
                              back = ndp_group_links_through(&before.links, level);
        out[s] = fmin(ndp_cluster_plan_seconds(p, &forth, NDP_SEND, pp, u->message),
                      ndp_cluster_plan_seconds(p, &back, NDP_SEND, pp, u->message));
    }
    return NDP_OK;
}

/* Replays the table of a candidate whose stages have the units that a job would give them. */
static ndp_status replay_table(ndp_search_bounds *b, const ndp_cut_cost *u, const ndp_plan_way *c, ndp_replay_costs *k,
                               double *seconds, int *inner, ndp_rank_held *held) {
    ndp_pipeline p;
    NDP_TRY(ndp_pipeline_make(c->schedule, c->layout.size[NDP_PP], c->virtual_stages, c->accumulation, &p));
    int *first = calloc((size_t)p.stages + 1, sizeof *first);
    double *messages = calloc((size_t)p.stages + 1, sizeof *messages);
    ndp_status st = NDP_MEMORY(first && messages, "for %d stages", p.stages);
    if (st == NDP_OK)
        st = ndp_stage_cut(&b->whole, u->rated, p.stages, NULL, 0, first);
    if (st == NDP_OK)
        st = message_seconds(b, u, &p, messages);
    k->message = messages;
    if (st == NDP_OK)
        st = ndp_replay_units(&p, u, first, k, seconds);
    if (st == NDP_OK)
        *inner = fewest_inner(&p, u, first);
    if (st == NDP_OK && held)
        *held = most_held(&p, u, first);
    free(first);
    free(messages);
    k->message = NULL;
    ndp_pipeline_release(&p);
    return st;
}

/* Of each unit, in four arrays; of its experts over ep, or of all else. Returns the sum of all in *sum. */
static ndp_status cost_of_data(ndp_search_bounds *b, const ndp_cut_cost *u, const int *size, bool experts,
                               double *const of[4], double *sum) {
    ndp_cluster_plan *p = b->price->links;
    double shards = experts ? expert_shards(size) : size[NDP_DP_SHARD] * size[NDP_CP] * size[NDP_SP],
           copies = size[NDP_DP_REPLICATE];
    const double *elements = experts ? u->unit_experts : u->unit_trained;
    double narrow = (double)ndp_dtype_size(b->d->job->model.compute), sums = 4 * b->price->gradient_bytes;
    ndp_group_rate shard, replicate;
    NDP_TRY(rates_of_data(b, size, &shard, &replicate));
    if (experts)
        NDP_TRY(rate_of_groups(b, size[NDP_EP], (int)shards, shard.pattern, &shard));
    for (int i = 0; i < u->n_units; i++) {
        double whole = elements[i] * (shards - 1) / shards;
        double slices = 2 * sums * elements[i] / shards * (copies - 1) / copies;
        bool any = elements[i] > 0;
        of[0][i] = any && b->price->gpu
                       ? ndp_cluster_plan_seconds(p, &shard.links, NDP_ALL_GATHER, (int)shards, narrow * whole)
                       : 0;
        of[1][i] = any ? ndp_cluster_plan_seconds(p, &shard.links, NDP_REDUCE_SCATTER, (int)shards, sums * whole) : 0;
        of[2][i] = any ? ndp_cluster_plan_seconds(p, &replicate.links, NDP_ALL_REDUCE, (int)copies, slices) : 0;
        for (int l = 0; l < NDP_LINK_LEVELS; l++)
            if (shard.seconds[l] > 0)
                of[3][i] = fmax(of[3][i], slices * replicate.seconds[l]);
        *sum += of[0][i] + of[1][i] + of[2][i];
    }
    return NDP_OK;
}

/* A rank updates its matrices when its gradients are summed. With the costs of other rows, stages may differ from those
 * of the job, by a unit and a tenth. */
static ndp_status with_update(ndp_search_bounds *b, const ndp_cut_cost *u, const ndp_plan_way *c, double seconds,
                              int inner, double *out) {
    bool same = u->whole_rows == b->d->job->config->data.sequence_length * c->micro_batch;
    ndp_update_cost update;
    NDP_TRY(ndp_first_update(b, c, &update));
    *out =
        (same ? 1 - 1e-9 : 0.9) * seconds + (same ? inner : fmax(inner - 1, 0)) * update.inner + b->price->facts->fixed;
    return NDP_OK;
}

ndp_status ndp_least_step(ndp_search_bounds *b, const ndp_cut_cost *u, const ndp_plan_way *c, double *seconds) {
    size_t n = (size_t)u->n_units;
    double *all = calloc(8 * n, sizeof *all), *of[8], sum[2] = {0};
    int inner;
    NDP_CHECK_MEMORY(all, "for the costs of %d units", u->n_units);
    for (int i = 0; i < 8; i++)
        of[i] = all + (size_t)i * n;
    ndp_status st = cost_of_data(b, u, c->layout.size, false, of, &sum[0]);
    if (st == NDP_OK && u->experts > 0)
        st = cost_of_data(b, u, c->layout.size, true, of + 4, &sum[1]);
    double *const *more = sum[1] > sum[0] ? of + 4 : of; /* those with less are left out */
    ndp_replay_costs k = {NULL, c->reshard, more[0], more[1], more[2], more[3]};
    if (st == NDP_OK)
        st = replay_table(b, u, c, &k, seconds, &inner, NULL);
    free(all);
    return st == NDP_OK ? with_update(b, u, c, *seconds, inner, seconds) : st;
}

ndp_status ndp_least_pipeline(ndp_search_bounds *b, const ndp_cut_cost *u, const ndp_plan_way *c, double *seconds,
                              ndp_rank_held *held) {
    ndp_pipe_time key = {u, c->layout.size[NDP_PP], c->schedule, c->virtual_stages, c->accumulation, -1, {0, 0, 0}, 0};
    ndp_replay_costs messages = {0};
    NDP_TRY(grow_pipes(b));
    ndp_pipe_time *slot = slot_of(b, &key);
    if (!slot->of) {
        ndp_status st = replay_table(b, u, c, &messages, &key.seconds, &key.inner, &key.held);
        if (st == NDP_ENOMEM || st == NDP_EBUG)
            return st;
        ndp_error_set(NDP_OK, "");
        *slot = key;
        b->n_pipes++;
    }
    *held = slot->held;
    return slot->seconds >= 0 ? with_update(b, u, c, slot->seconds, slot->inner, seconds)
                              : NDP_FAIL(NDP_EINVAL, "there is no such schedule");
}
