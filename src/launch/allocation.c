/* The hosts that a batch system has allocated, from the environment in which it starts a job. */
#include "launch/launch.h"

#include <stdlib.h>
#include <string.h>

/* ---- Slurm ---- */

static const ndp_host_source slurm = {"SLURM_JOB_NODELIST", 0};

/* Of one name: node[1-2]core[1-4] has two. */
enum { MOST_BRACKETS = 8 };

static ndp_status fail_nodes(const char *nodes, const char *why) {
    return NDP_FAIL(NDP_EINVAL, "SLURM_JOB_NODELIST '%.200s': %s", nodes, why);
}

/* A part of the list without a comma outside brackets. */
typedef struct node_pattern {
    const char *nodes; /* all of it, for messages */
    ndp_host_list *out;
} node_pattern;

/* Reads digits; false: there are none, or more than a node's number has. */
static bool read_number(const char **at, const char *end, long *out, int *digits) {
    const char *begin = *at;
    for (*out = 0; *at < end && **at >= '0' && **at <= '9' && *at - begin < 9; ++*at)
        *out = *out * 10 + (**at - '0');
    *digits = (int)(*at - begin);
    return *digits > 0;
}

static ndp_status expand(const node_pattern *p, const char *before, ndp_span rest);

/* `before`, each number of the ranges, and what `rest` expands to: "1-3,7". A number has as many digits as the first of
 * its range: 01-12. */
static ndp_status expand_ranges(const node_pattern *p, const char *before, ndp_span ranges, ndp_span rest) {
    for (const char *at = ranges.data, *end = at + ranges.n;; at++) {
        long first, last;
        int digits, ignored;
        bool read = read_number(&at, end, &first, &digits);
        last = first;
        if (read && at < end && *at == '-')
            read = (at++, read_number(&at, end, &last, &ignored));
        if (!read || last < first || (at < end && *at != ','))
            return fail_nodes(p->nodes, "brackets hold numbers and ranges, as in node[1-3,7]");
        for (long i = first; i <= last; i++) {
            char *name = ndp_format("%s%0*ld", before, digits, i);
            ndp_status st =
                name ? expand(p, name, rest) : NDP_FAIL(NDP_ENOMEM, "not enough memory for the names of nodes");
            free(name);
            NDP_TRY(st);
        }
        if (at == end)
            return NDP_OK;
    }
}

static ndp_status expand(const node_pattern *p, const char *before, ndp_span rest) {
    const char *open = memchr(rest.data, '[', rest.n);
    size_t n = open ? (size_t)(open - rest.data) : rest.n;
    char *name = ndp_format("%s%.*s", before, (int)n, rest.data);
    ndp_status st = NDP_MEMORY(name, "for the names of nodes");
    if (st == NDP_OK && p->out->n >= NDP_MOST_HOSTS)
        st = NDP_FAIL(NDP_EINVAL, "SLURM_JOB_NODELIST has more than %d nodes", NDP_MOST_HOSTS);
    if (st == NDP_OK && !open)
        st = *name ? ndp_host_list_add(p->out, &slurm, (ndp_span){name, strlen(name)}, (ndp_span){0}, 1, false)
                   : fail_nodes(p->nodes, "a node without a name");
    if (st == NDP_OK && open) {
        const char *close = memchr(open, ']', rest.n - n);
        st = close ? expand_ranges(p, name, (ndp_span){open + 1, (size_t)(close - open - 1)},
                                   (ndp_span){close + 1, (size_t)(rest.data + rest.n - close - 1)})
                   : fail_nodes(p->nodes, "a bracket without its end");
    }
    free(name);
    return st;
}

static ndp_status read_nodes(const char *nodes, ndp_host_list *out) {
    const node_pattern p = {nodes, out};
    for (const char *at = nodes;; at++) {
        const char *begin = at;
        int brackets = 0;
        for (bool inside = false; *at && (*at != ',' || inside); at++) {
            inside = *at == '[' || (inside && *at != ']');
            brackets += *at == '[';
        }
        if (brackets > MOST_BRACKETS)
            return fail_nodes(nodes, "more brackets in a name than are supported, 8");
        NDP_TRY(expand(&p, "", (ndp_span){begin, (size_t)(at - begin)}));
        if (!*at)
            return NDP_OK;
    }
}

/* "2(x3),1": the tasks of each node, in the order of the nodes. */
static ndp_status read_tasks(const char *tasks, ndp_host_list *out) {
    const char *at = tasks, *end = tasks + strlen(tasks);
    int node = 0;
    for (bool more = true; more; more = *at++ == ',') {
        long count, times = 1;
        int digits;
        bool read = read_number(&at, end, &count, &digits) && count <= NDP_MOST_SLOTS;
        if (read && strncmp(at, "(x", 2) == 0)
            read = (at += 2, read_number(&at, end, &times, &digits)) && *at++ == ')';
        NDP_CHECK(read && (*at == ',' || !*at), "SLURM_TASKS_PER_NODE '%.200s' is not a list such as 2(x3),1", tasks);
        NDP_CHECK(times <= out->n - node, "SLURM_TASKS_PER_NODE '%.200s' is for more nodes than the %d of the job",
                  tasks, out->n);
        for (; times > 0; times--, node++)
            out->items[node].slots = (int)count, out->items[node].stated = true;
    }
    NDP_CHECK(node == out->n, "SLURM_TASKS_PER_NODE '%.200s' is for %d nodes of the %d of the job", tasks, node,
              out->n);
    return NDP_OK;
}

