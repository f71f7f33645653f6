/* Calls of the opened loop that are out of order, batches that cannot be, ranks that do not agree: all ranks refuse
 * them, with words that say what is wrong, and the trainer goes on. A trainer without data is saved and resumed. */
#include "train/tiny_run.h"
#include "train/trainer.h"

#include <math.h>

enum { LENGTH = 32, MOST = 16 };

static const tiny_layout layouts[] = {
    {"one", 1, 1, 1, 1}, {"two", 1, 2, 1, 1}, {"tensor", 1, 1, 1, 2}, {"logits", 1, 1, 1, 2}};

static ndp_config *configure(const char *folder, const tiny_layout *l) {
    ndp_config *c = tiny_configure(folder, l, l->name);
    tiny_set(c, "train.own_batches=true");
    tiny_set(c, "data.files=[]");
    tiny_set(c, "train.own_logits=%s", strcmp(l->name, "logits") == 0 ? "true" : "false");
    return c;
}

/* ---- calls ---- */

typedef struct place {
    ndp_trainer *t;
    int rank;
    int32_t ids[MOST * LENGTH], labels[MOST * LENGTH], numbers[MOST * LENGTH];
    double weights[MOST * LENGTH];
    int64_t lengths[MOST];
    ndp_batch batch;
} place;

static void make_batch(place *p) {
    for (int i = 0; i < MOST * LENGTH; i++)
        p->ids[i] = i % 258, p->labels[i] = (i + 1) % 258, p->weights[i] = 1, p->numbers[i] = i / 8 % 4;
    for (int i = 0; i < MOST; i++)
        p->lengths[i] = LENGTH;
    p->batch = (ndp_batch){.ids = p->ids, .labels = p->labels, .samples = 8, .length = LENGTH, .global = true};
}

static ndp_status call(place *p) { return ndp_trainer_forward_backward(p->t, &p->batch, 1, NULL); }
static ndp_status begin(place *p) { return ndp_trainer_begin(p->t, NULL); }

static ndp_status zero_slopes(void *user, const double *logp, int64_t samples, int64_t length, double *slopes,
                              double *loss) {
    const place *p = user;
    (void)logp;
    (void)samples;
    slopes[0] = p->weights[0], slopes[length] = p->weights[1];
    *loss = 0;
    return p->weights[2] == 5 ? NDP_FAIL(NDP_EIO, "the reward cannot be read") : NDP_OK;
}

static ndp_status begin_with(place *p, ndp_divide divide, double by, double lr, double norm, int calls) {
    return ndp_trainer_begin(p->t, &(ndp_update_opts){divide, by, lr, norm, calls});
}

static ndp_status with(place *p) {
    NDP_TRY(begin_with(p, NDP_DIVIDE_NUMBER, 1, NAN, NAN, 1));
    return ndp_trainer_forward_backward_with(p->t, &p->batch, 1, zero_slopes, p, NULL);
}

