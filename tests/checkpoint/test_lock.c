/* The lock of a run folder: who may take it, from whom, and what a holder does that lost it. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/rng.h"
#include "checkpoint/holder.h"
#include "checkpoint/lock.h"
#include "checkpoint/ranks.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

static int files_in(const char *folder) {
    DIR *d = opendir(folder);
    int n = 0;
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

/* Writes FOLDER/NAME as `h` would. */
static void put_holder(const char *folder, const char *name, const ndp_holder *h) {
    char text[NDP_HOLDER_TEXT], path[512];
    int counter, n = ndp_holder_text(h, text, &counter);
    put_file(in(folder, name, path), text, (size_t)n);
}

static ndp_holder read_holder(const char *folder) {
    char path[512];
    ndp_holder h = {0};
    bool there;
    CHECK_OK(ndp_holder_read(in(folder, "lock", path), &h, &there));
    assert_true(there);
    return h;
}

/* A process of this host that has ended. */
static ndp_holder dead_holder(int64_t generation) {
    ndp_holder h;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    ndp_holder_self(&h);
    h.pid = child;
    h.generation = generation;
    assert_int_equal(waitpid(child, NULL, 0), child);
    return h;
}

static ndp_holder holder_elsewhere(void) {
    ndp_holder h;
    ndp_holder_self(&h);
    snprintf(h.host, sizeof h.host, "node-7");
    snprintf(h.boot_id, sizeof h.boot_id, "00000000-1111-2222-3333-444444444444");
    h.pid = 4711;
    h.generation = 3;
    return h;
}

static ndp_lock *take(const char *folder) {
    ndp_lock *l;
    bool held;
    CHECK_OK(ndp_lock_create(folder, false, &l));
    CHECK_OK(ndp_lock_try(l, &held));
    assert_true(held);
    return l;
}

static void refused(const char *folder, ndp_status code, const char *words) {
    ndp_lock *l;
    bool held = true;
    CHECK_OK(ndp_lock_create(folder, false, &l));
    CHECK_FAILS(ndp_lock_try(l, &held), code, words);
    assert_false(held);
    ndp_lock_destroy(l);
}

static void taken_and_released(void **state) {
    char run[512];
    in(*state, "runs/a", run);
    ndp_lock *l = take(run);
    ndp_holder self, h = read_holder(run);
    ndp_holder_self(&self);
    self.generation = 1;
    assert_true(ndp_holder_same(&h, &self) && h.start_time > 0 && h.pid_namespace > 0 && strlen(h.boot_id) == 36);
    assert_int_equal(files_in(run), 1);
    assert_string_equal(ndp_lock_note(l), "");
    CHECK_OK(ndp_lock_check(l));
    refused(run, NDP_EINVAL, "is in use: process ");
    CHECK_FAILS(ndp_lock_peek(run), NDP_EINVAL, "generation 1");
    assert_int_equal(files_in(run), 1);
    ndp_lock_destroy(l);
    assert_false(ndp_path_exists(run)); /* made by it, and empty */
    CHECK_OK(ndp_lock_peek(run));
    CHECK_OK(ndp_lock_check(NULL));
}

static void the_counter_grows(void **state) {
    setenv("NDP_LOCK_PATIENCE", "0.15", 1); /* a beat every 10 ms */
    ndp_lock *l = take(*state);
    unsetenv("NDP_LOCK_PATIENCE");
    int64_t first = read_holder(*state).counter;
    for (double end = ndp_now() + HANGS; read_holder(*state).counter < first + 3;)
        assert_true(ndp_now() < end);
    CHECK_OK(ndp_lock_check(l));
    ndp_lock_destroy(l);
    assert_int_equal(files_in(*state), 0);
    setenv("NDP_LOCK_PATIENCE", "soon", 1);
    CHECK_FAILS(ndp_lock_create(*state, false, &l), NDP_EINVAL, "NDP_LOCK_PATIENCE is \"soon\"");
    unsetenv("NDP_LOCK_PATIENCE");
}

