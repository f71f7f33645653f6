/* ndp_evaluate: against the loss of the training engine, document by document, and against llama2.c on trained models.
 */
#include "train/tiny_model.h"

#include "base/json.h"
#include "base/rng.h"
#include "infer/cached.h"
#include <math.h>

static ndp_evaluation evaluate(const char *folder, const char *data, int length, const char *device) {
    ndp_evaluate_opts o = NDP_EVALUATE_OPTS_INIT;
    ndp_evaluation e;
    o.model = folder, o.data = &data, o.data_count = 1, o.sequence_length = length, o.device = device;
    o.threads = 2;
    CHECK_OK(ndp_evaluate(&o, &e, NULL));
    return e;
}

/* ---- a small random model ---- */

enum { DOCUMENTS = 60, LETTERS = 250 };

/* Document i: from 1 to 250 letters; the first is the longest. */
static int letters(int i, char *out) {
    int n = i ? 1 + (int)ndp_rng_below(5, 1, (uint64_t)i, LETTERS) : LETTERS;
    for (int k = 0; k < n; k++)
        out[k] = (char)('a' + ndp_rng_below(5, 2, (uint64_t)(i * LETTERS + k), 26));
    out[n] = '\0';
    return n;
}

static char *write_documents(const char *folder) {
    ndp_str s = {0};
    char text[LETTERS + 1];
    for (int i = 0; i < DOCUMENTS; i++) {
        letters(i, text);
        ndp_str_addf(&s, "{\"text\": \"%s\"}\n", text);
    }
    assert_false(s.failed);
    tiny_write(folder, "documents.jsonl", s.data);
    ndp_str_release(&s);
    return ndp_format("%s/documents.jsonl", folder);
}

/* One document in the training engine: tokens, then each token's successor as its label. */
static void train_loss(ndp_engine *e, int64_t rows, const int32_t *ids, int64_t n, ndp_step_result *out) {
    int32_t labels[LETTERS + 1] = {0};
    assert_in_range(n, 1, LETTERS + 1);
    assert_in_range(n, 1, rows);
    for (int64_t t = 0; t < n; t++)
        labels[t] = t + 1 < n ? ids[t + 1] : -1;
    CHECK_OK(ndp_engine_load(e, 0, &(ndp_micro_batch){.tokens = ids, .labels = labels, .rows = n}));
    CHECK_OK(ndp_engine_step(e, 0, 0, false, out));
}

/* What evaluate must find: every document alone in the training engine, a long one in windows that share a token. */
static ndp_evaluation expected(const char *folder, int length, bool bos) {
    ndp_infer f;
    ndp_model m;
    ndp_evaluation sum = {0};
    CHECK_OK(ndp_infer_init(&f, folder, "cpu", 1));
    ndp_engine *e = tiny_engine(&f, NDP_MODEL_TRAIN, length, &m);
    CHECK_OK(ndp_weights_load(e, folder));
    for (int i = 0; i < DOCUMENTS; i++) {
        char text[LETTERS + 1];
        int32_t ids[LETTERS + 1] = {TINY_BOS};
        int n = letters(i, text);
        for (int k = 0; k < n; k++)
            ids[k + bos] = text[k];
        n += bos;
        for (int at = 0; at == 0 || at + 1 < n; at += length - 1) {
            ndp_step_result r;
            train_loss(e, length, ids + at, n - at < length ? n - at : length, &r);
            sum.mean_nll += r.loss * (double)r.tokens;
            sum.tokens += r.tokens;
        }
        sum.documents++;
        sum.divided += n > length;
    }
    sum.mean_nll /= (double)sum.tokens;
    ndp_engine_destroy(e);
    ndp_model_release(&m);
    ndp_infer_release(&f);
    return sum;
}

static void check_same(ndp_evaluation got, ndp_evaluation want) {
    assert_int_equal(got.tokens, want.tokens);
    assert_int_equal(got.documents, want.documents);
    assert_int_equal(got.divided, want.divided);
    if (!(fabs(got.mean_nll - want.mean_nll) <= 2e-6 * want.mean_nll))
        fail_msg("mean nll %.9f, expected %.9f", got.mean_nll, want.mean_nll);
}

