/* ndp_verify: comparing layouts with one rank. Checks all runs and their memory first, then runs the job on one rank
 * (if the bounds are a spread, also with other cuts of the batch and other orders of sums), then on each layout. For a
 * layout that disagrees, it runs each of its axes alone. */
#include "verify/verify.h"

#include "base/clock.h"
#include "base/log.h"
#include "launch/memory_need.h"
#include "plan/job_memory.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 4096, LEAST_CUTS = 3, ONE_RANK_RUNS = 1 + NDP_SPREAD_RUNS };

typedef struct verification {
    const ndp_verify_opts *opts;
    ndp_verify_hook *alter;
    void *user;
    ndp_config config; /* the user's, without a layout */
    ndp_bounds bounds;
    ndp_outcome one; /* the first run: mixtures of experts choose in it, and all others are given its choices. With
                        moe.routes all are given those of the file */
} verification;

/* How a run is made: its layout, and for runs on one rank how sums are split (micro_batch 0: that of the job). */
typedef struct verify_way {
    ndp_layout layout;
    ndp_spread_run split;
} verify_way;

static const verify_way one_rank = {.layout = NDP_LAYOUT_ONE};

/* Prefixes the current error with the layout that it belongs to. */
static ndp_status of_layout(const char *layout, ndp_status st) {
    char message[1024];
    snprintf(message, sizeof message, "%s", ndp_error_message());
    return NDP_FAIL(st, "layout %s: %s", layout, message);
}

/* ---- one run ---- */

static ndp_status configure_way(const verification *v, const verify_way *w, ndp_config *out) {
    NDP_TRY(ndp_config_copy(&v->config, out));
    memcpy(out->parallelism.size, w->layout.size, sizeof w->layout.size);
    out->train.threads = 0;
    if (out->adapter.type != NDP_ADAPTER_NONE && !out->adapter.path)
        out->adapter.init = NDP_ADAPTER_RANDOM; /* with B 0, A has no gradient at step 1 */
    if (w->split.micro_batch)
        out->batch.micro_batch_size = w->split.micro_batch;
    if (w->split.fp32)
        out->precision.compute = out->precision.weights = NDP_F32;
    return NDP_OK;
}

/* The number of ranks of a layout, or MOST_RANKS + 1 if there are more. */
static int count_ranks(const ndp_layout *l) {
    int64_t product = 1;
    for (int axis = 0; axis < NDP_AXES && product <= MOST_RANKS; axis++)
        product *= l->size[axis];
    return product <= MOST_RANKS ? (int)product : MOST_RANKS + 1;
}

typedef struct verify_run {
    const verification *v;
    const ndp_config *config;
    ndp_rank_opts opts;
    ndp_outcome *out;
} verify_run;

static ndp_status record_run(const verify_run *r, ndp_trainer *t, bool keep, ndp_outcome *o) {
    if (r->v->alter)
        NDP_TRY(r->v->alter(r->v->user, t));
    NDP_TRY(ndp_outcome_init(o, t, r->v->opts->steps, keep));
    for (int s = 0; s < o->steps; s++)
        NDP_TRY(ndp_outcome_step(o, t));
    return NDP_OK;
}

static ndp_status run_rank(ndp_world *w, void *arg) {
    const verify_run *r = arg;
    bool keep = ndp_world_rank(w) == 0;
    ndp_trainer *t;
    ndp_outcome o = {0};
    NDP_TRY(ndp_trainer_open(r->config, w, &r->opts, &t));
    ndp_status st = record_run(r, t, keep, &o);
    ndp_trainer_destroy(t);
    if (st == NDP_OK && keep)
        *r->out = o;
    else
        ndp_outcome_release(&o);
    return st;
}

static ndp_status train_way(const verification *v, const verify_way *w, ndp_outcome *out) {
    ndp_config c;
    NDP_TRY(configure_way(v, w, &c));
    const ndp_rank_opts opts = {.split_place = w->split.split_place,
                                .given = v->one.routed.chosen && !c.moe.routes ? &v->one.routed : NULL,
                                .record = true,
                                .own_reference = (int64_t)v->opts->steps * c.batch.global_batch_size};
    ndp_status st = ndp_local_world(count_ranks(&w->layout), run_rank, &(verify_run){v, &c, opts, out});
    ndp_config_release(&c);
    return st;
}

/* ---- before anything runs ---- */

/* Checks that a run is possible, and raises *most to its memory, including the buffers that its ranks read tensors
 * into.
 */
