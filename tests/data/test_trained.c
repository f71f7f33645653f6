/* Messages with a weight or a flag that says whether they are trained on, and fields that continue a question. */
#include "data/record_files.h"

#include "base/python.h"

#define TURN(role, content, more) "{\"role\":\"" role "\",\"content\":\"" content "\"" more "}"
#define TWO(first, second)                                                                                             \
    "{\"messages\":[" TURN("user", "a", "") "," TURN("assistant", "b", first) "," TURN("user", "d", "") "," TURN(      \
        "assistant", "e", second) "]}"

#define ROOT(more) "{\"messages\":[" TURN("user", "a", "") "," TURN("assistant", "b", "") "]" more "}"

static void answers_of_weight_0_are_context(void **state) {
    const fixture *f = *state;
    ndp_record_format plain = {.chat = &f->plain};
    static const struct {
        const char *record, *want;
    } cases[] = {
        {TWO("", ""), "<s>a/[b</s>]d/[e</s>] | 1"},
        {TWO(",\"weight\":0", ",\"weight\":1"), "<s>a/b</s>d/[e</s>] | 1"},
        {TWO(",\"weight\":1.0", ",\"weight\":0.0"), "<s>a/[b</s>]d/e</s> | 1"},
        {TWO(",\"train\":false", ",\"train\":true"), "<s>a/b</s>d/[e</s>] | 1"},
        {TWO(",\"train\":0", ",\"weight\":null"), "<s>a/b</s>d/[e</s>] | 1"},
        {TWO(",\"train\":true,\"weight\":0", ""), "<s>a/b</s>d/[e</s>] | 1"},
        {"{\"messages\":[" TURN("system", "s", ",\"weight\":0") "," TURN(
             "user", "a", ",\"train\":false,\"weight\":1") "," TURN("assistant", "b", "") "]}",
         "<s>s/a/[b</s>] | 1"},
        {"{\"messages\":[{\"from\":\"human\",\"value\":\"a\"},{\"from\":\"gpt\",\"value\":\"b\",\"weight\":0},"
         "{\"from\":\"gpt\",\"value\":\"c\"}]}",
         "<s>a/b</s>[c</s>] | 1"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++)
        CHECK_FILE(f, "a.jsonl", cases[i].record, plain, cases[i].want);
    /* Marks of other programs, and those of a whole record. */
    static const char *const marks[] = {"train", "training", "trainable", "loss", "weight", "loss_weight", "loss_mask"};
    for (int i = 0; i < NDP_COUNT(marks); i++)
        for (int value = 0; value < 2; value++) {
            char *mark = ndp_format(",\"%s\":%s", marks[i], value ? "0" : "0.0"),
                 *record = ndp_format("{\"messages\":[" TURN("user", "a", "%s") "," TURN(
                                          "assistant", "b", "%s") "," TURN("assistant", "e", ",\"%s\":1") "]}",
                                      mark, mark, marks[i]);
            CHECK_FILE(f, "a.jsonl", record, plain, "<s>a/b</s>[e</s>] | 1");
            free(record);
            free(mark);
        }
    static const char *const masks[] = {"[0,0,1]", "[1,0,1]", "[false,false,true]", "\"[0, 0, 1]\""};
    for (int i = 0; i < NDP_COUNT(masks); i++) {
        char *record = ndp_format("{\"messages\":[" TURN("user", "a", "") "," TURN("assistant", "b", "") "," TURN(
                                      "assistant", "e", "") "],\"loss_mask\":%s}",
                                  masks[i]);
        CHECK_FILE(f, "a.jsonl", record, plain, "<s>a/b</s>[e</s>] | 1");
        free(record);
    }
    CHECK_FILE(f, "a.jsonl", TWO(",\"learn\":false,\"train\":false", ",\"train\":false"),
               ((ndp_record_format){.chat = &f->plain, .train = "learn"}), "<s>a/b</s>d/[e</s>] | 1");
}

static void other_weights_are_refused(void **state) {
    const fixture *f = *state;
    ndp_record_format plain = {.chat = &f->plain}, all = {.chat = &f->plain, .train_all = true};
    static const struct {
        const char *record, *says;
    } cases[] = {
        {TWO(",\"weight\":0.5", ""), "a.jsonl:1: message 2 has 'weight': 0.5; a message is trained on (1 or true)"},
        {TWO(",\"weight\":-1", ""), "message 2 has 'weight': -1"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a\",\"train\":false}]}]}",
         "part 1 of the content of message 1 has 'train': false; only whole messages are left out"},
        {TWO(",\"train\":\"no\"", ""), "message 2 has 'train': \"no\""},
        {TWO(",\"loss_weight\":0.25", ""), "message 2 has 'loss_weight': 0.25; a message is trained on (1 or true)"},
        {TWO(",\"mask\":1", ""), "message 2 has 'mask', which is not read: in some data it marks what is trained on"},
        {TWO(",\"function_call\":{\"name\":\"f\"}", ""),
         "message 2 has 'function_call', which is not read: write it as"},
        {TWO(",\"images\":[\"a.png\"]", ""), "message 2 has 'images', which is not read: images, videos and sound"},
        {ROOT(",\"loss_mask\":[0,1,1]"), "a.jsonl:1: 'loss_mask' has 3 items for 2 messages"},
        {ROOT(",\"loss_mask\":[0,0.5]"), "message 2 has 'loss_mask': 0.5"},
        {ROOT(",\"loss_mask\":\"answers\""), "a.jsonl:1: loss_mask is the text 'answers', which is not JSON"},
        {ROOT(",\"loss_mask\":{\"a\":1}"), "a.jsonl:1: loss_mask is an object, expected a list with 0 or 1"},
        {ROOT(",\"loss_mask\":[0,0]"), "all messages of the assistant are marked as not trained on"},
        {ROOT(",\"mask\":\"User\""), "the record has 'mask', which is not read"},
        {ROOT(",\"label\":false"), "the record has 'label': false, an answer that is not wanted"},
        {ROOT(",\"images\":[\"a.png\"]"), "the record has 'images', which is not read: images, videos and sound"},
        {ROOT(",\"image\":\"a.png\""), "the record has 'image', which is not read"},
        {ROOT(",\"functions\":[{\"name\":\"f\"}]"),
         "the record has 'functions', which is not read: write them as 'tools'"},
        {"{\"prompt\":\"a\",\"completion\":\"b\",\"label\":false}", "'label': false, an answer that is not wanted"},
        {"{\"instruction\":\"a\",\"output\":\"b\",\"loss_mask\":[1]}", "'loss_mask' is read where a record has a list"},
        {"{\"messages\":[" TURN("user", "<image>\\nWhat is it?", "") "," TURN("assistant", "b", "") "]}",
         "the text of message 1 begins or ends with the placeholder <image>"},
        {TWO(",\"weight\":0", ",\"train\":false"), "all messages of the assistant are marked as not trained on"},
        {"{\"messages\":[" TURN("user", "a", ",\"train\":true") "," TURN("assistant", "b", "") "]}",
         "message 1 is of the role user and has 'train': true"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++)
        check_refused(f, "a.jsonl", cases[i].record, strlen(cases[i].record), plain, NDP_EFORMAT, cases[i].says);
    check_refused(f, "a.jsonl", TWO(",\"weight\":0", ""), strlen(TWO(",\"weight\":0", "")), all, NDP_EFORMAT,
                  "has 'weight': 0, but data.train_on: all trains on everything");
    CHECK_FILE(f, "a.jsonl", TWO(",\"weight\":1", ",\"train\":true"), all, "[<s>a/b</s>d/e</s>] | 1");
}

/* Where later questions begin, as letters of the text: after each answer, trained on or not, that the user follows. */
static void check_questions(const fixture *f, const char *record, const char *want) {
    char *file = write_file(f->folder, "q.jsonl", record, strlen(record)), *path, word[8];
    ndp_dataset_options o = {.files = (const char *const[]){file},
                             .n_files = 1,
                             .format = {.chat = &f->plain},
                             .cache_dir = f->folder,
                             .tokenizer = f->t};
    ndp_token_cache c;
    ndp_str got = {0};
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    CHECK_OK(ndp_token_cache_open(path, &c));
    for (int64_t i = 0; i < c.n_questions; i++)
        ndp_str_add(&got, cache_word(&c, (int64_t)c.questions[i], word));
    assert_string_equal(got.data ? got.data : "", want);
    ndp_str_release(&got);
    ndp_token_cache_close(&c);
    free(path);
    free(file);
}

static void questions_begin_after_answers(void **state) {
    const fixture *f = *state;
    check_questions(f, TWO("", ""), "d");
    check_questions(f, TWO(",\"weight\":0", ""), "d");
    check_questions(f, TWO(",\"weight\":0", "") "\n" TWO("", ",\"train\":false"), "dd");
    check_questions(f, ROOT(""), "");
    check_questions(f, "{\"text\":\"abc\"}", "");
    /* two answers to one question, and two questions before one answer */
    check_questions(
        f,
        "{\"messages\":[" TURN("user", "a", "") "," TURN("assistant", "b", "") "," TURN("assistant", "c", "") "," TURN(
            "user", "d", "") "," TURN("user", "e", "") "," TURN("assistant", "f", "") "]}",
        "d");
}

/* ---- templates that Jinja renders ---- */

static ndp_chat chat_of(const fixture *f, const char *template) {
    ndp_chat chat;
    char *path = write_file(f->folder, "own.jinja", template, strlen(template));
    CHECK_OK(ndp_chat_init(&chat, f->t, f->folder, path, NULL));
    free(path);
    return chat;
}

static void check_template(const fixture *f, const char *template, const char *record, const char *want) {
    ndp_chat chat = chat_of(f, template);
    ndp_str key = {0};
    bool jinja = ndp_chat_add_key(&chat, &key) == NDP_OK && chat.jinja && strncmp(key.data, "jinja ", 6) == 0;
    ndp_str_release(&key);
    if (jinja && want)
        CHECK_FILE(f, "a.jsonl", record, ((ndp_record_format){.chat = &chat}), want);
    else if (jinja)
        check_refused(f, "a.jsonl", record, strlen(record), (ndp_record_format){.chat = &chat}, NDP_EFORMAT,
                      "it is not certain which message each part of the text is from");
    else
        print_message("SKIPPED: no Jinja\n");
    ndp_chat_release(&chat);
}

static void ranges_of_a_template_belong_to_messages(void **state) {
    const fixture *f = *state;
    static const char
        marked[] = "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content | trim }}</s>{% "
                   "endgeneration %}"
                   "{% else %}{{ m.content }}:{% endif %}{% endfor %}",
        last_only[] =
            "{% for m in messages %}{% if m.role == 'assistant' and loop.last %}{% generation %}{{ m.content }}"
            "{% endgeneration %}{% else %}{{ m.content }}:{% endif %}{% endfor %}",
        plain[] = "{% for m in messages %}{% if m.role == 'assistant' %}={{ m.content }}</s>{% else %}{{ m.content }}"
                  "{% endif %}{% endfor %}{% if add_generation_prompt %}={% endif %}";
    check_template(f, marked, TWO(",\"weight\":0", ""), "a:b</s>d:[e</s>] | 1");
    check_template(f, marked, TWO("", ",\"train\":false"), "a:[b</s>]d:e</s> | 1");
    check_template(f, plain, TWO(",\"weight\":0", ""), "a=b</s>d=[e</s>] | 1");
    check_template(f, last_only, TWO(",\"weight\":0", ""), NULL);
}

/* ---- questions ---- */

static void a_context_continues_the_question(void **state) {
    const fixture *f = *state;
    ndp_record_format plain = {.chat = &f->plain};
    CHECK_FILE(f, "a.jsonl", "{\"instruction\":\"a\",\"context\":\"b\",\"response\":\"c\",\"category\":\"d\"}", plain,
               "<s>a//b/[c</s>] | 1");
    CHECK_FILE(f, "a.jsonl", "{\"instruction\":\"a\",\"context\":\"\",\"response\":\"c\"}", plain, "<s>a/[c</s>] | 1");
    CHECK_FILE(f, "a.jsonl", "{\"instruction\":\"a\",\"input\":\"x\",\"context\":\"b\",\"response\":\"c\"}", plain,
               "<s>a//x/[c</s>] | 1");
    CHECK_FILE(f, "a.jsonl", "{\"instruction\":\"a\",\"context\":\"b\",\"response\":\"c\"}",
               ((ndp_record_format){.chat = &f->plain, .input = "more"}), "<s>a/[c</s>] | 1");
}

/* Reasoning also has older names. */
static void reasoning_by_any_name(void **state) {
    const fixture *f = *state;
    ndp_chat chat;
    CHECK_OK(ndp_chat_init(&chat, f->t, f->folder, "qwen3", NULL));
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    char *words[3];
    for (int i = 0; i < 3; i++) {
        char *record = ndp_format(
            "{\"messages\":[" TURN("user", "a", "") ",{\"role\":\"assistant\",\"content\":\"b\",\"%s\":\"why\"}]}",
            names[i]);
        words[i] = words_of_file(f, record, strlen(record), (ndp_record_format){.chat = &chat});
        assert_non_null(strstr(words[i], "why"));
        assert_string_equal(words[i], words[0]);
        free(record);
    }
    for (int i = 0; i < 3; i++)
        free(words[i]);
    ndp_chat_release(&chat);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_of_weight_0_are_context), cmocka_unit_test(other_weights_are_refused),
        cmocka_unit_test(questions_begin_after_answers),   cmocka_unit_test(ranges_of_a_template_belong_to_messages),
        cmocka_unit_test(reasoning_by_any_name),           cmocka_unit_test(a_context_continues_the_question)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
