/* ndp_verify_against: a dump is checked by its headers, then by its values, and compared with the same step on one
 * rank. The updated weights come from a second rank, which has all rows in one update. */
#include "verify/causes.h"

#include "base/clock.h"
#include "base/log.h"
#include "launch/memory_need.h"
#include "plan/job_memory.h"
#include "verify/outcome.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of gradients and loss: in fp32 as proof 3 has them (docs/proofs.md), and a tenth of that in fp64, where
 * transformers is off by 3e-7, as it makes RoPE, norms and the loss in fp32 then as well. */
static const double fp32_gradient = 2e-5, fp32_loss = 2e-6, fp64_gradient = 2e-6, fp64_loss = 2e-7;

double ndp_rounding_of(ndp_dtype t) {
    return t == NDP_BF16 ? 0x1p-8 : t == NDP_F16 ? 0x1p-11 : t == NDP_F32 ? 0x1p-24 : 0x1p-53;
}

ndp_dtype ndp_own_compute(const ndp_config *c) { return c->precision.compute == NDP_F64 ? NDP_F64 : NDP_F32; }

/* ---- distances ---- */

enum { BLOCK = 8192 };

static const char *name_of(const ndp_comparison *c, int tensor) { return c->judge->list.specs[tensor].name; }

/* Calls `each` with the elements of a tensor of the dump, block by block, and those of a sum. */
typedef void block_visitor(void *user, int64_t n, const double *dump, const double *sum);
static ndp_status visit_blocks(const ndp_comparison *c, int tensor, const ndp_judged *sum, block_visitor *each,
                               void *user) {
    double block[BLOCK];
    const double *own = sum->gradient + c->judge->first[tensor];
    int64_t all = c->judge->first[tensor + 1] - c->judge->first[tensor];
    for (int64_t at = 0; at < all; at += BLOCK) {
        int64_t n = all - at < BLOCK ? all - at : BLOCK;
        NDP_TRY(ndp_weights_read(c->dump->gradients, name_of(c, tensor), at, n, block, NDP_F64, true));
        each(user, n, block, own + at);
    }
    return NDP_OK;
}

static void add_products(void *user, int64_t n, const double *d, const double *s) {
    ndp_products *p = user;
    for (int64_t i = 0; i < n; i++)
        p->dd += d[i] * d[i], p->dc += d[i] * s[i], p->cc += s[i] * s[i];
}

ndp_status ndp_compare_products(const ndp_comparison *c, int tensor, const ndp_judged *sum, ndp_products *out) {
    *out = (ndp_products){0};
    return visit_blocks(c, tensor, sum, add_products, out);
}

typedef struct apart {
    double k, apart, d, s; /* squares */
} apart;

static void add_apart(void *user, int64_t n, const double *d, const double *s) {
    apart *a = user;
    for (int64_t i = 0; i < n; i++) {
        double own = a->k * s[i];
        a->apart += (d[i] - own) * (d[i] - own), a->d += d[i] * d[i], a->s += own * own;
    }
}

ndp_status ndp_compare_distance(const ndp_comparison *c, int tensor, const ndp_judged *sum, double k, double *out) {
    apart a = {.k = k};
    NDP_TRY(visit_blocks(c, tensor, sum, add_apart, &a));
    double nothing = c->nothing * c->nothing;
    *out = a.apart == 0 || (a.d <= nothing && a.s <= nothing) ? 0 : sqrt(a.apart / a.s);
    return NDP_OK;
}

/* ---- bounds ---- */

/* |a - b| / |b| of a tensor of two sums. */
static double distance_of(const ndp_judge *j, int tensor, const ndp_judged *a, const ndp_judged *b) {
    apart sum = {.k = 1};
    int64_t first = j->first[tensor];
    add_apart(&sum, j->first[tensor + 1] - first, a->gradient + first, b->gradient + first);
    return sum.apart == 0 ? 0 : sqrt(sum.apart / sum.s);
}

