/* What a mixture of experts costs: a training step of Qwen3-30B-A3B's shape, cut to 4 layers, 16 experts and a
 * vocabulary of 8,192, over its floor of the parameters that a token meets, beside the same ratio of two dense shapes
 * with as many layers and words: SmolLM2-135M's, and the mixture's own with an MLP of the columns of a token's 8
 * experts, whose floor is the same but for the router. 1,024 tokens a step, 2 threads. Prints them with the time of
 * every op, and quotients of the ratios. Then the mixture on two ranks that share its experts (ep 2), over two that
 * share parameters alone, with equally many rows for each expert; and with all rows for the experts of one rank, in two
 * rounds over one. The time of cores says more than the wall's on a machine that others use.
 *
 * Usage: bench_experts [steps] [fp32|bf16|all] [threads] [optimizer] */
#include "step.h"

#define CUT "\"num_hidden_layers\": 4, \"vocab_size\": 8192, "

static const char dense[] =
    "{\"model_type\": \"llama\", " CUT "\"hidden_size\": 576, \"num_attention_heads\": 9, \"num_key_value_heads\": 3, "
    "\"head_dim\": 64, \"intermediate_size\": 1536, \"max_position_embeddings\": 8192, \"rms_norm_eps\": 1e-5, "
    "\"initializer_range\": 0.041666666666666664, \"rope_theta\": 100000.0, \"tie_word_embeddings\": true}";
#define QWEN3(type, more)                                                                                              \
    "{\"model_type\": \"" type "\", " CUT "\"hidden_size\": 2048, \"num_attention_heads\": 32, "                       \
    "\"num_key_value_heads\": 4, \"head_dim\": 128, \"intermediate_size\": 6144, \"max_position_embeddings\": 40960, " \
    "\"rms_norm_eps\": 1e-6, \"initializer_range\": 0.02, \"rope_theta\": 1000000.0, \"tie_word_embeddings\": "        \
    "false" more "}"

static const struct {
    const char *name, *config;
} shapes[] = {{"the mixture, of Qwen3-30B-A3B's shape",
               QWEN3("qwen3_moe", ", \"moe_intermediate_size\": 768, \"num_experts\": 16, \"num_experts_per_tok\": 8, "
                                  "\"norm_topk_prob\": true")},
              {"SmolLM2-135M's shape", dense},
              {"the mixture's with an MLP", QWEN3("qwen3", "")}};

static job measured(const char *name, const char *config, ndp_dtype type, int steps, int threads, int optimizer) {
    job j = {.config = config,
             .compute = type,
             .samples = 1,
             .length = 1024,
             .threads = threads,
             .steps = steps,
             .details = true,
             .optimizer = (ndp_optimizer_name)optimizer};
    printf("%s\n", name);
    measure(&j);
    return j;
}

/* Seconds of a step on two ranks; busy: in time of cores, over the same floor. */
static job on_two_ranks(ndp_dtype type, int steps, int threads, int optimizer, int ep, int chosen, double capacity) {
    job j = {.config = shapes[0].config,
             .compute = type,
             .samples = 1,
             .length = 512,
             .shard = 2,
             .ep = ep,
             .threads = threads > 1 ? threads / 2 : 1,
             .steps = steps,
             .details = true,
             .balanced = true,
             .chosen = chosen,
             .capacity = capacity,
             .optimizer = (ndp_optimizer_name)optimizer};
    printf("%s on 2 ranks, %s%s%s\n", shapes[0].name, ep > 1 ? "ep 2" : "dp_shard 2 alone",
           chosen ? ", all rows for the experts of one rank" : "", chosen && capacity == 0 ? ", in one round" : "");
    measure(&j);
    return j;
}

/* All rows go to rank 0's experts: twice what a round has at capacity_factor 1, so about half of them later. A row's
 * products in one round are 3: forward, dx, dw. In a later one they are 5: the forward is made again for the input
 * gradients; and for those of the weights gate and up are, with dx of down, which together is as much once more. */
static void compare_rounds(ndp_dtype type, int steps, int threads, int optimizer) {
    const double made = (0.5 * 3 + 0.5 * 5) / 3;
    job one = on_two_ranks(type, steps, threads, optimizer, 2, 8, 0),
        two = on_two_ranks(type, steps, threads, optimizer, 2, 8, 1);
    printf(
        "%s: a step with 2 rounds over one with 1: %.2f, in time of cores %.2f; products made, repeats counted: %.2f; "
        "memory %.2f\n",
        ndp_dtype_name(type), two.seconds / one.seconds, two.busy / one.busy, made,
        (double)two.planned / (double)one.planned);
}

static void compare_ranks(ndp_dtype type, int steps, int threads, int optimizer) {
    job shard = on_two_ranks(type, steps, threads, optimizer, 1, 0, 0),
        ep = on_two_ranks(type, steps, threads, optimizer, 2, 0, 1.5);
    printf("%s: a step with ep 2 over one with dp_shard 2: %.2f, in time of cores %.2f\n", ndp_dtype_name(type),
           ep.seconds / shard.seconds, ep.busy / shard.busy);
    compare_rounds(type, steps, threads, optimizer);
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 5, threads = argc > 3 ? atoi(argv[3]) : 2, optimizer = 0;
    const char *which = argc > 2 ? argv[2] : "all";
    while (argc > 4 && optimizer < NDP_OPTIMIZER_COUNT && strcmp(ndp_optimizers[optimizer]->name, argv[4]) != 0)
        optimizer++;
    if (optimizer == NDP_OPTIMIZER_COUNT)
        return fprintf(stderr, "no optimizer is called %s\n", argv[4]), 2;
    bench_begin(argv);
    if (steps < 1 || steps > MOST)
        return fprintf(stderr, "steps: 1 to %d\n", MOST), 2;
    for (int type = 0; type < 2; type++) {
        ndp_dtype t = type ? NDP_BF16 : NDP_F32;
        if (strcmp(which, "all") != 0 && strcmp(which, ndp_dtype_name(t)) != 0)
            continue;
        double of[NDP_COUNT(shapes)][2];
        for (int i = 0; i < NDP_COUNT(shapes); i++) {
            job j = measured(shapes[i].name, shapes[i].config, t, steps, threads, optimizer);
            of[i][0] = j.ratio, of[i][1] = j.busy;
        }
        for (int i = 1; i < NDP_COUNT(shapes); i++)
            printf("%s: %s %.2f x its floor, %s %.2f x: quotient %.2f, in time of cores %.2f\n", ndp_dtype_name(t),
                   shapes[0].name, of[0][0], shapes[i].name, of[i][0], of[0][0] / of[i][0], of[0][1] / of[i][1]);
        compare_ranks(t, steps, threads, optimizer);
    }
    return 0;
}
