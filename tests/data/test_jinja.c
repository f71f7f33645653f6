/* Templates that Jinja renders: byte for byte what transformers gives (tests/golden/chat/jinja.jsonl, and the file
 * NDP_JINJA_CASES of the same form; ids of such a file are those of the tokenizer NDP_JINJA_TOKENIZER), what the
 * assistant wrote, and templates and processes that misbehave. Skipped where $NDP_PYTHON, or /usr/bin/python3, has no
 * Jinja. */
#include "text/jinja_of.h"

#include "data/corpus/encode.h"

#include "base/python.h"
#include "data/folder.h"
#include "text/bracketed.h"

#include <omp.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- against transformers ---- */

enum { MOST_MESSAGES = 16 };

static int64_t read_messages(struct json_object *list, ndp_message *m) {
    int64_t n = (int64_t)json_object_array_length(list);
    assert_true(n <= MOST_MESSAGES);
    for (int64_t i = 0; i < n; i++)
        m[i] = (ndp_message){.json = json_object_array_get_idx(list, (size_t)i)};
    return n;
}

static const char *text_of(struct json_object *o, const char *key) {
    return json_object_get_string(json_object_object_get(o, key));
}

static bool same_spans(struct json_object *want, const ndp_rendering *r) {
    int64_t n = 0;
    for (size_t i = 0; i < json_object_array_length(want); i++) {
        struct json_object *one = json_object_array_get_idx(want, i);
        int64_t begin = json_object_get_int64(json_object_array_get_idx(one, 0)),
                end = json_object_get_int64(json_object_array_get_idx(one, 1));
        if (begin == end)
            continue;
        if (n == r->n || (int64_t)r->spans[n].begin != begin || (int64_t)r->spans[n].end != end)
            return false;
        n++;
    }
    return n == r->n;
}

/* What was compared, and with what. */
typedef struct tally {
    const ndp_tokenizer *tokenizer; /* NULL: ids are not compared */
    int64_t templates, texts, refused, unsure, spans, answers, ids, masks;
} tally;

static bool is_between(struct json_object *pair, size_t place) {
    return json_object_get_int64(json_object_array_get_idx(pair, 0)) <= (int64_t)place &&
           (int64_t)place <= json_object_get_int64(json_object_array_get_idx(pair, 1));
}

/* Each answer begins and ends between two places; one without any text has no range. */
static bool same_answers(struct json_object *want, const ndp_rendering *r) {
    int64_t n = 0;
    for (size_t i = 0; i < json_object_array_length(want); i++) {
        struct json_object *begin = json_object_array_get_idx(json_object_array_get_idx(want, i), 0),
                           *end = json_object_array_get_idx(json_object_array_get_idx(want, i), 1);
        if (json_object_equal(begin, end) &&
            is_between(begin, json_object_get_int64(json_object_array_get_idx(end, 1))))
            continue;
        if (n == r->n || !is_between(begin, r->spans[n].begin) || !is_between(end, r->spans[n].end))
            return false;
        n++;
    }
    return n == r->n;
}

/* -1 in a mask is a token that crosses the end of an answer: it is not trained on (encode.h), and is by transformers.
 */
static bool same_list(struct json_object *want, const int32_t *got, int64_t n) {
    bool same = (int64_t)json_object_array_length(want) == n;
    for (int64_t i = 0; same && i < n; i++) {
        int32_t one = json_object_get_int(json_object_array_get_idx(want, (size_t)i));
        same = (one == -1 ? 0 : one) == got[i];
    }
    return same;
}

