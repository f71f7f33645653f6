/* Recording what a run computes, the distance between two runs, and the bounds on it.
 *
 * A deviation keeps the place closest to its bound and the first place beyond it. Tensors are compared from the head
 * down, in the order of the backward pass, so the first one beyond its bound is where an error entered. */
#include "verify/outcome.h"

#include "base/cpu.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- outcomes ---- */

static bool list_tensors(ndp_outcome *o, const ndp_trainer *t) {
    o->n = ndp_trainer_tensors(t);
    o->names = ndp_arena_alloc(&o->arena, (size_t)o->n * sizeof *o->names);
    o->units = ndp_arena_alloc(&o->arena, (size_t)o->n * sizeof *o->units);
    o->first = ndp_arena_alloc(&o->arena, (size_t)(o->n + 1) * sizeof *o->first);
    if (!o->names || !o->units || !o->first)
        return false;
    for (int i = 0; i < o->n; i++) {
        const ndp_model_tensor *of = &t->tensors[i];
        o->names[i] = ndp_arena_strdup(&o->arena, of->name);
        o->units[i] = ndp_arena_strdup(&o->arena, t->model.buffers[of->buffer].name);
        o->first[i + 1] = o->first[i] + ndp_segment_tensor_elements(of->segment);
        if (!o->names[i] || !o->units[i])
            return false;
    }
    return true;
}

ndp_status ndp_outcome_init(ndp_outcome *o, const ndp_trainer *t, int steps, bool keep) {
    *o = (ndp_outcome){.steps = steps, .type = t->model.opts.master, .eval_loss = NAN};
    NDP_CHECK(steps >= 1 && steps <= NDP_VERIFY_STEPS, "a comparison of %d steps; give 1 to %d", steps,
              NDP_VERIFY_STEPS);
    bool ok = list_tensors(o, t);
    for (int k = 0; k < NDP_KEPT && ok && keep; k++)
        ok = (o->kept[k] = calloc((size_t)o->first[o->n], ndp_dtype_size(o->type))) != NULL;
    ndp_status st = ok ? ndp_routed_init(o, t, keep)
                       : NDP_FAIL(NDP_ENOMEM, "not enough memory to keep a run's gradients and weights for a "
                                              "comparison");
    if (st != NDP_OK)
        ndp_outcome_release(o);
    return st;
}

void ndp_outcome_release(ndp_outcome *o) {
    for (int k = 0; k < NDP_KEPT; k++)
        free(o->kept[k]);
    ndp_choices_release(&o->routed);
    ndp_arena_release(&o->arena);
    *o = (ndp_outcome){0};
}

/* The address of element i of a kept array. */
static void *element(const ndp_outcome *o, int kept, int64_t i) {
    return (char *)o->kept[kept] + (size_t)i * ndp_dtype_size(o->type);
}

static ndp_status read_tensors(ndp_outcome *o, ndp_trainer *t, ndp_kept kept) {
    int64_t most = 0;
    for (int i = 0; i < o->n; i++)
        most = o->first[i + 1] - o->first[i] > most ? o->first[i + 1] - o->first[i] : most;
    double *whole = malloc((size_t)most * sizeof *whole);
    NDP_CHECK_MEMORY(whole, "for a tensor of %lld elements", (long long)most);
    ndp_status st = NDP_OK;
    for (int i = 0; i < o->n && st == NDP_OK; i++) {
        st = ndp_trainer_read(t, kept == NDP_KEPT_WEIGHTS ? NDP_WEIGHT : NDP_GRADIENT, i, whole);
        if (st == NDP_OK && o->kept[kept])
            ndp_convert(whole, NDP_F64, element(o, kept, o->first[i]), o->type, o->first[i + 1] - o->first[i]);
    }
    free(whole);
    return st;
}

static ndp_status score_held(ndp_outcome *o, ndp_trainer *t) {
    const ndp_rank *r = &t->rank;
    ndp_step_result sums = {0};
    if (!r->data.held)
        return NDP_OK;
    for (int i = 0; i < ndp_dataset_sources(r->data.held); i++)
        NDP_TRY(ndp_score_held_out(&t->score, i, o->steps * r->feed.shape.global, &sums));
    o->eval_loss = ndp_score_loss(&t->score, &sums);
    return NDP_OK;
}

