/* The mean negative log-likelihood of the held-out rows of a job, by the forward passes of a run. Bytes are counted
 * from the rows themselves, so they are the same on every rank and layout; without a tokenizer there are none. */
#include "checkpoint/agree.h"
#include "infer/infer.h"
#include "score/score.h"
#include "text/token_bytes.h"
#include "weights/adapter_base.h"

#include <stdlib.h>

typedef struct byte_count {
    ndp_token_bytes lengths;
    int64_t first; /* the place of a document's first token of text */
    int64_t bytes;
} byte_count;

static ndp_status add_bytes(void *user, int32_t id, int64_t place) {
    byte_count *c = user;
    int64_t n;
    NDP_TRY(ndp_token_bytes_of(&c->lengths, id, place == c->first, &n));
    c->bytes += n;
    return NDP_OK;
}

static ndp_status evaluate_source(ndp_score *s, int i, byte_count *c, double *nll, ndp_evaluation *out) {
    const ndp_rank *r = s->rank;
    const ndp_strings *names = &r->job.config->data.validation_files;
    int64_t first, n;
    ndp_step_result sums = {0};
    c->bytes = 0;
    ndp_dataset_source(r->data.held, i, &first, &n);
    if (!ndp_job_data_ids_only(&r->data))
        NDP_TRY(ndp_dataset_visit_labels(r->data.held, first, n, add_bytes, c));
    NDP_TRY(ndp_score_held_out(s, i, 0, &sums));
    *nll = sums.sums[NDP_PAIR_NLL];
    *out = ndp_evaluation_of(names->n ? names->items[i] : NULL, *nll, sums.tokens, c->bytes,
                             ndp_dataset_source_documents(r->data.held, i));
    return NDP_OK;
}

static ndp_status evaluate_sources(ndp_score *s, ndp_evaluation *all, ndp_evaluation *each) {
    const ndp_rank *r = s->rank;
    byte_count c = {.first = ndp_tokenizer_prefix(r->data.tokenizer)};
    ndp_evaluation sum = {0};
    double nll = 0, one;
    NDP_TRY(ndp_token_bytes_init(&c.lengths, r->data.tokenizer));
    ndp_status st = NDP_OK;
    for (int i = 0; i < ndp_dataset_sources(r->data.held) && st == NDP_OK; i++) {
        st = evaluate_source(s, i, &c, &one, &each[i]);
        nll += st == NDP_OK ? one : 0;
        sum.tokens += each[i].tokens;
        sum.bytes += each[i].bytes;
        sum.documents += each[i].documents;
    }
    ndp_token_bytes_release(&c.lengths);
    if (st == NDP_OK)
        *all = ndp_evaluation_of(NULL, nll, sum.tokens, sum.bytes, sum.documents);
    return st;
}

static ndp_status evaluate_rank(ndp_score *s, ndp_evaluation *all, ndp_evaluation **files, int *n) {
    int sources = ndp_dataset_sources(s->rank->data.held);
    ndp_evaluation *each = calloc((size_t)sources, sizeof *each);
    NDP_CHECK_MEMORY(each, "for %d results", sources);
    ndp_status st = evaluate_sources(s, all, each);
    if (st == NDP_OK && files) {
        *files = each;
        *n = sources;
    } else
        free(each);
    return st;
}

/* Rank 0: warns if an adapter was trained beside other weights. */
static ndp_status check_base(const ndp_rank *r, const char *run) {
    const ndp_weight_sources from = ndp_job_weights(&r->job);
    ndp_adapter_folder a;
    if (!ndp_is_first(r->world) || (!run && !from.adapter))
        return NDP_OK;
    if (run)
        return ndp_run_model_check_base(r->weights_of, run);
    NDP_TRY(ndp_adapter_folder_open(from.adapter, &a));
    ndp_status st = ndp_adapter_base_check_folder(a.path, from.folder);
    ndp_adapter_folder_close(&a);
    return st;
}

ndp_status ndp_evaluate_job(const ndp_config *c, ndp_world *w, const char *run, int64_t step, ndp_evaluation *all,
                            ndp_evaluation **files, int *n) {
    NDP_NOT_NULL(c, w, all);
    if (files)
        NDP_NOT_NULL(n);
    ndp_rank r;
    ndp_score s = {0};
    NDP_CHECK(run || c->model.init != NDP_INIT_RANDOM,
              "the job starts from random weights (model.init: random), so there is no model to evaluate; give the "
              "folder of one, such as %s/model, or a run folder",
              c->train.output_dir);
    NDP_CHECK(!ndp_config_preference(c).kind,
              "the job has preference data, whose held-out loss and rewards a run reports (train.eval_every); evaluate "
              "a model on texts, or a job of another format");
    const ndp_rank_opts o = {.forward_only = true, .weights_of = run, .step = step};
    NDP_TRY(ndp_rank_open(c, w, &o, &r));
    ndp_status st = ndp_agree(r.world, check_base(&r, run));
    if (st == NDP_OK)
        st = ndp_agree(r.world, ndp_score_build(&s, &r, NULL));
    if (st == NDP_OK)
        st = ndp_rank_prove_again(&r, s.engine);
    if (st == NDP_OK)
        st = evaluate_rank(&s, all, files, n);
    ndp_score_destroy(&s);
    ndp_rank_close(&r);
    return st;
}
