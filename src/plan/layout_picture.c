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

#include "plan/picture_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of more than WHOLE ranks, FEW are drawn at most. */
enum { WHOLE = 64, FEW = 16, COLUMNS = 4 };
static const ndp_svg_colour colours[] = {{"pp", "#8250df", "#ab7df8"},       {"dp_replicate", "#0e7490", "#4fc9d8"},
                                         {"dp_shard", "#0969da", "#58a6ff"}, {"cp", "#1a7f37", "#3fb950"},
                                         {"sp", "#9a6700", "#d29922"},       {"tp", "#bc4c00", "#f0883e"}};

/* ---- frames ---- */

/* Width and height of what is inside of the frames of the axes before number `level`. */
static void measure(const ndp_picture *p, int level, int *width, int *height) {
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

static const ndp_holding *holding_at(const ndp_picture *p, const int coord[NDP_AXES]) {
    int rank = ndp_mesh_rank_of(&p->job->layout, coord), i = 0;
    while (i < p->n_holdings - 1 && p->holdings[i].mesh.rank != rank)
        i++;
    return &p->holdings[i];
}

/* What all ranks of a frame have in common and those of the next do not. */
static void add_common(const ndp_picture *p, ndp_axis axis, const ndp_holding *h, ndp_str *out) {
    bool samples = axis == ndp_picture_axis_of_both(p, NDP_DP_REPLICATE, NDP_DP_SHARD),
         tokens = axis == ndp_picture_axis_of_both(p, NDP_CP, NDP_SP);
    const ndp_numbers *s = &h->of[samples ? NDP_DIVIDED_SAMPLES : tokens ? NDP_DIVIDED_TOKENS : NDP_DIVIDED_UNITS];
    const char *what = samples ? "sample" : tokens ? "token" : "layer";
    ndp_str words = {0};
    if (!samples && !tokens && axis != NDP_PP)
        return;
    if (axis == NDP_PP)
        ndp_picture_add_layers(p, s, &words);
    else
        ndp_picture_add_numbers(s, &words);
    ndp_str_addf(out, ": %s%s %s", what, ndp_numbers_count(s) == 1 ? "" : "s", words.data ? words.data : "");
    ndp_str_release(&words);
}

static void add_frame(ndp_picture *p, int level, double x, double y, int width, int height, const int coord[NDP_AXES]) {
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
static void draw(ndp_picture *p, int level, double x, double y, int coord[NDP_AXES]) {
    int width, height;
    if (level == p->n_axes) {
        ndp_picture_add_card(p, x, y, holding_at(p, coord));
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
static void choose_axes(ndp_picture *p) {
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

static ndp_status read_holdings(ndp_picture *p) {
    int cards = 1, coord[NDP_AXES] = {0};
    for (int axis = 0; axis < NDP_AXES; axis++)
        cards *= p->shown[axis];
    p->holdings = calloc((size_t)cards, sizeof *p->holdings);
    NDP_CHECK_MEMORY(p->holdings, "for a picture of %d ranks", cards);
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

static void add_axis_words(const ndp_picture *p, ndp_axis axis, ndp_str *out) {
    const ndp_config *c = p->job->config;
    ndp_str_addf(out, "%s %d: %s", ndp_axis_name(axis), ndp_picture_size(p, axis), axis_words[axis]);
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

static void add_totals(const ndp_picture *p, ndp_str *out) {
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
                 ndp_picture_number(j->spec.parameters, parameters), j->batch.global_batch,
                 j->batch.global_batch == 1 ? "" : "s", j->config->data.sequence_length);
    if (j->batch.micro_batch > 1)
        ndp_str_addf(out, "; tokens are numbered through the %d samples of a micro-batch", j->batch.micro_batch);
    ndp_str_add(out, ".");
}

static void add_left_out(const ndp_picture *p, ndp_str *out) {
    ndp_str_addf(out, "Drawn: %d of %d ranks,", p->n_holdings, p->job->world);
    const char *before = " the first";
    for (int axis = 0; axis < NDP_AXES; axis++)
        if (p->shown[axis] < ndp_picture_size(p, (ndp_axis)axis)) {
            ndp_str_addf(out, "%s %d of %d along %s", before, p->shown[axis], ndp_picture_size(p, (ndp_axis)axis),
                         ndp_axis_name((ndp_axis)axis));
            before = ",";
        }
    ndp_str_add(out, "; the others continue in the same way.");
}

/* Adds the title and the totals; returns the y after them. */
static double add_top(ndp_picture *p, const char *title, double width) {
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
static double add_legend(ndp_picture *p, double y, double width) {
    y = add_lines(
        &p->body, MARGIN, y, width, "class=\"soft\"",
        "Bars: coloured, the part that the rank has; grey, all. Last lines of a card: the ranks that differ on "
        "this axis alone, and communicate along it.");
    for (int axis = 0; axis < NDP_AXES; axis++) {
        ndp_str words = {0};
        char attributes[64];
        if (ndp_picture_size(p, (ndp_axis)axis) == 1)
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

static void draw_all(ndp_picture *p, ndp_str *out) {
    int width, height, coord[NDP_AXES] = {0};
    char layout[128], title[192];
    p->card_height = ndp_picture_card_height(p);
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
    ndp_picture p = {.d = d, .job = d->job, .whole = whole};
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
