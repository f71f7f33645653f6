/* Reading a dump as sums that faults would make, and the lines that say so. The sums are those of trials.c. */
#include "verify/causes.h"

#include "base/arena.h"
#include "base/log.h"
#include "base/text.h"
#include "verify/outcome.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lines ---- */

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

/* Names the tensors of a cause, one name for those of a kind. Returns how many they are. */
static int add_names(const ndp_finder *f, int cause, ndp_str *s) {
    enum { KINDS = 6 };
    int kinds = 0, named = 0, n = 0;
    for (int i = 0; i < f->out->n; i++)
        n += f->cause_of[i] == cause;
    if (n == f->out->n && n > 1) {
        ndp_str_addf(s, "all %d gradients", n);
        return n;
    }
    for (int i = 0; i < f->out->n; i++) {
        int alike = 0, all = 0, first = NDP_NONE;
        for (int k = 0; k < f->out->n && f->cause_of[i] == cause; k++) {
            if (!ndp_names_of_one_kind(name_of(f, k), name_of(f, i)))
                continue;
            all++;
            if (f->cause_of[k] == cause && alike++ == 0)
                first = k;
        }
        if (first != i || kinds++ >= KINDS)
            continue;
        ndp_str_add(s, kinds > 1 ? ", " : "");
        if (alike > 1)
            add_kind(s, name_of(f, i));
        else
            ndp_str_add(s, name_of(f, i));
        if (alike > 1 && alike < all)
            ndp_str_addf(s, " (%d of %d)", alike, all);
        named += alike;
    }
    if (named < n)
        ndp_str_addf(s, " and %d other%s", n - named, n - named == 1 ? "" : "s");
    return n;
}

/* The first of a cause in the order of the backward, and how many come after it. Returns how many they are. */
static int add_first(const ndp_finder *f, int cause, ndp_str *s) {
    int n = 0, first = 0;
    for (int i = 0; i < f->out->n; i++)
        if (f->cause_of[i] == cause)
            n++, first = i; /* the list is in the order of the forward */
    ndp_str_add(s, name_of(f, first));
    if (n > 1)
        ndp_str_addf(s, ", and what inherits from it in %d other gradient%s,", n - 1, n == 2 ? "" : "s");
    return n;
}

/* "all 20 gradients, the loss and the number of tokens are like rows 0 to 3 alone" */
static char *text_of(const ndp_finder *f, int cause) {
    const ndp_cause *c = &f->causes[cause];
    ndp_str s = {0};
    int n = c->spreads ? add_first(f, cause, &s) : add_names(f, cause, &s);
    if (c->loss)
        ndp_str_addf(&s, "%sthe loss", n == 0 ? "" : c->tokens ? ", " : " and ");
    if (c->tokens)
        ndp_str_addf(&s, "%sthe number of tokens", n || c->loss ? " and " : "");
    ndp_str_addf(&s, " %s %s", n + c->loss + c->tokens > 1 ? "are" : "is", c->words);
    return ndp_str_detach(&s);
}

static ndp_status write_lines(const ndp_finder *f) {
    for (int i = 0; i < f->n_causes; i++) {
        char *text = text_of(f, i);
        ndp_status st = text ? ndp_add_cause(f->out, "%s", text) : NDP_FAIL(NDP_ENOMEM, "not enough memory for a text");
        free(text);
        NDP_TRY(st);
    }
    return NDP_OK;
}

/* The cause with these words, new or found before. */
static ndp_status find_cause(ndp_finder *f, const char *words, int *out) {
    for (*out = 0; *out < f->n_causes; ++*out)
        if (strcmp(f->causes[*out].words, words) == 0)
            return NDP_OK;
    NDP_TRY(ndp_array_reserve(&f->causes, &f->cause_capacity, f->n_causes + 1, sizeof *f->causes));
    f->causes[f->n_causes] = (ndp_cause){0};
    snprintf(f->causes[f->n_causes++].words, sizeof f->causes->words, "%s", words);
    return NDP_OK;
}

