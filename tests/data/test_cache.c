/* Token caches: keyed by content, whole or rebuilt. */
#include "data/cache/cache.h"

#include "data/folder.h"
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

typedef struct run {
    ndp_tokenizer *tokenizer;
    int builds; /* progress calls reach the end once a build */
    char *path;
} run;

static void count_builds(void *user, uint64_t done, uint64_t total) {
    if (done == total)
        ++*(int *)user;
}

static ndp_status prepare(run *r, const char *folder, const char *const *files, int n) {
    free(r->path);
    r->path = NULL;
    if (!r->tokenizer)
        CHECK_OK(ndp_tokenizer_create("bytes", &r->tokenizer));
    ndp_dataset_options o = {.files = files,
                             .n_files = n,
                             .cache_dir = folder,
                             .tokenizer = r->tokenizer,
                             .progress = count_builds,
                             .progress_user = &r->builds};
    return ndp_dataset_prepare(&o, &r->path);
}

static void release(run *r) {
    ndp_tokenizer_destroy(r->tokenizer);
    free(r->path);
}

static void documents_are_stored_with_bos(void **state) {
    run r = {0};
    char *a = write_file(*state, "a.txt", "ab\n<|endoftext|>\nc", 18);
    char *b = write_file(*state, "b.jsonl", "{\"text\":\"de\"}\n{\"text\":\"\"}\n", 26);
    CHECK_OK(prepare(&r, *state, (const char *[]){a, b}, 2));
    ndp_token_cache c;
    CHECK_OK(ndp_token_cache_open(r.path, &c));
    const int32_t want[] = {256, 'a', 'b', 256, 'c', 256, 'd', 'e'};
    const uint64_t offsets[] = {0, 3, 5, 8};
    assert_int_equal(c.n_tokens, 8);
    assert_int_equal(c.n_documents, 3);
    assert_int_equal(c.id_bytes, 2);
    assert_int_equal(c.largest_id, 256);
    assert_memory_equal(c.offsets, offsets, sizeof offsets);
    for (int i = 0; i < 8; i++)
        assert_int_equal(ndp_token_cache_id(&c, i), want[i]);
    ndp_token_cache_close(&c);
    free(a);
    free(b);
    release(&r);
}

static void the_key_is_content(void **state) {
    run r = {0};
    char *a = write_file(*state, "a.txt", "ab", 2), *b = write_file(*state, "b.txt", "ab", 2);
    char *c = write_file(*state, "c.txt", "ac", 2);
    CHECK_OK(prepare(&r, *state, (const char *[]){a}, 1));
    assert_int_equal(r.builds, 1);
    char *first = strdup(r.path);
    CHECK_OK(prepare(&r, *state, (const char *[]){b}, 1)); /* another path, the same bytes */
    assert_int_equal(r.builds, 1);
    assert_string_equal(r.path, first);
    CHECK_OK(prepare(&r, *state, (const char *[]){c}, 1));
    assert_int_equal(r.builds, 2);
    assert_string_not_equal(r.path, first);
    CHECK_OK(prepare(&r, *state, (const char *[]){a, c}, 2));
    assert_int_equal(r.builds, 3);
    ndp_tokenizer_destroy(r.tokenizer);
    static const char OTHER[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}";
    CHECK_OK(ndp_tokenizer_parse(OTHER, strlen(OTHER), "other", &r.tokenizer));
    CHECK_OK(prepare(&r, *state, (const char *[]){a}, 1));
    assert_int_equal(r.builds, 4);
    assert_string_not_equal(r.path, first);
    free(first);
    free(a);
    free(b);
    free(c);
    release(&r);
}

/* Every byte of a cache matters: whatever is changed or cut is noticed and the cache made again. */
static void damage_is_noticed_and_rebuilt(void **state) {
    run r = {0};
    char *a = write_file(*state, "a.txt", "abcd\n<|endoftext|>\ne", 20), *whole, *now;
    size_t size, now_size;
    CHECK_OK(prepare(&r, *state, (const char *[]){a}, 1));
    CHECK_OK(ndp_file_read(r.path, &whole, &size));
    int builds = r.builds;
    for (size_t at = 0; at <= size; at++) { /* the last one: cut by a byte */
        char *bad = malloc(size);
        memcpy(bad, whole, size);
        if (at < size)
            bad[at] ^= 0x10;
        CHECK_OK(ndp_file_write_atomic(r.path, bad, at < size ? size : size - 1));
        free(bad);
        CHECK_OK(prepare(&r, *state, (const char *[]){a}, 1));
        assert_int_equal(r.builds, ++builds);
        CHECK_OK(ndp_file_read(r.path, &now, &now_size));
        assert_int_equal(now_size, size);
        assert_memory_equal(now, whole, size);
        free(now);
    }
    for (size_t cut = 0; cut < size; cut++) {
        ndp_token_cache c;
        CHECK_OK(ndp_file_write_atomic(r.path, whole, cut));
        CHECK_FAILS(ndp_token_cache_open(r.path, &c), NDP_EFORMAT, "damaged or cut short");
    }
    free(whole);
    free(a);
    release(&r);
}

