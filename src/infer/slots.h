/* Inside the infer room: many texts, several at a time. Each step computes the next token of every slot. A slot whose
 * text has ended takes the next one. A text's tokens depend neither on its slot nor on the texts in the others. */
#ifndef NDP_INFER_SLOTS_H
#define NDP_INFER_SLOTS_H

#include "infer/generator.h"

/* What is continued. */
typedef struct ndp_text_prompt {
    ndp_ids ids;     /* borrowed, at least one */
    uint64_t number; /* of the text: texts of one seed draw different numbers */
    int64_t most;    /* tokens that are appended, at least 1 */
} ndp_text_prompt;

typedef struct ndp_text_slot {
    int64_t text; /* -1: none */
    ndp_answer answer;
} ndp_text_slot;

typedef struct ndp_slots {
    ndp_generator *generator; /* borrowed, with the two functions that follow: */
    /* text k of `texts`, when a slot takes it; */
    ndp_text_prompt (*prompt)(void *user, int64_t k);
    /* its newest token, with what that completed in answer->text; answer->ended with the last one. *stop: there is
     * nothing more to do. */
    ndp_status (*token)(void *user, int64_t k, const ndp_answer *answer, int32_t id, bool *stop);
    void *user;
    int64_t texts;
    ndp_cached model;
    ndp_text_slot *slots;
    int32_t *ids; /* [slots] the latest tokens */
    float *logits;
    int64_t n, next, ended; /* slots; the text that is next; how many have ended */
    bool stopped;
} ndp_slots;

/* Takes the memory of `n` slots for texts of up to `longest` tokens; the caller has set what is above. `less`: as of
 * ndp_cached_init. Release it in any case. */
NDP_API ndp_status ndp_slots_init(ndp_slots *s, int64_t n, int64_t longest, const char *less);
/* Accepts {0}. */
void ndp_slots_release(ndp_slots *s);
/* Continues texts until all have ended, or the clock (base/clock.h) is at `until`. */
NDP_API ndp_status ndp_slots_run(ndp_slots *s, double until);
static inline bool ndp_slots_done(const ndp_slots *s) { return s->stopped || s->ended == s->texts; }

#endif
