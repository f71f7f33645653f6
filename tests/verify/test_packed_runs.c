/* Proof 3 for frozen layers that are stored as nf4 or int8: every axis, products, pipelines, and what else a layout may
 * choose. Weights count as they are unpacked, so ranks must have the codes of one rank. */
#include "verify/invariance.h"

/* FOLDER/NAME: sizes that tp 2 and 4 cut between blocks; rows of 40 columns, which blocks go across. */
static char *write_model(const char *folder, const char *type) {
    static const char gpt2[] = "{\"model_type\": \"gpt2\", \"vocab_size\": 261, \"n_embd\": 256, \"n_layer\": 4, "
                               "\"n_head\": 4, \"n_inner\": 256, \"n_positions\": 256}";
    static const char mixture[] = ", \"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 256, "
                                  "\"shared_expert_intermediate_size\": 256, \"norm_topk_prob\": true, "
                                  "\"mlp_only_layers\": [0]",
                      stacks[] = ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"rope_parameters\": "
                                 "{\"rope_type\": \"default\", \"rope_theta\": 100.0}";
    char *path = ndp_format("%s/%s.json", folder, type);
    char *config =
        ndp_format("{\"model_type\": \"%s\", \"vocab_size\": 261, \"hidden_size\": 40, \"num_hidden_layers\": "
                   "4, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 64, "
                   "\"intermediate_size\": 256, \"max_position_embeddings\": 256, \"initializer_range\": "
                   "0.05, \"rms_norm_eps\": 1e-5, \"pad_token_id\": null%s}",
                   type,
                   strstr(type, "_moe")           ? mixture
                   : strcmp(type, "gpt_oss") == 0 ? stacks
                                                  : "");
    const char *text = strcmp(type, "gpt2") == 0 ? gpt2 : config;
    CHECK_OK(ndp_file_write_atomic(path, text, strlen(text)));
    free(config);
    return path;
}

static const way ways[] = {
    {.shard = 2, .accumulation = 2},
    {.replicate = 2, .shard = 2, .accumulation = 1, .gathered = true, .recompute = true},
    {.shard = 4, .accumulation = 1, .gathered = true, .keep = true},
    {.cp = 2, .accumulation = 2, .recompute = true},
    {.sp = 2, .accumulation = 2, .gathered = true},
    {.tp = 2, .accumulation = 2, .recompute = true},
    {.tp = 4, .accumulation = 1, .whole_rows = true},
    {.shard = 2, .cp = 2, .tp = 2, .accumulation = 1, .gathered = true},
    {.shard = 2, .sp = 2, .tp = 2, .accumulation = 1},
    {.pp = 2, .accumulation = 4},
    {.pp = 2, .shard = 2, .accumulation = 4, .schedule = "zbv", .gathered = true},
    {.pp = 2, .tp = 2, .accumulation = 4, .schedule = "zero_bubble", .recompute = true},
};

static subject packed_subject(const corpus *c, const char *path, const char *name, const char *precision,
                              ndp_packing base) {
    subject s = odd_subject(c, name, precision);
    s.path = path, s.length = 64, s.window = 0, s.steps = 3;
    s.base = base;
    return s;
}

/* `every`: of the ways. */
static void check_all(family *f, int every) {
    for (int i = 0; i < NDP_COUNT(ways); i += every) {
        way w = ways[i];
        w.global = 8, w.threads = 1;
        check_way(f, &w);
    }
    print_family(f);
    family_release(f);
}

static void nf4_fp32(void **state) {
    char *path = write_model(((corpus *)*state)->folder, "llama");
    family f = {.s = packed_subject(*state, path, "llama nf4 fp32", "fp32", NDP_PACKING_NF4)};
    check_all(&f, 1);
    free(path);
}

static void nf4_bf16_fused(void **state) {
    char *path = write_model(((corpus *)*state)->folder, "phi3");
    family f = {.s = packed_subject(*state, path, "phi3 nf4 bf16", "bf16", NDP_PACKING_NF4)};
    check_all(&f, 3);
    free(path);
}

static void int8_fp64(void **state) {
    char *path = write_model(((corpus *)*state)->folder, "llama");
    family f = {.s = packed_subject(*state, path, "llama int8 fp64 on ref", "fp64", NDP_PACKING_INT8)};
    f.s.steps = 2, f.s.length = 17;
    check_all(&f, 3);
    free(path);
}

/* Experts, of which owners have the codes. */
static void mixtures(void **state) {
    static const struct {
        const char *type, *name, *precision;
        ndp_packing base;
    } of[] = {{"qwen2_moe", "qwen2_moe nf4 fp32", "fp32", NDP_PACKING_NF4},
              {"gpt_oss", "gpt_oss nf4 bf16", "bf16", NDP_PACKING_NF4},
              {"qwen2_moe", "qwen2_moe int8 fp32", "fp32", NDP_PACKING_INT8}};
    static const way some[] = {{.shard = 2, .ep = 2, .accumulation = 2},
                               {.tp = 2, .accumulation = 2, .recompute = true},
                               {.tp = 4, .ep = 4, .accumulation = 1},
                               {.shard = 2, .cp = 2, .tp = 2, .ep = 2, .accumulation = 1, .gathered = true},
                               {.sp = 2, .ep = 2, .accumulation = 2},
                               {.pp = 2, .shard = 2, .ep = 2, .accumulation = 4, .schedule = "zbv"}};
    for (int k = 0; k < NDP_COUNT(of); k++) {
        char *path = write_model(((corpus *)*state)->folder, of[k].type);
        family f = {.s = packed_subject(*state, path, of[k].name, of[k].precision, of[k].base)};
        for (int i = k % 2; i < NDP_COUNT(some); i += 1 + (k > 0)) {
            way w = some[i];
            w.global = 8, w.threads = 1;
            check_way(&f, &w);
        }
        print_family(&f);
        family_release(&f);
        free(path);
    }
}

