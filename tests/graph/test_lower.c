/* Lowering, read as text (tests/graph/golden/): where values live (x, y, dy, dx: boundary; saved; between; work;
 * param, grad: flat buffers; data), what the recompute runs, where collectives begin and are waited for. */
#include "small_graph.h"

static void lower_as(const ndp_graph *g, bool selective, ndp_unit_program *p) {
    ndp_exec exec = {.device = &ndp_device_ref, .threads = 1};
    ndp_lower_opts opts = {.exec = &exec, .selective = selective};
    CHECK_OK(ndp_lower(g, &opts, p));
}

static void lower(const ndp_graph *g, ndp_unit_program *p) { lower_as(g, false, p); }

/* The lists of phases `first` to `last`. */
static void check_phases(const ndp_unit_program *p, const ndp_mesh *mesh, int first, int last, const char *golden) {
    ndp_str text = {0};
    ndp_str_addf(&text, "saved %zu bytes, between %zu, input %zu, output %zu\n", p->saved_bytes, p->between_bytes,
                 p->input_bytes, p->output_bytes);
    for (int phase = first; phase <= last; phase++) {
        const ndp_list *list = &p->lists[phase];
        ndp_list_print(p, (ndp_phase)phase, mesh, &text);
        ndp_str_addf(&text, "  reads%s%s%s\n", ndp_list_names(list, NDP_BASE_PARAM) ? " param0" : "",
                     ndp_list_names(list, NDP_BASE_INPUT) ? " x" : "",
                     ndp_list_names(list, NDP_BASE_GRAD_OUTPUT) ? " dy" : "");
    }
    check_golden(golden, &text);
}

static ndp_mesh one_rank(void) {
    ndp_layout l = NDP_LAYOUT_ONE;
    ndp_mesh mesh;
    CHECK_OK(ndp_mesh_init(&l, 0, NDP_NO_MODEL, &mesh));
    return mesh;
}

/* A value used by one phase alone is in work memory, one that the backward reads is saved (in the dropping forward
 * it is work), one made by the input's backward for the weights' is between. The recompute makes what is saved, and
 * not the output. */
static void homes_of_values(void **state) {
    (void)state;
    small_graph s;
    ndp_unit_program p;
    ndp_mesh mesh = one_rank();
    small_block(&s);
    CHECK_OK(ndp_graph_derive(&s.g));
    lower(&s.g, &p);
    check_phases(&p, &mesh, NDP_FORWARD, NDP_BACKWARD_WEIGHT, "graph/golden/lower_block.txt");
    ndp_unit_program_release(&p);
    ndp_graph_release(&s.g);
}

/* Of the products left, right and back the first and the third may be kept; the last is not read again. So the
 * recompute copies left, makes right of the norm, and the rest of both. The other lists are as before. */
static void a_selective_recompute(void **state) {
    (void)state;
    small_graph s;
    ndp_unit_program p, block;
    ndp_mesh mesh = one_rank();
    small_block(&s);
    CHECK_OK(ndp_graph_derive(&s.g));
    lower(&s.g, &block);
    lower_as(&s.g, true, &p);
    assert_int_equal(p.kept_bytes, 64); /* 4 rows of 6 columns of bf16, 48 bytes */
    assert_int_equal(block.kept_bytes, 0);
    check_phases(&p, &mesh, NDP_FORWARD_DROP, NDP_RECOMPUTE, "graph/golden/lower_selective.txt");
    for (int phase = 0; phase < NDP_PHASES; phase++) {
        bool same = phase != NDP_FORWARD_DROP && phase != NDP_RECOMPUTE;
        ndp_str texts[2] = {{0}};
        ndp_list_print(&p, (ndp_phase)phase, &mesh, &texts[0]);
        ndp_list_print(&block, (ndp_phase)phase, &mesh, &texts[1]);
        assert_true(same == (strcmp(texts[0].data, texts[1].data) == 0));
        ndp_str_release(&texts[0]);
        ndp_str_release(&texts[1]);
    }
    ndp_unit_program_release(&block);
    ndp_unit_program_release(&p);
    ndp_graph_release(&s.g);
}

