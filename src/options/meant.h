/* Suggestions for values that a key does not take. Inside this room only. */
#ifndef NDP_OPTIONS_MEANT_H
#define NDP_OPTIONS_MEANT_H

#include "options/option.h"

/* Appends what a refused value of an option probably meant, "; did you mean 'bf16'? ...", if that is known. `quoted`:
 * it was written in quotes. */
void ndp_meant_add(const ndp_option *o, const char *text, bool quoted, ndp_str *out);

#endif
