/* The tokens of a model folder as keys of a GGUF file: texts, kinds, merges or scores, special tokens, and the template
 * of conversations. Called by gguf_export.c. */
#include "base/json.h"
#include "base/log.h"
#include "text/bytelevel.h"
#include "text/chat/chat_own.h"
#include "text/loader.h"
#include "weights/gguf/gguf.h"

#include <stdlib.h>
#include <string.h>

static const ndp_log gguf_log = {NDP_LOG_INFO, 0};

typedef enum token_kind { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER = 4, UNUSED = 5, BYTE = 6 } token_kind;

typedef struct source {
    ndp_gguf *g;
    ndp_tokenizer *t;
    struct json_object *root, *model; /* tokenizer.json */
    ndp_gguf_words kind;
    int64_t n; /* tokens: rows of the embedding */
    int32_t *types;
    float *scores;
} source;

static void put_text(ndp_gguf *g, const char *key, const char *text) { ndp_gguf_put_text(g, key, text, strlen(text)); }

/* ---- tokens ---- */

/* Added tokens that are not special, but separate messages like those that are. */
static bool looks_special(ndp_span t) {
    static const char *const words[] = {"<pad>", "<mask>", "<2mass>", "[@BOS@]"};
    static const struct {
        const char *begin, *end;
    } marks[] = {{"<|", "|>"}, {"<\xef\xbd\x9c", "\xef\xbd\x9c>"}, {"<unused", ">"}};
    for (int i = 0; i < NDP_COUNT(words); i++)
        if (t.n == strlen(words[i]) && memcmp(t.data, words[i], t.n) == 0)
            return true;
    for (int i = 0; i < NDP_COUNT(marks); i++) {
        size_t a = strlen(marks[i].begin), b = strlen(marks[i].end);
        if (t.n >= a + b && memcmp(t.data, marks[i].begin, a) == 0 && memcmp(t.data + t.n - b, marks[i].end, b) == 0)
            return true;
    }
    return false;
}

/* The byte of "<0x0A>", or -1. */
static int byte_of(ndp_span t) {
    return t.n == 6 && memcmp(t.data, "<0x", 3) == 0 && t.data[5] == '>' ? ndp_hex_number(t.data + 3, 2) : -1;
}

static int32_t unknown_of(const source *s) {
    const char *unknown = ndp_json_text(json_object_object_get(s->model, "unk_token"));
    return unknown ? ndp_tokenizer_id(s->t, unknown) : -1;
}

/* Of all ids; what is above those of the tokenizer is there for the size of the embedding. */
static void find_types(source *s) {
    struct json_object *added = json_object_object_get(s->root, "added_tokens");
    int32_t unknown = unknown_of(s);
    for (int64_t i = 0; i < s->n; i++) {
        ndp_span token = i < ndp_tokenizer_vocab_size(s->t) ? ndp_tokenizer_token(s->t, (int32_t)i) : (ndp_span){0};
        s->types[i] = !token.data ? UNUSED : s->kind == NDP_GGUF_PIECES && byte_of(token) >= 0 ? BYTE : NORMAL;
    }
    for (size_t i = 0; added && i < json_object_array_length(added); i++) {
        int64_t id = json_object_get_int64(json_object_object_get(json_object_array_get_idx(added, i), "id"));
        if (id < 0 || id >= s->n)
            continue;
        bool special = ndp_tokenizer_is_special(s->t, (int32_t)id);
        s->types[id] = special || looks_special(ndp_tokenizer_token(s->t, (int32_t)id)) ? CONTROL : USER;
    }
    if (s->kind == NDP_GGUF_PIECES && unknown >= 0)
        s->types[unknown] = UNKNOWN;
}

/* A token as llama.cpp has it: bytes of NDP_GGUF_BYTES as GPT-2's characters, spaces of added tokens as spaces. */
static void put_token(source *s, int64_t id) {
    ndp_span token = s->types[id] == UNUSED ? (ndp_span){0} : ndp_tokenizer_token(s->t, (int32_t)id);
    ndp_str text = {0};
    int byte = s->kind == NDP_GGUF_BYTES && token.data ? byte_of(token) : -1;
    if (!token.data)
        ndp_str_addf(&text, "[PAD%lld]", (long long)id);
    else if (byte >= 0)
        ndp_bytes_to_characters((ndp_span){&(char){(char)byte}, 1}, &text);
    else
        for (size_t i = 0; i < token.n; i++) {
            bool space = s->types[id] == USER && token.n - i >= 3 && memcmp(token.data + i, NDP_GGUF_SPACE, 3) == 0;
            ndp_str_add_bytes(&text, space ? " " : token.data + i, 1);
            i += space ? 2 : 0;
        }
    s->g->keys.failed |= text.failed;
    ndp_gguf_add_text(s->g, text.data, text.length);
    ndp_str_release(&text);
}

