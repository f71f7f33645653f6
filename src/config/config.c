/* Reads and writes a configuration by its option table (table.h). A document or an assignment is read into a
 * copy, which replaces the configuration only if all of it was accepted. */
#include "config/config.h"

#include "config/foreign.h"
#include "config/names.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ndp_status ndp_option_follow_optimizer(ndp_config *c) {
    const ndp_optimizer *named = ndp_optimizers[c->optimizer.name];
    for (int i = 0; i < NDP_OPTIMIZER_COUNT; i++)
        for (int k = 0; k < NDP_OPTIMIZER_OPTIONS && ndp_optimizers[i]->reads[k].key; k++) {
            const ndp_optimizer_option *any = &ndp_optimizers[i]->reads[k], *own = ndp_optimizer_reads(named, any->key);
            const ndp_option *o = ndp_option_find("optimizer", any->key);
            if (any->value && o && !c->given[o - ndp_options])
                NDP_TRY(ndp_option_parse(o, own && own->value ? own->value : o->value, c));
        }
    return NDP_OK;
}

/* With a pipeline, weights are used by all micro-batches and gradients complete late, so both stay gathered by default.
 */
ndp_reduce_every ndp_config_reduce_every(const ndp_config *c, int pp) {
    if (ndp_config_given(c, "parallelism", "reduce_every"))
        return c->parallelism.reduce_every;
    return pp != 1 ? NDP_REDUCE_EVERY_UPDATE : NDP_REDUCE_EVERY_MICRO_BATCH;
}

static void parallelism_follows(ndp_config *c) {
    int pp = c->parallelism.size[NDP_PP];
    if (!ndp_config_given(c, "parallelism", "reshard_after_forward"))
        c->parallelism.reshard_after_forward = pp == 1;
    c->parallelism.reduce_every = ndp_config_reduce_every(c, pp);
}

bool ndp_config_given(const ndp_config *c, const char *section, const char *key) {
    return c->given[ndp_option_find(section, key) - ndp_options];
}

