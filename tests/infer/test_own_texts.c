/* ndp_trainer_generate on layouts: the same tokens on all of them, those of ndp_generate with an export of the weights,
 * and an update that does not notice; for tied and untied heads, mixtures, bf16, adapters, devices. What cannot be is
 * refused on all ranks. */
#include "train/tiny_run.h"
#include "train/trainer.h"

#include <math.h>

enum { TEXTS = 8, LENGTH = 32 };

typedef struct layout_case {
    tiny_layout axes;
    const char *sets[4];
} layout_case;

/* The first is what the others are compared with. */
static const layout_case layouts[] = {
    {{"one", 1, 1, 1, 1}, {NULL}},
    {{"shard", 1, 2, 1, 1}, {"train.own_generate=1"}},
    {{"replicas", 2, 1, 1, 1}, {NULL}},
    {{"context", 1, 1, 2, 1}, {"train.own_generate=3"}},
    {{"tensor", 1, 1, 1, 2}, {"train.own_generate=16"}},
    {{"sequence", 1, 1, 1, 1}, {"parallelism.sp_size=2"}},
    {{"stages", 1, 2, 1, 1}, {"parallelism.pp_size=2"}},
    {{"zero-bubble", 1, 1, 1, 2}, {"parallelism.pp_size=2", "pipeline.schedule=zero_bubble"}},
    {{"product", 2, 2, 2, 1}, {"batch.micro_batch_size=2"}},
    {{"most", 2, 1, 1, 2}, {"parallelism.sp_size=2", "parallelism.pp_size=2"}},
    {{"experts", 1, 2, 1, 2}, {"parallelism.ep_size=4"}},
};
enum { EXPERTS = NDP_COUNT(layouts) - 1 }; /* of the mixture alone */

/* `@`: the folder. That of an adapter's base is exported first. */
#define ADAPTER(type) "model.path=@/base/model", "adapter.type=" type
static const struct {
    const char *name;
    bool adapter;
    const char *sets[5];
} models[] = {
    {"tied", false, {NULL}},
    {"untied", false, {"model.config=@/untied.json"}},
    {"mixture", false, {"model.config=@/mixture.json"}},
    {"bf16", false, {"precision.compute=bf16"}},
    {"ref", false, {"train.device=ref"}},
    {"sim", false, {"train.device=sim", "train.share_gpu=true"}},
    {"lora", true, {ADAPTER("lora"), "adapter.init=random"}},
    {"whole head", true, {ADAPTER("lora"), "adapter.dora=true", "adapter.modules_to_save=[lm_head]"}},
    {"qlora", true, {ADAPTER("qlora"), "adapter.init=random", "precision.compute=bf16"}},
};

/* ---- texts ---- */

typedef struct texts {
    int32_t ids[TEXTS * LENGTH];
    int64_t lengths[TEXTS];
    ndp_finish finish[TEXTS];
} texts;

static const char *const prompts[TEXTS] = {"",    "There",    "bears", "There were 4 bears and",
                                           "a\n", "shared 9", "0",     "apples. There were f"};

/* As the tokenizer has them: a begin token, and bytes. */
static void begin_texts(texts *x) {
    memset(x, 0, sizeof *x);
    for (int i = 0; i < TEXTS; i++) {
        int32_t *ids = x->ids + i * LENGTH;
        ids[x->lengths[i]++] = 256;
        for (const char *at = prompts[i]; *at; at++)
            ids[x->lengths[i]++] = (unsigned char)*at;
    }
}

/* Own texts are dealt out as the samples of a call are, so their numbers are those of the global list. */
static bool is_own(const ndp_loop_shape *s, int i) { return i / s->micro % s->data_ranks == s->data_rank; }

/* Continues the texts as one list, or as each data rank's own; then each rank has its own ones, and 0 elsewhere. */
static ndp_status continue_texts(ndp_trainer *t, const ndp_continue_opts *o, bool global, texts *x) {
    ndp_loop_shape shape;
    texts *own = calloc(1, sizeof *own);
    int n = 0;
    NDP_TRY(ndp_trainer_shape(t, &shape));
    begin_texts(x);
    for (int i = 0; i < TEXTS; i++)
        if (global || is_own(&shape, i)) {
            memcpy(own->ids + n * LENGTH, x->ids + i * LENGTH, LENGTH * sizeof *x->ids);
            own->lengths[n++] = x->lengths[i];
        }
    ndp_status st = ndp_trainer_generate(t, &(ndp_texts){own->ids, own->lengths, own->finish, n, LENGTH, global}, o);
    for (int i = 0, k = 0; i < TEXTS; i++)
        if (global || is_own(&shape, i)) {
            memcpy(x->ids + i * LENGTH, own->ids + k * LENGTH, LENGTH * sizeof *x->ids);
            x->lengths[i] = own->lengths[k];
            x->finish[i] = own->finish[k++];
        }
    free(own);
    return st;
}