ndp_status ndp_outcome_step(ndp_outcome *o, ndp_trainer *t) {
    int64_t step = ndp_trainer_updates(t);
    ndp_metrics m;
    NDP_CHECK(step < o->steps, "step %lld is not one of the %d of the comparison", (long long)step + 1, o->steps);
    NDP_TRY(ndp_trainer_step(t, &m));
    o->loss[step] = m.loss;
    o->norm[step] = m.grad_norm;
    o->tokens[step] = m.tokens;
    NDP_TRY(ndp_routed_read(o, t, step));
    if (step == 0)
        NDP_TRY(read_tensors(o, t, NDP_KEPT_FIRST_GRADIENT));
    if (step < o->steps - 1)
        return NDP_OK;
    NDP_TRY(read_tensors(o, t, NDP_KEPT_LAST_GRADIENT));
    NDP_TRY(read_tensors(o, t, NDP_KEPT_WEIGHTS));
    return score_held(o, t);
}

/* ---- distances ---- */

/* Names, and the bounds that are known before any run. */
static const struct {
    const char *name;
    double fp32, fp64;
} measures[NDP_MEASURES] = {[NDP_MEASURE_TOKENS] = {"tokens", 0, 0},
                            [NDP_MEASURE_FIRST_GRADIENT] = {"gradient of step 1", 2e-5, 1e-9},
                            [NDP_MEASURE_GRAD_NORM] = {"grad_norm", 3e-5, 1e-9},
                            [NDP_MEASURE_LAST_GRADIENT] = {"gradient of the last step", 1e-4, 1e-9},
                            [NDP_MEASURE_LOSS] = {"loss", 2e-6, 1e-11},
                            [NDP_MEASURE_EVAL_LOSS] = {"eval_loss", 2e-6, 1e-11},
                            [NDP_MEASURE_WEIGHTS] = {"weights", INFINITY, INFINITY},
                            /* Of choices that rounding may flip: the gap of the two probabilities, and the share. */
                            [NDP_MEASURE_FLIP_GAP] = {"gap of a flipped choice", 1e-5, 1e-7},
                            [NDP_MEASURE_FLIPS] = {"share of flipped choices", 1e-3, 1e-3}};

const char *ndp_measure_name(ndp_measure m) { return measures[m].name; }

static double share_of(const ndp_spot *s) { return s->off == 0 || isinf(s->off) ? s->off : s->off / s->bound; }

void ndp_deviation_note(ndp_deviation *d, double off, double bound, const char *where, const char *unit) {
    ndp_spot spot = {.off = isnan(off) ? INFINITY : off, .bound = bound};
    snprintf(spot.where, sizeof spot.where, "%s", where);
    snprintf(spot.unit, sizeof spot.unit, "%s", unit);
    double share = share_of(&spot), most = share_of(&d->worst);
    if (share > most || (share == most && spot.off >= d->worst.off))
        d->worst = spot;
    if (!(spot.off <= bound) && d->beyond++ == 0)
        d->first = spot;
}

/* Sums of squares over one tensor: of the differences, of each run. */
typedef struct tensor_squares {
    double apart, a, b;
} tensor_squares;

static tensor_squares squares_of(const ndp_outcome *a, const ndp_outcome *b, int kept, int tensor) {
    enum { PART = 1024 };
    double x[PART], y[PART];
    tensor_squares s = {0};
    for (int64_t at = b->first[tensor], end = b->first[tensor + 1]; at < end; at += PART) {
        int64_t n = end - at < PART ? end - at : PART;
        ndp_convert(element(a, kept, at), a->type, x, NDP_F64, n);
        ndp_convert(element(b, kept, at), b->type, y, NDP_F64, n);
        for (int64_t i = 0; i < n; i++) {
            s.apart += (x[i] - y[i]) * (x[i] - y[i]);
            s.a += x[i] * x[i];
            s.b += y[i] * y[i];
        }
    }
    return s;
}

/* |a - b| / |b| of one tensor; 0 if both norms are at most `nothing`. */
static double distance(const ndp_outcome *a, const ndp_outcome *b, int kept, int tensor, double nothing) {
    tensor_squares s = squares_of(a, b, kept, tensor);
    bool none = s.apart == 0 || (s.a <= nothing * nothing && s.b <= nothing * nothing);
    return none ? 0 : sqrt(s.apart / s.b);
}

/* The norm below which a gradient counts as zero, relative to the norm of all gradients. Some gradients are truly zero
 * and consist of rounding errors: that of a bias of keys without RoPE, for example, which shifts all scores of a query
 * alike. */
