/* Links in the simulation: operations of several channels that share a link take turns, messages share it, and what is
 * begun early enough is hidden. The programs are written for the case. */
#include "base/rng.h"
#include "check.h"
#include "step/simulate.h"

#include <math.h>

enum { MOST_INSTRS = 160, MOST_WRITTEN = 4, LINK = 1 };

/* The program of one rank. Of a call, `flops` are its seconds and `bytes` those that it keeps the link busy. */
typedef struct written {
    ndp_program p;
    ndp_instr instrs[MOST_INSTRS];
} written;

/* A unit's list, which all ranks run: kernels, and sums over tp. */
enum { LISTED = 6 };
static ndp_call listed[LISTED];
static ndp_unit_program unit_program = {.lists[NDP_FORWARD] = {.calls = listed, .n = LISTED}};
static ndp_unit unit = {.graph = 0};
static ndp_model unit_model = {.units = &unit, .n_units = 1, .n_graphs = 1};

static ndp_operand operand = {.view = {.rows = 1, .cols = 1, .dtype = NDP_F32}};

static double cost_of(const void *user, const ndp_program *p, const ndp_instr *in, const ndp_call *c) {
    return (void)user, (void)p, (void)in, c->flops;
}
static void link_of(const void *user, const ndp_program *p, const ndp_call *c, double busy[NDP_BUSY_LINKS]) {
    (void)user, (void)p;
    busy[LINK] = c->bytes;
}

static void start(written *w, ndp_layout l, int rank) {
    *w = (written){.p = {.instrs = w->instrs, .opts = {.model = &unit_model, .units = &unit_program}}};
    CHECK_OK(ndp_mesh_init(&l, rank, &(ndp_mesh_facts){.kv_heads = 1}, &w->p.opts.step.mesh));
}

static ndp_call *add(written *w, ndp_call_kind kind, const ndp_op *op, int channel, double seconds) {
    assert_true(w->p.n < MOST_INSTRS);
    ndp_instr *in = &w->instrs[w->p.n++];
    *in = (ndp_instr){.code = NDP_DO_CALL, .what = "x", .role = NDP_NONE};
    in->call = (ndp_call){.kind = kind,
                          .op = op,
                          .in = &operand,
                          .n_in = 1,
                          .channel = channel,
                          .what = "x",
                          .flops = seconds,
                          .bytes = kind == NDP_CALL_BEGIN ? seconds : 0};
    return &in->call;
}

static void kernel(written *w, double seconds) { add(w, NDP_CALL_KERNEL, &ndp_op_linear, 0, seconds); }
static void begin(written *w, int channel, double seconds) {
    add(w, NDP_CALL_BEGIN, &ndp_op_all_reduce, channel, seconds);
}
static void wait(written *w, int channel) { add(w, NDP_CALL_WAIT, &ndp_op_all_reduce, channel, 0); }
static ndp_call *message(written *w, ndp_call_kind kind, bool send, double seconds) {
    ndp_call *c = add(w, kind, send ? &ndp_op_send : &ndp_op_recv, NDP_CHANNEL_FORWARD, seconds);
    c->attr.peer = send ? 1 : 0;
    c->attr.tag = 1;
    w->instrs[w->p.n - 1].work = send;
    w->p.n_works = 2;
    return c;
}

static void run(written *w) {
    assert_true(w->p.n < MOST_INSTRS);
    w->instrs[w->p.n++] = (ndp_instr){.code = NDP_DO_RUN, .what = "x", .role = NDP_NONE, .phase = NDP_FORWARD};
}

static ndp_simulation simulated(const written *w, int n, bool links, double beside) {
    const ndp_program *programs[MOST_WRITTEN];
    ndp_simulation out;
    ndp_step_costs costs = {.seconds = cost_of, .background = true, .links = links ? link_of : NULL, .beside = beside};
    for (int i = 0; i < n; i++)
        programs[i] = &w[i].p;
    CHECK_OK(ndp_simulate(programs, n, &costs, &out));
    return out;
}

