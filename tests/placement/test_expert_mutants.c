/* Bugs of expert parallelism by name, as trainers had them, in lists of ranks that share experts: each is refused. */
#include "placement/mutants.h"

static const char *const mixture = "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 37, \"num_hidden_layers\": 2, "
                                   "\"hidden_size\": 12, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "
                                   "\"head_dim\": 6, \"max_position_embeddings\": 64, \"num_experts\": 5, "
                                   "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 7, "
                                   "\"intermediate_size\": 17, \"decoder_sparse_step\": 1}";

/* With a bias that moves. */
static const char *const scored = "{\"model_type\": \"glm4_moe\", \"vocab_size\": 37, \"num_hidden_layers\": 2, "
                                  "\"hidden_size\": 12, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "
                                  "\"head_dim\": 6, \"partial_rotary_factor\": 0.7, \"max_position_embeddings\": 64, "
                                  "\"n_routed_experts\": 5, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 7, "
                                  "\"intermediate_size\": 17, \"first_k_dense_replace\": 0}";

/* A bug is a mutation of a call of `op` over `group` whose result is named so; several calls may be it. */
typedef struct named_bug {
    const char *bug;
    mutation_kind kind;
    const ndp_op *op;
    int group;         /* 0: it is no collective */
    const char *value; /* a part of its name; NULL: any */
} named_bug;

static const named_bug bugs[] = {
    {"the router is detached", MUTATION_SKIPPED, &ndp_op_route_dx, 0, NULL},
    {"the weights of choices have no gradient", MUTATION_SKIPPED, &ndp_op_weigh_rows_dw, 0, NULL},
    {"rows, or their gradients, are not weighted", MUTATION_SKIPPED, &ndp_op_weigh_rows, 0, NULL},
    {"rows, or their gradients, are weighted twice", MUTATION_TWICE, &ndp_op_weigh_rows, 0, NULL},
    {"the router has gradients of its own rank's experts alone", MUTATION_DROPPED, &ndp_op_all_to_all_rows,
     NDP_GROUP_EP, "choices"},
    {"rows lack what other ranks' experts made", MUTATION_DROPPED, &ndp_op_all_to_all_rows, NDP_GROUP_EP, "experts"},
    {"rows lack the gradient by other ranks' experts", MUTATION_DROPPED, &ndp_op_all_to_all_rows, NDP_GROUP_EP, "mid"},
    {"rows go to other ranks", MUTATION_GROUP, &ndp_op_all_to_all_rows, NDP_GROUP_EP, NULL},
    {"rows go the way back", MUTATION_NUMBER, &ndp_op_all_to_all_rows, NDP_GROUP_EP, NULL},
    {"choices are of other ranks", MUTATION_GROUP, &ndp_op_all_gather, NDP_GROUP_EP, NULL},
    {"rows go as those of a neighbour", MUTATION_NUMBER, &ndp_op_route_exchange, 0, NULL},
    {"rows go to a neighbour's experts", MUTATION_NUMBER, &ndp_op_route_order, 0, NULL},
    {"a round is lost", MUTATION_RANGE, &ndp_op_route_exchange, 0, NULL},
    {"rows of later rounds do not come back", MUTATION_SKIPPED, &ndp_op_give_rows, 0, NULL},
    {"counts of the balance loss lack the rows of other ranks of tp", MUTATION_DROPPED, &ndp_op_all_reduce,
     NDP_GROUP_TP, "counts"},
    {"counts of the balance loss lack the rows of other ranks of cp", MUTATION_DROPPED, &ndp_op_all_reduce,
     NDP_GROUP_CP, "counts"},
    {"loads lack the rows of other ranks of tp", MUTATION_DROPPED, &ndp_op_all_reduce, NDP_GROUP_TP, "loads"},
    {"loads lack the rows of other ranks of cp and dp", MUTATION_DROPPED, &ndp_op_all_reduce, NDP_GROUP_LOSS, "loads"},
    {"loads are those of all steps so far", MUTATION_SKIPPED, &ndp_op_zero, 0, "loads"},
    {"loads lack a layer", MUTATION_SKIPPED, &ndp_op_choice_loads, 0, NULL},
    {"a router's bias stays", MUTATION_SKIPPED, &ndp_op_router_bias_step, 0, NULL},
    {"a router's bias moves twice", MUTATION_TWICE, &ndp_op_router_bias_step, 0, NULL},
    {"a router's bias moves by something else", MUTATION_OPERAND, &ndp_op_router_bias_step, 0, NULL},
    {"experts are reduced over the ranks of other experts", MUTATION_GROUP, &ndp_op_reduce_scatter,
     NDP_GROUP_EXPERT_SHARD, NULL},
    {"experts are not reduced", MUTATION_DROPPED, &ndp_op_reduce_scatter, NDP_GROUP_EXPERT_SHARD, NULL},
    {"the norm lacks the experts of other ranks of tp", MUTATION_DROPPED, &ndp_op_all_reduce, NDP_GROUP_TP, NULL}};

