/* A loop of your own: your batches, your losses, your updates, on any layout. A part of ndparallel.h, which includes
 * it; the same rules hold. All of it since 0.2.
 *
 *     ndp_config_set(c, "train.own_batches=true");
 *     ndp_trainer_create(c, world, &t);
 *     for (...) {
 *         ndp_trainer_begin(t, NULL);
 *         ndp_trainer_forward_backward(t, batches, n, NULL);
 *         ndp_trainer_update(t, &info);
 *     }
 *
 * A call of ndp_trainer_forward_backward is one schedule of batch.global_batch_size rows: `accumulation` micro-batches
 * on each data rank. Rows that a call does not fill are computed as padding, and pipelines are flushed at its end, so
 * that each call has the bubble of a step. */
#ifndef NDPARALLEL_LOOP_H
#define NDPARALLEL_LOOP_H

#include <ndparallel/ndparallel.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- batches ---- */

/* Samples, each a row of at most data.sequence_length tokens; shorter ones are padded. Arrays are [samples, length],
 * borrowed during a call. What cp, sp, tp and pp need of a batch is cut from it by the library. */
typedef struct ndp_batch {
    const int32_t *ids;       /* below the model's vocabulary */
    const int32_t *labels;    /* the id to predict after each token (shifted already); below 0: none. NULL: the next id
                                 of the same document */
    const double *weights;    /* of each label's loss, finite; NULL: 1. A label of weight 0 is none */
    const int32_t *positions; /* 0 .. data.sequence_length - 1; NULL: counted from 0 in each document */
    const int32_t *documents; /* neighbours with the same number are one document, which sees no other; below 0:
                                 padding, which ends a row. NULL: a sample is one document */
    const int64_t *lengths;   /* [samples] tokens of each, the rest is padding; NULL: `length` each */
    int64_t samples, length;
    bool global; /* every rank gives the same batch, of which the library takes each rank's part; false: a data rank
                    gives its own samples, and ranks of the same data rank the same */
} ndp_batch;
#define NDP_BATCH_INIT                                                                                                 \
    { NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, false }

/* Samples of several lengths as rows that are packed with them. */
typedef struct ndp_packed_batch {
    ndp_batch batch;        /* the rows, each sample a document of its own; owned arrays */
    int64_t *rows, *places; /* [samples]: which row has sample i, and where in it the first token is; what a call says
                               of token s of the sample is at rows[i] * length + places[i] + s */
} ndp_packed_batch;
/* Packs the samples of a batch into rows of `length` tokens, as few as first fit finds in their order or by their
 * length. Which row a sample lies in follows from the lengths alone, so ranks that pack the same batch have the same
 * rows. The arrays that the batch has are moved; positions, where it has none, and documents begin anew in each sample.
 * The caller releases *out. NDP_EINVAL: a sample has no tokens, or more than `length`. */
NDP_API ndp_status ndp_pack(const ndp_batch *samples, int64_t length, ndp_packed_batch *out);
/* Accepts NULL and {0}. */
void ndp_packed_batch_release(ndp_packed_batch *p);

/* What the layout makes of a call. The global order of samples is that of the micro-batches, in each of them of the
 * data ranks, and in each of these of its samples: sample `s` of data rank d is number
 * (s / micro * data_ranks + d) * micro + s % micro of the call. */
typedef struct ndp_loop_shape {
    int64_t length;               /* data.sequence_length */
    int64_t global, own;          /* samples of a call, at most: of all data ranks, of each */
    int micro, accumulation;      /* samples of a micro-batch; micro-batches of a call */
    int data_rank, data_ranks;    /* whose samples this rank computes */
    int64_t vocabulary, consumed; /* ids; samples of all updates so far, the cursor of checkpoints */
} ndp_loop_shape;
NDP_API ndp_status ndp_trainer_shape(const ndp_trainer *t, ndp_loop_shape *out);
/* Reads a sample of the job's own data (data.files), by its number in the run, in the order in which ndp_train draws
 * them: [data.sequence_length] each, as an ndp_batch has them; labels, positions and documents may be NULL. Numbers
 * depend on seed and data alone, so a resumed run goes on at `consumed` on any layout. NDP_EINVAL: the job has no data.
 */
