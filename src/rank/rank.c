/* Setting up one rank of a job. Everything is planned and compared with the available memory before the first large
 * allocation. */
#include "rank/rank.h"

#include <string.h>

#include "checkpoint/agree.h"
#include "launch/launch.h"
#include "ops/devices.h"
#include <omp.h>
#include <stdlib.h>

static ndp_program_place place_of(const ndp_rank *r, int split_place) {
    return (ndp_program_place){.node_ranks = ndp_transport_node_ranks(r->transport),
                               .threads = r->exec.threads,
                               .split_place = split_place,
                               .forward_only = r->forward_only};
}

/* The mean of the ranks on this host, whose numbers are those of any places. */
static ndp_status plan_host_memory(const ndp_rank *r, const ndp_job *j, const ndp_program_place *at,
                                   ndp_mean_memory *out) {
    const ndp_transport *t = r->transport;
    int n = 0, *ranks = malloc((size_t)ndp_transport_host_ranks(t) * sizeof *ranks);
    NDP_CHECK_MEMORY(ranks, "for a list of %d ranks", ndp_transport_host_ranks(t));
    for (int other = 0; other < ndp_transport_world(t); other++)
        if (ndp_transport_host_of(t, other) == ndp_transport_host_of(t, ndp_transport_rank(t)))
            ranks[n++] = other;
    ndp_status st = ndp_job_ranks_memory(j, ranks, n, at, out);
    free(ranks);
    return st;
}

ndp_status ndp_rank_plan_memory(const ndp_rank *r, const ndp_job *j, ndp_mean_memory *host, int64_t *gpu) {
    const ndp_program_place at = place_of(r, r->exec.split_place);
    ndp_engine_memory own;
    if (!r->exec.device->host_memory) {
        NDP_TRY(ndp_job_rank_needs(j, ndp_transport_rank(r->transport), &at, &own));
        *gpu = own.device;
    }
    return plan_host_memory(r, j, &at, host);
}

static ndp_status plan_memory(ndp_rank *r) { return ndp_rank_plan_memory(r, &r->job, &r->planned, &r->planned_gpu); }

/* Every rank checks the checkpoint that rank 0 has found. Whether it ties head and embedding is read from it, since the
 * folder that the run started from may have no weights any more. */
static ndp_status open_weights(ndp_rank *r, const ndp_rank_opts *o) {
    bool first = ndp_is_first(r->world);
    int64_t step = o->step;
    if (!o->weights_of)
        return ndp_agree(r->world, ndp_job_find_weights(&r->job));
    for (int turn = 0; turn < 2; turn++) {
        ndp_status own = first == (turn == 0) ? ndp_run_model_open(o->weights_of, step, r->exec.threads,
                                                                   &r->job.config->own, &r->weights_of)
                                              : NDP_OK;
        NDP_TRY(ndp_agree(r->world, own));
        step = first ? r->weights_of->step : step;
        NDP_TRY(ndp_share_now(r->world, &step, sizeof step, 0));
    }
    ndp_model_spec_set_own_head(&r->job.spec, r->weights_of->job.spec.own_head);
    return NDP_OK;
}

/* *fits: the memory was compared with the tables of rows in it. */
static ndp_status open_rows(ndp_rank *r, const ndp_rank_opts *o, bool *fits) {
    bool automatic = r->job.config->batch.micro_batch_size == 0;
    NDP_TRY(ndp_agree(r->world, ndp_rank_open_data(r)));
    NDP_TRY(ndp_rank_choose_rows(r, fits));
    if (automatic)
        NDP_TRY(ndp_agree(r->world, plan_memory(r)));
    *fits = *fits && automatic;
    return ndp_agree(r->world, ndp_feed_open(&r->feed, &r->job, &r->data, o->given));
}

/* One rank proves the programs of all. */
static ndp_status prove_programs(const ndp_rank *r, int node_ranks) {
    ndp_program_place at = place_of(r, 0);
    at.node_ranks = node_ranks;
    return ndp_agree(r->world, ndp_is_first(r->world) ? ndp_job_prove(&r->job, &at) : NDP_OK);
}

