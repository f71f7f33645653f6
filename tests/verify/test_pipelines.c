/* Proof 3 for pipelines, a sample of it (all of it: long_pipelines): on every schedule the gradients, norms and losses
 * of one rank. And three bugs put into a run on purpose are seen. */
#include "base/clock.h"
#include "verify/pipelines.h"
#include "verify/seeded.h"

static void check_all(family *f, const way *ways, int n) {
    for (int i = 0; i < n; i++)
        check_way(f, &ways[i]);
    print_family(f);
    family_release(f);
}

/* Each layout and each schedule at least once. */
static void tied_fp32(void **state) {
    const corpus *c = *state;
    char *path = write_tall(c->folder, true);
    family f = {.s = tall_subject(c, path, "tall tied fp32", "fp32")};
    f.s.steps = 3;
    for (int i = 0; i < NDP_COUNT(staged_layouts); i++) {
        way w = staged_way(staged_layouts[i], &schedules[i % NDP_COUNT(schedules)], i);
        check_way(&f, &w);
    }
    way w = staged_way(staged_layouts[1], &schedules[0], 0);
    w.schedule = "file", w.accumulation = 8;
    char *swapped = write_swapped(c->folder, 4, w.accumulation);
    w.file = swapped;
    w.chunks = 0;
    check_way(&f, &w);
    print_family(&f);
    family_release(&f);
    free(swapped);
    free(path);
}

static void stories_fp32(void **state) {
    family f = {.s = stories_subject(*state, "stories260K fp32", "fp32")};
    f.s.length = 32, f.s.steps = 5;
    way ways[] = {staged_way(staged_layouts[1], &schedules[0], 2), staged_way(staged_layouts[7], &schedules[2], 1),
                  staged_way(staged_layouts[5], &schedules[1], 0), staged_way(staged_layouts[4], &schedules[5], 3)};
    check_all(&f, ways, NDP_COUNT(ways));
}

static void stories_lion(void **state) {
    family f = {.s = stories_subject(*state, "stories260K fp32 Lion", "fp32")};
    f.s.length = 32, f.s.steps = 5, f.s.optimizer = "lion", f.s.lr = 1e-4;
    way w = staged_way(staged_layouts[9], &schedules[2], 1);
    check_all(&f, &w, 1);
}

static void stories_codes(void **state) {
    family f = {.s = stories_subject(*state, "stories260K fp32, 8-bit states", "fp32")};
    f.s.length = 32, f.s.steps = 5, f.s.optimizer = "adamw8bit";
    way w = staged_way(staged_layouts[9], &schedules[2], 1);
    check_all(&f, &w, 1);
}

static void tied_bf16(void **state) {
    const corpus *c = *state;
    char *path = write_tall(c->folder, true);
    family f = {.s = tall_subject(c, path, "tall tied bf16", "bf16")};
    f.s.steps = 3;
    way ways[] = {staged_way(staged_layouts[1], &schedules[6], 2), staged_way(staged_layouts[9], &schedules[3], 1)};
    check_all(&f, ways, NDP_COUNT(ways));
    free(path);
}

static void tied_fp64(void **state) {
    const corpus *c = *state;
    char *path = write_tall(c->folder, true);
    family f = {.s = tall_subject(c, path, "tall tied fp64 on ref", "fp64")};
    f.s.steps = 2, f.s.length = 17;
    way ways[] = {staged_way(staged_layouts[1], &schedules[3], 1), staged_way(staged_layouts[9], &schedules[4], 2),
                  staged_way(staged_layouts[5], &schedules[5], 0)};
    check_all(&f, ways, NDP_COUNT(ways));
    free(path);
}

static int backward_messages(const ndp_program *p) {
    int n = 0;
    for (int i = 0; i < p->n; i++)
        n += ndp_instr_is(&p->instrs[i], NDP_CALL_BEGIN) && p->instrs[i].call.channel == NDP_CHANNEL_BACKWARD;
    return n;
}

/* The first of four stages is frozen: a frozen layer costs less, so it has all of them. */
static void gradients_stop(ndp_program *p, int rank) {
    static const int want[] = {0, 4, 8, 4};
    assert_int_equal(backward_messages(p), want[rank]);
}

/* Only the second one is. */
static void gradients_pass(ndp_program *p, int rank) {
    static const int want[] = {4, 8, 8, 4};
    assert_int_equal(backward_messages(p), want[rank]);
}

/* A stage that has nothing to train: the first one, to which no gradient is sent, or one in between, which sends them
 * on. Or some tensors of each are trained. */
static void frozen_stages(void **state) {
    const corpus *c = *state;
    char *path = write_tall(c->folder, false);
    static const char *const frozen[] = {"[embed, layers.0, layers.1, layers.2, layers.3, layers.4]",
                                         "[layers.2, layers.3, layers.4, layers.5]", NULL};
    for (int i = 0; i < NDP_COUNT(frozen); i++) {
        family f = {.s = tall_subject(c, path, "tall frozen fp32", "fp32")};
        f.s.steps = 3, f.s.frozen = frozen[i];
        f.s.trained = frozen[i] ? NULL : "[o_proj, 'regex:.*layers.(0|7).(mlp|input).*']";
        way ways[] = {staged_way(staged_layouts[1], &schedules[0], 1), staged_way(staged_layouts[1], &schedules[3], 2),
                      staged_way(staged_layouts[7], &schedules[5], 0), staged_way(staged_layouts[9], &schedules[2], 1)};
        const fault looked_at = {"no fault", "", i ? gradients_pass : gradients_stop};
        ways[0].fault = frozen[i] ? &looked_at : NULL;
        check_all(&f, ways, NDP_COUNT(ways));
    }
    free(path);
}

