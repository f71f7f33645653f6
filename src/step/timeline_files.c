/* The files of a timeline: Chrome trace events, and a picture. */
#include "step/timeline.h"

#include "base/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROW_OF(KIND, name, colour) {name, colour},
static const struct { const char *name, *colour; } kinds[] = {NDP_EVENT_KINDS_LIST(ROW_OF)};

static double step_of(const ndp_timeline *t) { return t->n_ranks > 0 ? ndp_timeline_rank(t, 0).step : 0; }

static double first_start(const ndp_timeline *t) {
    double first = INFINITY;
    for (int i = 0; i < t->n_ranks; i++)
        first = fmin(first, t->ranks[i].first);
    return first;
}

static double bubble_of(const ndp_rank_time *r) { return r->step > 0 ? r->seconds[NDP_PART_RECEIVE] / r->step : 0; }

/* ---- JSON: times in microseconds from the start of the step ---- */

static void add_ranks(const ndp_timeline *t, ndp_str *out) {
    ndp_str_add(out, "\"otherData\": {\"ranks\": [");
    for (int i = 0; i < t->n_ranks; i++) {
        ndp_rank_time r = ndp_timeline_rank(t, i);
        ndp_str_addf(out, "%s\n  {\"rank\": %lld, \"step_seconds\": %.12g, \"bubble\": %.9f, \"seconds\": {",
                     i ? "," : "", (long long)r.rank, r.step, bubble_of(&r));
        for (int k = 0; k < NDP_PARTS; k++)
            ndp_str_addf(out, "%s\"%s\": %.12g", k ? ", " : "", kinds[k].name, r.seconds[k]);
        ndp_str_add(out, "}}");
    }
    ndp_str_add(out, "]},\n");
}

static void add_json(const ndp_timeline *t, ndp_str *out) {
    double first = first_start(t);
    ndp_str_add(out, "{\"displayTimeUnit\": \"ms\",\n");
    add_ranks(t, out);
    ndp_str_add(out, "\"traceEvents\": [");
    for (int i = 0; i < t->n; i++) {
        const ndp_timeline_event *e = &t->events[i];
        if (i == 0 || e->rank != e[-1].rank)
            ndp_str_addf(
                out, "%s\n{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": %d, \"args\": {\"name\": \"rank %d\"}}",
                i ? "," : "", e->rank, e->rank);
        ndp_str_addf(out,
                     ",\n{\"name\": \"%s\", \"cat\": \"%s\", \"ph\": \"X\", \"pid\": %d, \"tid\": 0, \"ts\": %.3f, "
                     "\"dur\": %.3f",
                     e->name, kinds[e->kind].name, e->rank, 1e6 * (e->start - first), 1e6 * (e->end - e->start));
        if (e->step > 0)
            ndp_str_addf(out, ", \"args\": {\"step\": %lld}", (long long)e->step);
        ndp_str_add(out, "}");
    }
    ndp_str_add(out, "\n]}\n");
}

/* ---- SVG: a row of rectangles for each rank ---- */

enum { WIDTH = 1600, ROW = 30, LEFT = 150, TOP = 40, LEGEND = 130, LETTER = 7 };

static bool has_kind(const ndp_timeline *t, int kind) {
    for (int i = 0; i < t->n; i++)
        if (t->events[i].kind == kind)
            return true;
    return false;
}

static void add_legend(const ndp_timeline *t, ndp_str *out) {
    char fill[32];
    for (int k = 0, x = LEFT; k < NDP_EVENT_KINDS; k++) {
        if (!has_kind(t, k))
            continue;
        snprintf(fill, sizeof fill, "fill=\"%s\"", kinds[k].colour);
        ndp_svg_box(out, x, 10, 14, 14, fill, NULL);
        ndp_svg_text(out, x + 20, 21, "", "%s", kinds[k].name);
        x += LEGEND;
    }
}

/* An event, with its name as a tooltip, and the micro-batch where there is room. */
static void add_rectangle(const ndp_timeline_event *e, double x, double width, int y, ndp_str *out) {
    int inset = e->kind == NDP_PART_SEND || e->kind == NDP_PART_COLLECTIVE ? 8 : 0; /* may lie on an action */
    char attributes[64], title[128];
    snprintf(attributes, sizeof attributes, "class=\"gap\" fill=\"%s\" stroke-width=\"0.4\"", kinds[e->kind].colour);
    snprintf(title, sizeof title, "%s, %.3f ms", e->name, 1e3 * (e->end - e->start));
    ndp_svg_box(out, x, y + inset, width, ROW - 4 - 2 * inset, attributes, title);
    if (e->stage == NDP_NONE || width < 2 * LETTER)
        return;
    static const char *const on = "class=\"on\" text-anchor=\"middle\" pointer-events=\"none\"";
    if (width > 6 * LETTER)
        ndp_svg_text(out, x + width / 2, y + 17, on, "%d: %d", e->stage, e->micro_batch);
    else
        ndp_svg_text(out, x + width / 2, y + 17, on, "%d", e->micro_batch);
}

/* 1, 2 or 5 times a power of ten, so that at most `ticks` of it fit into `length`. */
static double round_tick(double length, int ticks) {
    double power = pow(10, floor(log10(length / ticks))), least = length / ticks / power;
    return power * (least <= 1 ? 1 : least <= 2 ? 2 : least <= 5 ? 5 : 10);
}

static void add_axis(double step, int rows, ndp_str *out) {
    enum { TICKS = 10 };
    double tick = step > 0 ? round_tick(step, TICKS) : 0;
    for (int k = 0; tick > 0 && k * tick <= step; k++)
        ndp_svg_text(out, LEFT + k * tick / step * (WIDTH - LEFT), TOP + rows * ROW + 14, "text-anchor=\"middle\"",
                     "%.4g ms", 1e3 * k * tick);
}

static void add_svg(const ndp_timeline *t, ndp_str *out) {
    double first = first_start(t), step = step_of(t), scale = step > 0 ? (WIDTH - LEFT) / step : 0;
    int rows = t->n_ranks;
    ndp_svg_begin(out, WIDTH + 40, TOP + rows * ROW + 24, "what each rank does in a step", NULL, 0);
    add_legend(t, out);
    for (int row = 0, i = 0, y = TOP; row < rows; row++, y += ROW) {
        ndp_rank_time r = ndp_timeline_rank(t, row);
        ndp_svg_text(out, 4, y + 17, "", "rank %lld, bubble %.1f%%", (long long)r.rank, 100 * bubble_of(&r));
        for (; i < t->n && t->events[i].rank == r.rank; i++) {
            const ndp_timeline_event *e = &t->events[i];
            add_rectangle(e, LEFT + (e->start - first) * scale, (e->end - e->start) * scale, y, out);
        }
    }
    add_axis(step, rows, out);
    ndp_svg_end(out);
}

/* ---- files ---- */

ndp_status ndp_timeline_check_path(const char *path) {
    NDP_CHECK(ndp_ends_with(path, ".json") || ndp_ends_with(path, ".svg"),
              "'%s' ends neither in .json (Chrome trace events) nor in .svg (a picture)", path);
    return NDP_OK;
}

ndp_status ndp_timeline_write(const ndp_timeline *t, const char *path) {
    ndp_str text = {0};
    NDP_TRY(ndp_timeline_check_path(path));
    if (ndp_ends_with(path, ".svg"))
        add_svg(t, &text);
    else
        add_json(t, &text);
    ndp_status st = text.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for %s", path)
                                : ndp_file_write_atomic(path, text.data, text.length);
    ndp_str_release(&text);
    return st;
}
