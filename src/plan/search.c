/* The search for the fastest layouts of a job on a cluster: best first. A candidate enters a heap with a bound that no
 * program of its kind beats (search_bounds.h); one that comes out has its bound made tighter, and in the end its
 * programs are built and its step simulated, as plan does for any layout. When the next bound is above the time of the
 * last result that is shown, no other candidate can be among them.
 *
 * The job's global batch stays; what is chosen is the layout (with ep where there are mixtures), the micro-batch,
 * recompute, reshard_after_forward, and for a pipeline the schedule and its virtual stages. */
#include "plan/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How far a candidate is. CUT stands for all with one size of tp and ep, rows of a rank and recompute, which cost the
 * same for each row but for what cp and sp add; COUNTED: with that, and the table of the schedule; REPLAYED: and what
 * data ranks send. */
typedef enum level { CUT, BOUND, COUNTED, REPLAYED } level;

typedef struct entry {
    ndp_plan_way c;
    int64_t rows; /* of a rank, in a micro-batch */
    double bound; /* seconds */
    level level;
} entry;

/* Legal layouts. */
typedef struct layouts {
    ndp_layout *items;
    int n;
    int64_t capacity;
} layouts;

typedef struct search {
    const ndp_plan_seek *of;
    ndp_config way; /* the job's, with what a candidate says */
    ndp_search_bounds bounds;
    ndp_known_links links;
    layouts layouts;
    entry *heap;
    int n;
    int64_t capacity;
    entry *fallen; /* those that twice the memory would let in, as they were when they fell */
    int n_fallen;
    int64_t fallen_capacity;
    double room, doubled; /* bytes that a rank may have, of a device and of one with twice the memory; infinite: not
                             known */
    double worst;         /* seconds of the last one shown, once there are as many as that */
    int shown, most_priced;
    ndp_found *out;
} search;

/* ---- the heap ---- */

/* Of equal bounds, the candidate that is further; then the order in which they were listed does not matter, since equal
 * times are sorted at the end. */
static bool before(const entry *a, const entry *b) {
    return a->bound < b->bound || (a->bound == b->bound && a->level > b->level);
}

static ndp_status push(search *s, const entry *e) {
    NDP_TRY(ndp_array_reserve(&s->heap, &s->capacity, s->n + 1, sizeof *s->heap));
    int at = s->n++;
    for (; at > 0 && before(e, &s->heap[(at - 1) / 2]); at = (at - 1) / 2)
        s->heap[at] = s->heap[(at - 1) / 2];
    s->heap[at] = *e;
    return NDP_OK;
}

static entry pop(search *s) {
    const entry first = s->heap[0], last = s->heap[--s->n];
    int at = 0;
    for (int child; (child = 2 * at + 1) < s->n; at = child) {
        child += child + 1 < s->n && before(&s->heap[child + 1], &s->heap[child]);
        if (before(&last, &s->heap[child]))
            break;
        s->heap[at] = s->heap[child];
    }
    s->heap[at] = last;
    return first;
}

/* ---- candidates ---- */

typedef ndp_status visitor(search *s, entry *e);

/* Schedules of a pipeline: the generated ones, with 1 to 8 virtual stages where a layer is left for each. */
static ndp_status each_schedule(search *s, entry *e, visitor *visit) {
    static const int stages[] = {1, 2, 3, 4, 6, 7, 8};
    int pp = e->c.layout.size[NDP_PP], layers = s->of->d->job->spec.layout.layers;
    e->c.virtual_stages = 1;
    if (pp == 1)
        return visit(s, e);
    for (int kind = 0; kind < NDP_PIPELINE_FILE; kind++)
        for (int i = 0; i < NDP_COUNT(stages); i++) {
            const ndp_pipeline_info *info = &ndp_pipeline_table[kind];
            bool wanted = s->of->only_schedule < 0 || s->of->only_schedule == kind;
            if (!wanted || stages[i] < info->fewest || stages[i] > info->most || pp * stages[i] > layers)
                continue;
            e->c.schedule = (ndp_pipeline_kind)kind, e->c.virtual_stages = stages[i];
            NDP_TRY(visit(s, e));
        }
    return NDP_OK;
}

/* Of a layout and micro-batch: whether gathered weights are kept, which only shards ask. */
static ndp_status each_form(search *s, entry *e, visitor *visit) {
    const int *size = e->c.layout.size;
    int shards = size[NDP_DP_SHARD] * size[NDP_CP] * size[NDP_SP];
    for (int reshard = 0; reshard < 2; reshard++) {
        e->c.reshard = reshard;
        if (shards > 1 || reshard == s->of->d->job->config->parallelism.reshard_after_forward)
            NDP_TRY(each_schedule(s, e, visit));
    }
    return NDP_OK;
}

