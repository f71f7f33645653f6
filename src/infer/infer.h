/* Inside the infer room: a model opened for use on one rank: a model folder, or the checkpoint of a run. */
#ifndef NDP_INFER_INFER_H
#define NDP_INFER_INFER_H

#include "job/job_data.h"
#include "model/decoder.h"
#include "step/engine.h"
#include "text/chat/chat.h"
#include "text/tokenizer.h"
#include "weights/adapter_use.h"
#include <ndparallel/ndparallel.h>

typedef struct ndp_infer {
    char folder[NDP_PATH];        /* of the model, or of the run */
    char config[NDP_PATH];        /* the config.json */
    char generation[NDP_PATH];    /* the generation_config.json, which may be missing; "" without a model folder */
    struct ndp_run_model *run;    /* NULL: a model folder, or */
    const ndp_job *job;           /* one that trains: its caller fills the weights. Borrowed; NULL: none */
    ndp_model_spec spec;          /* of `run`, if there is one */
    const ndp_facts *facts;       /* of `spec` */
    ndp_adapter adapter;          /* r 0: none; borrows the run's configuration, or `use` */
    ndp_adapter_use use;          /* of an adapter beside a model folder; path "": there is none */
    ndp_tokenizer *tokenizer;     /* of `run` or the job, if there is one */
    const char *tokenizer_source; /* "bytes", a folder or a file; borrowed from this struct */
    ndp_transport *transport;
    ndp_mesh mesh;
    ndp_exec exec;     /* of all its engines */
    bool force_memory; /* false after init */
} ndp_infer;

/* Opens a folder: reads its facts (job/folder_facts.h; a note goes to stderr) and its tokenizer. The weights must
 * exist (NDP_EIO) but are not loaded yet. `device`: one of ndp_device_names; threads: 0 for all cores. */
NDP_API ndp_status ndp_infer_init(ndp_infer *f, const char *folder, const char *device, int threads);
/* The same for `model`, which may also be a run folder: its checkpoint of `step` (weights/run_model.h; 0: the newest
 * whole one), with the values that its export has. `adapter`: of a model folder (weights/adapter_use.h); NULL: none.
 * NDP_EINVAL: a step of a model folder, an adapter of a run folder. */
NDP_API ndp_status ndp_infer_open(ndp_infer *f, const char *model, const char *adapter, int64_t step,
                                  const char *device, int threads);
/* The same for the model of a job that trains on that device, whose memory its plan has. Borrows the job, its data and
 * `exec`. NDP_ENOTSUP: it is no decoder. */
NDP_API ndp_status ndp_infer_of_job(ndp_infer *f, const ndp_job *j, const ndp_job_data *d, const ndp_exec *exec);
/* Call it after destroying all engines of the model. */
void ndp_infer_release(ndp_infer *f);

/* The result for a file (or NULL: for all) from the sum of the nll; without windows. */
ndp_evaluation ndp_evaluation_of(const char *name, double nll, int64_t tokens, int64_t bytes, int64_t documents);

/* The template of conversations: `name` as in ndp_generate_opts; NULL: the one that the run, or the adapter, was
 * trained with, or the tokenizer's own. The caller releases `out`. Errors as of ndp_chat_init and ndp_run_model_chat.
 */
ndp_status ndp_infer_chat(const ndp_infer *f, const char *name, ndp_chat *out);
/* Appends the ids of a text; `special`: with the special tokens that the tokenizer puts around it; otherwise a template
 * has rendered it. NDP_EINVAL: the model has no embedding for a token. */
NDP_API ndp_status ndp_infer_encode(const ndp_infer *f, const char *text, size_t n, bool special, ndp_ids *ids);
/* Gives an empty prompt the model's begin token. NDP_EINVAL: the model has none. */
NDP_API ndp_status ndp_infer_begin(const ndp_infer *f, ndp_ids *prompt);

/* NDP_EINVAL if there is not enough memory for engines of `n` models, which share the weights of the first, and
 * `besides` more bytes. `less`: how to need less, for the message. */
NDP_API ndp_status ndp_infer_check_memory(const ndp_infer *f, const ndp_model *const *models, int n, int64_t besides,
                                          const char *less);
/* Creates an engine for `m`, which was built from the folder's facts in fp32. Loads its weights, or shares those of
 * `weights_of` if that is not NULL; of a job it leaves them to the caller. */
NDP_API ndp_status ndp_infer_engine(const ndp_infer *f, const ndp_model *m, const ndp_engine *weights_of,
                                    ndp_engine **out);

#endif
