/* Tokenizers as a whole: the built-in one, small ones written here, and files that lie. Those of real models are in
 * test_conformance.c. */
#include "text/tokenizer.h"

#include "check.h"
#include "data/folder.h"
#include <pthread.h>
#include <stdlib.h>

/* ---- reference data ---- */

/* A tokenizer of $NDP_TEST_DATA, or NULL with a word about what is skipped. */
static ndp_tokenizer *reference(const char *folder) {
    const char *root = getenv("NDP_TEST_DATA");
    if (!root) {
        print_message("SKIPPED: NDP_TEST_DATA is not set, nothing to compare %s with\n", folder);
        return NULL;
    }
    char *path = ndp_format("%s/%s", root, folder);
    assert_non_null(path);
    ndp_tokenizer *t = NULL;
    CHECK_OK(ndp_tokenizer_create(path, &t));
    free(path);
    return t;
}

static void story_models_begin_documents_with_bos(void **state) {
    (void)state;
    static const char *const models[] = {"models/stories260K", "models/stories15M"};
    for (int m = 0; m < NDP_COUNT(models); m++) {
        ndp_tokenizer *t = reference(models[m]);
        if (!t)
            return;
        ndp_ids ids = {0};
        CHECK_OK(ndp_tokenizer_encode(t, "", 0, true, &ids));
        assert_int_equal(ids.n, 1);
        assert_int_equal(ids.items[0], 1);
        assert_int_equal(ndp_tokenizer_bos(t), 1);
        assert_int_equal(ndp_tokenizer_eos(t), 2);
        assert_int_equal(ndp_tokenizer_vocab_size(t), m ? 32000 : 512);
        assert_int_equal(ndp_tokenizer_id(t, "</s>"), 2);
        assert_int_equal(ndp_tokenizer_id(t, "no such token"), -1);
        ndp_ids_release(&ids);
        ndp_tokenizer_destroy(t);
    }
}

/* ---- the built-in one ---- */

static void bytes_are_bytes(void **state) {
    (void)state;
    ndp_tokenizer *t;
    CHECK_OK(ndp_tokenizer_create("bytes", &t));
    assert_int_equal(ndp_tokenizer_vocab_size(t), 258);
    assert_int_equal(ndp_tokenizer_bos(t), 256);
    assert_int_equal(ndp_tokenizer_eos(t), 257);
    ndp_ids ids = {0};
    CHECK_OK(ndp_tokenizer_encode(t, "a\xff\0z", 4, true, &ids));
    const int32_t want[] = {256, 'a', 255, 0, 'z'};
    assert_int_equal(ids.n, 5);
    assert_memory_equal(ids.items, want, sizeof want);
    ndp_str text = {0};
    CHECK_OK(ndp_tokenizer_decode(t, ids.items, ids.n, true, &text));
    assert_int_equal(text.length, 4);
    assert_memory_equal(text.data, "a\xff\0z", 4);
    CHECK_OK(ndp_tokenizer_decode(t, ids.items, 2, false, &text));
    assert_memory_equal(text.data + 4, "<bos>a", 6);
    assert_int_equal(ndp_tokenizer_decode(t, (const int32_t[]){258}, 1, true, &text), NDP_EINVAL);
    ndp_str_release(&text);
    ndp_ids_release(&ids);
    ndp_tokenizer_destroy(t);
}

/* ---- small ones, written here ---- */

static ndp_tokenizer *parse(const char *text) {
    ndp_tokenizer *t;
    CHECK_OK(ndp_tokenizer_parse(text, strlen(text), "here", &t));
    return t;
}

static void check_encoding(const ndp_tokenizer *t, const char *text, const int32_t *want, int n) {
    ndp_ids ids = {0};
    CHECK_OK(ndp_tokenizer_encode(t, text, strlen(text), false, &ids));
    assert_int_equal(ids.n, n);
    for (int i = 0; i < n; i++)
        assert_int_equal(ids.items[i], want[i]);
    ndp_ids_release(&ids);
}
#define ENCODES(t, text, ...)                                                                                          \
    check_encoding(t, text, (const int32_t[]){__VA_ARGS__}, NDP_COUNT(((const int32_t[]){__VA_ARGS__})))

