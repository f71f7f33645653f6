/* ndparallel checkpoint: lists, verifies, exports and removes the checkpoints of a run. */
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum checkpoint_action { ACTION_NONE, ACTION_LIST, ACTION_VERIFY, ACTION_EXPORT, ACTION_RM } checkpoint_action;

typedef struct checkpoint_arguments {
    checkpoint_action action;
    const char *run;
    const char **steps; /* as many as argv; borrowed from it */
    int n;
    const char *output;
    bool force;
} checkpoint_arguments;

static const cli_option options[] = {
    {"output", 'o', "DIR", "With export: the model folder to write; it must not exist, or be empty",
     CLI_TEXT(checkpoint_arguments, output)},
    {"force", 0, NULL, "With rm: remove even the last checkpoint that verifies", CLI_FLAG(checkpoint_arguments, force)},
    {0},
};

static checkpoint_action find_action(struct argp_state *state, const char *word) {
    static const char *const words[] = {"list", "verify", "export", "rm"};
    for (int i = 0; i < 4; i++)
        if (strcmp(word, words[i]) == 0)
            return (checkpoint_action)(ACTION_LIST + i);
    argp_error(state, "unknown action '%s'; there are list, verify, export and rm", word);
    return ACTION_NONE;
}

static void check_arguments(void *arguments, struct argp_state *state) {
    const checkpoint_arguments *a = arguments;
    if (a->action == ACTION_NONE)
        argp_error(state, "no action; give list, verify, export or rm");
    else if (!a->run)
        argp_error(state, "no run folder; give a job's train.output_dir");
    else if (a->action == ACTION_LIST && a->n)
        argp_error(state, "list takes no step ('%s')", a->steps[0]);
    else if (a->action == ACTION_RM && !a->n)
        argp_error(state, "rm takes the steps to remove");
    else if (a->action == ACTION_EXPORT && a->n > 1)
        argp_error(state, "export takes one step ('%s')", a->steps[1]);
    else if (a->action == ACTION_EXPORT && !a->output)
        argp_error(state, "export needs -o DIR, the model folder to write");
    else if (a->output && a->action != ACTION_EXPORT)
        argp_error(state, "-o can only be used with export");
    else if (a->force && a->action != ACTION_RM)
        argp_error(state, "--force can only be used with rm");
    for (int i = 0; i < a->n && (a->action == ACTION_VERIFY || a->action == ACTION_EXPORT); i++)
        cli_integer(state, "step", a->steps[i], a->action == ACTION_EXPORT, LLONG_MAX);
}

static void take_word(void *arguments, struct argp_state *state, char *word) {
    checkpoint_arguments *a = arguments;
    if (state->arg_num == 0)
        a->action = find_action(state, word);
    else if (state->arg_num == 1)
        a->run = word;
    else
        a->steps[a->n++] = word;
}

/* ---- list and verify ---- */

static const char *state_text(ndp_checkpoint_state state) {
    static const char *const texts[] = {[NDP_CHECKPOINT_VERIFIED] = "verified",
                                        [NDP_CHECKPOINT_UNREAD] = "complete, data not read",
                                        [NDP_CHECKPOINT_UNVERIFIABLE] = "unverifiable: its manifest has no hashes",
                                        [NDP_CHECKPOINT_DAMAGED] = "DAMAGED",
                                        [NDP_CHECKPOINT_ASIDE] = "set aside"};
    return texts[state];
}

typedef struct checkpoint_count {
    int shown, unverified;
} checkpoint_count;

static void show_checkpoint(void *user, const ndp_checkpoint_entry *e) {
    checkpoint_count *c = user;
    char date[32] = "";
    time_t saved = (time_t)e->saved;
    struct tm local;
    if (localtime_r(&saved, &local))
        strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &local);
    printf("%-24s  %s  %9.1f MiB  %s", e->name, date, (double)e->bytes / (1 << 20), state_text(e->state));
    if (e->state == NDP_CHECKPOINT_VERIFIED)
        printf(" in %.2f s", e->seconds);
    printf("%s%s\n", e->words[0] ? ": " : "", e->words);
    fflush(stdout);
    c->shown++;
    c->unverified += e->state == NDP_CHECKPOINT_DAMAGED || e->state == NDP_CHECKPOINT_UNVERIFIABLE;
}

static int no_memory(void) {
    fprintf(stderr, "ndparallel: %s\n", strerror(ENOMEM));
    return 1;
}

static int examine_run(const checkpoint_arguments *a) {
    bool data = a->action == ACTION_VERIFY;
    checkpoint_count c = {0};
    int64_t *steps = calloc((size_t)a->n + 1, sizeof *steps);
    if (!steps)
        return no_memory();
    for (int i = 0; i < a->n; i++)
        steps[i] = strtoll(a->steps[i], NULL, 10);
    ndp_status st = ndp_checkpoints_examine(a->run, steps, a->n, data, show_checkpoint, &c);
    free(steps);
    if (st != NDP_OK)
        return cli_fail(st, false);
    if (c.shown == 0)
        printf("no checkpoints in %s/checkpoints\n", a->run);
    return data && c.unverified ? 1 : 0;
}

/* ---- rm ---- */

static int remove_checkpoints(const checkpoint_arguments *a) {
    ndp_status st = ndp_checkpoints_remove(a->run, a->steps, a->n, a->force);
    if (st != NDP_OK)
        return cli_fail(st, false);
    for (int i = 0; i < a->n; i++)
        printf("removed %s\n", a->steps[i]);
    return 0;
}

/* ---- export ---- */

static int export_checkpoint(const checkpoint_arguments *a) {
    int64_t step;
    ndp_status st = ndp_checkpoint_export(a->run, a->n ? strtoll(a->steps[0], NULL, 10) : 0, a->output, &step);
    if (st != NDP_OK)
        return cli_fail(st, false);
    printf("model: %s, of step %lld\n", a->output, (long long)step);
    return 0;
}

int cmd_checkpoint(int argc, char **argv) {
    static const cli_command command = {
        .usage = "list RUN\nverify RUN [STEP...]\nexport RUN [STEP] -o DIR\nrm RUN STEP...",
        .help =
            "List the checkpoints in RUN/checkpoints, verify every byte of them against the hashes in their "
            "manifests, export the model of one, or remove some. RUN is a job's train.output_dir.\v"
            "list checks only manifests and file sizes. verify reads all data; its exit code is 1 unless "
            "everything verifies. export writes the folder that the run would have written after that step (default: "
            "of the newest checkpoint that verifies). rm takes steps, or folder names as shown by list.",
        .options = options,
        .argument = take_word,
        .check = check_arguments};
    checkpoint_arguments a = {.steps = calloc((size_t)argc, sizeof *a.steps)};
    if (!a.steps)
        return no_memory();
    cli_parse(&command, argc, argv, &a);
    int code = a.action == ACTION_RM       ? remove_checkpoints(&a)
               : a.action == ACTION_EXPORT ? export_checkpoint(&a)
                                           : examine_run(&a);
    free(a.steps);
    return code;
}
