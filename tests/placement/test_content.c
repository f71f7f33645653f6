/* Contents of memory against an array with an entry for each element: random matrices are written, read and
 * overwritten, as columns and rows of one another and in other shapes. */
#include "base/rng.h"
#include "check.h"
#include "placement/content.h"

#include <string.h>

enum { BYTES = 360, SIZE = 4, STEPS = 4000 };

/* What each element of memory holds; id 0: nothing. `whole`: of a tile of another shape since overwritten in part. */
typedef struct element {
    int id;
    int64_t row, col;
} element;

typedef struct memory {
    ndp_tile_map map;
    element at[BYTES / SIZE];
    ndp_arena arena;
    uint64_t draws;
} memory;

static int64_t draw(memory *m, int64_t n) { return (int64_t)ndp_rng_below(3, 3, m->draws++, (uint64_t)n); }

/* A matrix of one of a few shapes: a root, or rows and columns of it. */
static ndp_matrix draw_matrix(memory *m, int64_t ld) {
    int64_t rows = BYTES / SIZE / ld, row = draw(m, rows), col = draw(m, ld);
    int64_t n = 1 + draw(m, rows - row), cols = 1 + draw(m, ld - col);
    return (ndp_matrix){(size_t)(row * ld + col) * SIZE, (size_t)ld * SIZE, SIZE, n, cols};
}

static element *element_at(memory *m, const ndp_matrix *x, int64_t r, int64_t c) {
    return &m->at[(x->at + (size_t)r * x->ld) / SIZE + (size_t)c];
}

static void write_matrix(memory *m, const ndp_matrix *x, int id) {
    ndp_content c = ndp_content_of(&m->arena, x->rows, x->cols);
    CHECK_OK(ndp_content_add(
        &c,
        (ndp_tile){
            .rows = x->rows, .cols = x->cols, .at_row = 100, .at_col = 7, .what = {NDP_THING_VALUE, id}, .share = 1}));
    CHECK_OK(ndp_tile_map_write(&m->map, x, &c));
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t k = 0; k < x->cols; k++)
            *element_at(m, x, r, k) = (element){id, 100 + r, 7 + k};
}

/* What is read is what the array has, element by element. Of one shape nothing is missing; of several, what was written
 * in another shape may be. */
static void read_matrix(memory *m, const ndp_matrix *x, bool one_shape) {
    ndp_content c = ndp_content_of(&m->arena, x->rows, x->cols);
    int64_t seen = 0, there = 0;
    CHECK_OK(ndp_tile_map_read(&m->map, x, &c));
    for (int i = 0; i < c.n; i++)
        for (int64_t r = 0; r < c.tiles[i].rows; r++)
            for (int64_t k = 0; k < c.tiles[i].cols; k++, seen++) {
                const ndp_tile *t = &c.tiles[i];
                const element *e = element_at(m, x, t->row + r, t->col + k);
                assert_int_equal(e->id, t->what.id);
                assert_int_equal(e->row, t->at_row + r);
                assert_int_equal(e->col, t->at_col + k);
            }
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t k = 0; k < x->cols; k++)
            there += element_at(m, x, r, k)->id != 0;
    assert_true(seen <= there && (!one_shape || seen == there));
    assert_true(ndp_content_full(&c) == (seen == x->rows * x->cols));
}

static void random_writes(const int64_t *shapes, int n) {
    memory m = {.draws = (uint64_t)n << 32};
    for (int i = 1; i <= STEPS; i++) {
        ndp_matrix x = draw_matrix(&m, shapes[draw(&m, n)]);
        if (draw(&m, 2))
            write_matrix(&m, &x, i);
        else
            read_matrix(&m, &x, n == 1);
    }
    ndp_arena_release(&m.arena);
}

static void of_one_shape(void **state) {
    (void)state;
    random_writes((const int64_t[]){9}, 1);
    random_writes((const int64_t[]){1}, 1);
}

static void of_several_shapes(void **state) {
    (void)state;
    random_writes((const int64_t[]){9, 6, 15, 90, 1}, 5);
}

/* Tiles that continue each other become one, so that equal contents have equal tiles. */
static void joined(void **state) {
    (void)state;
    ndp_arena arena = {0};
    ndp_content c = ndp_content_of(&arena, 4, 6);
    for (int r = 3; r >= 0; r--)
        for (int k = 0; k < 6; k += 2)
            CHECK_OK(ndp_content_add(&c, (ndp_tile){.row = r,
                                                    .rows = 1,
                                                    .col = k,
                                                    .cols = 2,
                                                    .at_row = 8 + r,
                                                    .at_col = k < 4 ? k : 40,
                                                    .what = {NDP_THING_VALUE, 1},
                                                    .share = 1}));
    assert_true(ndp_content_full(&c));
    ndp_content_join(&c);
    assert_int_equal(c.n, 2);
    assert_int_equal(c.tiles[0].cols, 4);
    assert_int_equal(c.tiles[0].rows, 4);
    assert_int_equal(c.tiles[1].at_col, 40);
    ndp_arena_release(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_one_shape), cmocka_unit_test(of_several_shapes),
                                       cmocka_unit_test(joined)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
