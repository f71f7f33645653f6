/* Stop strings. Of several that occur, the one that begins first ends the text. */
#include "infer/stops.h"

#include <string.h>

ndp_status ndp_stops_init(ndp_stops *s, const char *const *strings, int n) {
    NDP_CHECK(strings || n == 0, "stop is NULL, but stop_count is %d", n);
    for (int i = 0; i < n; i++) {
        size_t length = strlen(strings[i]);
        NDP_CHECK(length > 0, "a stop string is empty; give the text that ends an answer");
        NDP_CHECK(ndp_utf8_valid_prefix(strings[i], length) == length, "a stop string is not UTF-8");
    }
    *s = (ndp_stops){.strings = strings, .n = n};
    return NDP_OK;
}

void ndp_stops_release(ndp_stops *s) {
    ndp_str_release(&s->held);
    *s = (ndp_stops){0};
}

/* Where the first stop string begins, or the end of the text. */
static size_t find_stop(const ndp_stops *s, const char *text, size_t n) {
    size_t first = n;
    for (int i = 0; i < s->n; i++) {
        const char *hit = memmem(text, n, s->strings[i], strlen(s->strings[i]));
        if (hit && (size_t)(hit - text) < first)
            first = (size_t)(hit - text);
    }
    return first;
}

static bool may_become_stop(const ndp_stops *s, const char *end, size_t n) {
    for (int i = 0; i < s->n; i++)
        if (strlen(s->strings[i]) > n && memcmp(s->strings[i], end, n) == 0)
            return true;
    return false;
}

ndp_status ndp_stops_pass(ndp_stops *s, ndp_str *text, bool last, bool *stopped) {
    *stopped = false;
    if (s->n == 0)
        return NDP_OK;
    ndp_str_add_bytes(&s->held, text->data, text->length);
    ndp_str_add(&s->held, "");
    NDP_CHECK_MEMORY(!s->held.failed, "for text");
    char *held = s->held.data;
    size_t all = s->held.length, n = find_stop(s, held, all);
    *stopped = n < all;
    if (!*stopped && !last)
        for (n = 0; n < all && !may_become_stop(s, held + n, all - n);)
            n++;
    text->length = 0;
    ndp_str_add_bytes(text, held, n);
    ndp_str_add(text, "");
    s->held.length = all - n;
    memmove(held, held + n, s->held.length + 1);
    return NDP_MEMORY(!text->failed, "for text");
}
