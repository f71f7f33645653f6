/* ndparallel topology: measures hosts, devices and links, prints what it found and writes a cluster.yaml. */
#include "cli/commands.h"
#include "cli/ranks.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct topology_arguments {
    const char *hostfile, *output, *device;
    int ranks;
    bool quick, keys, debug, json;
} topology_arguments;

static const cli_option options[] = {
    {"hostfile", 0, "FILE",
     "Measure these hosts, one per line (node-1 slots=8); default: this one, or those of the job",
     CLI_TEXT(topology_arguments, hostfile)},
    {"output", 'o', "FILE", "Write what was found as a cluster.yaml", CLI_TEXT(topology_arguments, output)},
    {"ranks", 0, "N", "Number of ranks; default: one for each slot of the hosts, 2 on this host alone",
     CLI_INT(topology_arguments, ranks, 1, 1 << 20)},
    {"device", 0, "NAME", CLI_DEVICE_HELP, CLI_TEXT(topology_arguments, device), .choices = ndp_device_choices},
    {"quick", 0, NULL, "Measure only the links: neither devices nor collectives", CLI_FLAG(topology_arguments, quick)},
    {"keys", 0, NULL, "Print the keys of cluster.yaml, with what they mean, and measure nothing",
     CLI_FLAG(topology_arguments, keys)},
    CLI_JSON(topology_arguments, json),
    {"debug", 0, NULL, "Show where in the source an error occurred", CLI_FLAG(topology_arguments, debug), .group = 1},
    {0},
};

static void check_arguments(void *arguments, struct argp_state *state) {
    const topology_arguments *a = arguments;
    if (a->keys && a->json)
        cli_refuse(state, "--keys prints a text; leave out --json");
}

/* On stderr, since stdout has the result. */
static void say(void *user, const char *line) {
    (void)user;
    fprintf(stderr, "%s\n", line);
}

static ndp_status measure(ndp_world *w, void *user) {
    const topology_arguments *a = user;
    ndp_topology_opts o = NDP_TOPOLOGY_OPTS_INIT;
    char *text;
    o.device = a->device;
    o.quick = a->quick;
    o.output = a->output;
    o.say = say;
    o.json = a->json;
    ndp_status st = ndp_topology(w, &o, &text);
    if (st != NDP_OK)
        return st;
    if (ndp_world_rank(w) == 0)
        printf("%s%s", text, a->json ? "\n" : "");
    free(text);
    return NDP_OK;
}

static int print_keys(bool debug) {
    char *text = NULL;
    ndp_status st = ndp_cluster_help(&text);
    return cli_print(st, text, debug);
}

static int run_ranks(topology_arguments *a, int argc, char **argv) {
    ndp_config *c = NULL;
    ndp_status st = ndp_config_create(&c);
    if (st == NDP_OK && a->ranks == 0)
        st = ndp_topology_ranks(a->hostfile, &a->ranks);
    cli_ranks r = {.argc = argc,
                   .argv = argv,
                   .command = "topology",
                   .hostfile = a->hostfile,
                   .debug = a->debug,
                   .ranks = a->ranks,
                   .body = measure,
                   .user = a};
    int code = st == NDP_OK ? cli_ranks_run(&r, c) : cli_fail_early(st, a->debug);
    ndp_config_destroy(c);
    return code;
}

static int run(const cli_command *c, int argc, char **argv) {
    topology_arguments a = {0};
    cli_parse(c, argc, argv, &a);
    return a.keys ? print_keys(a.debug) : run_ranks(&a, argc, argv);
}

const cli_command cmd_topology = {
    .name = "topology",
    .about = "measure hosts, devices and links",
    .usage = "",
    .help = "Measure the devices, the links between ranks and hosts, and collectives; print what was found, name what "
            "is slow, and write a cluster.yaml for `plan --cluster` and `train --placement best`. Takes at most 30 s "
            "for 8 hosts.",
    .options = options,
    .check = check_arguments,
    .examples = {"ndparallel topology --hostfile hosts.txt -o cluster.yaml", "ndparallel topology --quick"},
    .run = run};
