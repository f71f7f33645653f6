/* heads_split, heads_merge. */
#include "ops/heads.h"
#include "ops/ref/ref_kernels.h"

static double heads_split(const ndp_op_call *c, int64_t r, int64_t j) {
    ndp_heads h = ndp_heads_of(c->attr);
    int64_t rows = c->in[0].rows;
    return ndp_ref_in(c, 0, r % rows, ndp_heads_run(&h, r / rows) * h.width + j);
}

NDP_REF_EACH(heads_split)

static double heads_merge(const ndp_op_call *c, int64_t t, int64_t j) {
    ndp_heads h = ndp_heads_of(c->attr);
    double sum = 0;
    int64_t p, end;
    for (ndp_heads_parts(&h, j / h.width, &p, &end); p < end; p++)
        sum += ndp_ref_in(c, 0, p * c->out[0].rows + t, j % h.width);
    return sum;
}

NDP_REF_EACH(heads_merge)
