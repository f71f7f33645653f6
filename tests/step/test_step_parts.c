/* The simulation of generated layouts and pipelines: its parts sum to the step, and are those of naive_simulation.h.
 * Measured parts sum to the step too, and have the waits inside units. */
#include "step/naive_simulation.h"
#include "step/pipelines.h"
#include "step/timeline.h"

#include <math.h>

enum { TABLES = 240, FIRST_TABLE = 1200, MICRO_BATCHES = 4, ROWS = 24 };

/* ---- prices that differ from call to call: whole numbers, so that both simulations make the same sums ---- */

static double kernel_seconds(const void *user, const ndp_call *c) {
    (void)user;
    return 1 + (double)((c->op->id + (int64_t)c->bytes / 4) % 13);
}

/* Some messages take longer than the actions between a send and its wait. */
static double comm_seconds(const void *user, const ndp_call *c, const ndp_group *group) {
    (void)user;
    double seconds = 2 + (double)(((int64_t)c->bytes / 4 + group->count) % 29);
    return group->count == 1 ? 0 : is_message(c) && c->attr.tag % 3 == 0 ? 20 * seconds : seconds;
}

static const ndp_price price = {kernel_seconds, comm_seconds, NULL};

/* ---- layouts and pipelines ---- */

/* A world: the axes, a pipeline unless it has one stage, and switches. */
typedef struct job {
    int size[NDP_AXES];
    ndp_pipeline_kind kind;
    bool reshard, recompute, every_micro_batch, one_node;
    int seed; /* of a random table */
} job;

static void build(pipeline_setup *s, const job *j) {
    ndp_facts f = tiny_facts(true);
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    bool one = j->size[NDP_PP] == 1;
    *s =
        (pipeline_setup){.table = {.ranks = 1, .stages = 1, .micro_batches = MICRO_BATCHES}, .recompute = j->recompute};
    if (!one)
        CHECK_OK(
            ndp_pipeline_make(j->kind, j->size[NDP_PP], ndp_pipeline_table[j->kind].fewest, MICRO_BATCHES, &s->table));
    f.layers = one ? 2 : s->table.stages;
    CHECK_OK(ndp_decoder_build(&f, &mo, &s->model));
    pipeline_cut(s);
    pipeline_take(s, 1.0);
    memcpy(s->layout.size, j->size, sizeof j->size);
    if (one)
        s->opts.pipeline = NULL, s->opts.step.stages = (ndp_stages){0};
    s->opts.step.reshard = j->reshard;
    s->opts.step.reduce_once = !j->every_micro_batch;
    s->opts.step.node_ranks = j->one_node ? pipeline_world(s) : 1;
    pipeline_engines(s);
}

static void fail_at(const job *j, int rank, const char *what, double found, double expected) {
    ndp_layout l = NDP_LAYOUT_ONE;
    char text[160];
    memcpy(l.size, j->size, sizeof j->size);
    fail_msg("%s, %s, reshard %d recompute %d every micro-batch %d one node %d, seed %d, rank %d: %s %.12g, not %.12g",
             ndp_layout_text(&l, text, sizeof text), ndp_pipeline_table[j->kind].name, j->reshard, j->recompute,
             j->every_micro_batch, j->one_node, j->seed, rank, what, found, expected);
}

#define NAME_OF(PART, name, ...) name,
static const char *const names[] = {NDP_PARTS_LIST(NAME_OF)};

static void check_sums(const job *j, const ndp_simulation *t) {
    for (int i = 0; i < t->n; i++) {
        double sum = 0;
        for (int k = 0; k < NDP_PARTS; k++) {
            sum += t->parts[i][k];
            if (!(t->parts[i][k] >= 0))
                fail_at(j, i, names[k], t->parts[i][k], 0);
        }
        if (!(fabs(sum / t->makespan - 1) <= 1e-9))
            fail_at(j, i, "the parts sum to", sum, t->makespan);
    }
}

/* Compares the parts of both simulations, and adds them to `seen`. */
static void check_programs(const pipeline_setup *s, const job *j, naive *n, double seen[NDP_PARTS]) {
    for (int background = 0; background < 2; background++) {
        const ndp_step_costs costs = {.seconds = ndp_price_seconds, .user = &price, .background = background};
        ndp_simulation t;
        naive_run(n, s->programs, pipeline_world(s), background, &price);
        CHECK_OK(ndp_simulate(s->programs, n->n_ranks, &costs, &t));
        check_sums(j, &t);
        for (int i = 0; i < t.n; i++)
            for (int k = 0; k < NDP_PARTS; k++) {
                double expected = n->ranks[i].parts[k];
                seen[k] += expected;
                if (fabs(t.parts[i][k] - expected) > 1e-9 * t.makespan)
                    fail_at(j, i, names[k], t.parts[i][k], expected);
            }
        ndp_simulation_release(&t);
    }
}

