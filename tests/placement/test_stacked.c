/* Stacks of matrices in the placement check: it has no alarm on any layout, and finds mutations of their programs. */
#include "model/stack_model.h"
#include "placement/mutants.h"

/* A world of the stacks. Placement does not depend on the form of their files. */
static void stack_world(planned *w, const ndp_layout *l, ndp_optimizer_name optimizer, bool whole_rows) {
    const world_way y = {.layout = *l,
                         .parallel = {.tp_sequence_parallel = !whole_rows, .cp_method = NDP_CP_RING, .cp_zigzag = true},
                         .reshard = true,
                         .gathered = true,
                         .reduce_once = l->size[NDP_PP] > 1,
                         .compute = NDP_F64,
                         .optimizer = optimizer,
                         .kind = NDP_PIPELINE_1F1B,
                         .chunks = 1,
                         .micro_batches = 2 * l->size[NDP_PP]};
    *w = (planned){.n = 0};
    stack_model(STACK_PATTERN, NDP_F64, WORLD_ROWS, &w->model);
    world_take(w, "stacks", &y, &ndp_device_ref);
    world_plan(w, NULL, 0);
}

static void none_survives(void **state) {
    /* pp, dp_replicate, dp_shard, cp, sp, tp; `whole`: no sequence parallelism on tp */
    static const struct {
        int size[NDP_AXES];
        ndp_optimizer_name optimizer;
        bool whole;
    } of[] = {{{1, 1, 1, 1, 1, 1}, NDP_MUON, false},      {{1, 1, 1, 1, 1, 2}, NDP_MUON, false},
              {{1, 1, 2, 1, 1, 3}, NDP_MUON, true},       {{1, 2, 3, 1, 1, 1}, NDP_MUON, false},
              {{2, 1, 1, 1, 1, 2}, NDP_ADAMW, false},     {{1, 1, 2, 2, 1, 2}, NDP_ADAMW8BIT, false},
              {{1, 1, 2, 1, 1, 3}, NDP_ADAMW8BIT, false}, {{2, 1, 2, 1, 1, 1}, NDP_MUON, false}};
    mutants sample = {.seed = 3, .most = 2, .only = NDP_NONE};
    (void)state;
    for (int i = 0; i < NDP_COUNT(of); i++) {
        planned w;
        ndp_layout l = NDP_LAYOUT_ONE;
        memcpy(l.size, of[i].size, sizeof of[i].size);
        stack_world(&w, &l, of[i].optimizer, of[i].whole);
        try_planned(&sample, &w, 0, (uint64_t)i);
        world_release(&w);
    }
    print_mutants(&sample);
    assert_int_equal(sample.alarms, 0);
    for (int k = 0; k < MUTATIONS; k++)
        assert_int_equal(sample.by_kind[k].survived, 0);
    for (int k = 0; k < LIES; k++) /* no op here reads another row than its own, so two rows may trade places */
        assert_true(k == LIE_TOKENS_SWAPPED || sample.lies[k].refused == sample.lies[k].told);
    assert_true(sample.by_model[0].refused > 200 && sample.lies[LIE_SEGMENT_COLUMN].told > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(none_survives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
