/* Whether the model that a file names is of a family that loads: by its config.json, where the folder is here or in the
 * Hub cache, else by the names under which well-known models are published. */
#include "import/import_model.h"

#include "base/hub.h"
#include "base/json.h"
#include "model/architecture.h"
#include <fnmatch.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Published names, patterns divided by spaces, and the model_type of their config.json. The first row that fits counts.
 * A model that does not load although others of its type do has a reason. */
static const struct {
    const char *names, *type, *why;
} well_known[] = {
    /* clang-format off */
    {"*-NVFP4 *-bnb-* *-GPTQ* *-AWQ* *-prequantized", NULL,
     "its weights are packed in a form that is not read (docs/guide/models.md)"},
    {"google/gemma-4-E*", "gemma4",
     "its layers have inputs of their own (hidden_size_per_layer_input), which are not supported"},
    {"google/gemma-4-*-A*B*", "gemma4",
     "its layers have an MLP beside a mixture, which is not supported"},
    {"*/Llama-3.2-*Vision*", "mllama", 0},
    {"*/Llama-4-*", "llama4", 0},
    {"meta-llama/* NousResearch/*Llama-[23]* codellama/* openlm-research/* huggyllama/* TinyLlama/* "
     "HuggingFaceTB/SmolLM-* HuggingFaceTB/SmolLM2-* casperhansen/llama-* unsloth/*Llama-[23]* 01-ai/Yi-* "
     "Salesforce/xgen-* lmsys/vicuna-* deepcogito/*-llama-* canopylabs/orpheus-* NousResearch/Hermes-3-Llama-* "
     "deepseek-ai/*-Distill-Llama-*", "llama", 0},
    {"mistralai/Mistral-7B-* mistralai/Mistral-Nemo-* mistralai/Ministral-8B-* mistralai/Magistral-Small-250[67] "
     "mistralai/Devstral-Small-2507 HuggingFaceH4/zephyr-7b-* teknium/OpenHermes-2*-Mistral-*", "mistral", 0},
    {"mistralai/Mistral-Small-3.* mistralai/Magistral-Small-2509 mistralai/Ministral-3-*", "mistral3", 0},
    {"mistralai/Mixtral-* mistral-community/Mixtral-*", "mixtral", 0},
    {"Qwen/Qwen1.5-MoE-* Qwen/Qwen2-57B-A14B*", "qwen2_moe", 0},
    {"Qwen/Qwen2-VL-*", "qwen2_vl", 0},
    {"Qwen/Qwen2.5-VL-*", "qwen2_5_vl", 0},
    {"Qwen/Qwen[12].5-[0-9]* Qwen/Qwen2.5-Coder-* Qwen/Qwen2.5-Math-* Qwen/Qwen2-[0-9]* Qwen/QwQ-* "
     "unsloth/Qwen2.5-[0-9]* deepcogito/*-qwen-* agentica-org/DeepCoder-14B-* deepseek-ai/*-Distill-Qwen-*",
     "qwen2", 0},
    {"Qwen/Qwen3-Next-*", "qwen3_next", 0},
    {"Qwen/Qwen3-VL-*-A*B*", "qwen3_vl_moe", 0},
    {"Qwen/Qwen3-VL-*", "qwen3_vl", 0},
    {"Qwen/Qwen3-*-A*B* Qwen/Qwen3-Coder-*-A*B*", "qwen3_moe", 0},
    {"Qwen/Qwen3-[0-9]* unsloth/Qwen3-[0-9]* katanemo/Plano-Orchestrator-4B Skywork/*-Qwen3-*", "qwen3", 0},
    {"Qwen/Qwen3.5-*-A*B*", "qwen3_5_moe", 0},
    {"Qwen/Qwen3.5-*", "qwen3_5", 0},
    {"Qwen/Qwen-*", "qwen", 0},
    {"google/gemma-[27]b* mhenrichsen/gemma-*", "gemma", 0},
    {"google/gemma-2-*", "gemma2", 0},
    {"google/gemma-3-1b-* google/gemma-3-270m*", "gemma3_text", 0},
    {"google/gemma-3-*", "gemma3", 0},
    {"google/gemma-3n-*", "gemma3n", 0},
    {"google/gemma-4-12B*", "gemma4_unified", 0},
    {"google/gemma-4-*", "gemma4", 0},
    {"microsoft/phi-1* microsoft/phi-2", "phi", 0},
    {"microsoft/Phi-3-mini-* microsoft/Phi-3-medium-* microsoft/Phi-3.5-mini-* microsoft/phi-4 microsoft/Phi-4-mini-*",
     "phi3", 0},
    {"allenai/OLMo-2-*", "olmo2", 0},
    {"allenai/Olmo-3-*", "olmo3", 0},
    {"allenai/OLMoE-*", "olmoe", 0},
    {"stabilityai/stablelm-*", "stablelm", 0},
    {"bigcode/starcoder2-*", "starcoder2", 0},
    {"EleutherAI/pythia-* EleutherAI/gpt-neox-* togethercomputer/RedPajama-INCITE-*", "gpt_neox", 0},
    {"openai-community/* gpt2 cerebras/Cerebras-GPT-*", "gpt2", 0},
    {"EleutherAI/gpt-j-*", "gptj", 0},
    {"HuggingFaceTB/SmolLM3-*", "smollm3", 0},
    {"HuggingFaceTB/SmolVLM2-*", "smolvlm", 0},
    {"ibm-granite/granite-3*", "granite", 0},
    {"ibm-granite/granite-4*", "granitemoehybrid", 0},
    {"ByteDance-Seed/Seed-OSS-*", "seed_oss", 0},
    {"*/GLM-4.5V* */GLM-4.6V", "glm4v_moe", 0},
    {"*/GLM-4.6V-Flash */GLM-4.1V-*", "glm4v", 0},
    {"zai-org/GLM-4.5* zai-org/GLM-4.6* zai-org/GLM-4.7", "glm4_moe", 0},
    {"zai-org/GLM-4.7-Flash", "glm4_moe_lite", 0},
    {"*/GLM-4-*", "glm4", 0},
    {"deepseek-ai/DeepSeek-V2*", "deepseek_v2", 0},
    {"deepseek-ai/DeepSeek-V3* deepseek-ai/DeepSeek-R1 moonshotai/Moonlight-*", "deepseek_v3", 0},
    {"moonshotai/Kimi-K2-*", "kimi_k2", 0},
    {"moonshotai/Kimi-Linear-*", "kimi_linear", 0},
    {"openai/gpt-oss-* axolotl-ai-co/gpt-oss-*", "gpt_oss", 0},
    {"OpenGVLab/InternVL3*-HF", "internvl", 0},
    {"llava-hf/llava-1.5-* mistral-community/pixtral-*", "llava", 0},
    {"mistralai/Voxtral-*", "voxtral", 0},
    {"tiiuae/Falcon-H1-*", "falcon_h1", 0},
    {"tiiuae/falcon-[0-9]*", "falcon", 0},
    {"ai21labs/*Jamba*", "jamba", 0},
    {"state-spaces/mamba*", "mamba", 0},
    {"mosaicml/mpt-*", "mpt", 0},
    {"cerebras/btlm-*", "btlm", 0},
    {"replit/replit-code-*", "replit_lm", 0},
    {"LnL-AI/dbrx-* databricks/dbrx-*", "dbrx", 0},
    {"LiquidAI/LFM2-VL-*", "lfm2_vl", 0},
    {"LiquidAI/LFM2-*-A*B", "lfm2_moe", 0},
    {"LiquidAI/LFM2-*", "lfm2", 0},
    {"swiss-ai/Apertus-*", "apertus", 0},
    {"arcee-ai/AFM-*", "arcee", 0},
    {"arcee-ai/Trinity-*", "afmoe", 0},
    {"tencent/Hunyuan-[0-9]*", "hunyuan_v1_dense", 0},
    {"MiniMaxAI/MiniMax-M2*", "minimax_m2", 0},
    {"XiaomiMiMo/MiMo-*", "mimo", 0},
    {"nvidia/Nemotron-Mini-* nvidia/Minitron-*", "nemotron", 0},
    {"nvidia/NVIDIA-Nemotron-3-*", "nemotron_h", 0},
    {"*/c4ai-command-r7b-*", "cohere2", 0},
    {"*/c4ai-command-r-*", "cohere", 0},
    {"PaddlePaddle/PaddleOCR-VL*", "paddleocr_vl", 0},
    {"facebook/opt-*", "opt", 0},
    {"bigscience/bloom*", "bloom", 0},
    /* clang-format on */
};