static double makespan(const written *w, int n, bool links, double beside) {
    ndp_simulation s = simulated(w, n, links, beside);
    double seconds = s.makespan;
    ndp_simulation_release(&s);
    return seconds;
}

static void is(double seconds, double wanted) {
    if (!(fabs(seconds - wanted) <= 1e-9))
        fail_msg("%.12g s, expected %.12g", seconds, wanted);
}

static ndp_layout two_by_two(void) {
    ndp_layout l = NDP_LAYOUT_ONE;
    l.size[NDP_DP_SHARD] = l.size[NDP_TP] = 2;
    return l;
}

/* Begun together on one link, the last ends after the sum of what they keep it busy; with a link each, after the longer
 * one. What begins while the link is busy waits for what was begun before it. */
static void two_groups_take_turns(void **state) {
    (void)state;
    static const int channels[] = {NDP_GROUP_TP, NDP_CHANNEL_GATHERS + NDP_GROUP_TP};
    static written w[MOST_WRITTEN];
    ndp_layout l = NDP_LAYOUT_ONE;
    l.size[NDP_TP] = 4;
    for (int swapped = 0; swapped < 2; swapped++) {
        for (int r = 0; r < 4; r++) {
            start(&w[r], l, r);
            begin(&w[r], channels[swapped], 1);
            begin(&w[r], channels[!swapped], 1);
            wait(&w[r], channels[0]);
            wait(&w[r], channels[1]);
        }
        is(makespan(w, 4, true, 0), 2);
        is(makespan(w, 4, false, 0), 1);
        is(makespan(w, 1, true, 0), 2); /* the others are not given */
    }
    for (int r = 0; r < 4; r++) {
        start(&w[r], l, r);
        begin(&w[r], channels[0], 1);
        kernel(&w[r], 0.25);
        begin(&w[r], channels[1], 0.5);
        kernel(&w[r], 0.25);
        begin(&w[r], channels[0], 1);
        wait(&w[r], channels[0]);
        wait(&w[r], channels[1]);
        wait(&w[r], channels[0]);
    }
    ndp_simulation s = simulated(w, 4, true, 0);
    is(s.times[0][5].end, 1);
    is(s.times[0][6].end, 1.5);
    is(s.times[0][7].end, 2.5);
    ndp_simulation_release(&s);
}

enum { NIC = 2 };
/* Sums over the world use NICs, over tp the links of a node, over shards both. */
static void two_links(const void *user, const ndp_program *p, const ndp_call *c, double busy[NDP_BUSY_LINKS]) {
    (void)user, (void)p;
    busy[NIC] = c->channel == NDP_GROUP_TP ? 0 : c->bytes;
    busy[LINK] = c->channel == NDP_GROUP_TP ? c->bytes : c->channel == NDP_GROUP_SHARD ? c->bytes / 2 : 0;
}

/* A sum that waits 2 s for a NIC has its turn on the links of the node for 0.5 s at once: a sum over tp waits for
 * these, and no longer. */
static void each_link_has_its_own_queue(void **state) {
    (void)state;
    static written w[MOST_WRITTEN];
    const ndp_program *programs[4];
    ndp_step_costs costs = {.seconds = cost_of, .background = true, .links = two_links};
    ndp_simulation s;
    for (int early = 0; early < 2; early++) {
        for (int r = 0; r < 4; r++) {
            start(&w[r], two_by_two(), r);
            begin(&w[r], NDP_GROUP_WORLD, 2);
            kernel(&w[r], 0.05);
            begin(&w[r], NDP_GROUP_SHARD, 1);
            kernel(&w[r], early ? 0.25 : 0.6);
            begin(&w[r], NDP_GROUP_TP, 0.25);
            wait(&w[r], NDP_GROUP_TP);
            wait(&w[r], NDP_GROUP_WORLD);
            wait(&w[r], NDP_GROUP_SHARD);
            programs[r] = &w[r].p;
        }
        for (int n = 1; n <= 4; n += 3) { /* the others are not given, or are */
            CHECK_OK(ndp_simulate(programs, n, &costs, &s));
            is(s.times[0][5].end, early ? 0.8 : 0.9);
            is(s.times[0][6].end, 2);
            is(s.times[0][7].end, 3);
            ndp_simulation_release(&s);
        }
    }
}

