/* Runs that are killed, at any time or just before an exact write, sync or rename, and go on with --resume until they
 * end: nothing that was saved is lost, the weights have the bits of a run that was left alone, nothing hangs, nothing
 * is left over. Ranks are threads of one process, or processes of the program. */
#ifndef TESTS_TRAIN_KILLS_H
#define TESTS_TRAIN_KILLS_H

#include "base/fault.h"
#include "base/rng.h"
#include "train/tiny_run.h"

#include <sys/mman.h>

enum { MOST_RANKS = 8, LAYOUTS = 6, SAVES = 3 };

/* How they save: at once; behind steps that are shorter than a save, so that the next save waits for it, and behind
 * longer ones, after which it is committed. */
static const struct {
    const char *name, *async;
    int batch;
} saves[SAVES] = {{"waited for", "false", 8}, {"behind short steps", "true", 8}, {"behind long steps", "true", 96}};

static const tiny_layout layouts[LAYOUTS] = {
    {"one", 1, 1, 1, 1},          {"shard-2", 1, 2, 1, 1},          {"tp-2", 1, 1, 1, 2},
    {"shard-2-tp-2", 1, 2, 1, 2}, {"replicate-2-cp-2", 2, 1, 2, 1}, {"replicate-2-shard-2-tp-2", 2, 2, 1, 2},
};

/* What a run in another process says and counts, in memory that both see. */
typedef struct heard {
    int64_t saved, resumed; /* the newest step that it called saved; the one that it resumed from, -1: none */
    bool began;             /* it said where it begins */
    int64_t operations[MOST_RANKS][NDP_FAULT_KINDS];
} heard;

/* What a layout's run that is left alone does. */
typedef struct whole_run {
    heard heard;
    double seconds;
} whole_run;

/* Where a process kills itself; n 0: nowhere. */
typedef struct point {
    int rank;
    ndp_fault_kind kind;
    int64_t n;
} point;

typedef struct killing {
    const char *folder;
    uint64_t seed, drawn;
    heard *heard;
    whole_run whole[LAYOUTS][SAVES];
    int runs, timed, exact, processes; /* kills of each kind */
    int of_saves[SAVES];               /* of ranks that are threads, by how they save */
} killing;

static inline int64_t draw(killing *k, int64_t n) {
    return (int64_t)ndp_rng_below(k->seed, 11, k->drawn++, (uint64_t)n);
}

/* ---- a run whose ranks are threads ---- */

typedef struct threads_run {
    const ndp_config *config;
    bool resume;
    point at;
    heard *heard;
} threads_run;

static inline void listen_to(void *user, const char *line) {
    heard *h = user;
    long long step;
    const char *saved = strstr(line, "/step-");
    if (strncmp(line, "checkpoint: ", 12) == 0 && saved && sscanf(saved, "/step-%lld", &step) == 1)
        h->saved = step;
    if (strncmp(line, "resume: ", 8) == 0)
        h->began = true;
    if (sscanf(line, "resume: from step %lld", &step) == 1)
        h->resumed = step;
}

static inline ndp_status rank_body(ndp_world *w, void *arg) {
    threads_run *r = arg;
    int rank = ndp_world_rank(w);
    ndp_train_opts o = NDP_TRAIN_OPTS_INIT;
    o.resume = r->resume;
    o.say = listen_to;
    o.user = r->heard;
    for (ndp_fault_kind kind = 0; kind < NDP_FAULT_KINDS; kind++)
        ndp_fault_arm(kind, INT64_MAX);
    if (r->at.n && rank == r->at.rank)
        ndp_fault_arm_kill(r->at.kind, r->at.n);
    ndp_status st = ndp_train(r->config, w, &o);
    for (ndp_fault_kind kind = 0; kind < NDP_FAULT_KINDS; kind++)
        r->heard->operations[rank][kind] = ndp_fault_passed(kind);
    return st;
}

static inline pid_t start_threads(threads_run *r) {
    *r->heard = (heard){.resumed = -1};
    pid_t child = fork();
    if (child)
        return child;
    ndp_status st = ndp_world_run(r->config, rank_body, r);
    if (st != NDP_OK)
        fprintf(stderr, "a run failed: %s\n", ndp_error_message());
    _exit(st == NDP_OK ? 0 : 1);
}

