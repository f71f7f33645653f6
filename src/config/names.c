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

char *ndp_names_unknown(const char *section, const char *key) {
    const char *known[NDP_MOST_OPTIONS] = {0};
    int n = names(section, known);
    const char *meant = ndp_nearest(key, known, n);
    const ndp_option *elsewhere = ndp_option_find(NULL, key);
    ndp_str s = {0};
    ndp_str_addf(&s, section ? "unknown key '%.60s' in '%s'; " : "unknown section '%.60s'; ", key, section);
    if (elsewhere)
        ndp_str_addf(&s, "did you mean '%s.%s'?", elsewhere->section, key);
    else if (meant)
        ndp_str_addf(&s, "did you mean '%s'?", meant);
    else
        ndp_str_add(&s, "known are ");
    for (int i = 0; i < n && !elsewhere && !meant; i++)
        ndp_str_addf(&s, "%s%s", i ? ", " : "", known[i]);
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

/* The nearest key, with or without its section; NULL if none is near. */
static const ndp_option *nearest(const char *name) {
    char text[NDP_MOST_OPTIONS][NDP_KEY_NAME];
    const char *known[2 * NDP_MOST_OPTIONS] = {0};
    for (int i = 0; i < ndp_option_count; i++) {
        ndp_config_key(i, text[i]);
        known[2 * i] = text[i];
        known[2 * i + 1] = ndp_options[i].key;
    }
    const char *meant = ndp_nearest(name, known, 2 * ndp_option_count);
    for (int i = 0; i < 2 * ndp_option_count && meant; i++)
        if (meant == known[i])
            return &ndp_options[i / 2];
    return NULL;
}

static ndp_status fail_none(const char *name) {
    char section[NDP_KEY_NAME];
    const char *dot = strchr(name, '.');
    snprintf(section, sizeof section, "%.*s", (int)(dot ? dot - name : 0), name);
    if (dot && ndp_names_is_section(section)) {
        char *message = ndp_names_unknown(section, dot + 1);
        ndp_status st = NDP_FAIL(NDP_EINVAL, "%s", message ? message : "unknown key");
        free(message);
        return st;
    }
    const ndp_option *meant = nearest(name);
    const char *sections[NDP_MOST_OPTIONS] = {0};
    const char *near = ndp_nearest(name, sections, names(NULL, sections));
    if (meant)
        return NDP_FAIL(NDP_EINVAL, "unknown key '%.60s'; did you mean '%s.%s'?", name, meant->section, meant->key);
    if (near)
        return NDP_FAIL(NDP_EINVAL, "unknown section '%.60s'; did you mean '%s'?", name, near);
    return NDP_FAIL(NDP_EINVAL, "unknown key '%.60s'; `ndparallel config` lists all keys", name);
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
