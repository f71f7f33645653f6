/* The map of ranks to hosts, as mpirun takes it. */
#ifndef NDP_LAUNCH_RANK_HOSTS_H
#define NDP_LAUNCH_RANK_HOSTS_H

#include "base/text.h"

/* Checks o->rank_hosts, which may be NULL. NDP_EINVAL: a rank without a host, a host that neither the hostfile nor the
 * batch system has. */
ndp_status ndp_rank_hosts_check(const ndp_launch_opts *o);
/* Writes the file that `mpirun --map-by seq --hostfile PATH` reads, into a folder. */
ndp_status ndp_rank_hosts_write(const ndp_launch_opts *o, const char *folder, char path[NDP_PATH]);

#endif