static void equals_the_training_loss(void **state) {
    char *data = write_documents(*state);
    check_same(evaluate(*state, data, 0, "cpu"), expected(*state, TINY_LONGEST, true));
    check_same(evaluate(*state, data, 37, "cpu"), expected(*state, 37, true));
    check_same(evaluate(*state, data, 2, "cpu"), expected(*state, 2, true));
    check_same(evaluate(*state, data, 61, "ref"), expected(*state, 61, true));
    free(data);
}

typedef struct summing {
    const int32_t *ids;
    double nll;
} summing;

static void sum_nll(void *user, int64_t position, const float *logits) {
    summing *s = user;
    double sum = 0;
    for (int i = 0; i < TINY_VOCAB; i++)
        sum += exp((double)logits[i]);
    s->nll += log(sum) - (double)logits[s->ids[position + 1]];
}

/* The mean nll of a text over a cache that has room for all of it, in chunks of 64. */
static double cached_nll(const char *folder, const char *text, size_t n) {
    ndp_infer f;
    ndp_ids ids = {0};
    ndp_cached model;
    CHECK_OK(ndp_infer_init(&f, folder, "cpu", 2));
    CHECK_OK(ndp_infer_encode(&f, text, n, true, &ids));
    summing s = {.ids = ids.items};
    int64_t predictions = ids.n - 1;
    CHECK_OK(ndp_cached_init(&model, &f, 1, predictions, 64, ""));
    CHECK_OK(ndp_cached_feed(&model, 0, ids.items, predictions, sum_nll, &s));
    ndp_cached_release(&model);
    ndp_ids_release(&ids);
    ndp_infer_release(&f);
    return s.nll / (double)predictions;
}

/* longrope's angles depend on a document's own length, not on that of its neighbours. */
static void longrope_by_document(void **state) {
    static const char scaling[] = ", \"rope_scaling\": {\"rope_type\": \"longrope\", \"factor\": 4, "
                                  "\"original_max_position_embeddings\": 40, \"short_factor\": [1, 1, 1], "
                                  "\"long_factor\": [1, 4, 9]}}";
    char *config = ndp_format(tiny_config, "null"), text[LETTERS + 1];
    letters(0, text);
    char *longer = ndp_format("%.*s%s", (int)strlen(config) - 1, config, scaling);
    char *both = ndp_format("{\"text\": \"%.30s\"}\n{\"text\": \"%.90s\"}\n", text, text);
    tiny_write(*state, "config.json", longer);
    ndp_evaluation one[2], together;
    for (int i = 0; i < 2; i++) {
        char *alone = ndp_format("{\"text\": \"%.*s\"}\n", i ? 90 : 30, text),
             *path = ndp_format("%s/alone.jsonl", (char *)*state);
        tiny_write(*state, "alone.jsonl", alone);
        one[i] = evaluate(*state, path, 0, "cpu");
        assert_true(fabs(cached_nll(*state, text, i ? 90 : 30) - one[i].mean_nll) < 1e-5);
        free(alone), free(path);
    }
    tiny_write(*state, "both.jsonl", both);
    char *path = ndp_format("%s/both.jsonl", (char *)*state);
    together = evaluate(*state, path, 0, "cpu");
    double sum = one[0].mean_nll * (double)one[0].tokens + one[1].mean_nll * (double)one[1].tokens;
    check_same(together, (ndp_evaluation){.mean_nll = sum / 120, .tokens = 120, .documents = 2});
    free(config), free(longer), free(both), free(path);
}

/* A document of one token predicts nothing and is still a document. */
static void without_begin_token(void **state) {
    char *data = write_documents(*state);
    tiny_write_tokenizer(*state, false);
    check_same(evaluate(*state, data, 0, "cpu"), expected(*state, TINY_LONGEST, false));
    free(data);
}

static void weights_of_16_bits(void **state) {
    char *data = write_documents(*state);
    double fp32 = evaluate(*state, data, 0, "cpu").mean_nll;
    tiny_write_weights(*state, 3, NDP_BF16);
    ndp_evaluation bf16 = evaluate(*state, data, 0, "cpu");
    check_same(bf16, expected(*state, TINY_LONGEST, true));
    assert_true(fabs(bf16.mean_nll - fp32) > 1e-6); /* they were rounded */
    free(data);
}

static void text_files(void **state) {
    char *data = write_documents(*state), *path = ndp_format("%s/one.txt", (char *)*state);
    char text[LETTERS + 1];
    letters(0, text);
    tiny_write(*state, "one.txt", text);
    ndp_evaluation e = evaluate(*state, path, 0, "cpu");
    assert_int_equal(e.documents, 1);
    assert_int_equal(e.tokens, LETTERS); /* all, after <s> */
    assert_int_equal(e.divided, 1);
    free(path);
    free(data);
}

