/* The head of a data set: what the whole would give where that is small, and no more than its head where it is not. */
#include "data/sample.h"

#include "data/cache_words.h"
#include "data/fixture.h"
#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <string.h>

static const int32_t END = 257;

static ndp_dataset_options options(const fixture *f, const char *const *files, int n) {
    return (ndp_dataset_options){.files = files,
                                 .n_files = n,
                                 .format = {.chat = &f->plain},
                                 .cache_dir = f->folder,
                                 .tokenizer = f->t,
                                 .end_token = &END,
                                 .threads = 2};
}

/* The sample of one file. */
static ndp_token_cache sample_of(const fixture *f, const char *path) {
    ndp_token_cache c;
    const ndp_dataset_options o = options(f, &path, 1);
    CHECK_OK(ndp_dataset_sample(&o, &c));
    return c;
}

/* n lines, or list entries, of a text of `length` letters each. The caller frees. */
static char *write_records(const fixture *f, const char *name, int n, int length, bool list) {
    ndp_str s = {0};
    char *text = malloc((size_t)length + 1);
    memset(text, 'a', (size_t)length);
    text[length] = '\0';
    for (int i = 0; i < n; i++) {
        text[0] = (char)('a' + i % 26);
        ndp_str_addf(&s, "%s{\"text\": \"%s\"}\n", list ? i ? "," : "[" : "", text);
    }
    ndp_str_add(&s, list ? "]" : "");
    char *path = write_file(f->folder, name, s.data, s.length);
    ndp_str_release(&s);
    free(text);
    return path;
}

static int caches_in(const char *folder) {
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d));)
        n += strstr(e->d_name, ".tokens") != NULL;
    closedir(d);
    return n;
}

/* Several sources and kinds, all small: the sample is the cache. */
static void small_data_are_sampled_whole(void **state) {
    const fixture *f = *state;
    static const char mixed[] = "{\"text\":\"xy\"}\n{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":"
                                "\"assistant\",\"content\":\"b\"}]}\n\n{\"text\":\"c</s>\"}\n";
    static const char list[] = "[{\"text\":\"d\"},{\"text\":\"\"}]";
    static const char ids[] = {0, 1, 97, 0, 98, 0, 0, 1, 99, 0};
    char *files[] = {write_file(f->folder, "a.jsonl", mixed, strlen(mixed)),
                     write_file(f->folder, "b.txt", "one\n<|endoftext|>\ntwo", 21),
                     write_file(f->folder, "c.bin", ids, sizeof ids),
                     write_file(f->folder, "d.json", list, strlen(list))};
    const ndp_dataset_options o = options(f, (const char *const *)files, NDP_COUNT(files));
    ndp_token_cache whole, sample;
    char *path;
    CHECK_OK(ndp_dataset_sample(&o, &sample));
    assert_int_equal(caches_in(f->folder), 0);
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    CHECK_OK(ndp_token_cache_open(path, &whole));
    char *want = cache_words(&whole), *words = cache_words(&sample);
    assert_string_equal(words, want);
    assert_false(sample.head);
    assert_int_equal(sample.n_texts, whole.n_texts);
    assert_int_equal(sample.largest_id, whole.largest_id);
    ndp_token_cache_close(&sample);
    ndp_token_cache_close(&whole);
    for (int i = 0; i < NDP_COUNT(files); i++)
        free(files[i]);
    free(want);
    free(words);
    free(path);
}

/* Compresses FOLDER/name into FOLDER/name.gz. */
static char *pack(const fixture *f, const char *name) {
    char *from = ndp_format("%s/%s", f->folder, name), *to = ndp_format("%s/%s.gz", f->folder, name), *data;
    size_t size;
    struct archive *a = archive_write_new();
    struct archive_entry *e = archive_entry_new();
    CHECK_OK(ndp_file_read(from, &data, &size));
    archive_write_add_filter_gzip(a);
    archive_write_set_format_raw(a);
    assert_int_equal(archive_write_open_filename(a, to), ARCHIVE_OK);
    archive_entry_set_filetype(e, AE_IFREG);
    archive_write_header(a, e);
    assert_int_equal(archive_write_data(a, data, size), (la_ssize_t)size);
    archive_entry_free(e);
    archive_write_free(a);
    free(data);
    free(from);
    return to;
}

