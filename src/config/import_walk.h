/* The walk that reads a file by the tables of keys. Inside this room only. */
#ifndef NDP_CONFIG_IMPORT_WALK_H
#define NDP_CONFIG_IMPORT_WALK_H

#include "config/import_parts.h"

/* The key of a section that a name, with or without the prefix of its section, fits best; NULL: none. `tables` ends
 * with NULL. */
const import_key *ndp_import_key(const import_table *const *tables, const char *section, const char *prefix,
                                 const char *name);
/* Reads the keys of a mapping by the table's section; `name` is the mapping's own, "" at the top. */
NDP_API ndp_status ndp_import_walk(ndp_import *m, struct fy_node *node, const char *section, const char *prefix,
                                   const char *name);
/* Reads each item of a list; a value that is no list is the one item. */
ndp_status ndp_import_items(ndp_import *m, struct fy_node *value, const char *name,
                            ndp_status (*each)(ndp_import *m, struct fy_node *item, const char *name));

#endif
