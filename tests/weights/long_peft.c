/* 30 AdamW updates of an adapter of stories15M from PEFT's first A and B = 0, against PEFT's losses and samples of its
 * factors (tests/golden/README.md): fp64 on ref, fp32 on cpu. */
#include "train/tiny_model.h"
#include "weights/peft.h"
#include "weights/tensor_set.h"

enum { EVERY = 31 }; /* element of a sample */

/* fp32: PEFT's own losses in fp32 are 4e-6 off those in fp64. The factors begin at 0, so rounding decides signs of
 * their first updates: PEFT's in fp32 are 9e-4 off. */
static const peft_bounds fp64 = {1e-9, 1, 1e-9, 1e-8, 1e-7}, fp32 = {1e-5, 1, 1e-5, 1e-3, 5e-4};

/* This rank's sampled elements of a factor at the end, by the norm of all samples; and the whole factor's norm. */
static ndp_status check_final(void *user, const ndp_owned_run *run) {
    peft_run *r = user;
    const ndp_run *p = &run->run;
    const char *name = p->segment->name;
    if (ndp_factor_of(name) == NDP_NO_FACTOR)
        return NDP_OK;
    int64_t n;
    double *want = peft_expected(r, "sample.", name, &n), *norm = peft_expected(r, "norm.", name, NULL);
    double *have = malloc((size_t)p->count * sizeof *have), distance = 0, squares = 0, all = 0;
    CHECK_OK(ndp_run_get(run, 0, p->count, have, NDP_F64));
    assert_int_equal(p->tensor_first, 0); /* one rank holds it whole */
    for (int64_t i = 0; i < n; i++) {
        distance += pow(have[i * EVERY] - want[i], 2);
        squares += want[i] * want[i];
    }
    for (int64_t i = 0; i < p->count; i++)
        all += have[i] * have[i];
    double off = fmax(sqrt(distance / squares), fabs(sqrt(all) / *norm - 1));
    free(want);
    free(norm);
    free(have);
    r->worst[1] = fmax(r->worst[1], off);
    return off <= r->bounds.final ? NDP_OK
                                  : NDP_FAIL(NDP_EBUG, "%s: %s is off by %.3g of its norm", r->name, name, off);
}

/* ---- the adapter that PEFT begins with ---- */

static void begin_module(tensor_set *out, const golden *g, const ndp_weights *base, const char *a_name, bool dora) {
    char name[300];
    int64_t elements;
    const char *stem = a_name + strlen("base_model.model.");
    int length = (int)(strlen(stem) - strlen(".lora_A.weight"));
    snprintf(name, sizeof name, "%.*s.weight", length, stem);
    const ndp_tensor_entry *w = ndp_weights_find(base, name);
    assert_non_null(w);
    int64_t rows = w->spec.shape[0], cols = w->spec.shape[1];
    snprintf(name, sizeof name, "first.%s", a_name);
    double *a = read_all(g, name, NDP_F64, &elements);
    set_tensor *t = set_add(out, a_name, &(ndp_tensor_spec){.ndim = 2, .shape = {elements / cols, cols}});
    memcpy(t->x, a, (size_t)elements * sizeof *a);
    free(a);
    snprintf(name, sizeof name, "base_model.model.%.*s.lora_B.weight", length, stem);
    set_add(out, name, &(ndp_tensor_spec){.ndim = 2, .shape = {rows, elements / cols}});
    if (!dora)
        return;
    double *values = malloc((size_t)w->elements * sizeof *values);
    CHECK_OK(ndp_weights_read(base, w->spec.name, 0, w->elements, values, NDP_F64, true));
    snprintf(name, sizeof name, "base_model.model.%.*s.lora_magnitude_vector", length, stem);
    t = set_add(out, name, &(ndp_tensor_spec){.dtype = NDP_F64, .ndim = 1, .shape = {rows}});
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t k = 0; k < cols; k++)
            sum += values[i * cols + k] * values[i * cols + k];
        t->x[i] = sqrt(sum);
    }
    free(values);
}

static char *begin(const char *place, const golden *g, const char *kind) {
    char *folder = ndp_format("%s/%s", place, kind);
    bool dora = strcmp(kind, "dora") == 0, rslora = strcmp(kind, "rslora") == 0;
    tensor_set *out = calloc(1, sizeof *out);
    ndp_weights *base;
    CHECK_OK(ndp_folder_create(folder));
    CHECK_OK(ndp_weights_open(g->folder, &base));
    for (int i = 0; i < ndp_safetensors_count(g->expected); i++) {
        const char *name = ndp_safetensors_at(g->expected, i)->spec.name;
        if (strncmp(name, "first.", 6) == 0)
            begin_module(out, g, base, name + 6, dora);
    }
    set_write(out, folder, "adapter_model");
    set_release(out);
    ndp_weights_close(base);
    char *config =
        ndp_format("{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, \"use_dora\": %s, \"use_rslora\": "
                   "%s, \"target_modules\": [\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\", "
                   "\"gate_proj\", \"up_proj\", \"down_proj\"]}",
                   dora ? "true" : "false", rslora ? "true" : "false");
    tiny_write(folder, "adapter_config.json", config);
    free(config);
    return folder;
}

/* ---- the runs ---- */

static void check_kind(const char *place, golden *g, const char *kind) {
    char *adapter = begin(place, g, kind), *prefix = ndp_format("%s.", kind);
    peft_run r;
    peft_open(&r, g, adapter);
    r.name = kind, r.prefix = prefix, r.expected = g->expected;
    r.losses = peft_expected(&r, "losses", "", &r.updates);
    r.norms = peft_expected(&r, "grad_norms", "", NULL);
    r.check_final = check_final;
    assert_int_equal(r.updates, 30);
    peft_check(&r, NDP_F64, &ndp_device_ref, &fp64, (const int[]){1, 1, 1, 1, 1});
    peft_check(&r, NDP_F32, &ndp_device_cpu, &fp32, (const int[]){1, 1, 1, 1, 1});
    r.expected = NULL;
    peft_close(&r);
    free(adapter);
    free(prefix);
}

static void trains_as_peft(void **state) {
    (void)state;
    char *model = reference_path("adapters of stories15M", "models/stories15M"), place[] = "/tmp/ndp-peft-XXXXXX";
    char path[1024];
    golden g = {.name = "stories15M", .folder = model};
    if (!model)
        skip();
    assert_non_null(mkdtemp(place));
    golden_folder("peft/stories15M/expected.safetensors", path, sizeof path);
    CHECK_OK(ndp_safetensors_open(path, &g.expected));
    snprintf(path, sizeof path, "%s/config.json", model);
    CHECK_OK(ndp_facts_read(path, &g.facts));
    const int64_t *shape = ndp_safetensors_find(g.expected, "input_ids")->spec.shape;
    g.updates = shape[0], g.samples = shape[1], g.length = shape[2];
    g.ids = read_all(&g, "input_ids", NDP_I32, NULL);
    g.labels = read_all(&g, "labels", NDP_I32, NULL);
    check_kind(place, &g, "lora");
    check_kind(place, &g, "rslora");
    check_kind(place, &g, "dora");
    close_golden(&g);
    CHECK_OK(ndp_folder_remove(place));
    free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(trains_as_peft)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
