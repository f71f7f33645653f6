/* The pipeline of a tokenizer (tokenizer.h): finding and loading its files, encoding a text stage by stage, decoding
 * ids. What the stages need while they run is taken from a workbench, so that any number of threads may encode. */
#include "text/tokenizer.h"

#include "base/utf8.h"
#include "text/loader.h"
#include "text/workbench.h"
#include <string.h>

enum { BYTES_BOS = 256, BYTES_EOS = 257, BYTES_VOCAB = 258 };

/* ---- create, destroy ---- */

/* Gives the tokenizer to the caller, or destroys it if it failed to be made. */
static ndp_status finish(ndp_tokenizer *t, ndp_status st, ndp_tokenizer **out) {
    if (st == NDP_OK)
        *out = t;
    else
        ndp_tokenizer_destroy(t);
    return st;
}

static ndp_status create_bytes(ndp_tokenizer **out) {
    ndp_tokenizer *t = calloc(1, sizeof *t);
    NDP_CHECK_MEMORY(t, "for a tokenizer");
    t->bytes = true;
    t->bos = BYTES_BOS;
    t->eos = BYTES_EOS;
    t->fingerprint = ndp_hash128_of("bytes", 5);
    return finish(t, ndp_ids_add(&t->prefix, BYTES_BOS), out);
}

