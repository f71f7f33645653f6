/* The schedules whose stages are in a loop: gpipe, 1f1b, interleaved, zero_bubble. They differ in two numbers.
 *
 * A rank runs the forwards of its local stages in one sequence, which is the same on every rank, and the backwards in
 * the same sequence with the local stages in reverse. `ahead` forwards come first; then one forward and one backward in
 * turn, then the remaining backwards. With weight gradients apart, the one of an input gradient comes `lag` input
 * gradients later.
 *
 *     gpipe        ahead: all
 *     1f1b         ahead: p-1-i on rank i, so rank i holds p-i micro-batches
 *     interleaved  ahead: (v-1) g + 2 (p-1-i)    g: the micro-batches of a group, see local_stage_of
 *     zero_bubble  ahead: (v-1) g + p-1-i, lag: i
 *
 * In zero_bubble rank i holds i micro-batches fewer than rank 0, and has i weight gradients pending instead. At the end
 * the last rank has p of them left, which it runs while the input gradients travel to rank 0: with W <= F the bubble is
 * (p-1)(F+I-W)/v. */
#include "pipeline/row.h"

/* The sequence runs group by group, in a group local stage by local stage, in each of these micro-batch by micro-batch.
 * A group has at least as many micro-batches as there are ranks, if there are so many: in a smaller one, a rank's next
 * local stage would wait for the last rank. Groups are as equal as possible, the larger ones first, since the first
 * decides `ahead`. */
static int groups_of(const ndp_row_writer *w) {
    int groups = w->micro_batches / w->ranks;
    return groups ? groups : 1;
}

static int largest_group(const ndp_row_writer *w) {
    int groups = groups_of(w);
    return (w->micro_batches + groups - 1) / groups;
}

/* The local stage of the n-th forward. */
static int local_stage_of(const ndp_row_writer *w, int n) {
    int groups = groups_of(w), small = w->micro_batches / groups, n_larger = w->micro_batches % groups;
    int in_larger = n_larger * (small + 1) * w->local_stages;
    return (n < in_larger ? n / (small + 1) : (n - in_larger) / small) % w->local_stages;
}

static int smaller(int a, int b) { return a < b ? a : b; }

static void write_row(ndp_row_writer *w, int ahead, ndp_action backward, int lag) {
    int all = w->local_stages * w->micro_batches, last = w->local_stages - 1;
    ahead = smaller(ahead, all);
    for (int n = 0; n < all + ahead + lag; n++) {
        if (n < all)
            ndp_row_add(w, local_stage_of(w, n), NDP_ACTION_FORWARD);
        if (n >= ahead && n < all + ahead)
            ndp_row_add(w, last - local_stage_of(w, n - ahead), backward);
        if (backward == NDP_ACTION_INPUT_GRADIENT && n >= ahead + lag)
            ndp_row_add(w, last - local_stage_of(w, n - ahead - lag), NDP_ACTION_WEIGHT_GRADIENT);
    }
}

void ndp_row_gpipe(ndp_row_writer *w) { write_row(w, w->micro_batches, NDP_ACTION_BACKWARD, 0); }

void ndp_row_1f1b(ndp_row_writer *w) { write_row(w, w->ranks - 1 - w->rank, NDP_ACTION_BACKWARD, 0); }

void ndp_row_interleaved(ndp_row_writer *w) {
    write_row(w, (w->local_stages - 1) * largest_group(w) + 2 * (w->ranks - 1 - w->rank), NDP_ACTION_BACKWARD, 0);
}

void ndp_row_zero_bubble(ndp_row_writer *w) {
    int ahead = (w->local_stages - 1) * largest_group(w) + w->ranks - 1 - w->rank;
    write_row(w, ahead, NDP_ACTION_INPUT_GRADIENT, w->rank);
}
