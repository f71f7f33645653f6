/* One rank of a run: its engines and its steps. A step loads the batches, runs the engine and allocates nothing. */
#include "train/trainer.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/json.h"
#include "checkpoint/agree.h"
#include "plan/job_memory.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- engine ---- */

static ndp_status build_engine(ndp_trainer *t) {
    NDP_TRY(ndp_model_build(&t->rank.job.spec, &t->rank.job.model, &t->model));
    ndp_engine_opts o;
    NDP_TRY(ndp_job_engine(&t->rank.job, ndp_transport_rank(t->rank.transport), &t->rank.exec, &o));
    o.model = &t->model;
    o.transport = t->rank.transport;
    NDP_TRY(ndp_feed_open_choices(&t->rank.feed, &t->model));
    NDP_TRY(ndp_engine_create(&o, &t->engine));
    ndp_weight_sources from = ndp_job_weights(&t->rank.job);
    NDP_TRY(ndp_weights_start(t->engine, &from));
    return ndp_is_first(t->rank.world) ? ndp_rank_hash_unsaved(&t->rank) : NDP_OK;
}

/* Lists the tensors of the model. Members of patterns have names of their own. */
static ndp_status list_tensors(ndp_trainer *t) {
    t->tensors = ndp_arena_alloc(&t->model.arena, (size_t)ndp_tensor_count(&t->model) * sizeof *t->tensors);
    for (ndp_tensor_walk w = {.segments.model = &t->model}; t->tensors && ndp_tensor_next(&w);) {
        t->tensors[t->n_tensors] = w.tensor;
        if (!(t->tensors[t->n_tensors++].name = ndp_tensor_keep_name(&w, &t->model.arena)))
            return NDP_FAIL(NDP_ENOMEM, "not enough memory for the names of the model's tensors");
    }
    return NDP_MEMORY(t->tensors, "for the names of the model's tensors");
}

static ndp_status build_engines(ndp_trainer *t) {
    NDP_TRY(build_engine(t));
    NDP_TRY(list_tensors(t));
    NDP_TRY(ndp_trainer_open_loads(t));
    return ndp_score_build(&t->score, &t->rank, t->engine);
}

/* Of a loop of the user's own, which may never ask for ndp_trainer_describe. */
static void say_notes(const ndp_trainer *t) {
    ndp_str note = {0};
    if (ndp_is_first(t->rank.world)) {
        ndp_str_add(&note, t->rank.job.chosen);
        ndp_job_note_bubble(&t->rank.job, &note);
    }
    if (note.length > 0)
        ndp_info(&t->rank.log, "%.*s", (int)note.length - 1, note.data);
    ndp_str_release(&note);
}

ndp_status ndp_trainer_create(const ndp_config *c, ndp_world *w, ndp_trainer **out) {
    NDP_NOT_NULL(c, w, out);
    NDP_TRY(ndp_trainer_open(c, w, &(ndp_rank_opts){0}, out));
    say_notes(*out);
    return NDP_OK;
}

ndp_status ndp_trainer_open(const ndp_config *c, ndp_world *w, const ndp_rank_opts *o, ndp_trainer **out) {
    ndp_trainer *t = calloc(1, sizeof *t);
    NDP_CHECK_MEMORY(t, "for a trainer");
    ndp_status st = ndp_rank_open(c, w, o, &t->rank);
    if (st == NDP_OK)
        st = ndp_agree(t->rank.world, build_engines(t));
    if (st == NDP_OK)
        st = ndp_rank_prove_again(&t->rank, t->engine);
    if (st == NDP_OK && !o->run) /* a run first compares itself with its checkpoint (save.c) */
        st = ndp_score_find_references(&t->score);
    if (st != NDP_OK) {
        ndp_trail_add(__FILE__, __LINE__);
        ndp_trainer_destroy(t);
        return st;
    }
    *out = t;
    return NDP_OK;
}

void ndp_trainer_destroy(ndp_trainer *t) {
    if (!t)
        return;
    (void)ndp_trainer_drop_save(t);
    ndp_score_destroy(&t->score); /* before the engine */
    ndp_engine_destroy(t->engine);
    ndp_model_release(&t->model);
    ndp_peak_destroy(t->peak.own);
    ndp_trainer_close_lines(t);
    free(t->state.data);
    free(t->loads);
    free(t->rounds);
    json_object_put(t->accepted);
    ndp_rank_close(&t->rank);
    free(t);
}

/* ---- steps ---- */

