/* A folder with models, tokenizers and texts that differ in one thing each, and runs that are stopped and resumed. */
#ifndef TESTS_TRAIN_RESUMES_H
#define TESTS_TRAIN_RESUMES_H

#include "base/json.h"
#include "train/tiny_model.h"
#include "train/trainer.h"

#include <ftw.h>
#include <sys/stat.h>

enum { SAVED = 2, STEPS = 4, MOST_SETS = 8 };

/* ---- files ---- */

static const char model_text[] =
    "{\"model_type\": \"mistral\", \"architectures\": [\"MistralForCausalLM\"], \"vocab_size\": 260, \"hidden_size\": "
    "16, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 4, "
    "\"intermediate_size\": 20, \"max_position_embeddings\": 200, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, "
    "\"sliding_window\": 16, \"hidden_act\": \"silu\", \"initializer_range\": 0.1, \"tie_word_embeddings\": false}";

/* Two mixtures and an MLP. */
static const char mixture_text[] =
    "{\"model_type\": \"qwen3_moe\", \"architectures\": [\"Qwen3MoeForCausalLM\"], \"vocab_size\": 260, "
    "\"hidden_size\": 16, \"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"intermediate_size\": 20, \"max_position_embeddings\": 200, \"num_experts\": 5, \"num_experts_per_tok\": 2, "
    "\"moe_intermediate_size\": 12, \"norm_topk_prob\": false, \"mlp_only_layers\": [1]}";

