/* Timelines of a job: simulated by a plan and measured by a run, in one form. The file parses, and its bubbles are
 * those of its events and those that are printed. */
#include "base/json.h"
#include "comm/comm.h"
#include "step/step_parts.h"
#include "train/tiny_run.h"
#include <ndparallel/ndparallel.h>

#include <math.h>

enum { MOST_RANKS = 8 };

enum { MICRO_BATCHES = 8 };

static ndp_config *configure(const char *folder, const char *schedule, const char *axis) {
    static const tiny_layout one = {"one", 1, 1, 1, 1};
    ndp_config *c = tiny_configure(folder, &one, "run");
    tiny_set(c, "parallelism.pp_size=2");
    tiny_set(c, "pipeline.schedule=%s", schedule);
    tiny_set(c, "batch.micro_batch_size=1");
    tiny_set(c, "batch.global_batch_size=%d", MICRO_BATCHES * (strcmp(axis, "dp_shard") == 0 ? 2 : 1));
    tiny_set(c, "parallelism.%s_size=2", axis);
    return c;
}

static double number(struct json_object *o, const char *key) {
    double value = NAN;
    CHECK_OK(ndp_json_double(o, "event", key, &value));
    return value;
}

static const char *text_of(struct json_object *o, const char *key) {
    const char *value = "";
    CHECK_OK(ndp_json_string(o, "event", key, &value));
    return value;
}

/* Checks the events: they are inside the step, and in waits for messages for *receive[rank] microseconds. Returns how
 * many are of the kind `kind`. */
static int read_events(struct json_object *events, double step, const char *kind, double *receive) {
    int found = 0;
    for (size_t i = 0; i < json_object_array_length(events); i++) {
        struct json_object *e = json_object_array_get_idx(events, i);
        int rank = (int)number(e, "pid");
        assert_in_range(rank, 0, MOST_RANKS - 1);
        if (strcmp(text_of(e, "ph"), "M") == 0)
            continue;
        assert_string_equal(text_of(e, "ph"), "X");
        assert_true(number(e, "ts") >= 0 && number(e, "dur") >= 0);
        assert_true(number(e, "ts") + number(e, "dur") <= 1e6 * step + 0.01);
        receive[rank] += strcmp(text_of(e, "cat"), "receive") == 0 ? number(e, "dur") : 0;
        found += strcmp(text_of(e, "cat"), kind) == 0;
    }
    return found;
}

/* The file's parts of each rank: none is negative, they sum to the step, and the table that is printed has them. */
static void check_parts(struct json_object *row, double step, const char *printed) {
    struct json_object *seconds;
    char line[16];
    double sum = 0;
    int n = 0;
    assert_true(json_object_object_get_ex(row, "seconds", &seconds));
    const char *at = strstr(printed, (snprintf(line, sizeof line, "\n  %-6d  ", (int)number(row, "rank")), line));
    assert_non_null(at);
    at += strlen(line);
    json_object_object_foreach(seconds, part, value) {
        double part_of_step = json_object_get_double(value);
        char *end;
        (void)part;
        assert_true(part_of_step >= 0);
        sum += part_of_step;
        assert_true(fabs(strtod(at, &end) - 100 * part_of_step / step) <= 0.051);
        at = end + 1; /* % */
        n++;
    }
    assert_int_equal(n, NDP_PARTS);
    assert_true(fabs(sum / step - 1) <= 1e-9);
}

