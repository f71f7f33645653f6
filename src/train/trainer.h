/* Inside the train room: one rank of a run. */
#ifndef NDP_TRAIN_TRAINER_H
#define NDP_TRAIN_TRAINER_H

#include "checkpoint/lock.h"
#include "device/peak.h"
#include "job/job_data.h"
#include "job/weights.h"

struct ndp_trainer {
    ndp_job job;
    const ndp_train_opts *opts; /* of a whole run, borrowed; else NULL */
    const ndp_lock *lock;       /* of a whole run, held by rank 0, borrowed; else NULL */
    bool forward_only;          /* only evaluates: `engine` is NULL and `score` has its own weights */
    ndp_transport *transport;   /* borrowed */
    ndp_exec exec;              /* of both engines */
    ndp_comm *world;
    ndp_log log;
    ndp_model model;
    ndp_engine *engine;
    ndp_job_data data;
    ndp_batch_shape shape;
    int32_t *arrays;          /* of a micro-batch before the axes cut it: tokens, labels, positions, starts */
    ndp_micro_batch whole;    /* borrows them */
    int64_t *rows;            /* row numbers of a micro-batch */
    int64_t planned;          /* bytes of this rank's programs */
    int64_t updates, samples; /* updates submitted; samples drawn, which is the data cursor */
    double loading;           /* when the loading of the newest batch began */
    ndp_metrics newest;       /* of the newest step whose result was taken, saved with it; step 0: none */
    bool apart;               /* this rank failed inside a step: the ranks can do nothing together any more */
    struct {
        int n;
        double start[NDP_STEPS_PENDING]; /* of the oldest first */
        double last;                     /* when the newest result was taken */
    } pending;                           /* steps whose results are not taken */
    struct json_object *accepted;        /* rank 0: changes that resumed runs accepted (identity.h); NULL: none */
    ndp_save_cost saved;                 /* of the last save */
    struct {
        ndp_peak *own;       /* of this rank's threads; NULL unless in a whole run, which reports mfu */
        double share;        /* the part of it that this rank has cores for */
        double flops, first; /* of all ranks: after the last step (0: not measured), and at the start */
        int threads, cores;  /* of all ranks */
    } peak;
    /* Evaluates held-out rows, forward only, with the weights of `engine`. NULL if the job holds nothing out. */
    ndp_model score_model;
    ndp_engine *score;
    struct ndp_run_model *weights_of; /* has its weights (run_model.h); NULL: `engine`, or the folder of model.path */
};

/* The first segment of tensor i, as files hold tensors: several segments may be parts of one. *at: its buffer. NULL:
 * there is no such tensor, and *at is the number of tensors. */
const ndp_segment *ndp_tensor_segment(const ndp_model *m, int i, int *at);

typedef struct ndp_trainer_opts {
    const ndp_train_opts *run; /* of the whole run that it is part of; NULL: none. Borrowed */
    bool forward_only;         /* only evaluates: opens only the held-out rows, in the memory of a forward pass */
    const ndp_device *device;  /* NULL: that of the configuration; tests give others. Borrowed */
    int split_place;           /* of sums (device/device.h); 0: fast ones */
    const char *weights_of;    /* forward_only: a run folder, whose checkpoint of `step` has the weights, hash-checked;
                                * NULL: those of model.path */
    int64_t step;              /* 0: the newest whole one */
} ndp_trainer_opts;
/* ndp_trainer_create with more options. */
NDP_API ndp_status ndp_trainer_open(const ndp_config *c, ndp_world *w, const ndp_trainer_opts *o, ndp_trainer **out);

/* Appends a line that names the kernels of this rank. Other kernels may give other bits. */
void ndp_trainer_describe_kernels(const ndp_trainer *t, ndp_str *out);

/* ndp_trainer_step in parts: loads the next batch, which one rank may fail to do and which changes nothing else;
 * submits its step; waits for the oldest step and takes its result. At most NDP_STEPS_PENDING steps are pending;
 * callers that read or save the trainer take all results first. Collective over t->world but for the loading. */
NDP_API ndp_status ndp_trainer_load_next(ndp_trainer *t);
NDP_API ndp_status ndp_trainer_submit_loaded(ndp_trainer *t);
NDP_API ndp_status ndp_trainer_result(ndp_trainer *t, ndp_metrics *out);
/* The first two of them. */
NDP_API ndp_status ndp_trainer_submit(ndp_trainer *t);
/* After a step that was not finite, and so was not applied: takes the results of the steps submitted after it, and
 * counts back to `step`, the one before it. *whole: the weights are those after `step`; false if a later step was
 * applied to them. Collective. */
NDP_API ndp_status ndp_trainer_count_back(ndp_trainer *t, int64_t step, bool *whole);

/* The learning rate of an update, counted from 0, in a run of `steps` updates with configuration `c`. */
double ndp_trainer_lr(const ndp_config *c, int steps, int64_t update);
/* The row numbers of micro-batch m that this rank reads in the next update; `rows` has room for t->shape.micro. */
void ndp_trainer_draw_rows(const ndp_trainer *t, int m, int64_t *rows);

/* NDP_EINVAL if this host has less memory than its ranks have planned. Collective over t->world, so that no rank
 * allocates while another one still measures. */
NDP_API ndp_status ndp_trainer_check_memory(const ndp_trainer *t);
/* data.c: opens t->data, or only its held-out rows if t->forward_only. Collective over t->world. */
NDP_API ndp_status ndp_trainer_open_data(ndp_trainer *t);
/* Fills t->whole with a micro-batch of rows of the data set; rows[j] < 0 stands for an empty row, nothing to predict.
 */
NDP_API ndp_status ndp_trainer_load_rows(const ndp_trainer *t, const ndp_dataset *d, const int64_t *rows);

/* held_out.c: builds t->score, after t->engine. */
NDP_API ndp_status ndp_trainer_build_score(ndp_trainer *t);
/* held_out.c: the sum of the nll of the held-out rows of one source, and the number of their tokens. Collective; all
 * ranks return the same status if one cannot read its rows. */
NDP_API ndp_status ndp_trainer_score(ndp_trainer *t, int source, double *nll, int64_t *tokens);

/* trace.c: writes the newest step of all ranks to `path`, if one was recorded (ndp_engine_record). *text: lines for the
 * user, on rank 0; the caller frees it; NULL on other ranks. Collective over t->world. */
NDP_API ndp_status ndp_trainer_trace(ndp_trainer *t, const char *path, char **text);

/* mfu.c: measures t->peak.flops, which mfu is relative to. Collective over t->world. */
NDP_API ndp_status ndp_trainer_measure_peak(ndp_trainer *t);
/* A line for the user that describes the peak. The caller frees it; NULL if out of memory. */
char *ndp_trainer_describe_peak(const ndp_trainer *t);
/* Measures this rank's part of t->peak.flops a little more, and returns it. */
double ndp_trainer_own_peak(ndp_trainer *t);

#endif
