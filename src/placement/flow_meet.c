/* Where tiles of a call's operands meet: tiles with common indices of each letter (ops/flow.h) must have the same of
 * the whole there, and make a tile of each result, whose share is the product of theirs and of what the indices are of
 * those that the result lacks. */
#include "placement/rule.h"

#include <math.h>
#include <string.h>

/* The indices of a letter: [first, first + n) here are [at, at + n) of `total`. */
typedef struct indices {
    char letter;       /* small */
    int operand, axis; /* that has it first */
    int64_t first, n, at, total;
    uint64_t among; /* of rows in some order: which (content.h) */
} indices;

/* One tile of each operand so far. */
typedef struct meeting_tiles {
    ndp_share share;
    int n; /* letters known so far */
    indices of['z' - 'a' + 1];
} meeting_tiles;

static char small(char c) { return (char)(c | 32); }

/* NULL: not known. */
static const indices *find(const meeting_tiles *p, char c) {
    for (int i = 0; i < p->n; i++)
        if (p->of[i].letter == small(c))
            return &p->of[i];
    return NULL;
}

/* ---- meeting ---- */

/* The indices of an axis of a tile. */
static indices extent_of(const ndp_rule *r, int k, int axis, const ndp_tile *t) {
    int64_t unit = ndp_flow_unit(r, &r->flow->in[k], axis);
    return (indices){.letter = small(r->flow->in[k].axes[axis]),
                     .operand = k,
                     .axis = axis,
                     .first = (axis ? t->col : t->row) / unit,
                     .n = (axis ? t->cols : t->rows) / unit,
                     .at = (axis ? t->at_col : t->at_row) / unit,
                     .total = ndp_flow_whole(r, &r->flow->in[k], axis),
                     .among = axis ? 0 : t->among};
}

static bool meets(const ndp_rule *r, const meeting_tiles *p, int k, const ndp_tile *t) {
    for (int axis = 0; axis < 2; axis++) {
        char c = r->flow->in[k].axes[axis];
        indices e = extent_of(r, k, axis, t);
        const indices *is = ndp_flow_is_letter(c) ? find(p, c) : NULL;
        if (c == '.' ? e.first > 0 : is && (e.first >= is->first + is->n || is->first >= e.first + e.n))
            return false;
    }
    return true;
}

/* Index `first` of both is not the same one of the whole. */
static ndp_status refuse_other(const ndp_rule *r, const indices *a, const indices *b, int64_t first) {
    static const char *const axes[] = {"row", "column"};
    const ndp_flow_matrix *m = &r->flow->in[b->operand];
    int value = ndp_flow_value(r, m);
    long long one = a->at + first - a->first, other = b->at + first - b->first;
    bool input = value != NDP_NONE && r->g->values[value].kind == NDP_VALUE_DATA;
    const char *name = input ? r->g->inputs->items[r->g->values[value].input].name : "";
    if (a->among != b->among)
        return input ? ndp_refuse(r, "%s is by row, and the rows of operand %d stand in some order", name, a->operand)
                     : ndp_refuse(r, "the rows of operands %d and %d stand in other orders", a->operand, b->operand);
    return input ? ndp_refuse(r, "%s is of row %lld where the rows of operand %d are from %lld on", name, other,
                              a->operand, one)
                 : ndp_refuse(r, "operands %d and %d are of other %ss: %s %lld of one meets %s %lld of the other",
                              a->operand, b->operand, axes[b->axis], axes[a->axis], one, axes[b->axis], other);
}

/* The tile's indices are those of the letters, as far as these are known. */
static ndp_status bind(const ndp_rule *r, meeting_tiles *p, int k, int axis, const ndp_tile *t) {
    char c = r->flow->in[k].axes[axis];
    int64_t unit = ndp_flow_unit(r, &r->flow->in[k], axis);
    if (!ndp_flow_is_letter(c))
        return NDP_OK;
    if (axis && (t->col % unit || t->cols % unit || t->at_col % unit))
        return ndp_refuse(r, "operand %d has %lld of the %lld columns that it norms, from %lld on", k,
                          (long long)t->cols, (long long)unit, (long long)t->at_col);
    indices *is = (indices *)find(p, c), e = extent_of(r, k, axis, t);
    if (!is) {
        p->of[p->n++] = e;
        return NDP_OK;
    }
    int64_t end = is->first + is->n < e.first + e.n ? is->first + is->n : e.first + e.n;
    int64_t first = is->first > e.first ? is->first : e.first;
    if (is->at - is->first != e.at - e.first || is->among != e.among)
        return refuse_other(r, is, &e, first);
    is->total = is->total ? is->total : e.total;
    is->at += first - is->first, is->first = first, is->n = end - first;
    return NDP_OK;
}

