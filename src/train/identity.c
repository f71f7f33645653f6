/* The identity of a run: collecting it. */
#include "train/identity.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

const char ndp_identity_saved[] = "in the checkpoints";

static void add_number(struct json_object *o, const char *key, int64_t n) {
    ndp_str text = {0};
    ndp_str_addf(&text, "%lld", (long long)n);
    ndp_identity_text(o, key, &text);
}

/* ---- keys whose contents count ---- */

/* The options of entries, each behind the number of its entry. A split comes last in them, and is left out: the hash
 * covers the records that it takes. */
static void add_own(const ndp_strings *own, ndp_str *out) {
    for (int i = 0; i < own->n; i++) {
        const char *text = own->items[i], *split = strstr(text, "split: \"");
        size_t n = split ? (size_t)(split - text) : strlen(text);
        if (n > 1)
            ndp_str_addf(out, " %d %.*s", i, (int)n, text);
    }
}

static void write_files(const ndp_trainer *t, ndp_str *out) {
    ndp_identity_hash(out, t->rank.data.content);
    add_own(&t->rank.job.config->data.files_own, out);
}

static void write_held_files(const ndp_trainer *t, ndp_str *out) {
    if (t->rank.job.config->data.validation_files.n) {
        ndp_identity_hash(out, t->rank.data.held_content);
        add_own(&t->rank.job.config->data.validation_own, out);
    } else
        ndp_str_add(out, "none");
}

static void write_tokenizer(const ndp_trainer *t, ndp_str *out) { ndp_identity_tokenizer(t->rank.data.tokenizer, out); }

static void write_template(const ndp_trainer *t, ndp_str *out) { ndp_str_add(out, ndp_chat_name(&t->rank.data.chat)); }

static void write_end_token(const ndp_trainer *t, ndp_str *out) {
    ndp_span token = ndp_job_data_token_text(&t->rank.data, t->rank.data.end_token);
    if (token.n)
        ndp_str_addf(out, "%.*s (%d)", (int)token.n, token.data, t->rank.data.end_token);
    else if (t->rank.data.end_token >= 0)
        ndp_str_addf(out, "%d", t->rank.data.end_token);
    else
        ndp_str_add(out, "none");
}

/* What data.overlong does to the rows: nothing where no document is too long, or where such documents continue. The
 * rows of auto are those of cut where it has cut no conversation between turns. */
static void write_overlong(const ndp_trainer *t, ndp_str *out) {
    ndp_row_losses lost = ndp_dataset_losses(t->rank.data.dataset),
                   held = t->rank.data.held ? ndp_dataset_losses(t->rank.data.held) : (ndp_row_losses){0};
    if (lost.between_turns + held.between_turns > 0)
        ndp_str_add(out, "auto");
    else if (lost.overlong + held.overlong == 0)
        ndp_str_add(out, "cut");
    else
        ndp_str_add(out, t->rank.job.config->data.overlong == NDP_OVERLONG_DROP ? "drop" : "truncate");
}

/* The numbers in the order of data.files: it makes no difference whether, and in which order, data.mix names them. */
static void write_mix(const ndp_trainer *t, ndp_str *out) {
    const ndp_config *c = t->rank.job.config;
    ndp_str_add(out, "[");
    for (int i = 0; i < c->data.mix.n; i++)
        ndp_str_addf(out, "%s\"%s\"", i ? ", " : "", ndp_config_mix(c, i));
    ndp_str_add(out, "]");
}

/* Weights that steps read and no checkpoint holds: those beside which an adapter is trained, and the reference. */
static void write_base(const ndp_trainer *t, ndp_str *out) {
    if (!ndp_job_reads_base(&t->rank.job))
        ndp_str_add(out, ndp_identity_saved);
    else if (t->rank.job.config->model.init == NDP_INIT_RANDOM)
        ndp_str_add(out, "random");
    else
        ndp_identity_hash(out, t->rank.base);
}

/* The adapter that a run begins from is in its checkpoints, but as it was it is a part of the reference. */
static void write_adapter(const ndp_trainer *t, ndp_str *out) {
    if (!ndp_job_refers(&t->rank.job))
        ndp_str_add(out, ndp_identity_saved);
    else if (t->rank.job.config->adapter.path)
        ndp_identity_hash(out, t->rank.began_with);
    else
        ndp_str_add(out, "none");
}

/* The choices of the file, not its name. */
static void write_routes(const ndp_trainer *t, ndp_str *out) {
    const ndp_choices *c = &t->rank.feed.of_file;
    int64_t n = c->updates * c->mixtures.n * c->rows * c->mixtures.choices;
    if (c->chosen)
        ndp_identity_hash(out, ndp_hash128_of(c->chosen, (size_t)n * sizeof *c->chosen));
    else
        ndp_str_add(out, "null");
}

