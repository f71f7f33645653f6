/* Overlap is in the program: gathers begin before the run that comes before their reader, reductions of a unit before
 * the next unit's backward and end after it; blocks that live at the same time never overlap. */
#include "check.h"
#include "step/program_text.h"
#include "step/tiny.h"

typedef struct setup {
    ndp_model model;
    ndp_engine *engine;
    const ndp_program *p;
} setup;

static const ndp_exec planned = {.device = &ndp_device_null, .threads = 1};

static void begin(setup *s, int replicate, int shard, int accumulation, bool reshard, bool recompute) {
    ndp_facts f = tiny_facts(true);
    f.layers = 4;
    ndp_model_opts mo = tiny_opts(NDP_BF16, 24);
    CHECK_OK(ndp_decoder_build(&f, &mo, &s->model));
    ndp_layout layout = NDP_LAYOUT_ONE;
    layout.size[NDP_DP_REPLICATE] = replicate, layout.size[NDP_DP_SHARD] = shard;
    ndp_engine_opts o = {.model = &s->model,
                         .step = {.parallel = NDP_PARALLEL_INIT,
                                  .exec = &planned,
                                  .accumulation = accumulation,
                                  .node_ranks = 1,
                                  .reshard = reshard,
                                  .recompute = recompute}};
    CHECK_OK(ndp_mesh_init(&layout, 0, &(ndp_mesh_facts){.kv_heads = f.kv_heads}, &o.step.mesh));
    CHECK_OK(ndp_engine_create(&o, &s->engine));
    s->p = ndp_engine_program(s->engine);
}

static void end(setup *s) {
    ndp_engine_destroy(s->engine);
    ndp_model_release(&s->model);
}

static int runs_between(const ndp_program *p, int from, int to) {
    int n = 0;
    for (int i = from + 1; i < to; i++)
        n += p->instrs[i].code == NDP_DO_RUN;
    return n;
}

static int count_kind(const ndp_program *p, ndp_collective kind, ndp_group_kind group) {
    int n = 0;
    for (int i = 0; i < p->n; i++)
        n += ndp_instr_is(&p->instrs[i], NDP_CALL_BEGIN) && p->instrs[i].call.op->collective == kind &&
             ndp_channel_group(p->instrs[i].call.channel) == group;
    return n;
}

/* All gathers but the very first have a run to hide behind; so have all scatters but the last, and all all_reduces of
 * replicas but the last two. */
static void communication_hides_behind_runs(void **state) {
    (void)state;
    setup s;
    begin(&s, 2, 3, 2, true, true);
    int bare_gathers = 0, bare_scatters = 0, bare_replicas = 0;
    for (int i = 0; i < s.p->n; i++) {
        const ndp_instr *in = &s.p->instrs[i];
        if (!ndp_instr_is(in, NDP_CALL_BEGIN) || ndp_call_elements(&in->call) == 1)
            continue;
        ndp_group_kind group = ndp_channel_group(in->call.channel);
        if (group != NDP_GROUP_SHARD && group != NDP_GROUP_REPLICATE)
            continue;
        bool bare = runs_between(s.p, i, in->call.partner) == 0;
        bare_gathers += bare && in->call.op == &ndp_op_all_gather;
        bare_scatters += bare && in->call.op == &ndp_op_reduce_scatter;
        bare_replicas += bare && in->call.op == &ndp_op_all_reduce;
    }
    assert_int_equal(bare_gathers, 1);
    assert_int_equal(bare_scatters, 1);
    assert_true(bare_replicas <= 2);
    end(&s);
}

/* A scatter begins right behind the run that wrote the last of its gradient. */
static void scatters_begin_at_once(void **state) {
    (void)state;
    setup s;
    begin(&s, 1, 2, 1, true, false);
    int scatters = 0;
    for (int i = 0; i < s.p->n; i++) {
        const ndp_instr *in = &s.p->instrs[i];
        if (!ndp_instr_is(in, NDP_CALL_BEGIN) || in->call.op != &ndp_op_reduce_scatter)
            continue;
        int writer = i;
        while (s.p->instrs[writer].code != NDP_DO_RUN)
            writer--;
        assert_int_equal(s.p->instrs[writer].phase, NDP_BACKWARD_WEIGHT);
        assert_string_equal(s.p->instrs[writer].what, in->what);
        scatters++;
    }
    assert_int_equal(scatters, s.model.n_buffers);
    end(&s);
}

