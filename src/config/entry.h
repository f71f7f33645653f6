/* Entries of data.files: a name, or a mapping with options of its own. Inside this room only, but for the functions of
 * config.h.
 *
 * An entry is kept as its name in one list and, at the same place of a second one, its own options as YAML on one line,
 * "{format: alpaca, split: \"train[:10%]\"}", in the order of the option table; "" for none. */
#ifndef NDP_CONFIG_ENTRY_H
#define NDP_CONFIG_ENTRY_H

#include "config/table.h"

/* Reads a mapping {path: ..., format: ..., ...} and appends to both lists of the option `o`. */
ndp_status ndp_entry_read(const ndp_option *o, ndp_yaml *y, struct fy_node *mapping, ndp_strings *names,
                          ndp_strings *own);
/* The same for its text, "{path: ..., ...}", of an entry that is not the user's. */
ndp_status ndp_entry_parse(const char *text, ndp_strings *names, ndp_strings *own);

#endif
