/* Whether a layout computes what one rank computes, and another trainer what ours computes. A part of ndparallel.h,
 * which includes it; the same rules hold. */
#ifndef NDPARALLEL_VERIFY_H
#define NDPARALLEL_VERIFY_H

#include <ndparallel/ndparallel.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- verifying layouts: does a layout compute what one rank computes? ---- */

/* What is compared between two runs. Distances are relative; that of tensors is |a - b| / |b|. */
typedef enum ndp_measure {
    NDP_MEASURE_TOKENS,         /* predicted tokens, each step */
    NDP_MEASURE_FIRST_GRADIENT, /* step 1, each tensor, before clipping */
    NDP_MEASURE_GRAD_NORM,      /* each step */
    NDP_MEASURE_LAST_GRADIENT,  /* the last step, each tensor */
    NDP_MEASURE_LOSS,           /* each step */
    NDP_MEASURE_EVAL_LOSS,      /* after the last step, of held-out data, as many rows as were trained on; 0: none is */
    NDP_MEASURE_WEIGHTS,        /* after the last step, each tensor */
    NDP_MEASURE_FLIP_GAP,       /* of a mixture's choices that the layout would make otherwise: the gap of the two
                                   experts' probabilities, as it is */
    NDP_MEASURE_FLIPS,          /* their share of all choices */
    NDP_MEASURES
} ndp_measure;
/* Its name, such as "grad_norm". */
const char *ndp_measure_name(ndp_measure m);

typedef struct ndp_spot {
    double off, bound; /* the distance, and its bound; INFINITY: no bound */
    char where[96];    /* the tensor, or "step 3" */
    char unit[32];     /* the unit of the model that contains the tensor; "" for steps */
} ndp_spot;

typedef struct ndp_deviation {
    ndp_spot worst; /* the closest to its bound, or the farthest beyond it */
    int beyond;     /* number of tensors or steps beyond their bounds */
    ndp_spot first; /* the first of these: the first step, or the first tensor that the backward pass reaches */
} ndp_deviation;

/* A choice of a mixture that another layout would make otherwise. */
typedef struct ndp_flip {
    int step, mixture;      /* steps count from 1; mixtures of the model from 0 */
    int64_t row;            /* of the tokens of the update's global batch */
    int chosen, instead_of; /* experts: the layout's own choice, and that of one rank */
    double gap;             /* of their probabilities, by which the layout prefers its own */
    char unit[32];          /* that has the mixture: layers.3 */
} ndp_flip;
enum { NDP_FLIPS_LISTED = 8 };

typedef struct ndp_verdict {
    bool agrees;
    int ranks;
    double seconds;
    ndp_deviation of[NDP_MEASURES];
    /* Choices of mixtures of experts in all steps, those of them that the layout would make otherwise, and the flips
     * with the largest gaps. */
    int64_t choices, flips;
    ndp_flip listed[NDP_FLIPS_LISTED];
    int n_listed;
    char words[768]; /* what is beyond its bound, and which axis causes it; "" if the layout agrees */
} ndp_verdict;

enum { NDP_VERIFY_STEPS = 20 }; /* the maximum: the bounds hold for this many steps */

typedef struct ndp_verify_opts {
    const char *const *layouts; /* "tp=2,dp_shard=2"; axes that are not named have size 1, whatever the job says */
    int n;
    int steps;                                 /* 1 .. NDP_VERIFY_STEPS */
    void (*say)(void *user, const char *line); /* status messages; may be NULL */
    void *user;
} ndp_verify_opts;
#define NDP_VERIFY_OPTS_INIT                                                                                           \
    { NULL, 0, NDP_VERIFY_STEPS, NULL, NULL }
/* Trains the job for a few steps on one rank and then on every layout, with the same global batches, and compares the
 * runs with the bounds of proof 3 (docs/proofs.md). Ranks are threads of this process, with cores / ranks threads
 * each; only the cache of tokenized data is written. The job's layout, train.ranks and train.threads are ignored, and
 * the lr of AdamW and Muon is limited to 1e-3, that of Lion to 1e-4, up to which the bounds hold. If a layout of
 * several axes disagrees, each of its axes is run alone. verdicts: an array of o->n, provided by the caller. All
 * layouts and their memory are checked before the first run: NDP_EINVAL, NDP_ENOTSUP. A layout that disagrees is not an
 * error. */
NDP_API ndp_status ndp_verify(const ndp_config *c, const ndp_verify_opts *o, ndp_verdict *verdicts);

/* ---- judging other trainers: does a step of theirs compute what ours computes? ---- */

typedef struct ndp_dump_opts {
    const char *folder;                        /* must not exist, or be empty */
    void (*say)(void *user, const char *line); /* status messages; may be NULL */
    void *user;
} ndp_dump_opts;
/* Runs the job's first step on its layout, with ranks as threads of this process, and writes rows, loss, gradients and
 * new weights as a dump (docs/DUMPS.md). The last column of a row predicts nothing there. The folder appears complete
 * or not at all. NDP_EINVAL: it is not empty. */
NDP_API ndp_status ndp_verify_dump(const ndp_config *c, const ndp_dump_opts *o);

typedef struct ndp_against_tensor {
    char *name;
    double off, bound; /* |dump - ours| / |ours|, and its bound */
    bool agrees;
} ndp_against_tensor;

typedef struct ndp_against {
    bool agrees;
    double seconds;
    int64_t rows, length;          /* of the dump */
    int64_t tokens[2];             /* of the dump, ours */
    double loss[2], loss_bound;    /* the same; of their relative distance */
    int n;                         /* trained tensors */
    ndp_against_tensor *gradients; /* in the order of the model */
    bool has_logits;               /* the dump has logits: */
    double logits_off, logits_bound;
    bool has_weights; /* the dump has updated weights: */
    double weights_off, weights_bound;
    char weights_most[96]; /* the tensor with the largest part of it */
    int n_causes;
    char **causes; /* a line for each difference: the known fault that it looks like */
} ndp_against;

typedef struct ndp_against_opts {
    const char *folder;                        /* the dump */
    void (*say)(void *user, const char *line); /* status messages; may be NULL */
    void *user;
} ndp_against_opts;
/* Computes the step of a dump on one rank, from the rows of the dump and the job's model, in fp32 (fp64 where
 * precision.compute is), and compares loss, number of tokens, gradients, logits and updated weights; for each
 * difference it names the known fault that it looks like. precision.compute is that of the dump: with bf16 the bounds
 * are measured. The job's data, layout and batch are not used. Everything in the dump is checked before anything large
 * is allocated: NDP_EINVAL, NDP_EIO, NDP_EFORMAT. A dump that differs is not an error. The caller releases *out. */
NDP_API ndp_status ndp_verify_against(const ndp_config *c, const ndp_against_opts *o, ndp_against *out);
/* Accepts {0}. */
void ndp_against_release(ndp_against *a);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
