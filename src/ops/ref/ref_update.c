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

/* The mean of the gradients, one step ahead (Nesterov's) or not. */
static double muon_momentum(const double *k, double g, double direction, double *s) {
    (void)direction;
    s[0] = flush(s[0] + (1 - k[NDP_MUON_MOMENTUM]) * (g - s[0]));
    return g + k[NDP_MUON_AHEAD] * (s[0] - g);
}

static double muon(const double *k, double g, double w, double *s) {
    (void)s;
    return w * k[NDP_MUON_KEEP] - k[NDP_MUON_LR] * g;
}

/* ---- how weights and states are kept ---- */

/* The numbers of one element of a piece. */
typedef struct kept_element {
    const ndp_op_call *c;
    int64_t at; /* in the slice */
    bool rounds;
    philox4x32_ctr_t words;
} kept_element;

static kept_element kept_of(const ndp_op_call *c, const int64_t *piece, int64_t i) {
    kept_element e = {.c = c, .at = piece[NDP_PIECE_FIRST] + i};
    e.rounds = c->in[NDP_UPDATE_PIECES].cols == NDP_PIECE_COLUMNS_ROUNDED;
    if (e.rounds) {
        ndp_rounding r = ndp_piece_rounding(c->in[NDP_UPDATE_CONSTANTS].data, piece);
        e.words = ndp_rounding_words(&r, i);
    }
    return e;
}

static void set_rounded(const kept_element *e, const ndp_view *v, int64_t at, int word, double x) {
    if (v->dtype == NDP_BF16 && e->rounds)
        ((uint16_t *)v->data)[at] = ndp_round_random((float)x, e->words.v[word]);
    else
        ndp_view_set(v, 0, at, x);
}

static double weight_of(const kept_element *e) {
    const ndp_view *w = &e->c->in[NDP_UPDATE_WEIGHT];
    if (w->dtype != NDP_SPLIT_REST)
        return ndp_view_get(w, 0, e->at);
    return (double)ndp_split_join(((uint16_t *)e->c->out[1].data)[e->at], ((uint16_t *)w->data)[e->at]);
}

static void set_weight(const kept_element *e, double w) {
    const ndp_view *out = &e->c->out[0], *copy = &e->c->out[1];
    if (out->dtype == NDP_SPLIT_REST) {
        uint16_t high = ndp_split_high((float)w);
        ((uint16_t *)copy->data)[e->at] = high;
        ((uint16_t *)out->data)[e->at] = ndp_split_rest((float)w, high);
        return;
    }
    set_rounded(e, out, e->at, NDP_ROUNDING_WEIGHT, w);
    if (ndp_present(copy))
        ndp_view_set(copy, 0, e->at, w);
}

/* ---- updates ---- */

static void update_element(const ndp_op_call *c, const int64_t *piece, int64_t i, ref_update_element *element) {
    const kept_element e = kept_of(c, piece, i);
    const ndp_view *state = &c->in[NDP_UPDATE_STATE], *clip = &c->in[NDP_UPDATE_CLIP];
    int64_t place[NDP_OPTIMIZER_STATES];
    bool clips = ndp_present(clip) && element != muon; /* Muon's directions are clipped already */
    double s[NDP_OPTIMIZER_STATES] = {0}, factor = clips ? *(const double *)clip->data : 1;
    for (int j = 0; j < NDP_OPTIMIZER_STATES; j++) {
        place[j] = ndp_piece_place(&c->in[NDP_UPDATE_PIECES], piece, &state[j], c->in[NDP_UPDATE_WEIGHT].cols) + i;
        s[j] = ndp_present(&state[j]) ? ndp_view_get(&state[j], 0, place[j]) : 0;
    }
    double w = element(ndp_piece_constants(c->in[NDP_UPDATE_CONSTANTS].data, piece),
                       ndp_view_get(&c->in[NDP_UPDATE_GRAD], 0, e.at) * factor, weight_of(&e), s);
    set_weight(&e, w);
    for (int j = 0; j < NDP_OPTIMIZER_STATES; j++)
        if (ndp_present(&state[j]))
            set_rounded(&e, &state[j], place[j], NDP_ROUNDING_STATE + j, s[j]);
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
        const kept_element e = kept_of(c, piece, b->first + i - piece[NDP_PIECE_FIRST]);
        double moments[] = {s[0][i], s[1][i]};
        double w = adamw(ndp_piece_constants(c->in[NDP_UPDATE_CONSTANTS].data, piece),
                         ndp_view_get(&c->in[NDP_UPDATE_GRAD], 0, e.at) * factor, weight_of(&e), moments);
        set_weight(&e, w);
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
