/* Layout invariance (step/test_layouts.c) of models whose frozen layers are packed: every rank has the codes of the
 * whole tensor, units compute what they compute with the unpacked weights, and the trained rest gets the gradients of
 * one rank. */
#include "step/layouts.h"

#include "model/adapter.h"
#include "parallel/apply.h"
#include "weights/packed_weights.h"

static const char *const layers[] = {"layers.*"};

/* Columns of whole blocks where tp cuts them (o, down); rows of hidden columns that blocks go across. */
#define SIZES                                                                                                          \
    "\"vocab_size\": 37, \"num_hidden_layers\": 2, \"hidden_size\": 36, \"num_attention_heads\": 4, "                  \
    "\"num_key_value_heads\": 2, \"head_dim\": 64, \"intermediate_size\": 256, \"max_position_embeddings\": 64, "      \
    "\"rope_theta\": 100.0, \"initializer_range\": 0.3"
static const char *const configs[] = {
    "{\"model_type\": \"llama\", " SIZES "}", "{\"model_type\": \"qwen3\", " SIZES "}",
    "{\"model_type\": \"phi3\", " SIZES "}",
    ("{\"model_type\": \"gpt2\", \"vocab_size\": 37, \"n_layer\": 2, \"n_embd\": 256, \"n_head\": 4, \"n_inner\": 256, "
     "\"n_positions\": 20}")};

/* Matrices of experts: tensors of their own, as two of nested each; and one tensor of all, which holds columns. Biases
 * of experts, of a router, a shared expert. */
#define MIXTURE(type, experts)                                                                                         \
    "{\"model_type\": \"" type "\", " SIZES ", \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 256, " experts "}"
static const char *const mixtures[] = {
    MIXTURE("qwen2_moe", "\"num_experts\": 4, \"shared_expert_intermediate_size\": 256, \"norm_topk_prob\": true"),
    MIXTURE("glm4_moe", "\"n_routed_experts\": 6, \"n_group\": 1, \"topk_group\": 1, \"first_k_dense_replace\": 1"),
    MIXTURE("gpt_oss", "\"num_local_experts\": 4, \"sliding_window\": 3, \"rope_parameters\": {\"rope_type\": "
                       "\"default\", \"rope_theta\": 100.0}")};

/* Its q, k and v take turns, a head of each: one that is no whole blocks of nf4, and one that is. */
#define IN_TURN(hidden, ffn, rotary)                                                                                   \
    "{\"model_type\": \"gpt_neox\", \"vocab_size\": 37, \"num_hidden_layers\": 2, \"hidden_size\": " #hidden           \
    ", \"num_attention_heads\": 4, \"intermediate_size\": " #ffn                                                       \
    ", \"max_position_embeddings\": 64, \"rotary_pct\": " #rotary ", \"initializer_range\": 0.3}"
static const char in_turn[] = IN_TURN(40, 56, 0.4), in_turn_blocks[] = IN_TURN(256, 256, 0.25);

/* Of a mixture: frozen layers, or an adapter of experts and of attention. */
static ndp_model model_of(const char *config, bool adapted, ndp_dtype compute, ndp_packing base) {
    static const char *const targets[] = {"experts.gate_up_proj", "experts.down_proj", "q_proj", "o_proj"};
    ndp_facts f;
    ndp_model m;
    ndp_model_opts o = tiny_opts(compute, ROWS);
    o.frozen = layers, o.n_frozen = !adapted, o.base = base;
    if (adapted)
        o.adapter = (ndp_adapter){.r = 3, .scale = 0.5, .targets = targets, .n_targets = NDP_COUNT(targets)};
    CHECK_OK(ndp_facts_parse_text(config, "packed", &f));
    CHECK_OK(ndp_decoder_build(&f, &o, &m));
    return m;
}

/* ---- weights ---- */

/* Elements of a tensor, as its file has them. */
static ndp_status drawn(void *user, const ndp_segment *s, int64_t first, int64_t count, void *out) {
    float *values = malloc((size_t)count * sizeof *values);
    assert_non_null(values);
    ndp_rng_normal(7, ndp_rng_stream(s->name), (uint64_t)first, count, 0.3, values);
    ndp_convert(values, NDP_F32, out, *(const ndp_dtype *)user, count);
    free(values);
    return NDP_OK;
}

