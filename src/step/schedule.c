/* The schedule of one stage, and the check of any schedule.
 *
 * The check marks, for each unit and micro-batch, which of forward, input gradient and weight gradient has been done.
 * An action needs marks and sets marks (`rules`): each is set once, in that order, and all are set at the end. Order
 * between units is not checked here; a list in which a unit runs before the one that feeds it is the generator's error.
 */
#include "step/schedule.h"

#include <math.h>
#include <stdlib.h>

ndp_status ndp_schedule_in_order(const ndp_model *m, int accumulation, ndp_schedule *out) {
    bool train = m->opts.mode == NDP_MODEL_TRAIN;
    *out = (ndp_schedule){.runs = calloc(2 * (size_t)accumulation, sizeof *out->runs)};
    NDP_CHECK_MEMORY(out->runs, "for a schedule of %d micro-batches", accumulation);
    for (int mb = 0; mb < accumulation; mb++) {
        out->runs[out->n++] = (ndp_planned_run){0, m->n_units, mb, NDP_ACTION_FORWARD, 0};
        if (train)
            out->runs[out->n++] = (ndp_planned_run){0, m->n_units, mb, NDP_ACTION_BACKWARD, 0};
    }
    return NDP_OK;
}

/* The units of a stage; units of a rank's model are in the order of the whole one. */
static bool units_of_stage(const ndp_model *m, int stage, ndp_planned_run *out) {
    int first = 0, end;
    while (first < m->n_units && m->units[first].stage != stage)
        first++;
    for (end = first; end < m->n_units && m->units[end].stage == stage;)
        end++;
    out->first_unit = first, out->end_unit = end;
    return end > first;
}

/* ---- a rank of a pipeline ---- */

static size_t place(const ndp_pipeline *p, int stage, int micro_batch) {
    return (size_t)stage * (size_t)p->micro_batches + (size_t)micro_batch;
}

/* When, by the replay, the next stage (in the first half of `reads`) and the one before it (in the second) read what a
 * stage makes of a micro-batch. */
static void note_reads(const ndp_pipeline *p, const ndp_pipeline_times *t, double *reads) {
    size_t half = (size_t)p->stages * (size_t)p->micro_batches;
    for (int rank = 0; rank < p->ranks; rank++)
        for (int i = 0; i < p->rows[rank].n; i++) {
            const ndp_stage_action *a = &p->rows[rank].actions[i];
            bool forward = a->action == NDP_ACTION_FORWARD;
            int maker = a->stage + (forward ? -1 : 1);
            if (a->action != NDP_ACTION_WEIGHT_GRADIENT && maker >= 0 && maker < p->stages)
                reads[(forward ? 0 : half) + place(p, maker, a->micro_batch)] = t->rows[rank][i].start;
        }
}

/* Sets `taken` of all entries. In an order in which the whole table runs, the replay's, a rank that waits there for a
 * send waits for something earlier: so no ranks wait for each other. */
static void set_taken(const ndp_pipeline *p, int rank, const ndp_action_time *times, const double *reads,
                      ndp_schedule *s) {
    size_t half = (size_t)p->stages * (size_t)p->micro_batches;
    for (int i = 0; i < s->n; i++) {
        const ndp_stage_action *a = &p->rows[rank].actions[i];
        bool forward = a->action == NDP_ACTION_FORWARD;
        int reader = a->stage + (forward ? 1 : -1), *taken = &s->runs[i].taken;
        if (a->action == NDP_ACTION_WEIGHT_GRADIENT || reader < 0 || reader >= p->stages)
            continue;
        double read = reads[(forward ? 0 : half) + place(p, a->stage, a->micro_batch)];
        for (*taken = i + 1; *taken < s->n && times[*taken].start < read;)
            ++*taken;
    }
}

static bool has_weight_gradient(ndp_action action) {
    return action == NDP_ACTION_BACKWARD || action == NDP_ACTION_WEIGHT_GRADIENT;
}