/* The ids of the text, and which of them are trained on. */
static void check_ids(const char *name, struct json_object *o, const ndp_rendering *r, tally *t) {
    struct json_object *ids = json_object_object_get(o, "ids"), *mask = json_object_object_get(o, "mask");
    const ndp_document d = {.text = r->text.data,
                            .n = r->text.length,
                            .rendered = true,
                            .partly = true,
                            .spans = r->spans,
                            .n_spans = r->n};
    ndp_ids got = {0};
    ndp_places borders = {0};
    CHECK_OK(ndp_encode_document(t->tokenizer, &d, NULL, &got, &borders, NULL));
    int32_t *trained = calloc((size_t)got.n + 1, sizeof *trained);
    assert_non_null(trained);
    for (int64_t i = 0; i + 1 < borders.n; i += 2)
        for (int64_t k = borders.items[i]; k < borders.items[i + 1]; k++)
            trained[k] = 1;
    if (!same_list(ids, got.items, got.n))
        fail_msg("%s: %s: other ids", name, json_object_to_json_string(o));
    if (mask && !same_list(mask, trained, got.n))
        fail_msg("%s: %s: another mask", name, json_object_to_json_string(o));
    t->ids++;
    t->masks += mask != NULL;
    free(trained);
    free(borders.items);
    ndp_ids_release(&got);
}

static void check_written(const char *name, struct json_object *o, const ndp_rendering *r, tally *t) {
    struct json_object *spans = json_object_object_get(o, "spans"), *answers = json_object_object_get(o, "answers");
    t->texts++;
    t->unsure += r->unsure.length > 0 && (spans || answers);
    t->spans += spans != NULL;
    t->answers += answers && !r->unsure.length;
    if (spans && (r->unsure.length || !same_spans(spans, r)))
        fail_msg("%s: %s: other spans, %lld (%s)", name, json_object_to_json_string(o), (long long)r->n,
                 r->unsure.length ? r->unsure.data : "");
    if (answers && !r->unsure.length && !same_answers(answers, r)) {
        char *got = bracketed(r);
        fail_msg("%s: %s: other answers:\n%s", name, json_object_to_json_string(o), got);
    }
    if (t->tokenizer && json_object_object_get(o, "ids") && !r->unsure.length)
        check_ids(name, o, r, t);
}

/* An error of Python's own (TypeError, ...) counts as a refusal, whatever its text. */
static void check_case(ndp_jinja *j, const char *name, struct json_object *o, tally *t) {
    ndp_message m[MOST_MESSAGES];
    ndp_rendering r = {0};
    const ndp_conversation c = {.messages = m,
                                .n = read_messages(json_object_object_get(o, "messages"), m),
                                .tools = json_object_object_get(o, "tools")};
    ndp_status st = ndp_jinja_render(j, &c, json_object_get_boolean(json_object_object_get(o, "prompt")), &r);
    const char *text = text_of(o, "text"), *refused = text_of(o, "refused");
    if (refused && (st != NDP_EFORMAT || !strstr(ndp_error_message(), refused)))
        fail_msg("%s: %s: expected '%s', got '%s'", name, json_object_to_json_string(o), refused,
                 st == NDP_OK ? r.text.data : ndp_error_message());
    if (text && (st != NDP_OK || strcmp(r.text.data, text) != 0))
        fail_msg("%s: %s\n--- got\n%s", name, json_object_to_json_string(o),
                 st == NDP_OK ? r.text.data : ndp_error_message());
    t->refused += refused != NULL;
    if (text)
        check_written(name, o, &r, t);
    ndp_rendering_release(&r);
}

static void check_line(struct json_object *line, tally *t) {
    struct json_object *cases = json_object_object_get(line, "cases");
    ndp_jinja *j;
    const char *template = text_of(line, "template");
    CHECK_OK(ndp_jinja_create("the chat template of test", span(template), json_object_object_get(line, "variables"),
                              json_object_object_get(line, "special"), text_of(line, "date"), &j));
    for (size_t i = 0; i < json_object_array_length(cases); i++)
        check_case(j, text_of(line, "name"), json_object_array_get_idx(cases, i), t);
    ndp_jinja_destroy(j);
    t->templates++;
}

