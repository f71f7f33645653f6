/* A rendering as text with [ ] around what the assistant wrote. */
#ifndef NDP_TESTS_TEXT_BRACKETED_H
#define NDP_TESTS_TEXT_BRACKETED_H

#include "text/chat/chat.h"

/* The caller frees. */
static inline char *bracketed(const ndp_rendering *r) {
    ndp_str out = {0};
    size_t at = 0;
    for (int64_t i = 0; i < r->n; i++) {
        ndp_str_add_bytes(&out, r->text.data + at, r->spans[i].begin - at);
        ndp_str_addf(&out, "[%.*s]", (int)(r->spans[i].end - r->spans[i].begin), r->text.data + r->spans[i].begin);
        at = r->spans[i].end;
    }
    ndp_str_add(&out, r->text.data + at);
    return ndp_str_detach(&out);
}

#endif
