/* A walk narrows a range of the sorted strings by two binary searches per byte; the first byte is looked up in a
 * table. Called by added.c and unigram.c. */
#include "text/prefixes.h"

#include "base/arena.h"
#include <stdlib.h>
#include <string.h>

ndp_status ndp_prefixes_add(ndp_prefixes *p, const char *text, size_t length, int32_t id) {
    NDP_TRY(ndp_array_reserve(&p->items, &p->capacity, p->n + 1, sizeof *p->items));
    p->items[p->n++] = (ndp_prefix){text, (uint32_t)length, id};
    return NDP_OK;
}

static int in_order(const void *a, const void *b) {
    const ndp_prefix *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->length < y->length ? x->length : y->length);
    if (order)
        return order;
    return x->length != y->length ? (x->length < y->length ? -1 : 1) : (x->id > y->id) - (x->id < y->id);
}

void ndp_prefixes_build(ndp_prefixes *p) {
    if (p->n)
        qsort(p->items, (size_t)p->n, sizeof *p->items, in_order);
    int64_t i = 0;
    for (int c = 0; c < 257; c++) {
        p->first[c] = i;
        while (c < 256 && i < p->n && (unsigned char)p->items[i].text[0] == c)
            i++;
    }
}

void ndp_prefixes_release(ndp_prefixes *p) {
    free(p->items);
    *p = (ndp_prefixes){0};
}

/* The first string of the range that ends here or continues with `byte` or more. */
static int64_t lower_bound(const ndp_prefixes *p, int64_t low, int64_t high, uint32_t depth, int byte) {
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        const ndp_prefix *s = &p->items[middle];
        if (s->length <= depth || (unsigned char)s->text[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool ndp_prefix_step(const ndp_prefixes *p, ndp_prefix_walk *w, unsigned char byte) {
    w->low = lower_bound(p, w->low, w->high, w->depth, byte);
    w->high = lower_bound(p, w->low, w->high, w->depth, byte + 1);
    w->depth++;
    return w->low < w->high;
}
