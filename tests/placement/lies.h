/* Claims that are not true, of a program that is right: what a rank's memory would hold if the code that fills it were
 * wrong. There is nothing to run, so each must be refused. */
#ifndef TESTS_PLACEMENT_LIES_H
#define TESTS_PLACEMENT_LIES_H

#include "placement/placement.h"

#define LIES_LIST(X)                                                                                                   \
    X(COPIES, "pieces: a copy more")                                                                                   \
    X(GROUP, "pieces: another group")                                                                                  \
    X(PIECE_FIRST, "pieces: begins one later")                                                                         \
    X(PIECE_COUNT, "pieces: one element fewer")                                                                        \
    X(PIECE_PLACE, "pieces: another place in a state")                                                                 \
    X(PIECE_AGAIN, "pieces: the one before again")                                                                     \
    X(SEGMENT_ROW, "tables: one row later")                                                                            \
    X(SEGMENT_COLUMN, "tables: one column later")                                                                      \
    X(SEGMENT_MEMBERS, "tables: other experts")                                                                        \
    X(SEGMENT_COPIES, "tables, so pieces: a copy more")                                                                \
    X(SEGMENT_ENTRY, "tables, so pieces: of another entry")                                                            \
    X(SEGMENT_CODED, "tables, so pieces: its states are codes or not")                                                 \
    X(SEGMENT_NAME, "tables: another tensor")                                                                          \
    X(TOKENS_LATER, "rows: tokens one row later")                                                                      \
    X(TOKENS_SWAPPED, "rows: two tokens swapped")                                                                      \
    X(QUERIES_SWAPPED, "rows: two queries swapped")                                                                    \
    X(KEYS_SWAPPED, "rows: two keys swapped")                                                                          \
    X(KEYS_OF_ONE, "rows: keys of one rank")                                                                           \
    X(SAMPLES_SAME, "samples: the same on all data ranks")                                                             \
    X(SAMPLES_LATER, "samples: one later")                                                                             \
    X(SAMPLES_AGAIN, "samples: those of micro-batch 0")                                                                \
    X(INPUT_AGAIN, "inputs: those of micro-batch 0")                                                                   \
    X(INPUT_SCALE, "inputs: the loss for its scale")

#define LIE_ENUMERATOR(NAME, text) LIE_##NAME,
#define LIE_TEXT(NAME, text) text,
typedef enum lie_kind { LIES_LIST(LIE_ENUMERATOR) LIES } lie_kind;
static const char *const lie_texts[] = {LIES_LIST(LIE_TEXT)};

typedef struct lie {
    lie_kind kind;
    const ndp_segments *of; /* about buffers with such a table */
    const char *name;       /* of one of them */
    int place;              /* a piece or segment */
    bool told;              /* it came up, and is something else than the truth */
} lie;

static inline bool lie_is_about(const lie *l, const ndp_segments *s) {
    return s->n == l->of->n && s->elements == l->of->elements && s->items[0].rows == l->of->items[0].rows;
}

static inline void lie_about_segment(lie *l, ndp_segment *s, ndp_segment *before) {
    bool alike = before != s && before->rows == s->rows && before->cols == s->cols &&
                 strcmp(before->name, s->name) != 0; /* parts of a fused tensor have its name */
    const char *name = s->name;
    if (s->rows == 0 || s->cols == 0 || (l->kind == LIE_SEGMENT_ROW && s->ndim == 1) ||
        (l->kind == LIE_SEGMENT_NAME && !alike) ||
        (l->kind == LIE_SEGMENT_MEMBERS && (!ndp_segment_is_stack(s) || s->stack == s->stack_whole)))
        return;
    l->told = true;
    if (l->kind == LIE_SEGMENT_NAME)
        s->name = before->name, before->name = name;
    if (l->kind == LIE_SEGMENT_MEMBERS)
        s->stack_first = (s->stack_first + s->stack_grain) % (s->stack_whole - s->stack + 1);
    s->copies += l->kind == LIE_SEGMENT_COPIES;
    s->named_by ^= l->kind == LIE_SEGMENT_ENTRY;
    s->coded ^= l->kind == LIE_SEGMENT_CODED;
    s->first[0] += l->kind == LIE_SEGMENT_ROW;
    s->first[1] += l->kind == LIE_SEGMENT_COLUMN;
}

static inline ndp_status lying_table(void *user, const ndp_program *p, const ndp_mesh *mesh, int buffer,
                                     ndp_arena *arena, ndp_segments *out) {
    lie *l = user;
    NDP_TRY(ndp_engine_claims.table(NULL, p, mesh, buffer, arena, out));
    if (l->kind >= LIE_SEGMENT_ROW && l->kind <= LIE_SEGMENT_NAME && l->place < out->n &&
        lie_is_about(l, &p->opts.model->buffers[buffer].segments))
        lie_about_segment(l, &out->items[l->place], &out->items[l->place > 0 ? l->place - 1 : 0]);
    return NDP_OK;
}

