/* Writing a job file (draft.h). Sections are written in the order in which their first keys were set. */
#include "cli/draft.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(cli_draft *d, const char *key, const char *comment, char *value) {
    int i = 0;
    while (i < d->n && strcmp(d->keys[i].key, key) != 0)
        i++;
    if (!value || i == CLI_DRAFT_KEYS)
        exit(cli_error(1, "not enough memory for a job"));
    if (i == d->n)
        snprintf(d->keys[d->n++].key, sizeof d->keys[i].key, "%s", key);
    free(d->keys[i].value);
    d->keys[i].value = value;
    d->keys[i].comment = comment;
}

void cli_draft_set(cli_draft *d, const char *key, const char *comment, const char *fmt, ...) {
    char *value = NULL;
    va_list args;
    va_start(args, fmt);
    if (vasprintf(&value, fmt, args) < 0)
        value = NULL;
    va_end(args);
    put(d, key, comment, value);
}

/* Whether YAML reads these characters as the text that they are. */
static bool is_plain(const char *text) {
    static const char *const words[] = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_",
                      others[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789./-";
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(text, words[i]) == 0)
            return false;
    bool path = *text == '/' || strncmp(text, "./", 2) == 0 || strncmp(text, "../", 3) == 0;
    return *text && (path || strchr(letters, *text)) && !text[strspn(text, others)];
}

static void add_text(ndp_str *out, const char *text) {
    if (is_plain(text))
        ndp_str_add(out, text);
    else
        ndp_json_quote(out, text); /* a string of JSON is one of YAML */
}

void cli_draft_set_text(cli_draft *d, const char *key, const char *comment, const char *text) {
    ndp_str value = {0};
    add_text(&value, text);
    put(d, key, comment, ndp_str_detach(&value));
}

void cli_draft_set_list(cli_draft *d, const char *key, const char *comment, const char *text) {
    ndp_str value = {0};
    ndp_str_add(&value, "[");
    add_text(&value, text);
    ndp_str_add(&value, "]");
    put(d, key, comment, ndp_str_detach(&value));
}

void cli_draft_drop(cli_draft *d, const char *key) {
    size_t n = strlen(key);
    bool section = n && key[n - 1] == '.';
    for (int i = 0; i < d->n; i++)
        if (section ? strncmp(d->keys[i].key, key, n) == 0 : strcmp(d->keys[i].key, key) == 0) {
            free(d->keys[i].value);
            d->keys[i].value = NULL;
        }
}

ndp_status cli_draft_config(const cli_draft *d, ndp_config **out) {
    ndp_status st = ndp_config_create(out);
    for (int i = 0; i < d->n && st == NDP_OK; i++)
        if (d->keys[i].value)
            st = ndp_config_setf(*out, "%s=%s", d->keys[i].key, d->keys[i].value);
    if (st != NDP_OK) {
        ndp_config_destroy(*out);
        *out = NULL;
    }
    return st;
}

static size_t section_length(const char *key) { return strcspn(key, "."); }

static bool same_section(const char *a, const char *b) {
    size_t n = section_length(a);
    return n == section_length(b) && strncmp(a, b, n) == 0;
}

/* One key below its section, with its comment at the end of the line. */
static void add_key(const cli_draft *d, int i, ndp_str *out) {
    char line[128];
    const char *name = d->keys[i].key + section_length(d->keys[i].key) + 1;
    int n = snprintf(line, sizeof line, "  %s: ", name) + (int)strlen(d->keys[i].value);
    ndp_str_addf(out, "%s%s", line, d->keys[i].value);
    if (d->keys[i].comment)
        ndp_str_addf(out, "%*s# %s", n < 40 ? 40 - n : 1, "", d->keys[i].comment);
    ndp_str_add(out, "\n");
}

void cli_draft_text(const cli_draft *d, ndp_str *out) {
    bool done[CLI_DRAFT_KEYS] = {false};
    for (int i = 0; i < d->n; i++) {
        bool opened = false;
        for (int k = i; k < d->n && !done[i]; k++) {
            if (!d->keys[k].value || !same_section(d->keys[i].key, d->keys[k].key))
                continue;
            if (!opened)
                ndp_str_addf(out, "%.*s:\n", (int)section_length(d->keys[k].key), d->keys[k].key);
            opened = true;
            add_key(d, k, out);
            done[k] = k != i;
        }
    }
}

void cli_draft_release(cli_draft *d) {
    for (int i = 0; i < d->n; i++)
        free(d->keys[i].value);
    *d = (cli_draft){0};
}
