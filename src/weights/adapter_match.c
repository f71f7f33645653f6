/* Finds the tensor of the model to which each tensor of an adapter belongs, and checks that all of them are there.
 * Called where an adapter is merged or used beside a model. */
#include "weights/adapter_match.h"

#include "checkpoint/safetensors_types.h"
#include "model/tensors.h"
#include <stdlib.h>
#include <string.h>

typedef struct matching_adapter {
    const ndp_adapter_folder *a;
    const ndp_model_spec *spec;
    ndp_adapter_match *match;
    ndp_adapted_tensor head;             /* of a tied pair */
    const ndp_adapted_tensor *embedding; /* of the pair; NULL: the model ties none */
    bool experts;                        /* the adapter has factors of some */
    const char *file;                    /* for messages */
} matching_adapter;

/* ---- the model's tensors ---- */

/* A tensor of a whole stack is no matrix, and has no factors of its own. */
static ndp_adapted_tensor tensor_of(const ndp_model *m, const ndp_model_tensor *t, const char *name,
                                    const char *parameter) {
    const ndp_unit *first = &m->units[0]; /* its matrices are tables */
    char room[NDP_SEGMENT_NAME];
    const ndp_segment s = ndp_segment_of_tensor(t->segment, t->member, room);
    bool table = false, stack = ndp_segment_is_stack(&s);
    for (int slot = 0; slot < NDP_SLOTS; slot++)
        table |= first->buffers[slot] == t->buffer;
    return (ndp_adapted_tensor){.name = name,
                                .ndim = s.ndim,
                                .rows = s.ndim == 2 ? s.whole[0] : 1,
                                .cols = s.whole[1],
                                .transposed = s.transposed,
                                .by_depth = s.by_depth,
                                .projection = s.projection && !stack,
                                .linear = s.ndim == 2 && !table && !stack && !s.by_depth,
                                .expert = ndp_segment_is_stack(t->segment),
                                .stack = parameter,
                                .members = t->segment->stack_whole,
                                .group = t->segment->stack_grain,
                                .member = t->member};
}

static int compare_tensors(const void *a, const void *b) {
    return strcmp((*(const ndp_adapted_tensor *const *)a)->name, (*(const ndp_adapted_tensor *const *)b)->name);
}

ndp_adapted_tensor *ndp_adapter_match_find(const ndp_adapter_match *match, const char *name) {
    const ndp_adapted_tensor wanted = {.name = name}, *key = &wanted;
    ndp_adapted_tensor **found =
        bsearch(&key, match->by_name, (size_t)match->n_by_name, sizeof *match->by_name, compare_tensors);
    return found ? *found : NULL;
}

static ndp_adapted_tensor *find_tensor(matching_adapter *x, const char *name) {
    return x->head.name && strcmp(x->head.name, name) == 0 ? &x->head : ndp_adapter_match_find(x->match, name);
}

/* Room for one more: a head that is no longer tied. */
static ndp_status list_tensors(matching_adapter *x, const ndp_model *m) {
    ndp_adapter_match *match = x->match;
    size_t most = (size_t)ndp_tensor_count(m) + 1;
    match->tensors = ndp_arena_alloc(&match->arena, most * sizeof *match->tensors);
    match->by_name = ndp_arena_alloc(&match->arena, most * sizeof *match->by_name);
    NDP_CHECK_MEMORY(match->tensors && match->by_name, "for a list of %zu tensors", most);
    char room[NDP_SEGMENT_NAME];
    const char *parameter = NULL;
    for (ndp_tensor_walk w = {.segments.model = m}; ndp_tensor_next(&w);) {
        if (ndp_factor_of(w.tensor.name) != NDP_NO_FACTOR)
            continue;
        const char *name = ndp_tensor_keep_name(&w, &match->arena);
        NDP_CHECK_MEMORY(name, "for the names of %zu tensors", most);
        if (ndp_segment_is_stack(w.tensor.segment) && w.tensor.member == 0) {
            ndp_stack_parameter(w.tensor.segment, room);
            parameter = ndp_arena_strdup(&match->arena, room);
        } else if (!ndp_segment_is_stack(w.tensor.segment)) {
            parameter = NULL;
        }
        match->tensors[match->n] = tensor_of(m, &w.tensor, name, parameter);
        match->by_name[match->n] = &match->tensors[match->n];
        match->n_by_name = ++match->n;
    }
    qsort(match->by_name, (size_t)match->n, sizeof *match->by_name, compare_tensors);
    const char *tokens = x->spec->tie[0], *head = x->spec->tie[1];
    x->embedding = tokens[0] && !x->spec->own_head ? find_tensor(x, tokens) : NULL;
    if (x->embedding) {
        x->head = *x->embedding;
        x->head.name = head;
    }
    return NDP_OK;
}

