/* One cache, built by several ranks. */
#include "base/fault.h"
#include "data/team.h"

#include "data/folder.h"
#include "data/small_tokenizer.h"
#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { SOURCES = 5 };

typedef struct fixture {
    char *folder;
    ndp_tokenizer *t;
    ndp_chat chat;
    char *files[SOURCES];
} fixture;

/* ---- a corpus of all kinds ---- */

static char *conversations(const char *folder) {
    ndp_str s = {0};
    for (int i = 0; i < 20000; i++)
        ndp_str_addf(&s,
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"what is %d\"},"
                     "{\"role\":\"assistant\",\"content\":\"%.*s\"}]}\n",
                     i, i % 9, "abcdefghij");
    char *path = write_file(folder, "a.jsonl", s.data, s.length);
    ndp_str_release(&s);
    return path;
}

/* Long and short documents, one of more than a part. */
static char *texts(const char *folder) {
    ndp_str s = {0};
    for (int i = 0; i < 4000; i++) {
        for (int k = 0; k < (i == 100 ? 100000 : i % 40); k++)
            ndp_str_addf(&s, "line %d of %d\n", k, i);
        ndp_str_add(&s, "<|endoftext|>\n");
    }
    char *path = write_file(folder, "b.txt", s.data, s.length);
    ndp_str_release(&s);
    return path;
}

static char *ids(const char *folder) {
    enum { N = 1 << 20 };
    uint16_t *all = malloc(N * sizeof *all);
    assert_non_null(all);
    for (int i = 0; i < N; i++)
        all[i] = i % 777 == 776 ? 257 : (uint16_t)(i % 251);
    char *path = write_file(folder, "c.bin", (const char *)all, N * sizeof *all);
    free(all);
    return path;
}

static char *list(const char *folder) {
    static const char TEXT[] = "[{\"text\":\"one\"},{\"text\":\"two\"}]";
    return write_file(folder, "d.json", TEXT, strlen(TEXT));
}

static char *archive(const char *folder) {
    char *path = ndp_format("%s/e.txt.gz", folder), text[5000];
    struct archive *a = archive_write_new();
    struct archive_entry *e = archive_entry_new();
    memset(text, 'z', sizeof text);
    assert_int_equal(archive_write_add_filter_gzip(a), ARCHIVE_OK);
    assert_int_equal(archive_write_set_format_raw(a), ARCHIVE_OK);
    assert_int_equal(archive_write_open_filename(a, path), ARCHIVE_OK);
    archive_entry_set_filetype(e, AE_IFREG);
    assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
    assert_int_equal(archive_write_data(a, text, sizeof text), sizeof text);
    archive_entry_free(e);
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    archive_write_free(a);
    return path;
}

static int setup(void **state) {
    fixture *f = calloc(1, sizeof *f);
    void *folder;
    if (!f || make_folder(&folder))
        return -1;
    *state = f;
    f->folder = folder;
    f->t = small_tokenizer(f->folder);
    CHECK_OK(ndp_chat_init(&f->chat, f->t, f->folder, "plain", NULL));
    char *(*const make[SOURCES])(const char *) = {conversations, texts, ids, list, archive};
    for (int i = 0; i < SOURCES; i++)
        f->files[i] = make[i](f->folder);
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    void *folder = f->folder;
    ndp_chat_release(&f->chat);
    ndp_tokenizer_destroy(f->t);
    for (int i = 0; i < SOURCES; i++)
        free(f->files[i]);
    free(f);
    return remove_folder(&folder);
}

static ndp_dataset_options options(const fixture *f, const char *cache, int threads) {
    return (ndp_dataset_options){.files = (const char *const *)f->files,
                                 .n_files = SOURCES,
                                 .format = {.chat = &f->chat},
                                 .cache_dir = cache,
                                 .tokenizer = f->t,
                                 .threads = threads};
}

