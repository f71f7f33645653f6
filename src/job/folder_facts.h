/* The facts of a model folder, which its weights may correct. */
#ifndef NDP_JOB_FOLDER_FACTS_H
#define NDP_JOB_FOLDER_FACTS_H

#include "model/architecture.h"

/* Reads the facts of FOLDER/config.json. If it ties the head to the embedding, but the weights contain a head with
 * other values, the head is kept: own_head is true. The decision is that of transformers 5.23
 * (PreTrainedModel.tie_weights):
 *
 *   lm_head.weight is not in the files          tied
 *   it equals the embedding, value by value     tied; 0 equals -0
 *   a value differs, or is NaN (even in both)   not tied, with a warning
 *   its shape differs (a padded vocabulary)     refused
 *   the embedding is not in the files           refused when they are loaded; transformers uses the head for both
 *
 * Tensors may have the names of a complete or of a bare model, in one file or in shards, whether or not the index lists
 * the head. Tensors of different types are compared exactly, as transformers does with dtype=float32; with its default,
 * "auto", it first rounds both to the configuration's dtype.
 *
 * Only config.json is opened if it does not tie the head, or if there are no weights. Reading stops at the first
 * difference. NDP_EFORMAT, NDP_ENOTSUP and NDP_EIO as for ndp_model_spec_read and ndp_weights_open. The caller releases
 * `out`. `own`: as of ndp_model_spec_read. */
NDP_API ndp_status ndp_folder_facts(const char *folder, const ndp_own_list *own, ndp_model_spec *out);

/* A line for the user, without a line break, if own_head is true; else NULL. */
const char *ndp_head_note(const ndp_model_spec *s);

#endif
