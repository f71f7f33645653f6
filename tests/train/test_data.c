/* What rows hold is not seen in the losses: packed or one a row, one rank or many. And a real fine-tuning. */
#include "verify/runs.h"

#include "base/json.h"
#include "train/guarded_trainer.h"
#include "train/tiny_model.h"

/* ---- packed rows and rows of one document ---- */

enum { LENGTH = 96, REAL_LENGTH = 512, REAL_DOCUMENTS = 16 };

static const char *const texts[] = {"a",
                                    "the cat sat on the mat",
                                    "and",
                                    "it was a longer evening than most of those that had come before it, they said,",
                                    "b c",
                                    "one more, of some forty or so characters..",
                                    "the end of it",
                                    "z"};

static char *write_texts(const char *folder) {
    ndp_str s = {0};
    for (int i = 0; i < NDP_COUNT(texts); i++)
        ndp_str_addf(&s, "{\"text\": \"%s\"}\n", texts[i]);
    tiny_write(folder, "texts.jsonl", s.data);
    ndp_str_release(&s);
    return ndp_format("%s/texts.jsonl", folder);
}

/* Tokens, labels, positions, document_start; up to the longest row that is tried. */
typedef int32_t row_arrays[4][REAL_LENGTH];

/* The nll of the tokens that `keep` marks in a row, and how many they are. */
static double nll_of(ndp_engine *e, int length, const row_arrays row, const bool *keep, int64_t *tokens) {
    row_arrays a;
    ndp_step_result r;
    memcpy(a, row, sizeof a);
    for (int t = 0; t < length; t++)
        a[1][t] = keep[t] ? row[1][t] : -1;
    CHECK_OK(
        ndp_engine_load(e, 0, &(ndp_micro_batch){.tokens = a[0], .labels = a[1], .positions = a[2], .starts = a[3]}));
    CHECK_OK(ndp_engine_step(e, 0, 0, false, &r));
    *tokens = r.tokens;
    return r.loss * (double)r.tokens;
}

/* The nll of every document, in the order of the data: a document is known by its length. */
static int document_nlls(const ndp_infer *f, ndp_engine *e, const char *path, bool single, double nll[]) {
    ndp_dataset *d;
    int found = 0;
    CHECK_OK(ndp_dataset_open(path, &(ndp_row_opts){.length = LENGTH, .document_mask = true, .single = single}, &d));
    for (int64_t r = 0; r < ndp_dataset_rows(d); r++) {
        row_arrays row;
        int64_t unused;
        CHECK_OK(ndp_dataset_row(d, r, row[0], row[1], row[2], row[3]));
        for (int t = 0; t < LENGTH; t++) {
            bool keep[LENGTH] = {false};
            int n = 1;
            if (row[3][t] != t || row[0][t] != TINY_BOS)
                continue;
            for (int k = t; k < LENGTH && row[3][k] == t; k++, n += row[1][k - 1] >= 0)
                keep[k] = true;
            for (int i = 0; i < NDP_COUNT(texts); i++) {
                ndp_ids ids = {0};
                CHECK_OK(ndp_infer_encode(f, texts[i], strlen(texts[i]), true, &ids));
                if (ids.n == n && !memcmp(ids.items, row[0] + t, (size_t)n * sizeof *ids.items)) {
                    nll[i] = nll_of(e, LENGTH, row, keep, &unused);
                    found++;
                }
                ndp_ids_release(&ids);
            }
        }
    }
    print_message("%s: %lld rows, %.0f%% full\n", single ? "one a row" : "packed", (long long)ndp_dataset_rows(d),
                  100 * ndp_dataset_fill(d));
    ndp_dataset_close(d);
    return found;
}

