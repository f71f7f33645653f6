/* The frames are nested as the axes are, the outermost outside. From the innermost axis on, coordinates lie side by
 * side while a row has at most COLUMNS cards; those of the outer axes lie below each other:
 *
 *   +- dp_shard 0 -------------------------+
 *   | +- cp 0 ---------+ +- cp 1 --------+ |
 *   | | [tp 0] [tp 1]  | | [tp 0] [tp 1] | |
 *   | +----------------+ +---------------+ |
 *   +- dp_shard 1 -------------------------+
 *   | ...
 *
 * Every number is one of a holding (holding.h) or of the job. */
#include "plan/layout_picture.h"

#include "base/svg.h"
#include "plan/holding.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of more than WHOLE ranks, FEW are drawn at most. */
enum { WHOLE = 64, FEW = 16, COLUMNS = 4 };
/* Sizes in pixels. */
enum { MARGIN = 16, GAP = 10, PAD = 10, HEAD = 24, CARD = 198, ROW = 22, BAR = 4, LINE = 16, LEAST_WIDTH = 640 };

static const ndp_svg_colour colours[] = {{"pp", "#8250df", "#ab7df8"},       {"dp_replicate", "#0e7490", "#4fc9d8"},
                                         {"dp_shard", "#0969da", "#58a6ff"}, {"cp", "#1a7f37", "#3fb950"},
                                         {"sp", "#9a6700", "#d29922"},       {"tp", "#bc4c00", "#f0883e"}};

typedef struct picture {
    const ndp_dry_run *d;
    const ndp_job *job;
    const ndp_model *whole;
    ndp_axis axes[NDP_AXES]; /* drawn: those with several coordinates, outermost first */
    int n_axes;
    int shown[NDP_AXES];   /* by axis: the coordinates drawn, from 0 on */
    int columns[NDP_AXES]; /* by place in `axes`: how many lie side by side */
    ndp_holding *holdings; /* of the ranks drawn, in their order */
    int n_holdings;
    int card_height;
    ndp_str body;
} picture;

static int size_of(const picture *p, ndp_axis axis) { return p->job->layout.size[axis]; }

/* The axis whose colour something has that both axes cut: the one that cuts it, the inner one if both do. */
static ndp_axis of_both(const picture *p, ndp_axis outer, ndp_axis inner) {
    return size_of(p, inner) > 1 ? inner : outer;
}

/* ---- words ---- */

static void add_stretch(ndp_str *out, int64_t first, int64_t end) {
    ndp_str_addf(out, "%s%lld", out->length ? ", " : "", (long long)first);
    if (end - first > 1)
        ndp_str_addf(out, "-%lld", (long long)end - 1);
}

enum { MOST_STRETCHES = 3 };

