/* The public functions for worlds of ranks, and how many ranks a configuration needs. */
#include "checkpoint/agree.h"
#include "comm/launched.h"
#include "job/job.h"
#include "launch/mpi_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tasks that srun started are not the ranks of the layout. All of them find that, and the first one says it
 * (cli/ranks.c). */
static ndp_status fail_tasks(int tasks, int ranks) {
    char started[32];
    snprintf(started, sizeof started, tasks == 1 ? "one task" : "%d tasks", tasks);
    return NDP_FAIL(NDP_EINVAL,
                    "srun started %s, and the layout has %d ranks: use `srun --ntasks=%d --mpi=pmix`, or start without "
                    "srun, in the batch script; in a shell of `srun --pty` unset SLURM_PROCID",
                    started, ranks, ranks);
}

/* How many ranks a job has; 0: as many as there are. */
static int own_ranks(const ndp_config *c) {
    ndp_job j;
    if (ndp_job_init(c, 0, &j) != NDP_OK)
        return 0;
    int ranks = j.world;
    ndp_job_release(&j);
    return ranks;
}

ndp_status ndp_config_ranks(const ndp_config *c, int *ranks) {
    NDP_NOT_NULL(c, ranks);
    ndp_job j;
    int launched = 0, tasks;
    ndp_world_launched(&launched);
    int own = ndp_launched_by_srun(&tasks) ? own_ranks(c) : 0;
    ndp_status st = ndp_job_init(c, launched, &j);
    if (st == NDP_EINVAL && own && own != tasks)
        return fail_tasks(tasks, own);
    NDP_TRY(st);
    *ranks = j.world;
    ndp_job_release(&j);
    return NDP_OK;
}

bool ndp_world_launched(int *ranks) {
    int n = 0;
    bool launched = ndp_launched(&n);
    if (ranks)
        *ranks = launched ? n : 0;
    return launched;
}

int ndp_world_launched_rank(void) { return ndp_launched_rank(); }

bool ndp_world_fail(ndp_world *w) { return w && ndp_transport_fail(w, ndp_error_message()); }

ndp_status ndp_world_barrier(ndp_world *w) {
    NDP_NOT_NULL(w);
    ndp_comm *all;
    ndp_group group = {0, 1, ndp_transport_world(w), ndp_transport_rank(w)};
    NDP_TRY(ndp_comm_create(w, group, "barrier", &all));
    ndp_status st = ndp_agree(all, NDP_OK);
    ndp_comm_destroy(all);
    return st;
}

const char *ndp_world_transport(const ndp_world *w) { return w ? ndp_transport_name(w) : NULL; }
int ndp_world_rank(const ndp_world *w) { return w ? ndp_transport_rank(w) : 0; }
int ndp_world_size(const ndp_world *w) { return w ? ndp_transport_world(w) : 0; }

ndp_status ndp_launch_opts_read(const ndp_config *c, ndp_launch_opts *out) {
    NDP_NOT_NULL(c, out);
    const char *kind = c->train.transport;
    int n;
    NDP_TRY(ndp_config_ranks(c, &n));
    bool here = n == 1 || strcmp(kind, "local") == 0 || strcmp(kind, "self") == 0 || ndp_world_launched(NULL);
    *out = (ndp_launch_opts)NDP_LAUNCH_OPTS_INIT;
    out->ranks = here ? 0 : n;
    out->transport = kind;
    return NDP_OK;
}

ndp_status ndp_device_check(const ndp_config *c) {
    NDP_NOT_NULL(c);
    const ndp_device *device;
    return ndp_device_find(ndp_device_names[c->train.device], &device);
}

/* A launched rank must use the transport of its launcher; with another it would be alone in a world of its own. */
static ndp_status join(const char *kind, bool on_host, ndp_transport **out) {
    NDP_CHECK(!on_host || strcmp(kind, "mpi") != 0,
              "train.transport mpi: mpirun has not started these ranks; use `auto`, or start them with mpirun or "
              "`ndparallel launch --transport mpi`");
    if (on_host || strcmp(kind, "shm") == 0)
        return ndp_transport_shm(out);
    ndp_mpi_folder_keep();
    return ndp_transport_mpi(out);
}

/* The world in which this process is one rank. *out NULL: its ranks are `ranks` threads. */
static ndp_status open_world(const ndp_config *c, ndp_transport **out, int *ranks) {
    const char *kind = c->train.transport;
    int unused;
    bool launched = ndp_world_launched(NULL), automatic = strcmp(kind, "auto") == 0;
    *out = NULL;
    if (strcmp(kind, "mpi") == 0 || strcmp(kind, "shm") == 0 || (automatic && launched))
        return join(kind, ndp_launched_on_host(&unused), out);
    NDP_TRY(ndp_config_ranks(c, ranks));
    if (strcmp(kind, "local") == 0 || (automatic && *ranks > 1))
        return NDP_OK;
    NDP_CHECK(*ranks == 1, "train.transport self is one rank, but the layout needs %d: use local, shm or mpi", *ranks);
    return ndp_transport_self(out);
}

ndp_status ndp_world_join(const ndp_config *c, ndp_world **out) {
    NDP_NOT_NULL(c, out);
    ndp_transport *t;
    int ranks = 1;
    NDP_TRY(open_world(c, &t, &ranks));
    if (!t && ranks > 1)
        return NDP_FAIL(
            NDP_EINVAL,
            "the layout needs %d ranks, and a process that joins is one: start it %d times, by `ndparallel "
            "launch -n %d -- PROGRAM`, mpirun or srun; or give ndp_world_run what ranks that are threads do",
            ranks, ranks, ranks);
    if (!t)
        NDP_TRY(ndp_transport_self(&t));
    *out = t;
    return NDP_OK;
}

void ndp_world_leave(ndp_world *w, ndp_status st) {
    enum { MISTAKE = 2 }; /* the exit code for an error of the user, also where mpirun returns it */
    if (!w)
        return;
    if (st == NDP_EINVAL)
        ndp_transport_set_exit_code(w, MISTAKE);
    if (st != NDP_OK && st != NDP_EINTR)
        ndp_transport_abort(w, ndp_error_message());
    ndp_transport_destroy(w);
}

ndp_status ndp_world_run(const ndp_config *c, ndp_status (*body)(ndp_world *, void *), void *arg) {
    NDP_NOT_NULL(c, body);
    ndp_transport *t;
    int ranks;
    NDP_TRY(open_world(c, &t, &ranks));
    if (!t)
        return ndp_local_world(ranks, body, arg);
    ndp_status st = body(t, arg);
    ndp_world_leave(t, st);
    return st;
}