static double nothing_of(const ndp_outcome *b, int kept) {
    double all = 0;
    for (int i = 0; i < b->n; i++)
        all += squares_of(b, b, kept, i).b;
    return sqrt(all) * (b->type == NDP_F64 ? 1e-15 : 1e-7);
}

static bool both_keep(const ndp_outcome *a, const ndp_outcome *b, int kept) { return a->kept[kept] && b->kept[kept]; }

/* |a - b| / |b| of all weights together; *most: the tensor with the largest part of it. */
static double weights_distance(const ndp_outcome *a, const ndp_outcome *b, int *most) {
    double apart = 0, all = 0, largest = -1;
    for (int i = 0; i < b->n; i++) {
        tensor_squares s = squares_of(a, b, NDP_KEPT_WEIGHTS, i);
        apart += s.apart, all += s.b;
        if (s.apart > largest || isnan(s.apart))
            largest = s.apart, *most = i;
    }
    return apart == 0 ? 0 : sqrt(apart / all);
}

static const ndp_measure measure_of[NDP_KEPT] = {[NDP_KEPT_FIRST_GRADIENT] = NDP_MEASURE_FIRST_GRADIENT,
                                                 [NDP_KEPT_LAST_GRADIENT] = NDP_MEASURE_LAST_GRADIENT,
                                                 [NDP_KEPT_WEIGHTS] = NDP_MEASURE_WEIGHTS};

static void compare_tensors(const ndp_outcome *a, const ndp_outcome *b, int kept, const ndp_bounds *bounds,
                            ndp_deviation *d) {
    if (!both_keep(a, b, kept))
        return;
    if (kept == NDP_KEPT_WEIGHTS) {
        int most = 0;
        double off = weights_distance(a, b, &most);
        ndp_deviation_note(d, off, bounds->of[NDP_MEASURE_WEIGHTS], b->names[most], b->units[most]);
        return;
    }
    double nothing = nothing_of(b, kept);
    for (int i = b->n - 1; i >= 0; i--) /* the head first: an error spreads to everything later in the backward pass */
        ndp_deviation_note(d, distance(a, b, kept, i, nothing),
                           bounds->tensors ? bounds->tensors[kept * b->n + i] : bounds->of[measure_of[kept]],
                           b->names[i], b->units[i]);
}

static double relative_distance(double x, double y) { return x == y ? 0 : fabs(x / y - 1); }

static void compare_numbers(int steps, const double *x, const double *y, double bound, ndp_deviation *d) {
    for (int s = 0; s < steps; s++) {
        char step[32];
        snprintf(step, sizeof step, "step %d", s + 1);
        ndp_deviation_note(d, relative_distance(x[s], y[s]), bound, step, "");
    }
}

/* In forward passes mixtures choose by themselves. A layout that gives one token of a few hundred another expert, as
 * good within rounding, changes the mean by a few times 1e-4. The bound is at least the loss's: this is a mean of rows
 * as that is, and few runs say little of what is one number of each. */
static double eval_bound(const ndp_outcome *o, const ndp_bounds *b) {
    double bound = fmax(b->of[NDP_MEASURE_EVAL_LOSS], b->of[NDP_MEASURE_LOSS]);
    return o->mixtures ? fmax(bound, 1e-3) : bound;
}

static ndp_status check_alike(const ndp_outcome *a, const ndp_outcome *b) {
    bool alike = a->n == b->n && a->steps == b->steps;
    for (int i = 0; alike && i < a->n; i++)
        alike = strcmp(a->names[i], b->names[i]) == 0 && a->first[i + 1] == b->first[i + 1];
    return alike ? NDP_OK
                 : NDP_FAIL(NDP_EBUG, "a run of %d tensors and %d steps cannot be compared with one of %d and %d", a->n,
                            a->steps, b->n, b->steps);
}

