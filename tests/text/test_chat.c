/* Chat templates: byte for byte what the models' own templates give, and which of it the assistant wrote. */
#include "text/chat/chat_table.h"

#include "base/json.h"
#include "data/folder.h"
#include "text/bracketed.h"
#include <xxhash.h>

static ndp_span span(const char *text) { return (ndp_span){text, strlen(text)}; }

/* A tokenizer with begin and end tokens, a tokenizer.json in the folder. */
static ndp_tokenizer *tokenizer(const char *folder, const char *config) {
    static const char JSON[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":["
        "{\"id\":1,\"content\":\"<｜begin▁of▁sentence｜>\",\"special\":true,\"single_word\":false,\"lstrip\":false,"
        "\"rstrip\":false,\"normalized\":false},{\"id\":2,\"content\":\"</s>\",\"special\":true,\"single_word\":false,"
        "\"lstrip\":false,\"rstrip\":false,\"normalized\":false}]}";
    ndp_tokenizer *t;
    free(write_file(folder, "tokenizer.json", JSON, strlen(JSON)));
    free(write_file(folder, "tokenizer_config.json", config, strlen(config)));
    CHECK_OK(ndp_tokenizer_create(folder, &t));
    return t;
}
#define CONFIG "{\"bos_token\":\"<｜begin▁of▁sentence｜>\",\"eos_token\":\"</s>\"}"

/* The rendering with [ ] around what the assistant wrote. */
static void check_rendering(const ndp_chat *c, const ndp_message *m, int64_t n, const char *want) {
    ndp_rendering r = {0};
    for (int again = 0; again < 2; again++) { /* what it had is gone */
        CHECK_OK(ndp_chat_render(c, &(ndp_conversation){.messages = m, .n = n}, false, &r));
        char *got = bracketed(&r);
        assert_string_equal(got, want);
        free(got);
    }
    ndp_rendering_release(&r);
}

static void check_named(const char *folder, const char *name, const ndp_message *m, int64_t n, const char *want) {
    ndp_tokenizer *t = tokenizer(folder, CONFIG);
    ndp_chat c;
    CHECK_OK(ndp_chat_init(&c, t, folder, name, NULL));
    assert_string_equal(ndp_chat_name(&c), name);
    check_rendering(&c, m, n, want);
    ndp_chat_release(&c);
    ndp_tokenizer_destroy(t);
}

static void the_assistant_writes_its_content_and_its_end(void **state) {
    const ndp_message m[] = {{NDP_ROLE_USER, span("Hi"), {0}, NULL, false},
                             {NDP_ROLE_ASSISTANT, span("a b"), {0}, NULL, false},
                             {NDP_ROLE_USER, span("?"), {0}, NULL, false},
                             {NDP_ROLE_ASSISTANT, span(""), {0}, NULL, false}};
    check_named(
        *state, "chatml", m, 4,
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[a b<|im_end|>]\n<|im_start|>user\n?<|im_end|>\n"
        "<|im_start|>assistant\n[<|im_end|>]\n");
    check_named(*state, "deepseek-r1", m, 4,
                "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜>[a b<｜end▁of▁sentence｜>]<｜User｜>?<｜Assistant｜>"
                "[<｜end▁of▁sentence｜>]");
    check_named(*state, "plain", m, 4, "Hi\n[a b</s>]?\n[</s>]");
}

static void system_prompts(void **state) {
    const ndp_message late[] = {{NDP_ROLE_USER, span("u"), {0}, NULL, false},
                                {NDP_ROLE_SYSTEM, span("one"), {0}, NULL, false},
                                {NDP_ROLE_SYSTEM, span("two"), {0}, NULL, false}};
    check_named(*state, "deepseek-r1", late, 3, "<｜begin▁of▁sentence｜>two<｜User｜>u");
    check_named(*state, "qwen2.5", late, 2,
                "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
                "<|im_start|>user\nu<|im_end|>\n<|im_start|>system\none<|im_end|>\n");
    check_named(*state, "qwen3", late + 1, 1, "<|im_start|>system\none<|im_end|>\n");
}

/* As their templates treat a chain of thought. */
static void thoughts(void **state) {
    const ndp_message m[] = {{NDP_ROLE_USER, span("1"), {0}, NULL, false},
                             {NDP_ROLE_ASSISTANT, span("<think>\nold\n</think>\n\nA"), {0}, NULL, false},
                             {NDP_ROLE_USER, span("2"), {0}, NULL, false},
                             {NDP_ROLE_ASSISTANT, span("<think>\nnew\n\n</think>\n\nB"), {0}, NULL, false}};
    check_named(*state, "qwen3", m, 4,
                "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n[A<|im_end|>]\n<|im_start|>user\n2<|im_end|>\n"
                "<|im_start|>assistant\n[<think>\nnew\n</think>\n\nB<|im_end|>]\n");
    check_named(*state, "deepseek-r1", m + 2, 2,
                "<｜begin▁of▁sentence｜><｜User｜>2<｜Assistant｜>[\n\nB<｜end▁of▁sentence｜>]");
    const ndp_message given[] = {{NDP_ROLE_USER, span("<tool_response>x</tool_response>"), {0}, NULL, false},
                                 {NDP_ROLE_USER, span("q"), {0}, NULL, false},
                                 {NDP_ROLE_ASSISTANT, span("\nB"), span("\nr\n"), NULL, false},
                                 {NDP_ROLE_USER, span("<tool_response></tool_response>"), {0}, NULL, false},
                                 {NDP_ROLE_ASSISTANT, span("C"), {0}, NULL, false}};
    check_named(
        *state, "qwen3", given, 5,
        "<|im_start|>user\n<tool_response>x</tool_response><|im_end|>\n<|im_start|>user\nq<|im_end|>\n"
        "<|im_start|>assistant\n[<think>\nr\n</think>\n\nB<|im_end|>]\n<|im_start|>user\n"
        "<tool_response></tool_response><|im_end|>\n<|im_start|>assistant\n[<think>\n\n</think>\n\nC<|im_end|>]\n");
}

static void templates_that_are_not_known_are_refused(void **state) {
    ndp_tokenizer *t = tokenizer(*state, CONFIG), *bytes;
    ndp_chat c;
    ndp_rendering r = {0};
    CHECK_FAILS(ndp_chat_init(&c, t, *state, "qwen9", NULL), NDP_EINVAL,
                "'qwen9' is neither a template of the tokenizer");
    CHECK_OK(ndp_chat_init(&c, t, *state, NULL, NULL));
    assert_string_equal(ndp_chat_name(&c), "none");
    CHECK_FAILS(ndp_chat_render(&c, &(ndp_conversation){.messages = NULL, .n = 0}, false, &r), NDP_ENOTSUP,
                "has no chat template; data.chat_template");
    ndp_chat_release(&c);
    ndp_tokenizer_destroy(t);
    t = tokenizer(*state,
                  "{\"chat_template\":[{\"name\":\"tool\",\"template\":\"x\"},{\"name\":\"default\",\"template\":"
                  "\"{{ messages }}\"}]}");
    CHECK_OK(ndp_chat_init(&c, t, *state, NULL, NULL));
    assert_int_equal(strncmp(ndp_chat_name(&c), "jinja ", 6), 0);
    setenv("NDP_PYTHON", "/nowhere/python3", 1);
    CHECK_FAILS(ndp_chat_render(&c, &(ndp_conversation){.messages = NULL, .n = 0}, false, &r), NDP_EINVAL,
                "is not built in: the program that renders chat templates needs Python, and");
    unsetenv("NDP_PYTHON");
    ndp_chat_release(&c);
    CHECK_OK(ndp_chat_init(&c, t, *state, "plain", NULL));
    CHECK_FAILS(ndp_chat_render(&c, &(ndp_conversation){.messages = NULL, .n = 0}, false, &r), NDP_ENOTSUP,
                "end token, and this one has none");
    ndp_chat_release(&c);
    CHECK_OK(ndp_tokenizer_create("bytes", &bytes));
    CHECK_OK(ndp_chat_init(&c, bytes, "bytes", NULL, NULL));
    assert_string_equal(ndp_chat_name(&c), "none");
    ndp_chat_release(&c);
    ndp_tokenizer_destroy(bytes);
    ndp_tokenizer_destroy(t);
    ndp_rendering_release(&r);
}

/* ---- against the templates themselves ---- */

static const char *text_of(struct json_object *o, const char *key) {
    struct json_object *v = json_object_object_get(o, key);
    assert_true(json_object_is_type(v, json_type_string));
    return json_object_get_string(v);
}

static void check_case(const ndp_chat *c, const char *line, size_t n) {
    struct json_object *o;
    ndp_message m[16];
    ndp_rendering r = {0};
    CHECK_OK(ndp_json_parse(line, n, "a case", &o));
    struct json_object *list = json_object_object_get(o, "messages");
    int64_t count = (int64_t)json_object_array_length(list);
    assert_true(count <= NDP_COUNT(m));
    for (int64_t i = 0; i < count; i++) {
        struct json_object *one = json_object_array_get_idx(list, (size_t)i);
        m[i] = (ndp_message){.content = span(text_of(one, "content"))};
        assert_true(ndp_role_of(text_of(one, "role"), &m[i].role));
    }
    bool prompt = json_object_get_boolean(json_object_object_get(o, "add_generation_prompt"));
    CHECK_OK(ndp_chat_render(c, &(ndp_conversation){.messages = m, .n = count}, prompt, &r));
    assert_string_equal(r.text.data, text_of(o, "rendered"));
    ndp_rendering_release(&r);
    json_object_put(o);
}

/* The template's text beside the tokenizer chooses the row; the row renders every case. */
static void conforms(const char *folder, const char *file, const char *name) {
    const char *root = getenv("NDP_TEST_DATA");
    char *jinja, *cases, *path;
    size_t size;
    if (!root) {
        print_message("SKIPPED: NDP_TEST_DATA is not set: nothing to hold %s against\n", name);
        return;
    }
    CHECK_OK(ndp_file_read(path = ndp_format("%s/conformance/chat/%s.jinja", root, file), &jinja, &size));
    free(path);
    ndp_tokenizer *t = tokenizer(folder, CONFIG);
    char *own = write_file(folder, "chat_template.jinja", jinja, size);
    ndp_chat c;
    CHECK_OK(ndp_chat_init(&c, t, folder, NULL, NULL));
    assert_string_equal(ndp_chat_name(&c), name);
    CHECK_OK(ndp_file_read(path = ndp_format("%s/conformance/chat/%s.jsonl", root, file), &cases, &size));
    int n = 0;
    for (char *line = cases, *end; (end = strchr(line, '\n')); line = end + 1, n++)
        check_case(&c, line, (size_t)(end - line));
    assert_int_equal(n, 8);
    ndp_chat_release(&c);
    assert_int_equal(unlink(own), 0);
    ndp_tokenizer_destroy(t);
    free(own);
    free(path);
    free(cases);
    free(jinja);
}

static void equal_to_the_models_templates(void **state) {
    conforms(*state, "qwen2.5-instruct", "qwen2.5");
    conforms(*state, "qwen3-0.6b", "qwen3");
    conforms(*state, "deepseek-r1-distill-llama-8b", "deepseek-r1");
}

/* ---- against what transformers renders with published templates ---- */

/* A tokenizer with these begin and end tokens. */
static ndp_tokenizer *tokenizer_with(const char *folder, const char *bos, const char *eos) {
    char *json = ndp_format("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":["
                            "{\"id\":1,\"content\":\"%s\",\"special\":true,\"single_word\":false,\"lstrip\":false,"
                            "\"rstrip\":false,\"normalized\":false},{\"id\":2,\"content\":\"%s\",\"special\":true,"
                            "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false}]}",
                            bos, eos),
         *config = ndp_format("{\"bos_token\":\"%s\",\"eos_token\":\"%s\"}", bos, eos);
    ndp_tokenizer *t;
    free(write_file(folder, "tokenizer.json", json, strlen(json)));
    free(write_file(folder, "tokenizer_config.json", config, strlen(config)));
    CHECK_OK(ndp_tokenizer_create(folder, &t));
    free(json);
    free(config);
    return t;
}

enum { MOST_MESSAGES = 16 };

static int64_t read_conversation(struct json_object *list, ndp_message *m) {
    int64_t n = (int64_t)json_object_array_length(list);
    assert_true(n <= MOST_MESSAGES);
    for (int64_t i = 0; i < n; i++) {
        struct json_object *one = json_object_array_get_idx(list, (size_t)i);
        m[i] = (ndp_message){.content = span(text_of(one, "content"))};
        assert_true(ndp_role_of(text_of(one, "role"), &m[i].role));
    }
    return n;
}

/* The hash of the text and its ranges to train on, or the reason to refuse the conversation. */
static void check_hash(const ndp_chat *c, struct json_object *list, bool prompt, const char *want) {
    static const char refused[] = "refused: ";
    ndp_message m[MOST_MESSAGES];
    ndp_rendering r = {0};
    int64_t n = read_conversation(list, m);
    if (strncmp(want, refused, strlen(refused)) == 0) {
        CHECK_FAILS(ndp_chat_render(c, &(ndp_conversation){.messages = m, .n = n}, prompt, &r), NDP_EFORMAT,
                    want + strlen(refused));
        ndp_rendering_release(&r);
        return;
    }
    CHECK_OK(ndp_chat_render(c, &(ndp_conversation){.messages = m, .n = n}, prompt, &r));
    for (int64_t i = 0; i < r.n; i++)
        ndp_str_addf(&r.text, " %zu-%zu", r.spans[i].begin, r.spans[i].end);
    char *got = ndp_format("%016llx", (unsigned long long)XXH3_64bits(r.text.data, r.text.length));
    if (strcmp(got, want) != 0)
        fail_msg("%s, %s: %s", ndp_chat_name(c), json_object_to_json_string(list), r.text.data);
    free(got);
    ndp_rendering_release(&r);
}

static void check_whole(const ndp_chat *c, struct json_object *list, const char *want) {
    ndp_message m[MOST_MESSAGES];
    int64_t n = read_conversation(list, m);
    if (strncmp(want, "refused: ", 9) != 0)
        check_rendering(c, m, n, want);
}

static const char *item(struct json_object *line, const char *key, int i) {
    return json_object_get_string(json_object_array_get_idx(json_object_object_get(line, key), (size_t)i));
}

static void check_template(const char *folder, struct json_object *line, struct json_object *const *cases, int n) {
    static const int whole[] = {1, 5, 9};
    const char *name = text_of(line, "template");
    ndp_tokenizer *t = tokenizer_with(folder, text_of(line, "bos"), text_of(line, "eos"));
    ndp_chat c;
    CHECK_OK(ndp_chat_init(&c, t, folder, name, NULL));
    c.date = text_of(line, "date");
    for (int i = 0; item(line, "text_hashes", i); i++)
        assert_ptr_equal(ndp_chat_template_of(strtoull(item(line, "text_hashes", i), NULL, 16)), c.template);
    for (int i = 0; i < n; i++) {
        check_hash(&c, cases[i], false, item(line, "texts", i));
        check_hash(&c, cases[i], true, item(line, "prompts", i));
    }
    assert_null(item(line, "texts", n));
    for (int i = 0; i < NDP_COUNT(whole); i++)
        check_whole(&c, cases[whole[i]], item(line, "whole", i));
    ndp_chat_release(&c);
    ndp_tokenizer_destroy(t);
}

/* The values of a JSONL file of tests/golden/chat. */
static int read_lines(const char *file, struct json_object **out, int most) {
    char *path = ndp_format("%s/tests/golden/chat/%s", getenv("NDP_SOURCE_DIR"), file), *text;
    size_t size;
    int n = 0;
    CHECK_OK(ndp_file_read(path, &text, &size));
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1, n++) {
        assert_true(n < most);
        CHECK_OK(ndp_json_parse(line, (size_t)(end - line), path, &out[n]));
    }
    free(text);
    free(path);
    return n;
}

static void equal_to_transformers(void **state) {
    enum { MOST = 64 };
    struct json_object *cases[MOST], *lines[MOST];
    int n = read_lines("conversations.jsonl", cases, MOST), templates = read_lines("expected.jsonl", lines, MOST);
    assert_true(n >= 30 && templates >= 14);
    for (int i = 0; i < templates; i++)
        check_template(*state, lines[i], cases, n);
    for (int i = 0; i < templates; i++)
        json_object_put(lines[i]);
    for (int i = 0; i < n; i++)
        json_object_put(cases[i]);
}

static void chatml_is_known_by_its_text(void **state) {
    static const char text[] = "{%% for message in messages %%}{{'<|im_start|>' + message['role'] + '%s' + "
                               "message['content'] + '<|im_end|>' + '%s'}}{%% endfor %%}{%% if add_generation_prompt "
                               "%%}{{ '<|im_start|>assistant%s' }}{%% endif %%}%s";
    static const struct {
        const char *begin, *line, *end, *name;
    } cases[] = {{"", "\\n", "", "chatml"},
                 {"", "\n", " \r\n", "chatml"},
                 {"{{ bos_token }}", "\\n", "\n", "chatml-bos"},
                 {"{{bos_token}}", "\\n", "", "jinja"}};
    ndp_tokenizer *t = tokenizer(*state, CONFIG);
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        char *body = ndp_format(text, cases[i].line, cases[i].line, cases[i].line, cases[i].end),
             *jinja = ndp_format("%s%s", cases[i].begin, body);
        char *path = write_file(*state, "chat_template.jinja", jinja, strlen(jinja));
        ndp_chat c;
        CHECK_OK(ndp_chat_init(&c, t, *state, NULL, NULL));
        assert_int_equal(strncmp(ndp_chat_name(&c), cases[i].name, strlen(cases[i].name)), 0);
        ndp_chat_release(&c);
        assert_int_equal(unlink(path), 0);
        free(path);
        free(jinja);
        free(body);
    }
    ndp_tokenizer_destroy(t);
}

