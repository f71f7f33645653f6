/* What PyYAML and pydantic make of a scalar. Inside this room only. */
#ifndef NDP_CONFIG_IMPORT_SCALAR_H
#define NDP_CONFIG_IMPORT_SCALAR_H

#include "options/yaml.h"

enum { NDP_IMPORT_DIGITS = 64 };
/* A number, in the digits that ndp_option_digits reads; false for anything else. `whole`: the key takes an integer. */
bool ndp_import_digits(struct fy_node *node, bool whole, char out[NDP_IMPORT_DIGITS]);
/* true, yes, on, y, t, 1 and their opposites; false for anything else. */
bool ndp_import_truth(struct fy_node *node, bool *out);
bool ndp_import_is_null(struct fy_node *node);

#endif
