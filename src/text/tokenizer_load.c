/* Loads a whole tokenizer.json, and the files next to it. */
#include "text/loader.h"
#include <string.h>

/* ---- the post-processor ---- */

static ndp_status add_template_ids(const ndp_loader *l, struct json_object *post, struct json_object *part,
                                   ndp_ids *ids) {
    struct json_object *tokens = NULL, *token = NULL, *list = NULL;
    const char *name = "";
    NDP_TRY(ndp_load_string(l, "a SpecialToken", part, "id", &name));
    NDP_TRY(ndp_load_need(l, "TemplateProcessing", post, "special_tokens", json_type_object, &tokens));
    NDP_TRY(ndp_load_need(l, "TemplateProcessing", tokens, name, json_type_object, &token));
    NDP_TRY(ndp_load_need(l, "a special token", token, "ids", json_type_array, &list));
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct json_object *o = json_object_array_get_idx(list, i);
        size_t length;
        int64_t id = json_object_is_type(o, json_type_int) ? json_object_get_int64(o) : -1;
        if (!ndp_vocab_text(&l->t->words.vocab, id, &length))
            return NDP_FAIL(NDP_EFORMAT, "%s: the post-processor's token '%s' has an id that is not in the vocabulary",
                            l->what, name);
        NDP_TRY(ndp_ids_add(ids, (int32_t)id));
    }
    return NDP_OK;
}

/* `single` contains the text once, among special tokens; `pair` is for two texts and unused here. */
static ndp_status load_template(const ndp_loader *l, struct json_object *post) {
    struct json_object *single = NULL, *part = NULL;
    bool seen = false;
    NDP_TRY(ndp_load_need(l, "TemplateProcessing", post, "single", json_type_array, &single));
    for (size_t i = 0; i < json_object_array_length(single); i++) {
        struct json_object *o = json_object_array_get_idx(single, i);
        if ((part = json_object_object_get(o, "SpecialToken"))) {
            NDP_TRY(add_template_ids(l, post, part, seen ? &l->t->suffix : &l->t->prefix));
            continue;
        }
        const char *name = "";
        NDP_TRY(ndp_load_need(l, "TemplateProcessing", o, "Sequence", json_type_object, &part));
        NDP_TRY(ndp_load_string(l, "TemplateProcessing", part, "id", &name));
        if (seen || strcmp(name, "A"))
            return NDP_FAIL(NDP_EFORMAT, "%s: the template for one text holds the text '%s'%s", l->what, name,
                            seen ? " again" : "");
        seen = true;
    }
    return seen ? NDP_OK : NDP_FAIL(NDP_EFORMAT, "%s: the template for one text leaves the text out", l->what);
}

/* The ids before and after a text. A second stage of this kind would put its ids around the first's. */
static ndp_status load_post_template(const ndp_loader *l, const ndp_stage *s) {
    if (l->t->prefix.n || l->t->suffix.n)
        return NDP_FAIL(NDP_ENOTSUP, "%s: two post-processors that add tokens are not supported", l->what);
    NDP_TRY(load_template(l, s->o));
    if (l->t->prefix.n)
        l->t->bos = l->t->prefix.items[0];
    if (l->t->suffix.n)
        l->t->eos = l->t->suffix.items[l->t->suffix.n - 1];
    return NDP_OK;
}

/* Changes only offsets, which are not computed here. */
static ndp_status load_post_byte_level(const ndp_loader *l, const ndp_stage *s) {
    (void)l, (void)s;
    return NDP_OK;
}

static ndp_status load_post_processor(const ndp_loader *l, struct json_object *post) {
    static const ndp_stage_type types[] = {
        {"TemplateProcessing", load_post_template, .options = {"single", "pair", "special_tokens"}},
        {"ByteLevel", load_post_byte_level, .options = {"add_prefix_space", "trim_offsets", "use_regex"}},
    };
    static const ndp_stage_types known = {"post_processor", "processors", types, NDP_COUNT(types)};
    return post ? ndp_load_stages(l, &known, NULL, post) : NDP_OK;
}

/* ---- the whole ---- */

/* `truncation` and `padding` are left over from the last program that encoded with the file; transformers resets them
 * on every call, so they are ignored. */
static ndp_status load_root(const ndp_loader *l, struct json_object *root) {
    struct json_object *model = NULL;
    NDP_TRY(NDP_LOAD_KEYS(l, "the file", root, "version", "truncation", "padding", "added_tokens", "normalizer",
                          "pre_tokenizer", "model", "post_processor", "decoder"));
    NDP_TRY(ndp_load_need(l, "the file", root, "model", json_type_object, &model));
    NDP_TRY(ndp_load_normalizers(l, json_object_object_get(root, "normalizer")));
    NDP_TRY(ndp_load_pretokenizers(l, json_object_object_get(root, "pre_tokenizer")));
    NDP_TRY(ndp_load_model(l, model));
    NDP_TRY(ndp_load_added(l, json_object_object_get(root, "added_tokens")));
    if (l->t->words.is_unigram)
        NDP_TRY(ndp_unigram_build(&l->t->words.unigram)); /* borrows from the vocabulary, which is complete now */
    NDP_TRY(load_post_processor(l, json_object_object_get(root, "post_processor")));
    return ndp_load_decoders(l, json_object_object_get(root, "decoder"));
}

ndp_status ndp_tokenizer_load(ndp_tokenizer *t, const char *text, size_t size, const char *what) {
    struct json_object *root = NULL;
    ndp_json_part lists[] = {{.key = "vocab"}, {.key = "merges"}};
    NDP_TRY(ndp_json_parse_without(text, size, what, "model", lists, NDP_COUNT(lists), &root));
    ndp_loader l = {t, what, text, lists[0], lists[1]};
    ndp_status st = load_root(&l, root);
    json_object_put(root);
    return st;
}

/* "<s>", or {"content": "<s>", ...}; null or missing: *out stays as it is. */
static ndp_status config_token(const ndp_loader *l, struct json_object *root, const char *key, int32_t *out) {
    struct json_object *o = json_object_object_get(root, key);
    const char *text = NULL;
    if (json_object_is_type(o, json_type_object))
        NDP_TRY(ndp_json_string(o, l->what, "content", &text));
    else
        NDP_TRY(ndp_json_string(root, l->what, key, &text));
    if (!text)
        return NDP_OK;
    int32_t id = ndp_vocab_find_any(&l->t->words.vocab, text, strlen(text));
    if (id < 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: %s '%s' is not in the vocabulary of the tokenizer.json next to it", l->what,
                        key, text);
    *out = id;
    return NDP_OK;
}

static ndp_status config_tokens(const ndp_loader *l, struct json_object *root) {
    if (!json_object_is_type(root, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: the file is not an object", l->what);
    NDP_TRY(config_token(l, root, "bos_token", &l->t->bos));
    return config_token(l, root, "eos_token", &l->t->eos);
}

static ndp_status read_config(ndp_tokenizer *t, const char *path, bool *newer) {
    struct json_object *root = NULL;
    if (!ndp_path_exists(path))
        return NDP_OK;
    NDP_TRY(ndp_json_read(path, &root));
    ndp_status st = config_tokens(&(ndp_loader){.t = t, .what = path}, root);
    *newer = st == NDP_OK && json_object_object_get_ex(root, "added_tokens_decoder", NULL);
    json_object_put(root);
    return st;
}

ndp_status ndp_tokenizer_load_config(ndp_tokenizer *t, const char *config, const char *special) {
    bool newer = false;
    NDP_TRY(read_config(t, config, &newer));
    return newer ? NDP_OK : read_config(t, special, &newer);
}