/* As transformers 5 does (LlamaTokenizer), where `tokenizers` by itself finds "_</s>" alone. */
static void templates_write_special_tokens(void **state) {
    (void)state;
    static const char format[] =
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"_\"},"
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"}]},\"added_tokens\":[{\"id\":0,"
        "\"content\":\"<e>\",\"special\":%s,\"normalized\":true}],\"model\":{\"type\":\"BPE\",\"vocab\":{"
        "\"<e>\":0,\"a\":1,\"_\":2,\"<\":3,\"e\":4,\">\":5},\"merges\":[]}}";
    for (int special = 0; special < 2; special++) {
        char *text = ndp_format(format, special ? "true" : "false");
        ndp_tokenizer *t = parse(text);
        ndp_ids ids = {0};
        ENCODES(t, "a<e>a <e>a", 2, 1, 3, 4, 5, 1, 0, 1);
        static const int32_t want[] = {2, 1, 0, 1, 0, 1};
        CHECK_OK(ndp_tokenizer_encode_rendered(t, "a<e>a <e>a", 10, &ids));
        if (special)
            assert_int_equal(ids.n, NDP_COUNT(want));
        else
            assert_int_equal(ids.n, 8);
        for (int i = 0; special && i < NDP_COUNT(want); i++)
            assert_int_equal(ids.items[i], want[i]);
        ndp_ids_release(&ids);
        ndp_tokenizer_destroy(t);
        free(text);
    }
}

static void merges_follow_rank_then_place(void **state) {
    (void)state;
    ndp_tokenizer *t =
        parse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"bc\":4,\"aa\":5,"
              "\"aaa\":6,\"abc\":7},\"merges\":[\"b c\",[\"a\",\"b\"],\"a a\",\"aa a\",\"a bc\"]}}");
    ENCODES(t, "abc", 7);
    ENCODES(t, "abab", 3, 3);
    ENCODES(t, "aaaaa", 5, 6);
    ENCODES(t, "cba", 2, 1, 0);
    ndp_tokenizer_destroy(t);
}

static void unknown_characters_fuse_or_not(void **state) {
    (void)state;
    static const char *const MODEL =
        "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"fuse_unk\":%s,\"vocab\":{\"?\":0,"
        "\"a\":1},\"merges\":[]}}";
    char text[256];
    for (int fuse = 0; fuse < 2; fuse++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(text, sizeof text, MODEL, fuse ? "true" : "false");
#pragma GCC diagnostic pop
        ndp_tokenizer *t = parse(text);
        if (fuse)
            ENCODES(t, "xyaxx", 0, 1, 0);
        else
            ENCODES(t, "xyaxx", 0, 0, 1, 0, 0);
        ndp_tokenizer_destroy(t);
    }
}

static void added_tokens_are_found_longest_first(void **state) {
    (void)state;
    ndp_tokenizer *t =
        parse("{\"added_tokens\":[{\"id\":5,\"content\":\"<x>\",\"special\":true},{\"id\":6,\"content\":"
              "\"<x><y>\"},{\"id\":7,\"content\":\"b\",\"normalized\":true}],\"normalizer\":{\"type\":\"Replace\","
              "\"pattern\":{\"String\":\"b\"},\"content\":\"aa\"},"
              "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"<\":1,\"c\":2,\"d\":3,\"e\":4},\"merges\":[]}}");
    ENCODES(t, "a<x><y><x>a", 0, 6, 5, 0);
    ENCODES(t, "a<", 0, 1);
    ENCODES(t, "ab", 7, 0); /* "aab" -> "aaa", in which the token is "aa" */
    ndp_str text = {0};
    CHECK_OK(ndp_tokenizer_decode(t, (const int32_t[]){0, 5, 6}, 3, true, &text));
    assert_string_equal(text.data, "a <x><y>"); /* no decoder: joined by spaces */
    ndp_str_release(&text);
    ndp_tokenizer_destroy(t);
}

