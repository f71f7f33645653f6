/* Lines of a run, and on a terminal a live line with a bar below them.
 *
 * The cursor always waits at the beginning of the live line, so everything below can be erased, even after the terminal
 * was resized and has wrapped the line. */
#include "cli/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define TERMINAL "NDP_TERMINAL"

static double monotonic_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int small_number(const char *text) {
    int n = text ? atoi(text) : 0;
    return n > 0 && n < 10000 ? n : 0;
}

/* Columns of the terminal `fd`; 0: not a terminal, or of unknown size. */
static int columns_of(int fd) {
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* Columns of the terminal that both stdout and stderr write to, else 0. */
static int terminal_columns(void) {
    const char *kind = getenv("TERM");
    if (!isatty(STDOUT_FILENO) || !isatty(STDERR_FILENO) || (kind && strcmp(kind, "dumb") == 0))
        return 0;
    int wide = columns_of(STDOUT_FILENO), given = wide ? wide : small_number(getenv("COLUMNS"));
    return given ? given : 80;
}

/* A launcher may give its ranks pseudo-terminals, so their stdout does not show whether there is one. Ranks on the
 * launching host ask its terminal, which may have been resized; others use the size it had at the start. */
static int launched_columns(void) {
    int given = small_number(getenv(TERMINAL));
    int terminal = given ? open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC) : -1;
    int wide = terminal >= 0 ? columns_of(terminal) : 0;
    if (terminal >= 0)
        close(terminal);
    return wide ? wide : given;
}

static int columns(void) { return ndp_world_launched(NULL) ? launched_columns() : terminal_columns(); }

void cli_progress_hand_on(void) {
    char text[16];
    snprintf(text, sizeof text, "%d", terminal_columns());
    setenv(TERMINAL, text, 1);
}

/* The launcher forwards stdout and stderr separately and may reorder them, so on a terminal a rank uses only stdout. */
void cli_progress_init(cli_progress *p, int every) {
    *p = (cli_progress){.columns = columns(), .every = every};
    signal(SIGPIPE, SIG_IGN); /* print_lines sees the error instead */
    if (p->columns && ndp_world_launched(NULL))
        (void)dup2(STDOUT_FILENO, STDERR_FILENO);
}

/* ---- texts ---- */

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

/* "0:42", "1:02:03", "3d 4h" */
static void short_time(char out[24], double seconds) {
    long s = seconds >= 0 && seconds <= 1e9 ? lround(seconds) : 0;
    if (s >= 48 * 3600)
        snprintf(out, 24, "%ldd %ldh", s / 86400, s / 3600 % 24);
    else if (s >= 3600)
        snprintf(out, 24, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, 24, "%ld:%02ld", s / 60, s % 60);
}

