/* Inside the step room: the parts of an engine, for engine.c (builds it), execute.c (runs it) and engine_host.c (its
 * host side). */
#ifndef NDP_STEP_ENGINE_PARTS_H
#define NDP_STEP_ENGINE_PARTS_H

#include "device/energy.h"
#include "step/values.h"

/* The host's copies of what a step uploads and downloads. Each pending step has its own, since the device may read or
 * write them any time before the queue is drained. */
typedef struct ndp_pending_step {
    ndp_all_scalars result; /* `pair` only where rows are pairs, `router` where routers have losses */
    ndp_mark end;           /* after the copy of the result */
    int64_t loaded;         /* host.loaded when it was submitted */
} ndp_pending_step;

/* Where the constants of an update are that is submitted apart from its step: the steps after it have places of their
 * own, and when the next such update comes, no step is pending, so this one has run. */
enum { NDP_UPDATE_CONSTANTS_PLACE = NDP_STEPS_PENDING };

struct ndp_engine {
    ndp_engine_opts opts;
    int others;      /* users besides the first (ndp_engine_share) */
    ndp_model model; /* this rank's */
    ndp_unit_program units[NDP_MAX_GRAPHS];
    ndp_program program;
    ndp_transport *queues; /* moves the device's tensors; NULL: opts.transport does, as the host accesses them */
    ndp_comm *world;       /* of the host */
    ndp_comm *comms[NDP_CHANNELS]; /* NULL: the program has no call on that channel */
    ndp_window *windows[NDP_REGIONS];
    ndp_memory_source source; /* of host memory that peers access in place */
    void *arena;
    size_t arena_bytes;
    void **addresses; /* of blocks, on the device */
    ndp_device_context *context;
    ndp_queue *queue;
    ndp_energy energy;
    bool counts_energy;
    bool abandoned; /* the queue does not end: its memory is not given back */
    struct {
        void *batches;                     /* the host's arrays of `n_batches` micro-batches, used in turn */
        int64_t n_batches, loaded, copied; /* uploads so far; those that have run */
        void *loss_rows;                   /* of row_slopes (loss_rows.h); NULL: not needed */
        void *staging;                     /* places of collectives (staging.h); NULL: not needed */
        ndp_pending_step *steps;           /* NDP_STEPS_PENDING of them, in the host's memory */
        double *loads;                     /* of as many steps; there too */
        int64_t *later; /* of as many steps, by mixture of the whole model: rounds after the first ones of forwards */
        double *constants; /* of the updates of as many steps, and of one that is submitted apart; there too */
        int64_t submitted, taken;
        ndp_queue *results; /* waits for the end of one step, not of those after it */
    } host;
    struct {
        void *data;
        size_t bytes;
    } * mapped; /* by ndp_engine_map */
    int n_mapped;
    int64_t mapped_capacity;
    /* Collectives under way. Entry i < program.n_works: work i of the program; entry n_works + k: begun by call k of
     * the unit that runs. */
    ndp_work *works;
    /* Where the device's memory is not the host's: the counts of all_to_all_rows, NDP_MOST_COLLECTIVES tables in turn;
     * how many were read, the last one in which run and of which value of the unit's graph. */
    int32_t *rows;
    struct {
        uint32_t n;
        int value;
        int64_t run;
        int index; /* the last call of it that used one */
    } rows_read;
    double *begun;       /* when */
    void **lent;         /* by unit, then by input */
    ndp_walk at;         /* the instruction that runs */
    ndp_step_input step; /* of which it is a part */
    bool only_sums;      /* of the calls of the update, only what they left open: sums over replicas */
    char message[96];    /* the name of the latest message */
    ndp_profile profile;
    ndp_op_times op_times;   /* device NULL: ops are not timed */
    ndp_step_values *values; /* of the steps that are watched; NULL: none is */
    struct {
        ndp_instr_time *times; /* of one step after the other, in the order of execution; NULL: nothing is recorded */
        int64_t *n;            /* of each of the steps: how many; 0: it was not recorded */
        int64_t first, last;   /* updates: step k is update first + k; last < 0: all, of which the newest is step 0 */
        int64_t newest;        /* of the steps, the one that was recorded last */
        ndp_instr_time *at;    /* of the step that is submitted; NULL: it is not recorded */
    } record;
};

/* The address on the device; NULL if `at` has no block. */
void *ndp_engine_at(const ndp_engine *e, ndp_address at);
/* Waits until the queue has run all that was submitted to it; while its device waits for other ranks, the rank sees
 * their failures (ndp_transport_drain). */
ndp_status ndp_engine_drain(const ndp_engine *e, ndp_queue *q);
/* Says where the device is in the error of one of its functions (ndp_transport_explain). Returns `st`. */
ndp_status ndp_engine_explain(const ndp_engine *e, ndp_status st);
/* Copies between the host and the device in the order of submission; `settle`: waits for the copy. The host's memory is
 * pinned, or the copy settles: it is submitted to an empty queue then, since CUDA may block the host for such a copy.
 */
NDP_API ndp_status ndp_engine_copy(const ndp_engine *e, void *to, const void *from, size_t bytes, bool settle);

/* engine_mixtures.c: writes to `to` what a micro-batch of `real` rows gives to this rank's mixtures. */
void ndp_engine_fill_mixtures(const ndp_engine *e, const ndp_input *in, int64_t real, const ndp_micro_batch *whole,
                              int32_t *to);
/* Where the host has the loads of a step, by its number among those submitted; NULL: there are none. */
double *ndp_engine_loads(const ndp_engine *e, int64_t step);
/* The same of rounds after the first one; NULL: no round is planned to follow it. */
int64_t *ndp_engine_later(const ndp_engine *e, int64_t step);
/* What a phase of a unit adds them to in the step that is submitted; NULL: it is no forward. */
int64_t *ndp_engine_later_of(const ndp_engine *e, const ndp_unit *u, ndp_phase phase);
/* engine_host.c: the host's memory of an engine, and what is uploaded once. After the arena was mapped. */
NDP_API ndp_status ndp_engine_open_host(ndp_engine *e);
void ndp_engine_close_host(ndp_engine *e);
/* values.c: looks at what a call wrote, for e->values (ndp_call_opts.after). */
ndp_status ndp_engine_look(void *user, int index, const ndp_call *c, const ndp_op_call *operands);
/* engine_record.c: what ndp_engine_record has allocated. */
void ndp_engine_release_record(ndp_engine *e);
/* staging.c: the kind of operation that comm/ has for a collective op. */
ndp_work_kind ndp_collective_kind(ndp_collective kind);
/* The device's address of an input. */
void *ndp_engine_input_at(const ndp_engine *e, int input, int unit, int micro_batch);

#endif
