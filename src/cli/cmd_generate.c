/* ndparallel generate: continues a prompt. */
#include "cli/cli.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

typedef struct generate_arguments {
    ndp_generate_opts generate;
    bool ids, debug, terminal;
} generate_arguments;

static const cli_option options[] = {
    {"model", 'm', "DIR", "Hugging Face folder; required", CLI_TEXT(generate_arguments, generate.model)},
    {"prompt", 'p', "TEXT", "Text to continue; default: empty, starting from the begin token",
     CLI_TEXT(generate_arguments, generate.prompt)},
    {"max-tokens", 'n', "N", "Generate at most N tokens; default: 256",
     CLI_INT(generate_arguments, generate.max_tokens, 1, INT_MAX)},
    {"temperature", 0, "X", "Sampling temperature; 0, the default, always takes the most likely token",
     CLI_NUMBER(generate_arguments, generate.temperature, 0, 1000000)},
    {"top-p", 0, "P", "Sample only from the most likely tokens whose probabilities add up to P; default: 1, all",
     CLI_NUMBER(generate_arguments, generate.top_p, 0, 1)},
    {"seed", 0, "N", "Seed for sampling; default: 42", CLI_INT64(generate_arguments, generate.seed, 0, LLONG_MAX)},
    {"threads", 't', "N", "Threads; default: all cores", CLI_INT(generate_arguments, generate.threads, 1, 4096)},
    {"device", 0, "NAME", CLI_DEVICE_HELP, CLI_TEXT(generate_arguments, generate.device),
     .choices = ndp_device_choices},
    {"ids", 0, NULL, "Print token ids instead of text", CLI_FLAG(generate_arguments, ids)},
    {"force-memory", 0, NULL, "Start even if more memory is needed than is available",
     CLI_FLAG(generate_arguments, generate.force_memory)},
    {"debug", 0, NULL, "Show where in the source an error occurred", CLI_FLAG(generate_arguments, debug), .group = 1},
    {0},
};

static void check_arguments(void *arguments, struct argp_state *state) {
    if (!((const generate_arguments *)arguments)->generate.model)
        argp_error(state, "--model DIR is missing");
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
    static const cli_command command = {.help = "Continue a prompt, printing the new text as it is generated.",
                                        .options = options,
                                        .check = check_arguments};
    generate_arguments a = {.generate = NDP_GENERATE_OPTS_INIT, .terminal = isatty(STDOUT_FILENO)};
    cli_parse(&command, argc, argv, &a);
    ndp_status st = ndp_generate(&a.generate, print_token, &a);
    if (st != NDP_OK)
        return cli_fail(st, a.debug);
    putchar('\n');
    return cli_end_output(0);
}
