/* A run is ended in each phase of it: a rank is stopped or killed there, or the run is asked to stop. A stopped or
 * killed rank is named with its process; a run that is asked to has saved the step that was made, and says so in one
 * line. Nothing hangs or is left over, and --resume ends with the bits of a run that was left alone. A rank that is
 * stopped and goes on in time changes nothing. */
#ifndef TESTS_TRAIN_END_STOPS_H
#define TESTS_TRAIN_END_STOPS_H

#include "train/end_signals.h"

#include <glob.h>

typedef enum stop_place {
    AT_START,
    TOKENIZING,
    IN_REFERENCE,
    IN_STEPS,
    IN_SAVE,
    IN_EVALUATION,
    IN_EXPORT,
    AT_END,
    STOP_PLACES
} stop_place;

typedef enum stop_kind { STOPPED, KILLED, ASKED, STOP_KINDS } stop_kind;
static const char *const kind_names[STOP_KINDS] = {"SIGSTOP", "SIGKILL", "asked to stop"};

/* Seconds for which a rank may be stopped: enough for a busy machine. */
#define STOP_LIMIT "20"

enum { LARGE_TEXT = 60 << 20, PAIRS = 20000, STOP_SETTINGS = 4 };

/* A phase of a run of its settings, as it is seen from outside. The run is there once its log has `begins` or a file
 * of its folder matches `file`, and has left it once the log has `ends`, or none matches. */
static const struct {
    const char *name, *reference; /* the run of these settings that is left alone; NULL: none, since it takes long */
    const char *settings[STOP_SETTINGS];
    const char *begins, *file, *ends;
    int every, sync_ms; /* a slow disk where files are the phase */
    int ms;             /* the signal comes up to so much later */
} stop_places[STOP_PLACES] = {
    [AT_START] = {.name = "start", .reference = "plain", .begins = "", .ends = "data: ", .ms = 200},
    [TOKENIZING] = {.name = "tokenizing", .settings = {"data.files=large.txt"}, .file = ".cache/*/claim-*", .ms = 300},
    [IN_REFERENCE] = {.name = "reference pass",
                      .reference = "pairs",
                      .settings = {"data.files=pairs.jsonl", "data.format=preference", "loss.name=dpo"},
                      .begins = "reference: scoring",
                      .ends = "tok/s",
                      .ms = 500},
    [IN_STEPS] = {.name = "steps", .reference = "plain", .begins = " 5/", .ends = "model: run", .ms = 20},
    [IN_SAVE] =
        {.name = "save", .reference = "plain", .file = "/checkpoints/.step-*", .every = 100, .sync_ms = 100, .ms = 500},
    [IN_EVALUATION] = {.name = "evaluation",
                       .reference = "evaluated",
                       .settings = {"data.validation_files=held.txt", "train.eval_every=150"},
                       .begins = "149/",
                       .ends = "150/",
                       .ms = 200},
    [IN_EXPORT] = {.name = "export", .reference = "plain", .file = "/model/.export.tmp", .sync_ms = 100, .ms = 100},
    [AT_END] = {.name = "exit", .reference = "plain", .begins = "\nmodel: ", .ends = "none"},
};

static inline bool is_at(const program_run *r, stop_place place) {
    const char *file = stop_places[place].file, *begins = stop_places[place].begins;
    char *log = file ? NULL : program_log(r), *pattern = file ? ndp_format("%s/%s%s", r->folder, r->run, file) : NULL;
    glob_t found = {0};
    bool there = file ? glob(pattern, GLOB_NOSORT | GLOB_PERIOD, NULL, &found) == 0
                      : strstr(log, begins) && !strstr(log, stop_places[place].ends);
    globfree(&found);
    free(pattern);
    free(log);
    return there;
}

static inline bool has_ended(pid_t child) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid;
}

/* The process of a rank once the run is there; 0: it has ended before. */
static inline pid_t await_place(const program_run *r, pid_t child, stop_place place, int rank) {
    pid_t process = 0;
    while (!process && !has_ended(child))
        process = rank_process(r, rank);
    while (!is_at(r, place) && !has_ended(child))
        usleep(100);
    return process;
}

