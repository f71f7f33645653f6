/* metrics.jsonl as curves (run_metrics.h). */
#include "report/run_metrics.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A file with more keys, or longer ones, is not one that a run has written. */
enum { MOST_CURVES = 64, LONGEST_KEY = 64 };

/* ---- a line ---- */

double ndp_line_number(struct json_object *line, const char *key) {
    struct json_object *value;
    if (!json_object_object_get_ex(line, key, &value) ||
        (!json_object_is_type(value, json_type_double) && !json_object_is_type(value, json_type_int)))
        return NAN;
    return json_object_get_double(value);
}

static int64_t step_of(struct json_object *line) { return json_object_get_int64(json_object_object_get(line, "step")); }

/* NULL: it is damaged. */
static struct json_object *parse_line(const char *text, size_t n, int64_t after) {
    struct json_object *line = NULL;
    int64_t step = -1;
    if (ndp_json_parse(text, n, "metrics.jsonl", &line) != NDP_OK)
        return NULL;
    if (json_object_is_type(line, json_type_object) && json_object_object_get_ex(line, "loss", NULL) &&
        ndp_json_int(line, "metrics.jsonl", "step", 0, INT64_MAX, &step) == NDP_OK && step > after)
        return line;
    json_object_put(line);
    return NULL;
}

/* Keys that are what curves are drawn over, of no interest as a curve, or too many for one page: a number a layer. */
static bool is_curve(const char *key) {
    static const char *const others[] = {"step",  "tokens",     "tokens_total", "time",      "epoch",
                                         "pairs", "eval_pairs", "step_seconds", "peak_flops"};
    for (int i = 0; i < NDP_COUNT(others); i++)
        if (strcmp(key, others[i]) == 0)
            return false;
    static const char *const many[] = {"memory/", "grad_norm/", "max_load/", "load_entropy/", "rounds/"};
    for (int i = 0; i < NDP_COUNT(many); i++)
        if (strncmp(key, many[i], strlen(many[i])) == 0)
            return false;
    return strlen(key) <= LONGEST_KEY;
}

const ndp_curve *ndp_run_metrics_curve(const ndp_run_metrics *m, const char *key) {
    for (int i = 0; i < m->n_curves; i++)
        if (strcmp(m->curves[i].key, key) == 0)
            return &m->curves[i];
    return NULL;
}

/* *out NULL: there are too many. */
static ndp_status find_curve(ndp_run_metrics *m, const char *key, ndp_curve **out) {
    *out = (ndp_curve *)ndp_run_metrics_curve(m, key);
    if (*out || m->n_curves == MOST_CURVES)
        return NDP_OK;
    NDP_TRY(ndp_array_reserve(&m->curves, &m->curve_capacity, m->n_curves + 1, sizeof *m->curves));
    char *copy = strdup(key);
    NDP_CHECK_MEMORY(copy, "for a curve");
    *out = &m->curves[m->n_curves++];
    **out = (ndp_curve){.key = copy, .newest = NAN};
    return NDP_OK;
}

/* A number that a sum may have; others count as 0. */
static double summand(double x) { return x > 0 && x < 1e200 ? x : 0; }

static ndp_status add_curves(ndp_run_metrics *m, struct json_object *line) {
    json_object_object_foreach(line, key, value) {
        ndp_curve *c = NULL;
        double y = ndp_line_number(line, key);
        if (!is_curve(key) || (value && isnan(y)))
            continue;
        if (value)
            NDP_TRY(find_curve(m, key, &c));
        else
            c = (ndp_curve *)ndp_run_metrics_curve(m, key);
        if (c)
            c->newest = y;
        if (!c || !value)
            continue;
        c->sum += summand(y);
        for (int over = 0; over < NDP_OVERS; over++)
            NDP_TRY(ndp_columns_add(&c->over[over], m->over[over], y));
    }
    return NDP_OK;
}

static ndp_status add_eval(ndp_run_metrics *m, struct json_object *line) {
    double loss = ndp_line_number(line, "eval_loss");
    if (isnan(loss))
        return NDP_OK;
    NDP_TRY(ndp_array_reserve(&m->evals, &m->capacity, m->n_evals + 1, sizeof *m->evals));
    m->evals[m->n_evals++] = (ndp_eval_point){step_of(line), loss};
    return NDP_OK;
}

