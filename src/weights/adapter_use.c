/* Adapters beside models. What the folder holds is what the model is built with; where a job says that, too, both must
 * agree. */
#include "weights/adapter_use.h"

#include "base/hub.h"
#include "config/config.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static ndp_status open_folder(const char *name, ndp_adapter_folder *out) {
    char folder[NDP_PATH];
    NDP_TRY(ndp_hub_find(NDP_HUB_MODEL, name, folder));
    return ndp_hub_explain(NDP_HUB_MODEL, name, folder, ndp_adapter_folder_open(folder, out));
}

static const char *word(bool x) { return x ? "true" : "false"; }

/* "model.layers.0.self_attn.q_proj" of the tensor ".weight" of that module. */
static void module_of(const char *tensor, char *out, size_t size) {
    const char *dot = strrchr(tensor, '.');
    snprintf(out, size, "%.*s", dot ? (int)(dot - tensor) : 0, tensor);
}

/* Beside a model there are factors of projections, and a tied pair is one table. */
static ndp_status check_kinds(const ndp_adapter_folder *a, const ndp_adapter_match *match) {
    static const char remedy[] = "ndparallel merge makes one model of both";
    for (int i = 0; i < match->n; i++)
        if (match->tensors[i].parts[NDP_ADAPTER_A] && !match->tensors[i].projection)
            return NDP_FAIL(NDP_ENOTSUP, "'%s' has factors of %s, which are not supported beside a model; %s", a->path,
                            match->tensors[i].name, remedy);
    return match->own_head ? NDP_FAIL(NDP_ENOTSUP,
                                      "'%s' saves one of the embedding and the head, which the model ties, without the "
                                      "other: they are two tables then, which is not supported beside a model; %s",
                                      a->path, remedy)
                           : NDP_OK;
}

/* ---- without options ---- */

static ndp_status list_modules(const ndp_adapter_match *match, ndp_adapter_use *u) {
    char module[512], last[512] = "";
    for (int i = 0; i < match->n; i++) {
        const ndp_adapted_tensor *t = &match->tensors[i];
        module_of(t->name, module, sizeof module);
        if (t->parts[NDP_ADAPTER_A])
            NDP_TRY(ndp_strings_add(&u->targets, module));
        if (t->parts[NDP_ADAPTER_WHOLE] && strcmp(module, last) != 0) /* weight and bias are one module */
            NDP_TRY(ndp_strings_add(&u->save, module));
        if (t->parts[NDP_ADAPTER_WHOLE])
            snprintf(last, sizeof last, "%s", module);
    }
    return NDP_OK;
}

