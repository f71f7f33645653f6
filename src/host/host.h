/* The machine under the ranks: hosts and their names, processes, cores. */
#ifndef NDP_HOST_HOST_H
#define NDP_HOST_HOST_H

#include "base/status.h"

/* Whether a host's name has an address; asks a name server for a second at most. */
bool ndp_name_resolves(const char *name);
/* The same for this host's name, which comes into `name`. */
bool ndp_host_resolves(char *name, size_t size);

/* Whether a hostfile (NULL: there is none) is a file that can be read. */
ndp_status ndp_hosts_check(const char *hostfile);
/* A warning about the first host of a hostfile whose name does not resolve (ssh may still know it), or NULL. Freed by
 * the caller. Names that do not resolve may cost a second each, so it looks no further. */
char *ndp_hosts_unresolved(const char *hostfile);
/* Tries each host of a hostfile but this one, as mpirun does: `ssh HOST true`, or OMPI_MCA_plm_rsh_agent in place of
 * ssh. NDP_ECOMM with the names of those where that fails or takes more than 12 s, and what to try. */
NDP_API ndp_status ndp_hosts_reach(const char *hostfile);

/* True outside of batch systems, and where the batch system has given this host alone. */
bool ndp_allocation_is_here(void);

/* Keeps this process and the threads it starts from now on to its own part of the cores that it may use, cut into
 * `local_ranks` parts that follow caches and sockets. Leaves all as it is where the parts would have fewer cores than
 * `threads`, where one rank has all, and where the system does not bind. */
NDP_API ndp_status ndp_bind_rank(int local_rank, int local_ranks, int threads);
/* The same for a rank that ndp_launch started; others are bound by whoever started them, or not at all. */
NDP_API ndp_status ndp_bind_launched_rank(int threads);

/* ndp_launch for ranks that are all on this host: children of the calling thread. */
NDP_API ndp_status ndp_launch_on_host(const ndp_launch_opts *o, int *exit_code);

/* Set for the ranks that ndp_launch starts. */
#define NDP_LAUNCHED "NDP_LAUNCHED"

#endif
