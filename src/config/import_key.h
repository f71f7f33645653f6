/* The language of the tables of keys: what a key of another program is, and how its value is read. Inside this room
 * only. */
#ifndef NDP_CONFIG_IMPORT_KEY_H
#define NDP_CONFIG_IMPORT_KEY_H

#include "config/option.h"

typedef struct ndp_import ndp_import; /* import_parts.h */

/* Words that a value may be, separated by spaces as the names of keys are. Case does not matter; a word that ends with
 * * is a prefix. */
typedef struct import_word {
    const char *words;
    int value;
    const char *refused; /* why it is refused; NULL: it is not */
} import_word;

typedef enum import_kind {
    IMPORT_VALUE,   /* read like an option of ours, into its member of ndp_import */
    IMPORT_WORD,    /* one of `words`: its value, an int */
    IMPORT_SECTION, /* a mapping: its keys are those of section `inside`, which may be written with `prefix` */
    IMPORT_EACH,    /* `each` reads it */
    IMPORT_LEFT,    /* has no counterpart and no effect on the result: `why` */
    IMPORT_REFUSED  /* changes the result and is not supported: `why`; allowed when off (null, false, 0, no, empty) */
} import_kind;

typedef struct import_key {
    const char *section, *names; /* names of keys, separated by spaces; one that ends with * is a prefix */
    import_kind kind;
    ndp_option_type type; /* VALUE: these four as in ndp_option */
    size_t offset;        /* in ndp_import; of WORD too */
    int64_t low, high;
    const char *interval;
    const import_word *words;
    const char *inside, *prefix;
    ndp_status (*each)(ndp_import *m, struct fy_node *value, const char *name);
    const char *why;
    const char *ours; /* the key of ours that settles it when the user sets it; NULL: none */
} import_key;

typedef struct import_table {
    const import_key *keys;
    int n;
} import_table;

#endif
