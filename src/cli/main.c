/* The program: `ndparallel COMMAND ...`. Each command has a file cmd_*.c. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} command;

static const command commands[] = {
    {"train", cmd_train, "train a model from a job file"},
    {"plan", cmd_plan, "show the memory and communication of a job, without running it"},
    {"verify", cmd_verify, "check that layouts compute the same gradients and losses as one rank"},
    {"checkpoint", cmd_checkpoint, "list, verify and remove the checkpoints of a run"},
    {"launch", cmd_launch, "run your own program on many ranks"},
    {"evaluate", cmd_evaluate, "compute the mean negative log-likelihood of texts, or of a job's held-out data"},
    {"generate", cmd_generate, "generate text from a prompt"},
    {"tokenize", cmd_tokenize, "turn text into token ids, and back"},
    {"config", cmd_config, "list the keys of a job file; import the job file of another program"},
    {"env", cmd_env, "show processor, memory and libraries, for bug reports"},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

/* Read by argp. */
const char *argp_program_version = "ndparallel " NDP_VERSION;

static void print_help(FILE *out) {
    fprintf(out, "Usage: ndparallel COMMAND ...\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
    fprintf(out,
            "\n`ndparallel COMMAND --help` lists a command's options; `ndparallel --version` prints the version.\n");
}

/* The number of edits (insert, remove or replace a character) from a to b; both are shorter than 32. */
static int edit_distance(const char *a, const char *b) {
    int row[32];
    int n = (int)strlen(b);
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int replaced = diagonal + (a[i - 1] != b[j - 1]);
            int shorter = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replaced < shorter ? replaced : shorter;
        }
    }
    return row[n];
}

/* The most similar command, with at most half of its letters different; NULL if there is none. */
static const char *nearest_command(const char *word) {
    const char *best = NULL;
    int least = 32;
    for (int i = 0; i < COMMANDS && strlen(word) < 31; i++) {
        int d = edit_distance(word, commands[i].name);
        if (d < least && 2 * d <= (int)strlen(commands[i].name)) {
            least = d;
            best = commands[i].name;
        }
    }
    return best;
}

static int fail_unknown_command(const char *word) {
    const char *meant = nearest_command(word);
    fprintf(stderr, "ndparallel: unknown command '%s'", word);
    if (meant)
        fprintf(stderr, "; did you mean '%s'?", meant);
    fprintf(stderr, "\n`ndparallel --help` lists the commands.\n");
    return 2;
}

static int run_command(const command *c, int argc, char **argv) {
    char name[64];
    snprintf(name, sizeof name, "ndparallel %s", c->name);
    argv[0] = name;
    return c->run(argc, argv);
}

/* OpenMP's threads spin while they wait. On a machine that other programs use, that can make a step many times slower.
 * The runtime reads the spin count from the environment when it is loaded, so the program sets it and executes itself
 * again, unless the user has set it. */
static void limit_spinning(char **argv) {
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT"))
        return;
    if (setenv("GOMP_SPINCOUNT", "1000", 1) == 0)
        execv("/proc/self/exe", argv);
}

int main(int argc, char **argv) {
    argp_err_exit_status = 2;
    const char *word = argc > 1 ? argv[1] : "";
    if (!*word) {
        print_help(stderr);
        return 2;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        puts(argp_program_version);
        return 0;
    }
    limit_spinning(argv);
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(word, commands[i].name) == 0)
            return run_command(&commands[i], argc - 1, argv + 1);
    return fail_unknown_command(word);
}
