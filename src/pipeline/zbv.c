/* ZB-V (arXiv:2401.10241, section 6, and arXiv:2405.15362): zero bubble with two stages on each rank, in a V. Local
 * stage 0 of rank i is stage i, local stage 1 is stage 2p-1-i, so the last rank has both stages of the turn, and rank 0
 * the first and the last stage.
 *
 * With forward, input and weight gradient of equal length no rank is idle between its first action and its last; rank i
 * starts i forwards of a stage after rank 0. A rank holds p micro-batches. The form is for at least 2p-1 of them. */
#include "pipeline/row.h"

static void add_gradients(ndp_row_writer *w, int local) {
    ndp_row_add(w, local, NDP_ACTION_INPUT_GRADIENT);
    ndp_row_add(w, local, NDP_ACTION_WEIGHT_GRADIENT);
}

static void add_times(ndp_row_writer *w, int times, int local, ndp_action action) {
    for (int n = 0; n < times; n++)
        ndp_row_add(w, local, action);
}

void ndp_row_zbv(ndp_row_writer *w) {
    int p = w->ranks, i = w->rank, full = 2 * p - 1, all = w->micro_batches > full ? w->micro_batches : full;
    add_times(w, 2 * (p - i) - 1, 0, NDP_ACTION_FORWARD);
    for (int n = 0; n < i; n++) {
        ndp_row_add(w, 1, NDP_ACTION_FORWARD);
        ndp_row_add(w, 0, NDP_ACTION_FORWARD);
    }
    for (int n = 0; n < p - i; n++) {
        ndp_row_add(w, 1, NDP_ACTION_FORWARD);
        add_gradients(w, 1);
    }
    for (int n = 0; n < all - p; n++) { /* the steady state; of local stage 0's forwards 2p-1-i have been written */
        if (n < all - (full - i))
            ndp_row_add(w, 0, NDP_ACTION_FORWARD);
        add_gradients(w, 0);
        ndp_row_add(w, 1, NDP_ACTION_FORWARD);
        add_gradients(w, 1);
    }
    for (int n = 0; n < i; n++) {
        ndp_row_add(w, 0, NDP_ACTION_INPUT_GRADIENT);
        ndp_row_add(w, 1, NDP_ACTION_INPUT_GRADIENT);
    }
    for (int n = 0; n < p - i; n++)
        add_gradients(w, 0);
    add_times(w, i, 1, NDP_ACTION_WEIGHT_GRADIENT);
    add_times(w, i, 0, NDP_ACTION_WEIGHT_GRADIENT);
}
