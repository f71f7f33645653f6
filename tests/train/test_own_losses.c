/* Losses of the user's own, on rows that no file has: weights, functions of log-probabilities or of logits, and what a
 * forward pass says agree with each other, and on all layouts; calls out of order and batches that cannot be are
 * refused on all ranks; a run without data is saved and resumed. */
#include "base/rng.h"
#include "train/tiny_run.h"
#include "train/trainer.h"

#include <math.h>

typedef struct layout_case {
    tiny_layout axes;
    const char *sets[4];
} layout_case;

/* The first is what the others are compared with. */
static const layout_case layouts[] = {
    {{"one", 1, 1, 1, 1}, {NULL}},
    {{"shard", 1, 2, 1, 1}, {"batch.micro_batch_size=2"}},
    {{"replicas", 2, 1, 1, 1}, {NULL}},
    {{"context", 1, 1, 2, 1}, {"batch.micro_batch_size=2"}},
    {{"contiguous", 1, 1, 2, 1}, {"parallelism.cp_method=all_gather", "parallelism.cp_zigzag=false"}},
    {{"tensor", 1, 1, 1, 2}, {"train.recompute=block"}},
    {{"sequence", 1, 1, 1, 1}, {"parallelism.sp_size=2"}},
    {{"stages", 1, 2, 1, 1}, {"parallelism.pp_size=2"}},
    {{"zero-bubble", 1, 1, 1, 2}, {"parallelism.pp_size=2", "pipeline.schedule=zero_bubble"}},
    {{"shm", 1, 2, 1, 1}, {"train.collectives=staged"}},
    {{"product", 2, 2, 2, 1}, {NULL}},
    {{"most", 2, 1, 1, 2}, {"parallelism.sp_size=2", "parallelism.pp_size=2"}},
};

enum { SAMPLES = 8, LENGTH = 32, TOKENS = SAMPLES * LENGTH, VOCAB = 258 };

/* ---- rows ---- */

/* Packed documents, samples of several lengths, weights of both signs and 0, labels that are left out. */
typedef struct rows {
    int32_t ids[TOKENS], labels[TOKENS], documents[TOKENS];
    double weights[TOKENS];
    int64_t lengths[SAMPLES];
} rows;

static double number(uint64_t seed, int i) { return (double)ndp_rng_below(seed, 3, (uint64_t)i, 2001) / 1000 - 1; }

static rows *make_rows(uint64_t seed) {
    rows *r = calloc(1, sizeof *r);
    for (int s = 0; s < SAMPLES; s++) {
        r->lengths[s] = s == 2 ? 0 : s == 5 ? LENGTH : 3 + (int64_t)ndp_rng_below(seed, 5, (uint64_t)s, LENGTH - 2);
        for (int t = 0, document = 0; t < LENGTH; t++) {
            int i = s * LENGTH + t;
            document += t > 0 && ndp_rng_below(seed, 4, (uint64_t)i, 9) == 0;
            r->documents[i] = document;
            r->ids[i] = (int32_t)ndp_rng_below(seed, 1, (uint64_t)i, VOCAB);
            r->labels[i] = ndp_rng_below(seed, 2, (uint64_t)i, 5) == 0
                               ? -100
                               : (int32_t)ndp_rng_below(seed, 7, (uint64_t)i, VOCAB);
            r->weights[i] = i % 7 == 0 ? 0 : number(seed, i);
        }
    }
    return r;
}

static ndp_batch batch_of(const rows *r, int first, int n) {
    int at = first * LENGTH;
    return (ndp_batch){.ids = r->ids + at,
                       .labels = r->labels + at,
                       .weights = r->weights + at,
                       .documents = r->documents + at,
                       .lengths = r->lengths + first,
                       .samples = n,
                       .length = LENGTH};
}

/* The batches of this rank: two global ones, or its own samples, one by one. *n: how many. */
static void give(const rows *r, const ndp_loop_shape *shape, bool global, ndp_batch *out, int *n) {
    *n = 0;
    if (global) {
        out[0] = batch_of(r, 0, 3), out[1] = batch_of(r, 3, SAMPLES - 3);
        out[0].global = out[1].global = true;
        *n = 2;
        return;
    }
    for (int i = 0; i < SAMPLES; i++)
        if (i / shape->micro % shape->data_ranks == shape->data_rank)
            out[(*n)++] = batch_of(r, i, 1);
}

