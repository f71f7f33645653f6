#include "model/facts.h"

#include "tensor/dtype.h"
#include <math.h>

/* Llama 3.1 keeps the frequencies of short waves, divides those of long ones by `factor`, and blends between. */
static double llama3_band(const ndp_facts *f, double frequency) {
    double wave = 2 * M_PI / frequency, positions = (double)f->rope.original_positions;
    double low = f->rope.low_freq_factor, high = f->rope.high_freq_factor;
    if (wave < positions / high)
        return frequency;
    if (wave > positions / low)
        return frequency / f->rope.factor;
    double smooth = (positions / wave - low) / (high - low);
    return (1 - smooth) * frequency / f->rope.factor + smooth * frequency;
}

static double inverse_frequency(const ndp_facts *f, int i) {
    double frequency = pow(f->rope.theta, -2.0 * i / f->head_dim);
    switch (f->rope.scaling) {
    case NDP_ROPE_LINEAR:
        return frequency / f->rope.factor;
    case NDP_ROPE_LLAMA3:
        return llama3_band(f, frequency);
    default:
        return frequency;
    }
}

void ndp_rope_frequencies(const ndp_facts *f, double *out) {
    for (int i = 0; i < f->head_dim / 2; i++)
        out[i] = inverse_frequency(f, i);
}

void ndp_rope_table(const ndp_facts *f, int64_t positions, int type, void *out) {
    int half = f->head_dim / 2;
    for (int i = 0; i < half; i++) {
        double frequency = inverse_frequency(f, i);
        for (int64_t p = 0; p < positions; p++) {
            double angle = (double)p * frequency, c = cos(angle), s = sin(angle);
            int64_t at = p * f->head_dim + i;
            if (type == NDP_F64) {
                ((double *)out)[at] = c;
                ((double *)out)[at + half] = s;
            } else {
                ((float *)out)[at] = (float)c;
                ((float *)out)[at + half] = (float)s;
            }
        }
    }
}
