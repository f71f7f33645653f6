/* What determines the curve of a run: the facts of the model, the data and the tokenizer by hash, and the value of
 * every key of the option table that is no NDP_KEY_FREE one. Manifests hold it as
 *
 *   "extra": {"identity": {"model.rope_theta": "10000", ..., "optimizer.lr": "0.0003", ...},
 *             "accepted": [{"key": "optimizer.lr", "from": "0.001", "to": "0.0003", "step": 6}, ...]}
 *
 * Every value is a text, so that two are equal when their texts are. Weights are not in it: the checkpoint has them.
 * Nor are ranks and layout, which change the curve by rounding alone. */
#ifndef NDP_TRAIN_IDENTITY_H
#define NDP_TRAIN_IDENTITY_H

#include "checkpoint/checkpoint.h"
#include "train/trainer.h"

/* The object above, for rank 0 (only it knows the hashes of the files): the run as it is now, and all changes accepted
 * so far. The caller puts it. NDP_ENOMEM. */
NDP_API ndp_status ndp_identity_extra(const ndp_trainer *t, struct json_object **out);

/* Checkpoints of earlier versions counted their data (rows, tokens, ...) and have no identity: what they say, and the
 * same of the run as it is now. The caller puts both. */
struct json_object *ndp_identity_counted(const ndp_checkpoint_info *info);
struct json_object *ndp_identity_count(const ndp_trainer *t);

/* True for a fact without whose value the tensors of a checkpoint do not fit `f`. */
bool ndp_identity_is_shape(const ndp_facts *f, const char *key);

/* On rank 0, before anything is loaded or written: compares the run with the checkpoint of `folder` that `info` is of.
 * NDP_EINVAL names every key that differs and is not in t->opts->accept, with both values, and every key in it that
 * does not differ. train.steps counts only under a schedule that reads it. What is accepted goes to t->accepted, and
 * with what it does to lr and cursor to t->opts->say. Of a checkpoint without an identity the numbers of its data and
 * the seed are compared, with a warning. */
NDP_API ndp_status ndp_identity_check(ndp_trainer *t, const ndp_checkpoint_info *info, const char *folder);

/* One comment line of YAML for each accepted change. */
void ndp_identity_describe_accepted(const ndp_trainer *t, ndp_str *out);

#endif