/* The file's bubble of each rank against its events: measured, begins are also a part of it. */
static void check_file(const char *path, const char *printed, bool measured, int ranks, int forwards) {
    struct json_object *file, *events, *other, *rows;
    double receive[MOST_RANKS] = {0};
    CHECK_OK(ndp_json_read(path, &file));
    assert_true(json_object_object_get_ex(file, "traceEvents", &events));
    assert_true(json_object_object_get_ex(file, "otherData", &other));
    assert_true(json_object_object_get_ex(other, "ranks", &rows));
    assert_int_equal(json_object_array_length(rows), ranks);
    double step = number(json_object_array_get_idx(rows, 0), "step_seconds");
    assert_int_equal(read_events(events, step, "forward", receive), forwards);
    for (int r = 0; r < ranks; r++) {
        struct json_object *row = json_object_array_get_idx(rows, (size_t)r);
        double bubble = number(row, "bubble");
        assert_int_equal((int)number(row, "rank"), r);
        assert_true(bubble > receive[r] / 1e6 / step - 1e-3);
        assert_true(measured || bubble < receive[r] / 1e6 / step + 1e-3);
        check_parts(row, number(row, "step_seconds"), printed);
    }
    json_object_put(file);
}

static const struct { const char *schedule, *axis; } cases[] = {{"1f1b", "dp_shard"}, {"zero_bubble", "tp"}};

static void plans_are_simulated(void **state) {
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_config *c = configure(*state, cases[i].schedule, cases[i].axis);
        char *path = ndp_format("%s/plan.json", (char *)*state), *text;
        ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
        o.timeline = path;
        CHECK_OK(ndp_plan(c, &o, &text));
        check_file(path, text, false, 4, 4 * MICRO_BATCHES);
        free(text);
        ndp_config_destroy(c);
        free(path);
    }
}

/* ---- a run ---- */

typedef struct measured {
    const ndp_config *config;
    const char *trace;
    int64_t first, last;
    ndp_str said;
} measured;

static void keep_line(void *user, const char *line) {
    measured *m = user;
    ndp_str_addf(&m->said, "%s\n", line);
}

static ndp_status train(ndp_world *w, void *user) {
    measured *m = user;
    ndp_train_opts o = NDP_TRAIN_OPTS_INIT;
    o.trace = m->trace;
    o.trace_first = m->first, o.trace_last = m->last;
    o.say = keep_line;
    o.user = m;
    return ndp_train(m->config, w, &o);
}

static void runs_are_measured(void **state) {
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_config *c = configure(*state, cases[i].schedule, cases[i].axis);
        char *path = ndp_format("%s/run.json", (char *)*state);
        measured m = {.config = c, .trace = path};
        tiny_set(c, "train.steps=2");
        CHECK_OK(ndp_local_world(4, train, &m));
        assert_non_null(strstr(m.said.data, "run.json, step 2\n"));
        check_file(path, m.said.data, true, 4, 4 * MICRO_BATCHES);
        ndp_str_release(&m.said);
        ndp_config_destroy(c);
        tiny_remove(*state, "run");
        free(path);
    }
}

/* ---- some steps of a run ---- */

enum { FIRST = 2, LAST = 4 };

/* The file has events of the steps FIRST to LAST, alike in each, one step after the other. */
static void check_steps(const char *path) {
    struct json_object *file, *events, *args;
    int found[LAST + 1] = {0};
    double end[MOST_RANKS] = {0};
    CHECK_OK(ndp_json_read(path, &file));
    assert_true(json_object_object_get_ex(file, "traceEvents", &events));
    for (size_t i = 0; i < json_object_array_length(events); i++) {
        struct json_object *e = json_object_array_get_idx(events, i);
        int rank = (int)number(e, "pid"), step;
        if (strcmp(text_of(e, "cat"), "forward") != 0)
            continue;
        assert_true(json_object_object_get_ex(e, "args", &args));
        step = (int)number(args, "step");
        assert_in_range(step, FIRST, LAST);
        assert_true(number(e, "ts") + 0.002 >= end[rank]);
        end[rank] = number(e, "ts") + number(e, "dur");
        found[step]++;
    }
    for (int step = FIRST; step <= LAST; step++)
        assert_int_equal(found[step], 4 * MICRO_BATCHES);
    json_object_put(file);
}