static int data_rank(const ndp_trainer *t) {
    return ndp_mesh_group(&ndp_engine_program(t->engine)->opts.step.mesh, NDP_GROUP_DATA).rank;
}

void ndp_trainer_draw_rows(ndp_trainer *t, int m) {
    ndp_feed_draw(&t->rank.feed, t->updates, t->samples, m, data_rank(t));
}

static ndp_status load_batches(ndp_trainer *t) {
    for (int m = 0; m < t->rank.job.batch.accumulation; m++) {
        ndp_trainer_draw_rows(t, m);
        NDP_TRY(ndp_feed_load(&t->rank.feed));
        ndp_trainer_note_inputs(t, m);
        NDP_TRY(ndp_engine_load(t->engine, m, &t->rank.feed.whole));
    }
    return NDP_OK;
}

static int warmup_of(const ndp_config *c, int steps) {
    double share = c->schedule.warmup_ratio * steps;
    if (share <= 0)
        return c->schedule.warmup_steps;
    int warmup = (int)(c->schedule.like == NDP_LR_LIKE_TRANSFORMERS ? ceil(share) : share);
    return warmup == 1 && c->schedule.like == NDP_LR_LIKE_AXOLOTL ? 2 : warmup;
}

double ndp_trainer_lr(const ndp_config *c, int steps, int64_t update) {
    int warmup = warmup_of(c, steps);
    ndp_lr_schedule s = {c->schedule.name,        c->optimizer.lr,    c->schedule.min_lr_ratio,      warmup, steps,
                         c->schedule.decay_ratio, c->schedule.cycles, c->schedule.like};
    return ndp_lr_of(&s, update);
}

/* Means over pairs; of single answers, over those that are wanted, or not, and NaN where there are none. `point`: what
 * they were compared with. */
static ndp_pair_metrics pair_metrics_of(const ndp_trainer *t, const ndp_step_result *r, double point) {
    bool single = ndp_preference_table[t->rank.job.model.preference.kind].single;
    const double *s = r->sums;
    double counted = round(s[NDP_PAIR_ACCURACY]), pairs = (double)r->pairs;
    double chosen = single ? counted : pairs, rejected = single ? pairs - counted : pairs;
    double by_chosen = single || pairs > 0 ? 1 / chosen : 0, by_rejected = single || pairs > 0 ? 1 / rejected : 0;
    ndp_pair_metrics m = {.pairs = r->pairs,
                          .reward_chosen = by_chosen * s[NDP_PAIR_REWARD_CHOSEN],
                          .reward_rejected = by_rejected * s[NDP_PAIR_REWARD_REJECTED],
                          .accuracy = single ? NAN : by_chosen * counted,
                          .logp_chosen = by_chosen * s[NDP_PAIR_LOGP_CHOSEN],
                          .logp_rejected = by_rejected * s[NDP_PAIR_LOGP_REJECTED],
                          .kl = single ? point : NAN};
    m.margin = m.reward_chosen - m.reward_rejected;
    m.nll = r->nll_tokens > 0 ? s[NDP_PAIR_NLL] / (double)r->nll_tokens : NAN;
    return m;
}

/* Peak resident memory of this process, bytes. */
static int64_t peak_memory(void) {
    long long kib = 0;
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %lld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib * 1024;
}

bool ndp_trainer_needs_weights(const ndp_trainer *t) {
    return ndp_preference_table[t->rank.job.model.preference.kind].single == NDP_SINGLE_TO_POINT;
}

ndp_status ndp_trainer_prepare_next(ndp_trainer *t) {
    t->loading = ndp_now();
    NDP_TRY(ndp_score_find_point(&t->score, t->samples));
    t->point = t->rank.feed.point;
    return NDP_OK;
}

ndp_status ndp_trainer_load_next(ndp_trainer *t) {
    t->loading = ndp_trainer_needs_weights(t) ? t->loading : ndp_now();
    ndp_status st = load_batches(t);
    t->loaded = ndp_now();
    return st;
}

ndp_status ndp_trainer_submit_loaded(ndp_trainer *t) {
    NDP_TRY(ndp_trainer_agree_on_inputs(t));
    double submitted = ndp_now(), lr = ndp_trainer_lr(t->rank.job.config, t->rank.data.steps, t->updates);
    ndp_status st = ndp_engine_submit(
        t->engine, &(ndp_step_input){.lr = lr, .update = t->updates, .update_weights = !t->late_update});
    t->rank.apart |= st != NDP_OK;
    NDP_TRY(st);
    t->pending.of[t->pending.n].start = t->loading;
    t->pending.of[t->pending.n].loaded = t->loaded;
    t->pending.of[t->pending.n++].submitted = submitted;
    t->updates++;
    t->samples += t->rank.feed.shape.global;
    return NDP_OK;
}

