/* The weights that an engine starts from: of a model folder or random ones, and what a run or an adapter changed of
 * them.
 */
#include "base/hub.h"
#include "model/architecture.h"
#include "model/tensors.h"
#include "weights/adapter_use.h"
#include "weights/packed_weights.h"
#include "weights/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 8192 }; /* elements that are moved at a time: they stay in the cache */

typedef struct weight_filling {
    const ndp_weight_sources *sources;
    const ndp_model *model;
    const ndp_weights *folder;      /* NULL: random */
    const ndp_weights *own;         /* what a run or an adapter changed; NULL: nothing */
    const ndp_adapter_match *match; /* which of them are whose, of an adapter; NULL: by their names */
    ndp_dtype rounded;              /* its values */
} weight_filling;

/* ---- the model ---- */

/* At most BLOCK elements of a tensor of the model, in its master type. */
static ndp_status read_model(const weight_filling *f, const ndp_segment *s, int64_t first, int64_t count, void *out) {
    ndp_dtype master = f->model->opts.master;
    float values[BLOCK];
    if (f->folder && !s->drawn)
        return ndp_weights_read(f->folder, s->name, first, count, out, master, true);
    f->model->architecture->random(f->model->facts, f->sources->seed, s, first, count, values);
    ndp_convert(values, NDP_F32, out, master, count);
    return NDP_OK;
}

/* ---- what changed ---- */

static ndp_status read_own(const weight_filling *f, const ndp_segment *s, const char *tensor, int64_t first,
                           int64_t count, void *out) {
    double rounded[BLOCK];
    ndp_dtype type = s->no_grad ? ndp_wide(f->rounded) : f->rounded;
    NDP_TRY(ndp_weights_read(f->own, tensor, first, count, rounded, type, true));
    ndp_convert(rounded, type, out, f->model->opts.master, count);
    return NDP_OK;
}

/* A tensor in the set of what changed; NULL: it is as it was. */
static const ndp_tensor_entry *find_own(const weight_filling *f, const char *name) {
    if (!f->own || !f->match || ndp_factor_of(name) != NDP_NO_FACTOR)
        return f->own ? ndp_weights_find(f->own, name) : NULL;
    const ndp_adapted_tensor *t = ndp_adapter_match_find(f->match, name);
    return t ? t->parts[NDP_NO_FACTOR] : NULL;
}

/* ---- new factors ---- */

/* The tensor of the model beside which a factor is: its name in `room`. */
static ndp_segment base_of(const weight_filling *f, const ndp_segment *s, char *room, size_t size) {
    char module[NDP_MODULE_NAME];
    ndp_module_of(s->name, module);
    snprintf(room, size, "%.*s.weight", (int)size - 8, module);
    const ndp_segment *w = ndp_model_segment(f->model, room);
    return w ? *w : (ndp_segment){.name = room, .ndim = 2};
}

/* Lengths of rows [first, first + count) of a tensor of the model, whose files hold rows or, transposed, columns. */
static ndp_status lengths(const weight_filling *f, const ndp_segment *s, int64_t first, int64_t count, void *out) {
    char name[512];
    ndp_segment w = base_of(f, s, name, sizeof name);
    double sums[BLOCK] = {0}, block[BLOCK], values[BLOCK];
    int64_t columns = w.whole[1], rows = w.whole[0];
    ndp_dtype master = f->model->opts.master;
    for (int64_t i = 0; i < (w.transposed ? columns : count); i++) {
        int64_t at = w.transposed ? i * rows + first : (first + i) * columns, n = w.transposed ? count : columns;
        for (int64_t done = 0, now; done < n; done += now) {
            now = n - done < BLOCK ? n - done : BLOCK;
            NDP_TRY(read_model(f, &w, at + done, now, block));
            ndp_convert(block, master, values, NDP_F64, now);
            for (int64_t k = 0; k < now; k++)
                sums[w.transposed ? done + k : i] += values[k] * values[k];
        }
    }
    for (int64_t i = 0; i < count; i++)
        sums[i] = sqrt(sums[i]);
    ndp_convert(sums, NDP_F64, out, master, count);
    return NDP_OK;
}

static ndp_status new_factor(const weight_filling *f, const ndp_segment *s, int64_t first, int64_t count, void *out) {
    float values[BLOCK];
    if (ndp_factor_rules[ndp_factor_of(s->name)].start == NDP_START_LENGTHS)
        return lengths(f, s, first, count, out);
    ndp_factor_random(&f->model->opts.adapter, f->sources->seed, s, first, count, values);
    ndp_convert(values, NDP_F32, out, f->model->opts.master, count);
    return NDP_OK;
}

/* ---- starting ---- */

