/* Job files of other programs: YAML of Axolotl, LLaMA-Factory and TRL's script sft, what `accelerate config` writes
 * (YAML or JSON), a ParallelismConfig, JSON of DeepSpeed, a DistributedConfig of transformers. A key with a counterpart
 * here is carried over exactly; others are listed, with the reason. Unknown keys, and keys that change the result and
 * are not supported, are rejected unless the user forces the import. */
#ifndef NDP_CONFIG_IMPORT_H
#define NDP_CONFIG_IMPORT_H

#include "config/config.h"

/* ndp_config_import (ndparallel.h) for a text; `what` names it in messages. */
NDP_API ndp_status ndp_config_import_text(ndp_config *c, const char *text, size_t size, const char *what,
                                          const ndp_import_opts *o, char **job, char **notes);

#endif
