/* Ranks on the hosts that a map names, by mpirun's sequential mapper: a hostfile with one line for each rank.
 *
 * Not by a rankfile: that binds each rank to the cores that its line has to name, whatever --bind-to says, and which
 * cores another host has is not known here (ranks bind themselves, bind.c). The sequential mapper binds nothing, and
 * takes any number of ranks on a host, in any order.
 *
 * Open MPI 4.1 compares the first word of a line with the names of its hosts, in which the launching host has its own
 * name, whatever name or address the hostfile had for it, and no name has a user. */
#include "launch/rank_hosts.h"
#include "launch/launch.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ndp_status check_hosts(const ndp_launch_opts *o, const ndp_host_list *hosts) {
    for (int r = 0; r < o->ranks; r++) {
        const char *name = o->rank_hosts[r];
        NDP_CHECK(name && *name, "rank %d has no host", r);
        NDP_CHECK(ndp_host_find(hosts, name), "rank %d is to run on '%s', which is not among the %d hosts of %s", r,
                  name, hosts->n, o->hostfile ? o->hostfile : "the batch system's allocation");
    }
    return NDP_OK;
}

ndp_status ndp_rank_hosts_check(const ndp_launch_opts *o) {
    ndp_host_list hosts;
    if (!o->rank_hosts)
        return NDP_OK;
    NDP_TRY(ndp_launch_hosts(o->hostfile, &hosts));
    ndp_status st = hosts.n ? check_hosts(o, &hosts)
                            : NDP_FAIL(NDP_EINVAL, "ranks can only be placed on hosts of a hostfile or an allocation");
    ndp_host_list_release(&hosts);
    return st;
}

/* One line for each host; lines of ranks are copies of these. NULL: out of memory. */
static char *line_of(const ndp_host *h) {
    char here[256] = "";
    if (strcmp(h->name, "localhost") == 0 || ndp_is_here(h->name))
        (void)gethostname(here, sizeof here - 1);
    return ndp_format("%s%s%s\n", *here ? here : h->name, h->user ? " username=" : "", h->user ? h->user : "");
}

static ndp_status write_lines(const ndp_launch_opts *o, const ndp_host_list *hosts, char **lines, const char *path) {
    ndp_str text = {0};
    for (int i = 0; i < hosts->n; i++)
        text.failed |= !(lines[i] = line_of(&hosts->items[i]));
    for (int r = 0; r < o->ranks && !text.failed; r++)
        ndp_str_add(&text, lines[ndp_host_find(hosts, o->rank_hosts[r]) - hosts->items]);
    ndp_status st = text.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for the hosts of %d ranks", o->ranks)
                                : ndp_file_write_atomic(path, text.data, text.length);
    ndp_str_release(&text);
    return st;
}

ndp_status ndp_rank_hosts_write(const ndp_launch_opts *o, const char *folder, char path[NDP_PATH]) {
    ndp_host_list hosts;
    NDP_TRY(ndp_path_join(path, folder, "rank-hosts"));
    NDP_TRY(ndp_launch_hosts(o->hostfile, &hosts));
    char **lines = calloc((size_t)hosts.n + 1, sizeof *lines);
    ndp_status st = lines ? write_lines(o, &hosts, lines, path)
                          : NDP_FAIL(NDP_ENOMEM, "not enough memory for a list of %d hosts", hosts.n);
    for (int i = 0; lines && i < hosts.n; i++)
        free(lines[i]);
    free(lines);
    ndp_host_list_release(&hosts);
    return st;
}
