/* Around a loop of the user's own: numbers of ranks, texts of ids, lines of metrics.jsonl, bytes that checkpoints keep.
 */
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/agree.h"
#include "train/metrics_file.h"
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers of ranks ---- */

static const ndp_mesh *mesh_of(const ndp_trainer *t) { return &ndp_engine_program(t->engine)->opts.step.mesh; }

bool ndp_trainer_leads(const ndp_trainer *t) { return ndp_mesh_leads(mesh_of(t)); }

ndp_status ndp_trainer_reduce(ndp_trainer *t, double *values, int64_t n, ndp_reduction how, bool by_data) {
    NDP_NOT_NULL(t, values);
    NDP_CHECK(n >= 0 && (how == NDP_REDUCE_SUM || how == NDP_REDUCE_MAX), "%lld numbers are to be reduced by %d",
              (long long)n, (int)how);
    for (int64_t i = 0; i < n && by_data && !ndp_trainer_leads(t); i++)
        values[i] = how == NDP_REDUCE_SUM ? 0 : -INFINITY;
    return ndp_reduce_now(t->rank.world, values, n, NDP_F64, how == NDP_REDUCE_SUM ? NDP_SUM : NDP_MAX);
}

ndp_status ndp_trainer_gather(ndp_trainer *t, const double *values, int64_t n, double *out) {
    NDP_NOT_NULL(t, values, out);
    NDP_CHECK(n >= 0, "%lld numbers are to be gathered", (long long)n);
    ndp_group data = ndp_mesh_group(mesh_of(t), NDP_GROUP_DATA);
    memset(out, 0, (size_t)(n * data.count) * sizeof *out);
    if (ndp_trainer_leads(t))
        memcpy(out + n * data.rank, values, (size_t)n * sizeof *out);
    return ndp_reduce_now(t->rank.world, out, n * data.count, NDP_F64, NDP_SUM);
}

ndp_status ndp_trainer_broadcast(ndp_trainer *t, void *data, int64_t bytes, int rank) {
    NDP_NOT_NULL(t, data);
    NDP_CHECK(bytes >= 0 && rank >= 0 && rank < t->rank.job.world, "%lld bytes of rank %d of %d", (long long)bytes,
              rank, t->rank.job.world);
    return bytes > 0 ? ndp_share_now(t->rank.world, data, (size_t)bytes, rank) : NDP_OK;
}

ndp_status ndp_trainer_barrier(ndp_trainer *t) {
    NDP_NOT_NULL(t);
    return ndp_agree(t->rank.world, NDP_OK);
}

/* ---- texts ---- */

ndp_status ndp_trainer_text(const ndp_trainer *t, const int32_t *ids, int64_t n, char **text) {
    NDP_NOT_NULL(t, ids, text);
    const ndp_tokenizer *tokenizer = t->rank.data.tokenizer;
    const char *why = tokenizer ? ndp_tokenizer_why_no_texts(tokenizer) : "the trainer has no tokenizer";
    int64_t vocab = t->rank.job.spec.vocab;
    if (why)
        return NDP_FAIL(NDP_EINVAL, "%s", why);
    NDP_CHECK(n >= 0, "a text of %lld ids", (long long)n);
    for (int64_t i = 0; i < n; i++)
        NDP_CHECK(ids[i] >= 0 && ids[i] < vocab, "id %lld is %d, must be below %lld", (long long)i, ids[i],
                  (long long)vocab);
    ndp_str s = {0};
    ndp_str_add(&s, "");
    ndp_status st = ndp_tokenizer_decode(tokenizer, ids, n, true, &s);
    if (st == NDP_OK && !(*text = ndp_str_detach(&s)))
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory for a text");
    ndp_str_release(&s);
    return st;
}

/* ---- metrics.jsonl ---- */

typedef struct name_search {
    const char *name;
    bool found;
} name_search;

static void find_name(void *user, const ndp_metric *one) {
    name_search *s = user;
    s->found |= strcmp(one->key, s->name) == 0;
}

static ndp_status check_names(const ndp_metrics *m, const ndp_named_number *numbers, int n) {
    NDP_CHECK(m->step > 0, "no update was applied whose line could be written");
    for (int i = 0; i < n; i++) {
        name_search s = {numbers[i].name, false};
        NDP_CHECK(s.name && *s.name, "number %d has no name", i);
        ndp_metrics_each(m, find_name, &s);
        NDP_CHECK(!s.found && strcmp(s.name, "step") != 0,
                  "metrics.jsonl has a number %s of its own: choose another name", s.name);
    }
    return NDP_OK;
}

