/* Borrowed bytes. */
#ifndef NDP_TEXT_SPAN_H
#define NDP_TEXT_SPAN_H

#include <stddef.h>

typedef struct ndp_span {
    const char *data;
    size_t n;
} ndp_span;

#endif
