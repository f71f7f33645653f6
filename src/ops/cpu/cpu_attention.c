/* attention, attention_bwd: cuts a call into tasks (cpu_attention_task.h) and runs them on the threads.
 *
 * A call runs in phases, with a barrier between them:
 *   survey     one thread: key positions are copied; which positions each key block spans and each task sees
 *   backward   sums of dk and dv are cleared; a wide dO is rounded for kernels that multiply bf16
 *   pack       key blocks that some task sees are put into the order that products read (bf16 kernels only)
 *   tasks      threads take the next task from a counter. Tasks skip key blocks that their rows do not see
 *   backward   sums of dk and dv that are not fp32 in place are stored, rounded once
 * The tasks themselves are in cpu_attention_kernel.h and cpu_attention_bf16.h, compiled per instruction set. */
#include "ops/cpu/cpu_attention_task.h"
#include "ops/cpu/cpu_kernels.h"

#include <math.h>
#include <omp.h>

enum { MIN_TASKS = 32 }; /* of a call, if it is long enough: they balance on a few threads */

/* What the scratch memory of a call holds, by byte offset; each part is 64-byte aligned. */
typedef struct layout {
    size_t k_pos, spans, sight, done, d_o, dk_sum, dv_sum, packed, packed_bytes, work, work_bytes, bytes;
} layout;

static size_t part(size_t *bytes, int64_t n, size_t size) {
    size_t at = *bytes;
    *bytes = (at + (size_t)n * size + 63) / 64 * 64;
    return at;
}

/* Absent outputs have no rows. */
static bool needs_sum(const ndp_view *grad) { return grad->rows > 0 && grad->dtype != NDP_F32; }

static int64_t elements(const ndp_view *v) { return v->rows * v->cols; }

/* Some kernels multiply bf16: a gradient stored wide is rounded first, so that everything computed from it agrees. */
static bool needs_rounding(const ndp_att *a, const ndp_view *d_o) {
    return a->kernels->of_bf16 && d_o->dtype != NDP_BF16;
}

static ndp_att_cols columns(const ndp_att *a, int n) {
    int unit = a->kernels->dim_unit;
    return (ndp_att_cols){n, (n + unit - 1) / unit * unit};
}

static ndp_att describe(const ndp_op_call *c, const ndp_view *q, const ndp_view *k) {
    const ndp_op_attr *attr = c->attr;
    int place = ndp_split_place(c->exec);
    ndp_att a = {.kv_heads = attr->kv_heads,
                 .group = attr->heads / attr->kv_heads,
                 .window = attr->window,
                 .first = attr->first,
                 .scale = (float)attr->scale,
                 .cap = (float)(attr->cap * M_LOG2E),
                 .keys = k->rows,
                 .block_keys = place ? NDP_ATT_FEW_KEYS * place : NDP_ATT_KEYS};
    a.kernels = ndp_att_kernels_for(q->dtype, a.scale);
    a.of_q = columns(&a, attr->head_dim), a.of_v = columns(&a, ndp_v_dim(attr));
    a.dim_pad = a.of_q.pad > a.of_v.pad ? a.of_q.pad : a.of_v.pad;
    a.rows = q->rows * a.group;
    int64_t blocks = a.rows * a.kv_heads / (NDP_ATT_ROWS * MIN_TASKS);
    blocks = blocks < 1 ? 1 : blocks > NDP_ATT_TASK_BLOCKS ? NDP_ATT_TASK_BLOCKS : blocks;
    a.task_rows = (int)blocks * NDP_ATT_ROWS;
    a.tasks = (a.rows + a.task_rows - 1) / a.task_rows;
    a.key_blocks = (a.keys + a.block_keys - 1) / a.block_keys;
    return a;
}

/* All threads or one: OpenMP makes a new team, and so allocates, whenever its size changes. */
static int team(const ndp_op_call *c, const ndp_att *a) {
    return c->exec->threads > 1 && a->tasks * a->kv_heads > 1 ? c->exec->threads : 1;
}

