/* Runs that are stopped, and resumed with one thing changed, generated: another value of a key of the option table, a
 * change in a file that the run reads, or another place of its files. A resumed run is refused by the name of what has
 * changed, or its curve has the bits of a run that is left alone (on another layout, nearly). */
#include "train/resumed_jobs.h"

#include "checkpoint/manifest.h"
#include "config/table.h"

#include <math.h>

typedef struct change {
    char what[400];
    char set[200];     /* key=value, '|' between; "": no key */
    char key[160];     /* words of a refusal for it */
    const char *file;  /* below the job's files, changed in place; NULL: none */
    const char *named; /* words of a refusal, '|' between; NULL: those of the key */
    const char *moved; /* the folder of the files; NULL: where they were */
    const char *drop;  /* a fault: a key that the manifest lacks */
    bool rounds;       /* another layout: the curve differs by rounding */
} change;

/* ---- keys ---- */

/* Other values of keys: NULL for those of its type (other_value), "" for none; and what else a refusal may name. */
static const struct {
    const char *key, *value, *words;
} other_values[] = {{"model.path", "%/other", "other"},
                    {"model.config", "%/other/config.json", "config.json"},
                    {"model.frozen", "[head]", NULL},
                    {"adapter.type", NULL, "nf4"},
                    {"adapter.path", "%/other-adapter", "other-adapter"},
                    {"adapter.targets", "['*.layers.0.*']", NULL},
                    {"adapter.modules_to_save", "[lm_head]", NULL},
                    {"moe.routes", "%/other-routes.safetensors", NULL},
                    {"batch.global_batch_size", NULL, "moe.routes"}, /* of so many rows */
                    {"data.files", "[%/held.jsonl]", NULL},
                    {"data.mix", "[2, 1]", NULL},
                    {"data.format", NULL, ".jsonl:1: the record has"},
                    {"data.sequence_length", NULL, "moe.routes"},
                    {"data.validation_files", "[%/texts.jsonl]", NULL},
                    {"data.tokenizer", "bytes", NULL},
                    {"data.chat_template", "qwen3", NULL},
                    {"data.template_date", "2026-01-31", NULL},
                    {"data.end_token", "none", NULL},
                    {"data.text_field", "body", NULL},
                    {"data.role_field", NULL, "'another_name'"},
                    {"data.content_field", NULL, "'another_name'"},
                    {"data.roles", "{bot: assistant}", NULL},
                    {"data.max_documents", "9", NULL},
                    {"data.cache_dir", "@/cache-too", NULL},
                    {"parallelism.tp_size", NULL, "tp 2"},
                    {"parallelism.sp_size", NULL, "sp 2"},
                    {"parallelism.ep_size", NULL, "ep 2"},
                    {"pipeline.stages", "[1, 1]", NULL},
                    {"pipeline.file", "none.csv", NULL},
                    {"precision.reduce", "", NULL},
                    {"train.transport", "self", NULL},
                    {"train.device", "ref", NULL},
                    {"train.output_dir", "", NULL}};

static int other_value_of(const char *key) {
    int i = 0;
    while (i < NDP_COUNT(other_values) && strcmp(other_values[i].key, key) != 0)
        i++;
    return i;
}

/* Keys of a layout, of which some do nothing on one rank, and of who computes the loss: by other sums. */
static bool is_layout(const ndp_option *o) {
    static const char *const keys[] = {"threads", "device", "ranks", "micro_batch_size", "recompute", "own_logits"};
    bool is = strcmp(o->section, "parallelism") == 0 || strcmp(o->section, "pipeline") == 0;
    for (int i = 0; i < NDP_COUNT(keys); i++)
        is |= strcmp(o->key, keys[i]) == 0;
    return is;
}

/* Another word than the value, `turn` places on. */
static const char *other_word(const ndp_option *o, const char *value, uint64_t turn) {
    int n = 0, at = 0;
    for (; o->words[n]; n++)
        at = strcmp(o->words[n], value) == 0 ? n : at;
    return n < 2 ? NULL : o->words[(at + 1 + (int)(turn % (uint64_t)(n - 1))) % n];
}

