/* Adapters merged into their models: against the models that PEFT merges (tests/golden/README.md), rounded once, and
 * refused where adapter and model do not belong together. */
#include "ops/devices.h"
#include "train/golden_logits.h"
#include "weights/tensor_set.h"

#include "base/json.h"
#include <unistd.h>

static char *place; /* a folder for all files of this program */

static int make_place(void **state) {
    (void)state;
    place = strdup("/tmp/ndp-merge-XXXXXX");
    return place && mkdtemp(place) ? 0 : -1;
}

static int drop_place(void **state) {
    (void)state;
    ndp_status st = ndp_folder_remove(place);
    free(place);
    return st == NDP_OK ? 0 : -1;
}

static char *below(const char *folder, const char *name) {
    char *path = ndp_format("%s/%s", folder, name);
    assert_non_null(path);
    return path;
}

static void copy_file(const char *from, const char *to, const char *name) {
    char *source = below(from, name), *target = below(to, name), *data;
    size_t size;
    CHECK_OK(ndp_file_read(source, &data, &size));
    CHECK_OK(ndp_file_write_atomic(target, data, size));
    free(data);
    free(source);
    free(target);
}

/* The model of tests/golden with its tensors stored as `type`, in a folder that the caller frees. */
static char *make_base(const char *name, ndp_dtype type) {
    char from[1024], *to = ndp_format("%s/%s-%s", place, name, ndp_dtype_name(type));
    golden_folder(name, from, sizeof from);
    CHECK_OK(ndp_folder_create(to));
    copy_file(from, to, "config.json");
    tensor_set *s = set_read(from, "model");
    set_type(s, type);
    set_write(s, to, "model");
    set_release(s);
    return to;
}

static char *adapter_folder(const char *base, const char *kind) {
    char path[1024], *name = ndp_format("peft/%s-%s", base, kind);
    golden_folder(name, path, sizeof path);
    free(name);
    return strdup(path);
}

/* Merges into a fresh folder, which the caller frees. */
static char *merge(const char *model, const char *adapter, int64_t *changed) {
    char *out = below(place, "merged");
    CHECK_OK(ndp_folder_remove(out));
    CHECK_OK(ndp_adapter_merge(model, adapter, out, changed));
    return out;
}

/* ---- PEFT's results ---- */

/* The logits of a merged folder in fp64 are PEFT's, stored in fp32. */
static void check_logits(const char *base, const char *merged, const char *adapter) {
    golden g;
    ndp_model_spec spec;
    ndp_model m;
    ndp_safetensors *expected, *of_base;
    char *path = below(adapter, "expected.safetensors"), source[1024];
    open_golden(&g, base, golden_folder(base, source, sizeof source));
    CHECK_OK(ndp_safetensors_open(path, &expected));
    ndp_model_opts mo = golden_opts(&g, NDP_MODEL_CACHED, NDP_F64);
    CHECK_OK(ndp_model_spec_read(path = (free(path), below(merged, "config.json")), NULL, &spec));
    CHECK_OK(ndp_model_build(&spec, &mo, &m));
    int64_t n;
    int32_t *rows = golden_rows(&g, &n);
    of_base = g.expected, g.expected = expected, g.folder = merged;
    double *want = read_all(&g, "logits", NDP_F64, NULL);
    double *have = golden_logits(&g, &m, NULL, &ndp_device_ref, rows, n);
    logits_distance off = compare_logits(&g, have, want, n);
    print_message("%s: logits off by %.2g of the largest\n", adapter, off.worst);
    assert_true(off.worst <= 2e-7);
    g.expected = of_base;
    ndp_safetensors_close(expected);
    free(path);
    free(rows);
    free(want);
    free(have);
    ndp_model_release(&m);
    ndp_model_spec_release(&spec);
    close_golden(&g);
}

static bool tied_by_config(const char *folder) {
    struct json_object *config;
    bool tied = false;
    char *path = below(folder, "config.json");
    CHECK_OK(ndp_json_read(path, &config));
    CHECK_OK(ndp_json_bool(config, path, "tie_word_embeddings", &tied));
    json_object_put(config);
    free(path);
    return tied;
}

/* Every tensor of the base model is there with its type and shape, in the model's names; those that the adapter has
 * nothing for have its values. */
