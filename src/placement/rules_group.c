/* Rules of collectives inside units, from what all members hand in. Sums add shares: a sum of what every rank has
 * complete, or of one member's contribution twice, has a share that is not a part of a whole. */
#include "placement/rule.h"

/* Rows of member i of `n`, one after another. */
static ndp_status gather(ndp_rule *r, const ndp_content *const *handed, int n) {
    int64_t row = 0;
    for (int i = 0; i < n; row += handed[i]->rows, i++)
        NDP_TRY(ndp_content_move(handed[i], 0, handed[i]->rows, 0, handed[i]->cols, row, 0, &r->out[0]));
    return NDP_OK;
}

/* The sum of rows [first, first + rows) of all members. */
static ndp_status sum(ndp_rule *r, const ndp_content *const *handed, int n, int64_t first, int64_t rows) {
    ndp_content total = ndp_content_of(r->arena, rows, handed[0]->cols);
    NDP_TRY(ndp_content_move(handed[0], first, rows, 0, handed[0]->cols, 0, 0, &total));
    for (int i = 1; i < n; i++) {
        ndp_content part = ndp_content_of(r->arena, rows, handed[i]->cols);
        ndp_content next = ndp_content_of(r->arena, rows, handed[i]->cols);
        NDP_TRY(ndp_content_move(handed[i], first, rows, 0, handed[i]->cols, 0, 0, &part));
        NDP_TRY(ndp_sum_contents(r, &total, &part, &next));
        total = next;
    }
    r->out[0].n = 0;
    return ndp_content_move(&total, 0, rows, 0, total.cols, 0, 0, &r->out[0]);
}

static ndp_status exchange(ndp_rule *r, const ndp_content *const *handed, int n, int me) {
    for (int i = 0; i < n; i++) {
        int64_t rows = handed[i]->rows / n;
        NDP_TRY(ndp_content_move(handed[i], me * rows, rows, 0, handed[i]->cols, i * rows, 0, &r->out[0]));
    }
    return NDP_OK;
}

static bool is_complete(const ndp_content *c) {
    bool all = c->n > 0;
    for (int i = 0; i < c->n; i++)
        all = all && c->tiles[i].share == 1;
    return all;
}

/* A sum of what all ranks have complete counts it once for each of them. One rank alone may have all of a sum, where
 * the others' rows are padding. */
static ndp_status expect_summands(ndp_rule *r, const ndp_content *const *handed, int n) {
    bool all = true;
    for (int i = 0; i < n; i++)
        all = all && is_complete(handed[i]);
    return all ? ndp_refuse(r, "it sums %s over %d ranks, each of which has all of it",
                            ndp_tile_text(r, &handed[0]->tiles[0]).s, n)
               : NDP_OK;
}

ndp_status ndp_rule_collective(ndp_rule *r, const ndp_content *const *handed, int n, int me) {
    for (int i = 0; i < n; i++)
        if (handed[i]->rows != handed[me]->rows || handed[i]->cols != handed[me]->cols)
            return ndp_refuse(r, "a member hands in [%lld,%lld], this rank [%lld,%lld]", (long long)handed[i]->rows,
                              (long long)handed[i]->cols, (long long)handed[me]->rows, (long long)handed[me]->cols);
    if (!ndp_content_full(handed[me]))
        return ndp_refuse(r, "its operand is not written when it begins");
    ndp_collective kind = r->c->op->collective;
    switch (kind) {
    case NDP_ALL_GATHER:
        NDP_TRY(gather(r, handed, n));
        break;
    case NDP_REDUCE_SCATTER:
    case NDP_ALL_REDUCE:
        NDP_TRY(expect_summands(r, handed, n));
        NDP_TRY(kind == NDP_ALL_REDUCE ? sum(r, handed, n, 0, handed[me]->rows)
                                       : sum(r, handed, n, me * (handed[me]->rows / n), handed[me]->rows / n));
        break;
    case NDP_ALL_TO_ALL:
        NDP_TRY(exchange(r, handed, n, me));
        break;
    case NDP_SHIFT: {
        const ndp_content *from = handed[(me + n - 1) % n];
        NDP_TRY(ndp_content_move(from, 0, from->rows, 0, from->cols, 0, 0, &r->out[0]));
        break;
    }
    default:
        return ndp_refuse(r, "a unit has no rule for a %s", r->c->op->name);
    }
    for (int i = 0; i < r->out[0].n; i++)
        r->out[0].tiles[i].made = r->index;
    ndp_content_join(&r->out[0]);
    return NDP_OK;
}
