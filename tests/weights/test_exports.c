/* Model folders are read and written again with the same tensors. */
#include "model/tensors.h"
#include "train/golden.h"
#include "weights/packed_weights.h"

#include <unistd.h>

typedef struct exporting {
    const golden *g;
    const ndp_model *model;
    int tp;
    const char *folder;
} exporting;

static ndp_status export_body(ndp_transport *t, void *arg) {
    const exporting *x = arg;
    ndp_layout layout = NDP_LAYOUT_ONE;
    layout.size[NDP_DP_SHARD] = 2, layout.size[NDP_TP] = x->tp;
    const ndp_exec exec = {.device = &ndp_device_cpu, .threads = 1};
    ndp_engine_opts o = {.model = x->model, .transport = t, .step = {.exec = &exec, .accumulation = 1}};
    o.step.parallel = (ndp_parallel)NDP_PARALLEL_INIT;
    NDP_TRY(ndp_mesh_init(&layout, ndp_transport_rank(t), &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(x->model)},
                          &o.step.mesh));
    ndp_engine *e;
    ndp_comm *world;
    ndp_tensor_list list = {0};
    ndp_group all = {0, 1, ndp_transport_world(t), ndp_transport_rank(t)};
    NDP_TRY(ndp_comm_create(t, all, "world", &world));
    NDP_TRY(ndp_engine_create(&o, &e));
    NDP_TRY(ndp_weights_load(e, x->g->folder));
    NDP_TRY(ndp_tensor_list_add(&list, e, NDP_OWNED_MASTER, NDP_TENSORS_ALL, NDP_F32));
    NDP_TRY(ndp_weights_save(world, NULL, x->folder, list.specs, list.n, list.pieces, list.n_pieces, NDP_SHARD_BYTES));
    ndp_tensor_list_release(&list);
    ndp_engine_destroy(e);
    ndp_comm_destroy(world);
    return NDP_OK;
}

/* Every tensor of `a` is in `b` with the same shape and values, save for those that the model ignores; their number. */
static int count_equal(const golden *g, const ndp_weights *a, const ndp_weights *b) {
    int n = 0;
    for (int i = 0; i < ndp_weights_count(a); i++) {
        const ndp_tensor_entry *x = ndp_weights_at(a, i), *y = ndp_weights_find(b, x->spec.name);
        if (ndp_facts_ignores(&g->facts, x->spec.name))
            continue;
        if (!y || y->spec.ndim != x->spec.ndim || memcmp(x->spec.shape, y->spec.shape, sizeof(int64_t) * 2) != 0)
            fail_msg("%s: %s is not exported as it was", g->name, x->spec.name);
        float *have = calloc((size_t)x->elements, sizeof *have), *want = calloc((size_t)x->elements, sizeof *want);
        CHECK_OK(ndp_weights_read(a, x->spec.name, 0, x->elements, have, NDP_F32, true));
        CHECK_OK(ndp_weights_read(b, x->spec.name, 0, x->elements, want, NDP_F32, true));
        assert_memory_equal(have, want, (size_t)x->elements * sizeof *have);
        free(have);
        free(want);
        n++;
    }
    return n;
}

/* Read and written again on 2 shards x some tensor ranks: the tensors of the files STEM of the folder. They stay,
 * beside config.json, in the folder NDP_EXPORTS, where tests/golden/check_exports.py shows them to transformers. */
