/* Inside the infer room: stop strings. Text passes through until a stop string occurs in it. Its end is held back while
 * it may be the beginning of a stop string, so that no part of one is passed on. */
#ifndef NDP_INFER_STOPS_H
#define NDP_INFER_STOPS_H

#include "base/text.h"

typedef struct ndp_stops {
    const char *const *strings; /* borrowed */
    int n;
    ndp_str held;
} ndp_stops;

/* NDP_EINVAL: a stop string is empty or not UTF-8. */
NDP_API ndp_status ndp_stops_init(ndp_stops *s, const char *const *strings, int n);
void ndp_stops_release(ndp_stops *s);
/* Takes `text` and replaces it by what can be passed on. *stopped: a stop string occurred; the text ends before the
 * first one. `last`: nothing follows, so nothing is held back. */
NDP_API ndp_status ndp_stops_pass(ndp_stops *s, ndp_str *text, bool last, bool *stopped);

#endif
