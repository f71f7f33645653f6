/* The model of a tokenizer.json: BPE or Unigram. */
#include "text/loader.h"
#include <stdlib.h>
#include <string.h>

/* ---- lists ---- */

/* Reads one entry of a list of the model, {"key": value, ...} or [value, ...]. */
typedef ndp_status read_entry(const ndp_loader *l, ndp_json_cursor *c, int64_t i, void *user);

static ndp_status read_entries(const ndp_loader *l, ndp_json_cursor *c, read_entry *entry, void *user) {
    char close = ndp_json_accept(c, '{') ? '}' : ']';
    if (close == ']')
        NDP_TRY(ndp_json_expect(c, '['));
    for (int64_t i = 0;; i++) {
        bool more;
        NDP_TRY(ndp_json_next_entry(c, close, i == 0, &more));
        if (!more)
            return NDP_OK;
        NDP_TRY(entry(l, c, i, user));
    }
}

/* The list is empty in `model`: it is read from the text. */
static ndp_status read_list(const ndp_loader *l, struct json_object *model, const ndp_json_part *part,
                            enum json_type type, read_entry *entry, void *user) {
    struct json_object *list = NULL;
    NDP_TRY(ndp_load_need(l, "the model", model, part->key, type, &list));
    if (!part->end)
        return NDP_FAIL(NDP_EFORMAT, "%s: the model's '%s' is not found", l->what, part->key);
    ndp_json_cursor c = {.text = l->text, .what = l->what, .at = part->begin, .end = part->end};
    ndp_status st = read_entries(l, &c, entry, user);
    ndp_json_cursor_release(&c);
    return st;
}

/* ---- BPE ---- */

/* "token": id. */
static ndp_status read_word(const ndp_loader *l, ndp_json_cursor *c, int64_t i, void *user) {
    (void)i, (void)user;
    const char *token;
    size_t n;
    int64_t id;
    NDP_TRY(ndp_json_next_string(c, &token, &n));
    NDP_TRY(ndp_json_expect(c, ':'));
    if (ndp_json_next_int(c, &id) != NDP_OK)
        return NDP_FAIL(NDP_EFORMAT, "%s: the id of '%.*s' in the vocabulary is not a whole number", l->what, (int)n,
                        token);
    return ndp_vocab_add(&l->t->words.vocab, l->what, token, n, id, NDP_VOCAB_FOUND_ONCE);
}

/* Merges, as pairs of ids in order of rank. */
typedef struct pairs {
    int32_t (*items)[2];
    int64_t n, capacity;
} pairs;

/* One side of a merge: finds the id of `n` bytes of text. */
static ndp_status merge_side(const ndp_loader *l, int64_t i, const char *text, size_t n, int32_t *id) {
    *id = ndp_vocab_find(&l->t->words.vocab, text, n);
    return *id >= 0 ? NDP_OK
                    : NDP_FAIL(NDP_EFORMAT, "%s: merge %lld names '%.*s', which is not in the vocabulary", l->what,
                               (long long)i, (int)n, text);
}

/* ["a", "b"], after its opening bracket. */
static ndp_status read_sides(const ndp_loader *l, ndp_json_cursor *c, int64_t i, int32_t pair[2]) {
    bool whole = true;
    for (int side = 0; side < 2 && whole; side++) {
        const char *text = "";
        size_t n = 0;
        whole = (side == 0 || ndp_json_accept(c, ',')) && ndp_json_next_string(c, &text, &n) == NDP_OK;
        if (whole)
            NDP_TRY(merge_side(l, i, text, n, &pair[side]));
    }
    return whole && ndp_json_accept(c, ']')
               ? NDP_OK
               : NDP_FAIL(NDP_EFORMAT, "%s: merge %lld is not two strings", l->what, (long long)i);
}

/* "a b", or ["a", "b"] in newer files. */
static ndp_status read_merge(const ndp_loader *l, ndp_json_cursor *c, int64_t i, void *user) {
    pairs *all = user;
    NDP_TRY(ndp_array_reserve(&all->items, &all->capacity, all->n + 1, sizeof *all->items));
    int32_t *pair = all->items[all->n++];
    if (ndp_json_accept(c, '['))
        return read_sides(l, c, i, pair);
    const char *text = "", *space = NULL;
    size_t n = 0;
    if (ndp_json_next_string(c, &text, &n) == NDP_OK)
        space = memchr(text, ' ', n);
    if (!space || memchr(space + 1, ' ', n - (size_t)(space + 1 - text)))
        return NDP_FAIL(NDP_EFORMAT, "%s: merge %lld is not two tokens with a space between them", l->what,
                        (long long)i);
    NDP_TRY(merge_side(l, i, text, (size_t)(space - text), &pair[0]));
    return merge_side(l, i, space + 1, n - (size_t)(space + 1 - text), &pair[1]);
}

static ndp_status load_merges(const ndp_loader *l, struct json_object *model) {
    pairs all = {0};
    ndp_status st = read_list(l, model, &l->merges, json_type_array, read_merge, &all);
    if (st == NDP_OK)
        st = ndp_bpe_build(&l->t->words.bpe, l->what, (const int32_t(*)[2])all.items, all.n);
    free(all.items);
    return st;
}

