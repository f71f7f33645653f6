/* All keys, and the kinds of files that have them. */
#include "import/import_table.h"

const import_table *const ndp_import_tables[] = {&ndp_import_axolotl, &ndp_import_accelerate, NULL};

/* The defaults of Axolotl and of the transformers' Trainer below it. */
static const char *const axolotl_defaults[] = {"model.path=null",          "data.sequence_length=512",
                                               "optimizer.weight_decay=0", "optimizer.betas=[0.9, 0.999]",
                                               "schedule.min_lr_ratio=0",  "train.output_dir=./model-out",
                                               "checkpoint.keep=4",        NULL};
static const char *const no_defaults[] = {NULL};

/* At equal counts of known keys the first wins: a ParallelismConfig alone has keys that Axolotl has too. */
static const import_dialect dialects[] = {{"parallelism", "a ParallelismConfig", no_defaults, false},
                                          {"accelerate", "an Accelerate configuration", no_defaults, false},
                                          {"axolotl", "an Axolotl configuration", axolotl_defaults, true}};

ndp_status ndp_import_choose(ndp_import *m) {
    int most = 0;
    m->tables = ndp_import_tables;
    if (!m->yaml.root || !fy_node_is_mapping(m->yaml.root))
        return ndp_yaml_fail(&m->yaml, m->yaml.root, "expected the keys of an Axolotl or Accelerate configuration");
    for (int d = 0; d < NDP_COUNT(dialects); d++) {
        int known = 0;
        void *place = NULL;
        for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(m->yaml.root, &place));) {
            const char *name = ndp_yaml_text(fy_node_pair_key(pair));
            known +=
                name && ndp_import_key(ndp_import_tables, dialects[d].section, "parallelism_config_", name) != NULL;
        }
        if (known > most) {
            most = known;
            m->dialect = &dialects[d];
        }
    }
    if (!m->dialect)
        return ndp_yaml_fail(&m->yaml, m->yaml.root,
                             "the file has no key of an Axolotl or Accelerate configuration, such as base_model, "
                             "distributed_type or parallelism_config");
    return NDP_OK;
}
