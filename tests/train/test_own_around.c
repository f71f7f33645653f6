/* Around a loop of the user's own, on layouts: numbers of ranks and of data ranks, tensors and states by their names,
 * lines of metrics.jsonl, bytes that checkpoints keep. */
#include "train/tiny_run.h"
#include "train/trainer.h"

#include <math.h>

enum { LENGTH = 32, SAMPLES = 8 };

static const struct {
    tiny_layout axes;
    const char *sets[2];
} layouts[] = {
    {{"one", 1, 1, 1, 1}, {NULL}},
    {{"shard", 1, 2, 1, 1}, {"optimizer.name=lion"}},
    {{"product", 2, 2, 1, 2}, {NULL}},
    {{"stages", 1, 1, 2, 1}, {"parallelism.pp_size=2"}},
};

static int32_t ids[SAMPLES * LENGTH];
static const ndp_batch batch = {.ids = ids, .samples = SAMPLES, .length = LENGTH, .global = true};

static void update(ndp_trainer *t, int calls) {
    ndp_update_opts o = NDP_UPDATE_OPTS_INIT;
    o.calls = calls;
    CHECK_OK(ndp_trainer_begin(t, &o));
    CHECK_OK(ndp_trainer_forward_backward(t, &batch, 1, NULL));
    CHECK_OK(ndp_trainer_update(t, NULL));
}

/* ---- numbers ---- */

static void check_numbers(ndp_trainer *t, ndp_world *w) {
    ndp_loop_shape shape;
    int rank = ndp_world_rank(w), ranks = ndp_world_size(w);
    CHECK_OK(ndp_trainer_shape(t, &shape));
    double all[8], sum[] = {1, rank}, most[] = {rank, -rank}, by_data[] = {1, shape.data_rank},
                   own = 10 + shape.data_rank;
    CHECK_OK(ndp_trainer_reduce(t, sum, 2, NDP_REDUCE_SUM, false));
    assert_true(sum[0] == ranks && sum[1] == ranks * (ranks - 1) / 2);
    CHECK_OK(ndp_trainer_reduce(t, most, 2, NDP_REDUCE_MAX, false));
    assert_true(most[0] == ranks - 1 && most[1] == 0);
    CHECK_OK(ndp_trainer_reduce(t, by_data, 2, NDP_REDUCE_SUM, true));
    assert_true(by_data[0] == shape.data_ranks && by_data[1] == shape.data_ranks * (shape.data_ranks - 1) / 2);
    CHECK_OK(ndp_trainer_gather(t, &own, 1, all));
    for (int d = 0; d < shape.data_ranks; d++)
        assert_true(all[d] == 10 + d);
    char word[8] = "";
    snprintf(word, sizeof word, "rank %d", rank);
    CHECK_OK(ndp_trainer_broadcast(t, word, sizeof word, ranks - 1));
    assert_int_equal(atoi(word + 5), ranks - 1);
    CHECK_FAILS(ndp_trainer_broadcast(t, word, 1, ranks), NDP_EINVAL, "of rank");
    CHECK_FAILS(ndp_trainer_reduce(t, sum, -1, NDP_REDUCE_SUM, false), NDP_EINVAL, "-1 numbers");
    CHECK_OK(ndp_trainer_barrier(t));
}

/* ---- tensors ---- */

static double *room_of(ndp_trainer *t, int tensor, int64_t *n) {
    assert_non_null(ndp_trainer_tensor(t, tensor, n));
    return calloc((size_t)*n, sizeof(double));
}

/* What is written is read, and changes the loss as its values do: a model whose norms are 0 says nothing. */
static void check_tensors(ndp_trainer *t, bool lion) {
    int64_t n;
    ndp_call_info before, after;
    int norm = ndp_trainer_find(t, "model.norm.weight");
    double *values = room_of(t, norm, &n), *read = room_of(t, norm, &n);
    assert_int_equal(ndp_trainer_find(t, "model.nothing"), -1);
    CHECK_OK(ndp_trainer_read(t, NDP_WEIGHT, norm, values));
    CHECK_OK(ndp_trainer_begin(t, NULL));
    CHECK_OK(ndp_trainer_forward_backward(t, &batch, 1, &before));
    double *zeros = calloc((size_t)n, sizeof *zeros);
    CHECK_OK(ndp_trainer_write(t, NDP_WEIGHT, norm, zeros));
    CHECK_OK(ndp_trainer_begin(t, NULL));
    CHECK_OK(ndp_trainer_forward_backward(t, &batch, 1, &after));
    assert_true(fabs(after.loss - log(258)) < 1e-5 && fabs(before.loss - after.loss) > 1e-4);
    CHECK_OK(ndp_trainer_write(t, NDP_WEIGHT, norm, values));
    CHECK_OK(ndp_trainer_read(t, NDP_WEIGHT, norm, read));
    assert_memory_equal(values, read, (size_t)n * sizeof *read);
    CHECK_OK(ndp_trainer_begin(t, NULL));
    CHECK_OK(ndp_trainer_forward_backward(t, &batch, 1, &after));
    assert_true(after.sum == before.sum);
    for (int64_t i = 0; i < n; i++)
        zeros[i] = 0.25 * (double)i;
    CHECK_OK(ndp_trainer_write(t, NDP_STATE0, norm, zeros));
    CHECK_OK(ndp_trainer_read(t, NDP_STATE0, norm, read));
    assert_memory_equal(zeros, read, (size_t)n * sizeof *read);
    if (lion)
        CHECK_FAILS(ndp_trainer_read(t, NDP_STATE1, norm, read), NDP_EINVAL, "does not keep state 1");
    else
        CHECK_OK(ndp_trainer_read(t, NDP_STATE1, norm, read));
    CHECK_FAILS(ndp_trainer_write(t, NDP_GRADIENT, norm, zeros), NDP_EINVAL, "");
    CHECK_FAILS(ndp_trainer_read(t, (ndp_which)9, norm, zeros), NDP_EINVAL, "no ndp_which 9");
    free(zeros);
    free(values);
    free(read);
}

