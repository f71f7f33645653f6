/* Layouts with 8-bit states. Blocks start with a tensor, so the ranks of dp, cp, sp and pp have the blocks of one rank:
 * in fp64 on `ref`, where no rounding moves a number to another code, results are equal as with any optimizer. Blocks
 * under tp start with a rank's part, so these layouts are compared with tp alone, and tp with one rank by what the
 * codes round; so with ep. */
#include "step/models.h"

/* Large enough for codes: most tensors of the tiny models; their blocks end in the middle of glued ones. */
enum { LEAST = 100 };

/* The moments are off by up to half the distance of two codes, 1/100, and weights by what that makes of three updates
 * of 1e-2. */
static const bounds codes_round = {1e-9, 1e-12, 3e-2, 1e-2, 3e-2};

static void check_way(const ndp_model *m, const ndp_device *device, int i, const result *alone, const bounds *bound) {
    way w = {.reshard = i & 1, .recompute = i & 2, .gathered = i % 3 > 0, .optimizer = NDP_ADAMW8BIT};
    w.parallel = (ndp_parallel){i % 4 != 1, i % 5 ? NDP_CP_RING : NDP_CP_ALL_GATHER, i % 7 != 3, 0, 0, 1.5};
    memcpy(w.size, layout_sizes[i], sizeof w.size);
    check_against(m, device, &w, alone, bound);
}

/* All layouts with that size of tp; `one`: the result of one rank. */
static int check_tp(const ndp_model *m, const ndp_device *device, int tp, const result *one, const bounds *bound) {
    const way alone = {.size = {1, 1, 1, 1, tp}, .parallel = NDP_PARALLEL_INIT, .optimizer = NDP_ADAMW8BIT};
    result r = run(m, device, &alone);
    int checked = 0;
    compare(m, &r, one, &alone, tp > 1 ? &codes_round : bound);
    for (int i = 0; i < NDP_COUNT(layout_sizes); i++)
        if (layout_sizes[i][4] == tp) {
            check_way(m, device, i, &r, bound);
            checked++;
        }
    release(&r);
    return checked;
}

static void check_codes(const ndp_facts *f, ndp_dtype compute, const ndp_device *device, const bounds *bound) {
    ndp_model_opts mo = tiny_opts(compute, ROWS);
    ndp_model m;
    CHECK_OK(ndp_decoder_build(f, &mo, &m));
    tiny_code(&m, LEAST);
    result one =
        run(&m, device, &(way){.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT, .optimizer = NDP_ADAMW8BIT});
    result wide = run(&m, device, &(way){.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT});
    assert_true(distance(one.weights, wide.weights, model_elements(&m)) > 1e-5); /* codes were used */
    int checked = 0;
    for (int tp = 1; tp <= 4; tp *= 2)
        checked += check_tp(&m, device, tp, &one, bound);
    assert_int_equal(checked, NDP_COUNT(layout_sizes));
    release(&one);
    release(&wide);
    ndp_model_release(&m);
}

static void family(const char *json) {
    ndp_facts f;
    CHECK_OK(ndp_facts_parse_text(json, "tiny", &f));
    check_codes(&f, NDP_F64, &ndp_device_ref, &exact);
}

static void tied(void **state) {
    (void)state;
    ndp_facts f = tiny_facts(true);
    check_codes(&f, NDP_F64, &ndp_device_ref, &exact);
}

static void untied_with_biases(void **state) {
    (void)state;
    ndp_facts f = tiny_facts(false);
    check_codes(&f, NDP_F64, &ndp_device_ref, &exact);
}

static void transposed_and_fused(void **state) { (void)state, family(TINY_GPT2); }

static void mixture(void **state) {
    (void)state;
    family(TINY("mixtral", "\"head_dim\": 6, \"num_local_experts\": 4, \"num_experts_per_tok\": 2"));
}

