/* Functions of layers with a state, over rows of pieces (ops/row_pieces.h).
 *
 * Shares cannot state that maps are composed in their order, so the content does: a map is of rows [from, to), and two
 * compose only if the second begins where the first ends. A state is that after rows [0, to), and a scan of rows from a
 * on needs the one with to = a; of row 0 it needs none. Backward the same, from the last row on. What a row before a
 * piece gives to a convolution must be that very row. */
#include "ops/row_pieces.h"
#include "placement/rule.h"

/* The pieces of the lane that is judged. */
static ndp_op_attr pieces_of(const ndp_rule *r) {
    ndp_op_attr a = r->c->attr;
    a.place = r->lane->stands_in ? r->lane->mesh.coord[NDP_CP] : a.place;
    return a;
}

/* The first operand that is by row. */
static int by_row(const ndp_rule *r) {
    int k = 0;
    while (k < r->c->n_in && r->flow->in[k].axes[0] != 't')
        k++;
    return k;
}

static int64_t piece_rows(const ndp_rule *r) { return r->in[by_row(r)].rows / ndp_row_pieces_here(&r->c->attr); }

/* The first row of piece b, of the lane's own rows of the micro-batch. */
static int64_t first_of(const ndp_rule *r, int64_t b) {
    ndp_op_attr a = pieces_of(r);
    return a.ranks > 0 ? ndp_row_piece_number(&a, b) * piece_rows(r) : 0;
}

/* ---- rows ---- */

/* Rows of a piece stand in their order from its first one on. Without pieces all rows are here. */
ndp_status ndp_before_pieces(ndp_rule *r) {
    int k = by_row(r);
    int64_t piece = piece_rows(r), here = ndp_row_pieces_here(&r->c->attr);
    ndp_tile part;
    if (r->n->op == &ndp_op_conv_silu && r->g->values[r->n->in[1]].view.cols == 1)
        return NDP_OK; /* rows see themselves alone */
    if (r->c->attr.ranks == 0 && r->in[k].rows < r->lane->batch.real)
        return ndp_refuse(r, "it mixes rows, and operand %d has some of them only", k);
    for (int64_t b = 0; b < here; b++)
        for (int i = 0; i < r->in[k].n; i++)
            if (ndp_tile_cut(&r->in[k].tiles[i], b * piece, piece, 0, r->in[k].cols, &part) &&
                part.at_row - r->lane->first_row != first_of(r, b) + part.row - b * piece)
                return r->c->attr.ranks == 0
                           ? ndp_refuse(r, "it mixes rows, and operand %d has some of them only", k)
                           : ndp_refuse(r, "row %lld of operand %d is row %lld, and piece %lld begins with row %lld",
                                        (long long)part.row, k, (long long)(part.at_row - r->lane->first_row),
                                        (long long)b, (long long)first_of(r, b));
    return NDP_OK;
}

/* The tile of zeros, as rows of piece b of the gradient that `some` is a tile of. */
static ndp_status take_zero(const ndp_rule *r, const ndp_tile *zero, const ndp_tile *some, int64_t b, int64_t piece,
                            ndp_content *out) {
    ndp_op_attr a = pieces_of(r);
    ndp_tile t;
    if (!ndp_tile_cut(zero, b * piece, piece, 0, out->cols, &t))
        return NDP_OK;
    t.what = some->what, t.share = 0;
    t.at_row = r->lane->first_row + (a.ranks > 0 ? ndp_row_piece_number(&a, b) * piece : 0) + t.row - b * piece;
    t.at_col = t.col + some->at_col - some->col;
    return ndp_content_add(out, t);
}

ndp_status ndp_take_zeros(ndp_rule *r, int k) {
    ndp_content out = ndp_content_of(r->arena, r->in[k].rows, r->in[k].cols);
    int64_t here = ndp_row_pieces_here(&r->c->attr), piece = r->in[k].rows / here;
    const ndp_tile *some = NULL;
    for (int i = 0; i < r->in[k].n; i++)
        some = r->in[k].tiles[i].what.kind == NDP_THING_ZERO ? some : &r->in[k].tiles[i];
    for (int i = 0; some && i < r->in[k].n; i++) {
        const ndp_tile *t = &r->in[k].tiles[i];
        bool zero = t->what.kind == NDP_THING_ZERO;
        NDP_TRY(zero ? NDP_OK : ndp_content_add(&out, *t));
        for (int64_t b = 0; zero && b < here; b++)
            NDP_TRY(take_zero(r, t, some, b, piece, &out));
    }
    r->in[k] = some ? out : r->in[k];
    return NDP_OK;
}

