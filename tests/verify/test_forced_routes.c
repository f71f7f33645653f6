/* Mixtures of experts that are given their choices by a file (moe.routes), through the whole trainer: every row to one
 * expert, no row to half of them, some rows to none. On `ref` in fp64, and on `cpu` (or NDP_TEST_DEVICE) in fp32 within
 * the bounds of proof 3 of what `ref` computes; on layouts, what one rank computes. */
#include "verify/invariance.h"

#include "checkpoint/safetensors.h"

enum { GLOBAL = 4, LENGTH = 29, ROWS = GLOBAL * LENGTH, LAYERS = 3, EXPERTS = 6, STEPS = 2 };

typedef enum pattern { ONE, HALF, SOME, PATTERNS } pattern;
static const char *const pattern_names[PATTERNS] = {"all rows to one expert", "no row to half of them",
                                                    "some rows to none"};

/* Expert j of a row. ONE: expert 4 is everyone's first, and the others share the rows if there is a second one. */
static int32_t expert_of(pattern p, int k, int row, int j) {
    int turn = (row * 5 + j) % (EXPERTS - 1);
    switch (p) {
    case ONE:
        return j == 0 ? 4 : turn < 4 ? turn : 5;
    case HALF:
        return (row + j) % (EXPERTS / 2);
    default:
        return row % 7 == 2 || row > ROWS - LENGTH / 2 ? -1 : (row * row + k * j + j) % EXPERTS;
    }
}

/* FOLDER/NAME.safetensors; freed by the caller. */
static char *write_routes(const char *folder, pattern p, int k) {
    char *path = ndp_format("%s/routes-%d-%d.safetensors", folder, (int)p, k), names[LAYERS][32];
    ndp_tensor_spec specs[LAYERS];
    ndp_safetensors_writer *w;
    int32_t *rows = calloc((size_t)(ROWS * k), sizeof *rows);
    for (int i = 0; i < ROWS * k; i++)
        rows[i] = expert_of(p, k, i / k, i % k);
    for (int l = 0; l < LAYERS; l++) {
        snprintf(names[l], sizeof names[l], "layers.%d.choices", l);
        specs[l] = (ndp_tensor_spec){.name = names[l], .dtype = NDP_I32, .ndim = 2, .shape = {ROWS, k}};
    }
    CHECK_OK(ndp_safetensors_create(path, specs, LAYERS, &w));
    for (int l = 0; l < LAYERS; l++)
        CHECK_OK(ndp_safetensors_write(w, l, 0, ROWS * k, rows, NDP_I32));
    ndp_safetensors_writer_destroy(w);
    free(rows);
    return path;
}

/* FOLDER/NAME.json of 6 experts and k choices; freed by the caller. */
static char *write_model(const char *folder, const char *type, int k, const char *keys) {
    char *path = ndp_format("%s/%s-%d.json", folder, type, k);
    char *text = ndp_format("{\"model_type\": \"%s\", \"vocab_size\": 263, \"hidden_size\": 24, "
                            "\"intermediate_size\": 26, \"moe_intermediate_size\": 26, \"num_hidden_layers\": %d, "
                            "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 6, "
                            "\"max_position_embeddings\": 64, \"initializer_range\": 0.1, "
                            "\"num_experts_per_tok\": %d, %s}",
                            type, LAYERS, k, keys);
    CHECK_OK(ndp_file_write_atomic(path, text, strlen(text)));
    free(text);
    return path;
}

/* Experts without a row have a gradient of exactly 0, and those with rows another one. */
static void check_experts(const outcome *o, pattern p, int k) {
    bool has_rows[EXPERTS] = {false};
    int experts = 0;
    for (int i = 0; i < ROWS * k; i++)
        if (expert_of(p, k, i / k, i % k) >= 0)
            has_rows[expert_of(p, k, i / k, i % k)] = true;
    for (int i = 0; i < o->of.n; i++) {
        const char *at = strstr(o->of.names[i], "experts.");
        bool any = false;
        if (!at)
            continue;
        const char *first = (const char *)o->of.kept[NDP_KEPT_FIRST_GRADIENT];
        size_t size = ndp_dtype_size(o->of.type), begin = (size_t)o->of.first[i] * size;
        for (size_t b = begin; b < (size_t)o->of.first[i + 1] * size; b++)
            any |= (first[b] & 0x7f) != 0; /* -0 is one, too */
        assert_int_equal(any, has_rows[atoi(at + strlen("experts."))]);
        experts++;
    }
    assert_int_equal(experts, LAYERS * EXPERTS * 3);
}

static const way ways[] = {
    {.tp = 2, .global = GLOBAL, .accumulation = 2, .threads = 1},
    {.cp = 2, .global = GLOBAL, .accumulation = 1, .threads = 1},
    {.pp = 2, .global = GLOBAL, .accumulation = 4, .threads = 1, .schedule = "zero_bubble"},
    {.replicate = 2, .shard = 2, .global = GLOBAL, .accumulation = 1, .threads = 1},
    {.sp = 2, .tp = 2, .global = GLOBAL, .accumulation = 4, .threads = 1, .whole_rows = true},
    {.shard = 2, .cp = 2, .tp = 2, .global = GLOBAL, .accumulation = 2, .threads = 1, .recompute = true},
    {.shard = 2, .ep = 2, .global = GLOBAL, .accumulation = 1, .threads = 1},
    {.tp = 2, .ep = 2, .global = GLOBAL, .accumulation = 2, .threads = 1},
    {.shard = 2, .cp = 2, .tp = 2, .ep = 4, .global = GLOBAL, .accumulation = 2, .threads = 1, .recompute = true},
    {.cp = 2, .tp = 2, .ep = 4, .global = GLOBAL, .accumulation = 4, .threads = 1, .whole_rows = true},
    {.pp = 2, .sp = 2, .tp = 2, .ep = 2, .global = GLOBAL, .accumulation = 4, .threads = 1, .whole_rows = true},
    {.replicate = 2, .shard = 2, .sp = 2, .ep = 4, .global = GLOBAL, .accumulation = 1, .threads = 1},
    {.pp = 2, .cp = 2, .ep = 2, .global = GLOBAL, .accumulation = 4, .threads = 1, .schedule = "zero_bubble"}};

