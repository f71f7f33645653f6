/* Reading a dump (dump.h): headers first, then rows, then every element, each with what it needs to be refused before
 * anything large is allocated. Called by against.c. */
#include "verify/dump.h"
#include "model/tensors.h"

#include "config/config.h"
#include "model/architecture.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 8192 }; /* elements that are read at a time */

/* ---- rows ---- */

ndp_status ndp_dump_rows_init(ndp_dump_rows *r, int64_t n, int64_t length) {
    size_t all = (size_t)(n * length);
    *r = (ndp_dump_rows){.n = n, .length = length};
    int32_t *arrays = calloc(4 * all, sizeof *arrays);
    NDP_CHECK_MEMORY(arrays, "for %lld rows of %lld tokens", (long long)n, (long long)length);
    r->tokens = arrays, r->labels = arrays + all, r->positions = arrays + 2 * all, r->starts = arrays + 3 * all;
    return NDP_OK;
}

void ndp_dump_rows_release(ndp_dump_rows *r) {
    free(r->tokens);
    *r = (ndp_dump_rows){0};
}

/* ---- the batch ---- */

static bool is_float(const ndp_tensor_entry *t) {
    ndp_dtype type = t->spec.dtype;
    return type == NDP_F32 || type == NDP_BF16 || type == NDP_F16 || type == NDP_F64;
}

static const ndp_tensor_entry *find(const ndp_dump *d, const char *name) {
    return ndp_safetensors_find(d->batch, name);
}

static ndp_status need(const ndp_dump *d, const char *name, const ndp_tensor_entry **out) {
    *out = find(d, name);
    return *out ? NDP_OK
                : NDP_FAIL(NDP_EFORMAT, "%s has no tensor %s; a dump needs input_ids, labels, loss and tokens",
                           ndp_safetensors_path(d->batch), name);
}

static ndp_status check_integers(const ndp_dump *d, const ndp_tensor_entry *t) {
    return t->spec.dtype == NDP_I64 || t->spec.dtype == NDP_I32
               ? NDP_OK
               : NDP_FAIL(NDP_EFORMAT, "%s: %s is %s, expected I64 or I32", ndp_safetensors_path(d->batch),
                          t->spec.name, t->type_name);
}

static ndp_status read_integers(const ndp_dump *d, const ndp_tensor_entry *t, int64_t first, int64_t n, int64_t *out) {
    int32_t narrow[BLOCK];
    if (t->spec.dtype == NDP_I64)
        return ndp_safetensors_read(d->batch, t, first, n, out, NDP_I64, false);
    NDP_TRY(ndp_safetensors_read(d->batch, t, first, n, narrow, NDP_I32, false));
    for (int64_t i = 0; i < n; i++)
        out[i] = narrow[i];
    return NDP_OK;
}

static ndp_status check_scalar(const ndp_dump *d, const ndp_tensor_entry *t) {
    char shape[64];
    return t->elements == 1 ? NDP_OK
                            : NDP_FAIL(NDP_EFORMAT, "%s: %s is %s, expected one number", ndp_safetensors_path(d->batch),
                                       t->spec.name, ndp_shape_text(&t->spec, shape, sizeof shape));
}

static ndp_status read_number(const ndp_dump *d, const ndp_tensor_entry *t, double *out) {
    NDP_TRY(check_scalar(d, t));
    return ndp_safetensors_read(d->batch, t, 0, 1, out, NDP_F64, true);
}

static ndp_status check_columns(const ndp_dump *d, const ndp_tensor_entry *t, const ndp_tensor_entry *ids) {
    char have[64], want[64];
    NDP_TRY(check_integers(d, t));
    return ndp_tensor_same_shape(&t->spec, &ids->spec)
               ? NDP_OK
               : NDP_FAIL(NDP_EFORMAT, "%s: %s is %s, but input_ids is %s", ndp_safetensors_path(d->batch),
                          t->spec.name, ndp_shape_text(&t->spec, have, sizeof have),
                          ndp_shape_text(&ids->spec, want, sizeof want));
}

