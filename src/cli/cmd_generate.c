/* ndparallel generate: continues a prompt, the prompts of a file, or a conversation. */
#include "cli/chat_loop.h"
#include "cli/commands.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct generate_arguments {
    ndp_generate_opts generate;
    cli_list stop;
    const char *file, *system;
    int batch, context;
    bool chat, ids, debug, terminal, json;
    ndp_str text, numbers; /* with --json: what was generated */
    int64_t tokens;
} generate_arguments;

static const cli_option options[] = {
    {"model", 'm', "DIR", "Hugging Face folder, or a run folder (its newest whole checkpoint); required",
     CLI_TEXT(generate_arguments, generate.model)},
    {"adapter", 'a', "DIR", CLI_ADAPTER_HELP, CLI_TEXT(generate_arguments, generate.adapter)},
    {"step", 0, "N", "With a run folder: the checkpoint of this step",
     CLI_INT64(generate_arguments, generate.step, 1, LLONG_MAX)},
    {"prompt", 'p', "TEXT", "Text to continue; default: empty, starting from the begin token",
     CLI_TEXT(generate_arguments, generate.prompt)},
    {"chat", 0, NULL, "Have a conversation: each line of standard input is a message, and the model answers",
     CLI_FLAG(generate_arguments, chat)},
    {"file", 'f', "JSONL",
     "Continue every record of a file, {\"prompt\": ...} or {\"messages\": [...]}, and print a line of JSON for each",
     CLI_TEXT(generate_arguments, file)},
    {"max-tokens", 'n', "N", "Generate at most N tokens; default: 256",
     CLI_INT(generate_arguments, generate.max_tokens, 1, INT_MAX)},
    {"stop", 0, "TEXT", "End before this text; may be given several times", CLI_LIST(generate_arguments, stop)},
    {"system", 0, "TEXT", "With --chat: the system message", CLI_TEXT(generate_arguments, system)},
    {"chat-template", 0, "NAME",
     "Template of conversations, as data.chat_template; default: the one that the model was trained with",
     CLI_TEXT(generate_arguments, generate.chat_template)},
    {"context", 0, "N",
     "With --chat: the longest conversation in tokens; default: 8192, or the model's maximum if less",
     CLI_INT(generate_arguments, context, 1, INT_MAX)},
    {"batch", 0, "N", "With --file: continue N prompts at a time; default: as memory allows, at most 16",
     CLI_INT(generate_arguments, batch, 1, 1 << 20)},
    {"temperature", 0, "X", "Sampling temperature; 0, the default, always takes the most likely token",
     CLI_NUMBER(generate_arguments, generate.temperature, 0, 1000000)},
    {"top-p", 0, "P", "Sample only from the most likely tokens whose probabilities add up to P; default: 1, all",
     CLI_NUMBER(generate_arguments, generate.top_p, 0, 1)},
    {"seed", 0, "N", "Seed for sampling; default: 42", CLI_INT64(generate_arguments, generate.seed, 0, LLONG_MAX)},
    {"threads", 't', "N", "Threads; default: all cores", CLI_INT(generate_arguments, generate.threads, 1, 4096)},
    {"device", 0, "NAME", CLI_DEVICE_HELP, CLI_TEXT(generate_arguments, generate.device),
     .choices = ndp_device_choices},
    {"ids", 0, NULL, "Print token ids instead of text", CLI_FLAG(generate_arguments, ids)},
    {"json", 0, NULL, "With --prompt: print the result as one line of JSON", CLI_FLAG(generate_arguments, json)},
    {"force-memory", 0, NULL, "Start even if more memory is needed than is available",
     CLI_FLAG(generate_arguments, generate.force_memory)},
    {"debug", 0, NULL, "Show where in the source an error occurred", CLI_FLAG(generate_arguments, debug), .group = 1},
    {0},
};

