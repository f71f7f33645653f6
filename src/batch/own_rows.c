/* Reading batches of the user's own (own_rows.h). Every value is checked before any rank computes. */
#include "batch/own_rows.h"

#include <math.h>

ndp_status ndp_own_rows_count(const ndp_batch *batches, int n, int64_t *samples) {
    *samples = 0;
    NDP_CHECK(n >= 0, "%d batches", n);
    for (int b = 0; b < n; b++) {
        NDP_CHECK(batches[b].samples >= 0 && batches[b].length >= 0, "batch %d has %lld samples of %lld tokens", b,
                  (long long)batches[b].samples, (long long)batches[b].length);
        NDP_CHECK(batches[b].global == batches[0].global,
                  "batch 0 is %s, batch %d is %s: of one call all are global, or none",
                  batches[0].global ? "global" : "not", b, batches[b].global ? "global" : "not");
        *samples += batches[b].samples;
    }
    return NDP_OK;
}

/* Where a value is, for messages. */
typedef struct own_place {
    int batch;
    int64_t sample, token;
} own_place;

static ndp_status refuse(const own_place *p, const char *what, int64_t value, int64_t end) {
    return NDP_FAIL(NDP_EINVAL, "batch %d, sample %lld, token %lld: its %s is %lld, must be below %lld", p->batch,
                    (long long)p->sample, (long long)p->token, what, (long long)value, (long long)end);
}

static ndp_status check_token(const ndp_job *job, const ndp_own_row *r, const own_place *p) {
    int64_t s = p->token, vocab = job->spec.vocab, length = job->config->data.sequence_length;
    if (r->documents && r->documents[s] < 0)
        return NDP_OK;
    if (r->ids[s] < 0 || r->ids[s] >= vocab)
        return refuse(p, "id", r->ids[s], vocab);
    if (r->labels && r->labels[s] >= vocab)
        return refuse(p, "label", r->labels[s], vocab);
    if (r->positions && (r->positions[s] < 0 || r->positions[s] >= length))
        return refuse(p, "position", r->positions[s], length);
    NDP_CHECK(!r->weights || isfinite(r->weights[s]), "batch %d, sample %lld, token %lld: its weight is %g", p->batch,
              (long long)p->sample, (long long)s, r->weights[s]);
    return NDP_OK;
}

/* Padding ends a row: rows after it would belong to no document. */
static ndp_status check_row(const ndp_job *job, const ndp_own_row *r, own_place p) {
    for (p.token = 0; p.token < r->n; p.token++) {
        bool padding = r->documents && r->documents[p.token] < 0,
             before = r->documents && p.token > 0 && r->documents[p.token - 1] < 0;
        NDP_CHECK(padding || !before, "batch %d, sample %lld: token %lld is in document %d, and stands behind padding",
                  p.batch, (long long)p.sample, (long long)p.token, r->documents ? r->documents[p.token] : 0);
        NDP_TRY(check_token(job, r, &p));
    }
    return NDP_OK;
}

#define PART(array) ((array) ? (array) + at : NULL)

ndp_status ndp_own_rows_list(const ndp_job *job, const ndp_batch *batches, int n, ndp_own_row *out) {
    int64_t most = job->config->data.sequence_length;
    for (int b = 0; b < n; b++) {
        const ndp_batch *from = &batches[b];
        NDP_CHECK(from->samples == 0 || from->length == 0 || from->ids, "batch %d has no ids", b);
        NDP_CHECK(from->lengths || from->samples == 0 || from->length <= most,
                  "batch %d has samples of %lld tokens, data.sequence_length is %lld", b, (long long)from->length,
                  (long long)most);
        for (int64_t i = 0; i < from->samples; i++, out++) {
            int64_t at = i * from->length, tokens = from->lengths ? from->lengths[i] : from->length;
            NDP_CHECK(
                tokens >= 0 && tokens <= from->length && tokens <= most,
                "batch %d, sample %lld has %lld tokens, must have 0 to %lld (its batch's length, data.sequence_length)",
                b, (long long)i, (long long)tokens, (long long)(from->length < most ? from->length : most));
            *out = (ndp_own_row){.ids = from->ids + at,
                                 .labels = PART(from->labels),
                                 .positions = PART(from->positions),
                                 .documents = PART(from->documents),
                                 .weights = PART(from->weights),
                                 .n = tokens,
                                 .scale = 1};
            NDP_TRY(check_row(job, out, (own_place){b, i, 0}));
        }
    }
    return NDP_OK;
}

static ndp_hash128 add_array(ndp_hash128 h, const void *array, size_t bytes) {
    ndp_hash128 parts[] = {h, array ? ndp_hash128_of(array, bytes) : (ndp_hash128){0, bytes}};
    return ndp_hash128_of(parts, sizeof parts);
}

ndp_hash128 ndp_own_rows_hash(const ndp_own_row *rows, int64_t n) {
    ndp_hash128 h = {(uint64_t)n, 0};
    for (const ndp_own_row *r = rows; r < rows + n; r++) {
        size_t bytes = (size_t)r->n * sizeof *r->ids;
        const int32_t *columns[] = {r->ids, r->labels, r->positions, r->documents};
        for (int k = 0; k < NDP_COUNT(columns); k++)
            h = add_array(h, columns[k], bytes);
        h = add_array(h, r->weights, (size_t)r->n * sizeof *r->weights);
    }
    return h;
}

int64_t ndp_own_row_labels(const ndp_own_row *row, double *weights) {
    int64_t labels = 0;
    *weights = 0;
    for (int64_t s = 0; s < row->n; s++) {
        double weight = ndp_own_row_weight(row, s);
        *weights += weight;
        labels += weight != 0;
    }
    return labels;
}
