/* Inside the verify room: a dump next to our own step, tensor by tensor. */
#ifndef NDP_VERIFY_AGAINST_H
#define NDP_VERIFY_AGAINST_H

#include "verify/judge.h"

typedef struct ndp_comparison {
    const ndp_config *config; /* the job's */
    const ndp_dump *dump;
    const ndp_dump_rows *rows;
    ndp_judge *judge;
    ndp_judged ours;
    double *bounds; /* of the gradients, by tensor */
    double loss_bound;
    double nothing; /* the norm at which a gradient counts as zero: rounding errors are left */
} ndp_comparison;

/* Products of one tensor of the dump d and of a sum c. */
typedef struct ndp_products {
    double dd, dc, cc;
} ndp_products;
NDP_API ndp_status ndp_compare_products(const ndp_comparison *c, int tensor, const ndp_judged *sum, ndp_products *out);
/* |d - k c| / |k c| of a tensor; 0 if both norms are at most c->nothing. */
NDP_API ndp_status ndp_compare_distance(const ndp_comparison *c, int tensor, const ndp_judged *sum, double k,
                                        double *out);

#endif
