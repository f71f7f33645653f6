/* The tensor axis (Megatron-LM, arXiv:1909.08053, 2205.05198): projections are cut by output features, then by input
 * features; heads, ffn and vocabulary over the ranks; the residual stream lives on slices of the rows.
 *
 *   x [T/tp,C] --all_gather--> x [T,C] --linear (rows of w)--> [T, N/tp] ... --linear (columns of w)--> partial [T,C]
 *     --reduce_scatter--> [T/tp,C]
 *
 * Without how.tp_sequence_parallel every rank has x [T,C] (its gradient is all_reduced), and partial sums are
 * all_reduced. Sums over ranks are made of wide parts (fp32 for bf16) and rounded once.
 *
 * The flow of the ops (ops/flow.h) says what these pieces are; placement/flow_meet.c proves the sums.
 *
 * Which rule applies follows from the dimensions that a parameter's segment names: rows of w cut: column_linear,
 * columns cut: row_linear, neither: the node as it is. Invariant: an image whose spread is COLS has the columns of the
 * segments that made it, and only row_linear, or an op on heads, reads it. apply.c calls the rules; ndp_tensor_cut is
 * called for each table before any graph is written. */
#include "model/tensors.h"
#include "parallel/held.h"
#include "parallel/pass.h"

#include <stdio.h>

/* ---- what a rank holds ---- */

/* The axis of a segment's dimensions that is cut over the ranks of tp. */
static bool is_cut(ndp_dim dim) {
    return dim != NDP_DIM_WHOLE && dim != NDP_DIM_IN_HEAD && dim != NDP_DIM_ADDED && dim != NDP_DIM_EXPERTS;
}

/* The part of rank r of tp along one axis. */
typedef struct axis_part {
    int64_t first, count, most; /* rows or columns; most: of any rank */
    ndp_group_kind held;        /* the group of ranks with the same part; NDP_GROUPS: this rank alone */
} axis_part;

/* Rank r of `n` grains has [r n / tp, (r + 1) n / tp); with fewer grains than ranks, several ranks share one. */
static axis_part part_of(const ndp_segment *s, int axis, int64_t tp, int64_t r) {
    int64_t width = s->grain[axis], groups = s->part[axis] / width;
    int64_t first = groups * r / tp, end = groups * (r + 1) / tp, most = (groups + tp - 1) / tp;
    bool kv = s->dim[axis] == NDP_DIM_KV_HEADS;
    if (kv && groups % tp != 0 && tp % groups != 0) /* all of them, for the sequence axis to choose from */
        return (axis_part){0, s->part[axis], s->part[axis], NDP_GROUP_TP};
    if (kv && groups < tp)
        return (axis_part){first * width, width, most * width, NDP_GROUP_KV};
    return (axis_part){first * width, (end - first) * width, most * width, NDP_GROUPS};
}

static void cut_axis(ndp_segment *s, int axis, const ndp_mesh *mesh) {
    axis_part p = part_of(s, axis, mesh->layout.size[NDP_TP], mesh->coord[NDP_TP]);
    if (p.held != NDP_GROUPS)
        ndp_held_by(s, mesh, p.held, true);
    if (p.held != NDP_GROUP_TP)
        ndp_segment_cut(s, axis, p.first, p.count, p.most);
}

/* True if each rank of tp has whole blocks of a packed matrix, one after the other. */
static bool has_whole_blocks(const ndp_segment *s, int tp) {
    bool whole = true;
    if (s->apart > 0) /* ranks have whole grains */
        return ndp_segment_turns_in_blocks(s);
    for (int r = 0; r < tp && whole; r++) {
        int64_t first[2] = {s->base[0], s->base[1]}, count[2] = {s->part[0], s->part[1]};
        for (int axis = 0; axis < 2; axis++)
            if (is_cut(s->dim[axis])) {
                axis_part p = part_of(s, axis, tp, r);
                first[axis] += p.first, count[axis] = p.count;
            }
        whole = count[0] * count[1] == 0 || ndp_packed_in_blocks(s->whole, first, count[0], count[1]);
    }
    return whole;
}

/* The first segment that a tensor axis of that size would cut through a block; NULL: there is none. */
static const ndp_segment *find_cut_block(const ndp_model *whole, int tp) {
    for (ndp_segment_walk w = {.model = whole}; ndp_segment_next(&w);)
        if (whole->buffers[w.buffer].segments.packing == NDP_PACKING_NF4 && !has_whole_blocks(w.segment, tp))
            return w.segment;
    return NULL;
}

/* The most ranks that the attention of a model may be cut over. */
static int heads_of(const ndp_model *whole) {
    int64_t heads = 1;
    for (ndp_segment_walk w = {.model = whole}; ndp_segment_next(&w);)
        for (int axis = 0; axis < 2; axis++)
            if (w.segment->dim[axis] == NDP_DIM_HEADS)
                heads = w.segment->part[axis] / w.segment->grain[axis];
    return (int)heads;
}

