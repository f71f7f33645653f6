/* Builds a model of a program's own (ndparallel/model.h): its build function calls what is here and in own_ops.c, unit
 * by unit, and each unit's graph is written as its ops are named. A graph that an earlier unit has too is dropped, so
 * the program does not say which units are alike.
 *
 * Nothing that the program passes may crash or reach another room as a bug: numbers of values, shapes, cuts and names
 * are checked here, before the graph sees them, and the first error is kept until build returns. */
#include "model/own_builder.h"

#include "model/adapter_names.h"
#include "model/group_names.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNIT_NAME = 64, VALUE_BITS = 14, MOST_VALUES = 1 << VALUE_BITS, MOST_UNITS = 1 << 16, UNIT_BUFFERS = 4 };

/* Of a tensor: sums over a model stay far below 2^63. */
static const int64_t MOST_ELEMENTS = (int64_t)1 << 46;

/* ---- errors ---- */

void ndp_build_fail(ndp_model_builder *b, const char *format, ...) {
    if (!b || !format || b->st != NDP_OK)
        return;
    va_list args;
    va_start(args, format);
    char *text = ndp_vformat(format, args);
    va_end(args);
    const ndp_model *m = b->m;
    b->st = NDP_FAIL(NDP_EINVAL, "%s: %s%s%s%s", b->f->type, m->n_units ? "unit " : "",
                     m->n_units ? m->units[m->n_units - 1].name : "", m->n_units ? ": " : "",
                     text ? text : "not enough memory");
    free(text);
}

static void keep(ndp_model_builder *b, ndp_status st) { b->st = b->st == NDP_OK ? st : b->st; }

/* ---- values ---- */

ndp_unit *ndp_own_unit(ndp_model_builder *b, const char *what) {
    if (b->st == NDP_OK && (b->m->n_units == 0 || b->ended))
        ndp_build_fail(b, "%s: %s", what, b->ended ? "the head has ended the model" : "begin a unit first");
    return b->st == NDP_OK ? &b->m->units[b->m->n_units - 1] : NULL;
}

int ndp_own_number(ndp_model_builder *b, int value, ndp_dim dim, int64_t grain) {
    keep(b, b->graph.status);
    if (b->st == NDP_OK && value >= MOST_VALUES)
        ndp_build_fail(b, "it has more than %d values", MOST_VALUES);
    int64_t room = b->value_room;
    if (b->st == NDP_OK)
        keep(b, ndp_array_reserve(&b->values, &b->value_room, value + 1, sizeof *b->values));
    if (b->st != NDP_OK)
        return 0;
    memset(b->values + room, 0, (size_t)(b->value_room - room) * sizeof *b->values);
    b->values[value] = (ndp_own_value){.made = true, .dim = dim, .grain = grain};
    return (b->m->n_units << VALUE_BITS) | value;
}

int ndp_own_use(ndp_model_builder *b, const char *what, int number) {
    int value = number & (MOST_VALUES - 1), unit = number >> VALUE_BITS;
    if (!ndp_own_unit(b, what))
        return NDP_NONE;
    if (number <= 0 || unit != b->m->n_units || value >= b->graph.n_values || value >= b->value_room ||
        !b->values[value].made)
        ndp_build_fail(b, "%s: %d is no value of this unit; ndp_build_unit returns the result of the one before", what,
                       number);
    else if (b->values[value].changed)
        ndp_build_fail(b, "%s: ndp_build_scale has changed %s; use its result", what, b->graph.values[value].name);
    else
        b->values[value].used = true;
    return b->st == NDP_OK ? value : NDP_NONE;
}

bool ndp_own_is_read(const ndp_model_builder *b, int number) {
    int value = number & (MOST_VALUES - 1);
    return b->st == NDP_OK && value < b->value_room && b->values[value].used;
}

/* ---- tensors ---- */

