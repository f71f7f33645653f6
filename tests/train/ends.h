/* Every way in which a run can end: an error of a trace, an evaluation, a batch, a line of metrics; a disk that fails
 * or is full at any write; signals to any of its processes. Whatever it was, the step on disk is the last one that was
 * done, unless the save itself failed: then the newest whole one stays, and the last line names it. Then the run is
 * resumed, and ends with the bits and lines of a run that was left alone. */
#ifndef TESTS_TRAIN_ENDS_H
#define TESTS_TRAIN_ENDS_H

#include "base/fault.h"
#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "train/tiny_run.h"

#include <sys/mman.h>

typedef struct ends_layout {
    tiny_layout axes;
    int pp;
} ends_layout;

static const ends_layout ends_layouts[] = {{{"one", 1, 1, 1, 1}, 1},
                                           {{"shard-2", 1, 2, 1, 1}, 1},
                                           {{"pp-2", 1, 1, 1, 1}, 2},
                                           {{"replicate-2-tp-2", 2, 1, 1, 2}, 1},
                                           {{"pp-2-shard-2", 1, 2, 1, 1}, 2}};

static inline int ends_ranks(const ends_layout *l) { return tiny_ranks(&l->axes) * l->pp; }

/* What fails. n: a step for the first three, after which a file is damaged; else a number of operations of `rank`. */
typedef enum ends_way {
    ENDS_ALONE, /* nothing */
    ENDS_TRACE,
    ENDS_EVALUATION,
    ENDS_BATCH,
    ENDS_LINE,  /* one line of metrics */
    ENDS_LINES, /* that one and all later ones */
    ENDS_WRITE, /* one write to a file, the lines apart; and so on */
    ENDS_WRITES,
    ENDS_SYNC,
    ENDS_RENAME,
    ENDS_WAYS
} ends_way;

static const char *const ends_names[ENDS_WAYS] = {"alone", "trace", "evaluation", "batch", "line",
                                                  "lines", "write", "writes",     "sync",  "rename"};

/* What a run in another process says and counts, in memory that both see. */
typedef struct ends_heard {
    int64_t done; /* the newest step that it showed */
    ndp_status status;
    char message[2048];
    int64_t operations[8][NDP_FAULT_KINDS]; /* of each rank */
} ends_heard;

typedef struct ending {
    const char *folder, *run; /* the run is FOLDER/RUN */
    const ends_layout *layout;
    ends_way way;
    int rank;
    int64_t n;
    bool resume;
    const ndp_config *config;
    ends_heard *heard;
} ending;

/* ---- files ---- */

/* The smallest or the largest token cache: of the held-out text, or of the trained one. */
static char ends_found[512];
static int64_t ends_size;
static bool ends_largest;

static inline int ends_note(const char *path, const struct stat *info, int type, struct FTW *where) {
    (void)where;
    bool better = ends_size < 0 || (ends_largest ? info->st_size > ends_size : info->st_size < ends_size);
    if (type == FTW_F && strstr(path, ".tokens") && better) {
        ends_size = info->st_size;
        snprintf(ends_found, sizeof ends_found, "%s", path);
    }
    return 0;
}

static inline void ends_cut_cache(const ending *e, bool largest) {
    char *cache = ndp_format("%s/%s.cache", e->folder, e->run);
    ends_largest = largest;
    ends_size = -1;
    nftw(cache, ends_note, 16, FTW_PHYS);
    if (ends_size < 0 || truncate(ends_found, 100))
        abort();
    free(cache);
}

static inline char *ends_trace(const ending *e, bool folder) {
    return ndp_format("%s/%s.trace%s", e->folder, e->run, folder ? "" : "/t.json");
}

/* ---- a run whose ranks are threads ---- */

static inline void ends_progress(void *user, const ndp_metrics *m, int64_t steps) {
    const ending *e = user;
    (void)steps;
    e->heard->done = m->step;
    if (m->step != e->n)
        return;
    if (e->way == ENDS_EVALUATION || e->way == ENDS_BATCH)
        ends_cut_cache(e, e->way == ENDS_BATCH);
    char *folder = ends_trace(e, true);
    if (e->way == ENDS_TRACE && rmdir(folder))
        abort();
    free(folder);
}

static inline void ends_arm(const ending *e) {
    switch (e->way) {
    case ENDS_LINE:
        ndp_fault_arm(NDP_FAULT_APPEND, e->n);
        break;
    case ENDS_LINES:
        ndp_fault_arm_from(NDP_FAULT_APPEND, e->n);
        break;
    case ENDS_WRITE:
        ndp_fault_arm(NDP_FAULT_WRITE, e->n);
        break;
    case ENDS_WRITES:
        ndp_fault_arm_from(NDP_FAULT_WRITE, e->n);
        break;
    case ENDS_SYNC:
        ndp_fault_arm(NDP_FAULT_SYNC, e->n);
        break;
    case ENDS_RENAME:
        ndp_fault_arm(NDP_FAULT_RENAME, e->n);
        break;
    default:
        break;
    }
}