static ndp_status check_blocks(const ndp_model *whole, int tp) {
    const ndp_segment *s = find_cut_block(whole, tp);
    char sizes[200] = "";
    if (!s)
        return NDP_OK;
    if (s->apart > 0)
        return NDP_FAIL(NDP_ENOTSUP,
                        "%s [%lld, %lld] holds its parts in turn, %lld rows of each, which are not whole blocks of %d "
                        "elements: it cannot be stored as nf4; use int8",
                        s->name, (long long)s->whole[0], (long long)s->whole[1], (long long)s->grain[0],
                        NDP_PACKED_BLOCK);
    for (int t = 1, heads = heads_of(whole), n = 0; t <= heads && n < (int)sizeof sizes - 16; t++)
        if (heads % t == 0 && !find_cut_block(whole, t))
            n += snprintf(sizes + n, sizeof sizes - (size_t)n, "%s%d", n ? ", " : "", t);
    if (sizes[0] == '\0')
        return NDP_FAIL(NDP_ENOTSUP,
                        "%s [%lld, %lld] holds parts that begin within a block of %d elements: it cannot be stored as "
                        "nf4; use int8",
                        s->name, (long long)s->whole[0], (long long)s->whole[1], NDP_PACKED_BLOCK);
    return NDP_FAIL(NDP_ENOTSUP,
                    "tp_size %d cuts %s [%lld, %lld] through blocks of %d elements, which nf4 stores together; "
                    "tp_size may be %s",
                    tp, s->name, (long long)s->whole[0], (long long)s->whole[1], NDP_PACKED_BLOCK, sizes);
}

ndp_status ndp_tensor_check_mesh(const ndp_model *whole, const ndp_mesh *mesh) {
    int heads = ndp_model_kv_heads(whole);
    if (mesh->kv_heads != heads)
        return NDP_FAIL(NDP_EBUG, "the mesh was made for %d kv heads, the model has %d", mesh->kv_heads, heads);
    return check_blocks(whole, mesh->layout.size[NDP_TP]);
}

void ndp_tensor_cut(const ndp_mesh *mesh, const ndp_parallel *how, ndp_segments *s) {
    int tp = mesh->layout.size[NDP_TP], ep = mesh->layout.size[NDP_EP];
    for (int i = 0; i < s->n; i++) {
        ndp_segment *seg = &s->items[i];
        bool cut = false;
        if (ep > 1 && ndp_segment_is_stack(seg)) /* its experts are whole on their owner */
            ndp_segment_cut_stack(seg, ep, ndp_mesh_group(mesh, NDP_GROUP_EP).rank);
        if (tp == 1 || (ep > 1 && ndp_segment_is_stack(seg)))
            continue;
        for (int axis = 0; axis < 2; axis++)
            if (is_cut(seg->dim[axis])) {
                cut_axis(seg, axis, mesh);
                cut = true;
            }
        if (cut)
            continue;
        ndp_dim dim = seg->dim[seg->ndim == 1];
        bool in_parts = dim == NDP_DIM_IN_HEAD || dim == NDP_DIM_ADDED || (dim == NDP_DIM_EXPERTS && ep > 1);
        ndp_held_by(seg, mesh, NDP_GROUP_TP, how->tp_sequence_parallel || in_parts);
    }
}

/* ---- into and out of the pieces ---- */

ndp_op_attr ndp_pass_over_tp(const ndp_pass *p) {
    return (ndp_op_attr){.group = NDP_GROUP_TP,
                         .ranks = p->tp,
                         .type = p->to->compute,
                         .wide_grad = p->to->compute != ndp_wide(p->to->compute)};
}

/* All rows of x, of which this rank has some (`rows`) or all. The gradient is the sum over the ranks, which is as wide
 * as a value that is wide itself. */
static int enter_rows(ndp_pass *p, int x, bool rows, const char *name) {
    ndp_op_attr attr = ndp_pass_over_tp(p);
    bool wide = p->to->values[x].view.dtype != p->to->compute;
    attr.type = p->to->values[x].view.dtype;
    attr.wide_grad &= !wide;
    return ndp_graph_op1(p->to, rows ? &ndp_op_all_gather : &ndp_op_enter, &attr, name, &x, 1);
}

