#include "ops/pieces.h"

#include "ops/shape.h"

ndp_piece_counts ndp_pieces_count(const ndp_segments *s, int shards, int index) {
    ndp_piece_counts n = {0};
    ndp_piece piece;
    for (int cursor = 0; ndp_segments_piece(s, shards, index, &cursor, &piece); n.all++) {
        n.projections += piece.segment->projection;
        n.rest += piece.segment->projection ? 0 : piece.count;
    }
    return n;
}

static void fill_row(const ndp_piece *piece, int64_t *out) {
    out[NDP_PIECE_FIRST] = piece->slice_first;
    out[NDP_PIECE_COUNT] = piece->count;
    out[NDP_PIECE_COPIES] = (int64_t)piece->segment->copies;
    out[NDP_PIECE_DECAYS] = piece->segment->decay;
}

void ndp_pieces_fill(const ndp_segments *s, int shards, int index, bool apart, int64_t *out) {
    ndp_piece piece;
    int64_t place = 0;
    for (int projections = 0; projections <= apart; projections++)
        for (int cursor = 0; ndp_segments_piece(s, shards, index, &cursor, &piece);) {
            if (apart && piece.segment->projection != projections)
                continue;
            fill_row(&piece, out);
            if (apart)
                out[NDP_PIECE_PLACE] = place;
            place += piece.count;
            out += ndp_piece_columns(apart);
        }
}

int64_t ndp_pieces_place(const ndp_segments *s, int shards, int index, int64_t element) {
    ndp_piece piece;
    int64_t before = 0;
    for (int cursor = 0; ndp_segments_piece(s, shards, index, &cursor, &piece);) {
        if (element < piece.slice_first + piece.count)
            return before + element - piece.slice_first;
        before += piece.segment->projection ? 0 : piece.count;
    }
    return before;
}

ndp_status ndp_pieces_check(const char *op, const ndp_view *pieces) {
    bool columns = pieces->cols == NDP_PIECE_COLUMNS || pieces->cols == NDP_PIECE_COLUMNS_APART;
    NDP_SHAPE_CHECK(pieces->rows == 0 || (columns && pieces->dtype == NDP_I64),
                    "%s: a table of pieces is [P,%d] or [P,%d] %s, not " NDP_SHAPE, op, NDP_PIECE_COLUMNS,
                    NDP_PIECE_COLUMNS_APART, ndp_dtype_name(NDP_I64), NDP_SHAPE_ARGS(*pieces));
    return NDP_OK;
}
