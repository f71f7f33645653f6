/* Every reference case of tokenizers, and whole corpora, as a table: folder, cases, passes. */
#include "text/tokenizer.h"

#include "base/json.h"
#include "check.h"
#include "text/pretokenize.h"
#include "data/sha256.h"
#include <stdlib.h>
#include <utf8proc.h>

/* ---- the table ---- */

typedef struct row {
    char name[64];
    int cases, passes;
    char first[600]; /* what was wrong first */
} row;

static row begin_row(const char *folder, const char *name) {
    row r = {0};
    snprintf(r.name, sizeof r.name, "%s/%s", folder, name);
    return r;
}

static void count(row *r, bool right, const char *where) {
    r->cases++;
    r->passes += right;
    if (!right && !r->first[0])
        snprintf(r->first, sizeof r->first, "%.590s", where);
}

/* Prints the row; all of at least `want` cases have to pass. */
static void end_row(const row *r, int want) {
    print_message("  %-36s %6d cases %6d passes\n", r->name, r->cases, r->passes);
    if (r->passes != r->cases || r->cases < want)
        fail_msg("%s: %d of %d cases, at least %d wanted; first: %s", r->name, r->passes, r->cases, want, r->first);
}

/* ---- reference data ---- */

static const char *root(void) { return getenv("NDP_TEST_DATA"); }

static char *path_of(const char *folder, const char *name, const char *suffix) {
    char *path = ndp_format("%s/%s/%s%s", root(), folder, name, suffix);
    assert_non_null(path);
    return path;
}

static ndp_tokenizer *tokenizer_of(const char *name) {
    char *path = path_of(strstr(name, "stories") ? "models" : "tokenizers", name, "");
    ndp_tokenizer *t = NULL;
    CHECK_OK(ndp_tokenizer_create(path, &t));
    free(path);
    return t;
}

/* The lines of a file, one after the other; the caller frees what `text` points to at first. */
static char *read_file(const char *folder, const char *name, const char *suffix, size_t *size) {
    char *path = path_of(folder, name, suffix), *text;
    CHECK_OK(ndp_file_read(path, &text, size));
    free(path);
    return text;
}

static struct json_object *next_line(char **at, const char *what) {
    char *end = strchr(*at, '\n');
    if (!end)
        return NULL;
    struct json_object *o;
    CHECK_OK(ndp_json_parse(*at, (size_t)(end - *at), what, &o));
    *at = end + 1;
    return o;
}

static ndp_span text_of(struct json_object *o, const char *key) {
    struct json_object *value = NULL;
    assert_true(json_object_object_get_ex(o, key, &value));
    return (ndp_span){json_object_get_string(value), (size_t)json_object_get_string_len(value)};
}

static struct json_object *list_of(struct json_object *o, const char *key) {
    struct json_object *value = NULL;
    assert_true(json_object_object_get_ex(o, key, &value) && json_object_is_type(value, json_type_array));
    return value;
}

static bool same_ids(const ndp_ids *got, struct json_object *want) {
    bool same = got->n == (int64_t)json_object_array_length(want);
    for (int64_t i = 0; same && i < got->n; i++)
        same = got->items[i] == json_object_get_int(json_object_array_get_idx(want, (size_t)i));
    return same;
}

static bool encodes(const ndp_tokenizer *t, struct json_object *o, ndp_ids *ids) {
    ndp_span text = text_of(o, "text");
    ids->n = 0;
    CHECK_OK(ndp_tokenizer_encode(t, text.data, text.n, false, ids));
    return same_ids(ids, list_of(o, "ids"));
}

/* ---- texts and ids ---- */

static const char *const NAMES[] = {"stories260K", "stories15M", "gpt2", "qwen2.5", "smollm2", "smollm3-base"};

static void cases_equal(void **state) {
    (void)state;
    for (int i = 0; root() && i < NDP_COUNT(NAMES); i++) {
        row r = begin_row("tokenizers", NAMES[i]);
        ndp_tokenizer *t = tokenizer_of(NAMES[i]);
        size_t size;
        char *text = read_file("conformance/tokenizers", NAMES[i], ".jsonl", &size), *at = text;
        ndp_ids ids = {0};
        for (struct json_object *o; (o = next_line(&at, r.name)); json_object_put(o))
            count(&r, encodes(t, o, &ids), json_object_to_json_string(o));
        ndp_ids_release(&ids);
        ndp_tokenizer_destroy(t);
        free(text);
        end_row(&r, 433);
    }
}

