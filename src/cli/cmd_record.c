/* ndparallel record: what a run was, and steps of it once more. */
#include "cli/commands.h"
#include "cli/exit_codes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct record_arguments {
    const char *run, *steps;
    bool json, markdown, debug;
} record_arguments;

static void take_word(void *arguments, struct argp_state *state, char *word) {
    record_arguments *a = arguments;
    if (state->arg_num > 0)
        cli_refuse(state, "one run at a time ('%s')", word);
    a->run = word;
}

static void check_arguments(void *arguments, struct argp_state *state) {
    const record_arguments *a = arguments;
    if (!a->run)
        cli_refuse(state, "no run folder; give a job's train.output_dir");
    if (a->json && a->markdown)
        cli_refuse(state, "--json and --markdown are two forms; give one");
}

/* ---- show ---- */

static const cli_option show_options[] = {
    {"markdown", 0, NULL, "Print it as a section of a model card", CLI_FLAG(record_arguments, markdown)},
    CLI_JSON(record_arguments, json),
    {"debug", 0, NULL, "Show where in the source an error occurred", CLI_FLAG(record_arguments, debug), .group = 1},
    {0},
};

static int run_show(const cli_command *c, int argc, char **argv) {
    record_arguments a = {0};
    char *text = NULL;
    int differences = 0;
    cli_parse(c, argc, argv, &a);
    ndp_record_form form = a.json ? NDP_RECORD_AS_JSON : a.markdown ? NDP_RECORD_AS_MARKDOWN : NDP_RECORD_AS_TEXT;
    ndp_status st = ndp_record_show(a.run, form, &text, &differences);
    int code = cli_print(st, text, a.debug);
    return code == 0 && differences > 0 ? 1 : code;
}

static const cli_command part_show = {
    .name = "show",
    .about = "print the record of a run, and what contradicts it",
    .usage = "RUN",
    .help =
        "Print what the run in the folder RUN was: program, device, layout, tokens, floating-point operations of "
        "the model and of the hardware (with what was computed again), hours, device hours (of GPUs, or of hosts "
        "where processors computed), energy, hashes of data, tokenizer, base and newest checkpoint, and its parts, one "
        "for each start. Job, metrics and manifest are compared with it; exit code 1 if a field differs.",
    .options = show_options,
    .argument = take_word,
    .check = check_arguments,
    .examples = {"ndparallel record show runs/demo", "ndparallel record show runs/demo --markdown"},
    .run = run_show};

/* ---- verify ---- */

static const cli_option verify_options[] = {
    {"steps", 0, "A-B", "The steps to repeat; default: the three after the oldest checkpoint",
     CLI_TEXT(record_arguments, steps)},
    {0},
};

/* The oldest checkpoint that can be read, and the newest. */
typedef struct saved_steps {
    int64_t oldest, newest;
} saved_steps;

static void take_checkpoint(void *user, const ndp_checkpoint_entry *e) {
    saved_steps *s = user;
    if (e->state != NDP_CHECKPOINT_UNREAD && e->state != NDP_CHECKPOINT_UNVERIFIABLE)
        return;
    s->oldest = s->oldest < 0 || e->step < s->oldest ? e->step : s->oldest;
    s->newest = e->step > s->newest ? e->step : s->newest;
}

/* `replay RUN --steps A-B --compare` of this process's ranks. */
static int run_verify(const cli_command *c, int argc, char **argv) {
    record_arguments a = {0};
    saved_steps s = {-1, -1};
    char steps[64], *words[] = {argv[0], NULL, "--steps", steps, "--compare", NULL};
    cli_parse(c, argc, argv, &a);
    snprintf(steps, sizeof steps, "%s", a.steps ? a.steps : "");
    ndp_status st = a.steps ? NDP_OK : ndp_checkpoints_examine(a.run, NULL, 0, false, take_checkpoint, &s);
    if (st != NDP_OK)
        return cli_fail(st, false);
    if (!a.steps && s.oldest == s.newest)
        return cli_error(CLI_EXIT_MISTAKE,
                         "%s has no two checkpoints with steps between them; keep more of them (checkpoint.every, "
                         "checkpoint.keep)",
                         a.run);
    if (!a.steps)
        snprintf(steps, sizeof steps, "%lld-%lld", (long long)s.oldest + 1,
                 (long long)(s.oldest + 3 < s.newest ? s.oldest + 3 : s.newest));
    char *run = strdup(a.run);
    if (!run)
        return cli_error(CLI_EXIT_FAILED, "not enough memory for a path");
    words[1] = run;
    int code = cmd_replay.run(&cmd_replay, (int)(sizeof words / sizeof *words) - 1, words);
    free(run);
    return code;
}

static const cli_command part_verify = {
    .name = "verify",
    .about = "repeat steps of a run and compare them to the last bit",
    .usage = "RUN",
    .help = "Repeat steps of the run in the folder RUN from a checkpoint, as `replay --compare` does: data, tokenizer "
            "and base must be those of the record, by their hashes, and loss and gradient norm those of the run to the "
            "last bit. Exit code 1 if a step differs; 2 if what it reads does, which is named. Writes nothing.",
    .options = verify_options,
    .argument = take_word,
    .check = check_arguments,
    .examples = {"ndparallel record verify runs/demo", "ndparallel record verify runs/demo --steps 120-125"},
    .run = run_verify};

static const cli_command *const parts[] = {&part_show, &part_verify, NULL};
const cli_command cmd_record = {
    .name = "record",
    .about = "print and verify the record of a run",
    .usage = "show RUN\nverify RUN",
    .help = "Print what a run was (its compute, data and result), for model cards and reports, or repeat steps of it "
            "and compare.",
    .parts = parts,
    .examples = {"ndparallel record show runs/demo", "ndparallel record verify runs/demo"}};