static ndp_status check_way(const verification *v, const verify_way *w, int64_t *most) {
    ndp_config c;
    ndp_job j;
    int64_t bytes = 0;
    int ranks = count_ranks(&w->layout);
    NDP_CHECK(ranks <= MOST_RANKS, "verify runs every rank as a thread of this process, %d at most", MOST_RANKS);
    NDP_TRY(configure_way(v, w, &c));
    ndp_status st = ndp_job_init(&c, ranks, &j);
    if (st == NDP_OK) {
        j.model.routes = NDP_ROUTES_GIVEN | NDP_ROUTES_RECORDED;
        st = ndp_job_memory(&j, w->split.split_place, &bytes);
        bytes += ranks * j.spec.largest * (int64_t)sizeof(double);
        *most = bytes > *most ? bytes : *most;
        ndp_job_release(&j);
    }
    ndp_config_release(&c);
    return st;
}

/* Rows that stay together in a micro-batch: 2, those of a pair; else 1. */
static int rows_together(const ndp_config *c) { return c->data.format == NDP_RECORD_PREFERENCE ? 2 : 1; }

/* Lists the runs on one rank: the reference and, if the bounds are a spread, runs whose sums have other orders. */
static int list_references(const verification *v, verify_way ways[ONE_RANK_RUNS]) {
    ndp_spread_run runs[NDP_SPREAD_RUNS];
    int n = 0;
    ways[n++] = one_rank;
    if (v->bounds.spreads == 0)
        return n;
    int k = ndp_spread_runs(&v->bounds, v->config.batch.global_batch_size, rows_together(&v->config), runs);
    for (int i = 0; i < k; i++)
        if (runs[i].split_place || runs[i].fp32 || runs[i].micro_batch != v->config.batch.micro_batch_size)
            ways[n++] = (verify_way){one_rank.layout, runs[i]};
    return n;
}

static ndp_status check_spread(const verification *v) {
    int batch = v->config.batch.global_batch_size, together = rows_together(&v->config);
    int sizes[NDP_SPREAD_CUTS], n = ndp_spread_cuts(batch, together, sizes);
    NDP_CHECK(v->bounds.spreads == 0 || n >= LEAST_CUTS,
              "the bounds for bf16 and for some optimizers come from runs on one rank that split the global batch in "
              "at least %d ways; "
              "%d sample%s can be split in %d: set batch.global_batch_size to a multiple of %d",
              LEAST_CUTS, batch, batch == 1 ? "" : "s", n, 4 * together);
    return NDP_OK;
}

static void say_notes(const verification *v, const ndp_job *j) {
    ndp_str notes = {0};
    ndp_job_notes(j, &notes);
    char *rest = notes.data;
    for (char *line; (line = strsep(&rest, "\n")) && *line;)
        ndp_say(v->opts->say, v->opts->user, "%s", line);
    ndp_str_release(&notes);
}

/* What is kept of a run. */
static ndp_status outcome_bytes(const verification *v, const ndp_job *j, int64_t *out) {
    ndp_model m;
    NDP_TRY(ndp_model_build(&j->spec, &j->model, &m));
    int64_t rows = (int64_t)v->config.batch.global_batch_size * v->config.data.sequence_length;
    *out = ndp_outcome_bytes(j->spec.parameters, j->model.master) +
           ndp_choices_bytes(v->opts->steps, &m.inputs->mixtures, rows);
    ndp_model_release(&m);
    return NDP_OK;
}

static ndp_status check_memory(const verification *v, int64_t run_bytes, int outcomes) {
    ndp_job j;
    ndp_config c;
    int64_t kept = 0;
    char need[16], have[16];
    NDP_TRY(configure_way(v, &one_rank, &c));
    ndp_status st = ndp_job_init(&c, 1, &j);
    if (st == NDP_OK) {
        st = outcome_bytes(v, &j, &kept);
        say_notes(v, &j);
        ndp_job_release(&j);
    }
    ndp_config_release(&c);
    NDP_TRY(st);
    const ndp_memory_need n = {.rank = run_bytes,
                               .ranks = 1,
                               .mapped = 1,
                               .besides = outcomes * kept,
                               .what = "verify",
                               .less = "All ranks are in this process, and the gradients and weights of two or more "
                                       "runs are kept. Verify a smaller model of the same kind, or lower "
                                       "batch.micro_batch_size or data.sequence_length"};
    static const ndp_log log = {NDP_LOG_INFO, 0};
    NDP_TRY(ndp_memory_check(&n, v->config.train.force_memory, &log));
    ndp_say(v->opts->say, v->opts->user, "memory: at most %s, %s available",
            ndp_human_bytes((double)ndp_memory_of_host(&n), need),
            ndp_human_bytes((double)ndp_memory_available(), have));
    return NDP_OK;
}

