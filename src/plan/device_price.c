/* The table of kinds of calls:
 *
 *   products      operations / (rate of their type x efficiency.matmul x the share that the shape reaches)
 *   head          its products, each in chunks of rows, and the logits' bytes between them
 *   attention     operations of visible pairs / (rate x efficiency.attention x what short rows and narrow heads reach)
 *   others        bytes / (memory_bandwidth x efficiency.memory)
 *   collectives   steps x latency + bytes that leave the rank / (rate of the slowest link x its efficiency), by
 *                 ndp_cluster_plan_seconds
 *
 * No kernel is faster than its bytes. Rates of links are those of groups whose like all send at once (link_use.c). */
#include "plan/device_price.h"

#include "cluster/host_share.h"
#include "ops/cuda/cuda_scratch.h"
#include "ops/xent_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* `head` and `backward` are assumed, after what is published of FlashAttention-2: heads of 64 reach nine tenths of
 * heads of 128, the backward 0.85 of the forward. The others are fitted with the shares of built_in.c, near what is
 * known without the runs (bench/bench_planner.c), and rounded. */
const ndp_price_facts ndp_price_of_gpus = {.ramp = 97,
                                           .queries = 240,
                                           .head = 16,
                                           .backward = 0.85,
                                           .call = 1,
                                           .beside = 0.1,
                                           .fixed = 5e-3,
                                           .fp8_share = 0.87,
                                           .fp8_casts = 2.8};
static const ndp_price_facts of_hosts = {.backward = 1, .call = 1};

ndp_status ndp_device_price_init(const ndp_dry_run *d, ndp_cluster_plan *links, ndp_device_price *out) {
    const ndp_job *j = d->job;
    const ndp_cluster *c = &links->cluster;
    bool gpu = !ndp_cluster_of_hosts(c);
    NDP_CHECK(!j->planned.fp8 || c->facts.flops[NDP_RATE_FP8] > 0,
              "precision.compute: fp8: %s has no products in fp8; set bf16, or state its flops.fp8", c->device);
    *out = (ndp_device_price){.links = links,
                              .facts = gpu ? &ndp_price_of_gpus : &of_hosts,
                              .gpu = gpu,
                              .rows = j->model.rows,
                              .length = j->config->data.sequence_length,
                              .fp8 = j->planned.fp8,
                              .gradient_bytes = j->planned.reduce_bf16 ? 0.5 : 1,
                              .tp_bytes = j->planned.tp_reduce_bf16 ? 0.5 : 1,
                              .known = calloc(NDP_KNOWN_PRICES, sizeof *out->known)};
    return NDP_MEMORY(out->known, "for prices");
}

void ndp_device_price_forget(const ndp_device_price *p) { memset(p->known, 0, NDP_KNOWN_PRICES * sizeof *p->known); }

void ndp_device_price_release(ndp_device_price *p) {
    free(p->known);
    *p = (ndp_device_price){0};
}

/* ---- kernels ---- */

ndp_kernel_kind ndp_op_kernel_kind(int op) {
    switch (op) {
    case NDP_OP_linear:
    case NDP_OP_linear_dx:
    case NDP_OP_linear_dw:
    case NDP_OP_linear_stack:
    case NDP_OP_linear_stack_dx:
    case NDP_OP_linear_stack_dw:
    case NDP_OP_xent:
    case NDP_OP_xent_logits:
    case NDP_OP_xent_grad:
    case NDP_OP_newton_schulz:
        return NDP_KERNEL_MATMUL;
    case NDP_OP_attention:
    case NDP_OP_attention_bwd:
        return NDP_KERNEL_ATTENTION;
    default:
        return NDP_KERNEL_MEMORY;
    }
}

ndp_kernel_kind ndp_kernel_kind_of(const ndp_call *c) { return ndp_op_kernel_kind(c->op->id); }

