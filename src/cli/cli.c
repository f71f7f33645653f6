/* Errors and output, for all commands. */
#include "cli/cli.h"
#include "cli/exit_codes.h"
#include "cli/wrap.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- errors ---- */

static bool json_errors; /* set while the arguments are parsed, before there are other threads */

void cli_errors_as_json(void) { json_errors = true; }

bool cli_is_json(void) { return json_errors; }

/* The message begins with a key of a job, such as optimizer.lr, which may be in quotes. */
static void put_key(ndp_json_out *o, const char *message) {
    char word[64], *value = NULL;
    ndp_config *c = NULL;
    message += *message == '\'';
    snprintf(word, sizeof word, "%.*s", (int)strspn(message, "abcdefghijklmnopqrstuvwxyz0123456789_."), message);
    if (strchr(word, '.') && ndp_config_create(&c) == NDP_OK && ndp_config_get(c, word, &value) == NDP_OK)
        ndp_json_put_text(o, "key", word);
    free(value);
    ndp_config_destroy(c);
}

/* Messages begin with what is known of their place: "rank 3: ", then "job.yaml:2: ". */
static void put_place(ndp_json_out *o, const char *message) {
    int rank, line, n = 0;
    if (sscanf(message, "rank %d: %n", &rank, &n) == 1 && n > 0) {
        ndp_json_put_int(o, "rank", rank);
        message += n;
    }
    message += strncmp(message, "--set: ", 7) == 0 ? 7 : 0;
    char file[PATH_MAX];
    const char *colon = strchr(message, ':');
    if (colon && sscanf(colon, ":%d%n", &line, &n) == 1 && colon[n] == ':' &&
        snprintf(file, sizeof file, "%.*s", (int)(colon - message), message) > 0) {
        ndp_json_put_text(o, "file", file);
        ndp_json_put_int(o, "line", line);
        message = colon + n + 1;
        message += *message == ' ';
    }
    put_key(o, message);
}

static void print_json_error(int code, const char *message, const char *trail) {
    ndp_json_out o = {0};
    ndp_json_open(&o, NULL, '{');
    ndp_json_open(&o, "error", '{');
    ndp_json_put_int(&o, "code", code);
    ndp_json_put_text(&o, "message", message);
    put_place(&o, message);
    if (trail)
        ndp_json_put_text(&o, "at", trail);
    ndp_json_close(&o, '}');
    ndp_json_close(&o, '}');
    fprintf(stderr, "%s\n", o.text.failed ? "{\"error\": {\"code\": 1, \"message\": \"no memory\"}}" : o.text.data);
    ndp_str_release(&o.text);
}

/* "who: message", its first line in lines that fit the terminal. Those after it show a place in a file, and stay as
 * they are. */
static void print_complaint(const char *colour, const char *who, const char *message) {
    size_t first = strcspn(message, "\n"), name = strlen(who) + 1;
    ndp_str whole = {0}, fitting = {0};
    ndp_str_addf(&whole, "%s: %.*s", who, (int)first, message);
    cli_wrap(&fitting, whole.data ? whole.data : "", cli_line_width(STDERR_FILENO));
    bool whole_fits = fitting.data && !fitting.failed;
    fprintf(stderr, "%s%.*s%s%s%s\n", colour, (int)name, whole_fits ? fitting.data : who, *colour ? "\033[0m" : "",
            whole_fits ? fitting.data + name : ": not enough memory for a message", message + first);
    ndp_str_release(&whole);
    ndp_str_release(&fitting);
}

/* A warning stays a line of text: it is no error. */
static void complain(int code, const char *message, const char *trail) {
    if (json_errors && code) {
        print_json_error(code, message, trail);
        return;
    }
    print_complaint(!ndp_colours(STDERR_FILENO) ? "" : code ? "\033[1;31m" : "\033[1;33m", "ndparallel", message);
    if (trail)
        fprintf(stderr, "  at %s\n", trail);
}

int cli_error(int code, const char *fmt, ...) {
    char message[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    complain(code, message, NULL);
    return code;
}

static void complain_of_words(int argc, char **argv, const char *who, int code, const char *message) {
    for (int i = 1; i < argc; i++)
        json_errors |= strcmp(argv[i], "--json") == 0;
    if (json_errors)
        print_json_error(code, message, NULL);
    else
        print_complaint("", who, message);
}

void cli_refuse_words(int argc, char **argv, const char *who, const char *message) {
    complain_of_words(argc, argv, who, argp_err_exit_status, message);
}

void cli_end(const struct argp_state *state, int code, const char *fmt, ...) {
    char message[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    complain_of_words(state->argc, state->argv, state->name, code, message);
    exit(code);
}

void cli_refuse(const struct argp_state *state, const char *fmt, ...) {
    char message[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    cli_refuse_words(state->argc, state->argv, state->name, message);
    if (!json_errors) {
        ndp_str see = {0};
        snprintf(message, sizeof message, "Try `%s --help' or `%s --usage' for more information.", state->name,
                 state->name);
        cli_wrap(&see, message, cli_line_width(STDERR_FILENO));
        fprintf(stderr, "%s\n", see.failed ? message : see.data);
        ndp_str_release(&see);
    }
    exit(argp_err_exit_status);
}

int cli_fail(ndp_status st, bool debug) { return cli_fail_of("", st, debug); }

int cli_fail_of(const char *who, ndp_status st, bool debug) {
    int code = ndp_exit_code(st);
    char message[4096], trail[1024];
    fflush(stdout);
    snprintf(message, sizeof message, "%s%s", who, ndp_error_message());
    snprintf(trail, sizeof trail, "%s", ndp_error_trail());
    complain(code, message, st == NDP_EBUG || debug ? trail : NULL);
    if (st == NDP_EBUG && !json_errors)
        fprintf(stderr,
                "  This is a bug in ndparallel. Please report these lines and the output of `ndparallel env`.\n");
    return code;
}

int cli_end_output(int code) {
    errno = ferror(stdout) ? errno : 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    return cli_error(code ? code : CLI_EXIT_FAILED, "cannot write the output: %s", strerror(errno ? errno : EIO));
}

void cli_print_fitting(ndp_str *text) {
    ndp_str fitting = {0};
    if (text->failed)
        exit(cli_error(CLI_EXIT_FAILED, "%s", strerror(ENOMEM)));
    cli_wrap(&fitting, text->data ? text->data : "", cli_line_width(STDOUT_FILENO));
    fputs(fitting.data && !fitting.failed ? fitting.data : text->data ? text->data : "", stdout);
    ndp_str_release(&fitting);
    ndp_str_release(text);
}

int cli_print(ndp_status st, char *text, bool debug) {
    if (st != NDP_OK)
        return cli_fail(st, debug);
    ndp_str whole = {0};
    size_t length = strlen(text);
    ndp_str_addf(&whole, "%s%s", text, length && text[length - 1] == '\n' ? "" : "\n");
    free(text);
    cli_print_fitting(&whole);
    return cli_end_output(0);
}

void cli_print_json(ndp_json_out *o) {
    if (o->text.failed)
        exit(cli_error(CLI_EXIT_FAILED, "%s", strerror(ENOMEM)));
    printf("%s\n", o->text.data);
    ndp_str_release(&o->text);
}
