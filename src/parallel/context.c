/* The axes that cut the sequence. Ops whose rows are alike only see fewer rows; attention sees others, by one of three
 * ways. ndp_context_attention writes the first two while the forward is written, ndp_context_ring the third into the
 * derived graph.
 *
 * Sequence axis (DeepSpeed Ulysses, arXiv:2309.14509): all_to_all exchanges rows for heads before attention, so that
 * each rank has all rows of some heads, and heads for rows after it. If there are fewer kv heads than ranks, several
 * ranks get the same one.
 *
 * placement/rules_attention.c says what a rank has of each value, and proves that all keys are merged.
 *
 * Context axis, all_gather: the keys and values of all ranks are gathered, and once more in the backward.
 *
 * Context axis, ring (arXiv:2310.01889): keys and values (kv) travel from rank to rank, one block a turn. Here cp = 3,
 * rank 1; a shift begins before the attention of its turn, which hides it:
 *
 *   turn     attends to the keys of   meanwhile
 *   0        rank 1                   sends kv of rank 1 to rank 2, receives kv of rank 0
 *   1        rank 0                   sends kv of rank 0 to rank 2, receives kv of rank 2
 *   2        rank 2
 *
 * Sinks are a part of turn 0 alone. Partial results over disjoint keys are merged by their log-sum-exp in wide storage
 * and rounded once. In the backward kv travels the same way, and its gradient (dkv) follows one turn behind, collecting
 * each rank's part; a last shift takes it home:
 *
 *   turn     adds to dkv of   then sends it to rank 2
 *   0        rank 1           (its own part)
 *   1        rank 0           (of ranks 0, 1)
 *   2        rank 2           (of ranks 2, 0, 1: complete, and rank 2 owns it)
 *
 * Invariant: after turn k a rank holds kv of the rank k + 1 places before it; ndp_row_cut_at lists k_pos in this order.
 * Blocks that a row may not see cost nothing: the attention op skips them. */
#include "parallel/pass.h"

#include <stdlib.h>
#include <string.h>

/* Operands of attention and of its backward. */
enum { Q, K, V, K_POS = 5, SINK, BWD_DO = 0, BWD_Q, BWD_K, BWD_V, BWD_K_POS = 8 };

/* ---- sequence axis ---- */

static ndp_op_attr over(ndp_group_kind group, int ranks) { return (ndp_op_attr){.group = (int)group, .ranks = ranks}; }

/* How this rank's heads, of `heads` in all, are cut over sp. What all tp ranks hold (see ndp_local_heads) is cut as if
 * over tp x sp, of which this rank's parts are some. */
static ndp_op_attr cut_of(const ndp_pass *p, int heads, int head_dim) {
    int here = ndp_local_heads(p->mesh, heads), sp = p->rows.sp;
    bool shared = p->tp > 1 && here == heads;
    return (ndp_op_attr){.parts = sp,
                         .heads = here,
                         .head_dim = head_dim,
                         .type = p->to->compute,
                         .all_parts = shared ? sp * p->tp : sp,
                         .first = shared ? (int64_t)p->mesh->coord[NDP_TP] * sp : 0};
}

static int heads_of_part(const ndp_op_attr *cut) {
    return cut->heads >= cut->all_parts ? cut->heads / cut->all_parts : 1;
}

/* x [T, heads D] -> of the rows of the group's ranks, one rank's after another, this rank's heads. */
static int rows_for_heads(ndp_pass *p, int x, ndp_op_attr split, ndp_group_kind group) {
    ndp_op_attr exchange = over(group, split.parts);
    const char *name = p->to->values[x].name;
    int parts = ndp_graph_op1(p->to, &ndp_op_heads_split, &split, name, &x, 1);
    return ndp_graph_op1(p->to, &ndp_op_all_to_all, &exchange, name, &parts, 1);
}

static int heads_for_rows(ndp_pass *p, int o, ndp_op_attr merge, ndp_group_kind group) {
    ndp_op_attr exchange = over(group, merge.parts);
    const char *name = p->to->values[o].name;
    int parts = ndp_graph_op1(p->to, &ndp_op_all_to_all, &exchange, name, &o, 1);
    return ndp_graph_op1(p->to, &ndp_op_heads_merge, &merge, name, &parts, 1);
}