/* Writes another value of the key; false: it is not tried. */
static bool other_value(const ndp_option *o, const char *value, uint64_t turn, char *out, size_t size) {
    double x = strtod(value, NULL);
    const char *text = "another_name";
    if (o->type == NDP_OPTION_WORD)
        text = other_word(o, value, turn);
    if (o->type == NDP_OPTION_BOOL)
        text = strcmp(value, "true") == 0 ? "false" : "true";
    if (o->type == NDP_OPTION_PAIR)
        text = "[0.5, 0.6]";
    if (o->type == NDP_OPTION_INT || o->type == NDP_OPTION_INT64)
        return snprintf(out, size, "%lld", x > 0 ? 2 * (long long)x : 2LL) > 0;
    if (o->type == NDP_OPTION_NUMBER)
        return snprintf(out, size, "%g", x == 0 ? 0.25 : x / 2) > 0;
    return text && snprintf(out, size, "%s", text) > 0;
}

/* A change of option i; false: it has no other value. */
static bool change_key(const drawn_job *j, const char *folder, int i, uint64_t turn, change *out) {
    const ndp_option *o = &ndp_options[i];
    char key[64], text[96] = "", *value;
    ndp_config *c = configure_job(folder, j, j->files, "none");
    snprintf(key, sizeof key, "%s.%s", o->section, o->key);
    CHECK_OK(ndp_config_get(c, key, &value));
    int row = other_value_of(key);
    const char *given = row < NDP_COUNT(other_values) ? other_values[row].value : NULL,
               *words = row < NDP_COUNT(other_values) ? other_values[row].words : NULL;
    bool there = given ? snprintf(text, sizeof text, "%s", given) > 0 : other_value(o, value, turn, text, sizeof text);
    *out = (change){.rounds = is_layout(o)};
    snprintf(out->key, sizeof out->key, "%s%s%s", o->key, words ? "|" : "", words ? words : "");
    snprintf(out->set, sizeof out->set, "%s=%s", key, text);
    snprintf(out->what, sizeof out->what, "%s instead of %s", out->set, value);
    there = there && strcmp(text, value) != 0;
    free(value);
    ndp_config_destroy(c);
    return there;
}

/* ---- files ---- */

#define OF_TOKENIZER "tokenizer|data.end_token|data.tokens|token_id"
static const struct {
    const char *file, *named;
} read_files[] = {
    {"model/config.json", "model.|config.json"},    {"model/model.safetensors", "model.path|model.safetensors"},
    {"model/tokenizer.json", OF_TOKENIZER},         {"model/tokenizer_config.json", OF_TOKENIZER},
    {"model/generation_config.json", OF_TOKENIZER}, {"adapter/adapter_model.safetensors", "adapter.path|adapter_model"},
    {"adapter/adapter_config.json", "adapter"},     {"routes.safetensors", "moe.routes|routes.safetensors"},
    {"texts.jsonl", "data.files|texts.jsonl"},      {"held.jsonl", "data.validation_files|held.jsonl"},
    {"chats.jsonl", "data.files|chats.jsonl"},      {"pairs.jsonl", "data.files|pairs.jsonl"}};

/* How many numbers, texts and so on a value has, itself included unless it is a list or an object. */
static int count_leaves(struct json_object *o) {
    int n = 0;
    if (json_object_is_type(o, json_type_object)) {
        json_object_object_foreach(o, key, value) {
            (void)key;
            n += count_leaves(value);
        }
        return n;
    }
    if (!json_object_is_type(o, json_type_array))
        return 1;
    for (size_t i = 0; i < json_object_array_length(o); i++)
        n += count_leaves(json_object_array_get_idx(o, i));
    return n;
}

static struct json_object *other_leaf(struct json_object *o) {
    const char *text = json_object_get_string(o);
    if (json_object_is_type(o, json_type_boolean))
        return json_object_new_boolean(!json_object_get_boolean(o));
    if (json_object_is_type(o, json_type_int))
        return json_object_new_int64(2 * json_object_get_int64(o) + (json_object_get_int64(o) == 0));
    if (json_object_is_type(o, json_type_double))
        return json_object_new_double(2 * json_object_get_double(o));
    return json_object_new_string(text && strcmp(text, "silu") == 0 ? "gelu_pytorch_tanh" : text ? "other" : "4");
}

