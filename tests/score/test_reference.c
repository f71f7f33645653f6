/* The reference model of preference data: its log-probabilities are those of the weights that a run starts from, on the
 * first run, on a second one, on a resumed one, whether or not their file is still there; and held-out pairs. */
#include "score/reference_file.h"
#include "train/resumes.h"

#include <dirent.h>
#include <math.h>

/* Trains to a step; the metrics are in *r. `sets` end with NULL. */
static void train_pairs(const char *folder, const char *name, const char *const *sets, bool resume, int64_t stop_after,
                        run *r) {
    ndp_config *c = configure(folder, PREFERENCE, name);
    while (*sets)
        set(c, folder, *sets++);
    *r = (run){.config = c, .stop_after = stop_after};
    ndp_status st = train(r, resume, NULL);
    if (st != (stop_after ? NDP_EINTR : NDP_OK))
        fail_msg("%s: status %d, %s", name, st, ndp_error_message());
    ndp_str_release(&r->said);
    ndp_config_destroy(c);
}

/* NaN: there is none. */
static bool differ(double a, double b) { return !(a == b || (isnan(a) && isnan(b))); }

static void check_same(const run *a, const run *b, int64_t from, int64_t to) {
    for (int64_t k = from; k <= to; k++) {
        const ndp_metrics *p = &a->m[k], *q = &b->m[k];
        assert_int_equal(p->step, k);
        assert_int_equal(q->step, k);
        if (p->loss != q->loss || p->grad_norm != q->grad_norm || differ(p->pair.margin, q->pair.margin) ||
            differ(p->pair.logp_chosen, q->pair.logp_chosen) || differ(p->pair.kl, q->pair.kl))
            fail_msg("step %lld: loss %.17g and %.17g, margin %.17g and %.17g", (long long)k, p->loss, q->loss,
                     p->pair.margin, q->pair.margin);
    }
}

/* ---- the files ---- */

/* How many files of references FOLDER/NAME has; the sum of their inodes, which change when they are written again. */
static int count_references(const char *folder, const char *name, uint64_t *inodes, char *last, size_t size) {
    char *path = ndp_format("%s/%s", folder, name);
    DIR *d = opendir(path);
    int n = 0;
    *inodes = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t length = strlen(e->d_name);
        if (length < 10 || strcmp(e->d_name + length - 10, ".reference") != 0)
            continue;
        snprintf(last, size, "%s/%s", path, e->d_name);
        *inodes += e->d_ino;
        n++;
    }
    if (d)
        closedir(d);
    free(path);
    return n;
}

static void check_near(double a, double b, const char *what) {
    if (!(fabs(a - b) <= 2e-5 * (1 + fabs(a))))
        fail_msg("%s: %.9g and %.9g", what, a, b);
}

#define CACHE(name) "data.cache_dir=@/" name
static const char *const plain[] = {CACHE("own"), NULL};

/* With the initial weights the policy is the reference: every reward is 0 and the loss of a pair log 2. */
static void the_first_loss_is_that_of_equal_models(void **state) {
    static const char *const sets[] = {CACHE("first"), "optimizer.lr=0", NULL};
    static const char *const ipo[] = {CACHE("first"), "optimizer.lr=0", "loss.variant=ipo", NULL};
    run r;
    train_pairs(*state, "first", sets, false, 0, &r);
    for (int k = 1; k <= STEPS; k++) {
        const ndp_pair_metrics *p = &r.m[k].pair;
        assert_true(p->pairs == 2 && p->margin == 0 && p->reward_chosen == 0 && p->accuracy == 0);
        assert_true(fabs(r.m[k].loss - log(2)) < 1e-7 && p->logp_chosen < 0);
        assert_true(isnan(p->nll));
    }
    train_pairs(*state, "first-ipo", ipo, false, 0, &r);
    assert_true(fabs(r.m[STEPS].loss - 25) < 1e-4); /* (1 / (2 beta))^2 */
}

static void a_second_run_reads_the_file(void **state) {
    run first, second;
    uint64_t before, after;
    char path[512];
    train_pairs(*state, "own-1", plain, false, 0, &first);
    assert_int_equal(count_references(*state, "own", &before, path, sizeof path), 1);
    train_pairs(*state, "own-2", plain, false, 0, &second);
    assert_int_equal(count_references(*state, "own", &after, path, sizeof path), 1);
    assert_true(before == after); /* it was not written again */
    check_same(&first, &second, 1, STEPS);
    assert_true(first.m[STEPS].pair.margin != 0);
    /* another loss has the same reference; other weights and longer rows have another */
    static const char *const others[][3] = {{CACHE("own"), "loss.variant=hinge", NULL},
                                            {CACHE("own"), "train.seed=7", NULL},
                                            {CACHE("own"), "data.sequence_length=80", NULL}};
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "other-%d", i);
        train_pairs(*state, name, others[i], false, 0, &second);
        assert_int_equal(count_references(*state, "own", &after, path, sizeof path), 1 + i);
    }
}

