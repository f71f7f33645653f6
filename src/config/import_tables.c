/* All keys, and the kinds of files that have them. */
#include "config/import_parts.h"

const import_table *const ndp_import_tables[] = {&ndp_import_axolotl, &ndp_import_accelerate, NULL};

/* What Axolotl and the transformers' Trainer below it take where a file is silent. */
static const char *const axolotl_defaults[] = {"model.path=null",          "data.sequence_length=512",
                                               "optimizer.weight_decay=0", "optimizer.betas=[0.9, 0.999]",
                                               "schedule.min_lr_ratio=0",  "train.output_dir=./model-out",
                                               "checkpoint.keep=4",        NULL};
static const char *const no_defaults[] = {NULL};

/* At equal counts of known keys the first is meant: a ParallelismConfig alone has keys that Axolotl has too. */
const import_dialect ndp_import_dialects[] = {{"parallelism", "a ParallelismConfig", no_defaults, false},
                                              {"accelerate", "an Accelerate configuration", no_defaults, false},
                                              {"axolotl", "an Axolotl configuration", axolotl_defaults, true}};
const int ndp_import_dialect_count = NDP_COUNT(ndp_import_dialects);
