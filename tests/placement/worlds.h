/* Worlds of tests of the placement check: a tiny model on any layout, the programs of all its ranks or of some, in
 * memory; and the models and layouts that are drawn. */
#ifndef TESTS_PLACEMENT_WORLDS_H
#define TESTS_PLACEMENT_WORLDS_H

#include "check.h"
#include "placement/placement.h"
#include "step/tiny.h"

enum { WORLD_ROWS = 13, WORLD_DOCUMENTS = 2, WORLD_TEXT = 320 };
#define WORLD_MAX_NORM 0.02 /* below the norm of the first step of any world, so that clipping is active */

/* How a world trains. */
typedef struct world_way {
    ndp_layout layout;
    ndp_parallel parallel;
    bool reshard, gathered, reduce_once;
    ndp_recompute recompute;
    ndp_dtype compute;
    ndp_optimizer_name optimizer;
    ndp_pipeline_kind kind; /* with pp > 1 */
    int chunks;             /* stages on each rank */
    int micro_batches;      /* of each rank */
    int64_t rows;           /* of a micro-batch; 0: WORLD_ROWS */
    ndp_folding_rule fold;
    const char *const *frozen;
    int n_frozen;
    const char *const *trained;
    int n_trained;
    int adapter; /* number of a world's adapter; 0: none */
    ndp_packing base;
    const char *table;         /* a CSV instead of `kind` and `chunks`; NULL: none */
    ndp_preference_kind pairs; /* the loss of pairs of documents; 0: that of tokens, */
    bool row_loss;             /* which is a function of logits, */
    ndp_token_weight weight;   /* or has weights of tokens */
    ndp_router_opts router;
} world_way;

typedef struct planned {
    const char *model_name;
    world_way way;
    ndp_model model;
    ndp_pipeline table; /* pp > 1 */
    int *first;         /* of ndp_stages */
    ndp_exec exec;
    ndp_engine_opts opts; /* but for the mesh */
    int *ranks, n;        /* those with programs */
    ndp_engine **engines;
    const ndp_program **programs;
} planned;

static inline int world_size(const ndp_layout *l) {
    int ranks = 1;
    for (int axis = 0; axis < NDP_AXES; axis++)
        ranks *= l->size[axis];
    return ranks;
}

static inline const char *world_text(const planned *w, char out[WORLD_TEXT]) {
    const world_way *y = &w->way;
    char layout[160], pipeline[48] = "";
    if (w->table.ranks)
        snprintf(pipeline, sizeof pipeline, ", %s v %d", ndp_pipeline_table[y->kind].name, y->chunks);
    const ndp_preference_row *pairs = &ndp_preference_table[y->pairs];
    snprintf(out, WORLD_TEXT, "%s, adapter %d%s%s%s%s, %s%s, %d micro-batches, %s, %s%s%s%s%s%s%s%s", w->model_name,
             y->adapter, y->pairs ? " with " : "", y->pairs ? pairs->name : "", y->pairs ? " " : "",
             y->pairs      ? pairs->variant
             : y->row_loss ? " with a loss of logits"
                           : "",
             ndp_layout_text(&y->layout, layout, sizeof layout), pipeline, y->micro_batches, ndp_dtype_name(y->compute),
             ndp_optimizers[y->optimizer]->name, y->reshard ? ", reshard" : "",
             y->recompute == NDP_RECOMPUTE_SELECTIVE ? ", selective recompute"
             : y->recompute                          ? ", recompute"
                                                     : "",
             y->gathered ? ", gathered" : "", y->reduce_once ? ", reduced once" : "",
             y->parallel.tp_sequence_parallel ? "" : ", whole rows",
             y->parallel.cp_method == NDP_CP_ALL_GATHER ? ", cp all_gather" : "",
             y->parallel.cp_zigzag ? "" : ", contiguous");
    return out;
}

/* Stages of consecutive units, as even as the layers allow. */
static inline void world_cut(planned *w) {
    int stages = w->table.stages, layers = w->model.n_units - 2;
    w->first = calloc((size_t)stages + 1, sizeof *w->first);
    for (int i = 1; i < stages; i++)
        w->first[i] = 1 + i * layers / stages;
    w->first[stages] = w->model.n_units;
    w->opts.step.stages = (ndp_stages){stages, w->first, w->table.rank_of};
    w->opts.pipeline = &w->table;
}