static int64_t rows_of(const search *s, const ndp_layout *l, int micro_batch) {
    return s->of->d->job->config->data.sequence_length * micro_batch / (l->size[NDP_CP] * l->size[NDP_SP]);
}

static ndp_status count_one(search *s, entry *e) {
    (void)e;
    s->out->considered++;
    return NDP_OK;
}

/* Whether the parts of one rank's tensors are as large. */
static bool same_parts(const ndp_layout *a, const ndp_layout *b) {
    return a->size[NDP_TP] == b->size[NDP_TP] && a->size[NDP_EP] == b->size[NDP_EP];
}

static bool in_heap(const search *s, const entry *e) {
    for (int i = 0; i < s->n; i++)
        if (s->heap[i].rows == e->rows && same_parts(&s->heap[i].c.layout, &e->c.layout) &&
            s->heap[i].c.recompute == e->c.recompute)
            return true;
    return false;
}

/* All micro-batches that divide the samples of a data rank, and ways to recompute: their cuts enter the heap. */
static ndp_status list_cuts(search *s, const ndp_layout *l) {
    const ndp_job *j = s->of->d->job;
    int samples = j->batch.global_batch / (l->size[NDP_DP_REPLICATE] * l->size[NDP_DP_SHARD]);
    int least = ndp_config_least_rows(j->config);
    for (int micro = least; micro <= samples; micro += least) {
        if (samples % micro != 0 || ndp_plan_way_dominated(l, micro) ||
            (int64_t)micro * j->config->data.sequence_length > INT32_MAX)
            continue;
        for (int recompute = NDP_RECOMPUTE_NONE; recompute <= NDP_RECOMPUTE_SELECTIVE; recompute++) {
            entry e = {.c = {.layout = *l, .micro_batch = micro, .recompute = (ndp_recompute)recompute},
                       .rows = rows_of(s, l, micro)};
            if (recompute == NDP_RECOMPUTE_SELECTIVE && (int)j->config->train.recompute != recompute)
                continue;
            NDP_TRY(each_form(s, &e, count_one));
            if (!in_heap(s, &e))
                NDP_TRY(push(s, &e));
        }
    }
    return NDP_OK;
}

static ndp_status list_layout(search *s, const ndp_layout *l) {
    const ndp_job *j = s->of->d->job;
    ndp_layout legal = *l;
    if (ndp_layout_resolve(&legal, j->world, &j->spec.layout) != NDP_OK ||
        j->batch.global_batch % (l->size[NDP_DP_REPLICATE] * l->size[NDP_DP_SHARD]) != 0) {
        ndp_error_set(NDP_OK, "");
        s->out->considered++, s->out->by_rule++;
        return NDP_OK;
    }
    NDP_TRY(ndp_array_reserve(&s->layouts.items, &s->layouts.capacity, s->layouts.n + 1, sizeof *s->layouts.items));
    s->layouts.items[s->layouts.n++] = *l;
    return list_cuts(s, l);
}

/* With every ep that divides a replica, as far as there are experts. */
static ndp_status list_experts(search *s, ndp_layout l) {
    int replica = l.size[NDP_DP_SHARD] * l.size[NDP_CP] * l.size[NDP_SP] * l.size[NDP_TP];
    int experts = s->of->d->job->spec.layout.experts, most = s->of->most[NDP_EP];
    for (int ep = 1; ep == 1 || (ep <= experts && ep <= most && ep <= replica); ep++)
        if (replica % ep == 0) {
            l.size[NDP_EP] = ep;
            NDP_TRY(list_layout(s, &l));
        }
    return NDP_OK;
}

static ndp_status list_layouts(search *s, ndp_layout l, int axis, int left) {
    if (axis == NDP_AXES)
        return left == 1 ? list_experts(s, l) : NDP_OK;
    for (int size = 1; size <= left; size++)
        if (left % size == 0 && size <= s->of->most[axis]) {
            l.size[axis] = size;
            NDP_TRY(list_layouts(s, l, axis + 1, left / size));
        }
    return NDP_OK;
}

/* ---- one candidate ---- */

static ndp_status fell_for_memory(search *s, const entry *e, double bytes) {
    if (s->out->by_memory++ == 0 || bytes < s->out->least_bytes)
        s->out->least = e->c, s->out->least_bytes = bytes;
    if (bytes > s->doubled || e->bound >= s->worst || s->room == s->doubled)
        return NDP_OK;
    NDP_TRY(ndp_array_reserve(&s->fallen, &s->fallen_capacity, s->n_fallen + 1, sizeof *s->fallen));
    s->fallen[s->n_fallen++] = *e;
    return NDP_OK;
}

