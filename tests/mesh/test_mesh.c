#include "check.h"
#include "mesh/mesh.h"

#include <stdlib.h>

static const ndp_layout layouts[] = {
    NDP_LAYOUT_ONE,
    {{1, 2, 2, 1, 1, 1, 1}},
    {{2, 3, 5, 2, 3, 2, 1}},
    {{1, 1, 1, 1, 1, 8, 1}},
    {{7, 1, 1, 1, 1, 1, 1}},
    {{1, 1, 3, 4, 1, 1, 1}},
    {{4, 8, 4, 4, 2, 8, 1}},
    {{16, 8, 64, 1, 1, 8, 1}}, /* 65,536 ranks each, from here on */
    {{1, 8, 8192, 1, 1, 1, 1}},
    {{1, 1, 65536, 1, 1, 1, 1}},
    {{16, 2, 16, 4, 4, 8, 64}},
};

static int world_of(const ndp_layout *l) {
    int world = 1;
    for (int axis = 0; axis < NDP_AXES; axis++)
        world *= l->size[axis];
    return world;
}

static void ranks_and_coordinates_round_trip(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(layouts); i++) {
        int expected[NDP_AXES] = {0};
        for (int rank = 0; rank < world_of(&layouts[i]); rank++) {
            ndp_mesh mesh;
            CHECK_OK(ndp_mesh_init(&layouts[i], rank, NDP_NO_MODEL, &mesh));
            assert_int_equal(mesh.world, world_of(&layouts[i]));
            assert_int_equal(ndp_mesh_rank_of(&layouts[i], mesh.coord), rank);
            assert_memory_equal(mesh.coord, expected, sizeof expected);
            /* counts up like an odometer, tp fastest */
            for (int axis = NDP_AXES - 1; axis >= 0 && ++expected[axis] == layouts[i].size[axis]; axis--)
                expected[axis] = 0;
        }
    }
}

/* Each rank lies where its group says, all members see the same group, and the members differ in the group's axes only:
 * together with the counts, the groups of a kind partition the world. A kind that takes part of its axes
 * (0 below) has groups of equal size. */
static void groups_partition_the_world(void **state) {
    (void)state;
    static const unsigned axes_of[NDP_GROUPS] = {
        [NDP_GROUP_WORLD] = 0x3f,     [NDP_GROUP_PP] = 1 << NDP_PP, [NDP_GROUP_REPLICATE] = 1 << NDP_DP_REPLICATE,
        [NDP_GROUP_DATA] = 0x06,      [NDP_GROUP_SHARD] = 0x1c,     [NDP_GROUP_LOSS] = 0x1e,
        [NDP_GROUP_CP] = 1 << NDP_CP, [NDP_GROUP_SP] = 1 << NDP_SP, [NDP_GROUP_TP] = 1 << NDP_TP};
    for (int i = 0; i < NDP_COUNT(layouts); i++)
        for (int kind = 0; kind < NDP_GROUPS; kind++) {
            int world = world_of(&layouts[i]), count = 1, bases = 0;
            ndp_mesh first;
            CHECK_OK(ndp_mesh_init(&layouts[i], 0, NDP_NO_MODEL, &first));
            for (int axis = 0; axis < NDP_AXES; axis++)
                count *= axes_of[kind] >> axis & 1 ? layouts[i].size[axis] : 1;
            if (!axes_of[kind])
                count = ndp_mesh_group(&first, (ndp_group_kind)kind).count;
            for (int rank = 0; rank < world; rank++) {
                ndp_mesh mesh, base;
                CHECK_OK(ndp_mesh_init(&layouts[i], rank, NDP_NO_MODEL, &mesh));
                ndp_group g = ndp_mesh_group(&mesh, (ndp_group_kind)kind);
                assert_int_equal(g.count, count);
                assert_true(g.rank >= 0 && g.rank < count && g.stride >= 1 && g.base >= 0);
                assert_int_equal(g.base + g.rank * g.stride, rank);
                assert_true(g.base + (count - 1) * g.stride < world);
                CHECK_OK(ndp_mesh_init(&layouts[i], g.base, NDP_NO_MODEL, &base));
                ndp_group same = ndp_mesh_group(&base, (ndp_group_kind)kind);
                assert_int_equal(same.base, g.base);
                assert_int_equal(same.stride, g.stride);
                assert_int_equal(same.rank, 0);
                for (int axis = 0; axis < NDP_AXES; axis++)
                    if (!ndp_group_spans((ndp_group_kind)kind, (ndp_axis)axis) || axes_of[kind])
                        assert_int_equal(base.coord[axis], axes_of[kind] >> axis & 1 ? 0 : mesh.coord[axis]);
                bases += g.rank == 0;
            }
            assert_int_equal(bases * count, world);
        }
}

