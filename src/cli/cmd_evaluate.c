/* ndparallel evaluate: the mean nll of the documents of a file, or of the held-out rows of a job. */
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/ranks.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct evaluate_arguments {
    cli_job job;
    ndp_evaluate_opts evaluate;
    cli_list data;
    const char *device, *hostfile;
    bool json, run; /* run: with a job file, evaluate.model is the folder of a run */
} evaluate_arguments;

static const cli_option options[] = {
    {"model", 'm', "DIR",
     "Hugging Face folder, or a run folder (its newest whole checkpoint); with a job file, replaces its model",
     CLI_TEXT(evaluate_arguments, evaluate.model)},
    {"adapter", 'a', "DIR", CLI_ADAPTER_HELP, CLI_TEXT(evaluate_arguments, evaluate.adapter)},
    {"step", 0, "N", "With a run folder: the checkpoint of this step",
     CLI_INT64(evaluate_arguments, evaluate.step, 1, LLONG_MAX)},
    {"data", 'd', "FILE", "Text, or JSONL with one document per line; repeat it for several files",
     CLI_LIST(evaluate_arguments, data)},
    {"text-field", 0, "NAME", "With --data: the field of a JSONL record; default: text",
     CLI_TEXT(evaluate_arguments, evaluate.text_field)},
    {"sequence-length", 'l', "N",
     "With --data: tokens of a window; longer documents are divided into several; default: the model's maximum",
     CLI_INT(evaluate_arguments, evaluate.sequence_length, 1, INT_MAX)},
    {"stride", 0, "N",
     "With --data: tokens from one window to the next; fewer give each token more context; default: a window less one",
     CLI_INT(evaluate_arguments, evaluate.stride, 1, INT_MAX)},
    {"threads", 't', "N", "Threads per rank; default: all cores, or with a job file train.threads",
     CLI_INT(evaluate_arguments, evaluate.threads, 1, 4096)},
    {"device", 0, "NAME", CLI_DEVICE_HELP, CLI_TEXT(evaluate_arguments, device), .choices = ndp_device_choices},
    {"hostfile", 0, "FILE", "With a job file: start the ranks with mpirun on these hosts, one per line",
     CLI_TEXT(evaluate_arguments, hostfile)},
    CLI_JSON(evaluate_arguments, json),
    {0},
};

/* Rejects options of one kind of data that are given with the other. */
static void check_source(const evaluate_arguments *a, struct argp_state *state) {
    const ndp_evaluate_opts *e = &a->evaluate;
    const char *of_file = a->data.n            ? "--data"
                          : e->text_field      ? "--text-field"
                          : e->sequence_length ? "-l"
                          : e->stride          ? "--stride"
                                               : NULL;
    if (a->job.file && of_file)
        cli_refuse(state,
                   "%s cannot be used with a job file, which has data.validation_files, data.text_field and "
                   "data.sequence_length",
                   of_file);
    if (!a->job.file && (a->job.n || a->hostfile))
        cli_refuse(state, "%s needs a job file", a->hostfile ? "--hostfile" : "--set");
    if (!a->job.file && (!e->model || !a->data.n))
        cli_refuse(state, "give a job file, or --model DIR and --data FILE");
}

/* The checkpoint's model is that of its run. */
static ndp_status assign_model_of_run(evaluate_arguments *a, struct argp_state *state) {
    static const char *const keys[] = {
        "model.path",      "model.config",  "model.init",      "model.sliding_window",   "adapter.type",
        "adapter.r",       "adapter.alpha", "adapter.rslora",  "adapter.dora",           "adapter.base",
        "adapter.dropout", "adapter.init",  "adapter.targets", "adapter.modules_to_save"};
    ndp_config *run;
    ndp_status st = ndp_config_create(&run);
    char *value, *path = st == NDP_OK ? malloc(strlen(a->evaluate.model) + sizeof "/job.yaml") : NULL;
    if (path)
        st = ndp_config_read(run, strcat(strcpy(path, a->evaluate.model), "/job.yaml"));
    for (int i = 0; path && i < (int)(sizeof keys / sizeof *keys) && st == NDP_OK; i++) {
        st = ndp_config_get(run, keys[i], &value);
        if (st == NDP_OK)
            cli_job_assign(&a->job, state, "%s=%s", keys[i], value), free(value);
    }
    cli_job_assign(&a->job, state, "adapter.path=null"); /* the checkpoint has it */
    free(path);
    ndp_config_destroy(run);
    return st;
}