static inline int64_t lying_row(void *user, const ndp_program *p, const ndp_mesh *mesh, ndp_extent extent, int64_t i) {
    lie *l = user;
    static const ndp_extent swapped[LIES] = {[LIE_TOKENS_SWAPPED] = NDP_EXTENT_TOKENS,
                                             [LIE_QUERIES_SWAPPED] = NDP_EXTENT_QUERIES,
                                             [LIE_KEYS_SWAPPED] = NDP_EXTENT_KEYS};
    int64_t row = ndp_engine_claims.row(NULL, p, mesh, extent, i);
    if (l->kind == LIE_TOKENS_LATER && extent == NDP_EXTENT_TOKENS)
        row++;
    else if (swapped[l->kind] == extent && i < 2)
        row = ndp_engine_claims.row(NULL, p, mesh, extent, 1 - i);
    else if (l->kind == LIE_KEYS_OF_ONE && extent == NDP_EXTENT_KEYS)
        row = ndp_engine_claims.row(NULL, p, mesh, NDP_EXTENT_QUERIES,
                                    i % p->opts.model->inputs->rows[NDP_EXTENT_QUERIES]);
    l->told |= row != ndp_engine_claims.row(NULL, p, mesh, extent, i);
    return row;
}

static inline int64_t lying_pieces(void *user, const ndp_program *p, const ndp_segments *table, int buffer, int shards,
                                   int index, int64_t *out) {
    lie *l = user;
    int64_t n = ndp_engine_claims.pieces(NULL, p, table, buffer, shards, index, out);
    int columns = ndp_piece_columns(&p->groups);
    bool mine = lie_is_about(l, &p->opts.model->buffers[buffer].segments);
    if (!out || !mine || l->kind > LIE_PIECE_AGAIN || n == 0)
        return n;
    int64_t *row = out + l->place % n * columns;
    if (l->kind == LIE_PIECE_PLACE && columns <= NDP_PIECE_PLACE)
        return n;
    if (l->kind == LIE_PIECE_AGAIN) {
        if (l->place % n == 0)
            return n;
        memcpy(row, row - columns, (size_t)columns * sizeof *row);
    }
    row[NDP_PIECE_FACTS] += l->kind == LIE_COPIES;
    row[NDP_PIECE_FIRST] += l->kind == LIE_PIECE_FIRST;
    row[NDP_PIECE_COUNT] -= l->kind == LIE_PIECE_COUNT || l->kind == LIE_PIECE_FIRST;
    row[NDP_PIECE_FACTS] ^= ndp_piece_facts(0, l->kind == LIE_GROUP);
    if (l->kind == LIE_PIECE_PLACE)
        row[NDP_PIECE_PLACE]++;
    l->told = true;
    return n;
}

static inline ndp_address lying_input(void *user, const ndp_program *p, int input, int micro_batch) {
    lie *l = user;
    const ndp_inputs *inputs = p->opts.model->inputs;
    ndp_address was = ndp_engine_claims.input(NULL, p, input, micro_batch), is = was;
    if (l->kind == LIE_INPUT_AGAIN)
        is = ndp_engine_claims.input(NULL, p, input, 0);
    for (int i = 0; l->kind == LIE_INPUT_SCALE && inputs->items[input].kind == NDP_INPUT_LOSS_SCALE && i < inputs->n;
         i++)
        if (inputs->items[i].kind == NDP_INPUT_LOSS)
            is = ndp_engine_claims.input(NULL, p, i, 0);
    l->told |= is.offset != was.offset;
    return is;
}

static inline void lying_samples(void *user, const ndp_program *p, const ndp_mesh *mesh, int micro_batch,
                                 int64_t *first, int64_t *count, int64_t *total) {
    lie *l = user;
    int64_t was;
    ndp_mesh of = *mesh;
    ndp_engine_claims.samples(NULL, p, mesh, micro_batch, &was, count, total);
    *first = was + (l->kind == LIE_SAMPLES_LATER);
    if (l->kind == LIE_SAMPLES_SAME)
        of.rank = 0, memset(of.coord, 0, sizeof of.coord);
    if (l->kind == LIE_SAMPLES_SAME || l->kind == LIE_SAMPLES_AGAIN)
        ndp_engine_claims.samples(NULL, p, &of, l->kind == LIE_SAMPLES_AGAIN ? 0 : micro_batch, first, count, total);
    l->told |= *first != was;
}

static inline ndp_claims lying_claims(lie *l) {
    return (ndp_claims){l, lying_table, lying_row, lying_pieces, lying_input, lying_samples};
}

/* True if there is one for each buffer. */
static inline bool lie_is_of_buffers(lie_kind k) { return k <= LIE_SEGMENT_NAME; }

#endif
