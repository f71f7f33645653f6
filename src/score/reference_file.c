/* The key and the file of a reference. Called by reference.c. */
#include "score/reference_file.h"

#include "config/table.h"
#include "job/model_identity.h"

#include <stdlib.h>
#include <string.h>

/* ---- the key ---- */

/* Appends what an adapter is: its options, the seed that draws a new one, the contents of the one that is continued. */
static void add_adapter(const ndp_rank *r, ndp_str *key) {
    const ndp_config *c = r->job.config;
    if (c->adapter.type == NDP_ADAPTER_NONE)
        return;
    ndp_str_addf(key, " adapter %lld", (long long)c->train.seed);
    for (int i = 0; i < ndp_option_count; i++)
        if (strcmp(ndp_options[i].section, "adapter") == 0 && strcmp(ndp_options[i].key, "path") != 0) {
            ndp_str_addf(key, " %s=", ndp_options[i].key);
            ndp_option_write(&ndp_options[i], c, key);
        }
    ndp_identity_hash(key, r->began_with);
}

/* Appends what identifies them: the contents of the model's weights, or the seed that draws them; and the adapter. */
static void add_weights(const ndp_rank *r, ndp_str *key) {
    if (r->job.config->model.init == NDP_INIT_RANDOM)
        ndp_str_addf(key, " random %lld", (long long)r->job.config->train.seed);
    ndp_str_add(key, " ");
    ndp_identity_hash(key, r->base);
    add_adapter(r, key);
}

static void add_fact(void *key, const ndp_fact *fact) { ndp_str_addf(key, " %s=%s", fact->key, fact->value); }

/* ---- the file ---- */

enum { VERSION = 2 };
typedef struct reference_header {
    char magic[8];
    uint64_t version;
    ndp_hash128 key, payload;
    int64_t n;
} reference_header;
static const char magic[8] = "NDPREFER";

static ndp_status make_key(const ndp_score *s, const ndp_score_lists *lists, ndp_hash128 *out) {
    const ndp_rank *r = s->rank;
    const ndp_config *c = r->job.config;
    ndp_str key = {0};
    ndp_str_addf(&key, "reference %d ", VERSION);
    ndp_identity_hash(&key, lists->tokens->payload);
    ndp_str_addf(&key, " %d %d %d %d", c->data.sequence_length, (int)c->data.overlong, (int)c->precision.compute,
                 (int)c->train.matmul);
    s->model.architecture->list(s->model.facts, add_fact, &key);
    add_weights(r, &key);
    ndp_str_add(&key, lists->key);
    ndp_status st = NDP_MEMORY(!key.failed, "to name the reference");
    if (st == NDP_OK)
        *out = ndp_hash128_of(key.data, key.length);
    ndp_str_release(&key);
    return st;
}

/* In the folder of the token cache. */
static ndp_status name_file(const ndp_rank *r, ndp_reference_file *f) {
    char *folder;
    NDP_TRY(ndp_cache_folder(r->job.config->data.cache_dir, &folder));
    f->path = ndp_format("%s/%016llx%016llx.reference", folder, (unsigned long long)f->key.high,
                         (unsigned long long)f->key.low);
    free(folder);
    return NDP_MEMORY(f->path, "to name the reference");
}

ndp_status ndp_reference_file_find(const ndp_score *s, const ndp_score_lists *lists, ndp_reference_file *out) {
    ndp_reference_file f = {.n = lists->n};
    NDP_TRY(make_key(s, lists, &f.key));
    NDP_TRY(name_file(s->rank, &f));
    *out = f;
    return NDP_OK;
}

void ndp_reference_file_release(ndp_reference_file *f) {
    free(f->path);
    *f = (ndp_reference_file){0};
}

/* How many of f->n values the file has, the first ones: a run that has become longer has more than it had. 0: it is not
 * whole, or another one. */
static int64_t count_values(const ndp_reference_file *f, const char *data, size_t size) {
    reference_header h;
    if (size < sizeof h)
        return 0;
    memcpy(&h, data, sizeof h);
    bool whole = memcmp(h.magic, magic, sizeof magic) == 0 && h.version == VERSION && h.n >= 0 &&
                 h.n <= (int64_t)(size / sizeof(double)) && size == sizeof h + (size_t)h.n * sizeof(double) &&
                 ndp_hash128_equal(h.key, f->key) &&
                 ndp_hash128_equal(h.payload, ndp_hash128_of(data + sizeof h, size - sizeof h));
    return !whole ? 0 : h.n < f->n ? h.n : f->n;
}

int64_t ndp_reference_file_read(const ndp_reference_file *f, double *values) {
    char *data;
    size_t size;
    if (!ndp_path_exists(f->path) || ndp_file_read_as(NDP_FILE_ANY, f->path, &data, &size) != NDP_OK)
        return 0;
    int64_t n = count_values(f, data, size);
    memcpy(values, data + sizeof(reference_header) * (n > 0), (size_t)n * sizeof *values);
    free(data);
    return n;
}

ndp_status ndp_reference_file_write(const ndp_reference_file *f, const double *values) {
    size_t bytes = (size_t)f->n * sizeof *values;
    reference_header h = {.version = VERSION, .key = f->key, .payload = ndp_hash128_of(values, bytes), .n = f->n};
    char *data = malloc(sizeof h + bytes);
    NDP_CHECK_MEMORY(data, "for %lld numbers", (long long)f->n);
    memcpy(h.magic, magic, sizeof magic);
    memcpy(data, &h, sizeof h);
    memcpy(data + sizeof h, values, bytes);
    ndp_status st = ndp_file_write_atomic(f->path, data, sizeof h + bytes);
    free(data);
    return st;
}
