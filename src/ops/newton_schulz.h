/* newton_schulz: an iteration that makes a matrix nearly orthogonal, without its singular value decomposition (Muon,
 * Jordan et al. 2024). X / |X| has singular values of at most 1; each step takes them through an odd polynomial that
 * moves those above about 1e-3 to between 0.7 and 1.2:
 *
 *     X' = a X + (b A + c A^2) X, A = X X^T        for a tall X: X' = a X + X (b A + c A^2), A = X^T X
 *
 * The result is scaled to a root mean square of 0.2 an element, which is about that of AdamW's updates.
 *
 * The spectral form (attr.spectral) has a polynomial for each step, which take all singular values nearer to 1
 * (github.com/microsoft/dion), and is scaled by sqrt(rows / cols), so that an update changes what a matrix makes of its
 * inputs by as much whatever its size (arXiv:2310.17813). */
#ifndef NDP_OPS_NEWTON_SCHULZ_H
#define NDP_OPS_NEWTON_SCHULZ_H

#include "ops/shape.h"

#include <math.h>

enum { NDP_NEWTON_SCHULZ_STEPS = 5 };

/* a, b and c of a step. */
typedef struct ndp_polynomial {
    double a, b, c;
} ndp_polynomial;
static inline ndp_polynomial ndp_newton_schulz_polynomial(const ndp_op_attr *attr, int step) {
    static const ndp_polynomial spectral[NDP_NEWTON_SCHULZ_STEPS] = {{4.0848, -6.8946, 2.9270},
                                                                     {3.9505, -6.3029, 2.6377},
                                                                     {3.7418, -5.5913, 2.3037},
                                                                     {2.8769, -3.1427, 1.2046},
                                                                     {2.8366, -3.0525, 1.2012}},
                                every = {3.4445, -4.7750, 2.0315};
    return attr->spectral ? spectral[step] : every;
}

/* The factor that norms X, given the sum of its squares. */
static inline double ndp_newton_schulz_start(double squares) { return 1 / fmax(sqrt(squares), 1e-7); }

/* The factor of step `step`: the last one also scales. */
static inline double ndp_newton_schulz_scale(const ndp_op_attr *attr, int step, const ndp_view *x) {
    double rows = (double)x->rows, cols = (double)x->cols;
    return step < NDP_NEWTON_SCHULZ_STEPS - 1 ? 1 : attr->spectral ? sqrt(rows / cols) : 0.2 * sqrt(fmax(rows, cols));
}

static inline int64_t ndp_newton_schulz_smaller(const ndp_view *x) { return x->rows < x->cols ? x->rows : x->cols; }

#endif
