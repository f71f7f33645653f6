/* The added tokens of a tokenizer.json. */
#include "text/loader.h"
#include <stdlib.h>
#include <string.h>

/* State while the added tokens are read. */
typedef struct listed {
    int64_t next;          /* id of the next token that is not in the model's vocabulary: ids continue without holes */
    ndp_prefixes contents; /* of all tokens so far */
} listed;

/* Adds a token to the vocabulary, unless it is there already with the same id. The reference numbers these tokens
 * itself and ignores the file's ids, so a file with other ids would mean other ids there. */
static ndp_status enter_token(const ndp_loader *l, listed *all, const char *text, size_t n, int64_t id) {
    ndp_vocab *v = &l->t->words.vocab;
    int32_t known = ndp_vocab_find(v, text, n);
    if (known >= 0 && known != id)
        return NDP_FAIL(NDP_EFORMAT, "%s: the added token '%s' has the id %lld, but %d in the vocabulary", l->what,
                        text, (long long)id, known);
    if (known < 0)
        NDP_TRY(ndp_vocab_add(v, l->what, text, n, id, NDP_VOCAB_NOT_FOUND));
    if (known < 0 && id != all->next)
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: the added token '%s' has the id %lld, but the `tokenizers` library numbers it %lld: added "
                        "tokens follow the vocabulary without holes, in the file's order",
                        l->what, text, (long long)id, (long long)all->next);
    all->next = id < all->next ? all->next : id + 1;
    return ndp_prefixes_add(&all->contents, text, n, (int32_t)id);
}

/* Adds a token that is looked for as `text`. */
static ndp_status add_as(const ndp_loader *l, ndp_added_token token, ndp_span text, ndp_added *to) {
    char *kept = ndp_arena_alloc(&l->t->arena, text.n + 1);
    if (!kept)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for a tokenizer", l->what);
    if (!text.n)
        return NDP_FAIL(NDP_ENOTSUP,
                        "%s: the normalizers leave nothing of the added token '%s', which is looked for in normalized "
                        "text; that is not supported: set its 'normalized' to false, or leave it out",
                        l->what, token.text);
    token.text = memcpy(kept, text.data, text.n);
    token.length = text.n;
    return ndp_added_add(to, token);
}

/* Searches use the token's text, or, for a token that is searched in normalized text, the normalizers' result. That of
 * "</s>" is "\u2581</s>" where a text gets a space in front, so nothing finds it after an answer: in what a template
 * has rendered a special token is looked for as it is written, too, as LlamaTokenizer of transformers 5 does. */
static ndp_status add_token(const ndp_loader *l, ndp_added_token token, bool normalized, bool special) {
    ndp_normalize_scratch scratch = {0};
    ndp_regex_scratch regex = {0};
    ndp_span text = {token.text, token.length};
    size_t first = 0;
    if (!normalized)
        return add_as(l, token, text, &l->t->raw);
    ndp_status st = ndp_normalize(&l->t->normalizers, text, &scratch, &regex, &first, &text);
    if (st == NDP_OK)
        st = add_as(l, token, text, &l->t->normalized);
    if (st == NDP_OK)
        st = add_as(l, token, text, &l->t->rendered);
    if (st == NDP_OK && special && (text.n != token.length || memcmp(text.data, token.text, text.n) != 0))
        st = add_as(l, token, (ndp_span){token.text, token.length}, &l->t->rendered);
    ndp_normalize_scratch_release(&scratch);
    ndp_regex_scratch_release(&regex);
    return st;
}

