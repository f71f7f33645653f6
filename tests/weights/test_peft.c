/* Adapters of PEFT beside their models: logits with the adapter loaded, gradients of the factors, 30 AdamW updates, in
 * fp64 on ref and fp32 on cpu, on one rank and on data and tensor axes (tests/golden/README.md). */
#include "base/text.h"
#include "guarded.h"
#include "weights/adapter_use.h"
#include "weights/peft.h"

/* Losses of 1e-9 and factors of 1e-7 of their norm are asked for; the factors are stored in fp32. Logits in fp32: 2e-5
 * of the largest. */
static const peft_bounds fp64 = {1e-12, 2e-7, 1e-9, 1e-9, 1e-7}, fp32 = {2e-6, 2e-5, 1e-5, 3e-4, 1e-4};

static ndp_status check_final(void *user, const ndp_owned_run *run) {
    peft_run *r = user;
    return peft_is_factor(run) ? peft_compare(r, "final.", run, r->bounds.final, &r->worst[1]) : NDP_OK;
}

static void check_logits(const peft_run *r, ndp_dtype type, const ndp_device *device, double bound) {
    ndp_model_opts mo = golden_opts(r->base, NDP_MODEL_CACHED, type);
    ndp_model m;
    int64_t n;
    mo.adapter = peft_adapter(r);
    CHECK_OK(ndp_decoder_build(&r->base->facts, &mo, &m));
    int32_t *rows = golden_rows(r->base, &n);
    double *want = peft_expected(r, "logits", "", NULL);
    double *have = golden_logits(r->base, &m, r->adapter, device, rows, n);
    logits_distance off = compare_logits(r->base, have, want, n);
    printf("%-17s %-4s logits off by %.2g of the largest\n", r->name, ndp_dtype_name(type), off.worst);
    assert_true(off.worst <= bound);
    free(rows);
    free(want);
    free(have);
    ndp_model_release(&m);
}

typedef struct variant {
    const char *base, *kind;
    int tp; /* divides the heads */
} variant;

/* The caller frees r->name and r->adapter. */
static void open_variant(const variant *v, golden *g, peft_run *r, char folder[1024]) {
    char *name = ndp_format("%s-%s", v->base, v->kind), path[1024];
    char *adapter = ndp_format("%s/%s", golden_folder("peft", path, sizeof path), name);
    char *expected = ndp_format("%s/expected.safetensors", adapter);
    open_golden(g, v->base, golden_folder(v->base, folder, 1024));
    peft_open(r, g, adapter);
    r->name = name;
    CHECK_OK(ndp_safetensors_open(expected, &r->expected));
    free(expected);
}

static void close_variant(golden *g, peft_run *r) {
    free((char *)r->name);
    free((char *)r->adapter);
    peft_close(r);
    close_golden(g);
}

static void trains_as_peft(void **state) {
    const variant *v = *state;
    golden g;
    peft_run r;
    char folder[1024];
    const ndp_device *ref = guarded(&ndp_device_ref), *cpu = guarded(&ndp_device_cpu);
    open_variant(v, &g, &r, folder);
    check_logits(&r, NDP_F64, ref, 2e-7);
    check_logits(&r, NDP_F32, cpu, 2e-5);
    r.losses = peft_expected(&r, "losses", "", &r.updates);
    r.norms = peft_expected(&r, "grad_norms", "", NULL);
    assert_int_equal(r.updates, 30);
    r.check_grad = peft_check_grad, r.check_final = check_final;
    peft_check(&r, NDP_F64, ref, &fp64, (const int[]){1, 1, 1, 1, 1});
    peft_check(&r, NDP_F32, cpu, &fp32, (const int[]){1, 1, 1, 1, 1});
    peft_check(&r, NDP_F64, &ndp_device_ref, &fp64, (const int[]){1, 2, 1, 1, v->tp});
    r.ep = 2;
    if (r.config.parameters.n > 0)
        peft_check(&r, NDP_F64, &ndp_device_ref, &fp64, (const int[]){1, 2, 1, 1, v->tp});
    close_variant(&g, &r);
    unguard(ref);
    unguard(cpu);
}

/* Modules that are saved whole: the tied pair as one table. */
static void loads_what_is_saved(void **state) {
    (void)state;
    const variant v = {"qwen2", "tied", 1};
    golden g;
    peft_run r;
    char folder[1024];
    open_variant(&v, &g, &r, folder);
    check_logits(&r, NDP_F64, &ndp_device_ref, 2e-7);
    check_logits(&r, NDP_F32, &ndp_device_cpu, 2e-5);
    close_variant(&g, &r);
}

