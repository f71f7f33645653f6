/* Preference data: the forms that a record may have, those that are bad, and rows and orders in which pairs stay
 * together. */
#include "data/record_files.h"
#include "data/row_table.h"
#include "data/sampler.h"

#include "data/packing.h"

static ndp_record_format pairs(const fixture *f) {
    return (ndp_record_format){.kind = NDP_RECORD_PREFERENCE, .chat = &f->plain};
}

/* ---- forms ---- */

#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define SAID(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define SYSTEM(text) "{\"role\":\"system\",\"content\":\"" text "\"}"
#define ANSWERS ",\"chosen\":\"c\",\"rejected\":\"rr\"}"

static void forms(void **state) {
    const fixture *f = *state;
    static const struct {
        const char *record, *words;
    } cases[] = {
        /* TRL: texts, with a prompt, and with what both begin with */
        {"{\"prompt\":\"ab\"" ANSWERS, "<s>ab[c] <s>ab[rr] | 2"},
        {"{\"chosen\":\"ab c\",\"rejected\":\"ab rr\"}", "<s>ab[ c] <s>ab[ rr] | 2"},
        {"{\"chosen\":\"\xc3\xa4\",\"rejected\":\"\xc3\xb6\"}", "<s>[\xc3\xa4] <s>[\xc3\xb6] | 2"},
        {"{\"chosen\":\"ab\",\"rejected\":\"abc\",\"prompt\":\"\"}", "<s>[ab] <s>[abc] | 2"},
        /* TRL: messages */
        {"{\"prompt\":[" USER("a") "],\"chosen\":[" SAID("c") "],\"rejected\":[" SAID("rr") "]}",
         "<s>a/[c</s>] <s>a/[rr</s>] | 2"},
        {"{\"chosen\":[" USER("a") "," SAID("c") "],\"rejected\":[" USER("a") "," SAID("rr") "]}",
         "<s>a/[c</s>] <s>a/[rr</s>] | 2"},
        {"{\"chosen\":[" USER("a") "," SAID("b") "," USER("d") "," SAID("c") "],\"rejected\":[" USER("a") "," SAID(
             "b") "," USER("d") "," SAID("rr") "]}",
         "<s>a/b</s>d/[c</s>] <s>a/b</s>d/[rr</s>] | 2"},
        /* answers of several turns, of which the common ones are the prompt */
        {"{\"chosen\":[" USER("a") "," SAID("c") "," USER("d") "," SAID("e") "],\"rejected\":[" USER("a") "," SAID(
             "rr") "]}",
         "<s>a/[c</s>]d/[e</s>] <s>a/[rr</s>] | 2"},
        /* chat_template.default of Axolotl: messages, then one more */
        {"{\"messages\":[" SYSTEM("s") "," USER("a") "],\"chosen\":" SAID("c") ",\"rejected\":" SAID("rr") "}",
         "<s>s/a/[c</s>] <s>s/a/[rr</s>] | 2"},
        {"{\"conversation\":[" USER("a") "," SAID("b") "," USER("d") "]" ANSWERS,
         "<s>a/b</s>d/[c</s>] <s>a/b</s>d/[rr</s>] | 2"},
        {"{\"messages\":[" USER("a") "],\"chosen\":[" USER("a") "," SAID("c") "],\"rejected\":[" USER("a") "," SAID(
             "rr") "]}",
         "<s>a/[c</s>] <s>a/[rr</s>] | 2"},
        /* its strategies for named fields */
        {"{\"question\":\"a\"" ANSWERS, "<s>a/[c</s>] <s>a/[rr</s>] | 2"},
        {"{\"instruction\":\"a\"" ANSWERS, "<s>a/[c</s>] <s>a/[rr</s>] | 2"},
        {"{\"system\":\"s\",\"input\":\"a\"" ANSWERS, "<s>s/a/[c</s>] <s>s/a/[rr</s>] | 2"},
        {"{\"system\":\"\",\"question\":\"a\"" ANSWERS, "<s>a/[c</s>] <s>a/[rr</s>] | 2"},
        {"{\"system\":\"s\",\"prompt\":\"a\"" ANSWERS, "<s>s/a/[c</s>] <s>s/a/[rr</s>] | 2"},
        {"{\"instruction\":\"a\",\"chosen_response\":\"c\",\"rejected_response\":\"rr\"}",
         "<s>a/[c</s>] <s>a/[rr</s>] | 2"},
        {"{\"prompt\":\"a\",\"chosen\":[" USER("a") "," SAID("c") "],\"rejected\":[" USER("a") "," SAID("rr") "]}",
         "<s>a/[c</s>] <s>a/[rr</s>] | 2"},
        {"{\"prompt\":\"a\",\"system\":\"s\",\"chosen\":[" USER("a") "," SAID("c") "],\"rejected\":[" USER(
             "a") "," SAID("rr") "]}",
         "<s>s/a/[c</s>] <s>s/a/[rr</s>] | 2"},
        {"{\"prompt\":\"a\",\"chosen\":[" SAID("c") "],\"rejected\":[" SAID("rr") "]}",
         "<s>a/[c</s>] <s>a/[rr</s>] | 2"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++)
        CHECK_FILE(f, "a.jsonl", cases[i].record, pairs(f), cases[i].words);
}

/* One answer and its label: the first document of a pair if it is wanted, else the second; the other one is empty. */
static void single_answers(void **state) {
    const fixture *f = *state;
    static const struct {
        const char *record, *words;
    } cases[] = {{"{\"prompt\":\"ab\",\"completion\":\"c\",\"label\":true}", "<s>ab[c]  | 2"},
                 {"{\"prompt\":\"ab\",\"completion\":\"c\",\"label\":false}", " <s>ab[c] | 2"},
                 {"{\"prompt\":\"ab\",\"response\":\"c\",\"label\":1}", "<s>ab[c]  | 2"},
                 {"{\"question\":\"a\",\"completion\":\"c\",\"label\":false}", " <s>a/[c</s>] | 2"},
                 {"{\"prompt\":[" USER("a") "],\"completion\":[" SAID("c") "],\"label\":true}", "<s>a/[c</s>]  | 2"},
                 {"{\"completion\":[" USER("a") "," SAID("c") "],\"label\":true}", "<s>a/[c</s>]  | 2"},
                 {"{\"messages\":[" USER("a") "," SAID("b") "," USER("d") "," SAID("c") "],\"label\":false}",
                  " <s>a/b</s>d/[c</s>] | 2"},
                 {"{\"prompt\":\"ab\"" ANSWERS, "<s>ab[c] <s>ab[rr] | 2"}};
    static const struct {
        const char *record, *says;
    } refused[] = {
        {"{\"prompt\":\"ab\",\"completion\":\"c\"}", "the record has no 'label'"},
        {"{\"prompt\":\"ab\",\"completion\":\"c\",\"label\":\"yes\"}", "'label' is \"yes\", expected true or false"},
        {"{\"prompt\":\"ab\",\"completion\":\"c\",\"label\":2}", "'label' is 2, expected true or false"},
        {"{\"prompt\":\"ab\",\"label\":true}", "the record has no 'completion'"},
        {"{\"completion\":\"c\",\"label\":true}", "the record has no 'prompt'"},
        {"{\"prompt\":\"ab\",\"completion\":\"\",\"label\":true}", "an answer is empty"},
        {"{\"prompt\":\"ab\",\"completion\":7,\"label\":true}", "'completion' is neither a text nor a list"}};
    ndp_record_format format = pairs(f);
    for (int i = 0; i < NDP_COUNT(refused); i++) {
        format.single = true;
        check_refused(f, "a.jsonl", refused[i].record, strlen(refused[i].record), format, NDP_EFORMAT, refused[i].says);
    }
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        format.single = true;
        CHECK_FILE(f, "a.jsonl", cases[i].record, format, cases[i].words);
        format.single = false; /* with a loss of pairs */
        if (!strstr(cases[i].record, "chosen"))
            check_refused(f, "a.jsonl", cases[i].record, strlen(cases[i].record), format, NDP_EFORMAT,
                          strstr(cases[i].record, "false") ? "an answer that is not wanted"
                                                           : "the record has no 'chosen'");
    }
}

