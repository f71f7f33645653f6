/* Entries of data.files with options of their own (entry.h). They are rows of the option table: an entry's value is
 * read, checked and written by its row, and takes precedence over the job's. */
#include "config/entry.h"

#include <stdlib.h>
#include <string.h>

static const char path_key[] = "path", split_key[] = "split";

static ndp_status fail_key(const ndp_option *o, ndp_yaml *y, const ndp_option_key *key) {
    const char *known[NDP_MOST_OPTIONS + 2] = {path_key, split_key};
    int n = 2;
    for (int i = 0; i < ndp_option_count; i++)
        if (ndp_options[i].entry)
            known[n++] = ndp_options[i].key;
    const char *meant = ndp_nearest(key->name, known, n);
    ndp_str s = {0};
    ndp_str_addf(&s, "unknown key '%.60s' in an entry of %s.%s; ", key->name, o->section, o->key);
    ndp_str_addf(&s, meant ? "did you mean '%s'?" : "known are path, split", meant);
    for (int i = 2; i < n && !meant; i++)
        ndp_str_addf(&s, ", %s", known[i]);
    return ndp_yaml_fail_str(y, key->node, &s);
}

/* What a mapping says, before it is written. */
typedef struct entry_reading {
    const ndp_option *o;
    ndp_config values;
    bool given[NDP_MOST_OPTIONS];
    char *path, *split;
} entry_reading;

/* path and split, which are no rows; of the rows, those that an entry may have. */
static ndp_status read_other(ndp_option_reading *reading, const ndp_option_key *key, bool *taken) {
    entry_reading *r = reading->user;
    const ndp_option *o = ndp_option_find(r->o->section, key->name);
    *taken = strcmp(key->name, path_key) == 0 || strcmp(key->name, split_key) == 0;
    if (!*taken)
        return o && o->entry ? NDP_OK : fail_key(r->o, reading->y, key);
    const ndp_option text = {.section = r->o->section, .key = key->name, .type = NDP_OPTION_TEXT, .value = ""};
    char **into = key->name[0] == 'p' ? &r->path : &r->split;
    return ndp_option_read(&text, reading->y, key->value, into);
}

static ndp_status read_mapping(entry_reading *r, ndp_yaml *y, struct fy_node *mapping) {
    ndp_option_reading reading = {
        .table = &ndp_job_options, .y = y, .into = &r->values, .other = read_other, .user = r};
    NDP_TRY(ndp_option_read_section(&reading, r->o->section, mapping));
    memcpy(r->given, reading.stated, sizeof r->given);
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

static void release(entry_reading *r) {
    ndp_config_release(&r->values);
    free(r->path);
    free(r->split);
}

ndp_status ndp_entry_read(const ndp_option *o, ndp_yaml *y, struct fy_node *mapping, ndp_strings *names,
                          ndp_strings *own) {
    entry_reading r = {.o = o};
    ndp_str text = {0};
    ndp_status st = read_mapping(&r, y, mapping);
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

const char *ndp_config_own(const ndp_strings *own, int i) { return i < own->n ? own->items[i] : ""; }

ndp_status ndp_config_entry(const ndp_config *c, const char *own, ndp_config *out, char **split) {
    ndp_yaml y;
    ndp_config with;
    entry_reading r = {.o = first_entries()};
    NDP_TRY(ndp_config_copy(c, &with));
    ndp_status st = *own ? ndp_yaml_open(&y, "an entry of data.files", own, strlen(own), 0) : NDP_OK;
    if (st == NDP_OK && *own) {
        r.values = with; /* the values of the entry replace those of the job */
        st = read_mapping(&r, &y, y.root);
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