static ndp_status add_line(ndp_trainer *t, const ndp_metrics *m) {
    const char *folder = t->rank.job.config->train.output_dir;
    if (!t->lines) {
        NDP_TRY(ndp_folder_create(folder));
        t->lines = calloc(1, sizeof *t->lines);
        NDP_CHECK_MEMORY(t->lines, "for a line of metrics");
        NDP_TRY(ndp_metrics_open(t->lines, folder, m->step - 1, false));
    }
    return ndp_metrics_add(t->lines, m);
}

ndp_status ndp_trainer_log(ndp_trainer *t, const ndp_named_number *numbers, int n) {
    NDP_NOT_NULL(t);
    if (n > 0)
        NDP_NOT_NULL(numbers);
    ndp_metrics m = t->newest;
    ndp_status st = check_names(&m, numbers, n);
    m.more = numbers, m.n_more = n;
    if (st == NDP_OK && ndp_is_first(t->rank.world))
        st = add_line(t, &m);
    return ndp_agree(t->rank.world, st);
}

void ndp_trainer_close_lines(ndp_trainer *t) {
    if (t->lines)
        ndp_metrics_close(t->lines);
    free(t->lines);
    t->lines = NULL;
}

/* ---- bytes of the user's own ---- */

static const char key[] = "own_state";
static const char digits[] = "0123456789abcdef";

/* Takes the bytes of rank 0. */
static ndp_status share_state(ndp_trainer *t, const void *data, int64_t bytes) {
    NDP_TRY(ndp_share_now(t->rank.world, &bytes, sizeof bytes, 0));
    char *kept = malloc((size_t)bytes + 1);
    NDP_TRY(
        ndp_agree(t->rank.world,
                  kept ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for %lld bytes of state", (long long)bytes)));
    if (ndp_is_first(t->rank.world) && bytes > 0)
        memcpy(kept, data, (size_t)bytes);
    ndp_status st = bytes > 0 ? ndp_share_now(t->rank.world, kept, (size_t)bytes, 0) : NDP_OK;
    free(t->state.data);
    t->state.data = kept, t->state.bytes = st == NDP_OK ? bytes : 0;
    return st;
}

ndp_status ndp_trainer_set_state(ndp_trainer *t, const void *data, int64_t bytes) {
    NDP_NOT_NULL(t);
    if (bytes > 0)
        NDP_NOT_NULL(data);
    bool fits = bytes >= 0 && bytes <= NDP_STATE_BYTES;
    ndp_status own = !fits ? NDP_FAIL(NDP_EINVAL, "%lld bytes of state of your own; a checkpoint keeps up to %d",
                                      (long long)bytes, NDP_STATE_BYTES)
                           : NDP_OK;
    NDP_TRY(ndp_agree(t->rank.world, own));
    return share_state(t, data, bytes);
}

ndp_status ndp_trainer_state(const ndp_trainer *t, const void **data, int64_t *bytes) {
    NDP_NOT_NULL(t, data, bytes);
    *data = t->state.data, *bytes = t->state.bytes;
    return NDP_OK;
}

void ndp_own_state_put(const ndp_trainer *t, struct json_object *extra) {
    char *text = t->state.bytes > 0 ? malloc(2 * (size_t)t->state.bytes + 1) : NULL;
    for (int64_t i = 0; text && i < t->state.bytes; i++) {
        text[2 * i] = digits[(unsigned char)t->state.data[i] >> 4];
        text[2 * i + 1] = digits[t->state.data[i] & 15];
    }
    if (text)
        json_object_object_add(extra, key, json_object_new_string_len(text, (int)(2 * t->state.bytes)));
    free(text);
}

/* Every rank reads it: manifests are small. */
ndp_status ndp_own_state_take(ndp_trainer *t, struct json_object *extra) {
    struct json_object *o = json_object_object_get(extra, key);
    const char *text = o ? json_object_get_string(o) : "";
    size_t n = strlen(text) / 2;
    char *kept = malloc(n + 1);
    NDP_CHECK_MEMORY(kept, "for %zu bytes of state", n);
    for (size_t i = 0; i < n; i++) {
        int32_t byte = ndp_hex_number(text + 2 * i, 2);
        if (byte < 0) {
            free(kept);
            return NDP_FAIL(NDP_EFORMAT, "the manifest's %s has a byte that is not hexadecimal, at %zu", key, i);
        }
        kept[i] = (char)byte;
    }
    free(t->state.data);
    t->state.data = kept, t->state.bytes = (int64_t)n;
    return NDP_OK;
}
