/* Folders of models of several parts: a text of tests/golden under every spelling that files have had, beside tensors
 * of other parts of all types. Runs, exports, merges, evaluation and generation do what they do with the text alone,
 * and the tensors of the other parts keep their names and bytes. tests/golden/check_folders.py shows the same of
 * folders that transformers writes. */
#include "base/json.h"
#include "base/rng.h"
#include "checkpoint/folder_stacks.h"
#include "job/folder_facts.h"
#include "train/golden.h"
#include "train/tiny_run.h"
#include "weights/adapter_folder.h"
#include "weights/tensor_set.h"

/* How the files of a model name the text's tensors that the golden model has as model.X and lm_head.X, and others. */
typedef struct spelling {
    const char *golden, *type;
    bool flat; /* without text_config */
    const char *text, *head, *other;
    const char *base; /* of the names that PEFT sees */
    int64_t shard;    /* bytes of a file */
} spelling;
static const spelling spellings[] = {
    {"mistral", "mistral3", false, "language_model.model.", "language_model.lm_head.", "vision_tower.",
     "model.language_model.", 12000},
    {"mistral", "llava", false, "model.language_model.", "lm_head.", "model.vision_tower.", "model.language_model.",
     NDP_SHARD_BYTES},
    {"qwen2", "qwen2_vl", true, "model.", "lm_head.", "visual.", "model.language_model.", NDP_SHARD_BYTES},
    {"qwen2", "qwen2_5_vl", false, "model.", "lm_head.", "model.visual.", "model.language_model.", NDP_SHARD_BYTES},
    {"qwen3", "internvl", false, "language_model.", "lm_head.", "vision_tower.", "model.language_model.",
     NDP_SHARD_BYTES},
    {"llama3-tied", "smolvlm", false, "model.text_model.", "lm_head.", "model.vision_model.", "model.text_model.",
     NDP_SHARD_BYTES},
    {"qwen3-5", "qwen3_5", false, "model.language_model.", "lm_head.", "model.visual.", "model.language_model.",
     NDP_SHARD_BYTES},
    /* A text alone, as transformers saves it from such a folder. */
    {"qwen3-5", "qwen3_5_text", true, "model.language_model.", "lm_head.", "model.visual.", "model.", NDP_SHARD_BYTES},
};

static char *place;