static void names_of_fields(void **state) {
    const fixture *f = *state;
    ndp_record_format format = pairs(f);
    format.prompt = "prompt"; /* named, it is a question */
    CHECK_FILE(f, "a.jsonl", "{\"prompt\":\"ab\"" ANSWERS, format, "<s>ab/[c</s>] <s>ab/[rr</s>] | 2");
    format.prompt = "ask";
    format.chosen = "good";
    format.rejected = "bad";
    CHECK_FILE(f, "a.jsonl", "{\"ask\":\"a\",\"prompt\":\"p\",\"good\":\"c\",\"bad\":\"rr\",\"chosen\":\"x\"}", format,
               "<s>a/[c</s>] <s>a/[rr</s>] | 2");
    check_refused(f, "a.jsonl", "{\"ask\":\"a\"" ANSWERS, strlen("{\"ask\":\"a\"" ANSWERS), format, NDP_EFORMAT,
                  "a.jsonl:1: the record has no 'good'");
    format = pairs(f);
    format.role = "by";
    format.content = "says";
    CHECK_FILE(f, "a.jsonl",
               "{\"chosen\":[{\"by\":\"user\",\"says\":\"a\"},{\"by\":\"assistant\",\"says\":\"c\"}],"
               "\"rejected\":[{\"by\":\"user\",\"says\":\"a\"},{\"by\":\"assistant\",\"says\":\"rr\"}]}",
               format, "<s>a/[c</s>] <s>a/[rr</s>] | 2");
}