static void groups_of_a_small_mesh(void **state) {
    (void)state;
    ndp_layout l = {{1, 2, 3, 1, 1, 2, 1}};
    ndp_mesh mesh;
    CHECK_OK(ndp_mesh_init(&l, 9, NDP_NO_MODEL, &mesh)); /* replicate 1, shard 1, tp 1 */
    static const struct {
        ndp_group_kind kind;
        ndp_group expected;
    } cases[] = {{NDP_GROUP_TP, {8, 1, 2, 1}},        {NDP_GROUP_SHARD, {7, 2, 3, 1}}, {NDP_GROUP_DATA, {1, 2, 6, 4}},
                 {NDP_GROUP_REPLICATE, {3, 6, 2, 1}}, {NDP_GROUP_LOSS, {1, 2, 6, 4}},  {NDP_GROUP_WORLD, {0, 1, 12, 9}},
                 {NDP_GROUP_PP, {9, 12, 1, 0}}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_group g = ndp_mesh_group(&mesh, cases[i].kind);
        assert_memory_equal(&g, &cases[i].expected, sizeof g);
    }
    assert_string_equal(ndp_group_name(NDP_GROUP_SHARD), "shard");
    assert_string_equal(ndp_axis_name(NDP_DP_REPLICATE), "dp_replicate");
}

/* The kv group holds the ranks of the tensor axis with the same kv head. Without a model, or where tp and the kv heads
 * do not divide each other (every rank then holds all of them), it is the rank alone. */
static void the_kv_group_follows_the_model(void **state) {
    static const struct {
        int tp, kv_heads, rank;
        ndp_group expected;
    } cases[] = {{8, 2, 13, {12, 1, 4, 1}}, {8, 8, 13, {13, 1, 1, 0}}, {4, 8, 6, {6, 1, 1, 0}},
                 {8, 1, 13, {8, 1, 8, 5}},  {7, 3, 6, {6, 1, 1, 0}},   {8, 3, 13, {13, 1, 1, 0}},
                 {8, 0, 13, {13, 1, 1, 0}}};
    (void)state;
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_layout l = {{1, 2, 1, 1, 1, cases[i].tp, 1}};
        ndp_mesh_facts facts = {.kv_heads = cases[i].kv_heads};
        ndp_mesh mesh;
        CHECK_OK(ndp_mesh_init(&l, cases[i].rank, cases[i].kv_heads ? &facts : NDP_NO_MODEL, &mesh));
        ndp_group g = ndp_mesh_group(&mesh, NDP_GROUP_KV);
        assert_memory_equal(&g, &cases[i].expected, sizeof g);
    }
}

static void bad_meshes(void **state) {
    (void)state;
    ndp_mesh mesh;
    ndp_layout one = NDP_LAYOUT_ONE, open = {{1, 0, 1, 1, 1, 1, 1}}, huge = {{65536, 65536, 1, 1, 1, 1, 1}};
    CHECK_FAILS(ndp_mesh_init(&one, 1, NDP_NO_MODEL, &mesh), NDP_EINVAL, "rank 1 is not one of the 1 ranks");
    CHECK_FAILS(ndp_mesh_init(&one, -1, NDP_NO_MODEL, &mesh), NDP_EINVAL, "rank -1");
    CHECK_FAILS(ndp_mesh_init(&open, 0, NDP_NO_MODEL, &mesh), NDP_EINVAL, "dp_replicate_size is 0");
    CHECK_FAILS(ndp_mesh_init(&huge, 0, NDP_NO_MODEL, &mesh), NDP_EINVAL, "more than 2147483647 ranks");
}

static void text(void **state) {
    (void)state;
    char out[128], tiny[8];
    ndp_layout one = NDP_LAYOUT_ONE, l = {{1, 2, 2, 1, 1, 1, 1}}, open = {{1, 1, 0, 1, 1, 4, 2}};
    assert_string_equal(ndp_layout_text(&one, out, sizeof out), "one rank");
    assert_string_equal(ndp_layout_text(&l, out, sizeof out), "dp_replicate 2 x dp_shard 2");
    assert_string_equal(ndp_layout_text(&open, out, sizeof out), "dp_shard auto x tp 4 with ep 2");
    assert_string_equal(ndp_layout_text(&l, tiny, sizeof tiny), "dp_repl");
}

