/* The program as its users run it: started, heard out, its seconds noted. */
#ifndef TESTS_CLI_PROGRAM_H
#define TESTS_CLI_PROGRAM_H

#include "base/clock.h"
#include "base/text.h"
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct program {
    pid_t pid;
    int from; /* what all its processes write */
    double started;
} program;

typedef struct outcome {
    int code;       /* exit code; 128 + signal */
    double seconds; /* until the last process that writes had ended: to be printed, since others share the machine */
    double work;    /* seconds of a core, of the program and the children that it waited for */
    ndp_str text;   /* stdout and stderr of all processes */
} outcome;

static inline program program_start(char *const argv[]) {
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    program p = {.from = ends[0], .started = ndp_now()};
    p.pid = fork();
    assert_true(p.pid >= 0);
    if (p.pid == 0) {
        dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        execvp(argv[0], argv);
        _exit(127);
    }
    close(ends[1]);
    return p;
}

/* Reads on until `words` have been said (NULL: until no process is left that writes). */
static inline void program_hear(program *p, const char *words, ndp_str *text) {
    char buffer[4096];
    while (!words || !text->data || !strstr(text->data, words)) {
        struct pollfd ready = {p->from, POLLIN, 0};
        if (ndp_now() - p->started > HANGS || poll(&ready, 1, 1000) < 0) {
            kill(p->pid, SIGKILL);
            fail_msg("after %d s still running; it said: %s", HANGS, text->data ? text->data : "nothing");
        }
        ssize_t n = ready.revents ? read(p->from, buffer, sizeof buffer) : -1;
        if (n == 0)
            break;
        if (n > 0)
            ndp_str_add_bytes(text, buffer, (size_t)n);
    }
    if (!text->data)
        ndp_str_add(text, "");
}

static inline void program_end(program *p, outcome *o) {
    int status;
    struct rusage used;
    program_hear(p, NULL, &o->text);
    assert_int_equal(wait4(p->pid, &status, 0, &used), p->pid);
    close(p->from);
    o->seconds = ndp_now() - p->started;
    o->work = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
              1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    o->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline outcome program_run(char *const argv[]) {
    outcome o = {0};
    program p = program_start(argv);
    program_end(&p, &o);
    return o;
}

static inline int count_of(const char *text, const char *words) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, words)) != NULL; at += strlen(words))
        n++;
    return n;
}

/* MPI leaks, so leaks are looked for only where it is not: `find` is for the programs started from now on. */
static inline void find_leaks(bool find) { setenv("ASAN_OPTIONS", find ? "detect_leaks=1" : "detect_leaks=0", 1); }

/* What mpirun needs to be there for, and a sanitizer does not mind. */
static inline bool have_mpirun(void) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    return false;
#endif
#endif
    return system("command -v mpirun >/dev/null 2>&1") == 0;
}

#endif
