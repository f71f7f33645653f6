/* `init` on a terminal: answers that are not possible are asked again with the reason, and the job that is written
 * trains, for a text, a chat file and a model of the Hub's cache. Who leaves before the end finds nothing written.
 */
#include "cli/job.h"
#include "cli/terminal.h"

static run start_init(void) {
    char *argv[] = {getenv("NDP_PROGRAM"), "init", NULL};
    find_leaks(true);
    return start_program(argv, 200);
}

/* Waits for a question, types a line, and forgets what was written so far. */
static void answer(run *r, const char *question, const char *words) {
    if (!hear(r, question))
        fail_msg("no question '%s'; it wrote: %s", question, r->written.data);
    ndp_str_release(&r->written);
    char *line = ndp_format("%s\n", words);
    assert_int_equal(write(r->terminal, line, strlen(line)), (ssize_t)strlen(line));
    free(line);
}

/* The same, and the answer is refused for a reason that has `why`. */
static void wrong(run *r, const char *question, const char *words, const char *why) {
    answer(r, question, words);
    if (!hear(r, why))
        fail_msg("no '%s' after '%s'; it wrote: %s", why, words, r->written.data);
}

/* The questions after those about the model and its data, to two ranks; the third layout of the table or sizes. */
static void answer_rest(run *r, const char *folder, const char *layout) {
    wrong(r, "Tokens in a row [200]: ", "100000", "fewer positions than that");
    answer(r, "Tokens in a row [200]: ", "");
    wrong(r, "Precision (fp32, bf16) [fp32]: ", "fp8", "precision.compute");
    answer(r, "Precision (fp32, bf16) [fp32]: ", "");
    wrong(r, "Number of hosts, or a hostfile [1]: ", "/nowhere", "No such file");
    answer(r, "Number of hosts, or a hostfile [1]: ", "");
    wrong(r, "Ranks on each host [", "none", "from 1 to 16383");
    answer(r, "Ranks on each host [", "2");
    wrong(r, "Memory of a host, or of a GPU, in GiB [", "-1", "above 0");
    answer(r, "Memory of a host, or of a GPU, in GiB [", "");
    answer(r, "Rows in an update [16]: ", "4");
    wrong(r, "Layout (a number, or sizes such as dp_shard=2,tp=2) [1]: ", "99", "a number of the table");
    wrong(r, "Layout (a number, or sizes such as dp_shard=2,tp=2) [1]: ", "tp=1", "multiply to 2 ranks");
    answer(r, "Layout (a number, or sizes such as dp_shard=2,tp=2) [1]: ", layout);
    wrong(r, "Passes over the data [1]: ", "0", "above 0");
    answer(r, "Passes over the data [1]: ", "");
    answer(r, "Run folder [runs/", in(folder, "trained"));
    wrong(r, "Job file [job.yaml]: ", in(folder, "job.yaml"), "exists; name another file");
    answer(r, "Job file [job.yaml]: ", in(folder, "new.yaml"));
}

/* The job file has these words, and trains two steps. */
static void check_job(const char *folder, const char *words) {
    char *text, *argv[] = {getenv("NDP_PROGRAM"),
                           "train",
                           (char *)in(folder, "new.yaml"),
                           "--transport",
                           "local",
                           "--force-memory",
                           "--set",
                           "train.epochs=0",
                           "--set",
                           "train.steps=2",
                           "--set",
                           "train.threads=1",
                           NULL};
    size_t size;
    CHECK_OK(ndp_file_read(in(folder, "new.yaml"), &text, &size));
    if (!strstr(text, words))
        fail_msg("no '%s' in the job:\n%s", words, text);
    outcome o = program_run(argv);
    if (o.code != 0 || !strstr(o.text.data, "steps: 2 of 2"))
        fail_msg("it does not train: %s\n%s", o.text.data, text);
    free(text);
    ndp_str_release(&o.text);
}

static void finish_well(run *r) {
    char *text;
    if (finish(r, &text) != 0 || lines_like(text, "^  ndparallel train .*new.yaml$") != 1)
        fail_msg("it did not end well:\n%s", text);
    release(r, text);
}