/* ---- bugs on purpose ---- */

/* On pp 2, where ranks 0 and 1 are the stages. */
static const way place = {.pp = 2, .global = 8, .accumulation = 4, .threads = 1, .schedule = "zero_bubble"};

static void lose_weight_gradient(ndp_program *p, int rank) {
    int lost = 0;
    for (int i = 0; i < p->n; i++) {
        ndp_instr *in = &p->instrs[i];
        if (rank == 0 && in->code == NDP_DO_RUN && in->phase == NDP_BACKWARD_WEIGHT && in->micro_batch == 2 &&
            strcmp(in->what, "layers.1") == 0)
            harmless(p, in), lost++;
    }
    assert_int_equal(lost, rank == 0);
}

static void miss_tied_sum(ndp_program *p, int rank) {
    (void)rank;
    int missed = 0;
    for (int i = 0; i < p->n; i++)
        if (p->instrs[i].code == NDP_DO_CALL && p->instrs[i].call.kind != NDP_CALL_KERNEL &&
            p->instrs[i].call.channel == NDP_GROUP_TIE)
            harmless(p, &p->instrs[i]), missed++;
    assert_int_equal(missed, 2);
}

/* Rank 0 takes the gradients of micro-batches 1 and 2 for each other's. */
static void swap_gradients(ndp_program *p, int rank) {
    ndp_instr *receives[2] = {NULL, NULL};
    for (int i = 0; i < p->n && rank == 0; i++) {
        ndp_instr *in = &p->instrs[i];
        if (ndp_instr_is(in, NDP_CALL_BEGIN) && in->call.op == &ndp_op_recv && in->micro_batch >= 1 &&
            in->micro_batch <= 2)
            receives[in->micro_batch - 1] = in;
    }
    if (rank > 0)
        return;
    assert_true(receives[0] && receives[1]);
    int tag = receives[0]->call.attr.tag;
    receives[0]->call.attr.tag = receives[1]->call.attr.tag;
    receives[1]->call.attr.tag = tag;
}

static const fault bugs[] = {
    {"a micro-batch's weight gradient lost", "gradient of step 1, model.layers.1.", lose_weight_gradient},
    {"the sum of a tied gradient missed", "gradient of step 1, model.embed_tokens.weight", miss_tied_sum},
    {"the gradient of another micro-batch", "gradient of step 1, model.layers.", swap_gradients}};

static void bugs_are_seen(void **state) {
    const corpus *c = *state;
    char *path = write_tall(c->folder, true), words[512];
    family f = {.s = tall_subject(c, path, "tall tied fp32", "fp32")};
    f.s.steps = 2;
    check_way(&f, &place);
    for (int i = 0; i < NDP_COUNT(bugs); i++) {
        way w = place;
        w.fault = &bugs[i];
        const char *bad = try_way(&f, &w, words);
        printf("%s: %s\n", bugs[i].name, bad ? bad : "NOT SEEN");
        assert_non_null(bad);
        if (!strstr(bad, bugs[i].seen))
            fail_msg("%s: %s does not say '%s'", bugs[i].name, bad, bugs[i].seen);
    }
    family_release(&f);
    free(path);
}

/* ---- a slow stage ---- */

static ndp_status rmsnorm_slowly(const ndp_op_call *c) {
    usleep(500000);
    return ndp_device_cpu.kernels[c->op->id]->run(c);
}

/* The first norm of each layer sleeps: the stage takes a hundred times longer than the others. */
static void slow_down(ndp_program *p, int rank) {
    static const ndp_kernel slow = {.run = rmsnorm_slowly};
    for (int g = 0; g < p->opts.model->n_graphs && rank == 1; g++) {
        const ndp_list *list = &p->opts.units[g].lists[NDP_FORWARD];
        int i = 0;
        while (i < list->n && list->calls[i].op != &ndp_op_rmsnorm)
            i++;
        if (i < list->n)
            list->calls[i].kernel = &slow;
    }
}

/* The deadlock detection does not fire while a stage computes, even if its peers are blocked for seconds. */
static void a_slow_stage_is_waited_for(void **state) {
    const corpus *c = *state;
    char *path = write_tall(c->folder, true);
    const fault slow = {"a slow stage", "", slow_down};
    family f = {.s = tall_subject(c, path, "tall tied fp32", "fp32")};
    f.s.steps = 1;
    way w = {.pp = 4, .global = 4, .accumulation = 4, .threads = 1, .schedule = "1f1b", .fault = &slow};
    char words[512];
    double start = ndp_now();
    const char *bad = try_way(&f, &w, words); /* in every run of this test, whichever ways it draws */
    if (bad)
        fail_msg("%s", bad);
    assert_true(ndp_now() - start > 4 * 2 * 0.5);
    family_release(&f);
    free(path);
}

/* With an argument: only the tests of that name (a pattern). */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bugs_are_seen), cmocka_unit_test(tied_fp32),     cmocka_unit_test(stories_fp32),
        cmocka_unit_test(stories_lion),  cmocka_unit_test(stories_codes), cmocka_unit_test(tied_bf16),
        cmocka_unit_test(tied_fp64),     cmocka_unit_test(frozen_stages), cmocka_unit_test(a_slow_stage_is_waited_for)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus);
}
