/* Two runs in one folder: one of them trains, as if it were alone, and the other is refused within a second. */
#ifndef TESTS_TRAIN_PAIRS_H
#define TESTS_TRAIN_PAIRS_H

#include "base/rng.h"
#include "train/tiny_run.h"

/* Long enough that a run is still there when the other one begins. */
enum { PAIR_STEPS = 400, HALF_STEPS = 100, EVERY = 100 };

typedef enum pair_kind {
    START_START,
    RUNNING_START,
    RUNNING_RESUME,
    RESUME_RESUME,
    RESUMED_RESUME,
    PAIR_KINDS
} pair_kind;

static const char *const pair_names[PAIR_KINDS] = {"start + start", "a live run + start", "a live run + --resume",
                                                   "--resume + --resume", "a live resumed run + --resume"};

typedef struct way {
    tiny_layout layout;
    const char *transport;
    bool mpi;
} way;

static const way ways[] = {
    {{"one", 1, 1, 1, 1}, "self", false},
    {{"threads", 1, 2, 1, 1}, "local", false},
    {{"processes", 1, 2, 1, 1}, "mpi", true},
};

typedef struct pairing {
    const char *folder;
    uint64_t seed, drawn;
    int pairs, by_kind[PAIR_KINDS], both; /* both: one began when the other had just ended */
    double slowest;                       /* refusal */
} pairing;

static inline double draw_seconds(pairing *p, double most) {
    return most * (double)ndp_rng_below(p->seed, 12, p->drawn++, 1000) * 1e-3;
}

static inline void sleep_for(double seconds) { usleep((useconds_t)(seconds * 1e6)); }

/* The run that is left alone, for each way and seed: NAME-SEED. */
static inline void run_alone(const pairing *p, const way *w, int seed) {
    char name[64];
    int status;
    snprintf(name, sizeof name, "%s-%d", w->layout.name, seed);
    tiny_job j = {p->folder, name, &w->layout, w->transport, "log", false, PAIR_STEPS, seed, EVERY};
    status = tiny_end(tiny_start(&j), name);
    if (status != 0)
        fail_msg("%s ended with status %d: %s", name, status, tiny_log(&j));
}

/* The run holds the folder: from here on no other run gets it. */
static inline void wait_for_lock(const tiny_job *j, const char *what) {
    char *path = ndp_format("%s/%s/lock", j->folder, j->run);
    for (double end = ndp_now() + HANGS; !ndp_path_exists(path); usleep(500))
        if (ndp_now() > end)
            fail_msg("%s: no lock: %s", what, tiny_log(j));
    free(path);
}

/* Ends both, and notes how long each took. */
static inline void end_both(const pid_t pids[2], const double started[2], int codes[2], double seconds[2],
                            const char *what) {
    bool ended[2] = {false, false};
    for (double end = ndp_now() + HANGS; !ended[0] || !ended[1]; usleep(500))
        for (int i = 0; i < 2; i++) {
            int status;
            if (ndp_now() > end)
                fail_msg("%s: run %d hung", what, i);
            if (ended[i] || waitpid(pids[i], &status, WNOHANG) != pids[i])
                continue;
            ended[i] = true;
            codes[i] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            seconds[i] = ndp_now() - started[i];
        }
}

/* The second one came when the first had ended: a run that is over, and has nothing left to do. */
static inline bool came_after_the_end(const tiny_job *j) {
    char words[64], *log = tiny_log(j);
    snprintf(words, sizeof words, "resume: from step %d", PAIR_STEPS);
    bool late = strstr(log, words);
    free(log);
    return late;
}

static inline void check_refused(pairing *p, const tiny_job *j, int code, double seconds, const char *what) {
    char *log = tiny_log(j);
    if (code != 2 || (!strstr(log, "is in use: process ") && !strstr(log, "holds another run")))
        fail_msg("%s: the second one ended with code %d: %s", what, code, log);
    p->slowest = seconds > p->slowest ? seconds : p->slowest;
    free(log);
}

