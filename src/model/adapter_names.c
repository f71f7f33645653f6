/* Which tensors an adapter names: its targets, and modules that are trained whole; and its own. */
#include "model/adapter_names.h"

#include "base/full_match.h"
#include "base/rng.h"
#include "model/families.h"
#include "model/tensors.h"
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void ndp_factor_random(const ndp_adapter *a, uint64_t seed, const ndp_segment *s, int64_t first, int64_t count,
                       float *out) {
    static const double small = 0.02;
    bool zero = ndp_factor_rules[ndp_factor_of(s->name)].start == NDP_START_ZERO;
    uint64_t stream = ndp_rng_stream(s->name);
    double bound = !zero ? 1 / sqrt((double)s->whole[1]) : a->random_b ? small : 0;
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)(bound * (2 * ndp_rng_uniform(seed, stream, (uint64_t)(first + i)) - 1));
}

/* ---- names ---- */

/* The length of a tensor's name less ".weight" or ".bias": that of its module. */
static size_t module_length(const char *tensor) {
    const char *dot = strrchr(tensor, '.');
    return dot ? (size_t)(dot - tensor) : strlen(tensor);
}

/* Whether a module's name is `name` or ends with it, behind a dot. */
static bool ends_with_module(const char *tensor, const char *name) {
    size_t n = module_length(tensor), k = strlen(name);
    return k > 0 && k <= n && strncmp(tensor + n - k, name, k) == 0 && (k == n || tensor[n - k - 1] == '.');
}

static bool is_linear(const char *target) { return strcmp(target, "linear") == 0 || strcmp(target, "all-linear") == 0; }

/* A regular expression that cannot be compared matches nothing: ndp_adapter_check says so. */
static bool is_target(const char *tensor, const char *target) {
    char module[NDP_MODULE_NAME];
    const char *regex = ndp_regex_of(target);
    bool is = false;
    if (regex) {
        ndp_module_of(tensor, module);
        return ndp_full_match(regex, module, &is) == NDP_OK && is;
    }
    if (is_linear(target) || ends_with_module(tensor, target))
        return true;
    if (!strpbrk(target, "*?[("))
        return false;
    ndp_module_of(tensor, module);
    return fnmatch(target, module, FNM_EXTMATCH) == 0;
}

bool ndp_adapter_targets(const ndp_adapter *a, const char *tensor) {
    bool is = false;
    for (int i = 0; i < a->n_targets; i++)
        is |= is_target(tensor, a->targets[i]);
    return is;
}

/* The matrices of single experts are no modules, and are named as what holds all of them. */
void ndp_stack_parameter(const ndp_segment *s, char out[NDP_SEGMENT_NAME]) {
    const char *number = strstr(s->name, ".%d.");
    int stem = number ? (int)(number - s->name) : 0;
    for (int words = 0; stem > 0 && words < 2; words += s->name[stem] == '.')
        stem--; /* of the module's name, block_sparse_moe.experts of mixtral */
    snprintf(out, NDP_SEGMENT_NAME, number ? "%.*s.mlp.experts.%s" : "%.*s%s", stem, s->name,
             !number            ? s->name
             : number[4] == '{' ? "gate_up_proj"
                                : "down_proj");
}

static bool is_stack_target(const ndp_segment *s, const char *target) {
    char parameter[NDP_SEGMENT_NAME];
    ndp_stack_parameter(s, parameter);
    size_t n = strlen(parameter), k = strlen(target);
    bool end = k <= n && strcmp(parameter + n - k, target) == 0 && (k == n || parameter[n - k - 1] == '.');
    return s->ndim == 2 && !ndp_adapter_inner(s->name) && strstr(target, "experts") && !ndp_regex_of(target) &&
           (end || fnmatch(target, parameter, FNM_EXTMATCH) == 0);
}

/* Whether a target names member i of a stack, which is no module for PEFT's regular expressions. */
static bool is_member_target(const ndp_segment *s, int64_t i, const char *target) {
    char room[NDP_SEGMENT_NAME];
    return strstr(target, "experts") && !ndp_regex_of(target) && is_target(ndp_segment_tensor_name(s, i, room), target);
}