static ndp_status open_batch(ndp_dump *d) {
    static const char *const optional[] = {"position_ids", "document_starts"};
    const ndp_tensor_entry *ids, *labels, *loss, *tokens, *lr;
    char shape[64];
    NDP_TRY(need(d, "input_ids", &ids));
    NDP_TRY(need(d, "labels", &labels));
    NDP_TRY(need(d, "loss", &loss));
    NDP_TRY(need(d, "tokens", &tokens));
    NDP_TRY(check_integers(d, ids));
    if (ids->spec.ndim != 2 || ids->spec.shape[0] < 1 || ids->spec.shape[1] < 2 || ids->elements > INT32_MAX)
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: input_ids is %s, expected [rows, tokens of a row], 2 tokens at least and 2^31 in all at "
                        "most",
                        ndp_safetensors_path(d->batch), ndp_shape_text(&ids->spec, shape, sizeof shape));
    d->rows = ids->spec.shape[0], d->length = ids->spec.shape[1];
    NDP_TRY(check_columns(d, labels, ids));
    for (int i = 0; i < NDP_COUNT(optional); i++)
        if (find(d, optional[i]))
            NDP_TRY(check_columns(d, find(d, optional[i]), ids));
    NDP_TRY(read_number(d, loss, &d->loss));
    NDP_TRY(check_integers(d, tokens));
    NDP_TRY(check_scalar(d, tokens));
    NDP_TRY(read_integers(d, tokens, 0, 1, &d->tokens));
    d->logits = find(d, "logits");
    lr = find(d, "lr");
    d->lr = NAN;
    return lr ? read_number(d, lr, &d->lr) : NDP_OK;
}

/* ---- opening ---- */

static ndp_status has_weights(void *user, const char *folder, const char *name) {
    (void)folder;
    *(bool *)user |= strncmp(name, "weights", 7) == 0 && ndp_ends_with(name, ".safetensors");
    return NDP_OK;
}

static ndp_status open_files(ndp_dump *d) {
    char path[NDP_PATH];
    bool weights = false;
    if (!ndp_path_is_folder(d->folder))
        return NDP_FAIL(NDP_EINVAL,
                        "--against %s: not a folder (%s); a dump is a folder with " NDP_DUMP_BATCH
                        " and gradients.safetensors",
                        d->folder, ndp_path_why_no_folder(d->folder));
    NDP_TRY(ndp_path_join(path, d->folder, NDP_DUMP_BATCH));
    NDP_TRY(ndp_safetensors_open(path, &d->batch));
    NDP_TRY(open_batch(d));
    NDP_TRY(ndp_weights_open_all(d->folder, "gradients", &d->gradients));
    NDP_TRY(ndp_folder_visit(d->folder, has_weights, &weights));
    return weights ? ndp_weights_open_all(d->folder, "weights", &d->weights) : NDP_OK;
}

ndp_status ndp_dump_check_job(const ndp_config *c) {
    NDP_CHECK(!c->train.own_batches,
              "train.own_batches is true, but the rows of a dump are those of data.files: set it "
              "to false");
    if (c->moe.routes)
        return NDP_FAIL(NDP_ENOTSUP,
                        "a dump has no choices of experts, and the job takes its own from %s: leave "
                        "moe.routes out",
                        c->moe.routes);
    if (c->moe.bias_rate > 0)
        return NDP_FAIL(NDP_ENOTSUP, "a dump has updates by gradients, and the job changes biases of routers without: "
                                     "set moe.bias_rate: 0");
    if (c->moe.balance == NDP_BALANCE_SEQUENCE || c->moe.z_loss > 0)
        return NDP_FAIL(NDP_ENOTSUP,
                        "a dump has the loss of tokens, and the job adds losses of routers: set moe.balance: "
                        "none and moe.z_loss: 0");
    return ndp_config_preference(c).kind
               ? NDP_FAIL(NDP_ENOTSUP, "a dump has the loss of tokens, and the job's loss is that of pairs; compare "
                                       "layouts of this job, or dumps of one with loss.name xent")
               : NDP_OK;
}

ndp_status ndp_dump_open(const char *folder, ndp_dump *out) {
    *out = (ndp_dump){.folder = folder};
    ndp_status st = open_files(out);
    if (st != NDP_OK) {
        ndp_trail_add(__FILE__, __LINE__);
        ndp_dump_close(out);
    }
    return st;
}