static ndp_status no_begin(place *p) { return call(p); }
static ndp_status update_without_begin(place *p) { return ndp_trainer_update(p->t, NULL); }
static ndp_status norm_without_call(place *p) {
    double norm;
    NDP_TRY(begin(p));
    return ndp_trainer_norm(p->t, &norm);
}
static ndp_status call_after_norm(place *p) {
    double norm;
    NDP_TRY(begin_with(p, NDP_DIVIDE_TOKENS, 1, NAN, NAN, 0));
    NDP_TRY(call(p));
    NDP_TRY(ndp_trainer_norm(p->t, &norm));
    return call(p);
}
static ndp_status too_many_calls(place *p) {
    NDP_TRY(begin_with(p, NDP_DIVIDE_TOKENS, 1, NAN, NAN, 2));
    NDP_TRY(call(p));
    NDP_TRY(call(p));
    return call(p);
}
static ndp_status update_twice(place *p) {
    NDP_TRY(begin(p));
    NDP_TRY(call(p));
    NDP_TRY(ndp_trainer_update(p->t, NULL));
    return ndp_trainer_update(p->t, NULL);
}
static ndp_status a_step(place *p) { return ndp_trainer_step(p->t, NULL); }
static ndp_status a_sample(place *p) { return ndp_trainer_sample(p->t, 0, p->ids, NULL, NULL, NULL); }
static ndp_status divide_by_0(place *p) { return begin_with(p, NDP_DIVIDE_NUMBER, 0, NAN, NAN, 1); }
static ndp_status divide_by_nan(place *p) { return begin_with(p, NDP_DIVIDE_NUMBER, NAN, NAN, NAN, 1); }
static ndp_status no_divide(place *p) { return begin_with(p, (ndp_divide)7, 1, NAN, NAN, 1); }
static ndp_status lr_infinite(place *p) { return begin_with(p, NDP_DIVIDE_TOKENS, 1, INFINITY, NAN, 1); }
static ndp_status norm_negative(place *p) { return begin_with(p, NDP_DIVIDE_TOKENS, 1, NAN, -1, 1); }
static ndp_status calls_negative(place *p) { return begin_with(p, NDP_DIVIDE_TOKENS, 1, NAN, NAN, -1); }
static ndp_status weights_sum_to_0(place *p) {
    for (int i = 0; i < MOST * LENGTH; i++)
        p->weights[i] = i % 2 ? 1 : -1;
    p->batch.weights = p->weights;
    NDP_TRY(begin_with(p, NDP_DIVIDE_SUM, 1, NAN, NAN, 1));
    return call(p);
}
static ndp_status weights_sum_to_0_late(place *p) {
    for (int i = 0; i < MOST * LENGTH; i++)
        p->weights[i] = i % 2 ? 1 : -1;
    p->batch.weights = p->weights;
    NDP_TRY(begin_with(p, NDP_DIVIDE_SUM, 1, NAN, NAN, 0));
    NDP_TRY(call(p));
    return ndp_trainer_update(p->t, NULL);
}
static ndp_status with_tokens(place *p) {
    NDP_TRY(begin(p));
    return ndp_trainer_forward_backward_with(p->t, &p->batch, 1, zero_slopes, p, NULL);
}

#define BATCH(name, ...)                                                                                               \
    static ndp_status name(place *p) {                                                                                 \
        NDP_TRY(begin(p));                                                                                             \
        __VA_ARGS__;                                                                                                   \
        return call(p);                                                                                                \
    }
BATCH(too_large, p->batch.samples = 9)
BATCH(negative_size, p->batch.samples = -1)
BATCH(id_too_large, p->ids[37] = 258)
BATCH(id_negative, p->ids[37] = -1)
BATCH(label_too_large, p->labels[64] = 2147483647)
BATCH(position_too_large, p->batch.positions = p->numbers, p->numbers[3] = LENGTH)
BATCH(weight_nan, p->batch.weights = p->weights, p->weights[66] = NAN)
BATCH(too_long, p->batch.samples = 4, p->batch.length = LENGTH + 1)
BATCH(length_too_large, p->batch.lengths = p->lengths, p->lengths[2] = LENGTH + 1)
BATCH(no_ids, p->batch.ids = NULL)
BATCH(behind_padding, p->batch.documents = p->numbers, p->numbers[4] = -1)
/* on one rank alone */
BATCH(other_ids, p->ids[3] = p->rank ? 200 : 3)
BATCH(other_sizes, p->batch.samples = p->rank ? 4 : 8)
BATCH(other_kinds, p->batch.global = p->rank == 0, p->batch.samples = 4)
BATCH(one_wrong, p->ids[37] = p->rank ? 300 : 37)
static ndp_status one_asks(place *p) {
    double *values = calloc(MOST * LENGTH, sizeof *values);
    ndp_status st = ndp_trainer_forward(p->t, &p->batch, 1, &(ndp_token_values){.logp = p->rank ? NULL : values});
    free(values);
    return st;
}
static ndp_status slope_nan(place *p) {
    p->weights[1] = NAN;
    return with(p);
}
static ndp_status function_fails(place *p) {
    p->weights[2] = 5;
    return with(p);
}

/* weights[0]: what is wrong with the answer of row 3 of a call. */
enum { LOSS_NAN = 1, SLOPE_INF, FAILS, OTHER_LOSS, OTHER_SLOPE };
static ndp_status answer(void *user, const ndp_logit_rows *r) {
    const place *p = user;
    int wrong = (int)p->weights[0];
    for (int64_t i = 0; i < r->n; i++)
        r->losses[i] = 1, r->slopes[i * r->vocabulary + r->labels[i]] = -1;
    if (wrong == LOSS_NAN)
        r->losses[3] = NAN;
    if (wrong == SLOPE_INF)
        r->slopes[3 * r->vocabulary + 9] = INFINITY;
    if (wrong == OTHER_LOSS)
        r->losses[3] += p->rank;
    if (wrong == OTHER_SLOPE)
        r->slopes[3 * r->vocabulary + 9] += (float)p->rank;
    return wrong == FAILS ? NDP_FAIL(NDP_EIO, "the teacher cannot be read") : NDP_OK;
}
static ndp_status call_logits(place *p) {
    NDP_TRY(begin(p));
    return ndp_trainer_forward_backward_logits(p->t, &p->batch, 1, answer, p, NULL);
}
#define LOGITS(name, wrong)                                                                                            \
    static ndp_status name(place *p) {                                                                                 \
        p->weights[0] = wrong;                                                                                         \
        return call_logits(p);                                                                                         \
    }
