#include "cli/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define TERMINAL "NDP_TERMINAL"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int number(const char *text) {
    int n = text ? atoi(text) : 0;
    return n > 0 && n < 10000 ? n : 0;
}

/* Columns of the terminal that stdout and stderr are, else 0: lines of both go there, in their order. */
static int terminal_columns(void) {
    struct winsize size;
    const char *kind = getenv("TERM");
    if (!isatty(STDOUT_FILENO) || !isatty(STDERR_FILENO) || (kind && strcmp(kind, "dumb") == 0))
        return 0;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    int told = number(getenv("COLUMNS"));
    return told ? told : 80;
}

/* A launcher may give its ranks pseudo-terminals, so what they see themselves says nothing. */
static int columns(void) { return ndp_world_launched(NULL) ? number(getenv(TERMINAL)) : terminal_columns(); }

void cli_progress_hand_on(void) {
    char text[16];
    snprintf(text, sizeof text, "%d", terminal_columns());
    setenv(TERMINAL, text, 1);
}

/* A rank's two streams reach the terminal by two ways, so there it uses one of them. */
void cli_progress_init(cli_progress *p, int every) {
    *p = (cli_progress){.columns = columns(), .every = every};
    if (p->columns && ndp_world_launched(NULL))
        (void)dup2(STDOUT_FILENO, STDERR_FILENO);
}

/* ---- words ---- */

/* "950", "12.3k", "1.2M" */
static void short_number(char out[16], double x) {
    static const char units[] = " kMGT";
    int u = 0;
    for (; x >= 999.5 && u < 4; u++)
        x /= 1000;
    if (u == 0)
        snprintf(out, 16, "%.0f", x);
    else
        snprintf(out, 16, x < 99.95 ? "%.1f%c" : "%.0f%c", x, units[u]);
}

/* "0:42", "1:02:03", "3d 4h" */
static void short_time(char out[24], double seconds) {
    long s = seconds < 0 || seconds > 1e9 ? 0 : lround(seconds);
    if (s >= 48 * 3600)
        snprintf(out, 24, "%ldd %ldh", s / 86400, s / 3600 % 24);
    else if (s >= 3600)
        snprintf(out, 24, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, 24, "%ld:%02ld", s / 60, s % 60);
}

static void plain_line(char *out, size_t size, const ndp_metrics *m, int64_t steps, double seconds) {
    char speed[16], left[24], mfu[24] = "", held[32] = "";
    short_number(speed, m->tokens_per_second);
    short_time(left, seconds * (double)(steps - m->step));
    if (m->mfu > 0)
        snprintf(mfu, sizeof mfu, "  mfu %.1f%%", 100 * m->mfu);
    if (m->eval_tokens > 0)
        snprintf(held, sizeof held, "  eval_loss %.4f", m->eval_loss);
    snprintf(out, size, "step %lld/%lld  loss %.4f%s  grad_norm %.3g  lr %.2e  %s tokens/s%s  left %s",
             (long long)m->step, (long long)steps, m->loss, held, m->grad_norm, m->lr, speed, mfu, left);
}

/* "[#####     ]" of `width` characters in all. */
static void draw_bar(char *out, int width, double part) {
    int inside = width - 2, full = (int)(part * inside + 0.5);
    out[0] = '[';
    for (int i = 0; i < inside; i++)
        out[1 + i] = i < full ? '#' : ' ';
    out[width - 1] = ']';
    out[width] = '\0';
}

/* What matters most stands first; on a narrow terminal the rest is left out. The bar takes what remains. */
static void live_line(char *out, size_t size, const ndp_metrics *m, int64_t steps, double seconds, int width) {
    enum { PARTS = 7, SHORTEST_BAR = 8, LONGEST_BAR = 32 };
    char part[PARTS][64] = {""}, speed[16], left[24], bar[LONGEST_BAR + 2] = "";
    short_number(speed, m->tokens_per_second);
    short_time(left, seconds * (double)(steps - m->step));
    int n = snprintf(part[0], sizeof part[0], "%lld/%lld", (long long)m->step, (long long)steps);
    snprintf(part[1], sizeof part[1], "  loss %.4f", m->loss);
    snprintf(part[2], sizeof part[2], "  left %s", left);
    snprintf(part[3], sizeof part[3], "  %s tok/s", speed);
    snprintf(part[4], sizeof part[4], "  norm %.2f", m->grad_norm);
    snprintf(part[5], sizeof part[5], "  lr %.1e", m->lr);
    if (m->mfu > 0)
        snprintf(part[6], sizeof part[6], "  mfu %.0f%%", 100 * m->mfu);
    /* The last column stays free: some terminals wrap when it is written. */
    int room = (width < (int)size ? width : (int)size) - 1, shown = 1;
    while (shown < PARTS && n + (int)strlen(part[shown]) <= room)
        n += (int)strlen(part[shown++]);
    int rest = room - n - 1 < LONGEST_BAR ? room - n - 1 : LONGEST_BAR;
    if (rest >= SHORTEST_BAR)
        draw_bar(bar, rest, steps > 0 ? (double)m->step / (double)steps : 1);
    int at = snprintf(out, size, "%s%s%.*s", bar, *bar ? " " : "", room, part[0]);
    for (int i = 1; i < shown; i++)
        at += snprintf(out + at, size - (size_t)at, "%s", part[i]);
}

/* ---- lines ---- */

/* One write a line: nothing flickers and lines of different processes do not mix. */
static void put(const char *before, const char *text, const char *after) {
    printf("%s%s%s", before, text, after);
    fflush(stdout);
}

static void draw(cli_progress *p, const ndp_metrics *m, int64_t steps) {
    enum { FRAMES_A_SECOND = 20 };
    char line[512];
    if (p->drawn && m->step < steps && now() - p->last < 1.0 / FRAMES_A_SECOND)
        return;
    int wide = columns(); /* a window may change its size */
    live_line(line, sizeof line, m, steps, p->average, wide ? wide : p->columns);
    put("\r", line, "\033[K");
    p->drawn = true;
    p->last = now();
}

void cli_progress_step(void *progress, const ndp_metrics *m, int64_t steps) {
    cli_progress *p = progress;
    char line[512];
    p->average = p->average > 0 ? 0.9 * p->average + 0.1 * m->step_seconds : m->step_seconds;
    if (p->columns) {
        draw(p, m, steps);
    } else if (m->step == 1 || m->step == steps || m->step % p->every == 0 || m->eval_tokens > 0) {
        plain_line(line, sizeof line, m, steps, p->average);
        put("", line, "\n");
    }
}

void cli_progress_say(void *progress, const char *line) {
    cli_progress *p = progress;
    size_t n = strlen(line);
    cli_progress_end(p);
    put("", line, n && line[n - 1] == '\n' ? "" : "\n");
}

/* The live line on a terminal, as wide as that is; elsewhere a line every few seconds. */
void cli_progress_working(void *progress, const char *line) {
    enum { SECONDS = 5 };
    cli_progress *p = progress;
    char cut[512];
    int wide = columns();
    if (p->columns) {
        snprintf(cut, sizeof cut, "%.*s", (wide ? wide : p->columns) - 1, line);
        put("\r", cut, "\033[K");
        p->drawn = true;
    } else if (now() - p->last >= SECONDS) {
        put("", line, "\n");
        p->last = now();
    }
}

void cli_progress_end(cli_progress *p) {
    if (p->drawn)
        put("", "", "\n");
    p->drawn = false;
}
