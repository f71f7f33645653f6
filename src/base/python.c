/* Processes of Python: one socket is the program's stdin and stdout, since a pipe without a reader would end this
 * process by SIGPIPE; a file in memory is its stderr. */
#include "base/python.h"

#include "base/child.h"
#include "base/clock.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct ndp_python {
    const ndp_python_program *program;
    pid_t pid;
    int socket, errors;
};

const char *ndp_python_interpreter(void) {
    const char *named = getenv("NDP_PYTHON");
    return named && *named ? named : "/usr/bin/python3";
}

static const char *host_name(char name[256]) {
    if (gethostname(name, 256))
        strcpy(name, "this host");
    name[255] = 0;
    return name;
}

static ndp_status fail_start(const ndp_python_program *p, int cause) {
    char host[256];
    const char *which = ndp_python_interpreter();
    if (cause == ENOENT || cause == EACCES)
        return NDP_FAIL(NDP_EINVAL,
                        "%s needs Python, and %s has no %s: install it (%s), or set NDP_PYTHON to a python3", p->what,
                        host_name(host), which, p->install ? p->install : "apt install python3");
    return NDP_FAIL(NDP_EIO, "cannot start %s for %s: %s", which, p->what, strerror(cause));
}

static int start(ndp_python *p, ndp_argv *argv, int end) {
    const ndp_child child = {
        .argv = argv->items, .env = environ, .keep = -1, .own_group = true, .streams = {end, end, p->errors}};
    return argv->failed ? ENOMEM : ndp_child_start(&child, &p->pid);
}

