/* The time of a step by theory: bubbles of equal stages, rings by latency and rate, parts that add up, repeated
 * iterations as if each were replayed; and links, which make no step faster where they are shared or slower. */
#include "plan/priced.h"
#include "step/pipelines.h"

static void is(const char *what, double x, double wanted, double scale) {
    if (!(fabs(x - wanted) <= 1e-9 * scale))
        fail_msg("%s: %.12g, expected %.12g", what, x, wanted);
}

/* ---- pipelines without communication ---- */

/* A cluster on which nothing but attention takes time, of which each stage has as much. */
static ndp_cluster_plan attention_only(const ndp_job *j) {
    ndp_cluster_plan p = {.job = j, .facts = {.kv_heads = 2}};
    CHECK_OK(ndp_cluster_find("1x8:h100-sxm", &p.cluster));
    CHECK_OK(ndp_rank_map_fill(&p.cluster, j->world, &p.map));
    p.cluster.facts.memory_bandwidth = p.cluster.efficiency.matmul = p.cluster.links.bandwidth = INFINITY;
    p.cluster.facts.call_seconds = p.cluster.links.latency = 0;
    for (int i = 0; i < NDP_RATES; i++)
        p.cluster.facts.flops[i] = 1e9;
    p.cluster.efficiency.attention = 1;
    return p;
}

static void check_bubble(ndp_pipeline_kind kind, int p, int v, int m, double theory) {
    pipeline_setup s;
    ndp_step_time t;
    const ndp_price_facts facts = {.backward = 0.8, .call = 1};
    pipeline_begin(&s, kind, p, v, m);
    ndp_job job = {.layout = s.layout, .world = p};
    ndp_cluster_plan links = attention_only(&job);
    ndp_device_price price = {.links = &links, .facts = &facts, .gpu = true, .rows = 24, .length = 24};
    price.known = calloc(NDP_KNOWN_PRICES, sizeof *price.known);
    price.gradient_bytes = price.tp_bytes = 1;
    CHECK_OK(ndp_step_time_of_programs(s.programs, p, 1, &price, &t));
    is(ndp_pipeline_table[kind].name, t.parts[NDP_TIME_BUBBLE] / t.seconds, theory, 1);
    is("bubble and attention", t.parts[NDP_TIME_BUBBLE] + t.parts[NDP_TIME_ATTENTION], t.seconds, t.seconds);
    ndp_device_price_release(&price);
    ndp_cluster_plan_release(&links);
    pipeline_end(&s);
}

static void bubbles_are_those_of_theory(void **state) {
    (void)state;
    static const int shapes[][2] = {{2, 2}, {2, 8}, {4, 4}, {4, 32}, {8, 8}, {3, 24}};
    for (int i = 0; i < NDP_COUNT(shapes); i++) {
        double p = shapes[i][0], m = shapes[i][1];
        check_bubble(NDP_PIPELINE_1F1B, (int)p, 1, (int)m, (p - 1) / (m + p - 1));
        check_bubble(NDP_PIPELINE_GPIPE, (int)p, 1, (int)m, (p - 1) / (m + p - 1));
        for (int v = 2; v <= 3 && p * v <= 12; v++)
            check_bubble(NDP_PIPELINE_INTERLEAVED, (int)p, v, (int)m, (p - 1) / v / (m + (p - 1) / v));
    }
}

/* ---- one communication ---- */

enum { BYTES = 1 << 20 };

/* Inside a node, and between nodes. */
typedef struct wires {
    double latency, rate, nic_latency, nic_rate;
} wires;

