/* The time of calls on a device, by its own clock where it has one.
 *
 * All operands but integers are random numbers: on GPUs zeros are multiplied faster. The same 32 bits are two numbers
 * in bf16, or one in fp32, of which the lower half are just more digits. Integers are positions: row t is t in what
 * says where a row is, and 0 in what says which rows it sees. */
#include "base/clock.h"
#include "base/rng.h"
#include "measure/measure_calls.h"

#include <math.h>
#include <stdlib.h>

enum { PATTERN = 1 << 20, MOST_ROUNDS = 10, LEAST_ROUNDS = 2, MOST_REPEATS = 1000 };
/* A round of calls that are shorter is timed as one. */
static const double round_seconds = 2e-3;

/* ---- the device ---- */

static void *make_pattern(void) {
    uint32_t *words = malloc(PATTERN);
    for (uint64_t i = 0; words && i < PATTERN / sizeof *words; i += 4) {
        uint32_t random[4];
        ndp_rng_words(1, 0, i / 4, random);
        for (int j = 0; j < 4; j++) {
            uint32_t low = ndp_f32_to_bf16((float)(random[j] & 0xffffu) / 32768.0f - 1.0f);
            uint32_t high = ndp_f32_to_bf16((float)(random[j] >> 16) / 32768.0f - 1.0f);
            words[i + (uint64_t)j] = high << 16 | low;
        }
    }
    return words;
}

ndp_status ndp_timing_run_open(const ndp_exec *exec, const ndp_device_opts *opts, ndp_timing_run *out) {
    const ndp_device *d = exec->device;
    *out = (ndp_timing_run){.device = d, .pattern = make_pattern()};
    NDP_CHECK(d->executes, "the device %s only plans; it cannot be measured", d->name);
    NDP_CHECK_MEMORY(out->pattern, "to measure the device %s", d->name);
    NDP_TRY(d->open(d, opts ? opts : &(ndp_device_opts){.share = exec->share}, &out->context));
    NDP_TRY(d->queue_create(out->context, &out->queue));
    NDP_TRY(d->stamp_create(out->context, &out->from));
    return d->stamp_create(out->context, &out->to);
}

static void unmap(ndp_timing_run *r) {
    for (int i = 0; i < r->n_mapped; i++)
        r->device->memory_unmap(r->context, r->mapped[i].data, r->mapped[i].bytes, NDP_MEMORY_DEVICE);
    r->n_mapped = 0;
}

void ndp_timing_run_close(ndp_timing_run *r) {
    const ndp_device *d = r->device;
    if (r->context)
        unmap(r);
    if (r->from.event)
        d->stamp_destroy(&r->from);
    if (r->to.event)
        d->stamp_destroy(&r->to);
    if (r->queue)
        d->queue_destroy(r->queue);
    if (r->context)
        d->close(r->context);
    free(r->pattern);
}

/* ---- operands ---- */

static ndp_status map(ndp_timing_run *r, size_t bytes, void **data) {
    if (r->n_mapped == NDP_TIMING_OPERANDS)
        return NDP_FAIL(NDP_EBUG, "a measurement has more than %d operands", NDP_TIMING_OPERANDS);
    NDP_TRY(r->device->memory_map(r->context, bytes, NDP_MEMORY_DEVICE, data));
    r->mapped[r->n_mapped].data = *data;
    r->mapped[r->n_mapped++].bytes = bytes;
    return NDP_OK;
}

static size_t bytes_of(const ndp_view *v) { return (size_t)(v->rows * v->cols) * ndp_dtype_size(v->dtype); }

static ndp_status map_random(ndp_timing_run *r, ndp_view *v) {
    size_t bytes = bytes_of(v);
    NDP_TRY(map(r, bytes, &v->data));
    for (size_t at = 0; at < bytes; at += PATTERN) {
        size_t n = bytes - at < PATTERN ? bytes - at : PATTERN;
        NDP_TRY(r->device->copy(r->queue, (char *)v->data + at, n, r->pattern, n, n, 1));
    }
    return NDP_OK;
}

static ndp_status map_positions(ndp_timing_run *r, ndp_view *v) {
    size_t bytes = bytes_of(v);
    int32_t *rows = malloc(bytes);
    NDP_CHECK_MEMORY(rows, "for %lld positions", (long long)v->rows);
    for (int64_t t = 0; t < v->rows; t++)
        rows[t] = (int32_t)t;
    ndp_status st = map(r, bytes, &v->data);
    if (st == NDP_OK)
        st = r->device->copy(r->queue, v->data, bytes, rows, bytes, bytes, 1);
    ndp_status drained = r->device->drain(r->queue); /* `rows` is read until then */
    free(rows);
    return st != NDP_OK ? st : drained;
}

