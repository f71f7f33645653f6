/* Walks through a model. */
#include "model/tensors.h"

#include <string.h>

bool ndp_segment_next(ndp_segment_walk *w) {
    const ndp_model *m = w->model;
    while (w->buffer < m->n_buffers && w->next == m->buffers[w->buffer].segments.n)
        w->buffer++, w->next = 0;
    if (w->buffer == m->n_buffers)
        return false;
    w->segment = &m->buffers[w->buffer].segments.items[w->next++];
    return true;
}

bool ndp_tensor_next(ndp_tensor_walk *w) {
    ndp_segment_walk *s = &w->segments;
    bool found = s->segment && ++w->tensor.member < ndp_segment_tensors(s->segment);
    while (!found) {
        if (!ndp_segment_next(s))
            return false;
        found = s->next == 1 || !ndp_segment_continues(s->segment);
        w->tensor = (ndp_model_tensor){.segment = s->segment, .buffer = s->buffer};
    }
    w->tensor.name = ndp_segment_tensor_name(s->segment, w->tensor.member, w->room);
    return true;
}

int ndp_tensor_count(const ndp_model *m) {
    int n = 0;
    for (ndp_tensor_walk w = {.segments.model = m}; ndp_tensor_next(&w);)
        n++;
    return n;
}

const char *ndp_tensor_keep_name(const ndp_tensor_walk *w, ndp_arena *arena) {
    return w->tensor.name == w->room ? ndp_arena_strdup(arena, w->room) : w->tensor.name;
}

const ndp_segment *ndp_model_segment(const ndp_model *m, const char *tensor) {
    for (ndp_segment_walk w = {.model = m}; ndp_segment_next(&w);)
        if (strcmp(w.segment->name, tensor) == 0)
            return w.segment;
    return NULL;
}
