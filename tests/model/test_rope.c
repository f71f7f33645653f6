#include "model/facts.h"

#include "check.h"
#include "tensor/dtype.h"
#include <math.h>
#include <stdlib.h>

/* Every fourth inverse frequency of transformers 5 (fp32), all with head_dim 64:
 * LlamaRotaryEmbedding(LlamaConfig(hidden_size=512, num_attention_heads=8, max_position_embeddings=131072,
 *     rope_parameters={"rope_theta": THETA, "rope_type": TYPE, "factor": ..., ...})).inv_freq[::4].tolist() */
static const struct {
    ndp_facts facts;
    double expected[8];
} cases[] = {
    {{.head_dim = 64, .rope = {.theta = 5e5}},
     {1.0, 0.193922758102417, 0.03760603070259094, 0.00729266507551074, 0.001414213445968926, 0.00027424818836152554,
      5.3182957344688475e-05, 1.0313385246263351e-05}},
    {{.head_dim = 64, .rope = {.theta = 1e4, .factor = 4, .scaling = NDP_ROPE_LINEAR}},
     {0.25, 0.07905694097280502, 0.02500000037252903, 0.007905694656074047, 0.0024999999441206455,
      0.0007905694656074047, 0.0002500000118743628, 7.905694656074047e-05}},
    {{.head_dim = 64,
      .rope = {.theta = 5e5,
               .factor = 8,
               .low_freq_factor = 1,
               .high_freq_factor = 4,
               .original_positions = 8192,
               .scaling = NDP_ROPE_LLAMA3}},
     {1.0, 0.193922758102417, 0.03760603070259094, 0.00729266507551074, 0.0005248460220173001, 3.428102354519069e-05,
      6.647869668086059e-06, 1.289173155782919e-06}},
    {{.head_dim = 64,
      .rope = {.theta = 1e5,
               .factor = 32,
               .low_freq_factor = 2,
               .high_freq_factor = 8,
               .original_positions = 4096,
               .scaling = NDP_ROPE_LLAMA3}},
     {1.0, 0.23713736236095428, 0.05623412877321243, 0.01333521492779255, 0.00013021373888477683,
      2.3434193280991167e-05, 5.557123131438857e-06, 1.3178016615711385e-06}},
};

static void frequencies_are_transformers(void **state) {
    (void)state;
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        double f[32];
        ndp_rope_frequencies(&cases[k].facts, f);
        for (int i = 0; i < 8; i++)
            if (fabs(f[4 * i] - cases[k].expected[i]) > 1e-6 * f[4 * i]) /* theirs went through fp32 */
                fail_msg("case %d, frequency %d: %.9g, expected %.9g", k, 4 * i, f[4 * i], cases[k].expected[i]);
    }
}

/* The bands themselves, in fp64: kept, divided, and between the two, monotonic through the borders. */
static void llama3_bands(void **state) {
    (void)state;
    double plain[32], scaled[32], before = 1;
    ndp_rope_frequencies(&cases[0].facts, plain);
    ndp_rope_frequencies(&cases[2].facts, scaled);
    int kept = 0, divided = 0;
    for (int i = 0; i < 32; i++) {
        double wave = 2 * M_PI / plain[i], ratio = scaled[i] / plain[i];
        assert_true(ratio <= before && ratio >= 0.125 && ratio <= 1);
        assert_true(wave >= 2048 || ratio == 1);
        assert_true(wave <= 8192 || ratio == 0.125);
        kept += ratio == 1;
        divided += ratio == 0.125;
        before = ratio;
    }
    assert_true(kept > 0 && divided > 0 && kept + divided < 32);
}

static void table_holds_cosines_then_sines(void **state) {
    (void)state;
    enum { ROWS = 300, D = 6 };
    ndp_facts f = {.head_dim = D, .rope = {.theta = 100}};
    double frequency[D / 2], wide[ROWS * D + 1];
    float single[ROWS * D + 1];
    wide[ROWS * D] = 77;
    single[ROWS * D] = 77;
    ndp_rope_frequencies(&f, frequency);
    ndp_rope_table(&f, ROWS, NDP_F64, wide);
    ndp_rope_table(&f, ROWS, NDP_F32, single);
    for (int p = 0; p < ROWS; p++)
        for (int i = 0; i < D / 2; i++) {
            double angle = p * pow(100, -2.0 * i / D);
            assert_true(fabs(frequency[i] - pow(100, -2.0 * i / D)) < 1e-15);
            assert_true(fabs(wide[p * D + i] - cos(angle)) < 1e-12);
            assert_true(fabs(wide[p * D + D / 2 + i] - sin(angle)) < 1e-12);
        }
    for (int i = 0; i < ROWS * D; i++)
        assert_true(single[i] == (float)wide[i]);
    assert_true(wide[ROWS * D] == 77 && single[ROWS * D] == 77);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(frequencies_are_transformers), cmocka_unit_test(llama3_bands),
                                       cmocka_unit_test(table_holds_cosines_then_sines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
