/* config.json of an exported model: it states the type of the weights by the keys that it had, and all else stays. */
#include "base/json.h"
#include "train/guarded_trainer.h"
#include "train/tiny_model.h"

/* Numbers and keys that an export has no reason to change, in an order that is not a default. */
static const char others[] =
    "\"zeta\": {\"b\": [1, 2.50, 1e-7], \"a\": null}, \"model_type\": \"llama\", \"vocab_size\": 260, "
    "\"tie_word_embeddings\": false, \"hidden_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"head_dim\": 6, \"intermediate_size\": 20, \"max_position_embeddings\": 200, "
    "\"attention_bias\": true, \"mlp_bias\": true, \"rms_norm_eps\": 1e-05, \"alpha\": \"a/b\"";

static ndp_status export_rank(ndp_world *w, void *arg) {
    ndp_trainer *t;
    NDP_TRY(guarded_trainer_create(arg, w, &t));
    ndp_status st = ndp_trainer_export(t, NULL);
    guarded_trainer_destroy(t);
    return st;
}

#define set(c, ...) CHECK_OK(ndp_config_setf(c, __VA_ARGS__))

/* The folder's model, loaded and exported to FOLDER/run/model; its config.json. */
static struct json_object *exported(const char *folder, const char *compute) {
    struct json_object *config;
    ndp_config *c;
    tiny_write(folder, "data.txt", "some text of which nothing is trained on, but a row or two can be made of it");
    CHECK_OK(ndp_config_create(&c));
    set(c, "model.path=%s", folder);
    set(c, "data.files=[%s/data.txt]", folder);
    set(c, "data.cache_dir=%s/cache", folder);
    set(c, "data.sequence_length=16");
    set(c, "precision.compute=%s", compute);
    set(c, "train.output_dir=%s/run", folder);
    set(c, "train.transport=self");
    set(c, "train.threads=1");
    CHECK_OK(ndp_world_run(c, export_rank, c));
    ndp_config_destroy(c);
    char *path = ndp_format("%s/run/model/config.json", folder);
    CHECK_OK(ndp_json_read(path, &config));
    free(path);
    return config;
}

/* The keys before and behind `others`. */
typedef struct around {
    const char *before, *behind;
} around;

static char *config_of(around a) { return ndp_format("{%s%s%s}", a.before, others, a.behind); }

static void check(const char *folder, const char *compute, around was, around becomes) {
    char *text = config_of(was), *want = config_of(becomes);
    struct json_object *expected;
    tiny_write(folder, "config.json", text);
    CHECK_OK(ndp_json_parse(want, strlen(want), "what is expected", &expected));
    struct json_object *have = exported(folder, compute);
    assert_string_equal(json_object_to_json_string(have), json_object_to_json_string(expected));
    json_object_put(have);
    json_object_put(expected);
    free(text);
    free(want);
}

#define OLD(type) "\"torch_dtype\": \"" type "\""
#define NEW(type) "\"dtype\": \"" type "\""

static void one_key(void **state) {
    check(*state, "fp32", (around){OLD("bfloat16") ", ", ""}, (around){OLD("float32") ", ", ""});
    check(*state, "fp32", (around){NEW("bfloat16") ", ", ""}, (around){NEW("float32") ", ", ""});
    check(*state, "fp32", (around){"", ", \"dtype\": null"}, (around){"", ", " NEW("float32")});
    check(*state, "bf16", (around){"", ", " NEW("float32")}, (around){"", ", " NEW("bfloat16")});
}

static void both_keys(void **state) {
    check(*state, "fp32", (around){NEW("float16") ", ", ", " OLD("bfloat16")},
          (around){NEW("float32") ", ", ", " OLD("float32")});
}

static void neither_key(void **state) {
    check(*state, "fp32", (around){"", ""}, (around){"", ", " OLD("float32")});
    check(*state, "bf16", (around){"", ""}, (around){"", ", " OLD("bfloat16")});
}

/* No head of its own: what ties it is not touched, and not made up. */
static void tied(void **state) {
    tiny_write(*state, "config.json",
               "{\"model_type\": \"gemma2\", \"vocab_size\": 260, \"hidden_size\": 16, \"num_hidden_layers\": 2, "
               "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 6, \"intermediate_size\": 20, "
               "\"max_position_embeddings\": 200, \"hidden_activation\": \"gelu_pytorch_tanh\"}");
    char *path = ndp_format("%s/model.safetensors", (char *)*state);
    assert_int_equal(unlink(path), 0); /* those had a head */
    free(path);
    tiny_write_weights(*state, 3, NDP_F32);
    struct json_object *have = exported(*state, "fp32");
    assert_false(json_object_object_get_ex(have, "tie_word_embeddings", NULL));
    json_object_put(have);
}

#define TINY(test) cmocka_unit_test_setup_teardown(test, tiny_setup, tiny_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {TINY(one_key), TINY(both_keys), TINY(neither_key), TINY(tied)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
