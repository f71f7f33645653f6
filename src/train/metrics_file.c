/* metrics.jsonl. Called by rank 0 of a run, in loop.c; and by save.c for the metrics that a checkpoint has of its own
 * step. */
#include "train/metrics_file.h"

#include "base/json.h"
#include "base/json_write.h"
#include "checkpoint/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a line ---- */

/* The numbers of a line in their order, but for the step, which is first, and the evaluation, which is last. `digits`:
 * of a number that depends on the clock or the machine; 0: it is the same in each run of a job. */
static const struct {
    const char *key;
    size_t at;
    bool whole; /* int64_t, else double */
    int digits;
    bool may_lack; /* 0: there is none */
} fields[] = {{"loss", offsetof(ndp_metrics, loss), .whole = false},
              {"grad_norm", offsetof(ndp_metrics, grad_norm), .whole = false},
              {"lr", offsetof(ndp_metrics, lr), .whole = false},
              {"tokens", offsetof(ndp_metrics, tokens), .whole = true},
              {"tokens_total", offsetof(ndp_metrics, tokens_total), .whole = true, .may_lack = true},
              {"epoch", offsetof(ndp_metrics, epoch), .digits = 6},
              {"tokens_per_second", offsetof(ndp_metrics, tokens_per_second), .digits = 6},
              {"time", offsetof(ndp_metrics, time), .digits = 13},
              {"step_seconds", offsetof(ndp_metrics, step_seconds), .digits = 6},
              {"compute_seconds", offsetof(ndp_metrics, compute_seconds), .digits = 6},
              {"communication_seconds", offsetof(ndp_metrics, communication_seconds), .digits = 6, .may_lack = true},
              {"data_seconds", offsetof(ndp_metrics, data_seconds), .digits = 6},
              {"evaluation_seconds", offsetof(ndp_metrics, evaluation_seconds), .digits = 6, .may_lack = true},
              {"save_seconds", offsetof(ndp_metrics, save_seconds), .digits = 6, .may_lack = true},
              {"mfu", offsetof(ndp_metrics, mfu), .digits = 6},
              {"peak_flops", offsetof(ndp_metrics, peak_flops), .digits = 6, .may_lack = true},
              {"peak_memory_bytes", offsetof(ndp_metrics, peak_memory_bytes), .whole = true, .digits = 17}};

/* Those of pairs; all exact. */
static const struct {
    const char *key;
    size_t at;
    bool may_lack;
} pair_fields[] = {{"rewards/chosen", offsetof(ndp_pair_metrics, reward_chosen), false},
                   {"rewards/rejected", offsetof(ndp_pair_metrics, reward_rejected), false},
                   {"rewards/accuracies", offsetof(ndp_pair_metrics, accuracy), true},
                   {"rewards/margins", offsetof(ndp_pair_metrics, margin), false},
                   {"logps/chosen", offsetof(ndp_pair_metrics, logp_chosen), false},
                   {"logps/rejected", offsetof(ndp_pair_metrics, logp_rejected), false},
                   {"nll_loss", offsetof(ndp_pair_metrics, nll), true},
                   {"kl", offsetof(ndp_pair_metrics, kl), true}};

