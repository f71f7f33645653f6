/* Adapters beside models. What the folder holds is what the model is built with; where a job says that, too, both must
 * agree. */
#include "weights/adapter_use.h"

#include "config/config.h"
#include "model/tensors.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *word(bool x) { return x ? "true" : "false"; }

/* Beside a model there are factors of projections, of experts those of all, and a tied pair is one table. */
static ndp_status check_kinds(const ndp_adapter_folder *a, const ndp_adapter_match *match) {
    static const char remedy[] = "ndparallel merge makes one model of both";
    for (int i = 0; i < match->n; i++) {
        const ndp_adapted_tensor *t = &match->tensors[i];
        if (t->parts[NDP_FACTOR_A] && !t->stacked && !t->projection)
            return NDP_FAIL(NDP_ENOTSUP, "'%s' has factors of %s, which are not supported beside a model; %s", a->path,
                            t->name, remedy);
    }
    return match->own_head ? NDP_FAIL(NDP_ENOTSUP,
                                      "'%s' saves one of the embedding and the head, which the model ties, without the "
                                      "other: they are two tables then, which is not supported beside a model; %s",
                                      a->path, remedy)
                           : NDP_OK;
}

/* ---- without options ---- */

static ndp_status read_use(const ndp_adapter_folder *a, const ndp_model_spec *s, const ndp_model *m,
                           ndp_adapter_use *u) {
    ndp_adapter_match match;
    NDP_TRY(ndp_adapter_match_make(a, s, m, &match));
    ndp_status st = check_kinds(a, &match);
    if (st == NDP_OK)
        st = ndp_adapter_folder_modules(a, &u->targets, &u->save);
    ndp_adapter_match_release(&match);
    snprintf(u->path, sizeof u->path, "%s", a->path);
    u->adapter = (ndp_adapter){.r = a->config.r,
                               .scale = ndp_adapter_config_scale(&a->config),
                               .form = a->config.form,
                               .targets = (const char *const *)u->targets.items,
                               .n_targets = u->targets.n,
                               .save = (const char *const *)u->save.items,
                               .n_save = u->save.n};
    return st;
}

ndp_status ndp_adapter_use_open(const char *name, const ndp_model_spec *s, ndp_adapter_use *out) {
    const ndp_model_opts opts = {.mode = NDP_MODEL_SCORE, .rows = 1, .positions = 1, .compute = NDP_F32};
    ndp_adapter_use u = {0};
    ndp_adapter_folder a;
    ndp_model m;
    NDP_TRY(ndp_adapter_folder_find(name, &a));
    ndp_status st = ndp_model_build(s, &opts, &m);
    if (st == NDP_OK) {
        st = read_use(&a, s, &m, &u);
        ndp_model_release(&m);
    }
    ndp_adapter_folder_close(&a);
    if (st == NDP_OK)
        *out = u;
    else
        ndp_adapter_use_release(&u);
    return st;
}

void ndp_adapter_use_release(ndp_adapter_use *u) {
    ndp_strings_release(&u->targets);
    ndp_strings_release(&u->save);
    *u = (ndp_adapter_use){0};
}

/* ---- a job with the adapter of a folder ---- */

/* Appends a text in single quotes, as YAML reads it. */
static void quote(ndp_str *out, const char *text) {
    ndp_str_add(out, "'");
    for (; *text; text++)
        ndp_str_add_bytes(out, text, 1), ndp_str_add(out, *text == '\'' ? "'" : "");
    ndp_str_add(out, "'");
}

/* Sets a key to a list of names. */
static ndp_status set_names(ndp_config *c, const char *key, const ndp_strings *names) {
    ndp_str list = {0};
    for (int i = 0; i < names->n; i++) {
        ndp_str_add(&list, i ? ", " : "");
        quote(&list, names->items[i]);
    }
    ndp_status st = list.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for the names of an adapter")
                                : ndp_config_setf(c, "%s=[%s]", key, list.length ? list.data : "");
    ndp_str_release(&list);
    return st;
}

static ndp_status set_keys(ndp_config *c, const ndp_adapter_folder *a, const ndp_strings *targets,
                           const ndp_strings *save) {
    const ndp_adapter_config *o = &a->config;
    ndp_str path = {0};
    quote(&path, a->path);
    ndp_status st = path.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for the names of an adapter")
                    : c->adapter.type == NDP_ADAPTER_NONE ? ndp_config_set(c, "adapter.type=lora")
                                                          : NDP_OK;
    if (st == NDP_OK)
        st = ndp_config_setf(c, "adapter.path=%s", path.data);
    ndp_str_release(&path);
    NDP_TRY(st);
    NDP_TRY(ndp_config_setf(c, "adapter.r=%d", o->r));
    NDP_TRY(ndp_config_setf(c, "adapter.alpha=%.17g", o->alpha));
    NDP_TRY(ndp_config_setf(c, "adapter.rslora=%s", word(o->rslora)));
    NDP_TRY(ndp_config_setf(c, "adapter.dora=%s", word(o->form == NDP_DORA)));
    NDP_TRY(set_names(c, "adapter.targets", targets));
    return set_names(c, "adapter.modules_to_save", save);
}

