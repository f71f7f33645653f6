/* ndparallel watch: a run as it goes on. On a terminal a screen, on its alternate one, so that the shell's lines come
 * back; elsewhere rows as in the run's own log; with --http a server. Only the run's files are read. */
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/progress.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

typedef struct watch_arguments {
    const char *run, *http;
    int interval;
    bool any, once, debug;
} watch_arguments;

static const cli_option options[] = {
    {"interval", 'i', "SECONDS", "Time between two looks at the files; default: 1",
     CLI_INT(watch_arguments, interval, 1, 3600)},
    {"once", 0, NULL, "Print the screen once", CLI_FLAG(watch_arguments, once)},
    {"http", 0, "ADDRESS:PORT",
     "Serve the report at / and numbers for Prometheus at /metrics, until Ctrl-C; a port alone is one of 127.0.0.1, 0 "
     "any that is free",
     CLI_TEXT(watch_arguments, http)},
    {"http-any", 0, NULL, "Serve on any address, to everyone who reaches it", CLI_FLAG(watch_arguments, any)},
    {"debug", 0, NULL, "Show where in the source an error occurred", CLI_FLAG(watch_arguments, debug), .group = 1},
    {0},
};

static void take_word(void *arguments, struct argp_state *state, char *word) {
    watch_arguments *a = arguments;
    if (a->run)
        cli_refuse(state, "one run at a time ('%s')", word);
    a->run = word;
}

static void check_arguments(void *arguments, struct argp_state *state) {
    const watch_arguments *a = arguments;
    if (!a->run)
        cli_refuse(state, "no run folder; give a job's train.output_dir");
    if (a->any && !a->http)
        cli_refuse(state, "--http-any without --http");
    if (a->http && a->once)
        cli_refuse(state, "--once and --http exclude each other");
}

/* ---- the screen ---- */

/* What the locale's characters are, by the variables that say so. */
static bool has_utf8(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    const char *kind = getenv("TERM"), *value = NULL;
    for (int i = 0; i < 3 && !(value && *value); i++)
        value = getenv(names[i]);
    return !(kind && strcmp(kind, "dumb") == 0) && value && (strcasestr(value, "utf-8") || strcasestr(value, "utf8"));
}

static ndp_screen_opts screen_size(void) {
    struct winsize size = {0};
    ndp_screen_opts o = {.columns = 80, .rows = 24, .ascii = !has_utf8(), .colours = ndp_colours(STDOUT_FILENO)};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
        o.columns = size.ws_col;
        o.rows = size.ws_row;
    }
    return o;
}

static bool same_size(const ndp_screen_opts *a, const ndp_screen_opts *b) {
    return a->columns == b->columns && a->rows == b->rows;
}

/* Rows are drawn over the old ones, each erased behind its end, so that nothing flickers. Wrapping is off: the terminal
 * may be narrower by now. */
static ndp_status draw(const ndp_watch *w, const ndp_screen_opts *o) {
    char *text;
    ndp_status st = ndp_watch_screen(w, o, &text);
    if (st != NDP_OK)
        return st;
    fputs("\033[?7l\033[H", stdout);
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
        printf("%s%.*s\033[K", line == text ? "" : "\r\n", (int)(end - line), line);
    fputs("\033[J\033[?7h", stdout);
    fflush(stdout);
    free(text);
    return NDP_OK;
}

static int print_screen(const ndp_watch *w, bool debug) {
    ndp_screen_opts o = screen_size();
    char *text = NULL;
    ndp_status st = ndp_watch_screen(w, &o, &text);
    if (st != NDP_OK)
        return cli_fail(st, debug);
    fputs(text, stdout);
    free(text);
    return cli_end_output(0);
}

/* Waits for a tenth of a second, or a key. True: the key is q. */
static bool wait_for_key(void) {
    enum { MILLISECONDS = 100 };
    struct pollfd keys = {STDIN_FILENO, POLLIN, 0};
    char key = 0;
    bool terminal = isatty(STDIN_FILENO);
    if (poll(&keys, terminal, MILLISECONDS) == 1 && read(STDIN_FILENO, &key, 1) < 1)
        return true; /* the terminal is gone */
    return key == 'q' || key == 'Q';
}

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Draws until the run has ended, or the user has seen enough. */
static ndp_status draw_until_end(ndp_watch *w, const watch_arguments *a, const volatile sig_atomic_t *stop,
                                 ndp_watch_state *s) {
    ndp_screen_opts drawn = {0};
    ndp_status st = NDP_OK;
    for (double looked = seconds_now(); s->live && !*stop && st == NDP_OK;) {
        ndp_screen_opts now = screen_size();
        bool due = seconds_now() - looked >= a->interval;
        if (due) {
            st = ndp_watch_read(w, NULL, NULL, s);
            looked = seconds_now();
        }
        if (st == NDP_OK && (due || !same_size(&now, &drawn)))
            st = draw(w, &now);
        drawn = now;
        if (wait_for_key())
            break;
    }
    return st;
}