/* ---- the convolution ---- */

enum { TAPS = 5 }; /* the dimension of the node that a row's gradient is measured by */

static int64_t taps_of(const ndp_rule *r) { return r->g->values[r->n->in[1]].view.cols; }

/* How many rows before piece b the taps reach. */
static int64_t rows_before(const ndp_rule *r, int64_t b) {
    int64_t reach = taps_of(r) - 1, before = first_of(r, b);
    return before < reach ? before : reach;
}

ndp_status ndp_expect_ends(const ndp_rule *r, int x, int ends) {
    ndp_op_attr a = pieces_of(r);
    ndp_tile part;
    if (a.ranks == 0)
        return NDP_OK;
    for (int64_t b = 0; b < ndp_row_pieces_here(&a); b++)
        for (int64_t back = 1; back <= rows_before(r, b); back++) {
            int64_t at = ndp_row_before_piece(&a, r->in[ends].rows, b, back);
            int64_t must = r->lane->first_row + first_of(r, b) - back;
            for (int i = 0; i < r->in[ends].n; i++)
                if (ndp_tile_cut(&r->in[ends].tiles[i], at, 1, 0, r->in[ends].cols, &part) &&
                    (part.at_row != must || part.at_col - part.col != r->in[x].tiles[0].at_col - r->in[x].tiles[0].col))
                    return ndp_refuse(r,
                                      "row %lld of operand %d is row %lld, columns from %lld on, where row %lld before "
                                      "piece %lld must be",
                                      (long long)at, ends, (long long)(part.at_row - r->lane->first_row),
                                      (long long)(part.at_col - part.col), (long long)(must - r->lane->first_row),
                                      (long long)b);
        }
    return NDP_OK;
}

/* The tile with the rows at the end of piece b cut off, those each by itself: later pieces give to them too, by the
 * taps that reach over its end. */
static ndp_status split_end(ndp_rule *r, const ndp_tile *t, int64_t b, ndp_content *out) {
    ndp_op_attr a = pieces_of(r);
    int64_t piece = piece_rows(r), taps = taps_of(r), end = (b + 1) * piece;
    bool last = a.ranks == 0 || ndp_row_piece_number(&a, b) == ndp_row_pieces(&a) - 1;
    int64_t split = last ? 0 : taps - 1 < piece ? taps - 1 : piece;
    ndp_tile part;
    if (ndp_tile_cut(t, b * piece, piece - split, 0, out->cols, &part))
        NDP_TRY(ndp_content_add(out, part));
    for (int64_t k = 0; k < split; k++)
        if (ndp_tile_cut(t, end - 1 - k, 1, 0, out->cols, &part)) {
            part.share = ndp_share_mul(part.share, ndp_range_share(ndp_node_dim(r, TAPS), taps, 0, k + 1));
            NDP_TRY(ndp_content_add(out, part));
        }
    return NDP_OK;
}

ndp_status ndp_after_conv_dx(ndp_rule *r) {
    ndp_content made = r->out[0];
    r->out[0] = ndp_content_of(r->arena, made.rows, made.cols);
    for (int i = 0; i < made.n; i++)
        for (int64_t b = 0; b < ndp_row_pieces_here(&r->c->attr); b++)
            NDP_TRY(split_end(r, &made.tiles[i], b, &r->out[0]));
    return NDP_OK;
}

/* What piece b gives to the row that is `back` rows before it: by the taps that reach it from there, and for the last
 * piece by those that would reach it from behind. */
static ndp_status give_before(ndp_rule *r, const ndp_op_attr *a, int64_t b, int64_t back) {
    int64_t piece = piece_rows(r), taps = taps_of(r), high = back + piece < taps ? back + piece : taps;
    if (ndp_row_piece_number(a, b) == ndp_row_pieces(a) - 1)
        high = taps;
    ndp_share given = ndp_range_share(ndp_node_dim(r, TAPS), taps, back, high);
    for (int i = 0; i < r->in[0].n; i++) {
        ndp_tile t;
        if (!ndp_tile_cut(&r->in[0].tiles[i], b * piece, 1, 0, r->in[0].cols, &t))
            continue;
        t.row = ndp_row_before_piece(a, r->out[0].rows, b, back);
        t.at_row -= back;
        ndp_share share = ndp_share_mul(ndp_share_mul(t.share, given), r->uses->of[r->of][0]);
        NDP_TRY(ndp_result_add(r, 0, ndp_gradient_tile(r, r->n->in[0], t, share)));
    }
    return NDP_OK;
}

