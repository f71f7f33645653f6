/* Whole runs of models whose configuration ties the head to the embedding while their weights hold another head:
 * evaluated as transformers does (tests/golden/own-head.json), planned, trained on layouts, saved, resumed, exported
 * and read again. Models of tests/golden, with the embedding's rows in reverse order as the head. */
#include "base/json.h"
#include "job/folder_facts.h"
#include "train/golden.h"
#include "train/guarded_trainer.h"
#include "verify/runs.h"
#include "weights/run_model.h"

typedef struct model {
    const char *name, *layouts[3]; /* in tests/golden; for verify */
    int tp;                        /* divides the heads */
} model;

static const model models[] = {{"llama3-tied", {"dp_shard=2", "tp=2", "dp_shard=2,tp=2"}, 2},
                               {"qwen2", {"dp_shard=2", "tp=2", "dp_shard=2,tp=2"}, 2},
                               {"gemma2", {"dp_shard=2", "tp=2", "dp_shard=2,tp=2"}, 2},
                               {"gpt2", {"dp_shard=2", "tp=3", "dp_shard=2,tp=3"}, 3}};

static const char note[] = "note: tie_word_embeddings is true in config.json, but lm_head.weight differs from the "
                           "embedding: the two are not tied";

static char *base, *documents, *text;
static struct json_object *golden_values;

/* ---- folders ---- */

static struct json_object *member(struct json_object *o, const char *key) {
    struct json_object *value;
    if (!json_object_object_get_ex(o, key, &value))
        fail_msg("own-head.json lacks %s", key);
    return value;
}

static int make_base(void **state) {
    char path[1024];
    ndp_str lines = {0};
    void *folder;
    if (make_folder(&folder) != 0)
        return -1;
    (void)state;
    base = folder;
    CHECK_OK(ndp_json_read(golden_folder("own-head.json", path, sizeof path), &golden_values));
    struct json_object *list = member(golden_values, "documents");
    for (size_t i = 0; i < json_object_array_length(list); i++)
        ndp_str_addf(&lines, "{\"text\": \"%s\"}\n", json_object_get_string(json_object_array_get_idx(list, i)));
    documents = ndp_format("%s/documents.jsonl", base);
    CHECK_OK(ndp_file_write_atomic(documents, lines.data, lines.length));
    ndp_str_release(&lines);
    text = write_corpus(base, "corpus.jsonl", 60, 200, 0);
    return 0;
}

static int drop_base(void **state) {
    (void)state;
    void *folder = base;
    json_object_put(golden_values);
    free(documents);
    free(text);
    return drop_folder(&folder);
}

/* A model's tensors and a head, as fp32, to be written as what they were. */
typedef struct tensors {
    ndp_tensor_spec specs[64];
    ndp_file_piece pieces[64];
    int n;
} tensors;

static float *add(tensors *t, const ndp_tensor_spec *spec, int64_t elements) {
    float *values = calloc((size_t)elements, sizeof *values);
    assert_true(values && t->n < NDP_COUNT(t->specs));
    t->specs[t->n] = *spec;
    t->pieces[t->n] = (ndp_file_piece){t->n, 0, elements, values, NDP_F32, 1, NULL, 0};
    t->n++;
    return values;
}

static void add_head(tensors *t, const ndp_tensor_spec *embedding, const float *values, bool reverse) {
    int64_t rows = embedding->shape[0], columns = embedding->shape[1];
    ndp_tensor_spec spec = *embedding;
    spec.name = "lm_head.weight";
    float *head = add(t, &spec, rows * columns);
    for (int64_t r = 0; r < rows; r++)
        memcpy(head + r * columns, values + (reverse ? rows - 1 - r : r) * columns, (size_t)columns * sizeof *head);
}

static bool is_embedding(const char *name) {
    return strcmp(name, "model.embed_tokens.weight") == 0 || strcmp(name, "wte.weight") == 0;
}

static void write_weights(const char *from, const char *folder, bool reverse) {
    ndp_weights *w;
    tensors *t = calloc(1, sizeof *t);
    CHECK_OK(ndp_weights_open(from, &w));
    for (int i = 0; i < ndp_weights_count(w); i++) {
        const ndp_tensor_entry *e = ndp_weights_at(w, i);
        float *values = add(t, &e->spec, e->elements);
        CHECK_OK(ndp_weights_read(w, e->spec.name, 0, e->elements, values, NDP_F32, true));
        if (is_embedding(e->spec.name))
            add_head(t, &e->spec, values, reverse);
    }
    CHECK_OK(ndp_weights_save(NULL, NULL, folder, t->specs, t->n, t->pieces, t->n, NDP_SHARD_BYTES));
    for (int i = 0; i < t->n; i++)
        free((void *)t->pieces[i].data);
    free(t);
    ndp_weights_close(w);
}

