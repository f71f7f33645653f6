/* Calls: one op on operands, or one half of a collective. Unit programs (lower.h) and the step program (step/program.h)
 * are lists of them. An operand is a view whose memory is named by a base, a number in a table of addresses that comes
 * with each run, and an offset from it: so one list serves all units that are alike, and a plan can move memory. */
#ifndef NDP_GRAPH_CALL_H
#define NDP_GRAPH_CALL_H

#include "base/arena.h"
#include "graph/graph.h"
#include "graph/op_times.h"

typedef struct ndp_operand {
    int base;      /* in the table of addresses; NDP_NONE: absent */
    int value;     /* in a unit's graph, for the printer; NDP_NONE in the step program */
    size_t offset; /* bytes */
    ndp_view view; /* data NULL */
} ndp_operand;

/* A collective is two calls: it begins where its operand is ready, and is waited for where its result is first used, or
 * its operand overwritten; those of one channel are waited for in the order of their begins. */
typedef enum ndp_call_kind { NDP_CALL_KERNEL, NDP_CALL_BEGIN, NDP_CALL_WAIT } ndp_call_kind;

typedef struct ndp_call {
    ndp_call_kind kind;
    int partner; /* BEGIN: its wait, WAIT: its begin, by place in the list */
    const ndp_op *op;
    ndp_op_attr attr;
    int of;                /* of a unit's list: the forward node of the whole graph (ndp_node.of); NDP_NONE */
    ndp_operand *in, *out; /* of the list's arena; a WAIT has those of its BEGIN */
    int n_in, n_out;
    /* collectives */
    int channel;      /* the communicator: an ndp_group_kind, or one that the step program adds */
    const char *what; /* the tensor or buffer, for messages; borrowed */
    bool in_place;    /* the ranks share the memory: nothing moves */
    /* kernels */
    const ndp_kernel *kernel; /* see ndp_call_find_kernel; NULL: the host runs it */
    void *plan[2];            /* [1]: with attr.accumulate, for calls that write a parameter gradient */
    int scratch;              /* base of the scratch memory, and where in it */
    size_t scratch_offset;
    int pgrad;           /* which parameter gradient of the phase it writes (bit of the accumulate mask); NDP_NONE */
    double flops, bytes; /* operations; bytes read and written, of a communication those handed in (ndp_op_cost) */
} ndp_call;

/* Operand k of all: those in, then those out. */
static inline ndp_operand *ndp_call_operand(const ndp_call *c, int k) {
    return k < c->n_in ? &c->in[k] : &c->out[k - c->n_in];
}

/* Fills `c` with a call of `op` and its cost; operands are copied into `arena`. NDP_ENOMEM. */
NDP_API ndp_status ndp_call_init(ndp_call *c, ndp_arena *arena, const ndp_op *op, const ndp_op_attr *attr,
                                 const ndp_operand *in, int n_in, const ndp_operand *out, int n_out);

/* True if both calls do the same: op, attributes, shapes, offsets and channel. Bases and tags may differ. */
bool ndp_calls_alike(const ndp_call *a, const ndp_call *b);

/* Takes the call's kernel from those of the device; a collective, and an op of the host, have none. NDP_ENOTSUP: nor
 * has the device. */
ndp_status ndp_call_find_kernel(ndp_call *c, const ndp_device *device);

/* How calls run. bases[b]: the address of each base. Bit k of `accumulate`: the k-th parameter gradient of the list
 * is added to. times: a stamp follows each call (NULL: not measured). */
typedef struct ndp_call_opts {
    const ndp_exec *exec; /* as at lowering */
    ndp_queue *queue;
    void *const *bases;
    uint32_t accumulate;
    ndp_op_times *times;
    /* Begins or ends the collective that is call `index`; may be NULL where a list has none. */
    ndp_status (*collective)(void *user, int index, const ndp_call *call, const ndp_op_call *operands);
    /* Runs an op of the host (NDP_KIND_HOST); the same. */
    ndp_status (*host)(void *user, const ndp_call *call, const ndp_op_call *operands);
    ndp_status (*before)(void *user, int index, const ndp_call *call); /* a kernel is submitted; NULL: nothing */
    /* A kernel was submitted, or a collective begun or waited for; NULL: nothing. */
    ndp_status (*after)(void *user, int index, const ndp_call *call, const ndp_op_call *operands);
    ndp_status (*drain)(void *user); /* waits for the queue; NULL: as the device does */
    int64_t *counted;                /* what the data say how often a range runs is added here; NULL: it is not */
    void *user;
} ndp_call_opts;
NDP_API ndp_status ndp_call_run(const ndp_call *c, int index, const ndp_call_opts *opts);
ndp_status ndp_call_drain(const ndp_call_opts *opts);

/* Elements of one rank's part of a collective (all_gather, reduce_scatter, all_to_all), of a row (all_to_all_rows), or
 * of the buffer. */
int64_t ndp_call_elements(const ndp_call *c);

#endif
