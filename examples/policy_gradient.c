/* Policy gradients with libndparallel: a model writes texts, each gets a reward, and the next update makes those more
 * likely whose reward is above the mean (GRPO without a reference model).
 *
 *     policy_gradient MODEL WORD UPDATES SEED [KEY=VALUE ...]
 *
 * The reward of a text is how often it has WORD. Texts are written with the weights as they are (ndp_trainer_generate),
 * so they and their rewards are the same on every layout as long as the weights are; the loss is a function of
 * log-probabilities (ndp_trainer_forward_backward_with). Both are computed on the layout of the training.
 */
#include <math.h>
#include <ndparallel/ndparallel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS = 16, LENGTH = 64, PASSES = 2 };

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        ndp_status status_ = (call);                                                                                   \
        if (status_ != NDP_OK)                                                                                         \
            return status_;                                                                                            \
    } while (0)

typedef struct job {
    ndp_config *config;
    const char *word;
    int updates, seed;
} job;

/* Rows of ids, the first of which is the token that texts begin with. */
typedef struct texts {
    int32_t ids[TEXTS * LENGTH];
    int64_t lengths[TEXTS];
    double rewards[TEXTS];
} texts;

/* ---- texts ---- */

/* On all ranks. */
static ndp_status write_texts(ndp_trainer *t, const job *j, int update, texts *out) {
    ndp_continue_opts o = NDP_CONTINUE_OPTS_INIT;
    o.seed = (int64_t)j->seed * 1000000 + update;
    for (int i = 0; i < TEXTS; i++) {
        out->ids[i * LENGTH] = 1; /* the beginning of a text, of llama tokenizers */
        out->lengths[i] = 1;
        out->rewards[i] = 0;
    }
    TRY(ndp_trainer_generate(t, &(ndp_texts){out->ids, out->lengths, NULL, TEXTS, LENGTH, true}, &o));
    for (int i = 0; i < TEXTS; i++) {
        char *text;
        TRY(ndp_trainer_text(t, out->ids + i * LENGTH, out->lengths[i], &text));
        for (const char *at = text; (at = strstr(at, j->word)) != NULL; at += strlen(j->word))
            out->rewards[i]++;
        free(text);
    }
    return NDP_OK;
}

/* ---- the loss ---- */

typedef struct policy {
    const texts *of;
    double before[TEXTS * LENGTH]; /* log-probabilities when the texts were written */
    bool first;
} policy;

/* Of each token: -min(ratio A, clip(ratio) A), a mean over the text, then over the texts. A: the reward less the mean,
 * divided by the deviation. */
static ndp_status clipped_loss(void *user, const double *logp, int64_t n, int64_t length, double *slopes,
                               double *loss) {
    policy *p = user;
    double mean = 0, square = 0;
    for (int64_t i = 0; i < n; i++)
        mean += p->of->rewards[i] / (double)n, square += p->of->rewards[i] * p->of->rewards[i] / (double)n;
    double deviation = sqrt(fmax(square - mean * mean, 0)) + 1e-6;
    if (p->first)
        memcpy(p->before, logp, (size_t)(n * length) * sizeof *logp);
    for (int64_t i = 0; i < n; i++)
        for (int64_t s = 0; s + 1 < p->of->lengths[i]; s++) {
            int64_t at = i * length + s;
            double a = (p->of->rewards[i] - mean) / deviation / (double)(n * (p->of->lengths[i] - 1));
            double ratio = exp(logp[at] - p->before[at]), kept = fmin(fmax(ratio, 0.8), 1.2);
            bool clips = kept * a < ratio * a;
            *loss -= clips ? kept * a : ratio * a;
            slopes[at] = clips ? 0 : -ratio * a;
        }
    return NDP_OK;
}

/* ---- the loop ---- */

static ndp_status update(ndp_trainer *t, const texts *x, policy *p, ndp_update_info *info) {
    ndp_update_opts o = NDP_UPDATE_OPTS_INIT;
    const ndp_batch batch = {.ids = x->ids, .lengths = x->lengths, .samples = TEXTS, .length = LENGTH, .global = true};
    o.divide = NDP_DIVIDE_NUMBER;
    for (int pass = 0; pass < PASSES; pass++) {
        p->first = pass == 0;
        TRY(ndp_trainer_begin(t, &o));
        TRY(ndp_trainer_forward_backward_with(t, &batch, 1, clipped_loss, p, NULL));
        TRY(ndp_trainer_update(t, info));
    }
    return NDP_OK;
}

static ndp_status loop(ndp_trainer *t, const job *j, bool first, texts *x, policy *p) {
    for (int u = 0; u < j->updates; u++) {
        ndp_update_info info;
        double reward = 0;
        TRY(write_texts(t, j, u, x));
        TRY(update(t, x, p, &info));
        for (int i = 0; i < TEXTS; i++)
            reward += x->rewards[i] / TEXTS;
        TRY(ndp_trainer_log(t, &(ndp_named_number){"reward", reward}, 1));
        if (first)
            printf("update %3d  reward %.4f  loss %.3g  grad_norm %.3g\n", u + 1, reward, info.loss, info.grad_norm);
    }
    return NDP_OK;
}

static ndp_status train(ndp_world *world, void *arg) {
    ndp_trainer *t;
    TRY(ndp_trainer_create(((job *)arg)->config, world, &t));
    texts *x = calloc(1, sizeof *x);
    policy *p = calloc(1, sizeof *p);
    if (p)
        p->of = x;
    ndp_status st = x && p ? loop(t, arg, ndp_world_rank(world) == 0, x, p) : NDP_ENOMEM;
    free(x);
    free(p);
    ndp_trainer_destroy(t);
    return st;
}

int main(int argc, char **argv) {
    if (argc < 5)
        return fprintf(stderr, "usage: policy_gradient MODEL WORD UPDATES SEED [KEY=VALUE ...]\n"), 2;
    job j = {.word = argv[2], .updates = atoi(argv[3]), .seed = atoi(argv[4])};
    ndp_status st = ndp_config_create(&j.config);
    st = st == NDP_OK ? ndp_config_setf(j.config, "model.path=\"%s\"", argv[1]) : st;
    st = st == NDP_OK ? ndp_config_setf(j.config, "data.sequence_length=%d", LENGTH) : st;
    st = st == NDP_OK ? ndp_config_setf(j.config, "batch.global_batch_size=%d", TEXTS) : st;
    static const char *const settings[] = {
        "train.own_batches=true",  "train.own_generate=16", "batch.micro_batch_size=4", "schedule.name=constant",
        "schedule.warmup_steps=0", "optimizer.lr=3e-4",     "optimizer.weight_decay=0"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings && st == NDP_OK; i++)
        st = ndp_config_set(j.config, settings[i]);
    for (int i = 5; i < argc && st == NDP_OK; i++)
        st = ndp_config_set(j.config, argv[i]);
    st = st == NDP_OK ? ndp_world_run(j.config, train, &j) : st;
    if (st != NDP_OK)
        fprintf(stderr, "policy_gradient: %s\n", ndp_error_message());
    ndp_config_destroy(j.config);
    return ndp_exit_code(st);
}
