/* delta_rule, delta_rule_bwd: cuts a call into tasks (cpu_delta_rule.h), which threads take from a counter. */
#include "ops/cpu/cpu_delta_rule.h"
#include "ops/cpu/cpu_kernels.h"

#include <omp.h>

static ndp_delta_cols columns(int n) {
    int pad = (n + NDP_DELTA_BAND - 1) / NDP_DELTA_BAND * NDP_DELTA_BAND;
    return (ndp_delta_cols){n, pad, pad + NDP_DELTA_BAND};
}

/* `in`: q and what follows it. */
static ndp_delta describe(const ndp_op_call *c, const ndp_view *in) {
    int place = ndp_split_place(c->exec);
    ndp_delta d = {.q = in[0],
                   .k = in[1],
                   .v = in[2],
                   .g = in[3],
                   .b = in[4],
                   .of_q = columns(c->attr->head_dim),
                   .of_v = columns(ndp_v_dim(c->attr)),
                   .group = ndp_delta_group(c->attr),
                   .rows = in[0].rows,
                   .chunk = place ? NDP_DELTA_FEW_ROWS * place : NDP_DELTA_CHUNK};
    return d;
}

/* All threads or one: OpenMP makes a new team, and so allocates, whenever its size changes. A call of one key head may
 * have several documents. */
static int team(const ndp_op_call *c) { return c->exec->threads > 1 ? c->exec->threads : 1; }

/* In scratch memory: where documents begin, and where the last one ends; then the work memory of each thread. */
static int64_t starts_floats(const ndp_delta *d) { return (d->rows + 1 + 15) / 16 * 16; }

static size_t scratch_bytes(const ndp_op_call *c, const ndp_delta *d, int64_t work) {
    return (size_t)(starts_floats(d) + team(c) * work) * sizeof(float);
}

static size_t forward_scratch(const ndp_op_call *c) {
    ndp_delta d = describe(c, &c->in[0]);
    return scratch_bytes(c, &d, ndp_delta_forward_floats(&d));
}

static size_t backward_scratch(const ndp_op_call *c) {
    ndp_delta d = describe(c, &c->in[1]);
    return scratch_bytes(c, &d, ndp_delta_backward_floats(&d));
}

static int64_t find_documents(const ndp_view *start, int32_t *starts) {
    int64_t n = 0;
    for (int64_t t = 0; t < start->rows; t++)
        if (ndp_delta_begins(start, t))
            starts[n++] = (int32_t)t;
    starts[n] = (int32_t)start->rows;
    return n;
}

static ndp_status run_tasks(const ndp_op_call *c, const ndp_delta *d, const ndp_view *start, int64_t work,
                            void (*task)(const ndp_delta *, const ndp_delta_task *, void *)) {
    int32_t *starts = c->scratch;
    int64_t documents = find_documents(start, starts), tasks = documents * c->attr->kv_heads, next = 0;
    float *rooms = (float *)c->scratch + starts_floats(d);
#pragma omp parallel num_threads(team(c)) if (team(c) > 1)
    for (int64_t i; (i = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) < tasks;) {
        int64_t document = i / c->attr->kv_heads;
        ndp_delta_task t = {i % c->attr->kv_heads, starts[document], starts[document + 1]};
        task(d, &t, rooms + omp_get_thread_num() * work);
    }
    return NDP_OK;
}

static ndp_status run_forward(const ndp_op_call *c) {
    ndp_delta d = describe(c, &c->in[0]);
    d.o = c->out[0];
    return run_tasks(c, &d, &c->in[5], ndp_delta_forward_floats(&d), ndp_delta_best()->forward);
}

const ndp_kernel ndp_cpu_delta_rule = {.run = run_forward, .scratch = forward_scratch};

static ndp_status run_backward(const ndp_op_call *c) {
    ndp_delta d = describe(c, &c->in[1]);
    d.d_o = c->in[0];
    d.dq = c->out[0], d.dk = c->out[1], d.dv = c->out[2], d.dg = c->out[3], d.db = c->out[4];
    return run_tasks(c, &d, &c->in[6], ndp_delta_backward_floats(&d), ndp_delta_best()->backward);
}

const ndp_kernel ndp_cpu_delta_rule_bwd = {.run = run_backward, .scratch = backward_scratch};