/* Raises the bounds by our own step in bf16: of gradients to the largest distance in all layers, and of the loss by the
 * distances of the rows, since those of a mean may cancel. */
static ndp_status raise_bounds(ndp_comparison *c, ndp_judge *half, ndp_judged *sum, double *losses) {
    double off = 0;
    NDP_TRY(ndp_judged_init(sum, half));
    NDP_TRY(ndp_judge_mean(half, c->rows, sum, losses));
    for (int i = 0; i < half->list.n; i++) {
        double bound = NDP_HALF_TIMES * distance_of(half, i, sum, &c->ours);
        for (int k = 0; k < half->list.n; k++)
            if (ndp_names_of_one_kind(half->list.specs[i].name, half->list.specs[k].name) && c->bounds[k] < bound)
                c->bounds[k] = bound;
    }
    for (int64_t row = 0; row < c->rows->n; row++)
        off += fabs(losses[row] - c->losses[row]);
    c->loss_bound += NDP_HALF_TIMES * off / c->ours.loss;
    return NDP_OK;
}

static ndp_status measure_half(ndp_comparison *c) {
    ndp_judge half;
    ndp_judged sum = {0};
    double *losses = calloc((size_t)c->rows->n, sizeof *losses);
    NDP_CHECK_MEMORY(losses, "for the losses of %lld rows", (long long)c->rows->n);
    ndp_status st = ndp_judge_open(c->config, c->dump, 1, NDP_BF16, &half);
    if (st == NDP_OK) {
        st = raise_bounds(c, &half, &sum, losses);
        ndp_judge_close(&half);
    }
    ndp_judged_release(&sum);
    free(losses);
    return st;
}

/* Those of fp64 hold if we compute in it, and the dump stores all gradients so. */
static ndp_status find_bounds(ndp_comparison *c) {
    const ndp_judge *j = c->judge;
    bool exact = j->config.precision.compute == NDP_F64;
    double squares = 0;
    c->bounds = calloc((size_t)j->list.n, sizeof *c->bounds);
    NDP_CHECK_MEMORY(c->bounds, "for the bounds of %d tensors", j->list.n);
    for (int64_t i = 0; i < j->first[j->list.n]; i++)
        squares += c->ours.gradient[i] * c->ours.gradient[i];
    c->nothing = sqrt(squares) * (exact ? 1e-15 : 1e-7);
    for (int i = 0; i < j->list.n; i++) {
        ndp_dtype stored = ndp_weights_find(c->dump->gradients, name_of(c, i))->spec.dtype;
        exact &= stored == NDP_F64;
        c->bounds[i] = ndp_rounding_of(stored);
    }
    for (int i = 0; i < j->list.n; i++)
        c->bounds[i] += exact ? fp64_gradient : fp32_gradient;
    ndp_dtype stored = ndp_safetensors_find(c->dump->batch, "loss")->spec.dtype;
    c->loss_bound = (exact ? fp64_loss : fp32_loss) + ndp_rounding_of(stored);
    return c->config->precision.compute == NDP_BF16 ? measure_half(c) : NDP_OK;
}

/* ---- the verdict ---- */

static ndp_status compare_gradients(const ndp_comparison *c, ndp_against *out) {
    const ndp_tensor_list *list = &c->judge->list;
    out->gradients = calloc((size_t)list->n, sizeof *out->gradients);
    NDP_CHECK_MEMORY(out->gradients, "for the distances of %d tensors", list->n);
    for (; out->n < list->n; out->n++) {
        ndp_against_tensor *t = &out->gradients[out->n];
        t->bound = c->bounds[out->n];
        NDP_TRY(ndp_compare_distance(c, out->n, &c->ours, 1, &t->off));
        t->agrees = t->off <= t->bound;
        t->name = strdup(name_of(c, out->n));
        NDP_CHECK_MEMORY(t->name, "for the name of a tensor");
    }
    return ndp_weights_intact(c->dump->gradients);
}

