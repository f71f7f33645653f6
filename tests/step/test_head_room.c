/* Where no gradient is made, the head's op has no results for one, which would take memory of the plan: as many numbers
 * as the table has. The loss keeps its bits. */
#include "check.h"
#include "step/tiny.h"

enum { ROWS = 20, DOCUMENTS = 4, VOCAB = 4099, HIDDEN = 12 /* of tiny_facts */ };

typedef struct setup {
    ndp_model model;
    ndp_transport *transport;
    ndp_engine *engine;
    ndp_exec exec;
} setup;

static void begin(setup *s, ndp_model_mode mode, int loss, int tp) {
    ndp_facts f = tiny_facts(false);
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    f.vocab = VOCAB;
    mo.mode = mode;
    if (loss)
        mo.preference = tiny_preference(loss), mo.documents = DOCUMENTS;
    CHECK_OK(ndp_decoder_build(&f, &mo, &s->model));
    CHECK_OK(ndp_transport_self(&s->transport));
    s->exec = (ndp_exec){.device = tp > 1 ? &ndp_device_null : &ndp_device_cpu, .threads = 1};
    ndp_engine_opts o = {.model = &s->model, .transport = tp > 1 ? NULL : s->transport};
    o.step = (ndp_step_opts){.exec = &s->exec,
                             .accumulation = 1,
                             .optimizer = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .max_norm = 1.0}};
    ndp_layout layout = NDP_LAYOUT_ONE;
    layout.size[NDP_TP] = tp;
    CHECK_OK(ndp_mesh_init(&layout, 0, &(ndp_mesh_facts){.kv_heads = f.kv_heads}, &o.step.mesh));
    CHECK_OK(ndp_engine_create(&o, &s->engine));
}

static void end(setup *s) {
    ndp_engine_destroy(s->engine);
    ndp_transport_destroy(s->transport);
    ndp_model_release(&s->model);
}

/* Results of the calls of the head's ops that make gradients, and of those that make none. */
static void count_results(const ndp_program *p, int most[2]) {
    most[0] = most[1] = 0;
    for (int i = 0; i < p->n; i++) {
        int n;
        ndp_repeats repeats;
        const ndp_call *calls = ndp_instr_calls(p, &p->instrs[i], &n, &repeats);
        for (int k = 0; k < n; k++)
            if (calls[k].op == &ndp_op_xent || calls[k].op == &ndp_op_xent_grad) {
                int *m = &most[calls[k].attr.train];
                *m = calls[k].n_out > *m ? calls[k].n_out : *m;
            }
    }
}

static size_t room_of(const setup *s) {
    ndp_budget b;
    ndp_program_budget(ndp_engine_program(s->engine), &b);
    return b.class_bytes[NDP_MEM_ACTIVATIONS] + b.class_bytes[NDP_MEM_WORK];
}

static void no_room_without_gradients(void **state) {
    (void)state;
    const int losses[] = {NDP_PREFERENCE_NONE, NDP_PREFERENCE_DPO_SIGMOID, NDP_PREFERENCE_ORPO};
    for (int tp = 1; tp <= 2; tp++)
        for (int l = 0; l < NDP_COUNT(losses); l++) {
            setup train, score;
            int most[2];
            begin(&train, NDP_MODEL_TRAIN, losses[l], tp);
            begin(&score, NDP_MODEL_SCORE, losses[l], tp);
            count_results(ndp_engine_program(train.engine), most);
            assert_int_equal(most[0], losses[l] ? 1 : 0); /* pairs are scored before */
            assert_int_equal(most[1], 3);
            count_results(ndp_engine_program(score.engine), most);
            assert_int_equal(most[0], 1);
            assert_int_equal(most[1], 0);
            size_t logits = sizeof(float) * ROWS * (VOCAB + 1) / (size_t)tp,
                   table = sizeof(float) * HIDDEN * VOCAB / (size_t)tp;
            if (!(room_of(&score) < logits + table / 2 && room_of(&score) < room_of(&train)))
                fail_msg("tp %d, loss %d: %zu bytes to score, %zu to train; the logits take %zu, the table %zu", tp,
                         losses[l], room_of(&score), room_of(&train), logits, table);
            end(&train), end(&score);
        }
}

static void the_loss_has_the_same_bits(void **state) {
    (void)state;
    for (int loss = 0; loss <= NDP_PREFERENCE_DPO_SIGMOID; loss++) {
        double losses[2];
        for (int k = 0; k < 2; k++) {
            setup s;
            ndp_step_result r;
            begin(&s, k ? NDP_MODEL_SCORE : NDP_MODEL_TRAIN, loss, 1);
            tiny_fill(s.engine);
            tiny_batch(s.engine, 0, 0);
            CHECK_OK(ndp_engine_step(s.engine, 1e-2, 0, false, &r));
            losses[k] = r.loss;
            end(&s);
        }
        assert_true(losses[0] > 0 && losses[0] == losses[1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_room_without_gradients),
                                       cmocka_unit_test(the_loss_has_the_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
