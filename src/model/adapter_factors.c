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

ndp_status ndp_unit_factors(ndp_model *m, ndp_unit *u, ndp_param place, int n, ndp_param_places *of) {
    for (int k = 0; m->opts.adapter.r > 0 && k < ndp_form_rules[m->opts.adapter.form].factors; k++)
        NDP_TRY(add_factors(m, u, place, n, (ndp_factor)k, of));
    return NDP_OK;
}
