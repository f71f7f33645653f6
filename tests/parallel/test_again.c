/* What a rank keeps of a unit: nothing that it gathered. */
#include "check.h"
#include "model/decoder.h"
#include "parallel/apply.h"

enum { ROWS = 24 };

/* The derived graph of a rank of tp 2 x cp 2 whose keys are gathered. */
static void apply(ndp_model *whole, ndp_model *local) {
    static const char config[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 37, \"num_hidden_layers\": 2, \"hidden_size\": 16, "
        "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": 17, "
        "\"max_position_embeddings\": 64}";
    ndp_model_opts opts = {
        .mode = NDP_MODEL_TRAIN, .rows = ROWS, .keys = ROWS, .positions = ROWS, .compute = NDP_BF16, .master = NDP_F32};
    ndp_parallel how = NDP_PARALLEL_INIT;
    how.cp_method = NDP_CP_ALL_GATHER;
    ndp_layout l = NDP_LAYOUT_ONE;
    ndp_facts facts;
    ndp_mesh mesh;
    l.size[NDP_CP] = l.size[NDP_TP] = 2;
    CHECK_OK(ndp_facts_parse_text(config, "tiny", &facts));
    CHECK_OK(ndp_decoder_build(&facts, &opts, whole));
    CHECK_OK(ndp_mesh_init(&l, 0, &(ndp_mesh_facts){.kv_heads = facts.kv_heads}, &mesh));
    CHECK_OK(ndp_parallel_apply(whole, &mesh, &how, &(ndp_stages){0}, local));
}

static bool reads(const ndp_graph *g, ndp_node_list list, int value) {
    for (int i = 0; i < g->nodes[list].n; i++)
        for (int k = 0; k < g->nodes[list].items[i].n_in; k++)
            if (g->nodes[list].items[i].in[k] == value)
                return true;
    return false;
}

static int gathers(const ndp_graph *g, ndp_node_list list, ndp_group_kind group) {
    int n = 0;
    for (int i = 0; i < g->nodes[list].n; i++) {
        const ndp_node *node = &g->nodes[list].items[i];
        n += node->op == &ndp_op_all_gather && node->attr.group == (int)group;
    }
    return n;
}

/* Of a block: the rows of two norms over tp for the weights, keys and values over cp for the input. The gathers of
 * gradients over tp, conjugates of two reduce_scatters, are the input's. */
static void nothing_gathered_is_kept(void **state) {
    (void)state;
    ndp_model whole, local;
    apply(&whole, &local);
    for (int i = 0; i < local.n_graphs; i++) {
        const ndp_graph *g = &local.graphs[i];
        const ndp_nodes *forward = &g->nodes[NDP_NODES_FORWARD];
        for (int k = 0; k < forward->n; k++)
            if (forward->items[k].op == &ndp_op_all_gather) {
                assert_false(reads(g, NDP_NODES_INPUT_GRAD, forward->items[k].out[0]));
                assert_false(reads(g, NDP_NODES_WEIGHT_GRAD, forward->items[k].out[0]));
            }
        if (strcmp(g->name, "block") == 0) {
            assert_int_equal(gathers(g, NDP_NODES_WEIGHT_GRAD, NDP_GROUP_TP), 2);
            assert_int_equal(gathers(g, NDP_NODES_INPUT_GRAD, NDP_GROUP_CP), 2);
            assert_int_equal(gathers(g, NDP_NODES_INPUT_GRAD, NDP_GROUP_TP), 2);
        }
    }
    ndp_model_release(&local);
    ndp_model_release(&whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_gathered_is_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
