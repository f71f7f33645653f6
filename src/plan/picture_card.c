/* The card of a rank: a row for each thing that the layout divides, with a bar of the part that the rank holds, and the
 * ranks that it communicates with, a line an axis. Every number is one of its holding (holding.h). */
#include "plan/picture_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Sizes in pixels. */
enum { ROW = 22, BAR = 4 };

ndp_axis ndp_picture_axis_of_both(const ndp_picture *p, ndp_axis outer, ndp_axis inner) {
    return ndp_picture_size(p, inner) > 1 ? inner : outer;
}

/* ---- words ---- */

static void add_stretch(ndp_str *out, int64_t first, int64_t end) {
    ndp_str_addf(out, "%s%lld", out->length ? ", " : "", (long long)first);
    if (end - first > 1)
        ndp_str_addf(out, "-%lld", (long long)end - 1);
}

enum { MOST_STRETCHES = 3 };

void ndp_picture_add_numbers(const ndp_numbers *s, ndp_str *out) {
    if (s->n == 0)
        ndp_str_add(out, "none");
    else if (s->of > 1 && ndp_numbers_count(s) == s->of)
        ndp_str_addf(out, "all %lld", (long long)s->of);
    else
        for (int64_t i = 0; i < s->n && i <= MOST_STRETCHES; i++)
            if (i < MOST_STRETCHES)
                add_stretch(out, s->items[i].first, s->items[i].end);
            else
                ndp_str_add(out, ", ..");
}

void ndp_picture_add_layers(const ndp_picture *p, const ndp_numbers *s, ndp_str *out) {
    int last = p->whole->n_units - 1;
    if (ndp_numbers_count(s) == s->of) {
        ndp_str_addf(out, "all %d", last - 1);
        return;
    }
    for (int64_t i = 0; i < s->n && i < MOST_STRETCHES; i++) {
        int64_t first = s->items[i].first, end = s->items[i].end;
        if (first == 0)
            ndp_str_addf(out, "%s", p->whole->units[0].name);
        int64_t from = first ? first : 1, to = end > last ? last : end;
        if (from < to)
            add_stretch(out, from - 1, to - 1);
        if (end > last)
            ndp_str_addf(out, "%s%s", out->length ? ", " : "", p->whole->units[last].name);
    }
    if (s->n > MOST_STRETCHES)
        ndp_str_add(out, ", ..");
}

const char *ndp_picture_number(int64_t n, char out[16]) {
    static const struct {
        double unit;
        const char *name;
    } units[] = {{1e9, " B"}, {1e6, " M"}, {1e3, " K"}};
    for (int i = 0; i < NDP_COUNT(units); i++)
        if ((double)n >= 0.99995 * units[i].unit) {
            snprintf(out, 16, "%.*f%s", (double)n < 10 * units[i].unit ? 2 : 1, (double)n / units[i].unit,
                     units[i].name);
            return out;
        }
    snprintf(out, 16, "%lld", (long long)n);
    return out;
}

/* ---- a card ---- */

/* A row of a card: its words, and a bar with the part that the rank holds. */
typedef struct row {
    const char *label;
    ndp_divided what;
    ndp_axis axis; /* that cuts it */
} row;

enum { MOST_ROWS = 7 };

/* The rows that this job's cards have; the parameters follow them. */
static int choose_rows(const ndp_picture *p, row *out) {
    const ndp_axis tokens = ndp_picture_axis_of_both(p, NDP_CP, NDP_SP),
                   samples = ndp_picture_axis_of_both(p, NDP_DP_REPLICATE, NDP_DP_SHARD);
    const row rows[] = {{"samples", NDP_DIVIDED_SAMPLES, samples},     {"tokens", NDP_DIVIDED_TOKENS, tokens},
                        {"layers", NDP_DIVIDED_UNITS, NDP_PP},         {"heads", NDP_DIVIDED_HEADS, NDP_TP},
                        {"attends", NDP_DIVIDED_ATTENTION, NDP_SP},    {"ffn", NDP_DIVIDED_FFN, NDP_TP},
                        {"vocabulary", NDP_DIVIDED_VOCABULARY, NDP_TP}};
    int n = 0;
    for (int i = 0; i < NDP_COUNT(rows); i++) {
        bool has = p->holdings[0].of[rows[i].what].of > 0;
        if (has && (rows[i].what != NDP_DIVIDED_ATTENTION || ndp_picture_size(p, NDP_SP) > 1))
            out[n++] = rows[i];
    }
    return n;
}

static void add_bar(ndp_picture *p, double x, double y, const ndp_numbers *s, const char *class) {
    enum { MOST_PIECES = 24 };
    char attributes[64];
    const double width = CARD - 2 * PAD, unit = width / (double)s->of;
    ndp_svg_box(&p->body, x, y, width, BAR, "class=\"empty\"", NULL);
    snprintf(attributes, sizeof attributes, "class=\"%s\"", class);
    for (int64_t i = 0; i < s->n && s->n <= MOST_PIECES; i++) {
        double part = (double)(s->items[i].end - s->items[i].first) * unit;
        ndp_svg_box(&p->body, x + (double)s->items[i].first * unit, y, fmax(part, 2), BAR, attributes, NULL);
    }
    if (s->n <= MOST_PIECES)
        return;
    snprintf(attributes, sizeof attributes, "class=\"%s\" opacity=\"%.2f\"", class,
             (double)ndp_numbers_count(s) / (double)s->of);
    ndp_svg_box(&p->body, x, y, width, BAR, attributes, NULL);
}

