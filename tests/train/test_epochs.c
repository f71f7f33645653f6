/* train.epochs: how many steps they are, and runs of that many steps. */
#include "train/resumes.h"

#include <math.h>

/* Seven documents, a row each; global batches of 4. */
static const char seven_rows[] = "model: {config: %1$s/model.json}\n"
                                 "data: {files: [%1$s/seven.jsonl], tokenizer: %1$s/tokens, packing: false,\n"
                                 "       sequence_length: 40, cache_dir: %1$s/cache}\n"
                                 "parallelism: {dp_shard_size: %2$d}\n"
                                 "batch: {global_batch_size: 4, micro_batch_size: 1}\n"
                                 "schedule: {warmup_steps: 1, min_lr_ratio: 0.25}\n"
                                 "optimizer: {lr: 1.0e-3}\n"
                                 "train: {threads: 1, transport: local, output_dir: %1$s/%3$s}\n";

static ndp_config *epochs_job(const char *folder, int ranks, const char *name) {
    ndp_config *c;
    char *text = ndp_format(seven_rows, folder, ranks, name);
    CHECK_OK(ndp_config_create(&c));
    CHECK_OK(ndp_config_parse(c, text, strlen(text), "job"));
    free(text);
    return c;
}

static int make_seven(void **state) {
    ndp_str s = {0};
    make_folder(state);
    for (int i = 0; i < 7; i++)
        ndp_str_addf(&s, "{\"text\": \"document %d\"}\n", i);
    tiny_write(*state, "seven.jsonl", s.data);
    ndp_str_release(&s);
    return 0;
}

static void check_heard(const run *r, const char *words) {
    if (!r->said.data || !strstr(r->said.data, words))
        fail_msg("no '%s' in: %s", words, r->said.data ? r->said.data : "");
}

/* The last line of metrics.jsonl; the caller releases it. *lines: how many there are. */
static struct json_object *last_metrics(const char *folder, const char *name, int *lines) {
    char *path = ndp_format("%s/%s/metrics.jsonl", folder, name), *text;
    struct json_object *o = NULL;
    size_t size;
    *lines = 0;
    CHECK_OK(ndp_file_read(path, &text, &size));
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1, ++*lines) {
        json_object_put(o);
        CHECK_OK(ndp_json_parse(line, (size_t)(end - line), "metrics.jsonl", &o));
    }
    free(text);
    free(path);
    return o;
}

/* Rounded up; the cosine ends with the last step, and 4 ranks take as many steps with the same loss. */
static void epochs_become_steps(void **state) {
    static const struct {
        const char *epochs, *says;
        int steps;
    } cases[] = {{"1", "steps: 1 epoch of 7 rows: 2 steps\n", 2},
                 {"2", "steps: 2 epochs of 7 rows: 4 steps\n", 4},
                 {"4", "steps: 4 epochs of 7 rows: 7 steps\n", 7},
                 {"0.5", "steps: 0.5 epochs of 7 rows: 1 step\n", 1},
                 {"1e-9", "steps: 1e-09 epochs of 7 rows: 1 step\n", 1}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        double loss[2];
        for (int k = 0; k < 2; k++) {
            char *name = ndp_format("run-%d-%d", i, k);
            ndp_config *c = epochs_job(*state, k ? 4 : 1, name);
            CHECK_OK(ndp_config_setf(c, "train.epochs=%s", cases[i].epochs));
            run r = {.config = c};
            CHECK_OK(train(&r, false, NULL));
            check_heard(&r, cases[i].says);
            int lines;
            struct json_object *last = last_metrics(*state, name, &lines);
            assert_int_equal(lines, cases[i].steps);
            loss[k] = json_object_get_double(json_object_object_get(last, "loss"));
            double lr = json_object_get_double(json_object_object_get(last, "lr"));
            assert_true(cases[i].steps == 1 || fabs(lr - 2.5e-4) < 1e-12);
            json_object_put(last);
            ndp_str_release(&r.said);
            ndp_config_destroy(c);
            free(name);
        }
        assert_true(fabs(loss[1] - loss[0]) <= 2e-6 * loss[0]);
    }
}

/* The sources of a mix count as they are taken: 7 x 1 + 7 x 2 rows. */
static void epochs_of_a_mix(void **state) {
    ndp_config *c = epochs_job(*state, 1, "mixed");
    CHECK_OK(ndp_config_setf(c, "data.files=[%s/seven.jsonl, %s/seven.jsonl]", (char *)*state, (char *)*state));
    CHECK_OK(ndp_config_set(c, "data.mix=[1, 2]"));
    CHECK_OK(ndp_config_set(c, "train.epochs=1"));
    run r = {.config = c};
    CHECK_OK(train(&r, false, NULL));
    check_heard(&r, "steps: 1 epoch of 21 rows: 6 steps\n");
    ndp_str_release(&r.said);
    ndp_config_destroy(c);
}

/* By name, in another order, the numbers are those of their files; a resumed run may give them either way. */
static void a_mix_by_names(void **state) {
    ndp_config *c = epochs_job(*state, 1, "named");
    const char *folder = *state;
    CHECK_OK(ndp_config_setf(c, "data.files=[%s/seven.jsonl, %s/texts.jsonl]", folder, folder));
    CHECK_OK(ndp_config_setf(c, "data.mix={%s/texts.jsonl: 0.25, %s/seven.jsonl: 2}", folder, folder));
    CHECK_OK(ndp_config_set(c, "train.epochs=1"));
    run r = {.config = c, .stop_after = 2};
    assert_int_equal(train(&r, false, NULL), NDP_EINTR);
    check_heard(&r, "seven.jsonl, 14 of 7 rows an epoch");
    check_heard(&r, "texts.jsonl, 10 of 40 rows an epoch");
    ndp_str_release(&r.said);
    CHECK_OK(ndp_config_set(c, "data.mix=[2, 0.25]"));
    r = (run){.config = c};
    CHECK_OK(train(&r, true, NULL));
    check_heard(&r, "resume: from step 2");
    ndp_str_release(&r.said);
    ndp_config_destroy(c);
}