static void check_arguments(void *arguments, struct argp_state *state) {
    const generate_arguments *a = arguments;
    if (!a->generate.model)
        cli_refuse(state, "--model DIR is missing");
    if ((a->generate.prompt && (a->chat || a->file)) || (a->chat && a->file))
        cli_refuse(state, "give one of --prompt, --chat and --file");
    if (a->json && (a->chat || a->file))
        cli_refuse(state, "--json is for --prompt; --file prints JSON, and --chat is for people");
    if (a->file && a->ids)
        cli_refuse(state, "--ids is for --prompt and --chat; --file prints texts");
    if (!a->chat && (a->system || a->context))
        cli_refuse(state, "--system and --context are for --chat");
    if (!a->file && a->batch)
        cli_refuse(state, "--batch is for --file");
    if (a->generate.chat_template && !a->chat && !a->file)
        cli_refuse(state, "--chat-template is for --chat and --file");
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

static bool keep_token(void *user, int32_t id, const char *text) {
    generate_arguments *a = user;
    ndp_str_add(&a->text, text);
    ndp_str_addf(&a->numbers, "%s%d", a->tokens++ ? ", " : "", id);
    return true;
}

/* As a line of --file, without the index. */
static void print_json(generate_arguments *a, ndp_finish finish) {
    ndp_json_out o = {0};
    ndp_json_open(&o, NULL, '{');
    ndp_json_put_text(&o, "text", a->text.data ? a->text.data : "");
    ndp_json_put_int(&o, "tokens", a->tokens);
    ndp_json_put_text(&o, "finish", finish == NDP_FINISH_STOP ? "stop" : "length");
    if (a->ids) {
        ndp_json_open(&o, "ids", '[');
        ndp_str_add(&o.text, a->numbers.data ? a->numbers.data : "");
        ndp_json_close(&o, ']');
    }
    ndp_json_close(&o, '}');
    o.text.failed |= a->text.failed || a->numbers.failed;
    cli_print_json(&o);
}

static bool print_line(void *user, const char *line, size_t length) {
    (void)user;
    return fwrite(line, 1, length, stdout) == length && putchar('\n') != EOF && fflush(stdout) == 0;
}

static int generate_prompt(generate_arguments *a) {
    a->generate.ids = a->ids;
    ndp_finish finish = NDP_FINISH_CANCELLED;
    a->generate.finish = &finish;
    ndp_status st = ndp_generate(&a->generate, a->json ? keep_token : print_token, a);
    if (st == NDP_OK && a->json)
        print_json(a, finish);
    ndp_str_release(&a->text);
    ndp_str_release(&a->numbers);
    if (st != NDP_OK)
        return cli_fail(st, a->debug);
    if (!a->json)
        putchar('\n');
    return cli_end_output(0);
}

static int generate_file(const generate_arguments *a) {
    ndp_generated done;
    ndp_status st = ndp_generate_file(&a->generate, a->file, a->batch, print_line, NULL, &done);
    if (st != NDP_OK)
        return cli_fail(st, a->debug);
    fprintf(stderr, "%lld prompts, %lld tokens in %.1f s (%.0f tokens/s, %d at a time)\n", (long long)done.prompts,
            (long long)done.tokens, done.seconds, (double)done.tokens / done.seconds, done.batch);
    return cli_end_output(0);
}

static int generate_chat(generate_arguments *a) {
    const chat_opts opts = {&a->generate, a->system, a->context, a->debug, print_token, a};
    return chat_run(&opts);
}

static int run(const cli_command *c, int argc, char **argv) {
    generate_arguments a = {.generate = NDP_GENERATE_OPTS_INIT, .terminal = isatty(STDOUT_FILENO)};
    a.generate.prompt = NULL;
    cli_parse(c, argc, argv, &a);
    a.generate.stop = a.stop.items;
    a.generate.stop_count = a.stop.n;
    int code = a.chat ? generate_chat(&a) : a.file ? generate_file(&a) : generate_prompt(&a);
    free(a.stop.items);
    return code;
}

const cli_command cmd_generate = {
    .name = "generate",
    .about = "generate text from a prompt",
    .help = "Continue a prompt, printing the new text as it is generated; the prompts of a file; or a conversation.",
    .options = options,
    .check = check_arguments,
    .examples = {"ndparallel generate --model runs/demo --prompt 'Call me' --max-tokens 20",
                 "ndparallel generate --model runs/demo --chat --chat-template chatml"},
    .run = run};