/* The first 100 records, or those that fit into a MiB, or one; of plain and of compressed files. */
static void large_data_are_sampled_by_their_head(void **state) {
    const fixture *f = *state;
    static const struct {
        int records, length;
        bool list;
        int want; /* documents */
        bool head;
    } cases[] = {
        {100, 10, false, 100, false}, {101, 10, false, 100, true},   {50, 100000, false, 10, true},
        {3, 2000000, false, 1, true}, {1, 2000000, false, 1, false}, {100, 10, true, 100, false},
        {101, 10, true, 100, true},   {50, 100000, true, 10, true},  {3, 2000000, true, 1, true},
        {1, 2000000, true, 1, false},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        const char *name = cases[i].list ? "r.json" : "r.jsonl";
        char *paths[2] = {write_records(f, name, cases[i].records, cases[i].length, cases[i].list)};
        paths[1] = pack(f, name);
        for (int k = 0; k < 2; k++) {
            ndp_token_cache c = sample_of(f, paths[k]);
            if (c.n_documents != cases[i].want || c.head != cases[i].head)
                fail_msg("%s, case %d: %lld documents, head %d", paths[k], i, (long long)c.n_documents, c.head);
            assert_int_equal(c.offsets[1] - c.offsets[0], cases[i].length + 2); /* <s>, letters, </s> */
            ndp_token_cache_close(&c);
            unlink(paths[k]);
            free(paths[k]);
        }
    }
}

/* A text of 3 MB without a border ends after 1 MiB, not inside a character. */
static void long_texts_end_between_characters(void **state) {
    const fixture *f = *state;
    for (int shift = 0; shift < 4; shift++) {
        ndp_str s = {0};
        for (int i = 0; i < shift; i++)
            ndp_str_add(&s, "a");
        while (s.length < 3000000)
            ndp_str_add(&s, "\xf0\x9f\x90\x8b");
        char *path = write_file(f->folder, "long.txt", s.data, s.length);
        ndp_token_cache c = sample_of(f, path);
        assert_true(c.head);
        assert_int_equal(c.n_documents, 1);
        assert_int_equal(c.n_tokens, 2 + shift + (NDP_SAMPLE_BYTES - shift) / 4 * 4); /* bytes are tokens */
        ndp_token_cache_close(&c);
        ndp_str_release(&s);
        free(path);
    }
}

static void files_of_ids_are_sampled_too(void **state) {
    const fixture *f = *state;
    size_t n = 3 << 20;
    char *ids = malloc(n);
    for (size_t i = 0; i < n; i += 2) {
        ids[i] = (char)(i % 200 ? 'a' : 0);
        ids[i + 1] = i % 200 ? 0 : 1; /* <s> */
    }
    char *paths[] = {write_file(f->folder, "i.bin", ids, n), pack(f, "i.bin")};
    for (int k = 0; k < 2; k++) {
        ndp_token_cache c = sample_of(f, paths[k]);
        assert_true(c.head);
        assert_int_equal(c.n_tokens, NDP_SAMPLE_BYTES / 2);
        assert_int_equal(c.offsets[c.n_documents], c.n_tokens);
        assert_int_equal(c.n_texts, 0);
        ndp_token_cache_close(&c);
        free(paths[k]);
    }
    free(ids);
}

/* The errors of a run; what lies beyond the head is not seen. */
static void errors_are_those_of_a_run(void **state) {
    const fixture *f = *state;
    ndp_str late = {0};
    for (int i = 0; i < 100; i++)
        ndp_str_add(&late, "{\"text\": \"a\"}\n");
    ndp_str_add(&late, "{\"txt\": \"a\"}\n");
    char *good = write_file(f->folder, "late.jsonl", late.data, late.length);
    static const struct {
        const char *name, *contents, *says;
    } cases[] = {
        {"a.jsonl", "{\"text\":\"a\"}\n{\"txt\":1}\n", "a.jsonl:2: the record has no 'text'"},
        {"a.txt", "", "the corpus is empty: 1 file"},
        {"a.jsonl", "\n\n", "the corpus is empty: 1 file"},
        {"a.txt", "ab\xff", "a.txt:1: byte 2 of the file (0xff) is not valid UTF-8"},
        {"a.json", "{}", "a.json: not a list of records"},
        {"a.zip", "PK", ".zip files are not supported"},
        {"a.bin", "abc", "3 bytes are not a whole number of 16-bit ids"},
        {"a.txt.gz", "nothing", "a.txt.gz: not a whole .gz file"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_token_cache c;
        char *path = write_file(f->folder, cases[i].name, cases[i].contents, strlen(cases[i].contents));
        const char *const files[] = {good, path};
        bool alone = strstr(cases[i].says, "empty") != NULL;
        const ndp_dataset_options o = options(f, files + alone, 2 - alone);
        assert_int_not_equal(ndp_dataset_sample(&o, &c), NDP_OK);
        if (!strstr(ndp_error_message(), cases[i].says))
            fail_msg("case %d: %s", i, ndp_error_message());
        free(path);
    }
    ndp_token_cache c = sample_of(f, good);
    assert_true(c.head);
    ndp_token_cache_close(&c);
    ndp_str_release(&late);
    free(good);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(small_data_are_sampled_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(large_data_are_sampled_by_their_head, setup, teardown),
        cmocka_unit_test_setup_teardown(long_texts_end_between_characters, setup, teardown),
        cmocka_unit_test_setup_teardown(files_of_ids_are_sampled_too, setup, teardown),
        cmocka_unit_test_setup_teardown(errors_are_those_of_a_run, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