static bool is_name(const char *name) {
    size_t n = 0;
    while (isalnum((unsigned char)name[n]) || (name[n] && strchr("._-", name[n])))
        n++;
    return n > 0 && n < UNIT_NAME && !name[n] && name[0] != '.' && name[n - 1] != '.';
}

static bool is_taken(const ndp_model_builder *b, const char *tensor) {
    const ndp_unit *u = &b->m->units[b->m->n_units - 1];
    bool taken = false;
    for (int s = 0; s < NDP_SLOTS; s++)
        for (int i = 0; u->buffers[s] != NDP_NONE && i < b->m->buffers[u->buffers[s]].segments.n; i++)
            taken |= strcmp(b->m->buffers[u->buffers[s]].segments.items[i].name, tensor) == 0;
    return taken;
}

/* The place of one that is trained whole, or packed, in an adapter's model is that of tables.c. */
static int slot_of(const ndp_model_opts *o, const ndp_segment *s) {
    bool packed = s->projection && o->base != NDP_PACKING_NONE;
    return packed ? NDP_SLOT_KEPT : ndp_adapter_saves(&o->adapter, s->name, NULL) ? NDP_SLOT_ADAPTER : NDP_SLOT_OWN;
}

/* The buffers of a unit change while its tensors are declared. */
static void lay_out(ndp_model_builder *b, const ndp_unit *u) {
    for (int s = 0; s < NDP_SLOTS; s++) {
        if (u->buffers[s] == NDP_NONE)
            continue;
        ndp_buffer *of = &b->m->buffers[u->buffers[s]];
        if (s != NDP_SLOT_TIED) {
            of->trainable = !of->base && ndp_unit_trains(&b->m->opts, u->name, s);
            ndp_segments_layout(&of->segments);
        }
        b->graph.slots[s] = &of->segments;
        b->graph.frozen[s] = !of->trainable;
    }
}

void ndp_own_tensor(ndp_model_builder *b, const char *name, const char *ending, ndp_segment s, ndp_place *at) {
    *at = (ndp_place){0, NDP_NONE};
    ndp_unit *u = ndp_own_unit(b, name ? name : "a tensor");
    if (!u)
        return;
    if (!name || !is_name(name)) {
        ndp_build_fail(b, "'%.80s' is no name of a tensor: letters, digits, '.', '_', '-'", name ? name : "");
        return;
    }
    s.name = ndp_arena_format(&b->m->arena, "%s.%s%s", u->name, name, ending);
    if (s.rows < 1 || s.cols < 1 || s.rows > INT32_MAX || s.cols > INT32_MAX || s.rows * s.cols > MOST_ELEMENTS)
        ndp_build_fail(b, "tensor %s is [%lld, %lld]", s.name, (long long)s.rows, (long long)s.cols);
    else if (s.name && is_taken(b, s.name))
        ndp_build_fail(b, "it has two tensors %s", s.name);
    else if (s.name && strlen(s.name) >= NDP_SEGMENT_NAME / 4)
        ndp_build_fail(b, "the name of tensor %s is too long", s.name);
    if (b->st != NDP_OK)
        return;
    int slot = s.name ? slot_of(&b->m->opts, &s) : NDP_SLOT_OWN;
    keep(b, ndp_unit_trained_slot(b->m, u, &s, NULL, s.glued ? at[-1] : (ndp_place){0, NDP_NONE}, &slot));
    if (b->st != NDP_OK)
        return;
    int buffer = u->buffers[slot];
    s.coded &= ndp_segment_tensor_elements(&s) >= NDP_LEAST_CODED;
    if (buffer != NDP_NONE && b->m->buffers[buffer].segments.n == NDP_MOST_SEGMENTS)
        ndp_build_fail(b, "%s is tensor %d of it; a unit has at most %d", s.name, NDP_MOST_SEGMENTS + 1,
                       NDP_MOST_SEGMENTS);
    else
        keep(b, ndp_unit_append(b->m, u, slot, &s, at));
    if (b->st == NDP_OK)
        lay_out(b, u);
}

