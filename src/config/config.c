/* Reads, checks and writes a configuration by the option table (option.h). A document or an assignment is read into a
 * copy, which replaces the configuration only if all of it was accepted. */
#include "config/config.h"

#include "base/hub.h"
#include "config/foreign.h"
#include "config/names.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether a name is that of a key, with its section: "optimizer.lr". */
static bool is_key(const char *name) {
    char known[NDP_KEY_NAME];
    for (int i = 0; ndp_config_key(i, known) >= 0; i++)
        if (strcmp(name, known) == 0)
            return true;
    return false;
}

static ndp_status fail_unknown(ndp_yaml *y, struct fy_node *node, const char *section, const char *key) {
    const char *dot = section ? NULL : strchr(key, '.'), *colon = strchr(key, ':');
    if (colon && colon > key)
        return ndp_yaml_fail(y, node, "YAML needs a space after the colon: '%.*s: %.60s'", (int)(colon - key), key,
                             colon + 1);
    if (dot && is_key(key))
        return ndp_yaml_fail(y, node, "'%s' is a name for --set; in a file it is %.*s: {%s: VALUE}", key,
                             (int)(dot - key), key, dot + 1);
    char *message = ndp_names_unknown(section, key);
    ndp_status st = ndp_yaml_fail(y, node, "%s", message ? message : "unknown key");
    free(message);
    return st;
}

/* What is read, from a document or an assignment, into which configuration; whether it names the options that others
 * follow. */
typedef struct reading {
    ndp_yaml *y;
    ndp_config *c;
    bool init, config, optimizer;
} reading;

static ndp_status read_option(reading *r, const ndp_option *o, struct fy_node *node) {
    NDP_TRY(ndp_option_read(o, r->y, node, r->c));
    r->c->given[o - ndp_options] = true;
    r->init |= o->offset == offsetof(ndp_config, model.init);
    r->config |= o->offset == offsetof(ndp_config, model.config);
    r->optimizer |= o->offset == offsetof(ndp_config, optimizer.name);
    return NDP_OK;
}

static ndp_status read_default(ndp_config *c, const ndp_option *o, const char *value) {
    ndp_yaml y;
    ndp_status st = ndp_yaml_open(&y, "defaults", value, strlen(value), 0);
    if (st == NDP_OK)
        st = ndp_option_read(o, &y, y.root, c);
    ndp_yaml_close(&y);
    return st;
}

/* Options for which some optimizer has a default of its own get the one of the optimizer just named, unless they are
 * given, before or after its name. */
static ndp_status optimizer_follows(ndp_config *c) {
    const ndp_optimizer *named = ndp_optimizers[c->optimizer.name];
    for (int i = 0; i < NDP_OPTIMIZER_COUNT; i++)
        for (int k = 0; k < NDP_OPTIMIZER_OPTIONS && ndp_optimizers[i]->reads[k].key; k++) {
            const ndp_optimizer_option *any = &ndp_optimizers[i]->reads[k], *own = ndp_optimizer_reads(named, any->key);
            const ndp_option *o = ndp_option_find("optimizer", any->key);
            if (any->value && o && !c->given[o - ndp_options])
                NDP_TRY(read_default(c, o, own && own->value ? own->value : o->value));
        }
    return NDP_OK;
}

/* With a pipeline, weights are used by all micro-batches and gradients complete late, so both stay gathered by default.
 */
static void parallelism_follows(ndp_config *c) {
    bool pipeline = c->parallelism.size[NDP_PP] != 1;
    if (!ndp_config_given(c, "parallelism", "reshard_after_forward"))
        c->parallelism.reshard_after_forward = !pipeline;
    if (!ndp_config_given(c, "parallelism", "reduce_every"))
        c->parallelism.reduce_every = pipeline ? NDP_REDUCE_EVERY_UPDATE : NDP_REDUCE_EVERY_MICRO_BATCH;
}

bool ndp_config_given(const ndp_config *c, const char *section, const char *key) {
    return c->given[ndp_option_find(section, key) - ndp_options];
}

