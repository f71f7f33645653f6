/* What the assistant wrote in the text of a template that renders an answer in another way once more messages follow,
 * as many of today's do: small templates with one such way each. Skipped where $NDP_PYTHON has no Jinja. */
#include "text/jinja_of.h"

#include "text/bracketed.h"

/* A message in <|s|> and <|e|>, whose content the template before END has written, and a generation prompt. */
#define MESSAGES "{{ bos_token }}{% for m in messages %}<|s|>{{ m.role }}\n"
#define END "<|e|>\n{% endfor %}"
#define PROMPT(text) "{% if add_generation_prompt %}<|s|>assistant\n" text "{% endif %}"
/* Reasoning, in a field or in tags, is kept after the last question alone; there it is written in any case. */
#define RECENT                                                                                                         \
    "{% set ns = namespace(q=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.q = loop.index %}{% "      \
    "endif %}"                                                                                                         \
    "{% endfor %}" MESSAGES "{% set c = m.content %}{% set r = m.reasoning_content or '' %}"                           \
    "{% if m.role == 'assistant' and '</think>' in c %}"                                                               \
    "{% set r = c.split('</think>')[0].split('<think>')[-1] %}{% set c = c.split('</think>')[-1].lstrip('\\n') %}"     \
    "{% endif %}{% if m.role == 'assistant' and loop.index > ns.q %}<think>\n{{ r.strip('\\n') }}\n</think>\n\n"       \
    "{% endif %}{{ c }}" END

#define U(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define A(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define R(why, text) "{\"role\":\"assistant\",\"content\":\"" text "\",\"reasoning_content\":\"" why "\"}"
#define CALL(text)                                                                                                     \
    "{\"role\":\"assistant\",\"content\":\"" text                                                                      \
    "\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"arguments\":{\"x\":1}}}]}"
#define T(text) "{\"role\":\"tool\",\"content\":\"" text "\"}"
#define TWO U("p") "," A("a b") "," U("q") "," A("c")
#define REASONS U("p") "," R("why", "a b") "," U("q") "," R("since", "c")
#define TAGS U("p") "," A("<think>\\nwhy\\n</think>\\n\\na b") "," U("q") "," A("<think>\\nsince\\n</think>\\n\\nc")

enum { MOST = 180 };

static void render(const char *template, const char *messages, ndp_rendering *out) {
    ndp_jinja *j = jinja_of(template, "2024-07-26");
    char *text = ndp_format("[%s]", messages);
    struct json_object *list;
    ndp_message m[MOST];
    CHECK_OK(ndp_json_parse(text, strlen(text), "test", &list));
    int64_t n = (int64_t)json_object_array_length(list);
    assert_true(n <= MOST);
    for (int64_t i = 0; i < n; i++)
        m[i] = (ndp_message){.json = json_object_array_get_idx(list, (size_t)i)};
    CHECK_OK(ndp_jinja_render(j, &(ndp_conversation){.messages = m, .n = n}, false, out));
    json_object_put(list);
    ndp_jinja_destroy(j);
    free(text);
}

/* With [ ] around what the assistant wrote. */
static void check(const char *template, const char *messages, const char *want) {
    ndp_rendering r = {0};
    render(template, messages, &r);
    char *got = bracketed(&r);
    if (r.unsure.length || strcmp(got, want) != 0)
        fail_msg("%s\n%s\n--- got (%s)\n%s\n--- expected\n%s", template, messages, r.unsure.length ? r.unsure.data : "",
                 got, want);
    free(got);
    ndp_rendering_release(&r);
}

static void check_unsure(const char *template, const char *messages, const char *words) {
    ndp_rendering r = {0};
    render(template, messages, &r);
    if (r.n || !r.unsure.length || !strstr(r.unsure.data, words))
        fail_msg("%s\n%s\nexpected '%s', got '%s'", template, messages, words,
                 r.unsure.length ? r.unsure.data : "ranges");
    ndp_rendering_release(&r);
}

