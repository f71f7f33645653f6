/* Resumes with something changed: what determines the curve is named and refused before anything is written, what does
 * not may change, and --accept takes single keys. Every row of the option table is in one of the cases. */
#include "base/json.h"
#include "train/tiny_model.h"
#include "train/trainer.h"

#include <ftw.h>
#include <sys/stat.h>

enum { SAVED = 2, STEPS = 4, MOST_SETS = 6 };

/* ---- files ---- */

static const char model_text[] =
    "{\"model_type\": \"mistral\", \"architectures\": [\"MistralForCausalLM\"], \"vocab_size\": 260, \"hidden_size\": "
    "16, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 4, "
    "\"intermediate_size\": 20, \"max_position_embeddings\": 200, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, "
    "\"sliding_window\": 16, \"hidden_act\": \"silu\", \"initializer_range\": 0.1, \"tie_word_embeddings\": false}";

/* FOLDER/NAME: `text` with `old` replaced. */
static void write_variant(const char *folder, const char *name, const char *text, const char *old, const char *new) {
    const char *at = strstr(text, old);
    assert_non_null(at);
    char *whole = ndp_format("%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    tiny_write(folder, name, whole);
    free(whole);
}

static void write_models(const char *folder) {
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
    char *model = ndp_format("%s/model", folder);
    assert_int_equal(mkdir(model, 0700), 0);
    tiny_write(model, "config.json", model_text);
    tiny_write_tokenizer(model, true);
    tiny_write_weights(model, 3, NDP_F32);
    free(model);
}

static void write_tokenizers(const char *folder) {
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
static void write_texts(const char *folder, const char *name, int swapped, char letter) {
    ndp_str s = {0};
    for (int i = 0; i < 40; i++) {
        int d = swapped && i / 2 == swapped ? i ^ 1 : i;
        ndp_str_addf(&s, "{\"text\": \"%c document %02d of %03d\", \"body\": \"the body of %02d\"}\n",
                     d == 7 ? letter : 'A', d, 7 * d, d);
    }
    tiny_write(folder, name, s.data);
    ndp_str_release(&s);
}

static void write_chats(const char *folder) {
    ndp_str s = {0};
    for (int i = 0; i < 10; i++)
        ndp_str_addf(&s,
                     "{\"messages\": [{\"role\": \"user\", \"content\": \"%d?\"}, {\"role\": \"assistant\", "
                     "\"content\": \"%d!\"}]}\n",
                     i, i * i);
    tiny_write(folder, "chats.jsonl", s.data);
    ndp_str_release(&s);
}

static int make_folder(void **state) {
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
} bases[] = {{"cosine", {0}},
             {"constant", {"schedule.name=constant", "data.files=@/texts.jsonl", "data.validation_files=[]"}},
             {"sgd", {"optimizer.name=sgd", "schedule.name=constant"}}};
enum { COSINE, CONSTANT, SGD };

/* key=value with '@' for the folder. */
static void set(ndp_config *c, const char *folder, const char *assignment) {
    ndp_str s = {0};
    for (const char *p = assignment; *p; p++)
        if (*p == '@')
            ndp_str_add(&s, folder);
        else
            ndp_str_addf(&s, "%c", *p);
    CHECK_OK(ndp_config_set(c, s.data));
    ndp_str_release(&s);
}

static ndp_config *configure(const char *folder, int base, const char *run) {
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
} run;

static void progress(void *user, const ndp_metrics *m, int64_t steps) {
    run *r = user;
    (void)steps;
    if (m->step == r->stop_after)
        __atomic_store_n(&r->stop, 1, __ATOMIC_RELAXED);
}

static void hear(void *user, const char *line) {
    run *r = user;
    ndp_str_addf(&r->said, "%s\n", line);
}

static ndp_status body(ndp_world *w, void *arg) {
    run *r = arg;
    return ndp_train(r->config, w, &r->opts);
}

static ndp_status train(run *r, bool resume, const char *const *accept) {
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

static void train_base(const char *folder, int base) {
    ndp_config *c = configure(folder, base, bases[base].name);
    run r = {.config = c, .stop_after = SAVED};
    ndp_status st = train(&r, false, NULL);
    if (st != NDP_EINTR)
        fail_msg("the run '%s' was not stopped: %d, %s", bases[base].name, st, ndp_error_message());
    ndp_str_release(&r.said);
    ndp_config_destroy(c);
}

static void copy_run(const char *folder, int base) {
    char *command = ndp_format("rm -rf %s/again && cp -r %s/%s %s/again", folder, folder, bases[base].name, folder);
    assert_int_equal(system(command), 0);
    free(command);
}

/* ---- what is in a folder ---- */

static uint64_t seen; /* by nftw, which has no place for it */

static int see(const char *path, const struct stat *s, int kind, struct FTW *where) {
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
static uint64_t state_of(const char *folder, const char *name) {
    char *path = ndp_format("%s/%s", folder, name);
    seen = 0;
    assert_int_equal(nftw(path, see, 8, FTW_PHYS), 0);
    free(path);
    return seen;
}

/* The "extra" of the manifest of a step; the caller puts it. */
static struct json_object *extra_of(const char *folder, const char *name, int step) {
    char *path = ndp_format("%s/%s/checkpoints/step-%08d/manifest.json", folder, name, step);
    struct json_object *manifest, *extra;
    CHECK_OK(ndp_json_read(path, &manifest));
    assert_true(json_object_object_get_ex(manifest, "extra", &extra));
    json_object_get(extra);
    json_object_put(manifest);
    free(path);
    return extra;
}

/* ---- the cases ---- */

typedef struct change {
    const char *name;
    int base;
    const char *sets[MOST_SETS];
    const char *accept[3];
    const char *refused; /* the keys that the message names, or other words of it; NULL: the run goes on */
    const char *says[2]; /* words of the message, or of the run */
} change;

static const change changes[] = {
    /* clang-format off */
    /* the data */
    {"text shuffled", COSINE, .sets = {"data.files=[@/shuffled.jsonl, @/chats.jsonl]"}, .refused = "data.files"},
    {"one letter of the text", COSINE, .sets = {"data.files=[@/letter.jsonl, @/chats.jsonl]"}, .refused = "data.files"},
    {"files in another order", COSINE, .sets = {"data.files=[@/chats.jsonl, @/texts.jsonl]"}, .refused = "data.files"},
    {"a file less", COSINE, .sets = {"data.files=[@/texts.jsonl]"}, .refused = "data.files"},
    {"sequence_length", COSINE, .sets = {"data.sequence_length=80"}, .refused = "data.sequence_length"},
    {"packing", COSINE, .sets = {"data.packing=false"}, .refused = "data.packing"},
    {"document_mask", COSINE, .sets = {"data.document_mask=false"}, .refused = "data.document_mask"},
    {"shuffle", COSINE, .sets = {"data.shuffle=false"}, .refused = "data.shuffle"},
    {"mix", COSINE, .sets = {"data.mix=[1, 2]"}, .refused = "data.mix"},
    {"held-out files", COSINE, .sets = {"data.validation_files=@/held-too.jsonl"}, .refused = "data.validation_files"},
    {"no held-out files", COSINE, .sets = {"data.validation_files=[]"}, .refused = "data.validation_files"},
    {"held-out fraction", CONSTANT, .sets = {"data.validation_fraction=0.2"}, .refused = "data.validation_fraction"},
    {"end_token", COSINE, .sets = {"data.end_token=<s>"}, .refused = "data.end_token"},
    {"tokenizer file changed", COSINE, .sets = {"data.tokenizer=@/other-tokens"}, .refused = "data.tokenizer"},
    {"tokenizer bytes", COSINE, .sets = {"data.tokenizer=bytes"}, .refused = "data.tokenizer data.end_token"},
    {"template", COSINE, .sets = {"data.chat_template=qwen3"}, .refused = "data.chat_template"},
    {"train_on", COSINE, .sets = {"data.train_on=all"}, .refused = "data.train_on"},
    {"text_field", COSINE, .sets = {"data.text_field=body"}, .refused = "data.text_field"},
    {"format", CONSTANT, .sets = {"data.format=text"}, .refused = "data.format"},
    {"messages_field", CONSTANT, .sets = {"data.messages_field=talk"}, .refused = "data.messages_field"},
    {"prompt_field", CONSTANT, .sets = {"data.prompt_field=ask"}, .refused = "data.prompt_field"},
    {"input_field", CONSTANT, .sets = {"data.input_field=more"}, .refused = "data.input_field"},
    {"response_field", CONSTANT, .sets = {"data.response_field=answer"}, .refused = "data.response_field"},
    {"bin_type", COSINE, .sets = {"data.bin_type=uint32"}, .refused = "data.bin_type"},
    /* the model */
    {"rope_theta", COSINE, .sets = {"model.config=@/theta.json"}, .refused = "model.rope_theta", .says = {"10000, now it is 20000"}},
    {"window of config.json", COSINE, .sets = {"model.config=@/window.json"}, .refused = "model.sliding_window"},
    {"window of the job", COSINE, .sets = {"model.sliding_window=8"}, .refused = "model.sliding_window"},
    {"norm eps", COSINE, .sets = {"model.config=@/eps.json"}, .refused = "model.norm_eps"},
    {"hidden_act", COSINE, .sets = {"model.config=@/act.json"}, .refused = "model.hidden_act"},
    {"max_position_embeddings", COSINE, .sets = {"model.config=@/longer.json"}, .refused = "model.max_position_embeddings"},
    {"rope_scaling", COSINE, .sets = {"model.config=@/scaled.json"}, .refused = "model.rope_type model.rope_factor"},
    {"initializer_range", COSINE, .sets = {"model.config=@/range.json"}, .refused = "model.initializer_range"},
    {"tied head", COSINE, .sets = {"model.config=@/tied.json"}, .refused = "model.tie_word_embeddings", .says = {"cannot be accepted"}},
    {"layers", COSINE, .sets = {"model.config=@/layers.json"}, .refused = "model.num_hidden_layers", .says = {"other shapes"}},
    {"init", COSINE, .sets = {"model.config=null", "model.path=@/model", "model.init=pretrained"}, .refused = "model.init"},
    /* optimizer, schedule, batch */
    {"lr", COSINE, .sets = {"optimizer.lr=1e-3"}, .refused = "optimizer.lr", .says = {"lr of step 3: 0.000165 then, 0.00055 now", "resume with --accept optimizer.lr"}},
    {"betas", COSINE, .sets = {"optimizer.betas=[0.9, 0.99]"}, .refused = "optimizer.betas"},
    {"eps", COSINE, .sets = {"optimizer.eps=1e-6"}, .refused = "optimizer.eps"},
    {"weight_decay", COSINE, .sets = {"optimizer.weight_decay=0"}, .refused = "optimizer.weight_decay"},
    {"momentum", COSINE, .sets = {"optimizer.momentum=0.5"}, .refused = "optimizer.momentum"},
    {"clip", COSINE, .sets = {"optimizer.max_grad_norm=0"}, .refused = "optimizer.max_grad_norm"},
    {"optimizer", COSINE, .sets = {"optimizer.name=sgd"}, .refused = "optimizer.name", .says = {"cannot be accepted"}},
    {"schedule", COSINE, .sets = {"schedule.name=linear"}, .refused = "schedule.name", .says = {"lr of step 3: "}},
    {"warm-up", COSINE, .sets = {"schedule.warmup_steps=3"}, .refused = "schedule.warmup_steps"},
    {"min_lr_ratio", COSINE, .sets = {"schedule.min_lr_ratio=0"}, .refused = "schedule.min_lr_ratio"},
    {"steps of a cosine", COSINE, .sets = {"train.steps=8"}, .refused = "train.steps", .says = {"lr of step 3: 0.000165 then, 0.000281913 now", "resume with --accept train.steps"}},
    {"steps and a schedule that reads them", CONSTANT, .sets = {"schedule.name=linear", "train.steps=8"}, .refused = "schedule.name train.steps"},
    {"batch", COSINE, .sets = {"batch.global_batch_size=8"}, .refused = "batch.global_batch_size"},
    {"seed", COSINE, .sets = {"train.seed=7"}, .refused = "train.seed"},
    {"precision", COSINE, .sets = {"precision.compute=bf16"}, .refused = "precision.compute"},
    {"several", COSINE, .sets = {"train.seed=7", "optimizer.lr=1", "data.files=[@/shuffled.jsonl, @/chats.jsonl]"}, .refused = "train.seed optimizer.lr data.files"},
    /* --accept */
    {"one of two accepted", COSINE, .sets = {"train.seed=7", "optimizer.lr=1e-3"}, {"optimizer.lr"}, "train.seed"},
    {"accepted without a difference", COSINE, .sets = {0}, {"optimizer.lr"}, "", {"--accept optimizer.lr: it does not differ"}},
    {"one too many accepted", COSINE, .sets = {"train.seed=7"}, {"train.seed", "optimizer.lr"}, "", {"--accept optimizer.lr: it does not differ"}},
    {"steps of a constant schedule accepted", CONSTANT, .sets = {"train.steps=3"}, {"train.steps"}, "", {"--accept train.steps: it does not differ"}},
    {"a free key accepted", COSINE, .sets = {"train.threads=2"}, {"train.threads"}, "", {"may change on any resume"}},
    {"an unknown key accepted", COSINE, .sets = {"train.seed=7"}, {"train.sed"}, "", {"did you mean train.seed?"}},
    {"optimizer accepted", COSINE, .sets = {"optimizer.name=sgd"}, {"optimizer.name"}, "optimizer.name", {"cannot be accepted"}},
    {"shape accepted", COSINE, .sets = {"model.config=@/ffn.json"}, {"model.intermediate_size"}, "model.intermediate_size", {"cannot be accepted"}},
    {"momentum of sgd accepted", SGD, .sets = {"optimizer.momentum=0.9"}, {"optimizer.momentum"}, "optimizer.momentum", {"cannot be accepted"}},
    {"lr accepted", COSINE, .sets = {"optimizer.lr=1e-3"}, {"optimizer.lr"}, .says = {"accepted: optimizer.lr was 0.0003, now it is 0.001", "lr of step 3: 0.000165 then, 0.00055 now"}},
    {"steps accepted", COSINE, .sets = {"train.steps=5"}, {"train.steps"}, .says = {"accepted: train.steps was 4, now it is 5", "lr of step 3: "}},
    {"seed accepted", COSINE, .sets = {"train.seed=7"}, {"train.seed"}, .says = {"cursor: stays at sample 8 ("}},
    {"text accepted", COSINE, .sets = {"data.files=[@/shuffled.jsonl, @/chats.jsonl]"}, {"data.files"}, .says = {"cursor: stays at sample 8 (", "the next rows are "}},
    {"tokenizer accepted", COSINE, .sets = {"data.tokenizer=@/other-tokens"}, {"data.tokenizer"}, .says = {"accepted: data.tokenizer was"}},
    {"batch and window accepted", COSINE, .sets = {"batch.global_batch_size=2", "model.sliding_window=8"}, {"batch.global_batch_size", "model.sliding_window"}, .says = {"accepted: model.sliding_window was 16, now it is 8"}},
    {"precision accepted", COSINE, .sets = {"precision.compute=bf16"}, {"precision.compute"}, .says = {"accepted: precision.compute"}},
    /* free */
    {"steps of a constant schedule", CONSTANT, .sets = {"train.steps=6"}, .says = {"resume: from step 2"}},
    {"two ranks that share parameters", COSINE, .sets = {"parallelism.dp_shard_size=2", "train.ranks=2", "parallelism.reshard_after_forward=false"}},
    {"two replicas, micro batch of 1", COSINE, .sets = {"parallelism.dp_replicate_size=2", "batch.micro_batch_size=1"}},
    {"tensor parallelism", COSINE, .sets = {"parallelism.tp_size=2", "parallelism.tp_sequence_parallel=false"}},
    {"context parallelism", COSINE, .sets = {"parallelism.cp_size=2", "parallelism.cp_method=all_gather", "parallelism.cp_zigzag=false"}},
    {"sequence parallelism", COSINE, .sets = {"parallelism.sp_size=2"}},
    {"threads", COSINE, .sets = {"train.threads=2"}},
    {"transport", COSINE, .sets = {"train.transport=self"}},
    {"device", COSINE, .sets = {"train.device=ref"}},
    {"recompute", COSINE, .sets = {"train.recompute=block"}},
    {"checkpoints", COSINE, .sets = {"checkpoint.every=1", "checkpoint.keep=2"}},
    {"lines and evaluations", COSINE, .sets = {"train.log_every=2", "train.eval_every=1"}},
    {"cache folder, overlong", COSINE, .sets = {"data.cache_dir=@/cache-too", "data.overlong=error"}},
    {"longer sequences allowed", COSINE, .sets = {"model.allow_longer=true"}},
    {"the same files by other names", COSINE, .sets = {"data.files=[@/copied.jsonl, @/chats.jsonl]", "model.config=@/same.json", "data.tokenizer=@/same-tokens"}},
    /* clang-format on */
};

/* ---- checking a case ---- */

/* NULL, or what is wrong with it; the caller frees. */
static char *check_keys(const char *keys, const char *message) {
    char *list = strdup(keys), *rest = NULL;
    int named = 0, n = 0;
    for (const char *at = message; (at = strstr(at, ", now it is ")) != NULL; at++)
        named++;
    for (char *key = strtok_r(list, " ", &rest); key; key = strtok_r(NULL, " ", &rest), n++) {
        char *words = ndp_format("%s was ", key);
        bool there = strstr(message, words) != NULL;
        free(words);
        if (!there) {
            free(list);
            return ndp_format("the message does not name %s: %s", keys, message);
        }
    }
    free(list);
    return n == named ? NULL : ndp_format("the message names %d keys, not %d: %s", named, n, message);
}

static char *check_said(const change *x, const char *text) {
    for (int i = 0; i < NDP_COUNT(x->says) && x->says[i]; i++)
        if (!text || !strstr(text, x->says[i]))
            return ndp_format("no '%s' in: %s", x->says[i], text ? text : "");
    return NULL;
}

static char *check_refused(const char *folder, const change *x, run *r) {
    uint64_t before = state_of(folder, bases[x->base].name);
    ndp_status st = train(r, true, x->accept);
    if (st != NDP_EINVAL)
        return ndp_format("status %d: %s", st, st == NDP_OK ? "it goes on" : ndp_error_message());
    char *wrong = *x->refused ? check_keys(x->refused, ndp_error_message()) : NULL;
    if (!wrong)
        wrong = check_said(x, ndp_error_message());
    if (!wrong && state_of(folder, bases[x->base].name) != before)
        wrong = ndp_format("the folder has changed");
    return wrong;
}

/* The last manifest has what was accepted, and the values that are now the run's. */
static char *check_manifest(const char *folder, const change *x, int step) {
    struct json_object *extra = extra_of(folder, "again", step), *list = json_object_object_get(extra, "accepted");
    size_t n = list ? json_object_array_length(list) : 0, found = 0, wanted = 0;
    while (x->accept[wanted])
        wanted++;
    for (size_t k = 0; k < wanted; k++)
        for (size_t i = 0; i < n; i++) {
            struct json_object *o = json_object_array_get_idx(list, i),
                               *identity = json_object_object_get(extra, "identity");
            found +=
                strcmp(json_object_get_string(json_object_object_get(o, "key")), x->accept[k]) == 0 &&
                json_object_get_int(json_object_object_get(o, "step")) == SAVED &&
                json_object_equal(json_object_object_get(o, "to"), json_object_object_get(identity, x->accept[k])) &&
                !json_object_equal(json_object_object_get(o, "from"), json_object_object_get(o, "to"));
        }
    char *wrong = n == wanted && found == n ? NULL
                                            : ndp_format("the manifest has %zu accepted keys, %zu of %zu are right: %s",
                                                         n, found, wanted, json_object_to_json_string(list));
    json_object_put(extra);
    return wrong;
}

static char *check_goes_on(const char *folder, const change *x, run *r) {
    if (train(r, true, x->accept) != NDP_OK)
        return ndp_format("refused: %s", ndp_error_message());
    char *wrong = check_said(x, r->said.data);
    return wrong ? wrong : check_manifest(folder, x, r->config->train.steps);
}

static char *check(const char *folder, const change *x) {
    if (!x->refused)
        copy_run(folder, x->base);
    ndp_config *c = configure(folder, x->base, x->refused ? bases[x->base].name : "again");
    for (int i = 0; i < MOST_SETS && x->sets[i]; i++)
        set(c, folder, x->sets[i]);
    run r = {.config = c};
    char *wrong = x->refused ? check_refused(folder, x, &r) : check_goes_on(folder, x, &r);
    ndp_str_release(&r.said);
    ndp_config_destroy(c);
    return wrong;
}

static void resumed_with_something_changed(void **state) {
    int right = 0, refused = 0;
    for (int b = 0; b < NDP_COUNT(bases); b++)
        train_base(*state, b);
    for (int i = 0; i < NDP_COUNT(changes); i++) {
        char *wrong = check(*state, &changes[i]);
        if (wrong)
            print_error("%s: %s\n", changes[i].name, wrong);
        right += !wrong;
        refused += changes[i].refused != NULL;
        free(wrong);
    }
    print_message("resumes with something changed: %d of %d as they should be (%d refused, %d go on)\n", right,
                  NDP_COUNT(changes), refused, NDP_COUNT(changes) - refused);
    assert_int_equal(right, NDP_COUNT(changes));
}

/* ---- what later manifests keep ---- */

/* A second resume has no difference left to accept, and keeps the record of the first. */
static void the_record_is_kept(void **state) {
    static const char *const first[] = {"optimizer.lr", NULL}, *const second[] = {"train.seed", NULL};
    const struct {
        const char *const *accept;
        const char *set;
        int steps;
    } resumes[] = {{first, "train.seed=42", 4}, {NULL, "train.seed=42", 5}, {second, "train.seed=7", 6}};
    copy_run(*state, CONSTANT);
    for (int i = 0; i < NDP_COUNT(resumes); i++) {
        ndp_config *c = configure(*state, CONSTANT, "again");
        CHECK_OK(ndp_config_setf(c, "train.steps=%d", resumes[i].steps));
        set(c, *state, "optimizer.lr=1e-3");
        set(c, *state, resumes[i].set);
        run r = {.config = c};
        CHECK_OK(train(&r, true, resumes[i].accept));
        ndp_str_release(&r.said);
        ndp_config_destroy(c);
    }
    struct json_object *extra = extra_of(*state, "again", 6), *list = json_object_object_get(extra, "accepted");
    assert_string_equal(json_object_to_json_string_ext(list, JSON_C_TO_STRING_PLAIN),
                        "[{\"key\":\"optimizer.lr\",\"from\":\"0.0003\",\"to\":\"0.001\",\"step\":2},"
                        "{\"key\":\"train.seed\",\"from\":\"42\",\"to\":\"7\",\"step\":5}]");
    json_object_put(extra);
    char *path = ndp_format("%s/again/job.yaml", (char *)*state), *text;
    size_t size;
    CHECK_OK(ndp_file_read(path, &text, &size));
    assert_non_null(strstr(text, "\n# accepted at step 2: optimizer.lr from 0.0003 to 0.001\n"
                                 "# accepted at step 5: train.seed from 42 to 7\n"));
    assert_non_null(strstr(text, "\n  lr: 0.001\n"));
    free(text);
    free(path);
}

static void nothing_to_accept_in_an_empty_folder(void **state) {
    static const char *const accept[] = {"optimizer.lr", NULL};
    ndp_config *c = configure(*state, COSINE, "empty");
    run r = {.config = c};
    CHECK_FAILS(train(&r, true, accept), NDP_EINVAL, "holds no checkpoint to differ from");
    ndp_str_release(&r.said);
    ndp_config_destroy(c);
}

/* ---- checkpoints of earlier versions ---- */

/* The manifest of a run as version 1 wrote it: counts of the data, no identity. */
static void write_old_manifest(const char *folder, const char *counts) {
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    ndp_str s = {0};
    char *step = ndp_format("%s/again/checkpoints/step-%08d", folder, SAVED);
    ndp_str_addf(&s,
                 "{\"format\": \"ndparallel checkpoint\", \"version\": 1, \"step\": 2, \"samples\": 8, \"seed\": 42, "
                 "\"extra\": {%s}, \"files\": [",
                 counts);
    for (int i = 0; i < NDP_COUNT(files); i++) {
        struct stat file;
        char *path = ndp_format("%s/%s", step, files[i]);
        assert_int_equal(stat(path, &file), 0);
        ndp_str_addf(&s, "%s{\"name\": \"%s\", \"bytes\": %lld}", i ? ", " : "", files[i], (long long)file.st_size);
        free(path);
    }
    ndp_str_add(&s, "]}\n");
    tiny_write(step, "manifest.json", s.data);
    ndp_str_release(&s);
    free(step);
}

static ndp_status resume_old(const char *folder, const char *other, const char *const *accept) {
    static const char counts[] = "\"rows\": 20, \"epoch_rows\": 20, \"tokens\": 1496, \"sequence_length\": 96, "
                                 "\"shuffle\": true";
    copy_run(folder, COSINE);
    write_old_manifest(folder, counts);
    ndp_config *c = configure(folder, COSINE, "again");
    if (other)
        set(c, folder, other);
    run r = {.config = c};
    ndp_status st = train(&r, true, accept);
    ndp_str_release(&r.said);
    ndp_config_destroy(c);
    return st;
}

static void counts_of_an_earlier_version(void **state) {
    static const char *const accept[] = {"train.seed", NULL}, *const lr[] = {"optimizer.lr", NULL};
    CHECK_OK(resume_old(*state, NULL, NULL));
    CHECK_OK(resume_old(*state, "optimizer.lr=1e-3", NULL)); /* cannot be compared */
    CHECK_FAILS(resume_old(*state, "data.files=[@/texts.jsonl]", NULL), NDP_EINVAL, "data.rows was 20, now it is ");
    CHECK_FAILS(resume_old(*state, "data.sequence_length=80", NULL), NDP_EINVAL, "data.sequence_length was 96");
    CHECK_FAILS(resume_old(*state, "data.shuffle=false", NULL), NDP_EINVAL, "data.shuffle was true");
    CHECK_FAILS(resume_old(*state, "train.seed=7", NULL), NDP_EINVAL, "train.seed was 42, now it is 7");
    CHECK_FAILS(resume_old(*state, "optimizer.lr=1e-3", lr), NDP_EINVAL,
                "--accept optimizer.lr: it cannot be compared");
    CHECK_OK(resume_old(*state, "train.seed=7", accept));
    /* The checkpoint of the run that went on has an identity. */
    struct json_object *extra = extra_of(*state, "again", STEPS);
    assert_true(json_object_object_get_ex(extra, "identity", NULL));
    json_object_put(extra);
}

/* ---- the table ---- */

/* Does a case change the key, or is it refused for it? */
static bool is_tried(const char *key) {
    size_t n = strlen(key);
    for (int i = 0; i < NDP_COUNT(changes); i++)
        for (int k = 0; k < MOST_SETS && changes[i].sets[k]; k++)
            if (strncmp(changes[i].sets[k], key, n) == 0 && changes[i].sets[k][n] == '=')
                return true;
    return false;
}

/* Every key has a role and a case, and the manifest has those that are not free. */
static void every_key_has_a_case(void **state) {
    static const char *const one_value[] = {"precision.reduce", "parallelism.pp_size", "parallelism.ep_size",
                                            "train.output_dir"}; /* the last: all that go on are copies */
    struct json_object *extra = extra_of(*state, "cosine", SAVED),
                       *identity = json_object_object_get(extra, "identity");
    char key[NDP_KEY_NAME];
    for (int i = 0, role; (role = ndp_config_key(i, key)) >= 0; i++) {
        bool path = strcmp(key, "model.path") == 0 || strcmp(key, "model.config") == 0, alone = false;
        for (int k = 0; k < NDP_COUNT(one_value); k++)
            alone |= strcmp(key, one_value[k]) == 0;
        if (role == 0)
            fail_msg("%s is neither free nor identity", key);
        if (!alone && !is_tried(key))
            fail_msg("no case changes %s", key);
        if (json_object_object_get_ex(identity, key, NULL) != (role != NDP_KEY_FREE && !path))
            fail_msg("%s, of role %d, is %s the identity", key, role, role == NDP_KEY_FREE ? "in" : "not in");
    }
    json_object_put(extra);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(resumed_with_something_changed),
                                       cmocka_unit_test(every_key_has_a_case), cmocka_unit_test(the_record_is_kept),
                                       cmocka_unit_test(nothing_to_accept_in_an_empty_folder),
                                       cmocka_unit_test(counts_of_an_earlier_version)};
    return cmocka_run_group_tests(tests, make_folder, tiny_teardown);
}