static void check_export(const char *name, const char *from, const char *stem) {
    golden g;
    open_golden(&g, name, from);
    const char *kept = strcmp(stem, "model") == 0 ? getenv("NDP_EXPORTS") : NULL;
    char folder[1024] = "/tmp/ndp_export_XXXXXX", command[2200];
    if (kept)
        snprintf(folder, sizeof folder, "%s/%s", kept, name);
    else
        assert_non_null(mkdtemp(folder));
    exporting x = {.g = &g, .tp = 2, .folder = folder};
    while (g.facts.heads % x.tp != 0)
        x.tp++;
    ndp_model_opts mo = {.mode = NDP_MODEL_SCORE, .rows = 8, .positions = 8, .compute = NDP_F32, .master = NDP_F32};
    ndp_model m;
    CHECK_OK(ndp_decoder_build(&g.facts, &mo, &m));
    x.model = &m;
    CHECK_OK(ndp_local_world(2 * x.tp, export_body, &x));
    ndp_weights *before, *after;
    CHECK_OK(ndp_weights_open_stem(from, stem, &before));
    CHECK_OK(ndp_weights_rename(before, &(ndp_naming){ndp_facts_prefix(&g.facts), "", NULL}));
    CHECK_OK(ndp_weights_open(folder, &after));
    assert_int_equal(count_equal(&g, before, after), count_equal(&g, after, before));
    ndp_weights_close(before);
    ndp_weights_close(after);
    ndp_model_release(&m);
    close_golden(&g);
    snprintf(command, sizeof command, kept ? "cp '%s/config.json' '%s'" : "true '%s'; rm -r '%s'", from, folder);
    assert_int_equal(system(command), 0);
}

static void own_export(void **state) {
    const char *name = *state;
    char folder[1024];
    check_export(name, golden_folder(name, folder, sizeof folder), "model");
}

/* The numbers that transformers makes of MXFP4; a folder whose scale is no number is damaged. */
static void mxfp4_is_dequantised(void **state) {
    (void)state;
    golden g;
    ndp_model m;
    ndp_weights *w;
    char folder[1024], name[] = "model.layers.0.mlp.experts.down_proj";
    int64_t shape[] = {3, 32, 64};
    double x[2];
    open_golden(&g, "mxfp4", golden_folder("mxfp4", folder, sizeof folder));
    assert_non_null(strstr(g.facts.packed, "MXFP4"));
    ndp_model_opts mo = {.mode = NDP_MODEL_SCORE, .rows = 8, .positions = 8, .compute = NDP_F32, .master = NDP_F32};
    CHECK_OK(ndp_decoder_build(&g.facts, &mo, &m));
    CHECK_OK(ndp_weights_open(folder, &w));
    CHECK_FAILS(ndp_weights_fit(w, &m, NDP_TENSORS_ALL), NDP_EFORMAT, "model.layers.0.mlp.experts.down_proj");
    shape[1] = 64;
    CHECK_OK(ndp_weights_dequantise(w, name, shape)); /* of another shape: it stays */
    assert_null(ndp_weights_find(w, name));
    CHECK_OK(ndp_weights_name(w, &m));
    CHECK_OK(ndp_weights_fit(w, &m, NDP_TENSORS_ALL));
    CHECK_FAILS(ndp_weights_read(w, name, 3 * 32 * 64 - 1, 2, x, NDP_F64, true), NDP_EBUG, "[6143, +2) requested");
    CHECK_FAILS(ndp_weights_read(w, "no", 0, 1, x, NDP_F64, true), NDP_EFORMAT, "holds no tensor no");
    ndp_weights_close(w);
    ndp_model_release(&m);
    close_golden(&g);
    check_export("mxfp4", folder, "expected");
}

/* Tensors of a module behind the last layer are written as the folder has them. */
static void check_copied(const ndp_weights *w, const ndp_model *m) {
    enum { BYTES = 136 * 272 };
    static const char name[] = "model.layers.1.eh_proj.weight";
    static uint8_t before[BYTES], after[BYTES];
    char folder[] = "/tmp/ndp_copied_XXXXXX", command[100];
    ndp_tensor_list list = {0};
    ndp_weights *copy;
    assert_non_null(mkdtemp(folder));
    CHECK_OK(ndp_tensor_list_carry(&list, w, m, true));
    assert_int_equal(list.n, 3);
    CHECK_OK(ndp_weights_save(NULL, NULL, folder, list.specs, list.n, list.pieces, list.n_pieces, NDP_SHARD_BYTES));
    CHECK_OK(ndp_weights_open(folder, &copy));
    assert_string_equal(ndp_weights_find(copy, name)->type_name, "F8_E4M3");
    assert_int_equal(ndp_weights_find(copy, "model.layers.1.eh_proj.weight_scale_inv")->spec.dtype, NDP_F32);
    CHECK_OK(ndp_weights_name(copy, m));
    CHECK_OK(ndp_weights_read(w, name, 0, BYTES, before, NDP_U8, false));
    CHECK_OK(ndp_weights_read(copy, name, 0, BYTES, after, NDP_U8, false));
    assert_memory_equal(before, after, BYTES);
    ndp_weights_close(copy);
    ndp_tensor_list_release(&list);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
}

