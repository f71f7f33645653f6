/* How long a step takes on a cluster, and what it goes to: the programs of one rank of each pipeline stage, whose
 * others are alike, replayed against each other at the prices of the cluster's devices and links. Inside plan. */
#ifndef NDP_PLAN_STEP_TIME_H
#define NDP_PLAN_STEP_TIME_H

#include "plan/device_price.h"

/* The parts of a step: X(NAME, name). TP to PP are exposed: a rank waits for what is sent. BUBBLE: for other stages.
 * Recomputation is in the part that it repeats, the head in MATMUL. */
#define NDP_TIME_PARTS_LIST(X)                                                                                         \
    X(MATMUL, matmul)                                                                                                  \
    X(ATTENTION, attention)                                                                                            \
    X(MEMORY_BOUND, memory_bound)                                                                                      \
    X(TP, tp)                                                                                                          \
    X(CP, cp)                                                                                                          \
    X(SP, sp)                                                                                                          \
    X(EP, ep)                                                                                                          \
    X(GATHER, gather)                                                                                                  \
    X(REDUCE, reduce)                                                                                                  \
    X(PP, pp)                                                                                                          \
    X(BUBBLE, bubble)                                                                                                  \
    X(OPTIMIZER, optimizer)                                                                                            \
    X(LAUNCH, launch)                                                                                                  \
    X(FIXED, fixed)
#define NDP_TIME_PART_ENUMERATOR(NAME, name) NDP_TIME_##NAME,
typedef enum ndp_time_part { NDP_TIME_PARTS_LIST(NDP_TIME_PART_ENUMERATOR) NDP_TIME_PARTS } ndp_time_part;
const char *ndp_time_part_name(int part);
/* Times that differ by less are not told apart: the planner's error. */
#define NDP_EQUAL_TIMES 0.04

/* Collectives or messages of one kind over groups of one kind, of the critical rank in a step. */
typedef struct ndp_step_comm {
    double bytes;            /* that leave the rank */
    double seconds, exposed; /* each by itself; of them and of what they wait for, how long the rank waits */
    int level;               /* of the slowest of their links; NDP_NONE: they use none */
} ndp_step_comm;

typedef struct ndp_step_time {
    double seconds;               /* of a step */
    double parts[NDP_TIME_PARTS]; /* of the critical rank, which waits the least for others; they sum to `seconds` */
    int critical_rank;
    ndp_step_comm comms[NDP_GROUPS][NDP_COLLECTIVES];
    double flops, hardware_flops; /* of all ranks: what the model needs; with what is computed again */
} ndp_step_time;

/* `price` fits `d` and the job. *need: of the fullest of these ranks; where it needs more than `room` bytes, *out is
 * not set. NDP_ENOMEM. */
NDP_API ndp_status ndp_step_time_of(const ndp_dry_run *d, const ndp_model *m, const ndp_device_price *price,
                                    double room, ndp_step_time *out, ndp_plan_need *need);
/* Of a job on the cluster of the options, and on its nodes as they say. NDP_EINVAL: more ranks than devices. */
NDP_API ndp_status ndp_plan_step_time(const ndp_job *j, const ndp_plan_opts *o, ndp_step_time *out);
/* The same of `n` programs, each that of a rank which stands for `alike` ranks. */
NDP_API ndp_status ndp_step_time_of_programs(const ndp_program *const *programs, int n, int alike,
                                             const ndp_device_price *price, ndp_step_time *out);

/* Of a forward pass over held-out rows, of so many micro-batches where the job has a pipeline: the program that a run
 * evaluates with. */
ndp_status ndp_plan_pass_time(const ndp_dry_run *d, const ndp_device_price *price, int micro_batches,
                              ndp_step_time *out);
/* Makes all of its times so many times as long. */
void ndp_step_time_scale(ndp_step_time *t, double scale);
/* The largest part. */
int ndp_step_time_bound(const ndp_step_time *t);
/* "matmul; matmul 62% tp 20% bubble 10%": the largest part, and all of 1% or more; a line. */
void ndp_step_time_words(const ndp_step_time *t, ndp_str *out);

/* The rate that the job's products have by the data sheet. */
double ndp_step_time_peak(const ndp_job *j, const ndp_device_price *price);

#endif