static bool file_equals(const ndp_tokenizer *t, struct json_object *o) {
    size_t size;
    char *text = read_file("corpora", text_of(o, "file").data, "", &size);
    struct json_object *tokens = NULL;
    assert_true(json_object_object_get_ex(o, "tokens", &tokens));
    ndp_ids ids = {0};
    CHECK_OK(ndp_tokenizer_encode(t, text, size, false, &ids));
    char digest[65];
    sha256_hex(ids.items, (size_t)ids.n * sizeof *ids.items, digest);
    bool same = ids.n == json_object_get_int64(tokens) && !strcmp(digest, text_of(o, "ids_u32le_sha256").data);
    ndp_ids_release(&ids);
    free(text);
    return same;
}

static void whole_corpora_equal(void **state) {
    (void)state;
    for (int i = 0; root() && i < NDP_COUNT(NAMES); i++) {
        row r = begin_row("files", NAMES[i]);
        ndp_tokenizer *t = tokenizer_of(NAMES[i]);
        char *path = path_of("conformance/tokenizers", NAMES[i], ".files.json");
        struct json_object *files;
        CHECK_OK(ndp_json_read(path, &files));
        for (size_t k = 0; k < json_object_array_length(files); k++) {
            struct json_object *o = json_object_array_get_idx(files, k);
            count(&r, file_equals(t, o), text_of(o, "file").data);
        }
        json_object_put(files);
        free(path);
        ndp_tokenizer_destroy(t);
        end_row(&r, 2);
    }
}

/* One line of ids for a text. */
static bool line_equals(const ndp_ids *ids, char *line) {
    bool same = true;
    for (int64_t i = 0; i < ids->n && same; i++) {
        char *rest;
        same = strtol(line, &rest, 10) == ids->items[i] && rest > line;
        line = rest;
    }
    return same && strspn(line, " ") == strlen(line);
}

static void llamacpp_equals(void **state) {
    (void)state;
    static const char border[] = "\n__ggml_vocab_test__\n";
    static const char *const names[] = {"stories15M", "gpt2", "qwen2.5", "smollm3-base"};
    for (int i = 0; root() && i < NDP_COUNT(names); i++) {
        row r = begin_row("llamacpp", names[i]);
        ndp_tokenizer *t = tokenizer_of(names[i]);
        size_t in_size, out_size;
        char *in = read_file("conformance/llamacpp", names[i], ".inp", &in_size);
        char *out = read_file("conformance/llamacpp", names[i], ".out", &out_size), *line = out;
        ndp_ids ids = {0};
        for (char *text = in, *end = in, *stop; end && (stop = strchr(line, '\n'));
             text = end ? end + strlen(border) : NULL) {
            end = strstr(text, border);
            *stop = '\0';
            ids.n = 0;
            CHECK_OK(ndp_tokenizer_encode(t, text, end ? (size_t)(end - text) : strlen(text), false, &ids));
            count(&r, line_equals(&ids, line), line);
            line = stop + 1;
        }
        ndp_ids_release(&ids);
        free(in);
        free(out);
        ndp_tokenizer_destroy(t);
        end_row(&r, 46);
    }
}

/* ---- text and pieces ---- */

