#include "base/fault.h"
#include "base/text.h"
#include "check.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void strings_grow_and_detach(void **state) {
    (void)state;
    ndp_str s = {0};
    for (int i = 0; i < 1000; i++)
        ndp_str_addf(&s, "%d,", i);
    ndp_str_add(&s, "end");
    ndp_str_add_bytes(&s, "\0x", 2);
    assert_int_equal(s.length, 10 * 2 + 90 * 3 + 900 * 4 + 3 + 2);
    assert_int_equal(strlen(s.data), s.length - 2);
    char *text = ndp_str_detach(&s);
    assert_null(s.data);
    assert_memory_equal(text, "0,1,2,", 6);
    free(text);
    text = ndp_str_detach(&s);
    assert_string_equal(text, "");
    free(text);
    text = ndp_format("%s %d", "rank", 3);
    assert_string_equal(text, "rank 3");
    free(text);
}

static void a_failed_string_says_so_at_the_end(void **state) {
    (void)state;
    ndp_str s = {0};
    ndp_str_add(&s, "kept");
    ndp_str_add_bytes(&s, "", SIZE_MAX / 2); /* cannot be had */
    assert_true(s.failed);
    ndp_str_add(&s, "ignored");
    assert_string_equal(s.data, "kept");
    assert_null(ndp_str_detach(&s));
}

static void human_bytes(void **state) {
    (void)state;
    static const struct {
        double bytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.0 KiB"},
                 {1536, "1.5 KiB"},
                 {1048575, "1.0 MiB"},
                 {1610612736, "1.5 GiB"},
                 {0x1p60 * 1000, "1000.0 EiB"}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        char out[16];
        assert_string_equal(ndp_human_bytes(cases[i].bytes, out), cases[i].text);
    }
}

static void nearest_word(void **state) {
    (void)state;
    static const char *const keys[] = {"tp_size", "dp_shard_size", "lr", "weight_decay", "every", "keep"};
    static const char *const cases[][2] = {{"tp_sze", "tp_size"},
                                           {"tp_szie", "tp_size"},
                                           {"TP_Size", "tp_size"},
                                           {"dp_shard", NULL},
                                           {"LR", "lr"},
                                           {"wieght_decay", "weight_decay"},
                                           {"weightdecay", "weight_decay"},
                                           {"colour", NULL},
                                           {"x", NULL},
                                           {"", NULL}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        const char *found = ndp_nearest(cases[i][0], keys, NDP_COUNT(keys));
        if (cases[i][1])
            assert_string_equal(found ? found : "(none)", cases[i][1]);
        else
            assert_null(found);
    }
    char huge[1000];
    memset(huge, 'a', sizeof huge - 1);
    huge[sizeof huge - 1] = '\0';
    assert_null(ndp_nearest(huge, keys, NDP_COUNT(keys)));
    const char *only = huge;
    assert_null(ndp_nearest("a", &only, 1));
}

static void utf8(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t n, valid;
    } cases[] = {{"", 0, 0},
                 {"plain ascii text", 16, 16},
                 {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", 15, 15},
                 {"12345678\xff", 9, 8},
                 {"ab\xc0\x80", 4, 2},         /* overlong */
                 {"ab\xed\xa0\x80", 5, 2},     /* a surrogate */
                 {"ab\xf4\x90\x80\x80", 6, 2}, /* beyond U+10FFFF */
                 {"abc\xe2\x82", 5, 3},        /* cut off */
                 {"\x80", 1, 0}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        char *exact = malloc(cases[i].n + 1); /* so that a sanitizer sees a read behind the end */
        memcpy(exact, cases[i].text, cases[i].n);
        exact = realloc(exact, cases[i].n ? cases[i].n : 1);
        assert_int_equal(ndp_utf8_valid_prefix(exact, cases[i].n), cases[i].valid);
        free(exact);
    }
}

typedef struct folder {
    char path[64], inside[160];
} folder;

static const char *in(folder *f, const char *name) {
    snprintf(f->inside, sizeof f->inside, "%s/%s", f->path, name);
    return f->inside;
}

static int make_folder(void **state) {
    folder *f = calloc(1, sizeof *f);
    strcpy(f->path, "/tmp/ndp_test_XXXXXX");
    *state = f;
    return mkdtemp(f->path) ? 0 : -1;
}

static int remove_folder(void **state) {
    folder *f = *state;
    ndp_status st = ndp_folder_remove(f->path);
    bool gone = !ndp_path_exists(f->path);
    free(f);
    return st == NDP_OK && gone ? 0 : -1;
}

static void files_are_written_whole(void **state) {
    folder *f = *state;
    char *data;
    size_t size;
    size_t big = 300000;
    char *bytes = malloc(big);
    for (size_t i = 0; i < big; i++)
        bytes[i] = (char)(i * 7);
    CHECK_OK(ndp_file_write_atomic(in(f, "a"), "first", 5));
    CHECK_OK(ndp_file_write_atomic(in(f, "a"), bytes, big));
    CHECK_OK(ndp_file_read(in(f, "a"), &data, &size));
    assert_int_equal(size, big);
    assert_memory_equal(data, bytes, big);
    assert_int_equal(data[size], 0);
    free(data);
    ndp_mapped m;
    CHECK_OK(ndp_file_map(in(f, "a"), &m));
    assert_int_equal(m.size, big);
    assert_memory_equal(m.data, bytes, big);
    ndp_file_unmap(&m);
    free(bytes);
}

