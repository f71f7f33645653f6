/* Names of sections and keys: finding them, and what to say of names that do not exist. Inside this room only. */
#ifndef NDP_CONFIG_NAMES_H
#define NDP_CONFIG_NAMES_H

#include "config/table.h"

/* What other programs call a key of ours. */
typedef struct ndp_synonym {
    const char *theirs; /* their words, separated by spaces */
    const char *key;    /* ours, or a section; NULL: it has no counterpart */
    const char *words;  /* what to do; NULL: use the key */
} ndp_synonym;
extern const ndp_synonym ndp_synonyms[];
extern const int ndp_synonym_count;
const ndp_synonym *ndp_synonym_find(const char *word);

bool ndp_names_is_section(const char *name);
/* The key of a name with its section, "optimizer.lr"; NULL: it is not one. */
const ndp_option *ndp_names_key(const char *name);
/* "unknown key 'tp_sze' in 'parallelism'; did you mean 'tp_size'?", or the section that has the key, or what the key of
 * another program is here, or all names. `section` "": `key` stands where a section is expected. */
void ndp_names_unknown(const char *section, const char *key, ndp_str *out);
/* The same as NDP_EINVAL, pointing at the key. */
ndp_status ndp_names_refuse(ndp_yaml *y, const ndp_option_key *key);
/* The keys that a name from the command line means, as flags of ndp_options: "optimizer.lr"; "lr", if one section alone
 * has it; "optimizer", all of a section; NULL, all. NDP_EINVAL: none, or several. */
NDP_API ndp_status ndp_names_find(const char *name, bool wanted[NDP_MOST_OPTIONS]);

#endif
