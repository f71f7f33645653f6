/* Lines of a run, and on a terminal a live line with a bar below them.
 *
 * The cursor always waits at the beginning of the live line, so everything below can be erased, even after the terminal
 * was resized and has wrapped the line. */
#include "cli/progress.h"
#include "cli/cli.h"
#include "cli/wrap.h"

#include <errno.h>
#include <fcntl.h>
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
void cli_progress_init(cli_progress *p, int every, bool held) {
    *p = (cli_progress){.columns = columns(), .every = every, .held = held};
    signal(SIGPIPE, SIG_IGN); /* print_lines sees the error instead */
    if (p->columns && ndp_world_launched(NULL))
        (void)dup2(STDOUT_FILENO, STDERR_FILENO);
}

/* ---- lines ---- */

/* The reader of a pipe ended, or a disk is full. A run is not lost for that. */
static void warn_unwritable(cli_progress *p, int error) {
    if (!p->unwritable)
        cli_error(0, "cannot write the output: %s; the run continues. Its numbers are in metrics.jsonl of its folder",
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

/* ---- which steps have a line ---- */

/* The smallest of 1, 2, 5, 10, 20, ... that is at least x. */
static int64_t round_up(double x) {
    int64_t ten = 1;
    for (; (double)ten * 10 < x; ten *= 10)
        ;
    return (double)ten >= x ? ten : 2 * (double)ten >= x ? 2 * ten : 5 * (double)ten >= x ? 5 * ten : 10 * ten;
}

/* In a file, train.log_every: auto makes at most 1,000 rows of a run: MOST of equal intervals, MOST of evaluations, and
 * 1 to 9, 10 to 90, 100 to 900 and so on, since the first interval of a long run may take hours. */
static bool has_auto_line(cli_progress *p, const ndp_metrics *m, int64_t steps) {
    enum { MOST = 460, SECONDS = 10 };
    if (p->columns)
        return m->eval_tokens > 0 || m->save_seconds > 0 || monotonic_seconds() - p->printed_at >= SECONDS;
    int64_t every = round_up((double)steps / MOST), ten = 1;
    while (ten <= m->step / 10)
        ten *= 10;
    if (m->eval_tokens > 0 && m->step - p->evaluated >= steps / MOST) {
        p->evaluated = m->step;
        return true;
    }
    return m->step % every == 0 || m->step % ten == 0;
}

static bool has_line(cli_progress *p, const ndp_metrics *m, int64_t steps) {
    bool due = p->every ? m->step % p->every == 0 || m->eval_tokens > 0 : has_auto_line(p, m, steps);
    return due || m->step == 1 || m->step == steps;
}

/* The row of a step, below a heading if its columns are not those of the row before. */
static void add_row(cli_progress *p, const cli_step *s, char *out, size_t size) {
    enum { ROWS = 50 };
    int wide = p->columns ? columns() : 0;
    unsigned chosen = cli_step_columns(s, p->columns ? (wide ? wide : p->columns) - 1 : 0);
    char row[256];
    *out = '\0';
    if (chosen != p->chosen || (p->columns && p->rows >= ROWS)) {
        cli_step_heading(s, chosen, out, size);
        strncat(out, "\n", size - strlen(out) - 1);
        p->rows = 0;
    }
    p->chosen = chosen;
    p->rows++;
    cli_step_row(s, chosen, row, sizeof row);
    strncat(out, row, size - strlen(out) - 1);
}

/* The seconds that are left: by the recent steps, and by what evaluations and saves took. */
static double seconds_left(cli_progress *p, const ndp_metrics *m, int64_t steps) {
    double extra = m->evaluation_seconds + m->save_seconds;
    p->average = p->average > 0 ? 0.9 * p->average + 0.1 * m->step_seconds : m->step_seconds;
    p->extra += extra;
    p->taken++;
    return (p->average + p->extra / (double)p->taken) * (double)(steps - m->step);
}

void cli_progress_step(void *progress, const ndp_metrics *m, int64_t steps) {
    enum { FRAMES_A_SECOND = 20 };
    cli_progress *p = progress;
    char line[512] = "", live[CLI_LIVE_SIZE] = "";
    bool first = p->taken == 0, printed = has_line(p, m, steps);
    const cli_step s = {m, steps, seconds_left(p, m, steps), p->held, p->columns == 0};
    p->newest = *m, p->newest_left = s.left, p->steps = steps;
    if (printed) {
        add_row(p, &s, line, sizeof line);
        p->printed_at = monotonic_seconds();
    }
    p->printed = printed;
    bool drawn =
        p->columns && m->step < steps && (first || printed || monotonic_seconds() - p->last >= 1.0 / FRAMES_A_SECOND);
    if (drawn) {
        int wide = columns(); /* a window may be resized */
        cli_step_live(&s, wide ? wide : p->columns, live, sizeof live);
        p->last = monotonic_seconds();
    }
    if (printed || drawn)
        print_lines(p, line, drawn ? live : NULL);
}

/* The bar stays below the line. A progress line of tokenizing does not: the next line means that it has ended. */
void cli_progress_say(void *progress, const char *line) {
    cli_progress *p = progress;
    ndp_str fitting = {0};
    int wide = p->columns ? columns() : 0;
    cli_wrap(&fitting, line, p->columns ? (wide ? wide : p->columns) - 1 : 0);
    print_lines(p, fitting.failed || !fitting.data ? line : fitting.data, p->taken > 0 && p->live[0] ? p->live : NULL);
    ndp_str_release(&fitting);
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
    bool missing = p->columns && p->taken > 0 && !p->printed;
    char line[512] = "";
    if (missing)
        add_row(p, &(cli_step){&p->newest, p->steps, p->newest_left, p->held, false}, line, sizeof line);
    if (p->live[0] || missing)
        print_lines(p, line, NULL);
    p->printed = true;
}

void cli_progress_erase(const cli_progress *p) {
    if (p->columns) {
        fputs(CLI_ERASE, stdout);
        fflush(stdout);
    }
}
