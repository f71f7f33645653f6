/* The screen of `watch` (screen.h): lines about the run, the curve of its loss in the rows that are left, and lines
 * about the machine. A line is a list of parts; a part that does not fit beside those before it is left out, and a
 * first part is cut, so no line is wider than the terminal. Where rows are few, the lines at the end are left out
 * first. */
#include "report/screen.h"

#include "base/human_time.h"
#include "report/plot.h"
#include "report/run_facts.h"
#include "report/text_curve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- lines of parts ---- */

typedef enum screen_style { PLAIN, BOLD, SOFT, GOOD, WARN, BAD, CURVE } screen_style;

static const char *style_of(const ndp_screen_opts *o, screen_style s) {
    static const char *const codes[] = {"\033[0m",  "\033[1m",  "\033[2m", "\033[32m",
                                        "\033[33m", "\033[31m", "\033[36m"};
    return o->colours ? codes[s] : "";
}

typedef struct screen_line {
    ndp_str *out;
    const ndp_screen_opts *o;
    int left; /* columns */
    bool any;
} screen_line;

static screen_line begin_line(ndp_str *out, const ndp_screen_opts *o) {
    return (screen_line){.out = out, .o = o, .left = o->columns - 1};
}

/* Appends a text up to `most` columns; what a terminal would not show as it is becomes '?'. Returns its columns. */
static int add_fitting(ndp_str *out, const char *text, int most, bool ascii) {
    int columns = 0;
    for (const utf8proc_uint8_t *p = (const utf8proc_uint8_t *)text; *p;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate(p, -1, &c);
        int wide = n > 0 && c >= ' ' && c != 0x7f && !(ascii && c > 0x7f) ? utf8proc_charwidth(c) : 0;
        if (columns + (wide > 0 ? wide : 1) > most)
            break;
        if (wide > 0)
            ndp_str_add_bytes(out, p, (size_t)n);
        else
            ndp_str_add(out, "?");
        columns += wide > 0 ? wide : 1;
        p += n > 0 ? n : 1;
    }
    return columns;
}

__attribute__((format(printf, 3, 4))) static void put(screen_line *l, screen_style style, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = ndp_vformat(format, args);
    va_end(args);
    ndp_str part = {0};
    int columns = add_fitting(&part, text ? text : "", l->any ? 4096 : l->left, l->o->ascii);
    l->out->failed |= !text || part.failed;
    if (columns + 2 * l->any <= l->left && part.data) {
        ndp_str_addf(l->out, "%s%s%s%s", l->any ? "  " : "", style == PLAIN ? "" : style_of(l->o, style), part.data,
                     style == PLAIN ? "" : style_of(l->o, PLAIN));
        l->left -= columns + 2 * l->any;
        l->any = true;
    }
    ndp_str_release(&part);
    free(text);
}

/* A name and a number; nothing for NaN. */
static void put_number(screen_line *l, const char *name, ndp_quantity q, double x, const char *after) {
    ndp_str text = {0};
    if (isnan(x))
        return;
    ndp_quantity_add(&text, q, x);
    put(l, PLAIN, "%s %s%s", name, text.data ? text.data : "", after);
    ndp_str_release(&text);
}

/* ---- what the run is at ---- */

bool ndp_run_is_live(const ndp_run_view *r) { return r->state == NDP_RUN_RUNNING || r->state == NDP_RUN_ELSEWHERE; }

static double newest(const ndp_run_view *r, const char *key) {
    const ndp_curve *c = ndp_run_metrics_curve(&r->metrics, key);
    return c ? c->newest : NAN;
}

static double sum(const ndp_run_view *r, const char *key) {
    const ndp_curve *c = ndp_run_metrics_curve(&r->metrics, key);
    return c ? c->sum : 0;
}

/* By the recent steps, and by what evaluations and saves took so far, as the log has it. */
static double seconds_left(const ndp_run_view *r) {
    const ndp_run_metrics *m = &r->metrics;
    if (m->lines == 0 || m->recent <= 0)
        return NAN;
    double extra = sum(r, "evaluation_seconds") + sum(r, "save_seconds");
    return (m->recent + extra / (double)m->lines) * (double)(r->steps - r->step);
}

static void add_state(ndp_str *out, const ndp_run_view *r, const char *name, const ndp_screen_opts *o) {
    static const screen_style styles[] = {GOOD, WARN, GOOD, WARN, BAD};
    screen_line l = begin_line(out, o);
    char time[16];
    double left = seconds_left(r);
    put(&l, BOLD, "%s", name);
    put(&l, styles[r->state], "%s", ndp_run_state_word(r->state));
    if (r->steps > 0)
        put(&l, PLAIN, "step %lld of %lld", (long long)r->step, (long long)r->steps);
    else
        put(&l, PLAIN, "step %lld", (long long)r->step);
    if (r->steps > 0)
        put(&l, PLAIN, "%.1f%%", 100 * (double)r->step / (double)r->steps);
    if (ndp_run_is_live(r) && r->steps > r->step && !isnan(left))
        put(&l, PLAIN, "left %s", ndp_human_time(left, time));
    ndp_str_add(out, "\n");
}

