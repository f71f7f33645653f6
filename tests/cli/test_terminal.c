/* What a run leaves on a terminal: its lines, as elsewhere, and while it runs a bar below them. A conversation on one.
 */
#include "cli/job.h"
#include "cli/terminal.h"

enum { STEPS = 60, EVERY = 20 };

static run start(const char *folder, const char *transport, int columns, const char *steps, const char *more) {
    char *argv[] = {
        getenv("NDP_PROGRAM"), "train", (char *)in(folder, "job.yaml"), "--transport", (char *)transport, "--set",
        (char *)steps,         "--set", "train.log_every=20",           "--set",       (char *)more,      NULL};
    find_leaks(strcmp(transport, "mpi") != 0);
    return start_program(argv, columns);
}

static void resize(run *r, int columns) {
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    assert_int_equal(ioctl(r->terminal, TIOCSWINSZ, &size), 0);
    screen_resize(&r->screen, columns);
}

#define STEP_LINE "^ *%s/%d( +[0-9.e+:%%k-]+)+$"

static void check_step(const char *text, const char *step, int steps) {
    char pattern[256];
    snprintf(pattern, sizeof pattern, STEP_LINE, step, steps);
    if (lines_like(text, pattern) != 1)
        fail_msg("not one line of step %s on the screen:\n%s", step, text);
}

/* The rows of the steps, each whole, in their order and once, below one heading; no bar; no line but the error that a
 * command prints is wider than the terminal; then the rest. */
static void check_screen(const char *text, int columns) {
    check_step(text, "1", STEPS);
    check_step(text, "20", STEPS);
    check_step(text, "40", STEPS);
    check_step(text, "60", STEPS);
    if (lines_like(text, "^ *step +loss") != 1 || lines_like(text, "/60") != 1 + STEPS / EVERY)
        fail_msg("more than the lines of the steps is on the screen:\n%s", text);
    if (lines_like(text, "^model:") != 2 || lines_like(text, "^checkpoint:") != 2 || lines_like(text, "^time:") != 1)
        fail_msg("lines are missing on the screen:\n%s", text);
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (columns > 20 && (int)strcspn(line, "\n") >= columns)
            fail_msg("a line has %d columns of %d:\n%s", (int)strcspn(line, "\n"), columns, text);
}

/* While it runs the bar is the last line, with the cursor at its beginning. */
static void check_bar(const run *r, int columns) {
    const screen *s = &r->screen;
    const char *bar = s->at[s->row].text;
    if (s->column != 0 || s->row != s->rows - 1 || !strstr(bar, "/60") || strncmp(bar, "step", 4) == 0 ||
        (int)strlen(bar) >= columns)
        fail_msg("no bar on the last row, with the cursor at its beginning: %d, %d: '%s'", s->row, s->column, bar);
}

static void watch(const char *folder, const char *transport, int columns) {
    char *text;
    run r = start(folder, transport, columns, "train.steps=60", "checkpoint.every=30");
    assert_true(hear(&r, "\033[?7h\r"));
    if (strcmp(transport, "mpi") != 0) /* whole writes arrive */
        check_bar(&r, columns);
    if (finish(&r, &text) != 0)
        fail_msg("it failed: %s", text);
    check_screen(text, columns);
    release(&r, text);
}

static void lines_remain(void **state) { watch(*state, "local", 110); }

static void lines_remain_on_80_columns(void **state) { watch(*state, "local", 80); }

static void lines_remain_on_a_narrow_terminal(void **state) { watch(*state, "local", 30); }

static void lines_remain_on_a_tiny_terminal(void **state) { watch(*state, "local", 7); }

static void need_mpirun(void) {
    if (!have_mpirun()) {
        print_message("SKIPPED: needs mpirun, and no thread sanitizer\n");
        skip();
    }
}

static void lines_remain_of_processes(void **state) { watch(*state, "shm", 110); }

static void lines_remain_of_mpirun(void **state) {
    need_mpirun();
    watch(*state, "mpi", 110);
}

