/* Runs of the program that are ended from outside: by a signal to its parent, its process group or one of its ranks, or
 * by a disk that is full for a while or to the end. The step on disk is the last one done; then they are resumed, and
 * end with the bits and lines of a run that was left alone. */
#ifndef TESTS_TRAIN_END_SIGNALS_H
#define TESTS_TRAIN_END_SIGNALS_H

#include "train/ends.h"
#include "train/kills.h"

#include <sched.h>
#include <sys/mount.h>

enum { SIGNAL_STEPS = 300 };
enum { SLOW_SAVE = 5, SLOW_SYNC_MS = 520 }; /* a save syncs 10 or 11 times in a row, so it takes 5 s */

typedef struct program_run {
    const ends_layout *layout;
    const char *folder, *run, *transport; /* it writes to FOLDER/RUN and FOLDER/log */
    int every;                            /* checkpoint.every */
    bool resume;
    const char *const *settings; /* more of them, up to NULL; NULL: none */
    int restarts;
    int sync_ms;   /* what each sync of a file takes longer */
    bool in_batch; /* as in a job of a batch system */
} program_run;

/* In the new process. Calls of fault_points.c are slow where that is wanted. */
static inline void program_environment(const program_run *r) {
    char ms[16];
    snprintf(ms, sizeof ms, "%d", r->sync_ms);
    if (r->sync_ms) {
        setenv("LD_PRELOAD", ndp_format("%s/libfault_points.so", getenv("NDP_BUILD_DIR")), 1);
        setenv("FAULT_SYNC_MS", ms, 1);
    }
    if (r->in_batch)
        setenv("SLURM_JOB_ID", "7", 1);
}

static inline pid_t program_begin(const program_run *r) {
    const char *names[] = {"dp_replicate", "dp_shard", "cp", "tp", "pp"};
    const tiny_layout *l = &r->layout->axes;
    const int sizes[] = {l->replicate, l->shard, l->cp, l->tp, r->layout->pp};
    tiny_words w = {{0}, 0};
    tiny_add(&w, "%s", getenv("NDP_PROGRAM"));
    tiny_add(&w, "train");
    tiny_add(&w, "%s/job.yaml", r->folder);
    tiny_add(&w, "--transport=%s", r->transport);
    for (int i = 0; i < NDP_COUNT(sizes); i++)
        tiny_add(&w, "--set=parallelism.%s_size=%d", names[i], sizes[i]);
    tiny_add(&w, "--set=train.output_dir=%s/%s", r->folder, r->run);
    tiny_add(&w, "--set=data.cache_dir=%s/%s.cache", r->folder, r->run);
    tiny_add(&w, "--set=train.steps=%d", SIGNAL_STEPS);
    tiny_add(&w, "--set=checkpoint.every=%d", r->every);
    for (const char *const *it = r->settings; it && *it; it++)
        tiny_add(&w, "--set=%s", *it);
    if (r->restarts)
        tiny_add(&w, "--restarts=%d", r->restarts);
    if (r->resume)
        tiny_add(&w, "--resume");
    w.items[w.n] = NULL;
    char *log = ndp_format("%s/log", r->folder);
    CHECK_OK(ndp_file_write_atomic(log, "", 0));
    pid_t child = fork();
    if (child == 0) { /* as a shell with job control starts it, and not as one that ignores signals */
        setpgid(0, 0);
        for (int i = 0; i < 3; i++)
            signal((int[]){SIGINT, SIGHUP, SIGTERM}[i], SIG_DFL);
        int out = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
        dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
        dup2(out, STDOUT_FILENO);
        dup2(out, STDERR_FILENO);
        program_environment(r);
        if (chdir(r->folder) == 0) /* files of the settings are there */
            execv(w.items[0], w.items);
        _exit(127);
    }
    setpgid(child, child);
    free(log);
    while (w.n)
        free(w.items[--w.n]);
    return child;
}

static inline char *program_log(const program_run *r) {
    char *path = ndp_format("%s/log", r->folder), *text;
    size_t size;
    CHECK_OK(ndp_file_read(path, &text, &size));
    free(path);
    return text;
}

/* Waits until it shows a step; it may have ended before. */
static inline void program_reach(const program_run *r, pid_t child, int step) {
    char *line = ndp_format(" %d/", step);
    bool there = false;
    siginfo_t info = {0};
    for (double end = ndp_now() + HANGS; !there && ndp_now() < end; usleep(500)) {
        char *text = program_log(r);
        there =
            strstr(text, line) || (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid);
        free(text);
    }
    free(line);
}

