/* What `verify --against` prints: a line for each number and tensor, then what those that differ are like. */
#include "cli/print_against.h"

#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void cli_share_text(double share, char out[16]) {
    if (share < 9.995)
        snprintf(out, 16, share < 0.0995 ? "%.1f%%" : "%.0f%%", 100 * share);
    else
        snprintf(out, 16, "%.3gx", share);
}

static double apart(const double of[2]) { return of[0] == of[1] ? 0 : fabs(of[0] / of[1] - 1); }

static void add_line(ndp_str *out, const char *what, int width, double off, double bound, const char *besides) {
    char share[16];
    cli_share_text(off == 0 ? 0 : off / bound, share);
    ndp_str_addf(out, "%-*s  %.1e  %8s  %s%s\n", width, what, off, share, off <= bound ? "agrees" : "DIFFERS", besides);
}

static int longest_name(const ndp_against *a) {
    size_t most = strlen("gradients");
    for (int i = 0; i < a->n; i++)
        most = strlen(a->gradients[i].name) > most ? strlen(a->gradients[i].name) : most;
    return (int)most;
}

static void add_distances(const ndp_against *a, ndp_str *out) {
    char besides[128];
    int width = longest_name(a);
    ndp_str_addf(out, "%-*s  %-7s  %8s  verdict\n", width, "", "off", "of bound");
    ndp_str_addf(out, "%-*s  %-7s  %8s  %s", width, "tokens", "", "",
                 a->tokens[0] == a->tokens[1] ? "agrees" : "DIFFERS");
    ndp_str_addf(out, ": %lld, ours %lld\n", (long long)a->tokens[0], (long long)a->tokens[1]);
    snprintf(besides, sizeof besides, ": %.9g, ours %.9g", a->loss[0], a->loss[1]);
    add_line(out, "loss", width, apart(a->loss), a->loss_bound, besides);
    if (a->has_logits)
        add_line(out, "logits", width, a->logits_off, a->logits_bound, "");
    for (int i = 0; i < a->n; i++)
        add_line(out, a->gradients[i].name, width, a->gradients[i].off, a->gradients[i].bound, "");
    snprintf(besides, sizeof besides, ", most in %s", a->weights_most);
    if (a->has_weights)
        add_line(out, "weights", width, a->weights_off, a->weights_bound, a->weights_off > 0 ? besides : "");
}

/* The first gradient that differs in the order of the backward, as those after it inherit what is wrong; NULL: none. */
static const char *first_in_backward(const ndp_against *a) {
    for (int i = a->n - 1; i >= 0; i--)
        if (!a->gradients[i].agrees)
            return a->gradients[i].name;
    return NULL;
}

void cli_print_against(const ndp_against *a, const char *folder) {
    int beyond = 0;
    ndp_str text = {0}, *out = &text;
    add_distances(a, out);
    for (int i = 0; i < a->n; i++)
        beyond += !a->gradients[i].agrees;
    ndp_str_addf(out, "\n");
    for (int i = 0; i < a->n_causes; i++)
        ndp_str_addf(out, "%s\n", a->causes[i]);
    if (a->agrees)
        ndp_str_addf(out, "%s agrees with our step on its %lld row%s of %lld tokens\n", folder, (long long)a->rows,
                     a->rows == 1 ? "" : "s", (long long)a->length);
    else
        ndp_str_addf(out, "%s differs from our step on its %lld row%s of %lld tokens, in %d of %d gradients%s%s\n",
                     folder, (long long)a->rows, a->rows == 1 ? "" : "s", (long long)a->length, beyond, a->n,
                     beyond > 1 ? "; first in the backward: " : "", beyond > 1 ? first_in_backward(a) : "");
    cli_print_fitting(out);
}

static void put_pair(ndp_json_out *o, const char *key, double dump, double ours) {
    ndp_json_open(o, key, '{');
    ndp_json_put_number(o, "dump", dump);
    ndp_json_put_number(o, "ours", ours);
}

static void put_distance(ndp_json_out *o, double off, double bound) {
    ndp_json_put_number(o, "off", off);
    ndp_json_put_number(o, "bound", bound);
    ndp_json_put_bool(o, "agrees", off <= bound);
    ndp_json_close(o, '}');
}

void cli_print_against_json(const ndp_against *a, const char *folder) {
    ndp_json_out o = {0};
    ndp_json_open(&o, NULL, '{');
    ndp_json_put_text(&o, "dump", folder);
    ndp_json_put_bool(&o, "agrees", a->agrees);
    ndp_json_put_int(&o, "rows", a->rows);
    ndp_json_put_int(&o, "length", a->length);
    put_pair(&o, "tokens", (double)a->tokens[0], (double)a->tokens[1]);
    ndp_json_put_bool(&o, "agrees", a->tokens[0] == a->tokens[1]);
    ndp_json_close(&o, '}');
    put_pair(&o, "loss", a->loss[0], a->loss[1]);
    put_distance(&o, apart(a->loss), a->loss_bound);
    ndp_json_open(&o, "gradients", '{');
    for (int i = 0; i < a->n; i++) {
        ndp_json_open(&o, a->gradients[i].name, '{');
        put_distance(&o, a->gradients[i].off, a->gradients[i].bound);
    }
    ndp_json_close(&o, '}');
    if (first_in_backward(a))
        ndp_json_put_text(&o, "first", first_in_backward(a));
    if (a->has_logits) {
        ndp_json_open(&o, "logits", '{');
        put_distance(&o, a->logits_off, a->logits_bound);
    }
    if (a->has_weights) {
        ndp_json_open(&o, "weights", '{');
        put_distance(&o, a->weights_off, a->weights_bound);
    }
    ndp_json_open(&o, "causes", '[');
    for (int i = 0; i < a->n_causes; i++)
        ndp_json_put_text(&o, NULL, a->causes[i]);
    ndp_json_close(&o, ']');
    ndp_json_close(&o, '}');
    cli_print_json(&o);
}