static const ndp_call *call_at(const planned *w, const mutation *m, const char **value) {
    const ndp_program *p = w->programs[0];
    const ndp_call *c;
    if (m->site.graph == NDP_NONE)
        return NULL;
    c = &p->opts.units[m->site.graph].lists[m->site.phase].calls[m->site.call];
    *value = c->n_out > 0 && c->out[0].value != NDP_NONE
                 ? p->opts.units[m->site.graph].graph->values[c->out[0].value].name
                 : "";
    return c;
}

static bool is_bug(const planned *w, const mutation *m, const named_bug *b) {
    const char *value = m->site.what ? m->site.what : "";
    const ndp_call *c = call_at(w, m, &value);
    const ndp_op *op = c ? c->op : m->site.code == NDP_DO_CALL ? m->site.op : NULL;
    int group = c ? c->attr.group : m->site.channel >= 0 ? (int)ndp_channel_group(m->site.channel) : 0;
    return m->kind == b->kind && op == b->op && (!b->group || group == b->group) &&
           (!b->value || strstr(value, b->value)) &&
           (b->kind != MUTATION_NUMBER || m->which == NDP_ATTR_first || m->which == NDP_ATTR_inverse);
}

/* Whether the placement check refuses it, and how often it came up. */
static int try_bug(const planned *w, const mutations *all, const named_bug *b) {
    int tried = 0;
    for (int i = 0; i < all->n; i++) {
        journal j[64] = {{.n = 0}};
        bool any = false;
        if (!is_bug(w, &all->items[i], b))
            continue;
        for (int r = 0; r < w->n; r++)
            any |= mutation_apply(&all->items[i], (ndp_program *)w->programs[r], &j[r]);
        ndp_status st = any ? check_placement(w) : NDP_EBUG;
        undo_all(w, j);
        char text[MUTANT_TEXT];
        if (st == NDP_OK)
            fail_msg("not refused: %s: %s", b->bug, mutation_text(&all->items[i], w->programs[0], text, sizeof text));
        tried += any;
    }
    return tried;
}

static void try_bugs(const ndp_layout *layout, bool whole_rows, const char *config, const ndp_router_opts *router,
                     int *tried) {
    world_way y = world_choices(layout, 5);
    mutations all = {0};
    planned w;
    ndp_facts f;
    y.optimizer = NDP_ADAMW, y.reduce_once = false;
    y.router = *router;
    y.parallel.capacity_factor = 1, y.parallel.tp_sequence_parallel = !whole_rows;
    CHECK_OK(ndp_facts_parse_text(config, "mixture", &f));
    world_init(&w, "mixture", &f, &y, &ndp_device_ref);
    world_plan(&w, NULL, 0);
    CHECK_OK(check_placement(&w));
    list_mutations(&w, &all);
    for (int b = 0; b < NDP_COUNT(bugs); b++)
        tried[b] += try_bug(&w, &all, &bugs[b]);
    free(all.items);
    world_release(&w);
}

/* cp cuts rows, tp slices them, of all that its ranks have or have alike, and ranks of ep differ on dp_shard, cp and
 * tp. */
static void bugs_with_names_are_refused(void **state) {
    static const ndp_layout layouts[] = {
        {{1, 1, 2, 2, 1, 2, 4}}, {{1, 1, 2, 2, 1, 2, 2}}, {{1, 1, 3, 1, 1, 2, 2}}, {{1, 2, 1, 2, 1, 2, 4}}};
    int tried[NDP_COUNT(bugs)] = {0};
    (void)state;
    for (int i = 0; i < NDP_COUNT(layouts); i++) {
        try_bugs(&layouts[i], i % 2, mixture, &(ndp_router_opts){NDP_BALANCE_SEQUENCE, 0.1, 0.01, 0}, tried);
        try_bugs(&layouts[i], i % 2, scored, &(ndp_router_opts){.bias_rate = 1e-3}, tried);
    }
    for (int b = 0; b < NDP_COUNT(bugs); b++)
        if (tried[b] == 0)
            fail_msg("never came up: %s", bugs[b].bug);
}