/* Takes w->model, which is built: everything but the programs. */
static inline void world_take(planned *w, const char *name, const world_way *y, const ndp_device *device) {
    w->model_name = name, w->way = *y, w->exec = (ndp_exec){.device = device, .threads = 1};
    w->opts = (ndp_engine_opts){.model = &w->model,
                                .step = {.accumulation = y->micro_batches,
                                         .reshard = y->reshard,
                                         .recompute = y->recompute,
                                         .reduce_once = y->reduce_once,
                                         .fold = y->fold,
                                         .node_ranks = y->gathered ? 1 : world_size(&y->layout),
                                         .optimizer = {.name = y->optimizer,
                                                       .betas = {0.9, 0.95},
                                                       .eps = 1e-8,
                                                       .momentum = 0.95,
                                                       .weight_decay = 0.1,
                                                       .max_norm = WORLD_MAX_NORM}}};
    w->opts.step.parallel = w->way.parallel;
    if (y->table)
        CHECK_OK(ndp_pipeline_read(y->table, y->micro_batches, &w->table));
    else if (y->layout.size[NDP_PP] > 1)
        CHECK_OK(ndp_pipeline_make(y->kind, y->layout.size[NDP_PP], y->chunks, y->micro_batches, &w->table));
    if (w->table.ranks)
        world_cut(w);
}

/* Adapters of worlds, by number: beside all projections and experts; beside some, with dropout; DoRA, and a head that
 * is trained whole. */
enum { WORLD_ADAPTERS = 4 };
static inline ndp_adapter world_adapter(int number) {
    static const char *const all[] = {"linear", "experts.gate_up_proj", "experts.down_proj"},
                             *const some[] = {"*.[qvo]_proj", "*.c_attn", "*.qkv_proj", "*.query_key_value"},
                             *const head[] = {"lm_head"};
    const ndp_adapter adapters[WORLD_ADAPTERS] = {
        {.r = 0},
        {.r = 3, .scale = 0.5, .targets = all, .n_targets = 1},
        {.r = 2, .scale = 0.5, .dropout = 0.3, .targets = some, .n_targets = 3},
        {.r = 2,
         .scale = 0.5,
         .dropout = 0.1,
         .form = NDP_DORA,
         .targets = all,
         .n_targets = 1,
         .save = head,
         .n_save = 1}};
    return adapters[number];
}

/* A decoder on that way. */
static inline void world_init(planned *w, const char *name, const ndp_facts *f, const world_way *y,
                              const ndp_device *device) {
    *w = (planned){.n = 0};
    ndp_model_opts mo = tiny_opts(y->compute, y->rows ? y->rows : WORLD_ROWS);
    mo.frozen = y->frozen, mo.n_frozen = y->n_frozen, mo.base = y->base;
    mo.trained = y->trained, mo.n_trained = y->n_trained;
    mo.adapter = world_adapter(y->adapter);
    bool neox = strcmp(f->family, "gpt_neox") == 0;
    mo.adapter.n_save -= y->adapter == 3 && neox; /* its head: refused */
    if (y->adapter == 2)                          /* names that this family has */
        mo.adapter.targets += strcmp(f->family, "gpt2") == 0   ? 1
                              : strcmp(f->family, "phi3") == 0 ? 2
                              : neox                           ? 3
                                                               : 0,
            mo.adapter.n_targets = 1;
    static const char *const single[] = {"linear", "*.experts.*.*"}; /* files of gpt_oss have stacks alone */
    bool modules = y->micro_batches % 2 && strcmp(f->family, "gpt_oss") != 0;
    if (y->adapter == 1 && f->experts > 0) {
        mo.adapter.n_targets = modules ? 2 : 3;
        mo.adapter.targets = modules ? single : mo.adapter.targets;
    }
    mo.row_loss = y->row_loss, mo.router = y->router;
    mo.token_weight = (ndp_token_weighting){y->weight, 5, 1, 1};
    if (y->pairs)
        mo.preference = tiny_preference((int)y->pairs), mo.documents = WORLD_DOCUMENTS;
    CHECK_OK(ndp_decoder_build(f, &mo, &w->model));
    tiny_code(&w->model, 100);
    world_take(w, name, y, device);
}

/* The options of a rank; `exec` of the world unless set. */
static inline ndp_engine_opts world_opts(const planned *w, int rank) {
    ndp_engine_opts o = w->opts;
    ndp_mesh_facts facts = {.kv_heads = ndp_model_kv_heads(&w->model)};
    o.step.exec = &w->exec;
    CHECK_OK(ndp_stages_ties(&w->model, &o.step.stages, &facts.ties));
    CHECK_OK(ndp_mesh_init(&w->way.layout, rank, &facts, &o.step.mesh));
    return o;
}