/* FOLDER/NAME: `text` with `old` replaced. */
static inline void write_variant(const char *folder, const char *name, const char *text, const char *old,
                                 const char *new) {
    const char *at = strstr(text, old);
    assert_non_null(at);
    char *whole = ndp_format("%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    tiny_write(folder, name, whole);
    free(whole);
}

static inline void write_mixtures(const char *folder) {
    static const struct {
        const char *name, *old, *new;
    } variants[] = {{"same-mixture.json", "\"num_experts\"", "\"router_aux_loss_coef\": 0.001, \"num_local_experts\""},
                    {"experts.json", "\"num_experts\": 5", "\"num_experts\": 6"},
                    {"choices.json", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 3"},
                    {"expert-ffn.json", "\"moe_intermediate_size\": 12", "\"moe_intermediate_size\": 16"},
                    {"renormalised.json", "false", "true"},
                    {"mixtures.json", "[1]", "[0]"}};
    tiny_write(folder, "mixture.json", mixture_text);
    for (int i = 0; i < NDP_COUNT(variants); i++)
        write_variant(folder, variants[i].name, mixture_text, variants[i].old, variants[i].new);
}

/* One with a shared expert, and another size of it; and one whose routers have a bias. */
static inline void write_shared_experts(const char *folder) {
    write_variant(folder, "scored.json", model_text, "\"model_type\": \"mistral\"",
                  "\"model_type\": \"glm4_moe\", \"n_routed_experts\": 5, \"num_experts_per_tok\": 2, "
                  "\"moe_intermediate_size\": 12");
    write_variant(folder, "shared.json", mixture_text, "\"model_type\": \"qwen3_moe\"",
                  "\"model_type\": \"qwen2_moe\", \"shared_expert_intermediate_size\": 8");
    write_variant(folder, "shared-ffn.json", mixture_text, "\"model_type\": \"qwen3_moe\"",
                  "\"model_type\": \"qwen2_moe\", \"shared_expert_intermediate_size\": 9");
}

static inline void write_models(const char *folder) {
    static const struct {
        const char *name, *old, *new;
    } variants[] = {
        {"same.json", "10000.0", "1e4"},
        {"theta.json", "10000.0", "20000.0"},
        {"window.json", "\"sliding_window\": 16", "\"sliding_window\": 8"},
        {"eps.json", "1e-5", "1e-6"},
        {"act.json", "\"silu\"", "\"gelu_pytorch_tanh\""},
        {"longer.json", "200", "300"},
        {"scaled.json", "10000.0", "10000.0, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2.0}"},
        {"range.json", "\"initializer_range\": 0.1", "\"initializer_range\": 0.2"},
        {"tied.json", "false", "true"},
        {"layers.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"},
        {"ffn.json", "\"intermediate_size\": 20", "\"intermediate_size\": 24"}};
    for (int i = 0; i < NDP_COUNT(variants); i++)
        write_variant(folder, variants[i].name, model_text, variants[i].old, variants[i].new);
    write_mixtures(folder);
    write_shared_experts(folder);
    char *model = ndp_format("%s/model", folder);
    assert_int_equal(mkdir(model, 0700), 0);
    tiny_write(model, "config.json", model_text);
    tiny_write_tokenizer(model, true);
    tiny_write_weights(model, 3, NDP_F32);
    free(model);
}

static inline void write_tokenizers(const char *folder) {
    static const char *const names[] = {"tokens", "same-tokens", "other-tokens"};
    for (int i = 0; i < NDP_COUNT(names); i++) {
        char *path = ndp_format("%s/%s", folder, names[i]), *file = ndp_format("%s/tokenizer.json", path), *text;
        size_t size;
        assert_int_equal(mkdir(path, 0700), 0);
        tiny_write_tokenizer(path, true);
        CHECK_OK(ndp_file_read(file, &text, &size));
        if (i == 2) /* a token that no text has: the ids are the same */
            write_variant(path, "tokenizer.json", text, "&3&", "&4&");
        free(text);
        free(file);
        free(path);
    }
}

/* `n` records, of which the two at `swapped` change places; `letter` is in one of them. */
static inline void write_texts(const char *folder, const char *name, int swapped, char letter) {
    ndp_str s = {0};
    for (int i = 0; i < 40; i++) {
        int d = swapped && i / 2 == swapped ? i ^ 1 : i;
        ndp_str_addf(&s, "{\"text\": \"%c document %02d of %03d\", \"body\": \"the body of %02d\"}\n",
                     d == 7 ? letter : 'A', d, 7 * d, d);
    }
    tiny_write(folder, name, s.data);
    ndp_str_release(&s);
}

static inline void write_chats(const char *folder) {
    ndp_str s = {0};
    for (int i = 0; i < 10; i++)
        ndp_str_addf(&s,
                     "{\"messages\": [{\"role\": \"user\", \"content\": \"%d?\"}, {\"role\": \"assistant\", "
                     "\"content\": \"%d!\"}]}\n",
                     i, i * i);
    tiny_write(folder, "chats.jsonl", s.data);
    tiny_write(folder, "pipeline.csv", "0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n");
    ndp_str_release(&s);
}

/* Pairs with names of fields of two kinds. */
static inline void write_preferences(const char *folder) {
    ndp_str s = {0};
    for (int i = 0; i < 20; i++)
        ndp_str_addf(&s,
                     "{\"question\": \"%d?\", \"chosen\": \"%d!\", \"rejected\": \"no: %d\", \"better\": \"%d.\", "
                     "\"worse\": \"none\"}\n",
                     i, i * i, i, i * i);
    tiny_write(folder, "pairs.jsonl", s.data);
    ndp_str_release(&s);
}

static inline int make_folder(void **state) {
    char *folder = strdup("/tmp/ndp-identity-XXXXXX");
    assert_true(folder && mkdtemp(folder));
    *state = folder;
    tiny_write(folder, "model.json", model_text);
    write_models(folder);
    write_tokenizers(folder);
    write_texts(folder, "texts.jsonl", 0, 'A');
    write_texts(folder, "copied.jsonl", 0, 'A');
    write_texts(folder, "shuffled.jsonl", 9, 'A');
    write_texts(folder, "letter.jsonl", 0, 'B');
    write_texts(folder, "held.jsonl", 0, 'C');
    write_texts(folder, "held-too.jsonl", 0, 'D');
    write_chats(folder);
    write_preferences(folder);
    return 0;
}

/* ---- runs ---- */

static const char job[] = "model: {config: %1$s/model.json}\n"
                          "data: {files: [%1$s/texts.jsonl, %1$s/chats.jsonl], validation_files: [%1$s/held.jsonl],\n"
                          "       tokenizer: %1$s/tokens, chat_template: chatml, sequence_length: 96,\n"
                          "       cache_dir: %1$s/cache}\n"
                          "parallelism: {dp_shard_size: 1}\n"
                          "batch: {global_batch_size: 4, micro_batch_size: 2}\n"
                          "schedule: {warmup_steps: 1}\n"
                          "train: {steps: 4, threads: 1, transport: local}\n";

/* The runs that are resumed: each stopped after step SAVED. */
static const struct base {
    const char *name, *sets[MOST_SETS];
} bases[] = {
    {"cosine", {0}},
    {"constant", {"schedule.name=constant", "data.files=@/texts.jsonl", "data.validation_files=[]"}},
    {"sgd", {"optimizer.name=sgd", "schedule.name=constant"}},
    {"lion", {"optimizer.name=lion", "optimizer.lr=1e-4"}},
    {"muon", {"optimizer.name=muon"}},
    {"adamw8bit", {"optimizer.name=adamw8bit"}},
    {"inverse_sqrt", {"schedule.name=inverse_sqrt"}},
    {"preference", {"data.files=@/pairs.jsonl", "data.validation_files=[]", "data.format=preference", "loss.name=dpo"}},
    {"referred",
     {"model.config=null", "model.path=@/model", "model.init=pretrained", "data.files=@/pairs.jsonl",
      "data.validation_files=[]", "data.format=preference", "loss.name=dpo"}},
    {"lora", {"adapter.type=lora"}},
    {"qlora", {"adapter.type=qlora"}},
    {"mixture", {"model.config=@/mixture.json"}},
    {"shared", {"model.config=@/shared.json"}},
    {"scored", {"model.config=@/scored.json"}}};
enum { COSINE, CONSTANT, SGD, LION, MUON, CODED, INVERSE_SQRT, PREFERENCE, REFERRED, LORA, QLORA, MIXTURE, SHARED, SCORED };

/* key=value with '@' for the folder. */
static inline void set(ndp_config *c, const char *folder, const char *assignment) {
    ndp_str s = {0};
    for (const char *p = assignment; *p; p++)
        if (*p == '@')
            ndp_str_add(&s, folder);
        else
            ndp_str_addf(&s, "%c", *p);
    CHECK_OK(ndp_config_set(c, s.data));
    ndp_str_release(&s);
}

static inline ndp_config *configure(const char *folder, int base, const char *run) {
    ndp_config *c;
    char *text = ndp_format(job, folder), *output = ndp_format("train.output_dir=%s/%s", folder, run);
    CHECK_OK(ndp_config_create(&c));
    CHECK_OK(ndp_config_parse(c, text, strlen(text), "job"));
    set(c, folder, output);
    for (int i = 0; i < MOST_SETS && bases[base].sets[i]; i++)
        set(c, folder, bases[base].sets[i]);
    free(output);
    free(text);
    return c;
}

typedef struct run {
    const ndp_config *config;
    ndp_train_opts opts;
    volatile sig_atomic_t stop;
    int64_t stop_after;
    ndp_str said;
    ndp_metrics m[STEPS + 1]; /* by step; of the first STEPS */
} run;

static inline void progress(void *user, const ndp_metrics *m, int64_t steps) {
    run *r = user;
    (void)steps;
    if (m->step <= STEPS)
        r->m[m->step] = *m;
    if (m->step == r->stop_after)
        __atomic_store_n(&r->stop, 1, __ATOMIC_RELAXED);
}

static inline void hear(void *user, const char *line) {
    run *r = user;
    ndp_str_addf(&r->said, "%s\n", line);
}

static inline ndp_status body(ndp_world *w, void *arg) {
    run *r = arg;
    return ndp_train(r->config, w, &r->opts);
}

static inline ndp_status train(run *r, bool resume, const char *const *accept) {
    r->opts = (ndp_train_opts)NDP_TRAIN_OPTS_INIT;
    r->opts.resume = resume;
    r->opts.stop = &r->stop;
    r->opts.progress = progress;
    r->opts.say = hear;
    r->opts.user = r;
    r->opts.accept = accept;
    while (accept && accept[r->opts.accept_count])
        r->opts.accept_count++;
    return ndp_world_run(r->config, body, r);
}

static inline void train_base(const char *folder, int base) {
    ndp_config *c = configure(folder, base, bases[base].name);
    run r = {.config = c, .stop_after = SAVED};
    ndp_status st = train(&r, false, NULL);
    if (st != NDP_EINTR)
        fail_msg("the run '%s' was not stopped: %d, %s", bases[base].name, st, ndp_error_message());
    ndp_str_release(&r.said);
    ndp_config_destroy(c);
}

static inline void copy_run(const char *folder, int base) {
    char *command = ndp_format("rm -rf %s/again && cp -r %s/%s %s/again", folder, folder, bases[base].name, folder);
    assert_int_equal(system(command), 0);
    free(command);
}

/* ---- what is in a folder ---- */

static uint64_t seen; /* by nftw, which has no place for it */

static inline int see(const char *path, const struct stat *s, int kind, struct FTW *where) {
    char *data = NULL;
    size_t size = 0;
    if (kind != FTW_F ||
        strncmp(path + where->base, "lock", 4) == 0) /* a run takes the folder's lock to look into it */
        return 0;
    CHECK_OK(ndp_file_read(path, &data, &size));
    uint64_t hash = 14695981039346656037u;
    for (const char *p = path; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 1099511628211u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)data[i]) * 1099511628211u;
    seen += (hash ^ (uint64_t)s->st_mtim.tv_nsec ^ (uint64_t)s->st_ino) * 1099511628211u;
    free(data);
    return 0;
}

/* Changes with any file below: its name, its bytes, or that it was written again. */
static inline uint64_t state_of(const char *folder, const char *name) {
    char *path = ndp_format("%s/%s", folder, name);
    seen = 0;
    assert_int_equal(nftw(path, see, 8, FTW_PHYS), 0);
    free(path);
    return seen;
}

/* The "extra" of the manifest of a step; the caller puts it. */
static inline struct json_object *extra_of(const char *folder, const char *name, int step) {
    char *path = ndp_format("%s/%s/checkpoints/step-%08d/manifest.json", folder, name, step);
    struct json_object *manifest, *extra;
    CHECK_OK(ndp_json_read(path, &manifest));
    assert_true(json_object_object_get_ex(manifest, "extra", &extra));
    json_object_get(extra);
    json_object_put(manifest);
    free(path);
    return extra;
}

#endif
