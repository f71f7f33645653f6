/* From config.json to a model, whatever its architecture. */
#include "model/architecture.h"

#include "base/json.h"
#include "model/own_table.h"
#include <stdlib.h>
#include <string.h>

/* The first architecture also reads what none has: its message says what is built. *own: one of the list, if it is. */
static const ndp_architecture_table *choose(struct json_object *config, const ndp_own_list *list,
                                            const ndp_architecture **own) {
    const char *type = ndp_json_text(json_object_object_get(config, "model_type"));
    *own = NULL;
    for (int i = 0; type && list && i < list->n && !*own; i++)
        *own = strcmp(list->items[i]->name, type) == 0 ? list->items[i] : NULL;
    if (*own)
        return &ndp_own_table;
    for (int i = 0; type && ndp_architectures[i]; i++)
        if (ndp_architectures[i]->has(type))
            return ndp_architectures[i];
    return ndp_architectures[0];
}

static const ndp_model_spec nothing = {.bos = -1, .eos = -1, .prefix = "", .text = ""};

static void describe(ndp_model_spec *s) {
    ndp_model_spec d = nothing;
    d.architecture = s->architecture;
    d.facts = s->facts;
    d.own_head = s->own_head;
    memcpy(d.tie, s->tie, sizeof d.tie);
    s->architecture->describe(s->facts, &d);
    *s = d;
}

ndp_status ndp_model_spec_parse(struct json_object *config, const char *what, const ndp_own_list *list,
                                ndp_model_spec *out) {
    const ndp_architecture *own;
    ndp_model_spec s = {.architecture = choose(config, list, &own)};
    s.facts = calloc(1, s.architecture->facts_size);
    if (!s.facts)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for the facts of a model", what);
    if (own)
        ndp_own_begin(s.facts, own);
    ndp_status st = s.architecture->read(config, what, s.facts);
    if (st != NDP_OK) {
        free(s.facts);
        return st;
    }
    describe(&s);
    *out = s;
    return NDP_OK;
}

ndp_status ndp_model_spec_read(const char *path, const ndp_own_list *own, ndp_model_spec *out) {
    struct json_object *config;
    NDP_TRY(ndp_json_read(path, &config));
    ndp_status st = ndp_model_spec_parse(config, path, own, out);
    json_object_put(config);
    return st;
}

void ndp_model_spec_set_own_head(ndp_model_spec *s, bool own) {
    if (!s->tie[0][0])
        return;
    s->own_head = own;
    s->architecture->set_tied(s->facts, !own);
    describe(s);
}

void ndp_model_spec_release(ndp_model_spec *s) {
    free(s->facts);
    *s = (ndp_model_spec){0};
}

ndp_status ndp_model_build(const ndp_model_spec *s, const ndp_model_opts *opts, ndp_model *out) {
    return s->architecture->build(s->facts, opts, out);
}

void ndp_model_describe(const ndp_model *m, ndp_model_spec *out) {
    *out = nothing;
    m->architecture->describe(m->facts, out);
}
