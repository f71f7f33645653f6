/* A program on a terminal: started, heard out, typed to, and what is left on the screen. */
#ifndef TESTS_CLI_TERMINAL_H
#define TESTS_CLI_TERMINAL_H

#include "cli/program.h"
#include "cli/screen.h"

#include <errno.h>
#include <pty.h>
#include <regex.h>
#include <sys/ioctl.h>
#include <termios.h>

typedef struct run {
    pid_t pid;
    int terminal;
    double started;
    screen screen;
    ndp_str written; /* all of it, as it came */
} run;

/* Ctrl-C discards what the program has written and this test has not read yet, unless the terminal is told not to:
 * half a row would be left. */
static inline void keep_output(int terminal) {
    struct termios modes;
    assert_int_equal(tcgetattr(terminal, &modes), 0);
    modes.c_lflag |= NOFLSH;
    assert_int_equal(tcsetattr(terminal, TCSANOW, &modes), 0);
}

static inline run start_program(char **argv, int columns) {
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    run r = {.started = ndp_now(), .screen = screen_open(columns)};
    r.pid = forkpty(&r.terminal, NULL, NULL, &size);
    assert_true(r.pid >= 0);
    if (r.pid == 0) {
        keep_output(STDIN_FILENO);
        setenv("TERM", "xterm", 1);
        signal(SIGINT, SIG_DFL);
        execvp(argv[0], argv);
        _exit(127);
    }
    return r;
}

/* Reads on until it has written `words`, or (NULL) has ended; false when it has. */
static inline bool hear(run *r, const char *words) {
    char buffer[4096];
    while (!words || !r->written.data || !strstr(r->written.data, words)) {
        struct pollfd ready = {r->terminal, POLLIN, 0};
        if (ndp_now() - r->started > HANGS || poll(&ready, 1, 1000) < 0)
            fail_msg("after %d s still running; it wrote: %s", HANGS, r->written.data ? r->written.data : "");
        ssize_t n = ready.revents ? read(r->terminal, buffer, sizeof buffer) : 1;
        if (n <= 0) /* EIO: no process has the terminal open */
            return false;
        if (ready.revents) {
            screen_write(&r->screen, buffer, (size_t)n);
            ndp_str_add_bytes(&r->written, buffer, (size_t)n);
        }
    }
    return true;
}

/* Its exit code, and what is left on the screen. */
static inline int finish(run *r, char **text) {
    int status;
    while (hear(r, NULL))
        ;
    assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
    close(r->terminal);
    *text = screen_text(&r->screen);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline void release(run *r, char *text) {
    free(text);
    free(r->screen.at);
    ndp_str_release(&r->written);
}

static inline int lines_like(const char *text, const char *pattern) {
    regex_t regex;
    int n = 0;
    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NEWLINE), 0);
    regmatch_t match;
    for (; regexec(&regex, text, 1, &match, 0) == 0; n++) {
        text += match.rm_eo;
        if (!*text)
            break;
    }
    regfree(&regex);
    return n;
}

#endif
