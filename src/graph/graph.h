/* Unit graphs: a small graph of ops over values, and its derived backward.
 *
 * A unit (embedding, decoder block, head) maps one activation to another, reads parameters of at most NDP_SLOTS flat
 * buffers ("slots") and integer data of the batch. From the forward nodes ndp_graph_derive writes two more lists over
 * the same values: one makes the gradient for the input, one the gradients of the weights, so that a schedule may run
 * them apart.
 *
 * A value is a matrix. Its storage is that of its root: itself, or, for a value changed in place or a view of rows or
 * columns, another value's. Errors while building are sticky: graph->status keeps the first, and ndp_graph_derive
 * returns it.
 */
#ifndef NDP_GRAPH_GRAPH_H
#define NDP_GRAPH_GRAPH_H

#include "base/arena.h"
#include "base/text.h"
#include "graph/input.h"
#include "ops/op.h"
#include "tensor/segments.h"

enum { NDP_NONE = -1, NDP_SLOTS = 7, NDP_MAX_PGRADS = 32 };

typedef enum ndp_value_kind { NDP_VALUE_ACT, NDP_VALUE_PARAM, NDP_VALUE_PGRAD, NDP_VALUE_DATA } ndp_value_kind;

typedef struct ndp_value {
    const char *name;
    ndp_value_kind kind;
    ndp_view view;    /* data NULL; ld of the storage */
    int root;         /* whose storage this is */
    int parent;       /* a view of rows or columns: of which value; NDP_NONE otherwise */
    int64_t row, col; /* first row and column within the root */
    int slot;         /* PARAM, PGRAD: which flat buffer. Also of an ACT that is made of packed matrices */
    int segment;      /* first segment there; NDP_NONE: another ACT */
    int segments;     /* how many, glued */
    int64_t offset;   /* PARAM, PGRAD: elements from its start */
    int part;         /* PARAM: of a packed matrix (ndp_packed_part); 0: another one */
    int input;        /* DATA: which of the model's inputs */
    bool needs_grad;
} ndp_value;

/* Of the storage of a root. */
static inline size_t ndp_value_bytes(const ndp_value *v) {
    return (size_t)v->view.rows * (size_t)v->view.ld * ndp_dtype_size(v->view.dtype);
}

typedef struct ndp_node {
    const ndp_op *op;
    ndp_op_attr attr;
    int in[NDP_OP_MAX_IN], out[NDP_OP_MAX_OUT]; /* NDP_NONE: absent */
    int n_in, n_out;
    int of; /* the forward node of the whole model's graph that it, or whose backward it, is a part of; NDP_NONE */
} ndp_node;

typedef enum ndp_node_list {
    NDP_NODES_FORWARD,
    NDP_NODES_INPUT_GRAD,
    NDP_NODES_WEIGHT_GRAD,
    NDP_NODE_LISTS
} ndp_node_list;

/* Nodes [first, first + n) are executed `times` times, or as often as the value `count` says (i64 [1,1], made before
 * them), which is at most `times`. What they read and did not make lives until the last time. The value `index` (i64
 * [1,1]), which no node makes, is the number of the iteration, from 0 on. */
typedef struct ndp_node_repeat {
    int first, n;
    int64_t times;
    int count; /* NDP_NONE: `times` */
    int index; /* NDP_NONE: none */
} ndp_node_repeat;
enum { NDP_MAX_REPEATS = 8 };

typedef struct ndp_nodes {
    ndp_node *items;
    int n;
    int64_t capacity;
    ndp_node_repeat repeats[NDP_MAX_REPEATS]; /* ascending and apart */
    int n_repeats;
} ndp_nodes;

