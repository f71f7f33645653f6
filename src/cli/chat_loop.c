/* The loop of a conversation: a line is a message, or a command that begins with a slash. Ctrl-C stops an answer; at
 * the prompt it ends the conversation, and so does Ctrl-D. */
#include "cli/chat_loop.h"

#include "cli/cli.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <termios.h>
#include <unistd.h>

static const char HELP[] =
    "A line is a message. /reset forgets the conversation, /exit ends it (Ctrl-D too), Ctrl-C stops "
    "an answer.\n";

/* The flag stops an answer. The event ends the wait for a message, also if the signal arrived just before the wait, or
 * in another thread. */
static volatile sig_atomic_t interrupted;
static int interrupts = -1;

static void on_interrupt(int signal) {
    int before = errno;
    (void)signal;
    interrupted = 1;
    (void)!write(interrupts, &(uint64_t){1}, sizeof(uint64_t));
    errno = before;
}

static void forget_interrupts(void) {
    uint64_t count;
    (void)!read(interrupts, &count, sizeof count);
    interrupted = 0;
}

typedef struct chat {
    const chat_opts *opts;
    ndp_dialog *dialog;
    bool terminal; /* messages come from a terminal */
    struct termios shown; /* its modes while it shows what is typed */
    char *line;
    size_t capacity;
} chat;

/* Without SA_RESTART: Ctrl-C also interrupts the reading of an unfinished line. */
static void catch_interrupts(void) {
    struct sigaction action = {.sa_handler = on_interrupt};
    interrupts = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    sigaction(SIGINT, &action, NULL);
    setvbuf(stdin, NULL, _IONBF, 0); /* so that poll knows of all that can be read */
}

/* False after Ctrl-C. */
static bool wait_for_message(void) {
    struct pollfd ready[] = {{STDIN_FILENO, POLLIN, 0}, {interrupts, POLLIN, 0}};
    while (poll(ready, 2, -1) < 0 && errno == EINTR && !interrupted)
        ;
    return !interrupted;
}

/* While an answer is printed, the terminal keeps what is typed and does not show it. */
static void show_typing(const chat *c, bool shown) {
    struct termios modes = c->shown;
    modes.c_lflag &= shown ? ~(tcflag_t)0 : ~(tcflag_t)(ECHO | ECHONL);
    if (c->terminal)
        tcsetattr(STDIN_FILENO, TCSANOW, &modes);
}

/* Whether a whole line was typed that was not shown. */
static bool has_kept_line(const chat *c) {
    struct pollfd ready = {STDIN_FILENO, POLLIN, 0};
    return c->terminal && poll(&ready, 1, 0) > 0 && (ready.revents & POLLIN);
}

/* The next line without its line break; false at the end of the input and after Ctrl-C. */
static bool read_message(chat *c) {
    bool kept = has_kept_line(c);
    if (c->terminal) {
        fputs("> ", stderr);
        fflush(stderr);
    }
    ssize_t n = wait_for_message() ? getline(&c->line, &c->capacity, stdin) : -1;
    if (n < 0) {
        if (c->terminal)
            fputc('\n', stderr);
        return false;
    }
    while (n > 0 && (c->line[n - 1] == '\n' || c->line[n - 1] == '\r'))
        c->line[--n] = '\0';
    if (kept)
        fprintf(stderr, "%s\n", c->line);
    return true;
}

static bool print_token(void *user, int32_t id, const char *text) {
    const chat *c = user;
    return c->opts->print(c->opts->user, id, text) && !interrupted;
}

static void say_finish(const chat *c, const ndp_reply *r) {
    if (r->finish == NDP_FINISH_LENGTH)
        fprintf(stderr,
                "(the answer was cut after %lld tokens: --max-tokens %d; the context has space for %lld more)\n",
                (long long)r->tokens, c->opts->generate->max_tokens, (long long)r->room);
    else if (r->finish == NDP_FINISH_CANCELLED && interrupted)
        fprintf(stderr, "(stopped after %lld tokens)\n", (long long)r->tokens);
}

/* On a terminal the user may try again after an error; input from a pipe ends there. */
static ndp_status answer(chat *c) {
    ndp_reply r;
    show_typing(c, false);
    ndp_status st = ndp_dialog_ask(c->dialog, c->line, print_token, c, &r);
    show_typing(c, true);
    if (st == NDP_OK) {
        putchar('\n');
        fflush(stdout);
        say_finish(c, &r);
    } else if (c->terminal) {
        (void)cli_fail(st, c->opts->debug);
    }
    forget_interrupts();
    return c->terminal ? NDP_OK : st;
}

/* False: the conversation ends. */
static bool obey(chat *c) {
    if (!strcmp(c->line, "/exit") || !strcmp(c->line, "/quit"))
        return false;
    if (!strcmp(c->line, "/reset"))
        ndp_dialog_reset(c->dialog);
    else
        fputs(HELP, stderr);
    return true;
}

static ndp_status converse(chat *c) {
    ndp_status st = NDP_OK;
    while (st == NDP_OK && !ferror(stdout) && read_message(c)) {
        if (c->line[0] == '/') {
            if (!obey(c))
                break;
        } else if (c->line[0]) {
            st = answer(c);
        }
    }
    return st;
}

int chat_run(const chat_opts *o) {
    chat c = {.opts = o, .terminal = isatty(STDIN_FILENO)};
    ndp_status st = ndp_dialog_create(o->generate, o->system, o->context, &c.dialog);
    c.terminal = c.terminal && tcgetattr(STDIN_FILENO, &c.shown) == 0;
    if (st == NDP_OK && c.terminal)
        fputs(HELP, stderr);
    if (st == NDP_OK) {
        catch_interrupts();
        st = converse(&c);
    }
    free(c.line);
    ndp_dialog_destroy(c.dialog);
    return st == NDP_OK ? cli_end_output(interrupted ? 130 : 0) : cli_fail(st, o->debug);
}
