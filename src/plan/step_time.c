/* The step by simulation (step/simulate.h). A long step repeats a range whose iterations take the same time once the
 * pipeline is in its rhythm: then the time of all follows from that of a few. `settled` says when, to 1e-12. */
#include "plan/step_time.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAME_OF(NAME, name) #name,
static const char *const names[] = {NDP_TIME_PARTS_LIST(NAME_OF)};
const char *ndp_time_part_name(int part) { return names[part]; }

typedef struct rank_time {
    double parts[NDP_TIME_PARTS], exposed[NDP_GROUPS * NDP_COLLECTIVES], flops, hardware_flops;
    double until[NDP_UNTIL]; /* where it leaves its repeated range */
} rank_time;

typedef struct step_replay {
    const ndp_program *const *programs;
    const ndp_device_price *price;
    int n;
    rank_time *ranks; /* by program */
    double makespan;
} step_replay;

/* ---- what time goes to ---- */

static ndp_time_part part_of_group(int channel, ndp_collective kind) {
    ndp_group_kind group = ndp_channel_group(channel);
    bool gathers = channel >= NDP_CHANNEL_GATHERS && channel < NDP_CHANNEL_FORWARD;
    if (gathers || (kind == NDP_ALL_GATHER && ndp_group_spans(group, NDP_DP_SHARD)))
        return NDP_TIME_GATHER;
    return group == NDP_GROUP_TP || group == NDP_GROUP_KV ? NDP_TIME_TP
           : group == NDP_GROUP_CP                        ? NDP_TIME_CP
           : group == NDP_GROUP_SP                        ? NDP_TIME_SP
           : group == NDP_GROUP_PP                        ? NDP_TIME_PP
                                                          : NDP_TIME_REDUCE;
}

/* What a wait is longer than the communication takes, where it is between stages: those are not alike. */
static void add_wait(const step_replay *r, int i, const ndp_instr *in, const ndp_call *c, double seconds) {
    double *parts = r->ranks[i].parts, own = seconds;
    if (ndp_group_spans(ndp_channel_group(c->channel), NDP_PP))
        own = fmin(seconds, ndp_device_seconds(r->price, r->programs[i], in, c));
    parts[part_of_group(c->channel, c->op->collective)] += own;
    r->ranks[i].exposed[(int)ndp_channel_group(c->channel) * NDP_COLLECTIVES + (int)c->op->collective] += own;
    parts[NDP_TIME_BUBBLE] += seconds - own;
}

static void add_kernel(const step_replay *r, int i, const ndp_instr *in, const ndp_call *c, double seconds,
                       int64_t times) {
    static const ndp_time_part of_kind[] = {[NDP_KERNEL_MATMUL] = NDP_TIME_MATMUL,
                                            [NDP_KERNEL_ATTENTION] = NDP_TIME_ATTENTION,
                                            [NDP_KERNEL_MEMORY] = NDP_TIME_MEMORY_BOUND};
    rank_time *t = &r->ranks[i];
    double launch = fmin(seconds, (double)times * ndp_priced_launch(r->price));
    bool update = ndp_step_part_of(in) == NDP_PART_UPDATE;
    ndp_kernel_kind kind = ndp_kernel_kind_of(c);
    t->parts[NDP_TIME_LAUNCH] += launch;
    t->parts[update ? NDP_TIME_OPTIMIZER : of_kind[kind]] += seconds - launch;
    if (update || kind == NDP_KERNEL_MEMORY)
        return;
    double flops = (double)times * ndp_priced_flops(r->price, c);
    t->hardware_flops += flops;
    t->flops += ndp_step_part_of(in) == NDP_PART_RECOMPUTE ? 0 : flops;
}

static void spend(void *into, int i, const ndp_instr *in, const ndp_call *c, double seconds, int64_t times) {
    const step_replay *r = into;
    if (!in)
        r->ranks[i].parts[NDP_TIME_BUBBLE] += seconds;
    else if (c->kind == NDP_CALL_KERNEL)
        add_kernel(r, i, in, c, seconds, times);
    else
        add_wait(r, i, in, c, seconds);
}

static void leave(void *into, int i, const double until[NDP_UNTIL]) {
    const step_replay *r = into;
    memcpy(r->ranks[i].until, until, sizeof r->ranks[i].until);
}

/* ---- the replay ---- */

