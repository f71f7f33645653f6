/* Mapped files that are cut while they are mapped: they read as zeros, and the check names them. */
#include "base/text.h"

#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64, SIZE = PAGE * PAGES };

static char *make_file(void) {
    char *path = strdup("/tmp/ndp-watched-XXXXXX"), *bytes = malloc(SIZE);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    memset(bytes, 'x', SIZE);
    assert_int_equal(write(fd, bytes, SIZE), SIZE);
    close(fd);
    free(bytes);
    return path;
}

static int64_t sum(const ndp_mapped *m) {
    int64_t n = 0;
    for (size_t i = 0; i < m->size; i++)
        n += m->data[i] == 'x';
    return n;
}

static void a_cut_file_reads_as_zeros_and_is_named(void **state) {
    (void)state;
    static const int64_t cuts[] = {0, 1, PAGE, 10 * PAGE, 10 * PAGE + 7, SIZE - 1};
    for (int i = 0; i < NDP_COUNT(cuts); i++) {
        char *path = make_file(), want[128];
        ndp_mapped m;
        CHECK_OK(ndp_file_map(path, &m));
        assert_int_equal(sum(&m), SIZE);
        CHECK_OK(ndp_file_check(&m));
        assert_int_equal(truncate(path, cuts[i]), 0);
        assert_int_equal(sum(&m), cuts[i]);
        snprintf(want, sizeof want, "'%s' was cut from %d to %lld bytes while it was in use", path, SIZE,
                 (long long)cuts[i]);
        CHECK_FAILS(ndp_file_check(&m), NDP_EIO, want);
        assert_int_equal(truncate(path, SIZE), 0); /* long again, but its bytes are gone */
        if (cuts[i] <= SIZE - PAGE)
            CHECK_FAILS(ndp_file_check(&m), NDP_EIO, "could not be read to its end while it was in use");
        assert_int_equal(truncate(path, cuts[i]), 0);
        CHECK_FAILS(ndp_file_end(&m, NDP_EFORMAT), NDP_EIO, path);
        assert_null(m.data);
        unlink(path);
        free(path);
    }
}

/* Another file of that name, or none: the mapped one is as it was. */
static void a_replaced_file_is_fine(void **state) {
    (void)state;
    char *path = make_file();
    ndp_mapped m;
    CHECK_OK(ndp_file_map(path, &m));
    CHECK_OK(ndp_file_write_atomic(path, "short", 5));
    assert_int_equal(sum(&m), SIZE);
    CHECK_OK(ndp_file_check(&m));
    unlink(path);
    assert_int_equal(ndp_file_end(&m, NDP_EFORMAT), NDP_EFORMAT);
    free(path);
}

typedef struct reader {
    const ndp_mapped *mapped;
    atomic_bool *cut; /* the file is short now */
    int64_t n;        /* the sum of a read that began after the cut */
} reader;

static void *read_on(void *arg) {
    reader *r = arg;
    for (bool last = false; !last;) {
        last = atomic_load(r->cut);
        r->n = sum(r->mapped);
    }
    return NULL;
}

/* All threads meet the loss at once, each anywhere; other files stay as they are. */
static void threads_read_on(void **state) {
    (void)state;
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    reader readers[THREADS];
    atomic_bool cut = false;
    char *path = make_file(), *other = make_file();
    ndp_mapped m, intact;
    CHECK_OK(ndp_file_map(path, &m));
    CHECK_OK(ndp_file_map(other, &intact));
    for (int i = 0; i < THREADS; i++) {
        readers[i] = (reader){i % 2 ? &m : &intact, &cut, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, read_on, &readers[i]), 0);
    }
    assert_int_equal(truncate(path, 3 * PAGE), 0);
    atomic_store(&cut, true);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(readers[i].n, i % 2 ? 3 * PAGE : SIZE);
    }
    CHECK_FAILS(ndp_file_end(&m, NDP_OK), NDP_EIO, path);
    CHECK_OK(ndp_file_end(&intact, NDP_OK));
    unlink(path), unlink(other);
    free(path), free(other);
}

/* ---- bus errors that are not ours ---- */

static volatile sig_atomic_t caught;

static void map_zeros(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    caught++;
    mmap(info->si_addr, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static void leave(int signal) { _exit(signal == SIGBUS ? 7 : 8); }

/* A page of a file that other code mapped and cut. */
static volatile const char *lost_page(void) {
    char *path = make_file();
    int fd = open(path, O_RDWR);
    void *data = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED || ftruncate(fd, 0))
        _exit(9);
    unlink(path);
    return data;
}

/* With that handler before ours, which a mapped and cut file has installed and used. */
static void child(const struct sigaction *users, bool sent) {
    char *path = make_file();
    ndp_mapped m;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    sigaction(SIGBUS, users, NULL);
    if (ndp_file_map(path, &m) != NDP_OK || truncate(path, 0) || sum(&m) != 0 || caught != 0)
        _exit(9);
    unlink(path);
    if (sent)
        raise(SIGBUS);
    else
        caught += *lost_page();
    _exit(caught ? 1 : 0);
}

static struct sigaction library;

static void ask_the_library(int signal, siginfo_t *info, void *context) { library.sa_sigaction(signal, info, context); }

/* A handler of the user that passes on to ours, which then is installed again and passes on to the user's. */
static void a_circle_ends(void **state) {
    (void)state;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        char *path = make_file();
        ndp_mapped m;
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        if (ndp_file_map(path, &m) != NDP_OK)
            _exit(9);
        sigaction(SIGBUS, &(struct sigaction){.sa_sigaction = ask_the_library, .sa_flags = SA_SIGINFO}, &library);
        if (ndp_file_map(path, &m) != NDP_OK || truncate(path, 0) || sum(&m) != 0)
            _exit(9);
        unlink(path);
        _exit(*lost_page());
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

/* In processes of their own. */
static void other_bus_errors_are_passed_on(void **state) {
    (void)state;
    const struct sigaction none = {.sa_handler = SIG_DFL}, ignore = {.sa_handler = SIG_IGN},
                           plain = {.sa_handler = leave}, full = {.sa_sigaction = map_zeros, .sa_flags = SA_SIGINFO};
    const struct {
        const struct sigaction *users;
        bool sent;
        int signal, code; /* how the process ends */
    } cases[] = {{&none, false, SIGBUS, 0}, {&none, true, SIGBUS, 0}, {&ignore, false, SIGBUS, 0},
                 {&ignore, true, 0, 0},     {&plain, false, 0, 7},    {&plain, true, 0, 7},
                 {&full, false, 0, 1}};
    fflush(stdout);
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0)
            child(cases[i].users, cases[i].sent);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(WIFSIGNALED(status) ? WTERMSIG(status) : 0, cases[i].signal);
        assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : 0, cases[i].code);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_bus_errors_are_passed_on),
        cmocka_unit_test(a_circle_ends),
        cmocka_unit_test(a_cut_file_reads_as_zeros_and_is_named),
        cmocka_unit_test(a_replaced_file_is_fine),
        cmocka_unit_test(threads_read_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
