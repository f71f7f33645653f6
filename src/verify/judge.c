/* One rank that sums gradients over given rows (judge.h). */
#include "verify/judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

ndp_status ndp_judge_config(const ndp_config *job, const ndp_dump *d, int rows, ndp_dtype compute, ndp_config *out) {
    NDP_TRY(ndp_config_copy(job, out));
    for (int axis = 0; axis < NDP_SIZES; axis++)
        out->parallelism.size[axis] = 1;
    out->train.ranks = 0;
    out->data.sequence_length = (int)d->length;
    out->batch.global_batch_size = rows;
    out->batch.micro_batch_size = 1;
    out->precision.compute = compute;
    out->train.eval_every = out->train.stop_after = out->train.sample_every = 0;
    out->train.keep_best = false;
    out->moe.balance = NDP_BALANCE_NONE; /* a dump has the loss of tokens */
    if (isfinite(d->lr)) {
        out->optimizer.lr = d->lr;
        out->schedule.name = NDP_LR_CONSTANT;
        out->schedule.warmup_steps = 0;
        out->schedule.warmup_ratio = 0;
    }
    ndp_status st = out->data.files.n ? NDP_OK : ndp_strings_add(&out->data.files, NDP_DUMP_BATCH); /* never read */
    if (st != NDP_OK)
        ndp_config_release(out);
    return st;
}

static ndp_status list_tensors(ndp_judge *j) {
    NDP_TRY(ndp_tensor_list_of(&j->list, &j->trainer->model, NDP_OWNED_GRAD, NDP_TENSORS_ALL, NDP_F32));
    j->first = calloc((size_t)j->list.n + 1, sizeof *j->first);
    NDP_CHECK_MEMORY(j->first, "for a list of %d tensors", j->list.n);
    for (int i = 0; i < j->list.n; i++)
        j->first[i + 1] = j->first[i] + ndp_tensor_elements(&j->list.specs[i]);
    return NDP_OK;
}

static ndp_status open_rank(ndp_judge *j) {
    const ndp_device *device;
    NDP_TRY(ndp_transport_self(&j->transport));
    NDP_TRY(ndp_device_find(ndp_device_names[j->config.train.device], &device));
    j->partial = device->host_memory ? malloc(sizeof *j->partial) : NULL;
    if (!j->partial && device->host_memory)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a device");
    if (j->partial)
        ndp_partial_init(j->partial, device);
    NDP_TRY(ndp_trainer_open(&j->config, j->transport,
                             &(ndp_rank_opts){.no_data = true, .device = j->partial ? &j->partial->device : device},
                             &j->trainer));
    return list_tensors(j);
}

ndp_status ndp_judge_open(const ndp_config *job, const ndp_dump *d, int rows, ndp_dtype compute, ndp_judge *out) {
    *out = (ndp_judge){0};
    NDP_TRY(ndp_judge_config(job, d, rows, compute, &out->config));
    ndp_status st = open_rank(out);
    if (st != NDP_OK) {
        ndp_trail_add(__FILE__, __LINE__);
        ndp_judge_close(out);
    }
    return st;
}

void ndp_judge_close(ndp_judge *j) {
    ndp_trainer_destroy(j->trainer);
    ndp_transport_destroy(j->transport);
    ndp_tensor_list_release(&j->list);
    if (j->partial)
        ndp_partial_release(j->partial);
    free(j->partial);
    free(j->first);
    ndp_config_release(&j->config);
    *j = (ndp_judge){0};
}

ndp_status ndp_judged_init(ndp_judged *s, const ndp_judge *j) {
    *s = (ndp_judged){.gradient = calloc((size_t)j->first[j->list.n], sizeof *s->gradient)};
    return NDP_MEMORY(s->gradient, "for the gradients of %lld elements", (long long)j->first[j->list.n]);
}

void ndp_judged_release(ndp_judged *s) {
    free(s->gradient);
    *s = (ndp_judged){0};
}

/* ---- rows ---- */

int64_t ndp_dump_row_tokens(const ndp_dump_rows *rows, int64_t row) {
    int64_t n = 0;
    for (int64_t s = 0; s < rows->length; s++)
        n += rows->labels[row * rows->length + s] >= 0;
    return n;
}