/* A configuration alone: random weights, and a tokenizer that is asked for. */
static void a_text_and_no_weights(void **state) {
    const char *folder = *state;
    tiny_write(folder, "text.txt", "It was a bright cold day in April, and the clocks were striking thirteen.\n");
    run r = start_init();
    wrong(&r, "Model (", "/nowhere/model", "No such file");
    answer(&r, "Model (", in(folder, "model/config.json"));
    answer(&r, "Tokenizer (", in(folder, "model"));
    wrong(&r, "Data (", "/nowhere.txt", "No such file");
    answer(&r, "Data (", in(folder, "text.txt"));
    answer_rest(&r, folder, "tp=2,dp_shard=1");
    finish_well(&r);
    check_job(folder, "tp_size: 2");
}

static void write_chats(const char *folder) {
    ndp_str text = {0};
    for (int i = 0; i < 8; i++)
        ndp_str_addf(&text,
                     "{\"messages\": [{\"role\": \"user\", \"content\": \"%d?\"}, {\"role\": \"assistant\", "
                     "\"content\": \"%d.\"}]}\n",
                     i, i * i);
    tiny_write(folder, "chats.jsonl", text.data);
    ndp_str_release(&text);
}

static void answer_chat(run *r, const char *folder) {
    answer(r, "Data (", in(folder, "chats.jsonl"));
    assert_true(hear(r, "conversations (messages)"));
    wrong(r, "Format of its records (auto: by their fields) [auto]: ", "alpaca", "instruction");
    answer(r, "Format of its records (auto: by their fields) [auto]: ", "");
    wrong(r, "Chat template [chatml]: ", "nothing", "data.chat_template");
    answer(r, "Chat template [chatml]: ", "");
    answer(r, "Adapter (none: train the whole model, lora, qlora) [none]: ", "");
}

static void a_chat_file(void **state) {
    const char *folder = *state;
    write_chats(folder);
    run r = start_init();
    answer(&r, "Model (", in(folder, "model"));
    answer_chat(&r, folder);
    answer_rest(&r, folder, "");
    finish_well(&r);
    check_job(folder, "chat_template: chatml");
}

/* The Hub's cache, as its tools make it, has the model as org/tiny. */
static void a_name_of_the_hub(void **state) {
    const char *folder = *state;
    write_chats(folder);
    CHECK_OK(ndp_folder_create(in(folder, "hub/models--org--tiny/refs")));
    CHECK_OK(ndp_folder_create(in(folder, "hub/models--org--tiny/snapshots")));
    tiny_write(in(folder, "hub/models--org--tiny/refs"), "main", "0123abc");
    assert_int_equal(symlink(in(folder, "model"), in(folder, "hub/models--org--tiny/snapshots/0123abc")), 0);
    setenv("HF_HUB_CACHE", in(folder, "hub"), 1);
    run r = start_init();
    wrong(&r, "Model (", "org/tony", "hf download org/tony");
    answer(&r, "Model (", "org/tiny");
    answer_chat(&r, folder);
    answer_rest(&r, folder, "1");
    finish_well(&r);
    check_job(folder, "path: org/tiny");
    unsetenv("HF_HUB_CACHE");
}

/* Ctrl-C, and the end of the input, after any question. */
static void who_leaves_finds_nothing(void **state) {
    const char *folder = *state;
    static const char *const leave[] = {"\003", "\004"};
    for (int i = 0; i < NDP_COUNT(leave); i++) {
        char *text;
        run r = start_init();
        answer(&r, "Model (", in(folder, "model"));
        answer(&r, "Data (", in(folder, "data/corpus.jsonl"));
        assert_true(hear(&r, "Format of its records"));
        assert_int_equal(write(r.terminal, leave[i], 1), 1);
        int code = finish(&r, &text);
        if (code != 130 || (i == 1 && !strstr(text, "nothing was written")))
            fail_msg("exit code %d:\n%s", code, text);
        assert_true(access(in(folder, "new.yaml"), F_OK) != 0);
        release(&r, text);
    }
}

#define JOB_TEST(f) cmocka_unit_test_setup_teardown(f, make_job, tiny_teardown)

int main(void) {
    if (!getenv("NDP_PROGRAM")) {
        printf("SKIPPED: NDP_PROGRAM names no program\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {JOB_TEST(a_text_and_no_weights), JOB_TEST(a_chat_file),
                                       JOB_TEST(a_name_of_the_hub), JOB_TEST(who_leaves_finds_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