ndp_status ndp_tokenizer_of_ids(int64_t vocab, int64_t bos, int64_t eos, const char *why, ndp_tokenizer **out) {
    NDP_CHECK(vocab > 0 && vocab <= INT32_MAX, "a vocabulary of %lld ids", (long long)vocab);
    ndp_tokenizer *t = calloc(1, sizeof *t);
    NDP_CHECK_MEMORY(t, "for a tokenizer");
    t->ids = (int32_t)vocab;
    t->bos = (int32_t)bos;
    t->eos = (int32_t)eos;
    t->fingerprint = ndp_hash128_of("ids", 3);
    t->why_no_texts = ndp_format("%s", why);
    return finish(t, t->why_no_texts ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for a tokenizer"), out);
}

ndp_status ndp_tokenizer_parse(const char *text, size_t size, const char *what, ndp_tokenizer **out) {
    ndp_tokenizer *t = calloc(1, sizeof *t);
    NDP_CHECK_MEMORY(t, "for a tokenizer");
    t->bos = t->eos = -1;
    t->fingerprint = ndp_hash128_of(text, size);
    ndp_status st = ndp_workbenches_create(&t->benches);
    return finish(t, st == NDP_OK ? ndp_tokenizer_load(t, text, size, what) : st, out);
}

static ndp_status create_from_file(const char *path, ndp_tokenizer **out) {
    return NDP_FILE_PARSE(NDP_FILE_TOKENIZER, path, text, size, ndp_tokenizer_parse(text, size, path, out));
}

/* From the texts of vocab.json and merges.txt. */
static ndp_status create_from_texts(const char *vocab, size_t vocab_size, const char *merges, size_t merges_size,
                                    const char *folder, ndp_tokenizer **out) {
    ndp_str json = {0};
    ndp_status st = ndp_load_pair(vocab, vocab_size, merges, folder, &json);
    if (st == NDP_OK)
        st = ndp_tokenizer_parse(json.data, json.length, folder, out);
    ndp_hash128 hashes[2] = {ndp_hash128_of(vocab, vocab_size), ndp_hash128_of(merges, merges_size)};
    if (st == NDP_OK)
        (*out)->fingerprint = ndp_hash128_of((const char *)hashes, sizeof hashes);
    ndp_str_release(&json);
    return st;
}

static ndp_status create_from_pair(const char *vocab_path, const char *merges_path, const char *folder,
                                   ndp_tokenizer **out) {
    char *vocab, *merges;
    size_t vocab_size, merges_size;
    NDP_TRY(ndp_file_read_as(NDP_FILE_TOKENIZER, vocab_path, &vocab, &vocab_size));
    ndp_status st = ndp_file_read_as(NDP_FILE_TOKENIZER, merges_path, &merges, &merges_size);
    if (st == NDP_OK) {
        st = create_from_texts(vocab, vocab_size, merges, merges_size, folder, out);
        free(merges);
    }
    free(vocab);
    return st;
}

/* Paths of the files that a source may consist of. */
typedef struct paths {
    const char *folder, *json, *config, *special, *vocab, *merges;
} paths;

static ndp_status fail_missing(const paths *p) {
    char *model = ndp_format("%s/tokenizer.model", p->folder);
    bool found = model && *p->vocab && ndp_path_exists(model);
    free(model);
    if (found)
        return NDP_FAIL(
            NDP_ENOTSUP,
            "%s: a SentencePiece tokenizer.model alone is not supported; transformers writes the tokenizer.json that "
            "says the same: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
            p->folder);
    return NDP_FAIL(NDP_EINVAL,
                    "'%s' is not there; a tokenizer is \"bytes\", a folder with a tokenizer.json (or vocab.json and "
                    "merges.txt), or such a file",
                    p->json);
}

static bool has_pair(const paths *p) { return ndp_path_exists(p->vocab) && ndp_path_exists(p->merges); }

static ndp_status find_and_create(const paths *p, ndp_tokenizer **out) {
    ndp_tokenizer *t = NULL;
    if (ndp_path_exists(p->json))
        NDP_TRY(create_from_file(p->json, &t));
    else if (has_pair(p))
        NDP_TRY(create_from_pair(p->vocab, p->merges, p->folder, &t));
    else
        return fail_missing(p);
    return finish(t, ndp_tokenizer_load_config(t, p->config, p->special), out);
}

char *ndp_tokenizer_folder(const char *source) {
    const char *slash = strrchr(source, '/');
    return ndp_path_is_folder(source) ? strdup(source)
           : slash                    ? ndp_format("%.*s", (int)(slash - source), source)
                                      : strdup(".");
}

/* Releases nothing: `names` owns all texts, also on failure. */
static ndp_status find_paths(const char *source, ndp_arena *names, paths *out) {
    bool is_folder = ndp_path_is_folder(source);
    char *own = ndp_tokenizer_folder(source);
    const char *folder = own ? ndp_arena_format(names, "%s", own) : NULL;
    free(own);
    *out = (paths){.folder = folder,
                   .json = is_folder ? ndp_arena_format(names, "%s/tokenizer.json", source) : source,
                   .config = folder ? ndp_arena_format(names, "%s/tokenizer_config.json", folder) : NULL,
                   .special = folder ? ndp_arena_format(names, "%s/special_tokens_map.json", folder) : NULL,
                   .vocab = is_folder ? ndp_arena_format(names, "%s/vocab.json", source) : "",
                   .merges = is_folder ? ndp_arena_format(names, "%s/merges.txt", source) : ""};
    return NDP_MEMORY(out->json && out->config && out->special && out->vocab && out->merges, "for a tokenizer");
}

ndp_status ndp_tokenizer_create(const char *source, ndp_tokenizer **out) {
    if (!strcmp(source, "bytes"))
        return create_bytes(out);
    ndp_arena names = {0};
    paths p;
    ndp_status st = find_paths(source, &names, &p);
    if (st == NDP_OK)
        st = find_and_create(&p, out);
    ndp_arena_release(&names);
    return st;
}

bool ndp_tokenizer_exists(const char *source) {
    ndp_arena names = {0};
    paths p;
    bool found = !strcmp(source, "bytes") ||
                 (find_paths(source, &names, &p) == NDP_OK && (ndp_path_exists(p.json) || has_pair(&p)));
    ndp_arena_release(&names);
    return found;
}

void ndp_tokenizer_destroy(ndp_tokenizer *t) {
    if (!t)
        return;
    ndp_arena_release(&t->arena);
    ndp_added_release(&t->raw);
    ndp_text_steps_release(&t->normalizers);
    ndp_added_release(&t->normalized);
    ndp_added_release(&t->rendered);
    ndp_pretokenizers_release(&t->pretokenizers);
    ndp_words_release(&t->words);
    ndp_text_steps_release(&t->decoders);
    ndp_workbenches_destroy(t->benches);
    free(t->special);
    free(t->why_no_texts);
    ndp_ids_release(&t->prefix);
    ndp_ids_release(&t->suffix);
    free(t);
}

int32_t ndp_tokenizer_vocab_size(const ndp_tokenizer *t) {
    return t->bytes ? BYTES_VOCAB : t->ids ? t->ids : (int32_t)t->words.vocab.n;
}
const char *ndp_tokenizer_why_no_texts(const ndp_tokenizer *t) { return t->why_no_texts; }
int32_t ndp_tokenizer_bos(const ndp_tokenizer *t) { return t->bos; }
int32_t ndp_tokenizer_eos(const ndp_tokenizer *t) { return t->eos; }
bool ndp_tokenizer_is_special(const ndp_tokenizer *t, int32_t id) {
    return id >= 0 && id < ndp_tokenizer_vocab_size(t) && (t->special ? t->special[id] : id == t->bos || id == t->eos);
}
ndp_hash128 ndp_tokenizer_fingerprint(const ndp_tokenizer *t) { return t->fingerprint; }

int64_t ndp_tokenizer_prefix(const ndp_tokenizer *t) { return t->prefix.n; }
int64_t ndp_tokenizer_suffix(const ndp_tokenizer *t) { return t->suffix.n; }

int32_t ndp_tokenizer_id(const ndp_tokenizer *t, const char *token) {
    if (t->bytes)
        return !strcmp(token, "<bos>") ? BYTES_BOS : !strcmp(token, "<eos>") ? BYTES_EOS : -1;
    return ndp_vocab_find_any(&t->words.vocab, token, strlen(token));
}

ndp_span ndp_tokenizer_token(const ndp_tokenizer *t, int32_t id) {
    size_t n = 0;
    const char *text = ndp_vocab_text(&t->words.vocab, id, &n);
    return (ndp_span){text, n};
}

/* ---- encode ---- */

typedef struct text_encoding {
    const ndp_tokenizer *t;
    const ndp_added *normalized; /* what is looked for in normalized text */
    ndp_workbench *w;
    ndp_ids *ids;
} text_encoding;

/* A stage of encoding. `first`: how many leading bytes of `text` stem from the user's first character. */
typedef ndp_status text_stage(text_encoding *e, ndp_span text, size_t first);

/* Splits a text at the added tokens and passes the stretches between them to `next`. */
static ndp_status cut(text_encoding *e, const ndp_added *added, ndp_span text, size_t first, text_stage *next) {
    ndp_added_walk w = {added, text, 0, 0};
    size_t done = 0, from, to;
    const ndp_added_token *token;
    while ((token = ndp_added_next(&w, &from, &to))) {
        if (from > done)
            NDP_TRY(next(e, (ndp_span){text.data + done, from - done}, first > done ? first - done : 0));
        NDP_TRY(ndp_ids_add(e->ids, token->id));
        done = to;
    }
    return done < text.n ? next(e, (ndp_span){text.data + done, text.n - done}, first > done ? first - done : 0)
                         : NDP_OK;
}

static ndp_status encode_word(void *user, ndp_span word) {
    text_encoding *e = user;
    return ndp_words_encode(&e->t->words, &e->w->words, word, e->ids);
}

static ndp_status encode_normalized(text_encoding *e, ndp_span text, size_t first) {
    return ndp_pretokenize(&e->t->pretokenizers, &e->w->pretokenize, &e->w->regex, text, first, encode_word, e);
}

static ndp_status encode_raw(text_encoding *e, ndp_span text, size_t first) {
    ndp_span normal;
    NDP_TRY(ndp_normalize(&e->t->normalizers, text, &e->w->normalize, &e->w->regex, &first, &normal));
    return cut(e, e->normalized, normal, first, encode_normalized);
}

static ndp_status encode_bytes(const char *text, size_t n, ndp_ids *ids) {
    NDP_TRY(ndp_array_reserve(&ids->items, &ids->capacity, ids->n + (int64_t)n, sizeof *ids->items));
    for (size_t i = 0; i < n; i++)
        ids->items[ids->n++] = (unsigned char)text[i];
    return NDP_OK;
}

static ndp_status encode_text(const ndp_tokenizer *t, const ndp_added *normalized, const char *text, size_t n,
                              ndp_ids *ids) {
    size_t valid = ndp_utf8_valid_prefix(text, n);
    if (valid < n)
        return NDP_FAIL(NDP_EINVAL, "the text is not valid UTF-8 at byte %zu", valid);
    text_encoding e = {.t = t, .normalized = normalized, .ids = ids};
    NDP_TRY(ndp_workbench_take(t->benches, &e.w));
    ndp_status st = cut(&e, &t->raw, (ndp_span){text, n}, n ? ndp_utf8_length((unsigned char)text[0]) : 0, encode_raw);
    ndp_workbench_put(t->benches, e.w, n);
    return st;
}

static ndp_status fail_no_texts(const ndp_tokenizer *t) { return NDP_FAIL(NDP_ENOTSUP, "%s", t->why_no_texts); }

ndp_status ndp_tokenizer_encode(const ndp_tokenizer *t, const char *text, size_t n, bool add_special, ndp_ids *ids) {
    if (t->ids)
        return n ? fail_no_texts(t) : NDP_OK;
    for (int64_t i = 0; add_special && i < t->prefix.n; i++)
        NDP_TRY(ndp_ids_add(ids, t->prefix.items[i]));
    NDP_TRY(t->bytes ? encode_bytes(text, n, ids) : encode_text(t, &t->normalized, text, n, ids));
    for (int64_t i = 0; add_special && i < t->suffix.n; i++)
        NDP_TRY(ndp_ids_add(ids, t->suffix.items[i]));
    return NDP_OK;
}

ndp_status ndp_tokenizer_encode_rendered(const ndp_tokenizer *t, const char *text, size_t n, ndp_ids *ids) {
    if (t->ids || t->bytes)
        return ndp_tokenizer_encode(t, text, n, false, ids);
    return encode_text(t, &t->rendered, text, n, ids);
}

/* ---- decode ---- */

static ndp_status fail_id(const ndp_tokenizer *t, int32_t id) {
    return NDP_FAIL(NDP_EINVAL, "the id %d has no token in this vocabulary of %d", id, ndp_tokenizer_vocab_size(t));
}

static ndp_status decode_bytes(const ndp_tokenizer *t, const int32_t *ids, int64_t n, bool skip_special, ndp_str *out) {
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= BYTES_VOCAB)
            return fail_id(t, ids[i]);
        char byte = (char)ids[i];
        if (ids[i] < 256)
            ndp_str_add_bytes(out, &byte, 1);
        else if (!skip_special)
            ndp_str_add(out, ids[i] == BYTES_BOS ? "<bos>" : "<eos>");
    }
    return NDP_OK;
}

