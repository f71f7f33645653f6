/* Saves beside the steps of a run (checkpoint.async): the same job without saves, with saves that are written in the
 * background, and with saves that the steps wait for, in turn, in one process. Prints the share of the run for which
 * steps waited, how much longer the run took than without saves, by the wall and by the processor's time of all
 * threads, which a busy machine lengthens little, and what the threads that wrote would take if all cores shared it.
 *
 * Usage: bench_saves REPEATS EVERY [KEY=VALUE ...] */
#include "clock.h"
#include "result.h"

#include <ndparallel/ndparallel.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 9 };
typedef enum way { NONE, BACKGROUND, WAITED, WAYS } way;
static const char *const names[WAYS] = {"no saves", "in the background", "waited for"};

/* Of a run: from the end of its first step to the end of the last but one, so without the save at the end. */
typedef struct spent {
    double wall, processor, saves; /* saves: seconds for which steps waited */
    double threads;                /* of the saves, the processor's time of the threads that wrote */
    int checkpoints;
} spent;

typedef struct run {
    spent of, begun;
} run;

static spent now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (spent){.wall = ndp_now(), .processor = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec};
}

static void note_step(void *user, const ndp_metrics *m, int64_t steps) {
    run *r = user;
    if (m->step == 1)
        r->begun = now();
    if (m->step > 1 && m->step < steps)
        r->of.saves += m->save_seconds;
    if (m->step == steps - 1) {
        spent end = now();
        r->of.wall = end.wall - r->begun.wall;
        r->of.processor = end.processor - r->begun.processor;
    }
}

static void note_line(void *user, const char *line) {
    run *r = user;
    const char *used = strstr(line, "threads used ");
    r->of.checkpoints += strncmp(line, "checkpoint: ", 12) == 0;
    r->of.threads += used ? strtod(used + strlen("threads used "), NULL) : 0;
}

typedef struct started {
    const ndp_config *config;
    run *of;
} started;

static ndp_status body(ndp_world *w, void *arg) {
    const started *s = arg;
    ndp_train_opts o = NDP_TRAIN_OPTS_INIT;
    o.progress = note_step, o.say = note_line, o.user = s->of;
    return ndp_train(s->config, w, &o);
}

static ndp_status run_once(const char *folder, way how, int every, int n, char **assignments, run *out) {
    static const char *const async[WAYS] = {"false", "true", "false"};
    static int runs;
    ndp_config *c;
    started s = {.of = out};
    *out = (run){0};
    NDP_TRY(ndp_config_create(&c));
    ndp_status st = ndp_config_setf(c, "train.output_dir=%s/run-%d", folder, runs++);
    if (st == NDP_OK)
        st = ndp_config_set(c, "train.transport=local");
    for (int i = 0; i < n && st == NDP_OK; i++)
        st = ndp_config_set(c, assignments[i]);
    if (st == NDP_OK)
        st = ndp_config_setf(c, "checkpoint.every=%d", how == NONE ? 0 : every);
    if (st == NDP_OK)
        st = ndp_config_set(c, "checkpoint.minutes=0");
    if (st == NDP_OK)
        st = ndp_config_set(c, "checkpoint.keep=1");
    if (st == NDP_OK)
        st = ndp_config_setf(c, "checkpoint.async=%s", async[how]);
    s.config = c;
    st = st == NDP_OK ? ndp_world_run(c, body, &s) : st;
    ndp_config_destroy(c);
    return st;
}

static void print(way how, const spent *of, const spent *none) {
    double cores = (double)sysconf(_SC_NPROCESSORS_ONLN), beside = of->threads / cores / none->wall;
    printf("%-18s %7.2f s, %6.2f s of a core; %2d checkpoints; steps waited %.2f%%; longer by %+.1f%% (wall), %+.1f%% "
           "(processor)",
           names[how], of->wall, of->processor, of->checkpoints, 100 * of->saves / of->wall,
           100 * (of->wall / none->wall - 1), 100 * (of->processor / none->processor - 1));
    if (how == BACKGROUND)
        printf("; threads that wrote / cores: %.1f%%", 100 * beside);
    printf("\n");
    fflush(stdout);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static ndp_status measure(const char *folder, int repeats, int every, int n, char **assignments) {
    double waited[MOST], longer[MOST];
    for (int i = 0; i < repeats; i++) {
        run of[WAYS];
        for (way how = NONE; how < WAYS; how++) {
            NDP_TRY(run_once(folder, how, every, n, assignments, &of[how]));
            print(how, &of[how].of, &of[NONE].of);
        }
        waited[i] = 100 * of[BACKGROUND].of.saves / of[BACKGROUND].of.wall;
        longer[i] = of[BACKGROUND].of.wall / of[NONE].of.wall;
    }
    bench_result("save in the background, steps wait", median(waited, repeats), "% of the run",
                 median(longer, repeats));
    return NDP_OK;
}

int main(int argc, char **argv) {
    char folder[] = "bench-saves-XXXXXX", command[64];
    int repeats = argc > 2 ? atoi(argv[1]) : 0, every = argc > 2 ? atoi(argv[2]) : 0;
    bench_begin(argv);
    if (repeats < 1 || repeats > MOST || every < 1)
        return fprintf(stderr, "usage: bench_saves REPEATS EVERY [KEY=VALUE ...], with 1 to %d repeats\n", MOST), 2;
    if (!mkdtemp(folder))
        return perror(folder), 1;
    ndp_status st = measure(folder, repeats, every, argc - 3, argv + 3);
    if (st != NDP_OK)
        fprintf(stderr, "bench_saves: %s\n", ndp_error_message());
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return (system(command) != 0) | (st != NDP_OK);
}
