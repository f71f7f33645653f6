/* Rank 1 is stopped or killed while the ranks start, tokenize, take steps, or have taken the last one: the run ends,
 * and a line names the rank and its process. One that goes on in time changes nothing. */
#ifndef TESTS_TRAIN_END_STOPS_H
#define TESTS_TRAIN_END_STOPS_H

#include "train/end_signals.h"

typedef enum stop_place { AT_START, TOKENIZING, IN_STEPS, AT_END, STOP_PLACES } stop_place;
static const char *const place_names[STOP_PLACES] = {"at the start", "tokenizing", "in steps", "at the end"};

enum { STOP_LIMIT = 20, LARGE_TEXT = 60 << 20 }; /* seconds, bytes */

static bool stops_claimed;
static inline int stops_note(const char *path, const struct stat *info, int type, struct FTW *where) {
    (void)info;
    (void)type;
    stops_claimed |= strncmp(path + where->base, "claim-", 6) == 0;
    return 0;
}

static inline bool is_at(const program_run *r, stop_place place) {
    char *cache = ndp_format("%s/%s.cache", r->folder, r->run), *model = ndp_format("%s/%s/model", r->folder, r->run);
    stops_claimed = false;
    if (place == TOKENIZING)
        nftw(cache, stops_note, 16, FTW_PHYS);
    bool there =
        place == AT_START || (place == TOKENIZING && stops_claimed) || (place == AT_END && ndp_path_exists(model));
    free(cache);
    free(model);
    return there;
}

/* The process of rank 1 once the run is there; 0: it has ended before. */
static inline pid_t await_place(const program_run *r, pid_t child, stop_place place) {
    siginfo_t info = {0};
    pid_t rank = 0;
    while (!rank && waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && !info.si_pid)
        rank = rank_process(r, 1);
    if (place == AT_START)
        usleep(100000); /* its launcher has seen it too */
    if (place == IN_STEPS)
        program_reach(r, child, 5);
    while (place != IN_STEPS && !is_at(r, place) &&
           waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && !info.si_pid)
        usleep(100);
    return rank;
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

/* An error line of the run that is about rank 1. */
static inline bool names_rank(const char *log, pid_t rank) {
    char process[32];
    snprintf(process, sizeof process, "(process %d)", (int)rank);
    return line_has(log, "ndparallel: rank 1", process) ||
           line_has(log, "ndparallel: rank 0 waited", "rank 1 has not arrived");
}

static inline void make_large(const char *path) {
    static const char line[] = "There were 7 bears and 21 foxes, and they shared 49 apples.\n";
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int64_t n = 0; n < LARGE_TEXT; n += sizeof line - 1)
        fputs(line, f);
    assert_int_equal(fclose(f), 0);
}

static inline void stop_run(ends_test *t, const char *transport, int number, stop_place place) {
    char run[64], what[160];
    program_run r = {&ends_layouts[1], t->folder, run, transport, 0, false};
    snprintf(run, sizeof run, "stop-%d", t->runs++);
    snprintf(what, sizeof what, "%s, %s, %s", strsignal(number), place_names[place], transport);
    char *text = ndp_format("%s/text.txt", t->folder), *small = ndp_format("%s/small.txt", t->folder);
    if (place == TOKENIZING) {
        assert_int_equal(rename(text, small), 0);
        make_large(text);
    }
    pid_t child = program_begin(&r), rank = await_place(&r, child, place);
    bool sent = rank && kill(rank, number) == 0;
    int code = program_finish(child, what);
    char *log = program_log(&r), words[64];
    snprintf(words, sizeof words, "kill -CONT %d", (int)rank);
    bool stopped = number == SIGSTOP;
    if (!sent || code != (stopped ? 1 : 128 + number) || !names_rank(log, rank) || (stopped && !strstr(log, words)))
        fail_msg("%s: code %d: %s", what, code, log);
    if (rank_process(&r, 1))
        fail_msg("%s: rank 1 is left", what);
    if (place == TOKENIZING)
        assert_int_equal(rename(small, text), 0);
    t->failed++;
    free(log);
    free(text);
    free(small);
    tiny_remove(t->folder, run);
}

/* The run that is left alone. */
static inline void shard_2_reference(const ends_test *t) {
    program_run r = {&ends_layouts[1], t->folder, "shard-2-long", "local", 0, false};
    tiny_put(t->folder, "held.txt", "There were 7 bears and 21 foxes.\n");
    assert_int_equal(program_finish(program_begin(&r), "the run that is left alone"), 0);
}

/* Stopped twice, each time for less than the limit. */
static inline void stop_and_go_on(ends_test *t, const char *transport) {
    char run[64];
    program_run r = {&ends_layouts[1], t->folder, run, transport, 0, false};
    snprintf(run, sizeof run, "stop-%d", t->runs++);
    pid_t child = program_begin(&r), rank = await_place(&r, child, IN_STEPS);
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
    tiny_check_end(t->folder, run, "shard-2-long", SIGNAL_STEPS, "stopped and gone on");
    tiny_remove(t->folder, run);
}

/* Of each transport and signal so many places; the others of their turn. With one place, which is a sample, ranks of
 * one transport alone are stopped: that takes as long as the limit, which is long enough for a busy machine. */
static inline void all_stops(ends_test *t, int places) {
    static const char *const transports[] = {"shm", "mpi"};
    char limit[16];
    int worlds = has_mpirun() ? 2 : 1, stopped = (int)ends_draw(t, worlds);
    snprintf(limit, sizeof limit, "%d", STOP_LIMIT);
    for (int w = 0; w < worlds; w++) {
        setenv("NDP_COMM_TIMEOUT", limit, 1);
        for (int i = 0; i < 2; i++)
            for (int k = 0, first = (int)ends_draw(t, STOP_PLACES); k < places && (i || places > 1 || w == stopped);
                 k++)
                stop_run(t, transports[w], i ? SIGKILL : SIGSTOP, (stop_place)((first + k) % STOP_PLACES));
        setenv("NDP_COMM_TIMEOUT", "600", 1);
        stop_and_go_on(t, transports[w]);
    }
    unsetenv("NDP_COMM_TIMEOUT");
}

#endif
