/* LoRA of every family, with the targets that a job has by default: what a run has written is its adapter for every
 * command that reads one, and its names mean what was trained and nothing else. tests/cli/long_adapters.sh loads the
 * same adapters with PEFT. */
#include "base/rng.h"
#include "train/golden.h"
#include "train/tiny_run.h"
#include "weights/adapter_folder.h"
#include "weights/tensor_set.h"

static const char *const families[] = {
    "llama-yarn",  "linear-mqa",  "mistral",       "ministral", "ministral3",  "qwen2",     "qwen3",
    "seed-oss",    "phi3",        "olmo2",         "olmo3",     "smollm3",     "granite",   "gemma",
    "gemma2",      "gemma3",      "gemma4",        "gpt2",      "stablelm",    "gpt-neox",  "gpt-neox-serial",
    "starcoder2",  "mixtral",     "qwen3-moe",     "qwen2-moe", "olmoe",       "glm4-moe",  "gpt-oss",
    "deepseek-v2", "deepseek-v3", "glm4-moe-lite", "qwen3-5",   "qwen3-5-moe", "qwen3-next"};

static char *place; /* a folder for all files of this program */

static int make_place(void **state) {
    enum { IDS = 200, LEAST_VOCAB = 97 };
    uint16_t ids[IDS];
    (void)state;
    place = strdup("/tmp/ndp-families-XXXXXX");
    if (!place || !mkdtemp(place))
        return -1;
    for (int i = 0; i < IDS; i++)
        ids[i] = (uint16_t)(3 + ndp_rng_below(7, 1, (uint64_t)i, LEAST_VOCAB - 3));
    char *path = ndp_format("%s/ids.bin", place);
    CHECK_OK(ndp_file_write_atomic(path, (const char *)ids, sizeof ids));
    free(path);
    return 0;
}

static int drop_place(void **state) {
    *state = place;
    return tiny_drop(state);
}

/* The model of tests/golden with its tensors in fp64, so that a merge rounds nothing; the caller frees the path. */
static char *make_base(const char *name) {
    char from[1024], *to = ndp_format("%s/base", place), *config, *text;
    size_t size;
    golden_folder(name, from, sizeof from);
    CHECK_OK(ndp_folder_remove(to));
    CHECK_OK(ndp_folder_create(to));
    config = ndp_format("%s/config.json", from);
    CHECK_OK(ndp_file_read(config, &text, &size));
    tiny_put(to, "config.json", text);
    tensor_set *s = set_read(from, "model");
    set_type(s, NDP_F64);
    set_write(s, to, "model");
    set_release(s);
    free(config);
    free(text);
    return to;
}

/* A job beside `model` in fp64, whose rows are also held out. */
static ndp_config *configure(const char *model, const char *run, const char *adapter) {
    ndp_config *c;
    CHECK_OK(ndp_config_create(&c));
    tiny_set(c, "model.path=%s", model);
    tiny_set(c, "data.files=[%s/ids.bin]", place);
    tiny_set(c, "data.validation_files=[%s/ids.bin]", place);
    tiny_set(c, "data.cache_dir=%s/cache", place);
    tiny_set(c, "data.sequence_length=20");
    tiny_set(c, "batch.global_batch_size=2");
    tiny_set(c, "optimizer.lr=0.01");
    tiny_set(c, "schedule.name=constant");
    tiny_set(c, "precision.compute=fp64");
    tiny_set(c, "train.device=ref");
    tiny_set(c, "train.threads=1");
    tiny_set(c, "train.steps=2");
    tiny_set(c, "train.force_memory=true");
    tiny_set(c, "train.output_dir=%s/%s", place, run);
    char *copy = strdup(adapter), *save;
    for (char *key = strtok_r(copy, ";", &save); key; key = strtok_r(NULL, ";", &save))
        tiny_set(c, "adapter.%s", key);
    free(copy);
    return c;
}

typedef struct job_run {
    ndp_config *config;
    int steps;
    double loss; /* of the held-out rows at the end */
} job_run;

