/* Tiles of matrices, and of memory. */
#include "placement/content.h"

#include <stdlib.h>

ndp_status ndp_content_add(ndp_content *c, ndp_tile t) {
    if (t.rows <= 0 || t.cols <= 0)
        return NDP_OK;
    NDP_TRY(NDP_GROW(c->arena, c->n, &c->capacity, c->tiles));
    c->tiles[c->n++] = t;
    return NDP_OK;
}

/* ---- joining ---- */

static int by_row(const void *a, const void *b) {
    const ndp_tile *x = a, *y = b;
    return x->row != y->row ? (x->row < y->row ? -1 : 1) : (x->col > y->col) - (x->col < y->col);
}

static int by_col(const void *a, const void *b) {
    const ndp_tile *x = a, *y = b;
    return x->col != y->col ? (x->col < y->col ? -1 : 1) : (x->row > y->row) - (x->row < y->row);
}

static void sort(ndp_content *c, int (*order)(const void *, const void *)) {
    bool sorted = true;
    for (int i = 1; i < c->n && sorted; i++)
        sorted = order(&c->tiles[i - 1], &c->tiles[i]) <= 0;
    if (!sorted)
        qsort(c->tiles, (size_t)c->n, sizeof *c->tiles, order);
}

/* Statistics of logits are of one slice each: tiles of two slices stay apart. */
static bool continues(const ndp_tile *a, const ndp_tile *b, bool right) {
    if (!ndp_things_equal(a->what, b->what) || a->share != b->share || a->among != b->among || a->fold != b->fold ||
        a->from != b->from || a->to != b->to || (right && a->what.kind == NDP_THING_STATS))
        return false;
    return right ? a->row == b->row && a->rows == b->rows && a->col + a->cols == b->col && a->at_row == b->at_row &&
                       a->at_col + a->cols == b->at_col
                 : a->col == b->col && a->cols == b->cols && a->row + a->rows == b->row && a->at_col == b->at_col &&
                       a->at_row + a->rows == b->at_row;
}

static void join(ndp_content *c, bool right) {
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        if (n > 0 && continues(&c->tiles[n - 1], &c->tiles[i], right)) {
            c->tiles[n - 1].cols += right ? c->tiles[i].cols : 0;
            c->tiles[n - 1].rows += right ? 0 : c->tiles[i].rows;
        } else {
            c->tiles[n++] = c->tiles[i];
        }
    }
    c->n = n;
}

void ndp_content_join(ndp_content *c) {
    if (c->n < 2)
        return;
    sort(c, by_row);
    join(c, true);
    if (c->n < 2)
        return;
    sort(c, by_col);
    join(c, false);
    sort(c, by_row);
}

bool ndp_content_full(const ndp_content *c) {
    int64_t elements = 0;
    for (int i = 0; i < c->n; i++)
        elements += c->tiles[i].rows * c->tiles[i].cols;
    return elements == c->rows * c->cols;
}

bool ndp_contents_equal(const ndp_content *a, const ndp_content *b) {
    bool same = a->n == b->n && a->rows == b->rows && a->cols == b->cols;
    for (int i = 0; same && i < a->n; i++) {
        const ndp_tile *x = &a->tiles[i], *y = &b->tiles[i];
        same = x->row == y->row && x->rows == y->rows && x->col == y->col && x->cols == y->cols &&
               x->at_row == y->at_row && x->at_col == y->at_col && ndp_things_equal(x->what, y->what) &&
               x->share == y->share && x->among == y->among && x->fold == y->fold && x->from == y->from &&
               x->to == y->to;
    }
    return same;
}

/* ---- parts ---- */

bool ndp_tile_cut(const ndp_tile *t, int64_t row, int64_t rows, int64_t col, int64_t cols, ndp_tile *out) {
    int64_t top = t->row > row ? t->row : row, left = t->col > col ? t->col : col;
    int64_t bottom = t->row + t->rows < row + rows ? t->row + t->rows : row + rows;
    int64_t right = t->col + t->cols < col + cols ? t->col + t->cols : col + cols;
    if (top >= bottom || left >= right)
        return false;
    *out = *t;
    out->row = top, out->rows = bottom - top, out->col = left, out->cols = right - left;
    out->at_row += top - t->row;
    out->at_col += t->what.kind == NDP_THING_STATS ? 0 : left - t->col;
    return true;
}

ndp_status ndp_content_move(const ndp_content *c, int64_t row, int64_t rows, int64_t col, int64_t cols, int64_t to_row,
                            int64_t to_col, ndp_content *out) {
    ndp_tile part;
    for (int i = 0; i < c->n; i++)
        if (ndp_tile_cut(&c->tiles[i], row, rows, col, cols, &part)) {
            part.row += to_row - row;
            part.col += to_col - col;
            NDP_TRY(ndp_content_add(out, part));
        }
    return NDP_OK;
}

/* ---- memory ---- */

/* Bytes from one row to the next by which both matrices can be read; 0: they have none in common. */
static size_t common_ld(const ndp_mapped_tile *t, const ndp_matrix *x) {
    if (t->size != x->size)
        return 0;
    if (x->rows == 1 && t->tile.rows == 1) /* one row each: any distance that holds both */
        return ((size_t)1 << 62) / x->size * x->size;
    if (x->rows == 1) /* of one row of the other */
        return (size_t)x->cols * x->size <= t->ld ? t->ld : 0;
    if (t->tile.rows == 1)
        return (size_t)t->tile.cols * t->size <= x->ld ? x->ld : 0;
    return t->ld == x->ld ? x->ld : 0;
}

