/* Bugs of sinks, of biases of experts and of layers with a state, by name: the placement check refuses each, and the
 * program as it is not. */
#include "placement/mutants.h"

#include <stdlib.h>

/* Changes a call; false: leaves it. `before`: what stands before it, of attention with sinks and the ops of a state;
 * `in`: its operands, of which there may be more then. */
typedef bool edit(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]);

/* Sinks counted once a piece: another turn of the ring has them too. */
static bool once_a_piece(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    if (c->op != &ndp_op_attention || c->n_in != 6 || !before)
        return false;
    in[6] = before->in[6], c->n_in = 7;
    return true;
}

static bool not_at_all(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    (void)in;
    bool has = c->op == &ndp_op_attention && c->n_in == 7 && !before;
    c->n_in -= has;
    return has;
}

/* Those of the heads of another rank of sp. */
static bool of_other_heads(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    (void)before, (void)in;
    bool has = c->op == &ndp_op_attention && c->n_in == 7;
    c->attr.first = has ? (c->attr.first + c->attr.heads) % (2 * c->attr.heads) : c->attr.first;
    return has;
}

/* Their gradient, of the same. */
static bool gradient_of_other_heads(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    (void)before, (void)in;
    bool has = c->op == &ndp_op_attention_dsink;
    c->attr.first = has ? (c->attr.first + c->attr.heads) % (2 * c->attr.heads) : c->attr.first;
    return has;
}

/* Every rank of tp adds all of the bias. */
static bool bias_once_a_rank(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    (void)before, (void)in;
    bool has = c->op == &ndp_op_stack_bias && c->attr.parts > 1;
    c->attr.parts = has ? 1 : c->attr.parts;
    return has;
}

static bool gradient_once_a_rank(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    (void)before, (void)in;
    bool has = c->op == &ndp_op_stack_bias_db && c->attr.parts > 1;
    c->attr.parts = has ? 1 : c->attr.parts;
    return has;
}

/* The rows of the rank beside this one, of two, of what a state gives. */
static bool rows_of_another(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    if (c->op != &ndp_op_rmsnorm || !before || before->op != &ndp_op_delta_rule ||
        in[0].view.rows == before->out[0].view.rows)
        return false;
    const ndp_view *v = &in[0].view;
    size_t half = (size_t)(v->rows * v->ld) * sizeof(double);
    in[0].offset = in[0].offset == before->out[0].offset ? in[0].offset + half : before->out[0].offset;
    return true;
}

/* Keys are filtered as queries are. */
static bool taps_of_queries(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    bool has =
        c->op == &ndp_op_conv_silu && before && before->op == c->op && before->in[1].view.rows == in[1].view.rows;
    in[1] = has ? before->in[1] : in[1];
    return has;
}

/* Documents begin where those of the next row do. */
static bool starts_of_the_next_row(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    (void)before;
    bool has = c->op == &ndp_op_delta_rule;
    in[5].offset += has ? sizeof(int32_t) : 0;
    return has;
}

/* The taps of the key heads of the other rank of two; and their gradient. */
static bool taps_of_other_heads(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    (void)before;
    bool has = c->op == &ndp_op_conv_silu;
    c->attr.first = has ? in[0].view.cols - c->attr.first : c->attr.first;
    return has;
}

static bool gradient_of_other_taps(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    (void)before;
    bool has = c->op == &ndp_op_conv_silu_dw;
    c->attr.first = has ? in[0].view.cols - c->attr.first : c->attr.first;
    return has;
}

/* ---- pieces of rows ---- */

/* The operand begins `rows` rows further on. */
static bool move_on(ndp_operand *o, int64_t rows) {
    o->offset += (size_t)(rows * o->view.ld) * sizeof(double);
    return rows > 0;
}

/* The states before the pieces of the other rank; and the gradients behind them. */
static bool state_of_another_piece(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    (void)before;
    bool has = c->op == &ndp_op_delta_states && in[1].base == NDP_NONE;
    c->attr.place = has ? 1 - c->attr.place : c->attr.place;
    return has;
}
static bool gradient_of_another_piece(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    (void)before;
    bool has = c->op == &ndp_op_delta_states && in[1].base != NDP_NONE;
    c->attr.place = has ? 1 - c->attr.place : c->attr.place;
    return has;
}

/* The state of the late piece for both, or of none. */
static bool state_of_the_late_piece(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    (void)before;
    return c->op == &ndp_op_delta_rule && c->n_in == 7 && move_on(&in[6], in[6].view.rows / 2);
}
static bool no_state(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    (void)before;
    bool has = c->op == &ndp_op_delta_rule && c->n_in == 7;
    in[6].base = has ? NDP_NONE : in[6].base;
    return has;
}

/* Maps composed in another order: each is that of the next piece of those that ranks hand in. */
static bool maps_of_the_next_piece(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    (void)before;
    return c->op == &ndp_op_delta_states && in[1].base == NDP_NONE && move_on(&in[0], in[0].view.rows / 4);
}

/* Maps that go on over documents: they begin where those of the next row do. */
static bool maps_over_documents(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    (void)before;
    bool has = c->op == &ndp_op_delta_map;
    in[4].offset += has ? sizeof(int32_t) : 0;
    return has;
}

/* Rows before a piece that are of the next one; and the same where their gradient is made. */
static bool rows_before_another_piece(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    (void)before;
    return c->op == &ndp_op_conv_silu && c->n_in == 4 && move_on(&in[3], in[3].view.rows / 4);
}
static bool rows_before_pieces_of_another_rank(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    (void)before;
    bool has = c->op == &ndp_op_conv_silu && c->n_in == 4 && in[3].base != NDP_NONE;
    c->attr.place = has ? 1 - c->attr.place : c->attr.place;
    return has;
}
static bool gradient_to_another_piece(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    (void)before, (void)in;
    bool has = c->op == &ndp_op_conv_silu_dends;
    c->attr.place = has ? 1 - c->attr.place : c->attr.place;
    return has;
}