/* An end token of texts ends both answers, and is trained on. */
static void end_tokens_end_answers(void **state) {
    const fixture *f = *state;
    const char *record = "{\"prompt\":\"ab\"" ANSWERS;
    char *file = write_file(f->folder, "a.jsonl", record, strlen(record));
    check_cache(
        f,
        (ndp_dataset_options){
            .files = (const char *const[]){file}, .n_files = 1, .format = pairs(f), .end_token = &(int32_t){257}},
        "<s>ab[c</s>] <s>ab[rr</s>] | 2");
    free(file);
}

/* ---- bad records ---- */

static const struct {
    const char *record, *reason, *says;
} bad[] = {
    {"{\"prompt\":\"ab\",\"rejected\":\"r\"}", "with a missing or mistyped field", "the record has no 'chosen'"},
    {"{\"prompt\":\"ab\",\"chosen\":\"r\"}", "with a missing or mistyped field",
     "the record has no 'rejected'; it has: prompt, chosen"},
    {"{\"text\":\"ab\"}", "with a missing or mistyped field", "the record has no 'chosen'"},
    {"{\"prompt\":\"ab\",\"chosen\":1,\"rejected\":\"r\"}", "with a missing or mistyped field",
     "'chosen' is neither a text nor a list of messages"},
    {"{\"prompt\":7" ANSWERS, "with a missing or mistyped field", "'prompt' is neither a text nor a list of messages"},
    {"{\"chosen\":[],\"rejected\":[]}", "with a missing or mistyped field", "'chosen' is neither"},
    {"{\"chosen\":\"c\",\"rejected\":[" SAID("r") "]}", "with a missing or mistyped field",
     "one of 'chosen' and 'rejected' is a text, the other are messages"},
    {"{\"prompt\":[" USER("a") "],\"chosen\":[{\"role\":\"bot\",\"content\":\"c\"}],\"rejected\":[" SAID("r") "]}",
     "with a missing or mistyped field", "the role 'bot'"},
    {"{\"prompt\":[3],\"chosen\":[" SAID("c") "],\"rejected\":[" SAID("r") "]}", "with a missing or mistyped field",
     "'prompt'"},
    {"{\"prompt\":\"ab\",\"chosen\":\"c\",\"rejected\":\"c\"}", "with two equal answers",
     "'chosen' and 'rejected' are equal, so there is nothing to prefer; correct the record, or leave such records out"},
    {"{\"chosen\":[" USER("a") "," SAID("c") "],\"rejected\":[" USER("a") "," SAID("c") "]}", "with two equal answers",
     "are equal"},
    {"{\"prompt\":\"ab\",\"chosen\":\"\",\"rejected\":\"c\"}", "with nothing to train on", "an answer is empty"},
    {"{\"chosen\":\"ab\",\"rejected\":\"abc\"}", "with nothing to train on", "an answer is empty"},
    {"{\"prompt\":[" USER("a") "],\"chosen\":[" USER("c") "],\"rejected\":[" SAID("r") "]}", "with nothing to train on",
     "no message of the assistant"},
    {"{\"prompt\":\"abcdefg\",\"chosen\":\"c\",\"rejected\":\"rr\"}", "whose answer is beyond the row",
     "the chosen text has 9 tokens, and its answer begins after the 8 that a row has; raise data.sequence_length"},
    {"{\"chosen\":[" USER("a") "," SAID("c") "],\"rejected\":[" USER("bcdefghi") "," SAID("rr") "]}",
     "whose answer is beyond the row", "the rejected text has 13 tokens, and its answer begins after the 8"},
};