/* Sets s->from and s->to. `ends`, of 2 x stages: room. */
static void set_window(const ndp_pipeline *p, const ndp_pipeline_times *t, double *ends, ndp_schedule *s) {
    double *first = ends, *last = ends + p->stages;
    for (int i = 0; i < p->stages; i++)
        first[i] = t->makespan, last[i] = 0;
    for (int rank = 0; rank < p->ranks; rank++)
        for (int i = 0; i < p->rows[rank].n; i++) {
            const ndp_stage_action *a = &p->rows[rank].actions[i];
            const ndp_action_time *at = &t->rows[rank][i];
            double next = i + 1 < p->rows[rank].n ? at[1].start : at->end;
            if (!has_weight_gradient(a->action))
                continue;
            first[a->stage] = next < first[a->stage] ? next : first[a->stage];
            last[a->stage] = at->start > last[a->stage] ? at->start : last[a->stage];
        }
    s->from = 0, s->to = t->makespan;
    for (int i = 0; i < p->stages; i++) {
        s->from = first[i] > s->from ? first[i] : s->from;
        s->to = last[i] < s->to ? last[i] : s->to;
    }
}

/* Replays the table, for what the entries know of other ranks. */
static ndp_status find_times(const ndp_pipeline *p, int rank, ndp_schedule *s) {
    size_t stages = (size_t)p->stages, n = stages * (size_t)p->micro_batches;
    double *ones = malloc((stages + 2 * n) * sizeof *ones), *reads = ones + stages;
    ndp_pipeline_times times;
    NDP_CHECK_MEMORY(ones, "for a schedule of %d entries", s->n);
    for (size_t i = 0; i < stages; i++)
        ones[i] = 1;
    ndp_status st = ndp_pipeline_replay(p, &(ndp_pipeline_costs){ones, ones, ones, 0}, &times);
    if (st == NDP_OK) {
        note_reads(p, &times, reads);
        set_taken(p, rank, times.rows[rank], reads, s);
        for (int i = 0; i < s->n; i++)
            s->starts[i] = times.rows[rank][i].start;
        set_window(p, &times, reads, s);
        ndp_pipeline_times_release(&times);
    }
    free(ones);
    return st;
}

ndp_status ndp_schedule_of_rank(const ndp_pipeline *p, int rank, const ndp_model *m, ndp_schedule *out) {
    const ndp_pipeline_row *row = &p->rows[rank];
    ndp_schedule s = {.runs = calloc((size_t)row->n + 1, sizeof *s.runs),
                      .starts = calloc((size_t)row->n + 1, sizeof *s.starts)};
    if (!s.runs || !s.starts) {
        ndp_schedule_release(&s);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a schedule of %d entries", row->n);
    }
    for (; s.n < row->n; s.n++) {
        const ndp_stage_action *a = &row->actions[s.n];
        s.runs[s.n] = (ndp_planned_run){.micro_batch = a->micro_batch, .action = a->action};
        if (!units_of_stage(m, a->stage, &s.runs[s.n])) {
            ndp_schedule_release(&s);
            return NDP_FAIL(NDP_EBUG, "rank %d of pp has no units of stage %d", rank, a->stage);
        }
    }
    ndp_status st = find_times(p, rank, &s);
    if (st == NDP_OK)
        *out = s;
    else
        ndp_schedule_release(&s);
    return st;
}

void ndp_schedule_release(ndp_schedule *s) {
    free(s->runs);
    free(s->starts);
    *s = (ndp_schedule){0};
}

/* ---- repetition ---- */

/* True if entries i and k are the same action, k for a micro-batch `apart` later. */
static bool alike(const ndp_schedule *s, int i, int k, int apart) {
    const ndp_planned_run *a = &s->runs[i], *b = &s->runs[k];
    bool same_taken = a->taken == 0 || b->taken == 0 ? a->taken == b->taken : a->taken - i == b->taken - k;
    return a->action == b->action && a->first_unit == b->first_unit && a->end_unit == b->end_unit && same_taken &&
           b->micro_batch - a->micro_batch == apart;
}

