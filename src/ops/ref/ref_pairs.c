/* row_score, document_sums, pair_loss, pair_rows: a few thousand numbers, so one thread makes them. */
#include "ops/preference.h"
#include "ops/ref/ref_kernels.h"

ndp_status ndp_ref_run_row_score(const ndp_op_call *c) {
    for (int64_t t = 0; t < c->in[0].rows; t++) {
        ndp_view_set(&c->out[0], t, 0, -ndp_view_get(&c->in[0], t, 0));
        if (ndp_present(&c->out[1]))
            ndp_view_set(&c->out[1], t, 0, -ndp_view_get(&c->in[1], t, 0));
    }
    return NDP_OK;
}

const ndp_kernel ndp_ref_row_score = {.run = ndp_ref_run_row_score};

ndp_status ndp_ref_run_document_sums(const ndp_op_call *c) {
    double *sums = c->out[0].data;
    ndp_view_clear(&c->out[0]);
    for (int64_t t = 0; t < c->in[0].rows; t++) {
        int64_t code = ndp_int_at(&c->in[1], t), document = ndp_document_of(code);
        if (!ndp_document_has(code, NDP_DOCUMENT_ANSWER) || document >= c->attr->parts)
            continue;
        sums[document * c->out[0].ld] -= ndp_view_get(&c->in[0], t, 0);
        sums[document * c->out[0].ld + 1] += 1;
    }
    return NDP_OK;
}

const ndp_kernel ndp_ref_document_sums = {.run = ndp_ref_run_document_sums};

ndp_status ndp_ref_run_pair_loss(const ndp_op_call *c) {
    const ndp_preference p = ndp_pair_preference(c->attr);
    const ndp_view *sums = &c->in[0], *reference = &c->in[1], *slopes = &c->out[0];
    for (int64_t i = 0; i < c->out[1].rows; i++) {
        ndp_pair_document d[2];
        double out[NDP_PAIR_COLUMNS], by[2];
        for (int k = 0; k < 2; k++)
            d[k] = (ndp_pair_document){ndp_view_get(sums, 2 * i + k, 0), ndp_view_get(sums, 2 * i + k, 1),
                                       ndp_present(reference) ? ndp_view_get(reference, 2 * i + k, 0) : 0};
        ndp_pair_judge(&p, &d[0], &d[1], out, &by[0], &by[1]);
        for (int k = 0; k < 2; k++)
            ndp_view_set(slopes, 2 * i + k, 0, by[k]);
        for (int j = 0; j < NDP_PAIR_COLUMNS; j++)
            ndp_view_set(&c->out[1], i, j, out[j]);
    }
    return NDP_OK;
}

const ndp_kernel ndp_ref_pair_loss = {.run = ndp_ref_run_pair_loss};

ndp_status ndp_ref_run_pair_rows(const ndp_op_call *c) {
    const ndp_view *in = c->in, *sums = &in[NDP_PAIR_ROWS_SUMS];
    double scale = *(const double *)in[NDP_PAIR_ROWS_SCALE].data;
    double nll_scale = c->attr->scale * *(const double *)in[NDP_PAIR_ROWS_NLL_SCALE].data;
    ndp_view_clear(&c->out[0]);
    ndp_view_clear(&c->out[1]);
    for (int64_t t = 0; t < c->out[0].rows; t++) {
        int64_t code = ndp_int_at(&in[NDP_PAIR_ROWS_DOCUMENTS], t), document = ndp_document_of(code);
        double by = 0;
        if (document < 0 || document >= sums->rows)
            continue;
        if (ndp_document_has(code, NDP_DOCUMENT_ANSWER)) {
            int64_t pair = document / 2;
            double tokens = ndp_view_get(sums, 2 * pair, 1) + ndp_view_get(sums, 2 * pair + 1, 1);
            by -= ndp_view_get(&in[NDP_PAIR_ROWS_SLOPES], document, 0) * scale;
            for (int j = 0; j < NDP_PAIR_COLUMNS; j++)
                ndp_view_set(&c->out[1], t, j, ndp_view_get(&in[NDP_PAIR_ROWS_PAIRS], pair, j) / tokens);
        }
        if (ndp_document_has(code, NDP_DOCUMENT_NLL)) {
            by += nll_scale;
            ndp_view_set(&c->out[1], t, NDP_PAIR_NLL, ndp_view_get(&in[NDP_PAIR_ROWS_NLL], t, 0));
        }
        ndp_view_set(&c->out[0], t, 0, by);
    }
    return NDP_OK;
}

const ndp_kernel ndp_ref_pair_rows = {.run = ndp_ref_run_pair_rows};
