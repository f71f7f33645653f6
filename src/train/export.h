/* Inside the train room: what an exported model folder has besides its weights. */
#ifndef NDP_TRAIN_EXPORT_H
#define NDP_TRAIN_EXPORT_H

#include "job/job_data.h"
#include "job/weights.h"

/* Writes config.json, corrected for weights of `type`, and the tokenizer's files into `folder`, which is created. */
ndp_status ndp_export_rest(const ndp_job *j, const ndp_job_data *d, const char *folder, ndp_dtype type);
/* Copies these files of another model folder, as they are. `own_head`: config.json, which may tie the head to the
 * embedding, then says that it does not. */
ndp_status ndp_export_copy(const char *from, const char *to, bool own_head);

/* adapter_export.c: writes FOLDER/adapter_config.json of a model with an adapter; creates the folder. */
ndp_status ndp_export_adapter_config(const ndp_job *j, const ndp_model *m, const char *folder);
/* adapter_export.c: of a tied pair that is trained, adds the head to the list, wrapped, which has the embedding. */
ndp_status ndp_export_tied(const ndp_job *j, const ndp_model *m, ndp_tensor_list *list);
struct ndp_trainer;
/* Writes the adapter as a folder of PEFT. Collective over the world. */
ndp_status ndp_trainer_export_adapter(struct ndp_trainer *t, const char *folder);

#endif