static void some_steps_are_traced(void **state) {
    ndp_config *c = configure(*state, cases[0].schedule, cases[0].axis);
    char *path = ndp_format("%s/run.json", (char *)*state);
    measured m = {.config = c, .trace = path, .first = FIRST, .last = LAST};
    tiny_set(c, "train.steps=6");
    CHECK_OK(ndp_local_world(4, train, &m));
    assert_non_null(strstr(m.said.data, "run.json, steps 2 to 4\n3 steps: "));
    check_file(path, m.said.data, true, 4, 4 * MICRO_BATCHES * (LAST - FIRST + 1));
    check_steps(path);
    ndp_str_release(&m.said);
    ndp_config_destroy(c);
    tiny_remove(*state, "run");
    free(path);
}

static void steps_that_the_run_has_not_are_refused(void **state) {
    ndp_config *c = configure(*state, cases[0].schedule, cases[0].axis);
    char *path = ndp_format("%s/refused.json", (char *)*state), *job = ndp_format("%s/run/job.yaml", (char *)*state);
    measured m = {.config = c, .trace = path, .first = 3, .last = 2};
    tiny_set(c, "train.steps=6");
    CHECK_FAILS(ndp_local_world(4, train, &m), NDP_EINVAL, "steps 3 to 2 cannot be traced");
    m.first = 0;
    CHECK_FAILS(ndp_local_world(4, train, &m), NDP_EINVAL, "steps 0 to 2 cannot be traced");
    m.first = 3, m.last = 7;
    CHECK_FAILS(ndp_local_world(4, train, &m), NDP_EINVAL, "to end with step 7, and the run has 6 steps");
    assert_false(ndp_path_exists(job));
    assert_false(ndp_path_exists(path));
    tiny_remove(*state, "run");
    ndp_config_destroy(c);
    free(path);
    free(job);
}

/* ---- pictures ---- */

static int count(const char *text, const char *word) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += strlen(word))
        n++;
    return n;
}

static void pictures_have_a_row_for_each_rank(void **state) {
    ndp_config *c = configure(*state, "1f1b", "dp_shard");
    char *path = ndp_format("%s/plan.svg", (char *)*state), *text, *picture;
    size_t size;
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    o.timeline = path;
    CHECK_OK(ndp_plan(c, &o, &text));
    CHECK_OK(ndp_file_read(path, &picture, &size));
    assert_int_equal(count(picture, "<text x=\"4\""), 4);
    for (int rank = 0; rank < 4; rank++) { /* rows of 30 from 40 on */
        char row[32];
        snprintf(row, sizeof row, "y=\"%d\" width", 40 + 30 * rank);
        assert_in_range(count(picture, row), 2 * MICRO_BATCHES, 4 * MICRO_BATCHES + 40);
    }
    assert_int_equal(count(picture, " forward mb 7, "), 4);
    assert_int_equal(count(picture, " backward mb 7, "), 4);
    assert_int_equal(count(picture, "<svg"), count(picture, "</svg>\n"));
    assert_int_equal(count(picture, "<text"), count(picture, "</text>"));
    free(picture);
    free(text);
    free(path);
    ndp_config_destroy(c);
}

static void other_files_are_refused(void **state) {
    ndp_config *c = configure(*state, "1f1b", "dp_shard");
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    char *text, *folder = ndp_format("%s/run", (char *)*state);
    o.timeline = "plan.pdf";
    CHECK_FAILS(ndp_plan(c, &o, &text), NDP_EINVAL, "'plan.pdf' ends neither in .json");
    CHECK_FAILS(ndp_local_world(4, train, &(measured){.config = c, .trace = "trace"}), NDP_EINVAL, "'trace' ends");
    assert_false(ndp_path_exists(folder)); /* before anything is written */
    free(folder);
    ndp_config_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_are_simulated),
                                       cmocka_unit_test(runs_are_measured),
                                       cmocka_unit_test(some_steps_are_traced),
                                       cmocka_unit_test(steps_that_the_run_has_not_are_refused),
                                       cmocka_unit_test(pictures_have_a_row_for_each_rank),
                                       cmocka_unit_test(other_files_are_refused)};
    return cmocka_run_group_tests(tests, tiny_make, tiny_drop);
}