/* Trainers list a special token's text twice; only one of the two ids is that of the added token. */
static void special_tokens_are_told_by_their_text(void **state) {
    (void)state;
    ndp_tokenizer *t = parse("{\"added_tokens\":[{\"id\":3,\"content\":\"</s>\",\"special\":true}],\"model\":{\"type\":"
                             "\"Unigram\",\"vocab\":[[\"?\",0],[\"</s>\",-1],[\"a\",-1],[\"</s>\",-2]]}}");
    ndp_str text = {0};
    CHECK_OK(ndp_tokenizer_decode(t, (const int32_t[]){2, 1, 3}, 3, true, &text));
    assert_string_equal(text.data, "a");
    ndp_str_release(&text);
    ndp_tokenizer_destroy(t);
}

static void long_words_take_no_square_time(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    ndp_tokenizer *t = parse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"aa\":1,\"aaaa\":2,\"aaaaaaaa\":3},"
                             "\"merges\":[\"a a\",\"aa aa\",\"aaaa aaaa\"]}}");
    char *text = malloc(N);
    memset(text, 'a', N);
    ndp_ids ids = {0};
    CHECK_OK(ndp_tokenizer_encode(t, text, N, false, &ids));
    assert_int_equal(ids.n, N / 8);
    ndp_ids_release(&ids);
    free(text);
    ndp_tokenizer_destroy(t);
}

static void replacements_cannot_fill_the_memory(void **state) {
    (void)state;
    ndp_str text = {0};
    ndp_str_add(&text, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < 30; i++)
        ndp_str_addf(&text, "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaa\"}",
                     i ? "," : "");
    ndp_str_add(&text, "]},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}");
    ndp_tokenizer *t = parse(text.data);
    ndp_ids ids = {0};
    CHECK_FAILS(ndp_tokenizer_encode(t, "a", 1, false, &ids), NDP_EFORMAT, "replacements");
    ndp_tokenizer_destroy(t);
    ndp_ids_release(&ids);
    ndp_str_release(&text);
}

/* cmocka's asserts jump: they stay in the test's own thread. Returns NULL when all was right. */
static void *encode_often(void *arg) {
    static const int32_t want[] = {4, 3, 2};
    for (int i = 0; i < 200; i++) {
        ndp_ids ids = {0};
        bool right = ndp_tokenizer_encode(arg, "<x>ababc", 8, false, &ids) == NDP_OK && ids.n == 3 &&
                     !memcmp(ids.items, want, sizeof want);
        ndp_ids_release(&ids);
        if (!right)
            return arg;
    }
    return NULL;
}

static void threads_share_a_tokenizer(void **state) {
    (void)state;
    ndp_tokenizer *t = parse("{\"added_tokens\":[{\"id\":4,\"content\":\"<x>\"}],\"normalizer\":{\"type\":\"Replace\","
                             "\"pattern\":{\"String\":\"abc\"},\"content\":\"c\"},\"model\":{\"type\":\"BPE\","
                             "\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3},\"merges\":[\"a b\"]}}");
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, t), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    ndp_tokenizer_destroy(t);
}

static void invalid_utf8_is_an_error(void **state) {
    (void)state;
    ndp_tokenizer *t = parse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}");
    ndp_ids ids = {0};
    assert_int_equal(ndp_tokenizer_encode(t, "aa\xff", 3, false, &ids), NDP_EINVAL);
    assert_non_null(strstr(ndp_error_message(), "byte 2"));
    assert_int_equal(ndp_tokenizer_encode(t, "ab", 2, false, &ids), NDP_EINVAL);
    assert_non_null(strstr(ndp_error_message(), "U+0062"));
    ndp_ids_release(&ids);
    ndp_tokenizer_destroy(t);
}

/* Keys of the vocabulary are read with their escapes, zeros among them. */
static void words_may_hold_any_character(void **state) {
    (void)state;
    ndp_tokenizer *t = parse(
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\\u0000\":0,\"\\\"\":1,\"\\ud83d\\ude00\":2,\"\\u0000\\\"\":3},"
        "\"merges\":[[\"\\u0000\",\"\\\"\"]]}}");
    ndp_ids ids = {0};
    CHECK_OK(ndp_tokenizer_encode(t, "\xf0\x9f\x98\x80\0\"\0", 7, false, &ids));
    const int32_t want[] = {2, 3, 0};
    assert_int_equal(ids.n, 3);
    assert_memory_equal(ids.items, want, sizeof want);
    ndp_ids_release(&ids);
    ndp_tokenizer_destroy(t);
}

