/* Entries of optimizer.groups. Inside this room only, but for the functions of config.h.
 *
 * An entry is kept as YAML on one line, "{params: [\"q_proj\"], lr_scale: 2}", with the keys that it states. */
#ifndef NDP_CONFIG_GROUP_H
#define NDP_CONFIG_GROUP_H

#include "config/table.h"

/* Reads a mapping and appends its text to `texts`. */
ndp_status ndp_group_read(const ndp_option *o, ndp_yaml *y, struct fy_node *mapping, ndp_strings *texts,
                          ndp_strings *unused);

#endif
