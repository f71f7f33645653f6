/* ndparallel evaluate: the mean nll of the documents of a file, or of the held-out rows of a job. */
#include "cli/ranks.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct evaluate_arguments {
    cli_job job;
    ndp_evaluate_opts evaluate;
    const char *device, *hostfile;
    bool json;
} evaluate_arguments;

static const cli_option options[] = {
    {"model", 'm', "DIR", "Hugging Face folder; with a job file, replaces its model.path",
     CLI_TEXT(evaluate_arguments, evaluate.model)},
    {"data", 'd', "FILE", "Text, or JSONL with one document per line", CLI_TEXT(evaluate_arguments, evaluate.data)},
    {"text-field", 0, "NAME", "With --data: the field of a JSONL record; default: text",
     CLI_TEXT(evaluate_arguments, evaluate.text_field)},
    {"sequence-length", 'l', "N", "With --data: cut longer documents; default: the model's maximum",
     CLI_INT(evaluate_arguments, evaluate.sequence_length, 1, INT_MAX)},
    {"threads", 't', "N", "Threads per rank; default: all cores, or with a job file train.threads",
     CLI_INT(evaluate_arguments, evaluate.threads, 1, 4096)},
    {"device", 0, "NAME", CLI_DEVICE_HELP, CLI_TEXT(evaluate_arguments, device), .choices = ndp_device_choices},
    {"hostfile", 0, "FILE", "With a job file: start the ranks with mpirun on these hosts, one per line",
     CLI_TEXT(evaluate_arguments, hostfile)},
    {"json", 0, NULL, "Print the result as one line of JSON", CLI_FLAG(evaluate_arguments, json)},
    {0},
};

/* Rejects options of one kind of data that are given with the other. */
static void check_source(const evaluate_arguments *a, struct argp_state *state) {
    const ndp_evaluate_opts *e = &a->evaluate;
    const char *of_file = e->data ? "--data" : e->text_field ? "--text-field" : e->sequence_length ? "-l" : NULL;
    if (a->job.file && of_file)
        argp_error(state,
                   "%s cannot be used with a job file, which has data.validation_files, data.text_field and "
                   "data.sequence_length",
                   of_file);
    if (!a->job.file && (a->job.n || a->hostfile))
        argp_error(state, "%s needs a job file", a->hostfile ? "--hostfile" : "--set");
    if (!a->job.file && (!e->model || !e->data))
        argp_error(state, "give a job file, or --model DIR and --data FILE");
}

/* The text in single quotes, escaped for YAML. The caller frees it. */
static char *quoted(const char *text) {
    char *out = malloc(2 * strlen(text) + 3), *to = out;
    if (!out)
        return NULL;
    *to++ = '\'';
    for (; *text; text++) {
        *to++ = *text;
        if (*text == '\'')
            *to++ = '\'';
    }
    *to++ = '\'';
    *to = '\0';
    return out;
}

/* With a job file, options set keys of its configuration. */
static void assign_to_job(evaluate_arguments *a, struct argp_state *state) {
    char *model = a->evaluate.model ? quoted(a->evaluate.model) : NULL;
    if (model) { /* the folder replaces whatever the job starts from */
        cli_job_assign(&a->job, state, "model.config=null");
        cli_job_assign(&a->job, state, "model.init=pretrained");
        cli_job_assign(&a->job, state, "model.path=%s", model);
    }
    free(model);
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
}

static void print_evaluation(const evaluate_arguments *a, const ndp_evaluation *e) {
    if (a->json)
        printf("{\"mean_nll\": %.17g, \"tokens\": %lld, \"documents\": %lld}\n", e->mean_nll, (long long)e->tokens,
               (long long)e->documents);
    else
        printf("mean nll %.7f (perplexity %.4f) over %lld predictions in %lld documents\n", e->mean_nll,
               exp(e->mean_nll), (long long)e->tokens, (long long)e->documents);
}

/* ---- a file ---- */

static int evaluate_file(evaluate_arguments *a) {
    ndp_evaluation e;
    a->evaluate.force_memory = a->job.force_memory;
    ndp_status st = ndp_evaluate(&a->evaluate, &e);
    if (st != NDP_OK)
        return cli_fail(st, a->job.debug);
    print_evaluation(a, &e);
    return cli_end_output(0);
}

/* ---- a job ---- */

static ndp_status evaluate_rank(ndp_world *w, void *user) {
    const evaluate_arguments *a = user;
    ndp_evaluation e;
    ndp_status st = ndp_evaluate_job(a->job.config, w, &e);
    if (st == NDP_OK && ndp_world_rank(w) == 0) {
        print_evaluation(a, &e);
        fflush(stdout);
    }
    return st;
}

static int evaluate_job(evaluate_arguments *a, int argc, char **argv) {
    ndp_status st = cli_job_load(&a->job);
    cli_ranks ranks = {.argc = argc,
                       .argv = argv,
                       .command = "evaluate",
                       .hostfile = a->hostfile,
                       .debug = a->job.debug,
                       .body = evaluate_rank,
                       .user = a};
    return st == NDP_OK ? cli_end_output(cli_ranks_run(&ranks, a->job.config)) : cli_fail_early(st, a->job.debug);
}

int cmd_evaluate(int argc, char **argv) {
    static const cli_command command = {
        .usage = "[JOB.YAML]",
        .help = "Compute how well a model predicts text: the mean negative log-likelihood per token, in nats. The text "
                "is either a file (--data), with each document scored on its own, or the held-out data of a job "
                "(data.validation_files, data.validation_fraction), packed, masked and distributed as in the job. For "
                "a job the result equals the eval_loss of its run.",
        .options = options,
        .takes_job = true,
        .check = check_arguments};
    evaluate_arguments a = {.job.optional = true, .evaluate = NDP_EVALUATE_OPTS_INIT};
    cli_parse(&command, argc, argv, &a);
    int code = a.job.file ? evaluate_job(&a, argc, argv) : evaluate_file(&a);
    cli_job_release(&a.job);
    return code;
}