/* A document sees itself alone, wherever it lies. */
static void packed_documents_have_the_losses_of_single_ones(void **state) {
    const char *folder = *state;
    ndp_infer f;
    ndp_model m;
    char *file = write_texts(folder), *cache;
    double nll[2][NDP_COUNT(texts)] = {{0}};
    CHECK_OK(ndp_infer_init(&f, folder, "cpu", 1));
    ndp_engine *e = tiny_engine(&f, NDP_MODEL_SCORE, LENGTH, &m);
    CHECK_OK(ndp_weights_load(e, folder));
    ndp_dataset_options o = {
        .files = (const char *const[]){file}, .n_files = 1, .cache_dir = folder, .tokenizer = f.tokenizer};
    CHECK_OK(ndp_dataset_prepare(&o, &cache));
    for (int single = 0; single < 2; single++)
        assert_int_equal(document_nlls(&f, e, cache, single, nll[single]), NDP_COUNT(texts));
    for (int i = 0; i < NDP_COUNT(texts); i++) {
        assert_true(nll[1][i] > 0);
        if (fabs(nll[0][i] - nll[1][i]) > 1e-5)
            fail_msg("'%s': nll %.9g packed, %.9g alone", texts[i], nll[0][i], nll[1][i]);
    }
    free(cache);
    free(file);
    ndp_engine_destroy(e);
    ndp_model_release(&m);
    ndp_infer_release(&f);
}

/* The first stories, in a file of their own. */
static char *write_stories(const char *folder, const char *data) {
    char *text;
    size_t size, n = 0;
    CHECK_OK(ndp_file_read(data, &text, &size));
    for (int lines = 0; lines < REAL_DOCUMENTS; n++)
        lines += text[n] == '\n';
    text[n] = '\0';
    tiny_write(folder, "stories.jsonl", text);
    free(text);
    return ndp_format("%s/stories.jsonl", folder);
}

/* Which document of the cache begins at place t of a row; -1: none does. */
static int64_t document_at(const ndp_token_cache *c, const row_arrays row, int t) {
    for (int64_t d = 0; row[3][t] == t && d < c->n_documents; d++) {
        int64_t first = (int64_t)c->offsets[d], n = (int64_t)c->offsets[d + 1] - first, k = 0;
        while (k < n && t + k < REAL_LENGTH && row[0][t + k] == ndp_token_cache_id(c, first + k))
            k++;
        if (k == n || t + k == REAL_LENGTH)
            return d;
    }
    return -1;
}

/* The mean nll of every document that a row holds; of one that is cut, of its beginning. */
static int score_stories(ndp_engine *e, const char *path, bool single, double nll[]) {
    ndp_dataset *d;
    ndp_token_cache c;
    int found = 0;
    CHECK_OK(ndp_token_cache_open(path, &c));
    CHECK_OK(
        ndp_dataset_open(path, &(ndp_row_opts){.length = REAL_LENGTH, .document_mask = true, .single = single}, &d));
    for (int64_t r = 0; r < ndp_dataset_rows(d); r++) {
        row_arrays row;
        CHECK_OK(ndp_dataset_row(d, r, row[0], row[1], row[2], row[3]));
        for (int t = 0; t < REAL_LENGTH; t++) {
            int64_t document = document_at(&c, row, t), tokens;
            bool keep[REAL_LENGTH] = {false};
            if (document < 0)
                continue;
            for (int k = t; k < REAL_LENGTH && row[3][k] == t; k++)
                keep[k] = true;
            double sum = nll_of(e, REAL_LENGTH, row, keep, &tokens);
            nll[document] = sum / (double)tokens;
            found++;
        }
    }
    print_message("%s: %lld rows, %.0f%% full\n", single ? "one a row" : "packed", (long long)ndp_dataset_rows(d),
                  100 * ndp_dataset_fill(d));
    ndp_dataset_close(d);
    ndp_token_cache_close(&c);
    return found;
}

