/* The step of an opened loop that gives the job's samples (ndparallel/loop.h), beside ndp_trainer_step, of the same
 * job: one of each in turn, in one process. Prints the median of the ratios, by the processor's time of all threads,
 * which a busy machine lengthens little, and by the wall's. One rank has all cores by `train.threads`.
 *
 * Usage: bench_own_loop [pairs] [KEY=VALUE ...] */
#include "clock.h"
#include "result.h"

#include <ndparallel/ndparallel.h>
#include <string.h>
#include <time.h>

enum { MOST = 99, GLOBAL = 4, LENGTH = 256 };

static const char model[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 4096, \"hidden_size\": "
    "512, "
    "\"num_hidden_layers\": 6, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"intermediate_size\": 1408, "
    "\"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": true, \"bos_token_id\": 256, "
    "\"eos_token_id\": 257}";

typedef struct spent {
    double processor, wall;
} spent;

typedef struct measured {
    ndp_config *run, *own;
    int pairs;
} measured;

static spent now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (spent){(double)t.tv_sec + 1e-9 * (double)t.tv_nsec, ndp_now()};
}

static spent since(spent begun) {
    spent end = now();
    return (spent){end.processor - begun.processor, end.wall - begun.wall};
}

static ndp_status step_of_run(ndp_trainer *t, double *loss, spent *s) {
    ndp_metrics m;
    spent begun = now();
    ndp_status st = ndp_trainer_step(t, &m);
    *s = since(begun);
    *loss = m.loss;
    return st;
}

/* With all that a loop does: samples are read, an update is begun, called and made. */
static ndp_status step_of_own(ndp_trainer *t, double *loss, spent *s) {
    static int32_t ids[GLOBAL * LENGTH], labels[GLOBAL * LENGTH], positions[GLOBAL * LENGTH],
        documents[GLOBAL * LENGTH];
    const ndp_batch batch = {.ids = ids,
                             .labels = labels,
                             .positions = positions,
                             .documents = documents,
                             .samples = GLOBAL,
                             .length = LENGTH};
    ndp_update_info info;
    spent begun = now();
    int64_t first = ndp_trainer_updates(t) * GLOBAL;
    for (int i = 0; i < GLOBAL; i++)
        NDP_TRY(ndp_trainer_sample(t, first + i, ids + i * LENGTH, labels + i * LENGTH, positions + i * LENGTH,
                                   documents + i * LENGTH));
    NDP_TRY(ndp_trainer_begin(t, NULL));
    NDP_TRY(ndp_trainer_forward_backward(t, &batch, 1, NULL));
    NDP_TRY(ndp_trainer_update(t, &info));
    *s = since(begun);
    *loss = info.loss;
    return NDP_OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* The first pair warms up. */
static ndp_status measure(ndp_world *w, void *arg) {
    const measured *m = arg;
    ndp_trainer *run, *own;
    double processor[MOST], wall[MOST], seconds[MOST];
    NDP_TRY(ndp_trainer_create(m->run, w, &run));
    NDP_TRY(ndp_trainer_create(m->own, w, &own));
    for (int i = -1; i < m->pairs; i++) {
        double a, b;
        spent of_run, of_own;
        NDP_TRY(step_of_run(run, &a, &of_run));
        NDP_TRY(step_of_own(own, &b, &of_own));
        NDP_CHECK(a == b, "pair %d has losses %.17g and %.17g", i, a, b);
        if (i >= 0)
            processor[i] = of_own.processor / of_run.processor, wall[i] = of_own.wall / of_run.wall,
            seconds[i] = of_own.wall;
    }
    ndp_trainer_destroy(own);
    ndp_trainer_destroy(run);
    double ratio = median(wall, m->pairs), time = median(seconds, m->pairs);
    printf("own loop: %.1f ms a step; of ndp_trainer_step's: %.4f by the processor's time, %.4f by the wall's "
           "(medians of %d pairs)\n",
           1e3 * time, median(processor, m->pairs), ratio, m->pairs);
    bench_result("own loop, job's samples", 1e3 * time, "ms", ratio);
    return NDP_OK;
}

static ndp_status configure(const char *path, bool own, int n, char **assignments, ndp_config **out) {
    NDP_TRY(ndp_config_create(out));
    NDP_TRY(ndp_config_setf(*out, "model.config=%s", path));
    NDP_TRY(ndp_config_setf(*out, "data.sequence_length=%d", LENGTH));
    NDP_TRY(ndp_config_setf(*out, "batch.global_batch_size=%d", GLOBAL));
    static const char *const sets[] = {"data.files=[README.md]", "data.tokenizer=bytes", "train.force_memory=true",
                                       "train.steps=1000",       "checkpoint.every=0",   "train.transport=self"};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        NDP_TRY(ndp_config_set(*out, sets[i]));
    for (int i = 0; i < n; i++)
        NDP_TRY(ndp_config_set(*out, assignments[i]));
    return ndp_config_set(*out, own ? "train.own_batches=true" : "train.own_batches=false");
}

int main(int argc, char **argv) {
    measured m = {.pairs = argc > 1 ? atoi(argv[1]) : 9};
    char path[] = "/tmp/bench-model-XXXXXX";
    int file, given = argc > 2 ? argc - 2 : 0;
    bench_begin(argv);
    if (m.pairs < 1 || m.pairs > MOST)
        return fprintf(stderr, "pairs: 1 to %d\n", MOST), 2;
    file = mkstemp(path);
    if (file < 0 || write(file, model, strlen(model)) != (ssize_t)strlen(model))
        return perror(path), 1;
    close(file);
    ndp_status st = configure(path, false, given, argv + 2, &m.run);
    st = st == NDP_OK ? configure(path, true, given, argv + 2, &m.own) : st;
    st = st == NDP_OK ? ndp_world_run(m.run, measure, &m) : st;
    if (st != NDP_OK)
        fprintf(stderr, "bench_own_loop: %s\n", ndp_error_message());
    ndp_config_destroy(m.own);
    ndp_config_destroy(m.run);
    unlink(path);
    return st != NDP_OK;
}