/* ---- files that are refused ---- */

#define BPE(vocab, merges, more) "\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[" merges "]" more "}"

static const struct {
    const char *text;
    ndp_status status;
    const char *says;
} REFUSED[] = {
    {"{" BPE("\"a\":0,\"b\":0", "", "") "}", NDP_EFORMAT, "id 0 is given to both 'a' and 'b'"},
    {"{" BPE("\"a\":0", "\"a q\"", "") "}", NDP_EFORMAT, "merge 0 names 'q'"},
    {"{" BPE("\"a\":0", "\"a a\"", "") "}", NDP_EFORMAT, "merge 0 makes 'aa'"},
    {"{" BPE("\"a\":0", "\"aa\"", "") "}", NDP_EFORMAT, "merge 0 is not two tokens"},
    {"{" BPE("\"a\":0", "7", "") "}", NDP_EFORMAT, "merge 0 is not two tokens"},
    {"{" BPE("\"a\":0", "[\"a\",7]", "") "}", NDP_EFORMAT, "merge 0 is not two strings"},
    {"{" BPE("\"a\":\"0\"", "", "") "}", NDP_EFORMAT, "the id of 'a' in the vocabulary is not a whole number"},
    {"{" BPE("\"a\":-1", "", "") "}", NDP_EFORMAT, "out of range"},
    {"{" BPE("\"a\":4000000000", "", "") "}", NDP_EFORMAT, "out of range"},
    {"{" BPE("\"a\":1000000000", "", "") "}", NDP_EFORMAT, "out of range: 0 to 16777215"},
    {"{\"added_tokens\":[{\"id\":1000000000,\"content\":\"<s>\"}]," BPE("\"a\":0", "", "") "}", NDP_EFORMAT,
     "\"id\" is 1000000000, expected a whole number from 0 to 16777215"},
    {"{" BPE("", "", "") "}", NDP_EFORMAT, "vocabulary is empty"},
    {"{" BPE("\"a\":0", "", ",\"unk_token\":\"u\"") "}", NDP_EFORMAT, "unk_token 'u'"},
    {"{" BPE("\"a\":0", "", ",\"fuse_unk\":1") "}", NDP_EFORMAT, "fuse_unk"},
    {"{" BPE("\"a\":0", "", ",\"dropout\":0.1") "}", NDP_ENOTSUP, "dropout 0.1"},
    {"{" BPE("\"a\":0", "", ",\"end_of_word_suffix\":\"</w>\"") "}", NDP_ENOTSUP, "end_of_word_suffix '</w>'"},
    {"{" BPE("\"a\":0", "", ",\"new_option\":1") "}", NDP_ENOTSUP, "'new_option' of the model"},
    {"{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}," BPE("\"a\":0", "", "") "}", NDP_ENOTSUP,
     "a pre_tokenizer of type UnicodeScripts is not supported"},
    {"{\"normalizer\":{\"type\":\"BertNormalizer\"}," BPE("\"a\":0", "", "") "}", NDP_ENOTSUP,
     "normalizer of type BertNormalizer"},
    {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Glob\":\"x\"},\"content\":\"\"}," BPE("\"a\":0", "", "") "}",
     NDP_ENOTSUP, "'Glob' of a pattern"},
    {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x(\"},\"content\":\"\"}," BPE("\"a\":0", "",
                                                                                                   "") "}",
     NDP_EFORMAT, "'x(', at byte 2: a group without its end"},
    {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}," BPE("\"a\":0", "",
                                                                                                  "") "}",
     NDP_EFORMAT, "an empty pattern"},
    {"{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAA=\"}," BPE("\"a\":0", "", "") "}",
     NDP_EFORMAT, "precompiled_charsmap is damaged"},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" "
     "\"},\"behavior\":\"Lost\",\"invert\":false}," BPE("\"a\":0", "", "") "}",
     NDP_EFORMAT, "unknown behavior 'Lost'"},
    {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"__\"}," BPE("\"a\":0", "", "") "}", NDP_EFORMAT,
     "'__' of the pre_tokenizer Metaspace is not one character"},
    {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}," BPE("\"a\":0", "",
                                                                                                          "") "}",
     NDP_EFORMAT, "unknown prepend_scheme 'last'"},
    {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"ByteLevel\"}]}"
     "," BPE("\"a\":0", "", "") "}",
     NDP_ENOTSUP, "two pre_tokenizers of type ByteLevel"},
    {"{\"decoder\":{\"type\":\"WordPiece\"}," BPE("\"a\":0", "", "") "}", NDP_ENOTSUP, "decoder of type WordPiece"},
    {"{\"post_processor\":{\"type\":\"BertProcessing\"}," BPE("\"a\":0", "", "") "}", NDP_ENOTSUP, "BertProcessing"},
    {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}," BPE("\"a\":0", "", "") "}", NDP_EFORMAT,
     "leaves the text out"},
    {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[7]}," BPE("\"a\":0", "", "") "}", NDP_EFORMAT,
     "TemplateProcessing needs 'Sequence'"},
    {"{\"added_tokens\":[{\"id\":0,\"content\":\"x\"}]," BPE("\"a\":0", "", "") "}", NDP_EFORMAT,
     "id 0 is given to both 'a' and 'x'"},
    {"{\"added_tokens\":[{\"id\":3,\"content\":\"a\"}]," BPE("\"a\":0", "", "") "}", NDP_EFORMAT,
     "but 0 in the vocabulary"},
    {"{\"added_tokens\":[{\"id\":3,\"content\":\"b\"}]," BPE("\"a\":0", "", "") "}", NDP_EFORMAT,
     "has the id 3, but the `tokenizers` library numbers it 1"},
    {"{\"added_tokens\":[{\"id\":2,\"content\":\"b\"},{\"id\":1,\"content\":\"c\"}]," BPE("\"a\":0", "", "") "}",
     NDP_EFORMAT, "has the id 2, but the `tokenizers` library numbers it 1"},
    {"{\"added_tokens\":[{\"id\":1,\"content\":\"b\"}]," BPE("\"a\":0,\"c\":4", "", "") "}", NDP_EFORMAT,
     "has the id 1, but the `tokenizers` library numbers it 2"},
    {"{\"added_tokens\":[{\"id\":0,\"content\":\"a\"},{\"id\":0,\"content\":\"a\",\"normalized\":true}]," BPE(
         "\"a\":0", "", "") "}",
     NDP_ENOTSUP, "two added tokens are looked for as 'a'"},
    {"{\"added_tokens\":[{\"id\":0,\"content\":\"a\",\"normalized\":true},{\"id\":1,\"content\":\"A\",\"normalized\":"
     "true}],"
     "\"normalizer\":{\"type\":\"Lowercase\"}," BPE("\"a\":0", "", "") "}",
     NDP_ENOTSUP, "two added tokens are looked for as 'a'"},
    {"{\"added_tokens\":[{\"id\":1,\"content\":\"  \",\"normalized\":true}],\"normalizer\":{\"type\":\"Strip\"}," BPE(
         "\"a\":0", "", "") "}",
     NDP_ENOTSUP, "the normalizers leave nothing of the added token '  '"},
    {"{\"added_tokens\":[7]," BPE("\"a\":0", "", "") "}", NDP_EFORMAT, "an added token is not an object"},
    {"{\"added_tokens\":7," BPE("\"a\":0", "", "") "}", NDP_EFORMAT, "not a list"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", NDP_ENOTSUP, "model of type WordPiece"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", NDP_EFORMAT, "vocabulary is empty"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0],[\"b\"]]}}", NDP_EFORMAT, "entry 1 of the vocabulary"},
    {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",0]]}}", NDP_EFORMAT, "unk_id"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",NaN]]}}", NDP_EFORMAT, "entry 0 of the vocabulary"},
    {"{\"model\":7}", NDP_EFORMAT, "needs 'model'"},
    {"{\"extra\":7," BPE("\"a\":0", "", "") "}", NDP_ENOTSUP, "'extra'"},
    {"[]", NDP_EFORMAT, "not an object"},
    {"{" BPE("\"a\":0,", "", ""), NDP_EFORMAT, ", at byte "},
    {"", NDP_EFORMAT, ", at byte "},
};