/* ---- context axis, gathering ---- */

static int gather_rows(ndp_pass *p, int x, bool wide_grad) {
    ndp_op_attr attr = over(NDP_GROUP_CP, p->rows.cp);
    attr.wide_grad = wide_grad, attr.type = p->to->compute;
    int rows = ndp_pass_contiguous(p, x);
    return ndp_graph_op1(p->to, &ndp_op_all_gather, &attr, p->to->values[x].name, &rows, 1);
}

/* Gradients of keys and values are wide until their last sum over ranks is made, which rounds them: that of repeated
 * heads, else that of gathered rows. */
ndp_status ndp_context_attention(ndp_pass *p) {
    const ndp_row_cut *rows = &p->rows;
    ndp_op_attr attr = p->node->attr;
    ndp_op_attr q_cut = cut_of(p, attr.heads, attr.head_dim), kv_cut = cut_of(p, attr.kv_heads, attr.head_dim);
    ndp_op_attr cuts[] = {q_cut, kv_cut, kv_cut}, o_cut = q_cut;
    cuts[V].head_dim = o_cut.head_dim = ndp_v_dim(&attr);
    bool wide = p->to->compute != ndp_wide(p->to->compute), gathers = rows->cp > 1 && !rows->ring,
         repeats = rows->sp > 1 && kv_cut.heads < kv_cut.all_parts;
    int ins[NDP_OP_MAX_IN], n_in = p->node->n_in;
    cuts[K].wide_grad = cuts[V].wide_grad = wide && repeats;
    for (int i = 0; i < n_in; i++)
        ins[i] = ndp_pass_in(p, i);
    for (int i = 0; i < 3 && rows->sp > 1; i++)
        ins[i] = rows_for_heads(p, ins[i], cuts[i], NDP_GROUP_SP);
    for (int i = 1; i < 3 && gathers; i++)
        ins[i] = gather_rows(p, ins[i], wide && !repeats);
    if (rows->ring) /* this rank's own keys; ndp_context_ring adds the other turns */
        ins[5] = ndp_graph_rows(p->to, ins[5], 0, rows->queries);
    attr.heads = heads_of_part(&q_cut);
    attr.kv_heads = heads_of_part(&kv_cut);
    attr.first = n_in > SINK ? (int64_t)rows->sp_rank * attr.heads : 0;
    attr.wide_grad = wide && (repeats || gathers);
    int outs[2] = {NDP_NONE, NDP_NONE};
    ndp_graph_op(p->to, &ndp_op_attention, &attr, "attention", ins, n_in, outs, 2);
    int o = rows->sp > 1 ? heads_for_rows(p, outs[0], o_cut, NDP_GROUP_SP) : outs[0];
    ndp_pass_out(p, 0, o, p->tp > 1 ? NDP_SPREAD_COLS : NDP_SPREAD_SAME);
    return p->to->status;
}

/* ---- layers with a state ----
 *
 * A state sees all rows before it. Over cp a rank has one or two pieces of rows (ops/row_pieces.h), and runs them from
 * the states before them, which state_maps.c makes. The convolution before it takes the last rows of the pieces before
 * its own, which are gathered; their gradient goes back.
 *
 * Each head has a state of its own. So over sp all_to_all exchanges rows for key heads with all that belongs to them,
 * as for attention, and heads for rows after it. If there are too few key heads for that, each rank of sp gathers all
 * rows of what a state is made of, and computes the same as the others; it goes on with its own rows of the result. The
 * gradient of the others' rows is 0 here, and the sums of the gathers' backward complete what the ranks make of the
 * rest. */

/* `heads`: key heads that this rank has before the exchange. */
static bool exchanges(const ndp_pass *p, int heads) { return heads % p->rows.sp == 0; }

/* How the columns of `heads` key heads are cut over sp. */
static ndp_op_attr cut_columns(const ndp_pass *p, int64_t columns, int heads) {
    int ranks = p->rows.sp;
    return (ndp_op_attr){.parts = ranks, .heads = heads, .head_dim = (int)(columns / heads), .all_parts = ranks};
}

