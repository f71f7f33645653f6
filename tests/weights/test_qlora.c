/* One step of adapters beside projections that are stored as nf4, against bitsandbytes and PEFT in fp32: the loss and
 * every gradient of A and B (tests/golden/README.md), on one rank and on data, tensor and pipeline axes. */
#include "guarded.h"
#include "weights/peft.h"

/* 1e-4 is asked for, of loss and gradients; PEFT's fp32 is itself rounded, so less than 1e-6 would ask for luck. */
static const peft_bounds fp32 = {.loss = 2e-6, .grad = 1e-5, .norms = 1e-5};

typedef struct qlora {
    const char *name, *base; /* folders: in tests/golden/qlora, in tests/golden */
    int tp;                  /* cuts no block */
    bool pp;                 /* there are layers for two stages */
} qlora;

static const qlora cases[] = {{"llama", "qlora/llama-base", 2, false}, {"phi3", "phi3", 1, true}};

static const int one[5] = {1, 1, 1, 1, 1}, shards[5] = {1, 2, 1, 1, 1};

typedef struct opened {
    golden g;
    peft_run r;
    char name[64], base[1024], folder[1024];
} opened;

static void open_case(const qlora *q, opened *o) {
    snprintf(o->name, sizeof o->name, "qlora/%s", q->name);
    open_golden(&o->g, o->name, golden_folder(q->base, o->base, sizeof o->base));
    peft_open(&o->r, &o->g, golden_folder(o->name, o->folder, sizeof o->folder));
    char *expected = ndp_format("%s/expected.safetensors", o->folder);
    CHECK_OK(ndp_safetensors_open(expected, &o->r.expected));
    free(expected);
    o->r.name = o->name;
    o->r.losses = peft_expected(&o->r, "losses", "", &o->r.updates);
    o->r.norms = peft_expected(&o->r, "grad_norms", "", NULL);
    assert_int_equal(o->r.updates, 1);
    o->r.check_grad = peft_check_grad;
    o->r.packing = NDP_PACKING_NF4;
}

static void close_case(opened *o) {
    peft_close(&o->r);
    close_golden(&o->g);
}

/* Elements of all gradients that the reference has. */
static int64_t expected_elements(const peft_run *r) {
    int64_t n = 0;
    for (int i = 0; i < ndp_safetensors_count(r->expected); i++) {
        const ndp_tensor_entry *t = ndp_safetensors_at(r->expected, i);
        n += strncmp(t->spec.name, "grad.", 5) == 0 ? t->elements : 0;
    }
    return n;
}

static void steps_as_peft(void **state) {
    const qlora *q = *state;
    const int with_tp[5] = {1, 2, 1, 1, q->tp};
    const ndp_device *ref = guarded(&ndp_device_ref), *cpu = guarded(&ndp_device_cpu);
    opened o;
    open_case(q, &o);
    peft_check(&o.r, NDP_F32, ref, &fp32, one);
    assert_int_equal(o.r.compared, expected_elements(&o.r));
    peft_check(&o.r, NDP_F32, cpu, &fp32, one);
    peft_check(&o.r, NDP_F32, cpu, &fp32, with_tp);
    peft_check(&o.r, NDP_F32, ref, &fp32, with_tp);
    if (q->pp) {
        o.r.pp = true;
        peft_check(&o.r, NDP_F32, cpu, &fp32, one);
        peft_check(&o.r, NDP_F32, cpu, &fp32, shards);
    }
    close_case(&o);
    unguard(ref);
    unguard(cpu);
}

/* Other codes, and the weights as files have them, give another step. */
static void other_storage_is_found(void **state) {
    const qlora *q = *state;
    static const ndp_packing others[] = {NDP_PACKING_INT8, NDP_PACKING_NONE};
    static const peft_bounds any = {.loss = 1, .grad = 1, .norms = 1};
    opened o;
    open_case(q, &o);
    for (int i = 0; i < NDP_COUNT(others); i++) {
        o.r.packing = others[i];
        printf("%s: ", ndp_packing_name(others[i]));
        peft_check(&o.r, NDP_F32, &ndp_device_cpu, &any, one);
        assert_true(o.r.worst_loss > 1e-4 && o.r.worst[0] > 1e-2);
        CHECK_FAILS(peft_try(&o.r, NDP_F32, &ndp_device_cpu, &fp32, one), NDP_EBUG, "update 0: loss");
    }
    close_case(&o);
}

#define CASE(i, f)                                                                                                     \
    { #f, f, NULL, NULL, (void *)&cases[i] }

int main(void) {
    const struct CMUnitTest tests[] = {CASE(0, steps_as_peft), CASE(1, steps_as_peft), CASE(0, other_storage_is_found),
                                       CASE(1, other_storage_is_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