/* Whether a line has both. */
static inline bool line_has(const char *log, const char *a, const char *b) {
    bool has = false;
    char *text = strdup(log);
    for (char *save, *line = strtok_r(text, "\n", &save); line && !has; line = strtok_r(NULL, "\n", &save))
        has = strstr(line, a) && strstr(line, b);
    free(text);
    return has;
}

/* An error line of the run that is about this rank. */
static inline bool names_rank(const char *log, int rank, pid_t process) {
    char who[32], named[32], other[48], late[48];
    snprintf(who, sizeof who, "(process %d)", (int)process);
    snprintf(named, sizeof named, "ndparallel: rank %d", rank);
    snprintf(other, sizeof other, "ndparallel: rank %d waited", 1 - rank);
    snprintf(late, sizeof late, "rank %d has not arrived", rank);
    return line_has(log, named, who) || line_has(log, other, late);
}

static inline void make_stop_files(const char *folder) {
    static const struct {
        const char *name, *line;
        int64_t bytes;
    } files[] = {{"large.txt", "There were 7 bears and 21 foxes, and they shared 49 apples.\n", LARGE_TEXT},
                 {"held.txt", "There were 7 bears and 21 foxes.\n", 200000}};
    for (int i = 0; i < NDP_COUNT(files); i++) {
        FILE *f = fopen(ndp_format("%s/%s", folder, files[i].name), "w");
        assert_non_null(f);
        for (int64_t n = 0; n < files[i].bytes; n += (int64_t)strlen(files[i].line))
            fputs(files[i].line, f);
        assert_int_equal(fclose(f), 0);
    }
    FILE *f = fopen(ndp_format("%s/pairs.jsonl", folder), "w");
    assert_non_null(f);
    for (int i = 0; i < PAIRS; i++)
        fprintf(f, "{\"prompt\": \"%d? \", \"chosen\": \"%d\", \"rejected\": \"no\"}\n", i, 2 * i);
    assert_int_equal(fclose(f), 0);
}

/* ---- one run that is ended ---- */

typedef struct stop_try {
    stop_place place;
    stop_kind kind;
    const char *transport;
    int rank, signal;
    signal_target target; /* of a run that is asked to stop */
} stop_try;

static inline program_run stop_program(const ends_test *t, stop_place place, const char *run, const char *transport) {
    return (program_run){.layout = &ends_layouts[1],
                         .folder = t->folder,
                         .run = run,
                         .transport = transport,
                         .every = stop_places[place].every,
                         .settings = stop_places[place].settings};
}

static inline bool nothing_runs(const program_run *r) {
    pid_t pids[32];
    for (double end = ndp_now() + HANGS; processes_of(r->folder, r->run, pids, NDP_COUNT(pids)); usleep(10000))
        if (ndp_now() > end)
            return false;
    return true;
}

/* What is wrong with how the run has ended; NULL: nothing. */
static inline const char *wrong_end(const stop_try *s, const program_run *r, pid_t rank, int code, const char *log) {
    char words[64];
    int64_t newest = ends_newest(r->folder, r->run), lines = program_lines(r);
    bool mpi = strcmp(s->transport, "mpi") == 0;
    snprintf(words, sizeof words, "kill -CONT %d", (int)rank);
    if (!nothing_runs(r))
        return "processes are left";
    if (s->kind == ASKED && code == 0)
        return newest == SIGNAL_STEPS && error_lines(log) == 0 ? NULL
                                                               : "it ended well, without its last step or a word";
    if (s->target == TO_MPIRUN && newest == SIGNAL_STEPS && code == 1)
        return error_lines(log) == 1 ? NULL : "not one line says why"; /* it ended before the ranks got the signal */
    if (s->kind == ASKED && s->place == AT_START && s->target == TO_RANK && code == 128 + s->signal)
        return error_lines(log) == 1 ? NULL : "not one line says why"; /* it had no handler yet */
    bool unseen = s->kind == KILLED && s->place == AT_START && mpi;    /* mpirun has not seen it in MPI yet */
    if (!(unseen && code == 1) && code != (s->kind == STOPPED ? 1 : s->kind == KILLED ? 128 + SIGKILL : 130))
        return "exit code";
    if (error_lines(log) != 1 && !(s->kind == KILLED && mpi && error_lines(log) == 2)) /* its peers and the parent */
        return "not one line says why";
    if (s->kind == ASKED)
        return newest != lines || (lines > 0 && ends_named(log) != newest) ? "a step is lost" : NULL;
    bool named = names_rank(log, s->rank, rank) || (unseen && strstr(log, "ndparallel: a rank was killed by signal 9"));
    return !named || (s->kind == STOPPED && !strstr(log, words)) ? "it is not named" : NULL;
}

