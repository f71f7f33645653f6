/* Tokenizers against Hugging Face's: every conformance case, whole corpora by hash, and files that lie. */
#include "data/tokenizer.h"

#include "base/json.h"
#include "check.h"
#include "data/sha256.h"
#include <pthread.h>
#include <stdlib.h>

static const char *const MODELS[] = {"stories260K", "stories15M"};

/* ---- reference data ---- */

/* $NDP_TEST_DATA/..., or NULL with a word about what is skipped. */
static char *reference(const char *fmt, const char *name) {
    const char *root = getenv("NDP_TEST_DATA");
    if (!root) {
        print_message("SKIPPED: NDP_TEST_DATA is not set, nothing to compare %s with\n", name);
        return NULL;
    }
    ndp_str path = {0};
    ndp_str_addf(&path, "%s/", root);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    ndp_str_addf(&path, fmt, name);
#pragma GCC diagnostic pop
    return ndp_str_detach(&path);
}

static ndp_tokenizer *model_tokenizer(const char *name) {
    char *path = reference("models/%s", name);
    if (!path)
        return NULL;
    ndp_tokenizer *t;
    CHECK_OK(ndp_tokenizer_create(path, &t));
    free(path);
    return t;
}

static struct json_object *get(struct json_object *o, const char *key) {
    struct json_object *value = NULL;
    assert_true(json_object_object_get_ex(o, key, &value));
    return value;
}

static void check_ids(const ndp_ids *got, struct json_object *want, const char *where) {
    int64_t n = (int64_t)json_object_array_length(want);
    for (int64_t i = 0; i < n && i < got->n; i++) {
        int32_t id = json_object_get_int(json_object_array_get_idx(want, (size_t)i));
        if (got->items[i] != id)
            fail_msg("%s: token %lld is %d, the reference has %d", where, (long long)i, got->items[i], id);
    }
    if (got->n != n)
        fail_msg("%s: %lld tokens, the reference has %lld", where, (long long)got->n, (long long)n);
}

/* Calls `check` for every line of a JSONL file; the number of lines. */
static int each_line(const char *path, const ndp_tokenizer *t,
                     void (*check)(const ndp_tokenizer *, struct json_object *, const char *)) {
    char *text;
    size_t size;
    CHECK_OK(ndp_file_read(path, &text, &size));
    int n = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        struct json_object *o;
        char where[512];
        snprintf(where, sizeof where, "%s:%d", path, ++n);
        CHECK_OK(ndp_json_parse(line, (size_t)(end - line), where, &o));
        check(t, o, where);
        json_object_put(o);
    }
    free(text);
    return n;
}

static void check_case(const ndp_tokenizer *t, struct json_object *o, const char *where) {
    struct json_object *text = get(o, "text");
    ndp_ids ids = {0};
    CHECK_OK(
        ndp_tokenizer_encode(t, json_object_get_string(text), (size_t)json_object_get_string_len(text), false, &ids));
    check_ids(&ids, get(o, "ids"), where);
    ndp_ids_release(&ids);
}

static void conformance_cases_equal(void **state) {
    (void)state;
    for (int m = 0; m < NDP_COUNT(MODELS); m++) {
        ndp_tokenizer *t = model_tokenizer(MODELS[m]);
        char *path = reference("conformance/tokenizers/%s.jsonl", MODELS[m]);
        if (!t)
            return;
        assert_int_equal(each_line(path, t, check_case), 433);
        ndp_tokenizer_destroy(t);
        free(path);
    }
}

/* "decoded" of the reference was made with the leading BOS that "ids" lacks. */
static void check_transformersjs(const ndp_tokenizer *t, struct json_object *o, const char *where) {
    check_case(t, o, where);
    struct json_object *want = get(o, "ids");
    ndp_ids ids = {0};
    CHECK_OK(ndp_ids_add(&ids, ndp_tokenizer_bos(t)));
    for (size_t i = 0; i < json_object_array_length(want); i++)
        CHECK_OK(ndp_ids_add(&ids, json_object_get_int(json_object_array_get_idx(want, i))));
    ndp_str text = {0};
    CHECK_OK(ndp_tokenizer_decode(t, ids.items, ids.n, false, &text));
    if (strcmp(text.data, json_object_get_string(get(o, "decoded"))))
        fail_msg("%s: decoded to '%s', the reference has '%s'", where, text.data,
                 json_object_get_string(get(o, "decoded")));
    ndp_str_release(&text);
    ndp_ids_release(&ids);
}