/* With a job file, options set keys of its configuration. */
static void assign_to_job(evaluate_arguments *a, struct argp_state *state) {
    a->run = a->evaluate.model && ndp_is_run_folder(a->evaluate.model);
    if (a->evaluate.step && !a->run)
        cli_refuse(state, "--step needs --model and the folder of a run");
    if (a->evaluate.adapter && a->run)
        cli_refuse(state, "--adapter belongs to a model folder; the checkpoint of a run has its own");
    if (a->run && assign_model_of_run(a, state) != NDP_OK)
        cli_end(state, CLI_EXIT_MISTAKE, "%s", ndp_error_message());
    if (a->evaluate.model && !a->run) { /* the folder replaces whatever the job starts from */
        cli_job_assign(&a->job, state, "model.config=null");
        cli_job_assign(&a->job, state, "model.init=pretrained");
        cli_job_assign_text(&a->job, state, "model.path", a->evaluate.model);
        cli_job_assign(&a->job, state, "adapter.path=null");
        cli_job_assign(&a->job, state, "adapter.init=zero"); /* an adapter of the job does nothing */
    }
    if (a->evaluate.threads)
        cli_job_assign(&a->job, state, "train.threads=%d", a->evaluate.threads);
    if (a->device)
        cli_job_assign(&a->job, state, "train.device=%s", a->device);
}

static void check_arguments(void *arguments, struct argp_state *state) {
    evaluate_arguments *a = arguments;
    check_source(a, state);
    if (a->job.file)
        assign_to_job(a, state);
    if (a->device)
        a->evaluate.device = a->device;
    a->evaluate.data = a->data.items;
    a->evaluate.data_count = a->data.n;
}

/* ---- results ---- */

static void put_members(ndp_json_out *o, const ndp_evaluation *e) {
    ndp_json_put_number(o, "mean_nll", e->mean_nll);
    ndp_json_put_int(o, "tokens", e->tokens);
    ndp_json_put_int(o, "documents", e->documents);
    ndp_json_put_int(o, "bytes", e->bytes);
    if (e->window) {
        ndp_json_put_int(o, "divided", e->divided);
        ndp_json_put_int(o, "window", e->window);
        ndp_json_put_int(o, "stride", e->stride);
    }
    ndp_json_put_number(o, "perplexity", exp(e->mean_nll));
    ndp_json_put_number(o, "bits_per_byte", ndp_bits_per_byte(e));
}

static void print_json(const ndp_evaluation *all, const ndp_evaluation *files, int n) {
    ndp_json_out o = {0};
    ndp_json_open(&o, NULL, '{');
    put_members(&o, all);
    ndp_json_open(&o, "files", '[');
    for (int i = 0; i < n; i++) {
        ndp_json_open(&o, NULL, '{');
        if (files[i].name)
            ndp_json_put_text(&o, "file", files[i].name);
        put_members(&o, &files[i]);
        ndp_json_close(&o, '}');
    }
    ndp_json_close(&o, ']');
    ndp_json_close(&o, '}');
    cli_print_json(&o);
}

static void print_row(int width, const char *name, const ndp_evaluation *e) {
    char bits[32] = "-";
    if (e->bytes)
        snprintf(bits, sizeof bits, "%.4f", ndp_bits_per_byte(e));
    printf("%-*s  %10lld  %10.7f  %10.4f  %9s  %9lld\n", width, name, (long long)e->tokens, e->mean_nll,
           exp(e->mean_nll), bits, (long long)e->documents);
}

static void print_table(const ndp_evaluation *all, const ndp_evaluation *files, int n) {
    int width = 5;
    for (int i = 0; i < n; i++)
        width = (int)strlen(files[i].name) > width ? (int)strlen(files[i].name) : width;
    printf("%-*s  %10s  %10s  %10s  %9s  %9s\n", width, "file", "tokens", "mean nll", "perplexity", "bits/byte",
           "documents");
    for (int i = 0; i < n; i++)
        print_row(width, files[i].name, &files[i]);
    print_row(width, "total", all);
}

