/* Writing a dump (dump.h): the first step of a job, on its layout. A dump predicts nothing from the last column of a
 * row, since labels that are not shifted have no place for it; so the job's rows lose that label here, before the step.
 */
#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/agree.h"
#include "checkpoint/new_folder.h"
#include "verify/dump.h"
#include "verify/verify.h"
#include <math.h>
#include <stdlib.h>

typedef struct dump_writing {
    const ndp_config *config;
    const char *folder; /* where the files are written */
    ndp_verify_hook *alter;
    void *user;
    ndp_metrics *result;
} dump_writing;

/* ---- the step ---- */

static void drop_last_labels(int32_t *labels, int64_t rows, int64_t length) {
    for (int64_t row = 0; row < rows; row++)
        labels[(row + 1) * length - 1] = -1;
}

static ndp_status run_step(ndp_trainer *t, ndp_metrics *out) {
    const ndp_rank *r = &t->rank;
    ndp_feed *f = &t->rank.feed;
    for (int m = 0; m < r->job.batch.accumulation; m++) {
        ndp_trainer_draw_rows(t, m);
        NDP_TRY(ndp_feed_load(f));
        drop_last_labels(ndp_feed_labels(f), f->shape.micro, r->job.config->data.sequence_length);
        NDP_TRY(ndp_engine_load(t->engine, m, &f->whole));
    }
    t->loading = ndp_now();
    NDP_TRY(ndp_trainer_submit_loaded(t));
    return ndp_trainer_result(t, out);
}

/* ---- the batch ---- */

/* Every row of the step's update, in the order of the samples. */
static ndp_status read_update(const ndp_trainer *t, ndp_dump_rows *rows) {
    const ndp_rank *r = &t->rank;
    NDP_TRY(ndp_dump_rows_init(rows, r->feed.shape.global, r->job.config->data.sequence_length));
    for (int64_t i = 0; i < rows->n; i++) {
        int64_t at = i * rows->length;
        NDP_TRY(ndp_dataset_row(r->data.dataset, ndp_sampler_row(&r->data.sampler, i), rows->tokens + at,
                                rows->labels + at, rows->positions + at, rows->starts + at));
    }
    drop_last_labels(rows->labels, rows->n, rows->length);
    return ndp_dataset_check(r->data.dataset);
}

enum { IDS, LABELS, POSITIONS, STARTS, LOSS, TOKENS, RATE, BATCH };

/* The label of column s is that of column s - 1, unshifted. */
static void unshift(const ndp_dump_rows *r, int64_t row, int32_t *out) {
    const int32_t *labels = r->labels + row * r->length;
    for (int64_t s = 0; s < r->length; s++)
        out[s] = s > 0 && labels[s - 1] >= 0 ? labels[s - 1] : NDP_DUMP_NO_LABEL;
}

static ndp_status write_row(ndp_safetensors_writer *w, const ndp_dump_rows *r, int64_t row, int32_t *narrow,
                            int64_t *wide) {
    int64_t at = row * r->length;
    const int32_t *const of[] = {r->tokens + at, narrow, r->positions + at, r->starts + at};
    unshift(r, row, narrow);
    for (int k = IDS; k <= STARTS; k++) {
        for (int64_t s = 0; s < r->length; s++)
            wide[s] = of[k][s];
        NDP_TRY(ndp_safetensors_write(w, k, at, r->length, wide, NDP_I64));
    }
    return NDP_OK;
}

static ndp_status write_all_rows(ndp_safetensors_writer *w, const ndp_dump_rows *r) {
    int32_t *narrow = malloc((size_t)r->length * sizeof *narrow);
    int64_t *wide = malloc((size_t)r->length * sizeof *wide);
    ndp_status st = NDP_MEMORY(narrow && wide, "for a row");
    for (int64_t row = 0; row < r->n && st == NDP_OK; row++)
        st = write_row(w, r, row, narrow, wide);
    free(narrow);
    free(wide);
    return st;
}

static ndp_status end_file(ndp_safetensors_writer *w, ndp_status st) {
    if (st == NDP_OK)
        st = ndp_safetensors_sync(w);
    ndp_safetensors_writer_destroy(w);
    return st;
}

static ndp_status write_batch(const dump_writing *d, const ndp_dump_rows *r, const ndp_metrics *m) {
    const int64_t shape[2] = {r->n, r->length};
    static const char *const names[BATCH] = {"input_ids", "labels", "position_ids", "document_starts", "loss",
                                             "tokens",    "lr"};
    ndp_tensor_spec specs[BATCH];
    ndp_safetensors_writer *w;
    char path[NDP_PATH];
    for (int k = 0; k < BATCH; k++) {
        specs[k] = (ndp_tensor_spec){.name = names[k], .dtype = k == LOSS || k == RATE ? NDP_F64 : NDP_I64};
        specs[k].ndim = k <= STARTS ? 2 : 0;
        memcpy(specs[k].shape, shape, k <= STARTS ? sizeof shape : 0);
    }
    NDP_TRY(ndp_path_join(path, d->folder, NDP_DUMP_BATCH));
    NDP_TRY(ndp_safetensors_create(path, specs, BATCH, &w));
    ndp_status st = write_all_rows(w, r);
    if (st == NDP_OK)
        st = ndp_safetensors_write(w, LOSS, 0, 1, &m->loss, NDP_F64);
    if (st == NDP_OK)
        st = ndp_safetensors_write(w, TOKENS, 0, 1, &m->tokens, NDP_I64);
    if (st == NDP_OK)
        st = ndp_safetensors_write(w, RATE, 0, 1, &m->lr, NDP_F64);
    return end_file(w, st);
}

