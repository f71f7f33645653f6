/* Inputs of which each mixture of experts has rows of its own: choices that are given to routers, and the logits that
 * they leave. The rows of this rank's mixtures follow each other, by their number in its model; the caller counts the
 * mixtures of the whole model, and the rows of a micro-batch before the axes cut it. And the loads of experts, which
 * have a row for each mixture of the whole model. */
#include "step/engine_parts.h"

#include <stdlib.h>
#include <string.h>

/* The number that a unit of this rank has among the mixtures of the whole model. */
static int mixture_of(const ndp_engine *e, const ndp_unit *u) { return ndp_engine_whole(e)->units[u->number].mixture; }

double *ndp_engine_loads(const ndp_engine *e, int64_t step) {
    return e->host.loads ? e->host.loads + step % NDP_STEPS_PENDING * ndp_program_loads(&e->program) : NULL;
}

int64_t *ndp_engine_later(const ndp_engine *e, int64_t step) {
    return e->host.later ? e->host.later + step % NDP_STEPS_PENDING * ndp_engine_whole(e)->inputs->mixtures.n : NULL;
}

int64_t *ndp_engine_later_of(const ndp_engine *e, const ndp_unit *u, ndp_phase phase) {
    int64_t *of = phase <= NDP_FORWARD_DROP && u->mixture != NDP_NONE ? ndp_engine_later(e, e->host.submitted) : NULL;
    return of ? of + mixture_of(e, u) : NULL;
}

/* The rows that this rank has, of its own mixtures. Padding goes nowhere; logits are the units' to write. */
void ndp_engine_fill_mixtures(const ndp_engine *e, const ndp_input *in, int64_t real, const ndp_micro_batch *whole,
                              int32_t *to) {
    ndp_row_cut cut = ndp_cut_rows(e->model.opts.rows, &e->opts.step.mesh, &e->opts.step.parallel);
    const ndp_inputs *inputs = e->model.inputs;
    int64_t rows = inputs->rows[in->extent], k = in->cols;
    bool given = in->kind == NDP_INPUT_CHOICES && whole->choices;
    memset(to, 0xff, (size_t)(inputs->mixtures.n * rows * k) * ndp_dtype_size(in->type)); /* -1, NaN */
    for (int u = 0; u < e->model.n_units && given; u++) {
        const ndp_unit *unit = &e->model.units[u];
        for (int64_t i = 0; i < rows && unit->mixture != NDP_NONE; i++) {
            int64_t t = ndp_row_cut_at(&cut, in->extent, i);
            if (t < real)
                memcpy(to + (unit->mixture * rows + i) * k, whole->choices + (mixture_of(e, unit) * real + t) * k,
                       (size_t)k * sizeof *to);
        }
    }
}

/* The rows of an input that this rank's routers see first: with ep its slice of them, else those of all ranks of tp,
 * the first of which has them. */
static void own_rows(const ndp_engine *e, const ndp_row_cut *cut, int64_t n, int64_t *first, int64_t *end) {
    const ndp_mesh *mesh = &e->opts.step.mesh;
    int tp = mesh->coord[NDP_TP];
    bool sliced = ndp_mixtures_are_sliced(mesh);
    *first = sliced ? tp * cut->routed : 0;
    *end = sliced ? *first + cut->routed : tp == 0 ? n : 0;
}

/* Copies to `rows` what a mixture has of the input, and visits each row of this rank that is no padding. */
static ndp_status visit_mixture(const ndp_engine *e, int input, int unit, int micro_batch, char *rows,
                                ndp_row_visitor *visit, void *user) {
    const ndp_input *in = &e->model.inputs->items[input];
    ndp_row_cut cut = ndp_cut_rows(e->model.opts.rows, &e->opts.step.mesh, &e->opts.step.parallel);
    size_t row = (size_t)in->cols * ndp_dtype_size(in->type);
    int64_t n = e->model.inputs->rows[in->extent], first, end;
    own_rows(e, &cut, n, &first, &end);
    NDP_TRY(ndp_engine_copy(e, rows, ndp_engine_input_at(e, input, unit, micro_batch), (size_t)n * row, true));
    for (int64_t i = first; i < end; i++) {
        int64_t t = ndp_row_cut_at(&cut, in->extent, i);
        if (t < cut.real)
            visit(user, t, rows + (size_t)i * row);
    }
    return NDP_OK;
}

ndp_status ndp_engine_mixture(const ndp_engine *e, int micro_batch, ndp_input_kind kind, int mixture,
                              ndp_row_visitor *visit, void *user) {
    const ndp_inputs *inputs = e->model.inputs;
    int input = ndp_inputs_find(inputs, kind), unit = 0;
    if (input < 0)
        return NDP_FAIL(NDP_EBUG, "the model records nothing of its mixtures");
    while (unit < e->model.n_units &&
           (e->model.units[unit].mixture == NDP_NONE || mixture_of(e, &e->model.units[unit]) != mixture))
        unit++;
    if (unit == e->model.n_units)
        return NDP_OK;
    size_t bytes = ndp_input_bytes(inputs, input) / (size_t)inputs->mixtures.n;
    char *rows = malloc(bytes + 1);
    NDP_CHECK_MEMORY(rows, "for %zu bytes of the input %s", bytes, inputs->items[input].name);
    ndp_status st = visit_mixture(e, input, unit, micro_batch, rows, visit, user);
    free(rows);
    return st;
}