NDP_API ndp_status ndp_trainer_sample(ndp_trainer *t, int64_t sample, int32_t *ids, int32_t *labels, int32_t *positions,
                                      int32_t *documents);

/* ---- updates ---- */

/* What the gradient is divided by. */
typedef enum ndp_divide {
    NDP_DIVIDE_TOKENS, /* the labels whose weight is not 0, of all ranks and calls */
    NDP_DIVIDE_SUM,    /* the sum of all weights, in fp64 and in the global order of samples; NDP_EINVAL if it is 0 */
    NDP_DIVIDE_NUMBER  /* divide_by */
} ndp_divide;
typedef struct ndp_update_opts {
    ndp_divide divide;
    double divide_by;     /* with NDP_DIVIDE_NUMBER: finite, not 0 */
    double lr;            /* NaN: that of the job's schedule */
    double max_grad_norm; /* NaN: optimizer.max_grad_norm; 0: no clipping */
    /* How many calls the update has. With 1, tokens and sums divide the loss in the call, as a step of ndp_train does;
     * with several, or 0 (not known), calls compute unscaled gradients, and the update divides, which may differ in the
     * last bits. A number divides in each call, and the last one of a known number of calls also sums over replicas
     * while it computes. */
    int calls;
} ndp_update_opts;
#define NDP_UPDATE_OPTS_INIT                                                                                           \
    { NDP_DIVIDE_TOKENS, 1, __builtin_nan(""), __builtin_nan(""), 1 }
/* Begins an update; drops the gradients of one that was begun and not made. `o` NULL: the defaults. NDP_EINVAL: the
 * trainer is not one of own batches. NDP_ENOTSUP: several calls with moe.balance, moe.z_loss or moe.bias_rate, which
 * are of one call. Collective. */
NDP_API ndp_status ndp_trainer_begin(ndp_trainer *t, const ndp_update_opts *o);

typedef struct ndp_call_info {
    double loss;    /* sum of weight x loss over all ranks, divided as the update will be, where that is known; else it
                       is the sum */
    double sum;     /* before it is divided */
    double weights; /* sum of all weights */
    int64_t tokens; /* labels whose weight is not 0 */
} ndp_call_info;
/* Computes the loss of the batches' samples and adds its gradient to the update's. The samples of all batches follow
 * one another, and fill the micro-batches in this order; n may be 0 on a data rank without samples. *info may be NULL.
 * NDP_EINVAL, on all ranks and before anything is computed: more samples than ndp_loop_shape has, a value out of range,
 * ranks whose batches should be the same and are not, no update was begun, or it has had all its calls. Collective. */
NDP_API ndp_status ndp_trainer_forward_backward(ndp_trainer *t, const ndp_batch *batches, int n, ndp_call_info *info);

/* The same with a loss of your own, which is a function of log-probabilities and is not divided again. A forward pass
 * computes those of all the call's samples; then `loss` is called, once, on the first rank of each data rank with its
 * samples, of a global batch on rank 0 with all, in the order of the batches: rows of data.sequence_length, logp of
 * each label under the weights as they are, 0 where there is none. It writes the loss, and its derivative by each logp
 * to `slopes`, which is zeroed. The step runs with the slopes in place of weights, which are not read. What it returns,
 * if not NDP_OK, ends the call on all ranks. `user` of other ranks is not used. The update must have NDP_DIVIDE_NUMBER.
 * info->loss: the sum of the losses that the functions returned. NDP_EINVAL names a slope that is not finite.
 * NDP_ENOTSUP: adapter.dropout, which a forward pass does not have. Collective. */
NDP_API ndp_status ndp_trainer_forward_backward_with(ndp_trainer *t, const ndp_batch *batches, int n,
                                                     ndp_status (*loss)(void *user, const double *logp, int64_t samples,
                                                                        int64_t length, double *slopes, double *loss),
                                                     void *user, ndp_call_info *info);

