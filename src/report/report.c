/* ndp_runs_report: reads runs and writes their page. */
#include "base/clock.h"
#include "base/svg.h"
#include "report/page.h"
#include "report/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts ---- */

void ndp_page_put(ndp_str *out, const char *tag, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = ndp_vformat(format, args);
    va_end(args);
    out->failed |= !text;
    ndp_str_addf(out, "<%s>", tag);
    ndp_svg_escape(out, text ? text : "");
    ndp_str_addf(out, "</%.*s>", (int)strcspn(tag, " "), tag);
    free(text);
}

char *ndp_page_date(double time, char out[32]) {
    struct tm local;
    time_t seconds = fabs(time) < 1e15 ? (time_t)time : 0;
    if (isnan(time) || !localtime_r(&seconds, &local) || !strftime(out, 32, "%Y-%m-%d %H:%M:%S", &local))
        strcpy(out, "-");
    return out;
}

/* ---- the table of runs ---- */

static void put_cell(ndp_str *out, ndp_quantity q, double x, const char *after) {
    ndp_str_add(out, "<td class=\"number\">");
    ndp_quantity_add(out, q, x);
    ndp_str_addf(out, "%s</td>", after);
}

static void add_run_row(ndp_page *p, int i) {
    const ndp_run_view *r = &p->runs[i];
    const ndp_run_metrics *m = &r->metrics;
    const ndp_eval_point *best = ndp_run_metrics_best(m);
    char at[48] = "";
    ndp_str_addf(&p->out,
                 "<tr><td><svg class=\"swatch\" viewBox=\"0 0 12 12\"><rect class=\"p%d\" width=\"12\" "
                 "height=\"12\"/></svg>",
                 i % NDP_PLOT_COLOURS);
    ndp_page_put(&p->out, "span", "%s", p->names[i]);
    ndp_str_addf(&p->out, "</td><td>%s</td><td class=\"number\">%lld", ndp_run_state_word(r->state),
                 (long long)r->step);
    if (r->steps > 0)
        ndp_str_addf(&p->out, " of %lld", (long long)r->steps);
    ndp_str_add(&p->out, "</td>");
    if (best)
        snprintf(at, sizeof at, " at %lld", (long long)best->step);
    put_cell(&p->out, NDP_QUANTITY_NUMBER, m->lines ? m->loss : NAN, "");
    put_cell(&p->out, NDP_QUANTITY_NUMBER, best ? best->loss : NAN, at);
    put_cell(&p->out, NDP_QUANTITY_COUNT, m->over[NDP_OVER_TOKENS], "");
    put_cell(&p->out, NDP_QUANTITY_COUNT, m->seconds > 0 ? m->tokens / m->seconds : NAN, "");
    put_cell(&p->out, NDP_QUANTITY_SECONDS, m->over[NDP_OVER_SECONDS], "");
    ndp_str_add(&p->out, "</tr>\n");
}

static void add_runs(ndp_page *p) {
    ndp_str_add(&p->out, "<div class=\"wide\"><table><tr><th>run</th><th>state</th><th class=\"number\">step</th>"
                         "<th class=\"number\">loss</th><th class=\"number\">best eval_loss</th>"
                         "<th class=\"number\">tokens</th><th class=\"number\">tokens/s, mean</th>"
                         "<th class=\"number\">wall time</th></tr>\n");
    for (int i = 0; i < p->n; i++)
        add_run_row(p, i);
    ndp_str_add(&p->out, "</table></div>\n");
}

/* ---- notes ---- */

static bool same_job_value(const ndp_page *p, const char *key) {
    for (int i = 1; i < p->n; i++) {
        const char *a = ndp_run_job_value(&p->runs[0], key), *b = ndp_run_job_value(&p->runs[i], key);
        if (strcmp(a ? a : "", b ? b : "") != 0)
            return false;
    }
    return true;
}

static void add_notes(ndp_page *p) {
    if (!same_job_value(p, "model.config") || !same_job_value(p, "model.path"))
        ndp_page_put(&p->out, "p class=\"note\"",
                     "These runs train different models: their losses may not be comparable.");
    for (int i = 0; i < p->n; i++) {
        const ndp_run_metrics *m = &p->runs[i].metrics;
        struct json_object *warnings = NULL;
        if (m->damaged)
            ndp_page_put(&p->out, "p class=\"note\"", "%s: %lld line%s of metrics.jsonl %s damaged and left out.",
                         p->names[i], (long long)m->damaged, m->damaged == 1 ? "" : "s",
                         m->damaged == 1 ? "is" : "are");
        if (m->no_loss)
            ndp_page_put(&p->out, "p class=\"note\"",
                         "%s: the loss of %lld step%s is not a number, first at step %lld.", p->names[i],
                         (long long)m->no_loss, m->no_loss == 1 ? "" : "s", (long long)m->first_no_loss);
        if (m->checked)
            ndp_page_put(&p->out, "p class=\"note\"", "%s: %lld step%s checked, step %lld last: %s.", p->names[i],
                         (long long)m->checked, m->checked == 1 ? " was" : "s were", (long long)m->cause_step,
                         m->cause);
        if (m->lines == 0)
            ndp_page_put(&p->out, "p class=\"note\"", "%s: no step is recorded yet.", p->names[i]);
        json_object_object_get_ex(p->runs[i].record, "warnings", &warnings);
        for (size_t k = 0; json_object_is_type(warnings, json_type_array) && k < json_object_array_length(warnings);
             k++) {
            const char *text = ndp_json_text(json_object_array_get_idx(warnings, k));
            if (text)
                ndp_page_put(&p->out, "p class=\"note\"", "%s: %s", p->names[i], text);
        }
    }
}