/* ---- one run, killed and resumed until it ends ---- */

static inline point draw_point(killing *k, const tiny_layout *l, const heard *whole) {
    point p = {0};
    do {
        p.rank = (int)draw(k, tiny_ranks(l));
        p.kind = (ndp_fault_kind)draw(k, NDP_FAULT_KINDS);
    } while (whole->operations[p.rank][p.kind] == 0);
    p.n = 1 + draw(k, whole->operations[p.rank][p.kind]);
    return p;
}

/* Whether the run was killed; fails the test when it hung or failed. */
static inline bool run_and_kill(killing *k, const whole_run *whole, threads_run *r, bool timed, const char *what) {
    const double most = 1.1;
    double seconds = most * whole->seconds * (double)draw(k, 1000) * 1e-3;
    pid_t child = start_threads(r);
    int status = timed ? tiny_kill_after(child, seconds) : tiny_end(child, what);
    bool killed = tiny_was_killed(status);
    if (!killed && status != 0)
        fail_msg("%s: a run ended with status %d", what, status);
    k->timed += killed && timed;
    k->exact += killed && !timed;
    return killed;
}

static inline ndp_config *kill_configure(const char *folder, int layout, int save, const char *run) {
    ndp_config *c = tiny_configure(folder, &layouts[layout], run);
    tiny_set(c, "checkpoint.async=%s", saves[save].async);
    tiny_set(c, "batch.global_batch_size=%d", saves[save].batch);
    return c;
}

static inline char *whole_name(int layout, int save, char out[64]) {
    snprintf(out, 64, "%s-%d", layouts[layout].name, saves[save].batch);
    return out;
}

static inline void kill_threads(killing *k, int layout, int save, int most) {
    const tiny_layout *l = &layouts[layout];
    char run[64], what[160], whole[64];
    int64_t saved = 0;
    bool killed = true;
    snprintf(run, sizeof run, "killed-%d", k->runs++);
    ndp_config *c = kill_configure(k->folder, layout, save, run);
    for (int i = 0; killed; i++) {
        threads_run r = {.config = c, .resume = i > 0, .heard = k->heard};
        bool last = i >= most, timed = !last && draw(k, 2);
        if (!last && !timed)
            r.at = draw_point(k, l, &k->whole[layout][save].heard);
        snprintf(what, sizeof what, "%s, start %d on %s, saves %s, %s, rank %d, kind %d, operation %lld", run, i,
                 l->name, saves[save].name, timed ? "timed" : "exact", r.at.rank, (int)r.at.kind, (long long)r.at.n);
        killed = run_and_kill(k, &k->whole[layout][save], &r, timed, what);
        k->of_saves[save] += killed;
        if (r.resume && k->heard->began && saved > 0 && k->heard->resumed < saved)
            fail_msg("%s: step %lld was saved, and the run resumed from %lld", what, (long long)saved,
                     (long long)k->heard->resumed);
        if (k->heard->saved > saved)
            saved = k->heard->saved;
    }
    tiny_check_end(k->folder, run, whole_name(layout, save, whole), TINY_STEPS, what);
    tiny_remove(k->folder, run);
    ndp_config_destroy(c);
}

/* ---- a run whose ranks are processes ---- */

/* Processes with the run folder among their arguments. */
static inline int processes_of(const char *folder, const char *run, pid_t *pids, int most) {
    char *wanted = ndp_format("train.output_dir=%s/%s", folder, run);
    DIR *d = opendir("/proc");
    int n = 0;
    for (struct dirent *e; d && n < most && (e = readdir(d));) {
        char path[300], text[4096] = "";
        snprintf(path, sizeof path, "/proc/%s/cmdline", e->d_name);
        int fd = e->d_name[0] >= '1' && e->d_name[0] <= '9' ? open(path, O_RDONLY) : -1;
        ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
        if (size > 0 && memmem(text, (size_t)size, wanted, strlen(wanted)))
            pids[n++] = (pid_t)atoi(e->d_name);
        if (fd >= 0)
            close(fd);
    }
    closedir(d);
    free(wanted);
    return n;
}