static ndp_continue_opts options(bool greedy) {
    ndp_continue_opts o = NDP_CONTINUE_OPTS_INIT;
    o.temperature = greedy ? 0 : 1.3, o.top_p = greedy ? 1 : 0.9, o.seed = 11;
    return o;
}

/* ---- a rank ---- */

typedef struct run {
    ndp_config *config;
    bool generates, adapter;
    const char *base; /* of an adapter */
    texts *greedy, *sampled;
    double *weights; /* after two updates; of all tensors */
    int64_t n;
} run;

static ndp_status update(ndp_trainer *t) {
    int32_t ids[TEXTS * LENGTH];
    for (int i = 0; i < TEXTS * LENGTH; i++)
        ids[i] = (7 * i + i / LENGTH) % 258;
    const ndp_batch batch = {.ids = ids, .samples = TEXTS, .length = LENGTH, .global = true};
    NDP_TRY(ndp_trainer_begin(t, NULL));
    NDP_TRY(ndp_trainer_forward_backward(t, &batch, 1, NULL));
    return ndp_trainer_update(t, NULL);
}

typedef struct heard {
    int32_t ids[LENGTH];
    int n;
} heard;

static bool hear(void *user, int32_t id, const char *text) {
    heard *h = user;
    (void)text;
    h->ids[h->n++] = id;
    return true;
}

/* ndp_generate with the export. Its texts are number 0. */
static void check_text(const run *r, const char *model, const char *device, bool greedy, int i, const texts *x) {
    ndp_generate_opts o = NDP_GENERATE_OPTS_INIT;
    const ndp_continue_opts own = options(greedy);
    heard h = {.n = 0};
    ndp_finish finish;
    int64_t prompt = (int64_t)strlen(prompts[i]) + 1;
    o.model = r->adapter ? r->base : model, o.adapter = r->adapter ? model : NULL;
    o.prompt = prompts[i], o.max_tokens = (int)(LENGTH - prompt), o.threads = 1, o.device = device;
    o.temperature = own.temperature, o.top_p = own.top_p, o.seed = own.seed, o.finish = &finish, o.force_memory = true;
    CHECK_OK(ndp_generate(&o, hear, &h));
    if (h.n != x->lengths[i] - prompt || finish != x->finish[i] ||
        memcmp(h.ids, x->ids + i * LENGTH + prompt, (size_t)h.n * sizeof *h.ids) != 0)
        fail_msg("text %d of %s: ndp_generate has %d tokens, %d first; the trainer %d, %d first", i, model, h.n,
                 h.ids[0], (int)(x->lengths[i] - prompt), x->ids[i * LENGTH + prompt]);
}

/* After an update: what an export says. */
static ndp_status compare_with_export(ndp_trainer *t, const run *r, bool first) {
    char *model, *device;
    texts *x = calloc(2, sizeof *x);
    const ndp_continue_opts greedy = options(true), sampled = options(false);
    NDP_TRY(ndp_run_folder_file(r->config, r->adapter ? "adapter" : "model", &model));
    NDP_TRY(ndp_config_get(r->config, "train.device", &device));
    NDP_TRY(ndp_trainer_export(t, NULL));
    NDP_TRY(continue_texts(t, &greedy, true, &x[0]));
    NDP_TRY(continue_texts(t, &sampled, true, &x[1]));
    for (int i = 0; i < TEXTS && first; i += 3)
        check_text(r, model, device, true, i, &x[0]);
    if (first)
        check_text(r, model, device, false, 0, &x[1]);
    free(x);
    free(model);
    free(device);
    return ndp_trainer_barrier(t);
}

