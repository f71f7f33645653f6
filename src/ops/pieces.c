/* What all ops that walk tables of pieces ask of one. */
#include "ops/pieces.h"

#include "ops/shape.h"

ndp_status ndp_pieces_check(const char *op, const ndp_view *pieces) {
    bool columns = pieces->cols == NDP_PIECE_COLUMNS || pieces->cols == NDP_PIECE_COLUMNS_PLACED ||
                   pieces->cols == NDP_PIECE_COLUMNS_ROUNDED;
    NDP_SHAPE_CHECK(pieces->rows == 0 || (columns && pieces->dtype == NDP_I64),
                    "%s: a table of pieces is [P,%d], [P,%d] or [P,%d] %s, not " NDP_SHAPE, op, NDP_PIECE_COLUMNS,
                    NDP_PIECE_COLUMNS_PLACED, NDP_PIECE_COLUMNS_ROUNDED, ndp_dtype_name(NDP_I64),
                    NDP_SHAPE_ARGS(*pieces));
    return NDP_OK;
}
