/* adamw8bit: blocks of the one piece in call->in[NDP_UPDATE_PIECES]. A block's moments are decoded, updated in fp32 as
 * adamw does it (cpu_update.c), and encoded with the scale of the new ones; the weights see them before that. */
#include "ops/cpu/rows/kept_numbers.h"

#include <math.h>

/* AdamW's constants in fp32. */
typedef struct coded_constants {
    float keep, new1, old2, new2, rate, unbias, eps, clip;
} coded_constants;

static coded_constants constants_of(const ndp_op_call *c, const int64_t *piece) {
    const double *k = ndp_piece_constants(c->in[NDP_UPDATE_CONSTANTS].data, piece), *clip = c->in[NDP_UPDATE_CLIP].data;
    return (coded_constants){.keep = (float)k[NDP_ADAMW_KEEP],
                             .new1 = (float)k[NDP_ADAMW_NEW1],
                             .old2 = (float)k[NDP_ADAMW_OLD2],
                             .new2 = (float)(1 - k[NDP_ADAMW_OLD2]),
                             .rate = (float)k[NDP_ADAMW_RATE],
                             .unbias = (float)k[NDP_ADAMW_UNBIAS],
                             .eps = (float)k[NDP_ADAMW_EPS],
                             .clip = clip ? (float)*clip : 1};
}

NDP_INLINE float flush(float x) { return x < (float)NDP_TINY_MOMENT && x > -(float)NDP_TINY_MOMENT ? 0 : x; }

NDP_INLINE void decode(const uint8_t *restrict codes, const float *restrict values, float scale, int n,
                       float *restrict out) {
    SIMD for (int i = 0; i < n; i++) out[i] = values[codes[i]] * scale;
}

/* Returns the scale. `is_signed` is a constant where it is called: its loop is vectorised for that. */
NDP_INLINE float encode(bool is_signed, const float *restrict x, const float *restrict last, float margin, int n,
                        uint8_t *restrict codes) {
    float scale = 0;
    _Pragma("omp simd reduction(max : scale)") for (int i = 0; i < n; i++) {
        float size = x[i] < 0 ? -x[i] : x[i];
        scale = size > scale ? size : scale;
    }
    scale *= margin;
    const float by = scale > 0 ? scale : 1;
    SIMD for (int i = 0; i < n; i++) codes[i] = (uint8_t)ndp_dynamic_nearest(is_signed, last, x[i] / by);
    return scale;
}

NDP_INLINE void update(const coded_constants *k, const float *restrict g, float *restrict w, float *restrict m,
                       float *restrict v, int n) {
    const coded_constants c = *k;
    SIMD for (int i = 0; i < n; i++) {
        float gi = g[i] * c.clip;
        float mi = flush(ndp_fused(c.new1, gi - m[i], m[i]));
        float vi = flush(ndp_fused(c.old2, v[i], c.new2 * (gi * gi)));
        w[i] = ndp_fused(w[i], c.keep, -c.rate * (mi / ndp_fused(sqrtf(vi), c.unbias, c.eps)));
        m[i] = mi;
        v[i] = vi;
    }
}

void NDP_RANGE_KERNEL(adamw8bit)(const ndp_op_call *c, int64_t first, int64_t last) {
    const int64_t *piece = ndp_piece_at(&c->in[NDP_UPDATE_PIECES], 0);
    const coded_constants k = constants_of(c, piece);
    const float margin = ndp_code_margin(c->exec);
    ndp_dynamic_map maps[NDP_OPTIMIZER_STATES];
    float moments[NDP_OPTIMIZER_STATES][NDP_CODE_BLOCK], room[NDP_CODE_BLOCK];
    const float *g = c->in[NDP_UPDATE_GRAD].data;
    ndp_kept_words words;
    int64_t begin = piece[NDP_PIECE_FIRST], end = begin + piece[NDP_PIECE_COUNT];
    ndp_dynamic_fill(true, &maps[0]);
    ndp_dynamic_fill(false, &maps[1]);
    for (int64_t b = first; b < last; b++) {
        int64_t low = (begin / NDP_CODE_BLOCK + b) * NDP_CODE_BLOCK, high = low + NDP_CODE_BLOCK;
        int64_t at = low > begin ? low : begin;
        int n = (int)((high < end ? high : end) - at);
        for (int s = 0; s < NDP_OPTIMIZER_STATES; s++)
            decode((const uint8_t *)c->in[NDP_UPDATE_STATE + s].data + at, maps[s].values,
                   ((const float *)c->in[NDP_UPDATE_SCALES + s].data)[piece[NDP_PIECE_PLACE] + b], n, moments[s]);
        float *w = ndp_kept_weights(c, at, n, room);
        ndp_kept_draw(c, piece, at - begin, n, &words);
        update(&k, g + at, w, moments[0], moments[1], n);
        ndp_keep_weights(c, at, n, w, words.of[NDP_ROUNDING_WEIGHT]);
        uint8_t *m = (uint8_t *)c->in[NDP_UPDATE_STATE].data + at,
                *v = (uint8_t *)c->in[NDP_UPDATE_STATE + 1].data + at;
        const float scales[] = {encode(true, moments[0], maps[0].last, margin, n, m),
                                encode(false, moments[1], maps[1].last, margin, n, v)};
        for (int s = 0; s < NDP_OPTIMIZER_STATES; s++)
            ((float *)c->in[NDP_UPDATE_SCALES + s].data)[piece[NDP_PIECE_PLACE] + b] = scales[s];
    }
}
