/* Recorded steps: when each instruction of some updates ran. execute.c writes the times; here is their memory. */
#include "step/engine_parts.h"

#include <stdlib.h>
#include <string.h>

ndp_status ndp_engine_record_updates(ndp_engine *e, int64_t first, int64_t last) {
    int64_t each = ndp_program_executed(&e->program), steps = last < 0 ? 1 : last - first + 1;
    ndp_engine_release_record(e);
    e->record.first = first, e->record.last = last;
    e->record.times = calloc((size_t)steps, ((size_t)each + 1) * sizeof *e->record.times);
    e->record.n = calloc((size_t)steps, sizeof *e->record.n);
    if (e->record.times && e->record.n)
        return NDP_OK;
    ndp_engine_release_record(e);
    return NDP_FAIL(NDP_ENOMEM, "not enough memory to record %lld instructions in %lld step%s", (long long)each,
                    (long long)steps, steps == 1 ? "" : "s");
}

ndp_status ndp_engine_record(ndp_engine *e) { return ndp_engine_record_updates(e, 0, -1); }

void ndp_engine_release_record(ndp_engine *e) {
    free(e->record.times);
    free(e->record.n);
    memset(&e->record, 0, sizeof e->record);
}

static const ndp_instr_time *recorded(const ndp_engine *e, int64_t step, int64_t *n) {
    *n = e->record.times ? e->record.n[step] : 0;
    return e->record.times ? e->record.times + step * ndp_program_executed(&e->program) : NULL;
}

const ndp_instr_time *ndp_engine_recorded(const ndp_engine *e, int64_t *n) { return recorded(e, e->record.newest, n); }

const ndp_instr_time *ndp_engine_recorded_update(const ndp_engine *e, int64_t update, int64_t *n) {
    *n = 0;
    bool kept = update >= e->record.first && update <= e->record.last;
    return kept ? recorded(e, update - e->record.first, n) : NULL;
}
