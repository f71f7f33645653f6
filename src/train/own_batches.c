/* Reading batches of the user's own, and what ranks have to agree on before they compute: none may wait in a step for
 * one that has refused its batch. */
#include "train/own_batches.h"

#include "base/text.h"
#include "checkpoint/agree.h"

#include <math.h>
#include <stdlib.h>

static int data_rank(const ndp_trainer *t) {
    return ndp_mesh_group(&ndp_engine_program(t->engine)->opts.step.mesh, NDP_GROUP_DATA).rank;
}

static ndp_status read_list(const ndp_trainer *t, const ndp_batch *batches, int n, bool limited, ndp_own_rows *list) {
    const ndp_batch_shape *b = &t->rank.feed.shape;
    NDP_TRY(ndp_own_rows_count(batches, n, &list->n));
    list->global = n > 0 && batches[0].global;
    int64_t most = list->global ? b->global : b->global / b->data_ranks;
    NDP_CHECK(!limited || list->n <= most,
              "the call has %lld samples%s; batch.global_batch_size %lld allows %lld%s: make several calls",
              (long long)list->n, list->global ? "" : " on this data rank", (long long)b->global, (long long)most,
              list->global ? "" : " on each data rank");
    list->rows = calloc((size_t)list->n + 1, sizeof *list->rows);
    NDP_CHECK_MEMORY(list->rows, "for %lld samples", (long long)list->n);
    return ndp_own_rows_list(&t->rank.job, batches, n, list->rows);
}

/* ---- ranks that should have the same ---- */

typedef struct fingerprint {
    ndp_hash128 hash;
    int64_t samples, global;
} fingerprint;

static ndp_status compare(const ndp_trainer *t, const fingerprint *all) {
    const ndp_job *job = &t->rank.job;
    int *first = malloc((size_t)job->world * sizeof *first), global = NDP_NONE;
    ndp_status st = NDP_MEMORY(first, "for %d ranks", job->world);
    for (int r = 0; r < job->world && st == NDP_OK; r++)
        if (all[r].global)
            global = r;
    for (int r = 0; r < job->world && st == NDP_OK; r++)
        first[r] = NDP_NONE;
    for (int r = 0; r < job->world && st == NDP_OK; r++) {
        ndp_mesh mesh;
        st = ndp_mesh_init(&job->layout, r, NDP_NO_MODEL, &mesh);
        int d = global != NDP_NONE ? 0 : ndp_mesh_group(&mesh, NDP_GROUP_DATA).rank;
        int same = first[d] == NDP_NONE ? r : first[d];
        first[d] = same;
        if (st == NDP_OK && memcmp(&all[r], &all[same], sizeof all[r]) != 0)
            st = NDP_FAIL(NDP_EINVAL, "ranks %d and %d %s, and have given other batches: %lld and %lld samples%s", same,
                          r,
                          global != NDP_NONE ? "gave global batches, or one of them did" : "are of the same data rank",
                          (long long)all[same].samples, (long long)all[r].samples,
                          all[same].samples == all[r].samples ? ", with other values" : "");
    }
    free(first);
    return st;
}

static ndp_status check_same(ndp_trainer *t, const ndp_own_rows *list) {
    int world = t->rank.job.world;
    ndp_work work;
    if (world == 1)
        return NDP_OK;
    fingerprint own = {ndp_own_rows_hash(list->rows, list->n), list->n, list->global},
                *all = calloc((size_t)world, sizeof *all);
    ndp_status st =
        ndp_agree(t->rank.world, all ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for %d hashes", world));
    if (st == NDP_OK)
        st = ndp_all_gather_begin(t->rank.world, &own, all, sizeof own / sizeof(int32_t), NDP_I32, &work);
    if (st == NDP_OK)
        st = ndp_wait(&work);
    if (st == NDP_OK)
        st = ndp_agree(t->rank.world, compare(t, all));
    free(all);
    return st;
}

ndp_status ndp_own_rows_read(ndp_trainer *t, const ndp_batch *batches, int n, bool limited, ndp_status before,
                             ndp_own_rows *list) {
    *list = (ndp_own_rows){0};
    ndp_status own = before == NDP_OK ? read_list(t, batches, n, limited, list) : before;
    NDP_TRY(ndp_agree(t->rank.world, own));
    return check_same(t, list);
}

void ndp_own_rows_release(ndp_own_rows *list) {
    free(list->rows);
    *list = (ndp_own_rows){0};
}

/* ---- sums ---- */

enum { LABELS, WEIGHTS, NUMBERS };

/* The numbers of this rank's samples, at their places in the global order; elsewhere -inf, for a maximum. */
static void put_samples(const ndp_trainer *t, const ndp_own_rows *list, double (*of)[NUMBERS]) {
    const ndp_batch_shape *b = &t->rank.feed.shape;
    for (int m = 0; m < t->rank.job.batch.accumulation; m++)
        for (int d = 0; d < b->data_ranks; d++)
            for (int64_t j = 0; j < b->micro; j++) {
                int64_t i = ndp_own_rows_at(t, list->global, m, d, j);
                double *to = of[ndp_sample_index(b, 0, m, d, j)];
                bool own = (list->global || d == data_rank(t)) && i < list->n;
                to[LABELS] = to[WEIGHTS] = -INFINITY;
                if (own)
                    to[LABELS] = (double)ndp_own_row_labels(&list->rows[i], &to[WEIGHTS]);
            }
}

ndp_status ndp_own_rows_totals(ndp_trainer *t, const ndp_own_rows *list, ndp_own_totals *out) {
    int64_t n = t->rank.feed.shape.global;
    double(*of)[NUMBERS] = calloc((size_t)n, sizeof *of);
    *out = (ndp_own_totals){0};
    ndp_status st =
        ndp_agree(t->rank.world,
                  of ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for the sums of %lld samples", (long long)n));
    if (st == NDP_OK) {
        put_samples(t, list, of);
        st = ndp_reduce_now(t->rank.world, of, n * NUMBERS, NDP_F64, NDP_MAX);
    }
    for (int64_t i = 0; i < n && st == NDP_OK; i++)
        if (of[i][LABELS] >= 0) {
            out->tokens += (int64_t)of[i][LABELS];
            out->weights += of[i][WEIGHTS];
            out->samples++;
        }
    free(of);
    return st;
}

ndp_status ndp_own_rows_most(ndp_trainer *t, const ndp_own_rows *list, int64_t *most) {
    *most = list->n;
    return ndp_reduce_now(t->rank.world, most, 1, NDP_I64, NDP_MAX);
}
