/* Lists that repeat a range of calls, on ref: as often as was planned, or as a count in the data says. */
#include "graph/small_graph.h"

#include <math.h>

enum { MOST = 9, COUNT_INPUT = 0 };

/* acc = x; MOST times, or as often as the count says: acc += gelu(x); y = acc. gelu(x) is made before the
 * range and read in it: its memory must be its own until the last iteration is over. */
typedef struct repeated {
    ndp_graph g;
    ndp_inputs inputs;
    ndp_unit_program p;
    double x[T * C], y[T * C];
    int64_t count;
} repeated;

static const ndp_exec exec = {.device = &ndp_device_ref, .threads = 1};

static int op(repeated *r, const ndp_op *o, const char *name, int a, int b, int out) {
    int ins[] = {a, b};
    const ndp_op_attr attr = {.type = NDP_F64}; /* of a copy */
    ndp_graph_op(&r->g, o, &attr, name, ins, o->n_in, &out, 1);
    return out;
}

static void build(repeated *r, bool counted) {
    *r = (repeated){.inputs.rows = {[NDP_EXTENT_ONE] = 1}};
    ndp_inputs_add(&r->inputs, (ndp_input){"count", NDP_INPUT_TOKENS, NDP_EXTENT_ONE, 1, NDP_I64, NULL, 0});
    ndp_graph_init(&r->g, "repeated", NDP_F64, NDP_F64);
    r->g.inputs = &r->inputs;
    int count = ndp_graph_data(&r->g, COUNT_INPUT), x = ndp_graph_input(&r->g, T, C);
    int acc = ndp_graph_value(&r->g, "acc", T, C, NDP_F64);
    op(r, &ndp_op_copy, "start", x, NDP_NONE, acc);
    int add = op(r, &ndp_op_gelu, "add", x, NDP_NONE, NDP_NONE);
    int sum = op(r, &ndp_op_add, "sum", acc, add, NDP_NONE);
    int again = op(r, &ndp_op_copy, "again", sum, NDP_NONE, NDP_NONE); /* may not have the memory of `add` */
    op(r, &ndp_op_copy, "acc", again, NDP_NONE, acc);
    ndp_graph_repeat(&r->g, NDP_NODES_FORWARD, 2, MOST, counted ? count : NDP_NONE, NDP_NONE);
    ndp_graph_output(&r->g, op(r, &ndp_op_copy, "y", acc, NDP_NONE, NDP_NONE));
    CHECK_OK(r->g.status);
    CHECK_OK(ndp_lower(&r->g, &(ndp_lower_opts){.exec = &exec}, &r->p));
    for (int i = 0; i < T * C; i++)
        r->x[i] = 0.1 * i - 1;
}

static void end(repeated *r) {
    ndp_unit_program_release(&r->p);
    ndp_graph_release(&r->g);
}

static ndp_status run(repeated *r) {
    const ndp_list *list = &r->p.lists[NDP_FORWARD];
    void *bases[NDP_BASES] = {[NDP_BASE_INPUT] = r->x, [NDP_BASE_OUTPUT] = r->y, [NDP_BASE_DATA] = &r->count};
    bases[NDP_BASE_WORK] = aligned_alloc(64, (list->work_bytes + 64) / 64 * 64);
    memset(bases[NDP_BASE_WORK], 0x7f, list->work_bytes);
    ndp_status st = ndp_list_run(list, &(ndp_call_opts){.exec = &exec, .bases = bases});
    free(bases[NDP_BASE_WORK]);
    return st;
}

static void check_y(const repeated *r, int64_t times) {
    for (int i = 0; i < T * C; i++) {
        double x = r->x[i], gelu = 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
        double exact = 0.5 * x * (1 + erf(x / sqrt(2)));
        double wanted = x + (double)times * gelu, other = x + (double)times * exact;
        if (fabs(r->y[i] - wanted) > 1e-12 && fabs(r->y[i] - other) > 1e-12)
            fail_msg("element %d is %.15g after %lld times", i, r->y[i], (long long)times);
    }
}

static void a_planned_number_of_times(void **state) {
    (void)state;
    repeated r;
    build(&r, false);
    CHECK_OK(run(&r));
    check_y(&r, MOST);
    end(&r);
}

