#include "base/arena.h"
#include "check.h"

#include <stdlib.h>

static void carves_zeroed_aligned_memory(void **state) {
    (void)state;
    ndp_arena a = {0};
    unsigned char *blocks[3000];
    size_t total = 0;
    for (int i = 0; i < NDP_COUNT(blocks); i++) {
        size_t bytes = i % 500 == 499 ? 200000 : (size_t)(i * 37 % 301);
        blocks[i] = ndp_arena_alloc(&a, bytes);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 16, 0);
        for (size_t k = 0; k < bytes; k++)
            assert_int_equal(blocks[i][k], 0);
        memset(blocks[i], i % 255 + 1, bytes);
        total += bytes;
    }
    for (int i = 0; i < NDP_COUNT(blocks); i++) { /* none overwrote another */
        size_t bytes = i % 500 == 499 ? 200000 : (size_t)(i * 37 % 301);
        for (size_t k = 0; k < bytes; k++)
            assert_int_equal(blocks[i][k], i % 255 + 1);
    }
    assert_in_range(a.total, total, total + 16 * NDP_COUNT(blocks));
    ndp_arena_release(&a);
    assert_null(a.chunks);
    ndp_arena_release(&a);
}

static void text(void **state) {
    (void)state;
    ndp_arena a = {0};
    assert_string_equal(ndp_arena_strdup(&a, "name"), "name");
    assert_string_equal(ndp_arena_format(&a, "layers.%d.%s", 7, "mlp"), "layers.7.mlp");
    assert_string_equal(ndp_arena_format(&a, "%s", ""), "");
    ndp_arena_release(&a);
}

static void too_much_is_refused(void **state) {
    (void)state;
    ndp_arena a = {0};
    assert_null(ndp_arena_alloc(&a, SIZE_MAX));
    assert_null(ndp_arena_alloc(&a, SIZE_MAX - 40));
    assert_int_equal(a.total, 0);
    int *items = NULL;
    int64_t capacity = 0;
    CHECK_FAILS(ndp_array_reserve(&items, &capacity, INT64_MAX, sizeof *items), NDP_ENOMEM, "not enough memory");
    assert_null(items);
    assert_int_equal(capacity, 0);
    ndp_arena_release(&a);
}

static void arrays_grow_and_keep(void **state) {
    (void)state;
    int *items = NULL;
    int64_t capacity = 0, moves = 0, before = 0;
    for (int i = 0; i < 10000; i++) {
        CHECK_OK(ndp_array_reserve(&items, &capacity, i + 1, sizeof *items));
        moves += capacity != before;
        before = capacity;
        items[i] = i;
    }
    for (int i = 0; i < 10000; i++)
        assert_int_equal(items[i], i);
    assert_in_range(moves, 1, 15); /* doubling */
    free(items);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(carves_zeroed_aligned_memory), cmocka_unit_test(text),
                                       cmocka_unit_test(too_much_is_refused), cmocka_unit_test(arrays_grow_and_keep)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
