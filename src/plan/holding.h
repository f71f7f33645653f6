/* What one rank of a job holds: which samples, tokens, layers, heads and parameters. Read from its program, its tables
 * and its coordinates, so that it is what a run does. */
#ifndef NDP_PLAN_HOLDING_H
#define NDP_PLAN_HOLDING_H

#include "plan/plan_parts.h"

/* What is divided among ranks: X(NAME, name). Samples are those of a step, tokens the rows of a micro-batch, units the
 * embedding, the layers and the head, numbered from 0. Heads are those whose projections the rank has; attention, those
 * that it computes attention for, which are fewer under sp. */
#define NDP_DIVIDED_LIST(X)                                                                                            \
    X(SAMPLES, samples)                                                                                                \
    X(TOKENS, tokens)                                                                                                  \
    X(UNITS, units)                                                                                                    \
    X(HEADS, heads)                                                                                                    \
    X(KV_HEADS, kv_heads)                                                                                              \
    X(ATTENTION, attention)                                                                                            \
    X(FFN, ffn)                                                                                                        \
    X(VOCABULARY, vocabulary)
#define NDP_DIVIDED_ENUMERATOR(NAME, name) NDP_DIVIDED_##NAME,
typedef enum ndp_divided { NDP_DIVIDED_LIST(NDP_DIVIDED_ENUMERATOR) NDP_DIVIDED } ndp_divided;
const char *ndp_divided_name(ndp_divided what);

/* Numbers [first, end). */
typedef struct ndp_number_run {
    int64_t first, end;
} ndp_number_run;

/* Ascending, with gaps between them. */
typedef struct ndp_numbers {
    ndp_number_run *items;
    int64_t n, capacity;
    int64_t of; /* how many all ranks hold together; 0: the model has none */
} ndp_numbers;

typedef struct ndp_holding {
    ndp_mesh mesh;
    ndp_numbers of[NDP_DIVIDED];
    int slice, slices;  /* of the parameters of its layers, heads, ... it owns this slice of so many */
    int64_t parameters; /* in its slices */
} ndp_holding;

/* Builds the program of the rank. The caller releases *out. NDP_ENOMEM, and the errors of ndp_plan_engine. */
NDP_API ndp_status ndp_holding_read(const ndp_dry_run *d, const ndp_model *whole, int rank, ndp_holding *out);
/* Accepts {0}. */
void ndp_holding_release(ndp_holding *h);

/* How many of them the rank holds. */
int64_t ndp_numbers_count(const ndp_numbers *s);

#endif
