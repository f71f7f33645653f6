/* The model of a tokenizer.json: BPE or Unigram. */
#include "data/loader.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- BPE ---- */

static ndp_status load_vocab(const ndp_loader *l, struct json_object *model) {
    struct json_object *vocab = NULL;
    NDP_TRY(ndp_load_need(l, "the model", model, "vocab", json_type_object, &vocab));
    json_object_object_foreach(vocab, token, id) {
        if (!json_object_is_type(id, json_type_int))
            return NDP_FAIL(NDP_EFORMAT, "%s: the id of '%s' in the vocabulary is no whole number", l->what, token);
        NDP_TRY(ndp_vocab_add(&l->t->words.vocab, l->what, token, strlen(token), json_object_get_int64(id), true));
    }
    if (!l->t->words.vocab.n)
        return NDP_FAIL(NDP_EFORMAT, "%s: the vocabulary is empty", l->what);
    return NDP_OK;
}

/* One side of a merge: `n` bytes of text to the id. */
static ndp_status merge_side(const ndp_loader *l, size_t i, const char *text, size_t n, int32_t *id) {
    *id = ndp_vocab_find(&l->t->words.vocab, text, n);
    return *id >= 0 ? NDP_OK
                    : NDP_FAIL(NDP_EFORMAT, "%s: merge %zu names '%.*s', which is not in the vocabulary", l->what, i,
                               (int)n, text);
}

/* "a b", or ["a", "b"] as newer files write it. */
static ndp_status load_merge(const ndp_loader *l, size_t i, struct json_object *o, int32_t pair[2]) {
    if (json_object_is_type(o, json_type_array) && json_object_array_length(o) == 2) {
        for (size_t side = 0; side < 2; side++) {
            struct json_object *part = json_object_array_get_idx(o, side);
            if (!json_object_is_type(part, json_type_string))
                return NDP_FAIL(NDP_EFORMAT, "%s: merge %zu is not two strings", l->what, i);
            NDP_TRY(
                merge_side(l, i, json_object_get_string(part), (size_t)json_object_get_string_len(part), &pair[side]));
        }
        return NDP_OK;
    }
    const char *text = json_object_is_type(o, json_type_string) ? json_object_get_string(o) : "";
    const char *space = strchr(text, ' ');
    if (!space || strchr(space + 1, ' '))
        return NDP_FAIL(NDP_EFORMAT, "%s: merge %zu is not two tokens with a space between them", l->what, i);
    NDP_TRY(merge_side(l, i, text, (size_t)(space - text), &pair[0]));
    return merge_side(l, i, space + 1, strlen(space + 1), &pair[1]);
}

static ndp_status load_merges(const ndp_loader *l, struct json_object *model) {
    struct json_object *merges = NULL;
    NDP_TRY(ndp_load_need(l, "the model", model, "merges", json_type_array, &merges));
    size_t n = json_object_array_length(merges);
    int32_t(*pairs)[2] = calloc(n + 1, sizeof *pairs);
    if (!pairs)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for %zu merges", l->what, n);
    ndp_status st = NDP_OK;
    for (size_t i = 0; i < n && st == NDP_OK; i++)
        st = load_merge(l, i, json_object_array_get_idx(merges, i), pairs[i]);
    if (st == NDP_OK)
        st = ndp_bpe_build(&l->t->words.bpe, l->what, (const int32_t(*)[2])pairs, (int64_t)n);
    free(pairs);
    return st;
}

