/* Arguments as other programs take them: what to write instead. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options of accelerate launch, torchrun, mpirun and axolotl. */
static const struct {
    const char *name, *instead;
} habits[] = {
    {"num_processes", "write --ranks N: ndparallel starts the ranks itself"},
    {"num-processes", "write --ranks N: ndparallel starts the ranks itself"},
    {"nproc_per_node", "write --ranks N, the ranks on all hosts: ndparallel starts them itself"},
    {"nproc-per-node", "write --ranks N, the ranks on all hosts: ndparallel starts them itself"},
    {"np", "write --ranks N: ndparallel starts the ranks itself"},
    {"nnodes", "write --hostfile FILE, a file with a line `node-1 slots=8` for each host"},
    {"num_machines", "write --hostfile FILE, a file with a line `node-1 slots=8` for each host"},
    {"config_file", "the job file is an argument: write `ndparallel train job.yaml`"},
    {"config-file", "the job file is an argument: write `ndparallel train job.yaml`"},
    {"config", "the job file is an argument: write `ndparallel train job.yaml`"},
    {"job.config_file", "the job file is an argument: write `ndparallel train job.yaml`"},
};

typedef struct {
    int n;
    char **words;
} command_line;

static void refuse(const command_line *l, const char *given, const char *why) {
    char message[1024];
    snprintf(message, sizeof message, "%s is not an option; %s", given, why);
    cli_refuse_words(l->n, l->words, l->words[0], message);
    exit(2);
}

/* The option that `name` of `n` bytes is, or abbreviates; NULL: none. */
static const cli_option *find(const cli_command *c, const char *name, size_t n) {
    const cli_option *o;
    for (int i = 0; (o = cli_option_of(c, i)); i++)
        if (strncmp(o->name, name, n) == 0)
            return o;
    return NULL;
}

static const cli_option *find_letter(const cli_command *c, int key) {
    const cli_option *o;
    for (int i = 0; (o = cli_option_of(c, i)); i++)
        if (o->key == key)
            return o;
    return NULL;
}

static bool is_of_argp(const char *name, size_t n) {
    static const char *const names[] = {"help", "usage", "version", "program-name"};
    for (int i = 0; i < 4; i++)
        if (strncmp(names[i], name, n) == 0)
            return true;
    return false;
}

/* The long option of the command that is nearest to `name`; NULL: none is near. */
static const char *nearest_option(const cli_command *c, const char *name) {
    const char *names[64];
    int n = 0;
    const cli_option *o;
    for (int i = 0; (o = cli_option_of(c, i)) && n < (int)(sizeof names / sizeof names[0]); i++)
        names[n++] = o->name;
    return ndp_nearest(name, names, n);
}

/* An option that the command does not have: one of another program, a key of the job, or neither. */
static void refuse_long(const cli_command *c, const command_line *l, const char *given, size_t n) {
    char name[64], *described = NULL, why[512];
    snprintf(name, sizeof name, "%.*s", (int)n, given + 2);
    for (size_t i = 0; c->takes_job && i < sizeof habits / sizeof habits[0]; i++)
        if (strcmp(habits[i].name, name) == 0)
            refuse(l, given, habits[i].instead);
    const char *key = name, *near = nearest_option(c, name);
    bool known = c->takes_job && ndp_config_describe(&key, 1, NDP_KEYS_TEXT, &described) == NDP_OK;
    free(described);
    if (known && strchr(name, '.'))
        snprintf(why, sizeof why, "keys of the job are given by --set: write --set %s=%s", name,
                 given[2 + n] == '=' ? given + 3 + n : "VALUE");
    else if (c->takes_job && (known || strpbrk(name, "_.")))
        snprintf(why, sizeof why, "keys of the job are given by --set SECTION.KEY=VALUE%s%.400s", known ? "" : "; ",
                 known ? "" : ndp_error_message());
    else
        snprintf(why, sizeof why, near ? "did you mean --%s?" : "`%s --help` lists them", near ? near : l->words[0]);
    refuse(l, given, why);
}

static void refuse_letter(const command_line *l, char letter) {
    char given[] = {'-', letter, '\0'}, why[128];
    snprintf(why, sizeof why, "`%s --help` lists them", l->words[0]);
    refuse(l, given, why);
}

void cli_refuse_habits(const cli_command *c, int argc, char **argv) {
    const command_line l = {argc, argv};
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *word = argv[i];
        if (word[0] != '-' || !word[1])
            continue;
        bool is_long = word[1] == '-';
        size_t n = is_long ? strcspn(word + 2, "=") : 0;
        const cli_option *o = is_long ? find(c, word + 2, n) : find_letter(c, word[1]);
        bool separate = is_long ? word[2 + n] == '\0' : word[2] == '\0';
        if (o)
            i += o->value && separate;
        else if (is_long && !is_of_argp(word + 2, n))
            refuse_long(c, &l, word, n);
        else if (word[1] == 'n' && strspn(word + 2, "p0123456789") == strlen(word + 2))
            refuse(&l, word, "write --ranks N: ndparallel starts the ranks itself");
        else if (!is_long && !strchr("?hV", word[1]))
            refuse_letter(&l, word[1]);
    }
}