/* Kills one of them, or all. Then all have to end. */
static inline bool kill_some(killing *k, const char *run, pid_t child, double seconds, const char *what) {
    pid_t pids[32];
    int status, n;
    if (tiny_wait(child, seconds, &status)) {
        if (status != 0)
            fail_msg("%s: the program ended with status %d", what, status);
        return false;
    }
    n = processes_of(k->folder, run, pids, NDP_COUNT(pids));
    int one = draw(k, 3) ? (int)draw(k, n) : -1;
    for (int i = 0; i < n; i++)
        if (one < 0 || one == i)
            kill(pids[i], SIGKILL);
    status = tiny_end(child, what);
    for (double end = ndp_now() + HANGS; processes_of(k->folder, run, pids, NDP_COUNT(pids)); usleep(10000))
        if (ndp_now() > end)
            fail_msg("%s: %d processes are left", what, processes_of(k->folder, run, pids, NDP_COUNT(pids)));
    k->processes += status != 0;
    return status != 0;
}

static inline void kill_processes(killing *k, int layout) {
    const tiny_layout *l = &layouts[layout];
    const double most = 3000; /* ms */
    char run[64], what[160], whole[64];
    bool killed = true;
    snprintf(run, sizeof run, "killed-%d", k->runs++);
    for (int i = 0; killed; i++) {
        double seconds = i > 1 ? HANGS : 1e-3 * (double)draw(k, (int64_t)most);
        snprintf(what, sizeof what, "%s, start %d on %s, processes, after %.3f s", run, i, l->name, seconds);
        tiny_job job = {k->folder, run, l, "mpi", "log", i > 0, 0, 0, 0};
        killed = kill_some(k, run, tiny_start(&job), seconds, what);
    }
    tiny_check_end(k->folder, run, whole_name(layout, 0, whole), TINY_STEPS, what);
    tiny_remove(k->folder, run);
}

/* ---- all ---- */

/* The bits are the same, however a run saves. */
static inline void run_whole(killing *k, int layout, int save) {
    char own[64], name[64];
    snprintf(own, sizeof own, "whole-%d-%d", layout, save);
    whole_name(layout, save, name);
    ndp_config *c = kill_configure(k->folder, layout, save, save == 1 ? own : name);
    threads_run r = {.config = c, .heard = k->heard};
    double started = ndp_now();
    assert_int_equal(tiny_end(start_threads(&r), own), 0);
    k->whole[layout][save] = (whole_run){*k->heard, ndp_now() - started};
    if (save == 1)
        tiny_check_end(k->folder, own, name, TINY_STEPS, own);
    ndp_config_destroy(c);
}

static inline void run_wholes(killing *k) {
    for (int i = 0; i < LAYOUTS; i++)
        for (int save = 0; save < SAVES; save++)
            run_whole(k, i, save);
}

/* So many kills of runs of threads that save in the background, over all layouts, and of processes on 2 and 4 ranks. */
static inline void kill_runs(const char *folder, int in_background, int of_processes) {
    enum { CHAIN = 3 };
    killing k = {.folder = folder, .seed = tiny_seed()};
    k.heard = mmap(NULL, sizeof *k.heard, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(k.heard != MAP_FAILED);
    run_wholes(&k);
    while (k.of_saves[1] + k.of_saves[2] < in_background || k.runs < LAYOUTS)
        kill_threads(&k, k.runs % LAYOUTS, (int)draw(&k, SAVES), CHAIN);
    while (k.processes < of_processes)
        kill_processes(&k, 1 + k.runs % 3);
    printf("%d kills of %d runs on 1, 2, 4, 8 ranks: %d at random times, %d at exact points, %d of processes; 0 lost, "
           "0 wrong, 0 hung, 0 left over\n",
           k.timed + k.exact + k.processes, k.runs, k.timed, k.exact, k.processes);
    for (int i = 0; i < SAVES; i++)
        printf("  saves %s: %d kills\n", saves[i].name, k.of_saves[i]);
    munmap(k.heard, sizeof *k.heard);
}

static inline bool has_mpirun(void) {
    return getenv("NDP_PROGRAM") && system("command -v mpirun >/dev/null 2>&1") == 0;
}

#endif
