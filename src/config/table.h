/* The option table of job.yaml, whose rows describe members of ndp_config. */
#ifndef NDP_CONFIG_TABLE_H
#define NDP_CONFIG_TABLE_H

#include "config/config.h"
#include "options/option_table.h"

extern const ndp_option ndp_options[];
extern const int ndp_option_count;
extern const ndp_option_table ndp_job_options; /* the same, and their sections */

/* The row of a key; `section` NULL: the first one of that name. NULL: there is no such key. */
const ndp_option *ndp_option_find(const char *section, const char *key);
/* Options for which some optimizer has a default of its own get the one of the optimizer named, unless they are given.
 */
ndp_status ndp_option_follow_optimizer(ndp_config *c);
/* True if row i is the first of its section. */
bool ndp_option_opens_section(int i);
/* ndp_config_write (config.h) of some keys: `wanted` has a flag for each of ndp_options; NULL: all. */
NDP_API ndp_status ndp_config_write_keys(const ndp_config *c, const bool *wanted, ndp_str *out);

#endif