/* Rows of logits that a loss is a function of: tokens that have a label, of one micro-batch. */
typedef struct ndp_logit_rows {
    int64_t n, vocabulary;
    /* [n]: the sample that each is of, counted over the batches that this rank gave, the token in it, and its label */
    const int64_t *samples, *tokens;
    const int32_t *labels;
    const float *logits;      /* [n, vocabulary], capped where the model caps them; NULL with precision.compute: fp64 */
    const double *logits_f64; /* the same with it, else NULL */
    float *slopes;            /* [n, vocabulary], zeroed: the derivative of the row's loss by each logit; as `logits` */
    double *slopes_f64;
    double *losses; /* [n], zeroed */
} ndp_logit_rows;
/* The same with a loss of each row that is a function of its logits, in place of cross-entropy: distillation, label
 * smoothing, a z-loss. Weights, divisors and the number of calls are as with ndp_trainer_forward_backward, so the
 * function gives bare losses. The job has train.own_logits: true, which plans the memory.
 *
 * `loss` is called by this thread while the step runs, with some rows at a time, on each rank that has rows of the
 * head: the last stage of a pipeline; ranks of the context and sequence axes have some of the rows, those of the tensor
 * axis the same, with all logits. They must write the same bits: the function may not depend on the rank, or on time.
 * On a GPU the rows are copied to the host and back. What it returns, if not NDP_OK, a loss or a slope that is not
 * finite, and ranks of the tensor axis whose answers differ, are errors on all ranks, after which the update has to be
 * begun again. NDP_EINVAL: the job has no train.own_logits. Collective. */
NDP_API ndp_status ndp_trainer_forward_backward_logits(ndp_trainer *t, const ndp_batch *batches, int n,
                                                       ndp_status (*loss)(void *user, const ndp_logit_rows *rows),
                                                       void *user, ndp_call_info *info);

/* The norm of the update's gradient, divided and before clipping. After it the update takes no more calls. Collective.
 */
NDP_API ndp_status ndp_trainer_norm(ndp_trainer *t, double *norm);

typedef struct ndp_update_info {
    int64_t step; /* 1 after the first update */
    double loss;  /* of all calls, divided; of calls with a loss of their own the sum of those */
    double grad_norm, lr;
    double divided_by;
    int64_t tokens;
    int calls;
    bool applied; /* false: the loss or the gradient was not finite, so no weight and no state changed */
} ndp_update_info;
/* Changes the weights. *info may be NULL. NDP_EINVAL: no call was made, or the sum of the weights is 0. Collective. */
NDP_API ndp_status ndp_trainer_update(ndp_trainer *t, ndp_update_info *info);

/* ---- forward alone ---- */

/* Of each token: arrays laid out as the batches' ids, one batch after the other; each may be NULL. */
typedef struct ndp_token_values {
    double *logp;    /* of its label; 0 where there is none */
    double *entropy; /* of the distribution that predicts the next token, nats; 0 of padding */
    int32_t *best;   /* the id with the largest logit, the lowest of equal ones; -1 of padding */
} ndp_token_values;
/* Computes the values by forward passes with the weights as they are, on the layout of the training; any number of
 * samples. Every rank that gave a sample gets its values. They are all-reduced over the world, 8 bytes a token for each
 * array. Collective. */
NDP_API ndp_status ndp_trainer_forward(ndp_trainer *t, const ndp_batch *batches, int n, const ndp_token_values *out);

/* ---- continuing texts ---- */

