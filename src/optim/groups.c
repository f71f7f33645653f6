/* Update groups (groups.h): the list of a job, and the tables of pieces that follow from it. All walks of a table visit
 * the pieces of a slice in the same order, so it has exactly the rows that were counted. */
#include "optim/groups.h"

#include "base/rng.h"

/* ---- the list ---- */

/* A group for the tensors of a set, and one for the vectors among them if these have no decay. */
static void add(ndp_update_groups *g, int entry, unsigned kinds, const ndp_update_entry *e, ndp_optimizer_name name) {
    unsigned sets[] = {e->decays ? kinds : kinds & ~NDP_KINDS_VECTORS, e->decays ? 0 : kinds & NDP_KINDS_VECTORS};
    for (int i = 0; i < NDP_COUNT(sets); i++)
        if (sets[i]) {
            ndp_update_group *out = &g->items[g->n++];
            *out = (ndp_update_group){.entry = entry, .kinds = sets[i], .opts = e->opts, .lr_scale = e->lr_scale};
            out->opts.name = name;
            out->opts.weight_decay = i == 0 ? e->opts.weight_decay : 0;
        }
}

static void add_entry(ndp_update_groups *g, int entry, const ndp_update_entry *e) {
    const ndp_optimizer *o = ndp_optimizers[e->opts.name];
    unsigned kinds = o->kinds ? o->kinds : NDP_KINDS_ALL;
    add(g, entry, kinds, e, e->opts.name);
    add(g, entry, NDP_KINDS_ALL & ~kinds, e, o->others);
}

static int numbers_of(const ndp_optimizer_opts *o) {
    return ndp_optimizer_codes(o->name) ? 0 : ndp_optimizer_states(o);
}

static void order(ndp_update_groups *g) {
    for (int states = NDP_OPTIMIZER_STATES; states >= 0; states--)
        for (int i = 0; i < g->n; i++) {
            const ndp_optimizer_opts *o = &g->items[i].opts;
            if (numbers_of(o) == states && ndp_update_place(g, o->name) == g->n_used) {
                g->states[g->n_used] = states;
                g->used[g->n_used++] = o->name;
            }
        }
}

ndp_status ndp_update_groups_make(const ndp_optimizer_opts *o, ndp_arena *arena, ndp_update_groups *out) {
    enum { MOST = 4 }; /* of an entry */
    *out = (ndp_update_groups){.seed = o->seed};
    out->items = ndp_arena_alloc(arena, (size_t)(MOST * (o->n_entries + 1)) * sizeof *out->items);
    NDP_CHECK_MEMORY(out->items, "for the groups of %d entries", o->n_entries);
    for (int i = 0; i < o->n_entries; i++)
        add_entry(out, i + 1, &o->entries[i]);
    add_entry(out, 0, &(ndp_update_entry){.opts = *o, .lr_scale = 1});
    order(out);
    return NDP_OK;
}

static unsigned kind_of(const ndp_segment *s) { return 1u << (4 * s->coded + 2 * s->projection + (s->ndim == 1)); }

int ndp_update_group_of(const ndp_update_groups *g, const ndp_segment *s) {
    int i = 0;
    while (i < g->n - 1 && (g->items[i].entry != s->named_by || !(g->items[i].kinds & kind_of(s))))
        i++;
    return i;
}

ndp_status ndp_update_groups_check(const ndp_optimizer_opts *o, const ndp_segment *s) {
    const ndp_update_entry *e = s->named_by ? &o->entries[s->named_by - 1] : NULL;
    const ndp_optimizer *by = e && e->chosen ? ndp_optimizers[e->opts.name] : NULL;
    NDP_CHECK(!by || !by->whole.transform || (by->kinds & kind_of(s)),
              "optimizer.groups: %s cannot update %s, which is %s; it updates the matrices of layers. Leave the tensor "
              "out of the group, or set its optimizer: %s",
              by->name, s->name, s->ndim == 1 ? "a vector" : "no matrix of a layer", ndp_optimizers[by->others]->name);
    return NDP_OK;
}

int ndp_update_place(const ndp_update_groups *g, ndp_optimizer_name name) {
    int i = 0;
    while (i < g->n_used && g->used[i] != name)
        i++;
    return i;
}

bool ndp_update_state_is_short(const ndp_update_groups *g, int k) { return g->states[g->n_used - 1] <= k; }

bool ndp_update_codes(const ndp_update_groups *g) {
    bool any = false;
    for (int i = 0; i < g->n_used; i++)
        any |= ndp_optimizer_codes(g->used[i]);
    return any;
}

int ndp_update_states(const ndp_update_groups *g) { return ndp_update_codes(g) ? NDP_OPTIMIZER_STATES : g->states[0]; }

