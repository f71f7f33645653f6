/* The sums that faults of trainers would make, each computed from the dump's rows, from those that need no step to
 * those that need many. */
#include "verify/trials.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_RANKS = 8 };

/* ---- sums ---- */

void ndp_begin_sum(ndp_finder *f) {
    const ndp_judge *j = f->c->judge;
    memset(f->sum.gradient, 0, (size_t)j->first[j->list.n] * sizeof *f->sum.gradient);
    f->sum.loss = 0;
    f->sum.tokens = 0;
}

ndp_status ndp_add_rows(ndp_finder *f, const ndp_dump_rows *rows, int64_t first, int64_t end, int64_t step,
                        double weight) {
    for (int64_t row = first; row < end; row += step)
        NDP_TRY(ndp_judge_add(f->c->judge, rows, row, weight / f->tokens, &f->sum));
    return NDP_OK;
}

ndp_status ndp_sum_trial(ndp_finder *f) {
    ndp_begin_sum(f);
    return ndp_add_rows(f, &f->trial, 0, f->trial.n, 1, 1);
}

int ndp_read_both(const ndp_finder *f, const ndp_judged *sum, const char *words, const char *as_it_is,
                  ndp_reading out[2]) {
    bool fewer = sum->tokens > 0 && sum->tokens < f->c->ours.tokens;
    out[0].factor = 1;
    out[1].factor = fewer ? f->tokens / (double)sum->tokens : 1;
    snprintf(out[0].words, sizeof out[0].words, "%s%s", words, fewer ? as_it_is : "");
    snprintf(out[1].words, sizeof out[1].words, "%s, divided by their own tokens", words);
    return sum->tokens == 0 ? 0 : fewer ? 2 : 1;
}

ndp_status ndp_try_both(ndp_finder *f, const char *words) {
    ndp_reading r[2];
    return ndp_try_readings(f, &f->sum, r, ndp_read_both(f, &f->sum, words, NDP_OF_ALL, r), false);
}

/* ---- multiples of ours ---- */

static ndp_status try_numbers(ndp_finder *f) {
    enum { MOST = 64 };
    for (int n = 2; n <= MOST && !ndp_found_all(f); n++) {
        ndp_reading r[2] = {{1.0 / n, ""}, {n, ""}};
        snprintf(r[0].words, sizeof r[0].words, "like a sum over %d ranks that is missing", n);
        snprintf(r[1].words, sizeof r[1].words, "like what is counted %d times", n);
        NDP_TRY(ndp_try_readings(f, &f->c->ours, r, 2, true));
    }
    return NDP_OK;
}

static ndp_status try_divisions(ndp_finder *f) {
    double rows = (double)f->c->rows->n, length = (double)f->c->rows->length;
    const ndp_reading r[] = {
        {f->tokens, "like a sum over tokens that is not divided by their number"},
        {f->tokens / rows, "like a division by the rows instead of the tokens"},
        {f->tokens / (rows * length), "like a division by all columns instead of the tokens that are predicted"},
        {f->tokens / (rows * (length - 1)),
         "like a division by all columns but the first instead of the tokens that are predicted"}};
    for (int i = 0; i < NDP_COUNT(r); i++)
        if (fabs(r[i].factor - 1) > 1e-3)
            NDP_TRY(ndp_try_readings(f, &f->c->ours, &r[i], 1, true));
    return NDP_OK;
}

/* 0.5, 1, 20: what a user may have chosen. */
static bool is_one_digit(double x) {
    double unit = pow(10, floor(log10(x * (1 + 1e-5)))), digit = round(x / unit);
    return fabs(x / (digit * unit) - 1) < 1e-5;
}

/* All gradients are ours times the factor that gives them a norm to which trainers clip. */
static ndp_status try_clipping(ndp_finder *f) {
    double dump = 0, ours = 0;
    for (int i = 0; i < f->out->n; i++) {
        ndp_products p;
        if (!f->open[i])
            return NDP_OK;
        NDP_TRY(ndp_compare_products(f->c, i, &f->c->ours, &p));
        dump += p.dd, ours += p.cc;
    }
    double norm = sqrt(dump), most = f->c->config->optimizer.max_grad_norm;
    bool known = (most > 0 && fabs(norm / most - 1) < 1e-4) || is_one_digit(norm), clipped = norm < sqrt(ours) && known;
    if (!clipped)
        return NDP_OK;
    ndp_reading r = {norm / sqrt(ours), ""};
    snprintf(r.words, sizeof r.words, "like gradients that are clipped already, to a norm of %.4g", norm);
    return ndp_try_readings(f, &f->c->ours, &r, 1, true);
}

/* d = ours + k x weights: the k of a tensor that is so. */
static ndp_status try_decay(ndp_finder *f) {
    const ndp_judge *j = f->c->judge;
    double k = 0;
    ndp_begin_sum(f);
    NDP_TRY(ndp_judge_weights(f->c->judge, &f->sum));
    for (int i = 0; i < f->out->n && k == 0; i++) {
        ndp_products p;
        double ow = 0;
        if (!f->open[i])
            continue;
        NDP_TRY(ndp_compare_products(f->c, i, &f->sum, &p));
        for (int64_t e = j->first[i]; e < j->first[i + 1]; e++)
            ow += f->c->ours.gradient[e] * f->sum.gradient[e];
        k = p.cc > 0 ? (p.dc - ow) / p.cc : 0;
    }
    for (int64_t e = 0; e < j->first[j->list.n]; e++)
        f->sum.gradient[e] = f->c->ours.gradient[e] + k * f->sum.gradient[e];
    ndp_reading r = {1, ""};
    snprintf(r.words, sizeof r.words, "like ours plus %.4g of the weights: weight decay is in the gradients", k);
    return k > 0 ? ndp_try_readings(f, &f->sum, &r, 1, false) : NDP_OK;
}