/* Seconds of one communication over tp, of n ranks on nodes of `devices` with a NIC for each. `peer`: of a message. */
static double comm_seconds(const ndp_op *op, int peer, int n, int devices, const wires *w) {
    char cluster[64];
    ndp_job job = {.layout = NDP_LAYOUT_ONE, .world = n};
    ndp_operand in = {.view = {.rows = 1, .cols = BYTES / 4, .dtype = NDP_F32}};
    ndp_call c = {.kind = NDP_CALL_BEGIN, .op = op, .in = &in, .n_in = 1, .channel = NDP_GROUP_TP, .bytes = BYTES};
    c.attr.peer = peer;
    ndp_mesh mesh;
    job.layout.size[NDP_TP] = n;
    ndp_cluster_plan p = {.job = &job, .rings = true};
    snprintf(cluster, sizeof cluster, "%dx%d:h100-sxm", (n + devices - 1) / devices, devices);
    CHECK_OK(ndp_cluster_find(cluster, &p.cluster));
    CHECK_OK(ndp_rank_map_fill(&p.cluster, n, &p.map));
    CHECK_OK(ndp_mesh_init(&job.layout, 0, &p.facts, &mesh));
    p.cluster.efficiency.links = p.cluster.efficiency.nics = 0.5;
    p.cluster.links.bandwidth = 2 * w->rate, p.cluster.nics.bandwidth = 2 * w->nic_rate;
    p.cluster.nics.count = devices;
    p.cluster.links.latency = w->latency, p.cluster.nics.latency = w->nic_latency;
    ndp_device_price price = {.links = &p, .gradient_bytes = 1, .tp_bytes = 1};
    double seconds = ndp_device_comm(&price, &mesh, &c);
    ndp_cluster_plan_release(&p);
    return seconds;
}

static void rings_take_latency_and_rate(void **state) {
    (void)state;
    const double a = 3e-6, b = 11e-6, rate = 1e9;
    const wires w = {a, rate, b, rate};
    for (int n = 2; n <= 8; n++) { /* on a node; then a rank on each of n */
        double part = (n - 1) * (double)BYTES / n / rate;
        is("all_reduce", comm_seconds(&ndp_op_all_reduce, 0, n, 8, &w), 2 * (n - 1) * a + 2 * part, part);
        is("reduce_scatter", comm_seconds(&ndp_op_reduce_scatter, 0, n, 8, &w), (n - 1) * a + part, part);
        is("all_gather", comm_seconds(&ndp_op_all_gather, 0, n, 8, &w), (n - 1) * a + n * part, part);
        is("reduce_scatter between", comm_seconds(&ndp_op_reduce_scatter, 0, n, 1, &w), (n - 1) * b + part, part);
        is("all_gather between", comm_seconds(&ndp_op_all_gather, 0, n, 1, &w), (n - 1) * b + n * part, part);
        is("all_reduce between", comm_seconds(&ndp_op_all_reduce, 0, n, 1, &w), 2 * ceil(log2(n)) * b + 2 * part,
           part); /* by a tree */
        is("all_to_all", comm_seconds(&ndp_op_all_to_all, 0, n, 8, &w), a + part, part);
        is("shift", comm_seconds(&ndp_op_shift, 0, n, 8, &w), a + BYTES / rate, part);
        is("shift between", comm_seconds(&ndp_op_shift, 0, n, 1, &w), b + BYTES / rate, part);
    }
    double part = 7 * (double)BYTES / 8 / rate; /* two nodes of four */
    is("a ring over nodes", comm_seconds(&ndp_op_reduce_scatter, 0, 8, 4, &w), 5 * a + 2 * b + part, part);
    is("a sum over nodes", comm_seconds(&ndp_op_all_reduce, 0, 8, 4, &w), 2 * (3 * a + b) + 2 * part, part);
}

/* Of eight ranks on two nodes the last of each sends over the border: through one NIC, which is what the receiver waits
 * for too. The others send inside their node. */
static void messages_cost_both_sides_alike(void **state) {
    (void)state;
    const wires w = {2e-6, 8e9, 5e-6, 1e9};
    const double inside = 2e-6 + BYTES / 8e9, between = 5e-6 + BYTES / 1e9;
    static const struct {
        const ndp_op *op;
        int peer; /* of rank 0 */
    } ways[] = {{&ndp_op_send, 1}, {&ndp_op_recv, 7}, {&ndp_op_send, 7}, {&ndp_op_recv, 1}};
    for (int i = 0; i < NDP_COUNT(ways); i++)
        is(ways[i].op->name, comm_seconds(ways[i].op, ways[i].peer, 8, 4, &w), ways[i].peer == 7 ? between : inside,
           between);
}

/* ---- random layouts on random clusters ---- */

