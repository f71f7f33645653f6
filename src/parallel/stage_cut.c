/* The cut of a model into pipeline stages, by the cost of its units. A job makes it before its mesh; every rank, `plan`
 * and every resume make the same one, since costs are counts of operations and bytes over fixed rates, never measured.
 *
 * A stage has at least one unit besides the first and the last one of the model (embedding, head). Among all cuts into
 * consecutive ranges the one is taken whose most expensive stage is cheapest, and of these the most even one (least sum
 * of squares). Both are found by the same recursion over (stages so far, units so far). */
#include "parallel/stage_cut.h"

#include "parallel/apply.h"
#include "parallel/recompute.h"
#include <math.h>
#include <stdlib.h>

/* ---- costs ---- */

ndp_unit_cost ndp_unit_price(const ndp_unit_program *u, const ndp_price *price, const ndp_mesh *mesh,
                             ndp_recompute recompute) {
    bool again = recompute && ndp_recompute_pays(u);
    ndp_unit_cost c = {ndp_list_price(&u->lists[again ? NDP_FORWARD_DROP : NDP_FORWARD], price, mesh),
                       ndp_list_price(&u->lists[NDP_BACKWARD_INPUT], price, mesh),
                       ndp_list_price(&u->lists[NDP_BACKWARD_WEIGHT], price, mesh)};
    c.input_gradient += again ? ndp_list_price(&u->lists[NDP_RECOMPUTE], price, mesh) : 0;
    return c;
}

/* By graph, of units whose collectives run over the groups of `mesh`. */
static ndp_status graph_costs(const ndp_model *m, const ndp_mesh *mesh, const ndp_price *price, ndp_recompute recompute,
                              ndp_unit_cost *by_graph) {
    const ndp_exec exec = {.device = &ndp_device_null, .threads = 1};
    const ndp_lower_opts opts = {.exec = &exec, .selective = recompute == NDP_RECOMPUTE_SELECTIVE, .costs = true};
    for (int g = 0; g < m->n_graphs; g++) {
        ndp_unit_program u;
        NDP_TRY(ndp_lower(&m->graphs[g], &opts, &u));
        by_graph[g] = ndp_unit_price(&u, price, mesh, recompute);
        ndp_unit_program_release(&u);
    }
    return NDP_OK;
}

ndp_status ndp_unit_costs(const ndp_model *whole, const ndp_mesh *mesh, const ndp_parallel *how,
                          ndp_recompute recompute, const ndp_price *price, ndp_unit_cost *out) {
    const ndp_stages one = {0};
    ndp_unit_cost by_graph[NDP_MAX_GRAPHS];
    ndp_model m;
    NDP_TRY(ndp_parallel_apply(whole, mesh, how, &one, &m));
    ndp_status st = graph_costs(&m, mesh, price, recompute, by_graph);
    for (int i = 0; st == NDP_OK && i < m.n_units; i++)
        out[i] = by_graph[m.units[i].graph];
    ndp_model_release(&m);
    return st;
}

/* ---- the cut ---- */

/* best[s][u]: the least sum of squares of the units before u in s + 1 stages; from[s][u]: where the last of them
 * begins. */
typedef struct cut_search {
    const double *before; /* sum of the costs of the units before u */
    int units, stages;
    double *best;
    int *from;
} cut_search;

/* The last stage also has the head, the first the embedding. */
static int fewest_units(const cut_search *c, int stage) { return 1 + (stage == 0) + (stage == c->stages - 1); }

/* Whether stages of at most `most` are enough: each takes as many units as it may, but leaves one to each that follows;
 * *largest: the most expensive one, if so. */
static bool enough(const cut_search *c, double most, double *largest) {
    int first = 0;
    *largest = 0;
    for (int s = 0; s < c->stages; s++) {
        int end = first + fewest_units(c, s), left = c->stages - 1 - s;
        int last = left ? c->units - left - 1 : c->units; /* where it may end */
        if (end > last || c->before[end] - c->before[first] > most)
            return false;
        while (end < last && c->before[end + 1] - c->before[first] <= most)
            end++;
        if (!left && end < c->units)
            return false;
        *largest = fmax(*largest, c->before[end] - c->before[first]);
        first = end;
    }
    return true;
}

/* The least maximum, by halving between the mean and the whole: until the largest stage of a cut that is enough is the
 * least that is. */
static double least_maximum(const cut_search *c) {
    double low = 0, high = c->before[c->units], largest;
    for (int i = 0; i < 200 && low < high; i++) {
        double middle = low + (high - low) / 2;
        if (middle <= low || middle >= high)
            break;
        if (enough(c, middle, &largest))
            high = largest;
        else
            low = middle;
    }
    return high;
}

/* The least sum of squares among stages of at most `most`. */
static void search(cut_search *c, double most) {
    int width = c->units + 1;
    for (int s = 0; s < c->stages; s++)
        for (int end = 0, low = 0; end <= c->units; end++) {
            double *best = &c->best[s * width + end];
            *best = INFINITY;
            while (low < end && c->before[end] - c->before[low] > most)
                low++;
            for (int first = s == 0 ? 0 : low > s ? low : s; first < (s == 0 ? 1 : end); first++) {
                double earlier = s == 0 ? 0 : c->best[(s - 1) * width + first],
                       cost = c->before[end] - c->before[first], measure = earlier + cost * cost;
                if (end - first >= fewest_units(c, s) && cost <= most && measure < *best)
                    *best = measure, c->from[s * width + end] = first;
            }
        }
}

static ndp_status cut_by_cost(const double *before, int units, int stages, int *first) {
    size_t n = (size_t)stages * ((size_t)units + 1);
    cut_search c = {before, units, stages, calloc(n, sizeof(double)), calloc(n, sizeof(int))};
    ndp_status st = NDP_MEMORY(c.best && c.from, "to cut a model into stages");
    if (st == NDP_OK) {
        search(&c, least_maximum(&c) * (1 + 1e-9));
        first[stages] = units;
        for (int s = stages - 1; s >= 0; s--)
            first[s] = c.from[s * (units + 1) + first[s + 1]];
    }
    free(c.best);
    free(c.from);
    return st;
}

static ndp_status cut_as_given(const int *layers, int n, int units, int stages, int *first) {
    int sum = 0, inner = units - 2;
    NDP_CHECK(n == stages, "pipeline.stages has %d number%s for %d stages", n, n == 1 ? "" : "s", stages);
    first[0] = 0;
    for (int s = 0; s < n; s++) {
        NDP_CHECK(layers[s] >= 1, "pipeline.stages: stage %d has %d layers; a stage has at least one", s, layers[s]);
        sum += layers[s];
        first[s + 1] = 1 + sum;
    }
    NDP_CHECK(sum == inner, "pipeline.stages: the stages have %d layers together, the model has %d", sum, inner);
    first[stages] = units;
    return NDP_OK;
}

ndp_status ndp_stage_cut(const ndp_model *whole, const ndp_unit_cost *costs, int stages, const int *layers, int n,
                         int *first) {
    int units = whole->n_units;
    NDP_CHECK(stages <= units - 2, "%d pipeline stages, but the model has %d layers; a stage has at least one", stages,
              units - 2);
    if (n > 0)
        return cut_as_given(layers, n, units, stages, first);
    double *before = calloc((size_t)units + 1, sizeof *before);
    NDP_CHECK_MEMORY(before, "to cut a model into stages");
    for (int i = 0; i < units; i++)
        before[i + 1] = before[i] + costs[i].forward + costs[i].input_gradient + costs[i].weight_gradient;
    ndp_status st = cut_by_cost(before, units, stages, first);
    free(before);
    return st;
}
