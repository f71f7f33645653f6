/* The inputs of a model of a program's own: those that every model has, and those that its ops ask for. */
#include "model/own_builder.h"

static void fill_angles(const ndp_model *m, int number, void *out) {
    const ndp_own_facts *f = m->facts;
    ndp_rope r = {.scaling = NDP_ROPE_PLAIN, .dim = f->ropes[number].dim, .theta = f->ropes[number].theta};
    r.factor = r.amplitude = 1;
    ndp_rope_table(&r, m->opts.positions, ndp_wide(m->opts.compute), out);
}

static const ndp_input inputs[NDP_OWN_INPUTS] = {
    [NDP_OWN_TOKENS] = {"tokens", NDP_INPUT_TOKENS, NDP_EXTENT_TOKENS, 1, NDP_I32, NULL, 0},
    [NDP_OWN_LABELS] = {"labels", NDP_INPUT_LABELS, NDP_EXTENT_TOKENS, 1, NDP_I32, NULL, 0},
    [NDP_OWN_LOSS_SCALE] = {"loss_scale", NDP_INPUT_LOSS_SCALE, NDP_EXTENT_ONE, 1, NDP_F64, NULL, 0},
    [NDP_OWN_LOSS] = {"loss", NDP_INPUT_LOSS, NDP_EXTENT_ONE, 1, NDP_F64, NULL, 0},
    [NDP_OWN_POSITIONS] = {"positions", NDP_INPUT_POSITIONS, NDP_EXTENT_TOKENS, 1, NDP_I32, NULL, 0},
    [NDP_OWN_STARTS] = {"start", NDP_INPUT_STARTS, NDP_EXTENT_TOKENS, 1, NDP_I32, NULL, 0},
    [NDP_OWN_QUERIES] = {"q_pos", NDP_INPUT_ROWS, NDP_EXTENT_QUERIES, 1, NDP_I32, NULL, 0},
    [NDP_OWN_LOWEST] = {"q_low", NDP_INPUT_STARTS, NDP_EXTENT_QUERIES, 1, NDP_I32, NULL, 0},
    [NDP_OWN_KEYS] = {"k_pos", NDP_INPUT_ROWS, NDP_EXTENT_KEYS, 1, NDP_I32, NULL, 0},
    [NDP_OWN_ROW_KEYS] = {"keys", NDP_INPUT_KEYS, NDP_EXTENT_TOKENS, 1, NDP_I32, NULL, 0},
    [NDP_OWN_UNITS] = {"unit", NDP_INPUT_UNIT_TABLE, NDP_EXTENT_ONE, 1, NDP_I32, ndp_units_fill, 0}};
_Static_assert((int)NDP_OWN_INPUTS + (int)NDP_ROPES <= (int)NDP_MAX_INPUTS, "all inputs fit");

static int place_of(ndp_model_builder *b, const ndp_input *input) {
    int at = ndp_inputs_named(b->m->inputs, input->name);
    return at < 0 ? ndp_inputs_add(b->m->inputs, *input) : at;
}

int ndp_own_data(ndp_model_builder *b, ndp_own_input input) {
    return ndp_graph_data(&b->graph, place_of(b, &inputs[input]));
}

int ndp_own_angles(ndp_model_builder *b, double theta, int dim) {
    static const char *const names[NDP_ROPES] = {"rope", "rope2"};
    ndp_own_facts *f = b->f;
    int i = 0;
    while (i < f->n_ropes && (f->ropes[i].theta != theta || f->ropes[i].dim != dim))
        i++;
    if (i == NDP_ROPES) {
        ndp_build_fail(b, "theta %g on %d columns is its third kind of RoPE; a model has at most %d", theta, dim,
                       NDP_ROPES);
        return 0;
    }
    f->ropes[i] = (ndp_own_rope){theta, dim};
    f->n_ropes = i == f->n_ropes ? i + 1 : f->n_ropes;
    const ndp_input angles = {
        names[i], NDP_INPUT_TABLE, NDP_EXTENT_POSITIONS, dim, ndp_wide(b->m->opts.compute), fill_angles, i};
    return ndp_graph_data(&b->graph, place_of(b, &angles));
}

ndp_status ndp_own_begin_inputs(ndp_model_builder *b) {
    ndp_model *m = b->m;
    const ndp_model_opts *o = &m->opts;
    m->inputs = ndp_arena_alloc(&m->arena, sizeof *m->inputs);
    NDP_CHECK_MEMORY(m->inputs, "for the inputs of the model");
    *m->inputs = (ndp_inputs){.rows = {[NDP_EXTENT_ONE] = 1,
                                       [NDP_EXTENT_TOKENS] = o->rows,
                                       [NDP_EXTENT_QUERIES] = o->rows,
                                       [NDP_EXTENT_KEYS] = o->rows,
                                       [NDP_EXTENT_POSITIONS] = o->positions}};
    for (int i = NDP_OWN_TOKENS; i <= NDP_OWN_LOSS; i++)
        ndp_inputs_add(m->inputs, inputs[i]);
    if (o->mode == NDP_MODEL_TRAIN && o->adapter.dropout > 0) {
        ndp_inputs_add(m->inputs, inputs[NDP_OWN_ROW_KEYS]);
        ndp_inputs_add(m->inputs, inputs[NDP_OWN_UNITS]);
    }
    ndp_head_inputs(m);
    return NDP_OK;
}
