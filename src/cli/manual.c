/* Manual pages (pages.h), in the man macros of roff. */
#include "cli/exit_codes.h"
#include "cli/pages.h"

#include <stdlib.h>
#include <string.h>

/* The variables that the program reads. tests/cli/test_manual.sh finds all of them in the sources. */
static const struct {
    const char *name, *meaning;
} environment[] = {
    {"NDP_COMM_TIMEOUT", "Seconds after which a rank that waits for another one gives up and names it; default: 300"},
    {"NDP_LOCK_PATIENCE",
     "Seconds for which the lock of a run folder must stand still before --restarts or a Slurm job "
     "takes it over; default: 30"},
    {"NDP_JOURNAL", "If a rank fails, each rank writes its last communications to the file of this name with .rankN "
                    "at the end; default of train: journal in the run folder, for `doctor`"},
    {"NDP_PLUGIN_DIR", "Folder in which the plugins (ndp_mpi.so, ndp_cuda.so) are looked for first"},
    {"NDP_CUDA_PATH", "Folders, with colons between them, in which cuBLASLt is looked for first"},
    {"NDP_PYTHON", "The Python whose pyarrow reads Parquet and Arrow files; default: /usr/bin/python3"},
    {"NDP_ISA", "Limits the instructions that kernels use: generic, avx512, avx512_bf16, dpbf16ps or amx_bf16; on "
                "aarch64 generic or sve"},
    {"NDP_SHM", "off: ranks that mpirun started on one host do not share memory; for tests"},
    {"NDP_LOCAL_ORDER", "With local: seeds, with commas between; ranks take turns on one thread in such an order; for "
                        "tests in C, of one GPU at most"},
    {"NDP_NODE_RANKS", "With mpirun: ranks that count as one host; for tests"},
    {"NDP_NODE_OF", "With mpirun: the host of each rank, as in 0,1,1,0; for tests"},
    {"NDP_GPU_GUARD", "1: a kernel that leaves its piece of a GPU's memory faults; for tests"},
    {"NDP_GPU_CALLS", "1: if a GPU fails or hangs, the message names the kernel, not only the instruction; slower"},
    {"NDP_SIM_FAIL_AT", "Device sim: the number of the submission that fails; for tests"},
    {"NDP_SIM_FAIL_RANK", "Device sim: the only rank in which NDP_SIM_FAIL_AT counts; for tests"},
    {"NDP_SIM_GPUS", "Device sim: how many GPUs it plays; default: 1; for tests"},
    {"NDP_SIM_ORDER", "Device sim: down runs the threads of a block in the opposite order; for tests"},
    {"NDP_SIM_REFUSES",
     "Device sim: functions of CUDA that refuse their calls, as NAME or NAME=CODE, with commas between; "
     "for tests"},
    {"NDP_SIM_SEED", "Device sim: runs what the queues hold in a random order of this seed; for tests"},
    {"NDP_SIM_SHARED", "Device sim: bytes of shared memory that a block can have; default: 232448; for tests"},
    {"NDP_WORLD, NDP_RANK, NDP_LAUNCHED, NDP_LAUNCHER, NDP_TERMINAL",
     "Set by the program for the ranks that it starts"},
    {"HF_HOME, HF_HUB_CACHE", "The cache of the Hugging Face Hub, in which models and data are looked for by name"},
    {"XDG_CACHE_HOME", "Folder of the cache of tokenized data; default: ~/.cache"},
    {"CUDA_DEVICE_MAX_CONNECTIONS", "How many queues of a GPU run by themselves; not set: 32"},
    {"CUDA_VISIBLE_DEVICES", "Limits the GPUs that ranks take"},
    {"TMPDIR", "Folder of Open MPI's temporary files; default: /tmp"},
};

enum { VARIABLES = sizeof environment / sizeof *environment };

/* Text that roff shows as it is. `n` characters; -1: all. */
static void put_text(FILE *out, const char *text, int n) {
    bool begins = true;
    for (int i = 0; text[i] && i != n; i++) {
        if (begins && (text[i] == '.' || text[i] == '\''))
            fputs("\\&", out);
        begins = text[i] == '\n';
        if (text[i] == '\\')
            fputs("\\e", out);
        else if (text[i] == '-')
            fputs("\\-", out);
        else if (text[i] == '~')
            fputs("\\(ti", out);
        else if (text[i] == '`')
            fputs("\\(ga", out);
        else
            putc(text[i], out);
    }
}

