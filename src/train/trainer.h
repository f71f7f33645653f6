/* Inside the train room: one rank of a run. */
#ifndef NDP_TRAIN_TRAINER_H
#define NDP_TRAIN_TRAINER_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/writer_thread.h"
#include "device/peak.h"
#include "model/tensors.h"
#include "score/score.h"
#include "step/values.h"

struct ndp_trainer {
    ndp_rank rank;
    ndp_score score;      /* reads the weights of `engine` */
    const ndp_lock *lock; /* of a whole run, held by rank 0, borrowed; else NULL */
    ndp_model model;
    ndp_model_tensor *tensors; /* of `model`, in the order of its buffers; in its arena */
    int n_tensors;
    ndp_engine *engine;
    int64_t updates, samples; /* updates submitted; samples drawn, which is the data cursor */
    double point;             /* what the answers of the newest update are compared with (score/point.c) */
    int64_t tokens;           /* of all updates whose result was taken; < 0: not known */
    double loading, loaded;   /* when the loading of the newest batch began, and ended */
    ndp_metrics newest;       /* of the newest step whose result was taken, saved with it; step 0: none */
    struct {
        int n;
        struct {
            double start, loaded, submitted;
        } of[NDP_STEPS_PENDING];  /* the oldest first */
        double last;              /* when the newest result was taken */
        double waits;             /* of the engine for other ranks, until then */
    } pending;                    /* steps whose results are not taken */
    struct json_object *accepted; /* rank 0: changes that resumed runs accepted (identity.h); NULL: none */
    ndp_save_cost saved;          /* of the last save */
    struct {
        ndp_background_save *save; /* under way; NULL: none */
        int64_t step;              /* which it is of */
        ndp_tensor_list list;      /* what the save borrows */
        struct json_object *extra;
        void *space; /* for its copy; NULL: saves are not made in the background */
        int64_t bytes;
        ndp_writer_thread touch; /* takes the pages of `space` while the first steps run */
    } background;
    struct {
        ndp_hash128 hash; /* of all micro-batches of the first step of this process, before the axes cut them */
        bool agreed;      /* the ranks that compute the same samples have the same */
    } inputs;
    ndp_pair_metrics held;   /* of the last evaluation */
    ndp_named_number *loads; /* n_loads of them: of each mixture, of the newest step whose result was taken (loads.c) */
    int n_loads;
    double *rounds; /* of each mixture, of the same step, this rank's later ones; NULL: rows go in one round */
    struct {
        bool begun, closed, normed; /* closed: the last call was made, which has the norm */
        ndp_update_opts opts;
        int calls;
        int64_t samples, tokens;   /* of the calls so far, as what follows */
        double sum, weights, loss; /* weight x loss of all rows; weights; losses of functions */
        double norm;
        double started;             /* when it was begun */
        bool finite;                /* all sums are */
    } own;                          /* the update that is open (own_loop.c) */
    struct ndp_metrics_file *lines; /* rank 0, of ndp_trainer_log; NULL: none was written */
    struct {
        char *data;
        int64_t bytes;
    } state; /* of the user's own, in checkpoints; owned */
    bool
        late_update; /* steps are submitted without their update, which ndp_trainer_late_update does after the result */
    struct {
        ndp_peak *own;       /* of this rank's threads; NULL unless in a whole run, which reports mfu */
        double share;        /* the part of it that this rank has cores for */
        double flops, first; /* of all ranks: after the last step (0: not measured), and at the start */
        int threads, cores;  /* of all ranks */
    } peak;
};

/* ndp_trainer_create with more options; not forward_only. */
NDP_API ndp_status ndp_trainer_open(const ndp_config *c, ndp_world *w, const ndp_rank_opts *o, ndp_trainer **out);

/* Appends a line that names the kernels of this rank. Other kernels may give other bits. */
void ndp_trainer_describe_kernels(const ndp_trainer *t, ndp_str *out);

/* ndp_trainer_step in parts: finds what the next batch needs of the weights as they are, for which no step may be
 * pending (ndp_trainer_needs_weights says whether it needs something); loads the next batch, which one rank may fail to
 * do and which changes nothing else; submits its step; waits for the oldest step and takes its result. At most
 * NDP_STEPS_PENDING steps are pending; callers that read or save the trainer take all results first. Collective over
 * t->rank.world but for the loading. */