static void close_tensor(ndp_finder *f, int tensor, int cause) {
    f->cause_of[tensor] = cause;
    f->open[tensor] = false;
    f->n_open--;
}

static void close_loss(ndp_finder *f, int cause) {
    f->causes[cause].loss = true;
    f->open_loss = false;
    f->n_open--;
}

static void close_tokens(ndp_finder *f, int cause) {
    f->causes[cause].tokens = true;
    f->open_tokens = false;
    f->n_open--;
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

static ndp_status try_reading(ndp_finder *f, const ndp_judged *sum, const ndp_reading *r, bool times) {
    char words[sizeof f->causes->words];
    int cause = NDP_NONE;
    bool loss = f->open_loss && loss_is(f, r->factor * sum->loss);
    if (times)
        snprintf(words, sizeof words, "%.3f of ours: %s", r->factor, r->words);
    else
        snprintf(words, sizeof words, "%s", r->words);
    for (int i = 0; i < f->out->n; i++) {
        bool fits;
        NDP_TRY(is_reading(f, i, sum, r->factor, &fits));
        if (!fits)
            continue;
        NDP_TRY(find_cause(f, words, &cause));
        f->causes[cause].spreads = f->spreads;
        close_tensor(f, i, cause);
    }
    if (loss) {
        NDP_TRY(find_cause(f, words, &cause));
        close_loss(f, cause);
    }
    if (f->open_tokens && cause != NDP_NONE && sum->tokens == f->out->tokens[0])
        close_tokens(f, cause);
    return NDP_OK;
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

/* Whether a cause was found that everything after it in the backward inherits. Ranks that go on from different
 * gradients then make sums that no rank has alone. */
static bool has_spread(const ndp_finder *f) {
    for (int i = 0; i < f->n_causes; i++)
        if (f->causes[i].spreads)
            return true;
    return false;
}

/* Those that are multiples of ours are said with their factor. */
static ndp_status say_none(ndp_finder *f) {
    const char *none =
        has_spread(f) ? "different too: no known cause of their own fits" : "different: no known cause fits";
    int cause;
    for (int i = 0; i < f->out->n; i++) {
        char words[96];
        double factor;
        if (!f->open[i])
            continue;
        NDP_TRY(multiple_of(f, i, &factor));
        snprintf(words, sizeof words, "%.4f of ours: no known cause fits", factor);
        NDP_TRY(find_cause(f, isfinite(factor) ? words : none, &cause));
        close_tensor(f, i, cause);
    }
    if (f->open_loss || f->open_tokens)
        NDP_TRY(find_cause(f, none, &cause));
    if (f->open_loss)
        close_loss(f, cause);
    if (f->open_tokens)
        close_tokens(f, cause);
    return NDP_OK;
}

/* ---- all of it ---- */

static ndp_status begin(ndp_finder *f) {
    const ndp_dump_rows *rows = f->c->rows;
    f->open = calloc((size_t)f->out->n, sizeof *f->open);
    f->cause_of = malloc((size_t)f->out->n * sizeof *f->cause_of);
    NDP_CHECK_MEMORY(f->open && f->cause_of, "for a list of %d tensors", f->out->n);
    for (int i = 0; i < f->out->n; i++) {
        f->cause_of[i] = NDP_NONE;
        f->n_open += f->open[i] = !f->out->gradients[i].agrees;
    }
    f->open_tokens = f->out->tokens[0] != f->out->tokens[1];
    f->open_loss = !loss_is(f, f->out->loss[1]);
    f->n_open += f->open_tokens + f->open_loss;
    f->tokens = (double)f->c->ours.tokens;
    if (f->n_open == 0)
        return NDP_OK;
    ndp_say(f->c->opts->say, f->c->opts->user, "it differs; computing what known faults would give");
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
    if (st == NDP_OK)
        st = write_lines(&f);
    ndp_dump_rows_release(&f.trial);
    ndp_judged_release(&f.sum);
    ndp_judged_release(&f.other);
    free(f.open);
    free(f.cause_of);
    free(f.causes);
    return st;
}