/* A sum over tp is kept, so that a recompute neither makes its summands nor communicates. */
static void a_selective_recompute_sums_nothing_again(void **state) {
    (void)state;
    small_graph s;
    ndp_unit_program p[2];
    ndp_op_attr tp = {.group = NDP_GROUP_TP, .ranks = 3};
    small_begin(&s, "sums");
    int x = ndp_graph_input(&s.g, T, C);
    int a = small_op(&s, &ndp_op_linear, NULL, "a", x, small_param(&s, LEFT, 1), NDP_NONE);
    int b = small_op(&s, &ndp_op_linear, NULL, "b", a, small_param(&s, RIGHT, 1), NDP_NONE);
    int sum = small_op(&s, &ndp_op_all_reduce, &tp, "sum", b, NDP_NONE, NDP_NONE);
    int act = small_op(&s, &ndp_op_gelu, NULL, "act", sum, NDP_NONE, NDP_NONE);
    ndp_graph_output(&s.g, small_op(&s, &ndp_op_linear, NULL, "y", act, small_param(&s, BACK, 1), NDP_NONE));
    CHECK_OK(ndp_graph_derive(&s.g));
    for (int selective = 0; selective < 2; selective++) {
        int begins = 0, products = 0;
        lower_as(&s.g, selective, &p[selective]);
        const ndp_list *again = &p[selective].lists[NDP_RECOMPUTE];
        for (int i = 0; i < again->n; i++)
            begins += again->calls[i].kind == NDP_CALL_BEGIN, products += again->calls[i].op == &ndp_op_linear;
        assert_int_equal(begins, !selective);
        assert_int_equal(products, selective ? 0 : 2);
        ndp_unit_program_release(&p[selective]);
    }
    ndp_graph_release(&s.g);
}

/* ---- collectives ---- */

/* Two groups: each collective begins where its operand is ready and is waited for before the first use of its result;
 * a later one of the same group is waited for after it. */
static void collective_graph(small_graph *s) {
    ndp_op_attr cp = {.group = NDP_GROUP_CP, .ranks = 2}, tp = {.group = NDP_GROUP_TP, .ranks = 3};
    small_begin(s, "collective");
    int x = ndp_graph_input(&s->g, T, C);
    int all = small_op(s, &ndp_op_all_gather, &tp, "all", x, NDP_NONE, NDP_NONE);
    int next = small_op(s, &ndp_op_shift, &cp, "next", x, NDP_NONE, NDP_NONE);
    int last = small_op(s, &ndp_op_shift, &cp, "last", x, NDP_NONE, NDP_NONE);
    int act = small_op(s, &ndp_op_gelu, NULL, "act", x, NDP_NONE, NDP_NONE);      /* waits for nothing */
    int used = small_op(s, &ndp_op_gelu, NULL, "used", last, NDP_NONE, NDP_NONE); /* also waits for `next` */
    int sum = small_op(s, &ndp_op_add, NULL, "sum", act, next, NDP_NONE);
    (void)small_op(s, &ndp_op_linear, NULL, "wide", all, small_param(s, BACK, 1), NDP_NONE);
    int reduced = small_op(s, &ndp_op_all_reduce, &tp, "sum", sum, NDP_NONE, NDP_NONE);
    ndp_graph_output(&s->g, small_op(s, &ndp_op_add, NULL, "y", used, reduced, NDP_NONE));
}

static bool same_storage(const small_graph *s, const ndp_operand *a, const ndp_operand *b) {
    return a->value != NDP_NONE && b->value != NDP_NONE && s->g.values[a->value].root == s->g.values[b->value].root;
}

