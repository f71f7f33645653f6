/* The table of a unit's values: what a rank has of each, on every axis. */
#include "placement/placement.h"

#include "placement/unit_trial.h"
#include <stdio.h>
#include <string.h>

/* A result of a call, on all lanes of a place on pp. */
typedef struct shown {
    ndp_phase phase;
    int call, out;
    char name[120];
    int64_t rows, cols;
    ndp_content *on; /* by lane of the place */
} shown;

typedef struct table {
    const ndp_lanes *lanes;
    const char *unit; /* NULL: all */
    ndp_str *text;
    ndp_arena arena;
    int place, graph; /* of the values collected; place: on pp */
    shown *items;
    int n;
    int64_t capacity;
    ndp_status status;
} table;

/* ---- a line ---- */

/* Rows of activations are rows of the batch; those of a weight's gradient are a dimension like its columns. */
static bool of_batch(const ndp_content *c) { return c->n > 0 && c->tiles[0].what.kind != NDP_THING_PGRADIENT; }

/* True if `a` has no columns (rows, if `rows`) that `b` has not. */
static bool within(const ndp_content *a, const ndp_content *b, bool rows) {
    for (int i = 0; i < a->n; i++) {
        const ndp_tile *x = &a->tiles[i];
        bool found = false;
        for (int k = 0; k < b->n && !found; k++) {
            const ndp_tile *y = &b->tiles[k];
            found = rows ? x->at_row == y->at_row && x->rows == y->rows
                         : ndp_things_equal(x->what, y->what) && x->at_col == y->at_col && x->cols == y->cols;
        }
        if (!found)
            return false;
    }
    return true;
}

/* What two lanes have of a value, compared. */
typedef struct difference {
    bool rows, cols, share;
} difference;

static difference compare(const ndp_content *a, const ndp_content *b) {
    difference d = {!within(a, b, true) || !within(b, a, true), !within(a, b, false) || !within(b, a, false), false};
    for (int i = 0; i < a->n && i < b->n; i++)
        d.share |= a->tiles[i].share != b->tiles[i].share;
    return d;
}

/* The state on an axis, as the first lane and those beside it on the axis have it. */
static const char *state_of(const table *t, const shown *s, ndp_axis axis) {
    const ndp_content *mine = &s->on[0];
    if (axis <= NDP_DP_SHARD)
        return of_batch(mine) ? "own" : "part";
    int stride = 1, repeats = 0;
    for (int a = axis + 1; a < NDP_AXES; a++)
        stride *= t->lanes->size[a];
    difference all = {false, false, false};
    for (int i = 1; i < t->lanes->size[axis]; i++) {
        difference d = compare(mine, &s->on[i * stride]);
        repeats += !d.rows && !d.cols;
        all.rows |= d.rows, all.cols |= d.cols, all.share |= d.share;
    }
    if (all.rows && all.cols)
        return "cut rows and columns";
    if (all.rows || all.cols)
        return all.rows && of_batch(mine) ? "cut rows"
               : all.rows                 ? repeats ? "cut, copies" : "cut"
               : all.share                ? repeats ? "cut columns, copies are parts" : "cut columns, part"
               : repeats                  ? "cut columns, copies"
                                          : "cut columns";
    return all.share ? "part" : "same";
}

static void print_line(const table *t, const shown *s) {
    ndp_str_addf(t->text, "  #%-4d %-44.44s [%lld,%lld]", s->call, s->name, (long long)s->rows, (long long)s->cols);
    const char *before = "  ";
    for (int axis = NDP_DP_REPLICATE; axis < NDP_AXES; axis++)
        if (t->lanes->size[axis] > 1) {
            ndp_str_addf(t->text, "%s%s: %s", before, ndp_axis_name((ndp_axis)axis), state_of(t, s, (ndp_axis)axis));
            before = ", ";
        }
    ndp_str_add(t->text, "\n");
}

/* ---- collecting ---- */

static shown *find(table *t, ndp_phase phase, int call, int out) {
    for (int i = t->n - 1; i >= 0; i--)
        if (t->items[i].phase == phase && t->items[i].call == call && t->items[i].out == out)
            return &t->items[i];
    return NULL;
}