static void add_bar(ndp_str *out, const ndp_run_view *r, const ndp_screen_opts *o) {
    int wide = o->columns - 3;
    double part = r->steps > 0 ? (double)r->step / (double)r->steps : 0;
    int full = (int)(fmin(part, 1) * wide);
    ndp_str_addf(out, "[%s", style_of(o, GOOD));
    for (int i = 0; i < wide; i++) {
        if (i == full)
            ndp_str_add(out, style_of(o, SOFT));
        ndp_str_add(out, i < full ? (o->ascii ? "#" : "█") : o->ascii ? "." : "░");
    }
    ndp_str_addf(out, "%s]\n", style_of(o, PLAIN));
}

static void add_losses(ndp_str *out, const ndp_run_view *r, const ndp_screen_opts *o) {
    const ndp_run_metrics *m = &r->metrics;
    const ndp_eval_point *best = ndp_run_metrics_best(m);
    screen_line l = begin_line(out, o);
    char at[48] = "";
    double lr = newest(r, "lr");
    if (m->lines == 0)
        put(&l, SOFT, "no step is recorded yet");
    else if (isnan(m->loss))
        put(&l, BAD, "loss is not a number");
    else
        put_number(&l, "loss", NDP_QUANTITY_NUMBER, m->loss, "");
    if (best) {
        snprintf(at, sizeof at, " at step %lld", (long long)best->step);
        put_number(&l, "eval", NDP_QUANTITY_NUMBER, m->evals[m->n_evals - 1].loss, "");
        put_number(&l, "best", NDP_QUANTITY_NUMBER, best->loss, at);
    }
    put_number(&l, "norm", NDP_QUANTITY_NUMBER, newest(r, "grad_norm"), "");
    if (!isnan(lr))
        put(&l, PLAIN, "lr %.2e", lr);
    ndp_str_add(out, "\n");
}

static void add_rates(ndp_str *out, const ndp_run_view *r, const ndp_screen_opts *o) {
    const ndp_run_metrics *m = &r->metrics;
    screen_line l = begin_line(out, o);
    char time[16];
    if (m->lines == 0)
        return;
    put_number(&l, "tok/s", NDP_QUANTITY_COUNT, m->tokens_per_second, "");
    put_number(&l, "mean", NDP_QUANTITY_COUNT, m->seconds > 0 ? m->tokens / m->seconds : NAN, "");
    put_number(&l, "mfu", NDP_QUANTITY_SHARE, newest(r, "mfu"), "");
    put_number(&l, "step", NDP_QUANTITY_SECONDS, m->recent > 0 ? m->recent : NAN, "");
    put_number(&l, "tokens", NDP_QUANTITY_COUNT, m->over[NDP_OVER_TOKENS], "");
    put(&l, PLAIN, "time %s", ndp_human_time(m->over[NDP_OVER_SECONDS], time));
    ndp_str_add(out, "\n");
}

/* ---- what it runs on ---- */

static void add_memory(ndp_str *out, const ndp_run_view *r, const ndp_screen_opts *o) {
    struct json_object *memory = ndp_fact_member(r->record, "memory", json_type_object);
    double planned = fmax(ndp_fact_number(memory, "training"), 0) + fmax(ndp_fact_number(memory, "evaluation"), 0);
    double peak = newest(r, "peak_memory_bytes");
    screen_line l = begin_line(out, o);
    char text[16];
    if (!(planned > 0) && isnan(peak))
        return;
    if (planned > 0)
        put(&l, PLAIN, "memory %s planned per rank", ndp_human_bytes(planned, text));
    if (!isnan(peak))
        put(&l, PLAIN, "%s %s at most", planned > 0 ? "rank 0 used" : "memory of rank 0", ndp_human_bytes(peak, text));
    ndp_str_add(out, "\n");
}

/* The axes that cut something, "dp_shard 2 x tp 4"; the hosts, each once where its ranks follow each other. */
static void add_ranks(ndp_str *out, const ndp_run_view *r, const ndp_screen_opts *o) {
    struct json_object *hosts = ndp_fact_member(r->record, "hosts", json_type_array);
    struct json_object *layout = ndp_fact_member(r->record, "layout", json_type_object);
    screen_line l = begin_line(out, o);
    ndp_str axes = {0};
    size_t n = hosts ? json_object_array_length(hosts) : 0;
    if (n == 0)
        return;
    put(&l, PLAIN, "ranks %zu", n);
    if (layout) {
        json_object_object_foreach(layout, axis, size) if (ndp_fact_is_number(size) && json_object_get_int(size) > 1)
            ndp_str_addf(&axes, "%s%s %d", axes.length ? " x " : "", axis, json_object_get_int(size));
    }
    if (axes.length)
        put(&l, PLAIN, "%s", axes.data);
    put(&l, PLAIN, "%s, %s", ndp_fact_word(r->record, "device"), ndp_fact_word(r->record, "transport"));
    for (size_t i = 0; i < n; i++) {
        struct json_object *host = json_object_array_get_idx(hosts, i);
        if (i == 0 || !json_object_equal(host, json_object_array_get_idx(hosts, i - 1)))
            put(&l, PLAIN, "%s%s", i ? "" : "on ", ndp_fact_text(host));
    }
    ndp_str_add(out, "\n");
    ndp_str_release(&axes);
}

