/* The trace of measured steps: each rank's events, gathered and written by rank 0. */
#include "base/text.h"
#include "checkpoint/agree.h"
#include "step/timeline.h"
#include "train/trainer.h"

#include <stdio.h>

/* "step 4", "steps 2 to 4" */
static void name_steps(int64_t first, int64_t last, char out[64]) {
    if (first == last)
        snprintf(out, 64, "step %lld", (long long)last);
    else
        snprintf(out, 64, "steps %lld to %lld", (long long)first, (long long)last);
}

static ndp_status write_all(const ndp_trainer *t, const ndp_timeline *line, const char *path, const char *steps,
                            char **text) {
    ndp_str s = {0};
    *text = NULL;
    if (ndp_transport_rank(t->rank.transport) != 0)
        return NDP_OK;
    if (line->n_ranks > 0)
        NDP_TRY(ndp_timeline_write(line, path));
    ndp_str_addf(&s, line->n_ranks > 0 ? "trace: %s, %s\n" : "trace: %s is not written: %s did not run here\n", path,
                 steps);
    ndp_timeline_print(line, &s);
    *text = ndp_str_detach(&s);
    return NDP_MEMORY(*text, "for a text");
}

/* The recorded ones of the steps *first to *last, or the last of them alone. Sets both to those that there are. */
static ndp_status add_steps(const ndp_trainer *t, bool one, int64_t *first, int64_t *last, ndp_timeline *out) {
    int64_t n, from = 0, to = 0;
    for (int64_t step = *last; step >= *first && !(one && to); step--)
        if (ndp_engine_recorded_update(t->engine, step - 1, &n) && n > 0)
            from = step, to = to ? to : step;
    if (to == 0)
        return NDP_OK;
    *first = from, *last = to;
    for (int64_t step = from; step <= to; step++) {
        const ndp_instr_time *times = ndp_engine_recorded_update(t->engine, step - 1, &n);
        NDP_TRY(ndp_timeline_add_step(out, ndp_engine_program(t->engine), times, n, step));
    }
    return NDP_OK;
}

ndp_status ndp_trainer_trace(ndp_trainer *t, const char *path, int64_t first, int64_t last, char **text) {
    ndp_timeline line = {0};
    int64_t n;
    char steps[64];
    const ndp_instr_time *times = ndp_engine_recorded(t->engine, &n);
    bool one_clock = ndp_transport_host_ranks(t->rank.transport) == ndp_transport_world(t->rank.transport);
    ndp_status st = NDP_OK;
    *text = NULL;
    if (first > 0)
        st = add_steps(t, ndp_ends_with(path, ".svg"), &first, &last, &line);
    else if (n > 0)
        st = ndp_timeline_add_step(&line, ndp_engine_program(t->engine), times, n, first = last = t->updates);
    else
        return NDP_OK;
    name_steps(first, last, steps);
    st = ndp_agree(t->rank.world, st);
    if (st == NDP_OK && line.n_ranks > 0)
        st = ndp_timeline_gather(&line, t->rank.world, one_clock);
    if (st == NDP_OK)
        st = ndp_agree(t->rank.world, write_all(t, &line, path, steps, text));
    ndp_timeline_release(&line);
    return st;
}

ndp_status ndp_trace_check(const ndp_train_opts *o) {
    NDP_TRY(ndp_timeline_check_path(o->trace));
    bool last = o->trace_first == 0 && o->trace_last == 0;
    NDP_CHECK(last || (o->trace_first >= 1 && o->trace_first <= o->trace_last),
              "steps %lld to %lld cannot be traced: give the first and the last, counted from 1",
              (long long)o->trace_first, (long long)o->trace_last);
    return NDP_OK;
}