static ndp_status generate_some(ndp_trainer *t, const run *r, bool first) {
    const ndp_continue_opts greedy = options(true), sampled = options(false);
    texts *x = calloc(2, sizeof *x);
    NDP_TRY(continue_texts(t, &greedy, true, r->greedy && first ? r->greedy : &x[0]));
    NDP_TRY(continue_texts(t, &sampled, true, &x[0]));
    NDP_TRY(continue_texts(t, &sampled, false, &x[1]));
    ndp_loop_shape shape;
    NDP_TRY(ndp_trainer_shape(t, &shape));
    for (int i = 0; i < TEXTS; i++)
        if (is_own(&shape, i) && (x[0].lengths[i] != x[1].lengths[i] || x[0].finish[i] != x[1].finish[i] ||
                                  memcmp(x[0].ids + i * LENGTH, x[1].ids + i * LENGTH, LENGTH * sizeof(int32_t)) != 0))
            fail_msg("text %d: as one of a data rank's own it has other tokens", i);
    if (first)
        *r->sampled = x[0];
    free(x);
    return NDP_OK;
}

static ndp_status rank(ndp_world *w, void *arg) {
    run *r = arg;
    bool first = ndp_world_rank(w) == 0;
    ndp_trainer *t;
    NDP_TRY(ndp_trainer_create(r->config, w, &t));
    if (r->generates)
        NDP_TRY(generate_some(t, r, first));
    NDP_TRY(update(t));
    if (r->generates)
        NDP_TRY(compare_with_export(t, r, first));
    NDP_TRY(update(t));
    for (int i = 0; i < ndp_trainer_tensors(t); i++) {
        int64_t n;
        ndp_trainer_tensor(t, i, &n);
        double *values = malloc((size_t)n * sizeof *values);
        NDP_TRY(ndp_trainer_read(t, NDP_WEIGHT, i, values));
        if (first) {
            r->weights = realloc(r->weights, (size_t)(r->n + n) * sizeof *values);
            memcpy(r->weights + r->n, values, (size_t)n * sizeof *values);
            r->n += n;
        }
        free(values);
    }
    ndp_trainer_destroy(t);
    return NDP_OK;
}

/* ---- models on layouts ---- */

static ndp_config *configure(const char *folder, const layout_case *l, int model) {
    ndp_config *c = tiny_configure(folder, &l->axes, l->axes.name);
    tiny_set(c, "train.own_batches=true");
    tiny_set(c, "train.own_generate=2");
    tiny_set(c, "data.files=[]");
    tiny_set(c, "optimizer.lr=1e-2");
    if (models[model].adapter) {
        ndp_config_destroy(c);
        char *job = ndp_format("%s/adapter.yaml", folder);
        CHECK_OK(ndp_config_create(&c));
        CHECK_OK(ndp_config_read(c, job));
        free(job);
        tiny_set(c, "parallelism.dp_replicate_size=%d", l->axes.replicate);
        tiny_set(c, "parallelism.dp_shard_size=%d", l->axes.shard);
        tiny_set(c, "parallelism.cp_size=%d", l->axes.cp);
        tiny_set(c, "parallelism.tp_size=%d", l->axes.tp);
        tiny_set(c, "train.output_dir=%s/%s", folder, l->axes.name);
    }
    for (int i = 0; i < NDP_COUNT(models[model].sets) && models[model].sets[i]; i++) {
        const char *set = models[model].sets[i], *at = strchr(set, '@');
        tiny_set(c, "%.*s%s%s", (int)(at ? at - set : 0), set, at ? folder : "", at ? at + 1 : set);
    }
    for (int i = 0; i < NDP_COUNT(l->sets) && l->sets[i]; i++)
        tiny_set(c, "%s", l->sets[i]);
    return c;
}

static ndp_status export_base(ndp_world *w, void *arg) {
    ndp_trainer *t;
    NDP_TRY(ndp_trainer_create(arg, w, &t));
    NDP_TRY(ndp_trainer_export(t, NULL));
    ndp_trainer_destroy(t);
    return NDP_OK;
}