static ndp_status load_token(const ndp_loader *l, listed *all, struct json_object *o) {
    struct json_object *content = NULL;
    ndp_added_token token = {0};
    int64_t id = -1;
    bool normalized = false, special = false;
    NDP_TRY(NDP_LOAD_KEYS(l, "an added token", o, "id", "content", "single_word", "lstrip", "rstrip", "normalized",
                          "special"));
    NDP_TRY(ndp_load_need(l, "an added token", o, "content", json_type_string, &content));
    token.text = json_object_get_string(content);
    token.length = (size_t)json_object_get_string_len(content);
    NDP_TRY(ndp_json_int(o, l->what, "id", 0, NDP_VOCAB_MAX_ID, &id));
    NDP_TRY(ndp_json_bool(o, l->what, "normalized", &normalized));
    NDP_TRY(ndp_json_bool(o, l->what, "special", &special));
    NDP_TRY(ndp_json_bool(o, l->what, "single_word", &token.single_word));
    NDP_TRY(ndp_json_bool(o, l->what, "lstrip", &token.lstrip));
    NDP_TRY(ndp_json_bool(o, l->what, "rstrip", &token.rstrip));
    if (id < 0 || !token.length)
        return NDP_FAIL(NDP_EFORMAT, "%s: an added token without %s", l->what, token.length ? "an id" : "a text");
    token.id = (int32_t)id;
    NDP_TRY(enter_token(l, all, token.text, token.length, id));
    return add_token(l, token, normalized, special);
}

static ndp_status mark_special(const ndp_loader *l, struct json_object *list, size_t n) {
    const ndp_vocab *v = &l->t->words.vocab;
    bool *special = l->t->special = calloc((size_t)v->n + 1, sizeof *special);
    if (!special)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for a tokenizer", l->what);
    for (size_t i = 0; i < n; i++) {
        struct json_object *o = json_object_array_get_idx(list, i);
        int64_t id = 0;
        NDP_TRY(ndp_json_int(o, l->what, "id", 0, v->n - 1, &id));
        NDP_TRY(ndp_json_bool(o, l->what, "special", &special[id]));
    }
    for (int64_t id = 0; l->t->words.is_unigram && id < v->n; id++) { /* its vocabulary may repeat a text */
        size_t length = 0;
        const char *text = ndp_vocab_text(v, id, &length);
        int32_t found = text ? ndp_vocab_find(v, text, length) : -1;
        if (found >= 0)
            special[id] |= special[found];
    }
    return NDP_OK;
}

/* The reference finds one or the other of two tokens with equal text, unpredictably. */
static ndp_status refuse_equal(const ndp_loader *l, const ndp_prefixes *texts) {
    for (int64_t i = 1; i < texts->n; i++) {
        const ndp_prefix *p = &texts->items[i - 1], *next = p + 1;
        if (p->length == next->length && !memcmp(p->text, next->text, p->length))
            return NDP_FAIL(
                NDP_ENOTSUP,
                "%s: two added tokens are looked for as '%.*s', which is not supported: leave one of them out", l->what,
                (int)p->length, p->text);
    }
    return NDP_OK;
}

static ndp_status load_tokens(const ndp_loader *l, listed *all, struct json_object *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        NDP_TRY(load_token(l, all, json_object_array_get_idx(list, i)));
    ndp_prefixes_build(&all->contents);
    NDP_TRY(refuse_equal(l, &all->contents));
    NDP_TRY(ndp_added_build(&l->t->raw));
    NDP_TRY(ndp_added_build(&l->t->normalized));
    NDP_TRY(ndp_added_build(&l->t->rendered));
    return refuse_equal(l, &l->t->normalized.index);
}

ndp_status ndp_load_added(const ndp_loader *l, struct json_object *list) {
    if (list && !json_object_is_type(list, json_type_array))
        return NDP_FAIL(NDP_EFORMAT, "%s: 'added_tokens' is not a list", l->what);
    const ndp_words *w = &l->t->words;
    size_t n = list ? json_object_array_length(list) : 0;
    listed all = {.next = w->is_unigram ? w->vocab.n : w->vocab.filled};
    ndp_status st = load_tokens(l, &all, list, n);
    ndp_prefixes_release(&all.contents);
    return st == NDP_OK ? mark_special(l, list, n) : st;
}
