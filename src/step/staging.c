/* The plan of staged collectives' places in pinned memory (staging.h). Collectives of a unit end with the run that
 * began them, so all runs share the first bytes, and collectives of the program follow. */
#include "step/staging.h"

#include "comm/staged.h"
#include "graph/intervals.h"
#include <stdlib.h>

ndp_work_kind ndp_collective_kind(ndp_collective kind) {
    switch (kind) {
    case NDP_ALL_GATHER:
        return NDP_WORK_ALL_GATHER;
    case NDP_REDUCE_SCATTER:
        return NDP_WORK_REDUCE_SCATTER;
    case NDP_ALL_REDUCE:
        return NDP_WORK_ALL_REDUCE;
    case NDP_ALL_TO_ALL:
        return NDP_WORK_ALL_TO_ALL;
    case NDP_SEND:
        return NDP_WORK_SEND;
    case NDP_RECV:
        return NDP_WORK_RECV;
    default:
        return NDP_WORK_SHIFT;
    }
}

static size_t bytes_of(const ndp_view *v) { return (size_t)(v->rows * v->cols) * ndp_dtype_size(v->dtype); }

static size_t place_bytes(const ndp_call *c) {
    return ndp_staged_place_of(ndp_collective_kind(c->op->collective), bytes_of(&c->in[0].view),
                               bytes_of(&c->out[0].view), 0)
        .bytes;
}

/* ---- the plan ---- */

/* The calls of a unit's list; without one, those of the program. */
typedef struct staged_calls {
    const ndp_program *program;
    const ndp_list *list;
} staged_calls;

/* Call i if it is a communication, else NULL; *number: of its place. */
static const ndp_call *comm_at(const staged_calls *s, int i, int *number) {
    const ndp_instr *in = s->list ? NULL : &s->program->instrs[i];
    const ndp_call *c = s->list ? &s->list->calls[i] : in->code == NDP_DO_CALL ? &in->call : NULL;
    if (!c || c->kind == NDP_CALL_KERNEL)
        return NULL;
    *number = !s->list ? in->works.first : c->kind == NDP_CALL_BEGIN ? i : c->partner;
    return c;
}

/* How many places the communications of call i rotate through. */
static int places_of(const staged_calls *s, int i) { return s->list ? 1 : s->program->instrs[i].works.n; }

/* Extends the life of a place by a begin or wait at `at`; one in rotation (`works` above 1) is taken all the time. A
 * repeated range waits for what was begun before it, and begins again what is waited for after it: a gap lies between.
 */
static void extend(ndp_interval *item, const ndp_call *c, int at, int works) {
    if (c->kind == NDP_CALL_WAIT || (works > 1 && item->bytes > 0)) {
        item->life.last = at;
        return;
    }
    if (item->bytes > 0) {
        item->life.gap = item->life.last + 1;
        item->life.gap_n = at - item->life.gap;
        return;
    }
    item->bytes = place_bytes(c);
    item->life = (ndp_life){at, at, 0, 0};
}

/* Sets places[k] of place k, of n, for the communications among the calls; they lie at `from` and later. *end: where
 * the last one ends. */
static ndp_status place_calls(const staged_calls *s, int calls, int n, size_t from, size_t *places, size_t *end) {
    ndp_interval *items = calloc((size_t)n + 1, sizeof *items); /* by number; calls without one take nothing */
    NDP_CHECK_MEMORY(items, "to place the collectives of %d calls", calls);
    int number;
    for (int i = 0; i < calls; i++) {
        const ndp_call *c = comm_at(s, i, &number);
        for (int k = 0; c && k < places_of(s, i); k++)
            extend(&items[number + k], c, i, places_of(s, i));
    }
    int found = 0;
    for (int i = 0; i < n; i++)
        if (items[i].bytes > 0) {
            places[i] = (size_t)found;
            items[found++] = items[i];
        } else {
            places[i] = (size_t)n;
        }
    size_t total = 0;
    ndp_status st = ndp_intervals_place(items, found, 0, &total);
    for (int i = 0; i < n; i++)
        places[i] = places[i] < (size_t)n ? from + items[places[i]].offset : 0;
    free(items);
    *end = from + total;
    return st;
}

ndp_status ndp_staging_plan(ndp_program *p) {
    ndp_staging *s = &p->staging;
    size_t n = (size_t)p->n_works, units = 0;
    for (int g = 0; g < p->opts.model->n_graphs; g++)
        for (int phase = 0; phase < NDP_PHASES; phase++) {
            s->of_list[g][phase] = n;
            n += (size_t)p->opts.units[g].lists[phase].n;
        }
    s->places = calloc(n + 1, sizeof *s->places);
    NDP_CHECK_MEMORY(s->places, "for the places of %zu calls", n);
    for (int g = 0; g < p->opts.model->n_graphs; g++)
        for (int phase = 0; phase < NDP_PHASES; phase++) {
            const ndp_list *list = &p->opts.units[g].lists[phase];
            size_t end = 0;
            NDP_TRY(place_calls(&(staged_calls){p, list}, list->n, list->n, 0, s->places + s->of_list[g][phase], &end));
            units = end > units ? end : units;
        }
    return place_calls(&(staged_calls){p, NULL}, p->n, p->n_works, units, s->places, &s->bytes);
}

void ndp_staging_release(ndp_staging *s) { free(s->places); }

/* ---- in a step ---- */

void *ndp_staging_at(const ndp_engine *e, int index) {
    const ndp_program *p = &e->program;
    const ndp_instr *in = &p->instrs[e->at.at];
    if (!e->host.staging)
        return NULL;
    size_t first = index == NDP_NONE ? 0 : p->staging.of_list[p->opts.model->units[in->unit].graph][in->phase];
    size_t own = index == NDP_NONE ? (size_t)ndp_work_at(in, &e->at) : (size_t)index;
    return (char *)e->host.staging + p->staging.places[first + own];
}

ndp_status ndp_staging_rows(ndp_engine *e, int index, const ndp_call *c, const ndp_view *counts, ndp_comm_call *call) {
    const ndp_device *d = e->opts.step.exec->device;
    int64_t n = c->attr.ranks, go = 0, come = 0, me = ndp_comm_rank(e->comms[c->channel]);
    bool read = d->host_memory || (e->rows_read.run == e->at.executed && e->rows_read.value == c->in[1].value &&
                                   e->rows_read.index < index);
    e->rows_read.index = index;
    e->rows_read.n += !read;
    int32_t *rows = d->host_memory ? counts->data : e->rows + e->rows_read.n % NDP_MOST_COLLECTIVES * n * n;
    size_t bytes = (size_t)(n * n) * sizeof *rows;
    if (!read) {
        e->rows_read.run = e->at.executed, e->rows_read.value = c->in[1].value;
        NDP_TRY(ndp_engine_drain(e, e->queue));
        NDP_TRY(d->copy(e->queue, rows, bytes, counts->data, bytes, bytes, 1));
        NDP_TRY(ndp_engine_drain(e, e->queue));
    }
    for (int64_t p = 0; p < n; p++) {
        go += rows[c->attr.inverse ? p * n + me : me * n + p];
        come += rows[c->attr.inverse ? me * n + p : p * n + me];
    }
    NDP_CHECK(go >= 0 && go <= c->attr.go && come >= 0 && come <= c->attr.come,
              "%s of %s: %lld rows go and %lld come; at most %lld and %lld were planned", c->op->name, c->what,
              (long long)go, (long long)come, (long long)c->attr.go, (long long)c->attr.come);
    call->rows = rows, call->back = c->attr.inverse;
    return NDP_OK;
}
