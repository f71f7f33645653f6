/* Programs that are right pass the placement check: the layouts that other tests train on, and random ones. */
#ifndef TESTS_PLACEMENT_ALARMS_H
#define TESTS_PLACEMENT_ALARMS_H

#include "model/conv_model.h"
#include "placement/worlds.h"
#include "step/tiny_models.h"
#include "verify/families.h"
#include "verify/pipelines.h"

/* What was checked, and what was refused. */
typedef struct alarms {
    int worlds, programs, refused;
    int step; /* every step-th way is taken */
    int at;
} alarms;

static inline bool taken(alarms *a) { return a->at++ % a->step == 0; }

static inline void check_programs(alarms *a, const planned *w, const ndp_program *const *programs, const char *kind) {
    char text[WORLD_TEXT];
    const ndp_placement_opts o = {programs, w->n, &ndp_engine_claims};
    a->worlds++, a->programs += w->n;
    if (ndp_placement_check(&o, NULL) == NDP_OK)
        return;
    a->refused++;
    printf("ALARM: %s%s: %s\n", world_text(w, text), kind, ndp_error_message());
}

/* The programs of the world for evaluation, with lent weights. */
static inline void check_forward(alarms *a, const planned *w) {
    ndp_model m;
    ndp_pipeline table = {0};
    ndp_model_opts mo = w->model.opts;
    ndp_engine **engines = calloc((size_t)w->n, sizeof(ndp_engine *));
    const ndp_program **programs = calloc((size_t)w->n, sizeof(const ndp_program *));
    mo.mode = NDP_MODEL_SCORE;
    CHECK_OK(ndp_decoder_build(w->model.facts, &mo, &m));
    if (w->table.ranks)
        CHECK_OK(ndp_pipeline_forward(&w->table, w->way.micro_batches, &table));
    for (int i = 0; i < w->n; i++) {
        ndp_engine_opts o = world_opts(w, w->ranks[i]);
        o.model = &m, o.weights_of = w->engines[i];
        o.pipeline = table.ranks ? &table : NULL;
        CHECK_OK(ndp_engine_create(&o, &engines[i]));
        programs[i] = ndp_engine_program(engines[i]);
    }
    check_programs(a, w, programs, ", forward only");
    for (int i = 0; i < w->n; i++)
        ndp_engine_destroy(engines[i]);
    free(engines);
    free(programs);
    ndp_pipeline_release(&table);
    ndp_model_release(&m);
}

static inline void check_world(alarms *a, const char *name, const ndp_facts *f, const world_way *y,
                               const ndp_device *device) {
    planned w;
    world_init(&w, name, f, y, device);
    world_plan(&w, NULL, 0);
    check_programs(a, &w, w.programs, "");
    if (a->at % 3 == 0)
        check_forward(a, &w);
    world_release(&w);
}

static inline world_way way_on(const int sizes[5], int bits) {
    world_way y = {.layout = NDP_LAYOUT_ONE,
                   .parallel = {.tp_sequence_parallel = !(bits & 1),
                                .cp_method = bits & 2 ? NDP_CP_ALL_GATHER : NDP_CP_RING,
                                .cp_zigzag = !(bits & 4)},
                   .reshard = bits & 1,
                   .recompute = bits & 2 ? 1 + bits % 2 : 0,
                   .gathered = bits & 4,
                   .compute = (ndp_dtype[]){NDP_F32, NDP_BF16, NDP_F64}[bits % 3],
                   .micro_batches = 1 + bits % 4};
    memcpy(y.layout.size + NDP_DP_REPLICATE, sizes, 5 * sizeof *sizes);
    return y;
}

/* tests/step: test_layouts, test_layouts_families, test_layouts_frozen. */
static inline void check_layout_sizes(alarms *a) {
    static const char *const frozen[] = {"embed", "layers.0"};
    static const char *const trained[] = {"regex:.*(layers|h)\\.1\\..*", "vectors"};
    for (int model = 0; model < 2 + NDP_COUNT(tiny_families); model++)
        for (int i = 0; i < NDP_COUNT(layout_sizes); i++)
            for (int bits = 0; bits < 8; bits++) {
                ndp_facts f = tiny_facts(model == 1);
                world_way y = way_on(layout_sizes[i], bits);
                y.optimizer = (i + bits) % 4 == 3 ? NDP_MUON : (ndp_optimizer_name)((i + bits) % NDP_OPTIMIZER_COUNT);
                if (bits % 3 == 2)
                    y.pairs = (ndp_preference_kind)(1 + (i + bits) % (NDP_PREFERENCE_KINDS - 1));
                y.row_loss = bits % 3 == 1;
                y.weight = bits % 3 == 0 ? (ndp_token_weight)(i % 3) : NDP_TOKEN_WEIGHT_NONE;
                if (bits % 5 == 1)
                    y.frozen = frozen, y.n_frozen = 1 + i % 2;
                else if (bits % 4 == 2)
                    y.trained = trained, y.n_trained = 1 + i % 2;
                else if (bits % 2)
                    y.adapter = (i + bits / 2) % WORLD_ADAPTERS;
                if (model >= 2)
                    CHECK_OK(ndp_facts_parse_text(tiny_families[model - 2], "tiny", &f));
                if (taken(a))
                    check_world(a, f.family, &f, &y, i % 4 ? &ndp_device_ref : staged_device());
            }
}

/* The largest ep that a layout without one may have. */
static inline int most_owners(const ndp_layout *l, int experts) {
    int ranks = l->size[NDP_DP_SHARD] * l->size[NDP_CP] * l->size[NDP_SP] * l->size[NDP_TP], ep = experts;
    while (ranks % ep != 0)
        ep--;
    return ep;
}

