/* Layout invariance of the engine on `local`: every product of the axes gives the gradients, norm and loss of one rank;
 * after updates the weights too. The programs of all ranks pass the checker. Here a Llama in fp64 on `ref`; on `cpu`:
 * test_layouts_cpu; other families: test_layouts_families; frozen units: test_layouts_frozen. */
#include "step/models.h"

static void ref_fp64(void **state) { (void)state, check_layouts(true, NDP_F64, &ndp_device_ref, &exact); }
static void ref_fp64_biases(void **state) { (void)state, check_layouts(false, NDP_F64, &ndp_device_ref, &exact); }

/* 4 kv heads over tp 6 are held by all, for sp 2 to choose from; 6 kv heads over tp 4, for sp 3. */
static void kv_heads_that_tp_does_not_divide(void **state) {
    (void)state;
    static const int kv_heads[] = {4, 6}, sizes[][5] = {{1, 1, 1, 2, 6}, {1, 1, 1, 3, 4}};
    for (int i = 0; i < 2; i++) {
        ndp_facts f = tiny_facts(true);
        f.heads = 12, f.kv_heads = kv_heads[i], f.head_dim = f.ropes[0].dim = 4;
        ndp_model_opts mo = tiny_opts(NDP_F64, ROWS);
        ndp_model m;
        CHECK_OK(ndp_decoder_build(&f, &mo, &m));
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

static void programs_agree(void **state) {
    enum { WORLD = 12 };
    (void)state;
    ndp_facts f = tiny_facts(true);
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    ndp_model m;
    assert_int_equal(ndp_decoder_build(&f, &mo, &m), NDP_OK);
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
    NDP_TRY(ndp_mesh_init(&layout, rank, &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(o.model)}, &o.step.mesh));
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
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    CHECK_FAILS(ndp_local_world(4, other_accumulation, &m), NDP_EBUG, "its rank 1 is at #");
    assert_non_null(strstr(ndp_error_message(), "where its rank 0 is at"));
    ndp_model_release(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ref_fp64), cmocka_unit_test(ref_fp64_biases),
                                       cmocka_unit_test(kv_heads_that_tp_does_not_divide),
                                       cmocka_unit_test(programs_agree), cmocka_unit_test(ranks_that_differ_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
