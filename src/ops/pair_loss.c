/* Losses of pairs of documents (ops/preference.h): the log-probability of each document's answer is a sum over its
 * rows; a pair's loss and its derivatives are made of two such sums; each row gets what its gradient is scaled by, and
 * its part of what is reported. */
#include "ops/flow.h"
#include "ops/preference.h"
#include "ops/shape.h"

static ndp_status check_rows(const ndp_op_call *c, const ndp_view *documents, const ndp_view *nll) {
    NDP_SHAPE_CHECK(
        documents->dtype == NDP_I32 && documents->cols == 1 && nll->cols == 1 && nll->rows == documents->rows,
        "%s: documents " NDP_SHAPE ", nll " NDP_SHAPE, c->op->name, NDP_SHAPE_ARGS(*documents), NDP_SHAPE_ARGS(*nll));
    return NDP_OK;
}

/* [D, cols] fp64 of an even number of documents. */
static bool of_documents(const ndp_view *v, int64_t documents, int64_t cols) {
    return v->dtype == NDP_F64 && v->rows == documents && v->cols == cols && documents >= 2 && documents % 2 == 0;
}

/* ---- row_score ---- */

static ndp_status score_shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *scale = &c->in[1];
    NDP_SHAPE_CHECK(
        x->cols == 1 && x->dtype == ndp_wide(x->dtype) &&
            (scale->rows ? scale->rows == x->rows && scale->cols == 1 && scale->dtype == NDP_F64 : !c->attr->train),
        "row_score: x " NDP_SHAPE ", scale " NDP_SHAPE, NDP_SHAPE_ARGS(*x), NDP_SHAPE_ARGS(*scale));
    ndp_shape_like(&c->out[0], x);
    if (c->attr->train)
        ndp_shape_like(&c->out[1], x);
    return NDP_OK;
}

/* The forward made the gradient. */
static ndp_status score_backward(ndp_bwd *b) { return b->wants(b, 0) ? b->pass_grad(b, 0, b->out[1]) : NDP_OK; }

const ndp_op ndp_op_row_score = {
    NDP_NAMED(row_score),
    .n_in = 2,
    .n_out = 2,
    .optional_in = 1 << 1,
    .rows = NDP_ROWS_ALIKE,
    .shape = score_shape,
    .backward = score_backward,
    .flops = 1,
    .reads = NDP_READS_train,
    NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "t1"), NDP_IS(OPERAND, 1, "t1")},
               .out = {NDP_IS(RESULT, 0, "t1"), NDP_IS(D_OPERAND, 0, "t1")}}),
};

/* ---- document_sums ---- */

static ndp_status sums_shape(ndp_op_call *c) {
    NDP_TRY(check_rows(c, &c->in[1], &c->in[0]));
    NDP_SHAPE_CHECK(c->attr->parts >= 2 && c->attr->parts % 2 == 0, "document_sums: %d documents of rows " NDP_SHAPE,
                    c->attr->parts, NDP_SHAPE_ARGS(c->in[0]));
    ndp_shape_set(&c->out[0], c->attr->parts, 2, NDP_F64);
    return NDP_OK;
}

const ndp_op ndp_op_document_sums = {
    NDP_NAMED(document_sums),
    .n_in = 2,
    .n_out = 1,
    .rows = NDP_ROWS_MIXED,
    .constant = true,
    .shape = sums_shape,
    .flops = 2,
    .reads = NDP_READS_parts,
    NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "t1"), NDP_IS(OPERAND, 1, "t1")}, .out = {NDP_IS(RESULT, 0, "..")}}),
};

/* ---- pair_loss ---- */

static ndp_status loss_shape(ndp_op_call *c) {
    const ndp_view *sums = &c->in[0], *reference = &c->in[1];
    NDP_SHAPE_CHECK(
        of_documents(sums, sums->rows, 2) && (reference->rows == 0 || of_documents(reference, sums->rows, 1)),
        "pair_loss: sums " NDP_SHAPE ", reference " NDP_SHAPE, NDP_SHAPE_ARGS(*sums), NDP_SHAPE_ARGS(*reference));
    ndp_shape_set(&c->out[0], sums->rows, 1, NDP_F64);
    ndp_shape_set(&c->out[1], sums->rows / 2, NDP_PAIR_COLUMNS, NDP_F64);
    return NDP_OK;
}

const ndp_op ndp_op_pair_loss = {
    NDP_NAMED(pair_loss),
    .n_in = 2,
    .n_out = 2,
    .optional_in = 1 << 1,
    .rows = NDP_ROWS_MIXED,
    .constant = true,
    .shape = loss_shape,
    .flops = 100,
    .reads = NDP_READS_loss | NDP_READS_scale | NDP_READS_gamma | NDP_READS_center | NDP_READS_label_smoothing |
             NDP_READS_desirable_weight | NDP_READS_undesirable_weight,
    NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, ".."), NDP_IS(OPERAND, 1, "..", .name = "a reference")},
               .out = {NDP_IS(RESULT, 0, ".."), NDP_IS(RESULT, 1, "..")}}),
};

/* ---- pair_rows ---- */

static ndp_status rows_shape(ndp_op_call *c) {
    const ndp_view *in = c->in;
    int64_t documents = in[NDP_PAIR_ROWS_SUMS].rows;
    NDP_TRY(check_rows(c, &in[NDP_PAIR_ROWS_DOCUMENTS], &in[NDP_PAIR_ROWS_NLL]));
    NDP_SHAPE_CHECK(
        of_documents(&in[NDP_PAIR_ROWS_SUMS], documents, 2) && of_documents(&in[NDP_PAIR_ROWS_SLOPES], documents, 1) &&
            in[NDP_PAIR_ROWS_PAIRS].rows * 2 == documents && in[NDP_PAIR_ROWS_PAIRS].cols == NDP_PAIR_COLUMNS &&
            in[NDP_PAIR_ROWS_SCALE].dtype == NDP_F64,
        "pair_rows: sums " NDP_SHAPE ", slopes " NDP_SHAPE ", pairs " NDP_SHAPE, NDP_SHAPE_ARGS(in[NDP_PAIR_ROWS_SUMS]),
        NDP_SHAPE_ARGS(in[NDP_PAIR_ROWS_SLOPES]), NDP_SHAPE_ARGS(in[NDP_PAIR_ROWS_PAIRS]));
    ndp_shape_set(&c->out[0], in[NDP_PAIR_ROWS_NLL].rows, 1, NDP_F64);
    ndp_shape_set(&c->out[1], in[NDP_PAIR_ROWS_NLL].rows, NDP_PAIR_SUMS, NDP_F64);
    return NDP_OK;
}

const ndp_op ndp_op_pair_rows = {
    NDP_NAMED(pair_rows),
    .n_in = NDP_PAIR_ROWS_OPERANDS,
    .n_out = 2,
    .rows = NDP_ROWS_MIXED,
    .constant = true,
    .shape = rows_shape,
    .flops = 10,
    .reads = NDP_READS_scale,
    NDP_FLOWS(
        {.in = {NDP_IS(OPERAND, 0, "t1"), NDP_IS(OPERAND, 1, "t1"), NDP_IS(OPERAND, 2, ".."), NDP_IS(OPERAND, 3, ".."),
                NDP_IS(OPERAND, 4, ".."), NDP_IS(OPERAND, 5, ".."), NDP_IS(OPERAND, 6, "..")},
         .out = {NDP_IS(RESULT, 0, "t1"), NDP_IS(RESULT, 1, "t.")}}),
};
