/* Pipeline schedules: what each rank of the pp axis computes in a step, and in which order, as a table.
 *
 * The units of the model are cut into stages, and every rank holds one or several of them. The table has one row per
 * rank. A row is an ordered list of actions: forward, input gradient, weight gradient, or backward (both gradients) of
 * a stage for a micro-batch. A generator makes a table (pipeline.c), or a file has it (csv.c). Idle cells are not kept:
 * the order of a row and the dependencies between stages say when an action runs.
 *
 *     forward of (stage, micro-batch)    after the forward of (stage - 1, micro-batch)
 *     input gradient, backward           after its forward and those of (stage + 1, micro-batch)
 *     weight gradient                    after its input gradient
 *
 * This room has no model, memory or communication; units of time are the caller's. */
#ifndef NDP_PIPELINE_PIPELINE_H
#define NDP_PIPELINE_PIPELINE_H

#include "base/text.h"

/* X(NAME, letter in files). A backward is both gradients of a unit, then of the unit before it. */
#define NDP_ACTIONS_LIST(X)                                                                                            \
    X(FORWARD, 'F')                                                                                                    \
    X(BACKWARD, 'B')                                                                                                   \
    X(INPUT_GRADIENT, 'I')                                                                                             \
    X(WEIGHT_GRADIENT, 'W')

#define NDP_ACTION_ENUMERATOR(NAME, ...) NDP_ACTION_##NAME,
typedef enum ndp_action { NDP_ACTIONS_LIST(NDP_ACTION_ENUMERATOR) NDP_ACTIONS } ndp_action;

char ndp_action_letter(ndp_action a);

/* ---- kinds ---- */

/* Which rank holds a stage: LOOP, stage s is on rank s mod p; V, stages s and 2p - 1 - s are on rank s. */
typedef enum ndp_stage_map { NDP_STAGES_LOOP, NDP_STAGES_V } ndp_stage_map;

/* All schedules, listed here only: X(NAME, name, MAP, LEAST, MOST, "help"). A generator, ndp_row_NAME (row.h), makes
 * each but the last. LEAST and MOST bound the virtual stages, the stages on each rank. The bubble is per rank and step,
 * for equal stages, W <= F and at least p micro-batches (dualpipev: 2p); F, I and W are the times of a rank's forward,
 * input gradient and weight gradient for one micro-batch, v its virtual stages. */
#define NDP_GENERATED_PIPELINES(X)                                                                                     \
    X(GPIPE, gpipe, LOOP, 1, 1, "all forwards, then all backwards; bubble (p-1)(F+I+W), holds every micro-batch")      \
    X(1F1B, 1f1b, LOOP, 1, 1, "one forward, one backward; bubble (p-1)(F+I+W), holds p micro-batches")                 \
    X(INTERLEAVED, interleaved, LOOP, 2, NDP_MOST_STAGES,                                                              \
      "1f1b with v virtual stages; bubble (p-1)(F+I+W)/v, holds p+(p-1)/v micro-batches")                              \
    X(ZERO_BUBBLE, zero_bubble, LOOP, 1, NDP_MOST_STAGES,                                                              \
      "1f1b with weight gradients apart (ZB-H1); bubble (p-1)(F+I-W)/v, holds p micro-batches")                        \
    X(ZBV, zbv, V, 2, 2, "zero bubble with two stages a rank in a V; bubble (p-1)F/2 if F=I=W, holds p micro-batches") \
    X(DUALPIPEV, dualpipev, V, 2, 2,                                                                                   \
      "forwards and backwards in pairs, stages in a V; bubble (p-1)(F+I-W)/2, holds p+1/2 micro-batches")
#define NDP_PIPELINES(X)                                                                                               \
    NDP_GENERATED_PIPELINES(X)                                                                                         \
    X(FILE, file, LOOP, 1, NDP_MOST_STAGES, "a CSV file, as torch's pipelining reads and writes it")

enum { NDP_MOST_STAGES = 1 << 16, NDP_MOST_MICRO_BATCHES = 1 << 20 };

#define NDP_PIPELINE_ENUMERATOR(NAME, ...) NDP_PIPELINE_##NAME,
typedef enum ndp_pipeline_kind { NDP_PIPELINES(NDP_PIPELINE_ENUMERATOR) NDP_PIPELINE_KINDS } ndp_pipeline_kind;

typedef struct ndp_pipeline_info {
    const char *name, *help;
    ndp_stage_map map; /* not used by `file`: its rows say it */
    int fewest, most;  /* virtual stages */
} ndp_pipeline_info;
extern const ndp_pipeline_info ndp_pipeline_table[NDP_PIPELINE_KINDS];

/* ---- tables ---- */

