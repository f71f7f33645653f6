/* What the commands share. The program uses only the public header of the library, and its writer of JSON. */
#ifndef NDP_CLI_CLI_H
#define NDP_CLI_CLI_H

#include "base/json_write.h"
#include "base/text.h"
#include <argp.h>
#include <ndparallel/ndparallel.h>

/* ---- errors ---- */

/* One of exit_codes.h. */
int ndp_exit_code(ndp_status st);
/* Prints a message on stderr, "ndparallel: message", and returns `code`, the exit code; 0: a warning, after which the
 * program goes on. On a terminal the prefix is bold red, of a warning bold yellow. */
__attribute__((format(printf, 2, 3))) int cli_error(int code, const char *fmt, ...);
/* Prints what is wrong with a command line, as an object if --json is anywhere in it, and does not exit. */
void cli_refuse_words(int argc, char **argv, const char *who, const char *message);
/* Prints the same of a command's line, and where its options are explained; exits with code 2. */
__attribute__((format(printf, 2, 3), noreturn)) void cli_refuse(const struct argp_state *state, const char *fmt, ...);
/* Prints why a command cannot begin, and exits with `code`. argp_failure returns where argp does not exit. */
__attribute__((format(printf, 3, 4), noreturn)) void cli_end(const struct argp_state *state, int code, const char *fmt,
                                                             ...);
/* From now on errors are objects, {"error": {"code": 2, "message": ...}}, with file, line, key and rank where the
 * message has them. Called while arguments are parsed. */
void cli_errors_as_json(void);
bool cli_is_json(void);
/* Prints the thread's last error; with `debug`, or for a bug, also where it came from. Returns the exit code. */
int cli_fail(ndp_status st, bool debug);
/* The same with a prefix, such as "rank 3: ". */
int cli_fail_of(const char *who, ndp_status st, bool debug);

/* ---- arguments ---- */

/* Parses a whole number; a usage error names the option. */
long long cli_integer(struct argp_state *state, const char *option, const char *arg, long long low, long long high);

/* Parses "100-110", or "100" alone. */
void cli_steps(struct argp_state *state, const char *option, const char *steps, int64_t *first, int64_t *last);

/* Texts from the command line, in the order given. */
typedef struct cli_list {
    const char **items; /* the list is owned, the texts are borrowed from argv */
    int n;
} cli_list;

/* What an option does with the struct of its command's arguments. */
typedef enum cli_option_kind {
    CLI_IS_FLAG,   /* sets a bool */
    CLI_IS_TEXT,   /* sets a const char *, borrowed from argv */
    CLI_IS_INT,    /* sets an int from low .. high */
    CLI_IS_INT64,  /* the same, int64_t */
    CLI_IS_NUMBER, /* the same, double */
    CLI_IS_LIST,   /* appends to a cli_list */
    CLI_IS_CALL    /* calls a function */
} cli_option_kind;

typedef struct cli_option {
    const char *name;
    int key;           /* its short name; 0: none */
    const char *value; /* the name of its value in the help; NULL: it takes none */
    const char *help;  /* NULL: not listed */
    cli_option_kind kind;
    size_t at; /* offset in the arguments */
    long long low, high;
    void (*call)(void *arguments, struct argp_state *state, const char *value);
    const char *(*choices)(void); /* lists the values, after the help; NULL: nothing */
    int group;                    /* in the help; groups are in ascending order */
} cli_option;

#define CLI_FLAG(arguments, member) .kind = CLI_IS_FLAG, .at = offsetof(arguments, member)
#define CLI_TEXT(arguments, member) .kind = CLI_IS_TEXT, .at = offsetof(arguments, member)
#define CLI_LIST(arguments, member) .kind = CLI_IS_LIST, .at = offsetof(arguments, member)
#define CLI_INT(arguments, member, least, most)                                                                        \
    .kind = CLI_IS_INT, .at = offsetof(arguments, member), .low = (least), .high = (most)
#define CLI_INT64(arguments, member, least, most)                                                                      \
    .kind = CLI_IS_INT64, .at = offsetof(arguments, member), .low = (least), .high = (most)
#define CLI_NUMBER(arguments, member, least, most)                                                                     \
    .kind = CLI_IS_NUMBER, .at = offsetof(arguments, member), .low = (least), .high = (most)
#define CLI_DEVICE_HELP "Device to compute on (cuda: NVIDIA's GPUs; ref: plain loops, for comparison)"
#define CLI_ADAPTER_HELP "An adapter of the model folder, as PEFT saves it, or the folder of a run that has trained one"
/* --device of a command that takes a job. */
#define CLI_JOB_DEVICE                                                                                                 \
    { "device", 0, "NAME", CLI_DEVICE_HELP " (train.device)", CLI_CALL(cli_set_device), .choices = ndp_device_choices }