static ndp_status map_outputs(ndp_timing_run *r, ndp_op_call *c) {
    const ndp_kernel *k = r->device->kernels[c->op->id];
    size_t scratch = k->scratch ? k->scratch(c) : 0;
    for (int i = 0; i < c->op->n_out; i++)
        NDP_TRY(map(r, bytes_of(&c->out[i]), &c->out[i].data));
    if (scratch)
        NDP_TRY(map(r, scratch, &c->scratch));
    c->queue = r->queue;
    return k->prepare ? k->prepare(c) : NDP_OK;
}

/* q, k, v, the positions, and what rows see: all from 0 on. */
static ndp_status map_attention(ndp_timing_run *r, ndp_timed_calls *calls) {
    ndp_op_call *f = &calls->call[0], *b = &calls->call[1];
    for (int i = 0; i < 3; i++)
        NDP_TRY(map_random(r, &f->in[i]));
    NDP_TRY(map_positions(r, &f->in[3]));
    NDP_TRY(map(r, bytes_of(&f->in[4]), &f->in[4].data)); /* zeros */
    f->in[5].data = f->in[3].data;
    NDP_TRY(map_outputs(r, f));
    NDP_TRY(map_random(r, &b->in[0]));
    const void *from[] = {f->in[0].data,  f->in[1].data, f->in[2].data, f->out[0].data,
                          f->out[1].data, f->in[3].data, f->in[4].data, f->in[5].data};
    for (int i = 0; i < NDP_COUNT(from); i++)
        b->in[i + 1].data = (void *)from[i];
    return map_outputs(r, b);
}

static ndp_status map_operands(ndp_timing_run *r, ndp_timed_calls *calls) {
    if (calls->n > 1)
        return map_attention(r, calls);
    for (int i = 0; i < calls->call[0].op->n_in; i++)
        if (calls->call[0].in[i].rows > 0)
            NDP_TRY(map_random(r, &calls->call[0].in[i]));
    return map_outputs(r, &calls->call[0]);
}

/* ---- time ---- */

/* Seconds of the calls once, from `repeats` of them. */
static ndp_status time_round(ndp_timing_run *r, const ndp_timed_calls *calls, int repeats, double *seconds) {
    const ndp_device *d = r->device;
    double took;
    NDP_TRY(d->stamp(r->queue, &r->from));
    for (int i = 0; i < repeats; i++)
        for (int j = 0; j < calls->n; j++)
            NDP_TRY(d->kernels[calls->call[j].op->id]->run(&calls->call[j]));
    NDP_TRY(d->stamp(r->queue, &r->to));
    NDP_TRY(d->drain(r->queue));
    NDP_TRY(d->between(r->context, &r->from, &r->to, &took));
    *seconds = took / repeats;
    return NDP_OK;
}

/* The first run touches memory for the first time and starts threads; the second says how many make a round. */
static ndp_status time_calls(ndp_timing_run *r, const ndp_timed_calls *calls, double share, double *seconds) {
    double end = ndp_now() + share, once, took;
    NDP_TRY(time_round(r, calls, 1, &once));
    NDP_TRY(time_round(r, calls, 1, &once));
    int repeats = once * MOST_REPEATS < round_seconds ? MOST_REPEATS : (int)ceil(round_seconds / once);
    *seconds = INFINITY;
    for (int i = 0; i < MOST_ROUNDS && (i < LEAST_ROUNDS || ndp_now() + repeats * once < end); i++) {
        NDP_TRY(time_round(r, calls, repeats, &took));
        *seconds = fmin(*seconds, took);
    }
    if (!(*seconds > 0))
        return NDP_FAIL(NDP_EBUG, "%d calls of %s took %g s by the clock of the device %s", repeats,
                        calls->call[0].op->name, *seconds, r->device->name);
    return NDP_OK;
}

ndp_status ndp_timing_run_calls(ndp_timing_run *r, ndp_timed_calls *calls, double share, double *seconds) {
    double best = 0;
    ndp_status st = map_operands(r, calls);
    if (st == NDP_OK)
        st = time_calls(r, calls, share, &best);
    if (st != NDP_OK)
        (void)r->device->drain(r->queue); /* what was submitted uses the memory until then */
    unmap(r);
    if (st == NDP_OK)
        *seconds = best;
    return st;
}

bool ndp_timing_can_run(const ndp_timing_run *r, const ndp_timed_calls *calls) {
    bool can = true;
    for (int i = 0; i < calls->n; i++)
        can = can && r->device->kernels[calls->call[i].op->id];
    return can;
}
