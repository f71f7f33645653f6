/* Stop strings, conversations (ndp_dialog), and the prompts of a file in batches (ndp_generate_file). */
#include "train/tiny_model.h"

#include "base/json_write.h"
#include "base/json.h"
#include "infer/stops.h"
#include "ndparallel/ndparallel.h"

/* ---- stop strings ---- */

/* Passes pieces, separated by '|' in `pieces`; what came out, with '|' after each piece and '!' after a stop. */
static void check_stops(const char *const *strings, int n, const char *pieces, const char *want) {
    ndp_stops s;
    ndp_str out = {0}, text = {0};
    bool stopped = false;
    CHECK_OK(ndp_stops_init(&s, strings, n));
    for (const char *at = pieces; !stopped && at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        text.length = 0;
        ndp_str_add_bytes(&text, at, strcspn(at, "|"));
        CHECK_OK(ndp_stops_pass(&s, &text, !strchr(at, '|'), &stopped));
        ndp_str_addf(&out, "%s%s", text.data, stopped ? "!" : "|");
    }
    assert_string_equal(out.data, want);
    ndp_str_release(&out);
    ndp_str_release(&text);
    ndp_stops_release(&s);
}

#define STOPS(pieces, want, ...)                                                                                       \
    check_stops((const char *const[]){__VA_ARGS__}, NDP_COUNT(((const char *const[]){__VA_ARGS__})), pieces, want)

static void stop_strings_end_a_text(void **state) {
    (void)state;
    STOPS("ab|cEND|x", "ab|c!", "END");
    STOPS("abE|N|Dx", "ab||!", "END");         /* over several tokens: no part of it is passed on */
    STOPS("abE|N|o|EN", "ab||ENo|EN|", "END"); /* what did not become one is passed on, and at the end everything */
    STOPS("aab|x", "|aabx|", "aabc", "aabd");
    STOPS("xyz", "x!", "z", "yz"); /* the one that begins first */
    STOPS("a\xc3\xa9|b",
          "a|\xc3\xa9"
          "b|",
          "\xc3\xa9"
          "END");
    ndp_stops s;
    CHECK_FAILS(ndp_stops_init(&s, (const char *const[]){""}, 1), NDP_EINVAL, "stop string is empty");
    CHECK_FAILS(ndp_stops_init(&s, (const char *const[]){"\xff"}, 1), NDP_EINVAL, "not UTF-8");
}

/* ---- the model ---- */

typedef struct heard {
    ndp_str text, lines;
    int64_t tokens, most; /* stops after so many; 0: never */
} heard;

static bool hear(void *user, int32_t id, const char *text) {
    heard *h = user;
    (void)id;
    ndp_str_add(&h->text, text);
    return ++h->tokens != h->most;
}

static bool hear_line(void *user, const char *line, size_t length) {
    heard *h = user;
    ndp_str_add_bytes(&h->lines, line, length);
    ndp_str_add(&h->lines, "\n");
    return ++h->tokens != h->most;
}

static void forget(heard *h) {
    ndp_str_release(&h->text);
    ndp_str_release(&h->lines);
    *h = (heard){0};
}

static ndp_generate_opts options(const char *folder, int max_tokens) {
    ndp_generate_opts o = NDP_GENERATE_OPTS_INIT;
    o.model = folder, o.max_tokens = max_tokens, o.threads = 2, o.chat_template = "chatml";
    return o;
}

static void generate_ends_before_a_stop_string(void **state) {
    ndp_generate_opts o = options(*state, 20);
    heard all = {0}, cut = {0};
    o.prompt = "abc";
    CHECK_OK(ndp_generate(&o, hear, &all));
    assert_true(all.text.length > 12);
    char stop[4] = {0};
    size_t at = 4;
    while (((unsigned char)all.text.data[at] & 0xc0) == 0x80)
        at++;
    memcpy(stop, all.text.data + at, 3);
    while (ndp_utf8_valid_prefix(stop, strlen(stop)) < strlen(stop))
        stop[strlen(stop) - 1] = '\0';
    const char *first = strstr(all.text.data, stop);
    o.stop = (const char *const[]){"never said", stop}, o.stop_count = 2;
    CHECK_OK(ndp_generate(&o, hear, &cut));
    assert_int_equal(cut.text.length, first - all.text.data);
    assert_memory_equal(cut.text.data, all.text.data, cut.text.length);
    assert_true(cut.tokens < all.tokens);
    forget(&all);
    forget(&cut);
}

/* ---- files ---- */

