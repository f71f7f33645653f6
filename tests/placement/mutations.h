/* Mutations of emitted lists: one thing of a program's lists is changed, alike on all ranks that have it, as a bug in a
 * pass would. A mutation names its place by what is there, since the lists of ranks differ in places. */
#ifndef TESTS_PLACEMENT_MUTATIONS_H
#define TESTS_PLACEMENT_MUTATIONS_H

#include "placement/edits.h"

/* X(NAME, "name", "why one may change nothing"). */
#define MUTATION_KINDS(X)                                                                                              \
    X(DROPPED, "dropped", "its group has the same value on all ranks")                                                 \
    X(REMOVED, "removed", "what was there before is the same")                                                         \
    X(TWICE, "twice", "done again it gives the same")                                                                  \
    X(GROUP, "another group", "the ranks of both have the same values")                                                \
    X(OP, "another op", "both ops give the same here")                                                                 \
    X(EARLY, "too early", "the operand is complete there already")                                                     \
    X(LATE, "too late", "the reader reads something else")                                                             \
    X(PART, "half of it", "the other half is padding")                                                                 \
    X(SKIPPED, "skipped", "what was there before is the same")                                                         \
    X(OPERAND, "another operand", "both operands are the same")                                                        \
    X(ABSENT, "without an operand", "the operand adds nothing")                                                        \
    X(NUMBER, "another number", "the number does not matter here")                                                     \
    X(ACCUMULATE, "accumulate", "there is nothing to add to")                                                          \
    X(SHIFTED, "one row before", "both rows are the same")                                                             \
    X(RUN_SKIPPED, "run skipped", "its results are there already")                                                     \
    X(RUN_TWICE, "run twice", "done again it gives the same")                                                          \
    X(MICRO_BATCH, "another micro-batch", "it reads nothing of the batch")                                             \
    X(BLOCK, "another block", "both blocks have the same")                                                             \
    X(PHASE, "another phase", "both phases leave the same")                                                            \
    X(MESSAGE, "another message", "both messages are the same")                                                        \
    X(STAGED, "another's place", "they are never under way together")                                                  \
    X(RANGE, "another range", "the range has the same calls")

#define MUTATION_ENUMERATOR(NAME, ...) MUTATION_##NAME,
typedef enum mutation_kind { MUTATION_KINDS(MUTATION_ENUMERATOR) MUTATIONS } mutation_kind;
#undef MUTATION_ENUMERATOR
const char *mutation_name(mutation_kind k);
const char *mutation_harmless(mutation_kind k);

/* A place, by what is there: call `call` of a unit's list, or the nth such instruction of the program. */
typedef struct mutation_site {
    int graph; /* of a unit's list; NDP_NONE: the program */
    ndp_phase phase;
    int call;
    /* of the program */
    ndp_opcode code;
    const ndp_op *op; /* CALL */
    ndp_call_kind kind;
    const char *what;
    int channel, number /* of the unit, in the whole model */, micro_batch, nth;
} mutation_site;

typedef struct mutation {
    mutation_kind kind;
    int pp; /* on these ranks; NDP_NONE: on all */
    mutation_site site, other;
    int which; /* an operand, an attribute, a group, an op, a base, a bit */
    int to;    /* OPERAND: of `other`, outputs behind inputs; NUMBER: the variant */
} mutation;

typedef struct mutations {
    mutation *items;
    int n;
    int64_t capacity;
} mutations;

/* Appends all mutations of the lists of ranks at a place on pp, of which `p` is one. Where collectives have places in
 * pinned memory: only those of the places. */
void mutations_of(const ndp_program *p, mutations *out);

mutation_site mutation_site_of(const ndp_program *p, int graph, ndp_phase phase, int i);
/* The list or the program in which the site is, and its place there; NDP_NONE: this rank has none. */
int mutation_find(ndp_program *p, const mutation_site *s, journal *j, edited *e);

/* Applies it to a rank's program; false, and nothing is changed: the rank has no such place. */
bool mutation_apply(const mutation *m, ndp_program *p, journal *j);

/* True if the communications change, so that ndp_program_check may refuse it. */
bool mutation_communicates(const mutation *m);

/* "stage 0: dropped: block backward_input 12 all_reduce dx". Returns `out`. */
const char *mutation_text(const mutation *m, const ndp_program *p, char *out, size_t size);

/* ---- numbers ---- */

/* Variants of attribute `a` of a call; 0: the attribute is not changed. */
int mutation_variants(const ndp_op_attr *attr, int a);
void mutation_set_number(ndp_op_attr *attr, int a, int variant);

/* True if the views overlap, of one base. */
bool mutation_overlap(const ndp_operand *a, const ndp_operand *b);

#endif
