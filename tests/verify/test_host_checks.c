/* What the host fills in, which no program has: which rows a rank reads, and which reference its answers have. A rank
 * that is given others is found, by the inputs that it shares with ranks of its samples, by the policy of the first
 * step, or by `verify`, whose layouts score references and held-out rows themselves. tests/verify/long_host_mutants.sh
 * changes the code itself. */
#include "ops/devices.h"
#include "verify/runs.h"
#include "verify/verify.h"

/* ---- what a rank is given ---- */

typedef enum given { NOTHING, OTHER_ROWS, OTHER_KEYS, OTHER_REFERENCE, TWICE_THE_REFERENCE, OTHER_HELD_LOSS } given;

typedef struct seeding {
    given what;
    int rank; /* that gets it, in a world of several */
} seeding;

static ndp_status run_true(const ndp_op_call *c) { return ndp_device_cpu.kernels[c->op->id]->run(c); }

/* The held-out rows of others have another loss. */
static ndp_status sum_more(const ndp_op_call *c) {
    NDP_TRY(run_true(c));
    *(double *)c->out[0].data *= 1.01;
    return NDP_OK;
}

static void change_held_loss(ndp_trainer *t) {
    const ndp_program *p = ndp_engine_program(t->score.engine);
    const ndp_model *m = ndp_engine_model(t->score.engine);
    const ndp_list *list = &p->opts.units[m->units[m->n_units - 1].graph].lists[NDP_FORWARD_DROP];
    ndp_kernel *bad = ndp_arena_alloc(&t->model.arena, sizeof *bad);
    *bad = *ndp_device_cpu.kernels[NDP_OP_reduce_sum];
    bad->run = sum_more;
    int found = 0;
    for (int i = 0; i < list->n; i++)
        if (list->calls[i].op == &ndp_op_reduce_sum)
            list->calls[i].kernel = bad, found++;
    assert_int_equal(found, 1);
}

/* Before the first step. */
static ndp_status seed(void *user, ndp_trainer *t) {
    const seeding *s = user;
    if (ndp_comm_size(t->rank.world) == 1 || ndp_comm_rank(t->rank.world) != s->rank)
        return NDP_OK;
    if (s->what == OTHER_ROWS)
        t->rank.data.sampler.seed ^= 1;
    if (s->what == OTHER_KEYS)
        t->samples += 1000 * (int64_t)t->rank.data.sampler.rows; /* the same rows, if they are in order */
    for (int64_t i = 0; s->what == OTHER_REFERENCE && i + 1 < t->rank.data.tokens.n_documents; i += 2) {
        double kept = t->score.references[0][i];
        t->score.references[0][i] = t->score.references[0][i + 1];
        t->score.references[0][i + 1] = kept;
    }
    for (int64_t i = 0; s->what == TWICE_THE_REFERENCE && i < t->rank.data.tokens.n_documents; i++)
        t->score.references[0][i] *= 2;
    if (s->what == OTHER_HELD_LOSS)
        change_held_loss(t);
    return NDP_OK;
}

/* ---- jobs ---- */

static char *write_pairs(const char *folder) {
    char *path = ndp_format("%s/pairs.jsonl", folder);
    ndp_str text = {0};
    for (int i = 0; i < 40; i++)
        ndp_str_addf(&text, "{\"prompt\": \"%d? \", \"chosen\": \"%d, %d\", \"rejected\": \"no: %d\"}\n", i, i, i * i,
                     7 * i);
    CHECK_OK(ndp_file_write_atomic(path, text.data, text.length));
    ndp_str_release(&text);
    return path;
}

static ndp_config *job(const corpus *c, bool pairs) {
    subject s = nines_subject(c, "host", "fp32");
    way w = one_rank(12, 6, 1);
    s.length = 40;
    char *data = pairs ? write_pairs(c->folder) : NULL;
    if (pairs)
        s.data = data, s.one_a_row = true, s.loss = "name=dpo";
    ndp_config *config = configure(&s, &w);
    set(config, "data.validation_fraction=0.2");
    set(config, "train.transport=auto");
    free(data);
    return config;
}

