/* Random legal layouts of random models, to 65,536 ranks; of large worlds the roles: every stage, of other axes the
 * first and the last rank, and each whose tables have other sizes. */
#ifndef TESTS_PLACEMENT_RANDOM_WORLDS_H
#define TESTS_PLACEMENT_RANDOM_WORLDS_H

#include "placement/alarms.h"

enum { MOST_RANKS = 65536, MOST_ROLES = 4096, MOST_PLACES = 32 };

/* Sizes of the tables of a rank of the tensor axis. */
static inline uint64_t table_sizes(const planned *w, int tp) {
    ndp_mesh mesh;
    ndp_arena arena = {0};
    uint64_t sizes = 0;
    const ndp_layout *l = &w->way.layout;
    CHECK_OK(ndp_mesh_init(l, tp, &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(&w->model)}, &mesh));
    for (int i = 0; i < w->model.n_buffers; i++) {
        ndp_segments s;
        CHECK_OK(ndp_parallel_segments(&w->model.buffers[i].segments, &mesh, &w->way.parallel, &arena, &s));
        for (int k = 0; k < s.n; k++)
            sizes = (sizes * 31 + (uint64_t)s.items[k].rows) * 31 + (uint64_t)s.items[k].cols;
    }
    ndp_arena_release(&arena);
    return sizes;
}

/* Coordinates of an axis that have a role. */
static inline int role_places(const planned *w, int axis, int out[MOST_PLACES]) {
    int size = w->way.layout.size[axis], n = 0;
    uint64_t before = 0;
    for (int c = 0; c < size && n < MOST_PLACES; c++) {
        uint64_t sizes = axis == NDP_TP ? table_sizes(w, c) : 0;
        if (axis == NDP_PP || c == 0 || c == size - 1 || sizes != before)
            out[n++] = c;
        before = sizes;
    }
    return n;
}

static inline int roles_of(const planned *w, int *ranks) {
    int places[NDP_AXES][MOST_PLACES], count[NDP_AXES], n = 1;
    for (int axis = 0; axis < NDP_AXES; axis++)
        n *= count[axis] = role_places(w, axis, places[axis]);
    for (int i = 0; i < n && i < MOST_ROLES; i++) {
        int coord[NDP_AXES], rest = i;
        for (int axis = NDP_AXES - 1; axis >= 0; axis--)
            coord[axis] = places[axis][rest % count[axis]], rest /= count[axis];
        ranks[i] = ndp_mesh_rank_of(&w->way.layout, coord);
    }
    return n < MOST_ROLES ? n : 0;
}

typedef struct drawing {
    uint64_t world, at;
} drawing;

/* The next number of a world: 0 .. n-1. */
static inline int next(drawing *d, int n) { return (int)ndp_rng_below(41, d->world, d->at++, (uint64_t)n); }

static inline int next_of(drawing *d, const int *of, int n) { return of[next(d, n)]; }

/* Sizes of axes, most of them 1, whose product is at most MOST_RANKS. */
static inline ndp_layout random_layout(drawing *d) {
    static const int few[] = {1, 1, 1, 2, 2, 3, 4, 5, 6, 8}, stages[] = {1, 1, 1, 2, 3, 4, 8},
                     many[] = {1, 1, 2, 3, 4, 7, 8, 16, 64, 128, 512, 1024, 4096};
    ndp_layout l = NDP_LAYOUT_ONE;
    l.size[NDP_PP] = next_of(d, stages, NDP_COUNT(stages));
    l.size[NDP_CP] = next_of(d, few, NDP_COUNT(few));
    l.size[NDP_SP] = next_of(d, few, NDP_COUNT(few) - 2);
    l.size[NDP_TP] = next_of(d, few, NDP_COUNT(few));
    l.size[NDP_DP_REPLICATE] = next_of(d, few, NDP_COUNT(few));
    l.size[NDP_DP_SHARD] = next_of(d, many, NDP_COUNT(many));
    if (d->world % 100 == 17) /* the largest */
        l = (ndp_layout){{4, 8, 256, 2, 2, 2, 1}};
    return l;
}