static void check_file(const char *path, const char *tokenizer) {
    char *text;
    size_t size;
    ndp_tokenizer *own = NULL;
    tally t = {0};
    CHECK_OK(ndp_file_read(path, &text, &size));
    if (tokenizer)
        CHECK_OK(ndp_tokenizer_create(tokenizer, &own));
    t.tokenizer = own;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        struct json_object *o;
        CHECK_OK(ndp_json_parse(line, (size_t)(end - line), path, &o));
        check_line(o, &t);
        json_object_put(o);
    }
    free(text);
    ndp_tokenizer_destroy(own);
    printf(
        "%lld templates: %lld texts and %lld refusals equal to those of transformers; equal: the marked parts of %lld, "
        "the answers of %lld, the ids of %lld, the masks of %lld; not certain: %lld\n",
        (long long)t.templates, (long long)t.texts, (long long)t.refused, (long long)t.spans, (long long)t.answers,
        (long long)t.ids, (long long)t.masks, (long long)t.unsure);
    assert_true(t.templates > 0 && t.texts > 5 * t.templates);
    assert_true(t.answers == 0 || 100 * t.unsure <= t.texts);
}

static void equal_to_transformers(void **state) {
    (void)state;
    need_jinja();
    char *path = ndp_format("%s/tests/golden/chat/jinja.jsonl", getenv("NDP_SOURCE_DIR"));
    check_file(path, NULL);
    free(path);
    if (getenv("NDP_JINJA_CASES"))
        check_file(getenv("NDP_JINJA_CASES"), getenv("NDP_JINJA_TOKENIZER"));
}

/* ---- what the assistant wrote ---- */

static const ndp_message talk[] = {{.role = NDP_ROLE_USER, .content = {"Grüße", 7}},
                                   {.role = NDP_ROLE_ASSISTANT, .content = {"a b", 3}},
                                   {.role = NDP_ROLE_USER, .content = {"?", 1}},
                                   {.role = NDP_ROLE_ASSISTANT, .content = {"c", 1}}};

/* With [ ] around it; `unsure`: words of the reason why it is not known. */
static void check_spans(const char *template, const char *want, const char *unsure) {
    ndp_jinja *j = jinja_of(template, "2024-07-26");
    ndp_rendering r = {0};
    CHECK_OK(ndp_jinja_render(j, &(ndp_conversation){.messages = talk, .n = 4}, false, &r));
    char *got = bracketed(&r);
    assert_string_equal(got, want);
    free(got);
    if (unsure)
        assert_non_null(strstr(r.unsure.data ? r.unsure.data : "", unsure));
    else
        assert_int_equal(r.unsure.length, 0);
    ndp_rendering_release(&r);
    ndp_jinja_destroy(j);
}

#define EACH "{% for m in messages %}"
#define PROMPT "{% if add_generation_prompt %}<a>{% endif %}"

static void what_the_assistant_wrote(void **state) {
    (void)state;
    need_jinja();
    check_spans(EACH "<{{ m.role[0] }}>{{ m.content }}</s>\n{% endfor %}" PROMPT,
                "<u>Grüße</s>\n<a>[a b</s>]\n<u>?</s>\n<a>[c</s>]\n", NULL);
    check_spans(EACH "<{{ m.role[0] }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
                     "{% else %}{{ m.content }}{% endif %}{{ '\\n' }}{% endfor %}",
                "<u>Grüße\n<a>[a b]\n<u>?\n<a>[c]\n", NULL);
    check_spans(EACH "<{{ m.role[0] }}>{{ m.content }}{% endfor %}", "<u>Grüße<a>[a b]<u>?<a>[c]", NULL);
    check_spans(EACH "{{ m.content }}{{ ' ' if m.role == 'user' else eos_token }}{% endfor %}",
                "Grüße [a b</s>]? [c</s>]", NULL);
    check_spans(EACH "<{{ m.role[0] }}>{{ m.content }}.{% endfor %}"
                     "{% if add_generation_prompt %}<a>{% else %}{{ eos_token }}{% endif %}",
                "<u>Grüße.<a>[a b.]<u>?.<a>[c.</s>]", NULL);
    /* the length of the last message comes first: other contents make another text */
    check_spans("{{ messages[-1].content | length }}" EACH "{{ m.content }}{% endfor %}", "1Grüßea b?c",
                "the template depends on what is in the messages");
    /* what is written is changed after the block */
    check_spans("{% set x %}" EACH
                "{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}{% endset %}{{ x | upper }}"
                "{{ x | length }}",
                "GRÜSSEA B?C10", "{% generation %}");
}

