/* Proof 3 over all legal layouts of a subject, for the long tests. */
#ifndef TESTS_VERIFY_MATRIX_H
#define TESTS_VERIFY_MATRIX_H

#include "verify/invariance.h"

#include "base/clock.h"

enum { MOST_LAYOUTS = 256 };

/* Whether there is a use for the layout where updates all have `global` samples (0: as suits the layout). */
static inline bool fits(const ndp_layout *l, int global) { return global == 0 || global % data_ranks_of(l) == 0; }

static inline void try_one(family *f, const way *w) {
    char text[WAY_TEXT], words[512];
    const char *out_of = try_way(f, w, words);
    if (out_of)
        printf("OUT OF BOUNDS: %s, %s: %s\n", f->s.name, way_text(w, text), out_of);
    fflush(stdout);
}

/* Every `step`-th of the legal layouts that fit, of worlds of 2 to 16 ranks, with so many draws of the other choices
 * (way_of). Prints how many there were and how near they came to their bounds, and fails if one was beyond. */
static inline void try_all(subject s, int global, int step, int draws) {
    static const int worlds[] = {2, 3, 4, 6, 8, 9, 12, 16};
    family f = {.s = s};
    ndp_layout layouts[MOST_LAYOUTS];
    ndp_layout_facts facts = facts_of(&s);
    double start = ndp_now();
    int legal = 0, fit = 0;
    for (int at = 0; at < NDP_COUNT(worlds); at++) {
        int n = legal_layouts(&facts, worlds[at], layouts, MOST_LAYOUTS);
        for (int i = 0; i < n; i++) {
            if (!fits(&layouts[i], global) || fit++ % step != 0)
                continue;
            for (int k = 0; k < draws; k++) {
                way w = way_of(&layouts[i], draws * (legal + i) + k, global);
                try_one(&f, &w);
            }
        }
        legal += n;
    }
    print_family(&f);
    printf("  %d legal layouts; %.0f s\n", legal, ndp_now() - start);
    fflush(stdout);
    family_release(&f);
    assert_int_equal(f.passed, f.tried);
    assert_true(f.tried >= 20);
}

enum { DIVISIBLE = 12 }; /* samples of an update, for one-rank runs that cut it in six ways */

#endif
