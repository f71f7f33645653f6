/* The head over the tensor axis: each rank has a slice of the vocabulary. Logits are made in chunks of rows, never all.
 *
 *   xent      x -> logits of the slice, statistics of their rows --all_gather--> nll, dx (a part), dw
 *   row_loss  x -> logits of the slice --all_gather--> the host's function: nll, slopes -> dx (a part), dw
 *
 * With one slice xent is one op, which makes its chunks itself. */
#include "parallel/pass.h"

/* Rows of a chunk, where nothing says more, and of every one of row_loss. The logits of two chunks exist at a time. */
enum { CHUNK_ROWS = 256 };

typedef struct head {
    int x, w, labels, scale, nll, dx, dw, values;
    int64_t rows;
    ndp_op_attr attr;
} head;

typedef struct chunk {
    int64_t first, rows;
    int x, labels, logits, stats;
} chunk;

/* The logits of a chunk, and every rank's statistics of them. */
static chunk begin_chunk(ndp_pass *p, const head *h, int64_t first, int64_t rows) {
    chunk c = {.first = first, .rows = h->rows - first < rows ? h->rows - first : rows};
    c.x = ndp_graph_rows(p->to, h->x, first, c.rows);
    c.labels = ndp_graph_rows(p->to, h->labels, first, c.rows);
    int outs[2] = {NDP_NONE, NDP_NONE};
    ndp_graph_op(p->to, &ndp_op_xent_logits, &h->attr, "logits", (int[]){c.x, h->w, c.labels}, 3, outs, 2);
    c.logits = outs[0];
    ndp_op_attr attr = ndp_pass_over_tp(p);
    c.stats = ndp_graph_op1(p->to, &ndp_op_all_gather, &attr, "logit statistics", &outs[1], 1);
    return c;
}

static void end_chunk(ndp_pass *p, const head *h, const chunk *c) {
    bool each = p->to->values[h->scale].view.rows > 1;
    int scale = each ? ndp_graph_rows(p->to, h->scale, c->first, c->rows) : h->scale;
    int outs[4] = {ndp_graph_rows(p->to, h->nll, c->first, c->rows),
                   h->dx == NDP_NONE ? NDP_NONE : ndp_graph_rows(p->to, h->dx, c->first, c->rows), h->dw,
                   h->values == NDP_NONE ? NDP_NONE : ndp_graph_rows(p->to, h->values, c->first, c->rows)};
    ndp_graph_op(p->to, &ndp_op_xent_grad, &h->attr, "nll", (int[]){c->logits, c->stats, c->x, h->w, c->labels, scale},
                 6, outs, p->node->n_out);
}

/* Each chunk reads w twice and adds to dw, which on a GPU takes longer than the products of a few hundred rows. So
 * there it has up to head_rows, of at most 256 MiB of logits. */
static int64_t chunk_rows(const ndp_pass *p, const head *h) {
    int64_t bytes = (int64_t)sizeof(float) * p->to->values[h->w].view.rows, fit = (256 << 20) / bytes;
    fit = (fit < p->how.head_rows ? fit : p->how.head_rows) / CHUNK_ROWS * CHUNK_ROWS;
    return fit > CHUNK_ROWS ? fit : CHUNK_ROWS;
}

/* One chunk ahead: while the statistics of a chunk are gathered, the logits of the next are computed. */
static void write_chunks(ndp_pass *p, const head *h) {
    int64_t rows = chunk_rows(p, h);
    chunk now = begin_chunk(p, h, 0, rows);
    for (int64_t next = rows; next < h->rows; next += rows) {
        chunk ahead = begin_chunk(p, h, next, rows);
        end_chunk(p, h, &now);
        now = ahead;
    }
    end_chunk(p, h, &now);
}

static head head_of(ndp_pass *p) {
    const ndp_node *n = p->node;
    bool cut = p->tp > 1;
    head h = {.x = cut ? ndp_pass_enter(p, 0) : ndp_pass_in(p, 0),
              .w = ndp_pass_in(p, 1),
              .labels = ndp_pass_in(p, 2),
              .scale = ndp_pass_in(p, 3),
              .dx = NDP_NONE,
              .values = NDP_NONE,
              .dw = n->attr.train && n->n_out > 2 ? ndp_pass_value(p, n->out[2]) : NDP_NONE,
              .attr = n->attr};
    const ndp_view *x = &p->to->values[h.x].view;
    ndp_dtype compute = p->to->compute;
    int64_t cols = x->cols;
    h.rows = x->rows;
    h.attr.first = ndp_pass_segment(p, h.w)->first[0];
    h.attr.vocab = ndp_pass_segment(p, h.w)->rows;
    h.attr.parts = p->tp;
    h.attr.wide_grad = cut && ndp_pass_over_tp(p).wide_grad;
    h.nll = ndp_graph_value(p->to, "nll", h.rows, 1, ndp_wide(compute));
    if (n->attr.values)
        h.values = ndp_graph_value(p->to, "values", h.rows, p->from->values[n->out[3]].view.cols, ndp_wide(compute));
    if (n->attr.train)
        h.dx = ndp_graph_value(p->to, "dx", h.rows, cols, cut ? ndp_wide(compute) : compute);
    return h;
}

