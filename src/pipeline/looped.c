/* The schedules whose stages are in a loop: gpipe, 1f1b, interleaved, zero_bubble. They differ in two numbers.
 *
 * A rank runs its chunks' forwards in one sequence, which is the same on every rank, and their backwards in the
 * sequence with the chunks reversed. `ahead` forwards come first; then one forward and one backward in turn, then the
 * remaining backwards. With weight gradients apart, each comes `lag` input gradients after its own.
 *
 *     gpipe        ahead: all
 *     1f1b         ahead: p-1-i on rank i, so rank i holds p-i micro-batches and the last rank is never ahead
 *     interleaved  ahead: (v-1) g + 2 (p-1-i)    g: the micro-batches of a group, see chunk_of
 *     zero_bubble  ahead: (v-1) g + p-1-i, lag: i
 *
 * In zero_bubble rank i holds i micro-batches fewer than rank 0 and has i weight gradients pending instead. At the end
 * the last rank has p of them left, which it runs while the input gradients travel to rank 0: with W <= F the bubble is
 * (p-1)(F+I-W)/v. */
#include "pipeline/row.h"

/* The sequence runs group by group, in a group chunk by chunk, in a chunk micro-batch by micro-batch. Groups have at
 * least as many micro-batches as ranks, if there are as many: with fewer, chunk c+1 would wait for the last rank's
 * chunk c. They are as equal as possible, the larger ones first: the first decides `ahead`. */
static int largest_group(const ndp_row_writer *w) {
    int groups = w->micro_batches / w->ranks;
    return groups ? (w->micro_batches + groups - 1) / groups : w->micro_batches;
}

/* The chunk of the n-th action of the sequence. */
static int chunk_of(const ndp_row_writer *w, int n) {
    int large = largest_group(w), groups = w->micro_batches / w->ranks;
    int n_large = groups && w->micro_batches % groups ? w->micro_batches % groups : groups;
    int in_large = n_large * large * w->chunks;
    if (!groups || n < in_large)
        return n / large % w->chunks;
    return (n - in_large) / (large - 1) % w->chunks;
}

static int smaller(int a, int b) { return a < b ? a : b; }

static void write_row(ndp_row_writer *w, int ahead, ndp_action backward, int lag) {
    int all = w->chunks * w->micro_batches, last = w->chunks - 1;
    ahead = smaller(ahead, all);
    for (int n = 0; n < all + ahead + lag; n++) {
        if (n < all)
            ndp_row_add(w, chunk_of(w, n), NDP_ACTION_FORWARD);
        if (n >= ahead && n < all + ahead)
            ndp_row_add(w, last - chunk_of(w, n - ahead), backward);
        if (backward == NDP_ACTION_INPUT_GRADIENT && n >= ahead + lag)
            ndp_row_add(w, last - chunk_of(w, n - ahead - lag), NDP_ACTION_WEIGHT_GRADIENT);
    }
}

void ndp_row_gpipe(ndp_row_writer *w) { write_row(w, w->micro_batches, NDP_ACTION_BACKWARD, 0); }

void ndp_row_1f1b(ndp_row_writer *w) { write_row(w, w->ranks - 1 - w->rank, NDP_ACTION_BACKWARD, 0); }

void ndp_row_interleaved(ndp_row_writer *w) {
    write_row(w, (w->chunks - 1) * largest_group(w) + 2 * (w->ranks - 1 - w->rank), NDP_ACTION_BACKWARD, 0);
}

void ndp_row_zero_bubble(ndp_row_writer *w) {
    int ahead = (w->chunks - 1) * largest_group(w) + w->ranks - 1 - w->rank;
    write_row(w, ahead, NDP_ACTION_INPUT_GRADIENT, w->rank);
}
