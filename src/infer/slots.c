/* Slots of texts that are continued together (slots.h). */
#include "infer/slots.h"

#include "base/clock.h"
#include <stdlib.h>

ndp_status ndp_slots_init(ndp_slots *s, int64_t n, int64_t longest, const char *less) {
    s->n = n;
    NDP_TRY(ndp_cached_init(&s->model, &s->generator->infer, n, longest, NDP_CHUNK_ROWS, less));
    s->slots = calloc((size_t)n, sizeof *s->slots);
    s->ids = calloc((size_t)n, sizeof *s->ids);
    s->logits = malloc((size_t)s->generator->infer.facts->vocab * sizeof *s->logits);
    for (int64_t i = 0; s->slots && i < n; i++)
        s->slots[i].text = -1;
    return NDP_MEMORY(s->slots && s->ids && s->logits, "for %lld texts", (long long)n);
}

void ndp_slots_release(ndp_slots *s) {
    for (int64_t i = 0; s->slots && i < s->n; i++)
        ndp_answer_release(&s->slots[i].answer);
    free(s->slots);
    free(s->ids);
    free(s->logits);
    ndp_cached_release(&s->model);
    *s = (ndp_slots){0};
}

static ndp_status take_token(ndp_slots *s, int64_t i, const float *logits) {
    ndp_text_slot *slot = &s->slots[i];
    NDP_TRY(ndp_answer_next(&slot->answer, s->generator, logits, s->model.used[i], &s->ids[i]));
    NDP_TRY(s->token(s->user, slot->text, &slot->answer, s->ids[i], &s->stopped));
    if (!slot->answer.ended)
        return NDP_OK;
    ndp_answer_release(&slot->answer);
    slot->text = -1;
    s->ended++;
    return NDP_OK;
}

/* Gives a free slot the next texts, until one's answer has more than one token. */
static ndp_status fill_slot(ndp_slots *s, int64_t i) {
    while (s->slots[i].text < 0 && s->next < s->texts && !s->stopped) {
        int64_t k = s->next++;
        const ndp_text_prompt p = s->prompt(s->user, k);
        NDP_TRY(ndp_answer_init(&s->slots[i].answer, s->generator, &p.ids, p.number, p.most));
        s->slots[i].text = k;
        s->model.used[i] = 0;
        NDP_TRY(ndp_cached_feed(&s->model, i, p.ids.items, p.ids.n, NULL, NULL));
        NDP_TRY(take_token(s, i, s->model.logits));
    }
    return NDP_OK;
}

ndp_status ndp_slots_run(ndp_slots *s, double until) {
    while (!ndp_slots_done(s) && ndp_now() < until) {
        for (int64_t i = 0; i < s->n; i++)
            NDP_TRY(fill_slot(s, i));
        if (ndp_slots_done(s))
            break;
        for (int64_t i = 0; i < s->n; i++) /* a free slot computes a row that nothing reads */
            s->model.used[i] = s->slots[i].text < 0 ? 0 : s->model.used[i];
        NDP_TRY(ndp_cached_next(&s->model, s->ids));
        for (int64_t i = 0; i < s->n && !s->stopped; i++)
            if (s->slots[i].text >= 0) {
                NDP_TRY(ndp_cached_logits(&s->model, i, s->logits));
                NDP_TRY(take_token(s, i, s->logits));
            }
    }
    return NDP_OK;
}