static bool is_made(const ndp_content *c, int64_t row) {
    ndp_tile part;
    bool made = false;
    for (int i = 0; i < c->n; i++)
        made |= ndp_tile_cut(&c->tiles[i], row, 1, 0, c->cols, &part);
    return made;
}

ndp_status ndp_after_conv_dends(ndp_rule *r) {
    ndp_op_attr a = pieces_of(r);
    for (int64_t b = 0; b < ndp_row_pieces_here(&a); b++)
        for (int64_t back = 1; back <= rows_before(r, b); back++)
            NDP_TRY(give_before(r, &a, b, back));
    for (int64_t row = 0; row < r->out[0].rows; row++)
        if (!is_made(&r->out[0], row))
            NDP_TRY(ndp_result(r, 0,
                               (ndp_tile){.row = row, .rows = 1, .cols = r->out[0].cols, .what = {NDP_THING_ZERO, 0}}));
    return NDP_OK;
}

/* The rows at the end of piece b of `rows` rows. */
static int64_t end_of(const ndp_rule *r, int64_t rows, int64_t b) {
    return (b + 1) * (rows / r->c->attr.parts) - r->c->attr.ends;
}

ndp_status ndp_after_piece_ends(ndp_rule *r) {
    NDP_TRY(ndp_expect_all(r, 0));
    for (int64_t b = 0; b < r->c->attr.parts; b++)
        NDP_TRY(ndp_content_move(&r->in[0], end_of(r, r->in[0].rows, b), r->c->attr.ends, 0, r->in[0].cols,
                                 b * r->c->attr.ends, 0, &r->out[0]));
    return NDP_OK;
}

/* Rows [row, row + rows) of zeros. */
static ndp_status add_zeros(ndp_content *c, int64_t row, int64_t rows) {
    return ndp_content_add(c, (ndp_tile){.row = row, .rows = rows, .cols = c->cols, .what = {NDP_THING_ZERO, 0}});
}

/* Of (dy, x, acc?). */
ndp_status ndp_after_piece_ends_dx(ndp_rule *r) {
    int64_t rows = r->out[0].rows, piece = rows / r->c->attr.parts, ends = r->c->attr.ends;
    ndp_content given = ndp_content_of(r->arena, rows, r->out[0].cols), earlier = given;
    NDP_TRY(ndp_expect_all(r, 0));
    for (int64_t b = 0; b < r->c->attr.parts; b++) {
        NDP_TRY(add_zeros(&given, b * piece, piece - ends));
        NDP_TRY(ndp_content_move(&r->in[0], b * ends, ends, 0, given.cols, end_of(r, rows, b), 0, &given));
    }
    if (ndp_rule_has(r, 2))
        NDP_TRY(ndp_expect_all(r, 2));
    NDP_TRY(ndp_rule_has(r, 2) ? ndp_content_move(&r->in[2], 0, rows, 0, earlier.cols, 0, 0, &earlier)
                               : add_zeros(&earlier, 0, rows));
    return ndp_sum_contents(r, &earlier, &given, &r->out[0]);
}

/* ---- the delta rule: all heads of each kv head are where it is (NDP_EACH_GROUP) ---- */

/* Operands of a call that have the columns of key heads, and of value heads. */
static int keys_of(const ndp_rule *r) {
    return r->c->op == &ndp_op_delta_rule_bwd || r->c->op == &ndp_op_delta_map_back ? 1 : 0;
}
static int values_of(const ndp_rule *r) {
    return r->c->op == &ndp_op_delta_map_back ? 0 : r->c->op == &ndp_op_delta_map ? 1 : keys_of(r) + 2;
}

/* Rows of a state of each piece. */
static int64_t state_rows(const ndp_rule *r) { return (int64_t)r->c->attr.heads * r->n->attr.head_dim; }

/* The row of a state, in those of the whole, that is its first one here. */
static int64_t first_state_row(const ndp_rule *r) {
    const ndp_content *v = &r->in[values_of(r)];
    return v->n == 0 ? 0 : (v->tiles[0].at_col - v->tiles[0].col) / ndp_v_dim(&r->n->attr) * r->n->attr.head_dim;
}