/* ---- steps ---- */

typedef struct stepping {
    const ndp_config *config;
    seeding seeded;
    char why[1024]; /* of rank 0 */
} stepping;

static ndp_status step_rank(ndp_world *w, void *arg) {
    stepping *s = arg;
    ndp_trainer *t;
    ndp_metrics m;
    NDP_TRY(ndp_trainer_create(s->config, w, &t));
    NDP_TRY(seed(&s->seeded, t));
    ndp_status st = ndp_trainer_step(t, &m);
    if (ndp_world_rank(w) == 0 && st != NDP_OK)
        snprintf(s->why, sizeof s->why, "%s", ndp_error_message());
    ndp_trainer_destroy(t);
    return st;
}

/* One step on a layout. */
static ndp_status step_on(ndp_config *c, const char *layout, seeding seeded, char why[1024]) {
    ndp_layout l;
    stepping s = {.config = c, .seeded = seeded};
    int ranks = 1;
    CHECK_OK(ndp_layout_parse(layout, &l));
    for (int axis = 0; axis < NDP_AXES; axis++) {
        set(c, "parallelism.%s_size=%d", ndp_axis_name((ndp_axis)axis), l.size[axis]);
        ranks *= l.size[axis];
    }
    ndp_status st = ndp_local_world(ranks, step_rank, &s);
    snprintf(why, 1024, "%s", s.why);
    return st;
}

static void check_found(ndp_config *c, const char *layout, seeding seeded, const char *words) {
    char why[1024];
    ndp_status st = step_on(c, layout, seeded, why);
    if (st != (strstr(words, "ranks") ? NDP_EINVAL : NDP_EBUG) || !strstr(why, words))
        fail_msg("%s: status %d, no '%s' in: %s", layout, st, words, why);
}

static void ranks_of_one_sample_read_the_same(void **state) {
    static const struct {
        const char *layout;
        int rank;
        const char *words;
    } cases[] = {{"tp=3", 1, "ranks 0 and 1 compute the same samples, and have loaded other inputs for step 1"},
                 {"cp=2", 1, "ranks 0 and 1 "},
                 {"sp=3", 2, "ranks 0 and 2 "},
                 {"pp=2", 1, "ranks 0 and 1 "},
                 {"dp_shard=2,tp=3", 4, "ranks 3 and 4 "},
                 {"dp_replicate=2,dp_shard=3,cp=2", 10, "ranks 10 and 11 "},
                 {"pp=2,dp_shard=2", 3, "ranks 1 and 3 "}};
    char why[1024];
    for (int pairs = 0; pairs < 2; pairs++) {
        ndp_config *c = job(*state, pairs);
        for (int i = 0; i < NDP_COUNT(cases); i++) {
            check_found(c, cases[i].layout, (seeding){OTHER_ROWS, cases[i].rank}, cases[i].words);
            if (pairs)
                check_found(c, cases[i].layout, (seeding){OTHER_REFERENCE, cases[i].rank}, cases[i].words);
            if (step_on(c, cases[i].layout, (seeding){NOTHING, 0}, why) != NDP_OK)
                fail_msg("%s: %s", cases[i].layout, why);
        }
        /* ranks of other samples read others */
        CHECK_OK(step_on(c, "dp_shard=2", (seeding){OTHER_ROWS, 1}, why));
        ndp_config_destroy(c);
    }
}

static void ranks_of_one_sample_drop_the_same(void **state) {
    ndp_config *c = job(*state, false);
    char why[1024];
    set(c, "data.shuffle=false");
    CHECK_OK(step_on(c, "tp=3", (seeding){OTHER_KEYS, 1}, why));
    set(c, "adapter.type=lora");
    set(c, "adapter.dropout=0.5");
    check_found(c, "tp=3", (seeding){OTHER_KEYS, 1}, "ranks 0 and 1 compute the same samples");
    CHECK_OK(step_on(c, "tp=3", (seeding){NOTHING, 0}, why));
    ndp_config_destroy(c);
}

