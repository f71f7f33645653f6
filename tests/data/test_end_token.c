/* The token that ends a text: where it is added, and where not. */
#include "data/cache/corpus.h"
#include "data/corpus/encode.h"
#include "data/packing.h"

#include "data/cache_words.h"
#include "data/folder.h"
#include "data/small_tokenizer.h"

static const char NAMES_BOTH[] = "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}";
static const int32_t END = 257, OTHER = 258;

/* The cache of one file with these contents, in words, of a tokenizer that adds `after` to a text. */
static void check(const char *folder, const char *name, const char *contents, const char *after, const int32_t *end,
                  const char *want) {
    char *file = write_file(folder, name, contents, strlen(contents)), *path;
    ndp_tokenizer *t = small_tokenizer_of(folder, after, NAMES_BOTH);
    ndp_chat chat;
    ndp_token_cache c;
    CHECK_OK(ndp_chat_init(&chat, t, folder, "plain", NULL));
    const ndp_dataset_options o = {.files = (const char *const[]){file},
                                   .n_files = 1,
                                   .format = {.chat = &chat},
                                   .cache_dir = folder,
                                   .tokenizer = t,
                                   .end_token = end};
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    CHECK_OK(ndp_token_cache_open(path, &c));
    char *words = cache_words(&c);
    assert_string_equal(words, want);
    ndp_token_cache_close(&c);
    ndp_chat_release(&chat);
    ndp_tokenizer_destroy(t);
    free(words);
    free(path);
    free(file);
}

static void texts_end_with_it(void **state) {
    check(*state, "a.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"xy\"}\n", NULL, &END, "[<s>ab</s>] [<s>xy</s>] | 2");
    check(*state, "a.jsonl", "{\"text\":\"ab\"}\n", NULL, &OTHER, "[<s>ab<|end|>] | 1");
    check(*state, "a.jsonl", "{\"text\":\"ab\"}\n", NULL, NULL, "[<s>ab] | 1");
    check(*state, "a.txt", "ab\n<|endoftext|>\nb\n", NULL, &END, "[<s>ab</s>] [<s>b</s>] | 2");
    check(*state, "a.txt", "ab\n", NULL, &END, "[<s>ab/</s>] | 1");
    check(*state, "a.json", "[{\"text\":\"a\"}]", NULL, &END, "[<s>a</s>] | 1");
}

static void it_is_not_doubled(void **state) {
    /* The text ends with it: as a token; as a text that the tokenizer reads as other tokens; not before its end. */
    check(*state, "a.jsonl", "{\"text\":\"ab</s>\"}\n", NULL, &END, "[<s>ab</s>] | 1");
    check(*state, "a.jsonl", "{\"text\":\"a</s>b\"}\n", NULL, &END, "[<s>a</s>b</s>] | 1");
    check(*state, "a.jsonl", "{\"text\":\"a</s>\\n\"}\n", NULL, &END, "[<s>a</s>/</s>] | 1");
    /* The tokenizer adds it, or adds another token after the text. */
    check(*state, "a.jsonl", "{\"text\":\"ab\"}\n", "</s>", &END, "[<s>ab</s>] | 1");
    check(*state, "a.jsonl", "{\"text\":\"ab\"}\n", "<|end|>", &END, "[<s>ab<|end|></s>] | 1");
    check(*state, "a.jsonl", "{\"text\":\"ab</s>\"}\n", "<|end|>", &END, "[<s>ab</s><|end|>] | 1");
    /* An empty text has none: it is not a document that ended. */
    check(*state, "a.jsonl", "{\"text\":\"\"}\n{\"text\":\"b\"}\n", NULL, &END, "[<s>b</s>] | 1");
}

/* A token that is only in the vocabulary is not recognised in a text, but stands there. */
static void a_token_that_is_written_out_counts(void **state) {
    static const char JSON[] = "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":0,\"<\":1,\"/\":2,\"s\":3,"
                               "\">\":4,\"</s>\":5}}}";
    (void)state;
    ndp_tokenizer *t;
    ndp_ids ids = {0};
    const int32_t end = 5;
    CHECK_OK(ndp_tokenizer_parse(JSON, sizeof JSON - 1, "test", &t));
    CHECK_OK(ndp_encode_document(t, &(ndp_document){.text = "a</s>", .n = 5}, &end, &ids, NULL, NULL));
    assert_int_equal(ids.n, 5);
    ids.n = 0;
    CHECK_OK(ndp_encode_document(t, &(ndp_document){.text = "a</s>a", .n = 6}, &end, &ids, NULL, NULL));
    assert_int_equal(ids.n, 7);
    assert_int_equal(ids.items[6], 5);
    ndp_ids_release(&ids);
    ndp_tokenizer_destroy(t);
}

