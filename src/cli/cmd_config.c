/* ndparallel config: lists the keys and their defaults, and imports the job files of other programs. */
#include "cli/commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- config ---- */

typedef struct config_arguments {
    bool defaults, markdown, json;
    const char **names; /* as many as argv; borrowed from it */
    int n;
} config_arguments;

static const cli_option options[] = {
    {"defaults", 'd', NULL, "Print the defaults as a job file", CLI_FLAG(config_arguments, defaults)},
    {"markdown", 0, NULL, "Print a table in Markdown: key, values, default, meaning",
     CLI_FLAG(config_arguments, markdown)},
    CLI_JSON(config_arguments, json),
    {0},
};

static void take_name(void *arguments, struct argp_state *state, char *word) {
    config_arguments *a = arguments;
    (void)state;
    a->names[a->n++] = word;
}

static void check_arguments(void *arguments, struct argp_state *state) {
    const config_arguments *a = arguments;
    if (a->defaults && (a->n || a->markdown || a->json))
        cli_refuse(state, "--defaults prints a job file of all keys; leave out %s",
                   a->n          ? "the names"
                   : a->markdown ? "--markdown"
                                 : "--json");
    if (a->markdown && a->json)
        cli_refuse(state, "--markdown and --json are two forms of the same table; give one of them");
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

typedef struct import_arguments {
    ndp_import_opts opts;
    cli_list assignments;
    const char *file, *output, *keys;
    bool json;
} import_arguments;

static const cli_option import_options[] = {
    {"output", 'o', "FILE", "Write the job file to FILE; default: stdout", CLI_TEXT(import_arguments, output)},
    {"set", 's', "KEY=VALUE", "Set a key of the job file, overriding the import. May be repeated",
     CLI_LIST(import_arguments, assignments)},
    {"ranks", 0, "N", "Number of ranks, if the file does not give it",
     CLI_INT(import_arguments, opts.ranks, 1, 1 << 20)},
    {"keys", 0, "PROGRAM",
     "Convert nothing: print what becomes of each key of axolotl, llamafactory, trl, accelerate, deepspeed or "
     "transformers, as Markdown tables; instead of FILE, imported, left-out or unsupported selects one",
     CLI_TEXT(import_arguments, keys)},
    {"force", 0, NULL, "Drop unknown keys, and keys that are not supported and change the result, instead of failing",
     CLI_FLAG(import_arguments, opts.force)},
    CLI_JSON(import_arguments, json),
    {0},
};

static void take_file(void *arguments, struct argp_state *state, char *word) {
    import_arguments *a = arguments;
    if (a->file)
        cli_refuse(state, "two files: '%s' and '%s'", a->file, word);
    a->file = word;
}

static void check_import(void *arguments, struct argp_state *state) {
    const import_arguments *a = arguments;
    if (!a->keys && !a->file)
        cli_refuse(state, "no file; give one, such as axolotl.yaml or default_config.yaml");
    if (a->keys && a->json)
        cli_refuse(state, "--keys prints tables in Markdown; leave out --json");
}

/* The job, then the notes as comments. */
static void add_job(ndp_str *out, const char *job, const char *notes) {
    ndp_str_addf(out, "%s\n", job);
    for (const char *line = notes, *end; *line; line = end + (*end == '\n')) {
        end = strchrnul(line, '\n');
        ndp_str_addf(out, "# %.*s\n", (int)(end - line), line);
    }
}

/* To a file at once, so that nothing half-written is left; NULL: to stdout. False: reported. */
static bool write_job(const char *path, const char *job, const char *notes) {
    ndp_str out = {0};
    add_job(&out, job, notes);
    ndp_status st = out.failed ? NDP_ENOMEM : path ? ndp_file_write_atomic(path, out.data, out.length) : NDP_OK;
    bool written = st == NDP_OK && (path || (fputs(out.data, stdout) >= 0 && fflush(stdout) == 0));
    if (out.failed || (!written && !path))
        cli_error(1, "cannot write %s: %s", path ? path : "the output", strerror(out.failed ? ENOMEM : errno));
    else if (!written)
        cli_error(1, "%s", ndp_error_message());
    ndp_str_release(&out);
    return written;
}

static int print_imported(const import_arguments *a, const char *job, const char *notes) {
    ndp_json_out o = {0};
    ndp_json_open(&o, NULL, '{');
    ndp_json_put_text(&o, "output", a->output);
    ndp_json_put_text(&o, "job", job);
    ndp_json_put_lines(&o, "notes", notes);
    ndp_json_close(&o, '}');
    cli_print_json(&o);
    return cli_end_output(0);
}

static int write_imported(const import_arguments *a, const char *job, const char *notes) {
    if (a->json && !a->output)
        return print_imported(a, job, notes);
    if (!write_job(a->output, job, notes))
        return 1;
    if (a->json)
        return print_imported(a, job, notes);
    bool shown = !a->output && isatty(STDOUT_FILENO) && isatty(STDERR_FILENO); /* the job has them as comments */
    if (!shown)
        fputs(notes, stderr);
    if (a->output)
        fprintf(stderr, "job written to %s\n", a->output);
    return 0;
}

static int run_import(const cli_command *c, int argc, char **argv) {
    import_arguments a = {.opts = NDP_IMPORT_OPTS_INIT};
    cli_parse(c, argc, argv, &a);
    if (a.keys) {
        char *tables = NULL;
        ndp_status st = ndp_config_import_keys(a.keys, a.file, &tables);
        free(a.assignments.items);
        return cli_print(st, tables, false);
    }
    a.opts.assignments = a.assignments.items;
    a.opts.assignment_count = a.assignments.n;
    ndp_config *config = NULL;
    char *notes = NULL, *job = NULL;
    ndp_status st = ndp_config_create(&config);
    if (st == NDP_OK)
        st = ndp_config_import(config, a.file, &a.opts, &job, &notes);
    int code = st == NDP_OK ? write_imported(&a, job, notes) : cli_fail(st, false);
    free(job);
    free(notes);
    free(a.assignments.items);
    ndp_config_destroy(config);
    return code;
}

static const cli_command part_import = {
    .name = "import",
    .about = "convert a job file of Axolotl, LLaMA-Factory, TRL, Accelerate or DeepSpeed",
    .usage = "FILE",
    .help =
        "Convert a file of Axolotl or LLaMA-Factory, one for `trl sft`, a file written by `accelerate config` (YAML or "
        "JSON), a ParallelismConfig, a DeepSpeed file or a DistributedConfig of transformers into a job file, and list "
        "every key that was not carried over, with the reason.",
    .options = import_options,
    .argument = take_file,
    .check = check_import,
    .examples = {"ndparallel config import axolotl.yaml -o job.yaml",
                 "ndparallel config import accelerate.yaml --set model.path=my-model"},
    .run = run_import};

static int print_keys(const cli_command *c, const config_arguments *a) {
    char *text = NULL;
    bool table = a->markdown || a->json;
    ndp_keys_format format = a->json ? NDP_KEYS_JSON : a->markdown ? NDP_KEYS_MARKDOWN : NDP_KEYS_TEXT;
    ndp_status st = a->defaults     ? defaults_text(&text)
                    : a->n || table ? ndp_config_describe(a->names, a->n, format, &text)
                                    : ndp_config_keys(&text);
    if (st != NDP_OK && a->n && ndp_nearest(a->names[0], &c->parts[0]->name, 1))
        return cli_fail_unknown(c, a->names[0]);
    return cli_print(st, text, false);
}

static int run(const cli_command *c, int argc, char **argv) {
    config_arguments a = {.names = calloc((size_t)argc, sizeof *a.names)};
    if (!a.names)
        return cli_error(1, "%s", strerror(ENOMEM));
    cli_parse(c, argc, argv, &a);
    int code = print_keys(c, &a);
    free(a.names);
    return code;
}

static const cli_command *const parts[] = {&part_import, NULL};
const cli_command cmd_config = {
    .name = "config",
    .about = "list the keys of a job file; import the job file of another program",
    .usage = "[KEY|SECTION...]\nimport FILE [OPTION...]",
    .help = "List the keys of a job file: their meaning, values and defaults. With names, such as optimizer.lr, lr or "
            "optimizer, tell all about these keys: also what reads them, and whether they may change on --resume.\v"
            "`ndparallel config import FILE` converts the job file of another program; see "
            "`ndparallel config import --help`.",
    .options = options,
    .argument = take_name,
    .check = check_arguments,
    .examples = {"ndparallel config optimizer.lr", "ndparallel config schedule --markdown"},
    .parts = parts,
    .run = run};