/* Plans these ranks; `ranks` NULL: all. */
static inline void world_plan(planned *w, const int *ranks, int n) {
    w->n = ranks ? n : world_size(&w->way.layout);
    w->ranks = calloc((size_t)w->n, sizeof *w->ranks);
    w->engines = calloc((size_t)w->n, sizeof(ndp_engine *));
    w->programs = calloc((size_t)w->n, sizeof(const ndp_program *));
    for (int i = 0; i < w->n; i++) {
        w->ranks[i] = ranks ? ranks[i] : i;
        ndp_engine_opts o = world_opts(w, w->ranks[i]);
        CHECK_OK(ndp_engine_create(&o, &w->engines[i]));
        w->programs[i] = ndp_engine_program(w->engines[i]);
    }
}

static inline void world_release(planned *w) {
    for (int i = 0; i < w->n; i++)
        ndp_engine_destroy(w->engines[i]);
    free(w->engines);
    free(w->programs);
    free(w->ranks);
    free(w->first);
    ndp_pipeline_release(&w->table);
    ndp_model_release(&w->model);
}

/* ---- models and layouts ---- */

/* config.json with a %d for the number of layers. */
typedef struct world_model {
    const char *name, *json;
    ndp_layout_facts facts; /* but for the layers */
    ndp_packing base;       /* of frozen layers */
    ndp_preference_kind pairs;
    bool row_loss;
} world_model;

#define WORLD_LOSS(loss, logits, type, hidden, h, kv, keys)                                                            \
    "{\"model_type\": \"" type "\", \"vocab_size\": 37, \"num_hidden_layers\": %d, \"hidden_size\": " #hidden ", "     \
    "\"num_attention_heads\": " #h ", \"num_key_value_heads\": " #kv ", \"intermediate_size\": 17, "                   \
    "\"max_position_embeddings\": 64, \"rope_theta\": 100.0, \"initializer_range\": 0.3, " keys "}",                   \
        {.heads = h, .kv_heads = kv}, NDP_PACKING_NONE, NDP_PREFERENCE_##loss, logits
#define WORLD_PAIRS(loss, ...) WORLD_LOSS(loss, false, __VA_ARGS__)
#define WORLD_MODEL(...) WORLD_LOSS(NONE, false, __VA_ARGS__)

