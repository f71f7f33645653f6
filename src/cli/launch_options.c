/* Signals, and launching ranks with messages on the terminal. */
#include "cli/cli.h"
#include "cli/exit_codes.h"
#include "cli/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
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
    signal(signal_number, on_last_signal);
}

static void on_end(int signal_number) {
    (void)signal_number;
    _exit(ndp_exit_code(NDP_EINTR));
}

void cli_end_on_signal(void) {
    struct sigaction action = {.sa_handler = on_end};
    sigaction(SIGUSR1, &action, NULL);
}

static void on_early_stop(int signal_number) {
    static const char line[] = "ndparallel: stopped before the run began\n";
    ssize_t n = write(STDERR_FILENO, line, sizeof line - 1);
    (void)n;
    on_end(signal_number);
}

void cli_end_on_early_stop(void) {
    static const int numbers[] = {SIGUSR1, SIGINT, SIGTERM, SIGHUP};
    bool rank = ndp_world_launched(NULL), told = getenv("NDP_LAUNCHED") || (rank && ndp_world_launched_rank() != 0);
    struct sigaction action = {.sa_handler = told ? on_end : on_early_stop}, before;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
}

/* ---- what a rank of mpirun writes ---- */

typedef struct rank_stream {
    int fd;
    bool dropped; /* nothing is written any more */
} rank_stream;

/* mpirun that gets a SIGTERM waits for the ranks to end, twice as long as it takes to stop them (launch/launch.c), and
 * takes no output meanwhile. A rank would be kept in a write, and be killed there: once it is to stop, what is not
 * taken within a second is dropped. */
static ssize_t write_or_drop(void *user, const char *text, size_t size) {
    enum { WAIT_MS = 100, WAITS = 10 };
    rank_stream *it = user;
    size_t done = 0;
    for (int waits = 0; done < size && !it->dropped;) {
        ssize_t n = write(it->fd, text + done, size - done);
        done += n > 0 ? (size_t)n : 0;
        if (n < 0 && errno == EAGAIN) {
            (void)poll(&(struct pollfd){.fd = it->fd, .events = POLLOUT}, 1, WAIT_MS);
            waits += stop != 0;
            it->dropped = waits > WAITS;
        } else if (n < 0 && errno != EINTR)
            return 0;
    }
    return (ssize_t)size;
}

static FILE *open_rank_stream(rank_stream *it, FILE *instead, int buffering) {
    FILE *f = fopencookie(it, "w", (cookie_io_functions_t){.write = write_or_drop});
    if (!f)
        return instead;
    setvbuf(f, NULL, buffering, BUFSIZ);
    fcntl(it->fd, F_SETFL, fcntl(it->fd, F_GETFL) | O_NONBLOCK);
    return f;
}

/* mpirun gives each rank a pseudo-terminal and a pipe of its own. */
static void open_rank_streams(void) {
    static rank_stream streams[] = {{.fd = STDOUT_FILENO}, {.fd = STDERR_FILENO}};
    if (!getenv("NDP_LAUNCHED") || getenv("NDP_WORLD") || !ndp_world_launched(NULL))
        return;
    fflush(stdout);
    stdout = open_rank_stream(&streams[0], stdout, _IOLBF);
    stderr = open_rank_stream(&streams[1], stderr, _IONBF);
}

/* The signals that stop a run. The second one of those that insist ends the process, as if there were no handler. The
 * others may come several times for one event: when a terminal is closed, its shell and the kernel both send SIGHUP,
 * and a launcher repeats SIGUSR1, the one signal that mpirun forwards. */
static const struct {
    int number;
    bool insists;
} stopping[] = {{SIGINT, true}, {SIGTERM, true}, {SIGHUP, false}, {SIGUSR1, false}};

/* Where a batch system ends a job, more than one part of it sends SIGTERM: the system, srun, mpirun's daemons. Its
 * SIGKILL is what insists. */
static bool ends_jobs(int number) {
    return number == SIGTERM && (getenv("SLURM_JOB_ID") || getenv("PBS_JOBID") || getenv("LSB_JOBID"));
}

/* Ignored signals stay ignored (nohup, background jobs of a script). Beyond a limit on the size of files, a write fails
 * like one on a full disk: SIGXFSZ would end the process. */
const volatile sig_atomic_t *cli_catch_signals(bool live) {
    for (size_t i = 0; i < sizeof stopping / sizeof *stopping; i++) {
        bool last = stopping[i].insists && !ends_jobs(stopping[i].number);
        struct sigaction action = {.sa_handler = live && last ? on_first_signal : on_signal, .sa_flags = SA_RESTART};
        struct sigaction before;
        if (last && !live)
            action.sa_flags |= (int)SA_RESETHAND;
        if (sigaction(stopping[i].number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(stopping[i].number, &action, NULL);
    }
    signal(SIGXFSZ, SIG_IGN);
    open_rank_streams();
    return &stop;
}

/* The terminal that messages of a launch go to. */
typedef struct launch_terminal {
    cli_progress progress;
    bool live;               /* the ranks draw a live line on it */
    const ndp_config *saves; /* as of cli_launch */
    ndp_strings *lost;
} launch_terminal;

/* With --json on stderr: stdout has only JSON. */
static void say(void *user, const char *line) {
    if (cli_is_json())
        fprintf(stderr, "%s\n", line);
    else
        cli_progress_say(&((launch_terminal *)user)->progress, line);
}

static void report_end(const launch_terminal *t, int code, const char *line) {
    char disk[64] = "";
    int64_t step;
    if (t->live)
        cli_progress_erase(&t->progress);
    if (t->saves && ndp_run_folder_newest(t->saves, &step) == NDP_OK) {
        if (step > 0)
            snprintf(disk, sizeof disk, "; step %lld is on disk", (long long)step);
        else
            snprintf(disk, sizeof disk, "; no step is on disk");
    }
    cli_error(code, "%s%s", line, disk);
}

static void report_rank_end(void *user, const char *line) { report_end(user, CLI_EXIT_FAILED, line); }

static void note_lost(void *user, const char *host) {
    ndp_strings *lost = ((launch_terminal *)user)->lost;
    if (lost)
        (void)!ndp_strings_add(lost, host); /* without it the host is asked */
}

int cli_launch(ndp_launch_opts *o, bool live, bool debug, const ndp_config *saves, ndp_strings *lost) {
    launch_terminal t = {.live = live, .saves = saves, .lost = lost};
    cli_progress_init(&t.progress, 1, false);
    o->say = say;
    o->report = report_rank_end;
    o->lost = note_lost;
    o->user = &t;
    bool unsaid = false;
    o->unsaid = &unsaid;
    cli_progress_hand_on();
    o->stop = cli_catch_signals(live && t.progress.columns);
    int code;
    ndp_status st = ndp_launch(o, &code);
    if (live && (st != NDP_OK || code != 0))
        cli_progress_erase(&t.progress);
    if (st == NDP_OK && unsaid && saves)
        report_end(&t, code, "stopped before the run began");
    return st == NDP_OK ? code : cli_fail(st, debug);
}
