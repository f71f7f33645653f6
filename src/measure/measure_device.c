/* Measures a device: a list of shapes, each as large as its share of the time allows.
 *
 * How long a shape will take is estimated from the best rate so far of its kind and type. Small shapes are slow on a
 * GPU, so the list begins with small shapes, and the smallest size of each kind and type runs first. */
#include "measure/measure_device.h"

#include "base/clock.h"
#include "base/memory_limit.h"
#include "measure/measure_calls.h"
#include <math.h>
#include <stdio.h>

enum { RUNS = 4, HEAD_DIM = 128, ELEMENT_COLS = 1024, MEMORY_PARTS = 4 };

/* `weight`: how much of the time it gets, compared with others. Products are [rows m, outputs n, inputs k] of a layer:
 * their operations grow along the list. */
typedef struct listed_shape {
    ndp_timing_kind kind;
    const ndp_op *op;
    int64_t m, n, k;
    double weight;
} listed_shape;

static const listed_shape any_type[] = {
    {NDP_TIMING_PRODUCT, &ndp_op_linear, 512, 512, 512, 1},
    {NDP_TIMING_PRODUCT, &ndp_op_linear, 1024, 960, 576, 1}, /* q, k, v of 135M parameters */
    {NDP_TIMING_PRODUCT, &ndp_op_linear_dx, 1024, 1024, 1024, 1},
    {NDP_TIMING_PRODUCT, &ndp_op_linear, 16, 4096, 4096, 1}, /* thin: decoding */
    {NDP_TIMING_PRODUCT, &ndp_op_linear, 8192, 512, 512, 1}, /* tall */
    {NDP_TIMING_PRODUCT, &ndp_op_linear_dw, 1024, 3072, 576, 1},
    {NDP_TIMING_PRODUCT, &ndp_op_linear, 2048, 2048, 2048, 2},
    {NDP_TIMING_PRODUCT, &ndp_op_linear_dx, 2048, 8192, 2048, 2},
    {NDP_TIMING_PRODUCT, &ndp_op_linear_dw, 2048, 2048, 8192, 2},
    {NDP_TIMING_PRODUCT, &ndp_op_linear, 4096, 4096, 4096, 2},
    {NDP_TIMING_PRODUCT, &ndp_op_linear, 1024, 49152, 2048, 2}, /* the head of a vocabulary */
    {NDP_TIMING_PRODUCT, &ndp_op_linear, 8192, 8192, 8192, 2},
    {NDP_TIMING_ATTENTION, &ndp_op_attention, 512, 32, HEAD_DIM, 2},
    {NDP_TIMING_ATTENTION, &ndp_op_attention, 2048, 32, HEAD_DIM, 4},
    {NDP_TIMING_ATTENTION, &ndp_op_attention, 8192, 32, HEAD_DIM, 12},
};
/* In fp32 alone. Memory: 128 MiB each operand. */
static const listed_shape fp32_alone[] = {
    {NDP_TIMING_CALL, &ndp_op_copy, 1, 1, 64, 1},
    {NDP_TIMING_MEMORY, &ndp_op_copy, 32768, 1, ELEMENT_COLS, 2},
    {NDP_TIMING_MEMORY, &ndp_op_add, 32768, 1, ELEMENT_COLS, 2},
};

typedef struct type_row {
    ndp_rate_type rate;
    ndp_dtype type;
} type_row;
static const type_row types[] = {{NDP_RATE_FP32, NDP_F32}, {NDP_RATE_BF16, NDP_BF16}};

typedef struct device_walk {
    const ndp_exec *exec;
    ndp_timing_run run;
    ndp_timings *out;
    double end, weight;                       /* when to be ready; of what is left of the list */
    double rate[NDP_TIMING_KINDS][NDP_RATES]; /* the best so far: operations or bytes a second; 0: none yet */
} device_walk;

/* What makes it take long: bytes, or operations. */
static double work_of(const ndp_timed_shape *s, const ndp_timed_calls *c) {
    return s->kind == NDP_TIMING_MEMORY || s->kind == NDP_TIMING_CALL ? c->bytes : c->flops;
}

static ndp_status run_shape(device_walk *w, const ndp_timed_shape *s, ndp_rate_type type, double share,
                            ndp_timing *out) {
    ndp_timed_calls c;
    NDP_TRY(ndp_timed_calls_of(s, w->exec, &c));
    *out = (ndp_timing){.kind = s->kind, .type = type, .m = s->m, .n = s->n, .k = s->k, .calls = c.n};
    out->flops = c.flops, out->bytes = c.bytes;
    NDP_TRY(ndp_timing_run_calls(&w->run, &c, share, &out->seconds));
    out->rate = work_of(s, &c) / out->seconds;
    w->rate[s->kind][type] = fmax(w->rate[s->kind][type], out->rate);
    if (s->kind == NDP_TIMING_CALL)
        out->rate = 1 / out->seconds;
    return NDP_OK;
}

