/* Two steps of a world on threads, as it is or mutated: losses, norms, gradients, weights. */
#ifndef TESTS_PLACEMENT_RUNS_H
#define TESTS_PLACEMENT_RUNS_H

#include "placement/mutations.h"
#include "placement/worlds.h"
#include "step/engine_parts.h"
#include "weights/packed_weights.h"
#include <math.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RUN_STEPS = 2, RUN_NUMBERS = 3 + NDP_PAIR_SUMS };

/* Of one rank: its pieces of the first gradient, and of the weights at the end. */
typedef struct rank_result {
    double numbers[RUN_STEPS][RUN_NUMBERS]; /* loss, norm, tokens, sums of pairs */
    double *values[2];
    int64_t n[2];
} rank_result;

/* Changes the program of a rank; false: it has not what is changed. */
typedef bool run_edit(const void *how, ndp_program *p, journal *j);

typedef struct world_run {
    const planned *w;
    run_edit *edit; /* NULL: none */
    const void *how;
    ndp_groups groups;    /* that the edit may name, beside those of the program */
    rank_result *results; /* by rank */
} world_run;

/* Appends what this rank owns, without padding. */
static inline void take_values(const ndp_engine *e, ndp_owned_kind kind, double **values, int64_t *n) {
    const ndp_model *m = ndp_engine_model(e);
    int64_t capacity = 0;
    for (int i = 0; i < m->n_buffers; i++) {
        const ndp_shard *s = ndp_engine_shard(e, i);
        ndp_run p;
        for (int64_t at = 0;
             ndp_engine_has(e, kind, i) && ndp_segments_run(&m->buffers[i].segments, s->shards, s->index, &at, &p);) {
            CHECK_OK(ndp_array_reserve(values, &capacity, *n + p.count, sizeof **values));
            CHECK_OK(ndp_engine_read(e, kind, i, p.slice_first, p.count, p.stride, *values + *n));
            *n += p.count;
        }
    }
}

/* Groups that the program did not name have no communicators yet. */
static inline ndp_status connect_groups(ndp_engine *e, ndp_transport *t, ndp_groups groups) {
    for (int channel = 0; channel < NDP_CHANNEL_FORWARD; channel++) {
        ndp_group_kind group = ndp_channel_group(channel);
        if (groups & NDP_GROUP_BIT(group) && !e->comms[channel])
            NDP_TRY(ndp_comm_create(t, ndp_mesh_group(&e->opts.step.mesh, group), ndp_channel_name(channel),
                                    &e->comms[channel]));
    }
    return NDP_OK;
}

/* One micro-batch, whole: two documents. Samples differ in all that a batch has: tokens, where the documents meet, how
 * many labels are ignored. */
static inline void world_batch(ndp_engine *e, int micro_batch, int64_t sample) {
    enum { MOST = 64 };
    int32_t tokens[MOST], labels[MOST], positions[MOST], starts[MOST], documents[MOST], keys[MOST];
    double reference[MOST];
    int64_t rows = ndp_engine_whole(e)->opts.rows, cut = 1 + sample * 5 % (rows - 2);
    uint64_t vocab = (uint64_t)ndp_engine_whole(e)->buffers[0].segments.items[0].rows; /* of the embedding */
    for (int64_t t = 0; t < rows; t++) {
        tokens[t] = (int32_t)ndp_rng_below(11, 1, (uint64_t)(sample * rows + t), vocab);
        labels[t] = (t + sample) % 7 < 2 ? -1 : (int32_t)ndp_rng_below(11, 2, (uint64_t)(sample * rows + t), vocab);
        starts[t] = (int32_t)(t < cut ? 0 : cut);
        positions[t] = (int32_t)(t - starts[t]);
        keys[t] = (int32_t)ndp_rng_below(11, 3, (uint64_t)(sample * rows + t), INT32_MAX);
    }
    if (ndp_engine_whole(e)->opts.preference.kind)
        tiny_pairs_fill(ndp_engine_whole(e), sample, tokens, labels, positions, starts, documents, reference);
    CHECK_OK(ndp_engine_load(e, micro_batch,
                             &(ndp_micro_batch){.tokens = tokens,
                                                .labels = labels,
                                                .positions = positions,
                                                .starts = starts,
                                                .rows = rows,
                                                .keys = keys,
                                                .documents = documents,
                                                .reference = reference}));
}

static inline ndp_status run_steps(ndp_engine *e, const world_run *r, rank_result *out) {
    const ndp_mesh *mesh = &e->opts.step.mesh;
    ndp_group data = ndp_mesh_group(mesh, NDP_GROUP_DATA);
    for (int u = 0; u < RUN_STEPS; u++) {
        ndp_step_result s;
        for (int m = 0; m < r->w->way.micro_batches; m++)
            world_batch(e, m, (u * r->w->way.micro_batches + m) * data.count + data.rank);
        NDP_TRY(ndp_engine_step(e, 1e-2, u, true, &s));
        out->numbers[u][0] = s.loss, out->numbers[u][1] = s.grad_norm, out->numbers[u][2] = (double)s.tokens;
        if (r->w->way.pairs)
            memcpy(&out->numbers[u][3], s.sums, sizeof s.sums);
        if (u == 0)
            take_values(e, NDP_OWNED_GRAD, &out->values[0], &out->n[0]);
    }
    take_values(e, NDP_OWNED_MASTER, &out->values[1], &out->n[1]);
    return NDP_OK;
}