/* "all 4", "0-63, 192-255", "0, 2, 4, ..", "none" */
static void add_numbers(const ndp_numbers *s, ndp_str *out) {
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

/* "embed, 0-1": the units between the first and the last are the layers. */
static void add_layers(const picture *p, const ndp_numbers *s, ndp_str *out) {
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

/* 103488 as "103.5 K". */
static const char *short_number(int64_t n, char out[16]) {
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
static int choose_rows(const picture *p, row *out) {
    const ndp_axis tokens = of_both(p, NDP_CP, NDP_SP), samples = of_both(p, NDP_DP_REPLICATE, NDP_DP_SHARD);
    const row rows[] = {{"samples", NDP_DIVIDED_SAMPLES, samples},     {"tokens", NDP_DIVIDED_TOKENS, tokens},
                        {"layers", NDP_DIVIDED_UNITS, NDP_PP},         {"heads", NDP_DIVIDED_HEADS, NDP_TP},
                        {"attends", NDP_DIVIDED_ATTENTION, NDP_SP},    {"ffn", NDP_DIVIDED_FFN, NDP_TP},
                        {"vocabulary", NDP_DIVIDED_VOCABULARY, NDP_TP}};
    int n = 0;
    for (int i = 0; i < NDP_COUNT(rows); i++) {
        bool has = p->holdings[0].of[rows[i].what].of > 0;
        if (has && (rows[i].what != NDP_DIVIDED_ATTENTION || size_of(p, NDP_SP) > 1))
            out[n++] = rows[i];
    }
    return n;
}

static void add_bar(picture *p, double x, double y, const ndp_numbers *s, const char *class) {
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

static void add_row(picture *p, double x, double y, const char *label, const char *words, const ndp_numbers *s,
                    ndp_axis axis) {
    bool all = ndp_numbers_count(s) == s->of;
    ndp_svg_text(&p->body, x, y + 11, "class=\"soft\"", "%s", label);
    ndp_svg_text(&p->body, x + CARD - 2 * PAD, y + 11, "text-anchor=\"end\"", "%s", words);
    add_bar(p, x, y + 15, s, all ? "soft" : ndp_axis_name(axis));
}

static void add_divided(picture *p, double x, double y, const row *r, const ndp_holding *h) {
    ndp_str words = {0};
    const ndp_numbers *s = &h->of[r->what], *kv = &h->of[NDP_DIVIDED_KV_HEADS];
    if (r->what == NDP_DIVIDED_UNITS)
        add_layers(p, s, &words);
    else
        add_numbers(s, &words);
    if (r->what == NDP_DIVIDED_HEADS && s->n > 0 && ndp_numbers_count(kv) < kv->of) {
        ndp_str numbers = {0};
        add_numbers(kv, &numbers);
        ndp_str_addf(&words, ", kv %s", numbers.data ? numbers.data : "");
        ndp_str_release(&numbers);
    }
    add_row(p, x, y, r->label, words.data ? words.data : "", s, r->axis);
    ndp_str_release(&words);
}

static void add_slice(picture *p, double x, double y, const ndp_holding *h) {
    char words[64], number[16];
    ndp_number_run own = {h->slice, h->slice + 1};
    const ndp_numbers slice = {.items = &own, .n = 1, .of = h->slices};
    short_number(h->parameters, number);
    if (h->slices > 1)
        snprintf(words, sizeof words, "slice %d of %d: %s", h->slice, h->slices, number);
    else
        snprintf(words, sizeof words, "%s", number);
    add_row(p, x, y, "weights", words, &slice, of_both(p, of_both(p, NDP_SP, NDP_CP), NDP_DP_SHARD));
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

static void add_members(picture *p, double x, double y, const ndp_mesh *mesh, ndp_axis axis) {
    ndp_str members = {0};
    char attributes[64];
    add_numbers_along(mesh, axis, &members);
    snprintf(attributes, sizeof attributes, "class=\"%s\"", ndp_axis_name(axis));
    ndp_svg_text(&p->body, x, y + 11, attributes, "%s", ndp_axis_name(axis));
    ndp_svg_text(&p->body, x + CARD - 2 * PAD, y + 11, "text-anchor=\"end\"", "ranks %s",
                 members.data ? members.data : "");
    ndp_str_release(&members);
}

static int card_height(const picture *p) {
    row rows[MOST_ROWS];
    int height = HEAD + PAD + (choose_rows(p, rows) + 1) * ROW + PAD / 2;
    for (int axis = 0; axis < NDP_AXES; axis++)
        height += size_of(p, (ndp_axis)axis) > 1 ? LINE : 0;
    return height;
}

static void add_card(picture *p, double x, double y, const ndp_holding *h) {
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
        if (size_of(p, (ndp_axis)axis) > 1) {
            add_members(p, x, y, &h->mesh, (ndp_axis)axis);
            y += LINE;
        }
}

/* ---- frames ---- */

/* Width and height of what is inside of the frames of the axes before number `level`. */
static void measure(const picture *p, int level, int *width, int *height) {
    *width = CARD, *height = p->card_height;
    if (level >= p->n_axes)
        return;
    measure(p, level + 1, width, height);
    if (level + 1 < p->n_axes)
        *width += 2 * PAD, *height += HEAD + PAD;
    int n = p->shown[p->axes[level]], columns = p->columns[level], lines = (n + columns - 1) / columns;
    *width = columns * (*width + GAP) - GAP;
    *height = lines * (*height + GAP) - GAP;
}

static const ndp_holding *holding_at(const picture *p, const int coord[NDP_AXES]) {
    int rank = ndp_mesh_rank_of(&p->job->layout, coord), i = 0;
    while (i < p->n_holdings - 1 && p->holdings[i].mesh.rank != rank)
        i++;
    return &p->holdings[i];
}

/* What all ranks of a frame have in common and those of the next do not. */
static void add_common(const picture *p, ndp_axis axis, const ndp_holding *h, ndp_str *out) {
    bool samples = axis == of_both(p, NDP_DP_REPLICATE, NDP_DP_SHARD), tokens = axis == of_both(p, NDP_CP, NDP_SP);
    const ndp_numbers *s = &h->of[samples ? NDP_DIVIDED_SAMPLES : tokens ? NDP_DIVIDED_TOKENS : NDP_DIVIDED_UNITS];
    const char *what = samples ? "sample" : tokens ? "token" : "layer";
    ndp_str words = {0};
    if (!samples && !tokens && axis != NDP_PP)
        return;
    if (axis == NDP_PP)
        add_layers(p, s, &words);
    else
        add_numbers(s, &words);
    ndp_str_addf(out, ": %s%s %s", what, ndp_numbers_count(s) == 1 ? "" : "s", words.data ? words.data : "");
    ndp_str_release(&words);
}

static void add_frame(picture *p, int level, double x, double y, int width, int height, const int coord[NDP_AXES]) {
    ndp_axis axis = p->axes[level];
    char attributes[64];
    ndp_str words = {0};
    add_common(p, axis, holding_at(p, coord), &words);
    snprintf(attributes, sizeof attributes, "class=\"%s-line\" stroke-width=\"1.5\" rx=\"8\"", ndp_axis_name(axis));
    ndp_svg_box(&p->body, x, y, width, height, attributes, NULL);
    snprintf(attributes, sizeof attributes, "class=\"%s\" font-weight=\"bold\" font-size=\"12\"", ndp_axis_name(axis));
    ndp_svg_text(&p->body, x + PAD, y + 17, attributes, "%s %d%s", ndp_axis_name(axis), coord[axis],
                 words.data ? words.data : "");
    ndp_str_release(&words);
}

/* Draws the ranks at the coordinates `coord` of the axes before number `level`; on return those after them are 0. */
static void draw(picture *p, int level, double x, double y, int coord[NDP_AXES]) {
    int width, height;
    if (level == p->n_axes) {
        add_card(p, x, y, holding_at(p, coord));
        return;
    }
    bool frames = level + 1 < p->n_axes;
    ndp_axis axis = p->axes[level];
    measure(p, level + 1, &width, &height);
    if (frames)
        width += 2 * PAD, height += HEAD + PAD;
    for (int c = 0; c < p->shown[axis]; c++) {
        double left = x + c % p->columns[level] * (width + GAP), top = y + c / p->columns[level] * (height + GAP);
        coord[axis] = c;
        if (frames)
            add_frame(p, level, left, top, width, height, coord);
        draw(p, level + 1, left + (frames ? PAD : 0), top + (frames ? HEAD : 0), coord);
    }
    coord[axis] = 0;
}

/* Chooses what is drawn: halves the most drawn axis, the outer one of two, until there are few enough cards. */
static void choose_axes(picture *p) {
    int cards = p->job->world, across = 1;
    memcpy(p->shown, p->job->layout.size, sizeof p->shown);
    while (p->job->world > WHOLE && cards > FEW) {
        int most = 0;
        for (int axis = 1; axis < NDP_AXES; axis++)
            most = p->shown[axis] > p->shown[most] ? axis : most;
        cards = cards / p->shown[most] * ((p->shown[most] + 1) / 2);
        p->shown[most] = (p->shown[most] + 1) / 2;
    }
    for (int axis = 0; axis < NDP_AXES; axis++)
        if (p->shown[axis] > 1)
            p->axes[p->n_axes++] = (ndp_axis)axis;
    for (int level = p->n_axes - 1; level >= 0; level--) {
        int n = p->shown[p->axes[level]];
        p->columns[level] = across * n <= COLUMNS ? n : COLUMNS / across;
        across *= p->columns[level];
    }
}

static ndp_status read_holdings(picture *p) {
    int cards = 1, coord[NDP_AXES] = {0};
    for (int axis = 0; axis < NDP_AXES; axis++)
        cards *= p->shown[axis];
    p->holdings = calloc((size_t)cards, sizeof *p->holdings);
    if (!p->holdings)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a picture of %d ranks", cards);
    for (int i = 0; i < cards; i++) {
        for (int axis = NDP_AXES - 1, rest = i; axis >= 0; rest /= p->shown[axis--])
            coord[axis] = rest % p->shown[axis];
        NDP_TRY(ndp_holding_read(p->d, p->whole, ndp_mesh_rank_of(&p->job->layout, coord), &p->holdings[i]));
        p->n_holdings++;
    }
    return NDP_OK;
}

/* ---- what is above and below the frames ---- */

/* What the ranks along an axis divide and exchange. */
static const char *const axis_words[NDP_AXES] = {
    [NDP_PP] = "each stage has some of the layers; activations go to the next stage, their gradients back",
    [NDP_DP_REPLICATE] = "each replica has samples of its own; gradients are summed over the replicas",
    [NDP_DP_SHARD] = "each rank has samples of its own",
    [NDP_CP] = "each rank has a part of every sequence",
    [NDP_SP] = "each rank has a part of every sequence; for attention, ranks exchange it for all of their tokens of "
               "some heads",
    [NDP_TP] = "each rank has some heads, ffn columns and rows of the vocabulary of every layer; partial results are "
               "summed"};

static void add_axis_words(const picture *p, ndp_axis axis, ndp_str *out) {
    const ndp_config *c = p->job->config;
    ndp_str_addf(out, "%s %d: %s", ndp_axis_name(axis), size_of(p, axis), axis_words[axis]);
    if (axis == NDP_CP)
        ndp_str_addf(out, "%s; keys and values are %s",
                     c->parallelism.cp_zigzag
                         ? ", half of it from the front and half from the back (zig-zag), so that attention costs all "
                           "ranks the same"
                         : "",
                     c->parallelism.cp_method == NDP_CP_RING ? "passed around a ring" : "gathered");
}

/* Adds a text in lines of at most `width` pixels, from y on; returns the y after it. */
static double add_lines(ndp_str *out, double x, double y, double width, const char *attributes, const char *text) {
    const double letter = 5.9; /* of a wide font, on average */
    size_t most = (size_t)(width / letter);
    while (*text) {
        size_t n = strlen(text);
        if (n > most)
            for (n = most; n > 1 && text[n] != ' ';)
                n--;
        ndp_svg_text(out, x, y + 11, attributes, "%.*s", (int)n, text);
        text += n + (text[n] == ' ');
        y += LINE;
    }
    return y;
}

static void add_totals(const picture *p, ndp_str *out) {
    const ndp_job *j = p->job;
    const ndp_numbers *of = p->holdings[0].of;
    char parameters[16];
    ndp_str_addf(out, "%s: %d layers, ", j->spec.type, j->spec.layout.layers);
    if (of[NDP_DIVIDED_HEADS].of > 0)
        ndp_str_addf(out, "%lld heads (%lld kv), ", (long long)of[NDP_DIVIDED_HEADS].of,
                     (long long)of[NDP_DIVIDED_KV_HEADS].of);
    if (of[NDP_DIVIDED_FFN].of > 0)
        ndp_str_addf(out, "ffn %lld, ", (long long)of[NDP_DIVIDED_FFN].of);
    ndp_str_addf(out, "vocabulary %lld, %s parameters. A step: %d sample%s of %d tokens", (long long)j->spec.vocab,
                 short_number(j->spec.parameters, parameters), j->batch.global_batch,
                 j->batch.global_batch == 1 ? "" : "s", j->config->data.sequence_length);
    if (j->batch.micro_batch > 1)
        ndp_str_addf(out, "; tokens are numbered through the %d samples of a micro-batch", j->batch.micro_batch);
    ndp_str_add(out, ".");
}

static void add_left_out(const picture *p, ndp_str *out) {
    ndp_str_addf(out, "Drawn: %d of %d ranks,", p->n_holdings, p->job->world);
    const char *before = " the first";
    for (int axis = 0; axis < NDP_AXES; axis++)
        if (p->shown[axis] < size_of(p, (ndp_axis)axis)) {
            ndp_str_addf(out, "%s %d of %d along %s", before, p->shown[axis], size_of(p, (ndp_axis)axis),
                         ndp_axis_name((ndp_axis)axis));
            before = ",";
        }
    ndp_str_add(out, "; the others continue in the same way.");
}

/* Adds the title and the totals; returns the y after them. */
static double add_top(picture *p, const char *title, double width) {
    ndp_str words = {0};
    ndp_svg_text(&p->body, MARGIN, MARGIN + 14, "font-weight=\"bold\" font-size=\"16\"", "%s", title);
    add_totals(p, &words);
    double y = add_lines(&p->body, MARGIN, MARGIN + 24, width, "class=\"soft\"", words.data ? words.data : "");
    ndp_str_release(&words);
    if (p->n_holdings < p->job->world) {
        add_left_out(p, &words);
        y = add_lines(&p->body, MARGIN, y, width, "", words.data ? words.data : "");
        ndp_str_release(&words);
    }
    return y + GAP;
}

/* Adds what the colours and the axes mean; returns the y after it. */
static double add_legend(picture *p, double y, double width) {
    y = add_lines(
        &p->body, MARGIN, y, width, "class=\"soft\"",
        "Bars: coloured, the part that the rank has; grey, all. Last lines of a card: the ranks that differ on "
        "this axis alone, and communicate along it.");
    for (int axis = 0; axis < NDP_AXES; axis++) {
        ndp_str words = {0};
        char attributes[64];
        if (size_of(p, (ndp_axis)axis) == 1)
            continue;
        add_axis_words(p, (ndp_axis)axis, &words);
        snprintf(attributes, sizeof attributes, "class=\"%s\" rx=\"2\"", ndp_axis_name((ndp_axis)axis));
        ndp_svg_box(&p->body, MARGIN, y + 2, 10, 10, attributes, NULL);
        y = add_lines(&p->body, MARGIN + 16, y, width - 16, "", words.data ? words.data : "");
        ndp_str_release(&words);
    }
    if (p->holdings[0].slices == 1)
        return y;
    return add_lines(&p->body, MARGIN, y, width, "",
                     "Weights, their gradients and optimizer state are cut into slices over all ranks of dp_shard, cp "
                     "and sp: a rank owns one, and gathers the others of a layer when it needs them.");
}

static void draw_all(picture *p, ndp_str *out) {
    int width, height, coord[NDP_AXES] = {0};
    char layout[128], title[192];
    p->card_height = card_height(p);
    measure(p, 0, &width, &height);
    int across = width > LEAST_WIDTH ? width : LEAST_WIDTH;
    snprintf(title, sizeof title, "%s: what each of %d ranks holds",
             ndp_layout_text(&p->job->layout, layout, sizeof layout), p->job->world);
    if (p->job->world == 1)
        snprintf(title, sizeof title, "one rank: what it holds");
    double y = add_top(p, title, across);
    draw(p, 0, MARGIN, y, coord);
    y = add_legend(p, y + height + GAP, across);
    ndp_svg_begin(out, across + 2 * MARGIN, (int)y + MARGIN, title, colours, NDP_COUNT(colours));
    ndp_str_add_bytes(out, p->body.data, p->body.length);
    ndp_svg_end(out);
    out->failed |= p->body.failed;
}

ndp_status ndp_layout_picture_check_path(const char *path) {
    NDP_CHECK(ndp_ends_with(path, ".svg"), "'%s' does not end in .svg: the layout is drawn as a picture", path);
    return NDP_OK;
}

ndp_status ndp_layout_picture_write(const ndp_dry_run *d, const ndp_model *whole, const char *path) {
    picture p = {.d = d, .job = d->job, .whole = whole};
    ndp_str out = {0};
    choose_axes(&p);
    ndp_status st = read_holdings(&p);
    if (st == NDP_OK) {
        draw_all(&p, &out);
        st = out.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for %s", path)
                        : ndp_file_write_atomic(path, out.data, out.length);
    }
    for (int i = 0; i < p.n_holdings; i++)
        ndp_holding_release(&p.holdings[i]);
    free(p.holdings);
    ndp_str_release(&p.body);
    ndp_str_release(&out);
    return st;
}
