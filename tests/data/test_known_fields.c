/* Fields beside the texts of a conversation have types before a template sees them: in whatever form a data set holds
 * one, the text is the same. Skipped where Jinja is missing, but for built-in templates. */
#include "text/jinja_of.h"
#include "data/record_files.h"

#define TEMPLATE                                                                                                       \
    "{{ bos_token }}{% for t in tools or [] %}{t {{ t.function.name }}{{ t.function.parameters | tojson }}}{% endfor " \
    "%}"                                                                                                               \
    "{% for d in documents or [] %}{d {{ d.text }}}{% endfor %}{% if plain %}{p}{% endif %}"                           \
    "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}"                                    \
    "{c {{ c.function.name }}{{ c.function.arguments | tojson }}}{% endfor %}{{ eos_token if m.role == 'assistant' }}" \
    "{% endfor %}"

#define USER "{\"role\":\"user\",\"content\":\"a\"}"
#define PLAIN "\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"b\"}]"
/* A call with these arguments, and its list as a value. */
#define CALL(arguments) "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":" arguments "}}"
#define CALLS(value) "\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":" value "}]"
#define TOOL(parameters) "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":" parameters "}}"
/* The same as texts of JSON. */
#define CALL_TEXT                                                                                                      \
    "{\\\"type\\\":\\\"function\\\",\\\"function\\\":{\\\"name\\\":\\\"f\\\",\\\"arguments\\\":{\\\"x\\\":1}}}"
#define TOOL_TEXT                                                                                                      \
    "{\\\"type\\\":\\\"function\\\",\\\"function\\\":{\\\"name\\\":\\\"f\\\",\\\"parameters\\\":{\\\"type\\\":"        \
    "\\\"object\\\"}}}"

typedef struct known_case {
    const char *record, *same; /* as this record; NULL: refused */
    const char *says;
} known_case;

