/* How the rows (tokens) of a micro-batch are cut over the context axis (cp) and the sequence axis (sp).
 *
 * T rows, padded to a multiple of 2 cp x sp x tp. Zig-zag: 2 cp chunks; rank r of cp has chunks r and 2 cp - 1 - r, so
 * that under a causal mask all ranks have the same work; otherwise one chunk a rank. The rows of a cp rank are cut
 * evenly over sp. Attention sees all rows of a cp rank (`queries`); everything else has its own `tokens` alone. */
#ifndef NDP_PARALLEL_ROW_CUT_H
#define NDP_PARALLEL_ROW_CUT_H

#include "graph/input.h"
#include "mesh/mesh.h"
#include "ops/op.h"

/* How the keys and values of a context group reach its ranks: passed around a ring, or gathered at once. */
typedef enum ndp_cp_method { NDP_CP_RING, NDP_CP_ALL_GATHER } ndp_cp_method;

/* How the axes split the work. An axis of size 1 ignores its choices. */
typedef struct ndp_parallel {
    bool
        tp_sequence_parallel; /* each tp rank has a slice of the rows of norms and residuals; false: all (all_reduce) */
    ndp_cp_method cp_method;
    bool cp_zigzag;    /* false: contiguous */
    int64_t align;     /* of the rank's tables (tensor/segments.h). An engine sets what its optimizer asks for */
    int64_t head_rows; /* the most rows of logits at a time where tp cuts the head (vocabulary.c); 0: as few as that */
    double capacity_factor; /* ep: a round takes so many times the choices that come of even routers; 0: all */
} ndp_parallel;
#define NDP_PARALLEL_INIT                                                                                              \
    { true, NDP_CP_RING, true, 0, 0, 1.5 }

typedef struct ndp_row_cut {
    int64_t real, padded;
    int64_t tokens, queries, keys; /* of this rank: of a unit, of its attention, of all that it sees */
    int64_t slice;                 /* tokens of the residual stream: a tp rank's part of `tokens`, or all */
    int64_t routed;                /* of a mixture: with ep a tp rank's part of `tokens` */
    int cp, cp_rank, sp, sp_rank;
    bool zigzag, ring;
} ndp_row_cut;

ndp_row_cut ndp_cut_rows(int64_t rows, const ndp_mesh *mesh, const ndp_parallel *how);

/* True if this rank's mixtures see a slice of its rows: with ep, the tensor axis cuts them too. */
bool ndp_mixtures_are_sliced(const ndp_mesh *mesh);

/* The row of the micro-batch that is this rank's token, query or key number i (TOKENS, QUERIES, KEYS); rows from `real`
 * on are padding. Keys are in the order in which attention meets them: this rank's own first and then round the ring,
 * or by rank. */
int64_t ndp_row_cut_at(const ndp_row_cut *r, ndp_extent extent, int64_t i);

/* Heads or kv heads of this rank: over tp, at least one; all kv heads where tp and they do not divide each other (tp x
 * sp then is a multiple of them). */
int ndp_local_heads(const ndp_mesh *mesh, int heads);
/* Attributes of an op, with the heads of this rank. */
ndp_op_attr ndp_local_attr(const ndp_mesh *mesh, ndp_op_attr attr);

#endif