/* The model with a head: another one than the embedding (reverse), or the same. The caller frees the path. */
static char *make_model(const model *m, bool reverse) {
    char from[1024], *config, *path, *folder = ndp_format("%s/%s-%s", base, m->name, reverse ? "own" : "equal");
    size_t size;
    golden_folder(m->name, from, sizeof from);
    CHECK_OK(ndp_folder_create(folder));
    write_weights(from, folder, reverse);
    free(write_tokenizer(folder));
    path = ndp_format("%s/config.json", from);
    CHECK_OK(ndp_file_read(path, &config, &size));
    free(path);
    path = ndp_format("%s/config.json", folder);
    CHECK_OK(ndp_file_write_atomic(path, config, size));
    free(path);
    free(config);
    return folder;
}

/* ---- evaluation ---- */

static double evaluate(const char *folder) {
    ndp_evaluate_opts o = NDP_EVALUATE_OPTS_INIT;
    ndp_evaluation e;
    o.model = folder, o.data = (const char *const[]){documents}, o.data_count = 1, o.threads = 1;
    CHECK_OK(ndp_evaluate(&o, &e, NULL));
    return e.mean_nll;
}

/* Both heads as transformers has them, whose distance is far above the bound. */
static void as_transformers(void **state) {
    const model *m = *state;
    struct json_object *of = member(member(golden_values, "mean_nll"), m->name);
    for (int reverse = 0; reverse < 2; reverse++) {
        char *folder = make_model(m, reverse);
        double want = json_object_get_double(member(of, reverse ? "own" : "equal")), have = evaluate(folder);
        if (!(fabs(have - want) <= 2e-6 * want))
            fail_msg("%s, %s head: mean nll %.9f, transformers has %.9f", m->name, reverse ? "another" : "the same",
                     have, want);
        free(folder);
    }
}

/* ---- training ---- */

static ndp_config *job(const char *folder, int shard, int tp) {
    ndp_config *c;
    CHECK_OK(ndp_config_create(&c));
    set(c, "model.path=%s", folder);
    set(c, "data.files=[%s]", text);
    set(c, "data.cache_dir=%s/cache", base);
    set(c, "data.sequence_length=24");
    set(c, "parallelism.dp_shard_size=%d", shard);
    set(c, "parallelism.tp_size=%d", tp);
    set(c, "batch.global_batch_size=4");
    set(c, "train.output_dir=%s/run", folder);
    set(c, "train.transport=local");
    set(c, "train.threads=1");
    return c;
}

/* The plan counts the head, and says why. */
static void planned(void **state) {
    const model *m = *state;
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    int64_t parameters[2], taken[2];
    for (int reverse = 0; reverse < 2; reverse++) {
        char *plan, *folder = make_model(m, reverse);
        ndp_model_spec s;
        CHECK_OK(ndp_folder_facts(folder, NULL, &s));
        int64_t head = reverse ? s.vocab * s.hidden : 0;
        parameters[reverse] = s.parameters - head;
        ndp_model_spec_release(&s);
        ndp_config *c = job(folder, 1, 1);
        CHECK_OK(ndp_plan(c, &o, &plan));
        assert_true((strstr(plan, note) != NULL) == reverse);
        long long bytes;
        assert_int_equal(sscanf(strstr(plan, "\n  taken"), " taken %*s %*s %lld bytes", &bytes), 1);
        taken[reverse] = bytes - head * 4 * (int64_t)sizeof(float);
        ndp_config_destroy(c);
        free(plan);
        free(folder);
    }
    assert_int_equal(parameters[0], parameters[1]);
    assert_true(llabs(taken[0] - taken[1]) <= 4096); /* weight, gradient, two states; blocks are rounded up */
}

static void hear(void *user, const char *line) { ndp_str_addf(user, "%s\n", line); }

static void layouts_agree(void **state) {
    const model *m = *state;
    char *folder = make_model(m, true);
    ndp_config *c = job(folder, 1, 1);
    ndp_str lines = {0};
    ndp_verdict v[NDP_COUNT(m->layouts)];
    ndp_verify_opts o = NDP_VERIFY_OPTS_INIT;
    o.layouts = m->layouts, o.n = NDP_COUNT(m->layouts), o.steps = 3, o.say = hear, o.user = &lines;
    CHECK_OK(ndp_verify(c, &o, v));
    for (int i = 0; i < o.n; i++)
        if (!v[i].agrees)
            fail_msg("%s, %s: %s", m->name, m->layouts[i], v[i].words);
    assert_non_null(strstr(lines.data, note));
    ndp_str_release(&lines);
    ndp_config_destroy(c);
    free(folder);
}

/* ---- export ---- */

static ndp_status export_rank(ndp_world *w, void *arg) {
    ndp_trainer *t;
    NDP_TRY(guarded_trainer_create(arg, w, &t));
    ndp_status st = ndp_trainer_export(t, NULL);
    guarded_trainer_destroy(t);
    return st;
}

/* The head, and what ties it, in an exported folder. */
static void check_exported(const char *folder, bool own) {
    char *path = ndp_format("%s/config.json", folder);
    struct json_object *config, *tie = NULL;
    ndp_weights *w;
    CHECK_OK(ndp_json_read(path, &config));
    bool says = json_object_object_get_ex(config, "tie_word_embeddings", &tie);
    assert_true(own ? says && !json_object_get_boolean(tie) : !says || json_object_get_boolean(tie));
    CHECK_OK(ndp_weights_open(folder, &w));
    assert_true((ndp_weights_find(w, "lm_head.weight") != NULL) == own);
    ndp_weights_close(w);
    json_object_put(config);
    free(path);
}

