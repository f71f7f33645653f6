/* Inside causes: the trials, and what they share. A sum has the weight 1 / tokens for every token, as ours has; its
 * readings have the factors that other divisions give. */
#ifndef NDP_VERIFY_TRIALS_H
#define NDP_VERIFY_TRIALS_H

#include "verify/causes.h"

/* Nothing is open any more. */
static inline bool ndp_found_all(const ndp_finder *f) { return f->n_open == 0; }

/* f->sum becomes zero. */
void ndp_begin_sum(ndp_finder *f);
/* Adds rows first, first + step, ... below `end` to f->sum, with a weight besides that of a token. */
NDP_API ndp_status ndp_add_rows(ndp_finder *f, const ndp_dump_rows *rows, int64_t first, int64_t end, int64_t step,
                                double weight);
/* f->sum becomes that over all rows of f->trial. */
NDP_API ndp_status ndp_sum_trial(ndp_finder *f);

#define NDP_OF_ALL ", divided by the tokens of all"
/* A sum read as it is, and as the mean over its own tokens if these are fewer than all; `as_it_is` follows the words of
 * the first then. Returns how many readings there are: none without tokens. */
int ndp_read_both(const ndp_finder *f, const ndp_judged *sum, const char *words, const char *as_it_is,
                  ndp_reading out[2]);
/* Tries both readings of f->sum. */
NDP_API ndp_status ndp_try_both(ndp_finder *f, const char *words);

/* trials_sequence.c: documents, cuts of the sequence, parts of a gradient that ranks of the other axes add up, what
 * arrives at routers. */
NDP_API ndp_status ndp_try_documents(ndp_finder *f);
NDP_API ndp_status ndp_try_columns(ndp_finder *f);
NDP_API ndp_status ndp_try_parts(ndp_finder *f);
NDP_API ndp_status ndp_try_routers(ndp_finder *f);

#endif
