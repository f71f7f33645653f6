/* The planner's seconds beside those of published training runs (planner/ in NDP_TEST_DATA): the error of
 * each stack, cold and with one of its runs given; the same with the fitted numbers of the price fitted again without
 * the stack, and with each effect off. Usage: bench_planner [fit] [leave-out] [off], with NDP_TEST_DATA set.
 */
#include "plan/step_time.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, FIELDS = 64, STACKS = 16 };

typedef struct run {
    char id[8], stack[96];
    int of; /* its stack */
    double measured;
    ndp_config *config;
    ndp_job job;
    ndp_dry_run dry;
    ndp_model model;
    ndp_cluster_plan links;
    ndp_engine *engines[128];
    const ndp_program *programs[128];
    int n;
} run;

typedef struct bench {
    run *runs;
    int n, stacks;
    ndp_price_facts facts;
    ndp_efficiency a100, h100;
    double trust; /* in priors */
} bench;

static void must(ndp_status st, const char *what) {
    if (st != NDP_OK) {
        fprintf(stderr, "%s: %s\n", what, ndp_error_message());
        exit(1);
    }
}

/* ---- the table ---- */

/* Cuts a line at commas outside quotes; returns how many fields it has. A quote inside quotes is two. */
static int cut(char *line, char *fields[FIELDS]) {
    int n = 0;
    bool quoted = false;
    fields[n++] = line;
    for (char *p = line; *p && *p != '\r' && *p != '\n' && n < FIELDS; p++) {
        quoted ^= *p == '"';
        if (*p == ',' && !quoted)
            *p = 0, fields[n++] = p + 1;
    }
    fields[n - 1][strcspn(fields[n - 1], "\r\n")] = 0;
    for (int i = 0; i < n; i++)
        if (*fields[i] == '"')
            fields[i]++, fields[i][strcspn(fields[i], "\"")] = 0;
    return n;
}

static int column(char *names[FIELDS], int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    fprintf(stderr, "open.csv has no column %s\n", name);
    exit(1);
}

static void open_run(run *r, const char *folder) {
    char path[512];
    snprintf(path, sizeof path, "%s/rows/%02d.yaml", folder, atoi(r->id));
    must(ndp_config_create(&r->config), path);
    must(ndp_config_read(r->config, path), path);
    snprintf(path, sizeof path, "%s/rows/%02d.cluster.yaml", folder, atoi(r->id));
    ndp_cluster c;
    must(ndp_cluster_find(path, &c), path);
    r->config->train.ranks = ndp_cluster_devices(&c);
    ndp_cluster_release(&c);
    must(ndp_config_set(r->config, "train.device=cuda"), path);
    must(ndp_job_init_planned(r->config, 0, true, &r->job), path);
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    o.cluster = path;
    must(ndp_cluster_plan_open(&r->job, &o, &r->links), path);
    must(ndp_dry_run_init(&r->dry, &r->job, ndp_rank_map_block(&r->links.map), 0), path);
    r->links.rings = true;
    must(ndp_model_build(&r->job.spec, &r->job.model, &r->model), path);
    r->n = r->job.layout.size[NDP_PP];
    for (int i = 0; i < r->n; i++) {
        must(ndp_plan_engine(&r->dry, &r->model, i * (r->job.world / r->n), &r->engines[i]), path);
        r->programs[i] = ndp_engine_program(r->engines[i]);
    }
}

static void read_runs(bench *b, const char *folder) {
    char path[512], line[8192], head[8192], *names[FIELDS], *of[FIELDS];
    snprintf(path, sizeof path, "%s/open.csv", folder);
    FILE *f = fopen(path, "r");
    if (!f || !fgets(head, sizeof head, f)) {
        fprintf(stderr, "%s cannot be read: set NDP_TEST_DATA\n", path);
        exit(1);
    }
    int n = cut(head, names);
    b->runs = calloc(MOST, sizeof *b->runs);
    while (fgets(line, sizeof line, f) && b->n < MOST) {
        run *r = &b->runs[b->n];
        int fields = cut(line, of);
        if (fields != n || strncmp(of[column(names, n, "job")], "rows/", 5) != 0)
            continue;
        snprintf(r->id, sizeof r->id, "%s", of[0]);
        snprintf(r->stack, sizeof r->stack, "%.24s %s %s", of[column(names, n, "system")],
                 of[column(names, n, "device")], of[column(names, n, "precision")]);
        r->measured = atof(of[column(names, n, "step_seconds")]);
        r->of = b->stacks;
        for (int i = 0; i < b->n; i++)
            if (strcmp(b->runs[i].stack, r->stack) == 0)
                r->of = b->runs[i].of;
        b->stacks += r->of == b->stacks;
        open_run(r, folder);
        b->n++;
    }
    fclose(f);
}