/* Matrices of fp8 are read as their numbers times the scales of their blocks; those of a module behind the last layer
 * stay. */
static void fp8_is_dequantised(void **state) {
    (void)state;
    golden g;
    ndp_model m;
    ndp_weights *w;
    char folder[1024];
    open_golden(&g, "fp8", golden_folder("fp8", folder, sizeof folder));
    assert_non_null(strstr(g.facts.packed, "fp8"));
    ndp_model_opts mo = {.mode = NDP_MODEL_SCORE, .rows = 8, .positions = 8, .compute = NDP_F32, .master = NDP_F32};
    CHECK_OK(ndp_decoder_build(&g.facts, &mo, &m));
    CHECK_OK(ndp_weights_open(folder, &w));
    CHECK_FAILS(ndp_weights_fit(w, &m, NDP_TENSORS_ALL), NDP_EFORMAT, "is F8_E4M3, which is not read as a weight");
    CHECK_OK(ndp_weights_name(w, &m));
    CHECK_OK(ndp_weights_fit(w, &m, NDP_TENSORS_ALL));
    assert_null(ndp_weights_find(w, "model.layers.0.self_attn.q_proj.weight_scale_inv"));
    check_copied(w, &m);
    ndp_weights_close(w);
    ndp_model_release(&m);
    close_golden(&g);
    check_export("fp8", folder, "expected");
}

/* Opens stored/NAME, named as the model's. */
static ndp_weights *open_stored(const char *name, const ndp_model *m, char *folder, size_t size) {
    char path[64];
    ndp_weights *w;
    snprintf(path, sizeof path, "stored/%s", name);
    CHECK_OK(ndp_weights_open(golden_folder(path, folder, size), &w));
    CHECK_OK(ndp_weights_name(w, m));
    CHECK_OK(ndp_weights_fit(w, m, NDP_TENSORS_ALL));
    return w;
}

static ndp_model stored_model(const char *name, ndp_packing base) {
    static const char *const layers[] = {"layers.*"};
    char path[1200], folder[1024], stem[64];
    ndp_facts f;
    ndp_model m;
    ndp_model_opts o = {.mode = NDP_MODEL_SCORE, .rows = 8, .positions = 8, .compute = NDP_F32, .master = NDP_F32};
    if (base != NDP_PACKING_NONE)
        o.mode = NDP_MODEL_TRAIN, o.frozen = layers, o.n_frozen = 1, o.base = base;
    snprintf(stem, sizeof stem, "stored/%s", name);
    snprintf(path, sizeof path, "%s/config.json", golden_folder(stem, folder, sizeof folder));
    CHECK_OK(ndp_facts_read(path, &f));
    assert_non_null(f.packed);
    CHECK_OK(ndp_decoder_build(&f, &o, &m));
    return m;
}

