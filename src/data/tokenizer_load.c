/* Reads tokenizer.json. Whatever is not understood is refused by name: a stage left out would give other ids. */
#include "base/json.h"
#include "data/tokenizer_parts.h"
#include <string.h>

typedef struct loader {
    ndp_tokenizer *t;
    const char *what; /* the file, for messages */
} loader;

/* ---- small helpers ---- */

/* Refuses members that are not in `known` (NULL at the end). */
static ndp_status check_keys(const loader *l, const char *where, struct json_object *o, const char *const *known) {
    if (!json_object_is_type(o, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: %s is not an object", l->what, where);
    json_object_object_foreach(o, key, value) {
        (void)value;
        int i = 0;
        while (known[i] && strcmp(known[i], key))
            i++;
        if (!known[i])
            return NDP_FAIL(NDP_ENOTSUP, "%s: the option '%s' of %s is not built yet", l->what, key, where);
    }
    return NDP_OK;
}
#define CHECK_KEYS(l, where, o, ...) check_keys((l), (where), (o), (const char *const[]){__VA_ARGS__, NULL})

static ndp_status need(const loader *l, const char *where, struct json_object *o, const char *key, enum json_type type,
                       struct json_object **out) {
    struct json_object *value = NULL;
    if (!json_object_object_get_ex(o, key, &value) || !json_object_is_type(value, type))
        return NDP_FAIL(NDP_EFORMAT, "%s: %s needs '%s', of type %s", l->what, where, key, json_type_to_name(type));
    *out = value;
    return NDP_OK;
}

static ndp_status need_string(const loader *l, const char *where, struct json_object *o, const char *key,
                              const char **out) {
    struct json_object *value = NULL;
    NDP_TRY(need(l, where, o, key, json_type_string, &value));
    *out = json_object_get_string(value);
    return NDP_OK;
}

static ndp_status keep(const loader *l, const char *text, const char **out) {
    *out = ndp_arena_strdup(&l->t->arena, text);
    return *out ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for a tokenizer", l->what);
}

static ndp_status fail_type(const loader *l, const char *where, const char *type) {
    return NDP_FAIL(NDP_ENOTSUP, "%s: a %s of type %s is not built yet", l->what, where, type);
}

/* ---- normalizers and decoders ---- */

static ndp_status load_replace(const loader *l, const char *where, struct json_object *o, ndp_stage *s) {
    struct json_object *pattern = NULL;
    const char *text = "", *content = "";
    NDP_TRY(CHECK_KEYS(l, where, o, "type", "pattern", "content"));
    NDP_TRY(need(l, where, o, "pattern", json_type_object, &pattern));
    NDP_TRY(CHECK_KEYS(l, "a Replace pattern", pattern, "String"));
    NDP_TRY(need_string(l, where, pattern, "String", &text));
    NDP_TRY(need_string(l, where, o, "content", &content));
    if (!text[0])
        return NDP_FAIL(NDP_EFORMAT, "%s: %s replaces an empty pattern", l->what, where);
    s->kind = NDP_STAGE_REPLACE;
    NDP_TRY(keep(l, text, &s->pattern));
    return keep(l, content, &s->content);
}

static ndp_status load_strip(const loader *l, struct json_object *o, ndp_stage *s) {
    const char *content = "";
    int64_t start = 0, stop = 0;
    NDP_TRY(CHECK_KEYS(l, "the decoder Strip", o, "type", "content", "start", "stop"));
    NDP_TRY(need_string(l, "the decoder Strip", o, "content", &content));
    NDP_TRY(ndp_json_int(o, l->what, "start", 0, INT32_MAX, &start));
    NDP_TRY(ndp_json_int(o, l->what, "stop", 0, INT32_MAX, &stop));
    if (!content[0])
        return NDP_FAIL(NDP_EFORMAT, "%s: the decoder Strip has no content", l->what);
    s->kind = NDP_STAGE_STRIP;
    s->start = (int)start;
    s->stop = (int)stop;
    return keep(l, content, &s->content);
}

static ndp_status load_normalizer(const loader *l, const char *type, struct json_object *o, ndp_stage *s) {
    if (!strcmp(type, "Replace"))
        return load_replace(l, "the normalizer Replace", o, s);
    if (strcmp(type, "Prepend"))
        return fail_type(l, "normalizer", type);
    const char *content = "";
    NDP_TRY(CHECK_KEYS(l, "the normalizer Prepend", o, "type", "prepend"));
    NDP_TRY(need_string(l, "the normalizer Prepend", o, "prepend", &content));
    s->kind = NDP_STAGE_PREPEND;
    return keep(l, content, &s->content);
}

static ndp_status load_decoder(const loader *l, const char *type, struct json_object *o, ndp_stage *s) {
    if (!strcmp(type, "Replace"))
        return load_replace(l, "the decoder Replace", o, s);
    if (!strcmp(type, "Strip"))
        return load_strip(l, o, s);
    if (strcmp(type, "ByteFallback") && strcmp(type, "Fuse"))
        return fail_type(l, "decoder", type);
    s->kind = type[0] == 'F' ? NDP_STAGE_FUSE : NDP_STAGE_BYTE_FALLBACK;
    return CHECK_KEYS(l, type, o, "type");
}

typedef ndp_status load_stage(const loader *, const char *, struct json_object *, ndp_stage *);

/* One stage, or a Sequence of them (under `list`), at any depth that JSON allows. */
static ndp_status load_stages(const loader *l, const char *where, const char *list, struct json_object *o,
                              load_stage *load, ndp_stages *out) {
    const char *type = "";
    if (!json_object_is_type(o, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: a %s is not an object", l->what, where);
    NDP_TRY(need_string(l, where, o, "type", &type));
    if (strcmp(type, "Sequence")) {
        ndp_stage stage = {0};
        NDP_TRY(load(l, type, o, &stage));
        NDP_TRY(ndp_array_reserve(&out->items, &out->capacity, out->n + 1, sizeof *out->items));
        out->items[out->n++] = stage;
        return NDP_OK;
    }
    struct json_object *items = NULL;
    NDP_TRY(CHECK_KEYS(l, where, o, "type", list));
    NDP_TRY(need(l, where, o, list, json_type_array, &items));
    for (size_t i = 0; i < json_object_array_length(items); i++)
        NDP_TRY(load_stages(l, where, list, json_object_array_get_idx(items, i), load, out));
    return NDP_OK;
}

/* ---- the model ---- */

static ndp_status load_vocab(const loader *l, struct json_object *model) {
    struct json_object *vocab = NULL;
    NDP_TRY(need(l, "the model", model, "vocab", json_type_object, &vocab));
    json_object_object_foreach(vocab, token, id) {
        if (!json_object_is_type(id, json_type_int))
            return NDP_FAIL(NDP_EFORMAT, "%s: the id of '%s' in the vocabulary is no whole number", l->what, token);
        NDP_TRY(ndp_vocab_add(&l->t->bpe.vocab, l->what, token, strlen(token), json_object_get_int64(id), true));
    }
    if (!l->t->bpe.vocab.n)
        return NDP_FAIL(NDP_EFORMAT, "%s: the vocabulary is empty", l->what);
    return NDP_OK;
}

/* One side of a merge: `n` bytes of text to the id. */
static ndp_status merge_side(const loader *l, size_t i, const char *text, size_t n, int32_t *id) {
    *id = ndp_vocab_find(&l->t->bpe.vocab, text, n);
    return *id >= 0 ? NDP_OK
                    : NDP_FAIL(NDP_EFORMAT, "%s: merge %zu names '%.*s', which is not in the vocabulary", l->what, i,
                               (int)n, text);
}

/* "a b", or ["a", "b"] as newer files write it. */
static ndp_status load_merge(const loader *l, size_t i, struct json_object *o, int32_t pair[2]) {
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

static ndp_status load_merges(const loader *l, struct json_object *model) {
    struct json_object *merges = NULL;
    NDP_TRY(need(l, "the model", model, "merges", json_type_array, &merges));
    size_t n = json_object_array_length(merges);
    int32_t(*pairs)[2] = calloc(n + 1, sizeof *pairs);
    if (!pairs)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for %zu merges", l->what, n);
    ndp_status st = NDP_OK;
    for (size_t i = 0; i < n && st == NDP_OK; i++)
        st = load_merge(l, i, json_object_array_get_idx(merges, i), pairs[i]);
    if (st == NDP_OK)
        st = ndp_bpe_build(&l->t->bpe, l->what, (const int32_t(*)[2])pairs, (int64_t)n);
    free(pairs);
    return st;
}

/* Options of the reference's BPE that change ids and are not built; most files hold them as null. */
static ndp_status refuse_options(const loader *l, struct json_object *model) {
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

static ndp_status load_model(const loader *l, struct json_object *model) {
    ndp_bpe *b = &l->t->bpe;
    const char *type = "", *unknown = NULL;
    NDP_TRY(need_string(l, "the model", model, "type", &type));
    if (strcmp(type, "BPE"))
        return fail_type(l, "model", type);
    NDP_TRY(CHECK_KEYS(l, "the model", model, "type", "dropout", "unk_token", "continuing_subword_prefix",
                       "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"));
    NDP_TRY(refuse_options(l, model));
    NDP_TRY(ndp_json_bool(model, l->what, "fuse_unk", &b->fuse_unknown));
    NDP_TRY(ndp_json_bool(model, l->what, "byte_fallback", &b->byte_fallback));
    NDP_TRY(ndp_json_bool(model, l->what, "ignore_merges", &b->ignore_merges));
    NDP_TRY(ndp_json_string(model, l->what, "unk_token", &unknown));
    NDP_TRY(load_vocab(l, model));
    b->unknown = unknown ? ndp_vocab_find(&b->vocab, unknown, strlen(unknown)) : -1;
    if (unknown && b->unknown < 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: unk_token '%s' is not in the vocabulary", l->what, unknown);
    return load_merges(l, model);
}

/* ---- added tokens ---- */

/* Into the vocabulary, unless it is there already with the same id. */
static ndp_status enter_token(const loader *l, const char *text, size_t n, int64_t id) {
    int32_t known = ndp_vocab_find(&l->t->bpe.vocab, text, n);
    if (known < 0)
        return ndp_vocab_add(&l->t->bpe.vocab, l->what, text, n, id, false);
    if (known != id)
        return NDP_FAIL(NDP_EFORMAT, "%s: the added token '%s' has the id %lld, but %d in the vocabulary", l->what,
                        text, (long long)id, known);
    return NDP_OK;
}

static ndp_status refuse_flags(const loader *l, struct json_object *o, const char *text) {
    static const char *const flags[] = {"single_word", "lstrip", "rstrip"};
    for (int i = 0; i < NDP_COUNT(flags); i++) {
        bool on = false;
        NDP_TRY(ndp_json_bool(o, l->what, flags[i], &on));
        if (on)
            return NDP_FAIL(NDP_ENOTSUP, "%s: %s of the added token '%s' is not built yet", l->what, flags[i], text);
    }
    return NDP_OK;
}

/* The text to look for: as it is, or as the normalizers make it when the token is looked for in normalized text. */
static ndp_status add_to_matcher(const loader *l, const char *text, size_t n, bool normalized, int32_t id) {
    ndp_str a = {0}, b = {0};
    ndp_span found = {text, n};
    ndp_status st = normalized ? ndp_normalize(&l->t->normalizers, found, &a, &b, &found) : NDP_OK;
    char *kept = st == NDP_OK ? ndp_arena_alloc(&l->t->arena, found.n + 1) : NULL;
    if (kept && found.n) {
        memcpy(kept, found.data, found.n);
        st = ndp_matcher_add(normalized ? &l->t->normalized : &l->t->raw, (ndp_added_token){kept, found.n, id});
    } else if (st == NDP_OK && !kept) {
        st = NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for a tokenizer", l->what);
    }
    ndp_str_release(&a);
    ndp_str_release(&b);
    return st;
}

static ndp_status load_added_token(const loader *l, struct json_object *o, bool special_ones) {
    struct json_object *content = NULL;
    int64_t id = -1;
    bool normalized = false, special = false;
    NDP_TRY(CHECK_KEYS(l, "an added token", o, "id", "content", "single_word", "lstrip", "rstrip", "normalized",
                       "special"));
    NDP_TRY(need(l, "an added token", o, "content", json_type_string, &content));
    NDP_TRY(ndp_json_bool(o, l->what, "special", &special));
    if (special != special_ones)
        return NDP_OK;
    const char *text = json_object_get_string(content);
    size_t n = (size_t)json_object_get_string_len(content);
    NDP_TRY(ndp_json_int(o, l->what, "id", 0, NDP_VOCAB_MAX_ID, &id));
    NDP_TRY(ndp_json_bool(o, l->what, "normalized", &normalized));
    if (id < 0 || !n)
        return NDP_FAIL(NDP_EFORMAT, "%s: an added token without %s", l->what, n ? "an id" : "a text");
    NDP_TRY(refuse_flags(l, o, text));
    NDP_TRY(enter_token(l, text, n, id));
    return add_to_matcher(l, text, n, normalized, (int32_t)id);
}

static ndp_status mark_special(const loader *l, struct json_object *list, size_t n) {
    ndp_tokenizer *t = l->t;
    t->special = calloc((size_t)t->bpe.vocab.n + 1, sizeof *t->special);
    if (!t->special)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for a tokenizer", l->what);
    for (size_t i = 0; i < n; i++) {
        struct json_object *o = json_object_array_get_idx(list, i);
        int64_t id = 0;
        bool special = false;
        NDP_TRY(ndp_json_int(o, l->what, "id", 0, t->bpe.vocab.n - 1, &id));
        NDP_TRY(ndp_json_bool(o, l->what, "special", &special));
        t->special[id] |= special;
    }
    return NDP_OK;
}

/* Special ones first: of equal texts the first wins, as in the reference. */
static ndp_status load_added_tokens(const loader *l, struct json_object *list) {
    if (list && !json_object_is_type(list, json_type_array))
        return NDP_FAIL(NDP_EFORMAT, "%s: 'added_tokens' is not a list", l->what);
    size_t n = list ? json_object_array_length(list) : 0;
    for (int special = 1; special >= 0; special--)
        for (size_t i = 0; i < n; i++)
            NDP_TRY(load_added_token(l, json_object_array_get_idx(list, i), special));
    ndp_matcher_build(&l->t->raw);
    ndp_matcher_build(&l->t->normalized);
    return mark_special(l, list, n);
}

/* ---- the post-processor ---- */

static ndp_status add_template_ids(const loader *l, struct json_object *post, struct json_object *part, ndp_ids *ids) {
    struct json_object *tokens = NULL, *token = NULL, *list = NULL;
    const char *name = "";
    NDP_TRY(need_string(l, "a SpecialToken", part, "id", &name));
    NDP_TRY(need(l, "TemplateProcessing", post, "special_tokens", json_type_object, &tokens));
    NDP_TRY(need(l, "TemplateProcessing", tokens, name, json_type_object, &token));
    NDP_TRY(need(l, "a special token", token, "ids", json_type_array, &list));
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct json_object *o = json_object_array_get_idx(list, i);
        size_t length;
        int64_t id = json_object_is_type(o, json_type_int) ? json_object_get_int64(o) : -1;
        if (!ndp_vocab_text(&l->t->bpe.vocab, id, &length))
            return NDP_FAIL(NDP_EFORMAT, "%s: the post-processor's token '%s' has an id that is not in the vocabulary",
                            l->what, name);
        NDP_TRY(ndp_ids_add(ids, (int32_t)id));
    }
    return NDP_OK;
}

/* `single` holds the text, once, among special tokens; `pair` is for two texts, which nobody encodes here. */
static ndp_status load_template(const loader *l, struct json_object *post) {
    struct json_object *single = NULL, *part = NULL;
    bool seen = false;
    NDP_TRY(CHECK_KEYS(l, "TemplateProcessing", post, "type", "single", "pair", "special_tokens"));
    NDP_TRY(need(l, "TemplateProcessing", post, "single", json_type_array, &single));
    for (size_t i = 0; i < json_object_array_length(single); i++) {
        struct json_object *o = json_object_array_get_idx(single, i);
        if (json_object_is_type(o, json_type_object) && json_object_object_get_ex(o, "SpecialToken", &part)) {
            NDP_TRY(add_template_ids(l, post, part, seen ? &l->t->suffix : &l->t->prefix));
            continue;
        }
        const char *name = "";
        NDP_TRY(need(l, "TemplateProcessing", o, "Sequence", json_type_object, &part));
        NDP_TRY(need_string(l, "TemplateProcessing", part, "id", &name));
        if (seen || strcmp(name, "A"))
            return NDP_FAIL(NDP_EFORMAT, "%s: the template for one text holds the text '%s'%s", l->what, name,
                            seen ? " again" : "");
        seen = true;
    }
    return seen ? NDP_OK : NDP_FAIL(NDP_EFORMAT, "%s: the template for one text leaves the text out", l->what);
}

static ndp_status load_post_processor(const loader *l, struct json_object *post) {
    const char *type = "";
    if (!post)
        return NDP_OK;
    if (!json_object_is_type(post, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: the post-processor is not an object", l->what);
    NDP_TRY(need_string(l, "the post-processor", post, "type", &type));
    if (strcmp(type, "TemplateProcessing"))
        return fail_type(l, "post_processor", type);
    NDP_TRY(load_template(l, post));
    if (l->t->prefix.n)
        l->t->bos = l->t->prefix.items[0];
    if (l->t->suffix.n)
        l->t->eos = l->t->suffix.items[l->t->suffix.n - 1];
    return NDP_OK;
}

/* ---- the whole ---- */

/* A member, or NULL when it is missing or null. */
static struct json_object *member(struct json_object *o, const char *key) {
    struct json_object *value = NULL;
    return json_object_object_get_ex(o, key, &value) ? value : NULL;
}

/* `truncation` and `padding` are what somebody last encoded with; transformers resets them on every call, and so they
 * are left out here too. */
static ndp_status load_root(const loader *l, struct json_object *root) {
    struct json_object *model = NULL, *o;
    const char *type = "";
    NDP_TRY(CHECK_KEYS(l, "the file", root, "version", "truncation", "padding", "added_tokens", "normalizer",
                       "pre_tokenizer", "model", "post_processor", "decoder"));
    NDP_TRY(need(l, "the file", root, "model", json_type_object, &model));
    if ((o = member(root, "pre_tokenizer"))) {
        if (!json_object_is_type(o, json_type_object))
            return NDP_FAIL(NDP_EFORMAT, "%s: the pre_tokenizer is not an object", l->what);
        NDP_TRY(need_string(l, "the pre_tokenizer", o, "type", &type));
        return fail_type(l, "pre_tokenizer", type);
    }
    if ((o = member(root, "normalizer")))
        NDP_TRY(load_stages(l, "normalizer", "normalizers", o, load_normalizer, &l->t->normalizers));
    NDP_TRY(load_model(l, model));
    NDP_TRY(load_added_tokens(l, member(root, "added_tokens")));
    NDP_TRY(load_post_processor(l, member(root, "post_processor")));
    l->t->join_by_space = !(o = member(root, "decoder"));
    return o ? load_stages(l, "decoder", "decoders", o, load_decoder, &l->t->decoders) : NDP_OK;
}

ndp_status ndp_tokenizer_load(ndp_tokenizer *t, const char *text, size_t size, const char *what) {
    loader l = {t, what};
    struct json_object *root = NULL;
    if (memmem(text, size, "\\u0000", 6)) /* json-c would end a vocabulary's key there */
        return NDP_FAIL(NDP_ENOTSUP, "%s: a token with a zero character (\\u0000) is not built yet", what);
    NDP_TRY(ndp_json_parse(text, size, what, &root));
    ndp_status st = load_root(&l, root);
    json_object_put(root);
    return st;
}

/* "<s>", or {"content": "<s>", ...}, or null. */
static ndp_status config_token(const loader *l, struct json_object *root, const char *key, int32_t *out) {
    struct json_object *o = member(root, key);
    const char *text = NULL;
    if (json_object_is_type(o, json_type_object))
        NDP_TRY(ndp_json_string(o, l->what, "content", &text));
    else
        NDP_TRY(ndp_json_string(root, l->what, key, &text));
    if (!text || *out >= 0)
        return NDP_OK;
    *out = ndp_tokenizer_id(l->t, text);
    return *out >= 0 ? NDP_OK
                     : NDP_FAIL(NDP_EFORMAT, "%s: %s '%s' is not in the vocabulary of the tokenizer.json beside it",
                                l->what, key, text);
}

ndp_status ndp_tokenizer_load_config(ndp_tokenizer *t, const char *path) {
    loader l = {t, path};
    struct json_object *root = NULL;
    NDP_TRY(ndp_json_read(path, &root));
    ndp_status st = json_object_is_type(root, json_type_object)
                        ? config_token(&l, root, "bos_token", &t->bos)
                        : NDP_FAIL(NDP_EFORMAT, "%s: the file is not an object", path);
    if (st == NDP_OK)
        st = config_token(&l, root, "eos_token", &t->eos);
    json_object_put(root);
    return st;
}