ndp_status ndp_python_start(const ndp_python_program *program, const char *const *arguments, ndp_python **out) {
    static const char *const none[] = {NULL};
    ndp_python *p = calloc(1, sizeof *p);
    ndp_argv argv = {0};
    int ends[2] = {-1, -1}, cause = 0;
    NDP_CHECK_MEMORY(p, "to start %s", program->what);
    *p = (ndp_python){program, 0, -1, memfd_create("stderr", MFD_CLOEXEC)};
    if (p->errors < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        cause = errno;
    ndp_argv_add(&argv, "%s", ndp_python_interpreter());
    ndp_argv_add(&argv, "-I");
    ndp_argv_add(&argv, "-c");
    ndp_argv_add(&argv, "%s%s%s", ndp_python_sandbox, program->library ? program->library : "", program->source);
    ndp_argv_add_all(&argv, arguments ? arguments : none);
    if (!cause)
        cause = start(p, &argv, ends[1]);
    ndp_argv_release(&argv);
    if (ends[1] >= 0)
        close(ends[1]);
    p->socket = ends[0];
    if (cause) {
        ndp_python_kill(p);
        return fail_start(program, cause);
    }
    *out = p;
    return NDP_OK;
}

/* ---- sending and receiving ---- */

static ndp_status fail_ended(const ndp_python *p) { return NDP_FAIL(NDP_EIO, "%s has ended", p->program->what); }

/* Sends bytes, all of them. NDP_EIO: the program has ended; ndp_python_end says why. */
static ndp_status send_all(ndp_python *p, const void *data, size_t n) {
    for (const char *from = data; n;) {
        ssize_t sent = send(p->socket, from, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return fail_ended(p);
        if (sent > 0)
            from += sent, n -= (size_t)sent;
    }
    return NDP_OK;
}

ndp_status ndp_python_receive(ndp_python *p, void *out, size_t most, int seconds, size_t *n) {
    for (;;) {
        struct pollfd wait = {.fd = p->socket, .events = POLLIN};
        int ready = poll(&wait, 1, seconds * 1000);
        if (ready == 0)
            return NDP_FAIL(NDP_EIO, "%s (process %d) has written nothing for %d s", p->program->what, (int)p->pid,
                            seconds);
        ssize_t got = ready > 0 ? recv(p->socket, out, most, 0) : -1;
        if (got >= 0 || (errno != EINTR && errno != EAGAIN)) {
            *n = got > 0 ? (size_t)got : 0; /* a connection that was reset has also ended */
            return NDP_OK;
        }
    }
}

static ndp_status receive_all(ndp_python *p, void *out, size_t n, int seconds) {
    for (size_t got; n; out = (char *)out + got, n -= got) {
        NDP_TRY(ndp_python_receive(p, out, n, seconds, &got));
        if (got == 0)
            return fail_ended(p);
    }
    return NDP_OK;
}

ndp_status ndp_python_ask(ndp_python *p, const char *request, size_t n, int seconds, ndp_str *answer) {
    uint64_t length = n;
    NDP_TRY(send_all(p, &length, sizeof length));
    NDP_TRY(send_all(p, request, n));
    NDP_TRY(receive_all(p, &length, sizeof length, seconds));
    answer->length = 0;
    for (char part[1 << 16]; length;) {
        size_t now = length < sizeof part ? (size_t)length : sizeof part;
        NDP_TRY(receive_all(p, part, now, seconds));
        ndp_str_add_bytes(answer, part, now);
        length -= now;
    }
    return NDP_MEMORY(!answer->failed, "for what %s has written", p->program->what);
}

/* ---- the end ---- */

/* The last line that is not empty of what it wrote on stderr. */
static void last_line(const ndp_python *p, char out[512]) {
    char text[4096];
    off_t size = lseek(p->errors, 0, SEEK_END);
    ssize_t n = pread(p->errors, text, sizeof text - 1, size > (off_t)sizeof text ? size - (off_t)sizeof text + 1 : 0);
    text[n > 0 ? n : 0] = 0;
    for (n = n > 0 ? n : 0; n > 0 && text[n - 1] == '\n';)
        text[--n] = 0;
    const char *line = strrchr(text, '\n');
    snprintf(out, 512, "%.500s", line ? line + 1 : text);
}

enum { END_SECONDS = 10 };

static ndp_status fail_end(const ndp_python *p, int status) {
    char line[512], host[256];
    const ndp_python_program *of = p->program;
    last_line(p, line);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
        return NDP_FAIL(NDP_EFORMAT, "%s used up its CPU time", of->what);
    if (WIFSIGNALED(status))
        return NDP_FAIL(NDP_EIO, "%s was killed by signal %d (%s)", of->what, WTERMSIG(status),
                        strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) == NDP_PYTHON_NO_MODULE)
        return NDP_FAIL(NDP_EINVAL, "%s needs %s, and %s on %s has %s: %s, or set NDP_PYTHON to a python3 that has it",
                        of->what, of->package, ndp_python_interpreter(), host_name(host), *line ? line : "none",
                        of->install);
    return NDP_FAIL(NDP_EIO, "%s ended with exit code %d%s%s", of->what, WEXITSTATUS(status), *line ? ": " : "", line);
}

static void release(ndp_python *p) {
    if (p->socket >= 0)
        close(p->socket);
    if (p->errors >= 0)
        close(p->errors);
    free(p);
}

/* Waits for at most END_SECONDS; false: it still runs. */
static bool wait_for_end(const ndp_python *p, int *status) {
    for (double until = ndp_now() + END_SECONDS; ndp_now() < until; nanosleep(&(struct timespec){0, 1000000}, NULL))
        if (waitpid(p->pid, status, WNOHANG) == p->pid)
            return true;
    return false;
}

ndp_status ndp_python_end(ndp_python *p) {
    int status = 0;
    if (!p)
        return NDP_OK;
    shutdown(p->socket, SHUT_RDWR);
    if (!wait_for_end(p, &status)) {
        ndp_status st = NDP_FAIL(NDP_EIO, "%s (process %d) closed its output, but did not end within %d s",
                                 p->program->what, (int)p->pid, END_SECONDS);
        ndp_python_kill(p);
        return st;
    }
    ndp_status st = WIFEXITED(status) && WEXITSTATUS(status) == 0 ? NDP_OK : fail_end(p, status);
    release(p);
    return st;
}

void ndp_python_kill(ndp_python *p) {
    if (!p)
        return;
    if (p->pid) {
        kill(p->pid, SIGKILL);
        while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    release(p);
}