/* The numbers of matrices that bitsandbytes, modelopt and compressed-tensors store, wherever a read begins. */
static void stored_matrices_are_dequantised(void **state) {
    static const char *const names[] = {"nf4", "fp4", "int8", "modelopt", "compressed"};
    (void)state;
    for (int k = 0; k < NDP_COUNT(names); k++) {
        char folder[1024];
        ndp_model m = stored_model(names[k], NDP_PACKING_NONE);
        ndp_weights *w = open_stored(names[k], &m, folder, sizeof folder), *expected;
        CHECK_OK(ndp_weights_open_stem(folder, "expected", &expected));
        assert_int_equal(ndp_weights_count(w), ndp_weights_count(expected));
        for (int i = 0; i < ndp_weights_count(w); i++) {
            const ndp_tensor_entry *t = ndp_weights_at(w, i);
            uint16_t *have = malloc((size_t)t->elements * 2), *want = malloc((size_t)t->elements * 2);
            assert_true(have && want);
            CHECK_OK(ndp_weights_read(expected, t->spec.name, 0, t->elements, want, NDP_BF16, true));
            for (int64_t at = 0, n; at < t->elements; at += n) {
                n = t->elements - at < 1 + at ? t->elements - at : 1 + at;
                CHECK_OK(ndp_weights_read(w, t->spec.name, at, n, have + at, NDP_BF16, true));
            }
            for (int64_t at = 0; at < t->elements; at++)
                if (have[at] != want[at])
                    fail_msg("%s: %s[%lld] is %#x, expected %#x", names[k], t->spec.name, (long long)at, have[at],
                             want[at]);
            free(have);
            free(want);
        }
        ndp_weights_close(w);
        ndp_weights_close(expected);
        ndp_model_release(&m);
    }
}

/* What is stored beside codes is checked before it is used: sizes of another matrix, and text that is no JSON. */
static void damaged_states_are_refused(void **state) {
    static const char *const edits[][2] = {
        {"s/\"blocksize\": 64/\"blocksize\": 63/", "does not fit its size; copy the file again"},
        {"s/\"blocksize\": 64/\"blocksize\": -4/", "does not fit its size"},
        {"s/\"shape\": \\[64, 320\\]/\"shape\": [64, 321]/", "mlp.down_proj.weight is stored in 4 bits"},
        {"s/\"nested_blocksize\": 256/\"nested_blocksize\": 156/", "does not fit its size"},
        {"s/\"shape\": /\"shape\"; /", "quant_state.bitsandbytes__nf4"}};
    (void)state;
    ndp_model m = stored_model("nf4", NDP_PACKING_NONE);
    for (int i = 0; i < NDP_COUNT(edits); i++) {
        char folder[1024], copy[] = "/tmp/ndp_stored_XXXXXX", command[2400];
        ndp_weights *w;
        assert_non_null(mkdtemp(copy));
        snprintf(command, sizeof command, "LC_ALL=C sed '%s' '%s/model.safetensors' >%s/model.safetensors", edits[i][0],
                 golden_folder("stored/nf4", folder, sizeof folder), copy);
        assert_int_equal(system(command), 0);
        CHECK_OK(ndp_weights_open(copy, &w));
        CHECK_FAILS(ndp_weights_name(w, &m), NDP_EFORMAT, edits[i][1]);
        ndp_weights_close(w);
        snprintf(command, sizeof command, "rm -r %s", copy);
        assert_int_equal(system(command), 0);
    }
    ndp_model_release(&m);
}

/* A base that is stored as nf4 has the codes and scales of its folder: what is unpacked is what they say, not rounded.
 */
