/* Queues of a GPU (step/queues.c): channels share one where no two of their operations are under way at once; pipelines
 * with another axis, and layouts without stages, fit into CUDA's 8. */
#include "step/layouts.h"
#include "step/pipelines.h"
#include "step/tiny_models.h"

enum { CONNECTIONS = 8 };

/* Of channels on one queue, none begins while another's operation is under way, in the whole step; and each channel
 * with a group has a queue. */
static void check_apart(const ndp_program *p, const char *what) {
    int queue_of[NDP_CHANNELS], n = ndp_program_collective_queues(p, queue_of), under_way[NDP_CHANNELS] = {0};
    ndp_comm_event m;
    for (ndp_comm_event_cursor c = NDP_COMM_EVENTS(NDP_ALL_ITERATIONS); ndp_program_comm_event(p, &c, &m);) {
        int channel = ndp_comm_event_channel(&m);
        bool alone = ndp_mesh_group(&p->opts.step.mesh, ndp_comm_event_group(&m)).count == 1;
        if (alone || channel >= NDP_CHANNEL_FORWARD) {
            assert_int_equal(queue_of[channel], NDP_NONE);
            continue;
        }
        assert_in_range(queue_of[channel], 0, n - 1);
        for (int other = 0; m.begin && other < NDP_CHANNELS; other++)
            if (other != channel && under_way[other] && queue_of[other] == queue_of[channel])
                fail_msg("%s: rank %d: %s begins on the queue of %s, which is under way", what, p->opts.step.mesh.rank,
                         ndp_channel_name(channel), ndp_channel_name(other));
        under_way[channel] += m.begin ? 1 : -1;
    }
}

static void check_programs(const ndp_program *const *programs, int n, int most, const char *what) {
    for (int r = 0; r < n; r++) {
        check_apart(programs[r], what);
        if (ndp_program_queues(programs[r]) > most)
            fail_msg("%s: rank %d uses %d queues", what, r, ndp_program_queues(programs[r]));
    }
}

static void pipelines_with_another_axis(void **state) {
    (void)state;
    static const int second[][2] = {{NDP_TP, 1}, {NDP_TP, 2}, {NDP_DP_SHARD, 2}, {NDP_CP, 2}, {NDP_DP_REPLICATE, 2}};
    for (int kind = 0; kind < NDP_PIPELINE_FILE; kind++)
        for (int pp = 2; pp <= 4; pp += 2)
            for (int k = 0; k < NDP_COUNT(second); k++)
                for (int micro_batches = 4; micro_batches <= 16; micro_batches *= 4) {
                    pipeline_setup s = {0};
                    char text[128];
                    const ndp_pipeline_info *info = &ndp_pipeline_table[kind];
                    snprintf(text, sizeof text, "%s, pp %d, %s %d", info->name, pp,
                             ndp_axis_name((ndp_axis)second[k][0]), second[k][1]);
                    if (kind == NDP_PIPELINE_DUALPIPEV && micro_batches < 2 * pp)
                        continue;
                    CHECK_OK(ndp_pipeline_make((ndp_pipeline_kind)kind, pp, info->fewest, micro_batches, &s.table));
                    ndp_facts f = tiny_facts(true);
                    ndp_model_opts mo = tiny_opts(NDP_F32, 12);
                    f.layers = s.table.stages;
                    CHECK_OK(ndp_decoder_build(&f, &mo, &s.model));
                    pipeline_cut(&s);
                    pipeline_take(&s, 1.0);
                    s.layout.size[second[k][0]] = second[k][1];
                    pipeline_engines(&s);
                    /* In a V each neighbour sends and receives in both directions. */
                    check_programs(s.programs, pipeline_world(&s),
                                   info->map == NDP_STAGES_V && pp > 2 ? 12 : CONNECTIONS, text);
                    pipeline_end(&s);
                }
}

static void layouts(void **state) {
    (void)state;
    ndp_facts f = tiny_facts(true);
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    const ndp_exec exec = {.device = &ndp_device_null, .threads = 1};
    ndp_model m;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    for (int i = 0; i < NDP_COUNT(layout_sizes); i++)
        for (int bits = 0; bits < 4; bits++) {
            way w = {.reshard = bits & 1, .recompute = bits & 2 ? 1 : 0, .parallel = NDP_PARALLEL_INIT};
            char text[256];
            memcpy(w.size, layout_sizes[i], sizeof w.size);
            ndp_layout layout = layout_of(&w);
            ndp_engine_opts o = {.model = &m,
                                 .step = {.exec = &exec,
                                          .accumulation = 3,
                                          .reshard = w.reshard,
                                          .recompute = w.recompute,
                                          .node_ranks = 1,
                                          .parallel = w.parallel,
                                          .optimizer = {.name = NDP_ADAMW, .max_norm = 1.0}}};
            ndp_engine *e;
            CHECK_OK(ndp_mesh_init(&layout, 0, &(ndp_mesh_facts){.kv_heads = f.kv_heads}, &o.step.mesh));
            CHECK_OK(ndp_engine_create(&o, &e));
            const ndp_program *p = ndp_engine_program(e);
            check_programs(&p, 1, CONNECTIONS, text_of(&w, text, sizeof text));
            ndp_engine_destroy(e);
        }
    ndp_model_release(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(pipelines_with_another_axis), cmocka_unit_test(layouts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
