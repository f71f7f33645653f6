/* The weights that a dump has after its update, next to those of the same update on one rank: all rows, clipping, the
 * job's optimizer. What is compared is how far the update moves them, all tensors together, but those whose gradient is
 * made of rounding errors alone: an optimizer that divides by the gradient's size makes whole steps of these. */
#include "verify/against.h"

#include "optim/optim.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 8192 };

/* Of AdamW, Lion and Muon: a few elements whose gradient is near 0 make a whole step in either direction; measured in
 * tests/verify/test_dump.c. Of SGD the step is the gradient. */
static const double whole_steps = 5e-3, plain_steps = 1e-4;

typedef struct update_sums {
    double apart, ours, with, weights; /* squares of differences, of our update; their product; squares of weights */
} update_sums;

static void add_sums(update_sums *to, const update_sums *s) {
    to->apart += s->apart, to->ours += s->ours, to->with += s->with, to->weights += s->weights;
}

/* Of one tensor: the dump's weights, those before the update, ours after it. */
static ndp_status sum_tensor(const ndp_comparison *c, int tensor, const double *before, const double *after,
                             update_sums *out) {
    const char *name = c->judge->list.specs[tensor].name;
    int64_t first = c->judge->first[tensor], all = c->judge->first[tensor + 1] - first;
    double dump[BLOCK];
    *out = (update_sums){0};
    for (int64_t at = 0; at < all; at += BLOCK) {
        int64_t n = all - at < BLOCK ? all - at : BLOCK;
        NDP_TRY(ndp_weights_read(c->dump->weights, name, at, n, dump, NDP_F64, true));
        for (int64_t i = 0; i < n; i++) {
            double old = before[first + at + i], own = after[first + at + i] - old, other = dump[i] - old;
            out->apart += (other - own) * (other - own), out->ours += own * own, out->with += other * own;
            out->weights += old * old;
        }
    }
    return NDP_OK;
}

/* A gradient of rounding errors alone. */
static bool is_nothing(const ndp_comparison *c, int tensor) {
    double squares = 0;
    for (int64_t e = c->judge->first[tensor]; e < c->judge->first[tensor + 1]; e++)
        squares += c->ours.gradient[e] * c->ours.gradient[e];
    return squares <= c->nothing * c->nothing;
}

static ndp_status sum_updates(const ndp_comparison *c, const double *before, const double *after, update_sums *all,
                              ndp_against *out) {
    double most = -1, rounding = 0;
    *all = (update_sums){0};
    for (int i = 0; i < c->judge->list.n; i++) {
        update_sums s;
        if (is_nothing(c, i))
            continue;
        NDP_TRY(sum_tensor(c, i, before, after, &s));
        add_sums(all, &s);
        rounding = fmax(rounding,
                        ndp_rounding_of(ndp_weights_find(c->dump->weights, c->judge->list.specs[i].name)->spec.dtype));
        if (s.apart > most)
            snprintf(out->weights_most, sizeof out->weights_most, "%s", c->judge->list.specs[i].name);
        most = fmax(most, s.apart);
    }
    bool plain = ndp_optimizers[c->config->optimizer.name]->op == &ndp_op_sgd && !ndp_config_groups(c->config);
    out->weights_off = all->apart == 0 ? 0 : sqrt(all->apart / all->ours);
    out->weights_bound = plain ? plain_steps : whole_steps;
    if (all->ours > 0)
        out->weights_bound += rounding * sqrt(all->weights / all->ours);
    return ndp_weights_intact(c->dump->weights);
}

static ndp_status say_difference(const update_sums *s, ndp_against *out) {
    double factor = s->with / s->ours, rest = sqrt(fmax(s->apart - (factor - 1) * (factor - 1) * s->ours, 0) / s->ours);
    for (int i = 0; i < out->n; i++)
        if (!out->gradients[i].agrees)
            return NDP_OK; /* and so has its cause */
    if (out->weights_off <= out->weights_bound)
        return NDP_OK;
    if (rest <= out->weights_bound)
        return ndp_add_cause(out, "the update of the weights is %.4f of ours: like another learning rate", factor);
    return ndp_add_cause(out,
                         "the update of the weights is different, though the gradients agree: like another optimizer "
                         "or other options of it than the job's");
}

/* Puts the weights into `after` that an update on one rank makes, and those before it into `before` (NULL: not). */
static ndp_status make_update(const ndp_comparison *c, ndp_dtype compute, ndp_judged *before, ndp_judged *after) {
    ndp_judge all;
    NDP_TRY(ndp_judge_open(c->config, c->dump, (int)c->dump->rows, compute, &all));
    ndp_status st = before ? ndp_judge_weights(&all, before) : NDP_OK;
    if (st == NDP_OK)
        st = ndp_judge_update(&all, c->rows);
    if (st == NDP_OK)
        st = ndp_judge_weights(&all, after);
    ndp_judge_close(&all);
    return st;
}

/* Raises the bound to that of a step in bf16: so many times the distance between our update in bf16 and that in fp32.
 */
static ndp_status measure_half(const ndp_comparison *c, const double *before, const double *after, ndp_against *out) {
    ndp_judged half;
    double apart = 0, ours = 0;
    NDP_TRY(ndp_judged_init(&half, c->judge));
    ndp_status st = make_update(c, NDP_BF16, NULL, &half);
    for (int64_t e = 0; e < c->judge->first[c->judge->list.n]; e++) {
        apart += (half.gradient[e] - after[e]) * (half.gradient[e] - after[e]);
        ours += (after[e] - before[e]) * (after[e] - before[e]);
    }
    if (ours > 0)
        out->weights_bound += NDP_HALF_TIMES * sqrt(apart / ours);
    ndp_judged_release(&half);
    return st;
}

static ndp_status compare_with(const ndp_comparison *c, ndp_judged *before, ndp_judged *after, ndp_against *out) {
    update_sums sums;
    NDP_TRY(ndp_judged_init(before, c->judge));
    NDP_TRY(ndp_judged_init(after, c->judge));
    NDP_TRY(make_update(c, ndp_own_compute(c->config), before, after));
    NDP_TRY(sum_updates(c, before->gradient, after->gradient, &sums, out));
    if (c->config->precision.compute == NDP_BF16)
        NDP_TRY(measure_half(c, before->gradient, after->gradient, out));
    out->has_weights = true;
    return say_difference(&sums, out);
}

ndp_status ndp_compare_updates(const ndp_comparison *c, ndp_against *out) {
    ndp_judged before = {0}, after = {0};
    if (!c->dump->weights)
        return NDP_OK;
    ndp_status st = compare_with(c, &before, &after, out);
    ndp_judged_release(&before);
    ndp_judged_release(&after);
    return st;
}

ndp_status ndp_check_update(const ndp_config *c, const ndp_dump *d) {
    NDP_CHECK(
        !d->weights || isfinite(d->lr) || c->train.epochs == 0,
        "%s has updated weights and no lr, and the learning rate of the job's first step depends on its data: put lr "
        "into " NDP_DUMP_BATCH ", or set train.epochs: 0 and train.steps",
        d->folder);
    return NDP_OK;
}