/* Of each axis one or two ranks, of those beside a pipeline at most two axes; every schedule. */
static void parts_are_those_of_the_rules(void **state) {
    (void)state;
    naive *n = malloc(sizeof *n);
    double seen[NDP_PARTS] = {0};
    int worlds = 0;
    for (int axes = 0; axes < 1 << NDP_AXES; axes++)
        for (int switches = 0; switches < 16; switches++) {
            job j = {.reshard = switches & 1,
                     .recompute = switches & 2,
                     .every_micro_batch = switches & 4,
                     .one_node = switches & 8};
            int product = 1;
            for (int a = 0; a < NDP_AXES; a++)
                product *= j.size[a] = axes >> a & 1 ? 2 : 1;
            if (product > 8 || (product == 8 && switches % 5))
                continue;
            for (int kind = 0; kind < (j.size[NDP_PP] > 1 ? NDP_PIPELINE_FILE : 1); kind++, worlds++) {
                j.kind = (ndp_pipeline_kind)kind;
                pipeline_setup s;
                build(&s, &j);
                check_programs(&s, &j, n, seen);
                pipeline_end(&s);
            }
        }
    printf("  %d worlds\n", worlds);
    for (int k = 0; k < NDP_PARTS; k++)
        assert_true(seen[k] > 0); /* every part was met */
    free(n);
}

/* ---- tables in no order ---- */

static int below(uint64_t *state, int n) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)(*state >> 33) % n;
}

/* Rows of `ranks` stages with forwards, input and weight gradients in a random order of all that is possible. */
static void random_table(uint64_t seed, int ranks, ndp_str *out) {
    ndp_str rows[4] = {{0}};
    int done[4][MICRO_BATCHES] = {{0}}; /* actions: forward, input gradient, weight gradient */
    for (int left = 3 * ranks * MICRO_BATCHES; left > 0;) {
        int r = below(&seed, ranks), m = below(&seed, MICRO_BATCHES), at = done[r][m];
        bool can = at == 0 ? r == 0 || done[r - 1][m] > 0 : at == 1 ? r == ranks - 1 || done[r + 1][m] > 1 : at == 2;
        if (!can)
            continue;
        ndp_str_addf(&rows[r], "%s%d%c%d", rows[r].length ? "," : "", r, "FIW"[at], m);
        done[r][m]++;
        left--;
    }
    for (int r = 0; r < ranks; r++) {
        ndp_str_addf(out, "%s\n", rows[r].data);
        ndp_str_release(&rows[r]);
    }
}

/* Moves instruction `from` to place `to` before it. */
static void move_up(ndp_program *p, int from, int to) {
    const ndp_instr moved = p->instrs[from];
    memmove(&p->instrs[to + 1], &p->instrs[to], (size_t)(from - to) * sizeof moved);
    p->instrs[to] = moved;
    for (int i = 0; i < p->n; i++) {
        int *partner = &p->instrs[i].call.partner;
        if (p->instrs[i].code == NDP_DO_CALL && *partner >= to && *partner <= from)
            *partner = *partner == from ? to : *partner + 1;
    }
}

/* Half of the sends are waited for as soon as they have begun, long before they are received. */
static void hasten_waits(ndp_program *p, uint64_t *seed) {
    for (int i = 0; i < p->n; i++)
        if (ndp_instr_is(&p->instrs[i], NDP_CALL_WAIT) && ndp_step_part_of(&p->instrs[i]) == NDP_PART_SEND &&
            below(seed, 2))
            move_up(p, i, p->instrs[i].call.partner + 1);
}

/* Such programs wait for sends that are received much later, several ranks at once; in table 1567 it matters which of
 * the copies that are possible is the earliest. Those that deadlock are left out. */
static void parts_of_random_tables_are_those_of_the_rules(void **state) {
    (void)state;
    naive *n = malloc(sizeof *n);
    double seen[NDP_PARTS] = {0};
    int hastened = 0;
    for (int seed = FIRST_TABLE; seed < FIRST_TABLE + TABLES; seed++) {
        uint64_t state_of_waits = (uint64_t)seed;
        ndp_str text = {0};
        pipeline_setup s = {0};
        const int ranks = 3 + seed % 2;
        const job j = {.size = {ranks, 1, 1, 1, 1, 1}, .kind = NDP_PIPELINE_FILE, .seed = seed};
        random_table((uint64_t)seed, ranks, &text);
        CHECK_OK(ndp_pipeline_parse(text.data, text.length, "table", MICRO_BATCHES, &s.table));
        pipeline_build(&s, ROWS, 1.0);
        check_programs(&s, &j, n, seen);
        for (int i = 0; i < ranks; i++)
            hasten_waits((ndp_program *)s.programs[i], &state_of_waits);
        if (ndp_program_check(s.programs, ranks) == NDP_OK)
            check_programs(&s, &j, n, seen), hastened++;
        pipeline_end(&s);
        ndp_str_release(&text);
    }
    printf("  %d tables, %d with hastened waits\n", TABLES, hastened);
    assert_true(hastened > TABLES / 4);
    free(n);
}

/* ---- measured ---- */