/* Rows [row, row + state_rows) of operand k are of `kind`, of this node, of heads from `first` on; *of: one of them. */
static ndp_status expect_state(const ndp_rule *r, int k, ndp_thing_kind kind, int64_t row, int64_t first,
                               ndp_tile *of) {
    int found = 0;
    int64_t elements = 0;
    ndp_tile part;
    for (int i = 0; i < r->in[k].n; i++) {
        if (!ndp_tile_cut(&r->in[k].tiles[i], row, state_rows(r), 0, r->in[k].cols, &part))
            continue;
        if (!ndp_thing_is(part.what, kind, r->of))
            return ndp_refuse(r, "operand %d is %s, which it cannot take as a map or a state there", k,
                              ndp_tile_text(r, &part).s);
        if (part.at_row - (part.row - row) != first)
            return ndp_refuse(r, "operand %d has states of other heads from row %lld on", k, (long long)part.row);
        if (found++ > 0 && (part.from != of->from || part.to != of->to || part.share != of->share))
            return ndp_refuse(r, "operand %d has states of several rows for one piece", k);
        elements += part.rows * part.cols;
        *of = part;
    }
    return elements == state_rows(r) * r->in[k].cols
               ? NDP_OK
               : ndp_refuse(r, "operand %d has no state at row %lld, or a part of one", k, (long long)row);
}

/* The state before each piece, operand k, is that after the rows before it; the gradient after it, operand k + 1, that
 * of the rows after it. */
static ndp_status expect_states(ndp_rule *r, int k, bool backward) {
    ndp_tile t;
    for (int64_t b = 0; b < ndp_row_pieces_here(&r->c->attr) && r->c->attr.ranks > 0; b++) {
        int64_t a = first_of(r, b), end = a + piece_rows(r);
        if (!ndp_rule_has(r, k) || (backward && !ndp_rule_has(r, k + 1)))
            return ndp_refuse(r, "rows from %lld on have no state before them, or no gradient behind them",
                              (long long)a);
        NDP_TRY(expect_state(r, k, NDP_THING_STATES, b * state_rows(r), first_state_row(r), &t));
        if (t.from != 0 || t.to != a)
            return ndp_refuse(r, "it goes on at row %lld from the state after row %lld", (long long)a, (long long)t.to);
        if (backward)
            NDP_TRY(expect_state(r, k + 1, NDP_THING_DSTATES, b * state_rows(r), first_state_row(r), &t));
        if (backward && t.from != end)
            return ndp_refuse(r, "it goes back at row %lld from the gradient of the state at row %lld", (long long)end,
                              (long long)t.from);
    }
    return NDP_OK;
}

ndp_status ndp_before_delta_rule(ndp_rule *r) {
    bool rule = r->c->op == &ndp_op_delta_rule, bwd = r->c->op == &ndp_op_delta_rule_bwd;
    int64_t kv = r->in[keys_of(r)].cols / r->n->attr.head_dim, all = r->in[values_of(r)].cols / ndp_v_dim(&r->n->attr);
    if (all != r->c->attr.heads || kv != r->c->attr.kv_heads)
        return ndp_refuse(r, "it has %d heads and %d kv heads, its operands %lld and %lld", r->c->attr.heads,
                          r->c->attr.kv_heads, (long long)all, (long long)kv);
    return rule || bwd ? expect_states(r, bwd ? 7 : 6, bwd) : NDP_OK;
}

/* The part of all rows' gradients that rows [row, row + rows) of operand 0 are. */
static ndp_share part_of_rows(const ndp_rule *r, int64_t row, int64_t rows) {
    int64_t all = r->g->inputs->rows[NDP_EXTENT_QUERIES];
    ndp_share part = 0;
    ndp_tile t;
    for (int i = 0; i < r->in[0].n; i++)
        if (ndp_tile_cut(&r->in[0].tiles[i], row, rows, 0, 1, &t)) {
            int64_t first = t.at_row - r->lane->first_row;
            part = ndp_share_add(
                part, ndp_share_mul(t.share, ndp_range_share(ndp_node_dim(r, 2), all, first, first + t.rows)));
        }
    return part;
}

/* A row of the gradient of results gives to all rows before it: what a call makes of some rows of it is that part of
 * the gradient of every row. The gradient of the state behind a piece is of all rows that maps back were made of. */
ndp_status ndp_after_delta_rule_bwd(ndp_rule *r) {
    ndp_share part = r->c->attr.ranks > 0 ? r->in[8].tiles[0].share : part_of_rows(r, 0, r->in[0].rows);
    for (int o = 0; o < r->c->n_out; o++)
        for (int i = 0; i < r->out[o].n; i++)
            r->out[o].tiles[i].share = ndp_share_mul(part, r->uses->of[r->of][o]);
    return NDP_OK;
}

