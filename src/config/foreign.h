/* Files of other programs, given where a job file is expected. */
#ifndef NDP_CONFIG_FOREIGN_H
#define NDP_CONFIG_FOREIGN_H

#include "options/yaml.h"

/* Whether the first line with words is the name of a TOML table, "[training]", and a later one sets a key. */
bool ndp_foreign_is_toml(const char *text, size_t size);
/* NDP_EINVAL if a document is that of another program, or a model's config.json: says which, and what to do with it.
 * One of the sections of a job is enough to be ours. */
NDP_API ndp_status ndp_foreign_refuse(ndp_yaml *y);

#endif
