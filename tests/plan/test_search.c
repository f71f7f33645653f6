/* The search against all candidates, each priced: the same best times, and no bound above what it bounds. */
#include "plan/priced.h"
#include "plan/search.h"

#include <unistd.h>

enum { MOST_LEGAL = 20000 };

typedef struct exhaustive {
    priced p;
    ndp_plan_seek seek;
    ndp_config way;
    double room;
    ndp_search_bounds bounds;
    double *seconds;         /* of those that fit, ascending in the end */
    ndp_priced_way *fitting; /* as they were found */
    double doubled;          /* of the fastest that fits twice the memory */
    int n, legal, by_memory;
    double closest; /* the largest bound, as a part of the time that it bounds */
    double update;  /* the longest of whole matrices */
} exhaustive;

/* What a search starts from: the job with one rank, which stands for any layout of `world`. */
static void open_job(exhaustive *x, const char *cluster, int world) {
    priced *p = &x->p;
    p->config->train.ranks = 1;
    for (int axis = 0; axis < NDP_SIZES; axis++)
        p->config->parallelism.size[axis] = 1;
    CHECK_OK(ndp_job_init_planned(p->config, 0, true, &p->job));
    p->config->train.ranks = p->job.world = world;
    p->job.layout.size[NDP_DP_SHARD] = world;
    priced_open(p, cluster);
}

/* A bound is a sum in another order than what it bounds. */
static void below(const exhaustive *x, const ndp_plan_way *c, const char *what, double bound, double exact) {
    char text[160];
    if (bound > exact * (1 + 1e-9))
        fail_msg("%s, micro-batch %d, recompute %d, reshard %d, %s x %d: the bound by %s is %.12g, above %.12g (%s)",
                 ndp_layout_text(&c->layout, text, sizeof text), c->micro_batch, c->recompute, c->reshard,
                 ndp_pipeline_table[c->schedule].name, c->virtual_stages, what, bound, exact,
                 x->p.links.cluster.device);
}

static void check_bounds(exhaustive *x, const ndp_plan_way *c, const ndp_priced_way *exact) {
    const int *size = c->layout.size;
    const ndp_job *of = x->seek.d->job;
    const ndp_cut_cost *u;
    ndp_update_cost update;
    double seconds;
    ndp_cut_cost cut = {.cp = 1,
                        .sp = 1,
                        .tp = size[NDP_TP],
                        .ep = size[NDP_EP],
                        .rows = of->config->data.sequence_length * c->micro_batch / (size[NDP_CP] * size[NDP_SP]),
                        .recompute = c->recompute};
    CHECK_OK(ndp_cut_cost_of(&x->bounds, &cut, &u));
    ndp_rank_held held = ndp_mean_held(u, c);
    below(x, c, "bytes", ndp_least_bytes(x->seek.d, u, c, held), (double)exact->need.peak);
    CHECK_OK(ndp_least_seconds(&x->bounds, u, c, &seconds));
    below(x, c, "rows", seconds, exact->time.seconds);
    CHECK_OK(ndp_first_update(&x->bounds, c, &update));
    if (size[NDP_PP] == 1)
        below(x, c, "the update", update.all,
              exact->time.parts[NDP_TIME_OPTIMIZER] + exact->time.parts[NDP_TIME_LAUNCH]);
    x->update = fmax(x->update, update.all);
    cut.cp = size[NDP_CP], cut.sp = size[NDP_SP];
    CHECK_OK(ndp_cut_cost_of(&x->bounds, &cut, &u));
    CHECK_OK(ndp_least_seconds(&x->bounds, u, c, &seconds));
    below(x, c, "the cut", seconds, exact->time.seconds);
    x->closest = fmax(x->closest, seconds / exact->time.seconds);
    if (size[NDP_PP] > 1)
        CHECK_OK(ndp_least_pipeline(&x->bounds, u, c, &seconds, &held));
    below(x, c, "bytes of the fullest", 0.98 * ndp_least_bytes(x->seek.d, u, c, held), (double)exact->need.peak);
    if (size[NDP_PP] == 1)
        return;
    below(x, c, "the table of the schedule", seconds, exact->time.seconds);
    CHECK_OK(ndp_least_step(&x->bounds, u, c, &seconds));
    below(x, c, "the table with what data ranks send", seconds, exact->time.seconds);
    x->closest = fmax(x->closest, seconds / exact->time.seconds);
}

