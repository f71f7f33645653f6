/* Projections that are updated as whole matrices: the same updates on every layout, however the tensor axis and the
 * slices cut them; who transforms what; and what the state takes. */
#include "model/conv_model.h"
#include "step/layouts.h"

/* ---- layouts ---- */

static result run_on(const ndp_model *m, const ndp_device *device, const int size[5], int bits) {
    way w = {.reshard = bits & 1, .recompute = bits & 2, .gathered = bits & 4, .optimizer = NDP_MUON};
    w.parallel = (ndp_parallel){!(bits & 1), bits & 2 ? NDP_CP_ALL_GATHER : NDP_CP_RING, !(bits & 4), 0, 0, 1.5};
    memcpy(w.size, size, sizeof w.size);
    return run(m, device, &w);
}

static void check_model(const ndp_facts *f, const int (*sizes)[5], int n) {
    static const int one_rank[5] = {1, 1, 1, 1, 1};
    ndp_model_opts mo = tiny_opts(NDP_F64, ROWS);
    ndp_model m;
    CHECK_OK(ndp_decoder_build(f, &mo, &m));
    result one = run_on(&m, &ndp_device_ref, one_rank, 0);
    for (int i = 0; i < n; i++) {
        way w = {.parallel = NDP_PARALLEL_INIT};
        memcpy(w.size, sizes[i], sizeof w.size);
        result r = run_on(&m, &ndp_device_ref, sizes[i], i);
        compare(&m, &r, &one, &w, &exact);
        release(&r);
    }
    release(&one);
    ndp_model_release(&m);
}

/* Two kv heads: with tp 4 each is held twice. Slices end inside of matrices. */
static void every_axis(void **state) {
    (void)state;
    static const int sizes[][5] = {{1, 2, 1, 1, 1}, {2, 2, 1, 1, 1}, {1, 3, 1, 1, 1}, {1, 1, 1, 1, 2},
                                   {1, 1, 1, 1, 4}, {1, 1, 2, 1, 2}, {1, 1, 1, 2, 2}, {2, 1, 3, 1, 1},
                                   {1, 3, 1, 1, 4}, {2, 2, 2, 1, 2}, {1, 6, 1, 1, 2}};
    for (int tied = 0; tied < 2; tied++) {
        ndp_facts f = tiny_facts(tied);
        check_model(&f, sizes, NDP_COUNT(sizes));
    }
}

/* Files hold these fused, gpt2's also transposed, gpt_neox's in turn; experts are matrices by themselves. */
static void families(void **state) {
    (void)state;
    static const char *const of[] = {
        TINY("phi3", "\"head_dim\": 6, \"partial_rotary_factor\": 0.7, \"sliding_window\": 5"),
        TINY("stablelm", "\"partial_rotary_factor\": 0.7, \"use_qkv_bias\": true, \"use_parallel_residual\": true"),
        TINY("gpt_neox", "\"rotary_pct\": 0.7"),
        TINY("mixtral", "\"head_dim\": 6, \"num_local_experts\": 4, \"num_experts_per_tok\": 2"),
        TINY("qwen3_moe", "\"head_dim\": 6, \"num_experts\": 6, \"num_experts_per_tok\": 3, "
                          "\"moe_intermediate_size\": 7, \"mlp_only_layers\": [0], \"norm_topk_prob\": true"),
        TINY("qwen2_moe",
             "\"head_dim\": 6, \"num_experts\": 5, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 7, "
             "\"shared_expert_intermediate_size\": 11, \"mlp_only_layers\": [0]"),
        TINY_GPT2};
    static const int sizes[][5] = {{1, 2, 1, 1, 1}, {1, 1, 1, 1, 4}, {1, 3, 1, 1, 2}, {2, 1, 2, 1, 2}};
    static ndp_facts f;
    for (int i = 0; i < NDP_COUNT(of); i++) {
        CHECK_OK(ndp_facts_parse_text(of[i], "tiny", &f));
        check_model(&f, sizes, NDP_COUNT(sizes));
    }
}

/* 4 kv heads over tp 6: each rank has all of them. */
static void kv_heads_that_all_hold(void **state) {
    (void)state;
    static const int sizes[][5] = {{1, 1, 1, 2, 6}};
    ndp_facts f = tiny_facts(true);
    f.heads = 12, f.kv_heads = 4, f.head_dim = f.ropes[0].dim = 4;
    check_model(&f, sizes, 1);
}

