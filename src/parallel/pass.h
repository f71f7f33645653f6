/* Inside the parallel room: building one rank's graph from the whole one.
 *
 * The nodes of the whole graph are taken in order; each is written again with the sizes of this rank, by the rule of
 * its op, and with the collectives that the placements of its operands ask for. A value's placement over the tensor
 * axis is its spread; over the context and sequence axes all values but the operands of attention are cut by rows. */
#ifndef NDP_PARALLEL_PASS_H
#define NDP_PARALLEL_PASS_H

#include "model/model.h"
#include "parallel/row_cut.h"
#include "parallel/stages.h"

typedef enum ndp_spread {
    NDP_SPREAD_NONE, /* not made yet */
    NDP_SPREAD_SAME, /* every tp rank has all of it */
    NDP_SPREAD_ROWS, /* a slice of the rows */
    NDP_SPREAD_COLS, /* columns of its heads, ffn or vocabulary */
    NDP_SPREAD_PART  /* all of it, but a part of the sum over the ranks */
} ndp_spread;

/* The counterpart of a value of the whole graph. */
typedef struct ndp_image {
    int value; /* in the rank's graph */
    ndp_spread spread;
    int entered;     /* all its rows, for products with a piece of their columns; NDP_NONE: not needed so far */
    int own;         /* this rank's slice of them, for a mixture; the same */
    int slot, of, n; /* SPREAD_COLS: its columns are the rows of these glued segments; n 0: unknown */
} ndp_image;

/* The exchange of a mixture's rows over ep: values of the rank's graph (route_exchange). */
typedef struct ndp_exchange {
    int of, experts; /* the node of the whole graph, and how many experts it orders by */
    int order, places, rows, here;
    int64_t capacity; /* of a round: choices of this rank's experts; 0: all */
} ndp_exchange;

typedef struct ndp_pass {
    const ndp_model *whole;
    ndp_model *local;
    const ndp_mesh *mesh;
    ndp_parallel how;
    const ndp_stages *stages;
    ndp_row_cut rows;
    int tp;
    int *buffers; /* by buffer of the whole model: its place among those that this rank's units use, NDP_NONE */
    const ndp_graph *from;
    ndp_graph *to;
    ndp_image *images; /* by value of `from` */
    ndp_exchange exchange;
    const ndp_node *node;
} ndp_pass;

/* The rank's value for input i of the node (NDP_NONE when absent). */
int ndp_pass_in(ndp_pass *p, int i);
/* The rank's value for a value of the whole graph that is not made by a node: parameters, data, views, ... */
int ndp_pass_value(ndp_pass *p, int value);
/* `value` stands for output i of the node from now on. */
void ndp_pass_out(ndp_pass *p, int i, int value, ndp_spread spread);
/* The spread of the residual stream. */
ndp_spread ndp_pass_stream(const ndp_pass *p);
/* A copy of `value` in storage of its own where it is a view with gaps. */
int ndp_pass_contiguous(ndp_pass *p, int value);

/* Attributes of a collective over the tensor axis. */
ndp_op_attr ndp_pass_over_tp(const ndp_pass *p);
/* All rows of input i, gathered once for all its readers; its gradient is summed over the ranks. */
int ndp_pass_enter(ndp_pass *p, int i);
/* The sum of the ranks' parts and a bias (NDP_NONE: none), on this rank's rows, rounded once. */
int ndp_pass_leave(ndp_pass *p, int part, int bias, const char *name);

/* With ep, the rows of input i that this rank's mixture sees. */
int ndp_pass_own(ndp_pass *p, int i);

/* A sum over rows completed over the axes that cut them, cp and sp. */
int ndp_pass_sum_rows(ndp_pass *p, int part, const char *name);

/* This rank's segment, the first of a parameter's. */
const ndp_segment *ndp_pass_segment(const ndp_pass *p, int param);

/* ---- rules; each writes the node p->node ---- */

/* For ops whose rows are alike. */
ndp_status ndp_pass_rowwise(ndp_pass *p);
ndp_status ndp_tensor_rmsnorm(ndp_pass *p);
ndp_status ndp_tensor_latent_keys(ndp_pass *p);
ndp_status ndp_tensor_embedding(ndp_pass *p);
ndp_status ndp_tensor_linear(ndp_pass *p);
ndp_status ndp_tensor_unpack(ndp_pass *p);
ndp_status ndp_tensor_xent(ndp_pass *p);
ndp_status ndp_tensor_row_loss(ndp_pass *p);
ndp_status ndp_tensor_add_columns(ndp_pass *p);
ndp_status ndp_tensor_dropout(ndp_pass *p);
ndp_status ndp_tensor_dora(ndp_pass *p);
ndp_status ndp_tensor_dora_squares(ndp_pass *p);
ndp_status ndp_context_attention(ndp_pass *p);
ndp_status ndp_context_filter(ndp_pass *p);
ndp_status ndp_context_delta(ndp_pass *p);
ndp_status ndp_pairs_row_score(ndp_pass *p);
ndp_status ndp_pairs_document_sums(ndp_pass *p);
ndp_status ndp_experts_route(ndp_pass *p);
ndp_status ndp_experts_order(ndp_pass *p);
ndp_status ndp_experts_counts(ndp_pass *p);
ndp_status ndp_experts_losses(ndp_pass *p);
ndp_status ndp_experts_take(ndp_pass *p);
ndp_status ndp_experts_stack(ndp_pass *p);
ndp_status ndp_experts_bias(ndp_pass *p);
ndp_status ndp_experts_weigh(ndp_pass *p);
ndp_status ndp_experts_give(ndp_pass *p);

/* Cuts a parameter table (a copy of the whole one) to what this rank of the tensor axis holds. */
void ndp_tensor_cut(const ndp_mesh *mesh, const ndp_parallel *how, ndp_segments *s);
/* NDP_EBUG: the mesh was made for another model. NDP_ENOTSUP: its cut would go through blocks of packed matrices. */
ndp_status ndp_tensor_check_mesh(const ndp_model *whole, const ndp_mesh *mesh);

/* Writes the attention nodes of a derived graph as rings (cp > 1 with how.cp_method NDP_CP_RING). */
ndp_status ndp_context_ring(ndp_graph *g, const ndp_row_cut *rows);
/* Writes the delta rules of a derived graph over cp by maps of their pieces of rows. */
ndp_status ndp_context_maps(ndp_graph *g);
/* Writes the later rounds of rows to experts of other ranks into all lists of a graph. The last pass: they repeat
 * nodes.
 */
ndp_status ndp_write_rounds(ndp_graph *g);
/* Where a backward list of a derived graph reads a value that the forward gathered over `group`, gathers it again, so
 * that no gathered value is kept. */
ndp_status ndp_gather_again(ndp_graph *g, ndp_node_list list, ndp_group_kind group);
/* The same for rows that the forward took for experts, before what they are taken from is gathered again; */
ndp_status ndp_take_again(ndp_graph *g, ndp_node_list list);
/* for what states are made of, with all that it is made of; */
ndp_status ndp_states_again(ndp_graph *g, ndp_node_list list);
/* and for matrices that it made of packed ones. */
ndp_status ndp_unpack_again(ndp_graph *g, ndp_node_list list);

#endif
