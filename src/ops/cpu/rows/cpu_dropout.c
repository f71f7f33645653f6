/* dropout. */
#include "ops/cpu/rows/range_kernel.h"
#include "ops/dropout.h"

/* Groups of four columns whose words are made at once. */
enum { GROUPS = 64, COLUMNS = GROUPS * NDP_DROPOUT_GROUP };

/* Word k of group `at` + i in words[4 i + k], i < groups. Apart from each other first: so compilers make vectors of
 * groups. */
NDP_INLINE void make_words(uint32_t at, uint32_t tag, uint32_t unit, uint32_t key, int64_t groups, uint32_t *words) {
    uint32_t apart[NDP_DROPOUT_GROUP][GROUPS];
    SIMD for (int64_t i = 0; i < groups; i++) {
        philox4x32_ctr_t w = ndp_dropout_words(at + (uint32_t)i, tag, unit, key);
        apart[0][i] = w.v[0], apart[1][i] = w.v[1], apart[2][i] = w.v[2], apart[3][i] = w.v[3];
    }
    for (int64_t i = 0; i < groups; i++)
        for (int k = 0; k < NDP_DROPOUT_GROUP; k++)
            words[NDP_DROPOUT_GROUP * i + k] = apart[k][i];
}

NDP_INLINE void drop(ndp_dtype type, int64_t n, const void *x, void *y, const uint32_t *words, uint32_t bound,
                     float by) {
    SIMD for (int64_t i = 0; i < n; i++) ndp_st(y, type, i, words[i] < bound ? 0.0f : ndp_ld(x, type, i) * by);
}

void NDP_RANGE_KERNEL(dropout)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[0];
    const ndp_op_attr *a = c->attr;
    uint32_t words[COLUMNS], unit = *(const uint32_t *)ndp_at(&c->in[2], 0, 0), bound = ndp_dropout_bound(a->drop);
    int64_t skip = a->first % NDP_DROPOUT_GROUP; /* of the first group: columns before those that are here */
    for (int64_t t = first; t < last; t++)
        for (int64_t at = -skip; at < x->cols; at += COLUMNS) {
            int64_t from = at < 0 ? 0 : at, to = at + COLUMNS < x->cols ? at + COLUMNS : x->cols;
            make_words((uint32_t)((a->first + at) / NDP_DROPOUT_GROUP), (uint32_t)a->tag, unit,
                       *(const uint32_t *)ndp_at(&c->in[1], t, 0),
                       (to - at + NDP_DROPOUT_GROUP - 1) / NDP_DROPOUT_GROUP, words);
            NDP_BY_TYPE(x->dtype, drop, to - from, ndp_at(x, t, from), ndp_at(&c->out[0], t, from), words + from - at,
                        bound, (float)(1 / (1 - a->drop)));
        }
}