static ndp_status check_all(const verification *v, ndp_layout *layouts) {
    verify_way references[ONE_RANK_RUNS];
    int n = list_references(v, references);
    int64_t most = 0;
    for (int i = 0; i < v->opts->n; i++)
        NDP_TRY(ndp_layout_parse(v->opts->layouts[i], &layouts[i]));
    NDP_TRY(check_way(v, &one_rank, &most));
    NDP_TRY(check_spread(v));
    for (int i = 1; i < n; i++)
        NDP_TRY(check_way(v, &references[i], &most));
    for (int i = 0; i < v->opts->n; i++) {
        ndp_status st = check_way(v, &(verify_way){.layout = layouts[i]}, &most);
        if (st != NDP_OK)
            return of_layout(v->opts->layouts[i], st);
    }
    return check_memory(v, most, n > 2 ? n : 2);
}

/* ---- one rank ---- */

static ndp_status check_finite(const ndp_outcome *o) {
    for (int s = 0; s < o->steps; s++)
        NDP_CHECK(isfinite(o->loss[s]) && isfinite(o->norm[s]),
                  "on one rank the loss of step %d is %g and the gradient norm %g: there is nothing to compare with. "
                  "Lower optimizer.lr, or --steps",
                  s + 1, o->loss[s], o->norm[s]);
    return NDP_OK;
}

static ndp_status run_reference(const verification *v, const verify_way *w, ndp_outcome *out) {
    char how[64] = "";
    double start = ndp_now();
    if (w->split.micro_batch)
        snprintf(how, sizeof how, ", micro batch %d%s%s", w->split.micro_batch,
                 w->split.split_place ? ", split sums" : "", w->split.fp32 ? ", fp32" : "");
    NDP_TRY(train_way(v, w, out));
    ndp_say(v->opts->say, v->opts->user, "one rank%s: %d step%s in %.1f s, last loss %.4f", how, out->steps,
            out->steps == 1 ? "" : "s", ndp_now() - start, out->loss[out->steps - 1]);
    return check_finite(out);
}

static ndp_status run_references(verification *v) {
    verify_way ways[ONE_RANK_RUNS];
    ndp_outcome runs[ONE_RANK_RUNS] = {{0}};
    int n = list_references(v, ways);
    ndp_status st = run_reference(v, &ways[0], &runs[0]);
    v->one = runs[0];
    for (int i = 1; i < n && st == NDP_OK; i++)
        st = run_reference(v, &ways[i], &runs[i]);
    if (st == NDP_OK && n > 1)
        st = ndp_bounds_measure(&v->bounds, runs, n);
    for (int i = 1; i < n; i++)
        ndp_outcome_release(&runs[i]);
    return st;
}

/* ---- layouts ---- */

static ndp_status compare_layout(const verification *v, const ndp_layout *l, ndp_difference *d) {
    ndp_outcome o = {0};
    NDP_TRY(train_way(v, &(verify_way){.layout = *l}, &o));
    ndp_status st = ndp_outcome_compare(&o, &v->one, &v->bounds, d);
    ndp_outcome_release(&o);
    return st;
}

/* Runs each axis of a disagreeing layout alone, to find the one that causes it. */
static ndp_status find_axis(const verification *v, const ndp_layout *l, ndp_str *out) {
    int axes = 0, disagree = 0;
    for (int axis = 0; axis < NDP_AXES; axis++)
        axes += l->size[axis] > 1;
    for (int axis = 0; axis < NDP_AXES; axis++) {
        if (l->size[axis] == 1)
            continue;
        verify_way alone = one_rank;
        int64_t bytes = 0;
        char words[768];
        ndp_difference d;
        alone.layout.size[axis] = l->size[axis];
        ndp_str_addf(out, "; %s=%d ", ndp_axis_name((ndp_axis)axis), l->size[axis]);
        if (axes == 1) {
            ndp_str_add(out, "is its only axis");
            return NDP_OK;
        }
        if (check_way(v, &alone, &bytes) != NDP_OK) {
            ndp_str_add(out, "cannot be run alone");
            continue;
        }
        NDP_TRY(compare_layout(v, &alone.layout, &d));
        bool agrees = !ndp_difference_words(&d, words, sizeof words);
        disagree += !agrees;
        ndp_str_addf(out, "alone %s", agrees ? "agrees" : "also disagrees");
        ndp_say(v->opts->say, v->opts->user, "  %s=%d alone: %s", ndp_axis_name((ndp_axis)axis), l->size[axis],
                agrees ? "agrees" : words);
    }
    if (axes > 1 && disagree == 0)
        ndp_str_add(out, ": the combination disagrees");
    return NDP_OK;
}