/* ---- a run ---- */

typedef enum loss_kind { WEIGHTS, FUNCTION, SQUARES, LOGITS, TEACHER, KINDS } loss_kind;

typedef struct outcome {
    double loss, norm, sum;
    double *weights;
    int64_t n;
    double logp[TOKENS], entropy[TOKENS];
    int32_t best[TOKENS];
} outcome;

typedef struct own_run {
    const ndp_config *config;
    const rows *rows;
    bool global;
    loss_kind kind;
    outcome *out;
    char message[512]; /* of rank 0, where a call fails */
} own_run;

typedef struct own_function {
    const own_run *run;
    const ndp_loop_shape *shape;
} own_function;

/* FUNCTION: the weighted sum, as weights have it. SQUARES: half the sum of squares. Rows of own samples are in their
 * order. */
static ndp_status own_loss(void *user, const double *logp, int64_t samples, int64_t length, double *slopes,
                           double *loss) {
    const own_function *f = user;
    assert_int_equal(length, LENGTH);
    *loss = 0;
    for (int64_t k = 0, i = 0; i < SAMPLES; i++) {
        bool mine = f->run->global || i / f->shape->micro % f->shape->data_ranks == f->shape->data_rank;
        for (int t = 0; t < LENGTH && mine; t++) {
            double p = logp[k * LENGTH + t], w = p != 0 ? f->run->rows->weights[i * LENGTH + t] : 0;
            slopes[k * LENGTH + t] = f->run->kind == SQUARES ? p : -w;
            *loss += f->run->kind == SQUARES ? p * p / 2 : -w * p;
        }
        k += mine;
        assert_true(k <= samples);
    }
    return NDP_OK;
}

/* The global number of the k-th sample of this rank. */
static int sample_at(const own_function *f, int64_t k) {
    for (int i = 0; i < SAMPLES; i++)
        if ((f->run->global || i / f->shape->micro % f->shape->data_ranks == f->shape->data_rank) && k-- == 0)
            return i;
    fail_msg("this rank has no sample that many");
    return 0;
}

/* One row: LOGITS: cross-entropy. TEACHER: that against a distribution which leaves 0.3 to an id of the token's own,
 * and a square of the normaliser. */
static double row_loss(loss_kind kind, const double *x, int label, int place, double *slopes) {
    double max = x[0], sum = 0, z, left = kind == TEACHER ? 0.3 : 0, square = kind == TEACHER ? 1e-2 : 0;
    int other = (place * 31 + 7) % VOCAB;
    for (int j = 1; j < VOCAB; j++)
        max = fmax(max, x[j]);
    for (int j = 0; j < VOCAB; j++)
        sum += exp(x[j] - max);
    z = max + log(sum);
    for (int j = 0; j < VOCAB; j++)
        slopes[j] = exp(x[j] - z) * (1 + 2 * square * z) - (j == label ? 1 - left : 0) - (j == other ? left : 0);
    return z - (1 - left) * x[label] - left * x[other] + square * z * z;
}

static ndp_status logits_loss(void *user, const ndp_logit_rows *r) {
    const own_function *f = user;
    assert_int_equal(r->vocabulary, VOCAB);
    assert_true((r->logits == NULL) == (r->slopes == NULL) && (r->logits == NULL) != (r->logits_f64 == NULL));
    for (int64_t i = 0; i < r->n; i++) {
        double x[VOCAB], slopes[VOCAB];
        int place = sample_at(f, r->samples[i]) * LENGTH + (int)r->tokens[i];
        assert_int_equal(r->labels[i], f->run->rows->labels[place]);
        assert_true(f->run->rows->weights[place] != 0);
        for (int j = 0; j < VOCAB; j++)
            x[j] = r->logits ? (double)r->logits[i * VOCAB + j] : r->logits_f64[i * VOCAB + j];
        r->losses[i] = row_loss(f->run->kind, x, r->labels[i], place, slopes);
        for (int j = 0; j < VOCAB; j++)
            if (r->slopes)
                r->slopes[i * VOCAB + j] = (float)slopes[j];
            else
                r->slopes_f64[i * VOCAB + j] = slopes[j];
    }
    return NDP_OK;
}

