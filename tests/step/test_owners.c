/* Buffers with other owners than the shard group: slices over a part of its axes, copies over the others. Gathers,
 * shared memory, sums, norm and budget follow from each buffer's own group, so all is that of one rank. */
#include "step/layouts.h"

/* Owners, and the groups whose ranks own the same slice; together the ranks that see different rows. */
typedef struct held {
    ndp_group_kind owners;
    ndp_groups sums;
} held;

#define BIT(kind) NDP_GROUP_BIT(NDP_GROUP_##kind)
static const held kinds[] = {
    {NDP_GROUP_SHARD, BIT(REPLICATE)}, {NDP_GROUP_DATA, BIT(CP) | BIT(SP)}, {NDP_GROUP_LOSS, 0}};

/* The kinds of owners in turn: buffer 0 has number `first`. */
static void build(ndp_dtype compute, int first, ndp_model *m) {
    ndp_facts f = tiny_facts(true);
    ndp_model_opts mo = tiny_opts(compute, ROWS);
    CHECK_OK(ndp_decoder_build(&f, &mo, m));
    for (int i = 0; i < m->n_buffers; i++) {
        const held *of = &kinds[(first + i) % NDP_COUNT(kinds)];
        m->buffers[i].owners = of->owners;
        for (int k = 0; k < m->buffers[i].segments.n; k++)
            m->buffers[i].segments.items[k].sums = of->sums;
    }
}

static void check(ndp_dtype compute, const ndp_device *device, const bounds *bound) {
    static const int sizes[][5] = {{1, 3, 1, 1, 1}, {1, 2, 2, 1, 1}, {1, 1, 2, 2, 1},
                                   {1, 2, 1, 2, 1}, {1, 1, 2, 1, 4}, {1, 2, 1, 1, 2}};
    static const ndp_optimizer_name optimizers[] = {NDP_ADAMW, NDP_MUON, NDP_ADAMW8BIT};
    for (int first = 0; first < NDP_COUNT(kinds); first++)
        for (int o = 0; o < NDP_COUNT(optimizers); o++) {
            ndp_model m;
            build(compute, first, &m);
            tiny_code(&m, 100);
            way alone = {.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT, .optimizer = optimizers[o]};
            result one = run(&m, device, &alone);
            for (int i = 0; i < NDP_COUNT(sizes); i++)
                for (int gathered = 0; gathered < 2; gathered++) {
                    if (optimizers[o] == NDP_ADAMW8BIT && sizes[i][4] > 1)
                        continue; /* other blocks (test_layouts_codes.c) */
                    way w = alone;
                    w.gathered = gathered, w.reshard = i % 2;
                    memcpy(w.size, sizes[i], sizeof w.size);
                    check_against(&m, device, &w, &one, bound);
                }
            release(&one);
            ndp_model_release(&m);
        }
}

static void exact_on_ref(void **state) { (void)state, check(NDP_F64, &ndp_device_ref, &exact); }

/* ---- the plan ---- */

static ndp_engine *plan(const ndp_model *m, const int size[5], int rank, int node_ranks) {
    static const ndp_exec exec = {.device = &ndp_device_cpu, .threads = 1};
    way w = {.parallel = NDP_PARALLEL_INIT};
    memcpy(w.size, size, sizeof w.size);
    ndp_layout layout = layout_of(&w);
    ndp_engine *e;
    ndp_engine_opts o = {
        .model = m,
        .step = {.exec = &exec, .parallel = w.parallel, .accumulation = 1, .node_ranks = node_ranks, .reshard = true}};
    CHECK_OK(ndp_mesh_init(&layout, rank, &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(m)}, &o.step.mesh));
    CHECK_OK(ndp_engine_create(&o, &e));
    return e;
}

/* dp_shard 2 x cp 3: a gather of each buffer is over its owners, on a channel of its own; a rank has its part of memory
 * that others map too; its budget counts that part. */
static void gathers_and_memory_follow_the_owners(void **state) {
    (void)state;
    static const int size[] = {1, 2, 3, 1, 1};
    for (int node_ranks = 1; node_ranks <= 6; node_ranks += 5) {
        ndp_model m;
        build(NDP_BF16, 0, &m);
        ndp_engine *e = plan(&m, size, 0, node_ranks);
        const ndp_program *p = ndp_engine_program(e);
        size_t shared[NDP_GROUPS] = {0}, total = p->bytes[NDP_REGION_ARENA];
        int gathers = 0;
        ndp_comm_event event;
        for (ndp_comm_event_cursor c = {0}; ndp_program_comm_event(p, &c, &event);) {
            const ndp_instr *in = &p->instrs[event.instr];
            if (!event.begin || event.call_index != NDP_NONE || ndp_comm_event_kind(&event) != NDP_ALL_GATHER)
                continue;
            ndp_group_kind owners = p->opts.model->buffers[in->buffer].owners;
            assert_int_equal(ndp_comm_event_channel(&event), NDP_CHANNEL_GATHERS + owners);
            assert_int_equal(ndp_comm_event_group(&event), owners);
            assert_string_equal(ndp_channel_name(ndp_comm_event_channel(&event)), ndp_group_name(owners));
            gathers++;
        }
        for (int i = 0; i < m.n_buffers; i++) {
            const ndp_shard *s = ndp_engine_shard(e, i);
            ndp_group_kind owners = p->opts.model->buffers[i].owners;
            int ranks = ndp_mesh_group(&p->opts.step.mesh, owners).count;
            assert_int_equal(s->shards, ranks);
            assert_int_equal(s->in_place, ranks > 1 && node_ranks == 6);
            shared[owners] += s->in_place ? ((size_t)(s->slice * s->shards) * 2 + 255) / 256 * 256 : 0;
        }
        for (int kind = 0; kind < NDP_GROUPS; kind++) {
            assert_int_equal(p->bytes[NDP_REGION_SHARED + kind], shared[kind]);
            total += shared[kind] / (size_t)ndp_mesh_group(&p->opts.step.mesh, (ndp_group_kind)kind).count;
        }
        ndp_budget budget;
        ndp_program_budget(p, &budget);
        assert_int_equal(budget.total, total);
        assert_true(gathers > 0 && (node_ranks == 1 || (shared[NDP_GROUP_SHARD] > 0 && shared[NDP_GROUP_DATA] > 0)));
        ndp_engine_destroy(e);
        ndp_model_release(&m);
    }
}

static void owners_are_in_one_replica(void **state) {
    static const ndp_exec exec = {.device = &ndp_device_cpu, .threads = 1};
    (void)state;
    ndp_layout layout = NDP_LAYOUT_ONE;
    ndp_engine *e;
    ndp_model m;
    layout.size[NDP_DP_REPLICATE] = 2, layout.size[NDP_DP_SHARD] = 3;
    build(NDP_F32, 1, &m);
    ndp_engine_opts o = {.model = &m, .step = {.exec = &exec, .parallel = NDP_PARALLEL_INIT, .accumulation = 1}};
    CHECK_OK(ndp_mesh_init(&layout, 0, &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(&m)}, &o.step.mesh));
    CHECK_FAILS(ndp_engine_create(&o, &e), NDP_EBUG,
                "the 6 owners of embed, group data, are in several replicas of the model");
    ndp_model_release(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(exact_on_ref),
                                       cmocka_unit_test(gathers_and_memory_follow_the_owners),
                                       cmocka_unit_test(owners_are_in_one_replica)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