ndp_status ndp_trainer_submit(ndp_trainer *t) {
    NDP_TRY(ndp_trainer_prepare_next(t));
    NDP_TRY(ndp_trainer_load_next(t));
    return ndp_trainer_submit_loaded(t);
}

/* Sets what the oldest pending step took, and forgets it. A step that was submitted early takes its time from the
 * result before it, and what happened before that cost nothing. */
static void take_seconds(ndp_trainer *t, ndp_metrics *m) {
    const ndp_profile *p = ndp_engine_profile(t->engine);
    double now = ndp_now(), start = fmax(t->pending.of[0].start, t->pending.last),
           loaded = fmax(t->pending.of[0].loaded, start), submitted = fmax(t->pending.of[0].submitted, loaded),
           waits = p->begin + p->wait;
    m->step_seconds = now - start;
    m->data_seconds = loaded - start;
    if (t->rank.exec.device->host_memory)
        m->communication_seconds = submitted - loaded + waits - t->pending.waits;
    m->compute_seconds = m->step_seconds - m->data_seconds - m->communication_seconds;
    t->pending.last = now;
    t->pending.waits = waits;
    memmove(t->pending.of, t->pending.of + 1, (size_t)--t->pending.n * sizeof *t->pending.of);
}

double ndp_trainer_epoch(const ndp_trainer *t) {
    int64_t samples = t->samples - t->pending.n * t->rank.feed.shape.global, rows = t->rank.data.sampler.rows;
    return rows > 0 ? (double)samples / (double)rows : 0;
}

static void take_progress(ndp_trainer *t, int64_t tokens, ndp_metrics *m) {
    const ndp_job *job = &t->rank.job;
    t->tokens += t->tokens >= 0 ? tokens : 0;
    m->tokens_total = t->tokens > 0 ? t->tokens : 0;
    m->epoch = ndp_trainer_epoch(t);
    m->time = ndp_time();
    m->tokens_per_second = (double)tokens / m->step_seconds;
    m->peak_flops = t->peak.flops;
    if (t->peak.flops > 0)
        m->mfu = 6.0 * (double)job->spec.parameters * m->tokens_per_second / t->peak.flops;
}

ndp_status ndp_trainer_result(ndp_trainer *t, ndp_metrics *out) {
    ndp_step_result r;
    int64_t update = t->updates - t->pending.n;
    ndp_status st = ndp_engine_result(t->engine, &r);
    t->rank.apart |= st != NDP_OK;
    NDP_TRY(st);
    if (update == 0 && ndp_trainer_checks_policy(t))
        NDP_TRY(ndp_trainer_check_policy(t));
    *out = (ndp_metrics){.step = update + 1,
                         .loss = r.loss,
                         .grad_norm = r.grad_norm,
                         .lr = ndp_trainer_lr(t->rank.job.config, t->rank.data.steps, update),
                         .tokens = r.tokens,
                         .pair = pair_metrics_of(t, &r, t->point),
                         .balance_loss = r.balance,
                         .z_loss = r.z_loss,
                         .peak_memory_bytes = peak_memory(),
                         .eval_loss = NAN};
    take_seconds(t, out);
    take_progress(t, r.tokens, out);
    t->newest = *out;
    ndp_trainer_take_loads(t, &r, out);
    t->newest.max_load = out->max_load, t->newest.load_entropy = out->load_entropy;
    return ndp_trainer_take_rounds(t, out);
}

ndp_status ndp_trainer_late_update(ndp_trainer *t) {
    int64_t update = t->updates - 1;
    double lr = ndp_trainer_lr(t->rank.job.config, t->rank.data.steps, update);
    ndp_status st = ndp_engine_update(t->engine, &(ndp_step_input){.lr = lr, .update = update, .update_weights = true});
    t->rank.apart |= st != NDP_OK;
    return st;
}

ndp_status ndp_trainer_count_back(ndp_trainer *t, int64_t step, bool *whole) {
    *whole = true;
    while (t->pending.n > 0) {
        ndp_metrics later;
        NDP_TRY(ndp_trainer_result(t, &later));
        *whole &= !(isfinite(later.loss) && isfinite(later.grad_norm));
    }
    t->samples -= (t->updates - step) * t->rank.feed.shape.global;
    t->updates = step;
    return NDP_OK;
}