static int make_place(void **state) {
    enum { IDS = 200, LEAST_VOCAB = 97 };
    uint16_t ids[IDS];
    (void)state;
    place = strdup("/tmp/ndp-composites-XXXXXX");
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

/* ---- folders ---- */

/* Of other parts: types that cannot be converted, NaN, a scalar, nothing. */
static const struct {
    const char *name;
    ndp_tensor_spec spec;
} others[] = {
    {"blocks.0.attn.weight", {.dtype = NDP_BF16, .ndim = 2, .shape = {3, 4}}},
    {"blocks.0.norm.weight", {.dtype = NDP_F16, .ndim = 1, .shape = {7}}},
    {"mask", {.dtype = NDP_U8, .ndim = 1, .shape = {5}, .as = "BOOL"}},
    {"positions", {.dtype = NDP_I64, .ndim = 2, .shape = {1, 6}}},
    {"steps", {.dtype = NDP_U16, .ndim = 1, .shape = {3}, .as = "I16"}},
    {"codes", {.dtype = NDP_U8, .ndim = 2, .shape = {2, 3}, .as = "F8_E4M3"}},
    {"scale", {.dtype = NDP_F32, .ndim = 0}},
    {"nothing", {.dtype = NDP_F32, .ndim = 2, .shape = {0, 3}}},
};

typedef struct writing {
    ndp_tensor_spec specs[80];
    ndp_file_piece pieces[80];
    int n, n_pieces;
    ndp_arena arena;
} writing;

/* Appends a tensor with these bytes, or with some of its own. */
static void add(writing *w, const char *begin, const char *rest, const ndp_tensor_spec *spec, const void *data) {
    int64_t n = ndp_tensor_elements(spec);
    size_t bytes = (size_t)n * ndp_dtype_size(spec->dtype);
    uint8_t *copy = ndp_arena_alloc(&w->arena, bytes + 1);
    assert_true(copy && w->n < NDP_COUNT(w->specs));
    for (size_t i = 0; i < bytes; i++)
        copy[i] = data ? ((const uint8_t *)data)[i] : (uint8_t)(spec->dtype == NDP_U8 ? i % 2 : 255 - i);
    w->specs[w->n] = *spec;
    w->specs[w->n].name = ndp_arena_format(&w->arena, "%s%s", begin, rest);
    if (n > 0)
        w->pieces[w->n_pieces++] = (ndp_file_piece){w->n, 0, n, copy, spec->dtype, 1, NULL, 0};
    w->n++;
}

static void write_weights(const spelling *s, const char *from, const char *folder) {
    writing *w = calloc(1, sizeof *w);
    ndp_weights *base;
    CHECK_OK(ndp_weights_open(from, &base));
    for (int i = 0; i < NDP_COUNT(others) / 2; i++)
        add(w, s->other, others[i].name, &others[i].spec, NULL);
    for (int64_t i = 0; i < base->n; i++) {
        const ndp_named_tensor *t = &base->tensors[i];
        const char *name = t->entry->spec.name;
        bool head = strncmp(name, "lm_head.", 8) == 0;
        add(w, head ? s->head : s->text, name + (head ? 8 : 6), &t->entry->spec,
            ndp_safetensors_data(t->file, t->entry));
    }
    for (int i = NDP_COUNT(others) / 2; i < NDP_COUNT(others); i++)
        add(w, s->other, others[i].name, &others[i].spec, NULL);
    CHECK_OK(ndp_weights_save(NULL, NULL, folder, w->specs, w->n, w->pieces, w->n_pieces, s->shard));
    ndp_weights_close(base);
    ndp_arena_release(&w->arena);
    free(w);
}

/* The text's keys in text_config, or beside the others. */
static void write_config(const spelling *s, const char *from, const char *folder) {
    char *path = ndp_format("%s/config.json", from);
    struct json_object *text, *whole = json_object_new_object(), *image = json_object_new_object();
    CHECK_OK(ndp_json_read(path, &text));
    json_object_object_del(text, "architectures");
    if (strncmp(s->type, "qwen2", 5) == 0)
        json_object_object_add(text, "rope_scaling",
                               json_tokener_parse("{\"type\": \"mrope\", \"mrope_section\": [1, 1, 1]}"));
    struct json_object *tied = json_object_object_get(text, "tie_word_embeddings");
    json_object_object_add(image, "hidden_size", json_object_new_int(16));
    json_object_object_add(image, "scale", json_object_new_double(0.25));
    if (s->flat)
        json_object_put(whole), whole = json_object_get(text);
    else
        json_object_object_add(whole, "text_config", json_object_get(text));
    json_object_object_add(whole, "model_type", json_object_new_string(s->type));
    json_object_object_add(whole, "tie_word_embeddings", json_object_get(tied));
    json_object_object_add(whole, "vision_config", image);
    json_object_object_add(whole, "torch_dtype", json_object_new_string("float32"));
    tiny_put(folder, "config.json", json_object_to_json_string(whole));
    tiny_put(folder, "preprocessor_config.json", "{\"size\": 8}");
    json_object_put(whole);
    json_object_put(text);
    free(path);
}

/* The folder of a model of several parts; the caller frees its path. */
static char *make_whole(const spelling *s) {
    char from[1024], *folder = ndp_format("%s/whole", place);
    golden_folder(s->golden, from, sizeof from);
    CHECK_OK(ndp_folder_remove(folder));
    CHECK_OK(ndp_folder_create(folder));
    write_weights(s, from, folder);
    write_config(s, from, folder);
    return folder;
}

static bool is_other(const spelling *s, const char *name) { return strncmp(name, s->other, strlen(s->other)) == 0; }

/* Both have the same names; other parts have the same types, shapes and bytes. Returns how many tensors differ. */
static int compare(const spelling *s, const char *one, const char *two) {
    ndp_weights *a, *b;
    int differ = 0;
    CHECK_OK(ndp_weights_open(one, &a));
    CHECK_OK(ndp_weights_open(two, &b));
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        const ndp_named_tensor *x = &a->tensors[i], *y = &b->tensors[i];
        assert_string_equal(x->entry->spec.name, y->entry->spec.name);
        bool same = strcmp(x->entry->type_name, y->entry->type_name) == 0 && x->entry->bytes == y->entry->bytes &&
                    ndp_tensor_same_shape(&x->entry->spec, &y->entry->spec) &&
                    memcmp(ndp_safetensors_data(x->file, x->entry), ndp_safetensors_data(y->file, y->entry),
                           x->entry->bytes) == 0;
        assert_true(same || !is_other(s, x->entry->spec.name));
        differ += !same;
    }
    ndp_weights_close(a);
    ndp_weights_close(b);
    return differ;
}

