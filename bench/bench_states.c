/* What cp 2 costs layers with a state (the gated delta rule): four layers of Qwen3.5-0.8B's shape, with their
 * projections and MLPs, on 2 ranks x 1 thread beside one rank x 1 thread, one document. For each number of rows: memory
 * that is planned for a rank, and processor time of a step of all ranks, both relative to one rank's. Other programs
 * change the processor time less than the time; ranks that wait yield.
 *
 * Usage: bench_states [steps] [fp32|bf16] [rows] [heads, of keys and values] */
#include "result.h"
#include "step.h"

static void compare(const job *one, int heads) {
    job two = *one;
    char name[96];
    two.cp = 2;
    measure(&two);
    double memory = (double)two.planned / (double)one->planned, worked = two.worked / one->worked;
    printf("%s T=%d, %d heads: one rank %.0f ms and %.1f MiB; cp 2: memory %.3f of it a rank, processor time of both "
           "ranks %.3f of it, time %.3f\n",
           ndp_dtype_name(one->compute), one->length, heads, 1e3 * one->worked, (double)one->planned / (1 << 20),
           memory, worked, two.seconds / one->seconds);
    snprintf(name, sizeof name, "layers with a state, cp 2, %s, %d rows, %d heads: memory of a rank",
             ndp_dtype_name(one->compute), one->length, heads);
    bench_result(name, memory, "of one rank's", 0);
    snprintf(name, sizeof name, "layers with a state, cp 2, %s, %d rows, %d heads: processor time",
             ndp_dtype_name(one->compute), one->length, heads);
    bench_result(name, worked, "of one rank's", 0);
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 3, heads = argc > 4 ? atoi(argv[4]) : 16;
    ndp_dtype type = argc > 2 && strcmp(argv[2], "fp32") == 0 ? NDP_F32 : NDP_BF16;
    const int rows[] = {argc > 3 ? atoi(argv[3]) : 2048, argc > 3 ? 0 : 8192};
    char config[1024];
    bench_begin(argv);
    if (steps < 1 || steps > MOST || heads < 1)
        return fprintf(stderr, "steps: 1 to %d; heads: 1 or more\n", MOST), 2;
    snprintf(
        config, sizeof config,
        "{\"model_type\": \"qwen3_5_text\", \"vocab_size\": 1024, \"num_hidden_layers\": 4, \"hidden_size\": 1024, "
        "\"num_attention_heads\": 8, \"num_key_value_heads\": 2, \"head_dim\": 256, \"intermediate_size\": 3584, "
        "\"layer_types\": [\"linear_attention\", \"linear_attention\", \"linear_attention\", \"linear_attention\"], "
        "\"linear_num_key_heads\": %d, \"linear_num_value_heads\": %d, \"linear_key_head_dim\": 128, "
        "\"linear_value_head_dim\": 128, \"linear_conv_kernel_dim\": 4, \"max_position_embeddings\": 65536, "
        "\"rms_norm_eps\": 1e-6, \"hidden_act\": \"silu\", \"tie_word_embeddings\": true}",
        heads, heads);
    for (int i = 0; i < NDP_COUNT(rows) && rows[i] > 0; i++) {
        job one = {.config = config,
                   .compute = type,
                   .samples = 1,
                   .length = rows[i],
                   .threads = 1,
                   .steps = steps,
                   .quiet = true};
        measure(&one);
        compare(&one, heads);
    }
    return 0;
}