static ndp_status explain_verdict(const verification *v, const ndp_layout *l, const ndp_difference *d,
                                  ndp_verdict *out) {
    ndp_str text = {0};
    (void)ndp_difference_words(d, out->words, sizeof out->words);
    ndp_str_add(&text, out->words);
    ndp_status st = find_axis(v, l, &text);
    if (st == NDP_OK && text.failed)
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory for a text");
    if (st == NDP_OK)
        snprintf(out->words, sizeof out->words, "%s", text.data);
    ndp_str_release(&text);
    return st;
}

static ndp_status judge_layout(const verification *v, const char *name, const ndp_layout *l, ndp_verdict *out) {
    char words[768];
    ndp_difference d;
    double start = ndp_now();
    *out = (ndp_verdict){.ranks = count_ranks(l)};
    NDP_TRY(compare_layout(v, l, &d));
    out->seconds = ndp_now() - start;
    memcpy(out->of, d.of, sizeof out->of);
    memcpy(out->listed, d.listed, sizeof out->listed);
    out->choices = d.choices, out->flips = d.flips, out->n_listed = d.n_listed;
    out->agrees = !ndp_difference_words(&d, words, sizeof words);
    ndp_say(v->opts->say, v->opts->user, "%s: %d rank%s, %.1f s, %s%s", name, out->ranks, out->ranks == 1 ? "" : "s",
            out->seconds, out->agrees ? "agrees" : "disagrees: ", out->agrees ? "" : words);
    return out->agrees ? NDP_OK : explain_verdict(v, l, &d, out);
}

static ndp_status verify_layouts(verification *v, ndp_verdict *verdicts) {
    ndp_layout *layouts = calloc((size_t)v->opts->n, sizeof *layouts);
    NDP_CHECK_MEMORY(layouts, "for %d layouts", v->opts->n);
    ndp_status st = check_all(v, layouts);
    if (st == NDP_OK)
        st = run_references(v);
    for (int i = 0; i < v->opts->n && st == NDP_OK; i++)
        st = judge_layout(v, v->opts->layouts[i], &layouts[i], &verdicts[i]);
    free(layouts);
    return st;
}

ndp_status ndp_verify_check_threads(const ndp_config *c) {
    const char *transport = c->train.transport;
    NDP_CHECK(strcmp(transport, "auto") == 0 || strcmp(transport, "local") == 0,
              "train.transport %s: verify runs its ranks as threads of one process; use local or auto", transport);
    return NDP_OK;
}

/* Overrides settings of the job that verify cannot use. */
static void override_settings(verification *v) {
    ndp_config *c = &v->config;
    c->train.ranks = 0;
    c->train.share_gpu = true;
    c->train.own_batches = false;
    if (c->batch.micro_batch_size == 0) /* auto: the runs share this process's memory, and any size gives the same */
        c->batch.micro_batch_size = ndp_config_least_rows(c);
    double most_lr = ndp_updates_bounds_of(c).most_lr;
    if (c->optimizer.lr > most_lr) {
        ndp_say(v->opts->say, v->opts->user, "optimizer.lr %g is lowered to %g, up to which the bounds hold",
                c->optimizer.lr, most_lr);
        c->optimizer.lr = most_lr;
    }
}

ndp_status ndp_verify_altered(const ndp_config *c, const ndp_verify_opts *o, ndp_verify_hook *alter, void *user,
                              ndp_verdict *verdicts) {
    verification v = {.opts = o, .alter = alter, .user = user, .bounds = ndp_bounds_of(c)};
    NDP_CHECK(o->n >= 1, "no layout to verify; name one, such as dp_shard=4,tp=2");
    NDP_CHECK(o->steps >= 1 && o->steps <= NDP_VERIFY_STEPS, "%d steps; give 1 to %d, for which the bounds hold",
              o->steps, NDP_VERIFY_STEPS);
    NDP_TRY(ndp_verify_check_threads(c));
    NDP_TRY(ndp_device_check(c));
    NDP_TRY(ndp_config_copy(c, &v.config));
    override_settings(&v);
    ndp_status st = verify_layouts(&v, verdicts);
    ndp_outcome_release(&v.one);
    ndp_bounds_release(&v.bounds);
    ndp_config_release(&v.config);
    return st;
}

ndp_status ndp_verify(const ndp_config *c, const ndp_verify_opts *o, ndp_verdict *verdicts) {
    NDP_NOT_NULL(c, o, verdicts);
    if (o->n)
        NDP_NOT_NULL(o->layouts);
    return ndp_verify_altered(c, o, NULL, NULL, verdicts);
}