/* The same for the run that goes on. */
static inline const char *wrong_resumed(ends_test *t, program_run *r, const char *reference) {
    r->resume = true;
    r->every = r->sync_ms = 0;
    r->in_batch = false;
    int code = program_finish(program_begin(r), "resumed");
    if (code)
        return "it cannot be resumed";
    char *own = tiny_metrics(r->folder, r->run), *other = tiny_metrics(r->folder, reference);
    bool same = strcmp(own, other) == 0 && tiny_same_weights(r->folder, r->run, reference, "model");
    free(own);
    free(other);
    t->resumed++;
    return same ? NULL : "resumed, it has other bits";
}

/* False: it had left the phase when the signal came. */
static inline bool stop_run(ends_test *t, const stop_try *s) {
    char run[64];
    snprintf(run, sizeof run, "stop-%d", t->runs++);
    program_run r = stop_program(t, s->place, run, s->transport);
    r.sync_ms = stop_places[s->place].sync_ms;
    r.in_batch = s->target == TO_MPIRUN;
    pid_t child = program_begin(&r), rank = await_place(&r, child, s->place, s->rank);
    usleep((useconds_t)ends_draw(t, 1 + 1000 * stop_places[s->place].ms));
    bool there = rank && is_at(&r, s->place) && !has_ended(child);
    if (there)
        there = s->kind == ASKED ? send_signal(t, &r, child, s->signal, s->target)
                                 : kill(rank, s->kind == STOPPED ? SIGSTOP : SIGKILL) == 0;
    int code = program_finish(child, stop_places[s->place].name);
    char *log = program_log(&r);
    const char *reference = stop_places[s->place].reference;
    const char *wrong = there ? wrong_end(s, &r, rank, code, log) : NULL;
    if (there && !wrong && reference)
        wrong = wrong_resumed(t, &r, reference);
    if (wrong)
        printf("FAILED: %s of rank %d (signal %d to %s), %s, %s: %s; code %d, %d lines: %s\n", kind_names[s->kind],
               s->rank, s->signal, target_names[s->target], stop_places[s->place].name, s->transport, wrong, code,
               (int)program_lines(&r), log);
    t->failed += wrong != NULL;
    free(log);
    tiny_remove(t->folder, run);
    return there;
}

/* The runs that are left alone. */
static inline void stop_references(const ends_test *t) {
    make_stop_files(t->folder);
    for (int i = 0; i < STOP_PLACES; i++) {
        const char *name = stop_places[i].reference;
        program_run r = stop_program(t, (stop_place)i, name, "local");
        char *made = ndp_format("%s/%s", t->folder, name ? name : "text.txt");
        r.every = 0;
        if (!ndp_path_exists(made))
            assert_int_equal(program_finish(program_begin(&r), name), 0);
        free(made);
    }
}

/* Stopped twice, each time for less than the limit. */
static inline void stop_and_go_on(ends_test *t, const char *transport) {
    char run[64];
    program_run r = stop_program(t, IN_STEPS, run, transport);
    snprintf(run, sizeof run, "stop-%d", t->runs++);
    pid_t child = program_begin(&r), rank = await_place(&r, child, IN_STEPS, 1);
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(kill(rank, SIGSTOP), 0);
        usleep(700000);
        assert_int_equal(kill(rank, SIGCONT), 0);
        usleep(300000);
    }
    int code = program_finish(child, transport);
    char *log = program_log(&r);
    if (code != 0 || !strstr(log, " is stopped, ") || !strstr(log, " goes on") || strstr(log, "ndparallel: "))
        fail_msg("stopped and gone on, %s: code %d: %s", transport, code, log);
    free(log);
    tiny_check_end(t->folder, run, "plain", SIGNAL_STEPS, "stopped and gone on");
    tiny_remove(t->folder, run);
}

/* ---- runs that start again by themselves ---- */

static inline void await_line(const program_run *r, pid_t child, const char *line) {
    for (bool there = false; !there && !has_ended(child); usleep(500)) {
        char *log = program_log(r);
        there = strstr(log, line);
        free(log);
    }
}

