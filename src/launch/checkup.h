/* The checkup of a host: facts about it, and rules that turn facts into findings. Facts are read from the system in one
 * place (checkup_facts.c) and rules read nothing else (checkup_rules.c), so that a test seeds any fault. */
#ifndef NDP_LAUNCH_CHECKUP_H
#define NDP_LAUNCH_CHECKUP_H

#include "base/json_write.h"
#include "base/text.h"

/* ---- findings ---- */

/* X(NAME, name): a check that finds a PROBLEM makes runs fail, slow or wrong; one with a NOTE can be better. */
#define NDP_FINDING_STATES_LIST(X) X(OK, ok) X(NOTE, note) X(PROBLEM, problem)
#define NDP_FINDING_STATE_ENUMERATOR(NAME, name) NDP_FINDING_##NAME,
typedef enum ndp_finding_state {
    NDP_FINDING_STATES_LIST(NDP_FINDING_STATE_ENUMERATOR) NDP_FINDING_STATES
} ndp_finding_state;
const char *ndp_finding_state_name(ndp_finding_state h);
/* False for any other name. */
bool ndp_finding_state_parse(const char *name, ndp_finding_state *out);

typedef struct ndp_finding {
    ndp_finding_state state;
    char *name, *found, *remedy; /* owned; remedy NULL: none is needed */
} ndp_finding;

/* `{0}` is an empty list. */
typedef struct ndp_findings {
    ndp_finding *items;
    int n;
    bool failed; /* out of memory: the list is incomplete */
} ndp_findings;

/* Appends what a check called `name` found, formatted as by printf. `remedy`: what to do; NULL if it is OK. */
__attribute__((format(printf, 5, 6))) void ndp_findings_add(ndp_findings *f, const char *name, ndp_finding_state state,
                                                            const char *remedy, const char *fmt, ...);
void ndp_findings_release(ndp_findings *f);
/* How many are problems. */
NDP_API int ndp_findings_problems(const ndp_findings *f);
/* Appends a line for each, and below one with a remedy that. */
void ndp_findings_print(const ndp_findings *f, ndp_str *out);
/* Appends the list "checks" of {"name", "state", "found", "remedy"}. */
void ndp_findings_put(const ndp_findings *f, ndp_json_out *out);

/* ---- facts ---- */

/* A folder that a run writes to. */
typedef struct ndp_disk_facts {
    const char *what;    /* "train.output_dir"; borrowed */
    char path[NDP_PATH]; /* it, or the nearest folder above it that exists */
    char lacks[256];     /* why it cannot be written to; "": it can */
    int64_t free_bytes, total_bytes;
    int64_t need_bytes; /* of the job; 0: not known */
    double clock_ahead; /* seconds by which the time of a new file is ahead of this host's clock */
} ndp_disk_facts;

enum { NDP_MOST_DISKS = 3 };
typedef struct ndp_host_facts {
    char processor[96], isa[32], governor[32]; /* governor "": not readable */
    int cores, online;                         /* usable by this process; of the system */
    double quota;                              /* cores that control groups allow at a time; 0: no limit */
    double load;                               /* programs that wanted to run, mean of the last minute */
    int omp_threads;                           /* OMP_NUM_THREADS; 0: not set */
    int ranks, threads; /* of the job on this host: ranks, and threads that each is told to have; 0: no job, its part */
    int64_t memory, available;             /* bytes */
    char memory_limit[512];                /* what limits `available` */
    int64_t swap, swap_used;               /* bytes */
    double swapped;                        /* pages a second, while facts were read */
    double pressure;                       /* % of the last minute in which something waited for memory; -1: unknown */
    int64_t shm, shm_free;                 /* bytes of /dev/shm; -1 if it is missing */
    int64_t memlock, nofile, stack, fsize; /* soft limits of this process; -1: no limit */
    bool infiniband;                       /* there is such a device */
    char huge_pages[16];                   /* always, madvise, never; "": unknown */
    char host[256];
    bool resolves;
    char python[NDP_PATH];                            /* the interpreter */
    char python_version[32], pyarrow[32], jinja2[32]; /* "": missing */
    bool wants_tables, wants_templates;               /* the job needs them */
    char mpirun[64], mpi_lacks[512];                  /* version; "": missing. Why MPI cannot be loaded; "": it can */
    bool several_hosts;                               /* the run is to use MPI */
    int nvidia;                                       /* GPUs by /dev/nvidia0, ... */
    char cuda_lacks[512];                             /* why the plugin does not start; "": it does */
    bool synchronized;                                /* something keeps the clock right, as the kernel knows */
    ndp_disk_facts disks[NDP_MOST_DISKS];
    int n_disks;
} ndp_host_facts;

/* The rest of the first line of the file that begins with `key`, without colons and blanks; "unknown" if it is missing.
 * Returns `out`. */
const char *ndp_line_of(const char *path, const char *key, char out[256]);
/* The version of mpirun; "" if it is not installed. Returns `out`. */
const char *ndp_mpirun_version(char out[256]);

/* Runs a program for `seconds` at most, without input. Returns its exit code, -1: it did not start or end. *text: what
 * it wrote, at most 1 MiB, which the caller frees; NULL: nothing. */
int ndp_program_output(char *const *argv, int seconds, char **text);
/* The last line of a text that has something in it: its length, and where it begins. */
int ndp_last_line(const char *text, const char **begin);

/* Reads all facts but those of disks and of a job. `root` is put before the paths of /proc, /sys and /dev; "" is this
 * machine. Takes about half a second. */
void ndp_host_facts_read(const char *root, ndp_host_facts *out);
/* Adds a disk, by writing a small file to `path`, or where it does not exist to the nearest folder above. */
void ndp_host_facts_disk(ndp_host_facts *f, const char *what, const char *path, int64_t need_bytes);

/* Appends what the facts mean. */
void ndp_host_checkup(const ndp_host_facts *f, ndp_findings *out);

/* ---- other hosts ---- */

typedef struct ndp_host_answer {
    char host[512];      /* as it was asked for: user@name */
    char *text;          /* what the command wrote; owned */
    int code;            /* its exit code; -1: it did not end in time */
    double began, ended; /* seconds since 1970, by this host's clock */
} ndp_host_answer;

/* Runs `command`, a shell's words, on each host of a hostfile except this one, reached as mpirun reaches it, for
 * `seconds` at most. The caller releases *out. A host that cannot be reached is no error: it has the answer of ssh. */
NDP_API ndp_status ndp_hosts_ask(const char *hostfile, const char *command, int seconds, ndp_host_answer **out, int *n);
void ndp_host_answers_release(ndp_host_answer *a, int n);

/* What an answer means: {"version", "time", "data", "checks"}, as ndp_doctor prints it, compared with this host's
 * version and `data` (NULL: not known). */
void ndp_host_answer_checkup(const ndp_host_answer *a, const char *version, const char *data, ndp_findings *out);

#endif
