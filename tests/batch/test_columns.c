/* What a micro-batch shows of its rows: tokens and documents of a data set, samples, dropout's keys, the two documents
 * of a single answer, a prompt beside the answer of another row, and rows that are empty. */
#include "batch/feed.h"
#include "check.h"
#include "job/job.h"

#include "base/text.h"
#include <ftw.h>

enum { LENGTH = 24, MICRO = 4 };

typedef struct fed {
    char folder[32];
    ndp_config *config;
    ndp_job job;
    ndp_job_data data;
    ndp_feed feed;
} fed;

static int remove_one(const char *path, const struct stat *unused, int type, struct FTW *walk) {
    (void)unused, (void)type, (void)walk;
    return remove(path);
}

static ndp_status prepare(void *user, const ndp_strings *files, ndp_token_cache *out) {
    fed *f = user;
    char *path;
    ndp_dataset_options o = ndp_job_data_options(&f->data, files);
    NDP_TRY(ndp_dataset_prepare(&o, &path));
    ndp_status st = ndp_token_cache_open(path, out);
    free(path);
    return st;
}

/* `sets` end with NULL. */
static void open_fed(fed *f, const char *records, const char *const *sets) {
    static const char model[] =
        "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 258, \"hidden_size\": "
        "8, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 1, \"num_key_value_heads\": 1, \"intermediate_size\": 8, "
        "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": true}";
    *f = (fed){.folder = "/tmp/ndp-feed-XXXXXX"};
    assert_non_null(mkdtemp(f->folder));
    char *text = ndp_format("model: {config: %1$s/model.json}\n"
                            "data: {files: [%1$s/records.jsonl], tokenizer: bytes, shuffle: false, cache_dir: %1$s,\n"
                            "       sequence_length: %2$d}\n"
                            "batch: {global_batch_size: 8, micro_batch_size: %3$d}\n"
                            "train: {steps: 4}\n",
                            f->folder, LENGTH, MICRO);
    char *path = ndp_format("%s/model.json", f->folder), *data = ndp_format("%s/records.jsonl", f->folder);
    CHECK_OK(ndp_file_write_atomic(path, model, strlen(model)));
    CHECK_OK(ndp_file_write_atomic(data, records, strlen(records)));
    CHECK_OK(ndp_config_create(&f->config));
    CHECK_OK(ndp_config_parse(f->config, text, strlen(text), "job"));
    for (; *sets; sets++)
        CHECK_OK(ndp_config_set(f->config, *sets));
    CHECK_OK(ndp_job_init(f->config, 1, &f->job));
    CHECK_OK(ndp_job_data_open(&f->job, &f->data));
    CHECK_OK(ndp_job_data_rows(&f->data, false, prepare, f));
    CHECK_OK(ndp_feed_open(&f->feed, &f->job, &f->data, NULL));
    free(text);
    free(path);
    free(data);
}

