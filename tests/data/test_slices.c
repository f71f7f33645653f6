/* Slices of splits, as the datasets library takes them (tests/golden/slices.txt), over files of all kinds; and entries
 * whose records are read in ways of their own. */
#include "data/team.h"

#include "data/corpus/slice.h"
#include "data/record_files.h"
#include "data/sample.h"

static void slices_are_those_of_datasets(void **state) {
    (void)state;
    const char *root = getenv("NDP_SOURCE_DIR");
    char *path = ndp_format("%s/tests/golden/slices.txt", root ? root : "."), line[128], spec[64];
    FILE *f = fopen(path, "re");
    int rows = 0;
    assert_non_null(f);
    for (; fgets(line, sizeof line, f); rows++) {
        long long n, first, end;
        int64_t a, b;
        ndp_slice s;
        assert_int_equal(sscanf(line, "%63s %lld %lld %lld", spec, &n, &first, &end), 4);
        size_t length = strlen(spec);
        assert_true(ndp_slice_cut(spec, &length, &s) && s.given && length == 5);
        ndp_slice_bounds(&s, n, &a, &b);
        if (a != first || b != end)
            fail_msg("%s of %lld: %lld to %lld, expected %lld to %lld", spec, n, (long long)a, (long long)b, first,
                     end);
    }
    fclose(f);
    free(path);
    assert_true(rows > 200);
}

static void what_is_no_slice(void **state) {
    (void)state;
    static const char *const wrong[] = {"train[]",
                                        "train[1]",
                                        "train[:10%%]",
                                        "train[:101%]",
                                        "train[a:]",
                                        "train[1:2:3]",
                                        "train[--1:]",
                                        "train[:-]",
                                        "train[-:]",
                                        "train[1:2]]",
                                        "train[:9999999999999999999]"};
    ndp_slice s;
    for (int i = 0; i < NDP_COUNT(wrong); i++) {
        size_t n = strlen(wrong[i]);
        if (ndp_slice_cut(wrong[i], &n, &s))
            fail_msg("%s was read", wrong[i]);
    }
    size_t n = 5;
    assert_true(ndp_slice_cut("train", &n, &s) && !s.given && n == 5);
}

/* ---- over files ---- */

static ndp_dataset_options options(const fixture *f, const char *const *files, int n, const char *const *splits) {
    return (ndp_dataset_options){.files = files,
                                 .n_files = n,
                                 .splits = splits,
                                 .format = {.chat = &f->plain},
                                 .cache_dir = f->folder,
                                 .tokenizer = f->t,
                                 .threads = 1};
}

static char *file_of(const fixture *f, const char *name, const char *text) {
    return write_file(f->folder, name, text, strlen(text));
}

/* Records a to j, ten of them: lines with blank ones between behind a byte order mark, then a list, in one source. */
static void a_slice_counts_over_files(void **state) {
    const fixture *f = *state;
    static const char *const cases[][2] = {
        {"train[:30%]", "[<s>a] [<s>b] [<s>c] | 3"},
        {"train[3:5]", "[<s>d] [<s>e] | 2"},
        {"train[4:7]", "[<s>e] [<s>f] [<s>g] | 3"},
        {"train[-2:]", "[<s>i] [<s>j] | 2"},
        {"train[50%:]", "[<s>f] [<s>g] [<s>h] [<s>i] [<s>j] | 5"},
        {"train[:1]", "[<s>a] | 1"},
        {"train[5:6]", "[<s>f] | 1"},
        {"train", "[<s>a] [<s>b] [<s>c] [<s>d] [<s>e] [<s>f] [<s>g] [<s>h] [<s>i] [<s>j] | 10"},
    };
    char *folder = ndp_format("%s/set", f->folder);
    CHECK_OK(ndp_folder_create(folder));
    static const char A_C[] = "\xef\xbb\xbf{\"text\":\"a\"}\n\n{\"text\":\"b\"}\n \t\r\n{\"text\":\"c\"}\n";
    static const char D_E[] = "{\"text\":\"d\"}\n{\"text\":\"e\"}",
                      LIST[] = "[{\"text\":\"f\"}, {\"text\":\"g\"},{\"text\":\"h\"}]",
                      I_J[] = "{\"text\":\"i\"}\r\n\r\n{\"text\":\"j\"}\r\n";
    free(write_file(folder, "1.jsonl", A_C, strlen(A_C)));
    free(write_file(folder, "2.jsonl", D_E, strlen(D_E)));
    free(write_file(folder, "3.json", LIST, strlen(LIST)));
    free(write_file(folder, "4.jsonl", I_J, strlen(I_J)));
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_dataset_options o = options(f, (const char *const[]){folder}, 1, (const char *const[]){cases[i][0]});
        char *path, *words;
        CHECK_OK(ndp_dataset_prepare(&o, &path));
        words = words_of(path);
        if (strcmp(words, cases[i][1]) != 0)
            fail_msg("%s: %s, expected %s", cases[i][0], words, cases[i][1]);
        ndp_token_cache head;
        CHECK_OK(ndp_dataset_sample(&o, &head));
        char *again = cache_words(&head);
        if (strcmp(cases[i][0], "train[-2:]") &&
            strcmp(cases[i][0], "train[5:6]")) /* lists are read from their start */
            assert_int_equal(strncmp(again, cases[i][1], 6), 0);
        ndp_token_cache_close(&head);
        free(again);
        free(words);
        free(path);
    }
    free(folder);
}