static char *text_of(const char *folder, const char *name) {
    char *path = ndp_format("%s/%s", folder, name), *text;
    size_t size;
    CHECK_OK(ndp_file_read(path, &text, &size));
    free(path);
    return text;
}

/* config.json is complete: only the type of the weights may change. */
static void check_config(const char *one, const char *two) {
    char *path[] = {ndp_format("%s/config.json", one), ndp_format("%s/config.json", two)};
    struct json_object *o[2];
    for (int i = 0; i < 2; i++) {
        CHECK_OK(ndp_json_read(path[i], &o[i]));
        free(path[i]);
    }
    assert_true(json_object_equal(o[0], o[1]));
    json_object_put(o[0]);
    json_object_put(o[1]);
    char *other = text_of(two, "preprocessor_config.json");
    assert_string_equal(other, "{\"size\": 8}");
    free(other);
}

/* ---- runs ---- */

static ndp_config *configure(const char *model, const char *run, bool adapter) {
    ndp_config *c;
    CHECK_OK(ndp_config_create(&c));
    tiny_set(c, "model.path=%s", model);
    tiny_set(c, "data.files=[%s/ids.bin]", place);
    tiny_set(c, "data.validation_files=[%s/ids.bin]", place);
    tiny_set(c, "data.cache_dir=%s/cache", place);
    tiny_set(c, "data.sequence_length=20");
    tiny_set(c, "batch.global_batch_size=2");
    tiny_set(c, "optimizer.lr=0.01");
    tiny_set(c, "parallelism.dp_shard_size=2");
    tiny_set(c, "train.transport=local");
    tiny_set(c, "train.threads=1");
    tiny_set(c, "train.steps=4");
    tiny_set(c, "checkpoint.every=2");
    tiny_set(c, "train.output_dir=%s/%s", place, run);
    if (adapter) {
        tiny_set(c, "adapter.type=lora");
        tiny_set(c, "adapter.r=2");
        tiny_set(c, "adapter.init=random");
        tiny_set(c, "adapter.targets=[\"*.@(self_attn.q|mlp.down)_proj\"]");
        tiny_set(c, "adapter.modules_to_save=[norm]");
    }
    return c;
}

typedef struct job_run {
    ndp_config *config;
    bool resume;
    double loss; /* of the held-out rows at the end */
} job_run;

static void keep_loss(void *user, const ndp_metrics *m, int64_t steps) {
    job_run *r = user;
    (void)steps;
    r->loss = isnan(m->eval_loss) ? r->loss : m->eval_loss;
}

static ndp_status run_job(ndp_world *w, void *arg) {
    job_run *r = arg;
    ndp_train_opts o = NDP_TRAIN_OPTS_INIT;
    o.resume = r->resume, o.resume_from = r->resume ? 2 : -1;
    o.progress = keep_loss, o.user = r;
    return ndp_train(r->config, w, &o);
}