static const known_case cases[] = {
    /* tools */
    {PLAIN ",\"tools\":\"[" TOOL_TEXT "]\"", PLAIN ",\"tools\":[" TOOL("{\"type\":\"object\"}") "]", NULL},
    {PLAIN ",\"tools\":[\"" TOOL_TEXT "\"]", PLAIN ",\"tools\":[" TOOL("{\"type\":\"object\"}") "]", NULL},
    {PLAIN ",\"tools\":[" TOOL("\"{\\\"type\\\":\\\"object\\\"}\"") "]",
     PLAIN ",\"tools\":[" TOOL("{\"type\":\"object\"}") "]", NULL},
    {PLAIN ",\"tools\":[]", PLAIN, NULL},
    {PLAIN ",\"tools\":{}", PLAIN, NULL},
    {PLAIN ",\"tools\":\"\"", PLAIN, NULL},
    {PLAIN ",\"tools\":\"[]\"", PLAIN, NULL},
    {PLAIN ",\"tools\":\"null\"", PLAIN, NULL},
    {PLAIN ",\"tools\":null", PLAIN, NULL},
    {PLAIN ",\"tools\":\"search\"", NULL, "'tools' is the text 'search', which is not JSON"},
    {PLAIN ",\"tools\":" TOOL("{}"), NULL, "'tools' is an object, expected a list"},
    {PLAIN ",\"tools\":\"" TOOL_TEXT "\"", NULL, "'tools' is an object, expected a list"},
    {PLAIN ",\"tools\":7", NULL, "'tools' is a number, expected a list"},
    {PLAIN ",\"tools\":[\"search\"]", NULL, "item 1 of 'tools' is the text 'search', which is not JSON"},
    {PLAIN ",\"tools\":[[]]", NULL, "item 1 of 'tools' is a list, expected an object"},
    {PLAIN ",\"tools\":[{\"x\":1}]", NULL, "has no 'function' with a 'name', so it is not the schema of a tool"},
    {PLAIN ",\"tools\":[" TOOL("\"all\"") "]", NULL, "'parameters' of 'function' of item 1 of 'tools'"},
    /* calls */
    {CALLS("\"[" CALL_TEXT "]\""), CALLS("[" CALL("{\"x\":1}") "]"), NULL},
    {CALLS("[\"" CALL_TEXT "\"]"), CALLS("[" CALL("{\"x\":1}") "]"), NULL},
    {CALLS("[" CALL("\"{\\\"x\\\": 1}\"") "]"), CALLS("[" CALL("{\"x\":1}") "]"), NULL},
    {CALLS("[" CALL("\"{}\"") "]"), CALLS("[" CALL("{}") "]"), NULL},
    {CALLS("[" CALL("\"\"") "]"), CALLS("[" CALL("{}") "]"), NULL},
    {CALLS("[" CALL("null") "]"), CALLS("[" CALL("{}") "]"), NULL},
    {CALLS("[" CALL("\"x is 1\"") "]"), NULL, "'arguments' of 'function' of item 1 of 'tool_calls' of message 2"},
    {CALLS("[" CALL("[1]") "]"), NULL, "is a list, expected an object"},
    {CALLS("[" CALL("\"[1]\"") "]"), NULL, "is a list, expected an object"},
    {CALLS("\"f\""), NULL, "'tool_calls' of message 2 is the text 'f', which is not JSON"},
    {"\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"b\",\"tool_calls\":\"[]\"}]", PLAIN, NULL},
    /* documents, and variables of the template */
    {PLAIN ",\"documents\":\"[{\\\"text\\\":\\\"d\\\"}]\"", PLAIN ",\"documents\":[{\"text\":\"d\"}]", NULL},
    {PLAIN ",\"documents\":[]", PLAIN, NULL},
    {PLAIN ",\"documents\":\"d\"", NULL, "'documents' is the text 'd', which is not JSON"},
    {PLAIN ",\"chat_template_kwargs\":\"{\\\"plain\\\": true}\"", PLAIN ",\"chat_template_kwargs\":{\"plain\":true}",
     NULL},
    {PLAIN ",\"chat_template_kwargs\":{}", PLAIN, NULL},
    {PLAIN ",\"chat_template_kwargs\":[1]", NULL, "'chat_template_kwargs' is a list, expected an object"},
    {PLAIN ",\"chat_template_kwargs\":{\"messages\":[]}", NULL, "'messages', which is the program's to set"},
};

static char *whole(const char *members) { return ndp_format("{%s}", members); }

static void check_case(const fixture *f, const ndp_chat *chat, const known_case *k) {
    char *record = whole(k->record), *same = k->same ? whole(k->same) : NULL;
    const ndp_record_format format = {.chat = chat};
    if (same) {
        char *want = words_of_file(f, same, strlen(same), format);
        CHECK_FILE(f, "a.jsonl", record, format, want);
        free(want);
    } else
        check_refused(f, "a.jsonl", record, strlen(record), format, NDP_EFORMAT, k->says);
    free(same);
    free(record);
}

static void forms_make_no_difference(void **state) {
    const fixture *f = *state;
    ndp_chat chat;
    need_jinja();
    char *path = write_file(f->folder, "own.jinja", TEMPLATE, strlen(TEMPLATE));
    CHECK_OK(ndp_chat_init(&chat, f->t, f->folder, path, NULL));
    for (int i = 0; i < NDP_COUNT(cases); i++)
        check_case(f, &chat, &cases[i]);
    /* and what the template sees of them */
    static const known_case shown[] = {
        {PLAIN ",\"tools\":\"[" TOOL_TEXT "]\"", NULL, "{t f{\"type\": \"object\"}}"},
        {CALLS("[" CALL("\"{\\\"x\\\": 1}\"") "]"), NULL, "{c f{\"x\": 1}}"},
        {PLAIN ",\"documents\":\"[{\\\"text\\\":\\\"d\\\"}]\"", NULL, "{d d}"},
        {PLAIN ",\"chat_template_kwargs\":\"{\\\"plain\\\": true}\"", NULL, "{p}"},
    };
    for (int i = 0; i < NDP_COUNT(shown); i++) {
        char *record = whole(shown[i].record),
             *words = words_of_file(f, record, strlen(record), (ndp_record_format){.chat = &chat, .train_all = true});
        ndp_str letters = {0}; /* words are letters, with a slash between two that are apart */
        for (const char *c = words; *c; c++)
            if (*c != '/')
                ndp_str_add_bytes(&letters, c, 1);
        if (!strstr(letters.data, shown[i].says))
            fail_msg("%s: no %s in %s", record, shown[i].says, letters.data);
        ndp_str_release(&letters);
        free(words);
        free(record);
    }
    ndp_chat_release(&chat);
    free(path);
}