static void transformersjs_equals(void **state) {
    (void)state;
    ndp_tokenizer *t = model_tokenizer("stories15M");
    char *path = reference("conformance/transformersjs/%s.jsonl", "stories15M");
    if (!t)
        return;
    assert_true(each_line(path, t, check_transformersjs) > 30);
    ndp_tokenizer_destroy(t);
    free(path);
}

static void llamacpp_equals(void **state) {
    (void)state;
    ndp_tokenizer *t = model_tokenizer("stories15M");
    char *in_path = reference("conformance/llamacpp/%s.inp", "stories15M");
    char *out_path = reference("conformance/llamacpp/%s.out", "stories15M");
    if (!t)
        return;
    static const char BORDER[] = "\n__ggml_vocab_test__\n";
    char *in, *out;
    size_t in_size, out_size;
    CHECK_OK(ndp_file_read(in_path, &in, &in_size));
    CHECK_OK(ndp_file_read(out_path, &out, &out_size));
    int n = 0;
    char *line = out;
    for (char *text = in, *end; text; text = end ? end + strlen(BORDER) : NULL) {
        end = strstr(text, BORDER);
        ndp_ids ids = {0};
        if (!end && !text[0])
            break; /* the empty text behind the last border, of which the reference has no line */
        CHECK_OK(ndp_tokenizer_encode(t, text, end ? (size_t)(end - text) : strlen(text), false, &ids));
        char *line_end = strchr(line, '\n');
        assert_non_null(line_end);
        *line_end = '\0';
        for (int64_t i = 0; i < ids.n; i++) {
            char *rest;
            assert_int_equal(ids.items[i], strtol(line, &rest, 10));
            assert_true(rest > line);
            line = rest;
        }
        assert_int_equal(strspn(line, " "), strlen(line));
        line = line_end + 1;
        ndp_ids_release(&ids);
        n++;
    }
    assert_int_equal(n, 46);
    free(in);
    free(out);
    free(in_path);
    free(out_path);
    ndp_tokenizer_destroy(t);
}

/* A whole corpus as one text; *out are its ids. */
static void check_file(const ndp_tokenizer *t, struct json_object *o) {
    char *path = reference("corpora/%s", json_object_get_string(get(o, "file"))), *text;
    size_t size;
    CHECK_OK(ndp_file_read(path, &text, &size));
    ndp_ids ids = {0};
    CHECK_OK(ndp_tokenizer_encode(t, text, size, false, &ids));
    assert_int_equal(ids.n, json_object_get_int64(get(o, "tokens")));
    char digest[65];
    sha256_hex(ids.items, (size_t)ids.n * sizeof *ids.items, digest);
    assert_string_equal(digest, json_object_get_string(get(o, "ids_u32le_sha256")));
    ndp_ids_release(&ids);
    free(text);
    free(path);
}

static void whole_corpora_equal(void **state) {
    (void)state;
    for (int m = 0; m < NDP_COUNT(MODELS); m++) {
        ndp_tokenizer *t = model_tokenizer(MODELS[m]);
        char *path = reference("conformance/tokenizers/%s.files.json", MODELS[m]);
        if (!t)
            return;
        struct json_object *files;
        CHECK_OK(ndp_json_read(path, &files));
        assert_int_equal(json_object_array_length(files), 2);
        for (size_t i = 0; i < json_object_array_length(files); i++)
            check_file(t, json_object_array_get_idx(files, i));
        json_object_put(files);
        free(path);
        ndp_tokenizer_destroy(t);
    }
}

/* Lossless where the text does not hold special tokens: decode(encode(text)) is the text. */
static void corpora_come_back(void **state) {
    (void)state;
    ndp_tokenizer *t = model_tokenizer("stories15M");
    char *path = reference("corpora/%s", "udhr.jsonl"), *text;
    if (!t)
        return;
    size_t size;
    CHECK_OK(ndp_file_read(path, &text, &size));
    ndp_ids ids = {0};
    ndp_str back = {0};
    CHECK_OK(ndp_tokenizer_encode(t, text, size, false, &ids));
    CHECK_OK(ndp_tokenizer_decode(t, ids.items, ids.n, true, &back));
    assert_int_equal(back.length, size);
    assert_memory_equal(back.data, text, size);
    ndp_ids_release(&ids);
    ndp_str_release(&back);
    free(text);
    free(path);
    ndp_tokenizer_destroy(t);
}