/* ---- some of the rows ---- */

/* Rows of a rank of n: a block of neighbours, or every n-th. */
typedef struct row_part {
    int64_t first, end, step;
    char words[96];
} row_part;

static row_part rows_of_rank(int64_t rows, int n, int rank, bool turns) {
    row_part p = {rank * rows / n, (rank + 1) * rows / n, 1, ""};
    if (turns)
        p = (row_part){rank, rows, n, ""};
    if (turns)
        snprintf(p.words, sizeof p.words, "rows %d, %d, ... of %lld", rank, rank + n, (long long)rows);
    else if (p.end - p.first == 1)
        snprintf(p.words, sizeof p.words, "row %lld", (long long)p.first);
    else
        snprintf(p.words, sizeof p.words, "rows %lld to %lld", (long long)p.first, (long long)p.end - 1);
    return p;
}

/* f->sum becomes ours without it. */
static void take_complement(ndp_finder *f) {
    const ndp_judge *j = f->c->judge;
    for (int64_t e = 0; e < j->first[j->list.n]; e++)
        f->sum.gradient[e] = f->c->ours.gradient[e] - f->sum.gradient[e];
    f->sum.loss = f->c->ours.loss - f->sum.loss;
    f->sum.tokens = f->c->ours.tokens - f->sum.tokens;
}

/* A rank of n: what it has alone, and n times that, where a mean over the ranks is missing. */
static ndp_status try_row_part(ndp_finder *f, const row_part *p, int n, bool others) {
    char words[160];
    ndp_reading times = {n, ""};
    ndp_begin_sum(f);
    NDP_TRY(ndp_add_rows(f, f->c->rows, p->first, p->end, p->step, 1));
    if (f->sum.tokens) {
        ndp_reading r = {f->tokens / (double)f->sum.tokens, ""};
        snprintf(r.words, sizeof r.words, "like a division by the tokens of %s instead of all", p->words);
        NDP_TRY(ndp_try_readings(f, &f->c->ours, &r, 1, true));
    }
    snprintf(words, sizeof words, "like %s alone", p->words);
    NDP_TRY(ndp_try_both(f, words));
    snprintf(times.words, sizeof times.words, "like %s alone, divided by the tokens of all and multiplied by %d",
             p->words, n);
    NDP_TRY(ndp_try_readings(f, &f->sum, &times, 1, false));
    if (!others || ndp_found_all(f))
        return NDP_OK;
    take_complement(f);
    snprintf(words, sizeof words, "like all rows but %s", strchr(p->words, ' ') + 1);
    return ndp_try_both(f, words);
}

/* Of n parts the mean, and the sum, of what each has over its own tokens. */
static ndp_status try_means(ndp_finder *f, int n, bool turns) {
    ndp_reading r[2] = {{1, ""}, {n, ""}};
    const char *which = turns ? "one row in turn" : "blocks of neighbours";
    ndp_begin_sum(f);
    for (int rank = 0; rank < n; rank++) {
        row_part p = rows_of_rank(f->c->rows->n, n, rank, turns);
        int64_t tokens = 0;
        for (int64_t row = p.first; row < p.end; row += p.step)
            tokens += ndp_dump_row_tokens(f->c->rows, row);
        if (tokens)
            NDP_TRY(ndp_add_rows(f, f->c->rows, p.first, p.end, p.step, f->tokens / (double)tokens / n));
    }
    f->sum.tokens = 0; /* it says nothing about their number */
    snprintf(
        r[0].words, sizeof r[0].words,
        "like the mean over %d parts of the rows, %s, of the mean over the tokens of each, instead of the mean over "
        "all tokens",
        n, which);
    snprintf(
        r[1].words, sizeof r[1].words,
        "like the sum over %d parts of the rows, %s, of the mean over the tokens of each, instead of the mean over "
        "all tokens",
        n, which);
    return ndp_try_readings(f, &f->sum, r, 2, false);
}

static ndp_status try_rows(ndp_finder *f) {
    int64_t rows = f->c->rows->n;
    for (int64_t n = 2; n <= rows && !ndp_found_all(f); n++) {
        if (rows % n || (n > MOST_RANKS && n != rows))
            continue;
        for (int turns = 0; turns <= (n < rows) && !ndp_found_all(f); turns++) {
            NDP_TRY(try_means(f, (int)n, turns));
            for (int rank = 0; rank < n && !ndp_found_all(f); rank++) {
                row_part p = rows_of_rank(rows, (int)n, rank, turns);
                NDP_TRY(try_row_part(f, &p, (int)n, n > 2 && !turns));
            }
        }
    }
    return NDP_OK;
}

ndp_status ndp_try_all(ndp_finder *f) {
    static ndp_status (*const trials[])(ndp_finder *) = {try_clipping, try_numbers,       try_divisions,
                                                         try_decay,    ndp_try_documents, ndp_try_routers,
                                                         try_rows,     ndp_try_parts,     ndp_try_columns};
    for (int i = 0; i < NDP_COUNT(trials) && !ndp_found_all(f); i++)
        NDP_TRY(trials[i](f));
    return NDP_OK;
}
