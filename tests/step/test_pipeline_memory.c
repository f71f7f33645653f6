/* What the stages of a pipeline hold at once, from the blocks of their programs: as many micro-batches as theory says,
 * and the arena is hardly larger than what lives in it at the peak. */
#include "pipeline/held.h"
#include "step/pipelines.h"

#include <math.h>

enum { RANKS = 4, MICRO_BATCHES = 12, ROWS = 256 };

static bool is_layer(const ndp_program *p, const ndp_instr *in) {
    int number = in->code == NDP_DO_RUN ? p->opts.model->units[in->unit].number : 0;
    return number > 0 && number < p->opts.whole->n_units - 1;
}

/* Adds the bytes of a block that run `at` is the first to name to those that live until its last. */
static void add_block(const ndp_program *p, int block, int at, double *live) {
    for (int i = at; block != NDP_NONE && p->blocks[block].life.first == at && i <= p->blocks[block].life.last; i++)
        live[i] += (double)p->blocks[block].bytes;
}

/* The most that lives at once of what forwards save for backwards, in micro-batches of one stage. *kept: the part of it
 * that the weight gradients read. */
static double held(const ndp_program *p, double *kept) {
    double *live = calloc((size_t)p->n + 1, sizeof *live), most = 0, one = 1;
    for (int i = 0; i < p->n; i++) {
        const ndp_instr *in = &p->instrs[i];
        if (!is_layer(p, in) || in->phase != NDP_FORWARD)
            continue;
        const ndp_unit_program *u = &p->opts.units[p->opts.model->units[in->unit].graph];
        one = (double)(u->saved_bytes + u->saved_input_bytes);
        *kept = (double)u->saved_bytes / one;
        add_block(p, in->bases[NDP_BASE_SAVED], i, live);
        add_block(p, in->bases[NDP_BASE_SAVED_INPUT], i, live);
    }
    for (int i = 0; i < p->n; i++)
        most = fmax(most, live[i]);
    free(live);
    return most / one;
}

/* The most that lives at once in the arena. */
static double live_peak(const ndp_program *p) {
    double most = 0;
    for (int i = 0; i < p->n; i++) {
        double sum = 0;
        for (int b = 0; b < p->n_blocks; b++)
            if (p->blocks[b].region == NDP_REGION_ARENA && ndp_lives_at(&p->blocks[b].life, i))
                sum += (double)p->blocks[b].bytes;
        most = fmax(most, sum);
    }
    return most;
}

typedef struct memory_case {
    ndp_pipeline_kind kind;
    int v;
    double most[RANKS]; /* micro-batches of the rank */
    double arena;       /* at most, over what lives at once */
} memory_case;

static void check_case(const memory_case *c) {
    pipeline_setup s = {.fold = NDP_FOLD_NEVER}; /* what lives is counted block by block */
    CHECK_OK(ndp_pipeline_make(c->kind, RANKS, c->v, MICRO_BATCHES, &s.table));
    pipeline_build(&s, ROWS, 1.0);
    for (int r = 0; r < RANKS; r++) {
        double kept = 0, mine = held(s.programs[r], &kept), table = pipeline_held(&s.table, r, kept);
        double ratio = (double)s.programs[r]->bytes[NDP_REGION_ARENA] / live_peak(s.programs[r]);
        printf("  %-12s rank %d holds %5.2f micro-batches (table %5.2f, at most %5.2f), arena / live %.3f\n",
               ndp_pipeline_table[c->kind].name, r, mine / c->v, table / c->v, c->most[r], ratio);
        assert_true(fabs(mine - table) < 1e-6);
        assert_true(mine / c->v <= c->most[r] + 1e-6);
        assert_true(ratio <= c->arena);
    }
    pipeline_end(&s);
}

/* Proof: for p 4, m 12. */
static void stages_hold_what_theory_says(void **state) {
    (void)state;
    static const memory_case cases[] = {
        {NDP_PIPELINE_GPIPE, 1, {12, 12, 12, 12}, 1.05},           {NDP_PIPELINE_1F1B, 1, {4, 3, 2, 1}, 1.05},
        {NDP_PIPELINE_INTERLEAVED, 2, {5.5, 5.5, 5.5, 5.5}, 1.05}, /* p + (p - 1) / v */
        {NDP_PIPELINE_ZERO_BUBBLE, 1, {4, 4, 4, 4}, 1.05},         {NDP_PIPELINE_ZBV, 2, {4, 4, 4, 4}, 1.05},
        {NDP_PIPELINE_DUALPIPEV, 2, {4.5, 4.5, 4.5, 4.5}, 1.05},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++)
        check_case(&cases[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(stages_hold_what_theory_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