LOGITS(loss_nan, LOSS_NAN)
LOGITS(slope_infinite, SLOPE_INF)
LOGITS(logits_fail, FAILS)
LOGITS(other_loss, OTHER_LOSS)
LOGITS(other_slope, OTHER_SLOPE)
static ndp_status one_fails(place *p) {
    p->weights[0] = p->rank ? FAILS : 0;
    return call_logits(p);
}
static ndp_status after_failure(place *p) {
    p->weights[0] = FAILS;
    (void)call_logits(p);
    return ndp_trainer_update(p->t, NULL);
}

typedef enum needs { NOTHING, RANKS, ROOM, NO_ROOM } needs; /* two ranks; room for logits */

static const struct {
    const char *name;
    ndp_status (*run)(place *p);
    ndp_status status;
    const char *words;
    needs needs;
} cases[] = {
    {"no begin", no_begin, NDP_EINVAL, "no update was begun", NOTHING},
    {"update without begin", update_without_begin, NDP_EINVAL, "no update was begun", NOTHING},
    {"norm without a call", norm_without_call, NDP_EINVAL, "has no gradient", NOTHING},
    {"a call after the norm", call_after_norm, NDP_EINVAL, "takes no more calls", NOTHING},
    {"three calls of two", too_many_calls, NDP_EINVAL, "begun for 2 calls", NOTHING},
    {"two updates", update_twice, NDP_EINVAL, "no update was begun", NOTHING},
    {"a step", a_step, NDP_EINVAL, "call ndp_trainer_begin", NOTHING},
    {"a sample", a_sample, NDP_EINVAL, "data.files is empty", NOTHING},
    {"divide by 0", divide_by_0, NDP_EINVAL, "divide_by is 0", NOTHING},
    {"divide by nan", divide_by_nan, NDP_EINVAL, "divide_by is nan", NOTHING},
    {"no such divide", no_divide, NDP_EINVAL, "no ndp_divide 7", NOTHING},
    {"lr", lr_infinite, NDP_EINVAL, "lr is inf", NOTHING},
    {"max_grad_norm", norm_negative, NDP_EINVAL, "max_grad_norm is -1", NOTHING},
    {"calls", calls_negative, NDP_EINVAL, "-1 calls", NOTHING},
    {"weights of sum 0", weights_sum_to_0, NDP_EINVAL, "sum of the weights is 0", NOTHING},
    {"the same, late", weights_sum_to_0_late, NDP_EINVAL, "sum of the weights is 0", NOTHING},
    {"a function, by tokens", with_tokens, NDP_EINVAL, "with a number to", NOTHING},
    {"too large", too_large, NDP_EINVAL, "9 samples; batch.global_batch_size 8", NOTHING},
    {"negative size", negative_size, NDP_EINVAL, "-1 samples", NOTHING},
    {"id too large", id_too_large, NDP_EINVAL, "batch 0, sample 1, token 5: its id is 258, must be below 258", NOTHING},
    {"id negative", id_negative, NDP_EINVAL, "its id is -1", NOTHING},
    {"label too large", label_too_large, NDP_EINVAL, "sample 2, token 0: its label is 2147483647", NOTHING},
    {"position too large", position_too_large, NDP_EINVAL, "its position is 32", NOTHING},
    {"weight", weight_nan, NDP_EINVAL, "sample 2, token 2: its weight is nan", NOTHING},
    {"too long", too_long, NDP_EINVAL, "33 tokens, data.sequence_length is 32", NOTHING},
    {"length too large", length_too_large, NDP_EINVAL, "sample 2 has 33 tokens", NOTHING},
    {"no ids", no_ids, NDP_EINVAL, "batch 0 has no ids", NOTHING},
    {"behind padding", behind_padding, NDP_EINVAL, "stands behind padding", NOTHING},
    {"other ids", other_ids, NDP_EINVAL, "ranks 0 and 1", RANKS},
    {"other sizes", other_sizes, NDP_EINVAL, "8 and 4 samples", RANKS},
    {"other kinds", other_kinds, NDP_EINVAL, "ranks 0 and 1", RANKS},
    {"wrong on one rank", one_wrong, NDP_EINVAL, "its id is 300", RANKS},
    {"one asks", one_asks, NDP_EINVAL, "other arrays", RANKS},
    {"slope", slope_nan, NDP_EINVAL, "sample 1, token 0 is nan", NOTHING},
    {"a function that fails", function_fails, NDP_EIO, "loss function of rank 0", NOTHING},
    {"no room for logits", call_logits, NDP_EINVAL, "set train.own_logits: true", NO_ROOM},
    {"a loss of nan", loss_nan, NDP_EINVAL, "the loss of sample 0, token 3 is nan", ROOM},
    {"a slope of inf", slope_infinite, NDP_EINVAL, "token 3 by the logit of id 9 is inf", ROOM},
    {"logits fail", logits_fail, NDP_EIO, "loss function of rank 0 returned status", ROOM},
    {"logits fail on one rank", one_fails, NDP_EIO, "loss function of rank 1 returned status", ROOM},
    {"other losses", other_loss, NDP_EINVAL, "other losses or slopes on rank 1 than on rank 0", ROOM},
    {"other slopes", other_slope, NDP_EINVAL, "other losses or slopes on rank 1 than on rank 0", ROOM},
    {"an update after a failure", after_failure, NDP_EINVAL, "no update was begun", ROOM},
};

