/* Choosing a chat template: a built-in one (chat_table.h) by name, or by the text of the tokenizer's own. */
#include "data/corpus/chat_table.h"

#include "base/json.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

bool ndp_role_of(const char *name, ndp_role *out) {
    static const struct {
        const char *name;
        ndp_role role;
    } roles[] = {{"system", NDP_ROLE_SYSTEM},
                 {"user", NDP_ROLE_USER},
                 {"human", NDP_ROLE_USER},
                 {"assistant", NDP_ROLE_ASSISTANT},
                 {"gpt", NDP_ROLE_ASSISTANT}};
    for (int i = 0; i < NDP_COUNT(roles); i++)
        if (!strcmp(name, roles[i].name)) {
            *out = roles[i].role;
            return true;
        }
    return false;
}

/* ---- choosing ---- */

static ndp_status by_name(const char *name, const ndp_chat_template **out) {
    *out = ndp_chat_template_named(name);
    if (*out)
        return NDP_OK;
    ndp_str names = {0};
    ndp_chat_template_names(&names);
    ndp_status st = NDP_FAIL(NDP_EINVAL, "data.chat_template: there is no '%s'; the built-in templates are %s", name,
                             names.data ? names.data : "");
    ndp_str_release(&names);
    return st;
}

/* Ignores white space at the end of a template: editors add and remove it. */
static const ndp_chat_template *by_text(const char *text, size_t n) {
    while (n && (text[n - 1] == ' ' || text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == '\t'))
        n--;
    return ndp_chat_template_of(XXH3_64bits(text, n));
}

/* chat_template of a tokenizer_config.json: a text, or a list of {name, template} with a "default". */
static struct json_object *template_of_config(struct json_object *root) {
    struct json_object *t = json_object_object_get(root, "chat_template");
    if (!json_object_is_type(t, json_type_array))
        return json_object_is_type(t, json_type_string) ? t : NULL;
    for (size_t i = 0; i < json_object_array_length(t); i++) {
        struct json_object *o = json_object_array_get_idx(t, i), *text = json_object_object_get(o, "template");
        const char *name = ndp_json_text(json_object_object_get(o, "name"));
        if (name && !strcmp(name, "default") && json_object_is_type(text, json_type_string))
            return text;
    }
    return NULL;
}

/* Reads the tokenizer's template into `text`, which stays empty if there is none. */
static ndp_status read_text(const char *folder, ndp_str *text) {
    char *jinja = ndp_format("%s/chat_template.jinja", folder),
         *config = ndp_format("%s/tokenizer_config.json", folder);
    ndp_status st = jinja && config ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for a chat template");
    struct json_object *root = NULL;
    char *contents = NULL;
    size_t size;
    if (st == NDP_OK && ndp_path_exists(jinja)) {
        st = ndp_file_read_as(NDP_FILE_TEMPLATE, jinja, &contents, &size);
        if (st == NDP_OK)
            ndp_str_add_bytes(text, contents, size);
    } else if (st == NDP_OK && ndp_path_exists(config)) {
        st = ndp_json_read(config, &root);
        struct json_object *found = st == NDP_OK ? template_of_config(root) : NULL;
        if (found)
            ndp_str_add_bytes(text, json_object_get_string(found), (size_t)json_object_get_string_len(found));
    }
    json_object_put(root);
    free(contents);
    free(jinja);
    free(config);
    return st;
}

/* Chooses by the tokenizer's own template, or records why that is impossible. */
static ndp_status choose_own(ndp_chat *c, const char *source) {
    ndp_str text = {0}, why = {0};
    char *folder = ndp_tokenizer_folder(source);
    ndp_status st = folder ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for a chat template");
    if (st == NDP_OK && strcmp(source, "bytes"))
        st = read_text(folder, &text);
    if (st == NDP_OK && text.length)
        c->template = by_text(text.data, text.length);
    if (st == NDP_OK && !c->template) {
        ndp_str_addf(&why, "the tokenizer %s has %s; data.chat_template chooses a built-in one: ", source,
                     text.length ? "a chat template that is not built in" : "no chat template");
        ndp_chat_template_names(&why);
        c->why = ndp_str_detach(&why);
    }
    ndp_str_release(&text);
    free(folder);
    return st;
}

ndp_status ndp_chat_init(ndp_chat *c, const ndp_tokenizer *t, const char *source, const char *name) {
    ndp_chat chat = {.bos = ndp_tokenizer_token(t, ndp_tokenizer_bos(t)),
                     .eos = ndp_tokenizer_token(t, ndp_tokenizer_eos(t))};
    ndp_ids empty = {0};
    ndp_status st = ndp_tokenizer_encode(t, "", 0, true, &empty);
    chat.adds_bos = st == NDP_OK && empty.n && empty.items[0] == ndp_tokenizer_bos(t);
    ndp_ids_release(&empty);
    NDP_TRY(st);
    NDP_TRY(name ? by_name(name, &chat.template) : choose_own(&chat, source));
    *c = chat;
    return NDP_OK;
}

void ndp_chat_release(ndp_chat *c) {
    free(c->why);
    *c = (ndp_chat){0};
}

const char *ndp_chat_name(const ndp_chat *c) { return c->template ? c->template->name : "none"; }
