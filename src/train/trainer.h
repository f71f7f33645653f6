/* Inside the train room: one rank of a run. */
#ifndef NDP_TRAIN_TRAINER_H
#define NDP_TRAIN_TRAINER_H

#include "data/chat.h"
#include "data/packing.h"
#include "data/sampler.h"
#include "data/tokenizer.h"
#include "train/job.h"
#include "train/weights.h"

struct ndp_trainer {
    ndp_job job;
    const ndp_train_opts *opts; /* of a whole run, borrowed; NULL */
    ndp_transport *transport;   /* borrowed */
    ndp_comm *world;
    ndp_log log;
    ndp_model model;
    ndp_engine *engine;
    ndp_tokenizer *tokenizer;
    char *tokenizer_source;
    ndp_chat chat;
    ndp_dataset *dataset, *held; /* trained on; held out, NULL when nothing is */
    ndp_mix_part *parts;         /* of the sampler; NULL without data.mix */
    ndp_sampler sampler;
    ndp_batch_shape shape;
    ndp_micro_batch whole; /* of one micro-batch, before it is cut */
    int64_t *rows;         /* of a micro-batch: room for their numbers */
    int threads;
    int64_t updates, samples; /* made; drawn: the cursor */
    double peak_flops;        /* of this rank, measured; 0: not yet */
    /* What is held out runs forward only, on the weights of `engine`. NULL when nothing is. */
    ndp_model score_model;
    ndp_engine *score;
};

/* ndp_trainer_create: as part of a whole run, `o` (NULL: of none); with kernels that split their sums (ops/op.h), or
 * not.
 */
NDP_API ndp_status ndp_trainer_open(const ndp_config *c, ndp_world *w, const ndp_train_opts *o, bool split_sums,
                                    ndp_trainer **out);

/* data.c: the tokenizer, what is trained on and what is held out. Collective over t->world. */
NDP_API ndp_status ndp_trainer_open_data(ndp_trainer *t);
void ndp_trainer_close_data(ndp_trainer *t);
/* Lines for a person. */
void ndp_trainer_describe_data(const ndp_trainer *t, ndp_str *out);
/* Fills t->whole with a micro-batch of the data set's rows; rows[j] < 0 is one without a token to predict. */
NDP_API ndp_status ndp_trainer_load_rows(const ndp_trainer *t, const ndp_dataset *d, const int64_t *rows);

/* held_out.c: the engine for what is held out. Behind t->engine. */
NDP_API ndp_status ndp_trainer_build_score(ndp_trainer *t);

/* Peak multiply-add rate of `threads` threads, flop/s, measured with a matrix product in a few milliseconds. */
double ndp_measure_peak(int threads, ndp_dtype type);

#endif