/* ---- merges ---- */

/* Merge i as two texts; of "a b" or ["a", "b"]. */
static void merge_of(struct json_object *merges, size_t i, ndp_span side[2]) {
    struct json_object *m = json_object_array_get_idx(merges, i);
    if (json_object_is_type(m, json_type_array)) {
        for (int k = 0; k < 2; k++) {
            struct json_object *o = json_object_array_get_idx(m, (size_t)k);
            side[k] = (ndp_span){json_object_get_string(o), (size_t)json_object_get_string_len(o)};
        }
        return;
    }
    const char *text = json_object_get_string(m), *gap = strchr(text, ' ');
    side[0] = (ndp_span){text, (size_t)(gap - text)};
    side[1] = (ndp_span){gap + 1, strlen(gap + 1)};
}

static void join(const ndp_span side[2], const char *between, ndp_str *out) {
    ndp_str_add_bytes(out, side[0].data, side[0].n);
    ndp_str_add(out, between);
    ndp_str_add_bytes(out, side[1].data, side[1].n);
}

static void put_merges(source *s) {
    struct json_object *merges = json_object_object_get(s->model, "merges");
    size_t n = json_object_array_length(merges);
    ndp_gguf_put_list(s->g, "tokenizer.ggml.merges", NDP_GGUF_TEXT, (int64_t)n);
    for (size_t i = 0; i < n; i++) {
        ndp_span side[2];
        ndp_str text = {0};
        merge_of(merges, i, side);
        join(side, " ", &text);
        s->g->keys.failed |= text.failed;
        ndp_gguf_add_text(s->g, text.data, text.length);
        ndp_str_release(&text);
    }
}

/* Minus the number of tokens that are merged before it, then in the order of ids; so SentencePiece numbers them. */
static ndp_status find_scores(source *s) {
    struct json_object *merges = json_object_object_get(s->model, "merges");
    bool *is_product = calloc((size_t)s->n + 1, 1);
    int64_t rank = 0;
    NDP_CHECK_MEMORY(is_product, "for %lld tokens", (long long)s->n);
    for (size_t i = 0; i < json_object_array_length(merges); i++) {
        ndp_span side[2];
        ndp_str text = {0};
        merge_of(merges, i, side);
        join(side, "", &text);
        int32_t id = text.failed ? -1 : ndp_tokenizer_id(s->t, text.data);
        ndp_str_release(&text);
        if (id >= 0 && id < s->n && !is_product[id]) {
            is_product[id] = true;
            s->scores[id] = (float)-rank++;
        }
    }
    for (int64_t i = 0; i < s->n; i++) {
        token_kind kind = (token_kind)s->types[i];
        if (kind != NORMAL)
            s->scores[i] = kind == UNUSED ? -10000 : kind == CONTROL || kind == USER ? -1000 : 0;
        else if (!is_product[i])
            s->scores[i] = (float)-rank++;
    }
    free(is_product);
    return NDP_OK;
}

/* ---- special tokens ---- */

static void put_id(ndp_gguf *g, const char *key, int64_t id) {
    if (id >= 0)
        ndp_gguf_put_u32(g, key, id);
}

/* The token that tokenizer_config.json names for padding; -1: none. */
static int32_t padding_of(const source *s) {
    char path[NDP_PATH];
    struct json_object *root = NULL;
    if (ndp_path_join(path, s->g->folder, "tokenizer_config.json") != NDP_OK || !ndp_path_exists(path) ||
        ndp_json_read(path, &root) != NDP_OK)
        return -1;
    struct json_object *pad = json_object_object_get(root, "pad_token");
    const char *text =
        ndp_json_text(json_object_is_type(pad, json_type_object) ? json_object_object_get(pad, "content") : pad);
    int32_t id = text ? ndp_tokenizer_id(s->t, text) : -1;
    json_object_put(root);
    return id;
}

/* What is put around a text: llama.cpp knows the begin token and the end token. */
static ndp_status put_special(source *s) {
    int64_t bos = ndp_tokenizer_bos(s->t), eos = ndp_tokenizer_eos(s->t);
    int64_t before = ndp_tokenizer_prefix(s->t), after = ndp_tokenizer_suffix(s->t);
    ndp_ids ids = {0};
    bos = bos >= 0 ? bos : s->g->facts->bos;
    eos = eos >= 0 ? eos : s->g->facts->eos;
    NDP_TRY(ndp_tokenizer_encode(s->t, "", 0, true, &ids));
    bool begins = before == 1 && ids.items[0] == bos, ends = after == 1 && ids.items[ids.n - 1] == eos;
    if (begins != (before > 0) || ends != (after > 0))
        ndp_warn(&gguf_log,
                 "the tokenizer of '%s' puts other tokens around a text than the begin and end tokens, which "
                 "llama.cpp does not",
                 s->g->folder);
    ndp_ids_release(&ids);
    put_id(s->g, "tokenizer.ggml.bos_token_id", bos);
    put_id(s->g, "tokenizer.ggml.eos_token_id", eos);
    put_id(s->g, "tokenizer.ggml.unknown_token_id", unknown_of(s));
    put_id(s->g, "tokenizer.ggml.padding_token_id", padding_of(s));
    ndp_gguf_put_bool(s->g, "tokenizer.ggml.add_bos_token", begins);
    ndp_gguf_put_bool(s->g, "tokenizer.ggml.add_eos_token", ends);
    return NDP_OK;
}

