/* The data of a job: the tokenizer of one that names none, the tokens that end its documents, and which rows it opens.
 */
#include "base/text.h"
#include "check.h"
#include "data/sample.h"
#include "job/job_data.h"

#include <stdlib.h>
#include <unistd.h>

enum { BYTES_VOCAB = 258, OTHER_VOCAB = 300, BOS = 7, EOS = 9 };

static int make_folder(void **state) {
    char *folder = strdup("/tmp/ndp-tokenizer-XXXXXX");
    *state = folder;
    return folder && mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state) {
    ndp_status st = ndp_folder_remove(*state);
    free(*state);
    return st == NDP_OK ? 0 : -1;
}

/* A job and its data, opened; `status` says how that went. */
typedef struct opened {
    ndp_config config;
    ndp_job job;
    ndp_job_data data;
    ndp_status status;
} opened;

static void put(const char *folder, const char *name, const char *text) {
    char *path = ndp_format("%s/%s", folder, name);
    CHECK_OK(ndp_file_write_atomic(path, text, strlen(text)));
    free(path);
}

/* `ends`: members of config.json, ", \"eos_token_id\": 9"; `more`: of the job, or NULL. */
static void open_job(const char *folder, int vocab, const char *ends, const char *end_token, const char *more,
                     opened *o) {
    char *text = ndp_format("{\"model_type\": \"llama\", \"vocab_size\": %d, \"hidden_size\": 8, "
                            "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"intermediate_size\": 8, "
                            "\"max_position_embeddings\": 16%s}",
                            vocab, ends);
    put(folder, "config.json", text);
    free(text);
    *o = (opened){.status = NDP_OK};
    CHECK_OK(ndp_config_init(&o->config));
    CHECK_OK(ndp_config_setf(&o->config, "model.config=%s/config.json", folder));
    CHECK_OK(ndp_config_setf(&o->config, "model.init=random"));
    CHECK_OK(ndp_config_setf(&o->config, "data.files=[%s/text.txt]", folder));
    CHECK_OK(ndp_config_setf(&o->config, "data.sequence_length=16"));
    CHECK_OK(ndp_config_setf(&o->config, "data.end_token='%s'", end_token));
    CHECK_OK(ndp_config_setf(&o->config, "train.steps=1"));
    if (more)
        CHECK_OK(ndp_config_set(&o->config, more));
    CHECK_OK(ndp_job_init(&o->config, 1, &o->job));
    o->status = ndp_job_data_open(&o->job, &o->data);
}

static void open_data(const char *folder, int vocab, const char *ends, const char *end_token, opened *o) {
    open_job(folder, vocab, ends, end_token, NULL, o);
}

static void close_data(opened *o) {
    if (o->status == NDP_OK)
        ndp_job_data_close(&o->data);
    ndp_job_release(&o->job);
    ndp_config_release(&o->config);
}

static void a_vocabulary_of_the_size_of_bytes_is_bytes(void **state) {
    opened o;
    open_data(*state, BYTES_VOCAB, "", "auto", &o);
    CHECK_OK(o.status);
    assert_string_equal(o.data.tokenizer_source, "bytes");
    assert_non_null(o.data.tokenizer);
    assert_false(ndp_job_data_ids_only(&o.data));
    assert_int_equal(ndp_tokenizer_vocab_size(o.data.tokenizer), BYTES_VOCAB);
    assert_int_equal(o.data.end_token, ndp_tokenizer_eos(o.data.tokenizer));
    ndp_span bos = ndp_job_data_token_text(&o.data, (int32_t)ndp_tokenizer_bos(o.data.tokenizer)),
             eos = ndp_job_data_token_text(&o.data, o.data.end_token);
    assert_int_equal(strncmp(bos.data, "<bos>", bos.n), 0);
    assert_int_equal(strncmp(eos.data, "<eos>", eos.n), 0);
    assert_int_equal(ndp_job_data_token_text(&o.data, -1).n, 0);
    close_data(&o);
}

static void another_vocabulary_has_ids_alone(void **state) {
    static const struct {
        const char *ends, *end_token;
        int bos, eos; /* -1: none */
    } cases[] = {
        {"", "none", -1, -1},
        {"", "0", 0, 0},
        {"", "299", 299, 299},
        {", \"bos_token_id\": 7, \"eos_token_id\": 9", "auto", BOS, EOS},
        {", \"bos_token_id\": 7, \"eos_token_id\": 9", "none", -1, -1},
        {", \"bos_token_id\": 7, \"eos_token_id\": 9", "5", 5, 5},
        {", \"bos_token_id\": 299, \"eos_token_id\": 300", "auto", 299, -1},
        {", \"bos_token_id\": 300, \"eos_token_id\": 299", "auto", -1, 299},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        opened o;
        open_data(*state, OTHER_VOCAB, cases[i].ends, cases[i].end_token, &o);
        CHECK_OK(o.status);
        assert_string_equal(o.data.tokenizer_source, "");
        assert_true(ndp_job_data_ids_only(&o.data));
        assert_int_equal(ndp_tokenizer_bos(o.data.tokenizer), cases[i].bos);
        assert_int_equal(o.data.end_token, cases[i].eos);
        assert_int_equal(ndp_job_data_token_text(&o.data, EOS).n, 0);
        close_data(&o);
    }
}