bool ndp_trainer_needs_weights(const ndp_trainer *t);
NDP_API ndp_status ndp_trainer_prepare_next(ndp_trainer *t);
NDP_API ndp_status ndp_trainer_load_next(ndp_trainer *t);
NDP_API ndp_status ndp_trainer_submit_loaded(ndp_trainer *t);
NDP_API ndp_status ndp_trainer_result(ndp_trainer *t, ndp_metrics *out);
/* All but the last of them. */
NDP_API ndp_status ndp_trainer_submit(ndp_trainer *t);
/* After a step that was not finite, and so was not applied: takes the results of the steps submitted after it, and
 * counts back to `step`, the one before it. *whole: the weights are those after `step`; false if a later step was
 * applied to them. Collective. */
NDP_API ndp_status ndp_trainer_count_back(ndp_trainer *t, int64_t step, bool *whole);

/* loads.c: names the numbers of t->loads; sets them, and what `out` has of them, from those of a step
 * (ndp_step_result). */
ndp_status ndp_trainer_open_loads(ndp_trainer *t);
void ndp_trainer_take_loads(ndp_trainer *t, const ndp_step_result *r, ndp_metrics *out);
/* Rounds of rows to experts of other ranks, over all ranks and micro-batches. Collective over the world. */
ndp_status ndp_trainer_take_rounds(ndp_trainer *t, ndp_metrics *out);

/* With late_update: the update of the newest step, whose result was taken. Collective. */
NDP_API ndp_status ndp_trainer_late_update(ndp_trainer *t);

/* trainer_tensors.c: elements [first, first + n) of a tensor as files hold it, in memory of that type. */
typedef struct ndp_trainer_part {
    const ndp_model_tensor *tensor;
    ndp_owned_kind kind;
    int64_t first, n;
    ndp_dtype type;
} ndp_trainer_part;
/* Copies what this rank's slices of engine `e` have of it to its place in `out`, whose other elements stay. `e` is the
 * trainer's, or another one of the same model. */
ndp_status ndp_trainer_part_read(ndp_engine *e, const ndp_trainer_part *part, void *out);
/* The other way. */
ndp_status ndp_trainer_part_write(ndp_engine *e, const ndp_trainer_part *part, const void *in);

/* own_loop.c: what the gradients of the update under way are still to be multiplied by; 1: there is none, or nothing.
 */
double ndp_own_gradient_scale(const ndp_trainer *t);

/* own_around.c: whether this rank hands in the numbers of its data rank; the user's bytes in a checkpoint's manifest.
 */
bool ndp_trainer_leads(const ndp_trainer *t);
struct json_object;
void ndp_own_state_put(const ndp_trainer *t, struct json_object *extra);
NDP_API ndp_status ndp_own_state_take(ndp_trainer *t, struct json_object *extra);
void ndp_trainer_close_lines(ndp_trainer *t);

/* save.c: loads the checkpoint of a step that was examined, from the folder of checkpoints, which stays as it is.
 * NDP_EINVAL as ndp_trainer_resume. Collective. */
NDP_API ndp_status ndp_trainer_load(ndp_trainer *t, const char *folder, int64_t step);

/* save.c: what a save of the trainer as it is writes, into the folder that the caller sets. The caller releases the
 * list and info.extra, also after a failure. Collective. */
ndp_status ndp_trainer_save_request(const ndp_trainer *t, ndp_tensor_list *list, ndp_save_request *out);

/* background.c: saves that are written while steps go on (checkpoint.async), one at a time. All but works and drop are
 * collective. Takes the space for copies, if there is memory for it. */
NDP_API ndp_status ndp_trainer_open_background(ndp_trainer *t);
/* Copies the trainer as it is, whose next step may begin at once. */
NDP_API ndp_status ndp_trainer_begin_save(ndp_trainer *t);
/* Whether a thread of this rank still writes. */
bool ndp_trainer_save_works(const ndp_trainer *t);
/* As ndp_background_save_go_on, once no rank's thread works. With *ended the status and t->saved are those of
 * ndp_trainer_save. */