static void as_often_as_the_data_say(void **state) {
    (void)state;
    repeated r;
    build(&r, true);
    for (r.count = 0; r.count <= MOST; r.count++) {
        CHECK_OK(run(&r));
        check_y(&r, r.count);
    }
    CHECK_FAILS(run(&r), NDP_EINVAL, "10 times; a count from 0 to 9 was planned");
    r.count = -1;
    CHECK_FAILS(run(&r), NDP_EINVAL, "-1 times");
    end(&r);
}

/* Operations and prices count the range as often as it is planned, and not at all where the data decide; the printer
 * says so. */
static void sums_and_text(void **state) {
    (void)state;
    repeated r;
    ndp_str text = {0};
    for (int counted = 0; counted < 2; counted++) {
        build(&r, counted);
        const ndp_list *list = &r.p.lists[NDP_FORWARD];
        double flops = 0;
        assert_int_equal(list->repeats.n, 1);
        for (int i = 0; i < list->n; i++)
            flops += (i < 2 || i > 4 ? 1 : counted ? 0 : MOST) * list->calls[i].flops;
        assert_true(flops > 0 && list->flops == flops);
        if (!counted)
            end(&r);
    }
    ndp_list_print(&r.p, NDP_FORWARD, NULL, &text);
    assert_non_null(strstr(text.data, "  .2 to .4 x at most 9 count[1,1]@data\n  .2 add:"));
    ndp_str_release(&text);
    end(&r);
}

static void refusals(void **state) {
    (void)state;
    repeated r;
    build(&r, false);
    CHECK_FAILS(ndp_graph_derive(&r.g), NDP_EBUG, "no rule for the backward of nodes that repeat");
    ndp_graph_repeat(&r.g, NDP_NODES_FORWARD, 3, 2, NDP_NONE, NDP_NONE);
    CHECK_FAILS(r.g.status, NDP_EBUG, "another range has them");
    end(&r);
}

/* Calls of a range are told which iteration it is: a round of rows with capacity for one, the index-th after the first.
 */
static void iterations_are_numbered(void **state) {
    (void)state;
    const ndp_op_attr one = {.experts = 1, .ranks = 1, .capacity = 1};
    int32_t choices[T] = {0};
    int outs[] = {NDP_NONE, NDP_NONE, NDP_NONE, NDP_NONE, NDP_NONE};
    repeated r = {.count = T - 2, .inputs.rows = {[NDP_EXTENT_ONE] = 1, [NDP_EXTENT_TOKENS] = T}};
    ndp_inputs_add(&r.inputs, (ndp_input){"count", NDP_INPUT_TOKENS, NDP_EXTENT_ONE, 1, NDP_I64, NULL, 0});
    ndp_inputs_add(&r.inputs, (ndp_input){"choices", NDP_INPUT_LABELS, NDP_EXTENT_TOKENS, 1, NDP_I32, NULL, 0});
    ndp_graph_init(&r.g, "numbered", NDP_F64, NDP_F64);
    r.g.inputs = &r.inputs;
    int count = ndp_graph_data(&r.g, COUNT_INPUT), all = ndp_graph_data(&r.g, COUNT_INPUT + 1);
    int index = ndp_graph_value(&r.g, "index", 1, 1, NDP_I64);
    ndp_graph_op(&r.g, &ndp_op_route_exchange, &one, "order", (int[]){all, index}, 2, outs, 5);
    ndp_graph_repeat(&r.g, NDP_NODES_FORWARD, 0, MOST, count, index);
    CHECK_OK(r.g.status);
    CHECK_OK(ndp_lower(&r.g, &(ndp_lower_opts){.exec = &exec}, &r.p));
    const ndp_list *list = &r.p.lists[NDP_FORWARD];
    int32_t *work = aligned_alloc(64, (list->work_bytes + 64) / 64 * 64);
    void *bases[NDP_BASES] = {[NDP_BASE_DATA] = &r.count, [NDP_BASE_DATA + 1] = choices, [NDP_BASE_WORK] = work};
    CHECK_OK(ndp_list_run(list, &(ndp_call_opts){.exec = &exec, .bases = bases}));
    for (int t = 0; t < T; t++) /* the last one is in the last of count rounds: places of all others are -1 */
        assert_int_equal(work[list->calls[0].out[1].offset / sizeof *work + (size_t)t], t == T - 2 ? 0 : -1);
    free(work);
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_planned_number_of_times),
                                       cmocka_unit_test(as_often_as_the_data_say), cmocka_unit_test(sums_and_text),
                                       cmocka_unit_test(iterations_are_numbered), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
