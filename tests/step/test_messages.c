/* Messages between the stages of a pipeline: small programs as text (tests/step/golden), and what the checkers say of
 * programs that do not fit together, each with a fault put into it on purpose. */
#include "step/program_text.h"
#include "step/stages.h"

/* ---- programs as text ---- */

static void check_text(const char *name, const staged_way *w) {
    staged s;
    ndp_str text = {0};
    staged_plan(&s, w, NULL);
    for (int r = 0; r < s.ranks; r += w->shard) /* those beside it have the same list */
        ndp_program_print(s.programs[r], false, &text);
    CHECK_OK(ndp_program_check(s.programs, s.ranks));
    drop_addresses(&text);
    char *path = ndp_format("step/golden/%s.txt", name);
    check_golden(path, &text);
    free(path);
    staged_release(&s);
}

/* Two forwards ahead on rank 0; receives begin an entry ahead, the second next send waits for a send; the tied table's
 * gradients are summed. */
static void as_1f1b(void **state) {
    (void)state;
    check_text(
        "pp_1f1b",
        &(staged_way){.kind = NDP_PIPELINE_1F1B, .pp = 2, .chunks = 1, .shard = 1, .micro_batches = 3, .tied = true});
}

/* Weight gradients apart; the reduction of a gradient waits for the last of them. */
static void as_zero_bubble(void **state) {
    (void)state;
    check_text("pp_zero_bubble",
               &(staged_way){.kind = NDP_PIPELINE_ZERO_BUBBLE, .pp = 2, .chunks = 1, .shard = 2, .micro_batches = 3});
}

/* Stages in a V: between the two of rank 1 nothing is sent. */
static void as_zbv(void **state) {
    (void)state;
    check_text(
        "pp_zbv",
        &(staged_way){.kind = NDP_PIPELINE_ZBV, .pp = 2, .chunks = 2, .shard = 1, .micro_batches = 2, .tied = true});
}

/* ---- programs that do not fit ---- */

static const staged_way small = {
    .kind = NDP_PIPELINE_1F1B, .pp = 2, .chunks = 1, .shard = 1, .micro_batches = 3, .tied = true};

/* The begin of a message of a rank, the n-th of its kind and direction. */
static ndp_instr *message(const staged *s, int rank, const ndp_op *op, int channel, int n) {
    ndp_program *p = (ndp_program *)s->programs[rank];
    for (int i = 0; i < p->n; i++) {
        ndp_instr *in = &p->instrs[i];
        if (ndp_instr_is(in, NDP_CALL_BEGIN) && in->call.op == op && in->call.channel == channel && n-- == 0)
            return in;
    }
    fail_msg("rank %d has no such message", rank);
    return NULL;
}

static ndp_instr *wait_of(const staged *s, int rank, const ndp_instr *begin) {
    return &((ndp_program *)s->programs[rank])->instrs[begin->call.partner];
}

/* An instruction that is not a communication: the first kernel of the program. */
static ndp_instr a_kernel(const staged *s, int rank) {
    const ndp_instr *in = s->programs[rank]->instrs;
    while (!ndp_instr_is(in, NDP_CALL_KERNEL))
        in++;
    return *in;
}

static void drop(staged *s, int rank, ndp_instr *begin) {
    *wait_of(s, rank, begin) = a_kernel(s, rank);
    *begin = a_kernel(s, rank);
}

static void lose_receive(staged *s) { drop(s, 1, message(s, 1, &ndp_op_recv, NDP_CHANNEL_FORWARD, 1)); }
static void lose_send(staged *s) { drop(s, 1, message(s, 1, &ndp_op_send, NDP_CHANNEL_BACKWARD, 2)); }

static void shorten(staged *s) {
    ndp_instr *in = message(s, 1, &ndp_op_recv, NDP_CHANNEL_FORWARD, 1);
    in->call.in[0].view.cols = in->call.out[0].view.cols -= 1;
}

static void renumber(staged *s) {
    ndp_instr *in = message(s, 1, &ndp_op_recv, NDP_CHANNEL_FORWARD, 1);
    wait_of(s, 1, in)->micro_batch = in->micro_batch = 2;
    wait_of(s, 1, in)->call.what = in->call.what = "output of stage 0";
}

static void rename_value(staged *s) {
    ndp_instr *in = message(s, 0, &ndp_op_recv, NDP_CHANNEL_BACKWARD, 0);
    wait_of(s, 0, in)->call.what = in->call.what = "gradient from stage 7";
}

