/* libFuzzer: a pipeline schedule as CSV. What was accepted passes the check, can be replayed, and is the same after it
 * was written and read again. */
#include "pipeline/pipeline.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same(const ndp_pipeline *a, const ndp_pipeline *b) {
    if (a->ranks != b->ranks || a->stages != b->stages || a->micro_batches != b->micro_batches ||
        memcmp(a->rank_of, b->rank_of, (size_t)a->stages * sizeof *a->rank_of) != 0)
        abort();
    for (int rank = 0; rank < a->ranks; rank++) {
        if (a->rows[rank].n != b->rows[rank].n)
            abort();
        for (int i = 0; i < a->rows[rank].n; i++) {
            const ndp_stage_action *x = &a->rows[rank].actions[i], *y = &b->rows[rank].actions[i];
            if (x->stage != y->stage || x->micro_batch != y->micro_batch || x->action != y->action ||
                x->paired != y->paired)
                abort();
        }
    }
}

/* Forwards alone run on every stage map. */
static void forwards(const ndp_pipeline *map) {
    ndp_pipeline s;
    ndp_str text = {0};
    if (ndp_pipeline_forward(map, 3, &s) != NDP_OK || ndp_pipeline_text(&s, &text) != NDP_OK)
        abort();
    ndp_str_release(&text);
    ndp_pipeline_release(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ndp_pipeline s, again;
    ndp_str text = {0};
    char *copy = malloc(size + !size); /* exact, so that a sanitizer sees reads after the end */
    memcpy(copy, data, size);
    if (ndp_pipeline_parse(copy, size, "fuzz", 0, &s) == NDP_OK) {
        if (ndp_pipeline_check(&s, s.micro_batches) != NDP_OK || ndp_pipeline_text(&s, &text) != NDP_OK ||
            ndp_pipeline_parse(text.data, text.length, "again", s.micro_batches, &again) != NDP_OK)
            abort();
        same(&s, &again);
        forwards(&s);
        ndp_pipeline_release(&again);
        ndp_pipeline_release(&s);
    }
    ndp_str_release(&text);
    free(copy);
    return 0;
}