/* What transformers makes of a decoded text where the tokenizer's configuration does not forbid it. */
static void clean_up(ndp_str *text) {
    static const char *const changes[][2] = {{" .", "."},     {" ?", "?"},     {" !", "!"},   {" ,", ","},
                                             {" ' ", "'"},    {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"},
                                             {" 've", "'ve"}, {" 're", "'re"}};
    ndp_regex_scratch scratch = {0};
    for (int i = 0; i < NDP_COUNT(changes); i++) {
        ndp_regex *regex;
        ndp_str next = {0};
        CHECK_OK(ndp_regex_create_literal((ndp_span){changes[i][0], strlen(changes[i][0])}, "here", &regex));
        CHECK_OK(
            ndp_regex_replace(regex, &scratch, (ndp_span){text->data, text->length}, changes[i][1], SIZE_MAX, &next));
        ndp_regex_destroy(regex);
        ndp_str_release(text);
        *text = next;
    }
    ndp_regex_scratch_release(&scratch);
}

/* "decoded" was made with the BOS that "ids" lacks; "tokens" lacks as many at its begin. */
static bool decodes(const ndp_tokenizer *t, struct json_object *o, const ndp_ids *ids, int32_t bos, bool cleans) {
    ndp_ids all = {0};
    if (bos >= 0)
        CHECK_OK(ndp_ids_add(&all, bos));
    for (int64_t i = 0; i < ids->n; i++)
        CHECK_OK(ndp_ids_add(&all, ids->items[i]));
    ndp_str text = {0};
    CHECK_OK(ndp_tokenizer_decode(t, all.items, all.n, false, &text));
    if (cleans && text.length)
        clean_up(&text);
    ndp_span want = text_of(o, "decoded");
    bool same = text.length == want.n && !memcmp(text.data, want.data, want.n);
    ndp_str_release(&text);
    ndp_ids_release(&all);
    return same;
}

static bool pieces_equal(const ndp_tokenizer *t, struct json_object *o, const ndp_ids *ids, int64_t left_out) {
    struct json_object *want = list_of(o, "tokens");
    bool same = (int64_t)json_object_array_length(want) == (ids->n > left_out ? ids->n - left_out : 0);
    for (int64_t i = left_out; i < ids->n && same; i++) {
        struct json_object *token = json_object_array_get_idx(want, (size_t)(i - left_out));
        ndp_span piece = ndp_tokenizer_token(t, ids->items[i]);
        same = piece.n == (size_t)json_object_get_string_len(token) &&
               !memcmp(piece.data, json_object_get_string(token), piece.n);
    }
    return same;
}

static void transformersjs_equals(void **state) {
    (void)state;
    static const struct {
        const char *name, *bos;
        bool cleans;
    } kinds[] = {{"gpt2", NULL, true}, {"smollm3-base", "<|begin_of_text|>", true}, {"stories15M", "<s>", false}};
    for (int i = 0; root() && i < NDP_COUNT(kinds); i++) {
        row ids_row = begin_row("transformersjs", kinds[i].name), text_row = begin_row("  decoded", kinds[i].name),
            pieces_row = begin_row("  tokens", kinds[i].name);
        ndp_tokenizer *t = tokenizer_of(kinds[i].name);
        int32_t bos = kinds[i].bos ? ndp_tokenizer_id(t, kinds[i].bos) : -1;
        size_t size;
        char *text = read_file("conformance/transformersjs", kinds[i].name, ".jsonl", &size), *at = text;
        ndp_ids ids = {0};
        for (struct json_object *o; (o = next_line(&at, ids_row.name)); json_object_put(o)) {
            const char *where = json_object_to_json_string(o);
            count(&ids_row, encodes(t, o, &ids), where);
            count(&text_row, decodes(t, o, &ids, bos, kinds[i].cleans), where);
            count(&pieces_row, pieces_equal(t, o, &ids, bos >= 0), where);
        }
        ndp_ids_release(&ids);
        ndp_tokenizer_destroy(t);
        free(text);
        end_row(&ids_row, 15);
        end_row(&text_row, 15);
        end_row(&pieces_row, 15);
    }
}

/* ---- Split ---- */

typedef struct pieces {
    struct json_object *want;
    size_t n;
    bool same;
} pieces;

static ndp_status compare_piece(void *user, ndp_span word) {
    pieces *p = user;
    struct json_object *want = json_object_array_get_idx(p->want, p->n++);
    p->same &= want && (size_t)json_object_get_string_len(want) == word.n &&
               !memcmp(json_object_get_string(want), word.data, word.n);
    return NDP_OK;
}

static bool splits(struct json_object *o, ndp_pretokenize_scratch *scratch, ndp_regex_scratch *regex) {
    ndp_pretokenizers p = {.n = 1};
    struct json_object *invert = NULL;
    assert_true(json_object_object_get_ex(o, "invert", &invert));
    p.items[0].invert = json_object_get_boolean(invert);
    p.items[0].behavior = !strcmp(text_of(o, "behavior").data, "Removed") ? NDP_SPLIT_REMOVED : NDP_SPLIT_ISOLATED;
    CHECK_OK(ndp_regex_create(text_of(o, "pattern"), "here", &p.items[0].pattern));
    pieces got = {list_of(o, "pieces"), 0, true};
    CHECK_OK(ndp_pretokenize(&p, scratch, regex, text_of(o, "input"), 1, compare_piece, &got));
    ndp_pretokenizers_release(&p);
    return got.same && got.n == json_object_array_length(got.want);
}

static void split_regex_equals(void **state) {
    (void)state;
    if (!root())
        return;
    row r = begin_row("split_regex", "split_regex");
    size_t size;
    char *text = read_file("conformance/split_regex", "split_regex", ".jsonl", &size), *at = text;
    ndp_pretokenize_scratch scratch = {0};
    ndp_regex_scratch regex = {0};
    for (struct json_object *o; (o = next_line(&at, r.name)); json_object_put(o))
        count(&r, splits(o, &scratch, &regex), json_object_to_json_string(o));
    ndp_pretokenize_scratch_release(&scratch);
    ndp_regex_scratch_release(&regex);
    free(text);
    end_row(&r, 2027);
}

/* ---- those made from SentencePiece models, and by the reference's trainers ---- */

static char *golden_path(const char *name, const char *suffix) {
    char *path = ndp_format("%s/tests/golden/tokenizers/%s%s", getenv("NDP_SOURCE_DIR"), name, suffix);
    assert_non_null(path);
    return path;
}

static void add_digest(ndp_str *line, const void *data, size_t n) {
    char digest[65];
    sha256_hex(data, n, digest);
    ndp_str_addf(line, " %.8s", digest);
}

/* "ids, digest of the ids, digest of the text that they decode to": a text's line of the expected file. */
static char *line_of(const ndp_tokenizer *t, ndp_span text) {
    ndp_ids ids = {0};
    ndp_str back = {0}, line = {0};
    CHECK_OK(ndp_tokenizer_encode(t, text.data, text.n, true, &ids));
    CHECK_OK(ndp_tokenizer_decode(t, ids.items, ids.n, true, &back));
    ndp_str_addf(&line, "%lld", (long long)ids.n);
    add_digest(&line, ids.n ? (const void *)ids.items : "", (size_t)ids.n * sizeof *ids.items);
    add_digest(&line, back.length ? back.data : "", back.length);
    ndp_ids_release(&ids);
    ndp_str_release(&back);
    return ndp_str_detach(&line);
}

static void golden_equals(void **state) {
    (void)state;
    static const char *const names[] = {"t5", "albert", "llama", "trained-unigram", "ties", "trained-bpe"};
    for (int i = 0; i < NDP_COUNT(names); i++) {
        row r = begin_row("golden", names[i]);
        char *json = golden_path(names[i], ".json"), *lines = golden_path(names[i], ".expected"),
             *source = golden_path("texts", ".jsonl"), *texts, *expected;
        size_t size;
        ndp_tokenizer *t = NULL;
        CHECK_OK(ndp_tokenizer_create(json, &t));
        CHECK_OK(ndp_file_read(source, &texts, &size));
        CHECK_OK(ndp_file_read(lines, &expected, &size));
        char *at = texts, *want = expected;
        for (struct json_object *o; (o = next_line(&at, source)); json_object_put(o)) {
            size_t n = strcspn(want, "\n");
            char *got = line_of(t, text_of(o, "text"));
            count(&r, strlen(got) == n && !memcmp(got, want, n), json_object_to_json_string(o));
            want += n + (want[n] == '\n');
            free(got);
        }
        assert_int_equal(*want, '\0');
        ndp_tokenizer_destroy(t);
        free(texts), free(expected), free(json), free(lines), free(source);
        end_row(&r, 390);
    }
}

/* ---- there and back ---- */

/* decode(encode(text)) is the text, or its NFC where the pipeline normalizes. */
static bool comes_back(const ndp_tokenizer *t, const char *file, bool nfc) {
    size_t size;
    char *text = read_file("corpora", file, "", &size);
    ndp_ids ids = {0};
    ndp_str back = {0};
    CHECK_OK(ndp_tokenizer_encode(t, text, size, false, &ids));
    CHECK_OK(ndp_tokenizer_decode(t, ids.items, ids.n, false, &back));
    char *want = nfc ? (char *)utf8proc_NFC((const utf8proc_uint8_t *)text) : text;
    bool same = back.length == strlen(want) && !memcmp(back.data, want, back.length);
    if (nfc)
        free(want);
    ndp_ids_release(&ids);
    ndp_str_release(&back);
    free(text);
    return same;
}

/* The story models' normalizer puts a space before each stretch between special tokens, and one text writes "<unk>". */
static void corpora_come_back(void **state) {
    (void)state;
    static const char *const corpora[] = {"wikitext2-test.txt",
                                          "tinyshakespeare.txt",
                                          "tinystories.txt",
                                          "tinystories.jsonl",
                                          "udhr.jsonl",
                                          "gsm8k_train.jsonl",
                                          "gsm8k_train_chat.jsonl",
                                          "gpteacher_codegen.json",
                                          "self_instruct_seed_tasks.jsonl"};
    for (int i = 0; root() && i < NDP_COUNT(NAMES); i++) {
        row r = begin_row("round trips", NAMES[i]);
        ndp_tokenizer *t = tokenizer_of(NAMES[i]);
        int first = strstr(NAMES[i], "stories") != NULL;
        for (int k = first; k < NDP_COUNT(corpora); k++)
            count(&r, comes_back(t, corpora[k], !strcmp(NAMES[i], "qwen2.5")), corpora[k]);
        ndp_tokenizer_destroy(t);
        end_row(&r, NDP_COUNT(corpora) - first);
    }
}

int main(void) {
    if (!root())
        print_message("SKIPPED: NDP_TEST_DATA is not set, nothing to compare tokenizers with\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_equal),        cmocka_unit_test(whole_corpora_equal),
        cmocka_unit_test(llamacpp_equals),    cmocka_unit_test(transformersjs_equals),
        cmocka_unit_test(split_regex_equals), cmocka_unit_test(golden_equals),
        cmocka_unit_test(corpora_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
