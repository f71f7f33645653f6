/* Inside the verify room: a dump next to our own step, tensor by tensor. */
#ifndef NDP_VERIFY_AGAINST_H
#define NDP_VERIFY_AGAINST_H

#include "verify/judge.h"

typedef struct ndp_comparison {
    const ndp_config *config; /* the job's */
    const ndp_against_opts *opts;
    const ndp_dump *dump;
    const ndp_dump_rows *rows;
    ndp_judge *judge;
    ndp_judged ours;
    double *losses; /* of ours: each row's part of the loss */
    double *bounds; /* of the gradients, by tensor */
    double loss_bound;
    double nothing; /* the norm at which a gradient counts as zero: rounding errors are left */
} ndp_comparison;

/* updates.c: compares the updated weights, if the dump has some. A line of out->causes says what of them differs where
 * the gradients agree. */
NDP_API ndp_status ndp_compare_updates(const ndp_comparison *c, ndp_against *out);
/* NDP_EINVAL: there are weights, but no learning rate that the update of the dump had. */
NDP_API ndp_status ndp_check_update(const ndp_config *c, const ndp_dump *d);

/* logits.c: compares the logits, if the dump has some, where a token is predicted, and says so if nothing else differs.
 * Computes each row once more. */
NDP_API ndp_status ndp_compare_logits(const ndp_comparison *c, ndp_against *out);

/* Adds a line to out->causes, formatted as by printf. */
NDP_API __attribute__((format(printf, 2, 3))) ndp_status ndp_add_cause(ndp_against *out, const char *format, ...);

/* In bf16 the bounds are so many times the distance from fp32 of our own step in bf16. Steps of torch in bf16 were off
 * by up to 2.6 times that, where it also stores weights and gradients so; with autocast by 1.1 times. */
enum { NDP_HALF_TIMES = 4 };

/* The largest relative error of storing a number as `t`. */
double ndp_rounding_of(ndp_dtype t);
/* What our own step is computed in. */
ndp_dtype ndp_own_compute(const ndp_config *c);

/* Products of one tensor of the dump d and of a sum c. */
typedef struct ndp_products {
    double dd, dc, cc;
} ndp_products;
NDP_API ndp_status ndp_compare_products(const ndp_comparison *c, int tensor, const ndp_judged *sum, ndp_products *out);
/* |d - k c| / |k c| of a tensor; 0 if both norms are at most c->nothing. */
NDP_API ndp_status ndp_compare_distance(const ndp_comparison *c, int tensor, const ndp_judged *sum, double k,
                                        double *out);

#endif
