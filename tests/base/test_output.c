/* What a name stands for: links, devices, pipes and open files are written to and stay. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/text.h"
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

typedef struct folder {
    char path[32], *inside[4];
    int n;
} folder;

/* The last four names stay valid. */
static const char *in(folder *f, const char *name) {
    char **out = &f->inside[f->n++ % NDP_COUNT(f->inside)];
    free(*out);
    return *out = ndp_format("%s/%s", f->path, name);
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
    for (int i = 0; i < NDP_COUNT(f->inside); i++)
        free(f->inside[i]);
    free(f);
    return st == NDP_OK ? 0 : -1;
}

static mode_t type_of(const char *path) {
    struct stat info;
    return lstat(path, &info) ? 0 : info.st_mode & S_IFMT;
}

static void holds(const char *path, const char *text) {
    char *data;
    size_t size;
    CHECK_OK(ndp_file_read(path, &data, &size));
    assert_string_equal(data, text);
    free(data);
}

static int entries(folder *f) {
    DIR *dir = opendir(f->path);
    int n = 0;
    for (struct dirent *e; (e = readdir(dir));)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void write_and_check(const char *path, const char *text) {
    CHECK_OK(ndp_output_check(path));
    CHECK_OK(ndp_file_write_atomic(path, text, strlen(text)));
}

static void through_links(void **state) {
    folder *f = *state;
    CHECK_OK(ndp_folder_create(in(f, "real/deeper")));
    CHECK_OK(ndp_file_write_atomic(in(f, "real/file"), "old", 3));
    assert_int_equal(symlink("real/file", in(f, "relative")), 0);
    assert_int_equal(symlink(in(f, "relative"), in(f, "absolute")), 0);
    assert_int_equal(symlink("deeper/new", in(f, "real/dangling")), 0);
    assert_int_equal(symlink("real", in(f, "folder")), 0);
    assert_int_equal(symlink("round", in(f, "round")), 0);
    int before = entries(f);
    write_and_check(in(f, "relative"), "one");
    holds(in(f, "real/file"), "one");
    write_and_check(in(f, "absolute"), "two");
    holds(in(f, "real/file"), "two");
    write_and_check(in(f, "real/dangling"), "three");
    holds(in(f, "real/deeper/new"), "three");
    write_and_check(in(f, "folder/file"), "four");
    holds(in(f, "real/file"), "four");
    static const char *const links[] = {"relative", "absolute", "real/dangling", "folder"};
    for (int i = 0; i < NDP_COUNT(links); i++)
        assert_int_equal(type_of(in(f, links[i])), S_IFLNK);
    CHECK_FAILS(ndp_file_write_atomic(in(f, "round"), "x", 1), NDP_EIO, "Too many levels of symbolic links");
    CHECK_FAILS(ndp_output_check(in(f, "round")), NDP_EIO, "Too many levels of symbolic links");
    assert_int_equal(entries(f), before);
}

static void permissions_stay(void **state) {
    folder *f = *state;
    struct stat info;
    CHECK_OK(ndp_file_write_atomic(in(f, "file"), "old", 3));
    assert_int_equal(chmod(in(f, "file"), 0640), 0);
    CHECK_OK(ndp_file_write_atomic(in(f, "file"), "new", 3));
    assert_int_equal(stat(in(f, "file"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
}

/* A device of our own: /dev is not touched. */
static void a_device_is_written_to(void **state) {
    folder *f = *state;
    struct stat info;
    if (mknod(in(f, "full"), S_IFCHR | 0666, makedev(1, 7)) || mknod(in(f, "null"), S_IFCHR | 0666, makedev(1, 3))) {
        print_message("SKIPPED: making a device needs root\n");
        skip();
    }
    assert_int_equal(symlink("full", in(f, "link")), 0);
    static const char *const names[] = {"full", "link"};
    for (int i = 0; i < NDP_COUNT(names); i++) {
        CHECK_OK(ndp_output_check(in(f, names[i])));
        CHECK_FAILS(ndp_file_write_atomic(in(f, names[i]), "x", 1), NDP_EIO, "No space left on device");
        assert_int_equal(stat(in(f, names[i]), &info), 0);
        assert_true(S_ISCHR(info.st_mode) && info.st_rdev == makedev(1, 7));
    }
    assert_int_equal(type_of(in(f, "link")), S_IFLNK);
    write_and_check(in(f, "null"), "text");
    assert_int_equal(type_of(in(f, "null")), S_IFCHR);
    assert_int_equal(entries(f), 3);
}

typedef struct reader {
    const char *path;
    ndp_str text;
    size_t most; /* closes after so many bytes */
} reader;

static void *read_pipe(void *user) {
    reader *r = user;
    char part[4096];
    int fd = open(r->path, O_RDONLY | O_CLOEXEC);
    for (ssize_t n; r->text.length < r->most && (n = read(fd, part, sizeof part)) > 0;)
        ndp_str_add_bytes(&r->text, part, (size_t)n);
    close(fd);
    return NULL;
}

static void a_pipe_is_written_to(void **state) {
    folder *f = *state;
    char *path = ndp_format("%s/pipe", f->path), *big = malloc(1 << 20);
    memset(big, 'x', 1 << 20);
    assert_int_equal(mkfifo(path, 0600), 0);
    static const size_t most[] = {SIZE_MAX, 1}; /* all of it; a reader that goes away */
    for (int i = 0; i < NDP_COUNT(most); i++) {
        reader r = {path, .most = most[i]};
        pthread_t thread;
        CHECK_OK(ndp_output_check(path)); /* does not wait for a reader */
        assert_int_equal(pthread_create(&thread, NULL, read_pipe, &r), 0);
        ndp_status st = ndp_file_write_atomic(path, big, 1 << 20);
        pthread_join(thread, NULL);
        assert_int_equal(st, i == 0 ? NDP_OK : NDP_EIO);
        if (i == 0)
            assert_int_equal(r.text.length, 1 << 20);
        else
            assert_non_null(strstr(ndp_error_message(), "Broken pipe"));
        ndp_str_release(&r.text);
        assert_int_equal(type_of(path), S_IFIFO);
    }
    free(big);
    double begin = ndp_now();
    CHECK_FAILS(ndp_file_write_atomic(path, "x", 1), NDP_EIO, "it is a pipe that no process reads");
    assert_true(ndp_now() - begin > 4);
    assert_int_equal(entries(f), 1);
    free(path);
}

static void an_open_file_is_written_to(void **state) {
    folder *f = *state;
    char name[40];
    int fd = open(in(f, "file"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "before, ", 8), 8);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    assert_int_equal(symlink(name, in(f, "link")), 0);
    write_and_check(name, "there, ");
    write_and_check(in(f, "link"), "and after");
    holds(in(f, "file"), "before, there, and after");
    close(fd);
    CHECK_FAILS(ndp_output_check(name), NDP_EIO, "Bad file descriptor");
    CHECK_FAILS(ndp_file_write_atomic(name, "x", 1), NDP_EIO, "Bad file descriptor");
    fd = open(in(f, "file"), O_RDONLY | O_CLOEXEC);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    CHECK_FAILS(ndp_output_check(name), NDP_EIO, "open for reading only");
    close(fd);
}

static void a_path_is_tried(void **state) {
    folder *f = *state;
    CHECK_OK(ndp_output_check(in(f, "new")));
    assert_int_equal(entries(f), 0);
    CHECK_OK(ndp_file_write_atomic(in(f, "file"), "text", 4));
    CHECK_OK(ndp_output_check(in(f, "file")));
    holds(in(f, "file"), "text");
    CHECK_FAILS(ndp_output_check(in(f, "no/such")), NDP_EIO, "/no': No such file or directory");
    CHECK_FAILS(ndp_output_check(in(f, "file/below")), NDP_EIO, "/file': Not a directory");
    CHECK_FAILS(ndp_output_check(f->path), NDP_EIO, "it is a folder");
    CHECK_FAILS(ndp_output_check(""), NDP_EINVAL, "without a name");
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strcpy(at.sun_path, in(f, "socket"));
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&at, sizeof at), 0);
    CHECK_FAILS(ndp_output_check(in(f, "socket")), NDP_EIO, "it is a socket");
    CHECK_FAILS(ndp_file_write_atomic(in(f, "socket"), "x", 1), NDP_EIO, "it is a socket");
    assert_int_equal(type_of(in(f, "socket")), S_IFSOCK);
    close(s);
    assert_int_equal(entries(f), 2);
}

/* The temporary file's name may be taken: by a file of an earlier process with our number, or by a link of another
 * user. */
static void a_planted_link_is_not_followed(void **state) {
    folder *f = *state;
    char name[64];
    CHECK_OK(ndp_file_write_atomic(in(f, "other"), "other", 5));
    snprintf(name, sizeof name, "file.tmp-%d-%d", (int)getpid(), (int)gettid());
    assert_int_equal(symlink("other", in(f, name)), 0);
    CHECK_OK(ndp_file_write_atomic(in(f, "file"), "text", 4));
    holds(in(f, "other"), "other");
    holds(in(f, "file"), "text");
    assert_int_equal(entries(f), 2);
}

/* fs.protected_symlinks: in a folder like /tmp, the links of others are not followed. */
static void links_of_others_are_not_followed(void **state) {
    folder *f = *state;
    char *protected = NULL;
    size_t size;
    bool on = ndp_file_read("/proc/sys/fs/protected_symlinks", &protected, &size) == NDP_OK && protected[0] == '1';
    free(protected);
    if (!on || geteuid() != 0) {
        print_message("SKIPPED: needs root and fs.protected_symlinks\n");
        skip();
    }
    CHECK_OK(ndp_folder_create(in(f, "shared")));
    assert_int_equal(chmod(in(f, "shared"), 01777), 0);
    CHECK_OK(ndp_file_write_atomic(in(f, "mine"), "mine", 4));
    static const char *const targets[] = {"../mine", "../new"};
    for (int i = 0; i < NDP_COUNT(targets); i++) {
        assert_int_equal(symlink(targets[i], in(f, "shared/link")), 0);
        assert_int_equal(lchown(in(f, "shared/link"), 65534, 65534), 0);
        CHECK_FAILS(ndp_output_check(in(f, "shared/link")), NDP_EIO, "/link': Permission denied");
        CHECK_FAILS(ndp_file_write_atomic(in(f, "shared/link"), "x", 1), NDP_EIO, "/link': Permission denied");
        assert_int_equal(unlink(in(f, "shared/link")), 0);
    }
    holds(in(f, "mine"), "mine");
    assert_int_equal(entries(f), 2);
}

#define FOLDER_TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {FOLDER_TEST(through_links),
                                       FOLDER_TEST(permissions_stay),
                                       FOLDER_TEST(a_device_is_written_to),
                                       FOLDER_TEST(a_pipe_is_written_to),
                                       FOLDER_TEST(an_open_file_is_written_to),
                                       FOLDER_TEST(a_path_is_tried),
                                       FOLDER_TEST(a_planted_link_is_not_followed),
                                       FOLDER_TEST(links_of_others_are_not_followed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
