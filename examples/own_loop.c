/* A training loop of your own: the job's samples, one by one, in calls of your own, on any layout.
 *
 *     own_loop JOB.yaml CALLS [KEY=VALUE ...]
 *
 * With one call an update, its losses and its model are those of `ndparallel train JOB.yaml`, bit for bit. With more,
 * batch.global_batch_size is what one call has. Alone, the program runs its ranks as threads; started by `ndparallel
 * launch -n N -- own_loop ...`, mpirun or srun, it is one of N. Losses go to metrics.jsonl of train.output_dir.
 */
#include <ndparallel/ndparallel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        ndp_status status_ = (call);                                                                                   \
        if (status_ != NDP_OK)                                                                                         \
            return status_;                                                                                            \
    } while (0)

typedef struct job {
    ndp_config *config;
    int calls, steps;
} job;

/* The samples that this data rank computes in a call, in rows of shape->length. */
typedef struct samples {
    int32_t *ids, *labels, *positions, *documents;
    int64_t tokens; /* that all data ranks predict in the call */
} samples;

/* Every rank reads all samples of a call, the first of which is that number of the run, and keeps its own. */
static ndp_status read_samples(ndp_trainer *t, const ndp_loop_shape *shape, int64_t first, samples *s) {
    int64_t own = 0, n = shape->length;
    s->tokens = 0;
    for (int64_t i = 0; i < shape->global; i++) {
        int64_t at = own * n;
        TRY(ndp_trainer_sample(t, first + i, s->ids + at, s->labels + at, s->positions + at, s->documents + at));
        for (int64_t k = at; k < at + n; k++)
            s->tokens += s->labels[k] >= 0;
        own += i / shape->micro % shape->data_ranks == shape->data_rank; /* the global order of samples */
    }
    return NDP_OK;
}

static ndp_status update(ndp_trainer *t, const job *j, samples *calls, ndp_update_info *info) {
    ndp_update_opts o = NDP_UPDATE_OPTS_INIT;
    ndp_loop_shape shape;
    TRY(ndp_trainer_shape(t, &shape));
    for (int k = 0; k < j->calls; k++)
        TRY(read_samples(t, &shape, shape.consumed + k * shape.global, &calls[k]));
    if (j->calls > 1) { /* what all calls together have: known before the first one, so each divides by it */
        o.divide = NDP_DIVIDE_NUMBER, o.divide_by = 0, o.calls = j->calls;
        for (int k = 0; k < j->calls; k++)
            o.divide_by += (double)calls[k].tokens;
    }
    TRY(ndp_trainer_begin(t, &o));
    for (int k = 0; k < j->calls; k++) {
        const samples *s = &calls[k];
        ndp_batch batch = {.ids = s->ids,
                           .labels = s->labels,
                           .positions = s->positions,
                           .documents = s->documents,
                           .samples = shape.own,
                           .length = shape.length};
        TRY(ndp_trainer_forward_backward(t, &batch, 1, NULL));
    }
    return ndp_trainer_update(t, info);
}

static ndp_status loop(ndp_trainer *t, const job *j, samples *calls) {
    for (int step = 0; step < j->steps; step++) {
        ndp_update_info info;
        TRY(update(t, j, calls, &info));
        if (!info.applied)
            return fprintf(stderr, "own_loop: the loss of update %d is not finite\n", step + 1), NDP_EINVAL;
        TRY(ndp_trainer_log(t, &(ndp_named_number){"own/divided_by", info.divided_by}, 1));
    }
    return ndp_trainer_export(t, NULL);
}

/* What each rank does. */
static ndp_status train(ndp_world *world, void *arg) {
    const job *j = arg;
    ndp_trainer *t;
    ndp_loop_shape shape;
    TRY(ndp_trainer_create(j->config, world, &t));
    TRY(ndp_trainer_shape(t, &shape));
    size_t row = (size_t)shape.length, n = row * (size_t)(shape.own + 1); /* one more: samples of others */
    samples *calls = calloc((size_t)j->calls, sizeof *calls);
    int32_t *room = calloc((size_t)j->calls * 4 * n, sizeof *room);
    for (int k = 0; calls && room && k < j->calls; k++, room += 4 * n)
        calls[k] = (samples){room, room + n, room + 2 * n, room + 3 * n, 0};
    ndp_status st = calls && room ? loop(t, j, calls) : NDP_ENOMEM;
    if (calls)
        free(calls[0].ids);
    free(calls);
    ndp_trainer_destroy(t);
    return st;
}

int main(int argc, char **argv) {
    job j = {.calls = argc > 2 ? atoi(argv[2]) : 0};
    char *steps = NULL;
    if (j.calls < 1)
        return fprintf(stderr, "usage: own_loop JOB.yaml CALLS [KEY=VALUE ...]\n"), 2;
    ndp_status st = ndp_config_create(&j.config);
    st = st == NDP_OK ? ndp_config_read(j.config, argv[1]) : st;
    for (int i = 3; i < argc && st == NDP_OK; i++)
        st = ndp_config_set(j.config, argv[i]);
    st = st == NDP_OK ? ndp_config_set(j.config, "train.own_batches=true") : st;
    st = st == NDP_OK ? ndp_config_get(j.config, "train.steps", &steps) : st;
    j.steps = steps ? atoi(steps) : 0;
    free(steps);
    st = st == NDP_OK ? ndp_world_run(j.config, train, &j) : st;
    if (st != NDP_OK && *ndp_error_message())
        fprintf(stderr, "own_loop: %s\n", ndp_error_message());
    ndp_config_destroy(j.config);
    return ndp_exit_code(st);
}
