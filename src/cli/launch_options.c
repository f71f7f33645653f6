/* Signals, and launching ranks with messages on the terminal. */
#include "cli/cli.h"
#include "cli/progress.h"

#include <stdio.h>
#include <unistd.h>

/* Set by a signal: the run then finishes its step and saves a checkpoint. Global, since a handler has no argument. */
static volatile sig_atomic_t stop;

static void on_signal(int signal_number) { stop = signal_number; }

/* The second Ctrl-C: erases the live line, over which the shell would write its prompt, then ends the process. */
static void on_last_signal(int signal_number) {
    static const char erase[] = CLI_ERASE;
    ssize_t n = write(STDOUT_FILENO, erase, sizeof erase - 1);
    (void)n;
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void on_first_signal(int signal_number) {
    stop = signal_number;
    if (signal_number != SIGUSR1)
        signal(signal_number, on_last_signal);
}

static void on_end(int signal_number) {
    (void)signal_number;
    _exit(cli_exit_code(NDP_EINTR));
}

void cli_end_on_signal(void) {
    struct sigaction action = {.sa_handler = on_end};
    sigaction(SIGUSR1, &action, NULL);
}

/* A second Ctrl-C ends the process as if there were no handler. A launcher forwards a Ctrl-C repeatedly as SIGUSR1,
 * since mpirun does not forward other signals. Ignored signals stay ignored (nohup, background jobs of a script). */
const volatile sig_atomic_t *cli_catch_signals(bool live) {
    static const int stopping[] = {SIGINT, SIGTERM, SIGUSR1};
    for (int i = 0; i < 3; i++) {
        struct sigaction action = {.sa_handler = live ? on_first_signal : on_signal, .sa_flags = SA_RESTART}, before;
        if (stopping[i] != SIGUSR1 && !live)
            action.sa_flags |= (int)SA_RESETHAND;
        if (sigaction(stopping[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(stopping[i], &action, NULL);
    }
    return &stop;
}

/* The terminal that messages of a launch go to. */
typedef struct launch_terminal {
    cli_progress progress;
    bool live; /* the ranks draw a live line on it */
} launch_terminal;

static void say(void *user, const char *line) { cli_progress_say(&((launch_terminal *)user)->progress, line); }

static void report_rank_end(void *user, const char *line) {
    const launch_terminal *t = user;
    if (t->live)
        cli_progress_erase(&t->progress);
    fprintf(stderr, "ndparallel: %s\n", line);
}

int cli_launch(ndp_launch_opts *o, bool live, bool debug) {
    launch_terminal t = {.live = live};
    cli_progress_init(&t.progress, 1);
    o->say = say;
    o->report = report_rank_end;
    o->user = &t;
    cli_progress_hand_on();
    o->stop = cli_catch_signals(live && t.progress.columns);
    int code;
    ndp_status st = ndp_launch(o, &code);
    if (live && (st != NDP_OK || code != 0))
        cli_progress_erase(&t.progress);
    return st == NDP_OK ? code : cli_fail(st, debug);
}
