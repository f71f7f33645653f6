/* ndparallel generate: continues a prompt. */
#include "cli/cli.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

enum {
    OPTION_DEVICE = 1,
    OPTION_IDS,
    OPTION_SEED,
    OPTION_TEMPERATURE,
    OPTION_TOP_P,
    OPTION_FORCE_MEMORY,
    OPTION_DEBUG
};

static const struct argp_option options[] = {
    {"model", 'm', "DIR", 0, "Hugging Face folder; required", 0},
    {"prompt", 'p', "TEXT", 0, "Text to continue; default: empty, starting from the begin token", 0},
    {"max-tokens", 'n', "N", 0, "Generate at most N tokens; default: 256", 0},
    {"temperature", OPTION_TEMPERATURE, "X", 0,
     "Sampling temperature; 0, the default, always takes the most likely token", 0},
    {"top-p", OPTION_TOP_P, "P", 0,
     "Sample only from the most likely tokens whose probabilities add up to P; default: 1, all", 0},
    {"seed", OPTION_SEED, "N", 0, "Seed for sampling; default: 42", 0},
    {"threads", 't', "N", 0, "Threads; default: all cores", 0},
    {"device", OPTION_DEVICE, "NAME", 0, "cpu, or ref (plain loops, for comparison)", 0},
    {"ids", OPTION_IDS, NULL, 0, "Print token ids instead of text", 0},
    {"force-memory", OPTION_FORCE_MEMORY, NULL, 0, "Start even if more memory is needed than is available", 0},
    {"debug", OPTION_DEBUG, NULL, 0, "Show where in the source an error occurred", 1},
    {0},
};

typedef struct generate_arguments {
    ndp_generate_opts generate;
    bool ids, debug, terminal;
} generate_arguments;

static error_t parse_generate(int key, char *arg, struct argp_state *state) {
    generate_arguments *a = state->input;
    switch (key) {
    case 'm':
        a->generate.model = arg;
        return 0;
    case 'p':
        a->generate.prompt = arg;
        return 0;
    case 'n':
        a->generate.max_tokens = (int)cli_integer(state, "--max-tokens", arg, 1, INT_MAX);
        return 0;
    case OPTION_TEMPERATURE:
        a->generate.temperature = cli_number(state, "--temperature", arg, 0, 1e6);
        return 0;
    case OPTION_TOP_P:
        a->generate.top_p = cli_number(state, "--top-p", arg, 0, 1);
        return 0;
    case OPTION_SEED:
        a->generate.seed = cli_integer(state, "--seed", arg, 0, LLONG_MAX);
        return 0;
    case 't':
        a->generate.threads = (int)cli_integer(state, "--threads", arg, 1, 4096);
        return 0;
    case OPTION_DEVICE:
        a->generate.device = arg;
        return 0;
    case OPTION_IDS:
        a->ids = true;
        return 0;
    case OPTION_FORCE_MEMORY:
        a->generate.force_memory = true;
        return 0;
    case OPTION_DEBUG:
        a->debug = true;
        return 0;
    case ARGP_KEY_END:
        if (!a->generate.model)
            argp_error(state, "--model DIR is missing");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The output of a byte-level model may contain control characters, which a terminal would execute. */
static void put_text(const char *text, bool terminal) {
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        putchar(terminal && ((c < ' ' && c != '\n' && c != '\t') || c == 0x7f) ? '.' : c);
    }
}

static bool print_token(void *user, int32_t id, const char *text) {
    const generate_arguments *a = user;
    if (a->ids)
        printf("%d ", id);
    else
        put_text(text, a->terminal);
    return fflush(stdout) == 0;
}

int cmd_generate(int argc, char **argv) {
    static const struct argp argp = {
        options, parse_generate, NULL, "Continue a prompt, printing the new text as it is generated.",
        NULL,    NULL,           NULL};
    generate_arguments a = {.generate = NDP_GENERATE_OPTS_INIT, .terminal = isatty(STDOUT_FILENO)};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    ndp_status st = ndp_generate(&a.generate, print_token, &a);
    if (st != NDP_OK)
        return cli_fail(st, a.debug);
    putchar('\n');
    return cli_end_output(0);
}