/* An operand without elements knows of one axis that this rank has nothing of it. */
static void bind_empty(const ndp_rule *r, meeting_tiles *p, int k) {
    for (int axis = 0; axis < 2; axis++) {
        char c = r->flow->in[k].axes[axis];
        if (!ndp_flow_is_letter(c) || (axis ? r->in[k].cols : r->in[k].rows) > 0)
            continue;
        const indices *is = find(p, c);
        p->of[is ? is - p->of : p->n++] = (indices){.letter = small(c),
                                                    .operand = k,
                                                    .at = c == 'v' ? r->c->attr.first : 0,
                                                    .total = ndp_flow_whole(r, &r->flow->in[k], axis)};
    }
}

/* ---- results ---- */

/* How many ranks count each column: attr.scale is 1 / (columns x copies). 0: it is not such a number. */
static int64_t copies_of(const ndp_rule *r) {
    double copies = 1 / (r->c->attr.scale * (double)r->g->values[r->n->in[0]].view.cols);
    return copies >= 0.5 && fabs(copies - rint(copies)) < 1e-6 ? (int64_t)rint(copies) : 0;
}

static ndp_status times_of(const ndp_rule *r, ndp_flow_times times, ndp_share *out) {
    ndp_share direct = ndp_share_random(ndp_node_dim(r, '='));
    bool copies = times == NDP_TIMES_COPIES || times == NDP_TIMES_INDIRECT;
    *out = times == NDP_TIMES_DIRECT     ? direct
           : times == NDP_TIMES_INDIRECT ? ndp_share_sub(1, direct)
           : times == NDP_TIMES_PARTS    ? ndp_share_inverse(ndp_share_of(r->c->attr.parts))
                                         : 1;
    if (copies && copies_of(r) == 0)
        return ndp_refuse(r, "its scale is %g, must be 1 / (columns x the ranks that have each)", r->c->attr.scale);
    *out = copies ? ndp_share_mul(*out, ndp_share_inverse(ndp_share_of(copies_of(r)))) : *out;
    return NDP_OK;
}

/* The share of a sum over a letter that these indices are. Rows in some order count by those that they are choices of,
 * and by the rounds that they come in. */
static ndp_share measure(const ndp_rule *r, const indices *e) {
    int64_t choices = e->among ? e->total / r->g->inputs->rows[NDP_EXTENT_TOKENS] : 1;
    const ndp_row_set *set = e->among ? ndp_row_set_find(r->sets, e->among) : NULL;
    ndp_share rounds = set ? set->weight : 1;
    return e->among || e->letter == 't'
               ? ndp_share_mul(rounds, ndp_rows_share(&r->lane->batch, e->at / choices,
                                                      (e->at + e->n) / choices - e->at / choices))
               : ndp_range_share(ndp_node_dim(r, e->letter - 'a'), e->total, e->at, e->at + e->n);
}

/* Values are of the samples of one coordinate on dp_shard: a sum over rows is complete when it has all of its own. */
static ndp_share share_of_sum(const ndp_rule *r, const ndp_flow_matrix *m, const indices *e) {
    const ndp_lane_real *b = &r->lane->batch;
    ndp_share own = ndp_rows_share(b, r->lane->first_row, b->stretch), share = measure(r, e);
    bool value = m->is == NDP_FLOW_RESULT && (e->letter == 't' || e->among);
    return value && own != 1 ? ndp_share_mul(share, ndp_share_inverse(own)) : share;
}

static ndp_status share_of(const ndp_rule *r, const meeting_tiles *p, const ndp_flow_matrix *m, ndp_share *out) {
    NDP_TRY(times_of(r, m->times, out));
    *out = ndp_share_mul(*out, p->share);
    for (int i = 0; i < p->n && m->times != NDP_TIMES_UNSUMMED; i++)
        if (p->of[i].letter != small(m->axes[0]) && p->of[i].letter != small(m->axes[1]))
            *out = ndp_share_mul(*out, share_of_sum(r, m, &p->of[i]));
    return NDP_OK;
}