/* Files of a folder whose names begin with `prefix`; "" counts all. */
static int count_files(const char *folder, const char *prefix) {
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.' && !strncmp(e->d_name, prefix, strlen(prefix));
    closedir(d);
    return n;
}

static void check_same(const char *path, const char *want, size_t size) {
    char *bytes;
    size_t n;
    CHECK_OK(ndp_file_read(path, &bytes, &n));
    assert_int_equal(n, size);
    assert_memory_equal(bytes, want, size);
    free(bytes);
}

static char *cache_of_one_rank(const fixture *f, size_t *size) {
    char *folder = ndp_format("%s/one", f->folder), *path, *bytes;
    ndp_dataset_options o = options(f, folder, 1);
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    CHECK_OK(ndp_file_read(path, &bytes, size));
    free(path);
    free(folder);
    return bytes;
}

/* ---- the same bytes ---- */

typedef struct steps {
    uint64_t last, total;
    int calls;
    bool forward;
} steps;

static void follow(void *user, uint64_t done, uint64_t total) {
    steps *s = user;
    s->forward &= done > s->last && done <= total;
    s->last = done;
    s->total = total;
    s->calls++;
}

static void any_number_of_ranks_makes_the_same_cache(void **state) {
    const fixture *f = *state;
    size_t size;
    char *one = cache_of_one_rank(f, &size);
    ndp_token_cache c;
    char *path = write_file(f->folder, "one.tokens", one, size);
    CHECK_OK(ndp_token_cache_open(path, &c));
    assert_int_equal(c.source_ends[0], 20000);
    assert_int_equal(c.source_ends[1], 20000 + 3900);
    assert_int_equal(c.source_ends[2], c.source_ends[1] + ((1 << 20) + 776) / 777);
    assert_int_equal(c.source_ends[4], c.source_ends[2] + 3);
    assert_non_null(c.trained);
    ndp_token_cache_close(&c);
    free(path);
    for (int ranks = 1; ranks <= 5; ranks += ranks < 3 ? 1 : 2)
        for (int threads = 1; threads < 3; threads++) {
            char *folder = ndp_format("%s/%d-%d", f->folder, ranks, threads);
            member members[TEAM_MOST] = {{0}};
            steps s = {.forward = true};
            for (int r = 0; r < ranks; r++)
                members[r].o = options(f, folder, threads);
            members[0].o.progress = follow;
            members[0].o.progress_user = &s;
            team_prepare(members, ranks);
            for (int r = 0; r < ranks; r++) {
                assert_string_equal(members[r].message, "");
                check_same(members[r].path, one, size);
                free(members[r].path);
            }
            if (!s.forward || s.calls < (ranks == 1 ? 2 : 1) || s.last != s.total)
                fail_msg("%d ranks: %d calls, the last at %llu of %llu, %s", ranks, s.calls, (unsigned long long)s.last,
                         (unsigned long long)s.total, s.forward ? "forward" : "not forward");
            assert_int_equal(count_files(folder, ""), 1); /* the cache alone */
            free(folder);
        }
    free(one);
}

/* Each cache folder has a leader of its own. */
static void folders_that_are_not_shared(void **state) {
    const fixture *f = *state;
    size_t size;
    char *one = cache_of_one_rank(f, &size), *folders[2];
    member members[5] = {{0}};
    for (int i = 0; i < 2; i++)
        folders[i] = ndp_format("%s/node%d", f->folder, i);
    for (int again = 0; again < 3; again++) { /* the second time all is there, the third time only on one node */
        steps s[5] = {{0}};
        for (int r = 0; r < 5; r++) {
            s[r].forward = true;
            members[r].o = options(f, folders[r % 2], 1);
            members[r].o.progress = follow;
            members[r].o.progress_user = &s[r];
        }
        team_prepare(members, 5);
        for (int r = 0; r < 5; r++) {
            assert_string_equal(members[r].message, "");
            assert_int_equal(strncmp(members[r].path, folders[r % 2], strlen(folders[r % 2])), 0);
            check_same(members[r].path, one, size);
            assert_int_equal(s[r].calls > 0, again == 0 ? r < 2 : again == 2 && r == 1);
        }
        if (again == 1)
            assert_int_equal(unlink(members[1].path), 0);
        for (int r = 0; r < 5; r++)
            free(members[r].path);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(count_files(folders[i], ""), 1);
        free(folders[i]);
    }
    free(one);
}

