/* Functions of attention over the keys of one rank or of several, and of the exchange of rows for heads.
 *
 * Attention over some of the keys is not a summand: parts are merged by their log-sum-exp, and until all keys are in it
 * nothing else may read it (NDP_THING_KEYS). Its share is the measure of the keys. A sink counts as one key more,
 * behind the last one: without it, or with it twice, attention is over some of the keys forever. */
#include "ops/heads.h"
#include "placement/rule.h"

/* What a call attends with: heads here, of the whole. */
typedef struct heads {
    int64_t d, v, q, kv, whole_q, whole_kv; /* columns of a head of q, and of v; heads and kv heads here, of the node */
} heads;

static ndp_status expect_heads(const ndp_rule *r, int q, int k, heads *h) {
    const ndp_op_attr *a = &r->n->attr;
    *h = (heads){a->head_dim, ndp_v_dim(a), r->in[q].cols / a->head_dim, r->in[k].cols / a->head_dim,
                 a->heads,    a->kv_heads};
    if (h->q != r->c->attr.heads || h->kv != r->c->attr.kv_heads || h->kv < 1 || h->q % h->kv != 0)
        return ndp_refuse(r, "it has %d heads and %d kv heads, its operands %lld and %lld", r->c->attr.heads,
                          r->c->attr.kv_heads, (long long)h->q, (long long)h->kv);
    return NDP_OK;
}

/* The kv head that local head i reads, and whether it is that of the whole: *head, of the whole. `row`: of q. */
static ndp_status kv_of(ndp_rule *r, int k, const heads *h, int64_t i, int64_t head, int64_t *kv) {
    ndp_tile part;
    *kv = i / (h->q / h->kv);
    for (int j = 0; j < r->in[k].n; j++)
        if (ndp_tile_cut(&r->in[k].tiles[j], 0, r->in[k].rows, *kv * h->d, h->d, &part) &&
            (part.cols != h->d || part.at_col != head / (h->whole_q / h->whole_kv) * h->d))
            return ndp_refuse(r, "head %lld reads columns from %lld on of k, must read kv head %lld", (long long)head,
                              (long long)part.at_col, (long long)(head / (h->whole_q / h->whole_kv)));
    return NDP_OK;
}

/* The measure of the keys that are here, of kv head `kv`, among all and `more`; those of padding count, so that each
 * part has some. */
static ndp_share keys_of(const ndp_rule *r, int k, const heads *h, int64_t kv, int64_t more) {
    ndp_share sum = 0;
    ndp_tile t;
    int64_t rows = r->lane->program->opts.model->inputs->rows[NDP_EXTENT_KEYS] + more;
    for (int j = 0; j < r->in[k].n; j++)
        if (ndp_tile_cut(&r->in[k].tiles[j], 0, r->in[k].rows, kv * h->d, 1, &t))
            t.at_row -= r->lane->first_row,
                sum = ndp_share_add(sum, ndp_range_share(ndp_node_dim(r, 1), rows, t.at_row, t.at_row + t.rows));
    return sum;
}

/* Calls `each` for each run of rows and head of operand q (its tile has the head's d columns). */
static ndp_status for_heads(ndp_rule *r, int q, const heads *h, int64_t d,
                            ndp_status (*each)(ndp_rule *r, const heads *h, const ndp_tile *t, int64_t i)) {
    ndp_tile t;
    for (int j = 0; j < r->in[q].n; j++)
        for (int64_t i = 0; i < h->q; i++) {
            if (!ndp_tile_cut(&r->in[q].tiles[j], 0, r->in[q].rows, i * d, d, &t))
                continue;
            if (t.cols != d || t.at_col % d != 0)
                return ndp_refuse(r, "operand %d has a part of a head, columns from %lld on", q, (long long)t.at_col);
            NDP_TRY(each(r, h, &t, i));
        }
    return NDP_OK;
}

/* The columns of a head, `from` of them, as `to`: those of another operand, or the one of its statistic. */
static ndp_tile in_columns(ndp_tile t, int64_t from, int64_t to) {
    t.col = t.col / from * to, t.at_col = t.at_col / from * to, t.cols = t.cols / from * to;
    return t;
}

enum { SINK = 6 };

