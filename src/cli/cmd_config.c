/* ndparallel config: lists the keys and their defaults, and imports the job files of other programs. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- config ---- */

static const struct argp_option options[] = {
    {"defaults", 'd', NULL, 0, "Print the defaults as a job file", 0},
    {0},
};

static error_t parse_config(int key, char *arg, struct argp_state *state) {
    bool *defaults = state->input;
    if (key == ARGP_KEY_ARG)
        argp_error(state, "unknown argument '%s'; did you mean import FILE?", arg);
    if (key != 'd')
        return ARGP_ERR_UNKNOWN;
    *defaults = true;
    return 0;
}

static ndp_status defaults_text(char **text) {
    ndp_config *c;
    ndp_status st = ndp_config_create(&c);
    if (st != NDP_OK)
        return st;
    st = ndp_config_text(c, text);
    ndp_config_destroy(c);
    return st;
}

/* ---- config import ---- */

enum { OPTION_RANKS = 1, OPTION_FORCE };

static const struct argp_option import_options[] = {
    {"output", 'o', "FILE", 0, "Write the job file to FILE; default: stdout", 0},
    {"set", 's', "KEY=VALUE", 0, "Set a key of the job file, overriding the import. May be repeated", 0},
    {"ranks", OPTION_RANKS, "N", 0, "Number of ranks, if the file does not give it", 0},
    {"force", OPTION_FORCE, NULL, 0,
     "Drop unknown keys, and unsupported keys that change the result, instead of failing", 0},
    {0},
};

typedef struct import_arguments {
    ndp_import_opts opts;
    char **assignments; /* borrows from argv */
    const char *file, *output;
} import_arguments;

static void keep(import_arguments *a, struct argp_state *state, char *assignment) {
    char **grown = realloc(a->assignments, sizeof *grown * (size_t)(a->opts.assignment_count + 1));
    if (!grown)
        argp_failure(state, 1, ENOMEM, "%s", assignment);
    a->assignments = grown;
    a->assignments[a->opts.assignment_count++] = assignment;
}

static error_t parse_import(int key, char *arg, struct argp_state *state) {
    import_arguments *a = state->input;
    switch (key) {
    case 'o':
        a->output = arg;
        return 0;
    case 's':
        keep(a, state, arg);
        return 0;
    case OPTION_RANKS:
        a->opts.ranks = (int)cli_integer(state, "--ranks", arg, 1, 1 << 20);
        return 0;
    case OPTION_FORCE:
        a->opts.force = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->file)
            argp_error(state, "two files: '%s' and '%s'", a->file, arg);
        a->file = arg;
        return 0;
    case ARGP_KEY_END:
        if (!a->file)
            argp_error(state, "no file; give one, such as axolotl.yaml or default_config.yaml");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Writes the job, then the notes as comments. */
static bool write_job(FILE *out, const char *job, const char *notes) {
    fputs(job, out);
    fputs("\n", out);
    for (const char *line = notes, *end; *line; line = end + (*end == '\n')) {
        end = strchrnul(line, '\n');
        fprintf(out, "# %.*s\n", (int)(end - line), line);
    }
    return fflush(out) == 0 && !ferror(out);
}

static int write_imported(const import_arguments *a, const char *job, const char *notes) {
    FILE *out = a->output ? fopen(a->output, "w") : stdout;
    bool written = out && write_job(out, job, notes);
    int cause = errno;
    if (out && out != stdout && fclose(out) != 0 && written) {
        written = false;
        cause = errno;
    }
    if (!written) {
        fprintf(stderr, "ndparallel: cannot write %s: %s\n", a->output ? a->output : "the output", strerror(cause));
        return 1;
    }
    fputs(notes, stderr);
    if (a->output)
        fprintf(stderr, "job written to %s\n", a->output);
    return 0;
}

static int import_file(int argc, char **argv) {
    static const struct argp argp = {import_options,
                                     parse_import,
                                     "FILE",
                                     "Convert an Axolotl file, a file written by `accelerate config` (YAML or JSON), "
                                     "or a ParallelismConfig into a job "
                                     "file, and list every key that was not carried over, with the reason.",
                                     NULL,
                                     NULL,
                                     NULL};
    import_arguments a = {.opts = NDP_IMPORT_OPTS_INIT};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    a.opts.assignments = a.assignments;
    ndp_config *c = NULL;
    char *notes = NULL, *job = NULL;
    ndp_status st = ndp_config_create(&c);
    if (st == NDP_OK)
        st = ndp_config_import(c, a.file, &a.opts, &job, &notes);
    int code = st == NDP_OK ? write_imported(&a, job, notes) : cli_fail(st, false);
    free(job);
    free(notes);
    free(a.assignments);
    ndp_config_destroy(c);
    return code;
}

int cmd_config(int argc, char **argv) {
    static const struct argp argp = {options,
                                     parse_config,
                                     "\nimport FILE [OPTION...]",
                                     "List the keys of a job file: their meaning, values and defaults.\v"
                                     "`ndparallel config import FILE` converts the job file of another program; see "
                                     "`ndparallel config import --help`.",
                                     NULL,
                                     NULL,
                                     NULL};
    if (argc > 1 && strcmp(argv[1], "import") == 0) {
        char name[] = "ndparallel config import";
        argv[1] = name;
        return import_file(argc - 1, argv + 1);
    }
    bool defaults = false;
    argp_parse(&argp, argc, argv, 0, NULL, &defaults);
    char *text = NULL;
    ndp_status st = defaults ? defaults_text(&text) : ndp_config_keys(&text);
    return cli_print(st, text, false);
}
