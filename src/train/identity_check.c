/* Comparing the identity of a run with that of a checkpoint: which keys differ, which of them may be accepted, and what
 * an accepted change does (identity_accept.c). */
#include "train/identity_parts.h"

#include "base/json.h"
#include "base/log.h"
#include "model/tensors.h"
#include <stdlib.h>
#include <string.h>

/* A user's key in the identity. */
static const char *key_of(const ndp_trainer *t, const char *name) {
    return ndp_identity_by_epochs(t) && strcmp(name, ndp_identity_epochs) == 0 ? ndp_identity_steps : name;
}

/* Fails with a message, which is released. */
static ndp_status fail_with(ndp_str *message) {
    ndp_status st = NDP_FAIL(NDP_EINVAL, "%s", message->failed ? "the resumed run differs" : message->data);
    ndp_str_release(message);
    return st;
}

/* ---- what differs ---- */

/* What tokens are made from: if one of these differs, different tokens are only a consequence. */
static const char *const token_keys[] = {
    "data.files",         "data.format",         "data.text_field",   "data.messages_field", "data.prompt_field",
    "data.input_field",   "data.response_field", "data.role_field",   "data.content_field",  "data.roles",
    "data.chat_template", "data.template_date",  "data.train_on",     "data.end_token",      "data.bin_type",
    "data.tokenizer",     "data.train_field",    "data.chosen_field", "data.rejected_field", "data.input_separator"};

static bool is_compared(const ndp_identity_comparison *c, const char *key) {
    const ndp_config *config = c->t->rank.job.config;
    if (strcmp(key, ndp_identity_steps) == 0)
        return ndp_lr_has_end(config->schedule.name) || config->schedule.warmup_ratio > 0;
    for (int i = 0; i < c->n && strcmp(key, "data.tokens") == 0; i++)
        if (NDP_IS_ANY(c->of[i].key, token_keys))
            return false;
    return true;
}

static void add_key(ndp_str *list, const char *key) { ndp_str_addf(list, "%s%s", list->length ? ", " : "", key); }

/* The keys that decide whether steps read the weights that a run began with. */
static const char *const reading_keys[] = {"adapter.type", "loss.name"};

/* Whether one of the values does not say what the other one does. Weights that only one of the runs reads after its
 * beginning: reading_keys differ then, or the checkpoint is of an earlier version (*old), which had no hash of a
 * reference; that of moe.routes was a path. */
static bool is_other_form(const ndp_identity_comparison *c, const char *key, const char *then, const char *now,
                          bool *old) {
    bool path = strcmp(key, "moe.routes") == 0 && strcmp(then, "null") != 0 && !ndp_identity_is_hash(then);
    *old = path && ndp_identity_is_hash(now);
    if (strcmp(then, ndp_identity_saved) != 0 && strcmp(now, ndp_identity_saved) != 0)
        return *old;
    *old = true;
    for (int i = 0; i < NDP_COUNT(reading_keys); i++)
        *old &= json_object_equal(json_object_object_get(c->then, reading_keys[i]),
                                  json_object_object_get(c->now, reading_keys[i]));
    return true;
}

/* What runs of versions without a key did; NULL: it is not known. */
static const char *before(const ndp_identity_comparison *c, const char *key) {
    static const char *const values[][2] = {{"optimizer.groups", "[]"}, {"adapter.lr_ratio_b", "1"}};
    for (int i = 0; i < NDP_COUNT(values) && !c->counted; i++)
        if (strcmp(key, values[i][0]) == 0)
            return values[i][1];
    return NULL;
}

static void compare_key(ndp_identity_comparison *c, const char *key, ndp_str *unknown) {
    const char *then = ndp_json_text(json_object_object_get(c->then, key)),
               *now = ndp_json_text(json_object_object_get(c->now, key));
    then = then ? then : before(c, key);
    bool old = !then || !now, same = !old && strcmp(then, now) == 0;
    if (!same && !old && !is_other_form(c, key, then, now, &old) && is_compared(c, key))
        c->of[c->n++] = (ndp_key_difference){key, then, now};
    if (!same && old)
        add_key(unknown, key);
}

static ndp_status compare_identities(ndp_identity_comparison *c) {
    static const char last[] = "data.tokens"; /* compared last: it depends on the others */
    ndp_str unknown = {0};
    c->of = calloc((size_t)json_object_object_length(c->now) + 1, sizeof *c->of);
    NDP_CHECK_MEMORY(c->of, "to compare a run with its checkpoint");
    json_object_object_foreach(c->now, key, value) {
        (void)value;
        if (strcmp(key, last) != 0)
            compare_key(c, key, &unknown);
    }
    if (json_object_object_get_ex(c->now, last, NULL))
        compare_key(c, last, &unknown);
    json_object_object_foreach(c->then, old, unused) {
        (void)unused;
        if (!json_object_object_get_ex(c->now, old, NULL))
            add_key(&unknown, old);
    }
    if (unknown.length && !c->counted)
        ndp_warn(&c->t->rank.log,
                 "the checkpoint of step %lld was written by another version; these keys cannot be compared: %s",
                 (long long)c->info->step, unknown.data);
    ndp_str_release(&unknown);
    return NDP_OK;
}