/* The pair before and the pair behind stay, and the ranges of the pair behind are its own. */
static void bad_records_are_refused_or_skipped(void **state) {
    const fixture *f = *state;
    for (int i = 0; i < NDP_COUNT(bad); i++) {
        ndp_str text = {0};
        ndp_str_addf(&text, "{\"prompt\":\"p\"" ANSWERS "\n%s\n{\"prompt\":\"q\"" ANSWERS, bad[i].record);
        char *file = write_file(f->folder, "a.jsonl", text.data, text.length), *path = NULL;
        ndp_dataset_options o = {.files = (const char *const[]){file},
                                 .n_files = 1,
                                 .format = pairs(f),
                                 .cache_dir = f->folder,
                                 .tokenizer = f->t,
                                 .threads = 1,
                                 .pair_length = 8};
        CHECK_FAILS(ndp_dataset_prepare(&o, &path), NDP_EFORMAT, "a.jsonl:2: ");
        CHECK_FAILS(ndp_dataset_prepare(&o, &path), NDP_EFORMAT, bad[i].says);
        o.format.skip = true;
        CHECK_OK(ndp_dataset_prepare(&o, &path));
        ndp_token_cache c;
        ndp_str tally = {0};
        CHECK_OK(ndp_token_cache_open(path, &c));
        char *words = cache_words(&c), *want = ndp_format("0 0 1 %s\n\t%s:2", bad[i].reason, file);
        ndp_tally_write(&c.tally, &tally);
        assert_string_equal(words, "<s>p[c] <s>p[rr] <s>q[c] <s>q[rr] | 4");
        if (strncmp(tally.data, want, strlen(want)) != 0)
            fail_msg("record %d: %s\nis not %s", i, tally.data, want);
        ndp_token_cache_close(&c);
        ndp_str_release(&tally);
        ndp_str_release(&text);
        free(words);
        free(want);
        free(path);
        free(file);
    }
}

