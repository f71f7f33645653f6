/* libFuzzer: a tokenizer.json from memory. What is accepted must also encode and decode, or say why not. */
#include "text/tokenizer.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char TEXT[] =
        "Once upon a time <s> there WAS a\xcc\x81 \xc3\xa4 \xe2\x96\x81 \xf0\x9f\x99\x82 aaaa 123,4 </s>\n\t x";
    ndp_tokenizer *t;
    if (ndp_tokenizer_parse((const char *)data, size, "fuzz", &t) != NDP_OK)
        return 0;
    ndp_ids ids = {0};
    ndp_str text = {0};
    if (ndp_tokenizer_encode(t, TEXT, strlen(TEXT), true, &ids) == NDP_OK) {
        for (int64_t i = 0; i < ids.n; i++)
            if (ids.items[i] < 0 || ids.items[i] >= ndp_tokenizer_vocab_size(t))
                __builtin_trap();
        ndp_status st = ndp_tokenizer_decode(t, ids.items, ids.n, false, &text);
        if (st != NDP_OK && st != NDP_EFORMAT) /* a decoder's pattern may be too slow or replace too much */
            __builtin_trap();
    }
    ndp_str_release(&text);
    ndp_ids_release(&ids);
    ndp_tokenizer_destroy(t);
    return 0;
}
