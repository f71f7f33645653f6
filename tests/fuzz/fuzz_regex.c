/* libFuzzer: a regular expression, a zero, and a text that it is matched with. */
#include "text/regex.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *border = size ? memchr(data, 0, size) : NULL;
    if (!border || ndp_utf8_valid_prefix((const char *)data, size) < size)
        return 0;
    char *copy = malloc(size); /* so that reading beyond is seen */
    memcpy(copy, data, size);
    size_t n = (size_t)(border - data);
    ndp_span text = {copy + n + 1, size - n - 1};
    ndp_regex *r;
    ndp_regex_scratch scratch = {0};
    if (ndp_regex_create((ndp_span){copy, n}, "fuzz", &r) == NDP_OK) {
        ndp_regex_walk w = ndp_regex_walk_begin(r, &scratch, text);
        bool found = true;
        for (size_t from, to, last = 0; found && ndp_regex_next(&w, &found, &from, &to) == NDP_OK && found; last = to)
            if (from < last || to < from || to > text.n)
                __builtin_trap();
        ndp_regex_destroy(r);
    }
    ndp_regex_scratch_release(&scratch);
    free(copy);
    return 0;
}
