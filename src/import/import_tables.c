/* All keys, and the kinds of files that have them. */
#include "import/import_table.h"

#include <string.h>

const import_table *const ndp_import_tables[] = {&ndp_import_axolotl, &ndp_import_accelerate, &ndp_import_llamafactory,
                                                 &ndp_import_trl, NULL};

/* The defaults of Axolotl and of the transformers' Trainer below it. */
static const char axolotl_defaults[] =
    "model: {path: null}\ndata: {sequence_length: 512}\noptimizer: {weight_decay: 0, betas: [0.9, 0.999]}\n"
    "schedule: {min_lr_ratio: 0}\ntrain: {output_dir: ./model-out}\ncheckpoint: {keep: 4}\n";
/* Those of LLaMA-Factory, and of the Trainer where it has none. */
static const char llamafactory_defaults[] =
    "model: {path: null}\ndata: {sequence_length: 2048}\noptimizer: {lr: 5e-5, weight_decay: 0, betas: [0.9, 0.999]}\n"
    "schedule: {min_lr_ratio: 0}\nadapter: {r: 8}\ntrain: {output_dir: ./trainer_output}\n";

/* Those of TRL's SFTConfig and ModelConfig, and of the Trainer below it. */
static const char trl_defaults[] =
    "model: {path: null}\ndata: {sequence_length: 1024}\noptimizer: {lr: 2e-5, weight_decay: 0, betas: [0.9, 0.999]}\n"
    "schedule: {min_lr_ratio: 0}\nadapter: {r: 16, alpha: 32, dropout: 0.05}\ntrain: {output_dir: ./trainer_output}\n";

/* At equal counts of known keys the first wins: a ParallelismConfig alone has keys that Axolotl has too. */
static const import_dialect dialects[] = {
    {"parallelism", "a ParallelismConfig", "Accelerate", NULL, NULL, NULL, NULL, false},
    {"distributed", "a DistributedConfig of transformers", "transformers",
     "fsdp_size tp_plan fsdp_plan ep_plan ep_implementation enable_expert_parallel", NULL, NULL, NULL, false},
    {"accelerate", "an Accelerate configuration", "Accelerate", NULL, NULL, NULL, NULL, false},
    {"deepspeed:alone", "a DeepSpeed configuration", "DeepSpeed", NULL, NULL, NULL, NULL, false},
    {"axolotl", "an Axolotl configuration", "Axolotl", NULL, axolotl_defaults, NULL, NULL, true},
    {"trainer:llamafactory", "a LLaMA-Factory configuration", "LLaMA-Factory",
     "finetuning_type cutoff_len template stage lora_target dataset", llamafactory_defaults,
     ndp_import_begin_llamafactory, ndp_import_prepare_llamafactory, true},
    {"trainer:trl", "a configuration of TRL's script sft or dpo", "TRL",
     "dataset_name use_peft max_length max_seq_length dataset_text_field completion_only_loss assistant_only_loss "
     "precompute_ref_log_probs",
     trl_defaults, ndp_import_begin_trl, ndp_import_prepare_trl, true}};

bool ndp_import_is_axolotl(const ndp_import *m) { return strcmp(m->dialect->section, "axolotl") == 0; }

/* Files that look like another program's, which are not imported: at least three of its marks, and more than keys. */
static const struct {
    const char *name, *marks, *page;
} others[] = {
    {"this program: a job file, which `ndparallel train` takes as it is",
     "data batch precision schedule parallelism train "
     "model optimizer",
     "docs/guide/first-run.md"},
    {"LLaMA-Factory's v1 engine, which has other keys than its other jobs",
     "model model_class train_dataset dist_config kernel_config quant_config peft_config sample_backend "
     "batching_strategy template cutoff_len output_dir learning_rate max_steps num_train_epochs micro_batch_size "
     "max_new_tokens",
     "docs/guide/from-llamafactory.md"},
    {"torchtitan",
     "job model training parallelism profiling metrics optimizer lr_scheduler checkpoint activation_checkpoint",
     "docs/guide/from-torchtitan.md"},
    {"Unsloth, which has no job files: its arguments are those of model, adapter and TRL's trainer",
     "max_seq_length "
     "load_in_4bit full_finetuning fast_inference use_gradient_checkpointing lora_alpha target_modules random_state",
     "docs/guide/fine-tuning.md"}};

static int count_marks(const ndp_import *m, const char *marks) {
    int found = 0;
    for (size_t n; (n = strcspn(marks, " ")); marks += n, marks += *marks == ' ')
        found += fy_node_mapping_lookup_by_string(m->yaml.root, marks, n) != NULL;
    return found;
}

static int count_keys(const ndp_import *m, const char *section) {
    int known = 0;
    void *place = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(m->yaml.root, &place));) {
        const char *name = ndp_yaml_text(fy_node_pair_key(pair));
        known += name && ndp_import_key(section, "parallelism_config_", name) != NULL;
    }
    return known;
}

#define PROGRAMS "Axolotl, LLaMA-Factory, TRL, Accelerate, DeepSpeed or transformers"

ndp_status ndp_import_choose(ndp_import *m) {
    int most = 0;
    const import_dialect *also = NULL; /* knows as many */
    if (!m->yaml.root || !fy_node_is_mapping(m->yaml.root))
        return ndp_yaml_fail(&m->yaml, m->yaml.root, "expected the keys of a configuration of " PROGRAMS);
    for (int d = 0; d < NDP_COUNT(dialects); d++) {
        int known = dialects[d].marks && !count_marks(m, dialects[d].marks) ? 0 : count_keys(m, dialects[d].section);
        also = known > most ? NULL : known && known == most ? &dialects[d] : also;
        if (known > most) {
            most = known;
            m->dialect = &dialects[d];
        }
    }
    for (int i = 0; i < NDP_COUNT(others); i++)
        if (count_marks(m, others[i].marks) > (most > 2 ? most : 2))
            return ndp_yaml_fail(&m->yaml, m->yaml.root,
                                 "the keys are those of %s; only configurations of " PROGRAMS " are imported: see %s",
                                 others[i].name, others[i].page);
    if (!m->dialect)
        return ndp_yaml_fail(&m->yaml, m->yaml.root,
                             "the file has no key of a configuration of " PROGRAMS
                             ", such as base_model, model_name_or_path, dataset_name, distributed_type, "
                             "parallelism_config, zero_optimization or fsdp_size");
    if (also)
        SAY(m, "read as %s; as many of its keys are those of %s\n", m->dialect->name, also->name);
    return NDP_OK;
}