/* Options of the reference's BPE that change ids and are not built; most files hold them as null. */
static ndp_status refuse_options(const ndp_loader *l, struct json_object *model) {
    const char *prefix = "", *suffix = "";
    double dropout = 0;
    NDP_TRY(ndp_json_string(model, l->what, "continuing_subword_prefix", &prefix));
    NDP_TRY(ndp_json_string(model, l->what, "end_of_word_suffix", &suffix));
    NDP_TRY(ndp_json_double(model, l->what, "dropout", &dropout));
    if (prefix[0])
        return NDP_FAIL(NDP_ENOTSUP, "%s: continuing_subword_prefix '%s' is not built yet", l->what, prefix);
    if (suffix[0])
        return NDP_FAIL(NDP_ENOTSUP, "%s: end_of_word_suffix '%s' is not built yet", l->what, suffix);
    if (dropout != 0)
        return NDP_FAIL(NDP_ENOTSUP, "%s: merges with dropout %g are not built yet", l->what, dropout);
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
    NDP_TRY(load_vocab(l, model));
    b->vocab = &l->t->words.vocab;
    b->unknown = unknown ? ndp_vocab_find(b->vocab, unknown, strlen(unknown)) : -1;
    if (unknown && b->unknown < 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: unk_token '%s' is not in the vocabulary", l->what, unknown);
    return load_merges(l, model);
}

/* ---- Unigram ---- */

/* ["piece", score], the id being its place in the list. */
static ndp_status load_piece(const ndp_loader *l, struct json_object *o, size_t id, double *score) {
    struct json_object *text = NULL, *number = NULL;
    if (json_object_is_type(o, json_type_array) && json_object_array_length(o) == 2) {
        text = json_object_array_get_idx(o, 0);
        number = json_object_array_get_idx(o, 1);
    }
    if (!json_object_is_type(text, json_type_string) ||
        (!json_object_is_type(number, json_type_double) && !json_object_is_type(number, json_type_int)))
        return NDP_FAIL(NDP_EFORMAT, "%s: entry %zu of the vocabulary is not a text and a score", l->what, id);
    *score = json_object_get_double(number);
    if (!isfinite(*score))
        return NDP_FAIL(NDP_EFORMAT, "%s: the score of '%s' in the vocabulary is no number", l->what,
                        json_object_get_string(text));
    return ndp_vocab_add(&l->t->words.vocab, l->what, json_object_get_string(text),
                         (size_t)json_object_get_string_len(text), (int64_t)id, true);
}

static ndp_status load_pieces(const ndp_loader *l, struct json_object *list, double *scores) {
    for (size_t i = 0; i < json_object_array_length(list); i++)
        NDP_TRY(load_piece(l, json_object_array_get_idx(list, i), i, &scores[i]));
    return NDP_OK;
}

static ndp_status load_unigram(const ndp_loader *l, struct json_object *model) {
    ndp_words *w = &l->t->words;
    struct json_object *list = NULL;
    int64_t unknown = -1;
    bool byte_fallback = false;
    NDP_TRY(NDP_LOAD_KEYS(l, "the model", model, "type", "unk_id", "vocab", "byte_fallback"));
    NDP_TRY(ndp_load_need(l, "the model", model, "vocab", json_type_array, &list));
    NDP_TRY(ndp_json_bool(model, l->what, "byte_fallback", &byte_fallback));
    size_t n = json_object_array_length(list);
    if (!n)
        return NDP_FAIL(NDP_EFORMAT, "%s: the vocabulary is empty", l->what);
    NDP_TRY(ndp_json_int(model, l->what, "unk_id", 0, (int64_t)n - 1, &unknown));
    double *scores = calloc(n, sizeof *scores);
    if (!scores)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for %zu scores", l->what, n);
    ndp_status st = load_pieces(l, list, scores);
    if (st != NDP_OK) {
        free(scores);
        return st;
    }
    w->is_unigram = true;
    return ndp_unigram_build(&w->unigram, &w->vocab, scores, (int32_t)unknown, byte_fallback);
}

/* Old files of BPE do not name their type. */
ndp_status ndp_load_model(const ndp_loader *l, struct json_object *model) {
    const char *type = ndp_load_member(model, "merges") ? "BPE" : "";
    NDP_TRY(ndp_json_string(model, l->what, "type", &type));
    if (!strcmp(type, "BPE"))
        return load_bpe(l, model);
    if (!strcmp(type, "Unigram"))
        return load_unigram(l, model);
    if (type[0])
        return ndp_load_fail_type(l, "model", type);
    return NDP_FAIL(NDP_EFORMAT, "%s: the model needs 'type', of type string", l->what);
}
