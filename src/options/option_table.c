/* Reads YAML by a table of options (option_table.h). Who calls it: config/ for job.yaml and the entries of data.files,
 * cluster/ for cluster.yaml. */
#include "options/option_table.h"

#include <string.h>

const ndp_option *ndp_option_among(const ndp_option_table *t, const char *section, const char *key) {
    for (int i = 0; i < t->n; i++)
        if ((!section || strcmp(t->rows[i].section, section) == 0) && strcmp(t->rows[i].key, key) == 0)
            return &t->rows[i];
    return NULL;
}

bool ndp_option_is_section(const ndp_option_table *t, const char *name) {
    for (int i = 0; i < t->section_count; i++)
        if (strcmp(t->sections[i].name, name) == 0)
            return true;
    return false;
}

/* The key of a section in the one that contains it, if that is `outer`: "links" of "node.links" in "node". Otherwise
 * NULL. */
static const char *key_in(const char *section, const char *outer) {
    const char *dot = strrchr(section, '.');
    size_t n = dot ? (size_t)(dot - section) : 0;
    return *section && strlen(outer) == n && strncmp(section, outer, n) == 0 ? section + n + (dot ? 1 : 0) : NULL;
}

int ndp_option_keys(const ndp_option_table *t, const char *section, const char *keys[NDP_MOST_ROWS]) {
    int n = 0;
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->rows[i].section, section) == 0)
            keys[n++] = t->rows[i].key;
    for (int i = 0; i < t->section_count; i++)
        if (n < NDP_MOST_ROWS && key_in(t->sections[i].name, section))
            keys[n++] = key_in(t->sections[i].name, section);
    return n;
}

/* Whether a file has keys outside all sections. */
static bool has_keys(const ndp_option_table *t) { return !*t->rows[0].section; }

void ndp_option_unknown(const ndp_option_table *t, const ndp_option_key *key, const char *hint, const char *more,
                        ndp_str *out) {
    const char *known[NDP_MOST_ROWS + 1];
    int n = ndp_option_keys(t, key->section, known);
    if (more)
        known[n++] = more;
    const char *meant = ndp_nearest(key->name, known, n);
    const ndp_option *elsewhere = ndp_option_among(t, NULL, key->name);
    bool mapping = key->value && fy_node_is_mapping(key->value);
    bool section = !hint && !elsewhere && !*key->section && (mapping || !has_keys(t));
    ndp_str_addf(out, section ? "unknown section '%.60s'" : "unknown key '%.60s'", key->name);
    if (*key->section)
        ndp_str_addf(out, " in '%s'", key->section);
    if (hint)
        ndp_str_addf(out, "; %s", hint);
    else if (elsewhere)
        ndp_str_addf(out, "; did you mean '%s%s%s'?", elsewhere->section, *elsewhere->section ? "." : "", key->name);
    else if (meant)
        ndp_str_addf(out, "; did you mean '%s'?", meant);
    for (int i = 0; i < n && !hint && !elsewhere && !meant; i++)
        ndp_str_addf(out, "%s%s", i ? ", " : "; known are ", known[i]);
}

/* ---- reading ---- */

static ndp_status refuse(ndp_option_reading *r, const ndp_option_key *key) {
    const char *colon = strchr(key->name, ':');
    if (colon && colon > key->name)
        return ndp_yaml_fail(r->y, key->node, "YAML needs a space after the colon: '%.*s: %.60s'",
                             (int)(colon - key->name), key->name, colon + 1);
    return r->table->refuse(r->y, key);
}

/* A key whose value is a row's, or a section. */
static ndp_status read_key(ndp_option_reading *r, const ndp_option_key *key) {
    const ndp_option_table *t = r->table;
    const ndp_option *o = ndp_option_among(t, key->section, key->name);
    for (int i = 0; i < t->section_count && !o; i++) {
        const char *name = key_in(t->sections[i].name, key->section);
        if (name && strcmp(name, key->name) == 0)
            return ndp_option_read_section(r, t->sections[i].name, key->value);
    }
    if (!o)
        return refuse(r, key);
    r->stated[o - t->rows] = true;
    r->key[o - t->rows] = key->node;
    r->value[o - t->rows] = key->value;
    return ndp_option_read(o, r->y, key->value, r->into);
}

static ndp_status read_mapping(ndp_option_reading *r, const char *section, struct fy_node *node) {
    void *place = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(node, &place));) {
        struct fy_node *at = fy_node_pair_key(pair);
        ndp_option_key key = {section, ndp_yaml_text(at), at, fy_node_pair_value(pair)};
        bool taken = false;
        r->y->near = at ? at : r->y->near;
        if (!key.name)
            return ndp_yaml_fail(r->y, at, "expected a word as the %s",
                                 *section || has_keys(r->table) ? "key" : "name of a section");
        if (r->other)
            NDP_TRY(r->other(r, &key, &taken));
        if (!taken)
            NDP_TRY(read_key(r, &key));
    }
    return NDP_OK;
}

ndp_status ndp_option_read_section(ndp_option_reading *r, const char *section, struct fy_node *node) {
    NDP_TRY(ndp_yaml_follow(r->y, &node));
    if (ndp_yaml_is_null(node)) /* all its keys are commented out */
        return NDP_OK;
    if (fy_node_is_mapping(node))
        return read_mapping(r, section, node);
    const char *text = ndp_yaml_text(node);
    if (!*section)
        return ndp_yaml_fail(r->y, node, "expected %s", r->table->expected);
    if (text && strchr(text, ':'))
        return refuse(r, &(ndp_option_key){section, text, node, NULL});
    return ndp_yaml_fail(r->y, node, "'%s' is a section: expected KEY: VALUE below it", section);
}

ndp_status ndp_option_defaults(const ndp_option_table *t, const char *section, void *into) {
    size_t n = strlen(section);
    for (int i = 0; i < t->n; i++) {
        const ndp_option *o = &t->rows[i];
        bool inside = strncmp(o->section, section, n) == 0 && (!o->section[n] || (n && o->section[n] == '.'));
        if (inside && o->value && *o->value)
            NDP_TRY(ndp_option_parse(o, o->value, into));
    }
    return NDP_OK;
}
