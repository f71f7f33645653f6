/* What the commands share. The program uses only the public header of the library. */
#ifndef NDP_CLI_CLI_H
#define NDP_CLI_CLI_H

#include <argp.h>
#include <ndparallel/ndparallel.h>

/* The commands. argv[0] is "ndparallel NAME". Each returns the exit code; a usage error ends the process with 2. */
int cmd_train(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_checkpoint(int argc, char **argv);
int cmd_launch(int argc, char **argv);
int cmd_evaluate(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_config(int argc, char **argv);
int cmd_env(int argc, char **argv);

/* ---- errors ---- */

/* 0: success; 2: an error of the user; 130: stopped by a signal, after saving; 1: everything else. */
int cli_exit_code(ndp_status st);
/* Prints the thread's last error on stderr, "ndparallel: message"; with `debug`, or for a bug, also where it came from.
 * Returns the exit code. */
int cli_fail(ndp_status st, bool debug);
/* The same with a prefix, such as "rank 3: ". */
int cli_fail_of(const char *who, ndp_status st, bool debug);

/* ---- arguments ---- */

/* Parses the value of an option; a usage error names the option. */
long long cli_integer(struct argp_state *state, const char *option, const char *arg, long long low, long long high);
double cli_number(struct argp_state *state, const char *option, const char *arg, double low, double high);

/* The argument JOB.YAML and the options --set, --ranks, --transport, --force-memory and --debug: a child parser for the
 * argp of a command, with a cli_job as its input. */
typedef struct cli_job {
    const char *file;
    char **assignments; /* in the order given; owned */
    int n;
    bool debug, force_memory, optional; /* optional: the file may be left out */
} cli_job;
extern const struct argp cli_job_argp;
/* Appends the assignment `key` + `value`. */
void cli_job_assign(cli_job *j, struct argp_state *state, const char *key, const char *value);
void cli_job_release(cli_job *j);
/* Reads the file, then makes the assignments. */
NDP_API ndp_status cli_job_load(const cli_job *j, ndp_config **out);

/* ---- ranks ---- */

/* Makes SIGINT, SIGTERM and SIGUSR1 set the returned flag. A second SIGINT or SIGTERM ends the process; with `live` it
 * first erases the live line (progress.h). */
const volatile sig_atomic_t *cli_catch_signals(bool live);
/* For a rank with nothing to save: SIGUSR1, by which a launcher forwards a Ctrl-C, ends it with exit code 130. */
void cli_end_on_signal(void);
/* ndp_launch with signal handling, warnings and error messages. Returns the exit code. `live`: the ranks draw a live
 * line (progress.h), which is erased after a failure. */
int cli_launch(ndp_launch_opts *o, bool live, bool debug);

/* Call it after the last output: returns `code`, or prints an error and returns 1 if stdout could not be written. */
int cli_end_output(int code);
/* Prints and frees a text from the library. Returns the exit code. */
int cli_print(ndp_status st, char *text, bool debug);

#endif
