/* Staged collectives: the plan of their places in pinned memory, and the copies (staging.h).
 *
 * A place has two parts: what peers or the transport write, then what the rank hands in where that is not a part of it
 * (all_reduce works in place; all_gather has each rank's part in its result). Collectives of a unit end with the run
 * that began them, so all runs share the first bytes, and collectives of the program follow. */
#include "step/staging.h"

#include "graph/intervals.h"
#include <stdlib.h>

static size_t aligned(size_t n) { return (n + 63) & ~(size_t)63; }

static size_t view_bytes(const ndp_operand *o) {
    return (size_t)(o->view.rows * o->view.cols) * ndp_dtype_size(o->view.dtype);
}

static bool has_result(const ndp_call *c) { return c->op->collective != NDP_SEND; }

static bool hands_in_apart(const ndp_call *c) {
    ndp_collective kind = c->op->collective;
    return kind == NDP_REDUCE_SCATTER || kind == NDP_ALL_TO_ALL || kind == NDP_SHIFT || kind == NDP_SEND;
}

static size_t result_bytes(const ndp_call *c) { return has_result(c) ? view_bytes(&c->out[0]) : 0; }

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
    item->bytes = aligned(result_bytes(c)) + (hands_in_apart(c) ? view_bytes(&c->in[0]) : 0);
    item->life = (ndp_life){at, at, 0, 0};
}

/* Sets places[k] of place k, of n, for the communications among the calls; they lie at `from` and later. *end: where
 * the last one ends. */
static ndp_status place_calls(const staged_calls *s, int calls, int n, size_t from, size_t *places, size_t *end) {
    ndp_interval *items = calloc((size_t)n + 1, sizeof *items); /* by number; calls without one take nothing */
    if (!items)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to place the collectives of %d calls", calls);
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
    ndp_status st = ndp_intervals_place(items, found, &total);
    for (int i = 0; i < n; i++)
        places[i] = places[i] < (size_t)n ? from + items[places[i]].offset : 0;
    free(items);
    *end = from + total;
    return st;
}

ndp_status ndp_staging_plan(ndp_program *p) {
    ndp_staging *s = &p->staging;
    size_t n = (size_t)p->n_works, units = 0;
    if (p->opts.step.exec->device->host_memory)
        return NDP_OK;
    for (int g = 0; g < p->opts.model->n_graphs; g++)
        for (int phase = 0; phase < NDP_PHASES; phase++) {
            s->of_list[g][phase] = n;
            n += (size_t)p->opts.units[g].lists[phase].n;
        }
    s->places = calloc(n + 1, sizeof *s->places);
    if (!s->places)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the places of %zu calls", n);
    for (int g = 0; g < p->opts.model->n_graphs; g++)
        for (int phase = 0; phase < NDP_PHASES; phase++) {
            const ndp_list *list = &p->opts.units[g].lists[phase];
            size_t end;
            NDP_TRY(place_calls(&(staged_calls){p, list}, list->n, list->n, 0, s->places + s->of_list[g][phase], &end));
            units = end > units ? end : units;
        }
    return place_calls(&(staged_calls){p, NULL}, p->n, p->n_works, units, s->places, &s->bytes);
}

void ndp_staging_release(ndp_staging *s) { free(s->places); }

/* ---- copies ---- */

static char *place_of(const ndp_engine *e, int index) {
    const ndp_program *p = &e->program;
    const ndp_instr *in = &p->instrs[e->at.at];
    size_t first = index == NDP_NONE ? 0 : p->staging.of_list[p->opts.model->units[in->unit].graph][in->phase];
    const ndp_call *c = index == NDP_NONE ? &in->call : &ndp_program_list(p, in)->calls[index];
    int own = index == NDP_NONE ? ndp_work_at(in, &e->at) : c->kind == NDP_CALL_BEGIN ? index : c->partner;
    return (char *)e->host.staging + p->staging.places[first + (size_t)own];
}

ndp_status ndp_staged_begin(ndp_engine *e, const ndp_call *c, int index, ndp_op_call *operands) {
    const ndp_device *d = e->opts.step.exec->device;
    if (d->host_memory)
        return NDP_OK;
    char *out = place_of(e, index), *in = out;
    const void *device_in = operands->in[0].data, *device_out = operands->out[0].data;
    size_t bytes = view_bytes(&c->in[0]);
    bool apart = hands_in_apart(c);
    if (apart)
        in = out + aligned(result_bytes(c));
    else if (c->op->collective == NDP_ALL_GATHER)
        in = out + (size_t)ndp_comm_rank(e->comms[c->channel]) * bytes;
    if (c->op->collective != NDP_RECV)
        NDP_TRY(ndp_engine_copy(e, in, device_in, bytes, false));
    if (c->op->collective == NDP_REDUCE_SCATTER && c->attr.accumulate)
        NDP_TRY(ndp_engine_copy(e, out, device_out, result_bytes(c), false));
    operands->in[0].data = in;
    operands->out[0].data = out;
    return d->drain(e->queue);
}

ndp_status ndp_staged_wait(ndp_engine *e, const ndp_call *c, int index, const ndp_op_call *operands) {
    if (e->opts.step.exec->device->host_memory || !has_result(c))
        return NDP_OK;
    return ndp_engine_copy(e, operands->out[0].data, place_of(e, index), result_bytes(c), false);
}