ndp_status ndp_hosts_parse_slurm(const char *nodes, const char *tasks, ndp_host_list *out) {
    ndp_host_list list = {0};
    ndp_status st = read_nodes(nodes, &list);
    if (st == NDP_OK && tasks)
        st = read_tasks(tasks, &list);
    return ndp_host_list_end(st, &list, out);
}

static ndp_status read_slurm(ndp_host_list *out) {
    const char *nodes = getenv("SLURM_JOB_NODELIST"), *tasks = getenv("SLURM_TASKS_PER_NODE");
    nodes = nodes ? nodes : getenv("SLURM_NODELIST");
    return nodes ? ndp_hosts_parse_slurm(nodes, tasks, out) : NDP_OK;
}

/* ---- PBS and LSF ---- */

ndp_status ndp_hosts_parse_ranks(const char *text, const char *what, ndp_host_list *out) {
    const ndp_host_source at = {what, 0};
    static const char blanks[] = " \t\r\n";
    ndp_host_list list = {0};
    ndp_status st = NDP_OK;
    for (const char *p = text + strspn(text, blanks); *p && st == NDP_OK; p += strspn(p, blanks)) {
        size_t n = strcspn(p, blanks);
        st = ndp_host_list_add(&list, &at, (ndp_span){p, n}, (ndp_span){0}, 1, true);
        p += n;
    }
    return ndp_host_list_end(st, &list, out);
}

static ndp_status read_pbs(ndp_host_list *out) {
    const char *file = getenv("PBS_NODEFILE");
    return NDP_FILE_PARSE(NDP_FILE_HOSTS, file, text, size, ndp_hosts_parse_ranks(text, file, out));
}

static ndp_status read_lsf(ndp_host_list *out) { return ndp_hosts_parse_ranks(getenv("LSB_HOSTS"), "LSB_HOSTS", out); }

/* ---- any of them ---- */

bool ndp_in_allocation(void) {
    static const char *const jobs[] = {"SLURM_JOB_ID", "PBS_JOBID", "PBS_NODEFILE", "LSB_JOBID", "LSB_HOSTS"};
    bool in = false;
    for (int i = 0; i < NDP_COUNT(jobs); i++)
        in |= getenv(jobs[i]) != NULL;
    return in;
}

/* What mpirun is told, or -1. */
static int told_seconds(void) {
    const char *text = getenv("OMPI_MCA_odls_base_sigkill_timeout");
    return text ? atoi(text) : -1;
}

static int slurm_seconds(void) { return getenv("SLURM_JOB_ID") ? ndp_slurm_kill_wait() : -1; }

/* Of Slurm's time two thirds: once the daemons have waited, mpirun still passes on what ranks have written since. */
int ndp_stop_seconds(void) {
    int told = told_seconds(), waits = told < 0 ? slurm_seconds() : -1;
    return told >= 0 ? told : waits >= 0 ? 2 * waits / 3 : NDP_STOP_SECONDS;
}

/* Open MPI's own second is that of version 4. mpirun of 5 ends its ranks at once, whatever it is told. */
int ndp_rank_stop_seconds(void) {
    int told = getenv("PRTE_LAUNCHED") ? 0 : told_seconds();
    if (ndp_in_allocation() && getenv("OMPI_COMM_WORLD_SIZE"))
        return told >= 0 ? told : 1;
    return slurm_seconds();
}

/* allocation.c: the hosts that Slurm, PBS or LSF has allocated; none outside a batch system. NDP_EINVAL names the
 * variable or file that cannot be understood. */
static ndp_status hosts_allocated(ndp_host_list *out) {
    *out = (ndp_host_list){0};
    if (getenv("SLURM_JOB_ID"))
        return read_slurm(out);
    if (getenv("PBS_NODEFILE"))
        return read_pbs(out);
    return getenv("LSB_HOSTS") ? read_lsf(out) : NDP_OK;
}

ndp_status ndp_launch_hosts(const char *hostfile, ndp_host_list *out) {
    return hostfile ? ndp_hosts_read(hostfile, out) : hosts_allocated(out);
}

/* Slurm sets SLURMD_NODENAME only on the nodes of an allocation, not on a login node that ran salloc. */
static bool is_one_slurm_node(void) {
    const char *nodes = getenv("SLURM_JOB_NUM_NODES");
    return nodes && atoi(nodes) == 1 && getenv("SLURMD_NODENAME");
}

/* Whether the list can be read and has one host. */
static bool is_one_host(ndp_status (*read)(ndp_host_list *)) {
    ndp_host_list list;
    if (read(&list) != NDP_OK)
        return false;
    bool one = list.n == 1;
    ndp_host_list_release(&list);
    return one;
}

bool ndp_allocation_is_here(void) {
    return (!getenv("SLURM_JOB_ID") || is_one_slurm_node()) && (!getenv("PBS_NODEFILE") || is_one_host(read_pbs)) &&
           (!getenv("LSB_HOSTS") || is_one_host(read_lsf));
}