/* The whole matrix of member i of a segment as ops read it. */
static float *matrix_of(const ndp_segment *s, int64_t i) {
    int64_t rows = s->whole[0], cols = s->whole[1], n = rows * cols;
    float *file = malloc((size_t)n * sizeof *file), *x = malloc((size_t)n * sizeof *x);
    char room[NDP_SEGMENT_NAME];
    const ndp_segment tensor = ndp_segment_of_tensor(s, i, room);
    int64_t first = tensor.stack_whole > 1 ? (s->stack_first + i) * n : 0; /* a tensor of all members */
    ndp_dtype type = NDP_F32;
    assert_true(file && x);
    CHECK_OK(drawn(&type, &tensor, first, n, file));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            x[r * cols + c] = file[s->transposed ? c * rows + r : r * cols + c];
    free(file);
    return x;
}

/* A whole tensor, or a member of a stack, packed. */
typedef struct packed {
    uint8_t *bytes;
    ndp_packed p;
} packed;

static packed pack_whole(ndp_packing how, const ndp_segment *s, int64_t i) {
    int64_t rows = s->whole[0], cols = s->whole[1], n = rows * cols;
    packed k = {.p = ndp_packed_of(how, 1, rows, cols, n)};
    float *x = matrix_of(s, i), *absmax = malloc((size_t)(ndp_packed_blocks(n) + 1) * sizeof *absmax);
    k.bytes = calloc((size_t)k.p.bytes, 1);
    assert_true(k.bytes && absmax);
    float *scales = (float *)(k.bytes + k.p.at[NDP_PACKED_SCALES]),
          *nested = (float *)(k.bytes + k.p.at[NDP_PACKED_NESTED]);
    if (how == NDP_PACKING_NF4) {
        ndp_nf4_absmax(x, n, absmax);
        ndp_nf4_nest(absmax, ndp_packed_blocks(n), (uint8_t *)scales, nested);
        ndp_nf4_pack(x, n, absmax, k.bytes);
    }
    for (int64_t r = 0; how == NDP_PACKING_INT8 && r < rows; r++) {
        scales[r] = ndp_int8_absmax(x + r * cols, cols);
        ndp_int8_pack(x + r * cols, cols, scales[r], (int8_t *)k.bytes + r * cols);
    }
    free(x), free(absmax);
    return k;
}

/* Element i of it. */
static float value_of(ndp_packing how, const packed *k, int64_t i, int64_t cols) {
    const uint8_t *scales = k->bytes + k->p.at[NDP_PACKED_SCALES];
    float absmax;
    if (how == NDP_PACKING_INT8)
        return (float)(int8_t)k->bytes[i] * ((const float *)scales)[i / cols] * NDP_INT8_STEP;
    int64_t block = i / NDP_PACKED_BLOCK;
    ndp_nf4_unpack_scales(scales + block, (const float *)(k->bytes + k->p.at[NDP_PACKED_NESTED]), block, 1, &absmax);
    return ndp_nf4_values[k->bytes[i / 2] >> (i % 2 ? 0 : 4) & 15] * absmax;
}

static void fill_member(ndp_engine *e, ndp_packing how, int buffer, const ndp_segment *s, int64_t member) {
    packed p = pack_whole(how, s, member);
    int64_t n = s->rows * s->cols;
    float *values = malloc((size_t)n * sizeof *values);
    double *stored = malloc((size_t)n * sizeof *stored);
    assert_true(values && stored);
    for (int64_t i = 0; i < n; i++)
        values[i] = value_of(how, &p, ndp_segment_at(s, 0, i / s->cols) * s->cols + i % s->cols, s->cols);
    ndp_convert(values, NDP_F32, stored, ndp_engine_type(e, NDP_OWNED_MASTER, buffer), n);
    CHECK_OK(ndp_engine_write(e, NDP_OWNED_MASTER, buffer, s->offset + member * n, n, 1, stored));
    free(values), free(stored), free(p.bytes);
}

/* Of a model that is not packed: projections, but routers and gates of shared experts, have the values that a packed
 * one has. */
