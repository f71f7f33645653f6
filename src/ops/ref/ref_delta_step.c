/* conv_step, delta_step. */
#include "ops/delta_rule.h"
#include "ops/ref/ref_kernels.h"

#include <math.h>

/* conv_step ------------------------------------------------------------------------------------------------------ */

/* The tail of a text: of each row before it, the latest first, all columns. */
static void conv_row(const ndp_op_call *c, int64_t t, int64_t text) {
    const ndp_view *tail = &c->in[0], *x = &c->in[1];
    int64_t taps = c->in[2].cols, cols = x->cols;
    bool first = ndp_int_at(&c->in[3], t) == ndp_int_at(&c->in[4], t);
    for (int64_t i = 0; i < cols; i++) {
        double before[NDP_MAX_TAPS], u = 0;
        for (int64_t j = 0; j < taps; j++) {
            before[j] = j == 0 ? ndp_view_get(x, t, i) : first ? 0 : ndp_view_get(tail, text, (j - 1) * cols + i);
            u += ndp_ref_in(c, 2, i, taps - 1 - j) * before[j];
        }
        for (int64_t j = 0; j + 1 < taps; j++)
            ndp_view_set(tail, text, j * cols + i, before[j]);
        ndp_view_set(&c->out[1], t, i, u / (1 + exp(-u)));
    }
}

/* Calls `row` for each that is not padding; the results of others are 0. */
static ndp_status each_row(const ndp_op_call *c, int starts,
                           void (*row)(const ndp_op_call *c, int64_t t, int64_t text)) {
    for (int64_t t = 0; t < c->out[1].rows; t++) {
        int64_t text = ndp_text_of(c->attr, &c->in[starts], t);
        if (text >= 0)
            row(c, t, text);
        for (int64_t i = 0; text < 0 && i < c->out[1].cols; i++)
            ndp_view_set(&c->out[1], t, i, 0);
    }
    return NDP_OK;
}

static ndp_status run_conv_step(const ndp_op_call *c) { return each_row(c, 3, conv_row); }
const ndp_kernel ndp_ref_conv_step = {.run = run_conv_step};

/* delta_step ----------------------------------------------------------------------------------------------------- */

/* q^ and k^ are x times this. */
static double unit_of(const ndp_op_call *c, int operand, int64_t t, int64_t col) {
    double sum = NDP_DELTA_EPS;
    for (int64_t i = 0; i < c->attr->head_dim; i++)
        sum += pow(ndp_ref_in(c, operand, t, col + i), 2);
    return 1 / sqrt(sum);
}

static void delta_head(const ndp_op_call *c, int64_t t, int64_t text, int64_t h) {
    const ndp_view *state = &c->in[0];
    int64_t d = c->attr->head_dim, e = ndp_v_dim(c->attr), key = h / ndp_delta_group(c->attr) * d, at = h * d * e;
    double decay = exp(ndp_ref_in(c, 4, t, h)), beta = 1 / (1 + exp(-ndp_ref_in(c, 5, t, h)));
    double of_q = unit_of(c, 1, t, key) / sqrt((double)d), of_k = unit_of(c, 2, t, key);
    bool first = ndp_int_at(&c->in[6], t) == ndp_int_at(&c->in[7], t);
    for (int64_t j = 0; j < e; j++) {
        double read = 0, o = 0;
        for (int64_t i = 0; i < d && !first; i++)
            read += decay * ndp_view_get(state, text, at + i * e + j) * of_k * ndp_ref_in(c, 2, t, key + i);
        double missing = beta * (ndp_ref_in(c, 3, t, h * e + j) - read);
        for (int64_t i = 0; i < d; i++) {
            double s = first ? 0 : decay * ndp_view_get(state, text, at + i * e + j);
            s += of_k * ndp_ref_in(c, 2, t, key + i) * missing;
            ndp_view_set(state, text, at + i * e + j, s);
            o += s * of_q * ndp_ref_in(c, 1, t, key + i);
        }
        ndp_view_set(&c->out[1], t, h * e + j, o);
    }
}

static void delta_row(const ndp_op_call *c, int64_t t, int64_t text) {
    for (int64_t h = 0; h < c->attr->heads; h++)
        delta_head(c, t, text, h);
}

static ndp_status run_delta_step(const ndp_op_call *c) { return each_row(c, 6, delta_row); }
const ndp_kernel ndp_ref_delta_step = {.run = run_delta_step};
