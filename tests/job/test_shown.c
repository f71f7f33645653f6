/* What `ndparallel data` marks is what the rows train: for every built-in chat template and some in Jinja, in rows that
 * have room and in ones that have not, for texts and for pairs. */
#include "base/json.h"
#include "text/chat/chat_table.h"
#include "text/jinja_of.h"
#include "data/small_tokenizer.h"
#include "job/job_data.h"

#include <stdlib.h>
#include <string.h>

#define TURN(role, content) "{\"role\":\"" role "\",\"content\":\"" content "\"}"
#define TWO(one, two, three, four)                                                                                     \
    "{\"messages\":[" TURN("user", one) "," TURN("assistant", two) "," TURN("user", three) "," TURN("assistant",       \
                                                                                                    four) "]}\n"

static const char chats[] = TWO("Name a lake.", "Chiemsee.", "Another?", "Walchensee.") TWO("1", "2", "3", "4")
    TWO("How deep is it, and how long has it been so deep?", "190 m.", "And this?",
        "73 m.") "{\"messages\":[" TURN("user", "a\\nb") "," TURN("assistant", "Gr\\u00fc\\u00dfe") "]}\n",
                  pairs[] = "{\"prompt\":\"Name a lake: \",\"chosen\":\"Chiemsee\",\"rejected\":\"Danube\"}\n"
                            "{\"prompt\":\"x\",\"chosen\":\"y\",\"rejected\":\"zz\"}\n";