/* Texts that are continued in place: rows of ids, which are samples of an ndp_batch afterwards. */
typedef struct ndp_texts {
    int32_t *ids;       /* [samples, length] */
    int64_t *lengths;   /* [samples] tokens of each, at least 1 and fewer than `length` */
    ndp_finish *finish; /* [samples] is set to why each ended; NULL: it is not asked for */
    int64_t samples, length;
    bool global; /* as of ndp_batch */
} ndp_texts;
typedef struct ndp_continue_opts {
    int max_tokens;     /* that a text gets, as far as its row has room; 0: as many as that */
    double temperature; /* 0: the most likely token, the lowest id of equal ones */
    double top_p;       /* 1: among all tokens */
    int64_t seed;
    const int32_t *ends; /* ids that end a text, which they are the last token of, besides those of the model: its
                            eos_token_id, the tokenizer's begin and end */
    int n_ends;
} ndp_continue_opts;
#define NDP_CONTINUE_OPTS_INIT                                                                                         \
    { 0, 1, 1, 0, NULL, 0 }
/* Continues texts with the weights as they are, without a file. The first rank of each data rank takes the memory for
 * that, with all weights in fp32, during the call (train.own_generate, which the plan of the job has); all ranks gather
 * the weights, 4 bytes a parameter all-reduced over the world. Every rank gets its texts. Tokens are those of
 * ndp_generate_file with an export of the weights: they follow from the weights, the seed, the text and its number,
 * which is its place in a global list, or else that of a sample of a call (ndp_loop_shape); not from the layout. With
 * an adapter, the base is read from model.path again, as it is before it is packed. The update under way is left as it
 * is. NDP_EINVAL, on all ranks and before anything is computed: train.own_generate is 0, or a value is out of range, or
 * ranks that should have the same have not. Collective. */
NDP_API ndp_status ndp_trainer_generate(ndp_trainer *t, const ndp_texts *texts, const ndp_continue_opts *o);
/* What n ids say by the job's tokenizer, special tokens left out: *text, which the caller frees. NDP_EINVAL: the job
 * has no tokenizer, or an id is beyond the vocabulary. Not collective. */
NDP_API ndp_status ndp_trainer_text(const ndp_trainer *t, const int32_t *ids, int64_t n, char **text);

/* ---- around it ---- */

typedef enum ndp_reduction { NDP_REDUCE_SUM, NDP_REDUCE_MAX } ndp_reduction;
/* Reduces n numbers in place over all ranks; `by_data`: over the data ranks, each of which counts once: the numbers of
 * the first of its ranks. All ranks get the result, sums with the same bits. Collective. */
NDP_API ndp_status ndp_trainer_reduce(ndp_trainer *t, double *values, int64_t n, ndp_reduction how, bool by_data);
/* The n numbers of each data rank, as its first rank has them: out [data_ranks, n], on all ranks. Collective. */
NDP_API ndp_status ndp_trainer_gather(ndp_trainer *t, const double *values, int64_t n, double *out);
/* Copies `bytes` bytes of a rank of the world to all. Collective. */
NDP_API ndp_status ndp_trainer_broadcast(ndp_trainer *t, void *data, int64_t bytes, int rank);
/* Returns once all ranks have called it. Collective. */
NDP_API ndp_status ndp_trainer_barrier(ndp_trainer *t);

/* Appends the newest update to metrics.jsonl of the run folder (train.output_dir), with numbers of your own under their
 * names, as `runs`, `report` and trackers of files read them. Lines of later steps, which a run before has left, are
 * cut off by the first call. At most one line an update. Called on all ranks; rank 0 writes. NDP_EINVAL: a name is one
 * of metrics.jsonl's own, or is empty. Collective. */
NDP_API ndp_status ndp_trainer_log(ndp_trainer *t, const ndp_named_number *numbers, int n);

enum { NDP_STATE_BYTES = 1 << 20 };
/* Keeps up to NDP_STATE_BYTES bytes of your own, those of rank 0, for the checkpoints that follow; bytes 0: none.
 * Collective. */
NDP_API ndp_status ndp_trainer_set_state(ndp_trainer *t, const void *data, int64_t bytes);
/* What was kept last, or was in the checkpoint that the trainer resumed from: on every rank; *bytes 0: nothing.
 * Borrowed until the next call that changes it. */
NDP_API ndp_status ndp_trainer_state(const ndp_trainer *t, const void **data, int64_t *bytes);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
