/* Inside the placement room: the rules of ops. A rule says what the operands of a call may be, and what its results
 * are then. One row an op in rules.c; the rows' functions are in the files rules_*.c, by kind of op:
 *
 *   rules_rows.c       ops whose rows are alike: activations, rotations, copies and sums
 *   rules_norm.c       norms
 *   rules_product.c    embedding, linear, stacks of products, and their gradients
 *   rules_attention.c  attention, its merge and backward, heads, convolutions
 *   rules_experts.c    a mixture of experts: the router, rows by expert
 *   rules_adapter.c    factors of adapters, their dropout and lengths of rows
 *   rules_head.c       the loss
 *   rules_pairs.c      the loss of pairs of documents
 *   rules_group.c      collectives
 *
 * Refused are: an op that is not linear of a summand; a sum of things that are not the same part of the same thing; an
 * operand that is not what the whole graph's node reads; numbers other than the node's. */
#ifndef NDP_PLACEMENT_RULE_H
#define NDP_PLACEMENT_RULE_H

#include "placement/content.h"
#include "placement/lanes.h"
#include "placement/uses.h"

/* What sums over rows, keys, columns, ... are measured by. */
enum { NDP_DIM_ROWS = 0x1000, NDP_DIM_OF_NODE = 0x2000 };

typedef struct ndp_rule {
    const ndp_uses *uses; /* of the whole graph */
    const ndp_graph *g;   /* uses->graph */
    const ndp_node *n;    /* of g: that the call was written for */
    int of;               /* its number */
    const ndp_call *c;
    const ndp_lane *lane;
    const int *buffers; /* of the unit, by slot: places in lane->tables */
    int64_t real;       /* rows of a micro-batch without padding */
    ndp_arena *arena;
    ndp_content in[NDP_OP_MAX_IN], out[NDP_OP_MAX_OUT];
    int index;         /* the call's */
    const char *where; /* "rank 1 (tp 1): unit block, forward" */
} ndp_rule;

/* The segment as the lane's table says it is. */
static inline const ndp_segment *ndp_rule_segment(const ndp_rule *r, int slot, int segment) {
    return &r->lane->tables[r->buffers[slot]].items[segment];
}
static inline bool ndp_rule_has(const ndp_rule *r, int k) { return k < r->c->n_in && r->c->in[k].base != NDP_NONE; }
static inline bool ndp_rule_wants(const ndp_rule *r, int k) { return k < r->c->n_out && r->c->out[k].base != NDP_NONE; }