/* Real documents under a trained model. */
static void packed_stories_have_the_losses_of_single_ones(void **state) {
    char *model = reference_path("packed stories", "models/stories15M"),
         *data = reference_path("packed stories", "corpora/tinystories.jsonl");
    if (model && data) {
        ndp_infer f;
        ndp_model m;
        char *file = write_stories(*state, data), *cache;
        double nll[2][REAL_DOCUMENTS] = {{0}}, worst = 0;
        CHECK_OK(ndp_infer_init(&f, model, "cpu", 1));
        ndp_engine *e = tiny_engine(&f, NDP_MODEL_SCORE, REAL_LENGTH, &m);
        CHECK_OK(ndp_weights_load(e, model));
        ndp_dataset_options o = {
            .files = (const char *const[]){file}, .n_files = 1, .cache_dir = *state, .tokenizer = f.tokenizer};
        CHECK_OK(ndp_dataset_prepare(&o, &cache));
        for (int single = 0; single < 2; single++)
            assert_int_equal(score_stories(e, cache, single, nll[single]), REAL_DOCUMENTS);
        for (int i = 0; i < REAL_DOCUMENTS; i++) {
            double off = fabs(nll[0][i] - nll[1][i]);
            worst = fmax(worst, off);
            assert_true(nll[1][i] > 0.1);
            if (off > 1e-5)
                fail_msg("story %d: nll %.9g packed, %.9g alone", i, nll[0][i], nll[1][i]);
        }
        print_message("%d stories: the nll of one is off by %.1e at most\n", REAL_DOCUMENTS, worst);
        free(cache);
        free(file);
        ndp_engine_destroy(e);
        ndp_model_release(&m);
        ndp_infer_release(&f);
    }
    free(model);
    free(data);
}

/* ---- what is held out, on every layout ---- */

typedef struct held {
    double loss[2]; /* before the first step, after the second */
    int64_t tokens, rows;
} held;

typedef struct holding {
    const ndp_config *config;
    held *out;
    bool large; /* a guard would protect hundreds of MB at each kernel */
} holding;

static ndp_status evaluate_rank(ndp_world *w, void *arg) {
    const holding *h = arg;
    ndp_trainer *t;
    ndp_metrics m;
    held o = {0};
    NDP_TRY(h->large ? ndp_trainer_create(h->config, w, &t) : guarded_trainer_create(h->config, w, &t));
    ndp_status st = ndp_trainer_evaluate(t, &o.loss[0], &o.tokens);
    for (int i = 0; i < 2 && st == NDP_OK; i++)
        st = ndp_trainer_step(t, &m);
    if (st == NDP_OK)
        st = ndp_trainer_evaluate(t, &o.loss[1], &o.tokens);
    o.rows = ndp_dataset_rows(t->rank.data.held);
    guarded_trainer_destroy(t);
    if (st == NDP_OK && ndp_world_rank(w) == 0)
        *h->out = o;
    return st;
}

static void put(ndp_config *c, const char *assignment) { CHECK_OK(ndp_config_set(c, assignment)); }

static ndp_config *held_job(const char *folder, const char *precision) {
    ndp_config *c;
    char *file = write_texts(folder);
    CHECK_OK(ndp_config_create(&c));
    CHECK_OK(ndp_config_setf(c, "model.path=%s", folder));
    CHECK_OK(ndp_config_setf(c, "data.files=%s", file));
    CHECK_OK(ndp_config_setf(c, "data.validation_files=%s", file));
    CHECK_OK(ndp_config_setf(c, "data.cache_dir=%s", folder));
    CHECK_OK(ndp_config_setf(c, "precision.compute=%s", precision));
    put(c, "data.sequence_length=20");
    put(c, "batch.global_batch_size=4");
    put(c, "train.transport=local");
    put(c, "train.threads=1");
    put(c, "parallelism.dp_shard_size=1");
    free(file);
    return c;
}

static held evaluate_on(const char *folder, const char *precision, const char *const *sizes, int n) {
    held out = {0};
    ndp_config *c = held_job(folder, precision);
    for (int i = 0; i < n && sizes[i]; i++)
        put(c, sizes[i]);
    if (ndp_world_run(c, evaluate_rank, &(holding){c, &out, false}) != NDP_OK)
        fail_msg("%s: %s", sizes[0], ndp_error_message());
    ndp_config_destroy(c);
    return out;
}

#define P "parallelism."
static const char *const ways[][4] = {
    {P "dp_shard_size=2"},
    {P "dp_replicate_size=2", P "dp_shard_size=2"},
    {P "dp_shard_size=4", "batch.micro_batch_size=1"},
    {P "dp_replicate_size=4", P "reshard_after_forward=false"},
    {P "tp_size=2"},
    {P "tp_size=2", P "tp_sequence_parallel=false", P "dp_shard_size=2"},
    {P "cp_size=2", "batch.micro_batch_size=4"},
    {P "cp_size=2", P "cp_method=all_gather", "train.recompute=block"},
    {P "sp_size=2", "batch.micro_batch_size=2"},
    {P "cp_size=2", P "tp_size=2", P "dp_shard_size=2"},
};