/* An adapter is part of the initial weights: a new one is the base, one that is continued is a reference of its own. */
static void an_adapter_is_part_of_the_reference(void **state) {
    static const char *const sets[] = {CACHE("adapted"), "adapter.type=lora", "adapter.r=4", "optimizer.lr=1e-2", NULL},
                             *const on[] = {CACHE("adapted"),
                                            "adapter.type=lora",
                                            "adapter.r=4",
                                            "optimizer.lr=0",
                                            "adapter.path=@/adapted-0/adapter",
                                            NULL},
                             *const off[] = {CACHE("adapted"), NULL};
    run first, continued, base;
    uint64_t inodes;
    char path[512];
    train_pairs(*state, "adapted-0", sets, false, 0, &first);
    assert_true(first.m[1].pair.margin == 0 && first.m[STEPS].pair.margin != 0);
    train_pairs(*state, "adapted-1", on, false, 0, &continued);
    assert_int_equal(count_references(*state, "adapted", &inodes, path, sizeof path), 2);
    for (int k = 1; k <= STEPS; k++)
        assert_true(continued.m[k].pair.margin == 0 && continued.m[k].pair.reward_chosen == 0);
    assert_true(continued.m[1].pair.logp_chosen != first.m[1].pair.logp_chosen);
    train_pairs(*state, "adapted-2", off, false, 0, &base);
    assert_true(base.m[1].pair.margin == 0);
    check_near(base.m[1].pair.logp_chosen, first.m[1].pair.logp_chosen, "logp_chosen of the base");
}

/* A damaged file is not read: it is computed and written again. */
static void a_damaged_file_is_replaced(void **state) {
    run whole, again;
    uint64_t before, after;
    char path[512], *data, *restored;
    size_t size, n;
    train_pairs(*state, "damaged-0", (const char *const[]){CACHE("damaged"), NULL}, false, 0, &whole);
    assert_int_equal(count_references(*state, "damaged", &before, path, sizeof path), 1);
    CHECK_OK(ndp_file_read(path, &data, &size));
    for (int i = 0; i < 4; i++) {
        char *bad = malloc(size);
        memcpy(bad, data, size);
        bad[i == 0 ? 3 : i == 1 ? 20 : size - 5] ^= 4; /* the magic, the key, a number; then a file cut short */
        CHECK_OK(ndp_file_write_atomic(path, bad, i == 3 ? size / 2 : size));
        train_pairs(*state, "damaged-1", (const char *const[]){CACHE("damaged"), NULL}, false, 0, &again);
        check_same(&whole, &again, 1, STEPS);
        assert_int_equal(count_references(*state, "damaged", &after, path, sizeof path), 1);
        CHECK_OK(ndp_file_read(path, &restored, &n));
        assert_int_equal(n, size);
        assert_memory_equal(restored, data, size);
        free(restored);
        free(bad);
        char *command = ndp_format("rm -rf %s/damaged-1", (char *)*state);
        assert_int_equal(system(command), 0);
        free(command);
    }
    free(data);
}

/* A resumed run has other weights than it began with; its reference is still that of the beginning. */
static void a_resumed_run_has_the_first_weights_as_reference(void **state) {
    run whole, part;
    static const char *const losses[] = {"loss.name=dpo", "loss.name=kto"};
    for (int i = 0; i < 4; i++) {
        const char *const there[] = {CACHE("resumed"), losses[i / 2], NULL}, *const gone[] = {CACHE("empty"),
                                                                                              losses[i / 2], NULL};
        char name[2][16];
        snprintf(name[0], sizeof name[0], "whole-%d", i), snprintf(name[1], sizeof name[1], "resumed-%d", i);
        train_pairs(*state, name[0], there, false, 0, &whole);
        train_pairs(*state, name[1], there, false, SAVED, &part);
        train_pairs(*state, name[1], i % 2 ? gone : there, true, 0, &part);
        check_same(&whole, &part, SAVED + 1, STEPS);
    }
}

