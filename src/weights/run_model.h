/* The model of a checkpoint: its tensors, with config.json and tokenizer from where the run takes them. */
#ifndef NDP_WEIGHTS_RUN_MODEL_H
#define NDP_WEIGHTS_RUN_MODEL_H

#include "checkpoint/checkpoint.h"
#include "job/job_data.h"
#include "weights/weights.h"

typedef struct ndp_run_model {
    ndp_config *config; /* RUN/job.yaml */
    ndp_job job;        /* without a layout */
    ndp_job_data data;  /* only the tokenizer */
    ndp_checkpoint *checkpoint;
    int64_t step;
    ndp_dtype type; /* of the weights in an export */
} ndp_run_model;

/* Opens the checkpoint of `step` in RUN/checkpoints (0: the newest one that is whole) after every byte of it was
 * checked with `threads` threads (0: all cores); changes nothing on disk. A damaged checkpoint that is passed over and
 * one without hashes are warned of. NDP_EINVAL: there is no such checkpoint, it is damaged, or config.json or the
 * tokenizer is gone or does not belong to it; the message names what. `own`: architectures beside those of the library;
 * NULL: none. */
NDP_API ndp_status ndp_run_model_open(const char *run, int64_t step, int threads, const ndp_own_list *own,
                                      ndp_run_model **out);
/* Accepts NULL. */
void ndp_run_model_close(ndp_run_model *m);

/* The chat template that the run was trained with. The caller releases `out`. NDP_EINVAL: data.chat_template names one
 * that is gone, or another one than when the checkpoint was written; else as of ndp_chat_init. */
NDP_API ndp_status ndp_run_model_chat(const ndp_run_model *m, ndp_chat *out);

/* Of an adapter: warns if the weights of the model folder are not those that it was trained beside; reads all of them.
 * `run`: its name in the warning. NDP_EIO, NDP_EFORMAT. */
NDP_API ndp_status ndp_run_model_check_base(const ndp_run_model *m, const char *run);
/* The weights; borrowed. */
ndp_weights *ndp_run_model_weights(const ndp_run_model *m);
/* Where the weights of job `j` come from, with what the checkpoint has changed of them; m NULL: nothing. Borrows both.
 */
ndp_weight_sources ndp_run_model_sources(const ndp_run_model *m, const ndp_job *j);

#endif
