/* ndparallel doctor: checks what runs need, and says what to do about each finding. */
#include "cli/commands.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct doctor_arguments {
    cli_job job;
    const char *hostfile;
    const char *run; /* JOB.YAML is a folder: that of a run */
    int ranks_here;
    bool no_steps, json;
} doctor_arguments;

static const cli_option options[] = {
    {"hostfile", 0, "FILE",
     "Also check the hosts in it, one per line (node-1 slots=8): ssh, program, clock, and with JOB.YAML its files",
     CLI_TEXT(doctor_arguments, hostfile)},
    {"no-steps", 0, NULL, "Train no step on each axis", CLI_FLAG(doctor_arguments, no_steps)},
    {"ranks-here", 0, "N", NULL, CLI_INT(doctor_arguments, ranks_here, 1, 1 << 20)}, /* of a host that is asked */
    CLI_JSON(doctor_arguments, json),
    {0},
};

static void say(void *user, const char *line) {
    (void)user;
    fprintf(stderr, "%s\n", line);
}

/* What another host is to run, ending with NULL; the first is this program. The list is the caller's, its words are
 * borrowed. NULL: no memory. */
static const char **remote_words(const doctor_arguments *a, const char *program) {
    const char **words = calloc((size_t)a->job.n * 2 + 6, sizeof *words);
    int n = 0;
    if (!words)
        return NULL;
    words[n++] = program;
    words[n++] = "doctor";
    words[n++] = "--json";
    words[n++] = "--no-steps";
    if (a->job.file)
        words[n++] = a->job.file;
    for (int i = 0; i < a->job.n && a->job.file; i++) {
        words[n++] = "--set";
        words[n++] = a->job.assignments[i];
    }
    return words;
}

static ndp_status examine(doctor_arguments *a, char **text, int *problems) {
    char program[PATH_MAX];
    ndp_doctor_opts o = NDP_DOCTOR_OPTS_INIT;
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n < 0 ? 0 : n] = '\0';
    const char **words = remote_words(a, n < 0 ? "ndparallel" : program);
    o.job = a->job.config;
    o.run = a->run;
    o.hostfile = a->hostfile;
    o.remote = words;
    o.ranks_here = a->ranks_here;
    o.axes = !a->no_steps;
    o.json = a->json;
    o.say = a->json || !isatty(STDERR_FILENO) ? NULL : say;
    ndp_status st = ndp_doctor(&o, text, problems);
    free(words);
    return st;
}

static int run(const cli_command *c, int argc, char **argv) {
    doctor_arguments a = {.job.optional = true};
    char *text = NULL;
    int problems = 0;
    cli_parse(c, argc, argv, &a);
    struct stat info;
    if (a.job.file && stat(a.job.file, &info) == 0 && S_ISDIR(info.st_mode))
        a.run = a.job.file;
    ndp_status st = a.job.file && !a.run ? cli_job_load(&a.job) : NDP_OK;
    if (st == NDP_OK)
        st = examine(&a, &text, &problems);
    bool debug = a.job.debug;
    cli_job_release(&a.job);
    int code = cli_print(st, text, debug);
    return code ? code : problems ? 1 : 0;
}

const cli_command cmd_doctor = {
    .name = "doctor",
    .about = "check this machine, its hosts, a job or a run; say what to do",
    .usage = "[JOB.YAML | RUN]",
    .help = "Check what runs need, and say what to do about each finding: processor, threads, memory, swap, limits, "
            "/dev/shm, disks, Python for tables and chat templates, MPI, GPUs, and a training step on each axis beside "
            "one on one rank. With JOB.YAML also the job, its model and its data; with --hostfile every host: ssh, the "
            "same program, its clock, the same copy of the data. With a run folder: what happened to that run, by its "
            "lock, metrics, checkpoints and the journals of its ranks. The exit code is 1 if there is a problem.",
    .options = options,
    .takes_job = true,
    .examples = {"ndparallel doctor job.yaml --hostfile hosts.txt", "ndparallel doctor runs/demo"},
    .run = run};
