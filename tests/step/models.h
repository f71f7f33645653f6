/* A model on layouts of every kind, each against one rank. */
#ifndef TESTS_STEP_MODELS_H
#define TESTS_STEP_MODELS_H

#include "step/layouts.h"
#include "step/tiny_models.h"

/* Layouts from number `first` on, each with all switches or (every `step`th way) some of them. */
static inline void check_model_of(const ndp_facts *f, const ndp_model_opts *mo, const ndp_device *device,
                                  const bounds *bound, int first, int step) {
    ndp_model m;
    CHECK_OK(ndp_decoder_build(f, mo, &m));
    result one = run(&m, device, &(way){.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT});
    for (int i = first; i < NDP_COUNT(layout_sizes); i++)
        for (int bits = i % step; bits < 8; bits += step) {
            way w = {.reshard = bits & 1, .recompute = bits & 2 ? 1 + i % 2 : 0, .gathered = bits & 4};
            w.parallel = (ndp_parallel){!(bits & 1), bits & 2 ? NDP_CP_ALL_GATHER : NDP_CP_RING, !(bits & 4), 0, 0, 1.5};
            memcpy(w.size, layout_sizes[i], sizeof w.size);
            check_against(&m, device, &w, &one, bound);
        }
    release(&one);
    ndp_model_release(&m);
}

static inline void check_model(const ndp_facts *f, ndp_dtype compute, const ndp_device *device, const bounds *bound,
                               int first, int step) {
    ndp_model_opts mo = tiny_opts(compute, ROWS);
    check_model_of(f, &mo, device, bound, first, step);
}

static inline void check_layouts(bool tied, ndp_dtype compute, const ndp_device *device, const bounds *bound) {
    ndp_facts f = tiny_facts(tied);
    check_model(&f, compute, device, bound, 0, short_or_all(3, 1));
}

#endif