static void check_tensors(const char *base, const char *merged, const char *prefix, int64_t changed) {
    ndp_weights *a, *b;
    int64_t differ = 0;
    CHECK_OK(ndp_weights_open(base, &a));
    CHECK_OK(ndp_weights_rename(a, &(ndp_naming){prefix, "", NULL}));
    CHECK_OK(ndp_weights_open(merged, &b));
    for (int i = 0; i < ndp_weights_count(b); i++) {
        const ndp_tensor_entry *y = ndp_weights_at(b, i), *x = ndp_weights_find(a, y->spec.name);
        if (!x) { /* a head that was tied */
            assert_string_equal(y->spec.name, "lm_head.weight");
            continue;
        }
        assert_int_equal(x->spec.dtype, y->spec.dtype);
        assert_true(ndp_tensor_same_shape(&x->spec, &y->spec));
        size_t size = (size_t)x->elements * 8;
        double *was = malloc(size), *is = malloc(size);
        CHECK_OK(ndp_weights_read(a, x->spec.name, 0, x->elements, was, NDP_F64, true));
        CHECK_OK(ndp_weights_read(b, x->spec.name, 0, x->elements, is, NDP_F64, true));
        differ += memcmp(was, is, size) != 0;
        free(was);
        free(is);
    }
    assert_int_equal(differ, changed);
    ndp_weights_close(a);
    ndp_weights_close(b);
}

/* Half of the last place of a bf16 number. */
static double half_place(double x) {
    int exponent;
    frexp(x, &exponent);
    return ldexp(1, exponent - 9);
}

/* Merged tensors of a bf16 model are PEFT's in fp64, which are stored in fp32, rounded to the nearest. */
static int check_rounded(const char *merged, const char *adapter) {
    char *path = below(adapter, "expected.safetensors");
    ndp_safetensors *expected;
    ndp_weights *w;
    int n = 0;
    CHECK_OK(ndp_safetensors_open(path, &expected));
    CHECK_OK(ndp_weights_open(merged, &w));
    for (int i = 0; i < ndp_safetensors_count(expected); i++) {
        const ndp_tensor_entry *e = ndp_safetensors_at(expected, i);
        if (strncmp(e->spec.name, "merged.", 7) != 0)
            continue;
        double *want = malloc((size_t)e->elements * 8), *have = malloc((size_t)e->elements * 8);
        CHECK_OK(ndp_safetensors_read(expected, e, 0, e->elements, want, NDP_F64, true));
        CHECK_OK(ndp_weights_read(w, e->spec.name + 7, 0, e->elements, have, NDP_F64, true));
        for (int64_t k = 0; k < e->elements; k++)
            if (!(fabs(have[k] - want[k]) <= 1.0001 * half_place(want[k])))
                fail_msg("%s: element %d is %.9g, expected %.9g", e->spec.name, (int)k, have[k], want[k]);
        free(want);
        free(have);
        n++;
    }
    ndp_safetensors_close(expected);
    ndp_weights_close(w);
    free(path);
    return n;
}

typedef struct variant {
    const char *base, *prefix, *kind;
    int changed; /* tensors */
} variant;

static void merges_as_peft(void **state) {
    const variant *v = *state;
    char stored[1024], *base = make_base(v->base, NDP_F64), *adapter = adapter_folder(v->base, v->kind);
    int64_t changed;
    char *out = merge(base, adapter, &changed);
    assert_int_equal(changed, v->changed);
    check_tensors(base, out, v->prefix, changed);
    check_logits(v->base, out, adapter);
    free(out);
    golden_folder(v->base, stored, sizeof stored);
    out = merge(stored, adapter, &changed);
    check_tensors(stored, out, v->prefix, changed);
    assert_int_equal(check_rounded(out, adapter), 2);
    free(out);
    free(base);
    free(adapter);
}

static void saves_as_peft(void **state) {
    const variant *v = *state;
    char *base = make_base(v->base, NDP_F64), *adapter = adapter_folder(v->base, v->kind);
    int64_t changed;
    char *out = merge(base, adapter, &changed);
    bool tied = strcmp(v->kind, "tied") == 0;
    assert_int_equal(changed, v->changed);
    assert_int_equal(tied_by_config(out), tied);
    check_tensors(base, out, v->prefix, strcmp(v->kind, "head") == 0 ? changed - 1 : changed);
    check_logits(v->base, out, adapter);
    free(out);
    free(base);
    free(adapter);
}

