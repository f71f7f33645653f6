/* A list of free workbenches under a mutex, which is held only to take one or to return one. Called by tokenizer.c.
 */
#include "text/workbench.h"

#include <pthread.h>
#include <stdlib.h>

enum { LARGE = 16 << 20 };

struct ndp_workbenches {
    pthread_mutex_t lock;
    ndp_workbench *free;
};

ndp_status ndp_workbenches_create(ndp_workbenches **out) {
    ndp_workbenches *all = calloc(1, sizeof *all);
    NDP_CHECK_MEMORY(all, "for a tokenizer");
    pthread_mutex_init(&all->lock, NULL);
    *out = all;
    return NDP_OK;
}

static void destroy(ndp_workbench *w) {
    ndp_regex_scratch_release(&w->regex);
    ndp_normalize_scratch_release(&w->normalize);
    ndp_pretokenize_scratch_release(&w->pretokenize);
    ndp_words_scratch_release(&w->words);
    free(w);
}

void ndp_workbenches_destroy(ndp_workbenches *all) {
    if (!all)
        return;
    for (ndp_workbench *w = all->free, *next; w; w = next) {
        next = w->next;
        destroy(w);
    }
    pthread_mutex_destroy(&all->lock);
    free(all);
}

ndp_status ndp_workbench_take(ndp_workbenches *all, ndp_workbench **out) {
    pthread_mutex_lock(&all->lock);
    ndp_workbench *w = all->free;
    if (w)
        all->free = w->next;
    pthread_mutex_unlock(&all->lock);
    if (!w && !(w = calloc(1, sizeof *w)))
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to tokenize");
    *out = w;
    return NDP_OK;
}

void ndp_workbench_put(ndp_workbenches *all, ndp_workbench *w, size_t bytes) {
    if (bytes > LARGE) {
        destroy(w);
        return;
    }
    pthread_mutex_lock(&all->lock);
    w->next = all->free;
    all->free = w;
    pthread_mutex_unlock(&all->lock);
}
