/* Trainers on a guard. */
#ifndef TESTS_TRAIN_GUARDED_TRAINER_H
#define TESTS_TRAIN_GUARDED_TRAINER_H

#include "guarded.h"
#include "train/trainer.h"

/* ndp_trainer_create; the trainer of one rank is on a guard around its device. Larger worlds are much slower there. */
static inline ndp_status guarded_trainer_create(const ndp_config *c, ndp_world *w, ndp_trainer **out) {
    const ndp_device *device = NULL;
    CHECK_OK(ndp_device_find(ndp_device_names[c->train.device], &device));
    if (ndp_world_size(w) == 1)
        device = guarded(device);
    ndp_status st = ndp_trainer_open(c, w, &(ndp_rank_opts){.device = device}, out);
    if (st != NDP_OK)
        unguard(device);
    return st;
}

static inline void guarded_trainer_destroy(ndp_trainer *t) {
    const ndp_device *device = t->rank.exec.device;
    ndp_trainer_destroy(t);
    unguard(device);
}

#endif