/* What a rank of tp has of its slice of a value that all of them have becomes the slice of the first one: of what
 * nodes make, or with `inputs` also of the batch. Returns how many operands that are. */
static int take_first_slice(const ndp_program *p, bool inputs) {
    int tp = p->opts.step.mesh.coord[NDP_TP], moved = 0;
    for (int k = 0; k < p->opts.model->n_graphs * NDP_PHASES; k++) {
        const ndp_graph *g = p->opts.units[k / NDP_PHASES].graph;
        const ndp_list *list = &p->opts.units[k / NDP_PHASES].lists[k % NDP_PHASES];
        for (int i = 0; i < list->n; i++)
            for (int o = 0; o < list->calls[i].n_in && list->calls[i].kind != NDP_CALL_WAIT; o++) {
                ndp_operand *in = &list->calls[i].in[o];
                const ndp_value *v = in->base == NDP_NONE ? NULL : &g->values[in->value];
                bool slice = v && v->row > 0 && v->row == tp * v->view.rows;
                if (!slice || (!inputs && g->values[v->root].kind == NDP_VALUE_DATA))
                    continue;
                in->offset -= (size_t)(v->row * v->view.ld) * ndp_dtype_size(v->view.dtype);
                moved++;
            }
    }
    return moved;
}

/* Where all ranks of tp have all rows, each routes and sends its slice of them, and no other one. */
static void rows_sent_twice_are_refused(void **state) {
    static const ndp_layout layouts[] = {{{1, 1, 1, 1, 1, 2, 2}}, {{1, 1, 2, 2, 1, 2, 4}}, {{1, 1, 2, 1, 1, 4, 2}}};
    (void)state;
    for (int i = 0; i < 2 * NDP_COUNT(layouts); i++) {
        world_way y = world_choices(&layouts[i / 2], 5);
        planned w;
        ndp_facts f;
        int moved = 0;
        y.parallel.tp_sequence_parallel = false, y.parallel.capacity_factor = 1;
        CHECK_OK(ndp_facts_parse_text(mixture, "mixture", &f));
        world_init(&w, "mixture", &f, &y, &ndp_device_ref);
        world_plan(&w, NULL, 0);
        CHECK_OK(check_placement(&w));
        for (int r = 0; r < w.n; r++)
            moved += take_first_slice(w.programs[r], i % 2);
        assert_true(moved > 0);
        assert_int_not_equal(check_placement(&w), NDP_OK);
        world_release(&w);
    }
}

/* Experts that count once for each rank of ep in the norm, and experts of another rank. */
static void lies_about_experts_are_refused(void **state) {
    static const lie_kind kinds[] = {LIE_COPIES, LIE_SEGMENT_COPIES, LIE_SEGMENT_MEMBERS};
    const ndp_layout layout = {{1, 1, 2, 1, 1, 2, 4}};
    world_way y = world_choices(&layout, 5);
    planned w;
    ndp_facts f;
    (void)state;
    y.optimizer = NDP_ADAMW;
    CHECK_OK(ndp_facts_parse_text(mixture, "mixture", &f));
    world_init(&w, "mixture", &f, &y, &ndp_device_ref);
    world_plan(&w, NULL, 0);
    for (int k = 0; k < NDP_COUNT(kinds); k++) {
        const ndp_model *m = w.programs[0]->opts.model;
        int told = 0;
        for (int b = 0; b < m->n_buffers; b++) {
            lie l = {.kind = kinds[k], .name = m->buffers[b].name, .of = &m->buffers[b].segments};
            const ndp_claims claims = lying_claims(&l);
            const ndp_placement_opts o = {w.programs, w.n, &claims};
            if (!ndp_segment_is_stack(&m->buffers[b].segments.items[0]))
                continue;
            assert_int_not_equal(ndp_placement_check(&o, NULL), NDP_OK);
            told += l.told;
        }
        assert_true(told > 0);
    }
    world_release(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bugs_with_names_are_refused),
                                       cmocka_unit_test(rows_sent_twice_are_refused),
                                       cmocka_unit_test(lies_about_experts_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
