/* Update groups: which one a tensor is in, what its constants are, and what tables of pieces say of a slice. */
#include "optim/groups.h"

#include "base/rng.h"
#include "check.h"
#include <string.h>

/* The table says what ndp_segments_piece does, for every slice; some have no piece. */
static void tables_are_those_of_segments(void **state) {
    (void)state;
    ndp_segment items[] = {ndp_segment_whole("a", 2, 7, 30, NDP_DIM_WHOLE, NDP_DIM_WHOLE),
                           ndp_segment_whole("b", 1, 1, 5, NDP_DIM_WHOLE, NDP_DIM_WHOLE),
                           ndp_segment_whole("c", 2, 3, 10, NDP_DIM_WHOLE, NDP_DIM_WHOLE)};
    ndp_arena arena = {0};
    ndp_update_groups g;
    ndp_segments s = {.items = items, .n = NDP_COUNT(items)};
    items[1].copies = 6;
    ndp_segments_layout(&s);
    CHECK_OK(ndp_update_groups_make(&(ndp_optimizer_opts){.name = NDP_ADAMW}, &arena, &g));
    for (int shards = 1; shards < 9; shards++)
        for (int64_t index = 0, elements = 0; index < shards; index++) {
            int64_t table[4][NDP_PIECE_COLUMNS], n = ndp_pieces_count(&g, &s, shards, (int)index).all;
            int64_t slice = ndp_segments_slice(&s, shards);
            assert_in_range(n, 0, 3);
            assert_true(n > 0 || slice * index >= s.elements);
            memset(table, 0x55, sizeof table);
            ndp_pieces_fill(&g, &s, shards, (int)index, table[0]);
            for (int64_t i = 0; i < n; i++) {
                int64_t at = slice * index + table[i][NDP_PIECE_FIRST], end = at + table[i][NDP_PIECE_COUNT];
                const ndp_segment *of = &items[at >= items[2].offset ? 2 : at >= items[1].offset ? 1 : 0];
                assert_true(at >= of->offset && end <= of->offset + of->rows * of->cols);
                assert_true(end <= slice * (index + 1) && end > at);
                assert_int_equal(ndp_piece_copies(table[i]), of == &items[1] ? 6 : 1);
                assert_int_equal(ndp_piece_group(table[i]), of == &items[1]);
                elements += end - at;
            }
            assert_int_equal(table[n][0], 0x5555555555555555);
            if (index == shards - 1)
                assert_int_equal(elements, 7 * 30 + 5 + 3 * 10);
        }
    ndp_arena_release(&arena);
}

/* Entries of four optimizers; the job's is AdamW. */
static const ndp_update_entry entries[] = {
    {.opts = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .weight_decay = 0.1}, .lr_scale = 16},
    {.opts = {.name = NDP_LION, .betas = {0.9, 0.99}, .weight_decay = 0.3}, .lr_scale = 0.1, .decays = true},
    {.opts = {.name = NDP_MUON, .momentum = 0.95, .weight_decay = 0.1}, .lr_scale = 1, .chosen = true},
    {.opts = {.name = NDP_ADAMW8BIT, .betas = {0.9, 0.95}, .weight_decay = 0.1}, .lr_scale = 1, .chosen = true},
    {.opts = {.name = NDP_SGD}, .lr_scale = 2, .chosen = true}};
static const ndp_optimizer_opts mixed = {.seed = 4000000000,
                                         .name = NDP_ADAMW,
                                         .betas = {0.9, 0.95},
                                         .eps = 1e-8,
                                         .weight_decay = 0.1,
                                         .entries = entries,
                                         .n_entries = NDP_COUNT(entries)};

/* Whatever a tensor is, it is in exactly one group, with the numbers of its entry. */
static void each_tensor_is_in_one_group(void **state) {
    (void)state;
    ndp_arena arena = {0};
    ndp_update_groups g;
    CHECK_OK(ndp_update_groups_make(&mixed, &arena, &g));
    for (int named = 0; named <= mixed.n_entries; named++)
        for (int k = 0; k < 8; k++) {
            const ndp_segment s = {
                .ndim = 2 - (k & 1), .projection = k & 2, .coded = k & 4, .named_by = (uint8_t)named};
            int in = 0;
            for (int i = 0; i < g.n; i++)
                in += g.items[i].entry == named && (g.items[i].kinds >> (4 * s.coded + 2 * s.projection + (k & 1)) & 1);
            assert_int_equal(in, 1);
            const ndp_update_group *of = &g.items[ndp_update_group_of(&g, &s)];
            const ndp_update_entry *e = named ? &entries[named - 1] : NULL;
            assert_true(of->lr_scale == (e ? e->lr_scale : 1));
            assert_true(of->opts.weight_decay == ((k & 1) && !(e && e->decays) ? 0 : e ? e->opts.weight_decay : 0.1));
            ndp_optimizer_name name = e ? e->opts.name : NDP_ADAMW;
            bool other = (name == NDP_MUON && (!s.projection || s.ndim == 1)) || (name == NDP_ADAMW8BIT && !s.coded);
            assert_int_equal(of->opts.name, other ? NDP_ADAMW : name);
        }
    ndp_arena_release(&arena);
}