/* Each on all ranks; then the trainer makes an update. */
static ndp_status misuse(ndp_world *w, void *arg) {
    place *p = calloc(1, sizeof *p);
    char *room;
    CHECK_OK(ndp_config_get(arg, "train.own_logits", &room));
    p->rank = ndp_world_rank(w);
    NDP_TRY(ndp_trainer_create(arg, w, &p->t));
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        bool fits[] = {true, ndp_world_size(w) > 1, room[0] == 't', room[0] == 'f'};
        if (!fits[cases[i].needs])
            continue;
        make_batch(p);
        ndp_status st = cases[i].run(p);
        if (st != cases[i].status || !strstr(ndp_error_message(), cases[i].words))
            fail_msg("%s, rank %d: status %d, %s", cases[i].name, p->rank, (int)st, st ? ndp_error_message() : "");
        ndp_update_info info;
        make_batch(p);
        CHECK_OK(begin(p));
        CHECK_OK(call(p));
        CHECK_OK(ndp_trainer_update(p->t, &info));
        assert_true(info.applied && info.tokens == 8 * LENGTH && isfinite(info.loss));
    }
    ndp_trainer_destroy(p->t);
    free(room);
    free(p);
    return NDP_OK;
}

static void misuse_is_refused(void **state) {
    for (int i = 0; i < NDP_COUNT(layouts); i++) {
        ndp_config *c = configure(*state, &layouts[i]);
        CHECK_OK(ndp_world_run(c, misuse, c));
        ndp_config_destroy(c);
    }
}

/* ---- other jobs ---- */

static ndp_status create(ndp_world *w, void *arg) {
    ndp_trainer *t;
    NDP_TRY(ndp_trainer_create(arg, w, &t));
    ndp_update_opts o = NDP_UPDATE_OPTS_INIT;
    o.calls = 2;
    ndp_status st = ndp_trainer_begin(t, &o);
    ndp_trainer_destroy(t);
    return st;
}

static ndp_status train(ndp_world *w, void *arg) { return ndp_train(arg, w, &(ndp_train_opts)NDP_TRAIN_OPTS_INIT); }

static void jobs_that_cannot_be_are_refused(void **state) {
    static const struct {
        const char *sets[4];
        ndp_status (*run)(ndp_world *, void *);
        ndp_status status;
        const char *words;
    } jobs[] = {
        {{"train.own_batches=false"}, create, NDP_EINVAL, "data.files is empty"},
        {{"train.own_batches=false", "train.own_logits=true", "data.files=[a.txt]", "loss.name=dpo"},
         create,
         NDP_EINVAL,
         "train.own_logits is for loss.name xent"},
        {{"loss.name=dpo", "data.format=preference"}, create, NDP_EINVAL, "train.own_batches is for loss.name xent"},
        {{NULL}, train, NDP_EINVAL, "the rows are those of a program of your own"},
    };
    for (int i = 0; i < NDP_COUNT(jobs); i++) {
        ndp_config *c = configure(*state, &layouts[0]);
        for (int k = 0; k < 4 && jobs[i].sets[k]; k++)
            tiny_set(c, "%s", jobs[i].sets[k]);
        ndp_status st = ndp_world_run(c, jobs[i].run, c);
        if (st != jobs[i].status || !strstr(ndp_error_message(), jobs[i].words))
            fail_msg("job %d: status %d, %s", i, (int)st, st ? ndp_error_message() : "");
        ndp_config_destroy(c);
    }
}