/* ---- the adapter's ---- */

static ndp_status fail_unknown(const matching_adapter *x, const char *tensor, const char *wanted) {
    enum { SHOWN = 3 };
    int n = x->match->n;
    const char *near[SHOWN], **names = malloc((size_t)n * sizeof *names);
    ndp_str list = {0};
    for (int i = 0; names && i < n; i++)
        names[i] = x->match->tensors[i].name;
    int shown = names ? ndp_nearest_names(wanted, names, n, SHOWN, near) : 0;
    for (int i = 0; i < shown; i++)
        ndp_str_addf(&list, "%s%s", i ? ", " : "; the nearest are ", near[i]);
    free(names);
    ndp_status st = NDP_FAIL(NDP_EINVAL, "%s: %s belongs to %s, which the model does not have%s%s%s", x->file, tensor,
                             wanted, list.data ? list.data : "", x->a->config.base ? "; its base model is " : "",
                             x->a->config.base ? x->a->config.base : "");
    ndp_str_release(&list);
    return st;
}

static ndp_status fail_shape(const matching_adapter *x, const ndp_tensor_entry *e, const ndp_tensor_spec *expected) {
    char have[100], want[100];
    return NDP_FAIL(NDP_EINVAL,
                    "%s: %s is %s, but r %d and this model need %s: it is an adapter of another base model%s%s",
                    x->file, e->spec.name, ndp_shape_text(&e->spec, have, sizeof have), x->a->config.r,
                    ndp_shape_text(expected, want, sizeof want), x->a->config.base ? ", " : "",
                    x->a->config.base ? x->a->config.base : "");
}

/* What the part of a tensor must be. */
static ndp_tensor_spec spec_of(const matching_adapter *x, const ndp_adapted_tensor *t, ndp_factor part) {
    int64_t shape[2] = {t->transposed ? t->cols : t->rows, t->transposed ? t->rows : t->cols};
    int ndim = part == NDP_NO_FACTOR ? t->ndim : ndp_factor_shape(part, x->a->config.r, t->rows, t->cols, shape);
    if (part == NDP_NO_FACTOR && t->by_depth)
        return (ndp_tensor_spec){.ndim = 3, .shape = {t->rows, 1, t->cols}};
    return (ndp_tensor_spec){.ndim = ndim, .shape = {shape[ndim == 1], ndim == 1 ? 0 : shape[1]}};
}

static ndp_status check_entry(const matching_adapter *x, const ndp_tensor_entry *e, const ndp_tensor_spec *expected) {
    if (!ndp_tensor_same_shape(&e->spec, expected))
        return fail_shape(x, e, expected);
    return ndp_dtype_is_float(e->spec.dtype) ? NDP_OK
                                             : NDP_FAIL(NDP_EINVAL, "%s: %s is %s, which is not read as a weight",
                                                        x->file, e->spec.name, e->type_name);
}

static ndp_status check_part(const matching_adapter *x, const ndp_adapted_tensor *t, ndp_factor part,
                             const ndp_tensor_entry *e) {
    const ndp_tensor_spec expected = spec_of(x, t, part);
    if (part != NDP_NO_FACTOR && t == &x->head)
        return NDP_FAIL(NDP_ENOTSUP, "%s: %s: the head is tied to the embedding, and factors of it are not supported",
                        x->file, e->spec.name);
    if (part != NDP_NO_FACTOR && !t->linear)
        return NDP_FAIL(NDP_ENOTSUP,
                        "%s: %s: %s is not the matrix of a linear map, and factors of it are not supported", x->file,
                        e->spec.name, t->name);
    return check_entry(x, e, &expected);
}

/* A factor of all experts: A [experts x r, inputs], B [outputs, r x experts], the number of the expert innermost. */
static ndp_status place_stacked(matching_adapter *x, const ndp_tensor_entry *e, ndp_factor part, const char *stack) {
    bool found = false, checked = false;
    for (int i = 0; i < x->match->n; i++) {
        ndp_adapted_tensor *t = &x->match->tensors[i];
        if (!t->stack || strcmp(t->stack, stack) != 0)
            continue;
        int64_t experts = t->members / t->group, all = experts * x->a->config.r;
        const ndp_tensor_spec b = {.ndim = 2, .shape = {t->group * t->rows, all}},
                              a = {.ndim = 2, .shape = {all, t->cols}};
        NDP_TRY(checked ? NDP_OK : check_entry(x, e, part == NDP_FACTOR_A ? &a : &b));
        t->parts[part] = e;
        t->stacked = found = checked = true;
    }
    return found ? NDP_OK : fail_unknown(x, e->spec.name, stack);
}

