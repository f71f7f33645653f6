/* What a run would do and need, from the real program on the null device. */
#include "train/job.h"

#include <stdlib.h>

static void budget_text(const ndp_job *j, const ndp_program *p, int per_node, ndp_str *out) {
    char a[16];
    ndp_budget budget;
    double traffic[NDP_GROUPS];
    ndp_program_budget(p, &budget);
    ndp_program_traffic(p, traffic);
    ndp_job_describe(j, out);
    ndp_str_addf(out,
                 "program: %d instructions, %d ranks a node, gathers %s\n\nmemory of rank %d at its fullest moment\n",
                 p->n, per_node,
                 p->owned[0].shard.shards == 1 ? "none"
                 : p->owned[0].shard.in_place  ? "in place (inside the node "
                                                 "resharding has nothing to save)"
                                               : "into buffers",
                 p->opts.mesh.rank);
    size_t sum = 0;
    for (int c = 0; c < NDP_MEM_CLASSES; c++) {
        ndp_str_addf(out, "  %-16s %10s  %zu bytes\n", ndp_memory_class_name((ndp_memory_class)c),
                     ndp_human_bytes((double)budget.class_bytes[c], a), budget.class_bytes[c]);
        sum += budget.class_bytes[c];
    }
    ndp_str_addf(out, "  %-16s %10s  %zu bytes\n", "sum", ndp_human_bytes((double)sum, a), sum);
    ndp_str_addf(out, "  %-16s %10s  %zu bytes\n\nsent by rank %d in a step\n", "taken",
                 ndp_human_bytes((double)budget.total, a), budget.total, p->opts.mesh.rank);
    for (int g = 0; g < NDP_GROUPS; g++)
        if (traffic[g] > 0)
            ndp_str_addf(out, "  %-16s %10s  over %d ranks\n", ndp_group_name((ndp_group_kind)g),
                         ndp_human_bytes(traffic[g], a), ndp_mesh_group(&p->opts.mesh, (ndp_group_kind)g).count);
}

/* One rank's program on the null device. */
static ndp_status null_engine(const ndp_job *j, const ndp_model *m, int rank, int per_node, ndp_engine **out) {
    ndp_engine_opts e;
    int threads = j->config->train.threads;
    NDP_TRY(ndp_job_engine(j, rank, &e));
    e.model = m;
    e.device = &ndp_device_null;
    e.node_ranks = per_node;
    e.threads = threads ? threads : ndp_device_threads(per_node);
    return ndp_engine_create(&e, out);
}

ndp_status ndp_job_memory(const ndp_job *j, int64_t *bytes) {
    ndp_model m;
    int64_t sum = 0;
    NDP_TRY(ndp_model_build(&j->facts, &j->model, &m));
    ndp_status st = NDP_OK;
    for (int r = 0; r < j->world && st == NDP_OK; r++) {
        ndp_engine *engine;
        ndp_budget budget;
        st = null_engine(j, &m, r, j->world, &engine);
        if (st != NDP_OK)
            break;
        ndp_program_budget(ndp_engine_program(engine), &budget);
        ndp_engine_destroy(engine);
        sum += (int64_t)budget.total;
    }
    ndp_model_release(&m);
    if (st == NDP_OK)
        *bytes = sum;
    return st;
}

/* All ranks' programs against each other where that is cheap; with one role of rank, more ranks show nothing new. */
static ndp_status check_programs(const ndp_job *j, const ndp_model *m, int per_node) {
    enum { MOST = 64 };
    ndp_engine *engines[MOST] = {NULL};
    const ndp_program *programs[MOST];
    ndp_status st = NDP_OK;
    if (j->world > MOST || j->world == 1)
        return NDP_OK;
    for (int r = 0; r < j->world && st == NDP_OK; r++) {
        st = null_engine(j, m, r, per_node, &engines[r]);
        if (st == NDP_OK)
            programs[r] = ndp_engine_program(engines[r]);
    }
    if (st == NDP_OK)
        st = ndp_program_check(programs, j->world);
    for (int r = 0; r < j->world; r++)
        ndp_engine_destroy(engines[r]);
    return st;
}

static ndp_status plan_job(const ndp_job *j, const ndp_plan_opts *o, ndp_str *out) {
    ndp_model m;
    NDP_CHECK(o->rank >= 0 && o->rank < j->world, "there is no rank %d: the layout has ranks 0 to %d", o->rank,
              j->world - 1);
    int per_node = o->ranks_per_node ? o->ranks_per_node : j->world <= 8 ? j->world : 8;
    ndp_engine *engine;
    NDP_TRY(ndp_model_build(&j->facts, &j->model, &m));
    ndp_status st = null_engine(j, &m, o->rank, per_node, &engine);
    if (st == NDP_OK) {
        if (o->program)
            ndp_program_print(ndp_engine_program(engine), true, out);
        else
            budget_text(j, ndp_engine_program(engine), per_node, out);
        ndp_engine_destroy(engine);
        st = check_programs(j, &m, per_node);
        if (st == NDP_OK && j->world > 1 && j->world <= 64)
            ndp_str_addf(
                out,
                "\nchecked: the programs of all %d ranks meet in the same order with the same bytes; no deadlock\n",
                j->world);
    }
    ndp_model_release(&m);
    return st;
}

ndp_status ndp_plan(const ndp_config *c, const ndp_plan_opts *o, char **text) {
    ndp_job j;
    ndp_str out = {0};
    NDP_TRY(ndp_job_init(c, 0, &j));
    ndp_status st = plan_job(&j, o, &out);
    ndp_job_release(&j);
    if (st != NDP_OK) {
        ndp_str_release(&out);
        return st;
    }
    *text = ndp_str_detach(&out);
    return *text ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "no memory for a text");
}
