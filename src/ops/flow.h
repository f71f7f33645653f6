/* Flow: of which rows and columns of which values of the whole graph a call makes its results, and of which share of a
 * sum. A row or more of each op that unit lists have, beside its shape rule. placement/ proves programs by these rows,
 * so nothing else includes this file but the ops that have them (tools/check-layers): neither the passes that write
 * programs nor the step may know them.
 *
 * A row says of each operand which value of the call's node it must be, and of each result which it is then. The axes
 * of a matrix are two letters, of rows and of columns. Axes with one letter are cut alike: index by index they are the
 * same of the whole. A letter that a result lacks is summed over there, so the result is a summand, whose share is that
 * of the indices here.
 *
 *   t, T       rows of the micro-batch
 *   v          ids: attr.first is the first one
 *   a-z, A-Z   an extent of the op's own; capitals: all of it is here. One of no operand: of a parameter the rows that
 *              this rank has, of another value all
 *   1          the only index
 *   .          any index, the same for all ranks; an operand with two of them is compared with no other */
#ifndef NDP_OPS_FLOW_H
#define NDP_OPS_FLOW_H

#include "ops/op.h"

/* What an operand must be, or a result is. `of`: the number of an operand, or a result, of the node. Values must be
 * complete but for PART and EITHER, in which the op is linear. Inputs of the batch have rows, all others are whole. */
typedef enum ndp_flow_kind {
    NDP_FLOW_NONE,
    NDP_FLOW_ANY,
    NDP_FLOW_OPERAND,
    NDP_FLOW_PART,   /* the operand, or a summand of it */
    NDP_FLOW_PLACED, /* the operand, an input of which the call takes the rows of this rank */
    NDP_FLOW_RESULT,
    NDP_FLOW_D_OPERAND, /* the gradient of an operand; of results */
    NDP_FLOW_D_RESULT,
    NDP_FLOW_D_SUM,   /* the gradient of result 0 by what the node itself reads of it (add_rmsnorm) */
    NDP_FLOW_EITHER,  /* PART and RESULT 0; or, in the backward, D_RESULT 0 and D_OPERAND 0 */
    NDP_FLOW_ADDED,   /* an operand that is added once, to a complete result 0 */
    NDP_FLOW_BIAS,    /* the same, or nothing: then result 0 is a PRODUCT */
    NDP_FLOW_MAYBE,   /* the operand, which one of several calls has */
    NDP_FLOW_EARLIER, /* an earlier part of the gradient that result 0 is; absent: none */
    NDP_FLOW_COUNT,   /* result `of`, an input of the engine's */
    /* What only calls of one node hand to each other. */
    NDP_FLOW_PRODUCT, /* result 0 before its bias is added */
    NDP_FLOW_LOGITS,
    NDP_FLOW_SLOPES,     /* derivatives of the loss by logits */
    NDP_FLOW_STATISTICS, /* of logits */
    NDP_FLOW_LOSSES,     /* of a router, by row */
    NDP_FLOW_SQUARES,    /* the mean of squares that a norm divides by */
    NDP_FLOW_D_SQUARES
} ndp_flow_kind;

/* What a result's share is multiplied by, besides the measures of the letters that it lacks. */
typedef enum ndp_flow_times {
    NDP_TIMES_ONE,
    NDP_TIMES_UNSUMMED, /* 1, without measures: what it lacks was summed before */
    NDP_TIMES_COPIES,   /* 1 / the ranks with the same columns (attr.scale) */
    NDP_TIMES_DIRECT,   /* the part of a norm's gradient that does not pass its mean of squares */
    NDP_TIMES_INDIRECT, /* the other part, by COPIES */
    NDP_TIMES_PARTS     /* 1 / attr.parts */
} ndp_flow_times;

/* An index is a head of the node, or a kv head, where heads of its operands differ in columns (attr.v_dim); or, of any
 * operand, what belongs to a kv head: its own columns, or those of all heads that read it. */
enum { NDP_EACH_HEAD = INT32_MIN, NDP_EACH_KV_HEAD, NDP_EACH_GROUP };

typedef struct ndp_flow_matrix {
    ndp_flow_kind is;
    int of;
    char axes[3];
    int each; /* columns of an index: k > 0: as many as operand k of the node has; k < 0: -k, or EACH_; 0: one */
    ndp_flow_times times;
    const char *name; /* in messages; NULL: its number */
} ndp_flow_matrix;

typedef enum ndp_flow_runs { NDP_RUNS_ANY, NDP_RUNS_ONE, NDP_RUNS_SEVERAL } ndp_flow_runs;

typedef struct ndp_op_flow {
    const ndp_op *node; /* the op of the node that the call was written for; NULL: its own */
    bool any, end;      /* any: for any node; end: behind the last row */
    bool sum;           /* for any node, where operand 0 is a gradient: the sum of contributions to one */
    bool pieces; /* rows are of pieces (ops/row_pieces.h), and see those before them; without ranks all are here */
    ndp_flow_runs runs; /* for nodes that norm one run of columns, or several, in a row */
    uint64_t own;       /* numbers that are this rank's, not the node's, besides those that are so of all ops */
    ndp_flow_matrix in[NDP_OP_MAX_IN], out[NDP_OP_MAX_OUT];
} ndp_op_flow;

/* .flow of an op: its rows. */
#define NDP_FLOWS(...)                                                                                                 \
    .flow = (const ndp_op_flow[]) {                                                                                    \
        __VA_ARGS__, { .end = true }                                                                                   \
    }
#define NDP_IS(kind, number, letters, ...)                                                                             \
    { .is = NDP_FLOW_##kind, .of = (number), .axes = letters, __VA_ARGS__ }

#endif
