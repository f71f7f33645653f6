/* The table of `train --profile`: where the time of a run's steps went, as the mean over the ranks.
 *
 * Each rank has sums of its own steps, and one reduction at the end adds those of all. Kernels and exposed times are
 * from stamps between the calls in the rank's queue (graph/op_times.h): the device's clock, which is the host's on
 * processors. How long a collective was under way only the host knows, and on a device with a queue of its own it
 * does not: it only submits. All ranks begin and end a step together, so that the one that waits least for the others
 * is the slowest. */
#include "checkpoint/agree.h"
#include "train/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Of a rank, or of all of them. */
typedef struct profile_sums {
    double op[NDP_OP_COUNT], flight[NDP_OP_COUNT]; /* seconds of all steps (ndp_profile) */
    double calls[NDP_OP_COUNT], moved[NDP_OP_COUNT];
    double step, data;
} profile_sums;
_Static_assert(sizeof(profile_sums) % sizeof(double) == 0, "the sums travel as numbers");

static bool communicates(int op) { return ndp_op_kinds[op] == NDP_KIND_COLLECTIVE; }

/* ---- the sums ---- */

static void take_own(const ndp_trainer *t, const ndp_run_part *part, profile_sums *out) {
    const ndp_profile *p = ndp_engine_profile(t->engine);
    ndp_program_calls(ndp_engine_program(t->engine), out->calls, out->moved);
    for (int i = 0; i < NDP_OP_COUNT; i++)
        out->op[i] = p->op[i], out->flight[i] = p->flight[i];
    out->step = part->compute + part->communication + part->data, out->data = part->data;
}

/* All seconds of collectives, or of kernels. */
static double sum_of(const profile_sums *s, bool collectives) {
    double sum = 0;
    for (int i = 0; i < NDP_OP_COUNT; i++)
        sum += communicates(i) == collectives ? s->op[i] : 0;
    return sum;
}

/* From sums over all steps and ranks to seconds of one step of the mean rank. */
static void take_mean(profile_sums *s, double ranks, double steps) {
    for (int i = 0; i < NDP_OP_COUNT; i++) {
        s->op[i] /= ranks * steps, s->flight[i] /= ranks * steps;
        s->calls[i] /= ranks, s->moved[i] /= ranks;
    }
    s->step /= ranks * steps, s->data /= ranks * steps;
}

/* ---- the text, of at most 79 columns ---- */

static void add_share(ndp_str *out, const profile_sums *s, const char *name, double seconds, double calls) {
    ndp_str_addf(out, "  %-24s %6.1f%% %12.3f", name, 100 * seconds / s->step, 1e3 * seconds);
    if (calls > 0)
        ndp_str_addf(out, " %14.10g", round(10 * calls) / 10);
    ndp_str_add(out, "\n");
}

/* The kernel that takes the most time after `last` (NDP_NONE: of all); equal ones are in their order. */
static int next_op(const profile_sums *s, int last) {
    int next = NDP_NONE;
    for (int i = 0; i < NDP_OP_COUNT; i++) {
        bool later = last == NDP_NONE || s->op[i] < s->op[last] || (s->op[i] == s->op[last] && i > last);
        if (s->calls[i] > 0 && !communicates(i) && later && (next == NDP_NONE || s->op[i] > s->op[next]))
            next = i;
    }
    return next;
}

/* A row for each op from the longest on, one for all below 0.1% of all ops, and what is not an op. They sum to the
 * step. */
static void add_ops(ndp_str *out, const profile_sums *s) {
    const double sum = sum_of(s, false), least = 0.001 * sum, exposed = sum_of(s, true);
    char name[32];
    double small = 0;
    int n = 0;
    ndp_str_addf(out, "  %-24s %7s %12s %14s\n", "op", "share", "ms a step", "calls a step");
    for (int i = next_op(s, NDP_NONE); i != NDP_NONE; i = next_op(s, i)) {
        if (s->op[i] >= least)
            add_share(out, s, ndp_all_ops[i]->name, s->op[i], s->calls[i]);
        else
            small += s->op[i], n++;
    }
    snprintf(name, sizeof name, "%d more op%s", n, n == 1 ? "" : "s");
    if (n > 0)
        add_share(out, s, name, small, 0);
    if (exposed > 0)
        add_share(out, s, "exposed communication", exposed, 0);
    add_share(out, s, "loading data", s->data, 0);
    add_share(out, s, "between the ops", fmax(0, s->step - sum - exposed - s->data), 0);
}

