/* Suggestions for values that a key does not take. */
#ifndef NDP_OPTIONS_MEANT_H
#define NDP_OPTIONS_MEANT_H

#include "options/option.h"

/* Appends what a refused value of an option probably meant, "; did you mean 'bf16'? ...", if that is known. `quoted`:
 * it was written in quotes. */
void ndp_meant_add(const ndp_option *o, const char *text, bool quoted, ndp_str *out);
/* Whether a text is one of the words of a list, separated by spaces, in capitals or not; a word that ends with * is a
 * prefix. */
bool ndp_has_word(const char *words, const char *text);

#endif