static ndp_status codes_body(ndp_transport *t, void *arg) {
    const ndp_model *m = arg;
    ndp_layout layout = NDP_LAYOUT_ONE;
    layout.size[NDP_DP_SHARD] = ndp_transport_world(t);
    const ndp_exec exec = {.device = &ndp_device_cpu, .threads = 1};
    ndp_engine_opts o = {.model = m, .transport = t, .step = {.exec = &exec, .accumulation = 1}};
    o.step.parallel = (ndp_parallel)NDP_PARALLEL_INIT;
    CHECK_OK(ndp_mesh_init(&layout, ndp_transport_rank(t), &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(m)},
                           &o.step.mesh));
    char folder[1024], plain[] = "model.layers.0.mlp.down_proj.weight";
    ndp_engine *e;
    ndp_comm *world;
    ndp_group all = {0, 1, ndp_transport_world(t), ndp_transport_rank(t)};
    CHECK_OK(ndp_comm_create(t, all, "world", &world));
    CHECK_OK(ndp_engine_create(&o, &e));
    CHECK_OK(ndp_weights_load(e, golden_folder("stored/nf4", folder, sizeof folder)));
    ndp_weights *w = open_stored("nf4", m, folder, sizeof folder);
    const ndp_segment *s = ndp_model_segment(m, plain);
    int64_t n = s->whole[0] * s->whole[1], blocks = ndp_packed_blocks(n);
    double *have = calloc((size_t)n, sizeof *have);
    uint8_t *scales = malloc((size_t)blocks);
    float *nested = malloc((size_t)ndp_packed_nested(n) * sizeof *nested),
          *absmax = malloc((size_t)blocks * sizeof *absmax);
    uint16_t *want = malloc((size_t)n * sizeof *want);
    assert_true(blocks > NDP_PACKED_NEST && have && scales && nested && absmax && want);
    CHECK_OK(ndp_engine_unpack(e, world, s, 0, NDP_PACKING_NF4, have));
    CHECK_OK(ndp_weights_read(w, plain, 0, n, want, NDP_BF16, true));
    assert_true(ndp_weights_nf4(w, plain, n, scales, nested));
    ndp_nf4_unpack_scales(scales, nested, 0, blocks, absmax);
    for (int64_t i = 0; i < n; i++) {
        float x = (float)have[i], code = x / absmax[i / NDP_PACKED_BLOCK];
        assert_int_equal(ndp_f32_to_bf16(x), want[i]);
        int k = 0;
        while (k < 16 && fabsf(code - ndp_nf4_values[k]) > 1e-6f)
            k++;
        assert_true(k < 16 && x == ndp_nf4_values[k] * absmax[i / NDP_PACKED_BLOCK]);
    }
    free(have);
    free(want);
    free(scales);
    free(nested);
    free(absmax);
    ndp_weights_close(w);
    ndp_engine_destroy(e);
    ndp_comm_destroy(world);
    return NDP_OK;
}

static void codes_of_a_stored_base_stay(void **state) {
    (void)state;
    ndp_model m = stored_model("nf4", NDP_PACKING_NF4);
    for (int ranks = 1; ranks <= 2; ranks++)
        CHECK_OK(ndp_local_world(ranks, codes_body, &m));
    ndp_model_release(&m);
}

/* The bias of a router is fp32 where all else is bf16, and no part of what is trained. */
static void a_bias_of_a_router_is_fp32(void **state) {
    (void)state;
    golden g;
    ndp_model m;
    ndp_tensor_list all = {0}, states = {0};
    char folder[1024];
    int wide = 0;
    open_golden(&g, "glm4-moe", golden_folder("glm4-moe", folder, sizeof folder));
    ndp_model_opts mo = {.mode = NDP_MODEL_TRAIN, .rows = 8, .positions = 8, .compute = NDP_BF16, .master = NDP_F32};
    CHECK_OK(ndp_decoder_build(&g.facts, &mo, &m));
    CHECK_OK(ndp_tensor_list_of(&all, &m, NDP_OWNED_MASTER, NDP_TENSORS_RUN, NDP_BF16));
    CHECK_OK(ndp_tensor_list_of(&states, &m, NDP_OWNED_STATE0, NDP_TENSORS_RUN, NDP_F32));
    for (int i = 0; i < all.n; i++) {
        bool bias = strstr(all.specs[i].name, "e_score_correction_bias");
        assert_int_equal(all.specs[i].dtype, bias ? NDP_F32 : NDP_BF16);
        wide += bias;
    }
    assert_true(wide == 1 && states.n == all.n - 1);
    ndp_tensor_list_release(&all);
    ndp_tensor_list_release(&states);
    ndp_model_release(&m);
    close_golden(&g);
}

#define EXPORT(folder)                                                                                                 \
    { folder, own_export, NULL, NULL, (void *)folder }

int main(void) {
    const struct CMUnitTest tests[] = {GOLDEN_MODELS(EXPORT),
                                       cmocka_unit_test(a_bias_of_a_router_is_fp32),
                                       cmocka_unit_test(fp8_is_dequantised),
                                       cmocka_unit_test(stored_matrices_are_dequantised),
                                       cmocka_unit_test(codes_of_a_stored_base_stay),
                                       cmocka_unit_test(damaged_states_are_refused),
                                       cmocka_unit_test(mxfp4_is_dequantised)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