typedef struct adding {
    const ndp_judge *judge;
    double weight;
    int at; /* the tensor of the last run: runs come in the order of the list */
    ndp_judged *sum;
} adding;

static ndp_status add_run(void *user, const ndp_owned_run *r) {
    enum { BLOCK = 4096 };
    adding *a = user;
    double block[BLOCK];
    char room[NDP_SEGMENT_NAME];
    const char *name = ndp_segment_tensor_name(r->run.segment, r->run.member, room);
    const ndp_tensor_list *list = &a->judge->list;
    int tried = 0;
    for (; strcmp(list->specs[a->at].name, name) != 0; a->at = (a->at + 1) % list->n)
        if (tried++ == list->n)
            return NDP_FAIL(NDP_EBUG, "the gradient of %s, which is not in the list", name);
    double *to = a->sum->gradient + a->judge->first[a->at] + r->run.tensor_first;
    for (int64_t at = 0; at < r->run.count; at += BLOCK) {
        int64_t n = r->run.count - at < BLOCK ? r->run.count - at : BLOCK;
        NDP_TRY(ndp_run_get(r, at, n, block, NDP_F64));
        for (int64_t i = 0; i < n; i++)
            to[at + i] += a->weight * block[i];
    }
    return NDP_OK;
}

static ndp_status load_row(ndp_judge *j, int micro_batch, const ndp_dump_rows *rows, int64_t row) {
    int64_t at = row * rows->length;
    return ndp_engine_load(j->trainer->engine, micro_batch,
                           &(ndp_micro_batch){.tokens = rows->tokens + at,
                                              .labels = rows->labels + at,
                                              .positions = rows->positions + at,
                                              .starts = rows->starts + at,
                                              .one_state = rows->one_state,
                                              .rows = rows->length});
}

ndp_status ndp_judge_add(ndp_judge *j, const ndp_dump_rows *rows, int64_t row, double weight, ndp_judged *s) {
    ndp_step_result r;
    if (ndp_dump_row_tokens(rows, row) == 0)
        return NDP_OK;
    NDP_TRY(load_row(j, 0, rows, row));
    if (j->partial)
        j->partial->attentions = 0;
    NDP_TRY(ndp_engine_step(j->trainer->engine, 0, 0, false, &r));
    double tokens = (double)r.tokens;
    s->loss += weight * tokens * r.loss;
    s->tokens += r.tokens;
    return ndp_engine_runs(j->trainer->engine, NDP_OWNED_GRAD, add_run,
                           &(adding){.judge = j, .weight = weight * tokens, .sum = s});
}

ndp_status ndp_judge_update(ndp_judge *j, const ndp_dump_rows *rows) {
    ndp_metrics m;
    for (int64_t row = 0; row < rows->n; row++)
        NDP_TRY(load_row(j, (int)row, rows, row));
    NDP_TRY(ndp_trainer_submit_loaded(j->trainer));
    return ndp_trainer_result(j->trainer, &m);
}

static ndp_status add_trained(void *user, const ndp_owned_run *r) {
    bool trained = ndp_engine_model(r->engine)->buffers[r->buffer].trainable;
    return trained ? add_run(user, r) : NDP_OK;
}

ndp_status ndp_judge_weights(ndp_judge *j, ndp_judged *s) {
    return ndp_engine_runs(j->trainer->engine, NDP_OWNED_MASTER, add_trained,
                           &(adding){.judge = j, .weight = 1, .sum = s});
}

ndp_status ndp_judge_mean(ndp_judge *j, const ndp_dump_rows *rows, ndp_judged *s, double *losses) {
    int64_t tokens = 0;
    for (int64_t row = 0; row < rows->n; row++)
        tokens += ndp_dump_row_tokens(rows, row);
    for (int64_t row = 0; row < rows->n; row++) {
        double before = s->loss;
        NDP_TRY(ndp_judge_add(j, rows, row, 1 / (double)tokens, s));
        if (losses)
            losses[row] = s->loss - before;
    }
    NDP_CHECK(isfinite(s->loss),
              "the loss of the job's model on the rows of the dump is %g: there is nothing to "
              "compare with",
              s->loss);
    return NDP_OK;
}