static const char *const in_jinja[] = {
    "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}{% if add_generation_prompt "
    "%}<s>assistant\n{% endif %}",
    "{% for m in messages %}{{ m.role }}: {{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}assistant: {% "
    "endif %}",
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|end|>\n{% endgeneration "
    "%}{% else %}"
    "{{ m.content }}<|end|>\n{% endif %}{% endfor %}",
    "{{ messages | length }}{% for m in messages %}### {{ m.role }}:\n{{ m.content }}\n\n{% endfor %}"};

static void put(const char *folder, const char *name, const char *text) {
    free(write_file(folder, name, text, strlen(text)));
}

static int make_files(void **state) {
    if (make_folder(state))
        return -1;
    ndp_tokenizer_destroy(small_tokenizer(*state));
    put(*state, "config.json",
        "{\"model_type\": \"llama\", \"vocab_size\": 262, \"hidden_size\": 8, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 2, \"intermediate_size\": 8, \"max_position_embeddings\": 4096}");
    put(*state, "chats.jsonl", chats);
    put(*state, "pairs.jsonl", pairs);
    put(*state, "text.txt", "It was a bright cold day.\n<|endoftext|>\nb");
    return 0;
}

static void configure(const char *folder, const char *file, int length, ndp_config *c) {
    CHECK_OK(ndp_config_init(c));
    CHECK_OK(ndp_config_setf(c, "model.config=%s/config.json", folder));
    CHECK_OK(ndp_config_setf(c, "data.tokenizer=%s", folder));
    CHECK_OK(ndp_config_setf(c, "data.cache_dir=%s", folder));
    CHECK_OK(ndp_config_setf(c, "data.files=[%s/%s]", folder, file));
    CHECK_OK(ndp_config_setf(c, "data.sequence_length=%d", length));
    CHECK_OK(ndp_config_setf(c, "train.steps=1"));
}

/* ---- what the rows train ---- */

typedef struct run_data {
    ndp_job job;
    ndp_job_data data;
} run_data;

static ndp_status tokens_of(void *user, const ndp_strings *files, ndp_token_cache *out) {
    ndp_dataset_options o = ndp_job_data_options(&((run_data *)user)->data, files);
    char *path;
    NDP_TRY(ndp_dataset_prepare(&o, &path));
    ndp_status st = ndp_token_cache_open(path, out);
    free(path);
    return st;
}

static ndp_status open_run(const ndp_config *c, run_data *r) {
    CHECK_OK(ndp_job_init(c, 1, &r->job));
    CHECK_OK(ndp_job_data_open(&r->job, &r->data));
    return ndp_job_data_rows(&r->data, false, tokens_of, r);
}

static void close_run(run_data *r) {
    ndp_job_data_close(&r->data);
    ndp_job_release(&r->job);
}

/* Ids of all labels of all rows, sorted. */
static int by_id(const void *a, const void *b) { return *(const int32_t *)a - *(const int32_t *)b; }

static int64_t labels_of(const ndp_dataset *d, int64_t length, int32_t *out) {
    int32_t *row = malloc((size_t)length * 4 * sizeof *row);
    int64_t n = 0;
    for (int64_t i = 0; i < ndp_dataset_rows(d); i++) {
        CHECK_OK(ndp_dataset_row(d, i, row, row + length, row + 2 * length, row + 3 * length));
        for (int64_t t = 0; t < length; t++)
            if (row[length + t] >= 0)
                out[n++] = row[length + t];
    }
    free(row);
    qsort(out, (size_t)n, sizeof *out, by_id);
    return n;
}

/* ---- what is shown ---- */

static struct json_object *shown_json(const ndp_config *c) {
    ndp_data_opts o = NDP_DATA_OPTS_INIT;
    struct json_object *all;
    char *text;
    o.show = 100, o.json = true;
    CHECK_OK(ndp_data(c, &o, &text));
    CHECK_OK(ndp_json_parse(text, strlen(text), "test", &all));
    free(text);
    return all;
}

static int32_t at(struct json_object *list, size_t i) {
    return json_object_get_int(json_object_array_get_idx(list, i));
}

/* The marks of every record are the bits of the cache, if rows have room for all, and none else; and as many tokens,
 * and the same ones, as rows predict. */
static int64_t check_marks(const run_data *r, int64_t length, struct json_object *all) {
    const ndp_token_cache *c = &r->data.tokens;
    struct json_object *records = json_object_object_get(all, "records");
    int32_t *labels = malloc(((size_t)c->n_tokens + 1) * sizeof *labels),
            *marked = malloc(((size_t)c->n_tokens + 1) * sizeof *marked);
    int64_t n = labels_of(r->data.dataset, length, labels), m = 0;
    assert_int_equal(json_object_array_length(records), c->n_documents);
    for (int64_t d = 0; d < c->n_documents; d++) {
        struct json_object *o = json_object_array_get_idx(records, (size_t)d), *ids = json_object_object_get(o, "ids"),
                           *trained = json_object_object_get(o, "trained");
        int64_t first = (int64_t)c->offsets[d], tokens = (int64_t)c->offsets[d + 1] - first;
        assert_int_equal(json_object_array_length(ids), tokens);
        assert_int_equal(json_object_array_length(trained), tokens);
        for (int64_t k = 0; k < tokens; k++) {
            bool mark = at(trained, (size_t)k), bit = k > 0 && ndp_token_cache_trained(c, first + k);
            assert_int_equal(at(ids, (size_t)k), ndp_token_cache_id(c, first + k));
            if (mark && !bit)
                fail_msg("record %lld: token %lld is marked and not trained on", (long long)d, (long long)k);
            if (bit && !mark && tokens <= length)
                fail_msg("record %lld: token %lld is trained on and not marked", (long long)d, (long long)k);
            if (mark)
                marked[m++] = at(ids, (size_t)k);
        }
    }
    assert_int_equal(m, n);
    qsort(marked, (size_t)m, sizeof *marked, by_id);
    assert_memory_equal(marked, labels, (size_t)n * sizeof *labels);
    free(labels);
    free(marked);
    return n;
}

/* The texts that are coloured, one after the other, are those of the marked tokens; without colours they are the
 * records. */
static void check_colours(const ndp_config *c, const run_data *r, struct json_object *all) {
    ndp_data_opts o = NDP_DATA_OPTS_INIT;
    ndp_str green = {0}, want = {0};
    char *text;
    o.show = 100, o.colour = true;
    CHECK_OK(ndp_data(c, &o, &text));
    for (char *from = text, *end; (from = strstr(from, "\033[32m")); from = end) {
        from += 5;
        end = strstr(from, "\033[0m");
        assert_non_null(end);
        ndp_str_add_bytes(&green, from, (size_t)(end - from));
    }
    struct json_object *records = json_object_object_get(all, "records");
    for (size_t d = 0; d < json_object_array_length(records); d++) {
        struct json_object *record = json_object_array_get_idx(records, d),
                           *ids = json_object_object_get(record, "ids"),
                           *trained = json_object_object_get(record, "trained");
        for (size_t k = 0; k < json_object_array_length(ids); k++)
            if (at(trained, k))
                CHECK_OK(ndp_tokenizer_decode(r->data.tokenizer, &(int32_t){at(ids, k)}, 1, false, &want));
    }
    ndp_str plain = {0}; /* what is cut off of a character in a stretch is written as \xff */
    for (size_t i = 0; i < want.length; i++)
        if ((unsigned char)want.data[i] < 0x80)
            ndp_str_add_bytes(&plain, want.data + i, 1);
    ndp_str seen = {0};
    for (size_t i = 0; i < green.length; i++)
        if ((unsigned char)green.data[i] < 0x80)
            ndp_str_add_bytes(&seen, green.data + i, 1);
    assert_string_equal(seen.data ? seen.data : "", plain.data ? plain.data : "");
    ndp_str_release(&seen);
    ndp_str_release(&plain);
    ndp_str_release(&want);
    ndp_str_release(&green);
    free(text);
}

static int check(const ndp_config *c, int64_t length) {
    run_data r;
    if (open_run(c, &r) != NDP_OK) { /* nothing is left to predict */
        close_run(&r);
        return 0;
    }
    struct json_object *all = shown_json(c);
    int64_t n = check_marks(&r, length, all);
    check_colours(c, &r, all);
    json_object_put(all);
    close_run(&r);
    return n > 0;
}

static void marks_are_what_rows_train(void **state) {
    static const int lengths[] = {1024, 96, 48};
    ndp_str names = {0};
    int shown = 0;
    ndp_chat_template_names(&names);
    for (char *rest = names.data, *name; (name = strtok_r(rest, ", ", &rest));)
        for (int k = 0; k < NDP_COUNT(lengths); k++) {
            ndp_config c;
            configure(*state, "chats.jsonl", lengths[k], &c);
            CHECK_OK(ndp_config_setf(&c, "data.chat_template=%s", name));
            shown += check(&c, lengths[k]);
            ndp_config_release(&c);
        }
    assert_true(shown >= 18 * 2);
    ndp_str_release(&names);
}

static void templates_in_jinja(void **state) {
    need_jinja();
    for (int i = 0; i < NDP_COUNT(in_jinja); i++) {
        ndp_config c;
        put(*state, "own.jinja", in_jinja[i]);
        configure(*state, "chats.jsonl", 128, &c);
        CHECK_OK(ndp_config_setf(&c, "data.chat_template=%s/own.jinja", (char *)*state));
        assert_int_equal(check(&c, 128), 1);
        ndp_config_release(&c);
    }
}

/* Only answers that there are, each by its record. */
static void single_answers(const char *folder) {
    ndp_data_opts o = NDP_DATA_OPTS_INIT;
    ndp_config c;
    char *text, *path = ndp_format("%s/answers.jsonl", folder);
    static const char records[] = "{\"prompt\": \"a\", \"completion\": \"bcd\", \"label\": false}\n"
                                  "{\"prompt\": \"a\", \"completion\": \"ef\", \"label\": true}\n";
    CHECK_OK(ndp_file_write_atomic(path, records, strlen(records)));
    configure(folder, "answers.jsonl", 64, &c);
    CHECK_OK(ndp_config_set(&c, "data.format=preference"));
    CHECK_OK(ndp_config_set(&c, "loss.name=kto"));
    CHECK_OK(ndp_data(&c, &o, &text));
    assert_true(strstr(text, "record 1 of ") && strstr(text, ", rejected: ") && strstr(text, "record 2 of "));
    assert_true(!strstr(text, "tokens, in no row") && !strstr(text, ": 0 tokens") && strstr(text, "data: 2 documents"));
    free(text);
    free(path);
    ndp_config_release(&c);
}

static void pairs_and_texts(void **state) {
    ndp_config c;
    configure(*state, "pairs.jsonl", 64, &c);
    CHECK_OK(ndp_config_set(&c, "data.format=preference"));
    CHECK_OK(ndp_config_set(&c, "loss.name=orpo"));
    assert_int_equal(check(&c, 64), 1);
    ndp_config_release(&c);
    single_answers(*state);
    configure(*state, "text.txt", 8, &c);
    assert_int_equal(check(&c, 8), 1);
    ndp_config_release(&c);
}

static void totals_name_what_is_wrong(void **state) {
    ndp_data_opts o = NDP_DATA_OPTS_INIT;
    ndp_config c;
    char *text;
    configure(*state, "chats.jsonl", 96, &c);
    CHECK_OK(ndp_config_set(&c, "data.chat_template=chatml"));
    o.show = 1;
    CHECK_OK(ndp_data(&c, &o, &text));
    assert_non_null(strstr(text,
                           "special tokens of the chat template that are not one token here: <|im_start|> (12 tokens), "
                           "<|im_end|> (10 tokens)"));
    assert_non_null(strstr(text, "/chats.jsonl: 162 tokens, "));
    assert_non_null(strstr(text, "[Chiemsee.<|im_end|>]"));
    assert_null(strstr(text, "record 2"));
    free(text);
    o.ids = true;
    CHECK_OK(ndp_data(&c, &o, &text));
    assert_non_null(strstr(text, "[67 104 105 101 109 115 101 101 46 60 "));
    free(text);
    ndp_config_release(&c);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_files, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {TEST(marks_are_what_rows_train), TEST(templates_in_jinja), TEST(pairs_and_texts),
                                       TEST(totals_name_what_is_wrong)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
