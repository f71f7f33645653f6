/* One option of a file: a key, and how its value is read, checked and written. A row describes a member of a struct.
 * Tables of such rows are those of job.yaml (config/table.c), whose struct is ndp_config, and of cluster.yaml. */
#ifndef NDP_OPTIONS_OPTION_H
#define NDP_OPTIONS_OPTION_H

#include "base/text.h"
#include "options/yaml.h"

typedef enum ndp_option_type {
    NDP_OPTION_INT,    /* int in [low, high]; where `open`, also auto, stored as 0 */
    NDP_OPTION_INT64,  /* int64_t in [low, high] */
    NDP_OPTION_NUMBER, /* double in the interval */
    NDP_OPTION_PAIR,   /* two of them */
    NDP_OPTION_BOOL,
    NDP_OPTION_WORD,    /* an enum: the index of one of the words, or its meaning */
    NDP_OPTION_TEXT,    /* char *: one of the words, if there are any; may be NULL if the default is NULL */
    NDP_OPTION_ENTRIES, /* two ndp_strings, names and own options: names, or mappings, which read_entry reads */
    NDP_OPTION_LIST,    /* ndp_strings: a list, or one string; of the words, if there are any; where `open`, also
                           mappings, as strings "name: value" */
    NDP_OPTION_MAPPINGS /* ndp_strings: mappings, which read_entry reads and makes texts of */
} ndp_option_type;

/* What a key means to a run that is resumed. No role is 0, so a row of job.yaml without a role does not compile. */
typedef enum ndp_key_role {
    NDP_KEY_FREE = 1, /* may change: it does not determine the curve */
    NDP_KEY_IDENTITY, /* must keep its value */
    NDP_KEY_CONTENTS  /* its spelling may change; what it names must stay: a file's contents, the token of "auto" */
} ndp_key_role;

/* What reads a key. No row of ndp_options has none: the table's macros ask for them. */
typedef enum ndp_key_reader {
    NDP_READER_TRAIN = 1,
    NDP_READER_PLAN = 2,
    NDP_READER_VERIFY = 4,
    NDP_READER_EVALUATE = 8,
    NDP_READER_RUN = 16 /* commands that open the model of a run folder, by its job.yaml */
} ndp_key_reader;

/* What other programs call a value: their words, as ndp_has_word (meant.h) has them. */
typedef struct ndp_foreign_value {
    const char *theirs, *ours; /* `theirs` NULL ends a list */
    const char *why;           /* what the user should know about the difference; NULL: nothing */
} ndp_foreign_value;

typedef struct ndp_option ndp_option;
struct ndp_option {
    const char *section, *key; /* section "": the key is in none */
    size_t offset;             /* in the struct that callers pass: ndp_config, if it is a row of ndp_options */
    ndp_key_role role;
    int readers; /* bits of ndp_key_reader */
    ndp_option_type type;
    const char *value; /* the default, as YAML; NULL: unset; "": a text that has none, and cannot be null */
    int64_t low, high;
    const char *interval;             /* "[0, 1)" */
    const char *const *words;         /* ends with NULL */
    const int *meanings;              /* values that the words stand for; NULL: their indices */
    const ndp_foreign_value *foreign; /* NULL: none */
    bool open;
    size_t own; /* ENTRIES: offset of the second list */
    /* ENTRIES: reads a mapping and appends to both lists; MAPPINGS: appends its text to the first, `own` is NULL */
    ndp_status (*read_entry)(const ndp_option *o, ndp_yaml *y, struct fy_node *mapping, ndp_strings *names,
                             ndp_strings *own);
    bool entry;       /* an entry of data.files may have its own value */
    const char *also; /* what the reader of the table takes besides, "or a list of them"; NULL: nothing */
    const char *when; /* the condition under which they read it, "parallelism.pp_size is above 1"; NULL: always */
    const char *help;
};

/* Reads a node into the struct at `into`, of which `offset` is an offset. */
NDP_API ndp_status ndp_option_read(const ndp_option *o, ndp_yaml *y, struct fy_node *node, void *into);
/* The same for a value that is not the user's, as YAML. */
NDP_API ndp_status ndp_option_parse(const ndp_option *o, const char *value, void *into);
/* The same for the digits of an INT, INT64 or NUMBER; false, and nothing is read, if they do not fit. */
bool ndp_option_digits(const ndp_option *o, const char *digits, void *into);
/* NDP_EINVAL: "'optimizer.lr' is 'fast', expected a number in [0, inf)", pointing at the node. */
ndp_status ndp_option_unexpected(const ndp_option *o, ndp_yaml *y, struct fy_node *node);
/* As YAML that ndp_option_read reads back to the same value. */
void ndp_option_write(const ndp_option *o, const void *from, ndp_str *out);
/* Whether a member has the same value as the one of another struct that `as` describes. */
bool ndp_option_is_same(const ndp_option *o, const void *a, const ndp_option *as, const void *b);
/* "a whole number from 1 to 9, or auto", and what the row takes `also` */
void ndp_option_expects(const ndp_option *o, ndp_str *out);
/* A string in double quotes, or null. */
void ndp_option_write_text(const char *text, ndp_str *out);
/* Releases the member, and leaves it empty. */
void ndp_option_release(const ndp_option *o, void *from);
/* Replaces *out by a copy of `text`, or by NULL. NDP_ENOMEM. */
NDP_API ndp_status ndp_option_copy_text(const char *text, char **out);
/* Copies what a member owns, between structs that are equal byte for byte otherwise. What `to` has there belongs to
 * another struct: it is overwritten, even if the copy fails. */
NDP_API ndp_status ndp_option_copy(const ndp_option *o, const void *from, void *to);

#endif
