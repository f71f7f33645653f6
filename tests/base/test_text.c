#include "base/fault.h"
#include "base/text.h"
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
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

static void patterns_that_repeat(void **state) {
    (void)state;
    static const char *const slow[] = {"+(*)", "*(+(a)b)", "@(*(a*b))", "x+(a@(b+(c)))", "*(*(a))"},
                             *const fast[] = {"*.@(q|v)_proj", "+([0-9])+(a)", "@(*|?*)*", "*a*b*",
                                              "+(a)*",         "\\+\\(*\\)",   "*("};
    for (int i = 0; i < NDP_COUNT(slow); i++)
        if (!ndp_pattern_repeats(slow[i]))
            fail_msg("%s does not repeat", slow[i]);
    for (int i = 0; i < NDP_COUNT(fast); i++)
        if (ndp_pattern_repeats(fast[i]))
            fail_msg("%s repeats", fast[i]);
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
    const char *near[3];
    assert_int_equal(ndp_nearest_names("zzzz", keys, 2, 3, near), 2); /* all of them, however far */
    assert_int_equal(ndp_nearest_names(cases[0][0], keys, NDP_COUNT(keys), 3, near), 3);
    assert_string_equal(near[0], cases[0][1]);
    assert_true(near[1] != near[0] && near[2] != near[1] && near[2] != near[0]);
    assert_int_equal(ndp_nearest_names(huge, keys, NDP_COUNT(keys), 1, near), 1);
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
        char *exact = malloc(cases[i].n + 1); /* so that a sanitizer sees a read past the end */
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
    for (int kind = 0; kind < NDP_FAULT_APPEND; kind++) {
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
    CHECK_FAILS(ndp_file_read(in(f, "missing"), &data, &size), NDP_EINVAL, "/missing': No such file");
    CHECK_FAILS(ndp_file_read(f->path, &data, &size), NDP_EIO, "it is a folder");
    CHECK_FAILS(ndp_file_map(in(f, "missing"), &m), NDP_EIO, "No such file");
    CHECK_FAILS(ndp_file_map_as(NDP_FILE_DATA, in(f, "missing"), &m), NDP_EINVAL, "No such file");
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
    CHECK_FAILS(ndp_file_map(in(f, "pipe"), &m), NDP_EIO, "/pipe': it is a pipe, not a file");
}

/* ---- not a regular file, or too large ---- */

static void make_socket(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    memcpy(address.sun_path, path, strlen(path) + 1);
    assert_int_equal(bind(s, (struct sockaddr *)&address, sizeof address), 0);
    close(s);
}

/* Refused by all three ways to open a file; none waits for another process, or reads without end. */
static void refused(const char *path, const char *why) {
    ndp_status of_user = strstr(why, "missing file") ? NDP_EINVAL : NDP_EIO;
    char *data;
    size_t size;
    ndp_mapped m;
    int fd;
    CHECK_FAILS(ndp_file_read_as(NDP_FILE_CONFIG, path, &data, &size), of_user, why);
    CHECK_FAILS(ndp_file_map(path, &m), NDP_EIO, why);
    CHECK_FAILS(ndp_file_open(NDP_FILE_HOSTS, path, &fd), of_user, why);
}

static void only_regular_files_are_opened(void **state) {
    folder *f = *state;
    char *data;
    size_t size;
    assert_int_equal(mkfifo(in(f, "pipe"), 0600), 0);
    refused(in(f, "pipe"), "/pipe': it is a pipe, not a file");
    make_socket(in(f, "socket"));
    refused(in(f, "socket"), "/socket': it is a socket, not a file");
    refused("/dev/zero", "'/dev/zero': it is a device, not a file");
    refused("/dev/tty", "'/dev/tty': it is a device, not a file");
    assert_int_equal(symlink("/dev/zero", in(f, "endless")), 0);
    refused(in(f, "endless"), "/endless': it is a device, not a file");
    assert_int_equal(symlink("nothing", in(f, "dangling")), 0);
    refused(in(f, "dangling"), "/dangling': it is a link to a missing file");
    assert_true(ndp_path_exists(in(f, "dangling")));
    assert_int_equal(symlink("round", in(f, "round")), 0);
    refused(in(f, "round"), "Too many levels of symbolic links");
    CHECK_OK(ndp_file_write_atomic(in(f, "file"), "text", 4)); /* as in the cache of Hugging Face's Hub */
    assert_int_equal(symlink("file", in(f, "link")), 0);
    CHECK_OK(ndp_file_read_as(NDP_FILE_CONFIG, in(f, "link"), &data, &size));
    assert_string_equal(data, "text");
    free(data);
}

/* By this process so far. */
static int64_t bytes_read(void) {
    long long n = -1;
    FILE *io = fopen("/proc/self/io", "r");
    assert_true(io && fscanf(io, "rchar: %lld", &n) == 1);
    fclose(io);
    return n;
}

static void a_kind_has_a_limit(void **state) {
    folder *f = *state;
    char *data;
    size_t size;
    int fd;
    CHECK_OK(ndp_file_write_atomic(in(f, "large"), "", 0));
    assert_int_equal(truncate(in(f, "large"), (16 << 20) + 1), 0);
    int64_t begin = bytes_read();
    CHECK_FAILS(ndp_file_read_as(NDP_FILE_CONFIG, in(f, "large"), &data, &size), NDP_EFORMAT,
                "/large': it has 16.0 MiB, a configuration of a model or tokenizer has 16.0 MiB at most");
    CHECK_FAILS(ndp_file_open(NDP_FILE_HOSTS, in(f, "large"), &fd), NDP_EFORMAT, "a hostfile has 1.0 MiB at most");
    assert_true(bytes_read() - begin < 1 << 20);
    CHECK_OK(ndp_file_read_as(NDP_FILE_TOKENIZER, in(f, "large"), &data, &size));
    assert_int_equal(size, (16 << 20) + 1);
    free(data);
    assert_int_equal(truncate(in(f, "large"), 16 << 20), 0);
    CHECK_OK(ndp_file_read_as(NDP_FILE_CONFIG, in(f, "large"), &data, &size));
    free(data);
}

/* Its size was said to be 0, and there is more than was allowed. */
static void what_does_not_end_is_cut(void **state) {
    (void)state;
    char *data;
    size_t size;
    int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    CHECK_FAILS(ndp_fd_read(fd, "standard input", 1 << 20, &data, &size), NDP_ENOMEM,
                "standard input has more than 1.0 MiB");
    close(fd);
}

/* ---- errno ---- */

static void in_child(folder *f, void (*body)(folder *f)) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        body(f);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void expect(ndp_status st, const char *words) {
    if (st == NDP_OK || !strstr(ndp_error_message(), words)) {
        fprintf(stderr, "expected '%s': %s\n", words, st == NDP_OK ? "no error" : ndp_error_message());
        _exit(1);
    }
}

static void as_nobody(folder *f) {
    char *data;
    size_t size;
    if (setgid(65534) || setuid(65534))
        _exit(1);
    expect(ndp_file_read(in(f, "mine"), &data, &size), "/mine': Permission denied");
    expect(ndp_file_read(in(f, "closed/file"), &data, &size), "/closed/file': Permission denied");
    expect(ndp_folder_create(in(f, "closed/new/one")), "/closed/new': Permission denied");
    expect(ndp_file_write_atomic(in(f, "new"), "x", 1), "/new");
    expect(ndp_file_write_atomic(in(f, "new"), "x", 1), "Permission denied");
    if (!ndp_path_exists(in(f, "closed/file")) ||
        strcmp(ndp_path_why_no_folder(in(f, "closed/file")), "Permission denied"))
        _exit(2);
}

static void without_permission(void **state) {
    folder *f = *state;
    if (geteuid() != 0) {
        print_message("SKIPPED: taking another user's place needs root\n");
        skip();
    }
    CHECK_OK(ndp_folder_create(in(f, "closed")));
    CHECK_OK(ndp_file_write_atomic(in(f, "closed/file"), "x", 1));
    CHECK_OK(ndp_file_write_atomic(in(f, "mine"), "x", 1));
    assert_int_equal(chmod(in(f, "closed"), 0700), 0);
    assert_int_equal(chmod(in(f, "mine"), 0600), 0);
    assert_int_equal(chmod(f->path, 0755), 0);
    in_child(f, as_nobody);
}

static void on_other_disks(folder *f) {
    char big[8192];
    memset(big, 'x', sizeof big);
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        _exit(77);
    if (mount("none", f->path, "tmpfs", 0, "size=4k"))
        _exit(77);
    expect(ndp_file_write_atomic(in(f, "file"), big, sizeof big), "/file': No space left on device");
    if (mount("none", f->path, NULL, MS_REMOUNT | MS_RDONLY, NULL))
        _exit(77);
    expect(ndp_folder_create(in(f, "a/b")), "/a': Read-only file system");
    expect(ndp_file_write_atomic(in(f, "file"), "x", 1), "Read-only file system");
}

static void full_and_read_only_disks(void **state) {
    if (system("unshare -m true >/dev/null 2>&1") != 0) {
        print_message("SKIPPED: a disk of its own needs the right to mount\n");
        skip();
    }
    in_child(*state, on_other_disks);
}

static void names_that_are_too_long(void **state) {
    folder *f = *state;
    char name[400], *data;
    size_t size;
    snprintf(name, sizeof name, "%s/%0300d", f->path, 1);
    CHECK_FAILS(ndp_file_read(name, &data, &size), NDP_EIO, "File name too long");
    CHECK_FAILS(ndp_folder_create(name), NDP_EIO, "File name too long");
    CHECK_FAILS(ndp_file_write_atomic(name, "x", 1), NDP_EIO, "File name too long");
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
                                       cmocka_unit_test(patterns_that_repeat),
                                       cmocka_unit_test(nearest_word),
                                       cmocka_unit_test(utf8),
                                       FOLDER_TEST(files_are_written_whole),
                                       FOLDER_TEST(empty_files),
                                       FOLDER_TEST(a_failed_write_leaves_the_old_file),
                                       FOLDER_TEST(unreadable_paths_are_named),
                                       FOLDER_TEST(reads_what_has_no_size),
                                       FOLDER_TEST(only_regular_files_are_opened),
                                       FOLDER_TEST(a_kind_has_a_limit),
                                       FOLDER_TEST(what_does_not_end_is_cut),
                                       FOLDER_TEST(without_permission),
                                       FOLDER_TEST(full_and_read_only_disks),
                                       FOLDER_TEST(names_that_are_too_long),
                                       FOLDER_TEST(folders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
