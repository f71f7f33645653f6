/* Sections of cluster.yaml by the rows of its table: reads them, names what they lack, and explains their keys. */
#include "cluster/cluster_keys.h"

#include <ctype.h>

static const ndp_option *find_row(const char *section, const char *key) {
    return ndp_option_among(ndp_cluster_rows, ndp_cluster_row_count, section, key);
}

/* The keys of a section, with those that are sections. */
static int list_keys(const char *section, const char *out[NDP_CLUSTER_MOST_ROWS]) {
    int n = 0;
    for (int i = 0; i < ndp_cluster_row_count; i++)
        if (strcmp(ndp_cluster_rows[i].section, section) == 0)
            out[n++] = ndp_cluster_rows[i].key;
    for (int i = 0; i < ndp_cluster_section_count; i++) {
        const char *key = ndp_cluster_subsection(ndp_cluster_sections[i].name, section);
        if (key && n < NDP_CLUSTER_MOST_ROWS)
            out[n++] = key;
    }
    return n;
}

ndp_status ndp_cluster_unknown_key(ndp_yaml *y, const ndp_cluster_key *key, const char *more) {
    const char *known[NDP_CLUSTER_MOST_ROWS + 1];
    int n = list_keys(key->section, known);
    if (more)
        known[n++] = more;
    const char *meant = ndp_nearest(key->name, known, n);
    const ndp_option *elsewhere = find_row(NULL, key->name);
    bool section = !*key->section && key->value && fy_node_is_mapping(key->value);
    ndp_str s = {0};
    ndp_str_addf(&s, "unknown %s '%.60s'", section ? "section" : "key", key->name);
    if (*key->section)
        ndp_str_addf(&s, " in '%s'", key->section);
    if (meant)
        ndp_str_addf(&s, "; did you mean '%s'?", meant);
    else if (elsewhere)
        ndp_str_addf(&s, "; did you mean '%s%s%s'?", elsewhere->section, *elsewhere->section ? "." : "", key->name);
    for (int i = 0; i < n && !meant && !elsewhere; i++)
        ndp_str_addf(&s, "%s%s", i ? ", " : "; known are ", known[i]);
    ndp_status st = ndp_yaml_fail(y, key->node, "%s", s.failed ? "unknown key" : s.data);
    ndp_str_release(&s);
    return st;
}

static ndp_status read_key(ndp_yaml *y, const ndp_cluster_key *key, void *into, bool *given) {
    const ndp_option *o = find_row(key->section, key->name);
    if (!o)
        return ndp_cluster_unknown_key(y, key, NULL);
    NDP_TRY(ndp_option_read(o, y, key->value, into));
    if (given)
        given[o - ndp_cluster_rows] = true;
    return NDP_OK;
}

ndp_status ndp_cluster_read_section(ndp_yaml *y, const char *section, struct fy_node *node, void *into, bool *given,
                                    ndp_cluster_key_reader *other, void *user) {
    NDP_TRY(ndp_yaml_follow(y, &node));
    if (ndp_yaml_is_null(node)) /* all its keys are commented out */
        return NDP_OK;
    if (!fy_node_is_mapping(node))
        return *section ? ndp_yaml_fail(y, node, "'%s' is a section: expected KEY: VALUE below it", section)
                        : ndp_yaml_fail(y, node, "expected keys and sections such as 'nodes:' and 'node:'");
    void *place = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(node, &place));) {
        struct fy_node *at = fy_node_pair_key(pair);
        ndp_cluster_key key = {section, ndp_yaml_text(at), at, fy_node_pair_value(pair)};
        bool taken = false;
        y->near = at ? at : y->near;
        if (!key.name)
            return ndp_yaml_fail(y, at, "expected a word as the key");
        if (other)
            NDP_TRY(other(user, y, &key, &taken));
        if (!taken)
            NDP_TRY(read_key(y, &key, into, given));
    }
    return NDP_OK;
}

ndp_status ndp_cluster_check_name(ndp_yaml *y, struct fy_node *node, const char *what, const char *name, int most,
                                  bool colons) {
    bool good = isalnum((unsigned char)name[0]) && strlen(name) <= (size_t)most;
    for (const char *c = name; *c && good; c++)
        good = isalnum((unsigned char)*c) || strchr("-_.", *c) || (colons && *c == ':');
    return good ? NDP_OK
                : ndp_yaml_fail(y, node, "'%.60s' is no name of a %s: expected at most %d letters, digits and - _ .%s",
                                name, what, most, colons ? " :" : "");
}

/* ---- help ---- */

/* "that of the device, or else 2e-6" */
static void explain_default(const ndp_cluster_section *s, const ndp_option *o, ndp_str *out) {
    const char *value = o->value && *o->value ? o->value : NULL;
    if (!ndp_cluster_row_is_of((int)(o - ndp_cluster_rows), s->name))
        ndp_str_add(out, "none");
    else if (s->otherwise)
        ndp_str_addf(out, "%s%s%s", s->otherwise, value ? ", or else " : "", value ? value : "");
    else if (o->type == NDP_OPTION_TEXT && !o->value)
        ndp_str_add(out, "null");
    else
        ndp_str_add(out, value ? value : "none: it must be stated");
}

static void explain_row(const ndp_cluster_section *s, const ndp_option *o, ndp_str *out) {
    enum { WIDTH = 18 };
    ndp_str_addf(out, "  %-*s %s\n  %-*s ", WIDTH, o->key, o->help, WIDTH, "");
    ndp_option_expects(o, out);
    ndp_str_add(out, "; default ");
    explain_default(s, o, out);
    ndp_str_add(out, "\n");
}

void ndp_cluster_keys_help(ndp_str *out) {
    for (int i = 0; i < ndp_cluster_section_count; i++) {
        const ndp_cluster_section *s = &ndp_cluster_sections[i];
        if (*s->name)
            ndp_str_addf(out, "\n%s: %s\n", s->name, s->help);
        for (int k = 0; k < ndp_cluster_row_count; k++)
            if (strcmp(ndp_cluster_rows[k].section, s->name) == 0)
                explain_row(s, &ndp_cluster_rows[k], out);
    }
}

ndp_status ndp_cluster_help(char **text) {
    NDP_NOT_NULL(text);
    ndp_str out = {0};
    ndp_cluster_keys_help(&out);
    *text = ndp_str_detach(&out);
    return *text ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for a text");
}