/* Frozen layers that are packed, experts among them: in blocks that tp must not cut, and by rows. */
static inline void check_packed(alarms *a) {
    static const char *const layers[] = {"layers.*"};
    for (int i = 0; i < NDP_COUNT(layout_sizes); i++)
        for (int bits = 0; bits < 8; bits++) {
            ndp_facts f = tiny_facts(bits % 2);
            world_way y = way_on(layout_sizes[i], bits);
            y.frozen = layers, y.n_frozen = 1;
            y.base = (i + bits) % 3 ? NDP_PACKING_NF4 : NDP_PACKING_INT8;
            if (y.base == NDP_PACKING_NF4)
                world_facts(&world_models[bits & 4 ? WORLD_PACKED_EXPERTS : WORLD_PACKED], 2, &f);
            y.layout.size[NDP_EP] = f.experts > 0 && bits & 1 ? most_owners(&y.layout, f.experts) : 1;
            y.parallel.tp_sequence_parallel |= y.layout.size[NDP_EP] > 1; /* jobs refuse whole rows with ep */
            if (taken(a))
                check_world(a, "packed", &f, &y, i % 4 ? &ndp_device_ref : staged_device());
        }
}

/* Kv heads that tp and they do not divide: all ranks of tp hold them, and sp chooses. */
static inline void check_undivided_heads(alarms *a) {
    static const int kv_heads[] = {4, 6}, sizes[][5] = {{1, 1, 1, 2, 6}, {1, 1, 1, 3, 4}};
    for (int bits = 0; bits < 8; bits++) {
        ndp_facts f = tiny_facts(true);
        world_way y = way_on(sizes[bits & 1], bits / 2);
        f.heads = 12, f.kv_heads = kv_heads[bits & 1], f.head_dim = f.ropes[0].dim = 4;
        check_world(a, "kv heads that tp does not divide", &f, &y, &ndp_device_ref);
    }
}

/* tests/verify: all families on their legal layouts of so many ranks. */
static inline void check_all_families(alarms *a, const int *worlds, int n) {
    enum { MOST = 256 };
    ndp_layout layouts[MOST];
    for (int k = 0; k < FAMILIES; k++) {
        ndp_facts f;
        CHECK_OK(ndp_facts_parse_text(family_models[k].json, family_models[k].name, &f));
        ndp_layout_facts facts = ndp_facts_layout(&f);
        for (int at = 0; at < n; at++)
            for (int i = 0, legal = legal_layouts(&facts, worlds[at], layouts, MOST); i < legal; i++) {
                world_way y = world_choices(&layouts[i], (uint64_t)(i + 1000 * at));
                y.rows = 37;
                y.compute = (ndp_dtype[]){NDP_F32, NDP_BF16, NDP_F64}[i % 3];
                if (taken(a))
                    check_world(a, family_models[k].name, &f, &y, &ndp_device_null);
            }
    }
}

/* tests/verify: pipelines of a tall model, all schedules; and schedules of files. */
static inline void check_pipelines(alarms *a, const char *folder) {
    for (int i = 0; i < NDP_COUNT(staged_layouts) * NDP_COUNT(schedules) * 2; i++) {
        const schedule *s = &schedules[i % NDP_COUNT(schedules)];
        const int *layout = staged_layouts[i / NDP_COUNT(schedules) % NDP_COUNT(staged_layouts)];
        ndp_facts f = tiny_facts(i >= NDP_COUNT(staged_layouts) * NDP_COUNT(schedules));
        f.layers = 9;
        way of = staged_way(layout, s, i);
        world_way y = way_on(layout + 1, i % 8);
        y.layout.size[NDP_PP] = layout[0];
        y.micro_batches = of.accumulation, y.chunks = s->chunks, y.reduce_once = i % 3 > 0;
        y.pairs = (ndp_preference_kind)(i % 2 ? 1 + i / 2 % (NDP_PREFERENCE_KINDS - 1) : 0);
        for (int k = 0; k < NDP_PIPELINE_FILE; k++)
            if (strcmp(ndp_pipeline_table[k].name, s->name) == 0)
                y.kind = (ndp_pipeline_kind)k;
        if (taken(a))
            check_world(a, "tall", &f, &y, i % 4 ? &ndp_device_ref : staged_device());
    }
    char *files[] = {write_swapped(folder, 4, 8), write_uneven(folder, 4), write_flat(folder, 4)};
    for (int k = 0; k < NDP_COUNT(files); k++) {
        ndp_facts f = tiny_facts(k % 2);
        world_way y = way_on((const int[]){1, 2, 1, 1, 1}, k);
        f.layers = 9;
        y.layout.size[NDP_PP] = k ? 2 : 4, y.micro_batches = k ? 4 : 8, y.table = files[k];
        check_world(a, "tall", &f, &y, &ndp_device_ref);
        free(files[k]);
    }
}

/* A model that is not a decoder, on the data axes. */
static inline void check_convolutions(alarms *a) {
    for (int i = 0; i < 8; i++) {
        planned w = {.n = 0};
        world_way y = way_on((const int[]){1 + i % 3, 1 + i % 2, 1, 1, 1}, i);
        conv_model(y.compute, 64, &w.model);
        world_take(&w, "conv", &y, &ndp_device_ref);
        world_plan(&w, NULL, 0);
        check_programs(a, &w, w.programs, "");
        world_release(&w);
    }
}

static inline void print_alarms(const alarms *a) {
    printf("  %d worlds, %d programs: %d refused\n", a->worlds, a->programs, a->refused);
}

#endif
