/* Architectures of a program's own: reads their config.json, and is what the library sees of one. What the table says
 * of a model it finds out by building it once. own_builder.c builds. */
#include "model/own_table.h"

#include "base/json.h"
#include "base/rng.h"
#include "model/tensors.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- the list of a configuration ---- */

/* Of the struct that a program was compiled with: members that it lacks are 0. */
static ndp_architecture full_of(const ndp_architecture *a) {
    ndp_architecture full = {0};
    memcpy(&full, a, a->size < sizeof full ? a->size : sizeof full);
    return full;
}

ndp_status ndp_own_add(ndp_own_list *list, const ndp_architecture *a) {
    ndp_architecture full = full_of(a);
    size_t length = full.name ? strlen(full.name) : 0;
    NDP_CHECK(a->size > offsetof(ndp_architecture, build), "an architecture of %zu bytes; set size to sizeof", a->size);
    NDP_CHECK(length > 0 && length < sizeof((ndp_model_spec *)0)->type,
              "an architecture's name is a model_type of 1 to 31 characters, not '%s'", full.name ? full.name : "");
    NDP_CHECK(full.read && full.build, "architecture %s has no function %s", full.name, full.read ? "build" : "read");
    NDP_CHECK(full.facts_size <= NDP_FACTS_BYTES, "architecture %s has facts of %zu bytes; at most %d are kept",
              full.name, full.facts_size, NDP_FACTS_BYTES);
    for (int i = 0; ndp_architectures[i]; i++)
        NDP_CHECK(!ndp_architectures[i]->has(full.name), "architecture %s has the name of a family of the library",
                  full.name);
    for (int i = 0; i < list->n; i++)
        NDP_CHECK(strcmp(list->items[i]->name, full.name) != 0, "architecture %s was added already", full.name);
    NDP_CHECK(list->n < NDP_MOST_OWN, "%s is architecture %d of the configuration; at most %d are kept", full.name,
              list->n + 1, NDP_MOST_OWN);
    list->items[list->n++] = a;
    return NDP_OK;
}

void ndp_own_begin(void *facts, const ndp_architecture *a) { ((ndp_own_facts *)facts)->of = full_of(a); }

/* ---- config.json ---- */

struct ndp_model_json {
    struct json_object *config;
    const char *what;
    ndp_own_facts *f;
    ndp_status st;
};

static void add_key(ndp_model_json *c, const char *key, bool shape) {
    struct json_object *value = NULL;
    ndp_own_key *k = &c->f->keys[c->f->n_keys];
    json_object_object_get_ex(c->config, key, &value);
    const char *text = value ? json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN) : "null";
    for (int i = 0; i < c->f->n_keys; i++)
        if (strcmp(c->f->keys[i].key, key) == 0)
            return;
    if (c->f->n_keys == NDP_OWN_FACTS || strlen(key) >= NDP_OWN_WORD || strlen(text) >= NDP_OWN_WORD) {
        c->st = NDP_FAIL(NDP_EINVAL, "%s: \"%.60s\" is key %d, or is longer than %d characters", c->what, key,
                         c->f->n_keys + 1, NDP_OWN_WORD - 1);
        return;
    }
    snprintf(k->key, sizeof k->key, "%s", key);
    snprintf(k->value, sizeof k->value, "%s", text);
    k->shape = shape;
    c->f->n_keys++;
}

/* Whether the value of a needed key may be read. */
static bool find(ndp_model_json *config, const char *key, bool shape) {
    const void *const pointers[] = {config, key};
    if (ndp_check_not_null(__FILE__, __LINE__, __func__, "config, key", pointers, 2) != NDP_OK || config->st != NDP_OK)
        return false;
    add_key(config, key, shape);
    if (config->st == NDP_OK && !ndp_model_json_has(config, key))
        config->st = NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is missing; a %s needs it", config->what, key, config->f->type);
    return config->st == NDP_OK;
}

int64_t ndp_model_json_int(ndp_model_json *config, const char *key, int64_t least, int64_t most) {
    int64_t value = 0;
    if (find(config, key, true))
        config->st = ndp_json_int(config->config, config->what, key, least, most, &value);
    return config && config->st == NDP_OK ? value : 0;
}

double ndp_model_json_number(ndp_model_json *config, const char *key, double least, double most) {
    double value = 0;
    if (!find(config, key, false))
        return 0;
    config->st = ndp_json_double(config->config, config->what, key, &value);
    if (config->st == NDP_OK && !(value >= least && value <= most))
        config->st = NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is %g; it is a number from %g to %g", config->what, key, value,
                              least, most);
    return config->st == NDP_OK ? value : 0;
}

bool ndp_model_json_flag(ndp_model_json *config, const char *key) {
    bool value = false;
    if (find(config, key, true))
        config->st = ndp_json_bool(config->config, config->what, key, &value);
    return config && config->st == NDP_OK && value;
}

