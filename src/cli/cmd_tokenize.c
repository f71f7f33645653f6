/* ndparallel tokenize: texts to token ids and back. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

enum { OPTION_FIELD = 1, OPTION_SPECIAL, OPTION_PIECES, OPTION_COUNT, OPTION_DECODE, OPTION_DEBUG };

static const struct argp_option options[] = {
    {"tokenizer", 'm', "DIR", 0,
     "Folder with a tokenizer.json (or vocab.json and merges.txt), path of a tokenizer.json, or bytes; required", 0},
    {"file", 'f', "FILE", 0,
     "JSONL with one text per line, or a text file; with --decode, lists of ids. - is standard input: one text, or "
     "JSONL with --text-field",
     0},
    {"text", 't', "TEXT", 0, "Text to use instead of a file; with --decode, a list of ids", 0},
    {"text-field", OPTION_FIELD, "NAME", 0, "Field of JSONL records that holds the text; default: text", 0},
    {"special", OPTION_SPECIAL, NULL, 0,
     "Add the special tokens that the tokenizer puts around a text; with --decode, show them", 0},
    {"pieces", OPTION_PIECES, NULL, 0, "Print the tokens instead of their ids", 0},
    {"count", OPTION_COUNT, NULL, 0, "Print the number of tokens of each text", 0},
    {"decode", OPTION_DECODE, NULL, 0, "Turn lists of ids back into texts, each printed as a JSON string", 0},
    {"debug", OPTION_DEBUG, NULL, 0, "Show where in the source an error occurred", 1},
    {0},
};

typedef struct tokenize_arguments {
    ndp_tokenize_opts tokenize;
    int forms; /* number of output forms given */
    bool debug;
} tokenize_arguments;

static error_t parse_form(tokenize_arguments *a, ndp_tokens_form form) {
    a->tokenize.form = form;
    a->forms++;
    return 0;
}

static error_t parse_tokenize(int key, char *arg, struct argp_state *state) {
    tokenize_arguments *a = state->input;
    switch (key) {
    case 'm':
        a->tokenize.tokenizer = arg;
        return 0;
    case 'f':
        a->tokenize.file = arg;
        return 0;
    case 't':
        a->tokenize.text = arg;
        return 0;
    case OPTION_FIELD:
        a->tokenize.text_field = arg;
        return 0;
    case OPTION_SPECIAL:
        a->tokenize.special = true;
        return 0;
    case OPTION_PIECES:
        return parse_form(a, NDP_TOKENS_PIECES);
    case OPTION_COUNT:
        return parse_form(a, NDP_TOKENS_COUNT);
    case OPTION_DECODE:
        return parse_form(a, NDP_TOKENS_TEXT);
    case OPTION_DEBUG:
        a->debug = true;
        return 0;
    case ARGP_KEY_END:
        if (!a->tokenize.tokenizer)
            argp_error(state, "--tokenizer DIR is missing");
        if (!a->tokenize.file == !a->tokenize.text)
            argp_error(state, "give either --file FILE or --text TEXT");
        if (a->forms > 1)
            argp_error(state, "--pieces, --count and --decode cannot be combined");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* False if stdout cannot be written any more. */
static bool print_line(void *user, const char *line, size_t length) {
    (void)user;
    return fwrite(line, 1, length, stdout) == length && putchar('\n') != EOF;
}

int cmd_tokenize(int argc, char **argv) {
    static const struct argp argp = {
        options, parse_tokenize, NULL, "Turn texts into token ids, one JSON array per text, or back.",
        NULL,    NULL,           NULL};
    tokenize_arguments a = {.tokenize = NDP_TOKENIZE_OPTS_INIT};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    ndp_status st = ndp_tokenize(&a.tokenize, print_line, NULL);
    if (st != NDP_OK)
        return cli_fail(st, a.debug);
    return cli_end_output(0);
}
