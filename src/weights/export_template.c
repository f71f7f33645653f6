/* The chat template of a folder that is written: chat_template.jinja, which loaders take first, and the older place,
 * the key chat_template of tokenizer_config.json, where that has one. Of several templates, it is the default. */
#include "base/json.h"
#include "text/chat/chat_own.h"
#include "weights/export.h"

#include <stdlib.h>
#include <string.h>

static const char key[] = "chat_template";

/* ---- tokenizer_config.json ---- */

/* A text; or a list of {name, template}, of which the others stay. */
static struct json_object *value_with(struct json_object *old, const ndp_str *text) {
    struct json_object *own = json_object_new_string_len(text->data, (int)text->length), *list, *first;
    if (!json_object_is_type(old, json_type_array))
        return own;
    list = json_object_new_array();
    first = json_object_new_object();
    json_object_object_add(first, "name", json_object_new_string("default"));
    json_object_object_add(first, "template", own);
    json_object_array_add(list, first);
    for (size_t i = 0; i < json_object_array_length(old); i++) {
        struct json_object *other = json_object_array_get_idx(old, i);
        const char *name = ndp_json_text(json_object_object_get(other, "name"));
        if (!name || strcmp(name, "default") != 0)
            json_object_array_add(list, json_object_get(other));
    }
    return list;
}

static ndp_status change_config(const char *path, const char *contents, size_t size, struct json_object *old,
                                const ndp_str *text) {
    struct json_object *value = value_with(old, text);
    ndp_str out = {0};
    ndp_status st = ndp_json_replace(contents, size, path, key, value, &out);
    if (st == NDP_OK)
        st = ndp_file_write_atomic(path, out.data, out.length);
    json_object_put(value);
    ndp_str_release(&out);
    return st;
}

/* ---- the folder ---- */

ndp_status ndp_export_template(const char *folder, const ndp_str *text) {
    char path[NDP_PATH], *contents = NULL;
    struct json_object *config = NULL, *old;
    size_t size;
    NDP_TRY(ndp_path_join(path, folder, "chat_template.jinja"));
    NDP_TRY(ndp_file_write_atomic(path, text->data, text->length));
    NDP_TRY(ndp_path_join(path, folder, "tokenizer_config.json"));
    if (!ndp_path_exists(path))
        return NDP_OK;
    NDP_TRY(ndp_file_read_as(NDP_FILE_TOKENIZER, path, &contents, &size));
    ndp_status st = ndp_json_parse(contents, size, path, &config);
    if (st == NDP_OK && json_object_object_get_ex(config, key, &old))
        st = change_config(path, contents, size, old, text);
    json_object_put(config);
    free(contents);
    return st;
}

ndp_status ndp_export_template_of(const char *adapter, const char *model, const char *folder) {
    ndp_str own = {0}, of_model = {0};
    ndp_status st = ndp_chat_own_text(adapter, NULL, &own);
    if (st == NDP_OK && own.length)
        st = ndp_chat_own_text(model, NULL, &of_model);
    bool same = own.length == of_model.length && (!own.length || memcmp(own.data, of_model.data, own.length) == 0);
    if (st == NDP_OK && !same)
        st = ndp_export_template(folder, &own);
    ndp_str_release(&own);
    ndp_str_release(&of_model);
    return st;
}
