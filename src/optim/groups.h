/* Update groups: for each tensor the optimizer, the learning rate and the weight decay. Every tensor is in one group.
 *
 * A list has groups for each entry of optimizer.groups and, last, for the tensors that none names. What one entry says
 * is up to four groups: vectors have no weight decay unless the entry states one, and what its optimizer cannot update
 * another one does (Muon updates projections, AdamW the rest). A group has a row of the constants of an update.
 *
 * The optimizers of a list are in the order of the states that they keep in numbers, the most first, and so are the
 * pieces of a slice. So a piece has one place in all states that are shorter than the slice, since each of them begins
 * with the pieces of the same optimizers. Invariant: the functions here alone say where pieces are. */
#ifndef NDP_OPTIM_GROUPS_H
#define NDP_OPTIM_GROUPS_H

#include "base/arena.h"
#include "ops/pieces.h"
#include "optim/optim.h"

enum { NDP_MOST_ENTRIES = 255 }; /* of optimizer.groups: as many as ndp_segment.named_by can say */

typedef struct ndp_update_group {
    int entry;      /* from 1 on; 0: of what no entry names */
    unsigned kinds; /* the set of its tensors among those */
    ndp_optimizer_opts opts;
    double lr_scale;
} ndp_update_group;

typedef struct ndp_update_groups {
    ndp_update_group *items;
    int n;
    ndp_optimizer_name used[NDP_OPTIMIZER_COUNT]; /* the optimizers, in the order of pieces */
    int n_used;
    int states[NDP_OPTIMIZER_COUNT]; /* of each in `used`, in numbers */
    uint32_t seed;                   /* of what is rounded at random */
    bool rounds;                     /* something is rounded at random: tables say where pieces are in tensors */
} ndp_update_groups;

/* The groups of a job; memory is the arena's. NDP_ENOMEM. */
NDP_API ndp_status ndp_update_groups_make(const ndp_optimizer_opts *o, ndp_arena *arena, ndp_update_groups *out);
/* The number of a tensor's group. */
int ndp_update_group_of(const ndp_update_groups *g, const ndp_segment *s);
static inline const ndp_optimizer_opts *ndp_update_opts_of(const ndp_update_groups *g, const ndp_segment *s) {
    return &g->items[ndp_update_group_of(g, s)].opts;
}
/* NDP_EINVAL: the entry that names the tensor chooses an optimizer that cannot update it. */
ndp_status ndp_update_groups_check(const ndp_optimizer_opts *o, const ndp_segment *s);

/* The place of an optimizer in `used`; n_used: the list lacks it. */
int ndp_update_place(const ndp_update_groups *g, ndp_optimizer_name name);
/* Whether state k, in numbers, has room for a part of a slice only: not all optimizers keep it. */
bool ndp_update_state_is_short(const ndp_update_groups *g, int k);
/* How many states some optimizer of the list keeps, in whatever form; and whether one keeps codes. */
int ndp_update_states(const ndp_update_groups *g);
bool ndp_update_codes(const ndp_update_groups *g);
/* Where tensors and slices begin in the buffers of ranks (ndp_segments.align): no block of codes is in two slices. */
int64_t ndp_update_align(const ndp_optimizer_opts *o);
/* The constants of update number `update` (from 0), a row for each group. */
void ndp_update_constants(const ndp_update_groups *g, double lr, int64_t update, double *out);

/* ---- tables of pieces (ops/pieces.h) ---- */

static inline int ndp_piece_columns(const ndp_update_groups *g) {
    return g->rounds ? NDP_PIECE_COLUMNS_ROUNDED : g->n_used > 1 ? NDP_PIECE_COLUMNS_PLACED : NDP_PIECE_COLUMNS;
}
/* Pieces of slice `index` of `shards`: all (0: the slice is padding), and those of each optimizer in `used`. `kept`:
 * the elements that have a state k in numbers; `blocks`: of codes. */
typedef struct ndp_piece_counts {
    int64_t all, of[NDP_OPTIMIZER_COUNT], kept[NDP_OPTIMIZER_STATES], blocks;
} ndp_piece_counts;
ndp_piece_counts ndp_pieces_count(const ndp_update_groups *g, const ndp_segments *s, int shards, int index);
/* Fills the table, as many rows of ndp_piece_columns(g) without gaps. */
void ndp_pieces_fill(const ndp_update_groups *g, const ndp_segments *s, int shards, int index, int64_t *out);
/* Where element `element` of the slice is in a short state; of a coded tensor, its block among the scales. */
int64_t ndp_pieces_place(const ndp_update_groups *g, const ndp_segments *s, int shards, int index, int64_t element);

#endif
