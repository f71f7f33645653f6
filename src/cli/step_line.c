/* A column is a row of a table here: its name, its width with two blanks before it, whether a step has it, its text,
 * and its rank: where a line is too narrow, the column of the highest rank is left out first. */
#include "cli/step_line.h"

#include "base/human_time.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- numbers ---- */

/* "950", "12.3k", "1.2M"; "-": unknown */
static void short_number(char out[16], double x) {
    static const char units[] = " kMGT";
    int u = 0;
    for (; x >= 999.5 && u < 4; u++)
        x /= 1000;
    if (isnan(x))
        snprintf(out, 16, "-");
    else if (u == 0)
        snprintf(out, 16, "%.0f", x);
    else
        snprintf(out, 16, x < 99.95 ? "%.1f%c" : "%.0f%c", x, units[u]);
}

/* Four decimals, as far as the six characters of a column allow. */
static void put_loss(char out[16], double x) { snprintf(out, 16, fabs(x) < 10 ? "%.4f" : "%.5g", x); }

/* ---- columns ---- */

static void put_step(const cli_step *s, char out[48]) {
    snprintf(out, 48, "%lld/%lld", (long long)s->m->step, (long long)s->steps);
}
static bool has_all(const cli_step *s) { return s->m; }
static void loss(const cli_step *s, char out[16]) { put_loss(out, s->m->loss); }
static bool has_margin(const cli_step *s) { return s->m->pair.pairs > 0 && !isnan(s->m->pair.margin); }
static void margin(const cli_step *s, char out[16]) { put_loss(out, s->m->pair.margin); }
static bool has_accuracy(const cli_step *s) { return s->m->pair.pairs > 0 && isnan(s->m->pair.kl); }
static void accuracy(const cli_step *s, char out[16]) { snprintf(out, 16, "%.2f", s->m->pair.accuracy); }
static bool has_kl(const cli_step *s) { return s->m->pair.pairs > 0 && !isnan(s->m->pair.kl); }
static void kl(const cli_step *s, char out[16]) { put_loss(out, s->m->pair.kl); }
static bool has_eval(const cli_step *s) { return s->held; }
static void eval(const cli_step *s, char out[16]) {
    if (s->m->eval_tokens > 0)
        put_loss(out, s->m->eval_loss);
    else
        snprintf(out, 16, "-");
}
static void norm(const cli_step *s, char out[16]) { snprintf(out, 16, "%.3g", s->m->grad_norm); }
static void lr(const cli_step *s, char out[16]) { snprintf(out, 16, "%.2e", s->m->lr); }
static void rate(const cli_step *s, char out[16]) { short_number(out, s->m->tokens_per_second); }
static bool has_mfu(const cli_step *s) { return s->m->peak_flops > 0; }
static void mfu(const cli_step *s, char out[16]) { snprintf(out, 16, "%.1f%%", 100 * s->m->mfu); }
static void left(const cli_step *s, char out[16]) { ndp_human_time(s->left, out); }
static bool has_clock(const cli_step *s) { return s->clock; }
static void clock_of(const cli_step *s, char out[16]) {
    time_t at = (time_t)s->m->time;
    struct tm local;
    if (!localtime_r(&at, &local) || strftime(out, 16, "%H:%M:%S", &local) == 0)
        snprintf(out, 16, "-");
}

static const struct {
    const char *name;
    int width, rank;
    bool (*has)(const cli_step *s);
    void (*put)(const cli_step *s, char out[16]);
} columns[] = {
    {"loss", 8, 0, has_all, loss}, {"margin", 9, 3, has_margin, margin}, {"acc", 6, 4, has_accuracy, accuracy},
    {"kl", 9, 3, has_kl, kl},      {"eval", 8, 2, has_eval, eval},       {"norm", 10, 5, has_all, norm},
    {"lr", 10, 7, has_all, lr},    {"tok/s", 7, 6, has_all, rate},       {"mfu", 7, 8, has_mfu, mfu},
    {"left", 9, 1, has_all, left}, {"time", 10, 9, has_clock, clock_of}};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