static ndp_status cut_of(search *s, const entry *e, bool counted, const ndp_cut_cost **out) {
    ndp_cut_cost cut = ndp_cut_of(s->of->d->job, &e->c);
    if (!counted)
        cut.cp = cut.sp = 1;
    return ndp_cut_cost_of(&s->bounds, &cut, out);
}

/* Whether an error is one of a candidate, which falls: heads that tp does not divide, blocks of codes that it cuts. */
static bool breaks_a_rule(search *s, ndp_status st) {
    if (st == NDP_OK || st == NDP_ENOMEM || st == NDP_EBUG)
        return false;
    ndp_error_set(NDP_OK, "");
    s->out->by_rule++;
    return true;
}

/* A candidate enters the heap with its bound, unless it cannot fit. */
static ndp_status bound_one(search *s, entry *e) {
    const ndp_cut_cost *u;
    ndp_status st = cut_of(s, e, false, &u);
    if (breaks_a_rule(s, st))
        return NDP_OK;
    NDP_TRY(st);
    double bytes = ndp_least_bytes(s->of->d, u, &e->c, ndp_mean_held(u, &e->c));
    if (bytes <= s->doubled)
        NDP_TRY(ndp_least_seconds(&s->bounds, u, &e->c, &e->bound));
    e->level = BOUND;
    return bytes > s->room ? fell_for_memory(s, e, bytes) : push(s, e);
}

/* All candidates of a cut. */
static ndp_status open_cut(search *s, const entry *cut) {
    const ndp_job *j = s->of->d->job;
    for (int i = 0; i < s->layouts.n; i++) {
        const ndp_layout *l = &s->layouts.items[i];
        int64_t length = j->config->data.sequence_length, parts = l->size[NDP_CP] * l->size[NDP_SP];
        int64_t micro = (cut->rows * parts + length - 1) / length; /* rows are rounded down */
        int ranks = l->size[NDP_DP_REPLICATE] * l->size[NDP_DP_SHARD], samples = j->batch.global_batch / ranks;
        if (!same_parts(l, &cut->c.layout) || micro < 1 || micro > samples || samples % micro != 0 ||
            micro % ndp_config_least_rows(j->config) != 0 || ndp_plan_way_dominated(l, (int)micro) ||
            rows_of(s, l, (int)micro) != cut->rows)
            continue;
        entry e = {.c = {.layout = *l,
                         .micro_batch = (int)micro,
                         .accumulation = (int)(samples / micro),
                         .recompute = cut->c.recompute},
                   .rows = cut->rows};
        NDP_TRY(each_form(s, &e, bound_one));
    }
    return NDP_OK;
}

/* A job that breaks a rule (heads, micro-batches of a schedule) falls. */
static ndp_status take_job(search *s, const entry *e, ndp_job *j, bool *legal) {
    ndp_plan_way_apply(&e->c, &s->way);
    ndp_status st = ndp_job_init_like(s->of->d->job, &s->way, s->of->d->job->world, j);
    *legal = st == NDP_OK;
    return breaks_a_rule(s, st) ? NDP_OK : st;
}

/* The rank of a candidate that keeps the most. */
static ndp_status held_of(search *s, const entry *e, const ndp_cut_cost *u, double *pipeline, ndp_rank_held *out) {
    *out = ndp_mean_held(u, &e->c);
    *pipeline = 0;
    return e->c.layout.size[NDP_PP] > 1 ? ndp_least_pipeline(&s->bounds, u, &e->c, pipeline, out) : NDP_OK;
}

static ndp_status count(search *s, entry *e) {
    const ndp_cut_cost *u;
    double seconds, pipeline;
    NDP_TRY(cut_of(s, e, true, &u));
    NDP_TRY(ndp_least_seconds(&s->bounds, u, &e->c, &seconds));
    ndp_rank_held held;
    ndp_status st = held_of(s, e, u, &pipeline, &held);
    if (breaks_a_rule(s, st))
        return NDP_OK;
    NDP_TRY(st);
    double bytes = 0.98 * ndp_least_bytes(s->of->d, u, &e->c, held); /* stages may differ from those of the job */
    e->bound = fmax(e->bound, fmax(seconds, pipeline));
    e->level = COUNTED;
    return bytes > s->room ? fell_for_memory(s, e, bytes) : push(s, e);
}