static void reasoning_is_kept_after_the_last_question(void **state) {
    (void)state;
    need_jinja();
#define FIRST "<s><|s|>user\np<|e|>\n<|s|>assistant\n[a b<|e|>]\n<|s|>user\nq<|e|>\n<|s|>assistant\n"
    check(RECENT PROMPT(""), TWO, FIRST "[<think>\n\n</think>\n\nc<|e|>]\n");
    check(RECENT PROMPT(""), REASONS, FIRST "[<think>\nsince\n</think>\n\nc<|e|>]\n");
    check(RECENT PROMPT(""), TAGS, FIRST "[<think>\nsince\n</think>\n\nc<|e|>]\n");
    /* a prompt that begins reasoning: it is not what the assistant writes */
    check(RECENT PROMPT("<think>\n"), TAGS, FIRST "<think>\n[since\n</think>\n\nc<|e|>]\n");
    check(RECENT PROMPT("<think>\n"), TWO, FIRST "<think>\n[\n</think>\n\nc<|e|>]\n");
    /* a prompt that leaves it out */
    check(RECENT PROMPT("<think>\n\n</think>\n\n"), REASONS, FIRST "[<think>\nsince\n</think>\n\nc<|e|>]\n");
    check(RECENT PROMPT("<think>\n\n</think>\n\n"), TWO, FIRST "<think>\n\n</think>\n\n[c<|e|>]\n");
    check(RECENT PROMPT(""), U("p") "," R("why", "") "," A("a") "," U("q") "," R("since", "c"),
          "<s><|s|>user\np<|e|>\n<|s|>assistant\n[<|e|>]\n<|s|>assistant\n[a<|e|>]\n<|s|>user\nq<|e|>\n"
          "<|s|>assistant\n[<think>\nsince\n</think>\n\nc<|e|>]\n");
    check(RECENT PROMPT(""),
          U("p") ",{\"role\":\"assistant\",\"content\":\"a b\",\"thinking\":\"why\"}," U("q") "," A("c"),
          FIRST "[<think>\n\n</think>\n\nc<|e|>]\n");
}

static void contents_are_trimmed_equal_or_empty(void **state) {
    (void)state;
    need_jinja();
#define TRIMS "{% if loop.last %}.{% endif %}{{ m.content | trim }}" /* a dot before the last message */
    check(MESSAGES TRIMS END PROMPT(""), U(" p ") "," A(" a b\\n") "," U("q") "," A("\\n c"),
          "<s><|s|>user\np<|e|>\n<|s|>assistant\n[a b<|e|>]\n<|s|>user\nq<|e|>\n<|s|>assistant\n[.c<|e|>]\n");
    check(MESSAGES TRIMS END PROMPT(""), U("y") "," A("y") "," U("y") "," A("y"),
          "<s><|s|>user\ny<|e|>\n<|s|>assistant\n[y<|e|>]\n<|s|>user\ny<|e|>\n<|s|>assistant\n[.y<|e|>]\n");
    check(MESSAGES TRIMS END PROMPT(""), U("p") "," A("") "," U("") "," A(" "),
          "<s><|s|>user\np<|e|>\n<|s|>assistant\n[<|e|>]\n<|s|>user\n<|e|>\n<|s|>assistant\n[.<|e|>]\n");
    check(MESSAGES
          "{% if m.content %}{% if loop.last %}.{% endif %}{{ m.content }}{% else %}nothing{% endif %}" END PROMPT(""),
          U("p") "," A("") "," U("q") "," A("c"),
          "<s><|s|>user\np<|e|>\n<|s|>assistant\n[nothing<|e|>]\n<|s|>user\nq<|e|>\n<|s|>assistant\n[.c<|e|>]\n");
    check(MESSAGES "{% if loop.last %}.{% endif %}{{ m.content | tojson }}" END PROMPT(""),
          U("p") "," A("\\\"é\\\"") "," U("q") "," A("c"),
          "<s><|s|>user\n\"p\"<|e|>\n<|s|>assistant\n[\"\\\"é\\\"\"<|e|>]\n<|s|>user\n\"q\"<|e|>\n<|s|>assistant\n[."
          "\"c\"<|e|>]\n");
    check(MESSAGES "{% if loop.last %}.{% endif %}{% if m.content is string %}{{ m.content }}{% else %}{{ "
                   "m.content[0].text }}{% endif %}" END PROMPT(""),
          U("p") ",{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a b\"}]}," U("q") "," A("c"),
          "<s><|s|>user\np<|e|>\n<|s|>assistant\n[a b<|e|>]\n<|s|>user\nq<|e|>\n<|s|>assistant\n[.c<|e|>]\n");
}