/* ---- maps of pieces ---- */

static ndp_status make_state(ndp_rule *r, ndp_thing_kind kind, int64_t b, int64_t first, int64_t from, int64_t to,
                             ndp_share share) {
    return ndp_result(r, 0,
                      (ndp_tile){.row = b * state_rows(r),
                                 .rows = state_rows(r),
                                 .cols = r->out[0].cols,
                                 .at_row = first,
                                 .from = from,
                                 .to = to,
                                 .what = {kind, r->of},
                                 .share = share});
}

/* Of each piece; `back`: of the gradient, a summand where rows of it are. */
static ndp_status make_maps(ndp_rule *r, bool back) {
    int64_t piece = piece_rows(r);
    for (int64_t b = 0; b < ndp_row_pieces_here(&r->c->attr); b++) {
        int64_t a = first_of(r, b);
        NDP_TRY(make_state(r, back ? NDP_THING_BACKS : NDP_THING_MAPS, b, first_state_row(r), a, a + piece,
                           back ? part_of_rows(r, b * piece, piece) : 1));
    }
    return NDP_OK;
}
ndp_status ndp_after_delta_map(ndp_rule *r) { return make_maps(r, false); }
ndp_status ndp_after_delta_map_back(ndp_rule *r) { return make_maps(r, true); }

/* The map of piece `number` of all, and with `back` that of the gradient. */
static ndp_status take_map(const ndp_rule *r, const ndp_op_attr *a, int64_t number, int64_t first, ndp_tile *map,
                           ndp_tile *back) {
    int64_t row = ndp_row_piece_at(a, number) * state_rows(r);
    NDP_TRY(expect_state(r, 0, NDP_THING_MAPS, row, first, map));
    if (!back)
        return NDP_OK;
    NDP_TRY(expect_state(r, 1, NDP_THING_BACKS, row, first, back));
    return back->from == map->from && back->to == map->to
               ? NDP_OK
               : ndp_refuse(r, "the map of rows %lld to %lld meets a gradient of rows %lld to %lld",
                            (long long)map->from, (long long)map->to, (long long)back->from, (long long)back->to);
}

static ndp_status refuse_order(const ndp_rule *r, const ndp_tile *map, int64_t at) {
    return ndp_refuse(r, "it composes the map of rows %lld to %lld at row %lld", (long long)map->from,
                      (long long)map->to, (long long)at);
}

/* The state before piece b: of the maps of all pieces before it, in their order. */
static ndp_status compose_before(ndp_rule *r, const ndp_op_attr *a, int64_t b, int64_t first) {
    int64_t at = 0;
    ndp_tile map;
    for (int64_t n = 0; n < ndp_row_piece_number(a, b); n++) {
        NDP_TRY(take_map(r, a, n, first, &map, NULL));
        if (map.from != at)
            return refuse_order(r, &map, at);
        at = map.to;
    }
    return make_state(r, NDP_THING_STATES, b, first, 0, at, 1);
}

/* The gradient of the state after it: of the maps of all pieces past its end, from the last one on. */
static ndp_status compose_behind(ndp_rule *r, const ndp_op_attr *a, int64_t b, int64_t first) {
    ndp_tile map, back;
    ndp_share part = 0;
    NDP_TRY(take_map(r, a, 0, first, &map, NULL));
    int64_t all = (map.to - map.from) * ndp_row_pieces(a), at = all;
    for (int64_t n = ndp_row_pieces(a) - 1; n >= 0; n--) {
        NDP_TRY(take_map(r, a, n, first, &map, &back));
        part = ndp_share_add(part, back.share);
        if (n <= ndp_row_piece_number(a, b))
            continue;
        if (map.to != at)
            return refuse_order(r, &map, at);
        at = map.from;
    }
    return make_state(r, NDP_THING_DSTATES, b, first, at, all, part);
}

ndp_status ndp_after_delta_states(ndp_rule *r) {
    ndp_op_attr a = pieces_of(r);
    if (r->in[0].n == 0)
        return ndp_expect_all(r, 0);
    int64_t first = r->in[0].tiles[0].at_row - r->in[0].tiles[0].row;
    for (int64_t b = 0; b < ndp_row_pieces_here(&a); b++)
        NDP_TRY(ndp_rule_has(r, 1) ? compose_behind(r, &a, b, first) : compose_before(r, &a, b, first));
    return NDP_OK;
}
