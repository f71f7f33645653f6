/* ndparallel launch: runs any program that uses the library as the ranks of one world. */
#include "cli/cli.h"

#include <string.h>

enum { OPTION_THREADS = 1, OPTION_HOSTFILE, OPTION_TRANSPORT };

static const struct argp_option options[] = {
    {"ranks", 'n', "N", 0, "Number of ranks, each one process; required", 0},
    {"threads", OPTION_THREADS, "N", 0, "Threads per rank (OMP_NUM_THREADS)", 0},
    {"hostfile", OPTION_HOSTFILE, "FILE", 0,
     "Start the ranks with mpirun on these hosts, one per line (node-1 slots=8)", 0},
    {"transport", OPTION_TRANSPORT, "NAME", 0,
     "shm (processes of this host), mpi (started by mpirun) or auto, the default: mpi only for several hosts", 0},
    {0},
};

static error_t parse_launch(int key, char *arg, struct argp_state *state) {
    ndp_launch_opts *o = state->input;
    switch (key) {
    case 'n':
        o->ranks = (int)cli_integer(state, "-n", arg, 1, 1 << 20);
        return 0;
    case OPTION_THREADS:
        o->threads = (int)cli_integer(state, "--threads", arg, 1, 4096);
        return 0;
    case OPTION_HOSTFILE:
        o->hostfile = arg;
        return 0;
    case OPTION_TRANSPORT:
        if (strcmp(arg, "auto") != 0 && strcmp(arg, "shm") != 0 && strcmp(arg, "mpi") != 0)
            argp_error(state, "--transport '%s': expected auto, shm or mpi", arg);
        o->transport = arg;
        return 0;
    case ARGP_KEY_ARG: /* the program; everything after it is passed on */
        o->argv = state->argv + state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_END:
        if (!o->ranks)
            argp_error(state, "no number of ranks; give -n N");
        if (!o->argv)
            argp_error(state, "no program; give it and its arguments after --");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int cmd_launch(int argc, char **argv) {
    static const struct argp argp = {options,
                                     parse_launch,
                                     "-- PROGRAM [ARGUMENT...]",
                                     "Run a program that uses libndparallel as many ranks, which its ndp_world_run "
                                     "joins into one world. The exit code is that of the rank that failed first.",
                                     NULL,
                                     NULL,
                                     NULL};
    ndp_launch_opts o = NDP_LAUNCH_OPTS_INIT;
    o.ranks = 0;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &o);
    return cli_launch(&o, false, false);
}