/* ---- what is refused ---- */

static const char *const q[] = {"q_proj"}, *const linear[] = {"linear"}, *const norm[] = {"norm"};

static const struct {
    const char *base, *kind;
    ndp_adapter other; /* options that differ from the folder's; 0: the folder's */
    const char *words;
    ndp_status code;
} refusals[] = {
    {"llama-yarn",
     "lora",
     {.r = 8},
     "set adapter.r: 4, adapter.alpha: 8, adapter.rslora: false, adapter.dora: false",
     NDP_EINVAL},
    {"llama-yarn", "rslora", {.scale = 2}, "set adapter.r: 3, adapter.alpha: 6, adapter.rslora: true", NDP_EINVAL},
    {"llama-yarn", "lora", {.form = NDP_DORA}, "scale 2, dora true; set adapter.r: 4", NDP_EINVAL},
    {"llama-yarn",
     "lora",
     {.targets = q, .n_targets = 1},
     "has factors of model.layers.0.self_attn.k_proj, which adapter.targets leaves out",
     NDP_EINVAL},
    {"llama-yarn",
     "rslora",
     {.targets = linear, .n_targets = 1},
     "has no base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight, which adapter.targets asks for",
     NDP_EINVAL},
    {"llama-yarn",
     "lora",
     {.save = norm, .n_save = 1},
     "has no model.norm.weight, which adapter.modules_to_save asks for",
     NDP_EINVAL},
    {"qwen2",
     "tied",
     {.save = norm, .n_save = 1},
     "has no model.norm.weight, which adapter.modules_to_save asks for",
     NDP_EINVAL},
    {"qwen2",
     "embedding",
     {0},
     "two tables then, which is not supported beside a model; ndparallel merge",
     NDP_ENOTSUP},
    {"qwen2", "head", {0}, "two tables then, which is not supported beside a model; ndparallel merge", NDP_ENOTSUP},
};

static void what_the_job_says_otherwise_is_refused(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(refusals); i++) {
        const variant v = {refusals[i].base, refusals[i].kind, 1};
        const ndp_adapter *o = &refusals[i].other;
        golden g;
        peft_run r;
        char folder[1024];
        open_variant(&v, &g, &r, folder);
        ndp_model_opts mo = golden_opts(&g, NDP_MODEL_SCORE, NDP_F32);
        mo.adapter = peft_adapter(&r);
        mo.adapter.r = o->r ? o->r : mo.adapter.r;
        mo.adapter.scale = o->scale > 0 ? o->scale : mo.adapter.scale;
        mo.adapter.form = o->form ? o->form : mo.adapter.form;
        if (o->targets)
            mo.adapter.targets = o->targets, mo.adapter.n_targets = o->n_targets;
        if (o->save)
            mo.adapter.save = o->save, mo.adapter.n_save = o->n_save;
        ndp_model m;
        ndp_adapter_folder a;
        ndp_adapter_match match;
        CHECK_OK(ndp_decoder_build(&g.facts, &mo, &m));
        CHECK_FAILS(ndp_adapter_use_match(r.adapter, &m, &a, &match), refusals[i].code, refusals[i].words);
        ndp_model_release(&m);
        close_variant(&g, &r);
    }
}

static const variant variants[] = {{"llama-yarn", "lora", 2},   {"llama-yarn", "rslora", 2}, {"llama-yarn", "dora", 2},
                                   {"phi3", "lora", 2},         {"phi3", "rslora", 2},       {"phi3", "dora", 2},
                                   {"gpt2", "lora", 3},         {"gpt2", "rslora", 3},       {"gpt2", "dora", 3},
                                   {"qwen3-moe", "experts", 2}, {"gpt-oss", "experts", 2},   {"mixtral", "experts", 2}};

#define VARIANT(i)                                                                                                     \
    { variants[i].base, trains_as_peft, NULL, NULL, (void *)&variants[i] }

int main(void) {
    const struct CMUnitTest tests[] = {VARIANT(0),
                                       VARIANT(1),
                                       VARIANT(2),
                                       VARIANT(3),
                                       VARIANT(4),
                                       VARIANT(5),
                                       VARIANT(6),
                                       VARIANT(7),
                                       VARIANT(8),
                                       VARIANT(9),
                                       VARIANT(10),
                                       VARIANT(11),
                                       cmocka_unit_test(loads_what_is_saved),
                                       cmocka_unit_test(what_the_job_says_otherwise_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