static void prompts_and_ends_differ(void **state) {
    (void)state;
    need_jinja();
    /* the last answer ends with another token */
    check(MESSAGES "{{ m.content }}{% if loop.last %}<|r|>{% else %}<|e|>{% endif %}{% endfor %}" PROMPT(""), TWO,
          "<s><|s|>user\np<|e|><|s|>assistant\n[a b<|e|>]<|s|>user\nq<|e|><|s|>assistant\n[c<|r|>]");
    /* channels, of which the first is kept in the last answer */
    check(MESSAGES
          "{% if m.reasoning_content and loop.last %}<|c|>why<|m|>{{ m.reasoning_content }}<|e|><|s|>assistant\n{% "
          "endif %}"
          "{% if m.role == 'assistant' %}<|c|>final<|m|>{% endif %}{{ m.content }}<|e|>{% endfor %}" PROMPT(""),
          REASONS,
          "<s><|s|>user\np<|e|><|s|>assistant\n[<|c|>final<|m|>a b<|e|>]<|s|>user\nq<|e|><|s|>assistant\n"
          "[<|c|>why<|m|>since<|e|><|s|>assistant\n<|c|>final<|m|>c<|e|>]");
    /* a prompt after all messages, whether one is wanted or not */
    check(
        "{{ bos_token }}{% for m in messages %}<|s|><|{{ m.role }}|>{{ m.content }}<|e|>{% endfor %}<|s|><|assistant|>",
        TWO,
        "<s><|s|><|user|>p<|e|><|s|><|assistant|>[a "
        "b<|e|>]<|s|><|user|>q<|e|><|s|><|assistant|>[c<|e|>]<|s|><|assistant|>");
    /* no prompt, and no end token */
    check("{% for m in messages %}|<{{ m.role }}> {{ m.content }}{% endfor %}", TWO,
          "|<user> p|<assistant>[ a b]|<user> q|<assistant>[ c]");
    /* the system prompt is written before the last question */
    check("{% for m in messages %}{% if m.role == 'user' %}[INST]{% if loop.index + 1 >= messages | length %}{{ "
          "messages[0].content }}/"
          "{% endif %}{{ m.content }}[/INST]{% elif m.role == 'assistant' %}{{ m.content }}</s>{% endif %}{% endfor %}",
          "{\"role\":\"system\",\"content\":\"s\"}," TWO, "[INST]p[/INST][a b</s>][INST]s/q[/INST][c</s>]");
    /* the number of messages comes first */
    check("{{ messages | length }}" MESSAGES "{{ m.content }}" END PROMPT(""), TWO,
          "4<s><|s|>user\np<|e|>\n<|s|>assistant\n[a b<|e|>]\n<|s|>user\nq<|e|>\n<|s|>assistant\n[c<|e|>]\n");
    /* a switch in a question */
    check("{% if '/short' in messages[0].content %}short{% endif %}{{ messages | length }}" MESSAGES
          "{{ m.content }}" END PROMPT(""),
          U("p /short") "," A("a"), "short2<s><|s|>user\np /short<|e|>\n<|s|>assistant\n[a<|e|>]\n");
}

/* Without marks of their own. */
static void empty_answers_follow_each_other(void **state) {
    (void)state;
    need_jinja();
    check(MESSAGES
          "{% if loop.last and m.role == 'assistant' %}.{% endif %}{% if m.content %}!{{ m.content }}{% endif %}" END
              PROMPT(""),
          U("p") "," A("") "," U("") "," A("") "," U("q") "," A("c"),
          "<s><|s|>user\n!p<|e|>\n<|s|>assistant\n[<|e|>]\n<|s|>user\n<|e|>\n<|s|>assistant\n[<|e|>]\n"
          "<|s|>user\n!q<|e|>\n<|s|>assistant\n[.!c<|e|>]\n");
}

/* A template that takes 0.2 s for all messages, which is far from 10 s, is not rendered for each of them. */
static void long_conversations(void **state) {
    static const char slow[] =
        "{% for a in messages %}{% for b in messages %}{% for c in messages %}{% endfor %}"
        "{% endfor %}{% endfor %}" MESSAGES "{% if loop.last %}.{% endif %}{{ m.content }}" END PROMPT("");
    (void)state;
    need_jinja();
    ndp_str all = {0};
    ndp_rendering r = {0};
    for (int i = 0; i < MOST / 2; i++)
        ndp_str_addf(&all, "%s" U("%d") "," A("answer %d"), i ? "," : "", i, i);
    render(slow, all.data, &r);
    if (r.n != MOST / 2)
        fail_msg("%s", r.unsure.data);
    for (int64_t i = 0; i < r.n; i++) {
        char want[32];
        snprintf(want, sizeof want, "%sanswer %d<|e|>", i + 1 == r.n ? "." : "", (int)i);
        assert_int_equal(r.spans[i].end - r.spans[i].begin, strlen(want));
        assert_memory_equal(r.text.data + r.spans[i].begin, want, strlen(want));
    }
    ndp_rendering_release(&r);
    ndp_str_release(&all);
}

#define CALLS                                                                                                          \
    "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }} {{ c.function.arguments | tojson }}</call>{% "       \
    "endfor %}"
