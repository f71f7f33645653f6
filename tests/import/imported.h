/* A configuration of another program, imported. */
#ifndef TESTS_CONFIG_IMPORTED_H
#define TESTS_CONFIG_IMPORTED_H

#include "check.h"
#include "import/import.h"

#include <stdlib.h>

typedef struct imported {
    ndp_config c;
    char *job, *notes;
} imported;

static inline ndp_status import(imported *i, const char *text, const ndp_import_opts *o) {
    static const ndp_import_opts none = NDP_IMPORT_OPTS_INIT;
    *i = (imported){0};
    CHECK_OK(ndp_config_init(&i->c));
    return ndp_config_import_text(&i->c, text, strlen(text), "their.yaml", o ? o : &none, &i->job, &i->notes);
}

static inline void release(imported *i) {
    ndp_config_release(&i->c);
    free(i->job);
    free(i->notes);
}

/* A file of tests/import/files. */
static inline const char *example(const char *name) {
    static char path[4][512];
    static int next;
    const char *root = getenv("NDP_SOURCE_DIR");
    char *to = path[next++ % 4];
    snprintf(to, sizeof path[0], "%s/tests/import/files/%s", root ? root : ".", name);
    return to;
}

static inline ndp_status import_file(imported *i, const char *name, const ndp_import_opts *o) {
    static const ndp_import_opts none = NDP_IMPORT_OPTS_INIT;
    *i = (imported){0};
    CHECK_OK(ndp_config_init(&i->c));
    return ndp_config_import(&i->c, example(name), o ? o : &none, &i->job, &i->notes);
}

/* Every key has this value; the others are the defaults. Pairs end with NULL. */
static inline void check_keys(const imported *i, const char *const (*expected)[2]) {
    for (; (*expected)[0]; expected++) {
        char *value;
        CHECK_OK(ndp_config_get(&i->c, (*expected)[0], &value));
        if (strcmp(value, (*expected)[1]) != 0)
            fail_msg("%s is %s, expected %s", (*expected)[0], value, (*expected)[1]);
        free(value);
    }
}
#define CHECK_KEYS(i, ...) check_keys(i, (const char *const[][2]){__VA_ARGS__, {NULL, NULL}})

static inline void check_int(const char *text, const char *what, int is, int expected) {
    if (is != expected)
        fail_msg("%s\n%s is %d, expected %d", text, what, is, expected);
}

static inline void check_notes(const imported *i, const char *const *words) {
    for (; *words; words++)
        if (!strstr(i->notes, *words))
            fail_msg("the notes lack '%s':\n%s", *words, i->notes);
}
#define CHECK_NOTES(i, ...) check_notes(i, (const char *const[]){__VA_ARGS__, NULL})

/* What was imported, written as a job with the notes as comments, is read back to the same by our own parser. */
static inline void check_round_trip(const imported *i) {
    ndp_str first = {0}, second = {0}, job = {0};
    CHECK_OK(ndp_config_write(&i->c, &first));
    ndp_str_add(&job, i->job);
    for (const char *line = i->notes, *end; *line; line = end + (*end == '\n')) {
        end = strchrnul(line, '\n');
        ndp_str_addf(&job, "# %.*s\n", (int)(end - line), line);
    }
    ndp_config back;
    CHECK_OK(ndp_config_init(&back));
    CHECK_OK(ndp_config_parse(&back, job.data, job.length, "job.yaml"));
    CHECK_OK(ndp_config_write(&back, &second));
    assert_string_equal(first.data, second.data);
    ndp_config_release(&back);
    ndp_str_release(&first);
    ndp_str_release(&second);
    ndp_str_release(&job);
}

#endif