static void add_collectives(ndp_str *out, const profile_sums *s, bool timed) {
    char bytes[16];
    bool any = false;
    for (int i = 0; i < NDP_OP_COUNT; i++) {
        if (!communicates(i) || s->calls[i] == 0)
            continue;
        if (!any)
            ndp_str_addf(out, "  %-16s %12s %11s %10s %10s %8s\n", "collective", "calls a step", "exposed ms",
                         "hidden ms", "sent", "GB/s");
        any = true;
        ndp_str_addf(out, "  %-16s %12.10g %11.3f ", ndp_all_ops[i]->name, round(10 * s->calls[i]) / 10,
                     1e3 * s->op[i]);
        ndp_human_bytes(s->moved[i], bytes);
        if (timed)
            ndp_str_addf(out, "%10.3f %10s %8.3f\n", 1e3 * fmax(0, s->flight[i] - s->op[i]), bytes,
                         s->flight[i] > 0 ? 1e-9 * s->moved[i] / s->flight[i] : 0);
        else
            ndp_str_addf(out, "%10s %10s %8s\n", "-", bytes, "-");
    }
}

/* works[r]: what rank r does in a step that is no wait for others, in seconds. */
static void add_slowest(ndp_str *out, const double *works, int ranks) {
    int slowest = 0;
    double sum = 0;
    for (int r = 0; r < ranks; r++) {
        slowest = works[r] > works[slowest] ? r : slowest;
        sum += works[r];
    }
    double rest = (sum - works[slowest]) / (ranks - 1);
    ndp_str_addf(out,
                 "  slowest: rank %d works %.3f ms of a step, the others %.3f ms (mean),\n"
                 "  so they wait %.3f ms for it\n",
                 slowest, 1e3 * works[slowest], 1e3 * rest, 1e3 * (works[slowest] - rest));
}

static char *write_text(const ndp_trainer *t, const profile_sums *s, int64_t steps, const double *works, int ranks) {
    ndp_str out = {0};
    bool host = t->rank.exec.device->host_memory;
    ndp_str_addf(&out, "profile: %lld step%s of %.3f ms", (long long)steps, steps == 1 ? "" : "s", 1e3 * s->step);
    if (ranks > 1)
        ndp_str_addf(&out, ", the mean of %d ranks", ranks);
    ndp_str_addf(&out, "\n  ops and exposed times by the clock of the %s\n", host ? "host" : "device");
    add_ops(&out, s);
    add_collectives(&out, s, host);
    if (!host && sum_of(s, true) > 0)
        ndp_str_add(&out, "  hidden times and rates are not measured: the host only submits to a queue\n");
    if (ranks > 1)
        add_slowest(&out, works, ranks);
    return ndp_str_detach(&out);
}

/* ---- all ranks ---- */

static ndp_status reduce_and_write(const ndp_trainer *t, const ndp_run_part *p, double *works, char **text) {
    profile_sums s = {0};
    int ranks = ndp_transport_world(t->rank.transport), rank = ndp_transport_rank(t->rank.transport);
    take_own(t, p, &s);
    double waits = p->communication + (t->rank.exec.device->host_memory ? 0 : sum_of(&s, true));
    works[rank] = (s.step - waits) / (double)p->steps;
    NDP_TRY(ndp_reduce_now(t->rank.world, &s, sizeof s / sizeof(double), NDP_F64, NDP_SUM));
    NDP_TRY(ndp_reduce_now(t->rank.world, works, ranks, NDP_F64, NDP_SUM));
    take_mean(&s, ranks, (double)p->steps);
    *text = rank == 0 ? write_text(t, &s, p->steps, works, ranks) : NULL;
    return ndp_agree(t->rank.world, rank != 0 || *text ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for a text"));
}

ndp_status ndp_trainer_profile(const ndp_trainer *t, const ndp_run_part *p, char **text) {
    int ranks = ndp_transport_world(t->rank.transport);
    *text = NULL;
    if (p->steps == 0)
        return NDP_OK;
    double *works = calloc((size_t)ranks, sizeof *works);
    ndp_status st = ndp_agree(
        t->rank.world, works ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for the times of %d ranks", ranks));
    if (st == NDP_OK)
        st = reduce_and_write(t, p, works, text);
    free(works);
    return st;
}
