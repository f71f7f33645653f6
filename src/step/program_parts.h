/* Inside the step room: the stages of ndp_program_build.
 *
 * own.c allocates what a rank keeps between steps, emit.c appends instructions, builder.c turns the schedule into runs,
 * gather.c and reduce.c add the gathers that the runs need and the reductions of their gradients, messages.c adds what
 * pipeline stages send each other, step_update.c the loss scale, norm and updates, with projections.c for what is
 * updated as whole matrices; repeats.c and rotation.c fold a long step into one with a repeated range; memory_plan.c
 * places all blocks. */
#ifndef NDP_STEP_PROGRAM_PARTS_H
#define NDP_STEP_PROGRAM_PARTS_H

#include "step/program.h"

/* A phase of a unit for a micro-batch: what a RUN instruction executes. */
typedef struct ndp_unit_run {
    int unit, micro_batch;
    ndp_phase phase;
    int entry, taken; /* of the schedule; see ndp_planned_run */
} ndp_unit_run;

/* Blocks of a unit and a micro-batch; NDP_NONE until a run needs them. */
typedef struct ndp_slot {
    int output, grad_input; /* the boundary after the unit; the gradient of the one before it */
    int saved, saved_input, kept, between;
    int receive[2];  /* begin of the receive of `output`, of `grad_input`, if they come from another stage */
    bool arrived[2]; /* it was waited for */
} ndp_slot;

/* The role of a block of a unit's slots: of `output`, `grad_input`, `saved`, `saved_input`, `kept`, `between`, in
 * this order. */
enum {
    NDP_SLOT_OUTPUT,
    NDP_SLOT_GRAD_INPUT,
    NDP_SLOT_SAVED,
    NDP_SLOT_SAVED_INPUT,
    NDP_SLOT_SELECTED,
    NDP_SLOT_BETWEEN,
    NDP_SLOT_BLOCKS
};
static inline int ndp_block_role(int unit_number, int slot_block) { return unit_number * NDP_SLOT_BLOCKS + slot_block; }

/* Pending sends to one rank in one direction, oldest first. */
typedef struct ndp_sends {
    struct {
        int begin, taken; /* taken: as of the run that made it */
    } of[NDP_MOST_SENDS];
    int n;
} ndp_sends;

/* Of one gradient and micro-batch: the runs that have yet to write it, and whether one has. */
typedef struct ndp_gradient_writes {
    int left;
    bool begun;
} ndp_gradient_writes;

/* The gradient of a buffer, over the whole list. */
typedef struct ndp_gradient {
    int block;                   /* the whole gradient; NDP_NONE: none is being made */
    uint64_t written;            /* bit per segment: the block has a value to add to */
    ndp_gradient_writes *writes; /* by micro-batch */
    int open;                    /* micro-batches that have begun and will write again */
    bool reduced;                /* its owners have a partial sum */
    int last;                    /* the last run of all that writes to it */
} ndp_gradient;

typedef struct ndp_builder {
    ndp_program *p;
    const ndp_model *m;
    ndp_unit_run *runs;
    int n_runs, entry, taken;              /* entry, taken: of the schedule, whose runs are being listed */
    int micro_batches;                     /* of the schedule: fewer than the step's where a range is to repeat */
    int *first_of;                         /* by entry: its first instruction */
    ndp_slot *slots;                       /* by unit of the whole model, then micro-batch */
    ndp_gradient *gradients;               /* by buffer */
    int *gathered;                         /* by buffer: block with the whole buffer, NDP_NONE */
    int *begun;                            /* by buffer: begin instruction of a gather under way, NDP_NONE */
    int pending_scatter, pending_replicas; /* begin instructions of the reductions under way */
    bool scatter_is_last;                  /* of the update: the replicas' all_reduce follows */
    ndp_sends (*sends)[2];                 /* by peer; forward, backward */
    const ndp_schedule *schedule;
    const ndp_schedule_body *body; /* of which `schedule` has two copies, to be folded; NULL: it is the whole step's */
    bool folded;
    size_t least; /* bytes that the list took, unfolded, however it is planned */
} ndp_builder;

/* `number`: of a unit in the whole model. Neighbours of this rank's units have slots for what they send. */
static inline ndp_slot *ndp_slot_of(const ndp_builder *b, int number, int micro_batch) {
    return &b->slots[number * b->micro_batches + micro_batch];
}

/* ---- emit.c ---- */

/* The list of calls that run r executes. */
const ndp_list *ndp_list_of_run(const ndp_builder *b, int r);
/* A block that lives as long as the instructions that name it. */
ndp_status ndp_block_add(ndp_program *p, ndp_memory_class class, size_t bytes, int *out);
/* Activations of a micro-batch in that role. */
ndp_status ndp_block_of_role(ndp_program *p, size_t bytes, int role, int micro_batch, int *out);
/* One that lives as long as the program. */
ndp_status ndp_block_keep(ndp_program *p, ndp_memory_class class, ndp_region region, size_t bytes, ndp_address *out);
/* Appends an instruction; its blocks live at least here. */
ndp_status ndp_emit(ndp_program *p, ndp_instr in);
/* Appends a kernel call. */
ndp_status ndp_emit_kernel(ndp_program *p, const ndp_op *op, const ndp_op_attr *attr, const ndp_operand *in, int n_in,
                           const ndp_operand *out, int n_out, const char *what);
