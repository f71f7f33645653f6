/* The rows of built-in chat templates, and the texts of published templates that they render byte for byte. */
#include "text/chat/chat_table.h"

#include <string.h>

#define ALL(text)                                                                                                      \
    { text, text, text }

/* "<|im_start|>user\n" ... "<|im_end|>\n" */
#define CHATML_MESSAGES                                                                                                \
    .before = {"<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n"}, .end = ALL("<|im_end|>"),     \
    .after = ALL("\n")
#define CHATML CHATML_MESSAGES, .prompt = "<|im_start|>assistant\n"

#define LLAMA3                                                                                                         \
    .begins = NDP_BEGIN_BOS,                                                                                           \
    .before = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|start_header_id|>user<|end_header_id|>\n\n",       \
               "<|start_header_id|>assistant<|end_header_id|>\n\n"},                                                   \
    .end = ALL("<|eot_id|>"), .after = ALL(""), .prompt = "<|start_header_id|>assistant<|end_header_id|>\n\n",         \
    .strips = NDP_STRIP_ALL

#define GEMMA                                                                                                          \
    .begins = NDP_BEGIN_BOS, .before = {"<start_of_turn>system\n", "<start_of_turn>user\n", "<start_of_turn>model\n"}, \
    .end = ALL("<end_of_turn>"), .after = ALL("\n"), .prompt = "<start_of_turn>model\n", .strips = NDP_STRIP_ALL,      \
    .alternates = "Conversation roles must alternate user/assistant/user/assistant/..."

#define MISTRAL                                                                                                        \
    .begins = NDP_BEGIN_BOS, .after = ALL(""), .prompt = "", .eos = NDP_EOS_ANSWER,                                    \
    .alternates = "After the optional system message, conversation roles must alternate "                              \
                  "user/assistant/user/assistant/...",                                                                 \
    .late_system = "Only user and assistant roles are supported, with the exception of an initial optional system "    \
                   "message!"

#define PHI3                                                                                                           \
    .before = {"<|system|>\n", "<|user|>\n", "<|assistant|>\n"}, .end = ALL("<|end|>"), .after = ALL("\n"),            \
    .prompt = "<|assistant|>\n", .eos = NDP_EOS_TEXT

#define CUTOFF "Cutting Knowledge Date: December 2023\nToday Date: "