/* The rule of the header. */
static ndp_status fit_shape(const device_walk *w, ndp_timed_shape *s, ndp_rate_type type, double share) {
    for (;;) {
        ndp_timed_calls c;
        NDP_TRY(ndp_timed_calls_of(s, w->exec, &c));
        double seconds = RUNS * work_of(s, &c) / w->rate[s->kind][type];
        bool fits = seconds <= share && c.bytes <= w->out->memory_bytes / MEMORY_PARTS;
        if (fits || !ndp_timed_halve(s))
            return NDP_OK;
    }
}

static ndp_status probe(device_walk *w, const ndp_timed_shape *s, ndp_rate_type type) {
    ndp_timing smallest_measure;
    ndp_timed_shape smallest = *s;
    while (ndp_timed_halve(&smallest))
        continue;
    return run_shape(w, &smallest, type, 0, &smallest_measure);
}

static void put_name(const ndp_timed_shape *s, double bytes, ndp_timing *m) {
    char text[16];
    const char *type = ndp_dtype_name(s->type);
    long long rows = s->m, n = s->n, k = s->k;
    if (s->kind == NDP_TIMING_PRODUCT)
        snprintf(m->name, sizeof m->name, "%s %lld x %lld x %lld, %s", s->op->name, rows, n, k, type);
    else if (s->kind == NDP_TIMING_ATTENTION)
        snprintf(m->name, sizeof m->name, "attention of %lld rows, %lld heads of %lld, %s", rows, n, k, type);
    else if (s->kind == NDP_TIMING_MEMORY)
        snprintf(m->name, sizeof m->name, "%s of %s, %s", s->op->name, ndp_human_bytes(bytes, text), type);
    else
        snprintf(m->name, sizeof m->name, "call of %s", s->op->name);
}

static bool is_measured(const ndp_timings *all, const char *name) {
    for (int i = 0; i < all->n; i++)
        if (strcmp(all->of[i].name, name) == 0)
            return true;
    return false;
}

/* Measures one shape of the list, unless it is there already or cannot run. */
static ndp_status measure_shape(device_walk *w, const listed_shape *l, const type_row *t) {
    ndp_timed_shape s = {l->kind, l->op, t->type, l->m, l->n, l->k, 0};
    ndp_timed_calls c;
    ndp_timing named, *m = &w->out->of[w->out->n];
    double left = w->end - ndp_now(), share = left > 0 ? left * l->weight / w->weight : 0;
    w->weight -= l->weight;
    NDP_TRY(ndp_timed_calls_of(&s, w->exec, &c));
    if (!ndp_timing_can_run(&w->run, &c))
        return NDP_OK;
    if (w->rate[s.kind][t->rate] == 0 && s.kind != NDP_TIMING_CALL)
        NDP_TRY(probe(w, &s, t->rate));
    if (s.kind != NDP_TIMING_CALL)
        NDP_TRY(fit_shape(w, &s, t->rate, share));
    NDP_TRY(ndp_timed_calls_of(&s, w->exec, &c));
    put_name(&s, c.bytes, &named);
    if (is_measured(w->out, named.name))
        return NDP_OK;
    NDP_TRY(run_shape(w, &s, t->rate, share, m));
    memcpy(m->name, named.name, sizeof m->name);
    w->out->n++;
    return NDP_OK;
}

static ndp_status measure_all(device_walk *w) {
    for (int i = 0; i < NDP_COUNT(fp32_alone); i++)
        NDP_TRY(measure_shape(w, &fp32_alone[i], &types[0]));
    /* The types side by side, so that both find the machine in the same state. */
    for (int i = 0; i < NDP_COUNT(any_type); i++)
        for (int t = 0; t < NDP_COUNT(types); t++)
            NDP_TRY(measure_shape(w, &any_type[i], &types[t]));
    return NDP_OK;
}

static double weight_of_all(void) {
    double sum = 0;
    for (int i = 0; i < NDP_COUNT(fp32_alone); i++)
        sum += fp32_alone[i].weight;
    for (int i = 0; i < NDP_COUNT(any_type); i++)
        sum += NDP_COUNT(types) * any_type[i].weight;
    return sum;
}

static ndp_status set_memory(device_walk *w) {
    size_t free_bytes, total;
    NDP_TRY(w->exec->device->memory(w->run.context, &free_bytes, &total));
    w->out->memory_bytes = total > 0 ? (double)free_bytes : (double)ndp_memory_available();
    w->out->host = w->exec->device->host_memory;
    w->exec->device->full_name(w->run.context, w->out->full_name);
    w->out->multiprocessors = w->out->host ? w->exec->threads : 0;
    return NDP_OK;
}

ndp_status ndp_measure_device(const ndp_exec *exec, const ndp_device_opts *opts, double budget, ndp_timings *out) {
    _Static_assert(NDP_COUNT(fp32_alone) + NDP_COUNT(types) * NDP_COUNT(any_type) <= NDP_MOST_TIMINGS, "all fit");
    ndp_timings all = {0};
    device_walk w = {.exec = exec, .out = &all, .end = ndp_now() + budget, .weight = weight_of_all()};
    ndp_status st = ndp_timing_run_open(exec, opts, &w.run);
    if (st == NDP_OK)
        st = set_memory(&w);
    if (st == NDP_OK)
        st = measure_all(&w);
    ndp_timing_run_close(&w.run);
    NDP_TRY(st);
    *out = all;
    return NDP_OK;
}