static void story_models_begin_documents_with_bos(void **state) {
    (void)state;
    for (int m = 0; m < NDP_COUNT(MODELS); m++) {
        ndp_tokenizer *t = model_tokenizer(MODELS[m]);
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
              "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"<\":1},\"merges\":[]}}");
    ENCODES(t, "a<x><y><x>a", 0, 6, 5, 0);
    ENCODES(t, "a<", 0, 1);
    ENCODES(t, "ab", 7, 0); /* "aab" -> "aaa", in which the token is "aa" */
    ndp_str text = {0};
    CHECK_OK(ndp_tokenizer_decode(t, (const int32_t[]){0, 5, 6}, 3, true, &text));
    assert_string_equal(text.data, "a <x><y>"); /* no decoder: joined by spaces */
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
    {"{" BPE("\"a\":\"0\"", "", "") "}", NDP_EFORMAT, "the id of 'a' in the vocabulary is no whole number"},
    {"{" BPE("\"a\":-1", "", "") "}", NDP_EFORMAT, "out of range"},
    {"{" BPE("\"a\":4000000000", "", "") "}", NDP_EFORMAT, "out of range"},
    {"{" BPE("", "", "") "}", NDP_EFORMAT, "vocabulary is empty"},
    {"{" BPE("\"a\":0", "", ",\"unk_token\":\"u\"") "}", NDP_EFORMAT, "unk_token 'u'"},
    {"{" BPE("\"a\":0", "", ",\"fuse_unk\":1") "}", NDP_EFORMAT, "fuse_unk"},
    {"{" BPE("\"a\":0", "", ",\"dropout\":0.1") "}", NDP_ENOTSUP, "dropout 0.1"},
    {"{" BPE("\"a\":0", "", ",\"end_of_word_suffix\":\"</w>\"") "}", NDP_ENOTSUP, "end_of_word_suffix '</w>'"},
    {"{" BPE("\"a\":0", "", ",\"new_option\":1") "}", NDP_ENOTSUP, "'new_option' of the model"},
    {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\"}," BPE("\"a\":0", "", "") "}", NDP_ENOTSUP,
     "a pre_tokenizer of type ByteLevel is not built yet"},
    {"{\"normalizer\":{\"type\":\"NFC\"}," BPE("\"a\":0", "", "") "}", NDP_ENOTSUP, "normalizer of type NFC"},
    {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x\"},\"content\":\"\"}," BPE("\"a\":0", "",
                                                                                                  "") "}",
     NDP_ENOTSUP, "'Regex' of a Replace pattern"},
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
    {"{\"added_tokens\":[{\"id\":1,\"content\":\"x\",\"lstrip\":true}]," BPE("\"a\":0", "", "") "}", NDP_ENOTSUP,
     "lstrip"},
    {"{\"added_tokens\":[7]," BPE("\"a\":0", "", "") "}", NDP_EFORMAT, "an added token is not an object"},
    {"{\"added_tokens\":7," BPE("\"a\":0", "", "") "}", NDP_EFORMAT, "not a list"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", NDP_ENOTSUP, "model of type Unigram"},
    {"{\"model\":7}", NDP_EFORMAT, "needs 'model'"},
    {"{\"extra\":7," BPE("\"a\":0", "", "") "}", NDP_ENOTSUP, "'extra'"},
    {"[]", NDP_EFORMAT, "not an object"},
    {"{" BPE("\"a\":0,", "", ""), NDP_EFORMAT, "here:1:"},
    {"", NDP_EFORMAT, "here:1:"},
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
    assert_int_equal(ndp_tokenizer_create("/no/such/folder", &t), NDP_EIO);
    assert_non_null(strstr(ndp_error_message(), "/no/such/folder"));
    assert_null(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conformance_cases_equal),
        cmocka_unit_test(transformersjs_equals),
        cmocka_unit_test(llamacpp_equals),
        cmocka_unit_test(whole_corpora_equal),
        cmocka_unit_test(corpora_come_back),
        cmocka_unit_test(story_models_begin_documents_with_bos),
        cmocka_unit_test(bytes_are_bytes),
        cmocka_unit_test(merges_follow_rank_then_place),
        cmocka_unit_test(unknown_characters_fuse_or_not),
        cmocka_unit_test(added_tokens_are_found_longest_first),
        cmocka_unit_test(long_words_take_no_square_time),
        cmocka_unit_test(replacements_cannot_fill_the_memory),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(invalid_utf8_is_an_error),
        cmocka_unit_test(bad_files_are_refused_by_name),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(a_missing_tokenizer_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
