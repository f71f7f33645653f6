/* Losses of preference data against TRL's formulas in fp64, 20 updates each, and against what TRL itself logs
 * (tests/golden/README.md): losses, gradient norms, rewards, log-probabilities, the gradients of the first update; on
 * one rank and on every axis. */
#include "train/golden.h"

#include "base/json.h"
#include "ops/devices.h"
#include <math.h>

/* Pairs of an update and rows of a document, as cases.json has them; documents of a micro-batch here. */
enum { UPDATES = 20, PAIRS = 4, DOCUMENTS = 4, LENGTH = 26 };

typedef struct book {
    struct json_object *json, *pairs, *references;
    ndp_safetensors *gradients;
    ndp_facts facts;
    char folder[1024];
} book;

typedef struct case_of_book {
    const book *b;
    const char *name;
    struct json_object *json;
    ndp_preference p;
    const ndp_model *model;
    const ndp_device *device;
    int size[6];                 /* pp, dp_replicate, dp_shard, cp, sp, tp */
    double bound, gradient, trl; /* relative to 1 + what is expected; of a gradient's norm */
    double worst[3];
} case_of_book;

static struct json_object *member(struct json_object *o, const char *key) {
    struct json_object *value;
    if (!json_object_object_get_ex(o, key, &value))
        fail_msg("cases.json has no %s", key);
    return value;
}

static double number(struct json_object *o, const char *key, double missing) {
    struct json_object *value;
    return json_object_object_get_ex(o, key, &value) ? json_object_get_double(value) : missing;
}

static void open_book(book *b, const char *name) {
    char path[1100];
    golden_folder(name, b->folder, sizeof b->folder);
    snprintf(path, sizeof path, "%s/cases.json", b->folder);
    CHECK_OK(ndp_json_read(path, &b->json));
    snprintf(path, sizeof path, "%s/gradients.safetensors", b->folder);
    CHECK_OK(ndp_safetensors_open(path, &b->gradients));
    snprintf(path, sizeof path, "%s/config.json", b->folder);
    CHECK_OK(ndp_facts_read(path, &b->facts));
    b->pairs = member(b->json, "pairs"), b->references = member(b->json, "references");
}

static void close_book(book *b) {
    json_object_put(b->json);
    ndp_safetensors_close(b->gradients);
}

static ndp_preference preference_of(struct json_object *o) {
    static const char *const variants[] = {"sigmoid", "hinge", "ipo", "robust", "apo_zero"};
    const char *loss = json_object_get_string(member(o, "loss"));
    struct json_object *variant;
    int v = 0;
    if (json_object_object_get_ex(o, "variant", &variant))
        while (strcmp(variants[v], json_object_get_string(variant)) != 0)
            v++;
    ndp_loss name = strcmp(loss, "dpo") == 0      ? NDP_LOSS_DPO
                    : strcmp(loss, "orpo") == 0   ? NDP_LOSS_ORPO
                    : strcmp(loss, "reward") == 0 ? NDP_LOSS_REWARD
                                                  : NDP_LOSS_SIMPO;
    ndp_preference p = {.kind = ndp_preference_find(name, (ndp_loss_variant)v), .beta = number(o, "beta", 1)};
    p.center = number(o, "center", 0), p.gamma = number(o, "gamma", 0),
    p.label_smoothing = number(o, "label_smoothing", 0);
    p.sft_weight = number(o, "sft_weight", ndp_preference_table[p.kind].sft_weight);
    return p;
}