/* Only blocks have adapters (adapter_names.c). */
void ndp_own_factors(ndp_model_builder *b, ndp_param place, int n, ndp_param_places *places) {
    ndp_unit *u = &b->m->units[b->m->n_units - 1];
    ndp_place first = places->at[place];
    if (!b->m->buffers[u->buffers[first.slot]].segments.items[first.segment].projection)
        return;
    int buffer = u->buffers[NDP_SLOT_ADAPTER], room = NDP_MOST_SEGMENTS - n * NDP_FACTORS;
    if (b->m->opts.adapter.r > 0 && buffer != NDP_NONE && b->m->buffers[buffer].segments.n > room)
        ndp_build_fail(b, "it has more than %d tensors of an adapter", room);
    else
        keep(b, ndp_unit_factors(b->m, u, place, n, places));
    if (b->st == NDP_OK)
        lay_out(b, u);
}

int ndp_own_param(ndp_model_builder *b, ndp_place at) {
    return b->st == NDP_OK ? ndp_graph_param(&b->graph, at.slot, at.segment, 1) : 0;
}

/* ---- graphs that are alike ---- */

static bool same_segment(const ndp_segment *a, const ndp_segment *b) {
    return a->rows == b->rows && a->cols == b->cols && a->ndim == b->ndim && a->glued == b->glued &&
           memcmp(a->dim, b->dim, sizeof a->dim) == 0 && memcmp(a->grain, b->grain, sizeof a->grain) == 0;
}

static bool same_segments(const ndp_segments *a, const ndp_segments *b) {
    bool same = !a == !b && (!a || (a->n == b->n && a->packing == b->packing));
    for (int i = 0; same && a && i < a->n; i++)
        same = same_segment(&a->items[i], &b->items[i]);
    return same;
}

static const ndp_segments *slot(const ndp_model *m, const ndp_unit *u, int s) {
    return u->buffers[s] == NDP_NONE ? NULL : &m->buffers[u->buffers[s]].segments;
}

static bool same_graph(const ndp_model_builder *b, int g) {
    const ndp_unit *of = &b->m->units[b->first_with[g]], *u = &b->m->units[b->m->n_units - 1];
    bool same = ndp_graphs_alike(&b->m->graphs[g], &b->graph);
    for (int s = 0; same && s < NDP_SLOTS; s++)
        same = same_segments(slot(b->m, of, s), slot(b->m, u, s));
    return same;
}

/* Gives the unit its graph. */
static void keep_graph(ndp_model_builder *b) {
    ndp_model *m = b->m;
    int g = 0;
    while (g < m->n_graphs && !same_graph(b, g))
        g++;
    if (g == NDP_MAX_GRAPHS) {
        ndp_build_fail(b,
                       "it computes something else than all units before it, %d kinds of them; a model has at most %d",
                       g, NDP_MAX_GRAPHS);
        return;
    }
    m->units[m->n_units - 1].graph = g;
    if (g < m->n_graphs) {
        ndp_graph_release(&b->graph);
        return;
    }
    b->first_with[g] = m->n_units - 1;
    m->graphs[m->n_graphs++] = b->graph;
    b->graph = (ndp_graph){0};
}

/* ---- units ---- */

/* A result that nothing reads would leave tensors without a gradient. */
static void check_used(ndp_model_builder *b) {
    for (int i = 0; i < b->graph.n_values && i < b->value_room && b->st == NDP_OK; i++)
        if (b->values[i].made && !b->values[i].used)
            ndp_build_fail(b, "nothing reads %s [%lld, %lld]",
                           i == b->graph.input ? "its first value" : b->graph.values[i].name,
                           (long long)b->graph.values[i].view.rows, (long long)b->graph.values[i].view.cols);
}