static ndp_status collect_tokens(const ndp_tokenizer *t, const int32_t *ids, int64_t n, bool skip_special,
                                 ndp_pieces *pieces) {
    for (int64_t i = 0; i < n; i++) {
        size_t length = 0;
        const char *text = ndp_vocab_text(&t->words.vocab, ids[i], &length);
        if (!text)
            return fail_id(t, ids[i]);
        if (skip_special && t->special[ids[i]])
            continue;
        if (t->join_by_space && pieces->n)
            NDP_TRY(ndp_pieces_add(pieces, " ", 1));
        NDP_TRY(ndp_pieces_add(pieces, text, length));
    }
    return NDP_OK;
}

static ndp_status decode_text(const ndp_tokenizer *t, const int32_t *ids, int64_t n, bool skip_special, ndp_str *out) {
    ndp_pieces pieces = {0};
    ndp_workbench *w;
    NDP_TRY(ndp_workbench_take(t->benches, &w));
    ndp_status st = collect_tokens(t, ids, n, skip_special, &pieces);
    if (st == NDP_OK)
        st = ndp_decode_pieces(&t->decoders, &w->regex, &pieces);
    if (st == NDP_OK)
        ndp_str_add_bytes(out, pieces.text.data, pieces.text.length);
    ndp_workbench_put(t->benches, w, 0);
    ndp_pieces_release(&pieces);
    return st;
}

ndp_status ndp_tokenizer_decode(const ndp_tokenizer *t, const int32_t *ids, int64_t n, bool skip_special,
                                ndp_str *out) {
    if (t->ids)
        return n ? fail_no_texts(t) : NDP_OK;
    NDP_TRY(t->bytes ? decode_bytes(t, ids, n, skip_special, out) : decode_text(t, ids, n, skip_special, out));
    return NDP_MEMORY(!out->failed, "to decode %lld tokens", (long long)n);
}
