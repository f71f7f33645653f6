/* The factors of adapters as parameters of a unit: segments in its buffer of what is trained, beside the projections
 * that the adapter names. Called by what makes the tables of decoders and of one's own architectures. */
#include "model/adapter_names.h"
#include "model/tables.h"

#include <string.h>

/* The factor of a projection in the form that it has in the buffer: cut as the dimensions of W that it has. */
static ndp_segment factor_of(const ndp_segment *w, int r, ndp_factor factor, const char *name) {
    ndp_dim dim[2] = {NDP_DIM_WHOLE, NDP_DIM_WHOLE};
    int64_t shape[2], grain[2] = {1, 1};
    int ndim = ndp_factor_shape(factor, r, w->rows, w->cols, shape);
    for (int i = 0; i < 2; i++) {
        ndp_factor_dim of = ndp_factor_rules[factor].dim[i];
        int axis = of == NDP_FACTOR_OUTPUTS ? 0 : of == NDP_FACTOR_INPUTS ? 1 : NDP_NONE;
        if (axis != NDP_NONE)
            dim[i] = w->dim[axis], grain[i] = w->grain[axis];
    }
    ndp_segment s = ndp_segment_whole(name, ndim, shape[0], shape[1], dim[0], dim[1]);
    memcpy(s.grain, grain, sizeof grain);
    s.projection = ndim == 2;
    s.coded = true;
    return s;
}

/* One kind of factor of `n` projections from `place` on that read the same values. */
static ndp_status add_factors(ndp_model *m, ndp_unit *u, ndp_param place, int n, ndp_factor factor,
                              ndp_param_places *of) {
    const char *before = "";
    bool some = false, parts = ndp_factor_has_parts(factor); /* some: of this kind stand before */
    for (int p = (int)place; p < (int)place + n; p++) {
        ndp_place at = of->at[p];
        if (at.segment == NDP_NONE)
            continue;
        const ndp_segment *w = &m->buffers[u->buffers[at.slot]].segments.items[at.segment];
        bool continues = strcmp(w->name, before) == 0;
        before = w->name;
        if (!ndp_adapter_targets(&m->opts.adapter, w->name) || (continues && !parts))
            continue;
        ndp_segment s = factor_of(w, m->opts.adapter.r, factor, ndp_factor_name(&m->arena, w->name, factor));
        s.glued = parts ? continues : some;
        some = true;
        NDP_TRY(ndp_unit_append(m, u, NDP_SLOT_ADAPTER, &s, &of->factors[p][factor]));
    }
    return NDP_OK;
}

/* ---- experts ---- */

/* One factor for each expert, also where its gate and up are two matrices. It is cut where the matrices are; if it is
 * whole, each rank of the tensor axis makes a part of its gradient, from its part of the ffn. */
static ndp_segment stack_factor_of(const ndp_segment *w, int r, ndp_factor factor, const char *name) {
    ndp_segment s = factor_of(w, r, factor, name);
    bool parts = ndp_factor_has_parts(factor);
    ndp_segment_pile(&s, parts ? w->stack_whole : w->stack_whole / w->stack_grain, parts ? w->stack_grain : 1);
    s.form = parts ? NDP_STACK_INNER : NDP_STACK_BELOW;
    s.coded = !parts; /* codes are of elements that are neighbours in files */
    if (s.dim[0] != NDP_DIM_FFN && s.dim[1] != NDP_DIM_FFN)
        s.dim[0] = NDP_DIM_ADDED;
    return s;
}

/* The stack at a place, if it has factors; else NULL. */
static const ndp_segment *adapted_stack(const ndp_model *m, const ndp_unit *u, ndp_place at) {
    const ndp_segment *w = at.segment == NDP_NONE ? NULL : &m->buffers[u->buffers[at.slot]].segments.items[at.segment];
    return w && ndp_adapter_targets_stack(&m->opts.adapter, w) ? w : NULL;
}

/* The module of a stack's factors. PEFT wraps the module of all stacks once for each that has some, down_proj last. */
static const char *stack_module(ndp_model *m, const ndp_segment *w, bool inner) {
    char parameter[NDP_SEGMENT_NAME];
    ndp_stack_parameter(w, parameter);
    *strrchr(parameter, '.') = '\0';
    return ndp_arena_format(&m->arena, "%s%s.weight", parameter, inner ? ".base_layer" : "");
}

ndp_status ndp_unit_expert_factors(ndp_model *m, ndp_unit *u, ndp_param_places *of) {
    static const ndp_param places[] = {NDP_P_EXPERT_GATE_UP, NDP_P_EXPERT_DOWN};
    bool outer = m->opts.adapter.r > 0 && adapted_stack(m, u, of->at[NDP_P_EXPERT_DOWN]);
    for (int i = 0; m->opts.adapter.r > 0 && i < NDP_COUNT(places); i++) {
        const ndp_segment *w = adapted_stack(m, u, of->at[places[i]]);
        const char *module = w ? stack_module(m, w, outer && places[i] == NDP_P_EXPERT_GATE_UP) : NULL;
        for (int k = NDP_FACTOR_A; w && k <= NDP_FACTOR_B; k++) {
            if (!module)
                return NDP_FAIL(NDP_ENOMEM, "not enough memory for the model's tables");
            const char *name = ndp_factor_name(&m->arena, module, (ndp_factor)k);
            ndp_segment s = stack_factor_of(w, m->opts.adapter.r, (ndp_factor)k, name);
            NDP_TRY(ndp_unit_append(m, u, NDP_SLOT_EXPERT_ADAPTER, &s, &of->factors[places[i]][k]));
        }
    }
    return NDP_OK;
}

ndp_status ndp_unit_factors(ndp_model *m, ndp_unit *u, ndp_param place, int n, ndp_param_places *of) {
    for (int k = 0; m->opts.adapter.r > 0 && k < ndp_form_rules[m->opts.adapter.form].factors; k++)
        NDP_TRY(add_factors(m, u, place, n, (ndp_factor)k, of));
    return NDP_OK;
}