/* Operand k has the sink of head `head` of the whole where head i here has its own: *col. */
static ndp_status sink_of(const ndp_rule *r, int k, int64_t i, int64_t head, int64_t *col) {
    for (int j = 0; j < r->in[k].n; j++) {
        const ndp_tile *t = &r->in[k].tiles[j];
        *col = head - t->at_col + t->col;
        if (*col >= t->col && *col < t->col + t->cols && (r->lane->stands_in || *col == r->c->attr.first + i))
            return NDP_OK;
    }
    return ndp_refuse(r, "head %lld reads sink %lld of operand %d, which is another head's", (long long)head,
                      (long long)(r->c->attr.first + i), k);
}

static bool has_sinks(const ndp_rule *r) { return r->n->n_in > SINK && r->n->in[SINK] != NDP_NONE; }

/* The measure of the sink of head i, if the call has it. */
static ndp_status add_sink(const ndp_rule *r, int64_t i, int64_t head, ndp_share *sum) {
    int64_t rows = r->lane->program->opts.model->inputs->rows[NDP_EXTENT_KEYS], col;
    if (!ndp_rule_has(r, SINK))
        return NDP_OK;
    *sum = ndp_share_add(*sum, ndp_range_share(ndp_node_dim(r, 1), rows + 1, rows, rows + 1));
    return sink_of(r, SINK, i, head, &col);
}

static ndp_status attend(ndp_rule *r, const heads *h, const ndp_tile *q, int64_t i) {
    int64_t kv, col;
    NDP_TRY(kv_of(r, 1, h, i, q->at_col / h->d, &kv));
    ndp_tile t = in_columns(*q, h->d, h->v);
    t.share = keys_of(r, 1, h, kv, has_sinks(r));
    NDP_TRY(add_sink(r, i, q->at_col / h->d, &t.share));
    ndp_thing_kind kind = t.share == 1 ? NDP_THING_VALUE : NDP_THING_KEYS;
    t.what = (ndp_thing){kind, ndp_value_origin(r->g, r->n->out[0], &col)};
    NDP_TRY(ndp_result(r, 0, t));
    t = in_columns(t, h->v, 1);
    t.what = (ndp_thing){kind, ndp_value_origin(r->g, r->n->out[1], &col)};
    return ndp_result(r, 1, t);
}

/* Of (q, k, v, q_pos, q_low, k_pos, sink?). */
ndp_status ndp_after_attention(ndp_rule *r) {
    heads h;
    NDP_TRY(expect_heads(r, 0, 1, &h));
    if (!has_sinks(r) && r->c->attr.first != 0)
        return ndp_refuse(r, "its first head has sink %lld, and its node has none", (long long)r->c->attr.first);
    return for_heads(r, 0, &h, h.d, attend);
}

/* Attention parts, operands a and b, over disjoint keys. */
static ndp_status merge(ndp_rule *r, int a, int b, int value, int o) {
    NDP_TRY(ndp_expect(r, a, NDP_THING_KEYS, value, false));
    NDP_TRY(ndp_expect(r, b, NDP_THING_KEYS, value, false));
    for (int i = 0; i < r->in[a].n; i++)
        for (int j = 0; j < r->in[b].n; j++) {
            const ndp_tile *x = &r->in[a].tiles[i];
            ndp_tile t;
            if (!ndp_tile_cut(&r->in[b].tiles[j], x->row, x->rows, x->col, x->cols, &t))
                continue;
            t.share = ndp_share_add(x->share, t.share);
            t.what.kind = t.share == 1 ? NDP_THING_VALUE : NDP_THING_KEYS;
            NDP_TRY(ndp_result(r, o, t));
        }
    return NDP_OK;
}

/* Statistics, operand s, are over the same keys as attention, operand o. */
static ndp_status expect_same_keys(ndp_rule *r, int o, int s) {
    int64_t d = ndp_v_dim(&r->n->attr);
    ndp_tile part;
    for (int i = 0; i < r->in[o].n; i++) {
        ndp_tile t = r->in[o].tiles[i];
        t.cols = (t.cols + d - 1) / d, t.col /= d, t.at_col /= d;
        for (int j = 0; j < r->in[s].n; j++)
            if (ndp_tile_cut(&r->in[s].tiles[j], t.row, t.rows, t.col, t.cols, &part) &&
                (part.share != t.share || part.at_row - part.row != t.at_row - t.row ||
                 part.at_col - part.col != t.at_col - t.col))
                return ndp_refuse(r, "operands %d and %d are not over the same keys, rows and heads", o, s);
    }
    return NDP_OK;
}

