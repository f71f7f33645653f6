/* adamw, adamw8bit, sgd, lion, muon, muon_momentum. */
#include "ops/pieces.h"
#include "ops/ref/ref_kernels.h"
#include "ops/update.h"

#include <math.h>

/* One element of an update: g the clipped gradient, w and s[] in and out. */
typedef double ref_update_element(const double *k, double g, double w, double *s);

static double flush(double x) { return x < NDP_TINY_MOMENT && x > -NDP_TINY_MOMENT ? 0 : x; }

static double adamw(const double *k, double g, double w, double *s) {
    s[0] = flush(s[0] + k[NDP_ADAMW_NEW1] * (g - s[0]));
    s[1] = flush(k[NDP_ADAMW_OLD2] * s[1] + (1 - k[NDP_ADAMW_OLD2]) * (g * g));
    return w * k[NDP_ADAMW_KEEP] - k[NDP_ADAMW_RATE] * (s[0] / (sqrt(s[1]) * k[NDP_ADAMW_UNBIAS] + k[NDP_ADAMW_EPS]));
}

/* The momentum buffer starts as zeros, which makes the first step b = g. */
static double sgd(const double *k, double g, double w, double *s) {
    double d = g + k[NDP_SGD_DECAY] * w;
    if (k[NDP_SGD_MOMENTUM] != 0)
        s[0] = d = flush(k[NDP_SGD_MOMENTUM] * s[0] + d);
    return w - k[NDP_SGD_LR] * d;
}

/* The sign of a broken gradient is NaN, not 0. */
static double lion(const double *k, double g, double w, double *s) {
    double c = k[NDP_LION_OLD1] * s[0] + k[NDP_LION_NEW1] * g;
    double sign = c > 0 ? 1 : c < 0 ? -1 : c;
    s[0] = flush(k[NDP_LION_OLD2] * s[0] + k[NDP_LION_NEW2] * g);
    return w * k[NDP_LION_KEEP] - k[NDP_LION_LR] * sign;
}

/* Nesterov's: the mean of the gradients, one step ahead. */
static double muon_momentum(const double *k, double g, double direction, double *s) {
    (void)direction;
    s[0] = flush(s[0] + (1 - k[NDP_MUON_MOMENTUM]) * (g - s[0]));
    return g + k[NDP_MUON_MOMENTUM] * (s[0] - g);
}

static double muon(const double *k, double g, double w, double *s) {
    (void)s;
    return w * k[NDP_MUON_KEEP] - k[NDP_MUON_LR] * g;
}