static const world_model world_models[] = {
    {"tied", WORLD_MODEL("llama", 12, 4, 2, "\"head_dim\": 6, \"tie_word_embeddings\": true")},
    {"few kv heads", WORLD_MODEL("llama", 12, 8, 2, "\"head_dim\": 4, \"attention_bias\": true, \"mlp_bias\": true")},
    {"odd heads", WORLD_MODEL("qwen3", 12, 9, 3, "\"head_dim\": 4")},
    {"windows", WORLD_MODEL("phi3", 24, 6, 2, "\"partial_rotary_factor\": 0.5, \"sliding_window\": 5")},
    {"gemma norms", WORLD_MODEL("gemma2", 12, 8, 4,
                                "\"head_dim\": 6, \"sliding_window\": 4, \"attn_logit_softcapping\": 0.5, "
                                "\"final_logit_softcapping\": 2.0")},
    {"gpt2",
     "{\"model_type\": \"gpt2\", \"vocab_size\": 37, \"n_layer\": %d, \"n_embd\": 24, \"n_head\": 4, \"n_inner\": 17, "
     "\"n_positions\": 20}",
     {.heads = 4, .kv_heads = 4},
     NDP_PACKING_NONE,
     NDP_PREFERENCE_NONE,
     false},
    {"logits", WORLD_LOSS(NONE, true, "gemma2", 12, 4, 4, "\"head_dim\": 6, \"final_logit_softcapping\": 2.0")},
    {"dpo", WORLD_PAIRS(DPO_SIGMOID, "llama", 12, 8, 4, "\"head_dim\": 6")},
    {"orpo", WORLD_PAIRS(ORPO, "qwen3", 12, 4, 2, "\"head_dim\": 6, \"tie_word_embeddings\": true")},
    {"mixture", WORLD_MODEL("glm4_moe", 12, 4, 2,
                            "\"head_dim\": 8, \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, \"n_group\": 2, "
                            "\"moe_intermediate_size\": 7, \"first_k_dense_replace\": 0, \"attention_bias\": true")},
    {"latent",
     WORLD_MODEL(
         "deepseek_v3", 12, 4, 4,
         "\"q_lora_rank\": 6, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 3, \"qk_rope_head_dim\": 2, "
         "\"v_head_dim\": 4, \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, \"n_group\": 1, \"topk_group\": 1, "
         "\"moe_intermediate_size\": 7, \"first_k_dense_replace\": 0, \"attention_bias\": true")},
    {"sinks",
     WORLD_MODEL("gpt_oss", 12, 4, 2,
                 "\"head_dim\": 8, \"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"sliding_window\": 5, "
                 "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 100.0}")},
    {"states", WORLD_MODEL("qwen3_5_text", 12, 4, 2,
                           "\"head_dim\": 8, \"full_attention_interval\": 2, \"linear_num_key_heads\": 4, "
                           "\"linear_num_value_heads\": 8, \"linear_key_head_dim\": 3, \"linear_value_head_dim\": 2, "
                           "\"linear_conv_kernel_dim\": 3")},
    /* Blocks of nf4 go across rows of 36 columns; tp cuts between them. More than one scale of scales. */
    {"packed experts",
     "{\"model_type\": \"glm4_moe\", \"vocab_size\": 37, \"num_hidden_layers\": %d, \"hidden_size\": 36, "
     "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 64, \"intermediate_size\": 256, "
     "\"n_routed_experts\": 4, \"num_experts_per_tok\": 2, \"n_group\": 2, \"moe_intermediate_size\": 256, "
     "\"first_k_dense_replace\": 0, \"max_position_embeddings\": 64, \"rope_theta\": 100.0, "
     "\"initializer_range\": 0.3}",
     {.heads = 4, .kv_heads = 2},
     NDP_PACKING_NF4,
     NDP_PREFERENCE_NONE,
     false},
    {"packed",
     "{\"model_type\": \"phi3\", \"vocab_size\": 37, \"num_hidden_layers\": %d, \"hidden_size\": 36, "
     "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 64, \"intermediate_size\": 256, "
     "\"max_position_embeddings\": 64, \"rope_theta\": 100.0, \"initializer_range\": 0.3}",
     {.heads = 4, .kv_heads = 2},
     NDP_PACKING_NF4,
     NDP_PREFERENCE_NONE,
     false}};
enum {
    WORLD_MODELS = NDP_COUNT(world_models),
    WORLD_PACKED = WORLD_MODELS - 1,
    WORLD_PACKED_EXPERTS = WORLD_PACKED - 1
};

static inline void world_facts(const world_model *m, int layers, ndp_facts *out) {
    char json[768];
    const char *at = strstr(m->json, "%d");
    snprintf(json, sizeof json, "%.*s%d%s", (int)(at - m->json), m->json, layers, at + 2);
    CHECK_OK(ndp_facts_parse_text(json, m->name, out));
}

/* A device whose memory the host cannot access: collectives have places in pinned memory. */
static inline const ndp_device *staged_device(void) {
    static ndp_device d;
    d = ndp_device_null;
    d.host_memory = false;
    return &d;
}

/* Number `i` of the drawn things of kind `what`, below n. */
static inline int world_draw(uint64_t i, uint64_t what, int n) { return (int)ndp_rng_below(29, what, i, (uint64_t)n); }

