/* The machine under the ranks: hosts and their names, processes, cores. */
#ifndef NDP_HOST_HOST_H
#define NDP_HOST_HOST_H

#include "base/status.h"

/* Whether a host name resolves to an address. Waits at most a second for a name server. */
bool ndp_name_resolves(const char *name);
/* The same for this host's own name, which is written to `name`. */
bool ndp_host_resolves(char *name, size_t size);

/* Checks that a hostfile can be read; NULL (no hostfile) passes. */
ndp_status ndp_hosts_check(const char *hostfile);
/* A warning about the first host of a hostfile whose name does not resolve (ssh may still know it), or NULL. The caller
 * frees it. It stops at the first such name, since each may take a second. */
char *ndp_hosts_unresolved(const char *hostfile);
/* Tries to reach each host of a hostfile except this one as mpirun does: `ssh HOST true`, or with the agent in
 * OMPI_MCA_plm_rsh_agent. NDP_ECOMM names the hosts for which that fails or takes more than 12 s, and what to try. */
NDP_API ndp_status ndp_hosts_reach(const char *hostfile);

/* True outside a batch system, and if the batch system has allocated only this host. */
bool ndp_allocation_is_here(void);

/* Binds this process, and the threads that it starts from now on, to one of `local_ranks` parts of the cores that it
 * may use; the parts follow caches and sockets. Does nothing if a part would have fewer cores than `threads`, if there
 * is only one rank, or if the system does not allow binding. */
NDP_API ndp_status ndp_bind_rank(int local_rank, int local_ranks, int threads);
/* The same for a rank that ndp_launch started. Binding other ranks is up to whatever started them. */
NDP_API ndp_status ndp_bind_launched_rank(int threads);

/* ndp_launch for ranks that all run on this host, as children of the calling thread. */
NDP_API ndp_status ndp_launch_on_host(const ndp_launch_opts *o, int *exit_code);

/* This variable is in the environment of ranks that ndp_launch started. */
#define NDP_LAUNCHED "NDP_LAUNCHED"

#endif