static void bad_files_are_refused_by_name(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(REFUSED); i++) {
        ndp_tokenizer *t = NULL;
        ndp_status st = ndp_tokenizer_parse(REFUSED[i].text, strlen(REFUSED[i].text), "here", &t);
        if (st != REFUSED[i].status || !strstr(ndp_error_message(), REFUSED[i].says) ||
            !strstr(ndp_error_message(), "here"))
            fail_msg("%s\n  gave status %d: %s", REFUSED[i].text, st, st ? ndp_error_message() : "accepted");
        assert_null(t);
    }
}

/* A megabyte in a stage: refused by its size, before anything is made of it. */
static void long_stages_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *before, *after, *says;
    } cases[] = {
        {"\"Replace\",\"content\":\"\",\"pattern\":{\"Regex\":\"", "\"}", "longer than 32768 bytes"},
        {"\"Replace\",\"content\":\"\",\"pattern\":{\"String\":\"", "\"}", "a pattern of 1048576 bytes, 'aaaa"},
        {"\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"", "\"", "a stage that adds 1048576 bytes, 'aa"},
        {"\"Prepend\",\"prepend\":\"", "\"", "a stage that adds 1048576 bytes, 'aaaa"},
    };
    enum { N = 1 << 20 };
    char *long_text = malloc(N + 1);
    memset(long_text, 'a', N);
    long_text[N] = '\0';
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_tokenizer *t = NULL;
        char *text = ndp_format("{\"normalizer\":{\"type\":%s%s%s}," BPE("\"a\":0", "", "") "}", cases[i].before,
                                long_text, cases[i].after);
        CHECK_FAILS(ndp_tokenizer_parse(text, strlen(text), "here", &t), NDP_EFORMAT, cases[i].says);
        free(text);
    }
    free(long_text);
}

