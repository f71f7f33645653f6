/* The list of schedules, and how their tables are made: limits, memory, stage map, then a generator for each row. */
#include "pipeline/pipeline.h"

#include "pipeline/row.h"
#include <stdlib.h>
#include <string.h>

#define INFO(NAME, name, MAP, LEAST, MOST, help) {#name, help, NDP_STAGES_##MAP, LEAST, MOST},
const ndp_pipeline_info ndp_pipeline_table[NDP_PIPELINE_KINDS] = {NDP_PIPELINES(INFO)};

#define GENERATOR(NAME, name, ...) [NDP_PIPELINE_##NAME] = ndp_row_##name,
static ndp_row_generator *const generators[NDP_PIPELINE_KINDS] = {NDP_GENERATED_PIPELINES(GENERATOR)};

char ndp_action_letter(ndp_action a) {
#define LETTER(NAME, letter) letter,
    static const char letters[] = {NDP_ACTIONS_LIST(LETTER)};
    return letters[a];
}

/* ---- memory ---- */

ndp_status ndp_pipeline_init(const char *name, int ranks, int stages, int micro_batches, size_t room,
                             ndp_pipeline *out) {
    ndp_pipeline s = {.name = strdup(name),
                      .ranks = ranks,
                      .stages = stages,
                      .micro_batches = micro_batches,
                      .rows = calloc((size_t)ranks, sizeof *s.rows),
                      .rank_of = calloc((size_t)stages, sizeof *s.rank_of)};
    bool made = s.name && s.rows && s.rank_of;
    for (int r = 0; made && r < ranks; r++)
        made = (s.rows[r].actions = malloc(room * sizeof *s.rows[r].actions)) != NULL;
    if (!made) {
        ndp_pipeline_release(&s);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the schedule %s of %d ranks, %d stages and %d micro-batches",
                        name, ranks, stages, micro_batches);
    }
    *out = s;
    return NDP_OK;
}

void ndp_pipeline_release(ndp_pipeline *s) {
    for (int r = 0; s->rows && r < s->ranks; r++)
        free(s->rows[r].actions);
    free(s->rows);
    free(s->rank_of);
    free(s->name);
    *s = (ndp_pipeline){0};
}

/* ---- tables ---- */

static const char *plural(int n) { return n == 1 ? "" : "s"; }

static ndp_status check_sizes(ndp_pipeline_kind kind, int ranks, int v, int micro_batches) {
    enum { MOST_ACTIONS = 1 << 26 }; /* of a table: 1.3 GB */
    const ndp_pipeline_info *k = &ndp_pipeline_table[kind];
    NDP_CHECK(kind != NDP_PIPELINE_FILE, "the schedule 'file' is read from a CSV file: give its path");
    int nearest = v < k->fewest ? k->fewest : k->most;
    NDP_CHECK(v >= k->fewest && v <= k->most,
              "the schedule %s takes %d%s virtual stage%s, not %d: the nearest number is %d%s", k->name, k->fewest,
              k->most > k->fewest ? " or more" : "", plural(k->fewest), v, nearest,
              kind == NDP_PIPELINE_INTERLEAVED && v == 1 ? "; with 1 it is 1f1b"
              : v > k->most                              ? "; interleaved and zero_bubble take more"
                                                         : "");
    NDP_CHECK(ranks >= 1 && ranks <= NDP_MOST_STAGES / v,
              "the schedule %s of %d ranks with %d virtual stage%s: ranks are 1 to %d", k->name, ranks, v, plural(v),
              NDP_MOST_STAGES / v);
    int64_t most = MOST_ACTIONS / (3 * (int64_t)ranks * v);
    most = most < NDP_MOST_MICRO_BATCHES ? most : NDP_MOST_MICRO_BATCHES;
    NDP_CHECK(micro_batches >= 1 && micro_batches <= most,
              "the schedule %s of %d ranks with %d virtual stage%s and %d micro-batches: micro-batches are 1 to %lld",
              k->name, ranks, v, plural(v), micro_batches, (long long)most);
    return NDP_OK;
}

ndp_status ndp_pipeline_make(ndp_pipeline_kind kind, int ranks, int virtual_stages, int micro_batches,
                             ndp_pipeline *out) {
    NDP_TRY(check_sizes(kind, ranks, virtual_stages, micro_batches));
    const ndp_pipeline_info *k = &ndp_pipeline_table[kind];
    ndp_pipeline s;
    ndp_row_writer w = {.ranks = ranks, .local_stages = virtual_stages, .micro_batches = micro_batches, .map = k->map};
    size_t counters = (size_t)virtual_stages * NDP_ACTIONS;
    NDP_TRY(ndp_pipeline_init(k->name, ranks, ranks * virtual_stages, micro_batches,
                              3 * (size_t)virtual_stages * (size_t)micro_batches, &s));
    if (!(w.next = malloc(counters * sizeof *w.next))) {
        ndp_pipeline_release(&s);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the schedule %s of %d ranks", k->name, ranks);
    }
    for (w.rank = 0; w.rank < ranks; w.rank++) {
        w.row = &s.rows[w.rank];
        memset(w.next, 0, counters * sizeof *w.next);
        generators[kind](&w);
        for (int local = 0; local < virtual_stages; local++)
            s.rank_of[ndp_row_stage(&w, local)] = w.rank;
    }
    free(w.next);
    *out = s;
    return NDP_OK;
}
