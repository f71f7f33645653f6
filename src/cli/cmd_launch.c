/* ndparallel launch: runs any program that uses the library as the ranks of one world. */
#include "cli/commands.h"

#include <string.h>

typedef struct arguments {
    ndp_launch_opts opts;
    char *python;
} arguments;

static const char *transports(void) { return "auto, shm, mpi"; }

static const cli_option options[] = {
    {"ranks", 'n', "N", "Number of ranks, each one process; required", CLI_INT(arguments, opts.ranks, 1, 1 << 20)},
    {"threads", 0, "N", "Threads per rank (OMP_NUM_THREADS)", CLI_INT(arguments, opts.threads, 1, 4096)},
    {"hostfile", 0, "FILE", "Start the ranks with mpirun on these hosts, one per line (node-1 slots=8)",
     CLI_TEXT(arguments, opts.hostfile)},
    {"transport", 0, "NAME",
     "How ranks communicate (shm: processes of this host, mpi: started by mpirun; default: auto, mpi only for several "
     "hosts)",
     CLI_TEXT(arguments, opts.transport), .choices = transports},
    {"python", 0, "PROGRAM", "Run a program that is named *.py with this Python", CLI_TEXT(arguments, python)},
    {0},
};

static bool is_script(const char *word) {
    size_t n = strlen(word);
    return n > 3 && strcmp(word + n - 3, ".py") == 0;
}

/* The program; everything after it is passed on. A script has its Python in the place of the word before it, an option
 * that was read. */
static void take_program(void *taken, struct argp_state *state, char *word) {
    arguments *a = taken;
    char **program = state->argv + state->next - 1;
    if (a->python && is_script(word))
        *--program = a->python;
    a->opts.argv = program;
    state->next = state->argc;
}

static void check_arguments(void *taken, struct argp_state *state) {
    const ndp_launch_opts *o = &((arguments *)taken)->opts;
    const char *t = o->transport;
    if (t && strcmp(t, "auto") != 0 && strcmp(t, "shm") != 0 && strcmp(t, "mpi") != 0)
        cli_refuse(state, "--transport '%s': expected auto, shm or mpi", t);
    if (!o->ranks)
        cli_refuse(state, "no number of ranks; give -n N");
    if (!o->argv)
        cli_refuse(state, "no program; give it and its arguments after --");
}

static int run(const cli_command *c, int argc, char **argv) {
    arguments a = {.opts = NDP_LAUNCH_OPTS_INIT};
    a.opts.ranks = 0;
    cli_parse(c, argc, argv, &a);
    return cli_launch(&a.opts, false, false, NULL, NULL);
}

const cli_command cmd_launch = {
    .name = "launch",
    .about = "run your own program on many ranks",
    .usage = "-- PROGRAM [ARGUMENT...]",
    .help = "Run a program that uses libndparallel as many ranks, which its ndp_world_run joins into one world. "
            "The exit code is that of the rank that failed first.",
    .options = options,
    .flags = ARGP_IN_ORDER,
    .argument = take_program,
    .check = check_arguments,
    .examples = {"ndparallel launch -n 2 -- ./nd_parallel config.json notes.txt 2 1 1 1",
                 "ndparallel launch -n 4 --threads 1 -- ./my_program"},
    .run = run};
