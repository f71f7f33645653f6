/* The arguments of all commands: options are rows of tables, which argp parses. cli_parse makes argp's table from them;
 * an option's key there is its short name, or else its place in the table. */
#include "cli/cli.h"
#include "cli/exit_codes.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

long long cli_integer(struct argp_state *state, const char *option, const char *arg, long long low, long long high) {
    char *end;
    errno = 0;
    long long n = strtoll(arg, &end, 10);
    if (end == arg || *end || errno || n < low || n > high)
        cli_refuse(state, "%s '%s': expected a whole number from %lld to %lld", option, arg, low, high);
    return n;
}

void cli_steps(struct argp_state *state, const char *option, const char *steps, int64_t *first, int64_t *last) {
    char begin[32];
    const char *dash = strchr(steps, '-');
    snprintf(begin, sizeof begin, "%.*s", dash ? (int)(dash - steps) : (int)strlen(steps), steps);
    *first = cli_integer(state, option, begin, 1, INT_MAX);
    *last = dash ? cli_integer(state, option, dash + 1, 1, INT_MAX) : *first;
    if (*first > *last)
        cli_refuse(state, "%s %s: the first step is after the last", option, steps);
}

static double number(struct argp_state *state, const char *option, const char *arg, double low, double high) {
    char *end;
    double x = strtod(arg, &end);
    if (end == arg || *end || !(x >= low && x <= high))
        cli_refuse(state, "%s '%s': expected a number from %g to %g", option, arg, low, high);
    return x;
}

static void append(cli_list *list, struct argp_state *state, const char *text) {
    const char **grown = realloc(list->items, sizeof *grown * (size_t)(list->n + 1));
    if (!grown)
        cli_end(state, CLI_EXIT_FAILED, "%s: %s", text, strerror(ENOMEM));
    list->items = grown;
    list->items[list->n++] = text;
}

static void take_value(const cli_option *o, void *arguments, struct argp_state *state, char *arg) {
    char name[64];
    void *to = (char *)arguments + o->at;
    snprintf(name, sizeof name, "--%s", o->name);
    switch (o->kind) {
    case CLI_IS_FLAG:
        *(bool *)to = true;
        if (strcmp(o->name, "json") == 0)
            cli_errors_as_json();
        break;
    case CLI_IS_TEXT:
        *(const char **)to = arg;
        break;
    case CLI_IS_INT:
        *(int *)to = (int)cli_integer(state, name, arg, o->low, o->high);
        break;
    case CLI_IS_INT64:
        *(int64_t *)to = cli_integer(state, name, arg, o->low, o->high);
        break;
    case CLI_IS_NUMBER:
        *(double *)to = number(state, name, arg, (double)o->low, (double)o->high);
        break;
    case CLI_IS_LIST:
        append(to, state, arg);
        break;
    case CLI_IS_CALL:
        o->call(arguments, state, arg);
        break;
    }
}

/* ---- jobs ---- */

void cli_job_assign(cli_job *j, struct argp_state *state, const char *fmt, ...) {
    char **grown = realloc(j->assignments, sizeof *grown * (size_t)(j->n + 1));
    if (grown)
        j->assignments = grown;
    va_list args;
    va_start(args, fmt);
    if (!grown || vasprintf(&j->assignments[j->n], fmt, args) < 0)
        cli_end(state, CLI_EXIT_FAILED, "cannot set a key of the job: %s", strerror(ENOMEM));
    va_end(args);
    j->n++;
}

void cli_job_assign_text(cli_job *j, struct argp_state *state, const char *key, const char *text) {
    char *quoted = malloc(2 * strlen(text) + 3), *to = quoted; /* single quotes, as YAML has them */
    if (!quoted)
        cli_end(state, CLI_EXIT_FAILED, "cannot set a key of the job: %s", strerror(ENOMEM));
    *to++ = '\'';
    for (; *text; *to++ = *text++)
        if (*text == '\'')
            *to++ = '\'';
    *to++ = '\'';
    *to = '\0';
    cli_job_assign(j, state, "%s=%s", key, quoted);
    free(quoted);
}

static void set_key(void *job, struct argp_state *state, const char *value) { cli_job_assign(job, state, "%s", value); }

static void set_ranks(void *job, struct argp_state *state, const char *value) {
    cli_job_assign(job, state, "train.ranks=%lld", cli_integer(state, "--ranks", value, 1, 1 << 20));
}

static void set_transport(void *job, struct argp_state *state, const char *value) {
    cli_job_assign(job, state, "train.transport=%s", value);
}

void cli_set_device(void *job, struct argp_state *state, const char *value) {
    cli_job_assign(job, state, "train.device=%s", value);
}

static const char *job_transports(void) { return "auto, self, local, shm, mpi"; }

static const cli_option job_options[] = {
    {"set", 's', "KEY=VALUE",
     "Set a configuration key, overriding the file; `ndparallel config` lists the keys. May be repeated",
     CLI_CALL(set_key), .group = 1},
    {"ranks", 0, "N", "Number of ranks (train.ranks)", CLI_CALL(set_ranks), .group = 1},
    {"transport", 0, "NAME",
     "How ranks communicate (train.transport; self: one rank, local: threads of one process, shm: processes of one "
     "host)",
     CLI_CALL(set_transport), .choices = job_transports, .group = 1},
    {"force-memory", 0, NULL, "Start even if more memory is needed than is available (train.force_memory)",
     CLI_FLAG(cli_job, force_memory), .group = 1},
    {"debug", 0, NULL, "Show where in the source an error occurred", CLI_FLAG(cli_job, debug), .group = 2},
    {0},
};