/* The timeline of all ranks, by a clock that starts at a barrier: every event is in the time of its rank. */
static ndp_status check_gathered(const ndp_engine *e, const ndp_instr_time *times, int64_t n, ndp_comm *world) {
    ndp_timeline line = {0};
    int outside = 0;
    NDP_TRY(ndp_timeline_add(&line, ndp_engine_program(e), times, n));
    NDP_TRY(ndp_timeline_gather(&line, world, false));
    for (int i = 0; i < line.n; i++) {
        const ndp_rank_time r = ndp_timeline_rank(&line, line.events[i].rank);
        outside += line.events[i].start < r.first || line.events[i].end > r.last || r.rank != line.events[i].rank;
    }
    int ranks = line.n_ranks, events = line.n;
    ndp_timeline_release(&line);
    NDP_CHECK(outside == 0 && events > 0 && ranks == ndp_comm_size(world), "%d of %d events outside", outside, events);
    return NDP_OK;
}

/* The calls and bytes of each collective against the sequence of all of them, and the times against their sum. */
static ndp_status check_calls(const ndp_engine *e) {
    const ndp_program *p = ndp_engine_program(e);
    const ndp_profile *profile = ndp_engine_profile(e);
    double calls[NDP_OP_COUNT], moved[NDP_OP_COUNT], flight = 0;
    ndp_comm_event m;
    ndp_program_calls(p, calls, moved);
    for (ndp_comm_event_cursor c = NDP_COMM_EVENTS(NDP_ALL_ITERATIONS); ndp_program_comm_event(p, &c, &m);)
        calls[m.call->op->id] -= m.begin, moved[m.call->op->id] -= m.begin ? ndp_comm_event_moved(p, &m) : 0;
    for (int i = 0; i < NDP_OP_COUNT; i++) {
        bool collective = ndp_op_kinds[i] == NDP_KIND_COLLECTIVE;
        NDP_CHECK(!collective || (calls[i] == 0 && moved[i] == 0), "%s: %g calls and %g bytes too many",
                  ndp_all_ops[i]->name, calls[i], moved[i]);
        NDP_CHECK(collective || profile->flight[i] == 0, "%s is under way", ndp_all_ops[i]->name);
        flight += profile->flight[i];
    }
    NDP_CHECK(flight > 0 && fabs(flight / profile->under_way - 1) < 1e-9, "%g of %g under way", flight,
              profile->under_way);
    return NDP_OK;
}

/* One step of a rank of tp: what is recorded of its instructions against the profile. */
static ndp_status measured_rank(ndp_transport *t, void *arg) {
    const pipeline_setup *s = arg;
    const ndp_exec exec = {.device = &ndp_device_cpu, .threads = 1};
    ndp_engine_opts o = pipeline_opts(s, ndp_transport_rank(t));
    ndp_engine *e;
    ndp_comm *world;
    ndp_step_result result;
    double seconds[NDP_PARTS], waited = 0, sum = 0, least = INFINITY;
    int64_t n;
    o.transport = t;
    o.step.exec = &exec;
    NDP_TRY(ndp_engine_create(&o, &e));
    for (int i = 0; i < MICRO_BATCHES; i++)
        tiny_batch(e, i, i);
    NDP_TRY(ndp_engine_record(e));
    NDP_TRY(ndp_engine_step(e, 1e-3, 0, true, &result));
    const ndp_instr_time *times = ndp_engine_recorded(e, &n);
    double step = times[n - 1].end - times[0].start, in_units = ndp_engine_profile(e)->in_units;
    ndp_step_parts(ndp_engine_program(e), times, n, seconds);
    for (int64_t i = 0; i < n; i++)
        waited += times[i].waited;
    for (int k = 0; k < NDP_PARTS; k++)
        sum += seconds[k], least = fmin(least, seconds[k]);
    NDP_TRY(ndp_comm_create(t, (ndp_group){0, 1, 2, ndp_transport_rank(t)}, "test", &world));
    NDP_TRY(check_gathered(e, times, n, world));
    NDP_TRY(check_calls(e));
    ndp_comm_destroy(world);
    ndp_engine_destroy(e);
    NDP_CHECK(fabs(sum / step - 1) <= 1e-9 && least >= 0, "parts sum to %g of %g, the least is %g", sum, step, least);
    NDP_CHECK(waited > 0 && fabs(waited / in_units - 1) <= 1e-9, "%g of %g in waits of units", waited, in_units);
    NDP_CHECK(seconds[NDP_PART_COLLECTIVE] >= waited, "%g in collectives", seconds[NDP_PART_COLLECTIVE]);
    for (int k = 0; k <= NDP_PART_UPDATE; k++)
        NDP_CHECK(k == NDP_PART_RECOMPUTE || seconds[k] > 0, "no %s", names[k]);
    return NDP_OK;
}

static void measured_parts_have_the_waits_of_units(void **state) {
    (void)state;
    const job j = {.size = {1, 1, 1, 1, 1, 2}, .one_node = true};
    pipeline_setup s;
    build(&s, &j);
    CHECK_OK(ndp_local_world(2, measured_rank, &s));
    pipeline_end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_are_those_of_the_rules),
                                       cmocka_unit_test(parts_of_random_tables_are_those_of_the_rules),
                                       cmocka_unit_test(measured_parts_have_the_waits_of_units)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
