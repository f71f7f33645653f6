/* The passes that made a rank's program, and what each wrote (`plan --passes`). */
#include "plan/plan_parts.h"

/* What the passes of one rank's programs did. */
static ndp_status trace_rank(const ndp_job *j, const ndp_plan_opts *o, ndp_pass_trace *out) {
    ndp_model m;
    ndp_dry_run d;
    ndp_engine *e;
    int rank = o->rank < 0 ? 0 : o->rank;
    NDP_CHECK(rank < j->world, "there is no rank %d: the layout has ranks 0 to %d", rank, j->world - 1);
    NDP_TRY(ndp_dry_run_init(&d, j, ndp_plan_per_node(j, o), 0));
    NDP_TRY(ndp_model_build(&j->spec, &j->model, &m));
    ndp_status st = ndp_plan_engine(&d, &m, rank, &e);
    if (st == NDP_OK) {
        ndp_engine_passes(e, out);
        ndp_engine_destroy(e);
    }
    ndp_model_release(&m);
    return st;
}

ndp_status ndp_plan_passes(const ndp_config *c, const ndp_plan_opts *o, char **text) {
    NDP_NOT_NULL(o, text);
    ndp_job j;
    ndp_str out = {0};
    ndp_pass_trace did = {0};
    if (c) {
        NDP_TRY(ndp_job_init_planned(c, 0, false, &j));
        ndp_status st = trace_rank(&j, o, &did);
        ndp_job_release(&j);
        NDP_TRY(st);
    }
    ndp_passes_print(c ? &did : NULL, &out);
    char *whole = ndp_str_detach(&out);
    ndp_str_release(&out);
    *text = whole ? whole : *text;
    return NDP_MEMORY(whole, "for a text");
}