static bool is_head(const ndp_call *c) {
    return c->op->id == NDP_OP_xent || c->op->id == NDP_OP_xent_logits || c->op->id == NDP_OP_xent_grad;
}

/* Tiles of cuBLAS, and what each reaches of the largest's rate. Sums are split over processors that have no tile. */
static double product_share(double m, double n, double k, int processors, double ramp) {
    static const struct {
        double m, n, rate;
    } tiles[] = {{256, 128, 1}, {128, 256, 1}, {128, 128, 0.95}, {128, 64, 0.8}, {64, 128, 0.8}, {64, 64, 0.6}};
    enum { SHORTEST = 1024, SPLITS = 16 };
    double best = 0;
    if (processors == 0 || !(m > 0 && n > 0 && k > 0))
        return 1;
    for (int i = 0; i < NDP_COUNT(tiles); i++)
        for (int split = 1; split <= SPLITS && (split == 1 || k / split >= SHORTEST); split *= 2) {
            double count = ceil(m / tiles[i].m) * ceil(n / tiles[i].n) * split;
            double waves = ceil(count / processors), terms = k / split;
            double share =
                m * n * split / (waves * processors * tiles[i].m * tiles[i].n) * tiles[i].rate * terms / (terms + ramp);
            best = share > best ? share : best;
        }
    return best;
}

/* The rate of products whose narrower operand is this one: that of the other type where a device has no such unit. */
static double rate_of(const ndp_device_price *p, const ndp_view *operand) {
    const double *flops = p->links->cluster.facts.flops;
    bool narrow = operand->dtype == NDP_BF16;
    return flops[(narrow && flops[NDP_RATE_BF16] > 0) || flops[NDP_RATE_FP32] == 0 ? NDP_RATE_BF16 : NDP_RATE_FP32];
}

/* newton_schulz multiplies its one operand by itself. */
static const ndp_view *narrower(const ndp_call *c) {
    const ndp_view *a = &c->in[0].view, *b = &c->in[c->n_in > 1].view;
    return ndp_dtype_size(b->dtype) < ndp_dtype_size(a->dtype) ? b : a;
}

static double memory_seconds(const ndp_device_price *p, double bytes) {
    return bytes / (p->links->cluster.facts.memory_bandwidth * p->links->cluster.efficiency.memory);
}

static double elements(const ndp_operand *o) { return (double)o->view.rows * (double)o->view.cols; }

static double share_of(const ndp_device_price *p, double m, double n, double k) {
    const ndp_cluster *c = &p->links->cluster;
    return c->efficiency.matmul * (p->gpu ? product_share(m, n, k, c->facts.multiprocessors, p->facts->ramp)
                                          : ndp_host_product_share(m, n, k));
}

/* A product makes output 0. `block`: of a unit's list, which is where products may be in fp8. */
static double product_seconds(const ndp_device_price *p, const ndp_call *c, bool block) {
    bool fp8 = p->fp8 && block;
    double m = (double)c->out[0].view.rows, n = (double)c->out[0].view.cols;
    double rate = fp8 ? p->links->cluster.facts.flops[NDP_RATE_FP8] * p->facts->fp8_share : rate_of(p, narrower(c));
    double k = c->op->id == NDP_OP_newton_schulz ? fmin(m, n) : c->flops / (2 * m * n); /* its flops are of several */
    double compute = c->flops / (rate * share_of(p, m, n, k));
    if (fp8)
        compute += memory_seconds(p, p->facts->fp8_casts * (elements(&c->in[0]) + elements(&c->in[1])));
    return fmax(compute, memory_seconds(p, c->bytes));
}

static int64_t chunk_rows(const ndp_device_price *p, const ndp_call *c) {
    const ndp_op_call shapes = {.op = c->op, .attr = &c->attr, .in = {c->in[0].view, c->in[1].view}};
    return c->op->id != NDP_OP_xent ? c->in[0].view.rows
           : p->gpu                 ? ndp_cuda_xent_rows(&shapes)
                                    : ndp_xent_chunk_rows(&shapes);
}

