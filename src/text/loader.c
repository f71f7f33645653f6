/* Checks that are the same for all members of a tokenizer.json, and the walk over its stages. Called by the load_*
 * files. */
#include "text/loader.h"

#include <stdio.h>
#include <string.h>

ndp_status ndp_load_keys(const ndp_loader *l, const char *where, struct json_object *o, const char *const *known) {
    if (!json_object_is_type(o, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: %s is not an object", l->what, where);
    json_object_object_foreach(o, key, value) {
        (void)value;
        int i = 0;
        while (known[i] && strcmp(known[i], key))
            i++;
        if (!known[i])
            return NDP_FAIL(NDP_ENOTSUP, "%s: the option '%s' of %s is not supported", l->what, key, where);
    }
    return NDP_OK;
}

ndp_status ndp_load_need(const ndp_loader *l, const char *where, struct json_object *o, const char *key,
                         enum json_type type, struct json_object **out) {
    struct json_object *value = json_object_object_get(o, key);
    if (!json_object_is_type(value, type))
        return NDP_FAIL(NDP_EFORMAT, "%s: %s needs '%s', of type %s", l->what, where, key, json_type_to_name(type));
    *out = value;
    return NDP_OK;
}

ndp_status ndp_load_string(const ndp_loader *l, const char *where, struct json_object *o, const char *key,
                           const char **out) {
    struct json_object *value = NULL;
    NDP_TRY(ndp_load_need(l, where, o, key, json_type_string, &value));
    *out = json_object_get_string(value);
    return NDP_OK;
}

ndp_status ndp_load_keep(const ndp_loader *l, const char *text, const char **out) {
    if (strlen(text) > NDP_PATTERN_BYTES)
        return NDP_FAIL(NDP_EFORMAT, "%s: a stage that adds %zu bytes, '%.30s...', to a text; at most %zu are read",
                        l->what, strlen(text), text, NDP_PATTERN_BYTES);
    *out = ndp_arena_strdup(&l->t->arena, text);
    return *out ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for a tokenizer", l->what);
}

ndp_status ndp_load_fail_type(const ndp_loader *l, const char *where, const char *type) {
    return NDP_FAIL(NDP_ENOTSUP, "%s: a %s of type %s is not supported", l->what, where, type);
}

static ndp_status load_stage(const ndp_loader *l, const char *where, const ndp_stage_type *type, ndp_text_steps *out,
                             struct json_object *o) {
    char named[96];
    const char *keys[1 + NDP_COUNT(type->options)] = {"type"};
    snprintf(named, sizeof named, "the %s %s", where, type->name);
    memcpy(keys + 1, type->options, sizeof type->options);
    NDP_TRY(ndp_load_keys(l, named, o, keys));
    return type->load(l, &(ndp_stage){named, o, type->kind, out});
}

ndp_status ndp_load_stages(const ndp_loader *l, const ndp_stage_types *known, ndp_text_steps *out,
                           struct json_object *o) {
    const char *type = "";
    if (!json_object_is_type(o, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: a %s is not an object", l->what, known->where);
    NDP_TRY(ndp_load_string(l, known->where, o, "type", &type));
    for (int i = 0; i < known->n; i++)
        if (!strcmp(type, known->types[i].name))
            return load_stage(l, known->where, &known->types[i], out, o);
    if (strcmp(type, "Sequence"))
        return ndp_load_fail_type(l, known->where, type);
    struct json_object *items = NULL;
    NDP_TRY(NDP_LOAD_KEYS(l, known->where, o, "type", known->list));
    NDP_TRY(ndp_load_need(l, known->where, o, known->list, json_type_array, &items));
    for (size_t i = 0; i < json_object_array_length(items); i++)
        NDP_TRY(ndp_load_stages(l, known, out, json_object_array_get_idx(items, i)));
    return NDP_OK;
}