static void a_dead_holder_of_this_host(void **state) {
    ndp_holder dead = dead_holder(5), reused;
    put_holder(*state, "lock", &dead);
    CHECK_OK(ndp_lock_peek(*state));
    ndp_lock *l = take(*state);
    assert_non_null(strstr(ndp_lock_note(l), "which has ended; generation 6"));
    assert_int_equal(read_holder(*state).generation, 6);
    assert_int_equal(files_in(*state), 1);
    ndp_lock_destroy(l);
    /* The number of a process that began later. */
    ndp_holder_self(&reused);
    reused.start_time--;
    reused.generation = 1;
    put_holder(*state, "lock", &reused);
    ndp_lock_destroy(take(*state));
    /* One that has ended and has not been waited for. */
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", child);
    FILE *f = fopen(path, "r");
    assert_true(f && fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    assert_non_null(strstr(text, ") Z "));
    ndp_holder zombie = dead;
    zombie.pid = child;
    sscanf(strrchr(text, ')'), ") %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld",
           &zombie.start_time);
    put_holder(*state, "lock", &zombie);
    ndp_lock_destroy(take(*state));
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* The machine was booted while a run held the lock: a process of the boot before is dead, whatever its number says now.
 * Nothing of this is enough by itself. */
static void a_holder_of_an_earlier_boot(void **state) {
    ndp_holder self, h;
    ndp_holder_self(&self);
    if (!self.machine_id[0]) {
        print_message("SKIPPED: this system has no machine id\n");
        skip();
    }
    self.generation = 4;
    snprintf(self.boot_id, sizeof self.boot_id, "00000000-1111-2222-3333-444444444444");
    for (int k = 0; k < 5; k++) {
        h = self;
        h.pid = k == 0 ? 4711 : h.pid; /* of no process, or of one that lives now */
        h.machine_id[0] = k == 2 ? '?' : h.machine_id[0];
        h.host[0] = k == 3 ? '?' : h.host[0];
        h.pid_namespace += k == 4; /* a container */
        put_holder(*state, "lock", &h);
        if (k >= 2) {
            refused(*state, NDP_EINVAL, "is in use: process ");
            continue;
        }
        CHECK_OK(ndp_lock_peek(*state));
        ndp_lock *l = take(*state);
        assert_non_null(strstr(ndp_lock_note(l), "which has ended; generation 5"));
        ndp_lock_destroy(l);
    }
    /* A lock of a version that did not write the machine's id. */
    h = self;
    h.machine_id[0] = '\0';
    put_holder(*state, "lock", &h);
    refused(*state, NDP_EINVAL, "this one before it restarted");
}

/* ---- other hosts ---- */

/* --restarts: the ranks of the start before have been given up, wherever they are and whether they live. */
static void a_launcher_starts_again(void **state) {
    static const struct {
        const char *then, *now;
        bool taken;
    } cases[] = {{"boot-17-4.0", "boot-17-4.1", true},
                 {"boot-17-4.9", "boot-17-4.10", true},
                 {"boot-17-4.1", "boot-17-4.1", false},
                 {"boot-17-4.2", "boot-17-4.1", false},
                 {"boot-17-4.0", "boot-17-44.1", false},
                 {"boot-18-4.0", "boot-17-4.1", false},
                 {"", "boot-17-4.1", false},
                 {"boot-17-4.0", "", false},
                 {"boot", "boot", false}};
    char path[512];
    for (int here = 0; here < 2; here++)
        for (int i = 0; i < NDP_COUNT(cases); i++) {
            ndp_holder h = holder_elsewhere();
            if (here)
                ndp_holder_self(&h);
            h.generation = 3;
            snprintf(h.launcher, sizeof h.launcher, "%s", cases[i].then);
            put_holder(*state, "lock", &h);
            setenv("NDP_LAUNCHER", cases[i].now, 1);
            if (!cases[i].taken) {
                refused(*state, NDP_EINVAL, "is in use: process ");
                assert_int_equal(unlink(in(*state, "lock", path)), 0);
                continue;
            }
            ndp_lock *l = take(*state);
            assert_non_null(strstr(ndp_lock_note(l), "whose launcher has started these ranks in place of it; "
                                                     "generation 4"));
            ndp_lock_destroy(l);
        }
    setenv("NDP_LAUNCHER", "boot-17-4.0", 1);
    ndp_lock *before = take(*state);
    setenv("NDP_LAUNCHER", "boot-17-4.1", 1);
    ndp_lock *now = take(*state);
    CHECK_FAILS(ndp_lock_check(before), NDP_EINVAL, "has taken over the run folder ");
    CHECK_OK(ndp_lock_check(now));
    ndp_lock_destroy(before);
    CHECK_OK(ndp_lock_check(now));
    ndp_lock_destroy(now);
    unsetenv("NDP_LAUNCHER");
}

static void a_holder_elsewhere_is_refused(void **state) {
    ndp_holder h = holder_elsewhere(), self;
    put_holder(*state, "lock", &h);
    refused(*state, NDP_EINVAL, "process 4711 on 'node-7' holds ");
    refused(*state, NDP_EINVAL, "that is another host. If `ps -p 4711` there shows no such process, remove ");
    CHECK_OK(ndp_lock_peek(*state)); /* nothing is known of it */
    ndp_holder_self(&self);
    self.pid_namespace++;
    self.generation = 1;
    put_holder(*state, "lock", &self);
    refused(*state, NDP_EINVAL, "that is another container of this host");
    snprintf(self.boot_id, sizeof self.boot_id, "%s", h.boot_id);
    put_holder(*state, "lock", &self);
    refused(*state, NDP_EINVAL, "this one before it restarted");
    assert_int_equal(files_in(*state), 1);
}

/* What node-7 writes with each beat. */
static void beat(const char *folder, ndp_holder *h) {
    char text[NDP_HOLDER_TEXT], path[512];
    in(folder, "lock", path);
    int counter, fd = open(path, O_WRONLY | O_CLOEXEC);
    h->counter++;
    ndp_holder_text(h, text, &counter);
    assert_int_equal(pwrite(fd, text + counter, NDP_HOLDER_COUNTER, counter), NDP_HOLDER_COUNTER);
    close(fd);
}

static void a_silent_holder_elsewhere(void **state) {
    enum { POLL = 20000 };
    const double patience = 0.5;
    ndp_holder h = holder_elsewhere();
    ndp_lock *l;
    bool held;
    put_holder(*state, "lock", &h);
    setenv("NDP_LOCK_PATIENCE", "0.5", 1);
    CHECK_OK(ndp_lock_create(*state, true, &l));
    unsetenv("NDP_LOCK_PATIENCE");
    CHECK_OK(ndp_lock_try(l, &held));
    assert_non_null(strstr(ndp_lock_note(l), "process 4711 on 'node-7' holds "));
    /* As long as the counter grows between any two looks. */
    for (double end = ndp_now() + 3 * patience; ndp_now() < end; usleep(POLL)) {
        beat(*state, &h);
        CHECK_OK(ndp_lock_try(l, &held));
        assert_false(held);
        assert_string_equal(ndp_lock_note(l), "");
    }
    double silent = ndp_now(), waited;
    do {
        usleep(POLL);
        CHECK_OK(ndp_lock_try(l, &held));
        waited = ndp_now() - silent;
        assert_true(waited < HANGS);
    } while (!held);
    assert_true(waited >= patience - 0.1); /* the last counter was seen up to a poll before */
    assert_non_null(strstr(ndp_lock_note(l), "whose counter has stood still for 0.5 s; generation 4"));
    assert_int_equal(read_holder(*state).generation, 4);
    ndp_lock_destroy(l);
    assert_int_equal(files_in(*state), 0);
}

/* Time in which the file was not read proves nothing: only a second of it counts. */
static void a_reader_that_slept(void **state) {
    ndp_holder h = holder_elsewhere();
    ndp_lock *l;
    bool held;
    put_holder(*state, "lock", &h);
    setenv("NDP_LOCK_PATIENCE", "1.5", 1);
    CHECK_OK(ndp_lock_create(*state, true, &l));
    unsetenv("NDP_LOCK_PATIENCE");
    CHECK_OK(ndp_lock_try(l, &held));
    usleep(2000000);
    CHECK_OK(ndp_lock_try(l, &held));
    assert_false(held);
    ndp_lock_destroy(l);
}

/* ---- several takers ---- */

typedef struct race {
    atomic_int ready, held, done;
} race;

/* One process: takes the lock if it can, and holds it until all have tried. */
static void run_taker(const char *folder, race *r, int takers) {
    ndp_lock *l;
    bool held = false;
    if (ndp_lock_create(folder, false, &l) != NDP_OK)
        _exit(1);
    atomic_fetch_add(&r->ready, 1);
    while (atomic_load(&r->ready) < takers)
        ;
    ndp_status st = ndp_lock_try(l, &held);
    bool sound = held ? st == NDP_OK && ndp_lock_check(l) == NDP_OK : st == NDP_EINVAL;
    atomic_fetch_add(&r->held, held);
    atomic_fetch_add(&r->done, 1);
    while (atomic_load(&r->done) < takers)
        usleep(100);
    if (held && ndp_lock_check(l) != NDP_OK)
        sound = false;
    if (!sound)
        fprintf(stderr, "held %d, status %d: %s\n", held, (int)st, ndp_error_message());
    ndp_lock_destroy(l);
    _exit(sound ? 0 : 2);
}

static void run_race(const char *folder, race *r, int takers) {
    pid_t children[8];
    *r = (race){0};
    for (int i = 0; i < takers; i++) {
        children[i] = fork();
        if (children[i] == 0)
            run_taker(folder, r, takers);
    }
    for (int i = 0; i < takers; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(atomic_load(&r->held), 1);
    assert_int_equal(files_in(folder), 0);
}

/* Free, held by a dead process, half taken over by a dead one: one of up to eight gets it. */
static void one_of_many(void **state) {
    enum { ROUNDS = 60 };
    if (EMULATED) /* qemu gives a child the start time of its parent, by which processes are known */
        skip();
    race *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(r != MAP_FAILED);
    for (int i = 0; i < ROUNDS; i++) {
        ndp_holder dead = dead_holder(1), taker = dead_holder(2);
        if (i % 3 > 0)
            put_holder(*state, "lock", &dead);
        if (i % 3 > 1)
            put_holder(*state, "lock.2", &taker);
        run_race(*state, r, 2 + i % 7);
    }
    munmap(r, sizeof *r);
}

static void a_taker_that_died(void **state) {
    ndp_holder dead = dead_holder(1), taker = dead_holder(2), late = dead_holder(1);
    put_holder(*state, "lock", &dead);
    put_holder(*state, "lock.2", &taker);
    ndp_lock *l = take(*state);
    assert_int_equal(read_holder(*state).generation, 3);
    assert_int_equal(files_in(*state), 1);
    put_holder(*state, "lock.1", &late); /* came too late, and counts for nothing */
    CHECK_OK(ndp_lock_check(l));
    refused(*state, NDP_EINVAL, "generation 3");
    ndp_lock_destroy(l);
    /* One that lives is about to have the lock. */
    ndp_holder_self(&taker);
    taker.generation = 2;
    put_holder(*state, "lock", &dead);
    put_holder(*state, "lock.2", &taker);
    refused(*state, NDP_EINVAL, "is in use: process ");
}

/* ---- lost ---- */

static void a_holder_that_lost_it(void **state) {
    char path[512];
    ndp_lock *l = take(*state);
    ndp_holder other = holder_elsewhere(), self;
    put_holder(*state, "lock.2", &other);
    assert_int_equal(rename(in(*state, "lock.2", path), in(*state, "lock", (char[512]){0})), 0);
    CHECK_FAILS(ndp_lock_check(l), NDP_EINVAL, "process 4711 on 'node-7' has taken over ");
    assert_false(ndp_lock_held(l));
    ndp_lock_destroy(l);
    self = read_holder(*state);
    assert_true(ndp_holder_same(&self, &other));
    assert_int_equal(unlink(in(*state, "lock", path)), 0);
    l = take(*state);
    assert_int_equal(unlink(path), 0);
    CHECK_FAILS(ndp_lock_check(l), NDP_EINVAL, "/lock is gone");
    ndp_lock_destroy(l);
}

/* A save whose lock is lost at the start, or while it writes: nothing is committed, removed or cleaned. */
static void a_save_without_the_lock(void **state) {
    char path[512], step[512];
    ndp_holder other = holder_elsewhere();
    part p;
    part_init(&p, 0, 1, TENSORS, 1);
    CHECK_OK(save_step(NULL, *state, 1, 0, INT64_MAX));
    ndp_lock *l = take(*state);
    ndp_checkpoint_info info = {.step = 2, .samples = 20, .seed = 42, .lock = l};
    CHECK_OK(ndp_checkpoint_save(NULL, *state, &info, tensors, TENSORS, p.pieces, p.n, 1, NDP_SHARD_BYTES, NULL));
    assert_false(ndp_path_exists(in(*state, "step-00000001", path)));
    put_holder(*state, "lock.2", &other);
    assert_int_equal(rename(in(*state, "lock.2", path), in(*state, "lock", step)), 0);
    assert_int_equal(mkdir(in(*state, ".step-00000003.2.tmp", path), 0777), 0); /* of the other run */
    info.step = 3;
    CHECK_FAILS(ndp_checkpoint_save(NULL, *state, &info, tensors, TENSORS, p.pieces, p.n, 1, NDP_SHARD_BYTES, NULL),
                NDP_EINVAL, "has taken over");
    assert_true(ndp_path_exists(path));
    assert_true(ndp_path_exists(in(*state, "step-00000002", step)));
    assert_false(ndp_path_exists(in(*state, "step-00000003", step)));
    assert_false(ndp_path_exists(in(*state, ".step-00000003.tmp", step)));
    CHECK_FAILS(ndp_weights_save(NULL, l, *state, tensors, WEIGHTS, p.pieces, p.n, INT64_MAX), NDP_EINVAL,
                "has taken over");
    assert_false(ndp_path_exists(in(*state, "model.safetensors", path)));
    ndp_lock_destroy(l);
}

/* A lost host comes back while its threads write a save. The run that has taken over may have cleaned the folder. */
static void a_background_save_of_an_older_generation(void **state) {
    char path[512], checkpoints[512];
    for (int cleaned = 0; cleaned < 2; cleaned++) {
        part p;
        ndp_background_save *b;
        ndp_save_cost cost = {0};
        int64_t bytes;
        bool ended = false;
        part_init(&p, 0, 1, TENSORS, 1);
        setenv("NDP_LAUNCHER", "boot-17-4.0", 1);
        ndp_lock *before = take(*state);
        ndp_save_request r = {in(*state, "checkpoints", checkpoints),
                              {.step = 1, .lock = before},
                              tensors,
                              p.pieces,
                              TENSORS,
                              p.n,
                              0,
                              NDP_SHARD_BYTES};
        CHECK_OK(ndp_folder_create(checkpoints));
        CHECK_OK(ndp_background_save_bytes(NULL, &r, &bytes));
        void *space = malloc((size_t)bytes + 1);
        CHECK_OK(ndp_background_save_begin(NULL, &r, space, bytes, &b));
        setenv("NDP_LAUNCHER", "boot-17-4.1", 1);
        ndp_lock *now = take(*state);
        if (cleaned)
            CHECK_OK(ndp_checkpoint_clean(checkpoints));
        ndp_status st = NDP_OK;
        while (st == NDP_OK && !ended)
            st = ndp_background_save_go_on(b, &ended, &cost);
        CHECK_FAILS(st, NDP_EINVAL, "has taken over the run folder ");
        assert_false(cost.committed || ndp_path_exists(in(checkpoints, "step-00000001", path)));
        free(space);
        ndp_lock_destroy(before);
        ndp_lock_destroy(now);
        CHECK_OK(ndp_folder_remove(checkpoints));
    }
    unsetenv("NDP_LAUNCHER");
}

/* ---- files that are not locks, calls that fail ---- */

static void no_locks(void **state) {
    static const char *const texts[] = {
        "", "{", "[]", "{\"host\": \"a\", \"pid\": 1}", "{\"host\": \"a\", \"pid\": 0}", "{\"host\": 3}"};
    char path[512];
    in(*state, "lock", path);
    for (int i = 0; i < NDP_COUNT(texts); i++) {
        put_file(path, texts[i], strlen(texts[i]));
        refused(*state, NDP_EFORMAT, "is not the lock of a run");
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    refused(*state, NDP_EFORMAT, "is not a regular file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    refused(*state, NDP_EFORMAT, "is not a regular file");
}

/* Each call that takes a lock fails once: the lock is not held, and what was there is there. */
static void calls_that_fail(void **state) {
    for (ndp_fault_kind kind = 0; kind < NDP_FAULT_KINDS; kind++)
        for (int dead = 0; dead < 2; dead++)
            for (int n = 1;; n++) {
                ndp_holder h = dead_holder(1);
                char path[512];
                ndp_lock *l;
                bool held = false;
                in(*state, "lock", path);
                unlink(path);
                if (dead)
                    put_holder(*state, "lock", &h);
                CHECK_OK(ndp_lock_create(*state, false, &l));
                ndp_fault_arm(kind, n);
                ndp_status st = ndp_lock_try(l, &held);
                bool fired = ndp_fault_fired(kind);
                ndp_fault_arm(kind, 0);
                assert_int_equal(st == NDP_OK, held);
                assert_int_equal(fired, !held);
                assert_int_equal(files_in(*state), held || dead);
                ndp_lock_destroy(l);
                if (!fired)
                    break;
            }
}

#define LOCK_TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, drop_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        LOCK_TEST(taken_and_released),
        LOCK_TEST(the_counter_grows),
        LOCK_TEST(a_dead_holder_of_this_host),
        LOCK_TEST(a_holder_of_an_earlier_boot),
        LOCK_TEST(a_launcher_starts_again),
        LOCK_TEST(a_holder_elsewhere_is_refused),
        LOCK_TEST(a_silent_holder_elsewhere),
        LOCK_TEST(a_reader_that_slept),
        LOCK_TEST(one_of_many),
        LOCK_TEST(a_taker_that_died),
        LOCK_TEST(a_holder_that_lost_it),
        LOCK_TEST(a_save_without_the_lock),
        LOCK_TEST(a_background_save_of_an_older_generation),
        LOCK_TEST(no_locks),
        LOCK_TEST(calls_that_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