static void fill_as(ndp_engine *e, ndp_packing how) {
    const ndp_model *m = ndp_engine_model(e);
    tiny_fill(e);
    for (int b = 0; b < m->n_buffers; b++)
        for (int k = 0; k < m->buffers[b].segments.n; k++) {
            const ndp_segment *s = &m->buffers[b].segments.items[k];
            bool stored = s->projection && s->dim[0] != NDP_DIM_EXPERTS && s->whole[0] > 1 &&
                          ndp_factor_of(s->name) == NDP_NO_FACTOR;
            for (int64_t i = 0; stored && i < ndp_segment_matrices(s); i++)
                fill_member(e, how, b, s, i);
        }
    CHECK_OK(ndp_engine_publish(e));
}
static void fill_as_nf4(ndp_engine *e) { fill_as(e, NDP_PACKING_NF4); }
static void fill_as_int8(ndp_engine *e) { fill_as(e, NDP_PACKING_INT8); }

/* ---- codes ---- */

/* Byte `at` of a rank's packed matrix, or member, is that of the whole tensor; -1: it is padding. */
static int byte_of_whole(ndp_packing how, const packed *k, const ndp_segments *of, const ndp_segment *s, int64_t at) {
    ndp_packed p = ndp_segment_packed(of, s);
    int part = NDP_PACKED_PARTS - 1;
    while (p.at[part] > at || p.part[part].rows == 0)
        part--;
    int64_t i = at - p.at[part], n = p.part[part].cols * (int64_t)ndp_dtype_size(p.part[part].dtype);
    int64_t unit = part == NDP_PACKED_CODES ? (how == NDP_PACKING_NF4 ? 2 : 1) : NDP_PACKED_BLOCK; /* elements */
    if (i >= n)
        return -1;
    if (part == NDP_PACKED_NESTED || (part == NDP_PACKED_SCALES && how == NDP_PACKING_INT8)) {
        bool rows = part == NDP_PACKED_SCALES;
        return k->bytes[k->p.at[part] + (rows ? ndp_segment_at(s, 0, i / 4) * 4 + i % 4 : i)];
    }
    int64_t r = i * unit / s->cols, c = i * unit % s->cols;
    return k->bytes[k->p.at[part] + (ndp_segment_at(s, 0, r) * s->whole[1] + s->first[1] + c) / unit];
}

/* What a rank owns of the codes and scales. */
static void check_owned(ndp_engine *e, ndp_packing how) {
    const ndp_model *m = ndp_engine_model(e);
    for (int b = 0; b < m->n_buffers; b++) {
        const ndp_segments *of = &m->buffers[b].segments;
        const ndp_shard *shard = ndp_engine_shard(e, b);
        ndp_piece p;
        for (int at = 0; of->packing && ndp_segments_piece(of, shard->shards, shard->index, &at, &p);) {
            packed k = {0};
            uint8_t *mine = malloc((size_t)p.count);
            CHECK_OK(ndp_engine_read(e, NDP_OWNED_MASTER, b, p.slice_first, p.count, 1, mine));
            int64_t begin = p.slice_first + shard->index * shard->slice - p.segment->offset, member = -1;
            for (int64_t i = 0, bytes = ndp_segment_packed(of, p.segment).bytes; i < p.count; i++) {
                if ((begin + i) / bytes != member) {
                    free(k.bytes);
                    k = pack_whole(how, p.segment, member = (begin + i) / bytes);
                }
                int must = byte_of_whole(how, &k, of, p.segment, (begin + i) % bytes);
                if (must >= 0 && must != mine[i])
                    fail_msg("%s: byte %lld of %lld [%lld,%lld] is %d, must be %d", p.segment->name,
                             (long long)(begin + i), (long long)ndp_segment_matrices(p.segment),
                             (long long)p.segment->rows, (long long)p.segment->cols, mine[i], must);
            }
            free(mine), free(k.bytes);
        }
    }
}

static void fill_and_check(ndp_engine *e) {
    ndp_dtype master = ndp_engine_model(e)->opts.master;
    tiny_fill(e);
    CHECK_OK(ndp_engine_pack(e, drawn, NULL, &master));
    for (int how = 1; how < NDP_PACKINGS; how++)
        if (ndp_engine_model(e)->opts.base == (ndp_packing)how)
            check_owned(e, (ndp_packing)how);
}

/* ---- tests ---- */

