/* The identity of a run: what determines its loss curve. It has the facts of the model, the hashes of data and
 * tokenizer, and the value of every key of the option table that is not NDP_KEY_FREE. Manifests contain it as
 *
 *   "extra": {"identity": {"model.rope_theta": "10000", ..., "optimizer.lr": "0.0003", ...},
 *             "accepted": [{"key": "optimizer.lr", "from": "0.001", "to": "0.0003", "step": 6}, ...]}
 *
 * Every value is a text, so two values are equal if their texts are. What a step reads and no checkpoint holds is a
 * part of it: weights only where steps read them as they were at the beginning, under the names of the keys that they
 * come from. Files are part of it by their contents, so they may move. Ranks and layout are not, which change the curve
 * only by rounding. */
#ifndef NDP_TRAIN_IDENTITY_H
#define NDP_TRAIN_IDENTITY_H

#include "checkpoint/checkpoint.h"
#include "config/table.h"
#include "job/model_identity.h"
#include "train/trainer.h"

/* The value of model.path or adapter.path where checkpoints hold all of those weights that a step reads. */
extern const char ndp_identity_saved[];

/* The object above: the run as it is now, and all changes accepted so far. For rank 0, which alone knows the hashes of
 * the files. The caller releases it with json_object_put. NDP_ENOMEM. */
NDP_API ndp_status ndp_identity_extra(const ndp_trainer *t, struct json_object **out);

/* Checkpoints of earlier versions have no identity, only counts of their data (rows, tokens, ...): the counts in
 * `info`, and those of the run as it is now. The caller releases both with json_object_put. */
struct json_object *ndp_identity_counted(const ndp_checkpoint_info *info);
struct json_object *ndp_identity_count(const ndp_trainer *t);

/* On rank 0, before anything is loaded or written: compares the run with the checkpoint in `folder` that `info`
 * describes. NDP_EINVAL names every key that differs and is not in t->rank.opts->accept, with both values, and every
 * key in `accept` that does not differ. train.steps is compared only under a schedule that depends on it, and
 * is called train.epochs where the job has that. A value that checkpoints of an earlier version have in another
 * form is not compared, with a warning. Accepted changes are added to t->accepted, and t->rank.opts->say gets them,
 * with their effect on learning rate and data cursor. For a checkpoint without an identity only the counts of its data
 * and the seed are compared, with a warning.
 */
NDP_API ndp_status ndp_identity_check(ndp_trainer *t, const ndp_checkpoint_info *info, const char *folder);

/* Appends one YAML comment line for each accepted change. */
void ndp_identity_describe_accepted(const ndp_trainer *t, ndp_str *out);

#endif