static void put_models(const char *folder) {
    static const char common[] =
        "\"vocab_size\": 258, \"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"intermediate_size\": 64, \"max_position_embeddings\": 64, \"rms_norm_eps\": "
        "1e-5, \"tie_word_embeddings\": false, \"bos_token_id\": 256, \"eos_token_id\": 257}";
    char *untied = ndp_format("{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], %s", common),
         *mixture = ndp_format("{\"model_type\": \"mixtral\", \"architectures\": [\"MixtralForCausalLM\"], "
                               "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, %s",
                               common),
         *adapter = ndp_format("data: {tokenizer: bytes, sequence_length: 32}\nbatch: {global_batch_size: 8}\n"
                               "schedule: {name: constant}\noptimizer: {lr: 1.0e-2}\n"
                               "train: {threads: 1, force_memory: true, own_batches: true, own_generate: 2, "
                               "transport: local}\nmodel: {path: %s/base/model}\n",
                               folder);
    tiny_put(folder, "untied.json", untied);
    tiny_put(folder, "mixture.json", mixture);
    tiny_put(folder, "adapter.yaml", adapter);
    free(untied);
    free(mixture);
    free(adapter);
    ndp_config *c = configure(folder, &(layout_case){{"base", 1, 1, 1, 1}, {NULL}}, 0);
    CHECK_OK(ndp_world_run(c, export_base, c));
    ndp_config_destroy(c);
}

static bool run_case(const char *folder, int model, int layout, bool generates, texts *x, run *out) {
    char *base = ndp_format("%s/base/model", folder);
    ndp_config *c = configure(folder, &layouts[layout], model);
    *out = (run){.config = c,
                 .generates = generates,
                 .adapter = models[model].adapter,
                 .base = base,
                 .greedy = &x[0],
                 .sampled = &x[1]};
    ndp_status st = ndp_world_run(c, rank, out);
    if (st != NDP_OK && st != NDP_ENOTSUP) /* which layouts a model can have is not this test's subject */
        fail_msg("%s, %s: status %d, %s", models[model].name, layouts[layout].axes.name, (int)st, ndp_error_message());
    tiny_remove(folder, layouts[layout].axes.name);
    ndp_config_destroy(c);
    free(base);
    return st == NDP_OK;
}

static bool differs(const texts *a, const texts *b) {
    return memcmp(a->ids, b->ids, sizeof a->ids) != 0 || memcmp(a->lengths, b->lengths, sizeof a->lengths) != 0 ||
           memcmp(a->finish, b->finish, sizeof a->finish) != 0;
}

static void check_model(const char *folder, int model, int *ran) {
    texts *x = calloc(4, sizeof *x);
    for (int l = 0; l < NDP_COUNT(layouts); l++) {
        run with, without;
        bool mixture = strcmp(models[model].name, "mixture") == 0;
        if (l == EXPERTS ? !mixture : l > 0 && model > 0 && (l + model) % short_or_all(5, 1) != 0)
            continue;
        if (!run_case(folder, model, l, true, x + (l ? 2 : 0), &with))
            continue;
        ++*ran;
        if (l > 0 && (differs(&x[2], &x[0]) || differs(&x[3], &x[1])))
            fail_msg("%s, %s: other tokens than on one rank, %s", models[model].name, layouts[l].axes.name,
                     differs(&x[2], &x[0]) ? "greedy" : "sampled");
        if (l == 0 && !differs(&x[0], &x[1]))
            fail_msg("%s: sampled texts are greedy ones", models[model].name);
        assert_true(run_case(folder, model, l, false, x + 2, &without));
        if (with.n != without.n || memcmp(with.weights, without.weights, (size_t)with.n * sizeof(double)) != 0)
            fail_msg("%s, %s: weights have other bits after texts were continued", models[model].name,
                     layouts[l].axes.name);
        free(with.weights);
        free(without.weights);
    }
    free(x);
}

static void tokens_are_those_of_an_export_on_layouts(void **state) {
    put_models(*state);
    int ran = 0;
    for (int m = 0; m < NDP_COUNT(models); m++)
        check_model(*state, m, &ran);
    printf("%d runs\n", ran);
    assert_true(ran > NDP_COUNT(layouts) + NDP_COUNT(models));
}

/* ---- what cannot be ---- */

static const struct misuse {
    const char *words;
    int change; /* of the texts, by all ranks; < 0: by the last one alone */
} misuses[] = {
    {"must have 1 to 31", 1},  {"its id is 258", 2},
    {"max_tokens is -1", 3},   {"temperature is", 4},
    {"top_p is", 5},           {"the id 900", 6},
    {"and no ids", 7},         {"sequence_length", 8},
    {"no array", 9},           {"-3", 10},
    {"have given other", -11}, {"other options", -12},
    {"top_p is", -5},          {"must have 1 to 31", 13},
};