static layout lay_out(const ndp_op_call *c, const ndp_att *a, bool backward) {
    layout l = {0};
    l.k_pos = part(&l.bytes, a->keys, sizeof(int32_t));
    l.spans = part(&l.bytes, a->key_blocks, sizeof(ndp_att_span));
    l.sight = part(&l.bytes, a->tasks, sizeof(ndp_att_sight));
    if (backward) {
        const ndp_view *d_o = &c->in[0], *dk = &c->out[1], *dv = &c->out[2];
        l.done = part(&l.bytes, a->kv_heads * a->key_blocks, sizeof(int));
        l.d_o = part(&l.bytes, needs_rounding(a, d_o) ? elements(d_o) : 0, sizeof(uint16_t));
        l.dk_sum = part(&l.bytes, needs_sum(dk) ? elements(dk) : 0, sizeof(float));
        l.dv_sum = part(&l.bytes, needs_sum(dv) ? elements(dv) : 0, sizeof(float));
    }
    const ndp_att_kernel *kernel = backward ? &a->kernels->backward : &a->kernels->forward;
    l.packed_bytes = kernel->pack ? kernel->packed_bytes(a) : 0;
    l.packed = part(&l.bytes, a->kv_heads * a->key_blocks, l.packed_bytes);
    l.work_bytes = kernel->work_bytes(a);
    l.work = part(&l.bytes, team(c, a), l.work_bytes);
    return l;
}

/* Copies key positions and finds what each key block spans and each task sees. */
static void survey(ndp_att *a, const ndp_view *k_pos, char *scratch, const layout *l) {
    int32_t *pos = (int32_t *)(scratch + l->k_pos);
    ndp_att_span *spans = (ndp_att_span *)(scratch + l->spans);
    ndp_att_sight *sight = (ndp_att_sight *)(scratch + l->sight);
    for (int64_t s = 0; s < a->keys; s++) {
        ndp_att_span *span = &spans[s / a->block_keys];
        if (s % a->block_keys == 0)
            *span = (ndp_att_span){INT32_MAX, INT32_MIN};
        pos[s] = ((const int32_t *)k_pos->data)[s * k_pos->ld];
        span->min = pos[s] < span->min ? pos[s] : span->min;
        span->max = pos[s] > span->max ? pos[s] : span->max;
    }
    a->any = NDP_ATT_SIGHT_NONE;
    for (int64_t i = 0; i < a->tasks; i++) {
        int64_t first = ndp_att_task_first(a, i), end = first + a->task_rows < a->rows ? first + a->task_rows : a->rows;
        sight[i] = NDP_ATT_SIGHT_NONE;
        for (int64_t t = first / a->group; t <= (end - 1) / a->group; t++) {
            int32_t low, high;
            ndp_att_token(a, t, &low, &high);
            ndp_att_sight_add(&sight[i], low, high);
            ndp_att_sight_add(&a->any, low, high);
        }
    }
    a->k_pos = pos;
    a->spans = spans;
    a->sight = sight;
    a->packed = scratch + l->packed;
    a->packed_bytes = l->packed_bytes;
}

/* What the threads of a call share. */
typedef struct attention_run {
    ndp_att att;
    ndp_view wide_d_o; /* what att.d_o is rounded from */
    const ndp_att_kernel *kernel;
    int64_t next;
    char *work;
    size_t work_bytes;
} attention_run;

/* Packs, then hands out tasks in order, one kv head after the other: its keys and values stay in the cache. */
static void run_tasks(attention_run *r, int thread) {
    const ndp_att *a = &r->att;
    if (r->kernel->pack) {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < a->kv_heads * a->key_blocks; i++)
            if (ndp_att_touches(a->any, a->spans[i % a->key_blocks]))
                r->kernel->pack(a, (int)(i / a->key_blocks), i % a->key_blocks);
    }
    for (int64_t i; (i = __atomic_fetch_add(&r->next, 1, __ATOMIC_RELAXED)) < a->tasks * a->kv_heads;)
        r->kernel->task(a, (int)(i / a->tasks), i % a->tasks, r->work + (size_t)thread * r->work_bytes);
}

static void on_team(int threads, void (*body)(attention_run *, int thread), attention_run *r) {
    if (threads == 1) {
        body(r, 0);
        return;
    }
#pragma omp parallel num_threads(threads)
    body(r, omp_get_thread_num());
}

static size_t forward_scratch(const ndp_op_call *shapes) {
    ndp_att a = describe(shapes, &shapes->in[0], &shapes->in[1]);
    return lay_out(shapes, &a, false).bytes;
}