static bool meets(const ndp_mapped_tile *t, const ndp_matrix *x) {
    size_t end = t->at + (size_t)(t->tile.rows - 1) * t->ld + (size_t)t->tile.cols * t->size;
    size_t last = x->at + (size_t)(x->rows - 1) * x->ld + (size_t)x->cols * x->size;
    return t->at < last && x->at < end;
}

/* Where a tile is in the coordinates of a matrix, seen from row `turn` of two: a tile that starts left of the matrix's
 * first column is one row further down. */
static ndp_tile seen_from(const ndp_mapped_tile *t, const ndp_matrix *x, size_t ld, int turn) {
    ndp_tile seen = t->tile;
    int64_t distance = (int64_t)t->at - (int64_t)x->at, step = (int64_t)ld;
    int64_t row = distance / step - (distance % step < 0), rest = distance - row * step;
    seen.row = row + turn;
    seen.col = (rest - turn * step) / (int64_t)x->size;
    return seen;
}

typedef enum tile_overlap { APART, OTHER_SHAPE, SEEN } tile_overlap;

/* Whether the tile and the matrix have bytes in common. SEEN: the tile in the matrix's coordinates, and the part that
 * is in it. A tile that is in two rows from two sides is of a matrix of another shape. */
static tile_overlap look(const ndp_mapped_tile *t, const ndp_matrix *x, ndp_tile *seen, ndp_tile *part) {
    if (!meets(t, x))
        return APART;
    size_t ld = common_ld(t, x);
    int found = 0;
    for (int turn = 0; ld > 0 && turn < 2; turn++) {
        ndp_tile at = seen_from(t, x, ld, turn);
        if (ndp_tile_cut(&at, 0, x->rows, 0, x->cols, part)) {
            *seen = at;
            found++;
        }
    }
    if (found == 1) /* the cut of the second turn failed, or is the latest */
        (void)ndp_tile_cut(seen, 0, x->rows, 0, x->cols, part);
    return ld == 0 || found == 2 ? OTHER_SHAPE : found == 1 ? SEEN : APART;
}

ndp_status ndp_tile_map_read(const ndp_tile_map *m, const ndp_matrix *x, ndp_content *out) {
    ndp_tile seen, part;
    for (int64_t i = 0; i < m->n; i++)
        if (look(&m->items[i], x, &seen, &part) == SEEN)
            NDP_TRY(ndp_content_add(out, part));
    ndp_content_join(out);
    return NDP_OK;
}

static ndp_status keep(ndp_tile_map *m, ndp_arena *arena, const ndp_mapped_tile *of, const ndp_tile *seen, int64_t row,
                       int64_t rows, int64_t col, int64_t cols) {
    ndp_tile part;
    if (rows <= 0 || cols <= 0 || !ndp_tile_cut(seen, row, rows, col, cols, &part))
        return NDP_OK;
    NDP_TRY(NDP_GROW(arena, m->n, &m->capacity, m->items));
    ndp_mapped_tile left = *of;
    left.at += (size_t)(part.row - seen->row) * of->ld + (size_t)(part.col - seen->col) * of->size;
    left.tile = part;
    left.tile.row = left.tile.col = 0;
    m->items[m->n++] = left;
    return NDP_OK;
}

/* Removes the matrix's bytes from tile i: what is above, left, right and below of them stays. */
static ndp_status clear(ndp_tile_map *m, ndp_arena *arena, int64_t i, const ndp_matrix *x) {
    ndp_mapped_tile t = m->items[i];
    ndp_tile part, seen;
    tile_overlap how = look(&t, x, &seen, &part);
    if (how == APART)
        return NDP_OK;
    m->items[i].tile.rows = 0; /* gone */
    if (how == OTHER_SHAPE)
        return NDP_OK;
    int64_t bottom = part.row + part.rows, right = part.col + part.cols;
    NDP_TRY(keep(m, arena, &t, &seen, seen.row, part.row - seen.row, seen.col, seen.cols));
    NDP_TRY(keep(m, arena, &t, &seen, part.row, part.rows, seen.col, part.col - seen.col));
    NDP_TRY(keep(m, arena, &t, &seen, part.row, part.rows, right, seen.col + seen.cols - right));
    return keep(m, arena, &t, &seen, bottom, seen.row + seen.rows - bottom, seen.col, seen.cols);
}

ndp_status ndp_tile_map_write(ndp_tile_map *m, const ndp_matrix *x, const ndp_content *c) {
    int64_t n = m->n, kept = 0;
    for (int64_t i = 0; i < n; i++)
        NDP_TRY(clear(m, c->arena, i, x));
    for (int64_t i = 0; i < m->n; i++)
        if (m->items[i].tile.rows > 0)
            m->items[kept++] = m->items[i];
    m->n = kept;
    for (int i = 0; i < c->n; i++) {
        NDP_TRY(NDP_GROW(c->arena, m->n, &m->capacity, m->items));
        ndp_tile t = c->tiles[i];
        size_t at = x->at + (size_t)t.row * x->ld + (size_t)t.col * x->size;
        t.row = t.col = 0;
        m->items[m->n++] = (ndp_mapped_tile){at, x->ld, x->size, t};
    }
    return NDP_OK;
}