/* True if the entries do all of a step for `micro_batches` micro-batches of each unit. */
static bool is_whole(const ndp_schedule *s, const ndp_model *m, int first, int n, int micro_batches) {
    for (int u = 0; u < m->n_units; u++) {
        int forwards = 0, inputs = 0, weights = 0;
        for (int i = first; i < first + n; i++) {
            const ndp_planned_run *r = &s->runs[i];
            if (u < r->first_unit || u >= r->end_unit)
                continue;
            forwards += r->action == NDP_ACTION_FORWARD;
            inputs += r->action == NDP_ACTION_INPUT_GRADIENT || r->action == NDP_ACTION_BACKWARD;
            weights += has_weight_gradient(r->action);
        }
        int gradients = m->opts.mode == NDP_MODEL_TRAIN ? micro_batches : 0;
        if (forwards != micro_batches || inputs != gradients || weights != gradients)
            return false;
    }
    return true;
}

/* The shortest period around the middle of the schedule that is whole; 0: none. *apart: of micro-batches. Lengths whose
 * forwards do not match are skipped without a look at their entries, so this is linear for schedules without a period.
 */
static int find_period(const ndp_schedule *s, const ndp_model *m, int *apart) {
    int middle = s->n / 2, forwards = 0; /* of units, in the first n entries */
    for (int n = 1; n <= s->n / 4; n++) {
        const ndp_planned_run *last = &s->runs[middle + n - 1];
        int same = 0;
        forwards += last->action == NDP_ACTION_FORWARD ? last->end_unit - last->first_unit : 0;
        *apart = s->runs[middle + n].micro_batch - s->runs[middle].micro_batch;
        if (*apart <= 0 || forwards != *apart * m->n_units)
            continue;
        while (same < n && alike(s, middle + same, middle + same + n, *apart))
            same++;
        if (same == n && is_whole(s, m, middle, n, *apart))
            return n;
    }
    return 0;
}

/* Narrows entries [*first, *end) to those after every unit's first weight gradient and before every unit's last one. */
static void leave_ends(const ndp_schedule *s, int units, int *first, int *end) {
    for (int u = 0; u < units; u++) {
        int i = 0, k = s->n - 1;
        while (i < s->n &&
               !(has_weight_gradient(s->runs[i].action) && s->runs[i].first_unit <= u && u < s->runs[i].end_unit))
            i++;
        while (k > i &&
               !(has_weight_gradient(s->runs[k].action) && s->runs[k].first_unit <= u && u < s->runs[k].end_unit))
            k--;
        *first = i < s->n && i >= *first ? i + 1 : *first;
        *end = i < s->n && k < *end ? k : *end;
    }
}

/* Narrows entries [*first, *end) so that they begin a whole number of periods after the start of the replay, and lie in
 * the time that all stages share: other ranks do the same. */
static void begin_together(const ndp_schedule *s, int period, int settle, int *first, int *end) {
    int middle = s->n / 2, i = *first;
    double length = s->starts[middle + period] - s->starts[middle], common = s->from + settle * length;
    double from = ceil((common > s->starts[i] ? common : s->starts[i]) / length) * length;
    while (i < *end && s->starts[i] < from)
        i++;
    while (*end > i && s->starts[*end] > s->to)
        --*end;
    *first = i;
}

ndp_schedule_body ndp_schedule_find_body(const ndp_schedule *s, const ndp_model *m) {
    /* Entries that the builder looks ahead; micro-batches until as many sends are pending as later (a period has as
     * many as there may be where stages go round the ranks); bodies that are worth it. */
    enum { AHEAD = 3, SETTLE = 2, LEAST = 3 };
    int apart, period = s->n >= 8 ? find_period(s, m, &apart) : 0;
    if (period == 0)
        return (ndp_schedule_body){0};
    int first = s->n / 2, end = first + period;
    while (first > 0 && alike(s, first - 1, first - 1 + period, apart))
        first--;
    while (end < s->n && alike(s, end - period, end, apart))
        end++;
    first = first > 0 ? first : 1; /* the first run of a step has nothing before it */
    end -= AHEAD;
    leave_ends(s, m->n_units, &first, &end);
    int settle = (SETTLE + apart - 1) / apart; /* periods */
    first += settle * period;
    if (s->starts)
        begin_together(s, period, settle, &first, &end);
    ndp_schedule_body body = {first, period, (end - first) / period, apart};
    return end - first >= LEAST * period ? body : (ndp_schedule_body){0};
}

