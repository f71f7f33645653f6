/* Rules of collectives inside units, from what all members hand in. Sums add shares: a sum of what every rank has
 * complete, or of one member's contribution twice, has a share that is not a part of a whole. */
#include "placement/rule.h"

/* Rows [first, first + rows) of all members, one after another. */
static ndp_status gather(ndp_rule *r, const ndp_content *const *handed, int n, int64_t first, int64_t rows) {
    for (int i = 0; i < n; i++)
        NDP_TRY(ndp_content_move(handed[i], first, rows, 0, handed[i]->cols, i * rows, 0, &r->out[0]));
    return NDP_OK;
}

/* The sum of rows [first, first + rows) of all members. */
static ndp_status sum(ndp_rule *r, const ndp_content *const *handed, int n, int64_t first, int64_t rows) {
    ndp_content total = {0};
    for (int i = 0; i < n; i++) {
        ndp_content part = ndp_content_of(r->arena, rows, handed[i]->cols), next = part;
        NDP_TRY(ndp_content_move(handed[i], first, rows, 0, handed[i]->cols, 0, 0, &part));
        NDP_TRY(i > 0 ? ndp_sum_contents(r, &total, &part, &next) : NDP_OK);
        total = i > 0 ? next : part;
    }
    return ndp_content_move(&total, 0, rows, 0, total.cols, 0, 0, &r->out[0]);
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
    if (r->c->op == &ndp_op_all_to_all_rows)
        return ndp_rule_exchange(r, handed, n, me);
    ndp_collective kind = r->c->op->collective;
    int64_t rows = handed[me]->rows, part = rows / n;
    if (kind == NDP_REDUCE_SCATTER || kind == NDP_ALL_REDUCE)
        NDP_TRY(expect_summands(r, handed, n));
    NDP_TRY(kind == NDP_ALL_GATHER       ? gather(r, handed, n, 0, rows)
            : kind == NDP_ALL_TO_ALL     ? gather(r, handed, n, me * part, part)
            : kind == NDP_ALL_REDUCE     ? sum(r, handed, n, 0, rows)
            : kind == NDP_REDUCE_SCATTER ? sum(r, handed, n, me * part, part)
            : kind == NDP_SHIFT          ? gather(r, &handed[(me + n - 1) % n], 1, 0, rows)
                                         : ndp_refuse(r, "a unit has no rule for a %s", r->c->op->name));
    for (int i = 0; i < r->out[0].n; i++)
        r->out[0].tiles[i].made = r->index;
    ndp_content_join(&r->out[0]);
    return NDP_OK;
}