static inline ndp_status read_random(void *user, const ndp_segment *s, int64_t first, int64_t count, void *out) {
    float values[8192];
    ndp_rng_normal(7, ndp_rng_stream(s->name), (uint64_t)first, count, 0.3, values);
    ndp_convert(values, NDP_F32, out, ((const ndp_model *)user)->opts.master, count);
    return NDP_OK;
}

static inline ndp_status run_rank(ndp_transport *t, void *arg) {
    const world_run *r = arg;
    int rank = ndp_transport_rank(t);
    ndp_engine_opts o = world_opts(r->w, rank);
    ndp_engine *e;
    journal j = {0};
    void *scratch = NULL;
    o.transport = t;
    NDP_TRY(ndp_engine_create(&o, &e));
    tiny_fill(e);
    NDP_TRY(ndp_engine_pack(e, read_random, NULL, &e->model));
    NDP_TRY(connect_groups(e, t, r->groups));
    int blocks = e->program.n_blocks;
    if (r->edit)
        r->edit(r->how, &e->program, &j);
    if (e->program.n_blocks > blocks) /* there is one address more */
        e->addresses[blocks] = scratch = calloc(1, e->program.blocks[blocks].bytes);
    ndp_status st = run_steps(e, r, &r->results[rank]);
    journal_undo(&j);
    ndp_engine_destroy(e);
    free(scratch);
    return st;
}

/* The results of all ranks. */
static inline rank_result *run_edited(const planned *w, run_edit *edit, const void *how, ndp_groups groups,
                                      ndp_status *status) {
    world_run r = {w, edit, how, groups, calloc((size_t)world_size(&w->way.layout), sizeof(rank_result))};
    *status = ndp_local_world(world_size(&w->way.layout), run_rank, &r);
    return r.results;
}

static inline rank_result *run_world(const planned *w, ndp_status *status) {
    return run_edited(w, NULL, NULL, 0, status);
}

static inline bool run_mutation(const void *how, ndp_program *p, journal *j) { return mutation_apply(how, p, j); }

static inline void run_release(const planned *w, rank_result *r) {
    for (int i = 0; r && i < world_size(&w->way.layout); i++) {
        free(r[i].values[0]);
        free(r[i].values[1]);
    }
    free(r);
}

static inline double run_distance(const double *a, const double *b, int64_t n) {
    double d = 0, norm = 0;
    for (int64_t i = 0; i < n; i++)
        d += (a[i] - b[i]) * (a[i] - b[i]), norm += b[i] * b[i];
    return d == 0 ? 0 : sqrt(d / norm);
}

/* How far apart two runs of a world are, relative; infinite if one has something else. */
static inline double run_difference(const planned *w, const rank_result *a, const rank_result *b) {
    double worst = 0;
    for (int i = 0; i < world_size(&w->way.layout); i++) {
        for (int k = 0; k < 2; k++) {
            if (a[i].n[k] != b[i].n[k])
                return INFINITY;
            double d = run_distance(a[i].values[k], b[i].values[k], a[i].n[k]);
            worst = d <= worst ? worst : isnan(d) ? INFINITY : d;
        }
        for (int k = 0; k < RUN_STEPS * RUN_NUMBERS; k++) {
            double x = a[i].numbers[k / RUN_NUMBERS][k % RUN_NUMBERS],
                   y = b[i].numbers[k / RUN_NUMBERS][k % RUN_NUMBERS];
            double d = x == y ? 0 : fabs(x / y - 1);
            worst = d <= worst ? worst : isnan(d) ? INFINITY : d;
        }
    }
    return worst;
}

/* What a mutant does: it gives what the original gives, something else, or nothing (a crash, or no end). */
typedef enum run_verdict { RUN_SAME, RUN_DIFFERS, RUN_FAILS } run_verdict;

/* In a process of its own, which may crash. */
static inline run_verdict run_mutant(const planned *w, const mutation *m, const rank_result *original) {
    enum { SECONDS = 100 };
    int state = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        ndp_status st;
        alarm(SECONDS);
        ndp_groups groups = m->kind == MUTATION_GROUP ? NDP_GROUP_BIT(m->which) : 0;
        rank_result *r = run_edited(w, run_mutation, m, groups, &st);
        _exit(st != NDP_OK ? RUN_FAILS : run_difference(w, r, original) <= 1e-9 ? RUN_SAME : RUN_DIFFERS);
    }
    assert_true(child > 0 && waitpid(child, &state, 0) == child);
    return WIFEXITED(state) && WEXITSTATUS(state) <= RUN_FAILS ? (run_verdict)WEXITSTATUS(state) : RUN_FAILS;
}

/* Of the processor, by this process and those that it has waited for. */
static inline double used_seconds(void) {
    double seconds = 0;
    for (int k = 0; k < 2; k++) {
        struct rusage u;
        getrusage(k ? RUSAGE_CHILDREN : RUSAGE_SELF, &u);
        seconds +=
            (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    }
    return seconds;
}

#endif