static void llama_writes_the_date_that_is_set(void **state) {
    const ndp_message m[] = {{NDP_ROLE_USER, span("Hi"), {0}, NULL, false}};
    ndp_tokenizer *t = tokenizer(*state, CONFIG);
    static const struct {
        const char *name, *date, *want;
    } cases[] = {{"llama3.2", "2026-11-02", "Today Date: 02 Nov 2026\n\n<|eot_id|>"},
                 {"llama3.2", NULL, "Today Date: 26 Jul 2024\n\n<|eot_id|>"},
                 {"llama3.1", "2026-11-02", "Today Date: 26 Jul 2024\n\n<|eot_id|>"}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_chat c;
        ndp_rendering r = {0};
        CHECK_OK(ndp_chat_init(&c, t, *state, cases[i].name, NULL));
        c.date = cases[i].date;
        CHECK_OK(ndp_chat_render(&c, &(ndp_conversation){.messages = m, .n = 1}, true, &r));
        assert_non_null(strstr(r.text.data, cases[i].want));
        ndp_rendering_release(&r);
        ndp_chat_release(&c);
    }
    ndp_tokenizer_destroy(t);
}

static void a_tokenizer_config_chooses_too(void **state) {
    (void)state;
    const char *root = getenv("NDP_TEST_DATA");
    if (!root) {
        print_message("SKIPPED: NDP_TEST_DATA is not set: no tokenizer_config.json with a template\n");
        return;
    }
    char *folder = ndp_format("%s/tokenizers/qwen2.5", root);
    ndp_tokenizer *t;
    ndp_chat c;
    CHECK_OK(ndp_tokenizer_create(folder, &t));
    CHECK_OK(ndp_chat_init(&c, t, folder, NULL, NULL));
    assert_string_equal(ndp_chat_name(&c), "qwen2.5");
    ndp_chat_release(&c);
    ndp_tokenizer_destroy(t);
    free(folder);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_assistant_writes_its_content_and_its_end),
        TEST(system_prompts),
        TEST(thoughts),
        TEST(templates_that_are_not_known_are_refused),
        TEST(equal_to_the_models_templates),
        TEST(equal_to_transformers),
        TEST(chatml_is_known_by_its_text),
        TEST(llama_writes_the_date_that_is_set),
        TEST(a_tokenizer_config_chooses_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
