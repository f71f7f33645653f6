/* Starting a process: fork, exec, and the reason if the exec fails. Looking at one: /proc/PID/stat. */
#include "base/child.h"

#include "base/arena.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- lists of strings ---- */

void ndp_argv_add(ndp_argv *w, const char *fmt, ...) {
    char *text;
    va_list args;
    va_start(args, fmt);
    int length = vasprintf(&text, fmt, args);
    va_end(args);
    if (length < 0 || ndp_array_reserve(&w->items, &w->capacity, w->n + 2, sizeof *w->items) != NDP_OK) {
        w->failed = true;
        if (length >= 0)
            free(text);
        return;
    }
    w->items[w->n++] = text;
    w->items[w->n] = NULL;
}

void ndp_argv_add_all(ndp_argv *w, const char *const *texts) {
    for (; *texts; texts++)
        ndp_argv_add(w, "%s", *texts);
}

void ndp_argv_release(ndp_argv *w) {
    for (int64_t i = 0; i < w->n; i++)
        free(w->items[i]);
    free(w->items);
    *w = (ndp_argv){0};
}

/* ---- the process ---- */

/* Runs in the new process, with only async-signal-safe calls, since this process may have threads. */
static void exec_child(const ndp_child *c, pid_t parent, int report) {
    int null = open("/dev/null", O_RDWR);
    if (null >= 0)
        dup2(null, STDIN_FILENO);
    for (int i = 0; i < NDP_COUNT(c->streams); i++)
        if (c->streams[i])
            dup2(c->streams[i], i);
    if (c->own_group)
        setpgid(0, 0);
    if (c->ignored)
        signal(c->ignored, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, c->death_signal);
    if (getppid() != parent)
        _exit(1);
    if (c->keep >= 0)
        fcntl(c->keep, F_SETFD, 0);
    execvpe(c->argv[0], c->argv, c->env);
    int cause = errno;
    if (write(report, &cause, sizeof cause) < 0)
        _exit(126);
    _exit(127);
}

/* A pipe reports the outcome: a successful exec closes it; otherwise errno is written to it. */
int ndp_child_start(const ndp_child *c, pid_t *out) {
    int ends[2], cause = 0;
    if (pipe2(ends, O_CLOEXEC))
        return errno;
    pid_t parent = getpid(), child = fork();
    if (child == 0)
        exec_child(c, parent, ends[1]);
    if (child < 0)
        cause = errno;
    close(ends[1]);
    ssize_t n = child < 0 ? 0 : read(ends[0], &cause, sizeof cause);
    close(ends[0]);
    if (n > 0)
        waitpid(child, NULL, 0);
    if (cause == 0)
        *out = child;
    return cause;
}

int ndp_child_code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

/* ---- what /proc says ---- */

/* Field `n` of "123 (name) S 4 5 ...", from 3 on: a name may have blanks and brackets. NULL: no such field. */
static const char *field_of(const char *text, int n) {
    const char *at = strrchr(text, ')');
    for (int k = 2; at && k < n; k++)
        at = (at = strchr(at, ' ')) ? at + 1 : NULL;
    return at;
}

bool ndp_process_read(pid_t pid, ndp_process *out) {
    enum { STATE = 3, STARTED = 22 };
    char path[32], text[1024] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    const char *state = n > 0 ? field_of(text, STATE) : NULL, *started = state ? field_of(text, STARTED) : NULL;
    if (!started)
        return false;
    *out = (ndp_process){.state = *state, .started = strtoull(started, NULL, 10)};
    return true;
}

bool ndp_processes_are_shown(void) {
    char number[16] = "";
    ndp_process self;
    return readlink("/proc/self", number, sizeof number - 1) > 0 && atoi(number) == (int)getpid() &&
           ndp_process_read(getpid(), &self);
}