/* A bar that the terminal breaks into several rows leaves nothing. */
static void a_resized_terminal_is_kept_clean(void **state) {
    static const int sizes[] = {80, 50, 33, 20, 9, 25, 60, 40, 110, 15, 100};
    char *text;
    run r = start(*state, "local", 110, "train.steps=1000000", "checkpoint.every=0");
    for (int i = 0; i < NDP_COUNT(sizes); i++) {
        assert_true(hear(&r, "\033[?7h\r"));
        resize(&r, sizes[i]);
        ndp_str_release(&r.written); /* then the next bar */
    }
    assert_true(hear(&r, "\033[?7h\r"));
    assert_int_equal(write(r.terminal, "\003", 1), 1);
    assert_int_equal(finish(&r, &text), 130);
    char pattern[256];
    snprintf(pattern, sizeof pattern, STEP_LINE, "[0-9]+", 1000000);
    if (lines_like(text, pattern) < 2 || lines_like(text, "/1000000") != lines_like(text, pattern) ||
        lines_like(text, "^\\[") != 0 ||
        lines_like(text, "^ndparallel: stopped after step [0-9]+; continue with .*$") != 1)
        fail_msg("not only lines of steps:\n%s", text);
    release(&r, text);
}

/* Ctrl-C: the newest step is among the lines, and then the message. */
static void interrupt(const char *folder, const char *transport) {
    char *text;
    run r = start(folder, transport, 110, "train.steps=1000000", "checkpoint.every=0");
    assert_true(hear(&r, "20/1000000"));
    assert_int_equal(write(r.terminal, "\003", 1), 1);
    assert_int_equal(finish(&r, &text), 130);
    const char *stopped = strstr(text, "ndparallel: stopped after step ");
    if (!stopped || lines_like(text, "^ndparallel: stopped after step [0-9]+; continue with --resume$") != 1)
        fail_msg("no message: %s", text);
    char step[32];
    snprintf(step, sizeof step, "%d", atoi(stopped + strlen("ndparallel: stopped after step ")));
    check_step(text, step, 1000000);
    if (lines_like(text, "^\\[") != 0 || strstr(text, "^C"))
        fail_msg("a bar is left:\n%s", text);
    release(&r, text);
}

static void ctrl_c_leaves_lines(void **state) { interrupt(*state, "local"); }
static void ctrl_c_leaves_lines_of_processes(void **state) { interrupt(*state, "shm"); }

static void diverge(const char *folder, const char *transport) {
    char *text;
    run r = start(folder, transport, 110, "train.steps=1000000", "optimizer.lr=1e30");
    assert_int_equal(finish(&r, &text), 2);
    if (lines_like(text, "^ndparallel: (rank [01]: )?step [0-9]+: the loss is .*") != 1 ||
        lines_like(text, "^\\[") != 0 || lines_like(text, "^ *1/") != 1)
        fail_msg("not what a run that diverges leaves:\n%s", text);
    release(&r, text);
}

static void an_error_leaves_lines(void **state) { diverge(*state, "local"); }
static void an_error_leaves_lines_of_processes(void **state) { diverge(*state, "shm"); }

static run start_chat(const char *folder) {
    char *text, *argv[] = {getenv("NDP_PROGRAM"),
                           "generate",
                           "--model",
                           (char *)in(folder, "run/model"),
                           "--chat",
                           "--chat-template",
                           "plain",
                           "--max-tokens",
                           "8",
                           "--ids",
                           NULL};
    tiny_write(in(folder, "model"), "tokenizer_config.json", "{\"eos_token\": \"<s>\"}");
    run r = start(folder, "local", 110, "train.steps=1", "checkpoint.every=0");
    assert_int_equal(finish(&r, &text), 0);
    release(&r, text);
    find_leaks(true);
    return start_program(argv, 110);
}

/* Types the words, waits for the answer and the prompt after it, and forgets what was written so far. */
static void say(run *r, const char *words, const char *answer) {
    assert_true(hear(r, "> "));
    ndp_str_release(&r->written);
    assert_int_equal(write(r->terminal, words, strlen(words)), (ssize_t)strlen(words));
    if (!hear(r, answer))
        fail_msg("no '%s' after '%s'; it wrote: %s", answer, words, r->written.data);
}

/* A message that does not fit is an error that the next message follows. Ctrl-D ends it on a line of its own. */
static void a_conversation(void **state) {
    char *text, longer[302];
    run r = start_chat(*state);
    memset(longer, 'x', 300);
    strcpy(longer + 300, "\n");
    if (!hear(&r, "Ctrl-D too"))
        fail_msg("no conversation: %s", r.written.data);
    say(&r, "Hi\n", "cut after 8 tokens");
    say(&r, longer, "nothing was dropped");
    say(&r, "/reset\n", "/reset");
    say(&r, "Hi\n", "cut after 8 tokens");
    say(&r, "\004", "\n");
    assert_int_equal(finish(&r, &text), 0);
    assert_int_equal(lines_like(text, "^> Hi$"), 2);
    assert_int_equal(lines_like(text, "^([0-9]+ ?){8}$"), 2);
    assert_int_equal(lines_like(text, "^ndparallel: "), 1);
    assert_int_equal(lines_like(text, "^> $"), 1);
    release(&r, text);
}

