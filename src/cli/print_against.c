/* What `verify --against` prints: a line for each number and tensor, then what those that differ are like. */
#include "cli/print_against.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void cli_share_text(double share, char out[16]) {
    if (share < 9.995)
        snprintf(out, 16, share < 0.0995 ? "%.1f%%" : "%.0f%%", 100 * share);
    else
        snprintf(out, 16, "%.3gx", share);
}

void cli_put_number(const char *key, double x) {
    if (isfinite(x))
        printf("\"%s\": %.9g", key, x);
    else
        printf("\"%s\": null", key);
}

void cli_put_text(const char *text) {
    putchar('"');
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c < 0x20)
            printf("\\u%04x", *c);
        else
            printf("%s%c", *c == '"' || *c == '\\' ? "\\" : "", *c);
    }
    putchar('"');
}

static double apart(const double of[2]) { return of[0] == of[1] ? 0 : fabs(of[0] / of[1] - 1); }

static void print_line(const char *what, int width, double off, double bound, const char *besides) {
    char share[16];
    cli_share_text(off == 0 ? 0 : off / bound, share);
    printf("%-*s  %.1e  %8s  %s%s\n", width, what, off, share, off <= bound ? "agrees" : "DIFFERS", besides);
}

static int longest_name(const ndp_against *a) {
    size_t most = strlen("gradients");
    for (int i = 0; i < a->n; i++)
        most = strlen(a->gradients[i].name) > most ? strlen(a->gradients[i].name) : most;
    return (int)most;
}

static void print_distances(const ndp_against *a) {
    char besides[128];
    int width = longest_name(a);
    printf("%-*s  %-7s  %8s  verdict\n", width, "", "off", "of bound");
    printf("%-*s  %-7s  %8s  %s", width, "tokens", "", "", a->tokens[0] == a->tokens[1] ? "agrees" : "DIFFERS");
    printf(": %lld, ours %lld\n", (long long)a->tokens[0], (long long)a->tokens[1]);
    snprintf(besides, sizeof besides, ": %.9g, ours %.9g", a->loss[0], a->loss[1]);
    print_line("loss", width, apart(a->loss), a->loss_bound, besides);
    if (a->has_logits)
        print_line("logits", width, a->logits_off, a->logits_bound, "");
    for (int i = 0; i < a->n; i++)
        print_line(a->gradients[i].name, width, a->gradients[i].off, a->gradients[i].bound, "");
    snprintf(besides, sizeof besides, ", most in %s", a->weights_most);
    if (a->has_weights)
        print_line("weights", width, a->weights_off, a->weights_bound, a->weights_off > 0 ? besides : "");
}

void cli_print_against(const ndp_against *a, const char *folder) {
    int beyond = 0;
    print_distances(a);
    for (int i = 0; i < a->n; i++)
        beyond += !a->gradients[i].agrees;
    printf("\n");
    for (int i = 0; i < a->n_causes; i++)
        printf("%s\n", a->causes[i]);
    if (a->agrees)
        printf("%s agrees with our step on its %lld row%s of %lld tokens\n", folder, (long long)a->rows,
               a->rows == 1 ? "" : "s", (long long)a->length);
    else
        printf("%s differs from our step on its %lld row%s of %lld tokens, in %d of %d gradients\n", folder,
               (long long)a->rows, a->rows == 1 ? "" : "s", (long long)a->length, beyond, a->n);
}

static void put_pair(const char *key, double dump, double ours) {
    printf("\"%s\": {", key);
    cli_put_number("dump", dump);
    printf(", ");
    cli_put_number("ours", ours);
}

static void put_distance(double off, double bound) {
    cli_put_number("off", off);
    printf(", ");
    cli_put_number("bound", bound);
    printf(", \"agrees\": %s}", off <= bound ? "true" : "false");
}

void cli_print_against_json(const ndp_against *a, const char *folder) {
    printf("{\"dump\": ");
    cli_put_text(folder);
    printf(", \"agrees\": %s, \"rows\": %lld, \"length\": %lld, ", a->agrees ? "true" : "false", (long long)a->rows,
           (long long)a->length);
    put_pair("tokens", (double)a->tokens[0], (double)a->tokens[1]);
    printf(", \"agrees\": %s}, ", a->tokens[0] == a->tokens[1] ? "true" : "false");
    put_pair("loss", a->loss[0], a->loss[1]);
    printf(", ");
    put_distance(apart(a->loss), a->loss_bound);
    printf(", \"gradients\": {");
    for (int i = 0; i < a->n; i++) {
        printf("%s", i ? ", " : "");
        cli_put_text(a->gradients[i].name);
        printf(": {");
        put_distance(a->gradients[i].off, a->gradients[i].bound);
    }
    printf("}, ");
    if (a->has_logits) {
        printf("\"logits\": {");
        put_distance(a->logits_off, a->logits_bound);
        printf(", ");
    }
    if (a->has_weights) {
        printf("\"weights\": {");
        put_distance(a->weights_off, a->weights_bound);
        printf(", ");
    }
    printf("\"causes\": [");
    for (int i = 0; i < a->n_causes; i++) {
        printf("%s", i ? ", " : "");
        cli_put_text(a->causes[i]);
    }
    printf("]}\n");
}
