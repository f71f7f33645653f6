/* Byte ranges of ndp_program_order: an all_reduce of some columns of a matrix is pending while a kernel writes other
 * memory. A program of four calls, written here. */
#include "check.h"
#include "step/program_parts.h"

#include <stdlib.h>

typedef struct place {
    size_t offset; /* bytes */
    int64_t rows, cols, ld;
} place;

static ndp_operand operand(const place *p, int block) {
    return (ndp_operand){.base = block,
                         .value = NDP_NONE,
                         .offset = p->offset,
                         .view = {.dtype = NDP_F32, .rows = p->rows, .cols = p->cols, .ld = p->ld}};
}

static ndp_status try_writes(const place *pending, const place *written, int block) {
    const ndp_exec exec = {.device = &ndp_device_null, .threads = 1};
    const ndp_model none = {0};
    ndp_program p = {.opts = {.step.exec = &exec, .model = &none}};
    ndp_address work[2];
    for (int i = 0; i < 2; i++)
        CHECK_OK(ndp_block_keep(&p, NDP_MEM_WORK, NDP_REGION_ARENA, 1024, &work[i]));
    p.blocks[1].offset = 1024;
    const ndp_op_attr attr = {.group = NDP_GROUP_TP, .ranks = 2};
    ndp_operand sum = operand(pending, work[0].block), x = operand(written, work[block].block);
    ndp_instr begin = {.code = NDP_DO_CALL, .what = "sum", .buffer = NDP_NONE};
    CHECK_OK(ndp_call_init(&begin.call, &p.arena, &ndp_op_all_reduce, &attr, &sum, 1, &sum, 1));
    begin.call.what = "sum";
    CHECK_OK(ndp_emit(&p, begin));
    CHECK_OK(ndp_emit_kernel(&p, &ndp_op_zero, &attr, &x, 1, &x, 1, "x"));
    CHECK_OK(ndp_emit_wait(&p, 0));
    ndp_status st = ndp_program_order(&p);
    ndp_program_release(&p);
    return st;
}

/* Of a matrix of 4 x 8 elements: 32 bytes a row. */
static void columns_of_a_matrix(void **state) {
    (void)state;
    static const place left = {0, 4, 4, 8};
    static const struct {
        place written;
        bool refused;
    } cases[] = {{{16, 4, 4, 8}, false},          /* the other columns */
                 {{12, 4, 4, 8}, true},           /* one column of them: the last */
                 {{16, 4, 5, 8}, true},           /* the first column of the next row */
                 {{16, 4, 1, 8}, false},          /* the first column beside them */
                 {{28, 4, 1, 8}, false},          /* the last one */
                 {{4 * 32, 1, 8, 8}, false},      /* the row after the last */
                 {{3 * 32 + 12, 1, 1, 1}, true},  /* the last element */
                 {{3 * 32 + 16, 1, 1, 1}, false}, /* the one after it */
                 {{16, 4, 4, 12}, true},          /* another pitch: refused if the hulls meet */
                 {{0, 4, 4, 8}, true}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_status st = try_writes(&left, &cases[i].written, 0);
        assert_int_equal(st, cases[i].refused ? NDP_EBUG : NDP_OK);
        if (st != NDP_OK)
            assert_non_null(strstr(ndp_error_message(), "memory of #0 all_reduce"));
        /* the same, the other way round: what is pending has the higher address */
        assert_int_equal(try_writes(&cases[i].written, &left, 0), cases[i].refused ? NDP_EBUG : NDP_OK);
        assert_int_equal(try_writes(&left, &cases[i].written, 1), NDP_OK); /* another block, elsewhere */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(columns_of_a_matrix)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
