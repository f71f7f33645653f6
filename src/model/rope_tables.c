/* Angles of RoPE: inverse frequencies of each scaling, and the tables of cosines and sines. */
#include "model/facts.h"

#include "tensor/dtype.h"
#include <math.h>

/* Llama 3.1 keeps the frequencies of short waves, divides those of long ones by `factor`, and blends between. */
static double llama3_band(const ndp_rope *r, double frequency) {
    double wave = 2 * M_PI / frequency, positions = (double)r->original_positions;
    double low = r->low_freq_factor, high = r->high_freq_factor;
    if (wave < positions / high)
        return frequency;
    if (wave > positions / low)
        return frequency / r->factor;
    double smooth = (positions / wave - low) / (high - low);
    return (1 - smooth) * frequency / r->factor + smooth * frequency;
}

/* The dimension, counted in pairs, whose wave makes `turns` turns in the original length. */
static double yarn_dimension(const ndp_rope *r, double turns) {
    return r->dim * log((double)r->original_positions / (turns * 2 * M_PI)) / (2 * log(r->theta));
}

/* YaRN keeps the fast pairs, divides the slow ones by `factor`, and goes from one to the other along a ramp. */
static double yarn_blend(const ndp_rope *r, double frequency, int i) {
    double low = yarn_dimension(r, r->beta_fast), high = yarn_dimension(r, r->beta_slow);
    if (r->truncate)
        low = floor(low), high = ceil(high);
    low = fmax(low, 0), high = fmin(high, r->dim - 1);
    if (low == high)
        high += 0.001;
    double divided = fmin(fmax((i - low) / (high - low), 0), 1);
    return divided * frequency / r->factor + (1 - divided) * frequency;
}

static double inverse_frequency(const ndp_rope *r, int64_t positions, int i) {
    double frequency = pow(r->theta, -2.0 * i / r->dim);
    switch (r->scaling) {
    case NDP_ROPE_LINEAR:
        return frequency / r->factor;
    case NDP_ROPE_LLAMA3:
        return llama3_band(r, frequency);
    case NDP_ROPE_YARN:
        return yarn_blend(r, frequency, i);
    case NDP_ROPE_PROPORTIONAL:
        return i < r->turning ? frequency / r->factor : 0;
    case NDP_ROPE_LONG:
        return frequency / (positions > r->original_positions ? r->long_factor[i] : r->short_factor[i]);
    default:
        return frequency;
    }
}

void ndp_rope_frequencies(const ndp_rope *r, int64_t positions, double *out) {
    for (int i = 0; i < r->dim / 2; i++)
        out[i] = inverse_frequency(r, positions, i);
}

double ndp_rope_fastest(const ndp_rope *r) {
    static const int64_t contexts[] = {0, INT64_MAX};
    double fastest = 0;
    for (int i = 0; i < r->dim / 2; i++)
        for (int c = 0; c < NDP_COUNT(contexts); c++) {
            double frequency = inverse_frequency(r, contexts[c], i);
            if (isnan(frequency))
                return frequency;
            fastest = fmax(fastest, frequency);
        }
    return fastest;
}

static void store(void *out, int type, int64_t at, double x) {
    if (type == NDP_F64)
        ((double *)out)[at] = x;
    else
        ((float *)out)[at] = (float)x;
}

void ndp_rope_table(const ndp_rope *r, int64_t positions, int type, void *out) {
    int half = r->dim / 2;
    for (int i = 0; i < half; i++) {
        double frequency = inverse_frequency(r, positions, i);
        for (int64_t p = 0; p < positions; p++) {
            double angle = (double)p * frequency, times = r->amplitude;
            int64_t at = p * r->dim + i;
            if (r->growth > 0)
                times *= 1 + r->growth * log(1 + (double)(p / r->original_positions));
            store(out, type, at, times * cos(angle));
            store(out, type, at + half, times * sin(angle));
        }
    }
}