static void wide_vocabularies_take_32_bits(void **state) {
    run r = {0};
    static const char WIDE[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":70000},\"merges\":[]}}";
    CHECK_OK(ndp_tokenizer_parse(WIDE, strlen(WIDE), "wide", &r.tokenizer));
    char *a = write_file(*state, "a.txt", "aba", 3);
    CHECK_OK(prepare(&r, *state, (const char *[]){a}, 1));
    ndp_token_cache c;
    CHECK_OK(ndp_token_cache_open(r.path, &c));
    assert_int_equal(c.id_bytes, 4);
    assert_int_equal(c.largest_id, 70000);
    assert_int_equal(ndp_token_cache_id(&c, 0), 0);
    assert_int_equal(ndp_token_cache_id(&c, 1), 70000);
    assert_int_equal(c.n_tokens, 3);
    ndp_token_cache_close(&c);
    free(a);
    release(&r);
}

static void bad_corpora_are_refused(void **state) {
    run r = {0};
    char *empty = write_file(*state, "empty.txt", "", 0), *bad = write_file(*state, "bad.txt", "ok\n\xfe", 4);
    CHECK_FAILS(prepare(&r, *state, (const char *[]){empty}, 1), NDP_EINVAL, "the corpus is empty");
    CHECK_FAILS(prepare(&r, *state, (const char *[]){bad}, 1), NDP_EFORMAT, "bad.txt:2: byte 3");
    CHECK_FAILS(prepare(&r, *state, NULL, 0), NDP_EINVAL, "data.files");
    CHECK_FAILS(prepare(&r, *state, (const char *[]){"/no/such.txt"}, 1), NDP_EINVAL, "/no/such.txt");
    CHECK_FAILS(prepare(&r, bad, (const char *[]){bad}, 1), NDP_EIO, "data.cache_dir");
    ndp_tokenizer_destroy(r.tokenizer);
    static const char NARROW[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"o\":0},\"merges\":[]}}";
    CHECK_OK(ndp_tokenizer_parse(NARROW, strlen(NARROW), "narrow", &r.tokenizer));
    char *text = write_file(*state, "k.txt", "ok", 2);
    CHECK_FAILS(prepare(&r, *state, (const char *[]){text}, 1), NDP_EFORMAT, "k.txt:1: the character U+006B");
    char *names = ndp_format("ls %s | grep -c tokens", (char *)*state); /* nothing half-made is left */
    FILE *list = popen(names, "r");
    int left = -1;
    assert_int_equal(fscanf(list, "%d", &left), 1);
    pclose(list);
    assert_int_equal(left, 0);
    free(names);
    free(text);
    free(empty);
    free(bad);
    release(&r);
}

static void cut_file(void *path, uint64_t done, uint64_t total) {
    (void)done, (void)total;
    assert_int_equal(truncate(path, 3 << 20), 0);
}

/* A text that another process cuts while it is tokenized is named, and no cache is left. */
static void a_text_that_is_cut_is_named(void **state) {
    enum { N = 40 << 20 };
    char *text = malloc(N), *cache = ndp_format("%s/cache", (char *)*state), *path = NULL;
    for (size_t i = 0; i < N; i += 16)
        memcpy(text + i, "{\"text\":\"a bb\"}\n", 16);
    char *file = write_file(*state, "a.jsonl", text, N);
    ndp_tokenizer *t;
    CHECK_OK(ndp_tokenizer_create("bytes", &t));
    ndp_dataset_options o = {.files = (const char *const[]){file},
                             .n_files = 1,
                             .cache_dir = cache,
                             .tokenizer = t,
                             .threads = 2,
                             .progress = cut_file,
                             .progress_user = file};
    char want[300];
    snprintf(want, sizeof want, "'%s' was cut from 41943040 to 3145728 bytes while it was in use", file);
    CHECK_FAILS(ndp_dataset_prepare(&o, &path), NDP_EIO, want);
    assert_null(strstr(ndp_error_message(), "cannot write"));
    assert_int_equal(rmdir(cache), 0); /* it is empty */
    ndp_tokenizer_destroy(t);
    free(cache);
    free(file);
    free(text);
}

/* A full disk, played by a limit on the size of files: said with the file and the way out, and nothing is left. */
static void a_full_disk_is_told(void **state) {
    run r = {0};
    char text[20000];
    memset(text, 'x', sizeof text);
    char *a = write_file(*state, "a.txt", text, sizeof text), *cache = ndp_format("%s/cache", (char *)*state);
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){10000, before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    ndp_status st = prepare(&r, cache, (const char *[]){a}, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    CHECK_FAILS(st, NDP_EIO, "data.cache_dir");
    assert_non_null(strstr(ndp_error_message(), cache));
    assert_int_equal(rmdir(cache), 0); /* it is empty */
    CHECK_OK(prepare(&r, cache, (const char *[]){a}, 1));
    free(cache);
    free(a);
    release(&r);
}

typedef struct racer {
    const char *folder, *file;
    const ndp_tokenizer *tokenizer;
    char *path;
    ndp_status status;
} racer;

static void *race(void *arg) {
    racer *r = arg;
    ndp_dataset_options o = {.files = &r->file, .n_files = 1, .cache_dir = r->folder, .tokenizer = r->tokenizer};
    r->status = ndp_dataset_prepare(&o, &r->path);
    return NULL;
}

static void several_may_prepare_at_once(void **state) {
    run r = {0};
    CHECK_OK(ndp_tokenizer_create("bytes", &r.tokenizer));
    char *a = write_file(*state, "a.txt", "the same for all", 16);
    racer racers[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        racers[i] = (racer){*state, a, r.tokenizer, NULL, NDP_EBUG};
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(racers[i].status, NDP_OK);
        assert_string_equal(racers[i].path, racers[0].path);
    }
    ndp_token_cache c;
    CHECK_OK(ndp_token_cache_open(racers[0].path, &c));
    assert_int_equal(c.n_tokens, 17);
    ndp_token_cache_close(&c);
    for (int i = 0; i < 4; i++)
        free(racers[i].path);
    free(a);
    release(&r);
}

typedef struct steps {
    uint64_t last, calls;
    bool forward;
} steps;

static void follow(void *user, uint64_t done, uint64_t total) {
    steps *s = user;
    s->forward &= done > s->last && done <= total;
    s->last = done;
    s->calls++;
}

/* The bytes of the cache that `threads` make of a file, in a folder of their own. */
static char *cache_of(const char *folder, const ndp_tokenizer *t, const char *file, int threads, size_t *size) {
    char *path, *bytes, *own = ndp_format("%s/%d", folder, threads);
    steps s = {.forward = true};
    ndp_dataset_options o = {.files = (const char *[]){file, file},
                             .n_files = 2,
                             .cache_dir = own,
                             .tokenizer = t,
                             .threads = threads,
                             .progress = follow,
                             .progress_user = &s};
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    assert_true(s.forward && s.calls >= 2);
    CHECK_OK(ndp_file_read(path, &bytes, size));
    free(path);
    free(own);
    return bytes;
}

/* More than one share a file. */
static void any_number_of_threads_makes_the_same_cache(void **state) {
    ndp_tokenizer *t;
    ndp_str text = {0};
    for (int i = 0; i < 60000; i++)
        ndp_str_addf(&text, "{\"text\":\"record %d, once upon a time%s\"}\n", i, i % 7 ? "" : " \\u00e4");
    CHECK_OK(ndp_tokenizer_create("bytes", &t));
    char *file = write_file(*state, "a.jsonl", text.data, text.length);
    size_t one_size, size;
    char *one = cache_of(*state, t, file, 1, &one_size);
    for (int threads = 2; threads < 5; threads++) {
        char *bytes = cache_of(*state, t, file, threads, &size);
        assert_int_equal(size, one_size);
        assert_memory_equal(bytes, one, size);
        free(bytes);
    }
    ndp_str_add(&text, "{\"text\":7}\n{\"text\":\"");
    char *bad = write_file(*state, "bad.jsonl", text.data, text.length), *path;
    ndp_dataset_options o = {
        .files = (const char *[]){bad}, .n_files = 1, .cache_dir = *state, .tokenizer = t, .threads = 3};
    CHECK_FAILS(ndp_dataset_prepare(&o, &path), NDP_EFORMAT, "bad.jsonl:60001: 'text' is not a string");
    free(bad);
    free(one);
    free(file);
    ndp_str_release(&text);
    ndp_tokenizer_destroy(t);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(documents_are_stored_with_bos),
        TEST(the_key_is_content),
        TEST(damage_is_noticed_and_rebuilt),
        TEST(wide_vocabularies_take_32_bits),
        TEST(bad_corpora_are_refused),
        TEST(a_full_disk_is_told),
        TEST(a_text_that_is_cut_is_named),
        TEST(several_may_prepare_at_once),
        TEST(any_number_of_threads_makes_the_same_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