static void add_row(ndp_picture *p, double x, double y, const char *label, const char *words, const ndp_numbers *s,
                    ndp_axis axis) {
    bool all = ndp_numbers_count(s) == s->of;
    ndp_svg_text(&p->body, x, y + 11, "class=\"soft\"", "%s", label);
    ndp_svg_text(&p->body, x + CARD - 2 * PAD, y + 11, "text-anchor=\"end\"", "%s", words);
    add_bar(p, x, y + 15, s, all ? "soft" : ndp_axis_name(axis));
}

static void add_divided(ndp_picture *p, double x, double y, const row *r, const ndp_holding *h) {
    ndp_str words = {0};
    const ndp_numbers *s = &h->of[r->what], *kv = &h->of[NDP_DIVIDED_KV_HEADS];
    if (r->what == NDP_DIVIDED_UNITS)
        ndp_picture_add_layers(p, s, &words);
    else
        ndp_picture_add_numbers(s, &words);
    if (r->what == NDP_DIVIDED_HEADS && s->n > 0 && ndp_numbers_count(kv) < kv->of) {
        ndp_str numbers = {0};
        ndp_picture_add_numbers(kv, &numbers);
        ndp_str_addf(&words, ", kv %s", numbers.data ? numbers.data : "");
        ndp_str_release(&numbers);
    }
    add_row(p, x, y, r->label, words.data ? words.data : "", s, r->axis);
    ndp_str_release(&words);
}

static void add_slice(ndp_picture *p, double x, double y, const ndp_holding *h) {
    char words[64], number[16];
    ndp_number_run own = {h->slice, h->slice + 1};
    const ndp_numbers slice = {.items = &own, .n = 1, .of = h->slices};
    ndp_picture_number(h->parameters, number);
    if (h->slices > 1)
        snprintf(words, sizeof words, "slice %d of %d: %s", h->slice, h->slices, number);
    else
        snprintf(words, sizeof words, "%s", number);
    add_row(p, x, y, "weights", words, &slice,
            ndp_picture_axis_of_both(p, ndp_picture_axis_of_both(p, NDP_SP, NDP_CP), NDP_DP_SHARD));
}

/* "0, 1": the ranks that differ from this one on the axis alone; of many the first two. */
static void add_numbers_along(const ndp_mesh *mesh, ndp_axis axis, ndp_str *out) {
    enum { MOST_MEMBERS = 4, FEW_MEMBERS = 2 };
    int coord[NDP_AXES], n = mesh->layout.size[axis], named = n <= MOST_MEMBERS ? n : FEW_MEMBERS;
    memcpy(coord, mesh->coord, sizeof coord);
    for (int c = 0; c < named; c++) {
        coord[axis] = c;
        ndp_str_addf(out, "%s%d", c ? ", " : "", ndp_mesh_rank_of(&mesh->layout, coord));
    }
    ndp_str_add(out, named < n ? ", .." : "");
}

static void add_members(ndp_picture *p, double x, double y, const ndp_mesh *mesh, ndp_axis axis) {
    ndp_str members = {0};
    char attributes[64];
    add_numbers_along(mesh, axis, &members);
    snprintf(attributes, sizeof attributes, "class=\"%s\"", ndp_axis_name(axis));
    ndp_svg_text(&p->body, x, y + 11, attributes, "%s", ndp_axis_name(axis));
    ndp_svg_text(&p->body, x + CARD - 2 * PAD, y + 11, "text-anchor=\"end\"", "ranks %s",
                 members.data ? members.data : "");
    ndp_str_release(&members);
}

int ndp_picture_card_height(const ndp_picture *p) {
    row rows[MOST_ROWS];
    int height = HEAD + PAD + (choose_rows(p, rows) + 1) * ROW + PAD / 2;
    for (int axis = 0; axis < NDP_AXES; axis++)
        height += ndp_picture_size(p, (ndp_axis)axis) > 1 ? LINE : 0;
    return height;
}

void ndp_picture_add_card(ndp_picture *p, double x, double y, const ndp_holding *h) {
    row rows[MOST_ROWS];
    char attributes[64];
    int n = choose_rows(p, rows);
    ndp_svg_box(&p->body, x, y, CARD, p->card_height, "class=\"card\" rx=\"6\"", NULL);
    ndp_svg_text(&p->body, x + PAD, y + 19, "font-weight=\"bold\" font-size=\"14\"", "rank %d", h->mesh.rank);
    if (p->n_axes > 0) {
        ndp_axis axis = p->axes[p->n_axes - 1];
        snprintf(attributes, sizeof attributes, "class=\"%s\" font-weight=\"bold\" text-anchor=\"end\"",
                 ndp_axis_name(axis));
        ndp_svg_text(&p->body, x + CARD - PAD, y + 18, attributes, "%s %d", ndp_axis_name(axis), h->mesh.coord[axis]);
    }
    x += PAD, y += HEAD + PAD / 2;
    for (int i = 0; i < n; i++, y += ROW)
        add_divided(p, x, y, &rows[i], h);
    add_slice(p, x, y, h);
    y += ROW + PAD / 2;
    for (int axis = 0; axis < NDP_AXES; axis++)
        if (ndp_picture_size(p, (ndp_axis)axis) > 1) {
            add_members(p, x, y, &h->mesh, (ndp_axis)axis);
            y += LINE;
        }
}
