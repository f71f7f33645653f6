/* Entries of data.files with options of their own (entry.h). They are rows of the option table: an entry's value is
 * read, checked and written by its row, and takes precedence over the job's. */
#include "config/entry.h"

#include <stdlib.h>
#include <string.h>

static const char path_key[] = "path", split_key[] = "split";

static const ndp_option *find(const char *key) {
    for (int i = 0; i < ndp_option_count; i++)
        if (ndp_options[i].entry && strcmp(ndp_options[i].key, key) == 0)
            return &ndp_options[i];
    return NULL;
}

static ndp_status fail_key(const ndp_option *o, ndp_yaml *y, struct fy_node *key, const char *name) {
    enum { MOST = 32 };
    const char *known[MOST] = {path_key, split_key};
    int n = 2;
    for (int i = 0; i < ndp_option_count && n < MOST; i++)
        if (ndp_options[i].entry)
            known[n++] = ndp_options[i].key;
    const char *meant = ndp_nearest(name, known, n);
    ndp_str s = {0};
    ndp_str_addf(&s, "unknown key '%.60s' in an entry of %s.%s; ", name, o->section, o->key);
    ndp_str_addf(&s, meant ? "did you mean '%s'?" : "known are path, split", meant);
    for (int i = 2; i < n && !meant; i++)
        ndp_str_addf(&s, ", %s", known[i]);
    ndp_status st = ndp_yaml_fail(y, key, "%s", s.failed ? "unknown key" : s.data);
    ndp_str_release(&s);
    return st;
}

/* What a mapping says, before it is written. */
typedef struct entry_reading {
    const ndp_option *o;
    ndp_yaml *y;
    ndp_config values;
    bool given[NDP_MOST_OPTIONS];
    char *path, *split;
} entry_reading;

static ndp_status read_pair(entry_reading *r, struct fy_node *key, struct fy_node *value) {
    const char *name = ndp_yaml_text(key);
    r->y->near = key ? key : r->y->near;
    if (!name)
        return ndp_yaml_fail(r->y, key, "expected a word as the key");
    const ndp_option text = {.section = r->o->section, .key = name, .type = NDP_OPTION_TEXT, .value = ""};
    if (strcmp(name, path_key) == 0 || strcmp(name, split_key) == 0) {
        NDP_TRY(ndp_yaml_follow(r->y, &value));
        const char *given = ndp_yaml_text(value);
        if (!given || !*given || ndp_yaml_is_null(value))
            return ndp_option_unexpected(&text, r->y, value);
        return ndp_option_copy_text(given, name[0] == 'p' ? &r->path : &r->split);
    }
    const ndp_option *o = find(name);
    if (!o)
        return fail_key(r->o, r->y, key, name);
    NDP_TRY(ndp_option_read(o, r->y, value, &r->values));
    r->given[o - ndp_options] = true;
    return NDP_OK;
}

static void write_own(const entry_reading *r, ndp_str *out) {
    const char *before = "{";
    for (int i = 0; i < ndp_option_count; i++)
        if (r->given[i]) {
            ndp_str_addf(out, "%s%s: ", before, ndp_options[i].key);
            ndp_option_write(&ndp_options[i], &r->values, out);
            before = ", ";
        }
    if (r->split) {
        ndp_str_addf(out, "%s%s: ", before, split_key);
        ndp_option_write_text(r->split, out);
        before = ", ";
    }
    ndp_str_add(out, before[0] == ',' ? "}" : "");
}

static ndp_status read_mapping(entry_reading *r, struct fy_node *mapping) {
    void *place = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(mapping, &place));)
        NDP_TRY(read_pair(r, fy_node_pair_key(pair), fy_node_pair_value(pair)));
    return NDP_OK;
}

static void release(entry_reading *r) {
    ndp_config_release(&r->values);
    free(r->path);
    free(r->split);
}

ndp_status ndp_entry_read(const ndp_option *o, ndp_yaml *y, struct fy_node *mapping, ndp_strings *names,
                          ndp_strings *own) {
    entry_reading r = {.o = o, .y = y};
    ndp_str text = {0};
    ndp_status st = read_mapping(&r, mapping);
    if (st == NDP_OK && !r.path)
        st = ndp_yaml_fail(y, mapping,
                           "an entry of %s.%s has no path; expected a name, or {path: NAME, KEY: VALUE, ...}",
                           o->section, o->key);
    write_own(&r, &text);
    if (st == NDP_OK && text.failed)
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration");
    if (st == NDP_OK)
        st = ndp_strings_add(names, r.path);
    if (st == NDP_OK)
        st = ndp_strings_add(own, text.data ? text.data : "");
    ndp_str_release(&text);
    release(&r);
    return st;
}

void ndp_entry_write(const char *name, const char *own, ndp_str *out) {
    if (*own)
        ndp_str_addf(out, "{%s: ", path_key);
    ndp_option_write_text(name, out);
    if (*own)
        ndp_str_addf(out, ", %s", own + 1);
}

/* ---- applying ---- */

/* data.files, which messages name. */
static const ndp_option *first_entries(void) {
    const ndp_option *o = ndp_options;
    while (o->type != NDP_OPTION_ENTRIES)
        o++;
    return o;
}

ndp_status ndp_entry_parse(const char *text, ndp_strings *names, ndp_strings *own) {
    ndp_yaml y;
    ndp_status st = ndp_yaml_open(&y, "an entry of data.files", text, strlen(text), 0);
    if (st == NDP_OK)
        st = ndp_entry_read(first_entries(), &y, y.root, names, own);
    ndp_yaml_close(&y);
    return st;
}

ndp_status ndp_config_entry(const ndp_config *c, const char *own, ndp_config *out, char **split) {
    ndp_yaml y;
    ndp_config with;
    entry_reading r = {.o = first_entries(), .y = &y};
    NDP_TRY(ndp_config_copy(c, &with));
    ndp_status st = *own ? ndp_yaml_open(&y, "an entry of data.files", own, strlen(own), 0) : NDP_OK;
    if (st == NDP_OK && *own) {
        r.values = with; /* the values of the entry replace those of the job */
        st = read_mapping(&r, y.root);
        with = r.values;
        r.values = (ndp_config){0};
    }
    if (*own)
        ndp_yaml_close(&y);
    if (st == NDP_OK) {
        *out = with;
        *split = r.split;
        r.split = NULL;
    } else
        ndp_config_release(&with);
    release(&r);
    return st;
}