static void take_file(cli_job *j, struct argp_state *state, const char *word) {
    const char *bare = NULL; /* a key whose value was written apart */
    for (int i = 0; i < j->n && !bare; i++)
        bare = strchr(j->assignments[i], '=') ? NULL : j->assignments[i];
    if (j->file && bare)
        cli_refuse(state, "two job files: '%s' and '%s'; a value is joined to its key: write --set %s=%s", j->file,
                   word, bare, word);
    else if (j->file && strchr(word, '='))
        cli_refuse(state, "two job files: '%s' and '%s'; a key is given by --set: write --set %s", j->file, word, word);
    else if (j->file)
        cli_refuse(state, "two job files: '%s' and '%s'", j->file, word);
    j->file = word;
}

void cli_job_release(cli_job *j) {
    for (int i = 0; i < j->n; i++)
        free(j->assignments[i]);
    free(j->assignments);
    ndp_config_destroy(j->config);
    *j = (cli_job){0};
}

ndp_status cli_job_load(cli_job *j) {
    ndp_status st = ndp_config_create(&j->config);
    if (st == NDP_OK)
        st = ndp_config_read(j->config, j->file);
    for (int i = 0; i < j->n && st == NDP_OK; i++)
        st = ndp_config_set(j->config, j->assignments[i]);
    return st == NDP_OK && j->force_memory ? ndp_config_set(j->config, "train.force_memory=true") : st;
}

/* ---- parsing ---- */

enum { MOST_OPTIONS = 24, FIRST_KEY = 0x100, HELP = 256 };

typedef struct option_parsing {
    const cli_command *command;
    void *arguments;
    const cli_option *options[MOST_OPTIONS];
    struct argp_option shown[MOST_OPTIONS + 3]; /* the same for argp, then -h and -V, and an empty one */
    char help[MOST_OPTIONS][HELP];              /* of options that list their choices */
    int n;
} option_parsing;

static int count_options(const cli_option *options) {
    int n = 0;
    while (options && options[n].name)
        n++;
    return n;
}

const cli_option *cli_option_of(const cli_command *c, int i) {
    int own = count_options(c->options), of_job = c->takes_job ? count_options(job_options) : 0;
    return i < own ? &c->options[i] : i < own + of_job ? &job_options[i - own] : NULL;
}

static void add_options(option_parsing *p) {
    for (const cli_option *o; (o = cli_option_of(p->command, p->n)) && p->n < MOST_OPTIONS; p->n++) {
        p->options[p->n] = o;
        p->shown[p->n] = (struct argp_option){.name = o->name,
                                              .key = o->key ? o->key : FIRST_KEY + p->n,
                                              .arg = o->value,
                                              .flags = o->help ? 0 : OPTION_HIDDEN,
                                              .doc = o->help,
                                              .group = o->group};
        if (!o->choices)
            continue;
        snprintf(p->help[p->n], HELP, "%s: %s", o->help, o->choices());
        p->shown[p->n].doc = p->help[p->n];
    }
    p->shown[p->n] = (struct argp_option){.key = 'h', .flags = OPTION_HIDDEN};
    p->shown[p->n + 1] = (struct argp_option){.key = 'V', .flags = OPTION_HIDDEN};
}

static error_t parse_key(int key, char *arg, struct argp_state *state) {
    const option_parsing *p = state->input;
    const cli_command *c = p->command;
    cli_job *job = c->takes_job ? p->arguments : NULL;
    for (int i = 0; i < p->n; i++)
        if (p->shown[i].key == key) {
            take_value(p->options[i], p->arguments, state, arg);
            return 0;
        }
    if (key == 'h') {
        argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
    } else if (key == 'V') {
        puts(argp_program_version);
        exit(0);
    } else if (key == ARGP_KEY_ARG && job) {
        take_file(job, state, arg);
    } else if (key == ARGP_KEY_ARG && c->argument) {
        c->argument(p->arguments, state, arg);
    } else if (key == ARGP_KEY_END) {
        if (job && !job->file && !job->optional)
            cli_refuse(state, "no job file; give one, such as job.yaml");
        if (c->check)
            c->check(p->arguments, state);
    } else {
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* The last lines of --help: sub-commands, and examples. argp frees the text. */
static char *end_help(int key, const char *text, void *input) {
    const option_parsing *p = input;
    if (key != ARGP_KEY_HELP_EXTRA || !p)
        return (char *)text;
    char *end = NULL;
    size_t size;
    FILE *out = open_memstream(&end, &size);
    if (!out)
        return NULL;
    for (const cli_command *const *part = p->command->parts; part && *part; part++)
        fprintf(out, "%s  %-10s %s\n%s", part == p->command->parts ? "Commands:\n" : "", (*part)->name, (*part)->about,
                part[1] ? "" : "\n");
    fprintf(out, "Examples:\n  %s\n  %s", p->command->examples[0], p->command->examples[1]);
    return fclose(out) == 0 ? end : NULL;
}

void cli_parse(const cli_command *c, int argc, char **argv, void *arguments) {
    option_parsing p = {.command = c, .arguments = arguments};
    add_options(&p);
    if (!c->parts && !(c->flags & ARGP_IN_ORDER))
        cli_refuse_habits(c, argc, argv);
    const struct argp argp = {
        .options = p.shown, .parser = parse_key, .args_doc = c->usage, .doc = c->help, .help_filter = end_help};
    argp_parse(&argp, argc, argv, c->flags, NULL, &p);
}