static size_t backward_scratch(const ndp_op_call *shapes) {
    ndp_att a = describe(shapes, &shapes->in[1], &shapes->in[2]);
    return lay_out(shapes, &a, true).bytes;
}

static ndp_status run_forward(const ndp_op_call *c) {
    ndp_att a = describe(c, &c->in[0], &c->in[1]);
    layout l = lay_out(c, &a, false);
    a.q = c->in[0];
    a.k = c->in[1];
    a.v = c->in[2];
    a.q_pos = c->in[3];
    a.q_low = c->in[4];
    a.sink = c->in[6];
    a.o = c->out[0];
    a.lse = c->out[1];
    char *scratch = c->scratch;
    survey(&a, &c->in[5], scratch, &l);
    attention_run r = {.att = a, .kernel = &a.kernels->forward, .work = scratch + l.work, .work_bytes = l.work_bytes};
    on_team(team(c, &a), run_tasks, &r);
    return NDP_OK;
}

const ndp_kernel ndp_cpu_attention = {.run = run_forward, .scratch = forward_scratch};

/* Where dk or dv is added up: in place when it is fp32. */
static ndp_view sum_view(const ndp_view *grad, char *scratch) {
    ndp_view sum = *grad;
    if (needs_sum(grad))
        sum = (ndp_view){scratch, NDP_F32, grad->rows, grad->cols, grad->cols};
    return sum;
}

static void clear_row(const ndp_view *v, int64_t row) {
    if (v->data)
        memset((float *)v->data + row * v->ld, 0, (size_t)v->cols * sizeof(float));
}

static void backward_body(attention_run *r, int thread) {
    const ndp_att *a = &r->att;
    const ndp_view *wide = &r->wide_d_o;
#pragma omp for schedule(static)
    for (int64_t t = 0; t < wide->rows; t++)
        ndp_convert((const float *)wide->data + t * wide->ld, wide->dtype, (uint16_t *)a->d_o.data + t * a->d_o.ld,
                    a->d_o.dtype, wide->cols);
#pragma omp for schedule(static)
    for (int64_t s = 0; s < a->keys; s++) {
        clear_row(&a->dk_sum, s);
        clear_row(&a->dv_sum, s);
    }
    run_tasks(r, thread);
#pragma omp barrier
#pragma omp for schedule(static)
    for (int64_t s = 0; s < a->keys; s++) {
        if (needs_sum(&a->dk))
            a->kernels->store(&a->dk, s, (const float *)a->dk_sum.data + s * a->dk_sum.ld);
        if (needs_sum(&a->dv))
            a->kernels->store(&a->dv, s, (const float *)a->dv_sum.data + s * a->dv_sum.ld);
    }
}

static ndp_status run_backward(const ndp_op_call *c) {
    ndp_att a = describe(c, &c->in[1], &c->in[2]);
    layout l = lay_out(c, &a, true);
    char *scratch = c->scratch;
    a.d_o = c->in[0];
    a.q = c->in[1];
    a.k = c->in[2];
    a.v = c->in[3];
    a.o = c->in[4];
    a.lse = c->in[5];
    a.q_pos = c->in[6];
    a.q_low = c->in[7];
    a.dq = c->out[0];
    a.dk = c->out[1];
    a.dv = c->out[2];
    a.dk_sum = sum_view(&a.dk, scratch + l.dk_sum);
    a.dv_sum = sum_view(&a.dv, scratch + l.dv_sum);
    a.done = (int *)(scratch + l.done);
    survey(&a, &c->in[8], scratch, &l);
    memset(a.done, 0, (size_t)(a.kv_heads * a.key_blocks) * sizeof *a.done);
    attention_run r = {.att = a, .kernel = &a.kernels->backward, .work = scratch + l.work, .work_bytes = l.work_bytes};
    if (needs_rounding(&a, &c->in[0])) {
        r.wide_d_o = c->in[0];
        r.att.d_o = (ndp_view){scratch + l.d_o, NDP_BF16, a.d_o.rows, a.d_o.cols, a.d_o.cols};
    }
    on_team(team(c, &a), backward_body, &r);
    return NDP_OK;
}

const ndp_kernel ndp_cpu_attention_bwd = {.run = run_backward, .scratch = backward_scratch};