ndp_status ndp_schedule_shorten(const ndp_schedule *s, const ndp_schedule_body *body, int kept, ndp_schedule *out) {
    int removed = (body->times - kept) * body->n, from = body->first + kept * body->n;
    *out = (ndp_schedule){.runs = calloc((size_t)(s->n - removed) + 1, sizeof *out->runs), .n = s->n - removed};
    NDP_CHECK_MEMORY(out->runs, "for a schedule of %d entries", out->n);
    for (int i = 0; i < out->n; i++) {
        int of = i < from ? i : i + removed;
        out->runs[i] = s->runs[of];
        out->runs[i].taken = s->runs[of].taken ? s->runs[of].taken - of + i : 0;
        out->runs[i].micro_batch -= i < from ? 0 : (body->times - kept) * body->micro_batches;
    }
    return NDP_OK;
}

/* ---- the check ---- */

/* Bits: what has been done for a unit and a micro-batch. */
enum { FORWARD = 1, INPUT = 2, WEIGHT = 4 };

/* What an action does, and what must have been done before it. */
static const struct {
    unsigned char does, needs;
    const char *name;
} rules[NDP_ACTIONS] = {{FORWARD, 0, "forward"},
                        {INPUT | WEIGHT, FORWARD, "backward"},
                        {INPUT, FORWARD, "input gradient"},
                        {WEIGHT, FORWARD | INPUT, "weight gradient"}};

static ndp_status check_run(const ndp_planned_run *r, int index, const ndp_model *m, int accumulation,
                            unsigned char *done) {
    bool train = m->opts.mode == NDP_MODEL_TRAIN;
    NDP_CHECK(r->micro_batch >= 0 && r->micro_batch < accumulation && r->first_unit >= 0 &&
                  r->first_unit < r->end_unit && r->end_unit <= m->n_units && r->action < NDP_ACTIONS,
              "entry %d of the schedule: units %d to %d of %d, micro-batch %d of %d", index, r->first_unit,
              r->end_unit - 1, m->n_units, r->micro_batch, accumulation);
    NDP_CHECK(train || r->action == NDP_ACTION_FORWARD, "entry %d of the schedule: a %s in a model that does not train",
              index, rules[r->action].name);
    for (int u = r->first_unit; u < r->end_unit; u++) {
        unsigned char *d = &done[(size_t)u * (size_t)accumulation + (size_t)r->micro_batch];
        NDP_CHECK(!(*d & rules[r->action].does), "entry %d of the schedule: the %s of unit %s for micro-batch %d twice",
                  index, rules[r->action].name, m->units[u].name, r->micro_batch);
        NDP_CHECK((*d & rules[r->action].needs) == rules[r->action].needs,
                  "entry %d of the schedule: the %s of unit %s for micro-batch %d is before its %s", index,
                  rules[r->action].name, m->units[u].name, r->micro_batch, *d & FORWARD ? "input gradient" : "forward");
        *d |= rules[r->action].does;
    }
    return NDP_OK;
}

static ndp_status check_runs(const ndp_schedule *s, const ndp_model *m, int accumulation, unsigned char *done) {
    unsigned char all = m->opts.mode == NDP_MODEL_TRAIN ? FORWARD | INPUT | WEIGHT : FORWARD;
    for (int i = 0; i < s->n; i++)
        NDP_TRY(check_run(&s->runs[i], i, m, accumulation, done));
    for (int u = 0; u < m->n_units; u++)
        for (int mb = 0; mb < accumulation; mb++) {
            unsigned char d = done[(size_t)u * (size_t)accumulation + (size_t)mb];
            NDP_CHECK(d == all, "the schedule lacks the %s of unit %s for micro-batch %d",
                      !(d & FORWARD) ? "forward"
                      : !(d & INPUT) ? "input gradient"
                                     : "weight gradient",
                      m->units[u].name, mb);
        }
    return NDP_OK;
}

ndp_status ndp_schedule_check(const ndp_schedule *s, const ndp_model *m, int accumulation) {
    unsigned char *done = calloc((size_t)m->n_units * (size_t)accumulation + 1, 1);
    ndp_status st = done ? check_runs(s, m, accumulation, done)
                         : NDP_FAIL(NDP_ENOMEM, "not enough memory to check a schedule of %d entries", s->n);
    free(done);
    return st;
}
