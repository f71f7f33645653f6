/* The Jinja text of every built-in chat template: it renders the bytes that the row writes, refuses what the row
 * refuses, for the same reason, and beside the same tokenizer it is the row again. Conversations are generated;
 * $NDP_TEST_SEED repeats them. tests/cli/long_chat_templates.sh compares tokens with those of transformers. */
#include "text/chat/chat_table.h"

#include "text/jinja_of.h"
#include "text/talks.h"
#include <time.h>

/* What the Jinja text makes of it is what the row does. */
static void check_same(const ndp_chat *c, ndp_jinja *j, const ndp_conversation *talk, bool prompt, uint64_t seed) {
    ndp_rendering own = {0}, text = {0};
    ndp_status st = ndp_chat_render(c, talk, prompt, &own);
    char *why = st == NDP_OK ? NULL : strdup(ndp_error_message());
    ndp_status other = ndp_jinja_render(j, talk, prompt, &text);
    if (st != other)
        fail_msg("%s, seed %llu: the row %s, the text %s", ndp_chat_name(c), (unsigned long long)seed,
                 why ? why : "renders it", other == NDP_OK ? "renders it" : ndp_error_message());
    if (st == NDP_OK && (own.text.length != text.text.length || memcmp(own.text.data, text.text.data, own.text.length)))
        fail_msg("%s, seed %llu: '%s' by the row, '%s' by the text", ndp_chat_name(c), (unsigned long long)seed,
                 own.text.data, text.text.data);
    if (why) { /* "...: REASON" */
        const char *reason = strstr(ndp_error_message(), "test: ");
        char *plain = strndup(reason + 6, strcspn(reason + 6, "("));
        plain[strcspn(plain, "\n")] = '\0';
        if (!strstr(why, plain))
            fail_msg("%s, seed %llu: the row: %s; the text: %s", ndp_chat_name(c), (unsigned long long)seed, why,
                     plain);
        free(plain);
    }
    free(why);
    ndp_rendering_release(&own);
    ndp_rendering_release(&text);
}

/* A chat with a row, beside a tokenizer that has these tokens. */
typedef struct tokens {
    const char *bos, *eos;
    bool adds_bos;
} tokens;
static const tokens kinds[] = {{"<s>", "</s>", true}, {"<'b\\os'>", "<|eos|>", false}, {"", "<|im_end|>", false}};

static ndp_chat chat_of(const ndp_chat_template *row, const tokens *k, const char *date) {
    return (ndp_chat){.template = row, .bos = span(k->bos), .eos = span(k->eos), .adds_bos = k->adds_bos, .date = date};
}

static ndp_jinja *text_of(const ndp_chat *c) {
    ndp_str text = {0};
    ndp_chat_add_text(c, &text);
    assert_true(!text.failed && text.length);
    ndp_jinja *j = jinja_of(text.data, "1999-12-31"); /* the text has its own date, and its own tokens */
    ndp_str_release(&text);
    return j;
}

static struct json_object *parsed(const char *text) {
    struct json_object *o;
    CHECK_OK(ndp_json_parse(text, strlen(text), "test", &o));
    return o;
}

/* A list of tools, what a tool answers, calls of tools. */
static void check_tools(const ndp_chat *c, ndp_jinja *j) {
    struct json_object *tools = parsed("[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]"),
                       *call = parsed("{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": [{\"id\": 1}]}"),
                       *none = parsed("{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": []}");
    const ndp_message user = {.role = NDP_ROLE_USER, .content = span("u")},
                      answer = {.role = NDP_ROLE_ASSISTANT, .content = span("a")};
    ndp_message plain[] = {user, answer}, calls[] = {user, answer},
                tool[] = {user, answer, {.role = NDP_ROLE_TOOL, .content = span("t")}};
    const ndp_conversation bad[] = {
        {.messages = plain, .n = 2, .tools = tools}, {.messages = tool, .n = 3}, {.messages = calls, .n = 2}};
    ndp_rendering r = {0};
    calls[1].json = call;
    for (int k = 0; k < NDP_COUNT(bad); k++) {
        CHECK_FAILS(ndp_chat_render(c, &bad[k], false, &r), NDP_EFORMAT, "the conversation has tools");
        CHECK_FAILS(ndp_jinja_render(j, &bad[k], false, &r), NDP_EFORMAT, "has no place for tools");
    }
    calls[1].json = none;
    check_same(c, j, &(ndp_conversation){.messages = calls, .n = 2}, false, 0);
    ndp_rendering_release(&r);
    json_object_put(tools);
    json_object_put(call);
    json_object_put(none);
}

static void texts_render_what_rows_render(void **state) {
    (void)state;
    const char *given = getenv("NDP_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 1000;
    int each = short_or_all(100, 1000), step = short_or_all(NDP_COUNT(kinds), 1);
    drawn t;
    need_jinja();
    for (int i = 0; ndp_chat_template_at(i); i++)
        for (int k = i % step; k < NDP_COUNT(kinds); k += step) {
            ndp_chat c = chat_of(ndp_chat_template_at(i), &kinds[k], k ? "2025-02-01" : NULL);
            ndp_jinja *j = text_of(&c);
            for (int n = 0; n < each; n++) {
                draw(&t, seed + (uint64_t)n);
                check_same(&c, j, &(ndp_conversation){.messages = t.messages, .n = t.n}, n & 1, seed + (uint64_t)n);
            }
            check_same(&c, j, &(ndp_conversation){.messages = t.messages, .n = 0}, true, 0);
            check_tools(&c, j);
            ndp_jinja_destroy(j);
        }
}

/* Needs no Jinja: a text that was written is the row again, with or without the tokens of the tokenizer; one that was
 * changed is not. */
static void texts_are_known_again(void **state) {
    (void)state;
    for (int i = 0; ndp_chat_template_at(i); i++)
        for (int k = 0; k <= NDP_COUNT(kinds); k++) {
            const tokens none = {"", "", true}, *of = k < NDP_COUNT(kinds) ? &kinds[k] : &kinds[0];
            ndp_chat c =
                chat_of(ndp_chat_template_at(i), k < NDP_COUNT(kinds) ? of : &none, i & 1 ? "2025-02-01" : NULL);
            ndp_str text = {0}, again = {0};
            ndp_chat_add_text(&c, &text);
            ndp_chat found = chat_of(NULL, of, "2031-12-24"); /* the date is the text's */
            assert_true(ndp_chat_template_find_text(&found, (ndp_span){text.data, text.length}));
            ndp_chat_add_text(&found, &again);
            assert_string_equal(again.data, text.data);
            assert_true(found.bare ? k == NDP_COUNT(kinds) && !found.bos.n && !found.eos.n : found.eos.n > 0);
            ndp_chat_release(&found);
            text.data[text.length / 2] ^= 1;
            found = chat_of(NULL, of, NULL);
            assert_false(ndp_chat_template_find_text(&found, (ndp_span){text.data, text.length}));
            ndp_str_release(&text);
            ndp_str_release(&again);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts_render_what_rows_render),
                                       cmocka_unit_test(texts_are_known_again)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
