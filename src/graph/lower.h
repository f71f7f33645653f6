/* Unit programs: a unit graph lowered once into flat lists of calls, one a phase. An operand is a base (which memory)
 * and an offset; the step program gives the bases for every run of the unit (its slot), so that alike units share one
 * program.
 *
 * Where a value lives follows from who uses it: made and used in one phase: work memory of that phase; made in the
 * forward and used in a backward: saved; made by the input gradients and used by the weight gradients: between. */
#ifndef NDP_GRAPH_LOWER_H
#define NDP_GRAPH_LOWER_H

#include "graph/graph.h"
#include "mesh/mesh.h"

typedef enum ndp_phase {
    NDP_FORWARD,      /* keeps what the backward needs */
    NDP_FORWARD_DROP, /* keeps nothing: with recompute, or without a backward */
    NDP_RECOMPUTE,    /* makes the saved values again, and only these */
    NDP_BACKWARD_INPUT,
    NDP_BACKWARD_WEIGHT,
    NDP_PHASES
} ndp_phase;
const char *ndp_phase_name(ndp_phase phase);

typedef enum ndp_base {
    NDP_BASE_INPUT, /* boundary activations and their gradients */
    NDP_BASE_OUTPUT,
    NDP_BASE_GRAD_OUTPUT,
    NDP_BASE_GRAD_INPUT,
    NDP_BASE_SAVED,
    NDP_BASE_BETWEEN,
    NDP_BASE_WORK,
    NDP_BASE_PARAM, /* + slot */
    NDP_BASE_PGRAD = NDP_BASE_PARAM + NDP_SLOTS,
    NDP_BASE_DATA = NDP_BASE_PGRAD + NDP_SLOTS,
    NDP_BASE_ABSENT,
    NDP_BASES = NDP_BASE_ABSENT
} ndp_base;

typedef struct ndp_operand {
    ndp_base base;
    size_t offset; /* bytes */
    ndp_data_id data;
    ndp_view view; /* data NULL */
    int value;     /* in the graph, for the printer */
} ndp_operand;

/* A collective is two calls: it begins where its operand is ready, and is waited for where its result is first used, or
 * its operand overwritten; those of one group are waited for in the order of their begins. */
typedef enum ndp_call_kind { NDP_CALL_KERNEL, NDP_CALL_BEGIN, NDP_CALL_WAIT } ndp_call_kind;

typedef struct ndp_call {
    ndp_call_kind kind;
    int partner; /* BEGIN: its wait, WAIT: its begin, by place in the list */
    const ndp_op *op;
    ndp_op_attr attr;
    ndp_operand in[NDP_OP_MAX_IN], out[NDP_OP_MAX_OUT];
    int n_in, n_out;
    void *plan[2];  /* [1]: with attr.accumulate, for calls that write a parameter gradient */
    size_t scratch; /* offset in work memory */
    int pgrad;      /* which parameter gradient of the phase it writes (bit of the accumulate mask); NDP_NONE */
    double flops, bytes;
} ndp_call;

/* A parameter gradient that a phase writes. */
typedef struct ndp_pgrad {
    int slot, segment;
} ndp_pgrad;

typedef struct ndp_list {
    ndp_call *calls;
    int n;
    size_t work_bytes;
    bool reads[NDP_SLOTS]; /* parameters of that slot */
    bool reads_input, reads_grad_output;
    ndp_pgrad pgrads[NDP_MAX_PGRADS];
    int n_pgrads;
    double flops, bytes;
} ndp_list;

typedef struct ndp_unit_program {
    const ndp_graph *graph; /* borrowed */
    ndp_list lists[NDP_PHASES];
    size_t saved_bytes, between_bytes;
    size_t input_bytes, output_bytes; /* 0: none */
} ndp_unit_program;

typedef struct ndp_lower_opts {
    ndp_backend backend;
    int threads;
    int split_sums; /* of every call (ops/op.h) */
    bool prepare;   /* make the kernels' plans; false for a dry run */
} ndp_lower_opts;

/* Lowers a graph (derived, or forward only). The program borrows the graph. */
NDP_API ndp_status ndp_lower(const ndp_graph *g, const ndp_lower_opts *opts, ndp_unit_program *out);
void ndp_unit_program_release(ndp_unit_program *p);
/* The calls of a phase as text, a line each; nothing for an empty list. `mesh`: whose groups collectives run over. */
void ndp_list_print(const ndp_unit_program *u, ndp_phase phase, const ndp_mesh *mesh, ndp_str *out);

/* How to run a list. bases[b]: address of each memory; data[id]: address of each data operand; bit k of `accumulate`:
 * the k-th parameter gradient of the list is added to. op_seconds: time by op is added there (NULL: not measured). */
typedef struct ndp_list_run_opts {
    ndp_backend backend;
    int threads;
    int split_sums; /* as it was lowered */
    void *bases[NDP_BASES];
    void *data[NDP_DATA_IDS];
    uint32_t accumulate;
    double *op_seconds;
    /* Begins or ends the collective that is call `index`; may be NULL where a list has none. */
    ndp_status (*collective)(void *user, int index, const ndp_call *call, const ndp_op_call *operands);
    void *user;
} ndp_list_run_opts;
NDP_API ndp_status ndp_list_run(const ndp_list *list, const ndp_list_run_opts *opts);

/* Number of an op in the list of all ops, and the other way round. */
enum {
    NDP_OP_COUNT = 0
#define NDP_OP_ONE(name) +1
    NDP_OPS(NDP_OP_ONE)
#undef NDP_OP_ONE
};
int ndp_op_index(const ndp_op *op);
const char *ndp_op_name(int index);

#endif
