/* The loop of a conversation: a line is a message, or a command that begins with a slash. Ctrl-C stops an answer; at
 * the prompt it ends the conversation, and so does Ctrl-D. */
#include "cli/chat_loop.h"

#include "cli/cli.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char HELP[] =
    "A line is a message. /reset forgets the conversation, /exit ends it (Ctrl-D too), Ctrl-C stops "
    "an answer.\n";

/* A handler has nothing else to set. */
static volatile sig_atomic_t interrupted;
static void on_interrupt(int signal) {
    (void)signal;
    interrupted = 1;
}

typedef struct chat {
    const chat_opts *opts;
    ndp_dialog *dialog;
    bool terminal; /* messages come from a terminal */
    char *line;
    size_t capacity;
} chat;

/* Without SA_RESTART, so that it also interrupts reading a line. */
static void catch_interrupts(void) {
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
}

/* The next line without its line break; false at the end of the input and after Ctrl-C. */
static bool read_message(chat *c) {
    if (c->terminal) {
        fputs("> ", stderr);
        fflush(stderr);
    }
    ssize_t n = getline(&c->line, &c->capacity, stdin);
    if (n < 0) {
        if (c->terminal)
            fputc('\n', stderr);
        return false;
    }
    while (n > 0 && (c->line[n - 1] == '\n' || c->line[n - 1] == '\r'))
        c->line[--n] = '\0';
    return true;
}

static bool print_token(void *user, int32_t id, const char *text) {
    const chat *c = user;
    return c->opts->print(c->opts->user, id, text) && !interrupted;
}

static void say_finish(const chat *c, const ndp_reply *r) {
    if (r->finish == NDP_FINISH_LENGTH)
        fprintf(stderr, "(the answer was cut after %lld tokens: --max-tokens %d; the context has room for %lld more)\n",
                (long long)r->tokens, c->opts->generate->max_tokens, (long long)r->room);
    else if (r->finish == NDP_FINISH_CANCELLED && interrupted)
        fprintf(stderr, "(stopped after %lld tokens)\n", (long long)r->tokens);
}

/* On a terminal the user may try again after an error; input from a pipe ends there. */
static ndp_status answer(chat *c) {
    ndp_reply r;
    interrupted = 0;
    ndp_status st = ndp_dialog_ask(c->dialog, c->line, print_token, c, &r);
    if (st == NDP_OK) {
        putchar('\n');
        fflush(stdout);
        say_finish(c, &r);
    } else if (c->terminal) {
        (void)cli_fail(st, c->opts->debug);
    }
    interrupted = 0;
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