/* Each file as if it were alone, and all together; a letter is a byte, of which a token more is predicted without a
 * begin token. */
static void several_files(void **state) {
    char *documents = write_documents(*state), text[LETTERS + 1];
    char *one = ndp_format("%s/one.txt", (char *)*state), *utf8 = ndp_format("%s/utf8.txt", (char *)*state);
    letters(0, text);
    text[100] = '\0';
    tiny_write(*state, "one.txt", text);
    tiny_write(*state, "utf8.txt", "gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80");
    const char *const data[] = {documents, one, utf8};
    ndp_evaluate_opts o = NDP_EVALUATE_OPTS_INIT;
    for (int bos = 1; bos >= 0; bos--) {
        ndp_evaluation all, *files;
        int64_t tokens = 0, bytes = 0;
        double nll = 0;
        tiny_write_tokenizer(*state, bos);
        o.model = *state, o.data = data, o.data_count = 3, o.threads = 2;
        CHECK_OK(ndp_evaluate(&o, &all, &files));
        for (int i = 0; i < 3; i++) {
            assert_string_equal(files[i].name, data[i]);
            check_same(files[i], evaluate(*state, data[i], 0, "cpu"));
            nll += files[i].mean_nll * (double)files[i].tokens;
            tokens += files[i].tokens;
            bytes += files[i].bytes;
        }
        assert_int_equal(all.tokens, tokens);
        assert_int_equal(all.bytes, bytes);
        assert_int_equal(all.documents, DOCUMENTS + 2);
        assert_int_equal(all.divided, files[0].divided);
        assert_true(fabs(all.mean_nll - nll / (double)tokens) < 1e-12);
        assert_int_equal(files[1].bytes, 100 - !bos);
        assert_int_equal(files[2].bytes, 11 - !bos);
        assert_true(fabs(ndp_bits_per_byte(&files[1]) - files[1].mean_nll * (99 + bos) / (99 + bos) / log(2)) < 1e-12);
        free(files);
    }
    free(documents), free(one), free(utf8);
}

/* ---- what is refused ---- */

static ndp_status try(const char *folder, const char *data, int length, const char *device, int threads) {
    ndp_evaluate_opts o = {folder, &data, data != NULL, length, 0, threads, device, NULL, false, 0, NULL};
    ndp_evaluation e = {.tokens = -1};
    ndp_status st = ndp_evaluate(&o, &e, NULL);
    assert_true(st == NDP_OK || e.tokens == -1); /* outputs are set only on success */
    return st;
}

static void bad_input(void **state) {
    const char *folder = *state;
    char *data = write_documents(folder), *empty = ndp_format("%s/empty.jsonl", folder);
    char *blank = ndp_format("%s/blank.jsonl", folder), *zipped = ndp_format("%s/data.zip", folder);
    char *missing = ndp_format("%s/none", folder);
    tiny_write(folder, "empty.jsonl", "");
    tiny_write(folder, "blank.jsonl", "{\"text\": \"\"}\n");
    tiny_write(folder, "data.zip", "PK");
    CHECK_FAILS(try(NULL, data, 0, "cpu", 1), NDP_EINVAL, "no model");
    CHECK_FAILS(try(missing, data, 0, "cpu", 1), NDP_EINVAL, "none is not a folder");
    CHECK_FAILS(try(folder, data, 0, "tpu", 1), NDP_EINVAL, "no device 'tpu'");
    CHECK_FAILS(try(folder, data, 0, NULL, 1), NDP_EINVAL, "no device ''");
    CHECK_FAILS(try(folder, data, 0, "cpu", -1), NDP_EINVAL, "-1 threads");
    CHECK_FAILS(try(folder, NULL, 0, "cpu", 1), NDP_EINVAL, "no data");
    CHECK_FAILS(try(folder, missing, 0, "cpu", 1), NDP_EINVAL, "none");
    CHECK_FAILS(try(folder, empty, 0, "cpu", 1), NDP_EINVAL, "empty.jsonl has no document");
    CHECK_FAILS(try(folder, blank, 0, "cpu", 1), NDP_EINVAL, "blank.jsonl has no document");
    CHECK_FAILS(try(folder, zipped, 0, "cpu", 1), NDP_ENOTSUP, ".zip");
    CHECK_FAILS(try(folder, data, 201, "cpu", 1), NDP_EINVAL,
                "201 is longer than the model's max_position_embeddings 200");
    CHECK_FAILS(try(folder, data, 1, "cpu", 1), NDP_EINVAL, "length of 1");
    CHECK_FAILS(try(folder, data, -5, "cpu", 1), NDP_EINVAL, "length of -5");
    free(data), free(empty), free(blank), free(zipped), free(missing);
}

