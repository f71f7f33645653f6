/* Inside the train room: one rank of a run. */
#ifndef NDP_TRAIN_TRAINER_H
#define NDP_TRAIN_TRAINER_H

#include "data/packing.h"
#include "data/sampler.h"
#include "data/tokenizer.h"
#include "train/job.h"
#include "train/weights.h"

struct ndp_trainer {
    ndp_job job;
    ndp_transport *transport; /* borrowed */
    ndp_comm *world;
    ndp_log log;
    ndp_model model;
    ndp_engine *engine;
    ndp_tokenizer *tokenizer;
    char *tokenizer_source;
    ndp_dataset *dataset;
    ndp_sampler sampler;
    ndp_batch_shape shape;
    ndp_micro_batch whole; /* of one micro-batch, before it is cut */
    int threads;
    int64_t updates, samples; /* made; drawn: the cursor */
    double peak_flops;        /* of this rank, measured; 0: not yet */
};

/* Peak multiply-add rate of `threads` threads, flop/s, measured with a matrix product in a few milliseconds. */
double ndp_measure_peak(int threads, ndp_dtype type);

#endif