static void add_shares(ndp_str *out, const ndp_run_view *r, const ndp_screen_opts *o) {
    static const char *const names[][2] = {{"compute", "compute_seconds"},
                                           {"communication", "communication_seconds"},
                                           {"data", "data_seconds"},
                                           {"eval", "evaluation_seconds"},
                                           {"saves", "save_seconds"}};
    double all = 0;
    screen_line l = begin_line(out, o);
    for (int i = 0; i < NDP_COUNT(names); i++)
        all += sum(r, names[i][1]);
    if (!(all > 0))
        return;
    for (int i = 0; i < NDP_COUNT(names); i++)
        if (sum(r, names[i][1]) > 0)
            put(&l, PLAIN, "%s%s %.1f%%", l.any ? "" : "time: ", names[i][0], 100 * sum(r, names[i][1]) / all);
    ndp_str_add(out, "\n");
}

/* ---- notes ---- */

__attribute__((format(printf, 4, 5))) static void note(ndp_str *out, const ndp_screen_opts *o, screen_style style,
                                                       const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = ndp_vformat(format, args);
    va_end(args);
    screen_line l = begin_line(out, o);
    put(&l, style, "%s", text ? text : "");
    ndp_str_add(out, "\n");
    out->failed |= !text;
    free(text);
}

/* A step that takes 20 times as long as the recent ones, and more than a minute, is worth a look. */
static bool is_late(const ndp_run_view *r) {
    enum { SECONDS = 60, TIMES = 20 };
    return ndp_run_is_live(r) && r->age > SECONDS && r->age > TIMES * r->metrics.recent;
}

static void add_notes(ndp_str *out, const ndp_run_view *r, const ndp_screen_opts *o) {
    const ndp_run_metrics *m = &r->metrics;
    struct json_object *warnings = ndp_fact_member(r->record, "warnings", json_type_array);
    size_t n = warnings ? json_object_array_length(warnings) : 0;
    const char *cause = ndp_fact_word(ndp_fact_part(r->record), "cause");
    int64_t damaged = m->damaged + (r->cut && !ndp_run_is_live(r));
    char time[16];
    if (is_late(r))
        note(out, o, WARN, "the newest step ended %s ago", ndp_human_time(r->age, time));
    if (r->state == NDP_RUN_STOPPED && *cause && strcmp(cause, "done") != 0)
        note(out, o, WARN, "cause: %s", cause);
    if (m->no_loss)
        note(out, o, BAD, "the loss of %lld step%s is not a number, first at step %lld", (long long)m->no_loss,
             m->no_loss == 1 ? "" : "s", (long long)m->first_no_loss);
    if (damaged)
        note(out, o, WARN, "%lld line%s of metrics.jsonl left out: damaged", (long long)damaged,
             damaged == 1 ? "" : "s");
    if (n)
        note(out, o, WARN, "warning: %s", ndp_fact_text(json_object_array_get_idx(warnings, n - 1)));
}

/* ---- the screen ---- */

/* Appends the first `most` lines of a text. Returns how many. */
static int add_lines(ndp_str *out, const ndp_str *text, int most) {
    int n = 0;
    for (const char *p = text->data; p && *p && n < most; n++) {
        const char *end = strchr(p, '\n') + 1;
        ndp_str_add_bytes(out, p, (size_t)(end - p));
        p = end;
    }
    out->failed |= text->failed;
    return n;
}

static int count_lines(const ndp_str *text) {
    int n = 0;
    for (const char *p = text->data; p && (p = strchr(p, '\n')); p++)
        n++;
    return n;
}

void ndp_screen_add(ndp_str *out, const ndp_run_view *r, const char *name, const ndp_screen_opts *o) {
    enum { LEAST_CURVE = 6 };
    const ndp_curve *loss = ndp_run_metrics_curve(&r->metrics, "loss");
    const char *const styles[] = {style_of(o, CURVE), style_of(o, SOFT), style_of(o, PLAIN)};
    ndp_str head = {0}, foot = {0};
    add_state(&head, r, name, o);
    if (r->steps > 0 && o->columns > 10)
        add_bar(&head, r, o);
    add_losses(&head, r, o);
    add_rates(&head, r, o);
    add_notes(&foot, r, o);
    add_memory(&foot, r, o);
    add_ranks(&foot, r, o);
    add_shares(&foot, r, o);
    int left = o->rows - add_lines(out, &head, o->rows), feet = count_lines(&foot);
    if (loss && left >= LEAST_CURVE) {
        feet = feet < left - LEAST_CURVE ? feet : left - LEAST_CURVE;
        left -= ndp_text_curve_add(out, &loss->over[NDP_OVER_STEPS], o->columns - 1, left - feet, o->ascii, styles);
    }
    add_lines(out, &foot, left < feet ? left : feet);
    ndp_str_release(&head);
    ndp_str_release(&foot);
}