/* ---- gradients and weights ---- */

/* The number of the model's tensor of that name. */
static int find_tensor(const ndp_trainer *t, const char *name, int from) {
    int64_t elements;
    const char *found;
    for (int i = from; (found = ndp_trainer_tensor(t, i, &elements)); i++)
        if (strcmp(found, name) == 0)
            return i;
    return NDP_NONE;
}

/* Every rank reads every tensor, also after rank 0 could not write one: reading is collective. */
static ndp_status write_tensors(ndp_trainer *t, const ndp_tensor_list *list, ndp_which which,
                                ndp_safetensors_writer *w) {
    double *whole = malloc((size_t)t->rank.job.spec.largest * sizeof *whole);
    NDP_CHECK_MEMORY(whole, "for a tensor of %lld elements", (long long)t->rank.job.spec.largest);
    ndp_status st = NDP_OK, written = NDP_OK;
    for (int i = 0, at = 0; i < list->n && st == NDP_OK; i++) {
        at = find_tensor(t, list->specs[i].name, at);
        st = ndp_trainer_read(t, which, at, whole);
        if (w && st == NDP_OK && written == NDP_OK)
            written = ndp_safetensors_write(w, i, 0, ndp_tensor_elements(&list->specs[i]), whole, NDP_F64);
    }
    free(whole);
    return st == NDP_OK ? written : st;
}

/* Collective; rank 0 writes. */
static ndp_status write_kind(const dump_writing *d, ndp_trainer *t, ndp_which which, const char *name) {
    ndp_tensor_list list = {0};
    ndp_safetensors_writer *w = NULL;
    char path[NDP_PATH];
    ndp_owned_kind kind = which == NDP_WEIGHT ? NDP_OWNED_MASTER : NDP_OWNED_GRAD;
    NDP_TRY(ndp_path_join(path, d->folder, name));
    ndp_status st = ndp_tensor_list_of(&list, &t->model, kind, NDP_TENSORS_ALL, t->model.opts.master);
    if (st == NDP_OK && ndp_is_first(t->rank.world))
        st = ndp_safetensors_create(path, list.specs, list.n, &w);
    st = ndp_agree(t->rank.world, st);
    if (st == NDP_OK)
        st = write_tensors(t, &list, which, w);
    if (w)
        st = end_file(w, st);
    ndp_tensor_list_release(&list);
    return ndp_agree(t->rank.world, st);
}

static ndp_status write_step(const dump_writing *d, ndp_trainer *t) {
    ndp_metrics m;
    ndp_dump_rows rows = {0};
    ndp_status st = NDP_OK;
    if (d->alter)
        NDP_TRY(d->alter(d->user, t));
    NDP_TRY(run_step(t, &m));
    NDP_CHECK(isfinite(m.loss) && isfinite(m.grad_norm), "the loss of the step is %g and the gradient norm %g: no dump",
              m.loss, m.grad_norm);
    if (ndp_is_first(t->rank.world)) {
        *d->result = m;
        st = read_update(t, &rows);
        if (st == NDP_OK)
            st = write_batch(d, &rows, &m);
        ndp_dump_rows_release(&rows);
    }
    NDP_TRY(ndp_agree(t->rank.world, st));
    NDP_TRY(write_kind(d, t, NDP_GRADIENT, "gradients.safetensors"));
    return write_kind(d, t, NDP_WEIGHT, "weights.safetensors");
}

static ndp_status dump_rank(ndp_world *w, void *arg) {
    const dump_writing *d = arg;
    ndp_trainer *t;
    NDP_TRY(ndp_trainer_create(d->config, w, &t));
    ndp_status st = write_step(d, t);
    ndp_trainer_destroy(t);
    return st;
}

static ndp_status write_dump(const ndp_config *c, const ndp_dump_opts *o, ndp_verify_hook *alter, void *user) {
    ndp_new_folder folder;
    ndp_metrics m;
    ndp_job j;
    NDP_TRY(ndp_job_init(c, 0, &j));
    int ranks = j.world;
    ndp_job_release(&j);
    NDP_TRY(ndp_new_folder_begin(o->folder, &folder));
    ndp_status st = ndp_local_world(ranks, dump_rank, &(dump_writing){c, folder.beside, alter, user, &m});
    NDP_TRY(ndp_new_folder_end(&folder, st));
    ndp_say(o->say, o->user, "%s: %lld tokens, loss %.6f, gradient norm %.6g, %d rank%s", o->folder,
            (long long)m.tokens, m.loss, m.grad_norm, ranks, ranks == 1 ? "" : "s");
    return NDP_OK;
}

ndp_status ndp_verify_dump_altered(const ndp_config *c, const ndp_dump_opts *o, ndp_verify_hook *alter, void *user) {
    ndp_config own;
    NDP_TRY(ndp_dump_check_job(c));
    NDP_TRY(ndp_new_folder_check(o->folder));
    NDP_TRY(ndp_verify_check_threads(c));
    NDP_TRY(ndp_config_copy(c, &own));
    if (own.batch.micro_batch_size == 0)
        own.batch.micro_batch_size = ndp_config_least_rows(c);
    own.moe.balance = NDP_BALANCE_NONE;
    ndp_status st = write_dump(&own, o, alter, user);
    ndp_config_release(&own);
    return st;
}

ndp_status ndp_verify_dump(const ndp_config *c, const ndp_dump_opts *o) {
    NDP_NOT_NULL(c, o);
    NDP_NOT_NULL(o->folder);
    return ndp_verify_dump_altered(c, o, NULL, NULL);
}