/* ---- accepted changes ---- */

static bool is_accepted(const ndp_identity_comparison *c, const char *key) {
    const ndp_train_opts *o = c->t->rank.opts;
    return o && o->accept &&
           (ndp_identity_is_any(key, o->accept, o->accept_count) ||
            ndp_identity_is_any(ndp_identity_name_of(c->t, key), o->accept, o->accept_count));
}

/* Whether two jobs' optimizers differ for a trained tensor, or keep other states of it. */
static ndp_status compare_updates(const ndp_job *a, const ndp_job *b, bool *differ) {
    const ndp_job *jobs[] = {a, b};
    ndp_update_groups groups[2];
    ndp_model models[2] = {{0}};
    ndp_arena arena = {0};
    ndp_status st = NDP_OK;
    for (int i = 0; i < 2 && st == NDP_OK; i++) {
        const ndp_optimizer_opts o = ndp_job_optimizer(jobs[i]);
        st = ndp_update_groups_make(&o, &arena, &groups[i]);
        if (st == NDP_OK)
            st = ndp_model_build(&jobs[i]->spec, &jobs[i]->model, &models[i]);
    }
    ndp_segment_walk w = {.model = &models[0]}, v = {.model = &models[1]};
    while (st == NDP_OK && ndp_segment_next(&w) && ndp_segment_next(&v)) {
        const ndp_optimizer_opts *x = ndp_update_opts_of(&groups[0], w.segment),
                                 *y = ndp_update_opts_of(&groups[1], v.segment);
        *differ |= x->name != y->name || ndp_optimizer_states(x) != ndp_optimizer_states(y);
    }
    for (int i = 0; i < 2; i++)
        ndp_model_release(&models[i]);
    ndp_arena_release(&arena);
    return st;
}

/* Would the run with the checkpoint's value of a key keep other states? That is so, too, if it cannot be known. */
static bool has_other_states(const ndp_identity_comparison *c, const ndp_key_difference *d) {
    static const char *const keys[] = {"optimizer.momentum", "optimizer.groups"};
    ndp_config config;
    ndp_job then = c->t->rank.job;
    bool differ = false;
    if (!NDP_IS_ANY(d->key, keys))
        return false;
    if (ndp_config_copy(then.config, &config) != NDP_OK)
        return true;
    then.config = &config, then.groups = NULL, then.model.n_groups = 0;
    ndp_status st = ndp_config_setf(&config, "%s=%s", d->key, d->then);
    if (st == NDP_OK)
        st = ndp_job_find_groups(&then);
    if (st == NDP_OK)
        st = compare_updates(&then, &c->t->rank.job, &differ);
    ndp_job_release_groups(&then);
    ndp_config_release(&config);
    return st != NDP_OK || differ;
}

/* The keys that random weights follow from. */
static const char *const drawing_keys[] = {"train.seed", "model.initializer_range"};

/* Whether steps read random weights that no checkpoint holds: those of the base, or of a new adapter in a reference. */
static bool is_drawn(const ndp_identity_comparison *c) {
    const ndp_job *j = &c->t->rank.job;
    bool base = j->config->model.init == NDP_INIT_RANDOM && ndp_job_reads_base(j);
    return base || (ndp_job_refers(j) && j->config->adapter.type != NDP_ADAPTER_NONE && !j->config->adapter.path &&
                    j->config->adapter.init == NDP_ADAPTER_RANDOM);
}

/* Why a difference can never be accepted; NULL if it can. */
static const char *why_never(const ndp_identity_comparison *c, const ndp_key_difference *d) {
    if (strcmp(d->key, "optimizer.name") == 0)
        return "the checkpoint has the state of another optimizer";
    if (strcmp(d->key, "model.frozen") == 0)
        return "the checkpoint has optimizer state for other units";
    if (strcmp(d->key, "model.trained") == 0)
        return "the checkpoint has optimizer state for other tensors";
    if (ndp_identity_is_shape(&c->t->model, d->key))
        return "the tensors have other shapes";
    if (has_other_states(c, d))
        return strcmp(d->key, "optimizer.momentum") == 0 ? "only a run with momentum saves momentum tensors"
                                                         : "the checkpoint has the state of another optimizer";
    if (is_drawn(c) && NDP_IS_ANY(d->key, drawing_keys))
        return "weights that no checkpoint holds are drawn from it";
    return NULL;
}