/* A collective between the ranks of `group`. Parameter gathers have a communicator of their own. */
typedef struct ndp_collective_call {
    const ndp_op *op; /* all_gather, reduce_scatter, all_reduce, send, recv */
    ndp_group_kind group;
    ndp_address in, out;
    int64_t count; /* elements: of a part (all_gather, reduce_scatter), of the buffer (all_reduce) */
    ndp_dtype type;
    bool add, in_place; /* reduce_scatter: out += ; all_gather: in memory that the group shares */
    const char *what;   /* of the buffer; borrowed */
    int buffer;
    bool backward;                    /* send, recv: of a gradient */
    int peer, tag, micro_batch, role; /* send, recv */
} ndp_collective_call;
ndp_status ndp_emit_begin(ndp_program *p, const ndp_collective_call *c, int *index);
ndp_status ndp_emit_wait(ndp_program *p, int begin);
/* Sums one of the scalars over a group; appends nothing for a group of one rank. */
ndp_status ndp_emit_scalar(ndp_program *p, ndp_group_kind group, size_t field, ndp_dtype type, const char *what);
/* The same for the sums of the loss. */
ndp_status ndp_emit_loss(ndp_program *p, ndp_group_kind group);

/* The loads of experts over all ranks that have other rows, or other mixtures. */
ndp_status ndp_emit_loads(ndp_program *p);

/* ---- own.c ---- */

/* Allocates what this rank keeps: its part of every buffer, the batch, tables, scalars. */
ndp_status ndp_own_all(ndp_program *p);

/* ---- gather.c ---- */

bool ndp_run_reads(const ndp_builder *b, int r, int buffer);
/* Waits for the buffers that run r reads, and begins the next gathers. */
ndp_status ndp_gather_before(ndp_builder *b, int r);
/* Releases buffers that are not read again soon; those of the last unit stay for its backward. */
void ndp_gather_release(ndp_builder *b, int r);

/* ---- reduce.c ---- */

/* Counts the runs that write each gradient. Call before the first run is bound. */
void ndp_reduce_plan(ndp_builder *b);
/* Blocks and accumulate bits of the parameter gradients that run r writes. */
ndp_status ndp_reduce_bind(ndp_builder *b, int r, ndp_instr *in);
/* Begins the reductions of gradients that run r completes. */
ndp_status ndp_reduce_after(ndp_builder *b, int r);
/* Waits for all reductions. */
ndp_status ndp_reduce_finish(ndp_builder *b);
/* Sums the gradients of parameters that several ranks of the tensor axis, or two stages, hold: each owner sums its
 * slice. */
ndp_status ndp_reduce_copies(ndp_builder *b);

/* ---- messages.c ---- */

/* Waits for what run r reads of another stage, and begins to receive what the next entry of the schedule reads. */
ndp_status ndp_messages_before(ndp_builder *b, int r);
/* Begins to send what run r has made for another stage. */
ndp_status ndp_messages_after(ndp_builder *b, int r);
/* Waits for all sends. */
ndp_status ndp_messages_finish(ndp_builder *b);

/* ---- step_update.c ---- */

/* Counts the valid tokens of all micro-batches and ranks, or also pairs, computes the loss scale from the count, and
 * zeroes the loss. */
ndp_status ndp_emit_loss_scale(ndp_builder *b);
/* Norm of the whole gradient, clipping factor, and the update of every trainable buffer. */
ndp_status ndp_emit_update(ndp_builder *b);

/* ---- projections.c ---- */

/* Transforms the projections of a buffer as whole matrices. `slice`: the directions of this rank's slice, made before;
 * becomes the address of the transformed ones. */
ndp_status ndp_transform_matrices(ndp_builder *b, int buffer, ndp_optimizer_name name, ndp_address *slice);

/* ---- order.c, written.c ---- */

/* The address of a base of a call of instruction `in`, where a walk is: in its unit's list, or of the instruction
 * itself. */
ndp_address ndp_base_address(const ndp_program *p, const ndp_instr *in, const ndp_walk *w, int base);
/* Refuses reads of a gradient's segment that nothing in the step has written before; see ndp_program_order. */
ndp_status ndp_gradients_written(const ndp_program *p);

/* ---- repeats.c ---- */

/* Where the instructions [first, first + n) and the n after them are two of `times` alike bodies: removes the second
 * copy and makes the first one a repeated range. *folded false, and nothing changed: they are not alike, or a block of
 * one lives on into the same block of the next. NDP_ENOMEM. */
ndp_status ndp_program_fold(ndp_program *p, int first, int n, int times, int micro_batches, bool *folded);

/* ---- memory_plan.c ---- */

/* The bytes of the arena that blocks take at once at the peak: no plan needs fewer. NDP_ENOMEM. */
ndp_status ndp_memory_least(const ndp_program *p, size_t *bytes);
/* Gives every block its region's offset and sets program->bytes. */
NDP_API ndp_status ndp_memory_plan(ndp_program *p);

#endif
