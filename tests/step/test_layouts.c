/* Layout invariance of the engine on `local`: every product of the axes gives the gradients, norm and loss of one rank;
 * after updates the weights too. The programs of all ranks pass the checker. */
#include "step/layouts.h"

/* Layouts from number `first` on, each with all switches or (every `step`th way) some of them. */
static void check_model(const ndp_facts *f, ndp_dtype compute, const ndp_device *device, const bounds *bound, int first,
                        int step) {
    static const int sizes[][5] = {{1, 2, 1, 1, 1}, {2, 1, 1, 1, 1}, {2, 2, 1, 1, 1}, {1, 3, 1, 1, 1}, {3, 2, 1, 1, 1},
                                   {1, 1, 1, 1, 2}, {1, 1, 1, 1, 4}, {1, 1, 1, 2, 1}, {1, 1, 1, 4, 1}, {1, 1, 2, 1, 1},
                                   {1, 1, 3, 1, 1}, {1, 1, 4, 1, 1}, {1, 1, 1, 2, 2}, {1, 1, 2, 1, 2}, {1, 1, 2, 2, 1},
                                   {2, 1, 1, 1, 2}, {1, 2, 1, 1, 2}, {1, 2, 2, 1, 1}, {1, 1, 2, 2, 2}, {2, 1, 3, 1, 1},
                                   {1, 3, 1, 1, 4}, {2, 2, 2, 1, 2}};
    ndp_model_opts mo = tiny_opts(compute, ROWS);
    ndp_model m;
    CHECK_OK(ndp_model_build(f, &mo, &m));
    result one = run(&m, device, &(way){.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT});
    for (int i = first; i < NDP_COUNT(sizes); i++)
        for (int bits = i % step; bits < 8; bits += step) {
            way w = {.reshard = bits & 1, .recompute = bits & 2, .gathered = bits & 4};
            w.parallel = (ndp_parallel){!(bits & 1), bits & 2 ? NDP_CP_ALL_GATHER : NDP_CP_RING, !(bits & 4)};
            memcpy(w.size, sizes[i], sizeof w.size);
            result r = run(&m, device, &w);
            compare(&m, &r, &one, &w, bound);
            release(&r);
        }
    release(&one);
    ndp_model_release(&m);
}

static void check_layouts(bool tied, ndp_dtype compute, const ndp_device *device, const bounds *bound) {
    ndp_facts f = tiny_facts(tied);
    check_model(&f, compute, device, bound, 0, 1);
}

/* Other families, by config.json: windows, norms of heads and of all heads, fused and transposed tensors, LayerNorm,
 * learned positions, caps, layers without RoPE. */
static const char *const families[] = {
    TINY("qwen3", "\"head_dim\": 6, \"sliding_window\": 4, \"use_sliding_window\": true, \"max_window_layers\": 1"),
    TINY("olmo2", "\"head_dim\": 6, \"attention_bias\": true"),
    TINY("phi3", "\"head_dim\": 6, \"partial_rotary_factor\": 0.7, \"sliding_window\": 5"),
    TINY("gemma2", "\"head_dim\": 6, \"sliding_window\": 4, \"attn_logit_softcapping\": 0.5, "
                   "\"final_logit_softcapping\": 2.0"),
    TINY("gemma3_text", "\"head_dim\": 6, \"sliding_window\": 4, \"sliding_window_pattern\": 2"),
    TINY("smollm3", "\"head_dim\": 6, \"no_rope_layers\": [1, 0]"),
    TINY("stablelm", "\"partial_rotary_factor\": 0.7, \"use_qkv_bias\": true, \"use_parallel_residual\": true"),
    ("{\"model_type\": \"gpt2\", \"vocab_size\": 37, \"n_layer\": 2, \"n_embd\": 12, \"n_head\": 4, \"n_inner\": 17, "
     "\"n_positions\": 20}")};

/* On the layouts from number `first` on (5: those that are more than data parallel; 12: products of two axes). */
static void check_families(ndp_dtype compute, const ndp_device *device, const bounds *bound, int first) {
    static ndp_facts f;
    for (int i = 0; i < NDP_COUNT(families); i++) {
        CHECK_OK(ndp_facts_parse_text(families[i], "tiny", &f));
        check_model(&f, compute, device, bound, first, 8);
    }
}

static void families_fp64(void **state) { (void)state, check_families(NDP_F64, &ndp_device_ref, &exact, 5); }
static void families_fp32(void **state) { (void)state, check_families(NDP_F32, &ndp_device_cpu, &other_single, 5); }
static void families_bf16(void **state) { (void)state, check_families(NDP_BF16, &ndp_device_cpu, &half, 12); }

