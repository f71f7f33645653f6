/* A table of options: reads a mapping of YAML by its rows, and says what a name that it does not have probably meant.
 *
 * A section is what the rows in it are called after: "" is the whole file, "node" a key of it, "node.links" a key of
 * `node`. All rows of a section, and of those inside it, describe one struct. */
#ifndef NDP_OPTIONS_OPTION_TABLE_H
#define NDP_OPTIONS_OPTION_TABLE_H

#include "options/option.h"

enum { NDP_MOST_ROWS = 160 }; /* of a table */

/* A key of a mapping, whose value may be an alias. */
typedef struct ndp_option_key {
    const char *section, *name;
    struct fy_node *node, *value; /* value NULL: not known */
} ndp_option_key;

typedef struct ndp_option_section {
    const char *name;      /* "": the keys that are in none */
    const char *help;      /* NULL: the help has no line for it */
    const char *otherwise; /* what its keys have that the file does not state, before their rows' defaults: "that of the
                            * device"; NULL: nothing */
} ndp_option_section;

typedef struct ndp_option_table {
    const ndp_option *rows;
    int n;
    const ndp_option_section *sections; /* each before those inside it */
    int section_count;
    const char *expected; /* instead of a text that has no keys: "sections such as 'model:'" */
    /* NDP_EINVAL for a key that its section does not have. */
    ndp_status (*refuse)(ndp_yaml *y, const ndp_option_key *key);
} ndp_option_table;

/* The row of a key; `section` NULL: the first one of that name. NULL: there is no such key. */
const ndp_option *ndp_option_among(const ndp_option_table *t, const char *section, const char *key);
bool ndp_option_is_section(const ndp_option_table *t, const char *name);
/* The keys of a section: of its rows, then of the sections inside it. */
int ndp_option_keys(const ndp_option_table *t, const char *section, const char *keys[NDP_MOST_ROWS]);
/* "unknown key 'tp_sze' in 'parallelism'; did you mean 'tp_size'?", or the section that has the key, or `hint`, or all
 * keys of the section, to which `more` adds one. NULL: no hint, none. */
void ndp_option_unknown(const ndp_option_table *t, const ndp_option_key *key, const char *hint, const char *more,
                        ndp_str *out);

typedef struct ndp_option_reading ndp_option_reading;
struct ndp_option_reading {
    const ndp_option_table *table;
    ndp_yaml *y;
    void *into; /* the struct that the rows describe */
    /* Reads a key that is no row's, or not only: sets *taken if it did. Each key is first shown to it. NULL: none. */
    ndp_status (*other)(ndp_option_reading *r, const ndp_option_key *key, bool *taken);
    void *user;
    /* By row: whether the mapping states it, and where. */
    bool stated[NDP_MOST_ROWS];
    struct fy_node *key[NDP_MOST_ROWS], *value[NDP_MOST_ROWS];
};

/* Reads a mapping by the rows of a section, and of those inside it. An empty section states nothing. An error that
 * points at nothing points at the last key, y->near. */
NDP_API ndp_status ndp_option_read_section(ndp_option_reading *r, const char *section, struct fy_node *node);
/* Sets the members that the rows of a section describe, and those of the sections inside it, to the rows' defaults;
 * what has none is left. Of section "" only the keys that are in none. NDP_ENOMEM. */
NDP_API ndp_status ndp_option_defaults(const ndp_option_table *t, const char *section, void *into);

#endif