static void plain_line(char *out, size_t size, const ndp_metrics *m, int64_t steps, double seconds) {
    char speed[16], left[24], mfu[24] = "", held[32] = "", pairs[64] = "";
    short_number(speed, m->tokens_per_second);
    short_time(left, seconds * (double)(steps - m->step));
    if (m->mfu > 0)
        snprintf(mfu, sizeof mfu, "  mfu %.1f%%", 100 * m->mfu);
    if (m->eval_tokens > 0)
        snprintf(held, sizeof held, "  eval_loss %.4f", m->eval_loss);
    bool single = !isnan(m->pair.kl), both = !isnan(m->pair.margin); /* answers that are wanted, and others */
    int n = m->pair.pairs > 0 && both ? snprintf(pairs, sizeof pairs, "  margin %.4f", m->pair.margin) : 0;
    if (m->pair.pairs > 0)
        snprintf(pairs + n, sizeof pairs - (size_t)n, single ? "  kl %.4f" : "  accuracy %.2f",
                 single ? m->pair.kl : m->pair.accuracy);
    snprintf(out, size, "step %lld/%lld  loss %.4f%s%s  grad_norm %.3g  lr %.2e  %s tokens/s%s  left %s",
             (long long)m->step, (long long)steps, m->loss, pairs, held, m->grad_norm, m->lr, speed, mfu, left);
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

/* The most important parts come first; a narrow terminal shows as many as fit. The bar takes the remaining space. */
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
    /* The last column stays free: some terminals wrap once it is written. */
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

/* The reader of a pipe ended, or a disk is full. A run is not lost for that. */
static void warn_unwritable(cli_progress *p, int error) {
    if (!p->unwritable)
        fprintf(stderr,
                "ndparallel: cannot write the output: %s; the run continues. Its numbers are in metrics.jsonl of its "
                "folder\n",
                strerror(error));
    p->unwritable = true;
}

/* Prints `line` ("": none) in place of the live line, and draws `live` below it (NULL: none). The cursor stays at the
 * beginning of the live line: a terminal that becomes narrower wraps the line and moves the cursor with it. Wrapping is
 * off while it is drawn, since the terminal may be narrower by now. */
static void print_lines(cli_progress *p, const char *line, const char *live) {
    size_t n = strlen(line);
    const char *end = n && line[n - 1] != '\n' ? "\n" : "";
    printf("%s%s%s", p->live[0] ? CLI_ERASE : "", line, end);
    if (live)
        printf("\033[?7l%s\033[?7h\r", live);
    if (fflush(stdout) != 0)
        warn_unwritable(p, errno);
    if (live != p->live)
        snprintf(p->live, sizeof p->live, "%s", live ? live : "");
}

static bool has_line(const cli_progress *p, const ndp_metrics *m, int64_t steps) {
    return m->step == 1 || m->step == steps || m->step % p->every == 0 || m->eval_tokens > 0;
}

void cli_progress_step(void *progress, const ndp_metrics *m, int64_t steps) {
    enum { FRAMES_A_SECOND = 20 };
    cli_progress *p = progress;
    char line[512] = "", live[CLI_LIVE_SIZE] = "";
    bool first = !(p->average > 0), printed = has_line(p, m, steps);
    p->average = first ? m->step_seconds : 0.9 * p->average + 0.1 * m->step_seconds;
    plain_line(p->newest, sizeof p->newest, m, steps, p->average);
    if (printed)
        snprintf(line, sizeof line, "%s", p->newest);
    p->printed = printed;
    bool drawn =
        p->columns && m->step < steps && (first || printed || monotonic_seconds() - p->last >= 1.0 / FRAMES_A_SECOND);
    if (drawn) {
        int wide = columns(); /* a window may be resized */
        live_line(live, sizeof live, m, steps, p->average, wide ? wide : p->columns);
        p->last = monotonic_seconds();
    }
    if (printed || drawn)
        print_lines(p, line, drawn ? live : NULL);
}

/* The bar stays below the line. A progress line of tokenizing does not: the next line means that it has ended. */
void cli_progress_say(void *progress, const char *line) {
    cli_progress *p = progress;
    print_lines(p, line, p->average > 0 && p->live[0] ? p->live : NULL);
}

/* On a terminal a live line, cut to its width; elsewhere a line every few seconds. */
void cli_progress_working(void *progress, const char *line) {
    enum { SECONDS = 5 };
    cli_progress *p = progress;
    char cut[CLI_LIVE_SIZE];
    int wide = columns();
    if (p->columns) {
        snprintf(cut, sizeof cut, "%.*s", (wide ? wide : p->columns) - 1, line);
        print_lines(p, "", cut);
    } else if (monotonic_seconds() - p->last >= SECONDS) {
        print_lines(p, line, NULL);
        p->last = monotonic_seconds();
    }
}

void cli_progress_end(cli_progress *p) {
    bool missing = p->columns && p->average > 0 && !p->printed;
    if (p->live[0] || missing)
        print_lines(p, missing ? p->newest : "", NULL);
    p->printed = true;
}

void cli_progress_erase(const cli_progress *p) {
    if (p->columns) {
        fputs(CLI_ERASE, stdout);
        fflush(stdout);
    }
}