/* Of routers: losses, where there are any, and loads; exact. with: what is 0 where there is no such number. */
#define WITH(key, other)                                                                                               \
    { #key, offsetof(ndp_metrics, key), offsetof(ndp_metrics, other) }
static const struct {
    const char *key;
    size_t at, with;
} router_fields[] = {WITH(balance_loss, balance_loss), WITH(z_loss, z_loss), WITH(max_load, max_load),
                     WITH(load_entropy, max_load), WITH(rounds, rounds)};
#undef WITH

static double number_at(const void *base, size_t at) {
    return *(const double *)(const void *)((const char *)base + at);
}

static void each_pair(const ndp_pair_metrics *p, bool held, ndp_metric_visit *each, void *user) {
    if (p->pairs == 0)
        return;
    each(user, &(ndp_metric){"pairs", held, true, .count = p->pairs});
    for (int i = 0; i < NDP_COUNT(pair_fields); i++) {
        double x = number_at(p, pair_fields[i].at);
        if (!pair_fields[i].may_lack || !isnan(x))
            each(user, &(ndp_metric){pair_fields[i].key, held, false, .x = x});
    }
}

/* So that all who show a number have the same. */
static double rounded(double x, int digits) {
    char text[40];
    if (digits == 0 || !isfinite(x))
        return x;
    snprintf(text, sizeof text, "%.*g", digits, x);
    return strtod(text, NULL);
}

void ndp_metrics_each(const ndp_metrics *m, ndp_metric_visit *each, void *user) {
    for (int i = 0; i < NDP_COUNT(fields); i++) {
        ndp_metric one = {.key = fields[i].key, .whole = fields[i].whole, .digits = fields[i].digits};
        if (one.whole)
            one.count = *(const int64_t *)(const void *)((const char *)m + fields[i].at);
        else
            one.x = rounded(number_at(m, fields[i].at), one.digits);
        if (!fields[i].may_lack || one.count != 0 || one.x != 0)
            each(user, &one);
    }
    each_pair(&m->pair, false, each, user);
    for (int i = 0; i < NDP_COUNT(router_fields); i++) {
        if (number_at(m, router_fields[i].with) != 0)
            each(user, &(ndp_metric){router_fields[i].key, false, false, .x = number_at(m, router_fields[i].at)});
    }
    for (int i = 0; i < m->n_more; i++)
        each(user, &(ndp_metric){m->more[i].name, .x = m->more[i].value});
    if (m->eval_tokens <= 0)
        return;
    each(user, &(ndp_metric){"loss", true, false, .x = m->eval_loss});
    each_pair(&m->eval_pair, true, each, user);
}

/* JSON has no NaN or infinity: they are written as null. */
static void add_number(void *out, const ndp_metric *one) {
    ndp_str_addf(out, ", \"%s%s\": ", one->held ? "eval_" : "", one->key);
    if (one->whole)
        ndp_str_addf(out, "%lld", (long long)one->count);
    else if (isfinite(one->x))
        ndp_str_addf(out, "%.*g", one->digits ? one->digits : 17, one->x);
    else
        ndp_str_add(out, "null");
}

static void add_exact(void *out, const ndp_metric *one) {
    if (one->digits == 0 && !one->held)
        add_number(out, one);
}

static void add_object(ndp_str *out, const ndp_metrics *m, ndp_metric_visit *each) {
    ndp_str_addf(out, "{\"step\": %lld", (long long)m->step);
    ndp_metrics_each(m, each, out);
    if (m->cause) {
        ndp_str_add(out, ", \"cause\": ");
        ndp_json_quote(out, m->cause);
    }
    ndp_str_add(out, "}");
}

static void add_line(ndp_str *out, const void *m) {
    add_object(out, m, add_number);
    ndp_str_add(out, "\n");
}

struct json_object *ndp_metrics_to_json(const ndp_metrics *m) {
    ndp_str text = {0};
    struct json_object *o = NULL;
    add_object(&text, m, add_exact);
    ndp_status st = text.failed ? NDP_ENOMEM : ndp_json_parse(text.data, text.length, "metrics", &o);
    ndp_str_release(&text);
    return st == NDP_OK ? o : NULL;
}

ndp_status ndp_metrics_from_json(struct json_object *o, const char *what, ndp_metrics *out) {
    ndp_metrics m = {.eval_loss = NAN};
    if (!json_object_is_type(o, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s are not an object", what);
    NDP_TRY(ndp_json_int(o, what, "step", 0, INT64_MAX, &m.step));
    for (int i = 0; i < NDP_COUNT(fields); i++) {
        void *value = (char *)&m + fields[i].at;
        if (!fields[i].whole)
            *(double *)value = fields[i].may_lack ? 0 : NAN; /* unless there is another number */
        NDP_TRY(fields[i].whole ? ndp_json_int(o, what, fields[i].key, 0, INT64_MAX, value)
                                : ndp_json_double(o, what, fields[i].key, value));
    }
    for (int i = 0; i < NDP_COUNT(router_fields); i++) {
        double *value = (double *)(void *)((char *)&m + router_fields[i].at);
        *value = json_object_object_get_ex(o, router_fields[i].key, NULL) ? NAN : 0;
        NDP_TRY(ndp_json_double(o, what, router_fields[i].key, value));
    }
    NDP_TRY(ndp_json_int(o, what, "pairs", 0, INT64_MAX, &m.pair.pairs));
    for (int i = 0; i < NDP_COUNT(pair_fields) && m.pair.pairs > 0; i++) {
        double *value = (double *)(void *)((char *)&m.pair + pair_fields[i].at);
        *value = NAN;
        NDP_TRY(ndp_json_double(o, what, pair_fields[i].key, value));
    }
    *out = m;
    return NDP_OK;
}

/* ---- opening ---- */

typedef struct cut_after {
    ndp_metrics_file *file;
    int64_t step;
    bool evaluated;
} cut_after;

/* Counts what the lines that stay have. */
static bool keeps_line(void *user, const char *line, size_t n) {
    const cut_after *c = user;
    bool has_loss;
    double loss;
    int64_t at = ndp_line_step(line, n, &has_loss, &loss);
    if (at < 0 || at > c->step || (at == c->step && c->evaluated && !has_loss))
        return false;
    c->file->newest = at;
    if (has_loss)
        ndp_best_count(&c->file->best, at, loss);
    return true;
}

ndp_status ndp_metrics_open(ndp_metrics_file *f, const char *folder, int64_t step, bool evaluated) {
    char path[NDP_PATH];
    int64_t end = 0;
    *f = (ndp_metrics_file){0};
    NDP_TRY(ndp_path_join(path, folder, "metrics.jsonl"));
    NDP_TRY(ndp_appended_cut(path, keeps_line, &(cut_after){f, step, evaluated}, &end));
    NDP_TRY(ndp_appended_open(&f->file, ndp_format("%s", path), "line", end));
    return ndp_folder_sync(folder);
}

ndp_metrics ndp_metrics_as_line(const ndp_metrics *m, double peak) {
    ndp_metrics line = *m;
    line.peak_flops = m->peak_flops == peak ? 0 : m->peak_flops;
    return line;
}

ndp_status ndp_metrics_line(const ndp_metrics *m, const ndp_metrics *before, char **line) {
    NDP_NOT_NULL(m, line);
    ndp_str out = {0};
    ndp_metrics shown = ndp_metrics_as_line(m, before ? before->peak_flops : 0);
    add_object(&out, &shown, add_number);
    char *text = ndp_str_detach(&out);
    NDP_CHECK_MEMORY(text, "for a line");
    *line = text;
    return NDP_OK;
}

ndp_status ndp_metrics_add(ndp_metrics_file *f, const ndp_metrics *m) {
    ndp_metrics line = ndp_metrics_as_line(m, f->peak_flops);
    f->peak_flops = m->peak_flops;
    return ndp_appended_add(&f->file, add_line, &line);
}

void ndp_metrics_close(ndp_metrics_file *f) { ndp_appended_close(&f->file); }
