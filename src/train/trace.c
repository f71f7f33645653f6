/* The trace of a measured step: each rank's events, gathered and written by rank 0. */
#include "checkpoint/agree.h"
#include "step/timeline.h"
#include "train/trainer.h"

static ndp_status write_all(const ndp_trainer *t, const ndp_timeline *line, const char *path, char **text) {
    ndp_str s = {0};
    *text = NULL;
    if (ndp_transport_rank(t->rank.transport) != 0)
        return NDP_OK;
    NDP_TRY(ndp_timeline_write(line, path));
    ndp_str_addf(&s, "trace: %s, step %lld\n", path, (long long)t->updates);
    ndp_timeline_print(line, &s);
    *text = ndp_str_detach(&s);
    return *text ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for a text");
}

ndp_status ndp_trainer_trace(ndp_trainer *t, const char *path, char **text) {
    ndp_timeline line = {0};
    int64_t n;
    const ndp_instr_time *times = ndp_engine_recorded(t->engine, &n);
    bool one_clock = ndp_transport_host_ranks(t->rank.transport) == ndp_transport_world(t->rank.transport);
    *text = NULL;
    if (n == 0)
        return NDP_OK;
    ndp_status st = ndp_agree(t->rank.world, ndp_timeline_add(&line, ndp_engine_program(t->engine), times, n));
    if (st == NDP_OK)
        st = ndp_timeline_gather(&line, t->rank.world, one_clock);
    if (st == NDP_OK)
        st = ndp_agree(t->rank.world, write_all(t, &line, path, text));
    ndp_timeline_release(&line);
    return st;
}
