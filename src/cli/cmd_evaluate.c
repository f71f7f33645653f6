#include "cli/cli.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

enum { OPTION_DEVICE = 1, OPTION_JSON, OPTION_DEBUG };

static const struct argp_option options[] = {
    {"model", 'm', "DIR", 0, "Hugging Face folder", 0},
    {"data", 'd', "FILE", 0, "JSONL with a `text` field, a document a line, or text", 0},
    {"sequence-length", 'l', "N", 0, "Longer documents are cut; default: the model's longest", 0},
    {"threads", 't', "N", 0, "Default: all cores", 0},
    {"device", OPTION_DEVICE, "NAME", 0, "cpu, or ref: plain loops, to compare with", 0},
    {"json", OPTION_JSON, NULL, 0, "One line of JSON", 0},
    {"debug", OPTION_DEBUG, NULL, 0, "Says where in the source an error came from", 1},
    {0},
};

typedef struct arguments {
    ndp_evaluate_opts evaluate;
    bool json, debug;
} arguments;

static error_t parse(int key, char *arg, struct argp_state *state) {
    arguments *a = state->input;
    switch (key) {
    case 'm':
        a->evaluate.model = arg;
        return 0;
    case 'd':
        a->evaluate.data = arg;
        return 0;
    case 'l':
        a->evaluate.sequence_length = (int)cli_integer(state, "--sequence-length", arg, 1, INT_MAX);
        return 0;
    case 't':
        a->evaluate.threads = (int)cli_integer(state, "--threads", arg, 1, 4096);
        return 0;
    case OPTION_DEVICE:
        a->evaluate.device = cli_device(state, arg);
        return 0;
    case OPTION_JSON:
        a->json = true;
        return 0;
    case OPTION_DEBUG:
        a->debug = true;
        return 0;
    case ARGP_KEY_END:
        if (!a->evaluate.model || !a->evaluate.data)
            argp_error(state, "%s is missing", a->evaluate.model ? "--data FILE" : "--model DIR");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int cmd_evaluate(int argc, char **argv) {
    static const struct argp argp = {
        options, parse,
        NULL,    "How well a model predicts texts: the sum of the negative log-likelihoods over their number.",
        NULL,    NULL,
        NULL};
    arguments a = {.evaluate = NDP_EVALUATE_OPTS_INIT};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    ndp_evaluation e;
    ndp_status st = ndp_evaluate(&a.evaluate, &e);
    if (st != NDP_OK)
        return cli_fail(st, a.debug);
    if (a.json)
        printf("{\"mean_nll\": %.17g, \"tokens\": %lld, \"documents\": %lld}\n", e.mean_nll, (long long)e.tokens,
               (long long)e.documents);
    else
        printf("mean nll %.7f (perplexity %.4f) over %lld predictions in %lld documents\n", e.mean_nll, exp(e.mean_nll),
               (long long)e.tokens, (long long)e.documents);
    return 0;
}
