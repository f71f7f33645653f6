/* Programs that are right, but that the passes do not write: each is made of an emitted one by hand, on all ranks,
 * gives what that gives when it is run, and passes the placement check. */
#include "placement/other_units.h"
#include "placement/runs.h"

static const two_groups valid_tokens = {"valid_tokens", NDP_GROUP_LOSS, NDP_GROUP_REPLICATE, NDP_GROUP_SHARD},
                        valid_rows = {"valid_tokens", NDP_GROUP_LOSS, NDP_GROUP_CP, NDP_GROUP_SP},
                        squares_by_axis = {"grad_norm", NDP_GROUP_SHARD, NDP_GROUP_CP, NDP_GROUP_SP},
                        loss_by_axis = {"loss", NDP_GROUP_LOSS, NDP_GROUP_SHARD, NDP_GROUP_REPLICATE};

static const struct {
    const char *name;
    run_edit *edit;
    const void *how;
} others[] = {{"all_reduce as reduce_scatter and all_gather", sum_by_parts, NULL},
              {"all_reduce in halves", sum_in_halves, NULL},
              {"sums of the norm in the other order", in_the_other_order, "grad_norm"},
              {"sums of the loss in the other order", in_the_other_order, "loss"},
              {"tokens over replicate, then shard", over_each_axis, &valid_tokens},
              {"tokens over cp, then sp", over_each_axis, &valid_rows},
              {"squares over cp, then sp", over_each_axis, &squares_by_axis},
              {"loss over shard, then replicate", over_each_axis, &loss_by_axis},
              {"a gather too many", gathered_again, NULL},
              {"reduce_scatter as all_reduce and copy", sum_and_take, NULL},
              {"a gradient copied away and back", copied_away_and_back, NULL},
              {"squares in the other order", squares_in_the_other_order, NULL},
              {"squares added to zero", squares_added_to_zero, NULL},
              {"updates in the other order", updates_in_the_other_order, NULL},
              {"the loss scale twice", computed_again, &ndp_op_loss_scale},
              {"tokens counted again", computed_again, &ndp_op_count_valid},
              {"the clip factor twice", computed_again, &ndp_op_clip_factor},
              {"gathers without overlap", without_overlap, &ndp_op_all_gather},
              {"reductions without overlap", without_overlap, &ndp_op_reduce_scatter},
              {"a forward twice", forward_twice, NULL},
              {"a gradient added to zero", added_to_zero, NULL},
              {"unit: all_reduce as reduce_scatter and all_gather", unit_sum_by_parts, NULL},
              {"unit: all_reduce in halves", unit_sum_in_halves, NULL},
              {"unit: b + a", operands_swapped, NULL},
              {"unit: a copy before a product", unit_copied, &ndp_op_linear},
              {"unit: a copy before a norm", unit_copied, &ndp_op_rmsnorm},
              {"unit: a copy before all_gather", unit_copied, &ndp_op_all_gather},
              {"unit: all_gather twice", unit_again, &ndp_op_all_gather},
              {"unit: all_to_all twice", unit_again, &ndp_op_all_to_all},
              {"unit: gathers without overlap", unit_without_overlap, &ndp_op_all_gather},
              {"unit: a ring without overlap", unit_without_overlap, &ndp_op_shift},
              {"unit: gradients in the other order", gradients_in_the_other_order, NULL}};

enum { OTHERS = NDP_COUNT(others), MOST_WORLD = 16 };

typedef struct other_counts {
    int made[OTHERS], refused, wrong; /* wrong: other results */
} other_counts;

/* Edits all programs of a world, has them checked, and runs them. */
static void try_other(const planned *w, int k, const rank_result *original, other_counts *c) {
    journal j[MOST_WORLD] = {{.n = 0}};
    char text[WORLD_TEXT];
    bool any = false;
    ndp_status st = NDP_OK;
    for (int i = 0; i < w->n; i++)
        any |= others[k].edit(others[k].how, (ndp_program *)w->programs[i], &j[i]);
    for (int i = 0; any && i < w->n && st == NDP_OK; i++)
        st = ndp_program_order(w->programs[i]);
    if (any && st == NDP_OK)
        st = ndp_program_check(w->programs, w->n);
    if (any && st == NDP_OK)
        st = ndp_placement_check(&(ndp_placement_opts){w->programs, w->n, &ndp_engine_claims}, NULL);
    if (st != NDP_OK)
        printf("REFUSED: %s, %s: %s\n", others[k].name, world_text(w, text), ndp_error_message());
    c->refused += st != NDP_OK;
    for (int i = 0; i < w->n; i++)
        journal_undo(&j[i]);
    if (!any)
        return;
    c->made[k]++;
    rank_result *r = run_edited(w, others[k].edit, others[k].how, ~(ndp_groups)0, &st);
    double d = st == NDP_OK ? run_difference(w, r, original) : INFINITY;
    if (d > 1e-9)
        printf("WRONG: %s, %s: off by %g %s\n", others[k].name, world_text(w, text), d, st ? ndp_error_message() : "");
    c->wrong += d > 1e-9;
    run_release(w, r);
}

static void none_is_refused(void **state) {
    /* pp, dp_replicate, dp_shard, cp, sp, tp; `whole`: no sequence parallelism on tp */
    static const struct {
        int size[NDP_AXES];
        bool whole, gathered;
    } ways[] = {{{1, 2, 2, 1, 1, 1}, false, true}, {{1, 2, 1, 1, 1, 2}, true, false},
                {{1, 1, 1, 2, 2, 1}, false, true}, {{2, 1, 2, 1, 1, 2}, false, true},
                {{1, 1, 2, 2, 1, 2}, true, false}, {{2, 2, 1, 1, 2, 1}, false, true}};
    other_counts c = {.refused = 0};
    (void)state;
    for (int i = 0; i < NDP_COUNT(ways); i++) {
        world_way y = {
            .layout = NDP_LAYOUT_ONE,
            .parallel = {.tp_sequence_parallel = !ways[i].whole, .cp_method = NDP_CP_RING, .cp_zigzag = true},
            .gathered = ways[i].gathered,
            .reshard = i % 2,
            .reduce_once = ways[i].size[NDP_PP] > 1,
            .compute = NDP_F64,
            .kind = NDP_PIPELINE_1F1B,
            .chunks = 1,
            .micro_batches = 2};
        ndp_facts f;
        planned w;
        ndp_status st;
        memcpy(y.layout.size, ways[i].size, sizeof ways[i].size);
        world_facts(&world_models[i % 2 ? 4 : 0], 2, &f);
        world_init(&w, world_models[i % 2 ? 4 : 0].name, &f, &y, &ndp_device_ref);
        world_plan(&w, NULL, 0);
        rank_result *original = run_world(&w, &st);
        assert_int_equal(st, NDP_OK);
        for (int k = 0; k < OTHERS; k++)
            try_other(&w, k, original, &c);
        run_release(&w, original);
        world_release(&w);
    }
    int n = 0;
    for (int k = 0; k < OTHERS; k++) {
        printf("  %-52s %d\n", others[k].name, c.made[k]);
        n += c.made[k] > 0;
    }
    assert_int_equal(n, OTHERS);
    assert_int_equal(c.refused, 0);
    assert_int_equal(c.wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(none_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
