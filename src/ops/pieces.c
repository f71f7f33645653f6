/* Tables of pieces, counted, filled and checked. All three walk the pieces of a slice in the same order, so a table
 * has exactly the rows that were counted. */
#include "ops/pieces.h"

#include "ops/shape.h"

static int64_t blocks_of(const ndp_piece *p) { return ndp_code_blocks(p->slice_first, p->count); }

ndp_piece_counts ndp_pieces_count(const ndp_segments *s, int shards, int index, ndp_apart apart) {
    ndp_piece_counts n = {0};
    ndp_piece piece;
    for (int cursor = 0; ndp_segments_piece(s, shards, index, &cursor, &piece); n.all++) {
        bool is = ndp_segment_is_apart(piece.segment, apart);
        n.apart += is;
        n.rest += is ? 0 : piece.count;
        n.blocks += is && apart == NDP_APART_CODED ? blocks_of(&piece) : 0;
    }
    return n;
}

static void fill_row(const ndp_piece *piece, int64_t *out) {
    out[NDP_PIECE_FIRST] = piece->slice_first;
    out[NDP_PIECE_COUNT] = piece->count;
    out[NDP_PIECE_COPIES] = (int64_t)piece->segment->copies;
    out[NDP_PIECE_DECAYS] = piece->segment->decay;
}

void ndp_pieces_fill(const ndp_segments *s, int shards, int index, ndp_apart apart, int64_t *out) {
    ndp_piece piece;
    int64_t place[2] = {0};
    for (int last = 0; last <= (apart != NDP_APART_NONE); last++)
        for (int cursor = 0; ndp_segments_piece(s, shards, index, &cursor, &piece);) {
            bool is = ndp_segment_is_apart(piece.segment, apart);
            if (is != last)
                continue;
            fill_row(&piece, out);
            if (apart != NDP_APART_NONE)
                out[NDP_PIECE_PLACE] = place[is];
            place[is] += is && apart == NDP_APART_CODED ? blocks_of(&piece) : piece.count;
            out += ndp_piece_columns(apart);
        }
}

int64_t ndp_pieces_place(const ndp_segments *s, int shards, int index, ndp_apart apart, int64_t element) {
    ndp_piece piece;
    int64_t before[2] = {0};
    for (int cursor = 0; ndp_segments_piece(s, shards, index, &cursor, &piece);) {
        bool is = ndp_segment_is_apart(piece.segment, apart), coded = is && apart == NDP_APART_CODED;
        if (element < piece.slice_first + piece.count)
            return before[is] + (coded ? element / NDP_CODE_BLOCK - piece.slice_first / NDP_CODE_BLOCK
                                       : element - piece.slice_first);
        before[is] += coded ? blocks_of(&piece) : piece.count;
    }
    return before[0];
}

ndp_status ndp_pieces_check(const char *op, const ndp_view *pieces) {
    bool columns = pieces->cols == NDP_PIECE_COLUMNS || pieces->cols == NDP_PIECE_COLUMNS_APART;
    NDP_SHAPE_CHECK(pieces->rows == 0 || (columns && pieces->dtype == NDP_I64),
                    "%s: a table of pieces is [P,%d] or [P,%d] %s, not " NDP_SHAPE, op, NDP_PIECE_COLUMNS,
                    NDP_PIECE_COLUMNS_APART, ndp_dtype_name(NDP_I64), NDP_SHAPE_ARGS(*pieces));
    return NDP_OK;
}
