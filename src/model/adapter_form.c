/* The tables of the forms of adapters, and the names that follow from them. */
#include "model/adapter_form.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const ndp_factor_rule ndp_factor_rules[NDP_FACTORS] = {
    [NDP_FACTOR_A] = {".lora_A.weight", {NDP_FACTOR_RANK, NDP_FACTOR_INPUTS}, NDP_START_UNIFORM},
    [NDP_FACTOR_B] = {".lora_B.weight", {NDP_FACTOR_OUTPUTS, NDP_FACTOR_RANK}, NDP_START_ZERO},
    [NDP_FACTOR_LENGTH] = {".lora_magnitude_vector", {NDP_FACTOR_ONE, NDP_FACTOR_OUTPUTS}, NDP_START_LENGTHS},
};

const ndp_form_rule ndp_form_rules[NDP_ADAPTER_FORMS] = {
    [NDP_LORA] = {"lora", NULL, NDP_FACTOR_B + 1, NDP_NO_FACTOR},
    [NDP_DORA] = {"dora", "use_dora", NDP_FACTOR_LENGTH + 1, NDP_FACTOR_LENGTH},
};

int ndp_factor_shape(ndp_factor factor, int64_t r, int64_t outputs, int64_t inputs, int64_t shape[2]) {
    const int64_t n[] = {
        [NDP_FACTOR_ONE] = 1, [NDP_FACTOR_RANK] = r, [NDP_FACTOR_INPUTS] = inputs, [NDP_FACTOR_OUTPUTS] = outputs};
    const ndp_factor_rule *f = &ndp_factor_rules[factor];
    shape[0] = n[f->dim[0]];
    shape[1] = n[f->dim[1]];
    return f->dim[0] == NDP_FACTOR_ONE ? 1 : 2;
}

bool ndp_factor_has_parts(ndp_factor factor) {
    const ndp_factor_rule *f = &ndp_factor_rules[factor];
    return f->dim[0] == NDP_FACTOR_OUTPUTS || f->dim[1] == NDP_FACTOR_OUTPUTS;
}

double ndp_adapter_scale(double alpha, int r, bool rslora) { return alpha / (rslora ? sqrt((double)r) : (double)r); }

/* ---- names ---- */

const char *ndp_adapter_inner(const char *tensor) {
    size_t n = strlen(NDP_ADAPTER_PREFIX);
    return strncmp(tensor, NDP_ADAPTER_PREFIX, n) == 0 ? tensor + n : NULL;
}

/* The ending of the name, if the tensor is a factor; else NULL. */
static const char *find_ending(const char *tensor, ndp_factor *factor) {
    const char *inner = ndp_adapter_inner(tensor);
    size_t n = inner ? strlen(inner) : 0, k = 0;
    for (*factor = 0; *factor < NDP_FACTORS; ++*factor) {
        k = strlen(ndp_factor_rules[*factor].ending);
        if (n > k && strcmp(inner + n - k, ndp_factor_rules[*factor].ending) == 0)
            return inner + n - k;
    }
    return NULL;
}

ndp_factor ndp_factor_of(const char *tensor) {
    ndp_factor factor;
    find_ending(tensor, &factor);
    return factor;
}

const char *ndp_factor_name(ndp_arena *arena, const char *tensor, ndp_factor factor) {
    int stem = (int)(strlen(tensor) - strlen(".weight"));
    return ndp_arena_format(arena, NDP_ADAPTER_PREFIX "%.*s%s", stem, tensor, ndp_factor_rules[factor].ending);
}

void ndp_module_of(const char *tensor, char out[NDP_MODULE_NAME]) {
    ndp_factor factor;
    const char *end = find_ending(tensor, &factor), *inner = ndp_adapter_inner(tensor), *name = inner ? inner : tensor;
    end = end ? end : strrchr(name, '.');
    snprintf(out, NDP_MODULE_NAME, "%.*s", end ? (int)(end - name) : 0, name);
}
