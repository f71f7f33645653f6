/* A decoder's tables, frozen units and units; decoder.c writes their graphs. Also the random weights to start from. */
#include "model/model.h"

#include "base/rng.h"
#include "model/families.h"
#include "model/unit_builder.h"
#include <fnmatch.h>
#include <math.h>
#include <string.h>

_Static_assert((int)NDP_PARAMS <= (int)NDP_MOST_SEGMENTS, "a buffer may have a segment for each place");

static ndp_status init_buffer(ndp_model *m, int i, const char *name) {
    m->buffers[i] =
        (ndp_buffer){.name = name, .trainable = true, .owners = NDP_GROUP_SHARD, .copies = NDP_GROUP_REPLICATE};
    m->buffers[i].segments.items = ndp_arena_alloc(&m->arena, NDP_PARAMS * sizeof(ndp_segment));
    return name && m->buffers[i].segments.items ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "no memory for the model's tables");
}

static ndp_status build_tables(ndp_model *m, int at[NDP_PARAMS]) {
    const ndp_facts *f = &m->facts;
    m->n_buffers = f->layers + 2;
    m->buffers = ndp_arena_alloc(&m->arena, (size_t)m->n_buffers * sizeof *m->buffers);
    if (!m->buffers)
        return NDP_FAIL(NDP_ENOMEM, "no memory for the tables of %d layers", f->layers);
    for (int i = 0; i < m->n_buffers; i++) {
        ndp_part_of unit = i == 0 ? NDP_OF_EMBEDDING : i == m->n_buffers - 1 ? NDP_OF_HEAD : NDP_OF_BLOCK;
        const char *name = "embed", *prefix = "";
        if (unit == NDP_OF_BLOCK) {
            name = ndp_arena_format(&m->arena, "layers.%d", i - 1);
            prefix = ndp_arena_format(&m->arena, "%s.%d.", f->names->layers, i - 1);
        } else if (unit == NDP_OF_HEAD) {
            name = "head";
        }
        NDP_TRY(init_buffer(m, i, prefix ? name : NULL));
        NDP_TRY(ndp_table_fill(f, unit, prefix, &m->arena, &m->buffers[i].segments, at));
        ndp_segments_layout(&m->buffers[i].segments);
    }
    return NDP_OK;
}

/* ---- frozen units ---- */

static bool is_frozen(const ndp_model_opts *o, const char *unit) {
    for (int i = 0; i < o->n_frozen; i++)
        if (fnmatch(o->frozen[i], unit, 0) == 0)
            return true;
    return false;
}

/* A pattern that freezes nothing is a mistake, and so is a model without anything to train. */
static ndp_status freeze(ndp_model *m) {
    int trainable = 0;
    for (int i = 0; i < m->n_buffers; i++)
        trainable += m->buffers[i].trainable = !is_frozen(&m->opts, m->buffers[i].name);
    for (int i = 0; i < m->n_buffers; i++)
        m->buffers[i].storage = ndp_storage_of(&m->opts, m->buffers[i].trainable);
    for (int k = 0; k < m->opts.n_frozen; k++) {
        int i = 0;
        while (i < m->n_buffers && fnmatch(m->opts.frozen[k], m->buffers[i].name, 0) != 0)
            i++;
        NDP_CHECK(i < m->n_buffers, "model.frozen: no unit is called %s; they are embed, layers.0 to layers.%d, head",
                  m->opts.frozen[k], m->facts.layers - 1);
    }
    NDP_CHECK(trainable > 0, "model.frozen names all %d units: nothing is left to train", m->n_buffers);
    return NDP_OK;
}

/* ---- units ---- */

static ndp_status build_units(ndp_model *m) {
    m->n_units = m->facts.layers + 2;
    m->units = ndp_arena_alloc(&m->arena, (size_t)m->n_units * sizeof *m->units);
    if (!m->units)
        return NDP_FAIL(NDP_ENOMEM, "no memory for %d units", m->n_units);
    for (int i = 0; i < m->n_units; i++) {
        m->units[i] = (ndp_unit){.name = m->buffers[i].name, .buffers = {i}};
        for (int s = 1; s < NDP_SLOTS; s++)
            m->units[i].buffers[s] = NDP_NONE;
    }
    if (m->facts.tied)
        m->units[m->n_units - 1].buffers[1] = 0;
    return NDP_OK;
}

ndp_status ndp_model_build(const ndp_facts *facts, const ndp_model_opts *opts, ndp_model *out) {
    ndp_model m = {.facts = *facts, .opts = *opts};
    int at[NDP_PARAMS];
    for (int i = 0; opts->window > 0 && i < facts->n_kinds; i++)
        m.facts.kinds[i].window = opts->window;
    ndp_status st;
    NDP_TRY_GOTO(ndp_build_inputs(&m), fail);
    NDP_TRY_GOTO(build_tables(&m, at), fail);
    NDP_TRY_GOTO(freeze(&m), fail);
    NDP_TRY_GOTO(build_units(&m), fail);
    NDP_TRY_GOTO(ndp_build_graphs(&m, at), fail);
    *out = m;
    return NDP_OK;
fail:
    ndp_model_release(&m);
    return st;
}

void ndp_model_release(ndp_model *m) {
    for (int i = 0; i < m->n_graphs; i++)
        ndp_graph_release(&m->graphs[i]);
    ndp_arena_release(&m->arena);
    *m = (ndp_model){0};
}

/* Whether `name` is that of a block's tensor `within`, less ".weight". */
static bool is_weight_of(const char *name, const char *within) {
    static const char suffix[] = ".weight";
    size_t n = strlen(name), m = strlen(within), s = sizeof suffix - 1;
    return n > m + s && name[n - m - s - 1] == '.' && strncmp(name + n - m - s, within, m) == 0;
}

static double matrix_std(const ndp_facts *f, const char *name) {
    bool to_stream = is_weight_of(name, f->names->o) || is_weight_of(name, f->names->down);
    return f->depth_init && to_stream ? f->init_std / sqrt(2.0 * f->layers) : f->init_std;
}

void ndp_model_random(const ndp_facts *f, uint64_t seed, const ndp_segment *s, int64_t first, int64_t count,
                      float *out) {
    size_t n = strlen(s->name);
    bool bias = n >= 5 && strcmp(s->name + n - 5, ".bias") == 0;
    if (s->ndim == 2) {
        ndp_rng_normal(seed, ndp_rng_stream(s->name), (uint64_t)first, count, matrix_std(f, s->name), out);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        out[i] = bias || f->unit_offset ? 0.0f : 1.0f;
}