/* The reference of a rank's own samples, which no other rank has. */
static void the_first_policy_is_the_reference(void **state) {
    ndp_config *c = job(*state, true);
    char why[1024];
    for (int rank = 0; rank < 2; rank++)
        check_found(
            c, "dp_shard=2", (seeding){OTHER_REFERENCE, rank},
            "step 1: the policy is the reference model before any update, but gives answer 0 of micro-batch 0 ");
    CHECK_OK(step_on(c, "dp_shard=2", (seeding){NOTHING, 0}, why));
    set(c, "precision.compute=bf16");
    check_found(c, "dp_shard=2", (seeding){TWICE_THE_REFERENCE, 1}, "(bound 0.25, relative)");
    CHECK_OK(step_on(c, "dp_shard=2,tp=3", (seeding){NOTHING, 0}, why));
    CHECK_OK(step_on(c, "cp=2", (seeding){NOTHING, 0}, why)); /* from the file of that layout */
    set(c, "precision.compute=fp32");
    /* Dropout changes the policy of an adapter that does something; a new one's second factor is zero. */
    set(c, "adapter.type=lora");
    set(c, "adapter.dropout=0.5");
    check_found(c, "dp_shard=2", (seeding){OTHER_REFERENCE, 1}, "step 1: the policy is the reference model");
    set(c, "adapter.init=random");
    CHECK_OK(step_on(c, "dp_shard=2", (seeding){NOTHING, 0}, why));
    ndp_config_destroy(c);
}

/* ---- verify ---- */

static ndp_status verify(const ndp_config *c, const char *layout, seeding *s, ndp_verdict *v) {
    ndp_verify_opts o = NDP_VERIFY_OPTS_INIT;
    o.layouts = &layout, o.n = 1, o.steps = 2;
    return ndp_verify_altered(c, &o, seed, s, v);
}

static void held_out_rows_are_compared(void **state) {
    static const char *const layouts[] = {"dp_shard=2", "cp=2,tp=3"};
    static const int ranks[] = {1, 3};
    for (int pairs = 0; pairs < 2; pairs++) {
        ndp_config *c = job(*state, pairs);
        for (int i = 0; i < NDP_COUNT(layouts); i++) {
            ndp_verdict v;
            CHECK_OK(verify(c, layouts[i], &(seeding){NOTHING, 0}, &v));
            const ndp_deviation *d = &v.of[NDP_MEASURE_EVAL_LOSS];
            if (!v.agrees)
                fail_msg("%s: %s", layouts[i], v.words);
            assert_true(d->worst.bound == 2e-6 && d->worst.off > 0);
            if (pairs)
                continue;
            CHECK_OK(verify(c, layouts[i], &(seeding){OTHER_HELD_LOSS, ranks[i]}, &v));
            if (v.agrees || !strstr(v.words, "eval_loss, held-out rows: off by "))
                fail_msg("%s: %s", layouts[i], v.words);
        }
        ndp_config_destroy(c);
    }
}

/* No file has what a layout has scored, or is read by another. */
static void a_layout_scores_its_own_reference(void **state) {
    ndp_config *c = job(*state, true);
    ndp_verdict v;
    char *cache = ndp_format("%s/own", ((const corpus *)*state)->folder), *count = NULL;
    set(c, "data.cache_dir=%s", cache);
    CHECK_OK(verify(c, "dp_shard=2", &(seeding){NOTHING, 0}, &v));
    assert_true(v.agrees);
    count = ndp_format("ls %s | grep -q reference", cache);
    assert_int_not_equal(system(count), 0);
    CHECK_FAILS(verify(c, "dp_shard=2", &(seeding){OTHER_REFERENCE, 1}, &v), NDP_EBUG, "step 1: the policy is");
    free(count);
    free(cache);
    ndp_config_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_one_sample_read_the_same), cmocka_unit_test(ranks_of_one_sample_drop_the_same),
        cmocka_unit_test(the_first_policy_is_the_reference), cmocka_unit_test(held_out_rows_are_compared),
        cmocka_unit_test(a_layout_scores_its_own_reference)};
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus);
}