static void print_sentence(const ndp_evaluation *e) {
    printf("mean nll %.7f (perplexity %.4f", e->mean_nll, exp(e->mean_nll));
    if (e->bytes)
        printf(", %.4f bits per byte", ndp_bits_per_byte(e));
    printf(") over %lld predictions in %lld document%s\n", (long long)e->tokens, (long long)e->documents,
           e->documents == 1 ? "" : "s");
}

/* Of files: how many documents were longer than a window. */
static void print_windows(const ndp_evaluation *e) {
    if (e->divided)
        printf("%lld of %lld document%s divided into windows of %d tokens, %d apart: %s\n", (long long)e->divided,
               (long long)e->documents, e->documents == 1 ? "" : "s", e->window, e->stride,
               e->stride < e->window ? "every token but a document's first is predicted once"
                                     : "every token but a window's first is predicted once");
}

static void print_evaluations(bool json, const ndp_evaluation *all, const ndp_evaluation *files, int n) {
    if (json) {
        print_json(all, files, n);
        return;
    }
    if (n > 1)
        print_table(all, files, n);
    else
        print_sentence(all);
    print_windows(all);
}

/* ---- files ---- */

static int evaluate_files(evaluate_arguments *a) {
    ndp_evaluation all, *files = NULL;
    a->evaluate.force_memory = a->job.force_memory;
    ndp_status st = ndp_evaluate(&a->evaluate, &all, &files);
    if (st == NDP_OK)
        print_evaluations(a->json, &all, files, a->data.n);
    free(files);
    return st == NDP_OK ? cli_end_output(0) : cli_fail(st, a->job.debug);
}

/* ---- a job ---- */

static ndp_status evaluate_rank(ndp_world *w, void *user) {
    const evaluate_arguments *a = user;
    ndp_evaluation all, *files = NULL;
    int n;
    ndp_status st =
        ndp_evaluate_job(a->job.config, w, a->run ? a->evaluate.model : NULL, a->evaluate.step, &all, &files, &n);
    if (st == NDP_OK && ndp_world_rank(w) == 0) {
        print_evaluations(a->json, &all, files, n);
        fflush(stdout);
    }
    free(files);
    return st;
}

static int evaluate_job(evaluate_arguments *a, int argc, char **argv) {
    ndp_status st = cli_job_load(&a->job);
    if (st == NDP_OK && a->evaluate.adapter)
        st = ndp_config_use_adapter(a->job.config, a->evaluate.adapter);
    cli_ranks ranks = {.argc = argc,
                       .argv = argv,
                       .command = "evaluate",
                       .hostfile = a->hostfile,
                       .debug = a->job.debug,
                       .body = evaluate_rank,
                       .user = a};
    return st == NDP_OK ? cli_end_output(cli_ranks_run(&ranks, a->job.config)) : cli_fail_early(st, a->job.debug);
}

static int run(const cli_command *c, int argc, char **argv) {
    evaluate_arguments a = {.job.optional = true, .evaluate = NDP_EVALUATE_OPTS_INIT};
    cli_parse(c, argc, argv, &a);
    int code = a.job.file ? evaluate_job(&a, argc, argv) : evaluate_files(&a);
    cli_job_release(&a.job);
    free(a.data.items);
    return code;
}

const cli_command cmd_evaluate = {
    .name = "evaluate",
    .about = "compute the mean negative log-likelihood of texts, or of a job's held-out data",
    .usage = "[JOB.YAML]",
    .help = "Compute how well a model predicts text: the mean negative log-likelihood per token, in nats, the "
            "perplexity, and bits per byte, which compare across tokenizers. The text is either files (--data), "
            "with each document scored on its own, in windows if it is longer than the model's context, or "
            "the held-out data of a job "
            "(data.validation_files, data.validation_fraction), packed, masked and distributed as in the job. For "
            "a job the result equals the eval_loss of its run.",
    .options = options,
    .takes_job = true,
    .check = check_arguments,
    .examples = {"ndparallel evaluate job.yaml --model runs/demo",
                 "ndparallel evaluate --model runs/demo --data notes.txt --json"},
    .run = run};
