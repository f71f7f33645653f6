#include "model/facts.h"

#include "check.h"
#include "tensor/dtype.h"
#include <math.h>
#include <stdlib.h>

/* Every fourth inverse frequency of transformers 5 (fp32), all with head_dim 64:
 * LlamaRotaryEmbedding(LlamaConfig(hidden_size=512, num_attention_heads=8, max_position_embeddings=131072,
 *     rope_parameters={"rope_theta": THETA, "rope_type": TYPE, "factor": ..., ...})).inv_freq[::4].tolist() */
static const struct {
    ndp_rope rope;
    double expected[8];
} cases[] = {
    {{.dim = 64, .theta = 5e5},
     {1.0, 0.193922758102417, 0.03760603070259094, 0.00729266507551074, 0.001414213445968926, 0.00027424818836152554,
      5.3182957344688475e-05, 1.0313385246263351e-05}},
    {{.dim = 64, .theta = 1e4, .factor = 4, .scaling = NDP_ROPE_LINEAR},
     {0.25, 0.07905694097280502, 0.02500000037252903, 0.007905694656074047, 0.0024999999441206455,
      0.0007905694656074047, 0.0002500000118743628, 7.905694656074047e-05}},
    {{.dim = 64,
      .theta = 5e5,
      .factor = 8,
      .low_freq_factor = 1,
      .high_freq_factor = 4,
      .original_positions = 8192,
      .scaling = NDP_ROPE_LLAMA3},
     {1.0, 0.193922758102417, 0.03760603070259094, 0.00729266507551074, 0.0005248460220173001, 3.428102354519069e-05,
      6.647869668086059e-06, 1.289173155782919e-06}},
    {{.dim = 64,
      .theta = 1e5,
      .factor = 32,
      .low_freq_factor = 2,
      .high_freq_factor = 8,
      .original_positions = 4096,
      .scaling = NDP_ROPE_LLAMA3},
     {1.0, 0.23713736236095428, 0.05623412877321243, 0.01333521492779255, 0.00013021373888477683,
      2.3434193280991167e-05, 5.557123131438857e-06, 1.3178016615711385e-06}},
    {{.dim = 64,
      .theta = 1e6,
      .factor = 4,
      .beta_fast = 32,
      .beta_slow = 1,
      .truncate = true,
      .original_positions = 32768,
      .scaling = NDP_ROPE_YARN},
     {1.0, 0.17782793939113617, 0.03162277862429619, 0.005154795479029417, 0.0005833333707414567,
      4.4456985051510856e-05, 7.905693564680405e-06, 1.405853367941745e-06}},
    {{.dim = 64,
      .theta = 1e4,
      .factor = 16,
      .beta_fast = 16,
      .beta_slow = 2,
      .original_positions = 4096,
      .scaling = NDP_ROPE_YARN},
     {1.0, 0.3162277638912201, 0.10000000149011612, 0.03162277862429619, 0.005952023901045322, 0.0002408111176919192,
      6.25000029685907e-05, 1.9764236640185118e-05}},
};

static void frequencies_are_transformers(void **state) {
    (void)state;
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        double f[32];
        ndp_rope_frequencies(&cases[k].rope, 1, f);
        for (int i = 0; i < 8; i++)
            if (fabs(f[4 * i] - cases[k].expected[i]) > 1e-6 * f[4 * i]) /* theirs went through fp32 */
                fail_msg("case %d, frequency %d: %.9g, expected %.9g", k, 4 * i, f[4 * i], cases[k].expected[i]);
    }
}

/* The bands themselves, in fp64: kept, divided, and between the two, monotonic through the borders. */
static void llama3_bands(void **state) {
    (void)state;
    double plain[32], scaled[32], before = 1;
    ndp_rope_frequencies(&cases[0].rope, 1, plain);
    ndp_rope_frequencies(&cases[2].rope, 1, scaled);
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

/* Phi3RotaryEmbedding with heads of 32, partial_rotary_factor 0.75, short_factor 1 + i / 4, long_factor 2 + 1.5 i,
 * before and after more positions than the original ones. */
static void longrope_is_transformers(void **state) {
    (void)state;
    static const double expected[2][12] = {
        {1.0, 0.37132713198661804, 0.14362896978855133, 0.05714285746216774, 0.02320794202387333, 0.00957526545971632,
         0.004000000189989805, 0.0016878508031368256, 0.0007181447581388056, 0.0003076923021581024,
         0.00013261684216558933, 5.7451583415968344e-05},
        {0.5, 0.1326168179512024, 0.04308868944644928, 0.015384615398943424, 0.005801985505968332,
         0.0022678261157125235, 0.0009090909152291715, 0.00037132715806365013, 0.0001538881624583155,
         6.451612716773525e-05, 2.730346932366956e-05, 1.1645590348052792e-05}};
    ndp_rope r = {.dim = 24, .theta = 1e4, .original_positions = 4096, .scaling = NDP_ROPE_LONG};
    for (int i = 0; i < 12; i++)
        r.short_factor[i] = 1 + 0.25 * i, r.long_factor[i] = 2 + 1.5 * i;
    for (int k = 0; k < 2; k++) {
        double f[12];
        ndp_rope_frequencies(&r, 4096 + k, f);
        for (int i = 0; i < 12; i++)
            if (fabs(f[i] - expected[k][i]) > 1e-6 * f[i])
                fail_msg("frequency %d: %.9g, expected %.9g", i, f[i], expected[k][i]);
    }
}

/* Two tables, the second of part of a head and with an amplitude. */
static void tables_hold_cosines_then_sines(void **state) {
    (void)state;
    enum { ROWS = 300, D = 6, E = 4, ALL = ROWS * (D + E) };
    const ndp_rope ropes[] = {{.dim = D, .theta = 100, .amplitude = 1}, {.dim = E, .theta = 50, .amplitude = 1.25}};
    double wide[ALL + 1];
    float single[ALL + 1];
    wide[ALL] = single[ALL] = 77;
    for (int k = 0; k < 2; k++) {
        ndp_rope_table(&ropes[k], ROWS, NDP_F64, wide + (k ? ROWS * D : 0));
        ndp_rope_table(&ropes[k], ROWS, NDP_F32, single + (k ? ROWS * D : 0));
    }
    for (int k = 0, dim = D; k < 2; k++, dim = E)
        for (int p = 0; p < ROWS; p++)
            for (int i = 0; i < dim / 2; i++) {
                double angle = p * pow(k ? 50 : 100, -2.0 * i / dim), amplitude = k ? 1.25 : 1;
                const double *row = wide + (k ? ROWS * D : 0) + p * dim;
                assert_true(fabs(row[i] - amplitude * cos(angle)) < 1e-12);
                assert_true(fabs(row[dim / 2 + i] - amplitude * sin(angle)) < 1e-12);
            }
    for (int i = 0; i < ALL; i++)
        assert_true(single[i] == (float)wide[i]);
    assert_true(wide[ALL] == 77 && single[ALL] == 77);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(frequencies_are_transformers), cmocka_unit_test(llama3_bands),
                                       cmocka_unit_test(longrope_is_transformers),
                                       cmocka_unit_test(tables_hold_cosines_then_sines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