ndp_stack_factors ndp_adapter_of_stack(const ndp_adapter *a, const ndp_segment *s) {
    bool all = ndp_segment_tensors(s) > 1 && !ndp_adapter_inner(s->name);
    for (int i = 0; i < a->n_targets; i++)
        if (is_stack_target(s, a->targets[i]))
            return NDP_STACK_FACTORS_JOINT;
    for (int64_t k = 0; k < s->stack && all; k++) {
        all = false;
        for (int i = 0; i < a->n_targets && !all; i++)
            all = is_member_target(s, k, a->targets[i]);
    }
    return all ? NDP_STACK_FACTORS_SINGLE : NDP_STACK_FACTORS_NONE;
}

/* A tied head has no tensor of its own. */
bool ndp_module_is_named(const char *tensor, const char *name, const ndp_facts *f) {
    char embedding[NDP_TENSOR_NAME] = "";
    if (f)
        ndp_facts_name(f, f->names->tokens, embedding);
    bool tokens = ends_with_module(tensor, embedding) && module_length(tensor) == strlen(embedding);
    return ends_with_module(tensor, name) || (tokens && f->tied && strcmp(name, f->names->head) == 0);
}

bool ndp_adapter_saves(const ndp_adapter *a, const char *tensor, const ndp_facts *f) {
    bool is = false;
    for (int i = 0; i < a->n_save; i++)
        is |= ndp_module_is_named(tensor, a->save[i], f);
    return is;
}

/* ---- names that match nothing ---- */

/* Appends a word, once. */
static void add_word(ndp_str *list, const char *word) {
    const char *at = list->data ? strstr(list->data, word) : NULL;
    while (at && ((at > list->data && at[-1] != ' ') || (at[strlen(word)] != ',' && at[strlen(word)] != '\0')))
        at = strstr(at + 1, word);
    if (!at)
        ndp_str_addf(list, "%s%s", list->length ? ", " : "", word);
}

/* The last word of the name of a tensor's module; of a stack's parameter two. */
static void add_module(ndp_str *list, const ndp_segment *s) {
    char module[NDP_SEGMENT_NAME];
    if (ndp_segment_is_stack(s))
        ndp_stack_parameter(s, module);
    else
        ndp_module_of(s->name, module);
    char *dot = strrchr(module, '.'), *word = dot ? dot : module;
    while (ndp_segment_is_stack(s) && word > module && (word == dot || *word != '.'))
        word--;
    add_word(list, word + (*word == '.'));
}

/* What a name of one kind finds: `projections` and stacks may be targets, else the others may be saved. Routers, gates
 * of shared experts and single experts are neither. */
typedef struct found_names {
    bool found, other;        /* of this kind, of the other */
    const ndp_segment *fixed; /* of those; NULL: none has the name */
    ndp_str list;             /* what there is of this kind */
} found_names;

/* What decides which experts a row goes to, or how much a shared one adds, or holds attention; NULL: another tensor. */
static const char *decider(const ndp_facts *f, const char *tensor) {
    if (!f)
        return NULL;
    const ndp_names *n = f->names;
    return n->router && ends_with_module(tensor, n->router)             ? "a router"
           : n->shared_pass && ends_with_module(tensor, n->shared_pass) ? "the gate of a shared expert"
           : n->sinks && ndp_ends_with(tensor, n->sinks)                ? "what attention has sinks in"
                                                                        : NULL;
}

/* Whether a name of one kind is that of a segment, or of a member of a stack. */
static bool is_named(const ndp_segment *s, const ndp_facts *f, const char *name, bool projections) {
    char room[NDP_SEGMENT_NAME];
    int64_t members = !ndp_segment_is_stack(s) ? 1 : ndp_regex_of(name) ? 0 : s->stack;
    for (int64_t i = 0; i < members; i++) {
        const char *tensor = ndp_segment_tensor_name(s, i, room);
        if (projections ? is_target(tensor, name) : ndp_module_is_named(tensor, name, f))
            return true;
    }
    return false;
}