static void batch_equation(void **state) {
    (void)state;
    ndp_layout l = {{2, 2, 3, 4, 1, 2, 1}}; /* pp, cp and tp see the same samples */
    ndp_batch_plan b;
    CHECK_OK(ndp_batch_resolve(&l, 48, 2, &b));
    assert_int_equal(b.accumulation, 4);
    assert_int_equal(b.data_ranks, 6);
    assert_int_equal(b.global_batch, 48);
    assert_int_equal(b.micro_batch, 2);
    CHECK_FAILS(ndp_batch_resolve(&l, 50, 2, &b), NDP_EINVAL, "nearest global batches are 48 and 60");
    CHECK_FAILS(ndp_batch_resolve(&l, 50, 2, &b), NDP_EINVAL, "micro batch 2 x dp_replicate 2 x dp_shard 3");
    CHECK_FAILS(ndp_batch_resolve(&l, 5, 2, &b), NDP_EINVAL, "the smallest global batch is 12");
    CHECK_FAILS(ndp_batch_resolve(&l, 5, INT32_MAX, &b), NDP_EINVAL, "the smallest global batch is 12884901882");
    CHECK_FAILS(ndp_batch_resolve(&l, 0, 2, &b), NDP_EINVAL, "must be positive");
    CHECK_FAILS(ndp_batch_resolve(&l, 2, -1, &b), NDP_EINVAL, "must be positive");
    assert_int_equal(b.accumulation, 4);
}

/* Ranks that agree with `mesh` in the axes outside of first..last, with their numbers among those of the axes. */
static int number_in_axes(const ndp_mesh *mesh, ndp_axis first, ndp_axis last) {
    int number = 0;
    for (int axis = (int)first; axis <= (int)last; axis++)
        number = number * mesh->layout.size[axis] + mesh->coord[axis];
    return number;
}

/* The group has exactly the ranks that agree outside of the axes and of which `together` says that they belong to one
 * part; their places are in the order of the ranks. */
static void check_part(const ndp_layout *l, int rank, ndp_axis first, ndp_axis last, ndp_group g,
                       bool (*together)(int a, int b, const int *n), const int *n) {
    ndp_mesh mine, other;
    int place = 0;
    CHECK_OK(ndp_mesh_init(l, rank, NDP_NO_MODEL, &mine));
    for (int r = 0; r < mine.world; r++) {
        bool member = true;
        CHECK_OK(ndp_mesh_init(l, r, NDP_NO_MODEL, &other));
        for (int axis = 0; axis < NDP_AXES; axis++)
            member &= (axis >= (int)first && axis <= (int)last) || other.coord[axis] == mine.coord[axis];
        if (!member || !together(number_in_axes(&mine, first, last), number_in_axes(&other, first, last), n))
            continue;
        assert_int_equal(g.base + place * g.stride, r);
        if (r == rank)
            assert_int_equal(g.rank, place);
        place++;
    }
    assert_int_equal(g.count, place);
}

static bool in_one_block(int a, int b, const int *n) { return a / *n == b / *n; }
static bool at_one_place(int a, int b, const int *n) { return a % *n == b % *n; }
static bool alone_or_paired(int a, int b, const int *pair) {
    return a == b || (a == pair[0] && b == pair[1]) || (a == pair[1] && b == pair[0]);
}

/* Blocks of every size of dp_shard x cp x sp, as experts divide it, and those at one place of each block. */
static void parts_of_axes(void **state) {
    static const ndp_layout of[] = {{{2, 1, 4, 3, 2, 2, 1}}, {{1, 2, 8, 1, 1, 3, 1}}, {{2, 2, 1, 2, 2, 1, 1}}};
    (void)state;
    for (int i = 0; i < NDP_COUNT(of); i++)
        for (int rank = 0; rank < world_of(&of[i]); rank++) {
            ndp_mesh mesh;
            CHECK_OK(ndp_mesh_init(&of[i], rank, NDP_NO_MODEL, &mesh));
            ndp_group g = ndp_mesh_group(&mesh, NDP_GROUP_SHARD);
            for (int n = 1; n <= g.count; n++)
                if (g.count % n == 0) {
                    check_part(&of[i], rank, NDP_DP_SHARD, NDP_SP, ndp_group_inner(g, n), in_one_block, &n);
                    check_part(&of[i], rank, NDP_DP_SHARD, NDP_SP, ndp_group_outer(g, n), at_one_place, &n);
                }
        }
}