/* reshard_after_forward: blocks are gathered again for the backward; without, once an update. */
static void resharding_gathers_twice(void **state) {
    (void)state;
    setup s;
    begin(&s, 1, 2, 2, true, false);
    /* a micro-batch gathers each of 4 blocks twice but the last, which stays for its backward; head and embedding once
     */
    assert_true(count_kind(s.p, NDP_ALL_GATHER, NDP_GROUP_SHARD) >= 2 * (4 + 3));
    size_t resharded = s.p->bytes[NDP_REGION_ARENA];
    end(&s);
    begin(&s, 1, 2, 2, false, false);
    assert_int_equal(count_kind(s.p, NDP_ALL_GATHER, NDP_GROUP_SHARD), s.model.n_buffers);
    assert_true(s.p->bytes[NDP_REGION_ARENA] > resharded);
    end(&s);
}

static void living_blocks_do_not_overlap(void **state) {
    (void)state;
    for (int way = 0; way < 8; way++) {
        setup s;
        begin(&s, 1 + (way & 1), 2, 1 + (way >> 1 & 1), true, way >> 2 & 1);
        for (int a = 0; a < s.p->n_blocks; a++)
            for (int b = 0; b < a; b++) {
                const ndp_block *x = &s.p->blocks[a], *y = &s.p->blocks[b];
                bool together = x->region == y->region && ndp_lives_meet(&x->life, &y->life) && x->bytes && y->bytes;
                if (together && x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes)
                    fail_msg("blocks %d and %d share memory at the same time", a, b);
            }
        end(&s);
    }
}

/* What is alive at once is at most what is taken, and not much less. */
static void plan_is_tight(void **state) {
    (void)state;
    setup s;
    begin(&s, 1, 2, 2, true, false);
    ndp_budget budget;
    ndp_program_budget(s.p, &budget);
    size_t sum = 0;
    for (int c = 0; c < NDP_MEM_CLASSES; c++)
        sum += budget.class_bytes[c];
    assert_true(sum <= budget.total);
    assert_true((double)budget.total <= 1.15 * (double)sum);
    end(&s);
}

/* Bytes of a class at the fullest moment, on one of `cp` ranks. */
static size_t class_bytes(ndp_memory_class class, int cp, bool gathers) {
    ndp_facts f = tiny_facts(true);
    f.layers = 4;
    ndp_model_opts mo = tiny_opts(NDP_F32, 1024);
    ndp_model m;
    ndp_engine *e;
    ndp_budget budget;
    ndp_layout layout = NDP_LAYOUT_ONE;
    layout.size[NDP_CP] = cp;
    ndp_engine_opts o = {.model = &m, .step = {.parallel = NDP_PARALLEL_INIT, .exec = &planned}};
    o.step.parallel.cp_method = gathers ? NDP_CP_ALL_GATHER : NDP_CP_RING;
    o.step.accumulation = o.step.node_ranks = 1;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    CHECK_OK(ndp_mesh_init(&layout, 0, &(ndp_mesh_facts){.kv_heads = f.kv_heads}, &o.step.mesh));
    CHECK_OK(ndp_engine_create(&o, &e));
    ndp_program_budget(ndp_engine_program(e), &budget);
    ndp_engine_destroy(e);
    ndp_model_release(&m);
    return budget.class_bytes[class];
}

/* The context axis leaves each rank its part of the activations: no layer keeps the keys of others. */
static void activations_fall_with_context(void **state) {
    (void)state;
    double one = (double)class_bytes(NDP_MEM_ACTIVATIONS, 1, false);
    for (int cp = 2; cp <= 8; cp *= 2)
        for (int gathers = 0; gathers < 2; gathers++) {
            double part = (double)class_bytes(NDP_MEM_ACTIVATIONS, cp, gathers) * cp / one;
            if (part < 0.98 || part > 1.02)
                fail_msg("cp %d, %s: %.0f%% of its part of one rank's activations", cp, gathers ? "all_gather" : "ring",
                         100 * part);
        }
}