static ndp_status run_job(ndp_world *w, void *arg) {
    job_run *r = arg;
    ndp_trainer *t;
    ndp_metrics metrics;
    int64_t tokens;
    NDP_TRY(ndp_trainer_create(r->config, w, &t));
    ndp_status st = NDP_OK;
    for (int i = 0; i < r->steps && st == NDP_OK; i++)
        st = ndp_trainer_step(t, &metrics);
    if (st == NDP_OK)
        st = ndp_trainer_evaluate(t, &r->loss, &tokens);
    if (st == NDP_OK && r->steps)
        st = ndp_trainer_export(t, NULL);
    ndp_trainer_destroy(t);
    return st;
}

static double train(ndp_config *c, int steps, const char *what) {
    job_run r = {c, steps, 0};
    if (ndp_world_run(c, run_job, &r) != NDP_OK)
        fail_msg("%s: %s", what, ndp_error_message());
    ndp_config_destroy(c);
    return r.loss;
}

static ndp_status evaluate_job(ndp_world *w, void *arg) {
    job_run *r = arg;
    ndp_evaluation all;
    NDP_TRY(ndp_evaluate_job(r->config, w, NULL, 0, &all, NULL, NULL));
    r->loss = all.mean_nll;
    return NDP_OK;
}

static double evaluate(ndp_config *c, const char *what) {
    job_run r = {c, 0, 0};
    if (ndp_world_run(c, evaluate_job, &r) != NDP_OK)
        fail_msg("%s: %s", what, ndp_error_message());
    ndp_config_destroy(c);
    return r.loss;
}

/* evaluate --adapter; a job with adapter.path; merge. All give the loss that the run ended with. */
static void check_reads(const char *name, const char *base, const char *adapter, double loss, const char *how) {
    char *path = ndp_format("%s/run/adapter", place), *merged = ndp_format("%s/merged", place);
    char *with_path = ndp_format("%s;path=%s", adapter, path);
    int64_t changed;
    ndp_config *c = configure(base, "other", "type=none");
    if (ndp_config_use_adapter(c, path) != NDP_OK)
        fail_msg("%s: %s", name, ndp_error_message());
    double losses[3] = {evaluate(c, name), train(configure(base, "other", with_path), 0, name)};
    CHECK_OK(ndp_folder_remove(merged));
    if (ndp_adapter_merge(base, path, merged, &changed) != NDP_OK)
        fail_msg("%s, %s: %s", name, how, ndp_error_message());
    losses[2] = evaluate(configure(merged, "other", "type=none"), name);
    for (int i = 0; i < NDP_COUNT(losses); i++)
        if (!(fabs(losses[i] / loss - 1) < 1e-12))
            fail_msg("%s, %s: loss %.15g by %s, %.15g at the end of the run", name, how, losses[i],
                     ((const char *const[]){"evaluate", "adapter.path", "merge"})[i], loss);
    free(path);
    free(merged);
    free(with_path);
}

/* The names match the modules that have factors, and none that has none. Those whose last word is also that of an
 * expert's matrix are not among the targets: PEFT takes them for the experts. */
static void check_names(const char *name, const char *base) {
    char *path = ndp_format("%s/run", place), factor[512];
    ndp_adapter_folder a;
    ndp_weights *w;
    int targets = 0;
    CHECK_OK(ndp_adapter_folder_open(path, &a));
    CHECK_OK(ndp_weights_open(base, &w));
    for (int i = 0; i < ndp_weights_count(w); i++) {
        const ndp_tensor_entry *t = ndp_weights_at(w, i);
        const char *prefix = strcmp(name, "gpt2") == 0 ? "transformer." : "", *end = strrchr(t->spec.name, '.');
        if (t->spec.ndim != 2 || strcmp(end, ".weight") != 0)
            continue;
        char *module = ndp_format("%s%.*s", prefix, (int)(end - t->spec.name), t->spec.name), *word;
        snprintf(factor, sizeof factor, "base_model.model.%s.lora_A.weight", module);
        bool has = ndp_weights_find(a.weights, factor), named = ndp_adapter_config_targets(&a.config, module);
        if (has != named)
            fail_msg("%s: %s is %s, but has %s", name, module, named ? "named" : "not named", has ? "factors" : "none");
        targets += named;
        word = strrchr(module, '.') + 1;
        for (int k = 0; !named && strstr(module, ".experts.") && k < a.config.targets.n; k++)
            if (ndp_ends_with(a.config.targets.items[k], word))
                fail_msg("%s: the target %s has the last word of %s", name, a.config.targets.items[k], module);
        free(module);
    }
    assert_true(targets > 0);
    ndp_weights_close(w);
    ndp_adapter_folder_close(&a);
    free(path);
}

