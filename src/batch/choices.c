/* Tables of choices, and the file of moe.routes. */
#include "batch/choices.h"

#include "base/text.h"
#include "checkpoint/safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t rows_of(int updates, const ndp_mixtures *m, int64_t rows) { return updates * m->n * rows; }

int64_t ndp_choices_bytes(int updates, const ndp_mixtures *m, int64_t rows) {
    return rows_of(updates, m, rows) * (m->choices * (int64_t)sizeof(int32_t) + m->experts * (int64_t)sizeof(float));
}

ndp_status ndp_choices_init(ndp_choices *c, int updates, const ndp_mixtures *m, int64_t rows, bool probabilities) {
    size_t all = (size_t)rows_of(updates, m, rows);
    *c = (ndp_choices){.updates = updates, .mixtures = *m, .rows = rows};
    c->chosen = calloc(all * (size_t)m->choices + 1, sizeof *c->chosen);
    if (probabilities)
        c->probabilities = calloc(all * (size_t)m->experts + 1, sizeof *c->probabilities);
    if (c->chosen && (c->probabilities || !probabilities))
        return NDP_OK;
    ndp_choices_release(c);
    return NDP_FAIL(NDP_ENOMEM, "not enough memory for the choices of %d mixtures in %d updates of %lld rows", m->n,
                    updates, (long long)rows);
}

void ndp_choices_release(ndp_choices *c) {
    free(c->chosen);
    free(c->probabilities);
    *c = (ndp_choices){0};
}

/* ---- a file ---- */

/* A row's experts are different ones, or all -1. */
static ndp_status check_row(const char *path, const char *tensor, int64_t row, const int32_t *chosen,
                            const ndp_mixtures *m) {
    for (int j = 0; j < m->choices; j++) {
        bool fits = chosen[0] < 0 ? chosen[j] == -1 : chosen[j] >= 0 && chosen[j] < m->experts;
        for (int i = 0; i < j && chosen[j] >= 0; i++)
            fits = fits && chosen[i] != chosen[j];
        if (!fits)
            return NDP_FAIL(NDP_EFORMAT,
                            "%s: %s: choice %d of row %lld is %d: a row has %d different experts of 0 to %d, or -1 %d "
                            "times",
                            path, tensor, j, (long long)row, chosen[j], m->choices, m->experts - 1, m->choices);
    }
    return NDP_OK;
}

static ndp_status read_mixture(const ndp_safetensors *f, const char *unit, ndp_choices *c, int mixture) {
    const char *path = ndp_safetensors_path(f);
    char name[160], shape[128] = "missing";
    snprintf(name, sizeof name, "%s.choices", unit);
    const ndp_tensor_entry *t = ndp_safetensors_find(f, name);
    bool fits = t && t->spec.dtype == NDP_I32 && t->spec.ndim == 2 && t->spec.shape[0] == c->rows &&
                t->spec.shape[1] == c->mixtures.choices;
    if (t)
        ndp_shape_text(&t->spec, shape, sizeof shape);
    if (!fits)
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: %s is %s %s; moe.routes needs I32 [%lld, %d]: a row for each token of the "
                        "global batch, its experts",
                        path, name, t ? t->type_name : "", shape, (long long)c->rows, c->mixtures.choices);
    int32_t *chosen = c->chosen + ndp_choices_row(c, 0, mixture, 0) * c->mixtures.choices;
    NDP_TRY(ndp_safetensors_read(f, t, 0, t->elements, chosen, NDP_I32, false));
    for (int64_t row = 0; row < c->rows; row++)
        NDP_TRY(check_row(path, name, row, chosen + row * c->mixtures.choices, &c->mixtures));
    return NDP_OK;
}

ndp_status ndp_choices_read(const char *path, const ndp_model *m, int64_t rows, ndp_choices *out) {
    ndp_safetensors *f;
    ndp_choices c;
    NDP_CHECK(m->inputs->mixtures.n > 0, "moe.routes is %s, but the model has no mixture of experts to route", path);
    NDP_TRY(ndp_safetensors_open(path, &f));
    ndp_status st = ndp_choices_init(&c, 1, &m->inputs->mixtures, rows, false);
    for (int u = 0; u < m->n_units && st == NDP_OK; u++)
        if (m->units[u].mixture != NDP_NONE)
            st = read_mixture(f, m->units[u].name, &c, m->units[u].mixture);
    if (st == NDP_OK)
        st = ndp_safetensors_check(f);
    ndp_safetensors_close(f);
    if (st == NDP_OK)
        *out = c;
    else
        ndp_choices_release(&c);
    return st;
}
