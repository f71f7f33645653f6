/* ndp_verify: layouts that agree, bugs that are seen and named, and what is refused before anything runs. */
#include "verify/runs.h"
#include "verify/seeded.h"
#include "verify/verify.h"

/* What ndp_verify said, and how many trainers it made. */
typedef struct heard {
    ndp_str lines;
    const fault *fault;
    int need; /* the fault is in layouts that have these axes above 1: bits by axis */
    _Atomic int trainers;
} heard;

static void hear(void *user, const char *line) {
    heard *h = user;
    ndp_str_addf(&h->lines, "%s\n", line);
}

static ndp_status put_fault(void *user, ndp_trainer *t) {
    heard *h = user;
    way w = {.fault = h->fault};
    h->trainers++;
    for (int axis = 0; axis < NDP_AXES; axis++)
        if ((h->need >> axis & 1) && t->rank.job.layout.size[axis] == 1)
            return NDP_OK;
    return h->fault ? alter(t, &w) : NDP_OK;
}

static ndp_config *job(const corpus *c, const char *precision) {
    subject s = odd_subject(c, "verify", precision);
    s.length = 60, s.window = 20;
    way w = one_rank(12, 12, 0);
    ndp_config *config = configure(&s, &w);
    set(config, "train.transport=auto");
    set(config, "parallelism.dp_shard_size=7"); /* the job's own layout does not matter */
    return config;
}

static ndp_status verify(const ndp_config *c, heard *h, const char *const *layouts, int n, int steps,
                         ndp_verdict *verdicts) {
    ndp_verify_opts o = NDP_VERIFY_OPTS_INIT;
    o.layouts = layouts, o.n = n, o.steps = steps, o.say = hear, o.user = h;
    return ndp_verify_altered(c, &o, put_fault, h, verdicts);
}

/* Everything of a verdict that has a bound. */
static void check_agrees(const ndp_verdict *v, const char *layout) {
    if (!v->agrees || v->words[0])
        fail_msg("%s: %s", layout, v->words);
    for (int m = 0; m < NDP_MEASURES; m++) {
        const ndp_deviation *d = &v->of[m];
        assert_int_equal(d->beyond, 0);
        assert_true(d->worst.off <= d->worst.bound);
        if (d->worst.off > 0 && d->worst.where[0] == '\0')
            fail_msg("%s: %s is off by %g nowhere", layout, ndp_measure_name((ndp_measure)m), d->worst.off);
    }
}

/* ---- agreement ---- */

static void layouts_agree(void **state) {
    static const char *const layouts[] = {"dp_shard=1", "dp_shard=2", "dp_replicate=2,dp_shard=3", "cp=2,sp=2,tp=2"};
    static const int ranks[] = {1, 2, 6, 8};
    ndp_verdict v[NDP_COUNT(layouts)];
    heard h = {.fault = NULL};
    ndp_config *c = job(*state, "fp32");
    CHECK_OK(verify(c, &h, layouts, NDP_COUNT(layouts), 3, v));
    for (int i = 0; i < NDP_COUNT(layouts); i++) {
        check_agrees(&v[i], layouts[i]);
        assert_int_equal(v[i].ranks, ranks[i]);
        assert_non_null(strstr(h.lines.data, layouts[i]));
    }
    for (int m = 0; m < NDP_MEASURES; m++) /* one rank again, to the last bit */
        assert_true(v[0].of[m].worst.off == 0);
    /* other sums, other bits: the comparison is not of a run with itself */
    assert_true(v[1].of[NDP_MEASURE_FIRST_GRADIENT].worst.off > 0);
    assert_true(v[2].of[NDP_MEASURE_FIRST_GRADIENT].worst.off > 0);
    assert_true(v[2].of[NDP_MEASURE_FIRST_GRADIENT].worst.bound == 2e-5);
    assert_int_equal(h.trainers, 1 + 1 + 2 + 6 + 8);
    ndp_str_release(&h.lines);
    ndp_config_destroy(c);
}

/* The axes' choices are the job's. */
static void choices_agree(void **state) {
    static const char *const layouts[] = {"cp=2,tp=2"};
    ndp_verdict v[2][NDP_COUNT(layouts)];
    for (int other = 0; other < 2; other++) {
        heard h = {.fault = NULL};
        ndp_config *c = job(*state, "fp32");
        set(c, "parallelism.cp_method=%s", other ? "all_gather" : "ring");
        set(c, "parallelism.cp_zigzag=%s", other ? "false" : "true");
        set(c, "parallelism.tp_sequence_parallel=%s", other ? "false" : "true");
        CHECK_OK(verify(c, &h, layouts, NDP_COUNT(layouts), 2, v[other]));
        for (int i = 0; i < NDP_COUNT(layouts); i++)
            check_agrees(&v[other][i], layouts[i]);
        ndp_str_release(&h.lines);
        ndp_config_destroy(c);
    }
    for (int i = 0; i < NDP_COUNT(layouts); i++) /* other sums: they were heard */
        assert_true(v[0][i].of[NDP_MEASURE_FIRST_GRADIENT].worst.off !=
                    v[1][i].of[NDP_MEASURE_FIRST_GRADIENT].worst.off);
}

