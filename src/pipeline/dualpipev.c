/* DualPipeV (DeepSeek, github.com/deepseek-ai/DualPipe): stages in a V as in zbv.c. In the steady state a rank runs the
 * forward of one local stage in a pair with the backward of the other, so that each hides the communication of the
 * other.
 *
 * Weight gradients are apart only where they fill bubbles: at the start, after the first input gradients of local stage
 * 1, and at the end, where the last rank has p of them left. With W <= F the bubble is (p-1)(F+I-W)/2. If (p-1) I > p
 * F, it is ((p-1) I - p F)/2 longer: the last rank has memory for 2p+1 forwards, and the first input gradient reaches
 * it later than it has run these. The form is for at least 2p micro-batches. */
#include "pipeline/row.h"

void ndp_row_dualpipev(ndp_row_writer *w) {
    const ndp_action F = NDP_ACTION_FORWARD, B = NDP_ACTION_BACKWARD, I = NDP_ACTION_INPUT_GRADIENT,
                     W = NDP_ACTION_WEIGHT_GRADIENT;
    int p = w->ranks, i = w->rank, after = p - 1 - i, all = w->micro_batches > 2 * p ? w->micro_batches : 2 * p;
    for (int n = 0; n < 2 * after; n++)
        ndp_row_add(w, 0, F);
    for (int n = 0; n <= i; n++) {
        ndp_row_add(w, 0, F);
        ndp_row_add(w, 1, F);
    }
    for (int n = 0; n < after; n++) {
        ndp_row_add(w, 1, I);
        ndp_row_add(w, 1, W);
        ndp_row_add(w, 1, F);
    }
    for (int n = 0; n < all - 2 * p + i + 1; n++) {
        if (n == 0 && after == 0) { /* overlapped, the first backward of all would be late for the other ranks */
            ndp_row_add(w, 0, F);
            ndp_row_add(w, 1, B);
        } else {
            ndp_row_add_pair(w, 0, 1);
        }
        ndp_row_add_pair(w, 1, 0);
    }
    for (int n = 0; n < after; n++) {
        ndp_row_add(w, 1, B);
        ndp_row_add_pair(w, 1, 0);
    }
    /* The remaining backwards, of local stages 1 and 0 in turn: the second half as input gradients. Then those of local
     * stage 0, each after a weight gradient of the half, and the rest of the weight gradients, in the order of their
     * input gradients. */
    for (int n = 0; n < 2 * (i + 1); n++)
        ndp_row_add(w, 1 - n % 2, n <= i ? B : I);
    for (int n = 0; n < p; n++) {
        ndp_row_add(w, n <= i ? 1 - (n + i + 1) % 2 : 0, W);
        if (n < after)
            ndp_row_add(w, 0, I);
    }
}