static char *write_prompts(const char *folder, const char *text) {
    tiny_write(folder, "prompts.jsonl", text);
    return ndp_format("%s/prompts.jsonl", folder);
}

static char *generate_file(const ndp_generate_opts *o, const char *path, int batch) {
    heard h = {0};
    ndp_generated done;
    CHECK_OK(ndp_generate_file(o, path, batch, hear_line, &h, &done));
    assert_int_equal(done.prompts, h.tokens);
    return ndp_str_detach(&h.lines);
}

static const char several[] =
    "{\"prompt\": \"a\"}\n{\"prompt\": \"\", \"id\": [1, \"x\"]}\n\n{\"prompt\": \"A prompt of more than sixty-four "
    "tokens, "
    "which takes two chunks of the graph.\"}\n{\"prompt\": \"abc\"}\r\n{\"messages\": [{\"role\": \"user\", "
    "\"content\": "
    "\"hi\"}]}\n{\"prompt\": \"0123456789012345678901234567890123456789012345678901234567890123\"}\n{\"prompt\": "
    "\"a\"}";

/* Texts end after different numbers of tokens, so slots change hands. */
static void results_do_not_depend_on_the_batch(void **state) {
    char *path = write_prompts(*state, several);
    heard h = {0};
    ndp_generate_opts o = options(*state, 60);
    ndp_str ends = {0};
    for (int id = 5; id < 256; id += 25)
        ndp_str_addf(&ends, "%s%d", ends.length ? ", " : "{\"eos_token_id\": [", id);
    ndp_str_add(&ends, "]}");
    tiny_write(*state, "generation_config.json", ends.data);
    ndp_str_release(&ends);
    for (int sampled = 0; sampled < 2; sampled++) {
        o.temperature = sampled;
        char *one = generate_file(&o, path, 1);
        for (int batch = 0; batch < 9; batch++) {
            char *many = generate_file(&o, path, batch);
            assert_string_equal(many, one);
            free(many);
        }
        assert_non_null(strstr(one, "{\"index\": 1, \"id\": [1,\"x\"], \"text\": \""));
        assert_non_null(strstr(one, "\"finish\": \"stop\"}"));
        o.prompt = "a"; /* record 0 is what generate says */
        CHECK_OK(ndp_generate(&o, hear, &h));
        ndp_str quoted = {0};
        ndp_json_quote(&quoted, h.text.data);
        assert_non_null(strstr(one, quoted.data));
        ndp_str_release(&quoted);
        forget(&h);
        free(one);
    }
    heard first = {.most = 2};
    ndp_generated done;
    CHECK_OK(ndp_generate_file(&o, path, 3, hear_line, &first, &done));
    assert_int_equal(first.tokens, 2); /* emit returned false */
    forget(&first);
    free(path);
}

static void bad_records_are_named(void **state) {
    static const struct {
        ndp_status status;
        const char *text, *message;
    } bad[] = {
        {NDP_EFORMAT, "{\"prompt\": \"a\"}\n{\"text\": \"b\"}", "prompts.jsonl:2: the record has neither"},
        {NDP_EFORMAT, "{\"prompt\": \"a\"}\n\n{\"prompt\": 3}", "prompts.jsonl:3: 'prompt' is not a string"},
        {NDP_EFORMAT, "{\"prompt\": \"a\"", "prompts.jsonl:1:"},
        {NDP_EFORMAT, "[1]", "prompts.jsonl:1: the record is not an object"},
        {NDP_EINVAL, "\n", "there are no records"},
        {NDP_EFORMAT,
         "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": "
         "\"b\"}]}",
         "prompts.jsonl:1: the last message is the assistant's"},
        {NDP_EFORMAT, "{\"messages\": [{\"role\": \"stranger\", \"content\": \"a\"}]}", "prompts.jsonl:1: message 1"}};
    ndp_generate_opts o = options(*state, 4);
    ndp_generated done;
    heard h = {0};
    for (int i = 0; i < NDP_COUNT(bad); i++) {
        char *path = write_prompts(*state, bad[i].text);
        CHECK_FAILS(ndp_generate_file(&o, path, 2, hear_line, &h, &done), bad[i].status, bad[i].message);
        free(path);
    }
    char *longest = ndp_format("{\"prompt\": \"a\"}\n{\"prompt\": \"%0200d\"}", 0),
         *path = write_prompts(*state, longest);
    CHECK_FAILS(ndp_generate_file(&o, path, 2, hear_line, &h, &done), NDP_EINVAL,
                "prompts.jsonl:2: the prompt has 201 tokens");
    assert_int_equal(h.tokens, 0);
    free(longest);
    free(path);
}