/* The kernels of CUDA, with memory of the device's own and staged collectives. */
static void nf4_on_sim(void **state) {
    static const way some[] = {{.shard = 2, .accumulation = 1}, {.tp = 2, .accumulation = 1, .recompute = true}};
    char *path = write_model(((corpus *)*state)->folder, "llama");
    family f = {.s = packed_subject(*state, path, "llama nf4 on sim", "fp32", NDP_PACKING_NF4)};
    f.s.device = "sim", f.s.steps = 2, f.s.length = 24;
    for (int i = 0; i < NDP_COUNT(some); i++) {
        way w = some[i];
        w.global = 4, w.threads = 1;
        check_way(&f, &w);
    }
    print_family(&f);
    family_release(&f);
    free(path);
}

/* ---- the values of packed weights ---- */

typedef struct reading {
    const ndp_config *config;
    bool flip;      /* a bit of what rank 0 owns */
    double *values; /* of all packed tensors, one after the other; rank 0 */
    int64_t n;
} reading;

static ndp_status flip_bit(ndp_engine *e) {
    const ndp_model *m = ndp_engine_model(e);
    uint8_t byte;
    int b = 0;
    while (!ndp_buffer_is_packed(&m->buffers[b]))
        b++;
    NDP_TRY(ndp_engine_read(e, NDP_OWNED_MASTER, b, 0, 1, 1, &byte));
    byte ^= 0x10;
    return ndp_engine_write(e, NDP_OWNED_MASTER, b, 0, 1, 1, &byte);
}

static ndp_status read_rank(ndp_world *w, void *arg) {
    reading *r = arg, mine = {.n = 0}, *out = ndp_world_rank(w) == 0 ? r : &mine;
    ndp_trainer *t;
    int64_t capacity = 0, n;
    NDP_TRY(ndp_trainer_open(r->config, w, &(ndp_rank_opts){0}, &t));
    ndp_status st = r->flip && ndp_world_rank(w) == 0 ? flip_bit(t->engine) : NDP_OK;
    for (int i = 0; st == NDP_OK && ndp_trainer_tensor(t, i, &n); i++) {
        if (!ndp_buffer_is_packed(&t->model.buffers[t->tensors[i].buffer]))
            continue;
        st = ndp_array_reserve(&out->values, &capacity, out->n + n, sizeof *out->values);
        st = st == NDP_OK ? ndp_trainer_read(t, NDP_WEIGHT, i, out->values + out->n) : st;
        out->n += n;
    }
    ndp_trainer_destroy(t);
    free(mine.values);
    return st;
}

static reading read_weights(const subject *s, way w, bool flip) {
    w.global = 8, w.threads = 1;
    ndp_config *c = configure(s, &w);
    reading r = {.config = c, .flip = flip};
    CHECK_OK(ndp_world_run(c, read_rank, &r));
    ndp_config_destroy(c);
    return r;
}

/* Bit for bit on every layout, since whole tensors are packed; and a comparison sees one bit. */
static void values_are_those_of_one_rank(void **state) {
    static const char *const types[] = {"llama", "phi3", "gpt2", "qwen2_moe", "gpt_oss"};
    static const way some[] = {{.shard = 2, .accumulation = 1},
                               {.tp = 4, .accumulation = 1},
                               {.pp = 2, .tp = 2, .accumulation = 4},
                               {.shard = 2, .tp = 2, .ep = 4, .accumulation = 1},
                               {.replicate = 2, .shard = 2, .tp = 2, .accumulation = 1}};
    for (int k = 0; k < NDP_COUNT(types) * 2; k++) {
        char *path = write_model(((corpus *)*state)->folder, types[k / 2]);
        subject s = packed_subject(*state, path, types[k / 2], "fp32", k % 2 ? NDP_PACKING_INT8 : NDP_PACKING_NF4);
        reading one = read_weights(&s, (way){.accumulation = 1}, false);
        assert_true(one.n > 0);
        for (int i = 0; i < NDP_COUNT(some); i++) {
            if (some[i].ep > 1 && k / 2 < 3)
                continue;
            reading r = read_weights(&s, some[i], false), flipped = read_weights(&s, some[i], true);
            assert_int_equal(r.n, one.n);
            assert_memory_equal(r.values, one.values, (size_t)one.n * sizeof *one.values);
            assert_memory_not_equal(flipped.values, one.values, (size_t)one.n * sizeof *one.values);
            free(r.values), free(flipped.values);
        }
        free(one.values), free(path);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_are_those_of_one_rank),
                                       cmocka_unit_test(nf4_fp32),
                                       cmocka_unit_test(nf4_bf16_fused),
                                       cmocka_unit_test(int8_fp64),
                                       cmocka_unit_test(nf4_on_sim),
                                       cmocka_unit_test(mixtures)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus);
}