ndp_status ndp_rank_prove_again(const ndp_rank *r, const ndp_engine *e) {
    int planned = ndp_transport_node_ranks(r->transport), taken = ndp_engine_program(e)->opts.step.node_ranks;
    return taken == planned ? NDP_OK : prove_programs(r, taken);
}

/* Processes that ndp_launch started share out the cores of their host; whatever started others binds them. The world
 * knows how many there are: of several hosts, Open MPI 5's OMPI_COMM_WORLD_LOCAL_SIZE is that of the first. */
static ndp_status bind_to_cores(const ndp_rank *r) {
    const ndp_transport *t = r->transport;
    if (!getenv(NDP_LAUNCHED) || strcmp(ndp_transport_name(t), "local") == 0)
        return NDP_OK;
    return ndp_bind_rank(ndp_transport_host_rank(t), ndp_transport_host_ranks(t), r->exec.threads);
}

static ndp_status open_all(ndp_rank *r, const ndp_rank_opts *o) {
    ndp_group all = {0, 1, ndp_transport_world(r->transport), ndp_transport_rank(r->transport)};
    bool fits;
    NDP_TRY(ndp_comm_create(r->transport, all, "world", &r->world));
    if (ndp_transport_note(r->transport))
        ndp_warn(&r->log, "%s", ndp_transport_note(r->transport));
    r->exec.threads = ndp_job_threads(&r->job, ndp_transport_host_ranks(r->transport));
    omp_set_num_threads(r->exec.threads);
    NDP_TRY(bind_to_cores(r));
    NDP_TRY(open_weights(r, o));
    NDP_TRY(ndp_agree(r->world, plan_memory(r)));
    NDP_TRY(open_rows(r, o, &fits));
    NDP_TRY(prove_programs(r, ndp_transport_node_ranks(r->transport)));
    if (!fits)
        NDP_TRY(ndp_rank_check_memory(r)); /* again: the tables of rows are allocated now */
    return ndp_rank_choose_saves(r);
}

/* Threads that each have a GPU cannot access each other's memory. */
static ndp_status check_collectives(const ndp_rank *r, const ndp_config *c) {
    bool apart = r->job.world > 1 && strcmp(c->train.transport, "local") == 0 && !c->train.share_gpu;
    return r->exec.device->host_memory || r->exec.staged || !apart
               ? NDP_OK
               : NDP_FAIL(NDP_ENOTSUP, "train.collectives: device is not supported between threads that each have a "
                                       "GPU: start processes (--transport shm), or set train.collectives: staged");
}

ndp_status ndp_rank_open(const ndp_config *c, ndp_world *w, const ndp_rank_opts *o, ndp_rank *out) {
    ndp_rank *r = out;
    *r = (ndp_rank){.opts = o->run,
                    .forward_only = o->forward_only,
                    .no_data = o->no_data || c->data.files.n == 0, /* then train.own_batches */
                    .own_reference = o->own_reference,
                    .transport = w};
    r->exec = ndp_exec_of(o->device, 0, o->split_place);
    r->exec.share = c->train.share_gpu;
    r->exec.tf32 = c->train.matmul == NDP_MATMUL_TF32;
    r->log = (ndp_log){NDP_LOG_INFO, ndp_transport_rank(r->transport)};
    ndp_status st = o->device ? NDP_OK : ndp_device_find(ndp_device_names[c->train.device], &r->exec.device);
    if (st == NDP_OK)
        st = ndp_job_init(c, ndp_transport_world(r->transport), &r->job);
    if (st == NDP_OK) {
        r->job.model.routes |= (o->given ? NDP_ROUTES_GIVEN : 0) | (o->record ? NDP_ROUTES_RECORDED : 0);
        r->exec.staged = ndp_job_stages(&r->job);
        st = check_collectives(r, c);
    }
    if (st == NDP_OK)
        st = open_all(r, o);
    if (st != NDP_OK) {
        ndp_trail_add(__FILE__, __LINE__);
        ndp_rank_close(r);
    }
    return st;
}

void ndp_rank_close(ndp_rank *r) {
    ndp_run_model_close(r->weights_of);
    ndp_feed_release(&r->feed);
    ndp_job_data_close(&r->data);
    ndp_comm_destroy(r->world);
    ndp_job_release(&r->job);
    ndp_config_release(&r->chosen);
    *r = (ndp_rank){0};
}
