/* The tables of other programs' keys: which there are, how their rows are written, and the reasons and words that
 * several of them use. Inside this room only. */
#ifndef NDP_CONFIG_IMPORT_TABLE_H
#define NDP_CONFIG_IMPORT_TABLE_H

#include "import/import_parts.h"

extern const import_table ndp_import_axolotl, ndp_import_accelerate;
/* All of them; ends with NULL. */
extern const import_table *const ndp_import_tables[];
/* Sets the tables and the dialect that knows the most keys of the file. */
NDP_API ndp_status ndp_import_choose(ndp_import *m);

#define INTO(member) .offset = offsetof(ndp_import, member)
#define INT(member, from, to) IMPORT_VALUE, .type = NDP_OPTION_INT, INTO(member), .low = from, .high = to
#define SIZE(member) INT(member, 1, 1 << 20)
#define AXIS(NAME) SIZE(read.size[NDP_##NAME])
#define INT64(member, from, to) IMPORT_VALUE, .type = NDP_OPTION_INT64, INTO(member), .low = from, .high = to
#define NUMBER(member, within) IMPORT_VALUE, .type = NDP_OPTION_NUMBER, INTO(member), .interval = within
#define TEXT(member) IMPORT_VALUE, .type = NDP_OPTION_TEXT, INTO(member)
#define LIST(member) IMPORT_VALUE, .type = NDP_OPTION_LIST, INTO(member)
#define WORD(member, choices) IMPORT_WORD, INTO(member), .words = choices
#define SECTION(name) IMPORT_SECTION, .inside = name
#define INSIDE(name) .inside = name /* of EACH: the section whose keys it reads */
#define EACH(function) IMPORT_EACH, .each = function
#define LEFT(reason) IMPORT_LEFT, .why = reason
#define REFUSED(reason) IMPORT_REFUSED, .why = reason
#define SETTLED_BY(key) .ours = key

/* ---- reasons ---- */

static const char launched[] = "ndparallel, mpirun or srun start the ranks; see train.ranks and --hostfile";
static const char own_attention[] = "ndparallel has its own kernels for exact attention";
static const char own_kernels[] = "ndparallel has its own kernels; there is nothing to compile or patch";
static const char own_memory[] = "`ndparallel train --dry-run` shows the plan of memory";
static const char units[] = "the units of sharding are the embedding, each decoder block and the head";
static const char one_sharding[] = "there is only one implementation of sharding";
static const char always_sharded[] = "every rank reads its own slice; checkpoints hold whole tensors, in safetensors";
static const char no_offload[] = "parameters and optimizer state are not offloaded";
static const char overlapped[] = "the step program schedules gathers and reductions";
static const char no_tracker[] = "metrics are in the run folder's metrics.jsonl";
static const char no_fp16[] = "fp16 is not supported; bf16 needs no loss scaling";
static const char no_fp8[] = "fp8 is not supported";

/* ---- words ---- */

/* "true" and "false" are all that ndp_import_truth takes for them. */
static const import_word truth[] = {{"true", WORD_YES, 0}, {"false", WORD_NO, 0}, {0}};
static const import_word truth_or_auto[] = {
    {"auto", WORD_AUTO, 0}, {"full true", WORD_YES, 0}, {"false", WORD_NO, 0}, {0}};
static const import_word half_words[] = {{"true", WORD_YES, no_fp16}, {"auto", 0, 0}, {"false", WORD_NO, 0}, {0}};
static const import_word checkpointing_words[] = {
    {"true", WORD_YES, 0}, {"false", WORD_NO, 0}, {"offload offload_disk unsloth", WORD_OFFLOAD, 0}, {0}};

#endif
