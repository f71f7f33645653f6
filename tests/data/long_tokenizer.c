/* What takes long: texts of 200 MB in one line, and a tokenizer.json of 20 MB. */
#include "base/clock.h"
#include "check.h"
#include "data/cache/cache.h"
#include "data/folder.h"

enum { LARGE = 200 << 20 };

/* GPT-2's stages around a few tokens; every byte has one. */
static char *byte_level_file(void) {
    ndp_str s = {0};
    ndp_str_add(
        &s,
        "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"decoder\":{\"type\":\"ByteLevel\"},"
        "\"model\":{\"type\":\"BPE\",\"merges\":[\"a b\",\"ab ab\",\"a "
        "a\"],\"vocab\":{\"ab\":256,\"abab\":257,\"aa\":258");
    for (int i = 0; i < 256; i++) {
        uint32_t c = i <= 0x20                ? 0x100u + (uint32_t)i
                     : i >= 0x7f && i <= 0xa0 ? 0x121u + (uint32_t)i - 0x7f
                     : i == 0xad              ? 0x143
                                              : (uint32_t)i;
        ndp_str_addf(&s, ",\"\\u%04x\":%d", c, i);
    }
    ndp_str_add(&s, "}}}");
    return ndp_str_detach(&s);
}

static char *repeated(const char *piece) {
    char *text = malloc(LARGE);
    size_t n = strlen(piece);
    for (size_t at = 0; text && at < LARGE; at++)
        text[at] = piece[at % n];
    assert_non_null(text);
    return text;
}

static ndp_status encode(const char *file, const char *text, ndp_ids *ids) {
    ndp_tokenizer *t = NULL;
    CHECK_OK(ndp_tokenizer_parse(file, strlen(file), "here", &t));
    double begin = ndp_now();
    ndp_status st = ndp_tokenizer_encode(t, text, LARGE, false, ids);
    print_message("  %lld tokens, %.1f MB/s\n", (long long)ids->n, LARGE / (ndp_now() - begin) * 1e-6);
    ndp_tokenizer_destroy(t);
    return st;
}

static void one_line_of_words_is_encoded(void **state) {
    (void)state;
    char *file = byte_level_file(), *text = repeated("abab ");
    ndp_ids ids = {0};
    CHECK_OK(encode(file, text, &ids));
    assert_int_equal(ids.n, 2 * (LARGE / 5)); /* "abab", then " " and "abab" anew, which no merge joins */
    ndp_ids_release(&ids);
    free(text);
    free(file);
}

/* One letter over and over, which merges with itself: more than is merged at a time, and said so. */
static void one_word_without_end_is_refused(void **state) {
    (void)state;
    char *file = byte_level_file(), *text = repeated("a");
    ndp_ids ids = {0};
    CHECK_FAILS(encode(file, text, &ids), NDP_EINVAL, "break it into lines or leave it out");
    ids.n = 0;
    CHECK_FAILS(encode("{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\",0],[\"a\",-1],[\"aa\",-1.5]]}}",
                       text, &ids),
                NDP_EINVAL, "break it into lines or leave it out");
    ndp_ids_release(&ids);
    free(text);
    free(file);
}

static void a_line_of_200_mb_reaches_the_cache(void **state) {
    char *text = repeated("abab "), *path;
    char *file = write_file(*state, "a.txt", text, LARGE), *json = byte_level_file();
    free(text);
    ndp_tokenizer *t = NULL;
    CHECK_OK(ndp_tokenizer_parse(json, strlen(json), "here", &t));
    ndp_dataset_options o = {.files = (const char *[]){file}, .n_files = 1, .cache_dir = *state, .tokenizer = t};
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    ndp_token_cache c;
    CHECK_OK(ndp_token_cache_open(path, &c));
    assert_int_equal(c.n_documents, 1);
    assert_true(c.n_tokens > LARGE / 3);
    ndp_token_cache_close(&c);
    free(path);
    free(json);
    free(file);
    ndp_tokenizer_destroy(t);
}

/* Four hundred thousand words of two letters and more, merges as lists: 20 MB. */
static void a_large_file_is_read_soon(void **state) {
    (void)state;
    enum { LETTERS = 640, WORDS = LETTERS * LETTERS };
    ndp_str s = {0};
    ndp_str_add(&s, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\n");
    for (int i = 0; i < LETTERS; i++)
        ndp_str_addf(&s, "      \"\\u%04x\": %d,\n", 0x4e00 + i, i);
    for (int i = 0; i < WORDS; i++)
        ndp_str_addf(&s, "      \"\\u%04x\\u%04x\": %d%s\n", 0x4e00 + i / LETTERS, 0x4e00 + i % LETTERS, LETTERS + i,
                     i + 1 < WORDS ? "," : "");
    ndp_str_add(&s, "},\"merges\":[");
    for (int i = 0; i < WORDS; i++)
        ndp_str_addf(&s, "%s[\"\\u%04x\",\"\\u%04x\"]", i ? "," : "", 0x4e00 + i / LETTERS, 0x4e00 + i % LETTERS);
    ndp_str_add(&s, "]}}");
    double least = 1e9;
    for (int i = 0; i < 3; i++) {
        ndp_tokenizer *t = NULL;
        double begin = ndp_now();
        CHECK_OK(ndp_tokenizer_parse(s.data, s.length, "here", &t));
        double seconds = ndp_now() - begin;
        least = seconds < least ? seconds : least;
        assert_int_equal(ndp_tokenizer_vocab_size(t), LETTERS + WORDS);
        ndp_tokenizer_destroy(t);
    }
    print_message("  %zu bytes in %.3f s\n", s.length, least);
    ndp_str_release(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_line_of_words_is_encoded),
        cmocka_unit_test(one_word_without_end_is_refused),
        cmocka_unit_test_setup_teardown(a_line_of_200_mb_reaches_the_cache, make_folder, remove_folder),
        cmocka_unit_test(a_large_file_is_read_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
