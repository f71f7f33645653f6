/* Models with an adapter beside them: scored and continued as the model is into which the adapter is merged. Adapters
 * of PEFT (tests/golden/README.md), in fp32. */
#include "train/golden.h"
#include "train/tiny_model.h"
#include "weights/tensor_set.h"

#include <math.h>

static char *place; /* a folder for all files of this program */

static int make_place(void **state) {
    (void)state;
    place = strdup("/tmp/ndp-beside-XXXXXX");
    return place && mkdtemp(place) ? 0 : -1;
}

static int drop_place(void **state) {
    (void)state;
    ndp_status st = ndp_folder_remove(place);
    free(place);
    return st == NDP_OK ? 0 : -1;
}

enum { VOCABULARY = 97 };
static const char letters[] = "abcdefghijklmnop";
static const char text[] = "{\"text\": \"abcabcabdeadeaf\"}\n{\"text\": \"ponmlkjihgfedcba\"}\n"
                           "{\"text\": \"aabbccddeeffgghhii\"}\n";

/* A model of tests/golden in fp32 with a tokenizer of letters; the caller frees the path. */
static char *make_base(const char *name) {
    char from[1024], *to = ndp_format("%s/%s", place, name), *path, *config;
    size_t size;
    ndp_str tokenizer = {0};
    golden_folder(name, from, sizeof from);
    CHECK_OK(ndp_folder_create(to));
    path = ndp_format("%s/config.json", from);
    CHECK_OK(ndp_file_read(path, &config, &size));
    tiny_write(to, "config.json", config);
    tensor_set *s = set_read(from, "model");
    for (int i = 0; i < s->n; i++)
        s->items[i].spec.dtype = NDP_F32;
    set_write(s, to, "model");
    set_release(s);
    ndp_str_add(&tokenizer, "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    for (int i = 0; i < VOCABULARY; i++)
        if (i < (int)strlen(letters))
            ndp_str_addf(&tokenizer, "%s\"%c\":%d", i ? "," : "", letters[i], i);
        else
            ndp_str_addf(&tokenizer, ",\"<%d>\":%d", i, i);
    ndp_str_add(&tokenizer, "}}}");
    tiny_write(to, "tokenizer.json", tokenizer.data);
    tiny_write(place, "texts.jsonl", text);
    ndp_str_release(&tokenizer);
    free(path);
    free(config);
    return to;
}

static char *adapter_folder(const char *base, const char *kind) {
    char path[1024];
    return ndp_format("%s/%s-%s", golden_folder("peft", path, sizeof path), base, kind);
}

static double score(const char *model, const char *adapter) {
    ndp_evaluate_opts o = NDP_EVALUATE_OPTS_INIT;
    ndp_evaluation all;
    char *data = ndp_format("%s/texts.jsonl", place);
    o.model = model, o.adapter = adapter, o.threads = 1, o.force_memory = true;
    o.data = (const char *const *)&data, o.data_count = 1;
    CHECK_OK(ndp_evaluate(&o, &all, NULL));
    free(data);
    return all.mean_nll;
}

typedef struct answer {
    int32_t ids[16];
    int n;
} answer;

static bool keep_id(void *user, int32_t id, const char *token) {
    answer *a = user;
    (void)token;
    assert_true(a->n < NDP_COUNT(a->ids));
    a->ids[a->n++] = id;
    return true;
}

static answer generate(const char *model, const char *adapter) {
    ndp_generate_opts o = NDP_GENERATE_OPTS_INIT;
    answer a = {.n = 0};
    o.model = model, o.adapter = adapter, o.prompt = "abcab", o.max_tokens = 12, o.threads = 1, o.force_memory = true;
    CHECK_OK(ndp_generate(&o, keep_id, &a));
    return a;
}

typedef struct variant {
    const char *base, *kind;
} variant;

static void gives_what_the_merged_model_gives(void **state) {
    const variant *v = *state;
    char *base = make_base(v->base), *adapter = adapter_folder(v->base, v->kind);
    char *merged = ndp_format("%s/merged", place);
    int64_t changed;
    CHECK_OK(ndp_folder_remove(merged));
    CHECK_OK(ndp_adapter_merge(base, adapter, merged, &changed));
    double with = score(base, adapter), of_merged = score(merged, NULL), without = score(base, NULL);
    print_message("%s-%s: nll %.7f with the adapter, %.7f merged, %.7f without\n", v->base, v->kind, with, of_merged,
                  without);
    assert_true(fabs(with / of_merged - 1) < 1e-6);
    assert_true(fabs(with / without - 1) > 1e-4);
    answer beside = generate(base, adapter), inside = generate(merged, NULL);
    assert_int_equal(beside.n, inside.n);
    assert_memory_equal(beside.ids, inside.ids, (size_t)beside.n * sizeof *beside.ids);
    free(base);
    free(adapter);
    free(merged);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    char *llama = make_base("llama-yarn"), *qwen = make_base("qwen2"), *other = adapter_folder("gpt2", "lora");
    char *alone = adapter_folder("qwen2", "head"), *run = ndp_format("%s/run", place);
    ndp_infer f;
    CHECK_FAILS(ndp_infer_open(&f, llama, other, 0, "cpu", 1), NDP_EINVAL,
                "belongs to transformer.h.0.attn.c_attn.weight, which the model does not have");
    CHECK_FAILS(ndp_infer_open(&f, llama, llama, 0, "cpu", 1), NDP_EINVAL, "it is a model, not an adapter");
    CHECK_FAILS(ndp_infer_open(&f, qwen, alone, 0, "cpu", 1), NDP_ENOTSUP, "ndparallel merge makes one model of both");
    CHECK_FAILS(ndp_infer_open(&f, llama, "/nowhere", 0, "cpu", 1), NDP_EINVAL, "'/nowhere' is not a folder");
    free(llama), free(qwen), free(other), free(alone), free(run);
}

static void a_job_takes_the_options_of_a_folder(void **state) {
    (void)state;
    char *adapter = adapter_folder("gpt2", "rslora"), *saved = adapter_folder("qwen2", "embedding"), *value;
    static const struct {
        const char *key, *value;
    } expected[] = {{"adapter.type", "lora"},
                    {"adapter.r", "3"},
                    {"adapter.alpha", "6"},
                    {"adapter.rslora", "true"},
                    {"adapter.dora", "false"},
                    {"adapter.targets", "[\"transformer.h.0.attn.c_attn\", \"transformer.h.0.mlp.c_proj\", "
                                        "\"transformer.h.1.attn.c_attn\", \"transformer.h.1.mlp.c_proj\"]"},
                    {"adapter.modules_to_save", "[]"}};
    ndp_config *c;
    CHECK_OK(ndp_config_create(&c));
    CHECK_OK(ndp_config_use_adapter(c, adapter));
    for (int i = 0; i < NDP_COUNT(expected); i++) {
        CHECK_OK(ndp_config_get(c, expected[i].key, &value));
        assert_string_equal(value, expected[i].value);
        free(value);
    }
    CHECK_OK(ndp_config_set(c, "adapter.type=qlora"));
    CHECK_OK(ndp_config_use_adapter(c, saved));
    CHECK_OK(ndp_config_get(c, "adapter.modules_to_save", &value));
    assert_string_equal(value, "[\"model.embed_tokens\", \"model.norm\"]");
    free(value);
    CHECK_OK(ndp_config_get(c, "adapter.type", &value));
    assert_string_equal(value, "qlora");
    free(value);
    CHECK_FAILS(ndp_config_use_adapter(c, place), NDP_EINVAL, "has no adapter_config.json");
    ndp_config_destroy(c);
    free(adapter);
    free(saved);
}

static const variant variants[] = {
    {"llama-yarn", "lora"},   {"llama-yarn", "rslora"}, {"llama-yarn", "dora"}, {"phi3", "lora"}, {"phi3", "rslora"},
    {"phi3", "dora"},         {"gpt2", "lora"},         {"gpt2", "rslora"},     {"gpt2", "dora"}, {"qwen2", "tied"},
    {"qwen3-moe", "experts"}, {"mixtral", "experts"},   {"gpt-oss", "experts"}};

#define VARIANT(i)                                                                                                     \
    { variants[i].base, gives_what_the_merged_model_gives, NULL, NULL, (void *)&variants[i] }

int main(void) {
    const struct CMUnitTest tests[] = {
        VARIANT(0),
        VARIANT(1),
        VARIANT(2),
        VARIANT(3),
        VARIANT(4),
        VARIANT(5),
        VARIANT(6),
        VARIANT(7),
        VARIANT(8),
        VARIANT(9),
        VARIANT(10),
        VARIANT(11),
        VARIANT(12),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(a_job_takes_the_options_of_a_folder),
    };
    return cmocka_run_group_tests(tests, make_place, drop_place);
}
