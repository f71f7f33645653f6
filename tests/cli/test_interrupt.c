/* Ctrl-C: the step is finished, a checkpoint saved, the exit code is 130, and --resume goes on as if nothing had been.
 */
#include "cli/job.h"

/* ---- metrics.jsonl ---- */

/* The line of a step up to what depends on the clock; freed by the caller. */
static char *step_line(const char *folder, const char *run, int step) {
    char *path = ndp_format("%s/%s/metrics.jsonl", folder, run), *key = ndp_format("{\"step\": %d,", step), *text;
    size_t size;
    CHECK_OK(ndp_file_read(path, &text, &size));
    char *line = strstr(text, key), *end = line ? strstr(line, ", \"tokens_per_second\"") : NULL;
    if (!end)
        fail_msg("%s has no step %d", path, step);
    line = strndup(line, (size_t)(end - line));
    free(text);
    free(path);
    free(key);
    return line;
}

/* ---- runs ---- */

typedef struct kind {
    const char *transport;
    int ranks;
} kind;

static program start(const char *folder, const kind *k, const char *run, int steps, bool resume) {
    char transport[64], ranks[64], output[600], until[64];
    snprintf(transport, sizeof transport, "--transport=%s", k->transport);
    snprintf(ranks, sizeof ranks, "parallelism.dp_shard_size=%d", k->ranks);
    snprintf(output, sizeof output, "train.output_dir=%s", in(folder, run));
    snprintf(until, sizeof until, "train.steps=%d", steps);
    char *argv[] = {getenv("NDP_PROGRAM"),
                    "train",
                    (char *)in(folder, "job.yaml"),
                    transport,
                    "--set",
                    ranks,
                    "--set",
                    output,
                    "--set",
                    until,
                    "--set",
                    "schedule.name=constant",
                    "--set",
                    "checkpoint.every=0",
                    resume ? "--resume" : NULL,
                    NULL};
    find_leaks(strcmp(k->transport, "mpi") != 0);
    return program_start(argv);
}

static void finish(program p, int code, const char *words, ndp_str *text) {
    outcome o = {.text = *text};
    program_end(&p, &o);
    if (o.code != code || !strstr(o.text.data, words))
        fail_msg("code %d, expected %d and '%s': %s", o.code, code, words, o.text.data);
    *text = o.text;
}

/* Returns the step after which it stopped. */
static int interrupt(const char *folder, const kind *k, int signal_number) {
    ndp_str text = {0};
    int step = 0;
    program p = start(folder, k, "stopped", 1000000, false);
    program_hear(&p, " 5/1000000", &text);
    assert_int_equal(kill(p.pid, signal_number), 0);
    finish(p, 130, "--resume", &text);
    const char *told = strstr(text.data, "stopped after step ");
    if (!told || sscanf(told, "stopped after step %d;", &step) != 1 || step < 5)
        fail_msg("which step? %s", text.data);
    if (strstr(text.data, "failed"))
        fail_msg("a rank calls it a failure: %s", text.data);
    ndp_str_release(&text);
    return step;
}

static void run_on(const char *folder, const kind *k, const char *run, int steps, bool resume, const char *words) {
    ndp_str text = {0};
    finish(start(folder, k, run, steps, resume), 0, words, &text);
    ndp_str_release(&text);
}

static void stop_and_go_on(const char *folder, const kind *k, int signal_number) {
    char words[64];
    int step = interrupt(folder, k, signal_number);
    snprintf(words, sizeof words, "resume: from step %d", step);
    run_on(folder, k, "stopped", step + 3, true, words);
    run_on(folder, k, "whole", step + 3, false, "model:");
    for (int s = step - 1; s <= step + 3; s++) {
        char *stopped = step_line(folder, "stopped", s), *whole = step_line(folder, "whole", s);
        assert_string_equal(stopped, whole);
        free(stopped);
        free(whole);
    }
}

static void one_rank(void **state) { stop_and_go_on(*state, &(kind){"auto", 1}, SIGINT); }

static void one_rank_ended_by_a_batch_system(void **state) { stop_and_go_on(*state, &(kind){"auto", 1}, SIGTERM); }

static void four_threads(void **state) { stop_and_go_on(*state, &(kind){"local", 4}, SIGINT); }

static void two_processes(void **state) { stop_and_go_on(*state, &(kind){"shm", 2}, SIGINT); }

static void two_processes_of_mpirun(void **state) {
    if (!have_mpirun()) {
        print_message("SKIPPED: needs mpirun, and no thread sanitizer\n");
        skip();
    }
    stop_and_go_on(*state, &(kind){"mpi", 2}, SIGINT);
}

#define JOB_TEST(f) cmocka_unit_test_setup_teardown(f, make_job, tiny_teardown)

int main(void) {
    if (!getenv("NDP_PROGRAM")) {
        printf("SKIPPED: NDP_PROGRAM names no program\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {JOB_TEST(one_rank), JOB_TEST(one_rank_ended_by_a_batch_system),
                                       JOB_TEST(four_threads), JOB_TEST(two_processes),
                                       JOB_TEST(two_processes_of_mpirun)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