/* A pair is two rows, one document each. The weight of the token loss is what its loss has. */
static void preference_follows(ndp_config *c) {
    bool pairs = c->data.format == NDP_RECORD_PREFERENCE;
    if (!ndp_config_given(c, "data", "packing"))
        c->data.packing = !pairs;
    if (!ndp_config_given(c, "data", "overlong") || (pairs && c->data.overlong == NDP_OVERLONG_AUTO))
        c->data.overlong = pairs ? NDP_OVERLONG_TRUNCATE : NDP_OVERLONG_AUTO;
    if (!ndp_config_given(c, "batch", "micro_batch_size"))
        c->batch.micro_batch_size = pairs ? 2 : 1;
    if (!ndp_config_given(c, "loss", "sft_weight"))
        c->loss.sft_weight = ndp_preference_table[ndp_preference_find(c->loss.name, c->loss.variant)].sft_weight;
}

/* A model that is only a config.json has no weights to load, so init is random unless it was set. */
static ndp_status others_follow(const reading *r) {
    if (r->config && !r->init)
        r->c->model.init = r->c->model.config ? NDP_INIT_RANDOM : NDP_INIT_PRETRAINED;
    parallelism_follows(r->c);
    preference_follows(r->c);
    return r->optimizer ? optimizer_follows(r->c) : NDP_OK;
}

static ndp_status read_section(reading *r, const char *section, struct fy_node *node) {
    ndp_yaml *y = r->y;
    NDP_TRY(ndp_yaml_follow(y, &node));
    if (ndp_yaml_is_null(node)) /* all its keys are commented out */
        return NDP_OK;
    if (!fy_node_is_mapping(node)) {
        const char *text = ndp_yaml_text(node);
        return text && strchr(text, ':')
                   ? fail_unknown(y, node, section, text)
                   : ndp_yaml_fail(y, node, "'%s' is a section: expected KEY: VALUE below it", section);
    }
    void *place = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(node, &place));) {
        struct fy_node *key = fy_node_pair_key(pair), *value = fy_node_pair_value(pair);
        const char *name = ndp_yaml_text(key);
        y->near = key ? key : y->near;
        if (!name)
            return ndp_yaml_fail(y, key, "expected a word as the key");
        const ndp_option *o = ndp_option_find(section, name);
        if (!o)
            return fail_unknown(y, key, section, name);
        NDP_TRY(read_option(r, o, value));
    }
    return NDP_OK;
}

static ndp_status read_document(reading *r) {
    ndp_yaml *y = r->y;
    if (ndp_yaml_is_null(y->root))
        return NDP_OK;
    if (!fy_node_is_mapping(y->root))
        return ndp_yaml_fail(y, y->root, "expected sections such as 'model:' and 'data:'");
    NDP_TRY(ndp_foreign_refuse(y));
    void *place = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(y->root, &place));) {
        struct fy_node *key = fy_node_pair_key(pair);
        const char *section = ndp_yaml_text(key);
        y->near = key;
        if (!section)
            return ndp_yaml_fail(y, key, "expected a word as the name of a section");
        if (!ndp_names_is_section(section))
            return fail_unknown(y, key, NULL, section);
        NDP_TRY(read_section(r, section, fy_node_pair_value(pair)));
    }
    return NDP_OK;
}

void ndp_config_release(ndp_config *c) {
    for (int i = 0; i < ndp_option_count; i++)
        ndp_option_release(&ndp_options[i], c);
}

ndp_status ndp_config_copy(const ndp_config *from, ndp_config *to) {
    ndp_config copy = *from;
    ndp_status st = NDP_OK;
    for (int i = 0; i < ndp_option_count; i++) /* all of them: nothing owned may be shared, even if a copy fails */
        if (ndp_option_copy(&ndp_options[i], from, &copy) != NDP_OK)
            st = NDP_ENOMEM;
    if (st == NDP_OK)
        *to = copy;
    else
        ndp_config_release(&copy);
    return st;
}