/* Everything but the layout of way i. */
static inline world_way world_choices(const ndp_layout *l, uint64_t i) {
    enum { RING, ZIGZAG, ROWS, RESHARD, RECOMPUTE, GATHERED, ONCE, OPTIMIZER, KIND, CHUNKS, BATCHES, ROOM };
    static const double capacities[] = {1.5, 1, 2.5, 0};
    static const ndp_optimizer_name optimizers[] = {NDP_MUON, NDP_ADAMW, NDP_MUON_SPECTRAL, NDP_ADAMW8BIT};
    world_way y = {.layout = *l,
                   .parallel = {world_draw(i, ROWS, 3) > 0, world_draw(i, RING, 3) ? NDP_CP_RING : NDP_CP_ALL_GATHER,
                                world_draw(i, ZIGZAG, 3) > 0,
                                .capacity_factor = capacities[world_draw(i, ROOM, NDP_COUNT(capacities))]},
                   .reshard = world_draw(i, RESHARD, 2),
                   .recompute = world_draw(i, RECOMPUTE, 3) == 0 ? 1 + i % 2 : 0,
                   .gathered = world_draw(i, GATHERED, 3) > 0,
                   .reduce_once = l->size[NDP_PP] > 1 || world_draw(i, ONCE, 3) == 0,
                   .compute = NDP_F64,
                   .optimizer = optimizers[world_draw(i, OPTIMIZER, NDP_COUNT(optimizers))],
                   .kind = (ndp_pipeline_kind)world_draw(i, KIND, NDP_PIPELINE_FILE)};
    static const int batches[] = {1, 2, 3, 6};
    const ndp_pipeline_info *kind = &ndp_pipeline_table[y.kind];
    y.chunks = kind->fewest == kind->most ? kind->most : kind->fewest + world_draw(i, CHUNKS, 2);
    y.micro_batches = l->size[NDP_PP] > 1 ? l->size[NDP_PP] * (1 + world_draw(i, BATCHES, 3))
                                          : batches[world_draw(i, BATCHES, NDP_COUNT(batches))];
    return y;
}

/* How many layers a model on that way has: one for each stage, and one more if that is few. */
static inline int world_layers(const world_way *y) {
    int stages = y->layout.size[NDP_PP] > 1 ? y->layout.size[NDP_PP] * y->chunks : 1;
    return stages < 4 ? stages + 1 : stages;
}

/* Appends the legal layouts of up to `left` ranks, from `axis` on. */
static inline int world_add_layouts(const ndp_layout_facts *facts, ndp_layout *l, int axis, int most_ranks,
                                    ndp_layout *out, int n, int most) {
    if (axis == NDP_AXES) {
        ndp_layout whole = *l;
        int ranks = world_size(l);
        for (int *ep = &whole.size[NDP_EP]; ranks > 1 && *ep <= (facts->experts ? facts->experts : 1); ++*ep)
            if (n < most && ndp_layout_resolve(&whole, ranks, facts) == NDP_OK)
                out[n++] = whole;
        return n;
    }
    static const int sizes[] = {1, 2, 3, 4, 6, 8};
    for (int k = 0; k < NDP_COUNT(sizes) && sizes[k] <= most_ranks; k++) {
        l->size[axis] = sizes[k];
        n = world_add_layouts(facts, l, axis + 1, most_ranks / sizes[k], out, n, most);
    }
    l->size[axis] = 1;
    return n;
}

/* `count` different legal layouts of up to `ranks` ranks for a model, drawn; all if there are fewer. Returns how many.
 */
static inline int world_layouts(const world_model *m, int ranks, uint64_t seed, int count, ndp_layout *out) {
    enum { MOST = 4096 };
    static ndp_layout all[MOST];
    ndp_layout l = NDP_LAYOUT_ONE;
    ndp_layout_facts facts = m->facts;
    ndp_facts f;
    world_facts(m, 1, &f);
    facts.layers = 64, facts.experts = f.experts;
    int n = world_add_layouts(&facts, &l, 0, ranks, all, 0, MOST);
    for (int i = 0; i < n && i < count; i++) { /* the first of a shuffle */
        int k = i + (int)ndp_rng_below(31, seed, (uint64_t)i, (uint64_t)(n - i));
        out[i] = all[k], all[k] = all[i];
    }
    return n < count ? n : count;
}

/* World number `i` of a model, with all programs; each tenth is staged. */
static inline void world_draw_one(planned *w, const world_model *m, const ndp_layout *l, uint64_t i) {
    static const char *const layers[] = {"layers.*"};
    static const char *const trained[] = {"regex:.*(layers|h)\\.1\\..*", "vectors"};
    world_way y = world_choices(l, i);
    ndp_facts f;
    y.adapter = i % 3 == 1 ? 1 + (int)(i / 3 % (WORLD_ADAPTERS - 1)) : 0;
    y.base = m->base;
    if (m->base != NDP_PACKING_NONE && y.adapter == 0)
        y.frozen = layers, y.n_frozen = 1;
    else if (y.adapter == 0 && i % 6 == 2)
        y.trained = trained, y.n_trained = NDP_COUNT(trained);
    y.pairs = m->pairs, y.row_loss = m->row_loss;
    world_facts(m, world_layers(&y), &f);
    world_init(w, m->name, &f, &y, i % 10 == 7 ? staged_device() : &ndp_device_ref);
    world_plan(w, NULL, 0);
}

#endif