#define LLAMA "llama-yarn", "model."
#define PHI3 "phi3", "model."
#define GPT2 "gpt2", "transformer."
static const variant variants[] = {{LLAMA, "lora", 14},
                                   {LLAMA, "rslora", 6},
                                   {LLAMA, "dora", 14},
                                   {PHI3, "lora", 8},
                                   {PHI3, "rslora", 4},
                                   {PHI3, "dora", 8},
                                   {GPT2, "lora", 8},
                                   {GPT2, "rslora", 4},
                                   {GPT2, "dora", 8},
                                   {"qwen3-moe", "model.", "experts", 42},
                                   {"mixtral", "model.", "experts", 34},
                                   {"gpt-oss", "model.", "experts", 6}};
/* Of three layers; a final norm is saved beside the embedding. */
static const variant saved[] = {
    {"qwen2", "model.", "tied", 4}, {"qwen2", "model.", "embedding", 5}, {"qwen2", "model.", "head", 4}};

/* ---- rounding ---- */

/* 1 + 2^-8 lies in the middle of two bf16 numbers; a little more, which fp32 does not see, decides. */
static void rounds_once(void **state) {
    (void)state;
    static const struct {
        ndp_dtype type;
        double w, add, want;
    } cases[] = {{NDP_BF16, 1, 0x1p-8 + 0x1p-40, 1 + 0x1p-7},
                 {NDP_BF16, 1, 0x1p-8, 1},
                 {NDP_BF16, 1 + 0x1p-7, 0x1p-8 - 0x1p-40, 1 + 0x1p-7},
                 {NDP_BF16, -1, -0x1p-8 - 0x1p-40, -1 - 0x1p-7},
                 {NDP_F16, 1, 0x1p-11 + 0x1p-40, 1 + 0x1p-10},
                 {NDP_F16, 1, 0x1p-11, 1},
                 {NDP_F16, 0x1p-24, 0x1p-25 + 0x1p-60, 0x1p-23},
                 {NDP_F32, 1, 0x1p-24 + 0x1p-50, 1 + 0x1p-23},
                 {NDP_F64, 1, 0x1p-40, 1 + 0x1p-40}};
    static const char target[] = "base_model.model.model.layers.1.mlp.up_proj.lora_A.weight",
                      other[] = "base_model.model.model.layers.1.mlp.up_proj.lora_B.weight";
    char *source = adapter_folder("llama-yarn", "lora"), *adapter = below(place, "rounding");
    CHECK_OK(ndp_folder_create(adapter));
    copy_file(source, adapter, "adapter_config.json");
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        char *base = make_base("llama-yarn", cases[i].type);
        tensor_set *w = set_read(base, "model"), *a = set_read(source, "adapter_model");
        set_type(a, NDP_F64);
        set_find(w, "model.layers.1.mlp.up_proj.weight")->x[25] = cases[i].w; /* row 1, column 1 */
        set_tensor *left = set_find(a, other), *right = set_find(a, target);
        for (int k = 0; k < 4; k++)
            left->x[4 + k] = 0;
        left->x[4 + 2] = 0.5, right->x[2 * 24 + 1] = cases[i].add; /* times alpha / r, which is 2 */
        set_write(w, base, "model");
        set_write(a, adapter, "adapter_model");
        set_release(w);
        set_release(a);
        int64_t changed;
        char *out = merge(base, adapter, &changed);
        w = set_read(out, "model");
        double have = set_find(w, "model.layers.1.mlp.up_proj.weight")->x[25];
        if (have != cases[i].want)
            fail_msg("case %d: %a + %a is %a, expected %a", i, cases[i].w, cases[i].add, have, cases[i].want);
        set_release(w);
        free(out);
        free(base);
    }
    free(adapter);
    free(source);
}

/* ---- what is refused ---- */

typedef struct change {
    const char *words;
    ndp_status code;
    const char *kind; /* of the adapter of llama-yarn, or of qwen2 */
    void (*apply)(tensor_set *adapter);
    const char *key, *value; /* of adapter_config.json, in JSON */
} change;

#define NAME(module) "base_model.model.model.layers.0." module
static const char q_a[] = NAME("self_attn.q_proj.lora_A.weight"), q_b[] = NAME("self_attn.q_proj.lora_B.weight"),
                  q_m[] = NAME("self_attn.q_proj.lora_magnitude_vector");