/* Where a line is: tokens and seconds never go back. */
static void move_on(ndp_run_metrics *m, struct json_object *line) {
    double tokens = ndp_line_number(line, "tokens"), seconds = ndp_line_number(line, "step_seconds");
    double total = ndp_line_number(line, "tokens_total"), time = ndp_line_number(line, "time");
    m->over[NDP_OVER_STEPS] = (double)m->step;
    m->over[NDP_OVER_TOKENS] =
        isnan(total) ? m->over[NDP_OVER_TOKENS] + summand(tokens) : fmax(m->over[NDP_OVER_TOKENS], summand(total));
    bool clock = m->lines > 1 && !isnan(time) && !isnan(m->time);
    m->over[NDP_OVER_SECONDS] += summand(clock ? time - m->time : seconds);
    m->tokens += isnan(seconds) ? 0 : summand(tokens);
    m->seconds += isnan(tokens) ? 0 : summand(seconds);
    m->recent =
        m->recent > 0 && summand(seconds) > 0 ? 0.9 * m->recent + 0.1 * seconds : fmax(m->recent, summand(seconds));
    m->time = time;
}

static void take_newest(ndp_run_metrics *m, struct json_object *line) {
    m->step = step_of(line);
    m->loss = ndp_line_number(line, "loss");
    m->tokens_per_second = ndp_line_number(line, "tokens_per_second");
    m->lines++;
}

/* Of a step that was checked (train/bad_step.c). */
static ndp_status add_cause(ndp_run_metrics *m, struct json_object *line) {
    const char *text = ndp_json_text(json_object_object_get(line, "cause"));
    char *copy = text ? strdup(text) : NULL;
    if (!text)
        return NDP_OK;
    NDP_CHECK_MEMORY(copy, "for the cause of a step");
    free(m->cause);
    m->cause = copy;
    m->cause_step = m->step;
    m->checked++;
    return NDP_OK;
}

static ndp_status add_line(ndp_run_metrics *m, const char *text, size_t n) {
    struct json_object *line = parse_line(text, n, m->lines ? m->step : -1);
    if (!line) {
        m->damaged++;
        return NDP_OK;
    }
    take_newest(m, line);
    move_on(m, line);
    if (!isfinite(m->loss) && m->no_loss++ == 0)
        m->first_no_loss = m->step;
    ndp_status st = add_curves(m, line);
    if (st == NDP_OK)
        st = add_eval(m, line);
    if (st == NDP_OK)
        st = add_cause(m, line);
    if (st == NDP_OK && m->on_line)
        m->on_line(m->user, line);
    json_object_put(line);
    return st;
}

/* ---- texts ---- */

ndp_status ndp_run_metrics_add(ndp_run_metrics *m, const char *text, size_t size) {
    for (size_t at = 0; at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t n = end ? (size_t)(end - text) - at : size - at;
        if (n)
            NDP_TRY(add_line(m, text + at, n));
        at += n + 1;
    }
    return NDP_OK;
}

ndp_status ndp_run_metrics_newest(ndp_run_metrics *m, const char *text, size_t size) {
    static const char evaluation[] = "\"eval_loss\"";
    for (size_t end = size; end > 0 && (m->lines == 0 || m->n_evals == 0);) {
        const char *before = memrchr(text, '\n', end - 1);
        size_t begin = before ? (size_t)(before - text) + 1 : 0, n = end - begin;
        const char *line_text = text + begin;
        end = begin;
        n -= line_text[n - 1] == '\n';
        if (n == 0 || (m->lines && !memmem(line_text, n, evaluation, sizeof evaluation - 1)))
            continue;
        struct json_object *line = parse_line(line_text, n, -1);
        if (!line)
            continue;
        if (m->lines == 0) {
            take_newest(m, line);
            m->time = ndp_line_number(line, "time");
        }
        ndp_status st = add_eval(m, line);
        json_object_put(line);
        NDP_TRY(st);
    }
    return NDP_OK;
}

void ndp_run_metrics_release(ndp_run_metrics *m) {
    for (int i = 0; i < m->n_curves; i++) {
        for (int over = 0; over < NDP_OVERS; over++)
            ndp_columns_release(&m->curves[i].over[over]);
        free(m->curves[i].key);
    }
    free(m->curves);
    free(m->evals);
    free(m->cause);
    *m = (ndp_run_metrics){0};
}

const ndp_eval_point *ndp_run_metrics_best(const ndp_run_metrics *m) {
    const ndp_eval_point *best = NULL;
    for (int64_t i = 0; i < m->n_evals; i++)
        if (!best || m->evals[i].loss < best->loss)
            best = &m->evals[i];
    return best;
}
