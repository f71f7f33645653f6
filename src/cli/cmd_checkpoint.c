/* ndparallel checkpoint: lists, verifies, exports and removes the checkpoints of a run. */
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/wrap.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct checkpoint_arguments {
    const char *run;
    const char **steps; /* as many as argv; borrowed from it */
    int n;
    const char *output;
    bool force, json;
} checkpoint_arguments;

static void take_word(void *arguments, struct argp_state *state, char *word) {
    checkpoint_arguments *a = arguments;
    if (state->arg_num == 0)
        a->run = word;
    else
        a->steps[a->n++] = word;
}

static void need_run(const checkpoint_arguments *a, struct argp_state *state) {
    if (!a->run)
        cli_refuse(state, "no run folder; give a job's train.output_dir");
}

static int no_memory(void) { return cli_error(CLI_EXIT_FAILED, "%s", strerror(ENOMEM)); }

/* Parses the arguments of a sub-command and runs it. */
static int run_part(const cli_command *c, int argc, char **argv, int (*body)(const checkpoint_arguments *)) {
    checkpoint_arguments a = {.steps = calloc((size_t)argc, sizeof *a.steps)};
    if (!a.steps)
        return no_memory();
    cli_parse(c, argc, argv, &a);
    int code = body(&a);
    free(a.steps);
    return code;
}

/* ---- list and verify ---- */

static const char *state_text(ndp_checkpoint_state state) {
    static const char *const texts[] = {[NDP_CHECKPOINT_VERIFIED] = "verified",
                                        [NDP_CHECKPOINT_UNREAD] = "complete, not read",
                                        [NDP_CHECKPOINT_UNVERIFIABLE] = "unverifiable: its manifest has no hashes",
                                        [NDP_CHECKPOINT_DAMAGED] = "DAMAGED",
                                        [NDP_CHECKPOINT_ASIDE] = "set aside"};
    return texts[state];
}

typedef struct checkpoint_list {
    int shown, unverified;
    bool json;
    ndp_json_out out;
} checkpoint_list;

static void put_checkpoint(ndp_json_out *o, const ndp_checkpoint_entry *e) {
    static const char *const states[] = {[NDP_CHECKPOINT_VERIFIED] = "verified",
                                         [NDP_CHECKPOINT_UNREAD] = "unread",
                                         [NDP_CHECKPOINT_UNVERIFIABLE] = "unverifiable",
                                         [NDP_CHECKPOINT_DAMAGED] = "damaged",
                                         [NDP_CHECKPOINT_ASIDE] = "aside"};
    ndp_json_open(o, NULL, '{');
    ndp_json_put_text(o, "name", e->name);
    ndp_json_put_int(o, "step", e->step);
    ndp_json_put_int(o, "bytes", e->bytes);
    ndp_json_put_int(o, "saved", e->saved);
    ndp_json_put_number(o, "loss", e->loss);
    ndp_json_put_number(o, "eval_loss", e->eval_loss);
    ndp_json_put_text(o, "state", states[e->state]);
    ndp_json_put_text(o, "damage", e->words[0] ? e->words : NULL);
    ndp_json_put_number(o, "seconds", e->seconds);
    ndp_json_close(o, '}');
}

/* At most six characters; "-": unknown. */
static void loss_text(char out[16], double x) { snprintf(out, 16, isnan(x) ? "-" : fabs(x) < 10 ? "%.4f" : "%.5g", x); }

/* "1.9 MiB", at most eight characters. */
static void size_text(char out[16], int64_t bytes) {
    static const char *const units[] = {"MiB", "GiB", "TiB"};
    double x = (double)bytes / (1 << 20);
    int u = 0;
    for (; x >= 1000 && u < 2; u++)
        x /= 1024;
    snprintf(out, 16, "%.*f %s", x < 99.95 ? 1 : 0, x, units[u]);
}

/* A row has at most 79 columns unless it says what is damaged. */
static void print_checkpoint(const ndp_checkpoint_entry *e, bool first) {
    char date[32] = "-", size[16], loss[16], eval[16];
    time_t saved = (time_t)e->saved;
    struct tm local;
    ndp_str row = {0}, fitting = {0};
    if (localtime_r(&saved, &local))
        strftime(date, sizeof date, "%Y-%m-%d %H:%M", &local);
    size_text(size, e->bytes);
    loss_text(loss, e->loss);
    loss_text(eval, e->eval_loss);
    if (first)
        ndp_str_addf(&row, "%-13s  %-16s  %8s  %6s  %6s  %s\n", "checkpoint", "saved", "size", "loss", "eval", "state");
    ndp_str_addf(&row, "%-13s  %16s  %8s  %6s  %6s  %s", e->name, date, size, loss, eval, state_text(e->state));
    if (e->state == NDP_CHECKPOINT_VERIFIED)
        ndp_str_addf(&row, " in %.2f s", e->seconds);
    ndp_str_addf(&row, "%s%s\n", e->words[0] ? ": " : "", e->words);
    if (!row.failed)
        cli_wrap(&fitting, row.data, cli_line_width(STDOUT_FILENO));
    fputs(fitting.data && !fitting.failed ? fitting.data : "", stdout);
    ndp_str_release(&row);
    ndp_str_release(&fitting);
    fflush(stdout);
}