/* Some templates write arguments as the text that they are in the data. */
static void templates_that_want_texts(void **state) {
    const fixture *f = *state;
    static const char text[] = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
                               "{{ c.function.name + c.function.arguments }}{% endfor %}{{ eos_token }}{% endfor %}";
    ndp_chat chat;
    need_jinja();
    char *path = write_file(f->folder, "own.jinja", text, strlen(text)),
         *record = whole(CALLS("[" CALL("\"{\\\"x\\\": 1}\"") "]")), *object = whole(CALLS("[" CALL("{\"x\":1}") "]"));
    CHECK_OK(ndp_chat_init(&chat, f->t, f->folder, path, NULL));
    CHECK_FILE(f, "a.jsonl", record, (ndp_record_format){.chat = &chat}, "a</s>[f{\"x\": 1}</s>] | 1");
    check_refused(f, "a.jsonl", object, strlen(object), (ndp_record_format){.chat = &chat}, NDP_EFORMAT, "TypeError");
    ndp_chat_release(&chat);
    free(object);
    free(record);
    free(path);
}

/* A built-in template has no place for tools, and takes empty ones. */
static void built_in_templates(void **state) {
    const fixture *f = *state;
    static const char *const empty[] = {"[]", "{}", "\"\"", "\"[]\"", "\"{}\"", "null"};
    for (int i = 0; i < NDP_COUNT(empty); i++) {
        char *record = ndp_format("{" PLAIN ",\"tools\":%s,\"documents\":%s}", empty[i], empty[i]);
        CHECK_FILE(f, "a.jsonl", record, ((ndp_record_format){.chat = &f->plain}), "<s>a/[b</s>] | 1");
        free(record);
    }
    static const char documents[] = "{" PLAIN ",\"documents\":[{\"text\":\"d\"}]}";
    check_refused(f, "a.jsonl", documents, strlen(documents), (ndp_record_format){.chat = &f->plain}, NDP_EFORMAT,
                  "the conversation has 'documents', which the built-in chat template plain does not read");
}

/* TRL's prompts and completions, and ShareGPT's usual field. */
static void records_that_auto_reads(void **state) {
    const fixture *f = *state;
    const ndp_record_format plain = {.chat = &f->plain};
    CHECK_FILE(f, "a.jsonl", "{\"prompt\":\"a\",\"completion\":\"b\"}", plain, "<s>a[b] | 1");
    CHECK_FILE(f, "a.jsonl", "{\"prompt\":[" USER "],\"completion\":[{\"role\":\"assistant\",\"content\":\"b\"}]}",
               plain, "<s>a/[b</s>] | 1");
    CHECK_FILE(f, "a.jsonl",
               "{\"prompt\":[" USER ",{\"role\":\"assistant\",\"content\":\"d\"}," USER
               "],\"completion\":[{\"role\":\"assistant\",\"content\":\"b\"}]}",
               plain, "<s>a/d</s>a/[b</s>] | 1");
    CHECK_FILE(f, "a.jsonl",
               "{\"conversations\":[{\"from\":\"human\",\"value\":\"a\"},{\"from\":\"gpt\",\"value\":\"b\"}]}", plain,
               "<s>a/[b</s>] | 1");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {TEST(forms_make_no_difference), TEST(templates_that_want_texts),
                                       TEST(built_in_templates), TEST(records_that_auto_reads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