/* Reads a document, or the value of one option, into a copy: a failed read changes nothing. */
static ndp_status read_into(ndp_config *c, ndp_yaml *y, const ndp_option *o) {
    ndp_config next;
    NDP_TRY(ndp_config_copy(c, &next));
    reading r = {.y = y, .c = &next};
    ndp_status st = o ? read_option(&r, o, y->root) : read_document(&r);
    if (st == NDP_OK)
        st = others_follow(&r);
    if (st != NDP_OK) {
        ndp_config_release(&next);
        return st;
    }
    ndp_config_release(c);
    *c = next;
    return NDP_OK;
}

ndp_status ndp_config_parse(ndp_config *c, const char *text, size_t size, const char *what) {
    NDP_CHECK(!ndp_foreign_is_toml(text, size),
              "%s: a TOML file, as torchtitan's are; a job file is YAML: `ndparallel config --defaults` prints one to "
              "fill in, and `ndparallel config import %s` says which of torchtitan's keys are which of ours",
              what, what);
    ndp_yaml y;
    ndp_status st = ndp_yaml_open(&y, what, text, size, 0);
    if (st == NDP_OK)
        st = read_into(c, &y, NULL);
    ndp_yaml_close(&y);
    return st;
}

ndp_status ndp_config_read(ndp_config *c, const char *path) {
    NDP_NOT_NULL(c, path);
    char *text;
    size_t size;
    NDP_TRY(ndp_file_read_as(NDP_FILE_JOB, path, &text, &size));
    ndp_status st = ndp_config_parse(c, text, size, path);
    free(text);
    return st;
}

/* The option that the first `length` bytes of an assignment name; otherwise an error that points at them. */
static ndp_status find_assigned(const char *assignment, size_t length, const ndp_option **out) {
    ndp_yaml y = {.what = "--set", .text = assignment, .size = strlen(assignment), .start = (int)length + 1};
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)length, assignment);
    char *dot = strchr(name, '.');
    if (dot)
        *dot = '\0';
    bool section = ndp_names_is_section(name);
    const ndp_option *o = section && dot ? ndp_option_find(name, dot + 1) : NULL;
    if (o) {
        *out = o;
        return NDP_OK;
    }
    char *message = !section ? ndp_names_unknown(NULL, name) : dot ? ndp_names_unknown(name, dot + 1) : NULL;
    int column = section && dot ? (int)(dot - name) + 2 : 1;
    ndp_status st = ndp_yaml_fail_at(&y, 1, column, message ? message : "a section alone; expected SECTION.KEY=VALUE");
    free(message);
    return st;
}

/* An assignment without '=': an example with the value that the key has. */
static ndp_status fail_without_value(const ndp_config *c, const char *assignment) {
    char *value = NULL;
    if (!is_key(assignment) || ndp_config_get(c, assignment, &value) != NDP_OK)
        return NDP_FAIL(NDP_EINVAL, "--set '%s': expected SECTION.KEY=VALUE", assignment);
    ndp_status st = NDP_FAIL(NDP_EINVAL, "--set '%s': expected SECTION.KEY=VALUE, as in --set %s=%s", assignment,
                             assignment, value);
    free(value);
    return st;
}

ndp_status ndp_config_set(ndp_config *c, const char *assignment) {
    NDP_NOT_NULL(c, assignment);
    size_t size = strlen(assignment);
    const char *equals = strchr(assignment, '=');
    NDP_CHECK(ndp_utf8_valid_prefix(assignment, size) == size, "--set: not valid UTF-8");
    if (!equals)
        return fail_without_value(c, assignment);
    const ndp_option *o = NULL;
    NDP_TRY(find_assigned(assignment, (size_t)(equals - assignment), &o));
    ndp_yaml y;
    ndp_status st = ndp_yaml_open(&y, "--set", assignment, size, (int)(equals - assignment) + 1);
    if (st == NDP_OK)
        st = read_into(c, &y, o);
    ndp_yaml_close(&y);
    return st;
}

ndp_status ndp_config_setf(ndp_config *c, const char *format, ...) {
    NDP_NOT_NULL(c, format);
    va_list args;
    va_start(args, format);
    char *assignment = ndp_vformat(format, args);
    va_end(args);
    if (!assignment)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration");
    ndp_status st = ndp_config_set(c, assignment);
    free(assignment);
    return st;
}