static void constants_are_those_of_the_optimizer(void **state) {
    (void)state;
    double all[4 * (NDP_COUNT(entries) + 1)][NDP_OPTIMIZER_CONSTANTS] = {{0}}, own[NDP_OPTIMIZER_CONSTANTS];
    ndp_arena arena = {0};
    ndp_update_groups g;
    CHECK_OK(ndp_update_groups_make(&mixed, &arena, &g));
    ndp_update_constants(&g, 3e-4, 7, all[0]);
    for (int i = 0; i < g.n; i++) {
        memset(own, 0, sizeof own);
        ndp_optimizers[g.items[i].opts.name]->constants(&g.items[i].opts, 3e-4 * g.items[i].lr_scale, 7, own);
        own[NDP_UPDATE_NUMBER] = 7, own[NDP_UPDATE_SEED] = 4000000000;
        assert_memory_equal(all[i], own, sizeof own);
    }
    ndp_arena_release(&arena);
}

/* Optimizers with more states come first, so that a piece has one place in both states; pieces of all slices together
 * have every element once, and no two have the same place. */
static void places_follow_each_other(void **state) {
    (void)state;
    enum { N = 12 };
    ndp_arena arena = {0};
    ndp_update_groups g;
    CHECK_OK(ndp_update_groups_make(&mixed, &arena, &g));
    static const ndp_optimizer_name order[] = {NDP_ADAMW, NDP_LION, NDP_MUON, NDP_ADAMW8BIT, NDP_SGD};
    assert_int_equal(g.n_used, NDP_COUNT(order));
    for (int i = 0; i < g.n_used; i++)
        assert_true(ndp_update_place(&g, order[i]) < g.n_used && (i == 0 || g.states[i] <= g.states[i - 1]));
    for (int trial = 0; trial < 200; trial++) {
        ndp_segment items[N];
        ndp_segments s = {.items = items, .n = N, .align = NDP_CODE_BLOCK};
        for (int i = 0; i < N; i++) {
            uint64_t at = (uint64_t)(trial * N + i) * 4;
            bool vector = ndp_rng_below(3, 0, at, 3) == 0;
            items[i] = ndp_segment_whole("x", vector ? 1 : 2, vector ? 1 : 1 + (int64_t)ndp_rng_below(3, 0, at + 1, 30),
                                         1 + (int64_t)ndp_rng_below(3, 0, at + 2, 90), NDP_DIM_WHOLE, NDP_DIM_WHOLE);
            items[i].named_by = (uint8_t)ndp_rng_below(3, 0, at + 3, (uint32_t)mixed.n_entries + 1);
            items[i].projection = !vector, items[i].coded = i % 2;
        }
        ndp_segments_layout(&s);
        int shards = 1 + trial % 5;
        for (int index = 0; index < shards; index++) {
            int64_t rows[2 * N][NDP_PIECE_COLUMNS_PLACED], next[2] = {0};
            ndp_piece_counts n = ndp_pieces_count(&g, &s, shards, index);
            ndp_pieces_fill(&g, &s, shards, index, rows[0]);
            for (int64_t r = 0, class = 0, in = 0; r < n.all; r++, in++) {
                for (; in == n.of[class]; in = 0)
                    class ++;
                const ndp_optimizer_opts *o = &g.items[ndp_piece_group(rows[r])].opts;
                bool codes = ndp_optimizer_codes(o->name);
                int64_t first = rows[r][NDP_PIECE_FIRST], count = rows[r][NDP_PIECE_COUNT];
                assert_int_equal(o->name, g.used[class]);
                assert_int_equal(rows[r][NDP_PIECE_PLACE], next[codes]);
                assert_int_equal(ndp_pieces_place(&g, &s, shards, index, first), next[codes]);
                next[codes] += codes ? ndp_code_blocks(first, count) : count;
                if (g.states[class] == 2)
                    assert_true(next[0] <= n.kept[1]);
                else if (g.states[class] == 1)
                    assert_true(next[0] > n.kept[1] && next[0] <= n.kept[0]);
            }
            assert_int_equal(next[1], n.blocks);
        }
    }
    ndp_arena_release(&arena);
}

static void an_optimizer_that_cannot_is_refused(void **state) {
    (void)state;
    const ndp_segment norm = {.name = "model.norm.weight", .ndim = 1, .named_by = 3},
                      table = {.name = "model.embed_tokens.weight", .ndim = 2, .named_by = 3},
                      q = {.name = "q", .ndim = 2, .projection = true, .named_by = 3},
                      small = {.name = "small", .ndim = 1, .named_by = 4};
    CHECK_FAILS(ndp_update_groups_check(&mixed, &norm), NDP_EINVAL,
                "muon cannot update model.norm.weight, which is a vector");
    CHECK_FAILS(ndp_update_groups_check(&mixed, &table), NDP_EINVAL,
                "muon cannot update model.embed_tokens.weight, which is no matrix of a layer");
    CHECK_OK(ndp_update_groups_check(&mixed, &q));
    CHECK_OK(ndp_update_groups_check(&mixed, &small)); /* its moments are numbers */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_those_of_segments), cmocka_unit_test(each_tensor_is_in_one_group),
        cmocka_unit_test(constants_are_those_of_the_optimizer), cmocka_unit_test(places_follow_each_other),
        cmocka_unit_test(an_optimizer_that_cannot_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
