#include "ops/pieces.h"

#include "ops/shape.h"

int64_t ndp_pieces_count(const ndp_segments *s, int shards, int index) {
    int64_t n = 0;
    ndp_piece piece;
    for (int cursor = 0; ndp_segments_piece(s, shards, index, &cursor, &piece);)
        n++;
    return n;
}

void ndp_pieces_fill(const ndp_segments *s, int shards, int index, int64_t *out) {
    ndp_piece piece;
    for (int cursor = 0; ndp_segments_piece(s, shards, index, &cursor, &piece); out += NDP_PIECE_COLUMNS) {
        out[NDP_PIECE_FIRST] = piece.slice_first;
        out[NDP_PIECE_COUNT] = piece.count;
        out[NDP_PIECE_COPIES] = (int64_t)piece.segment->copies;
        out[NDP_PIECE_DECAYS] = piece.segment->decay;
    }
}

ndp_status ndp_pieces_check(const char *op, const ndp_view *pieces) {
    NDP_SHAPE_CHECK(pieces->rows == 0 || (pieces->cols == NDP_PIECE_COLUMNS && pieces->dtype == NDP_I64),
                    "%s: a table of pieces is [P,%d] %s, not " NDP_SHAPE, op, NDP_PIECE_COLUMNS,
                    ndp_dtype_name(NDP_I64), NDP_SHAPE_ARGS(*pieces));
    return NDP_OK;
}