/* Programs whose memory is not planned take as long, and need no more. */
static void check_unplaced(exhaustive *x, ndp_dry_run *d, const ndp_model *m, const ndp_device_price *price,
                           const ndp_priced_way *exact) {
    ndp_step_time t;
    ndp_plan_need need;
    ndp_dry_run_release(d);
    d->fold = NDP_FOLD_ALWAYS, d->unplaced = true;
    ndp_device_price_forget(price);
    CHECK_OK(ndp_dry_run_keep(d, m));
    CHECK_OK(ndp_step_time_of(d, m, price, INFINITY, &t, &need));
    CHECK_OK(ndp_plan_fullest(d, m, &need));
    below(x, &exact->c, "bytes that live at once", (double)need.peak, (double)exact->need.peak);
    if (fabs(t.seconds - exact->time.seconds) > 1e-9 * t.seconds)
        fail_msg("without offsets the step takes %.15g s, with them %.15g", t.seconds, exact->time.seconds);
}

static bool same_way(const ndp_plan_way *a, const ndp_plan_way *b) {
    bool same = a->micro_batch == b->micro_batch && a->recompute == b->recompute && a->reshard == b->reshard;
    for (int axis = 0; axis < NDP_SIZES; axis++)
        same = same && a->layout.size[axis] == b->layout.size[axis];
    return same &&
           (a->layout.size[NDP_PP] == 1 || (a->schedule == b->schedule && a->virtual_stages == b->virtual_stages));
}

/* What the search says that a result needs is what its plan says. */
static void check_need(const exhaustive *x, const ndp_priced_way *r) {
    int k = 0;
    while (k < x->n && !same_way(&x->fitting[k].c, &r->c))
        k++;
    assert_true(k < x->n);
    assert_int_equal(r->need.peak, x->fitting[k].need.peak);
    assert_int_equal(r->need.rank, x->fitting[k].need.rank);
}

static void price_one(exhaustive *x, const ndp_plan_way *c) {
    ndp_job j;
    ndp_dry_run d;
    ndp_model m;
    ndp_priced_way r = {.c = *c};
    ndp_plan_need first;
    ndp_plan_way_apply(c, &x->way);
    if (ndp_job_init_like(x->seek.d->job, &x->way, x->seek.d->job->world, &j) != NDP_OK)
        return;
    ndp_cluster_plan links = ndp_cluster_plan_of(&x->p.links, &j, NULL);
    ndp_device_price price = x->p.price;
    price.links = &links, price.rows = j.model.rows;
    ndp_device_price_forget(&price);
    CHECK_OK(ndp_dry_run_init(&d, &j, x->p.run.per_node, 0));
    CHECK_OK(ndp_model_build(&j.spec, &j.model, &m));
    CHECK_OK(ndp_dry_run_keep(&d, &m));
    CHECK_OK(ndp_step_time_of(&d, &m, &price, INFINITY, &r.time, &first));
    CHECK_OK(ndp_plan_fullest(&d, &m, &r.need));
    check_bounds(x, c, &r);
    const ndp_plan_capacity has = ndp_plan_capacity_of(&d, &x->p.links.cluster);
    if (has.bytes == 0 || r.need.peak + has.runtime <= 2 * has.bytes)
        x->doubled = fmin(x->doubled, r.time.seconds);
    check_unplaced(x, &d, &m, &price, &r);
    x->legal++;
    assert_true(x->n < MOST_LEGAL);
    if ((double)r.need.peak > x->room)
        x->by_memory++;
    else
        x->fitting[x->n] = r, x->seconds[x->n++] = r.time.seconds;
    ndp_dry_run_release(&d);
    ndp_model_release(&m);
    ndp_job_release(&j);
}

