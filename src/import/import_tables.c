/* All keys, and the kinds of files that have them. */
#include "import/import_table.h"

#include <string.h>

const import_table *const ndp_import_tables[] = {&ndp_import_axolotl, &ndp_import_accelerate, &ndp_import_llamafactory,
                                                 NULL};

/* The defaults of Axolotl and of the transformers' Trainer below it. */
static const char axolotl_defaults[] =
    "model: {path: null}\ndata: {sequence_length: 512}\noptimizer: {weight_decay: 0, betas: [0.9, 0.999]}\n"
    "schedule: {min_lr_ratio: 0}\ntrain: {output_dir: ./model-out}\ncheckpoint: {keep: 4}\n";
/* Those of LLaMA-Factory, and of the Trainer where it has none. */
static const char llamafactory_defaults[] =
    "model: {path: null}\ndata: {sequence_length: 2048}\noptimizer: {lr: 5e-5, weight_decay: 0, betas: [0.9, 0.999]}\n"
    "schedule: {min_lr_ratio: 0}\nadapter: {r: 8}\ntrain: {output_dir: ./trainer_output}\n";

/* At equal counts of known keys the first wins: a ParallelismConfig alone has keys that Axolotl has too. */
static const import_dialect dialects[] = {
    {"parallelism", "a ParallelismConfig", "Accelerate", NULL, NULL, NULL, NULL, false},
    {"accelerate", "an Accelerate configuration", "Accelerate", NULL, NULL, NULL, NULL, false},
    {"deepspeed:alone", "a DeepSpeed configuration", "DeepSpeed", NULL, NULL, NULL, NULL, false},
    {"axolotl", "an Axolotl configuration", "Axolotl", NULL, axolotl_defaults, NULL, NULL, true},
    {"llamafactory", "a LLaMA-Factory configuration", "LLaMA-Factory",
     "finetuning_type cutoff_len template stage lora_target dataset", llamafactory_defaults,
     ndp_import_begin_llamafactory, ndp_import_prepare_llamafactory, true}};

bool ndp_import_is_axolotl(const ndp_import *m) { return strcmp(m->dialect->section, "axolotl") == 0; }

/* Files of other programs with the Trainer's keys have most of LLaMA-Factory's. */
static bool has_mark(const ndp_import *m, const char *marks) {
    bool found = !marks;
    for (size_t n; marks && !found && (n = strcspn(marks, " ")); marks += n, marks += *marks == ' ')
        found = fy_node_mapping_lookup_by_string(m->yaml.root, marks, n) != NULL;
    return found;
}

ndp_status ndp_import_choose(ndp_import *m) {
    int most = 0;
    if (!m->yaml.root || !fy_node_is_mapping(m->yaml.root))
        return ndp_yaml_fail(&m->yaml, m->yaml.root,
                             "expected the keys of an Axolotl, LLaMA-Factory, Accelerate or DeepSpeed configuration");
    for (int d = 0; d < NDP_COUNT(dialects); d++) {
        int known = 0;
        void *place = NULL;
        for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(m->yaml.root, &place));) {
            const char *name = ndp_yaml_text(fy_node_pair_key(pair));
            known += name && ndp_import_key(dialects[d].section, "parallelism_config_", name) != NULL;
        }
        if (known > most && has_mark(m, dialects[d].marks)) {
            most = known;
            m->dialect = &dialects[d];
        }
    }
    if (!m->dialect)
        return ndp_yaml_fail(
            &m->yaml, m->yaml.root,
            "the file has no key of an Axolotl, LLaMA-Factory, Accelerate or DeepSpeed configuration, such as "
            "base_model, model_name_or_path, distributed_type, parallelism_config or "
            "zero_optimization");
    return NDP_OK;
}
