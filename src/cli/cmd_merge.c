/* ndparallel merge: a model with an adapter merged. */
#include "cli/commands.h"

#include <stdio.h>

typedef struct merge_arguments {
    const char *model, *adapter, *output;
    bool debug;
} merge_arguments;

static const cli_option options[] = {
    {"model", 'm', "DIR", "Hugging Face folder of the model that the adapter was trained on; required",
     CLI_TEXT(merge_arguments, model)},
    {"adapter", 'a', "DIR", "Folder of the adapter, as PEFT saves it, or of a run that has trained one; required",
     CLI_TEXT(merge_arguments, adapter)},
    {"output", 'o', "DIR", "The model folder to write, required; it must not exist, or be empty",
     CLI_TEXT(merge_arguments, output)},
    {"debug", 0, NULL, "Show where in the source an error occurred", CLI_FLAG(merge_arguments, debug), .group = 1},
    {0},
};

static void check_arguments(void *arguments, struct argp_state *state) {
    const merge_arguments *a = arguments;
    if (!a->model)
        argp_error(state, "--model DIR is missing");
    if (!a->adapter)
        argp_error(state, "--adapter DIR is missing");
    if (!a->output)
        argp_error(state, "merge needs -o DIR, the model folder to write");
}

static int run(const cli_command *c, int argc, char **argv) {
    merge_arguments a = {0};
    int64_t changed;
    cli_parse(c, argc, argv, &a);
    ndp_status st = ndp_adapter_merge(a.model, a.adapter, a.output, &changed);
    if (st != NDP_OK)
        return cli_fail(st, a.debug);
    printf("model: %s, %lld tensors merged\n", a.output, (long long)changed);
    return cli_end_output(0);
}

const cli_command cmd_merge = {
    .name = "merge",
    .about = "merge an adapter into its model",
    .help =
        "Write a model with an adapter of it (LoRA, rsLoRA or DoRA) merged, as a Hugging Face folder. The tensors keep "
        "their types, and the other files of the model are copied.",
    .options = options,
    .check = check_arguments,
    .examples = {"ndparallel merge --model my-model --adapter runs/lora -o merged",
                 "ndparallel merge --model my-model --adapter runs/lora/adapter -o merged"},
    .run = run};