static ndp_status put_template(source *s) {
    ndp_str text = {0};
    ndp_status st = ndp_chat_own_text(s->g->folder, NULL, &text);
    if (st == NDP_OK && text.length)
        ndp_gguf_put_text(s->g, "tokenizer.chat_template", text.data, text.length);
    ndp_str_release(&text);
    return st;
}

/* ---- the whole ---- */

static ndp_status put_all(source *s) {
    ndp_gguf *g = s->g;
    s->model = json_object_object_get(s->root, "model");
    s->n = g->facts->vocab;
    NDP_CHECK(ndp_tokenizer_vocab_size(s->t) <= s->n, "the tokenizer of '%s' has ids up to %d, and the model %lld rows",
              g->folder, ndp_tokenizer_vocab_size(s->t) - 1, (long long)s->n);
    s->types = ndp_arena_alloc(&g->arena, (size_t)s->n * sizeof *s->types);
    s->scores = ndp_arena_alloc(&g->arena, (size_t)s->n * sizeof *s->scores);
    NDP_CHECK_MEMORY(s->types && s->scores, "for %lld tokens", (long long)s->n);
    NDP_TRY(ndp_gguf_words_keys(g, s->root, &s->kind));
    find_types(s);
    ndp_gguf_put_list(g, "tokenizer.ggml.tokens", NDP_GGUF_TEXT, s->n);
    for (int64_t i = 0; i < s->n; i++)
        put_token(s, i);
    if (s->kind == NDP_GGUF_PIECES) {
        NDP_TRY(find_scores(s));
        ndp_gguf_put_list(g, "tokenizer.ggml.scores", NDP_GGUF_FLOAT, s->n);
        ndp_str_add_bytes(&g->keys, s->scores, (size_t)s->n * sizeof *s->scores);
    } else
        put_merges(s);
    ndp_gguf_put_list(g, "tokenizer.ggml.token_type", NDP_GGUF_I32, s->n);
    ndp_str_add_bytes(&g->keys, s->types, (size_t)s->n * sizeof *s->types);
    NDP_TRY(put_special(s));
    return put_template(s);
}

/* tokenizer.json, or what GPT-2's older files say in its place. */
static ndp_status read_root(const char *folder, struct json_object **out) {
    char path[NDP_PATH], other[NDP_PATH], *vocab = NULL, *merges = NULL;
    size_t n, n_merges;
    ndp_str text = {0};
    NDP_TRY(ndp_path_join(path, folder, "tokenizer.json"));
    if (ndp_path_exists(path))
        return NDP_FILE_PARSE(NDP_FILE_TOKENIZER, path, data, size, ndp_json_parse(data, size, path, out));
    NDP_TRY(ndp_path_join(path, folder, "vocab.json"));
    NDP_TRY(ndp_path_join(other, folder, "merges.txt"));
    ndp_status st = ndp_file_read_as(NDP_FILE_TOKENIZER, path, &vocab, &n);
    if (st == NDP_OK)
        st = ndp_file_read_as(NDP_FILE_TOKENIZER, other, &merges, &n_merges);
    if (st == NDP_OK)
        st = ndp_load_pair(vocab, n, merges, folder, &text);
    if (st == NDP_OK)
        st = ndp_json_parse(text.data, text.length, folder, out);
    ndp_str_release(&text);
    free(vocab);
    free(merges);
    return st;
}

ndp_status ndp_gguf_tokenizer_keys(ndp_gguf *g) {
    source s = {.g = g};
    if (!ndp_tokenizer_exists(g->folder)) {
        ndp_warn(&gguf_log, "'%s' has no tokenizer: the file is of token ids alone", g->folder);
        put_text(g, "tokenizer.ggml.model", "none");
        return NDP_OK;
    }
    NDP_TRY(ndp_tokenizer_create(g->folder, &s.t));
    ndp_status st = read_root(g->folder, &s.root);
    if (st == NDP_OK)
        st = put_all(&s);
    json_object_put(s.root);
    ndp_tokenizer_destroy(s.t);
    return st == NDP_OK && g->keys.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for the keys of a file") : st;
}