/* Replaces leaf number *at; writes its name to `what`. */
static void change_leaf(struct json_object *o, int *at, char *what, size_t size) {
    bool object = json_object_is_type(o, json_type_object);
    if (object) {
        json_object_object_foreach(o, key, value) {
            bool here = count_leaves(value) > *at && *at >= 0;
            bool leaf = !json_object_is_type(value, json_type_object) && !json_object_is_type(value, json_type_array);
            if (here)
                snprintf(what, size, "%s", key);
            if (here && leaf) {
                json_object_object_add(o, key, other_leaf(value));
                *at = -1;
                return;
            }
            if (here)
                change_leaf(value, at, what, size);
            else
                *at -= *at >= 0 ? count_leaves(value) : 0;
            if (*at < 0)
                return;
        }
    }
    for (size_t i = 0; !object && i < json_object_array_length(o) && *at >= 0; i++) {
        struct json_object *value = json_object_array_get_idx(o, i);
        int n = count_leaves(value);
        bool leaf = !json_object_is_type(value, json_type_object) && !json_object_is_type(value, json_type_array);
        if (n > *at && leaf) {
            json_object_array_put_idx(o, i, other_leaf(value));
            *at = -1;
        } else if (n > *at)
            change_leaf(value, at, what, size);
        else
            *at -= n;
    }
}

static char *change_json(const char *text, size_t size, uint64_t seed, char *what, size_t room, size_t *n) {
    struct json_object *o;
    CHECK_OK(ndp_json_parse(text, size, "a file", &o));
    int at = (int)ndp_rng_below(seed, 1, 0, (uint64_t)count_leaves(o));
    change_leaf(o, &at, what, room);
    char *out = strdup(json_object_to_json_string(o));
    *n = strlen(out);
    json_object_put(o);
    return out;
}

/* One digit of a text, past the first record. Of tensors every eighth number: one alone may be in a row that no token
 * reads. Of choices all: no row goes anywhere, which is a legal file. */
static char *change_bytes(const char *file, const char *text, size_t size, uint64_t seed, char *what, size_t room) {
    char *out = malloc(size);
    uint64_t header = 0;
    size_t at = 0;
    memcpy(out, text, size);
    memcpy(&header, text, sizeof header);
    if (strstr(file, "routes"))
        memset(out + 8 + header, 0xff, size - 8 - header);
    else if (strstr(file, ".safetensors"))
        for (at = 8 + header + 4 * ndp_rng_below(seed, 2, 0, 8) + 2; at < size; at += 32)
            out[at] ^= 0x20;
    else {
        for (uint64_t turn = 0; at < 40 || out[at] < '0' || out[at] > '9'; turn++)
            at = ndp_rng_below(seed, 2, turn, size);
        out[at] ^= 1;
    }
    snprintf(what, room, "byte %zu", at);
    return out;
}

/* Changes the file, and returns what it was. */
static char *edit(const char *path, uint64_t seed, char *what, size_t room, size_t *size) {
    char *was;
    CHECK_OK(ndp_file_read(path, &was, size));
    size_t n = *size;
    char *now = strstr(path, ".json") && !strstr(path, ".jsonl") ? change_json(was, *size, seed, what, room, &n)
                                                                 : change_bytes(path, was, *size, seed, what, room);
    CHECK_OK(ndp_file_write_atomic(path, now, n));
    free(now);
    return was;
}

/* ---- a case ---- */

typedef struct drawn_run {
    const char *folder;
    drawn_job job;
    run whole; /* left alone */
    int cases, refused, same, near, wrong;
} drawn_run;

static bool names_it(const char *named, const char *message) {
    char words[200], *rest = NULL;
    snprintf(words, sizeof words, "%s", named);
    for (char *word = strtok_r(words, "|", &rest); word; word = strtok_r(NULL, "|", &rest))
        if (strstr(message, word))
            return true;
    return false;
}

