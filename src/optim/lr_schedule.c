/* Learning rates: linear warm-up, then a function of the update. Progress p is 0 at the first update after warm-up and
 * 1 at the last one, where the schedules of transformers, and ours that are like theirs, have 1 one update later;
 * otherwise the formulas are theirs:
 *
 *     constant         1
 *     linear           1 - p
 *     cosine           (1 + cos(pi p)) / 2
 *     cosine_restarts  (1 + cos(pi (cycles p mod 1))) / 2, and 0 at p = 1
 *     wsd              1, then the cosine of the progress in the last decay_ratio of the steps
 *     inverse_sqrt     sqrt(t / (t + u)) for the u-th update after warm-up, t = warmup, or 10,000 without one
 *
 * Then wsd also begins its warm-up at min_ratio, as there. These are shares s of the rate; a schedule with an
 * end has lr (min_ratio + (1 - min_ratio) s). */
#include "optim/optim.h"

#include <math.h>

/* Without warm-up, the updates over which inverse_sqrt falls to 1 / sqrt(2). */
enum { NO_WARMUP_TIMESCALE = 10000 };

/* Where a schedule with an end is at it. */
static int64_t end_of(const ndp_lr_schedule *s) { return s->like ? s->steps : s->steps - 1; }

/* 0 at update `first`, 1 at the last one and after it. */
static double progress(const ndp_lr_schedule *s, int64_t first, int64_t update) {
    int64_t last = end_of(s);
    return update >= last ? 1 : update <= first ? 0 : (double)(update - first) / (double)(last - first);
}

static double half_cosine(double p) { return 0.5 * (1 + cos(M_PI * p)); }

static double constant_share(const ndp_lr_schedule *s, int64_t update) {
    (void)s, (void)update;
    return 1;
}

static double linear_share(const ndp_lr_schedule *s, int64_t update) { return 1 - progress(s, s->warmup, update); }

static double cosine_share(const ndp_lr_schedule *s, int64_t update) {
    return half_cosine(progress(s, s->warmup, update));
}

static double cosine_restarts_share(const ndp_lr_schedule *s, int64_t update) {
    double p = progress(s, s->warmup, update);
    return p < 1 ? half_cosine(fmod(s->cycles * p, 1)) : 0;
}

/* It falls over at least one update, and not while warming up. */
static double wsd_share(const ndp_lr_schedule *s, int64_t update) {
    int64_t falls = (int64_t)round(s->decay_ratio * (double)s->steps), first = end_of(s) - (falls > 0 ? falls : 1);
    return half_cosine(progress(s, first > s->warmup ? first : s->warmup, update));
}

static double inverse_sqrt_share(const ndp_lr_schedule *s, int64_t update) {
    double timescale = s->warmup > 0 ? (double)s->warmup : NO_WARMUP_TIMESCALE;
    return sqrt(timescale / (timescale + (double)(update - s->warmup)));
}

/* `update`: not one of the warm-up. */
typedef double lr_share(const ndp_lr_schedule *s, int64_t update);
#define SHARE(NAME, name) [NDP_LR_##NAME] = name##_share,
static lr_share *const shares[NDP_LR_KINDS] = {NDP_LR_SCHEDULES(SHARE)};

bool ndp_lr_has_end(ndp_lr_kind kind) { return kind != NDP_LR_CONSTANT && kind != NDP_LR_INVERSE_SQRT; }

double ndp_lr_of(const ndp_lr_schedule *s, int64_t update) {
    double from = s->like && s->kind == NDP_LR_WSD ? s->min_ratio : 0;
    int64_t late = s->like == NDP_LR_LIKE_DEEPSPEED && update > 0, at = update - late;
    if (at < s->warmup)
        return s->lr * (from + (1 - from) * (double)(at + !s->like) / (double)s->warmup);
    double share = shares[s->kind](s, s->kind == NDP_LR_COSINE ? update : at);
    return ndp_lr_has_end(s->kind) ? s->lr * (s->min_ratio + (1 - s->min_ratio) * share) : s->lr * share;
}