static ndp_status run(step_replay *r, ndp_visits visits) {
    ndp_step_costs costs = ndp_device_costs(r->price);
    costs.spent = spend, costs.into = r, costs.leaves = leave, costs.visits = visits;
    ndp_simulation s;
    memset(r->ranks, 0, (size_t)r->n * sizeof *r->ranks);
    ndp_status st = ndp_simulate(r->programs, r->n, &costs, &s);
    r->makespan = s.makespan;
    ndp_simulation_release(&s);
    return st;
}

/* The fewest iterations that a program has of its one range, each of as many micro-batches as those of the others; 0:
 * they do not all have such a range. Without some of them on every rank, programs are those of a shorter step. */
static int64_t iterations_of(const step_replay *r) {
    int64_t fewest = INT64_MAX;
    for (int i = 0; i < r->n; i++) {
        const ndp_repeats *own = &r->programs[i]->repeats, *first = &r->programs[0]->repeats;
        if (own->n != 1 || own->items[0].micro_batches != first->items[0].micro_batches)
            return 0;
        fewest = own->items[0].times < fewest ? own->items[0].times : fewest;
    }
    return fewest;
}

/* Instructions of all programs without so many iterations. */
static double work_without(const step_replay *r, int64_t iterations) {
    double n = 0;
    for (int i = 0; i < r->n; i++) {
        const ndp_repeat *own = &r->programs[i]->repeats.items[0];
        n += r->programs[i]->n + (double)(own->times - 1 - iterations) * own->n;
    }
    return n;
}

enum { NUMBERS = (int)(offsetof(rank_time, until) / sizeof(double)), FIRST_FLOPS = NUMBERS - 2 };

/* Whether one more iteration adds the same to all numbers, and delays all that ranks and links do after it alike: where
 * one still gains on another, the next iterations take other times once it has caught up. */
static bool adds_alike(const step_replay runs[3], int i) {
    const rank_time *x = &runs[0].ranks[i], *y = &runs[1].ranks[i], *z = &runs[2].ranks[i];
    const double *of[] = {(const double *)x, (const double *)y, (const double *)z};
    double all = runs[2].makespan, b = runs[2].makespan - runs[1].makespan;
    bool same = true;
    for (int k = 0; k < NUMBERS && same; k++)
        same = fabs((of[2][k] - of[1][k]) - (of[1][k] - of[0][k])) <= 1e-12 * (k >= FIRST_FLOPS ? of[2][k] : all);
    for (int k = 0; k < NDP_UNTIL && same; k++)
        same = fabs(z->until[k] - y->until[k] - b) <= 1e-12 * all && fabs(y->until[k] - x->until[k] - b) <= 1e-12 * all;
    return same;
}

/* Whether two replays with one more iteration each added the same; then adds `more` times that to the last. */
static bool settled(const step_replay runs[3], double more, step_replay *out) {
    double a = runs[1].makespan - runs[0].makespan, b = runs[2].makespan - runs[1].makespan;
    bool same = fabs(a - b) <= 1e-12 * runs[2].makespan;
    for (int i = 0; i < out->n && same; i++)
        same = adds_alike(runs, i);
    for (int i = 0; i < out->n && same; i++)
        for (int k = 0; k < NUMBERS; k++) {
            double y = ((const double *)&runs[1].ranks[i])[k], z = ((const double *)&runs[2].ranks[i])[k];
            ((double *)&out->ranks[i])[k] = z + more * (z - y);
        }
    out->makespan = same ? runs[2].makespan + more * b : out->makespan;
    return same;
}

/* Replays without most iterations, with more of them until they settle. *done false: they do not, as long as tries are
 * less work than all iterations. */
static ndp_status fold(step_replay *r, int64_t all, bool *done) {
    enum { RUNS = 3 };
    const double whole = work_without(r, 0);
    step_replay runs[RUNS];
    ndp_status st = NDP_OK;
    *done = false;
    for (int k = 0; k < RUNS; k++) {
        runs[k] = *r;
        runs[k].ranks = calloc((size_t)r->n, sizeof *r->ranks);
        if (!runs[k].ranks)
            st = NDP_FAIL(NDP_ENOMEM, "not enough memory to replay %d programs", r->n);
    }
    for (int64_t few = 2; few + RUNS < all / 2 && st == NDP_OK && !*done; few *= 4) {
        if (RUNS * work_without(r, all - few - 1) > whole)
            break;
        for (int k = 0; k < RUNS && st == NDP_OK; k++)
            st = run(&runs[k], (ndp_visits){1, all - few - k, false});
        *done = st == NDP_OK && settled(runs, (double)(all - few - RUNS + 1), r);
    }
    for (int k = 0; k < RUNS; k++)
        free(runs[k].ranks);
    return st;
}

