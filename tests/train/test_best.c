/* train.keep_best and train.stop_after: the evaluations of metrics.jsonl say which step is the best and when a run
 * ends; best/ has the bits of that step's checkpoint. On all layouts, with an adapter, resumed from any step, and when
 * a disk fails. */
#include "train/best.h"

#include "base/fault.h"
#include "base/json.h"
#include "train/started_run.h"
#include "train/tiny_run.h"
#include "weights/run_model.h"

#include <math.h>

enum { MOST = 40, STOP_AFTER = 3 };

/* What metrics.jsonl says of a run. */
typedef struct told {
    int64_t steps, best, since;
    double losses[MOST + 1]; /* by step */
} told;

/* ---- counting ---- */

static void counts(void **state) {
    (void)state;
    ndp_best b = {0};
    static const struct {
        double loss;
        int64_t best, since;
    } cases[] = {{NAN, 0, 1}, {INFINITY, 0, 2}, {3, 3, 0},   {3, 3, 1}, {4, 3, 2},
                 {NAN, 3, 3}, {2.5, 7, 0},      {2.4, 8, 0}, {9, 8, 1}, {-INFINITY, 8, 2}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_best_count(&b, i + 1, cases[i].loss);
        assert_int_equal(b.step, cases[i].best);
        assert_int_equal(b.since, cases[i].since);
        assert_int_equal(b.newest, i + 1);
    }
    assert_true(b.loss == 2.4);
}

/* ---- runs ---- */

static void train(const ndp_config *c, int64_t from) { run_started((started_run){.config = c, .from = from}); }

static told read_told(const char *folder, const char *run) {
    char *path = ndp_format("%s/%s/metrics.jsonl", folder, run), *text;
    size_t size;
    told t = {0};
    CHECK_OK(ndp_file_read(path, &text, &size));
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        struct json_object *o = NULL, *loss;
        CHECK_OK(ndp_json_parse(line, strlen(line), path, &o));
        t.steps = json_object_get_int64(json_object_object_get(o, "step"));
        assert_true(t.steps <= MOST && json_object_object_get_ex(o, "eval_loss", &loss) && loss);
        t.losses[t.steps] = json_object_get_double(loss);
        bool better = t.best == 0 || t.losses[t.steps] < t.losses[t.best];
        t.since = better ? 0 : t.since + 1;
        t.best = better ? t.steps : t.best;
        json_object_put(o);
    }
    free(text);
    free(path);
    return t;
}

/* What best/evaluation.json says. */
static int64_t step_of_best(const char *folder, const char *run, double *loss) {
    char *path = ndp_format("%s/%s/best/evaluation.json", folder, run);
    struct json_object *o = NULL;
    int64_t step = 0;
    CHECK_OK(ndp_json_read(path, &o));
    CHECK_OK(ndp_json_int(o, path, "step", 1, MOST, &step));
    CHECK_OK(ndp_json_double(o, path, "eval_loss", loss));
    json_object_put(o);
    free(path);
    return step;
}

/* best/ is the model of the step of the lowest loss, with the bits of its checkpoint; nothing is left over. */
static void check_best(const char *folder, const char *run, bool exported) {
    told t = read_told(folder, run);
    double loss;
    assert_int_equal(step_of_best(folder, run, &loss), t.best);
    assert_true(loss == t.losses[t.best]);
    tiny_nothing_left(folder, run, "", run);
    char *old = ndp_format("%s/%s/.best.old", folder, run);
    assert_false(ndp_path_exists(old));
    free(old);
    if (!exported)
        return;
    char *from = ndp_format("%s/%s", folder, run), *exports = ndp_format("%s.export", run);
    char *room = ndp_format("%s/%s", folder, exports), *to = ndp_format("%s/best", room);
    int64_t step = 0;
    CHECK_OK(ndp_checkpoint_export(from, t.best, to, &step));
    assert_int_equal(step, t.best);
    assert_true(tiny_same_weights(folder, run, exports, "best"));
    CHECK_OK(ndp_folder_remove(room));
    free(to);
    free(room);
    free(exports);
    free(from);
}