/* Runs, and goes on from the checkpoint in the middle: the loss of both is the same. */
static double train(const char *model, const char *run, bool adapter) {
    char *folder = ndp_format("%s/%s", place, run);
    CHECK_OK(ndp_folder_remove(folder));
    job_run r = {configure(model, run, adapter), false, 0}, again = {r.config, true, 0};
    CHECK_OK(ndp_world_run(r.config, run_job, &r));
    CHECK_OK(ndp_world_run(r.config, run_job, &again));
    assert_true(r.loss > 0 && r.loss == again.loss);
    ndp_config_destroy(r.config);
    free(folder);
    return r.loss;
}

static bool keep_id(void *user, int32_t id, const char *text) {
    (void)text;
    ndp_str_addf(user, "%d ", id);
    return true;
}

/* What a model continues its begin token with; the caller releases it. */
static ndp_str generate(const char *model, const char *adapter) {
    ndp_generate_opts o = NDP_GENERATE_OPTS_INIT;
    ndp_str ids = {0};
    o.model = model, o.adapter = adapter, o.max_tokens = 8, o.threads = 1, o.ids = true;
    CHECK_OK(ndp_generate(&o, keep_id, &ids));
    return ids;
}

static void check_same_texts(const char *one, const char *two, const char *adapter, const char *other) {
    ndp_str a = generate(one, adapter), b = generate(two, other);
    assert_string_equal(a.data, b.data);
    ndp_str_release(&a);
    ndp_str_release(&b);
}

/* A run does what it does with the text alone, and so does all that its export is used for. */
static void texts_are_trained(void **state) {
    const spelling *s = *state;
    char alone[1024], *whole = make_whole(s), *model = ndp_format("%s/run/model", place);
    char *of_step = ndp_format("%s/step", place), *run = ndp_format("%s/run", place);
    int64_t step;
    golden_folder(s->golden, alone, sizeof alone);
    check_same_texts(alone, whole, NULL, NULL);
    double wanted = train(alone, "alone", false);
    assert_true(train(whole, "run", false) == wanted);
    assert_true(compare(s, whole, model) > 10);
    check_config(whole, model);
    CHECK_OK(ndp_folder_remove(of_step));
    CHECK_OK(ndp_checkpoint_export(run, 4, of_step, &step));
    assert_int_equal(compare(s, model, of_step), 0);
    char *trained = ndp_format("%s/alone/model", place);
    check_same_texts(trained, model, NULL, NULL);
    free(trained);
    free(model);
    free(of_step);
    free(run);
    free(whole);
}

/* The names of an adapter are those that PEFT sees, of the text alone. */
static void check_adapter(const spelling *s, const char *folder) {
    ndp_adapter_folder a;
    CHECK_OK(ndp_adapter_folder_open(folder, &a));
    for (int i = 0; i < ndp_weights_count(a.weights); i++) {
        const char *name = ndp_adapter_inner(ndp_weights_at(a.weights, i)->spec.name);
        assert_true(name && strncmp(name, s->base, strlen(s->base)) == 0);
    }
    bool state = strcmp(s->golden, "qwen3-5") == 0; /* whose first layer has no q_proj; two layers have a norm */
    char *pattern = ndp_format("model\\.%s\\..*\\.(%s)",
                               strcmp(s->base, "model.text_model.") == 0 ? "text_model" : "language_model",
                               state ? "down_proj|q_proj" : "q_proj|down_proj");
    char *norm = ndp_format("%snorm", s->base);
    if (strcmp(s->base, "model.") != 0)
        assert_string_equal(a.config.pattern, pattern);
    assert_true(a.config.save.n == 1 || state);
    assert_string_equal(a.config.save.items[a.config.save.n - 1], norm);
    ndp_adapter_folder_close(&a);
    free(pattern);
    free(norm);
}

static ndp_status evaluate_job(ndp_world *w, void *arg) {
    job_run *r = arg;
    ndp_evaluation all;
    NDP_TRY(ndp_evaluate_job(r->config, w, NULL, 0, &all, NULL, NULL));
    r->loss = all.mean_nll;
    return NDP_OK;
}