static void take_comms(const step_replay *r, int i, ndp_step_time *out) {
    const ndp_program *p = r->programs[i];
    ndp_comm_event e;
    for (ndp_comm_event_cursor c = NDP_COMM_EVENTS(NDP_FIRST_USUAL); ndp_program_comm_event(p, &c, &e);) {
        ndp_step_comm *to = &out->comms[ndp_comm_event_group(&e)][ndp_comm_event_kind(&e)];
        const ndp_group_links *l = ndp_priced_links(r->price, &p->opts.step.mesh, e.call);
        double times = e.begin ? (double)ndp_repeats_times(&p->repeats, e.instr) : 0;
        to->level = l && l->n ? l->of[l->slowest].level : NDP_NONE;
        to->bytes += times * ndp_priced_bytes(r->price, &p->opts.step.mesh, e.call);
        to->seconds += times * ndp_device_seconds(r->price, p, &p->instrs[e.instr], e.call);
    }
    for (int k = 0; k < NDP_GROUPS * NDP_COLLECTIVES; k++)
        out->comms[k / NDP_COLLECTIVES][k % NDP_COLLECTIVES].exposed = r->ranks[i].exposed[k];
}

static void take_result(const step_replay *r, int alike, ndp_step_time *out) {
    int critical = 0;
    for (int i = 0; i < r->n; i++) {
        const double *bubble = &r->ranks[critical].parts[NDP_TIME_BUBBLE];
        critical = r->ranks[i].parts[NDP_TIME_BUBBLE] < *bubble ? i : critical;
        out->flops += alike * r->ranks[i].flops;
        out->hardware_flops += alike * r->ranks[i].hardware_flops;
    }
    memcpy(out->parts, r->ranks[critical].parts, sizeof out->parts);
    take_comms(r, critical, out);
    out->critical_rank = r->programs[critical]->opts.step.mesh.rank;
    out->parts[NDP_TIME_FIXED] = r->price->facts->fixed;
    for (int k = 0; k < NDP_TIME_PARTS; k++)
        out->seconds += out->parts[k];
}

ndp_status ndp_step_time_of_programs(const ndp_program *const *programs, int n, int alike,
                                     const ndp_device_price *price, ndp_step_time *out) {
    step_replay r = {programs, price, n, calloc((size_t)n + 1, sizeof *r.ranks), 0};
    *out = (ndp_step_time){0};
    NDP_CHECK_MEMORY(r.ranks, "to replay %d programs", n);
    bool done = false;
    int64_t all = iterations_of(&r);
    ndp_status st = all > 0 ? fold(&r, all, &done) : NDP_OK;
    if (st == NDP_OK && !done)
        st = run(&r, NDP_USUAL_ITERATIONS);
    if (st == NDP_OK)
        take_result(&r, alike, out);
    free(r.ranks);
    return st;
}

ndp_status ndp_step_time_of(const ndp_dry_run *d, const ndp_model *m, const ndp_device_price *price, double room,
                            ndp_step_time *out, ndp_plan_need *need) {
    int n = d->job->layout.size[NDP_PP], alike = d->job->world / n;
    *need = (ndp_plan_need){0};
    ndp_engine **engines = calloc((size_t)n, sizeof *engines);
    const ndp_program **programs = calloc((size_t)n, sizeof *programs);
    ndp_status st = NDP_MEMORY(engines && programs, "for the programs of %d stages", n);
    for (int i = 0; i < n && st == NDP_OK; i++) {
        st = ndp_plan_engine(d, m, i * alike, &engines[i]);
        programs[i] = st == NDP_OK ? ndp_engine_program(engines[i]) : NULL;
        int64_t bytes = st == NDP_OK ? ndp_engine_memory_of(engines[i]).device : 0;
        if (bytes > need->peak)
            *need = (ndp_plan_need){.rank = i * alike, .peak = bytes};
    }
    if (st == NDP_OK && (double)need->peak <= room)
        st = ndp_step_time_of_programs(programs, n, alike, price, out);
    for (int i = 0; i < n && engines; i++)
        ndp_engine_destroy(engines[i]);
    free(engines);
    free(programs);
    return st;
}

/* ---- an evaluation ---- */