/* The gradient before the update: its norm is that of the update, also where it is divided late. */
static void check_gradient(ndp_trainer *t) {
    for (int calls = 0; calls < 2; calls++) {
        double norm, squares = 0;
        int64_t n;
        ndp_update_opts o = NDP_UPDATE_OPTS_INIT;
        o.calls = calls;
        CHECK_OK(ndp_trainer_begin(t, &o));
        CHECK_OK(ndp_trainer_forward_backward(t, &batch, 1, NULL));
        double *g = room_of(t, 0, &n);
        CHECK_FAILS(ndp_trainer_read(t, NDP_GRADIENT, 0, g), NDP_EINVAL, "call ndp_trainer_norm first");
        free(g);
        CHECK_OK(ndp_trainer_norm(t, &norm));
        for (int i = 0; i < ndp_trainer_tensors(t); i++) {
            g = room_of(t, i, &n);
            CHECK_OK(ndp_trainer_read(t, NDP_GRADIENT, i, g));
            for (int64_t k = 0; k < n; k++)
                squares += g[k] * g[k];
            free(g);
        }
        if (!(fabs(sqrt(squares) / norm - 1) < 1e-6))
            fail_msg("the gradient's norm is %.17g, of its tensors %.17g", norm, sqrt(squares));
    }
}

/* ---- lines, and bytes ---- */

static void check_state(ndp_trainer *t, ndp_world *w, const char *expected) {
    const void *data;
    int64_t bytes;
    CHECK_OK(ndp_trainer_state(t, &data, &bytes));
    assert_int_equal(bytes, (int64_t)strlen(expected));
    assert_memory_equal(data, expected, strlen(expected));
    CHECK_FAILS(ndp_trainer_set_state(t, expected, NDP_STATE_BYTES + 1), NDP_EINVAL, "keeps up to 1048576");
    (void)w;
}

static ndp_status around(ndp_world *w, void *arg) {
    ndp_config *c = arg;
    ndp_trainer *t;
    char *name;
    int64_t step;
    const ndp_named_number reward = {"reward", 0.5}, taken = {"loss", 1}, none = {"", 1};
    NDP_TRY(ndp_trainer_create(c, w, &t));
    NDP_TRY(ndp_config_get(c, "optimizer.name", &name));
    check_numbers(t, w);
    check_tensors(t, strstr(name, "lion") != NULL);
    free(name);
    check_gradient(t);
    CHECK_FAILS(ndp_trainer_log(t, &reward, 1), NDP_EINVAL, "no update was applied");
    check_state(t, w, "");
    for (int u = 0; u < 3; u++) {
        update(t, u % 2);
        CHECK_OK(ndp_trainer_log(t, &reward, 1));
        CHECK_FAILS(ndp_trainer_log(t, &taken, 1), NDP_EINVAL, "a number loss of its own");
        CHECK_FAILS(ndp_trainer_log(t, &none, 1), NDP_EINVAL, "has no name");
        if (u == 1) {
            CHECK_OK(ndp_trainer_set_state(t, ndp_world_rank(w) ? "of another" : "cursor\t7\xff",
                                           ndp_world_rank(w) ? 3 : 9));
            CHECK_OK(ndp_trainer_save(t, NULL));
        }
    }
    CHECK_OK(ndp_trainer_set_state(t, NULL, 0));
    CHECK_OK(ndp_trainer_resume(t, NULL, &step));
    assert_int_equal(step, 2);
    check_state(t, w, "cursor\t7\xff");
    ndp_trainer_destroy(t);
    NDP_TRY(ndp_trainer_create(c, w, &t));
    CHECK_OK(ndp_trainer_resume(t, NULL, &step));
    check_state(t, w, "cursor\t7\xff");
    update(t, 1);
    CHECK_OK(ndp_trainer_log(t, NULL, 0)); /* in place of the line of step 3 */
    ndp_trainer_destroy(t);
    return NDP_OK;
}

static void check_lines(const char *folder, const char *run) {
    char *path = ndp_format("%s/%s/metrics.jsonl", folder, run), *text;
    size_t size;
    int lines = 0, rewards = 0;
    CHECK_OK(ndp_file_read(path, &text, &size));
    for (const char *at = text; *at; at += strcspn(at, "\n") + 1, lines++)
        rewards += strncmp(strstr(at, "\"step\": ") + 8, "3", 1) == 0
                       ? memmem(at, strcspn(at, "\n"), "reward", 6) != NULL
                       : 10 * (memmem(at, strcspn(at, "\n"), "\"reward\": 0.5", 13) != NULL);
    if (lines != 3 || rewards != 20)
        fail_msg("%s: %s", run, text);
    free(text);
    free(path);
}

static void all_of_it(void **state) {
    for (int i = 0; i < SAMPLES * LENGTH; i++)
        ids[i] = (7 * i + i / LENGTH) % 258;
    for (int i = 0; i < NDP_COUNT(layouts); i++) {
        ndp_config *c = tiny_configure(*state, &layouts[i].axes, layouts[i].axes.name);
        tiny_set(c, "train.own_batches=true");
        tiny_set(c, "data.files=[]");
        for (int k = 0; k < 2 && layouts[i].sets[k]; k++)
            tiny_set(c, "%s", layouts[i].sets[k]);
        CHECK_OK(ndp_world_run(c, around, c));
        check_lines(*state, layouts[i].axes.name);
        ndp_config_destroy(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(all_of_it, tiny_make, tiny_drop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
