/* Keys of TRL's script for supervised fine-tuning, as a YAML file of `trl sft --config` has them: those of its
 * SFTConfig, ModelConfig and ScriptArguments (TRL 1.16), beside the Trainer's (import_llamafactory.c). */
#include "import/import_table.h"

#include <stdlib.h>
#include <string.h>

static const char own_pairs[] = "a job of pairs is written by hand: docs/guide/preferences.md";
static const char own_folder[] = "read from the model folder";

static const import_word nf4[] = {{"nf4", 0, 0}, {"*", 0, no_quantization}, {0}};
static const import_word losses[] = {{"nll chunked_nll", 0, 0}, {"*", 0, one_loss}, {0}};
static const import_word sides[] = {{"keep_start", 0, 0}, {"*", 0, "of a long document the beginning is kept"}, {0}};

static const char trl[] = "trainer:trl";

static const import_key keys[] = {
    /* clang-format off */
    /* ModelConfig */
    {trl, "model_revision", TEXT(read.revision)},
    {trl, "dtype torch_dtype", LEFT("weights are kept in fp32; computation uses precision.compute")},
    {trl, "trust_remote_code model_init_kwargs", LEFT(own_folder)},
    {trl, "attn_implementation", LEFT(own_attention)},
    {trl, "use_peft", WORD(read.peft, truth)},
    {trl, "lora_r", INT(job.adapter.r, 1, 4096)},
    {trl, "lora_alpha", NUMBER(job.adapter.alpha, "(0, inf)")},
    {trl, "lora_dropout", NUMBER(job.adapter.dropout, "[0, 1)")},
    {trl, "lora_target_modules", LIST(read.targets), SETTLED_BY("adapter.targets")},
    {trl, "lora_target_parameters", LIST(read.parameters), SETTLED_BY("adapter.targets")},
    {trl, "lora_modules_to_save", LIST(job.adapter.modules_to_save)},
    {trl, "lora_task_type", LEFT("the task is that of a causal language model")},
    {trl, "use_rslora", WORD(read.rslora, truth)},
    {trl, "use_dora", WORD(read.dora, truth)},
    {trl, "load_in_4bit", WORD(read.four_bits, truth), SETTLED_BY("adapter.base")},
    {trl, "load_in_8bit", WORD(read.eight_bits, truth), SETTLED_BY("adapter.base")},
    {trl, "bnb_4bit_quant_type", WORD(read.ignored, nf4), SETTLED_BY("adapter.base"), .why = "adapter.base is nf4 or int8"},
    {trl, "use_bnb_nested_quant bnb_4bit_quant_storage", LEFT("adapter.base is nf4 or int8")},

    /* the data */
    {trl, "dataset_name", TEXT(set.path)},
    {trl, "dataset_config", TEXT(set.config)},
    {trl, "dataset_train_split", EACH(ndp_import_dataset_split), SETTLED_BY("data.files"), .why = "`org/name@revision:config/split`"},
    {trl, "dataset_test_split", LEFT("held-out data are data.validation_files, or data.validation_fraction of the others")},
    {trl, "datasets", REFUSED("a mixture of data sets: name them in data.files"), SETTLED_BY("data.files")},
    {trl, "dataset_text_field", TEXT(set.text)},
    {trl, "dataset_num_proc dataset_streaming dataset_kwargs", LEFT(own_cache)},
    {trl, "max_length max_seq_length", INT(job.data.sequence_length, 1, 1 << 24)},
    {trl, "truncation_mode", WORD(read.ignored, sides), SETTLED_BY("data.overlong"), .why = "of a long document the beginning is kept"},
    {trl, "packing", WORD(read.packing, truth)},
    {trl, "packing_strategy padding_free pad_token pad_to_multiple_of eval_packing",
     LEFT("documents that share a row do not affect each other; padding is masked")},
    {trl, "shuffle_dataset", LEFT(by_seed)},
    {trl, "eos_token", TEXT(read.eos_token), SETTLED_BY("data.tokenizer")},
    {trl, "chat_template_path", REFUSED(NDP_IMPORT_NO_TEMPLATE), SETTLED_BY("data.chat_template")},
    {trl, "completion_only_loss assistant_only_loss", WORD(read.answers_only, truth)},

    /* the rest */
    {trl, "gradient_checkpointing", WORD(read.checkpointing, checkpointing_words)},
    {trl, "gradient_checkpointing_kwargs", LEFT("recomputation is per decoder block")},
    {trl, "activation_offloading", LEFT(no_offload)},
    {trl, "loss_type", WORD(read.ignored, losses), SETTLED_BY("loss.name"), .why = one_loss},
    {trl, "router_aux_loss_coef", NUMBER(job.moe.balance_coef, "[0, inf)")},
    {trl, "beta ref_model* precompute_ref_* max_prompt_length max_completion_length label_smoothing reference_free", REFUSED(own_pairs),
     SETTLED_BY("loss.name")},
    {trl, "num_generations reward_* use_vllm vllm_* scale_rewards epsilon* num_iterations", REFUSED(no_rewards), SETTLED_BY("loss.name")},
    {trl, "ignore_bias_buffers", LEFT(no_tracker)},
    /* clang-format on */
};
const import_table ndp_import_trl = {keys, NDP_COUNT(keys)};

/* ---- what the file lacks ---- */

void ndp_import_begin_trl(import_values *read) {
    read->micro = 8;
    read->epochs = 3;
    read->scheduler = SCHEDULE_LINEAR;
    read->warmup_ratio = 0;
    read->checkpointing = WORD_YES;
    read->bf16 = WORD_AUTO;
    read->save = EVERY_STEPS;
    read->excess = EXCESS_TRUNCATE;
}

ndp_status ndp_import_prepare_trl(ndp_import *m) {
    import_values *read = &m->read;
    bool linear = read->targets.n == 1 && strcmp(read->targets.items[0], "all-linear") == 0;
    read->adapter = read->peft == WORD_YES ? NDP_ADAPTER_LORA : NDP_ADAPTER_NONE;
    if (read->fp16 == WORD_YES && read->bf16 == WORD_AUTO)
        read->bf16 = WORD_NO;
    if (read->warmup == 0) /* the ratio counts */
        read->warmup = -1;
    if (linear) {
        ndp_strings_release(&read->targets);
        read->target_linear = WORD_YES;
    }
    read->train_on_inputs = read->answers_only == WORD_YES ? WORD_NO : WORD_YES;
    m->job.data.overlong = NDP_OVERLONG_TRUNCATE; /* also where data.files is left to the user */
    ndp_import_mark(m, offsetof(ndp_config, data.overlong));
    ndp_import_mark(m, offsetof(ndp_config, data.train_on));
    if (read->answers_only != WORD_YES)
        SAY(m,
            "data.train_on all: TRL trains on whole conversations; where records have a prompt and a completion, set "
            "data.train_on: assistant, as it does there\n");
    if (!m->set.path || ndp_import_is_set(&m->notes, "data.files"))
        return NDP_OK;
    NDP_TRY(ndp_option_copy_text("trl", &m->set.type));
    return ndp_import_add_set(m, "dataset_name", ndp_import_node(&m->notes, "dataset_name"), NULL);
}
