/* Micro-batches of preference data for tiny models: documents of unequal length, some rows of which are an answer. */
#ifndef TESTS_STEP_TINY_PAIRS_H
#define TESTS_STEP_TINY_PAIRS_H

#include "base/rng.h"
#include "step/engine.h"

/* A loss with options that all losses can have, and some nll of chosen documents. */
static inline ndp_preference tiny_preference(int kind) {
    ndp_preference p = {.kind = (ndp_preference_kind)kind, .beta = 0.7, .gamma = 0.4, .sft_weight = 0.3};
    p.label_smoothing = ndp_preference_table[kind].smoothed ? 0.1 : 0;
    if (ndp_preference_scores(p.kind))
        p.beta = 1, p.center = 0.2, p.sft_weight = 0;
    return p;
}

/* Where the loss scores, the answer is the last row alone. Every document begins with a prompt, whose labels count in
 * the nll of whole chosen documents alone. Micro-batches differ in lengths and prompts; `global`: its number in the
 * update, on any layout. */
static inline void tiny_pairs_fill(const ndp_model *whole, int64_t global, int32_t *tokens, int32_t *labels,
                                   int32_t *positions, int32_t *starts, int32_t *documents, double *reference) {
    const ndp_preference *p = &whole->opts.preference;
    int64_t rows = whole->opts.rows, n = whole->opts.documents, prompt = 1 + global % 2;
    uint64_t vocab = (uint64_t)whole->buffers[0].segments.items[0].rows; /* of the embedding */
    for (int64_t d = 0, at = 0; d < n; d++) {
        int64_t end = d + 1 == n ? rows : rows * (d + 1) / n + (d + global) % 2, first = at;
        reference[d] = -2.0 - 0.5 * (double)((3 * d + global) % 5);
        for (; at < end; at++) {
            bool last = at + 1 == end, scores = ndp_preference_scores(p->kind), chosen = d % 2 == 0;
            bool answer = scores ? last : !last && at - first + 1 >= prompt;
            bool first_answer = answer && (scores || at - first + 1 == prompt);
            bool nll = !scores && chosen && !last && (answer || ndp_preference_table[p->kind].whole);
            tokens[at] = (int32_t)ndp_rng_below(11, 1, (uint64_t)(global * rows + at), vocab);
            labels[at] = answer || nll ? (int32_t)ndp_rng_below(11, 2, (uint64_t)(global * rows + at), vocab) : -1;
            starts[at] = (int32_t)first, positions[at] = (int32_t)(at - first);
            documents[at] = answer || nll ? (int32_t)(d << NDP_DOCUMENT_MARKS | (answer ? NDP_DOCUMENT_ANSWER : 0) |
                                                      (nll ? NDP_DOCUMENT_NLL : 0) |
                                                      (chosen && first_answer ? NDP_DOCUMENT_PAIR : 0))
                                          : -1;
        }
    }
}

#endif
