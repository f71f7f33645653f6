/* Model folders are read and written again with the same tensors. */
#include "train/golden.h"

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
    const struct CMUnitTest tests[] = {GOLDEN_MODELS(EXPORT), cmocka_unit_test(a_bias_of_a_router_is_fp32),
                                       cmocka_unit_test(fp8_is_dequantised), cmocka_unit_test(mxfp4_is_dequantised)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
