/* Templates and tokens of a tokenizer's folder. */
#include "text/chat/chat_own.h"

#include <stdlib.h>
#include <string.h>

static ndp_status no_memory(void) { return NDP_FAIL(NDP_ENOMEM, "not enough memory for a chat template"); }

/* A file's contents, if it exists. */
static ndp_status read_file(const char *path, ndp_str *text) {
    char *contents = NULL;
    size_t size;
    if (!path)
        return no_memory();
    if (!ndp_path_exists(path))
        return NDP_OK;
    NDP_TRY(ndp_file_read_as(NDP_FILE_TEMPLATE, path, &contents, &size));
    ndp_str_add_bytes(text, contents, size);
    free(contents);
    return NDP_OK;
}

/* tokenizer_config.json; NULL if there is none. */
static ndp_status read_config(const char *folder, struct json_object **out) {
    char *path = folder ? ndp_format("%s/tokenizer_config.json", folder) : NULL;
    *out = NULL;
    ndp_status st = folder && !path ? no_memory() : path && ndp_path_exists(path) ? ndp_json_read(path, out) : NDP_OK;
    free(path);
    return st;
}

/* chat_template: a text, or a list of {name, template}, of which the one for conversations is "default". */
static struct json_object *template_of(struct json_object *config, const char *name) {
    struct json_object *t = config ? json_object_object_get(config, "chat_template") : NULL;
    if (!json_object_is_type(t, json_type_array))
        return !name && json_object_is_type(t, json_type_string) ? t : NULL;
    for (size_t i = 0; i < json_object_array_length(t); i++) {
        struct json_object *o = json_object_array_get_idx(t, i), *text = json_object_object_get(o, "template");
        const char *its = ndp_json_text(json_object_object_get(o, "name"));
        if (its && strcmp(its, name ? name : "default") == 0 && json_object_is_type(text, json_type_string))
            return text;
    }
    return NULL;
}

ndp_status ndp_chat_own_text(const char *folder, const char *name, ndp_str *text) {
    struct json_object *config = NULL;
    char *path = name ? ndp_format("%s/additional_chat_templates/%s.jinja", folder, name)
                      : ndp_format("%s/chat_template.jinja", folder);
    ndp_status st = read_file(path, text);
    free(path);
    if (st == NDP_OK && !text->length)
        st = read_config(folder, &config);
    struct json_object *found = st == NDP_OK ? template_of(config, name) : NULL;
    if (found)
        ndp_str_add_bytes(text, json_object_get_string(found), (size_t)json_object_get_string_len(found));
    json_object_put(config);
    return st == NDP_OK && text->failed ? no_memory() : st;
}

/* ---- variables ---- */

static void add_text(struct json_object *o, const char *key, ndp_span text) {
    if (text.n)
        json_object_object_add(o, key, json_object_new_string_len(text.data, (int)text.n));
}

/* A token is a text, or an object with it as content. */
static void add_tokens(struct json_object *config, struct json_object *o) {
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
    for (int i = 0; i < NDP_COUNT(keys); i++) {
        struct json_object *token = json_object_object_get(config, keys[i]);
        if (json_object_is_type(token, json_type_object))
            token = json_object_object_get(token, "content");
        if (json_object_is_type(token, json_type_string))
            json_object_object_add(o, keys[i], json_object_get(token));
    }
}

ndp_status ndp_chat_own_variables(const char *folder, const ndp_chat *c, struct json_object **out) {
    struct json_object *config = NULL, *o = json_object_new_object();
    if (!o)
        return no_memory();
    add_text(o, "bos_token", c->bos);
    add_text(o, "eos_token", c->eos);
    ndp_status st = read_config(folder, &config);
    if (st == NDP_OK && config)
        add_tokens(config, o);
    json_object_put(config);
    if (st == NDP_OK)
        *out = o;
    else
        json_object_put(o);
    return st;
}

ndp_status ndp_chat_own_special(const ndp_tokenizer *t, struct json_object **out) {
    struct json_object *list = json_object_new_array();
    bool whole = list;
    for (int32_t id = 0; whole && id < ndp_tokenizer_vocab_size(t); id++) {
        ndp_span token = ndp_tokenizer_token(t, id);
        if (ndp_tokenizer_is_special(t, id) && token.n)
            whole = json_object_array_add(list, json_object_new_string_len(token.data, (int)token.n)) == 0;
    }
    if (whole)
        *out = list;
    else
        json_object_put(list);
    return whole ? NDP_OK : no_memory();
}
