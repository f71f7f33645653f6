/* Adapters of Axolotl and LLaMA-Factory: LoRA and QLoRA by PEFT and bitsandbytes. */
#include "import/import_parts.h"

#include "base/text.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- a regular expression as a pattern of fnmatch(3), for what both can say ---- */

static bool add_alternatives(const char **at, ndp_str *out);

/* A group, or digits, with what says how often: "@(a|b)", "+([0-9])". */
static bool add_group(const char **at, const char *digits, ndp_str *out) {
    ndp_str inner = {0};
    bool said = true;
    if (digits) {
        ndp_str_add(&inner, "[0-9]");
    } else {
        *at += strncmp(*at, "(?:", 3) == 0 ? 3 : 1;
        said = add_alternatives(at, &inner) && **at == ')';
        *at += said;
    }
    bool often = **at && strchr("?*+", **at);
    if (said && inner.length)
        ndp_str_addf(out, "%c(%s)", often ? **at : '@', inner.data);
    *at += often;
    out->failed |= inner.failed;
    ndp_str_release(&inner);
    return said;
}

static bool add_piece(const char **at, ndp_str *out) {
    static const char *const digits[] = {"[\\d]", "[0-9]", "\\d"};
    for (int i = 0; i < NDP_COUNT(digits); i++)
        if (strncmp(*at, digits[i], strlen(digits[i])) == 0) {
            *at += strlen(digits[i]);
            return add_group(at, digits[i], out);
        }
    if (**at == '(')
        return add_group(at, NULL, out);
    bool any = **at == '.', escaped = **at == '\\' && ispunct((unsigned char)(*at)[1]);
    char c = (*at)[escaped], next = (*at)[escaped + 1];
    if (!any && !(isalnum((unsigned char)c) || c == '_' || c == '-' || (escaped && c == '.')))
        return false;
    *at += 1 + escaped;
    if (any && (next == '*' || next == '+'))
        ndp_str_add(out, next == '*' ? "*" : "?*"), ++*at;
    else
        ndp_str_addf(out, "%c", any ? '?' : c);
    return any || !next || !strchr("*+?{", next);
}

/* Up to the end, or a bracket. */
static bool add_alternatives(const char **at, ndp_str *out) {
    bool said = true;
    for (; said && **at && **at != ')';)
        if (**at == '|')
            ndp_str_addf(out, "%c", *(*at)++);
        else
            said = add_piece(at, out);
    return said;
}

/* PEFT compares with whole names, as patterns are. */
static bool add_pattern(const char *regex, ndp_str *out) {
    size_t before = out->length;
    ndp_str_add(out, "@(");
    bool said = add_alternatives(&regex, out) && !*regex && !out->failed;
    ndp_str_add(out, ")");
    said = said && out->data && !ndp_pattern_repeats(out->data + before);
    if (!said)
        out->length = before;
    return said;
}

/* ---- targets ---- */

static bool is_regex(const char *target) { return strpbrk(target, "\\()|+^$"); }

/* A module that is no projection, or a regular expression that no pattern says. */
static ndp_status check_target(ndp_import *m, const char *target) {
    const char *key = ndp_import_is_axolotl(m) ? "lora_target_modules" : "lora_target";
    static const char *const others[] = {"embed_tokens", "lm_head", "wte", "wpe"};
    const char *why =
        is_regex(target) ? "a regular expression: name the projections, or patterns such as *.q_proj" : NULL;
    for (int i = 0; i < NDP_COUNT(others); i++)
        if (strcmp(target, others[i]) == 0)
            why = "embedding and head have no factors: name them in lora_modules_to_save, which trains them whole";
    return why ? ndp_import_refuse(&m->notes, key, target, ndp_import_node(&m->notes, key), why, "adapter.targets")
               : NDP_OK;
}