static bool is_of_operand(const ndp_rule *r, char c) {
    bool any = false;
    for (int k = 0; k < r->c->n_in; k++)
        any = any || (ndp_flow_is_compared(r, k) && (r->flow->in[k].axes[0] == c || r->flow->in[k].axes[1] == c));
    return any;
}

int64_t ndp_first_of_param(const ndp_rule *r, const ndp_value *v, int axis) {
    const ndp_segment *s = &r->lane->tables[r->buffers[v->slot]].items[v->segment];
    return s->first[axis] - s->base[axis] + (axis == 0 ? s->stack_first * s->part[0] : 0);
}

/* The indices of an axis of result o; false: only operands without elements have them. */
static bool indices_of(const ndp_rule *r, const meeting_tiles *p, int o, int axis, int64_t *first, int64_t *n,
                       int64_t *at) {
    const ndp_flow_matrix *m = &r->flow->out[o];
    char c = m->axes[axis];
    bool letter = ndp_flow_is_letter(c);
    const indices *e = letter ? find(p, c) : NULL;
    int64_t unit = ndp_flow_unit(r, m, axis);
    int value = m->is == NDP_FLOW_D_OPERAND ? ndp_flow_value(r, m) : NDP_NONE;
    bool param = value != NDP_NONE && r->g->values[value].kind == NDP_VALUE_PARAM;
    *first = *at = 0, *n = axis ? r->out[o].cols : r->out[o].rows;
    if (e)
        *first = e->first * unit, *n = e->n * unit, *at = e->at * unit;
    else if (letter && is_of_operand(r, c))
        return false;
    else if (letter && param)
        *at = ndp_first_of_param(r, &r->g->values[value], axis);
    return true;
}

/* The gradient of a parameter; of a stack, these rows of the gradient of each matrix: if they are all, one tile. */
static ndp_status make_param_gradient(ndp_rule *r, int o, int value, ndp_tile t) {
    const ndp_stack *s = &r->stack;
    bool whole = s->groups > 0 && t.row == 0 && t.at_row == 0 && t.rows == s->rows && r->in[0].cols == s->rows;
    int64_t tiles = s->groups == 0 || whole ? 1 : s->groups;
    t.at_row += s->first * s->rows;
    if (whole)
        t.rows *= s->groups;
    for (int64_t e = 0; e < tiles; e++) {
        NDP_TRY(ndp_param_gradient(r, o, value, t));
        t.row += r->in[0].cols, t.at_row += s->rows;
    }
    return NDP_OK;
}

static ndp_status make_result(ndp_rule *r, int o, ndp_tile t) {
    const ndp_flow_matrix *m = &r->flow->out[o];
    ndp_flow_kind is = m->is != NDP_FLOW_EITHER ? m->is : r->back ? NDP_FLOW_D_OPERAND : NDP_FLOW_RESULT;
    int value = is == NDP_FLOW_RESULT ? r->n->out[m->of] : ndp_flow_value(r, m);
    switch (is) {
    case NDP_FLOW_RESULT:
        t.what = ndp_value_thing(r, value);
        if (r->unbiased)
            t.what.kind = NDP_THING_PRODUCT;
        break;
    case NDP_FLOW_COUNT:
        t.what = (ndp_thing){NDP_THING_DATA, r->g->values[value].input};
        break;
    case NDP_FLOW_D_SUM:
        t = ndp_gradient_tile(r, value, t, ndp_share_mul(t.share, r->uses->of[r->of][NDP_USE_NORM]));
        break;
    case NDP_FLOW_D_OPERAND:
        if (value == NDP_NONE)
            return ndp_refuse(r, "its node has no operand %d", m->of);
        t.share = ndp_share_mul(t.share, r->uses->of[r->of][m->of]);
        if (r->g->values[value].kind == NDP_VALUE_PARAM)
            return make_param_gradient(r, o, value, t);
        t = ndp_gradient_tile(r, value, t, t.share);
        break;
    default:
        t.what = (ndp_thing){ndp_flow_thing(is), r->of};
    }
    return ndp_result_add(r, o, t);
}

