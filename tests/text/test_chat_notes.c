/* Notes on templates that fit a tokenizer badly. */
#include "text/chat/chat_notes.h"

#include "data/folder.h"
#include "text/jinja_of.h"

/* A tokenizer with these special tokens, from id 1 on, of which the first is its end token (""; none). */
static ndp_tokenizer *tokenizer(const char *folder, const char *end, const char *const *tokens, int n) {
    ndp_str json = {0};
    ndp_tokenizer *t;
    ndp_str_add(&json, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[");
    for (int i = 0; i < n; i++)
        ndp_str_addf(&json,
                     "%s{\"id\":%d,\"content\":\"%s\",\"special\":true,\"single_word\":false,\"lstrip\":false,"
                     "\"rstrip\":false,\"normalized\":false}",
                     i ? "," : "", i + 1, tokens[i]);
    ndp_str_add(&json, "]}");
    char *config = *end ? ndp_format("{\"eos_token\":\"%s\"}", end) : strdup("{}");
    free(write_file(folder, "tokenizer.json", json.data, json.length));
    free(write_file(folder, "tokenizer_config.json", config, strlen(config)));
    free(config);
    ndp_str_release(&json);
    CHECK_OK(ndp_tokenizer_create(folder, &t));
    return t;
}

/* `template`: what data.chat_template names. `says`: words of the notes, "" if there are none; otherwise one line. */
static void check_notes(const char *folder, const ndp_tokenizer *t, const char *template, const char *says) {
    ndp_chat c;
    ndp_str notes = {0};
    CHECK_OK(ndp_chat_init(&c, t, folder, template, NULL));
    ndp_chat_add_notes(&c, t, folder, &notes);
    const char *got = notes.data ? notes.data : "";
    if (*says ? !strstr(got, says) || strchr(got, '\n') != got + strlen(got) - 1 : *got != 0)
        fail_msg("%s: expected '%s', got '%s'", template ? template : "its own", says, got);
    ndp_str_release(&notes);
    ndp_chat_release(&c);
}

static const char *const chatml[] = {"</s>", "<|im_start|>", "<|im_end|>"}, *const llama[] = {
                                                                                "</s>", "<|start_header_id|>",
                                                                                "<|end_header_id|>", "<|eot_id|>"};

static void tokens_that_the_tokenizer_does_not_have(void **state) {
    const char *folder = *state;
    ndp_tokenizer *t = tokenizer(folder, "</s>", chatml, 1);
    check_notes(folder, t, "chatml",
                "does not have the tokens <|im_start|>, <|im_end|>, which the chat template chatml writes, so they are "
                "trained on as plain text; data.chat_template: plain writes none of them");
    check_notes(folder, t, "plain", "");
    ndp_tokenizer_destroy(t);
    t = tokenizer(folder, "", chatml, 2);
    check_notes(folder, t, "chatml",
                "the tokens <|im_end|>, which the chat template chatml writes, so they are trained "
                "on as plain text; set data.tokenizer to one that has them");
    ndp_tokenizer_destroy(t);
    t = tokenizer(folder, "</s>", llama, 4);
    check_notes(folder, t, "qwen3", "data.chat_template: llama3 writes tokens that it has");
    check_notes(folder, t, "llama3", "");
    char *own = write_file(folder, "chat_template.jinja", "x", 1);
    check_notes(folder, t, "chatml", "without data.chat_template, the tokenizer's own template is used");
    assert_int_equal(unlink(own), 0);
    free(own);
    ndp_tokenizer_destroy(t);
    t = tokenizer(folder, "</s>", chatml, 3);
    check_notes(folder, t, "chatml", "");
    check_notes(folder, t, "qwen3", ""); /* <think> may be a text */
    ndp_tokenizer_destroy(t);
}

#define EACH "{% for m in messages %}"
#define PROMPT "{% if add_generation_prompt %}<|assistant|>{% endif %}"

static void answers_without_an_end(void **state) {
    const char *folder = *state;
    need_jinja();
    static const struct {
        const char *template, *says;
    } cases[] = {
        {EACH "<|{{ m.role }}|>\n{{ m.content }}{% endfor %}" PROMPT,
         "no end token after an answer, so the model is not trained to stop; set data.chat_template to a file "
         "PATH.jinja, a copy of the template with {{ eos_token }} (</s>) after the content of the assistant"},
        {EACH "<|{{ m.role }}|>\n{{ m.content }}\n{% endfor %}" PROMPT, "no end token after an answer"},
        {EACH "<|{{ m.role }}|>\n{{ m.content }}{{ eos_token }}\n{% endfor %}" PROMPT, ""},
        {EACH "{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% else %}={% endif %}{% endfor %}", ""},
        {EACH "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% endif %}{% endfor %}",
         "no end token after an answer"},
        {EACH "{{ m.content }}{% if m.role == 'assistant' %}{% generation %}{{ eos_token }}{% endgeneration %}"
              "{% endif %}{% endfor %}",
         "blocks of the chat template leave out the content of an answer, so it is not trained on"},
        /* TRL's for phi3: the last block is the end token alone */
        {EACH "<|{{ m.role }}|>{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|end|>\\n' }}"
              "{% endgeneration %}{% else %}{{ m.content + '<|end|>\\n' }}{% endif %}{% endfor %}"
              "{% if add_generation_prompt %}<|assistant|>{% else %}{% generation %}{{ eos_token }}{% endgeneration %}"
              "{% endif %}",
         ""},
        /* not certain: refused later, with what it may expect */
        {EACH "<|{{ m.role }}|>{% for p in m.content %}{{ p.text }}{% endfor %}</s>{% endfor %}" PROMPT, ""},
        {"{{ raise_exception('no') }}", ""},
        {"{{ messages[1].content[0] }}" EACH "{{ m.content }}{% endfor %}", ""}, /* not certain: refused later */
    };
    ndp_tokenizer *t = tokenizer(folder, "</s>", chatml, 1);
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        free(write_file(folder, "chat_template.jinja", cases[i].template, strlen(cases[i].template)));
        check_notes(folder, t, NULL, cases[i].says);
    }
    ndp_tokenizer_destroy(t);
    t = tokenizer(folder, "</s>", llama, 4);
    free(write_file(folder, "chat_template.jinja", cases[0].template, strlen(cases[0].template)));
    check_notes(folder, t, NULL, "is not trained to stop; data.chat_template: llama3 does");
    ndp_tokenizer_destroy(t);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {TEST(tokens_that_the_tokenizer_does_not_have), TEST(answers_without_an_end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