static void slices_of_what_has_no_records(void **state) {
    const fixture *f = *state;
    char *text = file_of(f, "a.txt", "some words"), *lines = file_of(f, "a.jsonl", "{\"text\":\"a\"}\n{\"tex"), *path;
    const struct {
        const char *file, *split, *says;
    } cases[] = {
        {text, "train[:10%]", "a.txt: a slice takes records, and this file has none"},
        {lines, "train[2:]", "takes no record: records 2 to 2 of 2"},
        {lines, "test", "is not a data set in the Hub cache: files are the split train, not 'test'"},
        {lines, "train[x:]", "the split 'train[x:]' is not of the form train[FROM:TO]"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_dataset_options o =
            options(f, (const char *const[]){cases[i].file}, 1, (const char *const[]){cases[i].split});
        CHECK_FAILS(ndp_dataset_prepare(&o, &path), NDP_EINVAL, cases[i].says);
    }
    /* What lies behind the slice is not read; the place of an error is that in the file. */
    ndp_dataset_options o = options(f, (const char *const[]){lines}, 1, (const char *const[]){"train[:1]"});
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    free(path);
    o.splits = (const char *const[]){"train[1:]"};
    CHECK_FAILS(ndp_dataset_prepare(&o, &path), NDP_EFORMAT, ", at byte 6");
    ndp_token_cache head;
    CHECK_FAILS(ndp_dataset_sample(&o, &head), NDP_EFORMAT, ", at byte 6");
    free(text);
    free(lines);
}

enum { RECORDS = 50000 };

/* A large file, sliced: the same on ranks and threads as the lines of the slice in a file of their own. */
static void ranks_take_the_same_slice(void **state) {
    const fixture *f = *state;
    ndp_str all = {0}, part = {0};
    for (int i = 0; i < RECORDS; i++) {
        ndp_str *to[] = {&all, i >= RECORDS / 10 && i < RECORDS * 9 / 10 ? &part : NULL};
        for (int k = 0; k < 2 && to[k]; k++)
            ndp_str_addf(to[k], "{\"text\":\"record %d %.*s\"}\n%s", i, i % 60,
                         "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz",
                         i % 7 ? "" : "\n");
    }
    char *large = write_file(f->folder, "large.jsonl", all.data, all.length),
         *small = write_file(f->folder, "small.jsonl", part.data, part.length), *path, *want;
    ndp_str_release(&all);
    ndp_str_release(&part);
    ndp_dataset_options o = options(f, (const char *const[]){small}, 1, NULL);
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    want = words_of(path);
    free(path);
    static const struct { int ranks, threads; } teams[] = {{1, 1}, {1, 3}, {3, 1}, {8, 2}};
    const char *const files[] = {large}, *const splits[] = {"train[10%:90%]"};
    for (int i = 0; i < NDP_COUNT(teams); i++) {
        char *cache = ndp_format("%s/cache-%d", f->folder, i);
        member members[TEAM_MOST] = {{0}};
        for (int r = 0; r < teams[i].ranks; r++) {
            members[r].o = options(f, files, 1, splits);
            members[r].o.cache_dir = cache;
            members[r].o.threads = teams[i].threads;
        }
        team_prepare(members, teams[i].ranks);
        for (int r = 0; r < teams[i].ranks; r++)
            if (members[r].status != NDP_OK)
                fail_msg("%s", members[r].message);
        char *words = words_of(members[0].path);
        assert_int_equal(strcmp(words, want), 0);
        free(words);
        for (int r = 0; r < teams[i].ranks; r++)
            free(members[r].path);
        free(cache);
    }
    free(want);
    free(large);
    free(small);
}

/* ---- entries ---- */

static void entries_are_read_in_their_own_ways(void **state) {
    const fixture *f = *state;
    char *texts = file_of(f, "texts.jsonl", "{\"body\":\"x\",\"text\":\"y\"}"),
         *chats =
             file_of(f, "chats.jsonl",
                     "{\"conversations\":[{\"from\":\"human\",\"value\":\"a\"},{\"from\":\"gpt\",\"value\":\"b\"}]}"),
         *path, *other;
    const char *const files[] = {texts, chats, texts};
    const ndp_record_format formats[] = {
        {.chat = &f->plain, .text = "body"}, {.chat = &f->plain, .kind = NDP_RECORD_SHAREGPT}, {.chat = &f->plain}};
    ndp_dataset_options o = options(f, files, 3, NULL);
    o.formats = formats;
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    char *words = words_of(path);
    assert_string_equal(words, "[<s>x] <s>a/[b</s>] [<s>y] | 1 2 3");
    ndp_token_cache head;
    CHECK_OK(ndp_dataset_sample(&o, &head));
    char *again = cache_words(&head);
    assert_string_equal(again, words);
    ndp_token_cache_close(&head);
    const ndp_record_format changed[] = {formats[0], formats[1], {.chat = &f->plain, .text = "body"}};
    o.formats = changed;
    CHECK_OK(ndp_dataset_prepare(&o, &other));
    assert_string_not_equal(path, other);
    free(again);
    free(words);
    free(path);
    free(other);
    free(texts);
    free(chats);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(slices_are_those_of_datasets),
                                       cmocka_unit_test(what_is_no_slice),
                                       TEST(a_slice_counts_over_files),
                                       TEST(slices_of_what_has_no_records),
                                       TEST(ranks_take_the_same_slice),
                                       TEST(entries_are_read_in_their_own_ways)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