static ndp_status read_weights(ndp_trainer *t, outcome *out) {
    int64_t n, at = 0;
    for (int i = 0; ndp_trainer_tensor(t, i, &n); i++)
        out->n += n;
    out->weights = calloc((size_t)out->n, sizeof(double));
    for (int i = 0; ndp_trainer_tensor(t, i, &n); at += n, i++)
        NDP_TRY(ndp_trainer_read(t, NDP_WEIGHT, i, out->weights + at));
    return NDP_OK;
}

/* Values of own samples go where the global batch has them. */
static ndp_status forward(ndp_trainer *t, const own_run *r, const ndp_loop_shape *shape, outcome *out) {
    ndp_batch batches[SAMPLES];
    int n;
    outcome *own = calloc(1, sizeof *own);
    give(r->rows, shape, r->global, batches, &n);
    ndp_status st = ndp_trainer_forward(t, batches, n, &(ndp_token_values){own->logp, own->entropy, own->best});
    for (int k = 0, i = 0; i < SAMPLES; i++) {
        bool mine = r->global || i / shape->micro % shape->data_ranks == shape->data_rank;
        for (int s = 0; s < LENGTH && mine; s++) {
            out->logp[i * LENGTH + s] = own->logp[k * LENGTH + s];
            out->entropy[i * LENGTH + s] = own->entropy[k * LENGTH + s];
            out->best[i * LENGTH + s] = own->best[k * LENGTH + s];
        }
        k += mine;
    }
    free(own);
    return st;
}

static ndp_status one_update(ndp_trainer *t, own_run *r, outcome *out) {
    ndp_update_opts o = NDP_UPDATE_OPTS_INIT;
    ndp_batch batches[SAMPLES];
    ndp_loop_shape shape;
    ndp_update_info info;
    ndp_call_info call;
    int n;
    NDP_TRY(ndp_trainer_shape(t, &shape));
    NDP_TRY(forward(t, r, &shape, out));
    give(r->rows, &shape, r->global, batches, &n);
    o.divide = NDP_DIVIDE_NUMBER;
    o.lr = 1e-3, o.max_grad_norm = 0.5;
    NDP_TRY(ndp_trainer_begin(t, &o));
    if (r->kind == WEIGHTS)
        NDP_TRY(ndp_trainer_forward_backward(t, batches, n, &call));
    else if (r->kind >= LOGITS)
        NDP_TRY(ndp_trainer_forward_backward_logits(t, batches, n, logits_loss, &(own_function){r, &shape}, &call));
    else
        NDP_TRY(ndp_trainer_forward_backward_with(t, batches, n, own_loss, &(own_function){r, &shape}, &call));
    NDP_TRY(ndp_trainer_norm(t, &out->norm));
    NDP_TRY(ndp_trainer_update(t, &info));
    out->loss = info.loss, out->sum = call.sum;
    assert_true(info.applied && info.lr == 1e-3 && info.grad_norm == out->norm && info.step == 1);
    return read_weights(t, out);
}

static ndp_status own_rank(ndp_world *w, void *arg) {
    own_run *r = arg;
    ndp_trainer *t;
    outcome *own = calloc(1, sizeof *own);
    NDP_TRY(ndp_trainer_create(r->config, w, &t));
    ndp_status st = one_update(t, r, own);
    ndp_trainer_destroy(t);
    if (st == NDP_OK && ndp_world_rank(w) == 0)
        *r->out = *own;
    else
        free(own->weights);
    free(own);
    return st;
}

static ndp_config *configure(const char *folder, const layout_case *l, bool ref, bool logits) {
    ndp_config *c = tiny_configure(folder, &l->axes, l->axes.name);
    tiny_set(c, "train.own_batches=true");
    tiny_set(c, "data.files=[]");
    tiny_set(c, "train.own_logits=%s", logits ? "true" : "false");
    if (ref) {
        tiny_set(c, "train.device=ref");
        tiny_set(c, "precision.compute=fp64");
    }
    for (int i = 0; i < NDP_COUNT(l->sets) && l->sets[i]; i++)
        tiny_set(c, "%s", l->sets[i]);
    return c;
}

static outcome *run(const char *folder, const layout_case *l, const rows *r, bool ref, bool global, loss_kind kind) {
    outcome *out = calloc(1, sizeof *out);
    ndp_config *c = configure(folder, l, ref, kind >= LOGITS);
    CHECK_OK(
        ndp_world_run(c, own_rank, &(own_run){.config = c, .rows = r, .global = global, .kind = kind, .out = out}));
    ndp_config_destroy(c);
    return out;
}