/* The rows of a rank of cp, of a value of which this rank has its tokens and `heads` key heads; of its own key heads if
 * they are exchanged. The gradient of gathered rows arrives wide, and is rounded when it is summed. */
static int rows_of_context(ndp_pass *p, int x, int heads) {
    if (p->rows.sp == 1)
        return x;
    const ndp_view v = p->to->values[x].view;
    if (exchanges(p, heads))
        return rows_for_heads(p, x, cut_columns(p, v.cols, heads), NDP_GROUP_SP);
    ndp_op_attr attr = over(NDP_GROUP_SP, p->rows.sp);
    attr.type = v.dtype, attr.wide_grad = ndp_wide(v.dtype) != v.dtype;
    int rows = ndp_pass_contiguous(p, x);
    return ndp_graph_op1(p->to, &ndp_op_all_gather, &attr, p->to->values[rows].name, &rows, 1);
}

static int own_rows(ndp_pass *p, int x, int heads) {
    if (p->rows.sp == 1)
        return x;
    return exchanges(p, heads)
               ? heads_for_rows(p, x, cut_columns(p, p->to->values[x].view.cols * p->rows.sp, heads), NDP_GROUP_SP)
               : ndp_graph_rows(p->to, x, p->rows.sp_rank * p->rows.tokens, p->rows.tokens);
}

static ndp_op_attr in_pieces(const ndp_pass *p, ndp_op_attr attr) {
    if (p->rows.cp > 1)
        attr.ranks = p->rows.cp, attr.parts = p->rows.zigzag ? 2 : 1, attr.place = p->rows.cp_rank;
    return attr;
}

/* The last `n` rows of the pieces of all ranks of cp. */
static int ends_of_pieces(ndp_pass *p, int x, ndp_op_attr attr, int n) {
    const char *name = p->to->values[x].name;
    ndp_dtype type = p->to->values[x].view.dtype, wide = ndp_wide(type);
    ndp_op_attr gather = over(NDP_GROUP_CP, p->rows.cp);
    gather.wide_grad = wide != type, gather.type = attr.wide_grad ? wide : type;
    attr.ends = n;
    int ends = ndp_graph_op1(p->to, &ndp_op_piece_ends, &attr, name, &x, 1);
    return ndp_graph_op1(p->to, &ndp_op_all_gather, &gather, name, &ends, 1);
}

/* Of (x, taps, starts). */
ndp_status ndp_context_filter(ndp_pass *p) {
    int heads = ndp_local_heads(p->mesh, p->node->attr.heads);
    int ins[4] = {rows_of_context(p, ndp_pass_in(p, 0), heads), ndp_pass_in(p, 1), ndp_pass_in(p, 2), NDP_NONE};
    ndp_op_attr attr = ndp_local_attr(p->mesh, p->node->attr);
    if (exchanges(p, heads))
        attr.first = p->rows.sp_rank * p->to->values[ins[0]].view.cols;
    else
        attr.wide_grad = p->to->compute != ndp_wide(p->to->compute);
    int64_t before = p->to->values[ins[1]].view.cols - 1, piece = p->rows.queries / (p->rows.zigzag ? 2 : 1);
    if (p->rows.cp > 1 && before > 0) {
        attr = in_pieces(p, attr);
        ins[3] = ends_of_pieces(p, ins[0], attr, (int)(before < piece ? before : piece));
    }
    const char *name = p->from->values[p->node->out[0]].name;
    ndp_pass_out(p, 0, ndp_graph_op1(p->to, p->node->op, &attr, name, ins, 4),
                 p->tp > 1 ? NDP_SPREAD_COLS : NDP_SPREAD_SAME);
    return p->to->status;
}

