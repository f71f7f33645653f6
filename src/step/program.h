/* The step program: what one rank does in one update, as a flat list.
 *
 * An instruction runs a list of a unit's calls (RUN: a phase, for a micro-batch) or makes one call (CALL: the begin or
 * wait of a collective, or a kernel on scalars or owned slices). Memory is named by blocks. The memory plan gives each
 * block an offset, from the interval of instructions over which it lives, so nothing allocates in a step.
 *
 * A long step repeats a range (repeats.c): the micro-batches in its middle are alike.
 *
 * The same list is executed, printed, checked against the other ranks' lists, and summed into a memory budget. */
#ifndef NDP_STEP_PROGRAM_H
#define NDP_STEP_PROGRAM_H

#include "base/json_write.h"
#include "base/text.h"
#include "comm/comm.h"
#include "graph/lower.h"
#include "model/model.h"
#include "optim/groups.h"
#include "parallel/recompute.h"
#include "parallel/row_cut.h"
#include "parallel/shard.h"
#include "parallel/stages.h"
#include "step/schedule.h"

/* ---- memory ---- */

typedef enum ndp_memory_class {
    NDP_MEM_WEIGHTS, /* as ops read them: gathered or whole buffers, slices to send */
    NDP_MEM_MASTER,
    NDP_MEM_FROZEN, /* what is not trained, as it is kept: in the compute type, or as codes */
    NDP_MEM_GRADIENTS,
    NDP_MEM_OPTIMIZER,
    NDP_MEM_ACTIVATIONS, /* saved, boundary and between values */
    NDP_MEM_WORK,
    NDP_MEM_DATA,
    NDP_MEM_CLASSES
} ndp_memory_class;
const char *ndp_memory_class_name(ndp_memory_class c);

/* The memory shared on a node is a region for each group of owners: NDP_REGION_SHARED + the group's kind. */
typedef enum ndp_region {
    NDP_REGION_ARENA,
    NDP_REGION_SHARED,
    /* Arena and shared memory of another engine, whose weights this one reads in place. */
    NDP_REGION_LENT_ARENA = NDP_REGION_SHARED + NDP_GROUPS,
    NDP_REGION_LENT_SHARED,
    NDP_REGIONS = NDP_REGION_LENT_SHARED + NDP_GROUPS
} ndp_region;
const char *ndp_region_name(ndp_region r);
static inline bool ndp_region_is_lent(ndp_region r) { return r >= NDP_REGION_LENT_ARENA; }
static inline bool ndp_region_is_shared(ndp_region r) { return r >= NDP_REGION_SHARED && r < NDP_REGION_LENT_ARENA; }
/* The ranks that map a shared region. */
static inline ndp_group_kind ndp_region_group(ndp_region r) { return (ndp_group_kind)(r - NDP_REGION_SHARED); }

typedef struct ndp_block {
    ndp_memory_class class;
    ndp_region region;
    bool persistent;
    size_t bytes, offset;
    ndp_life life; /* instructions */
    ndp_ring ring; /* of blocks: activations that rotate in a repeated range */
    /* Activations of one micro-batch, while the program is built: alike blocks of others have the same role. NDP_NONE:
     * another block. */
    int role, micro_batch;
} ndp_block;

/* The block that an instruction means which names `block`, where a walk is. */
static inline int ndp_block_at(const ndp_block *blocks, int block, const ndp_walk *w) {
    return ndp_ring_at(blocks[block].ring, block, w->turn);
}

/* Memory in a block. */
typedef struct ndp_address {
    int block; /* NDP_NONE: nowhere */
    size_t offset;
} ndp_address;

/* A contiguous matrix of `rows` x `cols` elements at `at`. */
ndp_operand ndp_operand_at(ndp_address at, int64_t rows, int64_t cols, ndp_dtype type);

/* ---- instructions ---- */

typedef enum ndp_opcode {
    NDP_DO_RUN,  /* a list of a unit's calls */
    NDP_DO_CALL, /* one call: a collective's begin or wait, or a kernel on the scalars or on owned slices */
} ndp_opcode;