#define CLI_CALL(function) .kind = CLI_IS_CALL, .call = (function)

/* A command of the program, or a sub-command of one. */
typedef struct cli_command {
    const char *name, *about; /* "train"; what it does, in one line */
    /* argv[0] is its full name, "ndparallel checkpoint list". Returns the exit code; a usage error ends the process
     * with 2. NULL: it has only sub-commands. */
    int (*run)(const struct cli_command *c, int argc, char **argv);
    const struct cli_command *const *parts; /* its sub-commands, ending with NULL; NULL: none */
    const char *usage, *help;               /* of the arguments; of the command, in two parts around \v */
    const char *examples[2];                /* of at most 76 characters */
    const cli_option *options;              /* ending with {0}; NULL: none */
    bool takes_job;                         /* its arguments begin with a cli_job, which has options of its own */
    unsigned flags;                         /* of argp_parse */
    void (*argument)(void *arguments, struct argp_state *state, char *word); /* NULL: it takes none but a job file */
    void (*check)(void *arguments, struct argp_state *state);                /* after all of them; may be NULL */
} cli_command;

/* Ends the process with 2 if an argument of a command that takes a job is an option of another program, or a key
 * without
 * --set: says what to write instead. */
void cli_refuse_habits(const cli_command *c, int argc, char **argv);
/* Fills `arguments`; after a usage error, --help or --version it ends the process. */
void cli_parse(const cli_command *c, int argc, char **argv, void *arguments);
/* Option i of a command, those of its job included; NULL beyond the last one. */
const cli_option *cli_option_of(const cli_command *c, int i);

/* The argument JOB.YAML and the options --set, --ranks, --transport, --force-memory and --debug. */
typedef struct cli_job {
    const char *file;
    char **assignments; /* in the order given; owned */
    int n;
    bool debug, force_memory, optional; /* optional: the file may be left out */
    ndp_config *config;                 /* after cli_job_load */
} cli_job;
/* Appends an assignment, formatted as by printf. */
__attribute__((format(printf, 3, 4))) void cli_job_assign(cli_job *j, struct argp_state *state, const char *fmt, ...);
/* The same of a key and a text, whatever characters it has. */
void cli_job_assign_text(cli_job *j, struct argp_state *state, const char *key, const char *text);
/* The option --device: sets train.device. */
void cli_set_device(void *job, struct argp_state *state, const char *value);
/* Reads the file into j->config, then makes the assignments. */
NDP_API ndp_status cli_job_load(cli_job *j);
void cli_job_release(cli_job *j);

/* ---- ranks ---- */

/* Makes SIGINT, SIGTERM, SIGHUP and SIGUSR1 set the returned flag, unless they were ignored. A second SIGINT or SIGTERM
 * ends the process; with `live` it first erases the live line (progress.h). */
const volatile sig_atomic_t *cli_catch_signals(bool live);
/* For a rank with nothing to save: SIGUSR1, by which a launcher forwards a Ctrl-C, ends it with exit code 130. */
void cli_end_on_signal(void);
/* Until cli_catch_signals, a signal that stops a run ends it with exit code 130 and a line. Ranks, which a launcher
 * sends SIGUSR1, leave that to cli_launch, or to rank 0 where this program has not started them. */
void cli_end_on_early_stop(void);
/* ndp_launch with signal handling, warnings and error messages. Returns the exit code. `live`: the ranks draw a live
 * line (progress.h), which is erased after a failure. `saves`: the job of ranks that save checkpoints, so that the
 * message of a rank that died says which step is on disk; NULL: of ranks that do not. `lost`: gets the hosts that were
 * lost; may be NULL. */
int cli_launch(ndp_launch_opts *o, bool live, bool debug, const ndp_config *saves, ndp_strings *lost);

/* Call it after the last output: returns `code`, or prints an error and returns 1 if stdout could not be written. */
int cli_end_output(int code);
/* Prints and frees a text from the library. Returns the exit code. */
int cli_print(ndp_status st, char *text, bool debug);
/* Prints a text, on a terminal in lines that fit (wrap.h), and releases it. */
void cli_print_fitting(ndp_str *text);
/* Prints a value as one line, and releases it. */
void cli_print_json(ndp_json_out *o);
/* The option --json of a command whose arguments have `bool member`. */
#define CLI_JSON(arguments, member)                                                                                    \
    { "json", 0, NULL, "Print the result as one line of JSON", CLI_FLAG(arguments, member) }

#endif