/* Bounds that are a spread: some runs on one rank more. */
static void check_spread(const corpus *texts, const char *precision, const char *optimizer) {
    static const char *const layouts[] = {"dp_replicate=2,dp_shard=2"};
    ndp_verdict v;
    heard h = {.fault = NULL};
    ndp_config *c = job(texts, precision);
    set(c, "optimizer.name=%s", optimizer);
    set(c, "optimizer.lr=0.05");
    CHECK_OK(verify(c, &h, layouts, 1, 2, &v));
    check_agrees(&v, layouts[0]);
    /* micro-batches of 1, 2, 3, 4, 6 and 12; six places to split sums; bf16 in fp32; the layout */
    assert_int_equal(h.trainers, 6 + 6 + (strcmp(precision, "bf16") == 0) + 4);
    bool fixed = ndp_optimizers[c->optimizer.name]->bounds.most_lr > 0 && strcmp(precision, "fp32") == 0;
    const ndp_deviation *d = &v.of[fixed ? NDP_MEASURE_LAST_GRADIENT : NDP_MEASURE_WEIGHTS];
    assert_true(d->worst.bound >= (fixed ? 1e-4 : 1e-300) && d->worst.bound < 2 && d->worst.off > 0);
    assert_true(!fixed || v.of[NDP_MEASURE_FIRST_GRADIENT].worst.bound == 2e-5);
    ndp_str_release(&h.lines);
    ndp_config_destroy(c);
}

static void spreads_agree(void **state) {
    check_spread(*state, "bf16", "adamw");
    check_spread(*state, "fp32", "sgd");
    check_spread(*state, "fp32", "lion");
    check_spread(*state, "fp32", "muon");
    check_spread(*state, "fp32", "adamw8bit");
}

/* ---- bugs on purpose ---- */

/* The sum of what the program calls `what` over ranks is left out. */
static void miss_sum(ndp_program *p, const char *what) {
    for (int i = 0; i < p->n; i++) {
        ndp_instr *in = &p->instrs[i];
        if (in->code == NDP_DO_CALL && in->call.op == &ndp_op_all_reduce && strcmp(in->what, what) == 0)
            harmless(p, in);
    }
}

static void miss_replicas(ndp_program *p, int rank) {
    (void)rank;
    miss_sum(p, "layers.2");
}

/* On the tensor axis. */
static void miss_norm(ndp_program *p, int rank) {
    (void)rank;
    miss_sum(p, "model.norm.weight");
}

/* A bias that counts twice in the norm. */
static void count_twice(ndp_program *p, int rank) {
    (void)rank;
    count_tensor_twice(p, 1, "o_proj.bias");
}

static const fault sum_missed = {"a replica's sum missed", NULL, miss_replicas},
                   norm_missed = {"a norm's sum missed", NULL, miss_norm},
                   counted_twice = {"counted twice", NULL, count_twice};
enum { REPLICATE = 1 << NDP_DP_REPLICATE, SHARD = 1 << NDP_DP_SHARD, TENSOR = 1 << NDP_TP };

static ndp_verdict verify_fault(const corpus *texts, const fault *f, int need, const char *layout) {
    const char *const layouts[] = {layout};
    ndp_verdict v;
    heard h = {.fault = f, .need = need};
    ndp_config *c = job(texts, "fp32");
    CHECK_OK(verify(c, &h, layouts, 1, 2, &v));
    printf("%s, %s: %s\n", f->name, layout, v.words);
    assert_false(v.agrees);
    ndp_str_release(&h.lines);
    ndp_config_destroy(c);
    return v;
}

static void check_words(const ndp_verdict *v, const char *words) {
    if (!strstr(v->words, words))
        fail_msg("'%s' does not say '%s'", v->words, words);
}