NDP_API ndp_status ndp_trainer_go_on_saving(ndp_trainer *t, bool *ended);
/* As ndp_background_save_drop; and frees the space. */
bool ndp_trainer_drop_save(ndp_trainer *t);

/* checked.c: what was found in a step that ran while its values were watched (step/values.h), on all ranks alike. */
typedef struct ndp_checked_step {
    ndp_found_value value;
    int rank;         /* whose it is */
    char record[256]; /* the record of its row, "document 3 of data.jsonl, in \"Once upon a\""; "": not known */
} ndp_checked_step;
typedef struct ndp_checks {
    ndp_checked_step bad, worst, largest; /* of all ranks: the first value that is not finite; the extremes */
} ndp_checks;
/* Repeats the step after `updates` updates, with its values watched and without its update. The weights are those
 * before it; no step is pending. Its gradients are there afterwards. Collective. */
NDP_API ndp_status ndp_trainer_check_step(ndp_trainer *t, int64_t updates, ndp_checks *out);
/* The same of a step that has just run with `own` watched, after `updates` updates. Collective. */
NDP_API ndp_status ndp_trainer_gather_checks(ndp_trainer *t, int64_t updates, const ndp_step_values *own,
                                             ndp_checks *out);
/* A NaN without a sign, for texts. */
static inline double ndp_plain_nan(double x) { return x != x ? __builtin_nan("") : x; }
/* What they say, without a line break: "nan first in layers.3, forward, rmsnorm: ...", or the extremes. */
void ndp_checks_describe(const ndp_checks *c, ndp_str *out);

/* first_step.c: adds micro-batch m, as it was loaded, to t->inputs.hash, until the ranks have agreed on that. */
void ndp_trainer_note_inputs(ndp_trainer *t, int m);
/* NDP_EINVAL names two ranks that compute the same samples and have other inputs. Does nothing after the first step.
 * Collective. */
NDP_API ndp_status ndp_trainer_agree_on_inputs(ndp_trainer *t);
/* Whether step 1 has a reference that its policy must be equal to; */
bool ndp_trainer_checks_policy(const ndp_trainer *t);
/* and whether it is, when its result has been taken and no other step was loaded: NDP_EBUG names an answer and both
 * log-probabilities. Collective. */
NDP_API ndp_status ndp_trainer_check_policy(ndp_trainer *t);

/* The learning rate of an update, counted from 0, in a run of `steps` updates with configuration `c`. */
double ndp_trainer_lr(const ndp_config *c, int steps, int64_t update);
/* Passes over the rows in the updates whose result was taken. */
double ndp_trainer_epoch(const ndp_trainer *t);
/* Sets t->rank.feed.rows to those that this rank reads in micro-batch m of the next update. */
void ndp_trainer_draw_rows(ndp_trainer *t, int m);

/* The logits of a mixture of the whole model for all rows of the last update, [rows][experts] (ndp_rank_opts.record).
 * Collective over the world. */
NDP_API ndp_status ndp_trainer_read_router(ndp_trainer *t, int mixture, double *out);

/* trace.c: writes the steps `first` to `last` of all ranks to `path`, as far as they were recorded
 * (ndp_engine_record_updates), or of them the last to a picture; 0, 0: the newest step (ndp_engine_record). *text:
 * lines for the user, on rank 0; the caller frees it; NULL on other ranks. Collective over t->rank.world. */
NDP_API ndp_status ndp_trainer_trace(ndp_trainer *t, const char *path, int64_t first, int64_t last, char **text);
/* Whether o->trace can be written, and its steps exist. NDP_EINVAL: not. */
ndp_status ndp_trace_check(const ndp_train_opts *o);

/* mfu.c: measures t->peak.flops, which mfu is relative to. Collective over t->rank.world. */
NDP_API ndp_status ndp_trainer_measure_peak(ndp_trainer *t);
/* A line for the user that describes the peak. The caller frees it; NULL if out of memory. */
char *ndp_trainer_describe_peak(const ndp_trainer *t);
/* Measures this rank's part of t->peak.flops a little more, and returns it. */
double ndp_trainer_own_peak(ndp_trainer *t);

#endif