/* `value`: its result; NDP_NONE: the loss. */
static void end_unit(ndp_model_builder *b, int value) {
    ndp_model *m = b->m;
    const ndp_unit *u = &m->units[m->n_units - 1];
    keep(b, b->graph.status);
    check_used(b);
    if (b->st != NDP_OK)
        return;
    if (value != NDP_NONE)
        ndp_graph_output(&b->graph, value);
    for (int s = 0; s < NDP_SLOTS; s++)
        b->trains |= u->buffers[s] != NDP_NONE && m->buffers[u->buffers[s]].trainable;
    keep_graph(b);
    memset(b->values, 0, (size_t)b->value_room * sizeof *b->values);
}

/* The result of the unit before the one that begins: NDP_NONE, and an error, if it cannot be one. */
static int result_of(ndp_model_builder *b, int x) {
    int value = ndp_own_use(b, "ndp_build_unit", x);
    if (b->st != NDP_OK)
        return NDP_NONE;
    const ndp_view *v = &b->graph.values[value].view;
    if (value == b->graph.input)
        ndp_build_fail(b, "its result is its first value: it computes nothing");
    else if (b->values[value].dim != NDP_DIM_WHOLE)
        ndp_build_fail(b, "its result is cut by tensor parallelism; end it with ndp_build_linear");
    else if (v->cols != b->f->hidden)
        ndp_build_fail(b, "its result has %lld columns, and the embedding has %d", (long long)v->cols, b->f->hidden);
    return value;
}

/* Room for a unit and its buffers, whose addresses change. */
static void make_room(ndp_model_builder *b) {
    ndp_model *m = b->m;
    keep(b, ndp_array_reserve(&m->units, &b->unit_room, m->n_units + 1, sizeof *m->units));
    keep(b, ndp_array_reserve(&m->buffers, &b->buffer_room, m->n_buffers + UNIT_BUFFERS, sizeof *m->buffers));
    if (b->st == NDP_OK && m->n_units >= MOST_UNITS)
        ndp_build_fail(b, "it has more than %d units", MOST_UNITS);
}

static void begin_graph(ndp_model_builder *b, const char *name) {
    keep(b, ndp_graph_init(&b->graph, name, b->m->opts.compute, b->m->opts.master));
    b->graph.inputs = b->m->inputs;
    b->graph.ends_backward = !b->trains;
    b->dropouts = 0;
}

int ndp_build_unit(ndp_model_builder *b, int x, const char *format, ...) {
    if (!b || !format || b->st != NDP_OK)
        return 0;
    char name[UNIT_NAME + 1];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    ndp_model *m = b->m;
    bool first = m->n_units == 0;
    if (first && x != 0)
        ndp_build_fail(b, "ndp_build_unit: the first unit begins with 0, not %d", x);
    else if (!first)
        end_unit(b, result_of(b, x));
    for (int u = 0; u < m->n_units && b->st == NDP_OK; u++)
        if (strcmp(m->units[u].name, name) == 0)
            ndp_build_fail(b, "ndp_build_unit: there is a unit %s already", name);
    if (b->st == NDP_OK && !is_name(name))
        ndp_build_fail(b, "'%s' is no name of a unit: 1 to %d letters, digits, '.', '_', '-'", name, UNIT_NAME - 1);
    make_room(b);
    if (b->st != NDP_OK)
        return 0;
    ndp_unit u = {.name = ndp_arena_strdup(&m->arena, name), .mixture = NDP_NONE};
    for (int s = 0; s < NDP_SLOTS; s++)
        u.buffers[s] = NDP_NONE;
    if (!u.name)
        keep(b, NDP_FAIL(NDP_ENOMEM, "not enough memory for the units of a model"));
    if (b->st != NDP_OK)
        return 0;
    m->units[m->n_units++] = u;
    begin_graph(b, u.name);
    return first ? 0 : ndp_own_number(b, ndp_graph_input(&b->graph, m->opts.rows, b->f->hidden), NDP_DIM_WHOLE, 1);
}

/* ---- a model ---- */