static found_names find_name(const ndp_model *m, const ndp_facts *f, const char *name, bool projections) {
    found_names r = {0};
    for (ndp_segment_walk w = {.model = m}; ndp_segment_next(&w);) {
        const ndp_segment *s = w.segment;
        if (ndp_adapter_inner(s->name))
            continue;
        bool is = is_named(s, f, name, projections), stack = ndp_segment_is_stack(s);
        if (stack || decider(f, s->name)) {
            r.fixed = is ? s : r.fixed;
            r.found |=
                stack && projections &&
                (is_stack_target(s, name) || (is && strstr(name, "experts") &&
                                              ndp_adapter_of_stack(&m->opts.adapter, s) != NDP_STACK_FACTORS_NONE));
            if (stack && projections && s->ndim == 2)
                add_module(&r.list, s);
            continue;
        }
        r.found |= is && s->projection == projections;
        r.other |= is && s->projection != projections;
        if (s->projection == projections)
            add_module(&r.list, s);
    }
    return r;
}

static ndp_status refuse_fixed(const ndp_facts *f, const char *key, const char *name, const found_names *r) {
    const ndp_segment *s = r->fixed;
    char room[NDP_SEGMENT_NAME];
    if (ndp_segment_is_stack(s))
        return NDP_FAIL(NDP_ENOTSUP,
                        "%s: %.100s names some experts, or one of their gate and up (%s, ...), of which all have "
                        "factors or none; use %s: [%s]",
                        key, name, ndp_segment_tensor_name(s, 0, room), key, r->list.data ? r->list.data : "");
    return NDP_FAIL(NDP_ENOTSUP, "%s: %.100s is %s, %s, which no adapter changes", key, name, decider(f, s->name),
                    s->name);
}

/* PEFT would give factors to an embedding or a head that the expression names, and refuses a norm. */
static ndp_status check_regex(const ndp_model *m, const char *key, const char *regex) {
    for (ndp_segment_walk w = {.model = m}; ndp_segment_next(&w);) {
        char module[NDP_MODULE_NAME];
        bool is, own = w.segment->projection || ndp_segment_is_stack(w.segment) || ndp_adapter_inner(w.segment->name) ||
                       ndp_ends_with(w.segment->name, ".bias"); /* that of a module whose weight is here, too */
        ndp_module_of(w.segment->name, module);
        ndp_status st = ndp_full_match(regex, module, &is);
        if (st != NDP_OK)
            return NDP_FAIL(st, "%s: %s", key, ndp_error_message());
        if (is && !own)
            return NDP_FAIL(
                NDP_ENOTSUP,
                "%s: the regular expression '%.100s' also names %s, which is no projection and has no factors; "
                "leave it out",
                key, regex, module);
    }
    return NDP_OK;
}

static ndp_status check_name(const ndp_model *m, const ndp_facts *f, const char *key, const char *name,
                             bool projections) {
    if (projections && ndp_regex_of(name))
        NDP_TRY(check_regex(m, key, ndp_regex_of(name)));
    found_names r = find_name(m, f, name, projections);
    ndp_status st = NDP_OK;
    if (r.other && !projections)
        st = NDP_FAIL(NDP_ENOTSUP,
                      "%s: %.100s is a projection, which is trained by factors only: name it in "
                      "adapter.targets",
                      key, name);
    else if (r.fixed && (!r.found || !projections))
        st = refuse_fixed(f, key, name, &r);
    else if (!r.found)
        st = NDP_FAIL(NDP_EINVAL, "%s: there is no %s '%.100s' in a %s; there are %s", key,
                      projections ? "projection" : "module", name, f ? f->family : "model of this architecture",
                      r.list.data ? r.list.data : "none");
    ndp_str_release(&r.list);
    return st;
}

static ndp_status check_names(const ndp_model *m, const ndp_facts *f, const char *key, const char *const *names, int n,
                              bool projections) {
    for (int i = 0; i < n; i++)
        NDP_TRY(check_name(m, f, key, names[i], projections));
    return NDP_OK;
}

/* As PEFT: no form but the plain one, and no dropout, which is of what A reads, where PEFT adds to weights. It makes
 * one pair of those of single experts, for gate and up only where down has one. */