typedef struct ndp_instr {
    ndp_opcode code;
    const char *what; /* the unit or buffer; borrowed */
    int buffer;       /* CALL: NDP_NONE: none */
    int micro_batch;  /* of a RUN, and of what a message has */
    int role; /* of a message: alike messages of other micro-batches have the same; NDP_NONE: another instruction */
    union {
        struct { /* RUN */
            int unit;
            ndp_phase phase;
            int entry;                /* of the schedule: those of one action are alike */
            int bases[NDP_BASE_DATA]; /* blocks */
            uint32_t accumulate;
        };
        struct {           /* CALL */
            ndp_call call; /* its bases are blocks, its partner is an instruction */
            /* A communication: its begins and waits have the same number, which at most one under way has. */
            int work;
            ndp_ring works; /* of such numbers: messages that rotate in a repeated range */
        };
    };
} ndp_instr;

/* True for a call of that kind at the level of the program. */
static inline bool ndp_instr_is(const ndp_instr *in, ndp_call_kind kind) {
    return in->code == NDP_DO_CALL && in->call.kind == kind;
}

/* What a rank keeps of a buffer (own.c). */
typedef struct ndp_owned {
    ndp_shard shard;
    ndp_address weights;  /* the whole buffer as it is gathered; NDP_NONE: it exists only while gathered */
    ndp_address send;     /* this rank's slice of it */
    ndp_address master;   /* slice */
    ndp_address grad;     /* slice */
    ndp_address state[2]; /* slices, NDP_NONE */
    int64_t state_n[2];   /* elements: fewer than the slice where some optimizer does not keep the state */
    ndp_address codes[2]; /* slices of coded states, NDP_NONE: it has no coded tensor */
    ndp_address scales[2];
    int64_t n_scales;
    ndp_address pieces; /* the table of its slice (ops/pieces.h), of n_pieces rows; trainable buffers */
    int64_t n_pieces;
    int64_t n_of[NDP_OPTIMIZER_COUNT]; /* of each optimizer of the update's groups, in their order */
} ndp_owned;

/* The numbers of a step, in the device's memory, where kernels and reductions find them. */
typedef struct ndp_scalars {
    int64_t valid;
    double loss, squares, scale, norm, clip;
} ndp_scalars;
/* Those that follow where rows are pairs (model.h: preference). sums: of all pairs, the loss first, in place of `loss`;
 * and of tokens, the nll. */
typedef struct ndp_pair_scalars {
    int64_t pairs, nll_tokens;
    double sums[NDP_PAIR_SUMS], nll_scale;
} ndp_pair_scalars;
/* Those of routers with losses: rows that are not padding, and sums over them and over layers. */
typedef struct ndp_router_scalars {
    int64_t rows;
    double scale, sums[NDP_ROUTER_LOSSES];
} ndp_router_scalars;
typedef struct ndp_all_scalars {
    ndp_scalars step;
    ndp_pair_scalars pair;
    ndp_router_scalars router;
} ndp_all_scalars;

/* When a step repeats a range, if its micro-batches are alike; else it lists every one. */
typedef enum ndp_folding_rule { NDP_FOLD_IF_NO_LARGER, NDP_FOLD_ALWAYS, NDP_FOLD_NEVER } ndp_folding_rule;

/* How a rank does a step: what an engine and its program are told alike. */
typedef struct ndp_step_opts {
    ndp_mesh mesh;
    ndp_parallel parallel;
    ndp_stages stages;    /* of the pipeline; their arrays are borrowed */
    const ndp_exec *exec; /* borrowed while the engine or program lives */
    int node_ranks;       /* that may share memory; 0 (of an engine only): as many as the transport says */
    int accumulation;
    bool reshard;
    ndp_recompute recompute;
    bool reduce_once;      /* gradients are reduced at the end of the update, not of each micro-batch */
    ndp_folding_rule fold; /* other than 0: for comparisons */
    bool unplaced; /* of programs that are only timed: blocks get no offsets, the arena what a plan needs at least */
    size_t enough; /* of programs that do not run: bytes of this rank for which no plan that takes less is looked for */
    const ndp_schedule *schedule; /* borrowed while the program is built; NULL: one stage, micro-batches in order */
    ndp_optimizer_opts optimizer;
} ndp_step_opts;

typedef struct ndp_program_opts {
    ndp_step_opts step;
    const ndp_model *model;        /* what the rank computes; borrowed */
    const ndp_model *whole;        /* of which `model` is this rank's part; borrowed */
    const ndp_unit_program *units; /* borrowed; by graph */
    /* The program whose weights are read; same model and mesh. NULL: own weights. */
    const struct ndp_program *weights_of;
} ndp_program_opts;