/* A folder with a checkpoint in the middle of the run. */
static inline void run_half(const tiny_job *first, const char *what) {
    tiny_job half = *first;
    half.resume = false;
    half.steps = HALF_STEPS;
    if (tiny_end(tiny_start(&half), what) != 0)
        fail_msg("%s: half a run failed: %s", what, tiny_log(&half));
}

static inline void run_pair(pairing *p, const way *w, pair_kind kind) {
    char run[64], what[160], reference[64];
    const bool resume[] = {kind == RESUME_RESUME || kind == RESUMED_RESUME, kind >= RUNNING_RESUME};
    const bool together = kind == START_START || kind == RESUME_RESUME;
    int codes[2], winner;
    double started[2], seconds[2];
    pid_t pids[2];
    snprintf(run, sizeof run, "pair-%d", p->pairs);
    snprintf(what, sizeof what, "pair %d, seed %llu, %s, %s", p->pairs, (unsigned long long)p->seed, pair_names[kind],
             w->layout.name);
    /* Two starts have other seeds, so that mixed weights would be of neither. */
    const tiny_job jobs[] = {
        {p->folder, run, &w->layout, w->transport, "log-0", resume[0], PAIR_STEPS, 1, EVERY},
        {p->folder, run, &w->layout, w->transport, "log-1", resume[1], PAIR_STEPS, resume[1] ? 1 : 2, EVERY}};
    if (resume[0])
        run_half(&jobs[0], what);
    for (int i = 0; i < 2; i++) {
        started[i] = ndp_now();
        pids[i] = tiny_start(&jobs[i]);
        if (i == 0 && !together)
            wait_for_lock(&jobs[0], what);
        if (i == 0)
            sleep_for(draw_seconds(p, together ? 0.02 : 0.2));
    }
    end_both(pids, started, codes, seconds, what);
    winner = codes[0] != 0;
    if (codes[0] == 0 && codes[1] == 0 && resume[1] && came_after_the_end(&jobs[1])) {
        p->both++;
    } else {
        if (codes[winner] != 0 || (winner == 1 && !together))
            fail_msg("%s: codes %d and %d: %s", what, codes[0], codes[1], tiny_log(&jobs[0]));
        check_refused(p, &jobs[!winner], codes[!winner], seconds[!winner], what);
    }
    snprintf(reference, sizeof reference, "%s-%d", w->layout.name, jobs[winner].seed);
    tiny_check_end(p->folder, run, reference, PAIR_STEPS, what);
    tiny_remove(p->folder, run);
    p->pairs++;
    p->by_kind[kind]++;
}

/* So many pairs of all kinds: on one rank and on threads; where there is mpirun, a fifth of those with a live run on
 * processes. */
static inline void run_pairs(const char *folder, int pairs, bool mpi) {
    pairing p = {.folder = folder, .seed = tiny_seed()};
    for (int i = 0; i < 2 + mpi; i++)
        for (int seed = 1; seed <= 2; seed++)
            run_alone(&p, &ways[i], seed);
    while (p.pairs < pairs) {
        pair_kind kind = (pair_kind)(p.pairs % PAIR_KINDS);
        bool together = kind == START_START || kind == RESUME_RESUME;
        bool processes = mpi && !together && p.pairs / PAIR_KINDS % 5 == 4;
        run_pair(&p, &ways[processes ? 2 : p.pairs / PAIR_KINDS % 2], kind);
    }
    for (int kind = 0; kind < PAIR_KINDS; kind++)
        printf("%d x %s; ", p.by_kind[kind], pair_names[kind]);
    printf(
        "in %d the second began after the end\n%d pairs: the first untouched, the second refused after at most %.3f s, "
        "0 mixed\n",
        p.both, p.pairs, p.slowest);
}

static inline int pairs_main(const struct CMUnitTest *test) {
    if (!getenv("NDP_PROGRAM")) {
        printf("SKIPPED: NDP_PROGRAM names no program\n");
        return 77;
    }
    return _cmocka_run_group_tests("pairs", test, 1, NULL, NULL);
}

#endif