/* 4 kv heads over tp 6 are held by all, for sp 2 to choose from; 6 kv heads over tp 4, for sp 3. */
static void kv_heads_that_tp_does_not_divide(void **state) {
    (void)state;
    static const int kv_heads[] = {4, 6}, sizes[][5] = {{1, 1, 1, 2, 6}, {1, 1, 1, 3, 4}};
    for (int i = 0; i < 2; i++) {
        ndp_facts f = tiny_facts(true);
        f.heads = 12, f.kv_heads = kv_heads[i], f.head_dim = f.ropes[0].dim = 4;
        ndp_model_opts mo = tiny_opts(NDP_F64, ROWS);
        ndp_model m;
        CHECK_OK(ndp_model_build(&f, &mo, &m));
        result one = run(&m, &ndp_device_ref, &(way){.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT});
        for (int whole_rows = 0; whole_rows < 2; whole_rows++) {
            way w = {.parallel = NDP_PARALLEL_INIT};
            w.parallel.tp_sequence_parallel = !whole_rows;
            memcpy(w.size, sizes[i], sizeof w.size);
            result r = run(&m, &ndp_device_ref, &w);
            compare(&m, &r, &one, &w, &exact);
            release(&r);
        }
        release(&one);
        ndp_model_release(&m);
    }
}

static const char *const frozen[][3] = {{"embed", "layers.0", "layers.1"}, {"embed", "layers.[02]", NULL}};

/* Frozen weights keep their bits and have no gradient; the other gradients are those of the model without frozen units,
 * `all`. */
static void check_frozen(const ndp_model *m, const result *r, const result *all) {
    int64_t at = 0;
    for (int i = 0; i < m->n_buffers; i++)
        for (int64_t end = at + m->buffers[i].segments.elements; at < end; at++) {
            assert_true(m->buffers[i].trainable || (r->weights[at] == r->drawn[at] && r->grads[at] == 0));
            assert_true(!m->buffers[i].trainable || !all || r->grads[at] == all->grads[at]);
        }
}

static void frozen_units(ndp_dtype compute, const ndp_device *device, const bounds *bound) {
    static const int sizes[][5] = {{1, 2, 1, 1, 1}, {2, 2, 1, 1, 1}, {1, 1, 2, 1, 1},
                                   {1, 1, 1, 2, 1}, {1, 1, 1, 1, 2}, {1, 2, 2, 1, 2}};
    for (int k = 0; k < 2 * NDP_COUNT(frozen); k++) {
        ndp_facts f = tiny_facts(k % 2);
        f.layers = 4;
        ndp_model_opts mo = tiny_opts(compute, ROWS);
        ndp_model whole, m;
        CHECK_OK(ndp_model_build(&f, &mo, &whole));
        mo.frozen = frozen[k / 2], mo.n_frozen = k / 2 ? 2 : 3;
        CHECK_OK(ndp_model_build(&f, &mo, &m));
        result all = run(&whole, device, &(way){.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT});
        result one = run(&m, device, &(way){.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT});
        check_frozen(&m, &one, &all);
        for (int i = 0; i < NDP_COUNT(sizes); i++) {
            way w = {.reshard = i % 2, .recompute = k % 2, .gathered = i > 2, .parallel = NDP_PARALLEL_INIT};
            memcpy(w.size, sizes[i], sizeof w.size);
            result r = run(&m, device, &w);
            compare(&m, &r, &one, &w, bound);
            check_frozen(&m, &r, NULL);
            release(&r);
        }
        release(&one);
        release(&all);
        ndp_model_release(&m);
        ndp_model_release(&whole);
    }
}

static void frozen_on_layouts(void **state) {
    (void)state;
    frozen_units(NDP_F64, &ndp_device_ref, &exact);
    frozen_units(NDP_F32, &ndp_device_cpu, &other_single);
    frozen_units(NDP_BF16, &ndp_device_cpu, &half);
}

static void ref_fp64(void **state) { (void)state, check_layouts(true, NDP_F64, &ndp_device_ref, &exact); }
static void ref_fp64_biases(void **state) { (void)state, check_layouts(false, NDP_F64, &ndp_device_ref, &exact); }
static void cpu_fp32(void **state) { (void)state, check_layouts(true, NDP_F32, &ndp_device_cpu, &single); }
static void cpu_fp32_biases(void **state) { (void)state, check_layouts(false, NDP_F32, &ndp_device_cpu, &single); }
static void cpu_bf16(void **state) { (void)state, check_layouts(true, NDP_BF16, &ndp_device_cpu, &half); }