int ndp_model_json_word(ndp_model_json *config, const char *key, const char *const *words, int n) {
    const char *value = NULL;
    ndp_str list = {0};
    int at = 0;
    if (!words || !find(config, key, true))
        return 0;
    config->st = ndp_json_string(config->config, config->what, key, &value);
    while (config->st == NDP_OK && at < n && strcmp(words[at], value) != 0)
        ndp_str_addf(&list, "%s%s", at ? ", " : "", words[at]), at++;
    if (config->st == NDP_OK && at == n)
        config->st = NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is \"%.60s\"; it is one of %s", config->what, key, value,
                              list.data ? list.data : "none");
    ndp_str_release(&list);
    return config->st == NDP_OK ? at : 0;
}

bool ndp_model_json_has(ndp_model_json *config, const char *key) {
    struct json_object *value = NULL;
    if (!config || !key || config->st != NDP_OK)
        return false;
    bool there = json_object_object_get_ex(config->config, key, &value) && value;
    add_key(config, key, true);
    return there && config->st == NDP_OK;
}

void ndp_model_json_fail(ndp_model_json *config, const char *format, ...) {
    if (!config || !format || config->st != NDP_OK)
        return;
    va_list args;
    va_start(args, format);
    char *text = ndp_vformat(format, args);
    va_end(args);
    config->st = NDP_FAIL(NDP_EFORMAT, "%s: %s", config->what, text ? text : "not enough memory");
    free(text);
}

/* ---- the table ---- */

/* What only a built model says. */
static ndp_status measure(ndp_own_facts *f) {
    const ndp_model_opts o = {
        .mode = NDP_MODEL_TRAIN, .rows = 1, .positions = 1, .compute = NDP_F32, .master = NDP_F32};
    ndp_model m;
    NDP_TRY(ndp_own_build(f, &o, &m));
    const ndp_own_facts *built = m.facts;
    f->vocab = built->vocab, f->hidden = built->hidden, f->layout = built->layout;
    for (ndp_segment_walk w = {.model = &m}; ndp_segment_next(&w);) {
        int64_t n = ndp_segment_elements(w.segment);
        f->parameters += n;
        f->largest = n > f->largest ? n : f->largest;
    }
    ndp_model_release(&m);
    return NDP_OK;
}

static ndp_status read_facts(struct json_object *config, const char *what, void *facts) {
    ndp_own_facts *f = facts;
    ndp_model_json c = {config, what, f, NDP_OK};
    int64_t positions = 0;
    snprintf(f->type, sizeof f->type, "%s", f->of.name);
    f->bos = f->eos = -1;
    positions = ndp_model_json_int(&c, "max_position_embeddings", 1, INT32_MAX);
    NDP_TRY(c.st);
    f->positions = positions;
    f->keys[0].shape = false;
    NDP_TRY(ndp_json_int(config, what, "bos_token_id", -1, INT32_MAX, &f->bos));
    NDP_TRY(ndp_json_int(config, what, "eos_token_id", -1, INT32_MAX, &f->eos));
    f->of.read(&c, f->facts);
    NDP_TRY(c.st);
    return measure(f);
}

static void describe(const void *facts, ndp_model_spec *out) {
    const ndp_own_facts *f = facts;
    memcpy(out->type, f->type, sizeof out->type);
    out->vocab = f->vocab;
    out->hidden = f->hidden;
    out->layout = f->layout;
    out->positions = f->positions;
    out->bos = f->bos, out->eos = f->eos;
    out->parameters = f->parameters;
    out->largest = f->largest;
}

static ndp_status build(const void *facts, const ndp_model_opts *opts, ndp_model *out) {
    return ndp_own_build(facts, opts, out);
}

void ndp_draw_normal(const ndp_drawn *d, double deviation, float *out) {
    if (d && d->name && out)
        ndp_rng_normal(d->seed, ndp_rng_stream(d->name), (uint64_t)d->first, d->count, deviation, out);
}

static void draw(const void *facts, uint64_t seed, const ndp_segment *s, int64_t first, int64_t count, float *out) {
    const ndp_own_facts *f = facts;
    const ndp_drawn d = {sizeof d, s->name, s->ndim, {s->whole[0], s->whole[1]}, first, count, seed};
    if (f->of.random)
        f->of.random(f->facts, &d, out);
    else if (s->ndim == 2)
        ndp_draw_normal(&d, 0.02, out);
    else
        for (int64_t i = 0; i < count; i++)
            out[i] = ndp_ends_with(s->name, ".bias") ? 0 : 1;
}

static void list(const void *facts, ndp_fact_visitor *visit, void *user) {
    const ndp_own_facts *f = facts;
    for (int i = 0; i < f->n_keys; i++)
        visit(user, &(ndp_fact){f->keys[i].key, f->keys[i].value, f->keys[i].shape});
}

/* Only those of a list have the table: ndp_model_spec_read finds them by name. */
static bool has_none(const char *model_type) {
    (void)model_type;
    return false;
}

const ndp_architecture_table ndp_own_table = {.name = "own",
                                              .facts_size = sizeof(ndp_own_facts),
                                              .has = has_none,
                                              .read = read_facts,
                                              .describe = describe,
                                              .build = build,
                                              .random = draw,
                                              .list = list};
