/* Adapters in the graph of a unit (adapter.h).
 *
 *   x [T,K] -> [dropout] -> A of all projections that read x, glued [n r, K] -> h [T, n r], scaled
 *   y [T,N] = x W^T; its columns of a projection += its r columns of h times B^T
 *   with lengths its columns *= m / |W + scale B A|; then the bias
 *
 * A fused tensor of the files (phi3's qkv_proj) has one pair of factors, as in PEFT; B is in as many segments as the
 * tensor. The bias comes last, since lengths scale what has none.
 *
 * Beside experts the same by rows of each: A and B are stacks, and x stands by expert. */
#include "model/block.h"

#include <string.h>

static ndp_place at(const ndp_unit_builder *b, int place, ndp_factor factor) {
    return b->places->factors[place][factor];
}

bool ndp_unit_has_adapter(const ndp_unit_builder *b, ndp_param place, int n) {
    bool has = false;
    for (int i = 0; i < n; i++)
        has |= at(b, (int)place + i, NDP_FACTOR_A).segment != NDP_NONE;
    return has;
}

static const ndp_segment *segment(const ndp_unit_builder *b, ndp_place p) {
    return &b->g->slots[p.slot]->items[p.segment];
}

/* x as the factors A see it. Those that read one x share its dropout. */
static int dropped(ndp_unit_builder *b, int x) {
    double dropout = b->m->opts.adapter.dropout;
    if (dropout == 0 || b->m->opts.mode != NDP_MODEL_TRAIN)
        return x;
    ndp_op_attr attr = {.drop = dropout, .tag = b->dropouts++};
    int ins[] = {x, ndp_unit_data(b, NDP_INPUT_KEYS), ndp_unit_data(b, NDP_INPUT_UNIT_TABLE)};
    return ndp_graph_op1(b->g, &ndp_op_dropout, &attr, "dropped", ins, 3);
}

/* How many of `n` places from `place` on are of the same tensor of the files as the first one. */
static int parts_of(const ndp_unit_builder *b, int place, int n) {
    const char *name = segment(b, b->places->at[place])->name;
    int parts = 1;
    while (parts < n && strcmp(segment(b, b->places->at[place + parts])->name, name) == 0)
        parts++;
    return parts;
}

/* scale (x A^T), of all A at once. They are glued. */
static int inner(ndp_unit_builder *b, int x, int place, int n, int *pairs) {
    ndp_place first = {0, NDP_NONE};
    *pairs = 0;
    for (int i = 0; i < n; i++) {
        ndp_place a = at(b, place + i, NDP_FACTOR_A);
        first = first.segment == NDP_NONE ? a : first;
        *pairs += a.segment != NDP_NONE;
    }
    ndp_op_attr attr = {.scale = b->m->opts.adapter.scale};
    int ins[] = {dropped(b, x), ndp_graph_param(b->g, first.slot, first.segment, *pairs), NDP_NONE};
    int h = ndp_graph_op1(b->g, &ndp_op_linear, NULL, "inner", ins, 3);
    return ndp_graph_op1(b->g, &ndp_op_scale, &attr, "inner", &h, 1);
}

/* Of the columns of y from `first` on: those of one projection. */
static int lengthen(ndp_unit_builder *b, const char *name, int y, int64_t first, int place, int parts) {
    const ndp_adapter *a = &b->m->opts.adapter;
    ndp_place A = at(b, place, NDP_FACTOR_A), B = at(b, place, NDP_FACTOR_B), m = at(b, place, NDP_FACTOR_LENGTH);
    int of[] = {ndp_unit_weight(b, (ndp_param)place, parts), ndp_graph_param(b->g, A.slot, A.segment, 1),
                ndp_graph_param(b->g, B.slot, B.segment, parts)};
    int squares = ndp_graph_op1(b->g, &ndp_op_dora_squares, &(ndp_op_attr){.scale = a->scale}, "squares", of, 3);
    int ins[] = {y, ndp_graph_param(b->g, m.slot, m.segment, parts), squares};
    return ndp_graph_op1(b->g, &ndp_op_dora, &(ndp_op_attr){.first = first}, name, ins, 3);
}

int ndp_unit_adapters(ndp_unit_builder *b, const char *name, int x, int y, ndp_param place, int n, ndp_param bias) {
    int pairs, pair = 0, r = b->m->opts.adapter.r, h = inner(b, x, (int)place, n, &pairs);
    int64_t first = 0;
    for (int i = 0, parts; i < n; i += parts) {
        ndp_place B = at(b, (int)place + i, NDP_FACTOR_B);
        int64_t rows = 0;
        parts = parts_of(b, (int)place + i, n - i);
        for (int k = 0; k < parts; k++)
            rows += segment(b, b->places->at[(int)place + i + k])->rows;
        if (B.segment != NDP_NONE) {
            int part = pairs == 1 ? h : ndp_graph_columns(b->g, h, (int64_t)pair++ * r, r);
            int ins[] = {part, ndp_graph_param(b->g, B.slot, B.segment, parts), NDP_NONE};
            int z = ndp_graph_op1(b->g, &ndp_op_linear, NULL, "outer", ins, 3);
            y = ndp_graph_op1(b->g, &ndp_op_add_columns, &(ndp_op_attr){.first = first}, name, (int[]){y, z}, 2);
            if (ndp_form_rules[b->m->opts.adapter.form].lengths != NDP_NO_FACTOR)
                y = lengthen(b, name, y, first, (int)place + i, parts);
        }
        first += rows;
    }
    int w = ndp_unit_param(b, bias, n);
    return w == NDP_NONE ? y : ndp_graph_op1(b->g, &ndp_op_add_bias, NULL, name, (int[]){y, w}, 2);
}

int ndp_unit_stack_adapter(ndp_unit_builder *b, const char *name, int x, const ndp_op_attr *how, int y, ndp_param place,
                           int offsets) {
    ndp_place A = at(b, (int)place, NDP_FACTOR_A), B = at(b, (int)place, NDP_FACTOR_B);
    const ndp_view to = b->g->values[y].view;
    ndp_op_attr attr = {.scale = b->m->opts.adapter.scale};
    if (A.segment == NDP_NONE)
        return y;
    int h = ndp_graph_op1(b->g, &ndp_op_linear_stack, how, "inner",
                          (int[]){x, ndp_graph_param(b->g, A.slot, A.segment, 1), offsets}, 3);
    h = ndp_graph_op1(b->g, &ndp_op_scale, &attr, "inner", &h, 1);
    int r = b->m->opts.adapter.r, parts = (int)(b->g->values[h].view.cols / r); /* gate and up apart, or one */
    for (int i = 0; i < parts; i++) {
        int part = parts == 1 ? h : ndp_graph_columns(b->g, h, (int64_t)i * r, r);
        int ins[] = {part, ndp_graph_param(b->g, B.slot, B.segment + i, 1), offsets};
        int z = ndp_graph_value(b->g, "outer", to.rows, to.cols / parts, to.dtype);
        attr = (ndp_op_attr){.first = to.cols / parts * i};
        ndp_graph_op(b->g, &ndp_op_linear_stack, NULL, "outer", ins, 3, &z, 1);
        y = ndp_graph_op1(b->g, &ndp_op_add_columns, &attr, name, (int[]){y, z}, 2);
    }
    return y;
}