/* Document d of a micro-batch: pair `pair` of all, chosen or rejected. */
static void load_document(const case_of_book *c, int64_t pair, int64_t d, int32_t *tokens, int32_t *labels,
                          int32_t *positions, int32_t *starts, int32_t *documents) {
    struct json_object *record = json_object_array_get_idx(c->b->pairs, (size_t)pair);
    struct json_object *parts[] = {member(record, "prompt"), member(record, d % 2 ? "rejected" : "chosen")};
    int64_t prompt = (int64_t)json_object_array_length(parts[0]),
            n = prompt + (int64_t)json_object_array_length(parts[1]);
    assert_true(n <= LENGTH);
    for (int64_t t = 0; t < LENGTH; t++) {
        int64_t at = t < prompt ? t : t - prompt;
        tokens[t] = t < n ? json_object_get_int(json_object_array_get_idx(parts[t >= prompt], (size_t)at)) : 0;
        positions[t] = t < n ? (int32_t)t : 0;
        starts[t] = (int32_t)(d * LENGTH + (t < n ? 0 : t));
    }
    for (int64_t t = 0; t < LENGTH; t++) {
        bool last = t + 1 >= n, scores = ndp_preference_scores(c->p.kind),
             whole = ndp_preference_table[c->p.kind].whole;
        bool answer = scores ? t + 1 == n : !last && t + 1 >= prompt, first = scores ? answer : t + 1 == prompt;
        bool nll = c->p.sft_weight > 0 && d % 2 == 0 && !last && (answer || whole);
        int marks = (answer ? NDP_DOCUMENT_ANSWER : 0) | (nll ? NDP_DOCUMENT_NLL : 0) |
                    (d % 2 == 0 && first ? NDP_DOCUMENT_PAIR : 0);
        labels[t] = !last && (answer || nll) ? tokens[t + 1] : -1;
        documents[t] = marks ? (int32_t)(d << NDP_DOCUMENT_MARKS | marks) : -1;
    }
}

/* The pairs of an update lie in the order of cases.json; micro-batch m of data rank r has two of them. */
static void load(const case_of_book *c, ndp_engine *e, int64_t update, ndp_group data) {
    static _Thread_local int32_t arrays[5][DOCUMENTS * LENGTH];
    double reference[DOCUMENTS];
    int each = PAIRS * 2 / DOCUMENTS / data.count;
    for (int m = 0; m < each; m++) {
        for (int64_t d = 0; d < DOCUMENTS; d++) {
            int64_t pair = update * PAIRS + (m * data.count + data.rank) * (DOCUMENTS / 2) + d / 2, at = d * LENGTH;
            load_document(c, pair, d, arrays[0] + at, arrays[1] + at, arrays[2] + at, arrays[3] + at, arrays[4] + at);
            reference[d] = json_object_get_double(
                json_object_array_get_idx(json_object_array_get_idx(c->b->references, (size_t)pair), (size_t)d % 2));
        }
        CHECK_OK(ndp_engine_load(e, m,
                                 &(ndp_micro_batch){.tokens = arrays[0],
                                                    .labels = arrays[1],
                                                    .positions = arrays[2],
                                                    .starts = arrays[3],
                                                    .documents = arrays[4],
                                                    .reference = reference}));
    }
}

static ndp_status check_number(case_of_book *c, int k, const char *what, int64_t update, double have, double want,
                               double bound) {
    double off = fabs(have - want) / (1 + fabs(want));
    c->worst[k] = off > c->worst[k] ? off : c->worst[k];
    return off <= bound ? NDP_OK
                        : NDP_FAIL(NDP_EBUG, "%s, update %d: %s %.12g, %s %.12g, off by %.3g", c->name, (int)update,
                                   what, have, k == 2 ? "TRL has" : "expected", want, off);
}

