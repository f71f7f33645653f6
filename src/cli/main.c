/* The program: `ndparallel COMMAND ...`, one cmd_*.c a command. */
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
    {"train", cmd_train, "trains a model as a job file says"},
    {"plan", cmd_plan, "shows what a job would do and need, without doing it"},
    {"verify", cmd_verify, "are a layout's gradients and losses those of one rank?"},
    {"launch", cmd_launch, "runs a program of your own on many ranks"},
    {"evaluate", cmd_evaluate, "the mean negative log-likelihood of texts under a model"},
    {"generate", cmd_generate, "continues a prompt"},
    {"tokenize", cmd_tokenize, "texts to token ids, and back"},
    {"config", cmd_config, "lists the keys of a job file, or their defaults"},
    {"env", cmd_env, "says what this program runs on, for bug reports"},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

/* Read by argp. */
const char *argp_program_version = "ndparallel " NDP_VERSION;

static void print_help(FILE *out) {
    fprintf(out, "Usage: ndparallel COMMAND ...\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
    fprintf(out, "\n`ndparallel COMMAND --help` lists a command's options, `ndparallel --version` says the version.\n");
}

/* Edits (insert, remove, replace a character) that turn a into b; both are shorter than 32. */
static int distance(const char *a, const char *b) {
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

/* The command that was meant: at most half of its letters differ; NULL when none is that near. */
static const char *nearest(const char *word) {
    const char *best = NULL;
    int least = 32;
    for (int i = 0; i < COMMANDS && strlen(word) < 31; i++) {
        int d = distance(word, commands[i].name);
        if (d < least && 2 * d <= (int)strlen(commands[i].name)) {
            least = d;
            best = commands[i].name;
        }
    }
    return best;
}

static int unknown(const char *word) {
    const char *meant = nearest(word);
    fprintf(stderr, "ndparallel: unknown command '%s'", word);
    if (meant)
        fprintf(stderr, "; did you mean '%s'?", meant);
    fprintf(stderr, "\n`ndparallel --help` lists the commands.\n");
    return 2;
}

static int run(const command *c, int argc, char **argv) {
    char name[64];
    snprintf(name, sizeof name, "ndparallel %s", c->name);
    argv[0] = name;
    return c->run(argc, argv);
}

/* OpenMP's threads spin while they wait, which on a machine that others use as well costs a step many times its work.
 * How long is read from the environment when the runtime is loaded, so the program starts itself once more, unless the
 * user has said what he wants. */
static void wait_politely(char **argv) {
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
    wait_politely(argv);
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(word, commands[i].name) == 0)
            return run(&commands[i], argc - 1, argv + 1);
    return unknown(word);
}
