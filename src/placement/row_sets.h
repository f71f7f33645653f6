/* Inside the placement room: sets of rows in some order (rules_experts.c), and matrices of such rows that are smaller
 * than the set. Which rows stand in one depends on the data, so a rule has all rows of the set, each in its place by
 * number, and memory has them folded: a tile of all rows for each run of columns, which names the rows. Rules read
 * operands unfolded, and what they make is folded again. */
#ifndef NDP_PLACEMENT_ROW_SETS_H
#define NDP_PLACEMENT_ROW_SETS_H

#include "placement/content.h"

typedef struct ndp_row_set {
    uint64_t id;
    int64_t rows;     /* that it is made of */
    ndp_share weight; /* of the sum over rounds that its rows make */
    bool folded;      /* memory has its matrices folded */
    bool counts;      /* no rows: numbers that all ranks have alike */
    bool later;       /* of later rounds: calls are repeated for them */
} ndp_row_set;

/* The rows of a folded matrix. */
typedef struct ndp_fold {
    uint64_t among;
    int64_t rows;
    ndp_tile *tiles; /* row, rows and at_row */
    int n;
} ndp_fold;

typedef struct ndp_row_sets {
    ndp_row_set *sets;
    ndp_fold *folds;
    int n_sets, n_folds;
    int64_t set_capacity, fold_capacity;
    int *slots; /* by id: a set's number + 1, 0: none; n_slots of them, a power of 2, at most half of them taken */
    int n_slots;
} ndp_row_sets;

/* NULL: not noted; its weight is 1. `s` may be NULL. */
const ndp_row_set *ndp_row_set_find(const ndp_row_sets *s, uint64_t id);
/* *same false: it was noted as another one. NDP_ENOMEM. */
ndp_status ndp_row_set_note(ndp_row_sets *s, ndp_arena *a, ndp_row_set set, bool *same);

/* The content as rules read it, in its own arena. *whole false: it has some of the rows of a folded matrix. */
ndp_status ndp_unfold(const ndp_row_sets *s, ndp_content *c, bool *whole);
/* As memory has it, in `rows` rows. *alike false: its columns have other rows than each other, or not all of the set.
 */
ndp_status ndp_fold_rows(ndp_row_sets *s, ndp_content *c, int64_t rows, bool *alike);

#endif
