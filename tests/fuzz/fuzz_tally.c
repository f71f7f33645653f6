/* libFuzzer: the text of a tally, as a cache has it. What is accepted is written back and read again the same. */
#include "data/corpus/tally.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ndp_tally one = {0}, two = {0};
    ndp_str text = {0}, again = {0};
    char *copy = malloc(size ? size : 1); /* its end is the end of the memory */
    memcpy(copy, data, size);
    if (ndp_tally_read(copy, size, 3, &one) == NDP_OK) {
        ndp_tally_write(&one, &text);
        if (ndp_tally_read(text.data ? text.data : "", text.length, 3, &two) != NDP_OK)
            __builtin_trap();
        ndp_tally_write(&two, &again);
        if (text.length != again.length || (text.length && memcmp(text.data, again.data, text.length) != 0))
            __builtin_trap();
    }
    ndp_tally_clear(&one);
    ndp_tally_clear(&two);
    ndp_str_release(&text);
    ndp_str_release(&again);
    free(copy);
    return 0;
}
