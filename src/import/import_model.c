/* The model that a file names: whether it is of a family that loads, by its config.json, where the folder is here or in
 * the Hub cache, else by the names under which well-known models are published; whether its tokenizer has the tokens
 * that the file names; which of its parameters are trained. */
#include "base/full_match.h"
#include "base/hub.h"
#include "base/json.h"
#include "import/import_parts.h"
#include "model/architecture.h"
#include <fnmatch.h>
#include <json-c/json.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum import_loads { LOADS_UNKNOWN, LOADS_YES, LOADS_NO } import_loads;

/* Published names, patterns divided by spaces, and the model_type of their config.json. The first row that fits counts.
 * A model that does not load although others of its type do has a reason. */
static const struct well_known {
    const char *names, *type, *why;
} well_known[] = {
    /* clang-format off */
    {"*-GPTQ* *-AWQ* *-AQLM* *-HQQ* *-EXL2* *-GGUF* *-W[48]A* *-prequantized", NULL,
     "its weights are packed in a form that is not read (docs/guide/models.md)"},
    {"google/gemma-4-E*", "gemma4",
     "its layers have inputs of their own (hidden_size_per_layer_input), which are not supported"},
    {"google/gemma-4-*-A*B* nvidia/gemma-4-*-A*B*", "gemma4",
     "its layers have an MLP beside a mixture, which is not supported"},
    {"*/Llama-3.2-*Vision*", "mllama", 0},
    {"*/Llama-4-*", "llama4", 0},
    {"meta-llama/* NousResearch/*Llama-[23]* codellama/* openlm-research/* huggyllama/* TinyLlama/* "
     "HuggingFaceTB/SmolLM-* HuggingFaceTB/SmolLM2-* casperhansen/llama-* unsloth/*Llama-[23]* 01-ai/Yi-* "
     "hugging-quants/*Llama-[23]*-BNB-* nvidia/Llama-3*-NVFP4 "
     "Salesforce/xgen-* lmsys/vicuna-* deepcogito/*-llama-* canopylabs/orpheus-* NousResearch/Hermes-3-Llama-* "
     "deepseek-ai/*-Distill-Llama-*", "llama", 0},
    {"mistralai/Mistral-7B-* mistralai/Mistral-Nemo-* mistralai/Ministral-8B-* mistralai/Magistral-Small-250[67] "
     "mistralai/Devstral-Small-2507 HuggingFaceH4/zephyr-7b-* teknium/OpenHermes-2*-Mistral-*", "mistral", 0},
    {"mistralai/Mistral-Small-3.* mistralai/Magistral-Small-2509 mistralai/Ministral-3-*", "mistral3", 0},
    {"*/Mistral-Small-4-*", "mistral4", 0},
    {"mistralai/Mixtral-* mistral-community/Mixtral-*", "mixtral", 0},
    {"Qwen/Qwen1.5-MoE-* Qwen/Qwen2-57B-A14B*", "qwen2_moe", 0},
    {"Qwen/Qwen2-VL-*", "qwen2_vl", 0},
    {"Qwen/Qwen2.5-VL-*", "qwen2_5_vl", 0},
    {"Qwen/Qwen[12].5-[0-9]* Qwen/Qwen2.5-Coder-* Qwen/Qwen2.5-Math-* Qwen/Qwen2-[0-9]* Qwen/QwQ-* "
     "unsloth/Qwen2.5-[0-9]* deepcogito/*-qwen-* agentica-org/DeepCoder-14B-* deepseek-ai/*-Distill-Qwen-*",
     "qwen2", 0},
    {"Qwen/Qwen3-Next-* nvidia/Qwen3-Next-*", "qwen3_next", 0},
    {"Qwen/Qwen3-VL-*-A*B*", "qwen3_vl_moe", 0},
    {"Qwen/Qwen3-VL-*", "qwen3_vl", 0},
    {"Qwen/Qwen3-*-A*B* Qwen/Qwen3-Coder-*-A*B* nvidia/Qwen3-*-A*B* unsloth/Qwen3-*-A*B*", "qwen3_moe", 0},
    {"Qwen/Qwen3-[0-9]* nvidia/Qwen3-[0-9]* unsloth/Qwen3-[0-9]* "
     "katanemo/Plano-Orchestrator-4B Skywork/*-Qwen3-*", "qwen3", 0},
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
    {"deepseek-ai/DeepSeek-V2* axolotl-quants/DeepSeek-V2*", "deepseek_v2", 0},
    {"*/DeepSeek-V4*", "deepseek_v4", 0},
    {"*/GLM-5*", "glm_moe_dsa", 0},
    {"deepseek-ai/DeepSeek-V3* nvidia/DeepSeek-V3* nvidia/DeepSeek-R1* deepseek-ai/DeepSeek-R1 moonshotai/Moonlight-*", "deepseek_v3", 0},
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

static bool is_named(const char *patterns, const char *name) {
    char pattern[96];
    for (size_t n; patterns += strspn(patterns, " "), (n = strcspn(patterns, " ")); patterns += n) {
        snprintf(pattern, sizeof pattern, "%.*s", (int)n, patterns);
        if (fnmatch(pattern, name, FNM_CASEFOLD) == 0)
            return true;
    }
    return false;
}

/* The row of that published name; NULL: it has none. */
static const struct well_known *find_published(const char *path) {
    ndp_hub_name hub;
    const char *name = ndp_hub_parse(NDP_HUB_MODEL, path, &hub) ? hub.repo : path;
    for (int i = 0; i < NDP_COUNT(well_known); i++)
        if (is_named(well_known[i].names, name))
            return &well_known[i];
    return NULL;
}

bool ndp_import_has_latent_attention(const char *path) {
    const struct well_known *w = path ? find_published(path) : NULL;
    return w && w->type && is_named("deepseek_v? glm4_moe_lite kimi_k2", w->type);
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
static import_loads by_name(const char *path, char *why, size_t size) {
    const struct well_known *w = find_published(path);
    if (!w)
        return LOADS_UNKNOWN;
    if (!w->why && type_loads(w->type))
        return LOADS_YES;
    if (w->why)
        snprintf(why, size, "%s", w->why);
    else
        snprintf(why, size,
                 "published as model_type %s, which is not supported; docs/guide/models.md has those that are",
                 w->type);
    return LOADS_NO;
}

/* `folder`: where the model is on this machine, or NULL. LOADS_NO: `why` has the reason. */
static import_loads model_loads(const char *path, const char *folder, char *why, size_t size) {
    ndp_model_spec spec = {0};
    char *config = folder ? ndp_format("%s/config.json", folder) : NULL;
    import_loads loads = LOADS_UNKNOWN;
    if (config && ndp_path_exists(config)) {
        ndp_status st = ndp_model_spec_read(config, NULL, &spec);
        loads = st == NDP_OK ? LOADS_YES : LOADS_NO;
        if (st == NDP_OK)
            ndp_model_spec_release(&spec);
        else
            snprintf(why, size, "%s", ndp_error_message());
    }
    free(config);
    return loads == LOADS_UNKNOWN ? by_name(path, why, size) : loads;
}

/* ---- tokens ---- */

/* The files of a tokenizer's folder; NULL: not there. */
typedef struct tokenizer_files {
    struct json_object *config, *tokenizer;
} tokenizer_files;

static struct json_object *read_json(const char *folder, const char *file) {
    struct json_object *value = NULL;
    char *path = folder ? ndp_format("%s/%s", folder, file) : NULL;
    if (path && ndp_path_exists(path) && ndp_json_read(path, &value) != NDP_OK)
        value = NULL;
    free(path);
    return value;
}

static bool has_token(const tokenizer_files *t, const char *token) {
    struct json_object *model = json_object_object_get(t->tokenizer, "model"),
                       *added = json_object_object_get(t->tokenizer, "added_tokens"),
                       *vocab = json_object_object_get(model, "vocab");
    for (size_t i = 0; json_object_is_type(added, json_type_array) && i < json_object_array_length(added); i++) {
        const char *content = ndp_json_text(json_object_object_get(json_object_array_get_idx(added, i), "content"));
        if (content && strcmp(content, token) == 0)
            return true;
    }
    return json_object_is_type(vocab, json_type_object) && json_object_object_get_ex(vocab, token, NULL);
}

/* A token of tokenizer_config.json: a text, or an object with one. */
static bool is_own(const tokenizer_files *t, const char *key, const char *token) {
    struct json_object *value = json_object_object_get(t->config, key);
    const char *own =
        ndp_json_text(json_object_is_type(value, json_type_object) ? json_object_object_get(value, "content") : value);
    return own && strcmp(own, token) == 0;
}

static ndp_status refuse_token(ndp_import *m, const char *key, const char *token, const char *why) {
    char name[64];
    snprintf(name, sizeof name, "special_tokens.%s", key);
    if (!ndp_import_find(&m->notes, name))
        snprintf(name, sizeof name, ndp_import_find(&m->notes, "tokens") ? "tokens" : "special_tokens");
    return ndp_import_refuse(&m->notes, name, token, ndp_import_node(&m->notes, name), why, "data.tokenizer");
}

/* One that the vocabulary lacks would add a row to it. Another one than the tokenizer's own ends texts, but begins
 * none. */
static ndp_status check_token(ndp_import *m, const tokenizer_files *t, const char *key, const char *token) {
    bool ends = strcmp(key, "eos_token") == 0, begins = strcmp(key, "bos_token") == 0;
    if (!token || is_own(t, key, token))
        return NDP_OK;
    if (t->tokenizer && !has_token(t, token))
        return refuse_token(m, key, token, "the tokenizer has no such token, and none is added to the vocabulary");
    if (t->tokenizer && begins)
        return refuse_token(m, key, token, "not the tokenizer's own token; change that in tokenizer_config.json");
    if (!t->tokenizer && !ends && !begins && strcmp(key, "unk_token") != 0)
        return refuse_token(m, key, token,
                            "whether the tokenizer has it is not known without the model's folder; none is added");
    if (!t->tokenizer && begins)
        SAY(m, "not checked: bos_token %s has to be the tokenizer's own\n", token);
    if (!ends || ndp_import_is_set(&m->notes, "data.end_token"))
        return NDP_OK;
    ndp_import_mark(m, offsetof(ndp_config, data.end_token));
    SAY(m, "data.end_token %s: ends texts and answers without a template%s\n", token,
        t->tokenizer ? "" : "; a run stops at its start if the tokenizer has no such token");
    return ndp_option_copy_text(token, &m->job.data.end_token);
}

static ndp_status finish_tokens(ndp_import *m, const char *folder) {
    const import_values *r = &m->read;
    if (!r->eos_token && !r->bos_token && !r->unk_token && !r->added_tokens.n)
        return NDP_OK;
    const char *at = m->job.data.tokenizer ? m->job.data.tokenizer : folder;
    tokenizer_files t = {read_json(at, "tokenizer_config.json"), read_json(at, "tokenizer.json")};
    ndp_status st = check_token(m, &t, "eos_token", r->eos_token);
    if (st == NDP_OK)
        st = check_token(m, &t, "bos_token", r->bos_token);
    if (st == NDP_OK)
        st = check_token(m, &t, "unk_token", r->unk_token);
    for (int i = 0; i < r->added_tokens.n && st == NDP_OK; i++)
        st = check_token(m, &t, "additional_special_tokens", r->added_tokens.items[i]);
    json_object_put(t.config);
    json_object_put(t.tokenizer);
    return st;
}

/* A list of tokens to add, or, in old files, special ones by their names. */
ndp_status ndp_import_tokens(ndp_import *m, struct fy_node *value, const char *name) {
    if (fy_node_is_mapping(value))
        return ndp_import_walk(m, value, "tokens", NULL, "special_tokens");
    void *place = NULL;
    for (struct fy_node *item; (item = fy_node_sequence_iterate(value, &place));) {
        const char *token = ndp_yaml_text(item);
        if (!token)
            return ndp_yaml_fail(m->notes.y, item, "'%s': expected the text of a token", name);
        NDP_TRY(ndp_strings_add(&m->read.added_tokens, token));
    }
    return NDP_OK;
}

/* ---- what is trained ---- */

/* Patterns as Python's re.match takes them: from the beginning of the name. */
static bool matches_one(const ndp_strings *patterns, const char *name) {
    bool hit = false;
    for (int i = 0; i < patterns->n && !hit; i++) {
        regex_t r;
        char *pattern = ndp_format("^(%s)", patterns->items[i]);
        if (pattern && regcomp(&r, pattern, REG_EXTENDED | REG_NOSUB) == 0) {
            hit = regexec(&r, name, 0, NULL, 0) == 0;
            regfree(&r);
        }
        free(pattern);
    }
    return hit;
}

/* "NAME[:32000]": some rows of a tensor, by Axolotl's own reading of a pattern's end. */
static bool names_rows(const char *pattern) {
    size_t n = strlen(pattern);
    const char *open = n > 0 && pattern[n - 1] == ']' ? strrchr(pattern, '[') : NULL;
    return open && open > pattern && open[1 + strspn(open + 1, "0123456789:")] == ']';
}

/* Axolotl's patterns are compared from the beginning of a name on; a dot is a dot, unless a + follows. */
static ndp_status add_trained(ndp_import *m, const char *pattern) {
    ndp_str regex = {0};
    ndp_str_add(&regex, NDP_REGEX_PREFIX "(?:");
    for (const char *c = pattern; *c; c++)
        ndp_str_addf(&regex, "%s%c", *c == '.' && c[1] != '+' ? "\\" : "", *c);
    ndp_str_add(&regex, ").*");
    ndp_status st = NDP_MEMORY(regex.data, "for a pattern");
    if (st == NDP_OK && (st = ndp_full_match_check(ndp_regex_of(regex.data))) == NDP_OK)
        st = ndp_strings_add(&m->job.model.trained, regex.data);
    ndp_str_release(&regex);
    return st;
}

/* Names of all parameters have no effect, nor has any pattern beside an adapter, whose factors are trained. */
static ndp_status finish_unfrozen(ndp_import *m) {
    static const char *const parts[] = {"embed_tokens.weight",
                                        "layers.0.self_attn.q_proj.weight",
                                        "layers.3.linear_attn.in_proj_a.weight",
                                        "layers.11.mlp.down_proj.weight",
                                        "layers.0.input_layernorm.weight",
                                        "norm.weight"};
    const ndp_strings *patterns = &m->read.unfrozen;
    bool whole = false, all = matches_one(patterns, "lm_head.weight");
    for (int deep = 0; deep < 2; deep++) {
        bool every = true;
        for (int i = 0; i < NDP_COUNT(parts); i++) {
            char name[96];
            snprintf(name, sizeof name, "model.%s%s", deep ? "language_model." : "", parts[i]);
            every = every && matches_one(patterns, name);
        }
        whole = whole || every;
    }
    if (patterns->n == 0 || (whole && all))
        return NDP_OK;
    if (m->job.adapter.type != NDP_ADAPTER_NONE) {
        SAY(m, "unfrozen_parameters: beside an adapter, its factors alone are trained\n");
        return NDP_OK;
    }
    for (int i = 0; i < patterns->n && !ndp_import_is_set(&m->notes, "model.trained"); i++) {
        const char *pattern = patterns->items[i];
        ndp_status st = names_rows(pattern) ? NDP_FAIL(NDP_ENOTSUP, "some rows of a tensor; tensors are trained whole")
                                            : add_trained(m, pattern);
        if (st == NDP_EFORMAT || st == NDP_ENOTSUP) {
            char why[400];
            snprintf(why, sizeof why, "%s", ndp_error_message());
            st = ndp_import_refuse(&m->notes, "unfrozen_parameters", pattern,
                                   ndp_import_node(&m->notes, "unfrozen_parameters"), why, "model.trained");
        }
        NDP_TRY(st);
    }
    return NDP_OK;
}

/* ---- the model ---- */

static ndp_status add_revision(ndp_import *m) {
    ndp_hub_name hub;
    const char *path = m->job.model.path, *revision = m->read.revision,
               *key = ndp_import_is_axolotl(m) ? "revision_of_model" : "model_revision";
    if (!revision || strcmp(revision, "main") == 0 || ndp_import_is_set(&m->notes, "model.path"))
        return NDP_OK;
    if (ndp_path_exists(path) || !ndp_hub_parse(NDP_HUB_MODEL, path, &hub) || *hub.revision)
        return ndp_import_refuse(&m->notes, key, revision, ndp_import_node(&m->notes, key),
                                 "a revision is that of a name on the Hub", "model.path");
    char *whole = ndp_format("%s@%s", path, revision);
    ndp_status st = whole ? ndp_option_copy_text(whole, &m->job.model.path) : NDP_MEMORY(false, "for a name");
    free(whole);
    return st;
}

/* A model may be a folder or a name in the Hub cache; if it is neither, the note says how to get it. One that is known
 * not to load is refused: a job that cannot train is no import. */
static ndp_status check_model(ndp_import *m, const char *folder) {
    char why[600];
    const char *path = m->job.model.path, *key = ndp_import_is_axolotl(m) ? "base_model" : "model_name_or_path";
    bool set = ndp_import_is_set(&m->notes, "model.path");
    import_loads loads = model_loads(path, folder, why, sizeof why);
    if (loads == LOADS_UNKNOWN)
        SAY(m, "not checked: whether the model's family is supported; `plan` tells\n");
    if (loads != LOADS_NO)
        return NDP_OK;
    m->notes.unloadable = true;
    return ndp_import_refuse(&m->notes, set ? "model.path" : key, path, set ? NULL : ndp_import_node(&m->notes, key),
                             why, set ? NULL : "model.path");
}

static void finish_switches(ndp_import *m) {
    if (m->read.reinit == WORD_YES) {
        m->job.model.init = NDP_INIT_RANDOM;
        ndp_import_mark(m, offsetof(ndp_config, model.init));
    }
    if (m->read.router_logits) {
        bool balanced = m->read.router_logits == WORD_YES;
        m->job.moe.balance = balanced ? NDP_BALANCE_SEQUENCE : NDP_BALANCE_NONE;
        ndp_import_mark(m, offsetof(ndp_config, moe.balance));
        if (balanced)
            SAY(m,
                "moe.balance sequence: the router's loss is that of each sequence and layer; transformers mixes all\n");
    }
}

ndp_status ndp_import_finish_model(ndp_import *m) {
    char folder[NDP_PATH];
    finish_switches(m);
    NDP_TRY(finish_unfrozen(m));
    if (!m->job.model.path) {
        if (!m->job.model.config)
            SAY(m, "the file names no model: set model.path\n");
        return finish_tokens(m, NULL);
    }
    NDP_TRY(add_revision(m));
    bool found = ndp_hub_find(NDP_HUB_MODEL, m->job.model.path, folder) == NDP_OK;
    if (!found)
        SAY(m, "model.path: %s\n", ndp_error_message());
    else if (!ndp_path_is_folder(folder))
        SAY(m, "model.path '%s' is not a local folder: download the model and name its folder\n", m->job.model.path);
    NDP_TRY(check_model(m, found ? folder : NULL));
    return finish_tokens(m, found ? folder : NULL);
}