static void empty_files(void **state) {
    folder *f = *state;
    char *data;
    size_t size;
    ndp_mapped m;
    CHECK_OK(ndp_file_write_atomic(in(f, "empty"), "", 0));
    CHECK_OK(ndp_file_read(in(f, "empty"), &data, &size));
    assert_int_equal(size, 0);
    assert_string_equal(data, "");
    free(data);
    CHECK_OK(ndp_file_map(in(f, "empty"), &m));
    assert_int_equal(m.size, 0);
    assert_non_null(m.data);
    ndp_file_unmap(&m);
}

static void a_failed_write_leaves_the_old_file(void **state) {
    folder *f = *state;
    char *data;
    size_t size;
    CHECK_FAILS(ndp_file_write_atomic(in(f, "no/such/file"), "x", 1), NDP_EIO, "No such file");
    /* A folder cannot be replaced by a file: the rename fails after the write. */
    CHECK_OK(ndp_folder_create(in(f, "taken/inner")));
    CHECK_FAILS(ndp_file_write_atomic(in(f, "taken"), "x", 1), NDP_EIO, "taken");
    assert_true(ndp_path_is_folder(in(f, "taken/inner")));
    for (int kind = 0; kind < NDP_FAULT_KINDS; kind++) {
        CHECK_OK(ndp_file_write_atomic(in(f, "file"), "old", 3));
        ndp_fault_arm((ndp_fault_kind)kind, 1);
        CHECK_FAILS(ndp_file_write_atomic(in(f, "file"), "new text", 8), NDP_EIO, "/file'");
        CHECK_OK(ndp_file_read(in(f, "file"), &data, &size));
        assert_string_equal(data, "old");
        free(data);
    }
    int beside = 0;
    DIR *dir = opendir(f->path);
    for (struct dirent *e; (e = readdir(dir));)
        beside += strstr(e->d_name, ".tmp-") != NULL;
    closedir(dir);
    assert_int_equal(beside, 0);
}

static void unreadable_paths_are_named(void **state) {
    folder *f = *state;
    char *data;
    size_t size;
    ndp_mapped m;
    CHECK_FAILS(ndp_file_read(in(f, "missing"), &data, &size), NDP_EIO, "/missing': No such file");
    CHECK_FAILS(ndp_file_read(f->path, &data, &size), NDP_EIO, "it is a folder");
    CHECK_FAILS(ndp_file_map(in(f, "missing"), &m), NDP_EIO, "No such file");
    CHECK_FAILS(ndp_file_map(f->path, &m), NDP_EIO, "it is a folder");
    CHECK_FAILS(ndp_folder_sync(in(f, "missing")), NDP_EIO, "No such file");
}

static void reads_what_has_no_size(void **state) {
    folder *f = *state;
    char *data;
    size_t size;
    CHECK_OK(ndp_file_read("/proc/self/status", &data, &size));
    assert_true(size > 100);
    assert_int_equal(strlen(data), size);
    free(data);
    assert_int_equal(mkfifo(in(f, "pipe"), 0600), 0);
    ndp_mapped m; /* nothing writes into the pipe: opening it must not wait */
    CHECK_FAILS(ndp_file_map(in(f, "pipe"), &m), NDP_EIO, "not a regular file");
}

static void folders(void **state) {
    folder *f = *state;
    CHECK_OK(ndp_folder_create(in(f, "a/b/c")));
    CHECK_OK(ndp_folder_create(in(f, "a/b/c/")));
    CHECK_OK(ndp_folder_create("/"));
    assert_true(ndp_path_is_folder(in(f, "a/b/c")));
    CHECK_OK(ndp_file_write_atomic(in(f, "a/file"), "x", 1));
    assert_true(ndp_path_exists(in(f, "a/file")));
    assert_false(ndp_path_is_folder(in(f, "a/file")));
    CHECK_FAILS(ndp_folder_create(in(f, "a/file/b")), NDP_EIO, "a/file");
    CHECK_FAILS(ndp_folder_create(""), NDP_EINVAL, "without a name");
    CHECK_OK(ndp_folder_sync(in(f, "a")));
    /* A link is removed, not followed. */
    CHECK_OK(ndp_folder_create(in(f, "outside/kept")));
    char target[160];
    strcpy(target, in(f, "outside"));
    assert_int_equal(symlink(target, in(f, "a/link")), 0);
    CHECK_OK(ndp_folder_remove(in(f, "a")));
    assert_false(ndp_path_exists(in(f, "a")));
    assert_true(ndp_path_is_folder(in(f, "outside/kept")));
    CHECK_OK(ndp_folder_remove(in(f, "a")));
}

#define FOLDER_TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(strings_grow_and_detach),
                                       cmocka_unit_test(a_failed_string_says_so_at_the_end),
                                       cmocka_unit_test(human_bytes),
                                       cmocka_unit_test(nearest_word),
                                       cmocka_unit_test(utf8),
                                       FOLDER_TEST(files_are_written_whole),
                                       FOLDER_TEST(empty_files),
                                       FOLDER_TEST(a_failed_write_leaves_the_old_file),
                                       FOLDER_TEST(unreadable_paths_are_named),
                                       FOLDER_TEST(reads_what_has_no_size),
                                       FOLDER_TEST(folders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