void ndp_dump_close(ndp_dump *d) {
    ndp_safetensors_close(d->batch);
    ndp_weights_close(d->gradients);
    ndp_weights_close(d->weights);
    *d = (ndp_dump){0};
}

/* ---- the model's tensors ---- */

/* Tensors that may be there: those that the architecture ignores, and of gradients those that are frozen. */
static bool may_be_there(const char *name, void *model) {
    const ndp_model *m = model;
    for (ndp_segment_walk w = {.model = m}; ndp_segment_next(&w);)
        if (ndp_segment_is_named(w.segment, name))
            return true;
    return m->architecture->ignores && m->architecture->ignores(m->facts, name);
}

static ndp_status check_set(const ndp_dump *d, ndp_weights *set, const ndp_model *m, ndp_owned_kind kind,
                            const char *what) {
    ndp_tensor_list list = {0};
    ndp_str wrong = {0};
    NDP_TRY(ndp_weights_rename_for(set, m));
    ndp_status st = ndp_tensor_list_of(&list, m, kind, NDP_TENSORS_ALL, NDP_F32);
    if (st == NDP_OK)
        st = ndp_weights_compare(set, list.specs, list.n, may_be_there, (void *)m, &wrong);
    if (st == NDP_OK && wrong.length)
        st = NDP_FAIL(NDP_EFORMAT, "%s: the %s are not those of the job's model: %s", d->folder, what, wrong.data);
    ndp_str_release(&wrong);
    ndp_tensor_list_release(&list);
    return st;
}

ndp_status ndp_dump_check_logits(const ndp_dump *d, int64_t vocab) {
    const ndp_tensor_spec want = {.ndim = 3, .shape = {d->rows, d->length, vocab}};
    char have[64], expected[64];
    if (!d->logits || (ndp_tensor_same_shape(&d->logits->spec, &want) && is_float(d->logits)))
        return NDP_OK;
    return NDP_FAIL(NDP_EFORMAT, "%s: logits is %s %s, expected %s of a float type", ndp_safetensors_path(d->batch),
                    d->logits->type_name, ndp_shape_text(&d->logits->spec, have, sizeof have),
                    ndp_shape_text(&want, expected, sizeof expected));
}

ndp_status ndp_dump_check_model(const ndp_dump *d, const ndp_model *m) {
    NDP_TRY(check_set(d, d->gradients, m, NDP_OWNED_GRAD, "gradients"));
    return d->weights ? check_set(d, d->weights, m, NDP_OWNED_MASTER, "weights") : NDP_OK;
}

static ndp_status check_finite(const ndp_weights *set) {
    double block[BLOCK];
    for (int i = 0; i < ndp_weights_count(set); i++) {
        const ndp_tensor_entry *t = ndp_weights_at(set, i);
        bool read = is_float(t); /* what is not read at all may be of other types */
        for (int64_t at = 0; at < t->elements && read; at += BLOCK) {
            int64_t n = t->elements - at < BLOCK ? t->elements - at : BLOCK;
            NDP_TRY(ndp_weights_read(set, t->spec.name, at, n, block, NDP_F64, true));
        }
    }
    return ndp_weights_intact(set);
}

ndp_status ndp_dump_check_values(const ndp_dump *d) {
    NDP_TRY(check_finite(d->gradients));
    return d->weights ? check_finite(d->weights) : NDP_OK;
}

/* ---- reading rows ---- */

static ndp_status refuse(const ndp_dump *d, const char *tensor, int64_t row, int64_t column, int64_t value,
                         const char *expected) {
    return NDP_FAIL(NDP_EFORMAT, "%s: %s[%lld, %lld] is %lld, expected %s", ndp_safetensors_path(d->batch), tensor,
                    (long long)row, (long long)column, (long long)value, expected);
}