/* The places of collectives in the host's memory, if they are staged (staging.h). */
typedef struct ndp_staging {
    size_t bytes;   /* of pinned memory; 0: nothing is staged */
    size_t *places; /* bytes from its start: by work; from of_list on, by the begin in a unit's list */
    size_t of_list[NDP_MAX_GRAPHS][NDP_PHASES];
} ndp_staging;

typedef struct ndp_program {
    ndp_program_opts opts;
    ndp_instr *instrs;
    int n, n_works; /* n_works: the numbers of communications (ndp_instr.work) */
    ndp_repeats repeats;
    /* Where its parts begin: sums of gradients over groups, their norm and the factor of clipping; then the updates of
     * buffers, which are its end. n: there are none. */
    int first_norm, first_update;
    int64_t capacity;
    ndp_arena arena; /* of the calls' operands */
    ndp_block *blocks;
    int n_blocks;
    int64_t block_capacity;
    ndp_owned *owned;                              /* by buffer */
    ndp_address scalars, batch, tables, constants; /* constants: of the step's update (ops/update.h) */
    ndp_address loads;               /* of the mixtures of the whole model, a row each: ndp_program_loads() numbers */
    ndp_update_groups groups;        /* of the update; in the arena */
    size_t batch_stride;             /* bytes of a micro-batch's inputs */
    size_t input_at[NDP_MAX_INPUTS]; /* bytes from the start of `batch`, or of `tables` */
    size_t bytes[NDP_REGIONS];
    int peak; /* the instruction at which blocks take the most bytes */
    ndp_staging staging;
    ndp_pass_trace passes;
} ndp_program;

/* True if the rows of a micro-batch are pairs of documents. */
static inline bool ndp_program_has_pairs(const ndp_program *p) { return p->opts.model->opts.preference.kind != 0; }
/* True if routers have losses of their own. */
static inline bool ndp_program_has_router_losses(const ndp_program *p) {
    return ndp_inputs_find(p->opts.model->inputs, NDP_INPUT_ROUTER_SUMS) >= 0;
}
/* How many numbers say how often each expert of each mixture of the whole model is chosen; 0: they are not counted. */
static inline int64_t ndp_program_loads(const ndp_program *p) {
    const ndp_mixtures *m = &p->opts.whole->inputs->mixtures;
    return ndp_inputs_find(p->opts.model->inputs, NDP_INPUT_LOADS) < 0 ? 0 : (int64_t)m->n * m->experts;
}
/* Those of a unit's mixture. */
static inline ndp_address ndp_program_loads_of(const ndp_program *p, int unit) {
    int mixture = p->opts.whole->units[p->opts.model->units[unit].number].mixture;
    size_t row = (size_t)p->opts.whole->inputs->mixtures.experts * sizeof(double);
    return (ndp_address){p->loads.block, p->loads.offset + (mixture == NDP_NONE ? 0 : (size_t)mixture * row)};
}
static inline size_t ndp_scalars_bytes(const ndp_program *p) {
    return ndp_program_has_router_losses(p) ? sizeof(ndp_all_scalars)
           : ndp_program_has_pairs(p)       ? offsetof(ndp_all_scalars, router)
                                            : sizeof(ndp_scalars);
}
/* The running sums of the loss: where they begin among the scalars, and how many. */
static inline size_t ndp_loss_at(const ndp_program *p) {
    return ndp_program_has_pairs(p) ? offsetof(ndp_all_scalars, pair.sums) : offsetof(ndp_scalars, loss);
}
static inline int ndp_loss_sums(const ndp_program *p) { return ndp_program_has_pairs(p) ? NDP_PAIR_SUMS : 1; }

/* The address of an input; NDP_NONE if it is lent to the engine (ndp_engine_lend). */
ndp_address ndp_program_input(const ndp_program *p, int input, int micro_batch);

/* Bytes of the constants of an update. */
static inline size_t ndp_constants_bytes(const ndp_program *p) {
    return (size_t)(p->groups.n * NDP_OPTIMIZER_CONSTANTS) * sizeof(double);
}
/* Bytes of a buffer's table of pieces. */
size_t ndp_table_bytes(const ndp_program *p, int buffer);

/* How many instructions a whole step executes. */
/* Whether the data decide how often a range of a unit's forward runs. */
bool ndp_program_has_counts(const ndp_program *p);
static inline int64_t ndp_program_executed(const ndp_program *p) { return ndp_repeats_executed(&p->repeats, p->n); }