static void put_line(FILE *out, const char *before, const char *text) {
    fputs(before, out);
    put_text(out, text, -1);
    putc('\n', out);
}

static void begin_page(FILE *out, const char *name, int section, const char *about) {
    fputs(".TH \"", out);
    put_text(out, name, -1);
    fprintf(out, "\" %d \"\" \"ndparallel %s\" \"ndparallel\"\n.SH NAME\n", section, NDP_VERSION);
    put_text(out, name, -1);
    put_line(out, " \\- ", about);
}

static void put_exit_codes(FILE *out) {
    fputs(".SH \"EXIT STATUS\"\n", out);
    for (const cli_exit_row *row = cli_exit_rows; row->code; row++) {
        fprintf(out, ".TP\n.B %s\n", row->code);
        put_line(out, "", row->when);
    }
}

/* ---- commands ---- */

/* "checkpoint\-list" for "checkpoint list" */
static void put_page_name(FILE *out, const char *words) {
    fputs("ndparallel\\-", out);
    for (; *words; words++)
        fputs(*words == ' ' ? "\\-" : (char[]){*words, '\0'}, out);
}

static void put_synopsis(FILE *out, const cli_command *c, const char *words) {
    const char *usage = c->usage ? c->usage : "", *end = usage;
    fputs(".SH SYNOPSIS\n", out);
    do {
        end = strchrnul(usage, '\n');
        fprintf(out, ".B ndparallel %s\n[\\fIOPTION\\fR...] ", words);
        put_text(out, usage, (int)(end - usage));
        fputs(*end ? "\n.br\n" : "\n", out);
        usage = end + 1;
    } while (*end);
}

static void put_option(FILE *out, const cli_option *o) {
    if (!o->help)
        return;
    fputs(".TP\n", out);
    if (o->key)
        fprintf(out, "\\fB\\-%c\\fR, ", o->key);
    fputs("\\fB\\-\\-", out);
    put_text(out, o->name, -1);
    fputs("\\fR", out);
    if (o->value) {
        fputs("=\\fI", out);
        put_text(out, o->value, -1);
        fputs("\\fR", out);
    }
    put_line(out, "\n", o->help);
    if (o->choices)
        put_line(out, "Values: ", o->choices());
}

static void put_parts(FILE *out, const cli_command *const *parts, const char *before) {
    fputs(".SH COMMANDS\n", out);
    for (; *parts; parts++) {
        char *words = cli_words_below(before, *parts);
        fputs(".TP\n.BR ", out);
        put_page_name(out, words ? words : "");
        put_line(out, " (1)\n", (*parts)->about);
        free(words);
    }
}

static void put_examples(FILE *out, const cli_command *c) {
    fputs(".SH EXAMPLES\n.nf\n", out);
    for (int i = 0; i < 2; i++)
        put_line(out, "", c->examples[i]);
    fputs(".fi\n", out);
}

void cli_write_command_page(FILE *out, const cli_command *c, const char *words) {
    char name[CLI_FULL_NAME + 16];
    snprintf(name, sizeof name, "ndparallel-%s", words);
    for (char *space; (space = strchr(name, ' '));)
        *space = '-';
    begin_page(out, name, 1, c->about);
    put_synopsis(out, c, words);
    fputs(".SH DESCRIPTION\n", out);
    const char *second = strchr(c->help, '\v');
    put_text(out, c->help, second ? (int)(second - c->help) : -1);
    if (second)
        put_line(out, "\n.PP\n", second + 1);
    else
        putc('\n', out);
    if (c->parts)
        put_parts(out, c->parts, words);
    fputs(".SH OPTIONS\n", out);
    const cli_option *o;
    for (int i = 0; (o = cli_option_of(c, i)); i++)
        put_option(out, o);
    fputs(".TP\n\\fB\\-?\\fR, \\fB\\-\\-help\\fR\nGive a help list\n.TP\n\\fB\\-\\-usage\\fR\nGive a short usage "
          "message\n",
          out);
    put_examples(out, c);
    put_exit_codes(out);
    fputs(".SH \"SEE ALSO\"\n.BR ndparallel (1),\n.BR ndparallel\\-job (5)\n", out);
}