static bool same_number(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

/* NULL, or which step of the curves differs; the caller frees. */
static char *compare_curves(const run *a, const run *b, double bound) {
    for (int k = SAVED + 1; k <= STEPS; k++) {
        const ndp_metrics *x = &a->m[k], *y = &b->m[k];
        bool held = x->eval_tokens > 0 && y->eval_tokens > 0;
        const double p[] = {x->loss, x->grad_norm, x->lr, x->pair.margin, x->pair.logp_chosen, held ? x->eval_loss : 0},
                     q[] = {y->loss, y->grad_norm, y->lr, y->pair.margin, y->pair.logp_chosen, held ? y->eval_loss : 0};
        if (x->step != k || y->step != k)
            return ndp_format("there is no step %d", k);
        for (int i = 0; i < NDP_COUNT(p); i++)
            if (bound > 0 ? !(fabs(p[i] - q[i]) <= bound * (1 + fabs(p[i]))) : !same_number(p[i], q[i]))
                return ndp_format("number %d of step %d is %.17g, and was %.17g", i, k, q[i], p[i]);
    }
    return NULL;
}

/* Takes a key out of the identity that the copied run's checkpoint has. */
static void drop_key(const char *folder, const char *key) {
    ndp_manifest m;
    char *text, *path = ndp_format("%s/again/checkpoints/step-%08d", folder, SAVED);
    CHECK_OK(ndp_manifest_read(path, &m));
    struct json_object *identity = json_object_object_get(m.info.extra, "identity");
    assert_true(json_object_object_get_ex(identity, key, NULL));
    json_object_object_del(identity, key);
    CHECK_OK(ndp_manifest_text(&m.info, m.files, m.n_files, &text));
    tiny_write(path, "manifest.json", text);
    ndp_manifest_release(&m);
    free(text);
    free(path);
}

/* NULL, or what is wrong with a resume after the change. */
static char *judge(drawn_run *d, const change *x, ndp_status st, const run *r, uint64_t before) {
    bool rough = job_has(&d->job, &bf16) || job_has(&d->job, &optimizers[3]) || job_has(&d->job, &optimizers[4]);
    if (st == NDP_OK) {
        char *wrong = compare_curves(&d->whole, r, x->rounds ? rough ? 0.2 : 1e-3 : 0);
        d->same += !wrong && !x->rounds;
        d->near += !wrong && x->rounds;
        return wrong;
    }
    const char *named = x->named ? x->named : x->key;
    if (st == NDP_EBUG || st == NDP_ECOMM || st == NDP_EINTR || !names_it(named, ndp_error_message()))
        return ndp_format("status %d, not refused by its name: %s", st, ndp_error_message());
    d->refused++;
    return state_of(d->folder, "again") == before ? NULL : ndp_format("the run folder has changed");
}

static char *try_resume(drawn_run *d, const change *x) {
    char *command = ndp_format("rm -rf %1$s/again && cp -r %1$s/half %1$s/again", d->folder);
    assert_int_equal(system(command), 0);
    free(command);
    if (x->drop)
        drop_key(d->folder, x->drop);
    ndp_config *c = configure_job(d->folder, &d->job, x->moved ? x->moved : d->job.files, "again");
    uint64_t before = state_of(d->folder, "again");
    run r = {.config = c};
    char sets[sizeof x->set], *rest = NULL;
    ndp_status st = NDP_OK;
    snprintf(sets, sizeof sets, "%s", x->set);
    for (char *key = strtok_r(sets, "|", &rest); key && st == NDP_OK; key = strtok_r(NULL, "|", &rest))
        st = set_in(c, d->folder, d->job.files, key);
    if (st == NDP_OK)
        st = train(&r, true, NULL);
    d->cases++;
    char *wrong = judge(d, x, st, &r, before);
    ndp_str_release(&r.said);
    ndp_config_destroy(c);
    return wrong;
}

/* The same with its file changed meanwhile. */
static char *try_change(drawn_run *d, change *x, uint64_t seed) {
    char *path = x->file ? ndp_format("%s/%s", d->job.files, x->file) : NULL, *was = NULL, what[64] = "";
    size_t size = 0;
    if (path)
        was = edit(path, seed, what, sizeof what, &size);
    if (path)
        snprintf(x->what, sizeof x->what, "%s: %s", x->file, what);
    char *wrong = try_resume(d, x);
    if (path)
        CHECK_OK(ndp_file_write_atomic(path, was, size));
    free(path);
    free(was);
    return wrong;
}

static void check_change(drawn_run *d, change *x, uint64_t seed) {
    char *wrong = try_change(d, x, seed);
    if (wrong)
        print_error("%s, %s: %s\n", d->job.name, x->what, wrong);
    d->wrong += wrong != NULL;
    free(wrong);
}

/* ---- jobs ---- */

static void train_whole(drawn_run *d) {
    ndp_config *c = configure_job(d->folder, &d->job, d->job.files, "whole");
    d->whole = (run){.config = c};
    if (train(&d->whole, false, NULL) != NDP_OK)
        fail_msg("%s: %s", d->job.name, ndp_error_message());
    ndp_str_release(&d->whole.said);
    ndp_config_destroy(c);
    c = configure_job(d->folder, &d->job, d->job.files, "half");
    run half = {.config = c, .stop_after = SAVED};
    if (train(&half, false, NULL) != NDP_EINTR)
        fail_msg("%s: it was not stopped: %s", d->job.name, ndp_error_message());
    ndp_str_release(&half.said);
    ndp_config_destroy(c);
}

static void begin_job(drawn_run *d, const char *folder, int i, uint64_t seed) {
    *d = (drawn_run){.folder = folder, .job = draw_job(folder, i, seed)};
    write_files(folder, &d->job);
    train_whole(d);
}

static void end_job(drawn_run *d) {
    char *command = ndp_format("rm -rf %1$s/whole %1$s/half %1$s/again %2$s", d->folder, d->job.files);
    assert_int_equal(system(command), 0);
    free(command);
}

/* The same files elsewhere, and the ones of before gone. */
static void check_moved(drawn_run *d) {
    char *moved = ndp_format("%s/moved", d->folder),
         *there = ndp_format("rm -rf %s && mv %s %s", moved, d->job.files, moved),
         *back = ndp_format("mv %s %s", moved, d->job.files);
    assert_int_equal(system(there), 0);
    check_change(d, &(change){.what = "all files moved", .moved = moved}, 0);
    assert_int_equal(system(back), 0);
    free(moved);
    free(there);
    free(back);
}

static void check_files(drawn_run *d, uint64_t seed) {
    for (int i = 0; i < NDP_COUNT(read_files); i++) {
        char *path = ndp_format("%s/%s", d->job.files, read_files[i].file);
        if (ndp_path_exists(path))
            check_change(d, &(change){.file = read_files[i].file, .named = read_files[i].named}, seed + (uint64_t)i);
        free(path);
    }
}

/* Other ranks share the experts of a mixture. 8-bit states do not go with that. */
static void check_experts(drawn_run *d) {
    static const char *const layouts[] = {
        "parallelism.dp_shard_size=2|parallelism.ep_size=2", "parallelism.tp_size=2|parallelism.ep_size=2",
        "parallelism.cp_size=2|parallelism.tp_size=2|parallelism.ep_size=4|train.recompute=block"};
    for (int i = 0; i < NDP_COUNT(layouts) && is_mixture(&d->job); i++) {
        change x = {.rounds = true, .named = "adamw8bit"};
        snprintf(x.set, sizeof x.set, "%s", layouts[i]);
        snprintf(x.what, sizeof x.what, "%s", layouts[i]);
        check_change(d, &x, 0);
    }
}

static int row_of(const char *key) {
    char name[64];
    int i = -1;
    do {
        assert_true(++i < ndp_option_count);
        snprintf(name, sizeof name, "%s.%s", ndp_options[i].section, ndp_options[i].key);
    } while (strcmp(name, key) != 0);
    return i;
}

/* Those that name what steps read, and `n` others. */
static void check_keys(drawn_run *d, int n, uint64_t seed) {
    static const char *const always[] = {"model.path", "adapter.path", "moe.routes", "train.steps"};
    int tried = -NDP_COUNT(always), first = (int)ndp_rng_below(seed, 3, 0, (uint64_t)ndp_option_count);
    int step = ndp_option_count % 37 ? 37 : 41; /* visits every row: it has no divisor in common with their number */
    for (int k = -NDP_COUNT(always); k < ndp_option_count && tried < n; k++) {
        int row = k < 0 ? row_of(always[-1 - k]) : (first + k * step) % ndp_option_count;
        change x;
        if (!change_key(&d->job, d->folder, row, seed + (uint64_t)row, &x))
            continue;
        check_change(d, &x, 0);
        tried++;
    }
}

static void generated_changes(void **state) {
    uint64_t seed = getenv("NDP_TEST_SEED") ? strtoull(getenv("NDP_TEST_SEED"), NULL, 10) : 7;
    int jobs = short_or_all(3, 26), keys = short_or_all(2, ndp_option_count), cases = 0, refused = 0, same = 0,
        near = 0, wrong = 0;
    for (int i = 0; i < jobs; i++) {
        drawn_run d;
        begin_job(&d, *state, i, seed);
        check_change(&d, &(change){.what = "nothing"}, 0);
        check_moved(&d);
        check_files(&d, seed + 100 * (uint64_t)i);
        check_experts(&d);
        check_keys(&d, keys, seed + 1000 * (uint64_t)i);
        end_job(&d);
        cases += d.cases, refused += d.refused, same += d.same, near += d.near, wrong += d.wrong;
        print_message("%s: %d cases\n", d.job.name, d.cases);
    }
    print_message("%d resumes with one thing changed: %d refused by its name, %d with the same bits, %d on another "
                  "layout\n",
                  cases, refused, same, near);
    assert_int_equal(wrong, 0);
}

/* Job 29, of a mixture: other ranks share its experts and their factors. */
static void factors_of_experts(void **state) {
    drawn_run d;
    begin_job(&d, *state, 29, 7);
    assert_non_null(strstr(d.job.name, "experts"));
    check_change(&d, &(change){.what = "nothing"}, 0);
    check_experts(&d);
    end_job(&d);
    assert_int_equal(d.wrong, 0);
    assert_int_equal(d.near, 3);
}

/* ---- faults ---- */

/* With a key left out of the identity the generated cases above must fail. */
static void a_key_that_is_left_out_is_found(void **state) {
    static const struct {
        int job;
        change x;
    } faults[] = {
        {0, {.what = "base edited", .file = "model/model.safetensors", .named = "model.path", .drop = "model.path"}},
        {0, {.what = "another base", .set = "model.path=%/other", .named = "model.path", .drop = "model.path"}},
        {0, {.what = "beta", .set = "loss.beta=0.3", .named = "loss.beta", .drop = "loss.beta"}},
        {1, {.what = "other routes", .file = "routes.safetensors", .named = "moe.routes", .drop = "moe.routes"}},
        {2,
         {.what = "adapter edited",
          .file = "adapter/adapter_model.safetensors",
          .named = "adapter.path",
          .drop = "adapter.path"}},
        {2,
         {.what = "another adapter",
          .set = "adapter.path=%/other-adapter",
          .named = "adapter.path",
          .drop = "adapter.path"}}};
    drawn_run d = {.job.number = -1};
    for (int i = 0; i < NDP_COUNT(faults); i++) {
        change x = faults[i].x;
        if (d.job.number != faults[i].job) {
            if (d.job.number >= 0)
                end_job(&d);
            begin_job(&d, *state, faults[i].job, 7);
        }
        char *wrong = try_change(&d, &x, 5);
        print_message("without %s in the identity, %s, %s: %s\n", x.drop, d.job.name, faults[i].x.what,
                      wrong ? wrong : "NOT FOUND");
        assert_non_null(wrong);
        free(wrong);
        x = faults[i].x, x.drop = NULL;
        check_change(&d, &x, 5);
        assert_int_equal(d.wrong, 0);
    }
    end_job(&d);
}

static int make_empty(void **state) {
    char *folder = strdup("/tmp/ndp-curves-XXXXXX");
    assert_true(folder && mkdtemp(folder));
    *state = folder;
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(generated_changes), cmocka_unit_test(factors_of_experts),
                                       cmocka_unit_test(a_key_that_is_left_out_is_found)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_empty, tiny_teardown);
}