static ndp_status end_head(ndp_pass *p, const head *h) {
    const ndp_op_attr *attr = &p->node->attr;
    if (attr->train)
        ndp_graph_op(p->to, &ndp_op_given_gradient, attr, "given", (int[]){h->x, h->dx}, 2, NULL, 0);
    ndp_pass_out(p, 0, h->nll, NDP_SPREAD_SAME);
    if (h->values != NDP_NONE)
        ndp_pass_out(p, 3, h->values, NDP_SPREAD_SAME);
    return p->to->status;
}

/* The node as it is. */
static ndp_status write_whole(ndp_pass *p) {
    const ndp_node *n = p->node;
    int ins[4], outs[4] = {NDP_NONE, NDP_NONE, NDP_NONE, NDP_NONE};
    if (n->attr.train && n->n_out > 2)
        outs[2] = ndp_pass_value(p, n->out[2]);
    for (int i = 0; i < 4; i++)
        ins[i] = ndp_pass_in(p, i);
    ndp_graph_op(p->to, &ndp_op_xent, &n->attr, "nll", ins, 4, outs, n->n_out);
    ndp_pass_out(p, 0, outs[0], NDP_SPREAD_SAME);
    for (int i = 1; i < n->n_out; i += 2) /* dx, values */
        if (outs[i] != NDP_NONE)
            ndp_pass_out(p, i, outs[i], NDP_SPREAD_SAME);
    return p->to->status;
}

ndp_status ndp_tensor_xent(ndp_pass *p) {
    if (p->tp == 1)
        return write_whole(p);
    head h = head_of(p);
    write_chunks(p, &h);
    return end_head(p, &h);
}

/* ---- a loss of rows of logits ---- */

/* The logits of a chunk. Slices may differ in length: in what is gathered each has room for the longest. */
static int write_logits(ndp_pass *p, const head *h, const chunk *c, int *all) {
    int64_t vocab = p->node->attr.vocab, most = (vocab + p->tp - 1) / p->tp;
    int room = ndp_graph_value(p->to, "logits", c->rows, most, ndp_wide(p->to->compute)), own = room;
    ndp_op_attr over = ndp_pass_over_tp(p);
    if (vocab % p->tp) {
        room = ndp_graph_op1(p->to, &ndp_op_zero, NULL, "logits", &room, 1);
        own = ndp_graph_columns(p->to, room, 0, h->attr.vocab);
    }
    ndp_graph_op(p->to, &ndp_op_linear, &h->attr, "logits", (int[]){c->x, h->w, NDP_NONE}, 3, &own, 1);
    *all = p->tp == 1 ? NDP_NONE : ndp_graph_op1(p->to, &ndp_op_all_gather, &over, "all logits", &room, 1);
    return own;
}

static void write_loss_chunk(ndp_pass *p, const head *h, chunk *c) {
    ndp_op_attr attr = h->attr;
    bool each = p->to->values[h->scale].view.rows > 1;
    int all, outs[2] = {ndp_graph_rows(p->to, h->nll, c->first, c->rows), NDP_NONE};
    int scale = each ? ndp_graph_rows(p->to, h->scale, c->first, c->rows) : h->scale;
    c->x = ndp_graph_rows(p->to, h->x, c->first, c->rows);
    c->labels = ndp_graph_rows(p->to, h->labels, c->first, c->rows);
    c->logits = write_logits(p, h, c, &all);
    attr.vocab = p->node->attr.vocab, attr.type = p->to->compute;
    ndp_graph_op(p->to, &ndp_op_row_slopes, &attr, "nll", (int[]){c->logits, all, c->labels, scale}, 4, outs, 2);
    if (h->dx != NDP_NONE) {
        int dx = ndp_graph_rows(p->to, h->dx, c->first, c->rows);
        ndp_graph_op(p->to, &ndp_op_linear_dx, &h->attr, "dx", (int[]){outs[1], h->w, NDP_NONE}, 3, &dx, 1);
    }
    if (h->dw != NDP_NONE)
        ndp_graph_op(p->to, &ndp_op_linear_dw, &h->attr, "dw", (int[]){outs[1], c->x}, 2, &(int){h->dw}, 1);
}

ndp_status ndp_tensor_row_loss(ndp_pass *p) {
    head h = head_of(p);
    for (int64_t first = 0; first < h.rows; first += CHUNK_ROWS) {
        chunk c = {.first = first, .rows = h.rows - first < CHUNK_ROWS ? h.rows - first : CHUNK_ROWS};
        write_loss_chunk(p, &h, &c);
    }
    return end_head(p, &h);
}
