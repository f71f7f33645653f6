/* The passes that make the step program of a rank from a model's graphs, in the order in which they run. The rooms that
 * run them build their tables of functions from these lists (parallel/apply.c, graph/lower.c, step/builder.c), so a
 * pass has its place, its condition and its name here alone; `plan --passes` prints them.
 *
 * A pass may rely on everything that those above it have made. Invariant: what the passes say that they wrote sums to
 * what there is (tests/step/test_pass_table.c): nothing else writes nodes, calls or instructions. */
#ifndef NDP_GRAPH_PASSES_H
#define NDP_GRAPH_PASSES_H

#include "base/text.h"

/* X(name, when, writes, what it does). `when` is a condition of the room that runs it. */

/* Once a rank: the tables of its part of the model. */
#define NDP_MODEL_PASSES(X)                                                                                            \
    X(rows, always, "inputs", "gives the inputs the rows of this rank: cp and sp cut them")                            \
    X(units, always, "units", "takes the units of this rank's pipeline stages")                                        \
    X(buffers, always, "tables", "cuts each buffer's table of tensors over tp, and notes who holds copies")

/* Once a graph: the nodes that this rank computes. */
#define NDP_GRAPH_PASSES(X)                                                                                            \
    X(forward, always, "nodes", "writes each node by the rule of its op, with the collectives that it needs")          \
    X(backward, training, "nodes", "derives the gradients for the input and for the weights")                          \
    X(take_again, experts, "nodes", "takes the rows of experts again for weight gradients, to keep none")              \
    X(states_again, states, "nodes", "exchanges and filters again what states are made of, to keep this rank's rows")  \
    X(gather_tp_again, always, "nodes", "gathers rows over tp again for weight gradients, to keep none")               \
    X(gather_cp_again, always, "nodes", "gathers keys and values over cp again for input gradients")                   \
    X(unpack_again, packed, "nodes", "unpacks packed matrices again in both backwards, to keep none")                  \
    X(ring, ring, "nodes", "writes attention over cp as a ring of turns")                                              \
    X(maps, maps, "nodes", "writes layers with a state over cp: maps of pieces of rows make the state before each")    \
    X(rounds, experts, "nodes",                                                                                        \
      "repeats the exchange of rows over ep for those that are beyond the capacity of a round")

/* Once a graph: its lists of calls. */
#define NDP_UNIT_PASSES(X)                                                                                             \
    X(homes, always, "places", "chooses where each value lives, by the lists that use it")                             \
    X(needed, always, "marks", "marks the nodes that a recompute runs, and what the forward keeps for it")             \
    X(list_forward, always, "calls", "lists the forward that keeps what the backward reads")                           \
    X(list_forward_drop, always, "calls", "lists the forward that keeps nothing, or what the recompute begins from")   \
    X(list_recompute, always, "calls", "lists the recompute")                                                          \
    X(list_backward_input, always, "calls", "lists the backward for the input")                                        \
    X(list_backward_weight, always, "calls", "lists the backward for the weights")

/* Once a rank: its step program. A long step is written short, with two copies of the micro-batches that repeat, and
 * again in full only where the two differ or that needs less memory. */
#define NDP_STEP_PASSES(X)                                                                                             \
    X(own, always, "blocks", "takes the blocks of what the rank keeps between steps")                                  \
    X(runs, always, "runs", "orders the phases of units by the schedule")                                              \
    X(loss_scale, always, "instructions", "counts the valid tokens of the step, before any forward")                   \
    X(micro_batches, always, "instructions", "runs the phases, with gathers, messages and reductions around them")     \
    X(loss, always, "instructions", "sums the loss over ranks")                                                        \
    X(update, training, "instructions", "sums the norm, clips, and updates the weights")                               \
    X(fold, repeated, "instructions", "makes two equal copies of micro-batches one range that repeats")                \
    X(memory, alike, "offsets", "gives each block its place in memory")                                                \
    X(staging, staged, "offsets", "gives collectives that go through the host their pinned memory")

#define NDP_PASSES(X) NDP_MODEL_PASSES(X) NDP_GRAPH_PASSES(X) NDP_UNIT_PASSES(X) NDP_STEP_PASSES(X)

#define NDP_PASS_ID(name, when, writes, does) NDP_PASS_##name,
typedef enum ndp_pass_id { NDP_PASSES(NDP_PASS_ID) NDP_PASS_COUNT } ndp_pass_id;

/* What passes did: of a rank's model, a unit's program or a step program. */
typedef struct ndp_pass_trace {
    uint64_t ran;                  /* bit by pass */
    int64_t wrote[NDP_PASS_COUNT]; /* nodes, calls or instructions, as the pass says; those that it removed are < 0 */
    int last;                      /* the pass that ran last, + 1 */
    bool disordered;               /* one ran after another that stands below it, and did not begin its list */
} ndp_pass_trace;

/* Notes that a pass ran; `first`: the first one of its list. */
void ndp_pass_note(ndp_pass_trace *t, int pass, int first, int64_t wrote);
/* Adds what `from` noted. */
void ndp_pass_add(ndp_pass_trace *to, const ndp_pass_trace *from);

/* The list as text, a line each; with `did`, also what each pass did: how much it wrote, "yes" where that has no
 * number, "no" where it did not run or wrote nothing. NULL: the list alone. */
void ndp_passes_print(const ndp_pass_trace *did, ndp_str *out);

#endif