/* Rank 2's link is free, but that of the rank with which it sums is not. */
static void a_group_waits_for_its_busiest_member(void **state) {
    (void)state;
    static written w[MOST_WRITTEN];
    for (int r = 0; r < 4; r++) {
        start(&w[r], two_by_two(), r);
        if (r < 2) {
            begin(&w[r], NDP_GROUP_TP, 1);
            wait(&w[r], NDP_GROUP_TP);
        }
        kernel(&w[r], r < 2 ? 0 : 0.5);
        begin(&w[r], NDP_GROUP_SHARD, 1);
        wait(&w[r], NDP_GROUP_SHARD);
        begin(&w[r], NDP_GROUP_SHARD, 0.5);
        wait(&w[r], NDP_GROUP_SHARD);
    }
    ndp_simulation s = simulated(w, 4, true, 0);
    is(s.makespan, 2.5);
    is(s.parts[2][NDP_PART_COLLECTIVE], 2);
    ndp_simulation_release(&s);
}

/* What is begun early enough is waited for not at all; kernels beside it are slower as long as it moves. */
static void what_is_begun_early_is_hidden(void **state) {
    (void)state;
    static written w[2];
    ndp_layout l = NDP_LAYOUT_ONE;
    l.size[NDP_TP] = 2;
    for (int r = 0; r < 2; r++) {
        start(&w[r], l, r);
        begin(&w[r], NDP_GROUP_TP, 1);
        kernel(&w[r], 2);
        wait(&w[r], NDP_GROUP_TP);
    }
    ndp_simulation s = simulated(w, 2, true, 0);
    is(s.parts[0][NDP_PART_COLLECTIVE], 0);
    is(s.makespan, 2);
    ndp_simulation_release(&s);
    s = simulated(w, 2, true, 0.25); /* in the second in which it moves, 0.8 s of the kernel pass */
    is(s.parts[0][NDP_PART_COLLECTIVE], 0);
    is(s.makespan, 2.2);
    ndp_simulation_release(&s);
    for (int r = 0; r < 2; r++)
        w[r].instrs[1].call.flops = 0.4;
    is(makespan(w, 2, true, 0.25), 1); /* 0.5 s of a kernel, then a wait */
}

/* Both move at half the rate while they share the link: the message is over after twice its time, the collective as if
 * it were alone, and what comes after both waits for all that was begun. */
static void messages_share_with_collectives(void **state) {
    (void)state;
    enum { TP = 2 };
    static written w[MOST_WRITTEN];
    ndp_layout l = NDP_LAYOUT_ONE;
    l.size[NDP_PP] = l.size[NDP_TP] = TP;
    for (int r = 0; r < 4; r++) {
        start(&w[r], l, r);
        if (r < TP) {
            begin(&w[r], NDP_GROUP_TP, 1);
            message(&w[r], NDP_CALL_BEGIN, true, 0.25);
            kernel(&w[r], 0.1);
            begin(&w[r], NDP_CHANNEL_GATHERS + NDP_GROUP_TP, 1);
            message(&w[r], NDP_CALL_WAIT, true, 0.25);
            wait(&w[r], NDP_GROUP_TP);
            wait(&w[r], NDP_CHANNEL_GATHERS + NDP_GROUP_TP);
        } else {
            message(&w[r], NDP_CALL_BEGIN, false, 0.25);
            message(&w[r], NDP_CALL_WAIT, false, 0.25);
        }
    }
    ndp_simulation s = simulated(w, 4, true, 0);
    is(s.times[0][4].end, 0.5);
    is(s.times[TP][1].end, 0.5);
    is(s.times[0][5].end, 1);
    is(s.times[0][6].end, 2.25);
    ndp_simulation_release(&s);
    s = simulated(w, 4, false, 0);
    is(s.times[TP][1].end, 0.25);
    is(s.times[0][6].end, 1.1);
    ndp_simulation_release(&s);
}