/* One rank with packed weights has the bits of one with the same weights unpacked. */
static void check_unpacked(const char *config, bool adapted, ndp_dtype compute, const ndp_device *device,
                           ndp_packing how, const result *one) {
    ndp_model plain = model_of(config, adapted, compute, NDP_PACKING_NONE), m = model_of(config, adapted, compute, how);
    way w = {.size = {1, 1, 1, 1, 1},
             .parallel = NDP_PARALLEL_INIT,
             .fill = how == NDP_PACKING_NF4 ? fill_as_nf4 : fill_as_int8};
    result r = run(&plain, device, &w);
    for (int u = 0; u < 3; u++)
        assert_true(r.loss[u] == one->loss[u] && r.norm[u] == one->norm[u]);
    int64_t own = 0, packed_own = 0; /* the trained buffers of both: embedding first, head last */
    for (int b = 0; b < plain.n_buffers; b++)
        own += plain.buffers[b].trainable ? plain.buffers[b].segments.elements : 0;
    for (int b = 0; b < m.n_buffers; b++)
        packed_own += m.buffers[b].trainable ? m.buffers[b].segments.elements : 0;
    assert_int_equal(own, packed_own);
    assert_memory_equal(r.grads, one->grads, (size_t)plain.buffers[0].segments.elements * sizeof *r.grads);
    release(&r);
    ndp_model_release(&plain);
    ndp_model_release(&m);
}

static void check_layouts(const char *config, bool adapted, ndp_dtype compute, const ndp_device *device,
                          ndp_packing how, const bounds *most) {
    static const int sizes[][5] = {{1, 2, 1, 1, 1}, {2, 2, 1, 1, 1}, {1, 3, 1, 1, 1}, {1, 1, 2, 1, 1}, {1, 1, 1, 2, 1},
                                   {1, 1, 1, 1, 2}, {1, 1, 1, 1, 4}, {1, 2, 2, 1, 2}, {1, 2, 1, 1, 4}};
    ndp_model m = model_of(config, adapted, compute, how);
    result one =
        run(&m, device, &(way){.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT, .fill = fill_and_check});
    check_unpacked(config, adapted, compute, device, how, &one);
    for (int i = short_or_all(how == NDP_PACKING_NF4, 0); i < NDP_COUNT(sizes); i += short_or_all(3, 1)) {
        way w = {.reshard = i % 2,
                 .recompute = i % 3,
                 .gathered = i % 4 > 1,
                 .parallel = NDP_PARALLEL_INIT,
                 .fill = fill_and_check};
        memcpy(w.size, sizes[i], sizeof w.size);
        int ranks = w.size[1] * w.size[2] * w.size[3] * w.size[4];
        w.ep = strstr(config, "experts") == NULL || i % 4 == 3 ? 1 : ranks > 4 ? 2 : ranks;
        w.parallel.tp_sequence_parallel |= w.ep > 1; /* jobs refuse whole rows with ep */
        check_against(&m, device, &w, &one, most);
    }
    release(&one);
    ndp_model_release(&m);
}

static void nf4_on_layouts(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(configs); i++)
        check_layouts(configs[i], false, NDP_F64, &ndp_device_ref, NDP_PACKING_NF4, &exact);
    check_layouts(in_turn_blocks, false, NDP_F64, &ndp_device_ref, NDP_PACKING_NF4, &exact);
    check_layouts(configs[0], false, NDP_F32, &ndp_device_cpu, NDP_PACKING_NF4, &other_single);
    check_layouts(configs[0], false, NDP_BF16, &ndp_device_cpu, NDP_PACKING_NF4, &half);
}

/* Rounding alone: experts that are not packed are as far, 3.0e-6 to 3.4e-6 on layouts with tp. */
static const bounds mixture_single = {2e-5, 6e-6, 1e-3, 2e-6, 3e-5};

static void mixtures_on_layouts(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(mixtures); i++) {
        check_layouts(mixtures[i], true, NDP_F64, &ndp_device_ref, NDP_PACKING_NF4, &exact);
        check_layouts(mixtures[i], false, NDP_F64, &ndp_device_ref, NDP_PACKING_INT8, &exact);
        check_layouts(mixtures[i], false, NDP_F32, &ndp_device_cpu, NDP_PACKING_NF4, &mixture_single);
    }
}

