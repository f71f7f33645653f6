/* The plots of a report's page: one for each number of metrics.jsonl, with all runs that have it. */
#include "base/arena.h"
#include "report/page.h"
#include "report/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The first plots, in this order; those of other keys follow, under their keys. */
static const struct {
    const char *key, *title;
    ndp_quantity quantity;
} known[] = {{"loss", "loss", NDP_QUANTITY_NUMBER},
             {"eval_loss", "eval_loss, of held-out data", NDP_QUANTITY_NUMBER},
             {"grad_norm", "grad_norm", NDP_QUANTITY_NUMBER},
             {"lr", "learning rate", NDP_QUANTITY_NUMBER},
             {"tokens_per_second", "tokens/s", NDP_QUANTITY_COUNT},
             {"mfu", "mfu", NDP_QUANTITY_SHARE},
             {"peak_memory_bytes", "peak memory of rank 0", NDP_QUANTITY_BYTES},
             {"rewards/chosen", "rewards/chosen", NDP_QUANTITY_NUMBER},
             {"rewards/rejected", "rewards/rejected", NDP_QUANTITY_NUMBER},
             {"rewards/accuracies", "rewards/accuracies", NDP_QUANTITY_SHARE},
             {"rewards/margins", "rewards/margins", NDP_QUANTITY_NUMBER},
             {"kl", "kl", NDP_QUANTITY_NUMBER}};

/* Columns of all plots of a page, so that its size does not depend on the number of curves. */
enum { ALL_COLUMNS = 18000, LEAST_COLUMNS = 60 };

typedef struct keys {
    const char **items;
    int64_t n, capacity;
} keys;

static ndp_status add_key(keys *k, const char *key) {
    for (int64_t i = 0; i < k->n; i++)
        if (strcmp(k->items[i], key) == 0)
            return NDP_OK;
    NDP_TRY(ndp_array_reserve(&k->items, &k->capacity, k->n + 1, sizeof *k->items));
    k->items[k->n++] = key;
    return NDP_OK;
}

static ndp_status collect_keys(const ndp_page *p, keys *k) {
    for (int i = 0; i < NDP_COUNT(known); i++)
        for (int r = 0; r < p->n; r++)
            if (ndp_run_metrics_curve(&p->runs[r].metrics, known[i].key))
                NDP_TRY(add_key(k, known[i].key));
    for (int r = 0; r < p->n; r++)
        for (int i = 0; i < p->runs[r].metrics.n_curves; i++)
            NDP_TRY(add_key(k, p->runs[r].metrics.curves[i].key));
    return NDP_OK;
}

static void limit_columns(ndp_page *p) {
    int n = 1;
    for (int r = 0; r < p->n; r++)
        n += p->runs[r].metrics.n_curves;
    int most = ALL_COLUMNS / (n * NDP_OVERS);
    for (int r = 0; r < p->n; r++)
        for (int i = 0; i < p->runs[r].metrics.n_curves; i++)
            for (int over = 0; over < NDP_OVERS; over++)
                ndp_columns_limit(&p->runs[r].metrics.curves[i].over[over],
                                  most < LEAST_COLUMNS ? LEAST_COLUMNS : most);
}

/* One x axis for all plots: from the first line of all runs, or from 0 where that is near. */
static void set_range(const ndp_page *p, ndp_over over, ndp_plot *plot) {
    plot->left = INFINITY;
    for (int r = 0; r < p->n; r++)
        for (int i = 0; i < p->runs[r].metrics.n_curves; i++) {
            const ndp_curve_columns *c = &p->runs[r].metrics.curves[i].over[over];
            if (c->n == 0)
                continue;
            plot->left = fmin(plot->left, c->at[0].x); /* the first and the last column have points */
            plot->right = fmax(plot->right, c->at[c->n - 1].x);
        }
    if (plot->left < plot->right / 2 || plot->left > plot->right)
        plot->left = 0;
}

static void add_plot(ndp_page *p, const char *key, ndp_over over, const ndp_curve_columns **curves) {
    static const struct {
        const char *name;
        ndp_quantity quantity;
    } overs[NDP_OVERS] = {
        {"steps", NDP_QUANTITY_COUNT}, {"tokens", NDP_QUANTITY_COUNT}, {"time", NDP_QUANTITY_SECONDS}};
    ndp_plot plot = {.title = key, .name = overs[over].name, .x = overs[over].quantity, .curves = curves, .n = p->n};
    for (int i = 0; i < NDP_COUNT(known); i++)
        if (strcmp(known[i].key, key) == 0) {
            plot.title = known[i].title;
            plot.y = known[i].quantity;
        }
    set_range(p, over, &plot);
    for (int r = 0; r < p->n; r++) {
        const ndp_curve *c = ndp_run_metrics_curve(&p->runs[r].metrics, key);
        curves[r] = c ? &c->over[over] : NULL;
    }
    ndp_str_add(&p->out, "<div class=\"card\">");
    ndp_plot_add(&p->out, &plot);
    ndp_str_add(&p->out, "</div>\n");
}

static void add_legend(ndp_page *p) {
    ndp_str_add(&p->out, "<p>");
    for (int r = 0; r < p->n; r++) {
        ndp_str_addf(&p->out,
                     "<span class=\"key\"><svg class=\"swatch\" viewBox=\"0 0 12 12\"><rect class=\"p%d\" "
                     "width=\"12\" height=\"12\"/></svg>",
                     r % NDP_PLOT_COLOURS);
        ndp_page_put(&p->out, "span", "%s%s", p->names[r], r < NDP_PLOT_COLOURS ? "" : ", dashed");
        ndp_str_add(&p->out, "</span> ");
    }
    ndp_str_add(&p->out, "</p>\n");
}

static void add_buttons(ndp_page *p) {
    static const char *const words[] = {"over steps", "over tokens", "over time"};
    for (int over = 0; over < NDP_OVERS; over++)
        ndp_str_addf(&p->out, "<input type=\"radio\" name=\"over\" id=\"over%d\"%s><label for=\"over%d\"> %s</label>\n",
                     over, over ? "" : " checked", over, words[over]);
}

ndp_status ndp_page_plots(ndp_page *p) {
    keys k = {0};
    const ndp_curve_columns **curves = calloc((size_t)p->n, sizeof *curves);
    ndp_status st = curves ? collect_keys(p, &k) : NDP_FAIL(NDP_ENOMEM, "not enough memory for a report");
    if (st == NDP_OK && k.n) {
        limit_columns(p);
        ndp_str_add(&p->out, "<section><h2>Curves</h2>\n");
        add_buttons(p);
        if (p->n > 1)
            add_legend(p);
        for (int over = 0; over < NDP_OVERS; over++) {
            ndp_str_addf(&p->out, "<div class=\"plots over%d\">\n", over);
            for (int64_t i = 0; i < k.n; i++)
                add_plot(p, k.items[i], (ndp_over)over, curves);
            ndp_str_add(&p->out, "</div>\n");
        }
        ndp_str_add(&p->out, "</section>\n");
    }
    free(k.items);
    free(curves);
    return st;
}