static void rename_tensor(tensor_set *s, const char *from, const char *to) {
    snprintf(set_find(s, from)->name, sizeof s->items->name, "%s", to);
}
static void widen(tensor_set *s) { set_shape(set_find(s, q_a), 2, 4, 32); }
static void lengthen(tensor_set *s) { set_shape(set_find(s, q_b), 2, 36, 4); }
static void flatten(tensor_set *s) { set_shape(set_find(s, q_a), 1, 96, 0); }
static void lose_b(tensor_set *s) { set_remove(s, q_b); }
static void lose_both(tensor_set *s) { set_remove(s, q_a), set_remove(s, q_b); }
static void lose_m(tensor_set *s) { set_remove(s, q_m); }
static void go_deeper(tensor_set *s) {
    rename_tensor(s, q_a, "base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight");
}
static void lose_prefix(tensor_set *s) { rename_tensor(s, q_a, "model.layers.0.self_attn.q_proj.lora_A.weight"); }
static void keep_name(tensor_set *s) { rename_tensor(s, q_a, NAME("self_attn.q_proj.lora_A.default.weight")); }
static void of_norm(tensor_set *s) { rename_tensor(s, q_a, NAME("input_layernorm.lora_A.weight")); }
static void of_embedding(tensor_set *s) { rename_tensor(s, q_a, "base_model.model.model.embed_tokens.lora_A.weight"); }
static void of_table(tensor_set *s) { rename_tensor(s, q_a, "base_model.model.model.embed_tokens.lora_embedding_A"); }
static void of_tied_head(tensor_set *s) { rename_tensor(s, q_a, "base_model.model.lm_head.lora_A.weight"); }
static void not_a_number(tensor_set *s) { set_find(s, q_a)->x[5] = NAN; }
static void not_finite(tensor_set *s) { set_find(s, q_b)->x[5] = INFINITY; }
static void huge(tensor_set *s) { set_find(s, q_b)->x[0] = 3e38, set_find(s, q_a)->x[0] = 1e10; }
static void integers(tensor_set *s) { set_find(s, q_a)->spec.dtype = NDP_I32; }
static void whole_too(tensor_set *s) {
    set_add(s, NAME("self_attn.q_proj.weight"), &(ndp_tensor_spec){.dtype = NDP_F32, .ndim = 2, .shape = {32, 24}});
}
static void lose_head(tensor_set *s) { set_remove(s, "base_model.model.lm_head.weight"); }
static void resize(tensor_set *s) { set_shape(set_find(s, "base_model.model.lm_head.weight"), 2, 99, 24); }
static void nothing(tensor_set *s) { (void)s; }

static const change refusals[] = {
    {"self_attn.q_proj.lora_A.weight is [4, 32], but r 4 and this model need [4, 24]: it is an adapter of another base "
     "model, llama-yarn",
     NDP_EINVAL, "lora", widen, NULL, NULL},
    {"q_proj.lora_B.weight is [36, 4], but r 4 and this model need [32, 4]", NDP_EINVAL, "lora", lengthen, NULL, NULL},
    {"q_proj.lora_A.weight is [96], but r 4", NDP_EINVAL, "lora", flatten, NULL, NULL},
    {"is [4, 44], but r 8 and this model need [8, 44]", NDP_EINVAL, "lora", nothing, "r", "8"},
    {"the lora_B of model.layers.0.self_attn.q_proj is missing: its other factors are there", NDP_EINVAL, "lora",
     lose_b, NULL, NULL},
    {"the lora_A of model.layers.0.self_attn.q_proj is missing: target_modules names it", NDP_EINVAL, "lora", lose_both,
     NULL, NULL},
    {"the lora_A of model.layers.0.self_attn.q_proj is missing: target_modules names it", NDP_EINVAL, "lora", lose_both,
     "target_modules", "\"all-linear\""},
    {"the lora_magnitude_vector of model.layers.0.self_attn.q_proj is missing: use_dora is true", NDP_EINVAL, "dora",
     lose_m, NULL, NULL},
    {"has a lora_magnitude_vector, but use_dora is false", NDP_EINVAL, "dora", nothing, "use_dora", "false"},
    {"belongs to model.layers.9.self_attn.q_proj.weight, which the model does not have; the nearest are "
     "model.layers.0.self_attn.q_proj.weight, model.layers.1.self_attn.q_proj.weight",
     NDP_EINVAL, "lora", go_deeper, NULL, NULL},
    {"the name of the tensor model.layers.0.self_attn.q_proj.lora_A.weight does not begin with base_model.model.",
     NDP_EINVAL, "lora", lose_prefix, NULL, NULL},
    {"belongs to model.layers.0.self_attn.q_proj.lora_A.default.weight, which the model does not have", NDP_EINVAL,
     "lora", keep_name, NULL, NULL},
    {"model.layers.0.input_layernorm.weight is not the matrix of a linear map", NDP_ENOTSUP, "lora", of_norm, NULL,
     NULL},
    {"model.embed_tokens.weight is not the matrix of a linear map", NDP_ENOTSUP, "lora", of_embedding, NULL, NULL},
    {"factors of embeddings are not supported", NDP_ENOTSUP, "lora", of_table, NULL, NULL},
    {"the head is tied to the embedding, and factors of it are not supported", NDP_ENOTSUP, "head", of_tied_head, NULL,
     NULL},
    {"q_proj.lora_A.weight", NDP_EFORMAT, "lora", not_a_number, NULL, NULL},
    {"q_proj.lora_B.weight", NDP_EFORMAT, "lora", not_finite, NULL, NULL},
    {"model.layers.0.self_attn.q_proj.weight: element 0 is 6e+48 once the adapter is merged, which is not finite as "
     "bf16",
     NDP_EFORMAT, "lora", huge, NULL, NULL},
    {"q_proj.lora_A.weight is I32, which is not read as a weight", NDP_EINVAL, "lora", integers, NULL, NULL},
    {"model.layers.0.self_attn.q_proj.weight has factors, and is saved whole as well", NDP_EINVAL, "lora", whole_too,
     NULL, NULL},
    {"modules_to_save has \"lm_head\", of which there is no tensor", NDP_EINVAL, "head", lose_head, NULL, NULL},
    {"lm_head.weight is [99, 24], but r 1 and this model need [97, 24]", NDP_EINVAL, "head", resize, NULL, NULL},
    {"\"rank_pattern\": {\"q_proj\":2} is not supported", NDP_ENOTSUP, "lora", nothing, "rank_pattern",
     "{\"q_proj\": 2}"},
};

