/* linear_stack, linear_stack_dx and linear_stack_dw.
 *
 * The product of each group is cut into tiles of at most ROWS x COLS elements, and a thread computes one tile after the
 * other (ndp_gemm_tile), of any group: all threads are busy, however uneven the groups are. How products are cut
 * depends on the groups alone, so the number of threads changes no bit. An addend (an earlier gradient) is written to a
 * tile first and its product accumulates, so that the sum is rounded once. */
#include "ops/cpu/cpu_gemm.h"
#include "ops/linear_stack.h"

#include <omp.h>

/* Multiples of the panels and strips of all our kernels (14 and 32 rows, 32 columns). */
enum { ROWS = 224, COLS = 256, UNIT = 32 };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Like all tiles of the call, and as large as any of them. */
static ndp_gemm_shape largest_tile(const ndp_product *p, const ndp_op_call *c) {
    ndp_stack_part all = ndp_stack_rows(p, c, 0, 0, c->in[0].rows);
    ndp_gemm_shape s = ndp_gemm_shape_of(&all.a, p->trans_a, &all.b, p->trans_b, &all.c, false, c->exec);
    s.m = smaller(s.m, ROWS), s.n = smaller(s.n, COLS);
    s.threads = 1;
    return s;
}

static size_t product_scratch(const ndp_product *p, const ndp_op_call *c) {
    ndp_gemm_shape s = largest_tile(p, c);
    return (size_t)c->exec->threads * ndp_gemm_tile_scratch(&s);
}

static ndp_status prepare_product(ndp_op_call *c) {
    (void)c;
    return ndp_gemm_ready();
}

/* ---- one tile ---- */

typedef struct stack_tile {
    int64_t row, rows, col, cols; /* of the group's result */
} stack_tile;

static int64_t parts_of(int64_t size, int64_t most) { return (size + most - 1) / most; }
static int64_t tiles_of(const ndp_stack_part *g) { return parts_of(g->c.rows, ROWS) * parts_of(g->c.cols, COLS); }

/* Part i of n of about equal sizes. */
static int64_t part_at(int64_t size, int64_t i, int64_t n) {
    return smaller((size + UNIT - 1) / UNIT * i / n * UNIT, size);
}

/* Tile i of the group: row by row of tiles. */
static stack_tile tile_at(const ndp_stack_part *g, int64_t i) {
    int64_t down = parts_of(g->c.rows, ROWS), across = parts_of(g->c.cols, COLS);
    stack_tile t = {.row = part_at(g->c.rows, i / across, down), .col = part_at(g->c.cols, i % across, across)};
    t.rows = part_at(g->c.rows, i / across + 1, down) - t.row;
    t.cols = part_at(g->c.cols, i % across + 1, across) - t.col;
    return t;
}

static void *element(const ndp_view *v, int64_t row, int64_t col) {
    return (char *)v->data + (size_t)(row * v->ld + col) * ndp_dtype_size(v->dtype);
}

static void put_addend(const ndp_stack_part *g, const stack_tile *t) {
    for (int64_t i = t->row; i < t->row + t->rows; i++)
        ndp_convert(element(&g->added, i, t->col), g->added.dtype, element(&g->c, i, t->col), g->c.dtype, t->cols);
}

static void run_tile(const ndp_product *p, const ndp_op_call *c, const ndp_stack_part *g, stack_tile t, void *scratch) {
    bool adds = ndp_present(&g->added) || (p->trans_a && c->attr->accumulate);
    ndp_gemm_shape s = ndp_gemm_shape_of(&g->a, p->trans_a, &g->b, p->trans_b, &g->c, adds, c->exec);
    s.m = t.rows, s.n = t.cols, s.threads = 1;
    if (ndp_present(&g->added) && g->added.data != g->c.data)
        put_addend(g, &t);
    if (ndp_present(&g->b) && s.k > 0) {
        const void *a = p->trans_a ? element(&g->a, 0, t.row) : element(&g->a, t.row, 0);
        const void *b = p->trans_b ? element(&g->b, t.col, 0) : element(&g->b, 0, t.col);
        ndp_gemm_tile(&s, a, b, element(&g->c, t.row, t.col), scratch);
    } else if (!adds) { /* rows of no group, or a group without rows */
        ndp_view to = {element(&g->c, t.row, t.col), g->c.dtype, t.rows, t.cols, g->c.ld};
        ndp_view_clear(&to);
    }
}

/* ---- all tiles ---- */

/* Where a thread is in the tiles of a call. It goes forward only. */
typedef struct stack_cursor {
    ndp_stack_part group;
    int64_t e, before; /* tiles of the groups before e */
} stack_cursor;

/* Moves on to the group of tile i; false: there is no such tile. */
static bool find(const ndp_product *p, const ndp_op_call *c, int64_t i, stack_cursor *at) {
    while (i - at->before >= tiles_of(&at->group)) {
        if (at->e == ndp_stack_groups(c))
            return false;
        at->before += tiles_of(&at->group);
        at->group = ndp_stack_group(p, c, ++at->e);
    }
    return true;
}

/* The part of one thread: the tiles that it asks for first. `next`: the first that was not asked for. */
static void run_tiles(const ndp_product *p, const ndp_op_call *c, int64_t *next, void *scratch) {
    stack_cursor at = {.group = ndp_stack_group(p, c, 0)};
    int64_t i = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
    while (find(p, c, i, &at)) {
        run_tile(p, c, &at.group, tile_at(&at.group, i - at.before), scratch);
        i = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
    }
}

static ndp_status run_product(const ndp_product *p, const ndp_op_call *c) {
    ndp_gemm_shape largest = largest_tile(p, c);
    size_t bytes = ndp_gemm_tile_scratch(&largest);
    int64_t next = 0;
    if (c->exec->threads == 1) {
        run_tiles(p, c, &next, c->scratch);
        return NDP_OK;
    }
#pragma omp parallel num_threads(c->exec->threads)
    run_tiles(p, c, &next, (char *)c->scratch + (size_t)omp_get_thread_num() * bytes);
    return NDP_OK;
}

#define PRODUCT(op)                                                                                                    \
    static ndp_status run_##op(const ndp_op_call *c) { return run_product(&ndp_product_##op, c); }                     \
    static size_t scratch_##op(const ndp_op_call *c) { return product_scratch(&ndp_product_##op, c); }                 \
    const ndp_kernel ndp_cpu_##op = {.run = run_##op, .scratch = scratch_##op, .prepare = prepare_product};

PRODUCT(linear_stack)
PRODUCT(linear_stack_dx)
PRODUCT(linear_stack_dw)