static const char mixtures[] = "mixtral *_moe *_moe_lite *_next olmoe deepseek_v? kimi_k2 gpt_oss";

static bool is_named(const char *patterns, const char *name) {
    char pattern[96];
    for (size_t n; patterns += strspn(patterns, " "), (n = strcspn(patterns, " ")); patterns += n) {
        snprintf(pattern, sizeof pattern, "%.*s", (int)n, patterns);
        if (fnmatch(pattern, name, FNM_CASEFOLD) == 0)
            return true;
    }
    return false;
}

/* Other errors than NDP_ENOTSUP come after the type is known: a size is missing. */
static bool type_loads(const char *type) {
    char text[96];
    struct json_object *config;
    ndp_model_spec spec = {0};
    snprintf(text, sizeof text, "{\"model_type\": \"%.60s\"}", type);
    if (ndp_json_parse(text, strlen(text), type, &config) != NDP_OK)
        return false;
    ndp_status st = ndp_model_spec_parse(config, type, NULL, &spec);
    if (st == NDP_OK)
        ndp_model_spec_release(&spec);
    json_object_put(config);
    return st != NDP_ENOTSUP;
}

/* Writes why a model of that published name does not load. */
static import_loads by_name(const char *path, char *why, size_t size, bool *mixture) {
    ndp_hub_name hub;
    const char *name = ndp_hub_parse(NDP_HUB_MODEL, path, &hub) ? hub.repo : path;
    for (int i = 0; i < NDP_COUNT(well_known); i++) {
        if (!is_named(well_known[i].names, name))
            continue;
        if (well_known[i].why)
            snprintf(why, size, "%s", well_known[i].why);
        else if (!type_loads(well_known[i].type))
            snprintf(why, size,
                     "published as model_type %s, which is not supported; docs/guide/models.md has those that are",
                     well_known[i].type);
        else {
            *mixture = is_named(mixtures, well_known[i].type);
            return LOADS_YES;
        }
        return LOADS_NO;
    }
    return LOADS_UNKNOWN;
}

import_loads ndp_import_model_loads(const char *path, const char *folder, char *why, size_t size, bool *mixture) {
    ndp_model_spec spec = {0};
    char *config = folder ? ndp_format("%s/config.json", folder) : NULL;
    import_loads loads = LOADS_UNKNOWN;
    if (config && ndp_path_exists(config)) {
        ndp_status st = ndp_model_spec_read(config, NULL, &spec);
        loads = st == NDP_OK ? LOADS_YES : LOADS_NO;
        *mixture = st == NDP_OK && spec.layout.experts > 0;
        if (st == NDP_OK)
            ndp_model_spec_release(&spec);
        else
            snprintf(why, size, "%s", ndp_error_message());
    }
    free(config);
    return loads == LOADS_UNKNOWN ? by_name(path, why, size, mixture) : loads;
}