static void each_schedule(exhaustive *x, ndp_plan_way c) {
    c.virtual_stages = 1;
    if (c.layout.size[NDP_PP] == 1) {
        price_one(x, &c);
        return;
    }
    for (int kind = 0; kind < NDP_PIPELINE_FILE; kind++)
        for (int v = ndp_pipeline_table[kind].fewest; v <= ndp_pipeline_table[kind].most && v <= 8; v++)
            if ((x->seek.only_schedule < 0 || x->seek.only_schedule == kind) && v != 5) {
                c.schedule = (ndp_pipeline_kind)kind, c.virtual_stages = v;
                price_one(x, &c);
            }
}

static void each_way(exhaustive *x, const ndp_layout *l) {
    const ndp_job *j = x->seek.d->job;
    const int *size = l->size;
    int ranks = size[NDP_DP_REPLICATE] * size[NDP_DP_SHARD], samples = j->batch.global_batch / ranks;
    for (int micro = 1; samples * ranks == j->batch.global_batch && micro <= samples; micro++)
        for (int recompute = NDP_RECOMPUTE_NONE;
             recompute <= NDP_RECOMPUTE_BLOCK && samples % micro == 0 && !ndp_plan_way_dominated(l, micro); recompute++)
            for (int reshard = 0; reshard < 2; reshard++)
                if (size[NDP_DP_SHARD] * size[NDP_CP] * size[NDP_SP] > 1 ||
                    reshard == j->config->parallelism.reshard_after_forward)
                    each_schedule(x, (ndp_plan_way){.layout = *l,
                                                    .micro_batch = micro,
                                                    .accumulation = samples / micro,
                                                    .recompute = (ndp_recompute)recompute,
                                                    .reshard = reshard});
}

static void each_layout(exhaustive *x, ndp_layout l, int axis, int left) {
    if (axis == NDP_AXES) {
        int replica = l.size[NDP_DP_SHARD] * l.size[NDP_CP] * l.size[NDP_SP] * l.size[NDP_TP];
        for (int ep = 1; left == 1 && ep <= x->seek.most[NDP_EP]; ep++) {
            l.size[NDP_EP] = ep;
            if (replica % ep == 0)
                each_way(x, &l);
        }
        return;
    }
    for (int size = 1; size <= left && size <= x->seek.most[axis]; size++)
        if (left % size == 0) {
            l.size[axis] = size;
            each_layout(x, l, axis + 1, left / size);
        }
}