/* Of (q, k, v, decay, b, starts): q, k and v were filtered. */
ndp_status ndp_context_delta(ndp_pass *p) {
    int ins[6];
    ndp_op_attr attr = in_pieces(p, ndp_local_attr(p->mesh, p->node->attr));
    int heads = attr.kv_heads, ranks = exchanges(p, heads) ? p->rows.sp : 1;
    for (int i = 0; i < 6; i++)
        ins[i] = i == 3 || i == 4 ? rows_of_context(p, ndp_pass_in(p, i), heads) : ndp_pass_in(p, i);
    attr.heads /= ranks, attr.kv_heads /= ranks;
    attr.wide_grad = !exchanges(p, heads) && p->to->compute != ndp_wide(p->to->compute);
    int o = ndp_graph_op1(p->to, p->node->op, &attr, p->from->values[p->node->out[0]].name, ins, 6);
    ndp_pass_out(p, 0, own_rows(p, o, heads), p->tp > 1 ? NDP_SPREAD_COLS : NDP_SPREAD_SAME);
    return p->to->status;
}

/* ---- context axis, ring ---- */

typedef struct ring {
    ndp_graph *g;
    const ndp_row_cut *rows;
    ndp_node_list list;
    ndp_node node; /* the attention, or its backward, of one turn */
    ndp_dtype type, wide;
    int64_t k_cols, v_cols, o_cols;
    int k_pos; /* data of all turns */
} ring;

static void append(ring *r, const ndp_op *op, const ndp_op_attr *attr, const char *name, const int *ins, int n_in,
                   int *outs, int n_out) {
    ndp_graph_append(r->g, r->list, op, attr, name, ins, n_in, outs, n_out);
}

static int value(ring *r, const char *name, int64_t cols, ndp_dtype type) {
    return ndp_graph_value(r->g, name, r->rows->queries, cols, type);
}

/* Keys or values of what travels, or their gradients. */
static int keys_of(ring *r, int kv) { return ndp_graph_columns(r->g, kv, 0, r->k_cols); }
static int values_of(ring *r, int kv) { return ndp_graph_columns(r->g, kv, r->k_cols, r->v_cols); }

static void copy(ring *r, int from, int to) {
    ndp_op_attr attr = {.type = r->g->values[to].view.dtype};
    append(r, &ndp_op_copy, &attr, "copy", &from, 1, &to, 1);
}

/* Keys and values side by side: what travels. */
static int pack(ring *r, int k, int v) {
    int kv = value(r, "kv", r->k_cols + r->v_cols, r->type);
    copy(r, k, keys_of(r, kv));
    copy(r, v, values_of(r, kv));
    return kv;
}

static int shift(ring *r, const char *name, int x) {
    ndp_op_attr attr = over(NDP_GROUP_CP, r->rows->cp);
    int y = NDP_NONE;
    append(r, &ndp_op_shift, &attr, name, &x, 1, &y, 1);
    return y;
}

static int keys_of_turn(ring *r, int turn) {
    return ndp_graph_rows(r->g, r->k_pos, turn * r->rows->queries, r->rows->queries);
}

/* Attention over the keys of one turn. `o` in wide storage: partial results are merged before they are rounded. */
static void turn_forward(ring *r, int turn, int kv, int *o, int *lse) {
    int ins[NDP_OP_MAX_IN], outs[2] = {value(r, "o", r->o_cols, r->wide), NDP_NONE};
    memcpy(ins, r->node.in, sizeof ins);
    if (turn > 0)
        ins[K] = keys_of(r, kv), ins[V] = values_of(r, kv), ins[K_POS] = keys_of_turn(r, turn);
    append(r, &ndp_op_attention, &r->node.attr, "attention", ins, turn == 0 ? r->node.n_in : SINK, outs, 2);
    if (turn == 0) {
        *o = outs[0], *lse = outs[1];
        return;
    }
    int merged[2] = {NDP_NONE, turn == r->rows->cp - 1 ? r->node.out[1] : NDP_NONE};
    append(r, &ndp_op_attention_merge, &r->node.attr, "attention", (int[]){*o, *lse, outs[0], outs[1]}, 4, merged, 2);
    *o = merged[0], *lse = merged[1];
}