static ndp_status place(matching_adapter *x, const ndp_tensor_entry *e) {
    const char *name = e->spec.name, *wanted = ndp_adapter_inner(name);
    ndp_factor part = ndp_factor_of(name);
    char module[NDP_MODULE_NAME], stack[NDP_MODULE_NAME];
    if (!wanted)
        return NDP_FAIL(NDP_EINVAL,
                        "%s: the name of the tensor %s does not begin with base_model.model., as those of "
                        "PEFT do",
                        x->file, name);
    if (strstr(wanted, ".lora_embedding_"))
        return NDP_FAIL(NDP_ENOTSUP, "%s: %s: factors of embeddings are not supported; modules_to_save has them whole",
                        x->file, name);
    ndp_module_of(name, module);
    if ((part == NDP_FACTOR_A || part == NDP_FACTOR_B) && ndp_adapter_config_stack(&x->a->config, module, stack))
        return place_stacked(x, e, part, stack);
    if (part != NDP_NO_FACTOR && !(wanted = ndp_arena_format(&x->match->arena, "%s.weight", module)))
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the names of an adapter");
    ndp_adapted_tensor *t = find_tensor(x, wanted);
    if (!t && x->spec->composite && strncmp(wanted, x->spec->text, strlen(x->spec->text)) != 0)
        return NDP_FAIL(NDP_ENOTSUP,
                        "%s: %s is of another part of the %s than its text, whose names begin with %s; adapters of the "
                        "text alone are supported",
                        x->file, name, x->spec->composite, x->spec->text);
    if (!t)
        return fail_unknown(x, name, wanted);
    NDP_TRY(check_part(x, t, part, e));
    t->parts[part] = e;
    x->experts |= t->expert && part != NDP_NO_FACTOR;
    return NDP_OK;
}

/* ---- what is missing ---- */

/* A name of a module may also be that of experts, which are no modules in transformers from 5 on. */
static bool is_named(const matching_adapter *x, const ndp_adapted_tensor *t, const char *module) {
    const ndp_adapter_config *c = &x->a->config;
    bool all = c->pattern && strcmp(c->pattern, "all-linear") == 0;
    if (t->stack && t->ndim == 2 && ndp_adapter_config_has_parameter(c, t->stack))
        return true;
    return (x->experts || !t->expert) &&
           ((all && t->projection) || (t->linear && ndp_adapter_config_targets(c, module)));
}

/* The key that asks for a factor which not every form has; NULL: every form has it. */
static const char *key_of(int factor) {
    int form = 0;
    while (ndp_form_rules[form].factors <= factor)
        form++;
    return ndp_form_rules[form].key;
}

/* A factor that the form of the adapter has is there, and no other. */
static ndp_status check_factor(const matching_adapter *x, int factor, bool there, const char *module, const char *why) {
    const char *key = key_of(factor), *name = ndp_factor_rules[factor].ending + 1;
    int length = (int)strcspn(name, ".");
    bool asked = factor < ndp_form_rules[x->a->config.form].factors;
    if (there == asked)
        return NDP_OK;
    return asked ? NDP_FAIL(NDP_EINVAL, "%s: the %.*s of %s is missing: %s%s", x->file, length, name, module,
                            key ? key : why, key ? " is true" : "")
                 : NDP_FAIL(NDP_EINVAL, "%s: %s has a %.*s, but %s is false", x->file, module, length, name, key);
}

/* Each of target_parameters names a matrix of the model, or a stack of them. */
static ndp_status check_parameters(const matching_adapter *x) {
    const ndp_strings *names = &x->a->config.parameters;
    for (int i = 0; i < names->n; i++) {
        const ndp_adapter_config one = {.parameters = {.items = &names->items[i], .n = 1}};
        bool found = false;
        for (int k = 0; k < x->match->n && !found; k++) {
            const ndp_adapted_tensor *t = &x->match->tensors[k];
            found = (t->linear && ndp_adapter_config_has_parameter(&one, t->name)) ||
                    (t->stack && t->ndim == 2 && ndp_adapter_config_has_parameter(&one, t->stack));
        }
        if (!found)
            return NDP_FAIL(NDP_ENOTSUP,
                            "%s: \"target_parameters\" has \"%.80s\", which names neither the weight of a projection "
                            "nor a stack of experts (experts.gate_up_proj, experts.down_proj) of the model",
                            x->file, names->items[i]);
    }
    return NDP_OK;
}