/* Of (o, lse, o2, lse2). */
ndp_status ndp_after_attention_merge(ndp_rule *r) {
    NDP_TRY(expect_same_keys(r, 0, 1));
    NDP_TRY(expect_same_keys(r, 2, 3));
    NDP_TRY(merge(r, 0, 2, r->n->out[0], 0));
    return merge(r, 1, 3, r->n->out[1], 1);
}

/* ---- backward: (do, q, k, v, o, lse, q_pos, q_low, k_pos) -> dq, dk, dv ---- */

enum { D_O, Q, K, O = 4, LSE };

/* Head i of rows of do gives those rows of dq, and a summand of dk and dv of its kv head for all keys. */
static ndp_status attend_bwd(ndp_rule *r, const heads *h, const ndp_tile *d_o, int64_t i) {
    int64_t kv, group = h->whole_q / h->whole_kv, head = d_o->at_col / h->v, d[] = {h->d, h->d, h->v},
                rows = r->g->inputs->rows[NDP_EXTENT_QUERIES], first = d_o->at_row - r->lane->first_row;
    NDP_TRY(kv_of(r, K, h, i, head, &kv));
    ndp_share keys = ndp_share_mul(d_o->share, keys_of(r, K, h, kv, 0));
    ndp_tile dq = in_columns(*d_o, h->v, h->d);
    NDP_TRY(ndp_result(r, 0, ndp_gradient_tile(r, r->n->in[0], dq, ndp_share_mul(keys, r->uses->of[r->of][0]))));
    ndp_share queries = ndp_range_share(ndp_node_dim(r, 2), rows, first, first + d_o->rows);
    queries = ndp_share_mul(queries, ndp_range_share(ndp_node_dim(r, 3), group, head % group, head % group + 1));
    queries = ndp_share_mul(queries, d_o->share);
    for (int o = 1; o < 3; o++)
        for (int j = 0; j < r->in[Q + o].n; j++) {
            ndp_tile t;
            if (!ndp_rule_wants(r, o) ||
                !ndp_tile_cut(&r->in[Q + o].tiles[j], 0, r->in[Q + o].rows, kv * d[o], d[o], &t))
                continue;
            ndp_share share = ndp_share_mul(queries, r->uses->of[r->of][o]);
            NDP_TRY(ndp_result_add(r, o, ndp_gradient_tile(r, r->n->in[o], t, share)));
        }
    return NDP_OK;
}

ndp_status ndp_after_attention_bwd(ndp_rule *r) {
    heads h;
    NDP_TRY(expect_heads(r, Q, K, &h));
    NDP_TRY(expect_same_keys(r, O, LSE));
    return for_heads(r, D_O, &h, h.v, attend_bwd);
}

/* Of (do, o, lse, sink): head i of rows of do gives a summand of the gradient of its sink. */
static ndp_status sink_bwd(ndp_rule *r, const heads *h, const ndp_tile *d_o, int64_t i) {
    int64_t head = d_o->at_col / h->v, col = 0;
    NDP_TRY(sink_of(r, 3, i, head, &col));
    ndp_share queries = ndp_rows_share(&r->lane->batch, d_o->at_row, d_o->rows);
    ndp_tile t = {.rows = 1, .col = col, .cols = 1, .at_col = head};
    t.share = ndp_share_mul(ndp_share_mul(queries, d_o->share), r->uses->of[r->of][SINK]);
    return ndp_param_gradient(r, 0, r->n->in[SINK], t);
}

/* The sinks of heads that are not here get nothing. */
ndp_status ndp_after_attention_dsink(ndp_rule *r) {
    int64_t d = ndp_v_dim(&r->n->attr);
    heads h = {r->n->attr.head_dim, d, r->in[0].cols / d, 0, r->n->attr.heads, 0};
    if (h.q != r->c->attr.heads)
        return ndp_refuse(r, "it has %d heads, its operands %lld", r->c->attr.heads, (long long)h.q);
    NDP_TRY(expect_same_keys(r, 1, 2));
    NDP_TRY(for_heads(r, 0, &h, d, sink_bwd));
    for (int j = 0; j < r->in[3].n; j++)
        for (int64_t k = 0; k < r->in[3].tiles[j].cols; k++) {
            const ndp_tile *s = &r->in[3].tiles[j];
            ndp_tile t = {.rows = 1, .col = s->col + k, .cols = 1, .at_col = s->at_col + k};
            NDP_TRY(ndp_param_gradient(r, 0, r->n->in[SINK], t)); /* 0 more of it */
        }
    return NDP_OK;
}

/* ---- rows for heads, and in their order ---- */