void cli_write_main_page(FILE *out) {
    begin_page(out, "ndparallel", 1, "train language models with any combination of parallelisms");
    fputs(".SH SYNOPSIS\n.B ndparallel\n.I COMMAND\n[\\fIOPTION\\fR...] [\\fIARGUMENT\\fR...]\n"
          ".SH DESCRIPTION\nTrains language models on one processor or many. A job file, described in\n"
          ".BR ndparallel\\-job (5),\nsays what to train, on which data and in which layout.\n",
          out);
    put_parts(out, cli_commands, "");
    fputs(".SH OPTIONS\n.TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nList the commands\n"
          ".TP\n\\fB\\-V\\fR, \\fB\\-\\-version\\fR\nPrint the version\n",
          out);
    put_exit_codes(out);
    fputs(".SH ENVIRONMENT\n", out);
    for (int i = 0; i < VARIABLES; i++) {
        put_line(out, ".TP\n.B ", environment[i].name);
        put_line(out, "", environment[i].meaning);
    }
    fputs(".SH \"SEE ALSO\"\n.BR ndparallel\\-job (5)\n", out);
}

/* ---- keys ---- */

/* One line of a description by ndp_config_describe: "optimizer.lr: its meaning", then "  name   what it says" for each
 * property. */
static void put_description(FILE *out, const char *line, int length, char section[CLI_FULL_NAME]) {
    const char *colon = memchr(line, ':', (size_t)length), *dot = memchr(line, '.', (size_t)length);
    if (length && line[0] == ' ') {
        enum { NAME = 15 }; /* columns of the name, with its indentation */
        int n = NAME < length ? NAME : length;
        while (n > 2 && line[n - 1] == ' ')
            n--;
        fputs(".br\n\\fI", out);
        put_text(out, line + 2, n - 2);
        fputs("\\fR: ", out);
        put_text(out, line + (NAME < length ? NAME : length), length > NAME ? length - NAME : 0);
        putc('\n', out);
    } else if (colon && dot && dot < colon) {
        char now[CLI_FULL_NAME];
        snprintf(now, sizeof now, "%.*s", (int)(dot - line), line);
        if (strcmp(now, section) != 0)
            fprintf(out, ".SS Section %s\n", strcpy(section, now));
        fputs(".TP\n.B ", out);
        put_text(out, line, (int)(colon - line));
        putc('\n', out);
        put_text(out, colon + 2, (int)(line + length - colon - 2));
        putc('\n', out);
    }
}

ndp_status cli_write_job_page(FILE *out) {
    char *text, section[CLI_FULL_NAME] = "";
    ndp_status st = ndp_config_describe(NULL, 0, NDP_KEYS_TEXT, &text);
    if (st != NDP_OK)
        return st;
    begin_page(out, "ndparallel-job", 5, "the job file of ndparallel");
    fputs(".SH DESCRIPTION\nA job file is YAML: sections with keys. A key that is left out has its default.\n"
          "The option \\fB\\-\\-set\\fR \\fISECTION.KEY=VALUE\\fR of the commands overrides the file.\n"
          "\\fBndparallel config\\fR \\fIKEY\\fR prints what is written here.\n.PP\n"
          ".nf\nmodel: {path: my\\-model}\ndata: {files: [notes.txt], sequence_length: 1024}\n"
          "train: {steps: 100, output_dir: runs/demo}\n.fi\n.SH KEYS\n",
          out);
    for (const char *line = text, *end; *line; line = end + (*end == '\n')) {
        end = strchrnul(line, '\n');
        put_description(out, line, (int)(end - line), section);
    }
    fputs(".SH \"SEE ALSO\"\n.BR ndparallel (1),\n.BR ndparallel\\-config (1)\n", out);
    free(text);
    return NDP_OK;
}