static void ring_forward(ring *r) {
    int kv = pack(r, r->node.in[K], r->node.in[V]), turns = r->rows->cp, o = NDP_NONE, lse = NDP_NONE;
    for (int turn = 0; turn < turns; turn++) {
        int next = turn < turns - 1 ? shift(r, "kv", kv) : NDP_NONE;
        turn_forward(r, turn, kv, &o, &lse);
        kv = next;
    }
    copy(r, o, r->node.out[0]);
}

/* Gradients of one turn: dq, and those of its keys and values side by side, in wide storage. */
static void turn_backward(ring *r, int turn, int kv, int *dq, int *dkv) {
    int ins[NDP_OP_MAX_IN];
    *dq = value(r, "dq", r->g->values[r->node.in[BWD_Q]].view.cols, r->wide);
    *dkv = value(r, "dkv", r->k_cols + r->v_cols, r->wide);
    int outs[3] = {*dq, keys_of(r, *dkv), values_of(r, *dkv)};
    memcpy(ins, r->node.in, sizeof ins);
    if (turn > 0)
        ins[BWD_K] = keys_of(r, kv), ins[BWD_V] = values_of(r, kv), ins[BWD_K_POS] = keys_of_turn(r, turn);
    append(r, &ndp_op_attention_bwd, &r->node.attr, "attention", ins, 9, outs, 3);
}

static int add(ring *r, int a, int b, int to) {
    append(r, &ndp_op_add, NULL, "sum", (int[]){a, b}, 2, &to, 1);
    return to;
}

/* The shift of a block's gradients begins before that of the next block, and is waited for first. */
static void ring_backward(ring *r) {
    int kv = pack(r, r->node.in[BWD_K], r->node.in[BWD_V]), turns = r->rows->cp;
    int dq = NDP_NONE, dkv = NDP_NONE;
    for (int turn = 0; turn < turns; turn++) {
        int travelled = turn > 0 ? shift(r, "dkv", dkv) : NDP_NONE, dq_turn, dkv_turn;
        int next = turn < turns - 1 ? shift(r, "kv", kv) : NDP_NONE;
        turn_backward(r, turn, kv, &dq_turn, &dkv_turn);
        dkv = turn == 0 ? dkv_turn : add(r, travelled, dkv_turn, dkv_turn);
        dq = turn == 0 ? dq_turn : add(r, dq, dq_turn, turn == turns - 1 ? r->node.out[0] : dq);
        kv = next;
    }
    dkv = shift(r, "dkv", dkv);
    copy(r, keys_of(r, dkv), r->node.out[1]);
    copy(r, values_of(r, dkv), r->node.out[2]);
}

static ndp_status rewrite_list(ring *r) {
    ndp_nodes old = r->g->nodes[r->list];
    r->g->nodes[r->list] = (ndp_nodes){0};
    for (int i = 0; i < old.n && r->g->status == NDP_OK; i++) {
        r->node = old.items[i];
        r->g->writing = r->node.of;
        bool forward = r->node.op == &ndp_op_attention, backward = r->node.op == &ndp_op_attention_bwd;
        if (!forward && !backward) {
            append(r, r->node.op, &r->node.attr, r->node.op->name, r->node.in, r->node.n_in, r->node.out,
                   r->node.n_out);
            continue;
        }
        int k = r->node.in[forward ? K : BWD_K], v = r->node.in[forward ? V : BWD_V];
        int k_pos = r->node.in[forward ? K_POS : BWD_K_POS];
        r->k_cols = r->g->values[k].view.cols, r->v_cols = r->g->values[v].view.cols;
        r->o_cols = (int64_t)r->node.attr.heads * ndp_v_dim(&r->node.attr);
        r->k_pos = r->g->values[k_pos].parent;
        if (forward)
            ring_forward(r);
        else
            ring_backward(r);
    }
    free(old.items);
    r->g->writing = NDP_NONE;
    return r->g->status;
}

ndp_status ndp_context_ring(ndp_graph *g, const ndp_row_cut *rows) {
    ring r = {.g = g, .rows = rows, .type = g->compute, .wide = ndp_wide(g->compute)};
    for (int list = 0; list < NDP_NODE_LISTS; list++) {
        r.list = (ndp_node_list)list;
        NDP_TRY(rewrite_list(&r));
    }
    return NDP_OK;
}
