/* All ops, the attributes that they read, and what they cost. */
#include "ops/shape.h"

#define ADDRESS(op) &ndp_op_##op,
const ndp_op *const ndp_all_ops[NDP_OP_COUNT] = {NDP_OPS(ADDRESS)};

#define ROWS(op) [NDP_OP_##op] = NDP_KIND_ROWS,
#define COLUMNS(op) [NDP_OP_##op] = NDP_KIND_COLUMNS,
#define PIECES(op) [NDP_OP_##op] = NDP_KIND_PIECES,
#define WHOLE(op) [NDP_OP_##op] = NDP_KIND_WHOLE,
#define HOST(op) [NDP_OP_##op] = NDP_KIND_HOST,
#define COLLECTIVE(op) [NDP_OP_##op] = NDP_KIND_COLLECTIVE,
#define MARK(op) [NDP_OP_##op] = NDP_KIND_MARK,
const ndp_op_kind ndp_op_kinds[NDP_OP_COUNT] = {NDP_OP_LIST(ROWS, COLUMNS, PIECES, WHOLE, HOST, COLLECTIVE, MARK)};

ndp_op_attr ndp_op_attr_of(const ndp_op *op, const ndp_op_attr *attr) {
    ndp_op_attr own = {.accumulate = attr->accumulate};
#define KEEP(type, name) own.name = op->reads & NDP_READS_##name ? attr->name : (type)0;
    NDP_OP_ATTRS(KEEP)
#undef KEEP
    return own;
}

bool ndp_op_attrs_equal(const ndp_op_attr *a, const ndp_op_attr *b) {
#define SAME(type, name) &&a->name == b->name
    return a->accumulate == b->accumulate NDP_OP_ATTRS(SAME);
#undef SAME
}

void ndp_op_cost(const ndp_op_call *c, double *flops, double *bytes) {
    *flops = c->op->flops * ndp_elements(&c->in[0]);
    *bytes = 0;
    for (int i = 0; i < c->op->n_in; i++)
        *bytes += ndp_view_bytes(&c->in[i]);
    for (int i = 0; i < c->op->n_out; i++)
        *bytes += ndp_view_bytes(&c->out[i]);
    if (c->op->cost)
        c->op->cost(c, flops, bytes);
}
