/* A device around another one, whose gradients of weights are sums over some of the rows alone: what a rank has before
 * ranks add theirs. Everything else, the loss and the gradients of activations, is as it was; so one rank computes what
 * a trainer has that forgets such a sum. */
#ifndef NDP_VERIFY_PARTIAL_H
#define NDP_VERIFY_PARTIAL_H

#include "ops/op.h"

/* A range of rows. */
typedef struct ndp_row_range {
    int64_t first, count;
} ndp_row_range;

/* What gradients of weights are summed over. {0}: everything. */
typedef struct ndp_partial_sums {
    int n; /* ranges of rows; 0: all rows */
    ndp_row_range rows[2];
    int head_rank, head_ranks;  /* of norms by heads: only the heads of rank `head_rank` of so many; 0: all */
    bool no_embedding, no_head; /* without what tables get from the embedding, from the head */
    /* Of one attention, counted from 1 in the order of the backward, keys and values get the gradient of some of the
     * query heads that share a kv head: part `kv_part` of `kv_parts`. What comes after it in the backward is then
     * wrong, so that only the projections of that layer are of use. 0: all. */
    int attention, kv_part, kv_parts;
    /* Of routers, if experts are cut over `choice_ranks` ranks. The weights of choices get the gradient of the experts
     * of rank `choice_rank` alone, counted from 1; 0: of all; beyond the last: of none. With last_experts they get
     * besides that of their own expert that of the last expert of each other rank. The backward goes on from there, so
     * a whole step is that of a trainer with the fault. 0: all as they are. */
    int choice_rank, choice_ranks;
    bool last_experts;
} ndp_partial_sums;

/* What the last expert of each rank makes of all rows of a mixture: first T rows of rank 0's, then of rank 1's. */
typedef struct ndp_other_experts {
    const void *at;   /* where the mixture's own sorted rows lie that are as far as these; of results, those that the
                       * second product was made of, which are kept for the backward */
    ndp_view rows;    /* owned */
    int32_t *offsets; /* of the sorted rows (ops/op.h), [experts + 1], owned; NULL before the first product */
    int64_t experts;
    bool weighed; /* its own rows are: the second product is next */
} ndp_other_experts;

/* Gets the logits of a row of the batch that predicts a token, `n` of them. */
typedef ndp_status ndp_head_visitor(void *user, int64_t row, const double *logits, int64_t n);

typedef struct ndp_partial {
    ndp_device device; /* its kernels point here: the struct must not move */
    const ndp_device *inner;
    const ndp_kernel *kernels[NDP_OP_COUNT];
    ndp_kernel own[NDP_OP_COUNT];
    ndp_partial_sums sums;    /* of the next steps; the caller sets it between steps */
    ndp_head_visitor *logits; /* also of the next steps; NULL: none */
    void *user;
    int attentions;            /* backwards of attention since the caller set this to 0 */
    ndp_other_experts *others; /* of steps with last_experts */
    int n_others;
    int64_t others_capacity;
    ndp_view taken; /* the same: a copy of what take_rows took last; in the backward gradients of a mixture's rows */
    void *scratch;
    size_t scratch_bytes;
} ndp_partial;

/* Wraps `inner`, whose memory the host can access. Copies no kernels of its own: it borrows `inner`. */
void ndp_partial_init(ndp_partial *p, const ndp_device *inner);
void ndp_partial_release(ndp_partial *p);

#endif