/* dp_shard 2 x tp 2, gathers into buffers, as text: a gather that begins one run later, or a reduction that is waited
 * for one run earlier, is a difference. */
static void a_program_as_text(void **state) {
    (void)state;
    ndp_facts f = tiny_facts(true);
    ndp_model_opts mo = tiny_opts(NDP_F32, 24);
    ndp_layout layout = NDP_LAYOUT_ONE;
    ndp_engine *e;
    ndp_model m;
    ndp_str text = {0};
    ndp_engine_opts o = {.model = &m,
                         .step = {.parallel = NDP_PARALLEL_INIT,
                                  .exec = &planned,
                                  .accumulation = 2,
                                  .node_ranks = 1,
                                  .reshard = true,
                                  .optimizer = {.name = NDP_ADAMW, .max_norm = 1}}};
    f.layers = 3;
    layout.size[NDP_DP_SHARD] = layout.size[NDP_TP] = 2;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    CHECK_OK(ndp_mesh_init(&layout, 0, &(ndp_mesh_facts){.kv_heads = f.kv_heads}, &o.step.mesh));
    CHECK_OK(ndp_engine_create(&o, &e));
    ndp_program_print(ndp_engine_program(e), false, &text);
    drop_addresses(&text);
    check_golden("step/golden/shard_tp.txt", &text);
    ndp_engine_destroy(e);
    ndp_model_release(&m);
}

/* Memory that two ranks of a node share counts once: each rank has its slices of the weights, wherever they lie. */
static void shared_memory_is_divided(void **state) {
    (void)state;
    for (int node_ranks = 1; node_ranks <= 2; node_ranks++) {
        ndp_facts f = tiny_facts(true);
        ndp_model_opts mo = tiny_opts(NDP_F32, 24);
        ndp_layout layout = NDP_LAYOUT_ONE;
        ndp_engine *e;
        ndp_model m;
        ndp_budget budget;
        ndp_engine_opts o = {
            .model = &m,
            .step = {.parallel = NDP_PARALLEL_INIT, .exec = &planned, .accumulation = 1, .node_ranks = node_ranks}};
        layout.size[NDP_DP_SHARD] = 2;
        CHECK_OK(ndp_decoder_build(&f, &mo, &m));
        CHECK_OK(ndp_mesh_init(&layout, 0, &(ndp_mesh_facts){.kv_heads = f.kv_heads}, &o.step.mesh));
        CHECK_OK(ndp_engine_create(&o, &e));
        const ndp_program *p = ndp_engine_program(e);
        size_t slices = 0, shared = p->bytes[NDP_REGION_SHARED + NDP_GROUP_SHARD];
        for (int i = 0; i < m.n_buffers; i++)
            slices += (size_t)p->owned[i].shard.slice * sizeof(float);
        ndp_program_budget(p, &budget);
        assert_int_equal(shared, node_ranks == 2 ? 2 * slices : 0);
        assert_int_equal(budget.total, p->bytes[NDP_REGION_ARENA] + shared / 2);
        if (node_ranks == 2) /* there are no gathered buffers besides */
            assert_int_equal(budget.class_bytes[NDP_MEM_WEIGHTS] + budget.class_bytes[NDP_MEM_MASTER], slices);
        ndp_engine_destroy(e);
        ndp_model_release(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(communication_hides_behind_runs),
                                       cmocka_unit_test(scatters_begin_at_once),
                                       cmocka_unit_test(resharding_gathers_twice),
                                       cmocka_unit_test(living_blocks_do_not_overlap),
                                       cmocka_unit_test(plan_is_tight),
                                       cmocka_unit_test(a_program_as_text),
                                       cmocka_unit_test(shared_memory_is_divided),
                                       cmocka_unit_test(activations_fall_with_context)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