/* All rows of a value, gathered once for all its readers. */
static int enter_value(ndp_pass *p, int value) {
    int x = ndp_pass_value(p, value);
    ndp_image *image = &p->images[value];
    const ndp_value *v = &p->from->values[value];
    if (p->tp == 1 || image->entered != NDP_NONE)
        return p->tp == 1 ? x : image->entered;
    if (v->parent != NDP_NONE) { /* columns of what is entered as a whole: a collective's operands have no gaps */
        int whole = enter_value(p, v->parent);
        image->entered = ndp_graph_columns(p->to, whole, v->col - p->from->values[v->parent].col, v->view.cols);
    } else {
        image->entered = enter_rows(p, x, image->spread == NDP_SPREAD_ROWS, v->name);
    }
    return image->entered;
}

int ndp_pass_enter(ndp_pass *p, int i) { return enter_value(p, p->node->in[i]); }

/* Where a product writes this rank's part of a sum. */
static int partial(ndp_pass *p, const char *name, int64_t rows, int64_t cols, bool wide) {
    return ndp_graph_value(p->to, name, rows, cols, wide ? ndp_wide(p->to->compute) : p->to->compute);
}

/* The sum of the ranks' parts and a bias (NDP_NONE: none), on this rank's rows, rounded once: a bias added to what was
 * rounded already meets ties in all rows alike, and rounds them the same way. */
int ndp_pass_leave(ndp_pass *p, int part, int bias, const char *name) {
    ndp_op_attr attr = ndp_pass_over_tp(p);
    bool rows = ndp_pass_stream(p) == NDP_SPREAD_ROWS;
    attr.wide_grad = false;
    int sum = ndp_graph_op1(p->to, rows ? &ndp_op_reduce_scatter : &ndp_op_all_reduce, &attr, name, &part, 1);
    if (bias != NDP_NONE)
        sum = ndp_graph_op1(p->to, &ndp_op_add_bias, NULL, name, (int[]){sum, bias}, 2);
    if (p->to->values[part].view.dtype == p->to->compute)
        return sum;
    return ndp_graph_op1(p->to, &ndp_op_copy, &attr, name, &sum, 1);
}

const ndp_segment *ndp_pass_segment(const ndp_pass *p, int param) {
    const ndp_value *v = &p->to->values[param];
    return &p->to->slots[v->slot]->items[v->segment];
}

/* ---- rules ---- */

ndp_status ndp_tensor_embedding(ndp_pass *p) {
    int ins[2] = {ndp_pass_in(p, 0), ndp_pass_in(p, 1)};
    const char *name = p->from->values[p->node->out[0]].name;
    ndp_op_attr attr = p->node->attr;
    attr.first = ndp_pass_segment(p, ins[1])->first[0];
    int x = ndp_graph_op1(p->to, &ndp_op_embedding, &attr, name, ins, 2);
    if (p->tp > 1)
        x = ndp_pass_leave(p, x, NDP_NONE, name); /* one rank has the row, the others add zeros */
    ndp_pass_out(p, 0, x, ndp_pass_stream(p));
    return p->to->status;
}

static ndp_status column_linear(ndp_pass *p, int w) {
    const ndp_value *whole = &p->from->values[p->node->in[1]];
    ndp_op_attr attr = p->node->attr;
    attr.wide_grad = ndp_pass_over_tp(p).wide_grad;
    int ins[3] = {ndp_pass_enter(p, 0), w, ndp_pass_in(p, 2)};
    int y = ndp_graph_op1(p->to, &ndp_op_linear, &attr, p->from->values[p->node->out[0]].name, ins, 3);
    ndp_pass_out(p, 0, y, NDP_SPREAD_COLS);
    ndp_image *image = &p->images[p->node->out[0]];
    image->slot = whole->slot, image->of = whole->segment, image->n = whole->segments;
    return p->to->status;
}

static ndp_status row_linear(ndp_pass *p, int w) {
    int x = ndp_pass_in(p, 0), b = ndp_pass_in(p, 2);
    const char *name = p->from->values[p->node->out[0]].name;
    int y = partial(p, name, p->to->values[x].view.rows, p->to->values[w].view.rows, true);
    ndp_graph_op(p->to, &ndp_op_linear, &p->node->attr, name, (int[]){x, w, NDP_NONE}, 3, &y, 1);
    ndp_pass_out(p, 0, ndp_pass_leave(p, y, b, name), ndp_pass_stream(p));
    return p->to->status;
}

ndp_status ndp_tensor_linear(ndp_pass *p) {
    int w = ndp_pass_in(p, 1);
    const ndp_segment *s = ndp_pass_segment(p, w);
    bool routes = s->dim[0] == NDP_DIM_EXPERTS;
    if (p->tp > 1 && !routes && s->dim[0] != NDP_DIM_WHOLE)
        return column_linear(p, w);
    if (p->tp > 1 && s->dim[1] != NDP_DIM_WHOLE)
        return row_linear(p, w);
    int ins[3] = {routes ? ndp_pass_own(p, 0) : ndp_pass_in(p, 0), w, ndp_pass_in(p, 2)}, y = NDP_NONE;
    const ndp_value *out = &p->from->values[p->node->out[0]];
    if (out->view.dtype != p->to->compute) /* a wide result of narrow operands */
        y = ndp_graph_value(p->to, out->name, p->to->values[ins[0]].view.rows, out->view.cols, out->view.dtype);
    ndp_graph_op(p->to, &ndp_op_linear, &p->node->attr, out->name, ins, 3, &y, 1);
    bool sliced = routes && ndp_mixtures_are_sliced(p->mesh);
    ndp_pass_out(p, 0, y, sliced ? NDP_SPREAD_ROWS : p->images[p->node->in[0]].spread);
    return p->to->status;
}

