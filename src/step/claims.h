/* What a rank's memory holds that no call wrote: its parts of tensors, the rows that it loads, the tables of pieces.
 * The placement check takes these as claims, and proves that over all ranks they are the whole, each part once. The
 * engine fills memory by the same functions. */
#ifndef NDP_STEP_CLAIMS_H
#define NDP_STEP_CLAIMS_H

#include "step/program.h"

/* `mesh`: of the rank, for which a program of another rank of the same stages may stand in. */
typedef struct ndp_claims {
    void *user;
    /* The segment table of a buffer (of the program's model) on a rank; items in `arena`. */
    ndp_status (*table)(void *user, const ndp_program *p, const ndp_mesh *mesh, int buffer, ndp_arena *arena,
                        ndp_segments *out);
    /* The row of the micro-batch that row i of an extent is; rows from opts.whole->opts.rows on are padding. */
    int64_t (*row)(void *user, const ndp_program *p, const ndp_mesh *mesh, ndp_extent extent, int64_t i);
    /* The table of pieces of slice `index` of `shards` (ops/pieces.h), as uploaded: owned[buffer].n_pieces rows of
     * ndp_piece_columns() numbers for the program's own. Returns the rows; `out` NULL: only that. */
    int64_t (*pieces)(void *user, const ndp_program *p, const ndp_segments *table, int buffer, int shards, int index,
                      int64_t *out);
    /* The address of an input, as a run binds it, and as a batch is loaded there. */
    ndp_address (*input)(void *user, const ndp_program *p, int input, int micro_batch);
    /* The samples of a global batch that a rank reads for micro-batch m: [first, first + count) of `total`, in
     * samples of which a micro-batch has one. */
    void (*samples)(void *user, const ndp_program *p, const ndp_mesh *mesh, int micro_batch, int64_t *first,
                    int64_t *count, int64_t *total);
} ndp_claims;

/* Those of engines. */
extern const ndp_claims ndp_engine_claims;

#endif
