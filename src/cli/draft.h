/* A job file that is being written: keys with values and comments, in the order in which they were first set. */
#ifndef NDP_CLI_DRAFT_H
#define NDP_CLI_DRAFT_H

#include "cli/cli.h"

enum { CLI_DRAFT_KEYS = 40 };
typedef struct cli_draft {
    struct {
        char key[64];
        char *value;         /* as YAML; owned. NULL: it was taken out */
        const char *comment; /* NULL: none */
    } keys[CLI_DRAFT_KEYS];
    int n;
} cli_draft;

/* Sets a key to a YAML value, formatted as by printf. */
__attribute__((format(printf, 4, 5))) void cli_draft_set(cli_draft *d, const char *key, const char *comment,
                                                         const char *fmt, ...);
/* The same for a text, which gets quotes where YAML needs them, and for a list of one text. */
void cli_draft_set_text(cli_draft *d, const char *key, const char *comment, const char *text);
void cli_draft_set_list(cli_draft *d, const char *key, const char *comment, const char *text);
/* Takes a key out, and all keys of a section: "parallelism.". */
void cli_draft_drop(cli_draft *d, const char *key);
/* The configuration of all keys, the caller's. NDP_EINVAL: a value that its key cannot have. */
NDP_API ndp_status cli_draft_config(const cli_draft *d, ndp_config **out);
/* The job file. */
void cli_draft_text(const cli_draft *d, ndp_str *out);
void cli_draft_release(cli_draft *d);

#endif