ndp_status ndp_outcome_compare(const ndp_outcome *a, const ndp_outcome *b, const ndp_bounds *bounds,
                               ndp_difference *d) {
    double x[NDP_VERIFY_STEPS], y[NDP_VERIFY_STEPS];
    const double *of = bounds->of;
    NDP_TRY(check_alike(a, b));
    *d = (ndp_difference){0};
    for (int s = 0; s < b->steps; s++)
        x[s] = (double)a->tokens[s], y[s] = (double)b->tokens[s];
    compare_numbers(b->steps, x, y, of[NDP_MEASURE_TOKENS], &d->of[NDP_MEASURE_TOKENS]);
    compare_numbers(b->steps, a->norm, b->norm, of[NDP_MEASURE_GRAD_NORM], &d->of[NDP_MEASURE_GRAD_NORM]);
    compare_numbers(b->steps, a->loss, b->loss, of[NDP_MEASURE_LOSS], &d->of[NDP_MEASURE_LOSS]);
    if (!isnan(b->eval_loss))
        ndp_deviation_note(&d->of[NDP_MEASURE_EVAL_LOSS], relative_distance(a->eval_loss, b->eval_loss),
                           eval_bound(b, bounds), "held-out rows", "");
    for (int k = 0; k < NDP_KEPT; k++)
        compare_tensors(a, b, k, bounds, &d->of[measure_of[k]]);
    ndp_flips_compare(a, b, bounds, d);
    return NDP_OK;
}

const char *ndp_difference_words(const ndp_difference *d, char *out, size_t size) {
    for (int m = 0; m < NDP_MEASURES; m++) {
        const ndp_deviation *v = &d->of[m];
        if (v->beyond == 0)
            continue;
        bool tensor = v->first.unit[0] != '\0';
        const char *things = m == NDP_MEASURE_FLIP_GAP ? "choices" : tensor ? "tensors" : "steps";
        int n = snprintf(out, size, "%s, %s%s%s%s: off by %.3g, bound %.3g", ndp_measure_name((ndp_measure)m),
                         v->first.where, tensor ? " (" : "", v->first.unit, tensor ? ")" : "", v->first.off,
                         v->first.bound);
        if (v->beyond > 1 && n > 0 && (size_t)n < size)
            snprintf(out + n, size - (size_t)n, "; %d %s are beyond it, the worst %s by %.3g", v->beyond, things,
                     v->worst.where, v->worst.off);
        return out;
    }
    return NULL;
}

/* ---- bounds ---- */

ndp_updates_bounds ndp_updates_bounds_of(const ndp_config *c) {
    ndp_updates_bounds all = {.most_lr = INFINITY, .fixed = true};
    for (int i = -1; i < ndp_config_groups(c); i++) {
        ndp_strings params = {0};
        ndp_update_entry e = {.opts = ndp_config_optimizer(c), .lr_scale = 1};
        if (i < 0 || ndp_config_group(c, i, &params, &e) == NDP_OK) {
            const ndp_optimizer_bounds *own = &ndp_optimizers[e.opts.name]->bounds;
            all.fixed &= own->most_lr > 0;
            if (own->most_lr > 0 && e.lr_scale > 0)
                all.most_lr = fmin(all.most_lr, own->most_lr / e.lr_scale);
            all.spreads = fmax(all.spreads, own->spreads);
            all.codes |= ndp_optimizer_codes(e.opts.name);
        }
        ndp_strings_release(&params);
    }
    return all;
}

/* In bf16, where products are made in fp32, by the library or by our own kernels, few elements round differently, and
 * one of them in the first layer may be all there is: 0.54 of the distance from fp32 on tp 2, of a bias of keys, with
 * both. The spread says nothing then. */
ndp_bounds ndp_bounds_of(const ndp_config *c) {
    const ndp_updates_bounds own = ndp_updates_bounds_of(c);
    bool exact = c->precision.compute == NDP_F64, bf16 = c->precision.compute == NDP_BF16;
    bool moments = c->precision.states == NDP_BF16; /* where a layout's sums differ, some are rounded the other way */
    ndp_bounds b = {.spreads = bf16 || moments ? 2 : exact && !own.codes ? 0 : own.spreads};
    if (bf16)
        b.roundings = ndp_cpu_bf16_way() <= NDP_BF16_WIDENED ? 0.7 : 0.125;
    for (int m = 0; m < NDP_MEASURES; m++)
        if (exact || (own.fixed && !bf16) || m == NDP_MEASURE_FLIP_GAP || m == NDP_MEASURE_FLIPS)
            b.of[m] = exact ? measures[m].fp64 : measures[m].fp32;
    return b;
}

int ndp_spread_cuts(int global_batch, int together, int sizes[NDP_SPREAD_CUTS]) {
    int n = 0;
    for (int size = together; size <= global_batch && n < NDP_SPREAD_CUTS; size += together)
        if (global_batch % size == 0)
            sizes[n++] = size;
    return n;
}

