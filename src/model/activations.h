/* Inside the model room: the activations between the products of an MLP. */
#ifndef NDP_MODEL_ACTIVATIONS_H
#define NDP_MODEL_ACTIVATIONS_H

#include "model/facts.h"
#include "ops/op.h"

enum { NDP_ACTIVATION_WORDS = 4 };

typedef struct ndp_activation_row {
    const char *name;                        /* in the identity of a run */
    const char *words[NDP_ACTIVATION_WORDS]; /* in config.json */
    const ndp_op *gated, *plain;             /* [T,2F] and [T,F] -> [T,F]; NULL: not built */
} ndp_activation_row;
extern const ndp_activation_row ndp_activations[NDP_ACTIVATIONS];

/* The op; NULL: not built. */
const ndp_op *ndp_activation_op(ndp_activation a, bool gated);
/* Finds the activation that config.json calls `word`. False: unknown, or not built in this form. */
bool ndp_activation_find(const char *word, bool gated, ndp_activation *out);
/* "silu, swish, ...": the words of the form, into `out`; returns it. */
const char *ndp_activation_list(bool gated, char *out, size_t size);

#endif