/* ---- errors ---- */

static double planned(const bench *b, run *r) {
    ndp_device_price price;
    ndp_step_time t;
    r->links.cluster.efficiency = strncmp(r->links.cluster.device, "a100", 4) == 0 ? b->a100 : b->h100;
    must(ndp_device_price_init(&r->dry, &r->links, &price), r->id);
    price.facts = &b->facts;
    must(ndp_step_time_of_programs(r->programs, r->n, r->job.world / r->n, &price, &t), r->id);
    ndp_device_price_release(&price);
    return t.seconds;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double quantile(double *x, int n, double q) {
    qsort(x, (size_t)n, sizeof *x, by_size);
    return n ? x[(int)(q * (n - 1) + 0.5)] : 0;
}

typedef struct errors {
    double log[MOST]; /* of planned / measured */
} errors;

static errors errors_of(const bench *b) {
    errors e;
    for (int i = 0; i < b->n; i++)
        e.log[i] = log(planned(b, &b->runs[i]) / b->runs[i].measured);
    return e;
}

/* |error| of the runs of a stack (-1: of all), cold, or with each other run of the stack given in turn. */
static int collect(const bench *b, const errors *e, int stack, bool anchored, double *out, int most) {
    int n = 0;
    for (int i = 0; i < b->n; i++) {
        if (stack >= 0 && b->runs[i].of != stack)
            continue;
        if (!anchored && n < most)
            out[n++] = fabs(exp(e->log[i]) - 1);
        for (int k = 0; anchored && k < b->n; k++)
            if (k != i && b->runs[k].of == b->runs[i].of && n < most)
                out[n++] = fabs(exp(e->log[i] - e->log[k]) - 1);
    }
    return n;
}

static void print_errors(const bench *b, const errors *e, const char *title) {
    static double x[MOST * MOST];
    printf("%-44s", title);
    for (int anchored = 0; anchored < 2; anchored++) {
        int n = collect(b, e, -1, anchored, x, MOST * MOST);
        printf("  %s median %5.1f%%  p90 %5.1f%%", anchored ? "anchored" : "cold", 100 * quantile(x, n, 0.5),
               100 * quantile(x, n, 0.9));
    }
    printf("\n");
}

static void print_stacks(const bench *b, const errors *e) {
    static double x[MOST * MOST];
    for (int s = 0; s < b->stacks; s++) {
        const char *name = "";
        double mean = 0;
        int runs = 0;
        for (int i = 0; i < b->n; i++)
            if (b->runs[i].of == s)
                name = b->runs[i].stack, mean += e->log[i], runs++;
        int n = collect(b, e, s, true, x, MOST * MOST);
        printf("  %-44s %2d runs  mean %+6.1f%%  anchored median %5.1f%%  p90 %5.1f%%\n", name, runs,
               100 * (exp(mean / runs) - 1), 100 * quantile(x, n, 0.5), 100 * quantile(x, n, 0.9));
    }
}

/* ---- the fit ---- */

/* What is fitted, with bounds that physics sets, and what is known of it without these runs: `prior`, up to a factor of
 * exp(spread). */
typedef struct parameter {
    const char *name;
    double *at, low, high, prior, spread;
} parameter;

enum { PARAMETERS = 15 };
/* Products: what cuBLAS reaches of large ones. Attention: FlashAttention-2, whose runs on the A100 the table lacks. */
static int parameters_of(bench *b, parameter *p) {
    const parameter all[] = {{"a100 matmul", &b->a100.matmul, 0.5, 0.95, 0.78, 0.15},
                             {"a100 attention", &b->a100.attention, 0.1, 0.9, 0.45, 0.35},
                             {"a100 memory", &b->a100.memory, 0.4, 0.92, 0.8, 0.2},
                             {"h100 matmul", &b->h100.matmul, 0.5, 0.95, 0.72, 0.15},
                             {"h100 attention", &b->h100.attention, 0.1, 0.9, 0.4, 0.5},
                             {"h100 memory", &b->h100.memory, 0.4, 0.92, 0.8, 0.2},
                             {"links", &b->a100.links, 0.4, 0.95, 0.8, 0.2},
                             {"nics", &b->a100.nics, 0.4, 0.95, 0.85, 0.2},
                             {"ramp", &b->facts.ramp, 16, 400, 100, 0.5},
                             {"queries", &b->facts.queries, 50, 1000, 250, 0.5},
                             {"call", &b->facts.call, 0.1, 3, 1, 0.5},
                             {"beside", &b->facts.beside, 0.01, 0.2, 0.1, 0.5},
                             {"fixed", &b->facts.fixed, 1e-3, 0.05, 5e-3, 1},
                             {"fp8_share", &b->facts.fp8_share, 0.5, 1, 0.85, 0.2},
                             {"fp8_casts", &b->facts.fp8_casts, 1, 12, 3, 0.5}};
    memcpy(p, all, sizeof all);
    return NDP_COUNT(all);
}

/* Of all runs but those of stack `without`: cold errors, and twice those that a factor of the stack leaves. */
static double loss_of(bench *b, int without) {
    b->h100.links = b->a100.links;
    b->h100.nics = b->a100.nics;
    double sum = 0, mean[STACKS] = {0};
    int runs[STACKS] = {0}, all = 0;
    const errors e = errors_of(b);
    for (int i = 0; i < b->n; i++)
        mean[b->runs[i].of] += e.log[i], runs[b->runs[i].of]++;
    for (int i = 0; i < b->n; i++) {
        int s = b->runs[i].of;
        if (s == without)
            continue;
        double weight = 1 / sqrt(runs[s]), own = e.log[i] - mean[s] / runs[s];
        sum += weight * (sqrt(e.log[i] * e.log[i] + 1e-4) + 2 * sqrt(own * own + 1e-4));
        all++;
    }
    parameter p[PARAMETERS];
    int n = parameters_of(b, p);
    double far = 0;
    for (int i = 0; i < n; i++)
        far += pow(log(*p[i].at / p[i].prior) / p[i].spread, 2);
    return sum / all + b->trust * far;
}

/* Takes `times` the value of a parameter if that is better. */
static bool try_value(bench *b, const parameter *p, double times, int without, double *best) {
    double from = *p->at, loss;
    *p->at = fmin(fmax(from * times, p->low), p->high);
    loss = *p->at == from ? INFINITY : loss_of(b, without);
    if (loss >= *best - 1e-6) {
        *p->at = from;
        return false;
    }
    *best = loss;
    return true;
}

static void fit(bench *b, int without, int sweeps) {
    parameter p[PARAMETERS];
    int n = parameters_of(b, p);
    double step = 1.25, best = loss_of(b, without);
    for (int k = 0; k < sweeps; k++, step = sqrt(step)) {
        for (int i = 0; i < n; i++)
            for (int up = 0; up < 2; up++)
                while (try_value(b, &p[i], up ? step : 1 / step, without, &best)) {
                }
        printf("sweep %d, step %.3f: loss %.4f\n", k, step, best);
        fflush(stdout);
    }
    for (int i = 0; i < n; i++)
        printf("  %-16s %.4g%s\n", p[i].name, *p[i].at,
               *p[i].at <= p[i].low || *p[i].at >= p[i].high ? "  at its bound" : "");
}

/* ---- effects off ---- */

static void print_without_effects(bench *b) {
    static const char *const names[] = {"ramp", "queries", "beside", "call", "fixed", "backward"};
    for (int i = 0; i < NDP_COUNT(names); i++) {
        const ndp_price_facts kept = b->facts;
        double *const at[] = {&b->facts.ramp, &b->facts.queries, &b->facts.beside,
                              &b->facts.call, &b->facts.fixed,   &b->facts.backward};
        char title[64];
        *at[i] = i == 5 ? 1 : 0;
        snprintf(title, sizeof title, "without %s", names[i]);
        const errors e = errors_of(b);
        print_errors(b, &e, title);
        b->facts = kept;
    }
}

int main(int argc, char **argv) {
    char folder[400];
    const char *data = getenv("NDP_TEST_DATA");
    bench b = {.facts = ndp_price_of_gpus,
               .a100 = ndp_built_in_device("a100-sxm-80")->efficiency,
               .h100 = ndp_built_in_device("h100-sxm")->efficiency,
               .trust = 4e-4};
    snprintf(folder, sizeof folder, "%s/planner", data ? data : "../shared/data");
    read_runs(&b, folder);
    bool fits = false, leaves = false, offs = false;
    for (int i = 1; i < argc; i++) {
        fits |= strcmp(argv[i], "fit") == 0;
        leaves |= strcmp(argv[i], "leave-out") == 0;
        offs |= strcmp(argv[i], "off") == 0;
    }
    errors e = errors_of(&b);
    for (int i = 0; i < b.n; i++)
        printf("%3s %-44s measured %8.3f s, planned %6.3f of it\n", b.runs[i].id, b.runs[i].stack, b.runs[i].measured,
               exp(e.log[i]));
    print_errors(&b, &e, "built in");
    print_stacks(&b, &e);
    if (offs)
        print_without_effects(&b);
    if (fits) {
        fit(&b, -1, 8);
        e = errors_of(&b);
        print_errors(&b, &e, "fitted");
        print_stacks(&b, &e);
    }
    for (int s = 0; leaves && s < b.stacks; s++) {
        bench c = b;
        fit(&c, s, 4);
        e = errors_of(&c);
        printf("left out of the fit:\n");
        print_stacks(&c, &e);
    }
    return 0;
}
