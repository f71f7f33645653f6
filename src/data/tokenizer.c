#include "data/tokenizer.h"

#include "data/tokenizer_parts.h"
#include <string.h>
#include <xxhash.h>

enum { BYTES_BOS = 256, BYTES_EOS = 257, BYTES_VOCAB = 258 };

/* ---- life ---- */

static ndp_hash128 hash_of(const char *text, size_t n) {
    XXH128_hash_t h = XXH3_128bits(text, n);
    return (ndp_hash128){h.low64, h.high64};
}

static ndp_status create_bytes(ndp_tokenizer **out) {
    ndp_tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a tokenizer");
    t->bytes = true;
    t->bos = BYTES_BOS;
    t->eos = BYTES_EOS;
    t->fingerprint = hash_of("bytes", 5);
    ndp_status st = ndp_ids_add(&t->prefix, BYTES_BOS);
    if (st != NDP_OK) {
        ndp_tokenizer_destroy(t);
        return st;
    }
    *out = t;
    return NDP_OK;
}

ndp_status ndp_tokenizer_parse(const char *text, size_t size, const char *what, ndp_tokenizer **out) {
    ndp_tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a tokenizer");
    t->bos = t->eos = -1;
    t->fingerprint = hash_of(text, size);
    ndp_status st = ndp_tokenizer_load(t, text, size, what);
    if (st != NDP_OK) {
        ndp_tokenizer_destroy(t);
        return st;
    }
    *out = t;
    return NDP_OK;
}

static ndp_status create_from_file(const char *path, const char *config_path, ndp_tokenizer **out) {
    char *text;
    size_t size;
    ndp_tokenizer *t = NULL;
    NDP_TRY(ndp_file_read(path, &text, &size));
    ndp_status st = ndp_tokenizer_parse(text, size, path, &t);
    free(text);
    if (st == NDP_OK && ndp_path_exists(config_path))
        st = ndp_tokenizer_load_config(t, config_path);
    if (st != NDP_OK) {
        ndp_tokenizer_destroy(t);
        return st;
    }
    *out = t;
    return NDP_OK;
}

ndp_status ndp_tokenizer_create(const char *source, ndp_tokenizer **out) {
    if (!strcmp(source, "bytes"))
        return create_bytes(out);
    bool folder = ndp_path_is_folder(source);
    const char *slash = strrchr(source, '/');
    char *path = folder ? ndp_format("%s/tokenizer.json", source) : strdup(source);
    char *config = folder  ? ndp_format("%s/tokenizer_config.json", source)
                   : slash ? ndp_format("%.*s/tokenizer_config.json", (int)(slash - source), source)
                           : strdup("tokenizer_config.json");
    ndp_status st;
    if (!path || !config)
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory for a tokenizer");
    else if (!ndp_path_exists(path))
        st = NDP_FAIL(NDP_EIO,
                      "'%s' is not there; a tokenizer is \"bytes\", a folder with a tokenizer.json, or such a file",
                      path);
    else
        st = create_from_file(path, config, out);
    free(path);
    free(config);
    return st;
}

void ndp_tokenizer_destroy(ndp_tokenizer *t) {
    if (!t)
        return;
    ndp_arena_release(&t->arena);
    ndp_bpe_release(&t->bpe);
    free(t->raw.tokens);
    free(t->normalized.tokens);
    free(t->normalizers.items);
    free(t->decoders.items);
    free(t->special);
    ndp_ids_release(&t->prefix);
    ndp_ids_release(&t->suffix);
    free(t);
}

int32_t ndp_tokenizer_vocab_size(const ndp_tokenizer *t) { return t->bytes ? BYTES_VOCAB : (int32_t)t->bpe.vocab.n; }
int32_t ndp_tokenizer_bos(const ndp_tokenizer *t) { return t->bos; }
int32_t ndp_tokenizer_eos(const ndp_tokenizer *t) { return t->eos; }
ndp_hash128 ndp_tokenizer_fingerprint(const ndp_tokenizer *t) { return t->fingerprint; }

