/* Regular expressions that match a whole name, as Python's re.fullmatch does and PEFT uses it; by PCRE2. */
#ifndef NDP_BASE_FULL_MATCH_H
#define NDP_BASE_FULL_MATCH_H

#include "base/status.h"

/* What a name of a target begins with that is such an expression. */
#define NDP_REGEX_PREFIX "regex:"
/* The expression behind the prefix; NULL: it is a name or a pattern of the shell. */
const char *ndp_regex_of(const char *target);

/* Sets *is to whether the expression matches all of `name`. NDP_EFORMAT: it is no regular expression, or matching takes
 * too many steps, a fraction of a second. */
NDP_API ndp_status ndp_full_match(const char *regex, const char *name, bool *is);
/* The same failures, for names of modules as models have them. */
NDP_API ndp_status ndp_full_match_check(const char *regex);

#endif
