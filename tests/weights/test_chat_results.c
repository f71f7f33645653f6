/* Results of runs know their chat template: for every built-in template and tokenizers of each kind, a conversation has
 * the same tokens beside the exported folder, which is opened as a model of its own, as in the training; and nothing in
 * the folder says another template. Conversations are generated; $NDP_TEST_SEED repeats them. */
#include "base/json.h"
#include "text/chat/chat_table.h"
#include "data/folder.h"
#include "text/talks.h"
#include "job/job_data.h"
#include "weights/export.h"

#include <time.h>

enum { VOCAB = 260 };

/* Bytes, and tokens for the begin, the end and turns; what its files say besides. */
typedef struct tokenizer_kind {
    const char *name;
    bool adds_bos, has_file; /* the begin token is put before texts; there is a chat_template.jinja */
    const char *config;      /* tokenizer_config.json; NULL: the tokenizer `bytes` */
} tokenizer_kind;

#define LARGE "\"model_max_length\": 1000000000000000019884624838656"
#define TOKENS "\"bos_token\": \"<s>\", \"eos_token\": \"</s>\""
static const tokenizer_kind kinds[] = {
    {"without a template", true, false, "{" TOKENS "}"},
    {"a text among other keys", false, false,
     "{" TOKENS ",\n  \"chat_template\" : \"{{ 'old \\\" } ]' }}\" ,\n \"n\": {\"chat_template\": [1]}, " LARGE
     "\n}\n"},
    {"several", true, false,
     "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"{{ tools }}\"}, {\"name\": \"default\", "
     "\"template\": \"old\"}], " LARGE ", " TOKENS "}"},
    {"a file", false, true, "{" LARGE ", \"eos_token\": {\"content\": \"</s>\"}, \"chat_template\": null}"},
    {"a file and an escaped key", true, true, "{" TOKENS ", \"chat\\u005ftemplate\": \"old\"}"},
    {"bytes", false, false, NULL},
};

static void put(const char *folder, const char *name, const char *text) {
    free(write_file(folder, name, text, strlen(text)));
}

static void make_tokenizer(const char *folder, const tokenizer_kind *k) {
    static const char *const special[] = {"<s>", "</s>", "<|im_start|>", "<|im_end|>"};
    ndp_str s = {0};
    CHECK_OK(ndp_folder_create(folder));
    ndp_str_add(&s, "{\"added_tokens\": [");
    for (int i = 0; i < NDP_COUNT(special); i++)
        ndp_str_addf(&s, "%s{\"id\": %d, \"content\": \"%s\", \"special\": true, \"normalized\": false}", i ? ", " : "",
                     256 + i, special[i]);
    ndp_str_add(&s, "], \"post_processor\": ");
    ndp_str_add(&s, k->adds_bos
                        ? "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", "
                          "\"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [], "
                          "\"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [256], \"tokens\": "
                          "[\"<s>\"]}}}"
                        : "null");
    ndp_str_add(&s, ", \"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"merges\": [], \"vocab\": {");
    for (int i = 0; i < 256; i++)
        ndp_str_addf(&s, "\"<0x%02X>\": %d, ", i, i);
    for (int i = 0; i < NDP_COUNT(special); i++)
        ndp_str_addf(&s, "%s\"%s\": %d", i ? ", " : "", special[i], 256 + i);
    ndp_str_add(&s, "}}}");
    put(folder, "tokenizer.json", s.data);
    put(folder, "tokenizer_config.json", k->config);
    if (k->has_file)
        put(folder, "chat_template.jinja", "{{ 'old' }}");
    ndp_str_release(&s);
}

/* ---- a job ---- */

typedef struct opened {
    ndp_config config;
    ndp_job job;
    ndp_job_data data;
} opened;

static void open_job(const char *place, const tokenizer_kind *k, const char *template, const char *date, opened *o) {
    char *text = ndp_format("{\"model_type\": \"llama\", \"vocab_size\": %d, \"hidden_size\": 8, "
                            "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"intermediate_size\": 8, "
                            "\"max_position_embeddings\": 256}",
                            k->config ? VOCAB : 258);
    put(place, "config.json", text);
    free(text);
    CHECK_OK(ndp_config_init(&o->config));
    CHECK_OK(ndp_config_setf(&o->config, "model.config=%s/config.json", place));
    CHECK_OK(ndp_config_set(&o->config, "model.init=random"));
    CHECK_OK(ndp_config_setf(&o->config, "data.files=[%s/config.json]", place));
    CHECK_OK(k->config ? ndp_config_setf(&o->config, "data.tokenizer=%s/tokenizer", place)
                       : ndp_config_set(&o->config, "data.tokenizer=bytes"));
    CHECK_OK(ndp_config_setf(&o->config, "data.chat_template=%s", template));
    if (date)
        CHECK_OK(ndp_config_setf(&o->config, "data.template_date=%s", date));
    CHECK_OK(ndp_config_set(&o->config, "train.steps=1"));
    CHECK_OK(ndp_job_init(&o->config, 1, &o->job));
    CHECK_OK(ndp_job_data_open(&o->job, &o->data));
}

static void close_job(opened *o) {
    ndp_job_data_close(&o->data);
    ndp_job_release(&o->job);
    ndp_config_release(&o->config);
}

/* ---- comparisons ---- */

/* As records and prompts are tokenized; false: the template refuses it. */
static bool tokens_of(const ndp_chat *c, const ndp_tokenizer *t, const drawn *talk, bool prompt, ndp_ids *out) {
    ndp_rendering r = {0};
    bool fine = ndp_chat_render(c, &(ndp_conversation){.messages = talk->messages, .n = talk->n}, prompt, &r) == NDP_OK;
    out->n = 0;
    if (fine)
        CHECK_OK(ndp_tokenizer_encode(t, r.text.data, r.text.length, false, out));
    ndp_rendering_release(&r);
    return fine;
}

