/* The inputs of a decoder: one table, with what makes each a part of a model. Graphs find them by kind (block.h), so
 * their order decides only where they are in memory. */
#include "model/block.h"

static void fill_angles(const ndp_model *m, int table, void *out) {
    ndp_rope_table(&ndp_decoder_facts(m)->ropes[table], m->opts.positions, ndp_wide(m->opts.compute), out);
}

void ndp_units_fill(const ndp_model *m, int number, void *out) {
    (void)number; /* there is one such table */
    for (int u = 0; u < m->n_units; u++)
        ((int32_t *)out)[u] = m->units[u].number;
}

static int widest_head(const ndp_facts *f) { return f->full.dim > f->head_dim ? f->full.dim : f->head_dim; }

static void fill_ones(const ndp_model *m, int number, void *out) {
    (void)number; /* there is one such table */
    int64_t n = widest_head(ndp_decoder_facts(m));
    const ndp_view ones = {.data = out, .rows = 1, .cols = n, .ld = n, .dtype = m->opts.compute};
    for (int64_t i = 0; i < n; i++)
        ndp_view_set(&ones, 0, i, 1);
}

/* A row of the tables below: an input, and whether the model has it. */
#define OF(name, kind, extent, cols, type) FILLED(name, kind, extent, cols, type, NULL, 0)
#define FILLED(name, kind, extent, cols, type, fill, number)                                                           \
    { name, NDP_INPUT_##kind, NDP_EXTENT_##extent, cols, type, fill, number }
typedef struct input_row {
    bool there;
    ndp_input input;
} input_row;

static void add(ndp_inputs *inputs, const input_row *rows, int n) {
    for (int i = 0; i < n; i++)
        if (rows[i].there)
            ndp_inputs_add(inputs, rows[i].input);
}

/* Of every model: what a batch has, the loss, and tables of angles. */
static void add_common(ndp_model *m, const ndp_facts *f) {
    const ndp_dtype wide = ndp_wide(m->opts.compute);
    const int64_t sums = m->opts.preference.kind ? NDP_PAIR_SUMS : 1;
    const input_row rows[] = {
        {true, OF("tokens", TOKENS, TOKENS, 1, NDP_I32)},
        {true, OF("labels", LABELS, TOKENS, 1, NDP_I32)},
        {true, OF("rope_pos", POSITIONS, TOKENS, 1, NDP_I32)},
        {true, OF("q_pos", ROWS, QUERIES, 1, NDP_I32)},
        {true, OF("q_low", STARTS, QUERIES, 1, NDP_I32)},
        {true, OF("k_pos", ROWS, KEYS, 1, NDP_I32)},
        {f->delta.heads > 0, OF("state_low", STATE_STARTS, QUERIES, 1, NDP_I32)},
        {true, OF("loss_scale", LOSS_SCALE, ONE, 1, NDP_F64)},
        {true, OF("loss", LOSS, ONE, sums, NDP_F64)},
        {f->n_ropes > 0, FILLED("rope", TABLE, POSITIONS, f->ropes[0].dim, wide, fill_angles, 0)},
        {f->n_ropes > 1, FILLED("rope2", TABLE, POSITIONS, f->ropes[1].dim, wide, fill_angles, 1)},
        /* behind the tables of angles: the weights of norms that have none */
        {f->v_norm, FILLED("ones", TABLE, ONE, widest_head(f), m->opts.compute, fill_ones, 0)}};
    _Static_assert(NDP_ROPES == 2, "a row for each table of angles");
    add(m->inputs, rows, NDP_COUNT(rows));
}

/* What the mixers of the layers keep from call to call; mixers may share a row, by its name. */
static void add_caches(ndp_model *m, const ndp_facts *f) {
    for (int k = 0; k < f->n_kinds; k++)
        for (const ndp_mixer_cache *c = f->kinds[k].mixer->cache; c->name; c++)
            if (ndp_inputs_named(m->inputs, c->name) < 0)
                ndp_inputs_add(m->inputs, (ndp_input){.name = c->name,
                                                      .kind = NDP_INPUT_LENT,
                                                      .extent = c->extent,
                                                      .cols = c->cols(f),
                                                      .type = c->wide ? ndp_wide(m->opts.compute) : m->opts.compute});
}

/* Of preference data, dropout, and mixtures of experts. */
static void add_special(ndp_model *m, const ndp_facts *f) {
    const ndp_model_opts *o = &m->opts;
    const ndp_dtype wide = ndp_wide(o->compute);
    const ndp_router_losses losses = ndp_router_losses_of(f, o);
    const bool train = o->mode == NDP_MODEL_TRAIN, pairs = o->preference.kind && o->mode != NDP_MODEL_CACHED,
               drops = train && o->adapter.dropout > 0, mixtures = f->experts > 0,
               judged = losses.balance > 0 || losses.z_loss > 0;
    const input_row rows[] = {
        {pairs, OF("documents", DOCUMENTS, TOKENS, 1, NDP_I32)},
        {pairs, OF("reference", REFERENCE, DOCUMENTS, 1, NDP_F64)},
        {pairs, OF("scores", SCORES, DOCUMENTS, 2, NDP_F64)},
        {pairs, OF("nll_scale", NLL_SCALE, ONE, 1, NDP_F64)},
        /* what is dropped is a function of a row's key, of the unit, and of the column */
        {drops, OF("keys", KEYS, TOKENS, 1, NDP_I32)},
        {drops, FILLED("unit", UNIT_TABLE, ONE, 1, NDP_I32, ndp_units_fill, 0)},
        {mixtures && train && (o->routes & NDP_ROUTES_GIVEN), OF("choices", CHOICES, TOKENS, f->choices, NDP_I32)},
        {mixtures && train && (o->routes & NDP_ROUTES_RECORDED), OF("router", ROUTER, TOKENS, f->experts, wide)},
        {mixtures, OF("samples", SAMPLES, TOKENS, 1, NDP_I32)},
        {mixtures && train, OF("loads", LOADS, ONE, f->experts, NDP_F64)},
        {judged, OF("router_scale", ROUTER_SCALE, ONE, 1, NDP_F64)},
        {judged, OF("router_sums", ROUTER_SUMS, ONE, NDP_ROUTER_LOSSES, NDP_F64)}};
    add(m->inputs, rows, NDP_COUNT(rows));
}

ndp_status ndp_decoder_inputs(ndp_model *m) {
    const ndp_model_opts *o = &m->opts;
    const ndp_facts *f = ndp_decoder_facts(m);
    bool cached = o->mode == NDP_MODEL_CACHED;
    m->inputs = ndp_arena_alloc(&m->arena, sizeof *m->inputs);
    NDP_CHECK_MEMORY(m->inputs, "for the inputs of the model");
    *m->inputs = (ndp_inputs){.rows = {[NDP_EXTENT_ONE] = 1,
                                       [NDP_EXTENT_TOKENS] = o->rows,
                                       [NDP_EXTENT_QUERIES] = o->rows,
                                       [NDP_EXTENT_KEYS] = cached ? o->keys : o->rows,
                                       [NDP_EXTENT_POSITIONS] = o->positions,
                                       [NDP_EXTENT_UNITS] = f->layers + 2,
                                       [NDP_EXTENT_TEXTS] = !cached        ? 0
                                                            : o->texts > 0 ? o->texts
                                                                           : 1,
                                       [NDP_EXTENT_DOCUMENTS] = o->documents}};
    add_common(m, f);
    if (cached)
        add_caches(m, f);
    add_special(m, f);
    ndp_head_inputs(m);
    return NDP_OK;
}
