/* Small files that would fill the memory: refused with the numbers, and little memory is taken on the way. */
#include "data/sample.h"

#include "data/fixture.h"

#include <archive.h>
#include <archive_entry.h>
#include <sys/resource.h>

enum { PIECE = 16 << 20 };

/* Appends `text`, packed `times` times behind itself, to FOLDER/name: the filters read all of them as one text. */
static char *pack(const char *folder, const char *name, int (*filter)(struct archive *), const char *text, size_t n,
                  int times) {
    char *path = ndp_format("%s/%s", folder, name), *room = malloc(n + 4096);
    size_t used = 0;
    struct archive *a = archive_write_new();
    struct archive_entry *e = archive_entry_new();
    ndp_str all = {0};
    assert_int_equal(filter(a), ARCHIVE_OK);
    assert_int_equal(archive_write_set_format_raw(a), ARCHIVE_OK);
    archive_write_set_bytes_in_last_block(a, 1);
    assert_int_equal(archive_write_open_memory(a, room, n + 4096, &used), ARCHIVE_OK);
    archive_entry_set_filetype(e, AE_IFREG);
    assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
    assert_int_equal(archive_write_data(a, text, n), (la_ssize_t)n);
    archive_entry_free(e);
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    archive_write_free(a);
    for (int i = 0; i < times; i++)
        ndp_str_add_bytes(&all, room, used);
    CHECK_OK(ndp_file_write_atomic(path, all.data, all.length));
    print_message("  %s: %zu bytes are %zu\n", name, all.length, n * (size_t)times);
    ndp_str_release(&all);
    free(room);
    return path;
}

static int64_t peak_bytes(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (int64_t)u.ru_maxrss << 10;
}

/* Preparing this file fails, and takes at most `most` bytes. */
static void check_refused(const fixture *f, const char *path, int64_t most, const char *says) {
    char *cache = NULL;
    ndp_dataset_options o = {
        .files = (const char *const[]){path}, .n_files = 1, .cache_dir = f->folder, .tokenizer = f->t, .threads = 2};
    ndp_token_cache head = {0};
    int64_t before = peak_bytes();
    CHECK_FAILS(ndp_dataset_prepare(&o, &cache), NDP_EFORMAT, says);
    print_message("  %s\n", ndp_error_message());
    if (ndp_dataset_sample(&o, &head) == NDP_OK) /* of a text the head may be read */
        ndp_token_cache_close(&head);
    int64_t taken = peak_bytes() - before;
    print_message("  took %lld MiB\n", (long long)taken >> 20);
    assert_true(taken < most || SANITIZED); /* a sanitizer takes some as well */
}

static void a_packed_file_of_10_gigabytes(void **state) {
    const fixture *f = *state;
    static const struct {
        const char *name;
        int (*filter)(struct archive *);
        const char *says;
    } kinds[] = {{"a.jsonl.gz", archive_write_add_filter_gzip, "beyond 64 MiB a .gz file may expand 100 times"},
                 {"a.json.zst", archive_write_add_filter_zstd, "beyond 64 MiB a .zst file may expand 100 times"},
                 {"a.txt.xz", archive_write_add_filter_xz, "beyond 64 MiB a .xz file may expand 100 times"}};
    char *text = malloc(PIECE);
    memset(text, 'a', PIECE);
    for (int i = 0; i < NDP_COUNT(kinds); i++) {
        char *path = pack(f->folder, kinds[i].name, kinds[i].filter, text, PIECE, 640);
        check_refused(f, path, (int64_t)256 << 20, kinds[i].says);
        free(path);
    }
    free(text);
}

/* What is repetitive but small is read. */
static void a_packed_file_of_32_megabytes(void **state) {
    const fixture *f = *state;
    char *text = malloc(PIECE), *cache;
    for (size_t i = 0; i < PIECE; i += 16)
        memcpy(text + i, "{\"text\":\"a bb\"}\n", 16);
    char *path = pack(f->folder, "small.jsonl.gz", archive_write_add_filter_gzip, text, PIECE, 2);
    ndp_dataset_options o = {
        .files = (const char *const[]){path}, .n_files = 1, .cache_dir = f->folder, .tokenizer = f->t, .threads = 2};
    CHECK_OK(ndp_dataset_prepare(&o, &cache));
    free(cache);
    free(path);
    free(text);
}

/* "{}," are 3 bytes of a text and 700 of memory. */
static void a_record_of_many_values(void **state) {
    const fixture *f = *state;
    enum { N = 10 << 20, ROOM = 3 * N + 64 };
    char *text = malloc(ROOM);
    for (int list = 0; list < 2; list++) {
        size_t at = (size_t)sprintf(text, "%s{\"text\":\"a\"%s{\"text\":[{}", list ? "[" : "", list ? "}," : "}\n");
        for (int i = 0; i < N; i++, at += 3)
            memcpy(text + at, ",{}", 3);
        at += (size_t)sprintf(text + at, "]}%s\n", list ? "]" : "");
        char *path = write_file(f->folder, list ? "many.json" : "many.jsonl", text, at);
        check_refused(f, path, (int64_t)256 << 20,
                      list ? "many.json: record 2: a record of 10485762 values; at most 1048576 are read"
                           : "many.jsonl:2: a record of 10485762 values; at most 1048576 are read");
        free(path);
    }
    free(text);
}

/* A list of many records takes the memory of one. */
static void a_list_of_many_records(void **state) {
    const fixture *f = *state;
    enum { N = 1 << 20, RECORD = 14 };
    char *text = malloc(N * RECORD + 2), *cache;
    for (size_t i = 0; i < N; i++)
        memcpy(text + i * RECORD, i ? ",{\"text\":\"ab\"}" : "[{\"text\":\"ab\"}", RECORD);
    memcpy(text + N * RECORD, "]", 1);
    char *path = write_file(f->folder, "list.json", text, N * RECORD + 1);
    ndp_dataset_options o = {
        .files = (const char *const[]){path}, .n_files = 1, .cache_dir = f->folder, .tokenizer = f->t, .threads = 2};
    ndp_token_cache c;
    CHECK_OK(ndp_dataset_prepare(&o, &cache));
    CHECK_OK(ndp_token_cache_open(cache, &c));
    assert_int_equal(c.n_documents, N);
    ndp_token_cache_close(&c);
    free(cache);
    free(path);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packed_file_of_10_gigabytes),
        cmocka_unit_test(a_packed_file_of_32_megabytes),
        cmocka_unit_test(a_record_of_many_values),
        cmocka_unit_test(a_list_of_many_records),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