/* A model without heads, whose ranks of the tensor axis all hold everything. */
static void another_model(void **state) {
    (void)state;
    static const int one_rank[5] = {1, 1, 1, 1, 1}, sizes[][5] = {{1, 3, 1, 1, 1}, {2, 1, 1, 1, 3}};
    ndp_model m;
    conv_model(NDP_F64, ROWS, &m);
    result one = run_on(&m, &ndp_device_ref, one_rank, 0);
    for (int i = 0; i < NDP_COUNT(sizes); i++) {
        way w = {.parallel = NDP_PARALLEL_INIT};
        memcpy(w.size, sizes[i], sizeof w.size);
        result r = run_on(&m, &ndp_device_ref, sizes[i], i ? 1 : 4); /* 1: rows are not cut */
        compare(&m, &r, &one, &w, &exact);
        release(&r);
    }
    release(&one);
    ndp_model_release(&m);
}

/* With one micro-batch each, two replicas and two shards add the same two gradients, and every owner transforms all of
 * a matrix: the same bits. The norm is a sum over slices, so nothing is clipped. */
static void equal_gradients_give_equal_bits(void **state) {
    (void)state;
    ndp_facts f = tiny_facts(false);
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    ndp_model m;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    size_t bytes = (size_t)model_elements(&m) * sizeof(double);
    way w = {
        .size = {2, 1, 1, 1, 1}, .samples = 2, .parallel = NDP_PARALLEL_INIT, .optimizer = NDP_MUON, .unclipped = true};
    result replicas = run(&m, &ndp_device_cpu, &w);
    for (int gathered = 0; gathered < 2; gathered++) {
        w.size[0] = 1, w.size[1] = 2, w.gathered = gathered;
        result shards = run(&m, &ndp_device_cpu, &w);
        assert_memory_equal(shards.grads, replicas.grads, bytes);
        assert_memory_equal(shards.weights, replicas.weights, bytes);
        assert_memory_equal(shards.loss, replicas.loss, sizeof shards.loss);
        release(&shards);
    }
    release(&replicas);
    ndp_model_release(&m);
}

/* ---- programs ---- */

typedef struct counts {
    int transforms, gathers;
    size_t optimizer, pieces; /* bytes of state; pieces of projections that the rank owns */
} counts;

/* A rank's engine that is only planned. */
static ndp_engine *plan(const ndp_model *m, ndp_optimizer_name name, const int size[5], int rank) {
    static const ndp_exec exec = {.device = &ndp_device_null, .threads = 1};
    ndp_layout layout = layout_of(&(way){.size = {size[0], size[1], size[2], size[3], size[4]}});
    ndp_engine_opts o = {.model = m,
                         .step = {.parallel = NDP_PARALLEL_INIT,
                                  .exec = &exec,
                                  .node_ranks = 1,
                                  .accumulation = 1,
                                  .reshard = true,
                                  .optimizer = {.name = name, .momentum = 0.95}}};
    ndp_engine *e;
    CHECK_OK(ndp_mesh_init(&layout, rank, &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(m)}, &o.step.mesh));
    CHECK_OK(ndp_engine_create(&o, &e));
    return e;
}

static counts count(const ndp_model *m, ndp_optimizer_name name, const int size[5], int rank) {
    counts n = {0};
    ndp_engine *e = plan(m, name, size, rank);
    const ndp_program *p = ndp_engine_program(e);
    for (int i = p->first_update; i < p->n; i++) {
        n.transforms += p->instrs[i].call.op == &ndp_op_newton_schulz;
        n.gathers += ndp_instr_is(&p->instrs[i], NDP_CALL_BEGIN);
    }
    ndp_budget b;
    ndp_program_budget(p, &b);
    n.optimizer = b.class_bytes[NDP_MEM_OPTIMIZER];
    for (int i = 0; i < m->n_buffers; i++)
        n.pieces += (size_t)p->owned[i].n_of[ndp_update_place(&p->groups, NDP_MUON) % NDP_OPTIMIZER_COUNT];
    ndp_engine_destroy(e);
    return n;
}