static const ndp_chat_template templates[] = {
    {.name = "chatml", CHATML},
    {.name = "chatml-bos", .begins = NDP_BEGIN_BOS, CHATML},
    {.name = "qwen2", .system = "You are a helpful assistant.", CHATML},
    {.name = "qwen2.5", .system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", CHATML},
    {.name = "qwen3", CHATML, .thinking = NDP_THINK_RECENT},
    {.name = "qwen3.5", CHATML_MESSAGES, .prompt = "<|im_start|>assistant\n<think>\n\n", .thinking = NDP_THINK_RECENT},
    {.name = "llama3", LLAMA3},
    {.name = "llama3.1", LLAMA3, .preamble = CUTOFF "26 Jul 2024\n\n"},
    {.name = "llama3.2", LLAMA3, .preamble = CUTOFF, .dated = true},
    {.name = "gemma2", GEMMA, .no_system = "System role not supported"},
    {.name = "gemma3", GEMMA, .system_place = NDP_SYSTEM_FIRST},
    {.name = "gemma4",
     .begins = NDP_BEGIN_BOS,
     .before = {"<|turn>system\n", "<|turn>user\n", "<|turn>model\n"},
     .end = ALL("<turn|>"),
     .after = ALL("\n"),
     .prompt = "<|turn>model\n<|channel>thought\n<channel|>",
     .joins = true,
     .strips = NDP_STRIP_ALL},
    {.name = "mistral-v0.1",
     MISTRAL,
     .before = {"", " [INST] ", " "},
     .end = {"", " [/INST]", ""},
     .system_place = NDP_SYSTEM_FIRST},
    {.name = "mistral-v0.3",
     MISTRAL,
     .before = {"", "[INST] ", " "},
     .end = {"", "[/INST]", ""},
     .strips = NDP_STRIP_ANSWERS,
     .system_place = NDP_SYSTEM_LAST},
    {.name = "mistral-nemo",
     MISTRAL,
     .before = {"", "[INST]", ""},
     .end = {"", "[/INST]", ""},
     .system_place = NDP_SYSTEM_LAST},
    {.name = "phi3", PHI3},
    /* The first one of Phi-3: the header of an answer ends the question. */
    {.name = "phi3-bos",
     .begins = NDP_BEGIN_BOS,
     .before = {"<|system|>\n", "<|user|>\n", ""},
     .end = ALL("<|end|>"),
     .after = {"\n", "\n<|assistant|>\n", "\n"},
     .prompt = ""},
    {.name = "phi3.5", PHI3, .skips_empty = true},
    {.name = "phi4",
     .before = {"<|im_start|>system<|im_sep|>", "<|im_start|>user<|im_sep|>", "<|im_start|>assistant<|im_sep|>"},
     .end = ALL("<|im_end|>"),
     .after = ALL(""),
     .prompt = "<|im_start|>assistant<|im_sep|>"},
    {.name = "zephyr",
     .before = {"<|system|>\n", "<|user|>\n", "<|assistant|>\n"},
     .end = ALL(""),
     .after = ALL("\n"),
     .prompt = "<|assistant|>\n",
     .eos = NDP_EOS_MESSAGE},
    {.name = "deepseek-r1",
     .begins = NDP_BEGIN_BOS,
     .before = {"", "<｜User｜>", "<｜Assistant｜>"},
     .end = {"", "", "<｜end▁of▁sentence｜>"},
     .after = ALL(""),
     .prompt = "<｜Assistant｜><think>\n",
     .system_place = NDP_SYSTEM_START,
     .thinking = NDP_THINK_DROPPED},
    /* For base models: the texts, separated by line breaks. */
    {.name = "plain",
     .begins = NDP_BEGIN_AS_TEXTS,
     .before = ALL(""),
     .end = ALL(""),
     .after = {"\n", "\n", ""},
     .prompt = "",
     .eos = NDP_EOS_ANSWER},
};

/* Published texts. tests/golden/make_chat.py says where each was found and compares what it renders. */
static const struct {
    uint64_t hash;
    const char *name;
} texts[] = {
    {0x4c6e807ee5fe9f4a, "chatml"},       {0xa04f41d813a07b13, "chatml"},       {0x846f9032c2079ea2, "chatml"},
    {0xda206a9e46a4ac01, "chatml"},       {0x44c686e7ec49d9f1, "chatml-bos"},   {0xcfe9acb2abfa8022, "chatml-bos"},
    {0x2469c9508f79506e, "qwen2.5"},      {0x0283f874ff58d644, "qwen3"},        {0x9799ad6e2dea0594, "llama3"},
    {0x6ca7779b7730196a, "llama3.1"},     {0xc3d57e38f5ff0756, "llama3.2"},     {0x2c2e86beabccd2a4, "gemma2"},
    {0xd9c620dcaf86f38d, "gemma3"},       {0xf89cfc57f651ff3d, "mistral-v0.1"}, {0xc6614466504d495b, "mistral-v0.3"},
    {0xcae647ce0048756b, "mistral-nemo"}, {0x82fc89c04c54ba66, "phi3"},         {0xcd8aff863abd4554, "phi3.5"},
    {0x70325d9540e2904f, "phi4"},         {0x1db34e9fc60441d8, "zephyr"},       {0x6c72bc896dabf3df, "zephyr"},
    {0xf47cfd234bfcd76a, "deepseek-r1"},  {0xd63c0ab8ac046a45, "qwen2"},        {0x03db3b8d26a1af66, "gemma4"},
    {0xb4abd11926045a2a, "phi3-bos"},     {0xc5586ca86908a149, "qwen3.5"},
};

const ndp_chat_template *ndp_chat_template_at(int i) { return i < NDP_COUNT(templates) ? &templates[i] : NULL; }

const ndp_chat_template *ndp_chat_template_named(const char *name) {
    for (int i = 0; i < NDP_COUNT(templates); i++)
        if (strcmp(name, templates[i].name) == 0)
            return &templates[i];
    return NULL;
}

const ndp_chat_template *ndp_chat_template_of(uint64_t hash) {
    for (int i = 0; i < NDP_COUNT(texts); i++)
        if (texts[i].hash == hash)
            return ndp_chat_template_named(texts[i].name);
    return NULL;
}

/* The special tokens of rows. Those with more of them come first. */
static const struct {
    const char *name, *tokens[3];
} written[] = {
    {"phi4", {"<|im_start|>", "<|im_sep|>", "<|im_end|>"}},
    {"qwen3", {"<|im_start|>", "<|im_end|>", "<think>"}},
    {"chatml", {"<|im_start|>", "<|im_end|>"}},
    {"llama3", {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
    {"gemma3", {"<start_of_turn>", "<end_of_turn>"}},
    {"gemma4", {"<|turn>", "<turn|>"}},
    {"mistral-nemo", {"[INST]", "[/INST]"}},
    {"phi3.5", {"<|user|>", "<|assistant|>", "<|end|>"}},
    {"deepseek-r1", {"<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"}},
};

const ndp_chat_template *ndp_chat_template_fitting(bool (*has)(const void *user, const char *token), const void *user) {
    for (int i = 0; i < NDP_COUNT(written); i++) {
        bool all = true;
        for (int k = 0; k < NDP_COUNT(written[i].tokens) && written[i].tokens[k]; k++)
            all = all && has(user, written[i].tokens[k]);
        if (all)
            return ndp_chat_template_named(written[i].name);
    }
    return NULL;
}

void ndp_chat_template_names(ndp_str *out) {
    for (int i = 0; i < NDP_COUNT(templates); i++)
        ndp_str_addf(out, "%s%s", i ? ", " : "", templates[i].name);
}
