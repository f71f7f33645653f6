/* Inside the placement room: the rules of ops. A rule says what the operands of a call may be, and what its results
 * are then: by rows of ops/flow.h (flow_rule.c), and by functions where rows do not say all:
 *
 *   rules_columns.c    sums of gradients, copies, halves of gates, columns inside of others
 *   rules_product.c    packed matrices, stacks of products
 *   rules_attention.c  attention, its merge and backward, heads
 *   rules_pieces.c     layers with a state over pieces of rows
 *   rules_experts.c    rows that stand by expert
 *   rules_head.c       the loss over slices of the vocabulary
 *   rules_group.c      collectives
 *
 * Refused are: an op that is not linear of a summand; a sum of things that are not the same part of the same thing; an
 * operand that is not what the whole graph's node reads; numbers other than the node's. */
#ifndef NDP_PLACEMENT_RULE_H
#define NDP_PLACEMENT_RULE_H

#include "ops/flow.h"
#include "placement/content.h"
#include "placement/lanes.h"
#include "placement/row_sets.h"
#include "placement/uses.h"

/* What sums over rows, keys, columns, ... are measured by. */
enum { NDP_DIM_ROWS = 0x1000, NDP_DIM_OF_NODE = 0x2000 };

/* The stack of a product: its matrices here, from number `first` of `whole` on, and the rows of each; which set of
 * sorted rows the offsets are of, 0: rows stand as in the node's operands (rules_experts.c). */
typedef struct ndp_stack {
    int64_t groups, rows, first, whole;
    uint64_t among;
} ndp_stack;

typedef struct ndp_rule {
    const ndp_uses *uses; /* of the whole graph */
    const ndp_graph *g;   /* uses->graph */
    const ndp_node *n;    /* of g: that the call was written for */
    int of;               /* its number */
    const ndp_call *c;
    const ndp_lane *lane;
    const int *buffers; /* of the unit, by slot: places in lane->tables */
    ndp_row_sets *sets; /* of the unit; NULL: none are noted */
    ndp_arena *arena;
    ndp_content in[NDP_OP_MAX_IN], out[NDP_OP_MAX_OUT];
    const ndp_op_flow *flow; /* the op's row for the node */
    bool back, unbiased;     /* NDP_FLOW_EITHER is a gradient; NDP_FLOW_BIAS comes later */
    ndp_stack stack;
    int index;         /* the call's */
    const char *where; /* "rank 1 (tp 1): unit block, forward" */
} ndp_rule;

static inline bool ndp_rule_has(const ndp_rule *r, int k) { return k < r->c->n_in && r->c->in[k].base != NDP_NONE; }
static inline bool ndp_rule_wants(const ndp_rule *r, int k) { return k < r->c->n_out && r->c->out[k].base != NDP_NONE; }

/* NDP_EBUG: "placement: rank 1 (tp 1): unit block, forward #4 linear qkv: ..." */
#define ndp_refuse(r, ...) ndp_refused(r, NDP_FAIL(NDP_EBUG, __VA_ARGS__))
ndp_status ndp_refused(const ndp_rule *r, ndp_status st);
/* "a part of qkv, made by #3" */
ndp_text ndp_tile_text(const ndp_rule *r, const ndp_tile *t);
/* The name of what a thing is of; "": it has none. */
const char *ndp_thing_name(const ndp_graph *g, ndp_thing t);

/* ---- operands ---- */

/* Operand k is written. */
ndp_status ndp_expect_all(const ndp_rule *r, int k);
/* Operand k is of `kind` of the node's value `value`: the value itself, its gradient, or the input that it is, ...;
 * nothing else, and with `complete` not a summand. Columns become those of the value where it is a view. */
ndp_status ndp_expect(ndp_rule *r, int k, ndp_thing_kind kind, int value, bool complete);
/* True if all of operand k is of that, or of a part of it. */
bool ndp_is(const ndp_rule *r, int k, ndp_thing_kind kind, int value);
/* Operand k is the node's parameter, on all ranks together; rows (columns of a vector) count through glued segments. */
ndp_status ndp_expect_param(ndp_rule *r, int k, int param);

/* A segment that is not packed is one rectangle of its parameter. A stack is one of all its members below each other,
 * unless their rows are cut: then it is one of each. */
static inline int64_t ndp_segment_tiles(const ndp_segment *s) {
    return s->rows == s->part[0] ? 1 : ndp_segment_matrices(s);
}
/* Rectangle `i` of those, without what it is of: `row` counts the rows that are held here. */
static inline ndp_tile ndp_segment_tile(const ndp_segment *s, int64_t i) {
    int64_t rows = ndp_segment_matrices(s) / ndp_segment_tiles(s) * s->rows;
    return (ndp_tile){.row = i * rows,
                      .rows = rows,
                      .cols = s->cols,
                      .at_row = (s->stack_first + i) * s->part[0] + s->first[0] - s->base[0],
                      .at_col = s->first[1] - s->base[1],
                      .share = 1};
}