static void set_verdict(ndp_against *a) {
    a->agrees = a->tokens[0] == a->tokens[1] && fabs(a->loss[0] / a->loss[1] - 1) <= a->loss_bound;
    for (int i = 0; i < a->n; i++)
        a->agrees &= a->gradients[i].agrees;
    a->agrees &= !a->has_logits || a->logits_off <= a->logits_bound;
    a->agrees &= !a->has_weights || a->weights_off <= a->weights_bound;
}

static ndp_status compare(ndp_comparison *c, ndp_against *out) {
    NDP_TRY(ndp_judged_init(&c->ours, c->judge));
    c->losses = calloc((size_t)c->rows->n, sizeof *c->losses);
    NDP_CHECK_MEMORY(c->losses, "for the losses of %lld rows", (long long)c->rows->n);
    NDP_TRY(ndp_judge_mean(c->judge, c->rows, &c->ours, c->losses));
    NDP_TRY(find_bounds(c));
    out->tokens[0] = c->dump->tokens, out->tokens[1] = c->ours.tokens;
    out->loss[0] = c->dump->loss, out->loss[1] = c->ours.loss;
    out->loss_bound = c->loss_bound;
    NDP_TRY(compare_gradients(c, out));
    NDP_TRY(ndp_find_causes(c, out));
    NDP_TRY(ndp_compare_logits(c, out));
    NDP_TRY(ndp_compare_updates(c, out));
    set_verdict(out);
    return NDP_OK;
}

static ndp_status judge(const ndp_config *c, const ndp_against_opts *o, const ndp_dump *d, const ndp_dump_rows *rows,
                        ndp_against *out) {
    ndp_judge j;
    NDP_TRY(ndp_judge_open(c, d, 1, ndp_own_compute(c), &j));
    ndp_comparison of = {.config = c, .opts = o, .dump = d, .rows = rows, .judge = &j};
    ndp_status st = compare(&of, out);
    ndp_judged_release(&of.ours);
    free(of.bounds);
    free(of.losses);
    ndp_judge_close(&j);
    return st;
}

/* ---- before anything runs ---- */

/* Sums that are in memory at once: ours and two that are tried, or the weights before and after updates. */
enum { SUMS = 4 };

/* Bytes of the rank that makes the update. */
static ndp_status update_bytes(const ndp_config *c, const ndp_dump *d, int64_t *bytes) {
    ndp_config all;
    ndp_job j;
    NDP_TRY(ndp_judge_config(c, d, (int)d->rows, ndp_own_compute(c), &all));
    ndp_status st = ndp_job_init(&all, 1, &j);
    if (st == NDP_OK) {
        st = ndp_job_memory(&j, 0, bytes);
        ndp_job_release(&j);
    }
    ndp_config_release(&all);
    return st;
}

static ndp_status check_need(const ndp_config *c, int64_t rank, int64_t besides) {
    static const ndp_log log = {NDP_LOG_INFO, 0};
    const ndp_memory_need n = {.rank = rank,
                               .ranks = 1,
                               .mapped = 1,
                               .besides = besides,
                               .what = "the comparison with a dump",
                               .less = "It computes the step on one rank. Dump a smaller model of the same kind, or "
                                       "shorter or fewer rows"};
    return ndp_memory_check(&n, c->train.force_memory, &log);
}

/* The program of the update grows with the rows, so what rows need is checked before. */
static ndp_status check_memory(const ndp_config *c, const ndp_dump *d, const ndp_job *j) {
    int64_t bytes, update, besides = SUMS * j->spec.parameters * (int64_t)sizeof(double);
    besides += 4 * d->rows * d->length * (int64_t)sizeof(int32_t);
    NDP_TRY(ndp_job_memory(j, 0, &bytes));
    NDP_TRY(check_need(c, bytes, besides));
    if (!d->weights)
        return NDP_OK;
    NDP_TRY(update_bytes(c, d, &update));
    return check_need(c, bytes + update, besides);
}

