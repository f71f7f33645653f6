/* `checkpoint export` in the memory of one tensor: of a checkpoint whose largest tensors are twice as large as all that
 * the program may use. */
#include "cli/job.h"

#include <sys/resource.h>

static const char config[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 65536, \"hidden_size\": "
    "256, "
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"intermediate_size\": 256, "
    "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false}";
static const char job[] = "model: {config: %s/config.json, init: random}\n"
                          "data: {files: [%s/ids.bin], sequence_length: 16, cache_dir: %s/cache}\n"
                          "batch: {global_batch_size: 1}\n"
                          "precision: {compute: bf16}\n"
                          "optimizer: {name: sgd}\n"
                          "train: {steps: 1, output_dir: %s/run, threads: 1}\n";

static int make_folder(void **state) {
    char *folder = strdup("/tmp/ndp-export-XXXXXX"), ids[400] = {0};
    assert_true(folder && mkdtemp(folder));
    *state = folder;
    tiny_write(folder, "config.json", config);
    char *text = ndp_format(job, folder, folder, folder, folder);
    tiny_write(folder, "job.yaml", text);
    free(text);
    for (int i = 0; i < (int)sizeof ids; i++)
        ids[i] = (char)(1 + i % 7);
    CHECK_OK(ndp_file_write_atomic(in(folder, "ids.bin"), ids, sizeof ids));
    return 0;
}

/* The largest resident memory of the program, bytes. */
static int64_t peak_of(char *const argv[]) {
    struct rusage use;
    int status;
    pid_t child = fork();
    if (child == 0) {
        execvp(argv[0], argv);
        _exit(127);
    }
    assert_true(child > 0 && wait4(child, &status, 0, &use) == child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return (int64_t)use.ru_maxrss * 1024;
}

static void takes_less_than_one_tensor(void **state) {
    const char *folder = *state;
    const int64_t tensor = (int64_t)65536 * 256 * 4;
    char *binary = getenv("NDP_PROGRAM");
    const char *sanitize = getenv("NDP_SANITIZE");
    if (sanitize && *sanitize) {
        print_message("SKIPPED: a sanitizer needs memory of its own\n");
        skip();
    }
    char *path = strdup(in(folder, "job.yaml")), *run = strdup(in(folder, "run")), *out = strdup(in(folder, "out"));
    int64_t training = peak_of((char *[]){binary, "train", path, NULL});
    int64_t exporting = peak_of((char *[]){binary, "checkpoint", "export", run, "-o", out, NULL});
    print_message("two tensors of %.0f MB: training took %.0f MB, the export %.1f MB\n", (double)tensor * 1e-6,
                  (double)training * 1e-6, (double)exporting * 1e-6);
    assert_true(training > 2 * tensor); /* the measure tells */
    assert_true(exporting < tensor / 2);
    free(path), free(run), free(out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(takes_less_than_one_tensor, make_folder, tiny_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
