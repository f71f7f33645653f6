/* What the host fills in for a step is in no program, so no proof of programs sees it: which rows a rank reads, and
 * which reference its answers have. Two checks, at the first step that this process makes:
 *
 *   ranks that compute the same samples, each a part of them, have loaded the same micro-batches;
 *   at step 1, before any update, the policy is the model that the reference is of, so every answer has the
 *   log-probability that the reference has for it.
 *
 * Called by trainer.c. */
#include "train/trainer.h"

#include "checkpoint/agree.h"

#include <math.h>
#include <stdlib.h>

/* ---- inputs ---- */

void ndp_trainer_note_inputs(ndp_trainer *t, int m) {
    const ndp_hash128 none = {0, 0};
    if (t->inputs.agreed)
        return;
    const ndp_hash128 parts[] = {m ? t->inputs.hash : none, ndp_feed_hash(&t->rank.feed)};
    t->inputs.hash = ndp_hash128_of(parts, sizeof parts);
}

/* The number of a rank among those that read different samples. */
static ndp_status data_rank_of(const ndp_trainer *t, int rank, int *out) {
    ndp_mesh mesh;
    NDP_TRY(ndp_mesh_init(&t->rank.job.layout, rank, NDP_NO_MODEL, &mesh));
    *out = ndp_mesh_group(&mesh, NDP_GROUP_DATA).rank;
    return NDP_OK;
}

/* Compares each rank with the first one of its samples, whose number is in first[]. */
static ndp_status compare_inputs(const ndp_trainer *t, const ndp_hash128 *all, int *first) {
    for (int rank = 0, d; rank < t->rank.job.world; rank++) {
        NDP_TRY(data_rank_of(t, rank, &d));
        first[d] = first[d] < 0 ? rank : first[d];
        if (!ndp_hash128_equal(all[first[d]], all[rank]))
            return NDP_FAIL(
                NDP_EINVAL,
                "ranks %d and %d compute the same samples, and have loaded other inputs for step %lld: their "
                "hosts have other files in data.files or data.cache_dir, or else this is a bug to report",
                first[d], rank, (long long)t->updates + 1);
    }
    return NDP_OK;
}

ndp_status ndp_trainer_agree_on_inputs(ndp_trainer *t) {
    int world = t->rank.job.world;
    ndp_work work;
    if (t->inputs.agreed || world == 1 || t->rank.no_data)
        return NDP_OK;
    ndp_hash128 *all = calloc((size_t)world, sizeof *all);
    int *first = malloc((size_t)world * sizeof *first);
    ndp_status st = ndp_agree(t->rank.world,
                              all && first ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for %d hashes", world));
    if (st == NDP_OK)
        st = ndp_all_gather_begin(t->rank.world, &t->inputs.hash, all, sizeof *all / sizeof(int32_t), NDP_I32, &work);
    if (st == NDP_OK)
        st = ndp_wait(&work);
    for (int i = 0; i < world && st == NDP_OK; i++)
        first[i] = -1;
    if (st == NDP_OK)
        st = compare_inputs(t, all, first);
    t->inputs.agreed = st == NDP_OK;
    free(all);
    free(first);
    return st;
}

/* ---- the reference ---- */

/* Dropout changes the policy of an adapter whose second factor is not zero, and forced routes that of a mixture. */
bool ndp_trainer_checks_policy(const ndp_trainer *t) {
    const ndp_config *c = t->rank.job.config;
    bool changed = t->rank.feed.whole.keys && (c->adapter.path || c->adapter.init == NDP_ADAPTER_RANDOM);
    return t->score.scores && !t->rank.feed.whole.choices && !changed;
}

/* How far the two log-probabilities of an answer may be apart, relative to 1 + their size. On the layout that scored
 * the reference they are equal to the last bit: the same kernels have computed both. Another layout, whose scores the
 * file may have, rounds otherwise: on tp 2 by 3e-7 in fp32 and 3e-3 in bf16 at most, on all others by 0
 * (docs/proofs.md). These bounds leave room for deeper models and short answers. A mixture may choose another expert
 * for a token there. The answers of other documents are apart by much more. */
static double policy_bound(const ndp_trainer *t) {
    static const double bounds[] = {[NDP_F32] = 1e-3, [NDP_BF16] = 0.25, [NDP_F64] = 1e-9};
    bool coarse = t->model.inputs->mixtures.n > 0 || t->rank.exec.tf32;
    return bounds[coarse ? NDP_BF16 : t->model.opts.compute];
}

static ndp_status compare_answers(ndp_trainer *t, int m, double *scores, double *reference) {
    double bound = policy_bound(t);
    NDP_TRY(ndp_engine_input(t->engine, m, "scores", scores));
    NDP_TRY(ndp_engine_input(t->engine, m, "reference", reference));
    bool single = ndp_preference_table[t->rank.job.model.preference.kind].single;
    for (int64_t j = 0; j < t->rank.job.model.documents; j++)
        if (!(single && scores[2 * j + 1] == 0) &&
            !(fabs(scores[2 * j] - reference[j]) <= bound * (1 + fabs(reference[j]))))
            return NDP_FAIL(NDP_EBUG,
                            "step 1: the policy is the reference model before any update, but gives answer %lld of "
                            "micro-batch %d the log-probability %.9g, and its reference is %.9g (bound %g, relative); "
                            "remove the *.reference files in data.cache_dir to have it scored again",
                            (long long)j, m, scores[2 * j], reference[j], bound);
    return NDP_OK;
}

static ndp_status compare_all(ndp_trainer *t, double *room) {
    ndp_status st = NDP_OK;
    for (int m = 0; m < t->rank.job.batch.accumulation && st == NDP_OK && ndp_score_has_answers(t->engine); m++)
        st = compare_answers(t, m, room, room + 2 * t->rank.job.model.documents);
    return st;
}

ndp_status ndp_trainer_check_policy(ndp_trainer *t) {
    double *room = malloc(3 * (size_t)t->rank.job.model.documents * sizeof *room);
    ndp_status st =
        room ? compare_all(t, room) : NDP_FAIL(NDP_ENOMEM, "not enough memory for the answers of a micro-batch");
    free(room);
    return ndp_agree(t->rank.world, st);
}
