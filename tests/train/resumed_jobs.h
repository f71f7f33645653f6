/* Jobs that are drawn from lists of losses, adapters, optimizers, bases, models, data and schedules, and the files that
 * they read: for runs that are stopped, and resumed with one thing changed. */
#ifndef TESTS_TRAIN_RESUMED_JOBS_H
#define TESTS_TRAIN_RESUMED_JOBS_H

#include "base/rng.h"
#include "checkpoint/safetensors.h"
#include "train/resumes.h"

enum { LENGTH = 40, BATCH = 4, MOST_PARTS = 7 };

/* '%' stands for the folder of a job's files, '@' for the test's. */
typedef struct part {
    const char *name, *sets[5];
} part;

static const part losses[] = {{"dpo", {"loss.name=dpo"}},
                              {"xent", {0}},
                              {"ipo", {"loss.name=dpo", "loss.variant=ipo", "loss.sft_weight=0.5"}},
                              {"orpo", {"loss.name=orpo"}},
                              {"simpo", {"loss.name=simpo"}},
                              {"kto", {"loss.name=kto", "loss.undesirable_weight=0.5"}}};
static const part adapters[] = {{"whole", {0}},
                                {"continued", {"adapter.type=lora", "adapter.r=4", "adapter.path=%/adapter"}},
                                {"lora", {"adapter.type=lora", "adapter.r=4", "adapter.dropout=0.1"}},
                                {"dora", {"adapter.type=lora", "adapter.r=4", "adapter.dora=true"}},
                                {"nf4", {"adapter.type=qlora", "adapter.r=4"}},
                                {"int8", {"adapter.type=qlora", "adapter.base=int8", "adapter.init=random"}}};
static const part drawn_adapter = {"drawn", {"adapter.type=lora", "adapter.r=4", "adapter.init=random"}};
static const part experts_adapter = {/* of a mixture, in place of lora */
                                     "experts",
                                     {"adapter.type=lora", "adapter.r=2", "adapter.init=random",
                                      "adapter.targets=[linear, experts.gate_up_proj, experts.down_proj]"}};
static const part optimizers[] = {{"adamw", {"optimizer.lr=1e-2"}},
                                  {"sgd", {"optimizer.name=sgd", "optimizer.lr=0.5", "optimizer.momentum=0.9"}},
                                  {"lion", {"optimizer.name=lion", "optimizer.lr=1e-3"}},
                                  {"muon", {"optimizer.name=muon", "optimizer.lr=1e-2"}},
                                  {"adamw8bit", {"optimizer.name=adamw8bit", "optimizer.lr=1e-2"}},
                                  {"groups", /* the first layer by another optimizer */
                                   {"optimizer.lr=1e-2", "optimizer.groups=[{params: ['*[!t]?.0.*'], optimizer: lion, "
                                                         "lr_scale: 0.1}]"}}};
static const part kinds_of_base[] = {{"pretrained", {"model.path=%/model"}},
                                     {"random", {"model.config=%/model/config.json", "data.tokenizer=%/model"}},
                                     {"frozen", {"model.path=%/model", "model.frozen=[embed]"}}};
static const part data[] = {
    {"texts", {"data.files=[%/texts.jsonl]", "data.validation_files=[%/held.jsonl]", "train.eval_every=1"}},
    {"chats", {"data.files=[%/chats.jsonl]", "data.chat_template=chatml"}},
    {"mixed", {"data.files=[%/texts.jsonl, %/chats.jsonl]", "data.mix=[1, 2]", "data.chat_template=chatml"}},
    {"held out", {"data.files=[%/texts.jsonl]", "data.validation_fraction=0.2", "train.eval_every=1"}}};
static const part pairs = {
    "pairs",
    {"data.files=[%/pairs.jsonl]", "data.format=preference", "data.validation_fraction=0.2", "train.eval_every=1"}};
static const part schedules[] = {{"cosine", {"schedule.warmup_steps=1"}},
                                 {"constant", {"schedule.name=constant", "schedule.warmup_steps=1"}},
                                 {"warm-up by ratio", {"schedule.name=constant", "schedule.warmup_ratio=0.5"}},
                                 {"inverse_sqrt", {"schedule.name=inverse_sqrt", "schedule.warmup_steps=1"}}};
static const part routes = {"routed", {"moe.routes=%/routes.safetensors"}};
static const part bf16 = {"bf16", {"precision.compute=bf16"}};
/* Folders of tests/golden: those that may be stored in fewer bits, a dense one whose parts are too small for it, then
 * mixtures, whose experts are not. */
