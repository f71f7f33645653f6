/* ndp_watch: a run that is read again and again (run.h), its rows as the log has them, and whether it lives. A process
 * that this host does not see lives if the counter of its lock moves (checkpoint/lock.h); when that has stood still for
 * as long as a resume waits, the run has died. */
#include "report/watch.h"

#include "base/clock.h"
#include "checkpoint/lock.h"
#include "report/screen.h"
#include "report/serve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

/* What a row of the log shows of a line, and what it is where the line has no such number. */
static const struct {
    const char *key;
    size_t at;
    double otherwise;
} shown[] = {{"loss", offsetof(ndp_metrics, loss), NAN},
             {"grad_norm", offsetof(ndp_metrics, grad_norm), NAN},
             {"lr", offsetof(ndp_metrics, lr), NAN},
             {"tokens_per_second", offsetof(ndp_metrics, tokens_per_second), NAN},
             {"step_seconds", offsetof(ndp_metrics, step_seconds), 0},
             {"epoch", offsetof(ndp_metrics, epoch), 0},
             {"time", offsetof(ndp_metrics, time), NAN},
             {"evaluation_seconds", offsetof(ndp_metrics, evaluation_seconds), 0},
             {"save_seconds", offsetof(ndp_metrics, save_seconds), 0},
             {"mfu", offsetof(ndp_metrics, mfu), NAN},
             {"eval_loss", offsetof(ndp_metrics, eval_loss), NAN},
             {"rewards/margins", offsetof(ndp_metrics, pair.margin), NAN},
             {"rewards/accuracies", offsetof(ndp_metrics, pair.accuracy), NAN},
             {"kl", offsetof(ndp_metrics, pair.kl), NAN}};

static void take_line(void *user, struct json_object *line) {
    ndp_watch *w = user;
    ndp_metrics m = {.step = json_object_get_int64(json_object_object_get(line, "step"))};
    double peak = ndp_line_number(line, "peak_flops");
    w->peak_flops = isnan(peak) ? w->peak_flops : peak;
    if (!w->row || m.step <= w->shown)
        return;
    for (int i = 0; i < NDP_COUNT(shown); i++) {
        double x = ndp_line_number(line, shown[i].key);
        *(double *)(void *)((char *)&m + shown[i].at) = isnan(x) ? shown[i].otherwise : x;
    }
    m.peak_flops = w->peak_flops;
    m.eval_tokens = json_object_object_get_ex(line, "eval_loss", NULL);
    m.pair.pairs = json_object_object_get_ex(line, "pairs", NULL);
    w->shown = m.step;
    w->row(w->user, &m, w->run.steps);
}

/* ---- reading ---- */

static void judge_elsewhere(ndp_watch *w) {
    ndp_run_view *r = &w->run;
    bool moved = w->begun && r->beat != w->beat;
    if (r->state != NDP_RUN_ELSEWHERE) {
        w->begun = w->moves = false;
        return;
    }
    if (moved || !w->begun)
        w->moved_at = ndp_now();
    w->moves |= moved;
    w->begun = true;
    w->beat = r->beat;
    if (ndp_now() - w->moved_at > NDP_LOCK_PATIENCE)
        r->state = NDP_RUN_DIED;
    else if (w->moves)
        r->state = NDP_RUN_RUNNING;
}

/* Of a run that has ended since, the last lines may have come after those that were read. A file that another host has
 * replaced cannot be read for once (ESTALE of NFS). */
ndp_status ndp_watch_look(ndp_watch *w) {
    bool was_live = ndp_run_is_live(&w->run);
    ndp_status st = ndp_run_read_on(&w->run);
    NDP_TRY(st == NDP_EIO ? ndp_run_read_on(&w->run) : st);
    if (was_live && !ndp_run_is_live(&w->run))
        NDP_TRY(ndp_run_read_on(&w->run));
    judge_elsewhere(w);
    return NDP_OK;
}

static bool holds_data_out(const ndp_run_view *r) {
    const char *fraction = ndp_run_job_value(r, "data.validation_fraction");
    const char *files = ndp_run_job_value(r, "data.validation_files");
    return (fraction && strtod(fraction, NULL) > 0) || (files && strcmp(files, "[]") != 0);
}

static void describe(const ndp_run_view *r, ndp_watch_state *out) {
    const char *every = ndp_run_job_value(r, "train.log_every");
    long n = every ? strtol(every, NULL, 10) : 0;
    bool live = ndp_run_is_live(r);
    *out = (ndp_watch_state){.word = ndp_run_state_word(r->state),
                             .live = live,
                             .step = r->step,
                             .steps = r->steps,
                             .damaged = r->metrics.damaged + (r->cut && !live),
                             .log_every = n > 0 && n < INT32_MAX ? (int)n : 0,
                             .held = holds_data_out(r)};
}

ndp_status ndp_watch_create(const char *run, ndp_watch_state *state, ndp_watch **out) {
    NDP_NOT_NULL(run, out);
    ndp_run_view first;
    ndp_status st = ndp_run_read(run, true, &first); /* says what is missing */
    int64_t steps = first.steps;
    if (st == NDP_OK && state)
        describe(&first, state);
    ndp_run_release(&first);
    NDP_TRY(st);
    ndp_watch *w = calloc(1, sizeof *w);
    if (w) {
        w->run.folder = strdup(run);
        w->run.steps = steps;
        w->name = ndp_page_name(run);
        w->run.state = NDP_RUN_RUNNING; /* so that the first look is as careful as one after which a run has ended */
        w->run.metrics.on_line = take_line;
        w->run.metrics.user = w;
    }
    if (!w || !w->run.folder || !w->name) {
        ndp_watch_destroy(w);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to watch a run");
    }
    *out = w;
    return NDP_OK;
}

void ndp_watch_destroy(ndp_watch *w) {
    if (!w)
        return;
    ndp_serve_end(w->server);
    ndp_run_release(&w->run);
    free(w->name);
    free(w);
}

ndp_status ndp_watch_read(ndp_watch *w, void (*row)(void *user, const ndp_metrics *m, int64_t steps), void *user,
                          ndp_watch_state *state) {
    NDP_NOT_NULL(w);
    w->row = row;
    w->user = user;
    ndp_status st = ndp_watch_look(w);
    w->row = NULL;
    NDP_TRY(st);
    if (state)
        describe(&w->run, state);
    return NDP_OK;
}

ndp_status ndp_watch_screen(const ndp_watch *w, const ndp_screen_opts *o, char **text) {
    NDP_NOT_NULL(w, o, text);
    ndp_str out = {0};
    ndp_str_add(&out, "");
    ndp_screen_add(&out, &w->run, w->name, o);
    char *whole = ndp_str_detach(&out);
    NDP_CHECK_MEMORY(whole, "for a screen");
    *text = whole;
    return NDP_OK;
}