/* A rank that sees other files, or none, leaves the work to the others. */
static void a_rank_without_the_files(void **state) {
    const fixture *f = *state;
    size_t size;
    char *one = cache_of_one_rank(f, &size), *folder = ndp_format("%s/c", f->folder);
    char *other = write_file(f->folder, "other.txt", "x", 1);
    char *const none[SOURCES] = {other, other, other, other, "/no/such/file"};
    char *const others[SOURCES] = {other, other, other, other, other};
    member members[4] = {{0}};
    for (int r = 0; r < 4; r++)
        members[r].o = options(f, folder, 1);
    members[1].o.files = (const char *const *)none;
    members[2].o.files = (const char *const *)others;
    team_prepare(members, 4);
    for (int r = 0; r < 4; r++) {
        assert_string_equal(members[r].message, "");
        check_same(members[r].path, one, size);
        free(members[r].path);
    }
    free(other);
    free(folder);
    free(one);
}

/* ---- what goes wrong ---- */

static void check_all_fail(member *members, int n, const char *folder, ndp_status status, const char *says) {
    team_prepare(members, n);
    for (int r = 0; r < n; r++) {
        assert_int_equal(members[r].status, status);
        if (!strstr(members[r].message, says) || strcmp(members[r].message, members[0].message) != 0)
            fail_msg("rank %d: '%s', expected '%s'", r, members[r].message, says);
    }
    assert_int_equal(count_files(folder, ""), 0);
}

static void a_bad_record_is_told_by_all(void **state) {
    const fixture *f = *state;
    ndp_str s = {0};
    for (int i = 0; i < 200000; i++)
        ndp_str_addf(&s, i == 150000 ? "{\"txet\":1}\n" : "{\"text\":\"record %d\"}\n", i);
    char *file = write_file(f->folder, "bad.jsonl", s.data, s.length), *folder = ndp_format("%s/c", f->folder);
    ndp_str_release(&s);
    member members[4] = {{0}};
    for (int r = 0; r < 4; r++) {
        members[r].o = options(f, folder, 1);
        members[r].o.files = (const char *const *)&file;
        members[r].o.n_files = 1;
    }
    check_all_fail(members, 4, folder, NDP_EFORMAT, "bad.jsonl:150001: the record has no 'text'");
    free(folder);
    free(file);
}

static void a_full_disk_ends_all(void **state) {
    const fixture *f = *state;
    char *folder = ndp_format("%s/c", f->folder);
    member members[4] = {{0}};
    struct rlimit before, small;
    for (int r = 0; r < 4; r++)
        members[r].o = options(f, folder, 1);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){1000000, before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    check_all_fail(members, 4, folder, NDP_EIO, "data.cache_dir may name another folder");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    free(folder);
}

static void change(void *user, uint64_t done, uint64_t total) {
    (void)done, (void)total;
    free(write_file(user, "d.json", "[{\"text\":\"three\"}]", 18));
}

static void a_file_that_changes_meanwhile(void **state) {
    const fixture *f = *state;
    char *folder = ndp_format("%s/c", f->folder);
    member members[3] = {{0}};
    for (int r = 0; r < 3; r++)
        members[r].o = options(f, folder, 1);
    members[0].o.progress = change;
    members[0].o.progress_user = f->folder;
    check_all_fail(members, 3, folder, NDP_EFORMAT, "changed while it was tokenized");
    free(folder);
}