/* ---- templates that misbehave ---- */

static void check_misbehaves(const char *template, ndp_status code, const char *words) {
    ndp_jinja *j = jinja_of(template, "2024-07-26");
    ndp_rendering r = {0};
    CHECK_FAILS(ndp_jinja_render(j, &(ndp_conversation){.messages = talk, .n = 4}, false, &r), code, words);
    assert_non_null(strstr(ndp_error_message(), "the chat template of test"));
    ndp_rendering_release(&r);
    ndp_jinja_destroy(j);
}

static void limits(void **state) {
    (void)state;
    need_jinja();
    check_misbehaves("{{ 'a' * 10**9 }}", NDP_EFORMAT, "too much memory");
    check_misbehaves("{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}", NDP_EFORMAT, "characters of text");
    check_misbehaves("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", NDP_EINVAL,
                     "more than 10 s of CPU time");
    check_misbehaves("{{ ''.__class__.__mro__ }}", NDP_EFORMAT, "unsafe");
    check_misbehaves("{{ raise_exception('No, ' ~ messages[0].role) }}", NDP_EFORMAT, "No, user");
    check_misbehaves("{% if %}", NDP_EFORMAT, "line 1 of the template");
    check_misbehaves("{{ messages[9].role }}", NDP_EFORMAT, "no element 9");
}

/* ---- processes ---- */

/* A program instead of Python. */
static char *script(const char *folder, const char *body) {
    char *text = ndp_format("#!/bin/sh\n%s\n", body), *path = write_file(folder, "python", text, strlen(text));
    assert_int_equal(chmod(path, 0700), 0);
    setenv("NDP_PYTHON", path, 1);
    free(text);
    return path;
}

static void processes_that_fail(void **state) {
    static const struct {
        const char *body, *words;
        ndp_status code;
    } cases[] = {{"exit 77", "needs Jinja, and", NDP_EINVAL},
                 {"echo why >&2; exit 3", "ended with exit code 3: why", NDP_EIO},
                 {"kill -9 $$", "was killed by signal 9", NDP_EIO},
                 {"head -c 20 >/dev/null; printf 'abc'; exit 0", "has ended", NDP_EIO},
                 {"head -c 20 >/dev/null; printf '\\003\\000\\000\\000\\000\\000\\000\\000abc'; cat >/dev/null",
                  "unexpected character", NDP_EFORMAT}};
    const char *kept = getenv("NDP_PYTHON");
    char *before = kept ? strdup(kept) : NULL;
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        char *path = script(*state, cases[i].body);
        ndp_jinja *j = jinja_of("x", "2024-07-26");
        ndp_rendering r = {0};
        CHECK_FAILS(ndp_jinja_render(j, &(ndp_conversation){.messages = talk, .n = 4}, false, &r), cases[i].code,
                    cases[i].words);
        ndp_rendering_release(&r);
        ndp_jinja_destroy(j);
        free(path);
    }
    setenv("NDP_PYTHON", "/nowhere/python3", 1);
    check_misbehaves("x", NDP_EINVAL, "/nowhere/python3");
    before ? setenv("NDP_PYTHON", before, 1) : unsetenv("NDP_PYTHON");
    free(before);
}

/* Renders with `python` executed before the program. */
static void check_within(const char *folder, const char *python, ndp_status code, const char *words) {
    char *body = ndp_format("exec /usr/bin/python3 -I -c 'import sys\n%s\nexec(sys.argv[1])' \"$3\"", python),
         *path = script(folder, body);
    check_misbehaves("x", code, words);
    free(path);
    free(body);
}

