/* ndparallel verify: compares layouts with one rank, and prints a table or JSON. */
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- arguments ---- */

typedef struct verify_arguments {
    cli_job job;
    cli_list layouts;
    int steps;
    bool json;
} verify_arguments;

static const cli_option options[] = {
    {"layout", 'l', "AXIS=SIZE,...",
     "A layout to compare with one rank, such as dp_shard=4,tp=2: sizes of `parallelism` without '_size'; may be "
     "repeated",
     CLI_LIST(verify_arguments, layouts)},
    {"steps", 0, "N", "Training steps per run, 1 to 20; default: 20",
     CLI_INT(verify_arguments, steps, 1, NDP_VERIFY_STEPS)},
    CLI_JOB_DEVICE,
    {"json", 0, NULL, "Print the result as one line of JSON", CLI_FLAG(verify_arguments, json)},
    {0},
};

static void check_arguments(void *arguments, struct argp_state *state) {
    if (((const verify_arguments *)arguments)->layouts.n == 0)
        argp_error(state, "no layout; give at least one, such as --layout dp_shard=4,tp=2");
}

/* On stderr, since stdout contains only the result. */
static void say(void *user, const char *line) {
    (void)user;
    fprintf(stderr, "%s\n", line);
}

/* ---- the table ---- */

/* The measures in the table: those with a bound (proof 3). */
static const ndp_measure shown[] = {NDP_MEASURE_FIRST_GRADIENT, NDP_MEASURE_LAST_GRADIENT, NDP_MEASURE_GRAD_NORM,
                                    NDP_MEASURE_LOSS};
enum { SHOWN = sizeof shown / sizeof shown[0] };

static double share_of(const ndp_deviation *d) { return d->worst.off == 0 ? 0 : d->worst.off / d->worst.bound; }

/* A deviation as a share of its bound: "0.3%", "20%", "28x". */
static void share_text(double share, char out[16]) {
    if (share < 9.995)
        snprintf(out, 16, share < 0.0995 ? "%.1f%%" : "%.0f%%", 100 * share);
    else
        snprintf(out, 16, "%.3gx", share);
}

static int longest(const verify_arguments *a, const ndp_verdict *v, bool tensors) {
    size_t most = tensors ? strlen("of tensor") : strlen("layout");
    for (int i = 0; i < a->layouts.n; i++) {
        size_t n = strlen(tensors ? v[i].of[NDP_MEASURE_FIRST_GRADIENT].worst.where : a->layouts.items[i]);
        most = n > most ? n : most;
    }
    return (int)most;
}

static void print_table(const verify_arguments *a, const ndp_verdict *v) {
    int layouts = longest(a, v, false), tensors = longest(a, v, true);
    static const int widths[SHOWN] = {8, 9, 6, 6}; /* of the shares, to align with the headings */
    char share[16], last[32];
    snprintf(last, sizeof last, "gradient, step %d", a->steps);
    printf("%-*s  %-16s  %-*s  %-17s  %-14s  %-14s  verdict\n", layouts, "layout", "gradient, step 1", tensors,
           "of tensor", last, "grad_norm", "loss");
    for (int i = 0; i < a->layouts.n; i++) {
        printf("%-*s", layouts, a->layouts.items[i]);
        for (int m = 0; m < SHOWN; m++) {
            const ndp_deviation *d = &v[i].of[shown[m]];
            share_text(share_of(d), share);
            printf("  %.1e %*s", d->worst.off, widths[m], share);
            if (shown[m] == NDP_MEASURE_FIRST_GRADIENT)
                printf("  %-*s", tensors, d->worst.where);
        }
        printf("  %s\n", v[i].agrees ? "agrees" : "DISAGREES");
    }
}

/* Prints which layout comes closest to a bound, and to which. */
static void print_agreement(const verify_arguments *a, const ndp_verdict *v) {
    char text[16];
    double most = -1;
    int layout = 0;
    ndp_measure measure = shown[0];
    for (int i = 0; i < a->layouts.n; i++)
        for (int m = 0; m < SHOWN; m++) {
            double share = share_of(&v[i].of[shown[m]]);
            if (share > most) {
                most = share;
                layout = i;
                measure = shown[m];
            }
        }
    share_text(most, text);
    printf("\n%s with one rank; the closest to its bound, at %s, is the %s of %s\n",
           a->layouts.n > 1 ? "All agree" : "It agrees", text, ndp_measure_name(measure), a->layouts.items[layout]);
}

