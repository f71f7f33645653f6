/* The activations by name. A form that is not built is NULL, and a model that has it is refused. */
#include "model/activations.h"

#include <stdio.h>
#include <string.h>

const ndp_activation_row ndp_activations[NDP_ACTIVATIONS] = {
    [NDP_SILU] = {"silu", {"silu", "swish"}, &ndp_op_swiglu, NULL},
    [NDP_GELU_TANH] = {"gelu_tanh", {"gelu_pytorch_tanh", "gelu_new", "gelu_fast"}, &ndp_op_geglu, &ndp_op_gelu},
    [NDP_SILU_CLIPPED] = {"silu_clipped", {0}, &ndp_op_swiglu_clipped, NULL}, /* of a family, not of a key */
    [NDP_GELU_ERF] = {"gelu", {"gelu", "gelu_python"}, NULL, &ndp_op_gelu_erf},
};

const ndp_op *ndp_activation_op(ndp_activation a, bool gated) {
    return gated ? ndp_activations[a].gated : ndp_activations[a].plain;
}

bool ndp_activation_find(const char *word, bool gated, ndp_activation *out) {
    for (int a = 0; a < NDP_ACTIVATIONS; a++)
        for (int i = 0; i < NDP_ACTIVATION_WORDS && ndp_activations[a].words[i]; i++)
            if (strcmp(word, ndp_activations[a].words[i]) == 0 && ndp_activation_op((ndp_activation)a, gated)) {
                *out = (ndp_activation)a;
                return true;
            }
    return false;
}

const char *ndp_activation_list(bool gated, char *out, size_t size) {
    size_t at = 0;
    *out = '\0';
    for (int a = 0; a < NDP_ACTIVATIONS; a++)
        for (int i = 0; i < NDP_ACTIVATION_WORDS && ndp_activations[a].words[i] && at < size; i++)
            if (ndp_activation_op((ndp_activation)a, gated))
                at += (size_t)snprintf(out + at, size - at, at ? ", %s" : "%s", ndp_activations[a].words[i]);
    return out;
}
