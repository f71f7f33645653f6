/* Inside the train room: what an exported model folder has besides its weights. */
#ifndef NDP_TRAIN_EXPORT_H
#define NDP_TRAIN_EXPORT_H

#include "job/job_data.h"

/* Writes config.json, corrected for weights of `type`, and the tokenizer's files into `folder`, which is created. */
ndp_status ndp_export_rest(const ndp_job *j, const ndp_job_data *d, const char *folder, ndp_dtype type);

#endif