static void release(outcome *o) {
    free(o->weights);
    free(o);
}

/* ---- they agree ---- */

static double far(const outcome *a, const outcome *b) {
    double off = 0, all = 0;
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++)
        off += pow(a->weights[i] - b->weights[i], 2), all += b->weights[i] * b->weights[i];
    return sqrt(off / all);
}

/* The loss is that of the forward pass; entropies and best ids are those of distributions. */
static void check_forward(const char *name, const rows *r, const outcome *o, double near) {
    double sum = 0, size = 0;
    for (int s = 0; s < SAMPLES; s++)
        for (int t = 0; t < LENGTH; t++) {
            int i = s * LENGTH + t;
            bool real = t < r->lengths[s], label = real && r->labels[i] >= 0;
            sum -= label ? r->weights[i] * o->logp[i] : 0, size += fabs(r->weights[i] * o->logp[i]);
            if (label != (o->logp[i] < 0) || real != (o->entropy[i] > 0) || o->entropy[i] > log(VOCAB) ||
                real != (o->best[i] >= 0) || o->best[i] >= VOCAB)
                fail_msg("%s, sample %d, token %d: logp %g, entropy %g, best %d", name, s, t, o->logp[i], o->entropy[i],
                         o->best[i]);
        }
    if (!(fabs(sum - o->sum) <= near * size))
        fail_msg("%s: the loss is %.17g, by the forward pass %.17g", name, o->sum, sum);
}

static void check_same(const char *name, const outcome *a, const outcome *b, double near) {
    if (!(fabs(a->loss - b->loss) <= near * fabs(b->loss)) || !(fabs(a->norm / b->norm - 1) <= near) ||
        !(far(a, b) <= near))
        fail_msg("%s: loss %.17g and %.17g, norm %.17g and %.17g, weights off by %g", name, a->loss, b->loss, a->norm,
                 b->norm, far(a, b));
    for (int i = 0; i < TOKENS; i++)
        if (b->logp[i] != 0 && !(fabs(a->logp[i] - b->logp[i]) <= near * 10))
            fail_msg("%s: logp of token %d is %.17g and %.17g", name, i, a->logp[i], b->logp[i]);
}

/* fp64: 1e-11; the cpu: fp32. Rank 0 has all samples of global batches only. */
static void losses_agree_on_layouts(void **state) {
    rows *r = make_rows(11);
    for (int k = 0; k < 2; k++) {
        outcome *first[KINDS];
        for (int kind = 0; kind < KINDS; kind++)
            first[kind] = run(*state, &layouts[0], r, k == 0, true, (loss_kind)kind);
        check_forward("one", r, first[WEIGHTS], k == 0 ? 1e-13 : 1e-5);
        check_same("one, function", first[FUNCTION], first[WEIGHTS], k == 0 ? 1e-12 : 1e-5);
        assert_true(far(first[FUNCTION], first[WEIGHTS]) == 0 && far(first[SQUARES], first[WEIGHTS]) > 1e-5);
        check_same("one, logits", first[LOGITS], first[WEIGHTS], k == 0 ? 1e-12 : 1e-5);
        assert_true(far(first[TEACHER], first[WEIGHTS]) > 1e-5);
        for (int i = 1; i < NDP_COUNT(layouts); i++) {
            if (left_out())
                continue;
            for (int kind = 0; kind < KINDS; kind++) {
                if (kind == LOGITS)
                    continue;
                outcome *other = run(*state, &layouts[i], r, k == 0, true, (loss_kind)kind);
                check_same(layouts[i].axes.name, other, first[kind], k == 0 ? 1e-11 : 2e-5);
                if (kind == WEIGHTS || kind == FUNCTION)
                    check_forward(layouts[i].axes.name, r, other, k == 0 ? 1e-12 : 1e-5);
                outcome *own = run(*state, &layouts[i], r, k == 0, false, (loss_kind)kind);
                if (fabs(own->loss - other->loss) > (kind == WEIGHTS ? 0 : 1e-14 * fabs(other->loss)) ||
                    far(own, other) != 0)
                    fail_msg("%s: own samples have other bits than the global batch, loss %.17g and %.17g",
                             layouts[i].axes.name, own->loss, other->loss);
                release(own);
                release(other);
            }
        }
        for (int kind = 0; kind < KINDS; kind++)
            release(first[kind]);
    }
    free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(losses_agree_on_layouts, tiny_make, tiny_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