static void the_loss_of_what_is_held_out_is_that_of_one_rank(void **state) {
    static const char *const none[] = {NULL};
    static const struct {
        const char *precision;
        double bound;
    } kinds[] = {{"fp32", 2e-6}, {"bf16", 1e-3}};
    for (int k = 0; k < NDP_COUNT(kinds); k++) {
        double worst = 0;
        held one = evaluate_on(*state, kinds[k].precision, none, 1);
        assert_true(one.rows % 4 != 0); /* the last pass is not full */
        assert_true(one.loss[1] != one.loss[0]);
        for (int w = 0; w < NDP_COUNT(ways); w++) {
            held h = evaluate_on(*state, kinds[k].precision, ways[w], 4);
            assert_int_equal(h.tokens, one.tokens);
            for (int i = 0; i < 2; i++) {
                double off = fabs(h.loss[i] - one.loss[i]) / one.loss[i];
                worst = fmax(worst, off);
                if (!(off <= kinds[k].bound))
                    fail_msg("%s, %s: %.9g, on one rank %.9g", kinds[k].precision, ways[w][0], h.loss[i], one.loss[i]);
            }
        }
        print_message("%s: loss %.4f, then %.4f; layouts are off by %.1e at most\n", kinds[k].precision, one.loss[0],
                      one.loss[1], worst);
    }
}

/* The tokens are those of the files, each once, and their loss is that of `evaluate`. */
static void it_is_what_evaluate_says(void **state) {
    static const char *const none[] = {"data.sequence_length=96"};
    ndp_evaluate_opts o = NDP_EVALUATE_OPTS_INIT;
    ndp_evaluation e;
    char *file = write_texts(*state);
    o.model = *state;
    o.data = (const char *const *)&file, o.data_count = 1;
    CHECK_OK(ndp_evaluate(&o, &e, NULL));
    held h = evaluate_on(*state, "fp32", none, 1);
    assert_int_equal(h.tokens, e.tokens);
    if (fabs(h.loss[0] - e.mean_nll) > 2e-6 * e.mean_nll)
        fail_msg("held out %.9g, evaluate %.9g", h.loss[0], e.mean_nll);
    free(file);
}

/* ---- whole runs, and what stops them ---- */

static void broken_data_are_refused(void **state) {
    static const struct {
        const char *set[2], *says;
    } cases[] = {
        {{"data.chat_template=qwen9", NULL}, "'qwen9' is neither a template"},
        {{"data.overlong=error", NULL}, "texts.jsonl: document 2 has 23 tokens"},
        {{"data.validation_files=[]", "data.validation_fraction=1e-9"}, "the validation set is empty"},
        {{"data.format=messages", NULL}, "texts.jsonl:1: the record has no 'messages'"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        held out = {0};
        ndp_config *c = held_job(*state, "fp32");
        for (int k = 0; k < 2 && cases[i].set[k]; k++)
            put(c, cases[i].set[k]);
        CHECK_FAILS(ndp_world_run(c, evaluate_rank, &(holding){c, &out, false}), i == 3 ? NDP_EFORMAT : NDP_EINVAL,
                    cases[i].says);
        ndp_config_destroy(c);
    }
}

static ndp_status train_rank(ndp_world *w, void *arg) {
    ndp_train_opts o = NDP_TRAIN_OPTS_INIT;
    return ndp_train(arg, w, &o);
}

/* metrics.jsonl has eval_loss every so many steps, and at the last. Half of what is mixed is held out by documents. */
static void metrics_tell_the_loss_of_what_is_held_out(void **state) {
    ndp_config *c = held_job(*state, "fp32");
    char *file = ndp_format("%s/texts.jsonl", (char *)*state),
         *path = ndp_format("%s/run/metrics.jsonl", (char *)*state), *text;
    size_t size;
    int step = 0;
    CHECK_OK(ndp_config_setf(c, "data.files=[%s, %s]", file, file));
    CHECK_OK(ndp_config_setf(c, "train.output_dir=%s/run", (char *)*state));
    put(c, "data.mix=[1, 2.5]");
    put(c, "data.validation_files=[]");
    put(c, "data.validation_fraction=0.5");
    put(c, "train.eval_every=2");
    put(c, "train.steps=5");
    put(c, "parallelism.dp_shard_size=2");
    CHECK_OK(ndp_world_run(c, train_rank, c));
    CHECK_OK(ndp_file_read(path, &text, &size));
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        struct json_object *o, *loss = NULL;
        CHECK_OK(ndp_json_parse(line, (size_t)(end - line), "metrics.jsonl", &o));
        bool told = json_object_object_get_ex(o, "eval_loss", &loss);
        step++;
        assert_int_equal(told, step % 2 == 0 || step == 5);
        assert_true(!told || json_object_get_double(loss) > 0);
        json_object_put(o);
    }
    assert_int_equal(step, 5);
    free(text);
    free(path);
    free(file);
    ndp_config_destroy(c);
}