static void show_checkpoint(void *user, const ndp_checkpoint_entry *e) {
    checkpoint_list *c = user;
    if (c->json)
        put_checkpoint(&c->out, e);
    else
        print_checkpoint(e, c->shown == 0);
    c->shown++;
    c->unverified += e->state == NDP_CHECKPOINT_DAMAGED || e->state == NDP_CHECKPOINT_UNVERIFIABLE;
}

/* With `data` every byte is read; then the exit code is 1 unless everything verifies. */
static int end_list(const checkpoint_arguments *a, checkpoint_list *c, bool data) {
    if (a->json) {
        ndp_json_close(&c->out, ']');
        ndp_json_put_bool(&c->out, "verified", data && c->shown > 0 && c->unverified == 0);
        ndp_json_close(&c->out, '}');
        cli_print_json(&c->out);
    } else if (c->shown == 0)
        printf("no checkpoints in %s/checkpoints\n", a->run);
    return cli_end_output(data && c->unverified ? CLI_EXIT_FAILED : CLI_EXIT_DONE);
}

static int examine_run(const checkpoint_arguments *a, bool data) {
    checkpoint_list c = {.json = a->json};
    int64_t *steps = calloc((size_t)a->n + 1, sizeof *steps);
    if (!steps)
        return no_memory();
    for (int i = 0; i < a->n; i++)
        steps[i] = strtoll(a->steps[i], NULL, 10);
    ndp_json_open(&c.out, NULL, '{');
    ndp_json_put_text(&c.out, "run", a->run);
    ndp_json_open(&c.out, "checkpoints", '[');
    ndp_status st = ndp_checkpoints_examine(a->run, steps, a->n, data, show_checkpoint, &c);
    free(steps);
    int code = st == NDP_OK ? end_list(a, &c, data) : cli_fail(st, false);
    ndp_str_release(&c.out.text);
    return code;
}

static const cli_option list_options[] = {
    CLI_JSON(checkpoint_arguments, json),
    {0},
};

static void check_list(void *arguments, struct argp_state *state) {
    const checkpoint_arguments *a = arguments;
    need_run(a, state);
    if (a->n)
        cli_refuse(state, "list takes no step ('%s')", a->steps[0]);
}

static int list_checkpoints(const checkpoint_arguments *a) { return examine_run(a, false); }

static int run_list(const cli_command *c, int argc, char **argv) { return run_part(c, argc, argv, list_checkpoints); }

static const cli_command part_list = {
    .name = "list",
    .about = "list the checkpoints of a run",
    .usage = "RUN",
    .help = "List the checkpoints in RUN/checkpoints. RUN is a job's train.output_dir. loss is that of the step in its "
            "checkpoint, eval the eval_loss in RUN/metrics.jsonl. Only manifests and the sizes of files are checked; "
            "`checkpoint verify` reads all data.",
    .options = list_options,
    .argument = take_word,
    .check = check_list,
    .examples = {"ndparallel checkpoint list runs/demo", "ndparallel checkpoint list runs/demo --json"},
    .run = run_list};

static void check_verify(void *arguments, struct argp_state *state) {
    const checkpoint_arguments *a = arguments;
    need_run(a, state);
    for (int i = 0; i < a->n; i++)
        cli_integer(state, "step", a->steps[i], 0, LLONG_MAX);
}

static int verify_checkpoints(const checkpoint_arguments *a) { return examine_run(a, true); }

static int run_verify(const cli_command *c, int argc, char **argv) {
    return run_part(c, argc, argv, verify_checkpoints);
}

static const cli_command part_verify = {
    .name = "verify",
    .about = "verify every byte of the checkpoints of a run",
    .usage = "RUN [STEP...]",
    .help =
        "Read all data of the checkpoints in RUN/checkpoints, or of those steps, and compare them with the hashes in "
        "their manifests. RUN is a job's train.output_dir. The exit code is 1 unless everything verifies.",
    .options = list_options,
    .argument = take_word,
    .check = check_verify,
    .examples = {"ndparallel checkpoint verify runs/demo", "ndparallel checkpoint verify runs/demo 2 4"},
    .run = run_verify};

/* ---- export ---- */