static void every_truncation_is_refused(void **state) {
    (void)state;
    static const char TEXT[] =
        "{\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"_\"}," BPE("\"a\":0,\"aa\":1", "\"a a\"", "") "}";
    for (size_t n = 0; n + 1 < strlen(TEXT); n++) {
        ndp_tokenizer *t = NULL;
        assert_int_equal(ndp_tokenizer_parse(TEXT, n, "here", &t), NDP_EFORMAT);
        assert_null(t);
    }
}

static void a_missing_tokenizer_is_named(void **state) {
    (void)state;
    ndp_tokenizer *t = NULL;
    assert_int_equal(ndp_tokenizer_create("/no/such/folder", &t), NDP_EINVAL);
    assert_non_null(strstr(ndp_error_message(), "/no/such/folder"));
    assert_null(t);
}

static void a_sentencepiece_model_alone_is_refused(void **state) {
    ndp_tokenizer *t = NULL;
    free(write_file(*state, "tokenizer.model", "\n\x0e", 2));
    CHECK_FAILS(ndp_tokenizer_create(*state, &t), NDP_ENOTSUP, "tokenizer.model alone is not supported");
    CHECK_FAILS(ndp_tokenizer_create("/nowhere", &t), NDP_EINVAL, "'/nowhere' is not there");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_sentencepiece_model_alone_is_refused, make_folder, remove_folder),
        cmocka_unit_test(story_models_begin_documents_with_bos),
        cmocka_unit_test(bytes_are_bytes),
        cmocka_unit_test(templates_write_special_tokens),
        cmocka_unit_test(merges_follow_rank_then_place),
        cmocka_unit_test(unknown_characters_fuse_or_not),
        cmocka_unit_test(added_tokens_are_found_longest_first),
        cmocka_unit_test(special_tokens_are_told_by_their_text),
        cmocka_unit_test(long_words_take_no_square_time),
        cmocka_unit_test(replacements_cannot_fill_the_memory),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(invalid_utf8_is_an_error),
        cmocka_unit_test(words_may_hold_any_character),
        cmocka_unit_test(bad_files_are_refused_by_name),
        cmocka_unit_test(long_stages_are_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(a_missing_tokenizer_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
