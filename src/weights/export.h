/* Writing a trained model, or its adapter, as a folder: its tensors, and the files beside them. */
#ifndef NDP_WEIGHTS_EXPORT_H
#define NDP_WEIGHTS_EXPORT_H

#include "job/job_data.h"
#include "weights/weights.h"

/* What is exported, and by whom. All borrowed. */
typedef struct ndp_export {
    const ndp_job *job;
    const ndp_job_data *data;
    const ndp_model *model; /* whole; with an adapter, that alone is written, as a folder of PEFT */
    ndp_comm *world;        /* NULL: one rank */
    const ndp_lock *lock;   /* of the run; NULL: none */
} ndp_export;

/* Writes what the engine trains. Collective over the world. */
ndp_status ndp_export_engine(const ndp_export *x, const ndp_engine *e, const char *folder);

/* Writes the model of an open checkpoint, or its adapter, after ndp_run_model_chat. */
struct ndp_run_model;
ndp_status ndp_export_run_model(const struct ndp_run_model *m, const char *folder);

/* The type of exported weights: bf16 if that is what the model computes in, else that of the master weights, in which
 * adapters always are. */
ndp_dtype ndp_export_type(const ndp_model_opts *o);

/* ---- the files beside the weights: export_files.c ---- */

/* Writes config.json, corrected for weights of `type`, and the tokenizer's files into `folder`, which is created. */
ndp_status ndp_export_rest(const ndp_job *j, const ndp_job_data *d, const char *folder, ndp_dtype type);
/* Copies these files of another model folder, as they are. `own_head`: config.json, which may tie the head to the
 * embedding, then says that it does not. */
ndp_status ndp_export_copy(const char *from, const char *to, bool own_head, bool dequantised);

/* For an adapter: writes the tokenizer's files into its folder if conversations are other text with them than with the
 * base model's own, since their template or their tokenizer was chosen. */
ndp_status ndp_export_adapter_tokenizer(const ndp_job *j, const ndp_job_data *d, const char *folder);

/* export_template.c: makes a template in Jinja that of a folder with a tokenizer. */
ndp_status ndp_export_template(const char *folder, const ndp_str *text);
/* The same with the template in an adapter's folder, if it has one that is not the model's. */
ndp_status ndp_export_template_of(const char *adapter, const char *model, const char *folder);

/* ---- adapter_export.c ---- */

/* Writes what a folder of a model's adapter has besides its tensors; creates the folder. */
ndp_status ndp_export_adapter_rest(const ndp_job *j, const ndp_job_data *d, const ndp_model *m, const char *folder);
/* Of a tied pair that is trained, adds the head to the list, wrapped, which has the embedding. */
ndp_status ndp_export_tied(const ndp_job *j, const ndp_model *m, ndp_tensor_list *list);

#endif