/* Beside the model. */
static double evaluate(const char *model, const char *adapter) {
    job_run r = {configure(model, "none", false), false, 0};
    CHECK_OK(ndp_config_use_adapter(r.config, adapter));
    CHECK_OK(ndp_world_run(r.config, evaluate_job, &r));
    ndp_config_destroy(r.config);
    return r.loss;
}

static void adapters_are_of_the_text(void **state) {
    const spelling *s = *state;
    char *whole = make_whole(s), *run = ndp_format("%s/run", place), *merged = ndp_format("%s/merged", place);
    int64_t changed;
    double loss = train(whole, "run", true);
    check_adapter(s, run);
    assert_true(evaluate(whole, run) == loss);
    ndp_str ids = generate(whole, run);
    assert_true(ids.length > 0);
    ndp_str_release(&ids);
    CHECK_OK(ndp_folder_remove(merged));
    CHECK_OK(ndp_adapter_merge(whole, run, merged, &changed));
    assert_int_equal(compare(s, whole, merged), changed);
    check_config(whole, merged);
    free(merged);
    free(run);
    free(whole);
}

/* Factors of another part are those of no tensor that is known. */
static void adapters_of_other_parts_are_refused(void **state) {
    char *whole = make_whole(&spellings[1]), *run = ndp_format("%s/run", place), *out = ndp_format("%s/out", place);
    char *adapter = ndp_format("%s/adapter", run);
    const ndp_tensor_spec spec = {.dtype = NDP_F32, .ndim = 2, .shape = {2, 4}};
    int64_t changed;
    (void)state;
    train(whole, "run", true);
    tensor_set *set = set_read(adapter, "adapter_model");
    set_add(set, "base_model.model.model.vision_tower.blocks.0.attn.lora_A.weight", &spec);
    set_write(set, adapter, "adapter_model");
    set_release(set);
    CHECK_FAILS(ndp_adapter_merge(whole, adapter, out, &changed), NDP_ENOTSUP,
                "is of another part of the llava than its text, whose names begin with model.language_model.");
    free(adapter);
    free(out);
    free(run);
    free(whole);
}

/* A head that is tied to the embedding is saved by either name, as both. */
static void tied_heads_are_saved(void **state) {
    char *whole = make_whole(&spellings[4]), *run = ndp_format("%s/run", place);
    ndp_adapter_folder a;
    (void)state;
    CHECK_OK(ndp_folder_remove(run));
    job_run r = {configure(whole, "run", true), false, 0};
    tiny_set(r.config, "adapter.modules_to_save=[lm_head]");
    CHECK_OK(ndp_world_run(r.config, run_job, &r));
    CHECK_OK(ndp_adapter_folder_open(run, &a));
    assert_non_null(ndp_weights_find(a.weights, "base_model.model.model.language_model.embed_tokens.weight"));
    assert_non_null(ndp_weights_find(a.weights, "base_model.model.lm_head.weight"));
    assert_int_equal(a.config.save.n, 2);
    assert_string_equal(a.config.save.items[0], "model.language_model.embed_tokens");
    assert_true(evaluate(whole, run) == r.loss);
    ndp_adapter_folder_close(&a);
    ndp_config_destroy(r.config);
    free(run);
    free(whole);
}

/* ---- what cannot be ---- */

static ndp_status begin_job(ndp_world *w, void *arg) {
    ndp_trainer *t;
    NDP_TRY(ndp_trainer_create(((job_run *)arg)->config, w, &t));
    ndp_trainer_destroy(t);
    return NDP_OK;
}

static void refuse(const char *whole, const char *words) {
    job_run r = {configure(whole, "none", false), false, 0};
    CHECK_FAILS(ndp_world_run(r.config, begin_job, &r), NDP_EFORMAT, words);
    ndp_config_destroy(r.config);
}

/* An index names a tensor of another part that its file lacks. */
static void missing_tensors_are_named(void **state) {
    char *whole = make_whole(&spellings[0]), *index = text_of(whole, "model.safetensors.index.json");
    char *at = strstr(index, "vision_tower.mask");
    (void)state;
    assert_non_null(at);
    memcpy(at, "vision_tower.mush", 17);
    tiny_put(whole, "model.safetensors.index.json", index);
    refuse(whole, "tensor vision_tower.mush should be in ");
    free(index);
    free(whole);
}