/* Of R rows of C columns and V of the vocabulary, a chunk of rows at a time: the logits are made, then read and
 * replaced by their derivatives, from which dx and dw are made, dw by adding to it. */
static double head_seconds(const ndp_device_price *p, const ndp_call *c) {
    bool grad = c->op->id == NDP_OP_xent_grad, whole = c->op->id == NDP_OP_xent;
    const ndp_view *x = &c->in[grad ? 2 : 0].view, *w = &c->in[grad ? 3 : 1].view;
    double V = (double)w->rows, C = (double)x->cols, R = fmin((double)chunk_rows(p, c), (double)x->rows);
    double rate = rate_of(p, w), logits = 4 * R * V, seconds = 0;
    double weights = elements(&c->in[grad ? 3 : 1]) * (double)ndp_dtype_size(w->dtype), flops = 2 * R * V * C;
    if (!grad)
        seconds += fmax(flops / (rate * share_of(p, R, V, C)), memory_seconds(p, weights + logits));
    if (grad || whole)
        seconds += memory_seconds(p, 1.5 * logits);
    if ((grad || whole) && c->n_out > 1 && c->out[1].view.rows)
        seconds += fmax(flops / (rate * share_of(p, R, C, V)), memory_seconds(p, weights + logits / 2));
    if ((grad || whole) && c->n_out > 2 && c->out[2].view.rows)
        seconds += fmax(flops / (rate * share_of(p, V, C, R)),
                        memory_seconds(p, 2 * V * C * (double)ndp_dtype_size(c->out[2].view.dtype) + logits / 2));
    return seconds * (double)x->rows / R;
}

/* Keys that a query of a sample sees on average. */
static double mean_seen(const ndp_device_price *p, const ndp_call *c) {
    double s = (double)p->length, w = c->attr.window > 0 && c->attr.window < s ? (double)c->attr.window : s;
    return w - w * (w - 1) / (2 * s);
}

double ndp_priced_flops(const ndp_device_price *p, const ndp_call *c) {
    if (ndp_kernel_kind_of(c) != NDP_KERNEL_ATTENTION)
        return c->flops;
    bool backward = c->op->id == NDP_OP_attention_bwd; /* whose first operand is the gradient */
    const ndp_view *q = &c->in[backward].view, *k = &c->in[1 + backward].view;
    double part = fmin(1, (double)k->rows / (double)p->rows); /* of the keys: a ring has some of them at a time */
    double columns = (backward ? 6 : 2) * (double)c->attr.head_dim + (backward ? 4 : 2) * (double)ndp_v_dim(&c->attr);
    return columns * (double)q->rows * mean_seen(p, c) * part * c->attr.heads;
}

static double attention_seconds(const ndp_device_price *p, const ndp_call *c) {
    const ndp_cluster *k = &p->links->cluster;
    const ndp_price_facts *f = p->facts;
    double seen = mean_seen(p, c), d = c->attr.head_dim;
    double share = p->gpu ? seen / (seen + f->queries) * d / (d + f->head) : ndp_host_attention_share(seen, d);
    share *= k->efficiency.attention;
    if (c->op->id == NDP_OP_attention_bwd)
        share *= f->backward;
    return fmax(ndp_priced_flops(p, c) / (rate_of(p, &c->in[1].view) * share), memory_seconds(p, c->bytes));
}

double ndp_priced_launch(const ndp_device_price *p) { return p->links->cluster.facts.call_seconds * p->facts->call; }

