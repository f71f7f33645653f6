/* Unit programs: a unit graph lowered once into flat lists of calls, one a phase. An operand is a base (which memory)
 * and an offset; the step program gives the bases for every run of the unit (its slot), so that alike units share one
 * program.
 *
 * Where a value lives follows from its uses: made and used in one phase: work memory of that phase; made in the
 * forward and used in a backward: saved, in one of two blocks; made by the input gradients and used by the weight
 * gradients: between. What a selective recompute begins from is copied to a block of its own, kept. */
#ifndef NDP_GRAPH_LOWER_H
#define NDP_GRAPH_LOWER_H

#include "graph/call.h"
#include "graph/intervals.h"
#include "graph/passes.h"
#include "graph/repeat.h"
#include "mesh/mesh.h"

typedef enum ndp_phase {
    NDP_FORWARD,      /* keeps what the backward needs */
    NDP_FORWARD_DROP, /* with recompute, or without a backward: keeps nothing, or what kept.h chooses */
    NDP_RECOMPUTE,    /* makes the saved values again, of what was kept, and only these */
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
    NDP_BASE_SAVED,       /* what the weight gradients read of the forward's values, or both gradients */
    NDP_BASE_SAVED_INPUT, /* what the input gradient alone reads: freed with it */
    NDP_BASE_KEPT,        /* what a forward keeps for a recompute */
    NDP_BASE_BETWEEN,
    NDP_BASE_WORK,
    NDP_BASE_PARAM, /* + slot */
    NDP_BASE_PGRAD = NDP_BASE_PARAM + NDP_SLOTS,
    NDP_BASE_DATA = NDP_BASE_PGRAD + NDP_SLOTS, /* + input */
    NDP_BASES = NDP_BASE_DATA + NDP_MAX_INPUTS
} ndp_base;

/* "x", "saved", "param0", ...; "-" for NDP_NONE. */
const char *ndp_base_name(int base);

/* A parameter gradient that a phase writes: `segments` glued ones. */
typedef struct ndp_pgrad {
    int slot, segment, segments;
} ndp_pgrad;

typedef struct ndp_list {
    ndp_call *calls;
    ndp_arena arena; /* of their operands */
    int n;
    ndp_repeats repeats; /* in the arena; in order, as are */
    ndp_operand *counts, /* their counts: base NDP_NONE: `times` is not for the data; */
        *indices;        /* and the numbers of their iterations: NDP_NONE: none */
    size_t work_bytes;
    uint64_t bases; /* bit by ndp_base: a call names it */
    ndp_pgrad pgrads[NDP_MAX_PGRADS];
    int n_pgrads;
    double flops;
    int waiting, oldest; /* while it is lowered: begins without a wait, none of which is before call `oldest` */
} ndp_list;

/* True if a call of the list reads or writes memory of that base. What a list does not name need not be there. */
static inline bool ndp_list_names(const ndp_list *list, int base) { return list->bases >> base & 1; }

typedef struct ndp_unit_program {
    const ndp_graph *graph; /* borrowed */
    ndp_list lists[NDP_PHASES];
    size_t saved_bytes, saved_input_bytes, kept_bytes, between_bytes;
    size_t input_bytes, output_bytes; /* 0: none */
    size_t grad_input_bytes;          /* 0: the backward makes none */
    ndp_pass_trace passes;
} ndp_unit_program;

typedef struct ndp_lower_opts {
    const ndp_exec *exec;
    bool selective; /* a recompute begins from what kept.h chooses, not from the unit's input alone */
    bool costs;     /* the lists are read for their costs: they get no work memory */
} ndp_lower_opts;

/* Lowers a graph (derived, or forward only) to the kernels of a device, and makes their plans if the device executes.
 * The program borrows the graph. NDP_ENOTSUP: the device has no kernel for an op. */
NDP_API ndp_status ndp_lower(const ndp_graph *g, const ndp_lower_opts *opts, ndp_unit_program *out);
void ndp_unit_program_release(ndp_unit_program *p);
/* The last part of it: makes the plans of a list's kernels, and gives its work memory offsets. */
ndp_status ndp_list_finish(const ndp_graph *g, const ndp_exec *exec, ndp_list *list);

/* The calls of a phase as text, a line each; nothing for an empty list. `mesh`: whose groups collectives run over. */
void ndp_list_print(const ndp_unit_program *u, ndp_phase phase, const ndp_mesh *mesh, ndp_str *out);

/* Runs the calls of a list in order; opts->bases has NDP_BASES addresses. The count of a range is read when it begins,
 * which drains the queue. NDP_EINVAL: a count below 0 or above the range's `times`. */
NDP_API ndp_status ndp_list_run(const ndp_list *list, const ndp_call_opts *opts);

#endif
