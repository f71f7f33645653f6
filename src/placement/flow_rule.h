/* Inside the placement room: what a row of ops/flow.h says of a call, for the two halves of its rule: what operands
 * must be (flow_rule.c), and what their tiles make where they meet (flow_meet.c). */
#ifndef NDP_PLACEMENT_FLOW_RULE_H
#define NDP_PLACEMENT_FLOW_RULE_H

#include "placement/rule.h"

static inline bool ndp_flow_is_letter(char c) { return c != '1' && c != '.'; }

/* The node's value that an operand or result is, or is the gradient of; NDP_NONE: no value, or absent. */
int ndp_flow_value(const ndp_rule *r, const ndp_flow_matrix *m);
/* What a kind is of it, or of the node. */
ndp_thing_kind ndp_flow_thing(ndp_flow_kind kind);
/* Columns of an index of an axis. */
int64_t ndp_flow_unit(const ndp_rule *r, const ndp_flow_matrix *m, int axis);
/* Indices of an axis of the whole; 0: not known. */
int64_t ndp_flow_whole(const ndp_rule *r, const ndp_flow_matrix *m, int axis);
/* True if the axes of operand k are compared with those of others. */
bool ndp_flow_is_compared(const ndp_rule *r, int k);

/* Makes the results of all tiles of operands that meet. */
ndp_status ndp_flow_meet(ndp_rule *r);

#endif