ndp_status ndp_trainer_step(ndp_trainer *t, ndp_metrics *out) {
    ndp_metrics unread;
    NDP_NOT_NULL(t);
    NDP_CHECK(!t->rank.job.config->train.own_batches,
              "train.own_batches is true, so this trainer has no batches of its own: call ndp_trainer_begin, "
              "ndp_trainer_forward_backward and ndp_trainer_update");
    NDP_TRY(ndp_trainer_submit(t));
    return ndp_trainer_result(t, out ? out : &unread);
}

int64_t ndp_trainer_updates(const ndp_trainer *t) { return t ? t->updates : 0; }

void ndp_trainer_describe_kernels(const ndp_trainer *t, ndp_str *out) {
    ndp_str_addf(out, "kernels: %s",
                 t->rank.exec.device->variant ? t->rank.exec.device->variant() : t->rank.exec.device->name);
    if (t->model.opts.compute == NDP_BF16 && t->rank.exec.device->variant)
        ndp_str_addf(out, "; products of bf16 %s", ndp_cpu_bf16_way_text());
    ndp_str_add(out, "\n");
}

ndp_status ndp_trainer_describe(const ndp_trainer *t, char **text) {
    NDP_NOT_NULL(t, text);
    ndp_str s = {0};
    char bytes[16], pinned[48] = "";
    ndp_engine_memory own = ndp_engine_memory_of(t->engine), score = {0};
    if (t->score.engine)
        score = ndp_engine_memory_of(t->score.engine);
    ndp_job_describe(&t->rank.job, &s);
    if (!t->rank.no_data)
        ndp_job_data_describe(&t->rank.data, &s);
    if (t->rank.job.config->train.own_batches)
        ndp_str_add(&s, "batches: those of a program of your own (train.own_batches)\n");
    if (own.pinned)
        snprintf(pinned, sizeof pinned, " and %s pinned", ndp_human_bytes((double)(own.pinned + score.pinned), bytes));
    ndp_str_addf(&s, "memory: %s%s planned per rank; %d thread%s per rank\n",
                 ndp_human_bytes((double)(own.device + score.device), bytes), pinned, t->rank.exec.threads,
                 t->rank.exec.threads == 1 ? "" : "s");
    ndp_trainer_describe_kernels(t, &s);
    *text = ndp_str_detach(&s);
    return NDP_MEMORY(*text, "for a text");
}

/* ---- held-out rows ---- */

ndp_status ndp_trainer_evaluate(ndp_trainer *t, double *loss, int64_t *tokens) {
    NDP_NOT_NULL(t);
    NDP_CHECK(t->rank.data.held, "there is no held-out data; set data.validation_fraction or data.validation_files");
    ndp_step_result sums = {0};
    for (int i = 0; i < ndp_dataset_sources(t->rank.data.held); i++)
        NDP_TRY(ndp_score_held_out(&t->score, i, 0, &sums));
    if (loss)
        *loss = ndp_score_loss(&t->score, &sums);
    if (tokens)
        *tokens = sums.tokens;
    t->held = pair_metrics_of(t, &sums, ndp_dataset_sources(t->rank.data.held) == 1 ? t->rank.feed.point : NAN);
    return NDP_OK;
}

/* ---- routers ---- */

typedef struct router_reading {
    const ndp_trainer *t;
    int micro_batch;
    double *out;
} router_reading;

static void take_logits(void *user, int64_t row, const void *columns) {
    const router_reading *r = user;
    const ndp_mixtures *mixtures = &r->t->model.inputs->mixtures;
    int64_t length = r->t->rank.job.config->data.sequence_length;
    int64_t sample = ndp_sample_index(&r->t->rank.feed.shape, 0, r->micro_batch, data_rank(r->t), row / length);
    ndp_dtype type = ndp_wide(r->t->model.opts.compute);
    ndp_convert(columns, type, r->out + (sample * length + row % length) * mixtures->experts, NDP_F64,
                mixtures->experts);
}

ndp_status ndp_trainer_read_router(ndp_trainer *t, int mixture, double *out) {
    int64_t n =
        t->rank.feed.shape.global * t->rank.job.config->data.sequence_length * t->model.inputs->mixtures.experts;
    memset(out, 0, (size_t)n * sizeof *out);
    for (int m = 0; m < t->rank.job.batch.accumulation; m++)
        NDP_TRY(ndp_engine_mixture(t->engine, m, NDP_INPUT_ROUTER, mixture, take_logits, &(router_reading){t, m, out}));
    return ndp_reduce_now(t->rank.world, out, n, NDP_F64, NDP_SUM);
}