static void write_changed_config(const char *from, const char *to, const change *c) {
    struct json_object *config, *value;
    char *path = below(from, "adapter_config.json");
    CHECK_OK(ndp_json_read(path, &config));
    free(path);
    if (c->key) {
        CHECK_OK(ndp_json_parse(c->value, strlen(c->value), "value", &value));
        json_object_object_add(config, c->key, value);
    }
    const char *text = json_object_to_json_string(config);
    path = below(to, "adapter_config.json");
    CHECK_OK(ndp_file_write_atomic(path, text, strlen(text)));
    free(path);
    json_object_put(config);
}

static ndp_status count_entry(void *user, const char *folder, const char *name) {
    (void)folder;
    *(int *)user += name[0] != '.' || name[1] == 'm'; /* .merged.tmp-folder too */
    return NDP_OK;
}

static int entries(const char *folder) {
    int n = 0;
    CHECK_OK(ndp_folder_visit(folder, count_entry, &n));
    return n;
}

static void what_does_not_belong_is_refused(void **state) {
    (void)state;
    char *adapter = below(place, "changed"), *out = below(place, "merged"), model[1024];
    CHECK_OK(ndp_folder_create(adapter));
    CHECK_OK(ndp_folder_remove(out));
    int before = entries(place);
    for (int i = 0; i < NDP_COUNT(refusals); i++) {
        const change *c = &refusals[i];
        const char *base = strcmp(c->kind, "head") == 0 ? "qwen2" : "llama-yarn";
        char *from = adapter_folder(base, c->kind);
        int64_t changed = -1;
        tensor_set *s = set_read(from, "adapter_model");
        write_changed_config(from, adapter, c);
        c->apply(s);
        set_write(s, adapter, "adapter_model");
        set_release(s);
        free(from);
        CHECK_FAILS(ndp_adapter_merge(golden_folder(base, model, sizeof model), adapter, out, &changed), c->code,
                    c->words);
        assert_int_equal(changed, -1);
        assert_int_equal(entries(place), before);
    }
    free(adapter);
    free(out);
}

/* ---- folders ---- */

