/* The end of a model, alike in all architectures: the loss of the rows that have labels. Rows of the user's own
 * (ndp_model_opts.own_rows) have weights in training, and a scoring pass keeps the number of each. */
#include "model/model.h"

const char *const ndp_row_numbers[NDP_ROW_NUMBERS] = {"row_nll", "row_values"};

static int data(const ndp_model *m, ndp_graph *g, ndp_input_kind kind) {
    return ndp_graph_data(g, ndp_inputs_find(m->inputs, kind));
}

void ndp_head_inputs(ndp_model *m) {
    const ndp_model_opts *o = &m->opts;
    if (o->own_rows && o->mode == NDP_MODEL_TRAIN) {
        ndp_inputs_add(m->inputs, (ndp_input){"weights", NDP_INPUT_WEIGHTS, NDP_EXTENT_TOKENS, 1, NDP_F64, NULL, 0});
        ndp_inputs_add(m->inputs, (ndp_input){"scales", NDP_INPUT_SCALES, NDP_EXTENT_TOKENS, 1, NDP_F64, NULL, 0});
    }
    if (o->own_rows && o->mode == NDP_MODEL_SCORE)
        for (int i = 0; i < NDP_ROW_NUMBERS; i++)
            ndp_inputs_add(m->inputs, (ndp_input){ndp_row_numbers[i], NDP_INPUT_ROW_NUMBERS, NDP_EXTENT_TOKENS, 1 + i,
                                                  ndp_wide(o->compute), NULL, 0});
}

void ndp_head_loss(const ndp_model *m, ndp_graph *g, int x, int w, const ndp_op_attr *attr) {
    const bool own = m->opts.own_rows, trains = attr->train && g->status == NDP_OK && g->values[w].needs_grad;
    int labels = data(m, g, NDP_INPUT_LABELS);
    int scale = data(m, g, own && attr->train ? NDP_INPUT_SCALES : NDP_INPUT_LOSS_SCALE), ins[] = {x, w, labels, scale};
    int outs[4] = {NDP_NONE, NDP_NONE, trains ? ndp_graph_param_grad(g, w) : NDP_NONE, NDP_NONE};
    ndp_op_attr how = *attr;
    how.values = own && !attr->train;
    const ndp_token_weighting *weight = &m->opts.token_weight;
    if (attr->train)
        how.loss = (int)weight->kind;
    if (attr->train && weight->kind == NDP_TOKEN_WEIGHT_ENTROPY)
        how.choices = weight->k, how.gamma = weight->alpha, how.scale = 1 / weight->unit;
    const ndp_op *loss = m->opts.row_loss && attr->train ? &ndp_op_row_loss : &ndp_op_xent;
    ndp_graph_op(g, loss, &how, "nll", ins, 4, outs, how.values ? 4 : trains ? 3 : attr->train ? 2 : 1);
    int sum = data(m, g, NDP_INPUT_LOSS), weighted = own && attr->train;
    int rows[] = {outs[0], weighted ? data(m, g, NDP_INPUT_WEIGHTS) : NDP_NONE};
    ndp_graph_op(g, &ndp_op_reduce_sum, &(ndp_op_attr){.accumulate = true}, "loss", rows, 1 + weighted, &sum, 1);
    for (int i = 0; how.values && i < NDP_ROW_NUMBERS; i++) {
        int kept = ndp_graph_data(g, ndp_inputs_find_nth(m->inputs, NDP_INPUT_ROW_NUMBERS, i));
        ndp_graph_op(g, &ndp_op_copy, &(ndp_op_attr){.type = ndp_wide(m->opts.compute)}, ndp_row_numbers[i],
                     &outs[3 * i], 1, &kept, 1);
    }
}