/* Draws a layout of 2 to 32 ranks. Returns false if it breaks a rule. */
static bool random_job(uint64_t seed, priced *p) {
    static const ndp_axis axes[] = {NDP_PP, NDP_DP_REPLICATE, NDP_DP_SHARD, NDP_CP, NDP_SP, NDP_TP};
    static const char *const recompute[] = {"none", "block"};
    static const char *const schedules[] = {"1f1b", "interleaved", "zero_bubble", "gpipe"};
    int world = 1, schedule = (int)ndp_rng_below(seed, 2, 0, 4);
    p->config = JOB(NULL);
    for (int k = 0; k < NDP_COUNT(axes); k++) {
        int size = ndp_rng_below(seed, 1, (uint64_t)k, 2) ? 1 : 1 + (int)ndp_rng_below(seed, 1, (uint64_t)k + 8, 4);
        world *= size;
        CHECK_OK(ndp_config_setf(p->config, "parallelism.%s_size=%d", ndp_axis_name(axes[k]), size));
    }
    CHECK_OK(ndp_config_setf(p->config, "train.device=%s", seed % 8 ? "cuda" : "cpu"));
    CHECK_OK(ndp_config_setf(p->config, "train.recompute=%s", recompute[seed % 2]));
    CHECK_OK(ndp_config_setf(p->config, "precision.compute=%s", seed % 3 ? "bf16" : "fp32"));
    CHECK_OK(ndp_config_setf(p->config, "pipeline.schedule=%s", schedules[schedule]));
    CHECK_OK(ndp_config_setf(p->config, "pipeline.virtual_stages=%d", schedule == 1 ? 2 : 1));
    CHECK_OK(ndp_config_setf(p->config, "parallelism.reshard_after_forward=%s", seed % 5 ? "true" : "false"));
    bool legal = world > 1 && world <= 32 && ndp_job_init_planned(p->config, 0, true, &p->job) == NDP_OK;
    if (!legal)
        ndp_config_destroy(p->config);
    return legal;
}

/* Between 0.1 and 10 times as much, all exponents alike. */
static double about(double x, uint64_t seed, uint64_t nth) {
    return x * pow(10, (double)ndp_rng_below(seed, 3, nth, 2001) / 1000 - 1);
}

/* Nodes of a random size, whose links and NICs are random. */
static void random_cluster(uint64_t seed, priced *p) {
    static const char *const devices[] = {"h100-sxm", "a100-sxm-80", "mi300x", "cpu"};
    static const int sizes[] = {1, 2, 4, 8};
    int each = sizes[ndp_rng_below(seed, 4, 0, 4)];
    char text[64];
    snprintf(text, sizeof text, "%dx%d:%s", (p->job.world + each - 1) / each, each,
             devices[seed % 8 ? ndp_rng_below(seed, 4, 1, 3) : 3]);
    priced_open(p, text);
    ndp_cluster *c = &p->links.cluster;
    c->links.bandwidth = about(50e9, seed, 0), c->nics.bandwidth = about(10e9, seed, 1);
    c->links.latency = about(2e-6, seed, 2), c->nics.latency = about(5e-6, seed, 3);
    c->nics.count = 1 + (int)ndp_rng_below(seed, 4, 2, 8);
    c->links.shape = (int)ndp_rng_below(seed, 4, 3, NDP_LINK_SHAPES_BUILT);
}

static ndp_step_time time_of(priced *p, const priced_programs *programs) {
    ndp_step_time t;
    priced_forget(p);
    CHECK_OK(ndp_step_time_of_programs(programs->items, programs->n, programs->alike, &p->price, &t));
    return t;
}

/* All iterations, with the links as they are or as if each operation had its own. */
static double replayed(priced *p, const priced_programs *programs, bool links, double beside) {
    ndp_simulation s;
    const ndp_step_costs costs = {.seconds = ndp_device_seconds,
                                  .user = &p->price,
                                  .background = p->price.gpu,
                                  .links = links ? ndp_device_links : NULL,
                                  .beside = beside};
    CHECK_OK(ndp_simulate(programs->items, programs->n, &costs, &s));
    double seconds = s.makespan;
    ndp_simulation_release(&s);
    return seconds;
}

static void check_sum(const ndp_step_time *t) {
    double sum = 0;
    for (int k = 0; k < NDP_TIME_PARTS; k++) {
        if (!(t->parts[k] >= 0))
            fail_msg("%s is %g s", ndp_time_part_name(k), t->parts[k]);
        sum += t->parts[k];
    }
    is("the sum of all parts", sum, t->seconds, t->seconds);
}