/* ---- a real fine-tuning ---- */

enum { STEPS = 2 };

static ndp_config *fine_tuning(const char *folder, const char *model, const char *data) {
    ndp_config *c;
    CHECK_OK(ndp_config_create(&c));
    CHECK_OK(ndp_config_setf(c, "model.path=%s", model));
    CHECK_OK(ndp_config_setf(c, "data.files=%s", data));
    CHECK_OK(ndp_config_setf(c, "data.cache_dir=%s", folder));
    put(c, "data.chat_template=plain");
    put(c, "data.sequence_length=256");
    put(c, short_or_all(0, 1) ? "data.validation_fraction=0.005" : "data.validation_fraction=0.001");
    put(c, "batch.global_batch_size=4");
    put(c, "optimizer.lr=1e-4");
    put(c, "schedule.warmup_steps=0");
    put(c, "train.transport=local");
    put(c, "parallelism.dp_shard_size=1");
    return c;
}

/* stories15M on the chats of gsm8k: gradients and losses of two steps on 4 ranks by the bounds of proof 3, and the loss
 * of what is held out before and after. */
static void stories15M_learns_from_chats(void **state) {
    char *model = reference_path("fine-tuning stories15M", "models/stories15M"),
         *data = reference_path("fine-tuning stories15M", "corpora/gsm8k_train_chat.jsonl");
    if (model && data) {
        static const char *const layout[] = {"dp_replicate=2,dp_shard=2"};
        ndp_config *c = fine_tuning(*state, model, data);
        ndp_verify_opts o = NDP_VERIFY_OPTS_INIT;
        ndp_verdict v;
        held one = {0}, four = {0};
        o.layouts = layout, o.n = 1, o.steps = STEPS;
        CHECK_OK(ndp_verify(c, &o, &v));
        if (!v.agrees)
            fail_msg("%s", v.words);
        CHECK_OK(ndp_world_run(c, evaluate_rank, &(holding){c, &one, true}));
        put(c, "parallelism.dp_replicate_size=2");
        put(c, "parallelism.dp_shard_size=2");
        CHECK_OK(ndp_world_run(c, evaluate_rank, &(holding){c, &four, true}));
        print_message("held out: %.6f, then %.6f on one rank; %.6f, then %.6f on four; %lld tokens\n", one.loss[0],
                      one.loss[1], four.loss[0], four.loss[1], (long long)one.tokens);
        assert_int_equal(one.tokens, four.tokens);
        for (int i = 0; i < 2; i++)
            assert_true(fabs(one.loss[i] - four.loss[i]) <= 2e-6 * one.loss[i]);
        ndp_config_destroy(c);
    }
    free(model);
    free(data);
}

#define TINY(test) cmocka_unit_test_setup_teardown(test, tiny_setup, tiny_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TINY(packed_documents_have_the_losses_of_single_ones),
        TINY(packed_stories_have_the_losses_of_single_ones),
        TINY(the_loss_of_what_is_held_out_is_that_of_one_rank),
        TINY(it_is_what_evaluate_says),
        TINY(broken_data_are_refused),
        TINY(metrics_tell_the_loss_of_what_is_held_out),
        TINY(stories15M_learns_from_chats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