static inline ndp_status ends_body(ndp_world *w, void *arg) {
    const ending *e = arg;
    int rank = ndp_world_rank(w);
    ndp_train_opts o = NDP_TRAIN_OPTS_INIT;
    char *trace = ends_trace(e, false);
    o.resume = e->resume;
    o.progress = ends_progress;
    o.user = (void *)(uintptr_t)arg;
    o.trace = e->way == ENDS_TRACE && !e->resume ? trace : NULL;
    for (ndp_fault_kind kind = 0; kind < NDP_FAULT_KINDS; kind++)
        ndp_fault_arm(kind, INT64_MAX);
    if (rank == e->rank && !e->resume)
        ends_arm(e);
    ndp_status st = ndp_train(e->config, w, &o);
    for (ndp_fault_kind kind = 0; kind < NDP_FAULT_KINDS; kind++)
        e->heard->operations[rank][kind] = ndp_fault_passed(kind);
    free(trace);
    return st;
}

static inline ndp_config *ends_configure(const ending *e) {
    ndp_config *c = tiny_configure(e->folder, &e->layout->axes, e->run);
    tiny_set(c, "parallelism.pp_size=%d", e->layout->pp);
    tiny_set(c, "data.validation_files=%s/held.txt", e->folder);
    tiny_set(c, "train.eval_every=3");
    tiny_set(c, "checkpoint.async=%s", e->layout == &ends_layouts[1] ? "false" : "true");
    return c;
}

/* Runs it in a process of its own, whose messages are not of interest. */
static inline void ends_run(ending *e, const char *what) {
    *e->heard = (ends_heard){.status = NDP_EBUG};
    pid_t child = fork();
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        e->heard->status = ndp_world_run(e->config, ends_body, e);
        snprintf(e->heard->message, sizeof e->heard->message, "%s", ndp_error_message());
        _exit(0);
    }
    if (tiny_end(child, what) != 0)
        fail_msg("%s: the process of a run died", what);
}

/* ---- what is on disk ---- */

/* The newest checkpoint whose every byte is right; 0: none. */
static inline int64_t ends_newest(const char *folder, const char *run) {
    int64_t *steps = NULL, newest = 0;
    int n = 0;
    char *path = ndp_format("%s/%s/checkpoints", folder, run);
    CHECK_OK(ndp_checkpoint_steps(path, &steps, &n));
    for (int i = 0; i < n && newest == 0; i++) {
        ndp_examined x;
        CHECK_OK(ndp_checkpoint_examine(NULL, path, steps[i], true, 1, &x));
        newest = x.state == NDP_CHECKPOINT_VERIFIED ? steps[i] : 0;
    }
    free(steps);
    free(path);
    return newest;
}

/* The step that a message says is on disk; 0: that none is; -1: it says nothing of that. */
static inline int64_t ends_named(const char *message) {
    static const char *const forms[] = {"; step ", "newest step on disk is ", "stopped after step "};
    for (int i = 0; i < NDP_COUNT(forms); i++)
        for (const char *at = message; (at = strstr(at, forms[i])); at++) {
            char *end;
            long long step = strtoll(at + strlen(forms[i]), &end, 10);
            if (i || strncmp(end, " is on disk; continue with --resume", 35) == 0)
                return step;
        }
    return strstr(message, "no step is on disk") ? 0 : -1;
}

static inline void ends_check(const ending *e, const char *what) {
    const ends_heard *h = e->heard;
    int64_t newest = ends_newest(e->folder, e->run), named = ends_named(h->message);
    bool ok = h->status == NDP_OK, at_save = !ok && strstr(h->message, "/checkpoints") != NULL;
    if (!ok && h->done == 0 && newest == 0)
        return; /* it failed before the first step */
    if (ok && h->done != TINY_STEPS)
        fail_msg("%s: it ended well after step %lld", what, (long long)h->done);
    if (newest != h->done && !at_save)
        fail_msg("%s: step %lld was done, step %lld is on disk: %s", what, (long long)h->done, (long long)newest,
                 h->message);
    if (!ok && (named != newest || (h->status != NDP_EIO && h->status != NDP_ECOMM)))
        fail_msg("%s: step %lld is on disk, and status %d says: %s", what, (long long)newest, h->status, h->message);
}

/* The evaluations in metrics.jsonl, as text; freed by the caller. */
static inline char *ends_evaluations(const char *folder, const char *run) {
    char *path = ndp_format("%s/%s/metrics.jsonl", folder, run), *text;
    size_t size;
    ndp_str out = {0};
    CHECK_OK(ndp_file_read(path, &text, &size));
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const char *found = strstr(line, "\"eval_loss\"");
        ndp_str_addf(&out, "%.12s%s\n", line, found ? found : "");
    }
    free(text);
    free(path);
    return ndp_str_detach(&out);
}