static void epochs_are_not_known(void **state) {
    const char *folder = *state;
    ndp_config *c;
    CHECK_OK(ndp_config_create(&c));
    tiny_set(c, "model.config=%s/model.json", folder);
    tiny_set(c, "model.init=random");
    tiny_set(c, "train.own_batches=true");
    tiny_set(c, "train.epochs=2");
    CHECK_FAILS(ndp_config_check(c), NDP_EINVAL, "epochs of your own batches are not known");
    ndp_config_destroy(c);
}

static ndp_status begin_other(ndp_world *w, void *arg) {
    ndp_trainer *t;
    NDP_TRY(ndp_trainer_create(arg, w, &t));
    ndp_status st = ndp_trainer_begin(t, NULL);
    ndp_trainer_destroy(t);
    return st;
}

static void a_trainer_with_its_own_data_has_no_loop(void **state) {
    ndp_config *c = tiny_configure(*state, &layouts[1], "data");
    CHECK_FAILS(ndp_world_run(c, begin_other, c), NDP_EINVAL, "set train.own_batches: true");
    ndp_config_destroy(c);
}

/* ---- a run without data ---- */

typedef struct saved {
    const ndp_config *config;
    bool resumes;
    double *loss; /* of updates 1 to 4; a resumed run does 3 and 4 */
} saved;

static ndp_status save_rank(ndp_world *w, void *arg) {
    const saved *s = arg;
    place *p = calloc(1, sizeof *p);
    ndp_update_info info = {0};
    int64_t step = 0;
    char *text;
    NDP_TRY(ndp_trainer_create(s->config, w, &p->t));
    NDP_TRY(ndp_trainer_describe(p->t, &text));
    free(text);
    if (s->resumes)
        NDP_TRY(ndp_trainer_resume(p->t, NULL, &step));
    for (int u = (int)step; u < 4; u++) {
        make_batch(p);
        NDP_TRY(begin(p));
        NDP_TRY(call(p));
        NDP_TRY(ndp_trainer_update(p->t, &info));
        assert_int_equal(info.step, u + 1);
        if (ndp_world_rank(w) == 0)
            s->loss[u] = info.loss;
        if (u == 1)
            NDP_TRY(ndp_trainer_save(p->t, NULL));
    }
    if (s->resumes)
        NDP_TRY(ndp_trainer_export(p->t, NULL));
    ndp_loop_shape shape;
    NDP_TRY(ndp_trainer_shape(p->t, &shape));
    assert_int_equal(shape.consumed, 4 * 8);
    ndp_trainer_destroy(p->t);
    free(p);
    return NDP_OK;
}

static void a_run_without_data_is_resumed(void **state) {
    double first[4] = {0}, second[4] = {0};
    ndp_config *a = configure(*state, &layouts[1]), *b = configure(*state, &layouts[2]);
    tiny_set(b, "train.output_dir=%s/%s", (const char *)*state, layouts[1].name);
    CHECK_OK(ndp_world_run(a, save_rank, &(saved){a, false, first}));
    CHECK_OK(ndp_world_run(b, save_rank, &(saved){b, true, second}));
    for (int u = 2; u < 4; u++)
        if (!(fabs(second[u] / first[u] - 1) < 1e-5))
            fail_msg("update %d: loss %.17g, resumed %.17g", u, first[u], second[u]);
    ndp_config_destroy(a);
    ndp_config_destroy(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(misuse_is_refused, tiny_make, tiny_drop),
        cmocka_unit_test_setup_teardown(jobs_that_cannot_be_are_refused, tiny_make, tiny_drop),
        cmocka_unit_test_setup_teardown(epochs_are_not_known, tiny_make, tiny_drop),
        cmocka_unit_test_setup_teardown(a_trainer_with_its_own_data_has_no_loop, tiny_make, tiny_drop),
        cmocka_unit_test_setup_teardown(a_run_without_data_is_resumed, tiny_make, tiny_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