/* Options of the reference's BPE that change ids and are not supported; most files have them as null. */
static ndp_status refuse_options(const ndp_loader *l, struct json_object *model) {
    const char *prefix = "", *suffix = "";
    double dropout = 0;
    NDP_TRY(ndp_json_string(model, l->what, "continuing_subword_prefix", &prefix));
    NDP_TRY(ndp_json_string(model, l->what, "end_of_word_suffix", &suffix));
    NDP_TRY(ndp_json_double(model, l->what, "dropout", &dropout));
    if (prefix[0])
        return NDP_FAIL(NDP_ENOTSUP, "%s: continuing_subword_prefix '%s' is not supported", l->what, prefix);
    if (suffix[0])
        return NDP_FAIL(NDP_ENOTSUP, "%s: end_of_word_suffix '%s' is not supported", l->what, suffix);
    if (dropout != 0)
        return NDP_FAIL(NDP_ENOTSUP, "%s: merges with dropout %g are not supported", l->what, dropout);
    return NDP_OK;
}

static ndp_status load_bpe(const ndp_loader *l, struct json_object *model) {
    ndp_bpe *b = &l->t->words.bpe;
    const char *unknown = NULL;
    NDP_TRY(NDP_LOAD_KEYS(l, "the model", model, "type", "dropout", "unk_token", "continuing_subword_prefix",
                          "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"));
    NDP_TRY(refuse_options(l, model));
    NDP_TRY(ndp_json_bool(model, l->what, "fuse_unk", &b->fuse_unknown));
    NDP_TRY(ndp_json_bool(model, l->what, "byte_fallback", &b->byte_fallback));
    NDP_TRY(ndp_json_bool(model, l->what, "ignore_merges", &b->ignore_merges));
    NDP_TRY(ndp_json_string(model, l->what, "unk_token", &unknown));
    NDP_TRY(read_list(l, model, &l->vocab, json_type_object, read_word, NULL));
    if (!l->t->words.vocab.n)
        return NDP_FAIL(NDP_EFORMAT, "%s: the vocabulary is empty", l->what);
    b->vocab = &l->t->words.vocab;
    b->unknown = unknown ? ndp_vocab_find(b->vocab, unknown, strlen(unknown)) : -1;
    if (unknown && b->unknown < 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: unk_token '%s' is not in the vocabulary", l->what, unknown);
    return load_merges(l, model);
}

/* ---- Unigram ---- */

typedef struct scores {
    double *items;
    int64_t capacity;
} scores;

/* ["piece", score]; its index in the list is the id. Trainers write a piece twice if special tokens occur in their
 * texts; the last one counts, as in the reference. */
static ndp_status read_piece(const ndp_loader *l, ndp_json_cursor *c, int64_t i, void *user) {
    scores *all = user;
    const char *text = "";
    size_t n = 0;
    NDP_TRY(ndp_array_reserve(&all->items, &all->capacity, i + 1, sizeof *all->items));
    bool whole = ndp_json_accept(c, '[') && ndp_json_next_string(c, &text, &n) == NDP_OK;
    if (whole)
        NDP_TRY(ndp_vocab_add(&l->t->words.vocab, l->what, text, n, i, NDP_VOCAB_FOUND_LAST));
    whole = whole && ndp_json_accept(c, ',') && ndp_json_next_double(c, &all->items[i]) == NDP_OK;
    return whole && ndp_json_accept(c, ']')
               ? NDP_OK
               : NDP_FAIL(NDP_EFORMAT, "%s: entry %lld of the vocabulary is not a text and a score", l->what,
                          (long long)i);
}

static ndp_status load_unigram(const ndp_loader *l, struct json_object *model) {
    ndp_words *w = &l->t->words;
    int64_t unknown = -1;
    bool byte_fallback = false;
    scores all = {0};
    NDP_TRY(NDP_LOAD_KEYS(l, "the model", model, "type", "unk_id", "vocab", "byte_fallback"));
    NDP_TRY(ndp_json_bool(model, l->what, "byte_fallback", &byte_fallback));
    NDP_TRY(ndp_json_int(model, l->what, "unk_id", 0, NDP_VOCAB_MAX_ID, &unknown));
    ndp_status st = read_list(l, model, &l->vocab, json_type_array, read_piece, &all);
    if (st == NDP_OK && !w->vocab.n)
        st = NDP_FAIL(NDP_EFORMAT, "%s: the vocabulary is empty", l->what);
    else if (st == NDP_OK && unknown >= w->vocab.n)
        st = NDP_FAIL(NDP_EFORMAT, "%s: unk_id is %lld, beyond the vocabulary of %lld", l->what, (long long)unknown,
                      (long long)w->vocab.n);
    if (st != NDP_OK) {
        free(all.items);
        return st;
    }
    w->is_unigram = true;
    ndp_unigram_init(&w->unigram, &w->vocab, all.items, (int32_t)unknown, byte_fallback);
    return NDP_OK;
}

/* Older BPE files do not name their type. */
ndp_status ndp_load_model(const ndp_loader *l, struct json_object *model) {
    const char *type = json_object_object_get(model, "merges") ? "BPE" : "";
    NDP_TRY(ndp_json_string(model, l->what, "type", &type));
    if (!strcmp(type, "BPE"))
        return load_bpe(l, model);
    if (!strcmp(type, "Unigram"))
        return load_unigram(l, model);
    if (type[0])
        return ndp_load_fail_type(l, "model", type);
    return NDP_FAIL(NDP_EFORMAT, "%s: the model needs 'type', of type string", l->what);
}