static void die(void *user, uint64_t done, uint64_t total) {
    (void)user;
    if (done > total / 2)
        raise(SIGKILL);
}

/* What a killed run leaves is not a cache, and the next one removes it; what a living run has is left alone. */
static void killed_in_the_middle(void **state) {
    const fixture *f = *state;
    char *folder = ndp_format("%s/c", f->folder);
    pid_t child = fork();
    if (child == 0) {
        char *path;
        ndp_dataset_options o = options(f, folder, 1);
        o.progress = die;
        _exit(ndp_dataset_prepare(&o, &path) == NDP_OK);
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL);
    assert_int_equal(count_files(folder, "building-"), 1);
    assert_int_equal(count_files(folder, ""), 1);
    size_t size;
    char *one = cache_of_one_rank(f, &size);
    member members[2] = {{0}};
    for (int r = 0; r < 2; r++)
        members[r].o = options(f, folder, 1);
    team_prepare(members, 2);
    for (int r = 0; r < 2; r++) {
        assert_string_equal(members[r].message, "");
        check_same(members[r].path, one, size);
        free(members[r].path);
    }
    assert_int_equal(count_files(folder, ""), 1);
    free(one);
    free(folder);
}

static void *prepare_team(void *arg) {
    team_prepare(arg, 3);
    return NULL;
}

static void two_runs_at_once(void **state) {
    const fixture *f = *state;
    size_t size;
    char *folder = ndp_format("%s/c", f->folder), *one = cache_of_one_rank(f, &size);
    member members[2][3] = {{{0}}};
    pthread_t threads[2];
    for (int i = 0; i < 6; i++)
        members[i / 3][i % 3].o = options(f, folder, 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, prepare_team, members[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 6; i++) {
        assert_string_equal(members[i / 3][i % 3].message, "");
        check_same(members[i / 3][i % 3].path, one, size);
        free(members[i / 3][i % 3].path);
    }
    assert_int_equal(count_files(folder, ""), 1);
    free(one);
    free(folder);
}

/* ---- folders that cannot be written ---- */

static void *prepare_where_nothing_is_written(void *arg) {
    ndp_fault_arm(NDP_FAULT_WRITE, 1);
    return team_rank(arg);
}

/* A cache that is there is enough. */
static void a_folder_to_read(void **state) {
    const fixture *f = *state;
    char *folder = ndp_format("%s/c", f->folder);
    meeting m = {.size = 2};
    for (int there = 0; there < 2; there++) {
        member members[2] = {{0}};
        pthread_t threads[2];
        assert_int_equal(pthread_barrier_init(&m.barrier, NULL, 2), 0);
        for (int r = 0; r < 2; r++) {
            members[r] = (member){.m = &m, .rank = r, .o = options(f, folder, 1)};
            assert_int_equal(
                pthread_create(&threads[r], NULL, r ? team_rank : prepare_where_nothing_is_written, &members[r]), 0);
        }
        for (int r = 0; r < 2; r++) {
            pthread_join(threads[r], NULL);
            if (there)
                assert_string_equal(members[r].message, "");
            else
                assert_non_null(strstr(members[r].message, "data.cache_dir may name another folder"));
            free(members[r].path);
        }
        pthread_barrier_destroy(&m.barrier);
        if (!there) {
            char *path;
            ndp_dataset_options o = options(f, folder, 1);
            assert_int_equal(count_files(folder, ""), 0);
            CHECK_OK(ndp_dataset_prepare(&o, &path));
            free(path);
        }
    }
    free(folder);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(any_number_of_ranks_makes_the_same_cache),
        TEST(folders_that_are_not_shared),
        TEST(a_rank_without_the_files),
        TEST(a_bad_record_is_told_by_all),
        TEST(a_full_disk_ends_all),
        TEST(a_file_that_changes_meanwhile),
        TEST(killed_in_the_middle),
        TEST(two_runs_at_once),
        TEST(a_folder_to_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
