/* Starting ranks with mpirun. */
#include "base/text.h"
#include "train/host.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

ndp_status ndp_launch_ranks(const ndp_config *c, int *ranks) {
    const char *kind = c->train.transport;
    int n;
    NDP_TRY(ndp_config_ranks(c, &n));
    bool here = n == 1 || strcmp(kind, "local") == 0 || strcmp(kind, "self") == 0 || ndp_world_launched(NULL);
    *ranks = here ? 0 : n;
    return NDP_OK;
}

/* ---- the command line ---- */

/* Strings owned, or not, ending with NULL: argv and envp of mpirun. */
typedef struct words {
    char **items;
    int n, capacity;
    bool failed;
} words;

__attribute__((format(printf, 2, 3))) static void add(words *w, const char *fmt, ...) {
    char *text;
    va_list args;
    va_start(args, fmt);
    int length = vasprintf(&text, fmt, args);
    va_end(args);
    if (w->n + 2 > w->capacity) {
        char **grown = realloc(w->items, sizeof *grown * (size_t)(w->capacity + 64));
        if (grown) {
            w->items = grown;
            w->capacity += 64;
        }
    }
    if (length < 0 || w->n + 2 > w->capacity) {
        w->failed = true;
        if (length >= 0)
            free(text);
        return;
    }
    w->items[w->n++] = text;
    w->items[w->n] = NULL;
}

static void add_all(words *w, const char *const *texts) {
    for (; *texts; texts++)
        add(w, "%s", *texts);
}

static void words_release(words *w) {
    for (int i = 0; i < w->n; i++)
        free(w->items[i]);
    free(w->items);
}

/* Inside a batch allocation mpirun takes its hosts: there may be several. */
static bool on_one_host(const ndp_launch_opts *o) {
    return !o->hostfile && !getenv("SLURM_JOB_ID") && !getenv("PBS_NODEFILE") && !getenv("LSB_HOSTS");
}

/* On one host the two paths that are ever used are named, and so none is looked for; between hosts Open MPI chooses.
 * Its help texts are for its own users: a rank says what is wrong. Variables of ours and of OpenMP go to all hosts. */
static void mpirun_words(const ndp_launch_opts *o, words *w) {
    static const char *const always[] = {"mpirun", "--bind-to",       "none", "--oversubscribe",
                                         "-x",     NDP_LAUNCHED "=1", NULL};
    static const char *const one_host[] = {"--quiet", "--mca", "pml", "ob1", "--mca", "btl", "self,vader", NULL};
    static const char *const hosts[] = {"--mca", "btl_base_warn_component_unused", "0", NULL};
    add_all(w, always);
    add_all(w, on_one_host(o) ? one_host : hosts);
    if (geteuid() == 0)
        add(w, "--allow-run-as-root");
    if (o->hostfile) {
        add(w, "--hostfile");
        add(w, "%s", o->hostfile);
    }
    for (char **e = environ; *e && !on_one_host(o); e++) {
        int length = (int)strcspn(*e, "=");
        if (strncmp(*e, "NDP_", 4) == 0 ||
            (strncmp(*e, "OMP_", 4) == 0 && !(o->threads && strncmp(*e, "OMP_NUM_THREADS=", 16) == 0))) {
            add(w, "-x");
            add(w, "%.*s", length, *e);
        }
    }
    if (o->threads) {
        add(w, "-x");
        add(w, "OMP_NUM_THREADS=%d", o->threads);
    }
    add(w, "-n");
    add(w, "%d", o->ranks);
    add_all(w, (const char *const *)o->argv);
}

/* A name server that does not answer would cost mpirun's own questions 5 s each. */
static void mpirun_environment(words *w) {
    add_all(w, (const char *const *)environ);
    if (!getenv("RES_OPTIONS"))
        add(w, "RES_OPTIONS=timeout:1 attempts:1");
}

/* ---- the process ---- */

/* In the new process: only what is allowed between fork and exec. */
static void become_mpirun(const words *args, const words *env, pid_t parent, int told) {
    int null = open("/dev/null", O_RDWR);
    if (null >= 0)
        dup2(null, STDIN_FILENO);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    execvpe("mpirun", args->items, env->items);
    int cause = errno;
    if (write(told, &cause, sizeof cause) < 0)
        _exit(126);
    _exit(127);
}