/* A run that has become longer reads the scores that it had; a file of another key, or that is cut, has none. */
static void a_longer_run_reads_what_there_is(void **state) {
    char *path = ndp_format("%s/some.reference", (char *)*state), *data;
    ndp_reference_file f = {path, {1, 2}, 4};
    double values[6] = {1, 2, 3, NAN}, have[6];
    size_t size;
    CHECK_OK(ndp_reference_file_write(&f, values));
    for (f.n = 3; f.n <= 6; f.n++) {
        for (int i = 0; i < 6; i++)
            have[i] = -1;
        assert_int_equal(ndp_reference_file_read(&f, have), f.n < 4 ? f.n : 4);
        for (int i = 0; i < 6; i++)
            assert_true(i < 3 ? have[i] == values[i] : i == 3 && f.n > 3 ? isnan(have[i]) : have[i] == -1);
    }
    f.key.low ^= 1;
    assert_int_equal(ndp_reference_file_read(&f, have), 0);
    f.key.low ^= 1;
    CHECK_OK(ndp_file_read(path, &data, &size));
    for (size_t n = 0; n < size; n += 7) {
        CHECK_OK(ndp_file_write_atomic(path, data, n));
        assert_int_equal(ndp_reference_file_read(&f, have), 0);
    }
    free(data);
    free(path);
}

/* Rows that are held out follow from the fraction, and so do what stands before and behind each. */
static void other_rows_have_other_scores(void **state) {
    static const char *const fractions[] = {"data.validation_fraction=0.3", "data.validation_fraction=0.6"};
    run shared, own;
    for (int i = 0; i < 2; i++) {
        const char *const sets[] = {CACHE("fractions"), "loss.name=kto", fractions[i], "train.eval_every=2", NULL};
        const char *const alone[] = {i ? CACHE("alone-1") : CACHE("alone-0"), "loss.name=kto", fractions[i],
                                     "train.eval_every=2", NULL};
        train_pairs(*state, i ? "shared-1" : "shared-0", sets, false, 0, &shared);
        train_pairs(*state, i ? "alone-1" : "alone-0", alone, false, 0, &own);
        check_same(&shared, &own, 1, STEPS);
        for (int k = 2; k <= STEPS; k += 2)
            if (shared.m[k].eval_loss != own.m[k].eval_loss || shared.m[k].eval_pair.kl != own.m[k].eval_pair.kl)
                fail_msg("%s: eval_loss %.17g, alone %.17g", fractions[i], shared.m[k].eval_loss, own.m[k].eval_loss);
    }
}

/* ---- held-out pairs ---- */

/* On the layouts, from files of their own and from a part of the data. */
static void held_out_pairs(void **state) {
    static const char *const data[] = {"data.validation_files=@/pairs.jsonl", "data.validation_fraction=0.3"};
    static const char *const layouts[] = {"train.seed=42",         "parallelism.dp_shard_size=2",
                                          "parallelism.tp_size=2", "parallelism.cp_size=2",
                                          "parallelism.pp_size=2", "parallelism.sp_size=2"};
    for (int k = 0; k < 4; k++) {
        run one = {0}, r;
        int d = k % 2, pairs = k < 2 ? 20 : 40; /* or single answers */
        for (int l = 0; l < NDP_COUNT(layouts); l++) {
            if (l > 0 && left_out())
                continue;
            const char *const sets[] = {data[d],
                                        layouts[l],
                                        "train.eval_every=2",
                                        "optimizer.lr=3e-3",
                                        CACHE("held"),
                                        k < 2 ? NULL : "loss.name=kto",
                                        NULL};
            char name[32];
            snprintf(name, sizeof name, "held-%d-%d", k, l);
            train_pairs(*state, name, sets, false, 0, &r);
            if (l == 0)
                one = r;
            for (int s = 2; s <= STEPS; s += 2) {
                const ndp_pair_metrics *p = &one.m[s].eval_pair, *q = &r.m[s].eval_pair;
                assert_true(d == 0 ? q->pairs == pairs : q->pairs > 0 && q->pairs < pairs);
                assert_int_equal(p->pairs, q->pairs);
                check_near(one.m[s].eval_loss, r.m[s].eval_loss, "eval_loss");
                check_near(p->margin, q->margin, "margin");
                check_near(p->logp_chosen, q->logp_chosen, "logp_chosen");
                check_near(p->logp_rejected, q->logp_rejected, "logp_rejected");
                assert_true(pairs == 20 ? isnan(q->kl) : q->kl >= 0);
                if (pairs == 40)
                    check_near(p->kl, q->kl, "kl");
                assert_true(q->margin != 0 && fabs(r.m[s].eval_loss - (pairs == 20 ? log(2) : 0.5)) > 1e-6);
            }
        }
        assert_true(isnan(one.m[1].eval_loss));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_loss_is_that_of_equal_models),
                                       cmocka_unit_test(a_second_run_reads_the_file),
                                       cmocka_unit_test(an_adapter_is_part_of_the_reference),
                                       cmocka_unit_test(a_damaged_file_is_replaced),
                                       cmocka_unit_test(a_resumed_run_has_the_first_weights_as_reference),
                                       cmocka_unit_test(a_longer_run_reads_what_there_is),
                                       cmocka_unit_test(other_rows_have_other_scores),
                                       cmocka_unit_test(held_out_pairs)};
    return cmocka_run_group_tests(tests, make_folder, tiny_teardown);
}