/* ---- results ---- */

static inline ndp_thing ndp_value_thing(const ndp_rule *r, int value) {
    int64_t col;
    return (ndp_thing){NDP_THING_VALUE, ndp_value_origin(r->g, value, &col)};
}
/* The tile as one of the gradient of a value of the whole graph: columns are those of the value. */
ndp_tile ndp_gradient_tile(const ndp_rule *r, int value, ndp_tile t, ndp_share share);
/* Appends a tile to result o. */
ndp_status ndp_result(ndp_rule *r, int o, ndp_tile t);
/* Adds a tile to result o, of which other rows or groups may have made the same tile: shares are summed. */
ndp_status ndp_result_add(ndp_rule *r, int o, ndp_tile t);
/* Result o is zeros: this rank has none of the columns, or rows of a table, that it sums over. */
ndp_status ndp_result_zero(ndp_rule *r, int o);
/* Adds a tile of the gradient of a parameter; rows (columns of a vector) count through its glued segments. */
ndp_status ndp_param_gradient(ndp_rule *r, int o, int param, ndp_tile t);

/* The dimension `what` of the call's node. */
static inline ndp_dim_key ndp_node_dim(const ndp_rule *r, int what) {
    return ndp_dim_make(ndp_dim_make(NDP_DIM_OF_NODE, (uint64_t)r->of), (uint64_t)what);
}
/* Sums tiles of `b` into those of `a`, the same parts of the same things; result in `out`. */
ndp_status ndp_sum_contents(ndp_rule *r, const ndp_content *a, const ndp_content *b, ndp_content *out);

/* ---- rows of ops/flow.h: what operands must be (flow_rule.c), and what their tiles make where they meet (flow_meet.c)
 * ---- */

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

/* The first element of a parameter that this rank has, on an axis. */
int64_t ndp_first_of_param(const ndp_rule *r, const ndp_value *v, int axis);

/* Makes the results of all tiles of operands that meet. */
ndp_status ndp_flow_meet(ndp_rule *r);

/* ---- rules ---- */

/* Judges a kernel's call: operands in r->in, results in r->out. Collectives have their rules in rules_group.c. */
typedef ndp_status ndp_rule_fn(ndp_rule *r);
ndp_rule_fn ndp_rule_judge;

/* rules_columns.c */
ndp_rule_fn ndp_add_gradients; /* result 0 is the sum of operands 0 and 1, contributions to one gradient */
ndp_rule_fn ndp_after_copy, ndp_before_gated, ndp_after_gated_bwd, ndp_before_rope, ndp_before_dropout,
    ndp_before_columns, ndp_before_taps, ndp_after_taps;
/* rules_product.c */
ndp_rule_fn ndp_after_unpack, ndp_before_stack, ndp_before_stack_bias, ndp_after_stack_bias;
/* rules_attention.c */
ndp_rule_fn ndp_after_attention, ndp_after_attention_bwd, ndp_after_attention_merge, ndp_after_attention_dsink,
    ndp_after_heads_split, ndp_after_heads_merge;
/* rules_pieces.c */
ndp_rule_fn ndp_before_pieces, ndp_after_conv_dx, ndp_after_conv_dends, ndp_after_piece_ends, ndp_after_piece_ends_dx,
    ndp_before_delta_rule, ndp_after_delta_rule_bwd, ndp_after_delta_map, ndp_after_delta_map_back,
    ndp_after_delta_states;
/* Operand `ends` has the rows before each piece, in the columns of x, operand `x`. */
ndp_status ndp_expect_ends(const ndp_rule *r, int x, int ends);
/* Of a gradient, operand k: rows of zeros are nothing of the gradient of those rows. */
ndp_status ndp_take_zeros(ndp_rule *r, int k);
/* rules_experts.c */
ndp_rule_fn ndp_after_route_order, ndp_after_route_exchange, ndp_before_take_rows, ndp_after_take_rows,
    ndp_before_give_rows, ndp_after_give_rows, ndp_before_weigh_rows, ndp_after_weigh_rows;
/* Of all_to_all_rows, as ndp_rule_collective. */
ndp_status ndp_rule_exchange(ndp_rule *r, const ndp_content *const *handed, int n, int me);
/* rules_head.c */
ndp_rule_fn ndp_before_xent, ndp_before_row_slopes, ndp_after_zero;
/* rules_group.c: the result of a collective on member `me` of `n`, from what all members handed in. */
ndp_status ndp_rule_collective(ndp_rule *r, const ndp_content *const *handed, int n, int me);

#endif