/* The gradient travels where activations do. */
static void misdirect(staged *s) {
    ndp_instr *in = message(s, 1, &ndp_op_send, NDP_CHANNEL_BACKWARD, 0);
    wait_of(s, 1, in)->call.channel = in->call.channel = NDP_CHANNEL_FORWARD;
}

static const struct {
    void (*put)(staged *s);
    const char *both[2]; /* sides, in the message of the checker */
    const char *agree;   /* in that of the ranks */
} faults[] = {
    {lose_receive,
     {"rank 0 begins #", "send output of stage 0, micro-batch 1 to rank 1 of pp (576 bytes), rank 1 has no receive"},
     "what its rank 0 sends to its rank 1 on channel pp forward is not what that one receives"},
    {lose_send,
     {"rank 0 begins #", "recv gradient from stage 1, micro-batch 2 from rank 1 of pp (576 bytes), rank 1 has no send"},
     "what its rank 1 sends to its rank 0 on channel pp backward is not what that one receives"},
    {shorten,
     {"send output of stage 0, micro-batch 1 to rank 1 of pp (576 bytes), rank 1 #", "from rank 0 of pp (572 bytes)"},
     "what its rank 0 sends to its rank 1 on channel pp forward is not what that one receives"},
    {renumber,
     {"send output of stage 0, micro-batch 1 to rank 1", "recv output of stage 0, micro-batch 2 from rank 0"},
     "what its rank 0 sends to its rank 1 on channel pp forward is not what that one receives"},
    {rename_value,
     {"recv gradient from stage 7, micro-batch 0 from rank 1", "send gradient from stage 1, micro-batch 0 to rank 0"},
     "what its rank 1 sends to its rank 0 on channel pp backward is not what that one receives"},
    {misdirect,
     {"recv gradient from stage 1, micro-batch 0 from rank 1 of pp (576 bytes), rank 1 has no send", "rank 0 begins"},
     "what its rank 1 sends to its rank 0 on channel pp"},
};

static void check_words(const char *words) {
    if (!strstr(ndp_error_message(), words))
        fail_msg("'%s' is not in: %s", words, ndp_error_message());
}

static void faults_are_seen(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(faults); i++) {
        staged s;
        staged_plan(&s, &small, NULL);
        CHECK_OK(ndp_program_check(s.programs, s.ranks));
        faults[i].put(&s);
        CHECK_FAILS(ndp_program_check(s.programs, s.ranks), NDP_EBUG, faults[i].both[0]);
        check_words(faults[i].both[1]);
        staged_release(&s);
    }
}

/* A rank whose program alone is given may send what it likes. */
static void absent_ranks_count_as_ready(void **state) {
    (void)state;
    staged s;
    staged_plan(&s, &small, NULL);
    lose_receive(&s);
    CHECK_OK(ndp_program_check(&s.programs[0], 1));
    CHECK_OK(ndp_program_check(&s.programs[1], 1));
    staged_release(&s);
}

/* Rank 0 runs B0 before F1, rank 1 F1 before B0: every message has both sides, and none of the second pair arrives. */
static void a_deadlock_is_named(void **state) {
    (void)state;
    staged s;
    const ndp_action F = NDP_ACTION_FORWARD, B = NDP_ACTION_BACKWARD;
    ndp_planned_run orders[2][4] = {{{0, 2, 0, F, 0}, {0, 2, 0, B, 0}, {0, 2, 1, F, 0}, {0, 2, 1, B, 0}},
                                    {{0, 2, 1, F, 0}, {0, 2, 1, B, 0}, {0, 2, 0, F, 0}, {0, 2, 0, B, 0}}};
    const ndp_schedule own[] = {{.runs = orders[0], .n = 4}, {.runs = orders[1], .n = 4}};
    staged_plan(
        &s,
        &(staged_way){.kind = NDP_PIPELINE_1F1B, .pp = 2, .chunks = 1, .shard = 1, .micro_batches = 2, .tied = true},
        own);
    CHECK_FAILS(ndp_program_check(s.programs, s.ranks), NDP_EBUG, "deadlock: rank 0 is blocked at #");
    check_words("recv gradient from stage 1, micro-batch 0 from rank 1 of pp");
    staged_release(&s);
}