/* NDP_EBUG: "placement: rank 1 (tp 1): unit block, forward #4 linear qkv: ..." */
ndp_status ndp_refuse(const ndp_rule *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "a part of qkv, made by #3" */
const char *ndp_tile_text(const ndp_rule *r, const ndp_tile *t, char *out, size_t size);

/* ---- operands ---- */

/* Operand k is the node's value `value` (complete: share 1), or its gradient; nothing else. Columns become those of the
 * value itself where it is a view. */
ndp_status ndp_expect_value(ndp_rule *r, int k, int value, bool complete);
ndp_status ndp_expect_gradient(ndp_rule *r, int k, int value);
/* True if all of operand k is of that value. */
bool ndp_is_value(const ndp_rule *r, int k, int value);
/* True if operand k is a gradient that ndp_expect_gradient takes for that of `value`. */
bool ndp_is_gradient(const ndp_rule *r, int k, int value);
/* Operands a and b hold the same rows and columns, element by element: `rows` only the rows. Call it after both are
 * known to be of their values. */
ndp_status ndp_expect_alike(ndp_rule *r, int a, int b, bool rows);
/* Operand k has the rows of an input that rows of operand `like` need. */
ndp_status ndp_expect_rows(ndp_rule *r, int k, int value, int like);
/* Operand k is the node's parameter, on all ranks together; rows (columns of a vector) count through glued segments. */
ndp_status ndp_expect_param(ndp_rule *r, int k, int param);
/* The same of the weight of a product, which may be a matrix that is made of packed ones. */
ndp_status ndp_expect_weight(ndp_rule *r, int k, int weight);
/* The node's numbers are the call's. */
#define NDP_EXPECT_SAME(r, field)                                                                                      \
    do {                                                                                                               \
        if ((r)->c->attr.field != (r)->n->attr.field)                                                                  \
            return ndp_refuse((r), "its " #field " is %g, must be %g", (double)(r)->c->attr.field,                     \
                              (double)(r)->n->attr.field);                                                             \
    } while (0)

/* ---- results ---- */

static inline ndp_thing ndp_value_thing(const ndp_rule *r, int value) {
    int64_t col;
    return (ndp_thing){NDP_THING_VALUE, ndp_value_origin(r->g, value, &col)};
}
/* The tile as one of the gradient of a value of the whole graph: columns are those of the value. */
ndp_tile ndp_gradient_tile(const ndp_rule *r, int value, ndp_tile t, ndp_share share);
/* Result 0 is the gradient of operand 0 of the node: that of its result, operand k here, element by element. */
ndp_status ndp_same_gradient(ndp_rule *r, int k);
/* Appends a tile to result o. */
ndp_status ndp_result(ndp_rule *r, int o, ndp_tile t);
/* Result 0 is zeros: this rank has none of the columns, or rows of a table, that it sums over. */
ndp_status ndp_result_zero(ndp_rule *r);
/* Result 0 has what operand k has, as the node's value `value`. */
ndp_status ndp_result_as(ndp_rule *r, int k, int value);
/* Adds a tile of the gradient of a parameter; rows (columns of a vector) count through its glued segments. */
ndp_status ndp_param_gradient(ndp_rule *r, int o, int param, ndp_tile t);

/* Adds a tile to result o, of which other rows or groups may have made the same tile: shares are summed. */
ndp_status ndp_result_add(ndp_rule *r, int o, ndp_tile t);

/* The dimension `what` of the call's node. */
static inline ndp_dim_key ndp_node_dim(const ndp_rule *r, int what) {
    return ndp_dim_make(ndp_dim_make(NDP_DIM_OF_NODE, (uint64_t)r->of), (uint64_t)what);
}
/* The share of a sum over rows that these rows are. */
static inline ndp_share ndp_rows_measure(const ndp_rule *r, int64_t first, int64_t rows) {
    return ndp_range_share(NDP_DIM_ROWS, r->real, first, first + rows);
}

/* Sums tiles of `b` into those of `a`, the same parts of the same things; result in `out`. */
ndp_status ndp_sum_contents(ndp_rule *r, const ndp_content *a, const ndp_content *b, ndp_content *out);

/* Adds operand k, an earlier part of the gradient of `value`, to result 0; nothing if the call has none. */
ndp_status ndp_add_earlier(ndp_rule *r, int k, int value);

/* Judges a kernel's call: operands in r->in, results in r->out. Collectives have their rules in rules_group.c. */
typedef ndp_status ndp_rule_fn(ndp_rule *r);
ndp_rule_fn ndp_rule_judge;

/* rules_rows.c */
ndp_rule_fn ndp_rule_elementwise, ndp_rule_linear_map, ndp_rule_add, ndp_rule_copy, ndp_rule_add_bias, ndp_rule_gated,
    ndp_rule_gated_bwd, ndp_rule_elementwise_bwd, ndp_rule_rope;
/* rules_norm.c */
ndp_rule_fn ndp_rule_rmsnorm, ndp_rule_add_rmsnorm, ndp_rule_layernorm, ndp_rule_norm_dx, ndp_rule_norm_dw,
    ndp_rule_mean_squares, ndp_rule_mean_squares_dx, ndp_rule_norm_by, ndp_rule_norm_by_dx;
/* rules_product.c */
ndp_rule_fn ndp_rule_embedding, ndp_rule_embedding_dw, ndp_rule_linear, ndp_rule_linear_dx, ndp_rule_linear_dw,
    ndp_rule_linear_db, ndp_rule_unpack, ndp_rule_linear_stack, ndp_rule_linear_stack_dx, ndp_rule_linear_stack_dw;
/* rules_attention.c */
ndp_rule_fn ndp_rule_attention, ndp_rule_attention_bwd, ndp_rule_attention_merge, ndp_rule_heads_split,
    ndp_rule_heads_merge, ndp_rule_causal_conv, ndp_rule_causal_conv_dx, ndp_rule_causal_conv_dw, ndp_rule_kv_append;
/* rules_adapter.c */
ndp_rule_fn ndp_rule_add_columns, ndp_rule_dropout, ndp_rule_dora, ndp_rule_dora_dm, ndp_rule_dora_squares;
/* rules_experts.c */
ndp_rule_fn ndp_rule_route, ndp_rule_route_dx, ndp_rule_choice_counts, ndp_rule_router_losses_dx, ndp_rule_route_order,
    ndp_rule_take_rows, ndp_rule_give_rows, ndp_rule_give_rows_dw, ndp_rule_gate_rows, ndp_rule_gate_rows_dg;
/* rules_head.c */
ndp_rule_fn ndp_rule_xent, ndp_rule_xent_logits, ndp_rule_xent_grad, ndp_rule_reduce_sum;
/* Operand k is the input `value`, all of it. */
ndp_status ndp_expect_input(ndp_rule *r, int k, int value);
/* rules_pairs.c */
ndp_rule_fn ndp_rule_document_sums, ndp_rule_pair_loss, ndp_rule_pair_rows;

/* rules_group.c: the result of a collective on member `me` of `n`, from what all members handed in. */
ndp_status ndp_rule_collective(ndp_rule *r, const ndp_content *const *handed, int n, int me);

#endif