static shown *add(table *t, ndp_phase phase, const ndp_rule *r, int out) {
    int n = t->lanes->stage;
    ndp_content *on;
    t->status = NDP_GROW(&t->arena, t->n, &t->capacity, t->items);
    t->status = t->status == NDP_OK ? NDP_NEW(&t->arena, n, on) : t->status;
    if (t->status != NDP_OK)
        return NULL;
    shown *s = &t->items[t->n++];
    *s = (shown){.phase = phase, .call = r->index, .out = out, .on = on};
    s->rows = r->out[out].rows, s->cols = r->out[out].cols;
    ndp_thing what = r->out[out].n > 0 ? r->out[out].tiles[0].what : (ndp_thing){NDP_THING_NONE, 0};
    bool given = what.kind == NDP_THING_DATA || what.kind == NDP_THING_PARAM || what.kind == NDP_THING_PACKED;
    const char *name = given ? "" : ndp_thing_name(r->g, what);
    bool gradient = what.kind == NDP_THING_GRADIENT || what.kind == NDP_THING_PGRADIENT;
    snprintf(s->name, sizeof s->name, "%s %s%s", r->c->op->name, gradient ? "d " : "", name[0] ? name : r->c->op->name);
    return s;
}

static void observe(void *user, int lane, ndp_phase phase, const ndp_rule *r) {
    table *t = user;
    int n = t->lanes->stage;
    for (int k = 0; k < r->c->n_out && t->status == NDP_OK; k++) {
        if (!ndp_rule_wants(r, k) || r->out[k].n == 0)
            continue;
        shown *s = find(t, phase, r->index, k);
        s = s ? s : add(t, phase, r, k);
        if (!s)
            continue;
        ndp_content *to = &s->on[lane % n];
        *to = ndp_content_of(&t->arena, r->out[k].rows, r->out[k].cols);
        t->status = ndp_content_move(&r->out[k], 0, to->rows, 0, to->cols, 0, 0, to);
    }
}

/* All phases of a unit were judged: writes their lines. */
static void unit_done(void *user, int unit, int lane) {
    table *t = user;
    const ndp_model *m = t->lanes->items[lane].program->opts.model;
    int phase = NDP_NONE;
    bool wanted = !t->unit || strcmp(t->unit, m->units[unit].name) == 0;
    if (wanted)
        ndp_str_addf(t->text, "\nunit %s\n", m->units[unit].name);
    for (int i = 0; i < t->n && wanted; i++) {
        if ((int)t->items[i].phase != phase)
            ndp_str_addf(t->text, " %s\n", ndp_phase_name(t->items[i].phase));
        phase = (int)t->items[i].phase;
        print_line(t, &t->items[i]);
    }
    t->n = 0;
}

static ndp_status check_name(const ndp_model *whole, const char *unit) {
    bool found = !unit;
    for (int i = 0; unit && i < whole->n_units; i++)
        found |= strcmp(whole->units[i].name, unit) == 0;
    return found ? NDP_OK
                 : NDP_FAIL(NDP_EINVAL, "there is no unit %s; the first is %s, the last %s", unit, whole->units[0].name,
                            whole->units[whole->n_units - 1].name);
}

/* The unit with that name, or all: its place on pp does not matter, since all its calls are the same. */
ndp_status ndp_placement_print(const ndp_placement_opts *o, const char *unit, ndp_str *out) {
    const int *coord = o->programs[0]->opts.step.mesh.coord;
    int dp[2] = {coord[NDP_DP_REPLICATE], coord[NDP_DP_SHARD]};
    ndp_lanes lanes;
    ndp_units *units = NULL;
    NDP_TRY(check_name(o->programs[0]->opts.whole, unit));
    table t = {.lanes = &lanes, .unit = unit, .text = out};
    ndp_status st = ndp_lanes_init(o->programs, o->n, dp, o->claims, &lanes);
    if (st == NDP_OK)
        st = ndp_units_prove(&lanes, &(ndp_units_watcher){observe, unit_done, unit, &t}, &units);
    st = st == NDP_OK ? t.status : st;
    ndp_units_release(units);
    ndp_lanes_release(&lanes);
    ndp_arena_release(&t.arena);
    return st;
}