static void installations_that_cannot_render(void **state) {
    need_jinja();
    const char *kept = getenv("NDP_PYTHON");
    char *before = kept ? strdup(kept) : NULL;
    check_within(*state, "sys.modules[\"jinja2\"] = None", NDP_EINVAL, "apt install python3-jinja2, or set NDP_PYTHON");
    check_within(*state,
                 "import jinja2, jinja2.sandbox\njinja2.__version__ = \"3.1.4\"\n"
                 "jinja2.sandbox.SandboxedEnvironment.wrap_str_format = lambda self, value: None",
                 NDP_EFORMAT, "Jinja 3.1.4");
    free(script(*state, "exec 3<&0\n/usr/bin/python3 \"$@\" <&3 &\nsleep 1\nkill -9 $!\nkill -9 $$"));
    check_misbehaves("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", NDP_EIO,
                     "was killed by signal 9");
    /* Lower limits of the system stay. */
    free(script(*state, "ulimit -t 3; ulimit -v 400000; exec /usr/bin/python3 \"$@\""));
    check_spans("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
                "[Grüße][a b][?][c]", NULL);
    check_misbehaves("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", NDP_EINVAL,
                     "CPU time");
    before ? setenv("NDP_PYTHON", before, 1) : unsetenv("NDP_PYTHON");
    free(before);
}

/* The date and the version are part of the key. */
static void today_is_the_day_that_is_set(void **state) {
    static const char *const dates[] = {"2024-07-26", "2026-11-02"}, *const want[] = {"26 Jul 2024", "02 Nov 2026"};
    (void)state;
    need_jinja();
    ndp_str keys[2] = {0};
    for (int i = 0; i < 2; i++) {
        ndp_jinja *j = jinja_of("{{ strftime_now('%d %b %Y') }}", dates[i]);
        ndp_rendering r = {0};
        ndp_str said = {0};
        CHECK_OK(ndp_jinja_render(j, &(ndp_conversation){.messages = talk, .n = 1}, true, &r));
        assert_string_equal(r.text.data, want[i]);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), 0); /* the process waits for what is next */
        CHECK_OK(ndp_jinja_add_key(j, &keys[i]));
        ndp_jinja_describe(j, &said);
        assert_non_null(strstr(said.data, "the chat template of test, rendered by jinja 3"));
        assert_non_null(strstr(said.data, dates[i]));
        ndp_str_release(&said);
        ndp_rendering_release(&r);
        ndp_jinja_destroy(j);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no process is left */
    }
    assert_int_equal(strncmp(keys[0].data, "jinja 3", 7), 0);
    assert_string_not_equal(keys[0].data, keys[1].data);
    ndp_str_release(&keys[0]);
    ndp_str_release(&keys[1]);
}

/* Each thread has a process of its own; all of them begin at once, with a first request that takes long to write. */
static void threads_render_at_the_same_time(void **state) {
    (void)state;
    need_jinja();
    ndp_str template = {0};
    for (int k = 0; k < 20000; k++)
        ndp_str_add(&template, "{# a / b #}");
    ndp_str_add(&template, EACH "{{ m.content }}{% endfor %}");
    ndp_jinja *j = jinja_of(template.data, "2024-07-26");
    int wrong = 0;
#pragma omp parallel num_threads(4) reduction(+ : wrong)
    for (int k = 0; k < 20; k++) {
        char own[32];
        snprintf(own, sizeof own, "thread %d, %d", omp_get_thread_num(), k);
        const ndp_message m = {.role = NDP_ROLE_USER, .content = span(own)};
        ndp_rendering r = {0};
        wrong += ndp_jinja_render(j, &(ndp_conversation){.messages = &m, .n = 1}, false, &r) != NDP_OK ||
                 strcmp(r.text.data, own) != 0;
        ndp_rendering_release(&r);
    }
    assert_int_equal(wrong, 0);
    ndp_jinja_destroy(j);
    ndp_str_release(&template);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_to_transformers),
        cmocka_unit_test(what_the_assistant_wrote),
        cmocka_unit_test(limits),
        cmocka_unit_test_setup_teardown(processes_that_fail, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(installations_that_cannot_render, make_folder, remove_folder),
        cmocka_unit_test(today_is_the_day_that_is_set),
        cmocka_unit_test(threads_render_at_the_same_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
