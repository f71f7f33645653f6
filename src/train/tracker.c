/* The trackers of a run, each opened by the table of its kind. */
#include "train/tracker.h"

#include <stdlib.h>
#include <string.h>

#define ROW(name) {#name, &ndp_tracker_##name},
static const struct {
    const char *name;
    const ndp_tracker_kind *kind;
} kinds[] = {NDP_TRACKERS(ROW)};

struct ndp_tracker {
    int n;
    struct {
        const ndp_tracker_kind *kind;
        void *self;
    } of[NDP_COUNT(kinds)];
};

static ndp_status open_one(ndp_tracker *t, const char *name, const char *folder, int64_t first) {
    int k = 0;
    while (k < NDP_COUNT(kinds) && strcmp(kinds[k].name, name) != 0)
        k++;
    for (int i = 0; i < t->n && k < NDP_COUNT(kinds); i++)
        if (t->of[i].kind == kinds[k].kind)
            return NDP_OK; /* named twice */
    if (k == NDP_COUNT(kinds))
        return NDP_FAIL(NDP_EBUG, "train.trackers has '%s', which has no code", name);
    NDP_TRY(kinds[k].kind->open(folder, first, &t->of[t->n].self));
    t->of[t->n++].kind = kinds[k].kind;
    return NDP_OK;
}

ndp_status ndp_tracker_open(const ndp_strings *names, const char *folder, int64_t first, ndp_tracker **out) {
    *out = NULL;
    if (names->n == 0)
        return NDP_OK;
    ndp_tracker *t = calloc(1, sizeof *t);
    ndp_status st = NDP_MEMORY(t, "for a tracker");
    for (int i = 0; i < names->n && st == NDP_OK; i++)
        st = open_one(t, names->items[i], folder, first);
    if (st == NDP_OK)
        *out = t;
    else
        ndp_tracker_close(t);
    return st;
}

ndp_status ndp_tracker_add(ndp_tracker *t, const ndp_metrics *m) {
    ndp_status first = NDP_OK;
    for (int i = 0; t && i < t->n; i++) {
        ndp_status st = t->of[i].kind->add(t->of[i].self, m);
        first = first != NDP_OK ? first : st;
    }
    return first;
}

void ndp_tracker_close(ndp_tracker *t) {
    for (int i = 0; t && i < t->n; i++)
        t->of[i].kind->close(t->of[i].self);
    free(t);
}
