/* A part of a split, as the `datasets` library writes it: train[:1000], train[10%:], train[-5%:]. */
#ifndef NDP_DATA_CORPUS_SLICE_H
#define NDP_DATA_CORPUS_SLICE_H

#include "base/text.h"

typedef struct ndp_slice {
    bool given;
    bool percent; /* both ends are percentages */
    bool has_from, has_to;
    int64_t from, to; /* below 0: counted from the end */
} ndp_slice;

/* Cuts "[FROM:TO]" off the end of *length bytes of text; *length becomes that of the rest. Without brackets the slice
 * is not given. False: the brackets hold no slice. */
bool ndp_slice_cut(const char *text, size_t *length, ndp_slice *out);
/* The records [first, end) of `n`, by the rules of the library: percentages are rounded to the nearest record (halves
 * to the even one), ends beyond the records are moved to them. first >= end: none. */
void ndp_slice_bounds(const ndp_slice *s, int64_t n, int64_t *first, int64_t *end);

#endif