/* The run of 3 epochs, 6 steps, goes on for a fourth one, and says what was accepted. */
static void accept_epochs(const ndp_config *c) {
    static const char *const accepts[][2] = {{"train.epochs", NULL}, {"train.steps", NULL}};
    for (int i = 0; i < NDP_COUNT(accepts); i++) {
        ndp_config *more;
        char *text, says[64];
        CHECK_OK(ndp_config_text(c, &text));
        CHECK_OK(ndp_config_create(&more));
        CHECK_OK(ndp_config_parse(more, text, strlen(text), "job"));
        CHECK_OK(ndp_config_setf(more, "train.epochs=%d", 4 + i));
        run r = {.config = more};
        CHECK_OK(train(&r, true, accepts[i]));
        snprintf(says, sizeof says, "accepted: train.epochs was %d steps, now it is %d steps\n", 6 + i, i ? 9 : 7);
        check_heard(&r, says);
        ndp_str_release(&r.said);
        r = (run){.config = more};
        CHECK_FAILS(train(&r, true, accepts[i]), NDP_EINVAL, "it does not differ from the checkpoint");
        ndp_str_release(&r.said);
        ndp_config_destroy(more);
        free(text);
    }
}

/* A stopped run goes on from its own job.yaml, and as the same number of steps; other epochs are refused, and accepted,
 * by that name. */
static void epochs_resume(void **state) {
    ndp_config *c = epochs_job(*state, 1, "again"), *back;
    char *path = ndp_format("%s/again/job.yaml", (char *)*state);
    CHECK_OK(ndp_config_set(c, "train.epochs=3"));
    run r = {.config = c, .stop_after = 2};
    assert_int_equal(train(&r, false, NULL), NDP_EINTR);
    check_heard(&r, "steps: 3 epochs of 7 rows: 6 steps\n");
    ndp_str_release(&r.said);

    CHECK_OK(ndp_config_set(c, "train.epochs=2"));
    r = (run){.config = c};
    CHECK_FAILS(train(&r, true, NULL), NDP_EINVAL, "train.epochs was 6 steps, now it is 4 steps");
    assert_non_null(strstr(ndp_error_message(), "resume with --accept train.epochs"));
    ndp_str_release(&r.said);

    ndp_config *same = epochs_job(*state, 1, "again");
    CHECK_OK(ndp_config_set(same, "train.steps=6"));
    r = (run){.config = same, .stop_after = 4};
    assert_int_equal(train(&r, true, NULL), NDP_EINTR);
    ndp_str_release(&r.said);
    ndp_config_destroy(same);

    CHECK_OK(ndp_config_set(c, "train.epochs=3"));
    r = (run){.config = c};
    CHECK_OK(train(&r, true, NULL));
    check_heard(&r, "resume: from step 4");
    ndp_str_release(&r.said);
    CHECK_OK(ndp_config_create(&back));
    CHECK_OK(ndp_config_read(back, path));
    assert_true(back->train.epochs == 3);
    CHECK_OK(ndp_config_check(back));
    ndp_config_destroy(back);
    accept_epochs(c);
    ndp_config_destroy(c);
    free(path);
}

static void too_many_steps_are_refused(void **state) {
    ndp_config *c = epochs_job(*state, 1, "many");
    CHECK_OK(ndp_config_set(c, "train.epochs=1e9"));
    run r = {.config = c};
    CHECK_FAILS(train(&r, false, NULL), NDP_EINVAL,
                "train.epochs: 1e+09 epochs of 7 rows are 1750000000 steps; a run has 1073741824 at most");
    ndp_str_release(&r.said);
    ndp_config_destroy(c);
}

/* A plan knows the steps where the head of the data is all of it. */
static void a_plan_says_the_steps(void **state) {
    ndp_config *c = epochs_job(*state, 1, "planned");
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    ndp_str s = {0};
    char *text;
    o.data = true;
    CHECK_OK(ndp_config_set(c, "train.epochs=3"));
    CHECK_OK(ndp_plan(c, &o, &text));
    assert_non_null(strstr(text, "steps: 3 epochs of 7 rows: 6 steps\n"));
    free(text);
    for (int i = 0; i < 200; i++)
        ndp_str_addf(&s, "{\"text\": \"document %d\"}\n", i);
    tiny_write(*state, "many.jsonl", s.data);
    ndp_str_release(&s);
    CHECK_OK(ndp_config_setf(c, "data.files=%s/many.jsonl", (char *)*state));
    CHECK_OK(ndp_plan(c, &o, &text));
    assert_non_null(strstr(text, "steps: not known; a run derives them from 3 epochs once all data is tokenized\n"));
    free(text);
    ndp_config_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epochs_become_steps),
        cmocka_unit_test(epochs_of_a_mix),
        cmocka_unit_test(a_mix_by_names),
        cmocka_unit_test(epochs_resume),
        cmocka_unit_test(too_many_steps_are_refused),
        cmocka_unit_test(a_plan_says_the_steps),
    };
    return cmocka_run_group_tests(tests, make_seven, tiny_teardown);
}
