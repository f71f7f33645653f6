/* The table of commands (commands.h). */
#include "cli/commands.h"
#include "cli/exit_codes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const cli_command *const cli_commands[] = {
    &cmd_init,   &cmd_train,    &cmd_data,     &cmd_plan,   &cmd_verify, &cmd_checkpoint, &cmd_merge,  &cmd_export,
    &cmd_launch, &cmd_evaluate, &cmd_generate, &cmd_runs,   &cmd_watch,  &cmd_report,     &cmd_replay, &cmd_tokenize,
    &cmd_config, &cmd_topology, &cmd_record,   &cmd_doctor, &cmd_env,    &cmd_help,       NULL,
};

const cli_synonym cli_synonyms[] = {
    {"estimate-memory", "plan", NULL},
    {"estimate", "plan", NULL},
    {"memory", "plan", NULL},
    {"dry-run", "train --dry-run", NULL},
    {"fit", "train", NULL},
    {"run", "train", NULL},
    {"finetune", "train", NULL},
    {"fine-tune", "train", NULL},
    {"sft", "train", NULL},
    {"pretrain", "train", NULL},
    {"pre-train", "train", NULL},
    {"resume", "train --resume", NULL},
    {"chat", "generate --chat", NULL},
    {"inference", "generate", NULL},
    {"infer", "generate", NULL},
    {"sample", "generate", NULL},
    {"serve", "generate --chat", NULL},
    {"eval", "evaluate", NULL},
    {"test", "evaluate", "Accelerate's test is `ndparallel verify JOB.YAML`"},
    {"lm-eval", "evaluate", NULL},
    {"perplexity", "evaluate", NULL},
    {"import", "config import", NULL},
    {"convert", "config import", NULL},
    {"gguf", "export", "Its option is `--format gguf`"},
    {"quantize", "export", "Its options are `--format gguf --type q8_0`"},
    {"merge-lora", "merge", NULL},
    {"merge_and_unload", "merge", NULL},
    {"merge-weights", "checkpoint export", NULL},
    {"merge-sharded-fsdp-weights", "checkpoint export", NULL},
    {"preprocess", "data", NULL},
    {"dataset", "data", NULL},
    {"inspect", "data", NULL},
    {"encode", "tokenize", NULL},
    {"decode", "tokenize --decode", NULL},
    {"list", "runs", NULL},
    {"ls", "runs", NULL},
    {"status", "runs", NULL},
    {"monitor", "watch", NULL},
    {"follow", "watch", NULL},
    {"top", "watch", NULL},
    {"plot", "report", NULL},
    {"info", "env", NULL},
    {"diagnose", "doctor", NULL},
    {"new", "init", NULL},
    {"wizard", "init", NULL},
    {"version", "env", NULL},
    {"compare", "verify", NULL},
    {"check", "verify", NULL},
    {"keys", "config", NULL},
    {"man", "help", NULL},
    {0},
};

static const cli_command *find_in(const cli_command *const *list, const char *word) {
    for (; list && *list; list++)
        if (strcmp((*list)->name, word) == 0)
            return *list;
    return NULL;
}

const cli_command *cli_find(char *const *words, int n, int *used, char name[CLI_FULL_NAME]) {
    const cli_command *found = NULL;
    const cli_command *const *list = cli_commands;
    int at = snprintf(name, CLI_FULL_NAME, "ndparallel");
    for (*used = 0; *used < n; ++*used) {
        const cli_command *next = find_in(list, words[*used]);
        if (!next)
            break;
        at += snprintf(name + at, (size_t)(CLI_FULL_NAME - at), " %s", next->name);
        found = next;
        list = next->parts;
    }
    return found;
}

/* ---- names that do not exist ---- */

static const cli_synonym *synonym_of(const char *word) {
    for (const cli_synonym *s = cli_synonyms; s->word; s++)
        if (strcasecmp(s->word, word) == 0)
            return s;
    return NULL;
}

int cli_fail_unknown(const cli_command *in, const char *word) {
    enum { MOST = 32, SHOWN = 3 };
    const cli_command *const *list = in ? in->parts : cli_commands;
    const char *names[MOST] = {0}, *near[SHOWN];
    const cli_synonym *synonym = in ? NULL : synonym_of(word);
    int n = 0;
    for (; list[n] && n < MOST; n++)
        names[n] = list[n]->name;
    const char *meant = ndp_nearest(word, names, n);
    ndp_str more = {0};
    if (synonym)
        ndp_str_addf(&more, "; use `ndparallel %s`%s%s", synonym->command, synonym->also ? ". " : "",
                     synonym->also ? synonym->also : "");
    else if (meant)
        ndp_str_addf(&more, "; did you mean '%s'?", meant);
    int shown = synonym || meant ? 0 : ndp_nearest_names(word, names, n, SHOWN, near);
    for (int i = 0; i < shown; i++)
        ndp_str_addf(&more, "%s '%s'", i ? "," : "; the nearest are", near[i]);
    const char *of = in ? in->name : "", *blank = in ? " " : "";
    int code = cli_error(CLI_EXIT_MISTAKE, "unknown command '%s%s%.60s'%s\n`ndparallel %s%s--help` lists the commands.",
                         of, blank, word, more.data ? more.data : "", of, blank);
    ndp_str_release(&more);
    return code;
}

/* ---- help ---- */

void cli_print_commands(FILE *out) {
    fprintf(out, "Usage: ndparallel COMMAND ...\n\n");
    for (const cli_command *const *c = cli_commands; *c; c++)
        fprintf(out, "  %-10s %s\n", (*c)->name, (*c)->about);
    fprintf(
        out,
        "\nExit codes: 0 done, 1 failed, 2 wrong command, job or input, 130 stopped; `ndparallel help --exit-codes` "
        "lists all.\n");
    fprintf(out, "`ndparallel help COMMAND` lists a command's options; `ndparallel --version` prints the version.\n");
}

void cli_print_help(const cli_command *c, char *name) {
    char option[] = "--help";
    char *argv[] = {name, option, NULL};
    cli_parse(c, 2, argv, NULL);
}