/* The length that cuts is part of what a cache is of; where none is given, answers are whole. */
static void the_length_of_a_row_is_part_of_a_cache(void **state) {
    const fixture *f = *state;
    static const char record[] = "{\"prompt\":\"abcdefg\",\"chosen\":\"cd\",\"rejected\":\"e\"}\n"
                                 "{\"prompt\":\"p\"" ANSWERS;
    char *file = write_file(f->folder, "a.jsonl", record, strlen(record));
    ndp_dataset_options o = {.files = (const char *const[]){file}, .n_files = 1, .format = pairs(f)};
    o.format.skip = true;
    for (int round = 0; round < 2; round++) {
        o.pair_length = 8;
        check_cache(f, o, "<s>p[c] <s>p[rr] | 2");
        o.pair_length = 9;
        check_cache(f, o, "<s>abcdefg[cd] <s>abcdefg[e] <s>p[c] <s>p[rr] | 4");
        o.pair_length = 0;
        check_cache(f, o, "<s>abcdefg[cd] <s>abcdefg[e] <s>p[c] <s>p[rr] | 4");
    }
    free(file);
}

static void files_without_records_are_refused(void **state) {
    const fixture *f = *state;
    check_refused(f, "a.txt", "a text", 6, pairs(f), NDP_EINVAL, "a.txt: a file without records has no pairs");
}

/* ---- rows ---- */

enum { S = 8, PAIRS = 5 };

/* Of pair i: prompt 'a' + i, answers of i + 1 and i + 2 tokens. */
static ndp_dataset *rows_of(const fixture *f, const ndp_row_opts *o) {
    ndp_str text = {0};
    char *path;
    ndp_dataset *d;
    for (int i = 0; i < PAIRS; i++)
        ndp_str_addf(&text, "{\"prompt\":\"%c\",\"chosen\":\"%.*s\",\"rejected\":\"%.*s\"}\n", 'a' + i, i + 1,
                     "ccccccc", i + 2, "rrrrrrr");
    char *file = write_file(f->folder, "a.jsonl", text.data, text.length);
    ndp_dataset_options data = {.files = (const char *const[]){file},
                                .n_files = 1,
                                .format = pairs(f),
                                .cache_dir = f->folder,
                                .tokenizer = f->t,
                                .threads = 1};
    CHECK_OK(ndp_dataset_prepare(&data, &path));
    CHECK_OK(ndp_dataset_open(path, o, &d));
    free(path);
    free(file);
    ndp_str_release(&text);
    return d;
}

static int64_t document_of(const ndp_dataset *d, int64_t row) {
    int64_t tokens;
    return ndp_dataset_document(d, row, &tokens);
}

/* The row's prompt, its label count, and which document it is of. */
static void check_pair_row(const ndp_dataset *d, int64_t row, char prompt, int labels, int64_t document) {
    int32_t tokens[S], label[S], position[S], start[S];
    CHECK_OK(ndp_dataset_row(d, row, tokens, label, position, start));
    int n = 0;
    for (int i = 0; i < S; i++)
        n += label[i] >= 0;
    assert_int_equal(tokens[1], prompt);
    assert_int_equal(n, labels);
    assert_int_equal(document_of(d, row), document);
}

static void a_pair_is_two_neighbouring_rows(void **state) {
    const fixture *f = *state;
    ndp_row_opts o = {
        .length = S, .document_mask = true, .single = true, .pairs = true, .overlong = NDP_OVERLONG_TRUNCATE};
    ndp_dataset *d = rows_of(f, &o);
    assert_int_equal(ndp_dataset_rows(d), 2 * PAIRS);
    for (int i = 0; i < PAIRS; i++) {
        check_pair_row(d, 2 * i, (char)('a' + i), i + 1, 2 * i);
        check_pair_row(d, 2 * i + 1, (char)('a' + i), i + 2, 2 * i + 1);
    }
    ndp_dataset_close(d);
    o.length = 6; /* the last pair, of 7 and 8 tokens, is cut */
    d = rows_of(f, &o);
    assert_int_equal(ndp_dataset_rows(d), 2 * PAIRS);
    ndp_dataset_close(d);
    o.overlong = NDP_OVERLONG_DROP; /* of pair 3 the rejected text alone is too long, of pair 4 both */
    d = rows_of(f, &o);
    assert_int_equal(ndp_dataset_rows(d), 2 * 3);
    ndp_dataset_close(d);
    o.length = S;
    o.least_tokens = 4; /* of pair 0 the chosen text alone is too short */
    d = rows_of(f, &o);
    assert_int_equal(ndp_dataset_rows(d), 2 * (PAIRS - 1));
    ndp_dataset_close(d);
    o.least_tokens = 0;
    o.most_documents = 2; /* pairs */
    d = rows_of(f, &o);
    assert_int_equal(ndp_dataset_rows(d), 2 * 2);
    ndp_dataset_close(d);
    o.most_documents = 0, o.unique = true; /* no two pairs are alike, though documents are */
    d = rows_of(f, &o);
    assert_int_equal(ndp_dataset_rows(d), 2 * PAIRS);
    ndp_dataset_close(d);
}