double ndp_device_kernel(const ndp_device_price *p, bool block, const ndp_call *c) {
    const ndp_cluster *k = &p->links->cluster;
    switch (ndp_kernel_kind_of(c)) {
    case NDP_KERNEL_MATMUL:
        return ndp_priced_launch(p) + (is_head(c) ? head_seconds(p, c) : product_seconds(p, c, block));
    case NDP_KERNEL_ATTENTION:
        return ndp_priced_launch(p) + attention_seconds(p, c);
    default: /* processors compute what GPUs hide */
        return ndp_priced_launch(p) +
               fmax(memory_seconds(p, c->bytes),
                    p->gpu ? 0 : c->flops / (k->facts.flops[NDP_RATE_FP32] * k->efficiency.matmul));
    }
}

/* ---- communications ---- */

double ndp_priced_bytes(const ndp_device_price *p, const ndp_mesh *mesh, const ndp_call *c) {
    ndp_group_kind kind = ndp_channel_group(c->channel);
    bool sums = c->op->collective == NDP_REDUCE_SCATTER || c->op->collective == NDP_ALL_REDUCE,
         tp = kind == NDP_GROUP_TP;
    bool wide = c->in[0].view.dtype == NDP_F32;
    double part = !sums || !wide                                                       ? 1
                  : tp || kind == NDP_GROUP_SP                                         ? p->tp_bytes
                  : ndp_group_spans(kind, NDP_DP_SHARD) || kind == NDP_GROUP_REPLICATE ? p->gradient_bytes
                                                                                       : 1;
    return part * ndp_call_moved(c, ndp_mesh_group(mesh, kind).count);
}

const ndp_group_links *ndp_priced_links(const ndp_device_price *p, const ndp_mesh *mesh, const ndp_call *c) {
    if (ndp_mesh_group(mesh, ndp_channel_group(c->channel)).count == 1)
        return NULL;
    const ndp_group_links *l;
    return ndp_cluster_plan_call_links(p->links, mesh, c, &l) == NDP_OK ? l : NULL;
}

double ndp_device_comm(const ndp_device_price *p, const ndp_mesh *mesh, const ndp_call *c) {
    int ranks = ndp_mesh_group(mesh, ndp_channel_group(c->channel)).count;
    const ndp_group_links *l = ndp_priced_links(p, mesh, c);
    return l ? ndp_cluster_plan_seconds(p->links, l, c->op->collective, ranks, ndp_priced_bytes(p, mesh, c)) : 0;
}

void ndp_priced_busy(const ndp_device_price *p, const ndp_mesh *mesh, const ndp_call *c, double busy[NDP_BUSY_LINKS]) {
    _Static_assert((int)NDP_BUSY_LINKS >= (int)NDP_LINK_LEVELS, "a rank has a queue for each level");
    const ndp_group_links *l = ndp_priced_links(p, mesh, c);
    for (int i = 0; l && i < l->n; i++)
        busy[l->of[i].level] = ndp_priced_bytes(p, mesh, c) / ndp_cluster_plan_rate(p->links, &l->of[i]);
}

void ndp_device_links(const void *user, const ndp_program *program, const ndp_call *c, double busy[NDP_BUSY_LINKS]) {
    ndp_priced_busy(user, &program->opts.step.mesh, c, busy);
}

/* ---- both ---- */

double ndp_device_seconds(const void *user, const ndp_program *program, const ndp_instr *in, const ndp_call *call) {
    const ndp_device_price *p = user;
    ndp_priced_call *known = &p->known[((uintptr_t)call / sizeof *call) % NDP_KNOWN_PRICES];
    if (known->call != call)
        *known =
            (ndp_priced_call){call, call->kind == NDP_CALL_KERNEL ? ndp_device_kernel(p, in->code == NDP_DO_RUN, call)
                                                                  : ndp_device_comm(p, &program->opts.step.mesh, call)};
    return known->seconds;
}

ndp_step_costs ndp_device_costs(const ndp_device_price *p) {
    return (ndp_step_costs){.seconds = ndp_device_seconds,
                            .user = p,
                            .background = p->gpu,
                            .links = ndp_device_links,
                            .beside = p->facts->beside};
}