enum { PACKED = 10, DENSE = 11 };
static const char *const families[] = {"mistral",   "llama-yarn", "gemma2",   "phi3",    "gpt2",      "llama3-tied",
                                       "qwen2",     "stablelm",   "gemma4",   "granite", "qwen3-5",   "qwen3-moe",
                                       "qwen2-moe", "mixtral",    "glm4-moe", "gpt-oss", "qwen3-next"};

typedef struct drawn_job {
    int number;
    const part *parts[MOST_PARTS];
    int n;
    const char *family;
    char name[200];
    char files[128]; /* their folder */
} drawn_job;

static inline void add_part(drawn_job *j, const part *p) {
    size_t n = strlen(j->name);
    assert_true(j->n < MOST_PARTS);
    j->parts[j->n++] = p;
    snprintf(j->name + n, sizeof j->name - n, ", %s", p->name);
}

static inline bool job_has(const drawn_job *j, const part *p) {
    for (int i = 0; i < j->n; i++)
        if (j->parts[i] == p)
            return true;
    return false;
}

static inline bool is_mixture(const drawn_job *j) { return strstr(j->family, "moe") || strstr(j->family, "mix"); }

/* Losses, adapters and models in turn, so that the first jobs have those that steps read most for; the rest is drawn.
 */
static inline drawn_job draw_job(const char *folder, int i, uint64_t seed) {
#define DRAW(list) &list[ndp_rng_below(seed, (uint64_t)i, draws++, NDP_COUNT(list))]
    uint64_t draws = 0;
    const part *loss = &losses[i % 2 ? 1 + i / 2 % 4 : 0], *adapter = &adapters[i / 2 % NDP_COUNT(adapters)];
    drawn_job j = {.number = i,
                   .family = families[adapter < &adapters[4] ? i * DENSE % NDP_COUNT(families) : i % PACKED]};
    snprintf(j.name, sizeof j.name, "job %d: %s", i, j.family);
    snprintf(j.files, sizeof j.files, "%s/files-%d", folder, i);
    add_part(&j, loss);
    add_part(&j, loss == &losses[1] ? DRAW(data) : &pairs);
    add_part(&j, adapter == &adapters[2] && is_mixture(&j) ? &experts_adapter : adapter);
    add_part(&j, i < 4 || adapter != &adapters[0] ? &kinds_of_base[i % 8 > 5] : DRAW(kinds_of_base));
    add_part(&j, DRAW(optimizers));
    add_part(&j, DRAW(schedules));
    if (is_mixture(&j) && loss == &losses[1])
        add_part(&j, &routes);
    else if (i % 5 == 4)
        add_part(&j, &bf16);
    return j;
#undef DRAW
}

/* ---- configurations ---- */

/* key=value with '@' for the test's folder and '%' for that of the files. */
static inline ndp_status set_in(ndp_config *c, const char *folder, const char *files, const char *assignment) {
    ndp_str s = {0};
    for (const char *p = assignment; *p; p++)
        if (*p == '@' || *p == '%')
            ndp_str_add(&s, *p == '@' ? folder : files);
        else
            ndp_str_add_bytes(&s, p, 1);
    ndp_status st = ndp_config_set(c, s.data);
    ndp_str_release(&s);
    return st;
}

/* The job with its files in `files`, whose run folder is FOLDER/RUN. */
static inline ndp_config *configure_job(const char *folder, const drawn_job *j, const char *files, const char *output) {
    static const char text[] = "data: {sequence_length: 40, cache_dir: %1$s/cache}\n"
                               "batch: {global_batch_size: 4, micro_batch_size: 2}\n"
                               "parallelism: {dp_shard_size: 1}\n"
                               "train: {steps: 4, threads: 1, transport: local, force_memory: true,\n"
                               "        output_dir: %1$s/%2$s}\n";
    ndp_config *c;
    char *whole = ndp_format(text, folder, output);
    CHECK_OK(ndp_config_create(&c));
    CHECK_OK(ndp_config_parse(c, whole, strlen(whole), "job"));
    for (int i = 0; i < j->n; i++)
        for (int k = 0; k < NDP_COUNT(j->parts[i]->sets) && j->parts[i]->sets[k]; k++)
            CHECK_OK(set_in(c, folder, files, j->parts[i]->sets[k]));
    free(whole);
    return c;
}

/* ---- files ---- */