static void nothing_to_predict(void **state) {
    char *data = ndp_format("%s/short.jsonl", (char *)*state);
    tiny_write(*state, "short.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
    tiny_write_tokenizer(*state, false);
    CHECK_FAILS(try(*state, data, 0, "cpu", 1), NDP_EINVAL, "none of its 2 documents has two tokens");
    free(data);
}

static void remove_from(const char *folder, const char *name) {
    char *path = ndp_format("%s/%s", folder, name);
    assert_int_equal(unlink(path), 0);
    free(path);
}

static void bad_folders(void **state) {
    char *data = write_documents(*state), *small = ndp_format(tiny_config, "null");
    memcpy(strstr(small, "260"), "100", 3); /* the data hold letters up to 122 */
    tiny_write(*state, "config.json", small);
    CHECK_FAILS(try(*state, data, 0, "cpu", 1), NDP_EINVAL, "the model's vocabulary ends at 99");
    tiny_write_config(*state, "null");
    remove_from(*state, "tokenizer.json");
    CHECK_FAILS(try(*state, data, 0, "cpu", 1), NDP_EINVAL, "tokenizer.json");
    remove_from(*state, "model.safetensors");
    CHECK_FAILS(try(*state, data, 0, "cpu", 1), NDP_EIO, "holds neither model.safetensors nor");
    remove_from(*state, "config.json");
    CHECK_FAILS(try(*state, data, 0, "cpu", 1), NDP_EINVAL, "config.json");
    free(small);
    free(data);
}

/* ---- trained models, against llama2.c ---- */

/* One document of a .logits.jsonl, and how far this program is from it. */
typedef struct comparison {
    struct json_object *ids, *nll, *top1;
    const char *name;
    int vocab, document;
    double nll_sum, worst, all; /* all: of all documents */
    int64_t tokens;
} comparison;

static int best_of(const float *logits, int vocab) {
    int best = 0;
    for (int i = 1; i < vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static int64_t at(struct json_object *list, int64_t i) {
    return json_object_get_int64(json_object_array_get_idx(list, (size_t)i));
}

static void compare_position(void *user, int64_t position, const float *logits) {
    comparison *c = user;
    int vocab = c->vocab, best = best_of(logits, vocab), want = (int)at(c->top1, position);
    if (best != want && fabsf(logits[best] - logits[want]) > 1e-4f)
        fail_msg("%s document %d position %lld: the best is %d (%.6f), llama2.c says %d (%.6f)", c->name, c->document,
                 (long long)position, best, (double)logits[best], want, (double)logits[want]);
    if (best != want)
        print_message("%s document %d position %lld: near-tie of %d and %d, %.1e apart\n", c->name, c->document,
                      (long long)position, best, want, (double)fabsf(logits[best] - logits[want]));
    if ((size_t)position + 1 == json_object_array_length(c->ids))
        return;
    double sum = 0, nll;
    for (int i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - (double)logits[best]);
    nll = log(sum) + (double)logits[best] - (double)logits[at(c->ids, position + 1)];
    double off = fabs(nll - json_object_get_double(json_object_array_get_idx(c->nll, (size_t)position)));
    c->worst = off > c->worst ? off : c->worst;
    c->nll_sum += nll;
}

/* All logits of a document through the graphs over a cache: every top1, every nll. */
static void compare_document(const ndp_infer *f, comparison *c, struct json_object *record) {
    struct json_object *text = json_object_object_get(record, "text");
    ndp_ids ids = {0};
    ndp_cached model;
    c->ids = json_object_object_get(record, "ids");
    c->nll = json_object_object_get(record, "nll");
    c->top1 = json_object_object_get(record, "top1");
    CHECK_OK(ndp_infer_encode(f, json_object_get_string(text), (size_t)json_object_get_string_len(text), true, &ids));
    assert_int_equal(ids.n, json_object_array_length(c->ids));
    for (int64_t i = 0; i < ids.n; i++)
        assert_int_equal(ids.items[i], at(c->ids, i));
    c->nll_sum = 0;
    CHECK_OK(ndp_cached_init(&model, f, 1, ids.n, 64, ""));
    CHECK_OK(ndp_cached_feed(&model, 0, ids.items, ids.n, compare_position, c));
    ndp_cached_release(&model);
    double mean = c->nll_sum / (double)(ids.n - 1),
           want = json_object_get_double(json_object_object_get(record, "mean_nll"));
    if (!(fabs(mean - want) <= 1e-4))
        fail_msg("%s document %d: mean nll %.7f, llama2.c says %.7f", c->name, c->document, mean, want);
    c->all += c->nll_sum, c->tokens += ids.n - 1;
    ndp_ids_release(&ids);
}

/* The first `most` documents of the file. */
static void compare_documents(const char *name, const char *folder, const char *path, const char *device, int most) {
    ndp_infer f;
    char *text;
    size_t size;
    CHECK_OK(ndp_infer_init(&f, folder, device, 2));
    CHECK_OK(ndp_file_read(path, &text, &size));
    comparison c = {.name = name, .vocab = (int)f.facts->vocab};
    char *rest = text;
    for (char *line; c.document < most && (line = strsep(&rest, "\n")) && *line; c.document++) {
        struct json_object *record;
        CHECK_OK(ndp_json_parse(line, strlen(line), path, &record));
        compare_document(&f, &c, record);
        json_object_put(record);
    }
    print_message("%s on %s over a cache: %d documents, mean nll %.7f, of a token at most %.1e away\n", name, device,
                  c.document, c.all / (double)c.tokens, c.worst);
    assert_true(c.document > 0 && c.worst < 1e-4);
    free(text);
    ndp_infer_release(&f);
}

/* Paths of a trained model and of what llama2.c says of it; skips the test where they are not. */
static void find_reference(const char *name, char **folder, char **data) {
    char below[64];
    snprintf(below, sizeof below, "models/%s", name);
    *folder = reference_path(name, below);
    snprintf(below, sizeof below, "conformance/models/%s.logits.jsonl", name);
    *data = reference_path(name, below);
    if (*folder && *data)
        return;
    free(*folder);
    free(*data);
    skip();
}

static void against_llama2c(const char *name, double nll, int64_t tokens, int64_t documents) {
    char *folder, *data;
    find_reference(name, &folder, &data);
    ndp_evaluation e = evaluate(folder, data, 0, "cpu");
    print_message("%s: mean nll %.7f over %lld predictions; llama2.c: %.7f\n", name, e.mean_nll, (long long)e.tokens,
                  nll);
    assert_true(fabs(e.mean_nll - nll) <= 1e-4);
    assert_int_equal(e.tokens, tokens);
    assert_int_equal(e.documents, documents);
    compare_documents(name, folder, data, "cpu", (int)documents);
    free(folder);
    free(data);
}

static void stories260K(void **state) {
    (void)state;
    against_llama2c("stories260K", 1.3157987, 8081, 24);
}

static void stories15M(void **state) {
    (void)state;
    against_llama2c("stories15M", 1.1771570, 2341, 12);
}

/* The plain loops are slow: windows of 64 tokens, all positions of two texts. */
static void stories260K_on_ref(void **state) {
    (void)state;
    char *folder, *data;
    find_reference("stories260K", &folder, &data);
    double cpu = evaluate(folder, data, 64, "cpu").mean_nll, ref = evaluate(folder, data, 64, "ref").mean_nll;
    print_message("stories260K, in windows of 64 tokens: mean nll %.7f on cpu, %.7f on ref\n", cpu, ref);
    assert_true(fabs(cpu - ref) <= 2e-6);
    compare_documents("stories260K", folder, data, "ref", 2);
    free(folder);
    free(data);
}

#define TINY(test) cmocka_unit_test_setup_teardown(test, tiny_setup, tiny_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TINY(equals_the_training_loss),
        TINY(longrope_by_document),
        TINY(without_begin_token),
        TINY(weights_of_16_bits),
        TINY(text_files),
        TINY(several_files),
        TINY(bad_input),
        TINY(nothing_to_predict),
        TINY(bad_folders),
        cmocka_unit_test(stories260K),
        cmocka_unit_test(stories15M),
        cmocka_unit_test(stories260K_on_ref),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
