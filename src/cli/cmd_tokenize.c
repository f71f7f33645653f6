/* ndparallel tokenize: texts to token ids and back. */
#include "cli/commands.h"

#include <stdio.h>

typedef struct tokenize_arguments {
    ndp_tokenize_opts tokenize;
    bool forms[NDP_TOKENS_TEXT + 1]; /* the forms of output that were asked for */
    bool debug, json;
    ndp_json_out out; /* with --json */
    int64_t texts;
} tokenize_arguments;

static const cli_option options[] = {
    {"tokenizer", 'm', "DIR",
     "Folder with a tokenizer.json (or vocab.json and merges.txt), path of a tokenizer.json, or bytes; required",
     CLI_TEXT(tokenize_arguments, tokenize.tokenizer)},
    {"file", 'f', "FILE",
     "JSONL with one text per line, or a text file; with --decode, lists of ids. - is standard input: one text, or "
     "JSONL with --text-field",
     CLI_TEXT(tokenize_arguments, tokenize.file)},
    {"text", 't', "TEXT", "Text to use instead of a file; with --decode, a list of ids",
     CLI_TEXT(tokenize_arguments, tokenize.text)},
    {"text-field", 0, "NAME", "Field of JSONL records that holds the text; default: text",
     CLI_TEXT(tokenize_arguments, tokenize.text_field)},
    {"special", 0, NULL, "Add the special tokens that the tokenizer puts around a text; with --decode, show them",
     CLI_FLAG(tokenize_arguments, tokenize.special)},
    {"pieces", 0, NULL, "Print the tokens instead of their ids",
     CLI_FLAG(tokenize_arguments, forms[NDP_TOKENS_PIECES])},
    {"count", 0, NULL, "Print the number of tokens of each text",
     CLI_FLAG(tokenize_arguments, forms[NDP_TOKENS_COUNT])},
    {"decode", 0, NULL, "Turn lists of ids back into texts, each printed as a JSON string",
     CLI_FLAG(tokenize_arguments, forms[NDP_TOKENS_TEXT])},
    CLI_JSON(tokenize_arguments, json),
    {"debug", 0, NULL, "Show where in the source an error occurred", CLI_FLAG(tokenize_arguments, debug), .group = 1},
    {0},
};

static void check_arguments(void *arguments, struct argp_state *state) {
    tokenize_arguments *a = arguments;
    int forms = 0;
    if (!a->tokenize.tokenizer)
        cli_refuse(state, "--tokenizer DIR is missing");
    if (!a->tokenize.file == !a->tokenize.text)
        cli_refuse(state, "give either --file FILE or --text TEXT");
    for (int form = 0; form <= NDP_TOKENS_TEXT; form++)
        if (a->forms[form]) {
            a->tokenize.form = (ndp_tokens_form)form;
            forms++;
        }
    if (forms > 1)
        cli_refuse(state, "--pieces, --count and --decode cannot be combined");
}

/* False if stdout cannot be written any more. */
static bool print_line(void *user, const char *line, size_t length) {
    (void)user;
    return fwrite(line, 1, length, stdout) == length && putchar('\n') != EOF;
}

/* Each line is a value of JSON. */
static bool add_value(void *user, const char *line, size_t length) {
    tokenize_arguments *a = user;
    ndp_str_add(&a->out.text, a->texts++ ? ", " : "");
    ndp_str_add_bytes(&a->out.text, line, length);
    return !a->out.text.failed;
}

static ndp_status tokenize_to_json(tokenize_arguments *a) {
    static const char *const forms[] = {[NDP_TOKENS_IDS] = "ids",
                                        [NDP_TOKENS_PIECES] = "pieces",
                                        [NDP_TOKENS_COUNT] = "count",
                                        [NDP_TOKENS_TEXT] = "text"};
    ndp_json_open(&a->out, NULL, '{');
    ndp_json_put_text(&a->out, "form", forms[a->tokenize.form]);
    ndp_json_open(&a->out, "texts", '[');
    ndp_status st = ndp_tokenize(&a->tokenize, add_value, a);
    ndp_json_close(&a->out, ']');
    ndp_json_put_int(&a->out, "number", a->texts);
    ndp_json_close(&a->out, '}');
    if (st == NDP_OK)
        cli_print_json(&a->out);
    ndp_str_release(&a->out.text);
    return st;
}

static int run(const cli_command *c, int argc, char **argv) {
    tokenize_arguments a = {.tokenize = NDP_TOKENIZE_OPTS_INIT};
    cli_parse(c, argc, argv, &a);
    ndp_status st = a.json ? tokenize_to_json(&a) : ndp_tokenize(&a.tokenize, print_line, NULL);
    if (st != NDP_OK)
        return cli_fail(st, a.debug);
    return cli_end_output(0);
}

const cli_command cmd_tokenize = {.name = "tokenize",
                                  .about = "turn text into token ids, and back",
                                  .help = "Turn texts into token ids, one JSON array per text, or back.",
                                  .options = options,
                                  .check = check_arguments,
                                  .examples = {"ndparallel tokenize --tokenizer bytes --text 'Call me Ishmael.'",
                                               "ndparallel tokenize --tokenizer my-model --file notes.txt --count"},
                                  .run = run};