/* Every pair of four stages, in either order, and no pair; each row has its own. */
static void the_tie_groups_are_pairs_of_stages(void **state) {
    (void)state;
    const ndp_layout l = {{4, 1, 2, 1, 1, 2, 1}};
    static const ndp_group_kind kinds[] = {NDP_GROUP_TIE, NDP_GROUP_TIE_2, NDP_GROUP_TIE_3};
    _Static_assert(NDP_COUNT(kinds) == NDP_TIES, "a row for each pair");
    for (int pairs = 0; pairs < 16; pairs++)
        for (int rank = 0; rank < 16; rank++) {
            const int pair[] = {pairs / 4, pairs % 4}, back[] = {pair[1], pair[0]}, other[] = {pair[0], 4};
            for (int k = 0; k < NDP_TIES; k++) {
                ndp_mesh_facts facts = {0};
                ndp_mesh mesh;
                facts.ties.of[k][0] = pair[0], facts.ties.of[k][1] = pair[1];
                CHECK_OK(ndp_mesh_init(&l, rank, &facts, &mesh));
                for (int kind = 0; kind < NDP_TIES; kind++)
                    check_part(&l, rank, NDP_PP, NDP_PP, ndp_mesh_group(&mesh, kinds[kind]), alone_or_paired,
                               kind == k ? pair : (const int[]){0, 0});
                ndp_group_kind found = pair[0] == pair[1] ? NDP_GROUPS : kinds[k];
                assert_int_equal(ndp_mesh_pair(&mesh, pair), found);
                assert_int_equal(ndp_mesh_pair(&mesh, back), found);
                assert_int_equal(ndp_mesh_pair(&mesh, other), NDP_GROUPS);
            }
        }
}

/* Experts are shared by blocks of ranks, tp innermost; the owners of one expert are at one place of each block. */
static void the_groups_of_experts_are_parts(void **state) {
    (void)state;
    for (int ep = 1; ep <= 24; ep++)
        for (int rank = 0; rank < 96; rank++) {
            const ndp_layout l = {{2, 2, 4, 1, 2, 3, ep}};
            ndp_mesh mesh;
            CHECK_OK(ndp_mesh_init(&l, rank, NDP_NO_MODEL, &mesh));
            if (24 % ep != 0)
                continue;
            check_part(&l, rank, NDP_DP_SHARD, NDP_TP, ndp_mesh_group(&mesh, NDP_GROUP_EP), in_one_block, &ep);
            check_part(&l, rank, NDP_DP_SHARD, NDP_TP, ndp_mesh_group(&mesh, NDP_GROUP_EXPERT_SHARD),
                       ep > 1 ? at_one_place : in_one_block, &ep);
        }
}

static void groups_span_axes(void **state) {
    (void)state;
    assert_true(ndp_group_spans(NDP_GROUP_DATA, NDP_DP_REPLICATE) && ndp_group_spans(NDP_GROUP_DATA, NDP_DP_SHARD));
    assert_false(ndp_group_spans(NDP_GROUP_DATA, NDP_PP) || ndp_group_spans(NDP_GROUP_DATA, NDP_CP));
    assert_true(ndp_group_spans(NDP_GROUP_TIE, NDP_PP) && ndp_group_spans(NDP_GROUP_KV, NDP_TP));
}

/* Groups within a replica are those of the world, without the axis dp_replicate. */
static void a_replica_is_a_mesh(void **state) {
    const ndp_layout l = {{2, 3, 2, 2, 1, 2, 1}};
    (void)state;
    for (int rank = 0; rank < world_of(&l); rank++) {
        ndp_mesh mesh;
        CHECK_OK(ndp_mesh_init(&l, rank, NDP_NO_MODEL, &mesh));
        ndp_mesh one = ndp_mesh_of_replica(&mesh);
        assert_int_equal(one.world, 16);
        ndp_group world = ndp_mesh_group(&one, NDP_GROUP_WORLD), data = ndp_mesh_group(&one, NDP_GROUP_DATA),
                  replicas = ndp_mesh_group(&one, NDP_GROUP_REPLICATE);
        assert_int_equal(world.count, 16);
        assert_int_equal(world.rank, one.rank);
        assert_int_equal(world.base, 0);
        assert_int_equal(data.count, 2);
        assert_int_equal(data.rank, mesh.coord[NDP_DP_SHARD]);
        assert_int_equal(replicas.count, 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_and_coordinates_round_trip),
                                       cmocka_unit_test(groups_partition_the_world),
                                       cmocka_unit_test(groups_of_a_small_mesh),
                                       cmocka_unit_test(the_kv_group_follows_the_model),
                                       cmocka_unit_test(parts_of_axes),
                                       cmocka_unit_test(the_tie_groups_are_pairs_of_stages),
                                       cmocka_unit_test(the_groups_of_experts_are_parts),
                                       cmocka_unit_test(groups_span_axes),
                                       cmocka_unit_test(a_replica_is_a_mesh),
                                       cmocka_unit_test(bad_meshes),
                                       cmocka_unit_test(text),
                                       cmocka_unit_test(batch_equation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