static inline int program_finish(pid_t child, const char *what) {
    int status = tiny_end(child, what);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Of metrics: 0 before the run has begun. */
static inline int64_t program_lines(const program_run *r) {
    char *path = ndp_format("%s/%s/metrics.jsonl", r->folder, r->run);
    char *text = ndp_path_exists(path) ? tiny_metrics(r->folder, r->run) : strdup("");
    int64_t n = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        n++;
    free(text);
    free(path);
    return n;
}

/* ---- signals ---- */

typedef enum signal_target { TO_PARENT, TO_GROUP, TO_RANK, TO_MPIRUN, TARGETS } signal_target;

static const char *const target_names[TARGETS] = {"parent", "group", "a rank", "mpirun"};

static const struct {
    const char *transport;
    int layout; /* of ends_layouts */
} signal_worlds[] = {{"self", 0}, {"local", 3}, {"shm", 1}, {"shm", 3}, {"shm", 2}, {"shm", 4}, {"mpi", 1}, {"mpi", 2}};
enum { FIRST_MPI_WORLD = 6 };

/* The process of a rank; 0: it has ended. */
static inline pid_t rank_process(const program_run *r, int rank) {
    pid_t pids[32];
    char shm[64], mpi[64], path[64];
    int n = processes_of(r->folder, r->run, pids, NDP_COUNT(pids));
    int of_shm = snprintf(shm, sizeof shm, "NDP_RANK=%d", rank) + 1;
    int of_mpi = snprintf(mpi, sizeof mpi, "OMPI_COMM_WORLD_RANK=%d", rank) + 1;
    for (int i = 0; i < n; i++) {
        char environment[1 << 16];
        snprintf(path, sizeof path, "/proc/%d/environ", (int)pids[i]);
        int fd = open(path, O_RDONLY);
        ssize_t size = fd < 0 ? 0 : read(fd, environment, sizeof environment);
        if (fd >= 0)
            close(fd);
        if (size > 0 && (memmem(environment, (size_t)size, shm, (size_t)of_shm) ||
                         memmem(environment, (size_t)size, mpi, (size_t)of_mpi)))
            return pids[i];
    }
    return 0;
}

/* 0: there is none. */
static inline pid_t mpirun_process(const program_run *r) {
    pid_t pids[32];
    char path[64], name[32];
    int n = processes_of(r->folder, r->run, pids, NDP_COUNT(pids));
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "/proc/%d/comm", (int)pids[i]);
        int fd = open(path, O_RDONLY);
        ssize_t size = fd < 0 ? 0 : read(fd, name, sizeof name - 1);
        if (fd >= 0)
            close(fd);
        name[size > 0 ? size : 0] = '\0';
        if (strncmp(name, "mpirun", 6) == 0 || strstr(name, "terun"))
            return pids[i];
    }
    return 0;
}

static inline int error_lines(const char *log) {
    int n = 0;
    for (const char *at = log; (at = strstr(at, "ndparallel: ")); at++)
        n++; /* it may follow a part of a line of stdout that mpirun has not taken */
    return n;
}

/* False: there is no such process any more. */
static inline bool send_signal(ends_test *t, const program_run *r, pid_t child, int number, signal_target target) {
    pid_t to = target == TO_GROUP    ? -child
               : target == TO_RANK   ? rank_process(r, (int)ends_draw(t, ends_ranks(r->layout)))
               : target == TO_MPIRUN ? mpirun_process(r)
                                     : child;
    return to && kill(to, number) == 0;
}

static inline void check_resumed(ends_test *t, program_run *r, const char *reference, const char *what) {
    r->resume = true;
    r->every = r->sync_ms = 0;
    r->in_batch = false;
    int code = program_finish(program_begin(r), what);
    if (code != 0)
        fail_msg("%s: resumed, it ended with %d: %s", what, code, program_log(r));
    tiny_check_end(r->folder, r->run, reference, SIGNAL_STEPS, what);
    t->resumed++;
}

/* What the save of a run took that was stopped. */
static inline double save_seconds(const char *log) {
    double seconds = 0;
    const char *line = strstr(log, "\ncheckpoint: ");
    (void)!sscanf(line ? line : "", "\ncheckpoint: %*s %*s %*s in %lf s", &seconds);
    return seconds;
}

static inline void signal_run(ends_test *t, int world, int number, signal_target target) {
    char run[64], what[160], reference[64];
    const ends_layout *l = &ends_layouts[signal_worlds[world].layout];
    program_run r = {.layout = l, .folder = t->folder, .run = run, .transport = signal_worlds[world].transport};
    r.sync_ms = strcmp(r.transport, "mpi") == 0 ? SLOW_SYNC_MS : 0;
    r.in_batch = target == TO_MPIRUN;
    snprintf(run, sizeof run, "signal-%d", t->runs++);
    snprintf(reference, sizeof reference, "%s-long", l->axes.name);
    snprintf(what, sizeof what, "%s to the %s, %s, %s", strsignal(number), target_names[target], r.transport,
             l->axes.name);
    pid_t child = program_begin(&r);
    program_reach(&r, child, 1 + (int)ends_draw(t, SIGNAL_STEPS / 2));
    (void)send_signal(t, &r, child, number, target);
    int code = program_finish(child, what);
    char *log = program_log(&r);
    int64_t newest = ends_newest(t->folder, run), lines = program_lines(&r);
    bool own = target == TO_MPIRUN && code == 1; /* of a SIGTERM to mpirun, which says nothing of the ranks */
    bool ended = (code == 0 || own) && newest == SIGNAL_STEPS; /* before the signal */
    if (!ended && (code != 130 || newest != lines || ends_named(log) != newest || error_lines(log) != 1))
        fail_msg("%s: code %d, step %lld was done, %lld is on disk: %s", what, code, (long long)lines,
                 (long long)newest, log);
    if (!ended && r.sync_ms && save_seconds(log) < SLOW_SAVE)
        fail_msg("%s: the save took %.1f s: %s", what, save_seconds(log), log);
    t->failed += !ended;
    free(log);
    check_resumed(t, &r, reference, what);
    tiny_remove(t->folder, run);
}