static void int8_on_layouts(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(configs); i++)
        check_layouts(configs[i], false, NDP_F32, &ndp_device_cpu, NDP_PACKING_INT8, &other_single);
    check_layouts(in_turn, false, NDP_F32, &ndp_device_cpu, NDP_PACKING_INT8, &other_single);
}

/* ---- the plan of a large model ---- */

/* Bytes of the weights of Llama-3.1-8B, frozen but for its head, on one rank in bf16; *work: of a unit's work memory.
 */
static size_t plan_8b(ndp_packing base, size_t *work) {
    static const char llama[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 128256, \"num_hidden_layers\": 32, \"hidden_size\": 4096, "
        "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 14336, "
        "\"max_position_embeddings\": 131072, \"rope_theta\": 500000.0}";
    static const char *const frozen[] = {"embed", "layers.*"};
    ndp_model_opts o = tiny_opts(NDP_BF16, 1024);
    ndp_facts f;
    ndp_model m;
    o.frozen = frozen, o.n_frozen = 2, o.base = base;
    CHECK_OK(ndp_facts_parse_text(llama, "8b", &f));
    CHECK_OK(ndp_decoder_build(&f, &o, &m));
    const ndp_exec exec = {.device = &ndp_device_null, .threads = 1};
    const ndp_layout one = NDP_LAYOUT_ONE;
    ndp_engine_opts e = {.model = &m,
                         .step = {.exec = &exec, .accumulation = 1, .recompute = true, .parallel = NDP_PARALLEL_INIT}};
    ndp_engine *engine;
    CHECK_OK(ndp_mesh_init(&one, 0, &(ndp_mesh_facts){.kv_heads = 8}, &e.step.mesh));
    CHECK_OK(ndp_engine_create(&e, &engine));
    const ndp_program *p = ndp_engine_program(engine);
    size_t bytes = 0;
    *work = 0;
    for (int i = 0; i < p->n_blocks; i++) {
        const ndp_block *b = &p->blocks[i];
        bytes +=
            b->persistent && (b->class == NDP_MEM_WEIGHTS || b->class == NDP_MEM_MASTER || b->class == NDP_MEM_FROZEN)
                ? b->bytes
                : 0;
    }
    for (int u = 0; u < m.n_units; u++)
        for (int phase = 0; phase < NDP_PHASES; phase++) {
            size_t used = p->opts.units[m.units[u].graph].lists[phase].work_bytes;
            *work = strncmp(m.units[u].name, "layers", 6) == 0 && used > *work ? used : *work;
        }
    size_t head = (size_t)128256 * 4096 * 2 + 4096 * 2; /* trained: the rest of fp32 weights */
    ndp_engine_destroy(engine);
    ndp_model_release(&m);
    return bytes - head;
}

/* Four bits and an eighth for an element of the layers, two bytes for one of the embedding; at a time one product's
 * weights exist in bf16: gate and up. */
static void a_large_model_fits(void **state) {
    size_t work, plain_work, elements = (size_t)32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + (size_t)3 * 14336 * 4096);
    size_t nf4 = plan_8b(NDP_PACKING_NF4, &work), plain = plan_8b(NDP_PACKING_NONE, &plain_work);
    (void)state;
    double per_element = (double)(nf4 - (size_t)2 * 2 * 128256 * 4096 - (size_t)2 * 65 * 4096) / (double)elements;
    printf("Llama-3.1-8B: weights %.2f GiB in nf4, %.2f bits an element of the layers; %.2f GiB in bf16; work %.0f and "
           "%.0f MiB\n",
           (double)nf4 / (1 << 30), 8 * per_element, (double)plain / (1 << 30), (double)work / (1 << 20),
           (double)plain_work / (1 << 20));
    assert_true((double)nf4 < 5.7 * (1 << 30));
    assert_true(per_element > 0.5156 && per_element < 0.5160);
    assert_true(work - plain_work <= (size_t)2 * 14336 * 4096 * 2 + (1 << 20));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nf4_on_layouts), cmocka_unit_test(int8_on_layouts),
                                       cmocka_unit_test(mixtures_on_layouts), cmocka_unit_test(a_large_model_fits)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