/* Channels that use each level of links; true if some level has two. */
static bool shares_links(const priced *p, const priced_programs *programs) {
    for (int i = 0; i < programs->n; i++) {
        ndp_comm_event e;
        const ndp_program *program = programs->items[i];
        int user[NDP_LINK_LEVELS];
        for (int l = 0; l < NDP_LINK_LEVELS; l++)
            user[l] = NDP_NONE;
        for (ndp_comm_event_cursor c = NDP_COMM_EVENTS(NDP_FIRST_ITERATIONS(1));
             ndp_program_comm_event(program, &c, &e);) {
            const ndp_group_links *links = ndp_priced_links(&p->price, &program->opts.step.mesh, e.call);
            for (int l = 0; links && l < links->n; l++) {
                int *of = &user[links->of[l].level], channel = ndp_comm_event_channel(&e);
                if (*of != NDP_NONE && *of != channel)
                    return true;
                *of = channel;
            }
        }
    }
    return false;
}

typedef struct tally {
    int cases, waiting, shared, slower;
    double worst;
} tally;

static void check_rates(priced *p, const priced_programs *programs, const ndp_step_time *t, uint64_t seed, tally *n) {
    ndp_cluster *c = &p->links.cluster;
    bool shared = shares_links(p, programs);
    n->shared += shared;
    for (int k = 0; k < 2; k++) {
        double *rate = k ? &c->nics.bandwidth : &c->links.bandwidth;
        *rate *= 2;
        double slower = time_of(p, programs).seconds / t->seconds - 1;
        *rate /= 2;
        if (slower > 1e-12 && !shared)
            fail_msg("case %llu: with twice the rate of level %d a step takes %.3g%% longer", (unsigned long long)seed,
                     k, 100 * slower);
        n->slower += slower > 1e-12;
        n->worst = fmax(n->worst, slower);
    }
}

static void check_job(priced *p, uint64_t seed, tally *n) {
    priced_programs folded = priced_build(p, NDP_FOLD_ALWAYS);
    ndp_step_time t = time_of(p, &folded);
    double fixed = p->price.facts->fixed, beside = p->price.facts->beside;
    check_sum(&t);
    is("all iterations", replayed(p, &folded, true, beside) + fixed, t.seconds, t.seconds);
    double shared = replayed(p, &folded, true, 0), own = replayed(p, &folded, false, 0);
    n->waiting += shared > own * (1 + 1e-9);
    if (shared < own * (1 - 1e-12))
        fail_msg("case %llu: %.12g s on shared links, %.12g on links of their own", (unsigned long long)seed, shared,
                 own);
    check_rates(p, &folded, &t, seed, n);
    priced_release(&folded);
    priced_programs listed = priced_build(p, NDP_FOLD_NEVER);
    ndp_step_time all = time_of(p, &listed);
    for (int k = 0; k < NDP_TIME_PARTS; k++)
        is(ndp_time_part_name(k), t.parts[k], all.parts[k], all.seconds);
    is("flops", t.flops, all.flops, all.flops);
    for (int k = 0; k < NDP_GROUPS * NDP_COLLECTIVES; k++) {
        const ndp_step_comm *a = &t.comms[k / NDP_COLLECTIVES][k % NDP_COLLECTIVES];
        const ndp_step_comm *b = &all.comms[k / NDP_COLLECTIVES][k % NDP_COLLECTIVES];
        is("bytes", a->bytes, b->bytes, b->bytes);
        is("seconds", a->seconds, b->seconds, all.seconds);
        is("exposed", a->exposed, b->exposed, all.seconds);
    }
    priced_release(&listed);
    n->cases++;
}

static void random_steps(void **state) {
    (void)state;
    tally n = {0};
    for (uint64_t seed = 0; n.cases < short_or_all(60, 500); seed++) {
        priced p = {0};
        if (!random_job(seed, &p))
            continue;
        random_cluster(seed, &p);
        check_job(&p, seed, &n);
        priced_close(&p);
    }
    print_message(
        "  %d steps, of which %d wait for links; groups share links in %d; a rate is doubled in %d, which makes "
        "%d slower, by %.3g%% at most\n",
        n.cases, n.waiting, n.shared, 2 * n.cases, n.slower, 100 * n.worst);
    assert_true(n.waiting > 0 && n.shared < n.cases);
    assert_true(n.worst < 0.01);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bubbles_are_those_of_theory), cmocka_unit_test(rings_take_latency_and_rate),
        cmocka_unit_test(messages_cost_both_sides_alike), cmocka_unit_test(random_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