/* A folder with both spellings, and one whose text has a tensor too many or too few. */
static void other_texts_are_refused(void **state) {
    static const struct {
        spelling s;
        const char *words;
    } wrong[] = {
        {{"mistral", "llava", false, "model.language_model.", "lm_head.", "language_model.model.", "", NDP_SHARD_BYTES},
         "are one text in two spellings"},
        {{"mistral", "llava", false, "model.language_model.", "lm_head.", "model.language_model.extra.", "",
          NDP_SHARD_BYTES},
         "that the model does not have: model.language_model.extra.blocks.0.attn.weight"},
        {{"mistral", "llava", false, "model.tongue.", "lm_head.", "model.vision_tower.", "", NDP_SHARD_BYTES},
         "missing: model.language_model.embed_tokens.weight"},
        {{"mistral", "llava", false, "model.language_model.", "vision_head.", "vision_tower.", "", NDP_SHARD_BYTES},
         "1 missing: lm_head.weight"},
    };
    (void)state;
    for (int i = 0; i < NDP_COUNT(wrong); i++) {
        char *whole = make_whole(&wrong[i].s);
        refuse(whole, wrong[i].words);
        free(whole);
    }
}

/* An export needs the other parts. */
static void a_folder_that_is_gone_is_missed(void **state) {
    char *whole = make_whole(&spellings[1]), *run = ndp_format("%s/run", place), *out = ndp_format("%s/out", place);
    char *weights = ndp_format("%s/model.safetensors", whole);
    int64_t step;
    (void)state;
    train(whole, "run", false);
    assert_int_equal(unlink(weights), 0);
    CHECK_FAILS(ndp_checkpoint_export(run, 4, out, &step), NDP_EIO, "needs those of the other parts of the llava");
    assert_false(ndp_path_exists(out));
    free(weights);
    free(out);
    free(run);
    free(whole);
}

/* Random weights have no other parts: what a run exports is the text. */
static void random_texts_are_alone(void **state) {
    char *whole = make_whole(&spellings[0]), *run = ndp_format("%s/run", place);
    char *model = ndp_format("%s/model", run);
    ndp_weights *w;
    (void)state;
    CHECK_OK(ndp_folder_remove(run));
    job_run r = {configure(whole, "run", false), false, 0};
    tiny_set(r.config, "model.init=random");
    CHECK_OK(ndp_world_run(r.config, run_job, &r));
    CHECK_OK(ndp_weights_open(model, &w));
    for (int i = 0; i < ndp_weights_count(w); i++)
        assert_false(is_other(&spellings[0], ndp_weights_at(w, i)->spec.name));
    assert_non_null(ndp_weights_find(w, "model.language_model.embed_tokens.weight"));
    ndp_weights_close(w);
    ndp_config_destroy(r.config);
    free(model);
    free(run);
    free(whole);
}

#define OF(i)                                                                                                          \
    {"texts_are_trained", texts_are_trained, NULL, NULL, (void *)&spellings[i]}, {                                     \
        "adapters_are_of_the_text", adapters_are_of_the_text, NULL, NULL, (void *)&spellings[i]                        \
    }

int main(void) {
    const struct CMUnitTest tests[] = {OF(0),
                                       OF(1),
                                       OF(2),
                                       OF(3),
                                       OF(4),
                                       OF(5),
                                       OF(6),
                                       OF(7),
                                       cmocka_unit_test(tied_heads_are_saved),
                                       cmocka_unit_test(adapters_of_other_parts_are_refused),
                                       cmocka_unit_test(missing_tensors_are_named),
                                       cmocka_unit_test(other_texts_are_refused),
                                       cmocka_unit_test(a_folder_that_is_gone_is_missed),
                                       cmocka_unit_test(random_texts_are_alone)};
    return cmocka_run_group_tests(tests, make_place, drop_place);
}
