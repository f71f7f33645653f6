/* The machine under the ranks: hosts and their names, processes, cores. */
#ifndef NDP_LAUNCH_LAUNCH_H
#define NDP_LAUNCH_LAUNCH_H

#include "base/text.h"

/* Whether this host's own name, which is written to `name`, resolves to an address. Waits at most a second. */
bool ndp_host_resolves(char *name, size_t size);

/* ---- lists of hosts ---- */

typedef struct ndp_host {
    char *name; /* as listed, without a user */
    char *user; /* NULL: the same as here */
    int slots;  /* ranks that it takes */
    bool
        stated; /* the list says how many. False: `slots` counts the lines, and mpirun takes the host's cores instead */
    int line;   /* of a hostfile, the first one */
} ndp_host;

/* In the order in which they are first named; {0}: none. A host that is named several times is one item. */
typedef struct ndp_host_list {
    ndp_host *items;
    int n;
} ndp_host_list;

/* So many that the ranks of all can be an int. */
enum { NDP_MOST_HOSTS = 1 << 17, NDP_MOST_SLOTS = (1 << 14) - 1 };

/* hostfile.c: reads Open MPI's hostfile: "[USER@]NAME [slots=N] [max_slots=N]" a line, text after # is a comment. The
 * caller releases the list, unless this fails. NDP_EINVAL begins with FILE:LINE. */
NDP_API ndp_status ndp_hosts_read(const char *hostfile, ndp_host_list *out);
/* `what` is the file in messages. */
NDP_API ndp_status ndp_hosts_parse(const char *text, size_t size, const char *what, ndp_host_list *out);
/* Where a host was listed: a file or a variable, and the line of a hostfile (0: it has no lines). */
typedef struct ndp_host_source {
    const char *what;
    int line;
} ndp_host_source;

/* Appends a host, of whatever source. NDP_EINVAL: the name, or the user (empty: none), is not one that programs can be
 * given as a word: it begins with '-', which makes it an option, or has another character than a name has. NDP_ENOMEM.
 */
ndp_status ndp_host_list_add(ndp_host_list *list, const ndp_host_source *at, ndp_span name, ndp_span user, int slots,
                             bool stated);
/* Ends the reading of a list: hosts of the same name become one, and the list becomes *out. If `st` is an error, or the
 * list has too many hosts (NDP_EINVAL), it is released. */
ndp_status ndp_host_list_end(ndp_status st, ndp_host_list *list, ndp_host_list *out);
void ndp_host_list_release(ndp_host_list *list);
/* NULL: the list has no such name. */
NDP_API const ndp_host *ndp_host_find(const ndp_host_list *list, const char *name);

/* Slurm's compressed lists, "node[1-3,7]" and "2(x3),1"; NULL for `tasks`: it does not say how many. */
NDP_API ndp_status ndp_hosts_parse_slurm(const char *nodes, const char *tasks, ndp_host_list *out);
/* The lists of PBS and LSF: the name of a host for each rank. `what` is the file or variable in messages. */
NDP_API ndp_status ndp_hosts_parse_ranks(const char *text, const char *what, ndp_host_list *out);
/* The hosts on which ndp_launch starts ranks: those of the hostfile, or without one those allocated; none: this host.
 */
NDP_API ndp_status ndp_launch_hosts(const char *hostfile, ndp_host_list *out);

/* Checks that the hosts on which mpirun starts ranks can be read and understood. */
ndp_status ndp_hosts_check(const char *hostfile);

/* ---- reaching them ---- */

/* A warning about the first host of a hostfile whose name does not resolve (ssh may still know it), or NULL. The caller
 * frees it. It stops at the first such name, since each may take a second. */
char *ndp_hosts_unresolved(const char *hostfile);
/* Whether the name is one of this host's addresses; mpirun uses no agent for these. */
bool ndp_is_here(const char *name);
/* Whether two names are one host's: equal, up to the first dot if one of them ends there, or of the same address if one
 * of them is an address. */
bool ndp_is_same_host(const char *a, const char *b);
/* The same of all hosts of a hostfile. */
bool ndp_hosts_are_here(const char *hostfile);
/* Tries to reach each host of a hostfile except this one as mpirun does: `ssh HOST true`, or with the agent in
 * OMPI_MCA_plm_rsh_agent. NDP_ECOMM names the hosts for which that fails or takes more than 12 s, and what to try. */
NDP_API ndp_status ndp_hosts_reach(const char *hostfile);
/* reached[i]: the host is this one, or answered in that way within 6 s. */
void ndp_hosts_try(const ndp_host *hosts, int n, bool *reached);
/* The value of plm_rsh_args with which mpirun's ssh takes no name for an option: what Open MPI is configured with, and
 * "--". NULL: mpirun's agent is not ssh. The caller frees it. */
char *ndp_ssh_args(void);

/* allocation.c: whether this is a job of Slurm, PBS or LSF. */
bool ndp_in_allocation(void);
/* slurm.c: the seconds between Slurm's SIGTERM to a job and its SIGKILL, KillWait; -1: not known. */
int ndp_slurm_kill_wait(void);
/* slurm.c: NDP_EINVAL if SLURM_JOB_ID is that of a job that has ended, as in the shell of another job's host. */
ndp_status ndp_slurm_check_job(void);
/* Seconds that Open MPI's daemons leave ranks from a batch system's SIGTERM, or the failure of another rank, to their
 * end, as ndp_launch asks for in a batch job: $OMPI_MCA_odls_base_sigkill_timeout, or two thirds of what Slurm waits,
 * or this. */
enum { NDP_STOP_SECONDS = 20 };
NDP_API int ndp_stop_seconds(void);
/* checkup_facts.c: of the Open MPI whose mpirun this host has, 4 or 5; 0: it has none, or another MPI's. */
NDP_API int ndp_mpirun_major(void);
/* How long this rank has from a batch system's SIGTERM: as mpirun was told, or what Slurm waits; -1: it has no such
 * limit, or it is not known. */
NDP_API int ndp_rank_stop_seconds(void);

/* allocation.c: true outside a batch system, and if the batch system has allocated only this host. */
bool ndp_allocation_is_here(void);

/* Binds this process, and the threads that it starts from now on, to one of `local_ranks` parts of the cores that it
 * may use; the parts follow caches and sockets. Does nothing if a part would have fewer cores than `threads`, if there
 * is only one rank, or if the system does not allow binding. */
NDP_API ndp_status ndp_bind_rank(int local_rank, int local_ranks, int threads);

/* ndp_launch for ranks that all run on this host, as children of the calling thread. */
NDP_API ndp_status ndp_launch_on_host(const ndp_launch_opts *o, int *exit_code);

/* This variable is in the environment of ranks that ndp_launch started. */
#define NDP_LAUNCHED "NDP_LAUNCHED"
/* This one in that of ranks of mpirun: which process started them, and how often it had before. */
#define NDP_LAUNCHER "NDP_LAUNCHER"

#endif
