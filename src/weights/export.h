/* Inside the train room: what an exported model folder has besides its weights. */
#ifndef NDP_WEIGHTS_EXPORT_H
#define NDP_WEIGHTS_EXPORT_H

#include "job/job_data.h"
#include "weights/weights.h"

/* Writes config.json, corrected for weights of `type`, and the tokenizer's files into `folder`, which is created. */
ndp_status ndp_export_rest(const ndp_job *j, const ndp_job_data *d, const char *folder, ndp_dtype type);
/* Copies these files of another model folder, as they are. `own_head`: config.json, which may tie the head to the
 * embedding, then says that it does not. */
ndp_status ndp_export_copy(const char *from, const char *to, bool own_head);

/* For an adapter: writes the tokenizer's files into its folder if conversations are other text with them than with the
 * base model's own, since their template or their tokenizer was chosen. */
ndp_status ndp_export_adapter_tokenizer(const ndp_job *j, const ndp_job_data *d, const char *folder);

/* export_template.c: makes a template in Jinja that of a folder with a tokenizer. */
ndp_status ndp_export_template(const char *folder, const ndp_str *text);
/* The same with the template in an adapter's folder, if it has one that is not the model's. */
ndp_status ndp_export_template_of(const char *adapter, const char *model, const char *folder);

/* adapter_export.c: writes what a folder of a model's adapter has besides its tensors; creates the folder. */
ndp_status ndp_export_adapter_rest(const ndp_job *j, const ndp_job_data *d, const ndp_model *m, const char *folder);
/* adapter_export.c: of a tied pair that is trained, adds the head to the list, wrapped, which has the embedding. */
ndp_status ndp_export_tied(const ndp_job *j, const ndp_model *m, ndp_tensor_list *list);

#endif
