/* Reading a dump as sums that faults would make, and the lines that say so. The sums are those of trials.c. */
#include "verify/causes.h"

#include "base/text.h"
#include "verify/outcome.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lines ---- */

static ndp_status add_line(ndp_finder *f, ndp_str *line) {
    char **grown = realloc(f->out->causes, ((size_t)f->out->n_causes + 1) * sizeof *grown);
    if (grown)
        f->out->causes = grown;
    char *text = ndp_str_detach(line);
    if (!grown || !text) {
        free(text);
        return NDP_FAIL(NDP_ENOMEM, "no memory for a text");
    }
    f->out->causes[f->out->n_causes++] = text;
    return NDP_OK;
}

static const char *name_of(const ndp_finder *f, int tensor) { return f->out->gradients[tensor].name; }

/* The name with * for its numbers. */
static void add_kind(ndp_str *s, const char *name) {
    static const char digits[] = "0123456789";
    while (*name) {
        size_t plain = strcspn(name, digits), number = strspn(name + plain, digits);
        bool whole = number && (plain == 0 || name[plain - 1] == '.') && (name[plain + number] == '.');
        ndp_str_add_bytes(s, name, whole ? plain : plain + number);
        if (whole)
            ndp_str_add(s, "*");
        name += plain + number;
    }
}

/* Names `n` tensors, a name for those of a kind. */
static void add_names(const ndp_finder *f, const int *tensors, int n, ndp_str *s) {
    enum { KINDS = 6 };
    int kinds = 0, named = 0;
    if (n == f->out->n && n > 1) {
        ndp_str_addf(s, "all %d gradients", n);
        return;
    }
    for (int i = 0; i < n; i++) {
        int alike = 1;
        bool again = false;
        for (int k = 0; k < i; k++)
            again |= ndp_names_of_one_kind(name_of(f, tensors[k]), name_of(f, tensors[i]));
        for (int k = i + 1; k < n; k++)
            alike += ndp_names_of_one_kind(name_of(f, tensors[k]), name_of(f, tensors[i]));
        if (again || kinds++ >= KINDS)
            continue;
        ndp_str_add(s, kinds > 1 ? ", " : "");
        if (alike > 1)
            add_kind(s, name_of(f, tensors[i]));
        else
            ndp_str_add(s, name_of(f, tensors[i]));
        named += alike;
    }
    if (named < n)
        ndp_str_addf(s, " and %d other%s", n - named, n - named == 1 ? "" : "s");
}

/* ---- readings ---- */

/* Whether a tensor is open, and equal to a reading. */
static ndp_status is_reading(const ndp_finder *f, int tensor, const ndp_judged *sum, double factor, bool *out) {
    double off = INFINITY;
    if (f->open[tensor])
        NDP_TRY(ndp_compare_distance(f->c, tensor, sum, factor, &off));
    *out = off <= f->c->bounds[tensor];
    return NDP_OK;
}

static bool loss_is(const ndp_finder *f, double loss) {
    return loss != 0 && fabs(f->out->loss[0] / loss - 1) <= f->c->loss_bound;
}

/* "all 20 gradients and the loss are 0.500 of ours: " or "... is/are " */
static void add_subject(const ndp_finder *f, int n, bool loss, bool tokens, ndp_str *s) {
    if (n)
        add_names(f, f->fit, n, s);
    if (loss)
        ndp_str_add(s, n ? tokens ? ", the loss" : " and the loss" : "the loss");
    if (tokens)
        ndp_str_add(s, n || loss ? " and the number of tokens" : "the number of tokens");
    ndp_str_add(s, n + loss + tokens > 1 ? " are " : " is ");
}

static ndp_status try_reading(ndp_finder *f, const ndp_judged *sum, const ndp_reading *r, bool times) {
    int n = 0;
    ndp_str line = {0};
    for (int i = 0; i < f->out->n; i++) {
        bool fits;
        NDP_TRY(is_reading(f, i, sum, r->factor, &fits));
        if (!fits)
            continue;
        f->fit[n++] = i;
        f->open[i] = false;
        f->n_open--;
    }
    bool loss = f->open_loss && loss_is(f, r->factor * sum->loss);
    bool tokens = f->open_tokens && (n || loss) && sum->tokens == f->out->tokens[0];
    f->open_loss &= !loss, f->open_tokens &= !tokens;
    f->n_open -= loss + tokens;
    if (n == 0 && !loss)
        return NDP_OK;
    add_subject(f, n, loss, tokens, &line);
    if (times)
        ndp_str_addf(&line, "%.3f of ours: ", r->factor);
    ndp_str_add(&line, r->words);
    return add_line(f, &line);
}

