/* Samples that ndp_pack has packed: the log-probabilities of each, the loss and the gradient are those of samples in
 * rows of their own, on layouts. */
#include "base/rng.h"
#include "train/tiny_run.h"

#include <math.h>

enum { SAMPLES = 8, LENGTH = 32 };

static const struct {
    tiny_layout axes;
    const char *set;
} layouts[] = {
    {{"one", 1, 1, 1, 1}, NULL},
    {{"context", 1, 1, 2, 1}, NULL},
    {{"stages", 1, 2, 1, 1}, "parallelism.pp_size=2"},
    {{"product", 1, 2, 1, 2}, "parallelism.sp_size=2"},
};

typedef struct outcome {
    double loss, norm, logp[SAMPLES * LENGTH];
} outcome;

static ndp_status run_batch(ndp_trainer *t, const ndp_batch *b, outcome *out) {
    ndp_call_info info;
    NDP_TRY(ndp_trainer_forward(t, b, 1, &(ndp_token_values){.logp = out->logp}));
    NDP_TRY(ndp_trainer_begin(t, NULL));
    NDP_TRY(ndp_trainer_forward_backward(t, b, 1, &info));
    out->loss = info.loss;
    return ndp_trainer_norm(t, &out->norm);
}

static ndp_status compare(ndp_world *w, void *arg) {
    ndp_trainer *t;
    int32_t ids[SAMPLES * LENGTH];
    int64_t lengths[SAMPLES];
    outcome *apart = calloc(2, sizeof *apart), *together = apart + 1;
    ndp_packed_batch p;
    (void)w;
    for (int i = 0; i < SAMPLES; i++) {
        lengths[i] = 1 + (int64_t)ndp_rng_below(5, 1, (uint64_t)i, i % 2 ? LENGTH : LENGTH / 3);
        for (int s = 0; s < LENGTH; s++)
            ids[i * LENGTH + s] = (int32_t)ndp_rng_below(5, 2, (uint64_t)(i * LENGTH + s), 258);
    }
    const ndp_batch batch = {.ids = ids, .lengths = lengths, .samples = SAMPLES, .length = LENGTH, .global = true};
    NDP_TRY(ndp_trainer_create(arg, w, &t));
    NDP_TRY(ndp_pack(&batch, LENGTH, &p));
    assert_true(p.batch.samples < SAMPLES);
    NDP_TRY(run_batch(t, &batch, apart));
    NDP_TRY(run_batch(t, &p.batch, together));
    if (!(fabs(together->loss / apart->loss - 1) < 1e-6) || !(fabs(together->norm / apart->norm - 1) < 1e-5))
        fail_msg("loss %.17g, packed %.17g; norm %.17g, packed %.17g", apart->loss, together->loss, apart->norm,
                 together->norm);
    for (int i = 0; i < SAMPLES; i++)
        for (int s = 0; s < lengths[i]; s++) {
            double a = apart->logp[i * LENGTH + s], b = together->logp[p.rows[i] * LENGTH + p.places[i] + s];
            if (!(fabs(a - b) < 1e-5) || (a < 0) != (s + 1 < lengths[i]))
                fail_msg("sample %d, token %d: log-probability %.9g, packed %.9g", i, s, a, b);
        }
    ndp_packed_batch_release(&p);
    ndp_trainer_destroy(t);
    free(apart);
    return NDP_OK;
}

static void packed_samples_are_those_apart(void **state) {
    for (int i = 0; i < NDP_COUNT(layouts); i++) {
        ndp_config *c = tiny_configure(*state, &layouts[i].axes, layouts[i].axes.name);
        tiny_set(c, "train.own_batches=true");
        tiny_set(c, "data.files=[]");
        if (layouts[i].set)
            tiny_set(c, "%s", layouts[i].set);
        CHECK_OK(ndp_world_run(c, compare, c));
        ndp_config_destroy(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(packed_samples_are_those_apart, tiny_make, tiny_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
