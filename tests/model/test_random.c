/* Random initial values: as wide as the family's rule has them, norms and biases as they must begin. */
#include "check.h"
#include "model/decoder.h"

#include <math.h>

#define SIZES                                                                                                          \
    "\"vocab_size\": 100, \"hidden_size\": 64, \"intermediate_size\": 172, \"num_hidden_layers\": 8, "                 \
    "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"max_position_embeddings\": 64"

static void build(const char *config, ndp_model *m) {
    static ndp_facts f;
    ndp_model_opts o = {.mode = NDP_MODEL_TRAIN, .rows = 8, .positions = 8, .compute = NDP_F32, .master = NDP_F32};
    CHECK_OK(ndp_facts_parse_text(config, "config.json", &f));
    CHECK_OK(ndp_decoder_build(&f, &o, m));
}

/* Root mean square of a tensor's initial values, over the one called so in any of the buffers. */
static double size_of(const ndp_model *m, const char *name) {
    for (int b = 0; b < m->n_buffers; b++)
        for (int i = 0; i < m->buffers[b].segments.n; i++) {
            const ndp_segment *s = &m->buffers[b].segments.items[i];
            if (strcmp(s->name, name) != 0)
                continue;
            enum { SOME = 4096 };
            float x[SOME];
            int64_t n = s->whole[0] * s->whole[1] < SOME ? s->whole[0] * s->whole[1] : SOME;
            double sum = 0;
            ndp_decoder_random(ndp_decoder_facts(m), 5, s, 0, n, x);
            for (int64_t k = 0; k < n; k++)
                sum += (double)x[k] * (double)x[k];
            return sqrt(sum / (double)n);
        }
    fail_msg("no tensor %s", name);
    return 0;
}

/* 4096 draws: their root mean square has a standard deviation of 1.1%. */
static void check_size(const ndp_model *m, const char *name, double std) {
    double have = size_of(m, name);
    if (!(fabs(have - std) <= 0.06 * std))
        fail_msg("%s begins with %g, expected %g", name, have, std);
}

static void all_matrices_alike(void **state) {
    (void)state;
    ndp_model m;
    build("{\"model_type\": \"llama\", \"initializer_range\": 0.05, \"attention_bias\": true, " SIZES "}", &m);
    check_size(&m, "model.embed_tokens.weight", 0.05);
    check_size(&m, "model.layers.7.self_attn.q_proj.weight", 0.05);
    check_size(&m, "model.layers.7.self_attn.o_proj.weight", 0.05);
    check_size(&m, "model.layers.0.mlp.down_proj.weight", 0.05);
    check_size(&m, "lm_head.weight", 0.05);
    check_size(&m, "model.norm.weight", 1);
    check_size(&m, "model.layers.3.self_attn.k_proj.bias", 0);
    ndp_model_release(&m);
}

/* GPT-2: what is added to the residual stream, by 1 / sqrt(2 layers). */
static void smaller_by_depth(void **state) {
    (void)state;
    ndp_model m;
    build("{\"model_type\": \"gpt2\", \"vocab_size\": 100, \"n_embd\": 64, \"n_head\": 4, \"n_layer\": 8, "
          "\"n_positions\": 64}",
          &m);
    check_size(&m, "transformer.wte.weight", 0.02);
    check_size(&m, "transformer.wpe.weight", 0.02);
    check_size(&m, "transformer.h.2.attn.c_attn.weight", 0.02);
    check_size(&m, "transformer.h.2.mlp.c_fc.weight", 0.02);
    check_size(&m, "transformer.h.2.attn.c_proj.weight", 0.02 / 4);
    check_size(&m, "transformer.h.7.mlp.c_proj.weight", 0.02 / 4);
    check_size(&m, "transformer.h.7.mlp.c_proj.bias", 0);
    check_size(&m, "transformer.ln_f.weight", 1);
    ndp_model_release(&m);
}

/* Starcoder 2 calls its matrices as GPT-2 does, and begins with all of one size; its norms are LayerNorms. */
static void others_are_not(void **state) {
    (void)state;
    ndp_model m;
    build("{\"model_type\": \"starcoder2\", " SIZES "}", &m);
    check_size(&m, "model.layers.1.mlp.c_proj.weight", 0.018042);
    check_size(&m, "model.layers.1.self_attn.o_proj.weight", 0.018042);
    check_size(&m, "model.norm.bias", 0);
    ndp_model_release(&m);
}

/* Gemma's norms multiply by 1 + w. */
static void norms_of_gemma(void **state) {
    (void)state;
    ndp_model m;
    build("{\"model_type\": \"gemma2\", " SIZES "}", &m);
    check_size(&m, "model.norm.weight", 0);
    check_size(&m, "model.layers.1.pre_feedforward_layernorm.weight", 0);
    check_size(&m, "model.layers.1.mlp.up_proj.weight", 0.02);
    ndp_model_release(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_matrices_alike), cmocka_unit_test(smaller_by_depth),
                                       cmocka_unit_test(others_are_not), cmocka_unit_test(norms_of_gemma)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
