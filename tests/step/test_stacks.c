/* Stacks of matrices in a step: on every layout they are what their members are as segments of their own, to the last
 * bit, whatever the optimizer makes of them; and every layout is one rank. */
#include "model/stack_model.h"
#include "step/layouts.h"

static const int sizes[][5] = {{1, 1, 1, 1, 1}, {1, 2, 1, 1, 1}, {2, 1, 1, 1, 1}, {1, 5, 1, 1, 1}, {1, 1, 1, 1, 2},
                               {1, 1, 1, 1, 3}, {1, 2, 1, 1, 2}, {1, 3, 1, 1, 3}, {1, 2, 2, 1, 1}, {2, 1, 1, 1, 4}};

static result run_on(const ndp_model *m, const ndp_device *device, int i, ndp_optimizer_name optimizer) {
    way w = {.samples = 12,
             .reshard = i % 2,
             .recompute = i % 3,
             .gathered = i % 4 > 1,
             .unclipped = true, /* the norm is a sum over segments, in their order */
             .parallel = NDP_PARALLEL_INIT,
             .optimizer = optimizer};
    w.samples = sizes[i][0] * sizes[i][1] * 2;
    w.parallel.tp_sequence_parallel = i % 5 != 0;
    memcpy(w.size, sizes[i], sizeof w.size);
    return run(m, device, &w);
}

/* Gradients, losses and updated weights of both forms of files, against segments that are glued. */
static void same_bits(stack_stored stored, ndp_optimizer_name optimizer) {
    ndp_model apart, stacks;
    stack_model(STACK_APART, NDP_F32, ROWS, &apart);
    stack_model(stored, NDP_F32, ROWS, &stacks);
    size_t bytes = (size_t)model_elements(&apart) * sizeof(double);
    assert_int_equal(model_elements(&stacks), model_elements(&apart));
    for (int i = 0; i < NDP_COUNT(sizes); i++) {
        result a = run_on(&apart, &ndp_device_cpu, i, optimizer), b = run_on(&stacks, &ndp_device_cpu, i, optimizer);
        bool same = memcmp(a.drawn, b.drawn, bytes) == 0 && memcmp(a.grads, b.grads, bytes) == 0 &&
                    memcmp(a.weights, b.weights, bytes) == 0 && memcmp(a.loss, b.loss, sizeof a.loss) == 0;
        if (!same)
            fail_msg("%s on dp %d x %d, cp %d, tp %d: other bits than of separate segments",
                     ndp_optimizers[optimizer]->name, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][4]);
        release(&a);
        release(&b);
    }
    ndp_model_release(&apart);
    ndp_model_release(&stacks);
}

static void adamw_of_a_stack_is_that_of_its_members(void **state) {
    (void)state;
    same_bits(STACK_PATTERN, NDP_ADAMW);
}

static void muon_of_a_stack_is_that_of_its_members(void **state) {
    (void)state;
    same_bits(STACK_PATTERN, NDP_MUON);
}

/* Clipped, in fp64. */
static void every_layout_is_one_rank(void **state) {
    static const ndp_optimizer_name optimizers[] = {NDP_ADAMW, NDP_MUON};
    (void)state;
    for (int stored = STACK_PATTERN; stored <= STACK_TENSOR; stored++)
        for (int o = 0; o < NDP_COUNT(optimizers); o++) {
            ndp_model m;
            stack_model((stack_stored)stored, NDP_F64, ROWS, &m);
            way w = {.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT, .optimizer = optimizers[o]};
            result one = run(&m, &ndp_device_ref, &w);
            for (int i = 1; i < NDP_COUNT(sizes); i++) {
                if (SAMPLES % (sizes[i][0] * sizes[i][1]) != 0)
                    continue;
                w.reshard = i % 2, w.recompute = i % 3, w.gathered = i % 4 > 1;
                w.parallel.tp_sequence_parallel = i % 5 != 0;
                memcpy(w.size, sizes[i], sizeof w.size);
                check_against(&m, &ndp_device_ref, &w, &one, &exact);
            }
            release(&one);
            ndp_model_release(&m);
        }
}

/* A rank's engine that is only planned. */
static ndp_engine *plan(const ndp_model *m, int shards, int tp, int rank) {
    static const ndp_exec exec = {.device = &ndp_device_null, .threads = 1};
    ndp_layout layout = NDP_LAYOUT_ONE;
    layout.size[NDP_DP_SHARD] = shards, layout.size[NDP_TP] = tp;
    ndp_engine_opts o = {.model = m,
                         .step = {.parallel = NDP_PARALLEL_INIT,
                                  .exec = &exec,
                                  .node_ranks = 1,
                                  .accumulation = 1,
                                  .optimizer = {.name = NDP_MUON, .momentum = 0.95}}};
    ndp_engine *e;
    CHECK_OK(ndp_mesh_init(&layout, rank, NDP_NO_MODEL, &o.step.mesh));
    CHECK_OK(ndp_engine_create(&o, &e));
    return e;
}

static int count_transforms(const ndp_program *p) {
    int n = 0;
    for (int i = p->first_update; i < p->n; i++)
        n += p->instrs[i].call.op == &ndp_op_newton_schulz;
    return n;
}

/* A call has the name of the member's own tensor. Ranks transform the members of which they own elements: of five ranks
 * none has elements of all. */
static void members_are_transformed_by_their_owners(void **state) {
    (void)state;
    ndp_model m;
    ndp_str text = {0};
    stack_model(STACK_PATTERN, NDP_F32, ROWS, &m);
    ndp_engine *e = plan(&m, 1, 2, 1);
    assert_int_equal(count_transforms(ndp_engine_program(e)), 2 * 2 * STACK_MEMBERS);
    ndp_program_print(ndp_engine_program(e), false, &text);
    const char *at = text.data;
    for (int block = 0; block < 2; block++)
        for (int k = 0; k < 2 * STACK_MEMBERS; k++) {
            char want[128];
            snprintf(want, sizeof want, " newton_schulz blocks.%d.members.%d.%s.weight in=", block, k % STACK_MEMBERS,
                     k < STACK_MEMBERS ? "up" : "down");
            at = strstr(at, want);
            if (!at)
                fail_msg("no '%s', or not in this order", want);
        }
    ndp_str_release(&text);
    ndp_engine_destroy(e);
    int all = 0;
    for (int rank = 0; rank < 5; rank++) {
        e = plan(&m, 5, 1, rank);
        int n = count_transforms(ndp_engine_program(e));
        assert_true(n < 2 * 2 * STACK_MEMBERS);
        all += n;
        ndp_engine_destroy(e);
    }
    assert_true(all >= 2 * 2 * STACK_MEMBERS && all <= 2 * (2 * STACK_MEMBERS + 4)); /* four borders in each block */
    ndp_model_release(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(adamw_of_a_stack_is_that_of_its_members),
                                       cmocka_unit_test(muon_of_a_stack_is_that_of_its_members),
                                       cmocka_unit_test(every_layout_is_one_rank),
                                       cmocka_unit_test(members_are_transformed_by_their_owners)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
