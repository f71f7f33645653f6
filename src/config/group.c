/* Entries of optimizer.groups (group.h): a table of options of their own. */
#include "config/group.h"

#include <string.h>

typedef struct group_values {
    ndp_strings params;
    double lr_scale, weight_decay, betas[2], momentum;
    ndp_optimizer_name optimizer;
} group_values;

static const char section[] = "optimizer.groups";

#define OPTIMIZER_WORD(NAME, name, ...) #name,
static const char *const optimizer_words[] = {NDP_OPTIMIZERS(OPTIMIZER_WORD) NULL};
enum { PARAMS, LR_SCALE, WEIGHT_DECAY, OPTIMIZER, BETAS, MOMENTUM };
#define ROW(name) .section = section, .key = #name, .offset = offsetof(group_values, name)
static const ndp_option rows[] = {
    [PARAMS] = {ROW(params), .type = NDP_OPTION_LIST, .value = "[]"},
    [LR_SCALE] = {ROW(lr_scale), .type = NDP_OPTION_NUMBER, .value = "1", .interval = "[0, inf)"},
    [WEIGHT_DECAY] = {ROW(weight_decay), .type = NDP_OPTION_NUMBER, .value = "0", .interval = "[0, inf)"},
    [OPTIMIZER] = {ROW(optimizer), .type = NDP_OPTION_WORD, .value = "adamw", .words = optimizer_words},
    [BETAS] = {ROW(betas), .type = NDP_OPTION_PAIR, .value = "[0, 0]", .interval = "[0, 1)"},
    [MOMENTUM] = {ROW(momentum), .type = NDP_OPTION_NUMBER, .value = "0", .interval = "[0, 1)"}};
static const ndp_option_section sections[] = {{section, NULL, NULL}};

static ndp_status refuse(ndp_yaml *y, const ndp_option_key *key);
static const ndp_option_table table = {
    .rows = rows, .n = NDP_COUNT(rows), .sections = sections, .section_count = 1, .expected = "", .refuse = refuse};

static ndp_status refuse(ndp_yaml *y, const ndp_option_key *key) {
    ndp_str s = {0};
    ndp_option_unknown(&table, key, NULL, NULL, &s);
    return ndp_yaml_fail_str(y, key->node, &s);
}

/* The caller releases the params, also after an error. */
static ndp_status read_values(ndp_option_reading *r, struct fy_node *mapping) {
    const group_values *v = r->into;
    NDP_TRY(ndp_option_defaults(&table, section, r->into));
    NDP_TRY(ndp_option_read_section(r, section, mapping));
    return v->params.n > 0
               ? NDP_OK
               : ndp_yaml_fail(r->y, mapping,
                               "an entry of optimizer.groups has no params; expected {params: [NAME, ...], "
                               "KEY: VALUE, ...}, with lr_scale, weight_decay, optimizer, betas or momentum");
}

ndp_status ndp_group_read(const ndp_option *o, ndp_yaml *y, struct fy_node *mapping, ndp_strings *texts,
                          ndp_strings *unused) {
    (void)o, (void)unused;
    group_values v = {0};
    ndp_option_reading r = {.table = &table, .y = y, .into = &v};
    ndp_str text = {0};
    ndp_status st = read_values(&r, mapping);
    for (int i = 0; i < table.n; i++)
        if (r.stated[i]) {
            ndp_str_addf(&text, "%s%s: ", text.length ? ", " : "{", rows[i].key);
            ndp_option_write(&rows[i], &v, &text);
        }
    ndp_str_add(&text, "}");
    if (st == NDP_OK && text.failed)
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration");
    if (st == NDP_OK)
        st = ndp_strings_add(texts, text.data);
    ndp_strings_release(&v.params);
    ndp_str_release(&text);
    return st;
}

ndp_optimizer_opts ndp_config_optimizer(const ndp_config *c) {
    return (ndp_optimizer_opts){.name = c->optimizer.name,
                                .betas = {c->optimizer.betas[0], c->optimizer.betas[1]},
                                .eps = c->optimizer.eps,
                                .weight_decay = c->optimizer.weight_decay,
                                .momentum = c->optimizer.momentum,
                                .max_norm = c->optimizer.max_grad_norm,
                                .seed = (uint32_t)c->train.seed};
}

/* What the entry does not state is as in the section; but another optimizer than the section's begins with its own
 * defaults. */
static ndp_status make_entry(const ndp_config *c, const group_values *v, const ndp_option_reading *r,
                             ndp_update_entry *out) {
    ndp_config of = *c; /* of which only numbers change */
    out->chosen = r->stated[OPTIMIZER], out->decays = r->stated[WEIGHT_DECAY];
    if (out->chosen && v->optimizer != c->optimizer.name) {
        of.optimizer.name = v->optimizer;
        memset(of.given, 0, sizeof of.given);
        NDP_TRY(ndp_option_follow_optimizer(&of));
    }
    out->opts = ndp_config_optimizer(&of);
    if (r->stated[BETAS])
        memcpy(out->opts.betas, v->betas, sizeof v->betas);
    out->opts.momentum = r->stated[MOMENTUM] ? v->momentum : out->opts.momentum;
    out->opts.weight_decay = out->decays ? v->weight_decay : out->opts.weight_decay;
    out->lr_scale = v->lr_scale;
    return NDP_OK;
}

/* Groups that other keys make, after those of optimizer.groups. Their names may name nothing. */
typedef struct made_group {
    const char *key, *text;
    size_t scale; /* of ndp_config: lr_scale; 1: there is no group */
} made_group;
static const made_group made[] = {
    {"adapter.lr_ratio_b", "{params: [lora_B, vectors]}", offsetof(ndp_config, adapter.lr_ratio_b)}};

static double scale_of(const ndp_config *c, const made_group *g) {
    return *(const double *)((const char *)c + g->scale);
}

/* Returns number `i` of the groups that other keys make, or NULL if there are fewer. */
static const made_group *made_at(const ndp_config *c, int i) {
    for (int k = 0; k < NDP_COUNT(made); k++)
        if (scale_of(c, &made[k]) != 1 && i-- == 0)
            return &made[k];
    return NULL;
}

int ndp_config_groups(const ndp_config *c) {
    int n = 0;
    while (made_at(c, n))
        n++;
    return c->optimizer.groups.n + n;
}

const char *ndp_config_group_key(const ndp_config *c, int i) {
    return i < c->optimizer.groups.n ? NULL : made_at(c, i - c->optimizer.groups.n)->key;
}

ndp_status ndp_config_group(const ndp_config *c, int i, ndp_strings *params, ndp_update_entry *out) {
    const made_group *other = i < c->optimizer.groups.n ? NULL : made_at(c, i - c->optimizer.groups.n);
    const char *text = other ? other->text : c->optimizer.groups.items[i];
    ndp_yaml y;
    group_values v = {0};
    ndp_option_reading r = {.table = &table, .y = &y, .into = &v};
    ndp_status st = ndp_yaml_open(&y, "an entry of optimizer.groups", text, strlen(text), 0);
    if (st == NDP_OK)
        st = read_values(&r, y.root);
    ndp_yaml_close(&y);
    if (st == NDP_OK)
        st = make_entry(c, &v, &r, out);
    if (st == NDP_OK && other)
        out->lr_scale = scale_of(c, other);
    if (st == NDP_OK)
        *params = v.params;
    else
        ndp_strings_release(&v.params);
    return st;
}