ndp_status ndp_config_use_adapter(ndp_config *c, const char *adapter) {
    NDP_NOT_NULL(c, adapter);
    ndp_adapter_folder a;
    ndp_strings targets = {0}, save = {0};
    NDP_TRY(ndp_adapter_folder_find(adapter, &a));
    ndp_status st = ndp_adapter_folder_modules(&a, &targets, &save);
    if (st == NDP_OK)
        st = set_keys(c, &a, &targets, &save);
    ndp_strings_release(&targets);
    ndp_strings_release(&save);
    ndp_adapter_folder_close(&a);
    return st;
}

/* ---- with options ---- */

static ndp_status check_options(const ndp_adapter_folder *a, const ndp_adapter *o) {
    const ndp_adapter_config *c = &a->config;
    double scale = ndp_adapter_config_scale(c);
    if (c->r == o->r && c->form == o->form && fabs(scale - o->scale) <= 1e-9 * fabs(scale))
        return NDP_OK;
    return NDP_FAIL(NDP_EINVAL,
                    "the adapter in '%s' has other options than the job, which has rank %d, scale %g, dora %s; set "
                    "adapter.r: %d, adapter.alpha: %g, adapter.rslora: %s, adapter.dora: %s",
                    a->path, o->r, o->scale, word(o->form == NDP_DORA), c->r, c->alpha, word(c->rslora),
                    word(c->form == NDP_DORA));
}

/* What the adapter has of the tensor that the run trains; NULL: nothing. */
static const ndp_tensor_entry *entry_of(const ndp_adapter_folder *a, const ndp_adapter_match *match, const char *name) {
    if (ndp_factor_of(name) != NDP_NO_FACTOR)
        return ndp_weights_find(a->weights, name);
    const ndp_adapted_tensor *t = ndp_adapter_match_find(match, name);
    return t ? t->parts[NDP_NO_FACTOR] : NULL;
}

static ndp_status check_has_all(const ndp_adapter_folder *a, const ndp_adapter_match *match, const ndp_model *m) {
    for (ndp_tensor_walk w = {.segments.model = m}; ndp_tensor_next(&w);)
        if (!m->buffers[w.tensor.buffer].base && !entry_of(a, match, w.tensor.name))
            return NDP_FAIL(NDP_EINVAL, "the adapter in '%s' has no %s, which adapter.%s asks for", a->path,
                            w.tensor.name,
                            ndp_factor_of(w.tensor.name) != NDP_NO_FACTOR ? "targets" : "modules_to_save");
    return NDP_OK;
}

/* Whether the model trains a tensor. */
static bool is_trained(const ndp_model *m, const char *tensor) {
    for (ndp_segment_walk w = {.model = m}; ndp_segment_next(&w);)
        if (!m->buffers[w.buffer].base && ndp_segment_is_named(w.segment, tensor))
            return true;
    return false;
}

static ndp_status check_has_no_other(const ndp_adapter_folder *a, const ndp_adapter_match *match, const ndp_model *m) {
    char module[NDP_MODULE_NAME];
    for (int i = 0; i < match->n; i++) {
        const ndp_adapted_tensor *t = &match->tensors[i];
        const ndp_tensor_entry *factor = t->parts[NDP_FACTOR_A];
        ndp_module_of(t->name, module);
        if (factor && !is_trained(m, factor->spec.name))
            return NDP_FAIL(NDP_EINVAL, "the adapter in '%s' has factors of %s, which adapter.targets leaves out",
                            a->path, module);
        if (t->parts[NDP_NO_FACTOR] && !is_trained(m, t->name))
            return NDP_FAIL(NDP_EINVAL, "the adapter in '%s' has %s, which adapter.modules_to_save leaves out", a->path,
                            t->name);
    }
    return NDP_OK;
}

static ndp_status match_model(const ndp_adapter_folder *a, const ndp_model *m, ndp_adapter_match *out) {
    ndp_adapter_match match;
    ndp_model_spec s = {.architecture = m->architecture};
    m->architecture->describe(m->facts, &s);
    NDP_TRY(check_options(a, &m->opts.adapter));
    NDP_TRY(ndp_adapter_match_make(a, &s, m, &match));
    ndp_status st = check_kinds(a, &match);
    if (st == NDP_OK)
        st = check_has_all(a, &match, m);
    if (st == NDP_OK)
        st = check_has_no_other(a, &match, m);
    if (st == NDP_OK)
        *out = match;
    else
        ndp_adapter_match_release(&match);
    return st;
}

ndp_status ndp_adapter_use_match(const char *name, const ndp_model *m, ndp_adapter_folder *a,
                                 ndp_adapter_match *match) {
    ndp_adapter_folder folder;
    NDP_TRY(ndp_adapter_folder_find(name, &folder));
    ndp_status st = match_model(&folder, m, match);
    if (st == NDP_OK)
        *a = folder;
    else
        ndp_adapter_folder_close(&folder);
    return st;
}