/* ---- a run that ends, and goes on ---- */

typedef struct ends_test {
    const char *folder;
    ends_heard *heard;
    ends_heard whole[NDP_COUNT(ends_layouts)]; /* what a layout's run that is left alone does */
    uint64_t seed, drawn;
    int runs, failed, resumed;
} ends_test;

static inline int64_t ends_draw(ends_test *t, int64_t n) {
    return (int64_t)ndp_rng_below(t->seed, 12, t->drawn++, (uint64_t)n);
}

static inline void ends_go_on(ends_test *t, ending *e, const char *what) {
    char *cache = ndp_format("%s/%s.cache", e->folder, e->run);
    if (e->way == ENDS_EVALUATION || e->way == ENDS_BATCH)
        CHECK_OK(ndp_folder_remove(cache));
    free(cache);
    e->resume = true;
    ends_run(e, what);
    if (e->heard->status != NDP_OK)
        fail_msg("%s: resumed, it failed: %s", what, e->heard->message);
    t->resumed++;
    if (e->way == ENDS_LINES) { /* its lines are lost, as it said */
        if (!tiny_same_weights(e->folder, e->run, e->layout->axes.name, "model"))
            fail_msg("%s: the model has other bits than that of the run that was left alone", what);
        return;
    }
    tiny_check_end(e->folder, e->run, e->layout->axes.name, TINY_STEPS, what);
    char *own = ends_evaluations(e->folder, e->run), *other = ends_evaluations(e->folder, e->layout->axes.name);
    if (strcmp(own, other) != 0)
        fail_msg("%s: the evaluations are\n%sexpected\n%s", what, own, other);
    free(own);
    free(other);
}

static inline void ends_try(ends_test *t, int layout, ends_way way, int rank, int64_t n) {
    char run[64], what[160];
    ending e = {t->folder, run, &ends_layouts[layout], way, rank, n, false, NULL, t->heard};
    snprintf(run, sizeof run, "run-%d", t->runs++);
    snprintf(what, sizeof what, "%s on %s, rank %d, %lld", ends_names[way], e.layout->axes.name, rank, (long long)n);
    ndp_config *c = ends_configure(&e);
    e.config = c;
    char *folder = ends_trace(&e, true);
    if (way == ENDS_TRACE)
        CHECK_OK(ndp_folder_create(folder));
    ends_run(&e, what);
    ends_check(&e, what);
    t->failed += e.heard->status != NDP_OK;
    ends_go_on(t, &e, what);
    CHECK_OK(ndp_folder_remove(folder));
    free(folder);
    tiny_remove(t->folder, run);
    ndp_config_destroy(c);
}

/* A run of each layout that is left alone. */
static inline void ends_begin(ends_test *t, const char *folder) {
    *t = (ends_test){.folder = folder, .seed = tiny_seed()};
    t->heard = mmap(NULL, sizeof *t->heard, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(t->heard != MAP_FAILED);
    tiny_put(folder, "held.txt", "There were 7 bears and 21 foxes.\n\nThey shared 49 apples, and one more.\n");
    for (int i = 0; i < NDP_COUNT(ends_layouts); i++) {
        ending e = {folder, ends_layouts[i].axes.name, &ends_layouts[i], ENDS_ALONE, 0, 0, false, NULL, t->heard};
        ndp_config *c = ends_configure(&e);
        e.config = c;
        ends_run(&e, e.run);
        if (t->heard->status != NDP_OK)
            fail_msg("%s: %s", e.run, t->heard->message);
        ends_check(&e, e.run);
        t->whole[i] = *t->heard;
        ndp_config_destroy(c);
    }
}

static inline void ends_end(ends_test *t) {
    printf("%d runs, %d of them ended with an error, %d resumed; 0 steps lost, 0 wrong bits\n", t->runs, t->failed,
           t->resumed);
    munmap(t->heard, sizeof *t->heard);
}

/* How many places a way has on a rank. */
static inline int64_t ends_places(const ends_test *t, int layout, ends_way way, int rank) {
    static const int kinds[ENDS_WAYS] = {
        [ENDS_LINE] = NDP_FAULT_APPEND,  [ENDS_LINES] = NDP_FAULT_APPEND, [ENDS_WRITE] = NDP_FAULT_WRITE,
        [ENDS_WRITES] = NDP_FAULT_WRITE, [ENDS_SYNC] = NDP_FAULT_SYNC,    [ENDS_RENAME] = NDP_FAULT_RENAME};
    if (way < ENDS_LINE)
        return rank == 0 ? TINY_STEPS - 1 : 0; /* after any step but the last */
    return t->whole[layout].operations[rank][kinds[way]];
}

#endif
