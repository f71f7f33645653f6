/* Attributes of ops as text, for printed graphs. */
#include "ops/op.h"

void ndp_op_attr_print(const ndp_op_attr *a, ndp_str *out) {
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"heads", a->heads},
                   {"kv_heads", a->kv_heads},
                   {"head_dim", a->head_dim},
                   {"rotary_dim", a->rotary_dim},
                   {"window", a->window},
                   {"scale", a->scale},
                   {"cap", a->cap},
                   {"eps", a->eps},
                   {"max_norm", a->max_norm},
                   {"vocab", (double)a->vocab},
                   {"unit_offset", a->unit_offset},
                   {"parts", a->parts},
                   {"all_parts", a->all_parts},
                   {"first", (double)a->first}};
    const struct {
        const char *name;
        bool value;
    } flags[] = {
        {"inverse", a->inverse}, {"accumulate", a->accumulate}, {"train", a->train}, {"wide_grad", a->wide_grad}};
    const char *before = "{";
    for (int i = 0; i < NDP_COUNT(numbers); i++)
        if (numbers[i].value != 0)
            ndp_str_addf(out, "%s%s %.4g", before, numbers[i].name, numbers[i].value), before = ", ";
    for (int i = 0; i < NDP_COUNT(flags); i++)
        if (flags[i].value)
            ndp_str_addf(out, "%s%s", before, flags[i].name), before = ", ";
    if (a->type != (ndp_dtype)0)
        ndp_str_addf(out, "%stype %s", before, ndp_dtype_name(a->type)), before = ", ";
    ndp_str_add(out, *before == ',' ? "}" : "");
}
