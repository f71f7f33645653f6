/* `checkpoint export` and `merge` in the memory of a part of one tensor: of a checkpoint whose largest tensors are
 * twice as large as all that the program may use. */
#include "checkpoint/safetensors.h"
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
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        execvp(argv[0], argv);
        _exit(127);
    }
    assert_true(child > 0 && wait4(child, &status, 0, &use) == child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return (int64_t)use.ru_maxrss * 1024;
}

/* DoRA of the head, with B = 0 and lengths of 1. */
static void write_adapter(const char *folder) {
    static const ndp_tensor_spec specs[] = {
        {.name = "base_model.model.lm_head.lora_A.weight", .ndim = 2, .shape = {1, 256}},
        {.name = "base_model.model.lm_head.lora_B.weight", .ndim = 2, .shape = {65536, 1}},
        {.name = "base_model.model.lm_head.lora_magnitude_vector", .ndim = 1, .shape = {65536}}};
    float *ones = malloc(65536 * sizeof *ones);
    ndp_safetensors_writer *w;
    assert_non_null(ones);
    for (int i = 0; i < 65536; i++)
        ones[i] = 1;
    tiny_write(folder, "adapter_config.json", "{\"peft_type\": \"LORA\", \"r\": 1, \"use_dora\": true}");
    CHECK_OK(ndp_safetensors_create(in(folder, "adapter_model.safetensors"), specs, NDP_COUNT(specs), &w));
    CHECK_OK(ndp_safetensors_write(w, 2, 0, 65536, ones, NDP_F32));
    ndp_safetensors_writer_destroy(w);
    free(ones);
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
    write_adapter(folder);
    char *adapter = strdup(folder), *merged = strdup(in(folder, "merged"));
    int64_t merging = peak_of((char *[]){binary, "merge", "-m", out, "-a", adapter, "-o", merged, NULL});
    print_message("two tensors of %.0f MB: training took %.0f MB, the export %.1f MB, a merge %.1f MB\n",
                  (double)tensor * 1e-6, (double)training * 1e-6, (double)exporting * 1e-6, (double)merging * 1e-6);
    assert_true(training > 2 * tensor); /* the measure tells */
    assert_true(exporting < tensor / 2);
    assert_true(merging < tensor / 2);
    free(path), free(run), free(out), free(adapter), free(merged);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(takes_less_than_one_tensor, make_folder, tiny_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
