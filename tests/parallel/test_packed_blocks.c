/* Packed models that cannot be built or cut: nothing is cut through a block of nf4, and what is trained is not packed.
 * Which sizes of tp there are is decided here, before anything is allocated. */
#include "check.h"
#include "model/decoder.h"
#include "parallel/apply.h"

#define MODEL(type, hidden, heads, kv, dim, ffn)                                                                       \
    "{\"model_type\": \"" type "\", \"vocab_size\": 10, \"num_hidden_layers\": 2, \"hidden_size\": " #hidden           \
    ", \"num_attention_heads\": " #heads ", \"num_key_value_heads\": " #kv ", \"head_dim\": " #dim                     \
    ", \"intermediate_size\": " #ffn ", \"max_position_embeddings\": 64}"

static ndp_status build(const char *config, ndp_packing base, const char *frozen, ndp_model *out) {
    ndp_facts f;
    ndp_model_opts o = {.mode = NDP_MODEL_TRAIN,
                        .rows = 8,
                        .keys = 8,
                        .positions = 8,
                        .compute = NDP_F32,
                        .master = NDP_F32,
                        .base = base,
                        .frozen = &frozen,
                        .n_frozen = frozen != NULL};
    CHECK_OK(ndp_facts_parse_text(config, "packed", &f));
    return ndp_decoder_build(&f, &o, out);
}

static ndp_status apply(const ndp_model *whole, int tp) {
    ndp_layout layout = NDP_LAYOUT_ONE;
    ndp_mesh mesh;
    ndp_model local;
    const ndp_parallel how = NDP_PARALLEL_INIT;
    layout.size[NDP_TP] = tp;
    NDP_TRY(ndp_mesh_init(&layout, tp - 1, &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(whole)}, &mesh));
    NDP_TRY(ndp_parallel_apply(whole, &mesh, &how, &(ndp_stages){0}, &local));
    ndp_model_release(&local);
    return NDP_OK;
}

/* Taken is exactly what cuts no block, whichever the model. */
static void sizes_of_tp(void **state) {
    static const struct {
        const char *config;
        ndp_packing base;
        int taken[8];      /* of the sizes 1, 2, 4 and 8, up to 0 */
        const char *words; /* of the others */
    } cases[] = {
        {MODEL("llama", 96, 8, 4, 64, 512), NDP_PACKING_NF4, {1, 2, 4, 8}, NULL},
        {MODEL("llama", 96, 8, 4, 64, 256),
         NDP_PACKING_NF4,
         {1, 2, 4},
         "tp_size 8 cuts model.layers.0.mlp.down_proj.weight [96, 256] through blocks of 64 elements, which nf4 stores "
         "together; tp_size may be 1, 2, 4"},
        {MODEL("llama", 96, 8, 4, 16, 512),
         NDP_PACKING_NF4,
         {1, 2},
         "model.layers.0.self_attn.o_proj.weight [96, 128] through blocks of 64 elements"},
        /* Rows of 90 are not whole blocks: down cannot be cut, and of gate 8 ranks have 8 rows each. */
        {MODEL("llama", 90, 8, 8, 64, 64),
         NDP_PACKING_NF4,
         {1},
         "through blocks of 64 elements, which nf4 stores together; tp_size may be 1"},
        {MODEL("llama", 90, 8, 8, 8, 64), NDP_PACKING_INT8, {1, 2, 4, 8}, NULL},
        /* Fused: k and v begin after 8 x 36 rows of q, 405 blocks, or after 4 x 36, within a block. */
        {MODEL("phi3", 90, 8, 8, 36, 64), NDP_PACKING_NF4, {1}, "through blocks of 64 elements"},
        {MODEL("phi3", 90, 4, 4, 36, 64),
         NDP_PACKING_NF4,
         {0},
         "model.layers.0.self_attn.qkv_proj.weight [432, 90] holds parts that begin within a block of 64 elements: it "
         "cannot be stored as nf4; use int8"},
        /* In turn: heads of 64 x 512 elements are whole blocks, those of 9 x 72 are not. */
        {MODEL("gpt_neox", 512, 8, 8, 64, 512), NDP_PACKING_NF4, {1, 2, 4, 8}, NULL},
        {MODEL("gpt_neox", 72, 8, 8, 9, 64),
         NDP_PACKING_NF4,
         {0},
         "gpt_neox.layers.0.attention.query_key_value.weight [216, 72] holds its parts in turn, 9 rows of each, which "
         "are not whole blocks of 64 elements: it cannot be stored as nf4; use int8"},
        {MODEL("gpt_neox", 64, 8, 8, 8, 64), NDP_PACKING_INT8, {1, 2, 4, 8}, NULL}};
    (void)state;
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_model m;
        CHECK_OK(build(cases[i].config, cases[i].base, "layers.*", &m));
        for (int tp = 1; tp <= 8; tp *= 2) {
            bool taken = false;
            for (int k = 0; cases[i].taken[k]; k++)
                taken |= cases[i].taken[k] == tp;
            if (taken)
                CHECK_OK(apply(&m, tp));
            else
                CHECK_FAILS(apply(&m, tp), NDP_ENOTSUP, cases[i].words);
        }
        ndp_model_release(&m);
    }
}

/* Only what is frozen is packed, and all layers are alike. */
static void what_is_trained_is_not_packed(void **state) {
    static const char config[] = MODEL("llama", 64, 4, 2, 16, 64);
    ndp_model m;
    (void)state;
    CHECK_FAILS(build(config, NDP_PACKING_NF4, NULL, &m), NDP_EINVAL,
                "the projections of layers.0.kept are stored as nf4, and cannot be trained so; freeze all layers "
                "(model.frozen: [layers.*])");
    CHECK_FAILS(build(config, NDP_PACKING_INT8, "layers.0", &m), NDP_EINVAL, "of layers.1.kept are stored as int8");
    CHECK_OK(build(config, NDP_PACKING_NF4, "layers.*", &m));
    for (int b = 0; b < m.n_buffers; b++) {
        const ndp_buffer *buffer = &m.buffers[b];
        bool packed = ndp_buffer_is_packed(buffer);
        assert_int_equal(packed, strstr(buffer->name, ".kept") != NULL);
        assert_int_equal(buffer->storage.kept, packed ? NDP_U8 : NDP_F32);
        assert_int_equal(buffer->storage.compute, NDP_F32);
        for (int k = 0; k < buffer->segments.n; k++)
            assert_int_equal(buffer->segments.items[k].projection, packed);
    }
    ndp_model_release(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_of_tp), cmocka_unit_test(what_is_trained_is_not_packed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
