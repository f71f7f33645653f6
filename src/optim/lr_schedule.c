/* Learning rates: linear warm-up, then constant, or down to min_ratio by a line or half a cosine. */
#include "optim/optim.h"

#include <math.h>

/* 0 at the first update after warm-up, 1 at the last one and after it. */
static double progress(const ndp_lr_schedule *s, int64_t update) {
    int64_t last = s->steps - 1;
    return update >= last ? 1 : (double)(update - s->warmup) / (double)(last - s->warmup);
}

double ndp_lr_of(const ndp_lr_schedule *s, int64_t update) {
    if (update < s->warmup)
        return s->lr * (double)(update + 1) / (double)s->warmup;
    double share = 1; /* 1: the full rate; 0: min_ratio of it */
    switch (s->kind) {
    case NDP_LR_CONSTANT:
        return s->lr;
    case NDP_LR_LINEAR:
        share = 1 - progress(s, update);
        break;
    case NDP_LR_COSINE:
        share = 0.5 * (1 + cos(M_PI * progress(s, update)));
        break;
    }
    return s->lr * (s->min_ratio + (1 - s->min_ratio) * share);
}