static ndp_status read_use(const ndp_adapter_folder *a, const ndp_model_spec *s, const ndp_model *m,
                           ndp_adapter_use *u) {
    ndp_adapter_match match;
    NDP_TRY(ndp_adapter_match_make(a, s, m, &match));
    ndp_status st = check_kinds(a, &match);
    if (st == NDP_OK)
        st = list_modules(&match, u);
    ndp_adapter_match_release(&match);
    snprintf(u->path, sizeof u->path, "%s", a->path);
    u->adapter = (ndp_adapter){.r = a->config.r,
                               .scale = ndp_adapter_config_scale(&a->config),
                               .dora = a->config.dora,
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
    NDP_TRY(open_folder(name, &a));
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

/* Appends the module of a tensor, once: weight and bias are neighbours in the set. */
static void add_module(ndp_str *list, char last[512], const char *module, size_t n) {
    char name[512];
    snprintf(name, sizeof name, "%.*s", (int)n, module);
    if (strcmp(name, last) == 0)
        return;
    ndp_str_add(list, list->length ? ", " : "");
    quote(list, name);
    snprintf(last, 512, "%s", name);
}

/* The modules of all factors, and those that are saved whole. */
static void list_names(const ndp_weights *w, ndp_str *targets, ndp_str *save) {
    char last[2][512] = {"", ""};
    for (int i = 0; i < ndp_weights_count(w); i++) {
        const char *target;
        size_t n;
        ndp_adapter_part part = ndp_adapter_part_of(ndp_weights_at(w, i)->spec.name, &target, &n);
        while (target && part == NDP_ADAPTER_WHOLE && n > 0 && target[--n] != '.')
            continue;
        if (target && part == NDP_ADAPTER_A)
            add_module(targets, last[0], target, n);
        if (target && part == NDP_ADAPTER_WHOLE)
            add_module(save, last[1], target, n);
    }
}

static ndp_status set_keys(ndp_config *c, const ndp_adapter_folder *a, const char *path, const ndp_str *targets,
                           const ndp_str *save) {
    const ndp_adapter_config *o = &a->config;
    if (c->adapter.type == NDP_ADAPTER_NONE)
        NDP_TRY(ndp_config_set(c, "adapter.type=lora"));
    NDP_TRY(ndp_config_setf(c, "adapter.path=%s", path));
    NDP_TRY(ndp_config_setf(c, "adapter.r=%d", o->r));
    NDP_TRY(ndp_config_setf(c, "adapter.alpha=%.17g", o->alpha));
    NDP_TRY(ndp_config_setf(c, "adapter.rslora=%s", word(o->rslora)));
    NDP_TRY(ndp_config_setf(c, "adapter.dora=%s", word(o->dora)));
    NDP_TRY(ndp_config_setf(c, "adapter.targets=[%s]", targets->length ? targets->data : ""));
    return ndp_config_setf(c, "adapter.modules_to_save=[%s]", save->length ? save->data : "");
}

ndp_status ndp_config_use_adapter(ndp_config *c, const char *adapter) {
    NDP_NOT_NULL(c, adapter);
    ndp_adapter_folder a;
    ndp_str path = {0}, targets = {0}, save = {0};
    NDP_TRY(open_folder(adapter, &a));
    quote(&path, a.path);
    list_names(a.weights, &targets, &save);
    ndp_status st = path.failed || targets.failed || save.failed
                        ? NDP_FAIL(NDP_ENOMEM, "not enough memory for the names of an adapter")
                        : set_keys(c, &a, path.data, &targets, &save);
    ndp_str_release(&path);
    ndp_str_release(&targets);
    ndp_str_release(&save);
    ndp_adapter_folder_close(&a);
    return st;
}

/* ---- with options ---- */

static ndp_status check_options(const ndp_adapter_folder *a, const ndp_adapter *o) {
    const ndp_adapter_config *c = &a->config;
    double scale = ndp_adapter_config_scale(c);
    if (c->r == o->r && c->dora == o->dora && fabs(scale - o->scale) <= 1e-9 * fabs(scale))
        return NDP_OK;
    return NDP_FAIL(NDP_EINVAL,
                    "the adapter in '%s' has other options than the job, which has rank %d, scale %g, dora %s; set "
                    "adapter.r: %d, adapter.alpha: %g, adapter.rslora: %s, adapter.dora: %s",
                    a->path, o->r, o->scale, word(o->dora), c->r, c->alpha, word(c->rslora), word(c->dora));
}

/* What the adapter has of the tensor that the run trains; NULL: nothing. */
static const ndp_tensor_entry *entry_of(const ndp_adapter_folder *a, const ndp_adapter_match *match,
                                        const ndp_segment *s) {
    if (ndp_factor_of(s->name) != NDP_NO_FACTOR)
        return ndp_weights_find(a->weights, s->name);
    const ndp_adapted_tensor *t = ndp_adapter_match_find(match, s->name);
    return t ? t->parts[NDP_ADAPTER_WHOLE] : NULL;
}

/* Whether the model trains a tensor. */
static bool is_trained(const ndp_model *m, const char *tensor) {
    for (int b = 0; b < m->n_buffers; b++)
        for (int i = 0; i < m->buffers[b].segments.n && !m->buffers[b].base; i++)
            if (strcmp(m->buffers[b].segments.items[i].name, tensor) == 0)
                return true;
    return false;
}

static ndp_status check_has_all(const ndp_adapter_folder *a, const ndp_adapter_match *match, const ndp_model *m) {
    for (int b = 0; b < m->n_buffers; b++)
        for (int i = 0; i < m->buffers[b].segments.n && !m->buffers[b].base; i++) {
            const ndp_segment *s = &m->buffers[b].segments.items[i];
            bool factor = ndp_factor_of(s->name) != NDP_NO_FACTOR;
            if (!entry_of(a, match, s))
                return NDP_FAIL(NDP_EINVAL, "the adapter in '%s' has no %s, which adapter.%s asks for", a->path,
                                s->name, factor ? "targets" : "modules_to_save");
        }
    return NDP_OK;
}

static ndp_status check_has_no_other(const ndp_adapter_folder *a, const ndp_adapter_match *match, const ndp_model *m) {
    char module[512], factor[600];
    for (int i = 0; i < match->n; i++) {
        const ndp_adapted_tensor *t = &match->tensors[i];
        module_of(t->name, module, sizeof module);
        snprintf(factor, sizeof factor, "%s%s.lora_A.weight", NDP_ADAPTER_PREFIX, module);
        if (t->parts[NDP_ADAPTER_A] && !is_trained(m, factor))
            return NDP_FAIL(NDP_EINVAL, "the adapter in '%s' has factors of %s, which adapter.targets leaves out",
                            a->path, module);
        if (t->parts[NDP_ADAPTER_WHOLE] && !is_trained(m, t->name))
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
    NDP_TRY(open_folder(name, &folder));
    ndp_status st = match_model(&folder, m, match);
    if (st == NDP_OK)
        *a = folder;
    else
        ndp_adapter_folder_close(&folder);
    return st;
}
