/* Accepted changes of a run's identity: what they are in words, what they do to learning rate and data cursor, and
 * their record in checkpoints. */
#include "train/identity_parts.h"

#include "base/json.h"
#include "base/log.h"
#include <string.h>

/* A value as shown in a message: shortened, and without control characters. */
static void add_shown(ndp_str *out, const char *text) {
    enum { MOST = 64 };
    size_t n = strlen(text), shown = ndp_utf8_valid_prefix(text, n > MOST ? MOST : n);
    for (size_t i = 0; i < shown; i++)
        ndp_str_addf(out, "%c", (unsigned char)text[i] < ' ' || text[i] == 0x7f ? '?' : text[i]);
    ndp_str_add(out, shown < n ? "..." : n == 0 ? "none" : "");
}

void ndp_identity_add_difference(const ndp_trainer *t, ndp_str *out, const ndp_key_difference *d) {
    const char *name = ndp_identity_name_of(t, d->key), *unit = strcmp(name, ndp_identity_epochs) == 0 ? " steps" : "";
    ndp_str_addf(out, "%s was ", name);
    add_shown(out, d->then);
    ndp_str_addf(out, "%s, now it is ", unit);
    add_shown(out, d->now);
    ndp_str_add(out, unit);
}

/* Reports a line, which is released. */
static ndp_status say_line(const ndp_trainer *t, ndp_str *line) {
    if (line->failed) {
        ndp_str_release(line);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a line");
    }
    if (t->rank.opts && t->rank.opts->say)
        t->rank.opts->say(t->rank.opts->user, line->data);
    else
        ndp_info(&t->rank.log, "%s", line->data);
    ndp_str_release(line);
    return NDP_OK;
}

static const char *const lr_keys[] = {"optimizer.lr",          "schedule.name",         "schedule.warmup_steps",
                                      "schedule.warmup_ratio", "schedule.min_lr_ratio", "schedule.decay_ratio",
                                      "schedule.cycles",       "schedule.like",         ndp_identity_steps};

static ndp_status set_lr_keys(struct json_object *then, ndp_config *c) {
    for (int i = 0; i < NDP_COUNT(lr_keys); i++) {
        const char *value = ndp_json_text(json_object_object_get(then, lr_keys[i]));
        if (value)
            NDP_TRY(ndp_config_setf(c, "%s=%s", lr_keys[i], value));
    }
    return NDP_OK;
}

ndp_status ndp_identity_add_lr(const ndp_identity_comparison *c, const char *before, ndp_str *out) {
    bool touched = false;
    ndp_config then;
    for (int i = 0; i < c->n; i++)
        touched |= NDP_IS_ANY(c->of[i].key, lr_keys);
    if (!touched)
        return NDP_OK;
    NDP_TRY(ndp_config_copy(c->t->rank.job.config, &then));
    ndp_status st = set_lr_keys(c->then, &then);
    if (st == NDP_OK)
        ndp_str_addf(out, "%slr of step %lld: %.6g then, %.6g now", before, (long long)c->info->step + 1,
                     ndp_trainer_lr(&then, then.train.steps, c->info->step),
                     ndp_trainer_lr(c->t->rank.job.config, c->t->rank.data.steps, c->info->step));
    ndp_config_release(&then);
    return st;
}

static bool moves_rows(const char *key) {
    return strcmp(key, "train.seed") == 0 ||
           (strncmp(key, "data.", 5) == 0 && strcmp(key, "data.validation_files") != 0);
}

/* Says what the data cursor, a count of samples, means for other data or another order. */
static ndp_status say_cursor(const ndp_identity_comparison *c) {
    enum { SHOWN = 8 };
    const ndp_trainer *t = c->t;
    bool moved = false;
    for (int i = 0; i < c->n; i++)
        moved |= moves_rows(c->of[i].key);
    if (!moved)
        return NDP_OK;
    ndp_str line = {0};
    long long at = c->info->samples, rows = t->rank.data.sampler.rows;
    int n = t->rank.feed.shape.global < SHOWN ? (int)t->rank.feed.shape.global : SHOWN;
    ndp_str_addf(&line, "cursor: stays at sample %lld (row %lld of %lld in epoch %lld); the next rows are", at,
                 at % rows + 1, rows, at / rows + 1);
    for (int i = 0; i < n; i++)
        ndp_str_addf(&line, " %lld", (long long)ndp_sampler_row(&t->rank.data.sampler, at + i));
    ndp_str_addf(&line, "%s; rows may repeat or be skipped in this epoch", n < t->rank.feed.shape.global ? " ..." : "");
    return say_line(t, &line);
}

/* ---- acceptance ---- */

bool ndp_identity_was_accepted(const ndp_identity_comparison *c, const char *key) {
    struct json_object *all = json_object_object_get(c->info->extra, "accepted");
    for (size_t i = json_object_is_type(all, json_type_array) ? json_object_array_length(all) : 0; i-- > 0;) {
        struct json_object *o = json_object_array_get_idx(all, i);
        const char *accepted = json_object_get_string(json_object_object_get(o, "key"));
        if (accepted && strcmp(accepted, key) == 0)
            return json_object_equal(json_object_object_get(o, "to"), json_object_object_get(c->now, key));
    }
    return false;
}

static ndp_status record_accepted(ndp_identity_comparison *c) {
    struct json_object *old = json_object_object_get(c->info->extra, "accepted"), *all = NULL;
    if (json_object_is_type(old, json_type_array) && json_object_deep_copy(old, &all, NULL) != 0)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the changes that were accepted before");
    if (!all && c->n)
        all = json_object_new_array();
    for (int i = 0; i < c->n; i++) {
        struct json_object *o = json_object_new_object();
        json_object_object_add(o, "key", json_object_new_string(c->of[i].key));
        json_object_object_add(o, "from", json_object_new_string(c->of[i].then));
        json_object_object_add(o, "to", json_object_new_string(c->of[i].now));
        json_object_object_add(o, "step", json_object_new_int64(c->info->step));
        json_object_array_add(all, o);
    }
    json_object_put(c->t->accepted);
    c->t->accepted = all;
    return NDP_OK;
}

ndp_status ndp_identity_accept(ndp_identity_comparison *c) {
    for (int i = 0; i < c->n; i++) {
        ndp_str line = {0};
        ndp_str_add(&line, "accepted: ");
        ndp_identity_add_difference(c->t, &line, &c->of[i]);
        NDP_TRY(say_line(c->t, &line));
    }
    ndp_str lr = {0};
    NDP_TRY(ndp_identity_add_lr(c, "", &lr));
    if (lr.length)
        NDP_TRY(say_line(c->t, &lr));
    NDP_TRY(say_cursor(c));
    return record_accepted(c);
}

void ndp_identity_describe_accepted(const ndp_trainer *t, ndp_str *out) {
    for (size_t i = 0; t->accepted && i < json_object_array_length(t->accepted); i++) {
        struct json_object *o = json_object_array_get_idx(t->accepted, i);
        const char *key = ndp_json_text(json_object_object_get(o, "key")),
                   *then = ndp_json_text(json_object_object_get(o, "from")),
                   *now = ndp_json_text(json_object_object_get(o, "to"));
        if (!key || !then || !now)
            continue;
        ndp_str_addf(out,
                     "# accepted at step %lld: ", (long long)json_object_get_int64(json_object_object_get(o, "step")));
        add_shown(out, key);
        ndp_str_add(out, " from ");
        add_shown(out, then);
        ndp_str_add(out, " to ");
        add_shown(out, now);
        ndp_str_add(out, "\n");
    }
}
