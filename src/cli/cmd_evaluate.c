/* ndparallel evaluate: the mean nll of the documents of a file, or of the held-out rows of a job. */
#include "cli/ranks.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_DEVICE = 1, OPTION_JSON, OPTION_TEXT_FIELD, OPTION_HOSTFILE };

static const struct argp_option options[] = {
    {"model", 'm', "DIR", 0, "Hugging Face folder; with a job file, replaces its model.path", 0},
    {"data", 'd', "FILE", 0, "Text, or JSONL with one document per line", 0},
    {"text-field", OPTION_TEXT_FIELD, "NAME", 0, "With --data: the field of a JSONL record; default: text", 0},
    {"sequence-length", 'l', "N", 0, "With --data: cut longer documents; default: the model's maximum", 0},
    {"threads", 't', "N", 0, "Threads per rank; default: all cores, or with a job file train.threads", 0},
    {"device", OPTION_DEVICE, "NAME", 0, "cpu, or ref (plain loops, for comparison)", 0},
    {"hostfile", OPTION_HOSTFILE, "FILE", 0,
     "With a job file: start the ranks with mpirun on these hosts, one per line", 0},
    {"json", OPTION_JSON, NULL, 0, "Print the result as one line of JSON", 0},
    {0},
};

typedef struct evaluate_arguments {
    cli_job job;
    ndp_evaluate_opts evaluate;
    const char *threads, *device, *hostfile;
    bool json;
} evaluate_arguments;

/* Rejects options of one kind of data that are given with the other. */
static void check_arguments(evaluate_arguments *a, struct argp_state *state) {
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
        cli_job_assign(&a->job, state, "model.config=", "null");
        cli_job_assign(&a->job, state, "model.init=", "pretrained");
        cli_job_assign(&a->job, state, "model.path=", model);
    }
    free(model);
    if (a->threads)
        cli_job_assign(&a->job, state, "train.threads=", a->threads);
    if (a->device)
        cli_job_assign(&a->job, state, "train.device=", a->device);
}

static error_t parse_evaluate(int key, char *arg, struct argp_state *state) {
    evaluate_arguments *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->job;
        return 0;
    case 'm':
        a->evaluate.model = arg;
        return 0;
    case 'd':
        a->evaluate.data = arg;
        return 0;
    case OPTION_TEXT_FIELD:
        a->evaluate.text_field = arg;
        return 0;
    case 'l':
        a->evaluate.sequence_length = (int)cli_integer(state, "--sequence-length", arg, 1, INT_MAX);
        return 0;
    case 't':
        a->evaluate.threads = (int)cli_integer(state, "--threads", arg, 1, 4096);
        a->threads = arg;
        return 0;
    case OPTION_DEVICE:
        a->device = a->evaluate.device = arg;
        return 0;
    case OPTION_HOSTFILE:
        a->hostfile = arg;
        return 0;
    case OPTION_JSON:
        a->json = true;
        return 0;
    case ARGP_KEY_END:
        check_arguments(a, state);
        if (a->job.file)
            assign_to_job(a, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
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

typedef struct evaluate_run {
    const evaluate_arguments *arguments;
    const ndp_config *config;
} evaluate_run;

static ndp_status evaluate_rank(ndp_world *w, void *user) {
    const evaluate_run *r = user;
    ndp_evaluation e;
    ndp_status st = ndp_evaluate_job(r->config, w, &e);
    if (st == NDP_OK && ndp_world_rank(w) == 0) {
        print_evaluation(r->arguments, &e);
        fflush(stdout);
    }
    return st;
}

static int evaluate_job(evaluate_arguments *a, int argc, char **argv) {
    ndp_config *c = NULL;
    ndp_status st = cli_job_load(&a->job, &c);
    evaluate_run r = {a, c};
    cli_ranks ranks = {.argc = argc,
                       .argv = argv,
                       .command = "evaluate",
                       .hostfile = a->hostfile,
                       .debug = a->job.debug,
                       .body = evaluate_rank,
                       .user = &r};
    int code = st == NDP_OK ? cli_end_output(cli_ranks_run(&ranks, c)) : cli_fail_early(st, a->job.debug);
    ndp_config_destroy(c);
    return code;
}

int cmd_evaluate(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_job_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        options,
        parse_evaluate,
        "[JOB.YAML]",
        "Compute how well a model predicts text: the mean negative log-likelihood per token, in nats. The text is "
        "either a "
        "file (--data), with each document scored on its own, or the held-out data of a job (data.validation_files, "
        "data.validation_fraction), packed, masked and distributed as in the job. For a job the result equals the "
        "eval_loss of its run.",
        children,
        NULL,
        NULL};
    evaluate_arguments a = {.job.optional = true, .evaluate = NDP_EVALUATE_OPTS_INIT};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    int code = a.job.file ? evaluate_job(&a, argc, argv) : evaluate_file(&a);
    cli_job_release(&a.job);
    return code;
}
