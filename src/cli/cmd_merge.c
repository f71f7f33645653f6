/* ndparallel merge: a model with an adapter merged. */
#include "cli/commands.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct merge_arguments {
    ndp_merge_opts merge;
    cli_list accept;
    bool debug, json;
} merge_arguments;

static const cli_option options[] = {
    {"model", 'm', "DIR", "Hugging Face folder of the model that the adapter was trained on; required",
     CLI_TEXT(merge_arguments, merge.model)},
    {"adapter", 'a', "DIR", "Folder of the adapter, as PEFT saves it, or of a run that has trained one; required",
     CLI_TEXT(merge_arguments, merge.adapter)},
    {"output", 'o', "DIR", "The model folder to write, required; it must not exist, or be empty",
     CLI_TEXT(merge_arguments, merge.folder)},
    {"accept", 0, "KEY",
     "With the adapter of a run: allow KEY, model.path, to be other weights than those that it was trained beside",
     CLI_LIST(merge_arguments, accept)},
    CLI_JSON(merge_arguments, json),
    {"debug", 0, NULL, "Show where in the source an error occurred", CLI_FLAG(merge_arguments, debug), .group = 1},
    {0},
};

static void check_arguments(void *arguments, struct argp_state *state) {
    const merge_arguments *a = arguments;
    if (!a->merge.model)
        cli_refuse(state, "--model DIR is missing");
    if (!a->merge.adapter)
        cli_refuse(state, "--adapter DIR is missing");
    if (!a->merge.folder)
        cli_refuse(state, "merge needs -o DIR, the model folder to write");
}

static void print_json(const ndp_merge_opts *m, int64_t changed) {
    ndp_json_out o = {0};
    ndp_json_open(&o, NULL, '{');
    ndp_json_put_text(&o, "folder", m->folder);
    ndp_json_put_text(&o, "model", m->model);
    ndp_json_put_text(&o, "adapter", m->adapter);
    ndp_json_put_int(&o, "tensors", changed);
    ndp_json_close(&o, '}');
    cli_print_json(&o);
}

static int run(const cli_command *c, int argc, char **argv) {
    merge_arguments a = {.merge = NDP_MERGE_OPTS_INIT};
    int64_t changed;
    cli_parse(c, argc, argv, &a);
    a.merge.accept = a.accept.items;
    a.merge.accept_count = a.accept.n;
    ndp_status st = ndp_adapter_merge_with(&a.merge, &changed);
    free(a.accept.items);
    if (st != NDP_OK)
        return cli_fail(st, a.debug);
    if (a.json)
        print_json(&a.merge, changed);
    else
        printf("model: %s, %lld tensors merged\n", a.merge.folder, (long long)changed);
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