/* The gradient of rows at the ends of pieces is left out. */
static bool no_gradient_of_ends(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    (void)before;
    bool has = c->op == &ndp_op_piece_ends_dx;
    in[0] = has ? in[1] : in[0], in[0].view.rows = has ? (int64_t)c->attr.parts * c->attr.ends : in[0].view.rows;
    return has;
}

/* Keys are another head's: k stands where q does. */
static bool keys_are_queries(ndp_call *c, const ndp_call *before, ndp_operand in[NDP_OP_MAX_IN]) {
    (void)before;
    bool has = c->op == &ndp_op_delta_rule_bwd;
    in[2] = has ? in[1] : in[2];
    return has;
}

/* Edits a list; `room`: of the operands of a call that changed. */
static int edit_list(ndp_list *list, edit *make, ndp_operand (**room)[NDP_OP_MAX_IN]) {
    const ndp_call *before = NULL;
    int n = 0;
    for (int i = 0; i < list->n; i++) {
        ndp_call *c = &list->calls[i];
        ndp_operand in[NDP_OP_MAX_IN];
        if (c->kind != NDP_CALL_KERNEL)
            continue;
        memcpy(in, c->in, (size_t)c->n_in * sizeof *in);
        bool sinks = c->op == &ndp_op_attention && c->n_in == 7;
        if (make(c, before, in)) {
            *room = calloc(1, sizeof **room);
            memcpy(**room, in, sizeof in);
            c->in = **room;
            room++, n++;
        }
        before = sinks || c->op == &ndp_op_conv_silu || c->op == &ndp_op_delta_rule ? c : before;
    }
    return n;
}

static void check_refused(const char *model, int axis, edit *make, const char *words) {
    static ndp_operand(*rooms[1024])[NDP_OP_MAX_IN];
    ndp_layout l = NDP_LAYOUT_ONE;
    ndp_facts f;
    planned w;
    int n = 0;
    const world_model *m = world_models;
    while (strcmp(m->name, model) != 0)
        m++;
    l.size[axis] = 2;
    const world_way y = {.layout = l,
                         .parallel = {.tp_sequence_parallel = true, .cp_method = NDP_CP_RING, .cp_zigzag = true},
                         .gathered = true,
                         .compute = NDP_F64,
                         .optimizer = NDP_ADAMW,
                         .kind = NDP_PIPELINE_1F1B,
                         .chunks = 1,
                         .micro_batches = 1};
    world_facts(m, world_layers(&y), &f);
    world_init(&w, m->name, &f, &y, &ndp_device_ref);
    world_plan(&w, NULL, 0);
    CHECK_OK(check_placement(&w));
    for (int i = 0; i < w.n; i++)
        for (int g = 0; g < w.programs[i]->opts.model->n_graphs; g++)
            for (int phase = 0; phase < NDP_PHASES; phase++)
                n += edit_list((ndp_list *)&w.programs[i]->opts.units[g].lists[phase], make, &rooms[n]);
    assert_true(n > 0);
    CHECK_FAILS(check_placement(&w), NDP_EBUG, words);
    for (int i = 0; i < n; i++)
        free(rooms[i]);
    world_release(&w);
}

static void sinks(void **state) {
    (void)state;
    check_refused("sinks", NDP_CP, once_a_piece, "over some of the keys");
    check_refused("sinks", NDP_CP, not_at_all, "over some of the keys");
    check_refused("sinks", NDP_DP_SHARD, not_at_all, "over some of the keys");
    check_refused("sinks", NDP_SP, of_other_heads, "which is another head's");
    check_refused("sinks", NDP_SP, gradient_of_other_heads, "which is another head's");
}

static void biases(void **state) {
    (void)state;
    check_refused("sinks", NDP_TP, bias_once_a_rank, "placement: ");
    check_refused("sinks", NDP_TP, gradient_once_a_rank, "placement: ");
}

static void states(void **state) {
    (void)state;
    check_refused("states", NDP_SP, rows_of_another, "placement: ");
    check_refused("states", NDP_TP, taps_of_queries, "placement: ");
    check_refused("states", NDP_CP, taps_of_queries, "placement: ");
    check_refused("states", NDP_CP, starts_of_the_next_row, "placement: ");
    check_refused("states", NDP_SP, keys_are_queries, "placement: ");
    check_refused("states", NDP_SP, taps_of_other_heads, "its taps begin at row");
    check_refused("states", NDP_SP, gradient_of_other_taps, "its taps begin at row");
}

static void pieces(void **state) {
    (void)state;
    check_refused("states", NDP_CP, state_of_another_piece, "from the state after row");
    check_refused("states", NDP_CP, gradient_of_another_piece, "from the gradient of the state at row");
    check_refused("states", NDP_CP, state_of_the_late_piece, "placement: ");
    check_refused("states", NDP_CP, no_state, "have no state before them");
    check_refused("states", NDP_CP, maps_of_the_next_piece, "it composes the map of rows");
    check_refused("states", NDP_CP, maps_over_documents, "placement: ");
    check_refused("states", NDP_CP, rows_before_another_piece, "placement: ");
    check_refused("states", NDP_CP, rows_before_pieces_of_another_rank, "begins with row");
    check_refused("states", NDP_CP, gradient_to_another_piece, "placement: ");
    check_refused("states", NDP_CP, no_gradient_of_ends, "placement: ");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sinks), cmocka_unit_test(biases), cmocka_unit_test(states),
                                       cmocka_unit_test(pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