static inline void program_references(ends_test *t) {
    for (int i = 0; i < NDP_COUNT(ends_layouts); i++) {
        char run[64];
        program_run r = {.layout = &ends_layouts[i], .folder = t->folder, .run = run, .transport = "local"};
        snprintf(run, sizeof run, "%s-long", ends_layouts[i].axes.name);
        if (ends_ranks(r.layout) == 1)
            r.transport = "self";
        assert_int_equal(program_finish(program_begin(&r), run), 0);
    }
}

/* Whether a world has such a target: of mpirun's own signals, SIGTERM alone is a stop. */
static inline bool has_target(int world, int number, signal_target target) {
    const char *transport = signal_worlds[world].transport;
    bool mpi = strcmp(transport, "mpi") == 0, processes = mpi || strcmp(transport, "shm") == 0;
    return target == TO_MPIRUN ? mpi && number == SIGTERM : target != TO_RANK || processes;
}

/* Of these worlds; prints a table. */
static inline void all_signals(ends_test *t, int first, int end) {
    static const int numbers[] = {SIGHUP, SIGTERM, SIGINT, SIGUSR1};
    for (int world = first; world < end; world++) {
        const ends_layout *l = &ends_layouts[signal_worlds[world].layout];
        printf("%-5s %-16s", signal_worlds[world].transport, l->axes.name);
        for (signal_target target = 0; target < TARGETS; target++) {
            int runs = t->runs, stopped = t->failed;
            for (int i = 0; i < NDP_COUNT(numbers); i++)
                if (has_target(world, numbers[i], target))
                    signal_run(t, world, numbers[i], target);
            printf("  %s %d of %d stopped", target_names[target], t->failed - stopped, t->runs - runs);
            fflush(stdout);
        }
        printf("\n");
    }
}

/* ---- a full disk ---- */

/* Takes all the room, or gives it back. */
static inline void fill_disk(const char *disk, bool fill) {
    char *path = ndp_format("%s/filler", disk), zeros[4096] = {0};
    if (!fill)
        unlink(path);
    int fd = fill ? open(path, O_WRONLY | O_CREAT, 0600) : -1;
    while (fd >= 0 && write(fd, zeros, sizeof zeros) > 0)
        ;
    if (fd >= 0)
        close(fd);
    free(path);
}

/* The disk is full from step 60 on; `freed`: up to step 150. */
static inline void full_disk(ends_test *t, const char *disk, int world, bool freed) {
    char what[160], reference[64];
    const ends_layout *l = &ends_layouts[signal_worlds[world].layout];
    program_run r = {
        .layout = l, .folder = t->folder, .run = "disk/run", .transport = signal_worlds[world].transport, .every = 20};
    t->runs++;
    snprintf(reference, sizeof reference, "%s-long", l->axes.name);
    snprintf(what, sizeof what, "a disk that is full %s, %s, %s", freed ? "for a while" : "to the end", r.transport,
             l->axes.name);
    pid_t child = program_begin(&r);
    program_reach(&r, child, 60);
    fill_disk(disk, true);
    program_reach(&r, child, 150);
    if (freed)
        fill_disk(disk, false);
    int code = program_finish(child, what);
    char *log = program_log(&r);
    int64_t newest = ends_newest(t->folder, r.run);
    if (code != !freed || (freed && newest != SIGNAL_STEPS) || (!freed && (newest < 60 || ends_named(log) != newest)) ||
        !strstr(log, "No space left on device"))
        fail_msg("%s: code %d, step %lld is on disk: %s", what, code, (long long)newest, log);
    fill_disk(disk, false);
    t->failed += code != 0;
    free(log);
    if (freed)
        check_resumed(t, &r, reference, what);
    CHECK_OK(ndp_folder_remove(ndp_format("%s/run", disk)));
    CHECK_OK(ndp_folder_remove(ndp_format("%s/run.cache", disk)));
}

/* Needs a file system of its own. */
static inline void full_disks(ends_test *t) {
    char *disk = ndp_format("%s/disk", t->folder);
    CHECK_OK(ndp_folder_create(disk));
    if (mount("none", disk, "tmpfs", 0, "size=4m")) {
        printf("no full disks: mounting one needs root\n");
        free(disk);
        return;
    }
    for (int world = 0; world < NDP_COUNT(signal_worlds); world++)
        for (int freed = 0; freed < 2; freed++)
            if (strcmp(signal_worlds[world].transport, "mpi") != 0 || has_mpirun())
                full_disk(t, disk, world, freed);
    assert_int_equal(umount(disk), 0);
    free(disk);
}

#endif