/* The calls of an instruction: its unit's list, or its own. */
const ndp_call *ndp_instr_calls(const ndp_program *p, const ndp_instr *in, int *n, ndp_repeats *repeats);

/* The unit program's list that a RUN instruction runs. */
const ndp_list *ndp_program_list(const ndp_program *p, const ndp_instr *run);

/* A channel is a communicator: one for each group kind, and more where operations of one group overlap, since the waits
 * of a channel's collectives have the order of its begins: for parameter gathers, NDP_CHANNEL_GATHERS + the kind of
 * their owners, and for the messages between stages, forward and backward. */
enum {
    NDP_CHANNEL_GATHERS = NDP_GROUPS,
    NDP_CHANNEL_FORWARD = NDP_CHANNEL_GATHERS + NDP_GROUPS,
    NDP_CHANNEL_BACKWARD,
    NDP_CHANNELS
};
static inline ndp_group_kind ndp_channel_group(int channel) {
    return channel >= NDP_CHANNEL_FORWARD   ? NDP_GROUP_PP
           : channel >= NDP_CHANNEL_GATHERS ? (ndp_group_kind)(channel - NDP_CHANNEL_GATHERS)
                                            : (ndp_group_kind)channel;
}

/* "shard", "pp forward": names a communicator in messages. */
const char *ndp_channel_name(int channel);

/* The next instruction to execute (repeat.h): start with NDP_WALK_START; false at the end. */
static inline bool ndp_program_next(const ndp_program *p, ndp_visits visits, ndp_walk *w) {
    return ndp_walk_next(&p->repeats, p->n, visits, w);
}

/* The micro-batch of an instruction, and the tag of a message, where a walk is. */
static inline int ndp_micro_batch_at(const ndp_instr *in, const ndp_walk *w) {
    return in->micro_batch + (int)w->micro_batch;
}
/* The number of a begin or wait at the level of the program. */
static inline int ndp_work_at(const ndp_instr *in, const ndp_walk *w) {
    return ndp_ring_at(in->works, in->work, w->turn);
}
enum { NDP_MESSAGE_TAGS = 32767 };
static inline int ndp_tag_at(const ndp_call *c, const ndp_walk *w) {
    return (int)((c->attr.tag + w->micro_batch % NDP_MESSAGE_TAGS + NDP_MESSAGE_TAGS) % NDP_MESSAGE_TAGS);
}

/* Every communication of a program, including those inside units, in the order of execution. */
typedef struct ndp_comm_event {
    int instr, call_index; /* call_index: in the unit's list; NDP_NONE: the instruction itself */
    const ndp_call *call;
    bool begin;           /* or wait */
    int micro_batch, tag; /* of a message */
    int work;             /* at the level of the program: its number (ndp_work_at) */
    int64_t bytes;        /* of the operand that a rank hands in */
    const char *unit;     /* "" at the level of the program */
} ndp_comm_event;
/* Iterates: start with NDP_COMM_EVENTS(visits); false at the end. */
typedef struct ndp_comm_event_cursor {
    ndp_visits visits;
    ndp_walk walk;                     /* the instruction */
    ndp_walk call;                     /* the latest one of its list */
    const bool (*without)[NDP_PHASES]; /* by graph: lists that are left out; NULL: none */
} ndp_comm_event_cursor;
#define NDP_COMM_EVENTS(iterations) ((ndp_comm_event_cursor){.visits = (iterations), .walk = NDP_WALK_START})
bool ndp_program_comm_event(const ndp_program *p, ndp_comm_event_cursor *cursor, ndp_comm_event *out);

/* The one that the instruction of a walk is, or that is call `call_index` of its list. */
ndp_comm_event ndp_comm_event_at(const ndp_program *p, const ndp_walk *at, int call_index);

static inline int ndp_comm_event_channel(const ndp_comm_event *m) { return m->call->channel; }
static inline ndp_group_kind ndp_comm_event_group(const ndp_comm_event *m) {
    return ndp_channel_group(m->call->channel);
}
static inline ndp_collective ndp_comm_event_kind(const ndp_comm_event *m) { return m->call->op->collective; }
/* A send or a receive. */
static inline bool ndp_comm_event_is_message(const ndp_comm_event *m) {
    return m->call->op->collective == NDP_SEND || m->call->op->collective == NDP_RECV;
}
/* Bytes that it moves out of this rank, each counted once (ring or direct algorithm); those of a receive come in; 0 for
 * gathers in place and in a group of one rank. */
