/* A tokenizer with special tokens, for tests. */
#ifndef NDP_TESTS_DATA_SMALL_TOKENIZER_H
#define NDP_TESTS_DATA_SMALL_TOKENIZER_H

#include "text/tokenizer.h"

#include "data/folder.h"
#include <string.h>

/* Every byte a token, but "xy", which is one word; 256 is <s>, 257 </s>, 258 <|end|>. A text begins with <s>, and ends
 * with the token `after` unless that is NULL. `config`: the tokenizer_config.json. */
static inline ndp_tokenizer *small_tokenizer_of(const char *folder, const char *after, const char *config) {
    ndp_str s = {0};
    ndp_tokenizer *t;
    ndp_str_add(&s, "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"merges\":[\"x y\"],\"vocab\":{");
    for (int i = 0; i < 256; i++)
        ndp_str_addf(&s, "\"<0x%02X>\":%d,", i, i);
    ndp_str_add(&s, "\"<s>\":256,\"</s>\":257,\"<|end|>\":258,\"xy\":259,\"x\":260,\"y\":261}},\"added_tokens\":[");
    static const char *const added[] = {"<s>", "</s>", "<|end|>"};
    for (int i = 0; i < 3; i++)
        ndp_str_addf(&s,
                     "%s{\"id\":%d,\"content\":\"%s\",\"special\":true,\"single_word\":false,\"lstrip\":false,"
                     "\"rstrip\":false,\"normalized\":false}",
                     i ? "," : "", 256 + i, added[i]);
    ndp_str_add(&s,
                "],\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},"
                "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
                "\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}");
    if (after)
        ndp_str_addf(&s, ",{\"SpecialToken\":{\"id\":\"%s\",\"type_id\":0}}", after);
    ndp_str_add(&s, "],\"pair\":[],\"special_tokens\":{");
    for (int i = 0; i < 3; i++)
        ndp_str_addf(&s, "%s\"%s\":{\"id\":\"%s\",\"ids\":[%d],\"tokens\":[\"%s\"]}", i ? "," : "", added[i], added[i],
                     256 + i, added[i]);
    ndp_str_add(&s, "}}}");
    free(write_file(folder, "tokenizer.json", s.data, s.length));
    free(write_file(folder, "tokenizer_config.json", config, strlen(config)));
    CHECK_OK(ndp_tokenizer_create(folder, &t));
    ndp_str_release(&s);
    return t;
}

static inline ndp_tokenizer *small_tokenizer(const char *folder) {
    return small_tokenizer_of(folder, NULL, "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}");
}

#endif
