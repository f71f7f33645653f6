/* Names of sections and keys (names.h). */
#include "config/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ndp_names_is_section(const char *name) { return ndp_option_is_section(&ndp_job_options, name); }

const ndp_option *ndp_names_key(const char *name) {
    char known[NDP_KEY_NAME];
    for (int i = 0; ndp_config_key(i, known) >= 0; i++)
        if (strcmp(name, known) == 0)
            return &ndp_options[i];
    return NULL;
}

/* "use optimizer.lr" for a word of another program; empty: it is not one. */
static void add_synonym(const char *word, ndp_str *out) {
    const ndp_synonym *s = ndp_synonym_find(word);
    if (s)
        ndp_str_addf(out, "%s%s", s->words ? "" : "use ", s->words ? s->words : s->key);
}

void ndp_names_unknown(const char *section, const char *key, ndp_str *out) {
    ndp_str hint = {0};
    add_synonym(key, &hint);
    ndp_option_unknown(&ndp_job_options, &(ndp_option_key){section, key, NULL, NULL}, hint.data, NULL, out);
    ndp_str_release(&hint);
}

ndp_status ndp_names_refuse(ndp_yaml *y, const ndp_option_key *key) {
    const char *dot = *key->section ? NULL : strchr(key->name, '.');
    if (dot && ndp_names_key(key->name))
        return ndp_yaml_fail(y, key->node, "'%s' is a name for --set; in a file it is %.*s: {%s: VALUE}", key->name,
                             (int)(dot - key->name), key->name, dot + 1);
    ndp_str s = {0};
    ndp_names_unknown(key->section, key->name, &s);
    return ndp_yaml_fail_str(y, key->node, &s);
}

/* ---- names from the command line ---- */

static ndp_status fail_several(const char *name, const bool wanted[NDP_MOST_OPTIONS]) {
    ndp_str s = {0};
    for (int i = 0; i < ndp_option_count; i++)
        if (wanted[i])
            ndp_str_addf(&s, "%s%s.%s", s.length ? ", " : "", ndp_options[i].section, name);
    ndp_status st = NDP_FAIL(NDP_EINVAL, "several sections have a key '%.60s': %s; name one of these", name,
                             s.failed ? "" : s.data);
    ndp_str_release(&s);
    return st;
}

/* Adds what is like an unknown name: one key or section, or the three nearest keys, however far. */
static void add_similar(const char *name, ndp_str *out) {
    enum { SHOWN = 3 };
    char text[NDP_MOST_OPTIONS][NDP_KEY_NAME];
    const char *whole[NDP_MOST_OPTIONS] = {0}, *keys[NDP_MOST_OPTIONS] = {0}, *sections[NDP_MOST_OPTIONS] = {0};
    const char *near[SHOWN];
    for (int i = 0; i < ndp_option_count; i++) {
        ndp_config_key(i, text[i]);
        whole[i] = text[i];
        keys[i] = ndp_options[i].key;
    }
    int n = ndp_option_keys(&ndp_job_options, "", sections);
    const char *meant = ndp_nearest(name, whole, ndp_option_count), *key = ndp_nearest(name, keys, ndp_option_count);
    for (int i = 0; i < ndp_option_count && !meant && key; i++)
        meant = key == keys[i] ? whole[i] : NULL;
    meant = meant ? meant : ndp_nearest(name, sections, n);
    if (meant)
        ndp_str_addf(out, "; did you mean '%s'?", meant);
    int shown = meant ? 0 : ndp_nearest_names(name, keys, ndp_option_count, SHOWN, near);
    for (int i = 0; i < shown; i++)
        for (int k = 0; k < ndp_option_count; k++)
            if (near[i] == keys[k])
                ndp_str_addf(out, "%s '%s'", i ? "," : "; the nearest are", whole[k]);
    if (!meant)
        ndp_str_add(out, "; `ndparallel config` lists all keys");
}

static ndp_status fail_none(const char *name) {
    char section[NDP_KEY_NAME];
    const char *dot = strchr(name, '.');
    ndp_str s = {0};
    snprintf(section, sizeof section, "%.*s", (int)(dot ? dot - name : 0), name);
    if (dot && (ndp_names_is_section(section) || ndp_synonym_find(dot + 1)))
        ndp_names_unknown(section, dot + 1, &s);
    else {
        ndp_str_addf(&s, "unknown key '%.60s'", name);
        if (ndp_synonym_find(name)) {
            ndp_str_add(&s, "; ");
            add_synonym(name, &s);
        } else
            add_similar(name, &s);
    }
    ndp_status st = NDP_FAIL(NDP_EINVAL, "%s", s.failed ? "unknown key" : s.data);
    ndp_str_release(&s);
    return st;
}

ndp_status ndp_names_find(const char *name, bool wanted[NDP_MOST_OPTIONS]) {
    const ndp_option *whole = name ? ndp_names_key(name) : NULL;
    bool section = !name || ndp_names_is_section(name);
    int n = 0;
    for (int i = 0; i < NDP_MOST_OPTIONS; i++) {
        const ndp_option *o = &ndp_options[i];
        wanted[i] = i < ndp_option_count && (section ? !name || strcmp(o->section, name) == 0
                                             : whole ? o == whole
                                                     : strcmp(o->key, name) == 0);
        n += wanted[i];
    }
    if (n > 1 && !section)
        return fail_several(name, wanted);
    return n ? NDP_OK : fail_none(name);
}