/* ---- random programs ---- */

/* Collectives over three groups, each waited for at once or later, and kernels of other lengths on each rank. With
 * `alone` all are of one group. */
static void write_random(written *w, uint64_t seed, bool alone) {
    static const int channels[] = {NDP_GROUP_TP, NDP_GROUP_SHARD, NDP_GROUP_WORLD};
    enum { OPERATIONS = 24 };
    for (int r = 0; r < 4; r++) {
        int pending[NDP_COUNT(channels)] = {0};
        start(&w[r], two_by_two(), r);
        for (uint64_t i = 0; i < OPERATIONS; i++) {
            int k = alone ? 0 : (int)ndp_rng_below(seed, 1, i, NDP_COUNT(channels));
            kernel(&w[r], (double)ndp_rng_below(seed, 2 + (uint64_t)r, i, 100) / 100);
            if (pending[k] < 2 && ndp_rng_below(seed, 7, i, 3))
                begin(&w[r], channels[k], (double)ndp_rng_below(seed, 8, i, 100) / 100), pending[k]++;
            else if (pending[k])
                wait(&w[r], channels[k]), pending[k]--;
        }
        for (int k = 0; k < NDP_COUNT(channels); k++)
            for (; pending[k] > 0; pending[k]--)
                wait(&w[r], channels[k]);
    }
}

static void change_rate(written *w, double times) {
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < w[r].p.n; i++)
            if (w[r].instrs[i].call.kind == NDP_CALL_BEGIN) {
                w[r].instrs[i].call.flops /= times;
                w[r].instrs[i].call.bytes /= times;
            }
}

/* Shared links make no step faster, and faster links none slower, but where groups change their turns: those cases are
 * counted. */
static void shared_links_take_longer(void **state) {
    (void)state;
    enum { CASES = 2000 };
    static written w[MOST_WRITTEN];
    int slower = 0;
    double worst = 0, longer = 0;
    for (uint64_t i = 0; i < CASES; i++) {
        bool alone = i % 4 == 0;
        write_random(w, i, alone);
        double shared = makespan(w, 4, true, 0), own = makespan(w, 4, false, 0);
        if (shared < own - 1e-12)
            fail_msg("case %llu: %.12g s on a shared link, %.12g on links of their own", (unsigned long long)i, shared,
                     own);
        assert_true(!alone || fabs(shared - own) < 1e-12);
        longer += shared > own + 1e-12;
        change_rate(w, 2);
        double twice = makespan(w, 4, true, 0);
        assert_true(makespan(w, 4, false, 0) <= own + 1e-12);
        assert_true(!alone || twice <= shared + 1e-12);
        slower += twice > shared + 1e-12;
        worst = fmax(worst, twice / shared - 1);
    }
    print_message("  %.0f of %d steps wait for a link; with twice its rate %d are slower, by %.2g%% at most\n", longer,
                  CASES, slower, 100 * worst);
    assert_true(longer > CASES / 4);
    assert_true(worst < 0.01);
}

/* ---- lists that are run at once ---- */

/* Stages of a pipeline that send at any time, with sums over tp, of which one rank is given, and over the world. */
static void write_stages(written *w, uint64_t seed) {
    enum { STAGES = 3, ACTIONS = 10 };
    ndp_layout l = NDP_LAYOUT_ONE;
    l.size[NDP_PP] = STAGES, l.size[NDP_TP] = 2;
    for (int r = 0; r < STAGES; r++) {
        start(&w[r], l, 2 * r);
        for (uint64_t i = 0; i < ACTIONS; i++) {
            double seconds = (double)ndp_rng_below(seed, 1, i, 300) / 100;
            bool sends = r<STAGES - 1, receives = r> 0, sums = ndp_rng_below(seed, 2, i, 3) == 0;
            ndp_call *c = receives ? message(&w[r], NDP_CALL_BEGIN, false, seconds) : NULL;
            if (c)
                c->attr.peer = r - 1;
            for (uint64_t k = ndp_rng_below(seed, 3 + (uint64_t)r, i, 3); k > 0; k--)
                run(&w[r]);
            kernel(&w[r], (double)ndp_rng_below(seed, 6 + (uint64_t)r, i, 50) / 100);
            c = sends ? message(&w[r], NDP_CALL_BEGIN, true, seconds) : NULL;
            if (c)
                c->attr.peer = r + 1;
            if (sums)
                begin(&w[r], NDP_GROUP_WORLD, seconds);
            run(&w[r]);
            if (receives)
                message(&w[r], NDP_CALL_WAIT, false, seconds)->attr.peer = r - 1;
            if (sends)
                message(&w[r], NDP_CALL_WAIT, true, seconds)->attr.peer = r + 1;
            if (sums)
                wait(&w[r], NDP_GROUP_WORLD);
        }
    }
}