static void what_is_no_id_of_the_vocabulary_is_refused(void **state) {
    static const char *const wrong[] = {"300", "-1", "1x", "x", " 1", "99999999999999999999"};
    for (int i = 0; i < NDP_COUNT(wrong); i++) {
        opened o;
        open_data(*state, OTHER_VOCAB, "", wrong[i], &o);
        CHECK_FAILS(o.status, NDP_EINVAL, "there is no tokenizer, so give the id of a token, 0 to 299, auto ");
        close_data(&o);
    }
}

/* ---- rows ---- */

static ndp_status take_tokens(void *user, const ndp_strings *files, ndp_token_cache *out) {
    const ndp_dataset_options o = ndp_job_data_options(user, files);
    return ndp_dataset_sample(&o, out);
}

/* What is opened with `more` in the job: 40 texts, and 3 for held-out rows. */
static void rows_that_are_asked_for(void **state) {
    char *files = ndp_format("data.validation_files=[%s/held.txt]", (char *)*state);
    const struct {
        const char *more;
        bool held_only, rows, held; /* rows, held: are there afterwards */
        int64_t most_held;
    } cases[] = {{NULL, false, true, false, 0},
                 {"data.validation_fraction=0.5", false, true, true, 40},
                 {"data.validation_fraction=0.5", true, false, true, 40},
                 {files, false, true, true, 3},
                 {files, true, false, true, 3}};
    ndp_str text = {0};
    for (int i = 0; i < 40; i++)
        ndp_str_addf(&text, "%stext %d", i ? "\n<|endoftext|>\n" : "", i);
    put(*state, "text.txt", text.data);
    put(*state, "held.txt", "one\n<|endoftext|>\ntwo\n<|endoftext|>\nthree");
    ndp_str_release(&text);
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        opened o;
        open_job(*state, BYTES_VOCAB, "", "auto", cases[i].more, &o);
        CHECK_OK(o.status);
        CHECK_OK(ndp_job_data_rows(&o.data, cases[i].held_only, take_tokens, &o.data));
        assert_int_equal(o.data.dataset != NULL, cases[i].rows);
        assert_int_equal(o.data.held != NULL, cases[i].held);
        if (cases[i].held)
            assert_in_range(ndp_dataset_documents(o.data.held), 1, cases[i].most_held);
        if (cases[i].rows) {
            assert_true(ndp_dataset_rows(o.data.dataset) > 0);
            assert_int_equal(o.data.sampler.rows, ndp_dataset_rows(o.data.dataset));
            assert_int_equal(o.data.steps, 1);
        }
        close_data(&o);
    }
    opened o;
    open_job(*state, BYTES_VOCAB, "", "auto", NULL, &o);
    CHECK_OK(o.status);
    CHECK_FAILS(ndp_job_data_rows(&o.data, true, take_tokens, &o.data), NDP_EINVAL, "there is no held-out data; set ");
    close_data(&o);
    free(files);
}

/* What happened to documents that are longer than a row is said. */
static void long_documents_are_described(void **state) {
    static const char *const cases[][2] = {{"data.overlong=drop", "; 1 document over 16 tokens dropped"},
                                           {"data.overlong=truncate", "; 1 document over 16 tokens truncated"}};
    put(*state, "text.txt", "a text that is longer than sixteen bytes\n<|endoftext|>\nshort");
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        opened o;
        ndp_str said = {0};
        open_job(*state, BYTES_VOCAB, "", "auto", cases[i][0], &o);
        CHECK_OK(o.status);
        CHECK_OK(ndp_job_data_rows(&o.data, false, take_tokens, &o.data));
        ndp_job_data_describe(&o.data, &said);
        if (!strstr(said.data, cases[i][1]))
            fail_msg("no '%s' in: %s", cases[i][1], said.data);
        ndp_str_release(&said);
        close_data(&o);
    }
}

/* Of a long message its beginning is shown. */
static void skipped_records_are_described(void **state) {
    enum { SHOWN = 300 };
    (void)state;
    char message[SHOWN + 2] = "", *want, *names[] = {(char *)"a.jsonl"};
    ndp_token_cache c = {.n_sources = 1};
    ndp_tally next = {0};
    ndp_str said = {0};
    memset(message, 'x', SHOWN + 1);
    CHECK_OK(ndp_tally_add(&next, NDP_TALLY_SKIPPED, "too large", message));
    CHECK_OK(ndp_tally_add(&next, NDP_TALLY_SKIPPED, "too large", NULL));
    CHECK_OK(ndp_tally_merge(&c.tally, &next, 0));
    ndp_job_data_describe_records(&c, &(ndp_strings){names, 1}, &said);
    message[SHOWN] = '\0';
    want = ndp_format("skipped: 2 records of a.jsonl: 2 too large\n  too large: %s\n", message);
    assert_string_equal(said.data, want);
    free(want);
    ndp_str_release(&said);
    ndp_tally_clear(&next);
    ndp_tally_clear(&c.tally);
}

#define FOLDER_TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, drop_folder)

int main(void) {
    const struct CMUnitTest tests[] = {FOLDER_TEST(a_vocabulary_of_the_size_of_bytes_is_bytes),
                                       FOLDER_TEST(another_vocabulary_has_ids_alone),
                                       FOLDER_TEST(what_is_no_id_of_the_vocabulary_is_refused),
                                       FOLDER_TEST(rows_that_are_asked_for),
                                       FOLDER_TEST(long_documents_are_described),
                                       cmocka_unit_test(skipped_records_are_described)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