static ndp_status check_fits(const ndp_config *c, const ndp_dump *d, const ndp_job *j) {
    ndp_model m;
    NDP_TRY(ndp_model_build(&j->spec, &j->model, &m));
    ndp_status st = ndp_dump_check_model(d, &m);
    ndp_model_release(&m);
    return st == NDP_OK ? check_memory(c, d, j) : st;
}

/* The job of one rank for the dump's rows; *vocab: of its model. */
static ndp_status check_dump(const ndp_config *c, const ndp_dump *d, int64_t *vocab) {
    ndp_config one;
    ndp_job j;
    NDP_TRY(ndp_judge_config(c, d, 1, ndp_own_compute(c), &one));
    ndp_status st = ndp_job_init(&one, 1, &j);
    if (st != NDP_OK) {
        char why[1024];
        snprintf(why, sizeof why, "%s", ndp_error_message());
        st = NDP_FAIL(st, "the job for the dump %s, whose rows have %lld tokens: %s", d->folder, (long long)d->length,
                      why);
    } else {
        *vocab = j.spec.vocab;
        st = ndp_dump_check_logits(d, j.spec.vocab);
        if (st == NDP_OK)
            st = check_fits(c, d, &j);
        ndp_job_release(&j);
    }
    ndp_config_release(&one);
    return st;
}

static ndp_status against_dump(const ndp_config *c, const ndp_against_opts *o, const ndp_dump *d, ndp_against *out) {
    int64_t vocab;
    ndp_dump_rows rows;
    double start = ndp_now();
    NDP_TRY(ndp_check_update(c, d));
    NDP_TRY(check_dump(c, d, &vocab));
    NDP_TRY(ndp_dump_read_rows(d, vocab, &rows));
    ndp_status st = ndp_dump_check_values(d);
    if (st == NDP_OK)
        st = judge(c, o, d, &rows, out);
    ndp_dump_rows_release(&rows);
    NDP_TRY(st);
    out->rows = d->rows, out->length = d->length;
    out->seconds = ndp_now() - start;
    ndp_say(o->say, o->user, "one rank, %lld row%s of %lld tokens: %.1f s", (long long)d->rows, d->rows == 1 ? "" : "s",
            (long long)d->length, out->seconds);
    return NDP_OK;
}

ndp_status ndp_verify_against(const ndp_config *c, const ndp_against_opts *o, ndp_against *out) {
    NDP_NOT_NULL(c, o, out);
    NDP_NOT_NULL(o->folder);
    ndp_dump d;
    *out = (ndp_against){0};
    NDP_TRY(ndp_device_check(c));
    NDP_TRY(ndp_dump_check_job(c));
    NDP_TRY(ndp_dump_open(o->folder, &d));
    ndp_status st = against_dump(c, o, &d, out);
    ndp_dump_close(&d);
    if (st != NDP_OK)
        ndp_against_release(out);
    return st;
}

ndp_status ndp_add_cause(ndp_against *out, const char *format, ...) {
    va_list args;
    char **grown = realloc(out->causes, ((size_t)out->n_causes + 1) * sizeof *grown);
    out->causes = grown ? grown : out->causes;
    va_start(args, format);
    char *text = grown ? ndp_vformat(format, args) : NULL;
    va_end(args);
    NDP_CHECK_MEMORY(text, "for a text");
    out->causes[out->n_causes++] = text;
    return NDP_OK;
}

void ndp_against_release(ndp_against *a) {
    if (!a)
        return;
    for (int i = 0; i < a->n; i++)
        free(a->gradients[i].name);
    for (int i = 0; i < a->n_causes; i++)
        free(a->causes[i]);
    free(a->gradients);
    free(a->causes);
    *a = (ndp_against){0};
}