typedef struct ndp_graph {
    const char *name;
    ndp_arena arena;
    ndp_value *values;
    int n_values;
    int64_t value_capacity;
    ndp_nodes nodes[NDP_NODE_LISTS];
    const ndp_segments *slots[NDP_SLOTS];
    bool frozen[NDP_SLOTS]; /* parameters of that slot have no gradient */
    bool ends_backward;     /* nothing before the unit is trained: the gradient of its input is not made */
    const ndp_inputs *inputs;
    ndp_dtype compute, grad; /* storage of activations; of weight gradients */
    int input, output;       /* boundary activations; NDP_NONE: the unit reads tokens, or ends in the loss */
    int grad_output, grad_input;
    int writing; /* `of` of the nodes that are added now; those of a backward have that of their forward node */
    ndp_status status;
} ndp_graph;

/* Empty graph; `name` is copied. Release frees all that it owns, also after a failure. */
ndp_status ndp_graph_init(ndp_graph *g, const char *name, ndp_dtype compute, ndp_dtype grad);
void ndp_graph_release(ndp_graph *g);
/* Whether the forwards of both have the same nodes and values, but for their names. Tables are not compared. */
bool ndp_graphs_alike(const ndp_graph *a, const ndp_graph *b);

/* The activation that the unit gets, one of the model's inputs, a parameter:
 * `segments` consecutive ones of a slot's buffer as one matrix (glued; equal columns). Each returns a value. */
int ndp_graph_input(ndp_graph *g, int64_t rows, int64_t cols);
int ndp_graph_data(ndp_graph *g, int input);
int ndp_graph_param(ndp_graph *g, int slot, int segment, int segments);
/* The matrix of `segments` consecutive packed ones (glued; equal columns), as a destination: an activation, which
 * ndp_graph_unpack fills. */
int ndp_graph_unpacked(ndp_graph *g, int slot, int segment, int segments);
/* Adds the node that makes the rows of the k-th of those. */
void ndp_graph_unpack(ndp_graph *g, ndp_node_list list, int matrix, int k);
/* The gradient of a parameter, as a destination. */
int ndp_graph_param_grad(ndp_graph *g, int param);
/* Columns [col, col + cols) of a value. */
int ndp_graph_columns(ndp_graph *g, int value, int64_t col, int64_t cols);
/* Rows [row, row + rows) of a value. No gradient flows through it. */
int ndp_graph_rows(ndp_graph *g, int value, int64_t row, int64_t rows);
/* A new activation, as a destination. */
int ndp_graph_value(ndp_graph *g, const char *name, int64_t rows, int64_t cols, ndp_dtype type);
/* Adds a forward node. outs[i]: on entry NDP_NONE (make it) or a destination; on return the value. Absent inputs are
 * NDP_NONE. `name` is that of output 0 (copied). */
void ndp_graph_op(ndp_graph *g, const ndp_op *op, const ndp_op_attr *attr, const char *name, const int *ins, int n_in,
                  int *outs, int n_out);
/* The same for ops with one output; returns it. */
int ndp_graph_op1(ndp_graph *g, const ndp_op *op, const ndp_op_attr *attr, const char *name, const int *ins, int n_in);
void ndp_graph_output(ndp_graph *g, int value);
/* The same as ndp_graph_op at the end of any list: for passes over derived graphs. */
void ndp_graph_append(ndp_graph *g, ndp_node_list list, const ndp_op *op, const ndp_op_attr *attr, const char *name,
                      const int *ins, int n_in, int *outs, int n_out);

/* Repeats the nodes of a list from `first` on, up to its latest one. Ranks that communicate in them have equal counts:
 * it is made by an op that sees to it, as a maximum over their group. NDP_EBUG, sticky: too many ranges, or ranges that
 * overlap; ndp_graph_derive refuses a forward that repeats. */
void ndp_graph_repeat(ndp_graph *g, ndp_node_list list, int first, int64_t times, int count, int index);

/* Nodes of all lists. True if a node of the forward has that op. */
int64_t ndp_graph_nodes(const ndp_graph *g);
bool ndp_graph_has_op(const ndp_graph *g, const ndp_op *op);

/* Writes the two backward lists. NDP_EBUG: an op without a backward rule, an output used by its own backward, ... */
NDP_API ndp_status ndp_graph_derive(ndp_graph *g);

#endif
