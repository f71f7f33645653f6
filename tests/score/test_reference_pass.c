/* The pass over a reference is stopped or killed after any of its forward passes, and goes on where it was, on the same
 * layout with the same bits, on another one up to rounding. */
#include "train/resumes.h"

#include "base/fault.h"
#include "ops/devices.h"

#include <dirent.h>
#include <math.h>
#include <sys/wait.h>

enum { DOCUMENTS = 40, EACH = 2, PASSES = DOCUMENTS / EACH, LAYOUTS = 6 };

static const char *const layouts[LAYOUTS] = {"parallelism.dp_shard_size=1", "parallelism.dp_shard_size=2",
                                             "parallelism.tp_size=2",       "parallelism.cp_size=2",
                                             "parallelism.pp_size=2",       "parallelism.sp_size=2"};

/* ---- a pass that stops itself ---- */

typedef struct scored {
    ndp_status st;
    char why[1024];
    int64_t micro_batches; /* that rank 0 has computed */
    double values[DOCUMENTS];
} scored;

typedef struct scoring_run {
    const ndp_config *config;
    int64_t stop_after; /* micro-batches of rank 0; 0: never */
    int64_t kill_at;    /* rank 0's write of the file before whose rename it is killed; 0: none */
    volatile sig_atomic_t stop;
    scored *out;
} scoring_run;

/* Of the rank that this thread is. */
static _Thread_local struct {
    scoring_run *run; /* rank 0's; else NULL */
    int64_t calls;
} here;

static ndp_status count_micro_batch(const ndp_op_call *c) {
    if (here.run && ++here.calls == here.run->stop_after)
        __atomic_store_n(&here.run->stop, 1, __ATOMIC_RELAXED);
    return ndp_device_cpu.kernels[c->op->id]->run(c);
}

/* cpu, which counts the micro-batches whose tokens it looks up: rank 0 has the embedding. */
typedef struct counting_device {
    ndp_device device;
    ndp_kernel kernel;
    const ndp_kernel *table[NDP_OP_COUNT];
} counting_device;

static void counting_device_init(counting_device *d) {
    d->device = ndp_device_cpu;
    d->kernel = *ndp_device_cpu.kernels[NDP_OP_embedding];
    d->kernel.run = count_micro_batch;
    memcpy(d->table, ndp_device_cpu.kernels, sizeof d->table);
    d->table[NDP_OP_embedding] = &d->kernel;
    d->device.kernels = d->table;
}

static ndp_status score_rank(ndp_world *w, void *arg) {
    scoring_run *r = arg;
    counting_device d;
    bool first = ndp_world_rank(w) == 0;
    ndp_train_opts o = NDP_TRAIN_OPTS_INIT;
    ndp_trainer *t;
    o.stop = &r->stop;
    counting_device_init(&d);
    NDP_TRY(ndp_trainer_open(r->config, w, &(ndp_rank_opts){.run = &o, .device = &d.device}, &t));
    here.run = first ? r : NULL, here.calls = 0;
    if (first && r->kill_at)
        ndp_fault_arm_kill(NDP_FAULT_RENAME, r->kill_at);
    ndp_status st = ndp_score_find_references(&t->score);
    if (first) {
        r->out->st = st, r->out->micro_batches = here.calls;
        snprintf(r->out->why, sizeof r->out->why, "%s", st == NDP_OK ? "" : ndp_error_message());
        if (st == NDP_OK)
            memcpy(r->out->values, t->score.references[0], sizeof r->out->values);
    }
    here.run = NULL;
    ndp_trainer_destroy(t);
    return NDP_OK;
}

static ndp_config *configure_pass(const char *folder, const char *cache, const char *layout) {
    ndp_config *c = configure(folder, REFERRED, "none");
    CHECK_OK(ndp_config_setf(c, "data.cache_dir=%s/%s", folder, cache));
    CHECK_OK(ndp_config_set(c, layout));
    CHECK_OK(ndp_config_set(c, "checkpoint.minutes=1e-9")); /* a part after each pass */
    return c;
}

static scored score(const char *folder, const char *cache, const char *layout, int64_t stop_after) {
    scored out = {0};
    ndp_config *c = configure_pass(folder, cache, layout);
    scoring_run r = {.config = c, .stop_after = stop_after, .out = &out};
    CHECK_OK(ndp_world_run(c, score_rank, &r));
    ndp_config_destroy(c);
    return out;
}

/* ---- the file ---- */

/* The path of the one reference in a cache, or "". */
static const char *find_file(const char *folder, const char *cache, char out[512]) {
    char *path = ndp_format("%s/%s", folder, cache);
    DIR *d = opendir(path);
    out[0] = '\0';
    for (struct dirent *e; d && (e = readdir(d));)
        if (ndp_ends_with(e->d_name, ".reference"))
            snprintf(out, 512, "%s/%s", path, e->d_name);
    if (d)
        closedir(d);
    free(path);
    return out;
}