typedef struct ndp_stage_action {
    int stage, micro_batch;
    ndp_action action;
    bool
        paired; /* in one cell with the next action, a backward or input gradient that it overlaps; this is a forward */
    int column; /* of its cell in the row, idle cells and those of communication included; for messages */
} ndp_stage_action;

typedef struct ndp_pipeline_row {
    ndp_stage_action *actions;
    int n;
} ndp_pipeline_row;

typedef struct ndp_pipeline {
    char *name; /* for messages: of its kind, or the file's path */
    int ranks, stages, micro_batches;
    ndp_pipeline_row *rows; /* [ranks] */
    int *rank_of;           /* [stages] */
} ndp_pipeline;

/* The table of a schedule for `ranks` ranks with `virtual_stages` stages each. A stage's weight gradients are in the
 * order of micro-batches. Any number of micro-batches is possible; the bubble is longer if there are fewer than ranks
 * (dualpipev: than stages). NDP_EINVAL with the numbers and the nearest legal ones, also for `file`; NDP_ENOMEM. */
NDP_API ndp_status ndp_pipeline_make(ndp_pipeline_kind kind, int ranks, int virtual_stages, int micro_batches,
                                     ndp_pipeline *out);

/* Forwards alone, on the stages and ranks of `map`, which may be any table: for evaluation. Later stages go first, so
 * at most `stages` micro-batches are under way. NDP_EINVAL, NDP_ENOMEM. */
NDP_API ndp_status ndp_pipeline_forward(const ndp_pipeline *map, int micro_batches, ndp_pipeline *out);

void ndp_pipeline_release(ndp_pipeline *s);

/* Checks a table for training: numbers are in range; a stage is on one rank; each stage has for each micro-batch one
 * forward, then either one backward or one input gradient and then one weight gradient; the halves of a pair may
 * overlap; the order of the rows does not deadlock; there are `micro_batches` micro-batches (0: any number). NDP_EINVAL
 * names row, column, cell and rule; rows and columns count from 0. */
NDP_API ndp_status ndp_pipeline_check(const ndp_pipeline *s, int micro_batches);

/* ---- files (csv.c) ---- */

/* Reads torch's CSV, in both of its formats: line r is the row of rank r, a cell is an action such as 0F0, 1I3, 1W3,
 * 2B1, a pair (0F7;7B3)OVERLAP_F_B, idle (empty), or one of communication or sharding (3SEND_F1, 2UNSHARD), which is
 * skipped since the program derives it. The result is checked for `micro_batches` (0: any number). Errors are those of
 * ndp_pipeline_check, and NDP_EFORMAT with row, column and cell. */
NDP_API ndp_status ndp_pipeline_read(const char *path, int micro_batches, ndp_pipeline *out);
/* The same for `size` bytes of text; `name` stands for the file in messages. */
NDP_API ndp_status ndp_pipeline_parse(const char *text, size_t size, const char *name, int micro_batches,
                                      ndp_pipeline *out);

/* Adds the table as a CSV that torch loads ("compute_only"). A column is a unit of time in which a forward or a
 * gradient takes one and a backward two; a cell is in the column in which it begins. NDP_EINVAL (deadlock), NDP_ENOMEM.
 */
NDP_API ndp_status ndp_pipeline_text(const ndp_pipeline *s, ndp_str *out);
/* Writes that text to a file, which is replaced as a whole. Also NDP_EIO. */
NDP_API ndp_status ndp_pipeline_write(const ndp_pipeline *s, const char *path);

/* ---- time (replay.c) ---- */

/* Per stage, each array [stages]; none negative. A backward costs both gradients. `message`: between stages of two
 * ranks. */
typedef struct ndp_pipeline_costs {
    const double *forward, *input_gradient, *weight_gradient;
    double message;
} ndp_pipeline_costs;

typedef struct ndp_action_time {
    double start, end;
} ndp_action_time;

typedef struct ndp_pipeline_times {
    ndp_action_time **rows; /* [ranks], each as long as the row of the table */
    double makespan;
    double *idle; /* [ranks]: makespan less the rank's own compute */
} ndp_pipeline_times;

/* Runs the table: an action starts once the one before it in its row has ended and what it reads has arrived. The
 * halves of a pair run one after the other; messages cost the ranks nothing but time to arrive. The table is one that
 * ndp_pipeline_check accepts, or of forwards alone. NDP_EINVAL: a deadlock, named by a cell of the cycle; NDP_ENOMEM.
 */
NDP_API ndp_status ndp_pipeline_replay(const ndp_pipeline *s, const ndp_pipeline_costs *costs, ndp_pipeline_times *out);
void ndp_pipeline_times_release(ndp_pipeline_times *t);

#endif
