/* newton_schulz: an iteration that makes a matrix nearly orthogonal, without its singular value decomposition (Muon,
 * Jordan et al. 2024). X / |X| has singular values of at most 1; each step takes them through an odd polynomial that
 * moves those above about 1e-3 to between 0.7 and 1.2:
 *
 *     X' = a X + (b A + c A^2) X, A = X X^T        for a tall X: X' = a X + X (b A + c A^2), A = X^T X
 *
 * The result is scaled to a root mean square of 0.2 an element, which is about that of AdamW's updates. */
#ifndef NDP_OPS_NEWTON_SCHULZ_H
#define NDP_OPS_NEWTON_SCHULZ_H

#include "ops/shape.h"

#include <math.h>

enum { NDP_NEWTON_SCHULZ_STEPS = 5 };
#define NDP_NEWTON_SCHULZ_A 3.4445
#define NDP_NEWTON_SCHULZ_B (-4.7750)
#define NDP_NEWTON_SCHULZ_C 2.0315

/* The factor that norms X, given the sum of its squares. */
static inline double ndp_newton_schulz_start(double squares) { return 1 / fmax(sqrt(squares), 1e-7); }

/* The factor of step `step`: the last one also scales. */
static inline double ndp_newton_schulz_scale(int step, const ndp_view *x) {
    return step < NDP_NEWTON_SCHULZ_STEPS - 1 ? 1 : 0.2 * sqrt((double)(x->rows > x->cols ? x->rows : x->cols));
}

static inline int64_t ndp_newton_schulz_smaller(const ndp_view *x) { return x->rows < x->cols ? x->rows : x->cols; }

#endif
