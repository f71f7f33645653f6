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
    s.apart = ndp_factor_has_parts(factor) ? w->apart : 0; /* its rows take turns as those of W */
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

/* A factor beside a stack, of so many matrices for each expert. It is cut where the matrices are; if it is whole, each
 * rank of the tensor axis makes a part of its gradient, from its part of the ffn. */
static ndp_segment stack_factor_of(const ndp_segment *w, int r, ndp_factor factor, const char *name, int64_t group) {
    ndp_segment s = factor_of(w, r, factor, name);
    ndp_segment_pile(&s, w->stack_whole / w->stack_grain * group, group);
    if (s.dim[0] != NDP_DIM_FFN && s.dim[1] != NDP_DIM_FFN)
        s.dim[0] = NDP_DIM_ADDED;
    return s;
}

static const ndp_segment *stack_at(const ndp_model *m, const ndp_unit *u, ndp_place at) {
    return at.segment == NDP_NONE ? NULL : &m->buffers[u->buffers[at.slot]].segments.items[at.segment];
}

/* How the stack at a place has factors. */
static ndp_stack_factors factors_at(const ndp_model *m, const ndp_unit *u, ndp_place at) {
    const ndp_segment *w = stack_at(m, u, at);
    return w && m->opts.adapter.r > 0 ? ndp_adapter_of_stack(&m->opts.adapter, w) : NDP_STACK_FACTORS_NONE;
}

/* The module of a stack's factors. PEFT wraps the module of all stacks once for each that has some, down_proj last. */
static const char *stack_module(ndp_model *m, const ndp_segment *w, bool inner) {
    char parameter[NDP_SEGMENT_NAME];
    ndp_stack_parameter(w, parameter);
    *strrchr(parameter, '.') = '\0';
    return ndp_arena_format(&m->arena, "%s%s.weight", parameter, inner ? ".base_layer" : "");
}

/* A pair for each expert, also where its gate and up are two matrices. */
static ndp_status add_joint(ndp_model *m, ndp_unit *u, ndp_place at, bool inner, ndp_place out[NDP_FACTORS]) {
    const ndp_segment *w = stack_at(m, u, at);
    const char *module = stack_module(m, w, inner);
    for (int k = NDP_FACTOR_A; k <= NDP_FACTOR_B; k++) {
        bool parts = ndp_factor_has_parts((ndp_factor)k);
        const char *name = module ? ndp_factor_name(&m->arena, module, (ndp_factor)k) : NULL;
        ndp_segment s = stack_factor_of(w, m->opts.adapter.r, (ndp_factor)k, name, parts ? w->stack_grain : 1);
        s.form = parts ? NDP_STACK_INNER : NDP_STACK_BELOW;
        s.coded = !parts; /* codes are of elements that are neighbours in files */
        NDP_TRY(ndp_unit_append(m, u, NDP_SLOT_EXPERT_ADAPTER, &s, &out[k]));
    }
    return NDP_OK;
}

/* The pattern with one of the words that matrices of an expert take in turn. */
static const char *with_word(ndp_model *m, const char *pattern, int64_t word) {
    const char *open = strchr(pattern, '{'), *at = open;
    for (; at && word > 0; word--)
        at = strchr(at + 1, ',');
    return at ? ndp_arena_format(&m->arena, "%.*s%.*s%s", (int)(open - pattern), pattern, (int)strcspn(at + 1, ",}"),
                                 at + 1, strchr(open, '}') + 1)
              : pattern;
}

/* A pair for each matrix. All A of an expert read the same rows and are one product; a B is a product of its own, and
 * they stand together. */
static ndp_status add_single(ndp_model *m, ndp_unit *u, ndp_place at, ndp_place out[NDP_FACTORS]) {
    const ndp_segment *w = stack_at(m, u, at);
    ndp_segment s = stack_factor_of(w, m->opts.adapter.r, NDP_FACTOR_A,
                                    ndp_factor_name(&m->arena, w->name, NDP_FACTOR_A), w->stack_grain);
    NDP_TRY(ndp_unit_append(m, u, NDP_SLOT_EXPERT_ADAPTER, &s, &out[NDP_FACTOR_A]));
    for (int64_t i = 0; i < w->stack_grain; i++) {
        ndp_place place;
        const char *name = with_word(m, w->name, i);
        name = name ? ndp_factor_name(&m->arena, name, NDP_FACTOR_B) : NULL;
        s = stack_factor_of(w, m->opts.adapter.r, NDP_FACTOR_B, name, 1);
        NDP_TRY(ndp_unit_append(m, u, NDP_SLOT_EXPERT_ADAPTER, &s, &place));
        out[NDP_FACTOR_B] = i == 0 ? place : out[NDP_FACTOR_B];
    }
    return NDP_OK;
}

ndp_status ndp_unit_expert_factors(ndp_model *m, ndp_unit *u, ndp_param_places *of) {
    static const ndp_param places[] = {NDP_P_EXPERT_GATE_UP, NDP_P_EXPERT_DOWN};
    bool outer = factors_at(m, u, of->at[NDP_P_EXPERT_DOWN]) == NDP_STACK_FACTORS_JOINT;
    for (int i = 0; i < NDP_COUNT(places); i++) {
        ndp_place at = of->at[places[i]], *out = of->factors[places[i]];
        ndp_stack_factors how = factors_at(m, u, at);
        if (how == NDP_STACK_FACTORS_JOINT)
            NDP_TRY(add_joint(m, u, at, outer && places[i] == NDP_P_EXPERT_GATE_UP, out));
        if (how == NDP_STACK_FACTORS_SINGLE)
            NDP_TRY(add_single(m, u, at, out));
    }
    return NDP_OK;
}

ndp_status ndp_unit_factors(ndp_model *m, ndp_unit *u, ndp_param place, int n, ndp_param_places *of) {
    for (int k = 0; m->opts.adapter.r > 0 && k < ndp_form_rules[m->opts.adapter.form].factors; k++)
        NDP_TRY(add_factors(m, u, place, n, (ndp_factor)k, of));
    return NDP_OK;
}