/* One message for all differences that are not accepted. */
static ndp_status check_differences(const ndp_identity_comparison *c) {
    enum { MOST = 8 }; /* with another model nearly every key differs */
    ndp_str message = {0}, flags = {0};
    int refused = 0;
    bool possible = true;
    ndp_str_addf(&message, "cannot resume from step %lld in %s: ", (long long)c->info->step, c->folder);
    for (int i = 0; i < c->n; i++) {
        const char *why = why_never(c, &c->of[i]);
        if (!why && is_accepted(c, c->of[i].key))
            continue;
        possible &= !why;
        if (refused++ >= MOST)
            continue;
        ndp_str_add(&message, refused > 1 ? "; " : "");
        ndp_identity_add_difference(c->t, &message, &c->of[i]);
        if (why)
            ndp_str_addf(&message, ", which cannot be accepted (%s)", why);
        ndp_str_addf(&flags, " --accept %s", ndp_identity_name_of(c->t, c->of[i].key));
    }
    if (refused > MOST)
        ndp_str_addf(&message, "; and %d more", refused - MOST);
    ndp_status st = refused ? ndp_identity_add_lr(c, "; ", &message) : NDP_OK;
    ndp_str_addf(&message, ". Change %s back, or ", refused > 1 ? "them" : "it");
    if (possible)
        ndp_str_addf(&message, "resume with%s%s", flags.data ? flags.data : "", refused > MOST ? " and so on" : "");
    else
        ndp_str_add(&message, "start a new run in another train.output_dir");
    ndp_str_release(&flags);
    if (refused && st == NDP_OK)
        return fail_with(&message);
    ndp_str_release(&message);
    return st;
}

static ndp_status fail_unknown(const ndp_identity_comparison *c, const char *key) {
    enum { MOST = 256 };
    const char *known[MOST];
    int n = 0;
    json_object_object_foreach(c->now, name, unused) {
        (void)unused;
        if (n < MOST)
            known[n++] = name;
    }
    const char *meant = ndp_nearest(key, known, n);
    return NDP_FAIL(NDP_EINVAL, "--accept %s: there is no such key%s%s%s", key, meant ? "; did you mean " : "",
                    meant ? meant : "", meant ? "?" : "; give one that differs, as SECTION.KEY");
}

static int role_of(const char *key) {
    char name[NDP_KEY_NAME];
    for (int i = 0, role; (role = ndp_config_key(i, name)) >= 0; i++)
        if (strcmp(name, key) == 0)
            return role;
    return -1;
}

/* Every --accept must name a key that differs. */
static ndp_status check_accepted(const ndp_identity_comparison *c) {
    const ndp_train_opts *o = c->t->rank.opts;
    for (int k = 0; o && o->accept && k < o->accept_count; k++) {
        const char *name = o->accept[k], *key = key_of(c->t, name);
        bool differs = false;
        for (int i = 0; i < c->n; i++)
            differs |= strcmp(c->of[i].key, key) == 0;
        if (differs || (o->await && ndp_identity_was_accepted(c, key)))
            continue;
        int role = role_of(key);
        bool there = json_object_object_get_ex(c->now, key, NULL);
        if (role < 0 && !there)
            return fail_unknown(c, name);
        if (role == NDP_KEY_FREE)
            return NDP_FAIL(NDP_EINVAL, "--accept %s: this key may change on any resume; leave it out", name);
        return NDP_FAIL(NDP_EINVAL, "--accept %s: it %s the checkpoint of step %lld; leave it out", name,
                        c->counted && !there ? "cannot be compared with" : "does not differ from",
                        (long long)c->info->step);
    }
    return NDP_OK;
}

/* ---- all of it ---- */

static ndp_status read_identities(ndp_identity_comparison *c) {
    struct json_object *extra;
    if (!json_object_object_get_ex(c->info->extra, "identity", &c->then)) {
        c->counted = true;
        c->then = ndp_identity_counted(c->info);
        c->now = ndp_identity_count(c->t);
        ndp_warn(&c->t->rank.log,
                 "the checkpoint of step %lld was written by an earlier version: the counts of its data and train.seed "
                 "are compared; model, tokenizer, optimizer, batch, schedule and the contents of the data cannot be",
                 (long long)c->info->step);
        return NDP_OK;
    }
    if (!json_object_is_type(c->then, json_type_object)) {
        c->then = NULL;
        return NDP_FAIL(NDP_EFORMAT, "%s: the \"identity\" of step %lld is not an object", c->folder,
                        (long long)c->info->step);
    }
    json_object_get(c->then);
    NDP_TRY(ndp_identity_extra(c->t, &extra));
    c->now = json_object_get(json_object_object_get(extra, "identity"));
    json_object_put(extra);
    return NDP_OK;
}

ndp_status ndp_identity_check(ndp_trainer *t, const ndp_checkpoint_info *info, const char *folder) {
    ndp_identity_comparison c = {.t = t, .info = info, .folder = folder};
    ndp_status st = read_identities(&c);
    if (st == NDP_OK)
        st = compare_identities(&c);
    if (st == NDP_OK)
        st = check_accepted(&c);
    if (st == NDP_OK)
        st = check_differences(&c);
    if (st == NDP_OK)
        st = ndp_identity_accept(&c);
    free(c.of);
    json_object_put(c.then);
    json_object_put(c.now);
    return st;
}