static void check_family(const char *name, const char *adapter) {
    char *base = make_base(name), *run = ndp_format("%s/run", place);
    CHECK_OK(ndp_folder_remove(run));
    double loss = train(configure(base, "run", adapter), 2, name);
    check_names(name, base);
    check_reads(name, base, adapter, loss, adapter);
    free(base);
    free(run);
}

static void every_command_reads_what_a_run_wrote(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(families); i++)
        check_family(families[i], "type=lora;r=2;alpha=4;init=random");
    check_family("qwen2-moe", "type=lora;r=2;init=random;dora=true;dropout=0.1");
    check_family("qwen2-moe", "type=lora;r=2;init=random;targets=[shared_expert.up_proj, '*.1.mlp.up_proj']");
    check_family("qwen3-moe", "type=lora;r=2;init=random;targets=['*.mlp.*'];modules_to_save=[norm]");
    check_family("qwen3-5", "type=lora;r=2;init=random;dora=true;modules_to_save=[conv1d, embed_tokens]");
    check_family("qwen3-next", "type=lora;r=2;init=random;dora=true;targets=[in_proj_qkvz, in_proj_ba, q_proj]");
    /* Of experts: of their stacks, and of the matrices of each. */
    check_family("qwen2-moe", "type=lora;r=2;init=random;targets=[linear, experts.gate_up_proj, experts.down_proj]");
    check_family("glm4-moe", "type=lora;r=2;init=random;targets=['*.experts.*', q_proj]");
    check_family("qwen2-moe", "type=lora;r=2;init=random;targets=[linear, '*.experts.*.*']");
    check_family("mixtral", "type=lora;r=2;rslora=true;init=random;targets=[v_proj, '*.experts.*.*']");
}

/* Names that are those of experts too, as PEFT beside transformers 5 may write them: experts are no modules there. */
static void names_of_experts_may_mean_others_alone(void **state) {
    (void)state;
    static const char adapter[] = "type=lora;r=2;alpha=4;init=random";
    char *base = make_base("qwen2-moe"), *folder = ndp_format("%s/run/adapter", place);
    char *run = ndp_format("%s/run", place);
    CHECK_OK(ndp_folder_remove(run));
    double loss = train(configure(base, "run", adapter), 2, "qwen2-moe");
    tiny_put(folder, "adapter_config.json",
             "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"q_proj\", \"k_proj\", "
             "\"v_proj\", \"o_proj\", \"gate_proj\", \"up_proj\", \"down_proj\"]}");
    check_reads("qwen2-moe", base, adapter, loss, "names of experts");
    free(base);
    free(folder);
    free(run);
}

/* ---- files that transformers 5 and the Hub have besides ---- */

/* Experts of a layer as one stack, in place of the tensors of each. */
static void stack_experts(tensor_set *s, const char *stack, const char *const words[], int n_words, int64_t experts) {
    char name[320];
    double *to = NULL;
    for (int64_t e = 0; e < experts; e++)
        for (int k = 0; k < n_words; k++) {
            snprintf(name, sizeof name, "model.layers.1.mlp.experts.%d.%s.weight", (int)e, words[k]);
            const set_tensor *one = set_find(s, name);
            int64_t n = ndp_tensor_elements(&one->spec);
            ndp_tensor_spec spec = {.dtype = NDP_F64, .ndim = 3};
            spec.shape[0] = experts, spec.shape[1] = n_words * one->spec.shape[0], spec.shape[2] = one->spec.shape[1];
            to = to ? to : set_add(s, stack, &spec)->x;
            memcpy(to + (e * n_words + k) * n, set_find(s, name)->x, (size_t)n * sizeof *to);
            set_remove(s, name);
        }
}