/* Every NDP_KEY_CONTENTS key; NULL: its contents have keys of their own (add_all). */
static const struct {
    const char *key;
    void (*write)(const ndp_trainer *t, ndp_str *out);
} contents[] = {
    {"model.path", write_base},
    {"adapter.path", write_adapter},
    {"moe.routes", write_routes},
    {"model.config", NULL},
    {"model.sliding_window", NULL},
    {"data.files", write_files},
    {"data.mix", write_mix},
    {"data.tokenizer", write_tokenizer},
    {"data.chat_template", write_template},
    {"data.end_token", write_end_token},
    {"data.overlong", write_overlong},
    {"data.validation_files", write_held_files},
    {"train.epochs", NULL},
};

/* Without files, of the user's own batches only their caller knows what they are. */
static ndp_status add_contents(const ndp_trainer *t, const char *key, struct json_object *o) {
    ndp_str text = {0};
    if (t->rank.no_data && strncmp(key, "data.", 5) == 0) {
        ndp_str_add(&text, "own batches");
        ndp_identity_text(o, key, &text);
        return NDP_OK;
    }
    for (int i = 0; i < NDP_COUNT(contents); i++)
        if (strcmp(contents[i].key, key) == 0) {
            if (contents[i].write) {
                contents[i].write(t, &text);
                ndp_identity_text(o, key, &text);
            }
            return NDP_OK;
        }
    return NDP_FAIL(NDP_EBUG, "there is no rule for the contents of %s", key);
}

/* ---- all of it ---- */

/* The facts include the window that model.sliding_window sets, since the model was built with it. Besides the hashes of
 * the data files, that of the tokens made from them. */
static ndp_status add_all(const ndp_trainer *t, struct json_object *o) {
    char key[NDP_KEY_NAME], *value;
    ndp_str tokens = {0};
    ndp_identity_facts(&t->model, o);
    for (int i = 0, role; (role = ndp_config_key(i, key)) >= 0; i++) {
        if (role == NDP_KEY_CONTENTS)
            NDP_TRY(add_contents(t, key, o));
        if (role != NDP_KEY_IDENTITY)
            continue;
        NDP_TRY(ndp_config_get(t->rank.job.config, key, &value));
        json_object_object_add(o, key, json_object_new_string(value));
        free(value);
    }
    add_number(o, "train.steps", t->rank.data.steps); /* with train.epochs, the derived number */
    ndp_identity_hash(&tokens, t->rank.data.tokens.payload);
    ndp_identity_text(o, "data.tokens", &tokens);
    return NDP_OK;
}

ndp_status ndp_identity_extra(const ndp_trainer *t, struct json_object **out) {
    struct json_object *extra = json_object_new_object(), *identity = json_object_new_object();
    json_object_object_add(extra, "identity", identity);
    if (t->accepted)
        json_object_object_add(extra, "accepted", json_object_get(t->accepted));
    ndp_status st = add_all(t, identity);
    json_object_object_foreach(identity, key, value) {
        if (!value && st == NDP_OK)
            st = NDP_FAIL(NDP_ENOMEM, "not enough memory for %s of the run's identity", key);
    }
    if (st == NDP_OK)
        *out = extra;
    else
        json_object_put(extra);
    return st;
}

/* ---- checkpoints without an identity ---- */

/* Their counts, and the keys they are compared as. */
static const struct {
    const char *then, *now;
} counted[] = {{"rows", "data.rows"},
               {"epoch_rows", "data.epoch_rows"},
               {"tokens", "data.token_count"},
               {"sequence_length", "data.sequence_length"},
               {"shuffle", "data.shuffle"}};

struct json_object *ndp_identity_count(const ndp_trainer *t) {
    struct json_object *o = json_object_new_object();
    const ndp_config *c = t->rank.job.config;
    add_number(o, "data.rows", t->rank.no_data ? 0 : ndp_dataset_rows(t->rank.data.dataset));
    add_number(o, "data.epoch_rows", t->rank.data.sampler.rows);
    add_number(o, "data.token_count", t->rank.no_data ? 0 : ndp_dataset_tokens(t->rank.data.dataset));
    add_number(o, "data.sequence_length", c->data.sequence_length);
    json_object_object_add(o, "data.shuffle", json_object_new_string(c->data.shuffle ? "true" : "false"));
    add_number(o, "train.seed", c->train.seed);
    return o;
}

struct json_object *ndp_identity_counted(const ndp_checkpoint_info *info) {
    struct json_object *o = json_object_new_object();
    for (int i = 0; i < NDP_COUNT(counted); i++) {
        struct json_object *value = json_object_object_get(info->extra, counted[i].then);
        if (value)
            json_object_object_add(o, counted[i].now, json_object_new_string(json_object_get_string(value)));
    }
    add_number(o, "train.seed", info->seed);
    return o;
}