/* A matrix is made of this rank's part of packed ones, one after the other. */
ndp_status ndp_tensor_unpack(ndp_pass *p) {
    int whole = p->from->values[p->node->out[0]].parent;
    const ndp_value *w = &p->from->values[whole];
    ndp_image *image = &p->images[whole];
    if (image->spread == NDP_SPREAD_NONE)
        *image = (ndp_image){.value = ndp_graph_unpacked(p->to, w->slot, w->segment, w->segments),
                             .spread = NDP_SPREAD_SAME,
                             .entered = NDP_NONE,
                             .own = NDP_NONE};
    ndp_graph_unpack(p->to, NDP_NODES_FORWARD, image->value, p->from->values[p->node->in[0]].segment - w->segment);
    return p->to->status;
}

/* Ranks of the tensor axis with the same elements of a cut segment. */
static int tp_copies(const ndp_pass *p, const ndp_segment *s) {
    int kv = s->sums & NDP_GROUP_BIT(NDP_GROUP_KV) ? ndp_mesh_group(p->mesh, NDP_GROUP_KV).count : 1;
    return s->sums & NDP_GROUP_BIT(NDP_GROUP_TP) ? p->tp : kv;
}

/* A norm over all heads together, of which this rank has some: the mean of squares is a sum over the ranks. Columns
 * that several ranks have count a part on each. Its operand may be a view, and is read twice. */
ndp_status ndp_tensor_rmsnorm(ndp_pass *p) {
    if (p->from->values[p->node->in[1]].kind != NDP_VALUE_PARAM) /* ones: of each head */
        return ndp_pass_rowwise(p);
    const ndp_segment *s = ndp_pass_segment(p, ndp_pass_in(p, 1));
    if (p->tp == 1 || s->dim[1] == NDP_DIM_WHOLE || s->dim[1] == NDP_DIM_IN_HEAD)
        return ndp_pass_rowwise(p);
    const char *name = p->from->values[p->node->out[0]].name;
    ndp_op_attr over = {.group = NDP_GROUP_TP, .ranks = p->tp}, attr = p->node->attr;
    int x = ndp_pass_in(p, 0), outs[2] = {NDP_NONE, NDP_NONE};
    x = ndp_graph_op1(p->to, &ndp_op_copy, &(ndp_op_attr){.type = p->to->compute}, name, &x, 1);
    attr.scale = 1 / ((double)s->part[1] * tp_copies(p, s));
    int m = ndp_graph_op1(p->to, &ndp_op_mean_squares, &attr, "mean squares", &x, 1);
    m = ndp_graph_op1(p->to, &ndp_op_all_reduce, &over, "mean squares", &m, 1);
    m = ndp_graph_op1(p->to, &ndp_op_enter, &over, "mean squares", &m, 1);
    ndp_graph_op(p->to, &ndp_op_norm_by, &attr, name, (int[]){x, ndp_pass_in(p, 1), m}, 3, outs, 2);
    ndp_pass_out(p, 0, outs[0], NDP_SPREAD_COLS);
    return p->to->status;
}

/* The key that heads share is made on this rank's rows, or by all ranks alike; its gradient is the sum of all heads'.
 */
ndp_status ndp_tensor_latent_keys(ndp_pass *p) {
    ndp_op_attr attr = ndp_local_attr(p->mesh, p->node->attr);
    int ins[] = {ndp_pass_in(p, 0), ndp_pass_in(p, 1)}, outs[2] = {NDP_NONE, NDP_NONE};
    if (p->tp > 1)
        ins[1] = enter_rows(p, ndp_pass_contiguous(p, ins[1]), p->images[p->node->in[1]].spread == NDP_SPREAD_ROWS,
                            "shared key");
    attr.wide_grad = p->tp > 1 && ndp_pass_over_tp(p).wide_grad;
    ndp_graph_op(p->to, p->node->op, &attr, p->from->values[p->node->out[0]].name, ins, 2, outs, 2);
    for (int i = 0; i < 2; i++)
        ndp_pass_out(p, i, outs[i], p->tp > 1 ? NDP_SPREAD_COLS : NDP_SPREAD_SAME);
    return p->to->status;
}
