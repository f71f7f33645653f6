/* adamw, sgd, lion, muon, muon_momentum. */
#include "ops/pieces.h"
#include "ops/ref/ref_kernels.h"
#include "ops/update.h"

#include <math.h>

/* One element of an update: g the clipped gradient, w and s[] in and out. */
typedef double ref_update_element(const double *k, bool decays, double g, double w, double *s);

static double flush(double x) { return x < NDP_TINY_MOMENT && x > -NDP_TINY_MOMENT ? 0 : x; }

static double adamw(const double *k, bool decays, double g, double w, double *s) {
    double keep = decays ? k[NDP_ADAMW_KEEP] : 1;
    s[0] = flush(s[0] + k[NDP_ADAMW_NEW1] * (g - s[0]));
    s[1] = flush(k[NDP_ADAMW_OLD2] * s[1] + (1 - k[NDP_ADAMW_OLD2]) * (g * g));
    return w * keep - k[NDP_ADAMW_RATE] * (s[0] / (sqrt(s[1]) * k[NDP_ADAMW_UNBIAS] + k[NDP_ADAMW_EPS]));
}

/* The momentum buffer starts as zeros, which makes the first step b = g. */
static double sgd(const double *k, bool decays, double g, double w, double *s) {
    double d = g + (decays ? k[NDP_SGD_DECAY] : 0) * w;
    if (k[NDP_SGD_MOMENTUM] != 0)
        s[0] = d = flush(k[NDP_SGD_MOMENTUM] * s[0] + d);
    return w - k[NDP_SGD_LR] * d;
}

/* The sign of a broken gradient is NaN, not 0. */
static double lion(const double *k, bool decays, double g, double w, double *s) {
    double keep = decays ? k[NDP_LION_KEEP] : 1, c = k[NDP_LION_OLD1] * s[0] + k[NDP_LION_NEW1] * g;
    double sign = c > 0 ? 1 : c < 0 ? -1 : c;
    s[0] = flush(k[NDP_LION_OLD2] * s[0] + k[NDP_LION_NEW2] * g);
    return w * keep - k[NDP_LION_LR] * sign;
}

/* Nesterov's: the mean of the gradients, one step ahead. */
static double muon_momentum(const double *k, bool decays, double g, double direction, double *s) {
    (void)decays, (void)direction;
    s[0] = flush(s[0] + (1 - k[NDP_MUON_MOMENTUM]) * (g - s[0]));
    return g + k[NDP_MUON_MOMENTUM] * (s[0] - g);
}

static double muon(const double *k, bool decays, double g, double w, double *s) {
    (void)s;
    return w * (decays ? k[NDP_MUON_KEEP] : 1) - k[NDP_MUON_LR] * g;
}

static void update_element(const ndp_op_call *c, const int64_t *piece, int64_t i, ref_update_element *element) {
    const ndp_view *state = &c->in[NDP_UPDATE_STATE], *clip = &c->in[NDP_UPDATE_CLIP];
    int64_t at = piece[NDP_PIECE_FIRST] + i, place[NDP_OPTIMIZER_STATES];
    bool clips = ndp_present(clip) && element != muon; /* Muon's directions are clipped already */
    double s[NDP_OPTIMIZER_STATES] = {0}, factor = clips ? *(const double *)clip->data : 1;
    for (int j = 0; j < NDP_OPTIMIZER_STATES; j++) {
        place[j] = ndp_piece_place(&c->in[NDP_UPDATE_PIECES], piece, j) + i;
        s[j] = ndp_present(&state[j]) ? ndp_view_get(&state[j], 0, place[j]) : 0;
    }
    double w = element(c->in[NDP_UPDATE_CONSTANTS].data, piece[NDP_PIECE_DECAYS],
                       ndp_view_get(&c->in[NDP_UPDATE_GRAD], 0, at) * factor,
                       ndp_view_get(&c->in[NDP_UPDATE_WEIGHT], 0, at), s);
    ndp_view_set(&c->out[0], 0, at, w);
    if (ndp_present(&c->out[1]))
        ndp_view_set(&c->out[1], 0, at, w);
    for (int j = 0; j < NDP_OPTIMIZER_STATES; j++)
        if (ndp_present(&state[j]))
            ndp_view_set(&state[j], 0, place[j], s[j]);
}

static ndp_status run_update(const ndp_op_call *c, ref_update_element *element) {
    for (int64_t p = 0; ndp_update_applies(c) && p < c->in[NDP_UPDATE_PIECES].rows; p++) {
        const int64_t *piece = ndp_piece_at(&c->in[NDP_UPDATE_PIECES], p);
        for (int64_t i = 0; i < piece[NDP_PIECE_COUNT]; i++)
            update_element(c, piece, i, element);
    }
    return NDP_OK;
}

#define UPDATE(op)                                                                                                     \
    static ndp_status run_##op(const ndp_op_call *c) { return run_update(c, op); }                                     \
    const ndp_kernel ndp_ref_##op = {.run = run_##op};

UPDATE(adamw)
UPDATE(sgd)
UPDATE(lion)
UPDATE(muon)
UPDATE(muon_momentum)