/* Reads a tensor of the batch into `out`: values from 0 to below `most`, or equal to `also`. */
static ndp_status read_columns(const ndp_dump *d, const char *name, int64_t most, int64_t also, const char *expected,
                               int32_t *out) {
    const ndp_tensor_entry *t = find(d, name);
    int64_t block[BLOCK];
    for (int64_t at = 0; at < t->elements; at += BLOCK) {
        int64_t n = t->elements - at < BLOCK ? t->elements - at : BLOCK;
        NDP_TRY(read_integers(d, t, at, n, block));
        for (int64_t i = 0; i < n; i++) {
            if ((block[i] < 0 || block[i] >= most) && block[i] != also)
                return refuse(d, name, (at + i) / d->length, (at + i) % d->length, block[i], expected);
            out[at + i] = (int32_t)block[i];
        }
    }
    return NDP_OK;
}

/* Labels of transformers, in place: each column gets the label of the next one. */
static void shift_labels(const ndp_dump_rows *r) {
    for (int64_t row = 0; row < r->n; row++) {
        int32_t *labels = r->labels + row * r->length;
        for (int64_t s = 0; s < r->length; s++)
            labels[s] = s + 1 < r->length && labels[s + 1] >= 0 ? labels[s + 1] : -1;
    }
}

/* Starts of documents from positions: where one does not follow the one before it. */
static void find_starts(const ndp_dump_rows *r) {
    for (int64_t i = 0; i < r->n * r->length; i++) {
        int64_t column = i % r->length;
        bool follows = column > 0 && r->positions[i] == r->positions[i - 1] + 1;
        r->starts[i] = follows ? r->starts[i - 1] : (int32_t)column;
    }
}

static ndp_status check_starts(const ndp_dump *d, const ndp_dump_rows *r) {
    for (int64_t i = 0; i < r->n * r->length; i++) {
        int64_t column = i % r->length, row = i / r->length;
        if (r->starts[i] > column || (column > 0 && r->starts[i] != column && r->starts[i] != r->starts[i - 1]))
            return refuse(d, "document_starts", row, column, r->starts[i],
                          "that column, or the start of the token before it");
    }
    return NDP_OK;
}

static ndp_status read_documents(const ndp_dump *d, const ndp_dump_rows *r) {
    char expected[64];
    int64_t all = r->n * r->length;
    bool starts = find(d, "document_starts"), positions = find(d, "position_ids");
    snprintf(expected, sizeof expected, "0 to %lld, the last column", (long long)r->length - 1);
    if (starts)
        NDP_TRY(read_columns(d, "document_starts", r->length, 0, expected, r->starts));
    if (positions)
        NDP_TRY(read_columns(d, "position_ids", r->length, 0, expected, r->positions));
    if (starts)
        NDP_TRY(check_starts(d, r));
    for (int64_t i = 0; i < all && !positions; i++)
        r->positions[i] = (int32_t)(i % r->length) - r->starts[i]; /* without document_starts they are 0 */
    if (!starts)
        find_starts(r);
    return NDP_OK;
}

static ndp_status read_rows(const ndp_dump *d, int64_t vocab, const ndp_dump_rows *r) {
    char expected[64];
    snprintf(expected, sizeof expected, "0 to %lld, an id of the model", (long long)vocab - 1);
    NDP_TRY(read_columns(d, "input_ids", vocab, 0, expected, r->tokens));
    snprintf(expected, sizeof expected, "0 to %lld, or -100", (long long)vocab - 1);
    NDP_TRY(read_columns(d, "labels", vocab, NDP_DUMP_NO_LABEL, expected, r->labels));
    shift_labels(r);
    NDP_TRY(read_documents(d, r));
    int64_t valid = 0;
    for (int64_t i = 0; i < r->n * r->length; i++)
        valid += r->labels[i] >= 0;
    NDP_CHECK(valid > 0, "%s: labels is -100 everywhere: there is nothing to predict", ndp_safetensors_path(d->batch));
    return ndp_safetensors_check(d->batch);
}

ndp_status ndp_dump_read_rows(const ndp_dump *d, int64_t vocab, ndp_dump_rows *out) {
    NDP_TRY(ndp_dump_rows_init(out, d->rows, d->length));
    ndp_status st = read_rows(d, vocab, out);
    if (st != NDP_OK) {
        ndp_trail_add(__FILE__, __LINE__);
        ndp_dump_rows_release(out);
    }
    return st;
}