/* What it was not built for. */
static ndp_status check_opts(const ndp_own_facts *f, const ndp_model_opts *o) {
    const char *what = o->mode == NDP_MODEL_CACHED ? "generation"
                       : o->preference.kind        ? "a loss of pairs (data.format: preference)"
                                                   : NULL;
    if (what)
        return NDP_FAIL(NDP_ENOTSUP, "%s: %s is not supported in an architecture of a program's own", f->type, what);
    const ndp_router_opts *r = &o->router;
    NDP_CHECK(r->balance != NDP_BALANCE_SEQUENCE && r->balance_coef == 0 && r->z_loss == 0 && r->bias_rate == 0,
              "the model has no mixture layers, and so no router: remove moe.balance, moe.balance_coef, moe.z_loss, "
              "moe.bias_rate");
    return NDP_OK;
}

/* Units and buffers move into the model, and graphs see those of their first unit. */
static ndp_status settle(ndp_model_builder *b) {
    ndp_model *m = b->m;
    size_t units = (size_t)m->n_units * sizeof *m->units, buffers = (size_t)m->n_buffers * sizeof *m->buffers;
    ndp_unit *u = ndp_arena_alloc(&m->arena, units);
    ndp_buffer *of = ndp_arena_alloc(&m->arena, buffers);
    NDP_CHECK_MEMORY(u && of, "for the tables of %d units", m->n_units);
    memcpy(u, m->units, units);
    memcpy(of, m->buffers, buffers);
    free(m->units);
    free(m->buffers);
    m->units = u, m->buffers = of;
    for (int g = 0; g < m->n_graphs; g++)
        for (int s = 0; s < NDP_SLOTS; s++)
            m->graphs[g].slots[s] = slot(m, &m->units[b->first_with[g]], s);
    m->inputs->rows[NDP_EXTENT_UNITS] = m->n_units;
    return NDP_OK;
}

static ndp_status finish(ndp_model_builder *b) {
    ndp_model *m = b->m;
    if (b->st == NDP_OK && !b->ended)
        ndp_build_fail(b, "the model has no head: end it with ndp_build_head");
    if (b->st == NDP_OK)
        end_unit(b, NDP_NONE);
    if (b->st == NDP_OK && m->n_units < 3)
        ndp_build_fail(b, "the model has %d units; it has an embedding, one block or more, and a head", m->n_units);
    if (b->st == NDP_OK && m->opts.window > 0 && b->f->layout.heads == 0)
        keep(b, NDP_FAIL(NDP_ENOTSUP, "%s: model.sliding_window is set, and the model has no attention", b->f->type));
    NDP_TRY(b->st);
    b->f->layout.layers = m->n_units - 2;
    NDP_TRY(settle(b));
    NDP_TRY(ndp_adapter_check(m, NULL));
    NDP_TRY(ndp_model_freeze(m));
    NDP_TRY(ndp_trained_check(m, NULL));
    return ndp_groups_name(m, NULL);
}

ndp_status ndp_own_build(const ndp_own_facts *f, const ndp_model_opts *opts, ndp_model *out) {
    ndp_model m;
    ndp_status st;
    NDP_TRY(check_opts(f, opts));
    NDP_TRY(ndp_model_init(&ndp_own_table, f, opts, &m));
    ndp_model_builder b = {.m = &m, .f = (ndp_own_facts *)(uintptr_t)m.facts};
    b.f->n_ropes = 0;
    b.f->hidden = 0, b.f->vocab = 0, b.f->layout = (ndp_layout_facts){0};
    st = ndp_own_begin_inputs(&b);
    if (st == NDP_OK) {
        f->of.build(f->facts, &b);
        st = finish(&b);
    }
    ndp_graph_release(&b.graph);
    free(b.values);
    if (st == NDP_OK) {
        *out = m;
        return NDP_OK;
    }
    ndp_trail_add(__FILE__, __LINE__);
    bool settled = m.inputs && m.inputs->rows[NDP_EXTENT_UNITS] > 0;
    free(settled ? NULL : m.units);
    free(settled ? NULL : m.buffers);
    ndp_model_release(&m);
    return st;
}