/* The step column has no blanks before it. */
static int step_width(const cli_step *s) {
    int digits = snprintf(NULL, 0, "%lld", (long long)s->steps);
    return 2 * digits + 1 < 4 ? 4 : 2 * digits + 1;
}

unsigned cli_step_columns(const cli_step *s, int width) {
    unsigned chosen = 0;
    int total = step_width(s);
    for (int i = 0; i < COLUMNS; i++)
        if (columns[i].has(s))
            chosen |= 1u << i, total += columns[i].width;
    while (width > 0 && total > width) {
        int least = -1;
        for (int i = 0; i < COLUMNS; i++)
            if (chosen >> i & 1 && columns[i].rank > (least < 0 ? 0 : columns[least].rank))
                least = i;
        if (least < 0)
            break;
        chosen &= ~(1u << least);
        total -= columns[least].width;
    }
    return chosen;
}

void cli_step_heading(const cli_step *s, unsigned chosen, char *out, size_t size) {
    int n = snprintf(out, size, "%*s", step_width(s), "step");
    for (int i = 0; i < COLUMNS; i++)
        if (chosen >> i & 1 && n < (int)size)
            n += snprintf(out + n, size - (size_t)n, "%*s", columns[i].width, columns[i].name);
}

void cli_step_row(const cli_step *s, unsigned chosen, char *out, size_t size) {
    char text[48];
    put_step(s, text);
    int n = snprintf(out, size, "%*s", step_width(s), text);
    for (int i = 0; i < COLUMNS; i++)
        if (chosen >> i & 1 && n < (int)size) {
            char value[16];
            columns[i].put(s, value);
            n += snprintf(out + n, size - (size_t)n, "  %*s", columns[i].width - 2, value);
        }
}

/* ---- the live line ---- */

/* "[#####     ]" of `width` characters in all. */
static void draw_bar(char *out, int width, double part) {
    int inside = width - 2, full = (int)(part * inside + 0.5);
    out[0] = '[';
    for (int i = 0; i < inside; i++)
        out[1 + i] = i < full ? '#' : ' ';
    out[width - 1] = ']';
    out[width] = '\0';
}

void cli_step_live(const cli_step *s, int width, char *out, size_t size) {
    enum { SHORTEST_BAR = 12, LONGEST_BAR = 32 };
    static const char *const shown[] = {"loss", "left", "tok/s", "norm", "lr", "mfu"};
    char step[48], bar[LONGEST_BAR + 2] = "", rest[160] = "";
    /* The last column stays free: some terminals wrap once it is written. */
    int room = (width < (int)size ? width : (int)size) - 1;
    put_step(s, step);
    int n = (int)strlen(step), beside = room - n >= SHORTEST_BAR + 1 ? room - SHORTEST_BAR - 1 : room;
    for (int k = 0, at = 0; k < (int)(sizeof shown / sizeof shown[0]); k++)
        for (int i = 0; i < COLUMNS; i++)
            if (strcmp(columns[i].name, shown[k]) == 0 && columns[i].has(s)) {
                char value[16], part[48];
                columns[i].put(s, value);
                bool unit = strcmp(shown[k], "tok/s") == 0;
                int more = snprintf(part, sizeof part, "  %s %s", unit ? value : shown[k], unit ? shown[k] : value);
                if (n + more > beside)
                    continue;
                at += snprintf(rest + at, sizeof rest - (size_t)at, "%s", part);
                n += more;
            }
    int longest = room - n - 1 < LONGEST_BAR ? room - n - 1 : LONGEST_BAR;
    if (longest >= SHORTEST_BAR)
        draw_bar(bar, longest, s->steps > 0 ? (double)s->m->step / (double)s->steps : 1);
    snprintf(out, size, "%s%s%.*s%s", bar, *bar ? " " : "", room, step, rest);
}