static const cli_option export_options[] = {
    {"output", 'o', "DIR", "The model folder to write, required; it must not exist, or be empty",
     CLI_TEXT(checkpoint_arguments, output)},
    CLI_JSON(checkpoint_arguments, json),
    {0},
};

static void check_export(void *arguments, struct argp_state *state) {
    const checkpoint_arguments *a = arguments;
    need_run(a, state);
    if (a->n > 1)
        cli_refuse(state, "export takes one step ('%s')", a->steps[1]);
    if (!a->output)
        cli_refuse(state, "export needs -o DIR, the model folder to write");
    if (a->n)
        cli_integer(state, "step", a->steps[0], 1, LLONG_MAX);
}

static int export_checkpoint(const checkpoint_arguments *a) {
    int64_t step;
    ndp_status st = ndp_checkpoint_export(a->run, a->n ? strtoll(a->steps[0], NULL, 10) : 0, a->output, &step);
    if (st != NDP_OK)
        return cli_fail(st, false);
    if (a->json) {
        ndp_json_out o = {0};
        ndp_json_open(&o, NULL, '{');
        ndp_json_put_text(&o, "folder", a->output);
        ndp_json_put_text(&o, "run", a->run);
        ndp_json_put_int(&o, "step", step);
        ndp_json_close(&o, '}');
        cli_print_json(&o);
    } else
        printf("model: %s, of step %lld\n", a->output, (long long)step);
    return cli_end_output(0);
}

static int run_export(const cli_command *c, int argc, char **argv) {
    return run_part(c, argc, argv, export_checkpoint);
}

static const cli_command part_export = {
    .name = "export",
    .about = "write the model of a checkpoint as a Hugging Face folder",
    .usage = "RUN [STEP] -o DIR",
    .help = "Write the model folder that the run would have written after that step; default: of the newest checkpoint "
            "that verifies. RUN is a job's train.output_dir.",
    .options = export_options,
    .argument = take_word,
    .check = check_export,
    .examples = {"ndparallel checkpoint export runs/demo -o newest",
                 "ndparallel checkpoint export runs/demo 2 -o step-2"},
    .run = run_export};

/* ---- rm ---- */

static const cli_option rm_options[] = {
    {"force", 0, NULL, "Remove even the last checkpoint that verifies", CLI_FLAG(checkpoint_arguments, force)},
    CLI_JSON(checkpoint_arguments, json),
    {0},
};

static void check_rm(void *arguments, struct argp_state *state) {
    const checkpoint_arguments *a = arguments;
    need_run(a, state);
    if (!a->n)
        cli_refuse(state, "rm takes the steps to remove");
}

static int remove_checkpoints(const checkpoint_arguments *a) {
    ndp_status st = ndp_checkpoints_remove(a->run, a->steps, a->n, a->force);
    if (st != NDP_OK)
        return cli_fail(st, false);
    if (!a->json) {
        for (int i = 0; i < a->n; i++)
            printf("removed %s\n", a->steps[i]);
        return cli_end_output(0);
    }
    ndp_json_out o = {0};
    ndp_json_open(&o, NULL, '{');
    ndp_json_put_text(&o, "run", a->run);
    ndp_json_open(&o, "removed", '[');
    for (int i = 0; i < a->n; i++)
        ndp_json_put_text(&o, NULL, a->steps[i]);
    ndp_json_close(&o, ']');
    ndp_json_close(&o, '}');
    cli_print_json(&o);
    return cli_end_output(0);
}

static int run_rm(const cli_command *c, int argc, char **argv) { return run_part(c, argc, argv, remove_checkpoints); }

static const cli_command part_rm = {
    .name = "rm",
    .about = "remove checkpoints of a run",
    .usage = "RUN STEP...",
    .help = "Remove checkpoints in RUN/checkpoints, by their steps or by the folder names that `checkpoint list` "
            "shows. RUN "
            "is a job's train.output_dir. The last checkpoint that verifies stays.",
    .options = rm_options,
    .argument = take_word,
    .check = check_rm,
    .examples = {"ndparallel checkpoint rm runs/demo 2", "ndparallel checkpoint rm runs/demo 2 4"},
    .run = run_rm};

static const cli_command *const parts[] = {&part_list, &part_verify, &part_export, &part_rm, NULL};
const cli_command cmd_checkpoint = {
    .name = "checkpoint",
    .about = "list, verify, export and remove the checkpoints of a run",
    .usage = "list RUN\nverify RUN [STEP...]\nexport RUN [STEP] -o DIR\nrm RUN STEP...",
    .help = "List the checkpoints in RUN/checkpoints, verify every byte of them against the hashes in their manifests, "
            "export the model of one, or remove some. RUN is a job's train.output_dir.",
    .parts = parts,
    .examples = {"ndparallel checkpoint list runs/demo", "ndparallel checkpoint export runs/demo -o newest"}};
