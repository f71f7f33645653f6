/* How rows are cut: every row of the padded micro-batch belongs to one rank, attention's rows and keys are those of the
 * ranks that it says, zig-zag gives equal work under a causal mask. */
#include "parallel/row_cut.h"

#include "check.h"
#include <stdlib.h>
#include <string.h>

static ndp_mesh mesh_of(int cp, int sp, int tp, int rank) {
    ndp_layout l = NDP_LAYOUT_ONE;
    ndp_mesh mesh;
    l.size[NDP_CP] = cp, l.size[NDP_SP] = sp, l.size[NDP_TP] = tp;
    CHECK_OK(ndp_mesh_init(&l, rank, NDP_NO_MODEL, &mesh));
    return mesh;
}

/* Each row once over cp x sp, by whole padded slices; attention's rows are those of the sp ranks one behind the other.
 */
static void check_rows(int64_t rows, int cp, int sp, int tp, const ndp_parallel *how) {
    int *seen = calloc((size_t)(rows + 2 * cp * sp * tp), sizeof *seen);
    int64_t padded = 0;
    for (int rank = 0; rank < cp * sp * tp; rank += tp) {
        ndp_mesh mesh = mesh_of(cp, sp, tp, rank);
        ndp_row_cut r = ndp_cut_rows(rows, &mesh, how);
        padded = r.padded;
        assert_true(r.padded >= rows && r.padded < rows + 2 * cp * sp * tp);
        assert_int_equal(r.tokens * cp * sp, r.padded);
        assert_int_equal(r.slice * (how->tp_sequence_parallel ? tp : 1), r.tokens);
        assert_int_equal(r.routed, r.tokens); /* without ep */
        assert_int_equal(r.queries, r.tokens * sp);
        for (int64_t i = 0; i < r.tokens; i++) {
            int64_t t = ndp_row_cut_at(&r, NDP_EXTENT_TOKENS, i);
            assert_in_range(t, 0, r.padded - 1);
            seen[t]++;
            assert_int_equal(t, ndp_row_cut_at(&r, NDP_EXTENT_QUERIES, mesh.coord[NDP_SP] * r.tokens + i));
        }
    }
    for (int64_t t = 0; t < padded; t++)
        assert_int_equal(seen[t], 1);
    free(seen);
}

/* Keys: all rows once; turn k of a ring has the rows of the rank k before this one, a gather those of rank k. */
static void check_keys(int64_t rows, int cp, const ndp_parallel *how) {
    for (int rank = 0; rank < cp; rank++) {
        ndp_mesh mesh = mesh_of(cp, 1, 1, rank);
        ndp_row_cut r = ndp_cut_rows(rows, &mesh, how);
        assert_int_equal(r.keys, r.padded);
        for (int64_t i = 0; i < r.keys; i++) {
            int block = (int)(i / r.queries), of = how->cp_method == NDP_CP_RING ? (rank - block + cp) % cp : block;
            ndp_mesh other = mesh_of(cp, 1, 1, of);
            ndp_row_cut owner = ndp_cut_rows(rows, &other, how);
            assert_int_equal(ndp_row_cut_at(&r, NDP_EXTENT_KEYS, i),
                             ndp_row_cut_at(&owner, NDP_EXTENT_QUERIES, i % r.queries));
        }
    }
}

static void every_row_has_one_owner(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 7, 64, 250, 1000};
    for (int l = 0; l < NDP_COUNT(lengths); l++)
        for (int cp = 1; cp <= 5; cp++)
            for (int bits = 0; bits < 8; bits++) {
                ndp_parallel how = {bits & 1, bits & 2 ? NDP_CP_ALL_GATHER : NDP_CP_RING, bits & 4, 0, 0, 1.5};
                for (int sp = 1; sp <= 4; sp++)
                    for (int tp = 1; tp <= 3; tp++)
                        check_rows(lengths[l], cp, sp, tp, &how);
                check_keys(lengths[l], cp, &how);
            }
}

static int64_t causal_pairs(const ndp_row_cut *r) {
    int64_t sum = 0;
    for (int64_t i = 0; i < r->queries; i++)
        sum += ndp_row_cut_at(r, NDP_EXTENT_QUERIES, i) + 1;
    return sum;
}

static void zigzag_is_balanced(void **state) {
    (void)state;
    for (int cp = 2; cp <= 8; cp++) {
        ndp_parallel zigzag = NDP_PARALLEL_INIT, contiguous = NDP_PARALLEL_INIT;
        contiguous.cp_zigzag = false;
        ndp_mesh first = mesh_of(cp, 1, 1, 0), last = mesh_of(cp, 1, 1, cp - 1);
        ndp_row_cut a = ndp_cut_rows(4096, &first, &zigzag), b = ndp_cut_rows(4096, &last, &zigzag);
        assert_int_equal(causal_pairs(&a), causal_pairs(&b));
        a = ndp_cut_rows(4096, &first, &contiguous), b = ndp_cut_rows(4096, &last, &contiguous);
        assert_true(causal_pairs(&b) > 2 * causal_pairs(&a));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_has_one_owner), cmocka_unit_test(zigzag_is_balanced)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