static int compare(const opened *o, const ndp_chat *c, const ndp_tokenizer *t, uint64_t seed) {
    ndp_ids then = {0}, now = {0};
    int rendered = 0;
    for (int i = 0; i < 6; i++) {
        drawn talk;
        draw(&talk, seed + (uint64_t)i / 2);
        bool fine = tokens_of(&o->data.chat, o->data.tokenizer, &talk, i % 2, &then);
        assert_int_equal(tokens_of(c, t, &talk, i % 2, &now), fine);
        if (then.n != now.n || (then.n && memcmp(then.items, now.items, (size_t)then.n * sizeof *then.items) != 0))
            fail_msg("seed %llu: %lld tokens in training, %lld beside the result, or others",
                     (unsigned long long)seed + (uint64_t)i / 2, (long long)then.n, (long long)now.n);
        rendered += fine;
    }
    ndp_ids_release(&then);
    ndp_ids_release(&now);
    return rendered;
}

static char *contents(const char *folder, const char *name) {
    char *path = ndp_format("%s/%s", folder, name), *text;
    size_t size;
    CHECK_OK(ndp_file_read(path, &text, &size));
    free(path);
    return text;
}

/* The key says what the file says, where it was; the others are as they were, their numbers too. */
static void check_config(const char *folder, const tokenizer_kind *k) {
    char *now = contents(folder, "tokenizer_config.json"), *file = contents(folder, "chat_template.jinja");
    struct json_object *o, *value = NULL;
    CHECK_OK(ndp_json_parse(now, strlen(now), "tokenizer_config.json", &o));
    bool had = k->config && (strstr(k->config, "template\" :") || strstr(k->config, "template\":"));
    assert_int_equal(json_object_object_get_ex(o, "chat_template", &value), had);
    if (json_object_is_type(value, json_type_array)) {
        assert_int_equal(json_object_array_length(value), 2);
        struct json_object *other = json_object_array_get_idx(value, 1);
        assert_string_equal(ndp_json_text(json_object_object_get(other, "template")), "{{ tools }}");
        value = json_object_object_get(json_object_array_get_idx(value, 0), "template");
    }
    if (value)
        assert_string_equal(json_object_get_string(value), file);
    if (k->config && strstr(k->config, LARGE))
        assert_non_null(strstr(now, LARGE));
    if (k->config && strstr(k->config, "[1]"))
        assert_non_null(strstr(now, "\"n\": {\"chat_template\": [1]}"));
    json_object_put(o);
    free(now);
    free(file);
}

static void check_result(const char *place, const tokenizer_kind *k, const char *template, uint64_t seed) {
    char *tokenizer = ndp_format("%s/tokenizer", place), *result = ndp_format("%s/result", place);
    opened o;
    ndp_tokenizer *t;
    ndp_chat c;
    CHECK_OK(ndp_folder_remove(tokenizer));
    CHECK_OK(ndp_folder_remove(result));
    if (k->config)
        make_tokenizer(tokenizer, k);
    open_job(place, k, template, seed & 1 ? "2025-03-02" : NULL, &o);
    CHECK_OK(ndp_export_rest(&o.job, &o.data, result, NDP_F32));
    CHECK_OK(ndp_tokenizer_create(result, &t));
    CHECK_OK(ndp_chat_init(&c, t, result, NULL, NULL));
    if (compare(&o, &c, t, seed)) { /* otherwise it needs an end token, and trains nothing */
        assert_true(c.template != NULL);
        check_config(result, k);
    }
    ndp_chat_release(&c);
    ndp_tokenizer_destroy(t);
    close_job(&o);
    free(tokenizer);
    free(result);
}

static void results_have_the_template_of_the_training(void **state) {
    const char *given = getenv("NDP_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 1000;
    int step = short_or_all(3, 1);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; ndp_chat_template_at(i); i++)
        for (int k = i % step; k < NDP_COUNT(kinds); k += step, seed += 3)
            check_result(*state, &kinds[k], ndp_chat_template_at(i)->name, seed);
}

/* A tokenizer's own template stays as it is: not named, or named and the same. */
static void a_template_that_is_the_tokenizers_own_stays(void **state) {
    static const char chatml[] =
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
        "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
    static const tokenizer_kind kind = {"own", false, true, "{" TOKENS ", \"chat_template\": \"old\"}"};
    char *tokenizer = ndp_format("%s/tokenizer", (char *)*state), *result = ndp_format("%s/result", (char *)*state);
    for (int named = 0; named < 2; named++) {
        opened o;
        CHECK_OK(ndp_folder_remove(tokenizer));
        CHECK_OK(ndp_folder_remove(result));
        make_tokenizer(tokenizer, &kind);
        put(tokenizer, "chat_template.jinja", chatml);
        open_job(*state, &kind, named ? "chatml" : "null", NULL, &o);
        CHECK_OK(ndp_export_rest(&o.job, &o.data, result, NDP_F32));
        char *text = contents(result, "chat_template.jinja"), *config = contents(result, "tokenizer_config.json");
        assert_string_equal(text, chatml);
        assert_string_equal(config, kind.config);
        close_job(&o);
        free(text);
        free(config);
    }
    free(tokenizer);
    free(result);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(results_have_the_template_of_the_training, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_template_that_is_the_tokenizers_own_stays, make_folder, remove_folder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