/* The configuration of tests/golden with the vocabulary of bytes, and weights that differ. */
static inline void write_model(const char *family, const char *path, uint64_t seed) {
    char *from = ndp_format("%s/tests/golden/%s/config.json", getenv("NDP_SOURCE_DIR"), family);
    struct json_object *config;
    CHECK_OK(ndp_json_read(from, &config));
    json_object_object_add(config, "vocab_size", json_object_new_int(TINY_VOCAB));
    json_object_object_add(config, "initializer_range", json_object_new_double(0.2));
    assert_int_equal(mkdir(path, 0700), 0);
    tiny_write(path, "config.json", json_object_to_json_string(config));
    tiny_write(path, "generation_config.json", "{\"bos_token_id\": 256, \"eos_token_id\": 257}");
    tiny_write(path, "tokenizer_config.json", "{\"bos_token\": \"<s>\", \"eos_token\": \"&1&\"}");
    tiny_write_tokenizer(path, true);
    tiny_write_weights(path, seed, NDP_F32);
    json_object_put(config);
    free(from);
}

static inline void write_records(const char *files) {
    write_texts(files, "texts.jsonl", 0, 'A');
    write_texts(files, "held.jsonl", 0, 'C');
    write_chats(files);
    ndp_str s = {0};
    for (int i = 0; i < 20; i++)
        ndp_str_addf(&s, "{\"prompt\": \"%d? \", \"chosen\": \"%d!\", \"rejected\": \"no: %d\"}\n", i, i * i, i);
    tiny_write(files, "pairs.jsonl", s.data);
    ndp_str_release(&s);
}

/* FILES/NAME, a folder that a run of a few steps has written. */
static inline void write_adapter(const char *folder, const drawn_job *j, const char *name, int seed) {
    drawn_job first = *j;
    for (int i = 0; i < first.n; i++)
        if (first.parts[i] == &adapters[1])
            first.parts[i] = &drawn_adapter;
    ndp_config *c = configure_job(folder, &first, j->files, "first");
    CHECK_OK(ndp_config_setf(c, "train.seed=%d", seed));
    CHECK_OK(ndp_config_set(c, "train.steps=1"));
    run r = {.config = c};
    CHECK_OK(train(&r, false, NULL));
    char *command = ndp_format("mv %s/first/adapter %s/%s && rm -rf %s/first", folder, j->files, name, folder);
    assert_int_equal(system(command), 0);
    free(command);
    ndp_str_release(&r.said);
    ndp_config_destroy(c);
}

/* Different experts for each row. */
static inline void write_choices(const drawn_job *j, const ndp_model *m, const char *name, int turn) {
    enum { MOST = 8, ROWS = BATCH * LENGTH };
    char *path = ndp_format("%s/%s", j->files, name), names[MOST][48];
    const ndp_mixtures *x = &m->inputs->mixtures;
    ndp_tensor_spec specs[MOST];
    ndp_safetensors_writer *w;
    int32_t rows[ROWS * MOST];
    int n = 0;
    for (int i = 0; i < ROWS * x->choices; i++)
        rows[i] = (i / x->choices * (1 + turn) + i % x->choices) % x->experts;
    for (int u = 0; u < m->n_units; u++)
        if (m->units[u].mixture != NDP_NONE) {
            assert_true(n < MOST && x->choices <= MOST);
            snprintf(names[n], sizeof names[n], "%s.choices", m->units[u].name);
            specs[n] = (ndp_tensor_spec){.name = names[n], .dtype = NDP_I32, .ndim = 2, .shape = {ROWS, x->choices}};
            n++;
        }
    CHECK_OK(ndp_safetensors_create(path, specs, n, &w));
    for (int i = 0; i < n; i++)
        CHECK_OK(ndp_safetensors_write(w, i, 0, ROWS * x->choices, rows, NDP_I32));
    ndp_safetensors_writer_destroy(w);
    free(path);
}

static inline void write_routes(const char *folder, const drawn_job *j) {
    ndp_config *c = configure_job(folder, j, j->files, "none");
    ndp_job resolved;
    ndp_model m;
    CHECK_OK(ndp_job_init(c, 1, &resolved));
    CHECK_OK(ndp_model_build(&resolved.spec, &resolved.model, &m));
    write_choices(j, &m, "routes.safetensors", 0);
    write_choices(j, &m, "other-routes.safetensors", 1);
    ndp_model_release(&m);
    ndp_job_release(&resolved);
    ndp_config_destroy(c);
}

/* All that the job reads, and others in the place of its model, adapter and routes: "other", "other-adapter". */
static inline void write_files(const char *folder, const drawn_job *j) {
    const char *const names[] = {"model", "other"};
    assert_int_equal(mkdir(j->files, 0700), 0);
    write_records(j->files);
    for (int i = 0; i < NDP_COUNT(names); i++) {
        char *path = ndp_format("%s/%s", j->files, names[i]);
        write_model(j->family, path, 3 + (uint64_t)i);
        free(path);
    }
    if (job_has(j, &adapters[1])) {
        write_adapter(folder, j, "adapter", 1);
        write_adapter(folder, j, "other-adapter", 2);
    }
    if (job_has(j, &routes))
        write_routes(folder, j);
}

#endif