/* ---- conversations ---- */

static ndp_reply ask(ndp_dialog *d, const char *message, heard *h) {
    ndp_reply r;
    h->text.length = 0;
    h->tokens = 0;
    CHECK_OK(ndp_dialog_ask(d, message, hear, h, &r));
    assert_int_equal(r.tokens, h->tokens);
    return r;
}

/* The second answer of a conversation, by a model that reads all of it anew. */
static char *answer_anew(const ndp_generate_opts *o, const char *first, const char *answer, const char *second) {
    ndp_str line = {0};
    ndp_str_addf(
        &line,
        "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}, {\"role\": \"assistant\", \"content\": ", first);
    ndp_json_quote(&line, answer);
    ndp_str_addf(&line, "}, {\"role\": \"user\", \"content\": \"%s\"}]}", second);
    char *path = write_prompts(o->model, line.data), *result = generate_file(o, path, 1);
    ndp_str_release(&line);
    free(path);
    return result;
}

static void a_turn_computes_only_what_is_new(void **state) {
    ndp_generate_opts o = options(*state, 8);
    ndp_dialog *d;
    heard h = {0};
    CHECK_OK(ndp_dialog_create(&o, NULL, 0, &d));
    ndp_reply first = ask(d, "hi", &h);
    assert_int_equal(first.reused, 0);
    char *said = strdup(h.text.data);
    ndp_reply second = ask(d, "more", &h);
    assert_true(second.reused >= first.computed);
    assert_int_equal(second.room, TINY_LONGEST - second.reused - second.computed - second.tokens);
    char *anew = answer_anew(&o, "hi", said, "more");
    ndp_str quoted = {0};
    ndp_json_quote(&quoted, h.text.data);
    assert_non_null(strstr(anew, quoted.data));
    ndp_dialog_reset(d);
    ndp_reply again = ask(d, "hi", &h);
    assert_string_equal(h.text.data, said);
    assert_int_equal(again.reused + again.computed, first.computed);
    assert_int_equal(again.computed, 1); /* the same words: only the last token is needed */
    ndp_str_release(&quoted);
    free(anew);
    free(said);
    forget(&h);
    ndp_dialog_destroy(d);
}

static void a_full_context_drops_nothing(void **state) {
    ndp_generate_opts o = options(*state, 100);
    ndp_dialog *d;
    heard h = {.most = 5};
    ndp_reply r;
    CHECK_OK(ndp_dialog_create(&o, "Be kind.", 150, &d));
    assert_int_equal(ask(d, "hi", &h).finish, NDP_FINISH_CANCELLED);
    int64_t tokens = 0;
    for (int i = 0; i < 2; i++) { /* the failed turn leaves no trace */
        CHECK_FAILS(ndp_dialog_ask(d, "a message that is too long for what is left of the context", hear, &h, &r),
                    NDP_EINVAL, "tokens with this message, and the context 150: nothing was dropped");
        int64_t now = atoll(strstr(ndp_error_message(), "has ") + 4);
        assert_true(now > 150 && (i == 0 || now == tokens));
        tokens = now;
    }
    ndp_dialog_reset(d);
    h.most = 0;
    assert_int_equal(ask(d, "hi", &h).finish, NDP_FINISH_LENGTH); /* the answer fills the context */
    forget(&h);
    ndp_dialog_destroy(d);
}

static void models_without_a_template_are_refused(void **state) {
    ndp_generate_opts o = options(*state, 8);
    ndp_dialog *d = NULL;
    o.chat_template = NULL;
    CHECK_FAILS(ndp_dialog_create(&o, NULL, 0, &d), NDP_EINVAL, "no chat template");
    assert_non_null(strstr(ndp_error_message(), "--chat-template"));
    o.chat_template = "nonsense";
    CHECK_FAILS(ndp_dialog_create(&o, NULL, 0, &d), NDP_EINVAL, "'nonsense'");
    o.chat_template = "chatml";
    CHECK_FAILS(ndp_dialog_create(&o, NULL, 201, &d), NDP_EINVAL, "max_position_embeddings is 200");
    assert_null(d);
}

#define TINY(f) cmocka_unit_test_setup_teardown(f, tiny_setup, tiny_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop_strings_end_a_text),  TINY(generate_ends_before_a_stop_string),
        TINY(results_do_not_depend_on_the_batch),   TINY(bad_records_are_named),
        TINY(a_turn_computes_only_what_is_new),     TINY(a_full_context_drops_nothing),
        TINY(models_without_a_template_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