static void update_element(const ndp_op_call *c, const int64_t *piece, int64_t i, ref_update_element *element) {
    const ndp_view *state = &c->in[NDP_UPDATE_STATE], *clip = &c->in[NDP_UPDATE_CLIP];
    int64_t at = piece[NDP_PIECE_FIRST] + i, place[NDP_OPTIMIZER_STATES];
    bool clips = ndp_present(clip) && element != muon; /* Muon's directions are clipped already */
    double s[NDP_OPTIMIZER_STATES] = {0}, factor = clips ? *(const double *)clip->data : 1;
    for (int j = 0; j < NDP_OPTIMIZER_STATES; j++) {
        place[j] = ndp_piece_place(&c->in[NDP_UPDATE_PIECES], piece, &state[j], c->in[NDP_UPDATE_WEIGHT].cols) + i;
        s[j] = ndp_present(&state[j]) ? ndp_view_get(&state[j], 0, place[j]) : 0;
    }
    double w = element(ndp_piece_constants(c->in[NDP_UPDATE_CONSTANTS].data, piece),
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

/* ---- states as codes ---- */

/* Elements [first, first + n) of a slice: one block. */
typedef struct coded_block {
    int64_t first, scale; /* scale: its place among the scales */
    int n;
} coded_block;

static void decode(const ndp_op_call *c, const coded_block *b, int state, double *out) {
    double scale = ndp_view_get(&c->in[NDP_UPDATE_SCALES + state], 0, b->scale);
    for (int i = 0; i < b->n; i++) {
        int code = (int)ndp_view_get(&c->in[NDP_UPDATE_STATE + state], 0, b->first + i);
        out[i] = scale * (double)ndp_dynamic_value(state == 0, code);
    }
}

static int nearest(const float *values, double x) {
    int low = 0, high = NDP_CODES - 1;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        *(values[middle] <= x ? &low : &high) = middle;
    }
    return 2 * x > (double)values[low] + (double)values[high] ? high : low;
}

static void encode(const ndp_op_call *c, const coded_block *b, int state, const float *values, const double *x) {
    double scale = 0;
    for (int i = 0; i < b->n; i++)
        scale = fabs(x[i]) > scale ? fabs(x[i]) : scale;
    scale *= (double)ndp_code_margin(c->exec);
    ndp_view_set(&c->in[NDP_UPDATE_SCALES + state], 0, b->scale, scale);
    for (int i = 0; i < b->n; i++)
        ndp_view_set(&c->in[NDP_UPDATE_STATE + state], 0, b->first + i, nearest(values, scale > 0 ? x[i] / scale : 0));
}

static void update_block(const ndp_op_call *c, const int64_t *piece, const coded_block *b,
                         const ndp_dynamic_map *maps) {
    double s[NDP_OPTIMIZER_STATES][NDP_CODE_BLOCK], factor = 1;
    if (ndp_present(&c->in[NDP_UPDATE_CLIP]))
        factor = *(const double *)c->in[NDP_UPDATE_CLIP].data;
    for (int j = 0; j < NDP_OPTIMIZER_STATES; j++)
        decode(c, b, j, s[j]);
    for (int i = 0; i < b->n; i++) {
        double moments[] = {s[0][i], s[1][i]};
        double w = adamw(ndp_piece_constants(c->in[NDP_UPDATE_CONSTANTS].data, piece),
                         ndp_view_get(&c->in[NDP_UPDATE_GRAD], 0, b->first + i) * factor,
                         ndp_view_get(&c->in[NDP_UPDATE_WEIGHT], 0, b->first + i), moments);
        ndp_view_set(&c->out[0], 0, b->first + i, w);
        if (ndp_present(&c->out[1]))
            ndp_view_set(&c->out[1], 0, b->first + i, w);
        s[0][i] = moments[0], s[1][i] = moments[1];
    }
    for (int j = 0; j < NDP_OPTIMIZER_STATES; j++)
        encode(c, b, j, maps[j].values, s[j]);
}

static ndp_status run_adamw8bit(const ndp_op_call *c) {
    ndp_dynamic_map maps[NDP_OPTIMIZER_STATES];
    ndp_dynamic_fill(true, &maps[0]);
    ndp_dynamic_fill(false, &maps[1]);
    for (int64_t p = 0; ndp_update_applies(c) && p < c->in[NDP_UPDATE_PIECES].rows; p++) {
        const int64_t *piece = ndp_piece_at(&c->in[NDP_UPDATE_PIECES], p);
        coded_block b = {.first = piece[NDP_PIECE_FIRST], .scale = piece[NDP_PIECE_PLACE]};
        for (int64_t end = b.first + piece[NDP_PIECE_COUNT]; b.first < end; b.first += b.n, b.scale++) {
            int64_t last = (b.first / NDP_CODE_BLOCK + 1) * NDP_CODE_BLOCK;
            b.n = (int)((last < end ? last : end) - b.first);
            update_block(c, piece, &b, maps);
        }
    }
    return NDP_OK;
}

const ndp_kernel ndp_ref_adamw8bit = {.run = run_adamw8bit};

#define UPDATE(op)                                                                                                     \
    static ndp_status run_##op(const ndp_op_call *c) { return run_update(c, op); }                                     \
    const ndp_kernel ndp_ref_##op = {.run = run_##op};

UPDATE(adamw)
UPDATE(sgd)
UPDATE(lion)
UPDATE(muon)
UPDATE(muon_momentum)