/* Exported by several ranks before any step and read again: the same model to the last bit, untied for all readers. */
static void exported(void **state) {
    const model *m = *state;
    for (int reverse = 0; reverse < 2; reverse++) {
        char *folder = make_model(m, reverse), *out = ndp_format("%s/run/model", folder);
        ndp_model_spec s;
        ndp_config *c = job(folder, 2, m->tp);
        CHECK_OK(ndp_world_run(c, export_rank, c));
        check_exported(out, reverse);
        CHECK_OK(ndp_folder_facts(out, NULL, &s));
        assert_true((s.tie[0][0] == 0) == reverse && !s.own_head);
        ndp_model_spec_release(&s);
        assert_true(evaluate(out) == evaluate(folder));
        ndp_config_destroy(c);
        free(out);
        free(folder);
    }
}

/* ---- checkpoints ---- */

enum { STEPS = 2 };

typedef struct part {
    const ndp_config *config;
    int first;
    double loss[2 * STEPS];
} part;

static ndp_status run_part(ndp_world *w, void *arg) {
    part *p = arg;
    ndp_trainer *t;
    ndp_metrics m;
    int64_t step = 0;
    NDP_TRY(guarded_trainer_create(p->config, w, &t));
    ndp_status st = p->first ? ndp_trainer_resume(t, NULL, &step) : NDP_OK;
    for (int s = p->first; s < 2 * STEPS && st == NDP_OK; s++) {
        st = ndp_trainer_step(t, &m);
        if (ndp_world_rank(w) == 0)
            p->loss[s] = m.loss;
        if (s == STEPS - 1 && st == NDP_OK)
            st = ndp_trainer_save(t, NULL);
    }
    guarded_trainer_destroy(t);
    return st;
}

/* The model of the run's checkpoint also has the head. */
static void check_model_of_run(const ndp_config *c, const char *folder) {
    char *run = ndp_format("%s/run", folder), *path = ndp_format("%s/job.yaml", run);
    ndp_str text_of_job = {0};
    ndp_run_model *m;
    assert_false(ndp_is_run_folder(run));
    CHECK_OK(ndp_config_write(c, &text_of_job));
    CHECK_OK(ndp_file_write_atomic(path, text_of_job.data, text_of_job.length));
    ndp_str_release(&text_of_job);
    assert_true(ndp_is_run_folder(run) && !ndp_is_run_folder(folder));
    CHECK_OK(ndp_run_model_open(run, 0, 1, NULL, &m));
    const ndp_facts *f = m->job.spec.facts;
    assert_true(m->job.spec.own_head && !f->tied && m->step == STEPS);
    ndp_run_model_close(m);
    free(path);
    free(run);
}

/* A resumed run has the head of the checkpoint. Where the folder has changed meanwhile, so that it is tied now, the run
 * ends with the name of the fact. */
static void resumed(void **state) {
    const model *m = *state;
    char *folder = make_model(m, true), from[1024];
    ndp_config *c = job(folder, 2, 1);
    part whole = {.config = c}, rest = {.config = c, .first = STEPS};
    CHECK_OK(ndp_world_run(c, run_part, &whole));
    CHECK_OK(ndp_world_run(c, run_part, &rest));
    for (int s = STEPS; s < 2 * STEPS; s++)
        assert_true(rest.loss[s] == whole.loss[s]);
    check_model_of_run(c, folder);
    write_weights(golden_folder(m->name, from, sizeof from), folder, false);
    CHECK_FAILS(ndp_world_run(c, run_part, &rest), NDP_EINVAL,
                "model.tie_word_embeddings was false, now it is true, which cannot be accepted");
    ndp_config_destroy(c);
    free(folder);
}

/* Random weights are not those of the folder, so its head decides nothing. */
static void random_weights(void **state) {
    char *plan, *folder = make_model(*state, true);
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    ndp_config *c = job(folder, 1, 1);
    set(c, "model.init=random");
    CHECK_OK(ndp_plan(c, &o, &plan));
    assert_null(strstr(plan, "note:"));
    free(plan);
    ndp_config_destroy(c);
    free(folder);
}

#define OF(i)                                                                                                          \
    {"as_transformers", as_transformers, NULL, NULL, (void *)&models[i]},                                              \
        {"planned", planned, NULL, NULL, (void *)&models[i]},                                                          \
        {"layouts_agree", layouts_agree, NULL, NULL, (void *)&models[i]},                                              \
        {"exported", exported, NULL, NULL, (void *)&models[i]}, {                                                      \
        "resumed", resumed, NULL, NULL, (void *)&models[i]                                                             \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        OF(0), OF(1), OF(2), OF(3), {"random_weights", random_weights, NULL, NULL, (void *)&models[0]}};
    return cmocka_run_group_tests(tests, make_base, drop_base);
}