/* The rate rises until the loss does too. */
static ndp_config *configure(const char *folder, const tiny_layout *l, const char *run) {
    ndp_config *c = tiny_configure(folder, l, run);
    tiny_set(c, "data.validation_files=%s/text.txt", folder);
    tiny_set(c, "train.steps=%d", MOST);
    tiny_set(c, "optimizer.lr=1.5");
    tiny_set(c, "schedule.warmup_steps=%d", MOST);
    tiny_set(c, "checkpoint.every=1");
    tiny_set(c, "checkpoint.keep=%d", MOST);
    tiny_set(c, "train.eval_every=1");
    tiny_set(c, "train.keep_best=true");
    tiny_set(c, "train.stop_after=%d", STOP_AFTER);
    return c;
}

static void check_stopped(const char *folder, const char *run) {
    told t = read_told(folder, run);
    if (t.steps == MOST)
        fail_msg("%s: the run did not stop", run);
    assert_int_equal(t.since, STOP_AFTER);
    assert_int_equal(t.steps, t.best + STOP_AFTER);
    assert_true(t.best > 1);
}

/* Lines up to what depends on the clock are those of a run that keeps nothing and goes on to the end. */
static void check_curve(const char *folder, const char *run, const char *alone) {
    char *own = tiny_metrics(folder, run), *other = tiny_metrics(folder, alone);
    assert_int_equal(strncmp(own, other, strlen(own)), 0);
    free(own);
    free(other);
}

typedef struct layout_case {
    tiny_layout axes;
    int pp;
    const char *also;
} layout_case;

static const layout_case layouts[] = {{{"one", 1, 1, 1, 1}, 1, NULL},
                                      {{"dp", 2, 2, 1, 1}, 1, NULL},
                                      {{"tp-pp", 1, 1, 1, 2}, 2, NULL},
                                      {{"lora", 1, 2, 1, 2}, 1, "adapter.type=lora"}};

static void stops_on_all_layouts(void **state) {
    const char *folder = *state;
    for (int i = 0; i < NDP_COUNT(layouts); i++) {
        const layout_case *l = &layouts[i];
        ndp_config *c = configure(folder, &l->axes, l->axes.name);
        tiny_set(c, "parallelism.pp_size=%d", l->pp);
        if (l->also)
            tiny_set(c, "%s", l->also);
        train(c, -1);
        check_stopped(folder, l->axes.name);
        check_best(folder, l->axes.name, true);
        char *model = ndp_format("%s/%s/%s", folder, l->axes.name, l->also ? "adapter" : "model"),
             *before = tiny_metrics(folder, l->axes.name);
        assert_true(ndp_path_is_folder(model));
        /* it has stopped: a resumed run ends at once, and says the same */
        CHECK_OK(ndp_folder_remove(model));
        train(c, 0);
        char *after = tiny_metrics(folder, l->axes.name);
        assert_string_equal(before, after);
        assert_true(ndp_path_is_folder(model));
        check_best(folder, l->axes.name, false);
        free(after);
        free(before);
        free(model);
        ndp_config_destroy(c);
    }
}

/* Resumed from before the best step, from it, and from after it, also by another layout: the same best model. */
static void resumed(void **state) {
    const char *folder = *state;
    const tiny_layout one = {"one", 1, 1, 1, 1}, two = {"two", 1, 2, 1, 1};
    ndp_config *c = configure(folder, &one, "resumed"), *alone = configure(folder, &one, "alone");
    tiny_set(alone, "train.keep_best=false");
    tiny_set(alone, "train.stop_after=0");
    tiny_set(alone, "train.steps=%d", MOST);
    train(alone, -1);
    train(c, -1);
    check_curve(folder, "resumed", "alone");
    const int64_t best = read_told(folder, "resumed").best;
    const int64_t from[] = {best - 1, best, best + 1, best + STOP_AFTER};
    for (int i = 0; i < NDP_COUNT(from); i++) {
        train(c, from[i]);
        check_stopped(folder, "resumed");
        check_best(folder, "resumed", true);
        assert_int_equal(read_told(folder, "resumed").best, best);
    }
    ndp_config *other = configure(folder, &two, "resumed");
    train(other, best - 1);
    check_stopped(folder, "resumed");
    check_best(folder, "resumed", true);
    /* best/ that is lost: of the step that the run goes on from, if that has an evaluation */
    char *path = ndp_format("%s/resumed/best", folder);
    CHECK_OK(ndp_folder_remove(path));
    train(c, best);
    check_best(folder, "resumed", true);
    free(path);
    ndp_config_destroy(other);
    ndp_config_destroy(alone);
    ndp_config_destroy(c);
}