/* Ranks with different experts: dense tensors have the blocks of tp, stacks those of ep. */
static void shared_experts(void **state) {
    static const struct {
        way alone, ways[3];
    } of[] = {
        {{.size = {1, 2, 1, 1, 1}, .ep = 2},
         {{.size = {3, 2, 1, 1, 1}, .ep = 2}, {.size = {1, 1, 2, 2, 1}, .ep = 2}, {.size = {1, 3, 2, 1, 1}, .ep = 2}}},
        {{.size = {1, 1, 1, 1, 2}, .ep = 2},
         {{.size = {1, 2, 2, 1, 2}, .ep = 2}, {.size = {2, 1, 1, 1, 2}, .ep = 2}, {.size = {1, 1, 1, 2, 2}, .ep = 2}}},
        {{.size = {1, 3, 1, 1, 1}, .ep = 3}, /* of 4 experts */
         {{.size = {2, 3, 1, 1, 1}, .ep = 3}, {.size = {1, 1, 3, 1, 1}, .ep = 3}, {.size = {1, 3, 1, 2, 1}, .ep = 3}}}};
    const way alone = {.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT, .optimizer = NDP_ADAMW8BIT};
    ndp_model_opts mo = tiny_opts(NDP_F64, ROWS);
    ndp_model m;
    ndp_facts f;
    (void)state;
    CHECK_OK(ndp_facts_parse_text(
        TINY("mixtral", "\"head_dim\": 6, \"num_local_experts\": 4, \"num_experts_per_tok\": 2"), "tiny", &f));
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    tiny_code(&m, LEAST);
    result one = run(&m, &ndp_device_ref, &alone);
    for (int i = 0; i < NDP_COUNT(of); i++) {
        way w = of[i].alone;
        w.parallel = alone.parallel, w.optimizer = NDP_ADAMW8BIT;
        result r = run(&m, &ndp_device_ref, &w);
        compare(&m, &r, &one, &w, &codes_round);
        for (int k = 0; k < NDP_COUNT(of[i].ways); k++) {
            w = of[i].ways[k];
            w.parallel = (ndp_parallel){k != 1, NDP_CP_RING, true, 0, 0, 1}, w.optimizer = NDP_ADAMW8BIT;
            w.recompute = k % 3, w.reshard = k == 0;
            check_against(&m, &ndp_device_ref, &w, &r, &exact);
        }
        release(&r);
    }
    release(&one);
    ndp_model_release(&m);
}

/* ---- memory ---- */

/* Two codes an element of the slices, two scales a block, and 8 bytes an element of tensors that are not coded. */
static void states_take_two_bytes(void **state) {
    (void)state;
    static const ndp_exec exec = {.device = &ndp_device_null, .threads = 1};
    ndp_facts f = tiny_facts(false);
    f.hidden = 192, f.ffn = 512, f.heads = 12, f.kv_heads = 4, f.head_dim = f.ropes[0].dim = 16;
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    ndp_model m;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    int64_t coded = 0, rest = 0;
    for (int i = 0; i < m.n_buffers; i++)
        for (int k = 0; k < m.buffers[i].segments.n; k++) {
            const ndp_segment *s = &m.buffers[i].segments.items[k];
            *(s->coded ? &coded : &rest) += s->rows * s->cols;
        }
    assert_true(coded > 20 * rest && rest > 1000);
    for (int shards = 1; shards < 4; shards++) {
        double sum = 0, expected = (2 + 8.0 / 256) * (double)coded + 8 * (double)rest;
        for (int rank = 0; rank < shards; rank++) {
            ndp_layout layout = NDP_LAYOUT_ONE;
            ndp_engine_opts o = {.model = &m,
                                 .step = {.parallel = NDP_PARALLEL_INIT,
                                          .exec = &exec,
                                          .node_ranks = 1,
                                          .accumulation = 1,
                                          .optimizer = {.name = NDP_ADAMW8BIT}}};
            ndp_budget b;
            ndp_engine *e;
            layout.size[NDP_DP_SHARD] = shards;
            CHECK_OK(ndp_mesh_init(&layout, rank, &(ndp_mesh_facts){.kv_heads = f.kv_heads}, &o.step.mesh));
            CHECK_OK(ndp_engine_create(&o, &e));
            ndp_program_budget(ndp_engine_program(e), &b);
            sum += (double)b.class_bytes[NDP_MEM_OPTIMIZER];
            ndp_engine_destroy(e);
        }
        if (!(sum >= expected && sum < 1.01 * expected)) /* codes of norms, the padding of slices and of blocks */
            fail_msg("%d slices: %.0f bytes, expected %.0f", shards, sum, expected);
    }
    ndp_model_release(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tied),    cmocka_unit_test(untied_with_biases), cmocka_unit_test(transposed_and_fused),
        cmocka_unit_test(mixture), cmocka_unit_test(shared_experts),     cmocka_unit_test(states_take_two_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