static void spoil(int change, texts *x, ndp_texts *p, ndp_continue_opts *o) {
    static const int32_t beyond = 900;
    switch (abs(change)) {
    case 1:
        x->lengths[3] = LENGTH;
        break;
    case 2:
        x->ids[LENGTH] = 258;
        break;
    case 3:
        o->max_tokens = -1;
        break;
    case 4:
        o->temperature = NAN;
        break;
    case 5:
        o->top_p = 0;
        break;
    case 6:
        o->ends = &beyond, o->n_ends = 1;
        break;
    case 7:
        p->ids = NULL;
        break;
    case 8:
        p->length = LENGTH + 1, p->samples = 1;
        break;
    case 9:
        o->n_ends = 1;
        break;
    case 10:
        p->samples = -3;
        break;
    case 11:
        x->ids[LENGTH] = 7;
        break;
    case 12:
        o->seed = 12;
        break;
    default:
        x->lengths[0] = 0;
    }
}

static ndp_status misuse(ndp_world *w, void *arg) {
    ndp_trainer *t;
    bool last = ndp_world_rank(w) == ndp_world_size(w) - 1;
    texts *x = calloc(2, sizeof *x), *clean = x + 1;
    NDP_TRY(ndp_trainer_create(arg, w, &t));
    for (int i = 0; i < NDP_COUNT(misuses); i++) {
        if (misuses[i].change < -10 && ndp_world_size(w) == 1)
            continue;
        ndp_texts p = {x->ids, x->lengths, x->finish, TEXTS, LENGTH, true};
        ndp_continue_opts o = options(true);
        begin_texts(x);
        if (misuses[i].change > 0 || last)
            spoil(misuses[i].change, x, &p, &o);
        ndp_status st = ndp_trainer_generate(t, &p, &o);
        if (st != NDP_EINVAL || !strstr(ndp_error_message(), misuses[i].words))
            fail_msg("misuse %d on rank %d: status %d, %s", i, ndp_world_rank(w), (int)st,
                     st ? ndp_error_message() : "");
    }
    const int32_t space = 'a';
    ndp_continue_opts o = options(false);
    NDP_TRY(continue_texts(t, &o, true, clean)); /* all is well after them */
    o.max_tokens = 3, o.ends = &space, o.n_ends = 1;
    NDP_TRY(continue_texts(t, &o, true, x));
    for (int i = 0; i < TEXTS; i++) {
        int64_t from = (int64_t)strlen(prompts[i]) + 1, n = x->lengths[i] - from;
        assert_true(n >= 1 && n <= 3 &&
                    memcmp(x->ids + i * LENGTH, clean->ids + i * LENGTH, (size_t)(from + n) * 4) == 0);
        assert_int_equal(x->finish[i] == NDP_FINISH_STOP,
                         x->ids[i * LENGTH + from + n - 1] >= 256 || x->ids[i * LENGTH + from + n - 1] == 'a');
    }
    NDP_TRY(ndp_trainer_generate(t, &(ndp_texts){.length = LENGTH}, &o)); /* no texts at all */
    ndp_trainer_destroy(t);
    free(x);
    return NDP_OK;
}

static ndp_status generate(ndp_world *w, void *arg) {
    ndp_trainer *t;
    texts *x = calloc(1, sizeof *x);
    const ndp_continue_opts o = options(true);
    NDP_TRY(ndp_trainer_create(arg, w, &t));
    ndp_status st = continue_texts(t, &o, true, x);
    free(x);
    ndp_trainer_destroy(t);
    return st;
}

static void what_cannot_be_is_refused(void **state) {
    for (int l = 0; l < NDP_COUNT(layouts); l += 3) {
        ndp_config *c = configure(*state, &layouts[l], 0);
        CHECK_OK(ndp_world_run(c, misuse, c));
        tiny_set(c, "train.own_generate=0");
        CHECK_FAILS(ndp_world_run(c, generate, c), NDP_EINVAL, "train.own_generate is 0");
        tiny_set(c, "train.own_generate=2");
        tiny_set(c, "train.own_batches=false");
        tiny_set(c, "data.files=[%s/text.txt]", (const char *)*state);
        CHECK_FAILS(ndp_config_check(c), NDP_EINVAL, "set train.own_batches: true");
        ndp_config_destroy(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tokens_are_those_of_an_export_on_layouts, tiny_make, tiny_drop),
        cmocka_unit_test_setup_teardown(what_cannot_be_is_refused, tiny_make, tiny_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