static void other_files_are_copied(void **state) {
    (void)state;
    static const char *const names[] = {"tokenizer.json", "generation_config.json", "chat_template.jinja",
                                        "special_tokens_map.json"};
    char *base = make_base("llama-yarn", NDP_F32), *adapter = adapter_folder("llama-yarn", "lora");
    char *run = below(place, "run"), *inner = below(run, "adapter");
    for (int i = 0; i < NDP_COUNT(names); i++) {
        char *path = below(base, names[i]);
        CHECK_OK(ndp_file_write_atomic(path, names[i], strlen(names[i])));
        free(path);
    }
    CHECK_OK(ndp_folder_create(inner));
    copy_file(adapter, inner, "adapter_config.json");
    copy_file(adapter, inner, "adapter_model.safetensors");
    int64_t changed;
    char *out = merge(base, run, &changed); /* the folder of a run has the adapter in it */
    for (int i = -1; i < NDP_COUNT(names); i++) {
        char *a = below(base, i < 0 ? "config.json" : names[i]), *b = below(out, i < 0 ? "config.json" : names[i]);
        char *x, *y;
        size_t n, k;
        CHECK_OK(ndp_file_read(a, &x, &n));
        CHECK_OK(ndp_file_read(b, &y, &k));
        assert_true(n == k && memcmp(x, y, n) == 0);
        free(x), free(y), free(a), free(b);
    }
    CHECK_FAILS(ndp_adapter_merge(base, adapter, out, &changed), NDP_EINVAL,
                "is not empty, and nothing is overwritten");
    free(out), free(base), free(adapter), free(run), free(inner);
}

static void what_is_no_adapter_or_model(void **state) {
    (void)state;
    char model[1024], *adapter = adapter_folder("llama-yarn", "lora"), *out = below(place, "merged");
    char *pickled = below(place, "pickled"), *file = below(pickled, "adapter_model.bin");
    int64_t changed;
    golden_folder("llama-yarn", model, sizeof model);
    CHECK_OK(ndp_folder_remove(out));
    CHECK_OK(ndp_folder_create(pickled));
    CHECK_FAILS(ndp_adapter_merge(model, "/nowhere", out, &changed), NDP_EINVAL, "'/nowhere' is not a folder");
    CHECK_FAILS(ndp_adapter_merge(model, model, out, &changed), NDP_EINVAL,
                "has no adapter_config.json: it is a model, not an adapter");
    CHECK_FAILS(ndp_adapter_merge(model, pickled, out, &changed), NDP_EINVAL, "it is another folder, not an adapter");
    copy_file(adapter, pickled, "adapter_config.json");
    CHECK_FAILS(ndp_adapter_merge(model, pickled, out, &changed), NDP_EIO, "holds neither adapter_model.safetensors");
    CHECK_OK(ndp_file_write_atomic(file, "", 0));
    CHECK_FAILS(ndp_adapter_merge(model, pickled, out, &changed), NDP_EINVAL,
                "has adapter_model.bin, which is not read");
    CHECK_FAILS(ndp_adapter_merge(adapter, adapter, out, &changed), NDP_EINVAL, "is a LoRA adapter");
    CHECK_FAILS(ndp_adapter_merge(model, adapter, "", &changed), NDP_EINVAL, "no folder is given to write to");
    assert_false(ndp_path_exists(out));
    free(adapter), free(out), free(pickled), free(file);
}

#define AS_PEFT(function, v)                                                                                           \
    { v.base, function, NULL, NULL, (void *)&v }

int main(void) {
    const struct CMUnitTest tests[] = {
        AS_PEFT(merges_as_peft, variants[0]),
        AS_PEFT(merges_as_peft, variants[1]),
        AS_PEFT(merges_as_peft, variants[2]),
        AS_PEFT(merges_as_peft, variants[3]),
        AS_PEFT(merges_as_peft, variants[4]),
        AS_PEFT(merges_as_peft, variants[5]),
        AS_PEFT(merges_as_peft, variants[6]),
        AS_PEFT(merges_as_peft, variants[7]),
        AS_PEFT(merges_as_peft, variants[8]),
        AS_PEFT(merges_as_peft, variants[9]),
        AS_PEFT(merges_as_peft, variants[10]),
        AS_PEFT(merges_as_peft, variants[11]),
        AS_PEFT(saves_as_peft, saved[0]),
        AS_PEFT(saves_as_peft, saved[1]),
        AS_PEFT(saves_as_peft, saved[2]),
        cmocka_unit_test(rounds_once),
        cmocka_unit_test(what_does_not_belong_is_refused),
        cmocka_unit_test(other_files_are_copied),
        cmocka_unit_test(what_is_no_adapter_or_model),
    };
    return cmocka_run_group_tests(tests, make_place, drop_place);
}