ndp_status ndp_try_readings(ndp_finder *f, const ndp_judged *sum, const ndp_reading *readings, int n, bool times) {
    for (int i = 0; i < n && f->n_open > 0; i++)
        NDP_TRY(try_reading(f, sum, &readings[i], times));
    return NDP_OK;
}

ndp_status ndp_count_readings(ndp_finder *f, const ndp_judged *sum, const ndp_reading *readings, int n, int *out) {
    *out = 0;
    for (int i = 0; i < f->out->n; i++)
        for (int k = 0; k < n; k++) {
            bool fits;
            NDP_TRY(is_reading(f, i, sum, readings[k].factor, &fits));
            *out += fits;
        }
    return NDP_OK;
}

/* ---- what no cause fits ---- */

/* The factor of a tensor that is a multiple of ours, or NaN. */
static ndp_status multiple_of(const ndp_finder *f, int tensor, double *out) {
    ndp_products p;
    double off;
    *out = NAN;
    NDP_TRY(ndp_compare_products(f->c, tensor, &f->c->ours, &p));
    if (p.cc == 0 || p.dc == 0)
        return NDP_OK;
    NDP_TRY(ndp_compare_distance(f->c, tensor, &f->c->ours, p.dc / p.cc, &off));
    if (off <= f->c->bounds[tensor])
        *out = p.dc / p.cc;
    return NDP_OK;
}

/* One line for those that are multiples of ours, each with its factor, and one for all others. */
static ndp_status say_none(ndp_finder *f) {
    int n = 0;
    for (int i = 0; i < f->out->n; i++) {
        double factor = NAN;
        if (f->open[i])
            NDP_TRY(multiple_of(f, i, &factor));
        if (f->open[i] && isfinite(factor)) {
            ndp_str line = {0};
            ndp_str_addf(&line, "%s is %.4f of ours: no cause that we know fits", name_of(f, i), factor);
            NDP_TRY(add_line(f, &line));
        } else if (f->open[i]) {
            f->fit[n++] = i;
        }
    }
    if (n == 0 && !f->open_loss && !f->open_tokens)
        return NDP_OK;
    ndp_str line = {0};
    if (n)
        add_names(f, f->fit, n, &line);
    if (f->open_loss)
        ndp_str_add(&line, n ? ", the loss" : "the loss");
    if (f->open_tokens)
        ndp_str_add(&line, n || f->open_loss ? ", the number of tokens" : "the number of tokens");
    ndp_str_add(&line, ": no cause that we know fits");
    return add_line(f, &line);
}

/* ---- all of it ---- */

static ndp_status begin(ndp_finder *f) {
    const ndp_dump_rows *rows = f->c->rows;
    f->open = calloc((size_t)f->out->n, sizeof *f->open);
    f->fit = calloc((size_t)f->out->n, sizeof *f->fit);
    if (!f->open || !f->fit)
        return NDP_FAIL(NDP_ENOMEM, "no memory for a list of %d tensors", f->out->n);
    for (int i = 0; i < f->out->n; i++)
        f->n_open += f->open[i] = !f->out->gradients[i].agrees;
    f->open_tokens = f->out->tokens[0] != f->out->tokens[1];
    f->open_loss = !loss_is(f, f->out->loss[1]);
    f->n_open += f->open_tokens + f->open_loss;
    f->tokens = (double)f->c->ours.tokens;
    if (f->n_open == 0)
        return NDP_OK;
    NDP_TRY(ndp_judged_init(&f->sum, f->c->judge));
    NDP_TRY(ndp_judged_init(&f->other, f->c->judge));
    return ndp_dump_rows_init(&f->trial, rows->n, rows->length);
}

ndp_status ndp_find_causes(ndp_comparison *c, ndp_against *out) {
    ndp_finder f = {.c = c, .out = out};
    ndp_status st = begin(&f);
    if (st == NDP_OK && f.n_open > 0)
        st = ndp_try_all(&f);
    if (st == NDP_OK && f.n_open > 0)
        st = say_none(&f);
    ndp_dump_rows_release(&f.trial);
    ndp_judged_release(&f.sum);
    ndp_judged_release(&f.other);
    free(f.open);
    free(f.fit);
    return st;
}