static void programs_agree(void **state) {
    enum { WORLD = 12 };
    (void)state;
    ndp_facts f = tiny_facts(true);
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    ndp_model m;
    assert_int_equal(ndp_model_build(&f, &mo, &m), NDP_OK);
    ndp_layout layout = NDP_LAYOUT_ONE;
    layout.size[NDP_DP_SHARD] = 3, layout.size[NDP_CP] = 2, layout.size[NDP_TP] = 2;
    ndp_engine *engines[WORLD];
    const ndp_program *programs[WORLD];
    const ndp_exec exec = {.device = &ndp_device_null, .threads = 1};
    for (int r = 0; r < WORLD; r++) {
        ndp_engine_opts o = {.model = &m, .step = {.exec = &exec, .accumulation = 2, .node_ranks = 1}};
        o.step.parallel = (ndp_parallel)NDP_PARALLEL_INIT;
        assert_int_equal(ndp_mesh_init(&layout, r, &(ndp_mesh_facts){.kv_heads = f.kv_heads}, &o.step.mesh), NDP_OK);
        assert_int_equal(ndp_engine_create(&o, &engines[r]), NDP_OK);
        programs[r] = ndp_engine_program(engines[r]);
    }
    assert_int_equal(ndp_program_check(programs, WORLD), NDP_OK);
    const ndp_program *some[] = {programs[0], programs[4], programs[11]}; /* 0 and 4 share a shard group */
    assert_int_equal(ndp_program_check(some, NDP_COUNT(some)), NDP_OK);
    ndp_program bad = *programs[4];
    bad.instrs = malloc((size_t)bad.n * sizeof *bad.instrs);
    for (int step = 0; step < 2; step++) { /* another size; then another order: two begins change places */
        memcpy(bad.instrs, programs[4]->instrs, (size_t)bad.n * sizeof *bad.instrs);
        int i = 0;
        while (!ndp_instr_is(&bad.instrs[i], NDP_CALL_BEGIN) || bad.instrs[i].call.op != &ndp_op_all_gather)
            i++;
        ndp_operand larger = bad.instrs[i].call.in[0];
        larger.view.cols += 64;
        if (step == 0)
            bad.instrs[i].call.in = &larger;
        else
            bad.instrs[i].call.what = "another";
        programs[4] = &bad;
        assert_int_equal(ndp_program_check(programs, WORLD), NDP_EBUG);
        assert_non_null(strstr(ndp_error_message(), "rank 4"));
        some[1] = &bad;
        assert_int_equal(ndp_program_check(some, NDP_COUNT(some)), NDP_EBUG);
        assert_non_null(strstr(ndp_error_message(), "rank 4"));
        programs[4] = ndp_engine_program(engines[4]);
    }
    free(bad.instrs);
    for (int r = 0; r < WORLD; r++)
        ndp_engine_destroy(engines[r]);
    ndp_model_release(&m);
}

static ndp_status other_accumulation(ndp_transport *t, void *arg) {
    ndp_layout layout = NDP_LAYOUT_ONE;
    int rank = ndp_transport_rank(t);
    layout.size[NDP_DP_SHARD] = 2, layout.size[NDP_TP] = 2;
    const ndp_exec exec = {.device = &ndp_device_cpu, .threads = 1};
    ndp_engine_opts o = {.model = arg, .transport = t, .step = {.exec = &exec}};
    o.step.accumulation = rank == 3 ? 2 : 1;
    o.step.parallel = (ndp_parallel)NDP_PARALLEL_INIT;
    NDP_TRY(ndp_mesh_init(&layout, rank, &(ndp_mesh_facts){.kv_heads = o.model->facts.kv_heads}, &o.step.mesh));
    ndp_engine *e;
    NDP_TRY(ndp_engine_create(&o, &e));
    ndp_engine_destroy(e);
    return NDP_OK;
}

/* Ranks whose programs differ say so before the first step, and name both sides. */
static void ranks_that_differ_are_named(void **state) {
    (void)state;
    ndp_facts f = tiny_facts(true);
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    ndp_model m;
    CHECK_OK(ndp_model_build(&f, &mo, &m));
    CHECK_FAILS(ndp_local_world(4, other_accumulation, &m), NDP_EBUG, "its rank 1 is at #");
    assert_non_null(strstr(ndp_error_message(), "where its rank 0 is at"));
    ndp_model_release(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ref_fp64),       cmocka_unit_test(kv_heads_that_tp_does_not_divide),
        cmocka_unit_test(families_fp64),  cmocka_unit_test(families_fp32),
        cmocka_unit_test(families_bf16),  cmocka_unit_test(ref_fp64_biases),
        cmocka_unit_test(cpu_fp32),       cmocka_unit_test(cpu_fp32_biases),
        cmocka_unit_test(cpu_bf16),       cmocka_unit_test(frozen_on_layouts),
        cmocka_unit_test(programs_agree), cmocka_unit_test(ranks_that_differ_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
