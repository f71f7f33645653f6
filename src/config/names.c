/* Names of sections and keys (names.h). */
#include "config/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ndp_names_is_section(const char *name) {
    for (int i = 0; i < ndp_option_count; i++)
        if (strcmp(ndp_options[i].section, name) == 0)
            return true;
    return false;
}

/* The valid names: of the sections, or of the keys in one. */
static int names(const char *section, const char *out[NDP_MOST_OPTIONS]) {
    int n = 0;
    for (int i = 0; i < ndp_option_count; i++) {
        if (!section && ndp_option_opens_section(i))
            out[n++] = ndp_options[i].section;
        else if (section && strcmp(ndp_options[i].section, section) == 0)
            out[n++] = ndp_options[i].key;
    }
    return n;
}

/* "; use optimizer.lr" for a word of another program; false: it is not one. */
static bool add_synonym(const char *word, ndp_str *out) {
    const ndp_synonym *s = ndp_synonym_find(word);
    if (s)
        ndp_str_addf(out, "; %s%s", s->words ? "" : "use ", s->words ? s->words : s->key);
    return s;
}

char *ndp_names_unknown(const char *section, const char *key) {
    const char *known[NDP_MOST_OPTIONS] = {0};
    int n = names(section, known);
    const char *meant = ndp_nearest(key, known, n);
    const ndp_option *elsewhere = ndp_option_find(NULL, key);
    ndp_str s = {0};
    bool synonym = ndp_synonym_find(key);
    ndp_str_addf(&s, section || synonym || elsewhere ? "unknown key '%.60s'" : "unknown section '%.60s'", key);
    if (section)
        ndp_str_addf(&s, " in '%s'", section);
    if (synonym)
        add_synonym(key, &s);
    else if (elsewhere)
        ndp_str_addf(&s, "; did you mean '%s.%s'?", elsewhere->section, key);
    else if (meant)
        ndp_str_addf(&s, "; did you mean '%s'?", meant);
    for (int i = 0; i < n && !synonym && !elsewhere && !meant; i++)
        ndp_str_addf(&s, "%s%s", i ? ", " : "; known are ", known[i]);
    return ndp_str_detach(&s);
}

/* ---- names from the command line ---- */

/* How many keys are called so, in any section. */
static int count_keys(const char *key, bool wanted[NDP_MOST_OPTIONS]) {
    int n = 0;
    for (int i = 0; i < ndp_option_count; i++)
        n += wanted[i] = strcmp(ndp_options[i].key, key) == 0;
    return n;
}

static int count_section(const char *section, bool wanted[NDP_MOST_OPTIONS]) {
    int n = 0;
    for (int i = 0; i < ndp_option_count; i++)
        n += wanted[i] = !section || strcmp(ndp_options[i].section, section) == 0;
    return n;
}

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
    int n = names(NULL, sections);
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
    if (dot && (ndp_names_is_section(section) || ndp_synonym_find(dot + 1))) {
        char *message = ndp_names_unknown(section, dot + 1);
        ndp_str_add(&s, message ? message : "unknown key");
        free(message);
    } else {
        ndp_str_addf(&s, "unknown key '%.60s'", name);
        if (!add_synonym(name, &s))
            add_similar(name, &s);
    }
    ndp_status st = NDP_FAIL(NDP_EINVAL, "%s", s.failed ? "unknown key" : s.data);
    ndp_str_release(&s);
    return st;
}

ndp_status ndp_names_find(const char *name, bool wanted[NDP_MOST_OPTIONS]) {
    memset(wanted, 0, sizeof *wanted * NDP_MOST_OPTIONS);
    char key[NDP_KEY_NAME];
    if (!name || ndp_names_is_section(name)) {
        count_section(name, wanted);
        return NDP_OK;
    }
    for (int i = 0; ndp_config_key(i, key) >= 0; i++)
        if (strcmp(name, key) == 0) {
            wanted[i] = true;
            return NDP_OK;
        }
    int n = count_keys(name, wanted);
    if (n > 1)
        return fail_several(name, wanted);
    return n == 1 ? NDP_OK : fail_none(name);
}