/* Every schedule, with fewer and with more micro-batches than stages. */
static void no_schedule_deadlocks(void **state) {
    (void)state;
    static const int ranks[] = {2, 3, 4, 8}, micro_batches[] = {1, 2, 3, 4, 7, 12, 19};
    for (int kind = 0; kind < NDP_PIPELINE_FILE; kind++)
        for (int k = 0; k < NDP_COUNT(ranks) * NDP_COUNT(micro_batches) * MOST_CHUNKS; k++) {
            staged_way w = {.kind = (ndp_pipeline_kind)kind,
                            .pp = ranks[k % NDP_COUNT(ranks)],
                            .chunks = 1 + k / NDP_COUNT(ranks) % MOST_CHUNKS,
                            .shard = 1,
                            .micro_batches = micro_batches[k / NDP_COUNT(ranks) / MOST_CHUNKS]};
            const ndp_pipeline_info *info = &ndp_pipeline_table[kind];
            staged s;
            if (w.chunks < info->fewest || w.chunks > info->most)
                continue;
            staged_plan(&s, &w, NULL);
            if (ndp_program_check(s.programs, s.ranks) != NDP_OK)
                fail_msg("%s on %d ranks, %d stages each, %d micro-batches: %s", info->name, w.pp, w.chunks,
                         w.micro_batches, ndp_error_message());
            staged_release(&s);
        }
}

/* Three stages on two ranks, all forwards first: rank 1 sends what rank 0 reads only after its own forwards. */
static char *forwards_first(int micro_batches) {
    static const char *const rows[][5] = {{"0F", "2F", "2B", "0I", "0W"}, {"1F", "1I", "1W", NULL, NULL}};
    ndp_str text = {0};
    for (int r = 0; r < 2; r++, ndp_str_add(&text, "\n"))
        for (int a = 0; a < 5 && rows[r][a]; a++)
            for (int m = 0; m < micro_batches; m++)
                ndp_str_addf(&text, "%s%s%d", a || m ? "," : "", rows[r][a], m);
    return ndp_str_detach(&text);
}

/* A table may have as many results on their way as comm allows: rank 0 reads the first as rank 1 makes the last. */
static void results_that_wait_long(void **state) {
    (void)state;
    for (int m = NDP_MOST_SENDS + 1; m <= NDP_MOST_SENDS + 2; m++) {
        staged s;
        char *table = forwards_first(m);
        const staged_way w = {.pp = 2, .shard = 1, .micro_batches = m, .table = table};
        if (m == NDP_MOST_SENDS + 1) {
            staged_plan(&s, &w, NULL);
            CHECK_OK(ndp_program_check(s.programs, s.ranks));
        } else {
            staged_init(&s, &w);
            staged_mesh(&s, &w, 1, &s.opts.step.mesh);
            CHECK_FAILS(ndp_engine_create(&s.opts, &s.engines[1]), NDP_EINVAL,
                        "rank 1 of pp makes the output of stage 1, micro-batch 16 while rank 0 has not begun to read "
                        "the 16 before it; at most 16 may be on their way");
            s.ranks = 0;
        }
        staged_release(&s);
        free(table);
    }
}

/* ---- ranks that compare their programs ---- */

typedef struct agreement {
    const staged_way *way;
    int fault;
} agreement;

static ndp_status agree(ndp_transport *t, void *arg) {
    const agreement *a = arg;
    staged s;
    int rank = ndp_transport_rank(t);
    staged_plan(&s, a->way, NULL);
    faults[a->fault].put(&s);
    ndp_comm *c;
    CHECK_OK(ndp_comm_create(t, (ndp_group){0, 1, 2, rank}, "pp", &c));
    ndp_status st = NDP_OK;
    for (int channel = NDP_CHANNEL_FORWARD; st == NDP_OK && channel <= NDP_CHANNEL_BACKWARD; channel++)
        st = ndp_program_agree(s.programs[rank], channel, c);
    if (st != NDP_EBUG)
        fail_msg("fault %d: rank %d agrees", a->fault, rank);
    check_words(faults[a->fault].agree);
    ndp_comm_destroy(c);
    staged_release(&s);
    return NDP_OK;
}

static void ranks_disagree(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(faults); i++)
        CHECK_OK(ndp_local_world(2, agree, &(agreement){&small, i}));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_1f1b),
                                       cmocka_unit_test(as_zero_bubble),
                                       cmocka_unit_test(as_zbv),
                                       cmocka_unit_test(faults_are_seen),
                                       cmocka_unit_test(absent_ranks_count_as_ready),
                                       cmocka_unit_test(a_deadlock_is_named),
                                       cmocka_unit_test(no_schedule_deadlocks),
                                       cmocka_unit_test(results_that_wait_long),
                                       cmocka_unit_test(ranks_disagree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
