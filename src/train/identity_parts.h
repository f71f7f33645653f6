/* A run's identity beside that of a checkpoint: what identity_check.c compares and identity_accept.c accepts. */
#ifndef NDP_TRAIN_IDENTITY_PARTS_H
#define NDP_TRAIN_IDENTITY_PARTS_H

#include "train/identity.h"

#include <string.h>

typedef struct ndp_key_difference {
    const char *key, *then, *now; /* key: as the identity has it (key_of) */
} ndp_key_difference;

typedef struct ndp_identity_comparison {
    ndp_trainer *t;
    const ndp_checkpoint_info *info;
    const char *folder;
    struct json_object *then, *now; /* identities; owned */
    bool counted;                   /* the checkpoint has no identity, only counts */
    ndp_key_difference *of;
    int n;
} ndp_identity_comparison;

static inline bool ndp_identity_is_any(const char *key, const char *const *keys, int n) {
    for (int i = 0; i < n; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}
#define NDP_IS_ANY(key, keys) ndp_identity_is_any(key, keys, NDP_COUNT(keys))

/* The number of steps is that of train.epochs where the job has that: users set and accept that key. */
static const char ndp_identity_steps[] = "train.steps", ndp_identity_epochs[] = "train.epochs";

static inline bool ndp_identity_by_epochs(const ndp_trainer *t) { return t->rank.job.config->train.epochs > 0; }

/* The name of the identity's key for users. */
static inline const char *ndp_identity_name_of(const ndp_trainer *t, const char *key) {
    return ndp_identity_by_epochs(t) && strcmp(key, ndp_identity_steps) == 0 ? ndp_identity_epochs : key;
}

/* "optimizer.lr was 3e-05, now it is 0.0001" */
void ndp_identity_add_difference(const ndp_trainer *t, ndp_str *out, const ndp_key_difference *d);
/* "lr of step 7: 3e-05 then, 0.0001 now", after `before`; nothing if no difference affects it. */
ndp_status ndp_identity_add_lr(const ndp_identity_comparison *c, const char *before, ndp_str *out);
/* Whether the checkpoint already records the change. A run that is restarted (--restarts, Slurm) has the same --accept,
 * but a newer checkpoint. */
bool ndp_identity_was_accepted(const ndp_identity_comparison *c, const char *key);
/* All differences: says them with their effects, and records them in t->accepted. NDP_ENOMEM. */
ndp_status ndp_identity_accept(ndp_identity_comparison *c);

#endif
