/* Why a dump differs: sums are computed as known faults would make them, and whatever of the dump is such a sum, within
 * its bound, is named after the fault. Nothing is named that does not explain the whole tensor. */
#ifndef NDP_VERIFY_CAUSES_H
#define NDP_VERIFY_CAUSES_H

#include "verify/against.h"

/* One way to read a sum as the dump's: `factor` times it, described by `words`: "like rows 0 to 3 alone". */
typedef struct ndp_reading {
    double factor;
    char words[256];
} ndp_reading;

/* What is said of tensors, of the loss, of the number of tokens: "like rows 0 to 3 alone". */
typedef struct ndp_cause {
    char words[288];
    bool loss, tokens, spreads;
} ndp_cause;

typedef struct ndp_finder {
    ndp_comparison *c;
    ndp_against *out;
    ndp_cause *causes; /* in the order in which they were found */
    int n_causes;
    int64_t cause_capacity;
    int *cause_of; /* by tensor: NDP_NONE: it agrees */
    bool *open;    /* by tensor: it differs, and no cause is found */
    bool open_loss, open_tokens;
    int n_open;            /* of these */
    bool spreads;          /* trials of faults that what comes after in the backward inherits: the first is named */
    ndp_dump_rows trial;   /* the dump's rows, changed for a trial */
    ndp_judged sum, other; /* of trials */
    double tokens;         /* of all rows */
} ndp_finder;

/* Adds to out->causes a line for everything that differs: its cause, or that none fits. Computes steps only if
 * something differs. */
NDP_API ndp_status ndp_find_causes(ndp_comparison *c, ndp_against *out);

/* Names what is still open and equals a reading of `sum`: tensors; the loss; the number of tokens, if something else is
 * explained by it. `times`: says first how many times ours that is. */
NDP_API ndp_status ndp_try_readings(ndp_finder *f, const ndp_judged *sum, const ndp_reading *readings, int n,
                                    bool times);

/* How many open tensors are equal to one of the readings. */
NDP_API ndp_status ndp_count_readings(ndp_finder *f, const ndp_judged *sum, const ndp_reading *readings, int n,
                                      int *out);

/* trials.c: the sums that are tried, until nothing is open. */
NDP_API ndp_status ndp_try_all(ndp_finder *f);

#endif