static int by_seconds(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct totals {
    int cases, legal, by_memory, priced, considered, won, updates, experts;
    double closest;
} totals;

static const char *const clusters[] = {"1x8:h100-sxm", "2x4:a100-sxm-80", "8x1:mi300x",
                                       "3x4:h100-sxm", "2x8:h100-sxm",    "2x4:cpu"};
static const int worlds[] = {8, 8, 8, 12, 16, 8};

enum { DENSE = 200, MIXTURES = 40 }; /* cases of a model with and without experts */

/* Of mixtures whose experts are most of what ranks keep and send. */
static void take_experts(ndp_config *c) {
    static const char text[] =
        "{\"model_type\": \"mixtral\", \"vocab_size\": 97, \"hidden_size\": 64, \"intermediate_size\": 1024, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"num_local_experts\": 8, "
        "\"num_experts_per_tok\": 2, \"max_position_embeddings\": 512}";
    char path[] = "/tmp/ndp-search-XXXXXX.json";
    int file = mkstemps(path, 5);
    assert_true(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
    close(file);
    CHECK_OK(ndp_config_setf(c, "model.config=%s", path));
}

/* A case: a cluster, a batch, a length, a precision, limits of memory and of axes. */
static void random_seek(uint64_t seed, exhaustive *x) {
    static const int batches[] = {2, 4, 8}, lengths[] = {16, 128, 512}, most[] = {1, 2, 2, 4};
    int which = (int)ndp_rng_below(seed, 1, 0, NDP_COUNT(clusters)), world = worlds[which];
    x->p.config = JOB(NULL);
    ndp_config *c = x->p.config;
    if (seed >= DENSE)
        take_experts(c);
    CHECK_OK(ndp_config_setf(c, "batch.global_batch_size=%d", batches[ndp_rng_below(seed, 1, 1, 3)]));
    CHECK_OK(ndp_config_setf(c, "data.sequence_length=%d", lengths[ndp_rng_below(seed, 1, 2, 3)]));
    CHECK_OK(ndp_config_setf(c, "precision.compute=%s", ndp_rng_below(seed, 1, 3, 3) ? "bf16" : "fp32"));
    if (c->precision.compute == NDP_BF16 && ndp_rng_below(seed, 1, 10, 3) == 0)
        CHECK_OK(ndp_config_set(c, "precision.weights=bf16"));
    if (ndp_rng_below(seed, 1, 11, 3) == 0)
        CHECK_OK(ndp_config_set(c, "precision.states=bf16"));
    CHECK_OK(ndp_config_setf(c, "train.device=%s", strstr(clusters[which], "cpu") ? "cpu" : "cuda"));
    CHECK_OK(ndp_config_set(c, "batch.micro_batch_size=1"));
    if (ndp_rng_below(seed, 1, 4, 2)) /* GiB, of which the runtime's are 0.625 */
        CHECK_OK(ndp_config_setf(c, "train.gpu_memory=%.6f",
                                 0.625 + 0.0005 * pow(2, (double)ndp_rng_below(seed, 1, 5, 60) / 10)));
    if (ndp_rng_below(seed, 1, 9, 3) == 0) /* makes whole matrices in an update */
        CHECK_OK(ndp_config_set(c, "optimizer.name=muon"));
    open_job(x, clusters[which], world);
    if (seed >= DENSE)
        unlink(c->model.config);
    x->p.links.cluster.nics.bandwidth *= pow(10, -(double)ndp_rng_below(seed, 1, 6, 30) / 10);
    x->p.links.cluster.links.bandwidth *= pow(10, -(double)ndp_rng_below(seed, 1, 7, 30) / 10);
    static const int kinds[] = {-1,
                                NDP_PIPELINE_1F1B,
                                NDP_PIPELINE_1F1B,
                                NDP_PIPELINE_1F1B,
                                NDP_PIPELINE_INTERLEAVED,
                                NDP_PIPELINE_INTERLEAVED,
                                NDP_PIPELINE_ZERO_BUBBLE,
                                NDP_PIPELINE_ZBV};
    x->seek = (ndp_plan_seek){
        .d = &x->p.run, .price = &x->p.price, .only_schedule = kinds[ndp_rng_below(seed, 1, 8, NDP_COUNT(kinds))]};
    x->seek.most[NDP_EP] = seed >= DENSE ? 4 : 1;
    for (int axis = 0; axis < NDP_AXES; axis++)
        x->seek.most[axis] = most[ndp_rng_below(seed, 2, (uint64_t)axis, 4)];
    if (x->seek.only_schedule < 0) /* many of them: few layouts */
        x->seek.most[NDP_CP] = x->seek.most[NDP_SP] = x->seek.most[NDP_DP_REPLICATE] = 1;
    x->seek.most[NDP_DP_SHARD] = world;
    if (seed >= DENSE)
        x->seek.most[NDP_TP] = 4;
    const ndp_plan_capacity room = ndp_plan_capacity_of(&x->p.run, &x->p.links.cluster);
    x->room = room.bytes ? (double)(room.bytes - room.runtime) : INFINITY;
}

static void check_search(uint64_t seed, totals *t) {
    exhaustive x = {0};
    ndp_found found;
    random_seek(seed, &x);
    x.bounds = (ndp_search_bounds){.d = &x.p.run, .price = &x.p.price};
    x.seconds = calloc(MOST_LEGAL, sizeof *x.seconds);
    x.fitting = calloc(MOST_LEGAL, sizeof *x.fitting);
    x.doubled = INFINITY;
    CHECK_OK(ndp_config_copy(x.p.config, &x.way));
    each_layout(&x, (ndp_layout)NDP_LAYOUT_ONE, 0, x.p.job.world);
    qsort(x.seconds, (size_t)x.n, sizeof *x.seconds, by_seconds);
    priced_forget(&x.p);
    CHECK_OK(ndp_plan_find(&x.seek, &found));
    if (found.n != (x.n < NDP_SHOWN ? x.n : NDP_SHOWN))
        fail_msg("case %llu: %d results, of %d that fit", (unsigned long long)seed, found.n, x.n);
    for (int i = 0; i < found.n; i++)
        check_need(&x, &found.results[i]);
    for (int i = 0; i < found.n; i++)
        if (fabs(found.results[i].time.seconds - x.seconds[i]) > 1e-12 * x.seconds[i])
            fail_msg("case %llu: number %d takes %.15g s, the best %.15g", (unsigned long long)seed, i + 1,
                     found.results[i].time.seconds, x.seconds[i]);
    double doubled = found.doubled.time.seconds > 0 ? found.doubled.time.seconds : found.n ? x.seconds[0] : INFINITY;
    if (found.n && (!found.doubled_known || fabs(doubled - x.doubled) > 1e-12 * doubled))
        fail_msg("case %llu: with twice the memory %.15g s, the best %.15g", (unsigned long long)seed, doubled,
                 x.doubled);
    t->updates += x.update > 0;
    t->won += found.n && found.doubled.time.seconds > 0;
    for (int i = 0; i < found.n; i++)
        t->experts += found.results[i].c.layout.size[NDP_EP] > 1;
    t->cases++;
    t->legal += x.legal, t->by_memory += x.by_memory, t->priced += found.priced, t->considered += found.considered;
    t->closest = fmax(t->closest, x.closest);
    ndp_search_bounds_release(&x.bounds);
    ndp_config_release(&x.way);
    free(x.seconds);
    free(x.fitting);
    priced_close(&x.p);
}

static void finds_what_all_candidates_have(void **state) {
    (void)state;
    /* Of processors; with sums among replicas; of Muon, and with tp; interleaved; of sequences that ranks do not
     * divide, in little memory; of mixtures. */
    static const uint64_t some[] = {0, 1, 2, 15, 16, 44, 203, 204};
    totals t = {0};
    for (int i = 0; i < short_or_all(NDP_COUNT(some), DENSE + MIXTURES); i++)
        check_search(short_or_all(0, 1) ? (uint64_t)i : some[i], &t);
    print_message("  %d searches: %d considered, %d priced; of %d legal candidates %d need more memory; bounds of time "
                  "reach %.4f; twice the memory is faster in %d, %d have updates of matrices; %d results have ep\n",
                  t.cases, t.considered, t.priced, t.legal, t.by_memory, t.closest, t.won, t.updates, t.experts);
    assert_true(t.by_memory > 0 && t.priced < t.legal && t.won > 0 && t.updates > 0);
}

/* What a job leaves out follows its pipeline, in a search as in `plan`. */
static void ways_reduce_as_their_jobs_do(void **state) {
    (void)state;
    for (int pp = 1; pp <= 2; pp++)
        for (int given = 0; given < 2; given++) {
            ndp_config *job = JOB(NULL), *planned = JOB(NULL);
            const ndp_plan_way way = {.layout.size = {[NDP_PP] = pp}, .micro_batch = 1, .virtual_stages = 1};
            CHECK_OK(ndp_config_setf(planned, "parallelism.pp_size=%d", pp));
            if (given) {
                CHECK_OK(ndp_config_set(job, "parallelism.reduce_every=micro_batch"));
                CHECK_OK(ndp_config_set(planned, "parallelism.reduce_every=micro_batch"));
            }
            ndp_plan_way_apply(&way, job);
            assert_int_equal(job->parallelism.reduce_every, planned->parallelism.reduce_every);
            ndp_config_destroy(job);
            ndp_config_destroy(planned);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_what_all_candidates_have),
                                       cmocka_unit_test(ways_reduce_as_their_jobs_do)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
