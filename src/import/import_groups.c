/* Learning rates of Axolotl's that are not those of all parameters: of embeddings, and of groups of modules. What its
 * OptimizerMixin does with them: embeddings and heads, or with an adapter the modules trained whole, are without weight
 * decay then; of other modules, whose names have a given part, matrices have the rate. With LoRA+ it reads neither. */
#include "import/import_parts.h"

#include <stdlib.h>
#include <string.h>

static const char key[] = "optimizer.groups";

/* One item of lr_groups: kept as its rate and params, "1e-05 [...]", until the rate of the rest is known. */
static ndp_status read_group(ndp_import *m, struct fy_node *item, const char *name) {
    ndp_str text = {0};
    ndp_strings_release(&m->read.group_modules);
    m->read.group_lr = -1;
    NDP_TRY(ndp_import_walk(m, item, "lr_group", NULL, name));
    if (m->read.group_lr < 0 || m->read.group_modules.n == 0)
        return ndp_yaml_fail(m->notes.y, item, "'%s': expected {name: NAME, modules: [PART, ...], lr: NUMBER}", name);
    ndp_str_addf(&text, "%.17g [", m->read.group_lr);
    for (int i = 0; i < m->read.group_modules.n; i++) {
        char *pattern = ndp_format("*%s*.weight", m->read.group_modules.items[i]);
        ndp_str_add(&text, i ? ", " : "");
        ndp_option_write_text(pattern, &text);
        text.failed |= !pattern;
        free(pattern);
    }
    ndp_str_add(&text, "]");
    ndp_status st = text.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for '%s'", name)
                                : ndp_strings_add(&m->read.lr_groups, text.data);
    ndp_str_release(&text);
    return st;
}

ndp_status ndp_import_lr_groups(ndp_import *m, struct fy_node *value, const char *name) {
    return ndp_yaml_is_null(value) ? NDP_OK : ndp_import_items(m, value, name, read_group);
}

static void add_entry(ndp_str *out, const char *params, double scale, bool decays) {
    ndp_str_addf(out, "%s{params: %s, lr_scale: ", out->length ? ", " : "", params);
    ndp_str_add_number(out, scale);
    ndp_str_add(out, decays ? "}" : ", weight_decay: 0}");
}

/* Embeddings and heads; with an adapter, what it saves whole. */
static void add_embeddings(const ndp_import *m, ndp_str *out) {
    const double *scale = &m->read.embedding_lr_scale, lr = m->job.optimizer.lr;
    const ndp_strings *saved = &m->job.adapter.modules_to_save;
    ndp_str names = {0};
    for (int i = 0; i < saved->n; i++) {
        ndp_str_add(&names, i ? ", " : "[");
        ndp_option_write_text(saved->items[i], &names);
    }
    ndp_str_add(&names, saved->n ? "]" : "[embed_tokens, lm_head]");
    if (m->job.adapter.type == NDP_ADAPTER_NONE || saved->n)
        add_entry(out, names.data,
                  *scale > 0                 ? *scale
                  : m->read.embedding_lr > 0 ? m->read.embedding_lr / lr
                                             : 1,
                  false);
    out->failed |= names.failed;
    ndp_str_release(&names);
}

ndp_status ndp_import_finish_groups(ndp_import *m) {
    const import_values *r = &m->read;
    ndp_str text = {0};
    bool rates = r->embedding_lr > 0 || r->embedding_lr_scale > 0 || r->lr_groups.n;
    if (!rates || ndp_import_is_set(&m->notes, key))
        return NDP_OK;
    if (m->job.adapter.lr_ratio_b != 1) {
        SAY(m,
            "loraplus_lr_ratio: with it, Axolotl reads no other rates: embedding_lr, embedding_lr_scale, lr_groups\n");
        return NDP_OK;
    }
    if (m->job.optimizer.lr == 0)
        return ndp_import_refuse(&m->notes, "learning_rate", "0", ndp_import_node(&m->notes, "learning_rate"),
                                 "rates of groups are multiples of it", key);
    add_embeddings(m, &text);
    for (int i = 0; i < r->lr_groups.n; i++) {
        char *params;
        double lr = strtod(r->lr_groups.items[i], &params);
        add_entry(&text, params + 1, lr / m->job.optimizer.lr, true);
    }
    ndp_status st = text.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for %s", key)
                                : ndp_config_setf(&m->job, "%s=[%s]", key, text.length ? text.data : "");
    ndp_str_release(&text);
    ndp_import_mark(m, offsetof(ndp_config, optimizer.groups));
    if (r->lr_groups.n)
        SAY(m, "lr_groups: norms of these modules have the rate too; a tensor that two groups name is refused\n");
    return st;
}