/* A parameter by its end: a module's weight, or a stack of experts, which our targets name by that word. */
static ndp_status add_parameter(ndp_strings *targets, const char *parameter) {
    static const char weight[] = ".weight";
    size_t n = strlen(parameter), k = strlen(weight);
    bool module = n > k && strcmp(parameter + n - k, weight) == 0, stack = strstr(parameter, "experts");
    char *name = ndp_format("%s%.*s", module || stack ? "" : "experts.", (int)(module ? n - k : n), parameter);
    ndp_status st = name ? ndp_strings_add(targets, name) : NDP_FAIL(NDP_ENOMEM, "not enough memory for a target");
    free(name);
    return st;
}

static ndp_status add_target(ndp_import *m, ndp_strings *targets, const char *target) {
    ndp_str pattern = {0};
    bool said = is_regex(target) && ndp_import_is_axolotl(m) && m->read.targets.n == 1 && add_pattern(target, &pattern);
    ndp_status st = said ? ndp_strings_add(targets, pattern.data) : check_target(m, target);
    ndp_str_release(&pattern);
    return st == NDP_OK && !said ? ndp_strings_add(targets, target) : st;
}

static ndp_status finish_targets(ndp_import *m) {
    ndp_strings *targets = &m->job.adapter.targets;
    if (ndp_import_is_set(&m->notes, "adapter.targets"))
        return NDP_OK;
    ndp_strings_release(targets);
    if (m->read.target_linear == WORD_YES)
        NDP_TRY(ndp_strings_add(targets, "linear"));
    for (int i = 0; i < m->read.targets.n; i++)
        NDP_TRY(add_target(m, targets, m->read.targets.items[i]));
    for (int i = 0; i < m->read.parameters.n; i++)
        NDP_TRY(add_parameter(targets, m->read.parameters.items[i]));
    if (targets->n == 0) /* PEFT has a list for each family; Axolotl's examples name theirs */
        return ndp_import_fail(
            &m->notes, "adapter",
            "'adapter' without lora_target_modules or lora_target_linear: say which projections have "
            "factors, or --set adapter.targets=linear");
    return NDP_OK;
}

/* The keys of an adapter in a file without one are of no effect. */
static ndp_status forget(ndp_import *m) {
    ndp_config defaults;
    NDP_TRY(ndp_config_init(&defaults));
    for (int i = 0; i < ndp_option_count; i++)
        if (strcmp(ndp_options[i].section, "adapter") == 0) {
            ndp_option_release(&ndp_options[i], &m->job);
            m->imported[i] = m->job.given[i] = false;
        }
    m->job.adapter = defaults.adapter; /* which owns its lists now */
    memset(&defaults.adapter, 0, sizeof defaults.adapter);
    ndp_config_release(&defaults);
    return NDP_OK;
}

ndp_status ndp_import_finish_adapter(ndp_import *m) {
    bool four = m->read.four_bits == WORD_YES, eight = m->read.eight_bits == WORD_YES;
    const char *bits = !ndp_import_is_axolotl(m) ? "quantization_bit" : four ? "load_in_4bit" : "load_in_8bit";
    if (m->read.adapter == NDP_ADAPTER_NONE) {
        NDP_TRY(forget(m));
        return four || eight ? ndp_import_refuse(&m->notes, bits, "true", ndp_import_node(&m->notes, bits),
                                                 "quantized weights are not trained; adapter: qlora trains factors "
                                                 "beside them",
                                                 "adapter.base")
                             : NDP_OK;
    }
    bool qlora = m->read.adapter == NDP_ADAPTER_QLORA || four || eight;
    m->job.adapter.type = qlora ? NDP_ADAPTER_QLORA : NDP_ADAPTER_LORA;
    m->job.adapter.base = eight && !four ? NDP_PACKING_INT8 : NDP_PACKING_NF4;
    m->job.adapter.dora = m->read.dora == WORD_YES;
    m->job.adapter.rslora = m->read.rslora == WORD_YES;
    ndp_import_mark(m, offsetof(ndp_config, adapter.type));
    if (qlora && m->job.adapter.base == NDP_PACKING_INT8)
        SAY(m, "8 bits: weights are stored as int8 with a scale for each row; bitsandbytes also computes products "
               "in int8, apart from outliers\n");
    return finish_targets(m);
}