static void write_list(uint64_t seed) {
    static const ndp_call_kind kinds[LISTED] = {NDP_CALL_KERNEL, NDP_CALL_BEGIN,  NDP_CALL_KERNEL,
                                                NDP_CALL_WAIT,   NDP_CALL_KERNEL, NDP_CALL_KERNEL};
    static written w;
    ndp_layout one = NDP_LAYOUT_ONE;
    start(&w, one, 0);
    for (uint64_t i = 0; i < LISTED; i++) {
        double seconds = (1 + (double)ndp_rng_below(seed, 0, i, 20)) / 100;
        bool sum = kinds[i] != NDP_CALL_KERNEL;
        listed[i] = *add(&w, kinds[i], sum ? &ndp_op_all_reduce : &ndp_op_linear, sum ? NDP_GROUP_TP : 0, seconds);
    }
}

static void add_spent(void *into, int i, const ndp_instr *in, const ndp_call *c, double seconds, int64_t times) {
    double(*spent)[NDP_PARTS] = into;
    (void)times;
    spent[i][!in                        ? NDP_PART_IDLE
             : c->kind == NDP_CALL_WAIT ? NDP_PART_COLLECTIVE
             : in->code == NDP_DO_RUN   ? NDP_PART_FORWARD
                                        : NDP_PART_UPDATE] += seconds;
}

/* The times of a step in which lists are run at once are those of one in which each call has its turn. */
static void lists_at_once_take_as_long(void **state) {
    (void)state;
    static written w[MOST_WRITTEN];
    for (uint64_t i = 0; i < 2000; i++) {
        double spent[3][NDP_PARTS] = {{0}};
        write_list(i);
        write_stages(w, i);
        ndp_simulation s = simulated(w, 3, true, 0.5), at_once;
        const ndp_program *programs[] = {&w[0].p, &w[1].p, &w[2].p};
        const ndp_step_costs costs = {
            .seconds = cost_of, .background = true, .links = link_of, .beside = 0.5, .spent = add_spent, .into = spent};
        CHECK_OK(ndp_simulate(programs, 3, &costs, &at_once));
        is(at_once.makespan, s.makespan);
        for (int r = 0; r < 3; r++) {
            const double *parts = s.parts[r];
            is(spent[r][NDP_PART_FORWARD], parts[NDP_PART_FORWARD]);
            is(spent[r][NDP_PART_UPDATE], parts[NDP_PART_UPDATE]);
            is(spent[r][NDP_PART_COLLECTIVE],
               parts[NDP_PART_COLLECTIVE] + parts[NDP_PART_SEND] + parts[NDP_PART_RECEIVE]);
            is(spent[r][NDP_PART_IDLE], parts[NDP_PART_IDLE]);
        }
        ndp_simulation_release(&at_once);
        ndp_simulation_release(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(two_groups_take_turns),
                                       cmocka_unit_test(each_link_has_its_own_queue),
                                       cmocka_unit_test(a_group_waits_for_its_busiest_member),
                                       cmocka_unit_test(what_is_begun_early_is_hidden),
                                       cmocka_unit_test(messages_share_with_collectives),
                                       cmocka_unit_test(shared_links_take_longer),
                                       cmocka_unit_test(lists_at_once_take_as_long)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