int ndp_config_key(int i, char name[NDP_KEY_NAME]) {
    if (i < 0 || i >= ndp_option_count)
        return -1;
    snprintf(name, NDP_KEY_NAME, "%s.%s", ndp_options[i].section, ndp_options[i].key);
    return ndp_options[i].role;
}

/* The defaults are read like any other document: the table states them once. */
ndp_status ndp_config_init(ndp_config *c) {
    ndp_str text = {0};
    for (int i = 0; i < ndp_option_count; i++) {
        const ndp_option *o = &ndp_options[i];
        if (ndp_option_opens_section(i))
            ndp_str_addf(&text, "%s:\n", o->section);
        ndp_str_addf(&text, "  %s: %s\n", o->key, o->value ? o->value : "null");
    }
    memset(c, 0, sizeof *c);
    ndp_status st = text.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration")
                                : ndp_config_parse(c, text.data, text.length, "defaults");
    memset(c->given, 0, sizeof c->given);
    ndp_str_release(&text);
    return st;
}

ndp_status ndp_config_write_keys(const ndp_config *c, const bool *wanted, ndp_str *out) {
    const char *section = "";
    for (int i = 0; i < ndp_option_count; i++) {
        bool derived =
            ndp_options[i].offset == offsetof(ndp_config, train.steps) && c->train.epochs > 0 && !c->given[i];
        if (derived || (wanted && !wanted[i]))
            continue;
        if (strcmp(ndp_options[i].section, section) != 0)
            ndp_str_addf(out, "%s:\n", section = ndp_options[i].section);
        ndp_str_addf(out, "  %s: ", ndp_options[i].key);
        ndp_option_write(&ndp_options[i], c, out);
        ndp_str_add(out, "\n");
    }
    return out->failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration") : NDP_OK;
}

ndp_status ndp_config_write(const ndp_config *c, ndp_str *out) { return ndp_config_write_keys(c, NULL, out); }

ndp_preference ndp_config_preference(const ndp_config *c) {
    bool pairs = c->data.format == NDP_RECORD_PREFERENCE;
    return (ndp_preference){.kind = pairs ? ndp_preference_find(c->loss.name, c->loss.variant) : NDP_PREFERENCE_NONE,
                            .beta = c->loss.beta,
                            .gamma = c->loss.gamma,
                            .label_smoothing = c->loss.label_smoothing,
                            .sft_weight = c->loss.sft_weight};
}

/* ---- the public functions (ndparallel.h) ---- */

ndp_status ndp_config_create(ndp_config **out) {
    NDP_NOT_NULL(out);
    ndp_config *c = malloc(sizeof *c);
    if (!c)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a configuration");
    ndp_status st = ndp_config_init(c);
    if (st != NDP_OK) {
        free(c);
        return st;
    }
    *out = c;
    return NDP_OK;
}

void ndp_config_destroy(ndp_config *c) {
    if (c)
        ndp_config_release(c);
    free(c);
}

static ndp_status hand_out(ndp_str *s, char **text) {
    char *whole = ndp_str_detach(s);
    if (!whole)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a text");
    *text = whole;
    return NDP_OK;
}

ndp_status ndp_config_get(const ndp_config *c, const char *key, char **value) {
    NDP_NOT_NULL(c, key, value);
    char name[NDP_KEY_NAME];
    for (int i = 0; ndp_config_key(i, name) >= 0; i++)
        if (strcmp(name, key) == 0) {
            ndp_str text = {0};
            ndp_option_write(&ndp_options[i], c, &text);
            return hand_out(&text, value);
        }
    return NDP_FAIL(NDP_EINVAL, "the configuration has no key '%s'; expected SECTION.KEY", key);
}

ndp_status ndp_config_text(const ndp_config *c, char **yaml) {
    NDP_NOT_NULL(c, yaml);
    ndp_str s = {0};
    ndp_status st = ndp_config_write(c, &s);
    if (st == NDP_OK)
        st = hand_out(&s, yaml);
    ndp_str_release(&s);
    return st;
}

ndp_status ndp_config_keys(char **text) {
    NDP_NOT_NULL(text);
    ndp_str s = {0};
    ndp_config_help(&s);
    return hand_out(&s, text);
}