int ndp_config_least_rows(const ndp_config *c) {
    const ndp_preference_row *row = &ndp_preference_table[ndp_config_preference(c).kind];
    return c->data.format == NDP_RECORD_PREFERENCE && !row->single ? 2 : 1;
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

/* Whether what was just read states a key. */
static bool states(const ndp_option_reading *r, const char *section, const char *key) {
    return r->stated[ndp_option_find(section, key) - ndp_options];
}

/* Options that follow others. A model that is only a config.json has no weights to load, so init is random unless it
 * was set. */
static ndp_status others_follow(const ndp_option_reading *r) {
    ndp_config *c = r->into;
    for (int i = 0; i < ndp_option_count; i++)
        c->given[i] |= r->stated[i];
    if (states(r, "model", "config") && !states(r, "model", "init"))
        c->model.init = c->model.config ? NDP_INIT_RANDOM : NDP_INIT_PRETRAINED;
    parallelism_follows(c);
    preference_follows(c);
    return states(r, "optimizer", "name") ? ndp_option_follow_optimizer(c) : NDP_OK;
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

static ndp_status read_option(ndp_option_reading *r, const ndp_option *o, struct fy_node *value) {
    r->stated[o - ndp_options] = true;
    return ndp_option_read(o, r->y, value, r->into);
}

static ndp_status read_document(ndp_option_reading *r) {
    if (r->y->root && fy_node_is_mapping(r->y->root))
        NDP_TRY(ndp_foreign_refuse(r->y));
    return ndp_option_read_section(r, "", r->y->root);
}

/* Reads a document, or the value of one option, into a copy: a failed read changes nothing. */
static ndp_status read_into(ndp_config *c, ndp_yaml *y, const ndp_option *o) {
    ndp_config next;
    NDP_TRY(ndp_config_copy(c, &next));
    ndp_option_reading r = {.table = &ndp_job_options, .y = y, .into = &next};
    ndp_status st = o ? read_option(&r, o, y->root) : read_document(&r);
    if (st == NDP_OK)
        st = others_follow(&r);
    if (st == NDP_OK)
        ndp_config_release(c);
    else
        ndp_config_release(&next);
    if (st == NDP_OK)
        *c = next;
    return st;
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
    return NDP_FILE_PARSE(NDP_FILE_JOB, path, text, size, ndp_config_parse(c, text, size, path));
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
    ndp_str message = {0};
    if (!section || dot)
        ndp_names_unknown(section ? name : "", section ? dot + 1 : name, &message);
    int column = section && dot ? (int)(dot - name) + 2 : 1;
    ndp_status st =
        ndp_yaml_fail_at(&y, 1, column, message.data ? message.data : "a section alone; expected SECTION.KEY=VALUE");
    ndp_str_release(&message);
    return st;
}

/* An assignment without '=': an example with the value that the key has. */
static ndp_status fail_without_value(const ndp_config *c, const char *assignment) {
    char *value = NULL;
    if (!ndp_names_key(assignment) || ndp_config_get(c, assignment, &value) != NDP_OK)
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
    NDP_CHECK_MEMORY(assignment, "for the configuration");
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

ndp_status ndp_config_init(ndp_config *c) {
    memset(c, 0, sizeof *c);
    ndp_status st = NDP_OK;
    for (int i = 0; i < ndp_option_count && st == NDP_OK; i++)
        if (ndp_options[i].value && *ndp_options[i].value)
            st = ndp_option_parse(&ndp_options[i], ndp_options[i].value, c);
    if (st != NDP_OK)
        ndp_config_release(c);
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
    return NDP_MEMORY(!out->failed, "for the configuration");
}

ndp_status ndp_config_write(const ndp_config *c, ndp_str *out) { return ndp_config_write_keys(c, NULL, out); }

ndp_preference ndp_config_preference(const ndp_config *c) {
    bool pairs = c->data.format == NDP_RECORD_PREFERENCE;
    ndp_preference_kind kind = ndp_preference_find(c->loss.name, c->loss.variant);
    return (ndp_preference){.kind = pairs ? kind : NDP_PREFERENCE_NONE,
                            .beta = ndp_preference_scores(kind) ? 1 : c->loss.beta,
                            .center = c->loss.center,
                            .gamma = c->loss.gamma,
                            .label_smoothing = c->loss.label_smoothing,
                            .sft_weight = c->loss.sft_weight,
                            .desirable_weight = c->loss.desirable_weight,
                            .undesirable_weight = c->loss.undesirable_weight};
}

/* ---- the public functions (ndparallel.h) ---- */

ndp_status ndp_config_create(ndp_config **out) {
    NDP_NOT_NULL(out);
    ndp_config *c = malloc(sizeof *c);
    NDP_CHECK_MEMORY(c, "for a configuration");
    ndp_status st = ndp_config_init(c);
    if (st != NDP_OK) {
        free(c);
        return st;
    }
    *out = c;
    return NDP_OK;
}

ndp_status ndp_config_add_architecture(ndp_config *c, const ndp_architecture *a) {
    NDP_NOT_NULL(c, a);
    return ndp_own_add(&c->own, a);
}

void ndp_config_destroy(ndp_config *c) {
    if (c)
        ndp_config_release(c);
    free(c);
}

static ndp_status hand_out(ndp_str *s, char **text) {
    char *whole = ndp_str_detach(s);
    NDP_CHECK_MEMORY(whole, "for a text");
    *text = whole;
    return NDP_OK;
}

ndp_status ndp_config_get(const ndp_config *c, const char *key, char **value) {
    NDP_NOT_NULL(c, key, value);
    const ndp_option *o = ndp_names_key(key);
    if (!o)
        return NDP_FAIL(NDP_EINVAL, "the configuration has no key '%s'; expected SECTION.KEY", key);
    ndp_str text = {0};
    ndp_option_write(o, c, &text);
    return hand_out(&text, value);
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