/* A model whose heads fit the layout. */
static inline bool random_model(drawing *d, const ndp_layout *l, ndp_facts *f, ndp_layout_facts *facts) {
    static const char *const types[] = {"llama",  "mistral",     "ministral", "qwen2",     "qwen3",
                                        "olmo2",  "phi3",        "seed_oss",  "granite",   "gemma",
                                        "gemma2", "gemma3_text", "smollm3",   "starcoder2"};
    const char *type = types[next(d, NDP_COUNT(types))];
    int lanes = l->size[NDP_SP] * l->size[NDP_TP], heads = lanes * (1 + next(d, 3)), kv_heads = heads;
    for (int k = next(d, 4); k > 0; k--) /* fewer kv heads */
        kv_heads = kv_heads % 2 == 0 ? kv_heads / 2 : kv_heads % 3 == 0 ? kv_heads / 3 : kv_heads;
    int head_dim = 2 << next(d, 2), layers = facts->layers;
    char *json = ndp_format(
        "{\"model_type\": \"%s\", \"vocab_size\": %d, \"num_hidden_layers\": %d, \"hidden_size\": %d, "
        "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d, \"intermediate_size\": %d, "
        "\"max_position_embeddings\": 64, \"rope_theta\": 100.0, \"attention_bias\": %s, "
        "\"tie_word_embeddings\": %s%s}",
        type, 17 + next(d, 60), layers, heads * head_dim, heads, kv_heads, head_dim, 5 + next(d, 70),
        next(d, 2) ? "true" : "false", next(d, 2) ? "true" : "false", next(d, 3) ? "" : ", \"sliding_window\": 5");
    ndp_status st = ndp_facts_parse_text(json, type, f);
    free(json);
    *facts = (ndp_layout_facts){.heads = heads, .kv_heads = kv_heads, .layers = layers};
    ndp_layout whole = *l;
    return st == NDP_OK && ndp_layout_resolve(&whole, world_size(l), facts) == NDP_OK;
}

/* Begins random world `i`, without programs; returns its ranks; 0: that number has no legal world. */
static inline int random_world(uint64_t i, planned *w) {
    static const ndp_dtype types[] = {NDP_F32, NDP_BF16, NDP_F64};
    static const char *const frozen[] = {"embed", "layers.1"};
    static const char *const trained[] = {"vectors", "regex:.*(layers|h)\\.0\\..*"};
    drawing d = {i, 0};
    ndp_layout l = random_layout(&d);
    world_way y = world_choices(&l, i);
    ndp_layout_facts facts = {.layers = world_layers(&y)};
    ndp_facts f;
    if (world_size(&l) > MOST_RANKS || world_size(&l) == 1 || !random_model(&d, &l, &f, &facts))
        return 0;
    y.compute = types[next(&d, 3)];
    y.optimizer = (ndp_optimizer_name)next(&d, NDP_OPTIMIZER_COUNT);
    y.rows = 9 + next(&d, 40);
    y.micro_batches *= 1 + 7 * (next(&d, 5) == 0);
    if (next(&d, 6) == 0)
        y.frozen = frozen, y.n_frozen = 1 + next(&d, 2);
    else if (next(&d, 6) == 0)
        y.trained = trained, y.n_trained = 1 + next(&d, 2);
    else if (next(&d, 4) == 0)
        y.adapter = 1 + next(&d, WORLD_ADAPTERS - 1);
    if (next(&d, 4) == 0)
        y.pairs = (ndp_preference_kind)(1 + next(&d, NDP_PREFERENCE_KINDS - 1));
    else
        y.row_loss = next(&d, 3) == 0;
    world_init(w, "random", &f, &y, next(&d, 4) ? &ndp_device_null : staged_device());
    return world_size(&l);
}

/* Checks random world `i`; returns its ranks; 0: that number has no legal world. */
static inline int check_random(alarms *a, uint64_t i) {
    static int ranks[MOST_ROLES];
    planned w;
    int size = random_world(i, &w);
    if (size == 0)
        return 0;
    int n = size <= 64 ? size : roles_of(&w, ranks);
    if (n > 0) {
        world_plan(&w, size <= 64 ? NULL : ranks, n);
        check_programs(a, &w, w.programs, "");
    }
    world_release(&w);
    return n > 0 ? size : 0;
}

#endif