/* The alternate screen, without a cursor, and keys that are not echoed; what is left is as before. */
static int show_screen(ndp_watch *w, const watch_arguments *a, ndp_watch_state *s) {
    const volatile sig_atomic_t *stop = cli_catch_signals(false);
    struct termios before, silent;
    bool keys = tcgetattr(STDIN_FILENO, &before) == 0;
    if (keys) {
        silent = before;
        silent.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &silent);
    }
    fputs("\033[?1049h\033[?25l", stdout);
    ndp_status st = draw_until_end(w, a, stop, s);
    fputs("\033[?25h\033[?1049l", stdout);
    if (keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    if (st != NDP_OK)
        return cli_fail(st, a->debug);
    int code = print_screen(w, a->debug);
    return *stop ? CLI_EXIT_STOPPED : code;
}

/* ---- rows ---- */

/* When the reader of a pipe ends, so does this process. */
static int print_rows(ndp_watch *w, const watch_arguments *a, ndp_watch_state s) {
    cli_progress p;
    ndp_status st = NDP_OK;
    cli_progress_init(&p, s.log_every, s.held);
    p.columns = 0;
    signal(SIGPIPE, SIG_DFL);
    const volatile sig_atomic_t *stop = cli_catch_signals(false);
    while (st == NDP_OK && !*stop) {
        st = ndp_watch_read(w, cli_progress_step, &p, &s);
        if (st != NDP_OK || !s.live)
            break;
        for (int tenths = 0; tenths < 10 * a->interval && !*stop; tenths++)
            (void)poll(NULL, 0, 100);
    }
    if (st != NDP_OK)
        return cli_fail(st, a->debug);
    if (*stop)
        return CLI_EXIT_STOPPED;
    printf("%s: step %lld", s.word, (long long)s.step);
    if (s.steps > 0)
        printf(" of %lld", (long long)s.steps);
    printf("\n");
    if (s.damaged)
        printf("%lld line%s of metrics.jsonl left out: damaged\n", (long long)s.damaged, s.damaged == 1 ? "" : "s");
    return cli_end_output(0);
}

/* ---- the server ---- */

static int serve(ndp_watch *w, const watch_arguments *a) {
    char *url;
    signal(SIGPIPE, SIG_IGN);
    const volatile sig_atomic_t *stop = cli_catch_signals(false);
    ndp_status st = ndp_watch_serve(w, a->http, a->any, &url);
    if (st != NDP_OK)
        return cli_fail(st, a->debug);
    printf("report: %s\nmetrics: %smetrics\n", url, url);
    free(url);
    int code = cli_end_output(0);
    while (!*stop && code == 0)
        (void)poll(NULL, 0, 100);
    return *stop ? CLI_EXIT_STOPPED : code;
}

static int watch(ndp_watch *w, const watch_arguments *a, ndp_watch_state s) {
    const char *kind = getenv("TERM");
    bool screen = isatty(STDOUT_FILENO) && !(kind && strcmp(kind, "dumb") == 0);
    if (a->http)
        return serve(w, a);
    if (!screen && !a->once)
        return print_rows(w, a, s);
    ndp_status st = ndp_watch_read(w, NULL, NULL, &s);
    if (st != NDP_OK)
        return cli_fail(st, a->debug);
    return a->once || !s.live ? print_screen(w, a->debug) : show_screen(w, a, &s);
}

static int run(const cli_command *c, int argc, char **argv) {
    watch_arguments a = {.interval = 1};
    ndp_watch *w;
    ndp_watch_state s;
    cli_parse(c, argc, argv, &a);
    ndp_status st = ndp_watch_create(a.run, &s, &w);
    if (st != NDP_OK)
        return cli_fail(st, a.debug);
    int code = watch(w, &a, s);
    ndp_watch_destroy(w);
    return code;
}

const cli_command cmd_watch = {
    .name = "watch",
    .about = "show a run on a live screen, or serve its report",
    .usage = "RUN",
    .help =
        "Show the run in the folder RUN, a job's train.output_dir, until it ends: loss and its curve, rate, time left, "
        "memory, ranks, warnings. Into a pipe, print rows as the run's log has them. Only files are read, so it works "
        "on any host that sees the folder, and after the end. q or Ctrl-C ends it.",
    .options = options,
    .argument = take_word,
    .check = check_arguments,
    .examples = {"ndparallel watch runs/demo", "ndparallel watch runs/demo --http 127.0.0.1:9000"},
    .run = run};