static void bugs_are_named(void **state) {
    ndp_verdict v = verify_fault(*state, &sum_missed, REPLICATE, "dp_replicate=2,dp_shard=2");
    const ndp_deviation *d = &v.of[NDP_MEASURE_FIRST_GRADIENT];
    assert_string_equal(d->first.unit, "layers.2");
    assert_non_null(strstr(d->first.where, "model.layers.2."));
    assert_int_equal(d->beyond, 13); /* all of that unit, and nothing else */
    assert_true(d->worst.off > 0.1);
    check_words(&v, "gradient of step 1, model.layers.2.");
    check_words(&v, "(layers.2): off by 0.");
    check_words(&v, "dp_replicate=2 alone also disagrees; dp_shard=2 alone agrees");

    v = verify_fault(*state, &sum_missed, REPLICATE, "dp_replicate=4");
    check_words(&v, "; dp_replicate=4 is its only axis");

    v = verify_fault(*state, &norm_missed, TENSOR, "cp=2,tp=2");
    check_words(&v, "gradient of step 1, model.norm.weight (head): off by 0.");
    check_words(&v, "cp=2 alone agrees; tp=2 alone also disagrees");

    v = verify_fault(*state, &counted_twice, REPLICATE | SHARD, "dp_replicate=2,dp_shard=2");
    assert_int_equal(v.of[NDP_MEASURE_FIRST_GRADIENT].beyond, 0);
    check_words(&v, "grad_norm, step 1: off by");
    check_words(&v, "dp_replicate=2 alone agrees; dp_shard=2 alone agrees: the combination disagrees");
}

/* ---- refusals ---- */

typedef struct refusal {
    const char *set, *layout;
    int steps;
    ndp_status status;
    const char *words;
} refusal;

static void refused_before_anything_runs(void **state) {
    static const refusal refusals[] = {
        {NULL, "dp_shard=7", 2, NDP_EINVAL, "layout dp_shard=7: global batch 12 is not a multiple of micro batch 1"},
        {NULL, "dp_shrad=2", 2, NDP_EINVAL, "did you mean 'dp_shard'"},
        {NULL, "tp=64", 2, NDP_EINVAL, "layout tp=64: "},
        {NULL, "dp_shard=2,ep=2", 2, NDP_EINVAL, "ep 2: the model has no mixtures"},
        {NULL, "dp_shard=1048576,dp_replicate=1048576", 2, NDP_EINVAL, "4096 at most"},
        {"train.transport=mpi", "dp_shard=2", 2, NDP_EINVAL, "threads of one process"},
        {"train.seed=1", "dp_shard=2", 0, NDP_EINVAL, "1 to 20"},
        {"train.seed=1", "dp_shard=2", 21, NDP_EINVAL, "1 to 20"},
        {"data.sequence_length=100000", "dp_shard=2", 2, NDP_EINVAL, "longer than the model's"},
        {"batch.global_batch_size=13", "dp_shard=2", 2, NDP_EINVAL, "global batch 13"}};
    for (int i = 0; i < NDP_COUNT(refusals); i++) {
        const refusal *r = &refusals[i];
        const char *const layouts[] = {"dp_shard=2", r->layout};
        ndp_verdict v[2];
        heard h = {.fault = NULL};
        ndp_config *c = job(*state, "fp32");
        if (r->set)
            set(c, "%s", r->set);
        CHECK_FAILS(verify(c, &h, layouts, 2, r->steps, v), r->status, r->words);
        assert_int_equal(h.trainers, 0);
        ndp_str_release(&h.lines);
        ndp_config_destroy(c);
    }
}

static void too_large(void **state) {
    static const char *const layouts[] = {"dp_shard=2"};
    ndp_verdict v;
    heard h = {.fault = NULL};
    ndp_config *c = job(*state, "fp32");
    set(c, "train.force_memory=false");
    set(c, "model.allow_longer=true");
    set(c, "data.sequence_length=16777216");
    CHECK_FAILS(verify(c, &h, layouts, 1, 2, &v), NDP_EINVAL, " available (");
    assert_int_equal(h.trainers, 0);
    ndp_str_release(&h.lines);
    ndp_config_destroy(c);
}

static void nothing_to_compare_with(void **state) {
    static const char *const layouts[] = {"dp_shard=2"};
    ndp_verdict v;
    heard h = {.fault = NULL};
    ndp_config *c = job(*state, "bf16");
    set(c, "batch.global_batch_size=5");
    set(c, "batch.micro_batch_size=1");
    CHECK_FAILS(verify(c, &h, (const char *const[]){"dp_shard=5"}, 1, 2, &v), NDP_EINVAL,
                "5 samples can be split in 2: set batch.global_batch_size to a multiple of 4");
    set(c, "batch.global_batch_size=4");
    set(c, "precision.compute=fp32");
    set(c, "optimizer.name=sgd");
    set(c, "optimizer.lr=1e30");
    set(c, "optimizer.max_grad_norm=0");
    CHECK_FAILS(verify(c, &h, layouts, 1, 4, &v), NDP_EINVAL, "there is nothing to compare with");
    ndp_str_release(&h.lines);
    ndp_config_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(layouts_agree),
                                       cmocka_unit_test(choices_agree),
                                       cmocka_unit_test(spreads_agree),
                                       cmocka_unit_test(bugs_are_named),
                                       cmocka_unit_test(refused_before_anything_runs),
                                       cmocka_unit_test(too_large),
                                       cmocka_unit_test(nothing_to_compare_with)};
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus);
}
