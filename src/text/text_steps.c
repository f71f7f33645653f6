/* Lists of the steps of a normalizer or decoder. A list owns what its steps own, and releases it. */
#include "text/text_steps.h"

#include "base/arena.h"
#include "text/charsmap.h"
#include <stdlib.h>

static void release(ndp_text_step *s) {
    ndp_regex_destroy(s->pattern);
    ndp_charsmap_destroy(s->charsmap);
}

ndp_status ndp_text_steps_add(ndp_text_steps *all, ndp_text_step s) {
    ndp_status st = ndp_array_reserve(&all->items, &all->capacity, all->n + 1, sizeof *all->items);
    if (st == NDP_OK)
        all->items[all->n++] = s;
    else
        release(&s);
    return st;
}

void ndp_text_steps_release(ndp_text_steps *all) {
    for (int64_t i = 0; i < all->n; i++)
        release(&all->items[i]);
    free(all->items);
    *all = (ndp_text_steps){0};
}