/* Held-out documents are whole pairs. */
static void pairs_are_held_out_whole(void **state) {
    const fixture *f = *state;
    ndp_row_opts o = {.length = S,
                      .document_mask = true,
                      .single = true,
                      .pairs = true,
                      .overlong = NDP_OVERLONG_DROP,
                      .held_out = 0.8};
    int64_t documents[2 * PAIRS] = {0}, rows = 0;
    for (int part = 0; part < 2; part++) {
        o.validation = part;
        ndp_dataset *d = rows_of(f, &o);
        assert_true(ndp_dataset_rows(d) > 0);
        for (int64_t r = 0; r < ndp_dataset_rows(d); r++, rows++) {
            int64_t document = document_of(d, r);
            documents[document]++;
            assert_int_equal(document % 2, r % 2);
            if (r % 2)
                assert_int_equal(document, document_of(d, r - 1) + 1);
        }
        ndp_dataset_close(d);
    }
    assert_int_equal(rows, 2 * PAIRS);
    for (int i = 0; i < 2 * PAIRS; i++)
        assert_int_equal(documents[i], 1);
}

/* ---- the order ---- */

static void an_order_keeps_pairs_together(void **state) {
    (void)state;
    static const ndp_mix_source sources[] = {{.first = 0, .rows = 40, .taken = 40},
                                             {.first = 40, .rows = 10, .taken = 26}};
    for (int mixed = 0; mixed < 2; mixed++)
        for (int shuffled = 0; shuffled < 2; shuffled++) {
            int64_t rows = mixed ? 66 : 50, moved = 0;
            ndp_sampler s = {.rows = rows, .seed = 3, .shuffle = shuffled, .group = 2};
            int seen[50] = {0};
            if (mixed)
                s.sources = sources, s.n_sources = 2;
            for (int64_t k = 0; k < rows; k += 2) {
                int64_t row = ndp_sampler_row(&s, rows + k); /* of the second epoch */
                assert_int_equal(row % 2, 0);
                assert_int_equal(ndp_sampler_row(&s, rows + k + 1), row + 1);
                seen[row]++;
                moved += row != k;
            }
            assert_true(shuffled ? moved > 10 : mixed || moved == 0);
            for (int row = 0; row < 50; row += 2) /* the second source is read 2.6 times */
                assert_true(mixed && row >= 40 ? seen[row] == 2 || seen[row] == 3 : seen[row] == 1);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(forms),
                                       cmocka_unit_test(single_answers),
                                       cmocka_unit_test(names_of_fields),
                                       cmocka_unit_test(end_tokens_end_answers),
                                       cmocka_unit_test(bad_records_are_refused_or_skipped),
                                       cmocka_unit_test(the_length_of_a_row_is_part_of_a_cache),
                                       cmocka_unit_test(files_without_records_are_refused),
                                       cmocka_unit_test(a_pair_is_two_neighbouring_rows),
                                       cmocka_unit_test(pairs_are_held_out_whole),
                                       cmocka_unit_test(an_order_keeps_pairs_together)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