/* What is done with a projection bears its name: parts of both ranks, the transformation, this rank's part. */
static void calls_are_named(void **state) {
    (void)state;
    static const char *const one[] = {"copy", "copy", "newton_schulz", "copy"};
    ndp_facts f = tiny_facts(false);
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    ndp_model m;
    ndp_str text = {0};
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    ndp_engine *e = plan(&m, NDP_MUON, (int[5]){1, 1, 1, 1, 2}, 1);
    ndp_program_print(ndp_engine_program(e), false, &text);
    const char *at = text.data;
    for (int layer = 0; layer < f.layers; layer++)
        for (int k = 0; k < 4 * 7; k++) {
            static const char *const names[] = {"self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o",
                                                "mlp.gate",    "mlp.up",      "mlp.down"};
            char want[128];
            snprintf(want, sizeof want, " %s model.layers.%d.%s_proj.weight in=", one[k % 4], layer, names[k / 4]);
            at = strstr(at, want);
            if (!at)
                fail_msg("no '%s', or not in this order", want);
            at++;
        }
    ndp_str_release(&text);
    ndp_engine_destroy(e);
    ndp_model_release(&m);
}

/* A rank transforms the matrices of which it owns a piece, no others; all gather alike. */
static void owners_transform(void **state) {
    (void)state;
    static const int sizes[][5] = {{1, 1, 1, 1, 1}, {1, 2, 1, 1, 1}, {1, 4, 1, 1, 1}, {1, 2, 1, 1, 2}, {1, 1, 1, 1, 4}};
    static const int gathers[] = {0, 2, 2, 4, 2}; /* two decoder blocks; over the owners, over the tensor axis */
    ndp_facts f = tiny_facts(false);
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    ndp_model m;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    for (int i = 0; i < NDP_COUNT(sizes); i++) {
        int world = sizes[i][1] * sizes[i][4], fewest = 99;
        for (int rank = 0; rank < world; rank++) {
            counts n = count(&m, NDP_MUON, sizes[i], rank);
            assert_int_equal(n.gathers, gathers[i]);
            assert_int_equal(n.transforms, n.pieces);
            fewest = n.transforms < fewest ? n.transforms : fewest;
        }
        assert_true(i == 0 || i == 4 ? fewest == 14 : fewest < 14); /* q, k, v, o, gate, up, down */
    }
    ndp_model_release(&m);
}

/* One state for projections, two for the rest. */
static void projections_keep_one_state(void **state) {
    (void)state;
    ndp_facts f = tiny_facts(true);
    f.hidden = 96, f.ffn = 256, f.heads = 12, f.kv_heads = 4, f.head_dim = f.ropes[0].dim = 8;
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    ndp_model m;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    int64_t all = 0, rest = 0;
    for (int i = 0; i < m.n_buffers; i++)
        for (int k = 0; k < m.buffers[i].segments.n; k++) {
            const ndp_segment *s = &m.buffers[i].segments.items[k];
            all += s->rows * s->cols;
            rest += s->projection ? 0 : s->rows * s->cols;
        }
    for (int shards = 1; shards < 4; shards += 2) {
        double sum[2] = {0};
        for (int rank = 0; rank < shards; rank++)
            for (int k = 0; k < 2; k++)
                sum[k] += (double)count(&m, k ? NDP_ADAMW : NDP_MUON, (int[5]){1, shards, 1, 1, 1}, rank).optimizer;
        double expected = (double)(all + rest) / (2 * (double)all);
        assert_true(expected < 0.55 && fabs(sum[0] / sum[1] - expected) < 0.01);
    }
    ndp_model_release(&m);
}

/* Only matrices of blocks. */
static void what_is_a_projection(void **state) {
    (void)state;
    ndp_facts f = tiny_facts(false);
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    ndp_model m;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    for (int i = 0; i < m.n_buffers; i++)
        for (int k = 0; k < m.buffers[i].segments.n; k++) {
            const ndp_segment *s = &m.buffers[i].segments.items[k];
            assert_int_equal(s->projection, strstr(s->name, "_proj.weight") != NULL);
        }
    ndp_model_release(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_axis),
                                       cmocka_unit_test(families),
                                       cmocka_unit_test(kv_heads_that_all_hold),
                                       cmocka_unit_test(another_model),
                                       cmocka_unit_test(equal_gradients_give_equal_bits),
                                       cmocka_unit_test(owners_transform),
                                       cmocka_unit_test(calls_are_named),
                                       cmocka_unit_test(projections_keep_one_state),
                                       cmocka_unit_test(what_is_a_projection)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