/* As near to what `ref` computes in fp64 as fp32 is on any layout. */
static void check_near_ref(const subject *s, const outcome *exact, pattern p, int k, const ndp_bounds *bounds) {
    way one = one_rank(GLOBAL, 1, 1);
    char words[512];
    outcome o = train(s, &one);
    ndp_difference d = compare(&o, exact, bounds);
    const ndp_spot *off = &d.of[NDP_MEASURE_FIRST_GRADIENT].worst;
    printf("%s, %s: %s from ref: gradient of step 1 %.1e, of its bound %.1e, %s\n", s->name, pattern_names[p],
           s->device, off->off, off->bound, off->where);
    if (ndp_difference_words(&d, words, sizeof words))
        fail_msg("%s, %s on %s: %s", s->name, pattern_names[p], s->device, words);
    check_experts(&o, p, k);
    outcome_release(&o);
}

static void check_pattern(const corpus *c, const char *model, pattern p, int k) {
    const char *device = getenv("NDP_TEST_DEVICE") ? getenv("NDP_TEST_DEVICE") : "cpu";
    char *routes = write_routes(c->folder, p, k);
    family fast = {.s = odd_subject(c, strrchr(model, '/') + 1, "fp32")}, exact = {.s = fast.s};
    fast.s.path = model, fast.s.routes = routes, fast.s.length = LENGTH, fast.s.window = 0, fast.s.steps = STEPS;
    fast.s.device = device;
    exact.s = fast.s, exact.s.precision = "fp64", exact.s.device = "ref";
    int at = reference(&exact, GLOBAL), n = strcmp(device, "cpu") == 0 ? NDP_COUNT(ways) : 2;
    ndp_bounds bounds = bounds_of(&fast.s, &ways[0]);
    check_experts(&exact.references[at].one, p, k);
    check_near_ref(&fast.s, &exact.references[at].one, p, k, &bounds);
    for (int i = 0; i < n; i++) {
        check_way(&fast, &ways[i]);
        if (n > 2)
            check_way(&exact, &ways[i]);
    }
    print_family(&fast);
    family_release(&fast);
    family_release(&exact);
    unlink(routes);
    free(routes);
}

static void check_model(const corpus *c, const char *type, int k, const char *keys) {
    char *model = write_model(c->folder, type, k, keys);
    for (int p = 0; p < PATTERNS; p++)
        check_pattern(c, model, (pattern)p, k);
    free(model);
}

static void one_choice(void **state) { check_model(*state, "mixtral", 1, "\"num_local_experts\": 6"); }
static void two_choices(void **state) { check_model(*state, "mixtral", 2, "\"num_local_experts\": 6"); }
static void three_choices(void **state) {
    check_model(*state, "qwen3_moe", 3, "\"num_experts\": 6, \"norm_topk_prob\": false");
}

/* ---- files that are refused ---- */

static void check_refused(const subject *s, const char *words) {
    way one = one_rank(GLOBAL, 1, 1);
    ndp_config *c = configure(s, &one);
    outcome nothing = {.empty_ranks = 0};
    running r = {.subject = s, .way = &one, .config = c, .out = &nothing};
    assert_int_not_equal(ndp_world_run(c, run_rank, &r), NDP_OK);
    if (!strstr(ndp_error_message(), words))
        fail_msg("'%s' is not in: %s", words, ndp_error_message());
    ndp_config_destroy(c);
}

static void wrong_files_are_refused(void **state) {
    const corpus *c = *state;
    char *two = write_model(c->folder, "mixtral", 2, "\"num_local_experts\": 6"),
         *three = write_routes(c->folder, HALF, 3);
    char *few = write_model(c->folder, "olmoe", 2, "\"num_experts\": 2"), *half = write_routes(c->folder, HALF, 2);
    subject s = odd_subject(c, "refused", "fp32");
    s.length = LENGTH, s.window = 0, s.steps = 1;
    s.path = two, s.routes = three;
    check_refused(&s, "layers.0.choices is I32 [116, 3]; moe.routes needs I32 [116, 2]");
    s.path = few, s.routes = half;
    check_refused(&s, "layers.0.choices: choice 1 of row 1 is 2: a row has 2 different experts of 0 to 1");
    s.path = two, s.length = LENGTH + 1;
    check_refused(&s, "moe.routes needs I32 [120, 2]: a row for each token of the global batch");
    s.path = c->odd;
    check_refused(&s, "the model has no mixture of experts to route");
    s.path = two, s.routes = "/nowhere/at/all";
    check_refused(&s, "/nowhere/at/all");
    free(two);
    free(three);
    free(few);
    free(half);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_choice), cmocka_unit_test(two_choices),
                                       cmocka_unit_test(three_choices), cmocka_unit_test(wrong_files_are_refused)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus);
}