int ndp_spread_runs(const ndp_bounds *b, int global_batch, int together, ndp_spread_run runs[NDP_SPREAD_RUNS]) {
    int n = 0, sizes[NDP_SPREAD_CUTS], cuts = ndp_spread_cuts(global_batch, together, sizes);
    for (int i = 0; i < cuts; i++)
        runs[n++] = (ndp_spread_run){.micro_batch = sizes[i]};
    for (int i = 0; i < NDP_SPLITS; i++)
        runs[n++] = (ndp_spread_run){.micro_batch = sizes[i % cuts], .split_place = i + 1};
    if (b->roundings > 0)
        runs[n++] = (ndp_spread_run){.micro_batch = together, .fp32 = true};
    return n;
}

static void raise_to(double *bound, double x) { *bound = x > *bound ? x : *bound; }

/* A gradient that is so far from another run's, of its size, is truly zero and made of roundings, which are independent
 * and of like size: two such differ by at most what both are, the other one up to twice as large. */
static const double all_rounding = 0.9, of_all_rounding = 3;

/* Raises the bounds to at least `times` the distances between runs x and y. */
static void measure_pair(ndp_bounds *b, double times, const ndp_outcome *x, const ndp_outcome *y) {
    for (int s = 0; s < x->steps; s++) {
        raise_to(&b->of[NDP_MEASURE_GRAD_NORM], times * relative_distance(x->norm[s], y->norm[s]));
        raise_to(&b->of[NDP_MEASURE_LOSS], times * relative_distance(x->loss[s], y->loss[s]));
    }
    if (!isnan(x->eval_loss))
        raise_to(&b->of[NDP_MEASURE_EVAL_LOSS], times * relative_distance(x->eval_loss, y->eval_loss));
    for (int k = 0; k < NDP_KEPT_WEIGHTS; k++) {
        if (k == NDP_KEPT_FIRST_GRADIENT && b->of[NDP_MEASURE_FIRST_GRADIENT] > 0)
            continue;
        double nothing = both_keep(x, y, k) ? nothing_of(x, k) : 0;
        for (int i = 0; i < x->n && both_keep(x, y, k); i++) {
            double apart = distance(x, y, k, i, nothing);
            raise_to(&b->tensors[k * x->n + i], apart > all_rounding ? of_all_rounding : times * apart);
        }
    }
    ndp_flips_measure(b, times, x, y);
    if (both_keep(x, y, NDP_KEPT_WEIGHTS))
        raise_to(&b->of[NDP_MEASURE_WEIGHTS], times * weights_distance(x, y, &(int){0}));
}

bool ndp_names_of_one_kind(const char *a, const char *b) {
    static const char digits[] = "0123456789";
    for (;; a++, b++) {
        a += strspn(a, digits);
        b += strspn(b, digits);
        if (*a != *b || !*a)
            return *a == *b;
    }
}

/* Gives the same tensor of all layers one bound, the largest: for a tensor with few elements, the runs on one rank show
 * too little of what rounding can do. */
static void share_between_layers(double *bounds, const ndp_outcome *o) {
    for (int i = 0; i < o->n; i++)
        for (int j = 0; j < o->n; j++)
            if (ndp_names_of_one_kind(o->names[i], o->names[j]))
                raise_to(&bounds[i], bounds[j]);
}

ndp_status ndp_bounds_measure(ndp_bounds *b, const ndp_outcome *runs, int n) {
    for (int i = 1; i < n; i++)
        NDP_TRY(check_alike(&runs[i], &runs[0]));
    b->tensors = calloc((size_t)(NDP_KEPT_WEIGHTS * runs[0].n), sizeof *b->tensors);
    NDP_CHECK_MEMORY(b->tensors, "for the bounds of %d tensors", runs[0].n);
    for (int i = 0; i < NDP_KEPT_WEIGHTS * runs[0].n; i++)
        b->tensors[i] = b->of[measure_of[i / runs[0].n]];
    bool fp32 = b->roundings > 0; /* the last run is in fp32 */
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            measure_pair(b, fp32 && i == n - 1 ? b->roundings : b->spreads, &runs[i], &runs[k]);
    for (int k = 0; k < NDP_KEPT_WEIGHTS; k++)
        share_between_layers(b->tensors + k * runs[0].n, &runs[0]);
    return NDP_OK;
}

void ndp_bounds_release(ndp_bounds *b) {
    free(b->tensors);
    b->tensors = NULL;
}