/* Returns once exec has happened, or failed: the pipe closes or brings errno. */
static ndp_status start(const words *args, const words *env, pid_t *out) {
    int pipe_[2], cause = 0;
    if (pipe2(pipe_, O_CLOEXEC))
        return NDP_FAIL(NDP_EIO, "cannot start mpirun: %s", strerror(errno));
    pid_t parent = getpid(), child = fork();
    if (child == 0)
        become_mpirun(args, env, parent, pipe_[1]);
    if (child < 0)
        cause = errno;
    close(pipe_[1]);
    ssize_t n = child < 0 ? 0 : read(pipe_[0], &cause, sizeof cause);
    close(pipe_[0]);
    if (n > 0)
        waitpid(child, NULL, 0);
    if (cause == ENOENT)
        return NDP_FAIL(
            NDP_ENOTSUP,
            "mpirun is not installed: install it (Debian: apt-get install openmpi-bin), or run all ranks as "
            "threads of one process (train.transport: local)");
    if (cause)
        return NDP_FAIL(NDP_EIO, "cannot start mpirun: %s", strerror(cause));
    *out = child;
    return NDP_OK;
}

/* mpirun hands SIGUSR1 to every rank that it has started by then, so it is told again and again; SIGINT and SIGTERM
 * would end the ranks within a second. */
static int wait_for(pid_t mpirun, const volatile sig_atomic_t *stop) {
    enum { NAPS_A_SECOND = 100 };
    const struct timespec nap = {.tv_nsec = 1000000000 / NAPS_A_SECOND};
    for (int64_t stopping = 0;; nanosleep(&nap, NULL)) {
        int status;
        pid_t ended = waitpid(mpirun, &status, WNOHANG);
        if (ended < 0 && errno != EINTR)
            return 1;
        if (ended == mpirun) {
            int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            /* Told so early that nobody was there to listen. */
            return stopping && code == 128 + SIGUSR1 ? 128 + SIGINT : code;
        }
        if (stop && *stop && stopping++ % NAPS_A_SECOND == 0)
            kill(mpirun, SIGUSR1);
    }
}

static void warn_of_host_name(const ndp_launch_opts *o) {
    char name[256];
    if (!o->say || ndp_host_resolves(name, sizeof name))
        return;
    char *line =
        ndp_format("warning: this host's name '%s' does not resolve, so starting ranks may take 10 s; the line "
                   "that is missing in /etc/hosts: 127.0.1.1 %s",
                   name, name);
    if (line)
        o->say(o->user, line);
    free(line);
}

static void warn_of_hosts(const ndp_launch_opts *o) {
    char *line = o->say && o->hostfile ? ndp_hosts_unresolved(o->hostfile) : NULL;
    if (line)
        o->say(o->user, line);
    free(line);
}

/* mpirun ends with the code of the ssh that failed, which may be any. A rank that fails may do so because its host, or
 * another, is gone. 2 is a rank's word on the user's mistake, so it has run. */
static bool hosts_are_in_doubt(const ndp_launch_opts *o, int code) {
    return o->hostfile && code != 0 && code != 2 && !(o->stop && *o->stop);
}

/* Found as mpirun does: by its path, or by its name in PATH. */
static bool can_run(const char *program) {
    const char *folder = getenv("PATH");
    if (strchr(program, '/'))
        return access(program, X_OK) == 0;
    for (int length; folder && *folder; folder += length + (folder[length] == ':')) {
        length = (int)strcspn(folder, ":");
        char *file = ndp_format("%.*s/%s", length, folder, program);
        bool found = file && access(file, X_OK) == 0;
        free(file);
        if (found)
            return true;
    }
    return false;
}

ndp_status ndp_launch(const ndp_launch_opts *o, int *exit_code) {
    NDP_CHECK(o->ranks >= 1 && o->argv && o->argv[0], "nothing to launch: %d ranks", o->ranks);
    NDP_CHECK(!on_one_host(o) || can_run(o->argv[0]),
              "cannot run '%s': there is no such program, or it may not be executed; a program that is not in PATH is "
              "named with its folder, as in ./%s",
              o->argv[0], strchr(o->argv[0], '/') ? "program" : o->argv[0]);
    NDP_TRY(ndp_hosts_check(o->hostfile));
    warn_of_host_name(o);
    warn_of_hosts(o);
    words args = {0}, env = {0};
    mpirun_words(o, &args);
    mpirun_environment(&env);
    pid_t mpirun = -1;
    ndp_status st = args.failed || env.failed ? NDP_FAIL(NDP_ENOMEM, "no memory for mpirun's arguments")
                                              : start(&args, &env, &mpirun);
    words_release(&args);
    words_release(&env);
    NDP_TRY(st);
    int code = wait_for(mpirun, o->stop);
    if (hosts_are_in_doubt(o, code))
        NDP_TRY(ndp_hosts_reach(o->hostfile));
    *exit_code = code;
    return NDP_OK;
}