/* What is typed during an answer is not in it, and is the next message. */
static void typing_during_an_answer(void **state) {
    char *text;
    run r = start_chat(*state);
    say(&r, "Hi\n", "Hi\r\n");
    kill(r.pid, SIGSTOP);
    assert_int_equal(write(r.terminal, "Ho\n", 3), 3);
    kill(r.pid, SIGCONT);
    assert_true(hear(&r, "cut after 8 tokens"));
    assert_true(hear(&r, "> Ho"));
    say(&r, "\004", "\n");
    assert_int_equal(finish(&r, &text), 0);
    if (lines_like(text, "^> Ho$") != 1 || lines_like(text, "^([0-9]+ ?){8}$") != 2)
        fail_msg("the message is in the answer:\n%s", text);
    release(&r, text);
}

static void ctrl_c_ends_a_conversation(void **state) {
    char *text;
    run r = start_chat(*state);
    say(&r, "\003", "\n");
    assert_int_equal(finish(&r, &text), 130);
    release(&r, text);
}

/* An imported job on a terminal has the notes as comments, and not a second time. */
static void an_import_has_its_notes_once(void **state) {
    const char *folder = *state;
    char *text, *file = (char *)in(folder, "axolotl.yaml");
    char *argv[] = {getenv("NDP_PROGRAM"), "config", "import", file, NULL};
    tiny_write(folder, "axolotl.yaml", "base_model: m\nmax_steps: 3\nwandb_project: x\n");
    run r = start_program(argv, 110);
    assert_int_equal(finish(&r, &text), 0);
    if (lines_like(text, "wandb_project") != 1 || lines_like(text, "^# *imported from ") != 1)
        fail_msg("the notes are not there once:\n%s", text);
    release(&r, text);
}

/* What is wrong with a command or a job is in lines that fit; the lines below it, which show the place, are those of
 * the file. */
static void errors_fit(void **state) {
    const char *folder = *state;
    char *text, *job = (char *)in(folder, "job.yaml"), *own = getenv("NDP_PROGRAM");
    char *wrong_command[] = {own, "verify", job, NULL},
         *wrong_layout[] = {own, "plan", job, "--set", "parallelism.tp_size=7", NULL};
    char **lines[] = {wrong_command, wrong_layout};
    for (int i = 0; i < 2; i++) {
        run r = start_program(lines[i], 50);
        assert_int_equal(finish(&r, &text), 2);
        int n = 0;
        for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n', n++)
            if ((int)strcspn(line, "\n") >= 50 && line[0] != ' ')
                fail_msg("a line has %d columns of 50:\n%s", (int)strcspn(line, "\n"), text);
        if (n < 2 || lines_like(text, "^ndparallel") != 1)
            fail_msg("not one error in several lines:\n%s", text);
        release(&r, text);
    }
}

#define JOB_TEST(f) cmocka_unit_test_setup_teardown(f, make_job, tiny_teardown)

int main(void) {
    if (!getenv("NDP_PROGRAM")) {
        printf("SKIPPED: NDP_PROGRAM names no program\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {JOB_TEST(lines_remain),
                                       JOB_TEST(lines_remain_on_80_columns),
                                       JOB_TEST(lines_remain_on_a_narrow_terminal),
                                       JOB_TEST(lines_remain_on_a_tiny_terminal),
                                       JOB_TEST(lines_remain_of_processes),
                                       JOB_TEST(lines_remain_of_mpirun),
                                       JOB_TEST(a_resized_terminal_is_kept_clean),
                                       JOB_TEST(ctrl_c_leaves_lines),
                                       JOB_TEST(ctrl_c_leaves_lines_of_processes),
                                       JOB_TEST(an_error_leaves_lines),
                                       JOB_TEST(an_error_leaves_lines_of_processes),
                                       JOB_TEST(an_import_has_its_notes_once),
                                       JOB_TEST(errors_fit),
                                       JOB_TEST(a_conversation),
                                       JOB_TEST(typing_during_an_answer),
                                       JOB_TEST(ctrl_c_ends_a_conversation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