#define TALK U("p") "," CALL("") "," T("seen") "," A("a b") "," U("q") "," CALL("see") "," T("again") "," A("c")

static void calls_of_tools_are_written_by_the_assistant(void **state) {
    (void)state;
    need_jinja();
#define SEEN(first, last)                                                                                              \
    "<s><|s|>user\np<|e|>\n<|s|>assistant\n" first "<call>look {\"x\": 1}</call><|e|>]\n<|s|>tool\nseen<|e|>\n"        \
    "<|s|>assistant\n" first "a b<|e|>]\n<|s|>user\nq<|e|>\n<|s|>assistant\n" first                                    \
    "see<call>look {\"x\": 1}</call><|e|>]\n<|s|>tool\nagain<|e|>\n<|s|>assistant\n" last "c<|e|>]\n"
    check(MESSAGES "{% if loop.last %}.{% endif %}{{ m.content }}" CALLS END PROMPT(""), TALK, SEEN("[", "[."));
    check(MESSAGES "{% if loop.last %}<think>\n\n</think>\n\n{% endif %}{{ m.content }}" CALLS END PROMPT("<think>\n"),
          TALK, SEEN("[", "<think>\n[\n</think>\n\n"));
    /* without a prompt of its own, a call begins where a content would */
    check("{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% elif m.role == 'tool' "
          "%}[SEEN]{{ m.content }}[/SEEN]"
          "{% else %}{% if m.tool_calls %}[CALLS]" CALLS
          "{% else %}{% if loop.last %} {% endif %} {{ m.content }}{% endif %}</s>{% endif %}{% endfor %}",
          TALK,
          "[INST]p[/INST][[CALLS]<call>look {\"x\": 1}</call></s>][SEEN]seen[/SEEN][ a b</s>][INST]q[/INST]"
          "[[CALLS]<call>look {\"x\": 1}</call></s>][SEEN]again[/SEEN][  c</s>]");
    /* an answer of a tool names it again */
    check(MESSAGES "{% if loop.last %}.{% endif %}{% if m.role == 'tool' %}{{ messages[loop.index0 - "
                   "1].tool_calls[0].function.name }}:{% endif %}"
                   "{{ m.content }}" CALLS END PROMPT(""),
          U("p") "," CALL("") "," T("seen") "," A("c"),
          "<s><|s|>user\np<|e|>\n<|s|>assistant\n[<call>look {\"x\": 1}</call><|e|>]\n<|s|>tool\nlook:seen<|e|>\n"
          "<|s|>assistant\n[.c<|e|>]\n");
}

/* Nothing is trained on rather than something that another one wrote. */
static void what_is_not_certain_stays_so(void **state) {
    (void)state;
    need_jinja();
    check_unsure("{{ messages[-1].content | length }}" MESSAGES "{{ m.content }}" END PROMPT(""), TWO,
                 "the template depends on what is in the messages");
    check_unsure("{{ messages | length }}" MESSAGES "{{ m.content | upper }}" END PROMPT(""), TWO,
                 "message 2: the template leaves it out");
    check_unsure(MESSAGES "{% for p in m.content %}{{ p.text }}{% endfor %}" END PROMPT(""), TWO,
                 "it may expect a list, {\"content\": [{\"type\": \"text\", \"text\": ...}]}");
    check_unsure("{{ messages | length }}" MESSAGES "{{ m.content }}{{ m.content }}" END PROMPT(""), TWO,
                 "message 2: the template writes it more than once");
    check_unsure("{{ bos_token }}{% for m in messages[::-1] %}<|s|>{{ m.role }}\n{{ m.content }}" END PROMPT(""), TWO,
                 "message 2: the template writes it after later ones");
    /* an answer of a tool, in the middle of the message that calls it */
    check_unsure("{{ messages | length }}{% for m in messages %}{% if m.role != 'tool' %}<|s|>{{ m.role }}\n" CALLS
                 "{% if m.tool_calls %}<seen>{{ messages[loop.index].content }}</seen>{% endif %}{{ m.content }}<|e|>\n"
                 "{% endif %}{% endfor %}" PROMPT(""),
                 U("p") "," CALL("see") "," T("seen") "," A("c"), "message 2: ");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(reasoning_is_kept_after_the_last_question),
                                       cmocka_unit_test(contents_are_trimmed_equal_or_empty),
                                       cmocka_unit_test(prompts_and_ends_differ),
                                       cmocka_unit_test(calls_of_tools_are_written_by_the_assistant),
                                       cmocka_unit_test(what_is_not_certain_stays_so),
                                       cmocka_unit_test(empty_answers_follow_each_other),
                                       cmocka_unit_test(long_conversations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
