/* Weights of tokens, and losses of preference data: what Axolotl's key rl and the keys beside it mean, which it hands
 * to TRL's trainers (core/builders/rl.py). */
#include "import/import_parts.h"

#include <string.h>

/* Axolotl's reward_model: true, which may come after its data sets. */
static bool rewards(const ndp_import *m) {
    struct fy_node *root = m->yaml.root;
    bool top = root && fy_node_is_mapping(root) && ndp_import_is_axolotl(m);
    const char *text = top ? ndp_yaml_text(fy_node_mapping_lookup_by_string(root, "reward_model", 12)) : NULL;
    return text && strcmp(text, "true") == 0;
}

bool ndp_import_has_pairs(const ndp_import *m) {
    struct fy_node *value = m->yaml.root && fy_node_is_mapping(m->yaml.root)
                                ? fy_node_mapping_lookup_by_string(m->yaml.root, "rl", 2)
                                : NULL;
    struct fy_node *stage = m->yaml.root && fy_node_is_mapping(m->yaml.root)
                                ? fy_node_mapping_lookup_by_string(m->yaml.root, "stage", 5)
                                : NULL;
    const char *of = ndp_import_is_axolotl(m) ? NULL : ndp_yaml_text(stage);
    if (ndp_import_is_trl_dpo(m) || rewards(m))
        return true;
    return of ? strcmp(of, "dpo") == 0 || strcmp(of, "kto") == 0 || strcmp(of, "rm") == 0
              : value && !ndp_yaml_is_null(value);
}

static void set_number(ndp_import *m, double value, double *ours) {
    if (value >= 0)
        *ours = value;
    ndp_import_mark(m, (size_t)((char *)ours - (char *)&m->job));
}

/* Rows are not packed, and the answers alone are trained on, whatever train_on_inputs says. */
static ndp_status refuse_packing(ndp_import *m) {
    bool packed = m->read.packing == WORD_YES;
    const char *key = ndp_import_is_axolotl(m) ? "sample_packing" : "packing";
    m->read.packing = m->read.train_on_inputs = 0;
    return packed ? ndp_import_refuse(&m->notes, key, "true", ndp_import_node(&m->notes, key),
                                      "a document of preference data has a row for itself", "data.packing")
                  : NDP_OK;
}

/* Keys of weights that are off are of no effect; preference data have none. LLaMA-Factory divides entropies by 3. */
static ndp_status finish_weights(ndp_import *m) {
    ndp_token_weight *kind = &m->job.loss.token_weight;
    if (!ndp_import_is_set(&m->notes, "loss.token_weight") && !m->read.pairs)
        *kind = m->read.probability == WORD_YES ? NDP_TOKEN_WEIGHT_PROBABILITY
                : m->read.entropy == WORD_YES   ? NDP_TOKEN_WEIGHT_ENTROPY
                                                : NDP_TOKEN_WEIGHT_NONE;
    if (*kind != NDP_TOKEN_WEIGHT_ENTROPY) {
        ndp_config defaults;
        NDP_TRY(ndp_config_init(&defaults));
        m->job.loss.entropy_k = defaults.loss.entropy_k, m->job.loss.entropy_alpha = defaults.loss.entropy_alpha;
        ndp_config_release(&defaults);
        for (int i = 0; i < ndp_option_count; i++)
            m->imported[i] &= strncmp(ndp_options[i].key, "entropy_", strlen("entropy_")) != 0;
    } else if (!ndp_import_is_axolotl(m) && !ndp_import_is_set(&m->notes, "loss.entropy_unit")) {
        m->job.loss.entropy_unit = 3;
    }
    return NDP_OK;
}

ndp_status ndp_import_finish_preference(ndp_import *m) {
    static const ndp_loss losses[] = {
        [PAIRS_DPO] = NDP_LOSS_DPO,     [PAIRS_IPO] = NDP_LOSS_DPO,      [PAIRS_HINGE] = NDP_LOSS_DPO,
        [PAIRS_ROBUST] = NDP_LOSS_DPO,  [PAIRS_APO_ZERO] = NDP_LOSS_DPO, [PAIRS_ORPO] = NDP_LOSS_ORPO,
        [PAIRS_SIMPO] = NDP_LOSS_SIMPO, [PAIRS_KTO] = NDP_LOSS_KTO,      [PAIRS_REWARD] = NDP_LOSS_REWARD};
    static const ndp_loss_variant variants[PAIRS_REWARD + 1] = {[PAIRS_IPO] = NDP_LOSS_IPO,
                                                                [PAIRS_HINGE] = NDP_LOSS_HINGE,
                                                                [PAIRS_ROBUST] = NDP_LOSS_ROBUST,
                                                                [PAIRS_APO_ZERO] = NDP_LOSS_APO_ZERO};
    const import_values *read = &m->read;
    NDP_TRY(finish_weights(m));
    if (!read->pairs)
        return NDP_OK;
    m->job.loss.name = losses[read->pairs];
    m->job.loss.variant = variants[read->pairs]; /* 0: sigmoid */
    ndp_import_mark(m, offsetof(ndp_config, loss.name));
    if (read->pairs == PAIRS_REWARD) {
        if (read->center >= 0)
            set_number(m, read->center, &m->job.loss.center);
        return refuse_packing(m);
    }
    set_number(m,
               read->trl_beta >= 0 ? read->trl_beta
               : read->beta >= 0   ? read->beta
                                   : read->odds_weight,
               &m->job.loss.beta);
    bool simpo = read->pairs == PAIRS_SIMPO, odds = read->pairs == PAIRS_ORPO;
    if (simpo)
        set_number(m, read->margin, &m->job.loss.gamma);
    if (ndp_import_is_axolotl(m)) /* others say it themselves */
        set_number(m, simpo && read->nll_weight >= 0 ? read->nll_weight : simpo || odds, &m->job.loss.sft_weight);
    if (simpo && read->nll_weight < 0 && ndp_import_is_axolotl(m))
        SAY(m, "loss.sft_weight 1: TRL's cpo_alpha, which Axolotl leaves as it is; SimPO itself is 0\n");
    if (read->pairs != PAIRS_KTO)
        return refuse_packing(m);
    if (read->desirable >= 0)
        set_number(m, read->desirable, &m->job.loss.desirable_weight);
    if (read->undesirable >= 0)
        set_number(m, read->undesirable, &m->job.loss.undesirable_weight);
    SAY(m, "loss.name kto: the KL divergence is estimated over the whole update, so that no layout changes it; TRL's "
           "is that of a process's micro-batch\n");
    return refuse_packing(m);
}