/* A rank is killed at any time, and again after each restart: how often it has started again. */
static inline int restarted_run(ends_test *t, const char *transport) {
    enum { RESTARTS = 4, MOST_MS = 600 };
    char run[64], line[64];
    program_run r = stop_program(t, IN_SAVE, run, transport);
    r.restarts = RESTARTS;
    snprintf(run, sizeof run, "restarted-%d", t->runs++);
    pid_t child = program_begin(&r);
    int done = 0;
    for (; done < RESTARTS && !has_ended(child); done++) {
        usleep((useconds_t)ends_draw(t, 1000 * MOST_MS));
        pid_t rank = rank_process(&r, (int)ends_draw(t, 2));
        if (!rank || kill(rank, SIGKILL))
            break;
        snprintf(line, sizeof line, "\nrestart %d of %d: ", done + 1, RESTARTS);
        await_line(&r, child, line);
    }
    int code = program_finish(child, transport), restarts = 0;
    char *log = program_log(&r);
    for (const char *at = log; (at = strstr(at, "\nrestart ")); at++)
        restarts++;
    if (code != 0)
        fail_msg("%s: after %d restarts it ended with %d: %s", transport, restarts, code, log);
    free(log);
    tiny_check_end(t->folder, run, "plain", SIGNAL_STEPS, "a run that has started again");
    tiny_remove(t->folder, run);
    return restarts;
}

static inline void restarted_runs(ends_test *t, const char *transport, int wanted) {
    int restarts = 0, first = t->runs;
    while (restarts < wanted)
        restarts += restarted_run(t, transport);
    printf("%d restarts of %d runs over %s; 0 lost, 0 wrong\n", restarts, t->runs - first, transport);
}

/* ---- all phases ---- */

static inline stop_try draw_stop(ends_test *t, const char *transport, stop_place place, stop_kind kind) {
    static const int asking[] = {SIGHUP, SIGTERM, SIGINT, SIGUSR1};
    bool mpi = strcmp(transport, "mpi") == 0;
    stop_try s = {place, kind, transport, (int)ends_draw(t, 2), 0, TO_PARENT};
    if (kind == ASKED) {
        s.target = (signal_target)ends_draw(t, mpi ? TARGETS : TO_MPIRUN);
        s.signal = s.target == TO_MPIRUN ? SIGTERM : asking[ends_draw(t, NDP_COUNT(asking))];
    }
    return s;
}

/* How many times a phase is ended in each way. If the run has left the phase when the signal arrives, it is tried
 * again. */
static inline void stop_runs(ends_test *t, const char *transport, stop_place place, stop_kind kind, int tries) {
    int late = 0, before = t->failed;
    setenv("NDP_COMM_TIMEOUT", kind == STOPPED ? STOP_LIMIT : "600", 1);
    for (int made = 0; made < tries;) {
        stop_try s = draw_stop(t, transport, place, kind);
        bool there = stop_run(t, &s);
        made += there;
        late += !there;
        if (late > 10 + tries)
            fail_msg("%s, %s: runs are never there", stop_places[place].name, transport);
    }
    unsetenv("NDP_COMM_TIMEOUT");
    printf("  %s %d, %d failed", kind_names[kind], tries, t->failed - before);
    fflush(stdout);
}

/* A table: so many ends of each kind from `first` on in every phase, or in those with `only` in their name. */
static inline void all_stops(ends_test *t, const char *transport, int tries, const char *only, stop_kind first) {
    for (stop_place place = 0; place < STOP_PLACES; place++) {
        if (!strstr(stop_places[place].name, only))
            continue;
        printf("%-5s %-15s", transport, stop_places[place].name);
        for (stop_kind kind = first; kind < STOP_KINDS; kind++)
            stop_runs(t, transport, place, kind, tries);
        printf("\n");
    }
    stop_and_go_on(t, transport);
    assert_int_equal(t->failed, 0);
}

/* One of each kind. */
static inline void some_stops(ends_test *t, const char *transport) {
    for (stop_kind kind = 0; kind < STOP_KINDS; kind++)
        stop_runs(t, transport, (stop_place)ends_draw(t, STOP_PLACES), kind, 1);
    printf("\n");
    stop_and_go_on(t, transport);
    assert_int_equal(t->failed, 0);
}

#endif