/* How many answers it has; they are those of `whole`. */
static int count_kept(const char *folder, const char *cache, const double *whole) {
    char path[512], *data;
    double values[DOCUMENTS];
    size_t size;
    int n = 0;
    if (!*find_file(folder, cache, path))
        return 0;
    CHECK_OK(ndp_file_read(path, &data, &size));
    assert_true(size > sizeof values);
    memcpy(values, data + size - sizeof values, sizeof values);
    for (int i = 0; i < DOCUMENTS; i++) {
        n += !isnan(values[i]);
        assert_true(isnan(values[i]) || values[i] == whole[i]);
    }
    free(data);
    return n;
}

static void forget(const char *folder, const char *cache) {
    char path[512];
    if (*find_file(folder, cache, path))
        assert_int_equal(unlink(path), 0);
}

static void check_values(const scored *s, const double *whole, double bound, const char *what) {
    if (s->st != NDP_OK)
        fail_msg("%s: status %d, %s", what, s->st, s->why);
    for (int i = 0; i < DOCUMENTS; i++)
        if (!(fabs(s->values[i] - whole[i]) <= bound * fabs(whole[i])))
            fail_msg("%s: answer %d has %.17g, not %.17g", what, i, s->values[i], whole[i]);
}

/* Of one rank, whose passes are micro-batches; it says how many answers are kept. */
static void check_stopped(const scored *s, const char *folder, const char *cache, int passes, const double *whole) {
    char says[96];
    snprintf(says, sizeof says, "%d of %d answers are kept, and the same command goes on", passes * EACH, DOCUMENTS);
    assert_int_equal(s->st, NDP_EINTR);
    if (!strstr(s->why, says))
        fail_msg("no '%s' in: %s", says, s->why);
    assert_int_equal(s->micro_batches, passes);
    assert_int_equal(count_kept(folder, cache, whole), passes * EACH);
}

/* ---- stopped ---- */

static void stopped_after_each_pass(void **state) {
    scored whole = score(*state, "whole", layouts[0], 0);
    check_values(&whole, whole.values, 0, "whole");
    assert_int_equal(whole.micro_batches, PASSES);
    for (int k = 1; k < PASSES; k += short_or_all(9, 1)) {
        scored part = score(*state, "parts", layouts[0], k);
        check_stopped(&part, *state, "parts", k, whole.values);
        if (k + 1 < PASSES) { /* and again after the next one */
            part = score(*state, "parts", layouts[0], 1);
            assert_int_equal(part.st, NDP_EINTR);
            assert_int_equal(part.micro_batches, 1);
            assert_int_equal(count_kept(*state, "parts", whole.values), (k + 1) * EACH);
        }
        part = score(*state, "parts", layouts[0], 0);
        check_values(&part, whole.values, 0, "resumed");
        assert_int_equal(part.micro_batches, PASSES - k - (k + 1 < PASSES));
        part = score(*state, "parts", layouts[0], 0);
        assert_int_equal(part.micro_batches, 0); /* nothing is missing */
        forget(*state, "parts");
    }
    /* after its last pass it is whole, and a run ends by its first step */
    scored last = score(*state, "parts", layouts[0], PASSES);
    check_values(&last, whole.values, 0, "stopped in the last pass");
}

static void train_with(const char *folder, const char *cache, const char *layout, run *r) {
    ndp_config *c = configure_pass(folder, cache, layout);
    char *output = ndp_format("%s/trained", folder);
    CHECK_OK(ndp_config_setf(c, "train.output_dir=%s", output));
    *r = (run){.config = c};
    CHECK_OK(train(r, false, NULL));
    ndp_str_release(&r->said);
    CHECK_OK(ndp_folder_remove(output));
    ndp_config_destroy(c);
    free(output);
}

/* What a layout has scored stays; the rest is as on the other one. The losses are those of a pass that is left alone.
 */
