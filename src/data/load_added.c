/* The added tokens of a tokenizer.json. */
#include "data/loader.h"
#include <stdlib.h>
#include <string.h>

/* Into the vocabulary, unless it is there already with the same id. */
static ndp_status enter_token(const ndp_loader *l, const char *text, size_t n, int64_t id) {
    int32_t known = ndp_vocab_find(&l->t->words.vocab, text, n);
    if (known < 0)
        return ndp_vocab_add(&l->t->words.vocab, l->what, text, n, id, NDP_VOCAB_NOT_FOUND);
    if (known != id)
        return NDP_FAIL(NDP_EFORMAT, "%s: the added token '%s' has the id %lld, but %d in the vocabulary", l->what,
                        text, (long long)id, known);
    return NDP_OK;
}

/* The text to look for: as it is, or as the normalizers make it when the token is looked for in normalized text. */
static ndp_status add_token(const ndp_loader *l, ndp_added_token token, bool normalized) {
    ndp_normalize_scratch scratch = {0};
    ndp_regex_scratch regex = {0};
    ndp_span text = {token.text, token.length};
    size_t first = 0;
    ndp_status st = normalized ? ndp_normalize(&l->t->normalizers, text, &scratch, &regex, &first, &text) : NDP_OK;
    char *kept = st == NDP_OK ? ndp_arena_alloc(&l->t->arena, text.n + 1) : NULL;
    if (kept && text.n) {
        memcpy(kept, text.data, text.n);
        token.text = kept;
        token.length = text.n;
        st = ndp_added_add(normalized ? &l->t->normalized : &l->t->raw, token);
    } else if (st == NDP_OK && !kept) {
        st = NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for a tokenizer", l->what);
    }
    ndp_normalize_scratch_release(&scratch);
    ndp_regex_scratch_release(&regex);
    return st;
}

static ndp_status load_token(const ndp_loader *l, struct json_object *o, bool special_ones) {
    struct json_object *content = NULL;
    ndp_added_token token = {0};
    int64_t id = -1;
    bool normalized = false, special = false;
    NDP_TRY(NDP_LOAD_KEYS(l, "an added token", o, "id", "content", "single_word", "lstrip", "rstrip", "normalized",
                          "special"));
    NDP_TRY(ndp_load_need(l, "an added token", o, "content", json_type_string, &content));
    NDP_TRY(ndp_json_bool(o, l->what, "special", &special));
    if (special != special_ones)
        return NDP_OK;
    token.text = json_object_get_string(content);
    token.length = (size_t)json_object_get_string_len(content);
    NDP_TRY(ndp_json_int(o, l->what, "id", 0, NDP_VOCAB_MAX_ID, &id));
    NDP_TRY(ndp_json_bool(o, l->what, "normalized", &normalized));
    NDP_TRY(ndp_json_bool(o, l->what, "single_word", &token.single_word));
    NDP_TRY(ndp_json_bool(o, l->what, "lstrip", &token.lstrip));
    NDP_TRY(ndp_json_bool(o, l->what, "rstrip", &token.rstrip));
    if (id < 0 || !token.length)
        return NDP_FAIL(NDP_EFORMAT, "%s: an added token without %s", l->what, token.length ? "an id" : "a text");
    token.id = (int32_t)id;
    NDP_TRY(enter_token(l, token.text, token.length, id));
    return add_token(l, token, normalized);
}

static ndp_status mark_special(const ndp_loader *l, struct json_object *list, size_t n) {
    ndp_tokenizer *t = l->t;
    t->special = calloc((size_t)t->words.vocab.n + 1, sizeof *t->special);
    if (!t->special)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for a tokenizer", l->what);
    for (size_t i = 0; i < n; i++) {
        struct json_object *o = json_object_array_get_idx(list, i);
        int64_t id = 0;
        bool special = false;
        NDP_TRY(ndp_json_int(o, l->what, "id", 0, t->words.vocab.n - 1, &id));
        NDP_TRY(ndp_json_bool(o, l->what, "special", &special));
        t->special[id] |= special;
    }
    return NDP_OK;
}

/* Special ones first: of equal texts the first wins, as in the reference. */
ndp_status ndp_load_added(const ndp_loader *l, struct json_object *list) {
    if (list && !json_object_is_type(list, json_type_array))
        return NDP_FAIL(NDP_EFORMAT, "%s: 'added_tokens' is not a list", l->what);
    size_t n = list ? json_object_array_length(list) : 0;
    for (int special = 1; special >= 0; special--)
        for (size_t i = 0; i < n; i++)
            NDP_TRY(load_token(l, json_object_array_get_idx(list, i), special));
    NDP_TRY(ndp_added_build(&l->t->raw));
    NDP_TRY(ndp_added_build(&l->t->normalized));
    return mark_special(l, list, n);
}