static ndp_status check_update(case_of_book *c, int64_t update, const ndp_step_result *r) {
    struct json_object *want = json_object_array_get_idx(member(c->json, "updates"), (size_t)update);
    struct json_object *trl = json_object_array_get_idx(member(c->json, "trl"), (size_t)update);
    const double *s = r->sums, n = (double)r->pairs;
    enum { GRAD_NORM = 1, ACCURACY = 4 };
    const struct {
        const char *key;
        double have;
    } numbers[] = {{"loss", r->loss},
                   {"grad_norm", r->grad_norm},
                   {"rewards/chosen", s[NDP_PAIR_REWARD_CHOSEN] / n},
                   {"rewards/rejected", s[NDP_PAIR_REWARD_REJECTED] / n},
                   {"rewards/accuracies", s[NDP_PAIR_ACCURACY] / n},
                   {"rewards/margins", (s[NDP_PAIR_REWARD_CHOSEN] - s[NDP_PAIR_REWARD_REJECTED]) / n},
                   {"logps/chosen", s[NDP_PAIR_LOGP_CHOSEN] / n},
                   {"logps/rejected", s[NDP_PAIR_LOGP_REJECTED] / n}};
    if (r->pairs != PAIRS)
        return NDP_FAIL(NDP_EBUG, "%s: %lld pairs", c->name, (long long)r->pairs);
    for (int i = 0; i < NDP_COUNT(numbers); i++) {
        const char *key = numbers[i].key;
        bool tie = update == 0 && i == ACCURACY && ndp_preference_table[c->p.kind].reference; /* both rewards are 0 */
        if (tie)
            continue;
        NDP_TRY(check_number(c, 0, key, update, numbers[i].have, number(want, key, NAN), c->bound));
        if (i != GRAD_NORM && json_object_object_get_ex(trl, key, NULL))
            NDP_TRY(check_number(c, 2, key, update, numbers[i].have, number(trl, key, NAN), c->trl));
    }
    return NDP_OK;
}

static ndp_status compare_piece(void *user, const ndp_owned_run *run) {
    case_of_book *c = user;
    const ndp_run *p = &run->run;
    char name[300];
    double norm = 0, distance = 0;
    snprintf(name, sizeof name, "%s.%s", c->name, p->segment->name);
    const ndp_tensor_entry *t = ndp_safetensors_find(c->b->gradients, name);
    if (!t)
        fail_msg("there is no gradient %s", name);
    double *want = malloc((size_t)t->elements * sizeof *want), *have = malloc((size_t)p->count * sizeof *have);
    CHECK_OK(ndp_safetensors_read(c->b->gradients, t, 0, t->elements, want, NDP_F64, true));
    CHECK_OK(ndp_run_get(run, 0, p->count, have, NDP_F64));
    for (int64_t i = 0; i < t->elements; i++)
        norm += want[i] * want[i];
    for (int64_t i = 0; i < p->count; i++)
        distance += pow(have[i] - want[p->tensor_first + i], 2);
    free(want);
    free(have);
    double off = sqrt(distance / norm);
    c->worst[1] = off > c->worst[1] ? off : c->worst[1];
    return off <= c->gradient ? NDP_OK
                              : NDP_FAIL(NDP_EBUG, "%s: gradient off by %.3g of its norm %.3g", name, off, sqrt(norm));
}

static ndp_status train(case_of_book *c, ndp_engine *e, ndp_group data) {
    NDP_TRY(ndp_weights_load(e, c->b->folder));
    for (int64_t u = 0; u < UPDATES; u++) {
        ndp_step_result r;
        load(c, e, u, data);
        NDP_TRY(ndp_engine_step(e, 1e-3, u, true, &r));
        NDP_TRY(check_update(c, u, &r));
        if (u == 0)
            NDP_TRY(ndp_engine_runs(e, NDP_OWNED_GRAD, compare_piece, c));
    }
    return NDP_OK;
}

