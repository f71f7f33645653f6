/* The files of a timeline: Chrome trace events, and a picture. */
#include "step/timeline.h"

#include <math.h>
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
                     "\"dur\": %.3f}",
                     e->name, kinds[e->kind].name, e->rank, 1e6 * (e->start - first), 1e6 * (e->end - e->start));
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
    for (int k = 0, x = LEFT; k < NDP_EVENT_KINDS; k++) {
        if (!has_kind(t, k))
            continue;
        ndp_str_addf(
            out, "<rect x=\"%d\" y=\"10\" width=\"14\" height=\"14\" fill=\"%s\"/><text x=\"%d\" y=\"21\">%s</text>\n",
            x, kinds[k].colour, x + 20, kinds[k].name);
        x += LEGEND;
    }
}

/* An event, with its name as a tooltip, and the micro-batch where there is room. */
static void add_rectangle(const ndp_timeline_event *e, double x, double width, int y, ndp_str *out) {
    int inset = e->kind == NDP_PART_SEND || e->kind == NDP_PART_COLLECTIVE ? 8 : 0; /* may lie on an action */
    ndp_str_addf(out,
                 "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\" stroke=\"#ffffff\" "
                 "stroke-width=\"0.4\"><title>%s, %.3f ms</title></rect>\n",
                 x, y + inset, width, ROW - 4 - 2 * inset, kinds[e->kind].colour, e->name, 1e3 * (e->end - e->start));
    if (e->stage == NDP_NONE || width < 2 * LETTER)
        return;
    ndp_str_addf(out, "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\" pointer-events=\"none\">", x + width / 2,
                 y + 17);
    if (width > 6 * LETTER)
        ndp_str_addf(out, "%d: ", e->stage);
    ndp_str_addf(out, "%d</text>\n", e->micro_batch);
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
        ndp_str_addf(out, "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\">%.4g ms</text>\n",
                     LEFT + k * tick / step * (WIDTH - LEFT), TOP + rows * ROW + 14, 1e3 * k * tick);
}

static void add_svg(const ndp_timeline *t, ndp_str *out) {
    double first = first_start(t), step = step_of(t), scale = step > 0 ? (WIDTH - LEFT) / step : 0;
    int rows = t->n_ranks;
    ndp_str_addf(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
                 "font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
                 WIDTH + 40, TOP + rows * ROW + 24);
    add_legend(t, out);
    for (int row = 0, i = 0, y = TOP; row < rows; row++, y += ROW) {
        ndp_rank_time r = ndp_timeline_rank(t, row);
        ndp_str_addf(out, "<text x=\"4\" y=\"%d\">rank %lld, bubble %.1f%%</text>\n", y + 17, (long long)r.rank,
                     100 * bubble_of(&r));
        for (; i < t->n && t->events[i].rank == r.rank; i++) {
            const ndp_timeline_event *e = &t->events[i];
            add_rectangle(e, LEFT + (e->start - first) * scale, (e->end - e->start) * scale, y, out);
        }
    }
    add_axis(step, rows, out);
    ndp_str_add(out, "</svg>\n");
}

/* ---- files ---- */

static bool ends_in(const char *path, const char *suffix) {
    size_t n = strlen(path), k = strlen(suffix);
    return n > k && strcmp(path + n - k, suffix) == 0;
}

ndp_status ndp_timeline_check_path(const char *path) {
    NDP_CHECK(ends_in(path, ".json") || ends_in(path, ".svg"),
              "'%s' ends neither in .json (Chrome trace events) nor in .svg (a picture)", path);
    return NDP_OK;
}

ndp_status ndp_timeline_write(const ndp_timeline *t, const char *path) {
    ndp_str text = {0};
    NDP_TRY(ndp_timeline_check_path(path));
    if (ends_in(path, ".svg"))
        add_svg(t, &text);
    else
        add_json(t, &text);
    ndp_status st = text.failed ? NDP_FAIL(NDP_ENOMEM, "no memory for %s", path)
                                : ndp_file_write_atomic(path, text.data, text.length);
    ndp_str_release(&text);
    return st;
}