static void conversations_and_ids_are_left_alone(void **state) {
    check(*state, "a.jsonl",
          "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]}\n", NULL,
          &OTHER, "<s>a/[b</s>] | 1");
    static const char ids[] = {0, 1, 97, 0, 98, 0, 0};
    char *file = write_file(*state, "a.bin", ids, 6), *path, *words;
    ndp_tokenizer *t = small_tokenizer(*state);
    ndp_token_cache c;
    const ndp_dataset_options o = {
        .files = (const char *const[]){file}, .n_files = 1, .cache_dir = *state, .tokenizer = t, .end_token = &END};
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    CHECK_OK(ndp_token_cache_open(path, &c));
    words = cache_words(&c);
    assert_string_equal(words, "[<s>ab] | 1");
    assert_int_equal(c.n_texts, 0);
    ndp_token_cache_close(&c);
    ndp_tokenizer_destroy(t);
    free(words);
    free(path);
    free(file);
}

/* A document of 11 tokens and its end in rows of 4: the end is a label once, after the last piece. */
static void a_document_that_is_cut_has_it_once(void **state) {
    char *file = write_file(*state, "long.txt", "abcdefghij", 10), *path;
    ndp_tokenizer *t = small_tokenizer(*state);
    ndp_dataset *d;
    int ends = 0;
    const ndp_dataset_options o = {
        .files = (const char *const[]){file}, .n_files = 1, .cache_dir = *state, .tokenizer = t, .end_token = &END};
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    CHECK_OK(ndp_dataset_open(path, &(ndp_row_opts){.length = 4, .document_mask = true}, &d));
    assert_int_equal(ndp_dataset_labels(d), 11);
    for (int64_t r = 0; r < ndp_dataset_rows(d); r++) {
        int32_t rows[4][4];
        CHECK_OK(ndp_dataset_row(d, r, rows[0], rows[1], rows[2], rows[3]));
        for (int i = 0; i < 4; i++) {
            ends += rows[1][i] == END;
            assert_true(rows[1][i] != END || rows[0][i] == 'j');
        }
    }
    assert_int_equal(ends, 1);
    ndp_dataset_close(d);
    ndp_tokenizer_destroy(t);
    free(path);
    free(file);
}

static ndp_hash128 key_of(const char *file, const ndp_tokenizer *t, const int32_t *end) {
    ndp_corpus c;
    ndp_hash128 key, content;
    const ndp_dataset_options o = {
        .files = (const char *const[]){file}, .n_files = 1, .tokenizer = t, .threads = 1, .end_token = end};
    CHECK_OK(ndp_corpus_open(&o, &c));
    CHECK_OK(ndp_corpus_key(&c, &o, &key, &content));
    ndp_corpus_close(&c);
    return key;
}

static void caches_are_of_one_token(void **state) {
    char *file = write_file(*state, "a.txt", "ab", 2);
    ndp_tokenizer *t = small_tokenizer(*state);
    const ndp_hash128 keys[] = {key_of(file, t, NULL), key_of(file, t, &END), key_of(file, t, &OTHER)};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < i; k++)
            assert_memory_not_equal(&keys[i], &keys[k], sizeof keys[i]);
    ndp_tokenizer_destroy(t);
    free(file);
}

/* Which token a tokenizer names as its end: tokenizer_config.json, else the template's; older folders name it in
 * special_tokens_map.json. */
static void tokenizers_name_their_end(void **state) {
    static const struct {
        const char *after, *config, *special;
        int32_t eos;
    } cases[] = {
        {NULL, "{}", NULL, -1},
        {"<|end|>", "{}", NULL, 258},
        {"<|end|>", "{\"eos_token\":\"</s>\"}", NULL, 257},
        {"<|end|>", "{\"eos_token\":null}", NULL, 258},
        {NULL, "{\"eos_token\":{\"content\":\"</s>\"}}", NULL, 257},
        {NULL, "{}", "{\"eos_token\":\"</s>\"}", 257},
        {NULL, "{\"eos_token\":\"<|end|>\"}", "{\"eos_token\":{\"content\":\"</s>\",\"lstrip\":false}}", 257},
        {NULL, "{\"eos_token\":\"<|end|>\",\"added_tokens_decoder\":{}}", "{\"eos_token\":\"</s>\"}", 258},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        char *special = ndp_format("%s/special_tokens_map.json", (char *)*state);
        unlink(special);
        if (cases[i].special)
            CHECK_OK(ndp_file_write_atomic(special, cases[i].special, strlen(cases[i].special)));
        ndp_tokenizer *t = small_tokenizer_of(*state, cases[i].after, cases[i].config);
        if (ndp_tokenizer_eos(t) != cases[i].eos)
            fail_msg("case %d: end token %d, expected %d", i, ndp_tokenizer_eos(t), cases[i].eos);
        ndp_tokenizer_destroy(t);
        free(special);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(texts_end_with_it, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(it_is_not_doubled, make_folder, remove_folder),
        cmocka_unit_test(a_token_that_is_written_out_counts),
        cmocka_unit_test_setup_teardown(conversations_and_ids_are_left_alone, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_document_that_is_cut_has_it_once, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(caches_are_of_one_token, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(tokenizers_name_their_end, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