/* The scoring programs of all stages. */
static ndp_status time_passes(const ndp_dry_run *d, const ndp_device_price *price, ndp_step_time *out) {
    int n = d->job->layout.size[NDP_PP], alike = d->job->world / n, built = 0;
    ndp_model *models = calloc((size_t)n, sizeof *models);
    ndp_engine **engines = calloc((size_t)n, sizeof *engines);
    const ndp_program **programs = calloc((size_t)n, sizeof *programs);
    ndp_status st = NDP_MEMORY(models && engines && programs, "for the programs of %d stages", n);
    while (built < n && st == NDP_OK) {
        st = ndp_plan_score_engine(d, built * alike, NULL, &models[built], &engines[built]);
        if (st == NDP_OK)
            programs[built] = ndp_engine_program(engines[built]), built++;
    }
    ndp_device_price_forget(price);
    if (st == NDP_OK)
        st = ndp_step_time_of_programs(programs, n, alike, price, out);
    ndp_device_price_forget(price);
    for (int i = 0; i < built; i++) {
        ndp_engine_destroy(engines[i]);
        ndp_model_release(&models[i]);
    }
    free(models);
    free(engines);
    free(programs);
    return st;
}

ndp_status ndp_plan_pass_time(const ndp_dry_run *d, const ndp_device_price *price, int micro_batches,
                              ndp_step_time *out) {
    ndp_job j = *d->job;
    ndp_dry_run of = *d; /* whose device stays that of `d` */
    bool shorter = j.forward.ranks && micro_batches != j.forward.micro_batches;
    of.job = &j;
    if (shorter) {
        j.forward = (ndp_pipeline){0};
        NDP_TRY(ndp_pipeline_forward(&j.pipeline, micro_batches, &j.forward));
    }
    ndp_status st = time_passes(&of, price, out);
    if (shorter)
        ndp_pipeline_release(&j.forward);
    return st;
}

/* ---- the whole ---- */

static ndp_status time_on(const ndp_dry_run *d, ndp_cluster_plan *links, ndp_step_time *out) {
    ndp_device_price price;
    ndp_plan_need unused;
    ndp_model m;
    NDP_TRY(ndp_model_build(&d->job->spec, &d->job->model, &m));
    ndp_status st = ndp_device_price_init(d, links, &price);
    if (st == NDP_OK) {
        st = ndp_step_time_of(d, &m, &price, INFINITY, out, &unused);
        ndp_device_price_release(&price);
    }
    ndp_model_release(&m);
    return st;
}

ndp_status ndp_plan_step_time(const ndp_job *j, const ndp_plan_opts *o, ndp_step_time *out) {
    ndp_cluster_plan links;
    ndp_dry_run d;
    NDP_TRY(ndp_cluster_plan_open(j, o, &links));
    ndp_status st = ndp_dry_run_init(&d, j, ndp_rank_map_block(&links.map), 0);
    if (st == NDP_OK) {
        links.rings = !d.device.host_memory && !d.exec.staged;
        st = time_on(&d, &links, out);
    }
    ndp_cluster_plan_release(&links);
    return st;
}

void ndp_step_time_scale(ndp_step_time *t, double scale) {
    t->seconds *= scale;
    for (int k = 0; k < NDP_TIME_PARTS; k++)
        t->parts[k] *= scale;
    for (int k = 0; k < NDP_GROUPS * NDP_COLLECTIVES; k++) {
        ndp_step_comm *c = &t->comms[k / NDP_COLLECTIVES][k % NDP_COLLECTIVES];
        c->seconds *= scale, c->exposed *= scale;
    }
}

int ndp_step_time_bound(const ndp_step_time *t) {
    int bound = 0;
    for (int k = 0; k < NDP_TIME_PARTS; k++)
        bound = t->parts[k] > t->parts[bound] ? k : bound;
    return bound;
}

void ndp_step_time_words(const ndp_step_time *t, ndp_str *out) {
    ndp_str_addf(out, "%s:", names[ndp_step_time_bound(t)]);
    for (int k = 0; k < NDP_TIME_PARTS; k++)
        if (t->parts[k] >= 0.01 * t->seconds)
            ndp_str_addf(out, " %s %.0f%%", names[k], 100 * t->parts[k] / t->seconds);
    ndp_str_add(out, "\n");
}

double ndp_step_time_peak(const ndp_job *j, const ndp_device_price *price) {
    const double *flops = price->links->cluster.facts.flops;
    bool narrow = j->config->precision.compute == NDP_BF16 && flops[NDP_RATE_BF16] > 0;
    return flops[j->planned.fp8 ? NDP_RATE_FP8 : narrow ? NDP_RATE_BF16 : NDP_RATE_FP32];
}
