/* A tokenizer with special tokens, for tests. */
#ifndef NDP_TESTS_DATA_SMALL_TOKENIZER_H
#define NDP_TESTS_DATA_SMALL_TOKENIZER_H

#include "data/tokenizer.h"

#include "data/folder.h"
#include <string.h>

/* Every byte a token, but "xy", which is one word; 256 is <s>, 257 </s>, 258 <|end|>. */
static inline ndp_tokenizer *small_tokenizer(const char *folder) {
    ndp_str s = {0};
    ndp_tokenizer *t;
    ndp_str_add(&s, "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"merges\":[\"x y\"],\"vocab\":{");
    for (int i = 0; i < 256; i++)
        ndp_str_addf(&s, "\"<0x%02X>\":%d,", i, i);
    ndp_str_add(&s, "\"xy\":259,\"x\":260,\"y\":261}},\"added_tokens\":[");
    static const char *const added[] = {"<s>", "</s>", "<|end|>"};
    for (int i = 0; i < 3; i++)
        ndp_str_addf(&s,
                     "%s{\"id\":%d,\"content\":\"%s\",\"special\":true,\"single_word\":false,\"lstrip\":false,"
                     "\"rstrip\":false,\"normalized\":false}",
                     i ? "," : "", 256 + i, added[i]);
    ndp_str_add(&s,
                "],\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\","
                "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":"
                "{\"<s>\":{\"id\":\"<s>\",\"ids\":[256],\"tokens\":[\"<s>\"]}}}}");
    static const char CONFIG[] = "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}";
    free(write_file(folder, "tokenizer.json", s.data, s.length));
    free(write_file(folder, "tokenizer_config.json", CONFIG, strlen(CONFIG)));
    CHECK_OK(ndp_tokenizer_create(folder, &t));
    ndp_str_release(&s);
    return t;
}

#endif