static ndp_status body(ndp_transport *t, void *arg) {
    case_of_book c = *(const case_of_book *)arg;
    int rank = ndp_transport_rank(t), first[3] = {0, 2, 4};
    const ndp_exec exec = {.device = c.device, .threads = 1, .share = true};
    ndp_layout layout = NDP_LAYOUT_ONE;
    ndp_pipeline table = {0};
    memcpy(layout.size, c.size, sizeof c.size);
    ndp_engine_opts o = {
        .model = c.model,
        .step =
            {.parallel = NDP_PARALLEL_INIT,
             .exec = &exec,
             .reshard = true,
             .optimizer = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .weight_decay = 0.1, .max_norm = 1.0}},
        .transport = t};
    NDP_TRY(ndp_mesh_init(&layout, rank, &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(c.model)}, &o.step.mesh));
    ndp_group data = ndp_mesh_group(&o.step.mesh, NDP_GROUP_DATA);
    o.step.accumulation = PAIRS * 2 / DOCUMENTS / data.count;
    if (c.size[0] > 1) {
        NDP_TRY(ndp_pipeline_make(NDP_PIPELINE_1F1B, c.size[0], 1, o.step.accumulation, &table));
        o.step.stages = (ndp_stages){2, first, table.rank_of};
        o.pipeline = &table;
    }
    ndp_engine *e;
    NDP_TRY(ndp_engine_create(&o, &e));
    ndp_status st = train(&c, e, data);
    ndp_engine_destroy(e);
    ndp_pipeline_release(&table);
    if (st == NDP_OK && rank == 0)
        printf("%-12s %-4s numbers off by %.2g, gradients by %.2g; TRL's numbers by %.2g\n", c.name,
               ndp_dtype_name(c.model->opts.compute), c.worst[0], c.worst[1], c.worst[2]);
    return st;
}

static void check(const book *b, const char *name, ndp_dtype type, const ndp_device *device, const int size[6]) {
    case_of_book c = {.b = b, .name = name, .json = member(member(b->json, "cases"), name), .device = device};
    bool exact = type == NDP_F64;
    ndp_model m;
    c.p = preference_of(c.json);
    c.bound = exact ? 1e-8 : 2e-5, c.gradient = exact ? 1e-8 : 2e-5, c.trl = 1e-4;
    memcpy(c.size, size, sizeof c.size);
    ndp_model_opts mo = {.mode = NDP_MODEL_TRAIN,
                         .rows = DOCUMENTS * LENGTH,
                         .keys = DOCUMENTS * LENGTH,
                         .positions = LENGTH,
                         .compute = type,
                         .master = exact ? NDP_F64 : NDP_F32,
                         .preference = c.p,
                         .documents = DOCUMENTS};
    CHECK_OK(ndp_decoder_build(&b->facts, &mo, &m));
    c.model = &m;
    int world = 1;
    for (int k = 0; k < 6; k++)
        world *= size[k];
    CHECK_OK(ndp_local_world(world, body, &c));
    ndp_model_release(&m);
}

static const char *const folders[] = {"preference", "reward"};

static void losses_of(const char *folder) {
    static const int one[6] = {1, 1, 1, 1, 1, 1};
    book b;
    open_book(&b, folder);
    json_object_object_foreach(member(b.json, "cases"), name, unused) {
        (void)unused;
        check(&b, name, NDP_F64, &ndp_device_ref, one);
        check(&b, name, NDP_F32, &ndp_device_cpu, one);
    }
    close_book(&b);
}

static void every_loss(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(folders); i++)
        losses_of(folders[i]);
}

/* Every case on some axis; of the reward model, which has few, all axes. */
static void axes_of(const char *folder, int each) {
    static const int sizes[][6] = {{2, 1, 1, 1, 1, 1}, {1, 2, 1, 1, 1, 1}, {1, 1, 2, 1, 1, 1}, {1, 1, 1, 2, 1, 1},
                                   {1, 1, 1, 1, 2, 1}, {1, 1, 1, 1, 1, 2}, {1, 1, 2, 2, 1, 1}, {2, 1, 1, 1, 1, 2}};
    book b;
    int i = 0;
    open_book(&b, folder);
    json_object_object_foreach(member(b.json, "cases"), name, unused) {
        (void)unused;
        for (int k = 0; k < each; k++)
            check(&b, name, NDP_F64, &ndp_device_ref, sizes[i++ % NDP_COUNT(sizes)]);
    }
    close_book(&b);
}

static void every_axis(void **state) {
    (void)state;
    axes_of(folders[0], 1);
    axes_of(folders[1], 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_loss), cmocka_unit_test(every_axis)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