/* Keeps the results in the order of their times; the slowest gives way where there are as many as are shown. */
static void keep(search *s, const ndp_priced_way *r) {
    ndp_found *f = s->out;
    int at = f->n < s->shown ? f->n++ : s->shown - 1;
    for (; at > 0 && f->results[at - 1].time.seconds > r->time.seconds; at--)
        f->results[at] = f->results[at - 1];
    f->results[at] = *r;
    s->worst = f->n == s->shown ? f->results[s->shown - 1].time.seconds : INFINITY;
}

static ndp_status price(search *s, const entry *e, const ndp_job *j) {
    ndp_priced_way r = {.c = e->c};
    s->out->priced++;
    ndp_status st = ndp_plan_price_way(s->of, &s->links, j, s->room, s->worst, &r);
    if (breaks_a_rule(s, st)) /* such as more messages under way than a channel takes */
        return NDP_OK;
    NDP_TRY(st);
    if ((double)r.need.peak > s->room)
        return fell_for_memory(s, e, (double)r.need.peak);
    if (r.time.seconds < s->worst)
        keep(s, &r);
    return NDP_OK;
}

static ndp_status replay(search *s, entry *e) {
    const ndp_cut_cost *u;
    double seconds;
    NDP_TRY(cut_of(s, e, true, &u));
    NDP_TRY(ndp_least_step(&s->bounds, u, &e->c, &seconds));
    e->bound = fmax(e->bound, seconds);
    e->level = REPLAYED;
    return push(s, e);
}

static ndp_status examine(search *s, entry *e) {
    ndp_job j;
    bool legal;
    if (e->level == COUNTED && e->c.layout.size[NDP_PP] > 1)
        return replay(s, e);
    if (e->level < COUNTED)
        return e->level == CUT ? open_cut(s, e) : count(s, e);
    NDP_TRY(take_job(s, e, &j, &legal));
    if (!legal)
        return NDP_OK;
    ndp_status st = price(s, e, &j);
    ndp_job_release(&j);
    return st;
}

/* ---- the whole ---- */

static ndp_status examine_all(search *s, bool *stopped) {
    *stopped = false;
    while (s->n > 0 && s->heap[0].bound < s->worst) {
        *stopped = (s->of->stop && s->of->stop(s->of->user)) || s->out->priced >= s->most_priced;
        if (*stopped)
            break;
        entry e = pop(s);
        NDP_TRY(examine(s, &e));
    }
    return NDP_OK;
}

/* With twice the memory, candidates that fell may be faster than the first: they are taken up where they fell. Where
 * more would be priced than before, and many, it is left open. */
static ndp_status find_doubled(search *s) {
    enum { FEW = 50 };
    ndp_found *out = s->out, more = {0};
    bool stopped = false;
    s->out = &more;
    s->n = 0;
    s->shown = 1, s->worst = out->results[0].time.seconds;
    s->room = s->doubled;
    s->most_priced = out->priced > FEW ? out->priced : FEW;
    for (int i = 0; i < s->n_fallen; i++)
        if (s->fallen[i].bound < s->worst)
            NDP_TRY(push(s, &s->fallen[i]));
    ndp_status st = examine_all(s, &stopped);
    s->out = out;
    out->doubled = more.results[0];
    out->doubled_known = !stopped;
    return st;
}

static ndp_status find_both(search *s) {
    NDP_TRY(list_layouts(s, (ndp_layout)NDP_LAYOUT_ONE, 0, s->of->d->job->world));
    NDP_TRY(examine_all(s, &s->out->stopped));
    s->out->by_bound = s->n;
    for (int i = 0; i < s->out->n; i++)
        NDP_TRY(ndp_plan_need_again(s->of, &s->out->results[i]));
    return s->out->n && !s->out->stopped ? find_doubled(s) : NDP_OK;
}

ndp_status ndp_plan_find(const ndp_plan_seek *of, ndp_found *out) {
    search s = {.of = of,
                .bounds = {.d = of->d, .price = of->price},
                .worst = INFINITY,
                .room = INFINITY,
                .doubled = INFINITY,
                .shown = NDP_SHOWN,
                .most_priced = INT32_MAX,
                .out = out};
    const ndp_plan_capacity c = ndp_plan_capacity_of(of->d, &of->price->links->cluster);
    *out = (ndp_found){0};
    if (c.bytes)
        s.room = (double)(c.bytes - c.runtime), s.doubled = s.room + (double)c.bytes;
    NDP_TRY(ndp_config_copy(of->d->job->config, &s.way));
    of->price->links->shared = &s.links;
    ndp_status st = find_both(&s);
    of->price->links->shared = NULL;
    ndp_search_bounds_release(&s.bounds);
    free(s.layouts.items);
    ndp_known_links_release(&s.links);
    ndp_config_release(&s.way);
    free(s.heap);
    free(s.fallen);
    return st;
}