double ndp_comm_event_moved(const ndp_program *p, const ndp_comm_event *m);
/* "#116.7 all_gather layers.3 x (4096 bytes)" */
const char *ndp_comm_event_text(const ndp_comm_event *m, char *out, size_t size);

/* Checks that all ranks of a channel's communicator begin the same operations in the same order. Collective over it,
 * before the first step. NDP_EBUG, on each rank that differs from the group's first rank, names both operations. */
NDP_API ndp_status ndp_program_agree(const ndp_program *p, int channel, ndp_comm *c);

/* Builds the program of one rank and plans its memory. NDP_ENOMEM, NDP_EBUG. */
NDP_API ndp_status ndp_program_build(const ndp_program_opts *opts, ndp_program *out);
void ndp_program_release(ndp_program *p);

/* True if two ranks do the same calls on the same memory: their programs differ in the ranks of their groups and in the
 * contents of tables alone. */
NDP_API bool ndp_program_same(const ndp_program *a, const ndp_program *b);

/* Replays the programs of `n` ranks of one world, all or some, against each other (check.c): in every group, members
 * begin the same collectives in the same order with the same kind, bytes and buffer, and no timing leads to a deadlock.
 * NDP_EBUG names both sides. */
NDP_API ndp_status ndp_program_check(const ndp_program *const *programs, int n);

/* The queue of a GPU that each channel's collectives have, from 0; NDP_NONE: none. Channels of which no two operations
 * are under way at once share one: their operations wait for each other in any case. Returns how many (queues.c). */
NDP_API int ndp_program_collective_queues(const ndp_program *p, int queue_of[NDP_CHANNELS]);
/* How many queues of a GPU a rank uses: those, one a neighbour and direction of messages, and its own (comm/nccl/). */
NDP_API int ndp_program_queues(const ndp_program *p);
/* What NCCL needs of a GPU for the communicators of a rank: their own memory (comm/nccl/nccl_memory.h), and the sums
 * of reductions that are added to a gradient. `beside`: a program whose communicators this one has too; NULL: none. */
NDP_API int64_t ndp_program_nccl_bytes(const ndp_program *p, const ndp_program *beside);
/* Checks that GPUs that run $CUDA_DEVICE_MAX_CONNECTIONS queues by themselves (default 32) can run the programs of `n`
 * ranks of one world, whichever queues share a connection (queues.c). NDP_ENOTSUP names the ranks; NDP_ENOMEM. */
NDP_API ndp_status ndp_program_check_queues(const ndp_program *const *programs, int n);

/* Checks one rank's program. Whatever overlaps what a communication reads or writes, in bytes of the planned memory,
 * runs before its begin or after its wait (order.c): NDP_EBUG names both operations. And whatever is read of a
 * gradient, or added to, was written earlier in the step; gaps between segments and padding are excepted (written.c):
 * NDP_EBUG names the operation, the tensor and its first such byte. NDP_ENOMEM. */
NDP_API ndp_status ndp_program_order(const ndp_program *p);

/* One line per instruction; with `units`, the unit programs follow. */
void ndp_program_print(const ndp_program *p, bool units, ndp_str *out);

/* When an instruction ran, in seconds: simulated (simulate.h) from the start of the step, measured (engine.h) on the
 * host's monotonic clock. Times of a program are in the order of execution (ndp_walk.executed). */
typedef struct ndp_instr_time {
    double start, end;
    double waited; /* of that, in the waits of a unit's list */
} ndp_instr_time;

/* Bytes in use at the peak, by class (arena and shared memory; of shared memory, the part that this rank owns). `total`
 * is what the rank maps. */
typedef struct ndp_budget {
    size_t class_bytes[NDP_MEM_CLASSES];
    size_t total;
    size_t staging; /* pinned memory of the host, besides, and rows of logits (loss_rows.h) */
} ndp_budget;
void ndp_program_budget(const ndp_program *p, ndp_budget *out);

/* Bytes that leave this rank in one step, by group, each counted once (ring or direct algorithm); 0 for gathers in
 * place. */
void ndp_program_traffic(const ndp_program *p, double out[NDP_GROUPS]);

/* By ndp_op_id, how many calls a step makes, a collective counted once, and the bytes that it moves
 * (ndp_comm_event_moved). */
void ndp_program_calls(const ndp_program *p, double calls[NDP_OP_COUNT], double moved[NDP_OP_COUNT]);

#endif
