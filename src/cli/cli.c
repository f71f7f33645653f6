/* Errors, option values and job files, for all commands. */
#include "cli/cli.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---- */

int cli_exit_code(ndp_status st) {
    switch (st) {
    case NDP_OK:
        return 0;
    case NDP_EINVAL:
    case NDP_EFORMAT:
        return 2;
    case NDP_EINTR:
        return 130;
    default:
        return 1;
    }
}

int cli_fail(ndp_status st, bool debug) { return cli_fail_of("", st, debug); }

int cli_fail_of(const char *who, ndp_status st, bool debug) {
    fflush(stdout);
    fprintf(stderr, "ndparallel: %s%s\n", who, ndp_error_message());
    if (st == NDP_EBUG || debug)
        fprintf(stderr, "  at %s\n", ndp_error_trail());
    if (st == NDP_EBUG)
        fprintf(stderr,
                "  This is a bug in ndparallel. Please report these lines and the output of `ndparallel env`.\n");
    return cli_exit_code(st);
}

int cli_end_output(int code) {
    errno = ferror(stdout) ? errno : 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "ndparallel: cannot write the output: %s\n", strerror(errno ? errno : EIO));
    return code ? code : 1;
}

int cli_print(ndp_status st, char *text, bool debug) {
    if (st != NDP_OK)
        return cli_fail(st, debug);
    size_t length = strlen(text);
    printf("%s%s", text, length && text[length - 1] == '\n' ? "" : "\n");
    int code = cli_end_output(0); /* before free, which may set errno */
    free(text);
    return code;
}

/* ---- values ---- */

long long cli_integer(struct argp_state *state, const char *option, const char *arg, long long low, long long high) {
    char *end;
    errno = 0;
    long long n = strtoll(arg, &end, 10);
    if (end == arg || *end || errno || n < low || n > high)
        argp_error(state, "%s '%s': expected a whole number from %lld to %lld", option, arg, low, high);
    return n;
}

double cli_number(struct argp_state *state, const char *option, const char *arg, double low, double high) {
    char *end;
    double x = strtod(arg, &end);
    if (end == arg || *end || !(x >= low && x <= high))
        argp_error(state, "%s '%s': expected a number from %g to %g", option, arg, low, high);
    return x;
}

/* ---- jobs ---- */

enum { OPTION_RANKS = 0x100, OPTION_TRANSPORT, OPTION_FORCE_MEMORY, OPTION_DEBUG };

static const struct argp_option job_options[] = {
    {"set", 's', "KEY=VALUE", 0,
     "Set a configuration key, overriding the file; `ndparallel config` lists the keys. May be repeated", 1},
    {"ranks", OPTION_RANKS, "N", 0, "Number of ranks (train.ranks)", 1},
    {"transport", OPTION_TRANSPORT, "NAME", 0,
     "How ranks communicate (train.transport): auto, self (one rank), local (threads of one process), shm (processes "
     "of "
     "one host) or mpi",
     1},
    {"force-memory", OPTION_FORCE_MEMORY, NULL, 0,
     "Start even if more memory is needed than is available (train.force_memory)", 1},
    {"debug", OPTION_DEBUG, NULL, 0, "Show where in the source an error occurred", 2},
    {0},
};

void cli_job_assign(cli_job *j, struct argp_state *state, const char *key, const char *value) {
    char **grown = realloc(j->assignments, sizeof *grown * (size_t)(j->n + 1));
    if (grown)
        j->assignments = grown;
    if (!grown || asprintf(&j->assignments[j->n], "%s%s", key, value) < 0)
        argp_failure(state, 1, ENOMEM, "%s%s", key, value);
    else
        j->n++;
}

static error_t parse_job(int key, char *arg, struct argp_state *state) {
    cli_job *j = state->input;
    switch (key) {
    case 's':
        cli_job_assign(j, state, "", arg);
        return 0;
    case OPTION_RANKS:
        cli_integer(state, "--ranks", arg, 1, 1 << 20);
        cli_job_assign(j, state, "train.ranks=", arg);
        return 0;
    case OPTION_TRANSPORT:
        cli_job_assign(j, state, "train.transport=", arg);
        return 0;
    case OPTION_FORCE_MEMORY:
        j->force_memory = true;
        return 0;
    case OPTION_DEBUG:
        j->debug = true;
        return 0;
    case ARGP_KEY_ARG:
        if (j->file)
            argp_error(state, "two job files: '%s' and '%s'", j->file, arg);
        j->file = arg;
        return 0;
    case ARGP_KEY_END:
        if (!j->file && !j->optional)
            argp_error(state, "no job file; give one, such as job.yaml");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp cli_job_argp = {job_options, parse_job, NULL, NULL, NULL, NULL, NULL};

void cli_job_release(cli_job *j) {
    for (int i = 0; i < j->n; i++)
        free(j->assignments[i]);
    free(j->assignments);
    *j = (cli_job){0};
}

ndp_status cli_job_load(const cli_job *j, ndp_config **out) {
    ndp_config *c;
    ndp_status st = ndp_config_create(&c);
    if (st != NDP_OK)
        return st;
    st = ndp_config_read(c, j->file);
    for (int i = 0; i < j->n && st == NDP_OK; i++)
        st = ndp_config_set(c, j->assignments[i]);
    if (st == NDP_OK && j->force_memory)
        st = ndp_config_set(c, "train.force_memory=true");
    if (st == NDP_OK)
        *out = c;
    else
        ndp_config_destroy(c);
    return st;
}