/* No call between a begin and its wait uses the result or writes the operand; each begin has one wait after it. */
static void check_pairs(const small_graph *s, const ndp_list *list) {
    int begins = 0, waits = 0;
    for (int i = 0; i < list->n; i++) {
        const ndp_call *c = &list->calls[i];
        waits += c->kind == NDP_CALL_WAIT;
        if (c->kind != NDP_CALL_BEGIN)
            continue;
        begins++;
        assert_in_range(c->partner, i + 1, list->n - 1);
        assert_int_equal(list->calls[c->partner].partner, i);
        for (int k = i + 1; k < c->partner; k++) {
            const ndp_call *between = &list->calls[k];
            if (between->kind == NDP_CALL_WAIT)
                continue;
            for (int n = 0; n < between->n_in; n++)
                assert_false(same_storage(s, &between->in[n], &c->out[0]));
            for (int n = 0; n < between->n_out; n++)
                assert_false(same_storage(s, &between->out[n], &c->out[0]) ||
                             same_storage(s, &between->out[n], &c->in[0]));
        }
        for (int k = 0; k < i; k++)
            if (list->calls[k].kind == NDP_CALL_BEGIN && list->calls[k].attr.group == c->attr.group)
                assert_true(list->calls[k].partner < c->partner);
    }
    assert_int_equal(begins, waits);
}

static void waits_come_before_uses(void **state) {
    (void)state;
    small_graph s;
    ndp_unit_program p;
    ndp_layout l = NDP_LAYOUT_ONE;
    ndp_mesh mesh;
    l.size[NDP_CP] = 2, l.size[NDP_TP] = 3;
    CHECK_OK(ndp_mesh_init(&l, 0, NDP_NO_MODEL, &mesh));
    collective_graph(&s);
    lower(&s.g, &p);
    check_pairs(&s, &p.lists[NDP_FORWARD]);
    assert_int_equal(p.lists[NDP_RECOMPUTE].n, 0); /* nothing is saved: forward only */
    check_phases(&p, &mesh, NDP_FORWARD, NDP_FORWARD, "graph/golden/lower_collectives.txt");
    ndp_unit_program_release(&p);
    ndp_graph_release(&s.g);
}

/* Work memory is what lives there: an op without scratch takes none. */
static void calls_without_scratch_take_none(void **state) {
    (void)state;
    small_graph s;
    ndp_unit_program p;
    small_begin(&s, "plain");
    int x = ndp_graph_input(&s.g, T, C);
    int a = small_op(&s, &ndp_op_gelu, NULL, "a", x, NDP_NONE, NDP_NONE);
    ndp_graph_output(&s.g, small_op(&s, &ndp_op_gelu, NULL, "y", a, NDP_NONE, NDP_NONE));
    lower(&s.g, &p);
    assert_int_equal(p.lists[NDP_FORWARD].work_bytes, 64); /* a: 48 bytes */
    ndp_unit_program_release(&p);
    ndp_graph_release(&s.g);
}

/* ---- refusals ---- */

/* The output's block may be gone when the backward runs. Here z = w y has a gradient of its own, and dw reads y. */
static void an_output_read_by_its_backward(void **state) {
    (void)state;
    small_graph s;
    ndp_unit_program p;
    ndp_exec exec = {.device = &ndp_device_ref, .threads = 1};
    ndp_lower_opts opts = {.exec = &exec};
    small_begin(&s, "own");
    int x = ndp_graph_input(&s.g, T, C);
    int y = small_op(&s, &ndp_op_gelu, NULL, "y", x, NDP_NONE, NDP_NONE);
    int z = small_op(&s, &ndp_op_linear, NULL, "z", y, small_param(&s, BACK, 1), NDP_NONE);
    ndp_graph_op(&s.g, &ndp_op_given_gradient, &(ndp_op_attr){.train = true}, "given", (int[]){z, x}, 2, NULL, 0);
    ndp_graph_output(&s.g, y);
    CHECK_OK(ndp_graph_derive(&s.g));
    CHECK_FAILS(ndp_lower(&s.g, &opts, &p), NDP_EBUG, "unit own: its output is used by its own backward");
    ndp_graph_release(&s.g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(homes_of_values),
                                       cmocka_unit_test(a_selective_recompute),
                                       cmocka_unit_test(a_selective_recompute_sums_nothing_again),
                                       cmocka_unit_test(waits_come_before_uses),
                                       cmocka_unit_test(calls_without_scratch_take_none),
                                       cmocka_unit_test(an_output_read_by_its_backward)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