static void close_fed(fed *f) {
    ndp_feed_release(&f->feed);
    ndp_job_data_close(&f->data);
    ndp_job_release(&f->job);
    ndp_config_destroy(f->config);
    nftw(f->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* The byte of an id of the tokenizer `bytes`; its begin token is '<'. */
static char shown(int32_t id) { return id < 0 ? '-' : id < 256 ? (char)id : '<'; }

/* Reads the text of sample j and that of its labels, with '-' where a token has none, without the padding. */
static void read_sample(const fed *f, int64_t j, char *text, char *labels) {
    const ndp_micro_batch *b = &f->feed.whole;
    int n = 0;
    for (int64_t t = j * LENGTH; t < (j + 1) * LENGTH && b->samples[t] >= 0; t++, n++) {
        assert_int_equal(b->samples[t], j);
        assert_int_equal(b->positions[t], n);
        text[n] = shown(b->tokens[t]);
        labels[n] = shown(b->labels[t]);
    }
    text[n] = labels[n] = '\0';
}

static void check_sample(const fed *f, int64_t j, const char *text, const char *labels) {
    char have[2][LENGTH + 1];
    read_sample(f, j, have[0], have[1]);
    assert_string_equal(have[0], text);
    assert_string_equal(have[1], labels);
}

static const char answers[] = "{\"prompt\": \"abc\", \"completion\": \"ABCDEF\", \"label\": true}\n"
                              "{\"prompt\": \"k\", \"completion\": \"KL\", \"label\": false}\n"
                              "{\"prompt\": \"pqrstuvwxyz\", \"completion\": \"PQRS\", \"label\": true}\n"
                              "{\"prompt\": \"x\", \"chosen\": \"XY\", \"rejected\": \"Z\"}\n";
static const char *const single[] = {"data.format=preference", "loss.name=kto", "data.end_token=none", NULL};

/* The documents of a micro-batch: sample j has number 2 j if its answer is wanted, else 2 j + 1, and what it is
 * compared with stands in the other one's place. */
static void single_answers(void **state) {
    (void)state;
    static const int numbers[] = {0, 3, 4, 6};
    static const double all[] = {-10, -11, -12, -13, -14, -15, -16, -17};
    fed f;
    open_fed(&f, answers, single);
    assert_int_equal(ndp_dataset_rows(f.data.dataset), 5);
    f.feed.references[0] = all, f.feed.point = 2.5;
    ndp_feed_draw(&f.feed, 0, 0, 0, 0);
    CHECK_OK(ndp_feed_load(&f.feed));
    check_sample(&f, 0, "<abcABCDEF", "---ABCDEF-");
    check_sample(&f, 1, "<kKL", "-KL-");
    check_sample(&f, 2, "<pqrstuvwxyzPQRS", "-----------PQRS-");
    check_sample(&f, 3, "<xXY", "-XY-");
    for (int j = 0; j < MICRO; j++) {
        const int32_t *documents = f.feed.whole.documents + (int64_t)j * LENGTH;
        int counted = 0;
        for (int t = 0; t < LENGTH; t++) {
            if (documents[t] < 0)
                continue;
            assert_int_equal(ndp_document_of(documents[t]), numbers[j]);
            assert_true(ndp_document_has(documents[t], NDP_DOCUMENT_ANSWER));
            counted += ndp_document_has(documents[t], NDP_DOCUMENT_PAIR);
        }
        assert_int_equal(counted, 1);
        int document = 2 * j + numbers[j] % 2;
        assert_true(f.feed.whole.reference[numbers[j]] == all[document]);
        assert_true(f.feed.whole.reference[numbers[j] ^ 1] == -2.5);
    }
    close_fed(&f);
}

/* A reward is that of a document's last token, which has no label. */
static void last_tokens(void **state) {
    (void)state;
    static const char pairs[] = "{\"prompt\": \"abc\", \"chosen\": \"DEF\", \"rejected\": \"G\"}\n"
                                "{\"prompt\": \"x\", \"chosen\": \"YZ\", \"rejected\": \"PQRS\"}\n";
    static const char *const sets[] = {"data.format=preference", "loss.name=reward", "data.end_token=none", NULL};
    static const int last[] = {6, 4, 3, 5}; /* behind the begin token */
    fed f;
    open_fed(&f, pairs, sets);
    ndp_feed_draw(&f.feed, 0, 0, 0, 0);
    CHECK_OK(ndp_feed_load(&f.feed));
    check_sample(&f, 0, "<abcDEF", "---DEF-");
    for (int j = 0; j < MICRO; j++)
        for (int t = 0; t < LENGTH; t++) {
            int marks = NDP_DOCUMENT_ANSWER | (j % 2 == 0 ? NDP_DOCUMENT_PAIR : 0);
            assert_int_equal(f.feed.whole.documents[j * LENGTH + t],
                             t == last[j] ? j << NDP_DOCUMENT_MARKS | marks : -1);
        }
    close_fed(&f);
}

/* ORPO has the nll of whole chosen documents: their prompts have labels too, the last token has none. */
static void whole_documents(void **state) {
    (void)state;
    static const char *const sets[] = {"data.format=preference", "loss.name=orpo", "data.end_token=none", NULL};
    fed f;
    open_fed(&f, "{\"prompt\": \"ab\", \"chosen\": \"cd\", \"rejected\": \"e\"}\n", sets);
    ndp_feed_draw(&f.feed, 0, 0, 0, 0);
    CHECK_OK(ndp_feed_load(&f.feed));
    check_sample(&f, 0, "<abcd", "abcd-");
    check_sample(&f, 1, "<abe", "--e-");
    for (int t = 0; t < 2 * LENGTH; t++) {
        int64_t code = f.feed.whole.documents[t];
        assert_true(ndp_document_has(code, NDP_DOCUMENT_NLL) == (t < 4));
        assert_true(ndp_document_has(code, NDP_DOCUMENT_ANSWER) == (t == 2 || t == 3 || t == LENGTH + 2));
        assert_true(ndp_document_has(code, NDP_DOCUMENT_PAIR) == (t == 2));
    }
    close_fed(&f);
}

/* A prompt, and the answer of another row: as much of it as a row has room for, also what its own row has not. */
static void mismatched(void **state) {
    (void)state;
    fed f;
    const char *const sets[] = {single[0], single[1], single[2], "data.sequence_length=14", "batch.micro_batch_size=2",
                                NULL};
    static const char *const rows[][2] = {{"<kABCDEF", "-ABCDEF-"},
                                          {"<pqrstuvwxyzKL", "-----------KL-"},
                                          {"<xPQRS", "-PQRS-"},
                                          {"<xXY", "-XY-"},
                                          {"<abcZ", "---Z-"}};
    char text[LENGTH + 1], labels[LENGTH + 1];
    open_fed(&f, answers, sets);
    for (int64_t i = 0; i < 5; i++) {
        f.feed.rows[0] =
            (ndp_feed_row){.of = f.data.dataset, .row = i, .update = -1, .mismatched = true, .prompt = (i + 1) % 5};
        f.feed.rows[1] = (ndp_feed_row){.of = f.data.dataset, .row = -1, .update = -1};
        CHECK_OK(ndp_feed_load(&f.feed));
        const ndp_micro_batch *b = &f.feed.whole;
        int n = 0;
        for (; n < 14 && b->samples[n] >= 0; n++) {
            text[n] = shown(b->tokens[n]);
            labels[n] = shown(b->labels[n]);
        }
        text[n] = labels[n] = '\0';
        assert_string_equal(text, rows[i][0]);
        assert_string_equal(labels, rows[i][1]);
        for (int t = 14; t < 28; t++)
            assert_true(b->labels[t] == -1 && b->samples[t] == -1 && b->documents[t] == -1 && b->starts[t] == t);
    }
    close_fed(&f);
}

/* A sample is the same in every micro-batch that it can be in. */
static void keys_follow_the_sample(void **state) {
    (void)state;
    static const char *const sets[] = {"data.packing=false", "adapter.type=lora", "adapter.dropout=0.1", NULL};
    static const char texts[] = "{\"text\": \"one two\"}\n{\"text\": \"three\"}\n{\"text\": \"four five six\"}\n";
    fed f;
    int32_t kept[LENGTH];
    open_fed(&f, texts, sets);
    ndp_feed_draw(&f.feed, 1, 8, 0, 0);
    CHECK_OK(ndp_feed_load(&f.feed));
    memcpy(kept, f.feed.whole.keys + 2 * LENGTH, sizeof kept);
    ndp_hash128 before = ndp_feed_hash(&f.feed);
    f.feed.rows[0] = f.feed.rows[2];
    CHECK_OK(ndp_feed_load(&f.feed));
    assert_memory_equal(kept, f.feed.whole.keys, sizeof kept);
    assert_false(ndp_hash128_equal(before, ndp_feed_hash(&f.feed)));
    ndp_feed_draw(&f.feed, 1, 8, 0, 0);
    CHECK_OK(ndp_feed_load(&f.feed));
    assert_true(ndp_hash128_equal(before, ndp_feed_hash(&f.feed)));
    close_fed(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(single_answers), cmocka_unit_test(last_tokens),
                                       cmocka_unit_test(whole_documents), cmocka_unit_test(mismatched),
                                       cmocka_unit_test(keys_follow_the_sample)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