/* The lock of a process that has died, so that the next run is the second generation. TSan starts no thread, such as
 * the lock's, after a fork. */
static bool leave_lock(const char *folder) {
    if (SANITIZED)
        return false;
    pid_t child = fork();
    if (child == 0) {
        ndp_lock *l;
        bool held = false;
        bool taken = ndp_lock_create(folder, false, &l) == NDP_OK && ndp_lock_try(l, &held) == NDP_OK && held;
        _exit(taken ? 0 : 1);
    }
    assert_int_equal(tiny_end(child, "a lock"), 0);
    return true;
}

/* A rename that fails while the model of step 2 is kept: the run goes on, and the next one that is better than that of
 * step 1 is kept. The name beside best/ has the generation. */
static void failing_disk(void **state) {
    const char *folder = *state;
    char *run = ndp_format("%s/failing", folder), *heard = ndp_format("%s/heard", folder), *said;
    bool second = leave_lock(run);
    size_t size;
    ndp_config *c = configure(folder, &(tiny_layout){"shard", 1, 2, 1, 1}, "failing");
    tiny_set(c, "checkpoint.every=0");
    int own = tiny_redirect_stderr(heard);
    run_started((started_run){c, -1, 1, NDP_FAULT_RENAME});
    tiny_restore_stderr(own);
    CHECK_OK(ndp_file_read(heard, &said, &size));
    if (!strstr(said, second ? "/failing/.best.2.tmp/" : "/failing/.best.tmp/"))
        fail_msg("the name beside best/ lacks the generation: %s", said);
    free(said);
    free(heard);
    free(run);
    told t = read_told(folder, "failing");
    int64_t expected = 1;
    double loss;
    assert_true(t.losses[2] < t.losses[1]);
    for (int64_t step = 3; step <= t.steps; step++)
        expected = t.losses[step] < t.losses[expected] ? step : expected;
    assert_int_equal(step_of_best(folder, "failing", &loss), expected);
    tiny_nothing_left(folder, "failing", "", "failing");
    ndp_config_destroy(c);
}

/* ---- what a killed run leaves ---- */

static void put(const char *folder, const char *part, const char *text) {
    char *path = ndp_format("%s/%s", folder, part);
    CHECK_OK(ndp_folder_create(path));
    if (text)
        tiny_put(path, "evaluation.json", text);
    free(path);
}

static void settles(void **state) {
    static const struct {
        const char *best, *beside, *later, *after; /* of evaluation.json; NULL: there is none; .best.old has "0" */
    } cases[] = {{NULL, NULL, NULL, "0"}, {"1", NULL, NULL, "1"}, {NULL, "2", NULL, "2"}, {"1", "2", NULL, "1"},
                 {NULL, "2", "3", "3"},   {NULL, NULL, "3", "3"}, {"1", NULL, "3", "1"}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        char *folder = ndp_format("%s/settles-%d", (const char *)*state, i), *text = NULL;
        char *path = ndp_format("%s/best/evaluation.json", folder);
        char *beside = ndp_format("%s/.best.tmp", folder), *old = ndp_format("%s/.best.old", folder);
        char *later = ndp_format("%s/.best.12.tmp", folder);
        size_t size;
        if (cases[i].best)
            put(folder, "best", cases[i].best);
        put(folder, ".best.tmp", cases[i].beside);
        put(folder, ".best.9.tmp", NULL);
        put(folder, ".best.12.tmp", cases[i].later);
        put(folder, ".best.old", "0");
        CHECK_OK(ndp_best_clean(folder));
        assert_false(ndp_path_exists(beside) || ndp_path_exists(later) || ndp_path_exists(old));
        CHECK_OK(ndp_file_read(path, &text, &size));
        assert_string_equal(text, cases[i].after);
        free(text);
        free(path);
        free(beside);
        free(later);
        free(old);
        free(folder);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts), cmocka_unit_test(stops_on_all_layouts),
                                       cmocka_unit_test(resumed), cmocka_unit_test(failing_disk),
                                       cmocka_unit_test(settles)};
    return cmocka_run_group_tests(tests, tiny_make, tiny_drop);
}
