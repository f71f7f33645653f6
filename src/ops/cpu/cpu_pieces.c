/* Ops that walk pieces: one piece after the other, each shared between the threads. A range kernel gets a call whose
 * table has that one piece. */
#include "ops/cpu/cpu_rows.h"
#include "ops/pieces.h"
#include "ops/shape.h"
#include "ops/update.h"

/* Below, waking a team costs more than the work. */
enum { FEW = 1 << 14 };

static void run_one(const ndp_op_call *one, int64_t elements, int64_t ranges, ndp_range_kernel kernel) {
    if (elements >= FEW)
        ndp_rows_run(one, ranges, kernel);
    else if (elements > 0)
        kernel(one, 0, ranges);
}

static void choose(ndp_view *table, const ndp_view *all, int64_t i) {
    table->data = (void *)ndp_piece_at(all, i);
    table->rows = 1;
}

/* Threads share blocks of NDP_SEGMENT_ALIGN elements, so that only the very end of a piece is a remainder of a vector
 * loop: each element goes through the same instructions whatever the number of threads. Where states are codes they
 * share the blocks that these have. */
static int64_t ranges_of(const ndp_op_call *call, const int64_t *piece) {
    int64_t n = piece[NDP_PIECE_COUNT];
    return call->op->n_in > NDP_UPDATE_OPERANDS ? ndp_code_blocks(piece[NDP_PIECE_FIRST], n)
                                                : (n + NDP_SEGMENT_ALIGN - 1) / NDP_SEGMENT_ALIGN;
}

ndp_status ndp_pieces_run(const ndp_op_call *call, ndp_range_kernel kernel) {
    ndp_op_call one = *call;
    if (!ndp_update_applies(call))
        return NDP_OK;
    for (int64_t i = 0; i < call->in[NDP_UPDATE_PIECES].rows; i++) {
        choose(&one.in[NDP_UPDATE_PIECES], &call->in[NDP_UPDATE_PIECES], i);
        const int64_t *piece = ndp_piece_at(&one.in[NDP_UPDATE_PIECES], 0);
        run_one(&one, piece[NDP_PIECE_COUNT], ranges_of(call, piece), kernel);
    }
    return NDP_OK;
}

static ndp_status run_square_sum(const ndp_op_call *c) {
    double part[NDP_SQUARE_PARTS], *sum = c->out[0].data, total = c->attr->accumulate ? *sum : 0;
    ndp_op_call one = *c;
    one.out[0] = (ndp_view){part, NDP_F64, 1, NDP_SQUARE_PARTS, NDP_SQUARE_PARTS};
    for (int64_t i = 0; i < c->in[1].rows; i++) {
        choose(&one.in[1], &c->in[1], i);
        const int64_t *piece = ndp_piece_at(&one.in[1], 0);
        int64_t n = piece[NDP_PIECE_COUNT], length = ndp_square_part(n), parts = n ? (n + length - 1) / length : 0;
        double squares = 0;
        run_one(&one, n, parts, ndp_rows_best()->square_parts);
        for (int64_t p = 0; p < parts; p++)
            squares += part[p];
        total += squares / (double)ndp_piece_copies(piece);
    }
    *sum = total;
    return NDP_OK;
}

const ndp_kernel ndp_cpu_square_sum = {.run = run_square_sum};
