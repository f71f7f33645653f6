/* The planner's seconds beside those of published training runs (planner/ in NDP_TEST_DATA): the error of
 * each stack, cold and with one of its runs given; the same with the fitted numbers of the price fitted again without
 * the stack, and with each effect off. Usage: bench_planner [fit] [leave-out] [off] [as-planned] [trust=X], with
 * NDP_TEST_DATA set; as-planned: without what old trainers do otherwise (below). */
#include "plan/step_time.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, FIELDS = 64, STACKS = 16 };
enum { A100 = 1, H100 = 2 }; /* devices that a number is of */

typedef struct run {
    char id[8], stack[96];
    int of; /* its stack */
    bool scores,
        whole_rows; /* its attention writes all scores to memory; tp does not cut rows between products (below) */
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
    double trust; /* in priors: what predicts stacks best that are left out */
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
        r->scores = strncmp(r->stack, "Megatron-LM", 11) == 0;
        r->whole_rows = strstr(r->stack, "SC21");
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

/* The runs of Megatron-LM are older than fused attention (README of the table; arXiv 2205.05198, section 4.1): kernels
 * that pass matrices of all scores through memory, which `plan` does not price, since no program here has them. For
 * each score, masked ones too, in 16 bits, dropout's mask in 8: the forward, which runs twice, moves 13 bytes (product,
 * softmax and dropout write 2, 2 and 3, the last three read 6), the backward 19. What `efficiency.attention` were for
 * that time. */
static double share_of_scores(const bench *b, const run *r, const ndp_efficiency *e) {
    const ndp_device_facts *f = &r->links.cluster.facts;
    double d = (double)r->job.spec.hidden / r->job.spec.layout.heads, seen = r->config->data.sequence_length / 2.0;
    double rate = f->flops[NDP_RATE_BF16], memory = f->memory_bandwidth * e->memory;
    double computed =
        2 * (4 * d + 2 * b->facts.ramp) + 8 * d + 2 * b->facts.ramp; /* two products have sums of d terms */
    double seconds = computed / (rate * e->matmul) + (2 * 13 + 19) / memory;
    double forwards = r->config->train.recompute == NDP_RECOMPUTE_BLOCK ? 2 : 1;
    double fused = (forwards * 4 * d + 10 * d / b->facts.backward) / 2; /* half of the scores */
    return fused / (rate * seen / (seen + b->facts.queries) * d / (d + b->facts.head)) / seconds;
}

/* Before sequence parallelism (arXiv 2205.05198, section 4.2) each rank of tp normed and dropped all rows: in 16 bits
 * two norms and two sums with dropout a layer, 22 bytes an element forwards, 26 backwards, of which programs here move
 * 1 / tp. */
static double seconds_of_whole_rows(const run *r, const ndp_efficiency *e) {
    const int *size = r->job.layout.size;
    double forwards = r->config->train.recompute == NDP_RECOMPUTE_BLOCK ? 2 : 1;
    double elements = (double)r->job.model.rows * r->job.spec.hidden * r->job.spec.layout.layers / size[NDP_PP];
    double bytes = (22 * forwards + 26) * elements * r->job.batch.accumulation * (1 - 1.0 / size[NDP_TP]);
    return bytes / (r->links.cluster.facts.memory_bandwidth * e->memory);
}

static double planned(const bench *b, run *r) {
    ndp_device_price price;
    ndp_step_time t;
    ndp_efficiency *e = &r->links.cluster.efficiency;
    *e = strncmp(r->links.cluster.device, "a100", 4) == 0 ? b->a100 : b->h100;
    if (r->scores)
        e->attention = share_of_scores(b, r, e);
    must(ndp_device_price_init(&r->dry, &r->links, &price), r->id);
    price.facts = &b->facts;
    must(ndp_step_time_of_programs(r->programs, r->n, r->job.world / r->n, &price, &t), r->id);
    ndp_device_price_release(&price);
    double bubble = t.seconds / (t.seconds - t.parts[NDP_TIME_BUBBLE]);
    return t.seconds + (r->whole_rows ? bubble * seconds_of_whole_rows(r, e) : 0);
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

static bool on_a100(const run *r) { return strncmp(r->links.cluster.device, "a100", 4) == 0; }

/* Errors of the runs of these devices again. */
static void renew(const bench *b, unsigned devices, errors *e) {
    for (int i = 0; i < b->n; i++)
        if (devices & (on_a100(&b->runs[i]) ? A100 : H100))
            e->log[i] = log(planned(b, &b->runs[i]) / b->runs[i].measured);
}

static errors errors_of(const bench *b) {
    errors e;
    renew(b, A100 | H100, &e);
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

static void print_runs(const bench *b, const errors *e) {
    for (int i = 0; i < b->n; i++)
        printf("%3s %-44s measured %8.3f s, planned %6.3f of it\n", b->runs[i].id, b->runs[i].stack,
               b->runs[i].measured, exp(e->log[i]));
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
 * exp(spread). `links`: sums over tp are priced in fp32, as programs here send them, and trainers send two thirds of
 * these bytes. */
typedef struct parameter {
    const char *name;
    double *at, low, high, prior, spread;
    unsigned devices;
} parameter;

enum { PARAMETERS = 15 };
/* Products: what cuBLAS reaches of large ones. Attention: between FlashAttention and its second version on
 * the A100, whose runs the table lacks; of the H100, the second. */
static int parameters_of(bench *b, parameter *p) {
    const parameter all[] = {{"a100 matmul", &b->a100.matmul, 0.5, 0.95, 0.78, 0.15, A100},
                             {"a100 attention", &b->a100.attention, 0.1, 0.9, 0.42, 0.35, A100},
                             {"a100 memory", &b->a100.memory, 0.4, 0.92, 0.8, 0.2, A100},
                             {"h100 matmul", &b->h100.matmul, 0.5, 0.95, 0.72, 0.15, H100},
                             {"h100 attention", &b->h100.attention, 0.1, 0.9, 0.4, 0.5, H100},
                             {"h100 memory", &b->h100.memory, 0.4, 0.92, 0.8, 0.2, H100},
                             {"links", &b->a100.links, 0.4, 0.95, 0.92, 0.1, A100 | H100},
                             {"nics", &b->a100.nics, 0.4, 0.95, 0.85, 0.2, A100 | H100},
                             {"ramp", &b->facts.ramp, 16, 400, 100, 0.5, A100 | H100},
                             {"queries", &b->facts.queries, 50, 1000, 250, 0.5, A100 | H100},
                             {"call", &b->facts.call, 0.1, 3, 1, 0.5, A100 | H100},
                             {"beside", &b->facts.beside, 0.01, 0.2, 0.1, 0.5, A100 | H100},
                             {"fixed", &b->facts.fixed, 1e-3, 0.05, 5e-3, 1, A100 | H100},
                             {"fp8_share", &b->facts.fp8_share, 0.5, 1, 0.85, 0.2, H100},
                             {"fp8_casts", &b->facts.fp8_casts, 1, 12, 3, 0.5, H100}};
    memcpy(p, all, sizeof all);
    return NDP_COUNT(all);
}

/* Of all runs but those of stack `without`: cold errors, and twice those that a factor of the stack leaves. */
static double loss_of(const bench *b, int without, const errors *e) {
    double sum = 0, mean[STACKS] = {0};
    int runs[STACKS] = {0}, all = 0;
    for (int i = 0; i < b->n; i++)
        mean[b->runs[i].of] += e->log[i], runs[b->runs[i].of]++;
    for (int i = 0; i < b->n; i++) {
        int s = b->runs[i].of;
        if (s == without)
            continue;
        double weight = 1 / sqrt(runs[s]), own = e->log[i] - mean[s] / runs[s];
        sum += weight * (sqrt(e->log[i] * e->log[i] + 1e-4) + 2 * sqrt(own * own + 1e-4));
        all++;
    }
    return sum / all;
}

/* How far parameters are from what is known of them, if each is exp(move) times its value. */
static double distance(const bench *b, const parameter *p, int n, const double *move) {
    double far = 0;
    for (int i = 0; i < n; i++)
        far += pow((log(*p[i].at / p[i].prior) + move[i]) / p[i].spread, 2);
    return b->trust * far;
}

static void set(bench *b, const parameter *p, double value) {
    *p->at = value;
    b->h100.links = b->a100.links;
    b->h100.nics = b->a100.nics;
}

/* How errors change with the logarithm of each parameter. */
static void find_slopes(bench *b, const parameter *p, int n, const errors *e, errors *slopes) {
    for (int i = 0; i < n; i++) {
        double from = *p[i].at, times = from * 1.05 < p[i].high ? 1.05 : 1 / 1.05;
        errors then = *e;
        set(b, &p[i], from * times);
        renew(b, p[i].devices, &then);
        set(b, &p[i], from);
        for (int k = 0; k < b->n; k++)
            slopes[i].log[k] = (then.log[k] - e->log[k]) / log(times);
    }
}

/* The moves, of at most `reach` and within bounds, that make the loss the least if slopes stay as they are: one
 * parameter after the other. */
static void find_moves(const bench *b, const parameter *p, int n, int without, const errors *e, const errors *slopes,
                       double reach, double *move) {
    errors now = *e;
    double best = loss_of(b, without, &now) + distance(b, p, n, move);
    for (double step = reach / 2; step > 1e-3; step /= 2)
        for (int i = 0, tries = 0; tries < 2 * n; tries++, i = (i + 1) % n)
            for (int up = -1; up <= 1; up += 2) {
                errors then = now;
                double from = move[i], most = fmin(reach, log(p[i].high / *p[i].at)),
                       least = fmax(-reach, log(p[i].low / *p[i].at));
                move[i] = fmax(fmin(from + up * step, most), least);
                for (int k = 0; k < b->n; k++)
                    then.log[k] += (move[i] - from) * slopes[i].log[k];
                double loss = loss_of(b, without, &then) + distance(b, p, n, move);
                if (loss < best - 1e-7)
                    best = loss, now = then, tries = 0;
                else
                    move[i] = from;
            }
}

/* Gauss and Newton's way: the parameters' moves by slopes, then slopes anew; where the loss grows, half as far. */
static void fit(bench *b, int without, int rounds) {
    static const double none[PARAMETERS];
    parameter p[PARAMETERS];
    errors slopes[PARAMETERS], e = errors_of(b);
    int n = parameters_of(b, p);
    double reach = 0.3, best = loss_of(b, without, &e) + distance(b, p, n, none);
    for (int k = 0; k < rounds; k++, reach /= 1.5) {
        double move[PARAMETERS] = {0}, from[PARAMETERS];
        find_slopes(b, p, n, &e, slopes);
        find_moves(b, p, n, without, &e, slopes, reach, move);
        for (int i = 0; i < n; i++)
            from[i] = *p[i].at, set(b, &p[i], from[i] * exp(move[i]));
        const errors then = errors_of(b);
        double loss = loss_of(b, without, &then) + distance(b, p, n, none);
        printf("round %d, reach %.3f: loss %.4f, was %.4f\n", k, reach, loss, best);
        fflush(stdout);
        for (int i = 0; i < n && loss >= best; i++)
            set(b, &p[i], from[i]);
        if (loss < best)
            best = loss, e = then;
    }
    for (int i = 0; i < n; i++)
        printf("  %-16s %.4g%s\n", p[i].name, *p[i].at,
               *p[i].at <= p[i].low || *p[i].at >= p[i].high ? "  at its bound" : "");
}

/* Each stack by numbers that are fitted without it, from those that the bench has now. */
static void print_left_out(const bench *b) {
    parameter p[PARAMETERS];
    errors slopes[PARAMETERS], all = errors_of(b);
    const errors e = all;
    bench of = *b;
    int n = parameters_of(&of, p);
    find_slopes(&of, p, n, &e, slopes);
    for (int s = 0; s < b->stacks; s++) {
        double move[PARAMETERS] = {0};
        find_moves(&of, p, n, s, &e, slopes, 0.3, move);
        for (int i = 0; i < n; i++)
            set(&of, &p[i], *p[i].at * exp(move[i]));
        const errors without = errors_of(&of);
        for (int i = 0; i < b->n; i++)
            all.log[i] = b->runs[i].of == s ? without.log[i] : all.log[i];
        of.a100 = b->a100, of.h100 = b->h100, of.facts = b->facts;
    }
    print_errors(b, &all, "each stack left out of the fit");
    print_stacks(b, &all);
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
               .trust = 8e-3};
    snprintf(folder, sizeof folder, "%s/planner", data ? data : "../shared/data");
    read_runs(&b, folder);
    bool fits = false, leaves = false, offs = false, as_planned = false;
    for (int i = 1; i < argc; i++) {
        fits |= strcmp(argv[i], "fit") == 0;
        leaves |= strcmp(argv[i], "leave-out") == 0;
        offs |= strcmp(argv[i], "off") == 0;
        as_planned |= strcmp(argv[i], "as-planned") == 0;
        if (strncmp(argv[i], "trust=", 6) == 0)
            b.trust = atof(argv[i] + 6);
    }
    for (int i = 0; as_planned && i < b.n; i++)
        b.runs[i].scores = b.runs[i].whole_rows = false;
    errors e = errors_of(&b);
    print_runs(&b, &e);
    print_errors(&b, &e, "built in");
    print_stacks(&b, &e);
    if (offs)
        print_without_effects(&b);
    if (fits) {
        fit(&b, -1, 3);
        e = errors_of(&b);
        print_runs(&b, &e);
        print_errors(&b, &e, "fitted");
        print_stacks(&b, &e);
    }
    if (leaves)
        print_left_out(&b);
    return 0;
}