/* Other tiles of the operands have made it: what is not a sum over them does not count again. */
static bool is_made(const ndp_content *c, const ndp_tile *t) {
    ndp_tile part;
    for (int i = 0; i < c->n; i++)
        if (ndp_tile_cut(&c->tiles[i], t->row, t->rows, t->col, t->cols, &part))
            return true;
    return false;
}

static ndp_status make_results(ndp_rule *r, const meeting_tiles *p) {
    for (int o = 0; o < r->c->n_out; o++) {
        const ndp_flow_matrix *m = &r->flow->out[o];
        ndp_tile t = {.made = NDP_NONE};
        if (m->is == NDP_FLOW_NONE || !ndp_rule_wants(r, o))
            continue;
        if (!indices_of(r, p, o, 0, &t.row, &t.rows, &t.at_row) ||
            !indices_of(r, p, o, 1, &t.col, &t.cols, &t.at_col)) {
            NDP_TRY(r->out[o].n == 0 ? ndp_result_zero(r, o) : NDP_OK);
            continue;
        }
        const indices *rows = ndp_flow_is_letter(m->axes[0]) ? find(p, m->axes[0]) : NULL, *ids = find(p, 'v');
        t.among = rows ? rows->among : 0;
        if (m->is == NDP_FLOW_STATISTICS) /* of ids from there on */
            t.at_col = ids ? ids->at : 0;
        NDP_TRY(share_of(r, p, m, &t.share));
        if (m->times == NDP_TIMES_UNSUMMED && is_made(&r->out[o], &t))
            t.share = 0;
        NDP_TRY(make_result(r, o, t));
    }
    return NDP_OK;
}

/* attr.first is the first id. */
static ndp_status expect_first(const ndp_rule *r, const meeting_tiles *p) {
    const indices *v = find(p, 'v');
    int64_t first = r->c->attr.first;
    const ndp_flow_matrix *m = &r->flow->out[0];
    if (v)
        first = v->at - v->first;
    else if (m->axes[0] == 'v' && !is_of_operand(r, 'v'))
        first = ndp_first_of_param(r, &r->g->values[r->n->in[m->of]], 0);
    return r->lane->stands_in || r->c->attr.first == first
               ? NDP_OK
               : ndp_refuse(r, "its first id is %lld, must be %lld", (long long)r->c->attr.first, (long long)first);
}

static bool has_ids(const ndp_op_flow *f) {
    bool any = false;
    for (int k = 0; k < NDP_OP_MAX_IN; k++)
        any |= f->in[k].axes[0] == 'v' || f->in[k].axes[1] == 'v';
    return any || f->out[0].axes[0] == 'v';
}

/* Of the letters only those that are known: most ops have four. */
static void copy(meeting_tiles *to, const meeting_tiles *from) {
    to->share = from->share, to->n = from->n;
    memcpy(to->of, from->of, (size_t)from->n * sizeof to->of[0]);
}

/* Each tile of operand k, and of those after it, that meets those before. */
static ndp_status visit(ndp_rule *r, const meeting_tiles *at, int k) {
    while (k < r->c->n_in && !ndp_flow_is_compared(r, k))
        k++;
    if (k == r->c->n_in) {
        NDP_TRY(has_ids(r->flow) ? expect_first(r, at) : NDP_OK);
        return make_results(r, at);
    }
    meeting_tiles next;
    copy(&next, at);
    if (r->in[k].n == 0) {
        bind_empty(r, &next, k);
        return visit(r, &next, k + 1);
    }
    const indices *rows = ndp_flow_is_letter(r->flow->in[k].axes[0]) ? find(at, r->flow->in[k].axes[0]) : NULL;
    for (int i = 0; i < r->in[k].n; i++) {
        const ndp_tile *t = &r->in[k].tiles[i];
        if (rows && (t->row >= rows->first + rows->n || t->row + t->rows <= rows->first)) /* of many tiles, most */
            continue;
        if (!meets(r, at, k, t))
            continue;
        copy(&next, at);
        for (int axis = 0; axis < 2; axis++)
            NDP_TRY(bind(r, &next, k, axis, t));
        next.share = ndp_share_mul(next.share, t->share);
        NDP_TRY(visit(r, &next, k + 1));
    }
    return NDP_OK;
}

ndp_status ndp_flow_meet(ndp_rule *r) {
    meeting_tiles none;
    none.share = 1, none.n = 0;
    return visit(r, &none, 0);
}