static void resumed_on_another_layout(void **state) {
    static const double near = 2e-5;
    scored one = score(*state, "whole", layouts[0], 0);
    run want, have;
    train_with(*state, "whole", layouts[0], &want);
    for (int i = 1; i < LAYOUTS * LAYOUTS; i += short_or_all(5, 1)) {
        const char *first = layouts[i / LAYOUTS], *then = layouts[i % LAYOUTS];
        char what[160];
        snprintf(what, sizeof what, "%s, then %s", first, then);
        scored part = score(*state, "moved", first, 2 + i % 4);
        assert_int_equal(part.st, NDP_EINTR);
        scored rest = score(*state, "moved", then, 0);
        check_values(&rest, one.values, near, what);
        if (rest.micro_batches <= 0 ||
            rest.micro_batches > PASSES - (i % LAYOUTS != 4)) /* pp: its first pass has more rows than are kept */
            fail_msg("%s: %lld micro-batches", what, (long long)rest.micro_batches);
        assert_int_equal(count_kept(*state, "moved", rest.values), DOCUMENTS);
        train_with(*state, "moved", then, &have);
        for (int k = 1; k <= STEPS; k++)
            if (!(fabs(have.m[k].loss - want.m[k].loss) <= near * want.m[k].loss))
                fail_msg("%s: loss %.9g of step %d, not %.9g", what, have.m[k].loss, k, want.m[k].loss);
        forget(*state, "moved");
    }
    scored part = score(*state, "moved", layouts[0], 8);
    assert_int_equal(part.st, NDP_EINTR);
    train_with(*state, "moved", layouts[0], &have);
    for (int k = 1; k <= STEPS; k++)
        assert_true(have.m[k].loss == want.m[k].loss && have.m[k].grad_norm == want.m[k].grad_norm);
    forget(*state, "moved");
}

/* ---- killed ---- */

/* Before the rename of part n, n - 1 of them are there. */
static void killed_before_each_part(void **state) {
    scored whole = score(*state, "whole", layouts[0], 0);
    score(*state, "killed", layouts[0], 0); /* makes the token cache */
    for (int n = 1; n <= PASSES; n += short_or_all(7, 1)) {
        int status;
        forget(*state, "killed");
        pid_t child = fork();
        if (child == 0) {
            scored out = {0};
            ndp_config *c = configure_pass(*state, "killed", layouts[0]);
            scoring_run r = {.config = c, .kill_at = n, .out = &out};
            (void)!ndp_world_run(c, score_rank, &r);
            _exit(1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_int_equal(count_kept(*state, "killed", whole.values), (n - 1) * EACH);
        scored rest = score(*state, "killed", layouts[0], 0);
        check_values(&rest, whole.values, 0, "after a kill");
        assert_int_equal(rest.micro_batches, PASSES - n + 1);
    }
}

/* ---- parts of others ---- */

/* A part of another reference, under this one's name, is not used; nor is one whose numbers were damaged. */
static void parts_of_others_are_not_used(void **state) {
    static const char *const others[] = {"data.sequence_length=80", "data.files=@/other-pairs.jsonl",
                                         "model.path=@/other"};
    char own[512], other[512], *data;
    size_t size;
    scored whole = score(*state, "whole", layouts[0], 0);
    scored part = score(*state, "own", layouts[0], 8);
    find_file(*state, "own", own);
    for (int i = 0; i <= NDP_COUNT(others); i++) {
        ndp_config *c = configure_pass(*state, "others", layouts[0]);
        scored out = {0};
        scoring_run r = {.config = c, .stop_after = 8, .out = &out};
        if (i < NDP_COUNT(others))
            set(c, *state, others[i]);
        CHECK_OK(ndp_world_run(c, score_rank, &r));
        assert_int_equal(out.st, NDP_EINTR);
        ndp_config_destroy(c);
        CHECK_OK(ndp_file_read(find_file(*state, "others", other), &data, &size));
        if (i == NDP_COUNT(others))
            data[size - DOCUMENTS * sizeof(double)] ^= 1;
        CHECK_OK(ndp_file_write_atomic(own, data, size));
        free(data);
        part = score(*state, "own", layouts[0], 0);
        assert_int_equal(part.micro_batches, PASSES);
        check_values(&part, whole.values, 0, i < NDP_COUNT(others) ? others[i] : "damaged");
        forget(*state, "others");
    }
}

static int make_pairs(void **state) {
    ndp_str s = {0};
    make_folder(state);
    char *other = ndp_format("%s/other", (char *)*state);
    assert_int_equal(mkdir(other, 0700), 0);
    tiny_write(other, "config.json", model_text);
    tiny_write_tokenizer(other, true);
    tiny_write_weights(other, 4, NDP_F32);
    for (int i = 0; i < DOCUMENTS / 2; i++)
        ndp_str_addf(&s, "{\"question\": \"%d!\", \"chosen\": \"%d?\", \"rejected\": \"yes: %d\"}\n", i, i, i * i);
    tiny_write(*state, "other-pairs.jsonl", s.data);
    ndp_str_release(&s);
    free(other);
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stopped_after_each_pass), cmocka_unit_test(resumed_on_another_layout),
        cmocka_unit_test(killed_before_each_part), cmocka_unit_test(parts_of_others_are_not_used)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_pairs, tiny_teardown);
}