static ndp_status check_stack(const ndp_adapter *a, const ndp_segment *s, ndp_stack_factors how,
                              ndp_stack_factors before) {
    char parameter[NDP_SEGMENT_NAME];
    ndp_stack_parameter(s, parameter);
    if (how != NDP_STACK_FACTORS_NONE && (a->form != NDP_LORA || a->dropout > 0))
        return NDP_FAIL(NDP_ENOTSUP,
                        "adapter.targets names experts (%s), whose factors have neither adapter.dora nor "
                        "adapter.dropout: set %s, or leave experts out",
                        parameter, a->form != NDP_LORA ? "adapter.dora: false" : "adapter.dropout: 0");
    bool single = how == NDP_STACK_FACTORS_SINGLE;
    return (before == NDP_STACK_FACTORS_SINGLE && !single) || (before == NDP_STACK_FACTORS_JOINT && single)
               ? NDP_FAIL(NDP_ENOTSUP,
                          "adapter.targets names the matrices of single experts for one of gate and up, and down (%s), "
                          "which PEFT does not load: name both (*.experts.*.*), or stacks (experts.gate_up_proj)",
                          parameter)
               : NDP_OK;
}

/* In each layer that of gate and up comes first. */
static ndp_status check_stacks(const ndp_model *m) {
    ndp_stack_factors before = NDP_STACK_FACTORS_NONE;
    bool second = false;
    for (ndp_segment_walk w = {.model = m}; ndp_segment_next(&w);) {
        const ndp_segment *s = w.segment;
        if (!ndp_segment_is_stack(s) || s->ndim != 2 || ndp_adapter_inner(s->name))
            continue;
        ndp_stack_factors how = ndp_adapter_of_stack(&m->opts.adapter, s);
        NDP_TRY(check_stack(&m->opts.adapter, s, how, second ? before : NDP_STACK_FACTORS_NONE));
        before = how, second = !second;
    }
    return NDP_OK;
}

/* PEFT would not find a head that is saved by the name that files have for it. */
static ndp_status check_head(const ndp_adapter *a, const ndp_facts *f) {
    char tokens[NDP_TENSOR_NAME], head[NDP_TENSOR_NAME];
    if (!f || !f->names->other_head)
        return NDP_OK;
    ndp_facts_tied_names(f, tokens, head);
    for (int i = 0; i < a->n_save; i++)
        if (ndp_module_is_named(f->tied ? tokens : head, a->save[i], f))
            return NDP_FAIL(
                NDP_ENOTSUP,
                "adapter.modules_to_save: %.100s is the head of a %s, which is %.*s in files and lm_head in "
                "PEFT: no adapter has it; leave it out",
                a->save[i], f->family, (int)module_length(head), head);
    return NDP_OK;
}

ndp_status ndp_adapter_check(const ndp_model *m, const ndp_facts *f) {
    const ndp_adapter *a = &m->opts.adapter;
    if (a->r == 0)
        return NDP_OK;
    NDP_TRY(check_stacks(m));
    NDP_TRY(check_head(a, f));
    NDP_TRY(check_names(m, f, "adapter.targets", a->targets, a->n_targets, true));
    NDP_TRY(check_names(m, f, "adapter.modules_to_save", a->save, a->n_save, false));
    NDP_CHECK(a->n_targets + a->n_save > 0,
              "adapter.targets is empty: name projections such as q_proj, or linear for all of them");
    return NDP_OK;
}

/* ---- what has factors ---- */

void ndp_adapter_describe(const ndp_model *m, ndp_str *out) {
    const ndp_adapter *a = &m->opts.adapter;
    ndp_str words = {0};
    bool experts = false, trained = false;
    for (ndp_segment_walk w = {.model = m}; ndp_segment_next(&w);) {
        bool stack = ndp_segment_is_stack(w.segment), factor = ndp_factor_of(w.segment->name) == NDP_FACTOR_A;
        experts |= stack, trained |= stack && factor;
        if (factor && !stack)
            add_module(&words, w.segment);
    }
    for (int i = 0; i < a->n_targets; i++)
        ndp_str_addf(out, "%s%s", i ? ", " : "", is_linear(a->targets[i]) && words.data ? words.data : a->targets[i]);
    ndp_str_add(out, experts && !trained ? "; experts have none" : "");
    ndp_str_release(&words);
}