int64_t ndp_update_align(const ndp_optimizer_opts *o) {
    bool codes = ndp_optimizer_codes(o->name);
    for (int i = 0; i < o->n_entries; i++)
        codes |= ndp_optimizer_codes(o->entries[i].opts.name);
    return codes ? NDP_CODE_BLOCK : 0;
}

void ndp_update_constants(const ndp_update_groups *g, double lr, int64_t update, double *out) {
    for (int i = 0; i < g->n; i++, out += NDP_OPTIMIZER_CONSTANTS) {
        const ndp_optimizer_opts *o = &g->items[i].opts;
        ndp_optimizers[o->name]->constants(o, lr * g->items[i].lr_scale, update, out);
        out[NDP_UPDATE_NUMBER] = (double)(uint32_t)update;
        out[NDP_UPDATE_SEED] = (double)g->seed;
    }
}

/* ---- tables of pieces ---- */

/* A walk through the pieces of a slice, in the order of the table. */
typedef struct table_walk {
    ndp_piece piece;
    int at, group, cursor; /* at: the piece's optimizer in `used` */
    int64_t place;
    int64_t next[2]; /* places of the next piece: in short states, among scales */
} table_walk;

static int64_t blocks_of(const ndp_piece *p) { return ndp_code_blocks(p->slice_first, p->count); }

static bool next_piece(const ndp_update_groups *g, const ndp_segments *s, int shards, int index, table_walk *w) {
    for (; w->at < g->n_used; w->at++, w->cursor = 0)
        while (ndp_segments_piece(s, shards, index, &w->cursor, &w->piece)) {
            bool codes = ndp_optimizer_codes(g->used[w->at]);
            w->group = ndp_update_group_of(g, w->piece.segment);
            if (g->items[w->group].opts.name != g->used[w->at])
                continue;
            w->place = w->next[codes];
            w->next[codes] += codes ? blocks_of(&w->piece) : w->piece.count;
            return true;
        }
    return false;
}

ndp_piece_counts ndp_pieces_count(const ndp_update_groups *g, const ndp_segments *s, int shards, int index) {
    ndp_piece_counts n = {0};
    for (table_walk w = {0}; next_piece(g, s, shards, index, &w); n.all++) {
        n.of[w.at]++;
        for (int k = 0; k < g->states[w.at]; k++)
            n.kept[k] += w.piece.count;
        n.blocks = w.next[true];
    }
    return n;
}

/* Parts of a fused tensor have numbers of their own, from the row and the column where each begins on all ranks. */
static void fill_rounding(const ndp_segment *s, int64_t at, int64_t *out) {
    uint64_t name = ndp_rng_stream(s->name);
    out[NDP_PIECE_TENSOR] = (uint32_t)(name ^ name >> 32) ^ (uint32_t)(s->base[0] << 16) ^ (uint32_t)s->base[1];
    out[NDP_PIECE_AT] = at;
    out[NDP_PIECE_ROWS] = s->rows;
    out[NDP_PIECE_COLS] = s->cols;
    out[NDP_PIECE_PITCH] = s->part[0];
    out[NDP_PIECE_ROW] = s->first[0] - s->base[0] + s->stack_first * s->part[0];
    out[NDP_PIECE_COL] = s->first[1] - s->base[1];
}

void ndp_pieces_fill(const ndp_update_groups *g, const ndp_segments *s, int shards, int index, int64_t *out) {
    int columns = ndp_piece_columns(g);
    for (table_walk w = {0}; next_piece(g, s, shards, index, &w); out += columns) {
        out[NDP_PIECE_FIRST] = w.piece.slice_first;
        out[NDP_PIECE_COUNT] = w.piece.count;
        out[NDP_PIECE_FACTS] = ndp_piece_facts((int64_t)w.piece.segment->copies, w.group);
        if (columns > NDP_PIECE_PLACE)
            out[NDP_PIECE_PLACE] = w.place;
        if (columns > NDP_PIECE_TENSOR)
            fill_rounding(w.piece.segment,
                          w.piece.slice_first + index * ndp_segments_slice(s, shards) - w.piece.segment->offset, out);
    }
}

int64_t ndp_pieces_place(const ndp_update_groups *g, const ndp_segments *s, int shards, int index, int64_t element) {
    for (table_walk w = {0}; next_piece(g, s, shards, index, &w);) {
        int64_t first = w.piece.slice_first;
        if (element >= first && element < first + w.piece.count)
            return w.place + (ndp_optimizer_codes(g->used[w.at]) ? element / NDP_CODE_BLOCK - first / NDP_CODE_BLOCK
                                                                 : element - first);
    }
    return 0;
}
