/* The gradients of a whole model through graph, lowering, program and executor, on `ref` in fp64, against central
 * finite differences of its loss; with recompute the same bits. */
#include "guarded.h"
#include "step/tiny.h"
#include <math.h>

typedef struct setup {
    ndp_model model;
    ndp_transport *transport;
    ndp_engine *engine;
    ndp_exec exec;
} setup;

/* A dense model, tied or not; or a mixture with factors beside its experts. */
typedef enum kind { UNTIED, TIED, FACTORS_OF_EXPERTS } kind;

static void begin(setup *s, kind of, ndp_recompute recompute, int accumulation) {
    static const char *const targets[] = {"experts.gate_up_proj", "experts.down_proj", "q_proj"};
    ndp_facts f = tiny_facts(of == TIED);
    ndp_model_opts mo = tiny_opts(NDP_F64, 13);
    if (of == FACTORS_OF_EXPERTS) {
        CHECK_OK(ndp_facts_parse_text(TINY("qwen3_moe", "\"head_dim\": 6, \"num_experts\": 3, "
                                                        "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 7"),
                                      "tiny", &f));
        mo.adapter = (ndp_adapter){.r = 2, .scale = 0.5, .targets = targets, .n_targets = NDP_COUNT(targets)};
    }
    if (ndp_decoder_build(&f, &mo, &s->model) != NDP_OK)
        fail_msg("%s (%s)", ndp_error_message(), ndp_error_trail());
    assert_int_equal(ndp_transport_self(&s->transport), NDP_OK);
    ndp_layout one = NDP_LAYOUT_ONE;
    s->exec = (ndp_exec){.device = guarded(&ndp_device_ref), .threads = 1};
    ndp_engine_opts eo = {.model = &s->model,
                          .step = {.parallel = NDP_PARALLEL_INIT,
                                   .exec = &s->exec,
                                   .accumulation = accumulation,
                                   .reshard = true,
                                   .recompute = recompute,
                                   .optimizer = {.name = NDP_SGD}},
                          .transport = s->transport};
    assert_int_equal(
        ndp_mesh_init(&one, 0, &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(&s->model)}, &eo.step.mesh), NDP_OK);
    if (ndp_engine_create(&eo, &s->engine) != NDP_OK)
        fail_msg("%s (%s)", ndp_error_message(), ndp_error_trail());
    tiny_fill(s->engine);
    for (int m = 0; m < accumulation; m++)
        tiny_batch(s->engine, m, m);
}

static void end(setup *s) {
    ndp_engine_destroy(s->engine);
    ndp_transport_destroy(s->transport);
    ndp_model_release(&s->model);
    unguard(s->exec.device);
}

static double loss(setup *s) {
    ndp_step_result r;
    assert_int_equal(ndp_engine_step(s->engine, 0.0, 0, false, &r), NDP_OK);
    return r.loss;
}

static void check_model(kind of, ndp_recompute recompute, int accumulation) {
    setup s;
    begin(&s, of, recompute, accumulation);
    loss(&s);
    for (int b = 0; b < s.model.n_buffers; b++) {
        const ndp_segments *segments = &s.model.buffers[b].segments;
        int64_t slice = ndp_engine_shard(s.engine, b)->slice;
        if (!s.model.buffers[b].trainable)
            continue;
        double *w = malloc((size_t)slice * sizeof *w), *g = malloc((size_t)slice * sizeof *g);
        CHECK_OK(ndp_engine_read(s.engine, NDP_OWNED_MASTER, b, 0, slice, 1, w));
        CHECK_OK(ndp_engine_read(s.engine, NDP_OWNED_GRAD, b, 0, slice, 1, g));
        for (int i = 0; i < segments->n; i++) {
            const ndp_segment *seg = &segments->items[i];
            int64_t n = ndp_segment_elements(seg);
            double want = 0, h = 1e-5, slope = 0;
            double *direction = malloc((size_t)n * sizeof *direction), *keep = malloc((size_t)n * sizeof *keep);
            for (int64_t k = 0; k < n; k++) {
                direction[k] = ndp_rng_uniform(3, (uint64_t)(b * 100 + i), (uint64_t)k) - 0.5;
                keep[k] = w[seg->offset + k];
                want += direction[k] * g[seg->offset + k];
            }
            for (int side = -1; side <= 1; side += 2) {
                for (int64_t k = 0; k < n; k++)
                    w[seg->offset + k] = keep[k] + side * h * direction[k];
                CHECK_OK(ndp_engine_write(s.engine, NDP_OWNED_MASTER, b, 0, slice, 1, w));
                slope += side * loss(&s) / (2 * h);
            }
            memcpy(w + seg->offset, keep, (size_t)n * sizeof *keep);
            CHECK_OK(ndp_engine_write(s.engine, NDP_OWNED_MASTER, b, 0, slice, 1, w));
            loss(&s);
            if (fabs(slope - want) > 1e-8 + 1e-6 * fabs(want))
                fail_msg("%s: finite difference %.12g, gradient %.12g", seg->name, slope, want);
            free(direction);
            free(keep);
        }
        free(w);
        free(g);
    }
    end(&s);
}

static void tied_model(void **state) { (void)state, check_model(TIED, NDP_RECOMPUTE_NONE, 1); }
static void untied_model_with_biases(void **state) { (void)state, check_model(UNTIED, NDP_RECOMPUTE_NONE, 1); }
static void accumulated_and_recomputed(void **state) { (void)state, check_model(TIED, NDP_RECOMPUTE_BLOCK, 3); }
static void recomputed_of_what_is_kept(void **state) { (void)state, check_model(UNTIED, NDP_RECOMPUTE_SELECTIVE, 2); }
static void factors_of_experts(void **state) { (void)state, check_model(FACTORS_OF_EXPERTS, NDP_RECOMPUTE_BLOCK, 2); }

/* What is kept is what would be made again. */
static void the_same_bits(void **state) {
    (void)state;
    double *of[3] = {0};
    int64_t n = 0;
    for (int way = 0; way < 3; way++) {
        setup s;
        begin(&s, UNTIED, (ndp_recompute)way, 2);
        loss(&s);
        n = 0;
        for (int b = 0; b < s.model.n_buffers; b++) {
            int64_t slice = ndp_engine_shard(s.engine, b)->slice;
            of[way] = realloc(of[way], (size_t)(n + slice) * sizeof **of);
            CHECK_OK(ndp_engine_read(s.engine, NDP_OWNED_GRAD, b, 0, slice, 1, of[way] + n));
            n += slice;
        }
        end(&s);
    }
    for (int way = 1; way < 3; way++)
        assert_memory_equal(of[way], of[0], (size_t)n * sizeof **of);
    for (int way = 0; way < 3; way++)
        free(of[way]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tied_model),
                                       cmocka_unit_test(untied_model_with_biases),
                                       cmocka_unit_test(accumulated_and_recomputed),
                                       cmocka_unit_test(recomputed_of_what_is_kept),
                                       cmocka_unit_test(factors_of_experts),
                                       cmocka_unit_test(the_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
