/* Sets of rows in some order; folding. */
#include "placement/row_sets.h"

/* The slot of that set, or the free one where it goes. Ids are random. */
static int slot_of(const ndp_row_sets *s, uint64_t id) {
    int at = (int)(id & (uint64_t)(s->n_slots - 1));
    while (s->slots[at] && s->sets[s->slots[at] - 1].id != id)
        at = (at + 1) & (s->n_slots - 1);
    return at;
}

const ndp_row_set *ndp_row_set_find(const ndp_row_sets *s, uint64_t id) {
    int number = s && s->n_slots > 0 ? s->slots[slot_of(s, id)] : 0;
    return number ? &s->sets[number - 1] : NULL;
}

static ndp_status grow_slots(ndp_row_sets *s, ndp_arena *a) {
    s->n_slots = s->n_slots ? 2 * s->n_slots : 64;
    NDP_TRY(NDP_NEW(a, s->n_slots, s->slots));
    for (int i = 0; i < s->n_sets; i++)
        s->slots[slot_of(s, s->sets[i].id)] = i + 1;
    return NDP_OK;
}

ndp_status ndp_row_set_note(ndp_row_sets *s, ndp_arena *a, ndp_row_set set, bool *same) {
    const ndp_row_set *have = ndp_row_set_find(s, set.id);
    *same = !have || (have->rows == set.rows && have->weight == set.weight && have->folded == set.folded &&
                      have->counts == set.counts && have->later == set.later);
    if (have || !s)
        return NDP_OK;
    NDP_TRY(NDP_GROW(a, s->n_sets, &s->set_capacity, s->sets));
    if (2 * (s->n_sets + 1) > s->n_slots)
        NDP_TRY(grow_slots(s, a));
    s->sets[s->n_sets++] = set;
    s->slots[slot_of(s, set.id)] = s->n_sets;
    return NDP_OK;
}

/* ---- folding ---- */

ndp_status ndp_unfold(const ndp_row_sets *s, ndp_content *c, bool *whole) {
    int fold = c->n > 0 ? c->tiles[0].fold : 0;
    *whole = true;
    if (fold == 0)
        return NDP_OK;
    const ndp_fold *f = &s->folds[fold - 1];
    ndp_content out = ndp_content_of(c->arena, f->rows, c->cols);
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < f->n; k++) {
            ndp_tile t = c->tiles[i];
            *whole &= t.fold == fold && t.row == 0 && t.rows == c->rows && t.at_row == 0;
            t.row = f->tiles[k].row, t.rows = f->tiles[k].rows, t.at_row = f->tiles[k].at_row, t.fold = 0;
            NDP_TRY(ndp_content_add(&out, t));
        }
    ndp_content_join(&out);
    *c = out;
    return NDP_OK;
}

/* The tiles of the content's first run of columns, as a fold. */
static ndp_status fold_of(const ndp_content *c, ndp_fold *out) {
    const ndp_tile *first = &c->tiles[0];
    *out = (ndp_fold){.among = first->among};
    NDP_TRY(NDP_NEW(c->arena, c->n, out->tiles));
    for (int i = 0; i < c->n; i++)
        if (c->tiles[i].col == first->col) {
            out->tiles[out->n++] = c->tiles[i];
            out->rows += c->tiles[i].rows;
        }
    return NDP_OK;
}

static bool same_fold(const ndp_fold *a, const ndp_fold *b) {
    bool same = a->among == b->among && a->n == b->n;
    for (int i = 0; same && i < a->n; i++)
        same = a->tiles[i].row == b->tiles[i].row && a->tiles[i].rows == b->tiles[i].rows &&
               a->tiles[i].at_row == b->tiles[i].at_row;
    return same;
}

static ndp_status note_fold(ndp_row_sets *s, const ndp_fold *f, ndp_arena *a, int *number) {
    for (*number = 1; *number <= s->n_folds; ++*number)
        if (same_fold(&s->folds[*number - 1], f))
            return NDP_OK;
    NDP_TRY(NDP_GROW(a, s->n_folds, &s->fold_capacity, s->folds));
    s->folds[s->n_folds++] = *f;
    return NDP_OK;
}

/* Tile i, the next one of its columns, is of row number `k` of the fold, and as the first one of these columns is. */
static bool is_alike(const ndp_tile *t, const ndp_tile *row, const ndp_tile *first) {
    return t->row == row->row && t->rows == row->rows && t->at_row == row->at_row && t->among == row->among &&
           t->cols == first->cols && t->at_col == first->at_col && t->share == first->share &&
           ndp_things_equal(t->what, first->what);
}

ndp_status ndp_fold_rows(ndp_row_sets *s, ndp_content *c, int64_t rows, bool *alike) {
    const ndp_row_set *set = ndp_row_set_find(s, c->n > 0 ? c->tiles[0].among : 0);
    ndp_content out = ndp_content_of(c->arena, rows, c->cols);
    ndp_fold f;
    int number;
    *alike = true;
    if (!set || !set->folded)
        return NDP_OK;
    NDP_TRY(fold_of(c, &f));
    NDP_TRY(note_fold(s, &f, c->arena, &number));
    *alike = f.rows % set->rows == 0 && c->n % f.n == 0;
    for (int i = 0; *alike && i < c->n; i++) {
        int k = 0; /* tiles of these columns before it */
        const ndp_tile *t = &c->tiles[i], *first = t;
        for (int j = i - 1; j >= 0; j--)
            if (c->tiles[j].col == t->col)
                k++, first = &c->tiles[j];
        *alike = k < f.n && is_alike(t, &f.tiles[k], first);
        ndp_tile one = *t;
        one.row = one.at_row = 0, one.rows = rows, one.fold = number;
        NDP_TRY(k == 0 ? ndp_content_add(&out, one) : NDP_OK);
    }
    *c = out;
    return NDP_OK;
}