static ndp_status check_complete(const matching_adapter *x, const ndp_adapted_tensor *t) {
    char module[NDP_MODULE_NAME];
    bool any = false, whole = t->parts[NDP_NO_FACTOR];
    ndp_module_of(t->name, module);
    for (int k = 0; k < NDP_FACTORS; k++)
        any |= t->parts[k] != NULL;
    if (any && whole)
        return NDP_FAIL(NDP_EINVAL, "%s: %s has factors, and is saved whole as well", x->file, t->name);
    if (!any && (whole || !is_named(x, t, module)))
        return NDP_OK;
    for (int k = 0; k < NDP_FACTORS; k++)
        NDP_TRY(
            check_factor(x, k, t->parts[k], module, any ? "its other factors are there" : "target_modules names it"));
    return NDP_OK;
}

/* Whether a tensor is saved whole because of one of modules_to_save: "norm" for "model.norm.weight". */
static bool is_saved(const ndp_adapted_tensor *t, const char *save) {
    char module[NDP_MODULE_NAME];
    ndp_module_of(t->name, module);
    return t->parts[NDP_NO_FACTOR] && ndp_ends_with(module, save);
}

static ndp_status check_saved(const matching_adapter *x) {
    const ndp_strings *save = &x->a->config.save;
    for (int i = 0; i < save->n; i++) {
        bool found = x->head.name && is_saved(&x->head, save->items[i]);
        for (int k = 0; k < x->match->n && !found; k++)
            found = is_saved(&x->match->tensors[k], save->items[i]);
        if (!found)
            return NDP_FAIL(NDP_EINVAL, "%s: modules_to_save has \"%s\", of which there is no tensor", x->file,
                            save->items[i]);
    }
    return NDP_OK;
}

/* ---- a tied pair ---- */

/* As in PEFT: a module of modules_to_save becomes a copy of its own, which the other one of the pair does not follow,
 * unless ensure_weight_tying is set. What is saved for another reason (save_embedding_layers) goes into the model's
 * table, which both are. */
static ndp_status resolve_tie(matching_adapter *x) {
    ndp_adapted_tensor *embedding = x->embedding ? find_tensor(x, x->embedding->name) : NULL;
    const ndp_tensor_entry **tokens = embedding ? &embedding->parts[NDP_NO_FACTOR] : NULL;
    const ndp_tensor_entry *head = x->head.parts[NDP_NO_FACTOR];
    if (!tokens || (!*tokens && !head))
        return NDP_OK;
    bool one = true;
    if (*tokens && head)
        NDP_TRY(ndp_weights_same(x->a->weights, *tokens, head, &one));
    else
        for (int i = 0; i < x->a->config.save.n && !x->a->config.tied; i++)
            one &= !is_saved(*tokens ? embedding : &x->head, x->a->config.save.items[i]);
    if (one) {
        *tokens = *tokens ? *tokens : head;
        return NDP_OK;
    }
    x->match->own_head = true;
    x->match->tensors[x->match->n++] = x->head;
    return NDP_OK;
}

static ndp_status make(matching_adapter *x, const ndp_model *m) {
    const ndp_weights *w = x->a->weights;
    x->file = ndp_arena_format(&x->match->arena, "%s/adapter_model.safetensors", x->a->path);
    NDP_CHECK_MEMORY(x->file, "for the names of an adapter");
    NDP_TRY(list_tensors(x, m));
    NDP_TRY(check_parameters(x));
    for (int i = 0; i < ndp_weights_count(w); i++)
        NDP_TRY(place(x, ndp_weights_at(w, i)));
    for (int i = 0; i < x->match->n; i++)
        NDP_TRY(check_complete(x, &x->match->tensors[i]));
    NDP_TRY(check_saved(x));
    return resolve_tie(x);
}

ndp_status ndp_adapter_match_make(const ndp_adapter_folder *a, const ndp_model_spec *s, const ndp_model *m,
                                  ndp_adapter_match *out) {
    ndp_adapter_match match = {0};
    ndp_status st = make(&(matching_adapter){.a = a, .spec = s, .match = &match}, m);
    if (st == NDP_OK)
        *out = match;
    else
        ndp_adapter_match_release(&match);
    return st;
}

void ndp_adapter_match_release(ndp_adapter_match *match) {
    ndp_arena_release(&match->arena);
    *match = (ndp_adapter_match){0};
}
