/* conv_step, delta_step. Threads share columns, or heads: rows follow each other. */
#include "ops/cpu/cpu_kernels.h"
#include "ops/delta_rule.h"

#include <math.h>
#include <string.h>

static float get(const ndp_view *v, int64_t t, int64_t i) {
    return v->dtype == NDP_F32 ? ((const float *)v->data)[t * v->ld + i]
                               : ndp_bf16_to_f32(((const uint16_t *)v->data)[t * v->ld + i]);
}

static void set(const ndp_view *v, int64_t t, int64_t i, float x) {
    if (v->dtype == NDP_F32)
        ((float *)v->data)[t * v->ld + i] = x;
    else
        ((uint16_t *)v->data)[t * v->ld + i] = ndp_f32_to_bf16(x);
}

static int team(const ndp_op_call *c, int64_t work) {
    enum { LEAST = 1 << 14 }; /* elements that are worth a thread */
    int64_t most = work / LEAST;
    return c->exec->threads > 1 && most > 1 ? c->exec->threads : 1;
}

/* ---- conv_step ---- */

static void conv_column(const ndp_op_call *c, int64_t i) {
    const ndp_view *tail = &c->in[0], *x = &c->in[1], *w = &c->in[2];
    int64_t taps = w->cols, cols = x->cols;
    for (int64_t t = 0; t < x->rows; t++) {
        int64_t text = ndp_text_of(c->attr, &c->in[3], t);
        bool first = ndp_int_at(&c->in[3], t) == ndp_int_at(&c->in[4], t);
        float before[NDP_MAX_TAPS], u = 0;
        for (int64_t j = 0; j < taps && text >= 0; j++) {
            before[j] = j == 0 ? get(x, t, i) : first ? 0 : get(tail, text, (j - 1) * cols + i);
            u += get(w, i, taps - 1 - j) * before[j];
        }
        for (int64_t j = 0; j + 1 < taps && text >= 0; j++)
            set(tail, text, j * cols + i, before[j]);
        set(&c->out[1], t, i, u / (1 + expf(-u)));
    }
}

static ndp_status run_conv_step(const ndp_op_call *c) {
    int64_t cols = c->in[1].cols;
#pragma omp parallel for num_threads(team(c, cols * c->in[1].rows)) schedule(static)
    for (int64_t i = 0; i < cols; i++)
        conv_column(c, i);
    return NDP_OK;
}
const ndp_kernel ndp_cpu_conv_step = {.run = run_conv_step};

/* ---- delta_step ---- */

/* `n` columns of a key head, as a vector of length `by`. */
static void load_unit(const ndp_view *x, int64_t t, int64_t col, int64_t n, float by, float *to) {
    float sum = (float)NDP_DELTA_EPS;
    for (int64_t i = 0; i < n; i++)
        to[i] = get(x, t, col + i), sum += to[i] * to[i];
    for (int64_t i = 0; i < n; i++)
        to[i] *= by / sqrtf(sum);
}

/* The state s [D,E] of a head after one row. room: 2 D + 2 E numbers. */
static void step(const ndp_op_call *c, int64_t t, int64_t h, float *s, float *room) {
    int64_t d = c->attr->head_dim, e = ndp_v_dim(c->attr), key = h / ndp_delta_group(c->attr) * d;
    float *q = room, *k = q + d, *missing = k + d, *o = missing + e;
    float decay = expf(get(&c->in[4], t, h)), beta = 1 / (1 + expf(-get(&c->in[5], t, h)));
    load_unit(&c->in[1], t, key, d, 1 / sqrtf((float)d), q);
    load_unit(&c->in[2], t, key, d, 1, k);
    memset(missing, 0, (size_t)(2 * e) * sizeof *missing);
    for (int64_t i = 0; i < d; i++)
#pragma omp simd
        for (int64_t j = 0; j < e; j++)
            missing[j] += k[i] * s[i * e + j];
    for (int64_t j = 0; j < e; j++)
        missing[j] = beta * (get(&c->in[3], t, h * e + j) - decay * missing[j]);
    for (int64_t i = 0; i < d; i++)
#pragma omp simd
        for (int64_t j = 0; j < e; j++) {
            s[i * e + j] = decay * s[i * e + j] + k[i] * missing[j];
            o[j] += q[i] * s[i * e + j];
        }
    for (int64_t j = 0; j < e; j++)
        set(&c->out[1], t, h * e + j, o[j]);
}

static void delta_head(const ndp_op_call *c, int64_t h, float *room) {
    int64_t d = c->attr->head_dim, e = ndp_v_dim(c->attr);
    for (int64_t t = 0; t < c->in[1].rows; t++) {
        int64_t text = ndp_text_of(c->attr, &c->in[6], t);
        for (int64_t j = 0; text < 0 && j < e; j++)
            set(&c->out[1], t, h * e + j, 0);
        if (text < 0)
            continue;
        float *s = (float *)c->in[0].data + text * c->in[0].ld + h * d * e;
        if (ndp_int_at(&c->in[6], t) == ndp_int_at(&c->in[7], t))
            memset(s, 0, (size_t)(d * e) * sizeof *s);
        step(c, t, h, s, room);
    }
}

static int64_t room_of(const ndp_op_call *c) { return (2 * c->attr->head_dim + 2 * ndp_v_dim(c->attr) + 15) / 16 * 16; }

static size_t delta_scratch(const ndp_op_call *c) { return (size_t)(room_of(c) * c->attr->heads) * sizeof(float); }

static ndp_status run_delta_step(const ndp_op_call *c) {
    int64_t heads = c->attr->heads;
#pragma omp parallel for num_threads(team(c, c->in[0].cols * c->in[1].rows)) schedule(static)
    for (int64_t h = 0; h < heads; h++)
        delta_head(c, h, (float *)c->scratch + h * room_of(c));
    return NDP_OK;
}
const ndp_kernel ndp_cpu_delta_step = {.run = run_delta_step, .scratch = delta_scratch};