static void print_words(const verify_arguments *a, const ndp_verdict *v) {
    bool agree = true;
    print_table(a, v);
    for (int i = 0; i < a->layouts.n; i++) {
        if (!v[i].agrees)
            printf("\n%s disagrees: %s\n", a->layouts.items[i], v[i].words);
        agree &= v[i].agrees;
    }
    if (agree)
        print_agreement(a, v);
}

/* ---- JSON ---- */

/* Texts need no JSON escapes: layouts have been parsed, and the names are those of parameters. NaN is written as null.
 */
static void put_number(const char *key, double x) {
    if (isfinite(x))
        printf("\"%s\": %.9g", key, x);
    else
        printf("\"%s\": null", key);
}

static void put_deviation(const char *key, const ndp_deviation *d) {
    printf(", \"%s\": {", key);
    put_number("off", d->worst.off);
    printf(", ");
    put_number("bound", d->worst.bound);
    printf(", \"where\": \"%s\", \"beyond\": %d, \"first\": \"%s\", \"unit\": \"%s\"}", d->worst.where, d->beyond,
           d->first.where, d->first.unit);
}

static void print_json(const verify_arguments *a, const ndp_verdict *v) {
    static const char *const keys[NDP_MEASURES] = {
        [NDP_MEASURE_TOKENS] = "tokens",       [NDP_MEASURE_FIRST_GRADIENT] = "first_gradient",
        [NDP_MEASURE_GRAD_NORM] = "grad_norm", [NDP_MEASURE_LAST_GRADIENT] = "last_gradient",
        [NDP_MEASURE_LOSS] = "loss",           [NDP_MEASURE_WEIGHTS] = "weights"};
    printf("{\"steps\": %d, \"layouts\": [", a->steps);
    for (int i = 0; i < a->layouts.n; i++) {
        printf("%s{\"layout\": \"%s\", \"ranks\": %d, \"agrees\": %s, ", i ? ", " : "", a->layouts.items[i], v[i].ranks,
               v[i].agrees ? "true" : "false");
        put_number("seconds", v[i].seconds);
        for (int m = 0; m < NDP_MEASURES; m++)
            put_deviation(keys[m], &v[i].of[m]);
        printf(", \"words\": \"%s\"}", v[i].words);
    }
    printf("]}\n");
}

/* ---- the command ---- */

static int verify(const verify_arguments *a) {
    ndp_verdict *verdicts = calloc((size_t)a->layouts.n, sizeof *verdicts);
    if (!verdicts) {
        fprintf(stderr, "ndparallel: not enough memory for %d layouts\n", a->layouts.n);
        return 1;
    }
    ndp_verify_opts o = NDP_VERIFY_OPTS_INIT;
    o.layouts = a->layouts.items;
    o.n = a->layouts.n;
    o.steps = a->steps;
    o.say = say;
    ndp_status st = ndp_verify(a->job.config, &o, verdicts);
    bool agree = true;
    if (st == NDP_OK) {
        (a->json ? print_json : print_words)(a, verdicts);
        for (int i = 0; i < a->layouts.n; i++)
            agree &= verdicts[i].agrees;
    }
    free(verdicts);
    return st == NDP_OK ? cli_end_output(!agree) : cli_fail(st, a->job.debug);
}

int cmd_verify(int argc, char **argv) {
    static const cli_command command = {
        .usage = "JOB.YAML",
        .help = "Check layouts: train a job for a few steps on one rank and on every --layout, and compare all "
                "gradients, gradient norms and losses. Ranks are threads of this process. Exit code 0: all layouts "
                "agree; 1: at least one does not.",
        .options = options,
        .takes_job = true,
        .check = check_arguments};
    verify_arguments a = {.steps = NDP_VERIFY_STEPS};
    cli_parse(&command, argc, argv, &a);
    ndp_status st = cli_job_load(&a.job);
    int code = st == NDP_OK ? verify(&a) : cli_fail(st, a.job.debug);
    cli_job_release(&a.job);
    free(a.layouts.items);
    return code;
}