/* The columns of a head of operand 0: of the delta rule and of what is filtered for it, those of a key head. */
static int64_t columns_of_head(const ndp_rule *r) {
    const ndp_op_attr *a = &r->n->attr;
    const int of[] = {r->n->out[0], r->n->in[2], r->n->in[0], r->n->in[1], r->n->in[3], r->n->in[4]};
    for (int i = 0; i < NDP_COUNT(of) && of[i] != NDP_NONE; i++)
        if (ndp_is(r, 0, NDP_THING_VALUE, of[i]) || ndp_is(r, 0, NDP_THING_GRADIENT, of[i]))
            return r->n->op != &ndp_op_attention
                       ? r->g->values[of[i]].view.cols / (a->kv_heads ? a->kv_heads : a->heads)
                   : i < 2 ? ndp_v_dim(a)
                           : a->head_dim;
    return 0;
}

/* How heads_split and heads_merge cut: part p of these has run (first + p) / repeats of `width` columns. */
typedef struct cut {
    int64_t width, repeats, first, parts, runs;
} cut;

static ndp_status cut_of(const ndp_rule *r, cut *out) {
    const ndp_op_attr *a = &r->c->attr;
    int64_t all = a->all_parts ? a->all_parts : a->parts, dim = columns_of_head(r);
    if (a->head_dim != dim)
        return ndp_refuse(r, "its head_dim is %d, must be %lld", a->head_dim, (long long)dim);
    if (a->heads < 1)
        return ndp_refuse(r, "it cuts %d heads", a->heads);
    out->repeats = a->heads < all ? all / a->heads : 1;
    out->width = (int64_t)a->heads * a->head_dim * out->repeats / all;
    out->first = a->first, out->parts = a->parts;
    out->runs = (int64_t)a->heads * a->head_dim / out->width;
    int64_t here = r->lane->mesh.coord[NDP_TP], of_program = r->lane->program->opts.step.mesh.coord[NDP_TP];
    if (all > a->parts && r->lane->stands_in)
        out->first += (here - of_program) * a->parts;
    return NDP_OK;
}

/* Heads of which no part is here are nothing: 0 of their gradient. */
static ndp_status add_absent(ndp_rule *r, const cut *c, int64_t rows) {
    const ndp_tile *like = &r->in[0].tiles[0];
    int64_t had = c->first / c->repeats, shift = like->at_col - like->col - had * c->width;
    for (int64_t run = 0; run < c->runs; run++) {
        if (run >= had && run * c->repeats < c->first + c->parts)
            continue;
        for (int i = 0; i < r->in[0].n; i++) {
            ndp_tile t = r->in[0].tiles[i];
            if (t.row >= rows || t.col > 0) /* the rows of the first part */
                continue;
            t.col = run * c->width, t.cols = c->width, t.at_col = run * c->width + shift;
            t.share = 0;
            NDP_TRY(ndp_result(r, 0, t));
        }
    }
    return NDP_OK;
}

/* Part p is columns of all rows on one side, and rows one part after another on the other one. */
static ndp_status move_heads(ndp_rule *r, bool merge) {
    cut c = {0};
    NDP_TRY(cut_of(r, &c));
    NDP_TRY(ndp_expect_all(r, 0));
    int64_t rows = merge ? r->in[0].rows / c.parts : r->in[0].rows;
    for (int64_t p = 0; p < c.parts; p++) {
        ndp_content part = ndp_content_of(r->arena, rows, c.width);
        int64_t col = (c.first + p) / c.repeats * c.width, row = p * rows;
        NDP_TRY(merge ? ndp_content_move(&r->in[0], row, rows, 0, c.width, 0, col, &part)
                      : ndp_content_move(&r->in[0], 0, rows, col, c.width, row, 0, &part));
        for (int i = 0; i < part.n; i++) {
            bool sums = merge && c.repeats > 1;
            if (sums && part.tiles[i].what.kind != NDP_THING_GRADIENT)
                return ndp_refuse(r, "it sums repeated heads that are not gradients");
            NDP_TRY(sums ? ndp_result_add(r, 0, part.tiles[i]) : ndp_result(r, 0, part.tiles[i]));
        }
    }
    return merge ? add_absent(r, &c, rows) : NDP_OK;
}

ndp_status ndp_after_heads_split(ndp_rule *r) { return move_heads(r, false); }
ndp_status ndp_after_heads_merge(ndp_rule *r) { return move_heads(r, true); }