static ndp_status read_element(void *user, const ndp_segment *s, int64_t first, int64_t count, void *out) {
    const weight_filling *f = user;
    const ndp_tensor_entry *own = find_own(f, s->name);
    if (own)
        return read_own(f, s, own->spec.name, first, count, out);
    return ndp_factor_of(s->name) == NDP_NO_FACTOR ? read_model(f, s, first, count, out)
                                                   : new_factor(f, s, first, count, out);
}

static bool known_scales(void *user, const ndp_segment *s, int64_t elements, uint8_t *codes, float *nested) {
    const weight_filling *f = user;
    return f->folder && !find_own(f, s->name) && ndp_weights_nf4(f->folder, s->name, elements, codes, nested);
}

static ndp_status fill(ndp_engine *e, const weight_filling *f) {
    if (f->folder)
        NDP_TRY(ndp_weights_fit(f->folder, ndp_engine_whole(e), NDP_TENSORS_FOLDER));
    if (f->own && !f->match)
        NDP_TRY(ndp_weights_fit(f->own, ndp_engine_whole(e), NDP_TENSORS_RUN));
    NDP_TRY(ndp_engine_fill(e, NDP_OWNED_MASTER, NDP_TENSORS_ALL, read_element, (void *)f));
    NDP_TRY(ndp_engine_pack(e, read_element, known_scales, (void *)f));
    if (f->folder)
        NDP_TRY(ndp_weights_intact(f->folder));
    if (f->own)
        NDP_TRY(ndp_weights_intact(f->own));
    return ndp_engine_publish(e);
}

static ndp_status open_folder(const ndp_engine *e, const char *folder, ndp_weights **out) {
    NDP_TRY(ndp_weights_open(folder, out));
    return ndp_weights_name(*out, ndp_engine_whole(e));
}

/* With what a run or an adapter changed. */
static ndp_status fill_own(ndp_engine *e, weight_filling *f) {
    ndp_adapter_folder adapter;
    ndp_adapter_match match;
    if (!f->sources->adapter || f->own)
        return fill(e, f);
    NDP_TRY(ndp_adapter_use_match(f->sources->adapter, ndp_engine_whole(e), &adapter, &match));
    f->own = adapter.weights, f->match = &match, f->rounded = f->model->opts.master;
    ndp_status st = fill(e, f);
    ndp_adapter_match_release(&match);
    ndp_adapter_folder_close(&adapter);
    return st;
}

ndp_status ndp_weights_start(ndp_engine *e, const ndp_weight_sources *s) {
    const ndp_model *m = ndp_engine_model(e);
    ndp_weights *folder = NULL;
    bool all_own = s->own && m->opts.adapter.r == 0; /* a checkpoint of a whole model: its folder need not be there */
    ndp_status st = s->folder && !all_own ? open_folder(e, s->folder, &folder) : NDP_OK;
    if (st == NDP_OK)
        st = fill_own(
            e, &(weight_filling){.sources = s, .model = m, .folder = folder, .own = s->own, .rounded = s->rounded});
    ndp_weights_close(folder);
    return st;
}

/* ---- the weights of a job ---- */

/* The adapter that the run goes on with. */
static ndp_status find_adapter(const ndp_job *j) {
    ndp_adapter_folder a;
    ndp_adapter_match match;
    ndp_model m;
    NDP_TRY(ndp_model_build(&j->spec, &j->model, &m));
    ndp_status st = ndp_adapter_use_match(j->config->adapter.path, &m, &a, &match);
    if (st == NDP_OK) {
        ndp_adapter_match_release(&match);
        ndp_adapter_folder_close(&a);
    }
    ndp_model_release(&m);
    return st;
}

ndp_status ndp_job_find_weights(const ndp_job *j) {
    bool loaded = j->config->model.path && j->config->model.init != NDP_INIT_RANDOM;
    if (loaded)
        NDP_TRY(ndp_hub_explain(NDP_HUB_MODEL, j->config->model.path, j->model_folder,
                                ndp_weights_check_files(j->model_folder)));
    return j->model.adapter.r > 0 && j->config->adapter.path ? find_adapter(j) : NDP_OK;
}

ndp_weight_sources ndp_job_weights(const ndp_job *j) {
    const ndp_config *c = j->config;
    return (ndp_weight_sources){.folder = c->model.init == NDP_INIT_RANDOM ? NULL : j->model_folder,
                                .seed = (uint64_t)c->train.seed,
                                .adapter = c->adapter.type != NDP_ADAPTER_NONE ? c->adapter.path : NULL};
}

ndp_status ndp_weights_load(ndp_engine *e, const char *folder) {
    return ndp_weights_start(e, &(ndp_weight_sources){.folder = folder});
}

ndp_status ndp_weights_draw(ndp_engine *e, uint64_t seed) {
    return ndp_weights_start(e, &(ndp_weight_sources){.seed = seed});
}
