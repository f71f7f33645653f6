/* What a program leaves out for frozen units: their backward up to the first unit that has something to train, their
 * gradients, optimizer state, reductions and updates, and in bf16 their master weights. */
#include "check.h"
#include "step/tiny.h"

enum { ROWS = 13, WORLD = 4 };

typedef struct planned {
    ndp_model model;
    ndp_engine *engine;
    ndp_budget budget;
} planned;

/* Rank 0 of dp_shard 4. */
static planned plan(ndp_dtype compute, const char *const *frozen, int n) {
    static ndp_facts f;
    planned p;
    f = tiny_facts(true);
    f.layers = 4;
    ndp_model_opts mo = tiny_opts(compute, ROWS);
    mo.frozen = frozen, mo.n_frozen = n;
    CHECK_OK(ndp_decoder_build(&f, &mo, &p.model));
    static const ndp_exec exec = {.device = &ndp_device_null, .threads = 1};
    ndp_engine_opts o = {.model = &p.model,
                         .step = {.exec = &exec,
                                  .accumulation = 2,
                                  .parallel = NDP_PARALLEL_INIT,
                                  .node_ranks = 1,
                                  .optimizer = {.name = NDP_ADAMW}}};
    ndp_layout layout = NDP_LAYOUT_ONE;
    layout.size[NDP_DP_SHARD] = WORLD;
    CHECK_OK(ndp_mesh_init(&layout, 0, &(ndp_mesh_facts){.kv_heads = f.kv_heads}, &o.step.mesh));
    CHECK_OK(ndp_engine_create(&o, &p.engine));
    ndp_program_budget(ndp_engine_program(p.engine), &p.budget);
    return p;
}

static void release(planned *p) {
    ndp_engine_destroy(p->engine);
    ndp_model_release(&p->model);
}

static void frozen_buffers_are_only_gathered(void **state) {
    (void)state;
    static const char *const names[] = {"embed", "layers.[01]"};
    planned p = plan(NDP_F32, names, 2);
    const ndp_program *program = ndp_engine_program(p.engine);
    int gathers = 0;
    for (int i = 0; i < program->n; i++) {
        const ndp_instr *in = &program->instrs[i];
        bool backward = in->phase == NDP_BACKWARD_INPUT || in->phase == NDP_BACKWARD_WEIGHT;
        if (in->code == NDP_DO_RUN && backward)
            assert_true(in->unit > 2); /* embed, layers.0 and layers.1 come before the first that is trained */
        if (in->code == NDP_DO_RUN && in->unit == 3)
            assert_int_equal(in->bases[NDP_BASE_GRAD_INPUT], NDP_NONE);
        if (in->code == NDP_DO_RUN || in->buffer == NDP_NONE || p.model.buffers[in->buffer].trainable)
            continue;
        assert_int_equal(in->code, NDP_DO_CALL);
        assert_ptr_equal(in->call.op, &ndp_op_all_gather);
        gathers++;
    }
    assert_true(gathers > 0);
    for (int b = 0; b < 3; b++) {
        assert_true(ndp_engine_has(p.engine, NDP_OWNED_MASTER, b));
        assert_false(ndp_engine_has(p.engine, NDP_OWNED_GRAD, b));
        assert_false(ndp_engine_has(p.engine, NDP_OWNED_STATE0, b));
    }
    release(&p);
}

static void frozen_units_take_less_memory(void **state) {
    (void)state;
    static const char *const names[] = {"embed", "layers.[01]"};
    for (int bf16 = 0; bf16 < 2; bf16++) {
        planned all = plan(bf16 ? NDP_BF16 : NDP_F32, NULL, 0), some = plan(bf16 ? NDP_BF16 : NDP_F32, names, 2);
        const size_t *a = all.budget.class_bytes, *s = some.budget.class_bytes;
        assert_true(some.budget.total < all.budget.total);
        for (int c = 0; c < 2; c++) { /* half of the weights, and more, are frozen */
            int class = c ? NDP_MEM_GRADIENTS : NDP_MEM_OPTIMIZER;
            assert_true(s[class] < a[class]);
        }
        assert_true(s[NDP_MEM_ACTIVATIONS] < a[NDP_MEM_ACTIVATIONS]);
        assert_true(s[NDP_MEM_FROZEN] > 0 && a[NDP_MEM_FROZEN] == 0 && s[NDP_MEM_MASTER] < a[NDP_MEM_MASTER]);
        if (bf16) /* a frozen weight is stored once, in 2 bytes, where a trained one takes 4 + 2 */
            assert_true(s[NDP_MEM_MASTER] + s[NDP_MEM_FROZEN] + s[NDP_MEM_WEIGHTS] <
                        a[NDP_MEM_MASTER] + a[NDP_MEM_WEIGHTS]);
        release(&all);
        release(&some);
    }
}

static void patterns_that_name_nothing_are_refused(void **state) {
    (void)state;
    static const char *const nothing[] = {"layers.4"}, *const everything[] = {"*"};
    ndp_facts f = tiny_facts(true);
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    ndp_model m;
    mo.frozen = nothing, mo.n_frozen = 1;
    CHECK_FAILS(ndp_decoder_build(&f, &mo, &m), NDP_EINVAL, "there is no unit layers.4");
    mo.frozen = everything;
    CHECK_FAILS(ndp_decoder_build(&f, &mo, &m), NDP_EINVAL, "nothing is left to train");
}

/* Before any memory is there. */
static void names_that_cannot_be_trained_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *names[2], *says;
    } cases[] = {
        {{"tq_proj"}, "'tq_proj' names no tensor"},
        {{"lm_head", "*.experts.[01].*"}, "in all 4 of the 8 tensors of experts that are one stack"},
        {{"*.w1"}, "model.layers.0.block_sparse_moe.experts.0.w1.weight, and in all 4 of the 8"},
        {{"v_proj"}, "model.layers.0.self_attn.v_proj.weight and not model.layers.0.self_attn.k_proj.weight: they are"},
        {{"q_proj"},
         "model.layers.0.self_attn.q_proj.weight and not model.layers.0.self_attn.k_proj.weight: they are"}};
    ndp_facts f;
    CHECK_OK(ndp_facts_parse_text(
        TINY("mixtral", "\"head_dim\": 6, \"num_local_experts\": 4, \"num_experts_per_tok\": 2"), "tiny", &f));
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
        ndp_model m;
        mo.trained = cases[i].names, mo.n_trained = cases[i].names[1] ? 2 : 1;
        CHECK_FAILS(ndp_decoder_build(&f, &mo, &m), i ? NDP_ENOTSUP : NDP_EINVAL, cases[i].says);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(frozen_buffers_are_only_gathered),
                                       cmocka_unit_test(frozen_units_take_less_memory),
                                       cmocka_unit_test(patterns_that_name_nothing_are_refused),
                                       cmocka_unit_test(names_that_cannot_be_trained_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