int32_t ndp_tokenizer_id(const ndp_tokenizer *t, const char *token) {
    size_t length = strlen(token);
    int32_t id = ndp_vocab_find(&t->bpe.vocab, token, length);
    if (id >= 0)
        return id;
    for (int64_t i = 0; i < t->bpe.vocab.n; i++) { /* tokens that were only added are not indexed */
        size_t n;
        const char *text = ndp_vocab_text(&t->bpe.vocab, i, &n);
        if (text && n == length && !memcmp(text, token, n))
            return (int32_t)i;
    }
    return -1;
}

/* ---- encode ---- */

typedef struct encoding {
    const ndp_tokenizer *t;
    ndp_ids *ids;
    ndp_bpe_scratch scratch;
    ndp_str a, b; /* the normalizers' */
} encoding;

/* Cuts a text at the added tokens; what lies between goes to `next`. */
static ndp_status split(encoding *e, const ndp_matcher *m, ndp_span text, ndp_status (*next)(encoding *, ndp_span)) {
    size_t from = 0, at;
    const ndp_added_token *token;
    while ((token = ndp_matcher_find(m, text, from, &at))) {
        if (at > from)
            NDP_TRY(next(e, (ndp_span){text.data + from, at - from}));
        NDP_TRY(ndp_ids_add(e->ids, token->id));
        from = at + token->length;
    }
    return from < text.n ? next(e, (ndp_span){text.data + from, text.n - from}) : NDP_OK;
}

static ndp_status run_model(encoding *e, ndp_span text) {
    return ndp_bpe_encode(&e->t->bpe, text.data, text.n, &e->scratch, e->ids);
}

static ndp_status run_normalizers(encoding *e, ndp_span text) {
    ndp_span normal;
    NDP_TRY(ndp_normalize(&e->t->normalizers, text, &e->a, &e->b, &normal));
    return split(e, &e->t->normalized, normal, run_model);
}

static ndp_status encode_bytes(const char *text, size_t n, ndp_ids *ids) {
    NDP_TRY(ndp_array_reserve(&ids->items, &ids->capacity, ids->n + (int64_t)n, sizeof *ids->items));
    for (size_t i = 0; i < n; i++)
        ids->items[ids->n++] = (unsigned char)text[i];
    return NDP_OK;
}

static ndp_status encode_text(const ndp_tokenizer *t, const char *text, size_t n, ndp_ids *ids) {
    size_t valid = ndp_utf8_valid_prefix(text, n);
    if (valid < n)
        return NDP_FAIL(NDP_EINVAL, "the text is not valid UTF-8 at byte %zu", valid);
    encoding e = {.t = t, .ids = ids};
    ndp_status st = split(&e, &t->raw, (ndp_span){text, n}, run_normalizers);
    ndp_bpe_scratch_release(&e.scratch);
    ndp_str_release(&e.a);
    ndp_str_release(&e.b);
    return st;
}

ndp_status ndp_tokenizer_encode(const ndp_tokenizer *t, const char *text, size_t n, bool add_special, ndp_ids *ids) {
    for (int64_t i = 0; add_special && i < t->prefix.n; i++)
        NDP_TRY(ndp_ids_add(ids, t->prefix.items[i]));
    NDP_TRY(t->bytes ? encode_bytes(text, n, ids) : encode_text(t, text, n, ids));
    for (int64_t i = 0; add_special && i < t->suffix.n; i++)
        NDP_TRY(ndp_ids_add(ids, t->suffix.items[i]));
    return NDP_OK;
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
        const char *text = ndp_vocab_text(&t->bpe.vocab, ids[i], &length);
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

ndp_status ndp_tokenizer_decode(const ndp_tokenizer *t, const int32_t *ids, int64_t n, bool skip_special,
                                ndp_str *out) {
    ndp_pieces pieces = {0};
    ndp_status st;
    if (t->bytes)
        st = decode_bytes(t, ids, n, skip_special, out);
    else {
        st = collect_tokens(t, ids, n, skip_special, &pieces);
        if (st == NDP_OK)
            st = ndp_decode_pieces(&t->decoders, &pieces);
        if (st == NDP_OK)
            ndp_str_add_bytes(out, pieces.text.data, pieces.text.length);
    }
    ndp_pieces_release(&pieces);
    if (st == NDP_OK && out->failed)
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory to decode %lld tokens", (long long)n);
    return st;
}