/* The folder with experts as stacks, and tensors of a module behind its 2 layers. */
static void restack(const char *base, int modules) {
    static const char *const gate_up[] = {"gate_proj", "up_proj"}, *const down[] = {"down_proj"};
    char *path = ndp_format("%s/config.json", base), *text, *at;
    size_t size;
    tensor_set *s = set_read(base, "model");
    stack_experts(s, "model.layers.1.mlp.experts.gate_up_proj", gate_up, 2, 12);
    stack_experts(s, "model.layers.1.mlp.experts.down_proj", down, 1, 12);
    ndp_tensor_spec spec = {.dtype = NDP_BF16, .ndim = 2, .shape = {4, 6}};
    set_add(s, "model.layers.2.eh_proj.weight", &spec)->x[5] = 0.5;
    set_add(s, "mtp.norm.weight", &spec)->x[6] = 1.5;
    set_write(s, base, "model");
    set_release(s);
    CHECK_OK(ndp_file_read(path, &text, &size));
    at = strstr(text, "\"num_nextn_predict_layers\": ");
    assert_non_null(at);
    at[28] = (char)('0' + modules);
    tiny_put(base, "config.json", text);
    free(text);
    free(path);
}

/* `has` of a folder is what another has, and tensors of modules as they were. */
static void check_carried(const char *folder, const char *other) {
    tensor_set *have = set_read(folder, "model"), *want = set_read(other, "model");
    assert_int_equal(have->n, want->n + 2);
    for (int i = 0; i < want->n; i++)
        assert_memory_equal(set_find(have, want->items[i].name)->x, want->items[i].x,
                            (size_t)ndp_tensor_elements(&want->items[i].spec) * sizeof(double));
    const set_tensor *module = set_find(have, "model.layers.2.eh_proj.weight");
    assert_true(module->spec.dtype == NDP_BF16 && module->x[5] == 0.5 && module->x[6] == 0);
    assert_true(set_find(have, "mtp.norm.weight")->x[6] == 1.5);
    set_release(have);
    set_release(want);
}

/* Runs, exports and merges beside such a folder do what they do beside experts one by one. */
static void stacks_are_read_and_modules_copied(void **state) {
    (void)state;
    static const char adapter[] = "type=lora;r=2;alpha=4;init=random";
    char *base = make_base("glm4-moe"), *alone = ndp_format("%s/alone", place), *stacked = ndp_format("%s/run", place);
    char *models[] = {ndp_format("%s/model", alone), ndp_format("%s/model", stacked)}, *merged[2];
    int64_t changed;
    double loss[2], beside[2];
    for (int i = 0; i < 2; i++) {
        const char *run = i ? stacked : alone;
        char *of_adapter = ndp_format("%s/with-adapter", place);
        CHECK_OK(ndp_folder_remove(run));
        CHECK_OK(ndp_folder_remove(of_adapter));
        if (i)
            restack(base, 1);
        loss[i] = train(configure(base, i ? "run" : "alone", ""), 2, "stacks");
        beside[i] = train(configure(base, "with-adapter", adapter), 2, "stacks");
        merged[i] = ndp_format("%s/merged-%d", place, i);
        CHECK_OK(ndp_adapter_merge(base, of_adapter, merged[i], &changed));
        free(of_adapter);
    }
    assert_true(loss[0] == loss[1] && beside[0] == beside[1]);
    check_carried(models[1], models[0]);
    check_carried(merged[1], merged[0]);
    job_run none = {configure(base, "none", ""), 0, 0};
    free(base);
    base = make_base("glm4-moe");
    restack(base, 0);
    CHECK_FAILS(ndp_world_run(none.config, run_job, &none), NDP_EFORMAT, "model.layers.2.eh_proj.weight");
    ndp_config_destroy(none.config);
    for (int i = 0; i < 2; i++)
        free(models[i]), free(merged[i]);
    free(base);
    free(alone);
    free(stacked);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_command_reads_what_a_run_wrote),
                                       cmocka_unit_test(names_of_experts_may_mean_others_alone),
                                       cmocka_unit_test(stacks_are_read_and_modules_copied)};
    return cmocka_run_group_tests(tests, make_place, drop_place);
}