/* ---- how jobs differ ---- */

/* Whether an earlier run has the key, so that its line is there. */
static bool is_earlier(const ndp_page *p, int run, const char *key) {
    for (int i = 0; i < run; i++)
        if (ndp_run_job_value(&p->runs[i], key))
            return true;
    return false;
}

static void add_difference(ndp_page *p, const char *key) {
    ndp_str_add(&p->out, "<tr>");
    ndp_page_put(&p->out, "td", "%s", key);
    for (int i = 0; i < p->n; i++) {
        const char *value = ndp_run_job_value(&p->runs[i], key);
        ndp_page_put(&p->out, "td", "%s", value ? value : "-");
    }
    ndp_str_add(&p->out, "</tr>\n");
}

static void add_differences(ndp_page *p) {
    int n = 0;
    ndp_str_add(&p->out, "<section><h2>How the jobs differ</h2>\n<div class=\"wide\"><table><tr><th>key</th>");
    for (int i = 0; i < p->n; i++)
        ndp_page_put(&p->out, "th", "%s", p->names[i]);
    ndp_str_add(&p->out, "</tr>\n");
    for (int i = 0; i < p->n; i++)
        for (int64_t k = 0; k < p->runs[i].n_keys; k++) {
            const char *key = p->runs[i].keys[k].key;
            if (strcmp(key, "train.output_dir") == 0 || is_earlier(p, i, key) || same_job_value(p, key))
                continue;
            add_difference(p, key);
            n++;
        }
    ndp_str_add(&p->out, "</table></div>\n");
    if (n == 0)
        ndp_str_add(&p->out, "<p>In train.output_dir alone.</p>\n");
    ndp_str_add(&p->out, "</section>\n");
}

/* ---- the page ---- */

ndp_status ndp_page_write(ndp_page *p) {
    char date[32];
    ndp_str_addf(&p->out,
                 "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                 "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-%s'; "
                 "img-src data:\">\n<link rel=\"icon\" href=\"data:,\">\n<meta name=\"viewport\" "
                 "content=\"width=device-width, initial-scale=1\">\n",
                 ndp_page_style_sha256);
    ndp_page_put(&p->out, "title", p->n == 1 ? "%s" : "%s and %d more runs", p->names[0], p->n - 1);
    ndp_str_addf(&p->out, "\n<style>%s</style>\n</head>\n<body>\n", ndp_page_style);
    ndp_page_put(&p->out, "h1", p->n == 1 ? "%s" : "%s and %d more", p->names[0], p->n - 1);
    ndp_page_put(&p->out, "p class=\"soft\"", "Written by ndparallel %s, %s", NDP_VERSION,
                 ndp_page_date(ndp_clock_seconds(CLOCK_REALTIME), date));
    add_runs(p);
    add_notes(p);
    NDP_TRY(ndp_page_plots(p));
    if (p->n > 1)
        add_differences(p);
    for (int i = 0; i < p->n; i++)
        NDP_TRY(ndp_page_run(p, i));
    ndp_str_add(&p->out, "</body>\n</html>\n");
    return NDP_MEMORY(!p->out.failed, "for a report");
}

/* ---- reading ---- */

char *ndp_page_name(const char *folder) {
    char *real = realpath(folder, NULL);
    const char *slash = real ? strrchr(real, '/') : NULL;
    char *name = strdup(slash && slash[1] ? slash + 1 : folder);
    free(real);
    return name;
}

/* Last folders, or whole paths where two of those are the same. */
static ndp_status name_runs(ndp_page *p, const char *const *folders) {
    bool distinct = true;
    for (int i = 0; i < p->n; i++) {
        p->names[i] = ndp_page_name(folders[i]);
        NDP_CHECK_MEMORY(p->names[i], "for a report");
        for (int k = 0; k < i; k++)
            distinct &= strcmp(p->names[i], p->names[k]) != 0;
    }
    for (int i = 0; i < p->n && !distinct; i++) {
        free(p->names[i]);
        p->names[i] = strdup(folders[i]);
        NDP_CHECK_MEMORY(p->names[i], "for a report");
    }
    return NDP_OK;
}

static ndp_status read_runs(ndp_page *p, const char *const *folders) {
    NDP_CHECK_MEMORY(p->runs && p->names, "for %d runs", p->n);
    for (int i = 0; i < p->n; i++) {
        NDP_CHECK(folders[i], "ndp_runs_report: runs[%d] is NULL", i);
        NDP_TRY(ndp_run_read(folders[i], false, &p->runs[i]));
    }
    return name_runs(p, folders);
}

static void release_page(ndp_page *p) {
    for (int i = 0; i < p->n; i++) {
        if (p->runs)
            ndp_run_release(&p->runs[i]);
        if (p->names)
            free(p->names[i]);
    }
    free(p->runs);
    free(p->names);
    ndp_str_release(&p->out);
}

ndp_status ndp_runs_report(const char *const *runs, int n, const char *path) {
    NDP_NOT_NULL(runs, path);
    NDP_CHECK(n > 0, "no run folder; give a job's train.output_dir");
    ndp_page p = {.runs = calloc((size_t)n, sizeof *p.runs), .names = calloc((size_t)n, sizeof *p.names), .n = n};
    ndp_status st = read_runs(&p, runs);
    if (st == NDP_OK)
        st = ndp_page_write(&p);
    if (st == NDP_OK)
        st = ndp_file_write_atomic(path, p.out.data, p.out.length);
    release_page(&p);
    return st;
}
