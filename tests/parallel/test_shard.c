/* Which gathers are in place: those of groups that lie on one node, every group alike. */
#include "check.h"
#include "model/decoder.h"
#include "parallel/shard.h"

static ndp_model build(void) {
    static const char config[] = "{\"model_type\": \"llama\", \"vocab_size\": 10, \"num_hidden_layers\": 1, "
                                 "\"hidden_size\": 8, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
                                 "\"intermediate_size\": 6, \"max_position_embeddings\": 64}";
    ndp_model_opts o = {
        .mode = NDP_MODEL_TRAIN, .rows = 8, .keys = 8, .positions = 8, .compute = NDP_F32, .master = NDP_F32};
    ndp_facts f;
    ndp_model m;
    CHECK_OK(ndp_facts_parse_text(config, "tiny", &f));
    CHECK_OK(ndp_decoder_build(&f, &o, &m));
    return m;
}

/* Ranks of the group lie tp apart: it fills tp x dp_shard consecutive ranks. */
static void groups_on_nodes(void **state) {
    (void)state;
    static const struct {
        const char *layout;
        int node_ranks;
        bool in_place;
    } cases[] = {{"dp_shard=2", 1, false},
                 {"dp_shard=2", 2, true},
                 {"dp_replicate=2,dp_shard=2", 2, true},
                 {"dp_replicate=2,dp_shard=2", 3, false}, /* ranks 2 and 3 are on two nodes */
                 {"dp_replicate=2,dp_shard=2,tp=2", 2, false},
                 {"dp_replicate=2,dp_shard=2,tp=2", 4, true},
                 {"dp_replicate=2,dp_shard=2,tp=2", 6, false},
                 {"dp_replicate=2,dp_shard=2,tp=2", 8, true},
                 {"dp_shard=2,tp=2", 16, true}, /* one node that has room for more */
                 {"tp=2", 2, false}};           /* one shard: nothing is gathered */
    ndp_model m = build();
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_layout l;
        ndp_mesh mesh;
        CHECK_OK(ndp_layout_parse(cases[i].layout, &l));
        CHECK_OK(ndp_mesh_init(&l, 0, &(ndp_mesh_facts){.kv_heads = 2}, &mesh));
        for (int b = 0; b < m.n_buffers; b++)
            if (ndp_shard_buffer(&m, b, &mesh, cases[i].node_ranks, true).in_place != cases[i].in_place)
                fail_msg("%s on nodes of %d: %s", cases[i].layout, cases[i].node_ranks,
                         cases[i].in_place ? "not in place" : "in place");
    }
    ndp_model_release(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(groups_on_nodes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
