/* ndparallel export: a model as a file or folder that other programs run. */
#include "cli/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct export_arguments {
    ndp_gguf_opts gguf;
    const char *format;
    bool folder; /* the format is a Hugging Face folder */
    bool debug, json;
} export_arguments;

static const char *formats(void) { return "gguf, safetensors"; }
static const char *types(void) { return "fp32, bf16, f16, q8_0"; }

static const cli_option options[] = {
    {"output", 'o', "PATH", "What to write, required; nothing is overwritten", CLI_TEXT(export_arguments, gguf.file)},
    {"format", 'f', "NAME",
     "gguf: one file for llama.cpp, Ollama and LM Studio; safetensors: a Hugging Face folder, as `checkpoint export` "
     "writes it; default: safetensors",
     CLI_TEXT(export_arguments, format), .choices = formats},
    {"type", 't', "TYPE", "Of the matrices of a GGUF file, default bf16; norms, biases and routers are fp32",
     CLI_TEXT(export_arguments, gguf.type), .choices = types},
    {"step", 0, "N", "Of a run: the checkpoint; default: the newest one that verifies",
     CLI_INT64(export_arguments, gguf.step, 1, INT64_MAX)},
    CLI_JSON(export_arguments, json),
    {"debug", 0, NULL, "Show where in the source an error occurred", CLI_FLAG(export_arguments, debug), .group = 1},
    {0},
};

static void take_model(void *arguments, struct argp_state *state, char *word) {
    export_arguments *a = arguments;
    if (state->arg_num > 0)
        cli_refuse(state, "export takes one model or run ('%s')", word);
    a->gguf.model = word;
}

static void check_arguments(void *arguments, struct argp_state *state) {
    export_arguments *a = arguments;
    if (!a->gguf.model)
        cli_refuse(state, "no model; give the folder of a run or of a model");
    if (!a->gguf.file)
        cli_refuse(state, "export needs -o PATH, the file or folder to write");
    a->folder = !a->format || strcmp(a->format, "safetensors") == 0;
    if (!a->folder && strcmp(a->format, "gguf") != 0)
        cli_refuse(state, "--format '%s': expected one of %s", a->format, formats());
    if (a->folder && a->gguf.type)
        cli_refuse(state, "--type is that of a GGUF file; add --format gguf");
}

static void print_result(const export_arguments *a, const char *what, int64_t count) {
    if (!a->json && a->folder)
        printf("model: %s, of step %lld\n", a->gguf.file, (long long)count);
    else if (!a->json)
        printf("model: %s, %lld tensors\n", a->gguf.file, (long long)count);
    if (!a->json)
        return;
    ndp_json_out o = {0};
    ndp_json_open(&o, NULL, '{');
    ndp_json_put_text(&o, a->folder ? "folder" : "file", a->gguf.file);
    ndp_json_put_text(&o, "model", a->gguf.model);
    ndp_json_put_int(&o, what, count);
    ndp_json_close(&o, '}');
    cli_print_json(&o);
}

static int run(const cli_command *c, int argc, char **argv) {
    export_arguments a = {.gguf = NDP_GGUF_OPTS_INIT};
    int64_t count;
    cli_parse(c, argc, argv, &a);
    ndp_status st = a.folder ? ndp_checkpoint_export(a.gguf.model, a.gguf.step, a.gguf.file, &count)
                             : ndp_gguf_export(&a.gguf, &count);
    if (st != NDP_OK)
        return cli_fail(st, a.debug);
    print_result(&a, a.folder ? "step" : "tensors", count);
    return cli_end_output(0);
}

const cli_command cmd_export = {
    .name = "export",
    .about = "write a model for llama.cpp and others",
    .usage = "RUN -o PATH\nMODEL --format gguf -o FILE",
    .help =
        "Write the model of a run's checkpoint, or of a Hugging Face folder, as a GGUF file, which llama.cpp, Ollama "
        "and LM Studio run; or that of a run as a Hugging Face folder. An adapter that a run has trained is merged "
        "into its model for a GGUF file.",
    .options = options,
    .argument = take_model,
    .check = check_arguments,
    .examples = {"ndparallel export runs/demo --format gguf -o demo.gguf",
                 "ndparallel export my-model --format gguf --type q8_0 -o my.gguf"},
    .run = run};
