/* Keys of TRL's scripts sft and dpo, as a YAML file of `trl sft --config` has them: those of its SFTConfig or
 * DPOConfig, ModelConfig and ScriptArguments (TRL 1.16), beside the Trainer's (import_llamafactory.c). */
#include "import/import_table.h"

#include <stdlib.h>
#include <string.h>

static const char own_reference[] = "log-probabilities of the reference are computed once, before the first step";
static const char plain_pairs[] = "of a pair's loss, loss.variant, loss.beta and loss.label_smoothing are chosen";
static const char own_folder[] = "read from the model folder";

static const import_word nf4[] = {{"nf4", 0, 0}, {"*", 0, no_quantization}, {0}};
static const char other_losses[] =
    "the loss of tokens is the cross-entropy of the next one, that of pairs one of:" NDP_LOSS_VARIANTS(LISTED);
static const import_word losses[] = {
    {"nll chunked_nll", 0, 0},   {"sigmoid", PAIRS_DPO, 0},       {"hinge", PAIRS_HINGE, 0}, {"ipo", PAIRS_IPO, 0},
    {"robust", PAIRS_ROBUST, 0}, {"apo_zero", PAIRS_APO_ZERO, 0}, {"*", 0, other_losses},    {0}};
static const import_word divergences[] = {{"reverse_kl", 0, 0}, {"*", 0, plain_pairs}, {0}};
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
    {trl, "loss_type", WORD(read.pref_loss, losses), SETTLED_BY("loss.name")},
    {trl, "router_aux_loss_coef", NUMBER(job.moe.balance_coef, "[0, inf)")},
    {trl, "beta", NUMBER(read.beta, "(0, inf)")},
    {trl, "label_smoothing", NUMBER(read.smoothing, "[0, 0.5)")},
    {trl, "center_rewards_coefficient", NUMBER(read.center, "[0, inf)")},
    {trl, "f_divergence_type", WORD(read.ignored, divergences), SETTLED_BY("loss.variant"), .why = plain_pairs},
    {trl, "loss_weights ld_alpha use_weighting sync_ref_model reference_free rpo_alpha", REFUSED(plain_pairs), SETTLED_BY("loss.variant")},
    {trl, "precompute_ref_* disable_dropout", LEFT(own_reference)},
    {trl, "f_alpha_divergence_coef discopop_tau ref_model_*", LEFT("used only by other losses")},
    {trl, "max_prompt_length max_completion_length", LEFT("data.overlong says what becomes of a document longer than a row; prompts have no length of their own")},
    {trl, "num_generations reward_* use_vllm vllm_* scale_rewards epsilon* num_iterations", REFUSED(no_rewards), SETTLED_BY("loss.name")},
    {trl, "ignore_bias_buffers", LEFT(no_tracker)},
    {trl, "do_train", LEFT("TRL's scripts train in any case")},
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

static bool is_assigned(const ndp_import *m, const char *what) {
    bool is = false;
    for (int i = 0; i < m->notes.o->assignment_count; i++)
        is |= strcmp(m->notes.o->assignments[i], what) == 0;
    return is;
}

/* The script reward, the same way. */
static bool is_reward(const ndp_import *m) {
    return ndp_import_find(&m->notes, "center_rewards_coefficient") || is_assigned(m, "loss.name=reward");
}

/* The script dpo, or reward, by its keys, or by what the user sets. */
bool ndp_import_is_trl_dpo(const ndp_import *m) {
    static const char *const marks[] = {"beta",           "label_smoothing",   "precompute_ref_log_probs",
                                        "sync_ref_model", "max_prompt_length", "f_divergence_type"};
    static const char *const set[] = {"data.format=preference", "loss.name=dpo"};
    if (strcmp(m->dialect->section, trl) != 0)
        return false;
    bool is = m->read.pref_loss != 0 || is_reward(m);
    for (int i = 0; i < NDP_COUNT(marks); i++)
        is |= ndp_import_find(&m->notes, marks[i]) != NULL;
    for (int k = 0; k < NDP_COUNT(set); k++)
        is |= is_assigned(m, set[k]);
    return is;
}

static void prepare_pairs(ndp_import *m) {
    const bool reward = is_reward(m);
    m->read.pairs = reward ? PAIRS_REWARD : m->read.pref_loss ? m->read.pref_loss : PAIRS_DPO;
    m->read.excess = reward ? EXCESS_DROP : m->read.excess;
    if (!ndp_import_find(&m->notes, "learning_rate"))
        m->job.optimizer.lr = reward ? 1e-4 : 1e-6; /* RewardConfig's, DPOConfig's */
    if (m->read.pairs != PAIRS_ROBUST || m->read.smoothing == 0)
        return;
    m->job.loss.label_smoothing = m->read.smoothing;
    ndp_import_mark(m, offsetof(ndp_config, loss.label_smoothing));
}

ndp_status ndp_import_prepare_trl(ndp_import *m) {
    import_values *read = &m->read;
    bool pairs = ndp_import_is_trl_dpo(m);
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
    read->train_on_inputs = pairs ? 0 : read->answers_only == WORD_YES ? WORD_NO : WORD_YES;
    if (pairs)
        prepare_pairs(m);
    m->job.data.overlong = read->pairs == PAIRS_REWARD
                               ? NDP_OVERLONG_DROP
                               : NDP_OVERLONG_TRUNCATE; /* also where data.files is left to the user */
    ndp_import_mark(m, offsetof(ndp_config, data.overlong));
    ndp_import_mark(m, offsetof(ndp_config, data.train_on));
    if (!pairs && read->answers_only != WORD_YES)
        SAY(m,
            "data.train_on all: TRL trains on whole conversations; where records have a prompt and a completion, set "
            "data.train_on: assistant, as it does there\n");
    if (!m->set.path || ndp_import_is_set(&m->notes, "data.files"))
        return NDP_OK;
    NDP_TRY(ndp_option_copy_text("trl", &m->set.type));
    return ndp_import_add_set(m, "dataset_name", ndp_import_node(&m->notes, "dataset_name"), NULL);
}
