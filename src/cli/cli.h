/* What the commands share. The program is built on the public header alone. */
#ifndef NDP_CLI_CLI_H
#define NDP_CLI_CLI_H

#include <argp.h>
#include <ndparallel/ndparallel.h>

/* A command: argv[0] is "ndparallel NAME". Returns the exit code; a mistake in argv ends the process with 2. */
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

/* 0; 2: the user's mistake; 130: stopped by a signal after saving; 1: everything else. */
int cli_exit_code(ndp_status st);
/* Prints "ndparallel: message" on stderr, the thread's last error, and with `debug`, or for a bug, where it came from.
 * Returns the exit code. */
int cli_fail(ndp_status st, bool debug);
/* The same with a prefix, such as "rank 3: ". */
int cli_fail_of(const char *who, ndp_status st, bool debug);

/* ---- arguments ---- */

/* The value of an option, or a usage error that names it. */
long long cli_integer(struct argp_state *state, const char *option, const char *arg, long long low, long long high);
double cli_number(struct argp_state *state, const char *option, const char *arg, double low, double high);
/* Returns arg if it is "cpu" or "ref", else a usage error. */
const char *cli_device(struct argp_state *state, const char *arg);

/* JOB.YAML with --set, --ranks, --transport, --force-memory and --debug: a child parser for a command's argp, its input
 * a cli_job. */
typedef struct cli_job {
    const char *file;
    char **assignments; /* in their order; owned */
    int n;
    bool debug, force_memory, optional; /* optional: the command can do without a file */
} cli_job;
extern const struct argp cli_job_argp;
/* Appends the assignment `key` + `value`. */
void cli_job_assign(cli_job *j, struct argp_state *state, const char *key, const char *value);
void cli_job_release(cli_job *j);
/* Reads the file, then makes the assignments. */
NDP_API ndp_status cli_job_load(const cli_job *j, ndp_config **out);

/* ---- ranks ---- */

/* From now on SIGINT, SIGTERM and SIGUSR1 set the returned flag; the second SIGINT or SIGTERM ends the process, which
 * with `live` erases the live line (progress.h) before. */
const volatile sig_atomic_t *cli_catch_signals(bool live);
/* For a rank with nothing to save: SIGUSR1, as which a launcher forwards a Ctrl-C, ends it with exit code 130. */
void cli_end_on_signal(void);
/* ndp_launch with signals, warnings and a final message. Returns the exit code. `live`: the ranks draw a live line
 * (progress.h), which is erased if they leave it behind. */
int cli_launch(ndp_launch_opts *o, bool live, bool debug);

/* After the last words on stdout: `code`, or 1 and an error where they could not be written. */
int cli_end_output(int code);
/* Prints and frees a text from the library. Returns the exit code. */
int cli_print(ndp_status st, char *text, bool debug);

#endif
